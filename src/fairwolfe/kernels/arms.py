# cython: language_level=3, infer_types=True
"""Decide for arms, learn from their rewards, and play simulated worlds: Algorithm 2 over rows."""

from __future__ import annotations

from typing import Any

import cython
import numpy as np

from fairwolfe.core.rows import HEAD, ArmRows
from fairwolfe.errors import InvalidInput

FLOAT = np.dtype(np.float64)


@cython.cclass
class ArmMailbox(Mailbox):
    """Stages of decisions with their rewards: d features, n rewards, n_directions numbers of
    directions.
    """

    rows: Any
    earned: Any
    stages: Any

    def __init__(self, d: int, n: int, n_directions: int, stages: int = 1) -> None:
        self.shape = (d, n, n_directions)
        self.rows, self.earned, self.stages = None, None, None
        Mailbox.__init__(self, stages)

    def grow(self, capacity: int) -> None:
        d, n, n_directions = self.shape
        rows, earned = ArmRows.empty(capacity, d, n_directions), np.empty((capacity, n))
        stages = np.zeros(capacity, np.int64)
        if self.rows is not None:
            old = len(self.earned)
            kept = (*self.rows, self.earned, self.stages)
            for new, column in zip((*rows, earned, stages), kept, strict=True):
                new[:old] = column
        stage: OutIntVector = stages
        head: Head[::1] = rows.head
        x: cython.p_double = pointer(rows.x, (capacity, d))
        g: cython.p_double = pointer(rows.g, (capacity, n_directions))
        rewards: cython.p_double = pointer(earned, (capacity, n))
        # No interrupt from here on: arrays and pointers change together.
        self.rows, self.earned, self.stages = rows, earned, stages
        self.stage = cython.address(stage[0])
        self.head, self.x, self.g, self.rewards = cython.address(head[0]), x, g, rewards


@cython.cclass
class ArmsEngine(Engine):
    """A state of a policy for arms. d features; D = d in a shared model, n d in an extended one.

    Row by row: g = grad f_t(z); the arm that the rule chooses for <g, r>; when its reward comes,
    the regression learns it and z averages it.
    """

    def __init__(self, plan: Any, state: Any) -> None:
        Engine.__init__(self, plan, state)
        model: cython.pointer[Linear] = cython.address(self.model)
        if state.theta.ndim != 3 or plan.coordinates is not None:
            raise ValueError(f"theta {state.theta.shape}, coordinates {plan.coordinates}")
        model.blocks, model.rewards, model.d = state.theta.shape
        model.first, model.rows = 0, model.rewards
        self.own_rule = plan.own_rule
        self.ascent, self.steps, self.rate = plan.ascent
        self.extended, self.keeps_direction = plan.extended, plan.keeps_direction
        self._check_model()
        self.certifies, self.limit, self.uniforms = plan.certifies, plan.limit, plan.uniforms
        self.attach("gram", cython.address(model.gram), state.gram.shape)
        self.attach("inverse", cython.address(model.inverse), state.inverse.shape)
        self.attach("theta", cython.address(model.theta), state.theta.shape)
        self.attach("moment", cython.address(model.moment), state.moment.shape)
        self.attach("learnt", cython.address(model.counters), (self.stages, 5))
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
        if self.ascent is None:
            self.choose = choose_by_name(plan.rule)
        elif self.directed or self.ascent.n != self.n:
            raise ValueError(f"an ascent over {self.ascent.n} of {self.n} rewards")
        else:
            self.called = self.ascent
        self.certify = certify_by_name(plan.certificate)
        self.bounds, self.n_bounds = (
            pointer(plan.bound_params, plan.bound_params.shape),
            plan.bound_params.size,
        )
        self.query.params = pointer(plan.rule_params, plan.rule_params.shape)
        self.query.n, self.query.d = self.n, self.d
        self.query.stages, self.query.starts = self.stages, self.starts
        self.spans = plan.high - plan.low
        self.query.spans = pointer(self.spans, (self.n,))
        self.theta, self.n_linear = model.theta, (self.n if self.blocks > 0 else 0)
        if self.blocks > 0 and self.blocks * self.n * self.d != state.theta.size:
            raise ValueError(f"theta {state.theta.shape} for {self.n} rewards of {self.d} features")
        self.make_room(8)

    def __dealloc__(self) -> None:
        free(self.room)

    def check_callbacks(self) -> cython.int:
        Engine.check_callbacks(self)
        if self.own_rule is not None:
            error = self.own_rule.failure()
            if error is not None:
                raise error
        return 0

    def _check_model(self) -> None:
        """The sizes of what the regression reads and writes; only `pointer` looks at them again."""
        state, n, d = self.state, self.n, self.d
        blocks, rewards, wide = state.theta.shape
        squares = (self.stages, blocks, wide, wide)
        if self.plan.learn == "online_gradient":
            squares, moments = (self.stages, blocks, 0, 0), (blocks, rewards, 1)
        else:
            moments = (blocks, rewards, wide)
        if not (
            state.gram.shape == state.inverse.shape == squares
            and state.moment.shape == moments
            and (blocks, rewards, wide) == ((1, 1, n * d) if self.extended else (blocks, n, d))
            and (self.stages == 1 or not (self.extended or self.own_rule or self.ascent))
            and blocks > 0
        ):
            raise ValueError(
                f"gram {state.gram.shape}, inverse {state.inverse.shape}, theta "
                f"{state.theta.shape}, moment {state.moment.shape}: {n} rewards, {d} features"
            )

    def make_room(self, arms: Size) -> cython.int:
        """Scratch for contexts of up to so many arms."""
        if arms <= self.arms:
            return 0
        arms = max(arms, 2 * self.arms)
        model = self.model
        n, wide = padded(self.n), padded(model.d + 2)
        work = linear_work(model.d, model.rewards, arms)
        ascending: Size = 0 if self.ascent is None else ascent_room(arms, self.n, self.d)
        gathered: Size = 0
        if model.blocks > 1:
            gathered = arms * model.d * (self.stages * model.d + model.rewards)
        total = n + wide + padded(arms) + work + gathered + ascending + 24
        room = cython.cast(cython.p_double, calloc(total, 8))
        if room == cython.NULL:
            raise MemoryError
        free(self.room)
        self.room, self.arms = room, arms
        self.g = aligned(room)
        self.wide = self.g + n
        self.query.g, self.query.scores = self.g, self.wide + wide
        self.model.work = aligned(self.query.scores + padded(arms))
        self.ascending = self.model.work + work + gathered
        self.chosen = self.model
        if gathered > 0:
            self.chosen.theta = self.model.work + work
            if model.inverse != cython.NULL:
                self.chosen.inverse = self.chosen.theta + arms * model.d * model.rewards
        return 0

    def _gather_blocks(
        self, places: cython.pointer[cython.const[int64_t]], arms: Size
    ) -> cython.void:
        """Copy the blocks of the arms that may be chosen into `chosen`. places (arms,)."""
        to, source = cython.address(self.chosen), cython.address(self.model)
        size, wide = to.d * to.d, to.d * to.rewards
        to.blocks = arms
        for a in range(arms):
            memcpy(to.theta + a * wide, source.theta + places[a] * wide, 8 * wide)
            if to.inverse != cython.NULL:
                for s in range(self.stages):
                    inverse = source.inverse + (s * source.blocks + places[a]) * size
                    memcpy(to.inverse + (s * arms + a) * size, inverse, 8 * size)

    def _choose(
        self,
        places: cython.pointer[cython.const[int64_t]],
        head: cython.pointer[Head],
        certifies: cython.bint,
    ) -> cython.bint:
        """The arm for `query`, its probability and score; with terms of a certificate if
        `certifies`. places (arms,): blocks of the arms that may be chosen, or NULL.
        """
        q = cython.address(self.query)
        q.model = cython.address(self.model)
        if q.per_arm and places != cython.NULL:
            self._gather_blocks(places, q.arms)
            q.model = cython.address(self.chosen)
        if self.ascent is None:
            arm = self.choose(q)
        else:
            ascend(
                self.ascent,
                q.model.theta,
                q.features,
                q.per_arm,
                self.steps,
                self.rate,
                q.scores,
                self.ascending,
                q.arms,
                q.n,
                q.d,
            )
            if self.ascent.has_failed():
                return False
            arm = argmax(q.scores, q.arms)
            q.probability = 1.0
        if arm < 0:
            return False
        head.arm, head.score, head.probability = arm, q.scores[arm], q.probability
        head.block = 0
        if q.per_arm:
            head.block = arm if places == cython.NULL else places[arm]
        head.window = -1
        head.best, head.missed, head.spare, head.untried = 0.0, 0.0, 0.0, 0.0
        if certifies:
            terms = cython.address(head.best)
            self.certify(q, self.slope, arm, self.bounds, self.n_bounds, terms)
            if isfinite(head.best + head.missed + head.spare + head.untried):
                head.window = cython.cast(int64_t, self.window.serial)
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
            blocks: IntMatrix = places
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
            and row.n_g == (self.n if self.keeps_direction else 0)
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
        batch = cython.declare(Batch)
        batch.rows, batch.number, batch.every = row, number, every
        batch.advance, batch.propose = advance and self.directed, propose
        batch.contexts, batch.places = cython.cast(Doubles, features.data), where
        batch.draws = cython.cast(Doubles, drawn.data)
        batch.normals = cython.cast(Doubles, noise.data)
        self.begin(self)
        try:
            self.make_room(arms)
            self.query.arms, self.query.per_arm = arms, per_arm
            with cython.nogil:
                done = self._decide(cython.address(batch))
            self.check_callbacks()
        finally:
            self.end(self)
        return done

    def _decide(self, batch: cython.pointer[Batch]) -> Size:
        """See `decide`."""
        n, d, m, q = self.n, self.d, batch.rows.rows, cython.address(self.query)
        done = m
        where: cython.pointer[cython.const[int64_t]] = cython.NULL
        issued = cython.cast(int64_t, self.open.issued)
        certifies: cython.bint = self.certifies and self.window.planned > FIRST_WINDOW
        q.features = batch.contexts
        self.save_open()
        for i in range(m):
            head, x = batch.rows.head + i, batch.rows.x + i * d
            q.draws = batch.draws + i * self.uniforms
            if batch.places != cython.NULL:
                where = batch.places + i * q.arms
            if i == 0 or ((batch.advance or self.samples > 0) and i % batch.every == 0):
                if not self.direction(batch.normals + i * self.samples * (n + 2), self.g):
                    done = i
                    break
            if not self._choose(where, head, certifies):
                done = -1 - i
                break
            head.number = batch.number + i
            head.t = cython.cast(int64_t, self.t[0])
            head.size = n
            head.place = issued + i if self.counts_open else -1
            memcpy(x, q.features if q.per_arm else q.features + head.arm * d, 8 * d)
            theta = self.model.theta + head.block * n * d
            head.value = 0.0
            for j in range(d):
                along = 0.0
                for r in range(n):
                    along += self.g[r] * theta[r * d + j]
                head.value += along * x[j]
            if self.keeps_direction:
                memcpy(batch.rows.g + i * n, self.g, 8 * n)
            if batch.advance:
                self._open(head, x)
            q.features += d if q.per_arm else q.arms * d
        if done < m or batch.propose or not (batch.advance and self.counts_open):
            self.restore_open()
        if done == m and self.counts_open and not batch.advance and not batch.propose:
            for i in range(m):
                self._open(batch.rows.head + i, batch.rows.x + i * d)
        return done

    def _open(self, head: cython.pointer[Head], x: Doubles) -> cython.void:
        """Count a decision as open. x (d,)."""
        self.open_one()
        for s in range(self.stages):
            self.open_features(s, head.block, x, 1.0, 1.0)

    def _close(self, stage: Size, head: cython.pointer[Head], x: Doubles) -> cython.void:
        """Count a decision as open in a stage no longer. x (d,)."""
        weight = self.age_weight(head.place)
        self.open_features(stage, head.block, x, -1.0, weight)
        self.close_one(stage, 0, 0, weight)

    def open_rows(self, rows: Any, force: cython.bint = False) -> None:
        """Count proposed decisions as open, in their order; force: whether or not open
        decisions count.
        """
        row: ArmRow = self._given(rows)
        self.begin(self)
        if self.counts_open or force:
            for i in range(row.rows):
                self._open(row.head + i, row.x + i * self.d)
        self.end(self)

    def withdraw(self, rows: Any, stages: int64_t = -1) -> None:
        """Decisions that get no answer in some stages are not open in these any more; stages: as
        bits, -1 for all.
        """
        row: ArmRow = self._given(rows)
        self.begin(self)
        for i in range(row.rows):
            for s in range(self.stages):
                if (stages >> s) & 1 and self.is_open(s, row.head + i):
                    self._close(s, row.head + i, row.x + i * self.d)
        self.end(self)

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

    def _given(self, rows: Any) -> ArmRow:
        """The first of rows that may come from outside: sizes and blocks."""
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

    def learn(self, rows: Any, rewards: Any, start: Size = 0, stage: Size = 0) -> Size:
        """Learn the rewards (rows, n) of a stage of decisions from `start` on, in their order;
        NaN are rewards of other stages that are not known.

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
            and 0 <= stage < self.stages
        ):
            raise InvalidInput(
                f"{m} decisions with directions of {row.n_g} coordinates and rewards "
                f"({earned.n}, {earned.a})"
            )
        code: Size = 2 * m
        g: Doubles = cython.NULL
        self.begin(self)
        try:
            with cython.nogil:
                for i in range(start, m):
                    if row.n_g > 0:
                        g = row.g + i * self.n
                    x = row.x + i * self.d
                    due = self._learn(stage, row.head + i, x, g, reward + i * self.n, True)
                    if due != 0:
                        code = 2 * i + 3 if due > 0 else -1 - i
                        break
            self.check_callbacks()
        finally:
            self.end(self)
        return code

    def _learn(
        self,
        stage: Size,
        head: cython.pointer[Head],
        x: Doubles,
        g: Doubles,
        reward: Doubles,
        opens: cython.bint,
    ) -> Size:
        """One answer: the regression, open decisions, z and live numbers, all or none of them.

        1 where a certificate is due, -1 where the regression rejects it or a function of the user
        failed. opens: whether estimates of open decisions will be needed. Live numbers are of
        decisions all of whose rewards are known.
        """
        if not self.prepare_prices(stage, reward):
            return -1
        if not self._regress(stage, head.block, x, g, reward):
            return -1
        if opens and self.directed:
            if self.is_open(stage, head):
                self._close(stage, head, x)
            self.answer_features(stage, head.block, x, reward)
        self.average(stage, reward, reward, 0, 0)
        if self.keeps_direction and g != cython.NULL:  # another smoothing may have decided
            memcpy(self.running, g, 8 * self.n)
        if self.stages > 1 and self.known(reward) + 1 != cython.cast(int64_t, 1) << self.stages:
            return 0
        return self.count_live(head, cython.address(head.best), reward)

    def _part(self, stage: Size) -> Linear:
        """The regression of a stage."""
        part = cython.declare(Linear)
        part = self.model
        part.first = self.starts[stage]
        part.rewards = self.starts[stage + 1] - part.first
        part.counters += stage * N_COUNTERS
        if part.gram != cython.NULL:
            part.gram += stage * part.blocks * part.d * part.d
            part.inverse += stage * part.blocks * part.d * part.d
        return part

    def recompute(self) -> None:
        """Recompute the inverse and the estimates from the design; the drift, and the status where
        that failed, are in the counters of the stage.
        """
        part = cython.declare(Linear)
        self.begin(self)
        for s in range(self.stages):
            part = self._part(s)
            refresh(cython.address(part))
        self.end(self)

    def _regress(
        self, stage: Size, block: Size, x: Doubles, g: Doubles, reward: Doubles
    ) -> cython.bint:
        """The regression learns r from x, or <g, r> from g (x) x in an extended model."""
        part = cython.declare(Linear)
        square = 0.0
        size = self.model.d
        if self.stages > 1:
            part = self._part(stage)
            return part.learn(cython.address(part), block, x, reward)
        if not self.extended:
            return self.model.learn(cython.address(self.model), block, x, reward)
        extended_lesson(g, x, reward, self.wide, self.wide + size, self.n, self.d)
        for j in range(size):
            square += self.wide[j] * self.wide[j]
        if not square <= self.limit:
            return False
        return self.model.learn(cython.address(self.model), 0, self.wide, self.wide + size)

    def study(self, rows: Any, rewards: Matrix) -> Size:
        """The regression alone learns from rewards (rows, n) of decisions that others made; how
        many rows it learnt, fewer where it rejects the next. Stages of which a reward is NaN are
        left out.
        """
        row: ArmRow = self._given(rows)
        done = row.rows
        if rewards.shape[0] != row.rows or rewards.shape[1] != self.n:
            raise InvalidInput(f"rewards ({rewards.shape[0]}, {rewards.shape[1]})")
        self.begin(self)
        memset(self.spare, 0, 8 * self.n)  # as the direction
        for i in range(row.rows):
            x, reward = row.x + i * self.d, cython.address(rewards[i, 0])
            known = self.known(reward)
            for s in range(self.stages):
                if not (known >> s) & 1:
                    continue
                if not self._regress(s, row.head[i].block, x, self.spare, reward):
                    done = i
                    break
            if done == i:
                break
        self.end(self)
        return done

    # --- play ---------------------------------------------------------------------------------

    def play(
        self,
        decider: Any,
        world: CompiledArmWorld,
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
        normals, and delays (rounds, 2 stages) where there is a mailbox, None where answers come at
        once; out: actions (rounds,), sums of means and of rewards (n,), scalar (3,): sums of
        max_a <g, mu_a>, <g, mu> and <g, r>.
        """
        by: ArmsEngine = self if decider is None else decider
        box: ArmMailbox = ArmMailbox(1, 1, 0) if mailbox is None else mailbox
        contexts: Tensor = drawn.contexts
        tags: IntVector = drawn.tags
        noise: Matrix = drawn.noise
        draws: Matrix = drawn.draws
        normals: Tensor = drawn.normals
        actions: OutIntVector = out.actions
        mean_sum: OutVector = out.mean_sum
        reward_sum: OutVector = out.reward_sum
        scalar: OutVector = out.scalar
        m, arms, n = contexts.shape[0], contexts.shape[1], self.n
        played, rounds = m, tags.shape[0]
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
            and (not late or box.shape == (self.d, n, n if self.keeps_direction else 0))
            and (not late or (drawn.delays.shape == (m, box.laws) and box.laws == 2 * self.stages))
        ):
            raise ValueError("what was drawn does not fit the engine")
        room: OutVector = np.empty(2 * n + self.d)
        answer = cython.declare(Head)
        now = cython.declare(Round)
        now.draw.mean, now.head = cython.address(room[0]), cython.address(answer)
        now.x = now.draw.mean + n
        now.draw.reward = now.x + self.d
        now.mean_sum, now.reward_sum = cython.address(mean_sum[0]), cython.address(reward_sum[0])
        now.scalar, now.late = cython.address(scalar[0]), late
        self.begin(by)
        try:
            self.make_room(arms)
            by.make_room(arms)
            by.query.arms, by.query.per_arm, now.draw.arms = arms, False, arms
            now.draw.g, now.draw.scores = by.query.g, by.query.scores
            if late:
                box.make_room(drawn.delays, done)
            undo: Undo = Undo(self, by, box, (mean_sum, reward_sum, scalar))
            with cython.nogil:
                for s in range(m):
                    if by is not self and (done + s) % refresh == 0:
                        by.copy_from(self)
                    now.draw.features = cython.address(contexts[s, 0, 0])
                    by.query.features = now.draw.features
                    by.query.draws = cython.address(draws[s, 0])
                    now.draw.noise, now.draw.tag = cython.address(noise[s, 0]), tags[s]
                    now.normals = cython.address(normals[s, 0, 0])
                    undo.save()
                    code = self._play_round(by, world, box, s, cython.address(now))
                    if code != 0:
                        played = s if code > 0 else -1 - s
                        undo.rollback()
                        break
                    actions[s] = now.head.arm
            error = world.failure()
            if error is not None:
                raise error
            by.check_callbacks()
            self.check_callbacks()
        finally:
            self.end(by)
        return played

    def _play_round(
        self,
        by: ArmsEngine,
        world: CompiledArmWorld,
        mailbox: ArmMailbox,
        s: Size,
        now: cython.pointer[Round],
    ) -> Size:
        """One round: decide, draw the reward, send it, learn what has arrived. 1: the direction is
        not finite or the world failed; -1: the state cannot decide or rejects an answer.
        """
        n, d = self.n, self.d
        slot: Size = 0
        if now.late:
            slot = mailbox.take_slot()
            now.head, now.x = mailbox.head + slot, mailbox.x + slot * d
            now.draw.reward = mailbox.rewards + slot * n
        head, mean, reward = now.head, now.draw.mean, now.draw.reward
        code = self._draw_round(by, world, now)
        if code != 0:
            if now.late:
                mailbox.give_back(slot)
            return code
        for i in range(n):
            now.scalar[1] += by.g[i] * mean[i]
            now.scalar[2] += by.g[i] * reward[i]
            now.mean_sum[i] += mean[i]
            now.reward_sum[i] += reward[i]
        head.number = -1
        head.window = -2  # simulated decisions do not count for live numbers
        head.place = -1
        if not now.late:
            return self._learn_at_once(head, now.x, by.g, reward)
        if self.counts_open:
            head.place = cython.cast(int64_t, self.open[0].issued)
            self._open(head, now.x)
            if by is not self:
                by._open(head, now.x)
        if self.keeps_direction:
            memcpy(mailbox.g + slot * n, by.g, 8 * n)
        self._send(mailbox, slot, s)
        slot = mailbox.arrived(s)
        while slot >= 0:
            head, stage = mailbox.head + slot, mailbox.stage[slot]
            x, g, reward = mailbox.x + slot * d, mailbox.g + slot * n, mailbox.rewards + slot * n
            if self._learn(stage, head, x, g, reward, self.counts_open) < 0:
                return -1
            slot = mailbox.arrived(s)
        return 0

    def _learn_at_once(
        self, head: cython.pointer[Head], x: Doubles, g: Doubles, reward: Doubles
    ) -> Size:
        """Learn all stages of a simulated decision, in order; the codes of `_play_round`."""
        if self.stages == 1:
            return -1 if self._learn(0, head, x, g, reward, False) < 0 else 0
        for i in range(self.n):
            self.spare[i] = NAN
        for stage in range(self.stages):
            for i in range(self.starts[stage], self.starts[stage + 1]):
                self.spare[i] = reward[i]
            if self._learn(stage, head, x, g, self.spare, False) < 0:
                return -1
        return 0

    def _law(self, stage: Size, reward: Doubles) -> Size:
        """The place of the delay of a stage among those of a round. reward (n,)."""
        clicked: Size = 0
        for i in range(self.starts[stage], self.starts[stage + 1]):
            if reward[i] != 0.0:
                clicked = 1
        return 2 * stage + clicked

    def _send(self, mailbox: ArmMailbox, slot: Size, s: Size) -> cython.void:
        """Send the stages of the decision in a slot on their way, each in a slot of its own with
        the rewards that are known when it arrives, NaN for the others.
        """
        n, d, laws = self.n, self.d, 2 * self.stages
        mailbox.stage[slot] = 0
        if self.stages == 1:
            law = self._law(0, mailbox.rewards + slot * n)
            mailbox.send(slot, s, mailbox.delays[laws * s + law])
            return
        memcpy(self.spare, mailbox.rewards + slot * n, 8 * n)
        for stage in range(self.stages):
            late = mailbox.delays[laws * s + self._law(stage, self.spare)]
            to = slot if stage == 0 else mailbox.take_slot()
            if to != slot:
                mailbox.head[to] = mailbox.head[slot]
                memcpy(mailbox.x + to * d, mailbox.x + slot * d, 8 * d)
                if self.keeps_direction:
                    memcpy(mailbox.g + to * n, mailbox.g + slot * n, 8 * n)
            mailbox.stage[to] = stage
            for j in range(self.stages):
                other = mailbox.delays[laws * s + self._law(j, self.spare)]
                known: cython.bint = 0 <= other < late or (other == late and j <= stage)
                for i in range(self.starts[j], self.starts[j + 1]):
                    mailbox.rewards[to * n + i] = self.spare[i] if known else NAN
            mailbox.send(to, s, late)

    def _draw_round(
        self, by: ArmsEngine, world: CompiledArmWorld, now: cython.pointer[Round]
    ) -> Size:
        """Decide and draw the reward; the codes of `_play_round`."""
        own, at = cython.address(world.own), cython.address(now.draw)
        if not by.direction(now.normals, by.g):
            return 1
        if not by._choose(cython.NULL, now.head, False):
            return -1
        memcpy(now.x, at.features + now.head.arm * self.d, 8 * self.d)
        own.reward(own, at, now.head.arm)
        best_score = 0.0
        if self.directed and own.best != cython.NULL and world.error is None:
            best_score = at.scores[own.best(own, at)]
        if world.error is not None:
            return 1
        now.scalar[0] += best_score
        return 0
