"""`Agent`: a policy at work, the only thing in this library that changes."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from copy import deepcopy
from importlib.metadata import version
from itertools import takewhile
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from fairwolfe.agent import file as agent_file
from fairwolfe.agent.file import array_of, arrays_of, filled, parts_of
from fairwolfe.agent.ledger import Entry, Ledger
from fairwolfe.agent.log import DecisionLog
from fairwolfe.agent.names import (
    ArmNames,
    Keys,
    arm_names,
    changes,
    has_keys,
    keyed,
    named_rows,
)
from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.batch import Batch
from fairwolfe.core.catalogue import Catalogue, item_features, sizes, whole_ids
from fairwolfe.core.decision import Choice, Decision
from fairwolfe.core.feedback import Shown
from fairwolfe.core.interrupts import uninterrupted
from fairwolfe.core.kinds import Answer, Answers, Kind, Stack, kind_of
from fairwolfe.core.packing import pack, unpack
from fairwolfe.core.problem import Problem, is_list, whole_number
from fairwolfe.core.protocols import (
    ActsInBatches,
    Averages,
    Compiled,
    Constrains,
    Counts,
    Expects,
    HasItems,
    KeepsPrices,
    Mends,
    Pursues,
    Reads,
    Recounts,
    Recovers,
    Reports,
    Retargets,
    Studies,
    Surveys,
)
from fairwolfe.core.streams import Numbered
from fairwolfe.data.decisions import Header
from fairwolfe.errors import FairwolfeError, IncompatibleState, InvalidInput, NumericalFailure
from fairwolfe.kernels.compile import ready
from fairwolfe.kernels.limits import row_limit
from fairwolfe.kinds import Ranking
from fairwolfe.kinds.rewards import finite_number
from fairwolfe.objectives import Concave
from fairwolfe.ranking.policies import as_policy
from fairwolfe.reduction.batches import each as batches_each
from fairwolfe.reduction.frank_wolfe import FrankWolfe
from fairwolfe.reduction.live import Live

__all__ = ["Agent"]

_ROUNDING = 1.0 + 1e-9  # features that were scaled to the norm exceed it by less than this
_DRIFT = 1e-6  # of the kept inverse between two refreshes; more is worth a warning
_NOW_AND_THEN = 1024  # answers between two checks of the drift
_MOST_NODES = 2**32 - 1
_FORK_SECONDS = 10.0  # how long a fork waits for an agent that another thread is using

logger = logging.getLogger("fairwolfe")
logger.addHandler(logging.NullHandler())  # silent by default


Pending: TypeAlias = tuple[Entry, int | None, int, int]
"""An answer that is being applied: its entry, t of the state before, and how many answers, and how
many out of range, there are with it. Enough to finish, or to see that nothing has happened."""


Leaving: TypeAlias = tuple[Entry, Decision, int, int]
"""A decision that is being taken out of the open ones: its entry, how many were open with it, and
how many have expired with it."""


class Before(NamedTuple):
    """All that a batch of answers may change, as it was."""

    state: Any
    arrays: dict[str, Any] | None  # None for a state of other things: it is a copy itself
    ledger: Ledger
    out_of_range: int
    earned: Vector | None


class Agent:
    """A policy with its state and its generator: it acts, and learns from feedback.

    Feedback may come late and in any order, once for each decision: an error changes
    nothing, and what is interrupted (Ctrl-C) has happened whole or not at all. Safe to use from
    several threads. Memory does not grow while feedback comes, and by one bit for each decision
    made after one that is never answered.

    An agent is one process: what another process learns it does not see. A forked child continues
    with its own ids and random draws.

    Parameters
    ----------
    policy: such as ``FrankWolfe(objective, base)``
    problem: what is decided, and the rewards with their ranges
    seed: of the policy's draws, a whole number of at least 0. Decision n draws the same numbers
        whatever came before it
    node: the number of the process, from 0 on: agents with one seed and other nodes draw others
    expires: after so many further decisions one that has no feedback yet gets none any more: what
        was expected of it is removed, and feedback raises an error. None: never
    items: for rankings, the features of the items by id, (n_items, features of an item): contexts
        then need the user alone. A mapping key -> features, or pairs, gives the items keys, texts
        by which they may be named wherever ids may
    arms: the names of the arms, in the order of every context
    token: what the ids of its decisions begin with, instead of a random text: for who keeps a log
        of all that an agent does, and does it again after a restart, under the same ids

    >>> from fairwolfe import FrankWolfe
    >>> from fairwolfe.bandits import LinUCB
    >>> from fairwolfe.objectives import Minimum
    >>> problem = Problem.arms(2, {"clicks": (0, 1), "saves": (0, 1)})
    >>> agent = Agent(FrankWolfe(Minimum(), LinUCB()), problem)
    >>> first, second = agent.act([[1.0, 0.0], [0.0, 1.0]]), agent.act([[0.0, 1.0]])
    >>> agent.update(second, {"clicks": 1, "saves": 0})
    >>> agent.update(first, [0.0, 1.0])
    >>> agent.t, agent.average.tolist(), agent.value
    (2, [0.5, 0.5], 0.5)
    """

    _awaits: bool
    _batches: bool
    _before: Before | None
    _bound: Concave | None
    _called: ArmNames | Keys | None
    _check_at: int
    _commits: bool
    _draws: Numbered
    _earned: Vector | None
    _expires: int | None
    _forks: int
    _issuing: Sequence[Decision] | None
    _orphans: list[Sequence[Decision]]  # issued, and kept from their caller by an interrupt
    _kind: Kind
    _leaving: Leaving | None
    _ledger: Ledger
    _limit: float
    _lock: threading.RLock
    _log: DecisionLog | None
    _mends: bool
    _names: bool
    _out_of_range: int
    _over_norm: int
    _parts: tuple[Any, list[tuple[str, Any]]]  # a state, and what it is made of
    _pending: Pending | None
    _policy: Any
    _reads: bool
    _recounts: bool
    _refused: int
    _state: Any
    _usual_norm: float
    _warm: bool
    _warned: set[str]
    _young: dict[int, Decision | Batch]

    __slots__ = (*__annotations__, "__weakref__")

    def __init__(
        self,
        policy: Any,
        problem: Problem,
        seed: int = 0,
        items: Any = None,
        *,
        node: int = 0,
        expires: int | None = None,
        arms: Sequence[str] | None = None,
        token: str | None = None,
    ) -> None:
        if not isinstance(problem, Problem):
            raise InvalidInput(f"the problem is {problem!r}; make it with Problem.arms(...)")
        policy = as_policy(policy)
        self._expires = None if expires is None else whole_number("expires", expires)
        self._draws = Numbered.of(seed, "policy", _node(node))
        called: ArmNames | Keys | None = None if arms is None else arm_names(arms, problem)
        state = policy.init(problem)
        if items is not None:
            holder = _with_items(policy)
            if has_keys(items):
                keys, items = keyed(items, sizes(problem)[1])
                called = Keys(keys)
            state = holder.keep_items(state, items)
        self._start(policy, problem, state)
        self._ledger = Ledger(token)
        self._called = called

    def _start(self, policy: Any, problem: Problem, state: Any) -> None:
        self._lock = threading.RLock()
        self._ledger = Ledger()
        self._out_of_range = self._refused = self._over_norm = self._forks = self._check_at = 0
        self._warned = set()
        self._pending = self._before = self._issuing = self._leaving = None
        self._orphans = []
        self._parts = (None, [])
        self._young = {}
        self._called = None
        self._log = None
        self._earned = None if isinstance(state, Averages) else np.zeros(problem.n_objectives)
        self._take(policy, problem, state)
        with _REGISTER[0]:
            _AGENTS.add(self)

    def _take(self, policy: Any, problem: Problem, state: Any) -> None:
        """Play this policy from now on, in this state: its powers are asked once, here."""
        reads = isinstance(policy, Reads)
        kind = policy.kind(state) if reads else kind_of(problem)
        mends = isinstance(policy, Mends)
        limit = policy.row_limit(state) if mends else row_limit(problem, 0.0)
        # Other policies learn in Python, where an interrupt could come between two lines.
        commits = isinstance(policy, Recovers) and policy.commits(state) and self._earned is None
        bound = _bound_objective(policy, kind)
        self._policy, self._state, self._kind, self._bound = policy, state, kind, bound
        self._reads, self._mends, self._limit, self._commits = reads, mends, limit, commits
        # `decide` is `act` with an id, unless a subclass has its own `act`.
        self._names = isinstance(policy, FrankWolfe) and type(policy).act is FrankWolfe.act
        self._awaits = isinstance(policy, Expects)
        others = self._awaits and not isinstance(policy, FrankWolfe)
        self._recounts = self._names or (others and isinstance(policy, Recounts))
        self._batches = self._names and isinstance(policy, ActsInBatches)
        self._usual_norm = kind.problem.feature_norm * _ROUNDING
        self._warm = False

    # --- decisions ----------------------------------------------------------------------------

    def act(
        self,
        context: Any,
        candidates: Iterable[int | str] | None = None,
        blocked: Iterable[int | str] = (),
        pinned: Mapping[int, int | str] | None = None,
    ) -> Decision:
        """Decide.

        Arms: the context has a row of features for each arm; their number may change. It may be a
        mapping name -> features. Rankings: a `Bilinear(user, items)` or an array with a row for
        each of `items`; the user alone where the agent keeps the items' features. The action holds
        ids, best slot first.

        Parameters
        ----------
        candidates, blocked: the only items or arms that may be chosen, and those that may not, by
            id or key, by number or name. The action has the number in the whole context
        pinned: for rankings, slot (0 is the best) -> id or key of the item that it must show
        """
        if not self._warm:
            self.warm()
        options: dict[str, Any] = {}
        if candidates is not None:
            options["candidates"] = candidates
        if not (isinstance(blocked, tuple) and not blocked):
            options["blocked"] = blocked
        if pinned is not None and not _empty(pinned):
            options["pinned"] = pinned
        made: list[Sequence[Decision]] = []
        try:
            with self._lock:
                called = self._called
                if called is not None or type(context) is not np.ndarray:
                    context, options, called = self._plain(context, options)
                given = self._given(context, options)
                if self._unfinished():
                    self._recover()
                ledger = self._ledger
                if ledger.answered >= self._check_at:
                    self._warn_of_drift()
                number = self._draws.number = ledger.issued
                decision, choices = self._decided(given)
                if ledger.issued != number:  # a function of the user has asked the agent meanwhile
                    self._draws.number = ledger.issued
                    decision, choices = self._decided(given)
                    number = ledger.issued
                if options or called is not None:
                    decision = self._labelled(decision, given, called)
                if self._awaits:
                    self._issuing = (decision,)
                    if choices is None:
                        self._state = self._policy.expect(self._state, decision)
                    else:
                        self._policy.expect_made(self._state, decision, choices)
                if self._expires is not None:
                    self._young[number] = decision
                if self._log is not None:
                    self._meet(number, context, given, called)
                made, ledger.issued = [(decision,)], number + 1
                self._issuing = None
                if self._expires is not None:
                    self._expire_old()
                return decision
        except BaseException:
            self._abandon(made)
            raise

    def _abandon(self, made: list[Sequence[Decision]]) -> None:
        """Decisions that were issued, and that an interrupt kept from the caller, expire: nobody
        holds them, so nobody could answer them.
        """
        if made:  # not here: another interrupt may come before the recovery is done
            with self._lock:
                self._orphans = [*self._orphans, *made]

    def _plain(
        self, context: Any, options: dict[str, Any]
    ) -> tuple[Any, dict[str, Any], ArmNames | Keys | None]:
        """A context and what was given besides, with numbers for names where the kind has none, and
        the names.
        """
        called = self._called
        if isinstance(context, Mapping):
            if isinstance(called, ArmNames):
                raise InvalidInput(
                    "the context is a mapping, and the agent was given the names of its arms once; "
                    "give the features in that order"
                )
            context, called = named_rows(context, self._kind.problem)
        if called is not None:
            catalogue = self._kind.catalogue if isinstance(self._kind, Ranking) else None
            options = called.options(options, catalogue)
        return context, options, called

    def _labelled(self, decision: Decision, given: Any, called: Any) -> Decision:
        """A decision with the number of its arm in the whole context, and names if there are."""
        action, info = decision.action, decision.info
        if self._reads:
            action = self._kind.numbered(given, action)
        if called is not None:
            info = info._replace(names=called.all)
        probability, evidence = decision.probability, decision.evidence
        return Decision(decision.id, decision.t, action, probability, evidence, info)

    def _unfinished(self) -> bool:
        """Whether an interrupt has left something half done."""
        if self._pending is None and self._before is None and self._issuing is None:
            return self._leaving is not None or bool(self._orphans)
        return True

    def _decided(self, given: Any) -> tuple[Decision, Any]:
        """A decision, and the choices of the base that it is made of, where there are any.

        A state that has become useless is rebuilt, not silently, and asked once more.
        """
        try:
            return self._named(given)
        except NumericalFailure:
            if not self._mends:
                raise
            drift = self.repair()
            self._warn_once(
                "repair",
                "a decision could not be made from the state as it was, and the regression was "
                f"recomputed; the error of its inverse was {drift:.1e} (reported once)",
            )
            return self._named(given)

    def _named(self, given: Any) -> tuple[Decision, Any]:
        """A decision under the next id."""
        id, policy = self._ledger.next_id(), self._policy
        if self._names:
            decided: tuple[Decision, Any] = policy.decide(self._state, given, self._draws, id)
            return decided
        decision = policy.act(self._state, given, self._draws.generator())
        if not isinstance(decision, Decision):
            raise InvalidInput(
                f"{policy!r} returned {decision!r:.80} from act; return fw.Decision('', t, action, "
                "probability, evidence)"
            )
        return decision.issued(id, self._ledger.answered), None

    def act_many(
        self,
        contexts: Any,
        advance: bool | None = None,
        *,
        candidates: Any = None,
        blocked: Any = None,
        pinned: Any = None,
    ) -> Sequence[Decision]:
        """Decide for many contexts at once: the decisions of `act` for each in turn.

        The decisions are a `Batch`, by column, where the policy decides in a kernel. Each counts as
        open for the next where the policy anticipates.

        Parameters
        ----------
        contexts: a list of contexts; or one array, (contexts, arms, features), or (users, features)
            where the agent keeps the items' features
        advance: None as above; True: each counts for the next also with anticipate=False, within
            this call; False: all are made from the state before the call
        candidates, blocked, pinned: as in `act`, for all contexts, or a list with those of each
        """
        given, options = self._asked(contexts, advance, candidates, blocked, pinned)
        if len(given) == 0:
            return []
        made: list[Sequence[Decision]] = []
        try:
            with self._lock:
                stack, called = self._stacked(given, options, note=True)
                self._recover()
                counted = self._batches and self._policy.anticipate and advance is not False
                if not self._batches or (counted and self._expires_within(stack.rows)):
                    return self._each(stack, given, called, made)
                decisions = self._made(stack, called, advance)
                if self._log is not None:
                    self._meet_many(stack, given, called)
                self._issue(decisions, made)
                return decisions
        except BaseException:
            self._abandon(made)
            raise

    def propose(
        self,
        contexts: Any,
        advance: bool | None = None,
        *,
        candidates: Any = None,
        blocked: Any = None,
        pinned: Any = None,
        explain: bool = True,
        tolerance: float = 0.0,
    ) -> Sequence[Decision]:
        """What `act_many` would decide; nothing changes until `issue` is given it.

        For code that must store decisions before they are used. A proposal that is not issued
        leaves no trace, and its numbers are used again.

        Parameters
        ----------
        contexts, advance, candidates, blocked, pinned: as in `act_many`
        explain: whether the decisions can explain themselves, which takes a little time where many
            items are ranked
        tolerance: 0: each decision follows its own direction, as in `act_many`. Else one direction
            may serve tolerance * n decisions in a row, where n decisions are behind the youngest
            average: with 0.001 no average can move by more than a thousandth of its range before
            the direction is found again. It saves time where many items are ranked
        """
        if not (isinstance(tolerance, float | int) and 0.0 <= tolerance <= 1.0):
            raise InvalidInput(f"tolerance is {tolerance!r:.80}; give a number from 0 to 1")
        given, options = self._asked(contexts, advance, candidates, blocked, pinned)
        if len(given) == 0:
            return []
        with self._lock:
            stack, called = self._stacked(given, options, note=False)
            self._recover()
            stack = stack if explain else self._kind.unexplained(stack)
            return self._made(stack, called, advance, tolerance)

    def check(
        self, contexts: Any, *, candidates: Any = None, blocked: Any = None, pinned: Any = None
    ) -> None:
        """Raise the InvalidInput that `propose` would raise for these; nothing is decided."""
        given, options = self._asked(contexts, None, candidates, blocked, pinned)
        with self._lock:
            self._stacked(given, options, note=False)

    def issue(self, decisions: Sequence[Decision]) -> None:
        """Decisions of `propose` are made from now on: they are open, and wait for their feedback.

        They may come from bytes (`Batch.from_bytes`): an agent that is given again what it did
        since a `dump` comes to the same state, bit for bit.
        """
        with self._lock:
            self._recover()
            ledger, called = self._ledger, self._called
            if not isinstance(decisions, Batch):
                decisions = list(_many("decisions", decisions))
                for one in decisions:
                    if not isinstance(one, Decision):
                        raise InvalidInput(f"a decision is {one!r:.80}; give those of propose")
            if len(decisions) == 0:
                return
            batch = decisions if isinstance(decisions, Batch) else None
            places = (
                [d.place() for d in decisions] if batch is None else [(batch.token, batch.first)]
            )
            if places != [(ledger.token, ledger.issued + i) for i in range(len(places))]:
                raise InvalidInput(
                    f"decisions {decisions[0].id!r} to {decisions[-1].id!r} are to be issued, and "
                    f"the next is {ledger.next_id()!r}; issue what propose returned, once and in "
                    "its order"
                )
            if batch is not None and batch.names is None and called is not None:
                batch.names = [called.all] * len(batch)
            self._issue(decisions, [])

    def _asked(
        self, contexts: Any, advance: Any, candidates: Any, blocked: Any, pinned: Any
    ) -> tuple[Any, list[dict[str, Any]]]:
        """What `act_many` was given: contexts, and what each was given besides."""
        if not self._warm:
            self.warm()
        if isinstance(contexts, Mapping):
            raise InvalidInput(f"the contexts are {contexts!r:.80}; give a list of contexts")
        if not (advance is None or isinstance(advance, bool)):
            raise InvalidInput(f"advance is {advance!r}; give None, True or False")
        given = _many("contexts", contexts)
        return given, _options(len(given), candidates=candidates, blocked=blocked, pinned=pinned)

    def _stacked(
        self, contexts: Any, options: list[dict[str, Any]], note: bool
    ) -> tuple[Stack, list[ArmNames | Keys | None] | None]:
        """Contexts in a row, read and judged, and their names; under the lock."""
        given, options, called = self._plain_many(contexts, options)
        return self._stack(given, options, note), called

    def _made(
        self,
        stack: Stack,
        called: Sequence[Any] | None,
        advance: bool | None,
        tolerance: float = 0.0,
    ) -> Sequence[Decision]:
        """The next decisions, under their ids; only reads, under the lock."""
        ledger, policy = self._ledger, self._policy
        first = self._draws.number = ledger.issued
        if not self._batches:
            return self._singly(stack, called)
        batch = policy.act_batch(self._state, stack, self._draws, advance, tolerance)
        if ledger.issued != first:  # a function of the user has asked the agent meanwhile
            first = self._draws.number = ledger.issued
            batch = policy.act_batch(self._state, stack, self._draws, advance, tolerance)
        if isinstance(batch, Batch):
            issued = batch.issued(ledger.token, first, ledger.answered)
            issued.actions = self._kind.numbered(stack.given, batch.actions)
            issued.names = None if called is None else [one and one.all for one in called]
            return issued
        decided = []
        for i, one in enumerate(batch):
            numbered = one.issued(f"{ledger.token}-{first + i}", ledger.answered)
            given = self._kind.single(stack, i)
            decided.append(self._labelled(numbered, given, called and called[i]))
        return decided

    def _singly(self, stack: Stack, called: Sequence[Any] | None) -> list[Decision]:
        """Decisions of a policy without batches, all from the current state."""
        ledger, decided = self._ledger, []
        for i in range(stack.rows):
            self._draws.number = ledger.issued + i
            given = self._kind.single(stack, i) if self._reads else stack.given[i]
            decision, _ = self._named(given)
            numbered = decision.issued(f"{ledger.token}-{ledger.issued + i}", ledger.answered)
            decided.append(self._labelled(numbered, given, called and called[i]))
        return decided

    def _issue(self, decisions: Sequence[Decision], made: list[Sequence[Decision]]) -> None:
        """Decisions made together are open from now on, and listed in `made`; whole or not at
        all.
        """
        first = self._ledger.issued
        self._issuing = decisions
        if self._batches:
            self._state = self._policy.expect_batch(self._state, decisions)
        elif self._awaits:
            for decision in decisions:
                self._state = self._policy.expect(self._state, decision)
        if self._expires is not None:
            for i in range(len(decisions)):
                self._young[first + i] = decisions if isinstance(decisions, Batch) else decisions[i]
        self._ledger.issued = first + len(decisions)
        made.append(decisions)
        self._issuing = None
        if self._expires is not None:
            self._expire_old()

    def _plain_many(
        self, contexts: Any, options: list[dict[str, Any]]
    ) -> tuple[Any, list[dict[str, Any]], list[ArmNames | Keys | None] | None]:
        """`_plain` for each of them."""
        called = self._called
        if isinstance(contexts, np.ndarray) and not options:
            if called is None:
                return contexts, options, None
            if isinstance(called, Keys) or contexts.shape[1:2] == (len(called.all),):
                return contexts, options, [called] * len(contexts)
        if called is None and not any(isinstance(one, Mapping) for one in contexts):
            return contexts, options, None
        plain, converted, names = [], [], []
        for i, context in enumerate(contexts):
            try:
                one, with_, by = self._plain(context, options[i] if options else {})
            except InvalidInput as error:
                raise InvalidInput(f"context {i}: {error}") from error
            plain.append(one)
            converted.append(with_)
            names.append(by)
        return plain, converted if any(converted) else [], names

    def _each(
        self,
        stack: Stack,
        contexts: Any,
        called: Sequence[Any] | None,
        made: list[Sequence[Decision]],
    ) -> list[Decision]:
        """One by one: for policies without batches, and where decisions expire on the way."""
        decided = []
        for i in range(stack.rows):
            self._draws.number = number = self._ledger.issued
            given = self._kind.single(stack, i) if self._reads else stack.given[i]
            decision, _ = self._decided(given)
            decision = self._labelled(decision, given, called and called[i])
            if self._awaits:
                self._issuing = (decision,)
                self._state = self._policy.expect(self._state, decision)
            if self._expires is not None:
                self._young[number] = decision
            if self._log is not None:
                self._meet(number, contexts[i], given, called and called[i])
            self._ledger.issued = number + 1
            made.append((decision,))
            self._issuing = None
            if self._expires is not None:
                self._expire_old()
            decided.append(decision)
        return decided

    def _expires_within(self, rows: int) -> bool:
        """Whether a decision expires before the last of so many is made: then it must not count for
        those that follow.
        """
        if self._expires is None:
            return False
        issued = self._ledger.issued
        oldest = next(filter(self._ledger.waits, self._young), issued)
        return issued + rows - 1 > oldest + self._expires

    def _stack(self, contexts: Any, options: list[dict[str, Any]], note: bool) -> Stack:
        """Contexts in a row, read and judged; under the lock, since items may change. note:
        whether large features are counted and warned of.
        """
        if not self._reads:
            for one in options:
                self._refuse_options(one)
        stack = self._kind.read_many(contexts, options)
        if not stack.norm <= self._usual_norm:
            self._judge_norm(stack, note)
        return stack if self._reads else stack._replace(given=list(contexts))

    def _given(self, context: Any, options: dict[str, Any]) -> Any:
        """The context, read and judged; under the lock, since items may change."""
        if options and not self._reads:
            self._refuse_options(options)
        given = self._kind.read(context, **options)
        if not given.norm <= self._usual_norm:
            self._judge_norm(given, note=True)
        return given if self._reads else context

    def _refuse_options(self, options: Mapping[str, Any]) -> None:
        extra = [name for name in options if name != "names"]
        if extra:
            raise InvalidInput(
                f"{self._policy!r} takes contexts as they are, without {' and '.join(extra)}; "
                "use a policy that has `kind`, such as FrankWolfe"
            )

    def _judge_norm(self, given: Any, note: bool) -> None:
        """Raise for features that would make the regression inaccurate; warn once for others."""
        stated = self._kind.problem.feature_norm
        if not given.norm <= self._limit:
            raise InvalidInput(
                f"{given.largest()}; the problem states a norm of at most {stated:g}, and from "
                f"more than {self._limit:g} nothing can be learnt: scale the features, or state "
                "a larger feature_norm in the problem"
            )
        if not note:
            return
        self._warn_once(
            "features",
            f"features of norm {given.norm:.4g} were given; the problem states at most "
            f"{stated:g}, and confidence widths depend on it: scale the features, or give Problem "
            "a larger feature_norm (reported once)",
        )
        self._over_norm += 1

    # --- feedback -----------------------------------------------------------------------------

    def update(
        self,
        decision: Decision,
        reward: Any = None,
        *,
        exposed: Iterable[int | str] | None = None,
        clicked: Iterable[int | str] | None = None,
        missing: float | None = None,
    ) -> None:
        """Learn what a decision earned.

        Arms: a vector in the problem's order, or a mapping by name. Rankings: ids of the shown
        items that were exposed and of those clicked, and other rewards by name and item:
        ``update(decision, {"minutes": {12: 3.5}}, exposed=[12, 7], clicked=[12])``; or a
        `Shown`. Where the policy's `exposure` is not "observed", `exposed` is not needed. Keys
        mean the items that the decision showed, whatever they mean now.

        A reward that is None or not given raises an error. `missing` is the number to count
        instead; for rankings 0. only, which also means that nothing was exposed if `exposed` is
        left out.

        Rewards outside their declared range are learnt as they are, counted and warned of once.
        """
        options = _feedback_options(exposed, clicked, missing)
        with self._lock:
            try:
                if self._unfinished():
                    self._recover()
                entry = self._ledger.entry(decision)
                answer = self._heard(decision, reward, options)
                if self._commits:
                    self._apply(entry, decision, answer)
                    if self._log is not None:
                        self._log.settle(self._ledger, self._mark(), self._header)
                    return
            except FairwolfeError:
                self._refused += 1
                raise
        self._in_peace(lambda: self._apply_all([decision], [answer]))

    def hear(
        self,
        decision: Decision,
        reward: Any = None,
        *,
        exposed: Iterable[int | str] | None = None,
        clicked: Iterable[int | str] | None = None,
        missing: float | None = None,
    ) -> Answer:
        """What `update` would learn from, checked; nothing changes."""
        with self._lock:
            options = _feedback_options(exposed, clicked, missing) | self._heard_names(
                decision.action
            )
            return self._kind.hear(decision.action, reward, **options)

    def update_many(
        self, decisions: Iterable[Decision], rewards: Any, *, missing: float | None = None
    ) -> None:
        """`update` for each pair in turn; if one of them is wrong, none is applied, and the error
        has its number.

        The reward of a ranking is a `Shown`, or a mapping that may hold "exposed" and "clicked".
        Rewards may be one array (decisions, rewards), or for rankings a `Shown` of arrays
        (decisions, slots) and (decisions, slots, rewards); with a `Batch` they are one kernel call.
        """
        options = {} if missing is None else {"missing": finite_number("missing", missing)}
        if isinstance(decisions, Batch) and self._names:
            self._counted(lambda: self._fold(decisions, rewards, options))
            return
        singles, given = list(_many("decisions", decisions)), list(_many("rewards", rewards))
        if len(singles) != len(given):
            raise InvalidInput(
                f"{len(singles)} decisions have {len(given)} rewards; give one for each"
            )
        with self._lock:
            try:
                self._recover()
                answers = []
                for i, (decision, reward) in enumerate(zip(singles, given, strict=True)):
                    with _numbering(i):
                        self._ledger.entry(decision)
                        answers.append(self._heard(decision, reward, options))
            except FairwolfeError:
                self._refused += 1
                raise
        if self._commits:
            self._counted(lambda: self._apply_all(singles, answers))
        else:
            self._in_peace(lambda: self._apply_all(singles, answers))

    def study(self, decisions: Iterable[tuple[Choice, Any]]) -> None:
        """Learn from decisions that others made, with what was observed after each; the average
        and `t` stay as they are, since nothing was earned here. If one of them is wrong, none is
        learnt.
        """
        if not isinstance(self._policy, Studies):
            raise InvalidInput(f"{self._policy!r:.80} cannot learn from decisions of others")
        if not is_list(decisions):
            raise InvalidInput(f"the decisions are {decisions!r:.80}; give a list of pairs")
        with self.held():
            self._before = self._copied()
            try:
                for pair in decisions:
                    choice, observation = _studied(pair)
                    self._state = self._policy.study(self._state, choice, observation)
                self._before = None
            except BaseException:
                self._recover()
                raise

    def _fold(self, batch: Batch, rewards: Any, options: dict[str, Any]) -> None:
        """`update_many` of a batch."""
        if not isinstance(rewards, Shown):
            rewards = _many("rewards", rewards)
        count = np.shape(rewards[0])[:1] if isinstance(rewards, Shown) else (len(rewards),)
        if not count:
            raise InvalidInput(f"the rewards are {rewards!r:.80}; give a list of them")
        (count,) = count
        if count != len(batch):
            raise InvalidInput(f"{len(batch)} decisions have {count} rewards; give one for each")
        if not count:
            return
        with self._lock:
            self._recover()
            ledger = self._ledger
            beyond = ledger.entries(batch)
            each_options: list[dict[str, Any]] = []
            by_row = not isinstance(rewards, Shown)
            named = self._called is not None and isinstance(rewards, list)
            if by_row and (options or named):
                each_options = [{**options, **self._heard_names(a)} for a in batch.actions]
            answers = self._kind.hear_many(batch.actions, rewards, each_options)
            each = None
            if not isinstance(answers, Answers) or beyond or not self._commits:
                each = batches_each(self._kind, batch, answers)
            if each is None:
                self._fold_columns(batch, answers)
            elif self._commits:
                self._apply_all(list(batch), each)
        if each is not None and not self._commits:  # in a separate thread, which takes the lock
            uninterrupted(lambda: self._apply_all(list(batch), each))

    def _fold_columns(self, batch: Batch, answers: Any) -> None:
        """Under the lock."""
        ledger = self._ledger
        if answers.outside:
            self._warn_outside(answers.words)
        self._before = self._copied()
        if self._log is not None:
            self._log.stage_batch(ledger.token, batch, answers.observation)
        try:
            self._state = self._policy.fold(self._state, batch, answers)
            ledger.mark_batch(batch, ledger.answered + len(batch))
            self._out_of_range += answers.outside
            self._before = None
            if self._log is not None:
                self._log.settle(ledger, self._mark(), self._header)
        except BaseException:
            self._recover()
            raise

    def _in_peace(self, work: Callable[[], None]) -> None:
        """For policies that learn in Python, where an interrupt could come between two lines."""
        self._counted(lambda: uninterrupted(work))

    def _counted(self, work: Callable[[], None]) -> None:
        try:
            work()
        except FairwolfeError:
            with self._lock:
                self._refused += 1
            raise

    def _apply_all(self, decisions: list[Decision], answers: list[Answer]) -> None:
        with self._lock:
            self._recover()
            entries = [self._ledger.entry(decision) for decision in decisions]
            known: set[Entry] = set()
            for place, entry in enumerate(entries):
                if entry in known:
                    raise InvalidInput(
                        f"answer {place}: decision {decisions[place].id!r} is given twice; its "
                        "feedback counts once"
                    )
                known.add(entry)
            if len(entries) > 1:  # one by itself is whole anyway
                self._before = self._copied()
            try:
                for entry, decision, answer in zip(entries, decisions, answers, strict=True):
                    self._apply(entry, decision, answer)
                self._before = None
                if self._log is not None:
                    self._log.settle(self._ledger, self._mark(), self._header)
            except BaseException:
                self._recover()
                raise

    def _copied(self) -> Before:
        """All that answers may change, as it is now."""
        arrays = self._arrays()
        earned = None if self._earned is None else self._earned.copy()
        state = self._state if arrays is not None else deepcopy(self._state)
        return Before(state, arrays, self._ledger.copy(), self._out_of_range, earned)

    def _arrays(self) -> dict[str, Any] | None:
        """Copies of what the state holds; None where it is not made of arrays."""
        try:
            if self._parts[0] is not self._state:  # a state that changes in place is the same one
                self._parts = self._state, parts_of(self._state)
            return {name: array_of(part).copy() for name, part in self._parts[1]}
        except IncompatibleState:
            return None

    def _apply(self, entry: Entry, decision: Decision, answer: Answer) -> None:
        """Under the lock."""
        state, ledger = self._state, self._ledger
        t = state.t if self._commits else None
        outside = self._out_of_range + (answer.outside != "")
        if self._log is not None:
            self._log.stage(ledger.token, decision, answer.observation)
        self._pending = pending = (entry, t, ledger.answered + 1, outside)
        try:
            given = answer if self._reads else answer.observation
            if entry[1] is not None and self._recounts:
                # It was made after the file was written: this state has never expected it.
                decision = self._policy.unawaited(decision)
            self._state = self._policy.update(state, decision, given)
            if self._earned is not None:
                self._earned += answer.reward
            self._finish(pending)
        except BaseException:
            if self._before is None:
                self._recover()
            raise

    def _finish(self, pending: Pending) -> None:
        """Note that an answer was applied; once more does no harm."""
        entry, _, answered, outside = pending
        self._ledger.mark(entry, answered)
        self._out_of_range = outside
        self._pending = None

    def _recover(self) -> None:
        """Make whole what an interrupt left: one answer is finished, a batch taken back, a decision
        that no caller received is not open any more.
        """
        before, pending, issuing = self._before, self._pending, self._issuing
        if issuing is not None:
            if self._recounts and issuing[0].number == self._ledger.issued:
                for decision in issuing:
                    self._policy.take_back(self._state, decision)
                    self._young.pop(decision.number, None)
            self._issuing = None
        if self._leaving is not None:
            self._finish_leaving(*self._leaving)
        if self._orphans:
            for decision in (one for some in self._orphans for one in some):
                if self._ledger.waits(decision.number):
                    self._leave((decision.number, None), decision)
                self._young.pop(decision.number, None)
            self._orphans = []
        if before is not None:
            kept = before.arrays
            self._state = before.state if kept is None else filled(before.state, kept)
            self._ledger, self._out_of_range = before.ledger.copy(), before.out_of_range
            self._earned = before.earned
            self._pending = self._before = None
        elif pending is not None:
            _, t, _, _ = pending
            if t is not None and self._state.t > t:
                self._finish(pending)
            self._pending = None
        if self._log is not None:
            self._log.settle(self._ledger, self._mark(), self._header)

    def expire(self, decision: Decision) -> None:
        """A decision gets no feedback any more: what was expected of it is taken back, and feedback
        raises an error from now on.
        """
        with self.held():
            entry = self._ledger.entry(decision)
            if entry[1] is not None:
                raise InvalidInput(
                    f"decision {decision.id!r} was made after the file that this agent was loaded "
                    "from, so nothing is expected of it; give its feedback, or leave it"
                )
            self._leave(entry, decision)

    def _expire_old(self) -> None:
        """Under the lock, after a decision was made."""
        last = self._ledger.issued - 1 - (self._expires or 0)
        for number in list(takewhile(lambda number: number <= last, self._young)):
            if self._ledger.waits(number):
                self._leave((number, None), self._young_one(number))
            self._young.pop(number, None)

    def _young_one(self, number: int) -> Decision:
        """A decision that may expire."""
        kept = self._young[number]
        return kept[number - kept.first] if isinstance(kept, Batch) else kept

    def _leave(self, entry: Entry, decision: Decision) -> None:
        """Under the lock."""
        self._leaving = leaving = (entry, decision, self._waiting(), self._ledger.expired + 1)
        try:
            self._finish_leaving(*leaving)
        except Exception:  # it raised, and nothing has changed
            self._leaving = None
            raise

    def _waiting(self) -> int:
        """How many decisions the policy counts as open."""
        return self._state.open if self._recounts else 0

    def _finish_leaving(self, entry: Entry, decision: Decision, before: int, expired: int) -> None:
        """Once more does no harm."""
        if self._awaits and self._waiting() == before:
            self._state = self._policy.withdraw(self._state, decision)
        self._ledger.expire(entry, expired)
        if self._log is not None:
            self._log.leave(entry[0])
        self._leaving = None

    # --- the log of decisions ------------------------------------------------------------------

    def log(self, path: str | os.PathLike[str] | None) -> None:
        """From now on append every decision that is answered, with its context, to this file: what
        `fw.offpolicy.Log.of(path)` reads, JSON Lines as in `fairwolfe.data.decisions`. None ends
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
        return self._policy, self._kind.problem, self._called

    def _header(self) -> Header:
        """What is true of the rows of the log that follow."""
        kind = self._kind
        objective = None if self._bound is None else repr(self._policy.objective)
        problem, policy = kind.problem, repr(self._policy)
        if not isinstance(kind, Ranking):
            return Header(problem, objective, policy, arms=self.arms)
        kept = kind.catalogue.features
        features = kept.T.copy() if kept.shape[1] else None
        return Header(problem, objective, policy, self.names, features)

    def _meet(self, number: int, context: Any, given: Any, called: Any) -> None:
        """A decision is made, and logged when it is answered. Under the lock."""
        if self._log is None:
            return
        if isinstance(context, Mapping):
            context, _ = named_rows(context, self._kind.problem)
        by_context = isinstance(called, ArmNames) and called is not self._called
        checked = given if self._reads else self._kind.read(context)
        names = called.all if by_context else None
        self._log.meet(number, self._kind, context, checked, names)

    def _meet_many(self, stack: Stack, contexts: Any, called: Sequence[Any] | None) -> None:
        """The same for decisions made together."""
        first, some = self._ledger.issued, isinstance(stack.given, list)
        if not some and not isinstance(self._kind, Ranking):
            some = stack.given.places is not None  # and the others belong to the context too
        if self._log is not None and isinstance(contexts, np.ndarray) and not some:
            self._log.meet_many(first, self._kind, stack)
            return
        for i in range(stack.rows):
            given = self._kind.single(stack, i)
            self._meet(first + i, contexts[i], given, called and called[i])

    def _heard(self, decision: Decision, reward: Any, options: dict[str, Any]) -> Answer:
        """What the policy learns from; warned of before anything is written, since a warning may
        have been made an error.
        """
        if self._called is not None:
            options = {**options, **self._heard_names(decision.action)}
        answer = self._kind.hear(decision.action, reward, **options)
        if answer.outside:
            self._warn_outside(answer.outside)
        return answer

    def _heard_names(self, action: Any) -> dict[str, Any]:
        return {} if self._called is None else self._called.feedback_options(action)

    def _warn_outside(self, words: str) -> None:
        if "rewards" not in self._warned:
            self._warn_once(
                "rewards",
                f"{words}, and exploration rests on it: it is learnt as it is, and "
                "agent.out_of_range counts such rewards (reported once)",
            )

    def _warn_once(self, about: str, text: str) -> None:
        with self._lock:
            if about in self._warned:
                return
            self._warned.add(about)
        logger.warning(text)
        warnings.warn(text, stacklevel=_outside())  # of the caller of act or update

    # --- items -------------------------------------------------------------------------------

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
            policy = self._retargeted(objective)
            state = _with_items(policy).add_items(self._state, rows)
            self._take(policy, self._kind.problem, state)
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
            policy = self._retargeted(objective)
            instead = (np.array(old_ids),) if old_ids else ()
            state = _with_items(policy).add_items(self._state, rows[new], *instead)
            # Names of items that are not there do no harm, should an interrupt come between.
            self._called = called.extended(catalogue.total, (keys[row] for row in new))
            self._take(policy, self._kind.problem, state)
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
            policy = self._retargeted(objective)
            state = _with_items(policy).retire_items(self._state, numbers)
            self._take(policy, self._kind.problem, state)

    def _retargeted(self, objective: Concave | None) -> Any:
        """The policy, for another objective if one is given."""
        if objective is None:
            return self._policy
        if not isinstance(self._policy, Retargets):
            raise InvalidInput(
                f"the objective of {self._policy!r} cannot be replaced: it has no with_objective; "
                "make another agent"
            )
        return self._policy.with_objective(objective)

    def _catalogue(self) -> Catalogue:
        if not isinstance(self._kind, Ranking):
            has = "arms" if self._kind.name == "arms" else f"decisions of kind {self._kind.name!r}"
            raise InvalidInput(f"the problem has {has}; items are for Problem.ranking(...)")
        return self._kind.catalogue

    # --- what is known ------------------------------------------------------------------------

    @property
    def policy(self) -> Any:
        """The policy, with the current objective."""
        return self._policy

    @property
    def problem(self) -> Problem:
        """What is decided and which rewards come back."""
        return self._kind.problem

    @property
    def objective(self) -> Concave:
        """f, as it was given."""
        if self._bound is None:
            raise InvalidInput(f"{self._policy!r} has no objective")
        return self._policy.objective  # type: ignore[no-any-return]

    @contextmanager
    def held(self) -> Iterator[Any]:
        """The state of the policy; nobody else acts on or updates the agent meanwhile."""
        with self._lock:
            self._recover()
            yield self._state

    @property
    def t(self) -> int:
        """How many decisions have had their feedback."""
        with self.held():
            return self._ledger.answered

    @property
    def open(self) -> int:
        """How many decisions wait for their feedback."""
        with self.held():
            return self._ledger.open

    @property
    def out_of_range(self) -> int:
        """How many reward vectors had a number outside its declared range."""
        with self.held():
            return self._out_of_range

    @property
    def average(self) -> Vector:
        """The average of the rewards that came back (0 before the first), a copy."""
        with self.held():
            return self._average()

    @property
    def averages(self) -> dict[str, float]:
        """`average` by name: every reward of the problem, without the exposures of a ranking."""
        average, names = self.average.tolist(), tuple(self.problem.rewards)
        return dict(zip(names, average[-len(names) :], strict=True))

    @property
    def value(self) -> float:
        """f of `average`: what the agent maximises, as far as it has been seen. Hard constraints
        are not part of it: see `constraints`.
        """
        with self.held():
            if self._bound is None:
                raise InvalidInput(f"{self._policy!r} has no objective, so there is no value")
            return self._bound.relaxed().value(self._average())

    def _average(self) -> Vector:
        if self._earned is None:
            return np.array(self._state.average)
        return self._earned / max(self._ledger.answered, 1)

    def live(self, delta: float = 0.05) -> Live:
        """How far `value` is from the best that can be reached: `print` it, or see `Live`."""
        if not isinstance(self._policy, Reports):
            raise InvalidInput(f"{self._policy!r} keeps no live numbers; FrankWolfe does")
        if isinstance(self._policy, Surveys):  # outside of the lock: others continue to decide
            self._policy.survey(self._state)
        with self.held():
            live: Live = self._policy.live(self._state, delta, trusted=self._out_of_range == 0)
            return live

    @property
    def constraints(self) -> tuple[Any, ...]:
        """The hard constraints of f, one for each level: print them, or see `Constraint`."""
        if not isinstance(self._policy, Constrains):
            return ()
        with self.held():
            trusted = self._out_of_range == 0
            constraints: tuple[Any, ...] = self._policy.constraints(self._state, trusted=trusted)
            return constraints

    def stats(self) -> dict[str, Any]:
        """Counters for a log or a dashboard.

        t, open, expired: decisions with feedback, without, and those that get none any more;
        oldest_open: how many decisions ago the oldest open one was made (None: none is open);
        refused: calls of update that raised an error;
        out_of_range: rewards outside their ranges; features_over_norm: contexts with features
        beyond `feature_norm`; value: f of the average (None where there is no f); drift: how far
        the regression's kept inverse was off when it was last recomputed (0 where none is kept);
        what the policy counts itself, as Guarded does (baseline_played); and while there is a
        `log`, logged and unlogged: decisions answered with a row, and without one.
        """
        with self.held():
            return {
                "t": self._ledger.answered,
                "open": self._ledger.open,
                "expired": self._ledger.expired,
                "oldest_open": self._ledger.oldest_open,
                "refused": self._refused,
                "out_of_range": self._out_of_range,
                "features_over_norm": self._over_norm,
                "value": None if self._bound is None else self.value,
                "drift": self._policy.drift(self._state) if self._mends else None,
                **(self._policy.counts(self._state) if isinstance(self._policy, Counts) else {}),
                **({} if self._log is None else self._log.counts()),
            }

    def __repr__(self) -> str:
        return f"<Agent {self._policy!r}, t = {self.t}, {self.open} open>"

    # --- getting ready, and well again --------------------------------------------------------

    def warm(self) -> None:
        """Compile or load every kernel that this agent can need; the first `act` does it else.

        Compiled kernels are kept on the machine: see docs/cold-start.md for images and servers.
        """
        kernels = set(self._kind.kernels())
        if isinstance(self._policy, Compiled):
            with self._lock:
                kernels.update(self._policy.kernels(self._state))
        ready(kernels)
        self._warm = True

    def repair(self) -> float:
        """Recompute what is kept of the regression from its sums; how large its error was.

        This is done automatically from time to time, and when a decision cannot be made otherwise.
        """
        if not self._mends:
            raise InvalidInput(f"{self._policy!r} keeps nothing that could be recomputed")
        with self.held():
            drift: float = self._policy.repair(self._state)
        logger.warning("the regression was recomputed; the error of its inverse was %.1e", drift)
        return drift

    def _warn_of_drift(self) -> None:
        self._check_at = self._ledger.answered + _NOW_AND_THEN
        if not self._mends or "drift" in self._warned:
            return
        drift = self._policy.drift(self._state)
        if drift > _DRIFT:
            self._warn_once(
                "drift",
                f"the error of the inverse of the design was {drift:.1e} when it was last "
                "recomputed: features are nearly dependent or of very different scales; scale "
                "them, or raise the ridge (reported once)",
            )

    # --- changing f, saving, loading ----------------------------------------------------------

    def replace_objective(self, objective: Concave) -> None:
        """Maximise another f from now on; averages, estimates and open decisions stay."""
        if not isinstance(objective, Concave):
            raise InvalidInput(f"the objective is {objective!r:.80}; give one of fw.objectives")
        with self.held():
            policy, problem = self._retargeted(objective), self._kind.problem
            arrays = dict(arrays_of(self._state))
            own = policy.of_objective if isinstance(policy, KeepsPrices) else ()
            for name in own:
                arrays.pop(name, None)
            state = _refilled(policy, problem, arrays, self._earned, own)
            self._take(policy, problem, policy.renewed(state))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a file, whole or not at all; `Agent.load` continues from there."""
        agent_file.write(path, *self._content())

    def dump(self) -> bytes:
        """What `save` writes, as bytes for `Agent.restore`."""
        file = io.BytesIO()
        agent_file.write_to(file, *self._content())
        return file.getvalue()

    def _content(self) -> tuple[dict[str, Any], dict[str, Any]]:
        with self.held():
            ledger, kept = self._ledger.saved()
            arrays = {name: array.copy() for name, array in arrays_of(self._state)}
            if self._earned is not None:
                kept["earned"] = self._earned.copy()
            text = {
                "format": agent_file.FORMAT,
                "version": agent_file.VERSION,
                "library": version("fairwolfe"),
                "policy": repr(self._policy),
                "problem": json.loads(self._kind.problem.to_json()),
                "ledger": ledger,
                "out_of_range": self._out_of_range,
                "refused": self._refused,
                "over_norm": self._over_norm,
                "warned": sorted(self._warned),
                "draws": list(self._draws.key),
                "expires": self._expires,
                "arms": self.arms,
            }
            if isinstance(self._called, Keys):
                kept["keys"] = self._called.saved()
            if self._young:
                waiting = filter(self._ledger.waits, self._young)
                young = tuple(self._young_one(number).to_bytes() for number in waiting)
                kept["young"] = np.frombuffer(pack(young), dtype=np.uint8)
        return text, arrays | kept

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], policy: Any = None, seed: int | None = None
    ) -> Agent:
        """The agent that `save` wrote: the same decisions follow as without the pause.

        The policy is rebuilt from its text. One that holds functions, as Custom does, cannot be:
        pass the same one. Decisions made before the save can be answered (`Decision.from_bytes`
        brings them over), and so can those that the saved agent made after it, until it ended:
        each once. Those of other agents cannot, nor those of another process that loaded the file.

        With a `seed` the random draws that follow are its own: two processes that load one file
        with different seeds do not explore in the same way.
        """
        return cls._of(path, agent_file.read(path), policy, seed)

    @classmethod
    def restore(
        cls,
        data: bytes,
        policy: Any = None,
        seed: int | None = None,
        *,
        token: str | None = None,
    ) -> Agent:
        """The agent that `dump` wrote; as `load`.

        With the `token` that it had its ids continue too, as if there had been no pause: what it
        did since the dump has to be done again (`issue`, `update_many`), and nobody else may
        continue from the same bytes.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidInput(f"the data is {data!r:.80}; give the bytes that Agent.dump returned")
        content = agent_file.read_from(io.BytesIO(data), "the data")
        return cls._of("the data", content, policy, seed, token)

    @classmethod
    def _of(
        cls,
        path: object,
        content: tuple[dict[str, Any], dict[str, Any]],
        policy: Any,
        seed: int | None,
        token: str | None = None,
    ) -> Agent:
        text, arrays = content
        if seed is not None:
            Numbered.of(seed)  # a bad one raises as such, not as a fault of the file
        with agent_file.refusals(path):
            problem = Problem.from_json(json.dumps(text["problem"]))
            rebuilt = agent_file.policy_of(text["policy"], policy, path)
            kept = {name: arrays.pop(name) for name in ("answered", "recovered")}
            earned, young = arrays.pop("earned", None), arrays.pop("young", None)
            keys = arrays.pop("keys", None)
            agent = cls.__new__(cls)
            state = _refilled(rebuilt, problem, arrays, earned)
            agent._start(rebuilt, problem, state)
            agent._ledger = Ledger.loaded(text["ledger"], kept, token)
            if agent._earned is not None:
                agent_file.fill("earned", agent._earned, earned)
            elif earned is not None:
                raise IncompatibleState(f"{path} keeps averages for a policy that has its own")
            elif agent._state.t != agent.t:
                raise IncompatibleState(
                    f"{path} holds a state of {agent._state.t} answers and a ledger of {agent.t}"
                )
            for name in ("out_of_range", "refused", "over_norm"):
                setattr(agent, f"_{name}", whole_number(name, text[name], 0))
            agent._warned = agent_file.words("warned", text["warned"])
            agent._draws = Numbered(agent_file.key("draws", text["draws"]))
            if seed is not None:
                agent._draws = agent._draws.apart(seed, "load")
            expires = text["expires"]
            agent._expires = None if expires is None else whole_number("expires", expires)
            if text["arms"] is not None:
                agent._called = arm_names(text["arms"], problem)
            if keys is not None:
                agent._called = Keys.loaded(keys, agent._catalogue())
            held = () if young is None else unpack(young.tobytes())
            for decision in sorted(map(Decision.from_bytes, held), key=lambda d: d.number):
                agent._ledger.entry(decision)
                agent._young[decision.number] = decision
        return agent

    def __reduce__(self) -> NoReturn:
        raise InvalidInput(
            "an Agent cannot be pickled or copied, since its decisions would then have two owners; "
            "use agent.save(path) and Agent.load(path), or agent.dump() and Agent.restore(data)"
        )


_AGENTS: weakref.WeakSet[Agent] = weakref.WeakSet()
_REGISTER = [threading.Lock()]  # of the set itself; a child has its own
_FORKING = threading.local()  # agents whose locks this thread holds while it forks


def _before_fork() -> None:
    """No agent is left half-way through something that another thread does."""
    with _REGISTER[0]:
        agents = sorted(_AGENTS, key=id)
    _FORKING.held = []
    for agent in agents:
        if agent._lock.acquire(timeout=_FORK_SECONDS):
            agent._forks += 1
            _FORKING.held.append(agent)


def _after_fork_in_parent() -> None:
    for agent in _FORKING.held:
        agent._lock.release()
    _FORKING.held = []


def _after_fork_in_child() -> None:
    _REGISTER[0] = threading.Lock()
    _FORKING.held = []
    for agent in _AGENTS:
        agent._lock = threading.RLock()
        agent._log = None
        agent._recover()
        agent._ledger.fork()
        agent._draws = agent._draws.apart(agent._forks, "fork")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )


@contextmanager
def _numbering(i: int) -> Iterator[None]:
    """Within, an error has the number of the answer."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"answer {i}: {error}") from error


def _feedback_options(exposed: Any, clicked: Any, missing: Any) -> dict[str, Any]:
    """What feedback has in addition to the reward."""
    options: dict[str, Any] = {}
    if exposed is not None:
        options["exposed"] = exposed
    if clicked is not None:
        options["clicked"] = clicked
    if missing is not None:
        options["missing"] = finite_number("missing", missing)
    return options


def _node(given: Any) -> int:
    node = whole_number("node", given, 0)
    if node > _MOST_NODES:
        raise InvalidInput(
            f"node is {node}; give the number of the process, from 0 to {_MOST_NODES:,}"
        )
    return node


def _many(name: str, given: Any) -> Any:
    """An array as it is, and a list of anything else that can be one."""
    if not is_list(given):
        raise InvalidInput(f"the {name} are {given!r:.80}; give a list of {name}")
    return given if isinstance(given, np.ndarray) else list(given)


def _options(rows: int, **given: Any) -> list[dict[str, Any]]:
    """What each of the contexts was given besides; empty where none was given anything."""
    if all(values is None for values in given.values()):
        return []
    options: list[dict[str, Any]] = [{} for _ in range(rows)]
    for name, values in given.items():
        if values is None:
            continue
        for i, value in enumerate(_by_row(name, values, rows)):
            if value is not None and (name == "candidates" or not _empty(value)):
                options[i][name] = value
    return options if any(options) else []


def _studied(pair: Any) -> tuple[Any, Any]:
    """A choice and what was observed after it."""
    whole = isinstance(pair, tuple | list) and len(pair) == 2
    if not whole or not isinstance(pair[0], Choice | Decision):
        raise InvalidInput(
            f"a decision to study is {pair!r:.80}; give a pair of a Choice and what was observed "
            "after it"
        )
    return pair[0], pair[1]


def _empty(given: Any) -> bool:
    """Whether it is a list or a mapping without anything in it."""
    return is_list(given) and isinstance(given, Sized) and len(given) == 0


def _by_row(name: str, values: Any, rows: int) -> list[Any]:
    """What each context is given: one mapping or list for all of them, or one for each."""
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


def _outside() -> int:
    """How far up the stack of our caller this package is left."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("fairwolfe."):
        level, frame = level + 1, frame.f_back
    return level


def _bound_objective(policy: Any, kind: Kind) -> Concave | None:
    """f with its names resolved; None for policies that have none."""
    objective = policy.objective if isinstance(policy, Pursues) else None
    if objective is None:
        return None
    if not isinstance(objective, Concave):
        raise InvalidInput(
            f"the objective of {policy!r} is {objective!r}; give one of fw.objectives"
        )
    return objective.bind(kind.seen)


def _with_items(policy: Any) -> HasItems:
    if not isinstance(policy, HasItems):
        raise InvalidInput(f"{policy!r} has no items; use a policy such as FWLinUCBRank(objective)")
    return policy


def _refilled(
    policy: Any,
    problem: Problem,
    arrays: dict[str, Any],
    earned: Any = None,
    lacks: Iterable[str] = (),
) -> Any:
    """A state of the policy that holds these arrays; earned: sums that the agent keeps beside;
    lacks: names of arrays that stay as they are made.
    """

    def make() -> Any:
        if isinstance(policy, HasItems):
            return policy.resume(problem, arrays)
        return policy.init(problem)

    extra = 0 if earned is None else earned.nbytes
    return agent_file.rebuilt(make, problem, arrays, extra, lacks)
