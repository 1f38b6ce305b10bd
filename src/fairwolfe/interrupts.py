"""Work that Ctrl-C cannot tear: it is done whole, then the interrupt is delivered."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["uninterrupted"]

T = TypeVar("T")


def uninterrupted(work: Callable[[], T]) -> T:
    """Do it in a thread of its own while the main thread waits.

    Python runs the handlers of signals in the main thread only, so that what they raise
    (KeyboardInterrupt, or anything else) cannot come between two lines of the work. It is raised
    here when the work is done.

    >>> uninterrupted(lambda: 3)
    3
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.extend((work(), None))
        except BaseException as error:  # of the work itself, for whoever asked for it
            outcome.extend((None, error))

    thread = threading.Thread(target=run, name="fairwolfe", daemon=True)
    interrupt: BaseException | None = None
    thread.start()
    while thread.is_alive():
        try:
            thread.join()
        except BaseException as error:  # from a handler
            interrupt = error
    result, failure = outcome
    if interrupt is not None:
        raise interrupt from failure
    if failure is not None:
        raise failure
    return result  # type: ignore[no-any-return]
