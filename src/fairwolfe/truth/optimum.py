"""`optimum`: the best value any stationary policy can reach, between certified bounds."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.brief import Brief, Summary, few
from fairwolfe.core.protocols import Environment
from fairwolfe.core.streams import stream
from fairwolfe.environments.rankings import RankingArrays
from fairwolfe.errors import InvalidInput, NumericalFailure
from fairwolfe.objectives import Concave
from fairwolfe.objectives.leaves import Leaves
from fairwolfe.truth import multipliers, planes, sweeps
from fairwolfe.truth.multipliers import Solution, Support, close
from fairwolfe.truth.notice import Notice
from fairwolfe.truth.rows import Rows, Sought
from fairwolfe.truth.sampled import Sample, enclose, enclose_kept, refute

__all__ = ["Optimum", "optimum"]

_CALLS = 2000  # of an exact support function
_PASSES = 2000  # over all users of a world with rankings
_PLANES = 300  # each a linear programme with as many rows and columns
_QUICK = 100  # calls of the method of multipliers before cutting planes are tried
_FEW = 20  # rewards for which cutting planes serve
_FINE = 1e-8  # the relative gap that is aimed at while it is cheap
_SAMPLED_CALLS = 300  # of a support function of a sample of contexts
_SAMPLES = (250, 1_000, 4_000, 16_000)  # contexts to find it on; a hundred times more to measure it


@dataclass(frozen=True, eq=False, repr=False)
class Optimum(Brief):
    """value <= f* <= upper_bound, and the average reward vector of a policy that reaches value.

    Where the truth is measured on samples, `average` is an estimate and `value` stays below its f.

    With hard constraints f* is the best value of the policies that keep them, `value` is f of the
    other parts at `average`, and `violation`, as `Concave.violation` counts it, is at most 1e-6
    there. Where `feasible` is False no policy keeps them: `average` is the one whose largest
    violation is least, `unavoidable` is a certified bound on the violation of every policy, and the
    upper bound is -inf.

    For rankings `by_item` has a row for each item: its exposure, then what it earns of each
    user-side reward, (n_items, 1 + rewards), by a policy that is nearly as good.
    """

    value: float
    upper_bound: float
    average: Vector
    violation: float = 0.0
    unavoidable: float = 0.0
    by_item: Matrix | None = None

    @property
    def feasible(self) -> bool:
        """Whether the hard constraints can be kept; True if there are none."""
        return self.upper_bound > -np.inf

    @property
    def gap(self) -> float:
        """How far the bounds are apart; NaN where no policy keeps the constraints."""
        return float("nan") if not self.feasible else self.upper_bound - self.value

    def summary(self, most: int) -> Summary:
        """The bounds, and the first of the averages."""
        average = few(f"{x:.4g}" for x in self.average)
        if not self.feasible:
            rows = [
                ("least violation", f"{self.violation:.4g}, certainly {self.unavoidable:.4g}"),
                ("value there", f"{self.value:.6g}"),
                ("average", average),
            ]
            return Summary("no policy keeps the constraints", rows)
        rows = [("gap", f"{self.gap:.2g}"), ("average", average)]
        if self.violation > 0.0:
            rows.append(("violation", f"{self.violation:.2g}"))
        return Summary(f"{self.value:.6g} <= f* <= {self.upper_bound:.6g}", rows)


def optimum(
    environment: Any, objective: Concave, seed: int = 0, tolerance: float = 1e-3
) -> Optimum:
    """f*, the largest f(s) over the average rewards s of stationary policies, by two bounds.

    The world is the one that ``simulate(..., seed=seed)`` meets. `tolerance` is relative to
    max(1, |value|).

    Where the environment offers `support` (the exact support function h_S of the set S of average
    rewards) the bounds are certain: f at a mixture of points of S from below, and from above
    f* <= f(p) - <g, p> + h_S(g) for supergradients g of f at p, leaf by leaf. They come much
    closer than asked where that is cheap. The method of multipliers finds them (see
    `fairwolfe.truth.multipliers`), cutting planes where a leaf has no proximal map. Rankings
    are mixed user by user (see `fairwolfe.truth.sweeps`).

    Elsewhere a mixture of best actions and a majorant are computed on one sample of contexts and
    measured on a fresh one of up to 1.6 million contexts; each bound then carries a margin of five
    standard errors, is wrong once in a million times or less, and small tolerances take time: a
    terminal shows the time left (FAIRWOLFE_QUIET=1 hides it).

    Hard constraints: f* is that of the policies that keep them, and `value` that of one that does,
    up to 1e-6 (see `fairwolfe.truth.rows`). On samples it keeps them with five standard errors to
    spare, which costs their price. That no policy keeps them is not an error: the `Optimum` is then
    not `feasible`, with a certificate, and its average has the least violation (the largest of all
    rows; for shares, of the largest sum).

    NumericalFailure, with the bounds reached, where the tolerance is not met within 2,000 calls of
    the support function, or 2,000 passes over all users.

    Reference: appendix of the paper, "Regret", for f*.

    >>> from fairwolfe.environments import Finite
    >>> from fairwolfe.objectives import Minimum
    >>> best = optimum(Finite.a2(), Minimum())
    >>> round(best.value, 6), round(best.upper_bound, 6), best.average.round(6).tolist()
    (0.5, 0.5, [0.5, 0.5])
    >>> from fairwolfe.objectives import AtLeast, Linear
    >>> best = optimum(Finite.a2(), Linear([1.0, 0.0]) + AtLeast(0.25).on(1))
    >>> round(best.value, 6), best.violation <= 1e-6
    (0.75, True)
    """
    if not isinstance(environment, Environment):
        raise InvalidInput(f"the environment is {environment!r}; see fw.environments")
    if not isinstance(objective, Concave):
        raise InvalidInput(
            f"the objective is {objective!r}; give one of fw.objectives, such as Custom(value)"
        )
    number = isinstance(tolerance, (int, float, np.number)) and not isinstance(tolerance, bool)
    if not (number and np.isfinite(tolerance) and tolerance > 0.0):
        raise InvalidInput(f"tolerance is {tolerance!r}; give a positive number, such as 1e-3")
    bound = objective.bind(environment.problem())
    world = environment.init(stream(seed, "world"))
    known = getattr(environment, "support", None)
    if isinstance(world, RankingArrays) and _has_proximal_maps(bound, environment):
        rng = stream(seed, "optimum", "sweeps")
        fine = min(tolerance, _FINE)
        rows = _rows(bound, environment, world.support)
        swept = sweeps.maximise(world, bound, tolerance, fine, _PASSES, rng, rows)
        best = _measured(bound, swept)
    elif callable(known):
        support = partial(known, world)
        fine = min(tolerance, _FINE)
        best = _measured(bound, _maximise(environment, support, bound, tolerance, fine, _CALLS))
    else:
        best = _from_samples(environment, world, bound, seed, tolerance)
    if best.feasible and not close(best.value, best.upper_bound, tolerance):
        advice = f"ask for a larger tolerance than {tolerance:g}"
        if best.value == -np.inf:
            advice = "no average with a finite value was found: give the objective an offset > 0"
            if bound.constrained:
                advice = (
                    "no average that keeps the constraints with a finite value was found, nor is "
                    "it certain that none exists: change a level"
                )
        raise NumericalFailure(
            f"the optimum lies between {best.value:.9g} and {best.upper_bound:.9g}, a gap of "
            f"{best.gap:.3g}, after as many steps as are allowed; {advice}"
        )
    return best


def _measured(f: Concave, solution: Solution | sweeps.Swept) -> Optimum:
    """With the violation at the average."""
    beyond = f._violation(solution.average)
    by_item = solution.by_item if isinstance(solution, sweeps.Swept) else None
    known = (solution.value, solution.upper_bound, solution.average)
    return Optimum(*known, beyond, solution.unavoidable, by_item)


def _rows(f: Concave, environment: Any, support: Support) -> Rows | None:
    return Rows(f, environment.problem(), support) if f.constrained else None


def _has_proximal_maps(f: Concave, environment: Any) -> bool:
    pieces = f.split(environment.problem().n_objectives)
    return all(leaf.has_prox for _, leaf, _ in pieces)


def _maximise(
    environment: Any, support: Support, f: Concave, tolerance: float, fine: float, calls: int
) -> Solution:
    n = environment.problem().n_objectives
    rows, sought = _rows(f, environment, support), None
    if rows is not None:
        sought = rows.seek(support, *multipliers.first_vertices(support, n), calls)
        if sought.unavoidable > rows.allowed:
            return _infeasible(rows, sought)
    bound = (rows, sought)
    if not Leaves(f, n).smoothable:
        return planes.maximise(support, f, n, tolerance, min(calls, _PLANES), *bound)
    if calls == _CALLS and n <= _FEW:
        found = multipliers.maximise(support, f, n, tolerance, fine, _QUICK, *bound)
        if not close(found.value, found.upper_bound, tolerance):
            # The multipliers of a degenerate linear programme close in slowly; planes are exact.
            with suppress(NumericalFailure):  # of f that is not finite everywhere
                found = planes.maximise(support, f, n, tolerance, _PLANES, *bound)
        if close(found.value, found.upper_bound, tolerance):
            return found
    return multipliers.maximise(support, f, n, tolerance, fine, calls, *bound)


def _infeasible(rows: Rows, sought: Sought) -> Solution:
    """The average of least violation v, and the certificate v >= -intercept - max_s <slope, s>."""
    average = sought.weights @ sought.points
    mixture = (average, sought.weights, sought.directions)
    proof = sought.proof / float(np.abs(sought.proof) @ rows.units)
    certificate = (-rows.floor(proof), rows.slope(proof))
    counted = (sought.calls, sought.unavoidable)
    return Solution(rows.relaxed._value(average), -np.inf, *mixture, *certificate, *counted)


def _searched(environment: Any, sample: Sample, f: Concave, fine: float) -> Solution:
    """The solution on a sample; on a terminal, with the time left."""
    calls = _SAMPLED_CALLS * (2 if f.constrained else 1)
    notice = Notice(f"looking for the optimum on {sample.n:,} contexts", calls)

    def support(direction: Vector) -> tuple[float, Vector]:
        notice.step()
        return sample.support(direction)

    try:
        return _maximise(environment, support, f, fine, fine, _SAMPLED_CALLS)
    finally:
        notice.close()


def _from_samples(environment: Any, world: Any, f: Concave, seed: int, tolerance: float) -> Optimum:
    best = Optimum(-np.inf, np.inf, np.empty(0))
    for size in _SAMPLES:
        sample = Sample(environment, world, stream(seed, "optimum", "first", size), size)
        fine = 0.1 * tolerance
        solution = _searched(environment, sample, f, fine)
        fresh = stream(seed, "optimum", "fresh", size)
        setting = (environment, world)
        rows = _rows(f, environment, sample.support)
        if rows is None:
            best = Optimum(*enclose(*setting, f, solution, fresh, 100 * size))
        elif solution.upper_bound == -np.inf:
            certain = -solution.intercept - refute(*setting, solution.slope, fresh, 100 * size)
            beyond = f._violation(solution.average)
            if certain > rows.allowed:
                return Optimum(solution.value, -np.inf, solution.average, beyond, certain)
            best = Optimum(-np.inf, np.inf, solution.average, beyond)
        else:
            low, high, average = enclose_kept(*setting, rows, solution, fresh, 100 * size)
            best = Optimum(low, high, average, f._violation(average))
        if close(best.value, best.upper_bound, tolerance):
            break
    return best
