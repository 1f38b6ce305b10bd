"""Measures of fairness beside their definitions, written out."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.core.problem import Problem
from fairwolfe.core.streams import stream
from fairwolfe.environments import FactorModel, FiniteRanking, Mehrotra, dcg
from fairwolfe.errors import InvalidInput
from fairwolfe.fairness import metrics
from fairwolfe.objectives import GiniEquality, GiniWelfare, Minimum, TwoSided
from fairwolfe.ranking import FWLinUCBRank, LinUCBRank
from fairwolfe.simulation import simulate
from fairwolfe.simulation.run import Streams

RNG = np.random.default_rng(0)
EXPOSURES = [RNG.gamma(0.5, size=n) for n in (1, 2, 7, 10, 51)] + [np.array([0.0, 0.0, 1.0])]
F = TwoSided(GiniEquality(), beta=0.3)


def test_the_package_has_them() -> None:
    assert fw.metrics is metrics


# --- exposure --------------------------------------------------------------------------------


@pytest.mark.parametrize("e", EXPOSURES, ids=len)
def test_the_gini_index_is_the_mean_difference_of_all_pairs(e: np.ndarray) -> None:
    n = len(e)
    pairs = np.abs(e[:, None] - e[None, :]).sum() / (2 * n * e.sum())
    assert metrics.gini_index(e) == pytest.approx(pairs, abs=1e-12)
    # Twice the area between the Lorenz curve and the diagonal.
    items, below = metrics.lorenz(e)
    assert 1.0 - 2.0 * np.trapezoid(below, items) == pytest.approx(pairs, abs=1e-12)


@pytest.mark.parametrize("e", EXPOSURES, ids=len)
def test_gini_objectives_are_affine_in_the_index(e: np.ndarray) -> None:
    n, total, index = len(e), e.sum(), metrics.gini_index(e)
    assert GiniEquality().value(e) == pytest.approx(-total * index, abs=1e-12)
    assert GiniWelfare().value(e) == pytest.approx(total * ((n + 1) / n - index) / 2, abs=1e-12)


def test_shares_of_the_bottom_and_the_top() -> None:
    e = np.array([5.0, 1.0, 2.0, 2.0, 0.0, 0.0, 0.0, 4.0, 3.0, 3.0])
    ordered = np.sort(e) / e.sum()
    assert metrics.bottom_share(e) == pytest.approx(ordered[:5].sum())
    assert metrics.top_share(e) == pytest.approx(ordered[-1])
    assert metrics.bottom_share(e, 0.2) == 0.0
    assert metrics.top_share(e, 1.0) == 1.0
    assert metrics.bottom_share(np.ones(7), 0.3) == pytest.approx(0.3)  # half an item counts half


def test_nobody_has_anything_is_equality() -> None:
    nothing = np.zeros(4)
    assert metrics.gini_index(nothing) == 0.0
    assert metrics.bottom_share(nothing) == 0.5
    assert metrics.top_share(nothing) == pytest.approx(0.1)
    assert metrics.by_group(nothing, "aabb")["a"] == (0.5, 1.0)


def test_groups_share_everything() -> None:
    e = RNG.gamma(1.0, size=30)
    labels = np.array(["x", "y", "z"])[RNG.integers(3, size=30)]
    found = metrics.by_group(e, labels)
    assert sum(group.share for group in found.values()) == pytest.approx(1.0)
    for name, group in found.items():
        mine = labels == name
        assert group.share == pytest.approx(e[mine].sum() / e.sum())
        assert group.per_item == pytest.approx(e[mine].mean() / e.mean())


def test_parts_of_a_reward_vector() -> None:
    problem = Problem.ranking(3, 2, 4, {"clicks": (0, 2), "minutes": (0, 9)})
    z = np.array([0.5, 0.25, 0.25, 1.0, 3.0])
    assert metrics.exposure(z, problem).tolist() == [0.5, 0.25, 0.25]
    assert metrics.utility(z, problem) == 4.0


ARMS = Problem.arms(2, {"clicks": (0, 1)})
RANKING = Problem.ranking(3, 2, 4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.gini_index([0.1, -0.2]), "exposure[1] is -0.2"),
        (lambda: metrics.lorenz([]), "exposure is empty"),
        (lambda: metrics.bottom_share([1.0], 1.5), "part is 1.5"),
        (lambda: metrics.top_share([1.0], np.nan), "part is nan"),
        (lambda: metrics.by_group([1.0, 2.0], ["a"]), "1 labels for 2 items"),
        (lambda: metrics.utility([1.0, 2.0], ARMS), "has arms"),
        (lambda: metrics.exposure([1.0, 2.0], RANKING), "has 2 numbers"),
        (lambda: metrics.envy([[1.0]], [[1.0, 2.0]]), "(1, 1) and preferences (1, 2)"),
        (lambda: metrics.envy([1.0], [1.0]), "exposures has shape (1,)"),
        (lambda: metrics.envy([[np.nan]], [[1.0]]), "exposures holds NaN"),
        (lambda: metrics.envy([["a"]], [[1.0]]), "exposures is not a table"),
        (lambda: metrics.kendall_distance([0, 0], [1, 2]), "one shows an item twice"),
        (lambda: metrics.kendall_distance([0.5], [1]), "one is [0.5]"),
        (lambda: metrics.kendall_distance([[0, 1], [2]], [1]), "one is not a ranking"),
        (lambda: metrics.kendall_distance([0], [[1]]), "shapes (1,) and (1, 1)"),
        (lambda: metrics.kendall_distance([0], [1], 0.7), "penalty is 0.7"),
    ],
)
def test_what_is_wrong_is_said(call: Any, words: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        call()
    assert words in str(refused.value)


# --- envy ------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [1, 7, 1 << 22])
def test_envy_is_that_of_all_pairs(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairwolfe.fairness.metrics import envy as module  # the function has the module's name

    monkeypatch.setitem(module.__globals__, "_BLOCK", block)
    shown, liked = RNG.random((13, 6)), RNG.random((13, 6))
    largest, pairs = np.zeros(13), []
    for i in range(13):
        for j in range(13):
            more = max(sum(liked[i] * shown[j]) - sum(liked[i] * shown[i]), 0.0)
            largest[i] = max(largest[i], more)
            pairs += [more] if i != j else []
    found = metrics.envy(shown, liked)
    assert found.each == pytest.approx(largest, abs=1e-12)
    assert found.pairs == pytest.approx(np.mean(pairs), abs=1e-12)
    assert found.mean == pytest.approx(largest.mean())
    assert found.largest == pytest.approx(largest.max())
    assert found.share == (largest > 0.0).mean()


def test_nobody_envies_where_all_see_the_same_or_each_sees_the_best() -> None:
    liked = RNG.random((9, 5))
    for shown in (np.tile(RNG.random(5), (9, 1)), np.eye(5)[liked.argmax(axis=1)]):
        found = metrics.envy(shown, liked)
        assert (found.mean, found.largest, found.share, found.pairs) == (0.0, 0.0, 0.0, 0.0)


def test_a_single_user_envies_nobody() -> None:
    assert metrics.envy([[0.5, 0.1]], [[0.2, 0.9]]).pairs == 0.0


# --- the distance of rankings ----------------------------------------------------------------


def by_definition(one: list[int], other: list[int], p: float) -> float:
    """The four cases of Fagin, Kumar and Sivakumar, pair by pair."""
    total = 0.0
    for i, j in combinations(sorted(set(one) | set(other)), 2):
        both = [x in one and x in other for x in (i, j)]
        if all(both):
            swapped = (one.index(i) < one.index(j)) != (other.index(i) < other.index(j))
            total += swapped
        elif any(both):
            shared, alone = (i, j) if both[0] else (j, i)
            home = one if alone in one else other
            total += home.index(alone) < home.index(shared)
        elif (i in one) == (j in one):
            total += p
        else:
            total += 1.0
    k, m = len(one), len(other)
    return total / (k * m + p * (k * (k - 1) + m * (m - 1)) / 2)


@pytest.mark.parametrize("p", [0.0, 0.5])
@pytest.mark.parametrize(("k", "m", "n"), [(1, 1, 3), (4, 4, 5), (5, 5, 30), (6, 3, 9), (8, 8, 8)])
def test_the_distance_is_that_of_the_definition(k: int, m: int, n: int, p: float) -> None:
    one = np.array([RNG.permutation(n)[:k] for _ in range(40)])
    other = np.array([RNG.permutation(n)[:m] for _ in range(40)])
    found = metrics.kendall_distance(one, other, p)
    for a, b, d in zip(one, other, found, strict=True):
        assert d == pytest.approx(by_definition(a.tolist(), b.tolist(), p), abs=1e-12)
        assert metrics.kendall_distance(a, b, p) == d
    assert metrics.kendall_distance(other, one, p) == pytest.approx(found, abs=1e-12)
    assert found.min() >= 0.0
    assert found.max() <= 1.0


def test_the_ends_of_the_scale() -> None:
    assert metrics.kendall_distance([4, 2, 9], [4, 2, 9]) == 0.0
    assert metrics.kendall_distance([4, 2, 9], [1, 3, 5]) == 1.0
    assert metrics.kendall_distance([0, 1, 2, 3], [3, 2, 1, 0]) == 6 / 16


def test_many_rankings_are_taken_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (np.array([RNG.permutation(9)[:4] for _ in range(50)]) for _ in range(2))
    whole = metrics.kendall_distance(one, other)
    monkeypatch.setitem(metrics.kendall_distance.__globals__, "_BLOCK", 300)
    assert np.array_equal(metrics.kendall_distance(one, other), whole)


# --- who was shown what ----------------------------------------------------------------------

ROWS = FactorModel.examples()[2]  # every user has position weights of its own
WORLDS = [FactorModel(12, 9, dcg(3), n_factors=3), ROWS, FiniteRanking.b1()]


@pytest.mark.parametrize("world", WORLDS, ids=["drawn", "weights by user", "b1"])
@pytest.mark.parametrize("compiled", [True, False])
def test_what_users_were_shown_is_what_a_plain_loop_counts(world: Any, compiled: bool) -> None:
    trace = simulate(
        FWLinUCBRank(F, exploration=0.1), world, 150, 3, compiled=compiled, record_actions=True
    )
    shown = metrics.shown_to_users(trace, world, penalty=0.5)
    drawn, rng = world.init(stream(3, "world")), Streams.of(3).contexts
    n, m = len(drawn.shares), world.problem().n_items
    seen: list[list[np.ndarray]] = [[] for _ in range(n)]
    moved: list[list[float]] = [[] for _ in range(n)]
    clicks = np.append(np.zeros(m), 1.0)
    for t, action in enumerate(trace.actions if trace.actions is not None else (), start=1):
        context = world.context(drawn, t, rng)
        user = world.tag(drawn, context)
        seen[user].append(world.mean_reward(drawn, context, action)[:m])
        best = world.best_action(drawn, context, clicks)
        moved[user].append(by_definition(action.tolist(), best.tolist(), 0.5))
        assert shown.rankings[user].tolist() == best.tolist()
    assert shown.rounds.tolist() == [len(rounds) for rounds in seen]
    for user in range(n):
        if seen[user]:
            assert shown.exposures[user] == pytest.approx(np.mean(seen[user], axis=0), abs=1e-12)
            assert shown.kendall[user] == pytest.approx(np.mean(moved[user]), abs=1e-12)
    assert shown.kendall_distance == pytest.approx(np.mean(np.concatenate(moved)), abs=1e-12)
    # The utility of the run is that of the users, with what they like and what they were shown.
    mean = np.einsum("ui,ui,u->", shown.preferences, shown.exposures, shown.rounds) / 150
    assert mean == pytest.approx(trace.utility[-1], abs=1e-9)


def test_rankings_by_clicks_alone_have_neither_distance_nor_much_envy() -> None:
    world = FactorModel(12, 9, dcg(3), n_factors=3)
    options: dict[str, Any] = {"horizon": 3000, "record_actions": True}
    fair = simulate(FWLinUCBRank(TwoSided(Minimum(), 50.0), exploration=0.01), world, **options)
    plain = simulate(LinUCBRank(exploration=0.01), world, objective=F, **options)
    moved, still = (metrics.shown_to_users(trace, world) for trace in (fair, plain))
    # .060 and .410; .006 and .023
    assert still.kendall_distance < 0.5 * moved.kendall_distance
    assert still.envy().mean < 0.5 * moved.envy().mean


def test_users_who_never_came_envy_nobody() -> None:
    trace = simulate(FWLinUCBRank(F, exploration="theorem"), WORLDS[0], 3, record_actions=True)
    shown = metrics.shown_to_users(trace, WORLDS[0])
    assert shown.rounds.sum() == 3
    assert len(shown.envy().each) == (shown.rounds > 0).sum() < 12


def test_who_was_shown_what_is_refused_where_it_is_unknown() -> None:
    policy = FWLinUCBRank(F, exploration="theorem")
    trace = simulate(policy, WORLDS[0], 5)
    with pytest.raises(InvalidInput, match="record_actions=True"):
        metrics.shown_to_users(trace, WORLDS[0])
    with pytest.raises(InvalidInput, match="Mehrotra is not a world with rankings"):
        metrics.shown_to_users(trace, Mehrotra())
    kept = simulate(policy, WORLDS[0], 5, record_actions=True)
    with pytest.raises(InvalidInput, match="of another environment"):
        metrics.shown_to_users(kept, FactorModel())
    other = FactorModel(12, 9, (1.0, 0.5, 0.4), n_factors=3)
    with pytest.raises(InvalidInput, match="not those of its rankings here"):
        metrics.shown_to_users(kept, other)


# --- traces and comparisons ------------------------------------------------------------------


def test_a_trace_of_rankings_has_them() -> None:
    world = WORLDS[0]
    trace = simulate(FWLinUCBRank(F, exploration="theorem"), world, 100)
    problem = world.problem()
    for i, z in enumerate(trace.average):
        e = metrics.exposure(z, problem)
        assert trace.utility[i] == pytest.approx(metrics.utility(z, problem))
        assert trace.gini[i] == metrics.gini_index(e)
        assert trace.bottom_half[i] == metrics.bottom_share(e)
        assert trace.top_decile[i] == metrics.top_share(e)
    frame = trace.to_frame()
    assert frame["gini"].tolist() == trace.gini.tolist()
    assert frame["utility"].tolist() == trace.utility.tolist()


@pytest.mark.parametrize("measure", ["utility", "gini", "bottom_half", "top_decile"])
def test_a_trace_of_arms_says_that_it_has_none(measure: str) -> None:
    world = Mehrotra(5, 3, 4)
    trace = simulate(
        fw.FrankWolfe(world.objective(), fw.bandits.LinUCB(exploration="theorem")), world, 5
    )
    with pytest.raises(InvalidInput, match=f"{measure} is a measure of rankings"):
        getattr(trace, measure)
    assert measure not in trace.to_frame()


def test_a_comparison_of_rankings_has_them_in_its_table() -> None:
    two = {
        "fair": FWLinUCBRank(F, exploration="theorem"),
        "plain": LinUCBRank(exploration="theorem"),
    }
    found = fw.compare(two, WORLDS[0], 60, 2, objective=F, scalar_regret=False)
    for row in found.table():
        traces = found.traces[row["policy"]]
        for key in ("utility", "gini", "bottom_half", "top_decile"):
            assert row[key] == pytest.approx(np.mean([getattr(t, key)[-1] for t in traces]))
        assert np.isnan(traces[0].scalar_regret).all()
    world = Mehrotra(5, 3, 4)
    arms = fw.compare(
        {"ucb": fw.FrankWolfe(world.objective(), fw.bandits.LinUCB(exploration="theorem"))},
        world,
        5,
        1,
    )
    assert "gini" not in arms.table()[0]


@pytest.mark.needs("matplotlib")
def test_lorenz_curves_of_a_comparison() -> None:
    two = {
        "fair": FWLinUCBRank(F, exploration="theorem"),
        "plain": LinUCBRank(exploration="theorem"),
    }
    found = fw.compare(two, WORLDS[0], 60, 2, objective=F)
    ax = found.plot_lorenz()
    drawn = {line.get_label(): line.get_ydata() for line in ax.get_lines()}
    curves = [metrics.lorenz(t.average[-1, :9])[1] for t in found.traces["fair"]]
    assert drawn["fair"] == pytest.approx(100 * np.mean(curves, axis=0))
    world = Mehrotra(5, 3, 4)
    arms = fw.compare(
        {"ucb": fw.FrankWolfe(world.objective(), fw.bandits.LinUCB(exploration="theorem"))},
        world,
        5,
        1,
    )
    with pytest.raises(InvalidInput, match="a Lorenz curve is a measure of rankings"):
        arms.plot_lorenz()
