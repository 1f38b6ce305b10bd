"""Results: one Parquet file a run, a row for each checkpoint, its parameters as columns."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fairwolfe.core.arrays import Vector
from fairwolfe.core.folders import whole_file
from fairwolfe.core.problem import Problem
from fairwolfe.errors import FairwolfeError, InvalidInput, require_extra
from fairwolfe.lab.experiment import Experiment, Run
from fairwolfe.simulation.trace import FAIRNESS, Trace

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = [
    "experiment_of",
    "facts",
    "finished",
    "numbers",
    "read",
    "require_arrow",
    "table",
    "to_bytes",
    "violations",
    "write",
]

FORMAT = 1
_KEY = b"fairwolfe"
_ORDER = "order of the spec"
_MOST = 100  # coordinates of an average that is kept at every checkpoint


def require_arrow(on: str = "local") -> None:
    """The lab reads and writes Parquet; say so before the work, not after it."""
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
    made: bytes = sink.getvalue().to_pybytes()
    return made


@cache
def _machine() -> dict[str, Any]:
    packages = ("fairwolfe", "numpy", "numba", "scipy", "pyarrow")
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

    found = set()
    for file in _files(out):
        try:
            pq.read_schema(file)
        except (OSError, pa.ArrowInvalid):
            continue
        found.add(file.stem)
    return found


def read(out: str | os.PathLike[str]) -> pd.DataFrame:
    """All runs of the experiment in a folder, a row for each run and checkpoint.

    Labels are those of `spec.toml` as it stands; runs that it no longer asks for are left out.
    """
    require_arrow()
    import pandas as pd
    import pyarrow as pa

    folder = Path(out)
    experiment = experiment_of(folder)
    files: dict[str, list[Path]] = {}
    for file in _files(folder):
        files.setdefault(file.stem.rpartition("-")[0], []).append(file)
    # Tables of one schema become one frame quickly; the others have other parameters.
    groups: dict[Any, list[pa.Table]] = {}
    places = dict.fromkeys((cell.settings.id, cell.label) for cell in experiment.cells)
    for order, (settings, label) in enumerate(places):
        for file in files.get(settings, ()):
            rows = _opened(file)
            column = rows.schema.get_field_index("label")
            rows = rows.set_column(column, "label", pa.array([label] * len(rows)))
            rows = rows.append_column(_ORDER, pa.array([order] * len(rows), pa.int64()))
            schema = tuple(zip(rows.schema.names, rows.schema.types, strict=True))
            groups.setdefault(schema, []).append(rows)
    if not groups:
        raise InvalidInput(f"{folder} holds no finished run of its experiment; see fairwolfe run")
    frames = [pa.concat_tables(tables).to_pandas() for tables in groups.values()]
    frame = pd.concat(frames, ignore_index=True).sort_values([_ORDER, "seed", "t"], kind="stable")
    ordered: pd.DataFrame = frame.drop(columns=_ORDER).reset_index(drop=True)
    return ordered


def experiment_of(out: Path) -> Experiment:
    """The experiment whose results a folder holds; nothing of it is built."""
    file = out / "spec.toml"
    try:
        return Experiment.of(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(
            f"{out} is no folder of results: {file.name} cannot be read ({error.strerror})"
        ) from error
    except FairwolfeError as error:
        raise InvalidInput(f"{file}: {error}") from error


def numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """What must be equal, bit for bit, wherever and whenever the same runs are played."""
    return frame.drop(columns=["seconds"])


def violations(rows: pd.DataFrame) -> Vector | None:
    """How far hard constraints are violated at the last checkpoint, by seed; None without any."""
    if "violation" not in rows or rows["violation"].isna().all():
        return None
    last: Vector = rows.groupby("seed")["violation"].last().to_numpy()
    return last


def facts(out: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Of every file: versions, machine, date, settings, warnings."""
    require_arrow()
    found = []
    for file in _files(Path(out)):
        metadata = _opened(file, schema=True).metadata or {}
        if _KEY not in metadata:
            raise InvalidInput(f"{file} was not written by the lab; move it away")
        found.append(json.loads(metadata[_KEY]))
    return found


def _files(out: Path) -> Iterator[Path]:
    """Without those that are being written, whose names begin with a dot."""
    yield from sorted(f for f in (out / "runs").glob("*.parquet") if not f.name.startswith("."))


def _opened(file: Path, schema: bool = False) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(file) if schema else pq.read_table(file, partitioning=None)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidInput(
            f"{file} is broken: {error}; remove it, and fairwolfe run --resume plays it again"
        ) from error
