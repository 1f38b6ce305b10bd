"""Compiled building blocks over plain arrays: vectors, and ridge regression with D outputs.

A design may be split into blocks that share nothing (PerArm contexts): arrays then have a leading
axis of blocks, and arm a uses block a; an ordinary design is a single block for all arms.
"""

from __future__ import annotations

import numpy as np

from fairwolfe.core.arrays import Cube, Matrix, Vector
from fairwolfe.kernels.compile import distinct, fma, kernel, layer, part, row

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
    "predict",
    "predictions",
    "refresh",
    "row_products",
    "scores",
    "widths",
]

# Places in the `counters` of a linear state. They are an array written by the kernels, so that an
# interrupt between two lines of Python can never separate a state from its counters.
# The drift is that of the last refresh; a status of 1: the last observation was rejected.
UPDATES, LOG_DET, SINCE_REFRESH, DRIFT, STATUS = 0, 1, 2, 3, 4

_ROUNDING = 2.0**-52

# An exact refresh of d = 100 takes half a millisecond: 0.05 us a step.
REFRESH_EVERY = 10_000


@kernel(signature="void(float64, float64[::1], float64[::1])")
def add_scaled(scale: float, x: Vector, out: Vector) -> None:
    """out += scale x; the two arrays must not overlap. x, out (n,)."""
    distinct()
    for i in range(x.size):
        out[i] = fma(scale, x[i], out[i])


@kernel
def combine_rows(weights: Vector, rows: Matrix, out: Vector) -> None:
    """out = sum_i weights_i rows_i. weights (n,), rows (n, d), out (d,)."""
    for j in range(out.size):
        out[j] = 0.0
    for i in range(weights.size):
        for j in range(out.size):
            out[j] = fma(weights[i], rows[i, j], out[j])


@kernel
def row_products(rows: Matrix, x: Vector, out: Vector) -> None:
    """out[a] = <rows_a, x>, four rows at a time: a single sum waits for its own additions.

    rows (n, d), x (d,), out (n,).
    """
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
def scores(direction: Vector, theta: Cube, features: Matrix, per_arm: bool, out: Vector) -> None:
    """out[a] = <direction, theta x_a>: the estimated scalar reward of each arm.

    direction (rewards,), theta (blocks, rewards, features), features (arms or 1, features),
    out (arms,).
    """
    combined = np.empty(theta.shape[2])
    if per_arm:
        for a in range(out.size):
            combine_rows(direction, layer(theta, a), combined)
            row_products(features, combined, part(out, a, 1))
    else:
        combine_rows(direction, layer(theta, 0), combined)
        row_products(features, combined, out)


@kernel(
    signature="void(float64[:, :, ::1], float64[:, ::1], boolean, float64[::1], float64[::1], "
    "float64[:, ::1])"
)
def predictions(
    theta: Cube, features: Matrix, per_arm: bool, low: Vector, high: Vector, out: Matrix
) -> None:
    """out[a] = theta x_a, every output projected on its range (infinite: left alone).

    theta (blocks, rewards, features), features (arms or 1, features), low, high (rewards,),
    out (arms, rewards).
    """
    for a in range(out.shape[0]):
        predict(theta, features, per_arm, a, low, high, row(out, a, out.shape[1]))


@kernel
def predict(
    theta: Cube, features: Matrix, per_arm: bool, arm: int, low: Vector, high: Vector, out: Vector
) -> None:
    """The same for one arm.

    theta (blocks, rewards, features), features (arms or 1, features), low, high, out (rewards,).
    """
    block, place = (arm, 0) if per_arm else (0, arm)
    for i in range(out.size):
        total = 0.0
        for j in range(features.shape[1]):
            total = fma(theta[block, i, j], features[place, j], total)
        out[i] = min(max(total, low[i]), high[i])


@kernel(signature="void(float64[:, :, ::1], float64[:, ::1], boolean, float64[::1])")
def widths(inverse: Cube, features: Matrix, per_arm: bool, out: Vector) -> None:
    """out[a] = |x_a| in the norm of the inverse design.

    inverse (blocks, features, features), features (arms or 1, features), out (arms,).
    """
    n, d = out.size, inverse.shape[1]
    if per_arm:
        for a in range(n):
            out[a] = np.sqrt(max(_form(layer(inverse, a), row(features, 0, d)), 0.0))
        return
    # Arms as the inner axis: the loops below are long enough to be vectorised.
    turned = np.empty((d, n))
    for j in range(d):
        for a in range(n):
            turned[j, a] = features[a, j]
    _forms(layer(inverse, 0), turned, np.empty(n), out)


@kernel
def _form(matrix: Matrix, x: Vector) -> float:
    """x' matrix x. matrix (d, d), x (d,)."""
    total = 0.0
    for i in range(x.size):
        inner = 0.0
        for j in range(x.size):
            inner = fma(matrix[i, j], x[j], inner)
        total = fma(x[i], inner, total)
    return total


@kernel
def _forms(matrix: Matrix, turned: Matrix, inner: Vector, out: Vector) -> None:
    """out[a] = |x_a| in the norm of the matrix; turned: the x_a as columns.

    matrix (d, d), turned (d, arms), inner, out (arms,).
    """
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


@kernel
def absorb(
    x: Vector,
    reward: Vector,
    gram: Matrix,
    inverse: Matrix,
    theta: Matrix,
    moment: Matrix,
    counters: Vector,
) -> bool:
    """Ridge regression takes an observation.

    False, and nothing is written, where the result would not be numbers.

    With A = V^-1: m = 1 + x' A x, y = A x/sqrt m; then A -= y y' (exactly symmetric),
    ln det V += ln m, and theta += (reward - theta x)/sqrt m y'. V itself is kept too, for the exact
    refresh.

    x (features,), reward (rewards,), gram, inverse (features, features), theta,
    moment (rewards, features), counters (5,).
    """
    distinct()
    d, n = x.size, reward.size
    turned, error = np.empty(d), np.empty(n)
    for j in range(d):
        turned[j] = 0.0
    for i in range(d):
        for j in range(d):
            turned[j] = fma(x[i], inverse[i, j], turned[j])
    pivot = 1.0
    for j in range(d):
        pivot = fma(turned[j], x[j], pivot)
    pivot = np.sqrt(pivot)
    for j in range(d):
        turned[j] /= pivot
    doubt = np.log(pivot)  # a NaN or an infinity in any of these is one in the sum
    for i in range(n):
        total = reward[i]
        for j in range(d):
            total = fma(-theta[i, j], x[j], total)
        error[i] = total / pivot
        doubt += error[i]
    if not np.isfinite(doubt):
        return False
    _apply(x, reward, turned, error, gram, inverse, theta, moment)
    counters[LOG_DET] += 2.0 * np.log(pivot)
    counters[UPDATES] += 1.0
    counters[SINCE_REFRESH] += 1.0
    return True


@kernel
def _apply(
    x: Vector,
    reward: Vector,
    turned: Vector,
    error: Vector,
    gram: Matrix,
    inverse: Matrix,
    theta: Matrix,
    moment: Matrix,
) -> None:
    """What `absorb` writes; turned: y; error: (reward - theta x)/sqrt m.

    x, turned (features,), reward, error (rewards,), gram, inverse (features, features), theta,
    moment (rewards, features).
    """
    distinct()
    d = x.size
    for i in range(d):
        for j in range(d):
            inverse[i, j] = fma(-turned[i], turned[j], inverse[i, j])
            gram[i, j] = fma(x[i], x[j], gram[i, j])
    for i in range(reward.size):
        for j in range(d):
            theta[i, j] = fma(error[i], turned[j], theta[i, j])
            moment[i, j] = fma(reward[i], x[j], moment[i, j])


@kernel(
    signature="void(float64[:, :, ::1], float64[:, :, ::1], float64[:, :, ::1], "
    "float64[:, :, ::1], float64, float64[::1])"
)
def refresh(
    gram: Cube, inverse: Cube, theta: Cube, moment: Cube, ridge: float, counters: Vector
) -> None:
    """Recompute V^-1, theta and ln det V/det V_0 from V; note how far the kept inverse was off.

    The drift is max |A_ij - A'_ij| / sqrt(A_ii A_jj). Where rounding has left V not positive
    definite, its diagonal is lifted until it is: by the unit of rounding first, then by ten times
    as much, and so on. Status 1: V is not finite numbers; its block is left as it was.

    gram, inverse (blocks, features, features), theta, moment (blocks, rewards, features),
    counters (5,).
    """
    distinct()
    blocks, d = gram.shape[0], gram.shape[1]
    lower, half, fresh = np.empty((d, d)), np.empty((d, d)), np.empty((d, d))
    counters[STATUS] = 0.0
    worst, log_det = 0.0, 0.0
    for b in range(blocks):
        if not _factor(layer(gram, b), lower):
            counters[STATUS] = 1.0
            return
        for i in range(d):  # half = L^-1
            log_det += 2.0 * np.log(lower[i, i]) - np.log(ridge)
            for j in range(d):
                half[i, j], fresh[i, j] = 0.0, 0.0
            half[i, i] = 1.0 / lower[i, i]
            for k in range(i):
                scale = -lower[i, k] * half[i, i]
                for j in range(k + 1):
                    half[i, j] = fma(scale, half[k, j], half[i, j])
        for k in range(d):  # fresh = half' half, exactly symmetric
            for i in range(k + 1):
                for j in range(k + 1):
                    fresh[i, j] = fma(half[k, i], half[k, j], fresh[i, j])
        for i in range(d):
            for j in range(d):
                drift = abs(inverse[b, i, j] - fresh[i, j]) / np.sqrt(fresh[i, i] * fresh[j, j])
                worst = max(worst, drift if drift >= 0.0 else np.inf)  # of a NaN, the latter
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
    """`cholesky`, of the matrix with its diagonal lifted, in place, by as little as it takes.

    matrix, lower (d, d).
    """
    if cholesky(matrix, lower):
        return True
    largest, doubt = 0.0, 0.0
    for i in range(matrix.shape[0]):
        largest = max(largest, abs(matrix[i, i]))
        for j in range(matrix.shape[0]):
            doubt += matrix[i, j]
    if not np.isfinite(doubt):
        return False
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
    """lower lower' = matrix; False where it is not positive definite (or not a number).

    matrix, lower (d, d).
    """
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
