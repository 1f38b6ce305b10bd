"""`Guarded` as a policy: what it refuses, says and keeps; served, saved, late and in batches."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, Fixed, LinUCB, SquareCB, Thompson, Uniform
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.environments import Finite
from fairwolfe.errors import IncompatibleState, InvalidInput, OutsideAssumptions
from fairwolfe.lab.play import build
from fairwolfe.lab.spec import RunSettings
from fairwolfe.objectives import AtMost, GiniWelfare, Linear, Minimum, Nash
from fairwolfe.oracles import OnlineGradient
from fairwolfe.ranking import FWLinUCBRank
from fairwolfe.reduction import FrankWolfe, Guarded
from fairwolfe.reduction.guarded import Trail
from fairwolfe.simulation import Lateness, simulate
from tests.plugins.plugged import Greedy

F = Minimum()
PROBLEM = fw.Problem.arms(3, {"clicks": (0, 1), "saves": (0, 1)}, parameter_norm=1.0)
POLICY, BASELINE = FrankWolfe(F, LinUCB(exploration=0.3)), FrankWolfe(F, Uniform())
LOOSE = Guarded(POLICY, BASELINE, 0.3, 0.9)  # it lets the policy play after a few dozen rounds
THETA = np.array([[0.9, 0.3, 0.6], [0.3, 0.9, 0.6]])


def contexts(n: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).dirichlet(np.ones(3), size=(n, 5))


def reward(row: Vector, rng: np.random.Generator) -> Vector:
    return (rng.random(2) < THETA @ row).astype(np.float64)


def served(agent: fw.Agent, rounds: Matrix, seed: int = 1) -> list[fw.Decision]:
    """Decisions whose feedback comes in any order, most of it late."""
    rng, made, waiting = np.random.default_rng(seed), [], []
    for context in rounds:
        decision = agent.act(context)
        made.append(decision)
        waiting.append((decision, reward(context[decision.action], rng)))
        if rng.random() < 0.8:
            agent.update(*waiting.pop(int(rng.integers(len(waiting)))))
    for pair in waiting:
        agent.update(*pair)
    return made


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 2.0, float("nan"), float("inf")])
def test_a_share_or_delta_outside_0_to_1_is_refused(share: float) -> None:
    with pytest.raises(InvalidInput, match=r"share is .*; give a number between 0 and 1"):
        Guarded(POLICY, BASELINE, share)
    with pytest.raises(InvalidInput, match=r"delta is .*; give a number between 0 and 1"):
        Guarded(POLICY, BASELINE, 0.9, share)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"share": "much"}, "share is 'much'; give a number"),
        ({"delta": None}, "delta is None; give a number"),
        ({"floor": float("inf")}, "floor is inf; give a finite number"),
        ({"baseline": Fixed(0)}, r"a bandit for one reward; give FrankWolfe\(objective, Fixed"),
        ({"baseline": FrankWolfe}, "the baseline is the class FrankWolfe; give one such as"),
        ({"policy": 3}, "the policy is 3; give one such as FrankWolfe"),
        (
            {"policy": FWLinUCBRank(GiniWelfare(), exploration="theorem")},
            "the policy decides 'ranking', and only arms",
        ),
        (
            {"baseline": FWLinUCBRank(F, exploration="theorem")},
            "the baseline decides 'ranking', and only arms are",
        ),
    ],
)
def test_what_cannot_be_guarded_is_refused(given: dict[str, Any], message: str) -> None:
    settings = {"policy": POLICY, "baseline": BASELINE} | given
    with pytest.raises(InvalidInput, match=message):
        Guarded(**settings)


@dataclass(frozen=True)
class Aimless:
    """A policy without an objective."""

    def init(self, problem: fw.Problem) -> None:
        return None

    def act(self, state: None, context: Any, rng: np.random.Generator) -> fw.Decision:
        return fw.Decision("", 0, 0, 1.0, ())

    def update(self, state: None, decision: fw.Decision, feedback: Any) -> None:
        return None


def test_a_policy_without_an_objective_is_no_policy_to_guard_but_a_baseline() -> None:
    with pytest.raises(InvalidInput, match="has no objective, and a share is of one"):
        Guarded(Aimless(), BASELINE)
    agent = fw.Agent(Guarded(POLICY, Aimless()), PROBLEM)
    assert {d.action for d in served(agent, contexts(20))} == {0}


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (Linear((1.0, -0.5)), r"is -0.5 at \[0.0, 1.0\], .*share of a negative number promises"),
        (F + AtMost(0.5, penalty=3.0), "below floor=0, and a share of a negative .*floor=-2,"),
        (Nash(), r"is -inf at \[0.0, 0.0\], inside the ranges .* finite there; give it an offset"),
    ],
    ids=repr,
)
def test_an_f_whose_share_means_nothing_is_refused(f: Any, message: str) -> None:
    guarded = Guarded(FrankWolfe(f, LinUCB(exploration="theorem")), BASELINE)
    with pytest.raises(InvalidInput, match=message):
        guarded.init(PROBLEM)


def test_with_a_floor_an_f_may_be_negative() -> None:
    f = Linear((1.0, -0.5))
    guarded = Guarded(
        FrankWolfe(f, LinUCB(exploration="theorem")), FrankWolfe(f, Fixed(1)), floor=-0.5
    )
    assert guarded.init(PROBLEM).margin() < 0.0
    with pytest.raises(InvalidInput, match=r"below floor=-0.4,.* give floor=-0.5,"):
        replace(guarded, floor=-0.4).init(PROBLEM)


def test_other_problems_are_refused() -> None:
    with pytest.raises(InvalidInput, match="the problem has items to rank"):
        LOOSE.init(fw.Problem.ranking(5, 2, 3, parameter_norm=1.0))
    with pytest.raises(OutsideAssumptions, match="states no parameter_norm, on which confidence"):
        LOOSE.init(fw.Problem.arms(3, {"clicks": (0, 1), "saves": (0, 1)}))
    many = fw.Problem.arms(3, {f"r{i}": (0, 1) for i in range(17)}, parameter_norm=1.0)
    with pytest.raises(InvalidInput, match=r"the problem has 17 rewards, .* at most 16"):
        LOOSE.init(many)
    per_arm = fw.Problem.arms(3, {"clicks": (0, 1)}, n_arms=4, parameter_norm=1.0)
    with pytest.raises(InvalidInput, match="arm is 7; the problem has 4 arms"):
        Guarded(POLICY, FrankWolfe(F, Fixed(7))).init(per_arm)


@pytest.mark.parametrize("arm", [-1, 1.5, "a", None, 2**40])
def test_a_fixed_arm_is_a_number_of_an_arm(arm: Any) -> None:
    with pytest.raises(InvalidInput, match="arm is"):
        Fixed(arm)


# --- what it says ---------------------------------------------------------------------------------


def test_a_switch_is_explained_and_counted() -> None:
    agent = fw.Agent(LOOSE, PROBLEM)
    made = served(agent, contexts(400))
    first, last = made[0].explain()[0], made[-1].explain()[0]
    assert first["played"] == "baseline"
    assert first["guard"].startswith("baseline played because f could come ")
    assert first["guard"].endswith(" below 30 % of the baseline's")
    assert last["played"] == "policy"
    assert last["guard"].startswith("policy played because f stays above 30 % of the baseline's")
    played = sum(d.explain()[0]["played"] == "baseline" for d in made)
    assert 0 < agent.stats()["baseline_played"] == played < 400
    assert "baseline_played" not in fw.Agent(POLICY, PROBLEM).stats()


def test_probabilities_are_those_of_whoever_plays() -> None:
    agent = fw.Agent(LOOSE, PROBLEM)
    for decision in served(agent, contexts(300)):
        held = decision.explain()[0]["played"] == "baseline"
        assert decision.probability == (0.2 if held else 1.0)
    draws = Guarded(FrankWolfe(F, EpsilonGreedy(0.5)), FrankWolfe(F, Fixed(0)), 0.3, 0.9)
    agent = fw.Agent(draws, PROBLEM)
    for decision in served(agent, contexts(300)):
        held = decision.explain()[0]["played"] == "baseline"
        assert decision.probability in ((1.0,) if held else (0.1, 0.6))


def test_the_switch_depends_on_the_past_alone() -> None:
    """Whatever the context and the draws: so that the probabilities are true."""
    state, rng = LOOSE.init(PROBLEM), np.random.default_rng(0)
    for context in contexts(150):
        held = {LOOSE.act(state, other, rng).evidence.held for other in contexts(4, 7)}
        decision = LOOSE.act(state, context, rng)
        assert held == {decision.evidence.held}
        state = LOOSE.update(state, decision, reward(context[decision.action], rng))
    assert not decision.evidence.held


def test_the_policy_learns_from_what_the_baseline_plays() -> None:
    """Its average is of everything that was earned, and its regression of all answers."""
    guarded = Guarded(POLICY, BASELINE, 0.99)
    agent = fw.Agent(guarded, PROBLEM)
    made = served(agent, contexts(100))
    assert all(d.explain()[0]["played"] == "baseline" for d in made)
    state = agent._running.state.policy
    assert state.policy.t == agent.t == 100
    assert state.policy.state.learnt[0, 0] == 100
    assert np.allclose(agent.average, state.plan.earned(state.books) / 100.0)
    assert agent.value == pytest.approx(F.value(agent.average))


# --- served, saved, late, in batches --------------------------------------------------------------


def same(one: fw.Decision, other: fw.Decision) -> bool:
    equal = one.action == other.action and one.probability == other.probability
    return equal and one.evidence[0] == other.evidence[0]


@pytest.mark.parametrize(
    "base", [LinUCB(exploration="theorem"), SquareCB(gamma0=50.0), Thompson()], ids=repr
)
def test_a_loaded_agent_continues_alike(base: Any, tmp_path: Any) -> None:
    guarded = Guarded(FrankWolfe(F, base), BASELINE, 0.3, 0.9)
    agent = fw.Agent(guarded, PROBLEM, seed=3)
    served(agent, contexts(150))
    open_ = agent.act(contexts(1)[0])
    agent.save(tmp_path / "agent")
    loaded = fw.Agent.load(tmp_path / "agent")
    restored = fw.Agent.restore(agent.dump())
    assert loaded.policy == guarded
    assert loaded.stats() == restored.stats() == agent.stats()
    rng = np.random.default_rng(5)
    stored = fw.Decision.from_bytes(open_.to_bytes())
    for one in (agent, loaded, restored):
        one.update(stored, [1.0, 0.0])
    for context in contexts(100, 2):
        given = reward(context[0], rng)
        made = [one.act(context) for one in (agent, loaded, restored)]
        assert same(made[0], made[1])
        assert same(made[0], made[2])
        for one, decision in zip((agent, loaded, restored), made, strict=True):
            one.update(decision, given)
    assert agent.dump() is not None
    assert np.array_equal(agent._running.state.policy.books, loaded._running.state.policy.books)


def test_a_decision_from_beyond_the_file_is_counted_once() -> None:
    agent = fw.Agent(LOOSE, PROBLEM)
    served(agent, contexts(50))
    data = agent.dump()
    beyond = agent.act(contexts(1)[0])
    again = fw.Agent.restore(data)
    own = again.act(contexts(1, 1)[0])
    again.update(beyond, [1.0, 1.0])
    again.update(own, [0.0, 1.0])
    state = again._running.state.policy
    assert state.books[:3].tolist() == [52.0, 0.0, 52.0]
    assert state.open == again.open == 0


def test_expired_decisions_were_made_and_count() -> None:
    agent = fw.Agent(LOOSE, PROBLEM, expires=5)
    first = agent.act(contexts(1)[0])
    for context in contexts(20):
        agent.act(context)
    second = agent.act(contexts(1)[0])
    agent.expire(second)
    with pytest.raises(InvalidInput, match="expired"):
        agent.update(first, [1.0, 1.0])
    state = agent._running.state.policy
    assert agent.stats()["expired"] == 22 - agent.open
    assert state.books[:3].tolist() == [22.0, float(agent.open), 0.0]
    unanswered = state.plan.features(state.books)[1]
    assert np.allclose(unanswered.sum(), 22.0)  # rows of features that sum to 1


def test_many_at_once_are_the_decisions_one_by_one() -> None:
    one, many = fw.Agent(LOOSE, PROBLEM, seed=2), fw.Agent(LOOSE, PROBLEM, seed=2)
    rng = np.random.default_rng(0)
    for start in range(0, 240, 40):
        rounds = contexts(40, start)
        batch, each = many.act_many(rounds), [one.act(context) for context in rounds]
        assert all(map(same, batch, each))
        answers = np.array([reward(c[d.action], rng) for c, d in zip(rounds, batch, strict=True)])
        many.update_many(batch, answers)
        for decision, answer in zip(each, answers, strict=True):
            one.update(decision, answer)
        assert np.array_equal(one._running.state.policy.books, many._running.state.policy.books)
    assert 0 < one.stats()["baseline_played"] < 240


def test_candidates_names_and_arms_of_their_own() -> None:
    agent = fw.Agent(LOOSE, PROBLEM, arms=["a", "b", "c", "d", "e"])
    rng = np.random.default_rng(0)
    for context in contexts(200):
        decision = agent.act(context, candidates=["b", "e"])
        assert decision.name in ("b", "e")
        assert np.array_equal(decision.evidence.x, context[decision.action])
        agent.update(decision, reward(context[decision.action], rng))
    per_arm = fw.Problem.arms(3, {"clicks": (0, 1), "saves": (0, 1)}, n_arms=4, parameter_norm=2.0)
    agent = fw.Agent(Guarded(POLICY, FrankWolfe(F, Fixed(2)), 0.3, 0.9), per_arm)
    for context in contexts(150):
        decision = agent.act(fw.PerArm(context[0]), blocked=[0])
        agent.update(decision, reward(context[0], rng))
        assert decision.action != 0
    assert agent.stats()["baseline_played"] > 0
    assert fw.Agent.restore(agent.dump()).stats() == agent.stats()


def test_f_can_be_replaced() -> None:
    agent = fw.Agent(LOOSE, PROBLEM)
    served(agent, contexts(60))
    before = agent.average
    agent.replace_objective(Linear((1.0, 0.5)))
    assert agent.policy.objective == Linear((1.0, 0.5))
    assert np.array_equal(agent.average, before)
    assert agent.act(contexts(1)[0]).explain()[0]["played"] in ("baseline", "policy")
    with pytest.raises(InvalidInput, match="share of a negative number"):
        agent.replace_objective(Linear((1.0, -0.5)))


def test_repair_and_drift_are_of_all_regressions() -> None:
    agent = fw.Agent(LOOSE, PROBLEM)
    served(agent, contexts(60))
    assert agent.repair() < 1e-9
    assert agent.stats()["drift"] < 1e-9
    with pytest.raises(InvalidInput, match="keeps no live numbers"):
        agent.live()


def test_a_forged_or_foreign_decision_is_refused_and_nothing_changes() -> None:
    agent = fw.Agent(LOOSE, PROBLEM)
    decision = agent.act(contexts(1)[0])
    trail: Trail = decision.evidence
    forged = [
        (),
        None,
        trail._replace(x=np.full(3, np.nan)),
        trail._replace(x=np.full(4, 0.1)),
        trail._replace(other_x=np.full(3, 1e9)),
        trail._replace(block=3),
        trail._replace(held=1),  # type: ignore[arg-type]
    ]
    state = agent._running.state.policy
    books = state.books.copy()
    for evidence in forged:
        changed = fw.Decision(decision.id, 0, decision.action, 1.0, evidence)
        with pytest.raises(InvalidInput, match="checksum"):  # an agent knows its own decisions
            agent.update(changed, [1.0, 1.0])
        with pytest.raises(InvalidInput, match="evidence"):
            LOOSE.update(state, changed, [1.0, 1.0])
        assert np.array_equal(agent._running.state.policy.books, books)
        assert agent.t == 0
    agent.update(decision, [1.0, 1.0])
    assert agent.t == 1


def test_a_damaged_file_is_refused() -> None:
    agent = fw.Agent(LOOSE, PROBLEM)
    served(agent, contexts(10))
    agent._running.state.policy.books[1] = 11.0  # more open than were made
    with pytest.raises(IncompatibleState, match="no more decisions count than were made"):
        fw.Agent.restore(agent.dump())


# --- played ---------------------------------------------------------------------------------------


def test_simulate_and_compare_play_it() -> None:
    world = Finite.a2()
    guarded = Guarded(POLICY, FrankWolfe(F, Uniform()), 0.5, 0.5)
    trace = simulate(guarded, world, 300, compiled=False)
    assert not trace.compiled
    assert trace.objective == F
    late = simulate(guarded, world, 300, compiled=False, lateness=Lateness(30, refresh=7))
    assert late.complete
    with pytest.warns(UserWarning, match="because the policy Guarded has no compiled form"):
        result = fw.compare({"guarded": guarded, "free": POLICY}, world, 200, seeds=2)
    assert set(result.traces) == {"guarded", "free"}


def test_the_fixed_arm_is_compiled_and_stays() -> None:
    world = Finite.a2()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace = simulate(FrankWolfe(F, Fixed(1)), world, 50, record_actions=True)
    plain = simulate(FrankWolfe(F, Fixed(1)), world, 50, record_actions=True, compiled=False)
    assert trace.compiled
    assert trace.actions is not None
    assert plain.actions is not None
    assert set(trace.actions.tolist()) == set(plain.actions.tolist()) == {1}
    assert np.array_equal(trace.average, plain.average)


@pytest.mark.parametrize(
    "base",
    [
        LinUCB(model="extended", exploration="theorem"),
        SquareCB(gamma0=50.0, oracle=OnlineGradient(0.1)),
        EpsilonGreedy(0.1),
        Thompson(),
        Uniform(),
    ],
    ids=repr,
)
def test_every_base_for_arms_can_be_guarded(base: Any) -> None:
    agent = fw.Agent(Guarded(FrankWolfe(F, base), BASELINE, 0.3, 0.9), PROBLEM)
    made = served(agent, contexts(200))
    assert {d.explain()[0]["played"] for d in made} == {"baseline", "policy"}


def test_a_guard_can_be_guarded() -> None:
    """It is a policy for arms like any other."""
    agent = fw.Agent(Guarded(LOOSE, FrankWolfe(F, Fixed(0)), 0.3, 0.9), PROBLEM)
    served(agent, contexts(100))
    again = fw.Agent.restore(agent.dump())
    assert again.stats() == agent.stats()


def test_a_spec_names_it_and_gives_its_parts_the_objective() -> None:
    inner = {"name": "frank-wolfe", "base": {"name": "linucb"}}
    fixed = {"name": "frank-wolfe", "base": {"name": "fixed", "arm": 1}}
    table = {"name": "guarded", "share": 0.9, "policy": inner, "baseline": fixed}
    settings = RunSettings(
        environment={"name": "mehrotra"}, objective={"name": "minimum"}, policy=table, horizon=10
    )
    built = build(settings).policy
    assert built == Guarded(FrankWolfe(F, LinUCB()), FrankWolfe(F, Fixed(1)), 0.9)


def test_what_a_guard_has_learnt_is_what_its_policy_has() -> None:
    agent = fw.Agent(Guarded(LOOSE, FrankWolfe(F, Fixed(0)), 0.3, 0.9), PROBLEM)
    served(agent, contexts(50))
    with agent.held() as running:
        inner = running.state.policy.policy.state.policy.policy
        assert np.shares_memory(running.learnt().oracle.theta, inner.state.theta)
    blind = Guarded(FrankWolfe(F, Greedy()), BASELINE, 0.3, 0.9)
    with pytest.raises(InvalidInput, match=r"Greedy\(.*\) keeps no estimate of each"):
        blind.learnt(blind.init(PROBLEM))
