"""`Kind`: the contract of a kind of decision (arms, rankings, or another); `Rewards`.

A `Kind` is bound to a problem. It checks contexts and feedback once, where they enter, and returns
checked types, which are not checked again. The reduction, the agent and the simulator call only the
methods of `Kind`, so that a new kind is one class and one registry line.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.feedback import Staged, stage_answers, stages_in
from fairwolfe.core.groups import Groups
from fairwolfe.core.problem import Problem, all_finite, is_list, is_real
from fairwolfe.core.registry import load
from fairwolfe.errors import InvalidInput, did_you_mean

__all__ = ["Answer", "Kind", "kind_of"]

_WILD = 1e6  # ranges: a reward that raises


class Answer(NamedTuple):
    """Feedback that has been checked.

    observation: what a base learns from, in a form that `observe` takes too; for arms it is the
        reward vector
    reward: the reward vector (n_objectives,)
    outside: the reward that is out of its range, in words; empty where all are inside
    """

    observation: Any
    reward: Vector
    outside: str = ""


class Answers(NamedTuple):
    """Feedback to decisions made together that has been checked, by column.

    observation: what a base learns from, with an axis more than that of an `Answer`
    outside: how many of them have a reward out of its range
    words: the first of these, in words
    """

    observation: Any
    outside: int = 0
    words: str = ""


class Stack(NamedTuple):
    """Contexts that were read together.

    given: as `read` returns one, with an axis more; or a list of them, where their shapes differ
    norm: the largest of their norms
    how: what else describes their candidates
    """

    rows: int
    given: Any
    norm: float
    how: Mapping[str, Any] = MappingProxyType({})

    def largest(self) -> str:
        """Which features are the largest, in words."""
        if not isinstance(self.given, list):
            return f"a context has features of norm {self.norm:.4g}"
        row = max(range(self.rows), key=lambda i: self.given[i].norm)
        return f"in context {row}, {self.given[row].largest()}"


class Kind(ABC):
    """A kind of decision in a problem: its contexts, its actions, its feedback.

    A subclass has a registry line (``kinds``), reads contexts and feedback, and makes random
    ones. The rest has defaults for a fixed set of rewards.
    """

    name: ClassVar[str]
    """By which a Problem names it."""

    checked: ClassVar[type | None] = None
    """The type that `read` returns, where that is its own type: such a value is not read again."""

    problem: Problem

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    rewards: Rewards  # those that feedback names, and their ranges

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.problem!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and type(self) is type(other) and self._is(other)

    def _is(self, other: Any) -> bool:
        """Whether another of the same class is the same."""
        return bool(self.problem == other.problem)

    def __hash__(self) -> int:
        return hash((type(self), self.problem))

    @classmethod
    @abstractmethod
    def example(cls) -> Problem:
        """A small problem of this kind, for the conformance checks."""

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return (cls(cls.example()),)

    # --- the gates ----------------------------------------------------------------------------

    @abstractmethod
    def read(self, context: Any, **options: Any) -> Any:
        """The context, checked; one that has been checked is returned as it is.

        What it returns has `norm`, the largest 2-norm of the features of one arm or item, and
        `largest()`, which features these are, in words.
        options: what else `Agent.act` was given, such as candidates.
        """

    @abstractmethod
    def observe(self, action: Any, feedback: Any) -> Answer:
        """Feedback in the form that environments give it, checked; an Answer as it is."""

    def read_feedback(self, action: Any, reward: Any, **options: Any) -> Answer:
        """Feedback in the forms that people give it to `Agent.update`, checked.

        options: what else was given, such as exposed; `names` has only the names of the items. A
        reward out of its range is let through and named in `outside`; one that is a million ranges
        away raises InvalidInput.
        """
        options.pop("names", None)
        if options:
            raise InvalidInput(
                f"{' and '.join(options)}: not for decisions of kind {self.name!r}; give the "
                "reward alone"
            )
        answer, low, high = self.observe(action, reward), self.problem.low, self.problem.high
        if ((answer.reward >= low) & (answer.reward <= high)).all():
            return answer
        items = (f"exposure of {i}" for i in range(self.problem.n_items or 0))
        ranges = Rewards((*items, *self.problem.rewards), low, high)
        return answer._replace(outside=ranges.outside(answer.reward[None]))

    # --- rewards that arrive in stages ----------------------------------------------------------

    first_leads: ClassVar[bool] = False
    """Whether later stages are learnt after the first, and expire with it."""

    @property
    def known_shape(self) -> tuple[int, ...]:
        """Of a `table`."""
        return (self.problem.n_objectives,)

    @property
    def known_starts(self) -> tuple[int, ...]:
        """Stage s has the places from the s-th of these to below the next, along the last axis of a
        `table`.
        """
        return self.problem.stage_starts

    def table(self, observation: Any) -> Any:
        """What an observation of `read_feedback` tells of a decision, NaN for what it does not: the
        reward vector.
        """
        return observation

    def settled(self, table: Any) -> Any:
        """The tables of several decisions, as they are learnt."""
        return table

    def stage_rewards(self, table: Any, stage: int) -> tuple[Any, Rewards]:
        """The rewards of a stage in tables, and their ranges."""
        ranges, starts = self.rewards, self.known_starts
        before = self.known_shape[-1] - len(ranges.names)  # an exposure, in rankings
        first, stop = max(starts[stage], before), starts[stage + 1]
        return table[..., first:stop], ranges.part(first - before, stop - before)

    def stages(self, action: Any, table: Any, before: Any = None) -> Staged:
        """What a table answers; before: what was known."""
        learnt = stage_answers(self.known_starts, table, before)
        given = [part.stage for part in learnt]
        known = [] if before is None else stages_in(self.known_starts, before)
        return Staged(given, [s for s in given if s in known], learnt, learnt[-1].known[0])

    # --- the gates, for many at once ------------------------------------------------------------

    def read_many(self, contexts: Any, options: Sequence[Mapping[str, Any]] = ()) -> Stack:
        """`read`, of contexts in a row, with what each was given besides; an error names the first
        that is wrong.
        """
        given: list[Any] = []
        try:
            for context, own in zip(contexts, options or repeat({}), strict=False):
                given.append(self.read(context, **own))
        except InvalidInput as error:
            raise InvalidInput(f"context {len(given)}: {error}") from error
        return self.stacked(given)

    def stacked(self, given: list[Any]) -> Stack:
        """Checked contexts in a row."""
        return Stack(len(given), given, max((one.norm for one in given), default=0.0))

    def single(self, stack: Stack, i: int) -> Any:
        """One of them."""
        return stack.given[i]

    def read_feedback_many(
        self, actions: Any, rewards: Any, options: Sequence[Mapping[str, Any]] = ()
    ) -> Answers | list[Answer]:
        """`read_feedback`, for decisions made together: by column, or a list where that cannot be;
        an error names the first that is wrong.
        """
        answers: list[Answer] = []
        pairs = zip(actions, rewards, strict=True)
        try:
            for (action, reward), own in zip(pairs, options or repeat({}), strict=False):
                answers.append(self.read_feedback(action, reward, **own))
        except InvalidInput as error:
            raise InvalidInput(f"answer {len(answers)}: {error}") from error
        columns = self.columns([answer.observation for answer in answers])
        if columns is None:
            return answers
        words = [answer.outside for answer in answers if answer.outside]
        return Answers(columns, len(words), words[0] if words else "")

    def columns(self, observations: list[Any]) -> Any:
        """What was observed after each decision, by column; None where this kind has no columns."""
        return None

    allowed: ClassVar[str] = "see `Kind.allows`"
    """What may be chosen, in words."""

    def allows(self, given: Any, action: Any) -> bool:
        """Whether an action may be chosen in a checked context."""
        return True

    def numbered(self, given: Any, action: Any) -> Any:
        """An action that was chosen in a checked context, as the giver of the context numbers it;
        also of actions in contexts that were read together.
        """
        return action

    # --- what f sees --------------------------------------------------------------------------

    def groups(self, by: Sequence[str]) -> Groups | None:
        """The groups of items by some attributes; None where there are no items to follow."""
        return None

    @property
    def seen(self) -> Problem:
        """The problem as f sees it: where items are retired, without them."""
        return self.problem

    coordinates: Any = None
    """Which coordinates f sees; None: all."""

    def sees(self, vector: Vector) -> Vector:
        """Those coordinates of a reward vector that f sees."""
        return vector

    def whole(self, vector: Vector) -> Vector:
        """A reward vector from the coordinates that f sees; 0 for the others."""
        return vector

    def aligned(self, vector: Vector, given: Any) -> Vector:
        """A vector that f sees, lined up with what may be chosen in a checked context."""
        return vector

    def joined(self, size: int | None) -> tuple[int, int]:
        """(first, stop): coordinates that joined after a decision with `size` coordinates."""
        return 0, 0

    def reach(self, action: Any) -> int:
        """No coordinate of an action is at this place or beyond, except the rewards."""
        return 0

    def caught_up(self, followed: Vector, running: Vector) -> Vector:
        """A direction from a decision, with that of today for coordinates that joined since."""
        return followed

    # --- reward vectors as a set, for live numbers ----------------------------------------------

    def labels(self) -> tuple[str, ...]:
        """What people call the coordinates that f sees."""
        return tuple(self.problem.rewards)

    @cached_property
    def _ends(self) -> tuple[Vector, Vector]:
        """The smallest and the largest value of each coordinate that f sees."""
        return self.seen.low, self.seen.high

    def extent(self, slope: Vector) -> tuple[float, float]:
        """The largest <slope, z> of a reward vector z, and the range of the best of a context."""
        low, high = self._ends
        top = np.maximum(slope * low, slope * high).sum()
        return float(top), float(np.abs(slope) @ (high - low))

    def corner(self, slope: Vector, z: Vector) -> Vector:
        """A reward vector of largest <slope, z>; where the slope is 0, as it is in z."""
        low, high = self._ends
        return np.where(slope > 0.0, high, np.where(slope < 0.0, low, z))

    def middle(self) -> Vector:
        """A reward vector inside the ranges."""
        low, high = self._ends
        return 0.5 * (low + high)

    # --- the rest -----------------------------------------------------------------------------

    def fitted(self, base: Any) -> Self:
        """The kind as this base wants its feedback read."""
        return self

    @abstractmethod
    def random_context(self, rng: np.random.Generator) -> Any:
        """A context inside what the problem states, for the conformance checks."""

    @abstractmethod
    def random_feedback(self, action: Any, rng: np.random.Generator) -> Any:
        """Feedback inside what the problem states, for the conformance checks."""

    def is_action(self, context: Any, action: Any) -> bool:
        """Whether an action can be taken in a context that has not been read yet."""
        return self.allows(self.read(context), action)

    @abstractmethod
    def actions(self, context: Any, rng: np.random.Generator) -> list[Any]:
        """Every action that can be taken in such a context, or some of them."""


def kind_of(problem: Problem) -> Kind:
    """The kind of decision that a problem names, bound to it."""
    return load("kinds", problem.kind)(problem)  # type: ignore[no-any-return]


def require_kind(name: str, problem: Problem, who: str) -> None:
    """Raise InvalidInput where a kind of decision is not the one that the problem names."""
    if problem.kind == name:
        return
    if (name, problem.kind) == ("arms", "ranking"):
        raise InvalidInput(
            f"the problem has items to rank, and {who} chooses an arm; use LinUCBRank(), or make "
            "the problem with Problem.arms(...)"
        )
    if (name, problem.kind) == ("ranking", "arms"):
        raise InvalidInput(
            f"{who} ranks items, and the problem has arms; make it with Problem.ranking(...)"
        )
    raise InvalidInput(
        f"{who} is for decisions of the kind {name!r}, and the problem is of the kind "
        f"{problem.kind!r}; use a policy for that kind, or give the problem kind={name!r}"
    )


class Rewards(NamedTuple):
    """Names (n,) and ranges low (n,), high (n,) of rewards, and the sentences about them."""

    names: tuple[str, ...]
    low: Vector
    high: Vector

    def by_name(self, given: Mapping[str, Any], missing: float | None = None) -> list[Any]:
        """The values of a mapping by name, in order, as `in_order` takes them."""
        values = [given.get(name) for name in self.names]
        if len(given) == len(values) and not any(value is None for value in values):
            return values
        self.refuse_unknown(given)
        filled: list[Any] = self.in_order(values, missing)
        return filled

    def in_order(self, given: Any, missing: float | None = None) -> Any:
        """Values in order, of which none is None: `missing` instead, if that is a number. None
        itself is only for missing values.
        """
        if given is None:
            given = [None] * len(self.names)
        plain = isinstance(given, (list, tuple)) or (
            isinstance(given, np.ndarray) and given.dtype == object and given.ndim == 1
        )
        if not plain or not any(value is None for value in given):
            return given
        if missing is not None:
            return [missing if value is None else value for value in given]
        if len(given) == len(self.names):
            self.refuse_missing(
                name for name, value in zip(self.names, given, strict=True) if value is None
            )
        return given

    def refuse_missing(self, lacking: Iterable[str], how: str = "") -> NoReturn:
        """Raise InvalidInput for missing rewards."""
        raise InvalidInput(
            f"the reward lacks {', '.join(lacking)}; give all of {', '.join(self.names)}{how}, or "
            "missing=0. to count 0 where none was given"
        )

    def refuse_unknown(self, given: Iterable[str]) -> None:
        """Raise InvalidInput for the first name that is not a reward's."""
        for name in given:
            if name not in self.names:
                raise InvalidInput(
                    f"there is no reward {name!r:.80}; {did_you_mean(name, self.names)}"
                )

    def refuse_bad(self, given: Any) -> None:
        """Raise InvalidInput for the first reward that is not a finite number."""
        values = list(given) if is_list(given) else []
        if len(values) == len(self.names):
            for name, value in zip(self.names, values, strict=True):
                finite_number(f"the reward {name!r}", value)

    def part(self, start: int, stop: int) -> Rewards:
        """Some of them, in a row."""
        return Rewards(self.names[start:stop], self.low[start:stop], self.high[start:stop])

    def far(self, earned: Any, zero: bool) -> Any:
        """Of which decisions a reward is out of range, (decisions,); zero: 0 never is."""
        far = (earned < self.low) | (earned > self.high)
        if zero:
            far &= earned != 0.0
        return far.reshape(len(earned), -1).any(axis=1)

    def outside(self, rows: Matrix) -> str:
        """The first reward that is out of range, in words; rows (k, n).

        One so far out of range that it would drown all others is a mistake: InvalidInput.
        """
        most = _WILD * np.maximum(np.maximum(abs(self.low), abs(self.high)), self.high - self.low)
        wild, far = abs(rows) > most, (rows < self.low) | (rows > self.high)
        exposed = far & (rows != 0.0)  # 0 of what was not exposed is in no range
        found = wild if wild.any() else exposed if exposed.any() else far
        row, place = np.argwhere(found)[0].tolist()
        words = (
            f"the reward {self.names[place]!r} is {rows[row, place]:g}; the problem states "
            f"{self.low[place]:g} to {self.high[place]:g}"
        )
        if wild[row, place]:
            raise InvalidInput(
                f"{words}, and beyond {most[place]:g} nothing can be learnt: give the right "
                "number, or the problem another range"
            )
        return words

    def outside_any(self, far: NDArray[np.bool_], rows: NDArray[np.float64]) -> tuple[int, str]:
        """How many decisions have rewards out of range, and the first of these in words.

        far (n,): which they are; rows (n, ..., rewards)
        """
        for i in np.flatnonzero(far).tolist():
            if all_finite(rows[i]):  # else another check raises an error
                try:
                    return int(far.sum()), self.outside(rows[i].reshape(-1, len(self.names)))
                except InvalidInput as error:
                    raise InvalidInput(f"answer {i}: {error}") from error
        return int(far.sum()), ""


def finite_number(what: str, value: Any) -> float:
    """A finite number, or an error that shows what is given."""
    try:
        number = float(value) if is_real(value) else math.nan
    except OverflowError:  # a whole number of hundreds of digits
        number = math.inf
    if not math.isfinite(number):
        shown = value.item() if isinstance(value, np.generic) else value
        raise InvalidInput(f"{what} is {shown!r:.80}; give a finite number")
    return number


def random_rows(rng: np.random.Generator, rows: int, d: int, norm: float) -> Matrix:
    """Features (rows, d), each row of this norm."""
    x = rng.normal(size=(rows, d))
    scaled: Matrix = x * (norm / np.linalg.norm(x, axis=1, keepdims=True))
    return scaled
