# cython: language_level=3, infer_types=True
"""Rules: an arm for the scalar reward <g, r>, from what a linear regression has learnt.

Every rule reads one `Query`, see rules.pxd. The estimates of a shared model are theta x_a;
an extended model regresses <g, r> on g (x) x, and its one row of n d parameters is read as (n, d).
"""

from __future__ import annotations

from typing import Any

import cython
import numpy as np

from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.gradients import c_types, is_outside

# --- scores and confidence widths -----------------------------------------------------------------


def _transpose_features(q: cython.pointer[Query]) -> cython.void:
    """Store the features as columns, for `_scores`, `_widths` and `_estimate`."""
    if not q.per_arm:
        columns(q.features, arm_array(q, 5), padded(q.arms), q.arms, q.d)


def _scores(q: cython.pointer[Query], g: Reading, out: Writing) -> cython.void:
    """out[a] = <g, theta x_a>, after `_transpose_features`. O((n + arms) d), or O(arms n d)."""
    if q.per_arm:
        estimated_scores(q.model, g, q.features, q.arms, q.d, True, out)
        return
    combine_rows(g, q.model.theta, q.model.work, q.n, q.d)
    for a in range(q.arms):
        out[a] = 0.0
    add_rows(q.model.work, arm_array(q, 5), padded(q.arms), out, q.d, q.arms)


def _norms(q: cython.pointer[Query], matrix: Reading, out: Writing) -> cython.void:
    """out[a] = |x_a| in the norm of a matrix (d, d), after `_transpose_features`."""
    stride = padded(q.arms)
    norms_of_columns(matrix, arm_array(q, 5), stride, arm_array(q, 0), out, q.arms, q.d)


def _widths(q: cython.pointer[Query], s: Size, out: Writing) -> cython.void:
    """out[a] = |x_a| in the norm of V_s^-1, after `_transpose_features`; s: the stage. Cost:
    arms d^2/2, per arm arms d^2.
    """
    first = s * q.model.blocks
    if not q.per_arm:
        _norms(q, q.model.inverse + first * q.d * q.d, out)
        return
    for a in range(q.arms):
        inverse = q.model.inverse + (first + a) * q.d * q.d
        out[a] = sqrt(larger(square_norm(inverse, q.features, q.d), 0.0))


def _counters(q: cython.pointer[Query], s: Size) -> Writing:
    """The counters of the regression of stage s."""
    return q.model.counters + s * N_COUNTERS


def _learnt(q: cython.pointer[Query]) -> Real:
    """How many observations were learnt: with several stages the mean over the rewards, weighted
    by |g_i| times the range of reward i.
    """
    if q.stages == 1:
        return q.model.counters[UPDATES]
    weight, total, least = 0.0, 0.0, INFINITY
    for s in range(q.stages):
        updates = _counters(q, s)[UPDATES]
        least = smaller(least, updates)
        for i in range(q.starts[s], q.starts[s + 1]):
            part = fabs(q.g[i]) * q.spans[i]
            weight += part
            total += part * updates
    return total / weight if weight > 0.0 else least


def _extended_widths(q: cython.pointer[Query], g: Reading, out: Writing) -> cython.void:
    """out[a] = |g (x) x_a| in the norm of V^-1, after `_transpose_features`.

    That is |x_a| in the norm of (g (x) I)' V^-1 (g (x) I): one contraction to d x d, then the
    widths. With e = n d: g (n,), V^-1 (e, e), out (arms,). Cost: e^2 + arms d^2/2.
    """
    size = q.n * q.d
    rows = squares_in(q.model)  # (d, e)
    contracted = rows + padded(q.model.d * q.model.d)
    combine_rows(g, q.model.inverse, rows, q.n, q.d * size)
    for j in range(q.d):
        combine_rows(g, rows + j * size, contracted + j * q.d, q.n, q.d)
    _norms(q, contracted, out)


def _estimate(q: cython.pointer[Query], i: Size, out: Writing) -> cython.void:
    """out[a] = the estimate of reward i for arm a, after `_transpose_features`. out (arms,)."""
    for a in range(q.arms):
        out[a] = 0.0
    if not q.per_arm:
        theta = q.model.theta + i * q.d
        add_rows(theta, arm_array(q, 5), padded(q.arms), out, q.d, q.arms)
        return
    for a in range(q.arms):
        row_products(q.model.theta + (a * q.n + i) * q.d, q.features, out + a, 1, q.d)


# --- bonuses --------------------------------------------------------------------------------------


def _add_scaled(scale: Real, width: In, out: Out, arms: Size) -> cython.void:
    """out[a] += scale width[a], two roundings. width, out (arms,)."""
    for a in range(arms):
        out[a] += scale * width[a]


def _add_bonus(
    q: cython.pointer[Query], s: Size, g: Reading, params: Reading, width: Reading, out: Writing
) -> cython.void:
    """out[a] += exploration (sum_i |g_i| alpha_i) width[a] over the rewards of stage s, optimistic
    for either sign of g.

    params: exploration, 2 ln(1/delta_1); R_i; sqrt(ridge) D_theta_i. g (n,), width, out (arms,).
    """
    bonus = 0.0
    log_det = _counters(q, s)[LOG_DET]
    for i in range(q.starts[s], q.starts[s + 1]):
        alpha = confidence_radius(params[2 + i], params[2 + q.n + i], params[1], log_det)
        bonus += fabs(g[i]) * alpha
    _add_scaled(bonus * params[0], width, out, q.arms)


def _add_weighted_bonus(
    q: cython.pointer[Query], i: Size, radius: Real, value: In, width: In, out: Out
) -> cython.void:
    """out[a] += |g_i| pointwise_bonus_ia, the value projected on its range. value, width, out
    (arms,). params: of `_linucb`.
    """
    params, weight = q.params, fabs(q.g[i])
    noise, low, high = params[2 + i], params[2 + 2 * q.n + i], params[2 + 3 * q.n + i]
    for a in range(q.arms):
        estimate = between(value[a], low, high)
        out[a] += weight * pointwise_bonus(estimate, low, high, noise, width[a], radius)


def _add_pointwise_bonus(q: cython.pointer[Query], s: Size, width: Reading) -> cython.void:
    """scores[a] += sum_i |g_i| pointwise_bonus_ia over the rewards of stage s: no union over
    directions, and what a reward can vary at its estimate. params: of `_linucb`. width (arms,).
    Cost: arms n d.
    """
    value, total = arm_array(q, 2), arm_array(q, 3)
    radius = pointwise_radius(-q.params[0], _counters(q, s)[UPDATES])
    for a in range(q.arms):
        total[a] = 0.0
    for i in range(q.starts[s], q.starts[s + 1]):
        _estimate(q, i, value)
        _add_weighted_bonus(q, i, radius, value, width, total)
    for a in range(q.arms):
        q.scores[a] += total[a]


def _add_extended_bonus(
    q: cython.pointer[Query], g: Reading, params: Reading, width: Reading, out: Writing
) -> cython.void:
    """The bonus on g (x) x; params: of `_linucb_extended`, its ranges only where pointwise.

    g (n,), width (arms,), out (arms,): estimates, then with the bonus.
    """
    if params[0] >= 0.0:
        radius = confidence_radius(params[2], params[3], params[1], q.model.counters[LOG_DET])
        _add_scaled(params[0] * radius, width, out, q.arms)
        return
    low, high = params + 4, params + 4 + q.n
    bottom, top = end_of_range(g, low, high, q.n, False), end_of_range(g, low, high, q.n, True)
    radius = pointwise_radius(q.n * q.d, q.model.counters[UPDATES])
    if top > bottom:
        for a in range(q.arms):
            out[a] += pointwise_bonus(out[a], bottom, top, params[2], width[a], radius)


# --- rules ----------------------------------------------------------------------------------------


def _linucb(q: cython.pointer[Query]) -> Size:
    """The arm of largest estimate plus confidence width, which is summed over the stages.

    params: exploration, or minus the parameters of a reward (pointwise), 2 ln(1/delta_1); R_i;
    sqrt(ridge) D_theta_i; lows; highs (the ranges are read where pointwise). No draws.
    """
    width = arm_array(q, 1)
    _transpose_features(q)
    _scores(q, q.g, q.scores)
    for s in range(q.stages):
        _widths(q, s, width)
        if q.params[0] < 0.0:
            _add_pointwise_bonus(q, s, width)
        else:
            _add_bonus(q, s, q.g, q.params, width, q.scores)
    q.probability = 1.0
    return argmax(q.scores, q.arms)


def _linucb_extended(q: cython.pointer[Query]) -> Size:
    """`_linucb` in an extended model, never per arm.

    params: exploration or -1 (pointwise), 2 ln(1/delta_1), R, sqrt(ridge) D_theta; lows; highs
    (the ranges are read where pointwise). No draws.
    """
    width = arm_array(q, 1)
    _transpose_features(q)
    _scores(q, q.g, q.scores)
    _extended_widths(q, q.g, width)
    _add_extended_bonus(q, q.g, q.params, width, q.scores)
    q.probability = 1.0
    return argmax(q.scores, q.arms)


def _sample(q: cython.pointer[Query], probabilities: Reading) -> Size:
    """The arm that the uniform number draws[0] in [0, 1) falls on. probabilities (arms,)."""
    last: Size = 0
    total = 0.0
    for a in range(q.arms):
        if probabilities[a] > 0.0:
            last = a
            total += probabilities[a]
            if q.draws[0] < total:
                break
    q.probability = probabilities[last]
    return last  # also where the probabilities sum to a little less than 1


def _gap_probabilities(values: In, best: Size, gamma: Real, out: Out, n: Size) -> cython.void:
    """out[a] = 1/(n + gamma (best - value_a)), the rest to the best arm. values, out (n,)."""
    rest = 1.0
    most = values[best]
    arms: Real = n
    for a in range(n):
        out[a] = 1.0 / (arms + gamma * (most - values[a]))
    for a in range(n):
        if a != best:
            rest -= out[a]
    out[best] = rest


def _sample_by_gaps(q: cython.pointer[Query], gamma: Real) -> Size:
    """P(a) = 1/(K + gamma (best - score_a)); the best has the rest."""
    probabilities = arm_array(q, 1)
    _gap_probabilities(q.scores, argmax(q.scores, q.arms), gamma, probabilities, q.arms)
    return _sample(q, probabilities)


def _squarecb(q: cython.pointer[Query]) -> Size:
    """`_sample_by_gaps` with gamma_t = gamma0 sqrt t. params: gamma0. draws (1,)."""
    estimated_scores(q.model, q.g, q.features, q.arms, q.d, q.per_arm, q.scores)
    return _sample_by_gaps(q, q.params[0] * sqrt(_learnt(q) + 1.0))


def _squarecb_scaled(q: cython.pointer[Query]) -> Size:
    """`_sample_by_gaps` with gamma_t = c K sqrt t/sum_i |g_i| R_i: the units of the rewards do not
    matter. params: c; R_i. draws (1,).
    """
    estimated_scores(q.model, q.g, q.features, q.arms, q.d, q.per_arm, q.scores)
    scale: Real = 0.0
    for i in range(q.n):
        scale += fabs(q.g[i]) * q.params[1 + i]
    rate: Real = q.params[0] * cython.cast(Real, q.arms) * sqrt(_learnt(q) + 1.0)
    return _sample_by_gaps(q, rate / scale if scale > 0.0 else 0.0)


def _theorem_rate(params: Reading, arms: Real, t: Real) -> Real:
    """gamma_t of the theorem: fixed for a horizon, or the anytime preset.

    params: as in `_squarecb_theorem`.
    """
    slope, diameter, delta, horizon = params[1], params[2], params[3], params[4]
    s = horizon if horizon > 0.0 else t
    regret = params[5] + params[6] * log1p(params[7] * s) + params[8] * sqrt(s)
    if horizon > 0.0:
        noise = 16.0 * (slope * slope) * (diameter * diameter) * log(2.0 / delta)
        return sqrt(8.0 * arms * s / (2.0 * (slope * slope) * regret + noise))
    noise = 8.0 * (diameter * diameter) * log(4.0 * s * s / delta)
    return 2.0 / slope * sqrt(s * arms / (regret + noise))


def _add_projected(
    weight: Real, value: In, low: Real, high: Real, out: Out, arms: Size
) -> cython.void:
    """out[a] += weight (value[a] projected on [low, high]), two roundings. value, out (arms,)."""
    for a in range(arms):
        out[a] += weight * between(value[a], low, high)


def _squarecb_theorem(q: cython.pointer[Query]) -> Size:
    """`_squarecb` with the theorem's gamma_t, its predictions projected on the possible rewards.

    params: 0, L, D_K, delta, horizon (0: none), the four numbers of R(t); lows; highs. draws (1,).
    """
    value = arm_array(q, 2)
    low, high = q.params + 9, q.params + 9 + q.n
    _transpose_features(q)
    for a in range(q.arms):
        q.scores[a] = 0.0
    for i in range(q.n):
        _estimate(q, i, value)
        _add_projected(q.g[i], value, low[i], high[i], q.scores, q.arms)
    return _sample_by_gaps(q, _theorem_rate(q.params, q.arms, _learnt(q) + 1.0))


def _epsilon_greedy(q: cython.pointer[Query]) -> Size:
    """The best estimate with probability 1 - epsilon, else any arm. params: epsilon. draws (1,)."""
    probabilities = arm_array(q, 1)
    estimated_scores(q.model, q.g, q.features, q.arms, q.d, q.per_arm, q.scores)
    for a in range(q.arms):
        probabilities[a] = q.params[0] / cython.cast(Real, q.arms)
    probabilities[argmax(q.scores, q.arms)] += 1.0 - q.params[0]
    return _sample(q, probabilities)


def _add_noise(lower: In, draws: In, spread: Real, out: Out, d: Size) -> cython.void:
    """out += spread lower draws. lower (d, d), draws, out (d,)."""
    for j in range(d):
        noise = 0.0
        for k in range(j + 1):
            noise = fma(lower[j * d + k], draws[k], noise)
        out[j] = fma(spread, noise, out[j])


def _thompson(q: cython.pointer[Query]) -> Size:
    """The arm of largest <g, theta~ x>, theta~ drawn from N(theta, R_i^2 V^-1) by reward.

    <g, theta> has mean sum_i g_i theta_i and covariance (sum_i g_i^2 R_i^2) V^-1, the rewards
    being independent: one draw of d numbers is enough for all rewards of a stage.

    params: R_i times the scale. draws (stages blocks d,): standard normals. Cost: d^3/6 for each
    stage and block.
    """
    d, model, drawn, lower = q.d, q.model, q.model.work, squares_in(q.model)
    for b in range(model.blocks):
        combine_rows(q.g, model.theta + b * q.n * d, drawn, q.n, d)
        for s in range(q.stages):
            place = s * model.blocks + b
            spread = 0.0
            for i in range(q.starts[s], q.starts[s + 1]):
                scale = q.g[i] * q.params[i]
                spread += scale * scale
            if not cholesky(model.inverse + place * d * d, lower, d):
                return -1
            _add_noise(lower, q.draws + place * d, sqrt(spread), drawn, d)
        row_products(q.features, drawn, q.scores + b, 1 if q.per_arm else q.arms, d)
    q.probability = NAN  # it has no closed form
    return argmax(q.scores, q.arms)


def _constant(q: cython.pointer[Query], arm: Real, probability: Real) -> Size:
    """An arm without scores, the last one where there are fewer."""
    for a in range(q.arms):
        q.scores[a] = 0.0
    q.probability = probability
    chosen = cython.cast(Size, arm)
    return chosen if chosen < q.arms else q.arms - 1


def _uniform(q: cython.pointer[Query]) -> Size:
    """Any arm; params are not read. draws (1,)."""
    arms: Real = q.arms
    return _constant(q, q.draws[0] * arms, 1.0 / arms)


def _fixed(q: cython.pointer[Query]) -> Size:
    """Always the same arm, the last one where there are fewer. params: the arm."""
    return _constant(q, q.params[0], 1.0)


def _estimates_and_widths(q: cython.pointer[Query]) -> Writing:
    """What a rule from outside gets: scores[a] = <g, theta x_a>, and |x_a| in the norm of V^-1,
    (arms,), or NULL without a design.
    """
    width = arm_array(q, 1)
    q.probability = NAN
    _transpose_features(q)
    _scores(q, q.g, q.scores)
    if q.model.inverse == cython.NULL:
        return cython.NULL
    _widths(q, 0, width)
    return width


def _python(q: cython.pointer[Query]) -> Size:
    """A function in Python; params: of a `PythonRule`, which keeps its exception; then -1.

    draws (1,). Its scores are the estimates. Cost: (n + arms) d + arms d^2/2, and the function.
    """
    width = _estimates_and_widths(q)
    with cython.gil:
        rule: PythonRule = cython.cast(
            PythonRule, cython.cast(cython.pointer[cython.pointer[PyObject]], q.params)[0]
        )
        return _call(rule, q, width)


def _call(rule: PythonRule, q: cython.pointer[Query], width: Reading) -> Size:
    """Call a function with copies, which it may keep or change; -1 where it raises."""
    arm: Size
    probability: Real
    if rule.inside:
        if rule.error is None:
            rule.error = InvalidInput("a rule was called again before it had returned")
        return -1
    rule.inside = True
    rule.callbacks += 1
    try:
        values = copy_of(q.scores, (q.arms,))
        widths = None if width == cython.NULL else copy_of(width, (q.arms,))
        t = int(q.model.counters[UPDATES])
        chosen, stated = rule.function(values, widths, t, q.draws[0])
        arm = chosen
        if not 0 <= arm < q.arms:
            raise InvalidInput(f"the rule chose arm {arm} of {q.arms}")
        if stated is not None:
            probability = stated
            if not 0.0 < probability <= 1.0:
                raise InvalidInput(f"the rule gave the probability {stated!r:.80}; {_CHANCE}")
            q.probability = probability
        return arm
    except BaseException as error:  # kept for whoever called from Python
        if rule.error is None:
            rule.error = error
        return -1
    finally:
        rule.inside = False


def copy_of(numbers: Reading, shape: Any) -> Any:
    """An array of its own, so that a function may keep it."""
    array = np.empty(shape)
    flat: OutVector = array.reshape(-1)
    for i in range(flat.shape[0]):
        flat[i] = numbers[i]
    return array


def _outside(q: cython.pointer[Query]) -> Size:
    """A C function from outside the package, as `_python`; params: of an `OutsideRule`, which keeps
    what was wrong; then -1.
    """
    own = cython.cast(cython.pointer[cython.pointer[OutsideCall]], q.params)[0]
    width = _estimates_and_widths(q)
    chance = cython.address(q.probability)
    t = q.model.counters[UPDATES]
    arm = own.function(q.scores, width, q.arms, t, q.draws[0], chance, own.data)
    if 0 <= arm < q.arms and (chance[0] != chance[0] or 0.0 < chance[0] <= 1.0):
        return arm
    own.arm, own.arms, own.probability = arm, q.arms, chance[0]
    own.failed = True
    return -1


# --- terms of certificates ------------------------------------------------------------------------


def _compare(
    q: cython.pointer[Query], slope: Reading, arm: Size, values: Writing, out: Writing
) -> Real:
    """The estimates of <slope, r> as values, of which the largest is returned; the second and the
    third term, and 0 for the others. values (arms,), out (4,).
    """
    _transpose_features(q)
    _scores(q, q.g, values)
    greedy = argmax(values, q.arms)
    _scores(q, slope, values)
    best = values[argmax(values, q.arms)]
    out[0] = 0.0
    out[3] = 0.0
    out[1] = best - values[arm]
    out[2] = best - larger(values[arm], values[greedy])
    return best


def _certify_plain(
    q: cython.pointer[Query], slope: Reading, arm: Size, bounds: Reading, size: Size, out: Writing
) -> cython.void:
    """In a shared model without an inverse of the design; bounds are not read."""
    _compare(q, slope, arm, arm_array(q, 3), out)


def _add_upper_bound(
    slope: Real, low: Real, high: Real, value: In, width: In, out: Out, arms: Size
) -> cython.void:
    """out[a] += the most that slope times a reward may be, its estimate projected on its range.

    value, width, out (arms,).
    """
    end = low if slope < 0.0 else high
    for a in range(arms):
        estimate = between(value[a], low, high)
        bonus = pointwise_bonus(estimate, low, high, high - low, width[a], 2.0)
        out[a] += slope * estimate + smaller(fabs(slope) * bonus, slope * (end - estimate))


def _certify_optimistic(
    q: cython.pointer[Query], slope: Reading, arm: Size, bounds: Reading, size: Size, out: Writing
) -> cython.void:
    """In a shared model. bounds: lows; highs; the params of `_add_bonus`, if any.

    What an arm that was hardly tried may be worth is two standard errors above its estimate,
    besides what one more reward may add: 95 %. With more, every arm that LinUCB has given up would
    count.
    """
    width, value = arm_array(q, 1), arm_array(q, 2)
    values, most = arm_array(q, 3), arm_array(q, 4)
    best = _compare(q, slope, arm, values, out)
    hardly: Size = 0
    for a in range(q.arms):
        most[a] = 0.0
    for s in range(q.stages):
        _widths(q, s, width)
        if size > 2 * q.n:
            _add_bonus(q, s, slope, bounds + 2 * q.n, width, values)
        for a in range(q.arms):
            hardly += hardly_tried(width[a])
    if size > 2 * q.n:
        out[0] = values[argmax(values, q.arms)]
    if hardly == 0:
        return
    for s in range(q.stages):
        if q.stages > 1:
            _widths(q, s, width)
        for i in range(q.starts[s], q.starts[s + 1]):
            _estimate(q, i, value)
            _add_upper_bound(slope[i], bounds[i], bounds[q.n + i], value, width, most, q.arms)
    for s in range(q.stages):
        if q.stages > 1:
            _widths(q, s, width)
        for a in range(q.arms):
            if hardly_tried(width[a]):
                out[3] = larger(out[3], most[a] - best)


def _certify_extended(
    q: cython.pointer[Query], slope: Reading, arm: Size, bounds: Reading, size: Size, out: Writing
) -> cython.void:
    """In an extended model, never per arm. bounds: lows; highs; the params of
    `_add_extended_bonus`, if any.
    """
    width, values, high = arm_array(q, 1), arm_array(q, 3), bounds + q.n
    bottom = end_of_range(slope, bounds, high, q.n, False)
    top = end_of_range(slope, bounds, high, q.n, True)
    best = _compare(q, slope, arm, values, out)
    _extended_widths(q, slope, width)
    for a in range(q.arms):
        if hardly_tried(width[a]) and top > bottom:
            bonus = pointwise_bonus(values[a], bottom, top, top - bottom, width[a], 2.0)
            out[3] = larger(out[3], smaller(values[a] + bonus, top) - best)
    if size > 2 * q.n:
        _add_extended_bonus(q, slope, bounds + 2 * q.n, width, values)
        out[0] = values[argmax(values, q.arms)]


# --- what is learnt, and by name ------------------------------------------------------------------


def extended_lesson(
    direction: In, x: In, reward: In, wide: Out, scalar: Out, n: Size, d: Size
) -> cython.void:
    """What an extended model learns of an arm: wide = g (x) x, and scalar[0] = <g, r>.

    direction, reward (n,), x (d,), wide (n d,), scalar (1,).
    """
    total = 0.0
    for i in range(n):
        total += direction[i] * reward[i]
        for j in range(d):
            wide[i * d + j] = direction[i] * x[j]
    scalar[0] = total


def choose_by_name(name: str) -> Choose:
    """A rule: linucb, linucb_extended, squarecb, squarecb_scaled, squarecb_theorem,
    epsilon_greedy, thompson, uniform, fixed, python, outside.
    """
    if name == "linucb":
        return _linucb
    if name == "linucb_extended":
        return _linucb_extended
    if name == "squarecb":
        return _squarecb
    if name == "squarecb_scaled":
        return _squarecb_scaled
    if name == "squarecb_theorem":
        return _squarecb_theorem
    if name == "epsilon_greedy":
        return _epsilon_greedy
    if name == "thompson":
        return _thompson
    if name == "uniform":
        return _uniform
    if name == "fixed":
        return _fixed
    if name == "python":
        return _python
    if name == "outside":
        return _outside
    raise ValueError(f"there is no rule {name!r}")


def certify_by_name(name: str) -> Certify:
    """The terms of certificates: plain (no inverse of the design), optimistic (a shared model),
    extended.
    """
    if name == "plain":
        return _certify_plain
    if name == "optimistic":
        return _certify_optimistic
    if name == "extended":
        return _certify_extended
    raise ValueError(f"there is no certificate {name!r}")


# --- from Python ----------------------------------------------------------------------------------


SIGNATURE = (
    "Py_ssize_t (const double *values, const double *widths, Py_ssize_t n_arms, double t, "
    "double uniform, double *probability, void *user_data)"
)
"""Of a rule in C: it returns the arm. widths is NULL without a design; probability is NaN, for
unknown, unless it is set; t: how many rewards were learnt."""

_NOTHING = np.empty(0)
_CHANCE = "give a number above 0 and at most 1, or None where it is unknown"


@cython.cclass
class PythonRule:
    """A rule in Python for compiled loops: function (values (arms,), widths (arms,), t, uniform) ->
    (arm, probability or None). values: the estimates <g, theta x_a>; widths: |x_a| in the norm of
    V^-1, None without a design; t: how many rewards were learnt; uniform: a number in [0, 1).

    `params` are those of the rule `name`, and are good as long as this lives. An exception is kept,
    and the rule returns -1.
    """

    name = "python"
    function: Any
    error: Any
    params: Any
    callbacks: cython.longlong
    inside: cython.bint

    def __init__(self, function: Any) -> None:
        self.function = function
        self.error = None
        self.params = _address(cython.cast(uintptr_t, cython.cast(cython.p_void, self)))

    def failure(self) -> BaseException | None:
        """The first exception since it was asked, if there was one."""
        error, self.error = self.error, None
        return error


@cython.cclass
class OutsideRule:
    """The same of a C function: a `scipy.LowLevelCallable` of `SIGNATURE`. It needs no lock."""

    name = "outside"
    callbacks = 0  # of functions in Python
    own: OutsideCall
    kept: Any
    params: Any

    def __init__(self, function: Any) -> None:
        capsule = tuple.__getitem__(function, 0)
        name: cython.pointer[cython.const[cython.char]] = PyCapsule_GetName(capsule)
        given = "" if name == cython.NULL else cython.cast(bytes, name).decode()
        if c_types(given) != c_types(SIGNATURE):
            raise InvalidInput(
                f"the C function has the signature {given!r}; a rule needs {SIGNATURE!r}"
            )
        self.kept = function
        self.own.function = cython.cast(OutsideFunction, PyCapsule_GetPointer(capsule, name))
        self.own.data = PyCapsule_GetContext(capsule)
        self.own.failed = False
        self.params = _address(cython.cast(uintptr_t, cython.address(self.own)))

    def failure(self) -> BaseException | None:
        """What was wrong with the first answer since it was asked, if anything was."""
        if not self.own.failed:
            return None
        self.own.failed = False
        if not 0 <= self.own.arm < self.own.arms:
            return InvalidInput(f"the rule chose arm {self.own.arm} of {self.own.arms}")
        return InvalidInput(f"the rule gave the probability {self.own.probability}; {_CHANCE}")


def own_rule(function: Any) -> PythonRule | OutsideRule:
    """A rule from outside the package: a Python function or a `scipy.LowLevelCallable`."""
    return OutsideRule(function) if is_outside(function) else PythonRule(function)


@cython.cfunc
def _address(where: uintptr_t) -> Any:
    """The bits of an address as params."""
    params = np.zeros(1)
    at: OutVector = params
    cython.cast(cython.pointer[uintptr_t], cython.address(at[0]))[0] = where
    return params


def _needs(name: str, n: int, size: int, pointwise: bool) -> tuple[int, int]:
    """How many draws and params a rule reads, n rewards; size: numbers of Thompson's draw."""
    return {
        "linucb": (0, 2 + (4 if pointwise else 2) * n),
        "linucb_extended": (0, 4 + (2 * n if pointwise else 0)),
        "squarecb": (1, 1),
        "squarecb_scaled": (1, 1 + n),
        "squarecb_theorem": (1, 9 + 2 * n),
        "epsilon_greedy": (1, 1),
        "thompson": (size, n),
        "uniform": (1, 0),
        "fixed": (0, 1),
        "python": (1, 1),
        "outside": (1, 1),
    }[name]


@cython.cfunc
def _query(
    model: Regression,
    direction: Vector,
    features: Matrix,
    per_arm: cython.bint,
    extended: cython.bint,
    design: cython.bint,
) -> Query:
    """A query of one stage, without draws, params and scores; raises where a kernel would read what
    is not there.

    design: whether confidence widths are read.
    """
    own = cython.address(model.own)
    n, rows, d = direction.shape[0], features.shape[0], features.shape[1]
    if design and own.inverse == cython.NULL:
        raise ValueError("online gradients have no confidence widths")
    if extended:
        fits = own.rewards == 1 and own.d == n * d and own.blocks == 1 and not per_arm
    else:
        fits = own.rewards == n and own.d == d
    if not fits or n < 1 or d < 1 or rows < 1 or (per_arm and rows != 1):
        raise ValueError(
            f"{n} rewards and features of shape {(rows, d)} do not fit theta of shape "
            f"{(own.blocks, own.rewards, own.d)}"
        )
    if not per_arm and own.blocks != 1:
        raise ValueError("a model with blocks needs per_arm")
    q = cython.declare(Query)
    q.model, q.g, q.features = own, cython.address(direction[0]), cython.address(features[0, 0])
    q.n, q.arms, q.d, q.per_arm = n, own.blocks if per_arm else rows, d, per_arm
    model.ends[0], model.ends[1] = 0, n
    q.stages, q.starts, q.spans = 1, cython.address(model.ends[0]), cython.NULL
    q.probability = 0.0
    model.make_room(q.arms)
    return q


@cython.cfunc
def _rule_query(
    name: str,
    model: Regression,
    direction: Vector,
    features: Matrix,
    per_arm: cython.bint,
    draws: Vector,
    params: Vector,
) -> Query:
    """A query of a rule without scores."""
    design = name in ("linucb", "linucb_extended", "thompson")
    q: Query = _query(model, direction, features, per_arm, name == "linucb_extended", design)
    pointwise = params.shape[0] > 0 and params[0] < 0.0
    needs = _needs(name, q.n, q.model.blocks * q.d, pointwise)
    if draws.shape[0] < needs[0] or params.shape[0] < needs[1]:
        raise ValueError(
            f"{draws.shape[0]} draws and {params.shape[0]} params were given; {name} with {q.n} "
            f"rewards reads {needs[0]} and {needs[1]}"
        )
    q.draws, q.params = cython.address(draws[0]), cython.address(params[0])
    return q


def choose(
    name: str,
    model: Regression,
    direction: Vector,
    features: Matrix,
    per_arm: cython.bint = False,
    draws: Vector = _NOTHING,
    params: Vector = _NOTHING,
) -> tuple[int, float, Any]:
    """The arm (-1: the state is useless), its probability (NaN: unknown) and the scores (arms,).

    name: of a rule, see `choose_by_name`; direction (n,), features (arms, d), or (1, d) if per_arm;
    draws, params: of the rule.
    """
    rule: Choose = choose_by_name(name)
    q: Query = _rule_query(name, model, direction, features, per_arm, draws, params)
    scores = np.empty(q.arms)
    to: OutVector = scores
    q.scores = cython.address(to[0])
    with cython.nogil:
        arm = rule(cython.address(q))
    return arm, q.probability, scores


def distributions(
    name: str,
    model: Regression,
    direction: Vector,
    features: Tensor,
    per_arm: cython.bint,
    uniforms: Size,
    params: Vector,
    out: OutMatrix,
) -> int:
    """The probabilities of all arms, row by row: each call of the rule reveals the arm that a
    uniform number falls on, and its probability, which is where the next arm begins.

    0, or -1 - row where the rule does not say its probabilities. name: of a rule, see `choose`;
    direction (n,), features (rows, arms or 1, d), uniforms: how many numbers the rule draws; out
    (rows, arms). Cost: the rule, at most once for each arm of each row.
    """
    rows, arms, blocks = out.shape[0], out.shape[1], model.own.blocks
    if features.shape[0] != rows or arms != (blocks if per_arm else features.shape[1]):
        raise ValueError(
            f"features ({features.shape[0]}, {features.shape[1]}, {features.shape[2]}) of "
            f"{blocks} blocks, out ({rows}, {arms})"
        )
    if rows == 0:
        return 0
    rule: Choose = choose_by_name(name)
    draws: OutVector = np.zeros(max(uniforms, 1))
    scores: OutVector = np.empty(arms)
    q: Query = _rule_query(name, model, direction, features[0], per_arm, draws, params)
    q.scores = cython.address(scores[0])
    for s in range(rows):
        q.features = cython.address(features[s, 0, 0])
        if not _distribution(rule, cython.address(q), cython.address(draws[0]), uniforms, out[s]):
            return -1 - s
    return 0


@cython.cfunc
@cython.exceptval(check=False)
def _distribution(
    rule: Choose, q: cython.pointer[Query], draw: cython.p_double, uniforms: Size, out: OutVector
) -> cython.bint:
    """The probabilities of all arms, out (arms,); False where the rule does not say them."""
    total = 0.0
    for a in range(q.arms):
        out[a] = 0.0
    for _ in range(q.arms):
        # A step into the next arm, whatever rounding made of the sum; less likely arms count as 0.
        draw[0] = min(total + 1e-12, 1.0 - 1e-15)
        arm = rule(q)
        if arm < 0 or arm >= q.arms or not q.probability > 0.0:
            return False
        if out[arm] > 0.0:  # rounding has found it again
            break
        out[arm] = q.probability
        total += q.probability
        if uniforms == 0 or total >= 1.0 - 2e-12:
            break
    return fabs(total - 1.0) < 1e-6


def certificate_terms(
    name: str,
    model: Regression,
    slope: Vector,
    direction: Vector,
    features: Matrix,
    per_arm: cython.bint,
    arm: Size,
    bounds: Vector,
) -> Any:
    """The four terms of a certificate, see `Certify` in rules.pxd.

    name: see `certify_by_name`; slope, direction (n,), features (arms, d), or (1, d) if per_arm,
    arm: the chosen one, bounds: lows; highs; params of the confidence widths, if any.
    """
    certify: Certify = certify_by_name(name)
    q: Query = _query(model, direction, features, per_arm, name == "extended", name != "plain")
    n, size = q.n, bounds.shape[0]
    wanted: Size = 0 if name == "plain" else 2 * n
    if size > 2 * n and name == "optimistic":
        wanted = 4 * n + 2
    if size > 2 * n and name == "extended":
        wanted = 2 * n + 4 + (2 * n if bounds[2 * n] < 0.0 else 0)
    if slope.shape[0] != n or size < wanted or not 0 <= arm < q.arms:
        raise ValueError(
            f"the slope has {slope.shape[0]} numbers, there are {size} bounds, the arm is {arm}; "
            f"the model has {n} rewards, {wanted} numbers of bounds are read, of {q.arms} arms"
        )
    out = np.empty(4)
    to: OutVector = out
    with cython.nogil:
        certify(
            cython.address(q),
            cython.address(slope[0]),
            arm,
            cython.address(bounds[0]),
            size,
            cython.address(to[0]),
        )
    return out


def lesson(direction: Vector, x: Vector, reward: Vector) -> tuple[Any, Any]:
    """What an extended model learns of an arm: g (x) x, (n d,), and <g, r>, (1,)."""
    n, d = direction.shape[0], x.shape[0]
    if reward.shape[0] != n or n < 1 or d < 1:
        raise ValueError(f"the reward has {reward.shape[0]} numbers, the direction {n}, x {d}")
    wide, scalar = np.empty(n * d), np.empty(1)
    to: OutVector = wide
    at: OutVector = scalar
    extended_lesson(
        cython.address(direction[0]),
        cython.address(x[0]),
        cython.address(reward[0]),
        cython.address(to[0]),
        cython.address(at[0]),
        n,
        d,
    )
    return wide, scalar
