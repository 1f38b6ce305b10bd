"""Hard constraints in what people see: traces, comparisons, trade-offs, sweeps and bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairwolfe import bounds, lab, tradeoff
from fairwolfe.bandits import LinUCB
from fairwolfe.cli.demos.preferences import Panel, walk
from fairwolfe.environments import FactorModel, Finite, dcg
from fairwolfe.errors import InvalidInput, OutsideAssumptions
from fairwolfe.fairness.tradeoff import plan
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    ByGroup,
    GiniWelfare,
    Linear,
    Minimum,
    TwoSided,
    Within,
)
from fairwolfe.reduction import FrankWolfe
from fairwolfe.simulation import compare, simulate
from fairwolfe.truth import optimum

A2 = Finite.a2()
SOFT = Linear((1.0, 0.0))
HARD = SOFT + AtLeast(0.3).on(1)


def policy(f: Any) -> FrankWolfe:
    return FrankWolfe(f, LinUCB(exploration=0.3))


# --- traces and comparisons ----------------------------------------------------------------------


@pytest.mark.needs("matplotlib")
def test_a_trace_shows_value_and_violation() -> None:
    trace = simulate(policy(HARD), A2, 500)
    frame = trace.to_frame()
    short = np.maximum(0.3 - trace.average_observed[:, 1], 0.0)
    np.testing.assert_allclose(frame["violation"], short)
    np.testing.assert_allclose(frame["value"], trace.average[:, 0])
    assert short.max() > 0.0
    ax = trace.plot(best=optimum(A2, HARD))
    (beside,) = [other for other in ax.figure.axes if other is not ax]
    assert "violation" in beside.get_ylabel()
    np.testing.assert_allclose(np.asarray(beside.lines[0].get_ydata()), short)


@pytest.mark.needs("matplotlib")
def test_a_trace_without_constraints_is_as_before() -> None:
    trace = simulate(policy(SOFT), A2, 100)
    assert "violation" not in trace.to_frame()
    assert len(trace.plot().figure.axes) == 1
    both = compare({"one": policy(SOFT)}, A2, 100, 2)
    assert "violation" not in both.table()[0]
    assert "violation" not in str(both)
    assert len(both.plot().figure.axes) == 1


@pytest.mark.needs("matplotlib")
def test_a_comparison_shows_value_and_violation() -> None:
    policies = {"kept": policy(HARD), "free": policy(SOFT)}
    both = compare(policies, A2, 1000, 2, objective=HARD)
    kept, free = both.table(best=[optimum(A2, HARD)] * 2)
    assert kept["violation"] < 0.02
    assert free["violation"] > 0.2  # everything for the first reward
    assert free["value"] > kept["value"]
    assert free["violation"] == pytest.approx(both.last("free", "violation").mean())
    assert "violation" in both.to_frame()
    assert "violation" in str(both)
    for scale in ("value", "below"):
        ax = both.plot(best=[optimum(A2, HARD)] * 2, scale=scale)
        (beside,) = [other for other in ax.figure.axes if other is not ax]
        assert len(beside.lines) == 2


# --- trade-offs ---------------------------------------------------------------------------------

LISTS = FactorModel(12, 8, dcg(3), n_factors=2)
PRODUCERS = ("a", "b", "c", "d") * 2
FLOORS = ByGroup(AtLeast(0.2, share=True), PRODUCERS)


def test_constraints_of_a_trade_off_hold_for_every_beta() -> None:
    found = tradeoff(
        LISTS, GiniWelfare() + FLOORS, betas=(0.0, 0.5), floors=(0.0,), horizon=2000, seeds=1
    )
    free = tradeoff(LISTS, GiniWelfare(), betas=(0.0, 0.5), floors=(), horizon=50, seeds=1)
    everywhere = FLOORS.on(*range(8))
    for beta in (0.0, 0.5):
        best, loose = found.best[beta][0], free.best[beta][0]
        exact = optimum(LISTS, TwoSided(GiniWelfare(), beta) + everywhere)
        assert best.value == pytest.approx(exact.value, abs=2e-3)
        assert everywhere.violation(best.average) <= 1e-6
        assert best.upper_bound <= loose.upper_bound + 1e-6
    # beta = 0 is where a constraint inside of the item objective would be lost.
    assert everywhere.violation(free.best[0.0][0].average) > 0.01
    rows = found.table()
    assert all(row["violation"] <= 1e-6 for row in rows if row["policy"] == "best possible")
    assert rows[-1]["violation"] > 0.01  # FairLearnRank without a floor
    text = " ".join(found.sentences())
    assert "hard constraints kept" in text
    assert "which does not know them" in text
    assert "violation" not in free.table()[0]


def test_bounds_of_a_constrained_trade_off_are_of_all_policies_that_keep_it() -> None:
    """No mixture of rankings that keeps the floors is above the frontier."""
    found = plan(LISTS, GiniWelfare() + FLOORS, (0.0, 0.3, 1.0), floors=(), horizon=50, seeds=1)
    done = found.run()
    everywhere, items = FLOORS.on(*range(8)), done.items
    for beta in (0.1, 0.2, 0.6, 2.0):
        best = optimum(LISTS, TwoSided(GiniWelfare(), beta) + everywhere)
        x, utility = items.value(best.average[:8]), float(best.average[8:].sum())
        assert utility <= float(done.frontier.upper(x)[0]) + 1e-6


def test_a_trade_off_that_no_policy_keeps() -> None:
    shown = np.sum(dcg(3))
    with pytest.raises(InvalidInput, match="no policy keeps"):
        tradeoff(
            LISTS,
            GiniWelfare() + AtMost(0.3).on(0, 1, 2, 3, 4, 5) + AtMost(0.1).on(6, 7),
            betas=(0.0,),
            floors=(),
            horizon=50,
            seeds=1,
        )
    assert shown > 6 * 0.3 + 2 * 0.1
    with pytest.raises(InvalidInput, match="inside of another function"):
        plan(LISTS, ByGroup(Minimum() + AtLeast(0.2, share=True), PRODUCERS), seeds=1)


# --- bounds, pictures, experiments ----------------------------------------------------------------


def test_theorems_refuse_constraints_with_a_sentence() -> None:
    kept, free = (FrankWolfe(f, LinUCB(exploration="theorem")) for f in (HARD, HARD.relaxed()))
    with pytest.raises(OutsideAssumptions, match="hard constraints"):
        bounds.of(kept, A2, 1000)
    assert bounds.of(free, A2, 1000) > 0.0
    with pytest.raises(OutsideAssumptions, match="hard constraints"):
        bounds.uniform_regret(A2, HARD)


def test_the_picture_of_objectives_refuses_constraints_with_a_sentence() -> None:
    with pytest.raises(InvalidInput, match="give them a penalty"):
        walk(Panel("Within", "", Within(0.2, 0.4).on(0) + Minimum()), steps=10)


SPEC = """
name = "floor"
horizon = 300
seeds = 2
[environment]
name = "mehrotra"
n_arms = 5
n_objectives = 2
n_features = 3
[objective]
name = "within"
high = 0.45
[policies.ucb]
name = "frank-wolfe"
base = { name = "linucb" }
"""


@pytest.mark.needs("pyarrow")
def test_a_sweep_shows_the_violation(tmp_path: Path) -> None:
    file = tmp_path / "floor.toml"
    file.write_text(SPEC)
    swept = lab.run(lab.load(file), tmp_path / "out", jobs=1)
    assert not swept.failed
    (row,) = swept.table()
    assert row["violation"] >= 0.0
    assert row["value"] == 0.0
    frame = lab.read(tmp_path / "out")
    assert row["violation"] == pytest.approx(frame.groupby("seed")["violation"].last().mean())
