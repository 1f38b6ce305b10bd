"""`fairwolfe bench`, and the NumPy loops that it compares with. Nothing is timed here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import islice
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB
from fairwolfe.cli import commands
from fairwolfe.environments import FactorModel, Mehrotra, dcg
from fairwolfe.errors import InvalidInput, NumericalFailure
from fairwolfe.lab import bench as speed
from fairwolfe.lab.bench import (
    Case,
    LinUCBLoop,
    RankingLoop,
    Rounds,
    SquareCBLoop,
    aged,
    checked,
    loop_of,
    measure,
    smoothed_gini,
    turns,
)
from fairwolfe.objectives import GeneralizedGini, GiniEquality, TwoSided
from fairwolfe.oracles import Ridge
from fairwolfe.ranking import FWLinUCBRank
from fairwolfe.reduction import FrankWolfe
from fairwolfe.smoothing import Moreau

ARMS = Mehrotra(n_arms=6, n_objectives=3, n_features=4)
FEW = Rounds(8, 4, 2)


def for_arms(base: Any) -> Case:
    return Case(FrankWolfe(ARMS.objective(), base, Moreau(0.1)), ARMS, FEW)


CASES = (
    for_arms(LinUCB(exploration=0.3, ridge=0.2, delta=0.1)),
    for_arms(SquareCB(gamma0=30.0, oracle=Ridge(0.2))),
    Case(
        FWLinUCBRank(
            TwoSided(GiniEquality(), beta=0.3),
            smoothing=Moreau(0.5),
            exploration=0.2,
            ridge=0.3,
            delta=0.1,
        ),
        FactorModel(7, 12, dcg(4), n_factors=3),
        FEW,
    ),
)
NAMES = ("FW-LinUCB", "FW-SquareCB", "FW-LinUCBRank")


# --- the loops -------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=NAMES)
@pytest.mark.parametrize("age", [0, 50])
def test_a_loop_goes_on_like_the_compiled_run(case: Case, age: int) -> None:
    run = aged(case.policy, case.environment, age)
    before = run.mean_sum.copy()
    loop = checked(loop_of(run), run, 300)
    state, oracle = run.running, run.running.base_state.oracle
    assert loop.t == state.t == age + 300
    np.testing.assert_allclose(loop.z, state.iterate, atol=1e-12)
    np.testing.assert_allclose(loop.inverse, oracle.inverse[0], atol=1e-10)
    np.testing.assert_allclose(loop.design @ loop.inverse, np.eye(len(loop.design)), atol=1e-10)
    # ln det V/det V_0, V_0 = ridge I.
    ridge = 0.3 if isinstance(loop, RankingLoop) else 0.2
    grown = np.linalg.slogdet(loop.design / ridge)[1]
    np.testing.assert_allclose(loop.log_det, grown, atol=1e-10)
    if isinstance(loop, RankingLoop):
        np.testing.assert_allclose(loop.mean, run.mean_sum - before, atol=1e-10)


def test_a_loop_leaves_its_run_alone() -> None:
    for case in CASES:
        runs = [aged(case.policy, case.environment, 10) for _ in range(2)]
        loop_of(runs[0]).play(20)
        np.testing.assert_array_equal(runs[0].play(16), runs[1].play(16))


class Contrary(LinUCBLoop):
    def choose(self, x: Any, g: Any, score: Any) -> int:
        return int(np.argmin(score))


class Unfair(RankingLoop):
    def rank(self, user: Any) -> Any:
        return np.arange(self.n_slots)


def test_a_loop_that_decides_otherwise_is_refused() -> None:
    run: Any = aged(CASES[0].policy, ARMS, 50)
    with pytest.raises(NumericalFailure, match=r"^Contrary .* rounds 51 and 70;"):
        checked(Contrary(run), run)
    run = aged(CASES[2].policy, CASES[2].environment, 50)
    with pytest.raises(NumericalFailure, match="Unfair decides otherwise"):
        checked(Unfair(run), run)


def test_the_loop_is_that_of_the_rule() -> None:
    wanted = (LinUCBLoop, SquareCBLoop, RankingLoop)
    assert tuple(type(loop_of(aged(c.policy, c.environment, 1))) for c in CASES) == wanted
    with pytest.raises(InvalidInput, match="no NumPy loop for EpsilonGreedy"):
        loop_of(aged(for_arms(EpsilonGreedy(0.1)).policy, ARMS, 1))


@pytest.mark.parametrize("step", [1e-3, 0.3, 10.0])
def test_the_direction_is_that_of_the_library(step: float) -> None:
    weights = np.array([1.0, 0.5, 0.2, 0.1])
    tree = GeneralizedGini(weights.tolist()).tree(4)
    for z in np.random.default_rng(0).random((20, 4)):
        ours = tree.gradient(z, step)
        np.testing.assert_allclose(smoothed_gini(z, step, weights), ours, atol=1e-11)


# --- the clock -------------------------------------------------------------------------------


def test_sides_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, played = [0.0], []
    monkeypatch.setattr(speed, "process_time", lambda: clock[0])

    def side(name: str, cost: float) -> speed.Side:
        def play(rounds: int) -> None:
            played.append(name)
            clock[0] += cost * rounds * (1 + len(played))

        return play

    taken = list(islice(turns({"a": (side("a", 1e-6), 10), "b": (side("b", 3e-6), 5)}), 2))
    assert played == ["a", "b", "a", "b"]
    np.testing.assert_allclose([turn["a"] for turn in taken], [2.0, 4.0])
    np.testing.assert_allclose([turn["b"] for turn in taken], [9.0, 15.0])


def test_a_row_has_medians_and_the_ratio_within_turns() -> None:
    times = ((1.0, 30.0), (10.0, 100.0), (2.0, 4.0))
    taken = tuple({"compiled": c, "agent": 7.0, "numpy": n} for c, n in times)
    row = speed.Timing(CASES[0], taken).row()
    assert row == {
        "policy": "FW-LinUCB",
        "size": "6 arms, 4 features, 3 rewards",
        "compiled_us": 2.0,
        "agent_us": 7.0,
        "numpy_us": 30.0,
        "numpy_over_compiled": 10.0,
        "lowest": 2.0,
        "highest": 30.0,
        "turns": 3,
    }


def test_measure_takes_a_few_turns_however_little_time_there_is() -> None:
    spent: dict[str, float] = {}

    def told(case: Case, seconds: float) -> None:
        spent[case.name] = spent.get(case.name, 0.0) + seconds

    found = list(measure(CASES, 3e-6, told))
    assert [timing.case for timing in found] == list(CASES)
    assert all(len(timing.times) >= 3 for timing in found)
    assert tuple(spent) == NAMES
    np.testing.assert_allclose(list(spent.values()), 1e-6)
    assert found[2].row()["size"] == "7 users, 12 items, 3 factors"
    for timing in found:
        assert all(set(turn) == {"compiled", "agent", "numpy"} for turn in timing.times)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 3601.0])
def test_measure_refuses_impossible_times(seconds: float) -> None:
    with pytest.raises(InvalidInput, match=r"^seconds is .*; give .* at most 3600$"):
        measure(CASES, seconds)


# --- the command -----------------------------------------------------------------------------


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(commands, ["bench", *arguments], prog_name="fairwolfe")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "CASES", CASES)
    monkeypatch.setenv("COLUMNS", "200")


def test_the_sizes_that_are_timed() -> None:
    assert [f"{case.name}, {case.size}" for case in speed.CASES] == [
        "FW-LinUCB, 50 arms, 10 features, 5 rewards",
        "FW-SquareCB, 50 arms, 10 features, 5 rewards",
        "FW-LinUCBRank, 50 users, 50 items, 10 factors",
        "FW-LinUCBRank, 1,892 users, 2,500 items, 10 factors",
    ]


@pytest.mark.usefixtures("small")
def test_bench_prints_a_row_for_each_size_and_where_it_ran() -> None:
    result = bench("--seconds", "0.01")
    assert result.exit_code == 0
    header, _, *rows, empty, about = result.stdout.splitlines()
    assert header.split() == [
        "us",
        "a",
        "round",
        "compiled",
        "Agent",
        "NumPy",
        "NumPy",
        "/",
        "compiled",
    ]
    assert [row.split(",")[0] for row in rows] == list(NAMES)
    assert empty == ""
    for word in ("machine ", "cores ", "python ", "numpy ", "scipy ", "fairwolfe ", "date 20"):
        assert word in about


@pytest.mark.usefixtures("small")
def test_bench_as_json() -> None:
    result = bench("--seconds", "0.01", "--json")
    assert result.exit_code == 0
    said = json.loads(result.stdout)
    assert [row["policy"] for row in said["rows"]] == list(NAMES)
    assert all(
        row["lowest"] <= row["numpy_over_compiled"] <= row["highest"] for row in said["rows"]
    )
    assert {"machine", "cores", "python", "fairwolfe", "numpy", "scipy", "date"} <= set(
        said["about"]
    )


@pytest.mark.parametrize("seconds", ["0", "-3", "nan", "1e9"])
def test_bench_refuses_impossible_times(seconds: str) -> None:
    result = bench("--seconds", seconds)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: seconds is ")
    assert result.stderr.count("\n") == 1


def test_the_command_asks_for_one_thread_before_numpy_is_there() -> None:
    code = """
import os, sys
from fairwolfe.cli import commands
before = "numpy" in sys.modules
try:
    commands(["bench", "--seconds", "0"], prog_name="fairwolfe")
except SystemExit as end:
    print(before, "numpy" in sys.modules, end.code, os.environ["OPENBLAS_NUM_THREADS"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "2"},
    )
    assert done.stdout.split() == ["False", "True", "2", "1"]
