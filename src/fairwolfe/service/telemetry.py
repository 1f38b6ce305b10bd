"""Metrics and log lines: what the service counts for Prometheus, and what it writes as JSON.

While requests are served, metrics are additions only. A log line is an event, a sentence and its
facts; docs/operations.md lists them.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import traceback
import warnings
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairwolfe.service.events import Event, ItemsAdded, ItemsRetired
from fairwolfe.service.model import Model

if TYPE_CHECKING:
    from fairwolfe.service.core import Core

logger = logging.getLogger("fairwolfe.service")

_SECONDS = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5)
_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
_OVERLOAD = frozenset({408, 413, 429, 431, 503})
_GROUPS = 50  # of items by one attribute, those with the most exposure
_FRAMES = 12  # of a traceback, the innermost
_OTHERS = ("fairwolfe", "asyncio")


# --- metrics -----------------------------------------------------------------------------------


class Histogram:
    """Counts by bucket, and the sum."""

    def __init__(self, bounds: Sequence[float] = _SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def note(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, int]]:
        """(upper bound, how many up to it)."""
        return list(zip((*map(repr, self.bounds), "+Inf"), accumulate(self.counts), strict=True))


class Metrics:
    """What the service counts besides what its models know."""

    def __init__(self, replayed: int = 0) -> None:
        self.received: Counter[str] = Counter()  # by route
        self.answered: Counter[tuple[str, int]] = Counter()  # by route and status
        self.gone: Counter[str] = Counter()  # by route: nobody waited for the answer any more
        self.under_way = 0
        self.rejected: Counter[str] = Counter()  # by reason
        self.repeated = 0  # decides whose request_id was known
        self.unwritten = 0  # rows and snapshots that could not be written
        self.replayed = replayed  # records, at the start
        self.groups = Histogram(_SIZES)
        self.commits = Histogram()
        self.folds = Histogram()
        self.snapshots = Histogram()
        self.requests = Histogram()

    def begin(self, route: str) -> None:
        """A request has come."""
        self.received[route] += 1
        self.under_way += 1

    def end(self, route: str, status: int, seconds: float) -> None:
        """A request has been answered; status 0: nobody waited any more."""
        self.under_way -= 1
        if status:
            self.answered[route, status] += 1
            self.requests.note(seconds)
        else:
            self.gone[route] += 1

    def refuse(self, status: int, error: str) -> None:
        """A request is rejected; those that are not wrong, but too much, are counted by reason."""
        if status in _OVERLOAD:
            self.rejected[error] += 1


_BY_STAGE: dict[
    str, tuple[str, Callable[[Model, int], int]]
] = {  # where rewards arrive in stages, decisions of each
    "joined": ("Decisions with feedback", lambda model, stage: model.joined[stage]),
    "expired": ("Decisions without feedback", lambda model, stage: model.expired[stage]),
    "open": ("Decisions within their window", lambda model, stage: model.ring.open_in(stage)),
}
_COUNTED = {
    "known": "Entries of feedback that added nothing new",
    "late": "Entries after the window",
    "unknown": "Entries for no decision",
    "conflict": "Entries with other numbers",
}
_GAUGES: dict[str, tuple[str, Callable[[Model], float | None]]] = {
    "later": (
        "Decisions that wait for a later stage alone",
        lambda model: model.ring.closed - model.ring.first if len(model.stages) > 1 else None,
    ),
    "value": ("f of the average", lambda model: model.value),
    "t": ("Decisions learnt from", lambda model: model.t),
    "stopped": ("Whether the model is stopped", lambda model: float(bool(model.stopped))),
    "out_of_range": (
        "Rewards out of their range",
        lambda model: None if model.agent is None else model.agent.out_of_range,
    ),
    "drift": (
        "Of the kept inverse, at its last refresh",
        lambda model: None if model.agent is None else model.agent.drift,
    ),
}


def largest_groups(groups: dict[str, float]) -> dict[str, float]:
    """The groups with the most exposure, and "" for the others together.

    >>> found = largest_groups({f"maker {i}": float(i) for i in range(60)})
    >>> len(found), found["maker 59"], found[""]
    (51, 59.0, 45.0)
    """
    ordered = sorted(groups.items(), key=lambda group: -group[1])
    rest = ordered[_GROUPS:]
    return dict(ordered[:_GROUPS]) | ({"": sum(x for _, x in rest)} if rest else {})


class _Collector:
    """What Prometheus reads: `collect` yields every family, as it is now."""

    def __init__(self, core: Core, models: Iterable[Model]) -> None:
        self.core, self.models = core, models

    def collect(self) -> Iterable[Any]:
        """Counters and gauges by model, those of the service, requests, histograms."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        def family(kind: Any, name: str, about: str, labels: str, values: dict[Any, Any]) -> Any:
            """A family with a value for each combination of labels."""
            made = kind(f"fairwolfe_{name}", about, labels=labels.split())
            for key, value in values.items():
                if value is not None:
                    made.add_metric([str(part) for part in key], value)
            return made

        core, metrics = self.core, self.core.metrics
        models = {(model.name,): model for model in self.models}
        made = {key: model.decisions for key, model in models.items()}
        yield family(CounterMetricFamily, "decisions", "Decisions made", "model", made)
        for name, (about, count) in _BY_STAGE.items():
            kind = GaugeMetricFamily if name == "open" else CounterMetricFamily
            staged = {
                (*key, *([",".join(names)] if len(model.stages) > 1 else [])): count(model, s)
                for key, model in models.items()
                for s, names in enumerate(model.stages)
            }
            yield family(kind, name, about, "model stage", staged)
        for name, about in _COUNTED.items():
            counts = {key: model.counts[name] for key, model in models.items()}
            yield family(CounterMetricFamily, name, about, "model", counts)
        shares = {
            (name, by, group): exposure
            for (name,), model in models.items()
            for by, groups in model.groups().items()
            for group, exposure in largest_groups(groups).items()
        }
        about = "Exposures of a group of items, a decision"
        yield family(GaugeMetricFamily, "group_exposure", about, "model by group", shares)
        for name, (about, read) in _GAUGES.items():
            gauges = {key: read(model) for key, model in models.items()}
            yield family(GaugeMetricFamily, name, about, "model", gauges)
        for name, about, value in (
            ("waiting", "Requests that wait for their group", core.waiting),
            ("waiting_bytes", "Their bodies", core.weight),
            ("arriving_bytes", "Bodies that have come in part", core.arriving),
            ("unread_bytes", "Answers that clients have not read", core.unread),
            ("open_limit", "limits.open", core.limits.open),
            ("resident_bytes", "Memory of the process", _resident()),
            ("log_bytes", "The log with its journal", core.store.size()),
            ("log_rows_kept", "Rows that are not deleted", core.store.row_count),
            ("under_way", "Requests that are not answered yet", metrics.under_way),
            ("log_rows", "Rows of the log", core.seq),
            ("snapshot_age_seconds", "Age of the oldest change in none", core.snapshot_age),
            ("store_failing", "Whether the log cannot be written", float(bool(core.failing))),
            ("replayed_records", "Replayed at the start", metrics.replayed),
        ):
            yield GaugeMetricFamily(f"fairwolfe_{name}", about, value=value)
        yield CounterMetricFamily("fairwolfe_repeated", "Decides answered again", metrics.repeated)
        yield CounterMetricFamily("fairwolfe_unwritten", "Failed writes", metrics.unwritten)
        for name, about, label, counter in (
            ("rejected", "Rejected for load", "reason", metrics.rejected),
            ("received", "Requests that have come", "route", metrics.received),
            ("gone", "Requests for whose answer nobody waited", "route", metrics.gone),
        ):
            single = {(key,): count for key, count in sorted(counter.items())}
            yield family(CounterMetricFamily, name, about, label, single)
        yield family(
            CounterMetricFamily,
            "requests",
            "Requests answered",
            "route status",
            dict(sorted(metrics.answered.items())),
        )
        for name, about, histogram in (
            ("group_size", "Requests in a group", metrics.groups),
            ("commit_seconds", "To write and sync a row", metrics.commits),
            ("fold_seconds", "To apply a row", metrics.folds),
            ("snapshot_seconds", "To keep snapshots", metrics.snapshots),
            ("request_seconds", "To answer a request", metrics.requests),
        ):
            shown = HistogramMetricFamily(f"fairwolfe_{name}", about)
            shown.add_metric([], buckets=histogram.buckets(), sum_value=histogram.sum)
            yield shown


def _resident() -> int:
    """Bytes of memory that this process holds, as Linux counts them; 0 elsewhere."""
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


def metrics_text(core: Core, models: Iterable[Model]) -> bytes:
    """All metrics in the text format of Prometheus, with those of some models."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(core, models))
    return generate_latest(registry)


# --- log lines ---------------------------------------------------------------------------------


def log_event(event: str, message: str, level: int = logging.INFO, **facts: Any) -> None:
    """A line: what happened in one word, in a sentence, and in numbers."""
    logger.log(level, message, extra={"facts": {"event": event, **facts}})


def log_stopped(model: Model, error: Exception, seq: int) -> None:
    """A model is stopped: nothing more is decided by it or learnt from."""
    facts = {"model": model.name, "seq": seq, "reason": type(error).__name__, "at": _frames(error)}
    log_event("model_stopped", f"model {model.name!r} is stopped", logging.ERROR, **facts)


def log_change(who: str, model: Model, event: Event) -> None:
    """An audit line: somebody has changed the items or the objective of a model."""
    facts: dict[str, Any] = {"who": who or None, "model": model.name, "version": model.version}
    if isinstance(event, ItemsAdded | ItemsRetired):
        facts["items"] = len(event.keys)
        items = f"{len(event.keys)} items of {model.name!r} were"
        if isinstance(event, ItemsAdded):
            log_event("items_added", f"{items} added", **facts)
        else:
            log_event("items_retired", f"{items} retired", **facts)
    else:
        facts["objective"] = model.description
        log_event("objective_replaced", f"the objective of {model.name!r} was replaced", **facts)


class JsonFormatter(logging.Formatter):
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
    handler.setFormatter(JsonFormatter())
    for name in (logger.name, *_OTHERS):
        one = logging.getLogger(name)
        one.handlers = [handler]
        one.setLevel(logging.INFO if one is logger else logging.WARNING)
        one.propagate = False
    warnings.showwarning = _warned


def _warned(
    message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    where = f"{Path(filename).name}:{lineno}"
    log_event("warned", f"Python warns: {category.__name__}", logging.WARNING, at=[where])
