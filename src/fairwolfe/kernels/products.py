# cython: language_level=3, infer_types=True
"""Ridge regression on x_i = user (x) item_i, without ever forming x_i.

The design V has d = p q features, (a, b) at place a q + b. One contraction of V^-1 with the user,
B = (u (x) I)' V^-1, gives everything that a round needs: the q x q matrix C = B (u (x) I) in whose
norm items have their widths, and the rows X V^-1 of an update. Features that are not a product are
the case p = 1, user = (1).

The small sizes q and r are constants where a function is inlined: loops over them are then
unrolled, and the loops over items or columns around them vectorised.
"""

from __future__ import annotations

from typing import Any

import cython

# --- one round, for a user --------------------------------------------------------------------


def contract_user(user, inverse, out, p, q):
    """B = (u (x) I)' V^-1: V^-1 read as p rows of length q d, summed with weights u.

    user (p,), inverse (p q, p q), out (q, p q). p q d multiplications.
    """
    u: Real = user[0]
    size: Size = q * p * q
    row: In
    for j in range(size):
        out[j] = u * inverse[j]
    for a in range(1, p):
        u = user[a]
        row = inverse + a * size
        for j in range(size):
            out[j] = fma(u, row[j], out[j])


def contract_twice(user, contracted, out, p, q):
    """C = B (u (x) I). user (p,), contracted (q, p q), out (q, q)."""
    part: In
    line: Out
    for b in range(q * q):
        out[b] = 0.0
    for a in range(p):  # outside: the sums of one b would wait for each other
        u = user[a]
        for b in range(q):
            part = contracted + (b * p + a) * q
            line = out + b * q
            for e in range(q):
                line[e] = fma(u, part[e], line[e])


def contract(self, user):
    """B and C of a user (p,), which `estimates` and `absorb_items` read."""
    contract_user(user, self.linear.inverse, self.contracted, self.p, self.q)
    contract_twice(user, self.contracted, self.metric, self.p, self.q)


def turn_parameters(user, theta, out, p, q, rewards):
    """theta_r for the user: the estimate of reward r of item i is <out_r, item_i>.

    user (p,), theta (rewards, p q), out (rewards, q).
    """
    line: Out
    part: In
    for r in range(rewards):
        line = out + r * q
        for e in range(q):
            line[e] = 0.0
        for a in range(p):
            u = user[a]
            part = theta + (r * p + a) * q
            for e in range(q):
                line[e] = fma(u, part[e], line[e])


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _add_square(
    b: Size, q: Size, metric: In, items: In, stride: Size, i: Size, square: Real
) -> Real:
    """square + item_b (C_bb item_b/2 + sum_{e < b} C_be item_e) of item i; b < q are constants."""
    if b >= q:
        return square
    inner = 0.5 * metric[b * q + b] * items[b * stride + i]
    for e in range(b):
        inner = fma(metric[b * q + e], items[e * stride + i], inner)
    return fma(items[b * stride + i], inner, square)


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _unrolled(
    q: Size, turned: In, metric: In, items: In, stride: Size, value: Out, width: Out, n: Size
) -> cython.void:
    """`estimates` for a constant q <= 11. gcc unrolls one loop of constant length before it
    vectorises, not two inside each other: that over b is written out.
    """
    for i in range(n):
        square = _add_square(0, q, metric, items, stride, i, 0.0)
        square = _add_square(1, q, metric, items, stride, i, square)
        square = _add_square(2, q, metric, items, stride, i, square)
        square = _add_square(3, q, metric, items, stride, i, square)
        square = _add_square(4, q, metric, items, stride, i, square)
        square = _add_square(5, q, metric, items, stride, i, square)
        square = _add_square(6, q, metric, items, stride, i, square)
        square = _add_square(7, q, metric, items, stride, i, square)
        square = _add_square(8, q, metric, items, stride, i, square)
        square = _add_square(9, q, metric, items, stride, i, square)
        square = _add_square(10, q, metric, items, stride, i, square)
        mean = 0.0
        for b in range(q):
            mean = fma(turned[b], items[b * stride + i], mean)
        value[i] = mean
        width[i] = sqrt(max(2.0 * square, 0.0))


def _row_by_row(turned, metric, items, stride, inner, value, width, q, n):
    """`estimates` for any q, one row of items at a time. inner (n,): scratch."""
    row: In
    other: In
    for i in range(n):
        value[i] = 0.0
        width[i] = 0.0
    for b in range(q):
        row = items + b * stride
        scale = 0.5 * metric[b * q + b]
        for i in range(n):
            inner[i] = scale * row[i]
        for e in range(b):
            other = items + e * stride
            scale = metric[b * q + e]
            for i in range(n):
                inner[i] = fma(scale, other[i], inner[i])
        scale = turned[b]
        for i in range(n):
            width[i] = fma(row[i], inner[i], width[i])
            value[i] = fma(scale, row[i], value[i])
    for i in range(n):
        width[i] = sqrt(max(2.0 * width[i], 0.0))


def estimates(turned, metric, items, stride, spare, value, width, q, n):
    """value_i = <turned, item_i> and width_i = |item_i| in the norm of the metric.

    turned (q,), metric (q, q), items (q, n): a column for each item, rows `stride` numbers apart;
    spare, value, width (n,).
    n q^2/2 multiplications; unrolled for q = 1, ..., 6, 8, 10 and 11, with the same bits.
    """
    if q == 10:
        _unrolled(10, turned, metric, items, stride, value, width, n)
    elif q == 8:
        _unrolled(8, turned, metric, items, stride, value, width, n)
    elif q == 11:
        _unrolled(11, turned, metric, items, stride, value, width, n)
    elif q == 6:
        _unrolled(6, turned, metric, items, stride, value, width, n)
    elif q == 5:
        _unrolled(5, turned, metric, items, stride, value, width, n)
    elif q == 4:
        _unrolled(4, turned, metric, items, stride, value, width, n)
    elif q == 3:
        _unrolled(3, turned, metric, items, stride, value, width, n)
    elif q == 2:
        _unrolled(2, turned, metric, items, stride, value, width, n)
    elif q == 1:
        _unrolled(1, turned, metric, items, stride, value, width, n)
    else:
        _row_by_row(turned, metric, items, stride, spare, value, width, q, n)


# --- updates ----------------------------------------------------------------------------------


def _spread(half, contracted, out, r, q, d):
    """Y = (L^-1 rows) B. half (r, q), contracted (q, d), out (r, d)."""
    row: Out
    first: In
    second: In
    third: In
    whole: Size = q - (q - 1) % 3
    for k in range(r):
        row = out + k * d
        x = half[k * q]
        for j in range(d):
            row[j] = x * contracted[j]
        for b in range(1, whole, 3):  # three at a time: Y is then read and written less often
            x = half[k * q + b]
            y = half[k * q + b + 1]
            z = half[k * q + b + 2]
            first = contracted + b * d
            second = first + d
            third = second + d
            for j in range(d):
                row[j] = fma(z, third[j], fma(y, second[j], fma(x, first[j], row[j])))
        for b in range(whole, q):
            x = half[k * q + b]
            first = contracted + b * d
            for j in range(d):
                row[j] = fma(x, first[j], row[j])


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _subtract_pairs(
    size: Size, spread: In, upper: Out, lower: Out, half: Size, d: Size
) -> cython.void:
    """`_subtract_rows` for the first and the last half of V^-1, a row of each at a time: what is
    read of Y serves both. spread (size, d), upper, lower (half, d).
    """
    row: Out
    other: Out
    behind: Size = d - half
    for i in range(half):
        row = upper + i * d
        other = lower + i * d
        for j in range(d):
            total = row[j]
            below = other[j]
            for k in range(size):
                total = fma(-spread[k * d + i], spread[k * d + j], total)
                below = fma(-spread[k * d + behind + i], spread[k * d + j], below)
            row[j] = total
            other[j] = below


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _subtract_rows(size: Size, spread: In, inverse: cython.p_double, d: Size) -> Size:
    """V^-1 -= Y'Y for a constant number of rows of Y; that number. spread (size, d)."""
    row: Out
    half: Size = d // 2
    _subtract_pairs(size, spread, inverse, inverse + d * (d - half), half, d)
    if d % 2 > 0:
        row = inverse + half * d
        for j in range(d):
            total = row[j]
            for k in range(size):
                total = fma(-spread[k * d + half], spread[k * d + j], total)
            row[j] = total
    return size


def _subtract(spread, inverse, r, d):
    """V^-1 -= Y'Y for the first few of r > 0 rows of Y; how many. spread (r, d), inverse (d, d)."""
    if r == 1:
        return _subtract_rows(1, spread, inverse, d)
    if r == 2:
        return _subtract_rows(2, spread, inverse, d)
    if r == 3:
        return _subtract_rows(3, spread, inverse, d)
    if r == 4:
        return _subtract_rows(4, spread, inverse, d)
    if r == 5:
        return _subtract_rows(5, spread, inverse, d)
    return _subtract_rows(6, spread, inverse, d)


def square_of(rows, out, r, q):
    """sum v v'. rows (r, q), out (q, q)."""
    row: In
    line: Out
    for b in range(q * q):
        out[b] = 0.0
    for k in range(r):
        row = rows + k * q
        for b in range(q):
            x = row[b]
            line = out + b * q
            for e in range(q):
                line[e] = fma(x, row[e], line[e])


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _remember_rounds(
    size: Size,
    users: In,
    squares: In,
    wide: Out,
    upper: Out,
    middle: Out,
    lower: Out,
    p: Size,
    q: Size,
) -> cython.void:
    """`remember`, for a constant number of rounds, a row of the first and one of the last half of V
    at a time: what is read of the features serves both.

    wide (size, p q); upper, lower (p // 2 q, p q), middle (p % 2 q, p q): parts of V.
    """
    row: Out
    other: Out
    d: Size = p * q
    half: Size = p // 2
    for b in range(q):
        for t in range(size):  # u (x) a row of the square: every row of V is then a long sum
            for c in range(p):
                for e in range(q):
                    wide[t * d + c * q + e] = users[t * p + c] * squares[(t * q + b) * q + e]
        for a in range(half):
            row = upper + (a * q + b) * d
            other = lower + (a * q + b) * d
            for j in range(d):
                total = row[j]
                below = other[j]
                for t in range(size):
                    total = fma(users[t * p + a], wide[t * d + j], total)
                    below = fma(users[t * p + p - half + a], wide[t * d + j], below)
                row[j] = total
                other[j] = below
        if p % 2 > 0:
            row = middle + b * d
            for j in range(d):
                total = row[j]
                for t in range(size):
                    total = fma(users[t * p + half], wide[t * d + j], total)
                row[j] = total


def remember(users, squares, gram, wide, n, p, q):
    """V += u u' (x) sum v v' for n rounds in a row; `ROUNDS` of them are one pass over V, with the
    same bits as one after the other.

    users (n, p), squares (n, q, q): see `square_of`; gram (p q, p q), wide (ROUNDS, p q): scratch.
    """
    d: Size = p * q
    half: Size = p // 2
    middle: cython.p_double = gram + half * q * d
    lower: cython.p_double = gram + (p - half) * q * d
    if n == ROUNDS:
        _remember_rounds(ROUNDS, users, squares, wide, gram, middle, lower, p, q)
    else:
        for t in range(n):
            _remember_rounds(1, users + t * p, squares + t * q * q, wide, gram, middle, lower, p, q)


def _add_moments(user, rows, rewards, moment, r, p, q, n_rewards):
    """moment_i += sum_k reward_ki (user (x) row_k). user (p,), rows (r, q), rewards (r, R),
    moment (R, p q).
    """
    row: In
    part: Out
    for i in range(n_rewards):
        for k in range(r):
            row = rows + k * q
            for a in range(p):
                scale = user[a] * rewards[k * n_rewards + i]
                part = moment + (i * p + a) * q
                for e in range(q):
                    part[e] = fma(scale, row[e], part[e])


def _factor_round(self, user, rows, rewards, r):
    """half = L^-1 rows and error = L^-1 (rewards - estimates), where L L' = I + rows C rows'; adds
    ln det of that to the counters. False, and nothing is written, where a result is not finite.

    user (p,), rows (r, q), rewards (r, R).
    """
    q: Size = self.q
    n: Size = self.linear.rewards
    log_det: Real = 0.0
    total: Real
    checksum: Real = 0.0  # a NaN or an infinity in what is added is one in the sum
    metric: In = self.metric
    turned: Out = self.turned
    half: Out = self.half
    inner: Out = self.inner
    error: Out = self.error
    system: Out = self.system
    lower: In = self.lower
    turn_parameters(user, self.linear.theta, self.turned, self.p, q, n)
    for k in range(r):
        for e in range(q):
            half[k * q + e] = rows[k * q + e]
        for b in range(q):
            total = 0.0
            for e in range(q):
                total = fma(metric[b * q + e], rows[k * q + e], total)
            inner[k * q + b] = total
        for m in range(k + 1):
            total = 1.0 if k == m else 0.0
            for b in range(q):
                total = fma(rows[k * q + b], inner[m * q + b], total)
            system[k * r + m] = total
        for i in range(n):
            total = rewards[k * n + i]
            for e in range(q):
                total = fma(-turned[i * q + e], rows[k * q + e], total)
            error[k * n + i] = total
    if not cholesky(self.system, self.lower, r):
        return False
    for k in range(r):
        pivot = lower[k * r + k]
        for m in range(k):
            x = -lower[k * r + m]
            for e in range(q):
                half[k * q + e] = fma(x, half[m * q + e], half[k * q + e])
            for i in range(n):
                error[k * n + i] = fma(x, error[m * n + i], error[k * n + i])
        for e in range(q):
            half[k * q + e] /= pivot
        for i in range(n):
            error[k * n + i] /= pivot
            checksum += error[k * n + i]
        log_det += 2.0 * log(pivot)
        checksum += log_det
    if not isfinite(checksum):
        return False
    self.linear.counters[LOG_DET] += log_det
    return True


def _absorb(self, user, rows, rewards, r, whole):
    """`absorb_items` without a refresh; whole: V takes the round in too. False, and nothing is
    written, where a result is not finite.
    """
    p: Size = self.p
    q: Size = self.q
    d: Size = self.linear.d
    n: Size = self.linear.rewards
    done: Size = 0
    if r > 0:
        if not _factor_round(self, user, rows, rewards, r):
            return False
        _spread(self.half, self.contracted, self.spread, r, q, d)
        while done < r:
            done += _subtract(self.spread + done * d, self.linear.inverse, r - done, d)
        for i in range(n):
            for k in range(r):
                add_scaled(self.error[k * n + i], self.spread + k * d, self.linear.theta + i * d, d)
        _add_moments(user, rows, rewards, self.linear.moment, r, p, q, n)
        if whole:
            square_of(rows, self.square, r, q)
            remember(user, self.square, self.linear.gram, self.wide, 1, p, q)
    self.linear.counters[UPDATES] += r
    self.linear.counters[SINCE_REFRESH] += 1.0
    return True


def _absorb_whole(self, user, rows, rewards, r):
    """`absorb_items` where V takes the round in at once, with a refresh where one is due or where
    the kept inverse cannot take the round.
    """
    counters: cython.p_double = self.linear.counters
    counters[STATUS] = 0.0
    if not _absorb(self, user, rows, rewards, r, True):
        refresh(cython.address(self.linear))
        contract(self, user)
        if not _absorb(self, user, rows, rewards, r, True):
            counters[STATUS] = 1.0
            return
    if counters[SINCE_REFRESH] >= REFRESH_EVERY:
        refresh(cython.address(self.linear))


def absorb_items(self, user, rows, rewards, r):
    """The regression takes the r items of a round, with their rewards; r <= most.

    M = I + rows C rows' = L L', Y = (L^-1 rows) B; then V^-1 -= Y'Y (exactly symmetric),
    ln det V += ln det M and theta_i += Y' L^-1 (reward_i - estimate_i). One pass over V^-1 whatever
    r is: d (q + d) r multiplications, and V a quarter of the time where rounds are deferred. The
    user must be the one of the last `contract`. Refreshed exactly every `REFRESH_EVERY` rounds, and
    where the kept inverse cannot take the round; what cannot be taken even then is rejected
    (counters[STATUS] = 1), and nothing has changed.

    user (p,), rows (r, q), rewards (r, R).
    """
    counters: cython.p_double = self.linear.counters
    place: Size = self.deferred
    if place >= 0 and counters[SINCE_REFRESH] + 1.0 < REFRESH_EVERY:
        counters[STATUS] = 0.0
        if _absorb(self, user, rows, rewards, r, False):
            if r > 0:
                for a in range(self.p):
                    self.users[place * self.p + a] = user[a]
                square_of(rows, self.squares + place * self.q * self.q, r, self.q)
                self.deferred += 1
                if self.deferred == ROUNDS:
                    catch_up(self)
            return
    catch_up(self)  # a refresh, which is due or may help, needs all of V
    _absorb_whole(self, user, rows, rewards, r)


def start_deferring(self):
    """From here on V takes in `ROUNDS` rounds at a time, and the others at `catch_up`. With fewer
    user features than that, deferred rounds would be as large as V: nothing is deferred.
    """
    if self.deferred < 0 and self.p >= ROUNDS:
        self.deferred = 0


def catch_up(self):
    """V takes in the rounds that are deferred."""
    if self.deferred > 0:
        remember(
            self.users, self.squares, self.linear.gram, self.wide, self.deferred, self.p, self.q
        )
        self.deferred = 0


def stop_deferring(self):
    """`catch_up`; from here on V takes in every round at once."""
    catch_up(self)
    self.deferred = -1


# --- scratch ----------------------------------------------------------------------------------


def products_room(self):
    """How many numbers `products_scratch` needs."""
    p: Size = self.p
    q: Size = self.q
    d: Size = self.linear.d
    n: Size = self.linear.rewards
    r: Size = self.most
    kept: Size = ROUNDS * (p + q * q + d) + q * d + 2 * q * q + n * q
    return kept + r * (2 * q + 2 * r + n + d) + linear_work(d, n, 0) + 8 * 15


def products_scratch(self, room):
    """Divide room among the scratch arrays, each from the start of a cache line on."""
    q: Size = self.q
    d: Size = self.linear.d
    r: Size = self.most
    self.contracted = aligned(room)
    self.spread = aligned(self.contracted + q * d)
    self.wide = aligned(self.spread + r * d)
    self.metric = aligned(self.wide + ROUNDS * d)
    self.turned = aligned(self.metric + q * q)
    self.system = aligned(self.turned + self.linear.rewards * q)
    self.lower = aligned(self.system + r * r)
    self.half = aligned(self.lower + r * r)
    self.inner = aligned(self.half + r * q)
    self.error = aligned(self.inner + r * q)
    self.square = aligned(self.error + r * self.linear.rewards)
    self.users = aligned(self.square + q * q)
    self.squares = aligned(self.users + ROUNDS * self.p)
    self.linear.work = aligned(self.squares + ROUNDS * q * q)
    self.deferred = -1


# --- for Python -------------------------------------------------------------------------------


@cython.cclass
class ProductRidge:
    """The regression over the arrays of a linear state of one block, which it changes in place.

    gram, inverse (1, d, d), theta, moment (1, R, d), params (1,): the penalty; counters (5,);
    p, q: the features of users and items, d = p q; most: the largest number of items in a round.
    """

    products: Products
    arrays: tuple[Any, ...]  # keeps them alive
    room: cython.p_double

    def __cinit__(self) -> None:
        self.room = cython.NULL

    def __init__(
        self,
        gram: OutTensor,
        inverse: OutTensor,
        theta: OutTensor,
        moment: OutTensor,
        params: OutVector,
        counters: OutVector,
        p: Size,
        q: Size,
        most: Size,
    ) -> None:
        of: cython.pointer[Products] = cython.address(self.products)
        d: Size = p * q
        n: Size = theta.shape[1]
        fits: cython.bint = p > 0 and q > 0 and most > 0 and n > 0
        fits = fits and params.shape[0] == 1 and counters.shape[0] == 5
        fits = fits and gram.shape[0] == 1 and gram.shape[1] == d and gram.shape[2] == d
        fits = fits and inverse.shape[0] == 1 and inverse.shape[1] == d and inverse.shape[2] == d
        fits = fits and theta.shape[0] == 1 and theta.shape[2] == d
        fits = fits and moment.shape[0] == 1 and moment.shape[1] == n and moment.shape[2] == d
        if not fits:
            raise ValueError(f"the arrays are not those of {p} x {q} features in one block")
        self.arrays = (gram.base, inverse.base, theta.base, moment.base, params.base, counters.base)
        of.p, of.q, of.most = p, q, most
        of.linear.blocks, of.linear.rewards, of.linear.d = 1, n, d
        of.linear.first, of.linear.rows = 0, n
        of.linear.gram = cython.address(gram[0, 0, 0])
        of.linear.inverse = cython.address(inverse[0, 0, 0])
        of.linear.theta = cython.address(theta[0, 0, 0])
        of.linear.moment = cython.address(moment[0, 0, 0])
        of.linear.params, of.linear.n_params = cython.address(params[0]), 1
        of.linear.counters = cython.address(counters[0])
        free(self.room)
        self.room = cython.cast(cython.p_double, malloc(8 * products_room(of)))
        if self.room == cython.NULL:
            raise MemoryError
        products_scratch(of, self.room)

    def __dealloc__(self) -> None:
        free(self.room)

    def matrices(self, user: Vector, contracted: OutMatrix, metric: OutMatrix) -> None:
        """B and C of a user (p,): contracted (q, d), metric (q, q)."""
        of: cython.pointer[Products] = cython.address(self.products)
        fits: cython.bint = user.shape[0] == of.p and contracted.shape[0] == of.q
        fits = fits and contracted.shape[1] == of.linear.d
        if not (fits and metric.shape[0] == of.q and metric.shape[1] == of.q):
            raise ValueError("the user or its matrices have other shapes")
        with cython.nogil:
            contract(of, cython.address(user[0]))
            memcpy(cython.address(contracted[0, 0]), of.contracted, 8 * of.q * of.linear.d)
            memcpy(cython.address(metric[0, 0]), of.metric, 8 * of.q * of.q)

    def absorb(self, user: Vector, rows: Matrix, rewards: Matrix) -> bool:
        """Learn the rewards (r, R) of items (r, q) for a user (p,); False: rejected."""
        of: cython.pointer[Products] = cython.address(self.products)
        r: Size = rows.shape[0]
        x: cython.pointer[cython.const[cython.double]] = cython.NULL
        y: cython.pointer[cython.const[cython.double]] = cython.NULL
        fits: cython.bint = user.shape[0] == of.p and rows.shape[1] == of.q and r <= of.most
        if not (fits and rewards.shape[0] == r and rewards.shape[1] == of.linear.rewards):
            raise ValueError("the user, the items or the rewards have other shapes")
        if r > 0:
            x, y = cython.address(rows[0, 0]), cython.address(rewards[0, 0])
        with cython.nogil:
            contract(of, cython.address(user[0]))
            absorb_items(of, cython.address(user[0]), x, y, r)
        return of.linear.counters[STATUS] == 0.0

    def defer(self) -> None:
        """V takes in several rounds at a time, until `finish`."""
        start_deferring(cython.address(self.products))

    def finish(self) -> None:
        """V takes in all rounds, and every later one at once."""
        stop_deferring(cython.address(self.products))


def estimate(
    turned: Vector,
    metric: Matrix,
    items: Matrix,
    spare: OutVector,
    value: OutVector,
    width: OutVector,
) -> None:
    """`estimates`: turned (q,), metric (q, q), items (q, n), spare, value, width (n,)."""
    q: Size = items.shape[0]
    n: Size = items.shape[1]
    fits: cython.bint = turned.shape[0] == q and metric.shape[0] == q and metric.shape[1] == q
    fits = fits and spare.shape[0] == n and value.shape[0] == n and width.shape[0] == n
    if not fits or q == 0 or n == 0:
        raise ValueError("the arrays have other shapes")
    with cython.nogil:
        estimates(
            cython.address(turned[0]),
            cython.address(metric[0, 0]),
            cython.address(items[0, 0]),
            n,
            cython.address(spare[0]),
            cython.address(value[0]),
            cython.address(width[0]),
            q,
            n,
        )
