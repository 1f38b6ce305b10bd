"""Hard constraints as leaves: projections, binding, reports, agents, batches, late feedback."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB
from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Problem
from fairwolfe.environments import FactorModel, Finite, dcg
from fairwolfe.errors import FairwolfeError, IncompatibleState, InvalidInput
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    ByGroup,
    Concave,
    Custom,
    GiniWelfare,
    Linear,
    Minimum,
    Nash,
    TwoSided,
    Within,
)
from fairwolfe.ranking import FWLinUCBRank
from fairwolfe.reduction import FrankWolfe, MOLinCB
from fairwolfe.reduction.constraints import Constraint
from fairwolfe.simulation import Lateness, simulate
from fairwolfe.smoothing import Augmented, Identity, Moreau, Randomized

SHOP = Problem.arms(4, {"clicks": (0, 1), "minutes": (0, 120), "cost": (0, 0.05)}, feature_norm=2.0)
LISTS = Problem.ranking(6, 3, (2, 2))
RNG = np.random.default_rng(5)
MUSIC = Finite(
    RNG.uniform(0.0, 0.5, (4, 5, 6)), (0.25,) * 4, means=RNG.uniform(0.05, 0.95, (4, 5, 3))
)
BUDGET = Minimum().on(0, 1) + AtMost(0.4).on(2)
SHELVES = FactorModel(12, 9, dcg(3), n_factors=3)
PRODUCERS = ["a", "b", "c"] * 3
FLOORS = Linear({"clicks": 1.0}) + ByGroup(AtLeast(0.3, share=True), PRODUCERS)


# --- the leaf -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "low", "high"),
    [
        (AtLeast(0.3), 0.3, np.inf),
        (AtMost((0.1, 0.5, 0.9)), -np.inf, (0.1, 0.5, 0.9)),
        (Within(0.2, 0.6), 0.2, 0.6),
        (Within((0.0, 0.5, 0.2), (0.1, 0.5, 1.0)), (0.0, 0.5, 0.2), (0.1, 0.5, 1.0)),
        (AtLeast(0.3, math.inf), 0.3, np.inf),
        (4.0 * AtMost(0.3, margin=1.0), -np.inf, 0.3),
    ],
)
def test_the_proximal_map_is_the_projection(f: Concave, low: Any, high: Any) -> None:
    rng = np.random.default_rng(0)
    for step in (1e-6, 1.0, 1e6):
        z = rng.uniform(-1.0, 2.0, 3)
        p = f.prox(z, step)
        np.testing.assert_array_equal(p, np.clip(z, low, high))
        assert f.value(p) == 0.0
        assert f.value(z) == (0.0 if np.array_equal(p, z) else -np.inf)
        assert f.violation(z) == pytest.approx(np.abs(z - p).max())
        distance = -float(((z - p) ** 2).sum()) / (2.0 * step)
        if not isinstance(f, fw.objectives.Scaled):
            assert f.envelope(z, step) == pytest.approx(distance, rel=1e-9)
    assert f.lipschitz(3) == np.inf
    assert not f.smooth
    assert f.constrained


def test_what_is_left_without_constraints() -> None:
    f = Linear((1.0, 0.5)) + 3 * AtMost(0.2).on(1) + Within(0.1).on(0)
    assert f.relaxed() == Linear((1.0, 0.5))
    assert not f.relaxed().constrained
    assert f.violation(np.array([0.0, 0.5])) == pytest.approx(0.3)
    assert f.value(np.array([0.5, 0.1])) == pytest.approx(0.55)
    assert AtLeast(0.5).relaxed().value(np.array([0.0, 0.1])) == 0.0
    two = TwoSided(GiniWelfare() + AtLeast(0.1), beta=2.0)
    assert two.relaxed() == TwoSided(GiniWelfare(), beta=2.0)
    assert (AtMost(0.5, 3.0) + Minimum()).relaxed() == AtMost(0.5, 3.0) + Minimum()


def test_an_infinite_penalty_is_a_hard_constraint() -> None:
    assert AtLeast(0.3, math.inf) == AtLeast(0.3)
    assert eval(repr(AtLeast({"a": 0.3}, margin=0.1, share=True)), vars(fw.objectives)) == AtLeast(
        {"a": 0.3}, margin=0.1, share=True
    )


def test_shares_are_of_the_sum() -> None:
    f = AtLeast(0.2, share=True)
    assert f.value(np.array([2.0, 5.0, 3.0])) == 0.0
    assert f.violation(np.array([1.0, 5.0, 4.0])) == pytest.approx(0.1)
    bound = ByGroup(f, "aabbc").bind(
        Problem.arms(2, dict.fromkeys(("r1", "r2", "r3", "r4", "r5"), (0, 1)))
    )
    assert bound.violation(np.array([0.1, 0.0, 0.2, 0.2, 0.5])) == pytest.approx(0.1)


def test_a_share_by_name_is_of_all_that_it_is_aimed_at() -> None:
    problem = Problem.arms(2, {"returned": (0, 1), "kept": (0, 1), "views": (0, 1)})
    f = AtLeast({"kept": 0.92}, share=True).on("returned", "kept").bind(problem)
    assert f.violation(np.array([0.5, 0.5, 0.9])) == pytest.approx(0.42)
    assert f.violation(np.array([0.02, 0.4, 0.9])) == 0.0
    both = AtMost({"kept": 0.3, "views": 0.6}, share=True).bind(problem)
    assert both.violation(np.array([0.1, 0.5, 0.4])) == pytest.approx(0.2)
    assert both.violation(np.array([0.8, 0.1, 0.1])) == 0.0


def test_an_agent_keeps_a_share_by_name() -> None:
    problem = Problem.arms(2, {"returned": (0, 1), "kept": (0, 1)})
    f = Linear({"returned": 1.0}) + AtLeast({"kept": 0.92}, share=True).on("returned", "kept")
    agent = fw.Agent(FrankWolfe(f, LinUCB(exploration="pointwise")), problem, seed=0)
    for _ in range(500):
        decision = agent.act(np.eye(2))
        agent.update(decision, np.eye(2)[decision.action])
    assert agent.average[1] / agent.average.sum() > 0.9
    assert agent.constraints[0].average == pytest.approx(agent.average[1])
    assert agent.constraints[0].name == "kept"


@pytest.mark.parametrize("multiplier", [0.0, 0.5])
def test_the_shadow_price_is_that_of_the_level_with_its_margin(multiplier: float) -> None:
    """f* grows by 6/7 for each unit of the ceiling, by two optima."""
    means = np.array([[0.9, 0.8], [0.3, 0.1]])
    world = Finite([np.eye(2).tolist()], (1.0,), theta=means.T.tolist())
    values = [
        fw.optimum(world, Linear((1.0, 0.0)) + AtMost(level).on(1), tolerance=1e-6).value
        for level in (0.44, 0.46)
    ]
    price = (values[1] - values[0]) / 0.02
    limit = AtMost(0.45, margin=0.5, multiplier=multiplier).on(1)
    f = Linear((1.0, 0.0)) + limit
    agent = fw.Agent(FrankWolfe(f, LinUCB(exploration=0.05)), world.problem(), seed=0)
    for _ in range(4000):
        decision = agent.act(np.eye(2))
        agent.update(decision, means[decision.action])
    assert agent.constraints[0].shadow_price == pytest.approx(price, rel=0.15)


# --- bad input ------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "level above the range": (
        lambda: AtMost({"cost": 0.2}).bind(SHOP),
        r"level of AtMost for cost is 0\.2, .* between -?0 and 0\.05",
    ),
    "floor above the range": (
        lambda: AtLeast({"clicks": 1.5}).bind(SHOP),
        r"level of AtLeast for clicks is 1\.5, .* between -?0 and 1",
    ),
    "ceiling below the range": (
        lambda: AtMost({"clicks": -0.5}).bind(SHOP),
        r"level of AtMost for clicks is -0\.5",
    ),
    "share of one reward": (
        lambda: AtLeast({"clicks": 0.9}, share=True).on("clicks").bind(SHOP),
        r"share of clicks alone, which is always the whole; aim it at everything",
    ),
    "share of one coordinate": (
        lambda: AtMost(0.9, share=True).on("clicks").bind(SHOP),
        r"share of clicks alone, which is always the whole",
    ),
    "within beyond": (
        lambda: Within(high={"minutes": 200.0}).bind(SHOP),
        r"level of Within for minutes is 200",
    ),
    "low above high": (lambda: Within(0.6, 0.2), r"low 0\.6 above high 0\.2"),
    "neither side": (Within, r"neither low nor high"),
    "one side named": (lambda: Within({"a": 0.1}, 0.5), r"one side only"),
    "lengths": (lambda: Within((0.1, 0.2), (0.5, 0.6, 0.7)), r"2 lower and 3 upper"),
    "floors above what there is": (
        lambda: AtLeast((0.6,) * 6).bind(LISTS),
        r"6 floors of AtLeast add up to 3\.6, .* at most 3: .* 0\.5 each",
    ),
    "floors of groups above what there is": (
        lambda: ByGroup(AtLeast((1.5, 1.6)), "aaabbb").bind(LISTS),
        r"2 floors of AtLeast add up to 3\.1",
    ),
    "shares above the whole": (
        lambda: ByGroup(AtLeast(0.4, share=True), "aabbcc").bind(LISTS),
        r"3 shares of AtLeast add up to 1\.2, more than the whole",
    ),
    "shares below the whole": (
        lambda: ByGroup(AtMost(0.3, share=True), "aabbcc").bind(LISTS),
        r"3 shares of AtMost add up to 0\.9, less than the whole",
    ),
    "share of 1": (lambda: AtLeast(1.0, share=True), r"share 1\.0; .* between 0 and 1"),
    "share of 0": (lambda: AtLeast(0.0, share=True), r"share 0\.0; .* between 0 and 1"),
    "share text": (lambda: AtLeast(0.1, share="yes"), r"share of AtLeast is 'yes'"),  # type: ignore[arg-type]
    "shares of what may be negative": (
        lambda: AtLeast(0.1, share=True).bind(Problem.arms(2, {"a": (-1, 1), "b": (0, 1)})),
        r"a can be as low as -1",
    ),
    "margin": (lambda: AtMost(0.5, margin=-0.1), r"margin of AtMost is -0\.1"),
    "margin of a penalty": (lambda: AtMost(0.5, 2.0, margin=0.1), r"margin of 0\.1 and a penalty"),
    "multiplier": (lambda: AtMost(0.5, multiplier=1.5), r"multiplier of AtMost is 1\.5"),
    "penalty 0": (lambda: AtLeast(0.5, penalty=0.0), r"penalty of AtLeast is 0"),
    "unknown name": (lambda: AtMost({"costs": 0.01}).bind(SHOP), r"no reward 'costs'"),
    "randomized": (
        lambda: FrankWolfe(BUDGET, LinUCB(exploration="theorem"), Randomized()).init(
            MUSIC.problem()
        ),
        r"hard constraints, and Randomized",
    ),
    "horizon": (
        lambda: FrankWolfe(BUDGET, LinUCB(exploration="theorem"), Moreau(horizon=100)).init(
            MUSIC.problem()
        ),
        r"without a horizon",
    ),
    "molincb": (lambda: MOLinCB(BUDGET), r"none beyond its hard constraints"),
    "augmented weight": (lambda: Augmented(weight=-1.0), r"weight of Augmented is -1"),
}


@pytest.mark.parametrize(("call", "sentence"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused_with_the_value(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        call()


# --- agents ---------------------------------------------------------------------------------------


def served(f: Concave, n: int, seed: int = 0, base: Any = None) -> fw.Agent:
    """An agent after n rounds in a world of its own."""
    agent = fw.Agent(FrankWolfe(f, base or SquareCB(gamma0=50.0)), MUSIC.problem(), seed=seed)
    play(agent, n, 1)
    return agent


def play(agent: fw.Agent, n: int, seed: int) -> list[Any]:
    world = MUSIC.init(np.random.default_rng(0))
    contexts, noise = np.random.default_rng((seed, 1)), np.random.default_rng((seed, 2))
    actions = []
    for t in range(n):
        context = MUSIC.context(world, t + 1, contexts)
        decision = agent.act(context)
        agent.update(decision, MUSIC.feedback(world, context, decision.action, noise))
        actions.append(decision.action)
    return actions


def test_an_agent_reports_its_constraints() -> None:
    agent = served(BUDGET + AtLeast(0.05).on(0), 3000)
    budget, floor = agent.constraints
    assert isinstance(budget, Constraint)
    assert (budget.name, budget.level, budget.side) == ("r3", 0.4, "at most")
    assert (floor.name, floor.level, floor.side) == ("r1", 0.05, "at least")
    average = agent.average
    assert budget.average == pytest.approx(average[2])
    assert budget.slack == pytest.approx(0.4 - average[2])
    assert floor.slack == pytest.approx(average[0] - 0.05)
    assert floor.shadow_price < 0.01  # of the first rewards, forgotten like 1/sqrt t
    assert budget.shadow_price > 0.0
    assert budget.feasible is True
    assert agent.value == pytest.approx(min(average[:2]))
    assert "shadow price: one more unit of r3 buys" in str(budget)
    assert str(floor).startswith("r1 is ")
    assert served(Minimum(), 3).constraints == ()
    (fresh,) = served(BUDGET, 0).constraints
    assert math.isnan(fresh.average)
    assert math.isnan(fresh.slack)
    assert str(fresh) == "r3 is to be at most 0.4: no answers yet."
    assert served(BUDGET, 3).constraints[0].feasible is None


def test_save_and_load_continue_with_the_same_prices(tmp_path: Any) -> None:
    agent = served(BUDGET, 200)
    agent.save(tmp_path / "a.fw")
    loaded = fw.Agent.load(tmp_path / "a.fw")
    assert loaded.constraints == agent.constraints
    assert play(loaded, 300, 7) == play(agent, 300, 7)
    assert loaded.constraints == agent.constraints
    restored = fw.Agent.restore(agent.dump())
    assert play(restored, 50, 9) == play(agent, 50, 9)


def test_another_objective_starts_with_fresh_prices() -> None:
    agent = served(BUDGET, 500)
    assert agent.constraints[0].shadow_price > 0.0
    agent.replace_objective(Minimum().on(0, 1) + AtMost(0.4).on(2) + AtLeast(0.1).on(1))
    assert [c.shadow_price for c in agent.constraints] == [0.0, 0.0]
    agent.replace_objective(Minimum())
    assert agent.constraints == ()
    agent.replace_objective(BUDGET)
    play(agent, 100, 3)


def test_prices_that_are_not_numbers_are_refused(tmp_path: Any) -> None:
    import io
    import zipfile

    data = served(BUDGET, 50).dump()
    old = zipfile.ZipFile(io.BytesIO(data))
    for bad in (np.array([np.nan]), np.array([np.inf]), np.zeros(2)):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as new:
            for one in old.namelist():
                content = old.read(one)
                if one == "state.prices.npy":
                    member = io.BytesIO()
                    np.lib.format.write_array(member, bad, version=(1, 0))
                    content = member.getvalue()
                new.writestr(one, content)
        with pytest.raises(IncompatibleState, match=r"prices"):
            fw.Agent.restore(file.getvalue())


@pytest.mark.parametrize(
    "f", [BUDGET, Nash().on(0, 1) + Within(0.3, 0.45).on(2), AtLeast(0.2, share=True)], ids=repr
)
@pytest.mark.parametrize("base", [LinUCB(exploration="theorem"), SquareCB(gamma0=50.0)], ids=repr)
def test_batches_are_decisions_one_by_one(f: Concave, base: Any) -> None:
    one = fw.Agent(FrankWolfe(f, base), MUSIC.problem(), seed=3)
    many = fw.Agent(FrankWolfe(f, base), MUSIC.problem(), seed=3)
    world = MUSIC.init(np.random.default_rng(0))
    rng, noise = np.random.default_rng(1), np.random.default_rng(2)
    for _ in range(20):
        contexts = np.array([MUSIC.context(world, 1, rng) for _ in range(7)])
        singly = [one.act(context) for context in contexts]
        together = many.act_many(contexts)
        assert [d.action for d in together] == [d.action for d in singly]
        rewards = [
            MUSIC.feedback(world, c, d.action, noise) for c, d in zip(contexts, singly, strict=True)
        ]
        for decision, reward in zip(singly, rewards, strict=True):
            one.update(decision, reward)
        many.update_many(together, np.array(rewards))
    assert one.constraints == many.constraints


LATE = [
    Lateness(delay=7),
    Lateness(delay=30, refresh=10),
    Lateness(refresh=25),
]
POLICIES: list[tuple[Any, Any]] = [
    (FrankWolfe(BUDGET, LinUCB(exploration=0.3)), MUSIC),
    (FrankWolfe(BUDGET, SquareCB(gamma0=50.0), Augmented()), MUSIC),
    (FrankWolfe(Minimum(), EpsilonGreedy(0.1), Augmented(0.5, 0.5)), MUSIC),
    (FrankWolfe(BUDGET, LinUCB(exploration=0.3), memory=50.0), MUSIC),
    (FWLinUCBRank(FLOORS, exploration=0.1), SHELVES),
    (FWLinUCBRank(TwoSided(GiniWelfare()), exploration=0.1, smoothing=Augmented()), SHELVES),
    (FWLinUCBRank(FLOORS, exploration=0.1, iterate="expected"), SHELVES),
]


@pytest.mark.parametrize("lateness", [None, *LATE], ids=repr)
@pytest.mark.parametrize("which", range(len(POLICIES)))
def test_late_and_prompt_loops_are_the_plain_one(which: int, lateness: Any) -> None:
    policy, environment = POLICIES[which]
    plain, quick = (
        simulate(
            policy, environment, 150, 2, lateness=lateness, compiled=compiled, record_actions=True
        )
        for compiled in (False, True)
    )
    np.testing.assert_array_equal(plain.actions, quick.actions)
    np.testing.assert_array_equal(plain.average_observed, quick.average_observed)


def test_a_multiplier_of_0_learns_no_price() -> None:
    agent = served(Minimum().on(0, 1) + AtMost(0.3, multiplier=0.0).on(2), 500)
    assert not agent._running.state.prices.any()
    assert agent.constraints[0].shadow_price > 0.0  # of the envelope


def test_constraints_alone_are_kept() -> None:
    free = served(Linear((1.0, 0.0, 0.0)), 2000)
    assert free.average[2] > 0.5
    agent = served(AtMost(0.45).on(2) + AtLeast(0.45).on(0), 2000)
    assert all(one.slack > -0.01 for one in agent.constraints), agent.average
    assert agent.value == 0.0


def test_a_function_without_a_proximal_map_can_be_constrained() -> None:
    def bent(z: Vector) -> float:
        return -float(((z - 0.6) ** 2).sum())

    def slope(z: Vector) -> Vector:
        return 2.0 * (0.6 - z)

    f = Custom(bent, slope, smooth=True, lipschitz=4.0) + AtMost(0.4).on(2)
    agent = served(f, 800)
    assert agent.constraints[0].slack > -0.02


# --- rankings -------------------------------------------------------------------------------------


def ranked(agent: fw.Agent, n: int) -> None:
    rng = np.random.default_rng(4)
    for _ in range(n):
        d = agent.act(rng.uniform(0.0, 0.7, 2))
        exposed = np.asarray(d.action)[: rng.integers(1, 4)]
        agent.update(d, exposed=exposed, clicked=exposed[rng.random(exposed.size) < 0.4])


def test_levels_of_items_follow_them_when_items_come_and_go() -> None:
    f = Linear({"clicks": 1.0}) + TwoSided(AtLeast(0.2), users=Linear((0.0,)))
    items = np.random.default_rng(1).uniform(0.0, 0.7, (6, 2))
    agent = fw.Agent(FWLinUCBRank(f, exploration=0.1), LISTS, items=items)
    ranked(agent, 400)
    before = {c.name: c.shadow_price for c in agent.constraints}
    assert list(before) == [f"item {i}" for i in range(6)]
    agent.add_items(np.array([[0.5, 0.5], [0.1, 0.6]]))
    after = {c.name: c.shadow_price for c in agent.constraints}
    assert after == {**before, "item 6": 0.0, "item 7": 0.0}
    ranked(agent, 50)
    kept = {c.name: c.shadow_price for c in agent.constraints}
    agent.retire([1, 4])
    left = {c.name: c.shadow_price for c in agent.constraints}
    assert left == {name: price for name, price in kept.items() if name not in ("item 1", "item 4")}
    ranked(agent, 50)


def test_producers_get_their_floor() -> None:
    free, floors = (
        simulate(FWLinUCBRank(f, exploration=0.1), SHELVES, 5000, 1)
        for f in (Linear({"clicks": 1.0}), FLOORS)
    )
    groups = [
        floors.average_observed[-1, :9].reshape(3, 3).sum(axis=0) for floors in (free, floors)
    ]
    shares = [group / group.sum() for group in groups]
    assert shares[0].min() < 0.25
    assert shares[1].min() > 0.295
    assert floors.violation[-1] < 0.005
    assert "kept" in str(floors) or "violated by" in str(floors)


def test_identity_is_for_what_needs_no_smoothing() -> None:
    state = FrankWolfe(
        Linear((1.0, 0.5, 0.0)) + AtMost(0.4).on(2), LinUCB(exploration="theorem")
    ).init(MUSIC.problem())
    assert state.smoothing == Identity()
    state = FrankWolfe(BUDGET, LinUCB(exploration="theorem")).init(MUSIC.problem())
    assert state.smoothing == Moreau().bind(MUSIC.problem(), Minimum().on(0, 1))


def test_every_error_is_typed() -> None:
    for call, _ in REFUSED.values():
        with pytest.raises(FairwolfeError):
            call()
