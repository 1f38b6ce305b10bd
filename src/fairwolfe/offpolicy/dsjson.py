"""Vowpal Wabbit's decision-service JSON: one event on a line."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Matrix
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput
from fairwolfe.offpolicy.decisions import Choices
from fairwolfe.offpolicy.reading import json_lines, read_table

__all__ = ["is_dsjson", "read_dsjson"]


def is_dsjson(path: str) -> bool:
    with open(path, "rb") as file:
        return b'"_label' in file.readline(1 << 20)


def read_dsjson(
    path: str | os.PathLike[str],
    problem: Problem | None,
    reward: Callable[[dict[str, Any]], Mapping[str, float]] | None = None,
) -> Choices:
    """Vowpal Wabbit's decision-service JSON: `_label_cost`, `_label_probability`, `_labelIndex` (or
    `_labelAction`), `a`, `p`, and features under `c` with those of the actions under `_multi`.

    The reward is -cost under the name "reward"; other rewards by a function of the line. Features
    are by name: the shared ones, then those of the action, which are called a.<name>.
    """
    rows, chances, actions, spreads = [], [], [], []
    names: dict[str, int] = {}
    earned: list[Mapping[str, float]] = []
    for line, event in json_lines(path):
        if "_label_cost" not in event:  # an outcome that came apart, or a comment
            continue
        where = f"{os.fspath(path)}, line {line}"
        try:
            if event.get("_skipLearn"):
                continue
            listed, probabilities = list(event["a"]), list(event["p"])
            index = event.get("_labelIndex", listed[0] - 1)
            chance = float(
                event.get("_label_probability", event.get("_label_Probability", math.nan))
            )
            cost = float(event.get("_label_cost", math.nan))
            context = event["c"]
            arms = context["_multi"]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InvalidInput(
                f"{where}: {type(error).__name__} {error}: a line of dsjson has _label_cost, "
                "_label_probability, a, p and c with _multi"
            ) from error
        shared = {key: value for key, value in context.items() if key != "_multi"}
        own = dict(_flat("", shared))
        rows.append([{**own, **dict(_flat("a.", arm))} for arm in arms])
        for arm in rows[-1]:
            for name in arm:
                names.setdefault(name, len(names))
        spread = np.zeros(len(arms))
        try:
            spread[np.array(listed, dtype=np.int64) - 1] = probabilities
        except (IndexError, ValueError) as error:
            raise InvalidInput(
                f"{where}: there are {len(arms)} actions, and a is {listed!s:.40} with p "
                f"{probabilities!s:.40}"
            ) from error
        if not 0 <= index < len(arms):
            raise InvalidInput(f"{where}: _labelIndex is {index} of {len(arms)} actions")
        spreads.append(spread)
        actions.append(int(index))
        chances.append(chance)
        earned.append({"reward": -cost} if reward is None else dict(reward(event)))
    if not rows:
        raise InvalidInput(f"{path} has no decisions; give lines of dsjson")
    columns: dict[str, Any] = {
        "context": [_matrix(row, names) for row in rows],
        "action": np.array(actions),
        "probability": np.array(chances),
        "probabilities": spreads,
        **{f"reward.{name}": [one.get(name) for one in earned] for name in earned[0]},
    }
    choices = read_table(columns, problem, os.fspath(path))
    assert isinstance(choices, Choices)
    return choices


def _flat(prefix: str, given: Any) -> Iterator[tuple[str, float]]:
    """Features by name: numbers as they are, texts and members of lists as indicators."""
    if isinstance(given, Mapping):
        for key, value in given.items():
            if not str(key).startswith("_"):
                yield from _flat(f"{prefix}{key}.", value)
    elif isinstance(given, (int, float)):
        yield prefix[:-1], float(given)
    elif isinstance(given, str):
        yield f"{prefix[:-1]}={given}", 1.0
    elif isinstance(given, list):
        for i, value in enumerate(given):
            inner = prefix if isinstance(value, Mapping) else f"{prefix}{i}."
            yield from _flat(inner, value)


def _matrix(row: list[dict[str, float]], names: Mapping[str, int]) -> Matrix:
    out = np.zeros((len(row), max(len(names), 1)))
    for a, features in enumerate(row):
        for name, value in features.items():
            out[a, names[name]] = value
    return out
