"""`Finite`: a few contexts with any mean rewards, small enough to know everything about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.problem import Problem
from fairwolfe.environments.world import ArmsWorld, direction_of
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.worlds import ArmWorld
from fairwolfe.objectives.concave import finite_vector

__all__ = ["Finite", "FiniteWorld"]

_NONE, _BERNOULLI, _NORMAL = 0.0, 1.0, 2.0


class FiniteWorld(NamedTuple):
    """The tables of a `Finite` environment as arrays."""

    features: Cube  # (contexts, arms, d)
    means: Cube  # (contexts, arms, D)
    cumulative: Vector  # of the probabilities, (contexts,)
    params: Vector


Table = Sequence[Sequence[Sequence[float]]] | Cube


@dataclass(frozen=True)
class Finite(ArmsWorld[FiniteWorld]):
    """A context drawn from a short list; mean rewards theta x, or a table of any.

    The set of expected rewards is S = sum_c p_c conv{mu(c, a)}, so that
    h_S(g) = sum_c p_c max_a <g, mu(c, a)> is exact.

    Parameters
    ----------
    contexts: the features (arms, d) of each context, the same number of arms in each, all distinct
    probabilities: of the contexts, > 0 (they are divided by their sum)
    theta: (D, d), the rewards are then theta x
    means: (contexts, arms, D), instead of theta
    noise: "bernoulli": each reward is 1 with its mean as probability, means in [0, 1];
        "none": the reward is its mean; a number > 0: the standard deviation of normal noise

    `a1` and `a2` are worlds so small that regret bounds say something about them.

    >>> world = Finite.a2()
    >>> state = world.init(np.random.default_rng(0))
    >>> world.support(state, np.array([0.5, 0.5]))[0]
    0.5
    """

    contexts: Table
    probabilities: Sequence[float] | Vector
    theta: Sequence[Sequence[float]] | Matrix | None = None
    means: Table | None = None
    noise: str | float = "bernoulli"

    def __post_init__(self) -> None:
        features = _array("contexts", self.contexts, ("contexts", "arms", "features"))
        for i in range(len(features)):
            for j in range(i):
                if np.array_equal(features[i], features[j]):
                    raise InvalidInput(
                        f"contexts {j} and {i} have equal features and cannot be distinguished; "
                        "make them one, with the sum of the probabilities"
                    )
        shares = finite_vector("probabilities", self.probabilities)
        if shares.size != len(features) or shares.min() <= 0.0:
            raise InvalidInput(
                f"probabilities are {shares.tolist()}; give a positive number for each of the "
                f"{len(features)} contexts"
            )
        if (self.theta is None) == (self.means is None):
            raise InvalidInput("give either theta or means, one of them and not both")
        if self.theta is not None:
            theta = _array("theta", self.theta, ("rewards", "features"))
            if theta.shape[1] != features.shape[2]:
                raise InvalidInput(
                    f"theta has {theta.shape[1]} columns and the contexts have "
                    f"{features.shape[2]} features; give theta a column for each feature"
                )
            self._set("theta", _tuples(theta))
        else:
            means = _array("means", self.means, ("contexts", "arms", "rewards"))
            if means.shape[:2] != features.shape[:2]:
                raise InvalidInput(
                    f"means has shape {means.shape}; the contexts have {features.shape[:2]} "
                    "(contexts, arms), so give means for each of these"
                )
            self._set("means", _tuples(means))
        self._set("contexts", _tuples(features))
        if abs(shares.sum() - 1.0) > 1e-12:  # otherwise as given: dividing would change the repr
            shares /= shares.sum()
        self._set("probabilities", tuple(shares.tolist()))
        self._check_noise()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_noise(self) -> None:
        given: Any = self.noise
        number = isinstance(given, (int, float, np.number)) and not isinstance(given, bool)
        if number and np.isfinite(given) and given > 0.0:
            self._set("noise", float(given))
        elif not isinstance(given, str) or given not in ("bernoulli", "none"):
            raise InvalidInput(
                f"noise is {given!r}; give 'bernoulli', 'none' or a standard deviation > 0"
            )
        means = self._world.means
        if self.noise == "bernoulli" and not (means.min() >= 0.0 and means.max() <= 1.0):
            raise InvalidInput(
                f"the mean rewards go from {means.min():.6g} to {means.max():.6g}; Bernoulli "
                "rewards have means in [0, 1], so change the means, or the noise to a standard "
                "deviation"
            )

    @classmethod
    def a1(cls) -> Self:
        """World A1: one reward, two arms in each of two contexts; for f = -|z - .5|, f* = 0."""
        return cls([[[0.05], [0.95]], [[0.1], [0.9]]], (0.5, 0.5), theta=[[1.0]])

    @classmethod
    def a2(cls) -> Self:
        """World A2: two rewards that compete; for f = min, f* = .5."""
        return cls(
            [[[1.0, 0.0], [0.0, 1.0]], [[0.9, 0.1], [0.1, 0.7]]],
            (0.5, 0.5),
            theta=[[1.0, 0.0], [0.0, 1.0]],
        )

    @cached_property
    def _world(self) -> FiniteWorld:
        features = np.array(self.contexts)
        if self.means is None:
            means = features @ np.array(self.theta).T
        else:
            means = np.array(self.means)
        cumulative = np.cumsum(self.probabilities)
        cumulative[-1] = 1.0  # whatever rounding says: a uniform draw is below 1
        kind = {"none": _NONE, "bernoulli": _BERNOULLI}.get(str(self.noise), _NORMAL)
        deviation = 0.0 if isinstance(self.noise, str) else float(self.noise)
        params = np.concatenate([[kind, deviation], means.ravel()])
        return FiniteWorld(features, means, cumulative, params)

    @cached_property
    def _problem(self) -> Problem:
        features, means, _, _ = self._world
        low, high = np.zeros(means.shape[2]), np.ones(means.shape[2])
        if self.noise != "bernoulli":
            # The unit range where it holds the means, a wider one where it does not.
            low, high = np.minimum(low, means.min((0, 1))), np.maximum(high, means.max((0, 1)))
        theta = self.theta
        return Problem.arms(
            features.shape[2],
            {f"r{i + 1}": (float(low[i]), float(high[i])) for i in range(low.size)},
            feature_norm=max(float(np.linalg.norm(features, axis=2).max()), 1e-12),
            parameter_norm=None
            if theta is None
            else max(float(np.linalg.norm(np.array(theta), axis=1).max()), 1e-12),
        )

    def problem(self) -> Problem:
        """Arms with rewards r1, r2, ...; norms as they are in the tables."""
        return self._problem

    @property
    def bounded(self) -> bool:
        """Yes, unless the noise is normal."""
        return isinstance(self.noise, str)

    def init(self, rng: np.random.Generator) -> FiniteWorld:
        """The tables; nothing is random."""
        return self._world

    def draw_contexts(
        self, world: FiniteWorld, rng: np.random.Generator, n: int
    ) -> tuple[Cube, IntVector]:
        """Copies of the features, and which context each is, from one uniform draw a round."""
        tags = np.searchsorted(world.cumulative, rng.random(n), side="right").astype(np.int64)
        return world.features[tags], tags

    @property
    def n_draws(self) -> int:
        """One for each reward, none without noise."""
        return 0 if self.noise == "none" else self._world.means.shape[2]

    def draw_noise(self, rng: np.random.Generator, n: int) -> Matrix:
        """Uniform draws for Bernoulli rewards, normal ones for normal noise."""
        shape = (n, self.n_draws)
        return rng.random(shape) if self.noise == "bernoulli" else rng.standard_normal(shape)

    def reward_program(self, world: FiniteWorld) -> ArmWorld:
        """Rewards from the table."""
        (_, arms, d), n = world.features.shape, world.means.shape[2]
        return ArmWorld("table", world.params, n, d, arms)

    def tag(self, world: FiniteWorld, features: Matrix) -> int:
        """Which of the contexts has these features."""
        for i, known in enumerate(world.features):
            if np.array_equal(known, features):
                return i
        raise InvalidInput(
            f"the context is not one of the {len(world.features)} of this environment; give an "
            "array that context(...) returned, unchanged"
        )

    def support(self, world: FiniteWorld, direction: Vector) -> tuple[float, Vector]:
        """h_S(g) = sum_c p_c max_a <g, mu(c, a)>, and where it is attained, exactly."""
        g = direction_of(self.problem(), direction)
        best = (world.means @ g).argmax(axis=1)
        chosen = world.means[np.arange(len(best)), best]
        point: Vector = np.array(self.probabilities) @ chosen
        return float(g @ point), point

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        table = [[[0.2, 0.9, 0.4], [0.8, 0.1, 0.4]], [[0.5, 0.5, 0.0], [0.3, 0.6, 1.0]]]
        features = [[[1.0], [2.0]], [[3.0], [4.0]]]
        return (
            cls.a1(),
            cls.a2(),
            cls(features, (1.0, 3.0), means=table, noise="none"),
            cls(features, (2.0, 1.0), means=table, noise=0.3),
        )


def _array(name: str, values: Any, axes: tuple[str, ...]) -> np.ndarray[Any, np.dtype[np.float64]]:
    wanted = f"({', '.join(axes)})"
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"{name} is not an array of shape {wanted}: {error}; every context needs the same "
            "number of arms, every arm the same number of features"
        ) from error
    if array.ndim != len(axes) or array.size == 0:
        raise InvalidInput(f"{name} has shape {array.shape}; give {wanted}, at least one of each")
    if not np.isfinite(array).all():
        raise InvalidInput(f"{name} has a number that is not finite; give finite numbers only")
    return array


def _tuples(array: Any) -> Any:
    """Nested tuples of floats: values that can be compared, hashed and printed."""
    return tuple(map(_tuples, array)) if np.ndim(array) > 1 else tuple(array.tolist())
