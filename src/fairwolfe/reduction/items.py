"""Items that are added and retired, in a state of the reduction.

Every item is averaged over its own time; f sees the items that are left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.catalogue import NONE, Catalogue, find, item_features
from fairwolfe.core.kinds import Kind, kind_of
from fairwolfe.core.problem import Problem
from fairwolfe.core.protocols import HoldsItems
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.waiting import grown as grown_waiting
from fairwolfe.kinds import Ranking
from fairwolfe.reduction.state import State, carried_prices

if TYPE_CHECKING:
    from fairwolfe.reduction.frank_wolfe import FrankWolfe

__all__ = ["add_items", "keep_items", "resume", "retire_items"]


def add_items(
    policy: FrankWolfe, state: State, features: Matrix, instead: IntVector = NONE
) -> State:
    """The state with more items, the last ids, `instead` of those that are retired with it, at most
    as many; features (new, q).
    """
    ranking, base = _holding(state.plan.kind, state.plan.base)
    old, count = ranking.catalogue.total, len(features)
    longer = base.with_items(state.base, features)
    if instead.size:
        longer = base.without_items(longer, instead)
    plan = policy.plan(ranking.holding(base.catalogue(longer)))

    def grown(vector: Vector) -> Vector:
        return np.concatenate([vector[:old], np.zeros(count), vector[old:]])

    return State(
        plan,
        grown(state.totals),
        grown(state.earned),
        grown(state.clocks),
        grown(state.direction),
        state.counters.copy(),
        longer,
        state.live.anew(plan.kind.seen.n_objectives),
        grown_waiting(state.waiting, state.totals.size, old, count),
        carried_prices(state, plan),
    )


def retire_items(policy: FrankWolfe, state: State, ids: IntVector) -> State:
    """The state in which these items are not shown any more, nor seen by f."""
    ranking, base = _holding(state.plan.kind, state.plan.base)
    find(ranking.catalogue, ids, "item")
    left = ranking.catalogue.ids.size - np.unique(ids).size
    if left < ranking.n_slots:
        raise InvalidInput(
            f"{ids.size} items are to be retired and {left} would be left for {ranking.n_slots} "
            "slots; add items first"
        )
    rebound = _rebound(policy, state, base.without_items(state.base, ids))
    return rebound._replace(live=state.live.anew(rebound.plan.kind.seen.n_objectives))


def keep_items(policy: FrankWolfe, state: State, features: Any) -> State:
    """The state that keeps the features of its items, so that contexts need not bring them."""
    ranking, base = _holding(state.plan.kind, state.plan.base)
    rows = item_features(features, ranking.problem, ranking.catalogue.total)
    return _rebound(policy, state, base.with_features(state.base, rows))


def resume(policy: FrankWolfe, problem: Problem, arrays: Mapping[str, Any]) -> State:
    """A fresh state of the shape of the one that these arrays were saved from."""
    kind = kind_of(problem)
    if not (isinstance(kind, Ranking) and isinstance(policy.base, HoldsItems)):
        return policy.init(problem)
    retired, features = arrays["state.base.retired"], arrays["state.base.features"]
    catalogue = Catalogue(np.flatnonzero(retired == 0.0), features, retired.size)
    plan = policy.plan(kind.holding(catalogue))
    return policy.fresh(plan, plan.base.resume(problem, catalogue))


def _rebound(policy: FrankWolfe, state: State, base: Any) -> State:
    """The state with a new plan for the items that its base has."""
    ranking, holder = _holding(state.plan.kind, state.plan.base)
    plan = policy.plan(ranking.holding(holder.catalogue(base)))
    return state._replace(plan=plan, base=base, prices=carried_prices(state, plan))


def _holding(kind: Kind, base: Any) -> tuple[Ranking, HoldsItems]:
    """The kind and the base, where these have items that can be added and retired."""
    if not isinstance(kind, Ranking):
        raise InvalidInput("the problem has arms; items are for Problem.ranking(...)")
    if not isinstance(base, HoldsItems):
        raise InvalidInput(f"{base!r} has a fixed set of items; use one such as LinUCBRank()")
    return kind, base
