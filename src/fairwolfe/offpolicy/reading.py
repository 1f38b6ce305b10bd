"""Columns and rows of logged decisions as arrays, checked where they enter."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from numbers import Real
from typing import Any

import numpy as np

from fairwolfe.agent.log_format import Header
from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.contexts import Bilinear, PerArm
from fairwolfe.core.decision import Decision
from fairwolfe.core.feedback import Shown
from fairwolfe.core.problem import Problem, real_array
from fairwolfe.core.tables import is_frame, opened
from fairwolfe.errors import InvalidInput, did_you_mean
from fairwolfe.offpolicy.decisions import (
    CHUNK,
    ContextPart,
    LoggedArms,
    LoggedRankings,
    joined,
    padded,
)

_REWARD = "reward."
_FEATURE = "feature."
_BY_NUMBER = ("context", "arms", "candidates", "probabilities")  # columns of arms by number
_LISTS = (*_BY_NUMBER, "names", "user", "features", "items", "pinned", "ranking", "exposed")
Columns = dict[str, Any]
Data = LoggedArms | LoggedRankings


def read_table(table: Any, problem: Problem | None, source: str = "the table") -> Data:
    """A mapping of columns, or a table of pandas, polars or Arrow through narwhals."""
    columns = dict(table) if isinstance(table, Mapping) else _narwhals(table)
    lengths = sorted({len(column) for column in columns.values()})
    if not lengths or lengths == [0]:
        raise InvalidInput(f"{source} has no rows; give at least one decision")
    if len(lengths) > 1:
        raise InvalidInput(f"{source} has columns of the lengths {lengths}; give equal ones")
    columns = {name: _without_nan(name, column) for name, column in columns.items()}
    arms = _named_actions(columns, source)
    stated = _guessed(_Chunk(columns, source)) if problem is None else problem
    if arms is not None and stated.n_arms is not None and len(arms) > stated.n_arms:
        raise InvalidInput(
            f"{source} has {len(arms)} different actions ({', '.join(arms):.80}), and the problem "
            f"{stated.n_arms} arms; give a problem with n_arms={len(arms)}"
        )
    data = assembled(stated, [columns], None, source)
    return replace(data, arms=arms) if isinstance(data, LoggedArms) else data


def _narwhals(table: Any) -> Columns:
    if not is_frame(table):
        raise InvalidInput(
            f"a log cannot be read from a {type(table).__name__}; give a path, a table, rows of "
            "decisions, or OBP's bandit_feedback"
        )
    frame = opened(table)
    return {name: frame[name].to_list() for name in frame.columns}


def _without_nan(name: str, column: Any) -> Any:
    """A column of lists, with None where pandas has NaN for a missing one."""
    if name not in _LISTS or isinstance(column, np.ndarray):
        return column
    return [None if isinstance(one, float) and math.isnan(one) else one for one in column]


def _named_actions(columns: Columns, source: str) -> tuple[str, ...] | None:
    """Replace actions that are texts by numbers, in place: by the place in the row's `names`, or
    else in the order of the alphabet. The names by number; None where there are none.
    """
    actions, rows = list(columns.get("action", ())), _Chunk(columns, source)
    if not any(isinstance(one, str) for one in actions):
        return None
    for i, one in enumerate(actions):
        if isinstance(one, str) != isinstance(actions[0], str):
            wanted = "text" if isinstance(actions[0], str) else "number"
            raise InvalidInput(
                f"{rows.where(i)}: action is {one!r:.40}; give a {wanted}, as in row 1"
            )
    if rows.has("names"):
        names = [[] if some is None else list(some) for some in columns["names"]]
        for i, (one, listed) in enumerate(zip(actions, names, strict=True)):
            if one not in listed:
                near = did_you_mean(one, listed)
                raise InvalidInput(f"{rows.where(i)}: action is {one!r:.40}; {near}")
        columns["action"] = [some.index(one) for one, some in zip(actions, names, strict=True)]
        return None
    by_number = [name for name in _BY_NUMBER if rows.has(name)]
    if by_number:
        raise InvalidInput(
            f"{source} has actions as texts, and {by_number[0]} by the number of the arm; add a "
            "column names with the names of the arms of each row, or give actions as numbers"
        )
    arms, columns["action"] = np.unique(actions, return_inverse=True)
    return tuple(map(str, arms))


def _guessed(rows: _Chunk) -> Problem:
    """The problem of a table that does not say it: sizes and ranges are those of the data."""
    columns, source = rows.columns, rows.source
    rewards = [name for name in columns if name.startswith(_REWARD)]
    if not rewards:
        raise InvalidInput(
            f"{source} has no reward: name the columns reward.<name>, such as reward.clicks; "
            f"{did_you_mean('reward.clicks', columns)}"
        )
    if "ranking" in columns:
        raise InvalidInput(
            f"{source} has rankings, and does not say of how many items and slots; give problem="
        )
    ranges = {}
    for name in rewards:
        values = rows.numbers(name)
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        ranges[name[len(_REWARD) :]] = (min(low, 0.0), max(high, 1.0))
    rows.require("action")
    arms = 1 + int(np.max(rows.whole("action")))
    if rows.has("probabilities"):
        arms = max(arms, *(len(row) for row in columns["probabilities"] if row is not None))
    shared = [name for name in columns if name.startswith(_FEATURE)]
    if shared or "features" in columns:
        width = len(shared) or len(rows.first("features"))
        return Problem.arms(width, ranges, n_arms=arms)
    if "context" in columns:
        return Problem.arms(len(rows.first("context")[0]), ranges)
    if "arms" in columns and "user" in columns:
        return Problem.arms((len(rows.first("user")), len(rows.first("arms")[0])), ranges)
    return Problem.arms(1, ranges, n_arms=arms)


def assembled(
    problem: Problem, parts: Iterable[Columns], header: Header | None, source: str
) -> Data:
    """The decisions of parts of a table."""
    read: Any = _rankings if problem.kind == "ranking" else _choices
    known = Header(problem).column_names()
    chunks: list[Any] = [read(problem, rows, header) for rows in _chunks(parts, known, source)]
    if not chunks:
        raise InvalidInput(f"{source} has no decisions; give at least one")
    data: Data = joined(chunks)
    return data


def _chunks(parts: Iterable[Columns], known: Sequence[str], source: str) -> Iterator[_Chunk]:
    start = 0
    for columns in parts:
        _refuse_misspelt(columns, known, source)
        count = len(next(iter(columns.values())))
        for first in range(0, count, CHUNK):
            own = {name: column[first : first + CHUNK] for name, column in columns.items()}
            yield _Chunk(own, source, start + first)
        start += count


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


class _Chunk:
    """Rows of a table by column; errors name the row, counted from 1 in the whole table."""

    def __init__(self, columns: Columns, source: str, start: int = 0) -> None:
        self.columns, self.source, self.start = columns, source, start
        self.n = len(next(iter(columns.values())))

    def where(self, i: int) -> str:
        """What a row is called in errors."""
        return f"{self.source}, row {self.start + i + 1}"

    def has(self, name: str) -> bool:
        """Whether any row has a value in a column."""
        column = self.columns.get(name)
        if column is None:
            return False
        return isinstance(column, np.ndarray) or any(one is not None for one in column)

    def require(self, name: str) -> None:
        """Raise where no row has a value in a column."""
        if not self.has(name):
            near = did_you_mean(name, self.columns)
            raise InvalidInput(f"{self.source} has no column {name}; {near}")

    def first(self, name: str) -> Any:
        """The first value of a column of features."""
        for one in self.columns[name]:
            if one is not None:
                return one
        raise InvalidInput("a column of features is empty; give features in every row")

    def numbers(self, name: str) -> Vector:
        """A column of numbers (n,), NaN for None and where there is no such column."""
        column = self.columns[name] if self.has(name) else np.full(self.n, math.nan)
        if isinstance(column, np.ndarray) and column.dtype.kind in "fiub":
            return column.astype(np.float64)
        out = np.empty(len(column))
        for i, one in enumerate(column):
            if not (one is None or isinstance(one, Real)):
                raise InvalidInput(f"{self.where(i)}: {name} is {one!r:.60}; give a number")
            out[i] = math.nan if one is None else one
        return out

    def whole(self, name: str) -> IntVector:
        """A column of whole numbers from 0 on (n,)."""
        values = self.numbers(name)
        bad = ~(np.isfinite(values) & (values == np.floor(values)) & (values >= 0))
        if bad.any():
            i = int(bad.argmax())
            one = self.columns[name][i]
            raise InvalidInput(
                f"{self.where(i)}: {name} is {one!r:.60}; give a whole number from 0 on"
            )
        return values.astype(np.int64)

    def finite(self, rows: Any) -> Any:
        """Features (n, ...) as they are, or an error."""
        if not np.isfinite(rows).all():
            where = self.where(int(np.argwhere(~np.isfinite(rows))[0][0]))
            raise InvalidInput(f"{where}: a feature is missing or not finite; give numbers only")
        return rows

    def vectors(self, name: str, d: int) -> Matrix:
        """A column of d numbers in every row, (n, d)."""
        column = self.columns[name]
        if isinstance(column, np.ndarray) and column.ndim == 2 and column.shape[1] == d:
            return np.asarray(self.finite(column.astype(np.float64)))
        rows = np.empty((self.n, d))
        for i, one in enumerate(column):
            row = real_array(f"{self.where(i)}: {name}", [] if one is None else one)
            if row.shape != (d,):
                raise InvalidInput(
                    f"{self.where(i)}: {name} has shape {row.shape}; give {d} numbers"
                )
            rows[i] = row
        return np.asarray(self.finite(rows))

    def contexts(self, column: Any, d: int) -> tuple[Cube, Any]:
        """Contexts (arms, d), padded to (n, K, d), and which arms they have (n, K); None: all."""
        if isinstance(column, np.ndarray) and column.ndim == 3 and column.shape[2] == d:
            return self.finite(column.astype(np.float64, copy=False)), None
        rows = []
        for i, one in enumerate(column):
            if one is None:
                raise InvalidInput(
                    f"{self.where(i)}: there is no context, and other rows have one; leave such "
                    "rows out, if that does not depend on their outcome"
                )
            given = list(one) if isinstance(one, np.ndarray) and one.dtype == object else one
            row = real_array(f"{self.where(i)}: the context", given)
            if row.ndim != 2 or row.shape[1] != d or not len(row):
                raise InvalidInput(
                    f"{self.where(i)}: the context has shape {row.shape}; give (arms, {d}) numbers"
                )
            rows.append(row)
        features, mask = padded(rows, d)
        return self.finite(features), mask

    def origin(self) -> dict[str, Any]:
        """The logged probability, which `Log.check` and estimates judge, number and agent."""
        numbers, agents = (np.full(self.n, one, dtype=np.int64) for one in (-1, 0))
        if self.has("number"):
            numbers = self.whole("number")
        if self.has("id"):
            tokens = [str(one).rpartition("-")[0] for one in self.columns["id"]]
            # A check sum instead of its own number: parts of a table come one by one.
            agents = np.array([zlib.crc32(token.encode()) for token in tokens], dtype=np.int64)
        return {"probability": self.numbers("probability"), "numbers": numbers, "agents": agents}


# --- arms -----------------------------------------------------------------------------------


def _choices(problem: Problem, rows: _Chunk, header: Header | None) -> LoggedArms:
    rewards = np.column_stack([_reward(rows, f"{_REWARD}{name}") for name in problem.rewards])
    rows.require("action")
    actions = rows.whole("action")
    part, known = _part(problem, rows)
    if part.n_arms == 0:  # nothing says how many there were: as many as were chosen
        part = replace(part, n_arms=int(actions.max()) + 1)
    allowed = part.allowed()
    beyond = actions >= part.n_arms
    if not beyond.any():
        beyond = ~allowed[np.arange(rows.n), actions]
    if beyond.any():
        i = int(beyond.argmax())
        arms = np.flatnonzero(allowed[i]).tolist()
        raise InvalidInput(
            f"{rows.where(i)}: action is {actions[i]}, and the arms that could be chosen are "
            f"{arms!s:.60}; give the number of one of them"
        )
    names = None if header is None else header.arms
    own = rows.origin()
    return LoggedArms(problem, (part,), (known,), names, actions=actions, rewards=rewards, **own)


def _reward(rows: _Chunk, name: str) -> Vector:
    if not rows.has(name):
        near = did_you_mean(name, [one for one in rows.columns if one.startswith(_REWARD)])
        raise InvalidInput(f"{rows.source} has no column {name}; {near}")
    values = rows.numbers(name)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise InvalidInput(
            f"{rows.where(int(bad[0]))}: {name} is {values[bad[0]]}; the table has decisions with "
            "their whole feedback only, so leave the row out or give a number"
        )
    return values


def _part(problem: Problem, rows: _Chunk) -> tuple[ContextPart, Matrix | None]:
    """The contexts, and the probabilities (rows, K) of all arms where they were logged."""
    features, mask, per_arm = _features(problem, rows)
    n_arms = problem.n_arms or (0 if features is None else features.shape[1])
    listed = rows.columns["probabilities"] if rows.has("probabilities") else None
    if n_arms == 0 and listed is not None:
        n_arms = max(len(row) for row in listed if row is not None)
    if rows.has("candidates"):
        some = _marked(rows, n_arms, lambda given, i: np.asarray(given, dtype=np.int64))
        mask = some if mask is None else some & mask
    part = ContextPart(rows.n, n_arms, features, mask, per_arm)
    if listed is None:
        return part, None
    known = np.full((rows.n, n_arms), math.nan)
    for i, row in enumerate(listed):
        if row is not None:
            given = real_array(f"{rows.where(i)}: probabilities", row)
            if given.ndim != 1 or given.size > n_arms:
                raise InvalidInput(
                    f"{rows.where(i)}: probabilities have shape {given.shape}; give one for "
                    f"each of {n_arms} arms"
                )
            known[i] = np.pad(given, (0, n_arms - given.size))
    return part, known


def _marked(rows: _Chunk, width: int, places: Any) -> Any:
    """The candidates as marks (n, width); None: all."""
    marks = np.zeros((rows.n, width), dtype=bool)
    for i, some in enumerate(rows.columns["candidates"]):
        marks[i, slice(None) if some is None else places(some, i)] = True
    return marks


def _features(problem: Problem, rows: _Chunk) -> tuple[Cube | None, Any, bool]:
    """Features, mask and per_arm of a `ContextPart`."""
    d, columns = problem.dimension, rows.columns
    if problem.n_arms is not None:
        shared = [name for name in columns if name.startswith(_FEATURE)]
        if shared:
            flat = np.column_stack([rows.numbers(name) for name in shared])
            return rows.finite(flat)[:, None, :], None, True
        if rows.has("features"):
            return rows.vectors("features", d)[:, None, :], None, True
    elif rows.has("context"):
        return *rows.contexts(columns["context"], d), False
    elif rows.has("arms") and rows.has("user"):
        pairs = zip(columns["user"], columns["arms"], strict=True)
        return *rows.contexts([Bilinear(*pair).flat() for pair in pairs], d), False
    return None, None, False


# --- rankings -------------------------------------------------------------------------------


def _rankings(problem: Problem, rows: _Chunk, header: Header | None) -> LoggedRankings:
    m, k = problem.n_items or 0, problem.n_slots or 0
    keys = () if header is None else header.keys or ()
    numbers_of = {key: i for i, key in enumerate(keys)}

    def ids(values: Any, i: int, what: str = "candidates") -> IntVector:
        listed = [numbers_of.get(one, one) for one in values]
        good = all(isinstance(x, (int, np.integer)) and 0 <= x < m for x in listed)
        if not good or len(set(listed)) < len(listed):
            raise InvalidInput(
                f"{rows.where(i)}: {what} is {list(values)!s:.80}; give different items from 0 to "
                f"{m - 1}, or their keys"
            )
        return np.array(listed, dtype=np.int64)

    names = [f"{_REWARD}{name}" for name in problem.rewards]
    for name in ("ranking", *names, "exposed"):
        rows.require(name)
    shown = np.empty((rows.n, k), dtype=np.int64)
    for i, row in enumerate(rows.columns["ranking"]):
        ranking = ids([] if row is None else row, i, "ranking")
        if ranking.size != k:
            raise InvalidInput(f"{rows.where(i)}: ranking has {ranking.size} items for {k} slots")
        shown[i] = ranking
    exposed = rows.vectors("exposed", k)
    other = ~np.isin(exposed, (0.0, 1.0)).all(axis=1)
    if other.any():
        i = int(other.argmax())
        raise InvalidInput(
            f"{rows.where(i)}: exposed is {exposed[i].tolist()}; give 0 or 1 by slot"
        )
    p = problem.n_features[0] if isinstance(problem.n_features, tuple) else 1
    at_rank = None
    if rows.has("probabilities"):
        listed = list(rows.columns["probabilities"])
        at_rank = real_array(f"{rows.source}: probabilities", listed)
        if at_rank.shape != (rows.n, m, k):
            raise InvalidInput(
                f"{rows.source}: probabilities have shape {at_rank.shape[1:]}; give "
                f"(items, slots) = ({m}, {k}) in every row"
            )
    return LoggedRankings(
        problem,
        None if header is None else header.features,
        users=rows.vectors("user", p) if rows.has("user") else None,
        candidates=_marked(rows, m, ids) if rows.has("candidates") else None,
        rankings=shown,
        exposed=exposed,
        rewards=np.stack([rows.vectors(name, k) for name in names], axis=2),
        at_rank=at_rank,
        **rows.origin(),
    )


# --- rows -----------------------------------------------------------------------------------


def read_rows(rows: Sequence[Any], problem: Problem | None) -> Data:
    """Rows (decision, reward, context), or mappings with the columns of the table."""
    if all(isinstance(row, Mapping) for row in rows):
        return read_table(_by_column(rows), problem)
    if problem is None:
        raise InvalidInput("rows of decisions do not say the names of the rewards; give problem=")
    table = [_row(i, row, problem) for i, row in enumerate(rows)]
    return assembled(problem, [_by_column(table)], None, "the rows")


def _by_column(rows: Sequence[Mapping[str, Any]]) -> Columns:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _row(i: int, row: Any, problem: Problem) -> Columns:
    if not isinstance(row, (tuple, list)) or len(row) != 3 or not isinstance(row[0], Decision):
        raise InvalidInput(f"row {i} is {row!r:.80}; give (decision, reward, context)")
    decision, reward, context = row
    columns: Columns = {
        "id": decision.id,
        "number": max(decision.number, 0),
        "probability": decision.probability,
    }
    if problem.kind == "ranking":
        if not isinstance(reward, Shown):
            raise InvalidInput(f"row {i}: the reward is {reward!r:.60}; give fw.Shown(...)")
        columns |= {"ranking": decision.action, "exposed": reward.exposed, "user": context}
        reward = np.asarray(reward.rewards).T
    elif isinstance(context, PerArm):
        columns |= {"action": decision.action, "features": context.features}
    else:
        flat = context.flat() if isinstance(context, Bilinear) else context
        columns |= {"action": decision.action, "context": flat}
    if not isinstance(reward, Mapping):
        reward = dict(zip(problem.rewards, reward, strict=False))
    return columns | {f"{_REWARD}{name}": value for name, value in reward.items()}
