"""What a round is made of, for every kind of decision: contexts, actions and feedback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.contexts import Bilinear
from fairwolfe.core.feedback import Shown, totals
from fairwolfe.core.kinds import kind_of
from fairwolfe.core.problem import Problem
from fairwolfe.core.protocols import CountsExposure, Decides, Reduces

__all__ = [
    "bad_contexts",
    "bad_rewards",
    "contexts",
    "counted",
    "decides",
    "exposure_of",
    "key",
    "parts_of",
    "rewards",
    "spoil",
    "vector",
]


def decides(subject: Any) -> str:
    """The kind of decision that a bandit or policy makes."""
    return subject.decides if isinstance(subject, Decides) else "arms"


def exposure_of(subject: Any) -> str:
    """Which slots it, or the bandit inside it, counts as exposed."""
    for one in (subject, subject.base if isinstance(subject, Reduces) else None):
        if isinstance(one, CountsExposure):
            return str(one.exposure)
    return "observed"


def contexts(
    problem: Problem, rng: np.random.Generator, rounds: int, **options: Any
) -> Iterator[Any]:
    """Features inside the norm that the problem states."""
    kind = kind_of(problem)
    for _ in range(rounds):
        yield kind.random_context(rng, **options)


def rewards(problem: Problem, action: Any, rng: np.random.Generator) -> Any:
    """Feedback inside its ranges."""
    return kind_of(problem).random_feedback(action, rng)


def counted(shown: Shown, exposure: str) -> Shown:
    """The feedback as a policy counts it whose exposures are of this kind."""
    exposed = shown.exposed
    if exposure == "shown":
        exposed = np.ones_like(exposed)
    elif exposure == "until_last_click":
        earned = np.flatnonzero(shown.rewards.any(axis=1))
        exposed = (np.arange(exposed.size) <= earned.max(initial=-1)).astype(np.float64)
    return Shown(exposed, shown.rewards)


def vector(problem: Problem, action: Any, feedback: Any, exposure: str) -> Vector:
    """The reward vector of a feedback."""
    if problem.kind == "ranking":
        return totals(action, counted(feedback, exposure), problem.n_items or 0)
    return kind_of(problem).observe(action, feedback).reward


def parts_of(context: Any) -> list[Any]:
    """The arrays of a context."""
    parts = (context.user, context.items) if isinstance(context, Bilinear) else (context,)
    return [part for part in parts if isinstance(part, np.ndarray)]


def spoil(context: Any) -> None:
    """What a caller does who uses the arrays of the context again."""
    for part in parts_of(context):
        part[:] = np.nan


def key(action: Any) -> Any:
    """The action as something that can be looked up."""
    return tuple(action.tolist()) if isinstance(action, np.ndarray) else action


def bad_contexts(problem: Problem, good: Any) -> dict[str, Any]:
    """Contexts that must raise InvalidInput, by what is wrong with them."""
    if isinstance(good, Bilinear):
        return _bad_products(good)
    if not isinstance(good, np.ndarray):
        return {"no context": None, "words for a context": "a"}
    if good.ndim != 2:
        return {"no context": None, "a context with NaN": good * np.nan, "an axis": good[None]}
    d = problem.dimension
    spoilt, endless = good.copy(), good.copy()
    spoilt[1, 0], endless[0, 1] = np.nan, np.inf
    bad = {
        "a context with NaN": spoilt,
        "a context with an infinity": endless,
        "a context with a feature too many": np.ones((len(good), d + 1)),
        "a context without rows": good[:0],
        "one row without its axis": good[0],
        "a context with three axes": good[None],
        "words for a context": [["a"] * d] * len(good),
        "rows of different lengths": [good[0].tolist(), good[1, :-1].tolist()],
        "no context": None,
    }
    if problem.n_items is not None:
        bad["a context that lacks an item"] = good[1:]
        bad["an item too many"] = np.vstack([good, good[:1]])
    return bad


def _bad_products(good: Bilinear) -> dict[str, Any]:
    user, items = good.user, good.items
    spoilt, endless = items.copy(), items.copy()
    spoilt[1, 0], endless[0, 1] = np.nan, np.inf
    return {
        "a user with NaN": Bilinear(user * np.nan, items),
        "an item with NaN": Bilinear(user, spoilt),
        "an item with an infinity": Bilinear(user, endless),
        "a user with a feature too many": Bilinear(np.append(user, 0.1), items),
        "a user with a feature too few": Bilinear(user[1:], items),
        "items with a feature too many": Bilinear(user, np.hstack([items, items[:, :1]])),
        "a context that lacks an item": Bilinear(user, items[1:]),
        "an item too many": Bilinear(user, np.vstack([items, items[:1]])),
        "a context without items": Bilinear(user, items[:0]),
        "one item without its axis": Bilinear(user, items[0]),
        "a user with two axes": Bilinear(user[None], items),
        "words for a user": Bilinear(["a"] * user.size, items),
        "words for items": Bilinear(user, [["a"] * items.shape[1]] * len(items)),
        "rows of different lengths": Bilinear(user, [items[0].tolist(), items[1, :-1].tolist()]),
        "the flat form where a product is asked for": good.flat(),
        "the user alone": user,
        "no user and no items": Bilinear(None, None),
        "no context": None,
    }


def bad_rewards(problem: Problem, exposure: str = "observed") -> dict[str, Any]:
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
    bad: dict[str, Any] = {
        "a slot too many": Shown(np.ones(k + 1), np.zeros((k + 1, n))),
        "a slot too few": Shown(ones[1:], nothing[1:]),
        "an exposure too few": Shown(ones[1:], nothing),
        "a reward too many": Shown(ones, np.zeros((k, n + 1))),
        "rewards without their axis": Shown(ones, np.zeros(k * n)),
        "half an exposure": Shown(half, nothing),
        "an exposure that is NaN": Shown(ones * np.nan, nothing),
        "a reward that is NaN": Shown(ones, spoilt),
        "a reward that is infinite": Shown(ones, np.full((k, n), np.inf)),
        "words for exposures": Shown(["a"] * k, nothing),  # type: ignore[arg-type]
        "a reward vector": np.zeros(problem.n_objectives),
        "a number": 1.0,
        "no feedback": None,
    }
    if exposure == "observed":
        bad["a slot that earns and is not exposed"] = Shown(np.zeros(k), np.full((k, n), 0.1))
    return bad
