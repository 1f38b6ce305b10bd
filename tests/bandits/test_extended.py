"""`Extended`: a policy for one reward, lifted; against special cases that must coincide."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from fairwolfe import Agent, Problem
from fairwolfe.bandits import Extended, LinUCB
from fairwolfe.checks import check, outcomes
from fairwolfe.checks.bandit import SCALAR_CHECKS
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.contexts import PerArm
from fairwolfe.core.decision import Decision
from fairwolfe.core.protocols import ScalarPolicy, keeps
from fairwolfe.core.streams import stream
from fairwolfe.environments import Mehrotra
from fairwolfe.errors import IncompatibleState, InvalidInput
from fairwolfe.objectives import GiniWelfare, Linear
from fairwolfe.reduction import FrankWolfe, MOLinCB
from fairwolfe.simulation import simulate
from fairwolfe.smoothing import Moreau, Randomized

RANGES = {"clicks": (0.0, 1.0), "gain": (-1.0, 2.0), "cost": (0.0, 0.5)}
PROBLEM = Problem.arms(4, RANGES, feature_norm=4.0)


class Fit(NamedTuple):
    """Sums of a regression."""

    design: Matrix
    moment: Vector


class Regression:
    """What the policies of this file share."""

    ridge: float

    def init(self, n_features: int) -> Fit:
        return Fit(self.ridge * np.eye(n_features), np.zeros(n_features))

    def update(
        self, state: Fit, features: Vector, arm: int, probability: float | None, reward: float
    ) -> Fit:
        state.design[:] += np.outer(features, features)
        state.moment[:] += reward * features
        return state


@dataclass(frozen=True)
class PlainLinUCB(Regression):
    """LinUCB as a textbook has it: a solve, an inverse and a determinant in every round."""

    ridge: float
    exploration: float
    noise: float
    parameter_norm: float
    delta: float = 0.05

    def act(
        self, state: Fit, features: Matrix, rng: np.random.Generator
    ) -> tuple[int, float | None]:
        inverse = np.linalg.inv(state.design)
        theta = np.linalg.solve(state.design, state.moment)
        log_det = np.linalg.slogdet(state.design)[1] - len(theta) * math.log(self.ridge)
        radius = self.noise * math.sqrt(2.0 * math.log(2.0 / self.delta) + log_det)
        radius += math.sqrt(self.ridge) * self.parameter_norm
        widths = np.sqrt(np.einsum("ai,ij,aj->a", features, inverse, features))
        return int(np.argmax(features @ theta + self.exploration * radius * widths)), 1.0


@dataclass(frozen=True)
class Greedy(Regression):
    """Epsilon-greedy: a policy that draws, and states a probability."""

    epsilon: float = 0.2
    ridge: float = 1.0

    def act(
        self, state: Fit, features: Matrix, rng: np.random.Generator
    ) -> tuple[int, float | None]:
        scores = features @ np.linalg.solve(state.design, state.moment)
        probabilities = np.full(len(scores), self.epsilon / len(scores))
        probabilities[scores.argmax()] += 1.0 - self.epsilon
        arm = rng.choice(len(scores), p=probabilities)
        return arm, probabilities[arm]

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(),)


@pytest.mark.filterwarnings("ignore:the plain loop is used")
@pytest.mark.parametrize(("exploration", "ridge"), [(1.0, 1.0), (0.1, 0.1)])
def test_outer_features_make_extended_linucb_of_linucb(exploration: float, ridge: float) -> None:
    world = Mehrotra(n_arms=10, n_objectives=3, n_features=4)
    f, problem = world.objective(), world.problem()
    ours = LinUCB(exploration=exploration, ridge=ridge, model="extended")
    plain = PlainLinUCB(
        ridge=ridge,
        exploration=exploration,
        noise=f.lipschitz(3) * problem.diameter / 2.0,
        parameter_norm=math.sqrt(3.0),  # of all parameters, 1 for each reward
    )
    for seed in range(2):
        one, other = (
            simulate(FrankWolfe(f, base, Moreau(0.01)), world, 400, seed, record_actions=True)
            for base in (ours, Extended(plain))
        )
        assert one.actions is not None
        assert other.actions is not None
        assert one.actions.tolist() == other.actions.tolist()
        assert len(set(one.actions.tolist())) == 10
        np.testing.assert_allclose(one.average, other.average, rtol=1e-10)


def test_of_one_reward_the_policy_is_itself() -> None:
    problem = Problem.arms(4, {"clicks": (0.0, 1.0)}, feature_norm=4.0)
    policy, alone = FrankWolfe(Linear((1.0,)), Extended(Greedy())), Greedy()
    state, own = policy.init(problem), alone.init(4)
    world, one, other = stream(0, "world"), stream(1, "policy"), stream(1, "policy")
    for _ in range(300):
        context = world.normal(size=(5, 4))
        decision = policy.act(state, context, one)
        arm, probability = alone.act(own, context, other)
        assert (decision.action, decision.probability) == (arm, probability)
        reward = world.random()
        state = policy.update(state, decision, [reward])
        own = alone.update(own, context[arm], arm, probability, reward)
    kept = state.base_state.policy
    assert (kept.design == own.design).all()
    assert (kept.moment == own.moment).all()


def test_products_with_the_direction_are_what_a_linear_policy_needs() -> None:
    """Shown g (x) x it knows which arm suits a direction; shown (g, x) it cannot."""
    problem = Problem.arms(2, {"clicks": (0.0, 1.0), "saves": (0.0, 1.0)})
    greedy, directions = Greedy(epsilon=0.0), np.array([[1.0, 0.2], [0.2, 1.0]])
    chosen = {}
    for form in ("outer", "pair"):
        base, rng = Extended(Greedy(epsilon=1.0), form), stream(0, "products")
        state = base.init(problem)
        for t in range(100):
            choice = base.act(state, np.eye(2), directions[t % 2], rng)
            reward = np.eye(2)[choice.action]  # an arm earns the reward of its number
            state = base.update(state, choice, directions[t % 2], reward)
        knowing = Extended(greedy, form)
        chosen[form] = [knowing.act(state, np.eye(2), g, rng).action for g in directions]
    assert chosen["outer"] == [0, 1]
    assert len(set(chosen["pair"])) == 1


class Log(NamedTuple):
    """What a policy was shown, for a test; no state to imitate."""

    seen: list[Matrix]
    learnt: list[tuple[Any, ...]]


class Noting:
    """Takes any arm, and notes everything."""

    def init(self, n_features: int) -> Log:
        return Log([], [])

    def act(
        self, state: Log, features: Matrix, rng: np.random.Generator
    ) -> tuple[int, float | None]:
        state.seen.append(features)
        return int(rng.integers(len(features))), 1.0 / len(features)

    def update(
        self, state: Log, features: Vector, arm: int, probability: float | None, reward: float
    ) -> Log:
        state.learnt.append((features, arm, probability, reward))
        return state


@pytest.mark.parametrize("form", ["outer", "pair"])
@pytest.mark.parametrize("smoothing", [None, Randomized(n_samples=2)], ids=["fixed", "random"])
def test_late_rewards_are_learnt_with_the_direction_and_row_of_the_decision(
    form: Any, smoothing: Any
) -> None:
    policy = FrankWolfe(GiniWelfare(), Extended(Noting(), form), smoothing)
    state, rng = policy.init(PROBLEM), stream(0, "late")
    waiting: list[tuple[Decision, Matrix]] = []
    for _ in range(60):
        context = rng.normal(size=(int(rng.integers(1, 6)), 4))
        decision = policy.act(state, context, rng)
        shown = state.base_state.policy.seen[-1]
        g = decision.batch.rows.g[0]
        for a, x in enumerate(context):
            wanted = np.kron(g, x) if form == "outer" else np.concatenate([g, x])
            np.testing.assert_allclose(shown[a], wanted, rtol=1e-15)
        waiting.append((decision, shown))
        if rng.random() < 0.5:
            late, rows = waiting.pop(int(rng.integers(len(waiting))))
            stored = Decision.from_bytes(late.to_bytes())
            reward = rng.uniform([0.0, -1.0, 0.0], [1.0, 2.0, 0.5])
            state = policy.update(state, stored, reward)
            row, arm, probability, scalar = state.base_state.policy.learnt[-1]
            assert (row == rows[arm]).all()
            # The policy's own, also where that of the decision is unknown.
            assert (arm, probability) == (late.action, 1.0 / len(rows))
            np.testing.assert_allclose(scalar, late.batch.rows.g[0] @ reward, rtol=1e-12)
    assert len(state.base_state.policy.learnt) > 20


def test_it_runs_in_the_plain_loop_and_says_so() -> None:
    policy = FrankWolfe(GiniWelfare(), Extended(Greedy()))
    with pytest.warns(UserWarning, match="plain loop is used, because the base Extended has no c"):
        trace = simulate(policy, Mehrotra(5, 2, 3), 50)
    assert not trace.compiled
    with pytest.raises(InvalidInput, match="the base Extended has no compiled form"):
        simulate(policy, Mehrotra(5, 2, 3), 50, compiled=True)


# --- agents ----------------------------------------------------------------------------------


def played(agent: Agent, rounds: int, seed: int) -> list[tuple[int, float | None]]:
    rng, done = stream(seed, "agent"), []
    for _ in range(rounds):
        decision = agent.act(rng.random((5, 4)))
        agent.update(decision, rng.uniform([0.0, -1.0, 0.0], [1.0, 2.0, 0.5]))
        done.append((int(decision.action), decision.probability))
    return done


def test_an_agent_with_a_policy_of_arrays_is_saved(tmp_path: Path) -> None:
    policy = FrankWolfe(GiniWelfare(), Extended(Greedy()))
    agent = Agent(policy, PROBLEM, seed=3)
    played(agent, 40, 0)
    agent.save(tmp_path / "agent.fw")
    with pytest.raises(
        IncompatibleState,
        match=r"'Greedy' at character 58 is none of the classes of the registry.*pass it",
    ):
        Agent.load(tmp_path / "agent.fw")
    again = Agent.load(tmp_path / "agent.fw", policy)
    assert played(again, 40, 1) == played(agent, 40, 1)
    agent.replace_objective(Linear((1.0, 0.0, 0.0)))
    assert agent.t == 80
    assert played(agent, 5, 2)


def test_an_agent_with_another_state_says_why_it_is_not_saved(tmp_path: Path) -> None:
    agent = Agent(FrankWolfe(GiniWelfare(), Extended(Noting())), PROBLEM)
    with pytest.raises(
        IncompatibleState, match=r"state\.base\.policy\.seen is a list, which .* dump and load"
    ):
        agent.save(tmp_path / "agent.fw")
    assert list(tmp_path.iterdir()) == []


def test_what_needs_an_estimate_is_refused() -> None:
    agent = Agent(FrankWolfe(GiniWelfare(), Extended(Greedy())), PROBLEM)
    with pytest.raises(
        InvalidInput, match=r"Extended.* cannot estimate .* act_many without advance"
    ):
        agent.act_many([np.eye(4)] * 2, advance=True)
    assert len(agent.act_many([np.eye(4)] * 2)) == 2


# --- bad input -------------------------------------------------------------------------------


def test_a_policy_for_one_reward_is_told_from_others() -> None:
    assert keeps(Greedy(), ScalarPolicy)
    assert not keeps(LinUCB(exploration="theorem"), ScalarPolicy)
    assert not keeps(MOLinCB(GiniWelfare()), ScalarPolicy)
    for wrong in (LinUCB(exploration="theorem"), MOLinCB(GiniWelfare()), None, Greedy):
        with pytest.raises(
            InvalidInput, match=r"the policy is .*ScalarPolicy in fairwolfe\.core\.prot"
        ):
            Extended(wrong)
    with pytest.raises(InvalidInput, match=r"Greedy\(.* takes no direction: .* Extended\(Greedy\("):
        FrankWolfe(GiniWelfare(), Greedy())
    with pytest.raises(InvalidInput, match="features is 'inner'; give 'outer' or 'pair'"):
        Extended(Greedy(), "inner")  # type: ignore[arg-type]


def test_per_arm_contexts_are_refused() -> None:
    with pytest.raises(InvalidInput, match="the problem has n_arms=3, for PerArm contexts"):
        Extended(Greedy()).init(Problem.arms(4, RANGES, n_arms=3))
    base = Extended(Greedy())
    with pytest.raises(InvalidInput, match="the context is a PerArm"):
        base.act(base.init(PROBLEM), PerArm(np.ones(4)), np.ones(3), stream(0, "bad"))


@pytest.mark.parametrize("arm", [-1, 5])
def test_an_arm_that_does_not_exist_is_refused(arm: int) -> None:
    class Astray(Greedy):
        def act(self, state: Any, features: Any, rng: Any) -> tuple[int, float | None]:
            return arm, 1.0

    base = Extended(Astray())
    with pytest.raises(InvalidInput, match=rf"chose arm {arm} of 5; .* 0 to 4"):
        base.act(base.init(PROBLEM), np.ones((5, 4)), np.ones(3), stream(0, "bad"))


def test_evidence_of_another_problem_is_refused() -> None:
    base = Extended(Greedy())
    state, rng = base.init(PROBLEM), stream(0, "bad")
    choice = base.act(state, np.ones((2, 4)), np.ones(3), rng)
    foreign = choice._replace(evidence=(np.ones(3), 0.5))
    with pytest.raises(InvalidInput, match="it holds 4 features"):
        base.update(state, foreign, np.ones(3), np.ones(3))
    assert (state.policy.design == np.eye(12)).all()


# --- the checks of policies for one reward ---------------------------------------------------


class Settable(Greedy):
    """Frozen is what a dataclass is, not what its subclasses are."""


@dataclass(frozen=True)
class Scribbling(Greedy):
    def act(self, state: Any, features: Any, rng: Any) -> tuple[int, float | None]:
        state.moment[0] += 1e-12
        return super().act(state, features, rng)


@dataclass(frozen=True)
class Boasting(Greedy):
    def act(self, state: Any, features: Any, rng: Any) -> tuple[int, float | None]:
        arm, probability = super().act(state, features, rng)
        return arm, 0.9 * (probability or 0.0) if len(features) > 1 else probability


@dataclass(frozen=True)
class Idle(Greedy):
    def update(self, state: Any, *lesson: Any) -> Any:
        return state


FAULTS: dict[type, set[str]] = {
    Greedy: set(),
    Settable: {"is_a_value"},
    Scribbling: {"only_reads_when_acting"},
    Boasting: {"tells_true_probabilities"},
    Idle: {"learns"},
}


@pytest.mark.parametrize("policy", FAULTS, ids=lambda cls: cls.__name__)
def test_a_policy_is_checked_as_the_bandit_that_it_becomes(policy: type) -> None:
    found = list(outcomes(policy))
    assert len(found) == len(SCALAR_CHECKS)
    assert {one.check for one in found if one.error is not None} == FAULTS[policy]


def test_an_instance_can_be_checked() -> None:
    assert check(Greedy(0.5)) == len(SCALAR_CHECKS)
