"""`Finite` and `FiniteRanking`: a few contexts with any mean rewards, and an exact optimum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.contexts import arms
from fairwolfe.core.problem import Problem, number_where
from fairwolfe.environments.world import (
    ArmsWorld,
    RankingArrays,
    RankingWorld,
    Table,
    check_fields,
    checked_weights,
    dcg,
    direction_of,
)
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.worlds import CompiledArmWorld
from fairwolfe.objectives.concave import finite_vector

_NONE, _BERNOULLI, _NORMAL = 0.0, 1.0, 2.0


class FiniteWorld(NamedTuple):
    """The tables of a `Finite` environment as arrays."""

    features: Cube  # (contexts, arms, d)
    means: Cube  # (contexts, arms, D)
    cumulative: Vector  # of the probabilities, (contexts,)
    params: Vector


Nested = Sequence[Sequence[Sequence[float]]] | Cube | Table


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

    contexts: Nested
    probabilities: Sequence[float] | Vector
    theta: Sequence[Sequence[float]] | Matrix | Table | None = None
    means: Nested | None = None
    noise: str | float = "bernoulli"

    def __post_init__(self) -> None:
        features = np.array(_table("contexts", self.contexts))
        for i in range(len(features)):
            for j in range(i):
                if np.array_equal(features[i], features[j]):
                    raise InvalidInput(
                        f"contexts {j} and {i} have equal features and cannot be distinguished; "
                        "make them one, with the sum of the probabilities"
                    )
        if (self.theta is None) == (self.means is None):
            raise InvalidInput("give either theta or means, one of them and not both")
        given = "means" if self.theta is None else "theta"
        check_fields(self, _table, "contexts", given)
        shape = np.shape(getattr(self, given))
        if given == "theta" and shape[1] != features.shape[2]:
            raise InvalidInput(
                f"theta has {shape[1]} columns and the contexts have {features.shape[2]} features; "
                "give theta a column for each feature"
            )
        if given == "means" and shape[:2] != features.shape[:2]:
            raise InvalidInput(
                f"means has shape {shape}; the contexts have {features.shape[:2]} "
                "(contexts, arms), so give means for each of these"
            )
        check_fields(self, self._checked_probabilities, "probabilities")
        check_fields(self, _checked_noise, "noise")
        means = self._world.means
        if self.noise == "bernoulli" and not (means.min() >= 0.0 and means.max() <= 1.0):
            raise InvalidInput(
                f"the mean rewards go from {means.min():.6g} to {means.max():.6g}; Bernoulli "
                "rewards have means in [0, 1], so change the means, or the noise to a standard "
                "deviation"
            )

    def _checked_probabilities(self, name: str, given: Any) -> tuple[float, ...]:
        shares, n = finite_vector(name, given), len(np.array(self.contexts))
        if shares.size != n or shares.min() <= 0.0:
            raise InvalidInput(
                f"{name} are {shares.tolist()}; give a positive number for each of the {n} contexts"
            )
        if abs(shares.sum() - 1.0) > 1e-12:  # otherwise as given: dividing would change the repr
            shares /= shares.sum()
        return tuple(shares.tolist())

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

    def reward_program(self, world: FiniteWorld) -> CompiledArmWorld:
        """Rewards from the table."""
        (_, arms, d), n = world.features.shape, world.means.shape[2]
        return CompiledArmWorld("table", world.params, n, d, arms)

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


_AXES = {
    "contexts": ("contexts", "arms", "features"),
    "theta": ("rewards", "features"),
    "means": ("contexts", "arms", "rewards"),
}


def _table(name: str, values: Any) -> Table:
    return Table(name, values, _AXES[name])


def _checked_noise(name: str, given: Any) -> str | float:
    if isinstance(given, str) and given in ("bernoulli", "none"):
        return given
    allowed = "'bernoulli', 'none' or a standard deviation > 0"
    return number_where(name, given, lambda number: number > 0.0, allowed)


_ROUNDING = 1e-9


@dataclass(frozen=True)
class FiniteRanking(RankingWorld):
    """A context drawn from a short list, with its own features of the items; clicks theta.x_i.

    The item in slot j is exposed with probability b_j, and is then clicked with probability
    theta.x_i. The reward vector holds the exposure of every item, then the number of clicks.
    `support` is exact.

    Parameters
    ----------
    contexts: (contexts, items, d), all equally likely; theta.x_i in [0, 1]
    theta: (d,)
    position_weights: b_1 >= b_2 >= ... in [0, 1], one for each slot; or a row for each context

    `b1` is a world so small that the regret bound for rankings is useful there.

    >>> from fairwolfe.objectives import GiniEquality, TwoSided
    >>> from fairwolfe.truth import optimum
    >>> round(optimum(FiniteRanking.b1(), TwoSided(GiniEquality(), beta=3.0)).value, 5)
    0.79334
    """

    contexts: Nested
    theta: Sequence[float] | Vector | Table
    position_weights: Sequence[float] | Sequence[Sequence[float]] | Matrix | Table

    def __post_init__(self) -> None:
        features = Table("contexts", self.contexts, ("contexts", "items", "features"))
        theta = Table("theta", self.theta, ("features",))
        n, m, d = features.shape
        if theta.shape != (d,):
            raise InvalidInput(
                f"theta has {theta.shape[0]} numbers and the items have {d} features; give as many"
            )
        checked = checked_weights(self.position_weights, n, m)
        weights = Table("position_weights", checked, ("contexts", "slots"))
        tables = {"contexts": features, "theta": theta, "position_weights": weights}
        check_fields(self, lambda name, given: tables[name], *tables)
        means = np.array(features) @ np.array(theta)
        if means.min() < -_ROUNDING or means.max() > 1.0 + _ROUNDING:
            raise InvalidInput(
                f"the click probabilities go from {means.min():.6g} to {means.max():.6g}; scale "
                "theta so that they lie in [0, 1]"
            )
        _ = self._world  # contexts that cannot be distinguished raise an error now

    @classmethod
    def b1(cls) -> Self:
        """World B1: one slot, three items; for Eq. (2) with beta = 3, f* = .79334."""
        angles = np.array([[0.05, 0.5, 1.1], [1.5, 1.0, 0.45]])
        features = np.stack([np.cos(angles), np.sin(angles)], axis=2)
        return cls(features, (0.85, 0.35), ((1.0,), (0.8,)))

    @cached_property
    def _world(self) -> RankingArrays:
        features, theta = np.array(self.contexts), np.array(self.theta)
        n, m, _ = features.shape
        # Every context has its own means, so that an item is known by its place alone.
        return RankingArrays.of(
            features,
            np.eye(m),
            np.ascontiguousarray(features @ theta)[None],
            np.array(self.position_weights),
            np.array([[0.0, 1.0]]),
            np.full(n, 1.0 / n),
        )

    @cached_property
    def _problem(self) -> Problem:
        features, theta = np.array(self.contexts), np.array(self.theta)
        return Problem.ranking(
            features.shape[1],
            np.shape(self.position_weights)[1],
            features.shape[2],
            feature_norm=max(float(np.linalg.norm(features, axis=2).max()), 1e-12),
            parameter_norm=max(float(np.linalg.norm(theta)), 1e-12),
        )

    def problem(self) -> Problem:
        """A ranking of the items; norms as they are in the tables."""
        return self._problem

    def init(self, rng: np.random.Generator) -> RankingArrays:
        """The tables; nothing is random."""
        return self._world

    def draw_users(self, rng: np.random.Generator, n: int) -> IntVector:
        """Which context it is, one integer a round."""
        return rng.integers(len(self._world.users), size=n)

    def show(self, world: RankingArrays, user: int) -> Matrix:
        """A copy of the features (items, d)."""
        features: Matrix = world.users[user].copy()
        return features

    def features(self, world: RankingArrays) -> tuple[Matrix, Cube]:
        """No features of users, and those of the items by context."""
        return np.ones((len(world.users), 1)), np.ascontiguousarray(np.swapaxes(world.users, 1, 2))

    def _user_of(self, world: RankingArrays, context: Any) -> Matrix:
        return arms(context, self._problem).features

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        features = [[[0.9, 0.1], [0.2, 0.3]], [[0.0, 0.4], [0.5, 0.5]], [[1.0, 0.0], [0.3, 0.6]]]
        return cls.b1(), cls(features, (0.6, 0.8), dcg(2))
