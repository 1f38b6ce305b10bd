"""`Trace`: what a run did, at its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.problem import Problem, real_array
from fairwolfe.core.tables import Brief, Summary, count, few, frame_of
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Concave
from fairwolfe.objectives.exposure import FAIRNESS, fairness_of, gini_index
from fairwolfe.plots import value_axes, violation_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class Trace(Brief):
    """One run: averages and regrets at the checkpoints `t`.

    `average` is of the *expected* rewards of the actions taken (the paper's measure), and `value`
    is f of it; `average_observed` and `observed` are of the rewards observed. Hard constraints are
    not part of these values: how far they were missed is `violation`, of the rewards observed, and
    `objective_value`, another name of `observed`, belongs beside it. `scalar_regret` is the sum
    over rounds of max_a <g, mu a> - <g, r>, `scalar_pseudo_regret` the same with mu a_t for r.

    Runs with rankings also have measures of fairness, all of the expected rewards: `utility`,
    `gini`, `bottom_half` and `top_decile`.

    `callbacks` is how often the compiled loop called Python functions of an own objective, rule or
    world; 0 in the plain loop.
    """

    t: IntVector
    average: Matrix
    average_observed: Matrix
    scalar_regret: Vector
    scalar_pseudo_regret: Vector
    objective: Concave
    problem: Problem
    seed: int
    seconds: float
    compiled: bool
    complete: bool
    actions: NDArray[np.int64] | None = None
    callbacks: int = 0

    @property
    def value(self) -> Vector:
        """f of the average expected reward at every checkpoint."""
        return self._of(self.average)

    @property
    def observed(self) -> Vector:
        """f of the average observed reward at every checkpoint."""
        return self._of(self.average_observed)

    def _of(self, averages: Matrix) -> Vector:
        relaxed = self.objective.relaxed()
        return np.array([relaxed.value(z) for z in averages])

    @property
    def objective_value(self) -> Vector:
        """f of the rewards earned, without its hard constraints: `observed`."""
        return self.observed

    @property
    def violation(self) -> Vector:
        """How far the average observed reward was beyond the levels of hard constraints, at most;
        for shares, as a share of the whole, and for rates in units of the rate.
        """
        return np.array([self.objective.violation(z) for z in self.average_observed])

    @property
    def utility(self) -> Vector:
        """Rankings: the sum of the user-side rewards, such as clicks a ranking."""
        return self._fairness("utility")

    @property
    def gini(self) -> Vector:
        """Rankings: the Gini index of the exposures of the items."""
        return self._fairness("gini")

    @property
    def bottom_half(self) -> Vector:
        """Rankings: the share of exposure that the least exposed half of the items has."""
        return self._fairness("bottom_half")

    @property
    def top_decile(self) -> Vector:
        """Rankings: the share of exposure that the most exposed tenth of the items has."""
        return self._fairness("top_decile")

    def _fairness(self, name: str) -> Vector:
        return fairness_of(self.average, self.require_ranking(name), (name,))[name]

    def require_ranking(self, name: str) -> int:
        """The number of items; raises for what only rankings have."""
        if self.problem.n_items is None:
            raise InvalidInput(
                f"{name} is a measure of rankings, and this run was in a world with arms; see "
                "value and average"
            )
        return self.problem.n_items

    @property
    def final(self) -> float:
        """f of the average expected reward at the end; NaN where nothing was played."""
        return float(self._of(self.average[-1:])[0]) if self.t.size else float("nan")

    def summary(self, most: int) -> Summary:
        """How it ended."""
        rounds = int(self.t[-1]) if self.t.size else 0
        stopped = "" if self.complete else ", interrupted"
        title = f"{count(rounds, 'round')}, seed {self.seed}{stopped}"
        rows = [("f", self.objective.describe())]
        if rounds:
            observed = self._of(self.average_observed[-1:])[0]
            m = self.problem.n_items or 0
            ends = zip(self.problem.rewards, self.average[-1, m:], strict=True)
            rows += [
                ("value", f"{self.final:.4g} (of the rewards observed: {observed:.4g})"),
                ("average", few((f"{name} {x:.4g}" for name, x in ends))),
            ]
            if self.objective.constrained:
                beyond = self.objective.violation(self.average_observed[-1])
                rows.append(("constraints", f"violated by {beyond:.2g}" if beyond else "kept"))
            if m:
                gini = gini_index(self.average[-1, :m])
                rows.append(("exposure", f"{count(m, 'item')}, Gini index {gini:.3g}"))
            if np.isfinite(self.scalar_regret[-1]):
                rows.append(("scalar regret", f"{self.scalar_regret[-1]:.4g} in all"))
        loop = "compiled" if self.compiled else "plain"
        each = f"{1e6 * self.seconds / max(rounds, 1):.3g} us a round"
        calls = f", {self.callbacks} callbacks" if self.callbacks else ""
        rows.append(("time", f"{self.seconds:.3g} s, {each}, {loop} loop{calls}"))
        return Summary(title, rows)

    def regret(self, best: Any) -> Vector:
        """f* - f(average observed reward); `best` is an Optimum or a number."""
        return best_value(best) - self.observed

    def to_frame(self, backend: str = "pandas") -> Any:
        """One row per checkpoint, as a table of "pandas", "polars" or "pyarrow"."""
        return frame_of(self.columns(), backend)

    def columns(self) -> dict[str, Any]:
        """What `to_frame` has, an array for each column."""
        columns: dict[str, Any] = {
            "t": self.t,
            "value": self.value,
            "observed": self.observed,
            "scalar_regret": self.scalar_regret,
        }
        if self.objective.constrained:
            columns["violation"] = self.violation
        if self.problem.n_items is not None:
            columns |= {name: getattr(self, name) for name in FAIRNESS}
        for i in range(self.average.shape[1]):
            columns[f"average_{i}"] = self.average[:, i]
        return columns | {"seed": np.full(self.t.size, self.seed)}

    def plot(self, ax: Axes | None = None, best: Any = None, **style: Any) -> Axes:
        """f over time on a logarithmic axis, with f* if given (needs matplotlib).

        Where f has hard constraints, their violation is dotted, on the axis to the right.
        """
        ax = value_axes(ax, None if best is None else best_value(best))
        (line,) = ax.plot(self.t, self.value, **style)
        if self.objective.constrained:
            violation_line(ax, None, self.t, self.violation, color=line.get_color())
        return ax


def best_value(best: Any) -> float:
    """f* as a number, from an Optimum or a number."""
    return float(best if isinstance(best, Real | np.ndarray) else best.value)


def checkpoint_grid(horizon: int, checkpoints: Any = None) -> IntVector:
    """Times at which a run is measured: about 20 a decade, or the given ones."""
    if isinstance(horizon, bool) or not isinstance(horizon, (int, np.integer)) or horizon < 1:
        raise InvalidInput(f"horizon is {horizon!r}; give a whole number of rounds, at least 1")
    if checkpoints is None:
        count = max(2, int(20 * np.log10(horizon)) + 1)
        return np.unique(np.geomspace(1, horizon, count).round().astype(np.int64))
    given = np.unique(real_array("checkpoints", checkpoints))
    whole = np.array_equal(given, np.floor(given))  # NaN is equal to nothing
    if given.size == 0 or not whole or given[0] < 1 or given[-1] > horizon:
        raise InvalidInput(
            f"checkpoints are {checkpoints!r}; give whole numbers from 1 to the horizon {horizon}"
        )
    return np.union1d(given.astype(np.int64), [horizon])
