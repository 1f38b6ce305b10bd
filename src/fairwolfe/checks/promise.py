"""What the checks of all contracts share."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.protocols import Exemplary, Sized
from fairwolfe.core.registry import classes, import_class
from fairwolfe.errors import ConformanceError, InvalidInput

__all__ = [
    "Check",
    "examples_of",
    "has",
    "is_a_value",
    "is_refused",
    "length",
    "require",
    "steepest",
]

Check = Callable[[Any, np.random.Generator], None]

_HALVINGS = 20  # lengths of about 1e-6 are left: gradients differ by far more than by rounding


def require(condition: bool, broken: str) -> None:
    """Raise ConformanceError with the sentence unless the condition holds."""
    if not condition:
        raise ConformanceError(broken)


def has(subject: Any, power: Any) -> bool:
    """Whether a subject has a power; unlike isinstance it leaves the other methods in sight."""
    return isinstance(subject, power)


def examples_of(subject: Any) -> tuple[Any, ...]:
    """An instance itself, or the instances that a class shows."""
    if not isinstance(subject, type):
        return (subject,)
    if not isinstance(subject, Exemplary):
        raise InvalidInput(
            f"{subject.__name__} has no examples(); give it a classmethod that returns a tuple of "
            "instances, or check an instance"
        )
    examples = tuple(subject.examples())
    if not examples:
        raise InvalidInput(f"{subject.__name__}.examples() is empty; return at least one instance")
    return examples


def is_refused(attempt: Callable[[], Any]) -> bool:
    """Whether the attempt raises InvalidInput; other errors are no refusal."""
    try:
        attempt()
    except Exception as error:
        return isinstance(error, InvalidInput)
    return False


def steepest(gradient: Callable[[Vector], Vector], x: Vector, y: Vector) -> tuple[float, float]:
    """|g(x) - g(y)| and |x - y| where their quotient is largest: the better half, again and again.

    By the triangle inequality a half is never worse than the whole, so that the quotient grows to
    the curvature at a point, or without end at a kink.
    """
    ends = (x, gradient(x)), (y, gradient(y))
    for _ in range(_HALVINGS):
        middle = 0.5 * (ends[0][0] + ends[1][0])
        between = middle, gradient(middle)
        halves = (ends[0], between), (between, ends[1])
        ends = max(halves, key=lambda half: np.linalg.norm(half[0][1] - half[1][1]))
    (x, g), (y, h) = ends
    return float(np.linalg.norm(g - h)), float(np.linalg.norm(x - y))


def length(objective: Any) -> int:
    """The length of z that an objective is checked with."""
    return (objective.size if isinstance(objective, Sized) else None) or 5


def is_a_value(subject: Any, rng: np.random.Generator) -> None:
    """Frozen, hashable, equal to its copy, rebuilt from its repr."""
    copy = pickle.loads(pickle.dumps(subject))
    require(copy == subject and hash(copy) == hash(subject), "a copy is not equal")
    try:
        subject.brand_new_attribute = 1
    except (FrozenInstanceError, AttributeError, TypeError):
        pass
    else:
        raise ConformanceError("attributes can be set; make it a frozen dataclass")
    text = repr(subject)
    if "Custom(" not in text:  # functions have no repr that rebuilds them
        # Only what the text names is loaded: a plug-in that cannot be must not spoil the rest.
        called = {name: at for name, at in classes().items() if f"{name}(" in text}
        known = {name: import_class(at) for name, at in called.items()}
        rebuilt = eval(text, known | {part.__name__: part for part in _types(subject)})
        require(rebuilt == subject, f"eval(repr) gives {rebuilt!r}")


def _types(subject: Any) -> Iterator[type]:
    """The classes of a subject and of its settings, in the registry or not."""
    yield type(subject)
    parts = subject if isinstance(subject, (tuple, list)) else ()
    if is_dataclass(subject):
        parts = tuple(getattr(subject, one.name) for one in fields(subject))
    for part in parts:
        yield from _types(part)
