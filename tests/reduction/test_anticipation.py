"""Open decisions count in z by their estimates, against a straightforward account of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB, Thompson
from fairwolfe.core.decision import Decision
from fairwolfe.core.rows import ArmRows
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Custom, GiniWelfare, Minimum, TwoSided
from fairwolfe.oracles import SklearnRegressor
from fairwolfe.ranking import FWLinUCBRank
from fairwolfe.smoothing import Identity

PROBLEM = fw.Problem.arms(3, {"a": (0, 1), "b": (-1, 2)}, parameter_norm=1.0)
TARGET = 0.4

# Its direction tells z: z = TARGET - g/2.
QUADRATIC = Custom(
    lambda z: -float(((z - TARGET) ** 2).sum()),
    lambda z: 2.0 * (TARGET - z),
    smooth=True,
    lipschitz=8.0,
)


def z_of(state: Any) -> Any:
    return TARGET - state.direction() / 2.0


@dataclass
class Account:
    """z of a linear model, as one would keep it: all decisions and answers in lists."""

    keep: float
    low: Any
    high: Any
    open: dict[int, Any] = field(default_factory=dict)  # number -> features
    answers: list[Any] = field(default_factory=list)
    learnt: list[Any] = field(default_factory=list)  # their features
    issued: int = 0

    def expect(self, number: int, x: Any) -> None:
        self.open[number] = np.array(x)
        self.issued += 1

    def hear(self, number: int, reward: Any) -> None:
        self.learnt.append(self.open.pop(number))
        self.answers.append(np.array(reward))

    def z(self, theta: Any) -> Any:
        n = len(self.answers)
        past = self.keep ** np.arange(n - 1, -1, -1.0)
        total = past @ np.array(self.answers) if n else np.zeros(self.low.size)
        clock = past.sum()
        fading = self.keep ** len(self.open)  # every open decision is one more reward to come
        total, clock = fading * total, fading * clock
        if self.open and n:
            away = past @ (np.array(self.answers) - np.array(self.learnt) @ theta.T) / past.sum()
            ages = {number: self.keep ** (self.issued - 1 - number) for number in self.open}
            weight = sum(ages.values())
            mean = sum(ages[i] * (theta @ x) for i, x in self.open.items()) / weight + away
            total = total + weight * np.clip(mean, self.low, self.high)
            clock += weight
        return total / max(clock, 1.0)


@pytest.mark.parametrize("memory", [None, 20.0])
@pytest.mark.parametrize(
    "base", [LinUCB(exploration="theorem"), SquareCB(gamma0=5.0), Thompson()], ids=repr
)
def test_z_is_that_of_a_plain_account(base: Any, memory: float | None) -> None:
    policy = fw.FrankWolfe(QUADRATIC, base, Identity(), memory=memory)
    state, rng = policy.init(PROBLEM), np.random.default_rng(1)
    keep = 1.0 if memory is None else 0.5 ** (1.0 / memory)
    account = Account(keep, PROBLEM.low, PROBLEM.high)
    waiting: list[tuple[int, Decision]] = []
    most = 0
    for number in range(400):
        decision = policy.act(state, rng.normal(size=(4, 3)) / 3.0, rng)
        state = policy.expect(state, decision)
        account.expect(number, decision.batch.rows.x[0])
        waiting.append((number, decision))
        while waiting and rng.random() < (0.47 if number < 300 else 0.7):
            which, late = waiting.pop(int(rng.integers(len(waiting))))
            if rng.random() < 0.2:
                state = policy.withdraw(state, late)
                account.open.pop(which)
                continue
            reward = rng.uniform(PROBLEM.low, PROBLEM.high)
            state = policy.update(state, late, reward)
            account.hear(which, reward)
        most = max(most, len(waiting))
        expected = account.z(state.state.theta[0])
        np.testing.assert_allclose(z_of(state), expected, rtol=1e-9, atol=1e-9)
        assert (state.t, state.open) == (len(account.answers), len(account.open))
    assert most > 15  # so that something was anticipated


def test_open_decisions_of_rankings_count_by_their_chances() -> None:
    # Exposures by the weights of the slots, rewards by the estimates of what is exposed.
    problem = fw.Problem.ranking(6, 3, (2, 2))
    weights = np.array([0.9, 0.6, 0.3])
    policy = FWLinUCBRank(
        QUADRATIC, smoothing=Identity(), position_weights=weights, exploration="theorem"
    )
    state, rng = policy.init(problem), np.random.default_rng(2)
    features = rng.random((6, 2))
    total, heard, opened = np.zeros(7), [], []
    for t in range(60):
        context = fw.Bilinear(rng.random(2), features)
        decision = policy.act(state, context, rng)
        state = policy.expect(state, decision)
        opened.append((decision, context))
        if t % 3:
            late, met = opened.pop(int(rng.integers(len(opened))))
            seen = (rng.random(3) < weights).astype(float)
            clicks = seen[:, None] * (rng.random((3, 1)) < 0.5)
            state = policy.update(state, late, fw.Shown(seen, clicks))
            total[late.action] += seen
            total[6] += clicks.sum()
            heard.append((late, met))
    theta = state.state.theta[0, 0].reshape(2, 2)

    def clicks_of(decision: Any, met: Any) -> float:
        return float(weights @ np.array([met.user @ theta @ features[i] for i in decision.action]))

    away = (total[6] - sum(clicks_of(*one) for one in heard)) / len(heard)
    guesses = np.zeros(7)
    for decision, met in opened:
        guesses[decision.action] += weights
        guesses[6] += clicks_of(decision, met)
    guesses[6] = np.clip(guesses[6] / len(opened) + away, 0.0, 3.0) * len(opened)
    z = (total + guesses) / (len(heard) + len(opened))
    np.testing.assert_allclose(z_of(state), z, rtol=1e-10)
    assert len(opened) > 15


POLICIES = [
    fw.FrankWolfe(Minimum(), LinUCB(exploration=0.3)),
    fw.FrankWolfe(GiniWelfare(), SquareCB(gamma0=5.0), memory=30.0),
    fw.FrankWolfe(GiniWelfare(), LinUCB(model="extended", exploration="theorem")),
    fw.FrankWolfe(Minimum(), EpsilonGreedy(0.1)),
    fw.FrankWolfe(Minimum(), SquareCB(gamma0=5.0), fw.smoothing.Randomized(n_samples=2)),
]


def rounds(n: int, seed: int = 0) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(seed)
    low, high = PROBLEM.low, PROBLEM.high
    return [(rng.uniform(-0.5, 0.5, (4, 3)), rng.uniform(low, high)) for _ in range(n)]


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_with_prompt_answers_nothing_changes(policy: Any) -> None:
    both = [fw.Agent(replace(policy, anticipate=on), PROBLEM, seed=3) for on in (True, False)]
    for context, reward in rounds(150):
        one, other = (agent.act(context) for agent in both)
        assert (one.action, one.probability) == (other.action, other.probability)
        for agent, decision in zip(both, (one, other), strict=True):
            agent.update(decision, reward)
    assert both[0].average.tolist() == both[1].average.tolist()


# With memory the latest answers weigh most, and a sampled direction is the last one followed.
@pytest.mark.parametrize(
    "policy", [p for p in POLICIES if p.memory is None and p.smoothing is None], ids=repr
)
def test_any_order_of_answers_gives_the_same_direction(policy: Any) -> None:
    contexts = rounds(60)
    directions = []
    for seed in range(3):
        agent = fw.Agent(policy, PROBLEM, seed=1)
        made = [(agent.act(context), reward) for context, reward in contexts]
        order = np.arange(40)  # twenty stay open
        for i in np.random.default_rng(seed).permutation(order) if seed else order:
            agent.update(*made[i])
        z = agent._running.direction()
        probability = agent.act(contexts[0][0]).probability
        directions.append((z, 1.0 if probability is None else probability))
    for z, probability in directions[1:]:
        np.testing.assert_allclose(z, directions[0][0], rtol=1e-9, atol=1e-9)
        assert probability == pytest.approx(directions[0][1], rel=1e-9)


def test_what_is_answered_and_what_is_open_are_apart() -> None:
    agent = fw.Agent(POLICIES[0], PROBLEM)
    made = [agent.act(context) for context, _ in rounds(10)]
    agent.update(made[3], [1.0, 2.0])
    assert (agent.t, agent.open, agent.average.tolist()) == (1, 9, [1.0, 2.0])
    assert (agent._running.t, agent._running.open) == (1, 9)


def test_unknown_is_the_mean_of_the_answered() -> None:
    # A block of parameters that has learnt nothing says nothing, not 0.
    problem = fw.Problem.arms(2, {"a": (0, 1), "b": (0, 1)}, n_arms=2)
    policy = fw.FrankWolfe(QUADRATIC, LinUCB(exploration="theorem"), Identity())
    state, rng = policy.init(problem), np.random.default_rng(0)
    context = fw.PerArm([0.6, 0.8])
    first = policy.act(state, context, rng)
    state = policy.update(policy.expect(state, first), first, [1.0, 0.5])
    other = next(
        d
        for d in (policy.act(state, context, np.random.default_rng(s)) for s in range(99))
        if d.action != first.action
    )
    state = policy.expect(state, other)
    assert state.open == 1
    np.testing.assert_allclose(z_of(state), [1.0, 0.5])


def test_estimates_are_cut_to_the_ranges() -> None:
    policy = fw.FrankWolfe(QUADRATIC, LinUCB(ridge=1e-3, exploration="theorem"), Identity())
    state, rng = policy.init(PROBLEM), np.random.default_rng(0)
    for _ in range(20):  # small features earn 1, so large ones are estimated to earn 10
        decision = policy.act(state, [[0.1, 0.0, 0.0]], rng)
        state = policy.update(state, decision, [1.0, 2.0])
    for _ in range(20):
        state = policy.expect(state, policy.act(state, [[1.0, 0.0, 0.0]], rng))
    np.testing.assert_allclose(z_of(state), [1.0, 2.0])


def test_a_policy_without_estimates_is_played_as_before() -> None:
    agent = fw.Agent(fw.FrankWolfe(Minimum(), Plain()), PROBLEM)
    made = [agent.act(context) for context, _ in rounds(5)]
    assert (agent.open, agent._running.open, agent._running.t) == (5, 0, 0)
    agent.expire(made[0])
    agent.update(made[1], [0.5, 0.5])
    assert (agent.t, agent.open) == (1, 3)


def test_decisions_of_any_policy_expire() -> None:
    agent = fw.Agent(InTurn(), PROBLEM, expires=3)
    agent.act(np.eye(3))
    agent.act_many([np.eye(3)] * 4)
    assert (agent.open, agent.stats()["expired"]) == (3, 2)


class InTurn:
    """A policy that keeps the contract and nothing else."""

    def init(self, problem: Any) -> Any:
        return np.zeros(1)

    def act(self, state: Any, context: Any, rng: Any) -> Any:
        return Decision("", 0, int(state[0]) % len(context), 1.0, ())

    def update(self, state: Any, decision: Any, feedback: Any) -> Any:
        return state + 1.0


class Plain:
    """A base that keeps the contract and nothing else."""

    def init(self, problem: Any) -> Any:
        return np.zeros(1)

    def act(self, state: Any, context: Any, direction: Any, rng: Any) -> Any:
        return fw.Choice(0, 1.0, ())

    def update(self, state: Any, choice: Any, direction: Any, observation: Any) -> Any:
        return state


# --- expiry -----------------------------------------------------------------------------------


def test_an_expired_decision_is_open_no_more_and_its_answer_is_refused() -> None:
    agent = fw.Agent(fw.FrankWolfe(QUADRATIC, LinUCB(exploration="theorem"), Identity()), PROBLEM)
    for context, reward in rounds(5):
        agent.update(agent.act(context), reward)
    before = agent._running.direction().copy()
    decision = agent.act(np.eye(3))
    assert not np.array_equal(agent._running.direction(), before)
    agent.expire(decision)
    assert np.array_equal(agent._running.direction(), before)
    for refused in (agent.update, lambda d, r: agent.update_many([d], [r])):
        with pytest.raises(InvalidInput, match="expired"):
            refused(decision, [1.0, 1.0])
    with pytest.raises(InvalidInput, match="expired"):
        agent.expire(decision)
    assert (agent.t, agent.open, agent.stats()["expired"]) == (5, 0, 1)


def test_decisions_expire_by_themselves_after_so_many() -> None:
    agent = fw.Agent(POLICIES[0], PROBLEM, expires=5)
    made = [agent.act(context) for context, _ in rounds(12)]
    assert (agent.open, agent.stats()["expired"]) == (5, 7)
    with pytest.raises(InvalidInput, match="expired"):
        agent.update(made[6], [1.0, 1.0])
    agent.update(made[7], [1.0, 1.0])
    again = fw.Agent.restore(agent.dump())
    for one in (agent, again):
        one.act_many([np.eye(3)] * 4)
        stats = one.stats()
        assert (stats["t"], stats["open"], stats["expired"]) == (1, 5, 10)
    for name in ("open", "weights", "sums", "phi", "psi"):
        one, other = (getattr(a._running.state, name) for a in (again, agent))
        assert one.tolist() == other.tolist()


@pytest.mark.parametrize("expires", [0, -1, 1.5, True, "5"])
def test_what_cannot_be_a_number_of_decisions_is_refused(expires: Any) -> None:
    with pytest.raises(InvalidInput, match="expires"):
        fw.Agent(POLICIES[0], PROBLEM, expires=expires)


@pytest.mark.parametrize("expires", [None, 1000])
def test_an_agent_whose_answers_stop_still_decides_well(expires: int | None) -> None:
    # Two arms, each good for one reward: an even share of both is best. The answers stop after
    # 200; 10^5 decisions later it still shares evenly, whether or not they have expired.
    problem = fw.Problem.arms(2, {"a": (0, 1), "b": (0, 1)})
    agent = fw.Agent(fw.FrankWolfe(Minimum(), LinUCB(exploration=0.1)), problem, expires=expires)
    means = np.array([[0.8, 0.1], [0.1, 0.8]])
    for _ in range(200):
        decision = agent.act(np.eye(2))
        agent.update(decision, means[decision.action])
    contexts = np.broadcast_to(np.eye(2), (1000, 2, 2))
    for _ in range(100):
        actions: list[Any] = [decision.action for decision in agent.act_many(contexts)]
    assert abs(np.mean(actions) - 0.5) < 0.05
    assert agent.open == (100_000 if expires is None else 1000)


# --- safeguards -------------------------------------------------------------------------------


def shortfall(policy: Any, off: tuple[float, float] | None, delay: int, seed: int) -> float:
    """f* - f of all rewards after 8,000 rounds in tables of 4 contexts with 4 arms, f the least of
    two rewards; answers come late, and estimates may be off.
    """
    rng = np.random.default_rng(seed)
    problem = fw.Problem.arms(16, {"a": (0, 1), "b": (0, 1)})
    means = rng.random((4, 4, 2))
    tables = np.eye(16).reshape(4, 4, 16)
    state, waiting, total, horizon = policy.init(problem), [], np.zeros(2), 8000
    for t in range(horizon):
        which = int(rng.integers(4))
        decision = policy.act(state, tables[which], rng)
        if off is not None:
            estimate = decision.batch.rows.estimate
            estimate[:] = np.clip(estimate + off, 0.0, 1.0)
        state = policy.expect(state, decision)
        mean = means[which, decision.action]
        total += mean
        waiting.append((decision, (rng.random(2) < mean).astype(float)))
        if t >= delay:
            state = policy.update(state, *waiting.pop(0))
    # By duality: the best of all policies for the worst weights.
    best = min(float((means @ [w, 1.0 - w]).max(axis=1).mean()) for w in np.linspace(0, 1, 1001))
    return best - float((total / horizon).min())


@pytest.mark.slow
@pytest.mark.needs("scikit-learn")
def test_biased_estimates_do_no_harm() -> None:
    # A regressor in Python, whose estimates are kept as they were made: (.4, -.3) is added to each.
    model = SklearnRegressor("sklearn.linear_model:Ridge", {"fit_intercept": False}, growth=1.3)
    base = EpsilonGreedy(0.05, oracle=model)
    kinds: list[tuple[bool, Any]] = [(False, None), (True, (0.4, -0.3)), (True, None)]
    ignoring, off, right = (
        float(
            np.mean(
                [
                    shortfall(fw.FrankWolfe(Minimum(), base, anticipate=counted), by, 1000, seed)
                    for seed in range(2)
                ]
            )
        )
        for counted, by in kinds
    )
    print(f"ignoring {ignoring:.4f}, biased {off:.4f}, right {right:.4f}")
    assert off <= 1.2 * ignoring
    assert right <= ignoring


# --- sums -------------------------------------------------------------------------------------


def test_sums_do_not_drift() -> None:
    # A million decisions open and close beside ten that stay: what is left is theirs, exactly.
    policy = fw.FrankWolfe(QUADRATIC, LinUCB(exploration="theorem"), Identity())
    state, rng = policy.init(PROBLEM), np.random.default_rng(0)

    def opened(features: Any) -> Any:
        rows = ArmRows.empty(len(features), 3, 0)
        rows.head["block"], rows.x[:] = 0, features
        rows.head["place"] = state.issued + np.arange(len(features))
        state.open_rows(rows)
        return rows

    opened(rng.normal(size=(10, 3)))
    start = state.state.phi.copy()
    for _ in range(1000):
        rows = opened(rng.normal(size=(1000, 3)) * 10.0 ** rng.integers(-6, 6, (1000, 1)))
        state.withdraw(rows.part(rng.permutation(1000)))
    assert state.open == 10
    np.testing.assert_allclose(state.state.phi.sum(axis=1), start.sum(axis=1), rtol=1e-14)


# --- rankings ---------------------------------------------------------------------------------


def test_expected_exposures_enter_z_by_their_chance() -> None:
    problem = fw.Problem.ranking(4, 2, (1, 1))
    weights = (0.8, 0.5)
    policy = FWLinUCBRank(
        QUADRATIC,
        smoothing=Identity(),
        iterate="expected",
        position_weights=weights,
        exploration="theorem",
    )
    state, rng = policy.init(problem), np.random.default_rng(0)
    shown = np.zeros(4)
    for _ in range(30):
        decision = policy.act(state, fw.Bilinear([1.0], rng.random((4, 1))), rng)
        seen = (rng.random(2) < weights).astype(float)
        state = policy.update(state, decision, fw.Shown(seen, seen[:, None] * 0.5))
        shown[decision.action] += weights
    np.testing.assert_allclose(z_of(state)[:4], shown / 30.0, rtol=1e-12)
    assert not np.allclose(state.average[:4], shown / 30.0)  # what was earned stays what it was


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ((0.5, 0.6), "none larger"),
        ((1.2, 0.6), "from 0 to 1"),
        ((0.5, -0.1), "from 0 to 1"),
        ((float("nan"), 0.1), "position_weights"),
        ((0.5,), "2 slots"),
        ("often", "position_weights"),
        ([[0.5, 0.2]], "position_weights"),
    ],
)
def test_position_weights_that_cannot_be_are_refused(weights: Any, words: str) -> None:
    problem = fw.Problem.ranking(4, 2, (1, 1))
    f = TwoSided(GiniWelfare(), beta=0.5)
    with pytest.raises(InvalidInput, match=words):
        FWLinUCBRank(f, position_weights=weights, exploration="theorem").init(problem)


def test_expected_is_refused_for_arms() -> None:
    with pytest.raises(InvalidInput, match="exposures"):
        fw.FrankWolfe(GiniWelfare(), LinUCB(exploration="theorem"), iterate="expected").init(
            PROBLEM
        )


# --- nodes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", [-1, 2**32, 1.5, "a", None])
def test_what_cannot_be_a_node_is_refused(node: Any) -> None:
    with pytest.raises(InvalidInput, match="node"):
        fw.Agent(POLICIES[0], PROBLEM, node=node)


def test_nodes_draw_differently_and_each_is_reproducible() -> None:
    def play(node: int) -> list[Any]:
        agent = fw.Agent(POLICIES[4], PROBLEM, seed=1, node=node)
        return [agent.act(context).action for context, _ in rounds(200)]

    assert play(0) == play(0) != play(1) == play(1)
