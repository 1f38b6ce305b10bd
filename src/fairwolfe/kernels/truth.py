# cython: language_level=3, infer_types=True
"""The best average of a world with rankings, in steps for every user."""

from __future__ import annotations

from typing import Any

import cython
import numpy as np

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

    def __init__(
        self,
        world: CompiledRankingWorld,
        shares: Vector,
        kept: Size,
        matrix: tuple[Any, Any, Any],
        rows: Size,
    ) -> None:
        own = cython.address(world.own)
        starts: IntVector = matrix[0]
        places: IntVector = matrix[1]
        entries: Vector = matrix[2]
        n, m, k = own.rewards, own.items_n, own.slots
        if self.arrays is not None:
            raise ValueError("mixtures are made once")
        if not (shares.shape[0] == own.users and kept > 0 and rows > 0):
            raise ValueError(f"{shares.shape[0]} shares of {own.users} users, {kept} rankings each")
        if starts.shape[0] != m + n + 1 or entries.shape[0] != places.shape[0]:
            raise ValueError(f"A has {starts.shape[0] - 1} columns, and s {m + n} numbers")
        if starts[0] != 0 or starts[m + n] != places.shape[0] or np.any(np.diff(matrix[0]) < 0):
            raise ValueError("the columns of A do not have all its entries")
        if not within(matrix[1], rows):
            raise ValueError(f"A has entries outside of its {rows} rows")
        self.world, self.kept, self.rows = world, kept, rows
        self.rankings = np.zeros((own.users, kept, k), np.int64)
        self.masses = np.zeros((own.users, kept))
        self.earned = np.zeros((own.users, kept, n))
        ranking: int64_t[:, :, ::1] = self.rankings
        mass: OutMatrix = self.masses
        earned: OutTensor = self.earned
        # See `_sweep`.
        room: OutVector = np.empty(4 * rows + 3 * m + 3 * n + 2 * k + k * n)
        whole: OutIntVector = np.empty(rows + 3 * k + n, np.int64)
        self.arrays = (shares, starts, places, entries, ranking, mass, earned, room, whole)
        self.shares, self.starts = cython.address(shares[0]), cython.address(starts[0])
        self.places, self.entries = cython.address(places[0]), cython.address(entries[0])
        self.ranking, self.mass = cython.address(ranking[0, 0, 0]), cython.address(mass[0, 0])
        self.earning = cython.address(earned[0, 0, 0])
        self.room, self.whole = cython.address(room[0]), cython.address(whole[0])
        for u in range(own.users):
            for j in range(k):
                ranking[u, 0, j] = (u * k + j) % m
            mass[u, 0] = 1.0
            to = cython.address(earned[u, 0, 0])
            self.earn(cython.address(ranking[u, 0, 0]), u, self.room, to)

    def earn(self, ranking: Places, user: Size, means: Writing, out: Writing) -> cython.void:
        """The mean rewards of a ranking (k,), user-side, out (R,). means (k, R): scratch."""
        own = cython.address(self.world.own)
        n, weights = own.rewards, slot_weights(own, user)
        slot_means(own, ranking, user, means)
        for r in range(n):
            out[r] = 0.0
            for j in range(own.slots):
                out[r] = fma(weights[j], means[j * n + r], out[r])

    def height(self, ranking: Places, earned: Doubles, slope: Doubles, user: Size) -> Real:
        """<slope, mean reward of a ranking>. ranking (k,), earned (R,), slope (m + R,)."""
        own = cython.address(self.world.own)
        weights = slot_weights(own, user)
        total = 0.0
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
        own = cython.address(self.world.own)
        most = 2 * own.slots + own.rewards
        at, moved = self.whole, self.whole + most
        moves = changes + most
        total = moves + self.rows
        n_moved: Size = 0
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
        self, tree: Tree, users: IntVector, every: Size, shift: Vector, bend: Vector, y: OutVector
    ) -> float:
        """A step for each of the users; y follows. How much best rankings would have brought.

        tree: the gradient of F at y - shift, which is computed every so many steps; bend: a bound
        on the curvature by rows. users (steps,), shift, bend, y (rows,). A step costs the best of
        all rankings, (q R + 1) m, and the heights of those that are kept.
        """
        missing = 0.0
        if not (shift.shape[0] == bend.shape[0] == y.shape[0] == self.rows and every > 0):
            raise ValueError(f"shift, bend and y have {self.rows} numbers each; every is {every}")
        if not within(users, self.world.own.users):
            raise ValueError(f"a user that is none of {self.world.own.users}")
        if users.shape[0] == 0:
            return 0.0
        tree.acquire(self.rows)
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
        users: Places,
        n_steps: Size,
        every: Size,
        shift: Doubles,
        bend: Doubles,
        y: Writing,
    ) -> Real:
        """See `sweep`."""
        own = cython.address(self.world.own)
        m, n, k, kept, rows = own.items_n, own.rewards, own.slots, self.kept, self.rows
        most = 2 * k + n
        # room: changes (2 k + R), moves, zeros (rows); z, g (rows); slope (m + R); new (R);
        # means, scores (m); of slots (k, R). whole: places (2 k + R), moved (rows), best (k).
        changes = self.room
        moves = changes + most
        total = moves + rows
        z = total + rows
        g = z + rows
        slope = g + rows
        new = slope + m + n
        means = new + n
        scores = means + m
        slots = scores + m
        places = self.whole
        moved = places + most
        best = moved + rows
        missing, low, high = 0.0, 0.0, 0.0
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
            weights = slot_weights(own, u)
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
            full: cython.bint = target < 0 and free_one < 0
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

    def average(self, out: OutVector) -> None:
        """The average reward vector of all users (m + R,); masses first sum to 1 again."""
        own = cython.address(self.world.own)
        n, m, k = own.rewards, own.items_n, own.slots
        if out.shape[0] != m + n:
            raise ValueError(f"the average has {m + n} numbers, not {out.shape[0]}")
        with cython.nogil:
            for i in range(m + n):
                out[i] = 0.0
            for u in range(own.users):
                weights = slot_weights(own, u)
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
        own = cython.address(self.world.own)
        n, k = own.rewards, own.slots
        out = np.zeros((own.items_n, 1 + n))
        to: OutMatrix = out
        with cython.nogil:
            for u in range(own.users):
                weights = slot_weights(own, u)
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
