"""The agent for rankings: contexts and feedback in all their forms, batches, bytes, reasons."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairwolfe import Agent, FrankWolfe, Problem
from fairwolfe.agent.file import arrays_of
from fairwolfe.bandits import Fixed, LinUCB
from fairwolfe.core.contexts import Bilinear
from fairwolfe.core.decision import Decision
from fairwolfe.core.feedback import Shown
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import (
    EqualExposure,
    GiniEquality,
    GiniWelfare,
    Linear,
    TwoSided,
    Welfare,
)
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank, LinUCBRank, UnbiasedLinUCBRank
from fairwolfe.smoothing import Identity, Randomized
from tests.agent.ranking_agents import (
    FAIR,
    ITEMS,
    POLICY,
    K,
    M,
    P,
    Q,
    agent,
    answer,
    played,
    user,
)


def shown(decision: Any) -> list[int]:
    """The ids, best slot first."""
    return [int(item) for item in decision.action]


def same_state(one: Agent, other: Agent) -> None:
    for (name, a), (_, b) in zip(arrays_of(one._running), arrays_of(other._running), strict=True):
        if not name.endswith("features"):
            np.testing.assert_array_equal(a, b, err_msg=name)


# --- contexts ---------------------------------------------------------------------------------


def test_the_user_alone_is_the_whole_context() -> None:
    """An agent that keeps the items and one that is told them each time do the same."""
    keeps, told = agent(), agent(items=None)
    rng, twin = stream(0, "rounds"), stream(0, "rounds")
    for _ in range(40):
        a, b = keeps.act(user(rng)), told.act(Bilinear(user(twin), ITEMS))
        assert np.array_equal(a.action, b.action)
        answer(keeps, a, rng)
        answer(told, b, twin)
    same_state(keeps, told)


def test_items_told_anew_are_learnt_as_they_were_told() -> None:
    """Features in the context stand before those that the agent keeps, also in learning."""
    keeps, told = agent(), agent(items=None)
    rng = stream(0, "other")
    for _ in range(20):
        features, who = rng.uniform(0.1, 0.5, (M, Q)), user(rng)
        a, b = keeps.act(Bilinear(who, features)), told.act(Bilinear(who, features))
        assert np.array_equal(a.action, b.action)
        feedback = Shown(np.ones(K), rng.integers(0, 2, (K, 1)).astype(float))
        keeps.update(a, feedback)
        told.update(b, feedback)
    same_state(keeps, told)


def test_features_that_are_no_product() -> None:
    problem = Problem.ranking(M, K, Q, parameter_norm=1.0)
    told = Agent(POLICY, problem)
    keeps = Agent(POLICY, problem, items=ITEMS)
    decision = told.act(ITEMS.tolist())
    again = keeps.act([1.0])
    keeps.expire(again)
    assert np.array_equal(decision.action, again.action)
    assert np.array_equal(decision.action, keeps.act(ITEMS).action)
    told.update(decision, exposed=shown(decision)[:1], clicked=[])
    assert told.average[shown(decision)[0]] == 1.0


def test_lists_and_read_only_arrays_will_do() -> None:
    who, items = np.array([0.3, 0.4]), ITEMS.copy()
    first = agent(items=None).act(Bilinear(who.tolist(), items.tolist()))
    who.flags.writeable = items.flags.writeable = False
    second = agent(items=None).act(Bilinear(who, items))
    third = agent(items=items).act(who)
    assert np.array_equal(first.action, second.action)
    assert np.array_equal(first.action, third.action)


def test_candidates_blocked_and_pinned() -> None:
    one = agent(replace(POLICY, anticipate=False))
    rng = stream(0, "pins")
    played(one, rng, 30)
    who = user(rng)
    free = shown(one.act(who))
    assert shown(one.act(who, candidates=free[::-1])) == free
    some = shown(one.act(who, candidates=[1, 2, 5, 7]))
    assert set(some) <= {1, 2, 5, 7}
    rest = shown(one.act(who, blocked=free[:1]))
    assert rest[: K - 1] == free[1:]
    assert free[0] not in rest
    outsider = next(i for i in range(M) if i not in free)
    pinned = shown(one.act(who, pinned={1: outsider}))
    assert pinned == [free[0], outsider, free[1]]
    everything = {0: outsider, 1: free[2], 2: free[0]}
    assert shown(one.act(who, pinned=everything)) == [
        outsider,
        free[2],
        free[0],
    ]
    both = one.act(who, candidates=[0, 1, 2, 3], blocked=(0,), pinned={2: 3})
    assert set(shown(both)) == {1, 2, 3}
    assert np.asarray(both.action)[2] == 3
    answer(one, both, rng)


def test_a_bandit_alone_is_an_agent() -> None:
    """LinUCBRank where a policy is expected: for clicks, without fairness."""
    alone, twin = agent(LinUCBRank()), agent(FWLinUCBRank(TwoSided(GiniEquality(), beta=0.0)))
    rng, other = stream(0, "alone"), stream(0, "alone")
    assert played(alone, rng, 50) == played(twin, other, 50)
    assert alone.value == alone.average[-1]


# --- feedback ---------------------------------------------------------------------------------


SEVERAL = Problem.ranking(M, K, (P, Q), {"clicks": (0, K), "minutes": (0, 30.0)})


def test_feedback_in_all_its_forms() -> None:
    policy = FWLinUCBRank(TwoSided(EqualExposure(), users=Linear({"minutes": 0.1}), n_users=2))
    agents = [agent(policy, SEVERAL) for _ in range(6)]
    who = user(stream(0, "forms"))
    decisions = [one.act(who) for one in agents]
    a, b, c = np.asarray(decisions[0].action).tolist()
    ids = {"exposed": [b, a], "clicked": [b]}
    slots = Shown(np.array([1.0, 1.0, 0.0]), np.array([[0.0, 2.5], [1.0, 7.0], [0.0, 0.0]]))
    minutes = {"minutes": {a: 2.5, b: 7.0}}
    agents[0].update(decisions[0], minutes, exposed=[a, b], clicked=[b])
    agents[1].update(decisions[1], minutes | {"clicks": [b]}, exposed=np.array([b, a]))
    agents[2].update(decisions[2], minutes | {"clicks": {b: 1}}, exposed={a, b})
    agents[3].update(decisions[3], slots)
    agents[4].update(decisions[4], minutes | ids)
    stored = Decision.from_bytes(decisions[5].to_bytes())
    agents[5].update_many([stored], [minutes | ids])
    wanted = np.zeros(M + 2)
    wanted[[a, b]] = 1.0
    wanted[M:] = [1.0, 9.5]
    for one in agents:
        np.testing.assert_array_equal(one.average, wanted)
        same_state(agents[0], one)
        assert one.t == 1
    assert agents[0].value == pytest.approx(0.95 + EqualExposure().value(wanted[:M]))
    assert c not in (a, b)


def test_a_single_reward_of_another_name_can_be_clicked() -> None:
    problem = Problem.ranking(M, K, (P, Q), {"plays": (0, K)})
    one = agent(POLICY, problem)
    decision = one.act([0.3, 0.3])
    one.update(decision, exposed=shown(decision), clicked=shown(decision)[:2])
    assert one.average[-1] == 2.0


@pytest.mark.parametrize("exposure", ["shown", "until_last_click"])
def test_exposures_that_are_not_observed_need_not_be_told(exposure: Any) -> None:
    one = agent(FWLinUCBRank(FAIR, exposure=exposure))
    decision = one.act([0.3, 0.3])
    ranking = np.asarray(decision.action)
    one.update(decision, clicked=ranking[1:2])
    counted = ranking if exposure == "shown" else ranking[:2]
    assert sorted(np.flatnonzero(one.average[:M])) == sorted(counted)
    one.update(one.act([0.3, 0.3]), {}, clicked=[])
    assert one.t == 2


def test_rewards_out_of_range_are_learnt_counted_and_warned_of_once() -> None:
    one = agent(POLICY, SEVERAL)
    first, second, third = (one.act([0.3, 0.3]) for _ in range(3))
    a = int(np.asarray(first.action)[0])
    with pytest.warns(UserWarning, match=r"'minutes' is 60; the problem states 0 to 10"):
        one.update(first, {"minutes": {a: 60.0}}, exposed=[a], missing=0.0)
    one.update(second, Shown(np.ones(K), np.full((K, 2), -1.0)))
    assert one.out_of_range == 2
    one.update(third, Shown(np.ones(K), np.ones((K, 2))))
    assert one.out_of_range == 2
    assert one.average[-1] == pytest.approx((60.0 - K + K) / 3.0)


@pytest.mark.parametrize("how", ["act", "act_many"])
def test_features_beyond_their_norm_are_warned_of_once(how: str) -> None:
    one = agent()
    with pytest.warns(UserWarning, match=r"features of norm .* were given; the problem states at"):
        one.act([9.0, 9.0]) if how == "act" else one.act_many([[9.0, 9.0]])
    one.act([9.0, 9.0])


def test_feedback_late_and_in_any_order_gives_the_same_statistics() -> None:
    one, other = agent(), agent()
    rng = stream(0, "late")
    contexts = [user(rng) for _ in range(30)]
    made = [[each.act(who) for who in contexts] for each in (one, other)]
    answers = [Shown(np.ones(K), rng.integers(0, 2, (K, 1)).astype(float)) for _ in contexts]
    for i in range(30):
        one.update(made[0][i], answers[i])
    for i in rng.permutation(30).tolist():
        other.update(made[1][i], answers[i])
    for (name, a), (_, b) in zip(arrays_of(one._running), arrays_of(other._running), strict=True):
        if "live" not in name:  # certificates are of the points passed on the way
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12, err_msg=name)


# --- batches ----------------------------------------------------------------------------------


def test_a_batch_spreads_over_the_items_if_it_advances() -> None:
    """For equal exposure, 40 rankings of 3 slots before any feedback: each of 8 items gets 15."""
    one = agent(FWLinUCBRank(TwoSided(EqualExposure(), beta=50.0)))
    rng = stream(0, "batch")
    played(one, rng, 40)
    before, contexts = dict(arrays_of(one._running)), [user(rng) for _ in range(40)]
    kept = {name: array.copy() for name, array in before.items()}
    alike = one.act_many(contexts, advance=False)
    still = np.bincount(np.ravel([d.action for d in alike]), minlength=M)
    for decision in alike:
        one.expire(decision)
    spread = one.act_many(contexts)
    counts = np.bincount(np.ravel([d.action for d in spread]), minlength=M)
    assert (still == 0).sum() >= M // 2
    assert counts.min() >= 8
    for name, array in arrays_of(one._running):
        if name not in ("state.open", "state.weights", "state.sums", "state.phi"):
            np.testing.assert_array_equal(array, kept[name], err_msg=name)
    for decision in spread:
        answer(one, decision, rng)
    assert one.t == 80


@pytest.mark.parametrize(
    "policy",
    [POLICY, FairLearnRank(0.2), UnbiasedLinUCBRank(), FWLinUCBRank(FAIR, smoothing=Randomized())],
    ids=["fw", "fairlearn", "unbiased", "randomized"],
)
def test_a_batch_of_one_is_one_decision(policy: Any) -> None:
    one, other, third = agent(policy), agent(policy), agent(policy)
    who = [0.3, 0.4]
    single = one.act(who)
    assert np.array_equal(single.action, other.act_many([who])[0].action)
    assert np.array_equal(single.action, third.act_many([who], advance=True)[0].action)
    assert one.act_many([]) == []


# --- bytes ------------------------------------------------------------------------------------


def test_a_decision_is_small_and_survives_its_bytes() -> None:
    """Ten slots and ten factors; the features of the items are not stored if they are kept."""
    problem = Problem.ranking(50, 10, (10, 10))
    rng = stream(0, "bytes")
    items, who = rng.uniform(0, 0.3, (50, 10)), rng.uniform(0, 0.3, 10)
    one, keeps = Agent(POLICY, problem), Agent(POLICY, problem, items=items)
    decision, short = one.act(Bilinear(who, items)), keeps.act(who)
    assert len(decision.to_bytes()) <= 1_720
    assert len(short.to_bytes()) <= 920
    silent = keeps.propose([who], explain=False)[0]
    assert len(silent.to_bytes()) <= 600
    for each, made in ((one, decision), (keeps, short)):
        back = Decision.from_bytes(made.to_bytes())
        assert np.array_equal(back.action, made.action)
        each.update(back, exposed=shown(made), clicked=[])
        assert each.t == 1
    same_state(one, keeps)


# --- reasons ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    [POLICY, FairLearnRank(0.2, 0.0), UnbiasedLinUCBRank(), FWLinUCBRank(FAIR, randomize=0.5)],
    ids=["fw", "fairlearn", "unbiased", "randomize"],
)
def test_reasons_by_brute_force(policy: Any) -> None:
    """The parts sum to scores in the order of the ranking; the rank without fairness is that
    of value + exploration among all items, read from a ranking that shows them all.
    """
    one = agent(policy)
    rng = stream(0, "reasons")
    played(one, rng, 25)
    whole = Problem.ranking(M, M, (P, Q), {"clicks": (0.0, float(M))}, parameter_norm=1.0)
    for _ in range(10):
        who = user(rng)
        decision = one.act(who)
        rows = decision.explain()
        assert [row["item"] for row in rows] == shown(decision)
        scores = [row["value"] + row["exploration"] + row["fairness"] for row in rows]
        if policy.randomize == 0.0:
            assert scores == sorted(scores, reverse=True)
        everything = LinUCBRank()
        state = everything.init(whole)._replace(oracle=one._running.base_state.oracle)
        g = np.append(np.zeros(M), 1.0)
        full = everything.act(state, Bilinear(who, ITEMS), g, rng)
        reasons = full.explanation or []
        plain = {row["item"]: row["value"] + row["exploration"] for row in reasons}
        for row in rows:
            assert row["value"] + row["exploration"] == pytest.approx(plain[row["item"]])
            better = sum(value > plain[row["item"]] + 1e-12 for value in plain.values())
            assert row["rank_without_fairness"] == better + 1
        answer(one, decision, rng)


def test_a_ranking_can_be_explained_after_its_bytes() -> None:
    decision = agent().act([0.3, 0.3])
    assert Decision.from_bytes(decision.to_bytes()).explain() == decision.explain()


@pytest.mark.parametrize("policy", [POLICY, FWLinUCBRank(FAIR, exploration="pointwise")], ids=str)
def test_what_will_not_be_explained_is_decided_alike(policy: Any) -> None:
    one, rng = agent(policy), np.random.default_rng(0)
    for _ in range(40):
        answer(one, one.act(rng.random(2) / 2), rng)
    users = rng.random((5, 2)) / 2
    silent: Any = one.propose(users, explain=False)
    talking: Any = one.propose(users)
    same = [name for name in silent.rows._fields if name not in ("head", "parts", "ranks")]
    for name in same:
        assert np.array_equal(getattr(silent.rows, name), getattr(talking.rows, name)), name
    rest = [name for name in silent.rows.head.dtype.names if name not in ("value", "score")]
    assert np.array_equal(silent.rows.head[rest], talking.rows.head[rest])
    assert len(talking[1].explain()) == np.size(talking[1].action)
    with pytest.raises(InvalidInput, match="nothing to explain"):
        silent[1].explain()
    one.issue(silent)
    answer(one, silent[1], rng)


# --- saving, threads --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    [
        POLICY,
        LinUCBRank(randomize=0.2),
        FairLearnRank(0.3, 0.0),
        UnbiasedLinUCBRank(clip=True, exploration=0.2),
        FWLinUCBRank(FAIR, smoothing=Randomized(n_samples=2), memory=40.0, randomize=0.1),
    ],
    ids=["fw", "linucb", "fairlearn", "unbiased", "randomized"],
)
def test_after_loading_the_same_rankings_follow(policy: Any, tmp_path: Path) -> None:
    one = agent(policy, seed=3)
    rng = stream(0, "save")
    played(one, rng, 30)
    late = [one.act(user(rng)) for _ in range(3)]
    one.save(tmp_path / "agent.fw")
    stored = [decision.to_bytes() for decision in late]
    loaded = Agent.load(tmp_path / "agent.fw")
    assert (loaded.policy, loaded.problem, loaded.t) == (one.policy, one.problem, 30)
    for each, decisions in ((one, late), (loaded, map(Decision.from_bytes, stored))):
        twin = stream(1, "after")
        for decision in decisions:
            answer(each, decision, twin)
    assert played(one, stream(2, "next"), 300) == played(loaded, stream(2, "next"), 300)
    same_state(one, loaded)


def test_two_threads() -> None:
    """Every answer is counted once, whoever gives it."""
    one = agent()
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        rng = stream(seed, "thread")
        try:
            played(one, rng, 60)
            for decision in one.act_many([user(rng) for _ in range(20)], advance=True):
                answer(one, decision, rng)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert (one.t, one.open) == (160, 0)
    assert one._running.state.slots[0].tolist() == [160.0] * K
    assert one._running.state.shown.sum() == 160.0 * K
    np.testing.assert_allclose(one.average[:M] * 160.0, one._running.state.exposed, atol=1e-9)


# --- the direction ----------------------------------------------------------------------------


def test_the_direction_is_what_the_next_ranking_follows() -> None:
    one = agent(FWLinUCBRank(TwoSided(GiniWelfare(), beta=0.5), exploration=0.1))
    rng = stream(0, "direction")
    for _ in range(30):
        decision = one.act(user(rng))
        answer(one, decision, rng)
    one.retire([1])
    one.act(user(rng))  # an open decision counts
    g = one.direction()
    assert g.shape == one.average.shape
    shown = one.act(user(rng))
    by_id = dict(zip(one.items.tolist(), g.tolist(), strict=False))
    for reason in shown.explain():
        assert reason["fairness"] == pytest.approx(by_id[reason["item"]], abs=1e-12)
    assert g[-1] == 1.0  # f is linear in the clicks


PAIR = Problem.arms(2, {"clicks": (0, 1), "saves": (0, 1)})


def test_a_direction_of_arms_is_the_gradient_and_others_have_none() -> None:
    one = Agent(FrankWolfe(Welfare(0.5, offset=1.0), LinUCB(), smoothing=Identity()), PAIR)
    for _ in range(9):
        one.update(one.act(np.eye(2)), [0.5, 0.25])
    np.testing.assert_allclose(one.direction(), 0.5 / np.sqrt([1.5, 1.25]))
    with pytest.raises(InvalidInput, match="follows no direction"):
        Agent(FrankWolfe(Welfare(0.5), Fixed(0)), PAIR).direction()
