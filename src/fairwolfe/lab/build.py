"""From data to objects: what a spec describes is built; errors name the path of a key."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import cache, lru_cache
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from fairwolfe import environments
from fairwolfe.core.protocols import Environment, Policy, keeps
from fairwolfe.core.registry import KINDS, import_class, load, names
from fairwolfe.errors import FairwolfeError, InvalidInput, did_you_mean
from fairwolfe.lab.grid import Cell, Settings
from fairwolfe.lab.spec import canonical, shown
from fairwolfe.objectives import Concave
from fairwolfe.ranking import Ranker
from fairwolfe.simulation.lateness import Lateness
from fairwolfe.simulation.trace import checkpoint_grid

__all__ = ["OPTIONS", "Parts", "build", "build_objective", "build_policy", "checked"]


class Parts(NamedTuple):
    """What `simulate` is given."""

    environment: Any
    policy: Any
    objective: Concave | None
    options: dict[str, Any]


def _flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{path} is {shown(value)}; give true or false")
    return value


_LAWS = {"constant": "Constant", "geometric": "Geometric", "uniform": "Uniform"}
_LAWS["by-outcome"] = "ByOutcome"


def _law(value: Any, path: str) -> Any:
    """A delay: a number of rounds, or a table with the name of a law."""
    if not isinstance(value, dict):
        return value
    name = value.get("name")
    if not (isinstance(name, str) and (name in _LAWS or ":" in name)):
        raise InvalidInput(
            f"{path}.name is {name!r}; give one of {', '.join(_LAWS)}, or module:Class"
        )
    inner = {key: _law(one, f"{path}.{key}") for key, one in value.items() if key != "name"}
    return inner | {"name": name if ":" in name else f"fairwolfe.simulation.delays:{_LAWS[name]}"}


def _lateness(value: Any, path: str) -> Lateness:
    if not isinstance(value, dict):
        raise InvalidInput(f"{path} is {shown(value)}; give a table, such as {{ delay = 100 }}")
    table = {key: _law(one, f"{path}.{key}") for key, one in value.items()}
    lateness: Lateness = _object(table | {"name": "fairwolfe.simulation:Lateness"}, path, ())
    return lateness


# Keywords of `simulate` that a spec may set: how the value of each is checked or built.
OPTIONS: dict[str, Callable[[Any, str], Any]] = {"scalar_regret": _flag, "lateness": _lateness}


def build(settings: Settings, label: str = "policy") -> Parts:
    """The objects of a run.

    >>> from fairwolfe.lab.grid import Settings
    >>> policy = {"name": "frank-wolfe", "base": {"name": "linucb"}}
    >>> world, f = {"name": "mehrotra"}, {"name": "minimum"}
    >>> build(Settings(environment=world, objective=f, policy=policy, horizon=10)).policy.objective
    Minimum()
    """
    world = _environment(canonical(settings.environment))
    objective: Concave | None = None
    if settings.objective is not None:
        # Where the policy's own is what is measured, the path is the policy's; both are right.
        objective = build_objective(settings.objective, "objective")
    path = f"policies.{label}"
    policy = build_policy(settings.policy, path, objective=objective)
    if objective is None and getattr(policy, "objective", None) is None:
        raise InvalidInput(f"{path} has no objective; add a table [objective] for what is measured")
    options = {}
    for key, value in settings.options.items():
        if key not in OPTIONS:
            raise InvalidInput(f"options.{key} is unknown; {did_you_mean(key, OPTIONS)}")
        options[key] = OPTIONS[key](value, f"options.{key}")
    return Parts(world, policy, objective, options)


def build_objective(table: dict[str, Any], path: str) -> Concave:
    """An objective; path: where the table is, for errors."""
    objective = _object(table, path, ("objectives",))
    if not isinstance(objective, Concave):
        raise InvalidInput(f"{path} is {shown(objective)}; give one of fw.objectives")
    return objective


def build_policy(table: dict[str, Any], path: str, **default: Any) -> Any:
    """A policy; default: keywords that it is given where it takes them and the table has none."""
    policy = _object(table, path, ("policies", "bandits", "scalar_policies"), **default)
    if not (keeps(policy, Policy) or isinstance(policy, Ranker)):
        raise InvalidInput(
            f"{path} is {shown(policy)}, which is not a policy; give one such as "
            '{ name = "frank-wolfe", base = { name = "linucb" } }'
        )
    return policy


def checked(cell: Cell) -> Parts:
    """The objects of a cell, tried on the problem of its world: what cannot run raises now."""
    settings = cell.settings
    try:
        parts = build(settings, cell.label)
        problem = parts.environment.problem()
        if parts.objective is not None:
            with _at("objective"):
                parts.objective.bind(problem)
        with _at(f"policies.{cell.label}"):
            parts.policy.init(problem)
        with _at("checkpoints"):
            checkpoint_grid(settings.horizon, settings.checkpoints)
    except FairwolfeError as error:
        raise type(error)(f"{error}{cell.where()}") from error
    return parts


@lru_cache(maxsize=2)  # a world may hold large tables, and runs of one world come together
def _environment(text: str) -> Any:
    world = _object(json.loads(text), "environment", ("environments",))
    if not isinstance(world, Environment):
        raise InvalidInput(f"environment is {shown(world)}; see fairwolfe list environments")
    return world


def _object(table: dict[str, Any], path: str, kinds: tuple[str, ...], **default: Any) -> Any:
    name = table.get("name")
    if not isinstance(name, str):
        raise InvalidInput(f"{path}.name is {shown(name)}; give a name, see fairwolfe list")
    given = {key: value for key, value in table.items() if key != "name"}
    if kinds == ("environments",) and ":" not in name and name not in names("environments"):
        # `make` may know more worlds by name than there are classes.
        options = {key: _value(value, f"{path}.{key}") for key, value in given.items()}
        with _at(path):
            return environments.make(name, **options)
    kind = _class(name, path, kinds)
    known = {
        key: parameter
        for key, parameter in signature(kind).parameters.items()
        if parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    }
    open_ended = any(p.kind is Parameter.VAR_KEYWORD for p in signature(kind).parameters.values())
    for key in given:
        if key not in known and not open_ended:
            raise InvalidInput(
                f"{path}.{key} is not a parameter of {name!r}; {did_you_mean(key, known)}"
            )
    for key, hint in _plain_hints(kind).items():
        if key in given:
            _require(given[key], hint, f"{path}.{key}", name)
    built = {key: _value(value, f"{path}.{key}", **default) for key, value in given.items()}
    for key, value in default.items():
        if key in known and value is not None:
            built.setdefault(key, value)
    missing = [k for k, p in known.items() if p.default is p.empty and k not in built]
    if missing:
        raise InvalidInput(f"{path}.{missing[0]} is missing; {name!r} needs {', '.join(missing)}")
    with _at(path):
        return kind(**built)


def _class(name: str, path: str, kinds: tuple[str, ...]) -> type:
    if ":" in name:
        with _at(f"{path}.name"):
            return import_class(name)
    known = {one: kind for kind in reversed(kinds) for one in names(kind)}
    if name not in known:
        raise InvalidInput(
            f"{path}.name is {name!r}, which is unknown; {did_you_mean(name, known)}"
        )
    with _at(f"{path}.name"):
        return load(known[name], name)


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


def _value(value: Any, path: str, **default: Any) -> Any:
    """What a key holds; a policy inside a policy has the same defaults."""
    if isinstance(value, list):
        return tuple(_value(one, f"{path}.{i}") for i, one in enumerate(value))
    if isinstance(value, dict):
        name = value.get("name")
        if isinstance(name, str):
            inherited = default if name in names("policies") else {}
            return _object(value, path, _INNER, **inherited)
        return {key: _value(one, f"{path}.{key}") for key, one in value.items()}
    return value


@contextmanager
def _at(path: str) -> Iterator[None]:
    """Put the path of the key in front of an error."""
    try:
        yield
    except FairwolfeError as error:
        raise type(error)(f"{path}: {error}") from error
    except Exception as error:
        # Of a constructor or module of the user's, or a type that no constructor expects.
        raise InvalidInput(f"{path}: {type(error).__name__}: {error}") from error
