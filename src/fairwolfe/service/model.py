"""`Model`: an agent and its open decisions. Its state is the fold of the log by `apply`, the only
writer: the same code when the service runs and when it starts again.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from sys import intern
from typing import Any

import msgspec
import numpy as np

from fairwolfe.agent import Agent
from fairwolfe.agent.names import ArmNames
from fairwolfe.core.build import build_objective
from fairwolfe.core.decision import Batch
from fairwolfe.core.feedback import Shown
from fairwolfe.core.groups import Item
from fairwolfe.core.packing import pack, unpack
from fairwolfe.errors import FairwolfeError, IncompatibleState, InvalidInput
from fairwolfe.objectives import Concave
from fairwolfe.service import events
from fairwolfe.service.config import Setup
from fairwolfe.service.join import DecisionGroup, Joined, Ring, one_or_all

_ENTRIES = ("known", "late", "unknown", "conflict")
_NO_END = 2**63


class Model:
    """What one model of the service knows.

    Parameters
    ----------
    number: of the model in its store
    token: of the store; ids of decisions are token-number-epoch-n
    setup: what the fold rests on
    log: in which decisions are found again after their first window
    fresh: whether it begins; else it is loaded
    """

    def __init__(
        self, number: int, token: str, setup: Setup, log: Any = None, fresh: bool = True
    ) -> None:
        self.number, self.setup, self._log = number, setup, log
        self.token = f"{token}-{number}"
        self.name, self.n_slots = setup.name, setup.n_slots
        self.ranks = self.n_slots > 0  # items; else it chooses an arm
        self.problem = setup.make_problem(self.n_slots)  # a ranking's with the fewest items
        self.rewards = tuple(self.problem.rewards)
        pair = isinstance(self.problem.n_features, tuple)
        alone = self.problem.n_arms is not None  # arms without features of their own
        self.wants = (self.ranks or alone or pair, not (self.ranks or alone))  # user, arms
        self.arm_names = ArmNames(setup.arms) if setup.arms else None
        self.encoders = setup.make_encoders()
        self.encodes = any(self.encoders)
        self.places = {name: place for place, name in enumerate(self.rewards)}
        # Low and high of each reward; of a ranking the share of one slot.
        self.ranges = dict(zip(self.rewards, self.problem.slot_ranges.T.tolist(), strict=True))
        self.stages = self.problem.stage_names
        self.stage_of = {name: s for s, names in enumerate(self.stages) for name in names}
        self.ring = Ring(self.n_slots or 1, len(self.rewards), len(self.stages), self._read_back)
        self.epoch = ""  # the newest
        self.epochs: dict[str, tuple[int, int]] = {}  # the numbers of an epoch: first and stop
        self.unwritten = dict.fromkeys(_ENTRIES, 0)  # counts that no row of the log has yet
        self.joined = [0] * len(self.stages)  # closed decisions with feedback, by stage
        self.expired = [0] * len(self.stages)  # and without
        self._counts = dict.fromkeys(_ENTRIES, 0)
        self.changes: list[int] = []  # the rows of the log that brought another objective
        self.early: dict[str, Item] = {}  # items, while there are fewer than slots
        self.agent: Agent | None = None
        self.stopped = ""  # why it was, where something went wrong
        # What its newest snapshot does not have: the first row, with its clock, and the records.
        self.since: tuple[int, float] | None = None
        self.unsnapped = 0
        self.noted: tuple[int, ...] = ()  # what the last point of its history was of
        # Of the configuration; they may change at any start.
        self.audit = False  # whether what decisions are made from is kept
        self.tolerance = 0.0  # how much older than a decision its direction may be: Agent.propose
        self.out_of_range = "refuse"  # what is done with a reward outside its range
        if fresh and not self.ranks:
            self.agent = self._agent(setup.make_policy(), self.problem)

    def _agent(self, policy: Any, problem: Any, items: Any = None) -> Agent:
        """Its decisions have ids of their own, alike in every log: equal events, equal bytes."""
        seed, arms = self.setup.seed, self.setup.arms or None
        return Agent(policy, problem, seed, items, arms=arms, token=_agent_token(self.number))

    @property
    def decisions(self) -> int:
        """How many were made; each is joined, expired or open in each stage."""
        return self.ring.issued

    @property
    def counts(self) -> dict[str, int]:
        """Decisions closed in the last stage, and entries of feedback by outcome, with those not
        written yet.
        """
        entries = {name: n + self.unwritten[name] for name, n in self._counts.items()}
        return {"joined": self.joined[-1], "expired": self.expired[-1], **entries}

    # --- the fold -----------------------------------------------------------------------------

    def apply(self, event: events.Event, seq: int, clock: float) -> None:
        """What an event of a row changes; what can be refused was checked before it was written.

        seq, clock: of the row.
        """
        match event:
            case events.DecisionsMade():
                group = self._group(event, self.ring.issued, seq, clock)
                self._ready().issue(group.decisions)
                self.ring.add(group)
            case events.StartedFrom(agent=data):
                self.agent = self._started_from(data)
            case events.Epoch(epoch=epoch):
                self._begin(epoch)
            case events.FeedbackReceived():
                self.ring.write_feedback(event)
                for name, count in zip(_ENTRIES, event.counts, strict=True):
                    self._counts[name] += count
                    self.unwritten[name] = 0  # a row has all that were counted before it
            case events.Applied(numbers=numbers, stage=stage):
                self._learn(numbers, self.ring.joined(numbers), stage)
                self.ring.apply(numbers, stage)
            case events.Closed(upto=upto, stage=stage):
                self._close(upto, stage)
            case events.ItemsAdded():
                self._add_items(event, seq)
            case events.ItemsRetired():
                self._retire(event, seq)
            case events.ObjectiveReplaced():
                replacement = read_objective(event.objective)
                assert replacement is not None
                self._ready().replace_objective(replacement)
                self.changes.append(seq)
            case _:
                raise IncompatibleState(f"a model cannot apply {event!r:.80}")

    def _started_from(self, data: bytes) -> Agent:
        """An agent of its own with the state of another, of the same policy in the same problem."""
        other, items = Agent.restore(data), None
        gone: list[str] = []
        if self.ranks:
            names, rows = other.names or (), other.features
            items = {
                key: Item(row, **dict(own))
                for key, row, own in zip(names, rows, other.attributes, strict=True)
            }
            gone = [key for key in names if key not in other.keys]
        policy, wanted = self.setup.make_policy(), self.setup.make_problem(len(items or ()))
        if (policy, wanted) != (other.policy, other.problem):
            raise InvalidInput(
                f"it has learnt for {other.policy!r:.200} in {other.problem!r:.200}, and the model "
                f"has {policy!r:.200} in {wanted!r:.200}; give both the same"
            )
        agent = self._agent(policy, wanted, items)
        if gone:
            agent.retire(gone)
        with agent.held() as mine, other.held() as theirs:
            mine.state.restore(theirs.state)
        return Agent.restore(agent.dump(), token=_agent_token(self.number))

    def _ready(self) -> Agent:
        if self.agent is None:
            raise InvalidInput(
                f"model {self.name!r} has {len(self.early)} items and shows {self.n_slots}; "
                "add items first"
            )
        return self.agent

    def _group(
        self, event: events.DecisionsMade, first: int, seq: int, clock: float
    ) -> DecisionGroup:
        decisions, names = self._ready().batch(event.made), event.names
        if names:  # the same few, again and again
            names = tuple(name if name is None else intern(name) for name in names)
        return DecisionGroup(first, seq, clock, decisions, event.requests, event.owners, names)

    def _begin(self, epoch: str) -> None:
        """Numbers from here on belong to an epoch; one without any decision is forgotten."""
        issued = self.ring.issued
        spans = {old: (first, min(stop, issued)) for old, (first, stop) in self.epochs.items()}
        self.epochs = {old: span for old, span in spans.items() if span[0] < span[1]}
        self.epochs[epoch], self.epoch = (issued, _NO_END), epoch

    def _read_back(self, number: int) -> DecisionGroup:
        """The decisions that one was made with, from the log."""
        found = self._log and self._log.row_of(self.number, number)
        group = found and self._group_in(found[0], *found[1])
        if not group or not group.first <= number < group.stop:
            raise IncompatibleState(
                f"decision {number} of model {self.name!r} waits for a later stage, and is not in "
                "the log; put a backup in its place"
            )
        return group

    def _group_in(self, first: int, seq: int, clock: float, payload: bytes) -> DecisionGroup:
        for event in events.decode(payload):
            if isinstance(event, events.DecisionsMade) and event.model == self.number:
                return self._group(event, first, seq, clock)
        raise IncompatibleState(f"row {seq} of the log holds no decisions of model {self.number}")

    def _close(self, upto: int, stage: int) -> None:
        start = self.ring.ended[stage]
        numbers, joined = np.arange(start, upto), self.ring.held(start, upto)
        if self.ring.applied[stage]:  # some were learnt from on arrival
            rest = ~joined.applied[:, stage]
            numbers, joined = numbers[rest], joined.take(rest)
        self._learn(numbers, joined, stage, stage)
        self.ring.close(upto, stage)

    def _learn(self, numbers: Any, joined: Joined, stage: int, ahead: int = 0) -> None:
        """Learn a stage of decisions, in this order; where nothing of it came, by `missing`. ahead:
        see `Ring.group`.
        """
        skips = self.setup.missing == "skip"
        if self.expires and stage > 0:  # without the first stage it has expired already
            there = joined.answered[:, 0]
            self.expired[stage] += len(numbers) - int(there.sum())
            numbers, joined = numbers[there], joined.take(there)
        answered = joined.answered[:, stage]
        learnt = answered if skips else np.ones_like(answered)
        agent, at = self._ready(), 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # agents warn of rewards out of range; metrics say so
            for counts, decisions in self._batches(numbers, learnt, ahead):
                part = slice(at, at + len(decisions))
                at += len(decisions)
                if not counts:
                    for decision in decisions:
                        agent.expire(decision, stage)
                elif len(self.stages) == 1:
                    agent.update_many(decisions, self._rewards(joined.take(part)))
                else:
                    known = self._known(numbers[part], joined.take(part), stage)
                    agent.update_stage(decisions, stage, known)
        self.joined[stage] += int(answered.sum())
        self.expired[stage] += len(numbers) - int(answered.sum())

    def _batches(self, numbers: Any, learnt: Any, ahead: int) -> Iterator[tuple[bool, Batch]]:
        """Decisions in their order, in few batches, with whether they are learnt from."""
        alike = (np.diff(numbers) == 1) & (learnt[1:] == learnt[:-1])
        cuts = [*(np.flatnonzero(~alike) + 1).tolist(), len(numbers)]
        runs = (
            (bool(learnt[start]), decisions)
            for start, stop in pairwise([0, *cuts] if len(numbers) else ())
            for decisions in self.ring.decisions(
                numbers[start], numbers[start] + stop - start, ahead
            )
        )
        for counts, run in groupby(runs, key=itemgetter(0)):
            for decisions in Batch.merged([decisions for _, decisions in run]):
                yield counts, decisions

    def _rewards(self, joined: Joined) -> Any:
        """Feedback as `update_many` takes it; what did not come is 0."""
        if not self.ranks:
            return np.ascontiguousarray(joined.values[:, 0])
        return Shown(joined.exposed.astype(np.float64), np.ascontiguousarray(joined.values))

    def answered(self, joined: Joined) -> Any:
        """Whether anything came for a stage, (n, stages) or (stages,); in rankings a later one
        expires with the first.
        """
        answered = joined.answered
        if self.expires:
            answered = answered & answered[..., :1]
        return answered

    def _known(self, numbers: Any, joined: Joined, stage: int) -> Any:
        """The rewards of a stage and of the stages that were learnt before it; others are NaN."""
        over = (numbers[:, None] < np.array(self.ring.ended)) | joined.applied
        known = over & (joined.answered | (self.setup.missing == "zero"))
        known[:, stage] = True
        columns = np.repeat(known, [len(names) for names in self.stages], axis=1)
        if not self.ranks:
            return np.where(columns, self._rewards(joined), np.nan)
        exposed, values = self._rewards(joined)
        return Shown(exposed, np.where(columns[:, None], values, np.nan))

    def _add_items(self, event: events.ItemsAdded, seq: int) -> None:
        objective, items = read_objective(event.objective), event.items()
        if self.agent is not None:
            self.agent.add_items(items, objective)
            self.changes += [seq] if objective is not None else []
            return
        self.early |= items
        if len(self.early) >= self.n_slots:
            self.agent = self._first_agent(self.early, objective)
            self.changes += [seq] if objective is not None else []
            self.early = {}

    def _first_agent(self, items: dict[str, Item], objective: Concave | None) -> Agent:
        """That of a ranking, once there are enough items."""
        policy = self.setup.make_policy()
        if objective is not None:
            policy = policy.with_objective(objective)
        return self._agent(policy, self.setup.make_problem(len(items)), items)

    def _retire(self, event: events.ItemsRetired, seq: int) -> None:
        if self.agent is None:
            self.early = {key: one for key, one in self.early.items() if key not in event.keys}
            return
        objective = read_objective(event.objective)
        self.agent.retire(event.keys, objective)
        self.changes += [seq] if objective is not None else []

    def check_change(self, event: events.Change) -> None:
        """Raise what `apply` would raise for a change, or a decision after it; nothing changes."""
        objective, agent = read_objective(event.objective), self.agent
        match event:
            case events.ItemsAdded() if agent is None:
                items = self.early | event.items()
                if len(items) >= self.n_slots:
                    self._first_agent(items, objective).check_change()
            case events.ItemsAdded():
                self._ready().check_change(event.items(), objective=objective)
            case events.ItemsRetired():
                if agent is not None:
                    agent.check_change(retired=event.keys, objective=objective)
            case events.ObjectiveReplaced():
                self._ready().check_change(objective=objective)

    # --- what is known ------------------------------------------------------------------------

    @property
    def observes(self) -> bool:
        """Whether feedback says which items were exposed."""
        policy = self._ready().policy
        base = getattr(policy, "base", policy)
        return self.ranks and getattr(base, "exposure", "observed") == "observed"

    @property
    def expires(self) -> bool:
        """Whether later stages expire with the first: without exposures they cannot be learnt."""
        return self.ranks and self.setup.missing == "skip"

    def propose(
        self,
        contexts: Sequence[Any],
        options: Sequence[dict[str, Any]],
        tolerance: float,
        explain: bool = False,
    ) -> Batch:
        """Decide for all of them in one call; nothing changes. options: of each, as blocked, and
        the names of the arms that a request brings; tolerance: see `Agent.propose`; explain:
        whether any of them will be explained.
        """
        given: Any = contexts
        if len(contexts) == 1:
            given = contexts[0][None] if isinstance(contexts[0], np.ndarray) else contexts
        else:
            shapes = {one.shape if isinstance(one, np.ndarray) else None for one in contexts}
            if len(shapes) == 1 and None not in shapes:
                given = np.concatenate(contexts).reshape(len(contexts), *contexts[0].shape)
        how: dict[str, Any] = {"explain": explain, "tolerance": tolerance}
        named = False
        if any(options):
            named = any("names" in one for one in options)
            how |= {
                name: [one.get(name) for one in options]
                for name in ("candidates", "blocked", "pinned")
                if any(name in one for one in options)
            }
        made = self._ready().propose(given, **how)
        assert isinstance(made, Batch)
        if named:
            made.names = [one.get("names") for one in options]
        return made

    def check(self, context: Any, options: dict[str, Any]) -> None:
        """Raise the InvalidInput that `propose` would raise for one of them; nothing is decided."""
        own = {name: [value] for name, value in options.items() if name != "names"}
        self._ready().check([context], **own)

    def id(self, number: int) -> str:
        """The id of a decision."""
        for epoch, (first, stop) in reversed(self.epochs.items()):
            if first <= number < stop:
                return f"{self.token}-{epoch}-{number}"
        raise InvalidInput(f"model {self.name!r} has no epoch with a decision {number}")

    def number_of(self, id: str) -> int:
        """The number of a decision; -1 for an id that the log of this model never issued."""
        head, _, digits = id.rpartition("-")
        token, _, epoch = head.rpartition("-")
        if token != self.token or epoch not in self.epochs:
            return -1
        plain = digits.isascii() and digits.isdecimal() and len(digits) <= 15
        if not plain or str(int(digits)) != digits:
            return -1
        number, (first, stop) = int(digits), self.epochs[epoch]
        return number if first <= number < stop else -1

    def keys_of(self, action: Any) -> list[str]:
        """The keys of the items that a ranking shows, from their numbers."""
        names = self._ready().names or ()
        return [names[item] for item in action]

    def name_of(self, action: Any, brought: str | None) -> str | None:
        """What the arm of a decision is called; brought: its name in a request that named them."""
        return brought if self.arm_names is None else self.setup.arms[action]

    def items(self) -> dict[str, list[float]]:
        """Key -> features of the items that can be shown."""
        if self.agent is None:
            return {key: item.features.tolist() for key, item in self.early.items()}
        features = self.agent.features
        return {key: features[number].tolist() for key, number in self.agent.keys.items()}

    def attributes(self) -> dict[str, dict[str, str]]:
        """Key -> attributes of the items that can be shown."""
        if self.agent is None:
            return {key: dict(item.attributes) for key, item in self.early.items()}
        attributes = self.agent.attributes
        return {key: attributes[number] for key, number in self.agent.keys.items()}

    def groups(self) -> dict[str, dict[str, float]]:
        """Attribute -> group -> exposure a decision, where f makes groups of items."""
        return {} if self.agent is None else self.agent.exposures_by_group()

    def average(self) -> dict[str, float]:
        """The average of each user-side reward."""
        if self.agent is None:
            return dict.fromkeys(self.rewards, 0.0)
        earned = self.agent.average[-len(self.rewards) :]
        return dict(zip(self.rewards, earned.tolist(), strict=True))

    def exposures(self) -> dict[str, float]:
        """How often each item that can be shown was exposed, a decision; empty for arms."""
        if self.agent is None or not self.ranks:
            return {}
        return dict(zip(self.agent.keys, self.agent.average.tolist(), strict=False))

    def summary(self) -> dict[str, Any]:
        """The state in numbers and texts, for people."""
        return {
            "t": self.t,
            "decisions": self.decisions,
            "open": self.ring.open,
            **self.counts,
            **({"stages": self.by_stage()} if len(self.stages) > 1 else {}),
            "average": self.average(),
            "value": self.value,
            "objective": self.objective,
            "description": self.description,
            "version": self.version,
            "stopped": self.stopped or None,
        }

    def by_stage(self) -> list[dict[str, Any]]:
        """Decisions by stage: learnt from, open, joined and expired."""
        counts = self.setup.missing == "zero"
        return [
            {
                "rewards": list(names),
                "t": self.joined[s] + counts * self.expired[s],
                "open": self.ring.open_in(s),
                "joined": self.joined[s],
                "expired": self.expired[s],
            }
            for s, names in enumerate(self.stages)
        ]

    @property
    def value(self) -> float | None:
        """f of the average; None where it is not finite, or there is no agent yet."""
        value = math.nan if self.agent is None else self.agent.value
        return value if math.isfinite(value) else None

    @property
    def t(self) -> int:
        """How many decisions have been learnt from: in the stage in which they are the fewest."""
        return 0 if self.agent is None else self.agent.t

    @property
    def begun(self) -> bool:
        """Whether anything was learnt, in any stage."""
        return any(one["t"] for one in self.by_stage())

    @property
    def version(self) -> int:
        """Of the objective: how often it was replaced."""
        return len(self.changes)

    @property
    def objective(self) -> str:
        """f, as text."""
        return repr(self._objective)

    @property
    def description(self) -> str:
        """f, in words."""
        return self.describe(self._objective)

    @property
    def _objective(self) -> Concave:
        policy = self.setup.make_policy() if self.agent is None else self.agent.policy
        return policy.objective  # type: ignore[no-any-return]

    def describe(self, objective: Concave) -> str:
        """An objective in words, with the names of the rewards."""
        return objective.describe(self.problem if self.agent is None else self.agent.problem)

    # --- as bytes -----------------------------------------------------------------------------

    def dump(self) -> bytes:
        """Everything, for a snapshot; equal models of one log are equal bytes."""
        epochs = tuple((epoch, *span) for epoch, span in self.epochs.items())
        return pack((self.token, epochs, *self._state()))

    def _state(self) -> tuple[Any, ...]:
        """What was learnt and is open, without the names that ids contain."""
        agent = None if self.agent is None else self.agent.dump()
        counts = (one_or_all(self.joined), one_or_all(self.expired), *self._counts.values())
        early = tuple(
            (key, tuple(item.features.tolist()), *item.attributes.items())
            for key, item in self.early.items()
        )
        setup = msgspec.json.encode(self.setup).decode()
        return (setup, counts, tuple(self.changes), early, agent, self.ring.dump())

    @classmethod
    def load(cls, number: int, log: Any, seq: int, data: bytes) -> Model:
        """The model that `dump` wrote after a row of a log."""

        def group_in(first: int, seq: int) -> DecisionGroup:
            return model._group_in(first, seq, *log.row(seq))

        try:
            own, epochs, setup, counts, changes, early, agent, ring = unpack(data)
            setup = msgspec.json.decode(setup, type=Setup)
            model = cls(number, log.token, setup, log, fresh=False)
            if own != model.token:
                raise IncompatibleState(f"it is of {own!r}, and not of {model.token!r}")
            model.epochs = {epoch: (first, stop) for epoch, first, stop in epochs}
            each = [[one] if isinstance(one, int) else list(one) for one in counts[:2]]
            model.joined, model.expired = each
            model._counts = dict(zip(_ENTRIES, counts[2:], strict=True))
            model.changes = list(changes)
            model.early = {key: Item(np.array(row), **dict(own)) for key, row, *own in early}
            own = _agent_token(number)
            model.agent = None if agent is None else Agent.restore(agent, token=own)
            model.ring.load(ring, group_in, log.later(number, seq))
        except (FairwolfeError, msgspec.MsgspecError, TypeError, ValueError, KeyError) as error:
            raise IncompatibleState(f"a snapshot cannot be read: {error}") from error
        return model

    def digest(self) -> str:
        """The state in 64 characters: equal for equal states, bit for bit, in any log; the token
        and the epochs are no part of it.
        """
        later = (self.ring.later(everything=True),) if len(self.stages) > 1 else ()
        return hashlib.sha256(pack((*self._state(), *later))).hexdigest()


def _agent_token(number: int) -> str:
    return f"model-{number}"


def read_objective(text: str, most_parts: int | None = None) -> Concave | None:
    """An objective from its text, without running code; None for an empty text."""
    if not text:
        return None
    objective: Concave = build_objective(text, "the objective", most_parts)
    return objective


def constraints_of(agent: Agent | None) -> Sequence[Any]:
    """The hard constraints of an agent; none while there is no agent."""
    return () if agent is None else agent.constraints
