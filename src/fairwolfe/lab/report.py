"""`report`: what a folder of results shows, as one self-contained page and figures beside it."""

from __future__ import annotations

import csv
import io
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairwolfe.core.folders import whole_file
from fairwolfe.errors import InvalidInput, require_extra
from fairwolfe.lab import results
from fairwolfe.lab.experiment import Experiment
from fairwolfe.lab.figures import Drawn, pictures
from fairwolfe.lab.groups import Group, groups_of
from fairwolfe.lab.page import render
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
            sentences.append(f"{runs} no result yet{self._why()}.")
        return sentences

    def _why(self) -> str:
        if not self.failed:
            return ""
        return f"; {len(self.failed)} of them failed, see below"

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
            here = str(self.folder)
            spec = str(self.folder / "spec.toml")
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
