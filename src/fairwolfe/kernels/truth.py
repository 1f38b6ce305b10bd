# cython: language_level=3
"""The best average of a world with rankings, in steps for every user."""

from __future__ import annotations

from typing import Any

import cython
import numpy as np
from cython.cimports.fairwolfe.kernels.gradients import Tree
from cython.cimports.fairwolfe.kernels.mixtures import lend
from cython.cimports.fairwolfe.kernels.ranks import (
    RankingArrays,
    RankingWorld,
    best_ranking,
    slot_means,
)
from cython.cimports.fairwolfe.kernels.types import Real, Size
from cython.cimports.libc.math import fma
from cython.cimports.libc.stdint import int64_t
from cython.cimports.libc.stdlib import free, malloc

if not cython.compiled:
    raise ImportError("the kernels are not built; run `make build`")

__all__ = ["RankingMixtures"]


@cython.cclass
class RankingMixtures:
    """A mixture of rankings for every user, and steps that raise a concave function of the average.

    world: the rewards; shares (users,): of every user in the average s (m + R,): exposures of the
    items, then rewards; kept: how many rankings each user may mix; matrix: A of y = A s by columns:
    where each begins (m + R + 1,), rows and values (entries,), of `rows` rows.

    At first every user has one ranking, such that the items take turns: all are shown about as
    often.
    """

    world: RankingWorld
    rankings: Any
    masses: Any
    earned: Any
    arrays: tuple[Any, ...]
    kept: Size
    rows: Size
    shares: cython.pointer[cython.const[cython.double]]
    ranking: cython.pointer[int64_t]
    mass: cython.p_double
    earning: cython.p_double
    starts: cython.pointer[cython.const[int64_t]]
    places: cython.pointer[cython.const[int64_t]]
    entries: cython.pointer[cython.const[cython.double]]
    room: cython.p_double
    whole: cython.pointer[int64_t]

    def __cinit__(self) -> None:
        self.room = cython.NULL
        self.whole = cython.NULL

    def __init__(
        self,
        world: RankingWorld,
        shares: cython.const[cython.double][::1],  # type: ignore[valid-type]
        kept: Size,
        matrix: tuple[Any, Any, Any],
        rows: Size,
    ) -> None:
        own: cython.pointer[RankingArrays] = cython.address(world.own)
        starts: cython.const[int64_t][::1] = matrix[0]  # type: ignore[valid-type]
        places: cython.const[int64_t][::1] = matrix[1]  # type: ignore[valid-type]
        entries: cython.const[cython.double][::1] = matrix[2]  # type: ignore[valid-type]
        n: Size = own.rewards
        m: Size = own.items_n
        k: Size = own.slots
        columns: Size = m + n
        u: Size
        j: Size
        if self.room != cython.NULL:
            raise ValueError("mixtures are made once")
        if not (shares.shape[0] == own.users and kept > 0 and rows > 0):
            raise ValueError(f"{shares.shape[0]} shares of {own.users} users, {kept} rankings each")
        if starts.shape[0] != columns + 1 or entries.shape[0] != places.shape[0]:
            raise ValueError(f"A has {starts.shape[0] - 1} columns, and s {columns} numbers")
        if starts[0] != 0 or starts[columns] != places.shape[0]:
            raise ValueError("the columns of A do not have all its entries")
        for j in range(columns):
            if starts[j] > starts[j + 1]:
                raise ValueError(f"column {j} of A ends before it begins")
        for j in range(places.shape[0]):
            if not 0 <= places[j] < rows:
                raise ValueError(f"row {places[j]} of A, which has {rows}")
        self.world = world
        self.kept = kept
        self.rows = rows
        self.rankings = np.zeros((own.users, kept, k), np.int64)
        self.masses = np.zeros((own.users, kept))
        self.earned = np.zeros((own.users, kept, n))
        ranking: int64_t[:, :, ::1] = self.rankings
        mass: cython.double[:, ::1] = self.masses
        earned: cython.double[:, :, ::1] = self.earned
        self.arrays = (shares, starts, places, entries, ranking, mass, earned)
        self.shares = cython.address(shares[0])
        self.ranking = cython.address(ranking[0, 0, 0])
        self.mass = cython.address(mass[0, 0])
        self.earning = cython.address(earned[0, 0, 0])
        self.starts = cython.address(starts[0])
        self.places = cython.NULL
        self.entries = cython.NULL
        if places.shape[0] > 0:
            self.places = cython.address(places[0])
            self.entries = cython.address(entries[0])
        # See `sweep`.
        self.room = cython.cast(
            cython.p_double, malloc(8 * (4 * rows + 3 * m + 3 * n + 2 * k + k * n))
        )
        self.whole = cython.cast(cython.pointer[int64_t], malloc(8 * (rows + 3 * k + n)))
        if self.room == cython.NULL:
            raise MemoryError
        if self.whole == cython.NULL:
            raise MemoryError
        for u in range(own.users):
            for j in range(k):
                ranking[u, 0, j] = (u * k + j) % m
            mass[u, 0] = 1.0
            self.earn(
                cython.address(ranking[u, 0, 0]), u, self.room, cython.address(earned[u, 0, 0])
            )

    def __dealloc__(self) -> None:
        free(self.room)
        free(self.whole)

    def earn(
        self,
        ranking: cython.pointer[cython.const[int64_t]],
        user: Size,
        means: cython.p_double,
        out: cython.p_double,
    ) -> cython.void:
        """The mean rewards of a ranking (k,), user-side, out (R,). means (k, R): scratch."""
        own: cython.pointer[RankingArrays] = cython.address(self.world.own)
        n: Size = own.rewards
        weights: cython.pointer[cython.const[cython.double]] = own.weights
        j: Size
        r: Size
        if own.weights_n > 1:
            weights += user * own.slots
        slot_means(own, ranking, user, means)
        for r in range(n):
            out[r] = 0.0
            for j in range(own.slots):
                out[r] = fma(weights[j], means[j * n + r], out[r])

    def height(
        self,
        ranking: cython.pointer[cython.const[int64_t]],
        earned: cython.pointer[cython.const[cython.double]],
        slope: cython.pointer[cython.const[cython.double]],
        user: Size,
    ) -> cython.double:
        """<slope, mean reward of a ranking>. ranking (k,), earned (R,), slope (m + R,)."""
        own: cython.pointer[RankingArrays] = cython.address(self.world.own)
        weights: cython.pointer[cython.const[cython.double]] = own.weights
        total: Real = 0.0
        j: Size
        r: Size
        if own.weights_n > 1:
            weights += user * own.slots
        for j in range(own.slots):
            total = fma(weights[j], slope[ranking[j]], total)
        for r in range(own.rewards):
            total = fma(slope[own.items_n + r], earned[r], total)
        return total

    def image(self, n: Size, changes: cython.p_double) -> Size:
        """The rows of A s that move when s changes at n places, how much, and how many.

        whole: the places (n,), then the rows that move (rows,). changes: (n,), then the moves
        (rows,), then zeros (rows,).
        """
        own: cython.pointer[RankingArrays] = cython.address(self.world.own)
        most: Size = 2 * own.slots + own.rewards
        at: cython.pointer[int64_t] = self.whole
        moved: cython.pointer[int64_t] = at + most
        moves: cython.p_double = changes + most
        total: cython.p_double = moves + self.rows
        n_moved: Size = 0
        j: Size
        e: Size
        row: Size
        for j in range(n):
            for e in range(self.starts[at[j]], self.starts[at[j] + 1]):
                row = self.places[e]
                total[row] = fma(self.entries[e], changes[j], total[row])
        for j in range(n):
            for e in range(self.starts[at[j]], self.starts[at[j] + 1]):
                row = self.places[e]
                if total[row] != 0.0:
                    moved[n_moved] = row
                    moves[n_moved] = total[row]
                    n_moved += 1
                    total[row] = 0.0
        return n_moved

    def sweep(
        self,
        tree: Tree,
        users: cython.const[int64_t][::1],  # type: ignore[valid-type]
        every: Size,
        shift: cython.const[cython.double][::1],  # type: ignore[valid-type]
        bend: cython.const[cython.double][::1],  # type: ignore[valid-type]
        y: cython.double[::1],
    ) -> float:
        """A step for each of the users; y follows. How much best rankings would have brought.

        tree: the gradient of F at y - shift, which is computed every so many steps; bend: a bound
        on the curvature by rows. users (steps,), shift, bend, y (rows,). A step costs the best of
        all rankings, (q R + 1) m, and the heights of those that are kept.
        """
        i: Size
        missing: Real = 0.0
        if not (shift.shape[0] == bend.shape[0] == y.shape[0] == self.rows and every > 0):
            raise ValueError(f"shift, bend and y have {self.rows} numbers each; every is {every}")
        for i in range(users.shape[0]):
            if not 0 <= users[i] < self.world.own.users:
                raise ValueError(f"user {users[i]} of {self.world.own.users}")
        if users.shape[0] == 0:
            return 0.0
        lend(tree, self.rows)
        try:
            with cython.nogil:
                missing = self._sweep(
                    tree,
                    cython.address(users[0]),
                    users.shape[0],
                    every,
                    cython.address(shift[0]),
                    cython.address(bend[0]),
                    cython.address(y[0]),
                )
        finally:
            tree.busy = False
        tree.raise_failure()
        return missing

    def _sweep(
        self,
        tree: Tree,
        users: cython.pointer[cython.const[int64_t]],
        n_steps: Size,
        every: Size,
        shift: cython.pointer[cython.const[cython.double]],
        bend: cython.pointer[cython.const[cython.double]],
        y: cython.p_double,
    ) -> cython.double:
        """See `sweep`."""
        own: cython.pointer[RankingArrays] = cython.address(self.world.own)
        m: Size = own.items_n
        n: Size = own.rewards
        k: Size = own.slots
        kept: Size = self.kept
        rows: Size = self.rows
        most: Size = 2 * k + n
        # room: changes (2 k + R), moves, zeros (rows); z, g (rows); slope (m + R); new (R);
        # means, scores (m); of slots (k, R). whole: places (2 k + R), moved (rows), best (k).
        changes: cython.p_double = self.room
        moves: cython.p_double = changes + most
        total: cython.p_double = moves + rows
        z: cython.p_double = total + rows
        g: cython.p_double = z + rows
        slope: cython.p_double = g + rows
        new: cython.p_double = slope + m + n
        means: cython.p_double = new + n
        scores: cython.p_double = means + m
        slots: cython.p_double = scores + m
        places: cython.pointer[int64_t] = self.whole
        moved: cython.pointer[int64_t] = places + most
        best: cython.pointer[int64_t] = moved + rows
        mine: cython.pointer[int64_t]
        mass: cython.p_double
        earned: cython.p_double
        weights: cython.pointer[cython.const[cython.double]]
        turn: Size
        u: Size
        i: Size
        j: Size
        v: Size
        e: Size
        r: Size
        worst: Size
        first: Size
        least: Size
        target: Size
        free_one: Size
        source: Size
        alike: Size
        n_moved: Size
        full: cython.bint
        missing: Real = 0.0
        low: Real = 0.0
        high: Real = 0.0
        top: Real
        now: Real
        height: Real
        gain: Real
        curvature: Real
        step: Real
        share: Real
        for i in range(rows):
            total[i] = 0.0
        for turn in range(n_steps):
            if turn % every == 0:
                for i in range(rows):
                    z[i] = y[i] - shift[i]
                tree.own.call(cython.address(tree.own), z, 1.0, g)
                if tree.has_failed():
                    return missing
                for i in range(m + n):
                    slope[i] = 0.0
                    for e in range(self.starts[i], self.starts[i + 1]):
                        slope[i] = fma(self.entries[e], g[self.places[e]], slope[i])
            u = users[turn]
            share = self.shares[u]
            weights = own.weights + (u if own.weights_n > 1 else 0) * k
            mine = self.ranking + u * kept * k
            mass = self.mass + u * kept
            earned = self.earning + u * kept * n
            best_ranking(own, slope, u, means, scores, best)
            self.earn(best, u, slots, new)
            top = self.height(best, new, slope, u)
            worst, first, least, target, free_one = -1, -1, -1, -1, -1
            now = 0.0
            for v in range(kept):
                if mass[v] == 0.0:
                    free_one = v
                    continue
                height = self.height(mine + v * k, earned + v * n, slope, u)
                now = fma(mass[v], height, now)
                if worst < 0 or height < low:
                    worst, low = v, height
                if first < 0 or height > high:
                    first, high = v, height
                if least < 0 or mass[v] < mass[least]:
                    least = v
                alike = 0
                while alike < k and mine[v * k + alike] == best[alike]:
                    alike += 1
                if alike == k:
                    target = v
            missing = fma(share, top - now, missing)
            if target < 0 and free_one < 0 and high - low > 0.5 * (top - low):
                target, top = first, high  # no room, and one that is kept is nearly as good
                for i in range(k):
                    best[i] = mine[first * k + i]
                for i in range(n):
                    new[i] = earned[first * n + i]
            full = target < 0 and free_one < 0
            source = least if full else worst
            gain = share * (top - low)
            if target == source or gain <= 0.0:
                continue
            for j in range(k):
                places[j] = best[j]
                changes[j] = share * weights[j]
                places[k + j] = mine[source * k + j]
                changes[k + j] = -share * weights[j]
            for r in range(n):
                places[2 * k + r] = m + r
                changes[2 * k + r] = share * (new[r] - earned[source * n + r])
            n_moved = self.image(most, changes)
            curvature = 0.0
            for i in range(n_moved):
                curvature = fma(bend[moved[i]] * moves[i], moves[i], curvature)
            step = mass[source]
            if full:  # the ranking of least mass makes room, which cannot do much harm
                target = source
            else:
                if curvature * step > gain:
                    step = gain / curvature
                if target < 0:
                    target = free_one
                mass[source] -= step
                mass[target] += step
            for j in range(k):
                mine[target * k + j] = best[j]
            for r in range(n):
                earned[target * n + r] = new[r]
            for i in range(n_moved):
                y[moved[i]] = fma(step, moves[i], y[moved[i]])
        return missing

    def average(self, out: cython.double[::1]) -> None:
        """The average reward vector of all users (m + R,); masses first sum to 1 again."""
        own: cython.pointer[RankingArrays] = cython.address(self.world.own)
        n: Size = own.rewards
        m: Size = own.items_n
        k: Size = own.slots
        u: Size
        v: Size
        i: Size
        j: Size
        r: Size
        at: Size
        share: Real
        whole: Real
        weights: cython.pointer[cython.const[cython.double]]
        if out.shape[0] != m + n:
            raise ValueError(f"the average has {m + n} numbers, not {out.shape[0]}")
        with cython.nogil:
            for i in range(m + n):
                out[i] = 0.0
            for u in range(own.users):
                weights = own.weights + (u if own.weights_n > 1 else 0) * k
                whole = 0.0
                for v in range(self.kept):
                    whole += self.mass[u * self.kept + v]
                for v in range(self.kept):
                    at = u * self.kept + v
                    self.mass[at] /= whole
                    share = self.shares[u] * self.mass[at]
                    if share > 0.0:
                        for j in range(k):
                            out[self.ranking[at * k + j]] += share * weights[j]
                        for r in range(n):
                            out[m + r] += share * self.earning[at * n + r]

    def by_item(self) -> Any:
        """What every item has of the average: its exposure, then the user-side rewards that it
        earns, (m, 1 + R).
        """
        own: cython.pointer[RankingArrays] = cython.address(self.world.own)
        n: Size = own.rewards
        k: Size = own.slots
        u: Size
        v: Size
        j: Size
        r: Size
        at: Size
        item: Size
        share: Real
        weights: cython.pointer[cython.const[cython.double]]
        out = np.zeros((own.items_n, 1 + n))
        to: cython.double[:, ::1] = out
        with cython.nogil:
            for u in range(own.users):
                weights = own.weights + (u if own.weights_n > 1 else 0) * k
                for v in range(self.kept):
                    at = u * self.kept + v
                    share = self.shares[u] * self.mass[at]
                    if share > 0.0:
                        slot_means(own, self.ranking + at * k, u, self.room)
                        for j in range(k):
                            item = self.ranking[at * k + j]
                            to[item, 0] += share * weights[j]
                            for r in range(n):
                                to[item, 1 + r] += share * weights[j] * self.room[j * n + r]
        return out
