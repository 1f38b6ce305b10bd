"""`Choice` and `Decision`: what was chosen, and all that learning from it will need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import Action
from fairwolfe.core.brief import Brief, Summary, count, few, short
from fairwolfe.core.packing import pack, unpack
from fairwolfe.errors import InvalidInput

__all__ = ["NOTHING", "Choice", "Decision", "Info", "Learnt", "decided", "small"]

_DIGITS = 15  # of the number of a decision: no agent makes more, and a float holds them all


class Info(NamedTuple):
    """What is reported of a choice, and never learnt from by the base that made it.

    reasons: what made the scores of a ranking, for `explain`
    estimate: of the reward vector, where it was requested
    outlook: what live numbers need of the actions that were not chosen, where it was requested
    names: what arms or items are called, by number, where they have names
    """

    reasons: Any = None
    estimate: Any = None
    outlook: Any = None
    names: Sequence[str] | None = None


NOTHING = Info()


class Choice(NamedTuple):
    """What a base chose, with what probability (None: unknown), and what its update needs."""

    action: Action
    probability: float | None
    evidence: Any
    info: Info = NOTHING


class Learnt(NamedTuple):
    """What a base has learnt of the rewards."""

    oracle: Any
    """The state of its regression, with `estimates(arms)`."""
    looks: tuple[float, ...] = ()
    """How likely each slot is exposed; empty for arms."""


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
    info: Info = field(default=NOTHING, repr=False, compare=False)  # not part of its bytes

    def place(self) -> tuple[str, int]:
        """The token of the agent that made it, and its number there; -1 where it has none."""
        token, _, digits = str(self.id).rpartition("-")
        number = int(digits) if digits.isdecimal() and len(digits) <= _DIGITS else -1
        return token, number

    @property
    def number(self) -> int:
        """Its place among the decisions of the agent that made it; -1 where none did."""
        return self.place()[1]

    @property
    def name(self) -> str | None:
        """What the arm is called; None for a ranking, without names, and read back from bytes."""
        names = self.info.names
        return None if names is None or isinstance(self.action, np.ndarray) else names[self.action]

    @property
    def names(self) -> tuple[str, ...] | None:
        """The keys of the items of a ranking, best slot first; None where `name` would be."""
        names = self.info.names
        if names is None or not isinstance(self.action, np.ndarray):
            return None
        return tuple(names[item] for item in self.action.tolist())

    def issued(self, id: str, t: int) -> Decision:
        """The same as an agent hands it out, with its own id."""
        return Decision(id, t, self.action, self.probability, self.evidence, self.info)

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
        called = {} if self.name is None else {"name": short(repr(self.name))}
        return {
            "t": str(self.t),
            "action": listed,
            **called,
            "probability": short(self.probability),
            "evidence": "None" if self.evidence is None else held,
        }

    def to_bytes(self) -> bytes:
        """Versioned MessagePack with a check sum, for a log or another process; never pickle."""
        stated = None if self.probability is None else float(self.probability)
        action = self.action if isinstance(self.action, int) else small(self.action)
        return pack((self.id, self.t, action, stated, self.evidence))

    def explain(self) -> list[dict[str, Any]]:
        """What made the score of what was chosen: of a ranking, slot by slot; of an arm, its own.

        `value` is what it is estimated to earn along the direction, `exploration` the bonus for
        what is not known yet; for items `fairness` is the bonus for exposure, and the sum of the
        three is the score; their rank without fairness is given too. `name` is there if there
        are names. Known where the decision was made, and not part of its bytes.
        """
        reasons = self.info.reasons
        if reasons is None:
            raise InvalidInput(
                f"there is nothing to explain of decision {self.id!r}: the policy gives no "
                "reasons, or the decision was made in another process"
            )
        rows: list[dict[str, Any]] = reasons.rows()
        if not isinstance(self.action, np.ndarray):  # the number among all arms of the context
            rows = [row | {"arm": self.action} if "arm" in row else row for row in rows]
        names = self.names if self.name is None else (self.name,)
        if names is None or len(names) != len(rows):
            return rows
        return [{"name": name, **row} for name, row in zip(names, rows, strict=True)]

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
        id, t, action, probability, evidence = values
        if isinstance(action, np.ndarray) and action.dtype == np.int32:
            action = action.astype(np.int64)
        return cls(id, t, action, probability, evidence)


def decided(
    id: str, t: int, action: Action, probability: float | None, evidence: Any, info: Info
) -> Decision:
    """`Decision(...)`, in a third of the time that a frozen dataclass takes."""
    decision = _new(Decision)
    _put_id(decision, id)
    _put_t(decision, t)
    _put_action(decision, action)
    _put_probability(decision, probability)
    _put_evidence(decision, evidence)
    _put_info(decision, info)
    return decision


_new = object.__new__
_put_id, _put_t, _put_action, _put_probability, _put_evidence, _put_info = (
    vars(Decision)[name].__set__ for name in Decision.__slots__
)


def small(actions: Any) -> Any:
    """Item ids in half of the bytes, where these are enough."""
    plain = isinstance(actions, np.ndarray) and actions.dtype == np.int64 and actions.size
    return actions.astype(np.int32) if plain and abs(actions).max() < 2**31 else actions


_ITEMS = 12  # of a ranking that are printed


def _arrays(evidence: Any) -> list[NDArray[Any]]:
    if isinstance(evidence, tuple):
        return [array for part in evidence for array in _arrays(part)]
    return [evidence] if isinstance(evidence, np.ndarray) else []


_FIELDS: tuple[Any, ...] = (str, int, (int, np.ndarray), (float, NoneType), object)
