"""The contracts, one screen each.

An object holds its hyper-parameters and never changes; state goes in and comes out; randomness is
an argument; whatever `update` will need travels in the decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from inspect import signature
from types import NoneType
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fairwolfe.brief import Brief, Summary, count, few, short
from fairwolfe.errors import InvalidInput
from fairwolfe.packing import pack, unpack
from fairwolfe.problem import Problem

__all__ = [
    "Base",
    "Choice",
    "Decision",
    "Environment",
    "IntVector",
    "Matrix",
    "Objective",
    "Oracle",
    "Policy",
    "ScalarPolicy",
    "Smoothing",
    "Stored",
    "Vector",
    "keeps",
]

Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]
IntVector: TypeAlias = NDArray[np.int64]
Action: TypeAlias = int | IntVector

_MOST = 2**53  # decisions of an agent

S = TypeVar("S")
W = TypeVar("W")


@runtime_checkable
class Objective(Protocol):
    """A concave function f of the average reward vector z."""

    @property
    def smooth(self) -> bool:
        """Whether the gradient is Lipschitz, so that no smoothing is needed."""

    def value(self, z: Vector) -> float:
        """f(z); -inf outside the domain, never NaN."""

    def gradient(self, z: Vector) -> Vector:
        """A supergradient g: f(y) <= f(z) + <g, y - z> for every y."""

    def prox(self, z: Vector, step: float) -> Vector:
        """argmax_y f(y) - |y - z|^2 / (2 step); NoProx where there is no closed form."""

    def lipschitz(self, n: int) -> float:
        """L in the 2-norm for n rewards (inf where there is none)."""

    def on(self, *coordinates: str | int) -> Objective:
        """f of these coordinates only."""

    def bind(self, problem: Problem) -> Objective:
        """Names become coordinates and sizes are checked; called by `init`."""


@runtime_checkable
class Smoothing(Protocol):
    """A sequence f_t of smooth approximations of f."""

    def value(
        self, objective: Any, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> float:
        """f_t(z), with t rewards already averaged into z."""

    def gradient(
        self, objective: Any, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> Vector:
        """The direction grad f_t(z), or an unbiased estimate of it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a base chose, with what probability (None: unknown), and what its update needs.

    `seen` is what live numbers need of the actions that were not chosen, where they were asked for.
    """

    action: Action
    probability: float | None
    evidence: Any
    reasons: Any = None  # of a ranking: what made it, for people
    seen: Any = None  # what live numbers need of the actions that were not chosen


@dataclass(frozen=True, slots=True, repr=False)
class Decision(Brief):
    """What a policy decided: enough to learn from the feedback whenever it comes.

    `evidence` is made of nested tuples of arrays, numbers, strings and None; read back from bytes
    they are plain tuples, so an `update` takes them apart by position.

    >>> Decision.from_bytes(Decision("a-0", 0, 3, 0.5, (np.ones(2), None)).to_bytes())
    Decision(id='a-0', t=0, action=3, probability=0.5, evidence=<1 array, 2 numbers>)
    """

    id: str
    t: int
    action: Action
    probability: float | None
    evidence: Any
    reasons: Any = field(default=None, repr=False, compare=False)  # for `explain` only

    @property
    def number(self) -> int:
        """Its place among the decisions of the agent that made it; -1 where none did."""
        try:
            number = int(self.id[self.id.rfind("-") + 1 :])
        except ValueError:
            return -1
        return number if 0 <= number < _MOST else -1

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self._facts().items())
        return f"Decision(id={short(repr(self.id))}, {shown})"

    def summary(self, most: int) -> Summary:
        """Everything but the numbers of the evidence."""
        return Summary(short(self.id), self._facts().items())

    def _facts(self) -> dict[str, str]:
        action = np.asarray(self.action)
        listed = f"[{few(action.tolist(), _ITEMS)}]" if action.ndim else str(self.action)
        arrays = _arrays(self.evidence)
        numbers = sum(array.size for array in arrays)
        held = f"<{count(len(arrays), 'array')}, {count(numbers, 'number')}>"
        return {
            "t": str(self.t),
            "action": listed,
            "probability": short(self.probability),
            "evidence": "None" if self.evidence is None else held,
        }

    def to_bytes(self) -> bytes:
        """Versioned MessagePack with a check sum, for a log or another process; never pickle."""
        return pack((self.id, self.t, self.action, self.probability, self.evidence))

    def explain(self) -> list[dict[str, Any]]:
        """Of a ranking, slot by slot: what made the item's score, and its rank without fairness.

        `value` is what it is estimated to earn, `exploration` the bonus for what is not known yet,
        `fairness` the bonus for its exposure: their sum is the score. Known where the decision was
        made, and not part of its bytes.
        """
        if self.reasons is None:
            raise InvalidInput(
                f"there is nothing to explain of decision {self.id!r}: only rankings say what made "
                "them, in the process that made them"
            )
        names = self.reasons._fields
        rows = zip(*(column.tolist() for column in self.reasons), strict=True)
        items = np.asarray(self.action).tolist()
        return [
            {"item": item, **dict(zip(names, row, strict=True))}
            for item, row in zip(items, rows, strict=True)
        ]

    @classmethod
    def from_bytes(cls, data: bytes) -> Decision:
        """Rebuild a decision that `to_bytes` wrote; InvalidInput for any other bytes."""
        values = unpack(data)
        fits = [isinstance(value, kind) for value, kind in zip(values, _FIELDS, strict=False)]
        if len(values) != len(_FIELDS) or not all(fits) or isinstance(values[2], bool):
            raise InvalidInput(
                f"the bytes hold {values[:4]!r}; a decision is an id, t, an action, a probability "
                "or None, and its evidence"
            )
        return cls(*values)


_ITEMS = 12  # of a ranking that are printed


def _arrays(evidence: Any) -> list[NDArray[Any]]:
    if isinstance(evidence, tuple):
        return [array for part in evidence for array in _arrays(part)]
    return [evidence] if isinstance(evidence, np.ndarray) else []


_FIELDS: tuple[Any, ...] = (str, int, (int, np.ndarray), (float, NoneType), object)


@runtime_checkable
class Oracle(Protocol):
    """An online regression of the rewards on the features, over which bandits explore."""

    @property
    def learn(self) -> Any:
        """(block, x, reward, *state): takes one observation into the arrays of a state, in place.

        A kernel, as the compiled loop needs it, or a method.
        """

    def init(self, problem: Problem) -> Any:
        """Validate and allocate a state, whose `estimates(arms)` is what rules read."""

    def regret_bound(self, problem: Problem) -> Any:
        """R(t) where the problem says enough for one; OutsideAssumptions otherwise."""


@runtime_checkable
class Base(Protocol[S]):
    """A bandit for the scalar reward <direction, r>."""

    def init(self, problem: Problem) -> S:
        """Validate and allocate."""

    def act(self, state: S, context: Any, direction: Vector, rng: np.random.Generator) -> Choice:
        """Choose; only reads the state."""

    def update(self, state: S, choice: Choice, direction: Vector, feedback: Any) -> S:
        """Learn; may write into the arrays of the state that it consumes."""


@runtime_checkable
class ScalarPolicy(Protocol[S]):
    """A contextual bandit for one reward, which knows of no direction; `Extended` lifts it."""

    def init(self, n_features: int) -> S:
        """Validate and allocate."""

    def act(self, state: S, features: Matrix, rng: np.random.Generator) -> tuple[int, float | None]:
        """An arm, given a row of features for each, and its probability (None: unknown)."""

    def update(
        self, state: S, features: Vector, arm: int, probability: float | None, reward: float
    ) -> S:
        """Learn from the row of the arm that was chosen; may write into the state it consumes."""


@runtime_checkable
class Policy(Protocol[S]):
    """A bandit for a concave function of the average reward vector."""

    def init(self, problem: Problem) -> S:
        """Validate and allocate."""

    def act(self, state: S, context: Any, rng: np.random.Generator) -> Decision:
        """Decide; only reads the state."""

    def update(self, state: S, decision: Decision, feedback: Any) -> S:
        """Learn; may write into the arrays of the state that it consumes."""


@runtime_checkable
class Environment(Protocol[W]):
    """A world that draws contexts and answers actions; the truth is for regret only."""

    def problem(self) -> Problem:
        """What is decided here."""

    def init(self, rng: np.random.Generator) -> W:
        """Draw a world."""

    def context(self, world: W, t: int, rng: np.random.Generator) -> Any:
        """The context of round t."""

    def feedback(self, world: W, context: Any, action: Action, rng: np.random.Generator) -> Any:
        """What is observed after the action."""

    def mean_reward(self, world: W, context: Any, action: Action) -> Vector:
        """The expected reward vector."""

    def best_action(self, world: W, context: Any, direction: Vector) -> Action:
        """The linear oracle."""


@runtime_checkable
class Stored(Protocol):
    """A part of a state that is no array, such as another library's model, but can be saved."""

    def dump(self) -> NDArray[np.uint8]:
        """All that was learnt, as bytes."""

    def load(self, saved: NDArray[np.uint8]) -> None:
        """Become what was dumped."""


def keeps(subject: Any, contract: Any) -> bool:
    """Whether a subject has the methods of a contract and they take the arguments it states."""
    if not isinstance(subject, contract):
        return False
    for name, stated in vars(contract).items():
        if name.startswith("_") or not callable(stated):
            continue
        arguments = [p for p in signature(stated).parameters if p != "self"]
        try:
            signature(getattr(subject, name)).bind(*arguments)
        except TypeError:
            return False
    return True
