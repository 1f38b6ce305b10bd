"""`tradeoff`: utility against the exposure of items, by policy and beta, with tables, sentences and
plots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairwolfe.bandits.base import Exploration
from fairwolfe.core.arrays import Cube, Matrix, Vector
from fairwolfe.core.build import build_objective
from fairwolfe.core.problem import positive, whole_number
from fairwolfe.core.streams import stream
from fairwolfe.core.tables import Summary, bands, count, interval, table_of
from fairwolfe.environments.world import RankingWorld
from fairwolfe.errors import InvalidInput
from fairwolfe.fairness.frontier import Optima, Reachable, spread
from fairwolfe.objectives import Concave, TwoSided
from fairwolfe.objectives.combine import Sum, is_zero
from fairwolfe.objectives.concave import numbers
from fairwolfe.objectives.exposure import each, fairness_of, lorenz
from fairwolfe.plots import (
    COLOURS,
    LINES,
    line_style,
    lorenz_axes,
    lorenz_line,
    new_figure,
    open_frame,
    save,
)
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank
from fairwolfe.simulation.compare import Comparison, compare

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def sentence(rows: list[dict[str, Any]], beta: float, what: str = "groups") -> str:
    """How many gain and lose exposure at a beta, and who most, beside beta = 0."""
    plain = {row["group"]: row["exposure"] for row in rows if row["beta"] == 0.0}
    moves = {
        row["group"]: row["exposure"] - plain[row["group"]] for row in rows if row["beta"] == beta
    }
    slack = 0.01 * sum(plain.values()) / len(plain)
    gains = sorted((g for g in moves if moves[g] > slack), key=lambda g: -moves[g])
    losses = sorted((g for g in moves if moves[g] < -slack), key=lambda g: moves[g])
    parts = []
    for verb, who in (("gain", gains), ("lose", losses)):
        most = f", most of all {who[0]} ({moves[who[0]]:+.2g} a ranking)" if who else ""
        parts.append(f"{len(who)} {verb}{most}")
    return (
        f"Of {len(plain)} {what}, {parts[0]}; {parts[1]}: exposure with beta = {beta:.3g} beside "
        "that with beta = 0."
    )


_NEAR_LABELS = (0.11, 0.06)  # points closer than these parts of the axes share a label
_CURVES = (0, 2, 4, 6)  # colours of a few Lorenz curves: not that of FairLearnRank
_SAME = 0.01  # Gini indices that are closer count as equal

Row = dict[str, Any]

FAIR, FLOOR, BEST = "FW-LinUCBRank", "FairLearnRank", "best possible"


class PairedDifference(NamedTuple):
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

    def difference(self) -> PairedDifference:
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
        return PairedDifference(*interval(each), each)

    def sentences(self) -> list[str]:
        """What the table shows, in plain words: the knee, what FairLearnRank reaches there, the
        best possible, and where gains end.
        """
        rows = self.table()
        fair = [row for row in rows if row["policy"] == FAIR]
        floors = [row for row in rows if row["policy"] == FLOOR]
        what = self.reward
        chosen = fair[knee(fair)]
        return [
            *_price(fair, chosen, what),
            *_frontier(self, chosen, what),
            *_kept(fair, floors, chosen),
            *_baseline(floors, chosen, what),
            *_smallest(self, what),
            *_end(fair, what),
        ]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Utility against the Gini index, with the best possible (needs matplotlib)."""
        if ax is None:
            ax = new_figure(6.4, 4.6).add_subplot()
        self._draw_frontier(ax)
        for policy, i, marker, place in (
            (FAIR, 0, "o", (5, 5)),
            (FLOOR, 3, "s", (-6, -6)),
        ):
            settings = self.settings(policy)
            if not settings:
                continue
            curve = self.curve(policy)
            (gini, *gini_ends), (utility, *utility_ends) = (bands(curve[..., i]).T for i in (0, 1))
            symbol = "floor" if policy == FLOOR else "beta"
            ax.errorbar(
                gini,
                utility,
                xerr=np.abs(np.array(gini_ends) - gini),
                yerr=np.abs(np.array(utility_ends) - utility),
                elinewidth=0.8,
                label=f"{policy}, by {symbol}",
                **line_style(i) | {"marker": marker, "markersize": 5},
            )
            label_points(ax, np.column_stack([gini, utility]), settings, COLOURS[i], place)
        ax.invert_xaxis()
        ax.margins(0.09)
        ax.set_xlabel("inequality of exposure (Gini index), fairer to the right")
        ax.set_ylabel(f"{self.reward} a ranking")
        open_frame(ax)
        ax.legend(frameon=False, loc="lower left")
        return ax

    def _draw_frontier(self, ax: Axes) -> None:
        curve = np.array([(row["gini"], row["utility"]) for row in self.rows()])
        ordered = curve[np.argsort(curve[:, 0])]
        gini = np.linspace(ordered[0, 0], ordered[-1, 0], 400)
        values = self.item_objective_at(gini)
        if values is None:
            ax.plot(
                *ordered.T, color="0.35", linewidth=1.2, zorder=1, label="best for this objective"
            )
            return
        lower, upper = self.frontier.lower(values), self.frontier.upper(values)
        band = "the best possible is in here"
        ax.fill_between(gini, lower, upper, color="0.82", linewidth=0, zorder=0, label=band)
        ax.plot(gini, lower, color="0.35", linewidth=1.2, zorder=1, label="can be reached")

    def plot_lorenz(self, ax: Axes | None = None, beta: float | None = None) -> Axes:
        """Lorenz curves of FWLinUCBRank for the ends, a beta or the knee, and what lies between."""
        ax = lorenz_axes(ax)
        betas = self.betas
        rows = [row for row in self.table() if row["policy"] == FAIR]
        wanted = {0, knee(rows) if beta is None else betas.index(beta), len(betas) - 1}
        spread = np.linspace(0, len(betas) - 1, len(_CURVES)).round().astype(int).tolist()
        for i in spread:
            if len(wanted) < len(_CURVES):
                wanted.add(i)
        m = self.problem.n_items
        for i, (place, colour) in enumerate(zip(sorted(wanted), _CURVES, strict=False)):
            curves = [lorenz(z[:m]) for z in self.averages(FAIR, betas[place])]
            label = f"beta = {betas[place]:.3g}"
            lorenz_line(ax, curves, color=COLOURS[colour], linestyle=LINES[i], label=label)
        ax.legend(frameon=False, loc="upper left")
        return ax

    def draw(self, folder: Path | str) -> list[Path]:
        """Both plots in one figure, as tradeoff.png and tradeoff.svg in a folder that exists."""
        figure = new_figure(11.5, 4.8)
        trade, curves = figure.subplots(1, 2, width_ratios=(1.25, 1))
        self.plot(trade).set_title("What fairness costs", loc="left")
        self.plot_lorenz(curves).set_title(f"Who is exposed by {FAIR}", loc="left")
        n = len(self.seeds)
        kept = "" if self.constraints is None else ", hard constraints kept by the best possible"
        figure.suptitle(
            f"{self.problem.n_items} items in {self.problem.n_slots} slots, "
            f"{self.item_words}, {self.horizon:,} rounds, "
            f"{n} seed{'s' * (n > 1)}{kept}",
            x=0.01,
            ha="left",
        )
        return save(figure, Path(folder), "tradeoff")


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


def middle_gap(one: Matrix, other: Matrix) -> float:
    """The median difference of two interpolated curves over their common range; NaN without any."""
    first, second = _function(one), _function(other)
    low, high = max(first[0, 0], second[0, 0]), min(first[-1, 0], second[-1, 0])
    if not low < high:
        return float("nan")
    points = np.linspace(low, high, 201)
    return float(np.median(np.interp(points, *first.T) - np.interp(points, *second.T)))


def _function(points: Matrix) -> Matrix:
    """Points by rising Gini index, of equals the one of most utility."""
    ordered = points[np.lexsort((-points[:, 1], points[:, 0]))]
    return ordered[np.unique(ordered[:, 0], return_index=True)[1]]


def label_points(
    ax: Axes, points: Matrix, settings: tuple[float, ...], colour: str, place: tuple[int, int]
) -> None:
    """Write the settings beside their points; neighbours share a label."""
    scale = np.array([np.diff(ax.get_xlim())[0], np.diff(ax.get_ylim())[0]])
    groups: list[list[int]] = []
    for i in range(len(points)):
        near = (
            groups and np.hypot(*((points[i] - points[groups[-1][0]]) / scale / _NEAR_LABELS)) < 1.0
        )
        if near:
            groups[-1].append(i)
        else:
            groups.append([i])
    right, above = place[0] > 0, place[1] > 0
    for group in groups:
        ax.annotate(
            ", ".join(f"{settings[i]:.2g}" for i in group),
            points[group[0]],
            xytext=place,
            textcoords="offset points",
            color=colour,
            fontsize=8,
            ha="left" if right else "right",
            va="bottom" if above else "top",
        )


def knee(fair: list[Row]) -> int:
    """Which beta turns the curve: the point farthest over the chord of its ends; else the last.

    The ends are the smallest beta, and the one from which on nothing is gained.
    """
    last = _end_of_gains(fair)
    gini = np.array([row["gini"] for row in fair[: last + 1]])
    utility = np.array([row["utility"] for row in fair[: last + 1]])
    gained, kept = gini[0] - gini[-1], utility[0] - utility[-1]
    if last < 2 or gained <= 0.0 or kept <= 0.0:
        return last
    over = (gini[0] - gini) / gained + (utility - utility[-1]) / kept - 1.0
    return int(over.argmax()) if over.max() > 0.0 else last


def _end_of_gains(fair: list[Row]) -> int:
    gini = np.array([row["gini"] for row in fair])
    return int(np.flatnonzero(gini <= gini.min() + _SAME)[0])


def _price(fair: list[Row], chosen: Row, what: str) -> list[str]:
    plain, end = fair[0], fair[_end_of_gains(fair)]
    if chosen is plain:
        return [f"No beta is fairer than beta = {plain['beta']:.3g}: nothing is traded here."]
    given_up = _percent_less(chosen, plain)
    texts = [
        f"Giving up {given_up:.1f} % of {what} lifts the bottom half of items from "
        f"{100 * plain['bottom_half']:.0f} % to {100 * chosen['bottom_half']:.0f} % of exposure "
        f"(beta = {chosen['beta']:.3g})."
    ]
    before, after = plain["gini"] - chosen["gini"], chosen["gini"] - end["gini"]
    if chosen is not end and before > 0.0 and after > 0.0:
        further = _percent_less(end, chosen)
        texts.append(
            f"The curve turns there: up to it 0.1 less of the Gini index costs "
            f"{0.1 * given_up / before:.1f} % of {what}, beyond it {0.1 * further / after:.1f} %."
        )
    return texts


def _frontier(tradeoff: TradeOff, chosen: Row, what: str) -> list[str]:
    missing = max(chosen["below_frontier_percent"], 0.0)
    keeping = "" if tradeoff.constraints is None else ", with the hard constraints kept"
    return [
        f"That is at most {missing:.1f} % below the most {what} of any policy for which "
        f"{tradeoff.item_words} is as large{keeping} (certified)."
    ]


def _kept(fair: list[Row], floors: list[Row], chosen: Row) -> list[str]:
    if "violation" not in chosen:
        return []
    worst = max(row["violation"] for row in fair)
    text = (
        "The best possible is that of the policies that keep the hard constraints. "
        f"{FAIR} violates them by {chosen['violation']:.2g} there, by {worst:.2g} at most"
    )
    if floors:
        least = min(row["violation"] for row in floors)
        text += f"; {FLOOR}, which does not know them, by {least:.2g} at least"
    return [text + "."]


def _baseline(floors: list[Row], chosen: Row, what: str) -> list[str]:
    if not floors:
        return []
    ordered = sorted(floors, key=lambda row: float(row["gini"]))
    gini = [row["gini"] for row in ordered]
    if chosen["gini"] < gini[0]:
        return [
            f"{FLOOR} does not come down to its Gini index of {chosen['gini']:.2f}: with a "
            f"floor of {ordered[0]['floor']:.3g} it has {gini[0]:.2f}, and "
            f"{_percent_less(ordered[0], chosen):.1f} % less {what}."
        ]
    there = float(np.interp(chosen["gini"], gini, [row["utility"] for row in ordered]))
    return [
        f"At its Gini index of {chosen['gini']:.2f}, {FLOOR} has {there:.3g} {what} and "
        f"{FAIR} {chosen['utility']:.3g}."
    ]


def _smallest(tradeoff: TradeOff, what: str) -> list[str]:
    try:
        smallest = tradeoff.difference()
    except InvalidInput:
        return []
    low, high = smallest.low, smallest.high
    n = len(smallest.each)
    if n < 2:
        return [
            f"At equal Gini index {FAIR} has at least {smallest.mean:.3g} {what} more than "
            f"{FLOOR} (one seed: no interval)."
        ]
    sure = "" if low > 0.0 else " So it is not sure that it has more everywhere."
    return [
        f"At equal Gini index {FAIR} has at least {smallest.mean:.3g} {what} more than "
        f"{FLOOR} (95 % interval over {n} seeds: {low:.3g} to {high:.3g}).{sure}"
    ]


def _end(fair: list[Row], what: str) -> list[str]:
    end = _end_of_gains(fair)
    first, last = fair[end], fair[-1]
    if first is last:
        return []
    less = _percent_less(last, first)
    lost = f", and {less:.1f} % of {what} are lost" if less > 0.0 else ""
    return [
        f"Beyond beta = {first['beta']:.3g} nothing is gained: the Gini index stays near "
        f"{last['gini']:.2f}{lost} up to beta = {last['beta']:.3g}."
    ]


def _percent_less(one: Row, other: Row) -> float:
    less: float = 100.0 * (other["utility"] - one["utility"]) / abs(other["utility"])
    return less


_BETAS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
_SPREAD = 6  # betas that are played, where none are given
_NEAR = 1.3  # betas within this factor of each other are neighbours
_FLOORS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.95)  # of the largest that can be kept, n_slots/n_items


def item_objective(given: Concave | str) -> Concave:
    """An objective of the items: the one given, or from its name or text; "gini" is GiniWelfare().

    >>> item_objective("gini"), item_objective("Welfare(0.5)")
    (GiniWelfare(), Welfare(0.5))
    """
    if isinstance(given, Concave):
        return given
    return build_objective("gini-welfare" if given == "gini" else given, "objective")  # type: ignore[no-any-return]


def apart(items: Concave, n: int) -> tuple[Concave, Concave | None]:
    """An objective of n items without its hard constraints, and these, of all coordinates: of the
    items, or of user-side rewards that they name; None if there are none.

    Constraints are kept whatever beta is: with them in the item objective, beta = 0 would leave
    them out.
    """
    if not items.constrained:
        return items, None
    terms = items.terms if isinstance(items, Sum) else (items,)
    whole = [term for term in terms if term.constrained]
    if not all(is_zero(term.relaxed()) for term in whole):
        raise InvalidInput(
            f"{items} has hard constraints inside of another function; add them to it instead, "
            "such as GiniWelfare() + ByGroup(AtLeast(0.05, share=True), producers)"
        )
    kept = tuple(one if _names_rewards(one) else one.on(*range(n)) for one in whole)
    return items.relaxed(), Sum(kept) if len(kept) > 1 else kept[0]


def _names_rewards(f: Concave) -> bool:
    """Whether levels are of user-side rewards, by name."""
    sides = (getattr(f, name, None) for name in ("level", "low", "high"))
    return any(isinstance(side, Mapping) for side in sides)


@dataclass(frozen=True)
class TradeOffPlan:
    """The arguments of `tradeoff`, checked; nothing is computed yet. Betas (None: to be found) and
    floors become sorted tuples, seeds a tuple.
    """

    world: Any
    objective: Concave | str = "gini"
    betas: Any = _BETAS
    _: KW_ONLY
    floors: Any = None
    horizon: int = 100_000
    seeds: Any = 3
    exploration: Exploration = 0.1
    jobs: int = 1
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        if not isinstance(self.world, RankingWorld):
            raise InvalidInput(
                f"the world is {self.world!r:.80}; a trade-off of utility and exposure needs a "
                "world with rankings, such as FactorModel()"
            )
        problem, floors, seeds = self.world.problem(), self.floors, self.seeds
        room = (problem.n_slots or 0) / (problem.n_items or 1)
        floors = [round(part * room, 12) for part in _FLOORS] if floors is None else tuple(floors)
        betas = None if self.betas is None else tuple(sorted(set(numbers("betas", self.betas))))
        object.__setattr__(self, "betas", betas)
        floors = tuple(sorted(set(numbers("floors", floors)))) if floors else ()
        object.__setattr__(self, "floors", floors)
        several = range(whole_number("seeds", seeds)) if isinstance(seeds, int) else seeds
        object.__setattr__(self, "seeds", tuple(several))
        for name in ("horizon", "jobs"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        object.__setattr__(self, "tolerance", positive("tolerance", self.tolerance))
        if not self.seeds:
            raise InvalidInput("seeds is empty; give a number of seeds, or some of them")
        for seed in self.seeds:
            stream(seed, "world")  # raises now if it is not a seed
        for policy in self.policies(self.betas or (1.0,)).values():
            policy.init(problem)

    @cached_property
    def apart(self) -> tuple[Concave, Concave | None]:
        """The objective of the items, and the hard constraints of all coordinates, if any."""
        return apart(item_objective(self.objective), self.world.problem().n_items or 0)

    @property
    def rounds(self) -> int:
        """Of everything that will be played."""
        return self.horizon * len(self.seeds) * (len(self.betas or ()) + len(self.floors))

    @property
    def optima(self) -> Optima:
        """Where the optima come from."""
        return Optima(self.world, *self.apart, self.seeds, self.tolerance, self.jobs)

    def policies(self, betas: Iterable[float]) -> dict[str, Any]:
        """Every policy by name."""
        f, exploration = self.optima.objective, self.exploration
        fair: dict[str, Any] = {
            name_of(FAIR, beta): FWLinUCBRank(f(beta), exploration=exploration) for beta in betas
        }
        return fair | {
            name_of(FLOOR, floor): FairLearnRank(floor, exploration=exploration)
            for floor in self.floors
        }

    def reach(self) -> Reachable:
        """The optima alone: of the betas, or of as many as the frontier needs."""
        problem = self.world.problem()
        items, constraints = self.apart
        bound = TwoSided(items).bind(problem)
        reached = Reachable(
            problem=problem,
            items=bound.items if isinstance(bound, TwoSided) else items,
            best=self.optima.at({0.0, *(self.betas or ())}),
            constraints=None if constraints is None else constraints.bind(problem),
            optima=self.optima,
        )
        return reached if self.betas is not None else reached.refined()

    def aimed(self, reached: Reachable, *more: float) -> TradeOffPlan:
        """With betas: those given, or a few along the frontier; and some more."""
        betas = spread(reached, _SPREAD) if self.betas is None else self.betas
        if self.betas is None:  # neighbours of what is played anyway show nothing new
            near = (1.0 / _NEAR, _NEAR)
            betas = tuple(b for b in betas if not any(near[0] * m < b < near[1] * m for m in more))
        return replace(self, betas=tuple(sorted({*betas, *more})))

    def run(
        self, progress: Callable[[int], None] | None = None, reached: Reachable | None = None
    ) -> TradeOff:
        """Find the optima, then play; Ctrl-C keeps the seeds that every policy has finished."""
        known = self.reach() if reached is None else reached
        if self.betas is None:
            return self.aimed(known).run(progress, known)
        missing = [beta for beta in self.betas if beta not in known.best]
        known = known.more(missing) if missing else known
        comparison = compare(
            self.policies(self.betas),
            self.world,
            self.horizon,
            self.seeds,
            self.optima.objective(1.0),
            self.jobs,
            checkpoints=[self.horizon],
            scalar_regret=False,
            progress=progress,
        )
        kept = [self.seeds.index(seed) for seed in comparison.seeds]
        return TradeOff(
            problem=known.problem,
            items=known.items,
            best={beta: tuple(best[i] for i in kept) for beta, best in known.best.items()},
            constraints=known.constraints,
            optima=replace(self.optima, seeds=comparison.seeds),
            betas=self.betas,
            floors=self.floors,
            comparison=comparison,
        )


plan = TradeOffPlan


def tradeoff(
    world: Any,
    objective: Concave | str = "gini",
    betas: Iterable[float] | None = _BETAS,
    *,
    floors: Iterable[float] | None = None,
    horizon: int = 100_000,
    seeds: int | Iterable[int] = 3,
    exploration: Exploration = 0.1,
    jobs: int = 1,
    tolerance: float = 1e-3,
    progress: Callable[[int], None] | None = None,
) -> TradeOff:
    """What fairness costs in a world with rankings, for f = utility + beta objective(exposures).

    For every beta the certified optimum is computed and FWLinUCBRank is played; for every floor
    FairLearnRank. Ctrl-C returns the seeds that every policy has finished; if there is none,
    KeyboardInterrupt is raised.

    Parameters
    ----------
    world: an environment with rankings
    betas: weights of the objective; None: as many optima as the frontier needs, and a few betas
        evenly along it are played
    objective: of the items' exposures: one of fw.objectives, its name ("gini" is "gini-welfare"),
        or its text, such as "Welfare(0.5)". Hard constraints that are added to it, such as floors
        of producers, hold for every beta: the best possible is that of the policies that keep
        them, and tables show how far they are violated
    floors: shares of rankings in which FairLearnRank shows every item, up to n_slots/n_items; None
        is six of them from 0 to 95 % of that, () leaves FairLearnRank out
    seeds: how many worlds or runs, or which
    exploration: of all policies, in units of the theory's, or "pointwise"
    tolerance: of the optima, as in `optimum`
    progress: called with the number of rounds played since its last call

    >>> from fairwolfe.environments import FactorModel
    >>> result = tradeoff(FactorModel(), betas=(0.0, 0.3), floors=(), horizon=500, seeds=1)
    >>> [round(row["gini"], 2) for row in result.table()[:2]]
    [0.68, 0.2]
    """
    given = (world, objective, betas)
    played = {"floors": floors, "horizon": horizon, "seeds": seeds, "exploration": exploration}
    return TradeOffPlan(*given, **played, jobs=jobs, tolerance=tolerance).run(progress)  # type: ignore[arg-type]
