"""Logs of other formats as columns: CSV, Parquet, JSON lines, dsjson of Vowpal Wabbit, OBP."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from fairwolfe.agent.log_format import is_decisions, read
from fairwolfe.core.arrays import Matrix
from fairwolfe.core.problem import Problem
from fairwolfe.environments.plays import NOT_UTF8, is_utf8
from fairwolfe.environments.read_table import (
    kind_of,
    parquet_file,
    text_header,
    text_rows,
)
from fairwolfe.errors import InvalidInput
from fairwolfe.offpolicy.reading import Columns, Data, assembled, read_rows, read_table


def read_file(path: str | os.PathLike[str], problem: Problem | None, **options: Any) -> Data:
    """A log of an agent, an export of a service, or a table without a header of ours."""
    name = os.fspath(path)
    kind = kind_of(name)
    if is_decisions(name):
        header, parts = read(name)
        return assembled(header.problem if problem is None else problem, parts, header, name)
    with open(name, "rb") as file:
        labelled = b'"_label' in file.readline(1 << 20)
    if name.endswith((".dsjson", ".json")) or labelled:
        return read_dsjson(name, problem, **options)
    if options:
        raise InvalidInput(f"{', '.join(options)}: only for a path of dsjson, and {name} is not")
    if name.endswith((".jsonl", ".ndjson")):
        return read_rows([row for _, row in _json_lines(name)], problem)
    if kind != "parquet":
        return read_table(_csv_columns(name), problem, name)
    with parquet_file(name) as table:
        columns = table.read().to_pydict()
    return read_table(columns, problem, name)


def _csv_columns(path: str) -> Columns:
    """Cells are numbers, texts, or lists written as JSON; empty cells are None."""
    separator, titles = text_header(path)
    rows = []
    for line, row in text_rows(path, separator, len(titles)):
        if not is_utf8(*row):
            raise InvalidInput(f"{path}, line {line}: {NOT_UTF8}")
        rows.append([_cell(path, line, cell.strip()) for cell in row])
    if not rows:
        raise InvalidInput(f"{path} has no rows; give a header and at least one decision")
    return dict(zip(titles, zip(*rows, strict=True), strict=True))


def _cell(path: str, line: int, text: str) -> Any:
    if not text:
        return None
    if text[0] == "[":
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise InvalidInput(
                f"{path}, line {line}: {text[:40]!r} is not a list: {error}"
            ) from error
    try:
        return float(text)
    except ValueError:
        return text


def _json_lines(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            event = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            if number == len(lines):
                warnings.warn(
                    f"{path}, line {number}: the last line is incomplete, and is left out",
                    stacklevel=2,
                )
                return
            raise InvalidInput(
                f"{path}, line {number}: the line is incomplete or not JSON ({error}); remove it, "
                "or restore the file"
            ) from error
        if not isinstance(event, dict):
            raise InvalidInput(f"{path}, line {number}: {line[:40]!r} is not an event of dsjson")
        yield number, event


def read_dsjson(
    path: str,
    problem: Problem | None,
    reward: Callable[[dict[str, Any]], Mapping[str, float]] | None = None,
) -> Data:
    """Vowpal Wabbit's decision-service JSON: `_label_cost`, `_label_probability`, `_labelIndex` (or
    `_labelAction`), `a`, `p`, and features under `c` with those of the actions under `_multi`.

    The reward is -cost under the name "reward"; other rewards by a function of the line. Features
    are by name: the shared ones, then those of the action, which are called a.<name>.
    """
    contexts: list[list[dict[str, float]]] = []
    chances, actions, spreads = [], [], []
    earned: list[Mapping[str, float]] = []
    for line, event in _json_lines(path):
        # Without a cost: an outcome that came apart, or a comment.
        if "_label_cost" not in event or event.get("_skipLearn"):
            continue
        where = f"{path}, line {line}"
        try:
            listed, probabilities = list(event["a"]), list(event["p"])
            index = event.get("_labelIndex", listed[0] - 1)
            chance = event.get("_label_probability", event.get("_label_Probability", math.nan))
            chances.append(float(chance))
            cost = float(event["_label_cost"])
            arms = event["c"]["_multi"]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InvalidInput(
                f"{where}: {type(error).__name__} {error}: a line of dsjson has _label_cost, "
                "_label_probability, a, p and c with _multi"
            ) from error
        own = dict(_flat("", event["c"]))
        contexts.append([own | dict(_flat("a.", arm)) for arm in arms])
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
        earned.append({"reward": -cost} if reward is None else dict(reward(event)))
    if not contexts:
        raise InvalidInput(f"{path} has no decisions; give lines of dsjson")
    used = dict.fromkeys(name for context in contexts for arm in context for name in arm)
    columns: Columns = {
        "context": [_matrix(context, list(used)) for context in contexts],
        "action": np.array(actions),
        "probability": np.array(chances),
        "probabilities": spreads,
        **{f"reward.{name}": [one.get(name) for one in earned] for name in earned[0]},
    }
    return read_table(columns, problem, path)


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


def _matrix(context: list[dict[str, float]], names: list[str]) -> Matrix:
    """The features (arms, d) of a context, d >= 1; a feature that an arm does not have is 0."""
    return np.array([[arm.get(name, 0.0) for name in names or [""]] for arm in context])


def read_obp(
    feedback: Mapping[str, Any], problem: Problem | None, position: int | None = None
) -> Data:
    """OBP's bandit_feedback: context, action, reward, pscore, n_actions, position."""
    try:
        actions, n_arms = np.asarray(feedback["action"]), int(feedback["n_actions"])
        rewards = np.asarray(feedback["reward"], dtype=np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"the mapping is not a bandit_feedback of OBP: {error}; it has action, reward, pscore, "
            "n_actions and context"
        ) from error
    used = np.ones(len(actions), dtype=bool)
    if feedback.get("position") is not None:
        places = np.asarray(feedback["position"])
        if position is None and np.unique(places).size > 1:
            raise InvalidInput(
                f"the feedback has positions {np.unique(places).tolist()}; choose one: "
                "Log.of(feedback, position=0)"
            )
        used = places == (places[0] if position is None else position)
        if not used.any():
            raise InvalidInput(f"no decision has position {position}")
    columns: Columns = {"action": actions[used], "reward.reward": rewards[used]}
    for name, given in (("probability", "pscore"), ("features", "context")):
        if feedback.get(given) is not None:
            columns[name] = np.asarray(feedback[given], dtype=np.float64)[used]
    if feedback.get("pi_b") is not None:
        columns["probabilities"] = np.asarray(feedback["pi_b"], dtype=np.float64)[used][..., 0]
    if problem is None:
        ranges = {"reward": (min(0.0, float(rewards.min())), max(1.0, float(rewards.max())))}
        d = columns["features"].shape[1] if "features" in columns else 1
        problem = Problem.arms(d, ranges, n_arms=n_arms)
    return assembled(problem, [columns], None, "the feedback")
