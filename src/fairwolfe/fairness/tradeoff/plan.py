"""`tradeoff`: what fairness costs, beside the best that any policy can reach."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from fairwolfe.bandits.optimism import Exploration
from fairwolfe.core.problem import positive, whole_number
from fairwolfe.core.streams import stream
from fairwolfe.environments.rankings import RankingWorld
from fairwolfe.errors import InvalidInput
from fairwolfe.fairness.tradeoff.optima import Optima
from fairwolfe.fairness.tradeoff.reachable import Reachable
from fairwolfe.fairness.tradeoff.refine import refined, spread
from fairwolfe.fairness.tradeoff.result import FAIR, FLOOR, TradeOff, name_of
from fairwolfe.objectives import (
    Concave,
    EqualExposure,
    GiniEquality,
    GiniWelfare,
    Minimum,
    Nash,
    TwoSided,
    Welfare,
)
from fairwolfe.objectives.combine import Sum, is_zero
from fairwolfe.objectives.concave import numbers
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank
from fairwolfe.simulation.compare import compare

__all__ = ["Plan", "apart", "item_objective", "plan", "tradeoff"]

_BETAS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
_SPREAD = 6  # betas that are played, where none are given
_NEAR = 1.3  # betas within this factor of each other are neighbours
_FLOORS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.95)  # of the largest that can be kept, n_slots/n_items
_OBJECTIVES: dict[str, Callable[..., Concave]] = {
    "equal-exposure": EqualExposure,
    "gini": GiniWelfare,
    "gini-equality": GiniEquality,
    "gini-welfare": GiniWelfare,
    "minimum": Minimum,
    "nash": Nash,
    "welfare": Welfare,
}
_WITH_NUMBER = ("nash", "welfare")


def item_objective(given: Concave | str) -> Concave:
    """An objective of the items by name: "gini", "nash", "welfare:0.5"; or the one given.

    >>> item_objective("gini"), item_objective("welfare:0.5")
    (GiniWelfare(), Welfare(alpha=0.5, offset=0.0))
    """
    if isinstance(given, Concave):
        return given
    name, _, number = str(given).partition(":")
    needed = name == "welfare"
    fits = name in _OBJECTIVES and bool(number or not needed)
    if fits and number:
        fits = name in _WITH_NUMBER and _is_number(number)
    if not isinstance(given, str) or not fits:
        known = ", ".join(n + ":0.5" * (n == "welfare") for n in _OBJECTIVES)
        raise InvalidInput(
            f"the objective is {given!r}; give one of fw.objectives, or a name: {known}"
        )
    return _OBJECTIVES[name](*([float(number)] if number else []))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def apart(items: Concave, n: int) -> tuple[Concave, Concave | None]:
    """An objective of n items without its hard constraints, and these; None if there are none.

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
    kept = Sum(tuple(whole)) if len(whole) > 1 else whole[0]
    return items.relaxed(), kept.on(*range(n))


@dataclass(frozen=True)
class Plan:
    """A trade-off to be explored, with everything checked; see `tradeoff`."""

    world: RankingWorld
    items: Concave
    betas: tuple[float, ...] | None
    floors: tuple[float, ...]
    horizon: int
    seeds: tuple[int, ...]
    exploration: Exploration
    jobs: int
    tolerance: float
    constraints: Concave | None = None  # of all coordinates

    @property
    def rounds(self) -> int:
        """Of everything that will be played."""
        return self.horizon * len(self.seeds) * (len(self.betas or ()) + len(self.floors))

    @property
    def optima(self) -> Optima:
        """Where the optima come from."""
        kept = (self.world, self.items, self.constraints)
        return Optima(*kept, self.seeds, self.tolerance, self.jobs)

    def policies(self) -> dict[str, Any]:
        """Every policy by name."""
        f, exploration = self.optima.objective, self.exploration
        fair: dict[str, Any] = {
            name_of(FAIR, beta): FWLinUCBRank(f(beta), exploration=exploration)
            for beta in self.betas or ()
        }
        return fair | {
            name_of(FLOOR, floor): FairLearnRank(floor, exploration=exploration)
            for floor in self.floors
        }

    def reach(self) -> Reachable:
        """The optima alone: of the betas, or of as many as the frontier needs."""
        problem = self.world.problem()
        bound = TwoSided(self.items).bind(problem)
        constraints = self.constraints
        reached = Reachable(
            problem=problem,
            items=bound.items if isinstance(bound, TwoSided) else self.items,
            best=self.optima.at({0.0, *(self.betas or ())}),
            constraints=None if constraints is None else constraints.bind(problem),
            optima=self.optima,
        )
        return reached if self.betas is not None else refined(reached)

    def aimed(self, reached: Reachable, *more: float) -> Plan:
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
            self.policies(),
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


def plan(
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
) -> Plan:
    """The checked arguments of `tradeoff`; nothing is computed yet."""
    if not isinstance(world, RankingWorld):
        raise InvalidInput(
            f"the world is {world!r:.80}; a trade-off of utility and exposure needs a world with "
            "rankings, such as FactorModel()"
        )
    problem = world.problem()
    room = (problem.n_slots or 0) / (problem.n_items or 1)
    given = tuple(round(part * room, 12) for part in _FLOORS) if floors is None else tuple(floors)
    several = None if betas is None else tuple(sorted(set(numbers("betas", betas))))
    items, constraints = apart(item_objective(objective), problem.n_items or 0)
    chosen = tuple(range(whole_number("seeds", seeds))) if isinstance(seeds, int) else tuple(seeds)
    draft = Plan(
        world,
        items,
        several,
        tuple(sorted(set(numbers("floors", given)))) if given else (),
        whole_number("horizon", horizon),
        chosen,
        exploration,
        whole_number("jobs", jobs),
        positive("tolerance", tolerance),
        constraints,
    )
    if not chosen:
        raise InvalidInput("seeds is empty; give a number of seeds, or some of them")
    for seed in chosen:
        stream(seed, "world")  # raises now if it is not a seed
    for policy in replace(draft, betas=several or (1.0,)).policies().values():
        policy.init(problem)
    return draft


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
    objective: of the items' exposures: "gini", "gini-equality", "equal-exposure", "welfare:0.5",
        "nash", "minimum", or one of fw.objectives. Hard constraints that are added to it, such as
        floors of producers, hold for every beta: the best possible is that of the policies that
        keep them, and tables show how far they are violated
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
    return plan(
        world,
        objective,
        betas,
        floors=floors,
        horizon=horizon,
        seeds=seeds,
        exploration=exploration,
        jobs=jobs,
        tolerance=tolerance,
    ).run(progress)
