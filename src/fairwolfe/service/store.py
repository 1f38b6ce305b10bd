"""What a store promises: rows of a log, numbered without holes, durable before `append` returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from fairwolfe.errors import FairwolfeError

__all__ = ["DISK_FAILED", "Base", "Outcomes", "Row", "Span", "Store", "StoreFailed", "SyncFailed"]


DISK_FAILED = 74  # exit code (EX_IOERR): unlike 2, a supervisor may start the service again


class StoreFailed(FairwolfeError):
    """Nothing was written: the disk is full, read-only or broken. It may work again later."""


class SyncFailed(StoreFailed):
    """A sync failed. Whether the row will be there after a crash is unknown, and the system may
    report the next sync as done although it was not: the process has to end.
    """


class Row(NamedTuple):
    """A group of events."""

    seq: int
    clock: float
    payload: bytes


class Span(NamedTuple):
    """Decisions of a model that a row holds, from number `first` to below `stop`."""

    model: int
    first: int
    stop: int


class Outcomes(NamedTuple):
    """What had come for decisions when their windows ended, from `first` to below `stop`."""

    model: int
    first: int
    stop: int
    data: bytes


class Base(NamedTuple):
    """Where the log of a model begins since older rows were deleted: the row of its snapshot, and
    the number of the first decision that is still in the log.
    """

    seq: int
    first: int


class Store(Protocol):
    """One writer, one reader: the core."""

    token: str
    """Of the store: ids begin with it."""

    deleted: int
    """Rows up to this one were deleted after an export, except those that are still needed."""

    bases: dict[int, Base]
    """By model, where rows were deleted."""

    def append(
        self,
        clock: float,
        payload: bytes,
        spans: Sequence[Span] = (),
        outcomes: Sequence[Outcomes] = (),
        starts: Sequence[int] = (),
    ) -> int:
        """Write a row, durably, with what makes it easy to find (starts: models that begin with
        it); its seq. `StoreFailed`, and then nothing was written.
        """

    def starts(self) -> dict[int, Row]:
        """The rows that models begin with, by model."""

    def rows(self, after: int) -> Iterator[Row]:
        """The rows with a seq above, in order; IncompatibleState where one is damaged or lost."""

    def row(self, seq: int) -> tuple[float, bytes]:
        """The clock and the payload of a row."""

    def last(self) -> tuple[int, float]:
        """The seq and the clock of the last row; (0, 0.) where there is none."""

    def snapshot(self, model: int, seq: int, data: bytes) -> None:
        """Keep the state of a model after a row; the one before stays too, older ones go."""

    def snapshots(self, model: int) -> list[tuple[int, bytes | None]]:
        """(seq, state) of a model, newest first; None for one that is damaged."""

    def row_of(self, model: int, number: int) -> tuple[int, Row] | None:
        """The first number of the row that holds a decision, and the row."""

    def outcome_of(self, model: int, number: int) -> tuple[int, bytes] | None:
        """Of a decision whose window has ended: the first number kept with it, and the bytes."""

    def note(self, model: int, clock: float, point: bytes) -> None:
        """Keep a point of the history of a model; every other one goes when there are many."""

    def history(self, model: int) -> list[tuple[float, bytes]]:
        """The points that are kept, in order."""

    def close(self) -> None:
        """Let go of the files."""
