"""`ArmsKind`: one arm is chosen, and a reward vector comes back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from fairwolfe.core.arrays import Vector, for_kernels
from fairwolfe.core.contexts import Arms, PerArm, among, arms
from fairwolfe.core.kinds import Answer, Answers, Kind, Rewards, Stack, random_rows
from fairwolfe.core.problem import Problem, is_whole, real_array
from fairwolfe.core.tables import short
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.gates import INSIDE, NOT_FINITE, largest_square_norm, place_in_box

_EXAMPLE = {"clicks": (0.0, 1.0), "gain": (-1.0, 2.0), "cost": (0.0, 0.5)}
_N_ARMS = 4  # of a random context
_FLOAT = np.dtype(np.float64)


class ArmsKind(Kind):
    """One arm among those of the context; their number may change from context to context.

    >>> kind = ArmsKind(Problem.arms(2, {"clicks": (0, 1), "saves": (0, 5)}))
    >>> kind.read([[0.6, 0.8], [0.0, 0.5]]).norm
    1.0
    >>> kind.read_feedback(0, {"saves": 2, "clicks": 1}).reward.tolist()
    [1.0, 2.0]
    """

    name: ClassVar[str] = "arms"
    checked: ClassVar[type | None] = Arms

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.low, self.high = problem.low, problem.high
        self.rewards = Rewards(tuple(problem.rewards), self.low, self.high)
        self._n_columns = problem.dimension if problem.n_arms is None else -1

    @classmethod
    def example(cls) -> Problem:
        return Problem.arms(3, _EXAMPLE, parameter_norm=1.0)

    # --- the gates ----------------------------------------------------------------------------

    def read(self, context: Any, **options: Any) -> Arms:
        """A row of features for each arm, or a PerArm or Bilinear context.

        options: `candidates` and `blocked`, numbers or names of arms; `names`, of all of them.
        """
        if options:
            return self._among(context, **options)
        if type(context) is np.ndarray and context.dtype == _FLOAT and context.flags.carray:
            shape = context.shape
            if len(shape) == 2 and shape[1] == self._n_columns and shape[0] > 0:
                norm = math.sqrt(largest_square_norm(context))
                if norm < math.inf:  # and so the features are finite
                    return Arms(context, shape[0], False, norm)
        return arms(context, self.problem)

    def _among(
        self,
        context: Any,
        candidates: Any = None,
        blocked: Any = (),
        names: tuple[str, ...] | None = None,
        pinned: Any = None,
    ) -> Arms:
        """The context, with only some of its arms where that is asked for."""
        if pinned is not None:
            raise InvalidInput("pinned is for rankings; leave it out")
        given = self.read(context)
        whole = candidates is None and isinstance(blocked, tuple) and not blocked
        if given.places is not None and not whole:
            raise InvalidInput(
                "the context has been read, and candidates and blocked cannot be added; give them "
                "with the features themselves"
            )
        if names is not None and len(names) != given.n_arms:
            raise InvalidInput(
                f"the context has {given.n_arms} arms, and the agent was given names for "
                f"{len(names)}; give a row for each, or name them by context: {{name: features}}"
            )
        return given if whole else among(given, candidates, blocked, names)

    def observe(self, action: Any, feedback: Any) -> Answer:
        """A reward vector in the order of the problem."""
        if type(feedback) is Answer and feedback.reward.shape == self.low.shape:
            return feedback
        vector = self._vector(feedback)
        if place_in_box(vector, self.low, self.high) == NOT_FINITE:
            self.rewards.refuse_bad(vector)
        return Answer(vector, vector)

    def read_feedback(self, action: Any, reward: Any, **options: Any) -> Answer:
        """A reward vector, or a mapping by name. `missing`: a number for rewards that are None or
        missing; without it they raise an error.
        """
        missing = options.pop("missing", None) if options else None
        if options:
            raise InvalidInput("exposed and clicked are for rankings; give the reward vector")
        if self.problem.n_stages > 1 and isinstance(reward, Mapping):
            return self._read_stages(reward, missing)
        plain = type(reward) is np.ndarray and reward.dtype == _FLOAT and reward.flags.carray
        if plain and reward.shape == self.low.shape:
            vector: Vector = reward
        elif isinstance(reward, Mapping):
            vector = self._vector(self.rewards.by_name(reward, missing))
        else:
            vector = self._vector(self.rewards.in_order(reward, missing))
        place = place_in_box(vector, self.low, self.high)
        if place == INSIDE:
            return Answer(vector, vector)
        if place == NOT_FINITE:
            self.rewards.refuse_bad(vector)
        return Answer(vector, vector, self.rewards.outside(vector[None]))

    def _read_stages(self, reward: Mapping[str, Any], missing: float | None) -> Answer:
        """The rewards of the stages of which one is named, each stage whole; NaN for the others."""
        self.rewards.refuse_unknown(reward)
        stages = [names for names in self.problem.stage_names if any(n in reward for n in names)]
        if not stages:
            parts = " | ".join(", ".join(names) for names in self.problem.stage_names)
            raise InvalidInput(
                f"the reward is {reward!r:.80}; give all rewards of at least one stage of {parts}"
            )
        vector = np.full(self.low.size, np.nan)
        words = []
        for names in stages:
            first = self.problem.coordinate(names[0])
            part = slice(first, first + len(names))
            own = Rewards(names, self.low[part], self.high[part])
            given = own.by_name({name: reward[name] for name in names if name in reward}, missing)
            try:
                values = real_array("the reward", given)
            except InvalidInput:
                own.refuse_bad(given)
                raise
            if values.shape != (len(names),):
                raise InvalidInput(f"the reward is {reward!r:.80}; give a number for each name")
            place = place_in_box(values, own.low, own.high)
            if place == NOT_FINITE:
                own.refuse_bad(values)
            elif place != INSIDE:
                words.append(own.outside(values[None]))
            vector[part] = values
        return Answer(vector, vector, words[0] if words else "")

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

    # --- the gates, for many at once ------------------------------------------------------------

    def read_many(self, contexts: Any, options: Sequence[Mapping[str, Any]] = ()) -> Stack:
        """An array of shape (contexts, arms, features), or a list of contexts."""
        if type(contexts) is np.ndarray and contexts.ndim == 3 and not options:
            features = for_kernels(contexts)
            rows, n_arms, d = features.shape
            if rows and n_arms and d == self._n_columns:
                norm = math.sqrt(largest_square_norm(features.reshape(-1, d)))
                if norm < math.inf:  # and so the features are finite
                    return Stack(rows, Arms(features, n_arms, False, norm), norm)
        return super().read_many(contexts, options)

    def stacked(self, given: list[Any]) -> Stack:
        stack = super().stacked(given)
        if len({(one.features.shape, one.per_arm, one.n_arms) for one in given}) != 1:
            return stack
        features = np.array([one.features for one in given])
        together = given[0]._replace(features=features, norm=stack.norm)
        if any(one.places is not None for one in given):
            everything = np.arange(given[0].n_arms)
            rows = [everything if one.places is None else one.places for one in given]
            together = together._replace(places=np.array(rows))
        return stack._replace(given=together)

    def single(self, stack: Stack, i: int) -> Any:
        if isinstance(stack.given, list):
            return stack.given[i]
        given = stack.given
        places = None if given.places is None else given.places[i]
        return given._replace(features=given.features[i], places=places)

    def read_feedback_many(
        self, actions: Any, rewards: Any, options: Sequence[Mapping[str, Any]] = ()
    ) -> Answers | list[Answer]:
        """An array (decisions, rewards), or a list of what `read_feedback` takes."""
        n = self.low.size
        plain = type(rewards) is np.ndarray and rewards.shape == (len(actions), n)
        if not plain or options or rewards.dtype.kind not in "fiub":
            return super().read_feedback_many(actions, rewards, options)
        matrix = for_kernels(rewards)
        if not np.isfinite(matrix).all():
            return super().read_feedback_many(actions, matrix)  # which names the first bad reward
        far = ((matrix < self.low) | (matrix > self.high)).any(axis=1)
        return Answers(matrix, *self.rewards.outside_any(far, matrix))

    def columns(self, observations: list[Any]) -> Any:
        return np.array(observations).reshape(-1, self.low.size)

    def numbered(self, given: Arms, action: Any) -> Any:
        """The arm in the whole context, also of many: places is (rows, arms) then."""
        if given.places is None:
            return action
        if given.places.ndim == 2:
            return given.places[np.arange(len(action)), action]
        if not self.allows(given, action):
            raise InvalidInput(f"the policy chose {short(action, 80)}; {self.allowed}")
        return given.places.item(action)

    allowed: ClassVar[str] = "return the number of an arm of the context, a whole number"

    def allows(self, given: Arms, action: Any) -> bool:
        return is_whole(action) and 0 <= action < given.n_arms

    # --- for the conformance checks -------------------------------------------------------------

    def random_context(self, rng: np.random.Generator, n_arms: int = _N_ARMS) -> Any:
        d, norm = self.problem.dimension, self.problem.feature_norm
        if self.problem.n_arms is not None:
            return PerArm(random_rows(rng, 1, d, norm)[0])
        return random_rows(rng, n_arms, d, norm)

    def random_feedback(self, action: Any, rng: np.random.Generator) -> Vector:
        return rng.uniform(self.low, self.high)

    def actions(self, context: Any, rng: np.random.Generator) -> list[Any]:
        return list(range(self.problem.n_arms or len(context)))
