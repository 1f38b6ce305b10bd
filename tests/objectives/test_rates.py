"""Limits on rates, one average per another: the leaf, its width, its sentences, every path."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB, Thompson
from fairwolfe.checks import outcomes
from fairwolfe.core.arrays import Vector
from fairwolfe.core.build import build_objective, from_text
from fairwolfe.core.kinds import kind_of
from fairwolfe.environments import Finite
from fairwolfe.errors import IncompatibleState, InvalidInput, NotConcave
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    ByGroup,
    Concave,
    GiniWelfare,
    Linear,
    Minimum,
    TwoSided,
    Within,
)
from fairwolfe.ranking import FWLinUCBRank
from fairwolfe.reduction import FrankWolfe
from fairwolfe.reduction.constraints import Constraint
from fairwolfe.reduction.frank_wolfe import PlainRunning
from fairwolfe.reduction.running import ArmsRunning
from fairwolfe.simulation import Lateness, simulate
from fairwolfe.smoothing import Augmented, Moreau
from fairwolfe.smoothing.prices import Prices
from tests.service.inside import Inside
from tests.service.servers import config

NAMES = {"clicks": (0, 1), "margin": (0, 40), "returned": (0, 1), "ordered": (0, 1)}
SHOP = fw.Problem.arms(4, NAMES)
RETURNS = AtMost({"returned": 0.08}, per="ordered")
KEPT = AtLeast({"margin": 5.0, "clicks": 0.5}, per="ordered", margin=0.3)
F = Linear({"clicks": 1.0, "margin": 0.05}) + RETURNS
# By arm: chances of a click, of an order, of a return, and the margin.
CHANCES = np.array(
    [[0.35, 0.5, 0.30, 30], [0.25, 0.4, 0.02, 8], [0.3, 0.3, 0.06, 15], [0.3, 0.4, 0.12, 20]]
)


def reward(arm: int, rng: np.random.Generator) -> list[float]:
    """Clicks, margin, returned, ordered of a visit."""
    click, order, back, margin = CHANCES[arm]
    clicked = rng.random() < click
    ordered = clicked and rng.random() < order
    returned = ordered and rng.random() < back
    kept = margin if ordered and not returned else 0.0
    return [float(clicked), kept, float(returned), float(ordered)]


def visited(agent: fw.Agent, n: int, seed: int = 0) -> list[Any]:
    """The rewards of n visits."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(n):
        decision = agent.act(np.eye(4))
        found.append(reward(decision.action, rng))
        agent.update(decision, found[-1])
    return found


def agent_of(f: Concave, base: Any = None, **options: Any) -> fw.Agent:
    return fw.Agent(FrankWolfe(f, base or LinUCB(exploration="pointwise"), **options), SHOP, seed=1)


# --- the function ---------------------------------------------------------------------------------


def test_a_rate_is_a_linear_row() -> None:
    f = RETURNS.bind(SHOP)
    for returned, ordered, violation in (
        (0.008, 0.1, 0.0),
        (0.012, 0.1, 0.04),
        (0.0, 0.0, 0.0),
        (0.1, 0.0, math.inf),
    ):
        z = np.array([0.0, 0.0, returned, ordered])
        assert f.violation(z) == pytest.approx(violation, abs=1e-12)
        assert f.value(z) == (0.0 if violation == 0.0 else -math.inf)
    ((_, leaf, matrix),) = f.split(4)
    assert leaf.hard
    assert matrix.toarray().tolist() == [[0.0, 0.0, 1.0, -0.08], [0.0, 0.0, 0.0, 1.0]]
    floor = AtLeast({"margin": 5.0}, per="ordered").bind(SHOP)
    assert floor.violation(np.array([0.0, 0.4, 0.0, 0.1])) == pytest.approx(1.0)
    assert floor.violation(np.array([0.0, 0.6, 0.0, 0.1])) == 0.0
    assert f.relaxed().value(np.array([0.0, 0.0, 1.0, 0.0])) == 0.0
    assert (Linear({"clicks": 1.0}) + RETURNS).bind(SHOP).constrained


def test_a_penalty_is_paid_for_each_unit_beyond() -> None:
    f = AtMost({"returned": 0.08, "clicks": 1.0}, penalty=5.0, per="ordered").bind(SHOP)
    z = np.array([0.3, 0.0, 0.05, 0.1])
    assert f.value(z) == pytest.approx(-5.0 * (0.05 - 0.008 + 0.3 - 0.1))
    np.testing.assert_allclose(f.gradient(z), [-5.0, 0.0, -5.0, 5.0 * 1.08])
    assert not f.constrained
    assert np.isfinite(f.lipschitz(4))
    agent = agent_of(
        Linear({"clicks": 1.0, "margin": 0.05})
        + AtMost({"returned": 0.08}, penalty=20.0, per="ordered")
    )
    visited(agent, 6000)
    assert agent.constraints == ()
    assert agent.average[2] / agent.average[3] < 0.16
    two = agent_of(Linear({"clicks": 1.0, "margin": 0.05}))
    visited(two, 6000)
    assert two.average[2] / two.average[3] > 0.2


@pytest.mark.parametrize("f", [RETURNS, KEPT, AtMost({"a": 1.0}, 2.0, per="b")], ids=repr)
def test_it_prints_as_the_expression_that_makes_it(f: Concave) -> None:
    assert eval(repr(f), vars(fw.objectives)) == f
    assert from_text(repr(f)) == f
    assert "per='" in repr(f)


def test_it_is_read_from_a_table() -> None:
    table = {"name": "at-most", "level": {"returned": 0.08}, "per": "ordered"}
    assert build_objective(table, "objective") == RETURNS
    assert repr(RETURNS) == "AtMost({'returned': 0.08}, per='ordered')"


@pytest.mark.parametrize(
    "f", [RETURNS, KEPT, AtMost({"clicks": 0.8}, 2.0, per="ordered")], ids=repr
)
def test_a_bound_rate_keeps_the_contract_of_objectives(f: Concave) -> None:
    found = list(outcomes(f.bind(SHOP)))
    for one in found:
        if one.check != "is_a_value":  # its leaf has levels of inf, which are no literals
            assert one.error is None, one
    assert len(found) > 5


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "below 0": (
        lambda: AtMost({"a": 0.1}, per="b").bind(fw.Problem.arms(2, {"a": (0, 1), "b": (-1, 1)})),
        r"rate per b, which can be as low as -1; .* range from 0 or above",
    ),
    "with share": (lambda: AtMost({"a": 0.1}, share=True, per="b"), r"share=True and per='b'"),
    "in groups": (
        lambda: ByGroup(Minimum() + AtMost({"x": 0.1}, per="y"), "xxyy").bind(SHOP),
        r"inside of ByGroup, .* add it to ByGroup",
    ),
    "deeper in groups": (
        lambda: ByGroup(2.0 * AtMost({"x": 0.1}, per="y").on("x", "y"), "xxyy").bind(SHOP),
        r"inside of ByGroup",
    ),
    "within": (
        lambda: Within({"a": 0.1}, {"a": 0.2}, per="b"),  # type: ignore[call-arg]
        r"Within takes no per; .* two terms",
    ),
    "no name": (lambda: AtMost(0.1, per="b"), r"the level 0\.1 per 'b'; write AtMost"),
    "no text": (lambda: AtMost({"a": 0.1}, per=3), r"per of AtMost is 3"),  # type: ignore[arg-type]
    "of itself": (lambda: AtMost({"a": 0.1}, per="a"), r"'a' per 'a', which is always 1"),
    "unknown": (lambda: AtMost({"returned": 0.1}, per="orders").bind(SHOP), r"no reward 'orders'"),
    "impossible": (
        lambda: AtMost({"a": 0.1}, per="b").bind(fw.Problem.arms(2, {"a": (1, 2), "b": (0, 2)})),
        r"level of AtMost for a per b is 0\.1, .* between 0\.5 and inf",
    ),
    "another unit": (
        lambda: AtMost({"a": 90.0}, per="b").bind(fw.Problem.arms(2, {"a": (0, 1), "b": (2, 5)})),
        r"level of AtMost for a per b is 90, .* between 0 and 0\.5",
    ),
    "minimum": (lambda: Minimum(per="ordered"), r"Minimum of a ratio is not concave"),
    "Nash": (lambda: from_text("Nash(per='ordered')"), r"Nash of a ratio is not concave"),
}


@pytest.mark.parametrize(("call", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_rate_is_refused(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        call()


def test_a_function_of_a_rate_is_not_concave() -> None:
    with pytest.raises(NotConcave, match=r"ratio of two averages, and Linear of a ratio is not"):
        Linear({"returned": -1.0}, per="ordered")  # type: ignore[call-arg]


# --- widths, prices, margins ----------------------------------------------------------------------


def test_the_direction_is_the_formula() -> None:
    """Widths times factors, margins times the denominator: against the formula in NumPy."""
    f = (Linear({"clicks": 1.0, "margin": 0.05}) + RETURNS + KEPT).bind(SHOP)
    prices = Prices(f, Moreau(1.0), kind_of(SHOP))
    rows = np.array(
        [[0, 0, 1, -0.08], [0, 0, 0, 1], [0, 1, 0, -5.0], [1, 0, 0, -0.5], [0, 0, 0, 1]]
    )
    low, high = np.full(5, -np.inf), np.full(5, np.inf)
    low[[2, 3]], high[0] = 0.0, 0.0
    assert prices.moving.map.toarray().tolist() == rows.tolist()
    ranges = np.array([1.0, 40.0, 1.0, 1.0])
    spreads = abs(rows) @ ranges
    np.testing.assert_allclose(prices.widths, spreads**2 / 3.0)
    assert prices.delta == 3.0
    y, factors = prices.fresh()
    assert factors.tolist() == [1 / 64, 0.0, 1 / 64, 1 / 64, 0.0]
    tree, rng, moved = prices.tree(y, factors), np.random.default_rng(0), 0
    mine = y.copy()
    for t in range(300):
        z = rng.uniform(0.0, 1.0, 4) * [1.0, 10.0, 0.3, 1.0]
        factors[[0, 2, 3]] = rng.uniform(1 / 64, 1.0, 3)
        step = 1.0 / math.sqrt(t + 1.0)
        b = step * prices.widths * factors
        x = rows @ z - b * mine
        room = step * np.array([0.0, 0.0, 0.3, 0.3, 0.0]) * z[3]
        away = np.clip(x, low + room, high - room) - x
        g = np.divide(away, b, out=np.zeros(5), where=away != 0.0)
        np.testing.assert_allclose(prices.paid(z, y, factors, t), g, rtol=1e-9, atol=1e-12)
        expected = np.array([1.0, 0.05, 0.0, 0.0]) + rows.T @ g
        np.testing.assert_allclose(tree.gradient(z, step), expected, rtol=1e-9, atol=1e-9)
        touched, point = prices.touch(z, y, factors, t)
        without = np.divide(
            np.clip(x, low, high) - x, b, out=np.zeros(5), where=np.clip(x, low, high) != x
        )
        np.testing.assert_allclose(touched[:5], without, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(point[:5], x + b * without, rtol=1e-9, atol=1e-9)
        tree.reprice(z, float(t))
        mine = np.clip(mine + 0.5 / (t + 1.0) * (g - mine), -prices.caps, prices.caps)
        np.testing.assert_allclose(y, mine, rtol=1e-9, atol=1e-12)
        moved += int((g != 0.0).sum())
    assert moved > 300


@pytest.mark.parametrize("options", [{}, {"memory": 40.0}], ids=str)
def test_widths_follow_the_denominator_at_powers_of_two(options: Any) -> None:
    """Factors are a function of the answers: the average at the last power of two of t."""
    agent = agent_of(F + AtLeast({"clicks": 0.5}, per="ordered"), **options)
    keep = 1.0 if not options else 0.5 ** (1.0 / 40.0)
    memory = math.floor(1.0 / (1.0 - keep)) if options else math.inf
    total, clock, part, most = 0.0, 0.0, 1 / 64, 0.0
    rng = np.random.default_rng(5)
    for t in range(1, 600):
        decision = agent.act(np.eye(4))
        got = reward(decision.action, rng)
        agent.update(decision, got)
        total, clock = keep * total + got[3], keep * clock + 1.0
        if t & (t - 1) == 0:
            average = total / max(clock, 1.0)
            part = max(average, 1 / 64)
            most = max(most, average - 1.5 * math.sqrt(average / min(t, memory)))
        np.testing.assert_allclose(agent._running.state.factors, [part, most] * 2, rtol=1e-12)
    assert 0.05 < part < 0.5


def test_units_do_not_matter() -> None:
    """Orders counted in dozens, and returns in hundreds, are the same run."""
    actions = []
    for dozen, hundred in ((1.0, 1.0), (16.0, 0.125)):
        names = NAMES | {"returned": (0, hundred), "ordered": (0, dozen)}
        level = {"returned": 0.08 * hundred / dozen}
        f = Linear({"clicks": 1.0, "margin": 0.05}) + AtMost(level, per="ordered")
        agent = fw.Agent(FrankWolfe(f, EpsilonGreedy(0.1)), fw.Problem.arms(4, names), seed=2)
        rng, found = np.random.default_rng(0), []
        for _ in range(400):
            decision = agent.act(np.eye(4))
            c, m, r, o = reward(decision.action, rng)
            agent.update(decision, [c, m, hundred * r, dozen * o])
            found.append(decision.action)
        actions.append(found)
    assert actions[0] == actions[1]


def test_certificates_are_above_f_wherever_the_rate_is_kept() -> None:
    running = agent_of(F)._running
    priced, rng = running.prices, np.random.default_rng(3)
    points = rng.uniform(0.0, 1.0, (500, 4)) * [1.0, 40.0, 0.0, 1.0]
    points[:, 2] = points[:, 3] * rng.uniform(0.0, 0.08, 500)
    values, off = points @ [1.0, 0.05, 0.0, 0.0], 0
    for t in range(200):
        z = rng.uniform(0.0, 1.0, 4) * [1.0, 40.0, 0.3, 1.0]
        prices = (
            -rng.uniform(0.0, 20.0) * np.array([1.0, 0.0]),
            np.array([rng.uniform(0.02, 1), 0.1]),
        )
        certificate = running.certificates.priced_certificate(z, prices, t)
        intercept, slope, floor = certificate
        assert (intercept + points @ slope >= values - 1e-9).all()
        assert (intercept + points @ slope >= floor - 1e-9).all()
        beyond = np.array([0.0, 0.0, 1.0, 1.0])  # all comes back: only prices know of it
        off += int(intercept + beyond @ slope < -1e-9)
    assert priced is not None
    assert off > 100


# --- what is reported -----------------------------------------------------------------------------


def test_before_the_first_order_nothing_is_ok() -> None:
    agent = agent_of(F)
    assert str(*agent.constraints) == "returned per ordered: no ordered yet, to be at most 0.08."
    for _ in range(50):
        agent.update(agent.act(np.eye(4)), [1.0, 0.0, 0.0, 0.0])
    (rate,) = agent.constraints
    assert str(rate) == "returned per ordered: no ordered yet, to be at most 0.08."
    assert rate.feasible is None
    assert math.isnan(rate.average)
    assert math.isnan(rate.slack)


def test_the_rate_is_that_of_the_answers() -> None:
    agent = agent_of(F)
    returned, ordered = np.array(visited(agent, 3000))[:, 2:].sum(axis=0)
    (rate,) = agent.constraints
    assert isinstance(rate, Constraint)
    assert rate.name == "returned per ordered"
    assert rate.average == pytest.approx(returned / ordered)
    assert rate.slack == pytest.approx(0.08 - returned / ordered)
    assert rate.per == "ordered"
    assert rate.per_average == pytest.approx(ordered / 3000)
    kept = "OK" if rate.slack >= 0.0 else "missed by"
    assert re.match(rf"returned per ordered: 0\.\d+ of at most 0\.08 \({kept}", str(rate))
    assert f"one more point (0.01) buys {rate.shadow_price:.3g} of f." in str(rate)


def test_the_sentences() -> None:
    name, of = "returned per ordered", ("at most", "ordered")
    made: Any = Constraint
    assert str(made(name, 0.08, 0.079, 0.001, 0.02, True, *of, 0.12)) == (
        "returned per ordered: 0.079 of at most 0.08 (OK); shadow price: one more point (0.01) "
        "buys 0.02 of f."
    )
    assert "(missed by 0.043)" in str(made(name, 0.08, 0.123, -0.043, 0.0, None, *of, 0.12))
    gone = "ordered vanishes: 0.001, once 0.2 or more)"
    for average, feasible, words in (
        (0.07, None, "kept only because"),
        (0.3, True, "kept only because"),
        (0.3, None, "missed by 0.22;"),
    ):
        one = made(name, 0.08, average, 0.08 - average, 0.0, feasible, *of, 0.001, 0.2)
        assert f"({words} {gone}" in str(one)


def test_a_rate_that_is_kept_only_because_orders_vanish_says_so() -> None:
    """What sells comes back, and what does not come back is never ordered."""
    f = Linear({"clicks": 1.0}) + RETURNS
    agent, rng = agent_of(f, LinUCB(exploration=0.1)), np.random.default_rng(0)
    for _ in range(6000):
        decision = agent.act(np.eye(4))
        back = float(rng.random() < 0.5)
        sells = decision.action < 2
        agent.update(decision, [0.6, 1.0, back, 1.0] if sells else [0.3, 0.0, 0.0, 0.0])
    (rate,) = agent.constraints
    assert agent.average[3] < 0.1
    assert "(kept only because ordered vanishes: " in str(rate)
    means = [[[0.6, 1.0 / 40, 0.5, 1.0], [0.3, 0.0, 0.0, 0.0]]]
    world = Finite(np.eye(2).reshape(1, 2, 2), (1.0,), means=means)
    wanted = Linear((1.0, 0.0, 0.0, 0.0)) + AtMost({"r3": 0.08}, per="r4")
    best = fw.optimum(world, wanted)
    assert best.vanishing == ("r3 per r4",)
    assert "r3 per r4: only because that vanishes" in repr(best)
    assert best.average.tolist() == pytest.approx([0.3, 0.0, 0.0, 0.0])
    visited(other := agent_of(F), 6000)
    assert "vanishes" not in str(other.constraints[0])


# --- every path is the same -----------------------------------------------------------------------


def observed(reward: Any, estimate: Any, t: int) -> Any:
    """Which makes the base run in Python."""
    return reward


@pytest.mark.parametrize(
    "base", [LinUCB(exploration=0.3), SquareCB(gamma0=50.0), Thompson()], ids=repr
)
def test_the_compiled_and_the_plain_path_are_equal(base: Any) -> None:
    f = F + KEPT
    one, other = agent_of(f, base), agent_of(f, base, iterate=observed)
    assert (type(one._running), type(other._running)) == (ArmsRunning, PlainRunning)
    assert visited(one, 300) == visited(other, 300)
    for name in ("totals", "prices", "factors"):
        mine, theirs = (getattr(a._running.state, name) for a in (one, other))
        assert mine.tobytes() == theirs.tobytes(), name
    assert one._running.state.prices.any()
    assert one.constraints == other.constraints


WORLD = Finite(
    np.random.default_rng(5).uniform(0.0, 0.5, (4, 5, 6)),
    (0.25,) * 4,
    means=np.random.default_rng(6).uniform(0.05, 0.95, (4, 5, 4)),
)
RATES = Minimum().on(0, 1) + AtMost({"r3": 0.6}, per="r4") + AtLeast({"r1": 0.8}, per="r3")


@pytest.mark.parametrize(
    "lateness",
    [None, Lateness(delay=7), Lateness(delay=30, refresh=10), Lateness(refresh=25)],
    ids=repr,
)
@pytest.mark.parametrize(
    "policy",
    [
        FrankWolfe(RATES, LinUCB(exploration=0.3)),
        FrankWolfe(RATES, SquareCB(gamma0=50.0), Augmented()),
        FrankWolfe(RATES, LinUCB(exploration=0.3), memory=50.0),
    ],
    ids=["LinUCB", "SquareCB", "memory"],
)
def test_the_loops_are_equal(policy: Any, lateness: Any) -> None:
    plain, quick = (
        simulate(policy, WORLD, 150, 2, lateness=lateness, compiled=compiled, record_actions=True)
        for compiled in (False, True)
    )
    np.testing.assert_array_equal(plain.actions, quick.actions)
    assert plain.average_observed.tobytes() == quick.average_observed.tobytes()
    assert np.isfinite(quick.violation[-1])


def test_a_saved_agent_continues(tmp_path: Any) -> None:
    agent = agent_of(F)
    visited(agent, 200)
    agent.save(tmp_path / "a.fw")
    loaded, restored = fw.Agent.load(tmp_path / "a.fw"), fw.Agent.restore(agent.dump())
    found = visited(agent, 400, 7)
    for other in (loaded, restored):
        assert visited(other, 400, 7) == found
        assert other.constraints == agent.constraints
        assert other._running.state.factors.tobytes() == agent._running.state.factors.tobytes()
    assert agent.live().value == loaded.live().value


def test_factors_that_no_answers_produce_are_refused() -> None:
    agent = agent_of(F)
    visited(agent, 20)
    agent._running.state.factors[0] = -1.0
    with pytest.raises(IncompatibleState, match="factors"):
        fw.Agent.restore(agent.dump())


def test_another_objective_starts_anew() -> None:
    agent = agent_of(F)
    visited(agent, 100)
    agent.replace_objective(Linear({"clicks": 1.0}) + AtMost({"returned": 0.05}, per="ordered"))
    assert agent._running.state.factors.tolist() == [1 / 64, 0.0]
    visited(agent, 30)
    agent.replace_objective(Linear({"clicks": 1.0}))
    assert agent.constraints == ()


def test_a_rate_of_rankings_follows_items_that_come_and_go() -> None:
    problem = fw.Problem.ranking(6, 3, (2, 2), rewards={"orders": (0, 3), "returns": (0, 3)})
    f = TwoSided(GiniWelfare(), users=Linear((1.0, 0.0))) + AtMost({"returns": 0.1}, per="orders")
    items = np.random.default_rng(1).uniform(0.0, 0.7, (6, 2))
    agent = fw.Agent(FWLinUCBRank(f, exploration=0.1), problem, items=items)

    def ranked(n: int) -> None:
        rng = np.random.default_rng(4)
        for _ in range(n):
            decision = agent.act(rng.uniform(0.0, 0.7, 2))
            rewards = (rng.random((3, 2)) < [0.3, 0.1]).astype(float)
            agent.update(decision, fw.Shown(np.ones(3), rewards))

    ranked(200)
    (before,) = agent.constraints
    assert before.name == "returns per orders"
    assert before.shadow_price > 0.0
    factors = agent._running.state.factors.tolist()
    agent.add_items(np.array([[0.5, 0.5]]))
    agent.retire([1])
    assert agent._running.state.factors.tolist() == factors
    (after,) = agent.constraints
    assert (after.average, after.shadow_price) == (before.average, before.shadow_price)
    ranked(200)
    assert agent._running.state.factors.tolist() != factors


def test_a_service_folds_its_log_to_the_same_bits() -> None:
    from fairwolfe.service import page
    from fairwolfe.service.recovery import recover, replay
    from fairwolfe.service.watch import constraints_view

    parts = (
        '{ name = "linear", weights = { minutes = 1.0 } }',
        '{ name = "at-most", level = { clicks = 0.02 }, per = "minutes" }',
    )
    f = f'objective = {{ name = "sum", terms = [{", ".join(parts)}] }}'
    text = re.sub(r"objective = .*", f, config("9 s", both=False), count=1)
    service = Inside(text)
    rng = np.random.default_rng(3)
    (told,) = constraints_view(service.model("router"))
    assert (told["average"], told["per"]) == (None, "minutes")
    assert told["sentence"].startswith("clicks per minutes: no minutes yet")
    frame = page.frame_of(service.core, service.model("router"), {"sentence": ""})
    assert "No minutes yet; the limit is at most 2 %." in frame["parts"]["limits"]
    for step in range(60):
        answer = service.decide("router", arms=rng.uniform(-0.4, 0.4, (3, 5)).tolist())
        id = service.model("router").id(answer.number)
        rewards = {"clicks": float(rng.integers(2)), "minutes": float(rng.uniform(0.0, 10.0))}
        service.tell("router", {"id": id, "rewards": rewards})
        service.advance(1.0)
        if step == 40:
            service.core.snapshot()
    model = service.model("router")
    assert model.agent is not None
    assert model.agent._running.state.prices.any()
    for found in (replay(service.store), recover(service.store)):
        assert found.models[model.number].digest() == model.digest()
    frame = page.frame_of(service.core, model, {"sentence": ""})
    (limit,) = frame["limits"]
    assert (limit["name"], limit["reward"]) == ("clicks per minutes", "clicks")
    assert limit["price"].startswith("Raising it from 2 % to 3 % would buy about ")
    assert limit["price"].endswith("minutes a visit.") or " minutes per " in limit["price"]
    assert limit["state"] in ("kept", "line", "unclear", "missed")
    assert "; the limit is at most 2 %." in frame["parts"]["limits"]
    (told,) = constraints_view(model)
    assert told["name"] == "clicks per minutes"
    assert told["kept_by_vanishing"] is False
    service.model("router").agent._running.state.factors[0] *= 0.5  # type: ignore[union-attr]
    assert replay(service.store).models[model.number].digest() != model.digest()


# --- from logs ------------------------------------------------------------------------------------


def logged(n: int, chances: Vector, seed: int = 0) -> fw.offpolicy.Log:
    """A log by arms drawn with these chances."""
    rng = np.random.default_rng(seed)
    arms = rng.choice(4, n, p=chances)
    rewards = np.array([reward(arm, rng) for arm in arms])
    table = {"context": np.tile(np.eye(4), (n, 1, 1)), "action": arms, "probability": chances[arms]}
    table |= {"probabilities": np.tile(chances, (n, 1))}
    return fw.offpolicy.Log.of(
        table | {f"reward.{name}": rewards[:, i] for i, name in enumerate(NAMES)}, SHOP
    )


@pytest.mark.parametrize("estimator", ["ips", "dr"])
def test_a_log_says_whether_the_rate_is_kept(estimator: str) -> None:
    log = logged(20_000, np.full(4, 0.25))
    (shoes,) = log.evaluate(0, F, estimator).constraints
    assert shoes.kept is False
    assert shoes.low < 0.3 < shoes.high
    (books,) = log.evaluate(1, F, estimator).constraints
    assert books.kept is True
    assert "to be at most 0.08: kept" in str(books)
    (even,) = log.evaluate("logged", F).constraints
    orders = CHANCES[:, 0] * CHANCES[:, 1]
    assert even.low < orders @ CHANCES[:, 2] / orders.sum() < even.high
    nothing = logged(300, np.full(4, 0.25))
    nothing._data.rewards[:, 2:] = 0.0
    (none,) = nothing.evaluate("logged", F).constraints
    assert none.kept is None
    assert "not certainly above 0" in str(none)


def test_the_interval_of_a_rate_covers_it() -> None:
    """Fieller's interval at 95 %: 400 logs, four standard errors."""
    chances, orders = np.array([0.1, 0.5, 0.2, 0.2]), CHANCES[:, 0] * CHANCES[:, 1]
    truth, inside = (chances * orders) @ CHANCES[:, 2] / (chances @ orders), 0
    for seed in range(400):
        (rate,) = logged(1500, chances, seed).evaluate("logged", F).constraints
        inside += rate.low <= truth <= rate.high
    print(f"\n{inside} of 400")
    assert inside >= 400 * (0.95 - 4.0 * math.sqrt(0.05 * 0.95 / 400))


def test_a_policy_under_which_orders_vanish_says_so() -> None:
    log = logged(20_000, np.full(4, 0.25))
    data: Any = log._data
    toys = data.actions == 2
    data.rewards[toys, 3] *= np.arange(toys.sum()) % 12 == 0
    data.rewards[toys, 2] = 0.0
    (rate,) = log.evaluate(2, F, "ips").constraints
    assert "ordered would vanish" in str(rate)


def test_a_trade_off_keeps_a_rate_of_user_side_rewards() -> None:
    rng = np.random.default_rng(0)
    users, items = rng.dirichlet(np.ones(3), 8), rng.dirichlet(np.ones(3), 6)
    rewards = {
        "orders": (np.diag([0.9, 0.6, 0.3]), (0, 1)),
        "returns": (np.diag([0.3, 0.1, 0.02]), (0, 1)),
    }
    world = fw.environments.FactorModel(users, items, fw.environments.dcg(3), rewards=rewards)
    free, kept = (
        fw.tradeoff(world, f, betas=[0.5], horizon=300, seeds=1)
        for f in (GiniWelfare(), GiniWelfare() + AtMost({"returns": 0.2}, per="orders"))
    )
    rates = [best.average[-1] / best.average[-2] for best in (free.best[0.5][0], kept.best[0.5][0])]
    assert rates[0] > 0.21
    assert rates[1] <= 0.2 + 1e-6
