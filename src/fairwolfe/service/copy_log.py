"""A log from one store to another, row by row: from a folder to PostgreSQL, and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec

from fairwolfe.errors import InvalidInput
from fairwolfe.service.config import Config, Setup, read
from fairwolfe.service.events import Closed, DecisionsMade, Event, Started, decode
from fairwolfe.service.export import keep_snapshots
from fairwolfe.service.log_file import ReadLog, open_log
from fairwolfe.service.postgres_store import PostgresStore
from fairwolfe.service.store import FILE, Outcomes, Row, Span, SQLiteStore, Store


def copy_log(source: Path, target: Path, tick: Callable[[int], None]) -> int:
    """Copy the log of a configuration to that of another one, which has none yet; how many rows.
    Rows are the same bytes, and so are ids: only one of the two may be served from then on.
    """
    config = read(target)
    with closing(open_log(source)) as old:
        if old.deleted:
            raise InvalidInput(
                f"rows up to {old.deleted} of the log were deleted after an export; only a whole "
                "log can be copied"
            )
        with closing(_target(config, old.token)) as new:
            outline = _Outline(old)
            for row in old.rows(0):
                new.append(row.clock, row.payload, *outline.of(row))
                tick(1)
            for model in old.starts():
                for clock, point in old.history(model):
                    new.note(model, clock, point)
            keep_snapshots(new)
            return new.last()[0]


def _target(config: Config, token: str) -> Store:
    where = config.log
    if config.shared:
        where = f"{where}, schema {config.schema}"
        store = PostgresStore(config.state, config.schema, token)
        if store.token == token and next(store.rows(0), None) is None:
            return store
        store.close()
    elif not (config.path(config.state) / FILE).exists():
        return SQLiteStore(config.path(config.state), token)
    raise InvalidInput(f"there is a log already in {where}; give a place that has none")


class _Outline:
    """What a store keeps beside the rows, from their events: which decisions, whose outcomes, which
    models begin.
    """

    def __init__(self, source: ReadLog) -> None:
        self._source = source
        self._made: Counter[int] = Counter()
        self._stages: dict[int, int] = {}

    def of(self, row: Row) -> tuple[list[Span], list[Outcomes], list[int]]:
        """Those of the next row."""
        spans: list[Span] = []
        outcomes: list[Outcomes] = []
        starts: list[int] = []
        for event in decode(row.payload):
            self._add(event, spans, outcomes, starts)
        return spans, outcomes, starts

    def _add(
        self, event: Event, spans: list[Span], outcomes: list[Outcomes], starts: list[int]
    ) -> None:
        model = event.model
        match event:
            case Started(setup=text):
                settings = msgspec.json.decode(text, type=Setup)
                self._stages[model] = settings.make_problem(settings.n_slots).n_stages
                starts.append(model)
            case DecisionsMade(made=made):
                first = self._made[model]
                self._made[model] += len(made.head)
                spans.append(Span(model, first, self._made[model]))
            case Closed(first=first, upto=upto, stage=stage):
                kept = self._source.outcome_of(model, first)
                if stage == self._stages[model] - 1 and kept is not None:
                    outcomes.append(Outcomes(model, first, upto, kept[1]))
