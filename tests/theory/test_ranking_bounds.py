"""The regret bound for rankings: what is measured, who breaks it, and where it is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Problem
from fairwolfe.environments import FactorModel, dcg
from fairwolfe.errors import OutsideAssumptions
from fairwolfe.objectives import Concave, GiniEquality, Linear, Nash, TwoSided
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank, LinUCBRank, UnbiasedLinUCBRank
from fairwolfe.ranking.policies import UTILITY
from fairwolfe.reduction import FrankWolfe
from fairwolfe.simulation import simulate
from fairwolfe.smoothing import Moreau, Randomized
from fairwolfe.truth import bounds, optimum
from tests.theory.test_ranking_links import B1, FAIR

LONG = 100_000
BEST = 0.79334  # f* in B1; rankings for the users alone are .97 worse
THEOREM = FWLinUCBRank(FAIR, smoothing=Moreau(0.5), ridge=1.0, exploration="theorem")


def regrets(policy: Any, seed: int) -> tuple[Vector, Vector]:
    """f* - f(average observed reward) in B1, and the bound that is proved for LinUCBRank."""
    trace = simulate(policy, B1, LONG, seed, objective=FAIR, scalar_regret=False)
    assert trace.compiled
    given: dict[str, Any] = {"problem": B1, "objective": FAIR, "smoothing": Moreau(0.5)}
    bound = bounds.linucb_rank(**given, horizon=trace.t.astype(float), tight=True)
    assert bound[-1] == pytest.approx(0.231, abs=5e-4)
    return trace.regret(BEST), bound


def test_the_world_is_what_it_is_said_to_be() -> None:
    assert optimum(B1, FAIR, tolerance=1e-6).value == pytest.approx(BEST, abs=1e-5)
    users_alone = FAIR.value(optimum(B1, UTILITY).average)
    assert BEST - users_alone == pytest.approx(0.97, abs=0.005)


@pytest.mark.parametrize("seed", range(4))
def test_the_regret_is_below_the_bound(seed: int) -> None:
    regret, bound = regrets(THEOREM, seed)
    assert (regret <= bound).all()  # at most 5 % of it
    assert abs(regret[-1]) < 0.01  # -.0002 to .0021


def test_the_wrong_sign_is_above_the_bound() -> None:
    regret, bound = regrets(
        FWLinUCBRank(Linear((0.0, 0.0, 0.0, -1.0)), ridge=1.0, exploration="theorem"), 0
    )
    assert (regret > bound).mean() > 0.3  # 36 % of the checkpoints: all from some t on
    assert regret[-1] > 5.0 * bound[-1]  # 1.28


def test_rankings_for_the_users_alone_are_above_the_bound() -> None:
    regret, bound = regrets(LinUCBRank(ridge=1.0, exploration="theorem"), 0)
    assert regret[-1] > 2.0 * bound[-1]  # .84


# --- of -------------------------------------------------------------------------------------------

USERS = [[0.5, -0.2, 0.4], [0.1, 0.7, 0.3]]
ITEMS = [[0.3, 0.2, 0.9], [0.8, -0.5, 0.1], [0.2, 0.6, 0.5], [1.1, 0.9, 2.0]]
AFFINE = FactorModel(USERS, ITEMS, dcg(2), calibration="affine")
CLIPPED = replace(AFFINE, calibration="clip")
PLAYS_AND_MINUTES = {"plays": (np.eye(3), (0.0, 1.0)), "minutes": (np.eye(3), (0.0, 5.0))}


def test_of_finds_the_theorem() -> None:
    given: dict[str, Any] = {"problem": B1, "objective": FAIR, "smoothing": Moreau(0.5)}
    for tight in (False, True):
        expected = bounds.linucb_rank(**given, horizon=LONG, tight=tight)
        assert bounds.of(THEOREM, B1, LONG, tight=tight) == expected
        assert bounds.of(THEOREM, B1, LONG, tight=tight) == expected
        assert bounds.of(THEOREM, B1.problem(), LONG, tight=tight) == expected
    strict = replace(THEOREM, ridge=2.0, delta=0.01)
    expected = bounds.linucb_rank(**given, horizon=LONG, ridge=2.0, base_delta=0.01, delta=0.1)
    assert bounds.of(strict, B1, LONG, delta=0.1) == expected


@pytest.mark.parametrize("world", [AFFINE, FactorModel(6, 5, dcg(3), n_factors=2), B1])
def test_of_knows_the_worlds(world: Any) -> None:
    f = TwoSided(GiniEquality(), beta=0.5)
    bound = bounds.of(FWLinUCBRank(f, exploration="theorem"), world, np.array([1e6, 1e8, 1e10]))
    assert (bound > 0.0).all()
    assert (np.diff(bound) < 0.0).all()
    assert bounds.of(FWLinUCBRank(f, exploration="theorem"), world, 1e10, tight=True) < bound[-1]


def test_a_ranker_alone_has_the_bound_for_users_alone() -> None:
    assert bounds.of(LinUCBRank(ridge=1.0, exploration="theorem"), B1, LONG) == bounds.of(
        FWLinUCBRank(UTILITY, ridge=1.0, exploration="theorem"), B1, LONG
    )


def test_the_noise_is_that_of_one_item() -> None:
    # Two slots earn 0 to 10 minutes, one item 0 to 5: its noise is 2.5.
    minutes = Problem.ranking(4, 2, 3, {"minutes": (0.0, 10.0)}, parameter_norm=1.0)
    told = replace(minutes, noise=2.5)
    given: dict[str, Any] = {"objective": FAIR, "horizon": LONG}
    assert bounds.linucb_rank(problem=minutes, **given) == bounds.linucb_rank(problem=told, **given)


def outside() -> dict[str, tuple[Any, Any, str]]:
    fair = THEOREM
    unstated = Problem.ranking(3, 1, 2)
    two = replace(AFFINE, rewards=PLAYS_AND_MINUTES)
    arms = fw.environments.Finite.a2()
    return {
        "Unbiased": (
            UnbiasedLinUCBRank(exploration="theorem"),
            B1,
            "no theorem.*UnbiasedLinUCBRank",
        ),
        "FairLearn": (FairLearnRank(0.1, exploration="theorem"), B1, "no theorem.*FairLearnRank"),
        "memory": (replace(fair, memory=50.0), B1, "averages over all time.*memory is 50"),
        "shown": (replace(fair, exposure="shown"), B1, "Section 4.*exposure is 'shown'"),
        "until the last": (replace(fair, exposure="until_last_click"), B1, "Section 4.*until_last"),
        "little exploration": (replace(fair, exploration=0.1), B1, "Lemma 26.*exploration is 0.1"),
        "much exploration": (replace(fair, exploration=2.0), B1, "Lemma 26.*exploration is 2"),
        "swaps": (replace(fair, randomize=0.1), B1, "Proposition 4.*randomize is 0.1"),
        "sampled gradients": (replace(fair, smoothing=Randomized()), B1, "Theorem 12"),
        "not Lipschitz": (
            FWLinUCBRank(TwoSided(Nash()), exploration="theorem"),
            B1,
            "Assumption 1.*Nash",
        ),
        "clipped": (fair, CLIPPED, "Assumption 3.*clip"),
        "no norm": (fair, unstated, "Assumption 3.*parameter_norm"),
        "two rewards": (fair, two, "one user-side reward"),
        "arms": (
            FrankWolfe(fw.objectives.Minimum(), LinUCBRank(exploration="theorem")),
            arms,
            "no items",
        ),
    }


@pytest.mark.parametrize("case", outside())
def test_where_no_theorem_applies(case: str) -> None:
    policy, world, message = outside()[case]
    with pytest.raises(OutsideAssumptions, match=f"(?s){message}"):
        bounds.of(policy, world, 1000)


def test_the_formula_refuses_a_clipped_world_too() -> None:
    with pytest.raises(OutsideAssumptions, match=r"Assumption 3.*clip"):
        bounds.linucb_rank(problem=CLIPPED, objective=FAIR, horizon=1000)


# --- random rankings ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world", "f"),
    [
        (B1, FAIR),
        (CLIPPED, TwoSided(GiniEquality(), beta=1.0)),
        (FactorModel(USERS, ITEMS, [[1.0, 0.5], [0.8, 0.1]], calibration="affine"), UTILITY),
    ],
)
def test_random_rankings_are_measured_exactly(world: Any, f: Concave) -> None:
    tables = world.init(np.random.default_rng(0))
    rng, n = np.random.default_rng(1), 4000
    problem = world.problem()
    rewards = np.zeros((n, problem.n_objectives))
    for t in range(n):
        context = world.show(tables, t % len(tables.users))
        ranking = rng.permutation(problem.n_items or 0)[: problem.n_slots]
        rewards[t] = world.mean_reward(tables, context, ranking)
    exact = optimum(world, f).value - bounds.uniform_regret(world, f)
    error = 5.0 * f.bind(problem).lipschitz(problem.n_objectives) * rewards.std() / np.sqrt(n)
    assert f.bind(problem).value(rewards.mean(axis=0)) == pytest.approx(exact, abs=error)


def test_when_the_bound_begins_to_say_something() -> None:
    # Random rankings share exposure equally and miss .10 of f* in B1.
    first = bounds.first_useful(lambda T: bounds.of(THEOREM, B1, T, tight=True), B1, FAIR)
    assert first is not None
    assert 500_000 < first < 700_000  # 581,955
