# cython: language_level=3
"""Decide for arms, learn from their rewards, and play simulated worlds: Algorithm 2 over rows."""

from __future__ import annotations

from typing import Any

import cython
import numpy as np
from cython.cimports.fairwolfe.kernels.arms import ArmRow, Given, Round
from cython.cimports.fairwolfe.kernels.engine import (
    FIRST_WINDOW,
    ISSUED,
    OPEN,
    PLANNED,
    SERIAL,
    Before,
    Column,
    Engine,
    Head,
    aligned,
    column,
    pointer,
    within,
)
from cython.cimports.fairwolfe.kernels.gradients import Tree
from cython.cimports.fairwolfe.kernels.mailbox import Mailbox
from cython.cimports.fairwolfe.kernels.mixtures import ascend, ascent_room
from cython.cimports.fairwolfe.kernels.ridge import (
    Linear,
    learn_online_gradient,
    learn_ridge,
    linear_work,
)
from cython.cimports.fairwolfe.kernels.rules import (
    Choose,
    Look,
    argmax,
    choose_by_name,
    extended_lesson,
    look_by_name,
)
from cython.cimports.fairwolfe.kernels.types import Doubles, Real, Size
from cython.cimports.fairwolfe.kernels.worlds import ArmWorld
from cython.cimports.libc.math import isfinite
from cython.cimports.libc.stdint import int64_t
from cython.cimports.libc.stdlib import calloc, free
from cython.cimports.libc.string import memcpy

from fairwolfe.core.rows import HEAD, ArmRows
from fairwolfe.errors import InvalidInput

FLOAT = np.dtype(np.float64)


@cython.cclass
class ArmMailbox(Mailbox):
    """Decisions with their rewards: d features, n rewards, n_directions numbers of directions."""

    rows: Any
    earned: Any
    shape: Any
    head: cython.pointer[Head]
    x: cython.p_double
    g: cython.p_double
    rewards: cython.p_double

    def __init__(self, d: int, n: int, n_directions: int) -> None:
        self.shape = (d, n, n_directions)
        self.rows, self.earned = None, None
        Mailbox.__init__(self)

    def grow(self, capacity: int) -> None:
        d, n, n_directions = self.shape
        rows, earned = ArmRows.empty(capacity, d, n_directions), np.empty((capacity, n))
        if self.rows is not None:
            old = len(self.earned)
            for new, column in zip((*rows, earned), (*self.rows, self.earned), strict=True):
                new[:old] = column
        head: Head[::1] = rows.head
        x: cython.p_double = pointer(rows.x, (capacity, d))
        g: cython.p_double = pointer(rows.g, (capacity, n_directions))
        rewards: cython.p_double = pointer(earned, (capacity, n))
        # No interrupt from here on: arrays and pointers change together.
        self.rows, self.earned = rows, earned
        self.head, self.x, self.g, self.rewards = cython.address(head[0]), x, g, rewards


@cython.cclass
class Arms(Engine):
    """A state of a policy for arms. d features; D = d in a shared model, n d in an extended one.

    Row by row: g = grad f_t(z); the arm that the rule chooses for <g, r>; when its reward comes,
    the regression learns it and z averages it.
    """

    model: Linear
    choose: Choose
    look: Look
    rule: cython.p_double
    n_rule: Size
    doubt: cython.p_double
    n_doubt: Size
    limit: Real
    uniforms: Size
    extended: cython.bint
    keeps: cython.bint
    certifies: cython.bint
    room: cython.p_double
    arms: Size
    g: cython.p_double
    scores: cython.p_double
    wide: cython.p_double
    chosen: Linear
    own_rule: Any  # a rule from outside the package, or None
    ascent: Tree  # of a rule that ascends over mixtures of the arms, or None
    steps: Size
    rate: Real
    ascending: cython.p_double

    def __init__(self, plan: Any, state: Any) -> None:
        Engine.__init__(self, plan, state)
        model: cython.pointer[Linear] = cython.address(self.model)
        if state.theta.ndim != 3 or plan.coordinates is not None:
            raise ValueError(f"theta {state.theta.shape}, coordinates {plan.coordinates}")
        model.blocks, model.rewards, model.d = state.theta.shape
        self.extended, self.keeps = plan.extended, plan.keeps_direction
        self._check_model()
        self.certifies, self.limit, self.uniforms = plan.certifies, plan.limit, plan.uniforms
        self.attach("gram", cython.address(model.gram), state.gram.shape)
        self.attach("inverse", cython.address(model.inverse), state.inverse.shape)
        self.attach("theta", cython.address(model.theta), state.theta.shape)
        self.attach("moment", cython.address(model.moment), state.moment.shape)
        self.attach("learnt", cython.address(model.counters), (1, 5))
        model.params = pointer(plan.learn_params, plan.learn_params.shape)
        model.n_params = plan.learn_params.size
        if plan.learn == "ridge":
            model.learn = learn_ridge
        elif plan.learn == "online_gradient":
            model.learn = learn_online_gradient
        else:
            raise ValueError(f"there is no regression {plan.learn!r}")
        if state.gram.size == 0:  # only the estimates are kept
            model.gram, model.inverse = cython.NULL, cython.NULL
        self.own_rule = plan.own_rule
        self.ascent, self.steps, self.rate = plan.ascent
        if self.ascent is None:
            self.choose = choose_by_name(plan.rule)
        elif self.directed or self.ascent.n != self.n:
            raise ValueError(f"an ascent over {self.ascent.n} of {self.n} rewards")
        else:
            self.called = self.ascent
        self.look = look_by_name(plan.look)
        self.rule, self.n_rule = (
            pointer(plan.rule_params, plan.rule_params.shape),
            plan.rule_params.size,
        )
        self.doubt, self.n_doubt = pointer(plan.doubt, plan.doubt.shape), plan.doubt.size
        self.theta, self.n_linear = model.theta, (self.n if self.blocks > 0 else 0)
        if self.blocks > 0 and self.blocks * self.n * self.d != state.theta.size:
            raise ValueError(f"theta {state.theta.shape} for {self.n} rewards of {self.d} features")
        self.make_room(8)

    def __dealloc__(self) -> None:
        free(self.room)

    def check_callbacks(self) -> None:
        Engine.check_callbacks(self)
        if self.own_rule is not None:
            error = self.own_rule.failure()
            if error is not None:
                raise error

    def _check_model(self) -> None:
        """The sizes of what the regression reads and writes; only `pointer` looks at them again."""
        state, n, d = self.state, self.n, self.d
        blocks, rewards, wide = state.theta.shape
        squares = (1, blocks, wide, wide)
        if self.plan.learn == "online_gradient":
            squares, moments = (1, blocks, 0, 0), (blocks, rewards, 1)
        else:
            moments = (blocks, rewards, wide)
        if not (
            state.gram.shape == state.inverse.shape == squares
            and state.moment.shape == moments
            and (blocks, rewards, wide) == ((1, 1, n * d) if self.extended else (blocks, n, d))
            and blocks > 0
        ):
            raise ValueError(
                f"gram {state.gram.shape}, inverse {state.inverse.shape}, theta "
                f"{state.theta.shape}, moment {state.moment.shape}: {n} rewards, {d} features"
            )

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def make_room(self, arms: Size) -> cython.int:
        """Scratch for contexts of up to so many arms."""
        if arms <= self.arms:
            return 0
        arms = max(arms, 2 * self.arms)
        n: Size = (self.n + 7) // 8 * 8
        wide: Size = (self.model.d + 9) // 8 * 8
        out: Size = (arms + 7) // 8 * 8
        work: Size = linear_work(self.model.d, self.model.rewards, arms)
        ascending: Size = 0
        if self.ascent is not None:
            ascending = ascent_room(arms, self.n, self.d)
        gathered: Size = arms * self.model.d * (self.model.d + self.model.rewards)
        if self.model.blocks == 1:
            gathered = 0
        room: cython.p_double = cython.cast(
            cython.p_double, calloc(n + wide + out + work + gathered + ascending + 24, 8)
        )
        if room == cython.NULL:
            raise MemoryError
        free(self.room)
        self.room, self.arms = room, arms
        self.g = aligned(room)
        self.wide = self.g + n
        self.scores = self.wide + wide
        self.model.work = aligned(self.scores + out)
        self.ascending = self.model.work + work + gathered
        self.chosen = self.model
        if gathered > 0:
            self.chosen.theta = self.model.work + work
            if self.model.inverse != cython.NULL:
                self.chosen.inverse = self.chosen.theta + arms * self.model.d * self.model.rewards
        return 0

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _choose(
        self,
        context: Doubles,
        arms: Size,
        per_arm: cython.bint,
        places: cython.pointer[cython.const[int64_t]],
        draws: Doubles,
        head: cython.pointer[Head],
        looks: cython.bint,
    ) -> cython.bint:
        """The arm for the direction `g`, its probability and score; with live numbers if `looks`.

        context (arms or 1, d); places (arms,): blocks of the arms that may be chosen, or NULL.
        """
        a: Size
        arm: Size
        model: cython.pointer[Linear] = cython.address(self.model)
        size: Size = model.d * model.d
        wide: Size = model.d * model.rewards
        if per_arm and places != cython.NULL:
            model = cython.address(self.chosen)
            model.blocks = arms
            for a in range(arms):
                memcpy(model.theta + a * wide, self.model.theta + places[a] * wide, 8 * wide)
                if model.inverse != cython.NULL:
                    memcpy(
                        model.inverse + a * size, self.model.inverse + places[a] * size, 8 * size
                    )
        if self.ascent is not None:
            ascend(
                self.ascent,
                model.theta,
                context,
                per_arm,
                self.steps,
                self.rate,
                self.scores,
                self.ascending,
                arms,
                self.n,
                self.d,
            )
            if self.ascent.has_failed():
                return False
            arm = argmax(self.scores, arms)
            head.probability = 1.0
        else:
            arm = self.choose(
                model,
                self.g,
                self.n,
                context,
                arms,
                self.d,
                per_arm,
                draws,
                self.rule,
                self.n_rule,
                self.scores,
                cython.address(head.probability),
            )
        if arm < 0:
            return False
        head.arm, head.score = arm, self.scores[arm]
        head.block = 0
        if per_arm:
            head.block = arm if places == cython.NULL else places[arm]
        head.window = -1
        head.best = 0.0
        head.missed = 0.0
        head.spare = 0.0
        head.untried = 0.0
        if looks:
            self.look(
                model,
                self.slope,
                self.g,
                self.n,
                context,
                arms,
                self.d,
                per_arm,
                arm,
                self.doubt,
                self.n_doubt,
                cython.address(head.best),
            )
            if isfinite(head.best + head.missed + head.spare + head.untried):
                head.window = cython.cast(int64_t, self.window[SERIAL])
        return True

    # --- decide -------------------------------------------------------------------------------

    def decide(
        self,
        rows: Any,
        contexts: Any,
        draws: Any,
        normals: Any,
        number: int64_t,
        n_arms: Size = 0,
        places: Any = None,
        advance: cython.bint = True,
        propose: cython.bint = False,
        every: Size = 1,
    ) -> Size:
        """Decide a row for each context; how many were decided. Fewer: the direction of the next
        is not finite; -1 - i: the scores of row i are not. Nothing has changed in both cases.

        rows: `ArmRows` to fill; contexts (rows, arms, d), or (rows, 1, d) with n_arms where each
        arm has a block of its own; places (rows, n_arms): the blocks that may be chosen; draws
        (rows, uniforms); normals (rows, samples, n + 2); number: of the first decision; advance:
        each decision counts as open for the next; propose: none is open afterwards; every: how
        many decisions share a direction.
        """
        row: ArmRow = self._row(rows)
        features = cython.declare(Column)
        drawn = cython.declare(Column)
        noise = cython.declare(Column)
        column(contexts, FLOAT, 3, False, cython.address(features))
        column(draws, FLOAT, 2, False, cython.address(drawn))
        column(normals, FLOAT, 3, False, cython.address(noise))
        m: Size = features.n
        per_arm: cython.bint = n_arms > 0
        arms: Size = n_arms if per_arm else features.a
        where: cython.pointer[cython.const[int64_t]] = cython.NULL
        if places is not None:
            blocks: cython.const[int64_t][:, ::1] = places  # type: ignore[valid-type]
            if blocks.shape[0] != m or blocks.shape[1] != arms:
                raise ValueError(f"places {places.shape} for {m} contexts of {arms} arms")
            if not per_arm or np.min(places, initial=0) < 0:
                raise ValueError("places are blocks of arms that have blocks of their own")
            if np.max(places, initial=0) >= self.model.blocks:
                raise ValueError(f"place {np.max(places)} of {self.model.blocks} blocks")
            where = cython.address(blocks[0, 0])
        if not (
            row.rows == m == drawn.n == noise.n
            and row.d == features.b == self.d
            and row.n_g == (self.n if self.keeps else 0)
            and noise.a == self.samples
            and drawn.a == self.uniforms
            and (self.samples == 0 or noise.b == self.n + 2)
            and (
                not per_arm
                or (features.a == 1 and (places is not None or arms == self.model.blocks))
            )
            and (per_arm or self.model.blocks == 1)
            and arms > 0
            and every > 0
        ):
            raise ValueError(
                f"rows {row.rows}, {row.d}, contexts {contexts.shape}, draws {draws.shape}, "
                f"normals {normals.shape}, blocks {self.model.blocks}"
            )
        done: Size
        given = cython.declare(Given)
        given.contexts, given.arms = cython.cast(Doubles, features.data), arms
        given.per_arm, given.places, given.uniforms = per_arm, where, self.uniforms
        given.draws = cython.cast(Doubles, drawn.data)
        given.normals = cython.cast(Doubles, noise.data)
        self.begin(self)
        try:
            self.make_room(arms)
            with cython.nogil:
                done = self._decide(
                    row.head,
                    row.x,
                    row.g,
                    m,
                    cython.address(given),
                    number,
                    advance,
                    propose,
                    every,
                )
            self.check_callbacks()
        finally:
            self.end(self)
        return done

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _decide(
        self,
        head: cython.pointer[Head],
        x: cython.p_double,
        kept: cython.p_double,
        m: Size,
        given: cython.pointer[Given],
        number: int64_t,
        advance: cython.bint,
        propose: cython.bint,
        every: Size,
    ) -> Size:
        i: Size
        j: Size
        r: Size
        along: Real
        n: Size = self.n
        d: Size = self.d
        done: Size = m
        arms: Size = given.arms
        per_arm: cython.bint = given.per_arm
        context: Doubles = given.contexts
        own: cython.p_double
        theta: cython.p_double
        row: cython.pointer[Head]
        where: cython.pointer[cython.const[int64_t]]
        issued: int64_t = cython.cast(int64_t, self.open[ISSUED])
        looks: cython.bint = self.certifies and self.window[PLANNED] > FIRST_WINDOW
        moves: cython.bint = advance and self.directed
        self.save_open()
        for i in range(m):
            row, own = head + i, x + i * d
            where = cython.NULL
            if given.places != cython.NULL:
                where = given.places + i * arms
            if i == 0 or ((moves or self.samples > 0) and i % every == 0):
                if not self.direction(given.normals + i * self.samples * (n + 2), self.g):
                    done = i
                    break
            if not self._choose(
                context,
                arms,
                per_arm,
                where,
                given.draws + i * given.uniforms,
                row,
                looks,
            ):
                done = -1 - i
                break
            row.number = number + i
            row.t = cython.cast(int64_t, self.t[0])
            row.size = n
            row.place = issued + i if self.counts_open else -1
            memcpy(own, context if per_arm else context + row.arm * d, 8 * d)
            theta = self.model.theta + row.block * n * d
            row.value = 0.0
            for j in range(d):
                along = 0.0
                for r in range(n):
                    along += self.g[r] * theta[r * d + j]
                row.value += along * own[j]
            if self.keeps:
                memcpy(kept + i * n, self.g, 8 * n)
            if moves:
                self.open_one()
                self.open_features(row.block, own, 1.0, 1.0)
            context += d if per_arm else arms * d
        if done < m or propose or not (moves and self.counts_open):
            self.restore_open()
        if done == m and self.counts_open and not moves and not propose:
            for i in range(m):
                self.open_one()
                self.open_features(head[i].block, x + i * d, 1.0, 1.0)
        return done

    def open_rows(self, rows: Any, force: cython.bint = False) -> None:
        """Count proposed decisions as open, in their order; force: whether or not open
        decisions count.
        """
        row: ArmRow = self._given(rows)
        i: Size
        self.begin(self)
        if self.counts_open or force:
            for i in range(row.rows):
                self.open_one()
                self.open_features(row.head[i].block, row.x + i * self.d, 1.0, 1.0)
        self.end(self)

    def withdraw(self, rows: Any) -> None:
        """Decisions that get no answer are not open any more."""
        row: ArmRow = self._given(rows)
        i: Size
        weight: Real
        self.begin(self)
        for i in range(row.rows):
            if self._is_open(row.head + i):
                weight = self.age_weight(row.head[i].place)
                self.open_features(row.head[i].block, row.x + i * self.d, -1.0, weight)
                self.close_one(0, 0, weight)
        self.end(self)

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_open(self, head: cython.pointer[Head]) -> cython.bint:
        return self.counts_open and self.open[OPEN] > 0.0 and 0 <= head.place < self.open[ISSUED]

    @cython.cfunc
    def _row(self, rows: Any) -> ArmRow:
        """The first of rows."""
        row = cython.declare(ArmRow)
        head = cython.declare(Column)
        x = cython.declare(Column)
        g = cython.declare(Column)
        column(rows.head, HEAD, 1, True, cython.address(head))
        column(rows.x, FLOAT, 2, True, cython.address(x))
        column(rows.g, FLOAT, 2, True, cython.address(g))
        if not head.n == x.n == g.n:
            raise InvalidInput(f"columns of {head.n}, {x.n} and {g.n} decisions")
        row.head = cython.cast(cython.pointer[Head], head.data)
        row.x, row.g = cython.cast(cython.p_double, x.data), cython.cast(cython.p_double, g.data)
        row.rows, row.d, row.n_g = head.n, x.a, g.a
        return row

    @cython.cfunc
    def _given(self, rows: Any) -> ArmRow:
        """The first of rows that may come from outside: sizes and blocks."""
        i: Size
        row: ArmRow = self._row(rows)
        if row.d != self.d:
            raise InvalidInput(f"{row.rows} decisions with features ({row.rows}, {row.d})")
        for i in range(row.rows):
            if not 0 <= row.head[i].block < self.model.blocks:
                raise InvalidInput(
                    f"decision {i} is of block {row.head[i].block} of {self.model.blocks}"
                )
        return row

    # --- learn --------------------------------------------------------------------------------

    def learn(
        self,
        rows: Any,
        rewards: Any,
        start: Size = 0,
    ) -> Size:
        """Learn the rewards (rows, n) of decisions from `start` on, in their order.

        Twice the row to continue at, plus 1 where a certificate of live numbers is due before;
        -1 - i where the regression rejects row i, of which nothing is learnt. Nor is anything of a
        row and of those after it where a function of the user raises.
        """
        row: ArmRow = self._given(rows)
        earned = cython.declare(Column)
        column(rewards, FLOAT, 2, False, cython.address(earned))
        reward: Doubles = cython.cast(Doubles, earned.data)
        m: Size = row.rows
        if not (
            earned.n == m
            and earned.a == self.n
            and (row.n_g == self.n or (row.n_g == 0 and not self.extended))
            and 0 <= start <= m
        ):
            raise InvalidInput(
                f"{m} decisions with directions of {row.n_g} coordinates and rewards "
                f"({earned.n}, {earned.a})"
            )
        code: Size = 2 * m
        due: Size
        i: Size
        self.begin(self)
        try:
            with cython.nogil:
                for i in range(start, m):
                    due = self._learn(
                        row.head + i,
                        row.x + i * self.d,
                        row.g + i * self.n if row.n_g > 0 else cython.NULL,
                        reward + i * self.n,
                        True,
                    )
                    if due != 0:
                        code = 2 * i + 3 if due > 0 else -1 - i
                        break
            self.check_callbacks()
        finally:
            self.end(self)
        return code

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _learn(
        self,
        head: cython.pointer[Head],
        x: Doubles,
        g: Doubles,
        reward: Doubles,
        opens: cython.bint,
    ) -> Size:
        """One answer: the regression, open decisions, z and live numbers, all or none of them.

        1 where a certificate is due, -1 where the regression rejects it or a function of the user
        failed. opens: whether estimates of open decisions will be needed.
        """
        weight: Real
        if not self.look_at_prices():
            return -1
        if not self._regress(head.block, x, g, reward):
            return -1
        if opens and self.directed:
            if self._is_open(head):
                weight = self.age_weight(head.place)
                self.open_features(head.block, x, -1.0, weight)
                self.answer_features(head.block, x, reward)
                self.close_one(0, 0, weight)
            else:
                self.answer_features(head.block, x, reward)
        self.average(reward, reward, 0, 0)
        if self.keeps and g != cython.NULL:  # another smoothing may have decided
            memcpy(self.running, g, 8 * self.n)
        return self.count_live(head, cython.address(head.best), reward)

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _regress(self, block: Size, x: Doubles, g: Doubles, reward: Doubles) -> cython.bint:
        """The regression learns r from x, or <g, r> from g (x) x in an extended model."""
        j: Size
        square: Real = 0.0
        size: Size = self.model.d
        if not self.extended:
            return self.model.learn(cython.address(self.model), block, x, reward)
        extended_lesson(g, x, reward, self.wide, self.wide + size, self.n, self.d)
        for j in range(size):
            square += self.wide[j] * self.wide[j]
        if not square <= self.limit:
            return False
        return self.model.learn(cython.address(self.model), 0, self.wide, self.wide + size)

    def study(
        self,
        rows: Any,
        rewards: cython.const[cython.double][:, ::1],  # type: ignore[valid-type]
    ) -> Size:
        """The regression alone learns from rewards (rows, n) of decisions that others made; how
        many rows it learnt, fewer where it rejects the next.
        """
        row: ArmRow = self._given(rows)
        i: Size
        done: Size = row.rows
        nothing: cython.p_double = self.spare
        if rewards.shape[0] != row.rows or rewards.shape[1] != self.n:
            raise InvalidInput(f"rewards ({rewards.shape[0]}, {rewards.shape[1]})")
        self.begin(self)
        for i in range(self.n):
            nothing[i] = 0.0
        for i in range(row.rows):
            if not self._regress(
                row.head[i].block, row.x + i * self.d, nothing, cython.address(rewards[i, 0])
            ):
                done = i
                break
        self.end(self)
        return done

    # --- play ---------------------------------------------------------------------------------

    def play(
        self,
        decider: Any,
        world: ArmWorld,
        drawn: Any,
        mailbox: Any,
        out: Any,
        done: int64_t = 0,
        refresh: int64_t = 1,
    ) -> Size:
        """Play the rounds that were drawn; how many were played.

        Fewer: the direction of the next is not finite, or a function of the user raised; -1 - s:
        the state cannot decide round s, or rejects what is learnt in it.

        decider: the engine that decides, None for this one, or one whose state is copied from it
        every `refresh` rounds; drawn: contexts (rounds, arms, d), tags (rounds,), noise, draws,
        normals, and delays where there is a mailbox, None where answers come at once; out: actions
        (rounds,), sums of means and of rewards (n,), scalar (3,): sums of max_a <g, mu_a>, <g, mu>
        and <g, r>.
        """
        by: Arms = self if decider is None else decider
        box: ArmMailbox = ArmMailbox(1, 1, 0) if mailbox is None else mailbox
        contexts: cython.const[cython.double][:, :, ::1] = drawn.contexts  # type: ignore[valid-type]
        tags: cython.const[int64_t][::1] = drawn.tags  # type: ignore[valid-type]
        noise: cython.const[cython.double][:, ::1] = drawn.noise  # type: ignore[valid-type]
        draws: cython.const[cython.double][:, ::1] = drawn.draws  # type: ignore[valid-type]
        normals: cython.const[cython.double][:, :, ::1] = drawn.normals  # type: ignore[valid-type]
        actions: int64_t[::1] = out.actions
        mean_sum: cython.double[::1] = out.mean_sum
        reward_sum: cython.double[::1] = out.reward_sum
        scalar: cython.double[::1] = out.scalar
        m: Size = contexts.shape[0]
        n: Size = self.n
        arms: Size = contexts.shape[1]
        s: Size
        code: Size
        played: Size = m
        rounds: Size = tags.shape[0]
        late: cython.bint = mailbox is not None
        if not (
            m == rounds == noise.shape[0] == draws.shape[0] == normals.shape[0] == actions.shape[0]
            and contexts.shape[2] == self.d
            and normals.shape[1] == self.samples
            and (self.samples == 0 or normals.shape[2] == n + 2)
            and draws.shape[1] == self.plan.uniforms
            and mean_sum.shape[0] == reward_sum.shape[0] == n
            and scalar.shape[0] == 3
            and self.model.blocks == 1
            and world.own.n == n
            and world.own.d == self.d
            and world.own.arms == arms
            and noise.shape[1] >= world.own.n_noise
            and (world.own.tags == 0 or within(drawn.tags, world.own.tags))
            and refresh > 0
            and by.fits(self)
            and (not late or box.shape == (self.d, n, n if self.keeps else 0))
            and (not late or len(drawn.delays) == m)
        ):
            raise ValueError("what was drawn does not fit the engine")
        room: cython.double[::1] = np.empty(2 * n + self.d)
        answer: Head
        round_: Round
        round_.mean = cython.address(room[0])
        round_.head, round_.x = cython.address(answer), round_.mean + n
        round_.reward = round_.x + self.d
        round_.arms = arms
        round_.mean_sum, round_.reward_sum = (
            cython.address(mean_sum[0]),
            cython.address(reward_sum[0]),
        )
        round_.scalar = cython.address(scalar[0])
        round_.late = late
        self.begin(by)
        try:
            self.make_room(arms)
            by.make_room(arms)
            if late:
                box.make_room(drawn.delays, done)
            before: Before = Before(self, by, box, (mean_sum, reward_sum, scalar))
            with cython.nogil:
                for s in range(m):
                    if by is not self and (done + s) % refresh == 0:
                        by.copy_from(self)
                    round_.context, round_.tag = cython.address(contexts[s, 0, 0]), tags[s]
                    round_.noise, round_.draws = (
                        cython.address(noise[s, 0]),
                        cython.address(draws[s, 0]),
                    )
                    round_.normals = cython.address(normals[s, 0, 0])
                    before.save()
                    code = self._play_round(by, world, box, s, cython.address(round_))
                    if code != 0:
                        played = s if code > 0 else -1 - s
                        before.restore()
                        break
                    actions[s] = round_.head.arm
            error = world.failure()
            if error is not None:
                raise error
            by.check_callbacks()
            self.check_callbacks()
        finally:
            self.end(by)
        return played

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _play_round(
        self,
        by: Arms,
        world: ArmWorld,
        mailbox: ArmMailbox,
        s: Size,
        now: cython.pointer[Round],
    ) -> Size:
        """One round: decide, draw the reward, send it, learn what has arrived. 1: the direction is
        not finite or the world failed; -1: the state cannot decide or rejects an answer.
        """
        i: Size
        best: Size
        slot: Size = 0
        clicked: Size = 0
        n: Size = self.n
        d: Size = self.d
        if now.late:
            slot = mailbox.take_slot()
            now.head, now.x = mailbox.head + slot, mailbox.x + slot * d
            now.reward = mailbox.rewards + slot * n
        head: cython.pointer[Head] = now.head
        if not by.direction(now.normals, by.g):
            if now.late:
                mailbox.give_back(slot)
            return 1
        if not by._choose(now.context, now.arms, False, cython.NULL, now.draws, head, False):
            if now.late:
                mailbox.give_back(slot)
            return -1
        memcpy(now.x, now.context + head.arm * d, 8 * d)
        world.own.reward(
            cython.address(world.own),
            head.arm,
            now.tag,
            now.context,
            now.noise,
            now.mean,
            now.reward,
        )
        best_score: Real = 0.0
        if self.directed and world.own.best != cython.NULL and world.error is None:
            best = world.own.best(
                cython.address(world.own), by.g, now.tag, now.context, now.arms, d, by.scores
            )
            best_score = by.scores[best]
        if world.error is not None:
            if now.late:
                mailbox.give_back(slot)
            return 1
        now.scalar[0] += best_score
        for i in range(n):
            now.scalar[1] += by.g[i] * now.mean[i]
            now.scalar[2] += by.g[i] * now.reward[i]
            now.mean_sum[i] += now.mean[i]
            now.reward_sum[i] += now.reward[i]
            if now.reward[i] != 0.0:
                clicked = 1
        head.number = -1
        head.window = -2  # simulated decisions do not count for live numbers
        head.place = -1
        if not now.late:
            return -1 if self._learn(head, now.x, by.g, now.reward, False) < 0 else 0
        if self.counts_open:
            head.place = cython.cast(int64_t, self.open[ISSUED])
            self.open_one()
            self.open_features(0, now.x, 1.0, 1.0)
            if by is not self:
                by.open_one()
                by.open_features(0, now.x, 1.0, 1.0)
        if self.keeps:
            memcpy(mailbox.g + slot * n, by.g, 8 * n)
        mailbox.send(slot, s, clicked)
        slot = mailbox.arrived(s)
        while slot >= 0:
            if (
                self._learn(
                    mailbox.head + slot,
                    mailbox.x + slot * d,
                    mailbox.g + slot * n,
                    mailbox.rewards + slot * n,
                    self.counts_open,
                )
                < 0
            ):
                return -1
            slot = mailbox.arrived(s)
        return 0
