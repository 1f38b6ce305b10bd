# cython: language_level=3, infer_types=True
"""Vectors, and linear regression with several outputs: ridge regression, online gradients.

A design may be split into blocks that share nothing (PerArm contexts): arrays then have a leading
axis of blocks, and arm a uses block a; an ordinary design is a single block for all arms.
"""

from __future__ import annotations

from typing import Any

import cython
import numpy as np

# --- vectors and matrices -------------------------------------------------------------------------


def add_rows(weights, rows, stride, out, k, n):
    """out += sum_i weights_i rows_i, summed in the order of i; four rows at a time.

    weights (k,), rows (k, stride) of which n columns are read, out (n,). Cost: k n.
    """
    whole: Size = k - k % 4
    p: In
    q: In
    r: In
    s: In
    for i in range(0, whole, 4):
        a, b, c, e = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
        p, q = rows + i * stride, rows + (i + 1) * stride
        r, s = rows + (i + 2) * stride, rows + (i + 3) * stride
        for j in range(n):
            out[j] = fma(e, s[j], fma(c, r[j], fma(b, q[j], fma(a, p[j], out[j]))))
    if k - whole == 3:
        a, b, c = weights[whole], weights[whole + 1], weights[whole + 2]
        p, q, r = rows + whole * stride, rows + (whole + 1) * stride, rows + (whole + 2) * stride
        for j in range(n):
            out[j] = fma(c, r[j], fma(b, q[j], fma(a, p[j], out[j])))
    elif k - whole == 2:
        a, b = weights[whole], weights[whole + 1]
        p, q = rows + whole * stride, rows + (whole + 1) * stride
        for j in range(n):
            out[j] = fma(b, q[j], fma(a, p[j], out[j]))
    elif k - whole == 1:
        add_scaled(weights[whole], rows + whole * stride, out, n)


def combine_rows(weights, rows, out, k, n):
    """out = sum_i weights_i rows_i. weights (k,), rows (k, n), out (n,)."""
    for j in range(n):
        out[j] = 0.0
    add_rows(weights, rows, n, out, k, n)


def row_products(rows, x, out, n, d):
    """out[a] = <rows_a, x>, four rows at a time: a single sum waits for its own additions.

    rows (n, d), x (d,), out (n,).
    """
    whole: Size = n - n % 4
    at: In
    for a in range(0, whole, 4):
        p, q, r, s = 0.0, 0.0, 0.0, 0.0
        at = rows + a * d
        for j in range(d):
            p = fma(x[j], at[j], p)
            q = fma(x[j], at[d + j], q)
            r = fma(x[j], at[2 * d + j], r)
            s = fma(x[j], at[3 * d + j], s)
        out[a] = p
        out[a + 1] = q
        out[a + 2] = r
        out[a + 3] = s
    for a in range(whole, n):
        out[a] = _product(rows + a * d, x, d)


def _product(x, y, n):
    """<x, y>. x, y (n,)."""
    total: Real = 0.0
    for j in range(n):
        total = fma(x[j], y[j], total)
    return total


def columns(rows, out, stride, n, d):
    """out[j, a] = rows[a, j]. rows (n, d), out (d, stride), stride >= n."""
    for j in range(d):
        for a in range(n):
            out[j * stride + a] = rows[a * d + j]


def norms_of_columns(matrix, turned, stride, inner, out, n, d):
    """out[a] = sqrt(x_a' matrix x_a), the x_a as columns, so that the loops over arms are long
    enough to be vectorised; the lower half of the symmetric matrix is read.

    matrix (d, d), turned (d, stride), inner, out (n,). Cost: n d^2/2.
    """
    x: In
    for a in range(n):
        out[a] = 0.0
    for i in range(d):
        x = turned + i * stride
        half = 0.5 * matrix[i * d + i]
        for a in range(n):
            inner[a] = half * x[a]
        add_rows(matrix + i * d, turned, stride, inner, i, n)
        for a in range(n):
            out[a] = fma(2.0 * x[a], inner[a], out[a])
    for a in range(n):
        out[a] = sqrt(larger(out[a], 0.0))


def square_norm(matrix, x, d):
    """x' matrix x, four rows at a time. matrix (d, d), x (d,)."""
    whole: Size = d - d % 4
    total: Real = 0.0
    at: In
    for i in range(0, whole, 4):
        p, q, r, s = 0.0, 0.0, 0.0, 0.0
        at = matrix + i * d
        for j in range(d):
            p = fma(at[j], x[j], p)
            q = fma(at[d + j], x[j], q)
            r = fma(at[2 * d + j], x[j], r)
            s = fma(at[3 * d + j], x[j], s)
        total = fma(x[i], p, total)
        total = fma(x[i + 1], q, total)
        total = fma(x[i + 2], r, total)
        total = fma(x[i + 3], s, total)
    for i in range(whole, d):
        total = fma(x[i], _product(matrix + i * d, x, d), total)
    return total


def cholesky(matrix, lower, d):
    """lower lower' = matrix; False where it is not positive definite (or not a number).

    matrix, lower (d, d); above the diagonal nothing is written. Cost: d^3/6.
    """
    for i in range(d):
        for j in range(i + 1):
            total = matrix[i * d + j]
            for k in range(j):
                total = fma(-lower[i * d + k], lower[j * d + k], total)
            if i > j:
                lower[i * d + j] = total / lower[j * d + j]
            elif total > 0.0:
                lower[i * d + i] = sqrt(total)
            else:
                return False
    return True


def largest_square_norm(rows, n, d):
    """max_a |x_a|^2; it is not finite if one of the numbers is not. rows (n, d)."""
    largest: Real = 0.0
    for a in range(n):
        total = 0.0
        for j in range(d):
            total += rows[a * d + j] * rows[a * d + j]
        if total > largest or isnan(total):  # no number is larger than a NaN
            largest = total
    return largest


# --- what is read of a regression -----------------------------------------------------------------


def estimated_scores(self, g, features, arms, d, per_arm, out):
    """out[a] = <g, theta x_a>: the estimated scalar reward of each arm.

    g (n,), features (arms, d), or (1, d) if per_arm, out (arms,). n d is rewards times self.d: the
    one row of an extended model is read as (n, d). Cost: (n + arms) d, per arm arms n d.
    """
    n: Size = self.rewards * self.d // d
    combined: Writing = self.work
    if per_arm:
        for a in range(arms):
            combine_rows(g, self.theta + a * n * d, combined, n, d)
            out[a] = _product(features, combined, d)
    else:
        combine_rows(g, self.theta, combined, n, d)
        row_products(features, combined, out, arms, d)


def design_widths(self, features, arms, per_arm, out):
    """out[a] = |x_a| in the norm of the inverse design.

    features (arms, d), or (1, d) if per_arm, out (arms,). Cost: arms d^2/2, per arm arms d^2.
    """
    d: Size = self.d
    stride: Size = padded(arms)
    inner: Writing = arms_in(self)
    turned: Writing = inner + 5 * stride
    if per_arm:
        for a in range(arms):
            out[a] = sqrt(larger(square_norm(self.inverse + a * d * d, features, d), 0.0))
        return
    columns(features, turned, stride, arms, d)
    norms_of_columns(self.inverse, turned, stride, inner, out, arms, d)


def predict(theta, x, low, high, out, n, d):
    """out = theta x, every reward projected on its range (infinite: left alone).

    theta (n, d), x (d,), low, high, out (n,).
    """
    for i in range(n):
        out[i] = between(_product(theta + i * d, x, d), low[i], high[i])


# --- learning -------------------------------------------------------------------------------------


def linear_work(d, rewards, arms):
    """How many doubles of scratch are enough for learning and choosing with up to `arms` arms.

    Two vectors of max(d, rewards) numbers (learning: A x and the errors; choosing: combined
    parameters and estimates); three (d, d) matrices (refresh: a Cholesky factor, its inverse, the
    new V^-1; extended widths: the contractions; Thompson: a factor); the features as columns
    (d, arms); five arrays of a number for each arm.
    """
    return _work(d, rewards, arms, True)


def scratch_size(self, arms):
    """`linear_work` of a regression, without the (d, d) matrices where it has no design."""
    return _work(self.d, self.rewards, arms, self.inverse != cython.NULL)


def _work(d, rewards, arms, design):
    vectors: Size = 2 * padded(d if d > rewards else rewards)
    squares: Size = 3 * padded(d * d) if design else 0
    return vectors + squares + padded(arms) * (d + 5)


def _absorb(x, reward, gram, inverse, theta, moment, counters, turned, error, d, n):
    """Ridge regression takes an observation: False, and nothing is written, where the result would
    not be numbers.

    With A = V^-1: m = 1 + x' A x, y = A x/sqrt m; then A -= y y' (exactly symmetric),
    ln det V += ln m, and theta += (reward - theta x)/sqrt m y'. V itself is kept too, for the exact
    refresh.

    x (d,), reward (n,), gram, inverse (d, d), theta, moment (n, d), counters (5,); scratch:
    turned (d,), error (n,). Cost: 3 d^2 + 3 n d.
    """
    pivot: Real = 1.0
    combine_rows(x, inverse, turned, d, d)
    for j in range(d):
        pivot = fma(turned[j], x[j], pivot)
    pivot = sqrt(pivot)
    for j in range(d):
        turned[j] /= pivot
    total = log(pivot)  # a NaN or an infinity in any of these is one in the sum
    for i in range(n):
        away = reward[i]
        for j in range(d):
            away = fma(-theta[i * d + j], x[j], away)
        error[i] = away / pivot
        total += error[i]
    if not isfinite(total):
        return False
    for i in range(d):
        _move(-turned[i], turned, inverse + i * d, x[i], x, gram + i * d, d)
    for i in range(n):
        _move(error[i], turned, theta + i * d, reward[i], x, moment + i * d, d)
    counters[LOG_DET] += 2.0 * log(pivot)
    counters[UPDATES] += 1.0
    counters[SINCE_REFRESH] += 1.0
    return True


def _move(scale, y, out, other, x, sums, n):
    """out += scale y and sums += other x. All (n,)."""
    for j in range(n):
        out[j] = fma(scale, y[j], out[j])
        sums[j] = fma(other, x[j], sums[j])


def _shrunk(inverse, ridge, d):
    """How often the diagonal of the inverse, 1/ridge at first, has become 2^20 times smaller.

    Rank-one updates leave an error of 2^-52 of what the inverse was when it was last recomputed.
    Recomputed at every step of 2^20, it keeps 32 bits of what it is now. Features of norm 1 need
    2^20 ridge observations for a step; the long directions of an extended model need a few.

    inverse (d, d).
    """
    steps: Size = 0
    for i in range(d):
        part = ridge * inverse[i * d + i]
        steps += (part < 2.0**-20) + (part < 2.0**-40) + (part < 2.0**-60)
    return steps


def learn_ridge(self, block, x, reward):
    """One observation of a ridge regression; params: the penalty.

    The inverse is recomputed exactly from time to time, when it has become much smaller
    (`_shrunk`), and where it cannot take the observation; if that fails too, the observation is
    rejected, and nothing is written but what the refresh recomputed.

    x (d,), reward (rows,). Cost: 3 d^2 + 3 rewards d.
    """
    d: Size = self.d
    n: Size = self.rewards
    inverse: Writing = self.inverse + block * d * d
    counters: Writing = self.counters
    counters[STATUS] = 0.0
    steps = _shrunk(inverse, self.params[0], d)
    for attempt in range(2):
        if _absorb(
            x,
            reward + self.first,
            self.gram + block * d * d,
            inverse,
            self.theta + place_in(self, block, d),
            self.moment + place_in(self, block, d),
            counters,
            self.work,
            self.work + vector_size(self),
            d,
            n,
        ):
            if (
                counters[SINCE_REFRESH] >= REFRESH_EVERY
                or _shrunk(inverse, self.params[0], d) > steps
            ):
                refresh(self)
            return counters[STATUS] == 0.0
        if attempt == 0:
            refresh(self)
    counters[STATUS] = 1.0
    return False


def refresh(self):
    """Recompute V^-1, theta and ln det V/det V_0 from V; note how far the kept inverse was off.

    The drift is max |A_ij - A'_ij| / sqrt(A_ii A_jj). Where rounding has left V not positive
    definite, its diagonal is lifted until it is: by the unit of rounding first, then by ten times
    as much, and so on. Status 1: V is not finite numbers; its block is left as it was. Without a
    design there is nothing to do. Cost: blocks (2/3 d^3 + rewards d^2).
    """
    d: Size = self.d
    n: Size = self.rewards
    worst: Real = 0.0
    log_det: Real = 0.0
    lower: Writing = squares_in(self)
    half: Writing = lower + padded(d * d)
    fresh: Writing = half + padded(d * d)
    self.counters[STATUS] = 0.0
    if self.inverse == cython.NULL:
        return
    for b in range(self.blocks):
        if not _factor(self.gram + b * d * d, lower, d):
            self.counters[STATUS] = 1.0
            return
        for i in range(d):
            log_det += 2.0 * log(lower[i * d + i]) - log(self.params[0])
        _inverse_of(lower, half, fresh, d)
        worst = _replace(fresh, self.inverse + b * d * d, worst, d)
        moment, theta = self.moment + place_in(self, b, d), self.theta + place_in(self, b, d)
        for i in range(n):
            combine_rows(moment + i * d, fresh, theta + i * d, d, d)
    self.counters[LOG_DET] = log_det
    self.counters[DRIFT] = worst
    self.counters[SINCE_REFRESH] = 0.0


def _inverse_of(lower, half, fresh, d):
    """half = lower^-1, fresh = half' half, exactly symmetric. lower, half, fresh (d, d)."""
    for i in range(d * d):
        half[i] = 0.0
        fresh[i] = 0.0
    for i in range(d):
        half[i * d + i] = 1.0 / lower[i * d + i]
        for k in range(i):
            add_scaled(-lower[i * d + k] * half[i * d + i], half + k * d, half + i * d, k + 1)
    for k in range(d):
        for i in range(k + 1):
            for j in range(k + 1):
                fresh[i * d + j] = fma(half[k * d + i], half[k * d + j], fresh[i * d + j])


def _replace(fresh, inverse, worst, d):
    """inverse = fresh; the larger of `worst` and of the drift. fresh, inverse (d, d)."""
    for i in range(d):
        for j in range(d):
            drift = fabs(inverse[i * d + j] - fresh[i * d + j]) / sqrt(
                fresh[i * d + i] * fresh[j * d + j]
            )
            worst = larger(worst, drift if drift >= 0.0 else INFINITY)  # of a NaN, the latter
            inverse[i * d + j] = fresh[i * d + j]
    return worst


def _factor(matrix, lower, d):
    """`cholesky`, of the matrix with its diagonal lifted, in place, by as little as it takes.

    matrix, lower (d, d).
    """
    largest: Real = 0.0
    total: Real = 0.0
    if cholesky(matrix, lower, d):
        return True
    for i in range(d):
        largest = larger(largest, fabs(matrix[i * d + i]))
    for i in range(d * d):
        total += matrix[i]
    if not isfinite(total):
        return False
    lift = 2.0**-52 * largest
    for times in range(16):
        for i in range(d):
            matrix[i * d + i] += lift
        if cholesky(matrix, lower, d):
            return True
        lift *= 10.0
    return False


def learn_online_gradient(self, block, x, reward):
    """One step of projected online gradient descent for each reward; params: rate, then the radius
    of each reward's ball; moment (blocks, rewards, 1): sums of squared gradients.

    Where these would leave the range of floats, the observation is rejected and nothing is
    written. x (d,), reward (rows,). Cost: 2 rewards d.
    """
    d: Size = self.d
    n: Size = self.rewards
    total: Real = 0.0
    errors: Writing = self.work
    moment: Writing = self.moment + place_in(self, block, 1)
    theta: Writing = self.theta + place_in(self, block, d)
    radii: Reading = self.params + 1 + self.first
    self.counters[STATUS] = 0.0
    square = _product_of_same(x, d)
    for i in range(n):
        error = _residual(theta + i * d, x, -reward[self.first + i], d)
        errors[i] = error
        total += moment[i] + 4.0 * error * error * square
    if not isfinite(total):
        self.counters[STATUS] = 1.0
        return False
    for i in range(n):
        error = errors[i]
        moment[i] += 4.0 * error * error * square
        if moment[i] > 0.0:
            _descend(
                -self.params[0] * radii[i] * 2.0 * error / sqrt(moment[i]),
                radii[i],
                x,
                theta + i * d,
                d,
            )
    self.counters[UPDATES] += 1.0
    return True


def _product_of_same(x, n):
    """|x|^2. x (n,)."""
    total: Real = 0.0
    for j in range(n):
        total = fma(x[j], x[j], total)
    return total


def _residual(theta, x, start, n):
    """start + <theta, x>. theta, x (n,)."""
    for j in range(n):
        start = fma(theta[j], x[j], start)
    return start


def _descend(pull, radius, x, theta, n):
    """theta += pull x, then projected on the ball of this radius. x, theta (n,)."""
    for j in range(n):
        theta[j] = fma(pull, x[j], theta[j])
    norm = _product_of_same(theta, n)
    if norm > radius * radius:
        shrink = radius / sqrt(norm)
        for j in range(n):
            theta[j] *= shrink


# --- from Python ----------------------------------------------------------------------------------


@cython.cclass
class Regression:
    """A linear regression over given arrays, which it changes in place.

    gram, inverse (blocks, d, d), both (blocks, 0, 0) for online gradients; theta
    (blocks, rewards, d); moment the same, (blocks, rewards, 1) for online gradients; params: the
    penalty of ridge regression, or rate and radii; counters (5,). learn: "ridge" or
    "online_gradient". The fields come in the order of `oracles.LinearState`.

    >>> arrays = [np.eye(2)[None], np.eye(2)[None], np.zeros((1, 1, 2)), np.zeros((1, 1, 2))]
    >>> regression = Regression(*arrays, np.ones(1), np.zeros(5))
    >>> regression.learn(0, np.array([1.0, 0.0]), np.array([1.0]))
    True
    >>> arrays[2].round(12).tolist()
    [[[0.5, 0.0]]]
    """

    own: Linear
    kept: object
    arms: Size
    room: object

    def __init__(
        self,
        gram: OutTensor,
        inverse: OutTensor,
        theta: OutTensor,
        moment: OutTensor,
        params: Vector,
        counters: OutVector,
        learn: str = "ridge",
    ) -> None:
        own: cython.pointer[Linear] = cython.address(self.own)
        blocks: Size = theta.shape[0]
        n: Size = theta.shape[1]
        d: Size = theta.shape[2]
        design: bool = learn == "ridge"
        side: Size = d if design else 0
        width: Size = d if design else 1
        if learn not in ("ridge", "online_gradient"):
            raise ValueError(f"learn is {learn!r}; give 'ridge' or 'online_gradient'")
        if blocks < 1 or n < 1 or d < 1:
            raise ValueError(f"theta has shape {(blocks, n, d)}; give at least one number")
        for name, array, shape in (
            ("gram", gram, (blocks, side, side)),
            ("inverse", inverse, (blocks, side, side)),
            ("moment", moment, (blocks, n, width)),
            ("counters", counters, (N_COUNTERS,)),
            ("params", params, (1 if design else 1 + n,)),
        ):
            given = np.shape(array)
            if given != shape:
                raise ValueError(f"{name} has shape {given}, not {shape}")
        self.kept = (gram, inverse, theta, moment, params, counters)
        own.blocks, own.rewards, own.first, own.rows, own.d = blocks, n, 0, n, d
        own.gram = cython.address(gram[0, 0, 0]) if design else cython.NULL
        own.inverse = cython.address(inverse[0, 0, 0]) if design else cython.NULL
        own.theta = cython.address(theta[0, 0, 0])
        own.moment = cython.address(moment[0, 0, 0])
        own.counters = cython.address(counters[0])
        own.params = cython.address(params[0])
        own.n_params = params.shape[0]
        own.learn = learn_ridge if design else learn_online_gradient
        self.make_room(1)

    def make_room(self, arms: Size) -> cython.void:
        """Scratch for this many arms, unless there is as much."""
        start: uintptr_t
        if self.own.work == cython.NULL or arms > self.arms:
            size = scratch_size(cython.address(self.own), arms)
            room: OutVector = np.empty(size + 8)
            start = (cython.cast(uintptr_t, cython.address(room[0])) + 63) & ~cython.cast(
                uintptr_t, 63
            )
            self.room = room
            self.own.work = cython.cast(cython.p_double, cython.cast(cython.p_void, start))
            self.arms = arms

    def learn(self, block: Size, x: Vector, reward: Vector) -> bool:
        """Take an observation; False where it was rejected. x (d,), reward (rewards,)."""
        own: cython.pointer[Linear] = cython.address(self.own)
        if not 0 <= block < own.blocks:
            raise ValueError(f"the block is {block}; there are {own.blocks}")
        if x.shape[0] != own.d or reward.shape[0] != own.rewards:
            raise ValueError(
                f"x has {x.shape[0]} numbers and the reward {reward.shape[0]}, not {own.d} and "
                f"{own.rewards}"
            )
        taken: cython.bint
        with cython.nogil:
            taken = own.learn(own, block, cython.address(x[0]), cython.address(reward[0]))
        return taken

    def recompute(self) -> bool:
        """Recompute the inverse and the estimates from the design; False where that failed."""
        with cython.nogil:
            refresh(cython.address(self.own))
        return self.own.counters[STATUS] == 0.0

    def scores(self, direction: Vector, features: Matrix, per_arm: cython.bint = False) -> Any:
        """<direction, theta x_a> of each arm, (arms,).

        direction (rewards,), or (n,) where the design has n d features and one reward;
        features (arms, d), or (1, d) if per_arm.
        """
        own: cython.pointer[Linear] = cython.address(self.own)
        arms: Size = own.blocks if per_arm else features.shape[0]
        d: Size = features.shape[1]
        if direction.shape[0] * d != own.rewards * own.d or (per_arm and features.shape[0] != 1):
            raise ValueError(
                f"the direction has {direction.shape[0]} numbers and the features have shape "
                f"{(features.shape[0], d)}; theta has {own.rewards} rows of {own.d}"
            )
        out = np.empty(arms)
        if arms == 0:
            return out
        to: OutVector = out
        self.make_room(arms)
        with cython.nogil:
            estimated_scores(
                own,
                cython.address(direction[0]),
                cython.address(features[0, 0]),
                arms,
                d,
                per_arm,
                cython.address(to[0]),
            )
        return out

    def widths(self, features: Matrix, per_arm: cython.bint = False) -> Any:
        """|x_a| in the norm of the inverse design, (arms,). features (arms, d), or (1, d)."""
        own: cython.pointer[Linear] = cython.address(self.own)
        arms: Size = own.blocks if per_arm else features.shape[0]
        if own.inverse == cython.NULL:
            raise ValueError("online gradients have no confidence widths")
        if features.shape[1] != own.d or (per_arm and features.shape[0] != 1):
            raise ValueError(
                f"the features have shape {(features.shape[0], features.shape[1])}, not "
                f"{('1' if per_arm else 'arms')} rows of {own.d}"
            )
        out = np.empty(arms)
        if arms == 0:
            return out
        to: OutVector = out
        self.make_room(arms)
        with cython.nogil:
            design_widths(own, cython.address(features[0, 0]), arms, per_arm, cython.address(to[0]))
        return out

    def predictions(
        self, features: Matrix, low: Vector, high: Vector, per_arm: cython.bint = False
    ) -> Any:
        """theta x_a of each arm, (arms, rewards), every reward projected on its range.

        features (arms, d), or (1, d) if per_arm; low, high (rewards,).
        """
        own: cython.pointer[Linear] = cython.address(self.own)
        n: Size = own.rewards
        d: Size = own.d
        arms: Size = own.blocks if per_arm else features.shape[0]
        if features.shape[1] != d or (per_arm and features.shape[0] != 1):
            raise ValueError(
                f"the features have shape {(features.shape[0], features.shape[1])}, not "
                f"{('1' if per_arm else 'arms')} rows of {d}"
            )
        if low.shape[0] != n or high.shape[0] != n:
            raise ValueError(f"the ranges have {low.shape[0]} and {high.shape[0]} ends, not {n}")
        out = np.empty((arms, n))
        if arms == 0:
            return out
        to: OutMatrix = out
        for a in range(arms):
            predict(
                own.theta + (a * n * d if per_arm else 0),
                cython.address(features[0 if per_arm else a, 0]),
                cython.address(low[0]),
                cython.address(high[0]),
                cython.address(to[a, 0]),
                n,
                d,
            )
        return out


def largest_square(rows: Matrix) -> float:
    """max_a |x_a|^2 of rows (n, d); it is not finite if one of the numbers is not."""
    if rows.shape[0] == 0 or rows.shape[1] == 0:
        return 0.0
    return largest_square_norm(cython.address(rows[0, 0]), rows.shape[0], rows.shape[1])
