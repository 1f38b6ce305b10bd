"""What counts as exposed; FairLearn's floor; Unbiased's factor; several user-side rewards."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import pytest

from fairwolfe import Agent, Problem, simulate
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.contexts import Bilinear
from fairwolfe.core.feedback import Shown
from fairwolfe.core.streams import stream
from fairwolfe.environments import FactorModel, FiniteRanking, dcg
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import EqualExposure, GiniEquality, Linear, TwoSided
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank, LinUCBRank, UnbiasedLinUCBRank

FAIR = TwoSided(GiniEquality())


# --- what counts as exposed -------------------------------------------------------------------


def column(*values: float) -> Matrix:
    return np.array(values)[:, None]


@pytest.mark.parametrize(
    ("exposure", "exposed", "rewards", "counted"),
    [
        ("observed", [1, 0, 1, 0], column(0, 0, 1, 0), [1, 0, 1, 0]),
        ("observed", [0, 0, 0, 0], column(0, 0, 0, 0), [0, 0, 0, 0]),
        ("shown", [1, 0, 1, 0], column(0, 1, 0, 0), [1, 1, 1, 1]),
        ("shown", [0, 0, 0, 0], column(0, 0, 0, 0), [1, 1, 1, 1]),
        ("until_last_click", [0, 0, 0, 0], column(0, 1, 0, 0), [1, 1, 0, 0]),
        ("until_last_click", [1, 1, 1, 1], column(1, 0, 0, 0), [1, 0, 0, 0]),
        ("until_last_click", [1, 1, 1, 1], column(0, 0, 0, 0), [0, 0, 0, 0]),
        ("until_last_click", [0, 0, 0, 0], column(0, 0, 0, -2), [1, 1, 1, 1]),
        (
            "until_last_click",
            [0, 0, 0, 0],
            np.array([[0, 0], [1, 0], [0, 1], [0, 0]]),
            [1, 1, 1, 0],
        ),
    ],
)
def test_what_counts_as_exposed(
    exposure: Any, exposed: list[float], rewards: Any, counted: list[float]
) -> None:
    """The same is learnt as from feedback that says so, bit for bit."""
    n = np.shape(rewards)[1]
    problem = Problem.ranking(6, 4, (2, 3), {f"r{i}": (-8, 4) for i in range(n)})
    rng = stream(0, "exposure")
    context = Bilinear(rng.normal(size=2), rng.normal(size=(6, 3)))
    policy, twin = (
        FWLinUCBRank(FAIR, exposure=exposure, exploration="theorem"),
        FWLinUCBRank(FAIR, exploration="theorem"),
    )
    state, other = policy.init(problem), twin.init(problem)
    decision = policy.act(state, context, rng)
    earned = np.array(rewards, dtype=float)
    state = policy.update(state, decision, Shown(np.array(exposed, float), earned))
    other = twin.update(other, decision, Shown(np.array(counted, float), earned))
    total = np.zeros(6 + n)
    total[np.asarray(decision.action)] = counted
    total[6:] = earned.sum(axis=0)
    assert state.average.tolist() == total.tolist()
    assert other.average.tolist() == total.tolist()
    for one, another in zip(state.base_state.oracle, other.base_state.oracle, strict=True):
        np.testing.assert_array_equal(one, another)
    for name in ("exposed", "shown", "slots"):
        mine, theirs = getattr(state.base_state, name), getattr(other.base_state, name)
        np.testing.assert_array_equal(mine, theirs)
    assert state.base_state.exposed.sum() == sum(counted)
    assert sorted(np.flatnonzero(state.base_state.shown)) == sorted(np.asarray(decision.action))


# --- FairLearn --------------------------------------------------------------------------------


def shown_counts(policy: Any, world: Any, horizon: int) -> Matrix:
    """How many of the first t rankings showed each item, (horizon + 1, items)."""
    trace = simulate(policy, world, horizon, 3, FAIR, [horizon], record_actions=True)
    assert trace.compiled
    assert trace.actions is not None
    assert all(len(set(ranking)) == len(ranking) for ranking in trace.actions.tolist())
    counts = np.zeros((horizon + 1, world.problem().n_items))
    for t, ranking in enumerate(trace.actions, start=1):
        counts[t] = counts[t - 1]
        counts[t, ranking] += 1.0
    return counts


@pytest.mark.parametrize(("m", "k"), [(1, 1), (3, 1), (3, 2), (5, 2), (7, 3), (12, 5), (25, 7)])
@pytest.mark.parametrize("tolerance", [0.0, 0.5, 1.0, 4.0])
def test_fairlearn_keeps_its_floor_at_all_times(m: int, k: int, tolerance: float) -> None:
    """floor(c t) - N_i(t) <= tolerance for every t, with c exact, up to c = k/m."""
    world = FactorModel(4, m, dcg(k), n_factors=2)
    for minimum in (0.5 * k / m, 0.99 * k / m, k / m):
        counts = shown_counts(FairLearnRank(minimum, tolerance, exploration=0.1), world, 300)
        floors = [floor(Fraction(minimum) * t) for t in range(301)]
        assert (np.array(floors)[:, None] - counts).max() <= tolerance


def test_without_the_floor_items_are_forgotten() -> None:
    world = FactorModel(4, 12, dcg(5), n_factors=2)
    counts = shown_counts(LinUCBRank(exploration=0.1), world, 300)
    assert (0.4 * 300 - counts[-1]).max() > 50.0


def test_fairlearn_shows_the_most_deprived_first() -> None:
    problem = Problem.ranking(5, 3, 1)
    policy = FairLearnRank(0.5, tolerance=0.0, exploration="theorem")
    state = policy.init(problem)
    state.base_state.shown[:] = [9.0, 1.0, 4.9, 2.0, 3.0]
    state.base_state.slots[0] = 10.0
    context = np.array([[0.1], [0.2], [0.3], [0.4], [0.5]])
    assert np.asarray(policy.act(state, context, stream(0, "f")).action).tolist() == [1, 3, 4]
    state.base_state.shown[:] = [9.0, 6.0, 4.9, 7.0, 8.0]
    # One item lags behind; the others go by their optimistic values.
    assert np.asarray(policy.act(state, context, stream(0, "f")).action).tolist() == [2, 4, 3]


@pytest.mark.parametrize(("m", "k"), [(7, 25), (14, 25), (15, 29), (1, 3), (10, 49)])
def test_the_largest_share_is_accepted_however_it_is_rounded(m: int, k: int) -> None:
    n_slots, n_items = min(m, k), max(m, k)
    problem = Problem.ranking(n_items, n_slots, 1)
    FairLearnRank(n_slots / n_items, exploration="theorem").init(problem)
    with pytest.raises(InvalidInput, match=r"give at most that"):
        FairLearnRank(float(np.nextafter(n_slots / n_items, 1.0)), exploration="theorem").init(
            problem
        )


def test_a_floor_that_cannot_be_kept_is_refused() -> None:
    problem, policy = Problem.ranking(6, 2, 1), FairLearnRank(0.4, exploration="theorem")
    sentence = r"minimum is 0\.4; 2 slots cannot show each of 6 items in more than .* 0\.333333 of"
    with pytest.raises(InvalidInput, match=sentence):
        policy.init(problem)
    with pytest.raises(InvalidInput, match=sentence):
        simulate(policy, FactorModel(3, 6, dcg(2), n_factors=2), 10, objective=FAIR)
    for bad, what in ((-0.1, r"minimum is -0\.1"), (1.1, r"minimum is 1\.1"), (np.nan, "is nan")):
        with pytest.raises(InvalidInput, match=what + ".*from 0 to n_slots/n_items"):
            FairLearnRank(bad, exploration="theorem")
    with pytest.raises(InvalidInput, match=r"tolerance is -1\.0; give a number of at least 0"):
        FairLearnRank(0.1, -1.0, exploration="theorem")


# --- Unbiased ---------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [False, True])
def test_the_factor_of_unbiased_by_hand(clip: bool) -> None:
    problem = Problem.ranking(4, 3, (2, 2))
    policy = UnbiasedLinUCBRank(clip=clip, exploration=0.8)
    plain = LinUCBRank(exploration=0.8)
    state, other = policy.init(problem), plain.init(problem)
    rng = stream(0, "unbiased")
    context, g = Bilinear(rng.normal(size=2), rng.normal(size=(4, 2))), np.array([0, 0, 0, 0, 1.0])

    def parts() -> tuple[dict[int, float], dict[int, float]]:
        """Exploration bonus, and what the factor makes of it, by item."""
        bonus: dict[int, float] = {}
        left: dict[int, float] = {}
        for row in policy.act(state, context, rng).explain():
            bonus[row["item"]] = row["exploration"]
            left[row["item"]] = row["exploration"] + row["fairness"]
        return bonus, left

    bonus, left = parts()
    assert left == pytest.approx(bonus)  # the factor is 1 before anything was looked at
    why = plain.act(other, context, g, rng).explanation
    assert why is not None
    assert [row["fairness"] for row in why] == pytest.approx([0.0, 0.0, 0.0])
    state.base_state.exposed[:] = [6.0, 1.0, 3.0, 0.0]
    bonus, left = parts()
    factors = {0: 1.0 - 3 * 0.6, 1: 1.0 - 3 * 0.1, 2: 1.0 - 3 * 0.3, 3: 1.0}
    for item, extra in bonus.items():
        factor = max(factors[item], 0.0) if clip else factors[item]
        assert left[item] == pytest.approx(factor * extra, abs=1e-12)
    assert len(bonus) == 3


def test_an_item_that_is_always_first_has_a_negative_factor() -> None:
    """With the weights of DCG and 10 slots: 1 - 10/sum_j b_j = -1.2."""
    weights = np.array(dcg(10))
    problem, policy = Problem.ranking(12, 10, 1), UnbiasedLinUCBRank(exploration="theorem")
    state = policy.init(problem)
    state.base_state.exposed[:10] = 1000.0 * weights
    context = np.full((12, 1), 0.5)
    context[0] = 50.0  # first, whatever its factor
    state.base_state.oracle.theta[:] = 1.0
    state.base_state.oracle.inverse[:] = 1e-6
    row = policy.act(state, context, stream(0, "u")).explain()[0]
    assert row["item"] == 0
    assert (row["exploration"] + row["fairness"]) / row["exploration"] == pytest.approx(
        1.0 - 10.0 / weights.sum()
    )
    assert 1.0 - 10.0 / weights.sum() == pytest.approx(-1.2, abs=0.01)


# --- several user-side rewards ----------------------------------------------------------------


def several(n: int) -> FactorModel:
    """n rewards of ranges of either sign, each linear in user (x) item."""
    rng = stream(n, "several")
    users, items = rng.uniform(0.1, 0.6, (5, 2)), rng.uniform(0.1, 0.6, (7, 3))
    names = {"clicks": (0.0, 1.0), "minutes": (-1.0, 5.0), "cost": (0.0, 0.5)}
    rewards = {
        name: (names[name][1] * rng.uniform(0.2, 0.6, (2, 3)), names[name])
        for name in list(names)[:n]
    }
    return FactorModel(users, items, dcg(4), rewards=rewards)


@pytest.mark.parametrize("n", [2, 3])
def test_several_rewards_share_one_design(n: int) -> None:
    """V is one matrix for all rewards; each theta_r is the ridge regression of its reward."""
    world = several(n)
    problem = world.problem()
    users = Linear(tuple(np.linspace(1.0, -0.5, n)))
    policy = FWLinUCBRank(
        TwoSided(EqualExposure(), users=users, n_users=n), ridge=0.2, exploration="theorem"
    )
    state, arrays = policy.init(problem), world.init(stream(0, "world"))
    rng = stream(0, "rounds")
    seen: list[Vector] = []
    earned: list[Vector] = []
    totals = np.zeros(problem.n_objectives)
    for t in range(1, 151):
        context = world.context(arrays, t, rng)
        decision = policy.act(state, context, rng)
        shown = world.feedback(arrays, context, decision.action, rng)
        state = policy.update(state, decision, shown)
        for slot, item in enumerate(np.asarray(decision.action)):
            totals[item] += shown.exposed[slot]
            totals[7:] += shown.rewards[slot]
            if shown.exposed[slot]:
                seen.append(np.kron(context.user, context.items[item]))
                earned.append(shown.rewards[slot])
        np.testing.assert_allclose(state.average, totals / t, rtol=0, atol=1e-12)
    x, y = np.array(seen), np.array(earned)
    oracle = state.base_state.oracle
    assert oracle.gram.shape == (1, 6, 6)
    assert oracle.theta.shape == (1, n, 6)
    gram = 0.2 * np.eye(6) + x.T @ x
    np.testing.assert_allclose(oracle.gram[0], gram, rtol=1e-11)
    rows = np.vstack([x, np.sqrt(0.2) * np.eye(6)])
    targets = np.vstack([y, np.zeros((6, n))])
    theta = np.linalg.lstsq(rows, targets, rcond=None)[0].T
    np.testing.assert_allclose(oracle.theta[0], theta, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("n", [2, 3])
def test_scores_are_optimistic_for_either_sign_of_a_weight(n: int) -> None:
    """No item's true worth to the direction exceeds its score, with the radius of the theorem."""
    world = several(n)
    problem = world.problem()
    users = Linear(tuple(np.linspace(1.0, -0.8, n)))
    policy = FWLinUCBRank(
        TwoSided(GiniEquality(), 0.5, users=users, n_users=n), exploration="theorem"
    )
    state, arrays = policy.init(problem), world.init(stream(0, "world"))
    rng = stream(1, "rounds")
    for t in range(1, 201):
        context = world.context(arrays, t, rng)
        g = state.direction(rng)
        assert g[-1] == pytest.approx(-0.8)
        decision = policy.act(state, context, rng)
        tag = world.tag(arrays, context)
        for row in decision.explain():
            means = arrays.turned[:, tag] @ arrays.items[row["item"]]
            true = g[7:] @ means + g[row["item"]]
            score = row["value"] + row["exploration"] + row["fairness"]
            assert row["exploration"] > 0.0
            assert score >= true - 1e-9
        shown = world.feedback(arrays, context, decision.action, rng)
        state = policy.update(state, decision, shown)


def test_a_cost_is_avoided() -> None:
    """Items are clicked alike; one of two kinds costs, and a negative weight learns to avoid it."""
    users = [[1.0]]
    items = [[0.9, 0.0], [0.9, 1.0], [0.9, 0.0], [0.9, 1.0]]
    rewards = {"clicks": ([[1.0, 0.0]], (0.0, 1.0)), "cost": ([[0.0, 1.0]], (0.0, 1.0))}
    world = FactorModel(users, items, dcg(2), rewards=rewards)
    f = TwoSided(EqualExposure(), 0.0, users=Linear({"clicks": 1.0, "cost": -0.5}), n_users=2)
    trace = simulate(FWLinUCBRank(f, exploration=0.2), world, 500, seed=0)
    exposures = trace.average_observed[-1]
    assert exposures[[0, 2]].sum() > 10.0 * exposures[[1, 3]].sum()


def test_worlds_without_users_are_ranked_too() -> None:
    """Features that are no product: the case p = 1."""
    trace = simulate(
        FWLinUCBRank(TwoSided(GiniEquality(), beta=3.0), exploration="theorem"),
        FiniteRanking.b1(),
        2000,
    )
    assert trace.compiled
    assert trace.value[-1] > 0.79334 - 0.05


@pytest.mark.parametrize(
    "policy",
    [UnbiasedLinUCBRank(exploration="theorem"), FairLearnRank(0.1, exploration="theorem")],
    ids=str,
)
def test_a_policy_without_an_objective_has_no_live_numbers(policy: Any) -> None:
    agent = Agent(policy, Problem.ranking(n_items=3, n_slots=2, n_features=1))
    with pytest.raises(InvalidInput, match="no objective, so it keeps no live numbers"):
        agent.live()
    assert eval(repr(policy)) == policy
