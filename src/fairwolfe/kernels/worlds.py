# cython: language_level=3
"""Rewards of simulated worlds with arms: a function, its sizes and its numbers.

One signature for all, `Reward` and `Best` in worlds.pxd, so that one compiled loop simulates every
world, and the plain methods of the environment call the same kernels: one formula, the same bits.
"""

from __future__ import annotations

from typing import Any

import cython
import numpy as np
from cython.cimports.cpython.ref import PyObject
from cython.cimports.fairwolfe.kernels.ridge import Reading, Writing, combine_rows, row_products
from cython.cimports.fairwolfe.kernels.rules import argmax
from cython.cimports.fairwolfe.kernels.types import In, Real, Size
from cython.cimports.fairwolfe.kernels.worlds import World
from cython.cimports.libc.math import NAN, exp, fabs, fma
from cython.cimports.libc.stdint import int64_t


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _linear_reward(
    world: cython.pointer[World],
    arm: Size,
    tag: Size,
    features: Reading,
    noise: Reading,
    mean: Writing,
    reward: Writing,
) -> cython.void:
    """theta x, with normal noise of a standard deviation of a tenth of it (variance 0.01 mean^2).

    params: theta (n, d). Cost: n d.
    """
    i: Size
    j: Size
    d: Size = world.d
    theta: Reading = world.params
    x: Reading = features + arm * d
    total: Real
    for i in range(world.n):
        total = 0.0
        for j in range(d):
            total = fma(theta[i * d + j], x[j], total)
        mean[i] = total
        reward[i] = fma(0.1 * fabs(total), noise[i], total)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _linear_best(
    world: cython.pointer[World],
    g: Reading,
    tag: Size,
    features: Reading,
    arms: Size,
    d: Size,
    scores: Writing,
) -> Size:
    """The arm of largest <theta' g, x>. params: theta (n, d). Cost: (n + arms) d."""
    combine_rows(g, world.params, world.work, world.n, d)
    row_products(features, world.work, scores, arms, d)
    return argmax(scores, arms)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _table_reward(
    world: cython.pointer[World],
    arm: Size,
    tag: Size,
    features: Reading,
    noise: Reading,
    mean: Writing,
    reward: Writing,
) -> cython.void:
    """From a table. params: the kind of noise (0: none, 1: Bernoulli, from uniform numbers,
    2: normal), its standard deviation, then the means (contexts, arms, n).
    """
    i: Size
    kind: Real = world.params[0]
    means: Reading = world.params + 2 + (tag * world.arms + arm) * world.n
    for i in range(world.n):
        mean[i] = means[i]
        if kind == 1.0:
            reward[i] = 1.0 if noise[i] < means[i] else 0.0
        elif kind == 2.0:
            reward[i] = fma(world.params[1], noise[i], means[i])
        else:
            reward[i] = means[i]


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _table_best(
    world: cython.pointer[World],
    g: Reading,
    tag: Size,
    features: Reading,
    arms: Size,
    d: Size,
    scores: Writing,
) -> Size:
    """The arm of largest <g, mean>. params: as in `_table_reward`. Cost: n arms."""
    row_products(world.params + 2 + tag * arms * world.n, g, scores, arms, world.n)
    return argmax(scores, arms)


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _closeness(x: In, point: In, rate: Real, d: Size) -> Real:
    """exp(-rate |x - point|^2), without the first feature, which is 1. x (d,), point (d - 1,)."""
    j: Size
    away: Real
    square: Real = 0.0
    for j in range(d - 1):
        away = x[1 + j] - point[j]
        square = fma(away, away, square)
    return exp(-rate * square)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _nonlinear_reward(
    world: cython.pointer[World],
    arm: Size,
    tag: Size,
    features: Reading,
    noise: Reading,
    mean: Writing,
    reward: Writing,
) -> cython.void:
    """1 with probability exp(-|x - c_i|^2/(2 width^2)), else 0, from uniform noise.

    params: 1/(2 width^2), then the ideal points c_i by rows (n, d - 1). Cost: n d.
    """
    i: Size
    d: Size = world.d
    params: Reading = world.params
    for i in range(world.n):
        mean[i] = _closeness(features + arm * d, params + 1 + i * (d - 1), params[0], d)
        reward[i] = 1.0 if noise[i] < mean[i] else 0.0


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _nonlinear_best(
    world: cython.pointer[World],
    g: Reading,
    tag: Size,
    features: Reading,
    arms: Size,
    d: Size,
    scores: Writing,
) -> Size:
    """The arm of largest <g, mean>. params: as in `_nonlinear_reward`. Cost: arms n d."""
    a: Size
    i: Size
    total: Real
    mean: Real
    params: Reading = world.params
    for a in range(arms):
        total = 0.0
        for i in range(world.n):
            mean = _closeness(features + a * d, params + 1 + i * (d - 1), params[0], d)
            total = fma(g[i], mean, total)
        scores[a] = total
    return argmax(scores, arms)


# --- Python functions -----------------------------------------------------------------------------


@cython.cfunc
def _copy(numbers: Reading, shape: tuple[int, ...]) -> Any:
    """An array of its own, so that a function may keep it."""
    array = np.empty(shape)
    flat: cython.double[::1] = array.reshape(-1)
    i: Size
    for i in range(flat.shape[0]):
        flat[i] = numbers[i]
    return array


@cython.cfunc
def _fill(name: str, given: Any, out: Writing, n: Size) -> None:
    """out = given, n numbers."""
    values: cython.const[cython.double][::1]  # type: ignore[valid-type]
    i: Size
    values = np.ascontiguousarray(given, dtype=np.float64)
    if values.shape[0] != n:
        raise ValueError(f"the {name} has {values.shape[0]} numbers, not {n}")
    for i in range(n):
        out[i] = values[i]


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _python_reward(
    world: cython.pointer[World],
    arm: Size,
    tag: Size,
    features: Reading,
    noise: Reading,
    mean: Writing,
    reward: Writing,
) -> cython.void:
    """A function in Python, whose exception the owner keeps; NaN is written then."""
    i: Size
    for i in range(world.n):
        mean[i] = NAN
        reward[i] = NAN
    with cython.gil:
        owner: ArmWorld = cython.cast(ArmWorld, cython.cast(cython.pointer[PyObject], world.data))
        try:
            rows = _copy(features, (world.arms, world.d))
            drawn = _copy(noise, (world.n_noise,))
            owner.callbacks += 1
            means, rewards = owner.functions[0](arm, tag, rows, drawn)
            _fill("mean reward", means, mean, world.n)
            _fill("reward", rewards, reward, world.n)
        except BaseException as error:  # kept for whoever called from Python
            if owner.error is None:
                owner.error = error


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _python_best(
    world: cython.pointer[World],
    g: Reading,
    tag: Size,
    features: Reading,
    arms: Size,
    d: Size,
    scores: Writing,
) -> Size:
    """A function in Python, whose exception the owner keeps; arm 0 is returned then.

    The score of the best arm is <g, mean> with the mean that `reward` states; others are NaN.
    """
    a: Size
    i: Size
    arm: Size = 0
    for a in range(arms):
        scores[a] = NAN
    with cython.gil:
        owner: ArmWorld = cython.cast(ArmWorld, cython.cast(cython.pointer[PyObject], world.data))
        try:
            rows = _copy(features, (arms, d))
            owner.callbacks += 2
            chosen = owner.functions[1](_copy(g, (world.n,)), tag, rows)
            arm = chosen
            if not 0 <= arm < arms:
                arm = 0
                raise ValueError(f"the best arm is {chosen!r}; give one of {arms}")
            means = owner.functions[0](arm, tag, rows, np.zeros(world.n_noise))[0]
            best: cython.double[::1] = np.array(means, dtype=np.float64)
            if best.shape[0] != world.n:
                raise ValueError(f"the mean reward has {best.shape[0]} numbers, not {world.n}")
            scores[arm] = 0.0
            for i in range(world.n):
                scores[arm] += g[i] * best[i]
        except BaseException as error:  # kept for whoever called from Python
            arm = 0
            if owner.error is None:
                owner.error = error
    return arm


# --- from Python ----------------------------------------------------------------------------------


@cython.cclass
class ArmWorld:
    """The rewards of one world.

    kind: "linear" (params: theta (n, d)), "table" (kind of noise, standard deviation, means
    (contexts, arms, n)) or "nonlinear" (rate, ideal points (n, d - 1)), as environments state them
    in `reward_program`; n: rewards, d: features, arms: of every context.

    >>> world = ArmWorld("linear", np.array([1.0, 2.0]), n=1, d=2, arms=1)
    >>> world.answer(0, 0, np.ones((1, 2)), np.zeros(1))[0].tolist()
    [3.0]
    """

    own: World
    kept: Any
    functions: Any
    error: Any
    callbacks: cython.longlong

    def __init__(
        self,
        kind: str,
        params: cython.const[cython.double][::1],  # type: ignore[valid-type]
        n: Size,
        d: Size,
        arms: Size,
    ) -> None:
        own: cython.pointer[World] = cython.address(self.own)
        size: Size = params.shape[0]
        wanted: Size = size
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
        work: cython.double[::1] = np.empty(d)
        own.params = cython.address(params[0]) if size > 0 else cython.NULL
        own.work = cython.address(work[0])
        own.n_params, own.n, own.d, own.arms = size, n, d, arms
        own.data = cython.cast(cython.p_void, self)  # borrowed: an object does not own itself
        self.kept = params, work

    @staticmethod
    def of_functions(
        reward: Any, best: Any, n: Size, d: Size, arms: Size, n_noise: Size
    ) -> ArmWorld:
        """A world in Python: reward (arm, tag, features, noise) -> (mean (n,), reward (n,)), and
        best (g, tag, features) -> arm, or None. An exception of these is kept in `error`.
        """
        world: ArmWorld = ArmWorld("python", np.empty(0), n, d, arms)
        world.functions = reward, best
        world.own.n_noise = n_noise
        if best is None:
            world.own.best = cython.NULL
        return world

    def failure(self) -> BaseException | None:
        """The first exception since it was asked, if there was one."""
        error, self.error = self.error, None
        return error

    def answer(
        self,
        arm: Size,
        tag: Size,
        features: cython.const[cython.double][:, ::1],  # type: ignore[valid-type]
        noise: cython.const[cython.double][::1],  # type: ignore[valid-type]
    ) -> tuple[Any, Any]:
        """The mean reward of an arm and its reward with this noise, both (n,).

        features (arms, d), noise (n_noise,).
        """
        own: cython.pointer[World] = cython.address(self.own)
        self._check(tag, features.shape[0], features.shape[1])
        if not 0 <= arm < features.shape[0] or noise.shape[0] < own.n_noise:
            raise ValueError(
                f"the arm is {arm} of {features.shape[0]}, and the noise has {noise.shape[0]} "
                f"numbers, not {own.n_noise}"
            )
        mean, reward = np.empty(own.n), np.empty(own.n)
        to: cython.double[::1] = mean
        at: cython.double[::1] = reward
        drawn: Reading = cython.address(noise[0]) if noise.shape[0] > 0 else cython.NULL
        with cython.nogil:
            own.reward(
                own,
                arm,
                tag,
                cython.address(features[0, 0]),
                drawn,
                cython.address(to[0]),
                cython.address(at[0]),
            )
        self._raise()
        return mean, reward

    def best_arm(
        self,
        direction: cython.const[cython.double][::1],  # type: ignore[valid-type]
        tag: Size,
        features: cython.const[cython.double][:, ::1],  # type: ignore[valid-type]
    ) -> int:
        """The arm of largest <direction, mean reward>. direction (n,), features (arms, d)."""
        own: cython.pointer[World] = cython.address(self.own)
        self._check(tag, features.shape[0], features.shape[1])
        if direction.shape[0] != own.n:
            raise ValueError(f"the direction has {direction.shape[0]} numbers, not {own.n}")
        if own.best == cython.NULL:
            raise ValueError("the world has no function for the best arm")
        arms: Size = features.shape[0]
        scores: cython.double[::1] = np.empty(arms)
        arm: Size
        with cython.nogil:
            arm = own.best(
                own,
                cython.address(direction[0]),
                tag,
                cython.address(features[0, 0]),
                arms,
                own.d,
                cython.address(scores[0]),
            )
        self._raise()
        return arm

    def means(
        self,
        features: cython.const[cython.double][:, :, ::1],  # type: ignore[valid-type]
    ) -> Any:
        """The mean rewards (contexts, arms, n) of all arms; features (contexts, arms, d)."""
        own: cython.pointer[World] = cython.address(self.own)
        i: Size
        a: Size
        self._check(0, features.shape[1], features.shape[2])
        out = np.empty((features.shape[0], own.arms, own.n))
        to: cython.double[:, :, ::1] = out
        nothing: cython.double[::1] = np.zeros(max(own.n_noise, 1))
        spare: cython.double[::1] = np.empty(own.n)
        with cython.nogil:
            for i in range(features.shape[0]):
                for a in range(own.arms):
                    own.reward(
                        own,
                        a,
                        0,
                        cython.address(features[i, 0, 0]),
                        cython.address(nothing[0]),
                        cython.address(to[i, a, 0]),
                        cython.address(spare[0]),
                    )
        self._raise()
        return out

    def best_means(
        self,
        features: cython.const[cython.double][:, :, ::1],  # type: ignore[valid-type]
        tags: cython.const[int64_t][::1],  # type: ignore[valid-type]
        directions: cython.const[cython.double][:, ::1],  # type: ignore[valid-type]
        which: cython.const[int64_t][::1],  # type: ignore[valid-type]
    ) -> Any:
        """The mean rewards (contexts, n) of the best arm of every context i, for the direction
        directions[which[i]]. features (contexts, arms, d), tags, which (contexts,).
        """
        own: cython.pointer[World] = cython.address(self.own)
        i: Size
        arm: Size
        m: Size = features.shape[0]
        self._check(np.max(tags, initial=0), features.shape[1], features.shape[2])
        if not (tags.shape[0] == which.shape[0] == m and directions.shape[1] == own.n):
            raise ValueError(f"{m} contexts, {tags.shape[0]} tags, {which.shape[0]} directions")
        if own.best == cython.NULL or np.min(tags, initial=0) < 0:
            raise ValueError("the world has no function for the best arm, or no such context")
        if np.min(which, initial=0) < 0 or np.max(which, initial=0) >= max(directions.shape[0], 1):
            raise ValueError(f"there are {directions.shape[0]} directions")
        out = np.empty((m, own.n))
        to: cython.double[:, ::1] = out
        room: cython.double[::1] = np.zeros(own.arms + own.n + max(own.n_noise, 1))
        scores: Writing = cython.address(room[0])
        with cython.nogil:
            for i in range(m):
                arm = own.best(
                    own,
                    cython.address(directions[which[i], 0]),
                    tags[i],
                    cython.address(features[i, 0, 0]),
                    own.arms,
                    own.d,
                    scores,
                )
                own.reward(
                    own,
                    arm,
                    tags[i],
                    cython.address(features[i, 0, 0]),
                    scores + own.arms + own.n,
                    cython.address(to[i, 0]),
                    scores + own.arms,
                )
        self._raise()
        return out

    def _check(self, tag: Size, arms: Size, d: Size) -> None:
        if arms < 1 or d != self.own.d or (self.own.tags > 0 and arms != self.own.arms):
            raise ValueError(
                f"the features have shape {(arms, d)}, not {(self.own.arms, self.own.d)}"
            )
        if tag < 0 or (self.own.tags > 0 and tag >= self.own.tags):
            raise ValueError(f"the tag is {tag}; the world knows {self.own.tags}")

    def _raise(self) -> None:
        error = self.failure()
        if error is not None:
            raise error
