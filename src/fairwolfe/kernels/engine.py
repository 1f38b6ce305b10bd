# cython: language_level=3, infer_types=True
"""What arms and rankings share: averages, open decisions, the direction, and live numbers.

An `Engine` holds the arrays of a state and decides and learns with them. z, the point where f is
differentiated, is the average over the answered rewards and the estimates of open decisions:

    e = (sum of the answered rewards - theta psi)/answered
    z = (totals + theta phi + open e)/(clocks + open)

Rewards that arrive together are a stage, and every stage has sums, clocks and counts of its own.
phi and psi are the sums of the features of the open and of the answered decisions; e corrects a
constant error of the model. z does not depend on the order of the answers. Sums over open decisions
are kept twice, rounded and what rounding has left, so that adding and subtracting a billion vectors
leaves an error below that of a single addition. The last column of phi and psi counts decisions.
"""

from __future__ import annotations

from typing import Any

import cython
import numpy as np

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


def rows_pointer(
    array: object, rows: Size, n: Size, stride: cython.pointer[Size]
) -> cython.p_double:
    """The memory of a matrix (rows, n) of float64, and from one row to the next: rows may be the
    beginnings of longer ones.
    """
    if not (isinstance(array, np.ndarray) and array.dtype == np.float64 and array.ndim == 2):
        raise ValueError(f"a matrix of the state is {array!r:.80}, not of float64")
    step = array.strides[0] // 8 if array.size and rows > 1 else n
    right = array.flags.aligned and array.flags.writeable and step >= n
    right = right and (n < 2 or array.size == 0 or array.strides[1] == 8)
    if array.shape != (rows, n) or not right:
        raise ValueError(
            f"a matrix of the state has shape {array.shape}, not {(rows, n)}, or parts"
        )
    stride[0] = step
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


@cython.cclass
class Scratch:
    """Zeros that engines follow each other in while items come and go: engines share what is large
    enough, so that an item that comes touches no page of it.
    """

    def __init__(self, size: cython.Py_ssize_t) -> None:
        free(self.at)
        self.size = size
        self.at = cython.cast(cython.p_double, calloc(max(size, 1), 8))
        if self.at == cython.NULL:
            raise MemoryError

    def __dealloc__(self) -> None:
        free(self.at)


def enough(before: Scratch | None, size: Size) -> Scratch:
    """The scratch of an engine, or another one that has room for so many numbers."""
    if before is None:
        return Scratch(size)
    return before if before.size >= size else Scratch(2 * size)


@cython.cclass
class Engine:
    """A state with what never changes (`plan`), for kernels.

    n rewards, of which f sees n_seen; blocks of d features. Where f is of groups of items, it is
    read at n_seen averages and those of n_groups groups, the sums of the totals of their items over
    the group's own clock:

        z_G = sum_(i of G) totals_i/clock_G,    clock_G = clock of its first item - paused_G,

    where paused_G counts answers to decisions that were made while the group had no item: in a gap.

    An exposure counts for its item and for the groups of it: g_i += sum_(G of i) g_G.
    """

    def __init__(self, plan: Any, state: Any, before: Any = None) -> None:
        """before: an engine that this one replaces; they may share their scratch."""
        earlier: Engine = before
        if self.plan is not None:
            raise ValueError("an engine is made once")
        self.plan, self.state = plan, state
        self.busy = False
        self.tree, self.called = plan.tree, plan.tree
        self.priced = plan.tree if isinstance(plan.tree, PricedTree) else None
        self.directed = plan.tree is not None
        n: Size = state.totals.shape[0]
        self.n, self.n_seen, self.coordinates = n, n, cython.NULL
        if plan.coordinates is not None:
            seen: IntVector = plan.coordinates
            if not 0 < seen.shape[0] <= n or not within(plan.coordinates, n):
                raise ValueError(f"coordinates {plan.coordinates} of {n} rewards")
            self.coordinates, self.n_seen = cython.address(seen[0]), seen.shape[0]
        self.n_groups, self.n_by, self.n_items = 0, 0, 0
        if plan.groups is not None:
            self._attach_groups(plan.groups, state.groups.shape[1])
        n_read: Size = self.n_seen + self.n_groups
        if self.directed and self.tree.n != n_read:
            raise ValueError(f"the gradient has {self.tree.n} coordinates, not {n_read}")
        self.measured = plan.measured
        self.samples, self.counts_open = plan.samples, plan.anticipate
        self.forget, self.keep = plan.forget, 1.0 - plan.forget
        self.width, self.fixed = plan.width, plan.fixed
        self.low, self.high = pointer(plan.low, (n,)), pointer(plan.high, (n,))
        starts: IntVector = plan.starts
        self.stages, _, self.blocks, columns = state.phi.shape
        if starts.shape[0] != self.stages + 1 or starts[0] != 0 or starts[self.stages] != n:
            raise ValueError(f"stages from {plan.starts} on, of {n} rewards")
        if (np.diff(plan.starts) < 1).any() or self.stages > 62:
            raise ValueError(f"stages from {plan.starts} on")
        self.starts = cython.address(starts[0])
        self.d = columns - 1
        self.start = cython.NULL if plan.start is None else pointer(plan.start, (n,))
        self.n_fields = 0
        self.attach("totals", cython.address(self.totals), (n,))
        self.attach("earned", cython.address(self.earned), (n,))
        self.attach("clocks", cython.address(self.clocks), (n,))
        self.attach("t", cython.address(self.t), (self.stages,))
        self.attach("running", cython.address(self.running), (n,))
        counts = cython.cast(cython.pp_double, cython.address(self.open))
        self.attach("open", counts, (3 * self.stages,))
        self.attach("weights", cython.address(self.weights), (n,))
        stride: Size = self.attach_rows("sums", cython.address(self.sums), 2, n)
        self.rest = self.sums + stride
        self.attach("answered", cython.address(self.answered), (n,))
        self.attach("phi", cython.address(self.phi), (self.stages, 2, self.blocks, self.d + 1))
        self.attach("psi", cython.address(self.psi), (self.stages, self.blocks, self.d + 1))
        window = cython.cast(cython.pp_double, cython.address(self.window))
        size: Size = cython.sizeof(Window) // 8
        self.attach("live", window, (2 * size + 3 + 5 * self.n_seen,))
        self.slope = window[0] + size
        self.rewards_seen = self.slope + self.n_seen
        self.n_clocks = state.groups.shape[1]
        self.attach("groups", cython.address(self.paused), (3, self.n_clocks))
        self.n_gaps = state.gaps.shape[1]
        self.attach("gaps", cython.address(self.gaps), (3, self.n_gaps))
        if not within(state.gaps[0], self.n_clocks):
            raise ValueError(f"gaps of groups {state.gaps[0]}, of which there are {self.n_clocks}")
        self.epoch = 0
        for i in range(self.n_gaps):
            self.epoch = max(self.epoch, cython.cast(int64_t, self.gaps[self.n_gaps + i]))
            if self.gaps[2 * self.n_gaps + i] < NO_END:
                self.epoch = max(self.epoch, cython.cast(int64_t, self.gaps[2 * self.n_gaps + i]))
        self.attach("prices", cython.address(self.prices), state.prices.shape)
        if self.priced is not None and self.priced.prices != self.prices:
            raise ValueError("the gradient was made for the prices of another state")
        self.attach("factors", cython.address(self.factors), state.prices.shape)
        if self.priced is not None and self.priced.factors != self.factors:
            raise ValueError("the gradient was made for the factors of another state")
        self.prices_call = self.priced is not None and self.priced._moving_leaves.calls_python
        row, read = padded(n), padded(n_read)
        priced, self.uses = cython.cast(Size, 0), cython.NULL
        if self.priced is not None and self.stages > 1:
            uses: IntVector = plan.price_stages
            priced = uses.shape[0]
            if priced != self.priced.n_prices:
                raise ValueError(f"{priced} rows of {self.priced.n_prices} prices have stages")
            self.uses = cython.address(uses[0])
        kept = self.stages * (3 + 2 * self.blocks * (self.d + 1)) + 3 * n + self.n_clocks
        whole = 6 * row + 2 * read + padded(self.n_groups) + kept + priced + 8
        self.scratch = enough(None if earlier is None else earlier.scratch, whole)
        self.z = aligned(self.scratch.at)
        self.lifted, self.times = self.z + read, self.z + 2 * read
        self.at = self.times + padded(self.n_groups)
        self.over = self.at + row
        self.spare = self.over + row  # four rows
        self.saved = self.spare + 4 * row
        self.next_prices = self.saved + kept

    def _attach_groups(self, groups: object, clocks: Size) -> cython.int:
        """Which items belong to which groups: core/groups.py; clocks: columns of State.groups."""
        slots: IntMatrix = groups.slots
        first: IntVector = groups.first
        clock: IntVector = groups.clock
        n_groups: Size = first.shape[0]
        if not (
            0 < slots.shape[1] < self.n
            and slots.shape[0] > 0 < n_groups == clock.shape[0]
            and within(groups.slots + 1, n_groups + 1)
            and within(groups.first, slots.shape[1])
            and within(groups.clock, clocks)
        ):
            raise ValueError(
                f"groups {slots.shape[0]} x {slots.shape[1]} of {self.n} coordinates, {n_groups} "
                f"groups, {clocks} clocks"
            )
        self.n_by, self.n_items, self.n_groups = slots.shape[0], slots.shape[1], n_groups
        self.slots_of = cython.address(slots[0, 0])
        self.first_of, self.clock_of = cython.address(first[0]), cython.address(clock[0])
        return 0

    def attach(
        self, name: object, place: cython.pointer[cython.p_double], shape: object
    ) -> cython.int:
        """Find an array of the state, once."""
        place[0] = pointer(getattr(self.state, name), shape)  # type: ignore[call-overload]
        size: Size = 1
        for length in shape:
            size *= cython.cast(Size, length)
        self._add_field(place[0], 1, size, size)
        return 0

    def attach_rows(
        self, name: object, place: cython.pointer[cython.p_double], rows: Size, n: Size
    ) -> Size:
        """Find a matrix of the state (rows, n), once; from one row to the next."""
        stride: Size = n
        place[0] = rows_pointer(getattr(self.state, name), rows, n, cython.address(stride))  # type: ignore[call-overload]
        self._add_field(place[0], rows, n, stride)
        return stride

    def _add_field(
        self, data: cython.p_double, rows: Size, size: Size, stride: Size
    ) -> cython.void:
        field = cython.address(self.fields[self.n_fields])
        field.data, field.rows, field.size, field.stride = data, rows, size, stride
        self.n_fields += 1

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
        self._mark_busy(by, True)
        return 0

    def end(self, by: Engine) -> cython.void:
        """The call is over."""
        self._mark_busy(by, False)

    def _mark_busy(self, by: Engine, busy: cython.bint) -> cython.void:
        self.busy = busy
        by.busy = busy
        if self.called is not None:
            self.called.busy = busy
        if by.called is not None:
            by.called.busy = busy

    def check_callbacks(self) -> cython.int:
        """Raise what a Python function of the user raised inside compiled code, if one did."""
        if self.called is not None and self.called.calls_python:
            self.called.raise_failure()
        return 0

    # --- groups -------------------------------------------------------------------------------

    def group_averages(self, earned: cython.bint, out: OutVector) -> None:
        """The averages of the groups of items, (n_groups,): of what is averaged, or of what was
        earned.
        """
        if out.shape[0] != self.n_groups:
            raise ValueError(f"room for {out.shape[0]} of {self.n_groups} groups")
        self.begin(self)
        if self.n_groups > 0:
            at = self.earned if earned else self.totals
            self.read_groups(at, self.clocks, 1.0, 0.0, cython.address(out[0]))
        self.end(self)

    def add_in_gaps(self, epoch: int64_t, out: cython.p_double, amount: Real) -> cython.void:
        """Add to the groups that had no item at an epoch. out (n_clocks,)."""
        for i in range(self.n_gaps):
            if self.gaps[self.n_gaps + i] <= epoch < self.gaps[2 * self.n_gaps + i]:
                out[cython.cast(Size, self.gaps[i])] += amount

    def read_groups(
        self,
        at: cython.p_double,
        over: cython.p_double,
        past: Real,
        opens: Real,
        out: cython.p_double,
    ) -> cython.void:
        """The averages of the groups, (n_groups,). at, over (n,): sums and clocks of the items;
        past: what is left of the clocks that the state has; opens: 1 with open decisions, else 0.
        """
        for j in range(self.n_groups):
            c = self.clock_of[j]
            paused = past * self.paused[c] + opens * self.paused[self.n_clocks + c]
            self.times[j] = max(over[self.first_of[j]] - paused, 1.0)
            out[j] = 0.0
        for b in range(self.n_by):
            for i in range(self.n_items):
                j = self.slots_of[b * self.n_items + i]
                if j >= 0:
                    out[j] += at[i] / self.times[j]

    def sum_members(self) -> cython.void:
        """The groups as the sums of the items of `z`."""
        for j in range(self.n_groups):
            self.z[self.n_seen + j] = 0.0
        for b in range(self.n_by):
            for i in range(self.n_seen - (self.n - self.n_items)):
                j = i if self.coordinates == cython.NULL else self.coordinates[i]
                slot = self.slots_of[b * self.n_items + j]
                if slot >= 0:
                    self.z[self.n_seen + slot] += self.z[i]

    def fold(self, lifted: cython.p_double, g: cython.p_double) -> cython.void:
        """The gradient (n_seen,) from that of items, rewards and groups (n_seen + n_groups,)."""
        memcpy(g, lifted, 8 * self.n_seen)
        for b in range(self.n_by):
            for i in range(self.n_seen - (self.n - self.n_items)):
                j = i if self.coordinates == cython.NULL else self.coordinates[i]
                slot = self.slots_of[b * self.n_items + j]
                if slot >= 0:
                    g[i] += lifted[self.n_seen + slot]

    # --- the direction ------------------------------------------------------------------------

    def compute_direction(self, normals: Matrix, g: OutVector) -> bool:
        """g = grad f_t(z), (n_seen,), and whether it is made of finite numbers.

        normals (samples, n_seen + 2): what randomised smoothing draws.
        """
        if g.shape[0] != self.n_seen or normals.shape[0] != self.samples:
            raise ValueError(f"room for {g.shape[0]} of {self.n_seen} coordinates")
        if self.samples > 0 and normals.shape[1] != self.n_seen + 2:
            raise ValueError(f"{normals.shape[1]} normal numbers, not {self.n_seen + 2}")
        self.begin(self)
        try:
            finite = self.direction(cython.address(normals[0, 0]), cython.address(g[0]))
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

    def stage_of(self, i: Size) -> Size:
        """The stage of reward i."""
        s: Size = 0
        while i >= self.starts[s + 1]:
            s += 1
        return s

    def answers(self, stages: int64_t) -> Real:
        """The smallest number of rewards averaged in over these stages, which are bits."""
        least = self.t[0]
        some: cython.bint = False
        for s in range(self.stages):
            if (stages >> s) & 1 and not (some and least <= self.t[s]):
                least, some = self.t[s], True
        return least

    def counted(self) -> Real:
        """How many decisions are answered or open, the smallest number over the stages."""
        least = self.t[0] + self.open[0].now
        for s in range(1, self.stages):
            least = min(least, self.t[s] + self.open[s].now)
        return least

    def average_seen(self, at: Reading, over: Reading) -> cython.void:
        """z from sums and clocks, (n,) each. Where there are several stages, a reward of which
        nothing is known or estimated yet is 0 clipped to its range.
        """
        if self.coordinates == cython.NULL:
            for i in range(self.n_seen):
                self.z[i] = at[i] / max(over[i], 1.0)
        else:
            for i in range(self.n_seen):
                j = self.coordinates[i]
                self.z[i] = at[j] / max(over[j], 1.0)
        for i in range(self.n_seen if self.stages > 1 else 0):
            j = i if self.coordinates == cython.NULL else self.coordinates[i]
            if over[j] == 0.0:
                self.z[i] = min(max(0.0, self.low[j]), self.high[j])

    def read_averages(
        self, at: cython.p_double, over: cython.p_double, past: Real, opens: Real
    ) -> cython.void:
        """z where f is read: `average_seen`, then the groups of items, see `read_groups`."""
        self.average_seen(at, over)
        self.read_groups(at, over, past, opens, self.z + self.n_seen)

    def past(self) -> Real:
        """What the open decisions leave of the sums over the answered ones."""
        return pow(self.keep, self.open[0].now) if self.keep < 1.0 else 1.0

    def with_open(self, at: cython.p_double, over: cython.p_double) -> cython.void:
        """Sums and clocks with the open decisions in them. at, over (n,)."""
        n, d, half = self.n, self.d, self.blocks * (self.d + 1)
        corrected = 0.0 if self.blocks > 0 else 1.0
        for s in range(self.stages):
            phi, psi = self.phi + 2 * s * half, self.psi + s * half
            past = pow(self.keep, self.open[s].now) if self.keep < 1.0 else 1.0
            unknown, answered = 0.0, 0.0
            for b in range(self.blocks):
                place = b * (d + 1) + d
                answered += psi[place]
                if psi[place] == 0.0:
                    unknown += phi[place] + phi[half + place]
            for i in range(self.starts[s], self.starts[s + 1]):
                r = i - (n - self.n_linear)
                if r < 0:  # estimates as they were recorded
                    weight = self.weights[i]
                    total = self.sums[i] + self.rest[i]
                    total = total + corrected * weight * self.answered[i]
                    total = max(total, weight * self.low[i])
                    total = min(total, weight * self.high[i])
                    at[i] = past * self.totals[i] + total
                    over[i] = past * self.clocks[i] + weight
                    continue
                weight = self.weights[i] - unknown  # estimates of the current model
                total = 0.0
                away = self.answered[i]
                for b in range(self.blocks):
                    if psi[b * (d + 1) + d] > 0.0:
                        theta = self.theta + (b * self.n_linear + r) * d
                        for j in range(d):
                            place = b * (d + 1) + j
                            total += theta[j] * (phi[place] + phi[half + place])
                            away -= theta[j] * psi[place]
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
        at, over, past, opens = self.totals, self.clocks, 1.0, 0.0
        t = self.age(self.counted())
        if not self.directed:
            for i in range(self.n_seen):
                g[i] = self.running[i if self.coordinates == cython.NULL else self.coordinates[i]]
            return True
        opened = 0.0
        for s in range(self.stages):
            opened += self.open[s].now
        if opened > 0.0:
            self.with_open(self.at, self.over)
            at, over, past, opens = self.at, self.over, self.past(), 1.0
        self.read_averages(at, over, past, opens)
        if self.start != cython.NULL:
            for i in range(self.n_seen):
                j = i if self.coordinates == cython.NULL else self.coordinates[i]
                if self.t[self.stage_of(j)] == 0.0:
                    self.z[i] = self.start[j]
            if self.t[0] == 0.0:
                self.sum_members()
        if self._gradient(t, normals, g):
            return True
        if self.samples > 0:
            return False
        self.read_averages(self.totals, self.clocks, 1.0, 0.0)
        for i in range(self.n_seen):
            j = i if self.coordinates == cython.NULL else self.coordinates[i]
            self.z[i] = min(max(self.z[i], self.low[j]), self.high[j])
        return self._gradient(t, normals, g)

    def _gradient(self, t: Real, normals: Doubles, g: cython.p_double) -> cython.bint:
        """The gradient at `z`; for randomised smoothing, its running average."""
        row, fresh, step = padded(self.n), self.spare, self.step(t)
        if self.samples == 0 and self.n_groups == 0:
            self.tree.own.call(cython.address(self.tree.own), self.z, step, g)
        elif self.samples == 0:
            self.tree.own.call(cython.address(self.tree.own), self.z, step, self.lifted)
            self.fold(self.lifted, g)
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
        if self.keep < 1.0:
            for i in range(self.n):
                self.weights[i] *= self.keep
                self.sums[i] *= self.keep
                self.rest[i] *= self.keep
            for i in range(2 * self.stages * self.blocks * (self.d + 1)):
                self.phi[i] *= self.keep
            for i in range(self.n_clocks):
                self.paused[self.n_clocks + i] *= self.keep
        self.add_in_gaps(self.epoch, self.paused + self.n_clocks, 1.0)
        for i in range(self.n):
            self.weights[i] += 1.0
        for s in range(self.stages):
            self.open[s].now += 1.0
            self.open[s].issued += 1.0

    def open_features(
        self, stage: Size, block: Size, x: Doubles, sign: Real, weight: Real
    ) -> cython.void:
        """phi += sign weight x for one block, whose last column counts decisions. x (d,)."""
        half: Size = self.blocks * (self.d + 1)
        high: cython.p_double = self.phi + 2 * stage * half + block * (self.d + 1)
        for j in range(self.d):
            add_exactly(high + j, high + half + j, sign * weight * x[j])
        add_exactly(high + self.d, high + half + self.d, sign * weight)

    def open_value(self, i: Size, value: Real) -> cython.void:
        """Add to the sum of the recorded estimates of reward i."""
        add_exactly(self.sums + i, self.rest + i, value)

    def is_open(self, stage: Size, head: cython.pointer[Head]) -> cython.bint:
        """Whether a decision counts as open in a stage, which is the caller's to know where it has
        been answered.
        """
        count = cython.address(self.open[stage])
        return self.counts_open and count.now > 0.0 and 0 <= head.place < count.issued

    def age_weight(self, place: int64_t) -> Real:
        """What the open decision that was the place-th to be made still weighs."""
        return pow(self.keep, self.open.issued - 1.0 - place) if self.keep < 1.0 else 1.0

    def close_one(self, stage: Size, first: Size, stop: Size, weight: Real) -> cython.void:
        """A decision of this weight is not open in a stage any more; its estimate has left the sums
        already. Coordinates from `first` to below `stop` joined after it.
        """
        count, half = cython.address(self.open[stage]), self.blocks * (self.d + 1)
        begin, end = self.starts[stage], self.starts[stage + 1]
        count.now -= 1.0
        if count.now <= 0.0:
            count.now = 0.0
            memset(self.weights + begin, 0, 8 * (end - begin))
            memset(self.sums + begin, 0, 8 * (end - begin))
            memset(self.rest + begin, 0, 8 * (end - begin))
            memset(self.phi + 2 * stage * half, 0, 16 * half)
            return
        for i in range(begin, end):
            if i < first or i >= stop:
                self.weights[i] = max(self.weights[i] - weight, 0.0)

    def correct(self, reward: Doubles, estimate: Doubles) -> cython.void:
        """Move the mean error of recorded estimates towards reward - estimate, (n,) each: a mean
        over all answers at first, over about the last 500 later.
        """
        self.open.answered += 1.0
        rate: Real = max(1.0 / self.open.answered, 1.0 / 500.0)
        for i in range(self.n):
            self.answered[i] += rate * (reward[i] - estimate[i] - self.answered[i])

    def answer_features(self, stage: Size, block: Size, x: Doubles, reward: Doubles) -> cython.void:
        """psi += x for one block, and its reward to the answered ones. x (d,), reward (n,)."""
        half: Size = self.blocks * (self.d + 1)
        begin, end = self.starts[stage], self.starts[stage + 1]
        psi: cython.p_double = self.psi + stage * half
        if self.keep < 1.0:
            for i in range(begin, end):
                self.answered[i] *= self.keep
            for i in range(half):
                psi[i] *= self.keep
        for i in range(begin, end):
            self.answered[i] += reward[i]
        psi += block * (self.d + 1)
        for i in range(self.d):
            psi[i] += x[i]
        psi[self.d] += 1.0

    def save_open(self) -> cython.void:
        """Keep what `restore_open` brings back."""
        self._copy_open(False)

    def restore_open(self) -> cython.void:
        """Open decisions as they were at `save_open`."""
        self._copy_open(True)

    def _copy_open(self, back: cython.bint) -> cython.void:
        """Copy the sums over open decisions to `saved`, or back."""
        counts = cython.cast(cython.p_double, self.open)
        to = copy_numbers(counts, self.saved, 3 * self.stages, back)
        to = copy_numbers(self.weights, to, self.n, back)
        to = copy_numbers(self.sums, to, self.n, back)
        to = copy_numbers(self.rest, to, self.n, back)
        to = copy_numbers(self.paused + self.n_clocks, to, self.n_clocks, back)
        copy_numbers(self.phi, to, 2 * self.stages * self.blocks * (self.d + 1), back)

    # --- an answer ----------------------------------------------------------------------------

    def known(self, reward: Doubles) -> int64_t:
        """The stages of which all rewards are known, as bits. reward (n,): NaN where unknown."""
        bits: int64_t = 0
        for s in range(self.stages):
            whole: cython.bint = True
            for i in range(self.starts[s], self.starts[s + 1]):
                whole = whole and reward[i] == reward[i]
            if whole:
                bits |= cython.cast(int64_t, 1) << s
        return bits

    def prepare_prices(self, stage: Size, reward: Doubles) -> cython.bint:
        """Before an answer is learnt: where the prices will move; False where a Python leaf failed,
        and nothing may be learnt.

        With several stages a price moves when the last stage that its row uses is answered: a row
        of one stage at the average of the answered, a row that mixes stages at z with the open
        decisions, so that all its rewards are of the same decisions. reward (n,): NaN where a
        reward of the decision is not known.
        """
        if self.priced is None:
            return True
        if self.stages == 1:
            self.read_averages(self.totals, self.clocks, 1.0, 0.0)
            return self.priced.read_gradients(self.z, self.age(self.t[0]))
        known = self.known(reward)
        now: int64_t = cython.cast(int64_t, 1) << stage
        memcpy(self.next_prices, self.prices, 8 * self.priced.n_prices)
        for k in range(self.priced.n_prices):
            uses = self.uses[k]
            first: cython.bint = True
            for i in range(k):
                first = first and self.uses[i] != uses
            if not (first and uses & now and uses & ~known == 0):
                continue
            if uses == now:
                self.read_averages(self.totals, self.clocks, 1.0, 0.0)
            else:
                self.with_open(self.at, self.over)
                self.read_averages(self.at, self.over, self.past(), 1.0)
            t = self.age(self.answers(uses))
            if not self.priced.read_gradients(self.z, t):
                return False
            for i in range(k, self.priced.n_prices):
                if self.uses[i] == uses:
                    self.next_prices[i] = self.priced.moved(i, t)
        return True

    def average(
        self, stage: Size, reward: Doubles, rho: Doubles, first: Size, stop: Size
    ) -> cython.void:
        """Average rho in, after prices have moved: totals, earned += rho, reward; t += 1.

        Averages are totals over clocks, so that coordinates with equal sums have equal averages and
        one that joined late is averaged over its own time. reward, rho (n,). Coordinates from
        `first` to below `stop` joined after the decision, which has nothing for them.
        """
        if self.priced is not None and self.stages == 1:
            self.priced.move(self.age(self.t[0]))
        elif self.priced is not None:
            memcpy(self.prices, self.next_prices, 8 * self.priced.n_prices)
        for i in range(self.starts[stage], self.starts[stage + 1]):
            if i < first or i >= stop:
                self.totals[i] = self.keep * self.totals[i] + rho[i]
                self.earned[i] = self.keep * self.earned[i] + reward[i]
                self.clocks[i] = self.keep * self.clocks[i] + 1.0
        if self.keep < 1.0 and stage == 0:
            for i in range(self.n_clocks):  # as the clock of the first item, which row 2 has
                item = cython.cast(Size, self.paused[2 * self.n_clocks + i])
                if item < first or item >= stop:
                    self.paused[i] *= self.keep
        self.t[stage] += 1.0
        if self.priced is not None and self.priced.is_due(self.t[stage]):
            self.read_averages(self.totals, self.clocks, 1.0, 0.0)
            self.priced.renew(self.z, self.age(self.t[stage]))

    def count_live(
        self, head: cython.pointer[Head], terms: Doubles, reward: Doubles
    ) -> cython.bint:
        """Count an answered decision for live numbers; whether a certificate is due.

        terms (4,): best, missed, spare and untried of the decision, all 0 in the first window;
        reward (n,). Decisions of an earlier window do not count: its certificate is forgotten.
        """
        now = self.window
        top, y, spare, untried = 0.0, 0.0, 0.0, 0.0
        if head.window == -1:
            if now.planned > FIRST_WINDOW:
                return False
        elif cython.cast(Real, head.window) != now.serial:
            return False
        else:
            top, y, spare, untried = terms[0], terms[1], terms[2], terms[3]
        for i in range(self.n_seen):
            r = reward[i if self.coordinates == cython.NULL else self.coordinates[i]]
            y += self.slope[i] * r
            self.rewards_seen[i] += r
        place = head.number // self.measured if head.number >= 0 else now.count
        if now.count == 0.0:
            now.first = place
            now.last = place
        now.first = min(now.first, place)
        now.last = max(now.last, place)
        now.count += 1.0
        now.top += min(top, now.cap)
        now.estimate += y
        now.spare += spare
        now.untried += untried
        now.batch += y
        now.batch_count += 1.0
        if now.batch_count * BATCHES_PLANNED >= now.planned:
            away = now.batch / now.batch_count - now.mean
            now.batches += 1.0
            now.mean += away / now.batches
            now.squares += away * away * (now.batches - 1.0) / now.batches
            now.batch = 0.0
            now.batch_count = 0.0
        gathered = CERTIFICATES if self.measured == 1 else 4
        return fmod(now.count, now.planned / gathered) == 0.0

    # --- the whole state ----------------------------------------------------------------------

    def fits(self, other: Engine) -> cython.bint:
        """Whether the states of two engines have the same sizes."""
        if self.n_fields != other.n_fields or self.samples != other.samples:
            return False
        for i in range(self.n_fields):
            own, their = cython.address(self.fields[i]), cython.address(other.fields[i])
            if own.size != their.size or own.rows != their.rows:
                return False
        return True

    def n_numbers(self) -> Size:
        """In all arrays of the state."""
        total: Size = 0
        for i in range(self.n_fields):
            total += self.fields[i].rows * self.fields[i].size
        return total

    def copy_state(self, buffer: cython.p_double, back: cython.bint) -> cython.p_double:
        """Copy the state to a buffer, or back; the end of its `n_numbers` doubles."""
        for i in range(self.n_fields):
            field = cython.address(self.fields[i])
            for row in range(field.rows):
                buffer = copy_numbers(field.data + row * field.stride, buffer, field.size, back)
        return buffer

    def copy_from(self, other: Engine) -> cython.void:
        """Make the state equal to that of another engine of the same plan."""
        for i in range(self.n_fields):
            own, their = cython.address(self.fields[i]), cython.address(other.fields[i])
            for row in range(own.rows):
                memcpy(own.data + row * own.stride, their.data + row * their.stride, 8 * own.size)


@cython.cclass
class Undo:
    """The record of all that a simulated round changes, for a rollback.

    It is needed only where prices move by functions in Python, which may fail when others have
    already learnt; everything else in a round that can fail does so before anything has changed.
    sums: the arrays that rounds add to, three views.
    """

    def __init__(
        self, engine: Engine, by: Engine, mailbox: Mailbox | None, sums: tuple[Any, Any, Any]
    ) -> None:
        size: Size = 0
        view: OutVector
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
        places: OutIntVector = slots
        self.numbers, self.slots = cython.address(view[0]), cython.address(places[0])

    def save(self) -> cython.void:
        """Record the state before a round."""
        if self.needed:
            self._copy(False)

    def rollback(self) -> cython.void:
        """Restore the state after a round that failed."""
        if self.needed:
            self._copy(True)

    def _copy(self, back: cython.bint) -> cython.void:
        buffer = self.by.copy_state(self.engine.copy_state(self.numbers, back), back)
        for i in range(3):
            buffer = copy_numbers(self.sums[i], buffer, self.sizes[i], back)
        if self.mailbox is not None:
            self.mailbox.copy_slots(self.slots, back)
