# cython: language_level=3, infer_types=True
"""From estimates to a ranking, and from its feedback to what is learnt; worlds with rankings.

A ranker estimates what each item would earn if it were exposed, and shows the items of largest
score. Users have p features, items q, d = p q; m items, k slots, R user-side rewards, n = m + R
coordinates of a direction: the items first.
"""

from __future__ import annotations

from typing import Any

import cython

# --- selection --------------------------------------------------------------------------------


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _any_above(bar: Real, scores: In, n: Size) -> cython.bint:
    """Whether a score (n,) is larger than the bar; all are compared, many at once."""
    above: int64_t = 0
    for i in range(n):
        above += 1 if scores[i] > bar else 0
    return above > 0


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _insert(scores: In, i: Size, place: Size, out: Ints) -> cython.void:
    """Put i where it belongs among out[: place + 1], whose last entry is free."""
    score: Real = scores[i]
    while place > 0 and score > scores[out[place - 1]]:
        out[place] = out[place - 1]
        place -= 1
    out[place] = i


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _column_maxima(scores: In, width: Size, rows: Size, out: Out) -> cython.void:
    """The largest of each column of scores (rows, width), without its NaN. out (width,)."""
    row: In
    for j in range(width):
        out[j] = -INFINITY
    for i in range(rows):
        row = scores + i * width
        for j in range(width):
            out[j] = row[j] if row[j] > out[j] else out[j]


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _none_reaches(bar: Real, scores: In, n: Size) -> cython.bint:
    """Whether all of the scores (n,) are smaller than the bar."""
    below: int64_t = 0
    for i in range(n):
        below += 1 if scores[i] < bar else 0
    return below == n


def _top_of_many(scores, n, k, out):
    """`top_k` for n >= 2 COLUMNS > 4 k; False where a score is not a number.

    The k-th largest of the maxima of COLUMNS columns is a lower bound of the k-th largest score,
    which about k scores reach: the others cost one comparison.
    """
    maxima = cython.declare(Real[COLUMNS])
    start: Size = 0
    size: Size
    filled: Size = 0
    i: Size
    _column_maxima(scores, COLUMNS, n // COLUMNS, maxima)
    _top_of_few(maxima, COLUMNS, k, out)
    bar = maxima[out[k - 1]]
    while start < n:
        size = min(cython.cast(Size, BLOCK), n - start)
        if not _none_reaches(bar, scores + start, size):
            for i in range(start, start + size):
                if scores[i] < bar:
                    continue
                if not scores[i] >= bar:
                    return False
                if filled < k:
                    _insert(scores, i, filled, out)
                    filled += 1
                elif scores[i] > scores[out[k - 1]]:
                    _insert(scores, i, k - 1, out)
        start += BLOCK
    return True


def _top_of_few(scores, n, k, out):
    """`top_k` by bounded insertion: most scores fail the comparison with the k-th so far, block by
    block, and cost nothing else.
    """
    start: Size = k
    size: Size
    i: Size
    for i in range(k):
        _insert(scores, i, i, out)
    bar = scores[out[k - 1]]
    while start < n:
        size = min(cython.cast(Size, BLOCK), n - start)
        if _any_above(bar, scores + start, size):
            for i in range(start, start + size):
                if scores[i] > bar:
                    _insert(scores, i, k - 1, out)
                    bar = scores[out[k - 1]]
        start += BLOCK


def top_k(scores, n, k, out):
    """The places of the k largest scores, largest first, equals in their order; 0 < k <= n. A score
    that is not a number stays where it is met, if it is among the first k.

    scores (n,), out (k,). n comparisons, and about k log k insertions.
    """
    if n < 8 * COLUMNS or 4 * k >= COLUMNS or not _top_of_many(scores, n, k, out):
        _top_of_few(scores, n, k, out)


# --- rules ------------------------------------------------------------------------------------
# (value, width, bonus, direction, exposed, shown, t, slots, params, out, n): estimates (n,),
# confidence widths (n,) and what to multiply these by (pointwise: bonuses, and 1), the direction of
# the items, how often each was exposed and shown in the t rankings so far; params of the rule.


def _optimistic(value, width, bonus, direction, exposed, shown, t, slots, params, out, n):
    """LinUCBRank: the estimate, its confidence width, and what exposing the item is worth to f."""
    for i in range(n):
        out[i] = value[i] + bonus * width[i] + direction[i]


def _discounted(value, width, bonus, direction, exposed, shown, t, slots, params, out, n):
    """UnbiasedLinUCBRank: the width times 1 - slots exposed_i/(all exposures); params[0]: whether
    that stops at 0.
    """
    total: Real = 0.0
    for i in range(n):
        total += exposed[i]
    for i in range(n):
        factor = 1.0
        if total > 0.0:
            factor = 1.0 - cython.cast(Real, slots) * exposed[i] / total
        if params[0] != 0.0:
            factor = max(factor, 0.0)
        out[i] = value[i] + factor * bonus * width[i]


def _deprived_first(value, width, bonus, direction, exposed, shown, t, slots, params, out, n):
    """FairLearnRank: items that lag behind params[0] t by more than params[1] come first, the worst
    before all.
    """
    for i in range(n):
        lag = params[0] * t - shown[i]
        if lag > params[1]:
            out[i] = 1e100 * (1.0 + lag)  # above every score
        else:
            out[i] = value[i] + bonus * width[i]


def score_by_name(name):
    """The rule of a ranker: "optimistic", "discounted" or "deprived_first"."""
    if name == "optimistic":
        return _optimistic
    if name == "discounted":
        return _discounted
    if name == "deprived_first":
        return _deprived_first
    raise ValueError(f"there is no rule {name!r}; it is optimistic, discounted or deprived_first")


# --- a ranking --------------------------------------------------------------------------------


def _combine(self, user, weights):
    """combined = sum_r weights_r theta_r, turned to the user. user (p,), weights (R,)."""
    of: cython.pointer[Products]
    turned: In
    q: Size = self.products.q
    combined: Out = self.combined
    first: Size = 0
    for e in range(q):
        combined[e] = 0.0
    for s in range(self.stages):
        of = self.products + s
        turned = of.turned
        turn_parameters(user, of.linear.theta, of.turned, of.p, q, of.linear.rewards)
        for r in range(of.linear.rewards):
            for e in range(q):
                combined[e] += weights[first + r] * turned[r * q + e]
        first += of.linear.rewards


def _bonus(weights, params, log_det, begin, end, n_rewards):
    """What widths are worth: sum_r |g_r| alpha_r over the rewards of a stage, optimistic for either
    sign of g, times the exploration; alpha_r = R_r sqrt(2 ln(1/delta_1) + ln det V/det V_0) +
    sqrt(ridge) D_theta_r.

    weights (R,), params: see `Ranker`; begin, end: of the rewards of the stage.
    """
    total: Real = 0.0
    for r in range(begin, end):
        alpha = params[HEAD + r] * sqrt(params[LEVEL] + log_det) + params[HEAD + n_rewards + r]
        total += fabs(weights[r]) * alpha
    return params[EXPLORATION] * total


def _add_pointwise(own, width, low, high, noise, wide, weight, out, n):
    """out_i += |weight| pointwise_bonus_i of one reward. own: estimates (n,), width, out (n,)."""
    for i in range(n):
        out[i] += fabs(weight) * pointwise_bonus(own[i], low, high, noise, width[i], wide)


def _estimate_along(turned, items, stride, out, q, n):
    """out_i = <turned, item_i>. turned (q,), items (q, n), out (n,): see `rank`."""
    row: In
    start: Size = 0
    while start < n:  # what is summed stays in the fastest cache
        stop = min(n, start + 1024)
        for i in range(start, stop):
            out[i] = 0.0
        for e in range(q):
            x = turned[e]
            row = items + e * stride
            for i in range(start, stop):
                out[i] = fma(x, row[i], out[i])
        start = stop


def _worth(self, items, stride, n, weights):
    """What confidence widths are worth: bonus and wide. Where pointwise, wide are the sums
    sum_r |g_r| bonus_r of each item, and bonus is 1; so it is where widths are summed over stages.

    items (q, n), weights (R,); `turned` and `width` are those of the round.
    """
    of: cython.pointer[Products] = self.products
    params: cython.pointer[cython.const[cython.double]] = self.params
    n_rewards: Size = self.rewards
    first: Size = 0
    low: cython.pointer[cython.const[cython.double]]
    if params[EXPLORATION] >= 0.0 and self.stages == 1:
        self.bonus = _bonus(weights, params, of.linear.counters[LOG_DET], 0, n_rewards, n_rewards)
        self.wide = self.width
        return
    self.bonus = 1.0
    self.wide = self.bonuses
    for i in range(n):
        self.bonuses[i] = 0.0
    if params[EXPLORATION] >= 0.0:
        _add_widths(self, weights, params, self.bonuses, n)
        return
    low = params + self.n_params - 2 * n_rewards
    for s in range(self.stages):
        of = self.products + s
        radius = pointwise_radius(cython.cast(Real, of.linear.d), of.linear.counters[UPDATES])
        for r in range(of.linear.rewards):
            _estimate_along(of.turned + r * of.q, items, stride, self.spare, of.q, n)
            _add_pointwise(
                self.spare,
                self.width + s * self.most,
                low[first],
                low[n_rewards + first],
                params[HEAD + first],
                radius,
                weights[first],
                self.bonuses,
                n,
            )
            first += 1


def _add_widths(self, weights, params, out, n):
    """out_i += sum_s bonus_s width_si over the stages. weights (R,), out (n,)."""
    width: In
    first: Size = 0
    end: Size
    for s in range(self.stages):
        end = first + self.products[s].linear.rewards
        log_det = self.products[s].linear.counters[LOG_DET]
        bonus = _bonus(weights, params, log_det, first, end, self.rewards)
        width = self.width + s * self.most
        for i in range(n):
            out[i] += bonus * width[i]
        first = end


def _around(self, pinned, n, ranking):
    """The best of the other items in the slots that are free. pinned, ranking (k,): places among
    the n candidates, -1 where a slot is free.
    """
    free_slots: Size = 0
    place: Size = 0
    memcpy(self.spare, self.scores, 8 * n)
    for slot in range(self.slots):
        if pinned[slot] >= 0:
            self.spare[pinned[slot]] = -INFINITY
        else:
            free_slots += 1
    if free_slots > 0:
        top_k(self.spare, n, free_slots, self.best)
    for slot in range(self.slots):
        if pinned[slot] >= 0:
            ranking[slot] = pinned[slot]
        else:
            ranking[slot] = self.best[place]
            place += 1


def _swapped(chance, draws, pinned, ranking, k):
    """Swap neighbouring slots at random, in pairs that start at the first or the second slot; the
    propensity of the result.

    Which of the two is drawn first. A ranking with a swap comes from one of them only, the ranking
    without any from both, so its propensity is known exactly.

    draws (1 + k // 2,), pinned (k,) or NULL, ranking (k,).
    """
    swaps: Size = 0
    probability: Real = 0.5
    other: Real = 0.5
    item: int64_t
    if chance == 0.0:
        return 1.0
    offset = 0 if draws[0] < 0.5 else 1
    for start in range(k - 1):
        if pinned != cython.NULL and (pinned[start] >= 0 or pinned[start + 1] >= 0):
            continue
        if start % 2 != offset:
            other *= 1.0 - chance
        elif draws[1 + start // 2] < chance:
            swaps += 1
            probability *= chance
            item = ranking[start]
            ranking[start] = ranking[start + 1]
            ranking[start + 1] = item
        else:
            probability *= 1.0 - chance
    return probability if swaps > 0 else probability + other


def _estimate_items(self, user, items, stride, n, weights):
    """B and C of the user, estimates, widths, and what these are worth, in the ranker.

    user (p,), items (q, n), weights (R,). d^2 q + n q^2/2 multiplications.
    """
    width: Out = self.width
    of: cython.pointer[Products] = self.products
    for s in range(self.stages):
        contract(self.products + s, user)
    _combine(self, user, weights)
    for s in range(self.stages):
        of = self.products + s
        estimates(self.combined, of.metric, items, stride, self.spare, self.value, width, of.q, n)
        width += self.most
    _worth(self, items, stride, n, weights)


def largest_column(items, stride, q, n):
    """max_i |item_i|^2, items (q, n) as columns, rows `stride` apart: 64 at a time."""
    squares = cython.declare(cython.double[64])
    largest: Real = 0.0
    start: Size = 0
    while start < n:
        size = min(n - start, 64)
        for i in range(size):
            squares[i] = 0.0
        for j in range(q):
            for i in range(size):
                squares[i] += items[j * stride + start + i] * items[j * stride + start + i]
        for i in range(size):
            largest = max(largest, squares[i])
        start += size
    return largest


def _spectral_bound(metric, power, spare, q):
    """An upper bound of |x' C x|/|x|^2 for C (q, q), of which the lower half is read.

    The Frobenius norm of C^8 is between the eighth power of the largest eigenvalue and sqrt(q)
    times this. power, spare (q, q): scratch.
    """
    log_norm: Real = 0.0
    share: Real = 1.0
    for b in range(q):
        for e in range(b + 1):
            power[b * q + e] = metric[b * q + e]
            power[e * q + b] = metric[b * q + e]
    for turn in range(SQUARINGS + 1):
        square = 0.0
        for b in range(q * q):
            square += power[b] * power[b]
        norm = sqrt(square)
        if not norm > 0.0:
            return 0.0 if norm == 0.0 and turn == 0 else INFINITY
        log_norm += share * log(norm)
        share *= 0.5
        for b in range(q * q):
            power[b] /= norm
        for b in range(q):
            for e in range(q):
                spare[b * q + e] = 0.0
            for c in range(q):
                x = power[b * q + c]
                for e in range(q):
                    spare[b * q + e] += x * power[c * q + e]
        for b in range(q * q):
            power[b] = spare[b]
    return exp(log_norm)


def _gather(self, items, stride, direction, places, count):
    """Widths and scores of the items at some places (count,), count <= GATHERED; the scores are the
    row q of `gathered`, the widths its row q + 2.
    """
    q: Size = self.products.q
    some: Out = self.gathered
    for e in range(q):
        for i in range(count):
            some[e * GATHERED + i] = items[e * stride + places[i]]
    for i in range(count):
        some[(q + 3) * GATHERED + i] = direction[places[i]]
    estimates(
        self.combined,
        self.products.metric,
        self.gathered,
        GATHERED,
        self.gathered + q * GATHERED,
        self.gathered + (q + 1) * GATHERED,
        self.gathered + (q + 2) * GATHERED,
        q,
        count,
    )
    _optimistic(
        self.gathered + (q + 1) * GATHERED,
        self.gathered + (q + 2) * GATHERED,
        self.bonus,
        self.gathered + (q + 3) * GATHERED,
        cython.NULL,
        cython.NULL,
        0.0,
        0,
        cython.NULL,
        self.gathered + q * GATHERED,
        count,
    )


def _score_gathered(self, items, stride, direction, places, count):
    """Write the widths and the scores of some items (count,)."""
    q: Size = self.products.q
    _gather(self, items, stride, direction, places, count)
    for i in range(count):
        self.scores[places[i]] = self.gathered[q * GATHERED + i]
        self.width[places[i]] = self.gathered[(q + 2) * GATHERED + i]


def _rank_by_bounds(self, user, items, stride, n, direction, pinned, ranking):
    """Estimates, and the scores of items that can be among the best; those of the others are lower
    bounds, and smaller. False where this would save nothing.

    Widths are at least 0, so that the k-th largest value_i + g_i is a lower bound of the k-th
    score, and at most |C|^(1/2) max |item|: items that stay below with that width need none.
    Rounding is monotone, so that this holds for rounded numbers; for rounding inside of a width
    there is a factor 1 + 1e-6. n q + (items near the best) q^2/2 multiplications.
    """
    of: cython.pointer[Products] = self.products
    q: Size = of.q
    value: Out = self.value
    scores: Out = self.scores
    g: In = direction
    odd: Real = 0.0
    near: int64_t = 0
    count: Size = 0
    start: Size = 0
    stop: Size
    here: int64_t
    places: cython.pointer[int64_t] = cython.cast(
        cython.pointer[int64_t], self.gathered + (q + 4) * GATHERED
    )
    contract(of, user)
    _combine(self, user, direction + n)
    self.bonus = _bonus(
        direction + n, self.params, of.linear.counters[LOG_DET], 0, self.rewards, self.rewards
    )
    self.wide = self.width
    longest = self.longest if self.longest >= 0.0 else largest_column(items, stride, q, n)
    bound = _spectral_bound(of.metric, self.squares, self.squares + q * q, q)
    self.most_width = sqrt(bound * longest) * (1.0 + 1e-6)
    cap = self.bonus * self.most_width
    _estimate_along(self.combined, items, stride, self.value, q, n)
    for i in range(n):
        scores[i] = value[i] + g[i]
        odd += 0.0 * scores[i]
    if odd != 0.0 or not cap < INFINITY:
        return False
    if pinned == cython.NULL:
        top_k(self.scores, n, self.slots, ranking)
    else:
        _around(self, pinned, n, ranking)
    bar = INFINITY
    for slot in range(self.slots):
        if pinned == cython.NULL or pinned[slot] < 0:
            bar = min(bar, scores[ranking[slot]])
    for i in range(n):
        near += 1 if value[i] + cap + g[i] >= bar else 0
    if 4 * near > n:
        return False
    while start < n:
        stop = min(n, start + BLOCK)
        here = 0
        for i in range(start, stop):
            here += 1 if value[i] + cap + g[i] >= bar else 0
        if here > 0:
            for i in range(start, stop):
                if value[i] + cap + g[i] >= bar:
                    places[count] = i
                    count += 1
        if count > GATHERED - BLOCK or stop == n:
            _score_gathered(self, items, stride, direction, places, count)
            count = 0
        start = stop
    for slot in range(self.slots):
        if pinned != cython.NULL and pinned[slot] >= 0:
            _score_gathered(self, items, stride, direction, pinned + slot, 1)
    return True


def _count_larger(self, items, stride, n, direction, plain, plain_rank):
    """By slot, how many items have a larger value + bonus width, plus 1, after `_rank_by_bounds`.

    plain, plain_rank (k,). Only items that may be on either side of one of them need their width.
    """
    q: Size = self.products.q
    value: In = self.value
    low: Real = plain[0]
    high: Real = plain[0]
    above: int64_t = 0
    count: Size = 0
    start: Size = 0
    stop: Size
    here: int64_t
    cap = self.bonus * self.most_width
    places: cython.pointer[int64_t] = cython.cast(
        cython.pointer[int64_t], self.gathered + (q + 4) * GATHERED
    )
    for slot in range(self.slots):
        low, high = min(low, plain[slot]), max(high, plain[slot])
        plain_rank[slot] = 1
    while start < n:
        stop = min(n, start + BLOCK)
        here = 0
        for i in range(start, stop):
            here += 1 if value[i] + cap > low else 0
        if here > 0:
            for i in range(start, stop):
                if value[i] > high:
                    above += 1
                elif value[i] + cap > low:
                    places[count] = i
                    count += 1
        if count > GATHERED - BLOCK or stop == n:
            _gather(self, items, stride, direction, places, count)
            for i in range(count):
                own = value[places[i]] + self.bonus * self.gathered[(q + 2) * GATHERED + i]
                for slot in range(self.slots):
                    plain_rank[slot] += 1 if own > plain[slot] else 0
            count = 0
        start = stop
    for slot in range(self.slots):
        plain_rank[slot] += above


def _arrange(self, n, pinned, draws, ranking):
    """The items of largest `scores` (n,) around the pinned ones, with swaps; its propensity.

    pinned (k,) or NULL, draws (1 + k // 2,), ranking (k,).
    """
    if pinned == cython.NULL:
        top_k(self.scores, n, self.slots, ranking)
    else:
        _around(self, pinned, n, ranking)
    return _swapped(self.params[RANDOMIZE], draws, pinned, ranking, self.slots)


def rank(self, user, items, stride, n, direction, exposed, shown, t, pinned, draws, ranking):
    """The ranking, as places among the n candidates, best slot first; its propensity.

    It leaves B and C of the user, estimates, widths and scores in the ranker. user (p,),
    items (q, n), rows `stride` numbers apart, direction (n + R,), exposed, shown (n,), t: rankings
    so far; pinned (k,): places
    of items that have their slot, -1 where it is free, or NULL; draws (1 + k // 2,), read where
    slots are swapped; ranking (k,).
    """
    bounded: cython.bint = n >= FROM_MANY and self.score == _optimistic and self.stages == 1
    self.partial = False
    if bounded and self.params[EXPLORATION] >= 0.0 and self.waits <= 0:
        self.partial = _rank_by_bounds(self, user, items, stride, n, direction, pinned, ranking)
        self.waits = 0 if self.partial else 4  # decisions until it is tried again
    self.waits -= 1
    if not self.partial:
        _estimate_items(self, user, items, stride, n, direction + n)
        self.score(
            self.value,
            self.wide,
            self.bonus,
            direction,
            exposed,
            shown,
            t,
            self.slots,
            self.params + HEAD + 2 * self.rewards,
            self.scores,
            n,
        )
    return _arrange(self, n, pinned, draws, ranking)


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _count_above(bar: Real, values: In, n: Size) -> int64_t:
    """How many of the values (n,) are larger."""
    above: int64_t = 0
    for i in range(n):
        above += 1 if values[i] > bar else 0
    return above


def explain(self, items, stride, n, direction, ranking, parts, plain_rank):
    """By slot, of the last `rank`: estimate, exploration and fairness, which sum to the score, and
    the rank by the first two alone.

    items, direction: of that; ranking (k,), parts (3, k); plain_rank (k,), or NULL: not computed
    (k n comparisons).
    """
    k: Size = self.slots
    value: In = self.value
    wide: In = self.wide
    sums: Out = self.spare
    if plain_rank != cython.NULL and not self.partial:
        for i in range(n):
            sums[i] = value[i] + self.bonus * wide[i]
    for slot in range(k):
        row = ranking[slot]
        plain = value[row] + self.bonus * wide[row]
        if self.partial:
            sums[slot] = plain
        parts[slot] = value[row]
        parts[k + slot] = self.bonus * wide[row]
        parts[2 * k + slot] = self.scores[row] - plain
        if plain_rank != cython.NULL and not self.partial:
            plain_rank[slot] = _count_above(plain, self.spare, n) + 1
    if plain_rank != cython.NULL and self.partial:
        _count_larger(self, items, stride, n, direction, self.spare, plain_rank)


def certify_ranking(self, user, items, stride, n, slope, ranking, terms):
    """By slot, of <slope, r> where it is exposed: the largest optimistic scores (0 without
    `bounds`), and by how much the ranking is below the largest estimates.

    After `rank` for the same user, whose scores it overwrites: confidence widths do not depend on
    the direction. user (p,), items (q, n), slope (n + R,), ranking (k,), terms (2, k).
    """
    k: Size = self.slots
    n_rewards: Size = self.rewards
    most: Real = 0.0
    own: Out = self.spare
    scores: Out = self.scores
    if self.partial and self.n_bounds > 0:  # now all widths are needed
        of: cython.pointer[Products] = self.products
        estimates(
            self.combined, of.metric, items, stride, self.scores, self.spare, self.width, of.q, n
        )
        self.partial = False
    for r in range(n_rewards):
        most += max(slope[n + r] * self.ranges[r], slope[n + r] * self.ranges[n_rewards + r])
    _combine(self, user, slope + n)
    _estimate_along(self.combined, items, stride, self.spare, self.products.q, n)
    for i in range(n):
        scores[i] = own[i] + slope[i]
    top_k(self.scores, n, k, self.best)
    for j in range(k):
        terms[j] = 0.0
        terms[k + j] = scores[self.best[j]] - scores[ranking[j]]
    if self.n_bounds > 0:
        _add_widths(self, slope + n, self.bounds, self.spare, n)
        for i in range(n):
            scores[i] = min(own[i], most) + slope[i]
        top_k(self.scores, n, k, self.best)
        for j in range(k):
            terms[j] = scores[self.best[j]]


# --- exposures --------------------------------------------------------------------------------


def exposure_rates(slots, weights, chances, k):
    """How likely each slot is exposed: its weight, where these are given; else as often as it was,
    1 before it was shown. slots (2, k): rankings, exposures; weights (k,) or NULL, chances (k,).
    """
    for j in range(k):
        if weights != cython.NULL:
            chances[j] = weights[j]
        else:
            chances[j] = slots[k + j] / slots[j] if slots[j] > 0.0 else 1.0


def features_of(items, stride, ranking, k, q, rows):
    """The features of the items of a ranking. items: see `rank`, ranking (k,), rows (k, q)."""
    for j in range(k):
        for e in range(q):
            rows[j * q + e] = items[e * stride + ranking[j]]


def expected_features(chances, user, rows, k, p, q, x):
    """x = user (x) sum_j looks_j row_j: features of what is expected to be exposed of a ranking.

    chances (k,), user (p,), rows (k, q), x (p q,).
    """
    for e in range(q):
        combined = 0.0
        for j in range(k):
            combined += chances[j] * rows[j * q + e]
        for a in range(p):
            x[a * q + e] = user[a] * combined


def count_exposed(exposure, items, exposed, rewards, k, n_rewards, begin, end, n, exposures, total):
    """Which slots count as exposed, and the reward vector of the ranking, which is added to total.

    exposure: OBSERVED, SHOWN or UNTIL_LAST_CLICK. items, exposed (k,), rewards (k, R), of which
    those from `begin` to below `end` count, exposures (k,), total (n,). 0, or where the feedback
    contradicts itself, before anything is written: slot + k times what is wrong.
    """
    first: Size = n - n_rewards
    last: Size = -1
    for j in range(k):
        if not 0 <= items[j] < first:
            return k * NO_ITEM + j
        for i in range(j):
            if items[i] == items[j]:
                return k * ITEM_TWICE + j
        if exposed[j] != 0.0 and exposed[j] != 1.0:
            return k * NOT_A_COIN + j
        for r in range(begin, end):
            if not isfinite(rewards[j * n_rewards + r]):
                return k * NOT_FINITE + j
            if rewards[j * n_rewards + r] != 0.0:
                last = j
                if exposure == OBSERVED and exposed[j] == 0.0:
                    return k * EARNED_UNSEEN + j
    for j in range(k):
        if exposure == OBSERVED:
            exposures[j] = exposed[j]
        elif exposure == SHOWN or j <= last:
            exposures[j] = 1.0
        else:
            exposures[j] = 0.0
        if exposures[j] != 0.0:
            total[items[j]] += 1.0
            for r in range(begin, end):
                total[first + r] += rewards[j * n_rewards + r]
    return 0


def exposed_rows(rows, exposures, rewards, k, q, n_rewards, begin, end, learnt, targets):
    """The rows and rewards of the items that were exposed, and how many.

    rows, learnt (k, q), exposures (k,), rewards (k, R), of which those from `begin` to below `end`
    go to targets (k, end - begin).
    """
    r: Size = 0
    size: Size = end - begin
    for j in range(k):
        if exposures[j] > 0.0:
            for e in range(q):
                learnt[r * q + e] = rows[j * q + e]
            for e in range(size):
                targets[r * size + e] = rewards[j * n_rewards + begin + e]
            r += 1
    return r


def sum_slots(terms, exposures, k, out):
    """Of <slope, r>: the largest optimistic value, and what the ranking missed by the estimates,
    twice; then 0. terms (2, k), exposures (k,), out (4,).
    """
    top: Real = 0.0
    missed: Real = 0.0
    for j in range(k):
        top += terms[j] * exposures[j]
        missed += terms[k + j] * exposures[j]
    out[0] = top
    out[1] = missed
    out[2] = missed
    out[3] = 0.0


def count_ranking(items, exposures, k, known, owed, exposed, shown, m, slots):
    """Count a ranking. Items from `known` on came after it, and count as shown in a share `owed` of
    what was decided before: a ranking of that time changes nothing for them.

    items, exposures (k,), exposed, shown (m,), slots (2, k).
    """
    for j in range(k):
        exposed[items[j]] += exposures[j]
        shown[items[j]] += 1.0
        slots[j] += 1.0
        slots[k + j] += exposures[j]
    for j in range(known, m):
        shown[j] += owed


# --- worlds -----------------------------------------------------------------------------------


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _item_mean(turned: In, item: In, q: Size, low: Real, high: Real) -> Real:
    """<turned, item>, clipped to the range of the reward. turned, item (q,)."""
    total: Real = 0.0
    for j in range(q):
        total = fma(turned[j], item[j], total)
    return min(max(total, low), high)


def slot_means(self, action, user, out):
    """The mean of every reward of the item in each slot, where it is exposed. out (k, R)."""
    q: Size = self.q
    n: Size = self.rewards
    for j in range(self.slots):
        for r in range(n):
            out[j * n + r] = _item_mean(
                self.turned + (r * self.users + user) * q,
                self.items + action[j] * q,
                q,
                self.ranges[2 * r],
                self.ranges[2 * r + 1],
            )


def observe(self, user, means, uniforms, exposed, rewards):
    """The feedback to a ranking with these `slot_means` (k, R): a slot is exposed with its weight,
    a reward that is exposed is one of the two ends of its range.

    uniforms (k + k R,): for the exposures, then for the rewards by slot; exposed (k,),
    rewards (k, R).
    """
    k: Size = self.slots
    n: Size = self.rewards
    hit: cython.bint
    weights: In = self.weights + (user if self.weights_n > 1 else 0) * k
    for j in range(k):
        exposed[j] = 1.0 if uniforms[j] < weights[j] else 0.0
        for r in range(n):
            low = self.ranges[2 * r]
            high = self.ranges[2 * r + 1]
            # low + (high - low) U < mean, without a division: the mean is that of a coin.
            hit = fma(high - low, uniforms[k + j * n + r], low) < means[j * n + r]
            rewards[j * n + r] = 0.0 if exposed[j] == 0.0 else (high if hit else low)


def mean_of_ranking(self, action, user, means, out):
    """The expected reward vector of a ranking with these `slot_means` (k, R): exposures of its
    items, then the user-side rewards. Other coordinates of out (m + R,) are left alone.
    """
    k: Size = self.slots
    n: Size = self.rewards
    weights: In = self.weights + (user if self.weights_n > 1 else 0) * k
    total: Out = out + self.items_n
    for r in range(n):
        total[r] = 0.0
    for j in range(k):
        out[action[j]] = 0.0 + weights[j]
        for r in range(n):
            total[r] = fma(weights[j], means[j * n + r], total[r])


def _item_means(turned, columns, out, q, m):
    """<turned, item> of every item, not clipped, with the bits of one item at a time: each sum is
    taken in the order of the factors. turned (q,), columns (q, m), out (m,).
    """
    w: In
    x: In
    y: In
    z: In
    whole: Size = q - q % 4
    for i in range(m):
        out[i] = 0.0
    for j in range(0, whole, 4):
        a = turned[j]
        b = turned[j + 1]
        c = turned[j + 2]
        d = turned[j + 3]
        w = columns + j * m
        x = w + m
        y = x + m
        z = y + m
        for i in range(m):
            out[i] = fma(d, z[i], fma(c, y[i], fma(b, x[i], fma(a, w[i], out[i]))))
    for j in range(whole, q):
        a = turned[j]
        w = columns + j * m
        for i in range(m):
            out[i] = fma(a, w[i], out[i])


def _add_clipped(g, means, low, high, scores, m):
    """scores += g (means clipped to [low, high]). means, scores (m,)."""
    for i in range(m):
        scores[i] = fma(g, min(max(means[i], low), high), scores[i])


def best_ranking(self, direction, user, spare, scores, out):
    """The items of largest g_i + sum_r g_r mean_r(i), largest first.

    Position weights do not increase, so that sorting by score is optimal (Proposition 4).
    direction (m + R,), spare, scores (m,), out (k,).
    """
    m: Size = self.items_n
    q: Size = self.q
    memcpy(scores, direction, 8 * m)
    for r in range(self.rewards):
        _item_means(self.turned + (r * self.users + user) * q, self.columns, spare, q, m)
        _add_clipped(direction[m + r], spare, self.ranges[2 * r], self.ranges[2 * r + 1], scores, m)
    top_k(scores, m, self.slots, out)


def support_of_rankings(self, direction, shares, spare, scores, best, out):
    """sum_u share_u <g, mean of u's best ranking>, and that mean reward vector in `out`.

    direction, out (m + R,), shares (users,), spare, scores (m,), best (k,).
    """
    m: Size = self.items_n
    k: Size = self.slots
    height: Real = 0.0
    weights: cython.pointer[cython.const[cython.double]]
    for i in range(m + self.rewards):
        out[i] = 0.0
    for u in range(self.users):
        best_ranking(self, direction, u, spare, scores, best)
        weights = self.weights + (u if self.weights_n > 1 else 0) * k
        for j in range(k):
            i = best[j]
            share = shares[u] * weights[j]
            height = fma(share, scores[i], height)
            out[i] += share
            for r in range(self.rewards):
                mean = _item_mean(
                    self.turned + (r * self.users + u) * self.q,
                    self.items + i * self.q,
                    self.q,
                    self.ranges[2 * r],
                    self.ranges[2 * r + 1],
                )
                out[m + r] = fma(share, mean, out[m + r])
    return height


# --- scratch ----------------------------------------------------------------------------------


def ranker_room(self):
    """How many numbers `ranker_scratch` needs; those of its products among them."""
    q: Size = self.products.q
    total: Size = (4 + self.stages) * self.most + q + self.slots + 8 * 8
    total += (q + 5) * GATHERED + 2 * q * q + 2 * 8
    for s in range(self.stages):
        total += products_room(self.products + s)
    return total


def ranker_scratch(self, room):
    """Divide room among the scratch arrays, each from the start of a cache line on."""
    self.value = aligned(room)
    self.width = aligned(self.value + self.most)
    self.scores = aligned(self.width + self.stages * self.most)
    self.spare = aligned(self.scores + self.most)
    self.bonuses = aligned(self.spare + self.most)
    self.combined = aligned(self.bonuses + self.most)
    q: Size = self.products.q
    self.gathered = aligned(self.combined + q)
    self.squares = aligned(self.gathered + (q + 5) * GATHERED)
    self.best = cython.cast(cython.pointer[int64_t], aligned(self.squares + 2 * q * q))
    self.wide = self.width
    room = cython.cast(cython.p_double, self.best + self.slots)
    for s in range(self.stages):
        products_scratch(self.products + s, room)
        room += products_room(self.products + s)


# --- for Python -------------------------------------------------------------------------------


@cython.cclass
class CompiledRankingWorld:
    """A world with rankings over arrays, which are not copied: the mean of reward r of item i for a
    user is <turned[r, user], items[i]>, clipped to its range.

    turned (R, users, q), items (m, q), columns (q, m): the items transposed, weights (1 or users,
    k): how likely slots are exposed, ranges (R, 2).
    """

    own: RankingArrays
    arrays: tuple[Any, ...]
    room: cython.p_double
    best: cython.pointer[int64_t]

    def __cinit__(self) -> None:
        self.room = cython.NULL
        self.best = cython.NULL

    def __init__(
        self, turned: Tensor, items: Matrix, columns: Matrix, weights: Matrix, ranges: Matrix
    ) -> None:
        own: cython.pointer[RankingArrays] = cython.address(self.own)
        own.rewards, own.users, own.q = turned.shape[0], turned.shape[1], turned.shape[2]
        own.items_n, own.weights_n, own.slots = items.shape[0], weights.shape[0], weights.shape[1]
        if not (
            own.rewards > 0
            and own.users > 0
            and own.q > 0
            and 0 < own.slots <= own.items_n
            and items.shape[1] == own.q == columns.shape[0]
            and columns.shape[1] == own.items_n
            and own.weights_n in (1, own.users)
            and ranges.shape[0] == own.rewards
            and ranges.shape[1] == 2
        ):
            raise ValueError(
                f"turned ({own.rewards}, {own.users}, {own.q}), items ({items.shape[0]}, "
                f"{items.shape[1]}), columns ({columns.shape[0]}, {columns.shape[1]}), weights "
                f"({own.weights_n}, {own.slots}), ranges ({ranges.shape[0]}, {ranges.shape[1]})"
            )
        self.arrays = (turned.base, items.base, columns.base, weights.base, ranges.base)
        own.turned = cython.address(turned[0, 0, 0])
        own.items = cython.address(items[0, 0])
        own.columns = cython.address(columns[0, 0])
        own.weights = cython.address(weights[0, 0])
        own.ranges = cython.address(ranges[0, 0])
        free(self.room)
        free(self.best)
        slots: Size = own.slots * own.rewards
        self.room = cython.cast(cython.p_double, malloc(8 * (2 * own.items_n + slots)))
        self.best = cython.cast(cython.pointer[int64_t], malloc(8 * own.slots))
        if self.room == cython.NULL:
            raise MemoryError
        if self.best == cython.NULL:
            raise MemoryError

    def __dealloc__(self) -> None:
        free(self.room)
        free(self.best)

    def feedback(
        self,
        action: IntVector,
        user: Size,
        uniforms: Vector,
        exposed: OutVector,
        rewards: OutMatrix,
    ) -> None:
        """Which slots are exposed and what their items earn: see `observe`."""
        k: Size = self.own.slots
        n: Size = self.own.rewards
        self._check(action, user)
        if not (
            uniforms.shape[0] == k + k * n
            and exposed.shape[0] == k == rewards.shape[0]
            and rewards.shape[1] == n
        ):
            raise ValueError("the arrays of the feedback have other shapes")
        with cython.nogil:
            slot_means(cython.address(self.own), cython.address(action[0]), user, self.room)
            observe(
                cython.address(self.own),
                user,
                self.room,
                cython.address(uniforms[0]),
                cython.address(exposed[0]),
                cython.address(rewards[0, 0]),
            )

    def mean(self, action: IntVector, user: Size, out: OutVector) -> None:
        """The expected reward vector of a ranking, out (m + R,)."""
        self._check(action, user)
        if out.shape[0] != self.own.items_n + self.own.rewards:
            raise ValueError(f"{out.shape[0]} numbers for a reward vector")
        with cython.nogil:
            for i in range(out.shape[0]):
                out[i] = 0.0
            slot_means(cython.address(self.own), cython.address(action[0]), user, self.room)
            mean_of_ranking(
                cython.address(self.own),
                cython.address(action[0]),
                user,
                self.room,
                cython.address(out[0]),
            )

    def best_for(self, direction: Vector, user: Size, out: OutIntVector) -> None:
        """The ranking of largest <direction, mean reward>, ties to the lowest index. out (k,)."""
        own: cython.pointer[RankingArrays] = cython.address(self.own)
        if not (
            0 <= user < own.users
            and direction.shape[0] == own.items_n + own.rewards
            and out.shape[0] == own.slots
        ):
            raise ValueError("the user, the direction or the ranking does not fit the world")
        with cython.nogil:
            best_ranking(
                own,
                cython.address(direction[0]),
                user,
                self.room,
                self.room + own.items_n,
                cython.address(out[0]),
            )

    def support(self, direction: Vector, shares: Vector, out: OutVector) -> float:
        """sum_u share_u <g, mean of u's best ranking>; that mean reward vector in out (m + R,)."""
        own: cython.pointer[RankingArrays] = cython.address(self.own)
        if not (
            shares.shape[0] == own.users
            and direction.shape[0] == own.items_n + own.rewards == out.shape[0]
        ):
            raise ValueError("the direction, the shares or the point does not fit the world")
        with cython.nogil:
            height = support_of_rankings(
                own,
                cython.address(direction[0]),
                cython.address(shares[0]),
                self.room,
                self.room + own.items_n,
                self.best,
                cython.address(out[0]),
            )
        return height

    def _check(self, action: IntVector, user: Size) -> None:
        """An action and a user that may come from outside."""
        if action.shape[0] != self.own.slots or not 0 <= user < self.own.users:
            raise ValueError(f"{action.shape[0]} items for user {user}")
        for j in range(action.shape[0]):
            if not 0 <= action[j] < self.own.items_n:
                raise ValueError(f"there is no item {action[j]}")


@cython.cclass
class Ranking:
    """One ranking, step by step: `estimate`, scores by `scores_of` or of the caller, `arrange`.

    It only reads the arrays: theta (1, R, d), inverse (1, d, d), counters (5,); params, bounds: see
    `Ranker`; ranges (2, R). p, q: features of users and items; k slots; most: candidates.
    """

    own: Ranker
    products: Products
    arrays: tuple[Any, ...]  # keeps them alive
    room: cython.p_double

    def __cinit__(self) -> None:
        self.room = cython.NULL

    def __init__(
        self,
        theta: OutTensor,
        inverse: OutTensor,
        counters: OutVector,
        params: Vector,
        bounds: Vector,
        ranges: Matrix,
        p: Size,
        q: Size,
        k: Size,
        most: Size,
    ) -> None:
        own: cython.pointer[Ranker] = cython.address(self.own)
        of: cython.pointer[Products] = cython.address(self.products)
        n: Size = theta.shape[1]
        of.p, of.q, of.most = p, q, k
        of.linear.blocks, of.linear.rewards, of.linear.d = 1, n, p * q
        of.linear.first, of.linear.rows = 0, n
        if not (
            0 < k <= most
            and p > 0
            and q > 0
            and n > 0
            and theta.shape[0] == inverse.shape[0] == 1
            and theta.shape[2] == inverse.shape[1] == inverse.shape[2] == p * q
            and counters.shape[0] == 5
            and params.shape[0] >= HEAD + 2 * n
            and (params[EXPLORATION] >= 0.0 or params.shape[0] >= HEAD + 4 * n)
            and (bounds.shape[0] == 0 or bounds.shape[0] == HEAD + 2 * n)
            and ranges.shape[0] == 2
            and ranges.shape[1] == n
        ):
            raise ValueError(f"the arrays are not those of {p} x {q} features and {n} rewards")
        self.arrays = (
            theta.base,
            inverse.base,
            counters.base,
            params.base,
            bounds.base,
            ranges.base,
        )
        of.linear.gram, of.linear.moment = cython.NULL, cython.NULL
        of.linear.theta = cython.address(theta[0, 0, 0])
        of.linear.inverse = cython.address(inverse[0, 0, 0])
        of.linear.counters = cython.address(counters[0])
        own.products, own.stages, own.rewards = of, 1, n
        own.slots, own.most = k, most
        own.params, own.n_params = cython.address(params[0]), params.shape[0]
        own.n_bounds = bounds.shape[0]
        own.bounds = cython.address(bounds[0]) if own.n_bounds > 0 else cython.NULL
        own.ranges = cython.address(ranges[0, 0])
        free(self.room)
        self.room = cython.cast(cython.p_double, malloc(8 * ranker_room(own)))
        if self.room == cython.NULL:
            raise MemoryError
        ranker_scratch(own, self.room)

    def __dealloc__(self) -> None:
        free(self.room)

    def estimate(
        self, user: Vector, items: Matrix, direction: Vector, value: OutVector, width: OutVector
    ) -> float:
        """What each item is estimated to earn along the direction, value (n,); confidence widths,
        width (n,), and what to multiply these by; where pointwise, bonuses, and 1.

        user (p,), items (q, n), direction (n + R,).
        """
        own: cython.pointer[Ranker] = cython.address(self.own)
        n: Size = items.shape[1]
        self._check(user, items, direction)
        if not (value.shape[0] == width.shape[0] == n):
            raise ValueError("the estimates have other shapes")
        own.partial = False
        with cython.nogil:
            _estimate_items(
                own,
                cython.address(user[0]),
                cython.address(items[0, 0]),
                n,
                n,
                cython.address(direction[n]),
            )
            memcpy(cython.address(value[0]), own.value, 8 * n)
            memcpy(cython.address(width[0]), own.wide, 8 * n)
        return own.bonus

    def arrange(
        self, scores: Vector, pinned: IntVector, draws: Vector, ranking: OutIntVector
    ) -> float:
        """The items of largest scores (n,) in order, as places, ranking (k,); its propensity.

        pinned (k,): places of items that have their slot, -1 where it is free, or none;
        draws (1 + k // 2,), or none where slots are not swapped.
        """
        own: cython.pointer[Ranker] = cython.address(self.own)
        n: Size = scores.shape[0]
        fixed: cython.pointer[cython.const[int64_t]] = cython.NULL
        drawn: cython.pointer[cython.const[cython.double]] = cython.NULL
        if not (
            own.slots <= n <= own.most
            and ranking.shape[0] == own.slots
            and (pinned.shape[0] == 0 or pinned.shape[0] == own.slots)
            and (own.params[RANDOMIZE] == 0.0 or draws.shape[0] == 1 + own.slots // 2)
        ):
            raise ValueError("the scores, the pinned slots or the draws have other shapes")
        if not all(-1 <= i < n for i in pinned):
            raise ValueError(f"a pinned item is not among {n} candidates")
        if pinned.shape[0] > 0:
            fixed = cython.address(pinned[0])
        if draws.shape[0] > 0:
            drawn = cython.address(draws[0])
        with cython.nogil:
            memcpy(own.scores, cython.address(scores[0]), 8 * n)
            probability = _arrange(own, n, fixed, drawn, cython.address(ranking[0]))
        return probability

    def reasons(
        self, n: Size, ranking: OutIntVector, parts: OutMatrix, ranks: OutIntVector
    ) -> None:
        """The parts (3, k) of the scores of the last ranking, and ranks (k,) without fairness."""
        k: Size = self.own.slots
        if not (ranking.shape[0] == ranks.shape[0] == parts.shape[1] == k and parts.shape[0] == 3):
            raise ValueError("the arrays of the explanation have other shapes")
        if not 0 < n <= self.own.most or not all(0 <= i < n for i in ranking):
            raise ValueError(f"a ranking of {n} candidates")
        explain(
            cython.address(self.own),
            cython.NULL,
            0,
            n,
            cython.NULL,
            cython.address(ranking[0]),
            cython.address(parts[0, 0]),
            cython.address(ranks[0]),
        )

    def certify(
        self, user: Vector, items: Matrix, slope: Vector, ranking: OutIntVector, terms: OutMatrix
    ) -> None:
        """Live numbers along a slope, after `estimate` for the same user: see `certify_ranking`."""
        n: Size = items.shape[1]
        k: Size = self.own.slots
        self._check(user, items, slope)
        if terms.shape[0] != 2 or not (terms.shape[1] == ranking.shape[0] == k):
            raise ValueError("the ranking or the terms has another shape")
        if not all(0 <= i < n for i in ranking):
            raise ValueError(f"a ranking of {n} candidates")
        certify_ranking(
            cython.address(self.own),
            cython.address(user[0]),
            cython.address(items[0, 0]),
            n,
            n,
            cython.address(slope[0]),
            cython.address(ranking[0]),
            cython.address(terms[0, 0]),
        )

    def _check(self, user: Vector, items: Matrix, direction: Vector) -> None:
        own: cython.pointer[Ranker] = cython.address(self.own)
        n: Size = items.shape[1]
        if not (
            user.shape[0] == own.products.p
            and items.shape[0] == own.products.q
            and own.slots <= n <= own.most
            and direction.shape[0] == n + own.rewards
        ):
            raise ValueError("the user, the items or the direction has another shape")


def scores_of(
    rule: str,
    value: Vector,
    width: Vector,
    bonus: Real,
    direction: Vector,
    exposed: Vector,
    shown: Vector,
    t: Real,
    slots: Size,
    params: Vector,
    out: OutVector,
) -> None:
    """The scores (n,) of a rule: "optimistic", "discounted" (1 param) or "deprived_first" (2).

    value, width, direction, exposed, shown (n,), see `Score`.
    """
    n: Size = out.shape[0]
    score: Score = score_by_name(rule)
    needed: Size = {"optimistic": 0, "discounted": 1, "deprived_first": 2}[rule]
    if not (
        n > 0
        and value.shape[0] == width.shape[0] == direction.shape[0] == n
        and exposed.shape[0] == shown.shape[0] == n
        and params.shape[0] >= needed
    ):
        raise ValueError("the estimates, the counts or the params have other shapes")
    score(
        cython.address(value[0]),
        cython.address(width[0]),
        bonus,
        cython.address(direction[0]),
        cython.address(exposed[0]),
        cython.address(shown[0]),
        t,
        slots,
        cython.address(params[0]) if params.shape[0] > 0 else cython.NULL,
        cython.address(out[0]),
        n,
    )


def largest(scores: Vector, out: OutIntVector) -> None:
    """The places of the largest scores (n,), as many as out (k,) has: see `top_k`."""
    if not 0 < out.shape[0] <= scores.shape[0]:
        raise ValueError(f"the largest {out.shape[0]} of {scores.shape[0]}")
    with cython.nogil:
        top_k(cython.address(scores[0]), scores.shape[0], out.shape[0], cython.address(out[0]))


def count_exposures(
    exposure: int64_t,
    items: IntVector,
    exposed: Vector,
    rewards: Matrix,
    exposures: OutVector,
    total: OutVector,
) -> int:
    """`count_exposed`: items, exposed, exposures (k,), rewards (k, R), total (m + R,)."""
    k: Size = items.shape[0]
    if not (
        exposed.shape[0] == k == rewards.shape[0] == exposures.shape[0]
        and k > 0
        and 0 < rewards.shape[1] <= total.shape[0]
        and 0 <= exposure <= UNTIL_LAST_CLICK
    ):
        raise ValueError("the arrays of the feedback have other shapes")
    return count_exposed(
        exposure,
        cython.address(items[0]),
        cython.address(exposed[0]),
        cython.address(rewards[0, 0]),
        k,
        rewards.shape[1],
        0,
        rewards.shape[1],
        total.shape[0],
        cython.address(exposures[0]),
        cython.address(total[0]),
    )
