"""P12: PostgreSQL itself is killed under load, cut off, or replaced by its replica; what was
acknowledged is counted once. An asynchronous replica loses rows: that is refused loudly, and ids
never come again (P25).
"""

from __future__ import annotations

import re
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from shutil import rmtree

import pytest

from fairwolfe.errors import IncompatibleState
from fairwolfe.service import postgres_store
from fairwolfe.service.postgres_store import PostgresStore
from fairwolfe.service.recovery import recover, replay
from fairwolfe.service.store import Fenced, StoreFailed, Unconfirmed
from tests.service.inside import Inside
from tests.service.pair import Node, Pair
from tests.service.postgres import Postgres, Proxy, own_postgres
from tests.service.servers import config, wait_for
from tests.service.test_p25_ids import arms, decided, reported

pytestmark = pytest.mark.needs("postgresql")

TEXT = config("60 s", both=False)


# --- P7: settings ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fsync", "full_page_writes"])
def test_a_setting_that_does_not_hold_is_refused(name: str) -> None:
    with own_postgres(f"{name} = off\n") as server:
        with pytest.raises(IncompatibleState, match=f"PostgreSQL says {name} = off"):
            PostgresStore(server.url, "settings")
        server.set(**{name: "on"})
        PostgresStore(server.url, "settings").close()


def test_every_connection_waits_for_its_commit(database: Postgres) -> None:
    """Whatever the role has as its default."""
    try:
        for default, held in (("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")):
            database.ask(f"ALTER ROLE postgres SET synchronous_commit = '{default}'")
            database.ask("ALTER ROLE postgres SET client_min_messages = 'error'")
            store = PostgresStore(database.url, "commits")
            for name, value in (("synchronous_commit", held), ("client_min_messages", "warning")):
                assert store._connected().run(f"SHOW {name}").fetchone() == (value,)
            store.close()
    finally:
        database.ask("ALTER ROLE postgres RESET ALL")


def test_errors_and_lines_hold_no_password(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "secret")
    url = database.url.replace("postgres@", "nobody@")
    with pytest.raises(StoreFailed, match="nobody") as caught:
        PostgresStore(url, "shop")
    assert "secret" not in str(caught.value)
    with closing(PostgresStore(database.url, "shop")) as store:
        assert "secret" not in store.name


# --- a lost answer -----------------------------------------------------------------------------


def test_a_cut_between_a_commit_and_its_answer(database: Postgres) -> None:
    """The row is sent again, and found: 50 times of 50."""
    with closing(Proxy(database.port)) as proxy:
        store = PostgresStore(database.url.replace(str(database.port), str(proxy.port)), "cuts")
        for number in range(1, 51):
            proxy.cut()
            assert store.append(float(number), b"row" * 200) == number
            assert proxy.cuts == number
        assert store.resent == 50
        store.close()
    (count,) = database.ask("SELECT count(*), max(seq) FROM cuts.log")
    assert count == (50, 50)


@contextmanager
def waiting_for_nobody() -> Iterator[Postgres]:
    """A server whose commits wait for a replica that is not there."""
    with own_postgres() as server:
        PostgresStore(server.url, "waits").close()
        server.set(synchronous_standby_names="nobody")
        yield server


def interrupt(server: Postgres, how: str, stop: threading.Event) -> None:
    """Cancel or terminate whoever waits for a replica, as often as it is asked."""
    query = f"SELECT {how}(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    while not stop.is_set():
        server.ask(query)
        time.sleep(0.05)


@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
def test_an_interrupted_wait_for_a_replica_is_no_acknowledgement(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL ends the wait with success and a warning; the row is on no replica."""
    monkeypatch.setattr(postgres_store, "_PATIENCE", 1.0)
    stop = threading.Event()
    with waiting_for_nobody() as server, closing(PostgresStore(server.url, "waits")) as store:
        thread = threading.Thread(target=interrupt, args=(server, how, stop))
        thread.start()
        try:
            with pytest.raises(Unconfirmed):
                store.append(1.0, b"row")
        finally:
            stop.set()
            thread.join(30)
        assert server.ask("SELECT count(*) FROM waits.log") == [(1,)]  # it is there all the same
        server.set(synchronous_standby_names="")
        with pytest.raises(Fenced, match="its answer was lost"):
            store.append(2.0, b"another")
        assert server.ask("SELECT count(*) FROM waits.log") == [(1,)]


def test_a_wait_that_is_cancelled_once_is_waited_for_again() -> None:
    with waiting_for_nobody() as server, closing(PostgresStore(server.url, "waits")) as store:
        done: list[int] = []
        thread = threading.Thread(target=lambda: done.append(store.append(1.0, b"row")))
        thread.start()
        query = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        wait_for(lambda: server.ask(query))
        time.sleep(0.5)
        assert done == []
        server.set(synchronous_standby_names="")  # which lets those who wait go on
        thread.join(30)
        assert done == [1]
        assert store.resent == 1


def test_a_client_hears_that_it_may_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_store, "_PATIENCE", 0.5)
    monkeypatch.setattr(postgres_store, "_WRITE", 0.5)
    with own_postgres() as server, closing(PostgresStore(server.url, "waits")) as store:
        service = Inside(TEXT, store)
        (ids,) = decided(service, 1)
        server.set(synchronous_standby_names="nobody")
        (refused,) = service.together(service.ask("router", arms=arms(1), request_id="one"))
        assert (refused.status, refused.error) == (503, "not_durable")
        assert "may or may not be stored: repeat it, with the same request_id" in refused.message
        server.stop()
        (refused,) = service.together(service.ask("router", arms=arms(1), request_id="two"))
        assert (refused.status, refused.error) == (503, "not_durable")
        assert "nothing changed" in refused.message
        server.start()
        server.set(synchronous_standby_names="")
        service.hands.time += 2.0
        service.core.tick()  # which finds the row that nobody was told of
        assert "its answer was lost" in service.core.fenced
        again = Inside(TEXT, PostgresStore(server.url, "waits"))
        assert again.model("router").decisions == 2
        assert again.decide("router", arms=arms(1), request_id="one").number == 1
        assert reported(again, [ids]) == ["joined"]
        again.store.close()


# --- under load --------------------------------------------------------------------------------


def crash(server: Postgres, how: str) -> None:
    if how == "kill":
        server.kill()
    else:
        server.stop("immediate")
    time.sleep(0.5)
    server.start()


@pytest.mark.timeout(600)
def test_postgres_is_killed_and_stopped_under_load(tmp_path: Path) -> None:
    with own_postgres() as server, Pair(tmp_path, server.url, "crashed") as pair:
        for how in ("kill", "stop"):
            pair.both()
            crash(server, how)
            up = time.monotonic()
            wait_for(lambda since=up: pair.answered(since), 60)
        pair.finish()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_postgres_is_killed_6_times_under_load(tmp_path: Path) -> None:
    with own_postgres() as server, Pair(tmp_path, server.url, "six") as pair:
        for how in ("kill",) * 6 + ("stop",) * 3:
            pair.both()
            time.sleep(1.0)
            crash(server, how)
            up = time.monotonic()
            wait_for(lambda since=up: pair.answered(since), 60)
        pair.finish()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_connections_are_cut_50_times_under_load(database: Postgres, tmp_path: Path) -> None:
    with closing(Proxy(database.port)) as proxy:
        url = database.url.replace(str(database.port), str(proxy.port))
        with Pair(tmp_path, url, "cut") as pair:
            for number in range(1, 51):
                proxy.cut()
                wait_for(lambda wanted=number: proxy.cuts >= wanted, 60)
                time.sleep(0.1)
            pair.finish()
            assert 75 not in pair.codes  # the leader stays: its rows are found


# --- a replica takes its place -----------------------------------------------------------------


@contextmanager
def replicated() -> Iterator[tuple[Postgres, Postgres, str]]:
    """A server, its replica, and the address of whichever can be written."""
    folder = Path(tempfile.mkdtemp(prefix="fairwolfe-pg-"))
    with own_postgres() as server:
        replica = server.replica(folder, "second")
        try:
            hosts = f"127.0.0.1:{server.port},127.0.0.1:{replica.port}"
            yield server, replica, f"postgresql://postgres@{hosts}/postgres"
        finally:
            with suppress(Exception):
                replica.stop()
            rmtree(folder, ignore_errors=True)


def promoted_under_load(folder: Path) -> str:
    with replicated() as (server, replica, url):
        server.set(synchronous_standby_names="second")
        with Pair(folder, url, "promoted") as pair:
            pair.both()
            server.kill()
            replica.promote()
            up = time.monotonic()
            wait_for(lambda: pair.answered(up), 60)
            time.sleep(1.0)
            return pair.finish()


@pytest.mark.timeout(600)
def test_a_synchronous_replica_is_promoted_under_load(tmp_path: Path) -> None:
    promoted_under_load(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_synchronous_replica_is_promoted_3_times(tmp_path: Path) -> None:
    for number in range(3):
        promoted_under_load(tmp_path / f"{number}")


@pytest.mark.timeout(600)
def test_an_asynchronous_replica_is_promoted_without_rows(tmp_path: Path) -> None:
    """Acknowledged rows are lost: both processes say so, and ids of lost decisions never come
    again; late reports for them are unknown.
    """
    nodes: list[Node] = []

    def ask(server: Node, count: int) -> list[str]:
        body = [{"arms": arms(i)} for i in range(count)]
        path = "/v1/models/router/decide"
        return [server.post(path, one)["id"] for one in body]

    def report(server: Node, ids: list[str]) -> set[str]:
        entries = [{"id": id, "rewards": {"clicks": 1}} for id in ids]
        answers = server.post("/v1/models/router/feedback", entries)
        return {one["outcome"] for one in answers}

    with replicated() as (server, replica, url):
        try:
            head = f'state = "{url}"\nschema = "lost"\nlisten = "127.0.0.1:0"\n'
            for name in ("a", "b"):
                (tmp_path / name).mkdir()
                node = Node(tmp_path / name, config("60 s", head=head, both=False)).begin()
                wait_for(lambda node=node: node.url, 120)
                nodes.append(node)
            leader, other = nodes
            kept = ask(leader, 10)
            rows = server.ask("SELECT max(seq) FROM lost.log")
            wait_for(lambda: replica.ask("SELECT max(seq) FROM lost.log") >= rows)
            replica.stop()
            lost = ask(leader, 10)
            assert report(leader, lost[:5]) == {"joined"}
            time.sleep(3.0)  # the other follows every 50 ms, and has read them too
            server.kill()
            replica.start().promote()
            with suppress(OSError):  # the leader finds that its last row is gone
                reply = leader.request("POST", "/v1/models/router/decide", {"arms": arms(0)})
                assert reply.status == 503
            assert leader.ended() == 75
            wait_for(lambda: other.ready, 60)
            (said,) = [line for line in leader.said_lines() if line.get("event") == "fenced"]
            assert "rows are lost" in said["reason"]
            (said,) = [line for line in other.said_lines() if line.get("event") == "rows_lost"]
            assert said["level"] == "critical"
            new = ask(other, 15)
            assert not set(new) & {*kept, *lost}
            assert report(other, lost) == {"unknown"}
            assert report(other, kept) == {"joined"}
            assert report(other, new) == {"joined"}
            assert other.get("/v1/models/router")["decisions"] == 25
        finally:
            for node in nodes:
                node.kill()
        store = PostgresStore(replica.url, "lost")
        digests = [recover(store).models[0].digest()]
        store.refresh()
        assert [replay(store).models[0].digest()] == digests
        store.close()


def test_a_snapshot_of_lost_rows_is_not_kept(database: Postgres) -> None:
    """It would be of a row that is another one by then."""
    store = PostgresStore(database.url, "snapshots")
    service = Inside(TEXT, store)
    decided(service, 3)
    database.ask("DELETE FROM snapshots.span WHERE seq = 4")
    database.ask("DELETE FROM snapshots.log WHERE seq = 4")
    service.core.snapshot()
    assert "rows are lost" in service.core.fenced
    assert database.ask("SELECT count(*) FROM snapshots.snapshot") == [(0,)]
    store.close()


def test_a_damaged_row_is_refused(database: Postgres) -> None:
    """P5: a byte of a payload is not the one that was written."""
    store = PostgresStore(database.url, "damaged")
    decided(Inside(TEXT, store), 3)
    database.ask("UPDATE damaged.log SET payload = set_byte(payload, 3, 255) WHERE seq = 2")
    again = PostgresStore(database.url, "damaged")
    with pytest.raises(IncompatibleState, match=re.escape("row 2 of the log is damaged")):
        recover(again)
    for one in (store, again):
        one.close()
