"""What the paper states about its figures, judged by our runs.

A claim is judged over seeds, paired: it *holds* where the 95 % interval lies on the right side, and
is *undecided* where the interval straddles.

Statistics and thresholds were registered three times. The first registration, before any run, is
`FIRST`. The second was written when the verdicts of the first were known: the claims about
Last.fm-50 in a second reading of the data, and other statistics for five sentences, whose ids end
in '. The third (`THIRD`) was written after both: the literal reading of the data, fresh seeds, f of
the *observed* averages as in Eq. (3), and statistics nearer to the sentences, whose ids end in ''.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fairwolfe.core.arrays import Vector
from fairwolfe.lab.paper import judges as by
from fairwolfe.lab.paper.curves import Curves, Finding, Truth, Verdict, above, all_of
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
    def registration(self) -> Reading:
        """When its statistic and its world were fixed."""
        if self.reading == "third":
            return "third"
        return "second" if self.reading == "second" or self.id.endswith("'") else "first"

    @property
    def where(self) -> str:
        """The experiments, in words."""
        return " and ".join(self.needs)

    @property
    def observed(self) -> bool:
        """Whether it is judged by f of the observed averages: arms, as the paper says, are not."""
        return self.registration == "third" and not self.where.startswith("arms")

    @property
    def claim(self) -> str:
        """The claim of the paper that it is a reading of.

        >>> sorted({claim.claim for claim in FIRST})[-3:], len({claim.claim for claim in FIRST})
        (['R9', 'T1', 'T2'], 26)
        """
        return claim_of(self.id)


def claim_of(id: str) -> str:
    """The claim of the paper that an id is a statistic of.

    >>> claim_of("R9''"), claim_of("R17b"), claim_of("A1b")
    ('R9', 'R17', 'A1b')
    """
    return "R17" if id.startswith("R17") else id.rstrip("'")


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
            known = [given[name] for given in needed for name in claim.needs]
            if claim.observed:
                known = [one.observed() if isinstance(one, Curves) else one for one in known]
            findings.append((claim, claim.judge(*known)))
    return findings


def judge_observed(claim: Claim, results: Mapping[str, Curves]) -> Finding | None:
    """The finding by f of the observed averages, for claims about rankings that are judged by the
    expected ones; None for the others.
    """
    if claim.certified or claim.observed or not claim.where.startswith("lastfm"):
        return None
    kept = [results[name] for name in claim.needs]
    if any("observed" not in run for one in kept for run in one.runs.values()):
        return None
    return claim.judge(*(one.observed() for one in kept))


class ByClaim(NamedTuple):
    """What the rows of one claim say together, in one registration."""

    claim: str
    registration: Reading
    verdict: Verdict
    """Of all its rows: it holds where all hold, and does not where one does not."""
    rows: list[tuple[Claim, Finding]]


def by_claim(judged: Iterable[tuple[Claim, Finding]]) -> list[ByClaim]:
    """A verdict for each claim and registration, in the order of the rows."""
    groups: dict[tuple[Reading, str], list[tuple[Claim, Finding]]] = {}
    for claim, finding in judged:
        groups.setdefault((claim.registration, claim.claim), []).append((claim, finding))
    return [
        ByClaim(id, registration, all_of(*(finding for _, finding in rows)).verdict, rows)
        for (registration, id), rows in groups.items()
    ]


_LINES = 8


def failures(judged: list[tuple[Claim, Finding]]) -> list[str]:
    """A line for each claim that does not hold, of the last registration that judged it, and why:
    what was found, what it had to be, and what another registration says. At most eight; those
    that do not hold before those that are undecided.
    """
    groups = by_claim(judged)
    newest = {group.claim: group for group in groups}
    missed = [group for group in newest.values() if group.verdict != "holds"]
    missed.sort(key=lambda group: group.verdict == "undecided")
    lines = []
    for group in missed[:_LINES]:
        order = {"does not hold": 0, "undecided": 1, "holds": 2}
        claim, found = min(group.rows, key=lambda row: order[row[1].verdict])
        others = [one for one in groups if one.claim == group.claim and one is not group]
        kept = [one.registration for one in others if one.verdict == "holds"]
        why = f"it holds by the {' and '.join(kept)} registration" if kept else ""
        if not kept and others:
            why = "it holds by none of the registrations"
        if group.verdict == "undecided":
            why = "; ".join(filter(None, ["the interval straddles", why]))
        lines.append(
            f"{claim.id} {group.verdict} ({claim.sentence}; {claim.where}): {found.statistic} is "
            f"{found.estimate:.4g} ({found.low:.4g} to {found.high:.4g}), to be {found.wanted}"
            f"{'; ' * bool(why)}{why}."
        )
    if len(missed) > _LINES:
        lines[-1] += f" {len(missed) - _LINES} more are in the tables."
    return lines


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

_CHEAP = ("R1", "R2", "R3", "R4", "R5", "R11", "R13", "R14", "R16", "R17a", "R17b", "R18")
_MEAN = "The mean curve of Unbiased decreases after {}"
_ALPHA = "alpha controls the degree of redistribution"

THIRD: tuple[Claim, ...] = (
    *(
        replace(claim, needs=tuple(f"{name}-third" for name in claim.needs))
        for claim in FIRST
        if claim.id in _CHEAP
    ),
    *(
        Claim(id, sentence, (f"{where}-third",), rule, certified)
        for id, where, sentence, rule, certified in (
            (
                "R4''",
                "lastfm-50-tradeoff",
                "FW-LinUCBRank has much more utility than FairLearn",
                by.much_more_utility,
                False,
            ),
            (
                "R7''",
                "lastfm-50-gini",
                "FW is highest across timesteps",
                by.highest_in_rounds,
                False,
            ),
            (
                "R8''",
                "lastfm-50-welfare",
                "FW is highest across timesteps",
                by.highest_in_rounds,
                False,
            ),
            ("R9''", "lastfm-50-gini", _MEAN.format("10^4"), by.mean_falls_after(3e3, 3e4), False),
            (
                "R10''",
                "lastfm-50-welfare",
                _MEAN.format("5 10^5"),
                by.mean_falls_after(1.5e5, 1.5e6),
                False,
            ),
            ("R15''", "lastfm-2k-gini", _SOON.format("5,000"), by.most_of_the_way(5e3), False),
            ("R15''", "lastfm-2k-gini", _SOONER, by.sooner_than_others, False),
            (
                "R16''",
                "lastfm-2k-welfare",
                "FW converges in about 500 rounds, to 97 % of its value",
                by.converges_by(5e2, 97.0),
                False,
            ),
            ("T1''", "regret-arms", _SLOPE, by.observed_vanishes("FW-LinUCB"), True),
            ("T1''", "regret-arms", _SLOPE, by.observed_vanishes("FW-SquareCB"), True),
            ("T1''", "regret-ranking", _SLOPE, by.observed_vanishes(by.FAIR), True),
            ("A1", "lastfm-50-alpha", _ALPHA, by.redistributes(0.9, 0.7, 0.5, 0.3), False),
            ("A1b", "lastfm-50-alpha", f"{_ALPHA}, to .1", by.redistributes(0.3, 0.1), False),
            ("B1", "lastfm-50-welfare-beta", _MOVES, by.beta_moves, True),
            ("B1", "lastfm-50-equal-beta", _MOVES, by.beta_moves, True),
            (
                "E1",
                "arms-50-5",
                "FW-LinUCB is better when epsilon is smaller",
                by.less_explores_better,
                False,
            ),
            (
                "E1",
                "arms-50-20",
                "FW-LinUCB is better when epsilon is smaller",
                by.less_explores_better,
                False,
            ),
        )
    ),
)

CLAIMS: tuple[Claim, ...] = (
    *FIRST,
    *(
        replace(claim, needs=tuple(f"{name}-second" for name in claim.needs))
        for claim in FIRST
        if all(f"{name}-second" in STUDIES for name in claim.needs)
    ),
    *_AGAIN,
    *THIRD,
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
