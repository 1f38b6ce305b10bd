"""What the theorems assume, checked one by one: each failure names the assumption."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Generic, Required, TypeAlias, TypedDict, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Problem
from fairwolfe.core.protocols import Environment
from fairwolfe.errors import InvalidInput, OutsideAssumptions
from fairwolfe.objectives import Concave

__all__ = [
    "Asked",
    "Given",
    "Regret",
    "Setting",
    "T",
    "Times",
    "checked_number",
    "linear",
    "parameter_norm",
    "probability",
    "setting",
    "times",
    "without_constraints",
]

T = TypeVar("T", float, Vector)
"""A number of rounds and the bound for it, or many of both."""

Times: TypeAlias = NDArray[np.float64]
"""Numbers of rounds, or what holds at them: of shape () for one, (n,) for several."""

Regret: TypeAlias = float | Vector
"""The scalar regret of a base at each of these numbers of rounds."""


class Asked(TypedDict, Generic[T], total=False):
    """What every bound is asked with, by keyword: see `setting`."""

    problem: Required[Any]
    objective: Required[Concave]
    horizon: Required[T]
    lipschitz: float | None


class Given(Asked[T], total=False):
    """The same for bounds that have a tight form."""

    tight: bool


@dataclass(frozen=True, eq=False)
class Setting(Generic[T]):
    """What all bounds are functions of: `setting` makes one from a `Given`, checked."""

    source: Any  # a problem, or the environment that has it
    problem: Problem
    objective: Concave  # f, bound to the problem
    t: Times  # the horizon or horizons
    tight: bool
    lipschitz: float  # L, a Lipschitz constant of f

    @property
    def n(self) -> int:
        """D, the number of rewards."""
        return self.problem.n_objectives

    @property
    def reach(self) -> float:
        """L D_K: <g, r> stays in an interval of this length."""
        return self.lipschitz * self.problem.diameter

    @property
    def diameter(self) -> float:
        """D_K; tight: of the coordinates alone in which f is not linear."""
        if not self.tight:
            return self.problem.diameter
        return self.problem.diameter_of(self.objective.curvature(self.n) > 0.0)

    @property
    def start(self) -> float:
        """What the first step, from z = 0, can add to D_K^2 where 0 is outside of K."""
        low, high = self.problem.low, self.problem.high
        farthest = np.maximum(abs(low), abs(high)) ** 2
        return float(np.maximum(farthest - (high - low) ** 2, 0.0).sum())

    def azuma(self, reach: float, delta: float) -> Times:
        """Azuma: T differences in intervals of length `reach` sum to at most this, or |.| <= reach.

        Tight: the interval form.
        """
        return reach * np.sqrt((0.5 if self.tight else 2.0) * self.t * math.log(1.0 / delta))

    def answer(self, values: Times) -> T:
        """A float for one horizon, an array for several."""
        return cast(T, float(values) if self.t.ndim == 0 else values)


def setting(
    problem: Any,
    objective: Concave,
    horizon: T,
    tight: bool = False,
    lipschitz: float | None = None,
) -> Setting[T]:
    """Assumption 1: rewards in a compact K, and f Lipschitz on it.

    Parameters
    ----------
    problem: a Problem, or an environment, which also declares whether its rewards are bounded
    horizon: T, or an array of them
    tight: the sharpest constants that the proofs allow
    lipschitz: a Lipschitz constant of f that you know, in place of the objective's own
    """
    stated = _problem(problem)
    if not isinstance(objective, Concave):
        raise InvalidInput(f"the objective is {objective!r}; give one of fw.objectives")
    without_constraints(objective)
    bound = objective.bind(stated)
    slope = bound.lipschitz(stated.n_objectives)
    if lipschitz is not None:
        slope = checked_number("lipschitz", lipschitz)
    if not math.isfinite(slope):
        raise OutsideAssumptions(
            f"Assumption 1 asks for a Lipschitz f, and {objective} has no Lipschitz constant; give "
            "it a larger offset if it can have one, or pass lipschitz= if you know a constant"
        )
    return Setting(problem, stated, bound, times(horizon), tight, slope)


def without_constraints(objective: Concave) -> None:
    """Raise for hard constraints: where f is -inf it has no Lipschitz constant, and no regret."""
    if objective.constrained:
        raise OutsideAssumptions(
            f"Assumption 1 asks for a Lipschitz f, and {objective} has hard constraints: it is "
            "-inf where they are violated; give them a penalty, or ask for the bound of the other "
            "parts, objective.relaxed()"
        )


def _problem(given: Any) -> Problem:
    """The problem, or that of an environment whose rewards stay in its ranges."""
    if isinstance(given, Problem):
        return given
    if not isinstance(given, Environment):
        raise InvalidInput(f"the problem is {given!r}; give a Problem or an environment")
    if not getattr(given, "bounded", True):
        raise OutsideAssumptions(
            f"Assumption 1 asks for rewards in a compact set K, and those of "
            f"{type(given).__name__} are not bounded (normal noise); no bound applies here"
        )
    problem: Problem = given.problem()
    return problem


def parameter_norm(problem: Problem, assumption: str) -> float:
    """D_theta of a reward; where it is not stated, rewards may not be linear."""
    if problem.parameter_norm is None:
        raise OutsideAssumptions(
            f"{assumption} asks for rewards that are linear in the features, theta x with "
            "|theta| <= D_theta, and the problem states no parameter_norm; give it one if they are"
        )
    return problem.parameter_norm


def linear(given: Any, assumption: str) -> None:
    """Means that an environment cuts off at the ends of their range are not linear."""
    if getattr(given, "calibration", None) == "clip":
        raise OutsideAssumptions(
            f"{assumption} asks for rewards that are linear in the features, and "
            f"calibration='clip' of {type(given).__name__} cuts them off; use 'affine'"
        )


def times(horizon: Any) -> Times:
    """Numbers of rounds as an array of floats, at least 1."""
    t = np.asarray(horizon, dtype=np.float64)
    if not (t.size and np.isfinite(t).all() and t.min() >= 1.0):
        raise InvalidInput(f"horizon is {horizon!r}; give a number of rounds of at least 1")
    return t


def probability(name: str, value: float) -> float:
    """A probability of failure: above 0 and at most 1, with which nothing is proved."""
    if not 0.0 < value <= 1.0:
        raise InvalidInput(f"{name} is {value!r}; give a number above 0 and at most 1")
    return float(value)


def checked_number(name: str, value: Any, least: float = 0.0) -> float:
    """A finite number of at least `least`."""
    number = float(value)
    if not (math.isfinite(number) and number >= least):
        raise InvalidInput(f"{name} is {value!r}; give a finite number of at least {least:g}")
    return number
