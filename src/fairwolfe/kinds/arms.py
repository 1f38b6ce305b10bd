"""`Arms`: one arm is chosen, and a reward vector comes back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fairwolfe.core import contexts
from fairwolfe.core.arrays import Vector
from fairwolfe.core.contexts import PerArm
from fairwolfe.core.kinds import Answer, Kind
from fairwolfe.core.problem import Problem, real_array
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.compile import Kernel
from fairwolfe.kernels.limits import INSIDE, NOT_FINITE, largest_square_norm, place_in_box
from fairwolfe.kinds.rewards import Rewards, random_rows

__all__ = ["Arms"]

_EXAMPLE = {"clicks": (0.0, 1.0), "gain": (-1.0, 2.0), "cost": (0.0, 0.5)}
_N_ARMS = 4  # of a random context
_FLOAT = np.dtype(np.float64)


class Arms(Kind):
    """One arm among those of the context; their number may change from context to context.

    >>> kind = Arms(Problem.arms(2, {"clicks": (0, 1), "saves": (0, 5)}))
    >>> kind.read([[0.6, 0.8], [0.0, 0.5]]).norm
    1.0
    >>> kind.hear(0, {"saves": 2, "clicks": 1}).reward.tolist()
    [1.0, 2.0]
    """

    name: ClassVar[str] = "arms"
    checked: ClassVar[type | None] = contexts.Arms

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.low, self.high = problem.low, problem.high
        self.rewards = Rewards(tuple(problem.rewards), self.low, self.high)
        self._n_columns = problem.dimension if problem.n_arms is None else -1

    @classmethod
    def example(cls) -> Problem:
        return Problem.arms(3, _EXAMPLE, parameter_norm=1.0)

    def kernels(self) -> tuple[Kernel[..., Any], ...]:
        return largest_square_norm, place_in_box

    # --- the gates ----------------------------------------------------------------------------

    def read(self, context: Any, **options: Any) -> contexts.Arms:
        """A row of features for each arm, or a PerArm or Bilinear context."""
        if options:
            raise InvalidInput("candidates, blocked and pinned are for rankings; leave them out")
        if type(context) is contexts.Arms:
            return contexts.fitting(context, self.problem)
        if type(context) is np.ndarray and context.dtype == _FLOAT and context.flags.carray:
            shape = context.shape
            if len(shape) == 2 and shape[1] == self._n_columns and shape[0] > 0:
                norm = math.sqrt(largest_square_norm.call(context))
                if norm < math.inf:  # and so the features are finite
                    return contexts.Arms(context, shape[0], False, norm)
        given = contexts.arms(context, self.problem)
        return given._replace(norm=math.sqrt(largest_square_norm(given.features)))

    def observe(self, action: Any, feedback: Any) -> Answer:
        """A reward vector in the order of the problem."""
        if type(feedback) is Answer and feedback.reward.shape == self.low.shape:
            return feedback
        vector = self._vector(feedback)
        if place_in_box(vector, self.low, self.high) == NOT_FINITE:
            self.rewards.refuse_bad(vector)
        return Answer(vector, vector)

    def hear(self, action: Any, reward: Any, **options: Any) -> Answer:
        """A reward vector, or a mapping by name."""
        if options:
            raise InvalidInput("exposed and clicked are for rankings; give the reward vector")
        plain = type(reward) is np.ndarray and reward.dtype == _FLOAT and reward.flags.carray
        if plain and reward.shape == self.low.shape:
            vector: Vector = reward
        elif isinstance(reward, Mapping):
            vector = self._vector(self.rewards.by_name(reward))
        else:
            vector = self._vector(reward)
        place = place_in_box.call(vector, self.low, self.high)
        if place == INSIDE:
            return Answer(vector, vector)
        if place == NOT_FINITE:
            self.rewards.refuse_bad(vector)
        return Answer(vector, vector, self.rewards.outside(vector[None]))

    def _vector(self, given: Any) -> Vector:
        """Numbers of the right shape; whether they are finite is for the caller to see."""
        n = self.low.size
        try:
            vector = real_array("the reward", given)
        except InvalidInput:
            self.rewards.refuse_bad(given)
            raise
        if vector.shape != (n,):
            raise InvalidInput(
                f"the reward has shape {vector.shape}; give {n} numbers, in the order "
                f"{', '.join(self.problem.rewards)}, or a mapping by name"
            )
        return vector if vector.flags.carray else vector.copy()

    allowed: ClassVar[str] = "return the number of an arm of the context, a whole number"

    def allows(self, given: contexts.Arms, action: Any) -> bool:
        whole = isinstance(action, (int, np.integer)) and not isinstance(action, bool)
        return whole and 0 <= action < given.n_arms

    # --- for the conformance checks -------------------------------------------------------------

    def random_context(self, rng: np.random.Generator, n_arms: int = _N_ARMS) -> Any:
        d, norm = self.problem.dimension, self.problem.feature_norm
        if self.problem.n_arms is not None:
            return PerArm(random_rows(rng, 1, d, norm)[0])
        return random_rows(rng, n_arms, d, norm)

    def random_feedback(self, action: Any, rng: np.random.Generator) -> Vector:
        return rng.uniform(self.low, self.high)

    def is_action(self, context: Any, action: Any) -> bool:
        n = self.problem.n_arms or len(context)
        return isinstance(action, (int, np.integer)) and int(action) in range(n)

    def actions(self, context: Any, rng: np.random.Generator) -> list[Any]:
        return list(range(self.problem.n_arms or len(context)))
