"""The kernels of rankings: from estimates to a ranking, and from what it earned to what is learnt.

One signature for the rules; `act` and `update` call the kernels for one round, the compiled loop
for many. Users have p features, items q, their products d = p q.
"""

from __future__ import annotations

import numpy as np

from fairwolfe.core.arrays import Cube, IntMatrix, IntVector, Matrix, Vector
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
from fairwolfe.kernels.settling import REFUSED, SETTLE, UNSOUND, WILD, settle
from fairwolfe.oracles.linear_state import radius

__all__ = [
    "RANK",
    "call_rule",
    "count_ranking",
    "exposed_rows",
    "look_along",
    "rank",
    "rank_once",
    "take_in",
    "take_in_and_settle",
]

RANK = (
    "void(float64[::1], float64[::1], float64, float64[::1], float64[::1], float64[::1], float64, "
    "int64, float64[::1], float64[::1])"
)
"""(value, width, bonus, direction, exposed, shown, t, slots, params, scores out), all but the
numbers of the length of the candidates: estimates, confidence widths and what to multiply these by,
the direction of the items, how often each was exposed and shown in the t rankings so far."""

call_rule = function_at(RANK)

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


@kernel(
    signature="float64(float64[::1], float64[:, ::1], float64[:, :, ::1], float64[:, :, ::1], "
    "float64[::1], float64[::1], float64[::1], float64[::1], float64, int64, int64, int64, "
    "float64[::1], int64[::1], float64[::1], float64[::1], float64[::1], float64[:, ::1], "
    "int64[:, ::1], float64[:, ::1])"
)
def rank_once(
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
    look: int,
    params: Vector,
    pinned: IntVector,
    draws: Vector,
    slope: Vector,
    doubt: Vector,
    ranges: Matrix,
    places: IntMatrix,
    parts: Matrix,
) -> float:
    """`rank` and what is reported of it: one call from Python for all. NaN if the state is useless.

    places: the ranking; the ranks without fairness. parts, by slot: the parts of the scores (3); if
    there is a `look`, what is seen along the slope (2).

    user (p,), items (q, candidates), theta (1, rewards, d), inverse (1, d, d), places (2, slots),
    parts (3 or 5, slots); the others as in `rank` and `look_along`.
    """
    n, ranking = items.shape[1], places[0]
    contracted = np.empty((items.shape[0], theta.shape[2]))
    value, width, scores = np.empty(n), np.empty(n), np.empty(n)
    probability = rank(
        user,
        items,
        theta,
        inverse,
        counters,
        direction,
        exposed,
        shown,
        t,
        rule,
        estimates,
        params,
        pinned,
        draws,
        contracted,
        value,
        width,
        scores,
        ranking,
    )
    if not np.isfinite(scores[ranking[-1]]):
        return np.nan
    _explain(value, width, scores, ranking, parts[0], parts[1], parts[2], places[1])
    if look != 0:
        call_look(
            look,
            estimates,
            user,
            items,
            theta,
            contracted,
            counters,
            slope,
            ranking,
            doubt,
            ranges,
            parts[3:],
        )
    return probability


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
    shown_rows = rows
    if kept.shape[1] > 0:
        shown_rows = np.empty((items.size, kept.shape[0]))
        for j in range(items.size):
            for e in range(kept.shape[0]):
                shown_rows[j, e] = kept[e, items[j]]
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
) -> int:
    """`take_in`, then `settle`: one call, so that an interrupt finds both done or neither.

    slots_seen (slots,), slots_rewards (slots, rewards), rows (slots, q), slots (2, slots), gram,
    inverse (1, d, d), theta, moment (1, rewards, d), oracle_counters (5,); the others as in the
    two.
    """
    doubt = 0.0  # a NaN or an infinity among these is one in the sum
    for i in range(tallied.size):
        doubt += tallied[i]
    if not np.isfinite(doubt):
        return UNSOUND
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
    )


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
