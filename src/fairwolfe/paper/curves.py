"""`Curves`: the runs of one experiment as arrays, a row for each seed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.errors import InvalidInput, did_you_mean
from fairwolfe.lab.experiment import Experiment
from fairwolfe.lab.grid import Cell
from fairwolfe.simulation.exposure import FAIRNESS

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Curves"]

_QUANTITIES = ("value", "observed", "mean_pseudo_regret", *FAIRNESS)


@dataclass(frozen=True, eq=False)
class Curves:
    """Over the checkpoints `t`: ``runs[label][quantity]`` is (seeds, checkpoints).

    Rows of two labels are of the same seeds, so differences are paired.
    """

    t: IntVector
    runs: Mapping[str, Mapping[str, Matrix]]
    seeds: tuple[int, ...] = ()  # of the rows, where they come from a folder

    @classmethod
    def of(cls, experiment: Experiment, frame: pd.DataFrame) -> Curves:
        """From the rows of `lab.read`; what the grid chose follows the label: "FW beta=0.1".

        Seeds that some label lacks are left out, so that the rest stays paired.
        """
        frame = frame.assign(mean_pseudo_regret=frame["scalar_pseudo_regret"] / frame["t"])
        parts = {
            _name(cell): frame[
                (frame["label"] == cell.label) & (frame["settings"] == cell.settings.id)
            ]
            for cell in experiment.cells
        }
        seeds = set.intersection(*(set(part["seed"]) for part in parts.values()))
        runs: dict[str, dict[str, Matrix]] = {}
        for name, part in parts.items():
            kept = part[part["seed"].isin(seeds)]
            runs[name] = {
                quantity: kept.pivot_table(index="seed", columns="t", values=quantity).to_numpy()
                for quantity in _QUANTITIES
                if quantity in kept and kept[quantity].notna().all()
            }
        return cls(np.sort(frame["t"].unique()), runs, tuple(sorted(seeds)))

    def over_time(self, label: str, quantity: str = "value") -> Matrix:
        """(seeds, checkpoints)."""
        if label not in self.runs:
            raise InvalidInput(f"there are no runs of {label!r}; {did_you_mean(label, self.runs)}")
        return self.runs[label][quantity]

    def at(self, label: str, t: float = np.inf, quantity: str = "value") -> Vector:
        """At the last checkpoint up to t, one number a seed."""
        return self.over_time(label, quantity)[:, self._last(t)]

    def best(self, label: str, t: float = np.inf) -> Vector:
        """The largest value up to t, one number a seed."""
        best: Vector = self.over_time(label)[:, : self._last(t) + 1].max(axis=1)
        return best

    def peak(self, label: str) -> Vector:
        """When the largest value was reached, one time a seed."""
        times: Vector = self.t[self.over_time(label).argmax(axis=1)].astype(np.float64)
        return times

    def settled(self, label: str, share: float = 0.99) -> Vector:
        """The first checkpoint with that share of the final value, one time a seed."""
        values = self.over_time(label)
        near = values >= values[:, -1:] - (1.0 - share) * np.abs(values[:, -1:])
        times: Vector = self.t[near.argmax(axis=1)].astype(np.float64)
        return times

    def way(self, label: str, share: float = 0.9, start: float = 100.0) -> Vector:
        """The first checkpoint with that share of the way from f(start) to the end, by seed."""
        first = self._last(start)
        values = self.over_time(label)[:, first:]
        far = values[:, -1:] - values[:, :1]  # less than 0 where the curve ends lower
        past = np.sign(far) * (values - values[:, :1]) >= share * np.abs(far)
        times: Vector = self.t[first:][past.argmax(axis=1)].astype(np.float64)
        return times

    def split(self, parameter: str) -> dict[float, Curves]:
        """The runs by the value of a parameter of the grid, which their labels lose."""
        chosen = re.compile(rf"(?<= )\w*{parameter}=([^,]+)(?:, |$)")
        parts: dict[float, dict[str, Mapping[str, Matrix]]] = {}
        for label, run in self.runs.items():
            if match := chosen.search(label):
                mine = parts.setdefault(float(match[1]), {})
                mine[chosen.sub("", label).rstrip(", ")] = run
        return {value: Curves(self.t, runs, self.seeds) for value, runs in sorted(parts.items())}

    def lead(self, label: str, start: float = 1.0) -> Vector:
        """The share of checkpoints from `start` on at which a label is highest, by seed."""
        rivals = np.max([self.over_time(other) for other in self.runs if other != label], axis=0)
        later = self.t >= start
        share: Vector = np.mean((self.over_time(label) > rivals)[:, later], axis=1)
        return share

    def _last(self, t: float) -> int:
        return max(int(np.searchsorted(self.t, t, side="right")) - 1, 0)


def _name(cell: Cell) -> str:
    chosen = (f"{path.rpartition('.')[2]}={value}" for path, value in cell.chosen.items())
    return " ".join([cell.label, *filter(None, [", ".join(chosen)])])
