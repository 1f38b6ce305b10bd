"""What bandits over an oracle share: one signature for their rules, and how they are called.

A bandit for the scalar reward <direction, r> is a rule: a kernel that chooses an arm from the
oracle's estimates. The object API calls it for one round, the compiled loop by its address.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fairwolfe.bandits.optimism import (
    call_look,
    extended_outlook,
    optimistic_outlook,
    outlook,
    shared_doubt,
)
from fairwolfe.core.arrays import Cube, Matrix, Vector
from fairwolfe.core.brief import short
from fairwolfe.core.contexts import arms
from fairwolfe.core.decision import NOTHING, Choice, Info
from fairwolfe.core.kinds import require_kind
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.compile import Kernel, function_at, kernel
from fairwolfe.kernels.limits import largest_square_norm, row_limit
from fairwolfe.kernels.linalg import STATUS, refresh
from fairwolfe.kernels.settling import REFUSED, SETTLE, UNSOUND, WILD, Settling, settle
from fairwolfe.oracles import LinearState, Regression, Ridge
from fairwolfe.oracles.linear_state import call_learn, learn, refuse, repair

__all__ = ["CHOOSE", "BanditState", "Evidence", "LinearBandit", "call_choose", "vector_of"]

CHOOSE = (
    "int64(float64[::1], float64[:, :, ::1], float64[:, :, ::1], float64[::1], float64[:, ::1], "
    "boolean, float64[::1], float64[::1], float64[::1], float64[::1])"
)
"""(direction, theta, inverse, counters, features, per_arm, draws, params, scores out (K,),
report out) -> arm. The report holds the probability of the arm, then, if it has room, an
optimistic estimate of each reward. A probability of NaN means that it is unknown, an arm of -1
that the state has become useless."""

call_choose = function_at(CHOOSE)


_SEEN = 3  # numbers of an outlook
_STEEP = 1e6  # a slope that no smoothed objective has where features and rewards are scaled


@kernel(
    signature="int64(int64, int64, float64[::1], float64[:, :, ::1], float64[:, :, ::1], "
    "float64[::1], float64[:, ::1], boolean, float64[::1], float64[::1], float64[::1], "
    "float64[::1], float64[::1])"
)
def choose_once(
    choose: int,
    look: int,
    direction: Vector,
    theta: Cube,
    inverse: Cube,
    counters: Vector,
    features: Matrix,
    per_arm: bool,
    draws: Vector,
    params: Vector,
    slope: Vector,
    doubt: Vector,
    numbers: Vector,
) -> int:
    """The rule at an address, and the outlook of its arm if there is one: one call from Python for
    both. numbers: the outlook, then the report of the rule.
    """
    out = np.empty(theta.shape[0] if per_arm else features.shape[0])
    arm: int = call_choose(
        choose,
        direction,
        theta,
        inverse,
        counters,
        features,
        per_arm,
        draws,
        params,
        out,
        numbers[_SEEN:],
    )
    if arm >= 0 and look != 0:
        call_look(
            look,
            slope,
            direction,
            theta,
            inverse,
            counters,
            features,
            per_arm,
            arm,
            doubt,
            numbers[:_SEEN],
        )
    return arm


@kernel(
    signature="int64(int64, float64, int64, float64[::1], float64[::1], float64[:, :, ::1], "
    "float64[:, :, ::1], float64[:, :, ::1], float64[:, :, ::1], float64[::1], float64[::1], "
    f"{SETTLE})"
)
def learn_once(
    learn: int,
    limit: float,
    block: int,
    x: Vector,
    target: Vector,
    gram: Cube,
    inverse: Cube,
    theta: Cube,
    moment: Cube,
    params: Vector,
    oracle_counters: Vector,
    reward: Vector,
    rho: Vector,
    forget: float,
    first: int,
    stop: int,
    followed: Vector,
    running: Vector,
    totals: Vector,
    earned: Vector,
    clocks: Vector,
    counters: Vector,
    tallied: Vector,
    seen: Vector,
    number: float,
    now: Vector,
    slope: Vector,
    rewards: Vector,
) -> int:
    """The oracle at an address learns, and the answer is settled: one call, so that an interrupt
    finds both done or neither. Negative (REFUSED, WILD, UNSOUND) where nothing was done. limit: of
    |x|^2.
    """
    square = 0.0
    for j in range(x.size):
        square += x[j] * x[j]
    if not square <= limit:
        return WILD
    doubt = 0.0  # a NaN or an infinity among these is one in the sum
    for i in range(tallied.size):
        doubt += tallied[i]
    if not np.isfinite(doubt):
        return UNSOUND
    call_learn(learn, block, x, target, gram, inverse, theta, moment, params, oracle_counters)
    if oracle_counters[STATUS] != 0.0:
        return REFUSED
    return settle(
        reward,
        rho,
        forget,
        first,
        stop,
        followed,
        running,
        totals,
        earned,
        clocks,
        counters,
        tallied,
        seen,
        number,
        now,
        slope,
        rewards,
    )


@kernel(signature="void(float64[::1], float64[::1], float64[::1], float64[::1], float64[::1])")
def extended_lesson(
    direction: Vector, x: Vector, reward: Vector, wide: Vector, scalar: Vector
) -> None:
    """What an extended model learns of an arm: wide = g (x) x, and scalar[0] = <g, r>."""
    scalar[0] = 0.0
    for i in range(direction.size):
        scalar[0] += direction[i] * reward[i]
        for j in range(x.size):
            wide[i * x.size + j] = direction[i] * x[j]


def one_uniform(self: LinearBandit, rng: np.random.Generator, problem: Problem, n: int) -> Matrix:
    """`draws` of the rules that need one number in [0, 1) a round."""
    return rng.random((n, 1))


_NO_LOOK = (np.empty(0), np.empty(0))
_NO_DRAWS = np.empty(0)
_FLOAT = np.dtype(np.float64)


class Evidence(NamedTuple):
    """What learning from a choice needs: the block of the design, and the features of the arm."""

    block: int
    x: Vector  # (d,)


class BanditState(NamedTuple):
    """A problem with the rule's parameters for it, and the oracle's arrays."""

    problem: Problem
    params: Vector
    oracle: Any  # a RegressionState


class LinearBandit(ABC):
    """A rule over an oracle: the contract Base, in three short methods."""

    choose: ClassVar[Kernel[..., int]]
    needs_direction: ClassVar[bool] = True
    """Whether the rule looks at the direction at all."""
    extended = False
    """Whether it regresses <g, r> on the features g (x) x instead of r on x: the direction is then
    part of what is learnt, and travels in the decision."""
    delta = 0.05
    """delta', the level of the confidence widths."""
    lipschitz: float | None = None
    """L of the objective, where the bandit has to know it."""

    @cached_property
    @abstractmethod
    def regression(self) -> Regression:
        """The oracle."""

    @cached_property
    def drawless(self) -> bool:
        """Whether the rule draws nothing."""
        return type(self).draws is LinearBandit.draws

    def draws(self, rng: np.random.Generator, problem: Problem, n: int) -> Matrix:
        """What the rule draws in n rounds, a row for each; the same numbers for n calls of one."""
        return np.empty((n, 0))

    @abstractmethod
    def rule_params(self, problem: Problem) -> Vector:
        """What the rule's kernel takes as params."""

    def init(self, problem: Problem) -> BanditState:
        """Validate and allocate."""
        require_kind("arms", problem, type(self).__name__)
        return BanditState(problem, self.rule_params(problem), self.regression.init(problem))

    def look_rule(self, optimistic: bool) -> Kernel[..., None]:
        """What tells live numbers of the arms that were not chosen."""
        if self.extended:
            return extended_outlook
        return optimistic_outlook if optimistic else outlook

    def kernels(self, problem: Problem) -> Iterator[Kernel[..., Any]]:
        """What `act` and `update` call."""
        yield from (choose_once, self.choose, self.look_rule(False), largest_square_norm)
        if problem.parameter_norm is not None:  # else nothing is guaranteed
            yield self.look_rule(True)
        if isinstance(self.regression.learn, Kernel):
            yield from (self.regression.learn, learn_once)
        if isinstance(self.regression, Ridge):
            yield refresh
        if self.extended:
            yield extended_lesson

    def act(
        self,
        state: BanditState,
        context: Any,
        direction: Vector,
        rng: np.random.Generator,
        *,
        estimate: bool = False,
        look: tuple[Vector, Vector] | None = None,
    ) -> Choice:
        """Choose an arm for the scalar reward <direction, r>; only reads the state.

        With `look`, a slope and the doubt, the choice says what `tally` needs of <slope, r>.
        """
        problem = state.problem
        given = arms(context, problem)
        g = vector_of("direction", direction, problem)
        numbers = np.empty(_SEEN + 1 + g.size if estimate else _SEEN + 1)
        estimates = state.oracle.estimates(given)
        choose: Any = choose_once.call
        arm: int = choose(
            self.choose.address,
            0 if look is None else self.look_rule(look[1].size > 0).address,
            g,
            *estimates,
            _NO_DRAWS if self.drawless else self.draws(rng, problem, 1)[0],
            state.params,
            *(_NO_LOOK if look is None else look),
            numbers,
        )
        if arm < 0:
            refuse(estimates.counters)
        probability = numbers.item(_SEEN)
        info = NOTHING
        if estimate or look is not None:
            guess = numbers[_SEEN + 1 :] if estimate else None
            info = Info(None, guess, None if look is None else numbers[:_SEEN])
        return Choice(
            arm,
            None if math.isnan(probability) else probability,
            Evidence(arm if given.per_arm else 0, given.row(arm).copy()),
            info,
        )

    def forecasts(self) -> bool:
        """It can estimate a reward vector."""
        return True

    def update(
        self, state: BanditState, choice: Choice, direction: Vector, observation: Vector
    ) -> BanditState:
        """Learn from the observed reward vector, in place."""
        limit, block, x, target = self._lesson(state, choice, direction, observation)
        if not largest_square_norm(x[None]) <= limit:
            raise self._wild(state, choice, limit)
        learn(self.regression, state.oracle, block, x, target)
        return state

    @cached_property
    def commits(self) -> bool:
        """Whether `commit` will do: the oracle learns in a kernel."""
        return isinstance(self.regression.learn, Kernel)

    def commit(
        self,
        state: BanditState,
        choice: Choice,
        direction: Vector,
        observation: Vector,
        settling: Settling,
    ) -> int:
        """`update` and `settle` in one call; whether a certificate is due."""
        lesson = self._lesson(state, choice, direction, observation)
        learner: Any = self.regression.learn
        once: Any = learn_once.call
        due: int = once(learner.address, *lesson, *state.oracle, *settling)
        if due == REFUSED:
            refuse(state.oracle.counters)
        if due < 0:
            raise self._wild(state, choice, lesson[0])
        return due

    def _lesson(
        self, state: BanditState, choice: Choice, direction: Vector, observation: Vector
    ) -> tuple[float, int, Vector, Vector]:
        """The limit of |x|^2, and what the oracle learns from: the block, x, and the target.

        Evidence may come from bytes that anybody wrote, and kernels trust what they are given.
        """
        problem = state.problem
        blocks, d = problem.n_arms or 1, problem.dimension
        limit = row_limit(problem, self.ridge_used)
        try:
            block, x, *_ = choice.evidence  # older versions have written a third part
            fits = x.dtype == _FLOAT and x.shape == (d,) and x.flags.carray
        except (TypeError, ValueError, AttributeError):
            block, fits = -1, False
        if not (fits and type(block) is int and 0 <= block < blocks):
            raise self._wild(state, choice, limit * limit)
        reward = vector_of("reward", observation, problem)
        if self.extended:
            wide, scalar = np.empty(reward.size * d), np.empty(1)
            extended_lesson(vector_of("direction", direction, problem), x, reward, wide, scalar)
            # Directions are gradients of f, at most its Lipschitz constant long where it has one.
            limit *= max(1.0, min(self.lipschitz or 1.0, _STEEP))
            return limit * limit, block, wide, scalar
        return limit * limit, block, x, reward

    @staticmethod
    def _wild(state: BanditState, choice: Choice, limit: float) -> InvalidInput:
        problem = state.problem
        return InvalidInput(
            f"the evidence of the choice is {short(choice.evidence, 120)}; the problem has "
            f"{problem.dimension} features and {problem.n_arms or 1} blocks, and at most a norm of "
            f"{limit**0.5:g} can be learnt from"
        )

    @cached_property
    def ridge_used(self) -> float:
        """The penalty of the regression; 0 where it has none."""
        return self.regression.ridge if isinstance(self.regression, Ridge) else 0.0

    def repair(self, state: BanditState) -> float:
        """Compute the inverse and the estimates from the design afresh; how far off they were."""
        return repair(state.oracle, self.ridge_used)

    def drift(self, state: BanditState) -> float:
        """How far off the inverse was when it was last computed afresh; 0 where none is kept."""
        return state.oracle.drift if isinstance(state.oracle, LinearState) else 0.0

    # --- live numbers -------------------------------------------------------------------------

    def doubt(self, problem: Problem) -> Vector:
        """What turns estimates into upper bounds; empty where the oracle has no widths."""
        if not isinstance(self.regression, Ridge):
            return np.empty(0)
        return shared_doubt(problem, self.regression.ridge, self.delta)

    def tally(self, outlook: Vector, observation: Vector) -> Vector:
        """Of <slope, r>: the largest optimistic value in that context; how much more than the
        choice, and than the better of it and the greedy one, was to be had by the estimates.
        """
        return outlook


def vector_of(name: str, values: Vector, problem: Problem) -> Vector:
    """Kernels trust lengths: one that is wrong would read what is not there."""
    plain = type(values) is np.ndarray and values.dtype == _FLOAT
    if plain and values.shape == (problem.n_objectives,) and values.flags.c_contiguous:
        return values
    vector = np.ascontiguousarray(values, dtype=np.float64)
    if vector.shape != (problem.n_objectives,):
        raise InvalidInput(
            f"the {name} has shape {vector.shape}; give {problem.n_objectives} numbers, one for "
            f"each of {', '.join(problem.rewards)}"
        )
    return vector
