"""`reproduce`: play the paper's experiments, and say of every sentence whether it holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fairwolfe.core.arrays import Matrix
from fairwolfe.core.protocols import Pursues
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput
from fairwolfe.fairness.metrics import gini_index
from fairwolfe.fairness.tradeoff import Frontier
from fairwolfe.lab import results
from fairwolfe.lab.build import build
from fairwolfe.lab.experiment import Experiment
from fairwolfe.lab.figures import Picture
from fairwolfe.lab.sweep import Failure, pending, run
from fairwolfe.paper.catalogue import Figure, Study, figures, studies_of
from fairwolfe.paper.claims import judge
from fairwolfe.paper.curves import Curves
from fairwolfe.paper.figures import draw
from fairwolfe.truth.optimum import optimum

__all__ = ["Played", "Reproduction", "plan", "reproduce"]

Progress = Callable[[str, int], None]


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
    failed: tuple[Failure, ...]

    @property
    def curves(self) -> dict[str, Curves]:
        """Of every study that has results."""
        found = {name: played.curves for name, played in self.studies.items()}
        return {name: curves for name, curves in found.items() if curves is not None}

    def claims(self) -> list[dict[str, Any]]:
        """A row for each claim that can be judged, with the figure that it is about."""
        places = {
            study: figure.name for figure in reversed(self.figures) for study in figure.studies
        }
        return [
            {
                "id": claim.id,
                "figure": places[claim.needs[-1]],
                "sentence": claim.sentence,
                "where": claim.where,
                **asdict(found),
                "embedded": any(self.studies[name].embedded for name in claim.needs),
            }
            for claim, found in judge(self.curves)
        ]

    def pictures(self) -> Iterator[Picture]:
        """Every figure that has something to show."""
        curves, best = self.curves, {}
        for figure in self.figures:
            present = [name for name in figure.studies if name in curves]
            for name in present:
                if name not in best:
                    found = _frontier if figure.kind == "trade-off" else _highest
                    best[name] = found(self.studies[name])
            if present:
                yield draw(figure, curves, best)


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
    names: of figures, see `fairwolfe.paper.catalogue.FIGURES`; none is all
    quick: smaller horizons and fewer seeds; the verdicts are hints then
    resume, seconds, jobs, on, address: as of `lab.run`
    progress: called with the name of a study and the number of rounds played since the last call
    """
    folder = Path(out)
    planned = plan(names, quick)
    deadline = None if seconds is None else time.monotonic() + seconds
    stopped: Literal["interrupted", "time"] | None = None
    failed: list[Failure] = []
    for name, (_, experiment, _) in planned.items():
        left = None if deadline is None else deadline - time.monotonic()
        if stopped is not None or (left is not None and left <= 0.0):
            stopped = stopped or "time"
            break
        swept = run(
            experiment,
            folder / name,
            jobs=jobs,
            on=on,
            address=address,
            resume=resume,
            seconds=left,
            progress=None if progress is None else _named(progress, name),
        )
        stopped = swept.stopped
        failed += swept.failed
    studies = {name: _played(folder / name, *planned[name]) for name in planned}
    return Reproduction(folder, quick, figures(names), studies, stopped, tuple(failed))


def _named(progress: Progress, name: str) -> Callable[[Any, int], None]:
    return lambda _, n: progress(name, n)


def _played(folder: Path, study: Study, experiment: Experiment, embedded: bool) -> Played:
    curves: Curves | None = None
    facts: tuple[dict[str, Any], ...] = ()
    with suppress(InvalidInput):  # where nothing is finished yet
        curves = Curves.of(experiment, results.read(folder))
        facts = tuple(results.facts(folder))
    return Played(study, experiment, embedded, curves, len(pending(experiment, folder)), facts)


def _highest(played: Played) -> float:
    """The value of f that any policy can reach, mean over the seeds."""
    cell = played.experiment.cells[0]
    parts = build(cell.settings, cell.label)
    world, measured = parts.environment, parts.objective or parts.policy.objective
    return float(np.mean([optimum(world, measured, seed).value for seed in _worlds(played, world)]))


def _frontier(played: Played) -> Matrix:
    """Points (Gini index, utility) that no policy is above; certified, see `Frontier`."""
    objectives: dict[float, Any] = {}
    for cell in played.experiment.cells:
        parts = build(cell.settings, cell.label)
        if isinstance(parts.policy, Pursues) and parts.policy.objective is not None:
            objectives[parts.policy.objective.beta] = parts.policy.objective
    world, f = parts.environment, next(iter(objectives.values()))
    tried = sorted(objectives)
    between = [(low + high) / 2.0 for low, high in pairwise(tried)]  # more corners
    betas = sorted([*tried, *between])
    m = world.problem().n_items
    several, tops = [], []
    for seed in _worlds(played, world):
        best = [optimum(world, replace(f, beta=beta), seed) for beta in betas]
        several.append(Frontier.of(betas, best, f.items, m))
        tops.append(best[0].average[:m])
    # Rankings expose the same in all, so a Gini objective is a line over the Gini index.
    exposure = np.mean(tops, axis=0)
    even, most = f.items.value(np.full(m, exposure.mean())), f.items.value(exposure)
    gini = np.linspace(0.0, gini_index(exposure), 200)
    utility = Frontier.mean(several).upper(even + (most - even) * gini / gini[-1])
    return np.stack([gini, utility], axis=1)


def _worlds(played: Played, world: Any) -> tuple[int, ...]:
    """The seeds whose worlds differ: one that is the same for all seeds is made once."""
    fixed = world.init(stream(0, "world")) is world.init(stream(1, "world"))
    return (0,) if fixed else played.experiment.spec.numbers()[: played.seeds]
