"""P17: V stays finite and positive definite, and the kept inverse agrees with a fresh one."""

from __future__ import annotations

import io

import numpy as np
import pytest

from tests.service.inside import Inside
from tests.service.servers import config
from tests.service.test_p04_any_order import WINDOW, ranking

NEAR = 1e-8


def arrays(service: Inside, name: str) -> dict[str, np.ndarray]:
    agent = service.model(name).agent
    assert agent is not None
    names = ("gram", "inverse", "theta", "moment")
    with np.load(io.BytesIO(agent.dump())) as file:
        return {name: file[f"state.{name}"] for name in names}


def check(design: dict[str, np.ndarray]) -> float:
    """How far the kept inverse is from a fresh one."""
    furthest = 0.0
    for gram, inverse in zip(design["gram"][0], design["inverse"][0], strict=True):
        assert np.isfinite(gram).all()
        assert np.linalg.eigvalsh(gram).min() > 0.0
        fresh = np.linalg.inv(gram)
        furthest = max(furthest, float(np.abs(inverse - fresh).max() / np.abs(fresh).max()))
    return furthest


def wild(rng: np.random.Generator, shape: tuple[int, ...]) -> list[object]:
    """Features that are allowed and as bad as can be: nearly dependent, tiny, at the limit."""
    direction = rng.normal(size=shape[-1])
    scale = 10.0 ** rng.uniform(-9.0, 0.0)
    rows = direction * scale + 1e-7 * rng.normal(size=shape)
    return (rows / max(1.0, float(np.linalg.norm(rows, axis=-1).max()))).tolist()  # type: ignore[no-any-return]


def test_arms_with_wild_features_and_rewards() -> None:
    text = config(f"{WINDOW:g} s", both=False)
    service = Inside(text.replace("window =", 'out_of_range = "learn"\nwindow ='))
    rng = np.random.default_rng(0)
    for _ in range(60):
        asks = [{"arms": wild(rng, (3, 5))} for _ in range(10)]
        for answer in service.decide_many("router", asks):
            id = service.model("router").id(answer.number)
            rewards = {
                "clicks": 10.0 ** rng.uniform(-300, 5.9),
                "minutes": -(10.0 ** rng.uniform(0.0, 6.0)),
            }
            assert service.tell("router", {"id": id, "rewards": rewards}) == ["joined"]
        service.advance(WINDOW)
    model = service.model("router")
    assert (model.t, model.stopped) == (600, "")
    design = arrays(service, "router")
    assert check(design) <= NEAR
    assert np.isfinite(design["theta"]).all()
    agent = model.agent
    assert agent is not None
    assert agent.out_of_range > 0
    assert service.core.models["router"].value is not None


def test_rankings_with_wild_users() -> None:
    service = ranking("zero")
    rng = np.random.default_rng(0)
    model = service.model("front")
    for _ in range(60):
        asks = [{"user": wild(rng, (4,))} for _ in range(10)]
        for answer in service.decide_many("front", asks):
            keys = model.keys_of(answer.action)
            entry = {"id": model.id(answer.number), "exposed": keys, "clicked": keys[:2]}
            assert service.tell("front", entry) == ["joined"]
        service.advance(WINDOW)
    assert (model.t, model.stopped) == (600, "")
    agent = model.agent
    assert agent is not None
    design = arrays(service, "front")
    assert all(np.isfinite(one).all() for one in design.values())
    before = {name: one.copy() for name, one in design.items()}
    assert agent.repair() <= NEAR  # computed afresh from the sums: this is how far it was off
    after = arrays(service, "front")
    for name in ("inverse", "theta"):
        assert after[name] == pytest.approx(before[name], rel=1e-6, abs=1e-8)


def test_the_check_finds_a_wrong_inverse() -> None:
    service = Inside(config(f"{WINDOW:g} s", both=False))
    service.decide("router", arms=[[0.1, 0.2, 0.3, 0.0, 0.1]])
    service.advance(WINDOW)
    design = arrays(service, "router")
    assert check(design) <= NEAR
    design["inverse"][0, 0, 0, 0] += 1e-6
    assert check(design) > NEAR
