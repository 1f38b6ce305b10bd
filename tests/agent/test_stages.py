"""Rewards that arrive in stages: agents against an independent model of `docs/late-feedback.md`."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, Extended, Fixed, LinUCB, SquareCB, Thompson, Uniform
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import AtMost, Linear, Mapped, Nash
from fairwolfe.smoothing import Identity

D, RIDGE, DELTA, EXPLORATION = 3, 0.5, 0.05, 0.3
RANGES = {"clicks": (0.0, 1.0), "margin": (-1.0, 3.0), "returned": (0.0, 1.0)}
STAGES = (("clicks", "margin"), ("returned",))
OF = np.array([0, 0, 1])  # the stage of each reward
LOW, HIGH = np.array(list(RANGES.values())).T
WEIGHTS = np.array([1.0, 0.3, -1.5])
PROBLEM = fw.Problem.arms(D, RANGES, stages=STAGES)
WHOLE = fw.Problem.arms(D, RANGES)
PURE, MIXED = np.array([0.0, 0.0, 1.0]), np.array([-0.4, 0.0, 1.0])
PRICED = {
    "pure": Linear(tuple(WEIGHTS)) + AtMost({"returned": 0.2}),
    "mixed": Linear(tuple(WEIGHTS)) + Mapped(AtMost((0.05,)), [MIXED.tolist()]),
}


def base() -> LinUCB:
    return LinUCB(exploration=EXPLORATION, ridge=RIDGE, delta=DELTA)


class Model:
    """LinUCB in stages with ridge regressions that are solved anew, and at most one priced row."""

    def __init__(self, agent: fw.Agent, row: Any = None, level: float = math.inf) -> None:
        prices = agent._running.prices
        self.row, self.level, self.price = row, level, 0.0
        if prices is not None:
            self.width, self.rate, self.cap = prices.widths[0], prices.rates[0], prices.caps[0]
        self.x: dict[int, Any] = {}
        self.open: list[set[int]] = [set(), set()]
        self.learnt: list[dict[int, Any]] = [{}, {}]  # by stage: the answered, in order

    def design(self, s: int) -> tuple[Any, Any]:
        """V_s and theta_s."""
        x = np.array([self.x[n] for n in self.learnt[s]]).reshape(-1, D)
        r = np.array(list(self.learnt[s].values())).reshape(len(x), np.count_nonzero(s == OF))
        gram = RIDGE * np.eye(D) + x.T @ x
        return gram, np.linalg.solve(gram, x.T @ r).T

    def z(self, counted: bool) -> Any:
        parts = []
        for s in (0, 1):
            low, high = LOW[s == OF], HIGH[s == OF]
            n, m = len(self.learnt[s]), len(self.open[s]) if counted else 0
            if n == 0:
                parts.append(np.clip(0.0, low, high))
                continue
            _, theta = self.design(s)
            earned = sum(self.learnt[s].values())
            total = m / n * (earned - theta @ sum(self.x[k] for k in self.learnt[s]))
            for k in self.open[s] if counted else ():
                total = total + theta @ self.x[k]
            parts.append((earned + np.clip(total, m * low, m * high)) / (n + m))
        return np.concatenate(parts)

    def touch(self, z: Any, t: float) -> float:
        """The price that the gradient at z says, after t answers."""
        width = self.width / math.sqrt(t + 1.0)
        v = self.row @ z - width * self.price
        return float((min(v, self.level) - v) / width)

    def direction(self) -> Any:
        g = WEIGHTS.copy()
        if self.row is not None:
            t = min(len(self.learnt[s]) + len(self.open[s]) for s in (0, 1))
            g += self.row * self.touch(self.z(True), t)
        return g

    def act(self, number: int, context: Any) -> int:
        g, scores = self.direction(), np.zeros(len(context))
        for s in (0, 1):
            gram, theta = self.design(s)
            low, high = LOW[s == OF], HIGH[s == OF]
            level = 2.0 * math.log(2.0 * 3 / DELTA)
            log_det = np.linalg.slogdet(gram / RIDGE)[1]
            norms = np.maximum(abs(low), abs(high))
            alpha = (high - low) / 2.0 * math.sqrt(level + log_det) + math.sqrt(RIDGE) * norms
            width = np.sqrt(np.einsum("ad,de,ae->a", context, np.linalg.inv(gram), context))
            scores += context @ theta.T @ g[s == OF]
            scores += EXPLORATION * (abs(g[s == OF]) @ alpha) * width
        arm = int(scores.argmax())
        self.x[number] = context[arm]
        for s in (0, 1):
            self.open[s].add(number)
        return arm

    def answer(self, number: int, s: int, reward: Any) -> None:
        if self.row is not None:
            uses = [k for k in (0, 1) if self.row[k == OF].any()]
            if s in uses and all(k == s or number in self.learnt[k] for k in uses):
                t = min(len(self.learnt[k]) for k in uses)
                g = self.touch(self.z(len(uses) > 1), t)
                moved = self.price + self.rate / (t + 1.0) * (g - self.price)
                self.price = min(max(moved, -self.cap), self.cap)
        self.learnt[s][number] = reward
        self.open[s].remove(number)


def agree(agent: fw.Agent, model: Model) -> None:
    np.testing.assert_allclose(agent._running.direction(), model.direction(), rtol=0, atol=1e-9)
    np.testing.assert_allclose(agent.average, model.z(False), rtol=0, atol=1e-12)
    counts = [len(learnt) for learnt in model.learnt]
    stats = agent.stats()
    assert [one["t"] for one in stats["stages"]] == counts
    assert agent.t == min(counts)
    assert [one["open"] for one in stats["stages"]] == [len(open_) for open_ in model.open]
    assert agent.open == len(model.open[0] | model.open[1])
    if agent._running.prices is not None:
        assert agent._running.state.prices[0] == pytest.approx(model.price, abs=1e-9)


@pytest.mark.parametrize("kind", ["linear", "pure", "mixed"])
@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 9), min_size=20, max_size=120), st.integers(0, 9))
def test_an_agent_is_the_model(kind: str, events: list[int], seed: int) -> None:
    """Decisions, direction, averages and prices, whatever the order of the stages, with expiry,
    answers that come twice, and a save and load in between.
    """
    f = PRICED.get(kind, Linear(tuple(WEIGHTS)))
    agent = fw.Agent(fw.FrankWolfe(f, base(), Identity()), PROBLEM, token="a")
    row, level = {"pure": (PURE, 0.2), "mixed": (MIXED, 0.05)}.get(kind, (None, math.inf))
    model, rng = Model(agent, row, level), np.random.default_rng(seed)
    made: dict[int, fw.Decision] = {}
    for event in events:
        waiting = [(n, s) for s in (0, 1) for n in sorted(model.open[s])]
        if event < 4 or not waiting:
            context = rng.normal(size=(4, D))
            context /= 1.01 * np.linalg.norm(context, axis=1).max()
            decision = agent.act(context)
            assert decision.action == model.act(decision.number, context)
            made[decision.number] = decision
            continue
        number, s = waiting[int(rng.integers(len(waiting)))]
        if event == 9 and rng.random() < 0.5:
            agent.expire(made[number], stage=s if rng.random() < 0.5 else STAGES[s][0])
            model.open[s].remove(number)
        elif event == 9:
            agent = fw.Agent.restore(agent.dump(), token="a")
        else:
            reward = rng.uniform(LOW, HIGH)[s == OF]
            named = dict(zip(STAGES[s], reward.tolist(), strict=True))
            agent.update(made[number], named)
            model.answer(number, s, reward)
            with pytest.raises(InvalidInput, match="given already"):
                agent.update(made[number], named)
        agree(agent, model)
    agree(agent, model)


def test_several_stages_at_once_are_the_same_one_after_the_other() -> None:
    """In `update`, and in `update_many` of mappings and of arrays, to the bit."""
    f = PRICED["mixed"]
    agents = [fw.Agent(fw.FrankWolfe(f, base()), PROBLEM, token="a") for _ in range(4)]
    rng = np.random.default_rng(3)
    for _ in range(20):
        contexts = rng.normal(size=(5, 4, D)) / 4.0
        rewards = rng.uniform(LOW, HIGH, size=(5, 3))
        each, at_once, mappings, arrays = (agent.act_many(contexts) for agent in agents)
        for i in range(5):
            first, second = dict(zip(RANGES, rewards[i], strict=True)), {}
            second["returned"] = first.pop("returned")
            agents[0].update(each[i], first)
            agents[0].update(each[i], second)
            agents[1].update(at_once[i], first | second)
        agents[2].update_many(mappings, [dict(zip(RANGES, r, strict=True)) for r in rewards])
        agents[3].update_many(arrays, rewards)
        parts = [{k: agent.dump() for k in "x"}["x"] for agent in agents]
        states = [agent._running.state for agent in agents]
        for state in states[1:]:
            for name, one, other in zip(state._fields, states[0], state, strict=True):
                assert one is None or one.tobytes() == other.tobytes(), name
        assert len({len(part) for part in parts}) == 1


def test_a_batch_of_one_stage_is_its_answers_in_turn() -> None:
    one, many = (fw.Agent(fw.FrankWolfe(PRICED["pure"], base()), PROBLEM, token="a") for _ in "ab")
    rng = np.random.default_rng(4)
    contexts = rng.normal(size=(40, 4, D)) / 4.0
    rewards = [{"clicks": rng.random(), "margin": rng.random()} for _ in range(40)]
    late = [{"returned": rng.random()} for _ in range(40)]
    batch, single = many.act_many(contexts), one.act_many(contexts)
    many.update_many(batch, rewards)
    many.update_many(batch[10:], late[10:])
    for i in range(40):
        one.update(single[i], rewards[i])
    for i in range(10, 40):
        one.update(single[i], late[i])
    assert one.dump() == many.dump()


BASES = (
    base(),
    LinUCB(exploration="pointwise"),
    SquareCB(gamma0=100.0),
    SquareCB(),
    EpsilonGreedy(0.1),
    EpsilonGreedy(0.1, oracle=fw.oracles.OnlineGradient()),
    Thompson(),
    Uniform(),
    Fixed(1),
)


@pytest.mark.parametrize("rule", BASES, ids=repr)
def test_answers_that_come_together_leave_the_designs_of_one_stage(rule: Any) -> None:
    """Each stage has the V and theta that one stage has; with the same V widths add up, and
    SquareCB counts the same answers, so that its decisions are the same too.
    """
    f = Nash(offset=1.5)
    alone, staged = (fw.Agent(fw.FrankWolfe(f, rule), p, token="a") for p in (WHOLE, PROBLEM))
    rng = np.random.default_rng(0)
    same_draws = not isinstance(rule, Thompson)
    for _ in range(150):
        context, reward = rng.uniform(-0.5, 0.5, size=(4, D)), rng.uniform(LOW, HIGH)
        one, other = alone.act(context), staged.act(context)
        assert one.action == other.action or not same_draws
        alone.update(one, reward)
        staged.update(other, reward)
    if not same_draws:
        return
    whole, parts = alone._running.state, staged._running.state
    assert alone.average.tobytes() == staged.average.tobytes()
    assert whole.theta.tobytes() == parts.theta.tobytes()
    for s in (0, 1):
        assert whole.gram[0].tobytes() == parts.gram[s].tobytes()
        assert whole.inverse[0].tobytes() == parts.inverse[s].tobytes()
        assert whole.learnt[0].tobytes() == parts.learnt[s].tobytes()
        assert whole.psi[0].tobytes() == parts.psi[s].tobytes()


def test_stages_have_their_own_designs_with_blocks_of_arms() -> None:
    """PerArm contexts, some arms of them: against a regression of each stage and arm."""
    problem = fw.Problem.arms(2, RANGES, n_arms=4, stages=STAGES)
    for rule in (base(), LinUCB(exploration="pointwise"), Thompson(), SquareCB(gamma0=10.0)):
        agent = fw.Agent(fw.FrankWolfe(Linear(tuple(WEIGHTS)), rule), problem)
        rng = np.random.default_rng(1)
        pairs: dict[tuple[int, int], list[tuple[Any, Any]]] = {}
        for t in range(80):
            x, reward = rng.uniform(-0.7, 0.7, size=2), rng.uniform(LOW, HIGH)
            some = rng.permutation(4)[: 2 + t % 3].tolist()
            decision = agent.act(fw.PerArm(x), candidates=some)
            assert decision.action in some
            for s in (0, 1) if t % 3 else (0,):
                named = {name: reward[i] for i, name in enumerate(RANGES) if OF[i] == s}
                agent.update(decision, named)
                pairs.setdefault((s, decision.action), []).append((x, reward[s == OF]))
        ridge = 0.5 if rule == base() else 1.0
        for (s, arm), seen in pairs.items():
            x, r = (np.array(column) for column in zip(*seen, strict=True))
            gram = ridge * np.eye(2) + x.T @ x
            np.testing.assert_allclose(agent._running.state.gram[s, arm], gram, atol=1e-12)
            theta = agent._running.state.theta[arm, s == OF]
            np.testing.assert_allclose(theta, np.linalg.solve(gram, x.T @ r).T, atol=1e-9)


def test_live_numbers_are_of_decisions_that_have_all_stages() -> None:
    """Those of an agent of one stage that is told the same decisions when they are complete."""
    policy = fw.FrankWolfe(Linear(tuple(WEIGHTS)), Uniform())
    agent, whole = (fw.Agent(policy, problem, token="a") for problem in (PROBLEM, WHOLE))
    rng = np.random.default_rng(2)
    waiting: list[Any] = []
    complete = 0
    for _ in range(600):
        context, reward = rng.uniform(-0.5, 0.5, size=(4, D)), rng.uniform(LOW, HIGH)
        decision, other = agent.act(context), whole.act(context)
        agent.update(decision, dict(zip(STAGES[0], reward[:2].tolist(), strict=True)))
        waiting.append((decision, other, reward))
        if len(waiting) > 30:
            late, other, reward = waiting.pop(int(rng.integers(30)))
            if rng.random() < 0.1:
                agent.expire(late, stage="returned")
                whole.expire(other)
            else:
                agent.update(late, {"returned": reward[2]})
                whole.update(other, reward)
                complete += 1
    mine, theirs = agent._running.windows, whole._running.windows
    assert mine.decisions == theirs.decisions > 300
    for one, another in ((mine.now, theirs.now), (mine.before, theirs.before)):
        assert one.rewards.tolist() == another.rewards.tolist()
    live = agent.live()
    assert "Only decisions of which all 2 stages are answered count here" in str(live)
    assert agent.stats()["stages"][0]["t"] == 600
    assert agent.t == complete


def test_constraints_say_where_no_answers_are() -> None:
    agent = fw.Agent(fw.FrankWolfe(PRICED["pure"], base()), PROBLEM)
    decision = agent.act(np.eye(D))
    agent.update(decision, {"clicks": 1, "margin": 3.0})
    (one,) = agent.constraints
    assert str(one) == "returned is to be at most 0.2: no answers yet."
    assert agent.t == 0
    assert agent.average.tolist() == [1.0, 3.0, 0.0]
    agent.update(decision, {"returned": 0})
    assert agent.constraints[0].average == 0.0
    assert agent.t == 1


def test_before_the_first_answer_an_average_is_0_clipped_to_the_range() -> None:
    problem = fw.Problem.arms(
        2, {"a": (0, 1), "b": (2, 5), "c": (-3, -1)}, stages=(["a"], ["b"], ["c"])
    )
    agent = fw.Agent(fw.FrankWolfe(Linear((1.0, 1.0, 1.0)), base()), problem)
    assert agent.average.tolist() == [0.0, 2.0, -1.0]
    agent.update(agent.act(np.eye(2)), {"b": 3})
    assert agent.average.tolist() == [0.0, 3.0, -1.0]


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        ({"clicks": 1}, "lacks margin; give all of clicks, margin"),
        ({}, "at least one stage of clicks, margin | returned"),
        ({"klicks": 1}, "no reward 'klicks'"),
        ({"clicks": 1, "margin": math.nan}, "'margin' is nan"),
        ({"returned": None}, "lacks returned"),
        ([1.0, 2.0], "has shape"),
        ([1.0, 2.0, math.nan], "'returned' is nan"),
    ],
)
def test_a_stage_is_answered_whole(reward: Any, words: str) -> None:
    agent = fw.Agent(fw.FrankWolfe(Linear(tuple(WEIGHTS)), base()), PROBLEM)
    decision = agent.act(np.eye(D))
    before = agent._running.state.copy()
    with pytest.raises(InvalidInput) as error:
        agent.update(decision, reward)
    assert words in str(error.value)
    with pytest.raises(InvalidInput, match="answer 1"):
        agent.update_many([agent.act(np.eye(D)), decision], [[1.0, 1.0, 0.0], reward])
    assert agent.t == 0
    assert before.totals.tobytes() == agent._running.state.totals.tobytes()
    agent.update(decision, {"clicks": 1}, missing=0.0)  # the stage that is named
    assert agent._ledger.waiting(0) == [1]


class Mean:
    """A bandit for one reward."""

    def init(self, n_features: int) -> Any:
        return ()

    def act(self, state: Any, features: Any, rng: Any) -> tuple[int, float]:
        return 0, 1.0

    def update(self, state: Any, *answer: Any) -> Any:
        return state


class Outsider:
    """A policy of an author."""

    def init(self, problem: Any) -> Any:
        return ()

    def act(self, state: Any, context: Any, rng: Any) -> Any:
        raise NotImplementedError

    def update(self, state: Any, decision: Any, feedback: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    "policy",
    [
        fw.Guarded(
            fw.FrankWolfe(Linear(tuple(WEIGHTS)), base()),
            fw.FrankWolfe(Linear((1.0, 0, 0)), Fixed()),
        ),
        fw.MOLinCB(Linear(tuple(WEIGHTS))),
        fw.FrankWolfe(Linear(tuple(WEIGHTS)), LinUCB(model="extended")),
        fw.FrankWolfe(Linear(tuple(WEIGHTS)), Extended(Mean())),
        fw.FrankWolfe(Linear(tuple(WEIGHTS)), base(), iterate=lambda r, e, t: r),
        Outsider(),
    ],
    ids=lambda policy: type(policy).__name__,
)
def test_who_learns_whole_answers_is_refused(policy: Any) -> None:
    with pytest.raises(InvalidInput, match=r"2 stages \(clicks, margin \| returned\)"):
        fw.Agent(policy, PROBLEM)


def test_a_row_that_mixes_stages_needs_open_decisions() -> None:
    for name, right in (("pure", True), ("mixed", False)):
        policy = fw.FrankWolfe(PRICED[name], base(), anticipate=False)
        if right:
            fw.Agent(policy, PROBLEM)
            continue
        with pytest.raises(InvalidInput, match="use anticipate=True"):
            fw.Agent(policy, PROBLEM)


def test_expiry_by_age_is_of_all_that_is_waited_for() -> None:
    agent = fw.Agent(fw.FrankWolfe(Linear(tuple(WEIGHTS)), base()), PROBLEM, expires=4)
    made = [agent.act(np.eye(D)) for _ in range(2)]
    agent.update(made[0], {"returned": 1})
    again = fw.Agent.restore(agent.dump())
    made += [again.act(np.eye(D)) for _ in range(3)]
    assert [one["expired"] for one in again.stats()["stages"]] == [1, 0]
    assert (again.open, again.stats()["oldest_open"]) == (4, 4)
    with pytest.raises(InvalidInput, match="or the decision has expired"):
        again.update(made[0], {"clicks": 1, "margin": 0})
    again.update(made[1], {"clicks": 1, "margin": 0})
    with pytest.raises(InvalidInput, match="a number from 0 to 1, or a reward"):
        again.expire(made[1], stage="minutes")
    again.expire(made[1])
    assert [one["expired"] for one in again.stats()["stages"]] == [1, 1]


def test_decisions_from_beyond_the_file_are_answered_stage_by_stage() -> None:
    agent = fw.Agent(fw.FrankWolfe(Linear(tuple(WEIGHTS)), base()), PROBLEM)
    data = agent.dump()
    decisions = [agent.act(np.eye(D)) for _ in range(2)]
    again = fw.Agent.restore(data)
    for decision, stages in zip(decisions, ((0, 1), (1, 0)), strict=True):
        for s in stages:
            reward = dict.fromkeys(STAGES[s], 0.5)
            again.update(decision, reward)
            with pytest.raises(InvalidInput, match="given already"):
                again.update(decision, reward)
    assert again._running.answered == (2, 2)


def test_a_log_has_the_decisions_of_which_all_stages_came(tmp_path: Any) -> None:
    agent = fw.Agent(fw.FrankWolfe(Linear(tuple(WEIGHTS)), SquareCB(gamma0=10.0)), PROBLEM)
    agent.log(tmp_path / "log.jsonl")
    rng = np.random.default_rng(0)
    made = [agent.act(rng.uniform(-0.5, 0.5, size=(4, D))) for _ in range(9)]
    for i, decision in enumerate(made):
        agent.update(decision, {"clicks": 1, "margin": 0.1 * i})
    for i in (4, 2, 7):
        agent.update(made[i], {"returned": 0.1 * i})
    agent.expire(made[3], stage="returned")
    assert agent.stats()["logged"] == 3
    agent.log(None)
    header, *rows = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    assert header["problem"]["stages"] == [list(names) for names in STAGES]
    assert [row["number"] for row in rows] == [4, 2, 7]
    assert [[row[f"reward.{name}"] for name in RANGES] for row in rows] == [
        [1.0, 0.1 * i, 0.1 * i] for i in (4, 2, 7)
    ]
    log = fw.offpolicy.Log.of(tmp_path / "log.jsonl")
    assert log.problem == PROBLEM


@pytest.mark.filterwarnings("ignore:the reward 'margin'")
def test_update_stage_learns_what_update_learns_and_keeps_nothing() -> None:
    rng = np.random.default_rng(4)
    agents = [fw.Agent(fw.FrankWolfe(PRICED["pure"], base()), PROBLEM, token="a") for _ in "ab"]
    plain, lean = agents
    rewards = rng.uniform(LOW, HIGH, (40, 3))
    rewards[7, 1] = 9.0  # outside its range: counted
    known = np.full((40, 3), np.nan)
    contexts = rng.uniform(-0.5, 0.5, (40, 4, D))
    made = [agent.act_many(contexts) for agent in agents]
    for stage, numbers in ((1, range(10)), (0, range(20)), (1, range(10, 40)), (0, range(20, 40))):
        for n in numbers:
            told = {name: rewards[n, list(RANGES).index(name)] for name in STAGES[stage]}
            plain.update(made[0][n], told)
        rows = slice(numbers[0], numbers[-1] + 1)
        known[rows, stage == OF] = rewards[rows, stage == OF]
        lean.update_stage(made[1][rows], stage, known[rows])
        assert not lean._known
        assert lean.stats() == plain.stats()
    assert lean.out_of_range == 1
    assert lean.dump() == plain.dump()


@pytest.mark.parametrize("bad", ["again", "unknown", "shape"])
def test_update_stage_refuses_and_changes_nothing(bad: str) -> None:
    agent = fw.Agent(fw.FrankWolfe(PRICED["pure"], base()), PROBLEM)
    made = agent.act_many(np.full((3, 2, D), 0.2))
    rewards = np.full((2, 3), 0.5)
    agent.update_stage(made[:1], 0, rewards[:1])
    before = agent.dump()
    if bad == "unknown":
        rewards[1, 2] = np.nan
    stage = 0 if bad == "again" else 1
    if bad == "shape":
        rewards = rewards[:, 1:]
    with pytest.raises(InvalidInput):
        agent.update_stage(made[:2], stage, rewards)
    assert agent.dump() == before
    agent.update_stage(made[1:], 0, np.full((2, 3), 0.5))
