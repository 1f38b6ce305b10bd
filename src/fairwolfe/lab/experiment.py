"""`Experiment`: a checked spec and its runs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from fairwolfe.errors import FairwolfeError, InvalidInput
from fairwolfe.lab.grid import Cell, Settings, cells
from fairwolfe.lab.spec import Spec, canonical, parse

__all__ = ["Experiment", "Run", "load"]


class Run(msgspec.Struct, frozen=True):
    """Settings and a seed, from which every number of the run follows; a label for people."""

    label: str
    settings: Settings
    seed: int

    @property
    def id(self) -> str:
        """The hash of the settings, and the seed: the name of its file."""
        return f"{self.settings.id}-{self.seed}"


@dataclass(frozen=True)
class Experiment:
    """A spec, the text that it was read from, and every policy at every point of its grid."""

    spec: Spec
    text: str

    @classmethod
    def of(cls, text: str) -> Experiment:
        """The experiment of a TOML text; nothing is built."""
        return cls(parse(text), text)

    @property
    def name(self) -> str:
        """What it is called."""
        return self.spec.name

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Every policy at every point of the grid."""
        return cells(self.spec)

    @property
    def id(self) -> str:
        """The hash of the whole, whatever the order of its keys."""
        text = canonical(msgspec.to_builtins(self.spec))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def runs(self, seeds: Iterable[int] | None = None) -> tuple[Run, ...]:
        """All runs; seeds first, so that what is done early compares every policy.

        Two labels with the same settings share their runs.
        """
        chosen = self.spec.numbers() if seeds is None else tuple(seeds)
        different = {cell.settings.id: cell for cell in reversed(self.cells)}
        order = [cell for cell in self.cells if different[cell.settings.id] is cell]
        return tuple(Run(cell.label, cell.settings, seed) for seed in chosen for cell in order)

    def check(self) -> Experiment:
        """Build every object and try every policy on its world; InvalidInput where one cannot."""
        _ = self._checked
        return self

    @cached_property
    def _checked(self) -> bool:
        from fairwolfe.lab.build import checked

        # Cells of one world come together, so that it is built once.
        for cell in sorted(self.cells, key=lambda cell: canonical(cell.settings.environment)):
            checked(cell)
        return True


def load(path: str | os.PathLike[str]) -> Experiment:
    """The experiment in a TOML file, checked: whatever is wrong with it raises now.

    Classes can be named as "module:Class" too; they must be importable.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInput(f"{file} cannot be read: {what}; give a TOML file") from error
    try:
        return Experiment.of(text).check()
    except FairwolfeError as error:
        kind: Any = type(error)
        raise kind(f"{file}: {error}") from error
