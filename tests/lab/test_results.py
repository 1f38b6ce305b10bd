"""The model of results: what a row belongs to is in its columns, in files of any format."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fairwolfe import lab
from fairwolfe.errors import InvalidInput
from fairwolfe.lab import results
from fairwolfe.lab.build import build
from fairwolfe.lab.report import Report
from fairwolfe.simulation import compare, simulate
from fairwolfe.simulation.exposure import FAIRNESS
from fairwolfe.simulation.line import Line
from tests.lab.lab_specs import SMALL

pytestmark = pytest.mark.needs("pyarrow")

RANKED = """
name = "ranked"
horizon = 60
seeds = [2, 10]
environment = { name = "factor_model", users = 6, items = 12, n_factors = 3 }
objective = { name = "two-sided", items = { name = "gini-equality" }, beta = 0.1 }
policies.fair = { name = "fw-linucb-rank", exploration = 0.1 }
"""


def write_format_1(experiment: lab.Experiment, out: Path) -> None:
    """Files as they were before rows said to what they belong, column by column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (out / "runs").mkdir(parents=True)
    (out / "spec.toml").write_text(experiment.text)
    for run in experiment.runs():
        parts = build(run.settings)
        trace = simulate(
            parts.policy, parts.environment, run.settings.horizon, run.seed, parts.objective
        )
        n, size = len(trace.t), trace.average.shape[1]
        columns = {
            "run": [run.id] * n,
            "label": [run.label] * n,
            "policy": [run.settings.policy["name"]] * n,
            "seed": pa.array([run.seed] * n, pa.int64()),
            "t": trace.t,
            "value": trace.value,
            "observed": trace.observed,
            "scalar_regret": trace.scalar_regret,
            "scalar_pseudo_regret": trace.scalar_pseudo_regret,
            "seconds": np.linspace(0.1, 0.2, n),
        }
        if trace.problem.n_items is not None:
            columns |= {name: getattr(trace, name) for name in FAIRNESS}
        columns["average"] = pa.array(list(trace.average), pa.list_(pa.float64(), size))
        for path, value in run.settings.parameters().items():
            columns[path] = pa.array([value] * n)
        about = {"format": 1, "run": run.id, "seed": run.seed, "warnings": []}
        about |= {"versions": {"fairwolfe": "0.1.0"}, "os": "any", "date": "2026-01-01"}
        about["machine"] = {"name": "one", "processor": "x", "cores": 2}
        rows = pa.table(columns).replace_schema_metadata({b"fairwolfe": json.dumps(about).encode()})
        pq.write_table(rows, out / "runs" / f"{run.id}.parquet")


@pytest.mark.parametrize(("text", "kind", "n_items"), [(SMALL, "arms", 0), (RANKED, "ranking", 12)])
def test_old_files_are_read_as_new_ones_and_resumed(
    tmp_path: Path, text: str, kind: str, n_items: int
) -> None:
    experiment = lab.Experiment.of(text)
    old, new = tmp_path / "old", tmp_path / "new"
    write_format_1(experiment, old)
    lab.run(experiment, new, jobs=1)
    frames = [lab.numbers(lab.read(folder)) for folder in (old, new)]
    assert list(frames[0].columns) == list(frames[1].columns)
    assert frames[0].drop(columns="average").equals(frames[1].drop(columns="average"))
    for frame in frames:
        assert set(frame["kind"]) == {kind}
        assert set(frame["n_items"]) == {n_items}
        assert set(frame["settings"]) == {cell.settings.id for cell in experiment.cells}
    # The run ids are the same: nothing is played again, and one more seed stands beside the old.
    assert lab.pending(experiment, old) == ()
    swept = lab.run(experiment, old, jobs=1, seeds=[*experiment.spec.numbers(), 30], resume=True)
    assert [row["seeds"] for row in swept.table()] == [3] * len(experiment.cells)
    assert sorted(set(lab.read(old)["seed"])) == sorted({*experiment.spec.numbers(), 30})


def test_a_report_builds_no_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = lab.Experiment.of(RANKED)
    write_format_1(experiment, tmp_path / "out")
    monkeypatch.setattr("fairwolfe.lab.build._environment", None)
    (group,) = Report.of(tmp_path / "out").groups
    assert group.n_items == 12
    (line,) = group.lines
    assert line.seeds == (2, 10)  # by number, not by the name of the file
    assert {"utility", "gini", "bottom_half", "top_decile"} <= set(line.row())


def test_measures_that_are_not_of_the_average_are_refused(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    experiment = lab.Experiment.of(RANKED)
    write_format_1(experiment, tmp_path / "out")
    file = tmp_path / "out" / "runs" / f"{experiment.runs()[0].id}.parquet"
    rows = pq.read_table(file)
    wrong = rows.set_column(rows.schema.get_field_index("gini"), "gini", [[0.9] * len(rows)])
    with pytest.raises(InvalidInput, match=f"measures of run {file.stem} are not"):
        results.completed(wrong)


def test_the_rows_of_all_tables_are_one(tmp_path: Path) -> None:
    """A sweep, a report and `compare` tell the same of the same runs."""
    experiment = lab.Experiment.of(RANKED)
    swept = lab.run(experiment, tmp_path / "out", jobs=1)
    parts = build(experiment.cells[0].settings)
    direct = compare(
        {"fair": parts.policy}, parts.environment, 60, (2, 10), objective=parts.objective
    )
    (one,), (two,), (three,) = (
        direct.table(),
        swept.table(),
        Report.of(tmp_path / "out").groups[0].rows(),
    )
    for name in ("value", "low", "high", "seeds", *FAIRNESS):
        assert one[name] == two[name] == three[name], name


def test_a_line_is_what_its_numbers_say() -> None:
    """Student's t of two values: 12.706 standard errors."""
    averages = np.array([[0.6, 0.2, 0.1], [0.4, 0.4, 0.3]])
    values = np.array([[0.0, 1.0], [0.0, 2.0]])
    row = Line("one", (0, 1), np.array([1, 9]), values, averages, 2.5, n_items=2).row()
    assert row["value"] == 1.5
    assert row["high"] - row["value"] == pytest.approx(12.7062047 * 0.5)
    assert row["utility"] == pytest.approx(0.2)
    assert row["gini"] == pytest.approx(0.125)  # of (0.6, 0.2) 0.25, of equals 0
    assert "violation" not in row
