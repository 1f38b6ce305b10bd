"""What other packages bring works everywhere, and nothing in the library knows of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner

import fairwolfe as fw
from fairwolfe import lab
from fairwolfe.checks import check, outcomes
from fairwolfe.checks.environment import KIND_CHECKS
from fairwolfe.cli import commands
from fairwolfe.core.kinds import Answer, Kind, kind_of
from fairwolfe.core.rankings import RankingKind
from fairwolfe.core.registry import load, names
from fairwolfe.core.streams import stream
from fairwolfe.environments import Finite
from fairwolfe.errors import ConformanceError, InvalidInput
from fairwolfe.objectives import Concave, GiniEquality, GiniWelfare, Minimum, TwoSided
from fairwolfe.ranking import FWLinUCBRank
from fairwolfe.simulation import Lateness
from tests.plugins import plugged
from tests.plugins.conftest import ENTRY_POINTS
from tests.plugins.plugged import (
    Cascade,
    CascadeLinUCB,
    CascadeRanker,
    Feed,
    Greedy,
    GreedyRanker,
    Myopic,
    Shelf,
)
from tests.plugins.portions import Even, Kitchen

RECIPES = Path(__file__).parents[2] / "docs" / "recipes.md"
FAIR = TwoSided(GiniEquality(), beta=0.5)
FEATURES = [[[1.0, 0.0], [0.0, 1.0], [0.2, 0.1]], [[0.9, 0.1], [0.1, 0.7], [0.1, 0.1]]]
ARMS = Finite(FEATURES, (0.5, 0.5), theta=[[1.0, 0.0], [0.0, 1.0]])


class Case(NamedTuple):
    """A policy in a world, and the two in words of a spec."""

    policy: Any
    world: Any
    spec: str


def spec(objective: str, world: str, policy: str) -> str:
    return (
        'name = "plugged"\nhorizon = 60\nseeds = 2\n'
        f"objective = {objective}\nenvironment = {world}\npolicies.mine = {policy}\n"
    )


GINI = '{ name = "gini-welfare" }'
TWO = '{ name = "two-sided", items = { name = "gini-equality" }, beta = 0.5 }'
TABLE = (
    f'{{ name = "finite", contexts = {FEATURES}, probabilities = [0.5, 0.5], '
    "theta = [[1.0, 0.0], [0.0, 1.0]] }"
)


def reduced(base: str) -> str:
    return f'{{ name = "frank-wolfe", base = {{ name = "{base}" }} }}'


CASES = {
    "bandit": Case(
        fw.FrankWolfe(GiniWelfare(), Greedy()), ARMS, spec(GINI, TABLE, reduced("greedy"))
    ),
    "policy": Case(Myopic(GiniWelfare()), ARMS, spec(GINI, TABLE, '{ name = "myopic" }')),
    "ranker": Case(
        fw.FrankWolfe(FAIR, GreedyRanker()),
        Shelf(),
        spec(TWO, '{ name = "shelf" }', reduced("greedy-ranker")),
    ),
    "world": Case(
        FWLinUCBRank(FAIR), Shelf(), spec(TWO, '{ name = "shelf" }', '{ name = "fw-linucb-rank" }')
    ),
    "kind": Case(
        fw.FrankWolfe(FAIR, CascadeRanker()),
        Feed(),
        spec(TWO, '{ name = "feed" }', reduced("cascade-ranker")),
    ),
    "kind with a ranker of the library": Case(
        fw.FrankWolfe(FAIR, CascadeLinUCB()),
        Feed(),
        spec(TWO, '{ name = "feed" }', reduced("cascade-linucb")),
    ),
    "kind of another shape": Case(
        fw.FrankWolfe(Minimum(), Even()),
        Kitchen(),
        spec('{ name = "minimum" }', '{ name = "kitchen" }', reduced("even")),
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


# --- the contracts ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, found in ENTRY_POINTS.items() for name in found]
)
def test_what_is_plugged_in_keeps_its_contract(kind: str, name: str) -> None:
    assert name in names(kind)
    cls = load(kind, name)
    assert cls is ENTRY_POINTS[kind][name]
    assert check(cls) >= 4


def test_a_policy_of_plugged_parts_keeps_its_contract(case: Case) -> None:
    assert check(case.policy) >= 9


@pytest.mark.parametrize("name", ["Sums", *plugged.__all__])
def test_the_recipes_show_this_code(name: str) -> None:
    if name != "CascadeLinUCB":
        assert f"plugged.py\n:pyobject: {name}\n" in RECIPES.read_text()


@pytest.mark.parametrize(
    ("policy", "problem", "piece"),
    [
        (
            CASES["kind"].policy,
            ARMS.problem(),
            "for decisions of the kind 'cascade', and the problem is of the kind 'arms'; use a ",
        ),
        (
            CASES["kind"].policy,
            Shelf().problem(),
            "of the kind 'ranking'; .* give the problem kind='cascade'",
        ),
        (CASES["ranker"].policy, Feed().problem(), "GreedyRanker is .* of the kind 'cascade'"),
        (CASES["world"].policy, Feed().problem(), "FWLinUCBRank is .* of the kind 'cascade'"),
        (CASES["policy"].policy, Feed().problem(), "Myopic is for decisions of the kind 'arms'"),
        (
            CASES["bandit"].policy,
            fw.Problem.arms(2, {"clicks": (0, 1)}, n_arms=3),
            "n_arms is 3; Greedy takes rows of features only",
        ),
    ],
)
def test_problems_of_another_kind_raise(policy: Any, problem: fw.Problem, piece: str) -> None:
    with pytest.raises(InvalidInput, match=piece):
        fw.Agent(policy, problem)


def test_the_command_line_knows_them() -> None:
    listed = CliRunner().invoke(commands, ["list", "kinds"])
    assert "cascade" in listed.output
    checked = CliRunner().invoke(commands, ["check", "cascade"])
    assert checked.exit_code == 0, checked.output


# --- simulations -----------------------------------------------------------------------------


def test_the_plain_loop_plays_it_and_says_so(case: Case) -> None:
    plain = fw.simulate(case.policy, case.world, 100, compiled=False)
    with pytest.warns(UserWarning, match="the plain loop is used, because"):
        options = fw.simulate(case.policy, case.world, 100)
    np.testing.assert_array_equal(plain.average, options.average)
    np.testing.assert_array_equal(plain.average_observed, options.average_observed)
    with pytest.raises(InvalidInput, match="has no compiled form; leave out compiled=True"):
        fw.simulate(case.policy, case.world, 100, compiled=True)


def test_feedback_may_come_late(case: Case) -> None:
    lateness = Lateness(delay=7, refresh=2)
    late = fw.simulate(case.policy, case.world, 100, lateness=lateness, compiled=False)
    assert late.complete
    assert np.isfinite(late.final)


def test_what_was_learnt_brings_it_near_the_policy_that_knows_the_world(case: Case) -> None:
    known = fw.known(case.world, case.policy.objective)
    best = fw.simulate(known, case.world, 400, scalar_regret=False).final
    reached = fw.simulate(case.policy, case.world, 400, compiled=False, scalar_regret=False).final
    assert abs(best - reached) < 0.1  # 0.018 to 0.041 are seen, and 0.22 of random arms


# --- agents ----------------------------------------------------------------------------------


class Service:
    """An agent in a world: what it decided, and the feedback that is on its way."""

    def __init__(self, case: Case) -> None:
        self.world = case.world
        self.drawn = case.world.init(stream(0, "world"))
        self.rng = stream(0, "service")
        self.agent = fw.Agent(case.policy, case.world.problem())

    def ask(self) -> tuple[fw.Decision, Any]:
        context = self.world.context(self.drawn, 1, self.rng)
        decision = self.agent.act(context)
        return decision, self.world.feedback(self.drawn, context, decision.action, self.rng)


def objective_of(case: Case) -> Concave:
    bound: Concave = case.policy.objective.bind(case.world.problem())
    return bound


def test_an_agent_learns_late_and_in_another_order(case: Case) -> None:
    service, kind = Service(case), kind_of(case.world.problem())
    agent = service.agent
    waiting = [service.ask() for _ in range(12)]
    rewards = []
    for i in np.random.default_rng(1).permutation(12).tolist():
        decision, feedback = waiting[i]
        agent.update(decision, feedback)
        rewards.append(kind.observe(decision.action, feedback).reward)
        np.testing.assert_allclose(agent.average, np.mean(rewards, axis=0), atol=1e-12)
    assert (agent.t, agent.open) == (12, 0)
    assert agent.value == pytest.approx(objective_of(case).value(np.mean(rewards, axis=0)))
    with pytest.raises(InvalidInput):
        agent.update(waiting[0][0], waiting[0][1])
    decision, _ = service.ask()
    before = agent.dump()
    with pytest.raises(InvalidInput):
        agent.update(decision, "words")
    assert fw.Agent.restore(before).t == agent.t == 12


def test_a_batch_is_whole_or_not_at_all(case: Case) -> None:
    service = Service(case)
    decisions, feedbacks = zip(*(service.ask() for _ in range(5)), strict=True)
    with pytest.raises(InvalidInput):
        service.agent.update_many(decisions, [*feedbacks[:-1], "words"])
    assert service.agent.t == 0
    service.agent.update_many(decisions, feedbacks)
    assert service.agent.t == 5


def test_an_agent_continues_from_its_file(case: Case, tmp_path: Path) -> None:
    service = Service(case)
    waiting = [service.ask() for _ in range(9)]
    for decision, feedback in waiting[3:]:
        service.agent.update(decision, feedback)
    service.agent.save(tmp_path / "agent")
    loaded = fw.Agent.load(tmp_path / "agent")  # the policy is rebuilt from its text, by name
    assert loaded.policy == case.policy
    for decision, feedback in waiting[:3]:
        service.agent.update(decision, feedback)
        stored = fw.Decision.from_bytes(decision.to_bytes())
        np.testing.assert_array_equal(stored.action, decision.action)
        loaded.update(stored, feedback)
    np.testing.assert_array_equal(loaded.average, service.agent.average)
    for _ in range(20):
        context = service.world.context(service.drawn, 1, service.rng)
        one, other = service.agent.act(context), loaded.act(context)
        np.testing.assert_array_equal(one.action, other.action)
        assert one.probability == other.probability
        feedback = service.world.feedback(service.drawn, context, one.action, service.rng)
        service.agent.update(one, feedback)
        loaded.update(other, feedback)
    assert loaded.value == service.agent.value


def test_the_click_of_a_cascade_is_told_by_its_slot() -> None:
    agent = fw.Agent(fw.FrankWolfe(FAIR, CascadeRanker()), Feed(4, 3).problem())
    context = Feed(4, 3).context(Feed(4, 3).init(stream(0)), 1, stream(1))
    decision = agent.act(context, blocked=[2], pinned={1: 3})
    first, second, third = shown = np.asarray(decision.action).tolist()
    assert second == 3
    assert 2 not in shown
    agent.update(decision, 1)
    expected = np.zeros(5)
    expected[[first, second, 4]] = 1.0
    np.testing.assert_array_equal(agent.average, expected)
    agent.update(agent.act(context, candidates=[0, 1, 3]), None)  # nothing clicked: all exposed
    assert agent.average[third] == 0.5
    for wrong, piece in ((3, "slot 3; give 0 to 2"), (-1, "at least 0"), (0.5, "whole number")):
        with pytest.raises(InvalidInput, match=piece):
            agent.update(agent.act(context), wrong)
    with pytest.raises(InvalidInput, match="exposed: not for decisions of kind"):
        agent.update(agent.act(context), 1, exposed=[first])


def test_items_of_another_kind_come_and_go_where_the_ranker_can() -> None:
    world = Feed(5, 2)
    drawn = world.init(stream(0))
    agent = fw.Agent(fw.FrankWolfe(FAIR, CascadeLinUCB()), world.problem(), items=drawn)
    agent.update(agent.act(drawn[0]), 1)
    agent.add_items(drawn[:2])
    agent.retire([0])
    assert agent.items.tolist() == [1, 2, 3, 4, 5, 6]
    agent.update(agent.act(drawn[0], pinned={0: 6}), 0)
    assert agent.average.size == 7
    assert agent.problem.kind == "cascade"
    again = fw.Agent.restore(agent.dump())
    np.testing.assert_array_equal(again.act(drawn[1]).action, agent.act(drawn[1]).action)
    with pytest.raises(InvalidInput, match="fixed set of items"):
        fw.Agent(fw.FrankWolfe(FAIR, CascadeRanker()), world.problem(), items=drawn)


def test_live_numbers_of_another_kind_hold() -> None:
    """Widths come from the ranker of the library; extents of reward vectors from the kind."""
    case = CASES["kind with a ranker of the library"]
    service = Service(case)
    for _ in range(300):
        service.agent.update(*service.ask())
    live = service.agent.live()
    assert live.value == service.agent.value
    best = fw.simulate(fw.known(case.world, FAIR), case.world, 1000).final
    assert live.at_most is None or live.at_most > best
    plain = Service(CASES["kind"])
    plain.agent.update(*plain.ask())
    assert "CascadeRanker has no confidence widths" in plain.agent.live().reason


def test_what_a_policy_cannot_heed_is_not_dropped() -> None:
    @dataclass(frozen=True)
    class Bare:
        """Shows the first items, and does not read contexts."""

        decides = "ranking"

        def init(self, problem: Any) -> tuple[()]:
            return ()

        def act(self, state: Any, context: Any, rng: Any) -> fw.Decision:
            return fw.Decision("", 0, np.arange(2), 1.0, None)

        def update(self, state: Any, decision: fw.Decision, feedback: Any) -> Any:
            assert isinstance(feedback, fw.Shown)
            return state

    world = Shelf()
    agent = fw.Agent(Bare(), world.problem())
    context = world.context(world.init(stream(0)), 1, stream(1))
    with pytest.raises(InvalidInput, match="contexts as they are, without blocked"):
        agent.act(context, blocked=[0])
    agent.update(agent.act(context), exposed=[0, 1], clicked=[1])
    assert agent.average.tolist() == [1.0, 1.0, 0.0, 0.0, 1.0]
    with pytest.raises(InvalidInput, match="has no objective"):
        _ = agent.value


def test_rewards_of_another_kind_out_of_range_are_counted() -> None:
    agent = fw.Agent(fw.FrankWolfe(Minimum(), Even()), Kitchen().problem())
    with pytest.warns(UserWarning, match="the reward 'taste' is 7; the problem states 0 to 1"):
        agent.update(agent.act([0.1, 0.2]), {"taste": 7.0, "cost": -1.0})
    assert (agent.t, agent.out_of_range) == (1, 1)
    with pytest.raises(InvalidInput, match="nothing can be learnt"):
        agent.update(agent.act([0.1, 0.2]), {"taste": 1e7, "cost": -1.0})
    with pytest.raises(InvalidInput, match="the weather goes up to 1e"):
        agent.act([1e9, 0.0])


def test_actions_of_another_kind_are_kept_as_they_are() -> None:
    policy = fw.FrankWolfe(Minimum(), Even())
    trace = fw.simulate(policy, Kitchen(), 30, compiled=False, record_actions=True)
    assert trace.actions is not None
    np.testing.assert_allclose(trace.actions.sum(axis=1), 1.0)


# --- sweeps ----------------------------------------------------------------------------------


def test_a_sweep_knows_it_by_name(case: Case, tmp_path: Path) -> None:
    """Workers find the entry points as this process does."""
    (tmp_path / "spec.toml").write_text(case.spec)
    swept = lab.run(lab.load(tmp_path / "spec.toml"), tmp_path / "out", jobs=1)
    assert swept.missing == ()
    frame = lab.read(swept.out)
    for seed in (0, 1):
        rows = frame[frame["seed"] == seed]
        trace = fw.simulate(case.policy, case.world, 60, seed, compiled=False)
        np.testing.assert_array_equal(rows["t"], trace.t)
        np.testing.assert_array_equal(np.stack(rows["average"].tolist()), trace.average)


# --- what is broken is found -----------------------------------------------------------------


class Short(Cascade):
    """Forgets the clicks."""

    def observe(self, action: Any, feedback: Any) -> Answer:
        answer = super().observe(action, feedback)
        return answer if feedback is answer else answer._replace(reward=answer.reward[:-1])


class Misnamed(Cascade):
    """Is registered under another name."""

    name = "waterfall"


class Shared(Cascade):
    """Says as a ranking does that a click is one of as many as there are slots."""

    extent, corner = RankingKind.extent, RankingKind.corner


class Twice(Cascade):
    """Reads what has been read."""

    def read(self, context: Any, **options: Any) -> Any:
        return super().read(context, **options)._replace()


class Deaf(Cascade):
    """Takes words for no click."""

    def read_feedback(self, action: Any, reward: Any, **options: Any) -> Answer:
        return self.observe(action, None if isinstance(reward, str) else reward)


class Boasting(Greedy):
    """Says that it never explores."""

    def act(self, *given: Any) -> fw.Choice:
        choice = super().act(*given)
        return fw.Choice(choice.action, 1.0, choice.evidence)


class Unpinned(GreedyRanker):
    """Shows the best, whatever is pinned."""

    def act(self, state: Any, context: Any, *given: Any) -> fw.Choice:
        return super().act(state, context._replace(pinned=context.pinned[:0]), *given)


class Trusting(Myopic):
    """Takes any array for a reward."""

    def update(self, state: Any, decision: fw.Decision, feedback: Any) -> Any:
        reward = np.asarray(feedback, dtype=np.float64)
        answer = Answer(reward, reward)
        return super().update(state, decision, answer)


class Optimist(Feed):
    """Forgets that nobody comes to the second item after a click on the first."""

    def mean_reward(self, world: Any, context: Any, action: Any) -> Any:
        reward = super().mean_reward(world, context, action)
        reward[action] = 1.0
        return reward


class Halved(Shelf):
    """Tells of half an exposure."""

    def feedback(self, *given: Any) -> fw.Shown:
        shown = super().feedback(*given)
        return fw.Shown(0.5 * shown.exposed, 0.0 * shown.rewards)


BROKEN: dict[Callable[[], Any], str] = {
    lambda: Short(Cascade.example()): "reads_once",
    lambda: Misnamed(Cascade.example()): "names_its_problem",
    lambda: Shared(Cascade.example()): "bounds_its_rewards",
    lambda: Twice(Cascade.example()): "reads_once",
    lambda: Deaf(Cascade.example()): "refuses_bad_numbers",
    Boasting: "tells_true_probabilities",
    Unpinned: "shows_what_may_be_shown",
    lambda: Trusting(GiniWelfare()): "refuses_bad_input",
    Optimist: "has_mean_rewards",
    Halved: "shows_slot_by_slot",
}


@pytest.mark.parametrize("make", BROKEN, ids=BROKEN.values())
def test_what_is_broken_fails_its_check(make: Callable[[], Any]) -> None:
    failed = {outcome.check for outcome in outcomes(make()) if outcome.error is not None}
    assert BROKEN[make] in failed


def test_every_check_of_kinds_is_shown_to_fail() -> None:
    assert {one.__name__ for one in KIND_CHECKS} <= set(BROKEN.values())


def test_a_broken_kind_is_told_in_a_sentence() -> None:
    with pytest.raises(ConformanceError, match=r"fails reads_once: the reward has shape \(5,\)"):
        _raise_of(Short(Cascade.example()), "reads_once")


def _raise_of(kind: Kind, name: str) -> None:
    for outcome in outcomes(kind):
        if outcome.check == name and outcome.error is not None:
            raise ConformanceError(f"fails {name}: {outcome.error}")
