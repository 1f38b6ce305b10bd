"""`uninterrupted`: run a function to its end before an interrupt (Ctrl-C) is delivered."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def uninterrupted(
    work: Callable[[], T], wait: Callable[[threading.Event], None] | None = None
) -> T:
    """Do it in a separate thread while the caller waits.

    Python runs the handlers of signals in the main thread only, so that what they raise
    (KeyboardInterrupt, or anything else) cannot come between two lines of the work. It is raised
    here when the work is done. `wait` waits for the event in its own way, if it is given.

    >>> uninterrupted(lambda: 3)
    3
    """
    if wait is None and threading.current_thread() is not threading.main_thread():
        return work()
    claim, finished = threading.Lock(), threading.Event()
    done: list[T] = []
    failed: list[BaseException] = []

    def body() -> None:
        if not claim.acquire(blocking=False):
            return
        try:
            done.append(work())
        except BaseException as error:  # for the caller, who asked for the work
            failed.append(error)
        finally:
            finished.set()

    interrupt: BaseException | None = None
    started = False
    while not finished.is_set():
        try:
            if not started:
                # Twice, if an interrupt hides whether it was: the second finds the work claimed.
                _start(body)
                started = True
            if wait is None:
                finished.wait()
            else:
                wait(finished)
        except BaseException as error:  # from a handler
            interrupt = error
    if interrupt is not None:
        raise interrupt
    if failed:
        raise failed[0]
    return done[0]


def _start(body: Callable[[], None]) -> None:
    try:
        threading.Thread(target=body, name="fairwolfe").start()
    except RuntimeError:  # the interpreter is ending and starts no more threads
        body()
