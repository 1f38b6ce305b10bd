"""`optimum`: f* of a world between certified bounds, and `Notice`, its line on a terminal."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.protocols import Environment
from fairwolfe.core.streams import stream
from fairwolfe.core.tables import Brief, Summary, few
from fairwolfe.environments.world import RankingArrays
from fairwolfe.errors import InvalidInput, NumericalFailure
from fairwolfe.objectives import Concave
from fairwolfe.truth import sweeps
from fairwolfe.truth.constraints import HardConstraints, vanishing
from fairwolfe.truth.sampled import Sample, enclose
from fairwolfe.truth.solver import close, maximise

_SILENT = 2.0  # seconds before anything is shown
_WIDTH = 70


class Notice:
    """A line on the terminal with the time left, once the work takes more than two seconds.

    Nothing is shown where stderr is not a terminal, or with FAIRWOLFE_QUIET=1.

    Parameters
    ----------
    what: is done
    steps: at most
    """

    def __init__(self, what: str, steps: int) -> None:
        self._what, self._steps, self._done = what, steps, 0
        self._began = time.monotonic()
        loud = os.environ.get("FAIRWOLFE_QUIET", "") in ("", "0")
        self._visible = loud and sys.stderr is not None and sys.stderr.isatty()

    def step(self) -> None:
        """Count a step that was done."""
        self._done = min(self._done + 1, self._steps)
        spent = time.monotonic() - self._began
        if self._visible and spent >= _SILENT:
            left = spent * (self._steps / self._done - 1.0)
            line = f"{self._what}: {self._done} of {self._steps} steps, at most {left:.0f} s left"
            print(f"\r{line:<{_WIDTH}}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Clear the line."""
        if self._visible and time.monotonic() - self._began >= _SILENT:
            print(f"\r{'':<{_WIDTH}}\r", end="", file=sys.stderr, flush=True)


_CALLS = 2000  # of an exact support function
_PASSES = 2000  # over all users of a world with rankings
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

    `vanishing` names the rates that are kept there only because their denominator is 0.

    For rankings `by_item` has a row for each item: its exposure, then what it earns of each
    user-side reward, (n_items, 1 + rewards), by a policy that is nearly as good.
    """

    value: float
    upper_bound: float
    average: Vector
    violation: float = 0.0
    unavoidable: float = 0.0
    by_item: Matrix | None = None
    vanishing: tuple[str, ...] = ()

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
        rows += [("rate", f"{name}: only because that vanishes") for name in self.vanishing]
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
    `fairwolfe.truth.solver`), cutting planes where a leaf has no proximal map. Rankings
    are mixed user by user (see `fairwolfe.truth.sweeps`).

    Elsewhere a mixture of best actions and a majorant are computed on one sample of contexts and
    measured on a fresh one of up to 1.6 million contexts; each bound then carries a margin of five
    standard errors, is wrong once in a million times or less, and small tolerances take time: a
    terminal shows the time left (FAIRWOLFE_QUIET=1 hides it).

    Hard constraints: f* is that of the policies that keep them, and `value` that of one that does,
    up to 1e-6 (see `fairwolfe.truth.constraints`). On samples it keeps them with five standard
    errors to spare, which costs their price. That no policy keeps them is not an error: the
    `Optimum` is then not `feasible`, with a certificate, and its average has the least violation
    (the largest of all rows; for shares, of the largest sum).

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
    problem = environment.problem()
    bound = objective.bind(problem)
    world = environment.init(stream(seed, "world"))
    known, fine = getattr(environment, "support", None), min(tolerance, _FINE)
    found: Any
    if isinstance(world, RankingArrays) and _has_proximal_maps(bound, problem.n_objectives):
        kept = HardConstraints(bound, problem, world.support) if bound.constrained else None
        rng = stream(seed, "optimum", "sweeps")
        found = sweeps.maximise(world, bound, tolerance, fine, _PASSES, rng, kept)
    elif callable(known):
        quick = problem.n_objectives <= _FEW
        given = (bound, problem, tolerance, fine, _CALLS)
        found = maximise(partial(known, world), *given, quick=quick)
    else:
        found = _from_samples(environment, world, bound, seed, tolerance)
    best = Optimum(
        found.value,
        found.upper_bound,
        found.average,
        bound._violation(found.average),
        found.unavoidable,
        getattr(found, "by_item", None),
        vanishing(bound, problem, found.average),
    )
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


def _has_proximal_maps(f: Concave, n: int) -> bool:
    return all(leaf.has_prox for _, leaf, _ in f.split(n))


def _from_samples(environment: Any, world: Any, f: Concave, seed: int, tolerance: float) -> Any:
    """Solve on samples of contexts of growing size, and measure the solution on fresh ones."""
    calls = _SAMPLED_CALLS * (2 if f.constrained else 1)
    problem, fine = environment.problem(), 0.1 * tolerance
    for size in _SAMPLES:
        sample = Sample(environment, world, stream(seed, "optimum", "first", size), size)
        notice = Notice(f"looking for the optimum on {size:,} contexts", calls)

        def support(
            direction: Vector, sample: Sample = sample, notice: Notice = notice
        ) -> tuple[float, Vector]:
            notice.step()
            return sample.support(direction)

        try:
            solution = maximise(support, f, problem, fine, fine, _SAMPLED_CALLS)
        finally:
            notice.close()
        fresh = stream(seed, "optimum", "fresh", size)
        kept = HardConstraints(f, problem, sample.support) if f.constrained else None
        best = enclose(environment, world, f, solution, fresh, 100 * size, kept)
        if not best.feasible or close(best.value, best.upper_bound, tolerance):
            break
    return best
