"""The kernels of rankings: from estimates to a ranking, and from what it earned to what is learnt.

One signature for the rules; `act` and `update` call the kernels for one round, the compiled loop
for many. Users have p features, items q, their products d = p q.
"""

from __future__ import annotations

import numpy as np

from fairwolfe.core.arrays import Cube, IntCube, IntMatrix, IntVector, Matrix, Vector
from fairwolfe.kernels.bilinear import (
    call_absorb,
    call_estimates,
    contract_twice,
    contract_user,
    turn_parameters,
)
from fairwolfe.kernels.compile import function_at, kernel
from fairwolfe.kernels.limits import largest_square_norm
from fairwolfe.kernels.linalg import LOG_DET, STATUS
from fairwolfe.kernels.selection import top_k
from fairwolfe.kernels.settling import REFUSED, SETTLE, SETTLE_ROWS, UNSOUND, WILD, settle
from fairwolfe.kernels.waiting import OPEN, age_weight, close_one, open_one, sum_at, sum_in
from fairwolfe.kinds.exposures import count_exposed
from fairwolfe.oracles.linear_state import radius
from fairwolfe.smoothing.following import COURSE, aim

__all__ = [
    "RANK",
    "call_rule",
    "count_ranking",
    "expect_rankings",
    "exposed_rows",
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
numbers of the length of the candidates: estimates, confidence widths and what to multiply these by,
the direction of the items, how often each was exposed and shown in the t rankings so far."""

call_rule = function_at(RANK)

_V, _M, _C = "float64[::1]", "float64[:, ::1]", "float64[:, :, ::1]"
_I, _IM, _IC = "int64[::1]", "int64[:, ::1]", "int64[:, :, ::1]"

_EXPLORATION, _LEVEL, _RANDOMIZE, _HEAD = 0, 1, 2, 3


@kernel(
    signature="float64(float64[::1], float64[:, ::1], float64[:, :, ::1], float64[:, :, ::1], "
    "float64[::1], float64[::1], float64[::1], float64[::1], float64, int64, int64, "
    "float64[::1], int64[::1], float64[::1], float64[:, ::1], float64[::1], float64[::1], "
    "float64[::1], int64[::1])"
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
    value: Vector,
    width: Vector,
    scores: Vector,
    ranking: IntVector,
) -> float:
    """The ranking, as rows of the candidates, best slot first; its probability.

    rule, estimates: addresses. params: exploration, 2 ln(1/delta_1), chance of a swap; R_r;
    sqrt(ridge) D_theta_r; the rule's. `contracted`, `value`, `width` and `scores` are filled on the
    way, `width` with the bonus in it.

    user (p,), items (q, candidates), theta (1, rewards, d), inverse (1, d, d), counters (5,),
    contracted (q, d); direction (candidates + rewards,), exposed, shown, value, width,
    scores (candidates,), ranking (slots,), pinned (slots or 0,), draws (1 + slots // 2 or 0,).
    """
    n, n_rewards = scores.size, theta.shape[1]
    contract_user(user, inverse[0], contracted)
    bonus = _estimate(
        estimates, user, items, theta, contracted, counters, direction[n:], params, value, width
    )
    own = params[_HEAD + 2 * n_rewards :]
    call_rule(
        rule, value, width, bonus, direction[:n], exposed, shown, t, ranking.size, own, scores
    )
    for i in range(n):
        width[i] *= bonus
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
    contracted: Matrix,
    counters: Vector,
    weights: Vector,
    params: Vector,
    value: Vector,
    width: Vector,
) -> float:
    """value_i = sum_r weights_r theta_r.x_i and width_i = |x_i|; what the widths are worth.

    user (p,), items (q, candidates), theta (1, rewards, d), contracted (q, d), counters (5,),
    weights (rewards,), value, width (candidates,). params: as in `rank`.
    """
    n_rewards, q = theta.shape[1], items.shape[0]
    metric, turned, combined = np.empty((q, q)), np.empty((n_rewards, q)), np.empty(q)
    contract_twice(user, contracted, metric)
    turn_parameters(user, theta[0], turned)
    for e in range(q):
        combined[e] = 0.0
    bonus = 0.0  # sum_r |g_r| alpha_r: optimistic for either sign of g
    for r in range(n_rewards):
        noise, prior = params[_HEAD + r], params[_HEAD + n_rewards + r]
        bonus += abs(weights[r]) * radius(noise, prior, params[_LEVEL], counters[LOG_DET])
        for e in range(q):
            combined[e] += weights[r] * turned[r, e]
    call_estimates(estimates, combined, metric, items, value, width)
    return float(params[_EXPLORATION] * bonus)


LOOK = (
    "void(int64, float64[::1], float64[:, ::1], float64[:, :, ::1], float64[:, ::1], float64[::1], "
    "float64[::1], int64[::1], float64[::1], float64[:, ::1], float64[:, ::1])"
)

call_look = function_at(LOOK)


@kernel(signature=LOOK)
def look_along(
    estimates: int,
    user: Vector,
    items: Matrix,
    theta: Cube,
    contracted: Matrix,
    counters: Vector,
    slope: Vector,
    ranking: IntVector,
    doubt: Vector,
    ranges: Matrix,
    seen: Matrix,
) -> None:
    """By slot, of <slope, r> where it is exposed: the largest optimistic scores (0 without
    doubt), and by how much the ranking is below the largest estimates. ranges: of a slot's rewards.

    user (p,), items (q, candidates), theta (1, rewards, d), contracted (q, d), counters (5,),
    slope (candidates + rewards,), ranking (slots,), doubt (3 + 2 rewards or 0,),
    ranges (2, rewards), seen (2, slots).
    """
    n, k = items.shape[1], ranking.size
    most = 0.0
    for r in range(theta.shape[1]):
        most += max(slope[n + r] * ranges[0, r], slope[n + r] * ranges[1, r])
    own, width, scores = np.empty(n), np.empty(n), np.empty(n)
    best = np.empty(k, dtype=np.int64)
    params = doubt if doubt.size > 0 else np.empty(_HEAD + 2 * theta.shape[1])
    if doubt.size == 0:
        for i in range(params.size):
            params[i] = 0.0
    bonus = _estimate(
        estimates, user, items, theta, contracted, counters, slope[n:], params, own, width
    )
    for i in range(n):
        scores[i] = own[i] + slope[i]
    top_k(scores, k, best)
    for j in range(k):
        seen[0, j] = 0.0
        seen[1, j] = scores[best[j]] - scores[ranking[j]]
    if doubt.size > 0:
        for i in range(n):
            scores[i] = min(own[i] + bonus * width[i], most) + slope[i]
        top_k(scores, k, best)
        for j in range(k):
            seen[0, j] = scores[best[j]]


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
    bonus: Vector,
    scores: Vector,
    ranking: IntVector,
    own_value: Vector,
    own_bonus: Vector,
    fairness: Vector,
    plain_rank: IntVector,
) -> None:
    """The parts of the scores by slot, and the ranks that the first two parts alone would give.

    value, bonus, scores (candidates,); ranking, own_value, own_bonus, fairness,
    plain_rank (slots,).
    """
    plain = np.empty(value.size)
    for i in range(value.size):
        plain[i] = value[i] + bonus[i]
    for slot in range(ranking.size):
        row = ranking[slot]
        own_value[slot], own_bonus[slot] = value[row], bonus[row]
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
    user: Vector,
    rows: Matrix,
    sign: float,
    weight: float,
) -> None:
    """Add (sign 1) or take away (-1) what a ranking is expected to earn: exposures by slot, and the
    features of what is exposed.

    waiting: see kernels/waiting.py; n: the number of rewards; items, looks (slots,), user (p,),
    rows (slots, q): the features of its items.
    """
    q = rows.shape[1]
    for j in range(items.size):
        sum_at(waiting, n, items[j], sign * weight * looks[j])
    x = np.empty(user.size * q)
    for e in range(q):
        combined = 0.0
        for j in range(items.size):
            combined += looks[j] * rows[j, e]
        for a in range(user.size):
            x[a * q + e] = user[a] * combined
    sum_in(waiting, n, 0, x, sign, weight)


@kernel
def _rows_of(items: IntVector, kept: Matrix, rows: Matrix) -> Matrix:
    """The features of the items of a ranking: `rows` (slots, q), or from kept (q, n_items) where
    it has columns.
    """
    shown_rows = rows
    if kept.shape[1] > 0:
        shown_rows = np.empty((items.size, kept.shape[0]))
        for j in range(items.size):
            for e in range(kept.shape[0]):
                shown_rows[j, e] = kept[e, items[j]]
    return shown_rows


@kernel(signature=f"void({_V}, int64, float64, {_IM}, {_V}, {_M}, {_M}, {_C})")
def expect_rankings(
    waiting: Vector,
    n: int,
    keep: float,
    items: IntMatrix,
    looks: Vector,
    users: Matrix,
    kept: Matrix,
    rows: Cube,
) -> None:
    """Count rankings among the open decisions. items (rankings, slots), looks (slots,), users
    (rankings, p), rows (rankings, slots, q), (1, 0, q) where kept (q, n_items) has the features.
    """
    for s in range(items.shape[0]):
        open_one(waiting, n, keep)
        own = _rows_of(items[s], kept, rows[0 if kept.shape[1] > 0 else s])
        sum_ranking(waiting, n, items[s], looks, users[s], own, 1.0, 1.0)


@kernel(
    signature=f"void({_V}, int64, float64, {_I}, {_V}, {_V}, {_M}, {_M}, float64, int64, int64)"
)
def withdraw_ranking(
    waiting: Vector,
    n: int,
    keep: float,
    items: IntVector,
    looks: Vector,
    user: Vector,
    kept: Matrix,
    rows: Matrix,
    place: float,
    first: int,
    stop: int,
) -> None:
    """Take a ranking that gets no answer out of the open decisions. place: which of them it is;
    first, stop: coordinates that joined after it. items, looks (slots,), user (p,), kept
    (q, n_items) or rows (slots, q).
    """
    weight = age_weight(waiting, keep, place)
    sum_ranking(waiting, n, items, looks, user, _rows_of(items, kept, rows), -1.0, weight)
    close_one(waiting, n, first, stop, weight)


@kernel(
    signature=f"int64({COURSE}, {_I}, {_M}, {_M}, {_I}, {_I}, {_I}, {_C}, {_C}, {_V}, {_V}, {_V}, "
    f"{_M}, {_V}, int64, int64, int64, {_V}, {_IM}, {_M}, {_V}, {_V}, {_M}, {_IM}, {_IC}, {_C}, "
    f"{_V}, {_V}, {_M})"
)
def rank_rows(
    gradient: int,
    gradient_params: Vector,
    work: Vector,
    steps: Vector,
    mixes: Vector,
    normals: Cube,
    totals: Vector,
    clocks: Vector,
    running: Vector,
    waiting: Vector,
    known_ranges: Matrix,
    keep: float,
    advance: bool,
    seen: IntVector,
    users: Matrix,
    items: Matrix,
    ids: IntVector,
    picks: IntVector,
    starts: IntVector,
    theta: Cube,
    inverse: Cube,
    counters: Vector,
    exposed: Vector,
    shown: Vector,
    slots: Matrix,
    weights: Vector,
    rule: int,
    estimates: int,
    look: int,
    params: Vector,
    pinned: IntMatrix,
    draws: Matrix,
    slope: Vector,
    doubt: Vector,
    ranges: Matrix,
    actions: IntMatrix,
    places: IntCube,
    parts: Cube,
    probabilities: Vector,
    looks: Vector,
    directions: Matrix,
) -> int:
    """Rank for some users in a row: how many rankings were made, all unless a direction is not
    finite; -1 - s where the state is useless for ranking s.

    Candidates are the columns of items (q, columns), whose ids are `ids`. With starts (rows + 1,)
    those of row s are the columns picks[starts[s] : starts[s + 1]]; without, picks are the places
    of the columns among the numbers of the direction, none where they are as these. seen: what f
    sees of the rewards, see `aim`. users (rows, p), weights (slots or 0,) of the slots, pinned
    (rows, slots or 0), draws (rows, numbers), slope, doubt, ranges: see `look_along`.

    Out: actions (rows, slots), ids; places (rows, 2, slots): rows of the candidates, and ranks
    without fairness; parts (rows, 3 or 5, slots): of the scores, and what is seen along the slope
    if there is a `look`; probabilities (rows,), looks (slots,) directions (rows, n), or (0, n).
    The others: see `Course` and `rank`.
    """
    n, k, n_rewards = totals.size, slots.shape[1], theta.shape[1]
    q, d = items.shape[0], theta.shape[2]
    n_seen = seen.size if seen.size > 0 else n
    waits = waiting
    if advance:
        waits = waiting.copy()
    look_rates(slots, weights, looks)
    if gradient == 0:
        n_seen = running.size
    g, room = np.empty(n_seen), np.empty((9, n))
    n_left = n_seen - n_rewards
    contracted, rows = np.empty((q, d)), np.empty((k, q))
    for s in range(steps.size):
        anew = s == 0 or advance or normals.shape[1] > 0
        if anew and not aim(
            s,
            gradient,
            gradient_params,
            work,
            steps,
            mixes,
            normals,
            totals,
            clocks,
            running,
            waits,
            known_ranges,
            keep,
            theta,
            seen,
            room,
            g,
        ):
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
        along, sloping, seen_of, shown_of = g, slope, exposed, shown
        if columns.size > 0:
            along = _lined_up(g, columns, n_left, n_rewards)
            if look != 0:
                sloping = _lined_up(slope, columns, n_left, n_rewards)
        if m < exposed.size:
            seen_of, shown_of = np.empty(m), np.empty(m)
            for i in range(m):
                seen_of[i], shown_of[i] = exposed[candidates[i]], shown[candidates[i]]
        value, width, scores = np.empty(m), np.empty(m), np.empty(m)
        ranking = places[s, 0]
        probabilities[s] = rank(
            users[s],
            own,
            theta,
            inverse,
            counters,
            along,
            seen_of,
            shown_of,
            slots[0, 0],
            rule,
            estimates,
            params,
            pinned[s],
            draws[s],
            contracted,
            value,
            width,
            scores,
            ranking,
        )
        if not np.isfinite(scores[ranking[k - 1]]):
            return -1 - s
        part = parts[s]
        _explain(value, width, scores, ranking, part[0], part[1], part[2], places[s, 1])
        if look != 0:
            call_look(
                look,
                estimates,
                users[s],
                own,
                theta,
                contracted,
                counters,
                sloping,
                ranking,
                doubt,
                ranges,
                part[3:],
            )
        for j in range(k):
            actions[s, j] = candidates[ranking[j]]
            for e in range(q):
                rows[j, e] = own[e, ranking[j]]
        if directions.shape[0] > 0:
            for i in range(n_seen):
                directions[s, i] = g[i]
        if advance:
            open_one(waits, n, keep)
            sum_ranking(waits, n, actions[s], looks, users[s], rows, 1.0, 1.0)
    return steps.size


@kernel
def _lined_up(vector: Vector, columns: IntVector, n_left: int, n_rewards: int) -> Vector:
    """The numbers of some items, then those of the rewards. vector (n_left + n_rewards,)."""
    out = np.empty(columns.size + n_rewards)
    for i in range(columns.size):
        out[i] = vector[columns[i]]
    for r in range(n_rewards):
        out[columns.size + r] = vector[n_left + r]
    return out


_TAKE_IN = (
    "int64, float64, int64[::1], float64[::1], float64[:, ::1], float64[:, ::1], float64[::1], "
    "float64[:, ::1], int64, float64, "
    "float64[::1], float64[::1], float64[:, ::1], float64[:, :, ::1], float64[:, :, ::1], "
    "float64[:, :, ::1], float64[:, :, ::1], float64[::1], float64[::1]"
)


@kernel(signature=f"int64({_TAKE_IN})")
def take_in(
    absorb: int,
    limit: float,
    items: IntVector,
    user: Vector,
    kept: Matrix,
    rows: Matrix,
    seen: Vector,
    rewards: Matrix,
    known: int,
    owed: float,
    exposed: Vector,
    shown: Vector,
    slots: Matrix,
    gram: Cube,
    inverse: Cube,
    theta: Cube,
    moment: Cube,
    params: Vector,
    counters: Vector,
) -> int:
    """Learn from the items of a ranking that were exposed, and count it; REFUSED: neither.

    absorb: the address of `absorb_items`; limit: of |user (x) row|^2, else WILD.

    items, seen (slots,), user (p,), rewards (slots, rewards), kept (q, n_items): the features of
    all items, or without columns where rows (slots, q) has those of the ranking; exposed,
    shown (n_items,), slots (2, slots), gram, inverse (1, d, d), theta, moment (1, rewards, d),
    params (1,), counters (5,).
    """
    square = 0.0
    for a in range(user.size):
        square += user[a] * user[a]
    shown_rows = _rows_of(items, kept, rows)
    if not largest_square_norm(shown_rows) * square <= limit:
        return WILD
    learnt, targets = np.empty(shown_rows.shape), np.empty(rewards.shape)
    r = exposed_rows(shown_rows, seen, rewards, learnt, targets)
    contracted = np.empty((shown_rows.shape[1], inverse.shape[1]))
    contract_user(user, inverse[0], contracted)
    call_absorb(
        absorb,
        user,
        learnt[:r],
        targets[:r],
        contracted,
        gram,
        inverse,
        theta,
        moment,
        params,
        counters,
    )
    if counters[STATUS] != 0.0:
        return REFUSED
    count_ranking(items, seen, known, owed, exposed, shown, slots)
    return 0


@kernel(signature=f"int64({_TAKE_IN}, {SETTLE})")
def take_in_and_settle(
    absorb: int,
    limit: float,
    items: IntVector,
    user: Vector,
    kept: Matrix,
    rows: Matrix,
    slots_seen: Vector,
    slots_rewards: Matrix,
    known: int,
    owed: float,
    exposed: Vector,
    shown: Vector,
    slots: Matrix,
    gram: Cube,
    inverse: Cube,
    theta: Cube,
    moment: Cube,
    params: Vector,
    oracle_counters: Vector,
    reward: Vector,
    rho: Vector,
    forget: float,
    first: int,
    stop: int,
    followed: Vector,
    running: Vector,
    totals: Vector,
    earned: Vector,
    clocks: Vector,
    counters: Vector,
    tallied: Vector,
    seen: Vector,
    number: float,
    now: Vector,
    slope: Vector,
    rewards: Vector,
    place: float,
    looks: Vector,
    guess: Vector,
    waiting: Vector,
) -> int:
    """`take_in`, then `settle`: one call, so that an interrupt finds both done or neither.

    looks (slots or 0,): the exposures that were expected, where the ranking was among the open
    decisions. slots_seen (slots,), slots_rewards (slots, rewards), rows (slots, q),
    slots (2, slots), gram, inverse (1, d, d), theta, moment (1, rewards, d), oracle_counters (5,);
    the others as in the two.
    """
    doubt = 0.0  # a NaN or an infinity among these is one in the sum
    for i in range(tallied.size):
        doubt += tallied[i]
    if not np.isfinite(doubt):
        return UNSOUND
    n = totals.size
    estimate, nothing = guess, np.empty(0)
    if place >= 0.0:
        estimate = np.empty(theta.shape[1])
        _expected_rewards(items, looks, user, _rows_of(items, kept, rows), theta, estimate)
    code = take_in(
        absorb,
        limit,
        items,
        user,
        kept,
        rows,
        slots_seen,
        slots_rewards,
        known,
        owed,
        exposed,
        shown,
        slots,
        gram,
        inverse,
        theta,
        moment,
        params,
        oracle_counters,
    )
    if code < 0:
        return code
    if place >= 0.0 and waiting[OPEN] > 0.0:
        weight = age_weight(waiting, 1.0 - forget, place)
        sum_ranking(waiting, n, items, looks, user, _rows_of(items, kept, rows), -1.0, weight)
    return settle(
        reward,
        rho,
        forget,
        first,
        stop,
        followed,
        running,
        totals,
        earned,
        clocks,
        counters,
        tallied,
        seen,
        number,
        now,
        slope,
        rewards,
        place,
        nothing,
        estimate,
        waiting,
    )


@kernel(signature=f"void({_M}, {_V}, {_V})")
def tally_slots(outlook: Matrix, seen: Vector, out: Vector) -> None:
    """Of <slope, r>: the largest optimistic value, and what the ranking missed by the estimates,
    twice. outlook (2, slots), seen (slots,): which slots were exposed; out (3,).
    """
    top, missed = 0.0, 0.0
    for j in range(seen.size):
        top += outlook[0, j] * seen[j]
        missed += outlook[1, j] * seen[j]
    out[0], out[1], out[2] = top, missed, missed


@kernel(
    signature=f"int64(int64, float64, int64, {_IM}, {_M}, {_M}, {_C}, {_M}, {_C}, int64, float64, "
    f"{_V}, {_V}, {_M}, {_C}, {_C}, {_C}, {_C}, {_V}, {_V}, {_I}, {_C}, boolean, {_V}, "
    f"int64, int64, {SETTLE_ROWS})"
)
def take_in_rows(
    absorb: int,
    limit: float,
    exposure: int,
    items: IntMatrix,
    users: Matrix,
    kept: Matrix,
    rows: Cube,
    slots_exposed: Matrix,
    slots_rewards: Cube,
    known: int,
    owed: float,
    exposed: Vector,
    shown: Vector,
    slots: Matrix,
    gram: Cube,
    inverse: Cube,
    theta: Cube,
    moment: Cube,
    params: Vector,
    oracle_counters: Vector,
    coordinates: IntVector,
    outlooks: Cube,
    by_chance: bool,
    looks: Vector,
    first: int,
    stop: int,
    start: int,
    rhos: Matrix,
    forget: float,
    followed: Matrix,
    running: Vector,
    totals: Vector,
    earned: Vector,
    clocks: Vector,
    counters: Vector,
    tallied: Matrix,
    number: float,
    now: Vector,
    slope: Vector,
    rewards: Vector,
    places: IntVector,
    expected: Matrix,
    corrects: bool,
    waiting: Vector,
) -> int:
    """`take_in_and_settle` for rankings in a row: see `learn_rows` of the bandits.

    exposure: what counts as exposed, see `count_exposed`. items, slots_exposed (rankings, slots),
    users (rankings, p), rows (rankings, slots, q), or (1, 0, q) where kept (q, n_items) has the
    features; slots_rewards (rankings, slots, rewards); coordinates: what f sees, none where it is
    all; outlooks (rankings, 2, slots) or (0, 2, slots); by_chance: whether looks (slots,) are
    averaged instead of exposures. first, stop: coordinates that joined after them. rhos, tallied,
    expected: not used.
    """
    n, k, n_rewards = totals.size, items.shape[1], theta.shape[1]
    reward, rho, seen = np.zeros(n), np.zeros(n), np.empty(k)
    n_seen = coordinates.size if coordinates.size > 0 else n
    view, tally, nothing = np.empty(n_seen), np.empty(3), np.empty(0)
    for s in range(start, items.shape[0]):
        if count_exposed(exposure, items[s], slots_exposed[s], slots_rewards[s], seen, reward) != 0:
            return WILD
        for j in range(k + n_rewards):
            i = items[s, j] if j < k else n - n_rewards + j - k
            rho[i] = looks[j] if by_chance and j < k else reward[i]
        for i in range(n_seen):
            view[i] = reward[coordinates[i]] if coordinates.size > 0 else reward[i]
        told = nothing
        if outlooks.shape[0] > 0:
            tally_slots(outlooks[s], seen, tally)
            told = tally
        elif tallied.shape[0] > 0:
            told = tallied[s]
        direction = followed[s] if followed.shape[0] > 0 else nothing
        own = rows[s if rows.shape[1] > 0 else 0]
        due = take_in_and_settle(
            absorb,
            limit,
            items[s],
            users[s],
            kept,
            own,
            seen,
            slots_rewards[s],
            known,
            owed,
            exposed,
            shown,
            slots,
            gram,
            inverse,
            theta,
            moment,
            params,
            oracle_counters,
            reward,
            rho,
            forget,
            first,
            stop,
            direction,
            running,
            totals,
            earned,
            clocks,
            counters,
            told,
            view,
            number + s,
            now,
            slope,
            rewards,
            places[s],
            looks,
            nothing,
            waiting,
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
def _expected_rewards(
    items: IntVector, looks: Vector, user: Vector, rows: Matrix, theta: Cube, out: Vector
) -> None:
    """What a ranking was to earn. items, looks (slots,), user (p,), rows (slots, q), theta
    (1, rewards, p q), out (rewards,).
    """
    q = rows.shape[1]
    for r in range(out.size):
        out[r] = 0.0
    for e in range(q):
        combined = 0.0
        for j in range(items.size):
            combined += looks[j] * rows[j, e]
        for a in range(user.size):
            for r in range(out.size):
                out[r] += theta[0, r, a * q + e] * user[a] * combined


@kernel
def exposed_rows(
    rows: Matrix, seen: Vector, rewards: Matrix, learnt: Matrix, targets: Matrix
) -> int:
    """The rows and rewards of the items that were exposed, and how many.

    rows, learnt (slots, q), seen (slots,), rewards, targets (slots, rewards).
    """
    r = np.int64(0)
    for j in range(seen.size):
        if seen[j] > 0.0:
            for e in range(rows.shape[1]):
                learnt[r, e] = rows[j, e]
            for o in range(rewards.shape[1]):
                targets[r, o] = rewards[j, o]
            r += 1
    return int(r)


@kernel
def count_ranking(
    items: IntVector,
    seen: Vector,
    known: int,
    owed: float,
    exposed: Vector,
    shown: Vector,
    slots: Matrix,
) -> None:
    """Count a ranking. Items from `known` on came after it, and are taken to have been shown in a
    share `owed` of what was decided before: a ranking of that time changes nothing for them.

    items, seen (slots,), exposed, shown (n_items,), slots (2, slots).
    """
    for j in range(items.size):
        exposed[items[j]] += seen[j]
        shown[items[j]] += 1.0
        slots[0, j] += 1.0
        slots[1, j] += seen[j]
    for i in range(known, shown.size):
        shown[i] += owed
