# cython: language_level=3, infer_types=True
"""Rewards of simulated worlds with arms: a function, its sizes and its numbers.

One signature for all, `Reward` and `Best` in worlds.pxd, so that one compiled loop simulates every
world, and the plain methods of the environment call the same kernels: one formula, the same bits.
"""

from __future__ import annotations

from typing import Any

import cython
import numpy as np


def _linear_reward(
    world: cython.pointer[World], at: cython.pointer[Draw], arm: Size
) -> cython.void:
    """theta x, with normal noise of a standard deviation of a tenth of it (variance 0.01 mean^2).

    params: theta (n, d). Cost: n d.
    """
    d, theta, x = world.d, world.params, at.features + arm * world.d
    for i in range(world.n):
        total = 0.0
        for j in range(d):
            total = fma(theta[i * d + j], x[j], total)
        at.mean[i] = total
        at.reward[i] = fma(0.1 * fabs(total), at.noise[i], total)


def _linear_best(world: cython.pointer[World], at: cython.pointer[Draw]) -> Size:
    """The arm of largest <theta' g, x>. params: theta (n, d). Cost: (n + arms) d."""
    combine_rows(at.g, world.params, world.work, world.n, world.d)
    row_products(at.features, world.work, at.scores, at.arms, world.d)
    return argmax(at.scores, at.arms)


def _table_reward(world: cython.pointer[World], at: cython.pointer[Draw], arm: Size) -> cython.void:
    """From a table. params: the kind of noise (0: none, 1: Bernoulli, from uniform numbers,
    2: normal), its standard deviation, then the means (contexts, arms, n).
    """
    kind = world.params[0]
    means = world.params + 2 + (at.tag * world.arms + arm) * world.n
    for i in range(world.n):
        at.mean[i] = means[i]
        if kind == 1.0:
            at.reward[i] = 1.0 if at.noise[i] < means[i] else 0.0
        elif kind == 2.0:
            at.reward[i] = fma(world.params[1], at.noise[i], means[i])
        else:
            at.reward[i] = means[i]


def _table_best(world: cython.pointer[World], at: cython.pointer[Draw]) -> Size:
    """The arm of largest <g, mean>. params: as in `_table_reward`. Cost: n arms."""
    means = world.params + 2 + at.tag * at.arms * world.n
    row_products(means, at.g, at.scores, at.arms, world.n)
    return argmax(at.scores, at.arms)


def _nonlinear_mean(world: cython.pointer[World], x: Doubles, i: Size) -> Real:
    """exp(-|x - c_i|^2/(2 width^2)), without the first feature, which is 1. x (d,).

    params: 1/(2 width^2), then the ideal points c_i by rows (n, d - 1). Cost: d.
    """
    point = world.params + 1 + i * (world.d - 1)
    square = 0.0
    for j in range(world.d - 1):
        away = x[1 + j] - point[j]
        square = fma(away, away, square)
    return exp(-world.params[0] * square)


def _nonlinear_reward(
    world: cython.pointer[World], at: cython.pointer[Draw], arm: Size
) -> cython.void:
    """1 with probability `_nonlinear_mean`, else 0, from uniform noise. Cost: n d."""
    for i in range(world.n):
        at.mean[i] = _nonlinear_mean(world, at.features + arm * world.d, i)
        at.reward[i] = 1.0 if at.noise[i] < at.mean[i] else 0.0


def _nonlinear_best(world: cython.pointer[World], at: cython.pointer[Draw]) -> Size:
    """The arm of largest <g, `_nonlinear_mean`>. Cost: arms n d."""
    for a in range(at.arms):
        total = 0.0
        for i in range(world.n):
            total = fma(at.g[i], _nonlinear_mean(world, at.features + a * world.d, i), total)
        at.scores[a] = total
    return argmax(at.scores, at.arms)


# --- Python functions -----------------------------------------------------------------------------


def _fill(name: str, numbers: Any, out: Writing, n: Size) -> cython.int:
    """out = numbers, (n,)."""
    values: Vector
    values = np.ascontiguousarray(numbers, dtype=np.float64)
    if values.shape[0] != n:
        raise ValueError(f"the {name} has {values.shape[0]} numbers, not {n}")
    for i in range(n):
        out[i] = values[i]
    return 0


def _python_reward(
    world: cython.pointer[World], at: cython.pointer[Draw], arm: Size
) -> cython.void:
    """A function in Python, whose exception the owner keeps; NaN is written then."""
    for i in range(world.n):
        at.mean[i] = NAN
        at.reward[i] = NAN
    with cython.gil:
        owner: CompiledArmWorld = cython.cast(
            CompiledArmWorld, cython.cast(cython.pointer[PyObject], world.data)
        )
        try:
            features = copy_of(at.features, (at.arms, world.d))
            noise = copy_of(at.noise, (world.n_noise,))
            owner.callbacks += 1
            means, rewards = owner.functions[0](arm, at.tag, features, noise)
            _fill("mean reward", means, at.mean, world.n)
            _fill("reward", rewards, at.reward, world.n)
        except BaseException as error:  # kept for whoever called from Python
            if owner.error is None:
                owner.error = error


def _python_best(world: cython.pointer[World], at: cython.pointer[Draw]) -> Size:
    """A function in Python, whose exception the owner keeps; arm 0 is returned then.

    The score of the best arm is <g, mean> with the mean that `reward` states; others are NaN.
    """
    arm: Size = 0
    for a in range(at.arms):
        at.scores[a] = NAN
    with cython.gil:
        owner: CompiledArmWorld = cython.cast(
            CompiledArmWorld, cython.cast(cython.pointer[PyObject], world.data)
        )
        try:
            features = copy_of(at.features, (at.arms, world.d))
            owner.callbacks += 2
            chosen = owner.functions[1](copy_of(at.g, (world.n,)), at.tag, features)
            arm = chosen
            if not 0 <= arm < at.arms:
                raise ValueError(f"the best arm is {chosen!r}; give one of {at.arms}")
            means = owner.functions[0](arm, at.tag, features, np.zeros(world.n_noise))[0]
            best: OutVector = np.array(means, dtype=np.float64)
            if best.shape[0] != world.n:
                raise ValueError(f"the mean reward has {best.shape[0]} numbers, not {world.n}")
            at.scores[arm] = 0.0
            for i in range(world.n):
                at.scores[arm] += at.g[i] * best[i]
        except BaseException as error:  # kept for whoever called from Python
            arm = 0
            if owner.error is None:
                owner.error = error
    return arm


# --- from Python ----------------------------------------------------------------------------------


@cython.cclass
class CompiledArmWorld:
    """The rewards of one world.

    kind: "linear" (params: theta (n, d)), "table" (kind of noise, standard deviation, means
    (contexts, arms, n)) or "nonlinear" (rate, ideal points (n, d - 1)), as environments state them
    in `reward_program`; n: rewards, d: features, arms: of every context.

    >>> world = CompiledArmWorld("linear", np.array([1.0, 2.0]), n=1, d=2, arms=1)
    >>> world.answer(0, 0, np.ones((1, 2)), np.zeros(1))[0].tolist()
    [3.0]
    """

    error: Any
    callbacks: cython.longlong

    def __init__(self, kind: str, params: Vector, n: Size, d: Size, arms: Size) -> None:
        own = cython.address(self.own)
        size = params.shape[0]
        wanted = size
        if n < 1 or d < 1 or arms < 1:
            raise ValueError(f"there are {n} rewards, {d} features and {arms} arms; give some")
        own.n_noise, own.tags = n, 0
        if kind == "linear":
            own.reward, own.best = _linear_reward, _linear_best
            wanted = n * d
        elif kind == "nonlinear":
            own.reward, own.best = _nonlinear_reward, _nonlinear_best
            wanted = 1 + n * (d - 1)
        elif kind == "table":
            own.reward, own.best = _table_reward, _table_best
            own.tags = max(1, (size - 2) // (n * arms))
            wanted = 2 + own.tags * n * arms
        elif kind == "python":
            own.reward, own.best = _python_reward, _python_best
        else:
            raise ValueError(f"the kind is {kind!r}; give 'linear', 'nonlinear' or 'table'")
        if size != wanted:
            raise ValueError(f"{size} params were given, not {wanted}")
        if kind == "table" and not (params[0] == 1.0 or params[0] == 2.0):
            own.n_noise = 0
        work: OutVector = np.empty(d)
        own.params, own.work = cython.address(params[0]), cython.address(work[0])
        own.n, own.d, own.arms = n, d, arms
        own.data = cython.cast(cython.p_void, self)  # borrowed: an object does not own itself
        self.kept = params, work

    @staticmethod
    def of_functions(
        reward: Any, best: Any, n: Size, d: Size, arms: Size, n_noise: Size
    ) -> CompiledArmWorld:
        """A world in Python: reward (arm, tag, features, noise) -> (mean (n,), reward (n,)), and
        best (g, tag, features) -> arm, or None. An exception of these is kept in `error`.
        """
        world: CompiledArmWorld = CompiledArmWorld("python", np.empty(0), n, d, arms)
        world.functions = reward, best
        world.own.n_noise = n_noise
        if best is None:
            world.own.best = cython.NULL
        return world

    def failure(self) -> BaseException | None:
        """The first exception since it was asked, if there was one."""
        error, self.error = self.error, None
        return error

    def answer(self, arm: Size, tag: Size, features: Matrix, noise: Vector) -> tuple[Any, Any]:
        """The mean reward of an arm and its reward with this noise, both (n,).

        features (arms, d), noise (n_noise,).
        """
        own = cython.address(self.own)
        at: Draw = self._draw(features, tag)
        if not 0 <= arm < at.arms or noise.shape[0] < own.n_noise:
            raise ValueError(
                f"the arm is {arm} of {at.arms}, and the noise has {noise.shape[0]} numbers, not "
                f"{own.n_noise}"
            )
        drawn = np.empty((2, own.n))
        to: OutMatrix = drawn
        at.noise = cython.address(noise[0])
        at.mean, at.reward = cython.address(to[0, 0]), cython.address(to[1, 0])
        own.reward(own, cython.address(at), arm)
        self._raise()
        return drawn[0], drawn[1]

    def best_arm(self, direction: Vector, tag: Size, features: Matrix) -> int:
        """The arm of largest <direction, mean reward>. direction (n,), features (arms, d)."""
        own = cython.address(self.own)
        at: Draw = self._draw(features, tag)
        if direction.shape[0] != own.n:
            raise ValueError(f"the direction has {direction.shape[0]} numbers, not {own.n}")
        if own.best == cython.NULL:
            raise ValueError("the world has no function for the best arm")
        scores: OutVector = np.empty(at.arms)
        at.g, at.scores = cython.address(direction[0]), cython.address(scores[0])
        arm = own.best(own, cython.address(at))
        self._raise()
        return arm

    def means(self, features: Tensor) -> Any:
        """The mean rewards (contexts, arms, n) of all arms; features (contexts, arms, d)."""
        own = cython.address(self.own)
        out = np.empty((features.shape[0], features.shape[1], own.n))
        to: OutTensor = out
        unread: OutVector = np.zeros(max(own.n_noise, 1) + own.n)
        for i in range(features.shape[0]):
            at: Draw = self._draw(features[i], 0)
            at.noise, at.reward = cython.address(unread[own.n]), cython.address(unread[0])
            for a in range(at.arms):
                at.mean = cython.address(to[i, a, 0])
                own.reward(own, cython.address(at), a)
        self._raise()
        return out

    def best_means(
        self, features: Tensor, tags: IntVector, directions: Matrix, which: IntVector
    ) -> Any:
        """The mean rewards (contexts, n) of the best arm of every context i, for the direction
        directions[which[i]]. features (contexts, arms, d), tags, which (contexts,).
        """
        own = cython.address(self.own)
        m = features.shape[0]
        if not (tags.shape[0] == which.shape[0] == m and directions.shape[1] == own.n):
            raise ValueError(f"{m} contexts, {tags.shape[0]} tags, {which.shape[0]} directions")
        if own.best == cython.NULL:
            raise ValueError("the world has no function for the best arm")
        if not within(which, directions.shape[0]):
            raise ValueError(f"there are {directions.shape[0]} directions")
        out = np.empty((m, own.n))
        to: OutMatrix = out
        scores: OutVector = np.empty(features.shape[1])
        unread: OutVector = np.zeros(max(own.n_noise, 1) + own.n)
        for i in range(m):
            at: Draw = self._draw(features[i], tags[i])
            at.g, at.scores = cython.address(directions[which[i], 0]), cython.address(scores[0])
            at.noise, at.reward = cython.address(unread[own.n]), cython.address(unread[0])
            at.mean = cython.address(to[i, 0])
            own.reward(own, cython.address(at), own.best(own, cython.address(at)))
        self._raise()
        return out

    def _draw(self, features: Matrix, tag: Size) -> Draw:
        """A context of the world, checked, without noise and room for rewards."""
        arms, own = features.shape[0], cython.address(self.own)
        if arms < 1 or features.shape[1] != own.d or (own.tags > 0 and arms != own.arms):
            raise ValueError(
                f"the features have shape {(arms, features.shape[1])}, not {(own.arms, own.d)}"
            )
        if tag < 0 or (own.tags > 0 and tag >= own.tags):
            raise ValueError(f"the tag is {tag}; the world knows {own.tags}")
        at = cython.declare(Draw)
        at.features, at.arms, at.tag = cython.address(features[0, 0]), arms, tag
        return at

    def _raise(self) -> None:
        error = self.failure()
        if error is not None:
            raise error
