"""`Agent`: a policy at work, the only thing in this library that changes."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import takewhile
from typing import Any, NoReturn

import numpy as np

from fairwolfe.agent.base import KEY, Leaving, Undo, logger, one_of
from fairwolfe.agent.contexts import Contexts
from fairwolfe.agent.ledger import Entry, Ledger, require_decision
from fairwolfe.agent.names import ArmNames, Keys, arm_names, has_keys, keyed
from fairwolfe.agent.options import (
    context_options,
    feedback_options,
    many,
    node_number,
)
from fairwolfe.agent.saving import Saving
from fairwolfe.core.arrays import Vector
from fairwolfe.core.catalogue import sizes
from fairwolfe.core.decision import Batch, Decision
from fairwolfe.core.feedback import Shown, as_column, one_for_each
from fairwolfe.core.interrupts import uninterrupted
from fairwolfe.core.kinds import Answer, Answers, Stack
from fairwolfe.core.problem import Problem, whole_number
from fairwolfe.core.streams import Numbered
from fairwolfe.errors import FairwolfeError, InvalidInput, NumericalFailure
from fairwolfe.kinds.rewards import finite_number
from fairwolfe.objectives import Concave
from fairwolfe.ranking.policies import as_policy
from fairwolfe.reduction.live import Live
from fairwolfe.reduction.policy import PolicyRunning

__all__ = ["Agent"]

_DRIFT = 1e-6  # of the kept inverse between two refreshes; more is worth a warning
_DRIFT_CHECK = 1024  # answers between two checks of the drift


class Agent(Contexts, Saving):
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

    __slots__ = ()

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
        key = secrets.token_bytes(KEY) if token is None else blake2b(token.encode()).digest()[:KEY]
        self._start(running, ledger, key)
        self._called = called

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
            rows = decide(given, self._draws, first, **how)
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
        return decide(given, self._draws, ledger.issued, **how)

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

    def _issue(self, batch: Batch, made: list[Batch]) -> None:
        """Decisions made together are open from now on, and listed in `made`; whole or not at
        all.
        """
        self._running.opening(self._open, batch, made)
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
        ledger.issued += len(batch.rows.head)
        self._issuing = None

    def _abandon(self, made: list[Batch]) -> None:
        """Decisions that were issued, and that an interrupt kept from the caller, expire: nobody
        holds them, so nobody could answer them.
        """
        if made:  # not here: another interrupt may come before the recovery is done
            with self._lock:
                self._orphans = [*self._orphans, *made]

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
                entry, running = self._ledger.entry(decision), self._running
                batch, action = decision.batch, decision.action
                if batch.key is not self._key:
                    self._verify(batch)
                if self._called is not None:
                    options |= self._shown_names(action)
                answer = running.kind.read_feedback(action, reward, **options)
                if answer.outside:  # before anything is written: a warning may have become an error
                    self._warn_outside(answer.outside)
                pieces = [(batch, as_column(answer.observation))]
                outside = int(answer.outside != "")
                if running.atomic:
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
            beyond = [i for i, (_, token) in enumerate(entries) if token is not None]
            if beyond:
                pieces = _counted(pieces, beyond)
            for batch, observation in pieces:
                running.learn(batch.rows, observation)
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
                self._leave((number, None), one_of(self._young[number], number))
            self._young.pop(number, None)

    def _leave(self, entry: Entry, batch: Batch) -> None:
        """Under the lock."""
        self._leaving = leaving = Leaving(
            entry, batch, self._running.open, self._ledger.expired + 1
        )
        try:
            self._running.opening(self._finish_leaving, leaving)
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

    def _shown_names(self, action: Any) -> dict[str, Any]:
        return {} if self._called is None else self._called.feedback_options(action)

    def _warn_outside(self, words: str) -> None:
        if "rewards" not in self._warned:
            self._warn_once(
                "rewards",
                f"{words}, and exploration rests on it: it is learnt as it is, and "
                "agent.out_of_range counts such rewards (reported once)",
            )

    # --- what is known ------------------------------------------------------------------------

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

    def __reduce__(self) -> NoReturn:
        raise InvalidInput(
            "an Agent cannot be pickled or copied, since its decisions would then have two owners; "
            "use agent.save(path) and Agent.load(path), or agent.dump() and Agent.restore(data)"
        )


def _names(called: Sequence[Any] | None) -> list[Any] | None:
    return None if called is None else [one and one.all for one in called]


def _part(rewards: Any, start: int, stop: int) -> Any:
    if isinstance(rewards, Shown):
        return Shown(*(np.asarray(column)[start:stop] for column in rewards))
    return rewards[start:stop]


def _counted(pieces: list[tuple[Batch, Any]], beyond: list[int]) -> list[tuple[Batch, Any]]:
    """The same answers, where those to decisions made after the file was written, which are not
    open in this state, do not count as open.
    """
    counted, start = [], 0
    for batch, observation in pieces:
        rows = batch.rows._replace(head=batch.rows.head.copy())
        rows.head["place"][[i - start for i in beyond if 0 <= i - start < len(batch)]] = -1
        counted.append((Batch(rows, batch.token), observation))
        start += len(batch)
    return counted


def _renumbered(text: str, start: int) -> str:
    """An error of an answer with its number among all."""
    head, _, rest = text.partition(": ")
    digits = head.removeprefix("answer ")
    return f"answer {int(digits) + start}: {rest}" if digits.isdecimal() else text
