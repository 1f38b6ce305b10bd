"""`Frontier`: what each weight of fairness would have given, from logs alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairwolfe.core.brief import Brief, Summary
from fairwolfe.core.frames import table_of
from fairwolfe.offpolicy.estimate import Estimate

__all__ = ["Frontier", "Point"]


@dataclass(frozen=True)
class Point:
    """One beta: the policy that was learnt for users + beta fair, and both on other decisions."""

    beta: float
    policy: Any
    users: Estimate
    fair: Estimate
    value: Estimate


@dataclass(frozen=True, eq=False, repr=False)
class Frontier(Brief):
    """A point for each beta, in the order in which they were given."""

    points: tuple[Point, ...]

    def table(self) -> list[dict[str, float]]:
        """A row for each beta, with the ends of the intervals."""
        rows = []
        for point in self.points:
            row = {"beta": point.beta}
            for name in ("users", "fair", "value"):
                one: Estimate = getattr(point, name)
                row |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
            rows.append(row)
        return rows

    def to_frame(self, backend: str = "pandas") -> Any:
        """The rows of `table` as a table of "pandas", "polars" or "pyarrow"."""
        return table_of(self.table(), backend)

    def summary(self, most: int) -> Summary:
        """Users and fairness by beta."""
        rows = [
            (f"beta {p.beta:g}", f"users {_said(p.users)}, fair {_said(p.fair)}")
            for p in self.points[:most]
        ]
        return Summary(f"{len(self.points)} policies learnt from the log", rows)


def _said(one: Estimate) -> str:
    return f"{one.value:.4g} ({one.low:.4g} to {one.high:.4g})"
