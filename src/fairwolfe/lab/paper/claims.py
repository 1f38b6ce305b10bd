"""What the paper states about its figures, judged by our runs.

A claim is judged over seeds, paired: it *holds* where the 95 % interval lies on the right side, and
is *undecided* where the interval straddles.

Statistics and thresholds were registered twice. The first registration, before any run, is `FIRST`.
The second was written when the verdicts of the first were known: the claims about Last.fm-50 in a
second reading of the data, and other statistics for five sentences, whose ids end in '.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from fairwolfe.core.arrays import Vector
from fairwolfe.lab.paper import judges as by
from fairwolfe.lab.paper.curves import Curves, Finding, Truth, above
from fairwolfe.lab.paper.studies import STUDIES, Reading


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, the experiments it is about, and how it is judged.

    judge: called with the curves of the experiments, and with the `Truth` of each after them where
        the claim is `certified`
    """

    id: str
    sentence: str
    needs: tuple[str, ...]
    judge: Callable[..., Finding]
    certified: bool = False

    @property
    def reading(self) -> Reading:
        """Which reading of the data it is judged in."""
        return STUDIES[self.needs[-1]].reading

    @property
    def registration(self) -> Literal["first", "second"]:
        """When its statistic and its world were fixed."""
        return "second" if self.reading == "second" or self.id.endswith("'") else "first"

    @property
    def where(self) -> str:
        """The experiments, in words."""
        return " and ".join(self.needs)


def judge(
    results: Mapping[str, Curves],
    claims: Iterable[Claim] | None = None,
    truths: Mapping[str, Truth] | None = None,
) -> list[tuple[Claim, Finding]]:
    """The finding for each claim whose experiments have results, in the order of the claims.

    truths: of the experiments; without them certified claims are left out
    """
    findings = []
    for claim in CLAIMS if claims is None else claims:
        needed = [results, truths or {}] if claim.certified else [results]
        if all(name in given for given in needed for name in claim.needs):
            known = (given[name] for given in needed for name in claim.needs)
            findings.append((claim, claim.judge(*known)))
    return findings


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

FIRST: tuple[Claim, ...] = (
    *(
        Claim(id, sentence, (f"arms-{K}-{D}",), rule)
        for K in (50, 200)
        for id, (sentence, rule) in by.ARMS.items()
        for D in (5, 20)
    ),
    *(
        Claim("M6", "K = 200 is as K = 50", (f"arms-50-{D}", f"arms-200-{D}"), by.same_verdicts)
        for D in (5, 20)
    ),
    *(Claim(id, sentence, (where,), rule) for id, where, sentence, rule in _RANKINGS),
)

_RANGE = "With beta = 0.5 the items get more of their range than the users of theirs"
_MOVES = "beta controls the trade-off where the best policies differ"
_SOON = "FW converges in about {} rounds, to 90 % of its way (a)"
_SOONER = "FW converges more quickly than its competitors (b)"
_LOG_SLOPE = "The regret vanishes like ln(T)/sqrt(T)"

_AGAIN = (
    *(
        Claim("R6'", _RANGE, (f"lastfm-50-{f}{reading}",), by.items_get_more, certified=True)
        for f in ("gini", "welfare")
        for reading in ("", "-second")
    ),
    *(
        Claim("R12'", _MOVES, (where,), by.beta_moves, certified=True)
        for where in ("lastfm-50-tradeoff", "lastfm-50-tradeoff-second", "lastfm-2k-tradeoff")
    ),
    Claim("R15'", _SOON.format("5,000"), ("lastfm-2k-gini",), by.most_of_the_way(5e3)),
    Claim("R15'", _SOONER, ("lastfm-2k-gini",), by.sooner_than_others),
    Claim("R16'", _SOON.format("500"), ("lastfm-2k-welfare",), by.most_of_the_way(5e2)),
    Claim("R16'", _SOONER, ("lastfm-2k-welfare",), by.sooner_than_others),
    Claim("T1'", _LOG_SLOPE, ("regret-ranking",), by.vanishes_but_for_logarithm(by.FAIR)),
)

CLAIMS: tuple[Claim, ...] = (
    *FIRST,
    *(
        replace(claim, needs=tuple(f"{name}-second" for name in claim.needs))
        for claim in FIRST
        if all(f"{name}-second" in STUDIES for name in claim.needs)
    ),
    *_AGAIN,
)


_BY_FACTORS = {
    "R5": "lastfm-50-factors-tradeoff",
    "R7": "lastfm-50-factors-gini",
    "R9": "lastfm-50-factors-gini",
}


class ByFactors(NamedTuple):
    """The finding for a claim with a number of factors, in the second reading of the data."""

    id: str
    sentence: str
    factors: int
    finding: Finding


def by_factors(results: Mapping[str, Curves]) -> list[ByFactors]:
    """R5, R7 and R9 for each number of factors, by the judges of the first registration."""
    claims = {claim.id: claim for claim in FIRST if claim.id in _BY_FACTORS}
    return [
        ByFactors(id, claims[id].sentence, int(factors), claims[id].judge(curves))
        for id, study in _BY_FACTORS.items()
        if study in results
        for factors, curves in results[study].split("factors").items()
    ]


class Beyond(NamedTuple):
    """A curve at its horizon."""

    label: str
    value: Finding
    """f."""
    below: float
    """How far f is below the best possible, the mean over seeds."""
    apart: Finding | None
    """f - f of the paper's own curve, paired by seed; None: it is the paper's."""


def paper_curve(label: str) -> str:
    """The paper's own curve that a curve is a change of, or is.

    >>> paper_curve("FW-LinUCBRank + all three"), paper_curve("FW-LinUCBRank")
    ('FW-LinUCBRank', 'FW-LinUCBRank')
    """
    return label.partition(" + ")[0]


def beyond(curves: Curves, tops: Vector) -> list[Beyond]:
    """Every curve of a study, in its order; tops: the best possible f, by seed or for all."""
    rows = []
    for label in curves.runs:
        final, own = curves.at(label), paper_curve(label)
        apart = None if own == label else above("difference", final - curves.at(own))
        rows.append(Beyond(label, above("f", final), float((tops - final).mean()), apart))
    return rows


def counted(name: str, rows: Sequence[Beyond]) -> str:
    """How many changes end above the paper's own curve and below it, by their intervals, in words.

    >>> import numpy as np
    >>> rows = beyond(Curves(np.array([9]), {"A": {"value": np.array([[1.0], [2.0]])}}), np.ones(1))
    >>> counted("small", rows)
    "small, 0 changes: 0 above the paper's curve, 0 below it, 0 with 0 inside the interval."
    """
    apart = [row.apart for row in rows if row.apart is not None]
    higher, lower = sum(one.low > 0.0 for one in apart), sum(one.high < 0.0 for one in apart)
    return (
        f"{name}, {len(apart)} changes: {higher} above the paper's curve, {lower} below it, "
        f"{len(apart) - higher - lower} with 0 inside the interval."
    )
