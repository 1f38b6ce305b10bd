"""`TradeOff`: the results, as numbers; words and plots are made from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairwolfe.core.arrays import Cube, Matrix, Vector
from fairwolfe.core.brief import Summary, count
from fairwolfe.core.frames import table_of
from fairwolfe.core.intervals import interval
from fairwolfe.errors import InvalidInput
from fairwolfe.fairness.tradeoff.reachable import Reachable
from fairwolfe.objectives import TwoSided
from fairwolfe.simulation.compare import Comparison
from fairwolfe.simulation.exposure import each, fairness_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["BEST", "FAIR", "FLOOR", "Difference", "TradeOff", "name_of", "smallest_gap"]

FAIR, FLOOR, BEST = "FW-LinUCBRank", "FairLearnRank", "best possible"


class Difference(NamedTuple):
    """Mean over seeds with its 95 % interval, and the number of every seed."""

    mean: float
    low: float
    high: float
    each: Vector


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TradeOff(Reachable):
    """Runs of FWLinUCBRank for every beta and of FairLearnRank for every floor, and the optima."""

    betas: tuple[float, ...]
    floors: tuple[float, ...]
    comparison: Comparison

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds that every policy has finished."""
        return self.comparison.seeds

    @property
    def horizon(self) -> int:
        """Rounds of every run."""
        return int(next(iter(self.comparison.traces.values()))[0].t[-1])

    def averages(self, policy: str, setting: float) -> Matrix:
        """Average expected rewards of a policy with its beta or floor, a row for each seed."""
        if policy == BEST:
            return np.array([best.average for best in self.best[setting]])
        traces = self.comparison.traces[name_of(policy, setting)]
        return np.array([trace.average[-1] for trace in traces])

    def settings(self, policy: str) -> tuple[float, ...]:
        """The betas or floors of a policy."""
        return self.floors if policy == FLOOR else self.betas

    def curve(self, policy: str) -> Cube:
        """(Gini index, utility) for every seed and setting of a policy, (seeds, settings, 2)."""
        measures = [self._fairness(policy, setting) for setting in self.settings(policy)]
        points = [np.stack([one["gini"], one["utility"]], axis=1) for one in measures]
        return np.array(points).reshape(-1, len(self.seeds), 2).swapaxes(0, 1)

    def _fairness(self, policy: str, setting: float) -> dict[str, Vector]:
        return fairness_of(self.averages(policy, setting), self.problem.n_items or 0)

    def summary(self, most: int) -> Summary:
        """Utility and Gini index for the first betas, learnt and best possible."""
        rows = []
        for beta in self.betas[:most]:
            ends = [self._fairness(policy, beta) for policy in (FAIR, BEST)]
            utilities = (f"{one['utility'].mean():.4g}" for one in ends)
            rows.append((f"{beta:g}", *utilities, *(f"{one['gini'].mean():.3f}" for one in ends)))
        n, items = len(self.betas), self.problem.n_items or 0
        if n > most:
            rows.append((f"and {n - most} more", "see table()", "", "", ""))
        sizes = {"beta": n, "floor": len(self.floors), "seed": len(self.seeds)}
        sizes |= {"round": self.horizon, "item": items}
        title = ", ".join(count(size, what) for what, size in sizes.items())
        return Summary(title, rows, ("beta", "utility", "at best", "Gini index", "at best"))

    def table(self) -> list[dict[str, Any]]:
        """A row for each policy and setting, and for the optima: means over seeds.

        utility and gini have 95 % intervals (`..._low`, `..._high`). `item_objective` is that of
        the items alone, `value` is f with the beta of the row. `below_best_percent` is how far f
        is below its optimum, which is known up to `certified_gap`. `below_frontier_percent` is how
        far utility is, at most, below the largest of any policy that is as fair. With hard
        constraints the best possible is that of the policies that keep them, and `violation` shows
        how far a row is beyond them.
        """
        return [
            self._row(policy, setting)
            for policy in (BEST, FAIR, FLOOR)
            for setting in self.settings(policy)
        ]

    def to_frame(self, backend: str = "pandas") -> Any:
        """The rows of `table` as a table of "pandas", "polars" or "pyarrow"."""
        return table_of(self.table(), backend)

    def _row(self, policy: str, setting: float) -> dict[str, Any]:
        averages, shares = self.averages(policy, setting), self._fairness(policy, setting)
        items = each(self.items.value, averages[:, : self.problem.n_items])
        most = np.array([f.upper(x)[0] for f, x in zip(self.frontiers, items, strict=True)])
        row: dict[str, Any] = {
            "policy": policy,
            "beta": None if policy == FLOOR else setting,
            "floor": setting if policy == FLOOR else None,
        }
        for name in ("utility", "gini"):
            ends = (name, f"{name}_low", f"{name}_high")
            row |= dict(zip(ends, interval(shares[name]), strict=True))
        row |= {
            "bottom_half": float(shares["bottom_half"].mean()),
            "top_decile": float(shares["top_decile"].mean()),
            "item_objective": float(items.mean()),
            "value": None,
            "below_best_percent": None,
            "certified_gap": None,
            "below_frontier_percent": float(
                (100.0 * (most - shares["utility"]) / abs(most)).mean()
            ),
        }
        if self.constraints is not None:
            row["violation"] = float(each(self.constraints.violation, averages).mean())
        if policy != FLOOR:
            f = TwoSided(self.items, setting).bind(self.problem)
            values, best = each(f.value, averages), self.best[setting]
            tops = np.array([b.value for b in best])
            row["value"] = float(values.mean())
            row["below_best_percent"] = float((100.0 * (tops - values) / abs(tops)).mean())
            row["certified_gap"] = float(np.mean([b.gap for b in best]))
        return row

    def difference(self) -> Difference:
        """The smallest advantage in utility of FWLinUCBRank over FairLearnRank at equal Gini index.

        Per seed both curves of utility over the Gini index are interpolated; their difference is
        smallest at a point of one of them, computed on the common range. A point of both curves
        (beta = 0 and a floor of 0 are one and the same policy) is left out: there it is 0.
        """
        pairs = zip(self.curve(FAIR), self.curve(FLOOR), strict=True)
        each = np.array([smallest_gap(one, other) for one, other in pairs])
        if np.isnan(each).any():
            raise InvalidInput(
                "the two curves have no range of the Gini index in common; give more betas and "
                "floors"
            )
        return Difference(*interval(each), each)

    def sentences(self) -> list[str]:
        """What the table shows, in plain words."""
        from fairwolfe.fairness.tradeoff.words import sentences

        return sentences(self)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Utility against the Gini index, with the best possible (needs matplotlib)."""
        from fairwolfe.fairness.tradeoff.plot import plot

        return plot(self, ax)

    def plot_lorenz(self, ax: Axes | None = None) -> Axes:
        """Who is exposed, for a few of the betas (needs matplotlib)."""
        from fairwolfe.fairness.tradeoff.plot import plot_lorenz

        return plot_lorenz(self, ax)

    def draw(self, folder: Path | str) -> list[Path]:
        """Both plots as tradeoff.png and tradeoff.svg in a folder that exists."""
        from fairwolfe.fairness.tradeoff.plot import draw

        return draw(self, Path(folder))


def name_of(policy: str, setting: float) -> str:
    return f"{policy} {setting!r}"


def smallest_gap(one: Matrix, other: Matrix) -> float:
    """The smallest difference of two interpolated curves at their points; NaN without any."""
    if one.size == 0 or other.size == 0:
        return float("nan")
    shared = {tuple(point) for point in one.tolist()} & {tuple(point) for point in other.tolist()}
    first, second = _function(one), _function(other)
    low = max(first[0, 0], second[0, 0])
    high = min(first[-1, 0], second[-1, 0])
    points = np.union1d(first[:, 0], second[:, 0])
    points = points[(points >= low) & (points <= high)]
    points = points[~np.isin(points, [gini for gini, _ in shared])]
    if points.size == 0:
        return float("nan")
    return float((np.interp(points, *first.T) - np.interp(points, *second.T)).min())


def _function(points: Matrix) -> Matrix:
    """Points by rising Gini index, of equals the one of most utility."""
    ordered = points[np.lexsort((-points[:, 1], points[:, 0]))]
    return ordered[np.unique(ordered[:, 0], return_index=True)[1]]
