"""The kernels of rankings: from estimates to a ranking, and from what it earned to what is learnt.

One signature for the rules; `act` and `update` call the kernels for one round, the compiled loop
for many. Users have p features, items q, their products d = p q.
"""

from __future__ import annotations

import numpy as np

from fairwolfe.bandits.optimism import pointwise_bonus, pointwise_radius
from fairwolfe.core.arrays import Cube, IntCube, IntMatrix, IntVector, Matrix, Vector
from fairwolfe.kernels.bilinear import (
    ROUNDS,
    call_absorb,
    call_estimates,
    contract_twice,
    contract_user,
    remember,
    square_of,
    turn_parameters,
)
from fairwolfe.kernels.compile import (
    cube_at,
    data_of,
    fma,
    function_at,
    kernel,
    matrix_at,
    vector_at,
)
from fairwolfe.kernels.frames import (
    AIMING,
    BASE,
    FORGET,
    NUMBERS,
    RUNNING,
    SEEN,
    SLOPE,
    TOTALS,
    WAITING,
    address,
    cube,
    integers,
    matrix,
    vector,
)
from fairwolfe.kernels.limits import largest_square_norm
from fairwolfe.kernels.linalg import LOG_DET, REFRESH_EVERY, SINCE_REFRESH, STATUS, UPDATES
from fairwolfe.kernels.selection import top_k
from fairwolfe.kernels.settling import REFUSED, TALLY, UNSOUND, WILD, settle
from fairwolfe.kernels.waiting import (
    OPEN,
    age_weight,
    close_one,
    features_in,
    open_one,
    sum_at,
    sum_in,
)
from fairwolfe.kinds.exposures import count_exposed
from fairwolfe.oracles.linear_state import radius
from fairwolfe.smoothing.following import COURSE, N_ROOM, call_aim

__all__ = [
    "RANK",
    "absorb_exposed",
    "call_rule",
    "catch_up",
    "count_ranking",
    "expect_rankings",
    "expected_features",
    "exposed_rows",
    "later_of",
    "look_along",
    "look_rates",
    "rank",
    "rank_rows",
    "take_in",
    "take_in_and_settle",
    "take_in_rows",
    "tally_slots",
    "withdraw_ranking",
]

RANK = (
    "void(float64[::1], float64[::1], float64, float64[::1], float64[::1], float64[::1], float64, "
    "int64, float64[::1], float64[::1])"
)
"""(value, width, bonus, direction, exposed, shown, t, slots, params, scores out), all but the
numbers of the length of the candidates: estimates, confidence widths and what to multiply these by
(pointwise: bonuses, and 1),
the direction of the items, how often each was exposed and shown in the t rankings so far."""

call_rule = function_at(RANK)

_V, _M, _C = "float64[::1]", "float64[:, ::1]", "float64[:, :, ::1]"
_I, _IM, _IC = "int64[::1]", "int64[:, ::1]", "int64[:, :, ::1]"

_EXPLORATION, _LEVEL, _RANDOMIZE, _HEAD = 0, 1, 2, 3

_NUMBER = 8  # bytes

RULE, THETA, INVERSE, GRAM, MOMENT, LEARN_PARAMS, ORACLE_COUNTERS, PARAMS, DOUBT = range(
    BASE, BASE + 9
)
EXPOSED, SHOWN, SLOTS, WEIGHTS, KEPT, SLOT_RANGES, LATER = range(BASE + 9, BASE + 16)
"""Places of the arrays of a ranker in a frame: EXPOSED and SHOWN by item, SLOTS (2, k), WEIGHTS of
the slots, KEPT (q, n_items) features, SLOT_RANGES (2, rewards), LATER: see `later_of`; RULE has the
numbers below."""

SCORING, ESTIMATES, LOOKING, ABSORBING, LIMIT, OWED, EXPOSURE, BY_CHANCE, KEEPS, ONCE = range(10)
"""Places in RULE: addresses of the rule, of estimates, of live numbers and of what learns; the
limit of |user (x) item|^2; `Ranker.owed`; what counts as exposed; whether chances of exposure are
averaged; whether directions are kept; the address of `take_in_and_settle`."""


@kernel(
    signature="float64(float64[::1], float64[:, ::1], float64[:, :, ::1], float64[:, :, ::1], "
    "float64[::1], float64[::1], float64[::1], float64[::1], float64, int64, int64, "
    "float64[::1], int64[::1], float64[::1], float64[:, ::1], float64[:, ::1], float64[::1], "
    "float64[::1], float64[::1], int64[::1])"
)
def rank(
    user: Vector,
    items: Matrix,
    theta: Cube,
    inverse: Cube,
    counters: Vector,
    direction: Vector,
    exposed: Vector,
    shown: Vector,
    t: float,
    rule: int,
    estimates: int,
    params: Vector,
    pinned: IntVector,
    draws: Vector,
    contracted: Matrix,
    metric: Matrix,
    value: Vector,
    width: Vector,
    scores: Vector,
    ranking: IntVector,
) -> float:
    """The ranking, as rows of the candidates, best slot first; its probability.

    rule, estimates: addresses. params: exploration (-1: pointwise), 2 ln(1/delta_1), chance of a
    swap; R_r; sqrt(ridge) D_theta_r; the rule's; where pointwise, the lows and highs of a slot.
    `contracted`, `metric`, `value`, `width` and `scores` are filled on the way.

    user (p,), items (q, candidates), theta (1, rewards, d), inverse (1, d, d), counters (5,),
    contracted (q, d), metric (q, q); direction (candidates + rewards,), exposed, shown, value,
    width, scores (candidates,), ranking (slots,), pinned (slots or 0,), draws (1 + slots // 2 or
    0,).
    """
    n, n_rewards = scores.size, theta.shape[1]
    contract_user(user, inverse[0], contracted)
    contract_twice(user, contracted, metric)
    _estimate(estimates, user, items, theta, metric, direction[n:], value, width)
    bonus, wide = _worth(user, items, theta, counters, direction[n:], params, width)
    own = params[_HEAD + 2 * n_rewards :]
    call_rule(rule, value, wide, bonus, direction[:n], exposed, shown, t, ranking.size, own, scores)
    if pinned.size == 0:
        top_k(scores, ranking.size, ranking)
    else:
        _around(pinned, scores, ranking)
    return _swapped(params[_RANDOMIZE], draws, pinned, ranking)


@kernel
def _estimate(
    estimates: int,
    user: Vector,
    items: Matrix,
    theta: Cube,
    metric: Matrix,
    weights: Vector,
    value: Vector,
    width: Vector,
) -> None:
    """value_i = sum_r weights_r theta_r.x_i and width_i = |x_i|.

    user (p,), items (q, candidates), theta (1, rewards, d), metric (q, q), weights (rewards,),
    value, width (candidates,).
    """
    combined = np.empty(items.shape[0])
    _combine(user, theta, weights, combined)
    call_estimates(estimates, combined, metric, items, value, width)


@kernel
def _combine(user: Vector, theta: Cube, weights: Vector, combined: Vector) -> None:
    """sum_r weights_r theta_r, turned to the user. theta (1, rewards, p q), combined (q,)."""
    n_rewards, q = theta.shape[1], combined.size
    turned = np.empty((n_rewards, q))
    turn_parameters(user, theta[0], turned)
    for e in range(q):
        combined[e] = 0.0
    for r in range(n_rewards):
        for e in range(q):
            combined[e] += weights[r] * turned[r, e]


@kernel
def _bonus(weights: Vector, params: Vector, counters: Vector) -> float:
    """What widths are worth: sum_r |g_r| alpha_r, optimistic for either sign of g, times the
    exploration. weights (rewards,), params: as in `rank`.
    """
    n_rewards, bonus = weights.size, 0.0
    for r in range(n_rewards):
        noise, prior = params[_HEAD + r], params[_HEAD + n_rewards + r]
        bonus += abs(weights[r]) * radius(noise, prior, params[_LEVEL], counters[LOG_DET])
    return float(params[_EXPLORATION] * bonus)


@kernel
def _worth(
    user: Vector,
    items: Matrix,
    theta: Cube,
    counters: Vector,
    weights: Vector,
    params: Vector,
    width: Vector,
) -> tuple[float, Vector]:
    """What widths are worth, and the widths; where pointwise, 1, and sum_r |g_r| bonus_r of each
    item.

    user (p,), items (q, candidates), theta (1, rewards, d), counters (5,), weights (rewards,),
    width (candidates,). params: as in `rank`.
    """
    if params[_EXPLORATION] >= 0.0:
        return _bonus(weights, params, counters), width
    n_rewards, n = weights.size, width.size
    turned = np.empty((n_rewards, items.shape[0]))
    turn_parameters(user, theta[0], turned)
    ranges = params.size - 2 * n_rewards
    bonuses, own = np.zeros(n), np.empty(n)
    wide = pointwise_radius(theta.shape[2], counters[UPDATES])
    for r in range(n_rewards):
        for i in range(n):
            own[i] = 0.0
        for e in range(items.shape[0]):
            for i in range(n):
                own[i] = fma(turned[r, e], items[e, i], own[i])
        low, high, noise = params[ranges + r], params[ranges + n_rewards + r], params[_HEAD + r]
        for i in range(n):
            bonus = pointwise_bonus(own[i], low, high, noise, width[i], wide)
            bonuses[i] += abs(weights[r]) * bonus
    return 1.0, bonuses


LOOK = (
    "void(float64[::1], float64[:, ::1], float64[:, :, ::1], float64[::1], float64[::1], "
    "float64[::1], int64[::1], float64[::1], float64[:, ::1], float64[:, ::1])"
)

call_look = function_at(LOOK)


@kernel(signature=LOOK)
def look_along(
    user: Vector,
    items: Matrix,
    theta: Cube,
    width: Vector,
    counters: Vector,
    slope: Vector,
    ranking: IntVector,
    doubt: Vector,
    ranges: Matrix,
    outlook: Matrix,
) -> None:
    """By slot, of <slope, r> where it is exposed: the largest optimistic scores (0 without
    doubt), and by how much the ranking is below the largest estimates. ranges: of a slot's rewards.

    user (p,), items (q, candidates), theta (1, rewards, d), width (candidates,): confidence
    widths, which no direction changes; counters (5,), slope (candidates + rewards,), ranking
    (slots,), doubt (3 + 2 rewards or 0,), ranges (2, rewards), outlook (2, slots).
    """
    n, k = items.shape[1], ranking.size
    most = 0.0
    for r in range(theta.shape[1]):
        most += max(slope[n + r] * ranges[0, r], slope[n + r] * ranges[1, r])
    own, scores = np.empty(n), np.empty(n)
    best = np.empty(k, dtype=np.int64)
    combined = np.empty(items.shape[0])
    _combine(user, theta, slope[n:], combined)
    for i in range(n):
        own[i] = 0.0
    for e in range(combined.size):
        for i in range(n):
            own[i] = fma(combined[e], items[e, i], own[i])
    for i in range(n):
        scores[i] = own[i] + slope[i]
    top_k(scores, k, best)
    for j in range(k):
        outlook[0, j] = 0.0
        outlook[1, j] = scores[best[j]] - scores[ranking[j]]
    if doubt.size > 0:
        bonus = _bonus(slope[n:], doubt, counters)
        for i in range(n):
            scores[i] = min(own[i] + bonus * width[i], most) + slope[i]
        top_k(scores, k, best)
        for j in range(k):
            outlook[0, j] = scores[best[j]]


@kernel
def _around(pinned: IntVector, scores: Vector, ranking: IntVector) -> None:
    """The best of the others in the slots that are free.

    pinned, ranking (slots,), scores (candidates,).
    """
    others = np.empty(scores.size)
    for i in range(scores.size):
        others[i] = scores[i]
    free = np.int64(0)
    for slot in range(pinned.size):
        if pinned[slot] >= 0:
            others[pinned[slot]] = -np.inf
        else:
            free += 1
    best = np.empty(free, dtype=np.int64)
    if free > 0:
        top_k(others, int(free), best)
    place = 0
    for slot in range(ranking.size):
        if pinned[slot] >= 0:
            ranking[slot] = pinned[slot]
        else:
            ranking[slot] = best[place]
            place += 1


@kernel
def _swapped(chance: float, draws: Vector, pinned: IntVector, ranking: IntVector) -> float:
    """Swap neighbouring slots at random, in pairs that start at the first or the second slot.

    Which of the two is drawn first. A ranking with a swap comes from one of them only, the ranking
    without any from both, so its probability is known exactly.

    draws (1 + slots // 2,), pinned (slots or 0,), ranking (slots,).
    """
    if chance == 0.0:
        return 1.0
    offset = 0 if draws[0] < 0.5 else 1
    probability, other, swaps = 0.5, 0.5, 0
    for start in range(ranking.size - 1):
        if pinned.size > 0 and (pinned[start] >= 0 or pinned[start + 1] >= 0):
            continue
        if start % 2 != offset:
            other *= 1.0 - chance
        elif draws[1 + start // 2] < chance:
            swaps += 1
            probability *= chance
            ranking[start], ranking[start + 1] = ranking[start + 1], ranking[start]
        else:
            probability *= 1.0 - chance
    return probability if swaps > 0 else probability + other


@kernel
def _explain(
    value: Vector,
    width: Vector,
    bonus: float,
    scores: Vector,
    ranking: IntVector,
    own_value: Vector,
    own_bonus: Vector,
    fairness: Vector,
    plain_rank: IntVector,
) -> None:
    """The parts of the scores by slot, and the ranks that the first two parts alone would give.

    value, width, scores (candidates,); bonus, width: see `_worth`; ranking, own_value, own_bonus,
    fairness, plain_rank (slots,).
    """
    plain = np.empty(value.size)
    for i in range(value.size):
        plain[i] = value[i] + bonus * width[i]
    for slot in range(ranking.size):
        row = ranking[slot]
        own_value[slot], own_bonus[slot] = value[row], bonus * width[row]
        fairness[slot] = scores[row] - plain[row]
        better = np.int64(0)
        for i in range(plain.size):
            better += plain[i] > plain[row]
        plain_rank[slot] = better + 1


@kernel(signature=f"void({_M}, {_V}, {_V})")
def look_rates(slots: Matrix, weights: Vector, looks: Vector) -> None:
    """How likely each slot is exposed: its weight, where these are given; else as often as it was,
    1 before it was shown. slots (2, k), weights (k or 0,), looks (k,).
    """
    for j in range(looks.size):
        if weights.size > 0:
            looks[j] = weights[j]
        else:
            looks[j] = slots[1, j] / slots[0, j] if slots[0, j] > 0.0 else 1.0


@kernel
def sum_ranking(
    waiting: Vector,
    n: int,
    items: IntVector,
    looks: Vector,
    x: Vector,
    sign: float,
    weight: float,
) -> None:
    """Add (sign 1) or take away (-1) what a ranking is expected to earn: exposures by slot, and the
    features of what is exposed.

    waiting: see kernels/waiting.py; n: the number of rewards; items, looks (slots,), x (p q,): its
    `expected_features`.
    """
    for j in range(items.size):
        sum_at(waiting, n, items[j], sign * weight * looks[j])
    sum_in(waiting, n, 0, x, sign, weight)


@kernel
def expected_features(looks: Vector, user: Vector, rows: Matrix) -> Vector:
    """Those of what is exposed of a ranking, (p q,). looks (slots,), user (p,), rows (slots, q)."""
    q = rows.shape[1]
    x = np.empty(user.size * q)
    for e in range(q):
        combined = 0.0
        for j in range(looks.size):
            combined += looks[j] * rows[j, e]
        for a in range(user.size):
            x[a * q + e] = user[a] * combined
    return x


@kernel
def _rows_of(items: IntVector, words: IntVector, rows: Matrix) -> Matrix:
    """The features of the items of a ranking: rows (slots, q), or, where that is (0, q), from those
    that the frame has of all items.
    """
    own = rows
    if rows.shape[0] == 0:
        kept = matrix(words, KEPT)
        own = np.empty((items.size, kept.shape[0]))
        for j in range(items.size):
            for e in range(kept.shape[0]):
                own[j, e] = kept[e, items[j]]
    return own


@kernel
def _within(words: IntVector, user: Vector, rows: Matrix) -> bool:
    """Whether |user (x) item|^2 is within the limit for all items. user (p,), rows (slots, q)."""
    square = 0.0
    for a in range(user.size):
        square += user[a] * user[a]
    return bool(largest_square_norm(rows) * square <= vector(words, RULE)[LIMIT])


@kernel
def _sound(words: IntVector, items: IntVector, user: Vector, rows: Matrix) -> bool:
    """Whether a ranking that may come from bytes shows different items, with features within the
    limit. items (slots,), user (p,), rows (slots, q), or (0, q) where the frame has the features.
    """
    for j in range(items.size):
        if not 0 <= items[j] < vector(words, EXPOSED).size:
            return False
        for i in range(j):
            if items[i] == items[j]:
                return False
    return _within(words, user, _rows_of(items, words, rows))


@kernel(signature=f"int64(int64[::1], {_IC}, {_V}, {_M}, {_C})")
def expect_rankings(
    words: IntVector, shown: IntCube, looks: Vector, users: Matrix, rows: Cube
) -> int:
    """Count rankings among the open decisions; none of them, and WILD, where one is not sound.

    shown (rankings, 1 or more, slots): ids first; looks (slots,), users (rankings, p), rows
    (rankings, slots, q), or (1, 0, q) where the frame has the features.
    """
    n, waiting = vector(words, TOTALS).size, vector(words, WAITING)
    keep = 1.0 - vector(words, NUMBERS)[FORGET]
    for s in range(shown.shape[0]):
        if not _sound(words, shown[s, 0], users[s], rows[s if rows.shape[1] > 0 else 0]):
            return WILD
    for s in range(shown.shape[0]):
        open_one(waiting, n, keep)
        own = _rows_of(shown[s, 0], words, rows[s if rows.shape[1] > 0 else 0])
        x = expected_features(looks, users[s], own)
        sum_ranking(waiting, n, shown[s, 0], looks, x, 1.0, 1.0)
    return 0


@kernel(signature=f"int64(int64[::1], {_I}, {_V}, {_V}, {_M}, float64, int64, int64)")
def withdraw_ranking(
    words: IntVector,
    items: IntVector,
    looks: Vector,
    user: Vector,
    rows: Matrix,
    place: float,
    first: int,
    stop: int,
) -> int:
    """Take a ranking that gets no answer out of the open decisions; WILD where it is not sound.
    place: which of them it is; first, stop: coordinates that joined after it. items, looks
    (slots,), user (p,), rows (slots, q), or (0, q) where the frame has the features.
    """
    if not _sound(words, items, user, rows):
        return WILD
    n, waiting = vector(words, TOTALS).size, vector(words, WAITING)
    weight = age_weight(waiting, 1.0 - vector(words, NUMBERS)[FORGET], place)
    x = expected_features(looks, user, _rows_of(items, words, rows))
    sum_ranking(waiting, n, items, looks, x, -1.0, weight)
    close_one(waiting, n, first, stop, weight)
    return 0


@kernel(
    signature=f"int64({COURSE}, boolean, {_M}, {_M}, {_I}, {_I}, {_I}, {_IM}, {_M}, {_M}, {_IC}, "
    f"{_V})"
)
def rank_rows(
    words: IntVector,
    work: Vector,
    steps: Matrix,
    normals: Cube,
    advance: bool,
    look: bool,
    users: Matrix,
    items: Matrix,
    ids: IntVector,
    picks: IntVector,
    starts: IntVector,
    pinned: IntMatrix,
    draws: Matrix,
    records: Matrix,
    shown: IntCube,
    looks: Vector,
) -> int:
    """Rank for some users in a row: how many rankings were made, all unless a direction is not
    finite; -1 - s where the state is useless for ranking s.

    Candidates are the columns of items (q, columns), whose ids are `ids`. With starts (rows + 1,)
    those of row s are the columns picks[starts[s] : starts[s + 1]]; without, picks are the places
    of the columns among the numbers of the direction, none where they are as these. look: whether
    there is an outlook. users (rows, p), pinned (rows, slots or 0), draws (rows, numbers).

    Out: records (rows, ...): the probability, the parts of the scores by slot (3), live numbers
    along the slope (2) if there is a `look`, the direction if it is kept; shown (rows, 3, slots):
    ids, rows of the candidates, ranks without fairness; with (rows, 2, slots) neither these nor the
    parts are found. looks (slots,). The others: see `COURSE`.
    """
    theta, inverse = cube(words, THETA), cube(words, INVERSE)
    counters, params = vector(words, ORACLE_COUNTERS), vector(words, PARAMS)
    rules, slots, waiting = vector(words, RULE), matrix(words, SLOTS), vector(words, WAITING)
    exposed, slope = vector(words, EXPOSED), vector(words, SLOPE)
    estimates = address(rules, ESTIMATES)
    keep = 1.0 - vector(words, NUMBERS)[FORGET]
    n, k, n_rewards = vector(words, TOTALS).size, slots.shape[1], theta.shape[1]
    q, d = items.shape[0], theta.shape[2]
    n_coordinates = integers(words, SEEN).size
    if n_coordinates == 0:
        n_coordinates = n
    waits = waiting
    if advance:
        waits = np.empty(waiting.size)
        for i in range(waiting.size):
            waits[i] = waiting[i]
    look_rates(slots, vector(words, WEIGHTS), looks)
    g, room = np.empty(n_coordinates), np.empty((N_ROOM, n))
    aiming, given = address(vector(words, NUMBERS), AIMING), vector(words, RUNNING)
    if aiming == 0:
        for i in range(n_coordinates):
            g[i] = given[i]
    n_left = n_coordinates - n_rewards
    contracted, metric, rows = np.empty((q, d)), np.empty((q, q)), np.empty((k, q))
    for s in range(steps.shape[0]):
        renew = aiming != 0 and (s == 0 or steps[s, 2] > 0.0)
        if renew and not call_aim(aiming, s, words, work, steps, normals, waits, theta, room, g):
            return s
        columns, own, candidates = picks, items, ids
        if starts.size > 0:
            columns = picks[starts[s] : starts[s + 1]]
            own, candidates = np.empty((q, columns.size)), np.empty(columns.size, dtype=np.int64)
            for i in range(columns.size):
                candidates[i] = ids[columns[i]]
            for e in range(q):
                for i in range(columns.size):
                    own[e, i] = items[e, columns[i]]
        m = own.shape[1]
        along, sloping, exposed_of, shown_of = g, slope, exposed, vector(words, SHOWN)
        if columns.size > 0:
            along = _lined_up(g, columns, n_left, n_rewards)
            if look:
                sloping = _lined_up(slope, columns, n_left, n_rewards)
        if m < exposed.size:
            exposed_of, shown_of = np.empty(m), np.empty(m)
            for i in range(m):
                exposed_of[i] = exposed[candidates[i]]
                shown_of[i] = vector(words, SHOWN)[candidates[i]]
        value, width, scores = np.empty(m), np.empty(m), np.empty(m)
        ranking, row = shown[s, 1], records[s]
        row[0] = rank(
            users[s],
            own,
            theta,
            inverse,
            counters,
            along,
            exposed_of,
            shown_of,
            slots[0, 0],
            address(rules, SCORING),
            estimates,
            params,
            pinned[s],
            draws[s],
            contracted,
            metric,
            value,
            width,
            scores,
            ranking,
        )
        if not np.isfinite(scores[ranking[k - 1]]):
            return -1 - s
        if shown.shape[1] > 2:
            parts = matrix_at(data_of(row) + _NUMBER, 3, k)
            bonus, wide = _worth(users[s], own, theta, counters, along[m:], params, width)
            _explain(value, wide, bonus, scores, ranking, parts[0], parts[1], parts[2], shown[s, 2])
        if look:
            call_look(
                address(rules, LOOKING),
                users[s],
                own,
                theta,
                width,
                counters,
                sloping,
                ranking,
                vector(words, DOUBT),
                matrix(words, SLOT_RANGES),
                matrix_at(data_of(row) + _NUMBER * (1 + 3 * k), 2, k),
            )
        for j in range(k):
            shown[s, 0, j] = candidates[ranking[j]]
            for e in range(q):
                rows[j, e] = own[e, ranking[j]]
        if rules[KEEPS] > 0.0:
            for i in range(n_coordinates):
                row[row.size - n_coordinates + i] = g[i]
        if advance:
            open_one(waits, n, keep)
            x = expected_features(looks, users[s], rows)
            sum_ranking(waits, n, shown[s, 0], looks, x, 1.0, 1.0)
    return steps.shape[0]


@kernel
def _lined_up(vector: Vector, columns: IntVector, n_left: int, n_rewards: int) -> Vector:
    """The numbers of some items, then those of the rewards. vector (n_left + n_rewards,)."""
    out = np.empty(columns.size + n_rewards)
    for i in range(columns.size):
        out[i] = vector[columns[i]]
    for r in range(n_rewards):
        out[columns.size + r] = vector[n_left + r]
    return out


def later_of(p: int, q: int) -> Vector:
    """Room for rounds that V takes in later, when there are `ROUNDS` of them: how many there are,
    their users, and the sums of v v' of their items. The number is negative while none are put off;
    there is no room where these would be about as large as V.
    """
    later = np.zeros(1 + ROUNDS * (p + q * q) if p >= ROUNDS else 1)
    later[0] = -1.0
    return later


@kernel
def _put_off(user: Vector, rows: Matrix, later: Vector, gram: Cube) -> None:
    """A round waits for others before V takes it in. user (p,), rows (r, q), gram (1, d, d)."""
    p, q, place = user.size, rows.shape[1], int(later[0])
    users = matrix_at(data_of(later) + _NUMBER, ROUNDS, p)
    squares = cube_at(data_of(later) + _NUMBER * (1 + ROUNDS * p), ROUNDS, q, q)
    for a in range(p):
        users[place, a] = user[a]
    square_of(rows, squares[place])
    later[0] += 1.0
    if place + 1 == ROUNDS:
        catch_up(later, p, gram)


@kernel
def catch_up(later: Vector, p: int, gram: Cube) -> None:
    """V takes in the rounds that wait. p: the number of features of users; gram (1, d, d)."""
    count = int(later[0])
    if count > 0:
        q = gram.shape[1] // p
        users = matrix_at(data_of(later) + _NUMBER, count, p)
        squares = cube_at(data_of(later) + _NUMBER * (1 + ROUNDS * p), count, q, q)
        remember(users, squares, gram[0])
        later[0] = 0.0


@kernel
def absorb_exposed(
    absorb: int,
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
    later: Vector,
) -> None:
    """`absorb_items`, at an address, of the items that were exposed; V takes them in later where
    rounds are put off. later: see `later_of`; the others as there.
    """
    put_off = later[0] >= 0.0 and counters[SINCE_REFRESH] + 1.0 < REFRESH_EVERY
    while True:
        if not put_off:  # a refresh, which is due or may help, needs all of V
            catch_up(later, user.size, gram)
        call_absorb(
            absorb,
            user,
            rows,
            rewards,
            contracted,
            metric,
            cube_at(0, 1, 0, 0) if put_off else gram,
            inverse,
            theta,
            moment,
            params,
            counters,
        )
        if counters[STATUS] == 0.0 or not put_off:
            break
        put_off = False
    if put_off and rows.shape[0] > 0:
        _put_off(user, rows, later, gram)


@kernel(signature=f"int64(int64[::1], {_I}, {_V}, {_M}, {_V}, {_M}, int64)")
def take_in(
    words: IntVector,
    items: IntVector,
    user: Vector,
    rows: Matrix,
    exposures: Vector,
    rewards: Matrix,
    known: int,
) -> int:
    """Learn from the items of a ranking that were exposed, and count it; REFUSED: neither; WILD:
    neither, since its features are beyond the limit.

    words: of a frame with the arrays of a ranker. items, exposures (slots,), user (p,), rewards
    (slots, rewards), rows (slots, q): features of the items, or (0, q) where the frame has those of
    all; items from `known` on came later.
    """
    rules, inverse, theta = vector(words, RULE), cube(words, INVERSE), cube(words, THETA)
    counters = vector(words, ORACLE_COUNTERS)
    shown_rows = _rows_of(items, words, rows)
    if not _within(words, user, shown_rows):
        return WILD
    learnt, targets = np.empty(shown_rows.shape), np.empty(rewards.shape)
    r = exposed_rows(shown_rows, exposures, rewards, learnt, targets)
    q = shown_rows.shape[1]
    contracted, metric = np.empty((q, inverse.shape[1])), np.empty((q, q))
    if r > 0:
        contract_user(user, inverse[0], contracted)
        contract_twice(user, contracted, metric)
    absorb_exposed(
        address(rules, ABSORBING),
        user,
        learnt[:r],
        targets[:r],
        contracted,
        metric,
        cube(words, GRAM),
        inverse,
        theta,
        cube(words, MOMENT),
        vector(words, LEARN_PARAMS),
        counters,
        vector(words, LATER),
    )
    if counters[STATUS] != 0.0:
        return REFUSED
    exposed, shown, slots = vector(words, EXPOSED), vector(words, SHOWN), matrix(words, SLOTS)
    count_ranking(items, exposures, known, rules[OWED], exposed, shown, slots)
    return 0


TAKE_IN = (
    f"int64(int64[::1], {_I}, {_V}, {_M}, {_V}, {_M}, {_V}, {_V}, {_V}, {_V}, {_V}, "
    f"int64, int64, float64, float64, {_V})"
)
call_once = function_at(TAKE_IN, only=False)


@kernel(signature=TAKE_IN)
def take_in_and_settle(
    words: IntVector,
    items: IntVector,
    user: Vector,
    rows: Matrix,
    exposures: Vector,
    slots_rewards: Matrix,
    reward: Vector,
    rho: Vector,
    followed: Vector,
    tallied: Vector,
    view: Vector,
    first: int,
    stop: int,
    number: float,
    place: float,
    looks: Vector,
) -> int:
    """`take_in`, then `settle`: one call, so that an interrupt finds both done or neither.

    exposures (slots,), slots_rewards (slots, rewards); rho (n,), without numbers where it is the
    reward; looks (slots or 0,): the exposures that were expected, where they are known; the others
    as in the two.
    """
    doubt = 0.0  # a NaN or an infinity among these is one in the sum
    for i in range(tallied.size):
        doubt += tallied[i]
    if not np.isfinite(doubt):
        return UNSOUND
    n, waiting, own = reward.size, vector(words, WAITING), _rows_of(items, words, rows)
    code = take_in(words, items, user, own, exposures, slots_rewards, first)
    if code < 0:
        return code
    if looks.size > 0 and waiting.size > 0:
        keep, x = 1.0 - vector(words, NUMBERS)[FORGET], expected_features(looks, user, own)
        if place >= 0.0 and waiting[OPEN] > 0.0:
            weight = age_weight(waiting, keep, place)
            sum_ranking(waiting, n, items, looks, x, -1.0, weight)
        features_in(waiting, n, 0, x, reward, keep)
    averaged = rho if rho.size > 0 else reward
    return settle(
        words,
        reward,
        averaged,
        followed,
        tallied,
        view,
        first,
        stop,
        number,
        place,
        vector_at(0, 0),
    )


@kernel(signature=f"void({_M}, {_V}, {_V})")
def tally_slots(outlook: Matrix, exposures: Vector, out: Vector) -> None:
    """Of <slope, r>: the largest optimistic value, and what the ranking missed by the estimates,
    twice. outlook (2, slots), exposures (slots,): which slots were exposed; out (TALLY,).
    """
    top, missed = 0.0, 0.0
    for j in range(exposures.size):
        top += outlook[0, j] * exposures[j]
        missed += outlook[1, j] * exposures[j]
    out[0], out[1], out[2], out[3] = top, missed, missed, 0.0


@kernel(
    signature=f"int64(int64[::1], int64, {_IM}, {_M}, {_C}, {_M}, {_C}, {_C}, {_V}, {_M}, {_M}, "
    f"float64, {_I}, int64, int64)"
)
def take_in_rows(
    words: IntVector,
    start: int,
    items: IntMatrix,
    users: Matrix,
    rows: Cube,
    slots_exposed: Matrix,
    slots_rewards: Cube,
    outlooks: Cube,
    looks: Vector,
    followed: Matrix,
    tallied: Matrix,
    number: float,
    places: IntVector,
    first: int,
    stop: int,
) -> int:
    """`take_in_and_settle` for rankings in a row: see `learn_rows` of the bandits.

    items, slots_exposed (rankings, slots), users (rankings, p), rows (rankings, slots, q), or
    (1, 0, q) where the frame has the features; slots_rewards (rankings, slots, rewards); outlooks
    (rankings, 2, slots), tallied (rankings, TALLY), followed (rankings, n), or without rows; looks
    (slots,). first, stop: coordinates that joined after them.
    """
    later = vector(words, LATER)
    if later.size > 1 and items.shape[0] - start > 1:
        later[0] = 0.0
    code = _take_in_each(
        words,
        start,
        items,
        users,
        rows,
        slots_exposed,
        slots_rewards,
        outlooks,
        looks,
        followed,
        tallied,
        number,
        places,
        first,
        stop,
    )
    catch_up(later, users.shape[1], cube(words, GRAM))
    later[0] = -1.0
    return code


@kernel
def _take_in_each(
    words: IntVector,
    start: int,
    items: IntMatrix,
    users: Matrix,
    rows: Cube,
    slots_exposed: Matrix,
    slots_rewards: Cube,
    outlooks: Cube,
    looks: Vector,
    followed: Matrix,
    tallied: Matrix,
    number: float,
    places: IntVector,
    first: int,
    stop: int,
) -> int:
    """`take_in_rows`, where V may take in rounds later."""
    rules, coordinates = vector(words, RULE), integers(words, SEEN)
    exposure, by_chance = address(rules, EXPOSURE), rules[BY_CHANCE] > 0.0
    n, k, n_rewards = vector(words, TOTALS).size, items.shape[1], slots_rewards.shape[2]
    reward, rho, exposures = np.zeros(n), np.zeros(n), np.empty(k)
    n_coordinates = coordinates.size if coordinates.size > 0 else n
    tally, nothing, once = np.empty(TALLY), np.empty(0), address(rules, ONCE)
    for s in range(start, items.shape[0]):
        if (
            count_exposed(exposure, items[s], slots_exposed[s], slots_rewards[s], exposures, reward)
            != 0
        ):
            return WILD
        for j in range(k + n_rewards):
            i = items[s, j] if j < k else n - n_rewards + j - k
            rho[i] = looks[j] if by_chance and j < k else reward[i]
        view = reward
        if coordinates.size > 0:
            view = np.empty(n_coordinates)
            for i in range(n_coordinates):
                view[i] = reward[coordinates[i]]
        numbers = nothing
        if outlooks.shape[0] > 0:
            tally_slots(outlooks[s], exposures, tally)
            numbers = tally
        elif tallied.shape[0] > 0:
            numbers = tallied[s]
        direction = followed[s] if followed.shape[0] > 0 else nothing
        own = rows[s if rows.shape[1] > 0 else 0]
        due: int = call_once(
            once,
            words,
            items[s],
            users[s],
            own,
            exposures,
            slots_rewards[s],
            reward,
            rho,
            direction,
            numbers,
            view,
            first,
            stop,
            number + s,
            float(places[s]),
            looks,
        )
        for j in range(k + n_rewards):
            i = items[s, j] if j < k else n - n_rewards + j - k
            reward[i], rho[i] = 0.0, 0.0
        if due < 0:
            return due
        if due > 0:
            return 2 * s + 3
    return 2 * items.shape[0]


@kernel
def exposed_rows(
    rows: Matrix, exposures: Vector, rewards: Matrix, learnt: Matrix, targets: Matrix
) -> int:
    """The rows and rewards of the items that were exposed, and how many.

    rows, learnt (slots, q), exposures (slots,), rewards, targets (slots, rewards).
    """
    r = np.int64(0)
    for j in range(exposures.size):
        if exposures[j] > 0.0:
            for e in range(rows.shape[1]):
                learnt[r, e] = rows[j, e]
            for o in range(rewards.shape[1]):
                targets[r, o] = rewards[j, o]
            r += 1
    return int(r)


@kernel
def count_ranking(
    items: IntVector,
    exposures: Vector,
    known: int,
    owed: float,
    exposed: Vector,
    shown: Vector,
    slots: Matrix,
) -> None:
    """Count a ranking. Items from `known` on came after it, and count as shown in a
    share `owed` of what was decided before: a ranking of that time changes nothing for them.

    items, exposures (slots,), exposed, shown (n_items,), slots (2, slots).
    """
    for j in range(items.size):
        exposed[items[j]] += exposures[j]
        shown[items[j]] += 1.0
        slots[0, j] += 1.0
        slots[1, j] += exposures[j]
    for i in range(known, shown.size):
        shown[i] += owed
