"""Sums over the chunks of a log, merged in the order of the log: all that estimates rest on.

A `Step` says what is summed over a chunk. `Memory` and `Folder` are where chunks come from. A total
is the same to the last bit whoever worked on the chunks, since chunks and their order are fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, Protocol

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput
from fairwolfe.offpolicy.decisions import LoggedArms, LoggedRankings

_VALUES = 8  # of a reward that are told apart; the others are one
_REST = 3  # places of a tally: how many decisions, their weights, and the squares of these

Data = LoggedArms | LoggedRankings


@dataclass(frozen=True)
class About:
    """What steps know of the whole log: what was decided, how often, and the names of the arms."""

    problem: Problem
    n: int
    arms: tuple[str, ...] | None = None


class Step(Protocol):
    """What is summed over a chunk of decisions, from place span.start of the log on."""

    def sums(self, about: About, span: slice, chunk: Any) -> Any:
        """Those of one chunk."""


Tick = Callable[[int], None]


class Source(Protocol):
    """Where the decisions of a log are."""

    @property
    def about(self) -> About:
        """What is known of them without reading them."""

    @property
    def known(self) -> dict[int, FactSums]:
        """The facts that were summed already, by the number of folds."""

    def total(self, step: Step) -> Any:
        """The sums of a step over all chunks."""


class Memory:
    """Decisions in memory."""

    def __init__(self, data: Data) -> None:
        arms = data.arms if isinstance(data, LoggedArms) else None
        self.data, self.about = data, About(data.problem, data.n, arms)
        self.known: dict[int, FactSums] = {}

    def last(self, n: int) -> Data:
        """The last n decisions."""
        return self.data.subset(np.arange(max(self.about.n - n, 0), self.about.n))

    def items(self) -> Any:
        """The features of the items by number."""
        items = self.data.items if isinstance(self.data, LoggedRankings) else None
        return None if items is None else dict(enumerate(items))

    @contextmanager
    def at_work(self, jobs: int, on: str | None, progress: Tick | None) -> Iterator[Source]:
        """Itself; other processes would have to be sent the rows."""
        if jobs != 1 or on is not None:
            raise InvalidInput(
                f"jobs is {jobs} and on {on!r}, and the log is in memory, where one process "
                "works on it; give Log.of a folder of Parquet files"
            )
        yield self

    def total(self, step: Step) -> Any:
        """One chunk after the other."""
        return reduce(merged, (step.sums(self.about, *one) for one in self.data.pieces()))


def merged(one: Any, other: Any) -> Any:
    """The sums of two runs of chunks, the second after the first: for `most_...` the larger, for
    `first_...` the earlier number, else the sum.
    """
    return type(one)(*map(_merged, one._fields, one, other))


def _merged(name: str, one: Any, other: Any) -> Any:
    if isinstance(one, (Tally, Issued)):
        return one.merged(other)
    if hasattr(one, "_fields"):
        return merged(one, other)
    if isinstance(one, tuple):
        return tuple(map(_merged, [name] * len(one), one, other))
    if name.startswith("first_"):
        return one if one.size else other
    if name.startswith("most_"):
        return np.maximum(one, other)
    if np.shape(one) != np.shape(other):  # by the number of an arm: of contexts with fewer and more
        size = max(len(one), len(other))
        one, other = (np.pad(part, (0, size - len(part))) for part in (one, other))
    return one + other


class Tally(NamedTuple):
    """How often the values of each reward came: values (D, 8), NaN where there are fewer, and sums
    (D, 9, 3): decisions, weights and their squares, of each and last of all others.
    """

    values: Matrix
    sums: Any

    @classmethod
    def of(cls, w: Vector, rewards: Matrix) -> Tally:
        """Of rewards (n, D) with weights (n,); those without weight do not count."""
        own = w > 0.0
        w, parts = w[own], []
        for reward in rewards[own].T:
            values, which = np.unique(reward, return_inverse=True)
            columns = (np.ones(w.size), w, w * w)
            counts = np.array([np.bincount(which, one, values.size) for one in columns]).T
            parts.append(_commonest(values, counts, np.zeros(_REST)))
        return cls(*map(np.array, zip(*parts, strict=True)))

    def merged(self, other: Tally) -> Tally:
        """Of both."""
        parts = []
        for values, sums, more, added in zip(*self, *other, strict=True):
            both, which = np.unique(np.concatenate([values, more]), return_inverse=True)
            counts = np.zeros((both.size, _REST))
            np.add.at(counts, which, np.concatenate([sums[:-1], added[:-1]]))
            known = ~np.isnan(both)
            parts.append(_commonest(both[known], counts[known], sums[-1] + added[-1]))
        return Tally(*map(np.array, zip(*parts, strict=True)))

    def different(self) -> Vector:
        """The effective number (D,) of decisions whose reward is not the commonest: for one that is
        0 or 1, how often it was the rarer of the two.
        """
        numbers = []
        for sums in self.sums:
            usual = int(sums[:-1, 0].argmax())
            _, weight, square = np.delete(sums, usual, axis=0).sum(axis=0)
            numbers.append(weight**2 / square if square > 0.0 else 0.0)
        return np.array(numbers)


def _commonest(values: Vector, counts: Matrix, rest: Vector) -> tuple[Vector, Matrix]:
    """The values that came most often, ascending, with their sums; the others are added up."""
    order = np.sort(np.argsort(-counts[:, 0], kind="stable")[:_VALUES])
    others = np.ones(values.size, dtype=bool)
    others[order] = False
    own, sums = np.full(_VALUES, np.nan), np.zeros((_VALUES + 1, _REST))
    own[: order.size], sums[: order.size] = values[order], counts[order]
    sums[-1] = rest + counts[others].sum(axis=0)
    return own, sums


class Issued(NamedTuple):
    """Of each agent, ascending: its number, the first and the last number of its decisions, and how
    many there are, (agents, 4).
    """

    rows: Any

    @classmethod
    def of(cls, agents: IntVector, numbers: IntVector) -> Issued:
        """Of decisions with known numbers."""
        rows = []
        for agent in np.unique(agents):
            own = numbers[agents == agent]
            if own.min() >= 0:
                rows.append((agent, own.min(), own.max(), np.unique(own).size))
        return cls(np.array(rows, dtype=np.int64).reshape(-1, 4))

    def merged(self, other: Issued) -> Issued:
        """Of both."""
        found = {row[0]: row for row in self.rows.tolist()}
        for agent, first, last, count in other.rows.tolist():
            _, low, high, before = found.get(agent, (agent, first, last, 0))
            found[agent] = [agent, min(first, low), max(last, high), count + before]
        rows = [found[agent] for agent in sorted(found)]
        return Issued(np.array(rows, dtype=np.int64).reshape(-1, 4))


# --- weights --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weights:
    """What w = pi/p was like: how many, their effective number, mean, its error, the largest."""

    n: int
    ess: float
    mean: float
    error: float
    largest: float
    share: float  # of the largest in the sum
    heavy: float  # the effective number of decisions that the variance of the weights rests on
    drift: float = 1.0  # the factor by which the probabilities of what counts changed over the log

    @property
    def typical(self) -> float:
        """The mean of w under the policy that is evaluated: sum w^2/sum w."""
        return self.n * self.mean / self.ess if self.ess > 0.0 else 0.0

    @classmethod
    def of(cls, n: int, sums: Vector, largest: float, drift: float = 1.0) -> Weights:
        """From the sums of w, w^2, |w - 1|^2 and |w - 1|^3: they are 1 on average."""
        total, square, gaps, cubes = sums.tolist()
        mean = total / n
        spread = max(square / n - mean * mean, 0.0)
        return cls(
            n,
            total * total / square if square > 0.0 else 0.0,
            mean,
            float(np.sqrt(spread / n)),
            largest,
            largest / total if total > 0.0 else 0.0,
            gaps**3 / cubes**2 if cubes > 0.0 else float(n),
            drift,
        )


def weight_sums(w: Vector) -> Vector:
    """What `Weights.of` takes."""
    gap = np.abs(w - 1.0)
    square = gap * gap
    return np.array([w.sum(), w @ w, square.sum(), square @ gap])


# --- facts: what does not depend on a policy ---------------------------------------------------


class FactSums(NamedTuple):
    """Of the log itself: the reward vectors, what is wrong with probabilities, by slot how often it
    was exposed, and by fold the design and the moments of a regression.

    first_unknown, first_bad: place and value of the first wrong one
    """

    totals: Vector
    unknown: int
    bad: int
    first_unknown: Vector
    first_bad: Vector
    exposed: Vector
    without: int  # chunks without contexts
    gram: Any
    moment: Any

    @property
    def has_contexts(self) -> bool:
        """Whether every chunk has the features of its contexts."""
        return self.without == 0


@dataclass(frozen=True)
class Facts:
    """Those sums; folds: of the regression, 0 for none."""

    folds: int = 0

    def sums(self, about: About, span: slice, chunk: Data) -> FactSums:
        """Of one chunk."""
        p = chunk.probability
        unknown, bad = np.isnan(p), (p <= 0.0) | (p > 1.0 + 1e-9)
        gram = moment = np.zeros(0)
        without = isinstance(chunk, LoggedArms) and not chunk.has_contexts
        if self.folds and isinstance(chunk, LoggedArms) and not without:
            gram, moment = regression_sums(chunk, folds_of(span, self.folds), self.folds)
        exposed = chunk.exposed.sum(axis=0) if isinstance(chunk, LoggedRankings) else np.zeros(0)
        return FactSums(
            chunk.totals().sum(axis=0),
            int(unknown.sum()),
            int(bad.sum()),
            _first(unknown, span, p),
            _first(bad, span, p),
            exposed,
            int(without),
            gram,
            moment,
        )


def facts_of(source: Source, folds: int = 0) -> FactSums:
    """The facts of a log, read once."""
    if folds not in source.known and not (folds == 0 and source.known):
        source.known[folds] = source.total(Facts(folds))
    return source.known[folds] if folds in source.known else next(iter(source.known.values()))


def _first(wrong: Any, span: slice, p: Vector) -> Vector:
    i = int(wrong.argmax())
    return np.array([span.start + i, p[i]]) if wrong.any() else np.zeros(0)


def folds_of(span: slice, folds: int) -> IntVector:
    """The fold of each decision; both halves of an interval meet all folds."""
    return (np.arange(span.start, span.stop) // 2) % folds


def regression_sums(chunk: LoggedArms, groups: IntVector, count: int) -> tuple[Any, Any]:
    """Designs (groups, blocks, d, d) and moments (groups, blocks, D, d) of decisions by group from
    0 on; those of group -1 are left out.
    """
    problem = chunk.problem
    blocks, n, d = problem.n_arms or 1, problem.n_objectives, problem.dimension
    gram, moment = np.zeros((count, blocks, d, d)), np.zeros((count, blocks, n, d))
    for span, part in chunk.spans():
        actions, r = chunk.actions[span], chunk.rewards[span]
        x = part.chosen(actions)
        place = groups[span] * blocks + (actions if part.per_arm else 0)
        for one in np.unique(place[groups[span] >= 0]).tolist():
            own = place == one
            rows = x[own]
            at = divmod(one, blocks)
            gram[at] += rows.T @ rows
            moment[at] += r[own].T @ rows
    return gram, moment
