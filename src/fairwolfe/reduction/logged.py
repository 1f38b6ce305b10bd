"""Tables of decisions that others made, checked column by column before anything is learnt.

Bytes of decisions are signed; tables are not, and kernels do not check bounds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fairwolfe.core.arrays import IntMatrix, IntVector, Matrix
from fairwolfe.core.candidates import sizes
from fairwolfe.core.decision import Choice
from fairwolfe.core.feedback import one_for_each
from fairwolfe.core.kinds import Answers, Kind
from fairwolfe.core.rows import HEAD, ArmRows, PlainRows, RankingRows
from fairwolfe.core.tables import short
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.gates import largest_square_norm


def read_table(
    rows: Any,
    observation: Any,
    kind: Kind,
    limit: float,
    kept: Matrix | None = None,
    plain: bool = False,
) -> Any:
    """What was observed after decisions, by column; InvalidInput unless all columns are arrays of
    their shapes, of finite numbers, with every index in its range.

    limit: of the norm of features; kept (q, m): features of the items, where rows need none; plain:
    whether the evidence of a base in Python may be learnt from, which that base checks itself
    """
    if isinstance(rows, ArmRows) and kind.name == "arms":
        _check_arms(rows, kind, limit)
    elif isinstance(rows, RankingRows) and kind.name == "ranking":
        _check_rankings(rows, kind, limit, kept)
    elif not (plain and isinstance(rows, PlainRows)):
        form = {"arms": "ArmRows", "ranking": "RankingRows"}.get(kind.name, "PlainRows")
        raise InvalidInput(f"the decisions are {short(rows, 80)}; give {form}")
    answers = kind.read_feedback_many(rows.actions, one_for_each(observation, len(rows.head)))
    if isinstance(answers, Answers):
        return answers.observation
    return [answer.observation for answer in answers]


def _check_arms(rows: ArmRows, kind: Kind, limit: float) -> None:
    problem, n = kind.problem, np.shape(rows.head)[:1]
    _check("head", rows.head, HEAD, n)
    _check("x", rows.x, np.float64, (*n, problem.dimension))
    _check_places("block", rows.head["block"], problem.n_arms or 1)
    _check_norm(math.sqrt(largest_square_norm(rows.x)), limit)


def _check_rankings(rows: RankingRows, kind: Kind, limit: float, kept: Matrix | None) -> None:
    problem, n = kind.problem, np.shape(rows.head)[:1]
    k, (p, q) = problem.n_slots or 0, sizes(problem)
    _check("head", rows.head, HEAD, n)
    _check("items", rows.items, np.int64, (*n, k))
    _check("user", rows.user, np.float64, (*n, p))
    _check_places("items", rows.items, problem.n_items or 0)
    if (np.diff(np.sort(rows.items, axis=1), axis=1) == 0).any():
        raise InvalidInput("the column items has rankings that show an item twice")
    with np.errstate(over="ignore"):  # infinity is beyond the limit
        if kept is not None and kept.shape[1] and np.shape(rows.x)[1:2] == (0,):
            of_items = np.sqrt((kept * kept).sum(axis=0))[rows.items]
        else:
            _check("x", rows.x, np.float64, (*n, k, q))
            of_items = np.sqrt((rows.x * rows.x).sum(axis=2))
        of_users = np.sqrt((rows.user * rows.user).sum(axis=1))
        norm = float((of_users[:, None] * of_items).max(initial=0.0))
    _check_norm(norm, limit)


def _check(name: str, column: Any, dtype: Any, shape: tuple[int, ...]) -> None:
    dtype = np.dtype(dtype)
    if not isinstance(column, np.ndarray) or column.dtype != dtype or column.shape != shape:
        raise InvalidInput(
            f"the column {name} is {short(column, 80)}; give an array of shape {shape} of "
            f"{'HEAD' if dtype == HEAD else dtype}"
        )
    if not column.flags.carray:
        raise InvalidInput(f"the column {name} is read-only or not contiguous; give a copy of it")
    if dtype == np.float64 and not np.isfinite(column).all():
        row = int(np.argwhere(~np.isfinite(column))[0][0])
        raise InvalidInput(f"row {row} of the column {name} has a number that is not finite")


def _check_places(name: str, column: IntVector | IntMatrix, stop: int) -> None:
    outside = (column < 0) | (column >= stop)
    if outside.any():
        raise InvalidInput(
            f"row {int(np.argwhere(outside)[0][0])} of the column {name} has "
            f"{int(column[outside][0])}; give numbers from 0 to {stop - 1}"
        )


def _check_norm(norm: float, limit: float) -> None:
    if not norm <= limit:
        raise InvalidInput(
            f"features have a norm of {norm:.4g}, and from more than {limit:g} nothing can be "
            "learnt: scale the features, or state a larger feature_norm in the problem"
        )


def choices_of(rows: Any) -> list[Choice]:
    """Decisions that others made, as a base in Python learns from them."""
    if isinstance(rows, PlainRows):
        return [Choice(action, None, evidence) for action, evidence in rows.stored]
    if isinstance(rows, RankingRows):
        pairs = zip(rows.items, rows.user, rows.x, strict=True)
        return [Choice(items, None, (user, x)) for items, user, x in pairs]
    arms, blocks = rows.head["arm"].tolist(), rows.head["block"].tolist()
    return [
        Choice(arm, None, (block, x)) for arm, block, x in zip(arms, blocks, rows.x, strict=True)
    ]
