"""The contract of a store, for both of them: the same requests give the same state, to the bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import pytest

from fairwolfe.errors import IncompatibleState
from fairwolfe.service.postgres_store import PostgresStore
from fairwolfe.service.recovery import recover, replay
from fairwolfe.service.store import Later, Outcomes, Snapshot, Span, SQLiteStore, Store
from tests.service.inside import Inside
from tests.service.postgres import Postgres
from tests.service.servers import STAGED, config
from tests.service.test_p02_fold_of_the_log import play

Opener: TypeAlias = Callable[[], Store]


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))]
)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens one log, again and again."""
    if request.param == "sqlite":
        yield lambda: SQLiteStore(tmp_path / "state")
        return
    server: Postgres = request.getfixturevalue("database")
    yield lambda: PostgresStore(server.url, "contract")
    server.ask("DROP SCHEMA contract CASCADE")


def test_rows_and_what_finds_them(opener: Opener) -> None:
    with closing(opener()) as store:
        token = store.token
        assert (store.last(), list(store.rows(0)), store.starts()) == ((0, 0.0), [], {})
        assert store.append(0.5, b"one", [Span(0, 0, 3), Span(1, 0, 2)], (), [0, 1]) == 1
        assert store.append(1.0, b"", [Span(0, 3, 4)]) == 2
        held = [Outcomes(0, 0, 3, b"abc"), Outcomes(1, 0, 1, b"")]
        assert store.append(1.5, bytes(range(256)) * 4000, (), held, [7]) == 3
        assert store.last() == (3, 1.5)
        assert store.row_count == 3
        assert store.size() > 1_000_000
    with closing(opener()) as store:
        assert store.token == token
        rows = list(store.rows(0))
        assert [row.seq for row in rows] == [1, 2, 3]
        assert rows[2].payload == bytes(range(256)) * 4000
        assert list(store.rows(2)) == rows[2:]
        assert store.last() == (3, 1.5)
        assert store.row(1) == (0.5, b"one")
        assert {model: row.seq for model, row in store.starts().items()} == {0: 1, 1: 1, 7: 3}
        assert store.row_of(0, 2) == (0, rows[0])
        assert store.row_of(0, 3) == (3, rows[1])
        assert store.row_of(0, 4) is None
        assert store.row_of(2, 0) is None
        assert store.outcome_of(0, 2) == (0, b"abc")
        assert store.outcome_of(1, 1) is None
        with pytest.raises(IncompatibleState, match="row 9 of the log is missing"):
            store.row(9)
        assert store.append(2.0, b"four") == 4


def test_snapshots_with_later_pieces_and_history(opener: Opener) -> None:
    with closing(opener()) as store:
        for seq in range(1, 6):
            store.append(float(seq), b"row")
            piece = Later(seq, seq + 2, b"piece %d" % seq)
            store.snapshot([Snapshot(0, seq, b"state %d" % seq, piece)], seq - 1)
        store.snapshot([Snapshot(1, 5, b"other"), Snapshot(2, 5, b"third")], 4)
        store.snapshot([Snapshot(1, 5, b"again")], 5)
        for clock in (1.0, 2.0):
            store.note(0, clock, b"point %d" % clock)
    with closing(opener()) as store:
        assert store.folded == 5
        assert store.snapshots(0) == [(5, b"state 5"), (4, b"state 4")]
        assert store.snapshots(1) == [(5, b"again")]
        assert store.snapshots(3) == []
        # A piece is needed as long as a decision below its stop waits in a snapshot.
        assert list(store.later(0, 9)) == [b"piece 3", b"piece 4", b"piece 5"]
        assert list(store.later(0, 4)) == [b"piece 3", b"piece 4"]
        assert store.history(0) == [(1.0, b"point 1"), (2.0, b"point 2")]
        assert store.history(1) == []


def test_history_is_thinned(opener: Opener) -> None:
    from fairwolfe.service import store as module

    with closing(opener()) as store, pytest.MonkeyPatch.context() as patch:
        for kind in (module, __import__("fairwolfe.service.postgres_store", fromlist=["x"])):
            patch.setattr(kind, "MOST_POINTS", 8)
        for clock in range(9):
            store.note(0, float(clock), b"")
        assert [clock for clock, _ in store.history(0)] == [0.0, 2.0, 4.0, 6.0, 8.0]


@pytest.mark.needs("postgresql")
@pytest.mark.parametrize("staged", [False, True])
def test_the_same_requests_give_the_same_state(
    database: Postgres, tmp_path: Path, staged: bool
) -> None:
    text = config("9 s")
    if staged:
        model = STAGED.replace("models.router]", "models.staged]")
        text += model.format(window="2 s", later="9 s", missing="zero")
    digests = []
    openers: list[Opener] = [
        lambda: SQLiteStore(tmp_path / "state"),
        lambda: PostgresStore(database.url, f"same_{staged}".lower()),
    ]
    for opened in openers:
        for life in range(2):
            with closing(opened()) as store:
                service = Inside(text, store)
                play(service, 8, seed=life)
                if staged:
                    for _ in range(5):
                        number = service.decide("staged", arms=[[0.1] * 5, [0.2] * 5]).number
                        id = service.model("staged").id(number)
                        service.tell("staged", {"id": id, "rewards": {"clicks": 1.0}})
                        service.advance(3.0)
                        service.tell("staged", {"id": id, "rewards": {"minutes": 2.0}})
        with closing(opened()) as store:
            folds = [[model.digest() for model in recover(store).models.values()]]
        with closing(opened()) as store:
            folds.append([model.digest() for model in replay(store).models.values()])
        assert folds[0] == folds[1]
        digests.append(folds[0])
    assert digests[0] == digests[1]
