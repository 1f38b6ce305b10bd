"""`reproduce`: play the paper's experiments, and say of every sentence whether it holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fairwolfe.errors import InvalidInput
from fairwolfe.lab import results
from fairwolfe.lab.build import build
from fairwolfe.lab.catalogue import Figure, Study, figures, studies_of
from fairwolfe.lab.claims import judge
from fairwolfe.lab.curves import Curves
from fairwolfe.lab.experiment import Experiment
from fairwolfe.lab.figures import Picture
from fairwolfe.lab.paper_figures import draw
from fairwolfe.lab.sweep import pending, run
from fairwolfe.simulation.metrics import gini_index
from fairwolfe.simulation.optimum import Optimum, optimum
from fairwolfe.streams import stream

__all__ = ["Played", "Reproduction", "plan", "reproduce"]

Progress = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class Played:
    """A study: its experiment, its curves where it has results, and what is still missing."""

    study: Study
    experiment: Experiment
    embedded: bool  # the world that ships with the library stands in for missing data
    curves: Curves | None
    missing: int
    facts: tuple[dict[str, Any], ...]

    @property
    def seeds(self) -> int:
        """How many seeds every policy has finished."""
        return 0 if self.curves is None else len(next(iter(self.curves.runs.values()))["value"])

    @property
    def seconds(self) -> float:
        """What its runs took, one after the other."""
        return float(sum(one["wall_seconds"] for one in self.facts))


@dataclass(frozen=True, eq=False)
class Reproduction:
    """What was played of the paper, and what follows."""

    out: Path
    quick: bool
    figures: tuple[Figure, ...]
    studies: Mapping[str, Played]
    stopped: Literal["interrupted", "time"] | None
    failed: tuple[Path, ...]

    @property
    def curves(self) -> dict[str, Curves]:
        """Of every study that has results."""
        found = {name: played.curves for name, played in self.studies.items()}
        return {name: curves for name, curves in found.items() if curves is not None}

    def claims(self) -> list[dict[str, Any]]:
        """A row for each claim that can be judged, with the figure that it is about."""
        rows = judge(self.curves)
        places = {
            study: figure.name for figure in reversed(self.figures) for study in figure.studies
        }
        for row in rows:
            last = row["where"].rpartition(" and ")[2]
            row["figure"] = places[last]
            row["embedded"] = self.studies[last].embedded
        return rows

    def pictures(self) -> Iterator[Picture]:
        """Every figure that has something to show."""
        best = {name: _best(played) for name, played in self.studies.items() if played.curves}
        for figure in self.figures:
            if any(name in self.curves for name in figure.studies):
                yield draw(figure, self.curves, best)


def plan(
    names: tuple[str, ...] = (), quick: bool = False
) -> dict[str, tuple[Study, Experiment, bool]]:
    """The studies behind the figures, checked; nothing is played yet."""
    found = {}
    for study in studies_of(figures(names)):
        experiment, embedded = study.experiment(quick)
        found[study.name] = (study, experiment, embedded)
    return found


def reproduce(
    names: tuple[str, ...] = (),
    out: Path | str = "out/reproduce",
    *,
    quick: bool = False,
    resume: bool = False,
    seconds: float | None = None,
    jobs: int | None = None,
    on: Literal["local", "ray"] = "local",
    address: str | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Play what is missing of the figures' experiments, each into a folder of its own in `out`.

    Parameters
    ----------
    names: of figures, see `fairwolfe.lab.catalogue.FIGURES`; none is all
    quick: smaller horizons and fewer seeds; the verdicts are hints then
    resume, seconds, jobs, on, address: as of `lab.run`
    progress: called with the name of a study and the share of its work done since the last call
    """
    folder = Path(out)
    planned = plan(names, quick)
    deadline = None if seconds is None else time.monotonic() + seconds
    stopped: Literal["interrupted", "time"] | None = None
    failed: list[Path] = []
    for name, (_, experiment, _) in planned.items():
        left = None if deadline is None else deadline - time.monotonic()
        if stopped is not None or (left is not None and left <= 0.0):
            stopped = stopped or "time"
            break
        total = sum(one.settings.horizon for one in experiment.runs())
        swept = run(
            experiment,
            folder / name,
            jobs=jobs,
            on=on,
            address=address,
            resume=resume,
            seconds=left,
            progress=None if progress is None else _shares(progress, name, total),
        )
        stopped = swept.stopped
        failed += [failure.file for failure in swept.failed]
    studies = {name: _played(folder / name, *planned[name]) for name in planned}
    return Reproduction(folder, quick, figures(names), studies, stopped, tuple(failed))


def _shares(progress: Progress, name: str, total: int) -> Callable[[Any, int], None]:
    return lambda _, n: progress(name, n / total)


def _played(folder: Path, study: Study, experiment: Experiment, embedded: bool) -> Played:
    curves: Curves | None = None
    facts: tuple[dict[str, Any], ...] = ()
    with suppress(InvalidInput):  # where nothing is finished yet
        curves = Curves.of(experiment, results.read(folder))
        facts = tuple(results.facts(folder))
    return Played(study, experiment, embedded, curves, len(pending(experiment, folder)), facts)


def _best(played: Played) -> Any:
    """The value of f that any policy can reach; of a trade-off, points (Gini index, utility)."""
    cells = played.experiment.cells
    parts = build(cells[0].settings, cells[0].label)
    world, measured = parts.environment, parts.objective or parts.policy.objective
    # A world that is the same for all seeds is made once.
    fixed = world.init(stream(0, "world")) is world.init(stream(1, "world"))
    seeds = (0,) if fixed else played.experiment.spec.numbers()[: played.seeds]
    if "tradeoff" not in played.study.name:
        return float(np.mean([optimum(world, measured, seed).value for seed in seeds]))
    found = []
    for cell in cells:
        f = getattr(build(cell.settings, cell.label).policy, "objective", None)
        if f is not None:
            found.append(
                np.mean([_point(optimum(world, f, seed), world) for seed in seeds], axis=0)
            )
    points = np.array(found)
    return points[np.argsort(points[:, 0])]


def _point(best: Optimum, world: Any) -> tuple[float, float]:
    m = world.problem().n_items
    return gini_index(best.average[:m]), float(best.average[m:].sum())
