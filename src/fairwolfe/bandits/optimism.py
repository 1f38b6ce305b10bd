"""Optimism: confidence widths on top of estimates, and what they say beyond the choice."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from fairwolfe.core.arrays import Cube, Matrix, Vector
from fairwolfe.core.problem import Problem, number_where
from fairwolfe.kernels.compile import fma, function_at, kernel
from fairwolfe.kernels.linalg import LOG_DET, UPDATES, combine_rows, predict, scores, widths
from fairwolfe.kernels.selection import argmax
from fairwolfe.oracles.linear_state import noise_scales, parameter_norms, radius

__all__ = [
    "LOOK",
    "Exploration",
    "add_bonus",
    "add_extended_bonus",
    "add_pointwise_bonus",
    "call_look",
    "exploration_number",
    "extended_outlook",
    "optimistic_outlook",
    "outlook",
    "pointwise_bonus",
    "pointwise_radius",
    "shared_doubt",
]

Exploration = float | Literal["pointwise"]
"""How much of the theory's bonus is added, or the name of the bonus that replaces it."""

TRIES = 100.0
"""An arm of width w is known as well as one that was tried 1/w^2 times. Below this many it was
hardly tried: live numbers allow for what it may be worth."""

ERRORS = 2.0
"""How many standard errors above its estimate that may be, besides what one more reward may add
(Bernstein's second term): 95 %. With more, every arm that LinUCB has given up would count."""

_POINTWISE = -1.0  # in the place of the exploration in params, where numbers are 0 or more


def exploration_number(exploration: Any) -> float:
    """What params have for an exploration: itself, or -1 for "pointwise"."""
    if isinstance(exploration, str) and exploration == "pointwise":
        return _POINTWISE
    allowed = "a number of at least 0, or 'pointwise'"
    return number_where("exploration", exploration, lambda number: number >= 0.0, allowed)


def shared_doubt(problem: Problem, ridge: float, delta: float, exploration: float = 1.0) -> Vector:
    """The params of `add_bonus`: exploration, 2 ln(1/delta_1); R_i; sqrt(ridge) D_theta_i.

    With exploration 1 the scores are upper bounds with probability 1 - delta, at all times.
    """
    head = [exploration, 2.0 * math.log(2.0 * problem.n_objectives / delta)]
    prior = math.sqrt(ridge) * parameter_norms(problem)
    return np.concatenate([head, noise_scales(problem), prior])


@kernel
def add_bonus(
    direction: Vector,
    inverse: Cube,
    counters: Vector,
    features: Matrix,
    per_arm: bool,
    params: Vector,
    out: Vector,
    width: Vector,
) -> None:
    """out[a] += (sum_i |g_i| alpha_i) width[a], width[a] = |x_a|_{V^-1}.

    direction (rewards,), inverse (blocks, features, features), counters (5,),
    features (arms or 1, features), params (2 + 2 rewards or more,), out, width (arms,).
    """
    n = direction.size
    noise, prior = params[2 : 2 + n], params[2 + n : 2 + 2 * n]
    bonus = 0.0  # (sum_i |g_i| alpha_i): optimistic for either sign of g
    for i in range(n):
        bonus += abs(direction[i]) * radius(noise[i], prior[i], params[1], counters[LOG_DET])
    bonus *= params[0]
    widths(inverse, features, per_arm, width)
    for a in range(out.size):
        out[a] += bonus * width[a]


@kernel
def pointwise_radius(n: Any, learnt: Any) -> Any:
    """.5 sqrt(2 ln(1 + n sqrt t)), t = 1 + learnt: how many standard deviations are added.

    n: parameters of a reward; learnt: observations so far. A Gaussian exceeds sqrt(2 ln(n sqrt t))
    standard deviations with a chance below 1/(n sqrt t): summed over n parameters and T rounds that
    is 2 sqrt(T), the order of the regret. Arms with a parameter each are n of them; the number of
    arms or candidates itself would let a new one reorder the others. The half is measured, see
    docs/which-bandit.md.
    """
    return 0.5 * np.sqrt(2.0 * np.log(1.0 + n * np.sqrt(learnt + 1.0)))


@kernel
def pointwise_bonus(value: Any, low: Any, high: Any, noise: Any, width: Any, radius: Any) -> Any:
    """radius w sd + h (high - low), h = w^2/(1 + w^2), w the width: Bernstein's two terms.

    sd is the standard deviation of a reward with mean `value`: (high - low) sqrt(p (1 - p)), the
    most that it can be in its range (Bhatia and Davis), and at most `noise`. p is the place of the
    value in the range, kept h away from both ends: h is how far one more observation there moves an
    estimate of 0 if it is 1. The second term is that too: what was hardly seen is not known to be
    as small as a ridge regression makes it. So the bonus is positive and grows with the width.
    """
    size, reach = high - low, width * width / (1.0 + width * width)
    least = min(reach, 0.5)
    p = min(max((value - low) / size, least), 1.0 - least)
    return radius * width * min(size * np.sqrt(p * (1.0 - p)), noise) + reach * size


@kernel
def add_pointwise_bonus(
    direction: Vector,
    theta: Cube,
    inverse: Cube,
    counters: Vector,
    features: Matrix,
    per_arm: bool,
    params: Vector,
    out: Vector,
    width: Vector,
) -> None:
    """out[a] += sum_i |g_i| pointwise_bonus_ia, width[a] = |x_a|_{V^-1}: no union over directions,
    and what a reward can vary at its estimate.

    direction (rewards,), theta (blocks, rewards, features), inverse (blocks, features, features),
    counters (5,), features (arms or 1, features), params: of `linucb`, out, width (arms,).
    """
    n = direction.size
    noise, low, high = params[2 : 2 + n], params[2 + 2 * n : 2 + 3 * n], params[2 + 3 * n :]
    estimates = np.empty(n)
    wide = pointwise_radius(-params[0], counters[UPDATES])
    widths(inverse, features, per_arm, width)
    for a in range(out.size):
        predict(theta, features, per_arm, a, low, high, estimates)
        total = 0.0
        for i in range(n):
            bonus = pointwise_bonus(estimates[i], low[i], high[i], noise[i], width[a], wide)
            total += abs(direction[i]) * bonus
        out[a] += total


@kernel
def extent(direction: Vector, low: Vector, high: Vector) -> Any:
    """The least and the largest <g, r> for rewards in their ranges. direction, low, high (n,)."""
    bottom, top = 0.0, 0.0
    for i in range(direction.size):
        ends = direction[i] * low[i], direction[i] * high[i]
        bottom += min(ends[0], ends[1])
        top += max(ends[0], ends[1])
    return bottom, top


@kernel
def extended_widths(direction: Vector, inverse: Cube, features: Matrix, out: Vector) -> None:
    """out[a] = |g (x) x_a| in the norm of the inverse design.

    That is |x_a| in the norm of (g (x) I)' V^-1 (g (x) I): one contraction to d x d, then the
    widths cost K d^2. With e = rewards features: direction (rewards,), inverse (1, e, e), features
    (arms, features), out (arms,).
    """
    n, d = direction.size, features.shape[1]
    contracted = np.empty((1, d, d))
    rows = np.empty((d, n * d))
    combine_rows(direction, inverse[0].reshape((n, d * n * d)), rows.reshape(d * n * d))
    for j in range(d):
        for k in range(d):
            contracted[0, j, k] = 0.0
        for i in range(n):
            for k in range(d):
                contracted[0, j, k] = fma(direction[i], rows[j, i * d + k], contracted[0, j, k])
    widths(contracted, features, False, out)


@kernel
def add_extended_bonus(
    direction: Vector,
    inverse: Cube,
    counters: Vector,
    features: Matrix,
    params: Vector,
    out: Vector,
) -> None:
    """The same on g (x) x; params: of `linucb_extended`, its ranges only where pointwise.

    With e = rewards features: direction (rewards,), inverse (1, e, e), counters (5,),
    features (arms, features), params (4 or more,), out (arms,): estimates, then with the bonus.
    """
    n, d = direction.size, features.shape[1]
    width = np.empty(out.size)
    extended_widths(direction, inverse, features, width)
    if params[0] >= 0.0:
        bonus = params[0] * radius(params[2], params[3], params[1], counters[LOG_DET])
        for a in range(out.size):
            out[a] += bonus * width[a]
        return
    bottom, top = extent(direction, params[4 : 4 + n], params[4 + n : 4 + 2 * n])
    wide = pointwise_radius(n * d, counters[UPDATES])
    for a in range(out.size):
        if top > bottom:
            out[a] += pointwise_bonus(out[a], bottom, top, params[2], width[a], wide)


LOOK = (
    "void(float64[::1], float64[::1], float64[:, :, ::1], float64[:, :, ::1], float64[::1], "
    "float64[:, ::1], boolean, int64, float64[::1], float64[::1])"
)
"""(slope, direction, theta, inverse, counters, features, per_arm, arm, doubt, out (4,)): of
<slope, r>, the largest optimistic score (0 without confidence widths); by how much the estimate of
the arm, and that of the better of the arm and of the estimated best for the direction, are below
the largest estimate; and by how much an arm that was hardly tried may be above it. doubt: the
lowest and the highest value of every reward, then the params of the confidence widths, if any."""

call_look = function_at(LOOK)


@kernel(signature=LOOK)
def outlook(
    slope: Vector,
    direction: Vector,
    theta: Cube,
    inverse: Cube,
    counters: Vector,
    features: Matrix,
    per_arm: bool,
    arm: int,
    doubt: Vector,
    out: Vector,
) -> None:
    """In a shared model without an inverse of the design.

    slope, direction (rewards,), theta (blocks, rewards, features), features (arms or 1, features),
    out (4,). inverse, counters, doubt: not used.
    """
    values = np.empty(theta.shape[0] if per_arm else features.shape[0])
    _compare(slope, direction, theta, features, per_arm, arm, values, out)


@kernel(signature=LOOK)
def optimistic_outlook(
    slope: Vector,
    direction: Vector,
    theta: Cube,
    inverse: Cube,
    counters: Vector,
    features: Matrix,
    per_arm: bool,
    arm: int,
    doubt: Vector,
    out: Vector,
) -> None:
    """In a shared model.

    slope, direction (rewards,), theta (blocks, rewards, features),
    inverse (blocks, features, features), counters (5,), features (arms or 1, features),
    doubt (2 rewards, or 2 + 4 rewards,), out (4,).
    """
    n = slope.size
    values = np.empty(theta.shape[0] if per_arm else features.shape[0])
    width = np.empty(values.size)
    _compare(slope, direction, theta, features, per_arm, arm, values, out)
    best = values[argmax(values)]
    if doubt.size > 2 * n:
        params = doubt[2 * n :]
        add_bonus(slope, inverse, counters, features, per_arm, params, values, width)
        out[0] = values[argmax(values)]
    else:
        widths(inverse, features, per_arm, width)
    low, high, estimates = doubt[:n], doubt[n : 2 * n], np.empty(n)
    for a in range(values.size):
        if width[a] * width[a] * TRIES > 1.0:
            predict(theta, features, per_arm, a, low, high, estimates)
            most = 0.0
            for i in range(n):
                size, end = high[i] - low[i], low[i] if slope[i] < 0.0 else high[i]
                bonus = pointwise_bonus(estimates[i], low[i], high[i], size, width[a], ERRORS)
                most += slope[i] * estimates[i] + min(
                    abs(slope[i]) * bonus, slope[i] * (end - estimates[i])
                )
            out[3] = max(out[3], most - best)


@kernel(signature=LOOK)
def extended_outlook(
    slope: Vector,
    direction: Vector,
    theta: Cube,
    inverse: Cube,
    counters: Vector,
    features: Matrix,
    per_arm: bool,
    arm: int,
    doubt: Vector,
    out: Vector,
) -> None:
    """In an extended model.

    With e = rewards features: slope, direction (rewards,), theta (1, 1, e), inverse (1, e, e),
    counters (5,), features (arms, features), doubt (2 rewards, or 2 rewards + 4,), out (4,).
    """
    n = slope.size
    values, width = np.empty(features.shape[0]), np.empty(features.shape[0])
    estimates = theta[0, 0].reshape((1, direction.size, features.shape[1]))
    _compare(slope, direction, estimates, features, False, arm, values, out)
    best = values[argmax(values)]
    extended_widths(slope, inverse, features, width)
    bottom, top = extent(slope, doubt[:n], doubt[n : 2 * n])
    for a in range(values.size):
        if width[a] * width[a] * TRIES > 1.0 and top > bottom:
            bonus = pointwise_bonus(values[a], bottom, top, top - bottom, width[a], ERRORS)
            out[3] = max(out[3], min(values[a] + bonus, top) - best)
    if doubt.size > 2 * n:
        add_extended_bonus(slope, inverse, counters, features, doubt[2 * n :], values)
        out[0] = values[argmax(values)]


@kernel
def _compare(
    slope: Vector,
    direction: Vector,
    theta: Cube,
    features: Matrix,
    per_arm: bool,
    arm: int,
    values: Vector,
    out: Vector,
) -> None:
    """The estimates of <slope, r> as values, the second and the third number of an outlook, and 0
    for the others.

    slope, direction (rewards,), theta (blocks, rewards, features), features (arms or 1, features),
    values (arms,), out (4,).
    """
    scores(direction, theta, features, per_arm, values)
    greedy = argmax(values)
    scores(slope, theta, features, per_arm, values)
    best = values[argmax(values)]
    out[0], out[3] = 0.0, 0.0
    out[1] = best - values[arm]
    out[2] = best - max(values[arm], values[greedy])
