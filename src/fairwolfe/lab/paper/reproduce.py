"""`reproduce`: play the paper's experiments, and judge for every sentence whether it holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from fairwolfe.errors import InvalidInput
from fairwolfe.lab import results
from fairwolfe.lab.paper.claims import Claim, judge, judge_observed
from fairwolfe.lab.paper.curves import Curves, Finding, Truth
from fairwolfe.lab.paper.figures import draw
from fairwolfe.lab.paper.studies import Figure, Study, figures, studies_of
from fairwolfe.lab.spec import Experiment
from fairwolfe.lab.sweep import Failure, pending, run
from fairwolfe.plots import Picture

Progress = Callable[[str, int], None]

_BEST = {
    "trade-off": "frontier",
    "distance": "tops",
    "gap": "tops",
    "regret": "regret",
}  # of `Truth`, that a figure is given


@dataclass(frozen=True, eq=False)
class PlayedStudy:
    """A study: its experiment, its curves where it has results, and what is still missing."""

    study: Study
    experiment: Experiment
    embedded: bool  # the world that ships with the library replaces missing data
    curves: Curves | None
    missing: int
    facts: tuple[dict[str, Any], ...]

    @property
    def seeds(self) -> int:
        """How many seeds every policy has finished."""
        return 0 if self.curves is None else len(self.curves.seeds)

    @cached_property
    def truth(self) -> Truth:
        """What any policy can reach in its world."""
        return Truth(self.experiment, () if self.curves is None else self.curves.seeds)

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
    studies: Mapping[str, PlayedStudy]
    stopped: Literal["interrupted", "time"] | None
    failed: tuple[Failure, ...]

    @property
    def curves(self) -> dict[str, Curves]:
        """Of every study that has results."""
        by_study = {name: played.curves for name, played in self.studies.items()}
        return {name: curves for name, curves in by_study.items() if curves is not None}

    def claims(self) -> list[dict[str, Any]]:
        """A row for each claim that can be judged, with the figure that it is about."""
        places = {
            study: figure.name for figure in reversed(self.figures) for study in figure.studies
        }
        return [
            {
                "id": claim.id,
                "reading": claim.reading,
                "registration": claim.registration,
                "figure": places[claim.needs[-1]],
                "sentence": claim.sentence,
                "where": claim.where,
                **asdict(finding),
                "observed": asdict(again) if (again := self._again(claim)) else None,
                "embedded": any(self.studies[name].embedded for name in claim.needs),
            }
            for claim, finding in self.judged
        ]

    def _again(self, claim: Claim) -> Finding | None:
        return judge_observed(claim, self.curves)

    @cached_property
    def judged(self) -> list[tuple[Claim, Finding]]:
        return judge(self.curves, truths={name: one.truth for name, one in self.studies.items()})

    def pictures(self) -> Iterator[Picture]:
        """Every figure that has something to show."""
        curves, best = self.curves, {}
        for figure in self.figures:
            present = [name for name in figure.studies if name in curves]
            for name in present:
                if figure.kind not in ("factors", "redistribution"):
                    truth = self.studies[name].truth
                    best[name] = getattr(truth, _BEST.get(figure.kind, "highest"))
            if present:
                yield draw(figure, curves, best)


def plan(
    names: tuple[str, ...] = (), quick: bool = False
) -> dict[str, tuple[Study, Experiment, bool]]:
    """The studies behind the figures, checked; nothing is played yet."""
    chosen = studies_of(figures(names))
    return {study.name: (study, *study.experiment(quick)) for study in chosen}


def reproduce(
    names: tuple[str, ...] = (),
    out: Path | str = "out/reproduce",
    *,
    quick: bool = False,
    seconds: float | None = None,
    progress: Progress | None = None,
    **engine: Any,
) -> Reproduction:
    """Play what is missing of the figures' experiments, each into its own folder in `out`.

    Parameters
    ----------
    names: of figures, see `fairwolfe.lab.paper.studies.FIGURES`; none is all
    quick: smaller horizons and fewer seeds; the verdicts are hints then
    seconds: stop after that time
    progress: called with the name of a study and the number of rounds played since the last call
    engine: resume, jobs, on and address of `lab.run`
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
            seconds=left,
            progress=None if progress is None else _named(progress, name),
            **engine,
        )
        stopped = swept.stopped
        failed += swept.failed
    studies = {name: _played(folder / name, *planned[name]) for name in planned}
    return Reproduction(folder, quick, figures(names), studies, stopped, tuple(failed))


def _named(progress: Progress, name: str) -> Callable[[Any, int], None]:
    return lambda _, n: progress(name, n)


def _played(folder: Path, study: Study, experiment: Experiment, embedded: bool) -> PlayedStudy:
    curves: Curves | None = None
    facts: tuple[dict[str, Any], ...] = ()
    with suppress(InvalidInput):  # where nothing is finished yet
        curves = Curves.of(experiment, results.read(folder))
        facts = tuple(results.facts(folder))
    return PlayedStudy(study, experiment, embedded, curves, len(pending(experiment, folder)), facts)
