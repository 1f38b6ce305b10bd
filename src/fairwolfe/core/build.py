"""Objects from text (a repr) and from tables of TOML or JSON, without running code.

Agent files, specs of experiments, the configuration and HTTP of the service, and the command line
all read objectives, policies and environments here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import cache, reduce
from inspect import Parameter, signature
from operator import add
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from fairwolfe.core.protocols import Objective, Policy, keeps
from fairwolfe.core.registry import KINDS, classes, import_class, load, names
from fairwolfe.errors import FairwolfeError, InvalidInput, did_you_mean

_WORD = re.compile(r"[\w.]+|[^\w.\s]")
_MOST_WORDS = 400_000  # Python's parser takes up to a kilobyte for each
_PLAIN = re.compile(r"[A-Za-z][\w-]{0,60}")
_DEEPEST = 100  # levels of nesting
_QUOTED = 60  # characters of a text in an error
_LONGEST, _MOST_PARTS = 500_000, 1000  # characters and parts of an objective that people write
_NUMPY = {"float64": np.float64, "float32": np.float32, "int64": np.int64, "int32": np.int32}
_ALLOWED = (
    "allowed are {kind} such as {example}, f + g, 0.5 * f and f.on('clicks') of objectives, and "
    "numbers, texts, lists and dictionaries inside"
)


def from_text(text: str, most_parts: int | None = None, kinds: Sequence[str] = ()) -> Any:
    """The object that `text` is the repr of: calls of registered classes, and literals; objectives
    may be added, multiplied by numbers, and aimed with ``.on(...)``.

    Anything else (a name, an attribute, a comprehension) raises before anything is built; nothing
    is evaluated except the constructors of the registry's classes.

    most_parts: how many objects the text may build; None for any number
    kinds: the kinds of the registry whose classes it may name; empty for all

    >>> from_text("FrankWolfe(objective=Minimum(), base=LinUCB(exploration=0.1))").base.exploration
    0.1
    >>> from_text("2 * Minimum().on('clicks') + AtMost({'cost': 0.02})").terms[0]
    2.0 * Minimum().on('clicks')
    """
    words = sum(1 for _ in _WORD.finditer(text))
    if words > _MOST_WORDS:
        raise InvalidInput(
            f"a text of {words:,} words cannot be rebuilt: at most {_MOST_WORDS:,} are read"
        )
    reader = _Reader(text, kinds)
    try:
        tree = ast.parse(reader.line, mode="eval").body
    except SyntaxError as error:
        place = f" at character {error.offset}" if error.offset else ""
        raise InvalidInput(
            f"{_quoted(text)} is not an expression: {error.msg}{place}; {reader.allowed}"
        ) from error
    except (ValueError, MemoryError, RecursionError) as error:
        what = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
        raise InvalidInput(f"{_quoted(text)} is not an expression: {what}") from error
    reader.check(tree)
    if most_parts is not None and reader.parts > most_parts:
        raise InvalidInput(f"the text has {reader.parts:,} parts; give at most {most_parts}")
    return reader.value(tree)


class _Reader:
    """Reads the tree of a text: `check` sees that all of it is allowed, then `value` builds."""

    def __init__(self, text: str, kinds: Sequence[str]) -> None:
        # One line, whose characters have the places that they have in the text.
        self.line = re.sub(r"[\t\n\v\f\r]", " ", text).strip()
        self._lead = len(text) - len(text.lstrip())
        self._classes = classes(*kinds)
        self._kind = "objectives" if tuple(kinds) == ("objectives",) else "classes of the registry"
        example = "Linear({'clicks': 1.0})" if "Linear" in self._classes else "LinUCB()"
        self.allowed = _ALLOWED.format(kind=self._kind, example=example)
        self.parts = 0

    # --- what is allowed ----------------------------------------------------------------------

    def check(self, node: ast.expr, depth: int = 0) -> None:
        """Raise for what is not allowed, with its place."""
        if depth > _DEEPEST:
            raise self._error(node, f"is nested more than {_DEEPEST} levels deep; give less")
        inner: list[ast.expr] = []
        match node:
            case ast.Constant(value=int() | float() as number):
                try:
                    float(number)
                except OverflowError as error:
                    text = "is a whole number that no float can hold"
                    raise self._error(node, text) from error
            case ast.Constant(value=str() | None):
                pass
            case ast.Name(id="inf" | "nan"):
                pass
            case ast.UnaryOp(op=ast.USub()):
                if not _is_number(node):
                    raise self._error(node, "is not a number; a minus is for numbers only")
                inner = [node.operand]
            case ast.Tuple(elts=inner) | ast.List(elts=inner):
                pass
            case ast.Dict(keys=keys, values=values) if None not in keys:
                inner = [*(key for key in keys if key), *values]
                names = [key.value for key in keys if isinstance(key, ast.Constant)]
                if len(set(names)) < len(names):
                    raise self._error(node, "has a key twice; leave out one")
            case ast.BinOp(op=ast.Add()):
                inner = _terms(node)
                for term in inner:
                    self._require_objective(term, "added")
            case ast.BinOp(op=ast.Mult(), left=left, right=right):
                inner = [left, right]
                factor = right if _is_number(left) else left
                if not (_is_number(left) or _is_number(right)):
                    raise self._error(node, "has no number; an objective is multiplied by one")
                self._require_objective(factor, "multiplied by a number")
            case ast.Call(func=ast.Attribute(value=ast.Name(id="np"), attr=attr), args=[one]) if (
                attr in _NUMPY and not node.keywords
            ):
                if not _is_number(one):
                    raise self._error(one, "is not a number")
                inner = [one]
            case ast.Call(func=ast.Attribute(value=owner, attr="on"), args=inner, keywords=[]):
                self.parts += 1
                self._require_objective(owner, "aimed with .on(...)")
                inner = [owner, *inner]
            case ast.Call(func=ast.Name(id=name), args=inner, keywords=keywords):
                self.parts += 1
                if name not in self._classes:
                    near = did_you_mean(name, self._classes)
                    raise self._error(node.func, f"is none of the {self._kind}; {near}")
                given = [keyword.arg for keyword in keywords]
                if None in given or len(set(given)) < len(given):
                    raise self._error(node, "must name every keyword once, without **")
                inner = [*inner, *(keyword.value for keyword in keywords)]
            case _:
                raise self._error(node, f"is not allowed; {self.allowed}")
        for one in inner:
            self.check(one, depth + 1)

    def _require_objective(self, node: ast.expr, what: str) -> None:
        match node:
            case ast.BinOp(op=ast.Add() | ast.Mult()):
                return
            case ast.Call(func=ast.Name() | ast.Attribute(attr="on")):
                return
        raise self._error(node, f"is no objective, and only objectives are {what}; {self.allowed}")

    def _error(self, node: ast.expr, what: str) -> InvalidInput:
        return InvalidInput(f"{self._shown(node)} {what}")

    def _shown(self, node: ast.expr) -> str:
        """A piece of the text with its place, which is counted from 1."""
        line = self.line.encode()
        before = line[: node.col_offset].decode()
        piece = line[node.col_offset : node.end_col_offset].decode()
        return f"{_quoted(piece)} at character {self._lead + len(before) + 1}"

    # --- what it gives ------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Any:
        """What a checked node gives."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return float(name)
            case ast.UnaryOp(operand=operand):
                return -self.value(operand)
            case ast.Tuple(elts=elements):
                return tuple(map(self.value, elements))
            case ast.List(elts=elements):
                return list(map(self.value, elements))
            case ast.Dict(keys=keys, values=values):
                given = [self.value(key) for key in keys if key]
                with self._placed(node):  # a key may be a list
                    return dict(zip(given, map(self.value, values), strict=True))
            case ast.BinOp(op=ast.Add()):
                terms = list(map(self.value, _terms(node)))
                with self._placed(node):
                    return reduce(add, terms)
            case ast.BinOp(left=left, right=right):
                factors = self.value(left), self.value(right)
                with self._placed(node):
                    return factors[0] * factors[1]
            case ast.Call(func=ast.Attribute(value=ast.Name(id="np"), attr=attr), args=[one]):
                return _NUMPY[attr](self.value(one))
            case ast.Call(func=ast.Attribute(value=owner), args=arguments):
                objective, given = self.value(owner), list(map(self.value, arguments))
                with self._placed(node):
                    return objective.on(*given)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords):
                given = list(map(self.value, arguments))
                named = {keyword.arg or "": self.value(keyword.value) for keyword in keywords}
                with self._placed(node):
                    return import_class(self._classes[name])(*given, **named)
        raise AssertionError(node)  # `check` refuses it

    @contextmanager
    def _placed(self, node: ast.expr) -> Iterator[None]:
        """Say where in the text an error of what is built comes from."""
        try:
            yield
        except Exception as error:  # a class may be from any package, and its arguments anything
            kind = type(error) if isinstance(error, FairwolfeError) else InvalidInput
            what = str(error) or type(error).__name__
            whole = node.col_offset == 0 and node.end_col_offset == len(self.line.encode())
            raise kind(what if whole else f"{self._shown(node)}: {what}") from error


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _QUOTED else f"{text[:_QUOTED]}...")


def _terms(node: ast.expr) -> list[ast.expr]:
    """f, g and h of f + g + h, which Python nests."""
    terms = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        terms.append(node.right)
        node = node.left
    return [node, *reversed(terms)]


def _is_number(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() | float()) | ast.Name(id="inf" | "nan"):
            return True
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant() | ast.Name() as operand):
            return _is_number(operand)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="np"))):
            return True
    return False


def build_objective(
    given: dict[str, Any] | str, path: str, most_parts: int | None = _MOST_PARTS
) -> Any:
    """An objective from a table, from its name in the registry, or from its text.

    path: where it is given, for errors; most_parts: as in `from_text`

    >>> build_objective("clicks", "objective")
    Traceback (most recent call last):
    ...
    fairwolfe.errors.InvalidInput: objective is 'clicks'; give an expression such as ...
    """
    if isinstance(given, str) and len(given) > _LONGEST:
        raise InvalidInput(f"{path} has {len(given):,} characters; give at most {_LONGEST:,}")
    known = names("objectives")
    if isinstance(given, str) and given not in known and _PLAIN.fullmatch(given):
        raise InvalidInput(
            f"{path} is {given!r}; give an expression such as \"Linear({{'clicks': 1.0}})\", or a "
            f"name; {did_you_mean(given, known)}"
        )
    if isinstance(given, str) and given not in known:
        with at(path):
            objective = from_text(given, most_parts, ("objectives",))
    elif isinstance(given, (dict, str)):
        table = {"name": given} if isinstance(given, str) else given
        objective = from_table(table, path, ("objectives",))
    else:
        raise InvalidInput(
            f"{path} is {shown(given)}; give an objective as text, such as "
            "\"Linear({'clicks': 1.0})\", or as a table with a name"
        )
    if not isinstance(objective, Objective):
        raise InvalidInput(
            f"{path} is {shown(objective)}, which is not an objective; give one such as Minimum()"
        )
    return objective


def build_policy(table: dict[str, Any], path: str, **default: Any) -> Any:
    """A policy; default: keywords that it is given where it takes them and the table has none."""
    policy = from_table(table, path, ("policies", "bandits", "scalar_policies"), **default)
    if not (keeps(policy, Policy) or getattr(policy, "decides", "") == "ranking"):
        raise InvalidInput(
            f"{path} is {shown(policy)}, which is not a policy; give one such as "
            '{ name = "frank-wolfe", base = { name = "linucb" } }'
        )
    return policy


def from_table(table: dict[str, Any], path: str, kinds: tuple[str, ...], **default: Any) -> Any:
    """The object that a table describes: its `name` in the registry, its parameters beside it.

    path: where the table is, for errors; default: as in `build_policy`
    """
    name = table.get("name")
    if not isinstance(name, str):
        raise InvalidInput(f"{path}.name is {shown(name)}; give a name, see fairwolfe list")
    given = {key: value for key, value in table.items() if key != "name"}
    kind = _class(name, path, kinds)
    parameters = signature(kind).parameters
    more = {key: p.kind for key, p in parameters.items() if p.kind in _MORE}
    known = {key: p for key, p in parameters.items() if key not in more}
    for key in given:
        if key not in known and Parameter.VAR_KEYWORD not in more.values():
            raise InvalidInput(
                f"{path}.{key} is not a parameter of {name!r}; {did_you_mean(key, known)}"
            )
    for key, hint in _plain_hints(kind).items():
        if key in given:
            _require(given[key], hint, f"{path}.{key}", name)
    built = {key: from_value(value, f"{path}.{key}", **default) for key, value in given.items()}
    if isinstance(built.get("objective"), str) and "objective" not in _plain_hints(kind):
        built["objective"] = build_objective(built["objective"], f"{path}.objective")
    for key, value in default.items():
        if key in known and value is not None:
            built.setdefault(key, value)
    missing = [k for k, p in known.items() if p.default is p.empty and k not in built]
    if missing:
        raise InvalidInput(f"{path}.{missing[0]} is missing; {name!r} needs {', '.join(missing)}")
    with at(path):
        return kind(**built)


def _class(name: str, path: str, kinds: tuple[str, ...]) -> type:
    known = {one: kind for kind in reversed(kinds) for one in names(kind)}
    if ":" not in name and name not in known:
        raise InvalidInput(
            f"{path}.name is {name!r}, which is unknown; {did_you_mean(name, known)}"
        )
    with at(f"{path}.name"):
        return import_class(name) if ":" in name else load(known[name], name)


_MORE = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_WORDS = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}


@cache
def _plain_hints(kind: type) -> dict[str, tuple[Any, ...]]:
    """Of the parameters that are plain values: the types, or the values, that each may have."""
    subject: Any = kind
    try:
        hints = get_type_hints(kind if is_dataclass(kind) else subject.__init__)
    except Exception:  # a name that only type checkers see: the constructor will judge
        return {}
    plain = {}
    for key, hint in hints.items():
        several = get_origin(hint) in (Union, UnionType)
        options = [o for o in (get_args(hint) if several else (hint,)) if o is not NoneType]
        if all(option in _WORDS or get_origin(option) is Literal for option in options):
            plain[key] = tuple(options)
    return plain


def _require(value: Any, options: tuple[Any, ...], path: str, name: str) -> None:
    words: list[str] = []
    for option in options:
        if option in _WORDS:
            kinds = (int, float) if option is float else option
            if isinstance(value, kinds) and isinstance(value, bool) == (option is bool):
                return
            words.append(_WORDS[option])
        else:
            if value in get_args(option):
                return
            words += map(repr, get_args(option))
    raise InvalidInput(f"{path} is {shown(value)}; {name!r} takes {' or '.join(words)} there")


_INNER = tuple(kind for kind in KINDS if kind != "environments")


def from_value(value: Any, path: str, **default: Any) -> Any:
    """What a key holds; a policy inside a policy has the same defaults."""
    if isinstance(value, list):
        return tuple(from_value(one, f"{path}.{i}") for i, one in enumerate(value))
    if isinstance(value, dict):
        name = value.get("name")
        if isinstance(name, str):
            inherited = default if name in names("policies") else {}
            return from_table(value, path, _INNER, **inherited)
        return {key: from_value(one, f"{path}.{key}") for key, one in value.items()}
    return value


@contextmanager
def at(path: str) -> Iterator[None]:
    """Put the path of the key in front of an error."""
    try:
        yield
    except FairwolfeError as error:
        raise type(error)(f"{path}: {error}") from error
    except Exception as error:
        # Of a constructor or module of the user's, or a type that no constructor expects.
        raise InvalidInput(f"{path}: {type(error).__name__}: {error}") from error


def shown(value: Any) -> str:
    """A value in a sentence, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
