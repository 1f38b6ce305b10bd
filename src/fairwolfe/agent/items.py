"""`Items`: those of an agent that ranks, which come and go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fairwolfe.agent.base import AgentBase
from fairwolfe.agent.names import ArmNames, Keys, changes, has_keys, keyed
from fairwolfe.core.arrays import IntVector, Matrix
from fairwolfe.core.catalogue import Catalogue, item_features, sizes, whole_ids
from fairwolfe.errors import InvalidInput
from fairwolfe.kinds import Ranking
from fairwolfe.objectives import Concave

__all__ = ["Items"]


class Items(AgentBase):
    """The items of an agent, by id and key, and the names of its arms."""

    __slots__ = ()

    @property
    def items(self) -> IntVector:
        """Ids of the items that can be shown, ascending; exposures in `average` have this order."""
        with self._lock:
            return self._catalogue().ids.copy()

    @property
    def keys(self) -> dict[str, int]:
        """Key -> id of the items that can be shown; empty where they have no keys."""
        with self._lock:
            catalogue, called = self._catalogue(), self._called
            return called.numbers(catalogue).copy() if isinstance(called, Keys) else {}

    @property
    def features(self) -> Matrix:
        """The features of all items that there ever were, by id, (items, features of an item)."""
        with self._lock:
            return self._catalogue().features.T.copy()

    @property
    def names(self) -> tuple[str, ...] | None:
        """What arms or items are called, by number, those of retired items too; None where they
        have no names.
        """
        return None if self._called is None else self._called.all

    @property
    def arms(self) -> tuple[str, ...] | None:
        """The names of the arms, where they were given with the agent."""
        return self._called.all if isinstance(self._called, ArmNames) else None

    def add_items(self, features: Any, objective: Concave | None = None) -> IntVector:
        """New items, by their features (new, features of an item); their ids.

        Each is averaged over its own time, so that it is treated as a day-one item was. An
        objective of a fixed length needs one for the new length: pass it. Features are kept if the
        agent keeps those of the others (`items=`), else contexts bring a row for each of `items`.

        Where items have keys, give a mapping key -> features, or pairs. A key that can be shown
        with the same features stays as it is, and its id comes back; with other features the old
        item is retired and a new one takes its key. The key of a retired item may come again.
        """
        with self.held():
            old = self._catalogue().total
            if isinstance(self._called, Keys) or has_keys(features):
                return self._add_keyed(features, objective)
            rows = item_features(features, self._kind.problem)
            self._take(self._running.add_items(self._retargeted(objective), rows))
            return np.arange(old, old + len(rows))

    def _add_keyed(self, given: Any, objective: Concave | None) -> IntVector:
        """Under the lock."""
        catalogue, called = self._catalogue(), self._called
        if not isinstance(called, Keys):
            raise InvalidInput(
                "the items of this agent have no keys, so give the features alone; keys are for an "
                "agent that was made with items={key: features}"
            )
        if not has_keys(given):
            raise InvalidInput("the items of this agent have keys; give {key: features}")
        keys, rows = keyed(given, sizes(self._kind.problem)[1])
        ids, new, old_ids = changes(keys, rows, called, catalogue)
        if new:
            instead = (np.array(old_ids),) if old_ids else ()
            running = self._running.add_items(self._retargeted(objective), rows[new], *instead)
            # Names of items that are not there do no harm, should an interrupt come between.
            self._called = called.extended(catalogue.total, (keys[row] for row in new))
            self._take(running)
        elif objective is not None:
            self.replace_objective(objective)
        return ids

    def retire(self, ids: Iterable[int | str], objective: Concave | None = None) -> None:
        """These items are not shown any more; f is of the others. Feedback may still come."""
        with self.held():
            catalogue = self._catalogue()
            listed: Any = ids
            if isinstance(self._called, Keys):
                listed = self._called.ids("ids", ids, catalogue)
            numbers = whole_ids("ids", listed)
            self._take(self._running.retire_items(self._retargeted(objective), numbers))

    def _catalogue(self) -> Catalogue:
        if not isinstance(self._kind, Ranking):
            has = "arms" if self._kind.name == "arms" else f"decisions of kind {self._kind.name!r}"
            raise InvalidInput(f"the problem has {has}; items are for Problem.ranking(...)")
        return self._kind.catalogue
