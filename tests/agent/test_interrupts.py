"""Ctrl-C inside `update` and `update_many`: an answer has happened whole, or not at all; and inside
`act`, `act_many` and `expire`: what the ledger calls open is what the policy counts as open.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.bandits import LinUCB
from fairwolfe.objectives import Minimum

PLAYER = '''
import collections, json, os, signal, sys, threading, time
import numpy as np
import fairwolfe as fw
from fairwolfe.bandits import LinUCB, SquareCB
from fairwolfe.objectives import GiniEquality, Minimum, TwoSided
from fairwolfe.ranking import FWLinUCBRank

kind, wanted, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = np.random.default_rng(0)


class Slow(LinUCB):
    """A base in Python: it overrides what the compiled engine would replace."""

    def update(self, state, choice, direction, observation):
        return super().update(state, choice, direction, observation)


if kind == "ranking":
    problem = fw.Problem.ranking(8, 3, (2, 3))
    agent = fw.Agent(FWLinUCBRank(TwoSided(GiniEquality())), problem, items=rng.random((8, 3)) / 2)
    context = rng.random(2) / 2
else:
    problem = fw.Problem.arms(3, {"a": (0, 1), "b": (0, 1)})
    base = Slow() if kind == "python" else LinUCB()
    if kind == "forest":
        from fairwolfe.oracles import SklearnRegressor
        model = SklearnRegressor("sklearn.tree:DecisionTreeRegressor", growth=2.0, memory=200)
        base = SquareCB(gamma0=10.0, oracle=model)
    agent = fw.Agent(fw.FrankWolfe(Minimum(), base), problem)
    context = rng.random((5, 3)) / 2
assert agent._running.atomic == (kind in ("arms", "ranking"))


def answer(decisions):
    shown = np.asarray(decisions[0].action).tolist() if kind == "ranking" else []
    if kind == "ranking" and batch == 1:
        agent.update(decisions[0], exposed=shown, clicked=shown[:1])
    elif kind == "ranking":
        seen = fw.Shown(np.ones((batch, 3)), np.zeros((batch, 3, 1)))
        agent.update_many(decisions, seen)
    elif batch == 1:
        agent.update(decisions[0], [1.0, 0.0])
    else:
        agent.update_many(decisions, [[1.0, 0.0]] * len(decisions))


def counts():
    """Learnt, averaged and marked, without asking the agent: it would tidy up."""
    learnt = int(agent._running.base_state.oracle.counters[0])
    return np.array([learnt // (3 if kind == "ranking" else 1), agent._running.t,
                     *agent._ledger.answered])


answer([agent.act(context) for _ in range(batch)])
armed, over = False, False


def handler(*_):
    if armed:
        raise KeyboardInterrupt


def killer():
    draws = np.random.default_rng(1)
    while not over:
        slow = batch > 1 or kind in ("python", "forest")
        time.sleep(draws.random() * (0.01 if slow else 0.002))
        os.kill(os.getpid(), signal.SIGINT)


signal.signal(signal.SIGINT, handler)
threading.Thread(target=killer, daemon=True).start()
seen, hits, twice = collections.Counter(), 0, 0
while hits < wanted:
    decisions, before = [agent.act(context) for _ in range(batch)], counts()
    try:
        armed = True
        answer(decisions)
        armed = False
    except KeyboardInterrupt:
        armed = False
        hits += 1
        # What a careful user sees first: anything that is asked tidies up what is left.
        agent.t
        seen[str((counts() - before).tolist())] += 1
        try:
            answer(decisions)
        except fw.errors.InvalidInput:
            pass
    twice += not np.array_equal(counts() - before, [batch] * 3)
over = True
print(json.dumps({"seen": seen, "twice": twice, "open": agent.open, "stats": agent.stats()}))
'''


def played(kind: str, interrupts: int, batch: int) -> Any:
    command = [sys.executable, "-c", PLAYER, kind, str(interrupts), str(batch)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def check(kind: str, interrupts: int, batch: int) -> None:
    result = played(kind, interrupts, batch)
    whole, nothing = str([batch] * 3), str([0] * 3)
    assert set(result["seen"]) <= {whole, nothing}, result
    assert sum(result["seen"].values()) == interrupts
    assert result["twice"] == 0
    assert result["open"] == 0


@pytest.mark.parametrize("batch", [1, 7], ids=["update", "update_many"])
@pytest.mark.parametrize("kind", ["arms", "ranking", "python"])
def test_learnt_averaged_and_marked_are_always_equal(kind: str, batch: int) -> None:
    check(kind, 100, batch)


def test_a_forest_learns_whole_or_not_at_all() -> None:
    check("forest", 30, 1)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 7], ids=["update", "update_many"])
@pytest.mark.parametrize("kind", ["arms", "ranking", "python"])
def test_a_thousand_interrupts(kind: str, batch: int) -> None:
    check(kind, 1000, batch)


DECIDER = """
import json, os, signal, sys, threading, time
import numpy as np
import fairwolfe as fw
from fairwolfe.bandits import LinUCB
from fairwolfe.objectives import GiniEquality, Minimum, TwoSided
from fairwolfe.ranking import FWLinUCBRank

kind, wanted = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(0)
if kind == "ranking":
    problem = fw.Problem.ranking(8, 3, (2, 3))
    policy = FWLinUCBRank(TwoSided(GiniEquality()))
    agent = fw.Agent(policy, problem, items=rng.random((8, 3)) / 2, expires=40)
    context = rng.random(2) / 2
else:
    problem = fw.Problem.arms(3, {"a": (0, 1), "b": (0, 1)})
    agent = fw.Agent(fw.FrankWolfe(Minimum(), LinUCB()), problem, expires=40)
    context = rng.random((5, 3)) / 2
agent.act_many([context] * 3)
armed, over = False, False


def handler(*_):
    if armed:
        raise KeyboardInterrupt


def killer():
    draws = np.random.default_rng(1)
    while not over:
        time.sleep(draws.random() * 0.002)
        os.kill(os.getpid(), signal.SIGINT)


signal.signal(signal.SIGINT, handler)
threading.Thread(target=killer, daemon=True).start()
hits, wrong, turn = 0, 0, 0
while hits < wanted:
    turn += 1
    last = agent.act(context)
    try:
        armed = True
        if turn % 3 == 0:
            agent.act_many([context] * 5)
        elif turn % 3 == 1:
            agent.act(context)
        else:
            agent.expire(last)
        armed = False
    except KeyboardInterrupt:
        armed = False
        hits += 1
    wrong += agent.open != agent._running.open or agent.open > 40 + 10
over = True
for _ in range(40):  # those before expire, and these are taken out
    agent.expire(agent.act(context))
state = agent._running.state
left = [number for number in agent._young if agent._ledger.waits(number)]
print(json.dumps({"wrong": wrong, "open": agent.open, "counted": agent._running.open,
                  "left": len(left), "sums": float(np.abs(state.phi).sum())}))
"""


@pytest.mark.parametrize("kind", ["arms", "ranking"])
def test_what_is_open_is_what_is_counted(kind: str) -> None:
    command = [sys.executable, "-c", DECIDER, kind, "500"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert result == {"wrong": 0, "open": 0, "counted": 0, "left": 0, "sums": 0.0}


# --- a decision that nobody received -----------------------------------------------------------


class Interrupted:
    """The lock of an agent, where Ctrl-C comes right after it is released."""

    def __init__(self, lock: Any) -> None:
        self.lock, self.armed = lock, True

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()
        if self.armed and error[0] is None:
            self.armed = False
            raise KeyboardInterrupt


def small(expires: int | None = None) -> tuple[fw.Agent, Any]:
    problem = fw.Problem.arms(3, {"a": (0, 1), "b": (0, 1)})
    agent = fw.Agent(fw.FrankWolfe(Minimum(), LinUCB()), problem, expires=expires)
    return agent, np.random.default_rng(0).random((5, 3)) / 2


@pytest.mark.parametrize("expires", [None, 4])
@pytest.mark.parametrize("many", [False, True])
def test_an_interrupt_at_the_end_leaves_nothing_open(many: bool, expires: int | None) -> None:
    agent, context = small(expires)
    held = agent.act(context)
    agent._lock = Interrupted(agent._lock)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        agent.act_many([context] * 7) if many else agent.act(context)
    left = 0 if many and expires else 1  # seven decisions later it has expired
    assert (agent.open, agent._running.open) == (left, left)
    if left:
        agent.update(held, [1.0, 0.0])
        assert agent.open == agent._running.open == 0


OURS = ("/agent/agent.py", "/agent/ledger.py", "/reduction/running.py", "/core/decision.py")


def interrupted(work: Any, stop: int) -> bool:
    """Do work with a KeyboardInterrupt at the `stop`-th line of the agent; whether it came."""
    seen, came = 0, False

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal seen, came
        if not frame.f_code.co_filename.endswith(OURS):
            return None
        seen += event == "line"
        if seen >= stop and event == "line" and not came:
            came = True
            raise KeyboardInterrupt
        return trace

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt):
            work()
    finally:
        sys.settrace(outer)
    return came


def test_an_interrupt_at_any_line_of_act_and_expire() -> None:
    line = 1
    while True:
        agent, context = small(expires=3)
        held: list[Any] = []

        def work(agent: Any = agent, context: Any = context, held: Any = held) -> None:
            held.append(agent.act(context))
            agent.expire(held[0])

        came = interrupted(work, line)
        assert agent.open == agent._running.open <= len(held), line
        if agent.open:  # the interrupt came before it has expired
            agent.expire(held[0])
        assert (agent.open, agent._running.open) == (0, 0), line
        if not came:
            break
        line += 1
    assert line > 60


@pytest.mark.parametrize("batch", [1, 3])
def test_an_interrupt_at_any_line_of_an_update_leaves_counts_equal(batch: int) -> None:
    line = 1
    while True:
        agent, context = small()
        made = [agent.act(context) for _ in range(batch)]

        def answer(agent: Any = agent, made: Any = made) -> None:
            if batch == 1:
                agent.update(made[0], [1.0, 0.0])
            else:
                agent.update_many(made, [[1.0, 0.0]] * batch)

        came = interrupted(answer, line)
        t, running = agent.t, agent._running
        assert t in (0, batch)
        assert running.t == int(running.base_state.oracle.counters[0]) == t, line
        assert agent.open == running.open == batch - t
        if not came:
            break
        if t == 0:
            answer()
        assert (agent.t, agent._running.t, agent.open) == (batch, batch, 0)
        line += 1
    assert line > 40


STAGED = fw.Problem.arms(3, {"a": (0, 1), "b": (0, 1)}, stages=(["a"], ["b"]))


def staged() -> tuple[fw.Agent, Any, Any]:
    """Three decisions; the second has had its second stage."""
    agent = fw.Agent(fw.FrankWolfe(Minimum(), LinUCB()), STAGED)
    made = agent.act_many(np.random.default_rng(0).random((3, 5, 3)) / 2)
    agent.update(made[1], {"b": 1.0})
    return agent, made[0], made[1]


@pytest.mark.parametrize("way", ["one stage", "the last", "both", "many", "expire"])
def test_an_interrupt_at_any_line_leaves_stages_whole(way: str) -> None:
    """Each is applied once or not at all: state, ledger and what is known of a decision agree."""
    line = 1
    while True:
        agent, first, second = staged()
        agents = agent, first, second

        def work(agents: Any = agents) -> None:
            agent, first, second = agents
            if way == "one stage":
                agent.update(first, {"a": 0.5})
            elif way == "the last":
                agent.update(second, {"a": 0.5})
            elif way == "both":
                agent.update(first, [0.5, 0.25])
            elif way == "many":
                agent.update_many([first, second], [{"a": 0.5}, {"a": 0.5}])
            else:
                agent.expire(first)

        came = interrupted(work, line)
        stats, state = agent.stats()["stages"], agent._running.state
        counts = [(one["t"], one["open"], one["expired"]) for one in stats]
        before, after = {
            "one stage": ([(0, 3, 0), (1, 2, 0)], [(1, 2, 0), (1, 2, 0)]),
            "the last": ([(0, 3, 0), (1, 2, 0)], [(1, 2, 0), (1, 2, 0)]),
            "both": ([(0, 3, 0), (1, 2, 0)], [(1, 2, 0), (2, 1, 0)]),
            "many": ([(0, 3, 0), (1, 2, 0)], [(2, 1, 0), (1, 2, 0)]),
            "expire": ([(0, 3, 0), (1, 2, 0)], [(0, 2, 1), (1, 1, 1)]),
        }[way]
        assert counts in (before, after), (line, counts)
        assert [(t, n) for t, n, _ in counts] == [
            (int(state.t[s]), int(state.open[3 * s])) for s in (0, 1)
        ]
        assert state.learnt[:, 0].tolist() == state.t.tolist()
        known = {1} | ({0} if way in ("one stage", "many") else set())
        known -= {1} if way in ("the last", "many") else set()
        assert set(agent._known) == (known if counts == after and way != "expire" else {1}), line
        if counts == before:
            work()
        again = fw.Agent.restore(agent.dump(), token=agent._ledger.token)
        assert again.dump() == agent.dump()
        if not came:
            break
        line += 1
    assert line > 40
