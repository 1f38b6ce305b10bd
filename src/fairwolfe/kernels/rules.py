# cython: language_level=3
"""Rules: an arm for the scalar reward <g, r>, from what a linear regression has learnt.

Every rule has one signature, `Choose` in rules.pxd. The estimates of a shared model are theta x_a;
an extended model regresses <g, r> on g (x) x, and its one row of n d parameters is read as (n, d).
"""

from __future__ import annotations

from typing import Any

import cython
import numpy as np
from cython.cimports.cpython.pycapsule import (
    PyCapsule_GetContext,
    PyCapsule_GetName,
    PyCapsule_GetPointer,
)
from cython.cimports.cpython.ref import PyObject
from cython.cimports.fairwolfe.kernels.ridge import (
    LOG_DET,
    UPDATES,
    Linear,
    Reading,
    Regression,
    Writing,
    add_rows,
    arms_in,
    between,
    cholesky,
    columns,
    combine_rows,
    estimated_scores,
    larger,
    norms_of_columns,
    padded,
    row_products,
    smaller,
    square_norm,
    squares_in,
)
from cython.cimports.fairwolfe.kernels.rules import (
    Choose,
    Look,
    OutsideCall,
    OutsideFunction,
    argmax,
    pointwise_bonus,
    pointwise_radius,
)
from cython.cimports.fairwolfe.kernels.types import In, Out, Real, Size
from cython.cimports.libc.math import NAN, fabs, fma, log, log1p, sqrt
from cython.cimports.libc.stdint import uintptr_t

from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.gradients import c_types, is_outside

# --- scores and confidence widths -----------------------------------------------------------------
# Arrays of a number for each arm in the scratch of the model, in units of padded(arms): the first
# is taken by sums inside loops; then the widths, two more, and the features as columns.


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _arm_array(model: cython.pointer[Linear], arms: Size, which: Size) -> Writing:
    """One of the arrays above: 0 to 4, or 5 for the columns."""
    return arms_in(model) + which * padded(arms)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _turn(
    model: cython.pointer[Linear], features: Reading, arms: Size, d: Size, per_arm: cython.bint
) -> cython.void:
    """Prepare the features of a context for `_scores` and `_widths`."""
    if not per_arm:
        columns(features, _arm_array(model, arms, 5), padded(arms), arms, d)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _scores(
    model: cython.pointer[Linear],
    g: Reading,
    n: Size,
    features: Reading,
    arms: Size,
    d: Size,
    per_arm: cython.bint,
    out: Writing,
) -> cython.void:
    """out[a] = <g, theta x_a>, after `_turn`. Cost: (n + arms) d, per arm arms n d."""
    a: Size
    if per_arm:
        estimated_scores(model, g, features, arms, d, True, out)
        return
    combine_rows(g, model.theta, model.work, n, d)
    for a in range(arms):
        out[a] = 0.0
    add_rows(model.work, _arm_array(model, arms, 5), padded(arms), out, d, arms)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _widths(
    model: cython.pointer[Linear],
    features: Reading,
    arms: Size,
    d: Size,
    per_arm: cython.bint,
    out: Writing,
) -> cython.void:
    """out[a] = |x_a| in the norm of V^-1, after `_turn`. Cost: arms d^2/2, per arm arms d^2."""
    a: Size
    if per_arm:
        for a in range(arms):
            out[a] = sqrt(larger(square_norm(model.inverse + a * d * d, features, d), 0.0))
        return
    norms_of_columns(
        model.inverse,
        _arm_array(model, arms, 5),
        padded(arms),
        _arm_array(model, arms, 0),
        out,
        arms,
        d,
    )


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _extended_widths(
    model: cython.pointer[Linear], g: Reading, n: Size, arms: Size, d: Size, out: Writing
) -> cython.void:
    """out[a] = |g (x) x_a| in the norm of V^-1, after `_turn`.

    That is |x_a| in the norm of (g (x) I)' V^-1 (g (x) I): one contraction to d x d, then the
    widths. With e = n d: g (n,), V^-1 (e, e), out (arms,). Cost: e^2 + arms d^2/2.
    """
    j: Size
    rows: Writing = squares_in(model)  # (d, e)
    contracted: Writing = rows + padded(model.d * model.d)
    combine_rows(g, model.inverse, rows, n, d * n * d)
    for j in range(d):
        combine_rows(g, rows + j * n * d, contracted + j * d, n, d)
    norms_of_columns(
        contracted,
        _arm_array(model, arms, 5),
        padded(arms),
        _arm_array(model, arms, 0),
        out,
        arms,
        d,
    )


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _radius(noise: Real, prior: Real, level: Real, log_det: Real) -> Real:
    """The confidence radius alpha = R sqrt(2 ln(1/delta_1) + ln(det V/det V_0)) + sqrt(ridge) D.

    noise is R, prior is sqrt(ridge) D_theta, level is 2 ln(1/delta_1).
    """
    return noise * sqrt(level + log_det) + prior


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _add_scaled_widths(bonus: Real, width: In, out: Out, arms: Size) -> cython.void:
    """out[a] += bonus width[a], two roundings. width, out (arms,)."""
    a: Size
    for a in range(arms):
        out[a] += bonus * width[a]


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _add_bonus(
    model: cython.pointer[Linear],
    g: Reading,
    n: Size,
    params: Reading,
    width: Reading,
    out: Writing,
    arms: Size,
) -> cython.void:
    """out[a] += exploration (sum_i |g_i| alpha_i) width[a], optimistic for either sign of g.

    params: exploration, 2 ln(1/delta_1); R_i; sqrt(ridge) D_theta_i. g (n,), width, out (arms,).
    """
    i: Size
    bonus: Real = 0.0
    for i in range(n):
        bonus += fabs(g[i]) * _radius(
            params[2 + i], params[2 + n + i], params[1], model.counters[LOG_DET]
        )
    _add_scaled_widths(bonus * params[0], width, out, arms)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _sum_pointwise(
    weight: Real,
    low: Real,
    high: Real,
    noise: Real,
    radius: Real,
    value: In,
    width: In,
    out: Out,
    arms: Size,
) -> cython.void:
    """out[a] += weight pointwise_bonus_a, the value projected on its range. value, width, out
    (arms,).
    """
    a: Size
    for a in range(arms):
        out[a] += weight * pointwise_bonus(
            between(value[a], low, high), low, high, noise, width[a], radius
        )


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _add_pointwise_bonus(
    model: cython.pointer[Linear],
    g: Reading,
    n: Size,
    features: Reading,
    arms: Size,
    d: Size,
    per_arm: cython.bint,
    params: Reading,
    width: Reading,
    out: Writing,
) -> cython.void:
    """out[a] += sum_i |g_i| pointwise_bonus_ia: no union over directions, and what a reward can
    vary at its estimate.

    params: of `_linucb`. g (n,), width, out (arms,). Cost: arms n d.
    """
    a: Size
    i: Size
    value: Writing = _arm_array(model, arms, 2)
    total: Writing = _arm_array(model, arms, 3)
    wide: Real = pointwise_radius(-params[0], model.counters[UPDATES])
    for a in range(arms):
        total[a] = 0.0
    for i in range(n):
        _estimate(model, i, n, features, arms, d, per_arm, value)
        _sum_pointwise(
            fabs(g[i]),
            params[2 + 2 * n + i],
            params[2 + 3 * n + i],
            params[2 + i],
            wide,
            value,
            width,
            total,
            arms,
        )
    for a in range(arms):
        out[a] += total[a]


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _estimate(
    model: cython.pointer[Linear],
    i: Size,
    n: Size,
    features: Reading,
    arms: Size,
    d: Size,
    per_arm: cython.bint,
    out: Writing,
) -> cython.void:
    """out[a] = the estimate of reward i for arm a, after `_turn`. out (arms,)."""
    a: Size
    for a in range(arms):
        out[a] = 0.0
    if per_arm:
        for a in range(arms):
            row_products(model.theta + (a * n + i) * d, features, out + a, 1, d)
    else:
        add_rows(model.theta + i * d, _arm_array(model, arms, 5), padded(arms), out, d, arms)


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _bottom(g: Reading, low: Reading, high: Reading, n: Size) -> Real:
    """The least <g, r> for rewards in their ranges. g, low, high (n,)."""
    i: Size
    total: Real = 0.0
    for i in range(n):
        total += smaller(g[i] * low[i], g[i] * high[i])
    return total


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _top(g: Reading, low: Reading, high: Reading, n: Size) -> Real:
    """The largest <g, r> for rewards in their ranges. g, low, high (n,)."""
    i: Size
    total: Real = 0.0
    for i in range(n):
        total += larger(g[i] * low[i], g[i] * high[i])
    return total


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _add_extended_bonus(
    model: cython.pointer[Linear],
    g: Reading,
    n: Size,
    d: Size,
    params: Reading,
    width: Reading,
    out: Writing,
    arms: Size,
) -> cython.void:
    """The bonus on g (x) x; params: of `_linucb_extended`, its ranges only where pointwise.

    g (n,), width (arms,), out (arms,): estimates, then with the bonus.
    """
    a: Size
    bottom: Real
    top: Real
    wide: Real
    if params[0] >= 0.0:
        _add_scaled_widths(
            params[0] * _radius(params[2], params[3], params[1], model.counters[LOG_DET]),
            width,
            out,
            arms,
        )
        return
    bottom = _bottom(g, params + 4, params + 4 + n, n)
    top = _top(g, params + 4, params + 4 + n, n)
    wide = pointwise_radius(n * d, model.counters[UPDATES])
    if top > bottom:
        for a in range(arms):
            out[a] += pointwise_bonus(out[a], bottom, top, params[2], width[a], wide)


# --- rules ----------------------------------------------------------------------------------------


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _linucb(
    model: cython.pointer[Linear],
    g: Reading,
    n: Size,
    features: Reading,
    arms: Size,
    d: Size,
    per_arm: cython.bint,
    draws: Reading,
    params: Reading,
    n_params: Size,
    scores: Writing,
    report: Writing,
) -> Size:
    """The arm of largest estimate plus confidence width.

    params: exploration, or minus the parameters of a reward (pointwise), 2 ln(1/delta_1); R_i;
    sqrt(ridge) D_theta_i; lows; highs (the ranges are read where pointwise). No draws.
    """
    width: Writing = _arm_array(model, arms, 1)
    _turn(model, features, arms, d, per_arm)
    _scores(model, g, n, features, arms, d, per_arm, scores)
    _widths(model, features, arms, d, per_arm, width)
    if params[0] < 0.0:
        _add_pointwise_bonus(model, g, n, features, arms, d, per_arm, params, width, scores)
    else:
        _add_bonus(model, g, n, params, width, scores, arms)
    report[0] = 1.0
    return argmax(scores, arms)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _linucb_extended(
    model: cython.pointer[Linear],
    g: Reading,
    n: Size,
    features: Reading,
    arms: Size,
    d: Size,
    per_arm: cython.bint,
    draws: Reading,
    params: Reading,
    n_params: Size,
    scores: Writing,
    report: Writing,
) -> Size:
    """The same in an extended model, never per arm.

    params: exploration or -1 (pointwise), 2 ln(1/delta_1), R, sqrt(ridge) D_theta; lows; highs
    (the ranges are read where pointwise). No draws.
    """
    width: Writing = _arm_array(model, arms, 1)
    _turn(model, features, arms, d, False)
    _scores(model, g, n, features, arms, d, False, scores)
    _extended_widths(model, g, n, arms, d, width)
    _add_extended_bonus(model, g, n, d, params, width, scores, arms)
    report[0] = 1.0
    return argmax(scores, arms)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _draw(probabilities: Reading, uniform: Real, n: Size) -> Size:
    """The place that a uniform number in [0, 1) falls on. probabilities (n,)."""
    a: Size
    last: Size = 0
    total: Real = 0.0
    for a in range(n):
        if probabilities[a] > 0.0:
            last = a
            total += probabilities[a]
            if uniform < total:
                return a
    return last  # the probabilities sum to a little less than 1


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _gap_probabilities(values: In, best: Size, gamma: Real, out: Out, n: Size) -> cython.void:
    """out[a] = 1/(n + gamma (best - value_a)), the rest to the best arm. values, out (n,)."""
    a: Size
    rest: Real = 1.0
    most: Real = values[best]
    arms: Real = n
    for a in range(n):
        out[a] = 1.0 / (arms + gamma * (most - values[a]))
    for a in range(n):
        if a != best:
            rest -= out[a]
    out[best] = rest


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _sample(
    model: cython.pointer[Linear],
    gamma: Real,
    uniform: Real,
    scores: Reading,
    report: Writing,
    arms: Size,
) -> Size:
    """An arm by the gaps between the scores."""
    arm: Size
    probabilities: Writing = _arm_array(model, arms, 1)
    _gap_probabilities(scores, argmax(scores, arms), gamma, probabilities, arms)
    arm = _draw(probabilities, uniform, arms)
    report[0] = probabilities[arm]
    return arm


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _squarecb(
    model: cython.pointer[Linear],
    g: Reading,
    n: Size,
    features: Reading,
    arms: Size,
    d: Size,
    per_arm: cython.bint,
    draws: Reading,
    params: Reading,
    n_params: Size,
    scores: Writing,
    report: Writing,
) -> Size:
    """P(a) = 1/(K + gamma_t (best - score_a)), gamma_t = gamma0 sqrt t; the best has the rest.

    params: gamma0. draws (1,).
    """
    estimated_scores(model, g, features, arms, d, per_arm, scores)
    return _sample(
        model,
        params[0] * sqrt(model.counters[UPDATES] + 1.0),
        draws[0],
        scores,
        report,
        arms,
    )


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _theorem_rate(params: Reading, arms: Real, t: Real) -> Real:
    """gamma_t of the theorem: fixed for a horizon, or the anytime preset.

    params: as in `_squarecb_theorem`.
    """
    slope: Real = params[1]
    diameter: Real = params[2]
    delta: Real = params[3]
    s: Real = params[4] if params[4] > 0.0 else t
    noise: Real
    regret: Real = params[5] + params[6] * log1p(params[7] * s) + params[8] * sqrt(s)
    if params[4] > 0.0:
        noise = 16.0 * (slope * slope) * (diameter * diameter) * log(2.0 / delta)
        return sqrt(8.0 * arms * s / (2.0 * (slope * slope) * regret + noise))
    noise = 8.0 * (diameter * diameter) * log(4.0 * s * s / delta)
    return 2.0 / slope * sqrt(s * arms / (regret + noise))


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _add_projected(
    weight: Real, value: In, low: Real, high: Real, out: Out, arms: Size
) -> cython.void:
    """out[a] += weight (value[a] projected on [low, high]), two roundings. value, out (arms,)."""
    a: Size
    for a in range(arms):
        out[a] += weight * between(value[a], low, high)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _squarecb_theorem(
    model: cython.pointer[Linear],
    g: Reading,
    n: Size,
    features: Reading,
    arms: Size,
    d: Size,
    per_arm: cython.bint,
    draws: Reading,
    params: Reading,
    n_params: Size,
    scores: Writing,
    report: Writing,
) -> Size:
    """`_squarecb` with the theorem's gamma_t, its predictions projected on the possible rewards.

    params: 0, L, D_K, delta, horizon (0: none), the four numbers of R(t); lows; highs. draws (1,).
    """
    a: Size
    i: Size
    value: Writing = _arm_array(model, arms, 2)
    _turn(model, features, arms, d, per_arm)
    for a in range(arms):
        scores[a] = 0.0
    for i in range(n):
        _estimate(model, i, n, features, arms, d, per_arm, value)
        _add_projected(g[i], value, params[9 + i], params[9 + n + i], scores, arms)
    return _sample(
        model,
        _theorem_rate(params, arms, model.counters[UPDATES] + 1.0),
        draws[0],
        scores,
        report,
        arms,
    )


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _epsilon_greedy(
    model: cython.pointer[Linear],
    g: Reading,
    n: Size,
    features: Reading,
    arms: Size,
    d: Size,
    per_arm: cython.bint,
    draws: Reading,
    params: Reading,
    n_params: Size,
    scores: Writing,
    report: Writing,
) -> Size:
    """The best estimate with probability 1 - epsilon, else any arm. params: epsilon.
    draws (1,).
    """
    a: Size
    arm: Size
    share: Real = params[0] / cython.cast(Real, arms)
    probabilities: Writing = _arm_array(model, arms, 1)
    estimated_scores(model, g, features, arms, d, per_arm, scores)
    for a in range(arms):
        probabilities[a] = share
    probabilities[argmax(scores, arms)] += 1.0 - params[0]
    arm = _draw(probabilities, draws[0], arms)
    report[0] = probabilities[arm]
    return arm


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _add_noise(lower: In, draws: In, spread: Real, out: Out, d: Size) -> cython.void:
    """out += spread lower draws. lower (d, d), draws, out (d,)."""
    j: Size
    k: Size
    noise: Real
    for j in range(d):
        noise = 0.0
        for k in range(j + 1):
            noise = fma(lower[j * d + k], draws[k], noise)
        out[j] = fma(spread, noise, out[j])


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _thompson(
    model: cython.pointer[Linear],
    g: Reading,
    n: Size,
    features: Reading,
    arms: Size,
    d: Size,
    per_arm: cython.bint,
    draws: Reading,
    params: Reading,
    n_params: Size,
    scores: Writing,
    report: Writing,
) -> Size:
    """The arm of largest <g, theta~ x>, theta~ drawn from N(theta, R_i^2 V^-1) by reward.

    <g, theta> has mean sum_i g_i theta_i and covariance (sum_i g_i^2 R_i^2) V^-1, the rewards
    being independent: one draw of d numbers is enough for all rewards.

    params: R_i times the scale. draws (blocks d,): standard normals. Cost: d^3/6 for
    each block.
    """
    b: Size
    i: Size
    scale: Real
    spread: Real = 0.0
    drawn: Writing = model.work
    lower: Writing = squares_in(model)
    for i in range(n):
        scale = g[i] * params[i]
        spread += scale * scale
    spread = sqrt(spread)
    for b in range(model.blocks):
        combine_rows(g, model.theta + b * n * d, drawn, n, d)
        if not cholesky(model.inverse + b * d * d, lower, d):
            return -1
        _add_noise(lower, draws + b * d, spread, drawn, d)
        if per_arm:
            row_products(features, drawn, scores + b, 1, d)
        else:
            row_products(features, drawn, scores, arms, d)
    report[0] = NAN  # it has no closed form
    return argmax(scores, arms)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _uniform(
    model: cython.pointer[Linear],
    g: Reading,
    n: Size,
    features: Reading,
    arms: Size,
    d: Size,
    per_arm: cython.bint,
    draws: Reading,
    params: Reading,
    n_params: Size,
    scores: Writing,
    report: Writing,
) -> Size:
    """Any arm; params are not read. draws (1,)."""
    a: Size
    arm: Size = cython.cast(Size, draws[0] * cython.cast(Real, arms))
    for a in range(arms):
        scores[a] = 0.0
    report[0] = 1.0 / cython.cast(Real, arms)
    return arm if arm < arms else arms - 1


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _fixed(
    model: cython.pointer[Linear],
    g: Reading,
    n: Size,
    features: Reading,
    arms: Size,
    d: Size,
    per_arm: cython.bint,
    draws: Reading,
    params: Reading,
    n_params: Size,
    scores: Writing,
    report: Writing,
) -> Size:
    """Always the same arm, the last one where there are fewer. params: the arm."""
    a: Size
    arm: Size = cython.cast(Size, params[0])
    for a in range(arms):
        scores[a] = 0.0
    report[0] = 1.0
    return arm if arm < arms else arms - 1


def choose_python(
    model: cython.pointer[Linear],
    g: Reading,
    n: Size,
    features: Reading,
    arms: Size,
    d: Size,
    per_arm: cython.bint,
    draws: Reading,
    params: Reading,
    n_params: Size,
    scores: Writing,
    report: Writing,
) -> Size:
    """A function in Python; params: of a `PythonRule`, which keeps its exception; then -1.

    draws (1,). Its scores are the estimates. Cost: (n + arms) d + arms d^2/2, and the function.
    """
    arm: Size = -1
    width: Writing = _estimates_and_widths(model, g, n, features, arms, d, per_arm, scores)
    report[0] = NAN
    with cython.gil:
        rule: PythonRule = cython.cast(
            PythonRule, cython.cast(cython.pointer[cython.pointer[PyObject]], params)[0]
        )
        arm = _call(rule, scores, width, arms, model.counters[UPDATES], draws[0], report)
    return arm


@cython.cfunc
@cython.exceptval(check=False)
def _call(
    rule: PythonRule,
    values: Reading,
    width: Reading,
    arms: Size,
    t: Real,
    uniform: Real,
    report: Writing,
) -> Size:
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
        widths = None if width == cython.NULL else _array(width, arms)
        chosen, stated = rule.function(_array(values, arms), widths, int(t), uniform)
        arm = chosen
        if not 0 <= arm < arms:
            raise InvalidInput(f"the rule chose arm {arm} of {arms}")
        if stated is not None:
            probability = stated
            if not 0.0 < probability <= 1.0:
                raise InvalidInput(f"the rule gave the probability {stated!r:.80}; {_CHANCE}")
            report[0] = probability
        return arm
    except BaseException as error:  # kept for whoever called from Python
        if rule.error is None:
            rule.error = error
        return -1
    finally:
        rule.inside = False


@cython.cfunc
def _array(numbers: Reading, n: Size) -> Any:
    """A copy, (n,)."""
    a: Size
    copy = np.empty(n)
    to: cython.double[::1] = copy
    for a in range(n):
        to[a] = numbers[a]
    return copy


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _estimates_and_widths(
    model: cython.pointer[Linear],
    g: Reading,
    n: Size,
    features: Reading,
    arms: Size,
    d: Size,
    per_arm: cython.bint,
    scores: Writing,
) -> Writing:
    """What a rule from outside is given: scores[a] = <g, theta x_a>, and |x_a| in the norm of
    V^-1, (arms,), or NULL without a design.
    """
    width: Writing = _arm_array(model, arms, 1)
    _turn(model, features, arms, d, per_arm)
    _scores(model, g, n, features, arms, d, per_arm, scores)
    if model.inverse == cython.NULL:
        return cython.NULL
    _widths(model, features, arms, d, per_arm, width)
    return width


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _outside(
    model: cython.pointer[Linear],
    g: Reading,
    n: Size,
    features: Reading,
    arms: Size,
    d: Size,
    per_arm: cython.bint,
    draws: Reading,
    params: Reading,
    n_params: Size,
    scores: Writing,
    report: Writing,
) -> Size:
    """A C function from outside the package, as `choose_python`; params: of an `OutsideRule`, which
    keeps what was wrong; then -1.
    """
    arm: Size
    own: cython.pointer[OutsideCall] = cython.cast(
        cython.pointer[cython.pointer[OutsideCall]], params
    )[0]
    width: Writing = _estimates_and_widths(model, g, n, features, arms, d, per_arm, scores)
    report[0] = NAN
    arm = own.function(scores, width, arms, model.counters[UPDATES], draws[0], report, own.data)
    if 0 <= arm < arms and (report[0] != report[0] or 0.0 < report[0] <= 1.0):
        return arm
    own.arm, own.arms, own.probability = arm, arms, report[0]
    own.failed = True
    return -1


# --- looks at all arms ----------------------------------------------------------------------------


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _compare(
    model: cython.pointer[Linear],
    slope: Reading,
    g: Reading,
    n: Size,
    features: Reading,
    arms: Size,
    d: Size,
    per_arm: cython.bint,
    arm: Size,
    values: Writing,
    out: Writing,
) -> Real:
    """The estimates of <slope, r> as values, of which the largest is returned; the second and the
    third number of a look, and 0 for the others; after `_turn`. values (arms,), out (4,).
    """
    greedy: Size
    best: Real
    _scores(model, g, n, features, arms, d, per_arm, values)
    greedy = argmax(values, arms)
    _scores(model, slope, n, features, arms, d, per_arm, values)
    best = values[argmax(values, arms)]
    out[0] = 0.0
    out[3] = 0.0
    out[1] = best - values[arm]
    out[2] = best - larger(values[arm], values[greedy])
    return best


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _look(
    model: cython.pointer[Linear],
    slope: Reading,
    g: Reading,
    n: Size,
    features: Reading,
    arms: Size,
    d: Size,
    per_arm: cython.bint,
    arm: Size,
    doubt: Reading,
    n_doubt: Size,
    out: Writing,
) -> cython.void:
    """In a shared model without an inverse of the design; doubt is not read."""
    _turn(model, features, arms, d, per_arm)
    _compare(model, slope, g, n, features, arms, d, per_arm, arm, _arm_array(model, arms, 3), out)


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _hardly_tried(width: Real) -> cython.bint:
    """An arm of width w is known as well as one that was tried 1/w^2 times: fewer than 100."""
    return width * width * 100.0 > 1.0


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _look_optimistic(
    model: cython.pointer[Linear],
    slope: Reading,
    g: Reading,
    n: Size,
    features: Reading,
    arms: Size,
    d: Size,
    per_arm: cython.bint,
    arm: Size,
    doubt: Reading,
    n_doubt: Size,
    out: Writing,
) -> cython.void:
    """In a shared model. doubt: lows; highs; the params of `_add_bonus`, if any.

    What an arm that was hardly tried may be worth is two standard errors above its estimate,
    besides what one more reward may add: 95 %. With more, every arm that LinUCB has given up would
    count.
    """
    a: Size
    i: Size
    hardly: Size = 0
    width: Writing = _arm_array(model, arms, 1)
    value: Writing = _arm_array(model, arms, 2)
    values: Writing = _arm_array(model, arms, 3)
    most: Writing = _arm_array(model, arms, 4)
    best: Real
    _turn(model, features, arms, d, per_arm)
    best = _compare(model, slope, g, n, features, arms, d, per_arm, arm, values, out)
    _widths(model, features, arms, d, per_arm, width)
    if n_doubt > 2 * n:
        _add_bonus(model, slope, n, doubt + 2 * n, width, values, arms)
        out[0] = values[argmax(values, arms)]
    for a in range(arms):
        hardly += _hardly_tried(width[a])
        most[a] = 0.0
    if hardly == 0:
        return
    for i in range(n):
        _estimate(model, i, n, features, arms, d, per_arm, value)
        _add_at_most(slope[i], value, doubt[i], doubt[n + i], width, most, arms)
    for a in range(arms):
        if _hardly_tried(width[a]):
            out[3] = larger(out[3], most[a] - best)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _add_at_most(
    slope: Real, value: In, low: Real, high: Real, width: In, out: Out, arms: Size
) -> cython.void:
    """out[a] += the most that slope times a reward may be, its estimate projected on its range.

    value, width, out (arms,).
    """
    a: Size
    estimate: Real
    bonus: Real
    end: Real = low if slope < 0.0 else high
    for a in range(arms):
        estimate = between(value[a], low, high)
        bonus = pointwise_bonus(estimate, low, high, high - low, width[a], 2.0)
        out[a] += slope * estimate + smaller(fabs(slope) * bonus, slope * (end - estimate))


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _look_extended(
    model: cython.pointer[Linear],
    slope: Reading,
    g: Reading,
    n: Size,
    features: Reading,
    arms: Size,
    d: Size,
    per_arm: cython.bint,
    arm: Size,
    doubt: Reading,
    n_doubt: Size,
    out: Writing,
) -> cython.void:
    """In an extended model, never per arm. doubt: lows; highs; the params of `_add_extended_bonus`,
    if any.
    """
    a: Size
    width: Writing = _arm_array(model, arms, 1)
    values: Writing = _arm_array(model, arms, 3)
    bottom: Real = _bottom(slope, doubt, doubt + n, n)
    top: Real = _top(slope, doubt, doubt + n, n)
    best: Real
    bonus: Real
    _turn(model, features, arms, d, False)
    best = _compare(model, slope, g, n, features, arms, d, False, arm, values, out)
    _extended_widths(model, slope, n, arms, d, width)
    for a in range(arms):
        if _hardly_tried(width[a]) and top > bottom:
            bonus = pointwise_bonus(values[a], bottom, top, top - bottom, width[a], 2.0)
            out[3] = larger(out[3], smaller(values[a] + bonus, top) - best)
    if n_doubt > 2 * n:
        _add_extended_bonus(model, slope, n, d, doubt + 2 * n, width, values, arms)
        out[0] = values[argmax(values, arms)]


# --- what is learnt, and by name ------------------------------------------------------------------


def extended_lesson(
    direction: In, x: In, reward: In, wide: Out, scalar: Out, n: Size, d: Size
) -> cython.void:
    """What an extended model learns of an arm: wide = g (x) x, and scalar[0] = <g, r>.

    direction, reward (n,), x (d,), wide (n d,), scalar (1,).
    """
    i: Size
    j: Size
    total: Real = 0.0
    for i in range(n):
        total += direction[i] * reward[i]
        for j in range(d):
            wide[i * d + j] = direction[i] * x[j]
    scalar[0] = total


def choose_by_name(name: str) -> Choose:
    """A rule: linucb, linucb_extended, squarecb, squarecb_theorem, epsilon_greedy, thompson,
    uniform, fixed, python, outside.
    """
    if name == "linucb":
        return _linucb
    if name == "linucb_extended":
        return _linucb_extended
    if name == "squarecb":
        return _squarecb
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
        return choose_python
    if name == "outside":
        return _outside
    raise ValueError(f"there is no rule {name!r}")


def look_by_name(name: str) -> Look:
    """A look: plain (no inverse of the design), optimistic (a shared model), extended."""
    if name == "plain":
        return _look
    if name == "optimistic":
        return _look_optimistic
    if name == "extended":
        return _look_extended
    raise ValueError(f"there is no look {name!r}")


# --- from Python ----------------------------------------------------------------------------------


SIGNATURE = (
    "Py_ssize_t (const double *values, const double *widths, Py_ssize_t n_arms, double t, "
    "double uniform, double *probability, void *user_data)"
)
"""Of a rule in C: it returns the arm. widths is NULL without a design; probability is NaN, for
unknown, unless it is set; t: how many rewards were learnt."""

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
    at: cython.double[::1] = params
    cython.cast(cython.pointer[uintptr_t], cython.address(at[0]))[0] = where
    return params


def _needs(name: str, n: int, size: int, pointwise: bool) -> tuple[int, int]:
    """How many draws and params a rule reads, n rewards; size: numbers of Thompson's draw."""
    return {
        "linucb": (0, 2 + (4 if pointwise else 2) * n),
        "linucb_extended": (0, 4 + (2 * n if pointwise else 0)),
        "squarecb": (1, 1),
        "squarecb_theorem": (1, 9 + 2 * n),
        "epsilon_greedy": (1, 1),
        "thompson": (size, n),
        "uniform": (1, 0),
        "fixed": (0, 1),
        "python": (1, 1),
        "outside": (1, 1),
    }[name]


def _check(
    model: Regression,
    n: Size,
    rows: Size,
    d: Size,
    per_arm: cython.bint,
    extended: cython.bint,
    design: cython.bint,
) -> None:
    """Raise where a rule or a look would read what is not there."""
    if design and model.own.inverse == cython.NULL:
        raise ValueError("online gradients have no confidence widths")
    fits: cython.bint = model.own.rewards == n and model.own.d == d
    if extended:
        fits = model.own.rewards == 1 and model.own.d == n * d and model.own.blocks == 1
        fits = fits and not per_arm
    if not fits or n < 1 or d < 1 or rows < 1 or (per_arm and rows != 1):
        raise ValueError(
            f"{n} rewards and features of shape {(rows, d)} do not fit theta of shape "
            f"{(model.own.blocks, model.own.rewards, model.own.d)}"
        )
    if not per_arm and model.own.blocks != 1:
        raise ValueError("a model with blocks needs per_arm")


def choose(
    name: str,
    model: Regression,
    direction: cython.const[cython.double][::1],  # type: ignore[valid-type]
    features: cython.const[cython.double][:, ::1],  # type: ignore[valid-type]
    per_arm: cython.bint = False,
    draws: cython.const[cython.double][::1] = None,  # type: ignore[valid-type]
    params: cython.const[cython.double][::1] = None,  # type: ignore[valid-type]
) -> tuple[int, float, Any]:
    """The arm (-1: the state is useless), its probability (NaN: unknown) and the scores (arms,).

    name: of a rule, see `choose_by_name`; direction (n,), features (arms, d), or (1, d) if per_arm;
    draws, params: of the rule.
    """
    rule: Choose = choose_by_name(name)
    own: cython.pointer[Linear] = cython.address(model.own)
    n: Size = direction.shape[0]
    d: Size = features.shape[1]
    arms: Size = own.blocks if per_arm else features.shape[0]
    extended: bool = name == "linucb_extended"
    n_draws: Size = 0 if draws is None else draws.shape[0]
    n_params: Size = 0 if params is None else params.shape[0]
    design: bool = name in ("linucb", "linucb_extended", "thompson")
    _check(model, n, features.shape[0], d, per_arm, extended, design)
    pointwise: bool = n_params > 0 and params[0] < 0.0
    needs = _needs(name, n, own.blocks * d, pointwise)
    if n_draws < needs[0] or n_params < needs[1]:
        raise ValueError(
            f"{n_draws} draws and {n_params} params were given; {name} with {n} rewards reads "
            f"{needs[0]} and {needs[1]}"
        )
    scores = np.empty(arms)
    to: cython.double[::1] = scores
    report: Real = 0.0
    arm: Size
    drawn: Reading = cython.address(draws[0]) if n_draws > 0 else cython.NULL
    given: Reading = cython.address(params[0]) if n_params > 0 else cython.NULL
    model.make_room(arms)
    with cython.nogil:
        arm = rule(
            own,
            cython.address(direction[0]),
            n,
            cython.address(features[0, 0]),
            arms,
            d,
            per_arm,
            drawn,
            given,
            n_params,
            cython.address(to[0]),
            cython.address(report),
        )
    return arm, report, scores


def look(
    name: str,
    model: Regression,
    slope: cython.const[cython.double][::1],  # type: ignore[valid-type]
    direction: cython.const[cython.double][::1],  # type: ignore[valid-type]
    features: cython.const[cython.double][:, ::1],  # type: ignore[valid-type]
    per_arm: cython.bint,
    arm: Size,
    doubt: cython.const[cython.double][::1],  # type: ignore[valid-type]
) -> Any:
    """The four numbers of a look, see `Look` in rules.pxd.

    name: of a look; slope, direction (n,), features (arms, d), or (1, d) if per_arm, arm: the
    chosen one, doubt: lows; highs; params of the confidence widths, if any.
    """
    function: Look = look_by_name(name)
    own: cython.pointer[Linear] = cython.address(model.own)
    n: Size = direction.shape[0]
    d: Size = features.shape[1]
    arms: Size = own.blocks if per_arm else features.shape[0]
    n_doubt: Size = doubt.shape[0]
    _check(model, n, features.shape[0], d, per_arm, name == "extended", name != "plain")
    wanted: Size = 0 if name == "plain" else 2 * n
    if n_doubt > 2 * n and name == "optimistic":
        wanted = 4 * n + 2
    if n_doubt > 2 * n and name == "extended":
        wanted = 2 * n + 4 + (2 * n if doubt[2 * n] < 0.0 else 0)
    if slope.shape[0] != n or n_doubt < wanted or not 0 <= arm < arms:
        raise ValueError(
            f"the slope has {slope.shape[0]} numbers, the doubt {n_doubt}, the arm is {arm}; the "
            f"model has {n} rewards, the look reads {wanted} numbers of doubt, of {arms} arms"
        )
    out = np.empty(4)
    to: cython.double[::1] = out
    numbers: Reading = cython.address(doubt[0]) if n_doubt > 0 else cython.NULL
    model.make_room(arms)
    with cython.nogil:
        function(
            own,
            cython.address(slope[0]),
            cython.address(direction[0]),
            n,
            cython.address(features[0, 0]),
            arms,
            d,
            per_arm,
            arm,
            numbers,
            n_doubt,
            cython.address(to[0]),
        )
    return out


def lesson(
    direction: cython.const[cython.double][::1],  # type: ignore[valid-type]
    x: cython.const[cython.double][::1],  # type: ignore[valid-type]
    reward: cython.const[cython.double][::1],  # type: ignore[valid-type]
) -> tuple[Any, Any]:
    """What an extended model learns of an arm: g (x) x, (n d,), and <g, r>, (1,)."""
    n: Size = direction.shape[0]
    d: Size = x.shape[0]
    if reward.shape[0] != n or n < 1 or d < 1:
        raise ValueError(f"the reward has {reward.shape[0]} numbers, the direction {n}, x {d}")
    wide, scalar = np.empty(n * d), np.empty(1)
    to: cython.double[::1] = wide
    at: cython.double[::1] = scalar
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
