"""Results made comparable: lines of one world and one f form a group.

Values of f can be compared where the environment, the measured objective and the horizon are the
same; what differs inside a group are the policies, their parameters, and how late their
feedback comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fairwolfe.core.arrays import Matrix
from fairwolfe.core.intervals import interval
from fairwolfe.lab.experiment import Experiment
from fairwolfe.lab.grid import Cell, flat
from fairwolfe.lab.results import line_of
from fairwolfe.lab.spec import canonical
from fairwolfe.simulation.line import Line

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Group", "groups_of"]


@dataclass(frozen=True, eq=False)
class Group:
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


def groups_of(experiment: Experiment, tables: Mapping[str, pa.Table]) -> tuple[Group, ...]:
    """The finished runs of `results.tables`, in the order of the spec."""
    # A grid may have the same twice under one label: then it is one line.
    together: dict[str, dict[tuple[str, str], Cell]] = {}
    for cell in experiment.cells:
        if cell.settings.id in tables:
            mine = together.setdefault(canonical(_shared(cell)), {})
            mine.setdefault((cell.label, cell.settings.id), cell)
    several = [list(cells.values()) for cells in together.values()]
    return tuple(
        Group(
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
