"""The trade-off of utility and fairness: what is refused, counted, said and drawn."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.environments import FactorModel, FiniteRanking, Mehrotra, dcg
from fairwolfe.errors import InvalidInput
from fairwolfe.fairness import TradeOff, metrics
from fairwolfe.fairness.frontier import Optima
from fairwolfe.fairness.tradeoff import (
    BEST,
    FAIR,
    FLOOR,
    item_objective,
    knee,
    plan,
    sentence,
    smallest_gap,
)
from fairwolfe.objectives import (
    EqualExposure,
    GiniEquality,
    GiniWelfare,
    Minimum,
    Nash,
    TwoSided,
    Welfare,
)
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank
from fairwolfe.simulation import simulate

WORLD = FactorModel(12, 9, dcg(3), n_factors=3)
BETAS, FLOORS = (0.0, 0.3, 3.0), (0.0, 0.1, 0.3)


@pytest.fixture(scope="module")
def found() -> TradeOff:
    return fw.tradeoff(WORLD, "gini-equality", BETAS, floors=FLOORS, horizon=1500, seeds=(0, 4))


def test_its_runs_are_those_of_simulate(found: TradeOff) -> None:
    for i, seed in enumerate(found.seeds):
        f = TwoSided(GiniEquality(), 0.3)
        fair = simulate(FWLinUCBRank(f, exploration=0.1), WORLD, 1500, seed)
        floor = simulate(FairLearnRank(0.1, exploration=0.1), WORLD, 1500, seed, f)
        assert np.array_equal(found.averages(FAIR, 0.3)[i], fair.average[-1])
        assert np.array_equal(found.averages(FLOOR, 0.1)[i], floor.average[-1])
        assert found.best[0.3][i].value == fw.optimum(WORLD, f, seed).value
    assert (found.seeds, found.horizon) == ((0, 4), 1500)


def test_the_table_is_the_mean_over_seeds(found: TradeOff) -> None:
    rows = found.table()
    assert [(row["policy"], row["beta"], row["floor"]) for row in rows] == [
        *((BEST, beta, None) for beta in BETAS),
        *((FAIR, beta, None) for beta in BETAS),
        *((FLOOR, None, floor) for floor in FLOORS),
    ]
    row, averages = rows[4], found.averages(FAIR, 0.3)
    f = TwoSided(GiniEquality(), 0.3).bind(WORLD.problem())
    tops = np.array([best.value for best in found.best[0.3]])
    values = np.array([f.value(z) for z in averages])
    assert row["utility"] == pytest.approx(averages[:, -1].mean())
    assert row["utility_low"] < row["utility"] < row["utility_high"]
    assert row["gini"] == pytest.approx(np.mean([metrics.gini_index(z[:9]) for z in averages]))
    assert row["item_objective"] == pytest.approx(
        np.mean([GiniEquality().value(z[:9]) for z in averages])
    )
    assert row["bottom_half"] == pytest.approx(
        np.mean([metrics.bottom_share(z[:9]) for z in averages])
    )
    assert row["value"] == pytest.approx(values.mean())
    assert row["below_best_percent"] == pytest.approx(np.mean(100 * (tops - values) / abs(tops)))
    assert 0.0 <= row["certified_gap"] <= 1e-3 * max(1.0, abs(tops).max())
    assert rows[-1]["value"] is None
    assert json.loads(json.dumps(rows)) == rows


def test_optima_of_a_world_of_tables_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    module = Optima.at.__globals__
    real = module["optimum"]

    def counted(*given: Any) -> Any:
        asked.append(given)
        return real(*given)

    monkeypatch.setitem(module, "optimum", counted)
    made = plan(FiniteRanking.b1(), betas=(0.0, 1.0), floors=(), horizon=20, seeds=3)
    assert len(made.run().best[1.0]) == 3
    assert len(asked) == 2
    asked.clear()
    plan(WORLD, betas=(1.0,), floors=(), horizon=20, seeds=3).run()
    assert len(asked) == 2 * 3  # beta = 0 belongs to every frontier


def test_defaults_are_the_grid_of_the_paper() -> None:
    made = plan(FactorModel())
    assert made.betas == (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
    assert made.floors == (0.0, 0.02, 0.05, 0.1, 0.15, 0.19)
    assert made.rounds == 100_000 * 3 * 12


def test_without_floors_there_is_no_baseline() -> None:
    alone = fw.tradeoff(WORLD, betas=(0.0, 1.0), floors=(), horizon=200, seeds=1)
    assert {row["policy"] for row in alone.table()} == {BEST, FAIR}
    assert not any(FLOOR in sentence for sentence in alone.sentences())
    with pytest.raises(InvalidInput, match="no range of the Gini index in common"):
        alone.difference()


def test_progress_counts_every_round() -> None:
    counted: list[int] = []
    made = plan(WORLD, betas=(0.0, 1.0), floors=(0.1,), horizon=150, seeds=2)
    made.run(counted.append)
    assert sum(counted) == made.rounds


def test_what_was_done_before_an_interrupt_is_kept() -> None:
    made = plan(WORLD, betas=(0.0, 1.0), floors=(), horizon=100, seeds=3)
    left = made.rounds // 3

    def impatient(n: int) -> None:
        nonlocal left
        if left <= 0:
            raise KeyboardInterrupt
        left -= n

    kept = made.run(impatient)
    assert kept.seeds == (0,)
    assert len(kept.table()) == 4


@pytest.mark.parametrize(
    ("name", "objective"),
    [
        ("gini", GiniWelfare()),
        ("gini-welfare", GiniWelfare()),
        ("gini-equality", GiniEquality()),
        ("equal-exposure", EqualExposure()),
        ("minimum", Minimum()),
        ("nash", Nash()),
        ("Nash(offset=0.1)", Nash(0.1)),
        ("2 * Welfare(0.5) + Minimum()", 2 * Welfare(0.5) + Minimum()),
        (Welfare(0.3, 0.1), Welfare(0.3, 0.1)),
    ],
)
def test_objectives_by_name(name: Any, objective: Any) -> None:
    assert item_objective(name) == objective


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"world": Mehrotra()}, "needs a world with rankings"),
        ({"world": "factor_model"}, "needs a world with rankings"),
        ({"objective": "fair"}, "objective is 'fair'; give an expression such as"),
        ({"objective": "welfare"}, "objective.alpha is missing"),
        ({"objective": "gini:2"}, "objective: 'gini:2' is not an expression"),
        ({"objective": "Welfare(much)"}, "'much' at character 9 is not allowed"),
        ({"objective": 3}, "objective is 3"),
        ({"objective": "Welfare(2)"}, "alpha is 2"),
        ({"betas": ()}, "betas is empty"),
        ({"betas": (-1.0,)}, "beta is -1.0"),
        ({"betas": (np.nan,)}, "betas[0] is nan"),
        ({"floors": (0.5,)}, "3 slots cannot show each of 9 items"),
        ({"floors": (-0.1,)}, "minimum is -0.1"),
        ({"horizon": 0}, "horizon is 0"),
        ({"seeds": 0}, "seeds is 0"),
        ({"seeds": ()}, "seeds is empty"),
        ({"seeds": (-1,)}, "seed is -1"),
        ({"jobs": 0}, "jobs is 0"),
        ({"exploration": -1.0}, "exploration is -1.0"),
        ({"betas": None, "floors": (), "exploration": -1.0}, "exploration is -1.0"),
        ({"tolerance": 0.0}, "tolerance is 0.0"),
    ],
)
def test_what_cannot_be_explored_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        fw.tradeoff(**({"world": WORLD} | options))
    assert words in str(refused.value)


def test_an_objective_without_value_at_nothing_is_no_obstacle() -> None:
    one = fw.tradeoff(WORLD, "nash", (0.0, 0.1, 1.0), floors=(), horizon=300, seeds=1)
    rows = one.table()
    assert rows[0]["item_objective"] == -np.inf  # clicks alone: some item is never shown
    assert np.isfinite([row["below_frontier_percent"] for row in rows]).all()
    assert len(one.sentences()) >= 2


# --- the difference of two curves -------------------------------------------------------------


def test_the_smallest_difference_is_that_of_a_fine_grid() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        one, other = (np.column_stack([rng.random(n), rng.random(n)]) for n in (5, 7))
        first, second = (points[points[:, 0].argsort()] for points in (one, other))
        grid = np.linspace(max(first[0, 0], second[0, 0]), min(first[-1, 0], second[-1, 0]), 20_001)
        fine = (np.interp(grid, *first.T) - np.interp(grid, *second.T)).min()
        assert smallest_gap(one, other) == pytest.approx(fine, abs=0.02)
        assert smallest_gap(one, other) <= fine + 1e-12


def test_a_point_of_both_curves_says_nothing() -> None:
    fair = np.array([[0.6, 1.0], [0.2, 0.9]])
    floors = np.array([[0.6, 1.0], [0.4, 0.7], [0.2, 0.6]])
    assert smallest_gap(fair, floors) == pytest.approx(0.25)
    assert np.isnan(smallest_gap(fair, fair))
    assert np.isnan(smallest_gap(fair, floors + np.array([5.0, 0.0])))
    assert np.isnan(smallest_gap(fair, np.empty((0, 2))))


def test_no_beta_and_no_floor_are_the_same_policy(found: TradeOff) -> None:
    assert np.array_equal(found.averages(FAIR, 0.0), found.averages(FLOOR, 0.0))


def test_the_difference_is_that_of_every_seed(found: TradeOff) -> None:
    smallest = found.difference()
    pairs = zip(found.curve(FAIR), found.curve(FLOOR), strict=True)
    assert smallest.each.tolist() == [smallest_gap(one, other) for one, other in pairs]
    assert smallest.mean == pytest.approx(smallest.each.mean())
    assert smallest.low <= smallest.mean <= smallest.high


# --- words -----------------------------------------------------------------------------------


def rows_of(*points: tuple[float, float]) -> list[dict[str, Any]]:
    return [{"gini": gini, "utility": utility} for gini, utility in points]


def test_the_knee_is_where_the_curve_turns() -> None:
    assert knee(rows_of((0.7, 1.5), (0.6, 1.49), (0.2, 1.4), (0.0, 1.0))) == 2
    # What comes after the end of gains does not move it.
    assert knee(rows_of((0.7, 1.5), (0.2, 1.4), (0.0, 1.0), (0.0, 0.1))) == 1
    assert knee(rows_of((0.7, 1.5), (0.2, 1.4))) == 1
    assert knee(rows_of((0.1, 1.5), (0.1, 1.4))) == 0


def test_what_is_said(found: TradeOff) -> None:
    said = "\n".join(found.sentences())
    assert "% of clicks lifts the bottom half of items from" in said
    assert "(certified)" in said
    assert f"more than {FLOOR} (95 % interval over 2 seeds:" in said


def test_nothing_is_traded_where_all_betas_are_alike() -> None:
    one = fw.tradeoff(WORLD, betas=(0.0,), floors=(), horizon=100, seeds=1)
    assert one.sentences()[0] == "No beta is fairer than beta = 0: nothing is traded here."


def test_where_gains_end_and_what_the_baseline_cannot_reach() -> None:
    one = fw.tradeoff(WORLD, betas=(0.0, 3.0, 30.0), floors=(0.0, 0.05), horizon=2000, seeds=1)
    said = "\n".join(one.sentences())
    assert "Beyond beta = 3 nothing is gained" in said
    assert f"{FLOOR} does not come down to its Gini index" in said
    assert "(one seed: no interval)" in said


def test_it_can_be_kept(found: TradeOff) -> None:
    again = pickle.loads(pickle.dumps(found))
    assert again.table() == found.table()


# --- plots -----------------------------------------------------------------------------------


@pytest.mark.needs("matplotlib")
def test_the_figure_shows_every_point_and_names_it(found: TradeOff, tmp_path: Path) -> None:
    ax: Any = found.plot()
    lines = {line.get_label(): line for line in ax.get_lines()}
    drawn = {name: lines[name] for name in lines if not str(name).startswith("_")}
    assert {"can be reached"} <= set(drawn)
    (fair,) = [c for c in ax.containers if str(c.get_label()).startswith(FAIR)]
    assert fair.lines[0].get_xdata() == pytest.approx(found.curve(FAIR)[:, :, 0].mean(axis=0))
    assert fair.lines[0].get_ydata() == pytest.approx(found.curve(FAIR)[:, :, 1].mean(axis=0))
    written = ", ".join(text.get_text() for text in ax.texts).split(", ")
    assert sorted(written) == sorted(f"{x:g}" for x in (*BETAS, *FLOORS))
    low, high = sorted(ax.get_xlim())
    assert ax.xaxis.get_inverted()
    assert low < found.curve(FAIR)[:, :, 0].min()
    assert high > found.curve(FAIR)[:, :, 0].max()
    files = found.draw(tmp_path)
    assert [file.name for file in files] == ["tradeoff.png", "tradeoff.svg"]
    assert files[0].read_bytes().startswith(b"\x89PNG")


@pytest.mark.needs("matplotlib")
def test_labels_do_not_overlap(found: TradeOff) -> None:
    ax: Any = found.plot()
    ax.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    for i, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[i + 1 :])


@pytest.mark.needs("matplotlib")
def test_other_objectives_have_no_certified_band_over_the_index() -> None:
    one = fw.tradeoff(WORLD, "Welfare(0.5)", (0.0, 1.0), floors=(), horizon=200, seeds=1)
    assert "best for this objective" in [line.get_label() for line in one.plot().get_lines()]
    curves = one.plot_lorenz().get_lines()
    assert {"beta = 0", "beta = 1"} <= {str(line.get_label()) for line in curves}


# --- who gains and who loses --------------------------------------------------------------------


def test_who_has_what_adds_up() -> None:
    found = plan(WORLD, "gini", (0.0, 0.3), floors=(), seeds=2, horizon=1).reach()
    for beta in (0.0, 0.3):
        for best in found.best[beta]:
            assert best.by_item is not None
            assert best.by_item.shape == (9, 2)
            # The policy behind it is nearly the optimum.
            average = np.append(best.by_item[:, 0], best.by_item[:, 1].sum())
            f = TwoSided(GiniWelfare(), beta).bind(WORLD.problem())
            assert average[:9].sum() == pytest.approx(best.average[:9].sum())
            assert f.value(average) == pytest.approx(best.value, rel=2e-3)
    labels = ["x", "y", "x", "z", "z", "z", "y", "x", "x"]
    rows = found.by_group(labels)
    assert [(row["group"], row["items"]) for row in rows[:3]] == [("x", 4), ("y", 2), ("z", 3)]
    for beta in (0.0, 0.3):
        mine = [row for row in rows if row["beta"] == beta]
        assert sum(row["exposure_share"] for row in mine) == pytest.approx(1.0)
        assert sum(row["utility_share"] for row in mine) == pytest.approx(1.0)
    first, last = rows[0], rows[3]
    parts = [best.by_item for best in found.best[0.3]]
    places = [i for i, label in enumerate(labels) if label == "x"]
    exposure = np.mean([part[places, 0].sum() for part in parts if part is not None])
    assert last["exposure"] == pytest.approx(exposure)
    change = 100.0 * (last["exposure"] / first["exposure"] - 1.0)
    assert last["exposure_change_percent"] == pytest.approx(change)
    assert first["exposure_change_percent"] == 0.0
    with pytest.raises(InvalidInput, match="there are 2 labels for 9 items"):
        found.by_group(["x", "y"])


def test_who_gains_in_words() -> None:
    rows = [
        {"group": group, "beta": beta, "exposure": exposure}
        for beta, exposures in ((0.0, (3.0, 1.0, 1.0)), (0.5, (2.0, 2.0, 1.0)))
        for group, exposure in zip("abc", exposures, strict=True)
    ]
    assert sentence(rows, 0.5) == (
        "Of 3 groups, 1 gain, most of all b (+1 a ranking); 1 lose, most of all a (-1 a ranking): "
        "exposure with beta = 0.5 beside that with beta = 0."
    )
