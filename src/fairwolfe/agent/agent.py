"""`Agent`: a policy at work, the only thing in this library that changes."""

from __future__ import annotations

import io
import json
import logging
import os
import secrets
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from importlib.metadata import version
from itertools import takewhile
from typing import Any, NamedTuple, NoReturn

import numpy as np

from fairwolfe.agent import file as agent_file
from fairwolfe.agent import forking
from fairwolfe.agent.ledger import Entry, Ledger, require_decision
from fairwolfe.agent.log import DecisionLog
from fairwolfe.agent.names import ArmNames, Keys, arm_names, changes, has_keys, keyed, named_rows
from fairwolfe.agent.options import (
    context_options,
    feedback_options,
    many,
    node_number,
    options_by_row,
    stack_level,
)
from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.catalogue import Catalogue, item_features, sizes, whole_ids
from fairwolfe.core.decision import Batch, Decision
from fairwolfe.core.feedback import Shown, one_for_each
from fairwolfe.core.interrupts import uninterrupted
from fairwolfe.core.kinds import Answer, Answers, Kind, Stack
from fairwolfe.core.packing import pack, unpack
from fairwolfe.core.problem import Problem, whole_number
from fairwolfe.core.streams import Numbered
from fairwolfe.data.decisions import Header
from fairwolfe.errors import FairwolfeError, IncompatibleState, InvalidInput, NumericalFailure
from fairwolfe.kinds import Ranking
from fairwolfe.kinds.rewards import finite_number
from fairwolfe.objectives import Concave
from fairwolfe.ranking.policies import as_policy
from fairwolfe.reduction.live import Live
from fairwolfe.reduction.policy import PolicyRunning

__all__ = ["Agent"]

_ROUNDING = 1.0 + 1e-9  # features that were scaled to the norm exceed it by less than this
_DRIFT = 1e-6  # of the kept inverse between two refreshes; more is worth a warning
_DRIFT_CHECK = 1024  # answers between two checks of the drift
_KEY = 32  # bytes of the secret that signs decisions

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
        self._draws = Numbered.of(seed, "policy", node_number(node))
        called: ArmNames | Keys | None = None if arms is None else arm_names(arms, problem)
        ledger = Ledger(token)
        running = PolicyRunning.of(policy, problem)
        if items is not None:
            if has_keys(items):
                keys, items = keyed(items, sizes(problem)[1])
                called = Keys(keys)
            running = running.keep_items(items)
        # Who gives a token keeps a log of his own, and needs the same bytes from it again.
        key = (
            secrets.token_bytes(_KEY) if token is None else blake2b(token.encode()).digest()[:_KEY]
        )
        self._start(running, ledger, key)
        self._called = called

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
        options = context_options(candidates, blocked, pinned)
        made: list[Batch] = []
        try:
            with self._lock:
                called = self._called
                if called is not None or type(context) is not np.ndarray:
                    context, options, called = self._plain(context, options)
                given = self._given(context, options)
                if self._unfinished():
                    self._recover()
                rows = self._decided(given)
                names = None if called is None else (called.all,)
                batch = Batch(rows, self._ledger.token, self._key, None, names)
                if self._log is not None:
                    self._remember(self._ledger.issued, context, given, called)
                self._issue(batch, made)
                return Decision.of(batch, 0)
        except BaseException:
            self._abandon(made)
            raise

    def _decided(self, given: Any, **how: Any) -> Any:
        """The rows of the next decisions, for a checked context or a stack of them; only reads.

        A state that has become useless is rebuilt, not silently, and asked once more.
        """
        ledger, running = self._ledger, self._running
        if ledger.answered >= self._check_at:
            self._warn_of_drift()
        decide = running.decide_stack if type(given) is Stack else running.decide
        self._draws.number = first = ledger.issued
        try:
            rows = decide(given, self._draws, first, propose=True, **how)
            if ledger.issued != first:  # a base in Python has asked this agent
                rows.head["number"] += ledger.issued - first
            return rows
        except NumericalFailure:
            if not running.can_repair:
                raise
            drift = self.repair()
        self._warn_once(
            "repair",
            "a decision could not be made from the state as it was, and the regression was "
            f"recomputed; the error of its inverse was {drift:.1e} (reported once)",
        )
        return decide(given, self._draws, ledger.issued, propose=True, **how)

    def act_many(
        self,
        contexts: Any,
        advance: bool | None = None,
        *,
        candidates: Any = None,
        blocked: Any = None,
        pinned: Any = None,
    ) -> Sequence[Decision]:
        """Decide for many contexts at once: the decisions of `act` for each in turn, as a `Batch`.

        Each counts as open for the next where the policy anticipates.

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
        made: list[Batch] = []
        try:
            with self._lock:
                stack, called = self._stacked(given, options, note=True)
                self._recover()
                counts = getattr(self._running.policy, "anticipate", True) and advance is not False
                in_turn = isinstance(self._running, PolicyRunning)
                if in_turn or (counts and self._expires_within(stack.rows)):
                    return self._act_each(stack, given, called, made)
                rows = self._decided(stack, advance=advance)
                if self._log is not None:
                    self._remember_many(stack, given, called)
                batch = Batch(rows, self._ledger.token, self._key, None, _names(called))
                self._issue(batch, made)
                return batch
        except BaseException:
            self._abandon(made)
            raise

    def _act_each(
        self, stack: Stack, contexts: Any, called: Sequence[Any] | None, made: list[Batch]
    ) -> Batch:
        """One by one: for policies in Python, and where decisions expire on the way."""
        for i in range(stack.rows):
            given = self._kind.single(stack, i) if self._reads else stack.given[i]
            own = None if called is None else called[i]
            names = None if own is None else (own.all,)
            batch = Batch(self._decided(given), self._ledger.token, self._key, None, names)
            if self._log is not None:
                self._remember(self._ledger.issued, contexts[i], given, own)
            self._issue(batch, made)
        (whole,) = Batch.merged(made)
        return whole

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
            how: dict[str, Any] = {"explain": explain, "tolerance": tolerance}
            rows = self._decided(stack, advance=advance, **how)
            return Batch(rows, self._ledger.token, self._key, None, _names(called))

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
            ledger = self._ledger
            for batch in self._batches("decisions", decisions):
                first = ledger.issued
                numbers = batch.numbers.tolist()
                if batch.token != ledger.token or numbers != list(
                    range(first, first + len(numbers))
                ):
                    raise InvalidInput(
                        f"decisions {batch.id(0)!r} to {batch.id(len(batch) - 1)!r} are to be "
                        f"issued, and the next is {ledger.next_id()!r}; issue what propose "
                        "returned, once and in its order"
                    )
                self._verify(batch)
                if batch.names is None and self._called is not None:
                    batch.names = [self._called.all] * len(batch)
                self._issue(batch, [])

    def batch(self, rows: Any) -> Batch:
        """Rows that this agent decided, for `issue`, `update_many` and `expire`.

        For code that stores rows in its own log and detects damage itself: nothing is verified.
        """
        return Batch(rows, self._ledger.token, self._key)

    def _batches(self, name: str, decisions: Any) -> list[Batch]:
        """Decisions as few batches."""
        if isinstance(decisions, Batch):
            return [decisions] if len(decisions) else []
        listed = list(many(name, decisions))
        for one in listed:
            require_decision(one)
        return Batch.merged([one.batch for one in listed])

    def _verify(self, batch: Batch) -> None:
        """Raise InvalidInput unless this agent has made the decisions."""
        if batch.key is not self._key:
            batch.verify(self._key, self._running.limit)

    def _issue(self, batch: Batch, made: list[Batch]) -> None:
        """Decisions made together are open from now on, and listed in `made`; whole or not at
        all.
        """
        self._running.opening(lambda: self._open(batch, made))
        if self._expires is not None:
            self._expire_old()

    def _open(self, batch: Batch, made: list[Batch]) -> None:
        ledger = self._ledger
        self._issuing = batch
        try:
            self._running.open_rows(batch.rows)
        except Exception:  # it raised, and nothing has changed
            self._issuing = None
            raise
        if self._expires is not None:
            self._young.update(dict.fromkeys(batch.numbers.tolist(), batch))
        made.append(batch)
        ledger.issued += len(batch)
        self._issuing = None

    def _abandon(self, made: list[Batch]) -> None:
        """Decisions that were issued, and that an interrupt kept from the caller, expire: nobody
        holds them, so nobody could answer them.
        """
        if made:  # not here: another interrupt may come before the recovery is done
            with self._lock:
                self._orphans = [*self._orphans, *made]

    # --- contexts ------------------------------------------------------------------------------

    @property
    def _reads(self) -> bool:
        """Whether the policy takes checked contexts, not what the caller gave."""
        return bool(self._running.reads)

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

    def _given(self, context: Any, options: dict[str, Any]) -> Any:
        """The context, read and judged; under the lock, since items may change."""
        if options and not self._reads:
            self._refuse_options(options)
        given = self._kind.read(context, **options)
        if not given.norm <= self._usual_norm:
            self._judge_norm(given, note=True)
        return given if self._reads else context

    def _asked(
        self, contexts: Any, advance: Any, candidates: Any, blocked: Any, pinned: Any
    ) -> tuple[Any, list[dict[str, Any]]]:
        """What `act_many` was given: contexts, and what each was given besides."""
        if isinstance(contexts, Mapping):
            raise InvalidInput(f"the contexts are {contexts!r:.80}; give a list of contexts")
        if not (advance is None or isinstance(advance, bool)):
            raise InvalidInput(f"advance is {advance!r}; give None, True or False")
        given = many("contexts", contexts)
        options = {"candidates": candidates, "blocked": blocked, "pinned": pinned}
        return given, options_by_row(len(given), **options)

    def _stacked(
        self, contexts: Any, options: list[dict[str, Any]], note: bool
    ) -> tuple[Stack, list[ArmNames | Keys | None] | None]:
        """Contexts in a row, read and judged, and their names; under the lock. note: whether large
        features are counted and warned of.
        """
        contexts, options, called = self._plain_many(contexts, options)
        if not self._reads:
            for one in options:
                self._refuse_options(one)
        stack = self._kind.read_many(contexts, options)
        if not stack.norm <= self._usual_norm:
            self._judge_norm(stack, note)
        return stack if self._reads else stack._replace(given=list(contexts)), called

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

    def _refuse_options(self, options: Mapping[str, Any]) -> None:
        extra = [name for name in options if name != "names"]
        if extra:
            raise InvalidInput(
                f"{self.policy!r} takes contexts as they are, without {' and '.join(extra)}; "
                "use a policy that has `kind`, such as FrankWolfe"
            )

    def _judge_norm(self, given: Any, note: bool) -> None:
        """Raise for features that would make the regression inaccurate; warn once for others."""
        stated, limit = self._kind.problem.feature_norm, self._running.limit
        if not given.norm <= limit:
            raise InvalidInput(
                f"{given.largest()}; the problem states a norm of at most {stated:g}, and from "
                f"more than {limit:g} nothing can be learnt: scale the features, or state "
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
        options = feedback_options(exposed, clicked, missing)
        with self._lock:
            try:
                if self._unfinished():
                    self._recover()
                entry = self._ledger.entry(decision)
                batch = decision.batch
                self._verify(batch)
                answer = self._read_feedback(decision.action, reward, options)
                pieces = [(batch, _as_column(answer.observation))]
                outside = int(answer.outside != "")
                if self._running.atomic:
                    self._apply([entry], pieces, outside)
                    return
            except FairwolfeError:
                self._refused += 1
                raise
        self._learn_in_python(pieces, outside)

    def read_feedback(
        self,
        decision: Decision,
        reward: Any = None,
        *,
        exposed: Iterable[int | str] | None = None,
        clicked: Iterable[int | str] | None = None,
        missing: float | None = None,
    ) -> Answer:
        """What `update` would learn from, checked; nothing changes."""
        require_decision(decision)
        with self._lock:
            options = feedback_options(exposed, clicked, missing)
            options |= self._shown_names(decision.action)
            return self._kind.read_feedback(decision.action, reward, **options)

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
        with self._lock:
            try:
                if self._unfinished():
                    self._recover()
                batches = self._batches("decisions", decisions)
                pieces, entries, outside = self._answered(batches, rewards, options)
                if not entries:
                    return
                if self._running.atomic:
                    self._apply(entries, pieces, outside)
                    return
            except FairwolfeError:
                self._refused += 1
                raise
        self._learn_in_python(pieces, outside)

    def _learn_in_python(self, pieces: list[tuple[Batch, Any]], outside: int) -> None:
        """For policies that learn in Python, where an interrupt could come between two lines: in a
        separate thread, which takes the lock itself.
        """

        def work() -> None:
            with self._lock:
                try:
                    self._recover()
                    entries = [one for batch, _ in pieces for one in self._ledger.entries(batch)]
                    self._apply(entries, pieces, outside)
                except FairwolfeError:
                    self._refused += 1
                    raise

        uninterrupted(work)

    def _answered(
        self, batches: list[Batch], rewards: Any, options: dict[str, Any]
    ) -> tuple[list[tuple[Batch, Any]], list[Entry], int]:
        """Batches with what was observed after each, checked; their entries; how many rewards are
        out of range.
        """
        rewards = one_for_each(rewards, sum(map(len, batches)))
        pieces: list[tuple[Batch, Any]] = []
        entries: list[Entry] = []
        outside, start = 0, 0
        for batch in batches:
            entries += self._ledger.entries(batch, start)
            self._verify(batch)
            part = _part(rewards, start, start + len(batch))
            answers = self._read_many(batch, part, options, start)
            outside += answers.outside
            pieces.append((batch, answers.observation))
            start += len(batch)
        if len(set(entries)) < len(entries):
            place = next(i for i, entry in enumerate(entries) if entry in entries[:i])
            again = [batch.id(i) for batch in batches for i in range(len(batch))][place]
            raise InvalidInput(
                f"answer {place}: decision {again!r} is given twice; its feedback counts once"
            )
        return pieces, entries, outside

    def _read_many(
        self, batch: Batch, rewards: Any, options: dict[str, Any], start: int
    ) -> Answers:
        """Feedback to decisions made together, by column."""
        kind, each = self._kind, []
        named = isinstance(self._called, Keys) and isinstance(rewards, list)
        if not isinstance(rewards, Shown) and (options or named):
            each = [{**options, **self._shown_names(one)} for one in batch.actions]
        try:
            answers = kind.read_feedback_many(batch.actions, rewards, each)
        except InvalidInput as error:
            raise InvalidInput(_renumbered(str(error), start)) from error
        if isinstance(answers, list):
            outside = [answer.outside for answer in answers if answer.outside]
            words = outside[0] if outside else ""
            answers = Answers([answer.observation for answer in answers], len(outside), words)
        if answers.outside:
            self._warn_outside(answers.words)
        return answers

    def study(self, rows: Any, observation: Any) -> None:
        """Learn from decisions that others made, with what was observed after each; the average
        and `t` stay as they are, since nothing was earned here. If one of them is wrong, none is
        learnt. rows: `ArmRows` or `RankingRows`; observation: a reward vector for each, or a
        `Shown` of columns.
        """
        with self.held():
            self._undo = self._copied([], 0)
            try:
                self._running.study(rows, observation)
                self._undo = None
            except BaseException:
                self._recover()
                raise

    def _apply(self, entries: list[Entry], pieces: list[tuple[Batch, Any]], outside: int) -> None:
        """Learn answers that were checked; all of them or none. Under the lock."""
        ledger, running, log = self._ledger, self._running, self._log
        if log is not None:
            for batch, observation in pieces:
                log.stage(ledger.token, batch, observation)
        if len(entries) == 1:
            seen = self._out_of_range + outside
            self._undo = undo = Undo(entries, running.t, ledger.answered + 1, seen)
        else:
            self._undo = undo = self._copied(entries, outside)
        try:
            start = 0
            for batch, observation in pieces:
                running.learn(_countable(batch, entries, start), observation)
                start += len(batch)
            self._finish(undo)
            if log is not None:
                log.settle(ledger, self._mark(), self._header)
        except BaseException:
            self._recover()
            raise

    def _copied(self, entries: list[Entry], outside: int) -> Undo:
        """All that several answers may change, as it is now."""
        ledger, running = self._ledger, self._running
        answered, seen = ledger.answered + len(entries), self._out_of_range
        copies = (running.copied(), ledger.copy(), seen)
        return Undo(entries, running.t, answered, seen + outside, *copies)

    def _finish(self, undo: Undo) -> None:
        """Note that answers were applied; once more does no harm."""
        self._ledger.mark(undo.entries, undo.answered)
        self._out_of_range = undo.outside
        self._undo = None

    def _unfinished(self) -> bool:
        """Whether an interrupt has left something half done."""
        if self._undo is None and self._issuing is None and self._leaving is None:
            return bool(self._orphans)
        return True

    def _recover(self) -> None:
        """Make whole what an interrupt left: one answer is finished, several are rolled back, a
        decision that no caller received is not open any more.
        """
        undo, issuing, running = self._undo, self._issuing, self._running
        if issuing is not None:
            head = issuing.rows.head
            if head["number"].item(0) >= self._ledger.issued:
                if 0 <= head["place"].item(0) < running.issued:
                    running.withdraw(issuing.rows)
                for number in issuing.numbers.tolist():
                    self._young.pop(number, None)
            self._issuing = None
        if self._leaving is not None:
            self._finish_leaving(self._leaving)
        while self._orphans:
            for decision in self._orphans[-1]:
                if self._ledger.waits(decision.number):
                    self._leave((decision.number, None), decision.batch)
                self._young.pop(decision.number, None)
            self._orphans = self._orphans[:-1]
        if undo is not None and undo.ledger is not None:
            running.restore(undo.state)
            self._ledger, self._out_of_range = undo.ledger.copy(), undo.outside_before
        elif undo is not None and running.t > undo.t:
            self._finish(undo)
        self._undo = None
        if self._log is not None:
            self._log.settle(self._ledger, self._mark(), self._header)

    def expire(self, decision: Decision) -> None:
        """A decision gets no feedback any more: what was expected of it is taken back, and feedback
        raises an error from now on.
        """
        with self.held():
            entry = self._ledger.entry(decision)
            self._verify(decision.batch)
            if entry[1] is not None:
                raise InvalidInput(
                    f"decision {decision.id!r} was made after the file that this agent was loaded "
                    "from, so nothing is expected of it; give its feedback, or leave it"
                )
            self._leave(entry, decision.batch)

    def _expires_within(self, rows: int) -> bool:
        """Whether a decision expires before the last of so many is made: then it must not count for
        those that follow.
        """
        if self._expires is None:
            return False
        issued = self._ledger.issued
        oldest = next(filter(self._ledger.waits, self._young), issued)
        return issued + rows - 1 > oldest + self._expires

    def _expire_old(self) -> None:
        """Under the lock, after a decision was made."""
        last = self._ledger.issued - 1 - (self._expires or 0)
        for number in list(takewhile(lambda number: number <= last, self._young)):
            if self._ledger.waits(number):
                self._leave((number, None), _one_of(self._young[number], number))
            self._young.pop(number, None)

    def _leave(self, entry: Entry, batch: Batch) -> None:
        """Under the lock."""
        self._leaving = leaving = Leaving(
            entry, batch, self._running.open, self._ledger.expired + 1
        )
        try:
            self._running.opening(lambda: self._finish_leaving(leaving))
        except Exception:  # it raised, and nothing has changed
            self._leaving = None
            raise

    def _finish_leaving(self, leaving: Leaving) -> None:
        """Once more does no harm."""
        if self._running.open == leaving.open:
            self._running.withdraw(leaving.batch.rows)
        self._ledger.expire(leaving.entry, leaving.expired)
        if self._log is not None:
            self._log.forget(leaving.entry[0])
        self._leaving = None

    def _read_feedback(self, action: Any, reward: Any, options: dict[str, Any]) -> Answer:
        """What the policy learns from; warned of before anything is written, since a warning may
        have been made an error.
        """
        if self._called is not None:
            options = {**options, **self._shown_names(action)}
        answer = self._kind.read_feedback(action, reward, **options)
        if answer.outside:
            self._warn_outside(answer.outside)
        return answer

    def _shown_names(self, action: Any) -> dict[str, Any]:
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
        warnings.warn(text, stacklevel=stack_level())  # of the caller of act or update

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
        return self._running.policy, self._kind.problem, self._called

    def _header(self) -> Header:
        """What is true of the rows of the log that follow."""
        kind = self._kind
        objective = None if self._bound is None else repr(self.policy.objective)
        problem, policy = kind.problem, repr(self.policy)
        if not isinstance(kind, Ranking):
            return Header(problem, objective, policy, arms=self.arms)
        kept = kind.catalogue.features
        features = kept.T.copy() if kept.shape[1] else None
        return Header(problem, objective, policy, self.names, features)

    def _remember(self, number: int, context: Any, given: Any, called: Any) -> None:
        """Keep the context of a decision for the log, until it is answered. Under the lock."""
        if self._log is None:
            return
        if isinstance(context, Mapping):
            context, _ = named_rows(context, self._kind.problem)
        by_context = isinstance(called, ArmNames) and called is not self._called
        checked = given if self._reads else self._kind.read(context)
        names = called.all if by_context else None
        self._log.remember_context(number, self._kind, context, checked, names)

    def _remember_many(self, stack: Stack, contexts: Any, called: Sequence[Any] | None) -> None:
        """The same for decisions made together."""
        first, some = self._ledger.issued, isinstance(stack.given, list)
        if not some and not isinstance(self._kind, Ranking):
            some = stack.given.places is not None  # and the others belong to the context too
        if self._log is not None and isinstance(contexts, np.ndarray) and not some:
            self._log.remember_contexts(first, self._kind, stack)
            return
        for i in range(stack.rows):
            given = self._kind.single(stack, i) if self._reads else stack.given[i]
            self._remember(first + i, contexts[i], given, called and called[i])

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

    def _catalogue(self) -> Catalogue:
        if not isinstance(self._kind, Ranking):
            has = "arms" if self._kind.name == "arms" else f"decisions of kind {self._kind.name!r}"
            raise InvalidInput(f"the problem has {has}; items are for Problem.ranking(...)")
        return self._kind.catalogue

    # --- what is known ------------------------------------------------------------------------

    @property
    def policy(self) -> Any:
        """The policy, with the current objective."""
        return self._running.policy

    @property
    def problem(self) -> Problem:
        """What is decided and which rewards come back."""
        return self._kind.problem

    @property
    def objective(self) -> Concave:
        """f, as it was given."""
        if self._bound is None:
            raise InvalidInput(f"{self.policy!r} has no objective")
        return self.policy.objective  # type: ignore[no-any-return]

    @contextmanager
    def held(self) -> Iterator[Any]:
        """The running policy; nobody else acts on or updates the agent meanwhile."""
        with self._lock:
            self._recover()
            yield self._running

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
        with self.held() as running:
            return np.array(running.average)

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
        with self.held() as running:
            if self._bound is None:
                raise InvalidInput(f"{self.policy!r} has no objective, so there is no value")
            return self._bound.relaxed().value(np.array(running.average))

    def live(self, delta: float = 0.05) -> Live:
        """How far `value` is from the best that can be reached: `print` it, or see `Live`."""
        self._running.survey()  # outside of the lock: others continue to decide
        with self.held() as running:
            live: Live = running.live(delta, trusted=self._out_of_range == 0)
            return live

    @property
    def constraints(self) -> tuple[Any, ...]:
        """The hard constraints of f, one for each level: print them, or see `Constraint`."""
        with self.held() as running:
            constraints: tuple[Any, ...] = running.constraints(trusted=self._out_of_range == 0)
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
        with self.held() as running:
            return {
                "t": self._ledger.answered,
                "open": self._ledger.open,
                "expired": self._ledger.expired,
                "oldest_open": self._ledger.oldest_open,
                "refused": self._refused,
                "out_of_range": self._out_of_range,
                "features_over_norm": self._over_norm,
                "value": None if self._bound is None else self.value,
                "drift": running.drift(),
                **running.counts(),
                **({} if self._log is None else self._log.counts()),
            }

    def __repr__(self) -> str:
        return f"<Agent {self.policy!r}, t = {self.t}, {self.open} open>"

    def repair(self) -> float:
        """Recompute what is kept of the regression from its sums; how large its error was.

        This is done automatically from time to time, and when a decision cannot be made otherwise.
        """
        with self.held() as running:
            drift: float = running.repair()
        logger.warning("the regression was recomputed; the error of its inverse was %.1e", drift)
        return drift

    def _warn_of_drift(self) -> None:
        self._check_at = self._ledger.answered + _DRIFT_CHECK
        drift = 0.0 if "drift" in self._warned else self._running.drift()
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
        with self.held() as running:
            self._take(running.with_objective(self._retargeted(objective)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a file, whole or not at all; `Agent.load` continues from there.

        The file holds the secret that signs decisions: only its owner can read it.
        """
        agent_file.write(path, *self._content())

    def dump(self) -> bytes:
        """What `save` writes, as bytes for `Agent.restore`."""
        file = io.BytesIO()
        agent_file.write_to(file, *self._content())
        return file.getvalue()

    def _content(self) -> tuple[dict[str, Any], dict[str, Any]]:
        with self.held() as running:
            ledger, kept = self._ledger.saved()
            arrays = {name: array.copy() for name, array in agent_file.arrays_of(running)}
            text = {
                "format": agent_file.FORMAT,
                "version": agent_file.VERSION,
                "library": version("fairwolfe"),
                "policy": repr(self.policy),
                "problem": json.loads(self._kind.problem.to_json()),
                "ledger": ledger,
                "key": self._key.hex(),
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
                young = [_one_of(self._young[number], number) for number in waiting]
                data = tuple(np.frombuffer(one.to_bytes(), np.uint8) for one in Batch.merged(young))
                kept["young"] = np.frombuffer(pack(data), dtype=np.uint8)
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
            young, keys = arrays.pop("young", None), arrays.pop("keys", None)
            running = agent_file.rebuilt(rebuilt, problem, arrays)
            agent = cls.__new__(cls)
            ledger = Ledger.loaded(text["ledger"], kept, token)
            agent._start(running, ledger, agent_file.secret(text["key"], _KEY))
            if running.t != ledger.answered:
                raise IncompatibleState(
                    f"{path} holds a state of {running.t} answers and a ledger of {ledger.answered}"
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
            for data in () if young is None else unpack(young.tobytes()):
                batch = Batch.from_bytes(data.tobytes())
                agent._verify(batch)
                ledger.entries(batch)
                agent._young.update(dict.fromkeys(batch.numbers.tolist(), batch))
            agent._young = dict(sorted(agent._young.items()))
        return agent

    def __reduce__(self) -> NoReturn:
        raise InvalidInput(
            "an Agent cannot be pickled or copied, since its decisions would then have two owners; "
            "use agent.save(path) and Agent.load(path), or agent.dump() and Agent.restore(data)"
        )


def _names(called: Sequence[Any] | None) -> list[Any] | None:
    return None if called is None else [one and one.all for one in called]


def _as_column(observation: Any) -> Any:
    """What was observed after one decision, by column."""
    if isinstance(observation, Shown):
        return Shown(observation.exposed[None], observation.rewards[None])
    return observation[None] if isinstance(observation, np.ndarray) else [observation]


def _part(rewards: Any, start: int, stop: int) -> Any:
    if isinstance(rewards, Shown):
        return Shown(*(np.asarray(column)[start:stop] for column in rewards))
    return rewards[start:stop]


def _countable(batch: Batch, entries: list[Entry], start: int) -> Any:
    """The rows of a batch; those made after the file was written are not open in this state."""
    beyond = [i for i in range(len(batch)) if entries[start + i][1] is not None]
    if not beyond:
        return batch.rows
    rows = batch.rows._replace(head=batch.rows.head.copy())
    rows.head["place"][beyond] = -1
    return rows


def _one_of(batch: Batch, number: int) -> Batch:
    row = int(np.flatnonzero(batch.numbers == number)[0])
    return batch[row : row + 1]


def _renumbered(text: str, start: int) -> str:
    """An error of an answer with its number among all."""
    head, _, rest = text.partition(": ")
    digits = head.removeprefix("answer ")
    return f"answer {int(digits) + start}: {rest}" if digits.isdecimal() else text


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
