"""`report`: what a folder of results says, as one self-contained page and figures beside it."""

from __future__ import annotations

import csv
import io
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairwolfe.core.folders import whole_file
from fairwolfe.errors import InvalidInput, require_extra
from fairwolfe.lab import results
from fairwolfe.lab.experiment import Experiment
from fairwolfe.lab.figures import Drawn, Picture, pictures
from fairwolfe.lab.groups import Group, groups_of
from fairwolfe.lab.page import Html, bullets, figure, page, table, tag
from fairwolfe.lab.sweep import pending

__all__ = ["Report", "report"]


@dataclass(frozen=True, eq=False)
class Report:
    """What a folder holds of its experiment, ready to be shown."""

    folder: Path
    experiment: Experiment
    groups: tuple[Group, ...]
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
        try:
            groups = groups_of(experiment, results.read(place))
        except InvalidInput:
            if not failed or results.finished(place):
                raise
            groups = ()  # there are reasons to show, and no numbers
        missing = len(pending(experiment, place))
        return cls(place, experiment, groups, tuple(results.facts(place)), failed, missing)

    # --- in words -----------------------------------------------------------------------------

    def summary(self) -> list[str]:
        """What was played, and what is missing."""
        lines = {line.name for group in self.groups for line in group.lines}
        seeds = sorted({s for group in self.groups for line in group.lines for s in line.seeds})
        spec = self.experiment.spec
        said = []
        if seeds:
            worlds = "one seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
            several = f", in {len(self.groups)} settings" if len(self.groups) > 1 else ""
            policies = "one policy" if len(lines) == 1 else f"{len(lines)} policies"
            said.append(
                f"{policies[0].upper()}{policies[1:]} played for {spec.horizon:,} rounds with "
                f"{worlds}{several}. Runs of one seed meet the same world, the same users and the "
                "same noise."
            )
        if self.missing:
            runs = "1 run has" if self.missing == 1 else f"{self.missing} runs have"
            said.append(f"{runs} no result yet{self._why()}.")
        return said

    def _why(self) -> str:
        if not self.failed:
            return ""
        return f"; {len(self.failed)} of them failed, see below"

    def warnings(self) -> dict[str, int]:
        """What runs warned of, and how many did."""
        return dict(Counter(text for one in self.facts for text in one["warnings"]))

    def commands(self) -> list[str]:
        """How to play it again, from the text of the spec."""
        seeds = sorted({int(one["seed"]) for one in self.facts})
        again = ["fairwolfe", "run", "spec.toml", "--out", "again"]
        if seeds and seeds != sorted(self.experiment.spec.numbers()):
            again += ["--seeds", ",".join(map(str, seeds)) + ","]
        said = [shlex.join(again), "fairwolfe report again"]
        if self.missing:
            here = str(self.folder)
            spec = str(self.folder / "spec.toml")
            said.append(shlex.join(["fairwolfe", "run", spec, "--out", here, "--resume"]))
        return said

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
        name = self.experiment.name
        parts = [
            tag("h1", name),
            tag("p", "Results of an experiment of fairwolfe.", class_="lead"),
            bullets(self.summary()),
        ]
        for group, mine in zip(self.groups, drawn.groups, strict=True):
            parts += self._group(group, mine)
        if drawn.trade_offs:
            parts.append(tag("h2", "What fairness costs"))
            parts.append(tag("div", *map(figure, drawn.trade_offs), class_="figures"))
        parts += [*self._troubles(), *self._origin()]
        return page(f"{name}: results", *parts)

    def _group(self, group: Group, drawn: list[Picture]) -> Iterator[Html]:
        yield tag("h2", group.title or "Results")
        yield bullets(group.sentences())
        yield tag("div", *map(figure, drawn), class_="figures")
        fair = group.n_items is not None
        head = ["policy", "f", "95 % interval", "behind the best", "95 % interval"]
        limited = any(line.violation is not None for line in group.lines)
        head += ["violation"] if limited else []
        head += ["user side", "Gini index", "bottom half"] if fair else []
        rows = []
        for row in group.rows():
            cells = [row["policy"], group.number(row["value"])]
            cells.append(group.span(row["low"], row["high"]) if row["seeds"] > 1 else "")
            cells.append("" if row["behind"] is None else group.number(row["behind"]))
            ends = (row["behind_low"], row["behind_high"])
            cells.append("" if None in ends else group.span(*ends))
            if limited:
                cells.append(f"{row.get('violation', 0.0):.2g}")
            if fair:
                cells += [f"{row['utility']:.4g}", f"{row['gini']:.3f}"]
                cells.append(f"{100 * row['bottom_half']:.0f} %")
            rows.append([*cells, str(row["seeds"]), f"{row['us_per_round']:.1f}"])
        caption = f"At round {group.horizon:,}; differences to the best are paired by seed."
        yield table(caption, [*head, "seeds", "\N{MICRO SIGN}s a round"], rows)

    def _troubles(self) -> Iterator[Html]:
        if self.failed:
            yield tag("h2", "Runs that failed")
            for run, reason in self.failed.items():
                first = reason.partition("\n")[0] or run
                yield tag("details", tag("summary", f"{first} ({run})"), tag("pre", reason))
        if warned := self.warnings():
            yield tag("h2", "Warnings")
            runs = {text: "1 run" if n == 1 else f"{n} runs" for text, n in warned.items()}
            yield bullets(f"{count}: {text}" for text, count in runs.items())

    def _origin(self) -> Iterator[Html]:
        yield tag("h2", "How it was made")
        yield tag("p", "The experiment, as it stands in spec.toml:")
        yield tag("pre", self.experiment.text)
        yield tag("p", "To play it again, write that text to spec.toml and say:")
        yield tag("pre", "\n".join(self.commands()))
        if self.facts:
            yield table("Where the runs were played", *_machines(self.facts), text=4)


def _machines(facts: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Head and rows. The names of machines are nobody's business and stay in the files."""
    found: dict[tuple[str, ...], list[str]] = {}
    for one in facts:
        software = ", ".join(f"{name} {number}" for name, number in one["versions"].items())
        machine = f"{one['machine']['processor']}, {one['machine']['cores']} cores"
        found.setdefault((software, one["os"], machine), []).append(one["date"])
    rows = [
        [*where, f"{min(dates)} to {max(dates)}", str(len(dates))] for where, dates in found.items()
    ]
    return ["software", "system", "machine", "when", "runs"], rows


def report(
    folder: str | os.PathLike[str], out: str | os.PathLike[str] | None = None
) -> tuple[Report, list[Path]]:
    """Write the page (`folder/report.html`, or `out`), and figures and curves to `folder/report`.

    Returns what it says, and the files, the page first.
    """
    require_extra("lab", "a report", "matplotlib", "pandas", "pyarrow")
    made = Report.of(folder)
    drawn = pictures(made.groups)
    beside = made.folder / "report"
    target = made.folder / "report.html" if out is None else Path(out)
    try:
        beside.mkdir(exist_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        files = [file for picture in drawn.all() for file in picture.save(beside)]
        curves = beside / "curves.csv"
        curves.write_text(made.curves(), encoding="utf-8")
        with whole_file(target) as file:
            file.write(made.html(drawn).encode())
    except OSError as error:
        place = error.filename or target
        raise InvalidInput(f"{place} cannot be written: {error.strerror}") from error
    return made, [target, *files, curves]
