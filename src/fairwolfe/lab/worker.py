"""The other side of `local`: a process that plays the runs it is sent, one after the other.

Frames of MessagePack go over its standard input and output. Where the parent is gone, whatever
the reason, the input ends, and so does the worker: nothing is left behind.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, BinaryIO, NamedTuple

import msgspec

__all__ = ["Frames", "Why", "main"]

_EVERY = 0.25  # seconds between two messages of progress


class Why(NamedTuple):
    """Why a run failed: in a line, and all that is known."""

    reason: str
    details: str

    @classmethod
    def of(cls, error: BaseException) -> Why:
        """The type and the message of an error, and its traceback."""
        text = "".join(traceback.format_exception(error))
        return cls(" ".join(f"{type(error).__name__}: {error}".split()), text)


class Frames:
    """Values over a pipe, each behind its length."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream

    def send(self, value: Any) -> None:
        """Write a value whole."""
        data = msgspec.msgpack.encode(value)
        self.stream.write(struct.pack("<Q", len(data)) + data)
        self.stream.flush()

    def receive(self) -> Any:
        """The next value; EOFError if there is none, or only a part of one."""
        (size,) = struct.unpack("<Q", self._exactly(8))
        return msgspec.msgpack.decode(self._exactly(size))

    def _exactly(self, size: int) -> bytes:
        data = self.stream.read(size)
        if len(data) < size:
            raise EOFError
        return data


def main() -> None:
    """Play runs until the input ends."""
    # Where Ctrl-C reaches every process of a console: what is to be done is the parent's.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = Frames(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # what a class of the user's prints must not mix with the frames
    orders: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_listen, args=(Frames(sys.stdin.buffer), orders), daemon=True).start()

    from fairwolfe.lab.experiment import Run
    from fairwolfe.lab.runs import play

    out.send(["ready", None])
    while True:
        run = msgspec.convert(orders.get(), Run)
        try:
            out.send(["done", play(run, _throttled(lambda n: out.send(["rounds", n])))])
        except BrokenPipeError:
            os._exit(1)
        except BaseException as error:
            out.send(["failed", Why.of(error)])


def _listen(orders: Frames, queue: SimpleQueue[Any]) -> None:
    while True:
        try:
            queue.put(orders.receive())
        except (EOFError, OSError):
            # From a thread and at once: a run of hours must not outlive its parent.
            os._exit(0)


def _throttled(send: Callable[[int], None]) -> Callable[[int], None]:
    rounds, last = 0, time.monotonic()

    def tick(n: int) -> None:
        nonlocal rounds, last
        rounds += n
        now = time.monotonic()
        if now - last >= _EVERY:
            send(rounds)
            rounds, last = 0, now

    return tick
