"""P11: a leader and a standby on PostgreSQL. The leader is killed, or stopped for 10 s and woken:
what was acknowledged is counted once, and the standby leads within the lease and 1.5 s.
"""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fairwolfe.client import Client
from fairwolfe.service.postgres_store import PostgresStore
from fairwolfe.service.recovery import follow, recover
from fairwolfe.service.store import Fenced, Span
from tests.service.clients import KINDS, connected
from tests.service.inside import Inside
from tests.service.pair import LEASE, Node, Pair
from tests.service.postgres import Postgres
from tests.service.servers import config, wait_for
from tests.service.test_p25_ids import arms, decided, reported

pytestmark = pytest.mark.needs("postgresql")

TEXT = config("60 s", both=False)


def opened(database: Postgres, schema: str) -> PostgresStore:
    return PostgresStore(database.url, schema)


# --- the fence ---------------------------------------------------------------------------------


def test_one_of_two_forced_leaders_writes_a_row(database: Postgres) -> None:
    one, other = opened(database, "forced"), opened(database, "forced")
    with ThreadPoolExecutor(2) as pool, closing(one), closing(other):
        for number in range(1, 31):
            both = [
                pool.submit(store.append, float(number), name, [Span(0, number, number + 1)])
                for store, name in ((one, b"one"), (other, b"other"))
            ]
            errors = [future.exception() for future in both]
            (lost,) = (error for error in errors if error is not None)
            assert isinstance(lost, Fenced)
            assert f"row {number} was written by another process" in str(lost)
            (row,) = database.ask(f"SELECT count(*) FROM forced.log WHERE seq = {number}")
            assert row == (1,)
            loser = other if errors[0] is None else one
            with pytest.raises(Fenced):  # for ever
                loser.append(99.0, b"again")
            list(loser.rows(number - 1))  # unless it reads the row
        assert database.ask("SELECT count(*) FROM forced.span") == [(30,)]


def test_a_row_is_appended_only_behind_the_one_that_is_known(database: Postgres) -> None:
    """A number alone would not see rows that are gone, or others in their place."""
    for change in ("DELETE FROM known.log WHERE seq = 2", "UPDATE known.log SET crc = 7"):
        store = opened(database, "known")
        for number in range(3):
            store.append(float(number), b"row")
        store._last = store._last._replace(seq=2, crc=store._last.crc)
        database.ask("DELETE FROM known.log WHERE seq = 3")
        database.ask(change)
        with pytest.raises(Fenced, match="rows are lost"):
            store.append(9.0, b"behind nothing")
        assert database.ask("SELECT count(*) FROM known.log WHERE seq = 3") == [(0,)]
        store.close()
        database.ask("DROP SCHEMA known CASCADE")


def test_a_follower_has_the_state_of_the_leader_bit_for_bit(database: Postgres) -> None:
    leads, follows = opened(database, "follows"), opened(database, "follows")
    followed = recover(follows).models
    assert followed == {}  # nothing has begun
    service = Inside(TEXT, leads)
    for life in range(4):
        ids = decided(service, 5)
        assert reported(service, ids[:3]) == ["joined"] * 3
        service.advance(61.0)
        if life % 2:
            service.core.snapshot()
        follow(follows, followed)
        assert followed[0].digest() == service.model("router").digest()
    assert follows.last() == leads.last()
    follows.append(1.0, b"")  # it leads now
    with pytest.raises(Fenced):
        leads.append(0.0, b"late")
    for store in (leads, follows):
        store.close()


def test_a_former_leader_acknowledges_nothing(database: Postgres) -> None:
    former, next_one = opened(database, "former"), opened(database, "former")
    service = Inside(TEXT, former)
    ids = decided(service, 3)
    ended: list[str] = []
    service.core.on_fenced = lambda: ended.append(service.core.fenced)
    list(next_one.rows(0))
    next_one.append(9.0, b"")
    (refused,) = service.together(service.ask("router", arms=arms(0)))
    assert (refused.status, refused.error) == (503, "not_leading")
    assert len(ended) == 1
    rows = database.ask("SELECT count(*) FROM former.log")
    # What it has in memory, and would not have to be written, is not acknowledged either.
    with pytest.raises(Exception, match="another process") as caught:
        reported(service, ids)
    assert caught.value.error == "not_leading"  # type: ignore[attr-defined]
    service.advance(120.0)
    service.core.snapshot()
    assert database.ask("SELECT count(*) FROM former.log") == rows
    for store in (former, next_one):
        store.close()


# --- processes ---------------------------------------------------------------------------------


@pytest.mark.timeout(600)
def test_a_leader_is_killed_and_stopped(database: Postgres, tmp_path: Path) -> None:
    with Pair(tmp_path, database.url, "both", "10 s") as pair:
        pair.kill()
        pair.pause(4.0)
        pair.finish()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_leader_is_killed_60_times(database: Postgres, tmp_path: Path) -> None:
    with Pair(tmp_path, database.url, "sixty") as pair:
        for _ in range(60):
            pair.kill()
        pair.finish()
    assert sorted(ready for ready, _ in pair.took)[30] < LEASE + 1.5


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_leader_is_stopped_for_10_seconds_5_times(database: Postgres, tmp_path: Path) -> None:
    with Pair(tmp_path, database.url, "stopped", "20 s") as pair:
        for _ in range(5):
            pair.pause(10.0)
        pair.finish()
    assert pair.codes == [75] * 5


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_a_deploy_fails_no_request(database: Postgres, tmp_path: Path, kind: str) -> None:
    """SIGTERM: the leader answers what has come, lets go of the lease, and the other one leads."""
    head = f'state = "{database.url}"\nschema = "deploy_{kind.lower()}"\nlease = "10 s"\n'
    nodes = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        text = config("60 s", head=f'{head}listen = "127.0.0.1:0"\n', both=False)
        nodes.append(Node(tmp_path / name, text))
    leader, other = nodes
    stop = threading.Event()
    answers: list[tuple[float, str]] = []
    errors: list[Exception] = []

    def ask(client: Any) -> None:
        while not stop.is_set():
            try:
                decision = client.decide("router", arms=arms(len(answers) % 9))
                answers.append((time.monotonic(), client.feedback(decision, {"clicks": 1})))
            except Exception as error:
                errors.append(error)
                return

    try:
        leader.begin()
        wait_for(lambda: leader.ready, 120)
        other.begin()
        wait_for(lambda: other.follows, 120)
        health = other.request("GET", "/healthz")
        assert (health.status, health.body) == (200, {"alive": True})
        for method, path in (("GET", "/readyz"), ("POST", "/v1/models/router/decide")):
            reply = other.request(method, path, {} if method == "POST" else None)
            assert (reply.status, reply.body["error"]) == (503, "not_leading")
            assert leader.url in reply.body["message"]
            assert reply.headers["retry-after"] == "1"
        urls = [leader.url, other.url]
        with connected(kind, urls, deadline=60.0) as client:
            thread = threading.Thread(target=ask, args=(client,))
            thread.start()
            wait_for(lambda: len(answers) > 20)
            assert leader.stop() == 0
            wait_for(lambda: other.ready, 9.0)  # earlier than the lease would end
            wait_for(lambda: errors or answers[-1][0] > other.ready + 0.5, 60)
            stop.set()
            thread.join(60)
        assert errors == []
        assert {outcome for _, outcome in answers} == {"joined"}
        assert other.get("/v1/models/router")["decisions"] == len(answers)
        assert other.stop() == 0
        assert other.complaints() == []
    finally:
        stop.set()
        for node in nodes:
            node.kill()


def test_a_follower_shows_the_leader_to_keys_only(database: Postgres, tmp_path: Path) -> None:
    from fairwolfe.service.keys import new_key

    key, digest = new_key()
    head = f'state = "{database.url}"\nschema = "keyed"\nlisten = "127.0.0.1:0"\n'
    head += f'[[keys]]\nname = "web"\nsha256 = "{digest}"\nscopes = ["decide"]\n'
    nodes = []
    try:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            nodes.append(Node(tmp_path / name, config(head=head, both=False)).begin())
            wait_for(lambda: nodes[-1].url, 120)
        leader, other = nodes
        path = "/v1/models/router/decide"
        reply = other.request("POST", path, {})
        assert (reply.status, reply.body["error"]) == (401, "no_key")
        assert leader.url not in json.dumps(reply.body)
        reply = other.request("POST", path, {}, authorization=f"Bearer {key}")
        assert (reply.status, reply.body["error"]) == (503, "not_leading")
        assert leader.url in reply.body["message"]
        assert other.request("GET", "/readyz").status == 503
        assert other.request("GET", "/healthz").status == 200
    finally:
        for node in nodes:
            node.kill()


def test_a_service_needs_its_settings_and_keeps_passwords_out(tmp_path: Path) -> None:
    from fairwolfe.errors import InvalidInput
    from fairwolfe.service.config import parse

    for state in (
        "postgresql://shop:secret@db/shop",
        "postgresql://shop@db/shop?password=secret",
        "postgresql://shop@db/shop?sslpassword=secret",
    ):
        with pytest.raises(InvalidInput, match="PGPASSWORD") as caught:
            parse(config(head=f'state = "{state}"\n'))
        assert "secret" not in str(caught.value)
    found = parse(config(head='state = "postgresql://shop@db1,db2/shop?sslmode=require"\n'))
    assert found.log == "postgresql://shop@db1,db2/shop"
    for line, word in (
        ('schema = "shop"', "schema"),
        ('lease = "2 s"', "lease"),
        ('state = "postgresql://db/shop"\nschema = "Shop"', "small letters"),
        ('state = "postgresql://db/shop"\nlease = "0.1 s"', "from 0.5 s"),
    ):
        with pytest.raises(InvalidInput, match=word):
            parse(config(head=f"{line}\n" if "state" in line else f'state = "s"\n{line}\n'))


def test_a_client_hears_of_no_leader_within_its_deadline() -> None:
    from fairwolfe.errors import Unavailable

    with (
        Client(["http://127.0.0.1:9", "http://127.0.0.1:10"], deadline=0.5) as client,
        pytest.raises(Unavailable, match="not answered within"),
    ):
        client.models()
