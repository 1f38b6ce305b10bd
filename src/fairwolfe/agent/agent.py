"""`Agent`: a policy at work, the only thing in this library that changes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from itertools import takewhile
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fairwolfe.agent.file import KEY, AgentFile
from fairwolfe.agent.inputs import (
    Names,
    Options,
    Undo,
    context_options,
    contexts_with_options,
    logger,
    many,
    one_of,
)
from fairwolfe.agent.ledger import Entry, Ledger, require_decision
from fairwolfe.agent.names import (
    ItemKeys,
    arm_names,
    has_keys,
    keyed,
    require_attributes,
    without_attributes,
)
from fairwolfe.core.arrays import Vector
from fairwolfe.core.candidates import item_features, sizes
from fairwolfe.core.decision import Batch, Decision
from fairwolfe.core.feedback import (
    Shown,
    StageAnswer,
    as_column,
    one_for_each,
    row_of,
    stages_in,
)
from fairwolfe.core.interrupts import uninterrupted
from fairwolfe.core.kinds import Answer, Answers, Stack, finite_number
from fairwolfe.core.problem import Problem, is_whole, whole_number
from fairwolfe.core.streams import Numbered
from fairwolfe.errors import FairwolfeError, InvalidInput, NumericalFailure
from fairwolfe.objectives import Concave
from fairwolfe.objectives.two_sided import grouped_by
from fairwolfe.ranking.policies import as_policy
from fairwolfe.reduction.live import Live
from fairwolfe.reduction.running import PolicyRunning, Running

_DRIFT = 1e-6  # of the kept inverse between two refreshes; more is worth a warning
_DRIFT_CHECK = 1024  # answers between two checks of the drift
_MOST_NODES = 2**32 - 1

Pieces = list[tuple[Batch, Any]]  # decisions with what was observed after each
Known = dict[int, NDArray[np.float64]]  # what is known of decisions that wait, by number


class Agent(AgentFile):
    """A policy with its state and its generator: it acts, and learns from feedback.

    Feedback may come late and in any order, once for each decision: an error changes
    nothing, and what is interrupted (Ctrl-C) has happened whole or not at all. Safe to use from
    several threads. Memory does not grow while feedback comes, and by one bit for each decision
    made after one that is never answered.

    An agent is one process: what another process learns it does not see. A forked child continues
    with its own ids and random draws.

    Parameters
    ----------
    policy: such as ``FrankWolfe(objective, base)``; or an objective alone: the policy that is
        recommended for it, ``FrankWolfe(objective, LinUCB())`` for arms and
        ``FWLinUCBRank(objective)`` for rankings
    problem: what is decided, and the rewards with their ranges
    seed: of the policy's draws, a whole number of at least 0. Decision n draws the same numbers
        whatever came before it
    node: the number of the process, from 0 on: agents with one seed and other nodes draw others
    expires: after so many further decisions one that has no feedback yet gets none any more: what
        was expected of it is removed, and feedback raises an error. None: never
    items: for rankings, the features of the items by id, (n_items, features of an item): contexts
        then need the user alone. `fw.Item(features, maker="acme")` gives an item attributes, by
        which `ByGroup(objective, by="maker")` makes groups. A mapping key -> features, or pairs,
        gives the items keys, texts by which they may be named wherever ids may
    arms: the names of the arms, in the order of every context; a context that is a mapping name ->
        features has exactly these, in any order
    token: what the ids of its decisions begin with, instead of a random text: for who keeps a log
        of all that an agent does, and does it again after a restart, under the same ids

    >>> from fairwolfe.objectives import Minimum
    >>> problem = Problem.arms(2, {"clicks": (0, 1), "saves": (0, 1)})
    >>> agent = Agent(Minimum(), problem)
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
        policy = as_policy(policy, problem)
        self._expires = None if expires is None else whole_number("expires", expires)
        node = whole_number("node", node, 0)
        if node > _MOST_NODES:
            raise InvalidInput(
                f"node is {node}; give the number of the process, from 0 to {_MOST_NODES:,}"
            )
        self._draws = Numbered.of(seed, "policy", node)
        called: Names = None if arms is None else arm_names(arms, problem)
        ledger = Ledger(token, problem.n_stages)
        attributes: list[dict[str, str]] = []
        if items is not None:
            items, attributes = without_attributes(items)
            if has_keys(items):
                keys, items = keyed(items, sizes(problem)[1])
                called = ItemKeys(keys)
            if attributes and problem.n_items:
                items = item_features(items, problem, problem.n_items)
                names = called.all if isinstance(called, ItemKeys) else range(len(items))
                require_attributes(grouped_by(policy.followed), names, attributes)
        running = PolicyRunning.of(policy, problem, attributes)
        if items is not None:
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
        options: Options = {}
        if candidates is not None or pinned is not None or type(blocked) is not tuple or blocked:
            options = context_options(candidates, blocked, pinned)
        made: list[Batch] = []
        try:
            with self._lock:
                called = self._called
                if called is not None or type(context) is not np.ndarray:
                    context, options, called = self._numbered(context, options)
                given = self._read_context(context, options)
                self._recover()
                self._act_one(context, given, called, made)
                return Decision.of(made[0], 0)
        except BaseException:
            self._abandon(made)
            raise

    def _act_one(self, context: Any, given: Any, called: Names, made: list[Batch]) -> None:
        """Decide for a checked context and issue the decision, which is added to `made`."""
        names = None if called is None else (called.all,)
        batch = Batch(self._decide(given), self._ledger.token, self._key, None, names)
        if self._log is not None:
            self._remember(self._log, context, given, called)
        self._issue(batch, made)

    def _decide(self, given: Any, **how: Any) -> Any:
        """The rows of the next decisions, for a checked context or a stack of them; only reads.

        A state that has become useless is rebuilt, not silently, and asked once more.
        """
        ledger, running = self._ledger, self._running
        if ledger.answered[0] >= self._check_at:
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
        given, options = contexts_with_options(contexts, advance, candidates, blocked, pinned)
        if len(given) == 0:
            return []
        made: list[Batch] = []
        try:
            with self._lock:
                stack, called = self._read_contexts(given, options, warn=True)
                self._recover()
                counts = getattr(self._running.policy, "anticipate", True) and advance is not False
                in_turn = isinstance(self._running, PolicyRunning)
                # One by one for policies in Python, and where decisions expire on the way.
                if in_turn or (counts and self._expires_within(stack.rows)):
                    for i in range(stack.rows):
                        own = None if called is None else called[i]
                        self._act_one(given[i], self._given(stack, i), own, made)
                    (batch,) = Batch.merged(made)
                    return batch
                batch = self._proposed(stack, called, advance=advance)
                if self._log is not None:
                    self._remember_many(self._log, stack, given, called)
                self._issue(batch, made)
                return batch
        except BaseException:
            self._abandon(made)
            raise

    def _proposed(self, stack: Stack, called: Sequence[Names] | None, **how: Any) -> Batch:
        """Decisions for contexts that were read together; nothing changes."""
        batch = self.batch(self._decide(stack, **how))
        if called is not None:
            batch.names = [one and one.all for one in called]
        return batch

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
        given, options = contexts_with_options(contexts, advance, candidates, blocked, pinned)
        if len(given) == 0:
            return []
        with self._lock:
            stack, called = self._read_contexts(given, options, warn=False)
            self._recover()
            how: Options = {"advance": advance, "explain": explain, "tolerance": tolerance}
            return self._proposed(stack, called, **how)

    def check(
        self, contexts: Any, *, candidates: Any = None, blocked: Any = None, pinned: Any = None
    ) -> None:
        """Raise the InvalidInput that `propose` would raise for these; nothing is decided."""
        given, options = contexts_with_options(contexts, None, candidates, blocked, pinned)
        with self._lock:
            self._read_contexts(given, options, warn=False)

    def issue(self, decisions: Sequence[Decision]) -> None:
        """Decisions of `propose` are made from now on: they are open, and wait for their feedback.

        They may come from bytes (`Batch.from_bytes`): an agent that is given again what it did
        since a `dump` comes to the same state, bit for bit.
        """
        with self._lock:
            self._recover()
            ledger = self._ledger
            for batch in self._batches("decisions", decisions):
                expected = range(ledger.issued, ledger.issued + len(batch))
                if batch.token != ledger.token or batch.numbers.tolist() != list(expected):
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
        self._undo = self._rollback_open, (batch,)
        try:
            self._running.open_rows(batch.rows)
        except Exception:  # it raised, and nothing has changed
            self._undo = None
            raise
        if self._expires is not None:
            self._young.update(dict.fromkeys(batch.numbers.tolist(), batch))
        made.append(batch)
        self._ledger.issued += len(batch.rows.head)
        self._undo = None

    def _rollback_open(self, batch: Batch) -> None:
        """Take decisions out of the open ones that the ledger has not issued."""
        head = batch.rows.head
        if head["number"].item(0) >= self._ledger.issued:
            if 0 <= head["place"].item(0) < self._running.issued:
                self._running.withdraw(batch.rows)
            for number in batch.numbers.tolist():
                self._young.pop(number, None)

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

        Where rewards arrive in stages (`Problem.arms(..., stages=)`), a mapping answers the stages
        that it names, each whole and once, in any order. The exposures of a ranking belong to the
        first stage: a later one that comes before it is kept, and learnt with it.

        Rewards outside their declared range are learnt as they are, counted and warned of once.
        """
        options: Options = {}
        if exposed is not None or clicked is not None or missing is not None:
            options = _feedback_options(exposed, clicked, missing)
        self._learn(self._read_one, decision, reward, options)

    def _read_one(self, decision: Decision, reward: Any, options: Options) -> _Checked:
        """One answer, checked, with its entry; see `_read_all`."""
        ledger = self._ledger
        staged = ledger.stages > 1
        entry = ledger.waiting_entry(decision) if staged else ledger.entry(decision)
        batch, action = decision.batch, decision.action
        if batch.key is not self._key:
            self._verify(batch)
        if self._called is not None:
            options |= self._shown_names(action)
        answer = self._running.kind.read_feedback(action, reward, **options)
        entries, pieces = [entry], [(batch, as_column(answer.observation))]
        known: Known = {}
        if staged:
            parts = self._parts(decision, answer.observation, known)
            entries = [ledger.entry(decision, part.stage) for part in parts]
            pieces = [(batch, part) for part in parts]
        if answer.outside:  # before anything is written: a warning may have become an error
            self._warn_outside(answer.outside)
        return entries, pieces, int(answer.outside != ""), known

    def _parts(self, decision: Decision, observation: Any, known: Known) -> list[StageAnswer]:
        """The stages that can be learnt with an observation, NaN for what it does not answer;
        known: what is known of each decision then, by number.
        """
        ledger, number, before = self._ledger, decision.number, None
        here = ledger.issued_here(decision)  # others may have the same number
        if here:
            before = known.get(number, self._known.get(number))
        staged = self._kind.stages(decision.action, self._kind.table(observation), before)
        for stage in staged.given:
            ledger.entry(decision, stage)
        if staged.again:
            ledger.refuse_again(decision, staged.again[0])
        if here:
            known[number] = staged.known
        elif len(staged.learnt) < len(staged.given):
            raise InvalidInput(
                f"decision {decision.id!r} was made after the file that this agent was loaded "
                "from, and nothing is kept for it: give a later stage together with the first"
            )
        return staged.learnt

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
            options = _feedback_options(exposed, clicked, missing)
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
        options = _feedback_options(None, None, missing)
        self._learn(self._read_all, decisions, rewards, options)

    def update_stage(self, decisions: Sequence[Decision], stage: int, rewards: Any) -> None:
        """Learn one stage of decisions, for code that itself keeps what is known of each; if one of
        them is wrong, none is learnt.

        rewards: a matrix (decisions, rewards), or for rankings a `Shown` of columns: those of the
        stage and of the stages that were learnt before it, NaN elsewhere. The agent keeps nothing
        of them until the other stages come, and memory does not grow with the decisions that wait:
        answer these by `update_stage` too.
        """
        kind = self._kind
        table = kind.settled(kind.table(rewards))
        own, ranges = kind.stage_rewards(table, stage)
        with self._lock:
            self._recover()
            entries: list[Entry] = []
            pieces: Pieces = []
            at = 0
            for batch in self._batches("decisions", decisions):
                self._verify(batch)
                entries += [self._ledger.entry(decision, stage) for decision in batch]
                pieces.append((batch, StageAnswer(stage, table[at : at + len(batch)])))
                at += len(batch)
            if table.shape != (at, *kind.known_shape) or not np.isfinite(own).all():
                raise InvalidInput(
                    f"rewards of {at} decisions have shape {table.shape}, or hold numbers of "
                    f"stage {stage} that are not finite"
                )
            outside, words = ranges.outside_any(ranges.far(own, kind.first_leads), own)
            if outside:
                self._warn_outside(words)
            self._apply(entries, pieces, outside, {})

    def _learn(self, read: Callable[..., _Checked], *given: Any) -> None:
        """Check answers by `read` and apply them. Policies that learn in Python, where an interrupt
        could come between two lines, do so in a separate thread, which takes the lock itself.
        """
        try:
            with self._lock:
                self._recover()
                entries, pieces, outside, known = read(*given)
                if self._running.atomic or not entries:
                    self._apply(entries, pieces, outside, known)
                    return
            uninterrupted(partial(self._apply_pieces, pieces, outside))
        except FairwolfeError:
            with self._lock:
                self._refused += 1
            raise

    def _apply_pieces(self, pieces: Pieces, outside: int) -> None:
        """Apply answers of one stage: those of several are learnt by one call."""
        with self._lock:
            self._recover()
            entries = [one for batch, _ in pieces for one in self._ledger.entries(batch)]
            self._apply(entries, pieces, outside, {})

    def _read_all(self, decisions: Any, rewards: Any, options: Options) -> _Checked:
        """Answers, checked: the entries of the decisions, batches with what was observed after
        each, and how many rewards are out of range.
        """
        batches = self._batches("decisions", decisions)
        rewards = one_for_each(rewards, sum(map(len, batches)))
        pieces: Pieces = []
        entries: list[Entry] = []
        outside, start = 0, 0
        known: Known = {}
        for batch in batches:
            if self._ledger.stages == 1:
                entries += self._ledger.entries(batch, start)
            self._verify(batch)
            part = _part(rewards, start, start + len(batch))
            answers = self._read_many(batch, part, options, start)
            outside += answers.outside
            if self._ledger.stages == 1:
                pieces.append((batch, answers.observation))
            else:
                entries += self._add_stages(batch, answers.observation, known, pieces, start)
            start += len(batch)
        if len(set(entries)) < len(entries):
            place = next(i for i, entry in enumerate(entries) if entry in entries[:i])
            again = [batch.id(i) for batch, _ in pieces for i in range(len(batch))][place]
            raise InvalidInput(
                f"answer {place}: decision {again!r} is given twice; its feedback counts once"
            )
        return entries, pieces, outside, known

    def _add_stages(
        self, batch: Batch, observation: Any, known: Known, pieces: Pieces, start: int
    ) -> list[Entry]:
        """Add the stages that an observation answers to the pieces, decision by decision, and give
        their entries; decisions in a row that answer the same stage are one piece.
        """
        entries: list[Entry] = []
        alike: list[tuple[int, StageAnswer]] = []

        def end() -> None:
            if alike:
                first, last = alike[0][0], alike[-1][0]
                table = np.concatenate([part.known for _, part in alike])
                stage = alike[0][1].stage
                pieces.append((batch[first : last + 1], StageAnswer(stage, table)))
                alike.clear()

        for i, decision in enumerate(batch):
            try:
                parts = self._parts(decision, row_of(observation, i), known)
                entries += [self._ledger.entry(decision, part.stage) for part in parts]
            except InvalidInput as error:
                raise InvalidInput(f"answer {start + i}: {error}") from error
            for part in parts:
                if alike and (alike[-1][1].stage != part.stage or alike[-1][0] != i - 1):
                    end()
                alike.append((i, part))
        end()
        return entries

    def _read_many(self, batch: Batch, rewards: Any, options: Options, start: int) -> Answers:
        """Feedback to decisions made together, by column."""
        kind, each = self._kind, []
        named = isinstance(self._called, ItemKeys) and isinstance(rewards, list)
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
            self._undo = self._rollback_to_here()
            try:
                self._running.study(rows, observation)
                self._undo = None
            except BaseException:
                self._recover()
                raise

    def _apply(self, entries: list[Entry], pieces: Pieces, outside: int, known: Known) -> None:
        """Learn answers that were checked; all of them or none. Under the lock."""
        if not entries:
            self._out_of_range += outside
            self._known.update(known)  # of stages that wait for the first
            return
        ledger, running, log = self._ledger, self._running, self._log
        if log is not None:
            for batch, observation in pieces:
                staged = isinstance(observation, StageAnswer)
                log.stage(ledger.token, batch, observation.observation if staged else observation)
        # One answer is applied by one call, which shows in `t`, and is finished after an interrupt.
        after = entries, ledger.more(ledger.answered, entries), self._out_of_range + outside, known
        if len(entries) == 1:
            self._undo = self._finish_learnt, after
        else:
            self._undo = self._rollback_to_here()
        try:
            if ledger.earlier:
                beyond = [i for i, (_, token) in enumerate(entries) if token is not None]
                pieces = _counted(pieces, beyond) if beyond else pieces
            for batch, observation in pieces:
                running.learn(batch.rows, observation)
            self._finish(*after)
            self._undo = None
            if log is not None:
                log.settle(ledger, self._mark(), self._header)
        except BaseException:
            self._recover()
            raise

    def _finish(
        self, entries: list[Entry], answered: tuple[int, ...], outside: int, known: Known
    ) -> None:
        """Note that answers were applied; once more does no harm."""
        self._ledger.mark(entries, answered)
        self._out_of_range = outside
        for number in known:
            if self._ledger.waits(number):
                self._known[number] = known[number]
            else:
                self._known.pop(number, None)

    def _finish_learnt(self, entries: list[Entry], answered: tuple[int, ...], *more: Any) -> None:
        """`_finish`, where the policy has learnt the answers."""
        if self._running.answered == answered:
            self._finish(entries, answered, *more)

    def _rollback_to_here(self) -> Undo:
        """What restores all that several answers may change, as it is now."""
        state, ledger, known = self._running.copied(), self._ledger.copy(), dict(self._known)
        return self._rollback, (state, ledger, self._out_of_range, known)

    def _rollback(self, state: Any, ledger: Ledger, outside: int, known: Known) -> None:
        self._running.restore(state)
        self._ledger, self._out_of_range, self._known = ledger.copy(), outside, dict(known)

    def _recover(self) -> None:
        """Make whole what an interrupt left: one answer is finished, several are rolled back, a
        decision that no caller received is not open any more.
        """
        if self._undo is None and not self._orphans and self._log is None:
            return
        if self._undo is not None:
            undo, given = self._undo
            undo(*given)
            self._undo = None
        while self._orphans:
            for decision in self._orphans[-1]:
                self._withdraw(decision.number, decision.batch)
                self._young.pop(decision.number, None)
            self._orphans = self._orphans[:-1]
        if self._log is not None:
            self._log.settle(self._ledger, self._mark(), self._header)

    def expire(self, decision: Decision, stage: int | str | None = None) -> None:
        """A decision gets no feedback any more: what was expected of it is taken back, and feedback
        raises an error from now on.

        stage: where rewards arrive in stages, the one that gets none, by its number or by one of
        its rewards; None: all that the decision waits for. With the first stage of a ranking the
        later ones expire too: without exposures they cannot be learnt.
        """
        with self.held():
            ledger = self._ledger
            if stage is None:
                entry = ledger.waiting_entry(decision)
                stages = ledger.waiting(decision.number)
            else:
                stages = [_stage_of(stage, self.problem)]
                entry = ledger.entry(decision, stages[0])
                if stages[0] == 0 and self._kind.first_leads:
                    stages = ledger.waiting(decision.number)
                elif stages[0] in self._kept_stages(decision.number):
                    ledger.refuse_again(decision, stages[0])
            self._verify(decision.batch)
            if entry[1] is not None:
                raise InvalidInput(
                    f"decision {decision.id!r} was made after the file that this agent was loaded "
                    "from, so nothing is expected of it; give its feedback, or leave it"
                )
            self._withdraw(decision.number, decision.batch, stages)

    def _kept_stages(self, number: int) -> list[int]:
        """The stages of a decision that were answered, learnt or not."""
        known = self._known.get(number)
        return [] if known is None else stages_in(self._kind.known_starts, known)

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
                self._withdraw(number, one_of(self._young[number], number))
            self._young.pop(number, None)

    def _withdraw(self, number: int, batch: Batch, stages: list[int] | None = None) -> None:
        """A decision gets no answer any more, in these stages or in all that it waits for. Under
        the lock.
        """
        ledger = self._ledger
        stages = ledger.waiting(number) if stages is None else stages
        if not stages:
            return
        entries: list[Entry] = [(number * ledger.stages + stage, None) for stage in stages]
        before = self._running.open_stages, ledger.more(ledger.expired, entries)
        given = number, entries, stages, batch, *before
        self._undo = self._finish_withdrawal, given
        try:
            self._running.opening(self._finish_withdrawal, *given)
        except Exception:  # it raised, and nothing has changed
            self._undo = None
            raise

    def _finish_withdrawal(
        self,
        number: int,
        entries: list[Entry],
        stages: list[int],
        batch: Batch,
        open_: tuple[int, ...],
        expired: tuple[int, ...],
    ) -> None:
        """open_: decisions that the policy counted as open before. Once more does no harm."""
        if self._running.open_stages == open_:
            self._running.withdraw(batch.rows, stages)
        self._ledger.expire(entries, expired)
        if not self._ledger.waits(number):
            self._known.pop(number, None)
        if self._log is not None:
            self._log.forget(number)
        self._undo = None

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
        """How many decisions have had their feedback; with stages, the smallest number of them."""
        with self.held() as running:
            t: int = running.t
            return t

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

    def direction(self) -> Vector:
        """What one more of each coordinate is worth to f now, which the next decision follows: the
        gradient of the smoothed f, open decisions counted as in `act`, in the order of `average`.

        For rankings a number for each of `items`, then one for each reward: a retriever that adds
        the first to its scores, in the units of the rewards, finds items that f asks for. With
        randomised smoothing it is the one that the next decision draws.
        """
        with self.held() as running:
            if not isinstance(running, Running) or not running.directed:
                raise InvalidInput(f"{running.policy!r:.200} follows no direction of an objective")
            self._draws.number = self._ledger.issued
            return running.direction(self._draws)

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
            if isinstance(running, Running):
                return running.value
            return self._bound.relaxed().value(np.array(running.average))

    @property
    def drift(self) -> float:
        """How far the regression's kept inverse was off when it was last recomputed."""
        with self.held() as running:
            return float(running.drift())

    def exposures_by_group(self) -> dict[str, dict[str, float]]:
        """Attribute -> group -> exposure a decision, for the attributes by which f makes groups:
        the sum over the items of a group, over the time in which it had any.
        """
        with self.held() as running:
            return running.exposures if isinstance(running, Running) else {}

    def live(self, delta: float = 0.05) -> Live:
        """How far `value` is from the best that can be reached: `print` it, or see `Live`."""
        self._running.precompute()  # outside of the lock: others continue to decide
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
        groups: the exposure of each group, by attribute, where f has `ByGroup(by=)`; what the
        policy counts itself, as Guarded does (baseline_played); while there is a `log`, logged and
        unlogged: decisions answered with a row, and without one; and with stages, t, open and
        expired of each in `stages`: above, t is the smallest, expired the largest number of these,
        and open counts decisions that wait for any stage.
        """
        with self.held() as running:
            return {
                "t": running.t,
                "open": self._ledger.open,
                "expired": max(self._ledger.expired),
                "oldest_open": self._ledger.oldest_open,
                "refused": self._refused,
                "out_of_range": self._out_of_range,
                "features_over_norm": self._over_norm,
                "value": None if self._bound is None else self.value,
                "drift": self.drift,
                **({"groups": groups} if (groups := self.exposures_by_group()) else {}),
                **running.counts(),
                **({} if self._log is None else self._log.counts()),
                **({} if self._ledger.stages == 1 else {"stages": self._stage_stats()}),
            }

    def _stage_stats(self) -> list[dict[str, Any]]:
        ledger = self._ledger
        each = zip(
            *(self.problem.stage_names, ledger.answered, ledger.open_stages, ledger.expired),
            strict=True,
        )
        return [dict(zip(("rewards", "t", "open", "expired"), one, strict=True)) for one in each]

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
        self._check_at = self._ledger.answered[0] + _DRIFT_CHECK
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


_Checked = tuple[list[Entry], Pieces, int, Known]


def _stage_of(given: Any, problem: Problem) -> int:
    """A stage by its number or by one of its rewards."""
    for stage, names in enumerate(problem.stage_names):
        if (is_whole(given) and given == stage) or given in names:
            return stage
    parts = " | ".join(", ".join(names) for names in problem.stage_names)
    raise InvalidInput(
        f"stage is {given!r:.80}; give a number from 0 to {problem.n_stages - 1}, or a reward of "
        f"one of the stages {parts}"
    )


def _feedback_options(exposed: Any, clicked: Any, missing: Any) -> Options:
    """What feedback has in addition to the reward."""
    options = {"exposed": exposed, "clicked": clicked}
    if missing is not None:
        options["missing"] = finite_number("missing", missing)
    return {name: value for name, value in options.items() if value is not None}


def _part(rewards: Any, start: int, stop: int) -> Any:
    if isinstance(rewards, Shown):
        return Shown(*(np.asarray(column)[start:stop] for column in rewards))
    return rewards[start:stop]


def _counted(pieces: Pieces, beyond: list[int]) -> Pieces:
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
