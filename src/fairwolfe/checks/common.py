"""Helpers of the checks of all contracts: `require`, `contract_of`, `same`, `is_a_value`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.protocols import (
    Base,
    Environment,
    Objective,
    Oracle,
    Policy,
    ScalarPolicy,
    Smoothing,
    keeps,
)
from fairwolfe.core.registry import classes, import_class
from fairwolfe.errors import ConformanceError, InvalidInput

Check = Callable[[Any, np.random.Generator], None]

CONTRACTS: tuple[Any, ...] = (
    *(Objective, Smoothing, Oracle),
    *(Base, ScalarPolicy, Policy, Environment),
)
"""In the order in which `contract_of` tries them."""

_HALVINGS = 20  # lengths of about 1e-6 are left: gradients differ by far more than by rounding


def require(condition: bool, broken: str) -> None:
    """Raise ConformanceError with the sentence unless the condition holds."""
    if not condition:
        raise ConformanceError(broken)


def is_refused(attempt: Callable[[], Any]) -> bool:
    """Whether the attempt raises InvalidInput; another error does not count."""
    try:
        attempt()
    except Exception as error:
        return isinstance(error, InvalidInput)
    return False


def examples_of(subject: Any) -> tuple[Any, ...]:
    """An instance itself, or the `examples()` of a class."""
    if not isinstance(subject, type):
        return (subject,)
    if not hasattr(subject, "examples"):
        raise InvalidInput(
            f"{subject.__name__} has no examples(); give it a classmethod that returns a tuple of "
            "instances, or check an instance"
        )
    examples = tuple(subject.examples())
    if not examples:
        raise InvalidInput(f"{subject.__name__}.examples() is empty; return at least one instance")
    return examples


def contract_of(example: Any) -> Any:
    """The contract that an instance keeps, by the names and the arguments of its methods."""
    kept = [contract for contract in CONTRACTS if isinstance(example, contract)]
    if kept:
        return next((contract for contract in kept if keeps(example, contract)), kept[0])
    shares = []
    for contract in CONTRACTS:
        methods = [name for name in dir(contract) if not name.startswith("_")]
        missing = [name for name in methods if not hasattr(example, name)]
        shares.append((len(missing) / len(methods), ", ".join(missing), contract.__name__))
    share, names, nearest = min(shares)
    if share < 0.5:
        raise InvalidInput(
            f"{type(example).__name__} has no {names}; add it as in "
            f"fairwolfe.core.protocols.{nearest}"
        )
    listed = ", ".join(contract.__name__ for contract in CONTRACTS)
    raise InvalidInput(
        f"{type(example).__name__} keeps none of the contracts {listed}; fairwolfe.core.protocols "
        "has their methods"
    )


def same(one: Any, other: Any) -> bool:
    """Whether two values, such as states, hold the same bits."""
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if hasattr(one, "copied"):  # a running policy
        return same(one.state, other.state)
    if is_dataclass(one) and not isinstance(one, type):
        names = [f.name for f in fields(one)]
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    return bool(one == other)


def arrays(state: Any) -> Iterator[Any]:
    """Every array of a state."""
    if isinstance(state, np.ndarray):
        yield state
    elif isinstance(state, (tuple, list)):
        for part in state:
            yield from arrays(part)
    elif isinstance(state, dict):
        yield from arrays(list(state.values()))
    elif hasattr(state, "copied"):
        yield from arrays(state.state)


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
