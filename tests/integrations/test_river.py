"""An agent at the end of a pipeline of river."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.core.features import Encoder
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput, MissingExtra
from fairwolfe.objectives import GiniWelfare

pytestmark = pytest.mark.needs("river")

ARMS = ("left", "middle", "right")
REWARDS = {"clicks": (0.0, 1.0), "saves": (0.0, 1.0)}
ENCODER = Encoder(8, {"age": (-3, 3), "hour": (-3, 3)}, n_names=2)
POLICY = fw.FrankWolfe(GiniWelfare(), fw.bandits.SquareCB(gamma0=50.0))


def visits(n: int) -> list[dict[str, float]]:
    rng = stream(0, "visits")
    return [{"age": rng.uniform(18, 80), "hour": rng.uniform(0, 24)} for _ in range(n)]


def answer(arm: str, x: dict[str, float]) -> dict[str, float]:
    return {"clicks": float(arm == "left" and x["age"] < 50), "saves": float(arm == "right")}


def bandit() -> Any:
    from fairwolfe.integrations.river import Bandit

    return Bandit(POLICY, ARMS, REWARDS, ENCODER, seed=4)


def test_a_pipeline_decides_as_an_agent_behind_the_same_scaler() -> None:
    from river.preprocessing import StandardScaler

    model = StandardScaler() | bandit()
    scaler: Any = StandardScaler()
    agent = fw.Agent(POLICY, fw.Problem.arms(8, REWARDS, n_arms=3), seed=4)
    chosen = []
    for x in visits(300):
        arm = model.predict_one(x)
        model.learn_one(x, answer(arm, x))
        decision = agent.act(fw.PerArm(ENCODER(scaler.transform_one(x))))
        agent.update(decision, answer(ARMS[int(np.asarray(decision.action))], x))
        scaler.learn_one(x)
        chosen.append(arm)
        assert arm == ARMS[int(np.asarray(decision.action))]
    np.testing.assert_array_equal(model["Bandit"].agent.average, agent.average)
    assert chosen[150:].count("middle") < 25  # which earns nothing; chance is 50


def test_a_clone_has_learnt_nothing() -> None:
    model = bandit()
    for x in ({"age": 0.1, "hour": 0.2}, {"age": -1.0, "hour": 0.3}):
        model.predict_one(x)
        model.learn_one(x, {"clicks": 1, "saves": 0})
    fresh = model.clone()
    assert (model.agent.t, fresh.agent.t) == (2, 0)
    assert fresh.predict_one({"age": 0.0}) == bandit().predict_one({"age": 0.0})


# It has no defaults; and an Agent is never pickled, it is saved.
NOT_ASKED = {"check_init_has_default_params_for_tests", "check_pickling_supports_roundtrip"}


def test_the_checks_of_river_pass() -> None:
    from river import checks

    asked = {check.__name__: check for check in checks.yield_checks(bandit())}
    assert len(asked.keys() - NOT_ASKED) >= 8
    for name in asked.keys() - NOT_ASKED:
        asked[name](bandit())


def test_what_is_asked_in_the_wrong_order() -> None:
    model = bandit()
    with pytest.raises(InvalidInput, match=r"no prediction to learn from; call predict_one"):
        model.learn_one({"age": 0.0}, {"clicks": 1, "saves": 0})
    model.predict_one({"age": 0.0})
    model.predict_one({"age": 1.0})  # the first is dropped
    assert (model.agent.open, model.agent.t) == (1, 0)
    with pytest.raises(InvalidInput, match=r"the reward lacks saves"):
        model.learn_one({"age": 1.0}, {"clicks": 1})
    with pytest.raises(InvalidInput, match=r"feature 'size' is 3, a number without a range"):
        model.predict_one({"size": 3})


def test_without_river_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "river", None)
    monkeypatch.delitem(sys.modules, "fairwolfe.integrations.river", raising=False)
    with pytest.raises(MissingExtra, match=r"pip install 'fairwolfe\[integrations\]'"):
        import fairwolfe.integrations.river  # noqa: F401
