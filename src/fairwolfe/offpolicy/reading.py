"""Tables and rows of logged decisions as arrays, checked where they enter."""

from __future__ import annotations

import csv
import math
import os
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import msgspec
import numpy as np

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.contexts import Bilinear, PerArm
from fairwolfe.core.decision import Decision
from fairwolfe.core.feedback import Shown
from fairwolfe.core.frames import is_frame, opened
from fairwolfe.core.problem import Problem, real_array
from fairwolfe.data.decisions import Header
from fairwolfe.errors import InvalidInput, did_you_mean, require_extra
from fairwolfe.offpolicy.decisions import CHUNK, COLUMNS, Choices, Part, Rankings, padded

__all__ = ["assembled", "csv_columns", "json_lines", "parquet_columns", "read_rows", "read_table"]

_REWARD = "reward."
_FEATURE = "feature."
_BY_NUMBER = ("context", "arms", "candidates", "probabilities")  # columns of arms by number
_LISTS = (*_BY_NUMBER, "names", "user", "features", "items", "pinned", "ranking", "exposed")
Columns = dict[str, Any]
Data = Choices | Rankings


def read_table(table: Any, problem: Problem | None, source: str = "the table") -> Data:
    """A mapping of columns, or a table of pandas, polars or Arrow through narwhals."""
    columns = dict(table) if isinstance(table, Mapping) else _narwhals(table)
    if not columns or not len(next(iter(columns.values()))):
        raise InvalidInput(f"{source} has no rows; give at least one decision")
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise InvalidInput(
            f"{source} has columns of the lengths {sorted(lengths)}; give equal ones"
        )
    columns = {name: _without_nan(name, column) for name, column in columns.items()}
    arms = _named_actions(columns, source)
    stated = _guessed(columns, source) if problem is None else problem
    if arms is not None and stated.n_arms is not None and len(arms) > stated.n_arms:
        raise InvalidInput(
            f"{source} has {len(arms)} different actions ({', '.join(arms):.80}), and the problem "
            f"{stated.n_arms} arms; give a problem with n_arms={len(arms)}"
        )
    data = assembled(stated, [columns], None, source)
    return replace(data, arms=arms) if isinstance(data, Choices) else data


def _without_nan(name: str, column: Any) -> Any:
    """A column of lists, with None where pandas has NaN for a missing one."""
    if name not in _LISTS or isinstance(column, np.ndarray):
        return column
    return [None if isinstance(one, float) and math.isnan(one) else one for one in column]


def _named_actions(columns: Columns, source: str) -> tuple[str, ...] | None:
    """Replace actions that are texts by numbers, in place: by the place in the row's `names`, or
    else in the order of the alphabet. The names by number; None where there are none.
    """
    actions = list(columns.get("action", ()))
    if not any(isinstance(one, str) for one in actions):
        return None
    for i, one in enumerate(actions):
        if isinstance(one, str) != isinstance(actions[0], str):
            wanted = "text" if isinstance(actions[0], str) else "number"
            raise InvalidInput(
                f"{source}, row {i + 1}: action is {one!r:.40}; give a {wanted}, as in row 1"
            )
    if _has(columns, "names"):
        columns["action"] = [
            _place(one, names, f"{source}, row {i + 1}")
            for i, (one, names) in enumerate(zip(actions, columns["names"], strict=True))
        ]
        return None
    by_number = [name for name in _BY_NUMBER if _has(columns, name)]
    if by_number:
        raise InvalidInput(
            f"{source} has actions as texts, and {by_number[0]} by the number of the arm; add a "
            "column names with the names of the arms of each row, or give actions as numbers"
        )
    arms = tuple(sorted(set(actions)))
    numbers = {name: i for i, name in enumerate(arms)}
    columns["action"] = np.array([numbers[one] for one in actions])
    return arms


def _place(name: str, names: Any, where: str) -> int:
    listed = [] if names is None else list(names)
    if name not in listed:
        raise InvalidInput(f"{where}: action is {name!r:.40}; {did_you_mean(name, listed)}")
    return listed.index(name)


def _narwhals(table: Any) -> Columns:
    if not is_frame(table):
        raise InvalidInput(
            f"a log cannot be read from a {type(table).__name__}; give a path, a table, rows of "
            "decisions, or OBP's bandit_feedback"
        )
    frame = opened(table)
    return {name: frame[name].to_list() for name in frame.columns}


def parquet_columns(path: str) -> Columns:
    require_extra("parquet", "a log in Parquet")
    import pyarrow
    from pyarrow import parquet

    try:
        return dict(parquet.read_table(path).to_pydict())
    except (pyarrow.ArrowException, OSError) as error:
        raise InvalidInput(f"{path} cannot be read as Parquet: {error}") from error


def csv_columns(path: str) -> Columns:
    """Cells are numbers, texts, or lists written as JSON; empty cells are None."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        try:
            reader = csv.reader(file)
            titles = [title.strip() for title in next(reader, [])]
            rows = []
            for row in reader:
                if row and len(row) != len(titles):
                    raise InvalidInput(
                        f"{path}, line {reader.line_num}: there are {len(row)} cells, and the "
                        f"header has {len(titles)}; give one for each column"
                    )
                if row:
                    rows.append([_cell(path, reader.line_num, cell) for cell in row])
        except (UnicodeDecodeError, csv.Error) as error:
            raise InvalidInput(f"{path} cannot be read as CSV: {error}") from error
    if not rows:
        raise InvalidInput(f"{path} has no rows; give a header and at least one decision")
    return {title: [row[i] for row in rows] for i, title in enumerate(titles)}


def _cell(path: str, line: int, text: str) -> Any:
    stripped = text.strip()
    if not stripped:
        return None
    if stripped[0] == "[":
        try:
            return msgspec.json.decode(stripped)
        except msgspec.DecodeError as error:
            raise InvalidInput(
                f"{path}, line {line}: {stripped[:40]!r} is not a list: {error}"
            ) from error
    try:
        return float(stripped)
    except ValueError:
        return stripped


# --- columns to arrays ----------------------------------------------------------------------


def _guessed(columns: Columns, source: str) -> Problem:
    """The problem of a table that does not say it: sizes and ranges are those of the data."""
    names = [name[len(_REWARD) :] for name in columns if name.startswith(_REWARD)]
    if not names:
        known = did_you_mean("reward.clicks", columns)
        raise InvalidInput(
            f"{source} has no reward: name the columns reward.<name>, such as reward.clicks; "
            f"{known}"
        )
    if "ranking" in columns:
        raise InvalidInput(
            f"{source} has rankings, and does not say of how many items and slots; give problem="
        )
    ranges = {}
    for name in names:
        values = _numbers(columns[f"{_REWARD}{name}"], f"{_REWARD}{name}", source)
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        ranges[name] = (min(low, 0.0), max(high, 1.0))
    if "action" not in columns:
        raise InvalidInput(f"{source} has no column action; {did_you_mean('action', columns)}")
    arms = 1 + int(np.max(_whole(columns["action"], "action", source)))
    if _has(columns, "probabilities"):
        arms = max(arms, *(len(row) for row in columns["probabilities"] if row is not None))
    shared = [name for name in columns if name.startswith(_FEATURE)]
    if shared or "features" in columns:
        width = len(shared) or len(_first(columns["features"]))
        return Problem.arms(width, ranges, n_arms=arms)
    if "context" in columns:
        return Problem.arms(len(_first(_first(columns["context"]))), ranges)
    if "arms" in columns and "user" in columns:
        pair = (len(_first(columns["user"])), len(_first(_first(columns["arms"]))))
        return Problem.arms(pair, ranges)
    return Problem.arms(1, ranges, n_arms=arms)


def _first(column: Any) -> Any:
    for one in column:
        if one is not None:
            return one
    raise InvalidInput("a column of features is empty; give features in every row")


def assembled(
    problem: Problem, parts: Iterable[Columns], header: Header | None, source: str
) -> Data:
    chunks: list[Data] = []
    start = 0
    for columns in parts:
        _refuse_misspelt(columns, Header(problem).column_names(), source)
        count = len(next(iter(columns.values())))
        for first in range(0, count, CHUNK):
            own = {name: column[first : first + CHUNK] for name, column in columns.items()}
            where = _Where(source, start)
            if problem.kind == "ranking":
                chunks.append(_rankings(problem, own, header, where))
            else:
                chunks.append(_choices(problem, own, header, where))
            start += len(next(iter(own.values())))
    if not chunks:
        raise InvalidInput(f"{source} has no decisions; give at least one")
    joined: Data = _joined(chunks)
    return _as_wide(joined) if isinstance(joined, Choices) else joined


def _refuse_misspelt(columns: Columns, known: Sequence[str], source: str) -> None:
    """A column with nearly the name of another is a mistake; all other extra ones are not read."""
    for name in columns:
        if name in known or name.startswith((_REWARD, _FEATURE)):
            continue
        like = name.lower().strip()
        near = get_close_matches(like, [one for one in known if one not in columns], 1, 0.8)
        for prefix in (_REWARD, _FEATURE):
            if like.startswith((prefix[:-1], prefix[:-1] + "s")) and like != prefix[:-1] + "s":
                near = [f"{prefix}<name>"]
        if near:
            raise InvalidInput(
                f"{source} has a column {name!r:.40}, which is not read; did you mean {near[0]!r}? "
                "Rename it, or leave it out"
            )


def _as_wide(choices: Choices) -> Choices:
    """Parts without contexts have the arms of all parts."""
    if choices.problem.n_arms is not None:
        return choices
    most = max(part.n_arms for part in choices.parts)
    parts = [replace(p, n_arms=most) if p.features is None else p for p in choices.parts]
    return replace(choices, parts=tuple(parts))


class _Where:
    """What rows are called in errors."""

    def __init__(self, source: str, start: int) -> None:
        self.source, self.start = source, start

    def row(self, i: int) -> str:
        return f"{self.source}, row {self.start + i + 1}"


def _joined(chunks: Sequence[Any]) -> Any:
    head = chunks[0]
    if len(chunks) == 1:
        return head
    if isinstance(head, Rankings):
        joined: dict[str, Any] = {}
        for name in COLUMNS:
            column = [getattr(one, name) for one in chunks]
            if any(one is None for one in column):
                if name == "candidates" and not all(one is None for one in column):
                    m = head.problem.n_items or 0
                    full = [np.ones((one.n, m), dtype=bool) for one in chunks]
                    pairs = zip(column, full, strict=True)
                    joined[name] = np.concatenate([b if a is None else a for a, b in pairs])
                else:
                    joined[name] = None
            else:
                joined[name] = np.concatenate(column)
        return Rankings(head.problem, items=head.items, **joined)
    names = ("actions", "probability", "rewards", "numbers", "agents")
    columns: Any = [np.concatenate([getattr(one, name) for one in chunks]) for name in names]
    columns.append(tuple(one for each in chunks for one in each.distribution))
    columns.append(head.arms)
    parts = tuple(part for one in chunks for part in one.parts)
    return Choices(head.problem, parts, *columns)


def _numbers(column: Any, name: str, source: Any) -> Vector:
    """Numbers, NaN for None."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "fiub":
        return column.astype(np.float64)
    out = np.empty(len(column))
    for i, one in enumerate(column):
        if one is None:
            out[i] = math.nan
        elif isinstance(one, (int, float, np.number)) and not isinstance(one, complex):
            out[i] = one
        else:
            where = source.row(i) if isinstance(source, _Where) else f"{source}, row {i + 1}"
            raise InvalidInput(f"{where}: {name} is {one!r:.60}; give a number")
    return out


def _whole(column: Any, name: str, source: Any) -> IntVector:
    values = _numbers(column, name, source)
    bad = np.flatnonzero(~(np.isfinite(values) & (values == np.floor(values)) & (values >= 0)))
    if bad.size:
        i = int(bad[0])
        where = source.row(i) if isinstance(source, _Where) else f"{source}, row {i + 1}"
        raise InvalidInput(f"{where}: {name} is {column[i]!r:.60}; give a whole number from 0 on")
    return values.astype(np.int64)


def _has(columns: Columns, name: str) -> bool:
    column = columns.get(name)
    if column is None:
        return False
    return isinstance(column, np.ndarray) or any(one is not None for one in column)


def _choices(problem: Problem, columns: Columns, header: Header | None, where: _Where) -> Choices:
    rewards = _rewards(problem, columns, where)
    count = len(rewards)
    if not _has(columns, "action"):
        raise InvalidInput(
            f"{where.source} has no column action; {did_you_mean('action', columns)}"
        )
    actions = _whole(columns["action"], "action", where)
    part, known = _part(problem, columns, count, where)
    if part.n_arms == 0:  # nothing says how many there were: as many as were chosen
        part = replace(part, n_arms=int(actions.max()) + 1)
    beyond = np.flatnonzero(actions >= part.n_arms)
    allowed = part.allowed()
    if not beyond.size:
        beyond = np.flatnonzero(~allowed[np.arange(count), actions])
    if beyond.size:
        i = int(beyond[0])
        arms = np.flatnonzero(allowed[i]).tolist()
        raise InvalidInput(
            f"{where.row(i)}: action is {actions[i]}, and the arms that could be chosen are "
            f"{arms!s:.60}; give the number of one of them"
        )
    numbers, agents = _places(columns, count, where)
    chance = _chances(columns, count, where)
    names = None if header is None else header.arms
    return Choices(problem, (part,), actions, chance, rewards, numbers, agents, (known,), names)


def _rewards(problem: Problem, columns: Columns, where: _Where) -> Matrix:
    rewards = []
    for name in problem.rewards:
        if not _has(columns, f"{_REWARD}{name}"):
            known = [one for one in columns if one.startswith(_REWARD)]
            near = did_you_mean(f"{_REWARD}{name}", known)
            raise InvalidInput(f"{where.source} has no column {_REWARD}{name}; {near}")
        values = _numbers(columns[f"{_REWARD}{name}"], f"{_REWARD}{name}", where)
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            raise InvalidInput(
                f"{where.row(int(bad[0]))}: {_REWARD}{name} is {values[bad[0]]}; the table has "
                "decisions with their whole feedback only, so leave the row out or give a number"
            )
        rewards.append(values)
    return np.column_stack(rewards)


def _chances(columns: Columns, count: int, where: _Where) -> Vector:
    """Probabilities as they are; what is wrong with them is for `Log.check` and estimates."""
    if not _has(columns, "probability"):
        return np.full(count, math.nan)
    return _numbers(columns["probability"], "probability", where)


def _places(columns: Columns, count: int, where: _Where) -> tuple[IntVector, IntVector]:
    numbers = np.full(count, -1, dtype=np.int64)
    if _has(columns, "number"):
        numbers = _whole(columns["number"], "number", where)
    agents = np.zeros(count, dtype=np.int64)
    if _has(columns, "id"):
        tokens = [str(one).rpartition("-")[0] for one in columns["id"]]
        # A check sum instead of its own number: parts of a table come one by one.
        agents = np.array([zlib.crc32(token.encode()) for token in tokens], dtype=np.int64)
    return numbers, agents


def _part(
    problem: Problem, columns: Columns, count: int, where: _Where
) -> tuple[Part, Matrix | None]:
    features, mask, per_arm = _features(problem, columns, count, where)
    n_arms = problem.n_arms or (0 if features is None else features.shape[1])
    rows = columns.get("probabilities") if _has(columns, "probabilities") else None
    if n_arms == 0 and rows is not None:
        n_arms = max(len(row) for row in rows if row is not None)
    if _has(columns, "candidates"):
        listed = np.zeros((count, n_arms), dtype=bool)
        for i, some in enumerate(columns["candidates"]):
            listed[i, slice(None) if some is None else np.asarray(some, dtype=np.int64)] = True
        mask = listed if mask is None else listed & mask
    known = None
    if rows is not None:
        known = np.full((count, n_arms), math.nan)
        for i, row in enumerate(rows):
            if row is not None:
                given = real_array(f"{where.row(i)}: probabilities", row)
                if given.ndim != 1 or given.size > n_arms:
                    raise InvalidInput(
                        f"{where.row(i)}: probabilities have shape {given.shape}; give one for "
                        f"each of {n_arms} arms"
                    )
                known[i, : given.size] = given
                known[i, given.size :] = 0.0
    return Part(count, n_arms, features, mask, per_arm), known


def _features(
    problem: Problem, columns: Columns, count: int, where: _Where
) -> tuple[Cube | None, Any, bool]:
    d = problem.dimension
    if problem.n_arms is not None:
        shared = [name for name in columns if name.startswith(_FEATURE)]
        if shared:
            flat = np.column_stack([_numbers(columns[name], name, where) for name in shared])
            return _finite(flat, where)[:, None, :], None, True
        if _has(columns, "features"):
            rows = _equal(columns["features"], d, "features", where)
            return rows[:, None, :], None, True
        return None, None, False
    if _has(columns, "context"):
        return *_contexts(columns["context"], d, where), False
    if _has(columns, "arms") and _has(columns, "user"):
        pairs = zip(columns["user"], columns["arms"], strict=True)
        return *_contexts([Bilinear(*pair).flat() for pair in pairs], d, where), False
    return None, None, False


def _finite(rows: Any, where: _Where) -> Any:
    if not np.isfinite(rows).all():
        i = int(np.argwhere(~np.isfinite(rows))[0][0])
        raise InvalidInput(f"{where.row(i)}: a feature is missing or not finite; give numbers only")
    return rows


def _equal(column: Any, d: int, name: str, where: _Where) -> Matrix:
    if isinstance(column, np.ndarray) and column.ndim == 2 and column.shape[1] == d:
        return np.asarray(_finite(column.astype(np.float64), where))
    rows = np.empty((len(column), d))
    for i, one in enumerate(column):
        row = real_array(f"{where.row(i)}: {name}", [] if one is None else one)
        if row.shape != (d,):
            raise InvalidInput(f"{where.row(i)}: {name} has shape {row.shape}; give {d} numbers")
        rows[i] = row
    return np.asarray(_finite(rows, where))


def _contexts(column: Any, d: int, where: _Where) -> tuple[Cube, Any]:
    if isinstance(column, np.ndarray) and column.ndim == 3 and column.shape[2] == d:
        return _finite(column.astype(np.float64, copy=False), where), None
    rows = []
    for i, one in enumerate(column):
        if one is None:
            raise InvalidInput(
                f"{where.row(i)}: there is no context, and other rows have one; leave such rows "
                "out, if that does not depend on their outcome"
            )
        given = list(one) if isinstance(one, np.ndarray) and one.dtype == object else one
        row = real_array(f"{where.row(i)}: the context", given)
        if row.ndim != 2 or row.shape[1] != d or not len(row):
            raise InvalidInput(
                f"{where.row(i)}: the context has shape {row.shape}; give (arms, {d}) numbers"
            )
        rows.append(row)
    features, mask = padded(rows, d)
    return _finite(features, where), mask


# --- rankings -------------------------------------------------------------------------------


def _rankings(problem: Problem, columns: Columns, header: Header | None, where: _Where) -> Rankings:
    m, k = problem.n_items or 0, problem.n_slots or 0
    keys = None if header is None or header.keys is None else header.keys
    numbers_of = {key: i for i, key in enumerate(keys or ())}

    def ids(values: Any, i: int, what: str) -> IntVector:
        listed = [numbers_of.get(one, one) for one in values]
        good = all(isinstance(x, (int, np.integer)) and 0 <= x < m for x in listed)
        if not good or len(set(listed)) < len(listed):
            raise InvalidInput(
                f"{where.row(i)}: {what} is {values!s:.80}; give different items from 0 to "
                f"{m - 1}, or their keys"
            )
        return np.array(listed, dtype=np.int64)

    if not _has(columns, "ranking"):
        raise InvalidInput(
            f"{where.source} has no column ranking; {did_you_mean('ranking', columns)}"
        )
    count = len(columns["ranking"])
    shown = np.empty((count, k), dtype=np.int64)
    for i, row in enumerate(columns["ranking"]):
        ranking = ids([] if row is None else list(row), i, "ranking")
        if ranking.size != k:
            raise InvalidInput(f"{where.row(i)}: ranking has {ranking.size} items for {k} slots")
        shown[i] = ranking
    rewards = np.stack(
        [_slots(columns, f"{_REWARD}{name}", count, k, where) for name in problem.rewards], axis=2
    )
    exposed = _slots(columns, "exposed", count, k, where)
    if not np.isin(exposed, (0.0, 1.0)).all():
        i = int(np.argwhere(~np.isin(exposed, (0.0, 1.0)))[0][0])
        raise InvalidInput(f"{where.row(i)}: exposed is {exposed[i].tolist()}; give 0 or 1 by slot")
    users = None
    if _has(columns, "user"):
        p = problem.n_features[0] if isinstance(problem.n_features, tuple) else 1
        users = _equal(columns["user"], p, "user", where)
    candidates = None
    if _has(columns, "candidates"):
        candidates = np.zeros((count, m), dtype=bool)
        for i, some in enumerate(columns["candidates"]):
            candidates[i, slice(None) if some is None else ids(list(some), i, "candidates")] = True
    at_rank = None
    if _has(columns, "probabilities"):
        at_rank = real_array(f"{where.source}: probabilities", list(columns["probabilities"]))
        if at_rank.shape != (count, m, k):
            raise InvalidInput(
                f"{where.source}: probabilities have shape {at_rank.shape[1:]}; give "
                f"(items, slots) = ({m}, {k}) in every row"
            )
    numbers, agents = _places(columns, count, where)
    chance = _chances(columns, count, where)
    items = None if header is None else header.features
    columns_ = (shown, exposed, rewards, chance, numbers, agents, at_rank)
    return Rankings(problem, users, items, candidates, *columns_)


def _slots(columns: Columns, name: str, count: int, k: int, where: _Where) -> Matrix:
    if not _has(columns, name):
        raise InvalidInput(f"{where.source} has no column {name}; {did_you_mean(name, columns)}")
    return _equal(columns[name], k, name, where)


# --- rows, and lines of JSON ---------------------------------------------------------------


def read_rows(rows: Sequence[Any], problem: Problem | None) -> Data:
    """Rows (decision, reward, context), or mappings with the columns of the table."""
    if all(isinstance(row, Mapping) for row in rows):
        names = dict.fromkeys(name for row in rows for name in row)
        return read_table({name: [row.get(name) for row in rows] for name in names}, problem)
    if problem is None:
        raise InvalidInput("rows of decisions do not say the names of the rewards; give problem=")
    columns: dict[str, list[Any]] = {}
    table = [_row(i, row, problem) for i, row in enumerate(rows)]
    for name in dict.fromkeys(name for row in table for name in row):
        columns[name] = [row.get(name) for row in table]
    return assembled(problem, [columns], None, "the rows")


def _row(i: int, row: Any, problem: Problem) -> dict[str, Any]:
    if not isinstance(row, (tuple, list)) or len(row) != 3 or not isinstance(row[0], Decision):
        raise InvalidInput(f"row {i} is {row!r:.80}; give (decision, reward, context)")
    decision, reward, context = row
    columns: dict[str, Any] = {
        "id": decision.id,
        "number": max(decision.number, 0),
        "probability": decision.probability,
    }
    if problem.kind == "ranking":
        if not isinstance(reward, Shown):
            raise InvalidInput(f"row {i}: the reward is {reward!r:.60}; give fw.Shown(...)")
        columns |= {"ranking": decision.action, "exposed": reward.exposed, "user": context}
        earned = np.asarray(reward.rewards)
        return columns | {f"{_REWARD}{n}": earned[:, j] for j, n in enumerate(problem.rewards)}
    columns["action"] = decision.action
    if isinstance(context, PerArm):
        columns["features"] = context.features
    elif isinstance(context, Bilinear):
        columns["context"] = context.flat()
    else:
        columns["context"] = context
    values = (
        reward if isinstance(reward, Mapping) else dict(zip(problem.rewards, reward, strict=False))
    )
    return columns | {f"{_REWARD}{name}": value for name, value in values.items()}


def json_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")
    whole = lines[-1] == b""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            event = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            if number == len(lines) and not whole:
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
