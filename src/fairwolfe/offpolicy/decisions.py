"""Logged decisions in memory: contexts in parts, everything else in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import Cube, IntMatrix, IntVector, Matrix, Vector
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput

CHUNK = 1 << 14
"""Decisions that are worked on together: what bounds memory beside the log itself."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class ContextPart:
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

    def rows(self, places: IntVector) -> ContextPart:
        """Some of them."""
        features = None if self.features is None else self.features[places]
        mask = None if self.mask is None else self.mask[places]
        return replace(self, n=len(places), features=features, mask=mask)

    def allowed(self) -> Mask:
        """(rows, K)."""
        return np.ones((self.n, self.n_arms), dtype=bool) if self.mask is None else self.mask

    def known_features(self, why: str) -> Cube:
        """The features; InvalidInput with what they are for where the log has none."""
        if self.features is None:
            raise InvalidInput(f"the log has no contexts, {why}")
        return self.features

    def context(self, i: int) -> Matrix:
        """The features of one context as it was given: (arms, d), or (d,) where all share them."""
        why = "and the policy is a function of them; give probabilities"
        one: Matrix = self.known_features(why)[i]
        if self.per_arm:
            shared: Any = one[0]
            return shared  # type: ignore[no-any-return]
        # Padding is at the end, and cannot be chosen.
        return one if self.mask is None else one[: np.flatnonzero(self.mask[i])[-1] + 1]

    def chosen(self, actions: IntVector) -> Matrix:
        """The features (rows, d) of the arms that were chosen."""
        features = self.known_features("so no model can be fitted; use 'ips'")
        return features[:, 0] if self.per_arm else features[np.arange(self.n), actions]


@dataclass(frozen=True)
class LoggedArms:
    """Decisions of the kind arms.

    distribution: for each part (rows, K) the probabilities of all arms, or None; arms: their names
        by number, where they have any
    actions (n,), probability (n,) with NaN where it is not known, rewards (n, D), numbers (n,) with
        -1 where they are not known, agents (n,): which agent made it, by number
    """

    problem: Problem
    parts: tuple[ContextPart, ...]
    distribution: tuple[Matrix | None, ...]
    arms: tuple[str, ...] | None
    actions: IntVector
    probability: Vector
    rewards: Matrix
    numbers: IntVector
    agents: IntVector

    @property
    def n(self) -> int:
        """How many."""
        return len(self.actions)

    def totals(self) -> Matrix:
        """The reward vectors (n, D)."""
        return self.rewards

    @property
    def has_contexts(self) -> bool:
        """Whether every part has features."""
        return all(part.features is not None for part in self.parts)

    def chunks(self) -> list[slice]:
        """Where each part is in the columns."""
        ends = accumulate(part.n for part in self.parts)
        return [slice(end - part.n, end) for end, part in zip(ends, self.parts, strict=True)]

    def spans(self) -> Iterator[tuple[slice, ContextPart]]:
        """Every part, and where it is in the columns."""
        return zip(self.chunks(), self.parts, strict=True)

    def pieces(self) -> Iterator[tuple[slice, LoggedArms]]:
        """Every part as a log of its own, and where it is."""
        for (span, part), known in zip(self.spans(), self.distribution, strict=True):
            columns: Any = {name: getattr(self, name)[span] for name in _ARM_COLUMNS}
            yield span, replace(self, parts=(part,), distribution=(known,), **columns)

    def subset(self, places: IntVector) -> LoggedArms:
        """Some of them, in ascending order."""
        parts, distribution = [], []
        for (span, part), known in zip(self.spans(), self.distribution, strict=True):
            own = places[(places >= span.start) & (places < span.stop)] - span.start
            if own.size:
                parts.append(part.rows(own))
                distribution.append(None if known is None else known[own])
        columns: Any = {name: getattr(self, name)[places] for name in _ARM_COLUMNS}
        return replace(self, parts=tuple(parts), distribution=tuple(distribution), **columns)


_ARM_COLUMNS = ("actions", "probability", "rewards", "numbers", "agents")


@dataclass(frozen=True)
class LoggedRankings:
    """Decisions of the kind ranking.

    items (m, q) where they are the same for all, else None; users (n, p)
    candidates (n, m): which items could be shown; None: all
    rankings (n, k), exposed (n, k), rewards (n, k, R), probability (n,): of the whole ranking, NaN
        where it is not known
    at_rank: P(item i in slot j) as logged, (n, m, k); None where it was not
    """

    problem: Problem
    items: Matrix | None
    users: Matrix | None
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

    @property
    def sizes(self) -> tuple[int, int]:
        """m items and k slots."""
        return self.problem.n_items or 0, self.problem.n_slots or 0

    def totals(self, weights: Any = 1.0, span: slice = slice(None)) -> Matrix:
        """The reward vectors (n, m + R): exposures of the items, then the rewards.

        weights (n, k): of the slots of the decisions of the span
        """
        m, _ = self.sizes
        shown, w = self.rankings[span], np.asarray(weights)
        total = np.zeros((len(shown), self.problem.n_objectives))
        np.put_along_axis(total[:, :m], shown, w * self.exposed[span], axis=1)
        total[:, m:] = (w[..., None] * self.rewards[span]).sum(axis=1)
        return total

    def chunks(self) -> list[slice]:
        """Decisions that are worked on together."""
        return [slice(i, min(i + CHUNK, self.n)) for i in range(0, self.n, CHUNK)]

    def pieces(self) -> Iterator[tuple[slice, LoggedRankings]]:
        """Every chunk as a log of its own, and where it is."""
        return ((span, self._columns_at(span)) for span in self.chunks())

    def subset(self, places: IntVector) -> LoggedRankings:
        """Some of them."""
        return self._columns_at(places)

    def _columns_at(self, places: Any) -> LoggedRankings:
        given = {name: getattr(self, name) for name in _RANKING_COLUMNS}
        columns: Any = {name: None if one is None else one[places] for name, one in given.items()}
        return replace(self, **columns)


_RANKING_COLUMNS = tuple(field.name for field in fields(LoggedRankings))[2:]


def joined(chunks: Sequence[Any]) -> Any:
    """Decisions in a row as one; columns that some chunks do not have are left out."""
    head = chunks[0]
    if isinstance(head, LoggedArms):
        parts = [part for one in chunks for part in one.parts]
        if head.problem.n_arms is None:  # parts without contexts have the arms of all parts
            most = max(part.n_arms for part in parts)
            parts = [replace(p, n_arms=most) if p.features is None else p for p in parts]
        known = tuple(rows for one in chunks for rows in one.distribution)
        own: Any = {"parts": tuple(parts), "distribution": known}
    else:
        own, m = {}, head.sizes[0]
        if any(one.candidates is not None for one in chunks):
            every = (replace(one, candidates=np.ones((one.n, m), dtype=bool)) for one in chunks)
            pairs = zip(chunks, every, strict=True)
            chunks = [full if one.candidates is None else one for one, full in pairs]
    for name in _ARM_COLUMNS if isinstance(head, LoggedArms) else _RANKING_COLUMNS:
        column = [getattr(one, name) for one in chunks]
        own[name] = None if any(one is None for one in column) else np.concatenate(column)
    return replace(head, **own)


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
