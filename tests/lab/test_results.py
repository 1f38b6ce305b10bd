"""Results: what a row belongs to is in its columns; other formats are played again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fairwolfe import lab
from fairwolfe.errors import InvalidInput
from fairwolfe.lab.play import build
from fairwolfe.lab.report import Report
from fairwolfe.objectives.exposure import FAIRNESS
from fairwolfe.simulation import compare
from fairwolfe.simulation.compare import Line
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


@pytest.mark.parametrize(("text", "kind", "n_items"), [(SMALL, "arms", 0), (RANKED, "ranking", 12)])
def test_rows_say_what_they_belong_to(tmp_path: Path, text: str, kind: str, n_items: int) -> None:
    experiment = lab.Experiment.of(text)
    lab.run(experiment, tmp_path, jobs=1)
    frame = lab.read(tmp_path)
    assert set(frame["kind"]) == {kind}
    assert set(frame["n_items"]) == {n_items}
    assert set(frame["settings"]) == {cell.settings.id for cell in experiment.cells}


def test_files_of_another_format_are_played_again(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    experiment = lab.Experiment.of(RANKED)
    lab.run(experiment, tmp_path, jobs=1)
    expected = lab.numbers(lab.read(tmp_path))
    file = tmp_path / "runs" / f"{experiment.runs()[0].id}.parquet"
    rows = pq.read_table(file)
    about = json.loads(rows.schema.metadata[b"fairwolfe"]) | {"format": 1}
    pq.write_table(rows.replace_schema_metadata({b"fairwolfe": json.dumps(about)}), file)
    with pytest.raises(InvalidInput, match="not written by this version of the lab"):
        lab.facts(tmp_path)
    assert [run.id for run in lab.pending(experiment, tmp_path)] == [file.stem]
    lab.run(experiment, tmp_path, jobs=1, resume=True)
    assert lab.numbers(lab.read(tmp_path)).equals(expected)


def test_a_report_builds_no_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = lab.Experiment.of(RANKED)
    lab.run(experiment, tmp_path / "out", jobs=1)
    monkeypatch.setattr("fairwolfe.lab.play._environment", None)
    (group,) = Report.of(tmp_path / "out").groups
    assert group.n_items == 12
    (line,) = group.lines
    assert line.seeds == (2, 10)  # by number, not by the name of the file
    assert {"utility", "gini", "bottom_half", "top_decile"} <= set(line.row())


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
