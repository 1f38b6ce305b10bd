"""Rankings whose rewards arrive in stages: agents against an independent model of
`docs/late-feedback.md`, and special cases that must coincide with one stage.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairwolfe as fw
from fairwolfe.core.feedback import Shown
from fairwolfe.errors import IncompatibleState, InvalidInput
from fairwolfe.objectives import (
    AtMost,
    ByGroup,
    Concave,
    GiniEquality,
    Linear,
    Mapped,
    Nash,
    TwoSided,
)
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank, LinUCBRank, UnbiasedLinUCBRank
from fairwolfe.ranking.ranker import Ranker
from fairwolfe.reduction.live import N as N_DECISIONS
from fairwolfe.smoothing import Identity

M, K, P, Q = 6, 3, 2, 2
RIDGE, DELTA, EXPLORATION = 0.5, 0.05, 0.3
RANGES = {"clicks": (0.0, 3.0), "minutes": (-3.0, 6.0), "returned": (0.0, 3.0)}
STAGES = (("clicks", "minutes"), ("returned",))
OF = np.array([0, 0, 1])  # the stage of each reward
LOW, HIGH = np.array(list(RANGES.values())).T
N = M + 3
PROBLEM = fw.Problem.ranking(M, K, (P, Q), RANGES, stages=STAGES, parameter_norm=1.0)
WHOLE = fw.Problem.ranking(M, K, (P, Q), RANGES, parameter_norm=1.0)
ITEMS = np.random.default_rng(7).uniform(-0.6, 0.6, (M, Q))
FAIR = TwoSided(GiniEquality(), beta=0.5)
SMOOTH = Nash(offset=4.0)
ROWS = {
    "pure": (np.eye(N)[-1], 0.3),
    "mixed": (np.eye(N)[-1] - 0.4 * np.eye(N)[M], 0.05),
    "with exposures": (np.eye(N)[-1] + 0.5 * np.eye(N)[2], 0.4),
}
OBJECTIVES: dict[str, Concave] = {
    "smooth": SMOOTH,
    **{
        name: SMOOTH + Mapped(AtMost((level,)), [row.tolist()])
        for name, (row, level) in ROWS.items()
    },
}


def user(rng: np.random.Generator) -> Any:
    who = rng.normal(size=P)
    return who / (1.01 * np.linalg.norm(who))


class Feedback:
    """What came of a ranking: exposures and rewards by slot."""

    def __init__(self, action: Any, rng: np.random.Generator) -> None:
        self.items = action.tolist()
        self.seen = (rng.random(K) < 0.7).astype(float)
        self.rewards = rng.uniform(LOW, HIGH, (K, 3)) / K * self.seen[:, None]

    def of(self, *stages: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """The reward and the options of `update`."""
        named = {
            name: dict(zip(self.items, self.rewards[:, r].tolist(), strict=True))
            for r, name in enumerate(RANGES)
            if OF[r] in stages
        }
        exposed = [item for item, seen in zip(self.items, self.seen, strict=True) if seen]
        return named, {"exposed": exposed} if 0 in stages else {}

    def tell(self, agent: fw.Agent, decision: Any, *stages: int) -> None:
        named, options = self.of(*stages)
        agent.update(decision, named, **options)

    @property
    def mapping(self) -> dict[str, Any]:
        """All of it, for `update_many`."""
        named, options = self.of(0, 1)
        return named | options


class Model:
    """FWLinUCBRank in stages with ridge regressions that are solved anew, and at most one priced
    row.
    """

    def __init__(self, agent: fw.Agent, name: str) -> None:
        self.row, self.level = ROWS.get(name, (None, math.inf))
        self.price, prices = 0.0, agent._running.prices
        if prices is not None:
            self.width, self.rate, self.cap = prices.widths[0], prices.rates[0], prices.caps[0]
        self.shown: dict[int, Any] = {}  # user, items and chances of exposure of each decision
        self.open: list[set[int]] = [set(), set()]
        self.told: dict[int, dict[int, Feedback]] = {}
        self.learnt: list[dict[int, Feedback]] = [{}, {}]  # by stage: the answered, in order

    def design(self, s: int) -> tuple[Any, Any]:
        """V_s and theta_s."""
        gram, moment = RIDGE * np.eye(P * Q), np.zeros((np.count_nonzero(s == OF), P * Q))
        for n, feedback in self.learnt[s].items():
            who, items, _ = self.shown[n]
            for j in np.flatnonzero(feedback.seen):
                x = np.kron(who, ITEMS[items[j]])
                gram += np.outer(x, x)
                moment += np.outer(feedback.rewards[j, s == OF], x)
        return gram, np.linalg.solve(gram, moment.T).T

    def expected(self, n: int) -> Any:
        """The features of what is expected to be exposed."""
        who, items, chances = self.shown[n]
        return np.kron(who, chances @ ITEMS[items])

    def z(self, counted: bool) -> Any:
        exposures = np.zeros(M)
        for n, feedback in self.learnt[0].items():
            exposures[self.shown[n][1]] += feedback.seen
        for n in self.open[0] if counted else ():
            exposures[self.shown[n][1]] += self.shown[n][2]
        parts = [exposures / max(len(self.learnt[0]) + counted * len(self.open[0]), 1)]
        for s in (0, 1):
            low, high = LOW[s == OF], HIGH[s == OF]
            n, m = len(self.learnt[s]), len(self.open[s]) if counted else 0
            if n == 0:
                parts.append(np.clip(0.0, low, high))
                continue
            _, theta = self.design(s)
            earned = sum(one.rewards[:, s == OF].sum(axis=0) for one in self.learnt[s].values())
            total = m / n * (earned - theta @ sum(self.expected(k) for k in self.learnt[s]))
            for k in self.open[s] if counted else ():
                total = total + theta @ self.expected(k)
            parts.append((earned + np.clip(total, m * low, m * high)) / (n + m))
        return np.concatenate(parts)

    def touch(self, z: Any, t: float) -> float:
        """The price that the gradient at z says, after t answers."""
        width = self.width / math.sqrt(t + 1.0)
        v = self.row @ z - width * self.price
        return float((min(v, self.level) - v) / width)

    def direction(self) -> Any:
        z = self.z(True)
        g = SMOOTH.bind(WHOLE).gradient(z)
        if self.row is not None:
            t = min(len(self.learnt[s]) + len(self.open[s]) for s in (0, 1))
            g = g + self.row * self.touch(z, t)
        return g

    def act(self, number: int, who: Any) -> list[int]:
        g, scores = self.direction(), np.zeros(M)
        x = np.array([np.kron(who, item) for item in ITEMS])
        for s in (0, 1):
            gram, theta = self.design(s)
            low, high = LOW[s == OF] / K, HIGH[s == OF] / K
            level = 2.0 * math.log(3.0 * 3 / DELTA)
            log_det = np.linalg.slogdet(gram / RIDGE)[1]
            alpha = (high - low) / 2.0 * math.sqrt(level + log_det) + math.sqrt(RIDGE)
            width = np.sqrt(np.einsum("ad,de,ae->a", x, np.linalg.inv(gram), x))
            scores += x @ theta.T @ g[M:][s == OF]
            scores += EXPLORATION * (abs(g[M:][s == OF]) @ alpha) * width
        ranking = np.argsort(-(scores + g[:M]), kind="stable")[:K]
        seen = [one.seen for one in self.learnt[0].values()]
        self.shown[number] = who, ranking, np.mean(seen, axis=0) if seen else np.ones(K)
        for s in (0, 1):
            self.open[s].add(number)
        return [int(i) for i in ranking]

    def answer(self, number: int, s: int, feedback: Feedback) -> None:
        told = self.told.setdefault(number, {})
        told[s] = feedback
        if s == 0 or number in self.learnt[0]:
            self.learn(number, s, feedback)
        if s == 0 and 1 in told:
            self.learn(number, 1, told[1])

    def learn(self, number: int, s: int, feedback: Feedback) -> None:
        if self.row is not None:
            first = np.append(np.zeros(M, int), OF)
            uses = [k for k in (0, 1) if self.row[k == first].any()]
            if s in uses and all(k == s or number in self.learnt[k] for k in uses):
                t = min(len(self.learnt[k]) for k in uses)
                g = self.touch(self.z(len(uses) > 1), t)
                moved = self.price + self.rate / (t + 1.0) * (g - self.price)
                self.price = min(max(moved, -self.cap), self.cap)
        self.learnt[s][number] = feedback
        self.open[s].remove(number)


def agree(agent: fw.Agent, model: Model) -> None:
    np.testing.assert_allclose(agent._running.direction(), model.direction(), rtol=0, atol=1e-9)
    np.testing.assert_allclose(agent.average, model.z(False), rtol=0, atol=1e-12)
    counts = [len(learnt) for learnt in model.learnt]
    stages = agent.stats()["stages"]
    assert [one["t"] for one in stages] == counts
    assert agent.t == min(counts)
    assert [one["open"] for one in stages] == [len(open_) for open_ in model.open]
    assert agent.open == len(model.open[0] | model.open[1])
    if agent._running.prices is not None:
        assert agent._running.state.prices[0] == pytest.approx(model.price, abs=1e-9)


@pytest.mark.parametrize("kind", OBJECTIVES)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 9), min_size=20, max_size=100), st.integers(0, 9))
def test_an_agent_is_the_model(kind: str, events: list[int], seed: int) -> None:
    """Rankings, direction, averages and prices, whatever the order of the stages, with expiry,
    answers that come twice, and a save and load in between.
    """
    given: dict[str, Any] = {"smoothing": Identity(), "exploration": EXPLORATION}
    policy = FWLinUCBRank(OBJECTIVES[kind], **given, ridge=RIDGE, delta=DELTA)
    agent = fw.Agent(policy, PROBLEM, items=ITEMS, token="a")
    model, rng = Model(agent, kind), np.random.default_rng(seed)
    made: dict[int, fw.Decision] = {}
    came: dict[int, Feedback] = {}
    for event in events:
        waiting = [
            (n, s) for s in (0, 1) for n in sorted(model.open[s]) if s not in model.told.get(n, {})
        ]
        if event < 4 or not waiting:
            who = user(rng)
            decision = agent.act(who)
            assert decision.action.tolist() == model.act(decision.number, who)
            made[decision.number] = decision
            came[decision.number] = Feedback(decision.action, rng)
            continue
        number, s = waiting[int(rng.integers(len(waiting)))]
        if event == 9 and rng.random() < 0.5:
            agent.expire(made[number], stage=s if rng.random() < 0.5 else STAGES[s][0])
            for stage in (0, 1) if s == 0 else (1,):
                model.open[stage].discard(number)
        elif event == 9:
            agent = fw.Agent.restore(agent.dump(), token="a")
        else:
            came[number].tell(agent, made[number], s)
            model.answer(number, s, came[number])
            with pytest.raises(InvalidInput, match="given already"):
                came[number].tell(agent, made[number], s)
            if s == 1 and number in model.open[1]:  # it is kept
                with pytest.raises(InvalidInput, match="given already"):
                    agent.expire(made[number], stage=1)
        agree(agent, model)
    agree(agent, model)


POLICIES: tuple[Any, ...] = (
    FWLinUCBRank(FAIR),
    FWLinUCBRank(FAIR, exploration=0.0),
    FWLinUCBRank(FAIR + AtMost({"returned": 0.3}), exposure="shown", randomize=0.2),
    FWLinUCBRank(FAIR, iterate="expected", memory=20.0),
    FWLinUCBRank(FAIR, anticipate=False, position_weights=(1.0, 0.7, 0.4)),
    LinUCBRank(),
    UnbiasedLinUCBRank(),
    FairLearnRank(0.3),
)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_answers_that_come_together_are_those_of_one_stage(policy: Any) -> None:
    """Each stage has the design that one stage has; with the same widths the bonus is the same, and
    so are all decisions and numbers, with items that come and go on the way.
    """
    alone, staged = (fw.Agent(policy, p, items=ITEMS, token="a") for p in (WHOLE, PROBLEM))
    rng = np.random.default_rng(0)
    waiting = []
    for t in range(150):
        if t in (50, 90):
            new = rng.uniform(-0.6, 0.6, (2, Q))
            assert alone.add_items(new).tolist() == staged.add_items(new).tolist()
        if t == 70:
            alone.retire([1, 6])
            staged.retire([1, 6])
        who = user(rng)
        one, other = alone.act(who), staged.act(who)
        assert one.action.tolist() == other.action.tolist()
        assert one.probability == other.probability
        waiting.append((one, other, Feedback(one.action, rng)))
        while len(waiting) > 4:
            one, other, feedback = waiting.pop(int(rng.integers(5)))
            if rng.random() < 0.1:
                alone.expire(one)
                staged.expire(other)
                continue
            feedback.tell(alone, one, 0, 1)
            feedback.tell(staged, other, 0, 1)
    assert alone.average.tobytes() == staged.average.tobytes()
    whole, parts = alone._running.state, staged._running.state
    same = ("theta", "moment", "totals", "earned", "clocks", "exposed", "shown", "slots", "live")
    for name in (*same, "weights", "sums", "answered", "prices"):
        assert getattr(whole, name).tobytes() == getattr(parts, name).tobytes(), name
    for s in (0, 1):
        for name in ("gram", "inverse", "learnt", "psi", "phi"):
            assert getattr(whole, name)[0].tobytes() == getattr(parts, name)[s].tobytes(), name


def states(*agents: fw.Agent) -> list[dict[str, bytes]]:
    return [
        {
            name: part.tobytes()
            for name, part in agent._running.state._asdict().items()
            if part is not None
        }
        for agent in agents
    ]


def test_any_order_of_the_stages_of_a_decision_is_the_same() -> None:
    """Together, one after the other, the later first, and in batches of mappings and of arrays."""
    policy = FWLinUCBRank(FAIR + AtMost({"returned": 0.3}))
    agents = [fw.Agent(policy, PROBLEM, items=ITEMS, token="a") for _ in range(6)]
    together, in_turn, backwards, mappings, arrays, batches = agents
    rng = np.random.default_rng(3)
    for _ in range(12):
        users = np.array([user(rng) for _ in range(5)])
        each = [agent.act_many(users) for agent in agents]
        came = [Feedback(decision.action, rng) for decision in each[0]]
        for i, feedback in enumerate(came):
            feedback.tell(together, each[0][i], 0, 1)
            feedback.tell(in_turn, each[1][i], 0)
            feedback.tell(in_turn, each[1][i], 1)
            feedback.tell(backwards, each[2][i], 1)
            before = states(backwards)
            assert backwards._ledger.waiting(each[2][i].number) == [0, 1]
            assert before == states(backwards)
            feedback.tell(backwards, each[2][i], 0)
        mappings.update_many(each[3], [feedback.mapping for feedback in came])
        seen = np.array([feedback.seen for feedback in came])
        rewards = np.array([feedback.rewards for feedback in came])
        arrays.update_many(each[4], Shown(seen, rewards))
        late = [feedback.of(1)[0] for feedback in came]
        first = [feedback.of(0)[0] | feedback.of(0)[1] for feedback in came]
        batches.update_many([*each[5], *each[5]], [*late, *first])
    one, *others = states(*agents)
    for other in others:
        assert other.keys() == one.keys()
        for name, part in one.items():
            assert other[name] == part, name
    assert not any(agent._known for agent in agents)


def test_a_batch_of_one_stage_is_its_answers_in_turn() -> None:
    one, many = (fw.Agent(FWLinUCBRank(FAIR), PROBLEM, items=ITEMS, token="a") for _ in "ab")
    rng = np.random.default_rng(4)
    users = np.array([user(rng) for _ in range(40)])
    single, batch = one.act_many(users), many.act_many(users)
    came = [Feedback(decision.action, rng) for decision in single]
    late = [feedback.of(1)[0] for feedback in came]
    many.update_many(batch[30:], late[30:])
    many.update_many(batch, [feedback.of(0)[0] | feedback.of(0)[1] for feedback in came])
    many.update_many(batch[10:30], late[10:30])
    for i in range(30, 40):
        came[i].tell(one, single[i], 1)
    for stage, numbers in ((0, range(40)), (1, range(10, 30))):
        for i in numbers:
            came[i].tell(one, single[i], stage)
    assert one._running.answered == many._running.answered == (40, 30)
    for name, part in states(one)[0].items():
        mine, theirs = np.frombuffer(part), np.frombuffer(states(many)[0][name])
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("memory", [None, 30.0])
def test_the_exposures_of_groups_have_the_clock_of_the_first_stage(memory: Any) -> None:
    """Later answers leave them alone, where f does not see the later reward; groups come and go."""
    f = TwoSided(ByGroup(GiniEquality(), by="maker"), beta=0.5, users=Linear((1.0, 0.0)))
    ranges = {"clicks": (0, 3), "returned": (0, 3)}
    problem = fw.Problem.ranking(M, K, (P, Q), ranges, stages=(("clicks",), ("returned",)))
    items = [fw.Item(row, maker="ab"[i % 2]) for i, row in enumerate(ITEMS)]
    policy = FWLinUCBRank(f, memory=memory)
    one, other = (fw.Agent(policy, problem, items=items, token="a") for _ in "ab")
    rng = np.random.default_rng(5)
    for t in range(120):
        if t == 40:
            one.retire([1, 3, 5])
            other.retire([1, 3, 5])
        if t == 80:
            new = [fw.Item(row, maker="b") for row in ITEMS[:2]]
            one.add_items(new)
            other.add_items(new)
        who = user(rng)
        mine, theirs = one.act(who), other.act(who)
        assert mine.action.tolist() == theirs.action.tolist()
        if t % 7 == 3:
            continue
        seen = mine.action[: int(rng.integers(0, K + 1))].tolist()
        one.update(mine, exposed=seen, clicked=seen[:1])
        other.update(theirs, exposed=seen, clicked=seen[:1])
        if t % 3:
            other.update(theirs, {"returned": seen[:1]})
    assert one.exposures_by_group() == other.exposures_by_group()
    state, groups = other._running.state, other.exposures_by_group()["maker"]
    assert state.t.tolist() == [103.0, float(sum(t % 7 != 3 and t % 3 > 0 for t in range(120)))]
    if memory is None:
        maker = np.array([*("ab" * 3), "b", "b"])
        totals = state.earned[: maker.size]
        gap = sum(t % 7 != 3 for t in range(40, 80))  # answers while b had no item
        assert groups["a"] == pytest.approx(totals[maker == "a"].sum() / 103, abs=1e-12)
        assert groups["b"] == pytest.approx(totals[maker == "b"].sum() / (103 - gap), abs=1e-12)


def test_a_later_stage_of_a_ranking_from_before_items_came() -> None:
    """It is of the slots that were shown, and leaves the new items alone."""
    agent = fw.Agent(FWLinUCBRank(FAIR), PROBLEM, items=ITEMS)
    rng = np.random.default_rng(6)
    old = [agent.act(user(rng)) for _ in range(8)]
    came = [Feedback(decision.action, rng) for decision in old]
    for i in range(4):
        came[i].tell(agent, old[i], 0)
    came[4].tell(agent, old[4], 1)
    agent.add_items(rng.uniform(-0.5, 0.5, (2, Q)))
    agent.retire([0])
    again = fw.Agent.restore(agent.dump(), token=agent._ledger.token)
    for one in (agent, again):
        for i in range(4):
            came[i].tell(one, old[i], 1)
        came[4].tell(one, old[4], 0)
        one.expire(old[5])
    assert states(agent) == states(again)
    state = agent._running.state
    assert state.t.tolist() == [5.0, 5.0]
    assert state.clocks.tolist() == [5.0] * 6 + [0.0] * 2 + [5.0] * 3
    rewards = sum(feedback.rewards.sum(axis=0) for feedback in came[:5])
    np.testing.assert_allclose(state.earned[-3:], rewards, atol=1e-12)
    assert agent.open == 2


def test_live_numbers_are_of_decisions_that_have_all_stages() -> None:
    agent = fw.Agent(FWLinUCBRank(FAIR), PROBLEM, items=ITEMS)
    rng = np.random.default_rng(2)
    complete = 0
    for t in range(300):
        decision = agent.act(user(rng))
        feedback = Feedback(decision.action, rng)
        feedback.tell(agent, decision, t % 2)
        if t % 3:
            feedback.tell(agent, decision, 1 - t % 2)
            complete += 1
        if t == 80:  # in the first window: later decisions of an earlier one do not count
            assert agent._running.windows.now.numbers[N_DECISIONS] == complete == 54
    assert "Only decisions of which all 2 stages are answered count here" in str(agent.live())


def test_constraints_say_where_no_answers_are() -> None:
    policy = FWLinUCBRank(FAIR + AtMost({"returned": 0.3}))
    agent = fw.Agent(policy, PROBLEM, items=ITEMS)
    rng = np.random.default_rng(2)
    decision = agent.act(user(rng))
    feedback = Feedback(decision.action, rng)
    feedback.tell(agent, decision, 0)
    (one,) = agent.constraints
    assert str(one) == "returned is to be at most 0.3: no answers yet."
    feedback.tell(agent, decision, 1)
    assert agent.constraints[0].average == pytest.approx(feedback.rewards[:, 2].sum())


@pytest.mark.parametrize(
    ("reward", "options", "words"),
    [
        ({"clicks": [0]}, {"exposed": [0, 1]}, "lacks minutes; give all of clicks, minutes"),
        ({"returned": [0]}, {"exposed": [0]}, "lacks clicks, minutes"),
        ({"clicks": [0], "minutes": []}, {}, "the exposed items are missing"),
        ({}, {}, "at least one stage of clicks, minutes | returned, with exposed=ids"),
        (None, {"missing": 0.0}, "at least one stage"),
        ({"klicks": []}, {}, "no reward 'klicks'"),
        ({"returned": None}, {}, "lacks returned; give all of returned"),
        ({"returned": {0: math.nan}}, {}, "'returned' of item 0 is nan"),
        ({"returned": [17]}, {}, "item 17 is given as returned, but was not shown"),
        ({"clicks": [0], "minutes": []}, {"exposed": [1]}, "item 0 earned something"),
        (Shown(np.ones(K), np.full((K, 3), np.nan)), {}, "a Shown answers all stages"),
    ],
)
def test_a_stage_is_answered_whole(reward: Any, options: Any, words: str) -> None:
    agent = fw.Agent(FWLinUCBRank(FAIR), PROBLEM, items=ITEMS)
    decision = agent.act(np.full(P, 0.5), candidates=[0, 1, 2])
    before = agent.dump()
    with pytest.raises(InvalidInput) as error:
        agent.update(decision, reward, **options)
    assert words in str(error.value)
    assert agent._known == {}
    assert agent.stats()["refused"] == 1
    assert fw.Agent.restore(before)._running.state.totals.tobytes() == (
        agent._running.state.totals.tobytes()
    )


def test_missing_rewards_are_of_the_stage_that_is_named() -> None:
    agent = fw.Agent(FWLinUCBRank(FAIR), PROBLEM, items=ITEMS)
    decision = agent.act(np.full(P, 0.5))
    agent.update(decision, {"minutes": None}, missing=0.0)
    assert agent._ledger.waiting(0) == [1]
    assert agent.average.tolist() == [0.0] * N
    agent.update(decision, {"returned": []})
    assert agent.open == 0


def test_what_earned_later_was_exposed() -> None:
    """Whichever stage comes first; the refused one can be given again."""
    agent = fw.Agent(FWLinUCBRank(FAIR), PROBLEM, items=ITEMS)
    first, second = (agent.act(np.full(P, 0.5)) for _ in "ab")
    top, other, _ = first.action.tolist()
    agent.update(first, {"clicks": [top], "minutes": {top: 1.0}}, exposed=[top])
    with pytest.raises(InvalidInput, match="slot 1 earned"):
        agent.update(first, {"returned": [other]})
    agent.update(first, {"returned": [top]})
    top, other, _ = second.action.tolist()
    agent.update(second, {"returned": [other]})
    with pytest.raises(InvalidInput, match="slot 1 earned"):
        agent.update(second, {"clicks": [], "minutes": {}}, exposed=[top])
    assert agent._ledger.waiting(1) == [0, 1]
    agent.update(second, {"clicks": [], "minutes": {}}, exposed=[top, other])
    assert agent.t == 2
    assert agent.averages == {"clicks": 0.5, "minutes": 0.5, "returned": 1.0}


def test_exposures_down_to_the_last_click_are_of_the_first_stage() -> None:
    policy = FWLinUCBRank(FAIR, exposure="until_last_click")
    agent = fw.Agent(policy, PROBLEM, items=ITEMS)
    decision = agent.act(np.full(P, 0.5))
    one, two, three = decision.action.tolist()
    agent.update(decision, {"clicks": [two], "minutes": {}})
    assert agent.average[[one, two, three]].tolist() == [1.0, 1.0, 0.0]
    with pytest.raises(InvalidInput, match="slot 2 earned"):
        agent.update(decision, {"returned": [three]})
    agent.update(decision, {"returned": [one]})
    assert agent.averages["returned"] == 1.0


def test_items_have_keys_in_every_stage() -> None:
    items = {f"sku-{i}": row for i, row in enumerate(ITEMS)}
    agent = fw.Agent(FWLinUCBRank(FAIR), PROBLEM, items=items)
    decision = agent.act(np.full(P, 0.5))
    names = [f"sku-{i}" for i in decision.action.tolist()]
    agent.update(decision, {"returned": {names[0]: 0.5}})
    agent.update(decision, {"clicks": names[:1], "minutes": {}}, exposed=names[:2])
    assert agent.averages == {"clicks": 1.0, "minutes": 0.0, "returned": 0.5}


def test_expiry_by_age_is_of_all_that_is_waited_for() -> None:
    agent = fw.Agent(FWLinUCBRank(FAIR), PROBLEM, items=ITEMS, expires=3)
    rng = np.random.default_rng(1)
    made = [agent.act(user(rng)) for _ in range(2)]
    came = [Feedback(decision.action, rng) for decision in made]
    came[0].tell(agent, made[0], 1)  # kept, and goes with the first
    came[1].tell(agent, made[1], 0)
    agent = fw.Agent.restore(agent.dump(), token=agent._ledger.token)
    assert list(agent._known) == [0, 1]
    made += [agent.act(user(rng)) for _ in range(2)]
    assert [one["expired"] for one in agent.stats()["stages"]] == [1, 1]
    assert list(agent._known) == [1]
    agent.act(user(rng))
    assert [one["expired"] for one in agent.stats()["stages"]] == [1, 2]
    assert agent._known == {}
    with pytest.raises(InvalidInput, match="or the decision has expired"):
        came[0].tell(agent, made[0], 0)


def test_decisions_from_beyond_the_file_are_answered_from_the_first_stage_on() -> None:
    agent = fw.Agent(FWLinUCBRank(FAIR), PROBLEM, items=ITEMS)
    data, rng = agent.dump(), np.random.default_rng(1)
    one, other = agent.act(user(rng)), agent.act(user(rng))
    again = fw.Agent.restore(data)
    first, second = (Feedback(decision.action, rng) for decision in (one, other))
    with pytest.raises(InvalidInput, match="give a later stage together with the first"):
        first.tell(again, one, 1)
    first.tell(again, one, 0, 1)
    with pytest.raises(InvalidInput, match="given already"):
        first.tell(again, one, 1)
    second.tell(again, other, 0)
    with pytest.raises(InvalidInput, match="give a later stage together with the first"):
        second.tell(again, other, 1)
    assert again._running.answered == (2, 1)
    assert again._known == {}


def test_a_file_with_other_tables_is_refused() -> None:
    agent = fw.Agent(FWLinUCBRank(FAIR), PROBLEM, items=ITEMS)
    rng = np.random.default_rng(1)
    decision = agent.act(user(rng))
    agent._known[decision.number] = np.zeros((K, 3))
    with pytest.raises(IncompatibleState, match="known does not fit"):
        fw.Agent.restore(agent.dump())


def test_repair_is_of_all_stages() -> None:
    agent = fw.Agent(FWLinUCBRank(FAIR), PROBLEM, items=ITEMS)
    rng = np.random.default_rng(1)
    for _ in range(30):
        decision = agent.act(user(rng))
        Feedback(decision.action, rng).tell(agent, decision, 0, 1)
    state = agent._running.state
    right = state.inverse.copy()
    for s in (0, 1):
        state.inverse[s] *= 1.1
        assert agent.repair() > 0.01
        np.testing.assert_allclose(state.inverse, right, atol=1e-10)


def test_a_log_has_the_decisions_of_which_all_stages_came(tmp_path: Any) -> None:
    agent = fw.Agent(FWLinUCBRank(FAIR, randomize=0.2), PROBLEM, items=ITEMS)
    agent.log(tmp_path / "log.jsonl")
    rng = np.random.default_rng(0)
    made = [agent.act(user(rng)) for _ in range(9)]
    came = [Feedback(decision.action, rng) for decision in made]
    for i in (0, 1, 2, 3):
        came[i].tell(agent, made[i], 0)
    for i in (5, 6):
        came[i].tell(agent, made[i], 1)
    agent.expire(made[3], stage="returned")
    for i, stage in ((2, 1), (5, 0), (0, 1)):
        came[i].tell(agent, made[i], stage)
    agent.update_many([made[7]], [came[7].mapping])
    assert agent.stats()["logged"] == 4
    agent.log(None)
    header, *rows = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    assert header["problem"]["stages"] == [list(names) for names in STAGES]
    assert [row["number"] for row in rows] == [2, 5, 0, 7]
    for row in rows:
        feedback = came[row["number"]]
        assert row["exposed"] == feedback.seen.tolist()
        earned = [row[f"reward.{name}"] for name in RANGES]
        assert earned == feedback.rewards.T.tolist()
    assert fw.offpolicy.Log.of(tmp_path / "log.jsonl").problem == PROBLEM


def test_study_learns_the_known_stages() -> None:
    agent, other = (fw.Agent(FWLinUCBRank(FAIR), PROBLEM, items=ITEMS) for _ in "ab")
    rng = np.random.default_rng(0)
    batch: Any = agent.act_many(np.array([user(rng) for _ in range(20)]))
    came = [Feedback(decision.action, rng) for decision in batch]
    some = [feedback.mapping for feedback in came[:12]]
    some += [feedback.of(0)[0] | feedback.of(0)[1] for feedback in came[12:]]
    other.study(batch.rows, some)
    agent.update_many(batch, some)
    mine, theirs = agent._running.state, other._running.state
    for name in ("gram", "inverse", "theta", "learnt", "exposed", "shown", "slots"):
        one, another = getattr(mine, name), getattr(theirs, name)
        np.testing.assert_allclose(one, another, rtol=0, atol=1e-12, err_msg=name)
    assert mine.learnt[1, 0] < mine.learnt[0, 0]
    assert (agent.t, other.t) == (12, 0)


class Greedy(Ranker):
    """A ranker with scores in Python."""

    def scores(self, value: Any, width: Any, bonus: float, direction: Any, *counts: Any) -> Any:
        return value + direction


@pytest.mark.parametrize(
    "policy",
    [fw.FrankWolfe(FAIR, Greedy()), fw.FrankWolfe(FAIR, LinUCBRank(), iterate=lambda r, e, t: r)],
    ids=["scores in Python", "iterate in Python"],
)
def test_who_learns_whole_answers_is_refused(policy: Any) -> None:
    words = r"2 stages \(clicks, minutes \| returned\).*learns whole answers.*FWLinUCBRank"
    with pytest.raises(InvalidInput, match=words):
        fw.Agent(policy, PROBLEM)
