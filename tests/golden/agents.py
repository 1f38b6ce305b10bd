"""Scripts for an `Agent`: which contexts it meets, and when and how it gets its feedback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import fairwolfe as fw
from tests.golden.record import Record, Trajectory, reasons

STEPS = 120
BATCH = 6
REWARDS = {"a": (0.0, 1.0), "b": (0.0, 2.0)}
N_ITEMS = 8

Rng = np.random.Generator


@dataclass(frozen=True)
class Script:
    """One run of an agent, without the way in which it is answered.

    context: of one step. reward: what `update` is given for an action. options: of `act`, by step.
    changes: what is done to the agent before a step.
    """

    policy: Any
    problem: fw.Problem
    context: Callable[[Rng], Any]
    reward: Callable[[Rng, Any, Any], Any]
    options: Callable[[int], dict[str, Any]] = lambda t: {}
    changes: Mapping[int, Callable[[fw.Agent, Rng], None]] = field(default_factory=dict)
    items: Any = None
    expires: int | None = None

    def begin(self) -> tuple[fw.Agent, Rng, Record]:
        """An agent, the generator of its world, and an empty record."""
        agent = fw.Agent(self.policy, self.problem, 2, self.items, expires=self.expires)
        return agent, np.random.default_rng(3), Record()

    def change(self, agent: fw.Agent, t: int, rng: Rng) -> None:
        if t in self.changes:
            self.changes[t](agent, rng)


# --- contexts and rewards ---------------------------------------------------------------------


def matrix(rng: Rng) -> Any:
    return rng.random((int(rng.integers(3, 6)), 3)) / 2


def square(rng: Rng) -> Any:
    return rng.random((4, 3)) / 2


def per_arm(rng: Rng) -> Any:
    return fw.PerArm(rng.random(3) / 2)


def bilinear(rng: Rng) -> Any:
    return fw.Bilinear(rng.random(2) / 2 + 0.25, rng.random((4, 3)) / 2)


def earned(rng: Rng, context: Any, action: Any) -> list[float]:
    """A click by chance and a part of the range, by the features of the chosen arm."""
    if isinstance(context, fw.PerArm):
        chance = np.roll(context.features, action)
    else:
        chance = (context.flat() if isinstance(context, fw.Bilinear) else context)[action]
    first, second = rng.random(2)
    return [float(first < 1.5 * chance[0]), float(2.0 * second * (0.2 + chance[1]))]


def user(rng: Rng) -> Any:
    return rng.random(2) / 2


def viewed(rng: Rng, context: Any, action: Any) -> dict[str, Any]:
    """Lower slots are seen less often; some items are liked more than others."""
    seen = [int(item) for slot, item in enumerate(action) if rng.random() < (0.9, 0.7, 0.5)[slot]]
    return {"exposed": seen, "clicked": [i for i in seen if rng.random() < (1 + i % 4) / 5]}


def arms(policy: Any, context: Callable[[Rng], Any] = matrix, **more: Any) -> Script:
    features: Any = (2, 3) if context is bilinear else 3
    n_arms = {"n_arms": 4} if context is per_arm else {}
    problem = fw.Problem.arms(features, REWARDS, parameter_norm=1.0, **n_arms)
    return Script(policy, problem, context, earned, **more)


def rankings(policy: Any, **more: Any) -> Script:
    problem = fw.Problem.ranking(N_ITEMS, 3, (2, 3), parameter_norm=1.0)
    items = np.random.default_rng(4).random((N_ITEMS, 3)) / 2
    return Script(policy, problem, user, viewed, items=items, **more)


def some_arms(t: int) -> dict[str, Any]:
    """Every context has at least three arms."""
    return ({}, {"candidates": [0, 2]}, {"blocked": [1]}, {})[t % 4]


def some_items(t: int) -> dict[str, Any]:
    few = {"candidates": [7, 6, 5, 3, 1, 0]}
    return ({}, few, {"blocked": [0, 4]}, {"pinned": {1: 5}}, few | {"pinned": {0: 3}}, {})[t % 6]


def add(agent: fw.Agent, rng: Rng) -> None:
    agent.add_items(rng.random((2, 3)) / 2)


def retire(agent: fw.Agent, rng: Rng) -> None:
    agent.retire([2, 8])


COME_AND_GO = {30: add, 75: retire, 90: add}


# --- ways to answer ---------------------------------------------------------------------------


def answer(agent: fw.Agent, decision: Any, reward: Any) -> None:
    if isinstance(reward, dict):
        agent.update(decision, **reward)
    else:
        agent.update(decision, reward)


def prompt(script: Script) -> Callable[[Path], Trajectory]:
    """Each decision is answered before the next is made."""

    def play(folder: Path) -> Trajectory:
        agent, rng, record = script.begin()
        for t in range(STEPS):
            script.change(agent, t, rng)
            context = script.context(rng)
            decision = agent.act(context, **script.options(t))
            answer(agent, decision, script.reward(rng, context, decision.action))
            record.step(agent, decision)
        return record.told()

    return play


def late(script: Script) -> Callable[[Path], Trajectory]:
    """Feedback comes seven decisions later, for decisions read from bytes; a restore half-way."""

    def play(folder: Path) -> Trajectory:
        waiting: list[tuple[bytes, Any]] = []
        agent, rng, record = script.begin()
        for t in range(STEPS):
            script.change(agent, t, rng)
            context = script.context(rng)
            decision = agent.act(context, **script.options(t))
            reward = script.reward(rng, context, decision.action)
            waiting.append((decision.to_bytes(), reward))
            if len(waiting) > 7:
                data, reward = waiting.pop(0)
                answer(agent, fw.Decision.from_bytes(data), reward)
            if t == STEPS // 2:
                agent = fw.Agent.restore(agent.dump(), policy=agent.policy)
            record.step(agent, decision)
        record.count(agent.t, agent.open)
        return record.told()

    return play


def shuffled(script: Script) -> Callable[[Path], Trajectory]:
    """Every tenth step most of the open decisions are answered, in any order; a load half-way."""

    def play(folder: Path) -> Trajectory:
        waiting: list[tuple[Any, Any]] = []
        agent, rng, record = script.begin()
        for t in range(STEPS):
            script.change(agent, t, rng)
            context = script.context(rng)
            decision = agent.act(context, **script.options(t))
            waiting.append((decision, script.reward(rng, context, decision.action)))
            if t % 10 == 9:
                order = rng.permutation(len(waiting)).tolist()
                for i in order[3:]:
                    answer(agent, *waiting[i])
                waiting = [waiting[i] for i in order[:3]]
            if t == STEPS // 2:
                agent.save(folder / "agent.fw")
                agent = fw.Agent.load(folder / "agent.fw", policy=agent.policy)
            record.step(agent, decision)
        record.count(agent.t, agent.open)
        return record.told()

    return play


def expiring(script: Script) -> Callable[[Path], Trajectory]:
    """A decision is answered after up to four others, withdrawn, or left until it expires."""

    def play(folder: Path) -> Trajectory:
        due: dict[int, list[tuple[Any, Any]]] = {}
        agent, rng, record = replace(script, expires=6).begin()
        for t in range(STEPS):
            script.change(agent, t, rng)
            context = script.context(rng)
            decision = agent.act(context, **script.options(t))
            reward = script.reward(rng, context, decision.action)
            wait = int(rng.integers(7))
            if wait < 5:
                due.setdefault(t + wait, []).append((decision, reward))
            elif wait == 5:
                agent.expire(decision)
            for one in due.pop(t, []):
                answer(agent, *one)
            record.step(agent, decision)
        record.count(agent.t, agent.open)
        return record.told()

    return play


def batched(script: Script) -> Callable[[Path], Trajectory]:
    """Six decisions at a time and their answers together.

    In turn: decisions that count for the next, decisions that do not, and a proposal that is
    issued from its bytes.
    """

    def play(folder: Path) -> Trajectory:
        agent, rng, record = script.begin()
        for turn in range(STEPS // BATCH):
            for t in range(turn * BATCH, (turn + 1) * BATCH):
                script.change(agent, t, rng)
            contexts = [script.context(rng) for _ in range(BATCH)]
            options = script.options(turn)
            given = np.stack(contexts) if script.context in (square, user) else contexts
            if turn % 3 < 2:
                batch = agent.act_many(given, None if turn % 3 else False, **options)
            else:
                proposed: Any = agent.propose(given, **options)
                batch = fw.Batch.from_bytes(proposed.to_bytes())
                agent.issue(batch)
            pairs = zip(contexts, batch, strict=True)
            rewards = [script.reward(rng, c, d.action) for c, d in pairs]
            for decision in batch:
                record.decided(decision.action)
            if turn % 2:
                agent.update_many(batch, rewards)
            else:
                agent.update_many(list(batch)[::-1], rewards[::-1])
            record.count([[decision.probability, *reasons(decision)] for decision in batch])
            record.count(agent.average)
        record.count(agent.t, agent.open)
        return record.told()

    return play


def logged(script: Script, learner: Callable[[Any], Any]) -> Callable[[Path], Trajectory]:
    """What an agent appends to its log, as `Log.of` reads it."""

    def play(folder: Path) -> Trajectory:
        path = folder / "decisions.jsonl"
        write_log(script, path)
        return read_log(path, script, learner)

    return play


def write_log(script: Script, path: Path) -> None:
    path.unlink(missing_ok=True)
    agent, rng, _ = script.begin()
    agent.log(path)
    for t in range(STEPS // 2):
        context = script.context(rng)
        decision = agent.act(context, **script.options(t))
        if t % 9 != 8:  # one in nine is never answered
            answer(agent, decision, script.reward(rng, context, decision.action))
    agent.log(None)


def read_log(path: Path, script: Script, learner: Callable[[Any], Any]) -> Trajectory:
    """The averages of a log, and the decisions of an agent that learnt from it."""
    log, record, rng = fw.offpolicy.Log.of(path), Record(), np.random.default_rng(8)
    record.count(len(log), log.average)
    if script.items is None:
        uniform = log.evaluate(fw.bandits.Uniform(), fw.objectives.Linear((1.0, 1.0)), "ips")
        record.count(uniform.average)
    agent = learner(log)
    for t in range(20):
        decision = agent.act(script.context(rng), **script.options(t))
        record.decided(decision.action)
        record.count(reasons(decision))
    return record.told()
