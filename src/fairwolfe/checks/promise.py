"""What the checks of all contracts share."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np

from fairwolfe.errors import ConformanceError, InvalidInput
from fairwolfe.registry import classes, import_class

__all__ = ["Check", "examples_of", "is_a_value", "length", "require"]

Check = Callable[[Any, np.random.Generator], None]


def require(condition: bool, broken: str) -> None:
    """Raise ConformanceError with the sentence unless the condition holds."""
    if not condition:
        raise ConformanceError(broken)


def examples_of(subject: Any) -> tuple[Any, ...]:
    """An instance itself, or the instances that a class shows."""
    if not isinstance(subject, type):
        return (subject,)
    make = getattr(subject, "examples", None)
    if make is None:
        raise InvalidInput(
            f"{subject.__name__} has no examples(); give it a classmethod that returns a tuple of "
            "instances, or check an instance"
        )
    made = tuple(make())
    if not made:
        raise InvalidInput(f"{subject.__name__}.examples() is empty; return at least one instance")
    return made


def length(objective: Any) -> int:
    """The length of z that an objective is checked with."""
    return getattr(objective, "size", None) or 5


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
        rebuilt = eval(text, known | {type(subject).__name__: type(subject)})
        require(rebuilt == subject, f"eval(repr) gives {rebuilt!r}")
