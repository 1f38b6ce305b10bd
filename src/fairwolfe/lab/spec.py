"""`Spec`: an experiment as data, read from TOML and checked key by key."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from fairwolfe.errors import InvalidInput, did_you_mean

__all__ = ["Spec", "canonical", "parse", "shown"]

Table = dict[str, Any]
Count = Annotated[int, msgspec.Meta(ge=1)]
Seed = Annotated[int, msgspec.Meta(ge=0)]
Name = Annotated[str, msgspec.Meta(pattern=r"^\w[\w .-]*$")]


class Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a file holds: tables with a `name` are objects, the rest are their parameters."""

    name: Name
    horizon: Count
    environment: Table
    policies: Annotated[dict[str, Table], msgspec.Meta(min_length=1)]
    seeds: Count | Annotated[list[Seed], msgspec.Meta(min_length=1)] = 1
    objective: Table | None = None
    checkpoints: Annotated[list[Count], msgspec.Meta(min_length=1)] | None = None
    grid: dict[str, Annotated[list[Any], msgspec.Meta(min_length=1)]] = {}
    options: Table = {}

    def numbers(self) -> tuple[int, ...]:
        """The seeds, one by one."""
        return tuple(range(self.seeds) if isinstance(self.seeds, int) else self.seeds)


# What to do about a wrong value.
_WANTED = {
    "name": "give a name of letters, digits, spaces and . _ -, which begins with a letter",
    "horizon": "give a whole number of rounds, at least 1",
    "seeds": "give how many, at least 1, or a list of different whole numbers of at least 0",
    "checkpoints": "give a list of whole numbers from 1 to the horizon",
    "environment": 'give a table with a name, such as { name = "mehrotra" }',
    "objective": 'give a table with a name, such as { name = "gini-welfare" }',
    "policies": "give a table [policies.LABEL] for each policy, at least one",
    "grid": 'give a list of values for each path, such as "objective.beta" = [0.1, 1.0]',
    "options": "give a table of options of the simulation",
}


def parse(text: str) -> Spec:
    """The spec in a TOML text; InvalidInput names the key and its value.

    >>> parse('''
    ... name = "small"
    ... horizon = 1e3
    ... environment = { name = "mehrotra" }
    ... policies.ucb = { name = "frank-wolfe", base = { name = "linucb" } }
    ... ''').horizon
    1000
    """
    try:
        given = _normal(tomllib.loads(text), "")
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"not TOML: {error}") from error
    for key in given:
        if key not in Spec.__struct_fields__:
            raise InvalidInput(f"{key!r} is unknown; {did_you_mean(key, Spec.__struct_fields__)}")
    try:
        spec = msgspec.convert(given, Spec)
    except msgspec.ValidationError as error:
        raise InvalidInput(_sentence(str(error), given)) from error
    numbers = spec.numbers()
    if len(set(numbers)) < len(numbers):
        raise InvalidInput(f"seeds is {shown(spec.seeds)}; {_WANTED['seeds']}")
    if spec.checkpoints and max(spec.checkpoints) > spec.horizon:
        raise InvalidInput(
            f"checkpoints has {max(spec.checkpoints)}, and the horizon is {spec.horizon}; "
            + _WANTED["checkpoints"]
        )
    tables = {"environment": spec.environment, "objective": spec.objective or {"name": ""}}
    tables |= {f"policies.{label}": table for label, table in spec.policies.items()}
    for path, table in tables.items():
        if not isinstance(table.get("name"), str):
            raise InvalidInput(f"{path} has no name; {_WANTED[path.partition('.')[0]]}")
    return spec


def canonical(value: Any) -> str:
    """The one text of a value: sorted keys, no spaces, 1 and 1.0 the same.

    >>> canonical({"b": 1.0, "a": [True, 0.5]}) == canonical({"a": [True, 0.5], "b": 1})
    True
    """
    return json.dumps(_normal(value, ""), sort_keys=True, separators=(",", ":"))


def shown(value: Any) -> str:
    """A value in a sentence, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _normal(value: Any, path: str) -> Any:
    """Numbers in one form, so that what is built and what is hashed are the same."""
    match value:
        case bool() | str() | int() | None:
            return value
        case float():
            exact = math.isfinite(value) and value.is_integer() and abs(value) < 2**53
            return int(value) if exact else value
        case Mapping():
            return {key: _normal(one, f"{path}.{key}".lstrip(".")) for key, one in value.items()}
        case list() | tuple():
            return [_normal(one, f"{path}[{i}]") for i, one in enumerate(value)]
    raise InvalidInput(
        f"{path} is {shown(value)}, a {type(value).__name__}; give a number, a string, a list or "
        "a table"
    )


def _sentence(message: str, given: Table) -> str:
    """The error of msgspec, with the value and what to do."""
    if missing := re.search(r"missing required field `(\w+)`", message):
        return f"{missing[1]} is missing; {_WANTED[missing[1]]}"
    place = re.search(r"at `\$[.](\w+)(.*)`", message)
    if place is None:
        return message
    key, rest = place.groups()
    value, path = given[key], key
    if position := re.fullmatch(r"\[(\d+)\]", rest):
        value, path = value[int(position[1])], key + rest
    elif rest.startswith("[...]") and isinstance(value, dict):
        kind = list if key == "grid" else dict
        wrong = next((k for k, v in value.items() if not (isinstance(v, kind) and v)), None)
        if wrong is not None:
            value, path = value[wrong], f"{key}.{wrong}"
    return f"{path} is {shown(value)}; {_WANTED[key]}"
