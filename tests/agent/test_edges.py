"""Where features of an agent meet: batches and files, expiry and refusals, forged batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.agent.file import arrays_of
from fairwolfe.bandits import LinUCB, SquareCB
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Custom, GiniWelfare, Minimum, TwoSided
from fairwolfe.ranking import FWLinUCBRank

PROBLEM = fw.Problem.arms(2, {"clicks": (0, 1), "saves": (0, 1)})
CONTEXT = np.array([[0.6, 0.1], [0.2, 0.7]])
CONTEXTS = np.stack([CONTEXT] * 3)
REWARDS = np.full((3, 2), 0.5)
LISTS = fw.Problem.ranking(6, 2, (2, 2))


def agent(**options: Any) -> fw.Agent:
    return fw.Agent(fw.FrankWolfe(Minimum(), LinUCB()), PROBLEM, **options)


def ranker() -> fw.Agent:
    items = np.random.default_rng(0).random((6, 2)) / 2
    return fw.Agent(FWLinUCBRank(TwoSided(GiniWelfare())), LISTS, items=items)


def forged(one: fw.Agent, decisions: Any, **changes: Any) -> fw.Batch:
    """Bytes of somebody who has the key of the agent, read back: with other columns, or other
    fields of the head.
    """
    batch = decisions if isinstance(decisions, fw.Batch) else decisions.batch
    rows: Any = batch.rows._replace(head=batch.rows.head.copy())
    for name, value in changes.items():
        if name in rows._fields:
            rows = rows._replace(**{name: np.asarray(value)})
        else:
            rows.head[name] = value
    return fw.Batch.from_bytes(fw.Batch(rows, batch.token, one._key).to_bytes())


def everything(one: fw.Agent) -> Any:
    arrays = [(name, array.tobytes()) for name, array in arrays_of(one._running)]
    return arrays, str(one._ledger.saved()), list(one._young)


def unchanged(one: fw.Agent, call: Any) -> None:
    before = everything(one)
    with pytest.raises(InvalidInput):
        call()
    assert everything(one) == before


def test_a_batch_made_after_the_save_is_answered_once() -> None:
    first = agent()
    saved = first.dump()
    batch: Any = first.act_many(CONTEXTS)
    again = fw.Agent.restore(saved)
    again.update_many(fw.Batch.from_bytes(batch.to_bytes()), REWARDS)
    assert (again.t, again.open, again._running.open) == (3, 0, 0)
    unchanged(again, lambda: again.update_many(batch, REWARDS))


WILD: list[dict[str, Any]] = [
    {"x": np.full((1, 2), np.nan)},
    {"x": np.full((1, 2), np.inf)},
    {"x": np.full((1, 2), 1e300)},
    {"x": np.zeros((1, 3))},
    {"block": 1},
    {"block": -1},
    {"probability": 2.0},
    {"score": np.nan},
]


@pytest.mark.parametrize("change", WILD, ids=str)
def test_a_refused_expiry_changes_nothing(change: dict[str, Any]) -> None:
    one = agent()
    for i in range(4):
        one.update(one.act(CONTEXT), [i % 2, 1 - i % 2])
    decision, other = one.act(CONTEXT), one.act(CONTEXT)
    unchanged(one, lambda: one.expire(forged(one, decision, **change)[0]))
    one.update(other, [1.0, 0.0])
    one.expire(decision)
    assert one.open == one._running.open == 0


@pytest.mark.parametrize("items", [[-1, 1], [99, 1], [1], [2**62, 0]], ids=str)
def test_a_refused_expiry_of_a_ranking_changes_nothing(items: Any) -> None:
    one = ranker()
    decision = one.act([0.3, 0.4])
    unchanged(one, lambda: one.expire(forged(one, decision, items=[items])[0]))
    unchanged(one, lambda: one.expire(forged(one, decision, size=99)[0]))
    unchanged(one, lambda: one.expire(forged(one, decision, size=-1)[0]))
    unchanged(one, lambda: one.expire(forged(one, decision, user=np.full((1, 2), np.nan))[0]))
    unchanged(one, lambda: one.expire(forged(one, decision, exposure=[[np.inf, 0.0]])[0]))
    one.expire(decision)
    assert one.open == one._running.open == 0


def test_what_a_refused_batch_held_expires_all_the_same() -> None:
    one = agent(expires=2)
    first, second = one.act(CONTEXT), one.act(CONTEXT)
    bad = [first, forged(one, second, block=99)[0]]
    unchanged(one, lambda: one.update_many(bad, [[1, 0], [0, 1]]))
    for _ in range(5):
        one.act(CONTEXT)
    assert one.open == one._running.open == 2


def test_an_answer_from_beyond_a_file_is_not_that_of_a_namesake() -> None:
    first = agent(expires=2)
    first.act(CONTEXT)
    saved, late = first.dump(), first.act(CONTEXT)
    again = fw.Agent.restore(saved)
    again.act(CONTEXT)  # the same number under another token
    again.update(late, [1.0, 0.0])
    for _ in range(6):
        again.act(CONTEXT)
    assert again.open == again._running.open == 2


@pytest.mark.parametrize("expires", [1, 3, 5, 20, 40])
def test_many_are_one_by_one_where_decisions_expire(expires: int) -> None:
    rng = np.random.default_rng(0)
    contexts, rewards = rng.uniform(0, 0.6, (40, 3, 2)), rng.random((5, 2))

    def play(many: bool) -> Any:
        policy = fw.FrankWolfe(Minimum(), SquareCB(gamma0=10.0))
        one = fw.Agent(policy, PROBLEM, expires=expires)
        first = one.act_many(contexts[:5])
        for decision, reward in zip(first, rewards, strict=True):
            if one._ledger.waits(decision.number):
                one.update(decision, reward)
        rest = contexts[5:]
        made = one.act_many(rest) if many else [one.act(context) for context in rest]
        return [(d.action, d.probability) for d in made], everything(one)[0], one.stats()

    assert play(True) == play(False)


def test_a_batch_from_one_state_is_that_whether_or_not_decisions_expire() -> None:
    # Two arms, each good for one reward: made from one state, all decisions are alike.
    for anticipate, advance, spread in ((True, False, 1), (False, None, 1), (False, True, 2)):
        policy = fw.FrankWolfe(Minimum(), LinUCB(exploration=0.01), anticipate=anticipate)
        one = fw.Agent(policy, PROBLEM, expires=5)
        for _ in range(30):
            decision = one.act(np.eye(2))
            one.update(decision, np.eye(2)[int(decision.action)])
        made = one.act_many(np.broadcast_to(np.eye(2), (20, 2, 2)), advance)
        assert len({int(d.action) for d in made}) == spread
        assert one.open == 5


def test_a_batch_survives_another_objective() -> None:
    smooth = Custom(lambda z: float(np.sqrt(z + 0.1).sum()), lambda z: 0.5 / np.sqrt(z + 0.1))
    one = agent()
    batch = one.act_many(CONTEXTS)
    one.replace_objective(smooth)
    one.update_many(batch, REWARDS)
    assert one.t == 3
    unchanged(one, lambda: one.replace_objective(None))  # type: ignore[arg-type]


def test_masked_numbers_are_refused_in_batches_too() -> None:
    one = agent()
    batch = one.act_many(CONTEXTS)
    mask = np.zeros((3, 2), dtype=bool)
    mask[1, 0] = True
    unchanged(one, lambda: one.update_many(batch, np.ma.masked_array(REWARDS, mask)))
    whole = np.ma.masked_array(CONTEXTS, np.ones(CONTEXTS.shape, dtype=bool))
    unchanged(one, lambda: one.act_many(whole))


def test_missing_rewards_may_come_in_an_array() -> None:
    one = agent()
    batch = one.act_many(CONTEXTS[:2])
    rewards = np.array([[1.0, None], [0.3, 0.7]], dtype=object)
    unchanged(one, lambda: one.update_many(batch, rewards))
    one.update_many(batch, rewards, missing=0.0)
    assert one.average.tolist() == [0.65, 0.35]


@pytest.mark.parametrize(
    "options",
    [
        {"blocked": 5},
        {"blocked": [1.5, 2.0, 1.0]},
        {"blocked": [[0], 5, [1]]},
        {"pinned": [{0: 1}, 5, None]},
        {"candidates": np.array(1)},
        {"candidates": [[0], [1]]},
    ],
    ids=str,
)
def test_what_cannot_be_lists_for_contexts_is_refused(options: Any) -> None:
    one = agent()
    unchanged(one, lambda: one.act_many(CONTEXTS, **options))


def test_an_array_without_an_axis_is_not_a_list() -> None:
    one, other = agent(), ranker()
    flat: Any = np.array(1)
    for options in ({"candidates": flat}, {"blocked": flat}):
        unchanged(one, lambda o=options: one.act(CONTEXT, **o))
        unchanged(other, lambda o=options: other.act([0.3, 0.4], **o))
    unchanged(other, lambda: other.retire(flat))
    decision = other.act([0.3, 0.4])
    unchanged(other, lambda: other.update(decision, exposed=flat, clicked=[]))


def test_lists_for_contexts_may_be_iterators() -> None:
    made = agent().act_many(CONTEXTS, blocked=(i for i in [0]))
    each = agent().act_many(CONTEXTS, candidates=[iter([1]), iter([0]), iter([1])])
    assert [d.action for d in made] == [1, 1, 1]
    assert [d.action for d in each] == [1, 0, 1]


NOT_SHOWN: Any = fw.Shown(*[None] * 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [np.array(5.0), 5, None, "abc", NOT_SHOWN], ids=str)
def test_what_cannot_be_many_is_refused(given: Any) -> None:
    one = agent()
    batch = one.act_many(CONTEXTS)
    unchanged(one, lambda: one.update_many(batch, given))
    unchanged(one, lambda: one.update_many(list(batch), given))
    unchanged(one, lambda: one.update_many(given, REWARDS))
    if not isinstance(given, tuple):
        unchanged(one, lambda: one.act_many(given))


def test_forged_batches_raise_typed_errors() -> None:
    one = agent()
    batch: Any = one.act_many(CONTEXTS)
    bad: list[dict[str, Any]] = [{"x": np.zeros((3, 5))}, {"g": np.ones((3, 1))}, {"block": 7}]
    for change in bad:
        wrong = forged(one, batch, **change)
        unchanged(one, lambda w=wrong: one.update_many(w, REWARDS))
    other = ranker()
    rankings: Any = other.act_many(np.random.default_rng(1).random((3, 2)) / 2)
    shown = fw.Shown(np.ones((3, 2)), np.zeros((3, 2, 1)))
    flat = forged(other, rankings, items=[[0], [1], [2]])
    unchanged(other, lambda: other.update_many(flat, shown))
    words = fw.Shown(np.array([["a", "b"]] * 3), shown.rewards)
    unchanged(other, lambda: other.update_many(rankings, words))
