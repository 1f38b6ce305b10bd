"""Many decisions at once, and the answers to them: one kernel call each, bit by bit as one by one.

Where the base has no such kernel, a loop in Python does the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairwolfe.core.arrays import Matrix
from fairwolfe.core.batch import Batch, Column
from fairwolfe.core.decision import Decision
from fairwolfe.core.kinds import Answer, Answers, Stack
from fairwolfe.core.streams import Numbered
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.settling import TALLY
from fairwolfe.reduction.state import State, Trail

if TYPE_CHECKING:
    from fairwolfe.reduction.frank_wolfe import FrankWolfe

__all__ = ["act_batch", "each", "expect_batch", "fold"]

_NO_ROWS = np.empty((0, 0))
_NUMBERLESS = -np.inf
_SIZE, _PLACE = Trail._fields.index("size"), Trail._fields.index("place")


def act_batch(
    policy: FrankWolfe,
    state: State,
    stack: Stack,
    draws: Any,
    advance: bool,
    tolerance: float,
) -> Batch | list[Decision]:
    """Decisions for contexts that were read together; a list where there is no kernel for them."""
    plan = state.plan
    if not plan.in_rows or isinstance(stack.given, list):
        return _one_by_one(policy, state, stack, draws, advance)
    choices = policy._rows(state, stack.given, draws, stack.rows, advance, tolerance, **stack.how)
    if choices.done < stack.rows:  # a direction has to be looked for
        return _one_by_one(policy, state, stack, draws, advance)
    expected, outlooks = choices.expectations(), choices.outlooks()
    directions = None
    if plan.follows:
        each_ = (choices.direction(i) for i in range(stack.rows))
        directions = Column(np.array([plan.kind.whole(g) for g in each_]))
    places = None
    if plan.anticipates:
        steps = np.arange(stack.rows) if advance else np.zeros(stack.rows, dtype=np.int64)
        places = Column(state.issued + steps)
    trail = Trail(
        choices.evidence(),
        None,
        directions,
        None if outlooks is None else (state.live.serial, outlooks),
        state.totals.size,
        places,
        expected if plan.waits else None,
    )
    stated = None if plan.smoothing.averaged else choices.probabilities
    return Batch("", 0, state.t, choices.actions, stated, trail, choices)


def _one_by_one(
    policy: FrankWolfe, state: State, stack: Stack, draws: Any, advance: bool
) -> list[Decision]:
    ahead = state._replace(waiting=state.waiting.copy()) if advance else state
    decided = []
    for i in range(stack.rows):
        drawn = Numbered(draws.key, draws.number + i) if type(draws) is Numbered else draws
        given = state.plan.kind.single(stack, i)
        decision, _ = policy.decide(ahead, given, drawn, "")
        if advance:
            policy.count_open(ahead, decision)
        decided.append(decision)
    return decided


def expect_batch(policy: FrankWolfe, state: State, batch: Batch | list[Decision]) -> State:
    """Count decisions made together as open, in their order."""
    plan = state.plan
    if not plan.anticipates:
        return state
    choices = batch.made if isinstance(batch, Batch) else None
    if choices is None:
        if isinstance(batch, Batch) and _opens(state, batch):
            evidence, looks, words = batch.evidence[0], batch.evidence[-1], plan.frame(state).words
            plan.base.expect_columns(state.base, batch.actions, evidence, looks, words)
            return state
        for decision in batch:
            state = policy.expect(state, decision)
    else:
        plan.base.expect_rows(state.base, choices, plan.frame(state).words)
    return state


def _opens(state: State, batch: Batch) -> bool:
    """Whether decisions that come from bytes can be counted as open by one kernel: their features
    are summed, and they are the next ones.
    """
    trail, plan = batch.evidence, state.plan
    whole = isinstance(trail, tuple) and len(trail) == len(Trail._fields)
    places = trail[_PLACE] if whole else None
    if not plan.opens or type(places) is not Column:
        return False
    first = state.issued
    return bool(places.values.tolist() == list(range(first, first + len(batch))))


def fold(policy: FrankWolfe, state: State, batch: Batch | list[Decision], answers: Any) -> State:
    """Learn from the answers to decisions made together, in their order."""
    plan = state.plan
    if not (isinstance(batch, Batch) and _folds(state, batch) and isinstance(answers, Answers)):
        pairs = zip(batch, each(plan.kind, batch, answers), strict=True)
        for decision, answer in pairs:
            state = policy.update(state, decision, answer)
        return state
    columns = _Columns(policy, state, batch)
    start = 0
    while start < len(batch):
        code = columns.settle(answers.observation, start)
        start, due = divmod(code, 2)
        if due:
            plan.watch.gather(state.live, state.iterate, state.prices, plan.age(state.t))
    return state


def _folds(state: State, batch: Batch) -> bool:
    """Whether one kernel learns from the answers to decisions made together."""
    trail = batch.evidence
    whole = isinstance(trail, tuple) and len(trail) == len(Trail._fields)
    # No items have come since.
    size = trail[_SIZE] if whole else None
    return state.plan.folds and type(size) is int and size == state.totals.size


def each(kind: Any, batch: Any, answers: Any) -> list[Answer]:
    """The answers one by one."""
    if not isinstance(answers, Answers):
        return list(answers)
    shown = answers.observation
    parts = zip(*shown, strict=True) if isinstance(shown, tuple) else shown
    if isinstance(shown, tuple):
        parts = (type(shown)(*part) for part in parts)
    return [kind.observe(d.action, part) for d, part in zip(batch, parts, strict=True)]


class _Columns:
    """What decisions made together remember, by column, checked: it may come from bytes."""

    def __init__(self, policy: FrankWolfe, state: State, batch: Batch) -> None:
        self.state, self.batch = state, batch
        plan, n = state.plan, len(batch)
        size = state.totals.size
        evidence, reserved, followed, outlook, _, place, expected = batch.evidence
        self.evidence = evidence
        if reserved is not None or (followed is None and plan.extended):
            raise self._foreign()
        self.followed = self._matrix(followed, (n, size))
        self.places = np.full(n, -1)
        self.expected = _NO_ROWS
        if plan.anticipates and state.open and place is not None:
            self.places = place.values if type(place) is Column else self.places[:0]
            right = self.places.shape == (n,) and self.places.dtype == np.int64
            if not right or (n and not 0 <= self.places.min() <= self.places.max() < state.issued):
                raise self._foreign()
            if plan.blocks == (0, 0):
                self.expected = self._matrix(expected, (n, size))
        self.looks = expected
        self.outlook = outlook
        pair = isinstance(outlook, tuple) and len(outlook) == 2 and type(outlook[0]) is int
        if not (outlook is None or (pair and type(outlook[1]) is Column)):
            raise self._foreign()

    def _foreign(self) -> InvalidInput:
        return InvalidInput(
            f"the evidence of {self.batch!r} is of another policy or problem, or damaged"
        )

    def _matrix(self, column: Any, shape: tuple[int, ...]) -> Matrix:
        if column is None:
            return _NO_ROWS
        values = column.values if type(column) is Column else np.empty(0)
        plain = values.dtype == np.float64 and values.shape == shape
        if not plain or not np.isfinite(values).all():
            raise self._foreign()
        return np.ascontiguousarray(values)

    def settle(self, observation: Any, start: int) -> int:
        """Learn from `start` on, until a certificate is due."""
        state, batch = self.state, self.batch
        plan, windows, n = state.plan, state.live, len(batch)
        tallied, outlooks = _NO_ROWS, None
        if self.outlook is None:
            if windows.slope is None:
                tallied = np.zeros((n, TALLY))
        elif self.outlook[0] == windows.serial:
            outlooks = self.outlook[1].values
            if outlooks.dtype != np.float64 or not np.isfinite(outlooks).all():
                raise self._foreign()
        run = plan.base.fold_rows(
            state.base,
            batch.actions,
            self.evidence,
            observation,
            plan.frame(state).words,
            (tallied, outlooks),
            self.looks,
        )
        number = float(batch.first) if batch.token else _NUMBERLESS
        done: int = run(start, self.followed, number, self.places, self.expected)
        return done
