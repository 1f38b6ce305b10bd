"""Results: one Parquet file a run, a row for each checkpoint, its parameters as columns.

What a row belongs to is in its columns too: the run, the settings that all its seeds share, the
kind of decision and, of rankings, the number of items.
"""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from fairwolfe.core.folders import whole_file
from fairwolfe.core.problem import Problem
from fairwolfe.errors import FairwolfeError, InvalidInput, require_extra
from fairwolfe.lab.experiment import Experiment, Run
from fairwolfe.simulation.exposure import FAIRNESS, fairness_of
from fairwolfe.simulation.line import Line
from fairwolfe.simulation.trace import Trace

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = [
    "completed",
    "experiment_of",
    "facts",
    "finished",
    "line_of",
    "nothing",
    "numbers",
    "read",
    "require_arrow",
    "table",
    "tables",
    "to_bytes",
    "warned",
    "write",
]

FORMAT = 2  # 1 had no columns settings, kind and n_items
_KEY = b"fairwolfe"
_MOST = 100  # coordinates of an average that is kept at every checkpoint


def require_arrow(on: str = "local") -> None:
    """The lab reads and writes Parquet; raise before the work, not after it."""
    if on == "ray":
        require_extra("ray", "the lab on Ray", "pandas", "pyarrow", "ray")
    require_extra("lab", "the lab", "pandas", "pyarrow")


def table(run: Run, trace: Trace, problem: Problem, seconds: Mapping[int, float]) -> pa.Table:
    """The rows of a run. An average of more than 100 rewards is kept at the last checkpoint only:
    a file of a large catalogue would otherwise be a thousand times as large as its curves.
    """
    import pyarrow as pa

    n = len(trace.t)
    columns: dict[str, Any] = {
        "run": [run.id] * n,
        "settings": [run.settings.id] * n,
        "kind": [problem.kind] * n,
        "n_items": pa.array([problem.n_items or 0] * n, pa.int64()),
        "label": [run.label] * n,
        "policy": [run.settings.policy["name"]] * n,
        "seed": pa.array([run.seed] * n, pa.int64()),
        "t": trace.t,
        "value": trace.value,
        "observed": trace.observed,
        "scalar_regret": trace.scalar_regret,
        "scalar_pseudo_regret": trace.scalar_pseudo_regret,
        "seconds": [seconds[t] for t in trace.t.tolist()],
    }
    if trace.objective.constrained:
        columns["violation"] = trace.violation
    if problem.n_items is not None:
        columns |= {name: getattr(trace, name) for name in FAIRNESS}
    size = trace.average.shape[1]
    rows = [row if size <= _MOST or i == n - 1 else None for i, row in enumerate(trace.average)]
    columns["average"] = pa.array(rows, pa.list_(pa.float64(), size))
    for path, value in run.settings.parameters().items():
        plain = json.dumps(value) if isinstance(value, (list, dict)) else value
        columns[path] = pa.array([plain] * n)
    return pa.table(columns)


def to_bytes(run: Run, rows: pa.Table, facts: Mapping[str, Any]) -> bytes:
    """The file of a run: its rows, and in the schema what is to be known about them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    about = {
        "format": FORMAT,
        "run": run.id,
        "seed": run.seed,
        "settings": msgspec.to_builtins(run.settings),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **_machine(),
        **facts,
    }
    rows = rows.replace_schema_metadata({_KEY: json.dumps(about).encode()})
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


@cache
def _machine() -> dict[str, Any]:
    packages = ("fairwolfe", "numpy", "scipy", "pyarrow")
    versions = {name: version(name) for name in packages}
    return {
        "versions": {"python": platform.python_version(), **versions},
        "os": platform.platform(),
        "machine": {
            "name": platform.node(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
        },
    }


def write(out: Path, run_id: str, content: bytes) -> None:
    """Put the file of a run in its place, whole or not at all."""
    with whole_file(out / "runs" / f"{run_id}.parquet") as file:
        file.write(content)


def finished(out: Path) -> set[str]:
    """The runs whose files are there and can be opened; others have to be played again."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    runs = set()
    for file in _files(out):
        try:
            pq.read_schema(file)
        except (OSError, pa.ArrowInvalid):
            continue
        runs.add(file.stem)
    return runs


def completed(rows: pa.Table) -> pa.Table:
    """The rows of a run, with the columns that files of format 1 do not have."""
    import pyarrow as pa

    if "settings" in rows.column_names:
        return rows
    run, seed = (str(rows[name][0]) for name in ("run", "seed"))
    ranking = "utility" in rows.column_names
    missing: dict[str, Any] = {
        "settings": run.removesuffix(f"-{seed}"),
        "kind": "ranking" if ranking else "arms",
        "n_items": _items_of(rows) if ranking else 0,
    }
    for i, (name, value) in enumerate(missing.items(), 1):
        rows = rows.add_column(i, name, pa.array([value] * len(rows)))
    return rows


def _items_of(rows: pa.Table) -> int:
    """How many items were ranked: one way alone to part the last average into items and users has
    the measures of fairness that the run has.
    """
    average = np.array([rows["average"][-1].as_py()])
    kept = {name: rows[name][-1].as_py() for name in FAIRNESS if name in rows.column_names}
    for m in range(1, average.shape[1]):
        measures = fairness_of(average, m, kept)
        if np.allclose([measures[name][0] for name in kept], list(kept.values())):
            return m
    raise InvalidInput(f"the measures of run {rows['run'][0]} are not those of its average")


def tables(out: Path, experiment: Experiment) -> dict[str, pa.Table]:
    """The finished runs of an experiment by the id of their settings: rows by seed and time."""
    import pyarrow as pa

    by_settings = {}
    for settings in dict.fromkeys(cell.settings.id for cell in experiment.cells):
        runs = [completed(_opened(file)) for file in _files(out, f"{settings}-*")]
        if runs:
            runs.sort(key=lambda rows: int(rows["seed"][0].as_py()))
            by_settings[settings] = pa.concat_tables(runs)
    return by_settings


def line_of(rows: pa.Table, name: str) -> Line:
    """The runs of one settings, as `tables` has them: what is drawn, and reported in a row."""
    seeds = rows["seed"].unique().to_pylist()

    def over_time(column: str) -> Any:
        return rows[column].to_numpy().reshape(len(seeds), -1)

    t, seconds = over_time("t"), over_time("seconds")
    last = np.arange(1, len(seeds) + 1) * t.shape[1] - 1
    if t.shape[1] > 1:  # what comes before the first checkpoint is mostly the loading of code
        rounds, spent = t[:, -1] - t[:, 0], seconds[:, -1] - seconds[:, 0]
    else:
        rounds, spent = t[:, -1], seconds[:, -1]
    return Line(
        name=name,
        seeds=tuple(seeds),
        t=t[0],
        values=over_time("value"),
        averages=np.array(rows["average"].take(last).to_pylist()),
        us_per_round=1e6 * float(np.median(spent / rounds)),
        n_items=rows["n_items"][0].as_py() or None,
        violation=over_time("violation")[:, -1] if "violation" in rows.column_names else None,
    )


def read(out: str | os.PathLike[str]) -> pd.DataFrame:
    """All runs of the experiment in a folder, a row for each run and checkpoint.

    Labels are those of `spec.toml` as it is now; runs that it no longer asks for are left out.
    """
    require_arrow()
    import pandas as pd

    folder = Path(out)
    experiment = experiment_of(folder)
    by_settings = tables(folder, experiment)
    places = dict.fromkeys((cell.settings.id, cell.label) for cell in experiment.cells)
    frames = [
        by_settings[settings].to_pandas().assign(label=label)
        for settings, label in places
        if settings in by_settings
    ]
    if not frames:
        raise nothing(folder)
    whole: pd.DataFrame = pd.concat(frames, ignore_index=True)
    return whole


def nothing(folder: Path) -> InvalidInput:
    """Where no run of an experiment is finished."""
    return InvalidInput(f"{folder} holds no finished run of its experiment; see fairwolfe run")


def experiment_of(out: Path) -> Experiment:
    """The experiment whose results a folder holds; nothing of it is built."""
    file = out / "spec.toml"
    try:
        return Experiment.of(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(
            f"{out} is not a folder of results: {file.name} cannot be read ({error.strerror})"
        ) from error
    except FairwolfeError as error:
        raise InvalidInput(f"{file}: {error}") from error


def numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """What must be equal, bit for bit, wherever and whenever the same runs are played."""
    return frame.drop(columns=["seconds"])


def facts(out: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Of every file: versions, machine, date, settings, warnings."""
    require_arrow()
    headers = []
    for file in _files(Path(out)):
        metadata = _opened(file, schema=True).metadata or {}
        if _KEY not in metadata:
            raise InvalidInput(f"{file} was not written by the lab; move it away")
        headers.append(json.loads(metadata[_KEY]))
    return headers


def warned(facts: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """What runs warned of, and how many did."""
    return dict(Counter(text for one in facts for text in one["warnings"]))


def _files(out: Path, name: str = "*") -> Iterator[Path]:
    """Without those that are being written, whose names begin with a dot."""
    files = (out / "runs").glob(f"{name}.parquet")
    yield from sorted(file for file in files if not file.name.startswith("."))


def _opened(file: Path, schema: bool = False) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(file) if schema else pq.read_table(file, partitioning=None)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidInput(
            f"{file} is broken: {error}; remove it, and fairwolfe run --resume plays it again"
        ) from error
