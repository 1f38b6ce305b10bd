"""Measures of a ranking: exposures, user utility, Gini index, Lorenz curve, shares of groups."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.problem import Problem, number_where
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives.concave import finite_vector

Numbers = Vector | Sequence[float]


def exposure(average: Numbers, problem: Problem) -> Vector:
    """The exposures of the items: the first part of a reward vector of a ranking.

    >>> exposure([0.7, 0.3, 0.2], Problem.ranking(n_items=2, n_slots=1, n_features=1)).tolist()
    [0.7, 0.3]
    """
    return _rewards(average, problem)[: problem.n_items]


def utility(average: Numbers, problem: Problem) -> float:
    """What users get: the sum of the user-side rewards, the last part of a reward vector.

    >>> utility([0.7, 0.3, 0.2], Problem.ranking(n_items=2, n_slots=1, n_features=1))
    0.2
    """
    return float(_rewards(average, problem)[problem.n_items :].sum())


def gini_index(exposure: Numbers) -> float:
    """sum |e_i - e_j|/(2 n sum e): 0 where all have the same, (n - 1)/n where one has all.

    >>> gini_index([1.0, 1.0]), gini_index([1.0, 0.0])
    (0.0, 0.5)
    """
    shares = np.sort(_exposures(exposure))
    n, total = shares.size, float(shares.sum())
    if total <= 0.0:
        return 0.0
    ranks = 2.0 * np.arange(1, n + 1) - n - 1.0
    return max(float(ranks @ shares) / (n * total), 0.0)


def lorenz(exposure: Numbers) -> tuple[Vector, Vector]:
    """The share of all exposure (second) that the least exposed share of items (first) has.

    Where no item has any, all have the same.

    >>> lorenz([3.0, 1.0])[1].tolist()
    [0.0, 0.25, 1.0]
    """
    shares = np.sort(_exposures(exposure))
    items = np.linspace(0.0, 1.0, shares.size + 1)
    total = float(shares.sum())
    if total <= 0.0:
        return items, items.copy()
    return items, np.minimum(np.concatenate([[0.0], np.cumsum(shares) / total]), 1.0)


def bottom_share(exposure: Numbers, part: float = 0.5) -> float:
    """The share of all exposure that the least exposed `part` of the items has.

    >>> bottom_share([4.0, 3.0, 2.0, 1.0])
    0.3
    """
    return float(np.interp(_part(part), *lorenz(exposure)))


def top_share(exposure: Numbers, part: float = 0.1) -> float:
    """The share of all exposure that the most exposed `part` of the items has, the top decile.

    >>> top_share([4.0, 3.0, 2.0, 1.0], part=0.25)
    0.4
    """
    return 1.0 - bottom_share(exposure, 1.0 - _part(part))


_SHARES = {"gini": gini_index, "bottom_half": bottom_share, "top_decile": top_share}
FAIRNESS = ("utility", *_SHARES)
"""What rankings are measured by besides f."""


def fairness_of(
    averages: Matrix, n_items: int, measures: Iterable[str] = FAIRNESS
) -> dict[str, Vector]:
    """Measures of fairness of average rewards, a row each: what users get, and the shares of items.

    >>> measures = fairness_of(np.array([[3.0, 1.0, 0.2]]), 2)
    >>> {name: round(float(values[0]), 9) for name, values in measures.items()}
    {'utility': 0.2, 'gini': 0.25, 'bottom_half': 0.25, 'top_decile': 0.15}
    """
    exposures, users = averages[:, :n_items], averages[:, n_items:].sum(axis=1)
    return {
        name: users if name == "utility" else each(_SHARES[name], exposures) for name in measures
    }


def each(measure: Callable[[Vector], float], rows: Matrix) -> Vector:
    """A measure of every row."""
    return np.array([measure(np.ascontiguousarray(row)) for row in rows])


class GroupShare(NamedTuple):
    """What a group has of all exposure, and that over its part of the items: 1 is its due."""

    share: float
    per_item: float


def by_group(exposure: Numbers, labels: Iterable[Hashable]) -> dict[Any, GroupShare]:
    """Label -> what the items with this label have, in the order in which labels first appear.

    >>> by_group([4.0, 1.0, 3.0], ["new", "old", "old"])["new"]
    GroupShare(share=0.5, per_item=1.5)
    """
    given = _exposures(exposure)
    names = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    if len(names) != given.size:
        raise InvalidInput(
            f"there are {len(names)} labels for {given.size} items; give one for each item"
        )
    total = float(given.sum())
    groups: dict[Any, list[int]] = {}
    for i, name in enumerate(names):
        groups.setdefault(name, []).append(i)
    shares = {}
    for name, members in groups.items():
        part = len(members) / given.size
        share = float(given[members].sum()) / total if total > 0.0 else part
        shares[name] = GroupShare(share, share / part)
    return shares


def _exposures(values: Any) -> Vector:
    given = finite_vector("exposure", values)
    if given.min() < 0.0:
        worst = int(given.argmin())
        raise InvalidInput(f"exposure[{worst}] is {given[worst]:g}; exposures are at least 0")
    return given


def _part(part: float) -> float:
    allowed = "a part of the items, from 0 to 1"
    return number_where("part", part, lambda x: 0.0 <= x <= 1.0, allowed)


def _rewards(average: Any, problem: Problem) -> Vector:
    if problem.n_items is None:
        raise InvalidInput(
            "exposure and utility are parts of the rewards of a ranking, and this problem has "
            "arms; make it with Problem.ranking(...)"
        )
    given = finite_vector("the average reward", average)
    if given.size != problem.n_objectives:
        raise InvalidInput(
            f"the average reward has {given.size} numbers; this problem has "
            f"{problem.n_items} exposures and {len(problem.rewards)} user-side rewards"
        )
    return given
