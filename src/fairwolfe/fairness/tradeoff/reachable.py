"""`Reachable`: the best trade-offs of a world, and help in choosing one of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.brief import Brief, Summary, count
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput
from fairwolfe.fairness.tradeoff.frontier import Frontier
from fairwolfe.fairness.tradeoff.optima import Optima
from fairwolfe.objectives import Concave, GiniEquality, GiniWelfare, TwoSided
from fairwolfe.simulation.exposure import each, fairness_of
from fairwolfe.truth.optimum import Optimum

if TYPE_CHECKING:
    from fairwolfe.fairness.tradeoff.give_up import GivenUp
    from fairwolfe.fairness.tradeoff.implied import Implied, StatusQuo

__all__ = ["Reachable"]


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
        """With more betas, up to where gains end, until neighbours are close on the frontier."""
        from fairwolfe.fairness.tradeoff.refine import refined

        return refined(self)

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
        from fairwolfe.fairness.tradeoff.implied import regret

        return regret(self, status_quo, beta)

    def implied(self, status_quo: StatusQuo, tolerance: float = 1e-3) -> Implied:
        """Which betas make today's average optimal, certified; or by how much it is dominated.

        Parameters
        ----------
        status_quo: ``{"utility": u, "item_objective": g}``; ``{"utility": u, "gini": index}`` where
            the objective is a function of the Gini index; or the whole average reward vector
        tolerance: how far below the optimum the status quo may be and still count as optimal, as
            a part of the most utility
        """
        from fairwolfe.fairness.tradeoff.implied import implied

        return implied(self, status_quo, tolerance)

    def by_group(
        self, labels: Iterable[Hashable], betas: Sequence[float] | None = None
    ) -> list[dict[str, Any]]:
        """Who gains and who loses: exposure and utility of groups of items, with a label each.

        A row for each group and beta (None: all of `best`), with the changes beside beta = 0, which
        are None for a group that had nothing there.
        """
        from fairwolfe.fairness.tradeoff.groups import by_group

        return by_group(self, labels, betas)

    def give_up(self, share: float) -> GivenUp:
        """The largest beta that costs at most this share of the most utility."""
        from fairwolfe.fairness.tradeoff.give_up import give_up

        return give_up(self, share)
