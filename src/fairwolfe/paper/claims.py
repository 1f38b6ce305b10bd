"""What the paper says of its figures, judged by our runs.

A claim is judged over seeds, paired: it *holds* where the 95 % interval lies on the right side, and
is *undecided* where the interval straddles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fairwolfe.paper import judges as by
from fairwolfe.paper.curves import Curves
from fairwolfe.paper.verdicts import Finding

__all__ = ["CLAIMS", "Claim", "judge"]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, the experiments it is about, and how it is judged."""

    id: str
    sentence: str
    needs: tuple[str, ...]
    judge: Callable[..., Finding]

    @property
    def where(self) -> str:
        """The experiments, in words."""
        return " and ".join(self.needs)


def judge(
    results: Mapping[str, Curves], claims: Iterable[Claim] | None = None
) -> list[tuple[Claim, Finding]]:
    """What was found for each claim whose experiments have results, in the order of the claims."""
    return [
        (claim, claim.judge(*(results[name] for name in claim.needs)))
        for claim in (CLAIMS if claims is None else claims)
        if all(name in results for name in claim.needs)
    ]


_BETTER_TRADE = "FW-LinUCBRank has more utility than FairLearn at all levels of inequality"
_CONTROL = "beta controls the trade-off: utility and inequality fall as it grows"
_EARLY = "In the first 10^5 rounds Unbiased is significantly lower than FW-LinUCBRank"
_ITEMS = "With beta = 0.5 the item objective weighs more in f than the utility"
_SLOPE = "The regret vanishes like 1/sqrt(T)"
_ANYTIME = "Smoothing of all time is no worse than that of a fixed horizon"

_RANKINGS = (
    ("R1", "lastfm-50", "FW-LinUCBRank reaches the best values of f", by.highest),
    ("R2", "lastfm-50", "Unbiased has high values of f in the first 10^4", by.high_at_first),
    ("R3", "lastfm-50", "Then the values of Unbiased decrease", by.then_decreases),
    ("R4", "lastfm-50-tradeoff", _BETTER_TRADE, by.more_utility),
    (
        "R5",
        "lastfm-50-tradeoff",
        "No unfairness at little cost for users",
        by.equality_is_cheap(50),
    ),
    ("R6", "lastfm-50-gini", _ITEMS, by.item_side_weighs_more),
    ("R6", "lastfm-50-welfare", _ITEMS, by.item_side_weighs_more),
    ("R7", "lastfm-50-gini", "FW is highest across time (Gini)", by.highest_throughout),
    ("R8", "lastfm-50-welfare", "FW is highest across time (Welf)", by.highest_throughout),
    ("R9", "lastfm-50-gini", "Unbiased decreases after 10^4 (Gini)", by.falls_after(3e3, 3e4)),
    ("R10", "lastfm-50-welfare", "Unbiased decreases after 5 10^5", by.falls_after(1.5e5, 1.5e6)),
    ("R11", "lastfm-50-equal", "Unbiased is better than FW", by.better(by.UNBIASED, by.FAIR)),
    ("R12", "lastfm-50-tradeoff", _CONTROL, by.beta_controls),
    ("R12", "lastfm-2k-tradeoff", _CONTROL, by.beta_controls),
    ("R13", "lastfm-2k-gini", "FW reaches the highest f (Gini)", by.highest),
    ("R14", "lastfm-2k-welfare", "FW reaches the highest f (Welf)", by.highest),
    ("R15", "lastfm-2k-gini", "FW converges in about 5,000 rounds", by.converges_by(5e3)),
    ("R16", "lastfm-2k-welfare", "FW converges in about 500 rounds", by.converges_by(5e2)),
    ("R17a", "lastfm-2k-gini", f"{_EARLY} (read as: for Gini)", by.lower_at_first),
    ("R17b", "lastfm-2k-welfare", f"{_EARLY} (read as: for Welf)", by.lower_at_first),
    ("R18", "lastfm-2k-tradeoff", _BETTER_TRADE, by.more_utility),
    ("T1", "regret-arms", _SLOPE, by.vanishes("FW-LinUCB")),
    ("T1", "regret-arms", _SLOPE, by.vanishes("FW-SquareCB")),
    ("T1", "regret-ranking", _SLOPE, by.vanishes(by.FAIR)),
    ("T2", "anytime-1000", _ANYTIME, by.no_worse),
    ("T2", "anytime-10000", _ANYTIME, by.no_worse),
    ("T2", "anytime-100000", _ANYTIME, by.no_worse),
)

CLAIMS: tuple[Claim, ...] = (
    *(
        Claim(id, sentence, (f"arms-{K}-{D}",), found)
        for K in (50, 200)
        for id, (sentence, found) in by.ARMS.items()
        for D in (5, 20)
    ),
    *(
        Claim("M6", "K = 200 is as K = 50", (f"arms-50-{D}", f"arms-200-{D}"), by.same_verdicts)
        for D in (5, 20)
    ),
    *(Claim(id, sentence, (where,), found) for id, where, sentence, found in _RANKINGS),
)
