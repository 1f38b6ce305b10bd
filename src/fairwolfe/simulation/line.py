"""`Line`: one policy over several seeds, and the row that a table has for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.intervals import bands, interval
from fairwolfe.simulation.exposure import fairness_of

__all__ = ["Line"]


@dataclass(frozen=True, eq=False)
class Line:
    """f over time, and how it ended, a row for each seed."""

    name: str
    seeds: tuple[int, ...]
    t: IntVector
    values: Matrix  # (seeds, times)
    averages: Matrix  # (seeds, rewards), at the horizon
    us_per_round: float
    n_items: int | None = None  # of a ranking
    violation: Vector | None = None  # of hard constraints at the horizon, by seed

    @property
    def final(self) -> Vector:
        """f at the horizon, by seed."""
        return self.values[:, -1]

    def bands(self) -> Matrix:
        """Mean over seeds and its 95 % interval, a row for each time."""
        return bands(self.values)

    @property
    def exposures(self) -> Matrix | None:
        """Of a ranking: of the items, a row for each seed."""
        return None if self.n_items is None else self.averages[:, : self.n_items]

    @cached_property
    def fairness(self) -> dict[str, Vector]:
        """Of a ranking, at the horizon, by seed: what users get, and how exposure is shared."""
        return {} if self.n_items is None else fairness_of(self.averages, self.n_items)

    def row(self) -> dict[str, Any]:
        """Means over seeds at the horizon, f with its 95 % interval.

        A ranking has the measures of fairness too, and an f with hard constraints their violation.
        """
        row: dict[str, Any] = {"policy": self.name}
        row |= dict(zip(("value", "low", "high"), interval(self.final), strict=True))
        if self.violation is not None:
            row["violation"] = float(self.violation.mean())
        row |= {measure: float(values.mean()) for measure, values in self.fairness.items()}
        return row | {"seeds": len(self.seeds), "us_per_round": self.us_per_round}
