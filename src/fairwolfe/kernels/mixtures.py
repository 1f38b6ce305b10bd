# cython: language_level=3, infer_types=True
"""Ascents over mixtures: of the vertices of a set, of the arms of a context, of rewards so far."""

from __future__ import annotations

import cython
import numpy as np

if not cython.compiled:
    raise ImportError("the kernels are not built; run `make build`")

__all__ = ["ascend_arms", "correct", "frank_wolfe", "nearest_mixture"]


def project_on_simplex(weights, spare, n):
    """The nearest point of {w >= 0, sum w = 1}, in place. weights, spare (n,).

    It is max(w - shift, 0). The shift that makes any part of the numbers sum to 1 is never too
    large: so one pass gathers a first shift, and those after it drop what the shift makes negative
    and find the next one from the rest, until nothing is dropped. Numbers are relative to
    the largest, which always stays, so the sums do not cancel.
    """
    best: Size = argmax(weights, n)
    top: Real = weights[best]
    count: Real = 1.0
    shift: Real = -1.0
    left: Size = n
    for a in range(n):
        here = weights[a] - top
        spare[a] = here
        if here > shift and a != best:
            count += 1.0
            shift += (here - shift) / count
    while True:
        total = 0.0
        kept = 0
        for a in range(left):
            here = spare[a]
            if here > shift:
                spare[kept] = here
                kept += 1
                total += here
        better = (total - 1.0) / kept
        if better <= shift:
            break
        left = kept
        shift = better
    for a in range(n):
        weights[a] = max(weights[a] - top - shift, 0.0)


def _slopes(tree, vertices, shift, weights, y, g, out, n, size):
    """<g, vertex> for each vertex, with g the gradient at the weighted mean of the vertices.

    vertices (n, size), shift, y, g (size,), weights, out (n,).
    """
    for i in range(size):
        y[i] = -shift[i]
    for a in range(n):
        if weights[a] != 0.0:
            for i in range(size):
                y[i] += weights[a] * vertices[a * size + i]
    tree.own.call(cython.address(tree.own), y, 1.0, g)
    for a in range(n):
        total = 0.0
        for i in range(size):
            total += g[i] * vertices[a * size + i]
        out[a] = total


def _correct(tree, vertices, shift, weights, bend, goal, limit, room, n, size):
    """See `correct`. room (5 n + 2 size,)."""
    here: Out = room
    ahead: Out = room + n
    spare: Out = room + 2 * n
    at_ahead: Out = room + 3 * n
    at_next: Out = room + 4 * n
    y: Out = room + 5 * n
    g: Out = room + 5 * n + size
    momentum: Real = 1.0
    for a in range(n):
        here[a] = weights[a]
        ahead[a] = weights[a]
    for count in range(limit):
        _slopes(tree, vertices, shift, ahead, y, g, at_ahead, n, size)
        while True:
            for a in range(n):
                weights[a] = ahead[a] + at_ahead[a] / bend[0]
            project_on_simplex(weights, spare, n)
            _slopes(tree, vertices, shift, weights, y, g, at_next, n, size)
            turned = 0.0
            moved = 0.0
            for a in range(n):
                step = weights[a] - ahead[a]
                turned += (at_ahead[a] - at_next[a]) * step
                moved += step * step
            if not (turned > 0.5 * bend[0] * moved and moved >= 1e-30):  # also where it is a NaN
                break
            bend[0] *= 2.0
        if tree.has_failed():
            return count + 1
        best = -INFINITY
        mean = 0.0
        forward = 0.0
        for a in range(n):
            best = max(best, at_next[a])
            mean += weights[a] * at_next[a]
            forward += at_ahead[a] * (weights[a] - here[a])
        if best - mean <= goal:
            return count + 1
        following = 0.5 * (1.0 + sqrt(1.0 + 4.0 * momentum * momentum))
        if forward < 0.0:
            momentum = 1.0
            following = 1.0
        for a in range(n):
            ahead[a] = weights[a] + (momentum - 1.0) / following * (weights[a] - here[a])
            here[a] = weights[a]
        momentum = following
        bend[0] *= 0.95
    return limit


def _mean_of_arms(weights, theta, features, per_arm, spare, out, arms, n, d):
    """out = sum_a weights_a theta x_a, the estimated rewards of a mixture of the arms.

    After a projection most weights are 0, so arms are skipped rather than multiplied.
    weights (arms,), theta (1 or arms, n, d), features (arms or 1, d), spare (max(n, d),), out (n,).
    """
    if per_arm:
        fill(0.0, out, n)
        for a in range(arms):
            if weights[a] > 0.0:
                row_products(theta + a * n * d, features, spare, n, d)
                add_scaled(weights[a], spare, out, n)
    else:
        fill(0.0, spare, d)
        for a in range(arms):
            if weights[a] > 0.0:
                add_scaled(weights[a], features + a * d, spare, d)
        row_products(theta, spare, out, n, d)


def ascend(tree, theta, features, per_arm, steps, rate, weights, room, arms, n, d):
    """Ascend f(M w) over mixtures w of the arms, M their estimated rewards; see `ascend_arms`.

    theta (1 or arms, n, d), features (arms or 1, d), weights (arms,), room: `ascent_room` doubles.
    """
    spare: cython.p_double = room + arms
    combined: cython.p_double = spare + max(n, d)
    point: cython.p_double = combined + d
    g: cython.p_double = point + n
    fill(1.0 / arms, weights, arms)
    for i in range(steps):
        _mean_of_arms(weights, theta, features, per_arm, spare, point, arms, n, d)
        tree.own.call(cython.address(tree.own), point, 0.0, g)
        if tree.has_failed():
            return
        if per_arm:
            for a in range(arms):
                combine_rows(g, theta + a * n * d, combined, n, d)
                row_products(features, combined, room + a, 1, d)
        else:
            combine_rows(g, theta, combined, n, d)
            row_products(features, combined, room, arms, d)
        for a in range(arms):
            weights[a] = fma(rate, room[a], weights[a])
        project_on_simplex(weights, room, arms)


# --- for Python -----------------------------------------------------------------------------------


def nearest_mixture(weights: OutVector) -> None:
    """The nearest point of {w >= 0, sum w = 1}, in place. weights (n,). A few passes over them."""
    n: Size = weights.shape[0]
    if n == 0:
        raise ValueError("there is no mixture of nothing")
    spare: OutVector = np.empty(n)
    project_on_simplex(cython.address(weights[0]), cython.address(spare[0]), n)


def correct(
    tree: Tree,
    vertices: Matrix,
    shift: Vector,
    weights: OutVector,
    bend: OutVector,
    goal: cython.double,
    limit: Size,
) -> int:
    """Ascend F(weights' vertices - shift) over the simplex until no vertex promises > goal; the
    number of steps, at most `limit`. tree: the gradient of F, for step 1.

    Accelerated projected gradient with restarts. By concavity the gradients at both ends of a step
    prove enough ascent, so that no value is needed to find the curvature, kept in bend[0].

    vertices (n, size), shift (size,), weights (n,), bend (1,). A step costs two gradients and
    4 n size operations, or more where the curvature grows. Raises what a Python leaf raised.
    """
    n: Size = vertices.shape[0]
    size: Size = vertices.shape[1]
    if not (n > 0 and shift.shape[0] == size and weights.shape[0] == n and bend.shape[0] == 1):
        raise ValueError(
            f"vertices ({n}, {size}), shift ({shift.shape[0]},), weights ({weights.shape[0]},), "
            f"bend ({bend.shape[0]},)"
        )
    room: OutVector = np.empty(5 * n + 2 * size)
    tree.acquire(size)
    with cython.nogil:
        steps = _correct(
            tree,
            cython.address(vertices[0, 0]),
            cython.address(shift[0]),
            cython.address(weights[0]),
            cython.address(bend[0]),
            goal,
            limit,
            cython.address(room[0]),
            n,
            size,
        )
    tree.release()
    return steps


def ascend_arms(
    tree: Tree,
    theta: Tensor,
    features: Matrix,
    per_arm: cython.bint,
    steps: Size,
    rate: cython.double,
    out: OutVector,
) -> int:
    """Ascend f(M w) over mixtures w of the arms, M their estimated rewards: the largest's arm.

    The mixture starts uniform, takes `steps` supergradient steps of size `rate`, and is projected
    on the simplex after each. tree: the gradient of f, for step 0.

    theta (1 or arms, n, d), features (arms or 1, d), out (arms,): the mixture. A step costs
    (n + arms) d, per arm arms n d. Raises what a Python leaf raised.
    """
    arms: Size = out.shape[0]
    n: Size = theta.shape[1]
    d: Size = theta.shape[2]
    blocks: Size = arms if per_arm else 1
    rows: Size = 1 if per_arm else arms
    if not (arms > 0 and n > 0 and d > 0 and theta.shape[0] >= blocks):
        raise ValueError(f"theta ({theta.shape[0]}, {n}, {d}) for {arms} arms")
    if features.shape[0] != rows or features.shape[1] != d:
        raise ValueError(f"features ({features.shape[0]}, {features.shape[1]}), not ({rows}, {d})")
    room: OutVector = np.empty(ascent_room(arms, n, d))
    tree.acquire(n)
    own: In = cython.address(theta[0, 0, 0])
    x: In = cython.address(features[0, 0])
    weights: Out = cython.address(out[0])
    with cython.nogil:
        ascend(tree, own, x, per_arm, steps, rate, weights, cython.address(room[0]), arms, n, d)
    tree.release()
    return argmax(weights, arms)


def frank_wolfe(tree: Tree, width: cython.double, vertices: Matrix, path: OutMatrix) -> None:
    """Fill path[1:] from path[0]: each step averages the vertex that is best for the direction.

    The direction at an average of t rewards is the gradient of f smoothed by width/sqrt(t + 1);
    the next reward enters the average with weight 1/(t + 1). path[0] counts as one reward.

    vertices (vertices, n), path (steps + 1, n). A step costs a gradient and n vertices operations.
    """
    n: Size = path.shape[1]
    score: Real
    highest: Real
    if n == 0 or path.shape[0] == 0 or vertices.shape[1] != n or vertices.shape[0] == 0:
        raise ValueError(f"a path of {n} numbers, among vertices of {vertices.shape[1]}")
    room: OutVector = np.empty(n)
    g: cython.p_double = cython.address(room[0])
    tree.acquire(n)
    with cython.nogil:
        for t in range(1, path.shape[0]):
            step = width / sqrt(t + 1.0)
            tree.own.call(cython.address(tree.own), cython.address(path[t - 1, 0]), step, g)
            if tree.has_failed():
                break
            best = 0
            highest = -INFINITY
            for v in range(vertices.shape[0]):
                score = 0.0
                for i in range(n):
                    score += g[i] * vertices[v, i]
                if score > highest:
                    best = v
                    highest = score
            for i in range(n):
                path[t, i] = path[t - 1, i] + (vertices[best, i] - path[t - 1, i]) / (t + 1.0)
    tree.release()
