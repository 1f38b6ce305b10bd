"""Whether logged data can be used, in sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.problem import Problem
from fairwolfe.offpolicy.decisions import LoggedArms, LoggedRankings
from fairwolfe.offpolicy.sums import (
    About,
    Data,
    FactSums,
    Issued,
    Source,
    Weights,
    facts_of,
    weight_sums,
)

_SURE = 4.0  # standard errors: what is reported is not chance
_FEW = 100.0
_GAPS = 0.01  # of decisions without feedback
_DRIFT = 0.2  # relative change of the mean probability over the log


@dataclass(frozen=True)
class Check:
    """usable: whether anything can be estimated; sentences: all that was found, the worst first.

    >>> print(Check(True, (), ("4 decisions, 2 arms",)))
    usable
    - 4 decisions, 2 arms
    """

    usable: bool
    problems: tuple[str, ...]
    facts: tuple[str, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """Everything."""
        return (*self.problems, *self.facts)

    def __str__(self) -> str:
        head = "usable" if self.usable else "not usable"
        if self.usable and self.problems:
            head = "usable with care"
        return "\n".join([head, *(f"- {text}" for text in self.sentences)])


class CheckSums(NamedTuple):
    """Of the log: rewards outside their ranges by name, the largest of each and of its negative;
    sums of weights if arms had been chosen uniformly; how many arms (or items) could be chosen at
    most, and how often each was; of logged distributions what does not fit; of probabilities those
    that are certain, their ends, and by quarter of the log how many and their sum.
    """

    outside: IntVector
    most_high: Vector
    most_low: Vector
    weights: Vector
    most_weight: float
    most_arms: int
    chosen: Vector
    spread: DistributionSums
    certain: int
    most_p: float
    most_minus_p: float
    quarters: Matrix
    issued: Issued
    late: LateSums
    most_off: float  # of item-at-rank probabilities, how far they are from 1; NaN: there are none
    impossible: int  # decisions that showed an item in a slot where its probability is 0


class DistributionSums(NamedTuple):
    """Of logged distributions: how many do not sum to 1, how many have another probability for the
    action, by arm how often it was chosen, was to be expected, and the variance of that; how many
    arms had probability 0, and of how many.
    """

    wrong: int
    unequal: int
    chosen: Vector
    expected: Vector
    variance: Vector
    zero: int
    allowed: int


class LateSums(NamedTuple):
    """Of how many places later within its chunk a decision was answered than made, and rewards r:
    late, its square, r, r^2, late r.
    """

    late: float
    squares: float
    rewards: Vector
    reward_squares: Vector
    crossed: Vector


@dataclass(frozen=True)
class Checks:
    """Those sums."""

    def sums(self, about: About, span: slice, chunk: Data) -> CheckSums:
        """Of one chunk."""
        problem, p = about.problem, chunk.probability
        rewards = chunk.totals()[:, problem.n_items or 0 :]
        low, high = np.array(list(problem.rewards.values()), dtype=np.float64).T
        good = np.where((p > 0.0) & ~np.isnan(p), p, 1.0)
        if isinstance(chunk, LoggedArms):
            shown, off = chunk.actions, (0.0, 0)
            counts = chunk.parts[0].allowed().sum(axis=1)
            spread = _distribution_sums(chunk)
        else:
            shown, counts, spread = chunk.rankings.ravel(), np.ones(1), _NO_DISTRIBUTION
            off = _at_rank_sums(chunk)
        w = 1.0 / (counts * good)
        quarter = np.arange(span.start, span.stop) * 4 // max(about.n, 4)
        quarters = [np.bincount(quarter, one, 4) for one in (np.ones(chunk.n), good)]
        return CheckSums(
            ((rewards < low) | (rewards > high)).sum(axis=0),
            rewards.max(axis=0),
            -rewards.min(axis=0),
            weight_sums(w),
            float(w.max()),
            int(counts.max()),
            np.bincount(shown).astype(np.float64),
            spread,
            int((p >= 1.0 - 1e-9).sum()),
            float(good.max()),
            float(-good.min()),
            np.array(quarters),
            Issued.of(chunk.agents, chunk.numbers),
            _late_sums(chunk.numbers, rewards),
            *off,
        )


_NO_DISTRIBUTION = DistributionSums(0, 0, np.zeros(0), np.zeros(0), np.zeros(0), 0, 0)


def _distribution_sums(chunk: LoggedArms) -> DistributionSums:
    (part,), (known,) = chunk.parts, chunk.distribution
    if known is None:
        return _NO_DISTRIBUTION
    full = ~np.isnan(known).any(axis=1)
    rows, actions, allowed = known[full], chunk.actions[full], part.allowed()
    own = rows[np.arange(len(rows)), actions]
    return DistributionSums(
        int((np.abs(rows.sum(axis=1) - 1.0) > 1e-6).sum()),
        int((np.abs(own - chunk.probability[full]) > 1e-6).sum()),
        np.bincount(actions, minlength=part.n_arms).astype(np.float64),
        rows.sum(axis=0),
        (rows * (1.0 - rows)).sum(axis=0),
        int(((known <= 0.0) & allowed).sum()),
        int(allowed.sum()),
    )


def _at_rank_sums(chunk: LoggedRankings) -> tuple[float, int]:
    if chunk.at_rank is None:
        return np.nan, 0
    off = float(np.abs(chunk.at_rank.sum(axis=1) - 1.0).max())
    shown = np.take_along_axis(chunk.at_rank, chunk.rankings[:, :, None], axis=1)
    impossible = (np.diagonal(shown, axis1=1, axis2=2) <= 0.0).any(axis=1)
    return off, int(impossible.sum())


def _late_sums(numbers: IntVector, rewards: Matrix) -> LateSums:
    order = np.argsort(np.argsort(numbers, kind="stable"))
    late = (np.arange(numbers.size) - order).astype(np.float64)
    square = (rewards**2).sum(axis=0)
    return LateSums(
        float(late.sum()), float(late @ late), rewards.sum(axis=0), square, late @ rewards
    )


def check(source: Source) -> Check:
    """Whether a log can be used."""
    facts, sums = facts_of(source), source.total(Checks())
    ranks = source.about.problem.kind == "ranking"
    return (_check_rankings if ranks else _check_arms)(source.about, facts, sums)


def _check_arms(about: About, facts: FactSums, sums: CheckSums) -> Check:
    problems = probability_problems(facts, about.n)
    usable = not problems
    facts_found = [f"{about.n:,} decisions, rewards {', '.join(about.problem.rewards)}"]
    if about.arms is not None:
        listed = ", ".join(f"{i} {name}" for i, name in enumerate(about.arms[:10]))
        facts_found.append(f"arms: {listed}{', ...' if len(about.arms) > 10 else ''}")
    problems += _ranges(about.problem, sums)
    if usable:
        problems += _distribution(sums.spread)
        weights = Weights.of(about.n, sums.weights, float(sums.most_weight))
        if sums.certain == about.n and sums.most_arms > 1:
            problems.append(
                "every decision was certain (probability 1): the log has no information on "
                "other actions; log with a policy that explores"
            )
            usable = False
        else:
            off = abs(weights.mean - 1.0)
            if weights.error > 0.0 and off > _SURE * weights.error:
                problems.append(
                    f"the mean weight if arms had been chosen uniformly is {weights.mean:.3f} and "
                    f"has to be 1 (it is {off / weights.error:.1f} standard errors away): the "
                    "logged probabilities are not those of the actions, or some actions were "
                    "impossible"
                )
            facts_found.append(
                f"the log is worth {weights.ess:,.0f} decisions of a uniform policy; "
                f"probabilities from {-sums.most_minus_p:.3g} to {sums.most_p:.3g}"
            )
            if weights.ess < _FEW:
                problems.append(
                    f"the effective sample size is {weights.ess:,.0f} for a uniform policy: only "
                    "policies close to the one that logged can be evaluated"
                )
        problems += _overlap(about, sums)
        facts_found += _drift(sums.quarters)
    if not facts.has_contexts:
        facts_found.append(
            "there are no contexts: 'ips' and 'snips' only, and nothing can be learnt"
        )
    problems += _gaps(about.n, sums)
    return Check(usable, tuple(problems), tuple(facts_found))


def _check_rankings(about: About, facts: FactSums, sums: CheckSums) -> Check:
    problems: list[str] = []
    m = about.problem.n_items or 0
    found = [
        f"{about.n:,} rankings of {about.problem.n_slots} of {m} items",
        "exposures by slot: " + ", ".join(f"{b:.2f}" for b in facts.exposed / about.n),
    ]
    if np.isnan(sums.most_off):
        problems += probability_problems(facts, about.n)
        found.append(
            "item-at-rank probabilities were not logged: whole rankings can be weighed ('ips', "
            "'snips'), which needs far more data than 'exposure' or 'position'"
        )
    else:
        if sums.most_off > 1e-6:
            problems.append(
                f"item-at-rank probabilities do not sum to 1 in a slot (off by {sums.most_off:.2g})"
            )
        if sums.impossible:
            problems.append("an item was shown in a slot where its probability is 0")
    usable = not problems
    problems += _ranges(about.problem, sums)
    never = m - np.count_nonzero(sums.chosen)
    if never:
        problems.append(f"{never} items were never shown: nothing is known of their clicks")
    problems += _gaps(about.n, sums)
    return Check(usable, tuple(problems), tuple(found))


def probability_problems(facts: FactSums, n: int) -> list[str]:
    """What makes logged probabilities useless; empty where nothing does."""
    sentences = []
    if facts.unknown:
        sentences.append(
            f"{facts.unknown:,} of {n:,} decisions have no probability, the first in row "
            f"{facts.first_unknown[0] + 1:.0f}: log them with a policy that knows them (not "
            "Thompson sampling, nor randomised smoothing), or leave these rows out if that does "
            "not depend on their outcome; see docs/evaluate.md"
        )
    if facts.bad:
        place, p = facts.first_bad
        sentences.append(
            f"the probability in row {place + 1:.0f} is {p:g} ({facts.bad:,} such rows); what "
            "was done had a probability above 0 and at most 1"
        )
    return sentences


def _ranges(problem: Problem, sums: CheckSums) -> list[str]:
    sentences = []
    columns = zip(sums.outside, -sums.most_low, sums.most_high, strict=True)
    for (name, (low, high)), (outside, least, most) in zip(
        problem.rewards.items(), columns, strict=True
    ):
        if outside:
            sentences.append(
                f"{outside:,} rewards {name!r} are outside the range {low:g} to {high:g} (they go "
                f"from {least:g} to {most:g}); they are used as they are"
            )
    return sentences


def _distribution(sums: DistributionSums) -> list[str]:
    """Logged distributions against what was chosen from them."""
    sentences = []
    if sums.wrong:
        sentences.append(f"{sums.wrong:,} logged distributions do not sum to 1")
    if sums.unequal:
        sentences.append(
            f"in {sums.unequal:,} rows the probability of the action is not that of the logged "
            "distribution: was the distribution logged before a rule changed the action?"
        )
    chosen, expected = sums.chosen, sums.expected
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.sqrt(sums.variance)
        off = np.where(sums.variance > 0.0, (chosen - expected) / spread, 0.0)
    if off.size and np.abs(off).max() > _SURE:
        arm = int(np.abs(off).argmax())
        sentences.append(
            f"arm {arm} was chosen {chosen[arm]:,.0f} times, and by the logged probabilities "
            f"{expected[arm]:,.0f} times were to be expected: the probabilities are not right"
        )
    return sentences


def _overlap(about: About, sums: CheckSums) -> list[str]:
    sentences = []
    n_arms = about.problem.n_arms
    if n_arms is not None:
        never = np.setdiff1d(np.arange(n_arms), np.flatnonzero(sums.chosen))
        if never.size:
            listed = ", ".join(map(str, never[:5].tolist()))
            sentences.append(
                f"{never.size} of {n_arms} arms were never chosen ({listed}"
                f"{', ...' if never.size > 5 else ''}): there is no overlap with policies that "
                "choose them"
            )
    if sums.spread.zero:
        sentences.append(
            f"{sums.spread.zero / sums.spread.allowed:.0%} of the arms that could be chosen had "
            "probability 0: policies that choose them cannot be evaluated"
        )
    return sentences


def _drift(quarters: Matrix) -> list[str]:
    counts, totals = quarters
    if counts.sum() < 40:
        return []
    first, last = float(totals[0] / counts[0]), float(totals[-1] / counts[-1])
    if abs(last - first) <= _DRIFT * max(first, last):
        return []
    return [
        f"the mean probability went from {first:.3g} in the first quarter to {last:.3g} in the "
        "last: the policy learnt while it logged. Estimates stay right; stabilised=True makes "
        "their intervals more reliable"
    ]


def _gaps(n: int, sums: CheckSums) -> list[str]:
    """Decisions without a row, and whether what came late differs: then what never came does."""
    spans = sums.issued.rows[:, 2] - sums.issued.rows[:, 1] + 1
    twice = sums.issued.rows[:, 3] > spans
    if twice.any():
        return [
            "decisions come more than once: is a file in the folder twice? Numbers are wrong then"
        ]
    issued, missing = int(spans.sum()), int((spans - sums.issued.rows[:, 3]).sum())
    if issued == 0 or missing <= _GAPS * issued:
        return []
    missing_feedback = f"{missing:,} of {issued:,} decisions have no feedback in the log"
    late = sums.late
    spread = late.squares - late.late**2 / n
    if spread > 0.0:
        varies = late.reward_squares - late.rewards**2 / n
        both = late.crossed - late.late * late.rewards / n
        with np.errstate(divide="ignore", invalid="ignore"):
            correlation = np.where(
                varies > 1e-9 * late.reward_squares, both / np.sqrt(varies * spread), 0.0
            )
        if np.abs(correlation).max() > _SURE / np.sqrt(n):
            return [
                f"{missing_feedback}, and decisions that were answered late earned other rewards "
                "than those answered at once: feedback is not missing at random, and averages are "
                "wrong. Give decisions their feedback when a fixed window closes, zeros included"
            ]
    return [f"{missing_feedback}: harmless only if that does not depend on their outcome"]
