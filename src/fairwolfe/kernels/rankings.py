# cython: language_level=3, infer_types=True
"""Decide rankings, learn from their feedback, and play simulated worlds: Algorithm 1 over rows.

m items of q features, of which f sees those that are not retired; users of p features; k slots;
R user-side rewards; n = m + R coordinates of a reward vector, the exposures of the items first.
"""

from __future__ import annotations

from typing import Any

import cython
import numpy as np

from fairwolfe.core.rows import HEAD
from fairwolfe.errors import InvalidInput

FLOAT, INT = np.dtype(np.float64), np.dtype(np.int64)
_EXPOSURES = ("observed", "shown", "until_last_click")


@cython.cclass
class RankingMailbox(Mailbox):
    """Stages of rankings with their feedback: k slots, R rewards, n_directions numbers of
    directions.
    """

    arrays_: tuple[Any, ...]
    shape: tuple[int, int, int]
    head: cython.pointer[Head]
    items: cython.pointer[int64_t]
    tags: cython.pointer[int64_t]
    stage: cython.pointer[int64_t]
    exposure: cython.p_double
    seen: cython.p_double
    earned: cython.p_double
    g: cython.p_double
    users: Size  # of the world whose tags the slots hold

    def __init__(self, k: int, n_rewards: int, n_directions: int, stages: int = 1) -> None:
        self.shape = (k, n_rewards, n_directions)
        self.arrays_ = ()
        Mailbox.__init__(self, stages)

    def grow(self, capacity: int) -> None:
        k, n_rewards, n_directions = self.shape
        columns = (
            np.zeros(capacity, HEAD),
            np.zeros((capacity, k), np.int64),
            np.zeros(capacity, np.int64),
            np.zeros((capacity, k)),
            np.zeros((capacity, k)),
            np.zeros((capacity, k * n_rewards)),
            np.zeros((capacity, n_directions)),
            np.zeros(capacity, np.int64),
        )
        for new, old in zip(columns, self.arrays_, strict=False):
            new[: len(old)] = old
        head: Head[::1] = columns[0]
        items: OutIntMatrix = columns[1]
        tags: OutIntVector = columns[2]
        stage: OutIntVector = columns[7]
        exposure: cython.p_double = pointer(columns[3], columns[3].shape)
        seen: cython.p_double = pointer(columns[4], columns[4].shape)
        earned: cython.p_double = pointer(columns[5], columns[5].shape)
        g: cython.p_double = pointer(columns[6], columns[6].shape)
        # No interrupt from here on: arrays and pointers change together.
        self.arrays_ = columns
        self.head, self.tags = cython.address(head[0]), cython.address(tags[0])
        self.items, self.stage = cython.address(items[0, 0]), cython.address(stage[0])
        self.exposure, self.seen, self.earned, self.g = exposure, seen, earned, g


@cython.cclass
class RankingsEngine(Engine):
    """A state of a policy for rankings.

    Row by row: g = grad f_t(z); the items of largest score for <g, r>; when the feedback comes, the
    regression learns from the items that were exposed, and z averages the reward vector.
    """

    ranker: Ranker
    products: cython.pointer[Products]  # (stages,)
    k: Size
    p: Size
    q: Size
    m: Size
    n_rewards: Size
    n_left: Size  # items not retired
    exposure: int64_t
    owed: Real
    limit: Real
    by_chance: cython.bint
    keeps: cython.bint
    certifies: cython.bint
    kept: cython.bint  # whether features of the items are kept
    uniforms: Size
    exposed: cython.p_double
    shown: cython.p_double
    slots: cython.p_double
    features: cython.p_double  # (q, m)
    stride: Size  # from one row of these to the next
    left_stride: Size
    position_weights: cython.p_double  # (k,), or NULL
    left: cython.pointer[cython.const[int64_t]]  # (n_left,): ids; NULL: all
    arrays: object
    zeros: Scratch  # of reward and rho
    room: Scratch  # of what follows these
    g: cython.p_double  # (n_seen,)
    reward: cython.p_double  # (n,): 0 between two answers
    rho: cython.p_double  # (n,)
    left_items: cython.p_double  # (q, n_left)
    picked_items: cython.p_double  # (q, n_left)
    picked_direction: cython.p_double  # (n_left + R,)
    picked_slope: cython.p_double
    picked_exposed: cython.p_double
    picked_shown: cython.p_double
    chances: cython.p_double  # (k,)
    rows: cython.p_double  # (k, q)
    learnt: cython.p_double  # (k, q)
    targets: cython.p_double  # (k, R)
    exposures: cython.p_double  # (k,)
    x: cython.p_double  # (d,)
    terms: cython.p_double  # (4,)
    places: cython.pointer[int64_t]  # (k,)
    picked_ids: cython.pointer[int64_t]  # (n_left,)

    def __init__(self, plan: Any, state: Any, before: Any = None) -> None:
        Engine.__init__(self, plan, state, before)
        ranker: cython.pointer[Ranker] = cython.address(self.ranker)
        p, q = plan.sizes
        m, (two, k), n_rewards = state.exposed.size, state.slots.shape, state.theta.shape[1]
        d: Size = p * q
        self.p, self.q, self.k, self.m, self.n_rewards = p, q, k, m, n_rewards
        self.n_left = self.n_seen - n_rewards
        fits = self.n == m + n_rewards and self.blocks == 1 and self.d == d and two == 2
        fits = fits and self.starts[1] > m  # the first stage has a reward besides the exposures
        if not fits or not 0 < k <= self.n_left or not p > 0 or not q > 0 or not n_rewards > 0:
            raise ValueError(
                f"{m} items, {k} slots, {p} x {q} features, {n_rewards} rewards, phi "
                f"{state.phi.shape}, {self.n_seen} of {self.n} coordinates seen"
            )
        if self.coordinates != cython.NULL and (
            (np.diff(plan.coordinates) < 1).any()
            or plan.coordinates[self.n_left] != m
            or plan.coordinates.max() != self.n - 1
        ):
            raise ValueError(f"coordinates {plan.coordinates} of {m} items and {n_rewards} rewards")
        self.left = self.coordinates
        self.exposure, self.by_chance = _EXPOSURES.index(plan.exposure), plan.by_chance
        self.owed, self.limit, self.uniforms = plan.owed, plan.limit, plan.uniforms
        self.keeps, self.certifies = plan.keeps_direction, plan.certifies
        if plan.uniforms != (1 + self.k // 2 if plan.rule_params[2] > 0.0 else 0):
            raise ValueError(f"{plan.uniforms} draws for {self.k} slots")
        self._make_products(p, q, k, n_rewards)
        self.attach("exposed", cython.address(self.exposed), (m,))
        self.attach("shown", cython.address(self.shown), (m,))
        self.attach("slots", cython.address(self.slots), (2, k))
        self.kept = state.features.shape[1] > 0
        kept_items: Size = m if self.kept else 0
        self.stride = self.attach_rows("features", cython.address(self.features), q, kept_items)
        wanted = 3 + 2 * n_rewards
        if plan.rule_params.size < wanted + (2 * n_rewards if plan.rule_params[0] < 0.0 else 0):
            raise ValueError(f"{plan.rule_params.size} numbers of the rule")
        if plan.bound_params.size not in (0, wanted):
            raise ValueError(f"{plan.bound_params.size} numbers of the upper bounds, not {wanted}")
        ranker.products, ranker.stages, ranker.rewards = self.products, self.stages, n_rewards
        ranker.score, ranker.slots, ranker.most = score_by_name(plan.rule), k, self.n_left
        ranker.params = pointer(plan.rule_params, plan.rule_params.shape)
        ranker.n_params, ranker.n_bounds = plan.rule_params.size, plan.bound_params.size
        ranker.bounds = pointer(plan.bound_params, plan.bound_params.shape)
        ranker.ranges = pointer(plan.slot_ranges, (2, n_rewards))
        self.position_weights = cython.NULL
        if plan.position_weights is not None:
            self.position_weights = pointer(plan.position_weights, (k,))
        self._make_room(before)
        self.left_items, self.left_stride = self.features, self.stride
        if self.kept and self.left != cython.NULL:
            stride: Size = 0
            self.left_items = rows_pointer(plan.left, q, self.n_left, cython.address(stride))
            self.left_stride = stride

    def __dealloc__(self) -> None:
        free(self.products)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _make_products(self, p: Size, q: Size, k: Size, n_rewards: Size) -> cython.int:
        """The regressions: one for each stage, with a design of its own."""
        part: cython.pointer[Products]
        whole = cython.declare(Linear)
        d: Size = p * q
        squares = (self.stages, 1, d, d)
        self.attach("gram", cython.address(whole.gram), squares)
        self.attach("inverse", cython.address(whole.inverse), squares)
        self.attach("theta", cython.address(whole.theta), (1, n_rewards, d))
        self.attach("moment", cython.address(whole.moment), (1, n_rewards, d))
        self.attach("learnt", cython.address(whole.counters), (self.stages, N_COUNTERS))
        whole.blocks, whole.d, whole.first = 1, d, 0
        whole.params, whole.n_params = pointer(self.plan.learn_params, (1,)), 1
        whole.learn, whole.work = cython.NULL, cython.NULL
        self.theta, self.n_linear = whole.theta, n_rewards
        self.products = cython.cast(
            cython.pointer[Products], calloc(self.stages, cython.sizeof(Products))
        )
        if self.products == cython.NULL:
            raise MemoryError
        for s in range(self.stages):
            part = self.products + s
            part.p, part.q, part.most, part.linear = p, q, k, whole
            part.linear.rewards = self._end(s) - self._begin(s)
            part.linear.rows = part.linear.rewards
            part.linear.gram += s * d * d
            part.linear.inverse += s * d * d
            part.linear.theta += self._begin(s) * d
            part.linear.moment += self._begin(s) * d
            part.linear.counters += s * N_COUNTERS
        return 0

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _begin(self, stage: Size) -> Size:
        """The first user-side reward of a stage: the first stage begins with the exposures."""
        return max(self.starts[stage] - self.m, 0)

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _end(self, stage: Size) -> Size:
        """The user-side reward after the last of a stage."""
        return self.starts[stage + 1] - self.m

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _make_room(self, before: RankingsEngine | None) -> cython.int:
        """Scratch, each array from the start of a cache line on."""
        c: Size = self.n_left
        k: Size = self.k
        q: Size = self.q
        size: Size = self.n_seen + q * c + 2 * (c + self.n_rewards) + 3 * c
        size += k * (4 + 2 * q + self.n_rewards) + self.d + 4 + 8 * 19
        ranker: cython.pointer[Ranker] = cython.address(self.ranker)
        self.zeros = enough(None if before is None else before.zeros, 2 * self.n)
        self.reward = self.zeros.at
        self.rho = self.reward + self.zeros.size // 2
        self.room = enough(None if before is None else before.room, size + ranker_room(ranker))
        self.g = aligned(self.room.at)
        self.picked_items = aligned(self.g + self.n_seen)
        self.picked_direction = aligned(self.picked_items + q * c)
        self.picked_slope = aligned(self.picked_direction + c + self.n_rewards)
        self.picked_exposed = aligned(self.picked_slope + c + self.n_rewards)
        self.picked_shown = aligned(self.picked_exposed + c)
        self.picked_ids = cython.cast(cython.pointer[int64_t], aligned(self.picked_shown + c))
        self.chances = aligned(cython.cast(cython.p_double, self.picked_ids + c))
        self.rows = aligned(self.chances + k)
        self.learnt = aligned(self.rows + k * q)
        self.targets = aligned(self.learnt + k * q)
        self.exposures = aligned(self.targets + k * self.n_rewards)
        self.x = aligned(self.exposures + k)
        self.terms = aligned(self.x + self.d)
        self.places = cython.cast(cython.pointer[int64_t], aligned(self.terms + 4))
        ranker_scratch(ranker, cython.cast(cython.p_double, self.places + k))
        return 0

    # --- decide -------------------------------------------------------------------------------

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _pick(
        self,
        items: Doubles,
        stride: Size,
        picks: cython.pointer[cython.const[int64_t]],
        count: Size,
        certifies: cython.bint,
        out: cython.pointer[Candidates],
    ) -> cython.void:
        """The candidates of a row: those at the places `picks` (count,) among the items that are
        not retired, or all of these. items (q, n_left), rows `stride` numbers apart.
        """
        c: Size = self.n_left
        every: cython.bint = picks == cython.NULL
        out.n = c if every else count
        out.items, out.stride, out.ids = items, stride, self.left
        out.direction, out.slope = self.g, self.slope
        out.exposed, out.shown = self.exposed, self.shown
        if every and self.left == cython.NULL:
            return
        out.exposed, out.shown, out.ids = self.picked_exposed, self.picked_shown, self.picked_ids
        for i in range(out.n):
            self.picked_ids[i] = i if every else picks[i]
            if self.left != cython.NULL:
                self.picked_ids[i] = self.left[self.picked_ids[i]]
            self.picked_exposed[i] = self.exposed[self.picked_ids[i]]
            self.picked_shown[i] = self.shown[self.picked_ids[i]]
        if every:
            return
        out.items, out.stride, out.direction = self.picked_items, count, self.picked_direction
        for e in range(self.q):
            for i in range(count):
                self.picked_items[e * count + i] = items[e * stride + picks[i]]
        for i in range(count):
            self.picked_direction[i] = self.g[picks[i]]
        for r in range(self.n_rewards):
            self.picked_direction[count + r] = self.g[c + r]
        if certifies:
            out.slope = self.picked_slope
            for i in range(count):
                self.picked_slope[i] = self.slope[picks[i]]
            for r in range(self.n_rewards):
                self.picked_slope[count + r] = self.slope[c + r]

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _rank(
        self,
        row: cython.pointer[RankingRow],
        given: cython.pointer[Candidates],
        certifies: cython.bint,
    ) -> cython.bint:
        """Rank the candidates; False where the scores are not finite. The row has its user; it gets
        its items and their propensity; explanations, if it has room for these; and live numbers, if
        `certifies`.
        """
        total: Real = 0.0
        k: Size = self.k
        head: cython.pointer[Head] = row.head
        ranker: cython.pointer[Ranker] = cython.address(self.ranker)
        head.probability = rank(
            ranker,
            row.user,
            given.items,
            given.stride,
            given.n,
            given.direction,
            given.exposed,
            given.shown,
            self.slots[0],
            given.pinned,
            given.draws,
            self.places,
        )
        if not isfinite(ranker.scores[self.places[k - 1]]):
            return False
        for j in range(k):
            row.items[j] = self.places[j] if given.ids == cython.NULL else given.ids[self.places[j]]
        if row.parts != cython.NULL:
            head.value = 0.0
            head.score = 0.0
            for j in range(k):
                head.value += self.chances[j] * ranker.value[self.places[j]]
                head.score += self.chances[j] * ranker.scores[self.places[j]]
            explain(
                ranker,
                given.items,
                given.stride,
                given.n,
                given.direction,
                self.places,
                row.parts,
                row.ranks,
            )
        if certifies:
            certify_ranking(
                ranker,
                row.user,
                given.items,
                given.stride,
                given.n,
                given.slope,
                self.places,
                row.live,
            )
            for j in range(2 * k):
                total += row.live[j]
            if isfinite(total):
                head.window = cython.cast(int64_t, self.window.serial)
        return True

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _open(self, row: cython.pointer[RankingRow], features: Doubles) -> cython.void:
        """Count a ranking as open: what it is expected to earn joins the sums of the open
        decisions, exposures by slot, and the features of what is exposed. features (k, q).
        """
        self.open_one()
        expected_features(row.exposure, row.user, features, self.k, self.p, self.q, self.x)
        for j in range(self.k):
            self.open_value(row.items[j], row.exposure[j])
        for s in range(self.stages):
            self.open_features(s, 0, self.x, 1.0, 1.0)

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _close(
        self, stage: Size, row: cython.pointer[RankingRow], features: Doubles
    ) -> cython.void:
        """Count a ranking as open in a stage no longer; its expected features are in `x`."""
        weight = self.age_weight(row.head.place)
        expected_features(row.exposure, row.user, features, self.k, self.p, self.q, self.x)
        self.open_features(stage, 0, self.x, -1.0, weight)
        if stage == 0:
            for j in range(self.k):
                self.open_value(row.items[j], -weight * row.exposure[j])
            self.add_in_gaps(row.head.block, self.paused + self.n_clocks, -weight)
        self.close_one(stage, row.head.size - self.n_rewards, self.m, weight)

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _features(self, row: cython.pointer[RankingRow]) -> Doubles:
        """The features of the items of a ranking, (k, q): its own, or those that are kept."""
        if row.features != cython.NULL:
            return row.features
        features_of(self.features, self.stride, row.items, self.k, self.q, self.rows)
        return self.rows

    def decide(
        self,
        rows: Any,
        users: Any,
        draws: Any,
        normals: Any,
        number: int64_t,
        items: Any = None,
        picks: Any = None,
        starts: Any = None,
        pinned: Any = None,
        advance: cython.bint = True,
        propose: cython.bint = False,
        every: Size = 1,
    ) -> Size:
        """Rank for users (rows, p); how many rankings were made. Fewer: the direction or the scores
        of the next are not finite numbers, and nothing has changed.

        rows: `RankingRows` to fill; draws (rows, uniforms); normals (rows, samples, n_seen + 2);
        number: of the first decision; items (1 or rows, q, n_left): features of the items that are
        not retired, None where they are kept; picks: the candidates of row s are those at the
        places picks[starts[s] : starts[s + 1]] among these, ascending; pinned (rows, k): the place
        among its candidates of the item that a slot must show, or -1; advance: each ranking counts
        as open for the next; propose: none is open afterwards; every: how many rankings share a
        direction. Rankings are explained where the rows have room for it.
        """
        asked = cython.declare(Column)
        drawn = cython.declare(Column)
        noise = cython.declare(Column)
        column(users, FLOAT, 2, False, cython.address(asked))
        column(draws, FLOAT, 2, False, cython.address(drawn))
        column(normals, FLOAT, 3, False, cython.address(noise))
        m: Size = asked.n
        out: RankingRow = self._row(rows, m)
        given = cython.declare(Candidates)
        head: cython.pointer[Head] = out.head
        table: Doubles = self.left_items
        given.stride = self.left_stride
        self.ranker.longest = self.plan.longest if items is None else -1.0
        stride: Size = 0
        chosen: cython.pointer[cython.const[int64_t]] = cython.NULL
        begins: cython.pointer[cython.const[int64_t]] = cython.NULL
        pins: cython.pointer[cython.const[int64_t]] = cython.NULL
        if not (
            asked.a == self.p
            and drawn.n == noise.n == m
            and drawn.a == self.uniforms
            and noise.a == self.samples
            and (self.samples == 0 or noise.b == self.n_seen + 2)
            and every > 0
        ):
            raise ValueError(f"users {users.shape}, draws {draws.shape}, normals {normals.shape}")
        if self.keeps and out.n_g != self.n:
            raise ValueError(f"room for directions of {out.n_g} coordinates, not {self.n}")
        if (items is None) != (out.features == cython.NULL):
            raise ValueError("rows hold features where contexts bring them, and only there")
        if items is not None:
            tables: Tensor = items
            if not (
                tables.shape[0] in (1, m)
                and tables.shape[1] == self.q
                and tables.shape[2] == self.n_left
            ):
                raise ValueError(
                    f"items {items.shape} for {self.n_left} items of {self.q} features"
                )
            table = cython.address(tables[0, 0, 0])
            given.stride = self.n_left
            stride = self.q * self.n_left if tables.shape[0] > 1 else 0
        elif not self.kept:
            raise ValueError("features of the items are not kept: give items")
        if picks is not None:
            at: IntVector = picks
            ends: IntVector = starts
            self._check_picks(at, ends, m)
            chosen, begins = cython.address(at[0]), cython.address(ends[0])
        if pinned is not None:
            slots: IntMatrix = pinned
            self._check_pins(slots, starts, m)
            pins = cython.address(slots[0, 0])
        if m == 0:
            return 0
        memcpy(out.user, asked.data, 8 * m * self.p)
        for i in range(m):
            head[i].arm, head[i].block, head[i].number = -1, self.epoch, number + i
            head[i].t, head[i].size = cython.cast(int64_t, self.t[0]), self.n
            head[i].window, head[i].value, head[i].score = -1, 0.0, 0.0
            head[i].best, head[i].missed, head[i].spare, head[i].untried = 0.0, 0.0, 0.0, 0.0
        given.draws, given.pinned = cython.cast(Doubles, drawn.data), pins
        self.begin(self)
        try:
            with cython.nogil:
                done = self._decide(
                    out,
                    m,
                    cython.address(given),
                    table,
                    stride,
                    chosen,
                    begins,
                    cython.cast(Doubles, noise.data),
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
        row: RankingRow,
        m: Size,
        given: cython.pointer[Candidates],
        items: Doubles,
        stride: Size,
        picks: cython.pointer[cython.const[int64_t]],
        starts: cython.pointer[cython.const[int64_t]],
        normals: Doubles,
        advance: cython.bint,
        propose: cython.bint,
        every: Size,
    ) -> Size:
        at: Doubles
        renewed: cython.bint
        measured: cython.bint
        done: Size = m
        count: Size = 0
        own: cython.pointer[cython.const[int64_t]] = cython.NULL
        first: RankingRow = row
        columns: Size = given.stride
        features: cython.p_double = self.rows
        issued: int64_t = cython.cast(int64_t, self.open[0].issued)
        certifies: cython.bint = self.certifies and self.window.planned > FIRST_WINDOW
        moves: cython.bint = advance and self.directed
        saves: cython.bint = moves and (m > 1 or not propose)
        if saves:
            self.save_open()
        exposure_rates(self.slots, self.position_weights, self.chances, self.k)
        for i in range(m):
            renewed = i == 0 or ((moves or self.samples > 0) and i % every == 0)
            at = normals + i * self.samples * (self.n_seen + 2)
            if renewed and not self.direction(at, self.g):
                done = i
                break
            if picks != cython.NULL:
                own, count = picks + starts[i], starts[i + 1] - starts[i]
            if i == 0 or picks != cython.NULL or stride > 0:
                self._pick(items + i * stride, columns, own, count, certifies, given)
            measured = certifies and row.head.number % self.measured == 0
            if not self._rank(cython.address(row), given, measured):
                done = i
                break
            row.head.place = issued + i if self.counts_open else -1
            memcpy(row.exposure, self.chances, 8 * self.k)
            if self.keeps:
                self._keep(row.g)
            if row.features != cython.NULL:
                features = cython.cast(cython.p_double, row.features)
            if moves or row.features != cython.NULL:
                features_of(given.items, given.stride, self.places, self.k, self.q, features)
            if saves and (i < m - 1 or not propose):  # nothing comes after the last proposal
                self._open(cython.address(row), features)
            self._next(cython.address(row))
            given.draws += self.uniforms
            if given.pinned != cython.NULL:
                given.pinned += self.k
        if saves and (done < m or propose or not self.counts_open):
            self.restore_open()
        if done == m and self.counts_open and not moves and not propose:
            for _j in range(m):
                self._open(cython.address(first), self._features(cython.address(first)))
                self._next(cython.address(first))
        return done

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _keep(self, g: cython.p_double) -> cython.void:
        """The direction with 0 for what f does not see. g (n,)."""
        if self.coordinates == cython.NULL:
            memcpy(g, self.g, 8 * self.n)
            return
        memset(g, 0, 8 * self.n)
        for i in range(self.n_seen):
            g[self.coordinates[i]] = self.g[i]

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _next(self, row: cython.pointer[RankingRow]) -> cython.void:
        """The next row."""
        row.head += 1
        row.items += self.k
        row.user += self.p
        row.exposure += self.k
        if row.parts != cython.NULL:
            row.parts += 3 * self.k
            row.ranks += self.k
        row.live += 2 * self.k
        row.g += row.n_g
        if row.features != cython.NULL:
            row.features += self.k * self.q

    @cython.cfunc
    def _row(self, rows: Any, m: Size) -> RankingRow:
        """The first of m rows, whose sizes are checked here."""
        row = cython.declare(RankingRow)
        head = cython.declare(Column)
        items = cython.declare(Column)
        user = cython.declare(Column)
        exposure = cython.declare(Column)
        parts = cython.declare(Column)
        ranks = cython.declare(Column)
        live = cython.declare(Column)
        g = cython.declare(Column)
        x = cython.declare(Column)
        k: Size = self.k
        column(rows.head, HEAD, 1, True, cython.address(head))
        column(rows.items, INT, 2, True, cython.address(items))
        column(rows.user, FLOAT, 2, True, cython.address(user))
        column(rows.exposure, FLOAT, 2, True, cython.address(exposure))
        column(rows.parts, FLOAT, 3, True, cython.address(parts))
        column(rows.ranks, INT, 2, True, cython.address(ranks))
        column(rows.live, FLOAT, 3, True, cython.address(live))
        column(rows.g, FLOAT, 2, True, cython.address(g))
        column(rows.x, FLOAT, 3, True, cython.address(x))
        if not (
            head.n == items.n == user.n == exposure.n == m
            and parts.n == ranks.n == live.n == g.n == x.n == m
            and items.a == exposure.a == k
            and parts.b == ranks.a
            and (ranks.a == 0 or ranks.a == k)
            and user.a == self.p
            and parts.a == 3
            and live.a == 2
            and live.b == k
            and (g.a == 0 or self.n_rewards < g.a <= self.n)
            and (x.a == 0 or (x.a == k and x.b == self.q))
        ):
            raise InvalidInput(
                f"columns of rankings {[one.shape for one in rows]}: {m} rows of {k} slots "
                f"and {self.p} x {self.q} features are asked for"
            )
        row.head = cython.cast(cython.pointer[Head], head.data)
        row.items = cython.cast(cython.pointer[int64_t], items.data)
        row.user = cython.cast(cython.p_double, user.data)
        row.exposure = cython.cast(cython.p_double, exposure.data)
        row.live = cython.cast(cython.p_double, live.data)
        row.features, row.parts, row.ranks = cython.NULL, cython.NULL, cython.NULL
        row.g, row.n_g = self.spare, g.a
        if parts.b > 0:
            row.parts = cython.cast(cython.p_double, parts.data)
            row.ranks = cython.cast(cython.pointer[int64_t], ranks.data)
        if g.a > 0:
            row.g = cython.cast(cython.p_double, g.data)
        if x.a > 0:
            row.features = cython.cast(cython.p_double, x.data)
        return row

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _check_picks(self, picks: IntVector, starts: IntVector, m: Size) -> cython.int:
        if starts.shape[0] != m + 1 or starts[0] != 0 or starts[m] != picks.shape[0]:
            raise ValueError(f"{starts.shape[0]} starts, {picks.shape[0]} picks for {m} rankings")
        for s in range(m):
            if not self.k <= starts[s + 1] - starts[s] <= self.n_left:
                raise ValueError(f"{starts[s + 1] - starts[s]} candidates for {self.k} slots")
            for i in range(starts[s], starts[s + 1]):
                if not 0 <= picks[i] < self.n_left or (i > starts[s] and picks[i] <= picks[i - 1]):
                    raise ValueError(f"candidates of ranking {s}: {picks[i]} is out of order")
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _check_pins(self, pinned: IntMatrix, starts: Any, m: Size) -> cython.int:
        most: Size
        if pinned.shape[0] != m or pinned.shape[1] != self.k:
            raise ValueError(f"pinned ({pinned.shape[0]}, {pinned.shape[1]}) for {m} rankings")
        for s in range(m):
            most = self.n_left if starts is None else starts[s + 1] - starts[s]
            for j in range(self.k):
                if not -1 <= pinned[s, j] < most:
                    raise ValueError(f"item {pinned[s, j]} of {most} is pinned")
                for i in range(j):
                    if pinned[s, j] >= 0 and pinned[s, i] == pinned[s, j]:
                        raise ValueError(f"item {pinned[s, j]} is pinned twice")
        return 0

    @cython.cfunc
    def _given(self, rows: Any) -> RankingRow:
        """The first of rows that may come from outside: sizes, items and finite numbers."""
        total: Real = 0.0  # a NaN or an infinity among the numbers is one in the sum
        m: Size = len(rows.head)
        row: RankingRow = self._row(rows, m)
        if row.features == cython.NULL and not self.kept:
            raise InvalidInput("rows without features of their items, which are not kept")
        for i in range(m):
            wanted = row.head[i].size - self.n_rewards
            if not self.k <= wanted <= self.m:
                raise InvalidInput(f"ranking {i} is of {wanted} items, of which there are {self.m}")
            for j in range(self.k):
                total += 0.0 * row.exposure[i * self.k + j]
                if not 0 <= row.items[i * self.k + j] < wanted:
                    raise InvalidInput(f"ranking {i} shows item {row.items[i * self.k + j]}")
            if row.n_g > 0 and row.head[i].size != row.n_g:
                raise InvalidInput(f"ranking {i} has a direction of {row.n_g} coordinates")
        for i in range(m * row.n_g):
            total += 0.0 * row.g[i]
        if total != 0.0:
            raise InvalidInput("exposures and directions of rankings must be finite numbers")
        return row

    def open_rows(self, rows: Any, force: cython.bint = False) -> None:
        """Count proposed rankings as open, in their order; force: whether or not open
        decisions count.
        """
        m: Size = len(rows.head)
        row: RankingRow = self._given(rows)
        self.begin(self)
        if self.counts_open or force:
            for _i in range(m):
                self._open(cython.address(row), self._features(cython.address(row)))
                self._next(cython.address(row))
        self.end(self)

    def withdraw(self, rows: Any, stages: int64_t = -1) -> None:
        """Rankings that get no answer in some stages are not open in these any more; stages: as
        bits, -1 for all.
        """
        m: Size = len(rows.head)
        row: RankingRow = self._given(rows)
        self.begin(self)
        for _i in range(m):
            for s in range(self.stages):
                if (stages >> s) & 1 and self.is_open(s, row.head):
                    self._close(s, cython.address(row), self._features(cython.address(row)))
            self._next(cython.address(row))
        self.end(self)

    # --- learn --------------------------------------------------------------------------------

    def learn(self, rows: Any, observation: Any, start: Size = 0, stage: Size = 0) -> Size:
        """Learn the feedback of a stage to rankings from `start` on, in their order.

        observation: a `Shown` of which slots were seen, (rows, k), and their rewards, (rows, k, R);
        NaN are those of other stages that are not known. After the first stage, the slots that were
        seen are those that counted.

        Twice the row to continue at, plus 1 where a certificate of live numbers is due before;
        -1 - 2 i where the regression rejects row i, and -2 - 2 i where its feedback contradicts
        itself or its features are too large: nothing is learnt of it. Nor is anything of a row and
        of those after it where a function of the user raises.
        """
        row: RankingRow = self._given(rows)
        seen, rewards = observation
        m: Size = len(rows.head)
        code: Size = 2 * m
        k: Size = self.k
        exposed = cython.declare(Column)
        earned = cython.declare(Column)
        column(seen, FLOAT, 2, False, cython.address(exposed))
        column(rewards, FLOAT, 3, False, cython.address(earned))
        coins: Doubles = cython.cast(Doubles, exposed.data)
        slots: Doubles = cython.cast(Doubles, earned.data)
        if not (
            exposed.n == earned.n == m
            and exposed.a == earned.a == k
            and earned.b == self.n_rewards
            and 0 <= start <= m
            and 0 <= stage < self.stages
        ):
            raise InvalidInput(f"{m} rankings, seen {seen.shape}, rewards {rewards.shape}")
        for _i in range(start):
            self._next(cython.address(row))
        self.begin(self)
        try:
            with cython.nogil:
                if m - start > 1:
                    start_deferring(self.products + stage)
                for i in range(start, m):
                    due = self._learn(
                        stage,
                        cython.address(row),
                        coins + i * k,
                        slots + i * k * self.n_rewards,
                        True,
                    )
                    if due != 0:
                        code = 2 * i + 3 if due > 0 else due - 2 * i
                        break
                    self._next(cython.address(row))
                stop_deferring(self.products + stage)
            self.check_callbacks()
        finally:
            self.end(self)
        return code

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _count(
        self, stage: Size, row: cython.pointer[RankingRow], seen: Doubles, rewards: Doubles
    ) -> cython.bint:
        """Which slots count as exposed, and the reward vector, until `_clear`; False, and neither,
        where the feedback contradicts itself. Rewards of other stages are NaN where unknown.
        """
        begin: Size = self._begin(stage)
        end: Size = self._end(stage)
        if count_exposed(
            self.exposure if stage == 0 else OBSERVED,
            row.items,
            seen,
            rewards,
            self.k,
            self.n_rewards,
            begin,
            end,
            self.n,
            self.exposures,
            self.reward,
        ):
            return False
        for r in range(self.n_rewards):
            if begin <= r < end:
                continue
            self.reward[self.m + r] = 0.0
            for j in range(self.k):
                earned = rewards[j * self.n_rewards + r]
                if self.exposures[j] != 0.0 or not isfinite(earned):
                    self.reward[self.m + r] += earned
        return True

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _clear(self, row: cython.pointer[RankingRow]) -> cython.void:
        """The reward vector is 0 again."""
        for j in range(self.k):
            self.reward[row.items[j]] = 0.0
        for j in range(self.m, self.n):
            self.reward[j] = 0.0

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _learn(
        self,
        stage: Size,
        row: cython.pointer[RankingRow],
        seen: Doubles,
        rewards: Doubles,
        opens: cython.bint,
    ) -> Size:
        """One answer: the regression, counts, open decisions, z and live numbers, all or none of
        them. 1 where a certificate is due, -1 where the regression rejects it or a function of the
        user failed, -2 where it is not sound. opens: whether estimates of open decisions will be
        needed.
        """
        if not self._count(stage, row, seen, rewards):
            return -2
        code = self._learn_counted(stage, row, rewards, opens, False)
        self._clear(row)
        return code

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _learn_counted(
        self,
        stage: Size,
        row: cython.pointer[RankingRow],
        rewards: Doubles,
        opens: cython.bint,
        contracted: cython.bint,
    ) -> Size:
        """`_learn` after `_count`; contracted: the user is the one that was ranked for last."""
        first: Size = row.head.size - self.n_rewards
        square: Real = 0.0
        features: Doubles = self._features(row)
        for a in range(self.p):
            square += row.user[a] * row.user[a]
        if not largest_square_norm(features, self.k, self.q) * square <= self.limit:
            return -2
        if not self.prepare_prices(stage, self.reward):
            return -1
        if not self._regress(stage, row, features, rewards, contracted):
            return -1
        if stage == 0:
            count_ranking(
                row.items,
                self.exposures,
                self.k,
                first,
                self.owed,
                self.exposed,
                self.shown,
                self.m,
                self.slots,
            )
        if opens and self.directed:
            if self.is_open(stage, row.head):
                self._close(stage, row, features)
            else:
                expected_features(row.exposure, row.user, features, self.k, self.p, self.q, self.x)
            self.answer_features(stage, 0, self.x, self.reward)
        self._average(stage, row, first)
        if self.keeps and row.n_g > 0:  # another smoothing may have decided
            memcpy(self.running, row.g, 8 * first)
            memcpy(self.running + self.m, row.g + first, 8 * self.n_rewards)
        if row.head.window < -1:
            return 0
        for i in range(self.m, self.n):  # live numbers are of decisions whose stages are all known
            if self.reward[i] != self.reward[i]:
                return 0
        sum_slots(row.live, self.exposures, self.k, self.terms)
        return self.count_live(row.head, self.terms, self.reward)

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _regress(
        self,
        stage: Size,
        row: cython.pointer[RankingRow],
        features: Doubles,
        rewards: Doubles,
        contracted: cython.bint,
    ) -> cython.bint:
        """The regression of a stage learns what is in `exposures`."""
        of: cython.pointer[Products] = self.products + stage
        r = exposed_rows(
            features,
            self.exposures,
            rewards,
            self.k,
            self.q,
            self.n_rewards,
            self._begin(stage),
            self._end(stage),
            self.learnt,
            self.targets,
        )
        if r > 0 and not contracted:
            contract(of, row.user)
        absorb_items(of, row.user, self.learnt, self.targets, r)
        return of.linear.counters[STATUS] == 0.0

    def recompute(self) -> None:
        """Recompute the inverse and the estimates from the design; the drift, and the status where
        that failed, are in the counters of the stage.
        """
        self.begin(self)
        for s in range(self.stages):
            refresh(cython.address(self.products[s].linear))
        self.end(self)

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _average(self, stage: Size, row: cython.pointer[RankingRow], first: Size) -> cython.void:
        """z averages the reward vector, with the chances of exposure instead of the exposures where
        these are averaged. Without memory and prices, only what is not 0 is added.
        """
        rho: cython.p_double = self.reward
        end: Size = self.starts[stage + 1]
        if self.by_chance:
            rho = self.rho
            for j in range(self.k):
                rho[row.items[j]] = row.exposure[j]
            for i in range(self.m, self.n):
                rho[i] = self.reward[i]
        if self.forget > 0.0 or self.priced is not None:
            self.average(stage, self.reward, rho, first, self.m)
        else:
            if stage == 0:
                for j in range(self.k):
                    i = row.items[j]
                    self.totals[i] += rho[i]
                    self.earned[i] += self.reward[i]
                for i in range(first):
                    self.clocks[i] += 1.0
            for i in range(self.m + self._begin(stage), end):
                self.totals[i] += rho[i]
                self.earned[i] += self.reward[i]
                self.clocks[i] += 1.0
            self.t[stage] += 1.0
        if stage == 0:
            self.add_in_gaps(row.head.block, self.paused, 1.0)
        if self.by_chance:
            for j in range(self.k):
                rho[row.items[j]] = 0.0

    def study(self, rows: Any, seen: Matrix, rewards: Tensor) -> Size:
        """The regression and the counts alone learn from the feedback to rankings that others made;
        how many rows were learnt, fewer where the next is rejected. Stages whose rewards are NaN
        are left out.
        """
        row: RankingRow = self._given(rows)
        m: Size = len(rows.head)
        done: Size = 0
        k: Size = self.k
        if not (
            seen.shape[0] == rewards.shape[0] == m
            and seen.shape[1] == rewards.shape[1] == k
            and rewards.shape[2] == self.n_rewards
        ):
            raise InvalidInput(f"{m} rankings, seen ({seen.shape[0]}, {seen.shape[1]})")
        self.begin(self)
        for i in range(m):
            if not self._study(
                cython.address(row), cython.address(seen[i, 0]), cython.address(rewards[i, 0, 0])
            ):
                break
            done += 1
            self._next(cython.address(row))
        self.end(self)
        return done

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _study(
        self, row: cython.pointer[RankingRow], seen: Doubles, rewards: Doubles
    ) -> cython.bint:
        """The known stages of one row; none where its exposures are not known."""
        features: Doubles = self._features(row)
        if seen[0] != seen[0]:
            return True
        for s in range(self.stages):
            if not isfinite(rewards[self._begin(s)]):
                continue
            if not self._count(s, row, seen, rewards):
                return False
            self._clear(row)
            if not self._regress(s, row, features, rewards, False):
                return False
            if s == 0:
                count_ranking(
                    row.items,
                    self.exposures,
                    self.k,
                    self.m,
                    self.owed,
                    self.exposed,
                    self.shown,
                    self.m,
                    self.slots,
                )
        return True

    # --- play ---------------------------------------------------------------------------------

    def play(
        self,
        decider: Any,
        world: CompiledRankingWorld,
        drawn: Any,
        mailbox: RankingMailbox | None,
        out: Any,
        done: int64_t = 0,
        refresh: int64_t = 1,
        truth: cython.bint = True,
    ) -> Size:
        """Play the rounds that were drawn; how many were played.

        Fewer: the direction of the next is not finite; -1 - s: the state cannot decide round s, or
        rejects what is learnt in it.

        decider: the engine that decides, None for this one, or one whose state is copied from it
        every `refresh` rounds; drawn: users (users, p), tables (1 or users, q, m) of item features,
        tags (rounds,): the user of each round, noise, draws, normals, and delays where there is a
        mailbox, None where answers come at once; out: actions (rounds, k), sums of means and of
        rewards (n,), scalar (3,): sums of max_a <g, mu_a> if `truth`, <g, mu> and <g, r>.
        """
        by: RankingsEngine = self if decider is None else decider
        by.ranker.longest = -1.0  # of the items of a world, not of those that are kept
        users: Matrix = drawn.users
        tables: Tensor = drawn.tables
        tags: IntVector = drawn.tags
        noise: Matrix = drawn.noise
        draws: Matrix = drawn.draws
        normals: Tensor = drawn.normals
        actions: OutIntMatrix = out.actions
        mean_sum: OutVector = out.mean_sum
        reward_sum: OutVector = out.reward_sum
        scalar: OutVector = out.scalar
        n: Size = self.n
        k: Size = self.k
        rounds: Size = tags.shape[0]
        played: Size = rounds
        head = cython.declare(Head)
        row = cython.declare(RankingRow)
        now = cython.declare(RankingRound)
        if not (
            rounds == noise.shape[0] == draws.shape[0] == normals.shape[0] == actions.shape[0]
            and actions.shape[1] == k == world.own.slots
            and users.shape[0] == world.own.users
            and users.shape[1] == self.p
            and tables.shape[0] in (1, users.shape[0])
            and tables.shape[1] == self.q
            and tables.shape[2] == self.m == world.own.items_n == self.n_left
            and world.own.rewards == self.n_rewards
            and noise.shape[1] == k * (1 + self.n_rewards)
            and draws.shape[1] == self.uniforms
            and normals.shape[1] == self.samples
            and (self.samples == 0 or normals.shape[2] == n + 2)
            and mean_sum.shape[0] == reward_sum.shape[0] == n
            and scalar.shape[0] == 3
            and within(drawn.tags, users.shape[0])
            and by.fits(self)
            and refresh > 0
            and (mailbox is None or drawn.delays.shape == (rounds, 2 * self.stages))
            and (mailbox is None or mailbox.laws == 2 * self.stages)
        ):
            raise ValueError("what was drawn does not fit the engine")
        room: OutVector = np.zeros(n + 2 * self.m + k * (2 + 2 * self.n_rewards + self.q))
        items: OutIntVector = np.zeros(k, np.int64)
        now.mean = cython.address(room[0])
        now.scores = now.mean + n
        now.seen = now.scores + 2 * self.m
        now.earned = now.seen + k
        now.means = now.earned + k * self.n_rewards
        row.exposure = now.means + k * self.n_rewards
        row.features = row.exposure + k
        row.parts, row.ranks, row.live, row.g = cython.NULL, cython.NULL, cython.NULL, by.g
        row.head, row.items, row.n_g = cython.address(head), cython.address(items[0]), n
        now.users, now.tables = cython.address(users[0, 0]), cython.address(tables[0, 0, 0])
        now.stride = self.q * self.m if tables.shape[0] > 1 else 0
        now.mean_sum, now.reward_sum = cython.address(mean_sum[0]), cython.address(reward_sum[0])
        now.scalar, now.truth = cython.address(scalar[0]), truth
        if mailbox is not None:
            if mailbox.shape != (k, self.n_rewards, n if self.keeps else 0):
                raise ValueError(f"a mailbox of {mailbox.shape}")
            if mailbox.n_free < mailbox.capacity and mailbox.users != users.shape[0]:
                raise ValueError(f"a mailbox with answers of {mailbox.users} users")
        self.begin(by)
        try:
            if mailbox is not None:
                mailbox.users = users.shape[0]
                mailbox.make_room(drawn.delays, done)
            undo: Undo = Undo(self, by, mailbox, (mean_sum, reward_sum, scalar))
            with cython.nogil:
                if not self.prices_call:  # what is deferred cannot be taken back
                    for i in range(self.stages):
                        start_deferring(self.products + i)
                for s in range(rounds):
                    if by is not self and (done + s) % refresh == 0:
                        by.copy_from(self)
                    now.tag, now.noise = tags[s], cython.address(noise[s, 0])
                    now.draws, now.normals = (
                        cython.address(draws[s, 0]),
                        cython.address(normals[s, 0, 0]),
                    )
                    undo.save()
                    code = self._play_round(by, world, mailbox, s, row, cython.address(now))
                    if code != 0:
                        played = s if code > 0 else -1 - s
                        undo.rollback()
                        break
                    memcpy(cython.address(actions[s, 0]), row.items, 8 * k)
                for i in range(self.stages):
                    stop_deferring(self.products + i)
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
        by: RankingsEngine,
        world: CompiledRankingWorld,
        mailbox: RankingMailbox | None,
        s: Size,
        row: RankingRow,
        now: cython.pointer[RankingRound],
    ) -> Size:
        """One round: rank, draw the feedback, send it, learn what has arrived. 1: the direction is
        not finite; -1: the state cannot decide or rejects an answer.
        """
        slot: Size = 0
        k: Size = self.k
        m: Size = self.m
        n_rewards: Size = self.n_rewards
        given = cython.declare(Candidates)
        table: Doubles = now.tables + now.tag * now.stride
        weights: Doubles
        if not by.direction(now.normals, by.g):
            return 1
        row.user = cython.cast(cython.p_double, now.users + now.tag * self.p)
        given.draws, given.pinned = now.draws, cython.NULL
        by._pick(table, m, cython.NULL, 0, False, cython.address(given))
        if not by._rank(cython.address(row), cython.address(given), False):
            return -1
        slot_means(cython.address(world.own), row.items, now.tag, now.means)
        observe(cython.address(world.own), now.tag, now.means, now.noise, now.seen, now.earned)
        mean_of_ranking(cython.address(world.own), row.items, now.tag, now.means, now.mean)
        if now.truth:
            best_ranking(
                cython.address(world.own), by.g, now.tag, now.scores, now.scores + m, self.places
            )
            weights = world.own.weights + (now.tag if world.own.weights_n > 1 else 0) * k
            for j in range(k):
                now.scalar[0] += weights[j] * now.scores[m + self.places[j]]
        if not self._count(0, cython.address(row), now.seen, now.earned):
            return -1
        for j in range(k + n_rewards):
            i = row.items[j] if j < k else m + j - k
            now.scalar[1] += by.g[i] * now.mean[i]
            now.scalar[2] += by.g[i] * self.reward[i]
            now.mean_sum[i] += now.mean[i]
            now.reward_sum[i] += self.reward[i]
        row.head.number, row.head.block = -1, 0
        row.head.window = -2  # simulated decisions do not count for live numbers
        row.head.place = -1
        row.head.size = self.n
        if self.by_chance or mailbox is not None:
            exposure_rates(by.slots, by.position_weights, row.exposure, k)
        features_of(table, m, row.items, k, self.q, cython.cast(cython.p_double, row.features))
        if mailbox is None:
            return self._learn_at_once(cython.address(row), now, by is self)
        if self.counts_open:
            row.head.place = cython.cast(int64_t, self.open[0].issued)
            self._open(cython.address(row), row.features)
            if by is not self:
                by._open(cython.address(row), row.features)
        self._send(mailbox, cython.address(row), now, by.g, s)
        self._clear(cython.address(row))
        slot = mailbox.arrived(s)
        while slot >= 0:
            row.head, row.items = mailbox.head + slot, mailbox.items + slot * k
            row.exposure = mailbox.exposure + slot * k
            row.user = cython.cast(cython.p_double, now.users + mailbox.tags[slot] * self.p)
            table = now.tables + mailbox.tags[slot] * now.stride
            features_of(table, m, row.items, k, self.q, cython.cast(cython.p_double, row.features))
            if self.keeps:
                row.g = mailbox.g + slot * self.n
            if (
                self._learn(
                    mailbox.stage[slot],
                    cython.address(row),
                    mailbox.seen + slot * k,
                    mailbox.earned + slot * k * n_rewards,
                    self.counts_open,
                )
                < 0
            ):
                return -1
            slot = mailbox.arrived(s)
        return 0

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _learn_at_once(
        self,
        row: cython.pointer[RankingRow],
        now: cython.pointer[RankingRound],
        contracted: cython.bint,
    ) -> Size:
        """Learn all stages of a simulated ranking, in order, after `_count` of the first; the codes
        of `_play_round`.
        """
        code: Size = 0
        memcpy(now.seen, self.exposures, 8 * self.k)
        for stage in range(self.stages):
            if stage > 0 and not self._count(stage, row, now.seen, now.earned):
                return -1
            for i in range(self.starts[stage + 1], self.n):  # not known yet
                self.reward[i] = NAN
            code = self._learn_counted(stage, row, now.earned, False, contracted)
            self._clear(row)
            if code < 0:
                return -1
        return 0

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _lateness(self, mailbox: RankingMailbox, stage: Size, s: Size) -> int64_t:
        """How late a stage of the ranking of round s is learnt, -1: never. A later stage waits for
        the first, which has the exposures. `reward` is that of the ranking.
        """
        clicked: Size = 0
        for i in range(self.m + self._begin(stage), self.starts[stage + 1]):
            if self.reward[i] != 0.0:
                clicked = 1
        late: int64_t = mailbox.delays[mailbox.laws * s + 2 * stage + clicked]
        if stage == 0 or late < 0:
            return late
        first: int64_t = self._lateness(mailbox, 0, s)
        return first if first < 0 else max(first, late)

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def _send(
        self,
        mailbox: RankingMailbox,
        row: cython.pointer[RankingRow],
        now: cython.pointer[RankingRound],
        g: Doubles,
        s: Size,
    ) -> cython.void:
        """Send the stages of a ranking on their way after `_count`, each in a slot of its own with
        the rewards that are known when it is learnt, NaN for the others.
        """
        k: Size = self.k
        size: Size = self.n_rewards
        known: cython.bint
        for stage in range(self.stages):
            late = self._lateness(mailbox, stage, s)
            slot = mailbox.take_slot()
            earned = mailbox.earned + slot * k * size
            mailbox.head[slot], mailbox.tags[slot] = row.head[0], now.tag
            mailbox.stage[slot] = stage
            memcpy(mailbox.items + slot * k, row.items, 8 * k)
            memcpy(mailbox.exposure + slot * k, row.exposure, 8 * k)
            memcpy(mailbox.seen + slot * k, self.exposures, 8 * k)
            memcpy(earned, now.earned, 8 * k * size)
            for other in range(self.stages):
                when = self._lateness(mailbox, other, s)
                known = 0 <= when < late or (when == late and other <= stage)
                if not known:
                    for j in range(k):
                        for r in range(self._begin(other), self._end(other)):
                            earned[j * size + r] = NAN
            if self.keeps:
                memcpy(mailbox.g + slot * self.n, g, 8 * self.n)
            mailbox.send(slot, s, late)
