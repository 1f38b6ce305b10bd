"""Two rounds of every policy, before anything is written: what cannot play raises at once."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from fairwolfe.errors import InvalidInput
from fairwolfe.lab.experiment import Experiment, Run
from fairwolfe.lab.local import Event
from fairwolfe.lab.spec import canonical

__all__ = ["Trials"]

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
            trial = id(event.run)
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
