"""Whether logged data can be used, in sentences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.problem import Problem
from fairwolfe.offpolicy.decisions import LoggedArms, LoggedRankings
from fairwolfe.offpolicy.estimators import Weights

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


def check_choices(data: LoggedArms) -> Check:
    """Of arms."""
    problems = probability_problems(data.probability)
    usable = not problems
    facts = [f"{data.n:,} decisions, rewards {', '.join(data.problem.rewards)}"]
    if data.arms is not None:
        listed = ", ".join(f"{i} {name}" for i, name in enumerate(data.arms[:10]))
        facts.append(f"arms: {listed}{', ...' if len(data.arms) > 10 else ''}")
    problems += _ranges(data.problem, data.rewards)
    if usable:
        problems += _distribution(data)
        counts = np.concatenate([part.allowed().sum(axis=1) for part in data.parts])
        weights = Weights.of(1.0 / (counts * data.probability))
        if (data.probability >= 1.0 - 1e-9).all() and counts.max() > 1:
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
            facts.append(
                f"the log is worth {weights.ess:,.0f} decisions of a uniform policy; "
                f"probabilities from {data.probability.min():.3g} to {data.probability.max():.3g}"
            )
            if weights.ess < _FEW:
                problems.append(
                    f"the effective sample size is {weights.ess:,.0f} for a uniform policy: only "
                    "policies close to the one that logged can be evaluated"
                )
        problems += _overlap(data)
        facts += _drift(data.probability)
    if not data.has_contexts:
        facts.append("there are no contexts: 'ips' and 'snips' only, and nothing can be learnt")
    problems += _gaps(data.numbers, data.agents, data.rewards)
    return Check(usable, tuple(problems), tuple(facts))


def check_rankings(data: LoggedRankings) -> Check:
    """Of rankings."""
    problems: list[str] = []
    facts = [
        f"{data.n:,} rankings of {data.problem.n_slots} of {data.problem.n_items} items",
        "exposures by slot: " + ", ".join(f"{b:.2f}" for b in data.exposed.mean(axis=0)),
    ]
    if data.at_rank is None:
        problems += probability_problems(data.probability)
        facts.append(
            "item-at-rank probabilities were not logged: whole rankings can be weighed ('ips', "
            "'snips'), which needs far more data than 'exposure' or 'position'"
        )
    else:
        off = np.abs(data.at_rank.sum(axis=1) - 1.0).max()
        if off > 1e-6:
            problems.append(
                f"item-at-rank probabilities do not sum to 1 in a slot (off by {off:.2g})"
            )
        shown = np.take_along_axis(data.at_rank, data.rankings[:, :, None], axis=1)
        if (np.diagonal(shown, axis1=1, axis2=2) <= 0.0).any():
            problems.append("an item was shown in a slot where its probability is 0")
    usable, m = not problems, data.sizes[0]
    rewards = data.totals()[:, m:]
    problems += _ranges(data.problem, rewards)
    never = np.setdiff1d(np.arange(m), data.rankings)
    if never.size:
        problems.append(f"{never.size} items were never shown: nothing is known of their clicks")
    problems += _gaps(data.numbers, data.agents, rewards)
    return Check(usable, tuple(problems), tuple(facts))


def probability_problems(p: Vector) -> list[str]:
    """What makes logged probabilities useless; empty where nothing does."""
    sentences = []
    unknown = np.flatnonzero(np.isnan(p))
    if unknown.size:
        sentences.append(
            f"{unknown.size:,} of {p.size:,} decisions have no probability, the first in row "
            f"{unknown[0] + 1}: log them with a policy that knows them (not Thompson sampling, nor "
            "randomised smoothing), or leave these rows out if that does not depend on their "
            "outcome; see docs/evaluate.md"
        )
    bad = np.flatnonzero((p <= 0.0) | (p > 1.0 + 1e-9))
    if bad.size:
        sentences.append(
            f"the probability in row {bad[0] + 1} is {p[bad[0]]:g} ({bad.size:,} such rows); what "
            "was done had a probability above 0 and at most 1"
        )
    return sentences


def _ranges(problem: Problem, rewards: Matrix) -> list[str]:
    sentences = []
    for (name, (low, high)), column in zip(problem.rewards.items(), rewards.T, strict=True):
        outside = int(((column < low) | (column > high)).sum())
        if outside:
            sentences.append(
                f"{outside:,} rewards {name!r} are outside the range {low:g} to {high:g} (they go "
                f"from {column.min():g} to {column.max():g}); they are used as they are"
            )
    return sentences


def _distribution(data: LoggedArms) -> list[str]:
    """Logged distributions against what was chosen from them."""
    sentences = []
    chosen, expected, spread = np.zeros((3, max(part.n_arms for part in data.parts)))
    wrong = unequal = 0
    for (span, part), known in zip(data.spans(), data.distribution, strict=True):
        if known is None:
            continue
        full = ~np.isnan(known).any(axis=1)
        rows = known[full]
        wrong += int((np.abs(rows.sum(axis=1) - 1.0) > 1e-6).sum())
        actions = data.actions[span][full]
        own = rows[np.arange(len(rows)), actions]
        unequal += int((np.abs(own - data.probability[span][full]) > 1e-6).sum())
        chosen += np.bincount(actions, minlength=chosen.size)
        expected[: part.n_arms] += rows.sum(axis=0)
        spread[: part.n_arms] += (rows * (1.0 - rows)).sum(axis=0)
    if wrong:
        sentences.append(f"{wrong:,} logged distributions do not sum to 1")
    if unequal:
        sentences.append(
            f"in {unequal:,} rows the probability of the action is not that of the logged "
            "distribution: was the distribution logged before a rule changed the action?"
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.where(spread > 0.0, (chosen - expected) / np.sqrt(spread), 0.0)
    if np.abs(off).max() > _SURE:
        arm = int(np.abs(off).argmax())
        sentences.append(
            f"arm {arm} was chosen {chosen[arm]:,.0f} times, and by the logged probabilities "
            f"{expected[arm]:,.0f} times were to be expected: the probabilities are not right"
        )
    return sentences


def _overlap(data: LoggedArms) -> list[str]:
    sentences = []
    if data.problem.n_arms is not None:
        never = np.setdiff1d(np.arange(data.problem.n_arms), data.actions)
        if never.size:
            listed = ", ".join(map(str, never[:5].tolist()))
            sentences.append(
                f"{never.size} of {data.problem.n_arms} arms were never chosen ({listed}"
                f"{', ...' if never.size > 5 else ''}): there is no overlap with policies that "
                "choose them"
            )
    pairs = zip(data.parts, data.distribution, strict=True)
    logged = [(part.allowed(), rows) for part, rows in pairs if rows is not None]
    zero = sum(int(((rows <= 0.0) & allowed).sum()) for allowed, rows in logged)
    if zero:
        share = zero / sum(int(allowed.sum()) for allowed, _ in logged)
        sentences.append(
            f"{share:.0%} of the arms that could be chosen had probability 0: policies that choose "
            "them cannot be evaluated"
        )
    return sentences


def _drift(p: Vector) -> list[str]:
    quarter = max(p.size // 4, 1)
    first, last = float(p[:quarter].mean()), float(p[-quarter:].mean())
    if abs(last - first) <= _DRIFT * max(first, last) or p.size < 40:
        return []
    return [
        f"the mean probability went from {first:.3g} in the first quarter to {last:.3g} in the "
        "last: the policy learnt while it logged. Estimates stay right; stabilised=True makes "
        "their intervals more reliable"
    ]


def _gaps(numbers: IntVector, agents: IntVector, rewards: Matrix) -> list[str]:
    """Decisions without a row, and whether what came late differs: then what never came does."""
    missing = issued = 0
    for agent in np.unique(agents):
        own = numbers[agents == agent]
        if own.size and own.min() >= 0:
            issued += int(own.max()) - int(own.min()) + 1
            missing += int(own.max()) - int(own.min()) + 1 - np.unique(own).size
    if issued == 0 or missing <= _GAPS * issued:
        return []
    missing_feedback = f"{missing:,} of {issued:,} decisions have no feedback in the log"
    order = np.argsort(np.argsort(numbers, kind="stable"))
    late = np.arange(numbers.size) - order  # how many places later it was answered than made
    if np.ptp(late):
        centred = rewards - rewards.mean(axis=0)
        size = np.sqrt((centred**2).sum(axis=0) * float(((late - late.mean()) ** 2).sum()))
        with np.errstate(divide="ignore", invalid="ignore"):
            correlation = np.where(size > 0.0, centred.T @ (late - late.mean()) / size, 0.0)
        if np.abs(correlation).max() > _SURE / np.sqrt(numbers.size):
            return [
                f"{missing_feedback}, and decisions that were answered late earned other rewards "
                "than those answered at once: feedback is not missing at random, and averages are "
                "wrong. Give decisions their feedback when a fixed window closes, zeros included"
            ]
    return [f"{missing_feedback}: harmless only if that does not depend on their outcome"]
