"""The compiled loop for rankings: a whole chunk of rounds without Python.

Like that for arms it is only the order in which kernels are called that `act`, `feedback` and
`update` call too, with one thing saved: the contraction that a ranking was made with serves the
update that follows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fairwolfe.core.arrays import Cube, IntMatrix, IntVector, Matrix, Vector
from fairwolfe.core.catalogue import sizes
from fairwolfe.core.protocols import Undirected
from fairwolfe.environments.rankings import (
    RankingArrays,
    RankingWorld,
    best_ranking,
    mean_of_ranking,
    observe,
)
from fairwolfe.kernels.bilinear import absorb_items, estimates_of
from fairwolfe.kernels.compile import Kernel, kernel, ready
from fairwolfe.kernels.linalg import STATUS
from fairwolfe.kernels.settling import average_in, call_reprice
from fairwolfe.kinds.exposures import EXPOSURES, count_exposed
from fairwolfe.ranking import Ranker
from fairwolfe.ranking.kernels import (
    absorb_exposed,
    catch_up,
    count_ranking,
    exposed_rows,
    later_of,
    rank,
)
from fairwolfe.ranking.ranker import RankState
from fairwolfe.reduction.frank_wolfe import FrankWolfe
from fairwolfe.reduction.state import State
from fairwolfe.simulation.following import FOLLOWING, Following
from fairwolfe.simulation.streams import Streams
from fairwolfe.smoothing.following import follow

__all__ = ["CompiledRankings", "advance_rankings"]

_CHUNK = 4096  # rounds drawn at once
_CHUNK_MULTIPLIES = 200_000_000  # or as many as take about a tenth of a second

_V, _M, _C, _I = "float64[::1]", "float64[:, ::1]", "float64[:, :, ::1]", "int64[::1]"
_ADVANCE = ", ".join(
    (
        *FOLLOWING,
        *("int64", "int64", "int64", _V, "int64", _C, _C, _C, _C, _V, _V, _V, _V, _V, _M),  # ranker
        *(_M, _C, _C, _M, _M, _M, _M, _I, _M, _M),  # the world and what was drawn
        *("int64[:, ::1]", _V, _V, _V, "boolean"),  # what comes out
    )
)


@kernel(signature=f"int64({_ADVANCE})")
def advance_rankings(
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
    rule: int,
    estimates: int,
    absorb: int,
    params: Vector,
    exposure: int,
    gram: Cube,
    inverse: Cube,
    theta: Cube,
    moment: Cube,
    learn_params: Vector,
    learn_counters: Vector,
    later: Vector,
    exposed: Vector,
    shown: Vector,
    slots: Matrix,
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
    rankings: IntMatrix,
    mean_sum: Vector,
    reward_sum: Vector,
    scalar: Vector,
    truth: bool,
) -> int:
    """Play the rounds that the arrays hold; how many were played.

    All, unless a state failed or a direction is not a number: then the round is not played. scalar
    collects sums over rounds of max <g, mu a> (if `truth`), <g, mu a_t> and <g, r_t>. later: rounds
    that V takes in together, and has at the end.
    """
    played = np.int64(steps.size)
    n, k = totals.size, slots.shape[1]
    n_rewards = theta.shape[1]
    m = n - n_rewards
    q, d = tables.shape[1], inverse.shape[1]
    g, scratch = np.empty(n), (np.empty(n), np.empty(n), np.empty(n), np.empty(n))
    contracted, metric = np.empty((q, d)), np.empty((q, q))
    value, width, scores, means = np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    ranking, best = np.empty(k, dtype=np.int64), np.empty(k, dtype=np.int64)
    nothing = np.empty(0, dtype=np.int64)
    looked, exposures, rewards = np.empty(k), np.empty(k), np.empty((k, n_rewards))
    mean, reward = np.empty(n), np.zeros(n)
    rows, learnt, targets = np.empty((k, q)), np.empty((k, q)), np.empty((k, n_rewards))
    for s in range(steps.size):
        tag = tags[s]
        table = tables[tag if tables.shape[0] > 1 else 0]
        if not follow(
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
            played = np.int64(s)
            break
        rank(
            users[tag],
            table,
            theta,
            inverse,
            learn_counters,
            g,
            exposed,
            shown,
            slots[0, 0],
            rule,
            estimates,
            params,
            nothing,
            draws[s],
            contracted,
            metric,
            value,
            width,
            scores,
            ranking,
        )
        if not np.isfinite(scores[ranking[k - 1]]):
            learn_counters[STATUS] = 1.0  # raised as soon as Python is back
            played = np.int64(s)
            break
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
            for e in range(q):
                rows[j, e] = table[e, ranking[j]]
        r = exposed_rows(rows, exposures, rewards, learnt, targets)
        absorb_exposed(
            absorb,
            users[tag],
            learnt[:r],
            targets[:r],
            contracted,
            metric,
            gram,
            inverse,
            theta,
            moment,
            learn_params,
            learn_counters,
            later,
        )
        if learn_counters[STATUS] != 0.0:
            played = np.int64(s)
            break
        count_ranking(ranking, exposures, m, 0.0, exposed, shown, slots)
        if repricing != 0:
            call_reprice(repricing, words)
        if forget > 0.0:
            average_in(reward, reward, forget, 0, 0, totals, earned, clocks, counters)
        else:
            _average_few(ranking, n_rewards, reward, totals, earned, clocks, counters)
        for j in range(k + n_rewards):
            reward[ranking[j] if j < k else m + j - k] = 0.0
        if normals.shape[1] > 0:
            for i in range(n):
                running[i] = g[i]
    catch_up(later, users.shape[1], gram)
    return int(played)


@kernel
def _average_few(
    ranking: IntVector,
    n_rewards: int,
    reward: Vector,
    totals: Vector,
    earned: Vector,
    clocks: Vector,
    counters: Vector,
) -> None:
    """`average_in` without memory: sums change only where a reward (n,) is not 0, in the places of
    the ranking and of the rewards.
    """
    n, k = totals.size, ranking.size
    for j in range(k + n_rewards):
        i = ranking[j] if j < k else n - n_rewards + j - k
        totals[i] += reward[i]
        earned[i] += reward[i]
    for i in range(n):
        clocks[i] += 1.0
    counters[0] += 1.0


class CompiledRankings:
    """One run of a ranking policy in the world of a seed, played chunk by chunk."""

    def __init__(
        self,
        policy: FrankWolfe,
        environment: RankingWorld,
        world: RankingArrays,
        streams: Streams,
        truth: bool = True,
    ) -> None:
        self.environment = environment
        self.world = world
        self.streams = streams
        self.truth = truth
        problem = environment.problem()
        self.state: State = policy.init(problem)
        ready(self.kernels(self.state, environment))
        self.ranker: Ranker = self.state.plan.base
        self.following = Following(self.state)
        self.users, self.tables = environment.features(world)
        self.mean_sum, self.reward_sum = np.zeros((2, problem.n_objectives))
        self.scalar = np.zeros(3)
        self.later = later_of(*sizes(problem))
        if self.later.size > 1:
            self.later[0] = 0.0
        work = problem.dimension**2 + (problem.n_items or 0) * self.tables.shape[1] ** 2
        self.most = max(16, min(_CHUNK, _CHUNK_MULTIPLIES // work))

    @staticmethod
    def why_not(policy: FrankWolfe, environment: Any) -> str | None:
        """The part that keeps a run out of this loop, or None."""
        undirected = isinstance(policy.base, Undirected) and not policy.base.needs_direction
        if not isinstance(policy.base, Ranker) or undirected:
            return f"the base {type(policy.base).__name__}"
        if not isinstance(environment, RankingWorld):
            return f"the environment {type(environment).__name__}"
        return None

    @staticmethod
    def kernels(state: State, environment: Any) -> list[Kernel[..., Any]]:
        """What the rounds call."""
        rule, q = type(state.plan.base).rule, sizes(state.plan.kind.problem)[1]
        parts = (rule, estimates_of(q), absorb_items, advance_rankings)
        return [*Following.kernels(state), *parts]

    @property
    def arrays(self) -> tuple[Cube, Matrix, Matrix, Matrix, Matrix]:
        """Of the world."""
        world = self.world
        return world.turned, world.items, world.columns, world.weights, world.ranges

    def drawn(self, wanted: int) -> tuple[int, IntVector, Matrix, Cube, Matrix]:
        """How many rounds come next, at most those wanted, and what is drawn for them: users,
        noise, and the draws of the policy.
        """
        n = min(wanted, self.most)
        tags = self.environment.draw_users(self.streams.contexts, n)
        noise = self.environment.draw_noise(self.streams.noise, n)
        return n, tags, noise, *self.following.draws(self.streams.policy, n)

    def play(self, wanted: int) -> Any:
        """Play at most that many rounds; their rankings."""
        n, tags, noise, normals, draws = self.drawn(wanted)
        base: RankState = self.state.base
        rankings = np.empty((n, base.slots.shape[1]), dtype=np.int64)
        played = advance_rankings(
            *self.following.rounds(self.state, normals),
            type(self.ranker).rule.address,
            estimates_of(self.tables.shape[1]).address,
            absorb_items.address,
            base.params,
            EXPOSURES.index(self.ranker.exposure),
            *base.oracle,
            self.later,
            base.exposed,
            base.shown,
            base.slots,
            self.users,
            self.tables,
            *self.arrays,
            tags,
            noise,
            draws,
            rankings,
            self.mean_sum,
            self.reward_sum,
            self.scalar,
            self.truth,
        )
        self.following.raise_failures(self.state, played == n)
        return rankings
