"""An experiment as data: `ExperimentSpec`, read from TOML and checked; its grid and its runs."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import msgspec

from fairwolfe.core.build import shown
from fairwolfe.errors import FairwolfeError, InvalidInput, did_you_mean

Table = dict[str, Any]
Count = Annotated[int, msgspec.Meta(ge=1)]
Seed = Annotated[int, msgspec.Meta(ge=0)]
Name = Annotated[str, msgspec.Meta(pattern=r"^\w[\w .-]*$")]


class ExperimentSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a file holds: tables with a `name` are objects, the rest are their parameters."""

    name: Name
    horizon: Count
    environment: Table
    policies: Annotated[dict[str, Table], msgspec.Meta(min_length=1)]
    seeds: Count | Annotated[list[Seed], msgspec.Meta(min_length=1)] = 1
    objective: Table | str | None = None
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
    "objective": "give text, such as \"Linear({'clicks': 1.0})\", or a table with a name",
    "policies": "give a table [policies.LABEL] for each policy, at least one",
    "grid": 'give a list of values for each path, such as "objective.beta" = [0.1, 1.0]',
    "options": "give a table of options of the simulation",
}


def parse(text: str) -> ExperimentSpec:
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
        if key not in ExperimentSpec.__struct_fields__:
            raise InvalidInput(
                f"{key!r} is unknown; {did_you_mean(key, ExperimentSpec.__struct_fields__)}"
            )
    try:
        spec = msgspec.convert(given, ExperimentSpec)
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
    tables = {"environment": spec.environment}
    if isinstance(spec.objective, dict):
        tables["objective"] = spec.objective
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


class RunSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that a run depends on but its seed. No label: a name changes no number.

    `objective` is what is measured. A policy that takes an objective and states none follows it;
    one that states the same is written as if it stated none.
    """

    environment: dict[str, Any]
    policy: dict[str, Any]
    horizon: int
    objective: dict[str, Any] | str | None = None
    checkpoints: list[int] | None = None
    options: dict[str, Any] = {}

    @classmethod
    def of(cls, spec: ExperimentSpec, policy: dict[str, Any]) -> RunSettings:
        """The settings of one policy of a spec without a grid."""
        own = policy.get("objective")
        objective = spec.objective or own
        if own is not None and canonical(own) == canonical(objective):
            policy = {key: value for key, value in policy.items() if key != "objective"}
        times = spec.checkpoints and sorted({*spec.checkpoints, spec.horizon})
        return cls(
            environment=spec.environment,
            objective=objective,
            policy=policy,
            horizon=spec.horizon,
            checkpoints=times,
            options=spec.options,
        )

    def text(self) -> str:
        """Canonical JSON, without what is left out: a setting that is new changes no old id."""
        return canonical(msgspec.to_builtins(self))

    @property
    def id(self) -> str:
        """The beginning of the SHA-256 of the text."""
        return hashlib.sha256(self.text().encode()).hexdigest()[:12]

    def parameters(self) -> dict[str, Any]:
        """Every parameter that was stated, by its dotted path."""
        stated = {"environment": self.environment, "policy": self.policy, "options": self.options}
        objective = {} if self.objective is None else {"objective": self.objective}
        return dict(flat(stated | objective))


@dataclass(frozen=True)
class Cell:
    """One policy at one point of the grid: its label, its settings, and what the grid chose."""

    label: str
    settings: RunSettings
    chosen: dict[str, Any]  # column -> value

    def where(self) -> str:
        """The point of the grid, as the end of a sentence."""
        if not self.chosen:
            return ""
        pairs = ", ".join(f"{column} = {shown(value)}" for column, value in self.chosen.items())
        return f" (in the grid, at {pairs})"


def flat(table: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted paths and their values; lists of plain values stay whole.

    >>> dict(flat({"base": {"name": "linucb", "ridge": 0.1}, "weights": [1, 2]}))
    {'base.name': 'linucb', 'base.ridge': 0.1, 'weights': [1, 2]}
    """
    pairs: Iterable[tuple[Any, Any]]
    if isinstance(table, dict):
        pairs = table.items()
    elif isinstance(table, list) and any(isinstance(one, dict) for one in table):
        pairs = enumerate(table)
    else:
        yield path, table
        return
    for key, value in pairs:
        yield from flat(value, f"{path}.{key}" if path else str(key))


def cells(spec: ExperimentSpec) -> Iterator[Cell]:
    """Every policy at every point of the grid; a path into one policy multiplies only that one."""
    axes = [_Axis.of(spec, path, values) for path, values in spec.grid.items()]
    for label in spec.policies:
        mine = [axis for axis in axes if axis.label in (None, label)]
        for values in product(*(axis.values for axis in mine)):
            changed = spec
            for axis, value in zip(mine, values, strict=True):
                changed = axis.put(changed, value)
            chosen = {axis.column: value for axis, value in zip(mine, values, strict=True)}
            yield Cell(label, RunSettings.of(changed, changed.policies[label]), chosen)


@dataclass(frozen=True)
class _Axis:
    """One line of the grid: where its values go."""

    path: str
    field: str  # of the spec
    label: str | None  # of the policy, where it is one's
    keys: tuple[str, ...]  # inside the table
    values: list[Any]

    @classmethod
    def of(cls, spec: ExperimentSpec, path: str, values: list[Any]) -> _Axis:
        field, _, rest = path.partition(".")
        label = None
        if field == "policies":
            # A label may hold dots: the longest that fits is meant.
            fits = [name for name in spec.policies if rest.startswith(f"{name}.")]
            if not fits:
                raise InvalidInput(
                    f"grid.{path} leads to no policy; "
                    + did_you_mean(rest.partition(".")[0], spec.policies)
                )
            label = max(fits, key=len)
            rest = rest.removeprefix(f"{label}.")
        elif field not in ("environment", "objective", "options"):
            raise InvalidInput(
                f"grid.{path} leads to no table; a path begins with environment, objective, "
                "policies or options"
            )
        if not rest:
            raise InvalidInput(f"grid.{path} names a table; name one of its parameters")
        texts = [canonical(value) for value in values]
        for i, text in enumerate(texts):
            if text in texts[:i]:
                raise InvalidInput(f"grid.{path} has {shown(values[i])} twice; leave out one")
        axis = cls(path, field, label, tuple(rest.split(".")), values)
        axis.put(spec, values[0])  # a path that leads nowhere raises now
        return axis

    @property
    def column(self) -> str:
        """The name of the parameter in the results."""
        head = "policy" if self.field == "policies" else self.field
        return ".".join((head, *self.keys))

    def put(self, spec: ExperimentSpec, value: Any) -> ExperimentSpec:
        """The spec with that value at the end of the path; its last part may be new."""
        top = deepcopy(getattr(spec, self.field))
        if top is None:
            raise InvalidInput(f"grid.{self.path} leads nowhere: the spec has no {self.field}")
        if isinstance(top, str):
            raise InvalidInput(
                f"grid.{self.path} leads nowhere: {self.field} is the text {shown(top)}; give it "
                "as a table, whose parameters a grid can change"
            )
        place: Any = top if self.label is None else top[self.label]
        for i, key in enumerate(self.keys):
            last = i == len(self.keys) - 1
            if isinstance(place, list):
                if not (key.isdecimal() and int(key) < len(place)):
                    raise InvalidInput(
                        f"grid.{self.path} leads nowhere: {key!r} is not a place in a list of "
                        f"{len(place)}, counted from 0"
                    )
                here: Any = int(key)
            elif isinstance(place, dict):
                if not last and key not in place:
                    raise InvalidInput(
                        f"grid.{self.path} leads nowhere: there is no {key!r}; "
                        + did_you_mean(key, place)
                    )
                here = key
            else:
                raise InvalidInput(
                    f"grid.{self.path} leads nowhere: {self.keys[i - 1]!r} is {shown(place)}, "
                    "which has no parameters"
                )
            if last:
                place[here] = value
            else:
                place = place[here]
        return msgspec.structs.replace(spec, **{self.field: top})


class Run(msgspec.Struct, frozen=True):
    """RunSettings and a seed, from which every number of the run follows; a label for people."""

    label: str
    settings: RunSettings
    seed: int

    @property
    def id(self) -> str:
        """The hash of the settings, and the seed: the name of its file."""
        return f"{self.settings.id}-{self.seed}"


@dataclass(frozen=True)
class Experiment:
    """A spec, the text that it was read from, and every policy at every point of its grid."""

    spec: ExperimentSpec
    text: str

    @classmethod
    def of(cls, text: str) -> Experiment:
        """The experiment of a TOML text; nothing is built."""
        return cls(parse(text), text)

    @property
    def name(self) -> str:
        """What it is called."""
        return self.spec.name

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Every policy at every point of the grid."""
        return tuple(cells(self.spec))

    @property
    def id(self) -> str:
        """The hash of the whole, whatever the order of its keys."""
        text = canonical(msgspec.to_builtins(self.spec))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def runs(self, seeds: Iterable[int] | None = None) -> tuple[Run, ...]:
        """All runs; seeds first, so that what is done early compares every policy.

        Two labels with the same settings share their runs.
        """
        chosen = self.spec.numbers() if seeds is None else tuple(seeds)
        different = {cell.settings.id: cell for cell in reversed(self.cells)}
        order = [cell for cell in self.cells if different[cell.settings.id] is cell]
        return tuple(Run(cell.label, cell.settings, seed) for seed in chosen for cell in order)

    def check(self) -> Experiment:
        """Build every object and try every policy on its world; InvalidInput where one cannot."""
        _ = self._checked
        return self

    @cached_property
    def _checked(self) -> bool:
        from fairwolfe.lab.play import checked

        # Cells of one world come together, so that it is built once.
        for cell in sorted(self.cells, key=lambda cell: canonical(cell.settings.environment)):
            checked(cell)
        return True


def load(path: str | os.PathLike[str]) -> Experiment:
    """The experiment in a TOML file, checked: whatever is wrong with it raises now.

    Classes can be named as "module:Class" too; they must be importable.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInput(f"{file} cannot be read: {what}; give a TOML file") from error
    try:
        return Experiment.of(text).check()
    except FairwolfeError as error:
        kind: Any = type(error)
        raise kind(f"{file}: {error}") from error
