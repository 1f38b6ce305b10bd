"""An object from its own repr, without running code."""

from __future__ import annotations

import ast
import math
import re
from typing import Any

import numpy as np

from fairwolfe.core.registry import classes, import_class
from fairwolfe.errors import FairwolfeError, InvalidInput, did_you_mean

__all__ = ["read"]

_NAMES = {"inf": math.inf, "nan": math.nan}
_WORD = re.compile(r"[\w.]+|[^\w.\s]")
_MOST_WORDS = 400_000  # Python's parser takes up to a kilobyte for each
_NUMPY = {"float64": np.float64, "float32": np.float32, "int64": np.int64, "int32": np.int32}


def read(text: str, most_parts: int | None = None) -> Any:
    """The object that `text` is the repr of: calls of registered classes, and literals.

    Anything else (a name, an attribute, an operator, a comprehension) raises; nothing is
    evaluated except the constructors of the registry's classes.

    most_parts: how many objects the text may build; None for any number

    >>> read("FrankWolfe(objective=Minimum(), base=LinUCB(exploration=0.1))").base.exploration
    0.1
    """
    words = sum(1 for _ in _WORD.finditer(text))
    if words > _MOST_WORDS:
        raise InvalidInput(
            f"a text of {words:,} words cannot be rebuilt: at most {_MOST_WORDS:,} are read"
        )
    try:
        tree = ast.parse(text.strip(), mode="eval")
        if most_parts is not None:
            _count_parts(tree, most_parts)
        return _value(tree.body)
    except FairwolfeError:
        raise
    except Exception as error:  # a class may be from any package, and its arguments anything
        shown = text if len(text) <= 80 else f"{text[:80]}..."
        what = str(error) or type(error).__name__
        raise InvalidInput(f"{shown!r} cannot be rebuilt: {what}") from error


def _count_parts(tree: ast.AST, most: int) -> None:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    parts = sum(isinstance(function, ast.Name) for function in calls)
    if parts > most:
        raise InvalidInput(f"the text has {parts:,} parts; give at most {most}")


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=str() | None as value):
            return value
        case ast.Constant(value=int() | float() as value):
            float(value)  # no setting is a whole number that no float can hold
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float()) as operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="inf")):
            return -math.inf
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.Tuple(elts=elements):
            return tuple(_value(element) for element in elements)
        case ast.List(elts=elements):
            return [_value(element) for element in elements]
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {_value(k): _value(v) for k, v in zip(keys, values, strict=True) if k}
        case ast.Call(func=ast.Attribute(value=ast.Name(id="np"), attr=attr), args=[one]):
            if attr in _NUMPY and isinstance(one, (ast.Constant, ast.UnaryOp)):
                return _NUMPY[attr](_value(one))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords):
            return _called(name, arguments, keywords)
    raise InvalidInput(
        f"{ast.unparse(node)!r:.80} cannot be rebuilt: only literals and classes of the registry "
        "can"
    )


def _called(name: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> Any:
    known = classes()
    if name not in known:
        raise InvalidInput(f"no class {name!r:.80} is registered; {did_you_mean(name, known)}")
    named = {}
    for keyword in keywords:
        if keyword.arg is None:
            raise InvalidInput(f"{name:.80}(**...) cannot be rebuilt: name every argument")
        named[keyword.arg] = _value(keyword.value)
    return import_class(known[name])(*(_value(argument) for argument in arguments), **named)
