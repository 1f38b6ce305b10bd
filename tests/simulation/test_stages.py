"""Simulations whose rewards arrive in stages: the compiled loop, the plain one, and an agent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB, Thompson
from fairwolfe.environments import Mehrotra
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import AtMost, GiniWelfare, Linear, Mapped
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


def test_laws_fit_the_stages() -> None:
    with pytest.raises(InvalidInput, match="delay has 3 laws, and the rewards arrive in 2 stages"):
        fw.simulate(RULES["LinUCB"], WORLD, 10, lateness=Lateness(delay=(1, 2, 3)))
    with pytest.raises(InvalidInput, match="delay has 2 laws, and the rewards arrive in 1 stage;"):
        fw.simulate(RULES["LinUCB"], WHOLE, 10, lateness=Lateness(delay=(1, 2)))
    assert repr(Lateness(delay=(1, Geometric(3.0)))) == (
        "Lateness(delay=(Constant(length=1), Geometric(mean=3.0)), refresh=1)"
    )
