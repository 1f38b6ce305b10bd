"""What is counted, and how Prometheus reads it: nothing but additions while requests are served."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fairwolfe.service.refusal import Refused

if TYPE_CHECKING:
    from fairwolfe.service.core import Core

__all__ = ["Histogram", "Numbers", "text"]

_SECONDS = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5)
_TOO_MUCH = frozenset({408, 413, 429, 431, 503})
_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


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

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, how many up to it)."""
        total, out = 0, []
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            out.append(("+Inf" if bound == float("inf") else repr(bound), float(total)))
        return out


class Numbers:
    """What the service counts besides what its models know."""

    def __init__(self) -> None:
        self.received: Counter[str] = Counter()  # by route
        self.answered: Counter[tuple[str, int]] = Counter()  # by route and status
        self.gone: Counter[str] = Counter()  # by route: nobody waited for the answer any more
        self.under_way = 0
        self.rejected: Counter[str] = Counter()  # by reason
        self.repeated = 0  # decides whose request_id was known
        self.unwritten = 0  # rows and snapshots that could not be written
        self.replayed = 0  # records, at the start
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

    def refuse(self, refused: Refused) -> None:
        """A request is rejected; those that are not wrong, but too much, are counted by reason."""
        if refused.status in _TOO_MUCH:
            self.rejected[refused.error] += 1


class _Collector:
    def __init__(self, core: Core) -> None:
        self.core = core

    def collect(self) -> Iterable[Any]:
        """Everything, as it is now."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        core, numbers = self.core, self.core.numbers
        counted: dict[str, tuple[str, Any]] = {
            "decisions": ("Decisions made", lambda m: m.decisions),
            "joined": ("Decisions with feedback", lambda m: m.counts["joined"]),
            "expired": ("Decisions without feedback", lambda m: m.counts["expired"]),
            "known": ("Entries of feedback that added nothing new", lambda m: m.counts["known"]),
            "late": ("Entries after the window", lambda m: m.counts["late"]),
            "unknown": ("Entries for no decision", lambda m: m.counts["unknown"]),
            "conflict": ("Entries with other numbers", lambda m: m.counts["conflict"]),
        }
        for name, (about, of) in counted.items():
            family = CounterMetricFamily(f"fairwolfe_{name}", about, labels=["model"])
            for model in core.models.values():
                family.add_metric([model.name], of(model))
            yield family
        gauges: dict[str, tuple[str, Any]] = {
            "open": ("Decisions within their window", lambda m: m.ring.open),
            "value": ("f of the average", lambda m: m.value),
            "t": ("Decisions learnt from", lambda m: m.t),
            "stopped": ("Whether the model is stopped", lambda m: float(bool(m.stopped))),
            "out_of_range": ("Rewards out of their range", lambda m: _of(m, "out_of_range")),
            "drift": ("Of the kept inverse, at its last refresh", lambda m: _of(m, "drift")),
        }
        for name, (about, of) in gauges.items():
            gauge = GaugeMetricFamily(f"fairwolfe_{name}", about, labels=["model"])
            for model in core.models.values():
                value = of(model)
                if value is not None:
                    gauge.add_metric([model.name], value)
            yield gauge
        single: dict[str, tuple[str, float]] = {
            "waiting": ("Requests that wait for their group", core.waiting),
            "waiting_bytes": ("Their bodies", core.weight),
            "arriving_bytes": ("Bodies that have come in part", core.arriving),
            "under_way": ("Requests that are not answered yet", numbers.under_way),
            "log_rows": ("Rows of the log", core.seq),
            "snapshot_age_seconds": ("Since the last snapshot", core.snapshot_age),
            "store_failing": ("Whether the log cannot be written", float(bool(core.failing))),
            "replayed_records": ("Replayed at the start", numbers.replayed),
        }
        for name, (about, value) in single.items():
            yield GaugeMetricFamily(f"fairwolfe_{name}", about, value=value)
        yield CounterMetricFamily("fairwolfe_repeated", "Decides answered again", numbers.repeated)
        yield CounterMetricFamily("fairwolfe_unwritten", "Failed writes", numbers.unwritten)
        rejected = CounterMetricFamily("fairwolfe_rejected", "Rejected for load", labels=["reason"])
        for reason, count in sorted(numbers.rejected.items()):
            rejected.add_metric([reason], count)
        yield rejected
        for name, about, by_route in (
            ("received", "Requests that have come", numbers.received),
            ("gone", "Requests for whose answer nobody waited", numbers.gone),
        ):
            counted_by = CounterMetricFamily(f"fairwolfe_{name}", about, labels=["route"])
            for route, count in sorted(by_route.items()):
                counted_by.add_metric([route], count)
            yield counted_by
        answered = CounterMetricFamily(
            "fairwolfe_requests", "Requests answered", labels=["route", "status"]
        )
        for (route, status), count in sorted(numbers.answered.items()):
            answered.add_metric([route, str(status)], count)
        yield answered
        for name, about, histogram in (
            ("group_size", "Requests in a group", numbers.groups),
            ("commit_seconds", "To write and sync a row", numbers.commits),
            ("fold_seconds", "To apply a row", numbers.folds),
            ("snapshot_seconds", "To keep snapshots", numbers.snapshots),
            ("request_seconds", "To answer a request", numbers.requests),
        ):
            shown = HistogramMetricFamily(f"fairwolfe_{name}", about)
            shown.add_metric([], buckets=histogram.buckets(), sum_value=histogram.sum)
            yield shown


def _of(model: Any, name: str) -> Any:
    return None if model.agent is None else model.agent.stats()[name]


def text(core: Core) -> bytes:
    """All metrics in the text format of Prometheus."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(core))
    return generate_latest(registry)
