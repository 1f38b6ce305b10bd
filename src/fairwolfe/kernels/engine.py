# cython: language_level=3
"""What arms and rankings share: averages, open decisions, the direction, and live numbers.

An `Engine` holds the arrays of a state and decides and learns with them. z, the point where f is
differentiated, is the average over the answered rewards and the estimates of open decisions:

    e = (sum of the answered rewards - theta psi)/answered
    z = (totals + theta phi + open e)/(clocks + open)

phi and psi are the sums of the features of the open and of the answered decisions; e corrects a
constant error of the model. z does not depend on the order of the answers. Sums over open decisions
are kept twice, rounded and what rounding has left, so that adding and subtracting a billion vectors
leaves an error below that of a single addition. The last column of phi and psi counts decisions.
"""

from __future__ import annotations

from typing import Any

import cython
import numpy as np
from cython.cimports.cpython.buffer import (
    Py_buffer,
    PyBUF_C_CONTIGUOUS,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.fairwolfe.kernels.engine import (
    ANSWERED,
    BATCH,
    BATCH_COUNT,
    BATCHES,
    BATCHES_PLANNED,
    CAP,
    CERTIFICATES,
    COUNT,
    ESTIMATE,
    FIRST,
    FIRST_WINDOW,
    ISSUED,
    LAST,
    MEAN,
    OPEN,
    PLANNED,
    SERIAL,
    SPARE,
    SQUARES,
    TOP,
    UNTRIED,
    WINDOW,
    Column,
    Head,
)
from cython.cimports.fairwolfe.kernels.gradients import PricedTree, all_finite, sampled
from cython.cimports.fairwolfe.kernels.mailbox import Mailbox
from cython.cimports.fairwolfe.kernels.types import Doubles, Real, Size
from cython.cimports.libc.math import floor, fmod, pow, sqrt
from cython.cimports.libc.stdint import int64_t, uintptr_t
from cython.cimports.libc.stdlib import calloc, free
from cython.cimports.libc.string import memcpy, memset

from fairwolfe.core.rows import HEAD
from fairwolfe.errors import InvalidInput


def pointer(array: object, shape: object) -> cython.p_double:
    """The memory of an array of float64 in C order; its shape is checked here and nowhere else."""
    if not (isinstance(array, np.ndarray) and array.dtype == np.float64 and array.flags.carray):
        raise ValueError(f"an array of the state is {array!r:.80}, not float64 in C order")
    if array.shape != shape:
        raise ValueError(f"an array of the state has shape {array.shape}, not {shape}")
    where: uintptr_t = array.ctypes.data if array.size else 64
    return cython.cast(cython.p_double, cython.cast(cython.p_void, where))


def column(
    array: object,
    dtype: object,
    axes: cython.int,
    written: cython.bint,
    out: cython.pointer[Column],
) -> cython.int:
    """The memory and the axes of a column, which the caller holds; written: it must be writable.

    The buffer is asked for without its format: NumPy would write out that of a head field by field,
    which takes longer than to decide.
    """
    buffer = cython.declare(Py_buffer)
    own = array.dtype
    if own is not dtype and own != dtype:
        raise InvalidInput(f"a column of rows holds {own}, not {dtype}")
    flags: cython.int = PyBUF_C_CONTIGUOUS
    if written:
        flags |= PyBUF_WRITABLE
    PyObject_GetBuffer(array, cython.address(buffer), flags)
    fits: cython.bint = buffer.ndim == axes
    fits = fits and buffer.itemsize == (cython.sizeof(Head) if dtype is HEAD else 8)
    if fits:
        out.data, out.n, out.a, out.b = buffer.buf, buffer.shape[0], 1, 1
        if axes > 1:
            out.a = buffer.shape[1]
        if axes > 2:
            out.b = buffer.shape[2]
    PyBuffer_Release(cython.address(buffer))
    if not fits:
        raise InvalidInput(f"a column of rows has shape {array.shape}, not {axes} axes")
    return 0


def within(numbers: Any, most: Size) -> cython.bint:
    """Whether all of an array are from 0 to below `most`.

    By numpy: iterating over a view ends with an exception inside Cython, where an interrupt that
    comes at that moment is lost.
    """
    return np.min(numbers, initial=0) >= 0 and np.max(numbers, initial=-1) < most


def aligned(at: cython.p_double) -> cython.p_double:
    """The next address that starts a cache line."""
    up: uintptr_t = (cython.cast(uintptr_t, at) + 63) & ~cython.cast(uintptr_t, 63)
    return cython.cast(cython.p_double, cython.cast(cython.p_void, up))


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _add(high: cython.p_double, low: cython.p_double, value: Real) -> cython.void:
    """Add a number to a sum that is kept twice."""
    total: Real = high[0] + value
    part: Real = total - high[0]
    low[0] += (high[0] - (total - part)) + (value - part)
    high[0] = total


@cython.cclass
class Engine:
    """A state with what never changes (`plan`), for kernels.

    n rewards, of which f sees n_seen; blocks of d features.
    """

    def __init__(self, plan: Any, state: Any) -> None:
        if self.plan is not None:
            raise ValueError("an engine is made once")
        self.plan, self.state = plan, state
        self.busy = False
        self.tree = plan.tree
        self.called = plan.tree
        self.priced = plan.tree if isinstance(plan.tree, PricedTree) else None
        self.directed = plan.tree is not None
        n: Size = state.totals.shape[0]
        self.n = n
        self.coordinates = cython.NULL
        self.n_seen = n
        if plan.coordinates is not None:
            seen: cython.const[int64_t][::1] = plan.coordinates  # type: ignore[valid-type]
            if not 0 < seen.shape[0] <= n or not within(plan.coordinates, n):
                raise ValueError(f"coordinates {plan.coordinates} of {n} rewards")
            self.coordinates, self.n_seen = cython.address(seen[0]), seen.shape[0]
        if self.directed and self.tree.n != self.n_seen:
            raise ValueError(f"the gradient has {self.tree.n} coordinates, not {self.n_seen}")
        self.samples, self.counts_open = plan.samples, plan.anticipate
        self.forget, self.keep = plan.forget, 1.0 - plan.forget
        self.width, self.fixed = plan.width, plan.fixed
        self.low, self.high = pointer(plan.low, (n,)), pointer(plan.high, (n,))
        stages, _, self.blocks, columns = state.phi.shape
        if stages != 1:
            raise ValueError(f"{stages} stages of rewards")
        self.d = columns - 1
        self.start = cython.NULL if plan.start is None else pointer(plan.start, (n,))
        self.n_fields = 0
        self.attach("totals", cython.address(self.totals), (n,))
        self.attach("earned", cython.address(self.earned), (n,))
        self.attach("clocks", cython.address(self.clocks), (n,))
        self.attach("t", cython.address(self.t), (1,))
        self.attach("running", cython.address(self.running), (n,))
        self.attach("open", cython.address(self.open), (3,))
        self.attach("weights", cython.address(self.weights), (n,))
        self.attach("sums", cython.address(self.sums), (2, n))
        self.attach("answered", cython.address(self.answered), (n,))
        self.attach("phi", cython.address(self.phi), (1, 2, self.blocks, self.d + 1))
        self.attach("psi", cython.address(self.psi), (1, self.blocks, self.d + 1))
        self.attach("live", cython.address(self.window), (2 * WINDOW + 3 + 5 * self.n_seen,))
        self.slope = self.window + WINDOW
        self.rewards_seen = self.slope + self.n_seen
        self.attach("prices", cython.address(self.prices), state.prices.shape)
        if self.priced is not None and self.priced.prices != self.prices:
            raise ValueError("the gradient was made for the prices of another state")
        self.prices_call = self.priced is not None and self.priced._moving_leaves.calls_python
        row: Size = (n + 7) // 8 * 8
        kept: Size = 3 + 3 * n + 2 * self.blocks * (self.d + 1)
        self.memory = cython.cast(cython.p_double, calloc(8 * row + kept + 8, 8))
        if self.memory == cython.NULL:
            raise MemoryError
        self.z = aligned(self.memory)
        self.at, self.over = self.z + row, self.z + 2 * row
        self.spare = self.z + 3 * row  # four rows
        self.saved = self.z + 7 * row

    def __dealloc__(self) -> None:
        free(self.memory)

    def attach(
        self, name: object, place: cython.pointer[cython.p_double], shape: object
    ) -> cython.int:
        """Find an array of the state, once."""
        place[0] = pointer(getattr(self.state, name), shape)  # type: ignore[call-overload]
        size: Size = 1
        for length in shape:
            size *= cython.cast(Size, length)
        self.fields[self.n_fields].data = place[0]
        self.fields[self.n_fields].size = size
        self.n_fields += 1
        return 0

    # --- calls from Python --------------------------------------------------------------------

    def begin(self, by: Engine) -> cython.int:
        """Start a call that uses the memory of this engine and of `by`, which may be the same one;
        until `end`, another is refused. Both are called with the lock of the interpreter.
        """
        if self.plan is None or by.plan is None:
            raise RuntimeError("the engine has no state: it was not made by its constructor")
        if (
            self.busy
            or by.busy
            or (self.called is not None and self.called.busy)
            or (by.called is not None and by.called.busy)
        ):
            raise InvalidInput(
                "the policy is in the middle of another call: one thread at a time may use it, and "
                "a function of an objective, a rule or a world may not call the agent that calls it"
            )
        self.busy = True
        by.busy = True
        if self.called is not None:
            self.called.busy = True
        if by.called is not None:
            by.called.busy = True
        return 0

    def end(self, by: Engine) -> cython.void:
        """The call is over."""
        self.busy = False
        by.busy = False
        if self.called is not None:
            self.called.busy = False
        if by.called is not None:
            by.called.busy = False

    def check_callbacks(self) -> None:
        """Raise what a Python function of the user raised inside compiled code, if one did."""
        if self.called is not None and self.called.calls_python:
            self.called.raise_failure()

    # --- the direction ------------------------------------------------------------------------

    def aim(
        self,
        normals: cython.const[cython.double][:, ::1],  # type: ignore[valid-type]
        g: cython.double[::1],
    ) -> bool:
        """g = grad f_t(z), (n_seen,), and whether it is made of finite numbers.

        normals (samples, n_seen + 2): what randomised smoothing draws.
        """
        if g.shape[0] != self.n_seen or normals.shape[0] != self.samples:
            raise ValueError(f"room for {g.shape[0]} of {self.n_seen} coordinates")
        if self.samples > 0 and normals.shape[1] != self.n_seen + 2:
            raise ValueError(f"{normals.shape[1]} normal numbers, not {self.n_seen + 2}")
        self.begin(self)
        try:
            finite: cython.bint = self.direction(
                cython.address(normals[0, 0]), cython.address(g[0])
            )
            self.check_callbacks()
        finally:
            self.end(self)
        return finite

    def age(self, t: Real) -> Real:
        """t for the schedules: with memory, how many rewards the average still holds."""
        return t if self.forget == 0.0 else min(t, floor(1.0 / self.forget))

    def step(self, t: Real) -> Real:
        """The width of the smoothing after t rewards."""
        return self.width if self.fixed else self.width / sqrt(t + 1.0)

    def with_open(self, at: cython.p_double, over: cython.p_double) -> cython.void:
        """Sums and clocks with the open decisions in them. at, over (n,)."""
        i: Size
        b: Size
        r: Size
        j: Size
        place: Size
        weight: Real
        total: Real
        away: Real
        n: Size = self.n
        d: Size = self.d
        half: Size = self.blocks * (d + 1)
        past: Real = pow(self.keep, self.open[OPEN]) if self.keep < 1.0 else 1.0
        corrected: Real = 0.0 if self.blocks > 0 else 1.0
        unknown: Real = 0.0
        answered: Real = 0.0
        for b in range(self.blocks):
            place = b * (d + 1) + d
            answered += self.psi[place]
            if self.psi[place] == 0.0:
                unknown += self.phi[place] + self.phi[half + place]
        for i in range(n - self.n_linear):  # estimates as they were recorded
            weight = self.weights[i]
            total = self.sums[i] + self.sums[n + i] + corrected * weight * self.answered[i]
            total = max(total, weight * self.low[i])
            total = min(total, weight * self.high[i])
            at[i] = past * self.totals[i] + total
            over[i] = past * self.clocks[i] + weight
        for r in range(self.n_linear):  # estimates of the current model
            i = n - self.n_linear + r
            weight = self.weights[i] - unknown
            total = 0.0
            away = self.answered[i]
            for b in range(self.blocks):
                if self.psi[b * (d + 1) + d] > 0.0:
                    for j in range(d):
                        place = b * (d + 1) + j
                        total += self.theta[(b * self.n_linear + r) * d + j] * (
                            self.phi[place] + self.phi[half + place]
                        )
                        away -= self.theta[(b * self.n_linear + r) * d + j] * self.psi[place]
            at[i] = past * self.totals[i]
            over[i] = past * self.clocks[i]
            if weight > 0.0 and answered > 0.0:
                total += weight * away / answered
                at[i] += min(max(total, weight * self.low[i]), weight * self.high[i])
                over[i] += weight

    def direction(self, normals: Doubles, g: cython.p_double) -> cython.bint:
        """g = grad f_t(z), (n_seen,), and whether it is made of finite numbers.

        normals (samples, n_seen + 2): what randomised smoothing draws. Before the first answer z is
        `start`, where one is given. Where rewards beyond their ranges have moved z out of the
        domain of f, z is clipped to the ranges.
        """
        i: Size
        j: Size
        at: cython.p_double = self.totals
        over: cython.p_double = self.clocks
        t: Real = self.age(self.t[0] + self.open[OPEN])
        if not self.directed:
            for i in range(self.n_seen):
                g[i] = self.running[i if self.coordinates == cython.NULL else self.coordinates[i]]
            return True
        if self.open[OPEN] > 0.0:
            self.with_open(self.at, self.over)
            at, over = self.at, self.over
        for i in range(self.n_seen):
            j = i if self.coordinates == cython.NULL else self.coordinates[i]
            self.z[i] = at[j] / max(over[j], 1.0)
            if self.start != cython.NULL and self.t[0] == 0.0:
                self.z[i] = self.start[j]
        if self._gradient(t, normals, g):
            return True
        if self.samples > 0:
            return False
        for i in range(self.n_seen):
            j = i if self.coordinates == cython.NULL else self.coordinates[i]
            self.z[i] = self.totals[j] / max(self.clocks[j], 1.0)
            self.z[i] = min(max(self.z[i], self.low[j]), self.high[j])
        return self._gradient(t, normals, g)

    def _gradient(self, t: Real, normals: Doubles, g: cython.p_double) -> cython.bint:
        """The gradient at `z`; for randomised smoothing, its running average."""
        i: Size
        j: Size
        mix: Real
        row: Size = (self.n + 7) // 8 * 8
        fresh: cython.p_double = self.spare
        step: Real = self.step(t)
        if self.samples == 0:
            self.tree.own.call(cython.address(self.tree.own), self.z, step, g)
        else:
            sampled(
                cython.address(self.tree.own),
                self.z,
                step,
                normals,
                self.samples,
                self.n_seen,
                self.spare + row,
                self.spare + 2 * row,
                fresh,
            )
            mix = 4.0 / pow(t + 8.0, 2.0 / 3.0)
            for i in range(self.n_seen):
                j = i if self.coordinates == cython.NULL else self.coordinates[i]
                g[i] = (1.0 - mix) * self.running[j] + mix * fresh[i]
        return all_finite(g, self.n_seen)

    # --- open decisions -----------------------------------------------------------------------

    def open_one(self) -> cython.void:
        """Count one more open decision; with memory those before it fade, as rewards do."""
        i: Size
        if self.keep < 1.0:
            for i in range(self.n):
                self.weights[i] *= self.keep
            for i in range(2 * self.n):
                self.sums[i] *= self.keep
            for i in range(2 * self.blocks * (self.d + 1)):
                self.phi[i] *= self.keep
        for i in range(self.n):
            self.weights[i] += 1.0
        self.open[OPEN] += 1.0
        self.open[ISSUED] += 1.0

    def open_features(self, block: Size, x: Doubles, sign: Real, weight: Real) -> cython.void:
        """phi += sign weight x for one block, whose last column counts decisions. x (d,)."""
        j: Size
        half: Size = self.blocks * (self.d + 1)
        high: cython.p_double = self.phi + block * (self.d + 1)
        for j in range(self.d):
            _add(high + j, high + half + j, sign * weight * x[j])
        _add(high + self.d, high + half + self.d, sign * weight)

    def open_value(self, i: Size, value: Real) -> cython.void:
        """Add to the sum of the recorded estimates of reward i."""
        _add(self.sums + i, self.sums + self.n + i, value)

    def age_weight(self, place: int64_t) -> Real:
        """What the open decision that was the place-th to be made still weighs."""
        return pow(self.keep, self.open[ISSUED] - 1.0 - place) if self.keep < 1.0 else 1.0

    def close_one(self, first: Size, stop: Size, weight: Real) -> cython.void:
        """A decision of this weight is not open any more; its estimate has left the sums already.
        Coordinates from `first` to below `stop` joined after it.
        """
        i: Size
        self.open[OPEN] -= 1.0
        if self.open[OPEN] <= 0.0:
            self.open[OPEN] = 0.0
            memset(self.weights, 0, 8 * self.n)
            memset(self.sums, 0, 16 * self.n)
            memset(self.phi, 0, 16 * self.blocks * (self.d + 1))
            return
        for i in range(self.n):
            if i < first or i >= stop:
                self.weights[i] = max(self.weights[i] - weight, 0.0)

    def correct(self, reward: Doubles, estimate: Doubles) -> cython.void:
        """Move the mean error of recorded estimates towards reward - estimate, (n,) each: a mean
        over all answers at first, over about the last 500 later.
        """
        i: Size
        self.open[ANSWERED] += 1.0
        rate: Real = max(1.0 / self.open[ANSWERED], 1.0 / 500.0)
        for i in range(self.n):
            self.answered[i] += rate * (reward[i] - estimate[i] - self.answered[i])

    def answer_features(self, block: Size, x: Doubles, reward: Doubles) -> cython.void:
        """psi += x for one block, and its reward to the answered ones. x (d,), reward (n,)."""
        i: Size
        psi: cython.p_double = self.psi + block * (self.d + 1)
        if self.keep < 1.0:
            for i in range(self.n):
                self.answered[i] *= self.keep
            for i in range(self.blocks * (self.d + 1)):
                self.psi[i] *= self.keep
        for i in range(self.n):
            self.answered[i] += reward[i]
        for i in range(self.d):
            psi[i] += x[i]
        psi[self.d] += 1.0

    def save_open(self) -> cython.void:
        """Keep what `restore_open` brings back."""
        m: Size = 2 * self.blocks * (self.d + 1)
        memcpy(self.saved, self.open, 24)
        memcpy(self.saved + 3, self.weights, 8 * self.n)
        memcpy(self.saved + 3 + self.n, self.sums, 16 * self.n)
        memcpy(self.saved + 3 + 3 * self.n, self.phi, 8 * m)

    def restore_open(self) -> cython.void:
        """Open decisions as they were at `save_open`."""
        m: Size = 2 * self.blocks * (self.d + 1)
        memcpy(self.open, self.saved, 24)
        memcpy(self.weights, self.saved + 3, 8 * self.n)
        memcpy(self.sums, self.saved + 3 + self.n, 16 * self.n)
        memcpy(self.phi, self.saved + 3 + 3 * self.n, 8 * m)

    # --- an answer ----------------------------------------------------------------------------

    def look_at_prices(self) -> cython.bint:
        """Before an answer is learnt: where the prices will move; False where a Python leaf failed,
        and nothing may be learnt.
        """
        i: Size
        j: Size
        if self.priced is not None:
            for i in range(self.n_seen):
                j = i if self.coordinates == cython.NULL else self.coordinates[i]
                self.z[i] = self.totals[j] / max(self.clocks[j], 1.0)
            return self.priced.look(self.z, self.age(self.t[0]))
        return True

    def average(
        self,
        reward: Doubles,
        rho: Doubles,
        first: Size,
        stop: Size,
    ) -> cython.void:
        """Average rho in, after prices have moved: totals, earned += rho, reward; t += 1.

        Averages are totals over clocks, so that coordinates with equal sums have equal averages and
        one that joined late is averaged over its own time. reward, rho (n,). Coordinates from
        `first` to below `stop` joined after the decision, which has nothing for them.
        """
        i: Size
        if self.priced is not None:
            self.priced.move(self.age(self.t[0]))
        for i in range(self.n):
            if i < first or i >= stop:
                self.totals[i] = self.keep * self.totals[i] + rho[i]
                self.earned[i] = self.keep * self.earned[i] + reward[i]
                self.clocks[i] = self.keep * self.clocks[i] + 1.0
        self.t[0] += 1.0

    def count_live(
        self,
        head: cython.pointer[Head],
        tally: Doubles,
        reward: Doubles,
    ) -> cython.bint:
        """Count an answered decision for live numbers; whether a certificate is due.

        tally (4,): best, missed, spare and untried of the decision, all 0 in the first window;
        reward (n,). Decisions of an earlier window do not count: its certificate is forgotten.
        """
        i: Size
        now: cython.p_double = self.window
        top: Real = 0.0
        y: Real = 0.0
        spare: Real = 0.0
        untried: Real = 0.0
        r: Real
        place: Real
        away: Real
        if head.window == -1:
            if now[PLANNED] > FIRST_WINDOW:
                return False
        elif cython.cast(Real, head.window) != now[SERIAL]:
            return False
        else:
            top, y, spare, untried = tally[0], tally[1], tally[2], tally[3]
        for i in range(self.n_seen):
            r = reward[i if self.coordinates == cython.NULL else self.coordinates[i]]
            y += self.slope[i] * r
            self.rewards_seen[i] += r
        place = head.number if head.number >= 0 else now[COUNT]
        if now[COUNT] == 0.0:
            now[FIRST] = place
            now[LAST] = place
        now[FIRST] = min(now[FIRST], place)
        now[LAST] = max(now[LAST], place)
        now[COUNT] += 1.0
        now[TOP] += min(top, now[CAP])
        now[ESTIMATE] += y
        now[SPARE] += spare
        now[UNTRIED] += untried
        now[BATCH] += y
        now[BATCH_COUNT] += 1.0
        if now[BATCH_COUNT] * BATCHES_PLANNED >= now[PLANNED]:
            away = now[BATCH] / now[BATCH_COUNT] - now[MEAN]
            now[BATCHES] += 1.0
            now[MEAN] += away / now[BATCHES]
            now[SQUARES] += away * away * (now[BATCHES] - 1.0) / now[BATCHES]
            now[BATCH] = 0.0
            now[BATCH_COUNT] = 0.0
        return fmod(now[COUNT], now[PLANNED] / CERTIFICATES) == 0.0

    # --- the whole state ----------------------------------------------------------------------

    def fits(self, other: Engine) -> cython.bint:
        """Whether the states of two engines have the same sizes."""
        i: Size
        if self.n_fields != other.n_fields or self.samples != other.samples:
            return False
        for i in range(self.n_fields):
            if self.fields[i].size != other.fields[i].size:
                return False
        return True

    def n_numbers(self) -> Size:
        """In all arrays of the state."""
        i: Size
        total: Size = 0
        for i in range(self.n_fields):
            total += self.fields[i].size
        return total

    def save(self, to: cython.p_double) -> cython.void:
        """Copy the state. to: `n_numbers` doubles."""
        i: Size
        for i in range(self.n_fields):
            memcpy(to, self.fields[i].data, 8 * self.fields[i].size)
            to += self.fields[i].size

    def restore(self, saved: cython.p_double) -> cython.void:
        """The state as it was at `save`."""
        i: Size
        for i in range(self.n_fields):
            memcpy(self.fields[i].data, saved, 8 * self.fields[i].size)
            saved += self.fields[i].size

    def copy_from(self, other: Engine) -> cython.void:
        """Make the state equal to that of another engine of the same plan."""
        i: Size
        for i in range(self.n_fields):
            memcpy(self.fields[i].data, other.fields[i].data, 8 * self.fields[i].size)


@cython.cclass
class Before:
    """All that a simulated round changes, as it was before that round.

    It is kept only where prices move by functions in Python, which may fail when others have
    already learnt; everything else in a round that can fail does so before anything has changed.
    sums: the arrays that rounds add to, three views.
    """

    def __init__(
        self, engine: Engine, by: Engine, mailbox: Mailbox | None, sums: tuple[Any, Any, Any]
    ) -> None:
        i: Size
        size: Size = 0
        view: cython.double[::1]
        self.needed = engine.prices_call
        if not self.needed:
            return
        self.engine, self.by, self.mailbox = engine, by, mailbox
        for i in range(3):
            view = sums[i]
            self.sums[i], self.sizes[i] = cython.address(view[0]), view.shape[0]
            size += view.shape[0]
        size += engine.n_numbers() + by.n_numbers()
        numbers, slots = np.empty(size), np.empty(0, np.int64)
        if mailbox is not None:
            slots = np.empty(mailbox.n_numbers(), np.int64)
        self.arrays = (numbers, slots, sums)
        view = numbers
        places: int64_t[::1] = slots
        self.numbers, self.slots = cython.address(view[0]), cython.address(places[0])

    def save(self) -> cython.void:
        """Before a round."""
        i: Size
        to: cython.p_double = self.numbers
        if not self.needed:
            return
        self.engine.save(to)
        to += self.engine.n_numbers()
        self.by.save(to)
        to += self.by.n_numbers()
        for i in range(3):
            memcpy(to, self.sums[i], 8 * self.sizes[i])
            to += self.sizes[i]
        if self.mailbox is not None:
            self.mailbox.save(self.slots)

    def restore(self) -> cython.void:
        """After a round that failed."""
        i: Size
        saved: cython.p_double = self.numbers
        if not self.needed:
            return
        self.engine.restore(saved)
        saved += self.engine.n_numbers()
        self.by.restore(saved)
        saved += self.by.n_numbers()
        for i in range(3):
            memcpy(self.sums[i], saved, 8 * self.sizes[i])
            saved += self.sizes[i]
        if self.mailbox is not None:
            self.mailbox.restore(self.slots)
