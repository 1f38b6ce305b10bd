"""`report`: the results of a folder as one HTML page, with figures and curves beside it.

Pages come from jinja2 templates, which escape what is not their own markup. No script, nothing from
elsewhere: the file can be sent, kept and opened without a network.
"""

from __future__ import annotations

import csv
import io
import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairwolfe import plots
from fairwolfe.core.arrays import Matrix
from fairwolfe.core.files import whole_file
from fairwolfe.core.tables import bands, interval
from fairwolfe.errors import InvalidInput, require_extra
from fairwolfe.fairness.metrics import lorenz
from fairwolfe.lab import results
from fairwolfe.lab.results import PolicyGroup, groups_of
from fairwolfe.lab.spec import Experiment
from fairwolfe.lab.sweep import pending
from fairwolfe.simulation.compare import Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def render(package: str, template: str, **values: Any) -> str:
    """A template in the folder `pages` of a package, which may use `base.html` and `parts.html`
    of the lab.
    """
    require_extra("lab", "a page", "jinja2")
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(one, "pages") for one in (package, __package__)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(values) + "\n"


_FEW = 3  # lines whose bands can be distinguished
_WIDTH, _HEIGHT = 4.3, 3.2  # inches: text stays readable on a telephone
_CHARACTERS = 44  # of a name in a legend, in one line


class Drawn(NamedTuple):
    """All pictures of an experiment."""

    groups: list[list[plots.Picture]]  # in the order of the groups
    trade_offs: list[plots.Picture]  # of all groups of a world

    def all(self) -> list[plots.Picture]:
        """One after the other."""
        return [*(picture for each in self.groups for picture in each), *self.trade_offs]


def pictures(groups: Sequence[PolicyGroup]) -> Drawn:
    """Draw everything that there is to see."""
    drawn = []
    for i, group in enumerate(groups, 1):
        mine = [_values(group, f"values-{i}")]
        if len(group.lines) > 1 and len(group.best.seeds) > 1:
            mine.append(_behind(group, f"behind-{i}"))
        if group.n_items is not None:
            mine.append(_lorenz(group, f"lorenz-{i}"))
        drawn.append(mine)
    ranked = [group for group in groups if group.n_items is not None]
    by_world = {
        world: [group for group in ranked if group.world == world]
        for world in dict.fromkeys(group.world for group in ranked)
    }
    trades = [_trade_off(mine, f"trade-off-{i}") for i, mine in enumerate(by_world.values(), 1)]
    return Drawn(drawn, trades)


def _values(group: PolicyGroup, name: str) -> plots.Picture:
    ax: Any = plots.value_axes(_axes(line.name for line in group.lines))
    _curves(ax, group, [(line, line.bands()) for line in group.lines])
    final = ", ".join(f"{line.name} {line.final.mean():.4g}" for line in group.lines)
    ax.set_ylabel("f")
    return plots.Picture(
        name,
        "f of the average expected reward over time; mean over seeds with 95 % bands, wide where "
        "worlds differ.",
        f"Curves of f over {group.horizon:,} rounds. At the end: {final}.",
        ax.figure,
    )


def _behind(group: PolicyGroup, name: str) -> plots.Picture:
    ax: Any = plots.value_axes(_axes(line.name for line in group.lines))
    gaps = [(line, group.behind(line)) for line in group.lines]
    _curves(ax, group, [(line, bands(rows)) for line, rows in gaps if len(rows)])
    ax.set_ylabel("f of the best, less f")
    return plots.Picture(
        name,
        f"How far behind {group.best.name}, seed by seed: differences are paired, so that worlds "
        "that are rich for all cancel out.",
        f"Curves of the difference of f to {group.best.name}.",
        ax.figure,
    )


def _curves(ax: Axes, group: PolicyGroup, drawn: Sequence[tuple[Line, Matrix]]) -> None:
    """Means and bands. The first rounds are noise: they are left out or do not set the scale."""
    n, shown = len(group.lines), []
    start = 10.0 ** max(0, round(np.log10(group.horizon / 1000.0)))
    alpha = 0.15 if n <= _FEW else 0.08  # many bands hide the lines
    handles = []
    for line, band in drawn:
        style = plots.line_style(group.lines.index(line), n) | {
            "markevery": max(1, len(line.t) // 8)
        }
        handles.append((plots.mean_line(ax, line.t, band, style, alpha), line.name))
        shown += [band[line.t >= min(10.0 * start, line.t[-1]), 0], band[-1]]
    whole = np.concatenate(shown)
    low, high = float(np.nanmin(whole)), float(np.nanmax(whole))
    room = 0.08 * (high - low) or 0.05 * abs(high) or 0.05
    ax.set_ylim(low - room, high + room)
    if group.horizon > start:
        ax.set_xlim(start, group.horizon)
    ax.xaxis.set_major_formatter(lambda t, _: f"{t:,.0f}")  # powers in small print are hard to read
    ax.xaxis.set_minor_formatter("")
    _legend(ax, handles)


def _lorenz(group: PolicyGroup, name: str) -> plots.Picture:
    ax = _axes(line.name for line in group.lines)
    handles = []
    for i, line in enumerate(group.lines):
        if line.exposures is None:
            continue
        style = plots.line_style(i, len(group.lines)) | {
            "markevery": max(1, (group.n_items or 0) // 8)
        }
        handle = plots.lorenz_line(ax, [lorenz(row) for row in line.exposures], **style)
        handles.append((handle, line.name))
    ax.plot([0, 100], [0, 100], color="0.5", linewidth=0.8)
    ax.set_xlabel("items, least exposed first, in percent")
    ax.set_ylabel("share of exposure, in percent")
    plots.open_frame(ax)
    _legend(ax, handles)
    halves = ", ".join(
        f"{line.name} {100 * line.fairness['bottom_half'].mean():.0f} %" for line in group.lines
    )
    return plots.Picture(
        name,
        "Who is exposed: the share of all exposure that the least exposed items have together. The "
        "straight line is equality.",
        f"Lorenz curves of exposure. The less exposed half of the items has: {halves}.",
        ax.figure,
    )


def _trade_off(groups: Sequence[PolicyGroup], name: str) -> plots.Picture:
    """A point for each line of each group; those of one name are joined."""
    names = list(dict.fromkeys(line.name for group in groups for line in group.lines))
    ax = _axes(names)
    handles, texts = [], []
    for i, one in enumerate(names):
        points = [line.fairness for group in groups for line in group.lines if line.name == one]
        points.sort(key=lambda point: float(point["gini"].mean()))
        style = plots.line_style(i, marker=5.0)
        x, y = (np.array([interval(point[key]) for point in points]) for key in ("gini", "utility"))
        handles.append((ax.plot(x[:, 0], y[:, 0], **style)[0], one))
        spread = {"color": style["color"], "linewidth": 0.8, "alpha": 0.7}
        ax.hlines(y[:, 0], x[:, 1], x[:, 2], **spread)
        ax.vlines(x[:, 0], y[:, 1], y[:, 2], **spread)
        ends = ", ".join(f"({g:.2f}, {u:.3g})" for g, u in zip(x[:, 0], y[:, 0], strict=True))
        texts.append(f"{one} {ends}")
    ax.invert_xaxis()
    ax.set_xlabel("inequality (Gini index), fairer to the right")
    ax.set_ylabel("user-side reward")
    plots.open_frame(ax)
    _legend(ax, handles)
    return plots.Picture(
        name,
        "What fairness costs: the rewards of users against the inequality of exposure at the "
        "horizon, with 95 % intervals. Up and to the right is better for both.",
        "Points (Gini index, user-side reward): " + "; ".join(texts) + ".",
        ax.figure,
    )


def _axes(names: Iterable[str]) -> Any:
    """Axes with room for a legend of the names below."""
    lines = sum(_wrapped(name).count("\n") + 1 for name in names)
    return plots.new_figure(_WIDTH, _HEIGHT + 0.19 * lines).add_subplot()


def _legend(ax: Axes, handles: Sequence[tuple[Any, str]]) -> None:
    """Below the axes, where long names have room."""
    figure: Any = ax.figure
    legend = figure.legend(
        [handle for handle, _ in handles],
        # A name that begins with _ is left out by matplotlib.
        ["\N{ZERO WIDTH SPACE}" + _wrapped(name) for _, name in handles],
        loc="outside lower left",
        frameon=False,
        fontsize=9,
        handlelength=3.2,
        labelspacing=0.25,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)  # a label may hold a $


def _wrapped(name: str) -> str:
    return fill(name, _CHARACTERS)


@dataclass(frozen=True, eq=False)
class Report:
    """What a folder holds of its experiment, ready to be shown."""

    folder: Path
    experiment: Experiment
    groups: tuple[PolicyGroup, ...]
    facts: tuple[dict[str, Any], ...]
    failed: dict[str, str]  # run -> what went wrong
    missing: int

    @classmethod
    def of(cls, folder: str | os.PathLike[str]) -> Report:
        """Read it."""
        results.require_arrow()
        place = Path(folder)
        experiment = results.experiment_of(place)
        failed = {
            file.stem: file.read_text(encoding="utf-8", errors="replace")
            for file in sorted((place / "failed").glob("*.txt"))
        }
        groups = groups_of(experiment, results.tables(place, experiment))
        if not groups and (not failed or results.finished(place)):  # not even reasons to show
            raise results.nothing(place)
        missing = len(pending(experiment, place))
        return cls(place, experiment, groups, tuple(results.facts(place)), failed, missing)

    # --- in words -----------------------------------------------------------------------------

    def summary(self) -> list[str]:
        """What was played, and what is missing."""
        lines = {line.name for group in self.groups for line in group.lines}
        seeds = sorted({s for group in self.groups for line in group.lines for s in line.seeds})
        spec = self.experiment.spec
        sentences = []
        if seeds:
            worlds = "one seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
            several = f", in {len(self.groups)} settings" if len(self.groups) > 1 else ""
            policies = "one policy" if len(lines) == 1 else f"{len(lines)} policies"
            sentences.append(
                f"{policies[0].upper()}{policies[1:]} played for {spec.horizon:,} rounds with "
                f"{worlds}{several}. Runs of one seed meet the same world, the same users and the "
                "same noise."
            )
        if self.missing:
            runs = "1 run has" if self.missing == 1 else f"{self.missing} runs have"
            why = f"; {len(self.failed)} of them failed, see below" if self.failed else ""
            sentences.append(f"{runs} no result yet{why}.")
        return sentences

    def warnings(self) -> dict[str, int]:
        """What runs warned of, and how many did."""
        return results.warned(self.facts)

    def commands(self) -> list[str]:
        """How to play it again, from the text of the spec."""
        seeds = sorted({int(one["seed"]) for one in self.facts})
        again = ["fairwolfe", "run", "spec.toml", "--out", "again"]
        if seeds and seeds != sorted(self.experiment.spec.numbers()):
            again += ["--seeds", ",".join(map(str, seeds)) + ","]
        lines = [shlex.join(again), "fairwolfe report again"]
        if self.missing:
            here, spec = str(self.folder), str(self.folder / "spec.toml")
            lines.append(shlex.join(["fairwolfe", "run", spec, "--out", here, "--resume"]))
        return lines

    # --- as a table of numbers ------------------------------------------------------------------

    def curves(self) -> str:
        """Every curve with its band, as CSV, for plots of others."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["setting", "policy", "t", "seeds", "value", "low", "high"])
        for group in self.groups:
            for line in group.lines:
                for t, band in zip(line.t.tolist(), line.bands().tolist(), strict=True):
                    writer.writerow([group.title, line.name, t, len(line.seeds), *band])
        return text.getvalue()

    def document(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "experiment": self.experiment.name,
            "id": self.experiment.id,
            "summary": self.summary(),
            "groups": [
                {"setting": group.title, "sentences": group.sentences(), "policies": group.rows()}
                for group in self.groups
            ],
            "missing": self.missing,
            "failed": list(self.failed),
            "warnings": self.warnings(),
        }

    # --- as a page ----------------------------------------------------------------------------

    def html(self, drawn: Drawn) -> str:
        """One file with everything in it."""
        return render(
            "fairwolfe.lab",
            "report.html",
            report=self,
            groups=zip(self.groups, drawn.groups, strict=True),
            trade_offs=drawn.trade_offs,
        )

    def machines(self) -> tuple[list[str], list[list[str]]]:
        """Where the runs were played, head and rows; the names of machines stay in the files."""
        import pyarrow as pa

        where = ["software", "system", "machine"]
        played = [
            {
                "software": ", ".join(f"{name} {x}" for name, x in one["versions"].items()),
                "system": one["os"],
                "machine": f"{one['machine']['processor']}, {one['machine']['cores']} cores",
                "date": one["date"],
            }
            for one in self.facts
        ]
        grouped = pa.Table.from_pylist(played).group_by(where, use_threads=False)
        rows = [
            [*(row[name] for name in where), f"{min(dates)} to {max(dates)}", str(len(dates))]
            for row in grouped.aggregate([("date", "list")]).to_pylist()
            for dates in [row["date_list"]]
        ]
        return [*where, "when", "runs"], rows


def report(
    folder: str | os.PathLike[str], out: str | os.PathLike[str] | None = None
) -> tuple[Report, list[Path]]:
    """Write the page (`folder/report.html`, or `out`), and figures and curves to `folder/report`.

    Returns what it shows, and the files, the page first.
    """
    require_extra("lab", "a report", "jinja2", "matplotlib", "pandas", "pyarrow")
    content = Report.of(folder)
    drawn = pictures(content.groups)
    beside = content.folder / "report"
    target = content.folder / "report.html" if out is None else Path(out)
    try:
        beside.mkdir(exist_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        files = [file for picture in drawn.all() for file in picture.save(beside)]
        curves = beside / "curves.csv"
        curves.write_text(content.curves(), encoding="utf-8")
        with whole_file(target) as file:
            file.write(content.html(drawn).encode())
    except OSError as error:
        place = error.filename or target
        raise InvalidInput(f"{place} cannot be written: {error.strerror}") from error
    return content, [target, *files, curves]
