"""The compiled loop whose feedback comes late: a whole chunk of rounds without Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairwolfe.bandits.choosing import (
    ARM,
    ESTIMATES,
    KEEPS,
    REPORT,
    RULE,
    choose_rows,
    learn_once,
)
from fairwolfe.core.arrays import Cube, IntMatrix, IntVector, Matrix, Vector
from fairwolfe.environments.world import call_best, call_reward
from fairwolfe.kernels.compile import Kernel, kernel
from fairwolfe.kernels.frames import FORGET, GRADIENT, NUMBERS, WAITING, address, vector
from fairwolfe.kernels.linalg import STATUS
from fairwolfe.kernels.waiting import ISSUED, open_one, sum_in
from fairwolfe.reduction import FrankWolfe
from fairwolfe.reduction.state import State
from fairwolfe.simulation.boxes import send, take
from fairwolfe.simulation.compiled import CompiledRun
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

__all__ = ["LateArms", "advance_late"]

_V, _M, _C, _I = "float64[::1]", "float64[:, ::1]", "float64[:, :, ::1]", "int64[::1]"
_ADVANCE = ", ".join((*LATE, "int64", "int64", _V, _C, _I, _M, _M, _V, _I, _V, _V, _V))


@kernel
def _expect(words: IntVector, n: int, block: int, values: Vector) -> None:
    """Count a decision among the open ones: see `expect_rows`. values (d or n,)."""
    waiting = vector(words, WAITING)
    open_one(waiting, n, 1.0 - vector(words, NUMBERS)[FORGET])
    sum_in(waiting, n, block, values, 1.0, 1.0)


@kernel(signature=f"int64({_ADVANCE})")
def advance_late(
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
    reward_address: int,
    best_address: int,
    world_params: Vector,
    features: Cube,
    tags: IntVector,
    noise: Matrix,
    draws: Matrix,
    counters: Vector,
    actions: IntVector,
    mean_sum: Vector,
    reward_sum: Vector,
    scalar: Vector,
) -> int:
    """Play the rounds that the arrays hold; how many were played, as in `advance`; negative where
    an answer was rejected.

    The first arguments: see `LateRounds`. features (rounds, arms, d), tags (rounds,), noise
    (rounds, draws), draws (rounds, numbers); counters: of the oracle. Out: actions (rounds,);
    mean_sum, reward_sum (n,), scalar (3,): see `advance`. An answer in its box: features, reward,
    estimate, direction; its mark is the place among the open decisions.
    """
    n, n_arms, d = mean_sum.size, features.shape[1], features.shape[2]
    opens, follows = settings[OPENS] > 0, settings[FOLLOWS] > 0
    optimistic = vector(deciding, RULE)[ESTIMATES] > 0.0
    directed = address(vector(deciding, NUMBERS), GRADIENT) != 0
    start = REPORT + n if optimistic else REPORT  # of the features in a row of it
    out = np.empty((1, start + d + n))
    x, g, estimate = out[0, start : start + d], out[0, start + d :], out[0, REPORT:start]
    waiting = vector(words, WAITING)
    scores, mean, reward, nothing = np.empty(n_arms), np.empty(n), np.empty(n), np.empty(0)
    for s in range(delays.shape[0]):
        i = begin(s, deciding, copies, settings)
        count = choose_rows(
            deciding,
            work,
            steps[i : i + 1],
            normals[s : s + 1],
            False,
            False,
            features[s : s + 1],
            False,
            draws[s : s + 1],
            out,
        )
        if count != 1:
            if count < 0:
                counters[STATUS] = 1.0  # raised as soon as Python is back
            return s
        arm = int(out[0, ARM])
        call_reward(reward_address, arm, tags[s], features[s], noise[s], world_params, mean, reward)
        if directed:
            best = call_best(best_address, g, tags[s], features[s], world_params, scores)
            scalar[0] += scores[best]
        for j in range(n):
            scalar[1] += g[j] * mean[j]
            scalar[2] += g[j] * reward[j]
            mean_sum[j] += mean[j]
            reward_sum[j] += reward[j]
        actions[s] = arm
        place = -1.0
        if opens:
            place = waiting[ISSUED]
            block, values = 0, x
            if optimistic:
                block, values = -1, estimate
            _expect(words, n, block, values)
            if copies.shape[0] > 0:
                _expect(deciding, n, block, values)
        arrival = arrival_of(s, reward, settings, delays)
        if arrival >= 0:
            slot = send(ring, links, free, arrival)
            marks[slot, 0] = int(place)
            kept = numbers[slot]
            for j in range(d):
                kept[j] = x[j]
            for j in range(n):
                kept[d + j] = reward[j]
            for j in range(estimate.size):
                kept[d + n + j] = estimate[j]
            if follows:
                for j in range(n):
                    kept[kept.size - n + j] = g[j]
        while True:
            slot = take(ring, links, free, settings[DONE] + s + 1)
            if slot < 0:
                break
            kept = numbers[slot]
            rho = kept[d + n : d + n + estimate.size]
            code = learn_once(
                words,
                0,
                kept[:d],
                kept[d : d + n],
                rho,
                kept[kept.size - n :] if follows else nothing,
                nothing,
                settings[FIRST],
                settings[STOP],
                -1.0,
                float(marks[slot, 0]),
                rho if opens else nothing,
            )
            if code < 0:
                return refused(code)
    return int(delays.shape[0])


class LateArms(CompiledRun):
    """One run whose feedback comes late, played chunk by chunk."""

    def __init__(
        self,
        policy: FrankWolfe,
        environment: Any,
        world: Any,
        streams: Streams,
        truth: bool,
        lateness: Lateness,
        rng: np.random.Generator,
        horizon: int,
    ) -> None:
        super().__init__(policy, environment, world, streams, truth)
        plan, problem = self.state.plan, environment.problem()
        n = problem.n_objectives
        held = problem.dimension + n * (1 + plan.optimistic + plan.follows)
        self.delivery = Delivery(
            self.state, self.following, lateness, rng, horizon, KEEPS, (held, 1)
        )

    @staticmethod
    def kernels(state: State, environment: Any) -> list[Kernel[..., Any]]:
        """What the rounds call."""
        parts = CompiledRun.kernels(state, environment)[:-1]
        # Live numbers are never called here, but a frame has their address.
        return [*parts, state.plan.base.look_rule, advance_late]

    def play(self, wanted: int) -> IntVector:
        """Play at most that many rounds; their actions."""
        n, features, tags, noise, normals, draws = self.drawn(wanted)
        actions = np.empty(n, dtype=np.int64)
        played = advance_late(
            *self.delivery.rounds(normals),
            *self.rewards,
            features,
            tags,
            noise,
            draws,
            self.state.base.oracle.counters,
            actions,
            self.mean_sum,
            self.reward_sum,
            self.scalar,
        )
        self.delivery.check(played, n)
        return actions
