# cython: language_level=3, infer_types=True
"""Averages, open decisions, directions and live numbers of a base that decides in Python."""

from __future__ import annotations

from typing import Any

import cython
from cython.cimports.fairwolfe.kernels.engine import Engine, Head
from cython.cimports.fairwolfe.kernels.types import OutMatrix, Real, Size, Vector
from cython.cimports.libc.string import memcpy

from fairwolfe.errors import InvalidInput


@cython.cclass
class Plain(Engine):
    """A state of a policy whose base is in Python: open decisions count by the estimates that
    their rows have recorded, corrected by the mean error of those that were answered.
    """

    def __init__(self, plan: Any, state: Any) -> None:
        Engine.__init__(self, plan, state)
        if self.blocks != 0 or self.stages != 1:
            raise ValueError(f"{self.blocks} blocks, {self.stages} stages for a base in Python")
        self.n_linear = 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _check(self, head: Head[::1], estimate: OutMatrix) -> cython.int:
        """Sizes of rows that may come from outside."""
        width: Size = self.n if self.counts_open else estimate.shape[1]
        if estimate.shape[0] != head.shape[0] or estimate.shape[1] > width:
            raise InvalidInput(
                f"{head.shape[0]} decisions with estimates ({estimate.shape[0]}, "
                f"{estimate.shape[1]}), not {self.n}"
            )
        return 0

    @cython.cfunc
    def _sum(
        self, estimate: OutMatrix, i: Size, sign: Real, weight: Real, first: Size, stop: Size
    ) -> cython.void:
        """Add an estimate to the sums of the open decisions, or take it out of them. Coordinates
        from `first` to below `stop` joined after it.
        """
        skip: Size = 0
        for j in range(self.n):
            if first <= j < stop:
                skip += 1
            elif j - skip < estimate.shape[1]:
                self.open_value(j, sign * weight * estimate[i, j - skip])

    def open_rows(self, rows: Any, force: cython.bint = False) -> None:
        """Count decisions as open, in their order; force: whether or not open decisions count."""
        head: Head[::1] = rows.head
        estimate: OutMatrix = rows.estimate
        self._check(head, estimate)
        self.begin(self)
        if self.counts_open or force:
            for i in range(head.shape[0]):
                self.open_one()
                self._sum(estimate, i, 1.0, 1.0, 0, 0)
        self.end(self)

    def withdraw(self, rows: Any, first: Size, stop: Size) -> None:
        """A decision that gets no answer is not open any more. Coordinates from `first` to below
        `stop` joined after it.
        """
        head: Head[::1] = rows.head
        estimate: OutMatrix = rows.estimate
        self._check(head, estimate)
        self.begin(self)
        if self.is_open(0, cython.address(head[0])):
            self._close(head, estimate, first, stop)
        self.end(self)

    @cython.cfunc
    def _close(self, head: Head[::1], estimate: OutMatrix, first: Size, stop: Size) -> cython.void:
        weight: Real = self.age_weight(head[0].place)
        self._sum(estimate, 0, -1.0, weight, first, stop)
        self.close_one(0, first, stop, weight)
        self.add_in_gaps(head[0].block, self.paused + self.n_clocks, -weight)

    def look_ahead(self, rows: Any, slots: int) -> None:
        """Before the answer to one decision is learnt: whether its columns have sizes that `settle`
        takes, and where the prices of hard constraints will move. A function of the user that fails
        raises here, and nothing has changed. slots: of a ranking, 0 for arms.
        """
        size = rows.head["size"].item(0)
        shapes = [column.shape[1:] for column in (rows.estimate, rows.g, rows.live)]
        wanted = ((0,), (size,)), ((0,), (size,)), ((2, 0), (2, slots))
        fits = all(shape in some for shape, some in zip(shapes, wanted, strict=True))
        if not (fits and slots < size <= self.n and (slots > 0 or size == self.n)):
            raise InvalidInput(
                f"the decision has {size} coordinates and columns of shapes {shapes}; the policy "
                f"has {self.n} coordinates and {slots} slots"
            )
        self.begin(self)
        try:
            self.prepare_prices(0, self.totals)  # of one stage, all is known
            self.check_callbacks()
        finally:
            self.end(self)

    def settle(
        self,
        rows: Any,
        reward: Vector,
        rho: Vector,
        followed: Vector,
        terms: Vector,
        joined: tuple[int, int],
    ) -> bool:
        """Average the answer to one decision in; whether a certificate of live numbers is due.

        reward, rho (n,): what was earned, and what is averaged; followed (n or 0,): the direction,
        where one is kept; terms (4,): what live numbers count; joined: (first, stop) of the
        coordinates that joined after the decision.
        """
        head: Head[::1] = rows.head
        estimate: OutMatrix = rows.estimate
        first: Size = joined[0]
        stop: Size = joined[1]
        n: Size = self.n
        self._check(head, estimate)
        if not (
            head.shape[0] == 1
            and reward.shape[0] == rho.shape[0] == n
            and (followed.shape[0] == 0 or followed.shape[0] == n)
            and terms.shape[0] == 4
        ):
            raise InvalidInput(
                f"{head.shape[0]} decisions, rewards {reward.shape[0]}, {rho.shape[0]}, direction "
                f"{followed.shape[0]}, terms {terms.shape[0]}"
            )
        self.begin(self)
        if self.is_open(0, cython.address(head[0])):
            self._close(head, estimate, first, stop)
            if estimate.shape[1] == n:
                self.correct(cython.address(reward[0]), cython.address(estimate[0, 0]))
        self.average(0, cython.address(reward[0]), cython.address(rho[0]), first, stop)
        self.add_in_gaps(head[0].block, self.paused, 1.0)
        if followed.shape[0] > 0:
            memcpy(self.running, cython.address(followed[0]), 8 * n)
        due = self.count_live(
            cython.address(head[0]), cython.address(terms[0]), cython.address(reward[0])
        )
        self.end(self)
        return due
