"""The compiled loop: a whole chunk of rounds without Python.

It is only the order in which the kernels of the objective, the smoothing, the bandit, the oracle
and the world are called, by address; `act` and `update` call the same kernels in the same order,
so both loops make the same decisions on the same random streams.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fairwolfe.bandits.choosing import BanditState, LinearBandit, call_choose, extended_lesson
from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.protocols import CompiledWorld
from fairwolfe.environments.world import ArmsWorld, RewardProgram, call_best, call_reward
from fairwolfe.kernels.compile import Kernel, kernel, ready
from fairwolfe.kernels.linalg import STATUS
from fairwolfe.kernels.settling import average_in, call_reprice
from fairwolfe.oracles.linear_state import LinearState, call_learn
from fairwolfe.reduction import FrankWolfe
from fairwolfe.reduction.state import State
from fairwolfe.simulation.following import FOLLOWING, Following
from fairwolfe.simulation.streams import Streams
from fairwolfe.smoothing.following import follow

__all__ = ["CompiledRun", "advance"]

_CHUNK_BYTES = 4_000_000  # of contexts drawn at once: a few milliseconds of work


_V, _M, _C = "float64[::1]", "float64[:, ::1]", "float64[:, :, ::1]"
_ADVANCE = ", ".join(
    (
        *FOLLOWING,
        *("boolean", "int64", _V, "boolean"),  # the iterate and the bandit
        *("int64", _C, _C, _C, _C, _V, _V),  # its oracle
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
    normals: Cube,
    totals: Vector,
    earned: Vector,
    clocks: Vector,
    running: Vector,
    counters: Vector,
    forget: float,
    repricing: int,
    words: IntVector,
    optimistic: bool,
    choose: int,
    choose_params: Vector,
    extended: bool,
    learn: int,
    gram: Cube,
    inverse: Cube,
    theta: Cube,
    moment: Cube,
    learn_params: Vector,
    learn_counters: Vector,
    reward_address: int,
    best_address: int,
    world_params: Vector,
    features: Cube,
    tags: IntVector,
    noise: Matrix,
    draws: Matrix,
    actions: IntVector,
    mean_sum: Vector,
    reward_sum: Vector,
    scalar: Vector,
) -> int:
    """Play the rounds that the arrays hold; how many were played.

    All, unless a state failed or a direction is not a number: then the round is not played.

    scalar collects sums over rounds: of max_a <g, mu a>, <g, mu a_t>, <g, r_t>.
    """
    n, n_arms = totals.size, features.shape[1]
    g, scratch = np.zeros(n), (np.empty(n), np.empty(n), np.empty(n), np.empty(n))
    scores = np.empty(n_arms)
    report = np.empty(1 + n if optimistic else 1)
    mean, reward = np.empty(n), np.empty(n)
    for s in range(steps.size):
        if gradient != 0 and not follow(
            gradient,
            gradient_params,
            gradient_work,
            steps[s],
            mixes[s],
            normals[s],
            totals,
            clocks,
            running,
            scratch,
            g,
        ):
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
        if gradient != 0:
            best = call_best(best_address, g, tags[s], features[s], world_params, scores)
            scalar[0] += scores[best]
        for i in range(n):
            scalar[1] += g[i] * mean[i]
            scalar[2] += g[i] * reward[i]
            mean_sum[i] += mean[i]
            reward_sum[i] += reward[i]
        actions[s] = arm
        x, target = features[s, arm], reward
        if extended:
            x, target = np.empty(n * features.shape[2]), np.empty(1)
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
        if learn_counters[STATUS] != 0.0:
            return s
        rho = report[1:] if optimistic else reward
        if repricing != 0:
            call_reprice(repricing, words)
        average_in(reward, rho, forget, 0, 0, totals, earned, clocks, counters)
        if normals.shape[1] > 0:
            for i in range(n):
                running[i] = g[i]
    return steps.size


class CompiledRun:
    """One run of a policy in the world of a seed, played chunk by chunk."""

    def __init__(
        self, policy: FrankWolfe, environment: Any, world: Any, streams: Streams, truth: bool = True
    ) -> None:
        self.policy = policy
        self.environment = environment
        self.world = world
        self.streams = streams
        problem = environment.problem()
        self.state: State = self.policy.init(problem)
        ready(self.kernels(self.state, environment))
        self.base: LinearBandit = self.state.plan.base
        oracle: Any = self.base.regression
        self.learn: int = oracle.learn.address
        self.following = Following(self.state)
        self.rewards: RewardProgram = environment.reward_program(world)
        self.mean_sum, self.reward_sum = np.zeros((2, problem.n_objectives))
        self.scalar = np.zeros(3)
        self.most = 16  # rounds in a chunk, until the size of a context is known

    @staticmethod
    def kernels(state: State, environment: Any) -> list[Kernel[..., Any]]:
        """What the rounds call."""
        base: LinearBandit = state.plan.base
        oracle: Any = base.regression
        answers = environment.answers if isinstance(environment, ArmsWorld) else ()
        return [*Following.kernels(state), base.choose, oracle.learn, *answers, advance]

    @staticmethod
    def why_not(policy: FrankWolfe, environment: Any) -> str | None:
        """The part that keeps a run out of this loop, or None."""
        if not isinstance(policy.base, LinearBandit):
            return f"the base {type(policy.base).__name__}"
        if not isinstance(policy.base.regression.learn, Kernel):
            return f"the oracle {type(policy.base.regression).__name__}"
        if not isinstance(environment, CompiledWorld):
            return f"the environment {type(environment).__name__}"
        return None

    def drawn(self, wanted: int) -> tuple[int, Cube, IntVector, Matrix, Cube, Matrix]:
        """How many rounds come next, at most those wanted, and what is drawn for them: features,
        tags, noise, and the draws of the policy.
        """
        n = min(wanted, self.most)
        features, tags = self.environment.draw_contexts(self.world, self.streams.contexts, n)
        self.most = max(16, _CHUNK_BYTES * n // features.nbytes)
        noise = self.environment.draw_noise(self.streams.noise, n)
        return n, features, tags, noise, *self.following.draws(self.streams.policy, n)

    def play(self, wanted: int) -> IntVector:
        """Play at most that many rounds; their actions."""
        n, features, tags, noise, normals, draws = self.drawn(wanted)
        base: BanditState = self.state.base
        oracle: LinearState = base.oracle
        actions = np.empty(n, dtype=np.int64)
        played = advance(
            *self.following.rounds(self.state, normals),
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
        self.following.raise_failures(self.state, played == n)
        return actions
