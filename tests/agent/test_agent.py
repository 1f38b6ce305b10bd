"""The agent: feedback in any order, each counted once; what is refused changes nothing."""

from __future__ import annotations

import itertools
import json
import queue
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

import fairwolfe as fw
from fairwolfe import Agent, FrankWolfe, MOLinCB, PerArm, Problem
from fairwolfe.agent.file import arrays_of
from fairwolfe.agent.ledger import Ledger, SavedLedger
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB, Thompson, Uniform
from fairwolfe.core.decision import Batch, Decision
from fairwolfe.core.problem import Frozen
from fairwolfe.core.streams import Numbered
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import AtLeast, GiniWelfare, Linear, Minimum, Nash
from fairwolfe.oracles import OnlineGradient
from fairwolfe.smoothing import Randomized

PROBLEM = Problem.arms(3, {"clicks": (0, 1), "minutes": (0, 10)})
nan, inf = float("nan"), float("inf")


def agent(policy: Any = None, problem: Problem = PROBLEM, seed: int = 0) -> Agent:
    return Agent(policy or FrankWolfe(GiniWelfare(), LinUCB()), problem, seed)


def context(rng: np.random.Generator, n_arms: int = 4) -> NDArray[np.float64]:
    return rng.uniform(-0.5, 0.5, (n_arms, 3))


def bits(one: Agent) -> dict[str, bytes]:
    """Everything that may not change when something is refused."""
    state = {name: array.tobytes() for name, array in arrays_of(one._running)}
    ledger, answered = one._ledger.saved()
    counters = repr((ledger, one.out_of_range, sorted(one._warned)))
    generator = repr(one._draws.key)
    rest = {"ledger": counters.encode(), **{k: v.tobytes() for k, v in answered.items()}}
    return state | rest | {"generator": generator.encode()}


# --- the README -------------------------------------------------------------------------------


def test_the_ten_lines_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    context = np.random.default_rng(0).random((7, 12)) / 4
    # fmt: off
    from fairwolfe.objectives import AtMost, Linear

    problem = fw.Problem.arms(n_features=12, rewards={"clicks": (0, 1), "minutes": (0, 120), "cost": (0, .05)})  # noqa: E501
    f = Linear({"clicks": 1., "minutes": .5}) + AtMost({"cost": .01}, penalty=20.)
    agent = fw.Agent(f, problem, seed=0)                                   # or FrankWolfe(f, SquareCB()), ...  # noqa: E501

    decision = agent.act(context)                                          # context: (arms, 12); the number of arms may change  # noqa: E501
    agent.update(decision, {"clicks": 1, "minutes": 3.5, "cost": .004})    # now or tomorrow, in any order  # noqa: E501
    print(decision.action, decision.probability, agent.value, agent.average)
    agent.save("router.fw")
    # fmt: on
    assert " 1.0 2.75 " in capsys.readouterr().out
    assert agent.value == pytest.approx(1.0 + 0.5 * 3.5)
    assert agent.average.tolist() == [1.0, 3.5, 0.004]
    loaded = fw.Agent.load("router.fw")
    assert (loaded.t, loaded.value, loaded.objective) == (1, agent.value, f)
    assert isinstance(loaded.act(context[:3]), Decision)


# --- decisions and feedback -------------------------------------------------------------------


def test_the_agent_is_the_policy_with_its_state_and_stream() -> None:
    policy = FrankWolfe(GiniWelfare(), SquareCB(gamma0=10.0))
    one, rng = agent(policy, seed=3), np.random.default_rng(1)
    state = policy.init(PROBLEM)
    draws: Any = Numbered.of(3, "policy", 0)
    for n_arms in itertools.islice(itertools.cycle([1, 2, 7, 4]), 60):
        given, reward = context(rng, n_arms), rng.random(2)
        mine, plain = one.act(given), policy.act(state, given, draws)
        draws.number += 1
        state = policy.expect(state, plain)
        assert (mine.t, mine.action, mine.probability) == (plain.t, plain.action, plain.probability)
        one.update(mine, reward)
        state = policy.update(state, plain, reward)
    for (name, ours), (_, theirs) in zip(arrays_of(one._running), arrays_of(state), strict=True):
        assert np.array_equal(ours, theirs), name
    assert one.value == GiniWelfare().value(state.average)
    assert (one.t, one.open, one.policy, one.problem) == (60, 0, policy, PROBLEM)


def test_before_any_reward_the_average_is_zero() -> None:
    one = agent(FrankWolfe(AtLeast(0.5, 2.0), LinUCB()))
    assert one.average.tolist() == [0.0, 0.0]
    assert one.value == -2.0
    assert agent(FrankWolfe(Nash(), LinUCB())).value == -inf


def test_the_average_is_a_copy() -> None:
    one = agent()
    one.average[:] = 7.0
    assert one.average.tolist() == [0.0, 0.0]


def test_rewards_by_vector_by_name_and_in_any_numbers() -> None:
    expected = [1.0, 3.5]
    ways: list[Any] = [
        [1, 3.5],
        (True, 3.5),
        np.array([1, 3.5], dtype=np.float32),
        np.array([[1.0, 9.0], [3.5, 9.0]])[:, 0],
        np.array([1.0, 3.5], dtype=">f8"),
        {"minutes": 3.5, "clicks": True},
        Frozen({"clicks": np.float64(1.0), "minutes": 3.5}),
    ]
    frozen = np.array(expected)
    frozen.flags.writeable = False
    for way in [*ways, frozen]:
        one = agent()
        one.update(one.act(np.eye(3)), way)
        assert one.average.tolist() == expected


def test_contexts_that_cannot_be_written_to() -> None:
    one = agent()
    frozen = np.eye(3)
    frozen.flags.writeable = False
    one.update(one.act(frozen), [0.0, 1.0])
    assert one.t == 1


BAD_REWARDS: dict[str, tuple[Any, str]] = {
    "slip": ({"clicks": 1, "minute": 2}, "no reward 'minute'; did you mean 'minutes'?"),
    "slip beside all": ({"clicks": 1, "minutes": 2, "cost": 3}, "no reward 'cost'; known are"),
    "missing": ({"minutes": 2}, "the reward lacks clicks; give all of clicks, minutes"),
    "none named": ({}, "the reward lacks clicks, minutes;"),
    "nan": ([0.5, nan], "the reward 'minutes' is nan; give a finite number"),
    "nan by name": ({"clicks": 1, "minutes": nan}, "the reward 'minutes' is nan; give a finite"),
    "nan in an array": (np.array([nan, 0.0]), "the reward 'clicks' is nan; give a finite number"),
    "nan of NumPy": ({"clicks": 1, "minutes": np.float32(nan)}, "the reward 'minutes' is nan;"),
    "inf by name": ({"clicks": inf, "minutes": 1}, "the reward 'clicks' is inf;"),
    "short": ([1.0], r"the reward has shape \(1,\); give 2 numbers, in the order clicks, minutes"),
    "long": ([1.0, 2.0, 3.0], r"shape \(3,\)"),
    "matrix": ([[1.0, 2.0]], r"shape \(1, 2\)"),
    "number": (1.0, r"shape \(\)"),
    "ragged": ([[1.0], [1.0, 2.0]], r"the reward 'clicks' is \[1\.0\]; give a finite number"),
    "text": (["1.0", "2.0"], r"the reward 'clicks' is '1\.0'; give a finite number"),
    "text by name": ({"clicks": 1, "minutes": "2"}, "the reward 'minutes' is '2'; give a finite"),
    "one text": ("12", "the reward is not an array of numbers: it is '12'; give real numbers"),
    "nothing": ([1.0, None], r"the reward lacks minutes; give all of .*, or missing=0\. to count"),
    "nothing by name": ({"clicks": 1, "minutes": None}, "the reward lacks minutes; give all of"),
    "None": (None, "the reward lacks clicks, minutes; give all of clicks, minutes, or missing=0"),
    "complex": ([0.0, 1j], "the reward 'minutes' is 1j; give a finite number"),
    "complex zeros": (np.zeros(2) + 0j, "the reward 'clicks' is 0j; give a finite number"),
    "masked": (np.ma.array([1.0, 2.0], mask=[False, True]), "the reward 'minutes' is masked;"),
    "masked by name": ({"clicks": 1, "minutes": np.ma.masked}, "the reward 'minutes' is masked;"),
    "enormous": ([0.0, 10**400], "the reward 'minutes' is 1000"),
}


@pytest.mark.parametrize(("reward", "sentence"), BAD_REWARDS.values(), ids=BAD_REWARDS)
def test_bad_rewards_change_nothing(reward: Any, sentence: str) -> None:
    one = agent()
    first, second = one.act(np.eye(3)), one.act(np.eye(3))
    one.update(second, [1.0, 2.0])
    before = bits(one)
    sentence = sentence.replace("?", r"\?")
    with pytest.raises(InvalidInput, match=sentence):
        one.update(first, reward)
    with pytest.raises(InvalidInput, match=sentence):
        one.update_many([first], [reward])
    assert bits(one) == before
    one.update(first, [1.0, 2.0])  # it is still open


@pytest.mark.parametrize(
    "given", [np.ones((2, 4)), np.ones(3), [[nan, 0, 0]], [], [["a", "b", "c"]], PerArm([1.0] * 3)]
)
def test_bad_contexts_change_nothing(given: Any) -> None:
    one = agent()
    before = bits(one)
    with pytest.raises(InvalidInput):
        one.act(given)
    with pytest.raises(InvalidInput):
        one.act_many([np.eye(3), given])
    assert bits(one) == before


def test_given_twice_foreign_and_invented_decisions_change_nothing() -> None:
    one, other = agent(), agent()
    mine, foreign = one.act(np.eye(3)), other.act(np.eye(3))
    one.update(mine, [1.0, 2.0])
    waiting = one.act(np.eye(3))
    before = bits(one)
    raw = one.policy.act(one.policy.init(PROBLEM), np.eye(3), np.random.default_rng(0))
    token = mine.id.rpartition("-")[0]
    cases: list[tuple[Any, str]] = [
        (mine, f"decision '{mine.id}' was given already; it counts once"),
        (foreign, f"decision '{foreign.id}' was made by another agent"),
        (raw, "made by another agent, or by a policy itself"),
        (Decision(f"{token}-9", 0, 0, None, mine.evidence), "is unknown"),
        (Decision(f"{token}--1", 0, 0, None, mine.evidence), "made by another agent"),
        (Decision(f"{token}-x", 0, 0, None, mine.evidence), "made by another agent"),
        (Decision(token, 0, 0, None, mine.evidence), "is unknown"),
        (mine.action, "the decision is [012]; give the Decision that act returned"),
        (mine.to_bytes(), "Decision.from_bytes"),
    ]
    for decision, sentence in cases:
        with pytest.raises(InvalidInput, match=sentence):
            one.update(decision, [1.0, 2.0])
        with pytest.raises(InvalidInput, match=sentence):
            one.update_many([waiting, decision], [[1.0, 2.0], [1.0, 2.0]])
        assert bits(one) == before
    with pytest.raises(InvalidInput, match=f"'{waiting.id}' is given twice"):
        one.update_many([waiting, waiting], [[1.0, 2.0], [1.0, 2.0]])
    with pytest.raises(InvalidInput, match="1 decisions have 2 rewards"):
        one.update_many([waiting], [[1.0, 2.0], [1.0, 2.0]])
    assert bits(one) == before


@pytest.mark.parametrize(
    "change",
    [
        {"x": np.ones((1, 4))},
        {"x": np.ones((1, 0))},
        {"x": np.full((1, 3), nan)},
        {"x": np.full((1, 3), inf)},
        {"x": np.full((1, 3), 1e300)},
        {"g": np.ones((1, 1))},
        {"block": 1},
        {"block": -1},
        {"block": 2**62},
        {"best": nan},
    ],
    ids=str,
)
def test_forged_rows_never_reach_a_kernel(change: dict[str, Any]) -> None:
    """Even those of somebody who has the key: from the file of the agent, say."""
    one = agent()
    for _ in range(64):  # until live numbers are part of the decision
        one.update(one.act(np.eye(3)), [1.0, 2.0])
    made = one.act(np.eye(3))
    rows: Any = made.batch.rows
    assert rows.head["window"].item() >= 0
    rows = rows._replace(head=rows.head.copy())
    for name, value in change.items():
        if name in rows._fields:
            rows = rows._replace(**{name: value})
        else:
            rows.head[name] = value
    forged = Batch(rows, made.token, one._key).to_bytes()
    before = bits(one)
    with pytest.raises(InvalidInput):
        one.update(Decision.from_bytes(forged), [1.0, 2.0])
    with pytest.raises(InvalidInput):
        one.update_many(Batch.from_bytes(forged), [[1.0, 2.0]])
    assert bits(one) == before
    one.update(made, [1.0, 2.0])


def test_out_of_range_is_counted_warned_of_once_and_learnt_as_it_is() -> None:
    one = agent()
    with pytest.warns(
        UserWarning, match="reward 'minutes' is 12; the problem states 0 to 10"
    ) as seen:
        one.update(one.act(np.eye(3)), [0.0, 12.0])
    assert [Path(w.filename).name for w in seen] == ["test_agent.py"]
    one.update(one.act(np.eye(3)), [-4.0, 10.0])
    one.update(one.act(np.eye(3)), [1.0, 0.0])
    assert one.out_of_range == 2
    assert one.average == pytest.approx([-1.0, 22.0 / 3.0])


def test_a_warning_made_an_error_leaves_the_decision_open() -> None:
    one = agent()
    decision = one.act(np.eye(3))
    with pytest.raises(UserWarning, match="reported once"):
        one.update(decision, [0.0, 12.0])
    assert (one.t, one.open, one.out_of_range) == (0, 1, 0)
    one.update(decision, [0.0, 12.0])
    assert (one.t, one.open, one.out_of_range) == (1, 0, 1)


def test_a_warning_made_an_error_leaves_a_whole_batch_open() -> None:
    one = agent()
    made = one.act_many([np.eye(3)] * 3)
    rewards = [[0.0, 1.0], [0.0, 12.0], [-1.0, 0.0]]
    with pytest.raises(UserWarning, match="reported once"):
        one.update_many(made, rewards)
    assert (one.t, one.open, one.out_of_range) == (0, 3, 0)
    one.update_many(made, rewards)
    assert (one.t, one.open, one.out_of_range) == (3, 0, 2)


def test_long_features_are_warned_of_once() -> None:
    one = agent()
    unit = np.full((1, 3), 1.0 / np.sqrt(3.0)) * (1.0 + 1e-12)
    one.act(unit)
    with pytest.warns(UserWarning, match="norm 2 were given; the problem states at most 1") as seen:
        one.act([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    assert [Path(w.filename).name for w in seen] == ["test_agent.py"]
    one.act([[9.0, 0.0, 0.0]])
    with pytest.warns(UserWarning, match="reported once"):
        agent().act_many([unit, 3.0 * unit, 4.0 * unit])
    with warnings.catch_warnings():
        agent(problem=Problem.arms(3, PROBLEM.rewards, feature_norm=2.0)).act(2.0 * unit)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Agent(LinUCB(), PROBLEM), r"one reward; give FrankWolfe\(objective, LinUCB\("),
        (lambda: Agent("linucb", PROBLEM), "the policy is 'linucb'"),
        (lambda: Agent(FrankWolfe(Minimum(), LinUCB()), {"a": (0, 1)}), "Problem.arms"),  # type: ignore[arg-type]
        (lambda: agent(FrankWolfe(Linear((1.0,)), LinUCB())), "Linear has 1 weights"),
        (lambda: agent(seed=-1), "seed is -1"),
    ],
)
def test_what_an_agent_is_made_of_is_checked(make: Callable[[], Agent], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        make()


# --- batches ----------------------------------------------------------------------------------


def test_a_batch_is_made_from_one_state() -> None:
    one, other = agent(), agent()
    rng = np.random.default_rng(0)
    contexts = [context(rng, k) for k in (3, 1, 5)]
    many, single = one.act_many(contexts), [other.act(x) for x in contexts]
    assert [d.action for d in many] == [d.action for d in single]
    assert [int(d.id.rpartition("-")[2]) for d in many] == [0, 1, 2]
    one.update_many(reversed(many), rng.random((3, 2)))
    assert (one.t, one.open) == (3, 0)


def test_advance_spreads_a_batch() -> None:
    """Two arms, each good for one reward: the fair thing is to alternate."""
    problem = Problem.arms(2, {"a": (0, 1), "b": (0, 1)})
    policy = FrankWolfe(Minimum(), LinUCB(exploration=0.01))
    one = agent(policy, problem)
    for _ in range(30):
        decision = one.act(np.eye(2))
        one.update(decision, np.eye(2)[int(decision.action)])
    before = bits(one)
    made = one.act_many([np.eye(2)] * 20, advance=False)
    alike = {d.action for d in made}
    for decision in made:
        one.expire(decision)
    spread = [d.action for d in one.act_many([np.eye(2)] * 20)]
    assert len(alike) == 1
    assert 8 <= sum(int(a == 0) for a in spread) <= 12
    after = bits(one)
    opened = {"state.open", "state.phi", "state.weights"}
    assert {k for k in before if before[k] != after[k]} == {"ledger", "answered"} | opened


@pytest.mark.parametrize(
    "base", [SquareCB(gamma0=50.0), EpsilonGreedy(0.1), Thompson(), LinUCB(model="extended")]
)
def test_advance_draws_as_the_single_decisions_do(base: Any) -> None:
    one, other = (agent(FrankWolfe(GiniWelfare(), base, Randomized(n_samples=2))) for _ in "ab")
    assert one.act_many([np.eye(3)], advance=True)[0].action == other.act(np.eye(3)).action
    many = one.act_many([np.eye(3)] * 4, advance=True)
    assert {d.t for d in many} == {0}
    one.update_many(many, np.ones((4, 2)))
    assert one.t == 4


def test_advance_where_averages_play_no_part() -> None:
    one = agent(MOLinCB(GiniWelfare()))
    assert {d.action for d in one.act_many([np.eye(3)] * 3, advance=True)} == {0}


# --- another objective ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    [
        FrankWolfe(Linear((1.0, 0.0)), LinUCB(exploration=0.1)),
        FrankWolfe(Linear((1.0, 0.0)), SquareCB(gamma0="theorem")),
        FrankWolfe(Minimum(), EpsilonGreedy(0.1), Randomized(n_samples=2)),
        FrankWolfe(Minimum(), LinUCB(model="extended")),
        MOLinCB(Linear((1.0, 0.0))),
    ],
    ids=["linucb", "theory squarecb", "randomized", "extended", "molincb"],
)
def test_replacing_the_objective_keeps_what_was_learnt(policy: Any) -> None:
    one, rng = agent(policy), np.random.default_rng(0)
    for _ in range(40):
        one.update(one.act(context(rng)), rng.random(2))
    waiting = one.act(context(rng))
    before, average = bits(one), one.average
    one.replace_objective(Linear({"minutes": 2.0}))
    # All but the live numbers, which are about f.
    kept = {name: array for name, array in bits(one).items() if "state.live" not in name}
    assert kept == {name: before[name] for name in kept}
    assert one.objective == Linear({"minutes": 2.0})
    assert one.policy == policy.with_objective(Linear({"minutes": 2.0}))
    assert one.value == pytest.approx(2.0 * average[1])
    one.update(waiting, [1.0, 1.0])
    assert one.t == 41
    for wrong in (Linear({"minute": 1.0}), Linear((1.0, 2.0, 3.0)), "gini"):
        before = bits(one)
        with pytest.raises(InvalidInput):
            one.replace_objective(wrong)  # type: ignore[arg-type]
        assert bits(one) == before
        assert one.objective == Linear({"minutes": 2.0})


def test_another_objective_decides_otherwise() -> None:
    problem = Problem.arms(2, {"a": (0, 1), "b": (0, 1)})
    one = agent(FrankWolfe(Linear({"a": 1.0}), LinUCB(exploration=0.01)), problem)
    for arm in [0, 1] * 20:
        one.update(one.act(np.eye(2)[arm : arm + 1]), np.eye(2)[arm])
    assert one.act(np.eye(2)).action == 0
    one.replace_objective(Linear({"b": 1.0}))
    assert one.act(np.eye(2)).action == 1


# --- once, in any order, from two threads -----------------------------------------------------


@pytest.mark.parametrize(
    "base",
    [LinUCB(), SquareCB(gamma0=10.0), EpsilonGreedy(0.2, oracle=OnlineGradient()), Uniform()],
    ids=lambda base: type(base).__name__,
)
def test_any_order_gives_the_same_sums(base: Any) -> None:
    rng = np.random.default_rng(0)
    contexts, rewards = [context(rng) for _ in range(50)], rng.random((50, 2))
    agents = [agent(FrankWolfe(GiniWelfare(), base)) for _ in range(3)]
    orders = [list(range(50)), list(range(49, -1, -1)), rng.permutation(50).tolist()]
    for one, order in zip(agents, orders, strict=True):
        made = one.act_many(contexts)
        for place in order:
            one.update(made[place], rewards[place])
    first = dict(arrays_of(agents[0]._running))
    # Certificates are of the points passed on the way; the steps of OnlineGradient do not add.
    sums = {name for name in first if "state.live" not in name}
    if isinstance(getattr(base, "oracle", None), OnlineGradient):
        sums -= {"state.theta", "state.moment", "state.learnt"}
    for one in agents[1:]:
        assert one.average == pytest.approx(rewards.mean(axis=0), abs=1e-9)
        arrays = dict(arrays_of(one._running))
        assert arrays.keys() == first.keys()
        for name in sums:
            assert np.allclose(arrays[name], first[name], rtol=0.0, atol=1e-9), name
    assert len(sums) >= 5


def test_memory_stays_constant_while_feedback_comes() -> None:
    ledger, largest = Ledger(), 0
    waiting: list[Decision] = []
    rng = np.random.default_rng(0)
    for _ in range(20_000):
        waiting.append(Decision(ledger.issue(), 0, 0, None, ()))
        if len(waiting) > 50:
            late = waiting.pop(int(rng.integers(25)))
            ledger.mark([ledger.entry(late)], (ledger.t + 1,))
            with pytest.raises(InvalidInput, match="given already"):
                ledger.entry(late)
        largest = max(largest, len(ledger.kept[1]))
    assert largest < 100
    assert ledger.open == len(waiting) == 50


def test_an_unanswered_decision_costs_one_bit_for_each_that_follows() -> None:
    ledger = Ledger()
    made = [Decision(ledger.issue(), 0, 0, None, ()) for _ in range(8001)]
    for decision in made[1:]:
        ledger.mark([ledger.entry(decision)], (ledger.t + 1,))
    assert len(ledger.kept[1]) == 1001
    ledger.mark([ledger.entry(made[0])], (ledger.t + 1,))
    assert (len(ledger.kept[1]), ledger.kept[0], ledger.open) == (1, 1000, 0)
    for decision in made:
        with pytest.raises(InvalidInput, match="given already"):
            ledger.entry(decision)


@pytest.fixture
def _hurried() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*work: Callable[[], object]) -> None:
    failures: list[BaseException] = []

    def guarded(task: Callable[[], object]) -> None:
        try:
            task()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(task,)) for task in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.usefixtures("_hurried")
def test_two_threads_lose_nothing(tmp_path: Path) -> None:
    one = agent(FrankWolfe(GiniWelfare(), SquareCB(gamma0=10.0)))
    n = 400
    rewards = np.random.default_rng(0).random((2, n, 2))
    made: list[list[tuple[str, Any]]] = [[], []]

    def work(who: int) -> None:
        rng = np.random.default_rng(who)
        for t in range(n):
            decision = one.act(context(rng))
            one.update(decision, rewards[who, t])
            made[who].append((decision.id, decision.batch.rows.x[0]))
            if t % 100 == 0:
                one.save(tmp_path / f"{who}.fw")
                assert np.isfinite(one.value)

    together(lambda: work(0), lambda: work(1))
    assert (one.t, one.open) == (2 * n, 0)
    assert len({name for name, _ in made[0] + made[1]}) == 2 * n
    assert one.average == pytest.approx(rewards.reshape(-1, 2).mean(axis=0), abs=1e-9)
    rows = np.array([x for _, x in made[0] + made[1]])
    oracle = one._running.base_state.oracle
    assert oracle.gram[0] == pytest.approx(np.eye(3) + rows.T @ rows, abs=1e-9)
    assert oracle.moment[0] == pytest.approx(rewards.reshape(-1, 2).T @ rows, abs=1e-9)
    assert oracle.counters[0] == 2 * n


@pytest.mark.usefixtures("_hurried")
def test_one_thread_acts_another_updates_and_a_third_repeats_it() -> None:
    one, n = agent(), 300
    made: queue.Queue[Decision] = queue.Queue()
    repeats: queue.Queue[Decision] = queue.Queue()
    taken = itertools.count()

    def act() -> None:
        rng = np.random.default_rng(0)
        for _ in range(n):
            decision = one.act(context(rng))
            made.put(decision)
            repeats.put(decision)

    def update(waiting: queue.Queue[Decision]) -> None:
        for _ in range(n):
            with suppress(InvalidInput):
                one.update(waiting.get(timeout=60), [1.0, 2.0])
                next(taken)

    together(act, lambda: update(made), lambda: update(repeats))
    assert next(taken) == n
    assert (one.t, one.open) == (n, 0)
    assert one.average == pytest.approx([1.0, 2.0])


def test_printed() -> None:
    one = agent(MOLinCB(Minimum()))
    one.act(np.eye(3))
    assert repr(one) == (
        "<Agent MOLinCB(objective=Minimum(), ridge=0.1, steps=10, rate=1.0), t = 0, 1 open>"
    )


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_ledger_has_a_bit_for_each_decision(seed: int, stages: int) -> None:
    """And for each stage, against a set of places; full bytes are dropped."""
    ledger, rng = Ledger("a", stages), np.random.default_rng(seed)
    ledger.issued, answered = 90, set[int]()
    for place in rng.permutation(90 * stages).tolist():
        number, stage = divmod(place, stages)
        assert stage in ledger.waiting(number)
        assert ledger.waits(number)
        entry = ledger.entry(Decision(f"a-{number}", 0, 0, None, ()), stage)
        assert entry == (place, None)
        ledger.mark([entry], ledger.more(ledger.answered, [entry]))
        answered.add(place)
        with pytest.raises(InvalidInput, match="given already"):
            ledger.entry(Decision(f"a-{number}", 0, 0, None, ()), stage)
        dropped, bits = ledger.kept
        marks = np.unpackbits(np.frombuffer(bytes(bits), np.uint8), bitorder="little")
        expected = {8 * dropped + i for i in np.flatnonzero(marks)} | set(range(8 * dropped))
        assert expected == answered
        left = set(range(90 * stages)) - answered
        waiting = {place // stages for place in left}
        assert ledger.oldest_open == (90 - min(waiting) if waiting else None)
        assert ledger.open == len(waiting)
        by_stage = tuple(sum(p % stages == s for p in left) for s in range(stages))
        assert ledger.open_stages == by_stage
        assert ledger.t == 90 - max(by_stage)
    numbers, arrays = ledger.saved()
    saved = msgspec.convert(json.loads(json.dumps(numbers)), SavedLedger)
    again = Ledger.loaded(saved, arrays, "a")
    assert (again.issued, again.answered, again.stages) == (90, (90,) * stages, stages)
    assert again.kept[0] == ledger.kept[0]
