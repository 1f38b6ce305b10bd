"""What bandits over an oracle share: one signature for their rules, and how they are called.

A bandit for the scalar reward <direction, r> is a rule: a kernel that chooses an arm from the
oracle's estimates. The object API calls it for one round, the compiled loop by its address.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
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
from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.batch import Column
from fairwolfe.core.brief import short
from fairwolfe.core.contexts import Arms, arms
from fairwolfe.core.decision import Choice, Info
from fairwolfe.core.kinds import require_kind
from fairwolfe.core.problem import Problem
from fairwolfe.core.streams import Numbered
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.compile import Kernel, function_at, kernel
from fairwolfe.kernels.limits import largest_square_norm, row_limit
from fairwolfe.kernels.linalg import STATUS, refresh, row_products
from fairwolfe.kernels.philox import uniforms, uniforms_by_number
from fairwolfe.kernels.settling import (
    REFUSED,
    SETTLE,
    SETTLE_ROWS,
    UNSOUND,
    WILD,
    Settling,
    settle,
)
from fairwolfe.kernels.waiting import (
    OPEN,
    age_weight,
    expect_rows,
    open_one,
    size_without_features,
    sum_in,
    withdraw,
)
from fairwolfe.oracles import LinearState, Regression, Ridge
from fairwolfe.oracles.linear_state import call_learn, learn, refuse, repair
from fairwolfe.smoothing.following import COURSE, Course, aim

__all__ = [
    "CHOOSE",
    "ArmRows",
    "BanditState",
    "Evidence",
    "LinearBandit",
    "call_choose",
    "vector_of",
]

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
VALUE, SCORE, PROBABILITY = 3, 4, 5  # places in what is said of a choice, after the outlook
REPORT = 6  # and where its estimates begin
_STEEP = 1e6  # a slope that no smoothed objective has where features and rewards are scaled

_V, _M, _C = "float64[::1]", "float64[:, ::1]", "float64[:, :, ::1]"


@kernel(
    signature=f"int64({COURSE}, int64, int64, {_C}, {_C}, {_V}, {_C}, boolean, {_M}, {_V}, {_V}, "
    f"{_V}, int64[::1], {_M}, {_M}, {_M})"
)
def choose_rows(
    gradient: int,
    gradient_params: Vector,
    work: Vector,
    steps: Vector,
    mixes: Vector,
    normals: Cube,
    totals: Vector,
    clocks: Vector,
    running: Vector,
    waiting: Vector,
    ranges: Matrix,
    keep: float,
    advance: bool,
    choose: int,
    look: int,
    theta: Cube,
    inverse: Cube,
    counters: Vector,
    features: Cube,
    per_arm: bool,
    draws: Matrix,
    params: Vector,
    slope: Vector,
    doubt: Vector,
    arms: IntVector,
    numbers: Matrix,
    rows: Matrix,
    directions: Matrix,
) -> int:
    """Decide for some contexts in a row, each one by the rule at an address: how many were, all
    unless a direction is not finite; -1 - s where the state is useless for decision s.

    features (rows, arms or 1, features), draws (rows, numbers), slope, doubt: see `LOOK`. Out:
    arms (rows,), numbers (rows, REPORT or REPORT + rewards): the outlook, the value and the score
    of the arm, its probability and estimates; rows (rows, features) of the arms; directions
    (rows, rewards), or (0, rewards) where they are not kept. The others: see `Course`.
    """
    n, d = totals.size, features.shape[2]
    parameters = theta
    if theta.shape[1] != n:  # an extended model
        parameters = theta[0, 0].reshape((1, n, d))
    waits = waiting
    if advance:
        waits = waiting.copy()
    frozen = waiting.size == size_without_features(n)
    summed = np.empty((0, 0, 0)) if frozen else parameters
    g, room, everything = np.empty(n), np.empty((9, n)), np.empty(0, dtype=np.int64)
    out = np.empty(theta.shape[0] if per_arm else features.shape[1])
    for s in range(steps.size):
        anew = s == 0 or advance or normals.shape[1] > 0
        if anew and not aim(
            s,
            gradient,
            gradient_params,
            work,
            steps,
            mixes,
            normals,
            totals,
            clocks,
            running,
            waits,
            ranges,
            keep,
            summed,
            everything,
            room,
            g,
        ):
            return s
        arm = call_choose(
            choose,
            g,
            theta,
            inverse,
            counters,
            features[s],
            per_arm,
            draws[s],
            params,
            out,
            numbers[s, PROBABILITY:],
        )
        if arm < 0:
            return -1 - s
        if look != 0:
            call_look(
                look,
                slope,
                g,
                theta,
                inverse,
                counters,
                features[s],
                per_arm,
                arm,
                doubt,
                numbers[s, :_SEEN],
            )
        block, row = (arm, 0) if per_arm else (0, arm)
        value = 0.0
        for j in range(d):
            rows[s, j] = features[s, row, j]
            along = 0.0
            for i in range(n):
                along += g[i] * parameters[block, i, j]
            value += along * rows[s, j]
        arms[s], numbers[s, VALUE], numbers[s, SCORE] = arm, value, out[arm]
        if directions.shape[0] > 0:
            for i in range(n):
                directions[s, i] = g[i]
        if advance:
            open_one(waits, n, keep)
            if frozen:
                sum_in(waits, n, -1, numbers[s, REPORT:], 1.0, 1.0)
            else:
                sum_in(waits, n, block, rows[s], 1.0, 1.0)
    return steps.size


@kernel(
    signature=f"int64(int64, float64, int64, {_V}, {_V}, {_V}, {_C}, {_C}, {_C}, {_C}, {_V}, {_V}, "
    f"{SETTLE})"
)
def learn_once(
    learn: int,
    limit: float,
    block: int,
    row: Vector,
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
    place: float,
    expected: Vector,
    guess: Vector,
    waiting: Vector,
) -> int:
    """The oracle at an address learns, and the answer is settled: one call, so that an interrupt
    finds both done or neither. Negative (REFUSED, WILD, UNSOUND) where nothing was done. limit: of
    |x|^2. row (d,): the features of the arm, which x is made of in an extended model.
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
    n, d = totals.size, row.size
    by_features = place >= 0.0 and waiting.size > size_without_features(n)
    estimate = guess
    if by_features:
        estimate = np.empty(n)
        parameters = theta[0, 0].reshape((1, n, d)) if theta.shape[1] != n else theta
        row_products(parameters[block], row, estimate)
    call_learn(learn, block, x, target, gram, inverse, theta, moment, params, oracle_counters)
    if oracle_counters[STATUS] != 0.0:
        return REFUSED
    if by_features and waiting[OPEN] > 0.0:
        weight = age_weight(waiting, 1.0 - forget, place)
        sum_in(waiting, n, block, row, -1.0, weight)
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
        place,
        expected,
        estimate,
        waiting,
    )


@kernel(
    signature=f"int64(int64, float64, int64[::1], {_M}, {_M}, {_C}, {_C}, {_C}, {_C}, {_V}, {_V}, "
    f"{SETTLE_ROWS})"
)
def learn_rows(
    learn: int,
    limit: float,
    blocks: IntVector,
    rows: Matrix,
    targets: Matrix,
    gram: Cube,
    inverse: Cube,
    theta: Cube,
    moment: Cube,
    params: Vector,
    oracle_counters: Vector,
    start: int,
    rhos: Matrix,
    forget: float,
    followed: Matrix,
    running: Vector,
    totals: Vector,
    earned: Vector,
    clocks: Vector,
    counters: Vector,
    tallied: Matrix,
    number: float,
    now: Vector,
    slope: Vector,
    rewards: Vector,
    places: IntVector,
    expected: Matrix,
    corrects: bool,
    waiting: Vector,
) -> int:
    """`learn_once` for decisions in a row, from `start` on: twice the place to continue at, plus 1
    where a certificate is due before; negative where a decision was refused.

    blocks (rows,), rows (rows, d), targets (rows, rewards); the others: see `SETTLE_ROWS`.
    """
    nothing = np.empty(0)
    for s in range(start, rows.shape[0]):
        rho = rhos[s] if rhos.shape[0] > 0 else targets[s]
        direction = followed[s] if followed.shape[0] > 0 else nothing
        told = tallied[s] if tallied.shape[0] > 0 else nothing
        estimate = expected[s] if expected.shape[0] > 0 else nothing
        guess = estimate if corrects else nothing
        due = learn_once(
            learn,
            limit,
            blocks[s],
            rows[s],
            rows[s],
            targets[s],
            gram,
            inverse,
            theta,
            moment,
            params,
            oracle_counters,
            targets[s],
            rho,
            forget,
            0,
            0,
            direction,
            running,
            totals,
            earned,
            clocks,
            counters,
            told,
            targets[s],
            number + s,
            now,
            slope,
            rewards,
            places[s],
            estimate,
            guess,
            waiting,
        )
        if due < 0:
            return due
        if due > 0:
            return 2 * s + 3
    return 2 * rows.shape[0]


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


_NO_LOOK = (np.empty(0), np.empty(0))
_NO_DRAWS = np.empty((1, 0))
_NOT_KEPT = np.empty((0, 0))
_FLOAT = np.dtype(np.float64)
_GIVEN = (np.empty(0), np.empty(0), np.ones(1), np.ones(1), np.empty((1, 0, 0)))


class Evidence(NamedTuple):
    """What learning from a choice needs: the block of the design, and the features of the arm.

    In a batch, by column.
    """

    block: Any  # int
    x: Any  # (d,)


class Reasons(NamedTuple):
    """What made the score of an arm, for `explain`."""

    arm: int
    value: float
    score: float

    def rows(self) -> list[dict[str, Any]]:
        """Of the arm that was chosen."""
        bonus = self.score - self.value
        return [{"arm": self.arm, "value": self.value, "exploration": bonus}]


class ArmRows(NamedTuple):
    """Decisions in a row, by column: see `choose_rows`."""

    done: int  # how many of them there are
    arms: IntVector
    numbers: Matrix
    rows: Matrix
    directions: Matrix
    per_arm: bool
    looked: bool

    def choice(self, i: int) -> Choice:
        """One of them."""
        arm = self.arms.item(i)
        probability, numbers = self.numbers.item(i, PROBABILITY), self.numbers[i]
        return Choice(
            arm,
            None if math.isnan(probability) else probability,
            Evidence(arm if self.per_arm else 0, self.rows[i]),
            Info(
                Reasons(arm, numbers.item(VALUE), numbers.item(SCORE)),
                numbers[REPORT:] if numbers.size > REPORT else None,
                numbers[:_SEEN] if self.looked else None,
            ),
        )

    @property
    def actions(self) -> IntVector:
        """The arms."""
        return self.arms

    @property
    def probabilities(self) -> Vector:
        """Of the arms; NaN where they are unknown."""
        return np.ascontiguousarray(self.numbers[:, PROBABILITY])

    def evidence(self) -> Evidence:
        """By column."""
        return Evidence(Column(self.arms) if self.per_arm else 0, Column(self.rows))

    def outlooks(self) -> Column | None:
        """By column, where there are any."""
        return Column(np.ascontiguousarray(self.numbers[:, :_SEEN])) if self.looked else None

    def expectations(self) -> Column | None:
        """The reward vectors to expect, by column, where they were estimated."""
        if self.numbers.shape[1] == REPORT:
            return None
        return Column(np.ascontiguousarray(self.numbers[:, REPORT:]))

    def expected(self, i: int) -> Vector | None:
        """The reward vector to expect, where it was estimated."""
        return self.numbers[i, REPORT:] if self.numbers.shape[1] > REPORT else None


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

    uniforms: ClassVar[int] = 0
    """How many numbers in [0, 1) the rule draws in a round."""

    def draws(self, rng: np.random.Generator, problem: Problem, n: int) -> Matrix:
        """What the rule draws in n rounds, a row for each; the same numbers for n calls of one."""
        return rng.random((n, self.uniforms))

    @cached_property
    def _draws_uniforms(self) -> bool:
        """Whether the rule draws numbers in [0, 1) only."""
        return type(self).draws is LinearBandit.draws

    def _drawn(self, rng: Any, problem: Problem, n: int) -> Matrix:
        """`draws`, of a generator or by the numbers of the decisions."""
        if self._draws_uniforms and self.uniforms == 0:
            return _NO_DRAWS if n == 1 else np.empty((n, 0))
        if type(rng) is not Numbered:
            return self.draws(rng, problem, n)
        if self._draws_uniforms:
            return uniforms(rng, n, self.uniforms)
        return np.concatenate([self.draws(rng.generator(i), problem, 1) for i in range(n)])

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
        yield from (choose_rows, self.choose, self.look_rule(False), largest_square_norm)
        yield from (uniforms_by_number, expect_rows, withdraw)
        if problem.parameter_norm is not None:  # else nothing is guaranteed
            yield self.look_rule(True)
        if isinstance(self.regression.learn, Kernel):
            yield from (self.regression.learn, learn_once, learn_rows)
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
        course = (0, *_GIVEN, g, g, g, _GIVEN[0], _NOT_KEPT, 1.0, False)
        return self.act_rows(state, given, course, rng, estimate=estimate, look=look).choice(0)

    def act_rows(
        self,
        state: BanditState,
        given: Arms,
        course: Course,
        rng: Any,
        *,
        estimate: bool = False,
        look: tuple[Vector, Vector] | None = None,
        keep_directions: bool = False,
    ) -> ArmRows:
        """Choose for one context, or for some in a row, whose features are (rows, arms or 1, d);
        only reads the state.

        rng: a generator, or `Numbered` draws. Fewer rows than there are contexts come back where
        the direction of the next one is not finite.
        """
        problem, oracle = state.problem, state.oracle
        if self.commits:
            theta, inverse, counters = oracle.theta, oracle.inverse, oracle.counters
            features, per_arm = given.features, given.per_arm
        else:
            theta, inverse, counters, features, per_arm = oracle.estimates(given)
        if features.ndim == 2:
            features = features[None]
        n_rows, _, d = features.shape
        n = problem.n_objectives
        arms = np.empty(n_rows, dtype=np.int64)
        numbers = np.empty((n_rows, REPORT + n if estimate else REPORT))
        rows = np.empty((n_rows, d))
        directions = np.empty((n_rows, n)) if keep_directions else _NOT_KEPT
        choose: Any = choose_rows.call
        done: int = choose(
            *course,
            self.choose.address,
            0 if look is None else self.look_rule(look[1].size > 0).address,
            theta,
            inverse,
            counters,
            features,
            per_arm,
            self._drawn(rng, problem, n_rows),
            state.params,
            *(_NO_LOOK if look is None else look),
            arms,
            numbers,
            rows,
            directions,
        )
        if done < 0:
            refuse(counters)
        if not self.commits:
            rows = given.row(arms.item(0)).copy()[None]  # not what the oracle makes of it
        return ArmRows(done, arms, numbers, rows, directions, per_arm, look is not None)

    def forecasts(self) -> bool:
        """It can estimate a reward vector."""
        return True

    def update(
        self, state: BanditState, choice: Choice, direction: Vector, observation: Vector
    ) -> BanditState:
        """Learn from the observed reward vector, in place."""
        limit, block, _, x, target = self._lesson(state, choice, direction, observation)
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

    @property
    def folds(self) -> bool:
        """Whether `fold_rows` will do: what is learnt does not depend on the direction."""
        return self.commits and not self.extended

    def fold_rows(
        self,
        state: BanditState,
        actions: IntVector,
        evidence: Any,
        rewards: Matrix,
        told: tuple[Matrix, Matrix | None],
        seeing: Any,
    ) -> tuple[Callable[..., int], Matrix]:
        """What learns from the answers (rows, rewards) to decisions in a row, a function of the
        arguments of `SETTLE_ROWS`, and the tally for it. Evidence and told, a tally and outlooks,
        are by column and may come from bytes.
        """
        problem, n = state.problem, len(actions)
        blocks, d = problem.n_arms or 1, problem.dimension
        limit = row_limit(problem, self.ridge_used) ** 2
        try:
            given, rows = evidence[0], evidence[1].values
            block = np.zeros(n, dtype=np.int64) if type(given) is int else given.values
            fits = rows.dtype == _FLOAT and rows.shape == (n, d) and rows.flags.carray
            fits = fits and block.dtype == np.int64 and block.shape == (n,)
            fits = fits and (given == 0 or problem.n_arms is not None)
            fits = bool(fits and (block >= 0).all() and (block < blocks).all())
        except (TypeError, ValueError, AttributeError, IndexError):
            fits = False
        if not fits or not largest_square_norm(rows) <= limit:
            raise self._wild(state, Choice(0, None, evidence), limit)
        tallied, outlooks = told
        if outlooks is not None:
            if outlooks.shape != (n, _SEEN):
                raise self._wild(state, Choice(0, None, evidence), limit)
            tallied = np.ascontiguousarray(outlooks)
        learner: Any = self.regression.learn
        head = (learner.address, limit, block, rows, rewards, *state.oracle)

        def fold(*settling: Any) -> int:
            done: int = learn_rows(*head, *settling)
            if done == REFUSED:
                refuse(state.oracle.counters)
            if done < 0:
                raise self._wild(state, Choice(0, None, evidence), limit)
            return done

        return fold, tallied

    def _lesson(
        self, state: BanditState, choice: Choice, direction: Vector, observation: Vector
    ) -> tuple[float, int, Vector, Vector, Vector]:
        """The limit of |x|^2; the block and the features of the arm; x and the target that the
        oracle learns from.
        """
        problem = state.problem
        limit, block, x = self._arm(state, choice)
        reward = vector_of("reward", observation, problem)
        if self.extended:
            wide, scalar = np.empty(reward.size * x.size), np.empty(1)
            extended_lesson(vector_of("direction", direction, problem), x, reward, wide, scalar)
            # Directions are gradients of f, at most its Lipschitz constant long where it has one.
            limit *= max(1.0, min(self.lipschitz or 1.0, _STEEP))
            return limit * limit, block, x, wide, scalar
        return limit * limit, block, x, x, reward

    def _arm(self, state: BanditState, choice: Choice) -> tuple[float, int, Vector]:
        """The limit of |x|, the block and x: evidence may come from bytes that anybody wrote, and
        kernels trust what they are given.
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
        return limit, block, x

    @staticmethod
    def _wild(state: BanditState, choice: Choice, limit: float) -> InvalidInput:
        problem = state.problem
        return InvalidInput(
            f"the evidence of the choice is {short(choice.evidence, 120)}; the problem has "
            f"{problem.dimension} features and {problem.n_arms or 1} blocks, and at most a norm of "
            f"{limit**0.5:g} can be learnt from"
        )

    # --- open decisions -----------------------------------------------------------------------

    def blocks(self, problem: Problem) -> tuple[int, int]:
        """How many blocks of how many features the sums of open decisions have; (0, 0) where
        estimates are kept as they were made, since the oracle is not linear.
        """
        return (problem.n_arms or 1, problem.dimension) if self.commits else (0, 0)

    def expect_rows(self, state: BanditState, made: ArmRows, waiting: Vector, keep: float) -> None:
        """Count decisions among the open ones."""
        blocks = made.arms if made.per_arm else np.zeros(made.arms.size, dtype=np.int64)
        expect_rows.call(waiting, state.problem.n_objectives, keep, blocks, made.rows)

    def expect(
        self, state: BanditState, choice: Choice, expected: Any, waiting: Vector, keep: float
    ) -> None:
        """Count a decision among the open ones."""
        _, block, x = self._arm(state, choice)
        blocks = np.array([block])
        expect_rows.call(waiting, state.problem.n_objectives, keep, blocks, x[None])

    def withdraw(
        self,
        state: BanditState,
        choice: Choice,
        expected: Any,
        waiting: Vector,
        keep: float,
        place: int,
        joined: tuple[int, int],
    ) -> None:
        """Take a decision that gets no answer out of the open ones."""
        _, block, x = self._arm(state, choice)
        withdraw.call(waiting, state.problem.n_objectives, keep, block, x, place, *joined)

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
