"""Learning a whole log again: the state that an agent would have after its decisions, for another
policy, other features or more rewards.

The regression and the averages are sums over the log, merged in its order. The last decisions are
learnt one by one behind them, so that the prices of hard constraints stand where these put them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.agent import Agent
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.feedback import Shown
from fairwolfe.core.rows import HEAD, ArmRows, RankingRows
from fairwolfe.errors import InvalidInput
from fairwolfe.offpolicy.decisions import LoggedArms, LoggedRankings
from fairwolfe.offpolicy.sums import About, Data, Source, regression_sums
from fairwolfe.oracles.linear_regression import DRIFT, UPDATES
from fairwolfe.reduction.frank_wolfe import FrankWolfe
from fairwolfe.reduction.running import Running

TAIL = 10_000
"""Decisions at the end of the log that are learnt one by one."""


class Learnt(NamedTuple):
    """Of decisions: how many, the sums of their reward vectors (n,), the design (blocks, D, D), the
    moments (blocks, rewards, D) and how many observations these are; of rankings how often items
    were exposed (m,) and shown (m,), and slots exposed (k,).
    """

    n: int
    totals: Vector
    gram: Any
    moment: Any
    observations: int
    exposed: Vector
    shown: Vector
    slots: Vector


@dataclass(frozen=True, eq=False)
class Relearn:
    """Those sums of the decisions before a place; items (m, q): their features, if they rank."""

    until: int
    items: Any

    def sums(self, about: About, span: slice, chunk: Data) -> Learnt:
        """Of one chunk."""
        n = min(max(self.until - span.start, 0), chunk.n)
        own: Any = chunk if n == chunk.n else chunk.subset(np.arange(n))
        if isinstance(own, LoggedArms):
            (gram,), (moment,) = regression_sums(own, np.zeros(n, dtype=np.int64), 1)
            none = np.zeros(0)
            return Learnt(n, own.totals().sum(axis=0), gram, moment, n, none, none, none)
        users = _users(own)
        m, seen = len(self.items), own.exposed > 0.0
        row, slot = np.nonzero(seen)
        x = np.einsum("np,nq->npq", users[row], self.items[own.rankings[row, slot]])
        flat = x.reshape(len(row), -1)
        return Learnt(
            n,
            own.totals().sum(axis=0),
            (flat.T @ flat)[None],
            (own.rewards[row, slot].T @ flat)[None],
            len(row),
            np.bincount(own.rankings[row, slot], minlength=m).astype(np.float64),
            np.bincount(own.rankings.ravel(), minlength=m).astype(np.float64),
            own.exposed.sum(axis=0),
        )


def _users(data: LoggedRankings) -> Matrix:
    if data.users is None:
        raise InvalidInput("the log has no users, from whose features a ranker could learn")
    return data.users


def relearnt(agent: Agent, source: Source, tail: Data) -> None:
    """Teach a new agent all decisions of a log; tail: the last of them."""
    _require_sums(agent)
    ranks = agent.problem.kind == "ranking"
    items = np.ascontiguousarray(agent.features) if ranks else None
    learnt: Learnt = source.total(Relearn(source.about.n - tail.n, items))
    with agent.held() as running:
        state = running.state
        blocks = {
            "totals": learnt.totals,
            "earned": learnt.totals,
            "clocks": learnt.n,
            "t": learnt.n,
            "gram": learnt.gram,
            "moment": learnt.moment,
        }
        if ranks:
            rankings = np.full(learnt.slots.size, float(learnt.n))
            blocks |= {"exposed": learnt.exposed, "shown": learnt.shown}
            blocks["slots"] = np.array([rankings, learnt.slots])
        for name, sums in blocks.items():
            array = getattr(state, name)
            array += sums
        state.learnt[0, UPDATES] += learnt.observations
        running.repair()
        state.learnt[0, DRIFT] = 0.0  # the inverse was of no design before
        rows, observation = _rows(running, tail)
        running.learn(rows, observation)


def _require_sums(agent: Agent) -> None:
    """Raise where what is learnt is not a sum over decisions."""
    policy, problem = agent.policy, agent.problem
    why = ""
    with agent.held() as running:
        regression = isinstance(policy, FrankWolfe) and isinstance(running, Running)
        if not regression or running.state.gram.shape[-1] == 0:
            why = "it has no ridge regression, the only one that is a sum over decisions"
        elif problem.n_stages > 1:
            why = "its rewards arrive in stages"
        elif running.forget:
            why = "with memory= the order of the decisions matters"
        elif running.state.groups.size:
            why = "its groups have clocks of their own"
        elif running.plan.keeps_direction or running.smoothing.averaged:
            why = "what it learns depends on its direction at each decision"
        elif problem.kind == "ranking" and (
            getattr(running.base, "exposure", "") != "observed" or policy.iterate == "expected"
        ):
            why = "it learns from expected exposures, which the log does not have"
    if why:
        raise InvalidInput(
            f"{policy!r:.120} cannot be learnt again from sums: {why}; start it anew, without a log"
        )


def _rows(running: Any, tail: Any) -> tuple[Any, Any]:
    """Decisions as an engine learns them; they are not counted as open."""
    head = np.zeros(tail.n, HEAD)
    head["number"] = head["place"] = head["window"] = -1
    head["probability"], head["size"] = tail.probability, tail.problem.n_objectives
    if isinstance(tail, LoggedArms):
        x = np.empty((tail.n, tail.problem.dimension))
        head["arm"] = tail.actions
        for span, part in tail.spans():
            x[span] = part.chosen(tail.actions[span])
            head["block"][span] = tail.actions[span] if part.per_arm else 0
        return ArmRows(head, x, np.empty((tail.n, 0))), np.ascontiguousarray(tail.rewards)
    users = _users(tail)
    empty = RankingRows.empty(tail.n, tail.exposed.shape[1], users.shape[1], 0, explained=False)
    head["arm"] = -1
    empty.exposure[:] = 0.0
    rows = empty._replace(head=head, items=tail.rankings, user=users)
    return rows, Shown(tail.exposed, np.ascontiguousarray(tail.rewards))
