"""`Reachable`: what any policy can reach when utility is traded against an objective of the items.

Optima of f = utility + beta items by beta, the frontier that they certify, the betas that a status
quo implies, what a beta costs, and which groups of items gain.

Every average (g_j, u_j) that is reached bounds R(beta) = f* - f(s0) of a status quo (g0, u0) from
below by (u_j - u0) + beta (g_j - g0), for all betas at once: the interval in which all of these are
at most eps holds every beta with R <= eps, and shrinks with each optimum at one of its ends
(Newton's method, from outside). The upper bounds of the optima bound R from above.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.problem import Problem, positive, real_number
from fairwolfe.core.streams import stream
from fairwolfe.core.tables import Brief, Summary, count
from fairwolfe.environments.world import RankingWorld
from fairwolfe.errors import InvalidInput, NumericalFailure
from fairwolfe.objectives import Concave, GiniEquality, GiniWelfare, TwoSided
from fairwolfe.objectives.exposure import each, fairness_of, utility
from fairwolfe.truth.optimum import Optimum, optimum

StatusQuo = Mapping[str, float] | Sequence[float] | Vector

_SOLVES = 60  # optima that are computed, at most
_FINE = 0.25  # gaps of the optima, in units of eps
_NEAR = 1e-3  # ends that move less than this part of themselves have settled
_FINEST = 1e-5  # relative tolerance of an optimum: beyond it passes are dear
_LARGEST = 256.0  # times the largest beta that is known: beyond it beta is as good as infinite
_MOST = 40  # betas of a refined frontier
_GAP = 2e-3  # height of a triangle, in units of the most utility
_STEP = 0.08  # between neighbours: of the Gini index, or of the range of utility
_CERTAIN = 3.0  # a triangle lower than this many times the gaps of its optima cannot be cut
_SATURATED = 1e-3  # of the range of the item objective: what more beta brings at the end of gains
_QUADRUPLINGS = 12  # to get there
_FINER = 0.1  # of the given tolerance: by this triangles can be distinguished
_LEFT = 0.02  # of the budget of `give_up`: how much of it may be left
_NARROW = 1e-3  # of beta
_STEPS = 40  # of `give_up`


@dataclass(frozen=True, eq=False)
class Frontier:
    """Bounds of phi(x), the most utility of any policy whose item objective is at least x.

    The optimum of utility + beta items gives two of them. Its upper bound U_beta holds for
    everything that can be reached, so utility <= U_beta - beta x: `upper` is the smallest of these
    lines. Its average is reached, and so is every mixture; utility is linear and the item objective
    concave, so a mixture is not worse than the chord: `lower` is the concave hull of the points.
    """

    betas: Vector
    bounds: Vector
    """U_beta, for each beta."""
    points: Matrix
    """(item objective, utility) of the average of each optimum, (betas, 2)."""

    @classmethod
    def of(
        cls, betas: Sequence[float], best: Sequence[Optimum], items: Concave, n_items: int
    ) -> Frontier:
        """From the optima of the betas; utility is the sum of all but the first `n_items`."""
        m = n_items
        points = [(items.value(b.average[:m]), b.average[m:].sum()) for b in best]
        return cls(
            np.array(betas, dtype=np.float64),
            np.array([b.upper_bound for b in best]),
            np.array(points, dtype=np.float64),
        )

    @classmethod
    def mean(cls, several: Sequence[Frontier]) -> Frontier:
        """Of the means over worlds: inequalities of every world hold for their means too."""
        return cls(
            several[0].betas,
            np.mean([one.bounds for one in several], axis=0),
            np.mean([one.points for one in several], axis=0),
        )

    def upper(self, x: Vector | float) -> Vector:
        """No policy with an item objective of x or more has more utility."""
        value = np.atleast_1d(np.asarray(x, dtype=np.float64))[:, None]
        # An objective of -inf has no effect: 0 times it counts as 0.
        with np.errstate(invalid="ignore"):
            spent = np.where(self.betas > 0.0, self.betas * value, 0.0)
        values: Vector = (self.bounds - spent).min(axis=1)
        return values

    def lower(self, x: Vector | float) -> Vector:
        """Some policy has this utility with an item objective of x or more; NaN where unknown."""
        hull = self.hull
        value = np.atleast_1d(np.asarray(x, dtype=np.float64))
        values: Vector = np.interp(value, hull[:, 0], hull[:, 1], right=np.nan)
        return values

    @property
    def hull(self) -> Matrix:
        """The corners of `lower`, from the largest utility to the largest item objective."""
        points = self.points[np.isfinite(self.points).all(axis=1)]
        kept: list[Vector] = []
        for point in points[np.lexsort((points[:, 0], -points[:, 1]))]:
            if kept and point[0] <= kept[-1][0]:
                continue  # no better in either way
            while len(kept) > 1 and _above(kept[-2], kept[-1], point):
                kept.pop()
            kept.append(point)
        return np.array(kept).reshape(-1, 2)


def _above(first: Vector, middle: Vector, last: Vector) -> bool:
    """Whether the chord from the first to the last passes over the middle point."""
    (a, b), (c, d) = middle - first, last - first
    return bool(a * d >= b * c)


@dataclass(frozen=True, eq=False)
class Optima:
    """Where the optima of utility + beta items come from: the worlds of some seeds."""

    world: RankingWorld
    items: Concave
    constraints: Concave | None
    """Of all coordinates; they hold for every beta."""
    seeds: tuple[int, ...]
    tolerance: float
    jobs: int = 1

    def objective(self, beta: float) -> Concave:
        """f with its hard constraints."""
        f = TwoSided(self.items, beta)
        return f if self.constraints is None else f + self.constraints

    @cached_property
    def _different(self) -> int:
        """How many of the seeds have their own world: one, where the tables are given."""
        drawn = [self.world.init(stream(seed, "world")) for seed in self.seeds]
        same = all(
            np.array_equal(a, b)
            for world in drawn[1:]
            for a, b in zip(world[:-1], drawn[0][:-1], strict=True)
        )
        return 1 if same else len(self.seeds)

    def at(
        self, betas: Iterable[float], tolerance: float | None = None
    ) -> dict[float, tuple[Optimum, ...]]:
        """The optima of each beta, one for each seed; `jobs` of them are computed at once."""
        wanted = sorted(set(betas))
        each = self.seeds[: self._different]
        todo = [(beta, seed) for beta in wanted for seed in each]

        def find(one: tuple[float, int]) -> Optimum:
            f = self.objective(one[0])
            return optimum(self.world, f, one[1], tolerance or self.tolerance)

        with ThreadPoolExecutor(self.jobs) as pool:
            optima = dict(zip(todo, pool.map(find, todo), strict=True))
        for best in optima.values():
            if not best.feasible:
                raise InvalidInput(
                    f"no policy keeps {self.constraints}: it is violated by "
                    f"{best.unavoidable:.3g} at least, whatever is shown; loosen its levels"
                )
        copies = len(self.seeds) // len(each)
        return {beta: tuple(optima[beta, seed] for seed in each) * copies for beta in wanted}


class Better(NamedTuple):
    """What dominates a status quo: reached by some policy, with at least its item objective."""

    utility: float
    percent: float
    """How much more utility that is."""
    at_most: float
    """No policy that is as fair has more than that many percent more."""


class Implied(NamedTuple):
    """What a status quo shows about beta."""

    utility: float
    item_objective: float
    beta: tuple[float, float] | None
    """For every beta outside of it something better by more than the tolerance is known; None where
    that is so for all betas, or where no policy reaches the status quo."""
    regret: tuple[float, float]
    """Bounds on the smallest R over all betas, in units of utility."""
    nearest: float
    """The beta with the smallest R."""
    dominated_by: Better | None
    attainable: bool
    sentence: str


class GivenUp(NamedTuple):
    """A beta, what its optimum reaches, and what that costs."""

    beta: float
    cost: float
    """As a part of the most utility."""
    utility: float
    item_objective: float
    gini: float
    bottom_half: float
    sentence: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Reachable(Brief):
    """The certified optima of utility + beta items, by beta, one for each seed.

    `best` goes from the smallest beta to the largest, and always holds beta = 0.
    """

    problem: Problem
    items: Concave
    best: dict[float, tuple[Optimum, ...]]
    constraints: Concave | None = None
    """Hard constraints that hold for every beta; they are not part of `items`."""
    optima: Optima | None = None
    """Where the optima of other betas come from."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of the worlds."""
        return () if self.optima is None else self.optima.seeds

    @property
    def reward(self) -> str:
        """What utility is called: the name of the user-side reward, if there is one alone."""
        rewards = list(self.problem.rewards)
        return rewards[0] if len(rewards) == 1 else "utility"

    @property
    def item_words(self) -> str:
        """The objective of the items, in words."""
        return self.items.on(*range(self.problem.n_items or 0)).describe(self.problem)

    @cached_property
    def frontiers(self) -> tuple[Frontier, ...]:
        """What can be reached in the world of each seed."""
        betas, m = tuple(self.best), self.problem.n_items or 0
        return tuple(
            Frontier.of(betas, [self.best[b][i] for b in betas], self.items, m)
            for i in range(len(self.best[betas[0]]))
        )

    @cached_property
    def frontier(self) -> Frontier:
        """The mean over seeds."""
        return Frontier.mean(self.frontiers)

    @property
    def points(self) -> dict[float, Vector]:
        """(item objective, utility) of the optimum of each beta, means over seeds."""
        return dict(zip(self.best, self.frontier.points, strict=True))

    def objective(self, beta: float) -> Concave:
        """f = utility + beta items, with the hard constraints: what an agent is to maximise."""
        f = TwoSided(self.items, beta)
        return f if self.constraints is None else f + self.constraints

    def rows(self) -> list[dict[str, Any]]:
        """Every beta of the frontier: means over seeds of what its optimum reaches."""
        return [
            {"beta": beta, **self.measures(np.array([best.average for best in optima]))}
            | {"certified_gap": float(np.mean([best.gap for best in optima]))}
            for beta, optima in self.best.items()
        ]

    def measures(self, averages: Matrix) -> dict[str, float]:
        """Utility, item objective and shares of exposure: means of averages, a row each."""
        m = self.problem.n_items or 0
        measures = fairness_of(averages, m)
        measures["item_objective"] = each(self.items.value, averages[:, :m])
        return {name: float(values.mean()) for name, values in measures.items()}

    def summary(self, most: int) -> Summary:
        """Utility and Gini index of the first betas."""
        rows = [
            (f"{row['beta']:.4g}", f"{row['utility']:.4g}", f"{row['gini']:.3f}")
            for row in self.rows()[:most]
        ]
        n = len(self.best)
        if n > most:
            rows.append((f"and {n - most} more", "see rows()", ""))
        title = f"{count(n, 'beta')}, {count(self.problem.n_items or 0, 'item')}"
        return Summary(title, rows, ("beta", "utility", "Gini index"))

    def more(self, betas: Iterable[float], tolerance: float | None = None) -> Self:
        """With the optima of these betas too, computed to the tolerance or a finer one."""
        if self.optima is None:
            raise InvalidInput("the world of this trade-off is not known, so no beta can be added")
        new = self.optima.at(betas, tolerance)
        best = self.best | {
            beta: optima
            for beta, optima in new.items()
            if beta not in self.best or optima[0].gap < self.best[beta][0].gap
        }
        return replace(self, best=dict(sorted(best.items())))

    def refined(self) -> Self:
        """With more betas, up to where gains end, until neighbours are close on the frontier:
        every triangle is cut that is high, or whose ends are far apart.
        """
        reached = self
        finer = None if self.optima is None else _FINER * self.optima.tolerance
        for _ in range(_QUADRUPLINGS):  # until four times the beta brings nearly nothing
            last = max(reached.best)
            before = [beta for beta in reached.best if 0.0 < beta <= 0.25 * last]
            if before and reached.saturated(max(before), last):
                break
            reached = reached.more([max(1.0, 4.0 * last)], finer)
        while len(reached.best) < _MOST:
            betas = _wanted(reached)
            if not betas:
                break
            reached = reached.more(betas[: _MOST - len(reached.best)], finer)
        return reached

    def saturated(self, low: float, high: float) -> bool:
        """Whether the larger of two betas brings nearly nothing more for the items."""
        values = {beta: point[0] for beta, point in self.points.items()}
        start = min(x for x in values.values() if np.isfinite(x))
        return bool(values[high] - values[low] <= _SATURATED * (values[high] - start))

    def item_objective_at(self, gini: Vector | float) -> Vector | None:
        """The item objective at a Gini index, where the one is a function of the other.

        Every ranking has the same sum of exposures, and both objectives are affine in the index
        then.
        """
        n = self.problem.n_items or 1
        optima = next(iter(self.best.values()))
        total = float(np.mean([best.average[:n].sum() for best in optima]))
        index: Vector = np.asarray(gini, dtype=np.float64)
        if isinstance(self.items, GiniEquality):
            return -total * index
        if isinstance(self.items, GiniWelfare):
            return 0.5 * total * ((n + 1) / n - index)
        return None

    def regret(self, status_quo: StatusQuo, beta: float) -> tuple[float, float]:
        """Certified bounds on f* - f(status quo) for a beta, in units of utility.

        It is convex in beta, and 0 where the status quo is optimal.
        """
        sides = _sides(self, status_quo)
        number = real_number("beta", beta)
        if not 0.0 <= number < np.inf:
            raise InvalidInput(f"beta is {beta!r}; give a finite number of at least 0")
        return _bounds(self if number in self.best else self.more([number]), number, *sides)

    def implied(self, status_quo: StatusQuo, tolerance: float = 1e-3) -> Implied:
        """Which betas make today's average optimal, certified; or by how much it is dominated.

        For f = utility + beta items and a status quo s0, R(beta) = f* - f(s0) is convex in beta: a
        maximum of affine functions less an affine one. It is at least 0 for what can be reached,
        and 0 where s0 is optimal. So the betas with R <= eps are an interval, and if it is empty,
        some policy is as fair and has more utility.

        Parameters
        ----------
        status_quo: ``{"utility": u, "item_objective": g}``; ``{"utility": u, "gini": index}`` where
            the objective is a function of the Gini index; or the whole average reward vector
        tolerance: how far below the optimum the status quo may be and still count as optimal, as
            a part of the most utility
        """
        u0, g0 = _sides(self, status_quo)
        most = float(np.mean([best.upper_bound for best in self.best[0.0]]))
        eps = positive("tolerance", tolerance) * max(abs(most), 1e-300)
        search = _Search(self, u0, g0, eps)
        nearest, low, high = search.smallest()
        attainable = high >= -eps
        ends = search.ends() if attainable else None
        better = None
        if attainable and ends is None:
            nearest, low, high = search.smallest()
            frontier = search.reached.frontier
            more, top = float(frontier.lower(g0)[0]), float(frontier.upper(g0)[0])
            percents = (100.0 * (u - u0) / abs(u0) if u0 else np.inf for u in (more, top))
            better = Better(more, *percents)
        sentence = _sentence(self, u0, tolerance, ends, better, (low, high), nearest)
        return Implied(u0, g0, ends, (low, high), nearest, better, attainable, sentence)

    def by_group(
        self, labels: Iterable[Hashable], betas: Sequence[float] | None = None
    ) -> list[dict[str, Any]]:
        """Who gains and who loses: exposure and utility of groups of items, with a label each.

        A row for each group and beta (None: all of `best`), with the changes beside beta = 0, which
        are None for a group that had nothing there.
        """
        names = list(labels)
        if len(names) != self.problem.n_items:
            raise InvalidInput(
                f"there are {len(names)} labels for {self.problem.n_items} items; give one for each"
            )
        groups = list(dict.fromkeys(names))
        places = np.array([groups.index(name) for name in names])
        sizes = np.bincount(places)
        plain = _sums(self, 0.0, places)
        rows: list[dict[str, Any]] = []
        for beta in self.best if betas is None else betas:
            sums = _sums(self, beta, places)
            shares = sums / np.maximum(sums.sum(axis=0), 1e-300)
            with np.errstate(divide="ignore", invalid="ignore"):
                changes = np.where(plain > 0.0, 100.0 * (sums / plain - 1.0), np.nan)
            for i, group in enumerate(groups):
                row: dict[str, Any] = {"group": group, "items": int(sizes[i]), "beta": beta}
                for j, what in enumerate(("exposure", "utility")):
                    change = float(changes[i, j])
                    row[what] = float(sums[i, j])
                    row[f"{what}_share"] = float(shares[i, j])
                    row[f"{what}_change_percent"] = change if np.isfinite(change) else None
                rows.append(row)
        return rows

    def give_up(self, share: float) -> GivenUp:
        """The largest beta that costs at most this share of the most utility, by bisection: utility
        falls as beta grows. The cost of the beta that is returned is at most the share.
        """
        reached = self
        number = real_number("share", share)
        if not 0.0 <= number < 1.0:
            raise InvalidInput(
                f"share is {share!r}; give the part of utility that may be given up, such as 0.03"
            )
        most = float(np.mean([best.upper_bound for best in reached.best[0.0]]))
        if most <= 0.0:
            raise InvalidInput(f"the most utility is {most:g}, so no share of it can be given up")
        least = (1.0 - number) * most
        slack = 1e-9 * most  # the optimum of beta = 0 itself is only known up to rounding
        low, high = 0.0, np.inf
        for _ in range(_STEPS):
            utility = {beta: point[1] for beta, point in reached.points.items()}
            low = max(b for b, u in utility.items() if u >= least - slack or b == 0.0)
            high = min((b for b, u in utility.items() if b > low), default=np.inf)
            if utility[low] - least <= _LEFT * number * most or high - low <= _NARROW * high:
                break
            if high == np.inf:
                beta = 4.0 * max(low, 1.0)
            else:
                beta = _between(reached, low, high)
            reached = reached.more([beta])
            if high == np.inf and reached.saturated(low, beta):
                break
        optima = reached.best[low]
        measures = reached.measures(np.array([best.average for best in optima]))
        cost = max(1.0 - measures["utility"] / most, 0.0)
        plain = reached.measures(np.array([best.average for best in reached.best[0.0]]))
        lifted = (
            f"the least exposed half of the items has {100 * measures['bottom_half']:.0f} % of "
            f"exposure instead of {100 * plain['bottom_half']:.0f} %."
        )
        price = f"{100 * cost:.2g} %"
        sentence = (
            f"beta = {low:.3g} is the largest that gives up at most {100 * number:g} % of "
            f"{reached.reward}: it costs {price}, and {lifted}"
        )
        if high == np.inf:
            sentence = (
                f"No beta costs more than {price} of {reached.reward}: with beta = {low:.3g} "
                f"nothing more is gained, and {lifted}"
            )
        kept = {name: measures[name] for name in GivenUp._fields if name in measures}
        return GivenUp(beta=low, cost=cost, sentence=sentence, **kept)


def _wanted(reached: Reachable) -> list[float]:
    rows, bounds = reached.rows(), reached.frontier.bounds
    utility = np.array([row["utility"] for row in rows])
    top, span = float(np.abs(utility).max()), float(np.ptp(utility))
    betas = []
    for i, (one, two) in enumerate(pairwise(rows)):
        b1, b2 = one["beta"], two["beta"]
        lost = one["utility"] - two["utility"]
        gained = two["item_objective"] - one["item_objective"]
        apart = one["gini"] - two["gini"] > _STEP or lost > _STEP * span
        if not np.isfinite(gained):  # the logarithm of nothing: there is no chord
            if apart and lost > _GAP * top:
                betas.append(b1 + 0.25 * (b2 - b1))
            continue
        if not (gained > 0.0 and lost > 0.0 and b1 < lost / gained < b2):
            continue
        height = _height(one, two, float(bounds[i]), float(bounds[i + 1]))
        cut = _CERTAIN * (one["certified_gap"] + two["certified_gap"])
        if height > cut and (apart or height > _GAP * top):
            betas.append(lost / gained)
    return betas


def _height(one: dict[str, float], two: dict[str, float], first: float, second: float) -> float:
    """Of the triangle, over its chord."""
    b1, b2 = one["beta"], two["beta"]
    x = (second - first) / (b2 - b1)
    slope = (two["utility"] - one["utility"]) / (two["item_objective"] - one["item_objective"])
    return first - b1 * x - (one["utility"] + slope * (x - one["item_objective"]))


def spread(reached: Reachable, most: int) -> tuple[float, ...]:
    """A few of the betas, evenly along the curve of utility over the Gini index.

    The last is the smallest at which gains have ended.
    """
    betas = np.array(list(reached.best))
    rows = reached.rows()
    items = np.array([row["item_objective"] for row in rows])
    start = items[np.isfinite(items)].min()
    ended = items >= items.max() - 5.0 * _SATURATED * (items.max() - start)
    last = int(np.flatnonzero(ended)[0])
    gini = np.array([row["gini"] for row in rows[: last + 1]])
    utility = np.array([row["utility"] for row in rows[: last + 1]])
    steps = np.hypot(_of_range(gini), _of_range(utility))
    along = np.concatenate([[0.0], np.cumsum(steps)])
    targets = np.linspace(0.0, along[-1], most)
    chosen = {int(np.abs(along - target).argmin()) for target in targets}
    return tuple(float(betas[i]) for i in sorted(chosen))


def _of_range(values: Vector) -> Vector:
    """Steps from one to the next, as parts of the range."""
    span = float(np.ptp(values))
    steps: Vector = np.diff(values) / span if span > 0.0 else np.zeros(len(values) - 1)
    return steps


def _between(reached: Reachable, low: float, high: float) -> float:
    """The slope of the chord of two neighbours, or what lies between them."""
    (x1, u1), (x2, u2) = reached.points[low], reached.points[high]
    slope = (u1 - u2) / (x2 - x1) if np.isfinite(x2 - x1) and x2 > x1 else np.nan
    narrow = 0.1 * (high - low)
    if low + narrow < slope < high - narrow:
        return float(slope)
    return float(np.sqrt(low * high)) if low > 0.0 else 0.25 * high


def _sums(reached: Reachable, beta: float, places: Any) -> Matrix:
    """(exposure, utility) of each group, means over seeds."""
    known = [best.by_item for best in reached.best[beta]]
    if any(part is None for part in known):
        raise InvalidInput(
            f"who has what is not known for {reached.items}: its optimum is computed without the "
            "rankings behind it; use an objective with a proximal map, such as GiniWelfare()"
        )
    parts = [part for part in known if part is not None]
    items = np.mean([np.column_stack([part[:, 0], part[:, 1:].sum(axis=1)]) for part in parts], 0)
    sums = np.zeros((places.max() + 1, 2))
    np.add.at(sums, places, items)
    return sums


def _bounds(reached: Reachable, beta: float, u0: float, g0: float) -> tuple[float, float]:
    low, high = np.mean([(best.value, best.upper_bound) for best in reached.best[beta]], axis=0)
    here = u0 + beta * g0
    return float(low - here), float(high - here)


def _sides(reached: Reachable, status_quo: Any) -> tuple[float, float]:
    """Utility and item objective."""
    problem = reached.problem
    if not isinstance(status_quo, Mapping):
        average = np.asarray(status_quo, dtype=np.float64)
        return utility(average, problem), reached.items.value(average[: problem.n_items])
    kinds = {"utility", "item_objective"}, {"utility", "gini"}
    if set(status_quo) not in kinds:
        raise InvalidInput(
            f"the status quo has {', '.join(map(repr, status_quo)) or 'nothing'}; give utility and "
            "item_objective (as in the table), or utility and gini"
        )
    numbers = {name: real_number(name, value) for name, value in status_quo.items()}
    for name, number in numbers.items():
        if not np.isfinite(number):
            raise InvalidInput(f"{name} of the status quo is {number}; give a finite number")
    if "gini" not in numbers:
        return numbers["utility"], numbers["item_objective"]
    if not 0.0 <= numbers["gini"] <= 1.0:
        raise InvalidInput(f"gini is {numbers['gini']:g}; give a Gini index, from 0 to 1")
    value = reached.item_objective_at(numbers["gini"])
    if value is None:
        raise InvalidInput(
            f"{type(reached.items).__name__} is not a function of the Gini index; give "
            "item_objective, as in the table"
        )
    return numbers["utility"], float(value)


class _Search:
    """The bounds on R that are known, and the optima that make them closer."""

    def __init__(self, reached: Reachable, u0: float, g0: float, eps: float) -> None:
        self.reached, self.u0, self.g0, self.eps = reached, u0, g0, eps
        self.left = _SOLVES
        self.largest = _LARGEST * max(*reached.best, 1.0)
        self.fine: set[float] = set()  # betas whose optima were computed here

    def solve(self, beta: float) -> None:
        """Find the optimum of a beta, with a gap that is small beside eps."""
        size = max(1.0, abs(self.u0 + beta * self.g0))
        finest = max(_FINE * self.eps / size, _FINEST)
        try:
            self.reached = self.reached.more([beta], finest)
        except NumericalFailure:  # a wider gap leaves the bounds certain
            self.reached = self.reached.more([beta])
        self.fine.add(beta)
        self.left -= 1

    def lines(self) -> tuple[Vector, Vector]:
        """Slopes and heights of the affine lower bounds of R."""
        points = self.reached.frontier.points
        points = points[np.isfinite(points).all(axis=1)]
        return points[:, 0] - self.g0, points[:, 1] - self.u0

    def smallest(self) -> tuple[float, float, float]:
        """The beta of the smallest R, and bounds on that R; cutting planes."""
        while True:
            beta, low = self._lowest()
            upper = {b: _bounds(self.reached, b, self.u0, self.g0)[1] for b in self.reached.best}
            best = min(upper, key=upper.__getitem__)
            high = upper[best]
            close = high - low <= _FINE * self.eps or high < -self.eps
            if close or beta in self.fine or beta > self.largest or self.left <= 0:
                return best, min(low, high), high
            self.solve(beta)

    def _lowest(self) -> tuple[float, float]:
        """Where the lower bound of R is lowest, and how low; the next beta to try if it falls."""
        slopes, heights = self.lines()
        if slopes.max() <= 0.0:
            return 4.0 * max(*self.reached.best, 0.25), -np.inf
        at = np.concatenate([[0.0], _crossings(slopes, heights)])
        values = (heights[:, None] + at * slopes[:, None]).max(axis=0)
        return float(at[values.argmin()]), float(values.min())

    def ends(self) -> tuple[float, float] | None:
        """The interval of all betas with R <= eps, from outside; None if it turns out empty."""
        while True:
            low, high = self._within()
            if low > high:
                return None
            beta = self._unsettled(low, high)
            if beta is None or self.left <= 0:
                return low, high
            self.solve(beta)

    def _within(self) -> tuple[float, float]:
        """The betas at which all lower bounds are at most eps: an interval, empty if low > high."""
        slopes, heights = self.lines()
        rising, falling = slopes > 0.0, slopes < 0.0
        if (heights[slopes == 0.0] > self.eps).any():
            return np.inf, 0.0
        low = ((heights[falling] - self.eps) / -slopes[falling]).max(initial=0.0)
        high = ((self.eps - heights[rising]) / slopes[rising]).min(initial=np.inf)
        return float(low), float(high) if high <= self.largest else np.inf

    def _unsettled(self, low: float, high: float) -> float | None:
        """The end that is worth an optimum; None where both have settled."""
        beyond = 4.0 * max(*self.reached.best, 0.25)
        if high == np.inf and beyond <= self.largest:
            return beyond
        for end in (low, high):
            if 0.0 < end < np.inf and not any(abs(b - end) <= _NEAR * end for b in self.fine):
                return end
        return None


def _crossings(slopes: Vector, heights: Vector) -> Vector:
    """The betas > 0 at which two of the lines cross."""
    i, j = np.triu_indices(len(slopes), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        at = (heights[i] - heights[j]) / (slopes[j] - slopes[i])
    finite: Vector = at[np.isfinite(at) & (at > 0.0)]
    return finite


def _sentence(
    reached: Reachable,
    u0: float,
    tolerance: float,
    ends: tuple[float, float] | None,
    better: Better | None,
    bounds: tuple[float, float],
    nearest: float,
) -> str:
    what = reached.reward
    today = f"Today's {u0:.3g} {what}"
    if better is not None:
        return (
            f"{today} are dominated: no beta makes them the best, since some policy reaches the "
            f"same equality with {better.percent:.1f} % more {what} (certified; no policy has "
            f"more than {better.at_most:.1f} % more). The nearest beta is {nearest:.3g}."
        )
    if ends is None:
        over = -bounds[1]
        return (
            f"{today} are not attainable here: no policy that is as fair has more than "
            f"{u0 - over:.3g} {what} (certified). The status quo was measured elsewhere, or with "
            "noise; give a larger tolerance if it is noise."
        )
    noise = ""
    if bounds[1] < 0.0:
        noise = (
            f" They are {-bounds[1]:.2g} above what can be reached, which is within the noise "
            "that the tolerance allows for."
        )
    low, high = ends
    if low == 0.0 and high == np.inf:
        return f"{today} with this equality are the best for every beta.{noise}"
    which = f"beta between {low:.3g} and {high:.3g}"
    if high == np.inf:
        which = f"every beta from {low:.3g} on"
    elif low == 0.0:
        which = f"every beta up to {high:.3g}"
    return (
        f"{today} with this equality are the best for {which}; for any other beta something is "
        f"better by more than {100 * tolerance:g} % of {what} (certified).{noise}"
    )
