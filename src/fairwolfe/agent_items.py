"""What an agent that ranks does with its items: which may be shown, which come, which leave."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from fairwolfe.answers import Answers
from fairwolfe.candidates import Candidates, Catalogue, candidates, item_features, whole_ids
from fairwolfe.errors import InvalidInput
from fairwolfe.ledger import Ledger
from fairwolfe.objectives import Concave
from fairwolfe.problem import Problem
from fairwolfe.protocols import IntVector
from fairwolfe.reduction.items import add_items, retire_items

__all__ = ["ItemsOfAgent", "bound_objective"]


class ItemsOfAgent:
    """The part of `Agent` that is about items."""

    _answers: Answers
    _before: Any
    _bound: Concave | None
    _commits: bool
    _forks: int
    _ledger: Ledger
    _limit: float
    _lock: threading.RLock
    _out_of_range: int
    _over_norm: int
    _pending: Any
    _policy: Any
    _problem: Problem
    _refused: int
    _rng: np.random.Generator
    _state: Any
    _warm: bool
    _warned: set[str]

    __slots__ = (*__annotations__, "__weakref__")

    @property
    def items(self) -> IntVector:
        """Ids of the items that can be shown, ascending; exposures in `average` have this order."""
        with self._lock:
            return self._catalogue().ids.copy()

    def add_items(self, features: Any, objective: Concave | None = None) -> IntVector:
        """New items, by their features (new, features of an item); their ids.

        Each is averaged over its own time, so that it is treated as a day-one item was. An
        objective of a fixed length needs one for the new length: pass it. Features are kept if the
        agent keeps those of the others (`items=`), else contexts bring a row for each of `items`.
        """
        with self._lock:
            old = self._catalogue().total
            rows = item_features(features, self._problem)
            self._change_items(lambda shell, state: add_items(shell, state, rows), objective)
            return np.arange(old, old + len(rows))

    def retire(self, ids: Iterable[int], objective: Concave | None = None) -> None:
        """These items are not shown any more; f is of the others. Feedback may still come."""
        with self._lock:
            self._catalogue()
            gone = whole_ids("ids", ids)
            self._change_items(lambda shell, state: retire_items(shell, state, gone), objective)

    def _with_objective(self, objective: Concave) -> Any:
        if not hasattr(self._policy, "with_objective"):
            raise InvalidInput(
                f"the objective of {self._policy!r} cannot be replaced: it has no with_objective; "
                "make another agent"
            )
        return self._policy.with_objective(objective)

    def _catalogue(self) -> Catalogue:
        if self._problem.n_items is None:
            raise InvalidInput("the problem has arms; items are for Problem.ranking(...)")
        kept: Catalogue = self._state.plan.catalogue
        return kept

    def _change_items(self, change: Callable[[Any, Any], Any], objective: Concave | None) -> None:
        policy = self._policy if objective is None else self._with_objective(objective)
        state = change(getattr(policy, "shell", policy), self._state)
        problem = state.plan.problem
        bound, answers = bound_objective(policy, problem, state), Answers(problem)
        self._policy, self._state, self._problem = policy, state, problem
        self._bound, self._answers, self._warm = bound, answers, False

    def _ranked(
        self,
        context: Any,
        only: Iterable[int] | None = None,
        blocked: Iterable[int] = (),
        pinned: Mapping[int, int] | None = None,
    ) -> Candidates:
        """Under the lock: the items may change."""
        return candidates(
            context, self._problem, self._catalogue(), only=only, blocked=blocked, pinned=pinned
        )


def bound_objective(policy: Any, problem: Problem, state: Any) -> Concave | None:
    """f with its names resolved; None for rankers that have none."""
    objective = getattr(policy, "objective", None)
    if objective is None and getattr(policy, "ranks", False):
        return None
    if not isinstance(objective, Concave):
        raise InvalidInput(
            f"the objective of {policy!r} is {objective!r}; give one of fw.objectives"
        )
    return state.plan.objective if problem.n_items else objective.bind(problem)
