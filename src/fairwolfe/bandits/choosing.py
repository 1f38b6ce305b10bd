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
from fairwolfe.core.decision import Choice, Info, Learnt
from fairwolfe.core.kinds import require_kind
from fairwolfe.core.problem import Problem
from fairwolfe.core.streams import Numbered
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.compile import (
    Kernel,
    cube_at,
    data_of,
    function_at,
    kernel,
    vector_at,
)
from fairwolfe.kernels.frames import (
    AIMING,
    BASE,
    FORGET,
    NUMBERS,
    RUNNING,
    SLOPE,
    WAITING,
    address,
    cube,
    layer,
    part,
    row,
    vector,
)
from fairwolfe.kernels.gates import largest_square_norm
from fairwolfe.kernels.limits import row_limit
from fairwolfe.kernels.linalg import STATUS, predictions
from fairwolfe.kernels.philox import uniforms, uniforms_by_number
from fairwolfe.kernels.settling import REFUSED, TALLY, UNSOUND, WILD, settle
from fairwolfe.kernels.waiting import (
    OPEN,
    age_weight,
    expect_rows,
    features_in,
    open_one,
    size_without_features,
    sum_in,
    withdraw,
)
from fairwolfe.oracles import LinearState, Regression, Ridge
from fairwolfe.oracles.linear_state import call_learn, learn, refuse, repair
from fairwolfe.smoothing.following import ALONE, COURSE, N_ROOM, alone, call_aim

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
report out (1,)) -> arm. The report is the probability of the arm. NaN means that it is unknown,
an arm of -1 that the state has become useless."""

call_choose = function_at(CHOOSE)


@kernel(signature="void(float64[::1], float64[::1], float64[::1], float64[::1], float64[::1])")
def extended_lesson(
    direction: Vector, x: Vector, reward: Vector, wide: Vector, scalar: Vector
) -> None:
    """What an extended model learns of an arm: wide = g (x) x, and scalar[0] = <g, r>.

    direction, reward (rewards,), x (features,), wide (rewards features,), scalar (1,).
    """
    scalar[0] = 0.0
    for i in range(direction.size):
        scalar[0] += direction[i] * reward[i]
        for j in range(x.size):
            wide[i * x.size + j] = direction[i] * x[j]


# Places in the record of a choice, after the outlook: its tally.
VALUE, SCORE, ARM, PROBABILITY = TALLY, TALLY + 1, TALLY + 2, TALLY + 3
FEATURES = TALLY + 4  # where its features begin; then comes the direction, if it is kept
_STEEP = 1e6  # a slope that no smoothed objective has where features and rewards are scaled

RULE, THETA, INVERSE, GRAM, MOMENT, LEARN_PARAMS, ORACLE_COUNTERS, PARAMS, DOUBT, LESSON = range(
    BASE, BASE + 10
)
"""Places of the arrays of a bandit in a frame; RULE has the numbers below; LESSON is scratch."""

CHOICE, LOOKING, LEARNING, LIMIT, EXTENDED, KEEPS, ONCE = range(7)
"""Places in RULE: addresses of the rule, of the look and of the oracle; the limit of |x|^2; whether
the model is extended, whether directions are kept; the address of `learn_once`."""

_V, _M, _C = "float64[::1]", "float64[:, ::1]", "float64[:, :, ::1]"


@kernel(signature=f"int64({COURSE}, boolean, {_C}, boolean, {_M}, {_M})")
def choose_rows(
    words: IntVector,
    work: Vector,
    steps: Matrix,
    normals: Cube,
    advance: bool,
    look: bool,
    features: Cube,
    per_arm: bool,
    draws: Matrix,
    records: Matrix,
) -> int:
    """Decide for some contexts in a row, each by the rule of the frame: how many were, all unless a
    direction is not finite; -1 - s where the state is useless for decision s.

    look: whether the arms that are not chosen are looked at; features (rows, arms or 1, features),
    draws (rows, numbers). records (rows, ...): the outlook, the value and the score of the arm,
    the arm, its probability, its features, the direction. The others: see `COURSE`.
    """
    waiting, n = vector(words, WAITING), vector(words, RUNNING).size
    blocks = cube(words, THETA).shape[0]
    scores = np.empty(blocks if per_arm else features.shape[1])
    room, waits = np.empty((N_ROOM + 1, n)), np.empty(waiting.size if advance else 0)
    for i in range(waits.size):
        waits[i] = waiting[i]
    return _choose_rows(
        words,
        work,
        steps,
        normals,
        advance,
        look,
        features,
        per_arm,
        draws,
        records,
        scores,
        room,
        waits if advance else waiting,
    )


@kernel
def _choose_rows(
    words: IntVector,
    work: Vector,
    steps: Matrix,
    normals: Cube,
    advance: bool,
    look: bool,
    features: Cube,
    per_arm: bool,
    draws: Matrix,
    records: Matrix,
    out: Vector,
    room: Matrix,
    waits: Vector,
) -> int:
    """`choose_rows` with its scratch: out (arms,), room (N_ROOM + 1, n), waits: the open decisions,
    with those made here where each counts for the next.
    """
    theta, inverse, counters = (
        cube(words, THETA),
        cube(words, INVERSE),
        vector(words, ORACLE_COUNTERS),
    )
    rule, params = vector(words, RULE), vector(words, PARAMS)
    slope, doubt = vector(words, SLOPE), vector(words, DOUBT)
    choice, looking = address(rule, CHOICE), address(rule, LOOKING)
    keep = 1.0 - vector(words, NUMBERS)[FORGET]
    n, d = vector(words, RUNNING).size, features.shape[2]
    blocks = theta.shape[0] if theta.shape[1] == n else 1  # an extended model has one row of n d
    parameters = cube_at(data_of(theta), blocks, n, d)
    g = row(room, N_ROOM, n)
    aiming, given = address(vector(words, NUMBERS), AIMING), vector(words, RUNNING)
    if aiming == 0:
        for i in range(n):
            g[i] = given[i]
    for s in range(steps.shape[0]):
        anew = aiming != 0 and (s == 0 or steps[s, 2] > 0.0)
        if anew and not call_aim(
            aiming, s, words, work, steps, normals, waits, parameters, room, g
        ):
            return s
        record, context = row(records, s, records.shape[1]), layer(features, s)
        drawn = row(draws, s, draws.shape[1])
        arm = call_choose(
            choice,
            g,
            theta,
            inverse,
            counters,
            context,
            per_arm,
            drawn,
            params,
            out,
            part(record, PROBABILITY, 1),
        )
        if arm < 0:
            return -1 - s
        if look:
            call_look(
                looking,
                slope,
                g,
                theta,
                inverse,
                counters,
                context,
                per_arm,
                arm,
                doubt,
                part(record, 0, TALLY),
            )
        else:
            for i in range(TALLY):
                record[i] = 0.0
        block, place = (arm, 0) if per_arm else (0, arm)
        value = 0.0
        for j in range(d):
            record[FEATURES + j] = context[place, j]
            along = 0.0
            for i in range(n):
                along += g[i] * parameters[block, i, j]
            value += along * record[FEATURES + j]
        record[ARM], record[VALUE], record[SCORE] = arm, value, out[arm]
        if rule[KEEPS] > 0.0:
            for i in range(n):
                record[FEATURES + d + i] = g[i]
        if advance:
            open_one(waits, n, keep)
            sum_in(waits, n, block, part(record, FEATURES, d), 1.0, 1.0)
    return steps.shape[0]


LEARN_ONCE = (
    f"int64(int64[::1], int64, {_V}, {_V}, {_V}, {_V}, int64, int64, float64, float64, {_V})"
)
call_learn_once = function_at(LEARN_ONCE, only=False)


@kernel(signature=LEARN_ONCE)
def learn_once(
    words: IntVector,
    block: int,
    x: Vector,
    reward: Vector,
    followed: Vector,
    tallied: Vector,
    first: int,
    stop: int,
    number: float,
    place: float,
    expected: Vector,
) -> int:
    """The oracle of the frame learns, and the answer is settled: one call, so that an interrupt
    finds both done or neither. Negative (REFUSED, WILD, UNSOUND) where nothing was done.

    x (d,): the features of the arm; the others: see `settle`.
    """
    rule, theta, waiting = vector(words, RULE), cube(words, THETA), vector(words, WAITING)
    n, d = reward.size, x.size
    lesson, target = x, reward
    if rule[EXTENDED] > 0.0:
        room = vector(words, LESSON)
        lesson, target = part(room, 0, n * d), part(room, n * d, 1)
        extended_lesson(followed, x, reward, lesson, target)
    square = 0.0
    for j in range(lesson.size):
        square += lesson[j] * lesson[j]
    if not square <= rule[LIMIT]:
        return WILD
    doubt = 0.0  # a NaN or an infinity among these is one in the sum
    for i in range(tallied.size):
        doubt += tallied[i]
    if not np.isfinite(doubt):
        return UNSOUND
    counters = vector(words, ORACLE_COUNTERS)
    call_learn(
        address(rule, LEARNING),
        block,
        lesson,
        target,
        cube(words, GRAM),
        cube(words, INVERSE),
        theta,
        cube(words, MOMENT),
        vector(words, LEARN_PARAMS),
        counters,
    )
    if counters[STATUS] != 0.0:
        return REFUSED
    if waiting.size > size_without_features(n):
        keep = 1.0 - vector(words, NUMBERS)[FORGET]
        if place >= 0.0 and waiting[OPEN] > 0.0:
            sum_in(waiting, n, block, x, -1.0, age_weight(waiting, keep, place))
        features_in(waiting, n, block, x, reward, keep)
    return settle(
        words,
        reward,
        reward,
        followed,
        tallied,
        reward,
        first,
        stop,
        number,
        place,
        expected,
    )


@kernel(
    signature=f"int64(int64[::1], int64, int64[::1], {_M}, {_M}, {_M}, {_M}, float64, "
    f"int64[::1], {_M})"
)
def learn_rows(
    words: IntVector,
    start: int,
    blocks: IntVector,
    rows: Matrix,
    rewards: Matrix,
    followed: Matrix,
    tallied: Matrix,
    number: float,
    places: IntVector,
    expected: Matrix,
) -> int:
    """`learn_once` for decisions in a row, from `start` on: twice the place to continue at, plus 1
    where a certificate is due before; negative where a decision could not be applied.

    blocks, places (rows,), rows (rows, d), rewards (rows, n); followed, expected (rows, n),
    tallied (rows, TALLY), or without rows; number: of decision 0.
    """
    n, once = rewards.shape[1], address(vector(words, RULE), ONCE)
    nothing = vector_at(0, 0)
    for s in range(start, rows.shape[0]):
        direction = row(followed, s, n) if followed.shape[0] > 0 else nothing
        tally = row(tallied, s, TALLY) if tallied.shape[0] > 0 else nothing
        estimate = row(expected, s, n) if expected.shape[0] > 0 else nothing
        due: int = call_learn_once(
            once,
            words,
            blocks[s],
            row(rows, s, rows.shape[1]),
            row(rewards, s, n),
            direction,
            tally,
            np.int64(0),
            np.int64(0),
            number + s,
            float(places[s]),
            estimate,
        )
        if due < 0:
            return due
        if due > 0:
            return 2 * s + 3
    return 2 * rows.shape[0]


_NO_DRAWS = np.empty((1, 0))
_NO_ROWS = np.empty((0, 0))
_FLOAT = np.dtype(np.float64)


class Evidence(NamedTuple):
    """What learning from a choice needs: the block of the design, and the features of the arm.

    In a batch, by column.
    """

    block: Any  # int
    x: Any  # (d,)


class Reasons(NamedTuple):
    """What made the score of an arm, for `explain`."""

    record: Vector  # see `choose_rows`

    def rows(self) -> list[dict[str, Any]]:
        """Of the arm that was chosen."""
        value, score, arm = self.record[VALUE:PROBABILITY].tolist()
        return [{"arm": int(arm), "value": value, "exploration": score - value}]


_new: Any = tuple.__new__  # what a NamedTuple's own constructor does, in a third of its time


class ArmRows(NamedTuple):
    """Decisions in a row, by column: see `choose_rows`."""

    done: int  # how many of them there are
    records: Matrix
    stop: int  # where features end
    per_arm: bool
    looked: bool

    def choice(self, i: int) -> Choice:
        """One of them."""
        _, records, stop, per_arm, looked = self
        row = records[i]
        arm, probability = int(row.item(ARM)), row.item(PROBABILITY)
        outlook = row[:TALLY] if looked else None
        info = _new(Info, (_new(Reasons, (row,)), None, outlook, None))
        evidence = _new(Evidence, (arm if per_arm else 0, row[FEATURES:stop]))
        known = None if math.isnan(probability) else probability
        choice: Choice = _new(Choice, (arm, known, evidence, info))
        return choice

    def info(self, i: int) -> Info:
        """What is reported of one of them."""
        return Info(Reasons(self.records[i]))

    def direction(self, i: int) -> Vector:
        """That of one of them, where directions are kept."""
        kept: Vector = self.records[i, self.stop :]
        return kept

    @property
    def actions(self) -> IntVector:
        """The arms."""
        return self.records[:, ARM].astype(np.int64)

    @property
    def probabilities(self) -> Vector:
        """Of the arms; NaN where they are unknown."""
        return np.ascontiguousarray(self.records[:, PROBABILITY])

    def evidence(self) -> Evidence:
        """By column."""
        block = Column(self.actions) if self.per_arm else 0
        return Evidence(block, Column(np.ascontiguousarray(self.records[:, FEATURES : self.stop])))

    def outlooks(self) -> Column | None:
        """By column, where there are any."""
        return Column(np.ascontiguousarray(self.records[:, :TALLY])) if self.looked else None

    def expectations(self) -> None:
        """Features say what to expect of an arm."""


class BanditState(NamedTuple):
    """A problem with the rule's parameters for it, and the oracle's arrays."""

    problem: Problem
    params: Vector
    oracle: Any  # a RegressionState


class LinearBandit(ABC):
    """A rule over an oracle: the contract Base, in three short methods."""

    choose: ClassVar[Kernel[..., int]]
    needs_direction: ClassVar[bool] = True
    """Whether the rule uses the direction at all."""
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

    @property
    def look_rule(self) -> Kernel[..., None]:
        """The kernel that reports the arms that were not chosen to the live numbers."""
        if self.extended:
            return extended_outlook
        return optimistic_outlook if isinstance(self.regression, Ridge) else outlook

    def kernels(self, problem: Problem) -> Iterator[Kernel[..., Any]]:
        """What `act` and `update` call."""
        yield from (choose_rows, self.choose, self.look_rule)
        yield from (uniforms_by_number, expect_rows, withdraw)
        if isinstance(self.regression.learn, Kernel):
            yield from (self.regression.learn, learn_once, learn_rows)
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

        With `look`, a slope and the doubt, the choice holds what `tally` needs of <slope, r>.
        """
        problem = state.problem
        given = arms(context, problem)
        g = vector_of("direction", direction, problem)
        nothing = np.empty(0)
        slope, doubt = (nothing, nothing) if look is None else look
        if self.commits:
            oracle, features, per_arm = state.oracle, given.features, given.per_arm
        else:  # in the form of a linear oracle: theta, the inverse, counters, features
            theta, inverse, counters, features, per_arm = state.oracle.estimates(given)
            oracle = LinearState(inverse, inverse, theta, theta, nothing, counters)
        places = given.places if per_arm else None
        if places is not None:  # the blocks of the arms that may be chosen
            oracle = oracle._replace(theta=oracle.theta[places], inverse=oracle.inverse[places])
        frame = alone(g, slope, self._arrays(state, oracle, doubt, False))
        stop = FEATURES + features.shape[1]
        records = np.empty((1, stop))
        drawn = self._drawn(rng, problem, 1)
        done = choose_rows.call(
            frame.words, *ALONE, look is not None, features[None], per_arm, drawn, records
        )
        if done < 0:
            refuse(oracle.counters)
        choices = ArmRows(done, records, stop, per_arm, look is not None)
        choice = choices.choice(0)
        if estimate:
            expected = self._estimate(problem, oracle.theta, choice)
            choice = choice._replace(info=choice.info._replace(estimate=expected))
        if places is not None:
            block, x_arm = choice.evidence
            choice = choice._replace(evidence=Evidence(int(places[block]), x_arm))
        if self.commits:
            return choice
        row = given.row(int(records.item(0, ARM))).copy()  # not what the oracle makes of it
        return choice._replace(evidence=Evidence(0, row))

    def _estimate(self, problem: Problem, theta: Cube, choice: Choice) -> Vector:
        """theta x of a choice, projected on the ranges of the rewards, (n,)."""
        block, x = choice.evidence
        parameters = np.ascontiguousarray(theta[block]).reshape(1, -1, x.size)
        out = np.empty((1, problem.n_objectives))
        predictions(parameters, x[None], False, problem.low, problem.high, out)
        return out.ravel()

    def arrays(
        self, state: BanditState, doubt: Vector, keep: bool, by_chance: bool = False
    ) -> list[Any]:
        """Those of a frame, from BASE on. keep: whether directions are kept."""
        return self._arrays(state, state.oracle, doubt, keep)

    def _arrays(
        self, state: BanditState, oracle: LinearState, doubt: Vector, keep: bool
    ) -> list[Any]:
        limit = self._limit(state.problem)
        learner: Any = self.regression.learn
        learn = learner.address if isinstance(learner, Kernel) else 0
        look = self.look_rule.address
        known = np.concatenate([state.problem.low, state.problem.high, doubt])
        once = learn_once.address if self.commits else 0
        choose = self.choose.address if isinstance(self.choose, Kernel) else 0
        rule = [choose, look, learn, limit, self.extended, keep, once]
        gram, inverse, theta, moment, params, counters = oracle
        design = (theta, inverse, gram, moment, params, counters)
        lesson = np.empty(theta.shape[2] + 1 if self.extended else 0)
        return [np.array(rule, dtype=np.float64), *design, state.params, known, lesson]

    def act_rows(
        self,
        state: BanditState,
        given: Arms,
        words: IntVector,
        course: Any,
        rng: Any,
        look: bool,
        keep: int = 0,
    ) -> ArmRows:
        """Choose for one context, or for some in a row, whose features are (rows, arms or 1, d);
        only reads the state.

        words: of a frame with `arrays`; course: what gives directions, see `COURSE`; rng: a
        generator, or `Numbered` draws; keep: how many numbers of directions are kept. Fewer rows
        than there are contexts come back where the direction of the next one is not finite, and
        none where only some blocks may be chosen: `act` chooses among these.
        """
        problem, features = state.problem, given.features
        if features.ndim == 2:
            features = features[None]
        n_rows, _, d = features.shape
        stop = FEATURES + d
        records = np.empty((n_rows, stop + keep))
        if given.per_arm and given.places is not None:  # open decisions are summed over all blocks
            return ArmRows(0, records, stop, True, look)
        drawn = self._drawn(rng, problem, n_rows)
        choose: Any = choose_rows.call
        done: int = choose(words, *course, look, features, given.per_arm, drawn, records)
        if done < 0:
            refuse(state.oracle.counters)
        choices: ArmRows = _new(ArmRows, (done, records, stop, given.per_arm, look))
        return choices

    def forecasts(self) -> bool:
        """It can estimate a reward vector."""
        return True

    def update(
        self, state: BanditState, choice: Choice, direction: Vector, observation: Vector
    ) -> BanditState:
        """Learn from the observed reward vector, in place."""
        problem = state.problem
        block, x = self._arm(state, choice)
        reward = vector_of("reward", observation, problem)
        target = reward
        if self.extended:
            g = vector_of("direction", direction, problem)
            wide, target = np.empty(reward.size * x.size), np.empty(1)
            extended_lesson(g, x, reward, wide, target)
            x = wide
        if not largest_square_norm(x[None]) <= self._limit(problem):
            raise self._wild(state, choice)
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
        observation: Vector,
        words: IntVector,
        settling: tuple[Any, ...],
        view: Vector,
    ) -> int:
        """`update` and `settle` in one call; whether a certificate is due."""
        block, x = self._arm(state, choice)
        once: Any = learn_once.call
        reward, _, *rest = settling  # what is averaged is the reward
        due: int = once(words, block, x, reward, *rest)
        if due == REFUSED:
            refuse(state.oracle.counters)
        if due < 0:
            raise self._wild(state, choice)
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
        words: IntVector,
        live: tuple[Matrix, Matrix | None],
        looks: Any,
    ) -> Callable[..., int]:
        """What learns from the answers (rows, n) to decisions in a row: a function of where it
        starts, followed, number, places and expected, see `learn_rows`. Evidence and live, a
        tally and outlooks, are by column and may come from bytes.
        """
        tallied, outlooks = live
        block, rows = self._columns(state, len(actions), evidence)
        if outlooks is not None and outlooks.shape == (len(actions), TALLY):  # else none counts
            tallied = np.ascontiguousarray(outlooks)

        def fold(start: int, followed: Matrix, *rest: Any) -> int:
            done: int = learn_rows(words, start, block, rows, rewards, followed, tallied, *rest)
            if done == REFUSED:
                refuse(state.oracle.counters)
            if done < 0:
                raise self._wild(state, Choice(0, None, evidence))
            return done

        return fold

    def _columns(self, state: BanditState, n: int, evidence: Any) -> tuple[IntVector, Matrix]:
        """The blocks (n,) and features (n, d) of decisions, by column; they may come from bytes."""
        problem = state.problem
        blocks, d = problem.n_arms or 1, problem.dimension
        try:
            given, rows = evidence[0], np.ascontiguousarray(evidence[1].values)
            fits: Any = rows.dtype == _FLOAT and rows.shape == (n, d)
            if type(given) is int:
                block = np.zeros(n, dtype=np.int64)
                fits = fits and given == 0 and problem.n_arms is None
            else:
                block = given.values
                fits = fits and block.dtype == np.int64 and block.shape == (n,)
                fits = bool(fits and (block >= 0).all() and (block < blocks).all())
        except (TypeError, ValueError, AttributeError, IndexError):
            fits = False
        if not fits or not largest_square_norm(rows) <= self._limit(problem):
            raise self._wild(state, Choice(0, None, evidence))
        return block, rows

    def _arm(self, state: BanditState, choice: Choice) -> tuple[int, Vector]:
        """The block and x: evidence may come from bytes of any origin, and kernels trust what
        they are given.
        """
        problem = state.problem
        try:
            block, x = choice.evidence
            fits = x.dtype == _FLOAT and x.shape == (problem.dimension,) and x.flags.carray
        except (TypeError, ValueError, AttributeError):
            block, fits = -1, False
        if not (fits and type(block) is int and 0 <= block < (problem.n_arms or 1)):
            raise self._wild(state, choice)
        return block, x

    def _tame(self, state: BanditState, choice: Choice) -> tuple[int, Vector]:
        """`_arm`, whose features are numbers that could be learnt from."""
        block, x = self._arm(state, choice)
        if not largest_square_norm(x[None]) <= self._limit(state.problem):
            raise self._wild(state, choice)
        return block, x

    def _limit(self, problem: Problem) -> float:
        """Of the squared norm of what is learnt from."""
        limit = row_limit(problem, self.ridge_used)
        if self.extended:
            # Directions are gradients of f, at most its Lipschitz constant long where it has one.
            limit *= max(1.0, min(self.lipschitz or 1.0, _STEEP))
        return limit * limit

    def _wild(self, state: BanditState, choice: Choice) -> InvalidInput:
        problem, limit = state.problem, self._limit(state.problem)
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

    def expect_rows(self, state: BanditState, choices: ArmRows, words: IntVector) -> None:
        """Count decisions among the open ones."""
        column = ARM if choices.per_arm else -1
        expect_rows.call(words, choices.records, column, 0, FEATURES, choices.stop)

    def expect_columns(
        self, state: BanditState, actions: IntVector, evidence: Any, looks: Any, words: IntVector
    ) -> None:
        """Count decisions among the open ones, by columns that may come from bytes."""
        block, rows = self._columns(state, len(actions), evidence)
        if state.problem.n_arms is None:
            expect_rows.call(words, rows, -1, 0, 0, rows.shape[1])
            return
        columns: Matrix = np.column_stack([block.astype(np.float64), rows])
        expect_rows.call(words, columns, 0, 0, 1, columns.shape[1])

    def expect(self, state: BanditState, choice: Choice, expected: Any, words: IntVector) -> None:
        """Count a decision among the open ones."""
        block, x = self._tame(state, choice)
        expect_rows.call(words, x[None], -1, block, 0, x.size)

    def withdraw(
        self,
        state: BanditState,
        choice: Choice,
        expected: Any,
        words: IntVector,
        place: int,
        joined: tuple[int, int],
    ) -> None:
        """Take a decision that gets no answer out of the open ones."""
        block, x = self._tame(state, choice)
        withdraw.call(words, block, x, place, *joined)

    @cached_property
    def ridge_used(self) -> float:
        """The penalty of the regression; 0 where it has none."""
        return self.regression.ridge if isinstance(self.regression, Ridge) else 0.0

    def repair(self, state: BanditState) -> float:
        """Recompute the inverse and the estimates from the design; how large their error was."""
        learner, nothing = self.regression.learn, np.empty(0)
        return repair(state.oracle, lambda: learner(-1, nothing, nothing, *state.oracle))

    def learnt(self, state: BanditState) -> Learnt:
        """What was learnt of the rewards."""
        return Learnt(state.oracle)

    def drift(self, state: BanditState) -> float:
        """The error of the inverse when it was last recomputed; 0 where none is kept."""
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
