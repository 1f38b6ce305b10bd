"""The compiled loop for rankings whose feedback comes late."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairwolfe.core.arrays import Cube, IntMatrix, IntVector, Matrix, Vector
from fairwolfe.environments.rankings import (
    RankingArrays,
    RankingWorld,
    best_ranking,
    mean_of_ranking,
    observe,
)
from fairwolfe.kernels.compile import Kernel, kernel
from fairwolfe.kernels.frames import FORGET, NUMBERS, WAITING, address, vector
from fairwolfe.kernels.linalg import STATUS
from fairwolfe.kernels.settling import TALLY
from fairwolfe.kernels.waiting import ISSUED, open_one
from fairwolfe.kinds.exposures import count_exposed
from fairwolfe.ranking.kernels import (
    EXPOSURE,
    KEEPS,
    RULE,
    expected_features,
    look_along,
    rank_rows,
    sum_ranking,
    take_in_rows,
)
from fairwolfe.reduction import FrankWolfe
from fairwolfe.reduction.state import State
from fairwolfe.simulation.boxes import send, take
from fairwolfe.simulation.compiled_rankings import CompiledRankings
from fairwolfe.simulation.late import (
    DONE,
    FIRST,
    FOLLOWS,
    LATE,
    OPENS,
    STOP,
    Delivery,
    arrival_of,
    begin,
    refused,
)
from fairwolfe.simulation.lateness import Lateness
from fairwolfe.simulation.streams import Streams

__all__ = ["LateRankings", "advance_late_rankings"]

_V, _M, _C, _I = "float64[::1]", "float64[:, ::1]", "float64[:, :, ::1]", "int64[::1]"
_WORLD = (_M, _C, _C, _M, _M, _M, _M)
_ADVANCE = ", ".join(
    (*LATE, *_WORLD, _I, _M, _M, _V, "int64[:, ::1]", _V, _V, _V, "boolean"),
)

_PLACE, _TAG, _ITEMS = 0, 1, 2  # of the marks of an answer; its items come last


@kernel
def _expect(
    words: IntVector, n: int, items: IntVector, looks: Vector, user: Vector, rows: Matrix
) -> None:
    """Count a ranking among the open decisions: see `expect_rankings`. items, looks (slots,),
    user (p,), rows (slots, q).
    """
    waiting = vector(words, WAITING)
    open_one(waiting, n, 1.0 - vector(words, NUMBERS)[FORGET])
    sum_ranking(waiting, n, items, looks, expected_features(looks, user, rows), 1.0, 1.0)


@kernel
def _features(table: Matrix, items: IntVector, rows: Matrix) -> None:
    """Those of the items of a ranking. table (q, n_items), items (slots,), rows (slots, q)."""
    for j in range(items.size):
        for e in range(table.shape[0]):
            rows[j, e] = table[e, items[j]]


@kernel(signature=f"int64({_ADVANCE})")
def advance_late_rankings(
    words: IntVector,
    deciding: IntVector,
    copies: IntMatrix,
    settings: IntVector,
    work: Vector,
    steps: Matrix,
    normals: Cube,
    delays: IntMatrix,
    ring: IntMatrix,
    links: IntMatrix,
    free: IntVector,
    numbers: Matrix,
    marks: IntMatrix,
    users: Matrix,
    tables: Cube,
    turned: Cube,
    items: Matrix,
    columns: Matrix,
    weights: Matrix,
    ranges: Matrix,
    tags: IntVector,
    noise: Matrix,
    draws: Matrix,
    counters: Vector,
    rankings: IntMatrix,
    mean_sum: Vector,
    reward_sum: Vector,
    scalar: Vector,
    truth: bool,
) -> int:
    """Play the rounds that the arrays hold; how many were played, as in `advance_rankings`;
    negative where an answer was rejected.

    The first arguments: see `LateRounds`; users (users, p), tables (1 or users, q, n_items), then
    `RankingArrays`; tags (rounds,), noise (rounds, draws), draws (rounds, numbers); counters: of
    the oracle. Out: rankings (rounds, slots); mean_sum, reward_sum (n,), scalar (3,): see
    `advance_rankings`. An answer in its box: exposures, rewards and chances of exposure by slot,
    direction.
    """
    n, k, n_rewards = mean_sum.size, rankings.shape[1], turned.shape[0]
    m, q = n - n_rewards, tables.shape[1]
    opens, follows = settings[OPENS] > 0, settings[FOLLOWS] > 0
    exposure = address(vector(words, RULE), EXPOSURE)
    parts = 1 + 3 * k
    out, shown, looks = np.empty((1, parts + n)), np.empty((1, 3, k), dtype=np.int64), np.empty(k)
    ranking, g = shown[0, 0], out[0, parts:]
    ids, none = np.arange(m), np.empty(0, dtype=np.int64)
    unpinned = np.empty((1, 0), dtype=np.int64)
    looked, exposures, rewards = np.empty(k), np.empty(k), np.empty((k, n_rewards))
    mean, reward, rows = np.empty(n), np.zeros(n), np.empty((1, k, q))
    means, scores, best = np.empty(m), np.empty(m), np.empty(k, dtype=np.int64)
    no_outlooks, no_tallies = np.empty((0, 2, k)), np.empty((0, TALLY))
    places = np.empty(1, dtype=np.int64)
    waiting = vector(words, WAITING)
    r = 2 * k + k * n_rewards  # where the direction begins in a box
    for s in range(delays.shape[0]):
        tag = tags[s]
        table = tables[tag if tables.shape[0] > 1 else 0]
        i = begin(s, deciding, copies, settings)
        count = rank_rows(
            deciding,
            work,
            steps[i : i + 1],
            normals[s : s + 1],
            False,
            False,
            users[tag : tag + 1],
            table,
            ids,
            none,
            none,
            unpinned,
            draws[s : s + 1],
            out,
            shown,
            looks,
        )
        if count != 1:
            if count < 0:
                counters[STATUS] = 1.0  # raised as soon as Python is back
            return s
        observe(ranking, tag, noise[s], turned, items, weights, ranges, looked, rewards)
        count_exposed(exposure, ranking, looked, rewards, exposures, reward)
        mean_of_ranking(ranking, tag, turned, items, weights, ranges, mean)
        if truth:
            best_ranking(g, tag, turned, columns, ranges, means, scores, best)
            row = tag if weights.shape[0] > 1 else np.int64(0)
            for j in range(k):
                scalar[0] += weights[row, j] * scores[best[j]]
        for j in range(k + n_rewards):
            i = ranking[j] if j < k else m + j - k
            scalar[1] += g[i] * mean[i]
            scalar[2] += g[i] * reward[i]
            mean_sum[i] += mean[i]
            reward_sum[i] += reward[i]
        for j in range(k):
            rankings[s, j] = ranking[j]
        place = -1.0
        if opens:
            place = waiting[ISSUED]
            _features(table, ranking, rows[0])
            _expect(words, n, ranking, looks, users[tag], rows[0])
            if copies.shape[0] > 0:
                _expect(deciding, n, ranking, looks, users[tag], rows[0])
        arrival = arrival_of(s, reward, settings, delays)
        for j in range(k + n_rewards):
            reward[ranking[j] if j < k else m + j - k] = 0.0
        if arrival >= 0:
            slot = send(ring, links, free, arrival)
            kept, mark = numbers[slot], marks[slot]
            mark[_PLACE], mark[_TAG] = int(place), tag
            for j in range(k):
                mark[_ITEMS + j] = ranking[j]
                kept[j], kept[k + j] = looked[j], looks[j]
                for o in range(n_rewards):
                    kept[2 * k + j * n_rewards + o] = rewards[j, o]
            if follows:
                for j in range(n):
                    kept[r + j] = g[j]
        while True:
            slot = take(ring, links, free, settings[DONE] + s + 1)
            if slot < 0:
                break
            kept, mark = numbers[slot], marks[slot]
            owner, places[0] = mark[_TAG], mark[_PLACE]
            _features(tables[owner if tables.shape[0] > 1 else 0], mark[_ITEMS:], rows[0])
            code = take_in_rows(
                words,
                0,
                mark[_ITEMS:].reshape((1, k)),
                users[owner : owner + 1],
                rows,
                kept[:k].reshape((1, k)),
                kept[2 * k : r].reshape((1, k, n_rewards)),
                no_outlooks,
                kept[k : 2 * k],
                kept[r:].reshape((1 if follows else 0, n)),
                no_tallies,
                -1.0,
                places,
                settings[FIRST],
                settings[STOP],
            )
            if code < 0:
                return refused(code)
    return int(delays.shape[0])


class LateRankings(CompiledRankings):
    """One run of rankings whose feedback comes late, played chunk by chunk."""

    def __init__(
        self,
        policy: FrankWolfe,
        environment: RankingWorld,
        world: RankingArrays,
        streams: Streams,
        truth: bool,
        lateness: Lateness,
        rng: np.random.Generator,
        horizon: int,
    ) -> None:
        super().__init__(policy, environment, world, streams, truth)
        problem = environment.problem()
        k, followed = problem.n_slots or 0, self.state.plan.follows
        held = k * (2 + len(problem.rewards)) + followed * problem.n_objectives
        self.delivery = Delivery(
            self.state, self.following, lateness, rng, horizon, KEEPS, (held, _ITEMS + k)
        )

    @staticmethod
    def kernels(state: State, environment: Any) -> list[Kernel[..., Any]]:
        """What the rounds call."""
        parts = CompiledRankings.kernels(state, environment)[:-1]
        # Live numbers are never called here, but a frame has their address.
        return [*parts, look_along, advance_late_rankings]

    def play(self, wanted: int) -> Any:
        """Play at most that many rounds; their rankings."""
        n, tags, noise, normals, draws = self.drawn(wanted)
        base = self.state.base
        rankings = np.empty((n, base.slots.shape[1]), dtype=np.int64)
        played = advance_late_rankings(
            *self.delivery.rounds(normals),
            self.users,
            self.tables,
            *self.arrays,
            tags,
            noise,
            draws,
            base.oracle.counters,
            rankings,
            self.mean_sum,
            self.reward_sum,
            self.scalar,
            self.truth,
        )
        self.delivery.check(played, n)
        return rankings
