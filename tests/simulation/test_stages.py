"""Simulations whose rewards arrive in stages: the compiled loop, the plain one, and an agent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB, Thompson
from fairwolfe.core.streams import stream
from fairwolfe.environments import FiniteRanking, Mehrotra
from fairwolfe.environments.world import RankingArrays
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import AtMost, GiniEquality, GiniWelfare, Linear, Mapped, TwoSided
from fairwolfe.ranking import FWLinUCBRank
from fairwolfe.simulation import Lateness
from fairwolfe.simulation.delays import ByOutcome, Geometric


@dataclass(frozen=True)
class Staged(Mehrotra):
    """The same world, whose rewards arrive in stages."""

    def problem(self) -> fw.Problem:
        problem = super().problem()
        first, *rest = problem.rewards
        return replace(problem, stages=((first,), tuple(rest)))


WORLD, WHOLE = (cls(n_arms=6, n_objectives=3, n_features=4) for cls in (Staged, Mehrotra))
GINI = GiniWelfare()
MIXED = Linear((1.0, 0.5, -1.0)) + Mapped(AtMost((0.02, 0.3)), [[-0.3, 0, 1], [0, 1, 0]])
RULES = {
    "LinUCB": fw.FrankWolfe(GINI, LinUCB(exploration=0.1)),
    "pointwise": fw.FrankWolfe(MIXED, LinUCB(exploration="pointwise")),
    "SquareCB": fw.FrankWolfe(MIXED, SquareCB(gamma0=100.0)),
    "Thompson, memory": fw.FrankWolfe(GINI, Thompson(), memory=40.0),
    "greedy, start": fw.FrankWolfe(GINI, EpsilonGreedy(0.1), start=(0.1, 0.2, 0.3)),
    "not counted": fw.FrankWolfe(GINI, LinUCB(), anticipate=False),
}
LATE: dict[str, Lateness | None] = {
    "at once": None,
    "one law": Lateness(delay=7),
    "each its own": Lateness(delay=(2, 30)),
    "the second first": Lateness(delay=(ByOutcome(click=9, no_click=Geometric(20.0)), 4)),
    "snapshots": Lateness(delay=(0, Geometric(15.0)), refresh=8),
    "never": Lateness(delay=(1, 10**6)),
}


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("rule", RULES)
def test_the_compiled_loop_is_the_plain_one(rule: str, late: str) -> None:
    given: Any = {"lateness": LATE[late], "record_actions": True}
    fast, plain = (
        fw.simulate(RULES[rule], WORLD, 150, seed=2, compiled=compiled, **given)
        for compiled in (True, False)
    )
    assert fast.compiled
    assert not plain.compiled
    assert fast.actions is not None
    assert plain.actions is not None
    assert fast.actions.tolist() == plain.actions.tolist()
    assert fast.average_observed.tobytes() == plain.average_observed.tobytes()


class Rankings(FiniteRanking):
    """Rankings with a second reward, returns, which are more likely where clicks are not."""

    stages: Any = None

    def problem(self) -> fw.Problem:
        rewards = {"clicks": (0.0, 3.0), "returned": (0.0, 3.0)}
        return replace(super().problem(), rewards=rewards, stages=self.stages)

    def init(self, rng: np.random.Generator) -> RankingArrays:
        features, theta = np.array(self.contexts), np.array(self.theta)
        means = features @ theta
        return RankingArrays.of(
            features,
            np.eye(means.shape[1]),
            np.stack([means, 0.5 - 0.5 * means]),
            np.array(self.position_weights),
            np.array([[0.0, 1.0]] * 2),
            np.full(len(features), 1.0 / len(features)),
        )


class StagedRankings(Rankings):
    """The same; returns come after the exposures and clicks."""

    stages = (("clicks",), ("returned",))


FEATURES = stream(0, "features").uniform(0.1, 0.5, (4, 7, 3))
SHOPS = [
    kind(FEATURES, (0.3, 0.6, 0.5), [[0.9, 0.7, 0.2]] * 3 + [[1.0, 0.4, 0.4]])
    for kind in (StagedRankings, Rankings)
]
FAIR = TwoSided(GiniEquality(), beta=0.5)
RANKERS = {
    "pointwise": FWLinUCBRank(FAIR),
    "widths, price": FWLinUCBRank(FAIR + AtMost({"returned": 0.2}), exploration=0.1),
    "memory, swaps": FWLinUCBRank(FAIR, memory=40.0, randomize=0.2),
    "chances, shown": FWLinUCBRank(FAIR, iterate="expected", exposure="shown"),
    "not counted": FWLinUCBRank(FAIR, anticipate=False),
}


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("rule", RANKERS)
def test_the_compiled_loop_of_rankings_is_the_plain_one(rule: str, late: str) -> None:
    """The later stage also arrives first, and then waits; where the first never comes, so does
    it.
    """
    given: Any = {"lateness": LATE[late], "record_actions": True}
    fast, plain = (
        fw.simulate(RANKERS[rule], SHOPS[0], 150, seed=2, compiled=compiled, **given)
        for compiled in (True, False)
    )
    assert fast.compiled
    assert not plain.compiled
    assert fast.actions is not None
    assert plain.actions is not None
    assert fast.actions.tolist() == plain.actions.tolist()
    assert fast.average_observed.tobytes() == plain.average_observed.tobytes()


@pytest.mark.parametrize("late", [None, Lateness(delay=20), Lateness(delay=(10, 3), refresh=4)])
def test_rankings_whose_stages_are_learnt_together_are_those_of_one_stage(late: Any) -> None:
    whole = late
    if late is not None and isinstance(late.delay, tuple):  # the later stage waits for the first
        whole = replace(late, delay=late.delay[0])
    given: Any = {"record_actions": True, "objective": FAIR}
    one = fw.simulate(RANKERS["pointwise"], SHOPS[1], 300, lateness=whole, **given)
    two = fw.simulate(RANKERS["pointwise"], SHOPS[0], 300, lateness=late, **given)
    assert one.actions is not None
    assert two.actions is not None
    assert one.actions.tolist() == two.actions.tolist()


@pytest.mark.parametrize("delay", [(0, 0), (5, 5), (3, 40), (20, 4)])
def test_a_simulation_of_rankings_is_an_agent(delay: tuple[int, int]) -> None:
    """Told by an agent: each stage answered after its delay, the first one first."""
    world = SHOPS[0]
    policy = RANKERS["widths, price"]
    trace = fw.simulate(
        policy, world, 120, seed=1, lateness=Lateness(delay=delay), record_actions=True
    )
    agent, streams = fw.Agent(policy, world.problem()), fw.simulation.run.Streams.of(1)
    arrays, made = world.init(streams.contexts), []
    for t in range(120):
        context = world.context(arrays, t + 1, streams.contexts)
        decision = agent.act(context)
        shown = world.feedback(arrays, context, decision.action, streams.noise)
        made.append((decision, shown))
        due = [(t - late, stage) for stage, late in enumerate(delay) if t >= late]
        for at, stage in sorted(due):
            decision, shown = made[at]
            items = decision.action.tolist()
            rewards = dict(zip(items, shown.rewards[:, stage].tolist(), strict=True))
            if stage == 0:
                exposed = [i for i, seen in zip(items, shown.exposed, strict=True) if seen]
                agent.update(decision, {"clicks": rewards}, exposed=exposed)
            else:
                agent.update(decision, {"returned": rewards})
    assert trace.actions is not None
    assert [decision.action.tolist() for decision, _ in made] == trace.actions.tolist()


@pytest.mark.filterwarnings("ignore:the reward")
@pytest.mark.parametrize("delay", [(0, 0), (5, 5), (3, 40)])
def test_a_simulation_is_an_agent(delay: tuple[int, int]) -> None:
    """Told by an agent: each stage answered after its delay, the first one first."""
    policy = RULES["pointwise"]
    trace = fw.simulate(
        policy, WORLD, 120, seed=1, lateness=Lateness(delay=delay), record_actions=True
    )
    problem = WORLD.problem()
    agent = fw.Agent(policy, problem)
    streams = fw.simulation.run.Streams.of(1)
    world = WORLD.init(fw.core.streams.stream(1, "world"))
    made: list[Any] = []
    for t in range(120):
        context = WORLD.context(world, t + 1, streams.contexts)
        decision = agent.act(context)
        reward = WORLD.feedback(world, context, decision.action, streams.noise)
        made.append((decision, dict(zip(problem.rewards, reward.tolist(), strict=True))))
        due = [(t - late, stage) for stage, late in enumerate(delay) if t >= late]
        for at, stage in sorted(due):
            late_decision, rewards = made[at]
            names = problem.stage_names[stage]
            agent.update(late_decision, {name: rewards[name] for name in names})
    assert trace.actions is not None
    assert [decision.action for decision, _ in made] == trace.actions.tolist()


def test_prompt_stages_are_one_stage_where_nothing_depends_on_the_width() -> None:
    for lateness in (None, Lateness(delay=20)):
        given: Any = {"lateness": lateness, "record_actions": True}
        pure = fw.FrankWolfe(GINI, SquareCB(gamma0=100.0))
        staged, whole = (fw.simulate(pure, w, 300, **given) for w in (WORLD, WHOLE))
        assert staged.actions is not None
        assert whole.actions is not None
        assert staged.actions.tolist() == whole.actions.tolist()


def test_a_world_earns_below_the_last_click() -> None:
    policy = FWLinUCBRank(FAIR, exposure="until_last_click")
    with pytest.raises(InvalidInput, match="use 'observed' or 'shown'"):
        fw.simulate(policy, SHOPS[0], 10)


def test_laws_fit_the_stages() -> None:
    with pytest.raises(InvalidInput, match="delay has 3 laws, and the rewards arrive in 2 stages"):
        fw.simulate(RULES["LinUCB"], WORLD, 10, lateness=Lateness(delay=(1, 2, 3)))
    with pytest.raises(InvalidInput, match="delay has 2 laws, and the rewards arrive in 1 stage;"):
        fw.simulate(RULES["LinUCB"], WHOLE, 10, lateness=Lateness(delay=(1, 2)))
    assert repr(Lateness(delay=(1, Geometric(3.0)))) == (
        "Lateness(delay=(Constant(length=1), Geometric(mean=3.0)), refresh=1)"
    )
