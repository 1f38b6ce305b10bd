"""Objects from their repr: every class of the registry comes back, code never runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairwolfe import FrankWolfe
from fairwolfe.bandits import LinUCB
from fairwolfe.core import registry
from fairwolfe.core.build import from_text
from fairwolfe.errors import InvalidInput, NotConcave
from fairwolfe.objectives import AtMost, ByGroup, Custom, Linear, Minimum, Welfare
from fairwolfe.smoothing import Randomized

EXAMPLES = [
    example
    for kind in registry.KINDS
    if kind != "kinds"  # bound to a problem, not settings
    for name in registry.names(kind)
    if name != "custom"
    for example in registry.load(kind, name).examples()  # type: ignore[attr-defined]
]


@pytest.mark.parametrize("example", EXAMPLES, ids=repr)
def test_every_class_is_rebuilt_from_its_repr(example: object) -> None:
    assert from_text(repr(example)) == example


@pytest.mark.parametrize(
    "thing",
    [
        FrankWolfe(2 * Linear({"a b": 1.0, "ü": -2e-300}) + AtMost({"c": 0.01}, 20.0), LinUCB()),
        FrankWolfe(ByGroup(Minimum(), ["x", 3, None, (1, "y")]), LinUCB(ridge=np.float64(0.3))),
        FrankWolfe(Minimum(), LinUCB(exploration=0.1 + 0.2), Randomized(n_samples=3), memory=9.5),
        [1, -2.5, float("inf"), -float("inf"), "three", None, True, (4,), {"five": ()}],
    ],
    ids=repr,
)
def test_literals_and_nested_arguments(thing: object) -> None:
    assert from_text(repr(thing)) == thing
    assert repr(from_text(repr(thing))) == repr(thing)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').getcwd()",
        "LinUCB(ridge=1" + "0" * 400 + ")",
        "[-1" + "0" * 400 + "]",
        "open('x')",
        "Minimum",
        "Minimum().value",
        "Minimum().value([1.0])",
        "1 + 1",
        "[x for x in (1, 2)]",
        "(lambda: 1)()",
        "f'{1}'",
        "Linear(*[[1.0]])",
        "Linear(**{'weights': [1.0]})",
        "np.load('x')",
        "np.float64(open('x'))",
        "os.system('true')",
        "Minimum() if 1 else 2",
        "1j",
        "b'bytes'",
        "...",
        "{1, 2}",
        "{**{}}",
        "x := 1",
        "import os",
        "",
        "Minimum(",
        "Minimum()\0",
        "(" * 10_000,
        "-" * 100_000 + "1",
        "Minimum(nothing=1)",
        "Welfare()",
        "Linear(3)",
        "Custom(print)",
        "Custom(<lambda>, smooth=False)",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        from_text(text)


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        (
            "Minimun()",
            InvalidInput,
            "'Minimun' at character 1 is none of the classes of the registry; did you",
        ),
        (
            "Linear(weights=w)",
            InvalidInput,
            "'w' at character 16 is not allowed; allowed are classes",
        ),
        ("Welfare(alpha=2.0)", NotConcave, "alpha is 2.0"),
        (repr(Custom.examples()[0]), InvalidInput, "'_soft_minimum' at character 8 is not allowed"),
    ],
)
def test_the_sentence_says_what_is_wrong(text: str, kind: Any, sentence: str) -> None:
    with pytest.raises(kind, match=sentence.replace("?", r"\?")):
        from_text(text)


def test_what_a_text_gives_is_checked_like_anything_else() -> None:
    assert from_text("Welfare(alpha=0.5)") == Welfare(0.5)
