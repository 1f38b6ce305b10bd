"""Estimators as rows: their means, covariances, weights, and what is made of the means.

IPS, SNIPS and doubly robust rows for arms are here; `ranking_estimators` has those for rankings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from fairwolfe.core.arrays import Cube, Matrix, Vector
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput
from fairwolfe.offpolicy.decisions import ContextPart, LoggedArms, LoggedRankings
from fairwolfe.offpolicy.interval import Sampled


@dataclass(frozen=True)
class Moments:
    """Of n rows, weighted: the mean (q,), the means of both halves (2, q), and the covariance
    (q, q) for which that of the mean is covariance/n.

    Rows of even and of odd place are the halves.
    """

    n: int
    mean: Vector
    halves: Matrix
    covariance: Matrix

    def block(self, own: slice) -> Moments:
        """Those of some columns."""
        return Moments(self.n, self.mean[own], self.halves[:, own], self.covariance[own, own])


def moments(chunks: Iterable[tuple[Matrix, Vector | None]]) -> Moments:
    """Of chunks of rows (rows, q) with weights (rows,); None: all 1."""
    first = True
    for rows, weights in chunks:
        if first:
            q = rows.shape[1]
            origin = rows.mean(axis=0)  # numbers are summed relative to it, to keep their digits
            n, total = 0, np.zeros(2)
            sums, squares = np.zeros((2, q)), np.zeros((q, q))
            lines, square_total = np.zeros(q), 0.0
            first = False
        h = np.ones(len(rows)) if weights is None else weights
        centred = rows - origin
        for half in range(2):
            own = slice((half + n) % 2, None, 2)
            sums[half] += h[own] @ centred[own]
            total[half] += h[own].sum()
        scaled = centred * h[:, None]
        squares += scaled.T @ scaled
        lines += h @ scaled
        square_total += float(h @ h)
        n += len(rows)
    whole = total.sum()
    mean = sums.sum(axis=0) / whole
    # Sum of h^2 (u - mean)(u - mean)', times n over the square of the sum of h.
    crossed = np.outer(lines, mean)
    spread = squares - crossed - crossed.T + square_total * np.outer(mean, mean)
    halves = sums / np.maximum(total, 1e-300)[:, None]
    if n < 2:
        halves = np.broadcast_to(mean, halves.shape)
    return Moments(n, origin + mean, origin + halves, spread * (n / whole**2))


ESTIMATORS = ("ips", "snips", "dr")

Target = Callable[[slice, ContextPart], Matrix]
"""Probabilities (rows, K) of a policy for the decisions of a span, whose contexts are the part."""

_LEAST = 0.1  # of the mean square of weights under uniform choices
_RARE = 10.0  # decisions that differ, below which the size of an event is not known
_TREND, _SURE = 40, 4.0  # decisions of a trend, and standard errors that it must have
_ROUNDING = 1e-12  # relative, of numbers that are equal
_FIRST, _GROWTH = 50, 1.25  # decisions of the first block, and how blocks of equal weight grow


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
    def of(cls, w: Vector, drift: float = 1.0) -> Weights:
        total, square = float(w.sum()), float(w @ w)
        mean = total / w.size
        spread = max(square / w.size - mean * mean, 0.0)
        ess = total * total / square if square > 0.0 else 0.0
        largest = float(w.max())
        error = float(np.sqrt(spread / w.size))
        share = largest / total if total > 0.0 else 0.0
        gap = np.abs(w - mean)
        cubes = float((gap**3).sum())
        heavy = float(gap @ gap) ** 3 / cubes**2 if cubes > 0.0 else float(w.size)
        return cls(w.size, ess, mean, error, largest, share, heavy, drift)


@dataclass(frozen=True)
class EstimatorRows:
    """Rows in chunks, and what is made of their mean.

    chunks: a function that yields them, (rows, q); different: how many decisions have an unusual
    reward, (D,); stabilised: stabilising weights (n,); finish: mean (q,) -> estimate (D,);
    jacobian: of it at a mean, (D, q)
    """

    chunks: Callable[[], Iterator[Matrix]]
    weights: Weights
    different: Vector
    stabilised: Vector | None = None
    finish: Callable[[Vector], Vector] = lambda mean: mean
    jacobian: Callable[[Vector], Matrix] = lambda mean: np.eye(mean.size)

    def weighted(self) -> Iterator[tuple[Matrix, Vector | None]]:
        """The chunks, each with its stabilising weights; None: all 1."""
        start = 0
        for chunk in self.chunks():
            stop = start + len(chunk)
            yield chunk, None if self.stabilised is None else self.stabilised[start:stop]
            start = stop


def arm_rows(
    choices: LoggedArms,
    target: Target,
    estimator: str,
    predict: Callable[[slice, ContextPart], Cube] | None,
    stabilised: bool = False,
) -> EstimatorRows:
    """The rows of an estimator; predict: the rewards (rows, K, D) of all arms, for "dr" only."""
    w = np.empty(choices.n)
    for span, part in choices.spans():
        pi = target(span, part)
        w[span] = pi[np.arange(part.n), choices.actions[span]] / choices.probability[span]
    if not w.any():
        raise InvalidInput(
            "no action that was logged has a positive probability under the policy: there is no "
            "overlap, and nothing is known about it"
        )
    n = choices.problem.n_objectives
    drift = 1.0 if stabilised else _drift(choices.probability[w > 0.0])
    h = _stabilising(choices, target, w) if stabilised else None

    def rows() -> Iterator[Matrix]:
        for span, part in choices.spans():
            own, rewards = w[span, None], choices.rewards[span]
            if predict is not None:
                pi, q = target(span, part), predict(span, part)
                there = q[np.arange(part.n), choices.actions[span]]
                yield np.einsum("nk,nkd->nd", pi, q) + own * (rewards - there)
            else:
                yield own * rewards if estimator == "ips" else np.hstack([own * rewards, own])

    whole = EstimatorRows(rows, Weights.of(w, drift), different(w, choices.rewards), h)
    if estimator != "snips":
        return whole

    def ratio(mean: Vector) -> Vector:
        return np.asarray(mean[:n] / mean[n])

    def slopes(mean: Vector) -> Matrix:
        return np.asarray(np.hstack([np.eye(n), -ratio(mean)[:, None]]) / mean[n])

    return replace(whole, finish=ratio, jacobian=slopes)


def logged_rows(data: LoggedArms | LoggedRankings) -> EstimatorRows:
    """What was earned, as it was earned."""
    totals = data.totals()
    ones, m = np.ones(data.n), data.problem.n_items or 0
    seen = different(ones, totals[:, m:], m)
    return EstimatorRows(lambda: (totals[span] for span in data.chunks()), Weights.of(ones), seen)


def _drift(p: Vector) -> float:
    """By which factor logged probabilities changed from the first third to the last; 1.0 where no
    trend is certain.
    """
    logs, time = np.log(p), np.arange(p.size) - 0.5 * (p.size - 1)
    spread = float(logs.std() * time.std())
    if p.size < _TREND or spread <= 1e-9:
        return 1.0
    if abs(float(logs @ time)) <= _SURE * np.sqrt(p.size) * spread:
        return 1.0
    third = p.size // 3
    return float(np.exp(logs[-third:].mean() - logs[:third].mean()))


def sampled(rows: EstimatorRows, problem: Problem) -> Sampled:
    """The estimate; the problem declares the ranges of the rewards."""
    return _sampled(rows, moments(rows.weighted()), problem)


def joint(
    first: EstimatorRows, second: EstimatorRows, problem: Problem
) -> tuple[Sampled, Sampled, Matrix]:
    """Two estimates on the same decisions, and their covariance (2 D, 2 D)."""

    def both() -> Iterator[tuple[Matrix, Vector | None]]:
        pairs = zip(first.weighted(), second.chunks(), strict=True)
        for (one, h), other in pairs:
            yield np.hstack([one, other]), h

    stats = moments(both())
    cut = next(first.chunks()).shape[1]
    maps = [
        rows.jacobian(mean)
        for rows, mean in ((first, stats.mean[:cut]), (second, stats.mean[cut:]))
    ]
    zeros = [np.zeros((len(maps[0]), maps[1].shape[1])), np.zeros((len(maps[1]), cut))]
    slope = np.block([[maps[0], zeros[0]], [zeros[1], maps[1]]])
    parts = [
        _sampled(rows, stats.block(own), problem)
        for rows, own in ((first, slice(0, cut)), (second, slice(cut, None)))
    ]
    return parts[0], parts[1], slope @ stats.covariance @ slope.T


def _sampled(rows: EstimatorRows, stats: Moments, problem: Problem) -> Sampled:
    slope, z = rows.jacobian(stats.mean), rows.finish(stats.mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        halves = np.array([rows.finish(half) for half in stats.halves])
    halves = np.where(np.isfinite(halves).all(axis=1, keepdims=True), halves, z)  # of no weight
    sizes = _sizes(rows, stats.mean, slope, problem)
    return Sampled(z, slope @ stats.covariance @ slope.T, halves, stats.n, sizes)


def _sizes(rows: EstimatorRows, mean: Vector, slope: Matrix, problem: Problem) -> Vector:
    """The size (D,) of an event: |sum u^3|/sum u^2, u the influence of a row on the estimate. Where
    few rewards differ it is not known, and is at least what a whole range changes.
    """
    squares, cubes = np.zeros(len(slope)), np.zeros(len(slope))
    scale = 1.0 if rows.stabilised is None else 1.0 / float(rows.stabilised.mean())
    for chunk, h in rows.weighted():
        u = (chunk - mean) @ slope.T
        if h is not None:
            u *= scale * h[:, None]
        square = u * u
        squares += square.sum(axis=0)
        cubes += (square * u).sum(axis=0)
    sizes = np.divide(np.abs(cubes), squares, out=np.zeros(len(slope)), where=squares > 0.0)
    most = rows.weights.typical * (problem.high - problem.low)
    return np.where(rows.different < _RARE, np.maximum(sizes, most), sizes)


def different(w: Vector, rewards: Matrix, n_items: int = 0) -> Vector:
    """The effective number (D,) of decisions, with weights w (n,), whose reward is not the usual
    one (the median): for a reward that is 0 or 1, how often it was the rarer of the two.

    Infinity for the exposures of items, which come first: which items a policy shows is known.
    """
    numbers = [np.inf] * n_items
    for reward in rewards[w > 0.0].T:
        median = float(np.median(reward))
        own = w[w > 0.0][np.abs(reward - median) > _ROUNDING * abs(median)]
        numbers.append(float(own.sum()) ** 2 / float(own @ own) if own.size else 0.0)
    return np.array(numbers)


def _stabilising(choices: LoggedArms, target: Target, w: Vector) -> Vector:
    """Weights h_t in the order of the log that even out the variance, for adaptive logging: one
    over the root of the mean square of w in the later half of what came before, so that h_t depends
    on the past only and means stay unbiased.

    Blocks of equal h_t grow with time. The first has the mean square that uniform choices would
    have. Where whole distributions were logged, E[w^2 | x] = sum_a pi(a | x)^2/p(a | x) is known,
    and replaces w^2, which is noisy.

    Reference: the idea of Hadad et al., PNAS 2021, for policies of contexts and blocks of time.
    """
    squares, uniform = w * w, np.empty(w.size)
    for (span, part), known in zip(choices.spans(), choices.distribution, strict=True):
        square = target(span, part) ** 2
        uniform[span] = part.allowed().sum(axis=1) * square.sum(axis=1)
        if known is not None:
            p = np.where(known > 0.0, known, 1.0)
            full = ~np.isnan(known).any(axis=1) & ~((square > 0.0) & (known <= 0.0)).any(axis=1)
            squares[span] = np.where(full, (square / p).sum(axis=1), squares[span])
    h, before = np.empty(w.size), float(uniform.mean())
    least, start = _LEAST * before, 0
    while start < w.size:
        stop = max(start + _FIRST, int(start * _GROWTH))
        h[start:stop] = 1.0 / np.sqrt(before)
        start = min(stop, w.size)
        before = max(float(squares[start // 2 : start].mean()), least)
    return h
