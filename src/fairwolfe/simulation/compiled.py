"""The compiled loop: a whole chunk of rounds without Python.

It is only the order in which the kernels of the objective, the smoothing, the bandit, the oracle
and the world are called, by address; `act` and `update` call the same kernels in the same order,
so both loops decide alike on the same random streams.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fairwolfe._compile import kernel
from fairwolfe.bandits.choosing import BanditState, LinearBandit, call_choose, extended_lesson
from fairwolfe.environments.world import RewardProgram, call_best, call_reward
from fairwolfe.errors import NumericalFailure
from fairwolfe.linalg import STATUS
from fairwolfe.objectives.concave import Program, call_gradient
from fairwolfe.oracles.linear_state import LinearState, call_learn
from fairwolfe.protocols import IntVector, Matrix, Vector
from fairwolfe.reduction import FrankWolfe, MOLinCB
from fairwolfe.reduction.frank_wolfe import State, average_in
from fairwolfe.simulation.streams import Streams
from fairwolfe.smoothing import Randomized
from fairwolfe.smoothing.randomized import sampled

__all__ = ["CompiledRun", "advance"]

_CHUNK_BYTES = 4_000_000  # of contexts drawn at once: a few milliseconds of work


_V, _M, _C = "float64[::1]", "float64[:, ::1]", "float64[:, :, ::1]"
_ADVANCE = ", ".join(
    (
        *("int64", _V, _V, _V, _V, _C),  # the direction
        *(_V, _V, _V, _V, _V, "float64", "boolean"),  # the averages
        *("int64", _V, "boolean", "int64", _C, _C, _C, _C, _V, _V),  # the bandit and its oracle
        *("int64", "int64", _V, _C, "int64[::1]", _M, _M),  # the world and what was drawn
        *("int64[::1]", _V, _V, _V),  # what comes out
    )
)


@kernel(signature=f"int64({_ADVANCE})")
def advance(
    gradient: int,
    gradient_params: Vector,
    gradient_work: Vector,
    steps: Vector,
    mixes: Vector,
    normals: Matrix,
    totals: Vector,
    earned: Vector,
    clocks: Vector,
    running: Vector,
    counters: Vector,
    forget: float,
    optimistic: bool,
    choose: int,
    choose_params: Vector,
    extended: bool,
    learn: int,
    gram: Matrix,
    inverse: Matrix,
    theta: Matrix,
    moment: Matrix,
    learn_params: Vector,
    learn_counters: Vector,
    reward_address: int,
    best_address: int,
    world_params: Vector,
    features: Matrix,
    tags: IntVector,
    noise: Matrix,
    draws: Matrix,
    actions: IntVector,
    mean_sum: Vector,
    reward_sum: Vector,
    scalar: Vector,
) -> int:
    """Play the rounds that the arrays hold; how many were played.

    All, unless a state failed or a direction is no number: then the round is not played.

    scalar collects sums over rounds: of max_a <g, mu a>, <g, mu a_t>, <g, r_t>.
    """
    n_objectives, n_arms = totals.size, features.shape[1]
    z, g = np.empty(n_objectives), np.zeros(n_objectives)
    fresh, point, spare = np.empty(n_objectives), np.empty(n_objectives), np.empty(n_objectives)
    scores = np.empty(n_arms)
    report = np.empty(1 + n_objectives if optimistic else 1)
    mean, reward = np.empty(n_objectives), np.empty(n_objectives)
    for s in range(steps.size):
        if gradient != 0:
            for i in range(n_objectives):
                z[i] = totals[i] / max(clocks[i], 1.0)
            if normals.shape[1] == 0:
                call_gradient(gradient, z, steps[s], gradient_params, gradient_work, g)
            else:
                sampled(
                    gradient,
                    z,
                    steps[s],
                    normals[s],
                    gradient_params,
                    gradient_work,
                    point,
                    spare,
                    fresh,
                )
                for i in range(n_objectives):
                    g[i] = (1.0 - mixes[s]) * running[i] + mixes[s] * fresh[i]
            for i in range(n_objectives):
                if not np.isfinite(g[i]):
                    return s
        arm = call_choose(
            choose,
            g,
            theta,
            inverse,
            learn_counters,
            features[s],
            False,
            draws[s],
            choose_params,
            scores,
            report,
        )
        if arm < 0:
            learn_counters[STATUS] = 1.0  # raised as soon as Python is back
            return s
        call_reward(reward_address, arm, tags[s], features[s], noise[s], world_params, mean, reward)
        best = call_best(best_address, g, tags[s], features[s], world_params, scores)
        scalar[0] += scores[best]
        for i in range(n_objectives):
            scalar[1] += g[i] * mean[i]
            scalar[2] += g[i] * reward[i]
            mean_sum[i] += mean[i]
            reward_sum[i] += reward[i]
        actions[s] = arm
        x, target = features[s, arm], reward
        if extended:
            x, target = np.empty(n_objectives * features.shape[2]), np.empty(1)
            extended_lesson(g, features[s, arm], reward, x, target)
        call_learn(
            learn,
            0,
            x,
            target,
            gram,
            inverse,
            theta,
            moment,
            learn_params,
            learn_counters,
        )
        rho = report[1:] if optimistic else reward
        average_in(reward, rho, forget, totals, earned, clocks, counters)
        if normals.shape[1] > 0:
            running[:] = g
        if learn_counters[STATUS] != 0.0:
            return s + 1
    return steps.size


class CompiledRun:
    """One run of a policy in the world of a seed, played chunk by chunk."""

    def __init__(
        self, policy: FrankWolfe | MOLinCB, environment: Any, world: Any, streams: Streams
    ) -> None:
        self.policy = policy.shell if isinstance(policy, MOLinCB) else policy
        self.environment = environment
        self.world = world
        self.streams = streams
        problem = environment.problem()
        self.state: State = policy.init(problem)
        plan = self.state.plan
        self.base: LinearBandit = plan.base
        oracle: Any = self.base.regression
        self.learn: int = oracle.learn.address
        self.size = problem.n_objectives
        self.gradient: Program | None = None
        if self.base.needs_direction:
            self.gradient = plan.objective.program(self.size)
        self.work = self.gradient.work() if self.gradient else np.empty(0)
        self.samples = 0
        if isinstance(plan.smoothing, Randomized) and self.base.needs_direction:
            self.samples = plan.smoothing.n_samples
        self.rewards: RewardProgram = environment.reward_program(world)
        self.mean_sum, self.reward_sum = np.zeros((2, self.size))
        self.scalar = np.zeros(3)
        self.most = 16  # rounds in a chunk, until the size of a context is known

    def play(self, wanted: int) -> IntVector:
        """Play at most that many rounds; their actions."""
        n = min(wanted, self.most)
        features, tags = self.environment.draw_contexts(self.world, self.streams.contexts, n)
        self.most = max(16, _CHUNK_BYTES * n // features.nbytes)
        noise = self.environment.draw_noise(self.streams.noise, n)
        normals, draws = self._draws(n)
        plan = self.state.plan
        base: BanditState = self.state.base
        oracle: LinearState = base.oracle
        times = np.minimum(np.arange(self.state.t, self.state.t + n), plan.age(1 << 62))
        mixes = [plan.smoothing.mix(t) for t in times.tolist()] if self.samples else []
        gradient = self.gradient
        actions = np.empty(n, dtype=np.int64)
        played = advance(
            gradient.address if gradient else 0,
            gradient.params if gradient else np.empty(0),
            self.work,
            plan.smoothing.widths(plan.objective, self.size, times),
            np.array(mixes, dtype=np.float64),
            normals,
            self.state.totals,
            self.state.earned,
            self.state.clocks,
            self.state.direction,
            self.state.counters,
            plan.forget,
            self.policy.iterate == "optimistic",
            self.base.choose.address,
            base.params,
            self.base.extended,
            self.learn,
            *oracle,
            *self.rewards,
            features,
            tags,
            noise,
            draws,
            actions,
            self.mean_sum,
            self.reward_sum,
            self.scalar,
        )
        if gradient is not None:
            gradient.raise_failures()
        oracle.raise_failure()
        if played < n:
            plan.objective.gradient(self.state.iterate)  # says where, as in the plain loop
            raise NumericalFailure(f"the direction of {plan.objective} is not a number")
        return actions

    def _draws(self, n: int) -> tuple[Matrix, Matrix]:
        """What the policy draws in n rounds: for the direction first, then for the arm."""
        rng, problem = self.streams.policy, self.state.plan.problem
        normals = np.empty((n, self.samples, self.size + 2))
        if self.samples == 0:
            return normals, self.base.draws(rng, problem, n)
        rows = []
        for s in range(n):
            normals[s] = rng.standard_normal((self.samples, self.size + 2))
            rows.append(self.base.draws(rng, problem, 1)[0])
        return normals, np.array(rows)
