"""Logged decisions in memory: contexts in parts, everything else in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import Cube, IntMatrix, IntVector, Matrix, Vector
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput, did_you_mean

__all__ = ["CHUNK", "COLUMNS", "Choices", "Part", "Rankings", "padded"]

CHUNK = 1 << 14
"""Decisions that are worked on together: what bounds memory beside the log itself."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Part:
    """Contexts of decisions in a row.

    features (rows, K, d), padded with zeros where contexts have different numbers of arms; (rows,
        1, d) where all arms see the same ones; None where the log has none
    mask (rows, K): which arms could be chosen; None: all
    """

    n: int
    n_arms: int
    features: Cube | None
    mask: Mask | None = None
    per_arm: bool = False

    def __post_init__(self) -> None:
        if self.features is not None:  # Arrow's memory is read-only, and kernels refuse it
            object.__setattr__(self, "features", np.require(self.features, np.float64, ["C", "W"]))

    def rows(self, places: IntVector) -> Part:
        """Some of them."""
        features = None if self.features is None else self.features[places]
        mask = None if self.mask is None else self.mask[places]
        return replace(self, n=len(places), features=features, mask=mask)

    def allowed(self) -> Mask:
        """(rows, K)."""
        return np.ones((self.n, self.n_arms), dtype=bool) if self.mask is None else self.mask

    def context(self, i: int) -> Matrix:
        """The features of one context as it was given: (arms, d), or (d,) where all share them."""
        if self.features is None:
            raise InvalidInput(
                "the log has no contexts, and the policy is a function of them; give probabilities"
            )
        if self.per_arm:
            shared: Any = self.features[i, 0]
            return shared  # type: ignore[no-any-return]
        one: Matrix = self.features[i]
        return one if self.mask is None else one[: _last(self.mask[i])]


def _last(mask: Mask) -> int:
    """How many arms a context had: padding is at the end, and cannot be chosen."""
    places = np.flatnonzero(mask)
    return int(places[-1]) + 1


@dataclass(frozen=True)
class Choices:
    """Decisions of the kind arms.

    actions (n,), probability (n,) with NaN where it is not known, rewards (n, D), numbers (n,)
    with -1 where they are not known, agents (n,): which agent made it, by number; distribution:
    for each part (rows, K) the probabilities of all arms, or None; arms: their names by number,
    where they have any.
    """

    problem: Problem
    parts: tuple[Part, ...]
    actions: IntVector
    probability: Vector
    rewards: Matrix
    numbers: IntVector
    agents: IntVector
    distribution: tuple[Matrix | None, ...]
    arms: tuple[str, ...] | None = None

    @property
    def n(self) -> int:
        """How many."""
        return len(self.actions)

    def number(self, name: str) -> int:
        """The number of an arm, by its name."""
        if self.arms is None:
            raise InvalidInput(
                f"the policy is {name!r:.40}; the log has no names of arms, so the only text is "
                "'logged'"
            )
        if name not in self.arms:
            raise InvalidInput(f"the log has no arm {name!r:.40}; {did_you_mean(name, self.arms)}")
        return self.arms.index(name)

    @property
    def has_contexts(self) -> bool:
        """Whether every part has features."""
        return all(part.features is not None for part in self.parts)

    def spans(self) -> Iterator[tuple[slice, Part]]:
        """Every part, and where it is in the columns."""
        start = 0
        for part in self.parts:
            yield slice(start, start + part.n), part
            start += part.n

    def chosen(self, part: Part, actions: IntVector) -> Matrix:
        """The features (rows, d) of the arms that were chosen."""
        if part.features is None:
            raise InvalidInput("the log has no contexts, so no model can be fitted; use 'ips'")
        if part.per_arm:
            return part.features[:, 0]
        return part.features[np.arange(part.n), actions]

    def subset(self, places: IntVector) -> Choices:
        """Some of them, in ascending order."""
        parts, distribution = [], []
        for (span, part), known in zip(self.spans(), self.distribution, strict=True):
            own = places[(places >= span.start) & (places < span.stop)] - span.start
            if own.size:
                parts.append(part.rows(own))
                distribution.append(None if known is None else known[own])
        return Choices(
            self.problem,
            tuple(parts),
            self.actions[places],
            self.probability[places],
            self.rewards[places],
            self.numbers[places],
            self.agents[places],
            tuple(distribution),
            self.arms,
        )


COLUMNS = (
    "users",
    "candidates",
    "rankings",
    "exposed",
    "rewards",
    "probability",
    "numbers",
    "agents",
    "at_rank",
)
"""Of `Rankings`: one row for each decision."""


@dataclass(frozen=True)
class Rankings:
    """Decisions of the kind ranking.

    users (n, p); items (m, q) where they are the same for all, else None
    candidates (n, m): which items could be shown; None: all
    rankings (n, k), exposed (n, k), rewards (n, k, R), probability (n,): of the whole ranking, NaN
        where it is not known
    at_rank: P(item i in slot j) as logged, (n, m, k); None where it was not
    """

    problem: Problem
    users: Matrix | None
    items: Matrix | None
    candidates: Mask | None
    rankings: IntMatrix
    exposed: Matrix
    rewards: Cube
    probability: Vector
    numbers: IntVector
    agents: IntVector
    at_rank: Cube | None

    @property
    def n(self) -> int:
        """How many."""
        return len(self.rankings)

    def totals(self) -> Matrix:
        """The reward vectors (n, m + R): exposures of the items, then the rewards."""
        m = self.problem.n_items or 0
        total = np.zeros((self.n, self.problem.n_objectives))
        np.put_along_axis(total[:, :m], self.rankings, self.exposed, axis=1)
        total[:, m:] = self.rewards.sum(axis=1)
        return total

    def subset(self, places: IntVector) -> Rankings:
        """Some of them."""
        given = {name: getattr(self, name) for name in COLUMNS}
        columns: Any = {name: None if one is None else one[places] for name, one in given.items()}
        return replace(self, **columns)


def padded(contexts: Sequence[Matrix], n_features: int) -> tuple[Cube, Mask | None]:
    """Contexts (arms, d) of different numbers of arms as (rows, K, d), and which arms they have."""
    counts = np.array([len(one) for one in contexts])
    most = int(counts.max())
    features = np.zeros((len(contexts), most, n_features))
    for i, one in enumerate(contexts):
        features[i, : counts[i]] = one
    if (counts == most).all():
        return features, None
    return features, np.arange(most) < counts[:, None]
