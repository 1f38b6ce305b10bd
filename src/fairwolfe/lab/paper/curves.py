"""The runs of one experiment as arrays (`Curves`), a row for each seed; `Finding`, a verdict over
a sample; and `Truth`, the optima in the world of an experiment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.streams import stream
from fairwolfe.core.tables import interval
from fairwolfe.errors import InvalidInput, OutsideAssumptions, did_you_mean
from fairwolfe.fairness.frontier import Frontier
from fairwolfe.fairness.metrics import gini_index
from fairwolfe.lab.play import BY_RUN, build
from fairwolfe.lab.spec import Cell, Experiment
from fairwolfe.objectives import Concave, GiniEquality, TwoSided
from fairwolfe.objectives.exposure import FAIRNESS
from fairwolfe.truth import bounds
from fairwolfe.truth.optimum import Optimum, optimum

if TYPE_CHECKING:
    import pandas as pd


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

    @property
    def n_seeds(self) -> int:
        """How many rows each run has."""
        return len(next(iter(next(iter(self.runs.values())).values())))

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

    def leads(self, label: str) -> Matrix:
        """Whether a label is highest, (seeds, checkpoints)."""
        rivals = np.max([self.over_time(other) for other in self.runs if other != label], axis=0)
        higher: Matrix = self.over_time(label) > rivals
        return higher

    def lead(self, label: str, start: float = 1.0) -> Vector:
        """The share of checkpoints from `start` on at which a label is highest, by seed."""
        share: Vector = np.mean(self.leads(label)[:, self.t >= start], axis=1)
        return share

    def lead_in_rounds(self, label: str, start: float = 1.0) -> tuple[Vector, int]:
        """The share of rounds from `start` on, each judged at the next checkpoint, at which a label
        is highest, by seed; and the last checkpoint at which it is not, in any seed, or 0.
        """
        higher, later = self.leads(label), self.t >= start
        rounds = np.diff(self.t, prepend=0)[later]
        behind = np.flatnonzero(~higher[:, later].all(axis=0))
        last = int(self.t[later][behind[-1]]) if behind.size else 0
        return higher[:, later] @ rounds / rounds.sum(), last

    def observed(self) -> Curves:
        """The same with f of the observed averages as the value, where it was kept."""
        runs = {
            label: {**run, "value": run["observed"]} if "observed" in run else run
            for label, run in self.runs.items()
        }
        return replace(self, runs=runs)

    def _last(self, t: float) -> int:
        return max(int(np.searchsorted(self.t, t, side="right")) - 1, 0)


def _name(cell: Cell) -> str:
    chosen = (f"{path.rpartition('.')[2]}={value}" for path, value in cell.chosen.items())
    return " ".join([cell.label, *filter(None, [", ".join(chosen)])])


Verdict = Literal["holds", "does not hold", "undecided"]


@dataclass(frozen=True)
class Finding:
    """An estimate with its 95 % interval, what was measured, and what follows."""

    statistic: str
    estimate: float
    low: float
    high: float
    verdict: Verdict
    wanted: str = ""
    """Where the interval must lie, in words."""

    @property
    def wanted_too(self) -> str:
        """The same as a further condition, with what was found."""
        return f"and {self.statistic} {self.wanted} (is {self.estimate:.4g})"


def above(statistic: str, sample: Vector, threshold: float = 0.0) -> Finding:
    """Holds where the whole interval of the mean lies above the threshold.

    >>> above("difference", np.array([0.9, 1.0, 1.1])).verdict
    'holds'
    """
    return inside(statistic, sample, threshold, math.inf)


def inside(
    statistic: str,
    sample: Vector,
    least: float,
    most: float,
    *,
    log: bool = False,
    grid: Any = None,
) -> Finding:
    """Holds where the whole interval of the mean lies between the two.

    `log` takes the geometric mean, for times. Times of checkpoints are known up to half a step of
    their `grid`, so the interval is no narrower. One seed has no interval, so nothing is decided.

    >>> inside("ratio", np.array([0.9, 1.2]), 0.0, 1.0).verdict
    'undecided'
    """
    values, wanted = np.asarray(sample, dtype=np.float64), _wanted(least, most)
    if not np.isfinite(values).all() or values.size == 0:
        return Finding(statistic, math.nan, math.nan, math.nan, "undecided", wanted)
    mean, low, high = interval(np.log(values) if log else values)
    if log:
        mean, low, high = math.exp(mean), math.exp(low), math.exp(high)
    if grid is not None:
        before, after = _half_steps(grid, mean)
        low, high = min(low, before), max(high, after)
    if values.size < 2:
        low, high = -math.inf, math.inf
    return Finding(statistic, mean, low, high, _verdict(low, high, least, most), wanted)


def share(statistic: str, sample: Vector, least: float, step: float) -> Finding:
    """Holds where the mean share is above `least`: bootstrap over seeds, so that the interval stays
    in [0, 1]; shares are known up to half a `step`.
    """
    found = bootstrapped(statistic, sample, lambda chosen: float(chosen.mean()), least, math.inf)
    low, high = max(found.low - step / 2.0, 0.0), min(found.high + step / 2.0, 1.0)
    if not math.isfinite(found.low):
        return found
    return replace(found, low=low, high=high, verdict=_verdict(low, high, least, math.inf))


_RESAMPLES = 2_000


def bootstrapped(
    statistic: str,
    sample: Any,
    measure: Callable[[Any], float],
    least: float,
    most: float,
    grid: Any = None,
) -> Finding:
    """Holds where the percentile interval of a measure of several seeds lies between the two.

    sample: (seeds, ...), of which seeds are drawn with replacement; grid: as in `inside`.
    """
    rows, wanted = np.asarray(sample, dtype=np.float64), _wanted(least, most)
    if len(rows) == 0:
        return Finding(statistic, math.nan, math.nan, math.nan, "undecided", wanted)
    estimate = measure(rows)
    if len(rows) < 2 or not math.isfinite(estimate):
        return Finding(statistic, estimate, -math.inf, math.inf, "undecided", wanted)
    drawn = stream(0, "claims", statistic).integers(len(rows), size=(_RESAMPLES, len(rows)))
    low, high = np.quantile([measure(rows[chosen]) for chosen in drawn], (0.025, 0.975)).tolist()
    if grid is not None:
        before, after = _half_steps(grid, estimate)
        low, high = min(low, before), max(high, after)
    low, high = min(low, estimate), max(high, estimate)
    return Finding(statistic, estimate, low, high, _verdict(low, high, least, most), wanted)


def _half_steps(grid: Any, t: float) -> tuple[float, float]:
    """The middles, on a logarithmic scale, between the checkpoint next to t and its neighbours."""
    k = int(np.abs(np.log(np.maximum(grid, 1)) - math.log(t)).argmin())
    near = grid[[max(k - 1, 0), k, min(k + 1, len(grid) - 1)]].astype(np.float64)
    return math.sqrt(near[0] * near[1]), math.sqrt(near[1] * near[2])


def _wanted(least: float, most: float) -> str:
    """Where an interval must lie, in words.

    >>> _wanted(0.95, math.inf), _wanted(-math.inf, -0.45), _wanted(3000.0, 30000.0)
    ('above 0.95', 'below -0.45', '3,000 to 30,000')
    """
    low, high = (f"{x:,.0f}" if abs(x) >= 100 else f"{x:.4g}" for x in (least, most))
    if math.isinf(most):
        return f"above {low}"
    return f"below {high}" if math.isinf(least) else f"{low} to {high}"


def _verdict(low: float, high: float, least: float, most: float) -> Verdict:
    if least < low and high < most:
        return "holds"
    return "does not hold" if high <= least or low >= most else "undecided"


def all_of(first: Finding, *others: Finding) -> Finding:
    """The first finding, which holds only where all of them do."""
    verdicts = {finding.verdict for finding in (first, *others)}
    verdict: Verdict = "undecided"
    if verdicts == {"holds"}:
        verdict = "holds"
    elif "does not hold" in verdicts:
        verdict = "does not hold"
    wanted = "; ".join(filter(None, [first.wanted, *(one.wanted_too for one in others)]))
    return replace(first, verdict=verdict, wanted=wanted)


_FINE = 1e-5  # the tolerance of optima whose differences are judged; these are of about 1e-3
_EXACT = 10.0  # the weight of GiniEquality from which on its optimum is equal exposure, and beyond


class Points(NamedTuple):
    """What several optima get: a number each, the mean over worlds."""

    gini: Vector
    utility: Vector
    items: Vector
    """The item part of f, beta included."""


class Truth:
    """The optima in the world of an experiment with rankings or arms, each computed once.

    seeds: those that have results; a world that is random is made for each
    """

    def __init__(self, experiment: Experiment, seeds: tuple[int, ...]) -> None:
        self._experiment, self._seeds = experiment, seeds
        cell = experiment.cells[0]
        parts = build(cell.settings, cell.label)
        self._by_run = cell.settings.environment.get("seed") == BY_RUN
        self._world, self._measured = parts.environment, parts.objective or parts.policy.objective

    @cached_property
    def highest(self) -> float:
        """The value of f that any policy can reach."""
        return float(np.mean(self.tops))

    @cached_property
    def tops(self) -> Vector:
        """The same in the world of each seed; one number where all have the same world."""
        return np.array([best.value for best in self._best(self._measured)])

    @cached_property
    def regret(self) -> dict[str, Any]:
        """`tops`, and `bounds`: for each curve with a theorem, its bound on R_T by T."""
        proved = {}
        for cell in self._experiment.cells:
            policy = build(cell.settings, cell.label).policy
            with suppress(OutsideAssumptions):
                bounds.of(policy, self._world, 10, tight=True)
                proved[_name(cell)] = partial(self._bound, policy)
        return {"tops": self.tops, "bounds": proved}

    def _bound(self, policy: Any, t: IntVector) -> Vector:
        proved: Vector = np.asarray(
            bounds.of(policy, self._world, t.astype(np.float64), tight=True)
        )
        return proved

    @cached_property
    def by_beta(self) -> Points:
        """The optima for the betas that a trade-off was played with, in their order."""
        return self._points([self._optima[beta] for beta in self._betas])

    @cached_property
    def ends(self) -> Points:
        """The two ends of what f weighs: the optimum of users alone, and the best of the fairest.

        Every item objective of the paper is largest at equal exposure, and there alone. The
        penalty of `GiniEquality` is exact, so with a large weight its optimum is the one of most
        utility among all with equal exposure.
        """
        measured: Any = self._measured
        users = replace(measured, beta=0.0)
        return self._points([self._best(users), self._best(TwoSided(GiniEquality(), _EXACT))])

    @cached_property
    def frontier(self) -> Matrix:
        """Points (Gini index, utility) that no policy is above; see `Frontier`."""
        between = [(low + high) / 2.0 for low, high in pairwise(self._betas)]  # more corners
        several = self._optima | {b: self._best(replace(self._pursued, beta=b)) for b in between}
        betas = sorted(several)
        items, m = self._pursued.items, self._world.problem().n_items
        frontiers = [
            Frontier.of(betas, best, items, m)
            for best in zip(*(several[beta] for beta in betas), strict=True)
        ]
        # Rankings expose the same in all, so a Gini objective is a line over the Gini index.
        exposure = np.mean([best.average[:m] for best in several[betas[0]]], axis=0)
        even, most = items.value(np.full(m, exposure.mean())), items.value(exposure)
        gini = np.linspace(0.0, gini_index(exposure), 200)
        utility = Frontier.mean(frontiers).upper(even + (most - even) * gini / gini[-1])
        return np.stack([gini, utility], axis=1)

    @cached_property
    def _objectives(self) -> dict[float, Any]:
        """What the policies of a trade-off pursue, by beta."""
        by_beta: dict[float, Any] = {}
        for cell in self._experiment.cells:
            policy = build(cell.settings, cell.label).policy
            if getattr(policy, "objective", None) is not None:
                by_beta[policy.objective.beta] = policy.objective
        return by_beta

    @property
    def _pursued(self) -> Any:
        return next(iter(self._objectives.values()))

    @property
    def _betas(self) -> list[float]:
        return sorted(self._objectives)

    @cached_property
    def _optima(self) -> dict[float, tuple[Optimum, ...]]:
        return {beta: self._best(f, _FINE) for beta, f in self._objectives.items()}

    def _best(self, f: Concave, tolerance: float = 1e-3) -> tuple[Optimum, ...]:
        return tuple(optimum(self._world_of(s), f, s, tolerance) for s in self._worlds)

    def _world_of(self, seed: int) -> Any:
        """The environment of a seed: another one where its own seed is that of the run."""
        cell = self._experiment.cells[0]
        return build(cell.settings, cell.label, seed).environment if self._by_run else self._world

    @cached_property
    def _worlds(self) -> tuple[int, ...]:
        """The seeds whose worlds differ: one that is the same for all seeds is made once."""
        if self._by_run:
            return self._seeds
        fixed = self._world.init(stream(0, "world")) is self._world.init(stream(1, "world"))
        return (0,) if fixed else self._seeds

    def _points(self, optima: list[tuple[Optimum, ...]]) -> Points:
        problem = self._world.problem()
        m, f = problem.n_items, self._measured.bind(problem)

        def of(best: Optimum) -> tuple[float, float, float]:
            z = best.average
            utility = float(z[m:].sum())
            return gini_index(z[:m]), utility, f.value(z) - utility

        means = [np.mean([of(best) for best in worlds], axis=0) for worlds in optima]
        return Points(*np.array(means).T)
