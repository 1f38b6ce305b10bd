"""From a spec to the settings of its runs: the grid written out, as data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from typing import Any

import msgspec

from fairwolfe.errors import InvalidInput, did_you_mean
from fairwolfe.lab.spec import Spec, canonical, shown

__all__ = ["Cell", "Settings", "cells", "flat"]


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that a run depends on but its seed. No label: a name changes no number.

    `objective` is what is measured. A policy that takes an objective and states none follows it;
    one that states the same is written as if it stated none.
    """

    environment: dict[str, Any]
    policy: dict[str, Any]
    horizon: int
    objective: dict[str, Any] | None = None
    checkpoints: list[int] | None = None
    options: dict[str, Any] = {}

    @classmethod
    def of(cls, spec: Spec, policy: dict[str, Any]) -> Settings:
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
        tables = {"environment": self.environment, "policy": self.policy, "options": self.options}
        if self.objective is not None:
            tables["objective"] = self.objective
        return dict(flat(tables))


@dataclass(frozen=True)
class Cell:
    """One policy at one point of the grid: its label, its settings, and what the grid chose."""

    label: str
    settings: Settings
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


def cells(spec: Spec) -> tuple[Cell, ...]:
    """Every policy at every point of the grid; a path into one policy multiplies only that one."""
    axes = [_Axis.of(spec, path, values) for path, values in spec.grid.items()]
    return tuple(_written_out(spec, axes))


def _written_out(spec: Spec, axes: list[_Axis]) -> Iterator[Cell]:
    for label in spec.policies:
        mine = [axis for axis in axes if axis.label in (None, label)]
        for values in product(*(axis.values for axis in mine)):
            changed = spec
            for axis, value in zip(mine, values, strict=True):
                changed = axis.put(changed, value)
            chosen = {axis.column: value for axis, value in zip(mine, values, strict=True)}
            yield Cell(label, Settings.of(changed, changed.policies[label]), chosen)


@dataclass(frozen=True)
class _Axis:
    """One line of the grid: where its values go."""

    path: str
    field: str  # of the spec
    label: str | None  # of the policy, where it is one's
    keys: tuple[str, ...]  # inside the table
    values: list[Any]

    @classmethod
    def of(cls, spec: Spec, path: str, values: list[Any]) -> _Axis:
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

    def put(self, spec: Spec, value: Any) -> Spec:
        """The spec with that value at the end of the path; its last part may be new."""
        top = deepcopy(getattr(spec, self.field))
        if top is None:
            raise InvalidInput(f"grid.{self.path} leads nowhere: the spec has no {self.field}")
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
