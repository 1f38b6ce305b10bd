"""Optimism: confidence widths on top of estimates, and what they say beyond the choice."""

from __future__ import annotations

import math

import numpy as np

from fairwolfe.core.arrays import Cube, Matrix, Vector
from fairwolfe.core.problem import Problem
from fairwolfe.kernels.compile import fma, function_at, kernel
from fairwolfe.kernels.linalg import LOG_DET, combine_rows, scores, widths
from fairwolfe.kernels.selection import argmax
from fairwolfe.oracles.linear_state import noise_scales, parameter_norms, radius

__all__ = [
    "LOOK",
    "add_bonus",
    "add_extended_bonus",
    "call_look",
    "extended_outlook",
    "optimistic_outlook",
    "outlook",
    "shared_doubt",
]


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
def add_extended_bonus(
    direction: Vector,
    inverse: Cube,
    counters: Vector,
    features: Matrix,
    params: Vector,
    out: Vector,
) -> None:
    """The same on g (x) x; params: exploration, 2 ln(1/delta_1), R, sqrt(ridge) D_theta.

    |g (x) x| in the norm of V^-1 is |x| in that of M = (g (x) I)' V^-1 (g (x) I): one contraction
    to d x d a round, then the widths cost K d^2.

    With e = rewards features: direction (rewards,), inverse (1, e, e), counters (5,),
    features (arms, features), params (4 or more,), out (arms,).
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
    width = np.empty(out.size)
    widths(contracted, features, False, width)
    bonus = params[0] * radius(params[2], params[3], params[1], counters[LOG_DET])
    for a in range(out.size):
        out[a] += bonus * width[a]


LOOK = (
    "void(float64[::1], float64[::1], float64[:, :, ::1], float64[:, :, ::1], float64[::1], "
    "float64[:, ::1], boolean, int64, float64[::1], float64[::1])"
)
"""(slope, direction, theta, inverse, counters, features, per_arm, arm, doubt, out (3,)): of
<slope, r>, the largest optimistic score (0 if doubt is empty), and by how much the estimate of the
arm, and that of the better of the arm and of the estimated best for the direction, are below the
largest estimate."""

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
    """In a shared model, where there is no doubt.

    slope, direction (rewards,), theta (blocks, rewards, features), features (arms or 1, features),
    out (3,). inverse, counters, doubt: not used.
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
    doubt (2 + 2 rewards,), out (3,).
    """
    values = np.empty(theta.shape[0] if per_arm else features.shape[0])
    _compare(slope, direction, theta, features, per_arm, arm, values, out)
    add_bonus(slope, inverse, counters, features, per_arm, doubt, values, np.empty(values.size))
    out[0] = values[argmax(values)]


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
    """In an extended model. The largest optimistic value is 0 where nothing is guaranteed.

    With e = rewards features: slope, direction (rewards,), theta (1, 1, e), inverse (1, e, e),
    counters (5,), features (arms, features), doubt (4 or 0,), out (3,).
    """
    values = np.empty(features.shape[0])
    estimates = theta[0, 0].reshape((1, direction.size, features.shape[1]))
    _compare(slope, direction, estimates, features, False, arm, values, out)
    if doubt.size > 0:
        add_extended_bonus(slope, inverse, counters, features, doubt, values)
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
    """The estimates of <slope, r> as values, and the second and the third number of an outlook.

    slope, direction (rewards,), theta (blocks, rewards, features), features (arms or 1, features),
    values (arms,), out (3,).
    """
    scores(direction, theta, features, per_arm, values)
    greedy = argmax(values)
    scores(slope, theta, features, per_arm, values)
    best = values[argmax(values)]
    out[0] = 0.0
    out[1] = best - values[arm]
    out[2] = best - max(values[arm], values[greedy])
