"""`Line`: one policy over several seeds, and the row that a table has for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from threading import Event
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.tables import Brief, Summary, bands, count, frame_of, interval
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Concave
from fairwolfe.objectives.exposure import fairness_of, lorenz
from fairwolfe.plots import (
    line_style,
    lorenz_axes,
    lorenz_line,
    mean_line,
    value_axes,
    violation_line,
)
from fairwolfe.ranking.policies import as_policy
from fairwolfe.simulation.delays import Lateness
from fairwolfe.simulation.run import simulate
from fairwolfe.simulation.trace import Trace, best_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Brief):
    """Traces of every policy on every seed: ``traces[name][i]`` is the run of ``seeds[i]``."""

    traces: Mapping[str, tuple[Trace, ...]]
    seeds: tuple[int, ...]

    @property
    def constrained(self) -> bool:
        """Whether f has hard constraints, which may be violated."""
        return any(t.objective.constrained for traces in self.traces.values() for t in traces)

    def values(self, name: str) -> Matrix:
        """f over time, a row for each seed."""
        return np.array([trace.value for trace in self.traces[name]])

    def last(self, name: str, measure: str = "value") -> Vector:
        """A measure of the traces, such as "gini", at the horizon, a number for each seed."""
        return np.array([getattr(trace, measure)[-1] for trace in self.traces[name]])

    def line(self, name: str) -> Line:
        """A policy over all seeds."""
        traces = self.traces[name]
        rounds = sum(int(trace.t[-1]) for trace in traces)
        return Line(
            name,
            self.seeds,
            traces[0].t,
            self.values(name),
            np.array([trace.average[-1] for trace in traces]),
            1e6 * sum(trace.seconds for trace in traces) / rounds,
            traces[0].problem.n_items,
            self.last(name, "violation") if self.constrained else None,
        )

    def below_best(self, name: str, best: Iterable[Any]) -> Matrix:
        """How far f is below the optimum of its seed, in percent of it, a row for each seed."""
        tops = _tops(best)[:, None]
        return 100.0 * (tops - self.values(name)) / abs(tops)

    def difference(self, one: str, other: str) -> tuple[float, float, float]:
        """Mean over seeds of f(one) - f(other) at the horizon, with its 95 % interval."""
        return interval(self.values(one)[:, -1] - self.values(other)[:, -1])

    def table(self, best: Iterable[Any] | None = None) -> list[dict[str, Any]]:
        """A row for each policy: f at the horizon with its 95 % interval, microseconds a round.

        With the optima of the seeds, also the mean distance to them in percent. Rankings have the
        means of utility, gini, bottom_half and top_decile too, and an f with hard constraints that
        of their violation.
        """
        rows = [self.line(name).row() for name in self.traces]
        tops = None if best is None else tuple(best)
        if tops is not None:
            for row in rows:
                missing = self.below_best(row["policy"], tops)[:, -1]
                row["below_best_percent"] = float(missing.mean())
        return rows

    def summary(self, most: int) -> Summary:
        """f at the horizon of the first policies."""
        rows = []
        for row in (self.line(name).row() for name in islice(self.traces, most)):
            beyond = (f"{row['violation']:.2g}",) if self.constrained else ()
            span = f"{row['low']:.4g} to {row['high']:.4g}"
            rows.append((row["policy"], f"{row['value']:.4g}", span, *beyond))
        n = len(self.traces)
        columns = ("policy", "value", "95 % interval", *(("violation",) * self.constrained))
        if n > most:
            rows.append((f"and {n - most} more", "see table()", *("",) * (len(columns) - 2)))
        rounds = max((int(traces[0].t[-1]) for traces in self.traces.values() if traces), default=0)
        sizes = ((n, "policy", "policies"), (len(self.seeds), "seed"), (rounds, "round"))
        title = ", ".join(count(*size) for size in sizes)
        return Summary(title, rows, columns)

    def to_frame(self, backend: str = "pandas") -> Any:
        """One row per policy, seed and checkpoint, as a table of "pandas", "polars" or "pyarrow".

        What only some of the policies have, such as a violation, is NaN for the others.
        """
        parts = [
            trace.columns() | {"policy": np.full(trace.t.size, name, dtype=object)}
            for name, traces in self.traces.items()
            for trace in traces
        ]
        titles = dict.fromkeys(title for part in parts for title in part)
        return frame_of(
            {
                title: np.concatenate(
                    [part.get(title, np.full(part["t"].size, np.nan)) for part in parts]
                )
                for title in titles
            },
            backend,
        )

    def plot(
        self,
        ax: Axes | None = None,
        best: Iterable[Any] | None = None,
        scale: Literal["value", "percent", "below"] = "value",
    ) -> Axes:
        """Mean over seeds of f over time, with 95 % bands.

        `best`, the optima of the seeds, adds a line at the best possible value. Worlds often
        differ more than policies: "percent" shows f in percent of the optimum of its world,
        "below" what is missing to it, on a logarithmic axis. Where f has hard constraints, the mean
        of their violation is dotted, on the axis to the right.
        """
        tops = None if best is None else tuple(best)
        if scale not in ("value", "percent", "below"):
            raise InvalidInput(f"scale is {scale!r}; give 'value', 'percent' or 'below'")
        if tops is None and scale != "value":
            raise InvalidInput(f"scale={scale!r} compares with the optima of the seeds; pass best=")
        line = None if tops is None or scale == "below" else float(_tops(tops).mean())
        ax = value_axes(ax, 100.0 if scale == "percent" else line)
        beside = None
        for i, (name, traces) in enumerate(self.traces.items()):
            values, style = self.values(name), line_style(i)
            if scale != "value" and tops is not None:
                values = self.below_best(name, tops)
                values = 100.0 - values if scale == "percent" else values
            mean_line(ax, traces[0].t, bands(values), style | {"label": name})
            if self.constrained:
                beyond = np.mean([trace.violation for trace in traces], axis=0)
                thin = {"color": style["color"], "linewidth": 1.0}
                beside = violation_line(ax, beside, traces[0].t, beyond, **thin)
        if scale == "percent":
            ax.set_ylabel("f, in percent of the best possible")
        if scale == "below":
            ax.set_yscale("log", nonpositive="clip")
            ax.set_ylabel("below the best possible f, in percent of it")
        ax.legend(frameon=False, loc="upper right" if scale == "below" else "lower right")
        return ax

    def plot_lorenz(self, ax: Axes | None = None) -> Axes:
        """Who is exposed: Lorenz curves of exposure at the horizon, the means over seeds."""
        ax = lorenz_axes(ax)
        for i, (name, traces) in enumerate(self.traces.items()):
            n_items = traces[0].require_ranking("a Lorenz curve")
            curves = [lorenz(trace.average[-1, :n_items]) for trace in traces]
            lorenz_line(ax, curves, label=name, **line_style(i))
        return ax


def _tops(best: Iterable[Any]) -> Vector:
    return np.array([best_value(one) for one in best])


def compare(
    policies: Mapping[str, Any],
    environment: Any,
    horizon: int,
    seeds: int | Iterable[int],
    objective: Concave | None = None,
    jobs: int = 1,
    *,
    lateness: Lateness | Mapping[str, Lateness] | None = None,
    checkpoints: Any = None,
    scalar_regret: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Comparison:
    """Run every policy on every seed; a number of seeds means 0, 1, ...

    Runs of one seed meet the same world, contexts and noise, so differences are paired. `jobs`
    threads run at once (the compiled loop releases the interpreter). `lateness` is how late
    feedback comes, to all policies or to those that it names. Ctrl-C returns the seeds that every
    policy has finished; if there is none, KeyboardInterrupt is raised. `checkpoints` and
    `scalar_regret` are those of `simulate`.

    >>> from fairwolfe.bandits import LinUCB, Uniform
    >>> from fairwolfe.environments import Mehrotra
    >>> from fairwolfe.reduction import FrankWolfe
    >>> world = Mehrotra(10, 3, 4)
    >>> f = world.objective()
    >>> two = {"ucb": FrankWolfe(f, LinUCB()), "any": FrankWolfe(f, Uniform())}
    >>> result = compare(two, world, 200, seeds=3)
    >>> result.difference("ucb", "any")[0] > 0
    True
    """
    if not isinstance(policies, Mapping):
        raise InvalidInput(
            f"policies is {policies!r:.80}; give names and policies, such as "
            '{"fair": FrankWolfe(objective, LinUCB())}'
        )
    for policy in policies.values():
        as_policy(policy)  # raises now, and not after the others have run
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not policies or not chosen:
        raise InvalidInput("compare needs at least one policy and one seed")
    if jobs < 1:
        raise InvalidInput(f"jobs is {jobs!r}; give a whole number of at least 1")
    late = lateness if isinstance(lateness, Mapping) else dict.fromkeys(policies, lateness)
    if unknown := late.keys() - policies.keys():
        raise InvalidInput(
            f"lateness names {sorted(unknown)}; the policies are {', '.join(policies)}"
        )
    stopped = Event()

    def run(name: str, seed: int) -> Trace:
        def tick(n: int) -> None:
            if stopped.is_set():
                raise KeyboardInterrupt
            if progress is not None:
                progress(n)

        return simulate(
            policies[name],
            environment,
            horizon,
            seed,
            objective,
            checkpoints,
            scalar_regret=scalar_regret,
            lateness=late.get(name),
            progress=tick,
        )

    futures: dict[tuple[int, str], Future[Trace]] = {}
    with ThreadPoolExecutor(jobs) as pool:
        for seed in chosen:
            for name in policies:
                futures[seed, name] = pool.submit(run, name, seed)
        try:
            for future in futures.values():
                future.result()
        except KeyboardInterrupt:
            stopped.set()
            pool.shutdown(cancel_futures=True)
    whole = tuple(s for s in chosen if all(_finished(futures[s, name]) for name in policies))
    if not whole:
        raise KeyboardInterrupt
    traces = {name: tuple(futures[s, name].result() for s in whole) for name in policies}
    return Comparison(traces, whole)


def _finished(future: Future[Trace]) -> bool:
    done = future.done() and not future.cancelled() and future.exception() is None
    return done and future.result().complete
