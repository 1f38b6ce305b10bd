"""IPS, SNIPS and DR: special cases that must coincide, OBP's own numbers, policies of all kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, Fixed, LinUCB, SquareCB, Thompson, Uniform
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import AtLeast, AtMost, Custom, GeneralizedGini, Linear, Minimum, Nash
from fairwolfe.offpolicy import Log
from fairwolfe.oracles import OnlineGradient, Ridge
from tests.offpolicy import logs
from tests.offpolicy.logs import ARMS, PROBLEM, THETA, best_by_first, columns

OBP = json.loads((Path(__file__).parent / "obp_numbers.json").read_text())
CLICKS = Linear({"clicks": 1.0})
LEAST = Custom(lambda z: float(np.min(z)), lambda z: np.eye(z.size)[z.argmin()])


def test_the_policy_that_logged_earns_what_was_earned() -> None:
    table = columns(500)
    log = Log.of(table, PROBLEM)
    for estimator in ("ips", "snips"):
        found = log.evaluate(table["probabilities"], Minimum(), estimator)
        assert np.allclose(found.average, log.average, rtol=0, atol=1e-12)
        assert found.ess == pytest.approx(500)


def test_dr_with_the_true_model_has_no_bias_and_the_least_variance() -> None:
    table = columns(3000)
    log = Log.of(table, PROBLEM)
    q = table["context"] @ THETA.T
    target = np.eye(ARMS)[table["context"][:, :, 1].argmax(axis=1)]
    truth = (target[:, :, None] * q).sum(axis=1).mean(axis=0)
    exact = log.evaluate(target, CLICKS, "dr", model=q)
    fitted = log.evaluate(target, CLICKS, "dr")
    plain = log.evaluate(target, CLICKS, "ips")
    assert np.abs(exact.average - truth).max() < 5 * exact.errors.max()
    assert exact.errors[0] < plain.errors[0]
    assert fitted.errors[0] < plain.errors[0]
    # Where rewards are what the model says, nothing is left to correct.
    table |= {
        f"reward.{n}": q[np.arange(3000), table["action"], i] for i, n in enumerate(logs.NAMES)
    }
    certain = Log.of(table, PROBLEM).evaluate(target, CLICKS, "dr", model=q)
    assert np.allclose(certain.average, truth, rtol=0, atol=1e-12)


@pytest.mark.parametrize("estimator", ["ips", "snips", "dr"])
def test_obp_itself_estimates_the_same(estimator: str) -> None:
    feedback = {k: np.array(OBP[k]) for k in ("context", "action", "reward", "pscore")}
    log = Log.of({**feedback, "n_actions": OBP["n_actions"], "position": None})
    f = Linear({"reward": 1.0})
    model = np.array(OBP["predicted"]) if estimator == "dr" else None
    found = log.evaluate(np.array(OBP["policy"]), f, estimator, model=model)
    assert abs(found.value - OBP["found"][estimator]) < 1e-9
    assert found.low < found.value < found.high


@pytest.mark.parametrize("estimator", ["ips", "snips", "dr"])
def test_chunks_do_not_change_anything(estimator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = columns(300)
    whole = Log.of(table, PROBLEM).evaluate(best_by_first, Nash(), estimator)
    monkeypatch.setattr("fairwolfe.offpolicy.reading.CHUNK", 37)
    log = Log.of(table, PROBLEM)
    assert len(log._data.parts) > 8  # type: ignore[union-attr]
    parts = log.evaluate(best_by_first, Nash(), estimator)
    assert parts.value == pytest.approx(whole.value, abs=1e-12)
    assert (parts.low, parts.high) == pytest.approx((whole.low, whole.high), abs=1e-9)


# --- policies ------------------------------------------------------------------------------------


def test_every_way_to_give_a_policy() -> None:
    table = columns(200)
    log = Log.of(table, PROBLEM)
    actions = table["context"][:, :, 0].argmax(axis=1)
    want = log.evaluate(np.eye(ARMS)[actions], Minimum(), "ips")
    lists = [np.eye(ARMS)[a].tolist() for a in actions]
    for policy in (actions, best_by_first, lists, lambda x: np.eye(ARMS)[np.argmax(x[:, 0])]):
        assert np.array_equal(log.evaluate(policy, Minimum(), "ips").average, want.average)
    one = log.evaluate(2, Minimum(), "ips").average
    assert np.array_equal(one, log.evaluate(Fixed(2), Minimum(), "ips").average)
    uniform = log.evaluate(np.full((200, ARMS), 1 / ARMS), Minimum(), "ips").average
    assert np.allclose(log.evaluate(Uniform(), Minimum(), "ips").average, uniform, atol=1e-12)


class BestByFirst:
    """A policy of somebody's own, by the power."""

    def distribution(self, part: Any) -> Any:
        return np.eye(part.n_arms)[np.array([best_by_first(x) for x in part.features])]


def test_an_object_with_distribution_is_as_good_as_a_function() -> None:
    log, policy = logs.log(), BestByFirst()
    one, other = (log.evaluate(given, Minimum()) for given in (policy, best_by_first))
    assert np.array_equal(one.average, other.average)
    assert (one.low, one.high) == (other.low, other.high)


@pytest.mark.parametrize(
    "base",
    [EpsilonGreedy(0.2), SquareCB(gamma0=30.0), LinUCB(exploration="theorem"), Uniform()],
    ids=repr,
)
def test_an_agent_is_evaluated_with_its_own_probabilities(base: Any) -> None:
    log = logs.log(400)
    agent = log.agent(Minimum(), base)
    target = _target(log, agent)
    counts = np.zeros((5, ARMS))
    contexts = columns(5, seed=9)["context"]
    probe = _target(Log.of(columns(5, seed=9), PROBLEM), agent)
    for _ in range(500):  # what it draws, against what it says
        for i, context in enumerate(contexts):
            with agent.held() as running:
                made = agent.policy.act(running, context, np.random.default_rng(_ * 5 + i))
            counts[i, made.action] += 1
            assert probe[i, made.action] == pytest.approx(made.probability, abs=1e-9)
        if not 0.0 < probe.max(axis=1).min() < 1.0:
            break
    else:
        assert np.abs(counts / 500 - probe).max() < 0.112  # five standard errors of a half
    assert np.allclose(target.sum(axis=1), 1.0)


def _target(log: Log, policy: Any) -> Any:
    from fairwolfe.offpolicy.targets import target_of

    data: Any = log._data
    made = target_of(policy, data)
    return np.concatenate([made(span, part) for span, part in data.spans()])


def test_contexts_with_different_arms() -> None:
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = [
        {
            "context": rng.random((int(k), 3)),
            "action": int(rng.integers(0, k)),
            "probability": 1 / int(k),
            **{f"reward.{name}": float(rng.random()) for name in logs.NAMES},
        }
        for k in rng.integers(2, 5, 300)
    ]
    log = Log.of(rows, PROBLEM)
    found = log.evaluate(lambda x: np.full(len(x), 1 / len(x)), Minimum(), "ips")
    assert np.allclose(found.average, log.average)
    agent = log.agent(Minimum(), SquareCB(gamma0=10.0))
    target = _target(log, agent)
    assert np.allclose(target.sum(axis=1), 1.0)
    assert all(not row[len(one["context"]) :].any() for row, one in zip(target, rows, strict=True))
    with pytest.raises(InvalidInput, match="not there or could not be chosen"):
        log.evaluate(np.full((300, 4), 0.25), Minimum(), "ips")


@pytest.mark.needs("scikit-learn")
def test_models_of_any_kind() -> None:
    from sklearn.tree import DecisionTreeRegressor

    from fairwolfe.oracles import SklearnRegressor

    log = logs.log(600)
    values = {}
    models: dict[str, Any] = {
        "ridge": Ridge(0.5),
        "online": OnlineGradient(),
        "tree": DecisionTreeRegressor(max_depth=3, random_state=0),
        "oracle": SklearnRegressor("sklearn.tree:DecisionTreeRegressor", {"max_depth": 3}),
    }
    for name, model in models.items():
        found = log.evaluate(best_by_first, Minimum(), "dr", model=model)
        values[name] = found.value
        assert found.low < found.value < found.high
    assert max(values.values()) - min(values.values()) < 0.05
    with pytest.raises(InvalidInput, match="the model is 'forest'"):
        log.evaluate(best_by_first, Minimum(), "dr", model="forest")
    with pytest.raises(InvalidInput, match="finite predictions"):
        log.evaluate(best_by_first, Minimum(), "dr", model=np.zeros((600, 2, 3)))


def test_ridge_in_sums_is_the_oracle() -> None:
    from fairwolfe.offpolicy.models import fitted

    log = logs.log(150)
    data: Any = log._data
    model: Any = fitted(Ridge(0.7), data, np.ones(150, dtype=bool))
    state = Ridge(0.7).init(PROBLEM)
    for span, part in data.spans():
        rows = np.ascontiguousarray(part.chosen(data.actions[span]))
        for x, r in zip(rows, data.rewards[span], strict=True):
            Ridge(0.7).learn(0, x, np.ascontiguousarray(r), *state)
    assert np.allclose(model.theta, state.theta, rtol=0, atol=1e-9)


# --- differences, constraints, adaptive logs -------------------------------------------------


def test_a_difference_is_sharper_than_two_intervals() -> None:
    table = columns(3000)
    log = Log.of(table, PROBLEM)
    first = 0.9 * np.eye(ARMS)[table["context"][:, :, 0].argmax(axis=1)] + 0.1 / ARMS
    second = 0.8 * np.eye(ARMS)[table["context"][:, :, 0].argmax(axis=1)] + 0.2 / ARMS
    found = log.compare(first, second, CLICKS, "ips")
    assert found.value == pytest.approx(found.first.value - found.second.value)
    apart = (found.first.high - found.first.low) + (found.second.high - found.second.low)
    assert found.high - found.low < 0.3 * apart
    kinked = log.compare(first, second, Minimum(), "ips")
    assert kinked.low <= kinked.value <= kinked.high
    same = log.compare(first, first, CLICKS, "ips")
    assert (same.value, same.low, same.high) == pytest.approx((0.0, 0.0, 0.0), abs=1e-9)
    assert "is not certain" in log.compare(first, first, Minimum(), "ips").sentence


def test_constraints_are_apart_from_the_value() -> None:
    log = logs.log(3000)
    f = CLICKS + AtLeast({"minutes": 0.05}) + AtMost({"saves": 0.1})
    found = log.evaluate(best_by_first, f, "snips")
    assert np.isfinite(found.value)
    assert [one.kept for one in found.constraints] == [True, False]
    assert "to be at least 0.05: kept" in str(found.constraints[0])
    free = log.evaluate(best_by_first, CLICKS, "snips")
    assert (found.value, found.low, found.high) == (free.value, free.low, free.high)


def test_stabilised_weights_for_a_log_that_explores_less_and_less() -> None:
    """The rows of late, hardly exploring decisions count less; the estimate stays right."""
    rng, n = np.random.default_rng(0), 6000
    p = 0.5 * (1.0 + np.arange(n) / 10.0) ** -0.8  # of arm 1, whatever the context
    errors = {True: [], False: []}  # type: dict[bool, list[float]]
    widths = {True: 0.0, False: 0.0}
    for _ in range(60):
        a = (rng.random(n) < p).astype(int)
        r = (rng.random(n) < np.where(a == 1, 0.6, 0.3)).astype(float)
        table = {"action": a, "probability": np.where(a == 1, p, 1 - p), "reward.clicks": r}
        log = Log.of(table)
        for stabilised in (True, False):
            found = log.evaluate(1, CLICKS, "ips", stabilised=stabilised)
            errors[stabilised].append(found.value - 0.6)
            widths[stabilised] += (found.high - found.low) / 60
    assert np.std(errors[True]) < 0.93 * np.std(errors[False])
    assert abs(np.mean(errors[True])) < 5 * np.std(errors[True]) / np.sqrt(60)
    assert widths[True] < 0.9 * widths[False]


def test_objectives_without_a_proximal_map() -> None:
    log = logs.log(1000)
    least = log.evaluate(best_by_first, Minimum(), "snips")
    own = log.evaluate(best_by_first, LEAST, "snips")
    assert own.value == pytest.approx(least.value)
    assert own.low < own.value <= own.high


def test_near_the_edge_of_a_domain_the_low_end_is_minus_infinity() -> None:
    rng, n = np.random.default_rng(0), 500
    table = {
        "action": rng.integers(0, 2, n),
        "probability": np.full(n, 0.5),
        "reward.rare": (rng.random(n) < 0.01).astype(float),
        "reward.usual": (rng.random(n) < 0.5).astype(float),
    }
    found = Log.of(table).evaluate(0, Nash(), "ips")
    assert found.low == -np.inf
    assert np.isfinite(found.high)
    assert any("minus infinity" in text for text in found.warnings)
    assert "minus infinity" in found.sentence
    assert str(found)
    table["reward.rare"] = np.zeros(n)
    never = Log.of(table)
    assert never.evaluate(0, Nash(), "ips").value == -np.inf
    gap = never.compare(0, 1, Nash(), "ips")
    assert (gap.low, gap.high) == (-np.inf, np.inf)
    assert "not defined" in gap.sentence


def test_a_kink_is_said_in_words() -> None:
    rng, n = np.random.default_rng(0), 2000
    table: dict[str, Any] = {"action": np.zeros(n, dtype=int), "probability": np.full(n, 1.0)}
    table |= {f"reward.r{i}": (rng.random(n) < 0.5).astype(float) for i in range(10)}
    found = Log.of(table).evaluate(0, Minimum(), "ips")
    assert any("f is at a kink here" in text for text in found.warnings)
    assert found.bias > 0.0
    smooth = Log.of(table).evaluate(0, Linear({"r0": 1.0}), "ips")
    assert smooth.warnings == ()
    assert smooth.bias < 1e-3


def test_the_interval_is_a_function_of_the_data() -> None:
    first, second = (logs.log(500).evaluate(best_by_first, Minimum()) for _ in range(2))
    assert (first.low, first.high) == (second.low, second.high)
    wider = logs.log(500).evaluate(best_by_first, Minimum(), level=0.99)
    assert wider.low < first.low < first.high < wider.high


def test_units_of_rewards_are_harmless() -> None:
    table = columns(800)
    f = GeneralizedGini((1.0, 0.5, 0.2))
    one = Log.of(table, PROBLEM).evaluate(best_by_first, f, "snips")
    scaled = table | {f"reward.{name}": 1000.0 * table[f"reward.{name}"] for name in logs.NAMES}
    problem = fw.Problem.arms(3, dict.fromkeys(logs.NAMES, (0, 1000)), feature_norm=2.0)
    thousand = Log.of(scaled, problem).evaluate(best_by_first, f, "snips")
    assert (thousand.value, thousand.low, thousand.high) == pytest.approx(
        (1000 * one.value, 1000 * one.low, 1000 * one.high), rel=1e-6
    )


def test_thompson_does_not_know_its_probabilities() -> None:
    log = logs.log(50)
    agent = fw.Agent(fw.FrankWolfe(Minimum(), Thompson()), PROBLEM)
    with pytest.raises(InvalidInput, match="does not know the probabilities"):
        log.evaluate(agent, Minimum(), "ips")


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_very_few_decisions_give_an_answer_and_a_warning(n: int) -> None:
    table = columns(n)
    log = Log.of(table, PROBLEM)
    for estimator in ("ips", "snips", "dr"):
        found = log.evaluate(table["action"], Minimum(), estimator)
        assert found.low <= found.high
        assert any("not to be trusted" in text for text in found.warnings)
    assert log.check().facts
