"""Results: one Parquet file a run, a row for each checkpoint, its parameters as columns.

What a row belongs to is in its columns too: the run, the settings that all its seeds share, the
kind of decision and, of rankings, the number of items.
"""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from fairwolfe.core.arrays import Matrix
from fairwolfe.core.files import whole_file
from fairwolfe.core.problem import Problem
from fairwolfe.core.tables import interval
from fairwolfe.errors import FairwolfeError, InvalidInput, require_extra
from fairwolfe.lab.spec import Cell, Experiment, Run, canonical, flat
from fairwolfe.objectives.exposure import FAIRNESS
from fairwolfe.simulation.compare import Line
from fairwolfe.simulation.trace import Trace

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


FORMAT = 2
_KEY = b"fairwolfe"
_MOST = 100  # coordinates of an average that is kept at every checkpoint


def require_arrow(on: str = "local") -> None:
    """The lab reads and writes Parquet; raise before the work, not after it."""
    require_extra("lab", "the lab", "pandas", "pyarrow")
    if on == "ray":
        require_extra("integrations", "the lab on Ray", "ray")


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
    runs = set()
    for file in _files(out):
        with suppress(InvalidInput):
            _facts(file)
            runs.add(file.stem)
    return runs


def tables(out: Path, experiment: Experiment) -> dict[str, pa.Table]:
    """The finished runs of an experiment by the id of their settings: rows by seed and time."""
    import pyarrow as pa

    by_settings = {}
    for settings in dict.fromkeys(cell.settings.id for cell in experiment.cells):
        runs = [_opened(file) for file in _files(out, f"{settings}-*")]
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
    return list(map(_facts, _files(Path(out))))


def _facts(file: Path) -> dict[str, Any]:
    metadata = _opened(file, schema=True).metadata or {}
    facts: dict[str, Any] = json.loads(metadata.get(_KEY, "{}"))
    if facts.get("format") != FORMAT:
        raise InvalidInput(f"{file} was not written by this version of the lab; move it away")
    return facts


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


@dataclass(frozen=True, eq=False)
class PolicyGroup:
    """Lines whose values can be compared; the title distinguishes it from the other groups."""

    title: str
    world: str  # equal where the environment is
    lines: tuple[Line, ...]

    @property
    def horizon(self) -> int:
        """The last round."""
        return int(self.lines[0].t[-1])

    @property
    def n_items(self) -> int | None:
        """Of a ranking."""
        return self.lines[0].n_items

    @cached_property
    def best(self) -> Line:
        """The line of largest mean f at the horizon."""
        return max(self.lines, key=lambda line: float(line.final.mean()))

    def behind(self, line: Line) -> Matrix:
        """f of the best line less that of this one, over time, a row for each seed of both."""
        common = [seed for seed in line.seeds if seed in self.best.seeds]
        rows = [[one.seeds.index(seed) for seed in common] for one in (self.best, line)]
        return self.best.values[rows[0]] - line.values[rows[1]]

    def rows(self) -> list[dict[str, Any]]:
        """A row for each line, the best first, for the table of a report."""
        table = []
        for line in sorted(self.lines, key=lambda line: -float(line.final.mean())):
            gaps = self.behind(line)
            behind: tuple[float | None, ...] = (None, None, None)
            if line is not self.best and len(gaps):
                behind = interval(gaps[:, -1]) if len(gaps) > 1 else (gaps[0, -1], None, None)
            names = ("behind", "behind_low", "behind_high")
            table.append(line.row() | dict(zip(names, behind, strict=True)))
        return table

    def table(self) -> tuple[str, list[str], list[list[str]]]:
        """The rows as text: a caption, a head and cells."""
        fair, rows = self.n_items is not None, self.rows()
        limited = any("violation" in row for row in rows)
        head = ["policy", "f", "95 % interval", "behind the best", "95 % interval"]
        head += ["violation"] if limited else []
        head += ["user side", "Gini index", "bottom half"] if fair else []
        body = []
        for row in rows:
            cells = [row["policy"], self.number(row["value"])]
            cells.append(self.span(row["low"], row["high"]) if row["seeds"] > 1 else "")
            cells.append("" if row["behind"] is None else self.number(row["behind"]))
            ends = (row["behind_low"], row["behind_high"])
            cells.append("" if None in ends else self.span(*ends))
            if limited:
                cells.append(f"{row.get('violation', 0.0):.2g}")
            if fair:
                cells += [f"{row['utility']:.4g}", f"{row['gini']:.3f}"]
                cells.append(f"{100 * row['bottom_half']:.0f} %")
            body.append([*cells, str(row["seeds"]), f"{row['us_per_round']:.1f}"])
        caption = f"At round {self.horizon:,}; differences to the best are paired by seed."
        return caption, [*head, "seeds", "\N{MICRO SIGN}s a round"], body

    @cached_property
    def digits(self) -> int:
        """Places after the point: two digits of the narrowest interval that is compared."""
        rows = self.rows()
        ends = [
            (row["behind_low"], row["behind_high"]) for row in rows if row["behind_low"] is not None
        ]
        ends = ends or [(row["low"], row["high"]) for row in rows]
        return max((_digits(low, high) for low, high in ends if high > low), default=4)

    def number(self, value: float) -> str:
        """A value of f, or a difference of two."""
        return f"{value:.{self.digits}f}"

    @staticmethod
    def span(low: float, high: float) -> str:
        """An interval, with as many digits as it needs."""
        digits = _digits(low, high)
        return f"{low:.{digits}f} to {high:.{digits}f}"

    def sentences(self) -> list[str]:
        """What the rows show, in words."""
        first, *others = self.rows()
        known = f" (95 % interval {self.span(first['low'], first['high'])})"
        texts = [
            f"{first['policy']} has the largest f after {self.horizon:,} rounds: "
            f"{self.number(first['value'])}{known if first['seeds'] > 1 else ''}."
        ]
        clear = [row for row in others if row["behind_low"] is not None and row["behind_low"] > 0.0]
        near = [row for row in others if row not in clear]
        if clear:
            one, more = clear[0], len(clear) - 1
            rest = {0: "", 1: "; the other one by more"}.get(more, f"; the other {more} by more")
            texts.append(
                f"{one['policy']} is behind it by {self.number(one['behind'])} "
                f"({self.span(one['behind_low'], one['behind_high'])}){rest}."
            )
        if near:
            names = _listed([row["policy"] for row in near])
            seeds = "one seed" if first["seeds"] == 1 else f"{first['seeds']} seeds"
            texts.append(f"{names} cannot be distinguished from it with {seeds}.")
        if "violation" in first:
            texts.append(self._violations([first, *others]))
        if "bottom_half" in first:
            texts.append(self._shares([first, *others]))
        return texts

    def _violations(self, rows: list[dict[str, Any]]) -> str:
        each = [f"{row['policy']} by {row.get('violation', 0.0):.2g}" for row in rows]
        return f"Hard constraints are not part of f; they are violated with {_listed(each)}."

    def _shares(self, rows: list[dict[str, Any]]) -> str:
        fair = max(rows, key=lambda row: float(row["bottom_half"]))
        text = (
            f"With {fair['policy']} the less exposed half of the items has "
            f"{100 * fair['bottom_half']:.0f} % of all exposure"
        )
        unfair = min(rows, key=lambda row: float(row["bottom_half"]))
        if unfair is not fair:
            text += f", with {unfair['policy']} {100 * unfair['bottom_half']:.0f} %"
        return text + "."


def _digits(low: float, high: float) -> int:
    """Places after the point that show two digits of half of an interval."""
    half = max(0.5 * (high - low), 1e-5)
    return int(np.clip(1 - np.floor(np.log10(half)), 0, 6))


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def groups_of(experiment: Experiment, tables: Mapping[str, pa.Table]) -> tuple[PolicyGroup, ...]:
    """The finished runs of `results.tables`, in the order of the spec."""
    # A grid may have the same twice under one label: then it is one line.
    together: dict[str, dict[tuple[str, str], Cell]] = {}
    for cell in experiment.cells:
        if cell.settings.id in tables:
            mine = together.setdefault(canonical(_shared(cell)), {})
            mine.setdefault((cell.label, cell.settings.id), cell)
    several = [list(cells.values()) for cells in together.values()]
    return tuple(
        PolicyGroup(
            title,
            canonical(cells[0].settings.environment),
            tuple(line_of(tables[cell.settings.id], _name(cell)) for cell in cells),
        )
        for title, cells in zip(_titles([cells[0] for cells in several]), several, strict=True)
    )


def _shared(cell: Cell) -> dict[str, Any]:
    """What must be equal for values of f to be comparable."""
    one = cell.settings
    return {
        "environment": one.environment,
        "objective": one.objective,
        "horizon": one.horizon,
    }


def _titles(cells: list[Cell]) -> list[str]:
    """What distinguishes groups from each other."""
    facts = [{path: _in_words(value) for path, value in flat(_shared(cell))} for cell in cells]
    paths = dict.fromkeys(path for fact in facts for path in fact)
    differ = [path for path in paths if len({fact.get(path) for fact in facts}) > 1]
    short = _short(differ)
    titles = []
    for fact in facts:
        parts = [f"{short[path]} = {fact[path]}" for path in differ if path in fact]
        titles.append(", ".join(parts))
    return titles


def _short(paths: list[str]) -> dict[str, str]:
    """The last part of a path, where that is enough."""
    ends = [path.rpartition(".")[2] for path in paths]
    return {
        path: end if ends.count(end) == 1 else path for path, end in zip(paths, ends, strict=True)
    }


def _in_words(value: Any) -> str:
    """A value of a grid for people: a table by its name and what it holds."""
    if isinstance(value, dict):
        inside = ", ".join(f"{key} {_in_words(one)}" for key, one in value.items() if key != "name")
        name = str(value.get("name", ""))
        return f"{name} ({inside})" if name and inside else name or inside
    return canonical(value).strip('"')


def _name(cell: Cell) -> str:
    """The label, and what the grid chose for this policy alone."""
    own = {
        path: value
        for path, value in cell.chosen.items()
        if path.startswith(("policy.", "options."))
    }
    short = _short(list(own))
    return ", ".join([cell.label, *(f"{short[path]} = {_in_words(own[path])}" for path in own)])
