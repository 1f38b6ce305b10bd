"""What the service writes for those who run it: one line of JSON for each event, on stderr.

Lines have names, counts, rows and versions. They never have features, bodies, rewards or keys: of
an exception its type and where it was raised are written, not its message, which may quote them,
and for messages of other modules only their place.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, TextIO

from fairwolfe.service.events import Event, ItemsAdded, ItemsRetired, ObjectiveReplaced
from fairwolfe.service.model import Model

__all__ = ["changed", "say", "stopped", "write_as_json"]

logger = logging.getLogger("fairwolfe.service")

_FRAMES = 12  # of a traceback, the innermost
_OTHERS = ("fairwolfe", "asyncio")


def say(event: str, message: str, level: int = logging.INFO, **facts: Any) -> None:
    """A line: what happened in one word, in a sentence, and in numbers."""
    logger.log(level, message, extra={"facts": {"event": event, **facts}})


def stopped(model: Model, error: Exception, seq: int) -> None:
    """A model is stopped: nothing more is decided by it or learnt from."""
    facts = {"model": model.name, "seq": seq, "reason": type(error).__name__, "at": _frames(error)}
    say("model_stopped", f"model {model.name!r} is stopped", logging.ERROR, **facts)


def changed(who: str, model: Model, event: Event) -> None:
    """An audit line: somebody has changed the items or the objective of a model."""
    facts: dict[str, Any] = {"who": who or None, "model": model.name, "version": model.version}
    match event:
        case ItemsAdded(keys=keys):
            facts |= {"items": len(keys)}
            say("items_added", f"{len(keys)} items of {model.name!r} were added", **facts)
        case ItemsRetired(keys=keys):
            facts |= {"items": len(keys)}
            say("items_retired", f"{len(keys)} items of {model.name!r} were retired", **facts)
        case ObjectiveReplaced():
            say("objective_replaced", f"the objective of {model.name!r} was replaced", **facts)


class Lines(logging.Formatter):
    """A record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; a message only where the service itself has written it."""
        own = record.name == logger.name
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "event": "failed" if record.exc_info else "said",
            "message": record.getMessage() if own else f"{record.name} says something",
        }
        if not own:
            line["at"] = [f"{record.filename}:{record.lineno} {record.funcName}"]
        line |= getattr(record, "facts", {})
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line |= {"reason": type(error).__name__, "at": _frames(error)}
        return json.dumps(line)


def _frames(error: BaseException) -> list[str]:
    """Where an error was raised, innermost last."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    return [f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in frames]


def write_as_json() -> None:
    """From now on the service and what it runs on write such lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    for name in (logger.name, *_OTHERS):
        one = logging.getLogger(name)
        one.handlers = [handler]
        one.setLevel(logging.INFO if one is logger else logging.WARNING)
        one.propagate = False
    warnings.showwarning = _warned


def _warned(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    where = f"{Path(filename).name}:{lineno}"
    say("warned", f"Python warns: {category.__name__}", logging.WARNING, at=[where])
