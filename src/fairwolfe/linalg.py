"""Compiled building blocks over plain arrays: vectors, and ridge regression with D outputs.

A design may be split into blocks that share nothing (PerArm contexts): arrays then have a leading
axis of blocks, and arm a uses block a; an ordinary design is a single block for all arms.
"""

from __future__ import annotations

import numpy as np

from fairwolfe._compile import distinct, fma, kernel
from fairwolfe.protocols import Matrix, Vector

__all__ = [
    "DRIFT",
    "LOG_DET",
    "REFRESH_EVERY",
    "SINCE_REFRESH",
    "STATUS",
    "UPDATES",
    "absorb",
    "add_scaled",
    "cholesky",
    "combine_rows",
    "predictions",
    "refresh",
    "row_products",
    "scores",
    "widths",
]

# Places in the `counters` of a linear state. They are an array written by the kernels, so that an
# interrupt between two lines of Python can never separate a state from its counters.
# DRIFT is of the last refresh; STATUS 1 says that the last observation was refused.
UPDATES, LOG_DET, SINCE_REFRESH, DRIFT, STATUS = 0, 1, 2, 3, 4

_ROUNDING = 2.0**-52

# An exact refresh of d = 100 takes half a millisecond: 0.05 us a step.
REFRESH_EVERY = 10_000


@kernel(signature="void(float64, float64[::1], float64[::1])")
def add_scaled(scale: float, x: Vector, out: Vector) -> None:
    """out += scale x; the two arrays must not overlap."""
    distinct()
    for i in range(x.size):
        out[i] = fma(scale, x[i], out[i])


@kernel
def combine_rows(weights: Vector, rows: Matrix, out: Vector) -> None:
    """out = sum_i weights_i rows_i."""
    out[:] = 0.0
    for i in range(weights.size):
        for j in range(out.size):
            out[j] = fma(weights[i], rows[i, j], out[j])


@kernel
def row_products(rows: Matrix, x: Vector, out: Vector) -> None:
    """out[a] = <rows_a, x>, four rows at a time: a single sum waits for its own additions."""
    n, d = rows.shape
    whole = n - n % 4
    for a in range(0, whole, 4):
        p, q, r, s = 0.0, 0.0, 0.0, 0.0
        for j in range(d):
            p = fma(x[j], rows[a, j], p)
            q = fma(x[j], rows[a + 1, j], q)
            r = fma(x[j], rows[a + 2, j], r)
            s = fma(x[j], rows[a + 3, j], s)
        out[a], out[a + 1], out[a + 2], out[a + 3] = p, q, r, s
    for a in range(whole, n):
        total = 0.0
        for j in range(d):
            total = fma(x[j], rows[a, j], total)
        out[a] = total


@kernel(signature="void(float64[::1], float64[:, :, ::1], float64[:, ::1], boolean, float64[::1])")
def scores(direction: Vector, theta: Matrix, features: Matrix, per_arm: bool, out: Vector) -> None:
    """out[a] = <direction, theta x_a>: the estimated scalar reward of each arm."""
    combined = np.empty(theta.shape[2])
    if per_arm:
        for a in range(out.size):
            combine_rows(direction, theta[a], combined)
            row_products(features, combined, out[a : a + 1])
    else:
        combine_rows(direction, theta[0], combined)
        row_products(features, combined, out)


@kernel(
    signature="void(float64[:, :, ::1], float64[:, ::1], boolean, float64[::1], float64[::1], "
    "float64[:, ::1])"
)
def predictions(
    theta: Matrix, features: Matrix, per_arm: bool, low: Vector, high: Vector, out: Matrix
) -> None:
    """out[a] = theta x_a, every output projected on its range (infinite: left alone)."""
    for a in range(out.shape[0]):
        block = theta[a if per_arm else 0]
        x = features[0 if per_arm else a]
        for i in range(block.shape[0]):
            total = 0.0
            for j in range(x.size):
                total = fma(block[i, j], x[j], total)
            out[a, i] = min(max(total, low[i]), high[i])


@kernel(signature="void(float64[:, :, ::1], float64[:, ::1], boolean, float64[::1])")
def widths(inverse: Matrix, features: Matrix, per_arm: bool, out: Vector) -> None:
    """out[a] = |x_a| in the norm of the inverse design."""
    n, d = out.size, inverse.shape[1]
    if per_arm:
        for a in range(n):
            out[a] = np.sqrt(max(_form(inverse[a], features[0]), 0.0))
        return
    # Arms as the inner axis: the loops below are long enough to be vectorised.
    turned = np.empty((d, n))
    for j in range(d):
        for a in range(n):
            turned[j, a] = features[a, j]
    _forms(inverse[0], turned, np.empty(n), out)


@kernel
def _form(matrix: Matrix, x: Vector) -> float:
    total = 0.0
    for i in range(x.size):
        inner = 0.0
        for j in range(x.size):
            inner = fma(matrix[i, j], x[j], inner)
        total = fma(x[i], inner, total)
    return total


@kernel
def _forms(matrix: Matrix, turned: Matrix, inner: Vector, out: Vector) -> None:
    distinct()
    d, n = turned.shape
    for a in range(n):
        out[a] = 0.0
    for i in range(d):
        for a in range(n):
            inner[a] = 0.5 * matrix[i, i] * turned[i, a]
        for j in range(i):
            for a in range(n):
                inner[a] = fma(matrix[i, j], turned[j, a], inner[a])
        for a in range(n):
            out[a] = fma(2.0 * turned[i, a], inner[a], out[a])
    for a in range(n):
        out[a] = np.sqrt(max(out[a], 0.0))


@kernel(
    signature="boolean(float64[:, ::1], float64[:, ::1], float64[:, ::1], float64[:, ::1], "
    "float64[:, ::1], float64[:, ::1], float64[::1])"
)
def absorb(
    features: Matrix,
    rewards: Matrix,
    gram: Matrix,
    inverse: Matrix,
    theta: Matrix,
    moment: Matrix,
    counters: Vector,
) -> bool:
    """Ridge regression takes r observations: features (r, d), rewards (r, D).

    False, and nothing is written, where the result would not be numbers.

    With X the features and A = V^-1: M = I + X A X' = L L', Y = L^-1 X A; then A -= Y'Y (exactly
    symmetric), ln det V += ln det M, and theta += (R - X theta')' M^-1 X A. One pass over A
    whatever r is. V itself is kept too, for the exact refresh.
    """
    r, d = features.shape
    turned = np.zeros((r, d))  # X A, then L^-1 X A
    system = np.empty((r, r))  # M, then L
    error = np.empty((r, theta.shape[0]))
    for k in range(r):
        for i in range(d):
            for j in range(d):
                turned[k, j] = fma(features[k, i], inverse[i, j], turned[k, j])
    for k in range(r):
        for m in range(k + 1):
            total = 1.0 if k == m else 0.0
            for j in range(d):
                total = fma(turned[k, j], features[m, j], total)
            system[k, m] = total
        for i in range(theta.shape[0]):
            total = rewards[k, i]
            for j in range(d):
                total = fma(-theta[i, j], features[k, j], total)
            error[k, i] = total
    # Cholesky, carrying the right-hand sides along: X A becomes L^-1 X A, the errors likewise.
    log_det, doubt = 0.0, 0.0  # a NaN or an infinity in what is added is one in the sum
    for k in range(r):
        for m in range(k + 1):
            total = system[k, m]
            for p in range(m):
                total = fma(-system[k, p], system[m, p], total)
            system[k, m] = np.sqrt(total) if k == m else total / system[m, m]
        pivot = system[k, k]
        for m in range(k):
            for j in range(d):
                turned[k, j] = fma(-system[k, m], turned[m, j], turned[k, j])
            for i in range(theta.shape[0]):
                error[k, i] = fma(-system[k, m], error[m, i], error[k, i])
        for j in range(d):
            turned[k, j] /= pivot
        for i in range(theta.shape[0]):
            error[k, i] /= pivot
            doubt += error[k, i]
        log_det += 2.0 * np.log(pivot)
        doubt += log_det
    if not np.isfinite(doubt):
        return False
    _apply(features, rewards, turned, error, gram, inverse, theta, moment)
    counters[LOG_DET] += log_det
    counters[UPDATES] += r
    counters[SINCE_REFRESH] += r
    return True


@kernel
def _apply(
    features: Matrix,
    rewards: Matrix,
    turned: Matrix,
    error: Matrix,
    gram: Matrix,
    inverse: Matrix,
    theta: Matrix,
    moment: Matrix,
) -> None:
    distinct()
    r, d = features.shape
    for k in range(r):
        for i in range(d):
            for j in range(d):
                inverse[i, j] = fma(-turned[k, i], turned[k, j], inverse[i, j])
                gram[i, j] = fma(features[k, i], features[k, j], gram[i, j])
        for i in range(theta.shape[0]):
            for j in range(d):
                theta[i, j] = fma(error[k, i], turned[k, j], theta[i, j])
                moment[i, j] = fma(rewards[k, i], features[k, j], moment[i, j])


@kernel(
    signature="void(float64[:, :, ::1], float64[:, :, ::1], float64[:, :, ::1], "
    "float64[:, :, ::1], float64, float64[::1])"
)
def refresh(
    gram: Matrix, inverse: Matrix, theta: Matrix, moment: Matrix, ridge: float, counters: Vector
) -> None:
    """Recompute V^-1, theta and ln det V/det V_0 from V; note how far the kept inverse was off.

    The drift is max |A_ij - A'_ij| / sqrt(A_ii A_jj). Where rounding has left V not positive
    definite, its diagonal is lifted until it is: by the unit of rounding first, then by ten times
    as much, and so on. Status 1 says that V is not made of numbers: then nothing is written.
    """
    blocks, d = gram.shape[0], gram.shape[1]
    lower = np.empty((d, d))
    fresh = np.empty((d, d))
    counters[STATUS] = 0.0
    worst, log_det = 0.0, 0.0
    for b in range(blocks):
        if not _factor(gram[b], lower):
            counters[STATUS] = 1.0
            return
    for b in range(blocks):
        _factor(gram[b], lower)
        for i in range(d):
            log_det += 2.0 * np.log(lower[i, i]) - np.log(ridge)
        _inverse_from_cholesky(lower, fresh)
        for i in range(d):
            for j in range(d):
                drift = abs(inverse[b, i, j] - fresh[i, j]) / np.sqrt(fresh[i, i] * fresh[j, j])
                if not drift <= worst:
                    worst = drift
        for i in range(d):
            for j in range(d):
                inverse[b, i, j] = fresh[i, j]
        for o in range(theta.shape[1]):
            for i in range(d):
                theta[b, o, i] = 0.0
            for j in range(d):
                for i in range(d):
                    theta[b, o, i] = fma(fresh[j, i], moment[b, o, j], theta[b, o, i])
    counters[LOG_DET] = log_det
    counters[DRIFT] = worst
    counters[SINCE_REFRESH] = 0.0


@kernel
def _factor(matrix: Matrix, lower: Matrix) -> bool:
    """`cholesky`, of the matrix with its diagonal lifted, in place, by as little as it takes."""
    if cholesky(matrix, lower):
        return True
    largest = 0.0
    for i in range(matrix.shape[0]):
        largest = max(largest, abs(matrix[i, i]))
    lift = _ROUNDING * largest
    for _ in range(16):
        for i in range(matrix.shape[0]):
            matrix[i, i] += lift
        if cholesky(matrix, lower):
            return True
        lift *= 10.0
    return False


@kernel
def cholesky(matrix: Matrix, lower: Matrix) -> bool:
    """lower lower' = matrix; False where it is not positive definite (or not a number)."""
    for i in range(matrix.shape[0]):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total = fma(-lower[i, k], lower[j, k], total)
            if i > j:
                lower[i, j] = total / lower[j, j]
            elif total > 0.0:
                lower[i, i] = np.sqrt(total)
            else:
                return False
    return True


@kernel
def _inverse_from_cholesky(lower: Matrix, out: Matrix) -> None:
    """out = (L L')^-1, exactly symmetric."""
    d = lower.shape[0]
    half = np.zeros((d, d))  # L^-1
    for i in range(d):
        half[i, i] = 1.0 / lower[i, i]
        for k in range(i):
            scale = -lower[i, k] * half[i, i]
            for j in range(k + 1):
                half[i, j] = fma(scale, half[k, j], half[i, j])
    out[:, :] = 0.0
    for k in range(d):
        for i in range(k + 1):
            for j in range(k + 1):
                out[i, j] = fma(half[k, i], half[k, j], out[i, j])
