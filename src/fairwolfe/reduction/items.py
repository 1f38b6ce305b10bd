"""Items that arrive and leave while a ranking policy runs.

Every item keeps its own clock: its exposure is averaged over the decisions since its arrival, so
that one that comes late is treated as a day-one item was, and f sees the items of the moment only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.catalogue import Catalogue, find, item_features
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput
from fairwolfe.reduction.frank_wolfe import FrankWolfe, State

__all__ = ["add_items", "empty_state", "keep_items", "retire_items"]


def add_items(policy: FrankWolfe, state: State, features: Matrix) -> State:
    """The state with more items, the last ids; features (new, q)."""
    old, count = state.plan.problem.n_items or 0, len(features)
    problem = replace(state.plan.problem, n_items=old + count)
    base = state.plan.base.with_items(state.base, features)
    plan = policy.plan(problem, base.catalogue)

    def longer(vector: Vector) -> Vector:
        return np.concatenate([vector[:old], np.zeros(count), vector[old:]])

    return State(
        plan,
        longer(state.totals),
        longer(state.earned),
        longer(state.clocks),
        longer(state.direction),
        state.counters.copy(),
        base,
        state.live.anew(plan.watch.problem.n_objectives),
    )


def retire_items(policy: FrankWolfe, state: State, ids: IntVector) -> State:
    """The state in which these items are not shown any more, nor seen by f."""
    catalogue = state.base.catalogue
    find(catalogue, ids, "item")
    problem = state.plan.problem
    left = catalogue.ids.size - np.unique(ids).size
    if left < (problem.n_slots or 0):
        raise InvalidInput(
            f"{ids.size} items are to be retired and {left} would be left for {problem.n_slots} "
            "slots; add items first"
        )
    retired = state.base.retired.copy()
    retired[ids] = 1.0
    left_over = rebound(policy, state._replace(base=state.base._replace(retired=retired)))
    n = left_over.plan.watch.problem.n_objectives
    return left_over._replace(live=state.live.anew(n))


def keep_items(policy: FrankWolfe, state: State, features: Any) -> State:
    """The state that keeps the features of its items, so that contexts need not bring them."""
    problem = state.plan.problem
    if problem.n_items is None:
        raise InvalidInput("the problem has arms; items are for Problem.ranking(...)")
    rows = item_features(features, problem, problem.n_items)
    base = state.base._replace(features=np.ascontiguousarray(rows.T))
    return rebound(policy, state._replace(base=base))


def rebound(policy: FrankWolfe, state: State) -> State:
    """The state with its plan made anew for the items that it has."""
    return state._replace(plan=policy.plan(state.plan.problem, state.base.catalogue))


def empty_state(policy: FrankWolfe, problem: Problem, retired: Vector, features: Matrix) -> State:
    """A fresh state of the shape of one with these items, to be filled."""
    catalogue = Catalogue(np.flatnonzero(retired == 0.0), features, retired.size)
    state = policy.init(problem, catalogue)
    return state._replace(base=state.base._replace(features=np.zeros_like(features)))
