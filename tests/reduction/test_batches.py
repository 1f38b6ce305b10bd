"""Many decisions at once are those of one by one, bit for bit, however they are split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.agent.file import arrays_of
from fairwolfe.bandits import EpsilonGreedy, Extended, LinUCB, SquareCB, Thompson
from fairwolfe.core.decision import Batch, Decision
from fairwolfe.core.packing import pack
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Custom, GiniWelfare, Minimum, Nash, TwoSided
from fairwolfe.oracles.linear_regression import SINCE_REFRESH
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank, LinUCBRank, UnbiasedLinUCBRank
from fairwolfe.smoothing import Randomized
from tests.golden.trajectories import Mean

ARMS = fw.Problem.arms(3, {"a": (0, 1), "b": (-1, 2)}, parameter_norm=1.0)
LISTS = fw.Problem.ranking(8, 3, (2, 3), parameter_norm=1.0)
ITEMS = np.random.default_rng(8).random((8, 3)) / 2
FAIR = TwoSided(GiniWelfare(), beta=0.5)
PYTHON = Custom(
    lambda z: float(np.sqrt(z + 2.0).sum()), lambda z: 0.5 / np.sqrt(z + 2.0), smooth=True
)

OF_ARMS: dict[str, Any] = {
    "linucb": fw.FrankWolfe(Minimum(), LinUCB(exploration=0.3)),
    "squarecb": fw.FrankWolfe(GiniWelfare(), SquareCB(gamma0=5.0)),
    "memory": fw.FrankWolfe(GiniWelfare(), EpsilonGreedy(0.2), memory=20.0),
    "extended": fw.FrankWolfe(GiniWelfare(), LinUCB(model="extended", exploration="theorem")),
    "thompson": fw.FrankWolfe(Nash(offset=1.5), Thompson()),
    "samples": fw.FrankWolfe(Minimum(), SquareCB(gamma0=5.0), Randomized(n_samples=2)),
    "python f": fw.FrankWolfe(PYTHON, SquareCB(gamma0=5.0)),
    "python bandit": fw.FrankWolfe(Minimum(), Extended(Mean())),
    "not anticipating": fw.FrankWolfe(Minimum(), SquareCB(gamma0=5.0), anticipate=False),
}
OF_LISTS: dict[str, Any] = {
    "fw": FWLinUCBRank(FAIR, exploration=0.3),
    "fw, swaps": FWLinUCBRank(FAIR, exploration=0.3, randomize=0.3, exposure="until_last_click"),
    "expected": FWLinUCBRank(FAIR, iterate="expected", memory=25.0, exploration="theorem"),
    "floor": FairLearnRank(0.1, exploration="theorem"),
    "unbiased": UnbiasedLinUCBRank(exploration="theorem"),
    "plain": LinUCBRank(exploration="theorem"),
}
POLICIES = {**OF_ARMS, **OF_LISTS}


def agent_of(name: str, **options: Any) -> fw.Agent:
    if name in OF_ARMS:
        return fw.Agent(OF_ARMS[name], ARMS, seed=2, **options)
    return fw.Agent(OF_LISTS[name], LISTS, seed=2, items=ITEMS, **options)


def contexts_of(name: str, n: int, rng: Any) -> Any:
    if name in OF_ARMS:
        return rng.uniform(-0.5, 0.5, (n, 4, 3))
    return rng.random((n, 2)) / 2


def answers_of(name: str, n: int, rng: Any) -> Any:
    """By column."""
    if name in OF_ARMS:
        return rng.uniform(ARMS.low, ARMS.high, (n, 2))
    seen = (rng.random((n, 3)) < 0.6).astype(float)
    return fw.Shown(seen, seen[:, :, None] * (rng.random((n, 3, 1)) < 0.4))


def one_answer(answers: Any, i: int) -> Any:
    return fw.Shown(answers[0][i], answers[1][i]) if isinstance(answers, tuple) else answers[i]


def some_answers(answers: Any, start: int, stop: int) -> Any:
    if isinstance(answers, tuple):
        return fw.Shown(answers[0][start:stop], answers[1][start:stop])
    return answers[start:stop]


def everything(agent: fw.Agent) -> Any:
    arrays = [(name, array.tobytes()) for name, array in arrays_of(agent._running)]
    ledger, bits = agent._ledger.saved()
    counts = {key: ledger[key] for key in ("issued", "answered", "expired")}
    return arrays, counts, str(bits)


def said(decision: Decision) -> Any:
    """All that a decision says, but for the token of its agent."""
    return decision.number, [column.tobytes() for column in _numeric(decision.batch.rows)]


def _numeric(rows: Any) -> list[Any]:
    return [column for column in rows if column.dtype != object]


N = 70


def play(name: str, splits: list[int] | None, **options: Any) -> tuple[Any, Any, Any]:
    """Decisions and the state in the end: one by one (None), or in batches of these sizes."""
    agent, rng = agent_of(name, **options), np.random.default_rng(5)
    contexts, answers = contexts_of(name, N, rng), answers_of(name, N, rng)
    decisions: list[Decision] = []
    if splits is None:
        decisions += [agent.act(context) for context in contexts]
        half = N // 2
        for i in range(half):
            agent.update(decisions[i], one_answer(answers, i))
    else:
        start = 0
        batches = []
        for size in splits:
            batches.append(agent.act_many(contexts[start : start + size]))
            start += size
        decisions += [decision for batch in batches for decision in batch]
        answered, half = 0, N // 2
        for batch in batches:
            part = batch[: half - answered]
            if len(part):
                stop = answered + len(part)
                agent.update_many(part, some_answers(answers, answered, stop))
                answered = stop
    more = [said(agent.act(context)) for context in contexts[:5]]
    return [said(d) for d in decisions], more, everything(agent)


WIDE = fw.Problem.ranking(8, 3, (5, 3), parameter_norm=1.0)


@pytest.mark.parametrize("met", ["nothing", "a refresh", "an inverse that cannot take it"])
def test_rounds_that_the_design_takes_in_together_give_equal_bits(met: str) -> None:
    """With many user features a batch passes over the design once for several rankings, and has to
    catch up where the inverse is computed afresh: after the third of eleven here.
    """
    rng = np.random.default_rng(6)
    users = np.array([0.5 * np.eye(5)[i % 5] + 0.01 * rng.random(5) for i in range(11)])
    users[:5] = 0.5 * np.eye(5)
    shown = np.ones((11, 3))
    answers = fw.Shown(shown, (rng.random((11, 3, 1)) < 0.4).astype(float))
    kept = []
    for together in (True, False):
        agent = fw.Agent(OF_LISTS["fw"], WIDE, seed=2, items=ITEMS)
        oracle = agent._running.base_state.oracle
        made = agent.act_many(users)
        if met == "a refresh":
            oracle.counters[SINCE_REFRESH] = 10_000 - 4
        elif met != "nothing":
            oracle.inverse[0, 9:12, 9:12] *= -1.0  # of the fourth user feature
        if together:
            agent.update_many(made, answers)
        else:
            for i, decision in enumerate(made):
                agent.update(decision, one_answer(answers, i))
        assert (oracle.counters[SINCE_REFRESH] == 11) == (met == "nothing")
        kept.append(everything(agent))
    assert kept[0] == kept[1]


@pytest.mark.parametrize("name", POLICIES)
def test_any_split_gives_equal_bits(name: str) -> None:
    one_by_one = play(name, None)
    for splits in ([N], [1] * N, [1, 30, 2, N - 33]):
        assert play(name, splits) == one_by_one


@pytest.mark.parametrize("name", ["linucb", "fw", "python bandit"])
def test_lists_and_arrays_of_contexts_are_decided_alike(name: str) -> None:
    contexts = contexts_of(name, 6, np.random.default_rng(0))
    given = [agent_of(name).act_many(form) for form in (contexts, list(contexts), tuple(contexts))]
    for batch in given[1:]:
        assert [said(d) for d in batch] == [said(d) for d in given[0]]


def test_contexts_may_differ_in_their_number_of_arms() -> None:
    rng = np.random.default_rng(0)
    contexts = [rng.uniform(-0.5, 0.5, (n, 3)) for n in (2, 5, 1, 3)]
    one, other = agent_of("squarecb"), agent_of("squarecb")
    together, apart = one.act_many(contexts), [other.act(context) for context in contexts]
    assert [said(d) for d in together] == [said(d) for d in apart]
    assert everything(one) == everything(other)


@pytest.mark.parametrize("name", ["fw", "fw, swaps", "floor"])
def test_candidates_blocked_and_pinned_are_those_of_act(name: str) -> None:
    rng = np.random.default_rng(1)
    users = contexts_of(name, 5, rng)
    options: list[dict[str, Any]] = [
        {"candidates": [0, 2, 5, 7]},
        {},
        {"blocked": [1, 3]},
        {"pinned": {1: 4}},
        {"candidates": [7, 6, 5, 4, 3], "blocked": [6], "pinned": {0: 5}},
    ]
    one, other = agent_of(name), agent_of(name)
    apart = [one.act(user, **given) for user, given in zip(users, options, strict=True)]
    by_row: Any = {
        key: [given.get(key) for given in options] for key in ("candidates", "blocked", "pinned")
    }
    together = other.act_many(users, **by_row)
    assert [said(d) for d in together] == [said(d) for d in apart]
    for all_of_them in ({"candidates": [0, 2, 5, 7]}, {"blocked": [1]}, {"pinned": {0: 3}}):
        apart = [one.act(user, **all_of_them) for user in users]
        together = other.act_many(users, **all_of_them)
        assert [said(d) for d in together] == [said(d) for d in apart]
    assert everything(one) == everything(other)


def test_advance_says_whether_each_counts_for_the_next() -> None:
    # Two arms, each good for one reward: a batch that advances shares its decisions among them.
    problem = fw.Problem.arms(2, {"a": (0, 1), "b": (0, 1)})
    contexts = np.broadcast_to(np.eye(2), (40, 2, 2))

    def share(anticipate: bool, advance: bool | None) -> float:
        base = LinUCB(exploration=0.01)
        agent = fw.Agent(fw.FrankWolfe(Minimum(), base, anticipate=anticipate), problem)
        for _ in range(30):
            decision = agent.act(np.eye(2))
            agent.update(decision, np.eye(2)[decision.action])
        return float(np.mean([d.action for d in agent.act_many(contexts, advance)]))

    assert share(True, None) == share(True, True) == share(False, True)
    assert 0.4 <= share(True, None) <= 0.6
    assert share(True, False) == share(False, None) == share(False, False)
    assert share(False, None) in (0.0, 1.0)
    with pytest.raises(InvalidInput, match="advance is 1"):
        agent_of("linucb").act_many(contexts, 1)  # type: ignore[arg-type]


# --- the batch itself -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["linucb", "squarecb", "fw", "fw, swaps"])
def test_a_batch_is_a_sequence_that_travels(name: str) -> None:
    agent, rng = agent_of(name), np.random.default_rng(4)
    batch: Any = agent.act_many(contexts_of(name, 12, rng))
    assert isinstance(batch, Batch)
    assert len(batch) == 12
    assert batch[-1].id == batch[11].id
    assert [d.number for d in batch] == list(range(12))
    with pytest.raises(IndexError):
        batch[12]
    with pytest.raises(InvalidInput, match="step"):
        batch[::2]
    again = Batch.from_bytes(batch.to_bytes())
    assert [d.to_bytes() for d in again] == [d.to_bytes() for d in batch]
    assert [d.to_bytes() for d in again[3:7]] == [d.to_bytes() for d in batch][3:7]
    answers = answers_of(name, 12, rng)
    twin = fw.Agent.restore(agent.dump())
    agent.update_many(batch, answers)
    twin.update_many(again, answers)
    assert everything(agent)[0] == everything(twin)[0]
    with pytest.raises(InvalidInput, match="given already"):
        agent.update_many(batch[5:6], some_answers(answers, 5, 6))


def test_a_ranking_takes_less_than_a_kilobyte() -> None:
    problem = fw.Problem.ranking(50, 10, (10, 10))
    rng = np.random.default_rng(0)
    agent = fw.Agent(
        FWLinUCBRank(FAIR, exploration="theorem"), problem, items=rng.random((50, 10)) / 4
    )
    batch: Any = agent.act_many(rng.random((64, 10)) / 4)
    assert len(batch.to_bytes()) / 64 < 1000
    unexplained: Any = agent.propose(rng.random((64, 10)) / 4, explain=False)
    assert len(unexplained.to_bytes()) / 64 < 600


@pytest.mark.parametrize("name", ["linucb", "fw"])
def test_a_decision_that_is_read_is_the_one_of_act(name: str) -> None:
    contexts = contexts_of(name, 3, np.random.default_rng(5))
    read = agent_of(name).act_many(contexts)[0]
    made = agent_of(name).act(contexts[0])
    assert said(read) == said(made)
    assert read.explain() == made.explain()


# --- bad input --------------------------------------------------------------------------------


def unchanged(agent: fw.Agent, call: Any, words: str) -> None:
    before, refused = everything(agent), agent.stats()["refused"]
    with pytest.raises(InvalidInput, match=words):
        call()
    assert everything(agent) == before
    assert agent.stats()["refused"] in (refused, refused + 1)


@pytest.mark.parametrize("as_list", [True, False])
@pytest.mark.parametrize("name", ["linucb", "fw", "python bandit"])
def test_one_bad_context_makes_none_of_them(name: str, as_list: bool) -> None:
    agent, contexts = agent_of(name), contexts_of(name, 5, np.random.default_rng(6))
    contexts[3].flat[0] = np.nan
    given = list(contexts) if as_list else contexts
    unchanged(agent, lambda: agent.act_many(given), "context 3.*nan")
    assert agent.open == 0


def test_one_bad_shape_is_named() -> None:
    agent = agent_of("linucb")
    unchanged(agent, lambda: agent.act_many([np.eye(3), np.eye(2)]), "context 1")
    for wrong in (7, None, np.zeros((3, 4, 2)), [[1.0, 2.0]]):
        unchanged(agent, lambda wrong=wrong: agent.act_many(wrong), "context")
    assert list(agent.act_many([])) == []


@pytest.mark.parametrize("name", ["linucb", "fw", "python bandit"])
def test_one_bad_answer_applies_none_of_them(name: str) -> None:
    agent, rng = agent_of(name), np.random.default_rng(7)
    batch = agent.act_many(contexts_of(name, 6, rng))
    answers = answers_of(name, 6, rng)
    bad = some_answers(answers, 0, 6)
    if isinstance(bad, tuple):
        bad = fw.Shown(bad[0].copy(), bad[1].copy())
        bad[0][4, 1] = 0.5
        unchanged(agent, lambda: agent.update_many(batch, bad), "answer 4")
    else:
        bad = bad.copy()
        bad[4, 1] = np.inf
        unchanged(agent, lambda: agent.update_many(batch, bad), "answer 4.*inf")
    unchanged(agent, lambda: agent.update_many(batch, some_answers(answers, 0, 5)), "6 decisions")
    unchanged(agent, lambda: agent.update_many(batch, 3), "rewards")
    agent.update(batch[2], one_answer(answers, 2))
    unchanged(agent, lambda: agent.update_many(batch, answers), "given already")
    assert agent.t == 1


def test_batches_of_others_are_refused() -> None:
    one, other = agent_of("linucb"), agent_of("linucb")
    contexts = contexts_of("linucb", 3, np.random.default_rng(8))
    batch = other.act_many(contexts)
    unchanged(one, lambda: one.update_many(batch, np.zeros((3, 2))), "another agent")
    ranks = agent_of("fw").act_many(contexts_of("fw", 3, np.random.default_rng(8)))
    unchanged(one, lambda: one.update_many(ranks, np.zeros((3, 2))), "another agent")


@pytest.mark.parametrize("name", ["linucb", "fw", "python bandit"])
def test_batches_with_other_rows_are_refused(name: str) -> None:
    """Every number of a row is covered by its checksum."""
    agent, rng = agent_of(name), np.random.default_rng(9)
    batch: Any = agent.act_many(contexts_of(name, 4, rng))
    answers = answers_of(name, 4, rng)
    tags = batch._tags(batch.key)
    for field, column in batch.rows._asdict().items():
        if column.dtype == object or not column.size:
            continue
        for part in column.dtype.names or (None,):
            changed = column.copy()
            view = changed if part is None else changed[part]
            view.flat[1 % view.size] += 1
            forged = Batch(batch.rows._replace(**{field: changed}), batch.token, tags=tags)
            data = forged.to_bytes()
            unchanged(
                agent,
                lambda d=data: agent.update_many(Batch.from_bytes(d), answers),
                "checksum|unknown|given already|given twice",
            )
    agent.update_many(Batch.from_bytes(batch.to_bytes()), answers)
    for data in (b"", b"x", batch.to_bytes()[:-3], pack((1, 2, 3))):
        with pytest.raises(InvalidInput):
            Batch.from_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squarecb", "fw"])
def test_a_million_decisions_fold_to_the_same_bits(name: str) -> None:
    # Written as batches and folded again into an agent from the start.
    import time

    rng, rows = np.random.default_rng(10), 500
    agent = agent_of(name)
    start = agent.dump()
    log, used = [], 0
    for _ in range(2000):
        batch: Any = agent.act_many(contexts_of(name, rows, rng))
        answers = answers_of(name, rows, rng)
        agent.update_many(batch, answers)
        log.append((batch.to_bytes(), answers))
        used += len(log[-1][0])
    again = fw.Agent.restore(start)
    began = time.process_time()
    for data, answers in log:
        batch = Batch.from_bytes(data)
        again._running.open_rows(batch.rows)
        read = again._kind.read_feedback_many(batch.actions, answers)
        again._running.learn(batch.rows, read.observation)  # type: ignore[union-attr]
    seconds = time.process_time() - began
    print(f"{name}: 10^6 decisions folded in {seconds:.1f} s, {used / 1e6:.0f} bytes each")
    assert everything(again)[0] == everything(agent)[0]
