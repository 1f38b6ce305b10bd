"""What a round is made of, for every kind of decision: contexts, actions and feedback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fairwolfe.core.contexts import Bilinear
from fairwolfe.core.feedback import Shown
from fairwolfe.core.kinds import kind_of
from fairwolfe.core.problem import Problem

__all__ = ["bad_contexts", "bad_rewards", "contexts", "decides", "key", "rewards", "spoil"]


def decides(subject: Any) -> str:
    """The kind of decision that a bandit or policy makes."""
    kind: str = getattr(subject, "decides", "arms")
    return kind


def contexts(
    problem: Problem, rng: np.random.Generator, rounds: int, **options: Any
) -> Iterator[Any]:
    """Contexts with features inside the norm that the problem states."""
    kind = kind_of(problem)
    for _ in range(rounds):
        yield kind.random_context(rng, **options)


def rewards(problem: Problem, action: Any, rng: np.random.Generator) -> Any:
    """Feedback inside its ranges."""
    return kind_of(problem).random_feedback(action, rng)


def spoil(context: Any) -> None:
    """What a caller does who uses the arrays of the context again."""
    parts = (context.user, context.items) if isinstance(context, Bilinear) else (context,)
    for part in parts:
        if isinstance(part, np.ndarray):
            part[:] = np.nan


def key(action: Any) -> Any:
    """The action as something that can be looked up."""
    return tuple(action.tolist()) if isinstance(action, np.ndarray) else action


def bad_contexts(problem: Problem, good: Any) -> dict[str, Any]:
    """Contexts that must raise InvalidInput, by what is wrong with them."""
    bad: dict[str, Any] = {"no context": None, "words for a context": "a"}
    if isinstance(good, Bilinear):
        user, items = good.user, good.items
        bad |= {
            "the flat form where a product is asked for": good.flat(),
            "the user alone": user,
            "words for a user": Bilinear(["a"] * user.size, items),
            "a user with a feature too many": Bilinear(np.append(user, 0.1), items),
            "a user with NaN": Bilinear(user * np.nan, items),
        }
        return bad | {
            what.replace("context", "set of items"): Bilinear(user, rows)
            for what, rows in _bad_rows(items, problem).items()
        }
    if not isinstance(good, np.ndarray):
        return bad
    if good.ndim != 2:
        return bad | {"a context with NaN": good * np.nan, "an axis": good[None]}
    return bad | _bad_rows(good, problem)


def _bad_rows(good: Any, problem: Problem) -> dict[str, Any]:
    """Rows of features that must raise InvalidInput."""
    spoilt, endless = good.copy(), good.copy()
    spoilt[1, 0], endless[0, 1] = np.nan, np.inf
    bad = {
        "a context with NaN": spoilt,
        "a context with an infinity": endless,
        "a context with a feature too many": np.hstack([good, good[:, :1]]),
        "a context without rows": good[:0],
        "one row without its axis": good[0],
        "rows of words": [["a"] * good.shape[1]] * len(good),
        "rows of different lengths": [good[0].tolist(), good[1, :-1].tolist()],
    }
    if problem.n_items is not None:
        bad["a context that lacks an item"] = good[1:]
        bad["an item too many"] = np.vstack([good, good[:1]])
    return bad


def bad_rewards(problem: Problem) -> dict[str, Any]:
    """Feedback that must raise InvalidInput, by what is wrong with it."""
    if problem.kind not in ("arms", "ranking"):
        return {"words for feedback": "a", "an object for feedback": object()}
    if problem.n_slots is None:
        n = problem.n_objectives
        return {
            "a reward that is NaN": np.array([np.nan] * n),
            "a reward with an infinity": np.array([0.5] * (n - 1) + [np.inf]),
            "a reward too many": np.full(n + 1, 0.5),
            "a reward too few": np.full(n - 1, 0.5),
            "a matrix of rewards": np.full((1, n), 0.5),
            "words for rewards": ["a"] * n,
            "no reward": None,
        }
    k, n = problem.n_slots, len(problem.rewards)
    ones, nothing = np.ones(k), np.zeros((k, n))
    half, spoilt = ones.copy(), nothing.copy()
    half[-1], spoilt[0, -1] = 0.5, np.nan
    return {
        "a slot too many": Shown(np.ones(k + 1), np.zeros((k + 1, n))),
        "an exposure too few": Shown(ones[1:], nothing),
        "a reward too many": Shown(ones, np.zeros((k, n + 1))),
        "rewards without their axis": Shown(ones, np.zeros(k * n)),
        "half an exposure": Shown(half, nothing),
        "a reward that is NaN": Shown(ones, spoilt),
        "words for exposures": Shown(["a"] * k, nothing),  # type: ignore[arg-type]
        "a reward vector": np.zeros(problem.n_objectives),
        "no feedback": None,
    }
