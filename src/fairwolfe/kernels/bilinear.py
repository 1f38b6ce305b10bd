"""Ridge regression on x_i = user (x) item_i, without ever forming x_i.

The design V is of size d = p q, features (a, b) at place a q + b. One contraction of
V^-1 with the user, B = (u (x) I)' V^-1, gives everything that a round needs: the q x q matrix
C = B (u (x) I) in whose norm items have their widths, and the rows X V^-1 of an update. Features
that are not a product are the case p = 1, user = (1).

The small sizes q and r reach the compiler as the length of a tuple: plain loops over them are
unrolled, and the loops over items or columns around them vectorised.
"""

from __future__ import annotations

import numpy as np

from fairwolfe.core.arrays import Cube, Matrix, Vector
from fairwolfe.kernels.compile import (
    Kernel,
    data_of,
    distinct,
    fma,
    function_at,
    kernel,
    matrix_at,
)
from fairwolfe.kernels.linalg import (
    LOG_DET,
    REFRESH_EVERY,
    SINCE_REFRESH,
    STATUS,
    UPDATES,
    cholesky,
    refresh,
)

__all__ = [
    "ROUNDS",
    "absorb_items",
    "call_absorb",
    "call_estimates",
    "contract_twice",
    "contract_user",
    "estimates_of",
    "remember",
    "square_of",
    "turn_parameters",
]


@kernel
def contract_user(user: Vector, inverse: Matrix, out: Matrix) -> None:
    """B = (u (x) I)' V^-1: V^-1 read as p rows of length q d, summed with weights u.

    user (p,), inverse (p q, p q), out (q, p q).
    """
    distinct()
    p, q, d = user.size, out.shape[0], out.shape[1]
    rows = inverse.reshape((p, q * d))
    total = out.reshape(q * d)
    for j in range(total.size):
        total[j] = user[0] * rows[0, j]
    for a in range(1, p):
        for j in range(total.size):
            total[j] = fma(user[a], rows[a, j], total[j])


@kernel
def contract_twice(user: Vector, contracted: Matrix, out: Matrix) -> None:
    """C = B (u (x) I). user (p,), contracted (q, p q), out (q, q)."""
    distinct()
    q = out.shape[0]
    for b in range(q):
        for e in range(q):
            out[b, e] = 0.0
    for a in range(user.size):  # outside: the sums of one b would wait for each other
        for b in range(q):
            part = contracted[b, a * q : (a + 1) * q]
            for e in range(q):
                out[b, e] = fma(user[a], part[e], out[b, e])


@kernel
def turn_parameters(user: Vector, theta: Matrix, out: Matrix) -> None:
    """theta_r for the user: the estimate of reward r of item i is <out_r, item_i>.

    user (p,), theta (rewards, p q), out (rewards, q).
    """
    q = out.shape[1]
    for r in range(out.shape[0]):
        for e in range(q):
            out[r, e] = 0.0
        for a in range(user.size):
            for e in range(q):
                out[r, e] = fma(user[a], theta[r, a * q + e], out[r, e])


ESTIMATES = "void(float64[::1], float64[:, ::1], float64[:, ::1], float64[::1], float64[::1])"
"""(turned, metric, items, value out, width out): value_i = <turned, item_i>, width_i = |item_i| in
the metric; items are columns, (q, n)."""

call_estimates = function_at(ESTIMATES)


def estimates_of(q: int) -> Kernel[..., None]:
    """The kernel for items of q features: compiled for this size where it is used."""
    return _SIZES.get(q, _of_any_size)


@kernel
def _estimates(
    size: tuple[int, ...],
    turned: Vector,
    metric: Matrix,
    items: Matrix,
    value: Vector,
    width: Vector,
) -> None:
    """The sums of ESTIMATES, unrolled for q = len(size).

    turned (q,), metric (q, q), items (q, n), value, width (n,).
    """
    distinct()
    for i in range(value.size):
        mean, square = 0.0, 0.0
        for b in range(len(size)):
            inner = 0.5 * metric[b, b] * items[b, i]
            for e in range(b):
                inner = fma(metric[b, e], items[e, i], inner)
            square = fma(items[b, i], inner, square)
            mean = fma(turned[b], items[b, i], mean)
        value[i] = mean
        width[i] = np.sqrt(max(2.0 * square, 0.0))


@kernel
def _row_by_row(
    turned: Vector, metric: Matrix, items: Matrix, inner: Vector, value: Vector, width: Vector
) -> None:
    """The same sums for sizes that the compiler does not unroll: one row of items at a time.

    turned (q,), metric (q, q), items (q, n), inner, value, width (n,).
    """
    distinct()
    n = value.size
    for i in range(n):
        value[i], width[i] = 0.0, 0.0
    for b in range(items.shape[0]):
        for i in range(n):
            inner[i] = 0.5 * metric[b, b] * items[b, i]
        for e in range(b):
            for i in range(n):
                inner[i] = fma(metric[b, e], items[e, i], inner[i])
        for i in range(n):
            width[i] = fma(items[b, i], inner[i], width[i])
            value[i] = fma(turned[b], items[b, i], value[i])
    for i in range(n):
        width[i] = np.sqrt(max(2.0 * width[i], 0.0))


@kernel(signature=ESTIMATES)
def _of_one(turned: Vector, metric: Matrix, items: Matrix, value: Vector, width: Vector) -> None:
    """turned (1,), metric (1, 1), items (1, n), value, width (n,)."""
    _estimates((0,), turned, metric, items, value, width)


@kernel(signature=ESTIMATES)
def _of_two(turned: Vector, metric: Matrix, items: Matrix, value: Vector, width: Vector) -> None:
    """turned (2,), metric (2, 2), items (2, n), value, width (n,)."""
    _estimates((0, 0), turned, metric, items, value, width)


@kernel(signature=ESTIMATES)
def _of_three(turned: Vector, metric: Matrix, items: Matrix, value: Vector, width: Vector) -> None:
    """turned (3,), metric (3, 3), items (3, n), value, width (n,)."""
    _estimates((0, 0, 0), turned, metric, items, value, width)


@kernel(signature=ESTIMATES)
def _of_four(turned: Vector, metric: Matrix, items: Matrix, value: Vector, width: Vector) -> None:
    """turned (4,), metric (4, 4), items (4, n), value, width (n,)."""
    _estimates((0, 0, 0, 0), turned, metric, items, value, width)


@kernel(signature=ESTIMATES)
def _of_five(turned: Vector, metric: Matrix, items: Matrix, value: Vector, width: Vector) -> None:
    """turned (5,), metric (5, 5), items (5, n), value, width (n,)."""
    _estimates((0, 0, 0, 0, 0), turned, metric, items, value, width)


@kernel(signature=ESTIMATES)
def _of_six(turned: Vector, metric: Matrix, items: Matrix, value: Vector, width: Vector) -> None:
    """turned (6,), metric (6, 6), items (6, n), value, width (n,)."""
    _estimates((0, 0, 0, 0, 0, 0), turned, metric, items, value, width)


@kernel(signature=ESTIMATES)
def _of_eight(turned: Vector, metric: Matrix, items: Matrix, value: Vector, width: Vector) -> None:
    """turned (8,), metric (8, 8), items (8, n), value, width (n,)."""
    _estimates((0, 0, 0, 0, 0, 0, 0, 0), turned, metric, items, value, width)


@kernel(signature=ESTIMATES)
def _of_ten(turned: Vector, metric: Matrix, items: Matrix, value: Vector, width: Vector) -> None:
    """turned (10,), metric (10, 10), items (10, n), value, width (n,)."""
    _estimates((0, 0, 0, 0, 0, 0, 0, 0, 0, 0), turned, metric, items, value, width)


@kernel(signature=ESTIMATES)
def _of_eleven(turned: Vector, metric: Matrix, items: Matrix, value: Vector, width: Vector) -> None:
    """turned (11,), metric (11, 11), items (11, n), value, width (n,)."""
    _estimates((0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), turned, metric, items, value, width)


@kernel(signature=ESTIMATES)
def _of_any_size(
    turned: Vector, metric: Matrix, items: Matrix, value: Vector, width: Vector
) -> None:
    """turned (q,), metric (q, q), items (q, n), value, width (n,)."""
    _row_by_row(turned, metric, items, np.empty(items.shape[1]), value, width)


_SIZES = {
    1: _of_one,
    2: _of_two,
    3: _of_three,
    4: _of_four,
    5: _of_five,
    6: _of_six,
    8: _of_eight,
    10: _of_ten,
    11: _of_eleven,
}

ABSORB = (
    "void(float64[::1], float64[:, ::1], float64[:, ::1], float64[:, ::1], float64[:, ::1], "
    "float64[:, :, ::1], float64[:, :, ::1], float64[:, :, ::1], float64[:, :, ::1], "
    "float64[::1], float64[::1])"
)

call_absorb = function_at(ABSORB, only=False)

ROUNDS = 4  # whose features V takes in one pass

_NUMBER = 8  # bytes


@kernel(signature=ABSORB)
def absorb_items(
    user: Vector,
    rows: Matrix,
    rewards: Matrix,
    contracted: Matrix,
    metric: Matrix,
    gram: Cube,
    inverse: Cube,
    theta: Cube,
    moment: Cube,
    params: Vector,
    counters: Vector,
) -> None:
    """The regression takes the r items of a round, with their rewards.

    M = I + rows C rows' = L L', Y = (L^-1 rows) B; then V^-1 -= Y'Y (exactly symmetric),
    ln det V += ln det M and theta_r += Y' L^-1 (reward_r - estimate_r). One pass over V^-1 whatever
    r is. contracted, metric: B and C of the user; params: the penalty. Refreshed exactly from
    time to time, and where the kept inverse cannot take it; what cannot be taken even then is
    rejected (see its status), and nothing has changed. Without a user it is refreshed
    only. Without V, a gram of shape (1, 0, 0), it is not refreshed, and the caller has V
    `remember` the round.

    user (p,), rows (r, q), rewards (r, R), contracted (q, d), metric (q, q), gram,
    inverse (1, d, d), theta, moment (1, R, d), params (1,), counters (5,).
    """
    counters[STATUS] = 0.0
    if user.size == 0:
        refresh(gram, inverse, theta, moment, params[0], counters)
        return
    for attempt in range(2):
        if _absorb(user, rows, rewards, contracted, metric, gram, inverse, theta, moment, counters):
            if counters[SINCE_REFRESH] >= REFRESH_EVERY and gram.shape[1] > 0:
                refresh(gram, inverse, theta, moment, params[0], counters)
            return
        if gram.shape[1] == 0:
            break
        if attempt == 0:
            refresh(gram, inverse, theta, moment, params[0], counters)
            contract_user(user, inverse[0], contracted)
            contract_twice(user, contracted, metric)
    counters[STATUS] = 1.0


@kernel
def _absorb(
    user: Vector,
    rows: Matrix,
    rewards: Matrix,
    contracted: Matrix,
    metric: Matrix,
    gram: Cube,
    inverse: Cube,
    theta: Cube,
    moment: Cube,
    counters: Vector,
) -> bool:
    """False, and nothing is written, where the result would not be numbers.

    user (p,), rows (r, q), rewards (r, R), contracted (q, d), metric (q, q), gram,
    inverse (1, d, d), theta, moment (1, R, d), counters (5,).
    """
    distinct()
    r, q = rows.shape
    n_rewards, d = theta.shape[1], inverse.shape[1]
    if r > 0:
        turned = np.empty((n_rewards, q))
        turn_parameters(user, theta[0], turned)
        system, lower = np.empty((r, r)), np.empty((r, r))
        half, error = np.empty((r, q)), np.empty((r, n_rewards))
        inner = np.empty((r, q))
        for k in range(r):
            for e in range(q):
                half[k, e] = rows[k, e]
            for b in range(q):
                total = 0.0
                for e in range(q):
                    total = fma(metric[b, e], rows[k, e], total)
                inner[k, b] = total
            for m in range(k + 1):
                total = 1.0 if k == m else 0.0
                for b in range(q):
                    total = fma(rows[k, b], inner[m, b], total)
                system[k, m] = total
            for i in range(n_rewards):
                total = rewards[k, i]
                for e in range(q):
                    total = fma(-turned[i, e], rows[k, e], total)
                error[k, i] = total
        if not cholesky(system, lower):
            return False
        log_det, doubt = 0.0, 0.0  # a NaN or an infinity in what is added is one in the sum
        for k in range(r):
            pivot = lower[k, k]
            for m in range(k):
                for e in range(q):
                    half[k, e] = fma(-lower[k, m], half[m, e], half[k, e])
                for i in range(n_rewards):
                    error[k, i] = fma(-lower[k, m], error[m, i], error[k, i])
            for e in range(q):
                half[k, e] /= pivot
            for i in range(n_rewards):
                error[k, i] /= pivot
                doubt += error[k, i]
            log_det += 2.0 * np.log(pivot)
            doubt += log_det
        if not np.isfinite(doubt):
            return False
        counters[LOG_DET] += log_det
        spread = np.empty((r, d))
        _spread(half, contracted, spread)
        done = np.int64(0)
        while done < r:
            done += _subtract(spread[done:], inverse[0])
        for i in range(n_rewards):
            for k in range(r):
                for j in range(d):
                    theta[0, i, j] = fma(error[k, i], spread[k, j], theta[0, i, j])
        _add_moments(user, rows, rewards, moment[0])
        if gram.shape[1] > 0:
            square = np.empty((1, q, q))
            square_of(rows, square[0])
            remember(user.reshape((1, user.size)), square, gram[0])
    counters[UPDATES] += r
    counters[SINCE_REFRESH] += 1.0
    return True


@kernel
def _spread(half: Matrix, contracted: Matrix, out: Matrix) -> None:
    """Y = (L^-1 rows) B. half (r, q), contracted (q, d), out (r, d)."""
    distinct()
    (r, d), q = out.shape, half.shape[1]
    whole = q - (q - 1) % 3
    for k in range(r):
        row = out[k]
        for j in range(d):
            row[j] = half[k, 0] * contracted[0, j]
        for b in range(1, whole, 3):  # three at a time: Y is then read and written less often
            x, y, z = half[k, b], half[k, b + 1], half[k, b + 2]
            first, second, third = contracted[b], contracted[b + 1], contracted[b + 2]
            for j in range(d):
                row[j] = fma(z, third[j], fma(y, second[j], fma(x, first[j], row[j])))
        for b in range(whole, q):
            for j in range(d):
                row[j] = fma(half[k, b], contracted[b, j], row[j])


@kernel
def _subtract(spread: Matrix, inverse: Matrix) -> int:
    """inverse -= Y'Y for the first few rows of Y; how many. spread (r, d), inverse (d, d)."""
    r = spread.shape[0]
    if r == 1:
        return _subtract_rows((0,), spread, inverse)
    if r == 2:
        return _subtract_rows((0, 0), spread, inverse)
    if r == 3:
        return _subtract_rows((0, 0, 0), spread, inverse)
    if r == 4:
        return _subtract_rows((0, 0, 0, 0), spread, inverse)
    if r == 5:
        return _subtract_rows((0, 0, 0, 0, 0), spread, inverse)
    return _subtract_rows((0, 0, 0, 0, 0, 0), spread, inverse)


@kernel
def _subtract_rows(size: tuple[int, ...], spread: Matrix, inverse: Matrix) -> int:
    """inverse -= Y'Y for the first len(size) rows of Y; how many.

    spread (r, d), inverse (d, d).
    """
    d = inverse.shape[0]
    half, start = d // 2, data_of(inverse)
    upper = matrix_at(start, half, d)
    lower = matrix_at(start + _NUMBER * d * (d - half), half, d)
    _subtract_pairs(size, spread, upper, lower)
    if d % 2 > 0:
        row = inverse[half]
        for j in range(d):
            total = row[j]
            for k in range(len(size)):
                total = fma(-spread[k, half], spread[k, j], total)
            row[j] = total
    return len(size)


@kernel
def _subtract_pairs(size: tuple[int, ...], spread: Matrix, upper: Matrix, lower: Matrix) -> None:
    """`_subtract_rows` for the first and the last half of V^-1, a row of each at a time: what is
    read of Y serves both.

    spread (r, d), upper, lower (d // 2, d).
    """
    distinct()
    half, d = upper.shape
    behind = d - half
    for i in range(half):
        row, other = upper[i], lower[i]
        for j in range(d):
            total, below = row[j], other[j]
            for k in range(len(size)):
                total = fma(-spread[k, i], spread[k, j], total)
                below = fma(-spread[k, behind + i], spread[k, j], below)
            row[j], other[j] = total, below


@kernel
def square_of(rows: Matrix, out: Matrix) -> None:
    """sum v v'. rows (r, q), out (q, q)."""
    distinct()
    q = out.shape[0]
    for b in range(q):
        for e in range(q):
            out[b, e] = 0.0
    for k in range(rows.shape[0]):
        for b in range(q):
            for e in range(q):
                out[b, e] = fma(rows[k, b], rows[k, e], out[b, e])


@kernel
def remember(users: Matrix, squares: Cube, gram: Matrix) -> None:
    """V += u u' (x) sum v v' for rounds in a row, for the exact refresh; `ROUNDS` of them are one
    pass over V, with the same bits.

    users (rounds, p), squares (rounds, q, q): see `square_of`; gram (p q, p q).
    """
    (n, p), q, d, start = users.shape, squares.shape[1], gram.shape[0], data_of(gram)
    half = p // 2
    upper, middle = matrix_at(start, half * q, d), start + _NUMBER * half * q * d
    lower = matrix_at(start + _NUMBER * (p - half) * q * d, half * q, d)
    rest = matrix_at(middle, (p - 2 * half) * q, d)
    wide = np.empty((ROUNDS, d))
    if n == ROUNDS:
        _remember_rounds((0, 0, 0, 0), users, squares, wide, upper, rest, lower)
    else:
        for t in range(n):
            one, square = users[t : t + 1], squares[t : t + 1]
            _remember_rounds((0,), one, square, wide, upper, rest, lower)


@kernel
def _remember_rounds(
    size: tuple[int, ...],
    users: Matrix,
    squares: Cube,
    wide: Matrix,
    upper: Matrix,
    middle: Matrix,
    lower: Matrix,
) -> None:
    """`remember`, for len(size) rounds, a row of the first and one of the last half of V at a time:
    what is read of the features serves both.

    wide (len(size) or more, p q); upper, lower (p // 2 q, p q), middle (p % 2 q, p q): parts of V.
    """
    distinct()
    p, q, half = users.shape[1], squares.shape[1], users.shape[1] // 2
    for b in range(q):
        for t in range(len(size)):  # u (x) a row of the square: every row of V is then a long sum
            for c in range(p):
                for e in range(q):
                    wide[t, c * q + e] = users[t, c] * squares[t, b, e]
        for a in range(half):
            row, other = upper[a * q + b], lower[a * q + b]
            for j in range(row.size):
                total, below = row[j], other[j]
                for t in range(len(size)):
                    total = fma(users[t, a], wide[t, j], total)
                    below = fma(users[t, p - half + a], wide[t, j], below)
                row[j], other[j] = total, below
        if p % 2 > 0:
            row = middle[b]
            for j in range(row.size):
                total = row[j]
                for t in range(len(size)):
                    total = fma(users[t, half], wide[t, j], total)
                row[j] = total


@kernel
def _add_moments(user: Vector, rows: Matrix, rewards: Matrix, moment: Matrix) -> None:
    """What the rewards add to the moments. user (p,), rows (r, q), rewards (r, R),
    moment (R, p q).
    """
    distinct()
    p, (r, q) = user.size, rows.shape
    for i in range(moment.shape[0]):
        for k in range(r):
            for a in range(p):
                scale = user[a] * rewards[k, i]
                part = moment[i, a * q : (a + 1) * q]
                for e in range(q):
                    part[e] = fma(scale, rows[k, e], part[e])
