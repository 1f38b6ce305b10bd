"""Runs of ranking policies: special cases that must coincide, and interpreted = compiled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fairwolfe import known, optimum, simulate
from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.core.registry import KINDS, load
from fairwolfe.core.streams import stream
from fairwolfe.environments import FactorModel, FiniteRanking, dcg
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    ByGroup,
    Concave,
    Custom,
    EqualExposure,
    GeneralizedGini,
    GiniEquality,
    GiniWelfare,
    Linear,
    Mapped,
    Minimum,
    Nash,
    PerMerit,
    TwoSided,
    Welfare,
    Within,
)
from fairwolfe.oracles.linear_regression import SINCE_REFRESH
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank, LinUCBRank, UnbiasedLinUCBRank
from fairwolfe.ranking import ranker as ranker_module
from fairwolfe.reduction import FrankWolfe
from fairwolfe.simulation import run as compiled
from fairwolfe.simulation.run import RankingsRun, Streams
from fairwolfe.smoothing import Identity, Moreau, Randomized

MUSIC = FactorModel(12, 15, dcg(5), n_factors=3)
FEATURES = stream(0, "features").uniform(0.1, 0.5, (4, 7, 3))
SMALL = FiniteRanking(FEATURES, (0.3, 0.6, 0.5), [[0.9, 0.7, 0.2]] * 3 + [[1.0, 0.4, 0.4]])
FAIR = TwoSided(GiniEquality(), beta=0.5)
REFRESH_EVERY = 10_000  # of kernels/types.pxd


def rankings(policy: Any, world: Any, horizon: int = 1000, **options: Any) -> IntVector:
    given: dict[str, Any] = {
        "objective": FAIR,
        "checkpoints": [horizon],
        "record_actions": True,
    } | options
    trace = simulate(policy, world, horizon, 5, **given)
    assert trace.compiled
    assert trace.actions is not None
    return trace.actions


# --- special cases that coincide --------------------------------------------------------------


@pytest.mark.parametrize("world", [MUSIC, SMALL], ids=["music", "small"])
@pytest.mark.parametrize("beta", [0.1, 1.0, 20.0])
def test_the_two_ginis_rank_alike(world: Any, beta: float) -> None:
    """beta GiniWelfare = beta/2 GiniEquality + a multiple of the sum, so that all smoothed
    directions differ by a number that is the same for all items: at an equal width beta0, every
    ranking is the same. By default the widths are D/(beta L), and the Lipschitz constants differ.
    """
    problem = world.problem()
    welfare, equality = TwoSided(GiniWelfare(), beta), TwoSided(GiniEquality(), beta / 2.0)
    first, second = (Moreau().bind(problem, f.bind(problem)).beta0 for f in (welfare, equality))
    assert first is not None
    assert second is not None
    slopes = [f.items.lipschitz(problem.n_items) for f in (welfare, equality)]
    assert second / first == pytest.approx(2.0 * slopes[0] / slopes[1])
    for smoothing, twin in (
        (None, Moreau(first)),
        (Moreau(second), None),
        (Moreau(1.0), Moreau(1.0)),
        (Moreau(0.01), Moreau(0.01)),
        (Moreau(1.0, horizon=1000), Moreau(1.0, horizon=1000)),
    ):
        one = rankings(FWLinUCBRank(welfare, smoothing=smoothing, exploration="theorem"), world)
        other = rankings(FWLinUCBRank(equality, smoothing=twin, exploration="theorem"), world)
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("world", [MUSIC, SMALL], ids=["music", "small"])
@pytest.mark.parametrize("settings", [{}, {"exploration": 0.1, "exposure": "shown"}], ids=str)
def test_without_fairness_all_rankers_are_one(world: Any, settings: Any) -> None:
    plain = rankings(LinUCBRank(**settings), world)
    for twin in (
        FairLearnRank(0.0, **settings),
        FWLinUCBRank(TwoSided(GiniEquality(), beta=0.0), **settings),
        FWLinUCBRank(Linear({"clicks": 1.0}), **settings),
        FrankWolfe(TwoSided(Nash(), beta=0.0), LinUCBRank(**settings)),
    ):
        np.testing.assert_array_equal(plain, rankings(twin, world))
    assert (plain != rankings(FWLinUCBRank(FAIR, **settings), world)).any()


def test_uniform_gini_weights_are_a_sum_that_changes_nothing() -> None:
    """The sum of the exposures has the same slope for every item."""
    uniform = GeneralizedGini((0.3,) * 15)
    one = rankings(FWLinUCBRank(TwoSided(uniform), exploration="theorem"), MUSIC)
    np.testing.assert_array_equal(one, rankings(LinUCBRank(exploration="theorem"), MUSIC))


POLICIES: dict[str, Any] = {
    "fw": FWLinUCBRank(FAIR, exploration="theorem"),
    "linucb": FrankWolfe(
        TwoSided(EqualExposure(), beta=0.0), LinUCBRank(exploration="theorem"), Identity()
    ),
    "unbiased": UnbiasedLinUCBRank(exploration=0.3),
    "fairlearn": FairLearnRank(0.1, exploration="theorem"),
}


@pytest.mark.parametrize("name", POLICIES)
def test_products_are_their_flat_form(name: str) -> None:
    """The same world, once as users and items, once as the features user (x) item: n = p q."""
    policy = POLICIES[name]
    arrays = MUSIC.init(stream(5, "world"))
    problem = MUSIC.problem()
    one, other = policy.init(problem), policy.init(replace(problem, n_features=9))
    contexts, noise, draws = (stream(5, what) for what in ("contexts", "noise", "draws"))
    for t in range(1, 501):
        context = MUSIC.context(arrays, t, contexts)
        a = policy.act(one, context, draws)
        b = policy.act(other, context.flat(), draws)
        assert np.array_equal(a.action, b.action), t
        np.testing.assert_allclose(a.batch.rows.parts, b.batch.rows.parts, rtol=1e-10, atol=1e-10)
        shown = MUSIC.feedback(arrays, context, a.action, noise)
        one, other = policy.update(one, a, shown), policy.update(other, b, shown)
    np.testing.assert_allclose(one.average, other.average, rtol=0, atol=1e-12)


# --- interpreted = compiled -------------------------------------------------------------------


def least(z: Vector) -> float:
    return float(z.min())


def least_gradient(z: Vector) -> Vector:
    gradient = np.zeros(z.size)
    gradient[z.argmin()] = 1.0
    return gradient


def item_sides(m: int) -> dict[str, Concave]:
    """Objectives of m exposures, of every kind of the registry."""
    halves = [[1.0 if i % 2 == row else 0.2 for i in range(m)] for row in range(2)]
    return {
        "EqualExposure": EqualExposure(),
        "GiniEquality": GiniEquality(),
        "GiniWelfare": GiniWelfare(),
        "GeneralizedGini": GeneralizedGini(tuple(np.linspace(1.0, -0.3, m))),
        "Minimum": Minimum(),
        "Nash": Nash(),
        "Welfare": Welfare(0.5),
        "Welfare with an offset": Welfare(0.3, offset=0.1),
        "Linear": Linear(tuple(np.linspace(-0.5, 0.5, m))),
        "AtLeast": AtLeast(0.2, penalty=2.0),
        "AtMost": AtMost(0.3, penalty=2.0),
        "ByGroup": ByGroup(GiniEquality(), tuple("aab"[i % 3] for i in range(m))),
        "PerMerit": PerMerit(EqualExposure(), tuple(np.linspace(0.5, 2.0, m))),
        "Mapped": Mapped(GiniWelfare(), halves),
        "On": Minimum().on(0, 2, 5),
        "Scaled": 2.5 * GiniEquality(),
        "Sum": GiniEquality() + AtLeast(0.2, penalty=1.0) + 0.1 * Nash(),
        "Custom": Custom(least, least_gradient, lipschitz=1.0),
        "hard floors": GiniEquality() + AtLeast(0.1),
        "Within": Within(0.05, 0.6),
        "shares of groups": ByGroup(
            AtLeast(0.2, share=True), tuple("aab"[i % 3] for i in range(m))
        ),
    }


def objectives(m: int) -> dict[str, Concave]:
    floors = FAIR + AtLeast({"clicks": 0.8}, penalty=3.0)
    many = AtLeast({"clicks": 0.5}, penalty=1.0) + Minimum().on(*range(m)) + Linear({"clicks": 1.0})
    sides = {f"TwoSided {name}": TwoSided(f, 0.5) for name, f in item_sides(m).items()}
    users = TwoSided(GiniWelfare(), 0.5, users=Welfare(0.5, offset=0.1))
    return sides | {"floors": floors, "many": many, "concave users": users}


def kinds(objective: Any) -> Iterator[type]:
    """The classes that an expression is made of."""
    yield type(objective)
    parts = [getattr(objective, name, None) for name in ("objective", "items", "users")]
    for part in (*parts, *getattr(objective, "terms", ())):
        if isinstance(part, Concave):
            yield from kinds(part)


def test_every_objective_of_the_registry_is_played() -> None:
    played = {kind for f in objectives(7).values() for kind in kinds(f)}
    assert {load("objectives", name) for name in KINDS["objectives"]} <= played


def same_run(policy: Any, world: Any, horizon: int = 40, seed: int = 3) -> None:
    plain, quick = (
        simulate(
            policy, world, horizon, seed, FAIR, [20, horizon], compiled=how, record_actions=True
        )
        for how in (False, True)
    )
    assert quick.compiled
    assert not plain.compiled
    np.testing.assert_array_equal(plain.actions, quick.actions)
    for name in ("average", "average_observed", "value", "scalar_regret", "scalar_pseudo_regret"):
        one, other = getattr(plain, name), getattr(quick, name)
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10, err_msg=name)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"exposure": "shown", "randomize": 0.3, "memory": 20.0},
    {"exposure": "until_last_click", "exploration": 0.2, "ridge": 1.0},
]


@pytest.mark.parametrize("name", objectives(7))
@pytest.mark.parametrize("world", [MUSIC, SMALL], ids=["music", "small"])
def test_interpreted_is_compiled_with_every_objective(name: str, world: Any) -> None:
    objective = objectives(world.problem().n_items or 0)[name]
    smoothings: list[Any] = [None, None, None]
    if objective.everywhere:
        smoothings[2] = Randomized(n_samples=2)
    for options, smoothing in zip(OPTIONS, smoothings, strict=True):
        same_run(FWLinUCBRank(objective, smoothing=smoothing, **options), world)


@pytest.mark.parametrize("exposure", ["observed", "shown", "until_last_click"])
@pytest.mark.parametrize("randomize", [0.0, 0.4])
@pytest.mark.parametrize("world", [MUSIC, SMALL], ids=["music", "small"])
def test_interpreted_is_compiled_with_every_option(
    exposure: Any, randomize: float, world: Any
) -> None:
    settings: dict[str, Any] = {"exposure": exposure, "randomize": randomize}
    same_run(LinUCBRank(**settings), world)
    same_run(UnbiasedLinUCBRank(clip=randomize > 0.0, **settings), world)
    same_run(FairLearnRank(0.15, 0.0, **settings), world)
    for memory in (None, 15.0):
        for smoothing in (None, Moreau(1.0), Randomized(n_samples=3)):
            same_run(FWLinUCBRank(FAIR, memory=memory, smoothing=smoothing, **settings), world)


def test_interpreted_is_compiled_with_several_rewards() -> None:
    users, items = [[0.5, -0.2, 0.4], [0.1, 0.7, 0.3]], np.vstack([np.eye(3), np.ones((3, 3)) / 3])
    rewards: Any = {
        "plays": (np.eye(3), (0.0, 1.0)),
        "minutes": ([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [0.5, 0.0, 1.0]], (-1.0, 5.0)),
    }
    for weights in ([[1.0, 0.5]], [[1.0, 0.5], [0.8, 0.0]]):
        world = FactorModel(users, items, weights, calibration="affine", rewards=rewards)
        f = TwoSided(GiniEquality(), 0.5, users=Linear({"plays": 1.0, "minutes": -0.3}), n_users=2)
        for policy in (
            FWLinUCBRank(f, exploration="theorem"),
            FWLinUCBRank(f, memory=9.0, exploration="theorem"),
            UnbiasedLinUCBRank(exploration="theorem"),
        ):
            plain, quick = (
                simulate(policy, world, 60, 3, f, compiled=how, record_actions=True)
                for how in (False, True)
            )
            np.testing.assert_array_equal(plain.actions, quick.actions)
            np.testing.assert_allclose(plain.average, quick.average, rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(
                plain.scalar_regret, quick.scalar_regret, rtol=1e-10, atol=1e-10
            )


def test_a_run_does_not_depend_on_its_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = FWLinUCBRank(
        FAIR, randomize=0.2, smoothing=Randomized(n_samples=2), memory=30.0, exploration="theorem"
    )
    whole = rankings(policy, MUSIC, 130)
    monkeypatch.setattr(compiled, "_CHUNK", 7)
    np.testing.assert_array_equal(whole, rankings(policy, MUSIC, 130, checkpoints=[1, 5, 64, 130]))


def test_interpreted_is_compiled_across_a_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels refresh now and then: the counter is put shortly before that."""
    init = ranker_module.Ranker.init

    def late(self: Any, *given: Any) -> Any:
        state = init(self, *given)
        state.oracle.counters[SINCE_REFRESH] = REFRESH_EVERY - 20
        return state

    monkeypatch.setattr(ranker_module.Ranker, "init", late)
    same_run(FWLinUCBRank(FAIR, exploration="theorem"), MUSIC)


@pytest.mark.parametrize("n_factors", [3, 4, 5, 6])
def test_rounds_that_v_takes_in_together_change_no_bit(n_factors: int) -> None:
    """Whole after every chunk, across a refresh too; with three factors nothing is put off."""
    world = FactorModel(12, 15, dcg(5), n_factors=n_factors)
    policy = FWLinUCBRank(FAIR, exploration="theorem")

    one, other = (
        RankingsRun(policy, world, world.init(stream(1, "world")), Streams.of(1)) for _ in range(2)
    )
    for run in (one, other):
        run.running.state.learnt[0][SINCE_REFRESH] = REFRESH_EVERY - 20
    for wanted in (1, 2, 3, 4, 7, 12, 1, 30):
        singles = np.concatenate([other.play(1) for _ in range(wanted)])
        np.testing.assert_array_equal(one.play(wanted), singles)
        for mine, theirs in zip(one.running.state[:-1], other.running.state[:-1], strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert one.running.state.learnt[0][SINCE_REFRESH] == 40.0


def test_without_scalar_regret_the_same_is_played() -> None:
    policy = FWLinUCBRank(FAIR, exploration="theorem")
    np.testing.assert_array_equal(
        rankings(policy, MUSIC, 200), rankings(policy, MUSIC, 200, scalar_regret=False)
    )
    for how in (False, True):
        trace = simulate(policy, MUSIC, 20, compiled=how, scalar_regret=False)
        assert np.isnan(trace.scalar_regret).all()


def test_who_knows_everything_ranks_near_the_best() -> None:
    """`known` is a base in plain Python, outside the kernels that the rankers share."""
    world = FactorModel(6, 8, dcg(3), n_factors=3)
    f = TwoSided(GiniEquality(), beta=0.5)
    trace = simulate(known(world, f), world, 400, checkpoints=[400])
    best = optimum(world, f)
    assert best.value - 0.05 < trace.value[-1] < best.upper_bound + 0.05
