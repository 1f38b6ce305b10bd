"""`AgentInputs`: the fields of an agent, and what people give to it besides feedback: contexts with
candidates, blocked and pinned items; items and their keys; objectives; the path of a log.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.agent.ledger import Ledger, register
from fairwolfe.agent.log_format import DecisionLog, Header
from fairwolfe.agent.names import (
    ArmNames,
    ItemKeys,
    has_keys,
    key_changes,
    keyed,
    named_rows,
    require_attributes,
    without_attributes,
)
from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.candidates import Catalogue, item_features, sizes, whole_ids
from fairwolfe.core.decision import Batch
from fairwolfe.core.interrupts import uninterrupted
from fairwolfe.core.kinds import Kind, Stack
from fairwolfe.core.problem import is_list
from fairwolfe.core.rankings import RankingKind
from fairwolfe.core.streams import Numbered
from fairwolfe.errors import InvalidInput, NumericalFailure
from fairwolfe.objectives import Concave
from fairwolfe.objectives.two_sided import grouped_by

_ROUNDING = 1.0 + 1e-9  # features that were scaled to the norm exceed it by less than this

Options = dict[str, Any]
Names = ArmNames | ItemKeys | None
Undo = tuple[Callable[..., None], tuple[Any, ...]]  # a function, and what to call it with

logger = logging.getLogger("fairwolfe")
logger.addHandler(logging.NullHandler())  # silent by default


class _Changed(NamedTuple):
    """A policy with other items, before it is played."""

    running: Any
    ids: IntVector  # of what was given
    fresh: Sequence[str] = ()  # keys of new items
    retired: Sequence[int] = ()


class AgentInputs(ABC):
    """The policy of an agent with its state, its ledger, its items and the contexts it is given."""

    _bound: Concave | None  # f with its names resolved
    _called: Names
    _check_at: int
    _draws: Numbered
    _expires: int | None
    _forks: int
    _key: bytes  # signs the bytes of decisions
    _known: dict[int, Any]  # rewards of decisions that wait for other stages, by number
    _ledger: Ledger
    _lock: threading.RLock
    _log: DecisionLog | None
    _orphans: list[Batch]  # issued, and kept from their caller by an interrupt
    _out_of_range: int
    _over_norm: int
    _refused: int
    _running: Any  # the policy with its state
    _undo: Undo | None  # finishes or rolls back a change that was interrupted
    _usual_norm: float
    _warned: set[str]
    _young: dict[int, Batch]  # open decisions that may expire

    __slots__ = (*__annotations__, "__weakref__")

    def _start(self, running: Any, ledger: Ledger, key: bytes) -> None:
        self._lock = threading.RLock()
        self._ledger, self._key = ledger, key
        self._out_of_range = self._refused = self._over_norm = self._forks = self._check_at = 0
        self._warned = set()
        self._orphans, self._young, self._known = [], {}, {}
        self._undo = self._called = self._log = None
        self._take(running)
        register(self)

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
        level, frame = 1, sys._getframe()  # up to the caller of act or update
        while frame.f_back is not None and _inside(frame):
            level, frame = level + 1, frame.f_back
        warnings.warn(text, stacklevel=level)

    # --- objectives ---------------------------------------------------------------------------

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
        with self.held():
            self._take(self._with_objective(objective))

    def _with_objective(self, objective: Concave) -> Any:
        if not isinstance(objective, Concave):
            raise InvalidInput(f"the objective is {objective!r:.80}; give one of fw.objectives")
        return self._running.with_objective(self._retargeted(objective))

    def check_change(
        self, items: Any = None, retired: Iterable[int | str] = (), objective: Any = None
    ) -> None:
        """Raise what `add_items`, `retire` or `replace_objective` would raise, or a decision after
        it, where f has no gradient at the average; nothing changes.
        """
        with self.held():
            if items is None and not retired:
                running = self._running
                if objective is not None:
                    running = self._with_objective(objective)
                _bound_objective(running)
                if hasattr(running, "direction"):
                    running.direction(self._draws)
                return
            more = items is not None
            changed = (
                self._with_more(items, objective) if more else self._with_fewer(retired, objective)
            )
            running = changed.running
            _bound_objective(running)
            if objective is not None and getattr(running, "directed", False):
                g = running.plan.tree.gradient(self._average_of(running), running.plan.width)
                if not np.isfinite(g).all():
                    raise NumericalFailure(
                        f"{objective} has no finite gradient where these items begin; smooth "
                        "it, or give it an offset"
                    )

    def _average_of(self, running: Any) -> Vector:
        """What f would be read at with the items of another policy: 0 for those that are new."""
        old, new = self._catalogue().ids, running.kind.catalogue.ids
        z, average = np.zeros(running.kind.seen.n_objectives), self._running.average
        _, before, after = np.intersect1d(old, new, assume_unique=True, return_indices=True)
        z[after], z[new.size :] = average[before], average[old.size :]
        return z

    # --- items --------------------------------------------------------------------------------

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
            return called.numbers(catalogue).copy() if isinstance(called, ItemKeys) else {}

    @property
    def features(self) -> Matrix:
        """The features of all items that there ever were, by id, (items, features of an item)."""
        with self._lock:
            return self._catalogue().features.T.copy()

    @property
    def attributes(self) -> list[dict[str, str]]:
        """The attributes of all items that there ever were, by id."""
        with self._lock:
            catalogue = self._catalogue()
            return [catalogue.attributes.of(i) for i in range(catalogue.total)]

    def labels(self, by: Iterable[str] | None = None) -> dict[str, tuple[str, ...]]:
        """Attribute -> the group of each of `items`, as `ByGroup` takes labels; by: the attributes,
        None: those by which f makes groups.
        """
        with self._lock:
            if not isinstance(self._kind, RankingKind):
                return {}
            f = getattr(self.policy, "followed", None)
            given = tuple(by) if by is not None else () if f is None else grouped_by(f)
            groups = self._kind.groups(given)
            return {} if groups is None else groups.labels

    @property
    def names(self) -> tuple[str, ...] | None:
        """What arms or items are called, by number, those of retired items too; None where they
        have no names.
        """
        return None if self._called is None else tuple(self._called.all)

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
            changed = self._with_more(features, objective)
            uninterrupted(partial(self._settle, changed))
            return changed.ids

    def _with_more(self, features: Any, objective: Concave | None) -> _Changed:
        """The policy with new items; under the lock."""
        old = self._catalogue().total
        features, attributes = without_attributes(features)
        if isinstance(self._called, ItemKeys) or has_keys(features):
            return self._with_keyed(features, attributes, objective)
        rows = item_features(features, self._kind.problem)
        attributes = attributes or [{} for _ in rows]
        names = range(old, old + len(rows))
        running = self._with_items(rows, names, attributes, objective, [])
        return _Changed(running, np.arange(old, old + len(rows)))

    def _with_items(
        self,
        rows: Matrix,
        names: Iterable[Any],
        attributes: list[dict[str, str]],
        objective: Concave | None,
        old: list[int],
    ) -> Any:
        """The policy with new items, called by `names` in errors, in place of the `old` ones."""
        policy = self._retargeted(objective)
        if hasattr(policy, "followed"):
            require_attributes(grouped_by(policy.followed), names, attributes)
        return self._running.add_items(policy, rows, np.array(old, np.int64), attributes)

    def _with_keyed(
        self, given: Any, attributes: list[dict[str, str]], objective: Concave | None
    ) -> _Changed:
        catalogue, called = self._catalogue(), self._called
        if not isinstance(called, ItemKeys):
            raise InvalidInput(
                "the items of this agent have no keys, so give the features alone; keys are for an "
                "agent that was made with items={key: features}"
            )
        if not has_keys(given):
            raise InvalidInput("the items of this agent have keys; give {key: features}")
        keys, rows = keyed(given, sizes(self._kind.problem)[1])
        attributes = attributes or [{} for _ in keys]
        ids, new, old_ids = key_changes(keys, rows, attributes, called, catalogue)
        if not new:
            running = self._running if objective is None else self._with_objective(objective)
            return _Changed(running, ids)
        fresh, own = [keys[row] for row in new], [attributes[row] for row in new]
        running = self._with_items(rows[new], fresh, own, objective, old_ids)
        return _Changed(running, ids, fresh, old_ids)

    def retire(self, ids: Iterable[int | str], objective: Concave | None = None) -> None:
        """These items are not shown any more; f is of the others. Feedback may still come."""
        with self.held():
            uninterrupted(partial(self._settle, self._with_fewer(ids, objective)))

    def _with_fewer(self, ids: Iterable[int | str], objective: Concave | None) -> _Changed:
        """The policy without these items; under the lock."""
        listed: Any = ids
        catalogue = self._catalogue()
        if isinstance(self._called, ItemKeys):
            listed = self._called.ids("ids", ids, catalogue)
        numbers = whole_ids("ids", listed)
        running = self._running.retire_items(self._retargeted(objective), numbers)
        return _Changed(running, numbers, (), numbers.tolist())

    def _settle(self, changed: _Changed) -> None:
        """Play a policy with other items, which may share memory with the one before. Under the
        lock, and whole.
        """
        old = self._catalogue()
        self._take(changed.running)
        changed.running.settle()
        if isinstance(self._called, ItemKeys):
            self._called.change(old, self._catalogue(), changed.fresh, changed.retired)

    def _catalogue(self) -> Catalogue:
        if not isinstance(self._kind, RankingKind):
            has = "arms" if self._kind.name == "arms" else f"decisions of kind {self._kind.name!r}"
            raise InvalidInput(f"the problem has {has}; items are for Problem.ranking(...)")
        return self._kind.catalogue

    # --- contexts -----------------------------------------------------------------------------

    def _read_context(self, context: Any, options: Options) -> Any:
        """The checked context; under the lock, since items may change."""
        running = self._running
        if not running.reads:
            self._refuse_options(options)
        given = running.kind.read(context, **options)
        if not given.norm <= self._usual_norm:
            self._check_norm(given, warn=True)
        return given if running.reads else context

    def _read_contexts(
        self, contexts: Any, options: list[Options], warn: bool
    ) -> tuple[Stack, list[Names] | None]:
        """Contexts in a row, checked, and their names; under the lock. warn: whether large
        features are counted and warned of.
        """
        contexts, options, called = self._numbered_many(contexts, options)
        reads = self._running.reads
        if not reads:
            for one in options:
                self._refuse_options(one)
        stack = self._kind.read_many(contexts, options)
        if not stack.norm <= self._usual_norm:
            self._check_norm(stack, warn)
        return stack if reads else stack._replace(given=list(contexts)), called

    def _given(self, stack: Stack, i: int) -> Any:
        """One of several contexts, as the policy takes it."""
        return self._kind.single(stack, i) if self._running.reads else stack.given[i]

    def _numbered(self, context: Any, options: Options) -> tuple[Any, Options, Names]:
        """A context and its options, with numbers for names where the kind has none, and the
        names.
        """
        called = self._called
        if isinstance(context, Mapping):
            known = called if isinstance(called, ArmNames) else None
            context, called = named_rows(context, self._kind.problem, known)
        if called is not None:
            catalogue = self._kind.catalogue if isinstance(self._kind, RankingKind) else None
            options = called.options(options, catalogue)
        return context, options, called

    def _numbered_many(
        self, contexts: Any, options: list[Options]
    ) -> tuple[Any, list[Options], list[Names] | None]:
        """`_numbered` for each of them."""
        called = self._called
        plain = isinstance(contexts, np.ndarray) and not options
        if called is None and (plain or not any(isinstance(one, Mapping) for one in contexts)):
            return contexts, options, None
        fits = isinstance(called, ItemKeys) or (
            plain and called is not None and contexts.shape[1:2] == (len(called.all),)
        )
        if plain and fits:
            return contexts, options, [called] * len(contexts)
        each = []
        for i, context in enumerate(contexts):
            try:
                each.append(self._numbered(context, options[i] if options else {}))
            except InvalidInput as error:
                raise InvalidInput(f"context {i}: {error}") from error
        read, converted, names = map(list, zip(*each, strict=True)) if each else ([], [], [])
        return read, converted if any(converted) else [], names

    def _refuse_options(self, options: Options) -> None:
        extra = [name for name in options if name != "names"]
        if extra:
            raise InvalidInput(
                f"{self.policy!r} takes contexts as they are, without {' and '.join(extra)}; "
                "use a policy that has `kind`, such as FrankWolfe"
            )

    def _check_norm(self, given: Any, warn: bool) -> None:
        """Raise for features that would make the regression inaccurate; warn once for others."""
        stated, limit = self._kind.problem.feature_norm, self._running.limit
        if not given.norm <= limit:
            raise InvalidInput(
                f"{given.largest()}; the problem states a norm of at most {stated:g}, and from "
                f"more than {limit:g} nothing can be learnt: scale the features, or state "
                "a larger feature_norm in the problem"
            )
        if warn:
            self._warn_once(
                "features",
                f"features of norm {given.norm:.4g} were given; the problem states at most "
                f"{stated:g}, and confidence widths depend on it: scale the features, or give "
                "Problem a larger feature_norm (reported once)",
            )
            self._over_norm += 1

    # --- the log of decisions ------------------------------------------------------------------

    def log(self, path: str | os.PathLike[str] | None) -> None:
        """From now on append every decision that is answered, with its context, to this file: what
        `fw.offpolicy.Log.of(path)` reads, JSON Lines as in `fairwolfe.agent.log_format`. None ends
        it.

        A log of the same problem is continued; another path continues there with all open
        decisions. The context of an open decision is kept in memory until it is answered or
        expires. Decisions made before the call have no context here, and are counted in `stats()`
        as unlogged. A log belongs to the process: a loaded agent and a
        forked child have none until they are given one.
        """
        with self.held():
            log = None
            if path is not None:
                log = DecisionLog(path, self._kind, self._mark(), self._header())
            if self._log is not None:
                if log is not None:
                    log.take_over(self._log)
                self._log.close()
            self._log = log

    def _mark(self) -> tuple[Any, ...]:
        """What the header of the log is made of: the same objects while it holds."""
        return self._running.policy, self._kind.problem, self._called

    def _header(self) -> Header:
        """What is true of the rows of the log that follow."""
        kind = self._kind
        objective = None if self._bound is None else repr(self.policy.objective)
        problem, policy = kind.problem, repr(self.policy)
        if not isinstance(kind, RankingKind):
            return Header(problem, objective, policy, arms=self.arms)
        kept = kind.catalogue.features
        features = kept.T.copy() if kept.shape[1] else None
        return Header(problem, objective, policy, self.names, features)

    def _remember(
        self, log: DecisionLog, context: Any, given: Any, called: Names, i: int = 0
    ) -> None:
        """Keep the context of the i-th decision that is made next, for the log, until it is
        answered. Under the lock.
        """
        if isinstance(context, Mapping):
            context, _ = named_rows(context, self._kind.problem)
        names = None
        if isinstance(called, ArmNames) and called is not self._called:
            names = called.all
        checked = given if self._running.reads else self._kind.read(context)
        log.remember_context(self._ledger.issued + i, self._kind, context, checked, names)

    def _remember_many(
        self, log: DecisionLog, stack: Stack, contexts: Any, called: Sequence[Any] | None
    ) -> None:
        """The same for decisions made together."""
        some = isinstance(stack.given, list)
        if not some and not isinstance(self._kind, RankingKind):
            some = stack.given.places is not None  # and the others belong to the context too
        if isinstance(contexts, np.ndarray) and not some:
            log.remember_contexts(self._ledger.issued, self._kind, stack)
            return
        for i in range(stack.rows):
            own = None if called is None else called[i]
            self._remember(log, contexts[i], self._given(stack, i), own, i)


def _inside(frame: Any) -> bool:
    """Whether a frame of the stack is of this package."""
    return str(frame.f_globals.get("__name__", "")).startswith("fairwolfe.")


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


def context_options(candidates: Any, blocked: Any, pinned: Any) -> Options:
    """The options of a context that were given."""
    options: Options = {}
    if candidates is not None:
        options["candidates"] = candidates
    if not (isinstance(blocked, tuple) and not blocked):
        options["blocked"] = blocked
    if pinned is not None and not _empty(pinned):
        options["pinned"] = pinned
    return options


def contexts_with_options(
    contexts: Any, advance: Any, candidates: Any, blocked: Any, pinned: Any
) -> tuple[Any, list[Options]]:
    """Contexts as a list or an array, and the options of each; no options where none has any."""
    if type(contexts) is not np.ndarray and isinstance(contexts, Mapping):
        raise InvalidInput(f"the contexts are {contexts!r:.80}; give a list of contexts")
    if not (advance is None or isinstance(advance, bool)):
        raise InvalidInput(f"advance is {advance!r}; give None, True or False")
    contexts = many("contexts", contexts)
    if candidates is None and blocked is None and pinned is None:
        return contexts, []
    options: list[Options] = [{} for _ in range(len(contexts))]
    given = {"candidates": candidates, "blocked": blocked, "pinned": pinned}
    for name, values in given.items():
        each = () if values is None else _by_row(name, values, len(contexts))
        for i, value in enumerate(each):
            if value is not None and (name == "candidates" or not _empty(value)):
                options[i][name] = value
    return contexts, options if any(options) else []


def many(name: str, given: Any) -> Any:
    """An array as it is, and a list of anything else that can be one."""
    if type(given) is np.ndarray and given.ndim:
        return given
    if not is_list(given):
        raise InvalidInput(f"the {name} are {given!r:.80}; give a list of {name}")
    return given if isinstance(given, np.ndarray) else list(given)


def _empty(given: Any) -> bool:
    """Whether it is a list or a mapping without anything in it."""
    return is_list(given) and isinstance(given, Sized) and len(given) == 0


def _by_row(name: str, values: Any, rows: int) -> list[Any]:
    """The option of each context: one mapping or list for all of them, or one for each."""
    if isinstance(values, Mapping):
        return [values] * rows
    if not is_list(values):
        raise InvalidInput(f"{name} is {values!r:.80}; give a list, or a list for each context")
    listed = list(values)
    if not any(one is None or is_list(one) for one in listed):
        return [listed] * rows
    if len(listed) != rows:
        raise InvalidInput(f"{name} has {len(listed)} lists for {rows} contexts; give one each")
    plain = (str, Mapping, np.ndarray)  # what is not a list is for the kind to judge
    return [list(one) if is_list(one) and not isinstance(one, plain) else one for one in listed]
