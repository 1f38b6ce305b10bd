"""`AgentBase`: what the parts of an agent share."""

from __future__ import annotations

import logging
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.agent import forking
from fairwolfe.agent.ledger import Entry, Ledger
from fairwolfe.agent.log import DecisionLog
from fairwolfe.agent.names import ArmNames, Keys
from fairwolfe.agent.options import (
    stack_level,
)
from fairwolfe.core.decision import Batch
from fairwolfe.core.kinds import Kind
from fairwolfe.core.streams import Numbered
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Concave

__all__ = ["KEY", "AgentBase", "Leaving", "Undo", "logger", "one_of"]

KEY = 32  # bytes of the secret that signs decisions
_ROUNDING = 1.0 + 1e-9  # features that were scaled to the norm exceed it by less than this

logger = logging.getLogger("fairwolfe")
logger.addHandler(logging.NullHandler())  # silent by default


class Undo(NamedTuple):
    """What an interrupted answer needs to be finished or rolled back.

    One answer is applied by one call, which shows in `t`; several have a copy of all they change.
    """

    entries: list[Entry]
    t: int
    answered: int  # how many there are with these
    outside: int  # of all answers, those with a reward out of range
    state: Any = None  # before several answers
    ledger: Ledger | None = None
    outside_before: int = 0


class Leaving(NamedTuple):
    """A decision that is being taken out of the open ones."""

    entry: Entry
    batch: Batch
    open: int  # decisions that the policy counts as open with it
    expired: int  # that have expired with it


class AgentBase(ABC):
    """The policy of an agent with its state, its ledger, and what an interrupt may leave undone."""

    _bound: Concave | None
    _called: ArmNames | Keys | None
    _check_at: int
    _draws: Numbered
    _expires: int | None
    _forks: int
    _issuing: Batch | None
    _key: bytes  # signs the bytes of decisions
    _leaving: Leaving | None
    _ledger: Ledger
    _lock: threading.RLock
    _log: DecisionLog | None
    _orphans: list[Batch]  # issued, and kept from their caller by an interrupt
    _out_of_range: int
    _over_norm: int
    _refused: int
    _running: Any  # the policy with its state
    _undo: Undo | None
    _usual_norm: float
    _warned: set[str]
    _young: dict[int, Batch]  # open decisions that may expire

    __slots__ = (*__annotations__, "__weakref__")

    def _start(self, running: Any, ledger: Ledger, key: bytes) -> None:
        self._lock = threading.RLock()
        self._ledger, self._key = ledger, key
        self._out_of_range = self._refused = self._over_norm = self._forks = self._check_at = 0
        self._warned = set()
        self._undo = self._issuing = self._leaving = None
        self._orphans, self._young = [], {}
        self._called = self._log = None
        self._take(running)
        forking.register(self)

    def _take(self, running: Any) -> None:
        """Play this policy from now on, in this state."""
        self._running, self._bound = running, _bound_objective(running)
        self._usual_norm = running.kind.problem.feature_norm * _ROUNDING

    @property
    def _kind(self) -> Kind:
        kind: Kind = self._running.kind
        return kind

    @property
    def policy(self) -> Any:
        """The policy, with the current objective."""
        return self._running.policy

    @contextmanager
    def held(self) -> Iterator[Any]:
        """The running policy; nobody else acts on or updates the agent meanwhile."""
        with self._lock:
            self._recover()
            yield self._running

    @abstractmethod
    def _recover(self) -> None:
        """Make whole what an interrupt left."""

    def _retargeted(self, objective: Concave | None) -> Any:
        """The policy, for another objective if one is given."""
        policy = self.policy
        if objective is None:
            return policy
        if not hasattr(policy, "with_objective"):
            raise InvalidInput(
                f"the objective of {policy!r} cannot be replaced: it has no with_objective; "
                "make another agent"
            )
        return policy.with_objective(objective)

    def replace_objective(self, objective: Concave) -> None:
        """Maximise another f from now on; averages, estimates and open decisions stay."""
        if not isinstance(objective, Concave):
            raise InvalidInput(f"the objective is {objective!r:.80}; give one of fw.objectives")
        with self.held() as running:
            self._take(running.with_objective(self._retargeted(objective)))

    def _verify(self, batch: Batch) -> None:
        """Raise InvalidInput unless this agent has made the decisions."""
        if batch.key is not self._key:
            batch.verify(self._key, self._running.limit)

    def _warn_once(self, about: str, text: str) -> None:
        with self._lock:
            if about in self._warned:
                return
            self._warned.add(about)
        logger.warning(text)
        warnings.warn(text, stacklevel=stack_level())  # of the caller of act or update


def one_of(batch: Batch, number: int) -> Batch:
    """The decision of this number, as a batch of length one."""
    row = int(np.flatnonzero(batch.numbers == number)[0])
    return batch[row : row + 1]


def _bound_objective(running: Any) -> Concave | None:
    """f with its names resolved; None for policies that have none."""
    policy = running.policy
    objective = getattr(policy, "objective", None)
    if objective is None:
        return None
    if not isinstance(objective, Concave):
        raise InvalidInput(
            f"the objective of {policy!r} is {objective!r}; give one of fw.objectives"
        )
    if getattr(policy, "followed", None) is objective and hasattr(running, "objective"):
        return running.objective  # type: ignore[no-any-return]
    return objective.bind(running.kind.seen)
