"""`Extended`: any policy for one reward becomes a bandit that follows a direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from fairwolfe.bandits.base import vector_of
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.contexts import Bilinear, arms
from fairwolfe.core.decision import Choice
from fairwolfe.core.problem import Problem, one_of
from fairwolfe.core.protocols import ScalarPolicy, keeps
from fairwolfe.core.tables import short
from fairwolfe.errors import InvalidInput


class ExtendedState(NamedTuple):
    """A problem, and the state of the policy for one reward."""

    problem: Problem
    policy: Any


class Lesson(NamedTuple):
    """What learning needs besides the direction: the features of the arm and its probability."""

    x: Vector
    probability: float | None


@dataclass(frozen=True)
class Extended:
    """A policy for one reward, shown features that hold the direction g, rewarded with <g, r>.

    *outer*: the features of an arm are g (x) x, D d numbers. If rewards are linear in x, <g, r> is
    linear in these, so that a linear policy will do.

    *pair*: (g, x), D + d numbers, for policies that find products by themselves (trees, networks,
    quadratic features). A linear policy would make the same choice for every direction.

    The direction is part of what is learnt and travels in the decision. The probability is the
    policy's, and so is the guarantee: it must hold for contexts that an adversary chooses, since
    directions are. It cannot foresee a reward vector, so that it goes without
    act_many(..., advance=True). Contexts may not be PerArm.

    Parameters
    ----------
    policy: a `ScalarPolicy` (fairwolfe.core.protocols), such as VowpalWabbit(), or your own
    features: "outer" or "pair"

    Reference: Sec. 3.2 of the paper, the extended contexts of the reduction; docs/bandits.md.

    >>> class First:
    ...     def init(self, n_features):
    ...         return np.zeros(n_features)
    ...
    ...     def act(self, state, features, rng):
    ...         return 0, 1.0
    ...
    ...     def update(self, state, features, arm, probability, reward):
    ...         return state + reward * features
    >>> base = Extended(First())
    >>> state = base.init(Problem.arms(2, {"clicks": (0, 1), "saves": (0, 1)}))
    >>> g = np.array([1.0, 2.0])
    >>> choice = base.act(state, [[0.5, 1.0]], g, np.random.default_rng(0))
    >>> base.update(state, choice, g, np.array([1.0, 1.0])).policy.tolist()
    [1.5, 3.0, 3.0, 6.0]
    """

    policy: Any
    features: Literal["outer", "pair"] = "outer"

    extended: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not keeps(self.policy, ScalarPolicy):
            raise InvalidInput(
                f"the policy is {self.policy!r}; give one for one reward, with the methods of "
                "ScalarPolicy in fairwolfe.core.protocols, such as VowpalWabbit()"
            )
        one_of("features", self.features, ("outer", "pair"))

    def init(self, problem: Problem) -> ExtendedState:
        """Validate and allocate."""
        if problem.n_arms is not None:
            raise InvalidInput(
                f"the problem has n_arms={problem.n_arms}, for PerArm contexts; Extended takes a "
                "row of features for each arm: leave n_arms out"
            )
        n, d = problem.n_objectives, problem.dimension
        size = n * d if self.features == "outer" else n + d
        return ExtendedState(problem, self.policy.init(size))

    def act(
        self, state: ExtendedState, context: Any, direction: Vector, rng: np.random.Generator
    ) -> Choice:
        """Choose an arm for the scalar reward <direction, r>; only reads the state."""
        given = arms(context, state.problem)
        g = vector_of("direction", direction, state.problem)
        chosen, probability = self.policy.act(state.policy, self._rows(g, given.features), rng)
        arm = int(chosen)
        if not 0 <= arm < given.n_arms:  # a negative one would be taken from the end
            raise InvalidInput(
                f"{self.policy!r} chose arm {chosen} of {given.n_arms}; a policy must return a "
                f"whole number from 0 to {given.n_arms - 1}"
            )
        stated = None if probability is None else float(probability)
        # FrankWolfe hides the probability if directions are random; the policy's own is kept here.
        return Choice(arm, stated, Lesson(given.row(arm).copy(), stated))

    def update(
        self, state: ExtendedState, choice: Choice, direction: Vector, observation: Vector
    ) -> ExtendedState:
        """Let the policy learn the reward <direction, r>, in place where it can."""
        d = state.problem.dimension
        try:
            x, probability = choice.evidence
            fits = x.dtype == np.float64 and x.shape == (d,) and bool(np.isfinite(x).all())
        except (TypeError, ValueError, AttributeError):
            x, probability, fits = None, None, False
        if not (fits and (probability is None or isinstance(probability, float))):
            raise InvalidInput(
                f"the evidence of the choice is {short(choice.evidence, 80)}; it holds {d} "
                "features, and a probability or None"
            )
        g = vector_of("direction", direction, state.problem)
        reward = vector_of("reward", observation, state.problem)
        row = self._rows(g, x[None])[0]
        policy = self.policy.update(
            state.policy, row, int(choice.action), probability, float(g @ reward)
        )
        return state if policy is state.policy else state._replace(policy=policy)

    def _rows(self, direction: Vector, features: Matrix) -> Matrix:
        """What the policy sees of each arm."""
        if self.features == "outer":
            return Bilinear(direction, features).flat()
        return np.hstack([np.tile(direction, (len(features), 1)), features])

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        from fairwolfe.bandits.vowpal_wabbit import VowpalWabbit

        linear = VowpalWabbit(gamma_scale=10.0, arguments="--bit_precision 6")
        quadratic = VowpalWabbit(gamma_scale=10.0, arguments="--bit_precision 8 --quadratic ff")
        return cls(linear), cls(quadratic, features="pair")
