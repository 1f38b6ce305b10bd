"""`run`: play the runs of an experiment into a folder, or resume it; `Sweep`: what it holds then.

Two rounds of every policy are played before anything is written, so that what cannot play raises at
once.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from fairwolfe.core.files import whole_file
from fairwolfe.core.problem import whole_number
from fairwolfe.core.workers import Event, Why, cores, workers
from fairwolfe.errors import InvalidInput, did_you_mean
from fairwolfe.lab import results
from fairwolfe.lab.spec import Experiment, Run, canonical

ROUNDS = 2  # the second decides with what was learnt in the first


class Trials:
    """The first of the runs of every settings, cut after two rounds; those of a world together."""

    def __init__(self, runs: tuple[Run, ...]) -> None:
        first = {run.settings.id: run for run in reversed(runs)}
        whole = sorted(first.values(), key=lambda run: canonical(run.settings.environment))
        self.runs = tuple(map(_cut, whole))
        self._whole = dict(zip(map(id, self.runs), whole, strict=True))

    def passed(self, events: Iterator[Event], experiment: Experiment) -> list[Event] | None:
        """Wait for the trials, and raise InvalidInput at the first that fails.

        What happened meanwhile to other runs; None where the events end too early.
        """
        waiting = set(self._whole)
        others: list[Event] = []
        for event in events:
            trial = id(event.task)
            if trial not in self._whole:
                others.append(event)
            elif event.kind == "failed":
                raise InvalidInput(
                    _cannot_play(self._whole[trial], event.content.reason, experiment)
                )
            elif event.kind == "done":
                waiting.remove(trial)
            if not waiting:
                return others
        return None


def _cut(run: Run) -> Run:
    horizon = min(ROUNDS, run.settings.horizon)
    return replace(run, settings=replace(run.settings, horizon=horizon, checkpoints=None))


def _cannot_play(run: Run, reason: str, experiment: Experiment) -> str:
    """Which policy cannot play, and why."""
    same = (cell for cell in experiment.cells if cell.settings.id == run.settings.id)
    return (
        f"policies.{run.label} fails in its first {ROUNDS} rounds with seed {run.seed}"
        f"{next(same).where()}: {reason}; nothing was written"
    )


Progress = Callable[[Run, int], None]


class Failure(NamedTuple):
    """A run that failed, and the file with the reason."""

    run: Run
    file: Path

    @property
    def reason(self) -> str:
        """The type and the message of what it raised, in a line."""
        first = self.file.read_text(encoding="utf-8").partition("\n")[0]
        return first.removeprefix(_title(self.run)).removeprefix(": ")


@dataclass(frozen=True)
class Sweep:
    """What a folder holds of an experiment after `run`, and why `run` ended.

    `stopped` is None where every run was tried, "interrupted" after Ctrl-C, "time" where the
    time was up. `missing` are the runs that have no result, `failed` those of them that have a
    file with the reason.
    """

    experiment: Experiment
    out: Path
    seeds: tuple[int, ...]
    stopped: Literal["interrupted", "time"] | None
    missing: tuple[Run, ...]

    @property
    def failed(self) -> tuple[Failure, ...]:
        """The runs that failed, with the reasons."""
        failures = (Failure(run, _failure(self.out, run.id)) for run in self.missing)
        return tuple(one for one in failures if one.file.exists())

    def table(self) -> list[dict[str, Any]]:
        """A row for each policy and point of the grid, that of its `Line`; None: nothing done."""
        results.require_arrow()
        import pyarrow.compute as pc

        by_settings, mine = (
            results.tables(self.out, self.experiment),
            pc.field("seed").isin(self.seeds),
        )
        rows: list[dict[str, Any]] = []
        for cell in self.experiment.cells:
            row: dict[str, Any] = {"label": cell.label, **cell.chosen, "seeds": 0}
            row |= dict.fromkeys(("value", "low", "high", "us_per_round"))
            played = by_settings.get(cell.settings.id)
            if played is not None and len(played := played.filter(mine)):
                row |= results.line_of(played, cell.label).row()
                del row["policy"]
            rows.append(row)
        return rows

    def warnings(self) -> dict[str, int]:
        """What the runs of the folder warned of, and how many did."""
        return results.warned(results.facts(self.out))


def pending(
    experiment: Experiment, out: str | os.PathLike[str], seeds: Iterable[int] | None = None
) -> tuple[Run, ...]:
    """The runs that a folder does not hold yet."""
    results.require_arrow()
    done = results.finished(Path(out))
    return tuple(run for run in experiment.runs(seeds) if run.id not in done)


def run(
    experiment: Experiment,
    out: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    on: Literal["local", "ray"] = "local",
    address: str | None = None,
    seeds: int | Iterable[int] | None = None,
    resume: bool = False,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Sweep:
    """Play the runs of an experiment that a folder does not hold yet.

    Two rounds of every policy that has something to play come first: where one cannot play them,
    InvalidInput gives the reason, and nothing is written.

    A run that fails leaves its traceback in ``out/failed`` and the others continue. Ctrl-C, the end
    of the time and even the death of this process leave a folder that `resume` completes; the
    numbers are those of a sweep that was never interrupted, bit for bit.

    Parameters
    ----------
    out: the folder; `spec.toml`, `runs/` and `failed/` are written there
    jobs: how many runs at once; None is one for each core, on Ray what the cluster has room for
    on: "local" processes, or "ray"
    address: of a running Ray cluster; None starts one on this machine
    seeds: a number, for 0, 1, ..., or a list, in place of the spec's
    resume: continue in a folder that holds results of an experiment of the same name. Its spec may
        have changed: runs that it still has are kept.
    seconds: stop after that time
    progress: called with a run and the number of its rounds played since the last call
    """
    results.require_arrow(on)
    chosen = _seeds(experiment, seeds)
    if jobs is not None:
        whole_number("jobs", jobs)
    if seconds is not None and not seconds > 0.0:
        raise InvalidInput(f"seconds is {seconds!r}; give a number above 0, or None")
    if on not in ("local", "ray"):
        raise InvalidInput(f"on is {on!r}; {did_you_mean(on, ('local', 'ray'))}")
    if address is not None and on == "local":
        raise InvalidInput(f"address is {address!r}, and runs are local; give on='ray' too")
    experiment.check()
    folder = Path(out)
    deadline = None if seconds is None else time.monotonic() + seconds
    _require_same(folder, experiment, resume)
    wanted = pending(experiment, folder, chosen)
    stopped: Literal["interrupted", "time"] | None = None
    if wanted:
        trials = Trials(wanted)
        most = min(jobs or cores(), len(wanted)) if on == "local" else jobs
        # One call for both, so that a process plays its runs in the worlds of its trials.
        both = (*trials.runs, *wanted)
        try:
            with (
                workers(most, on, address) as crew,
                closing(crew.events("fairwolfe.lab.play:played", b"", both, deadline)) as events,
            ):
                held = trials.passed(events, experiment)
                if held is not None:
                    _prepare(folder, experiment)
                    ended = _keep(chain(held, events), folder, progress)
            stopped = "time" if held is None or ended < len(wanted) else None
        except KeyboardInterrupt:
            stopped = "interrupted"
    else:
        _prepare(folder, experiment)
    return Sweep(experiment, folder, chosen, stopped, pending(experiment, folder, chosen))


def _keep(events: Iterable[Event], folder: Path, progress: Progress | None) -> int:
    """Write what comes, as it comes; how many runs are done or have failed."""
    reported: Counter[str] = Counter()
    ended = 0
    for event in events:
        played = event.content if event.kind == "rounds" else 0
        if event.kind == "done":
            results.write(folder, event.task.id, event.content)
            _failure(folder, event.task.id).unlink(missing_ok=True)
        elif event.kind == "failed":
            _write_failure(folder, event.task, event.content)
        if event.kind != "rounds":
            ended += 1
            played = event.task.settings.horizon - reported[event.task.id]
        reported[event.task.id] += played
        if progress is not None:
            progress(event.task, played)
    return ended


def _title(run: Run) -> str:
    return f"{run.label}, seed {run.seed}"


def _failure(folder: Path, run_id: str) -> Path:
    return folder / "failed" / f"{run_id}.txt"


def _write_failure(folder: Path, run: Run, why: Why) -> None:
    settings = json.dumps(msgspec.to_builtins(run.settings), indent=2)
    text = f"{_title(run)}: {why.reason}\n\n{why.details}\n{settings}\n"
    with whole_file(_failure(folder, run.id)) as file:
        file.write(text.encode())


def _seeds(experiment: Experiment, seeds: int | Iterable[int] | None) -> tuple[int, ...]:
    if seeds is None:
        return experiment.spec.numbers()
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    sound = all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in chosen)
    if not chosen or not sound or len(set(chosen)) < len(chosen):
        raise InvalidInput(
            f"seeds is {seeds!r}; give how many, or different whole numbers of at least 0"
        )
    return chosen


def _require_same(folder: Path, experiment: Experiment, resume: bool) -> None:
    """Raise for a folder that holds something else."""
    spec = folder / "spec.toml"
    kept = any(any((folder / place).glob("*")) for place in ("runs", "failed"))
    if spec.exists() and kept:
        held = results.experiment_of(folder)
        if held.name != experiment.name:
            raise InvalidInput(
                f"{folder} holds the experiment {held.name!r}, not {experiment.name!r}; give "
                "another folder"
            )
        if not resume:
            raise InvalidInput(
                f"{folder} holds results of {held.name!r} already; resume them (--resume), or give "
                "another folder"
            )
    elif kept or (not spec.exists() and folder.is_dir() and any(folder.iterdir())):
        raise InvalidInput(f"{folder} holds other files; give a folder that is new or empty")


def _prepare(folder: Path, experiment: Experiment) -> None:
    """Make the folder, with the spec."""
    try:
        for place in ("runs", "failed"):
            (folder / place).mkdir(parents=True, exist_ok=True)
        with whole_file(folder / "spec.toml") as file:
            file.write(experiment.text.encode())
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be written to: {error.strerror}") from error
