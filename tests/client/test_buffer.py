"""The buffers of both clients: feedback arrives at least once, and the service counts it once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import numpy as np
import pytest

from fairwolfe.client import AsyncClient, Client, Decided
from fairwolfe.client.outbox import FeedbackBatch, Outbox
from fairwolfe.client.steps import Reply
from fairwolfe.errors import InvalidInput, Unavailable
from tests.service.clients import KINDS, Moody, connected, moody_server
from tests.service.servers import ROOT, Server, config, wait_for

ARMS = [[0.1, 0.2, 0.3, 0.0, 0.1], [0.3, 0.1, 0.0, 0.2, 0.1]]
GONE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    head = 'state = "state"\nlisten = "127.0.0.1:0"\n[limits]\nbody = "16 KiB"\n'
    with Server(tmp_path_factory.mktemp("buffer"), config("600 s", head=head)) as one:
        items = {f"i{n}": row for n, row in enumerate(np.eye(4) / 2)}
        with Client(one.url) as client:
            client.add_items("front", items)
        yield one


@pytest.fixture
def moody() -> Iterator[tuple[str, type[Moody]]]:
    with moody_server() as one:
        yield one


def decided(client: Any, count: int) -> list[Decided]:
    made: list[Decided] = []
    while len(made) < count:
        asked = [{"arms": ARMS}] * min(64, count - len(made))
        made += client.decide_many("router", asked)
    return made


def some(number: int) -> Decided:
    """A decision that nobody made."""
    return Decided("router", f"a-0-{number}", 0, None, 0.5, 1.0, None)


def refusal(code: str, field: str | None = None) -> bytes:
    return msgspec.msgpack.encode({"error": code, "message": "no", "field": field})


def joined(count: int) -> bytes:
    return msgspec.msgpack.encode([{"id": "x", "outcome": "joined"}] * count)


@pytest.mark.parametrize("kind", KINDS)
def test_feedback_of_all_models_arrives_in_its_order(kind: str, server: Server) -> None:
    with connected(kind, server.url) as client:
        arms = decided(client, 300)
        rankings = client.decide_many("front", [{"user": [0.1] * 4}] * 100)
        with client.buffer(every=0.05) as buffer:
            for n, one in enumerate(arms):
                buffer.feedback(one, {"clicks": n % 2})
                buffer.feedback(one, {"clicks": 1 - n % 2, "minutes": 3})  # it comes too late
            for one in rankings:
                buffer.feedback(one, exposed=one.items[:2])
                buffer.feedback(one, clicked=one.items[:1], final=True)
            assert buffer.flush() == []
            assert buffer.outcomes == {"joined": 500, "conflict": 300}
            assert (buffer.waiting, buffer.refused, buffer.trouble) == (0, (), "")
            for n, one in enumerate(arms[:20]):
                found = client.decision("router", one.id)
                assert found["rewards"] == {"clicks": float(n % 2)}
        assert buffer.closed
        with pytest.raises(InvalidInput, match="the buffer is closed"):
            buffer.feedback(arms[0], {"clicks": 1})


@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_that_is_refused_leaves_and_the_rest_arrives(kind: str, server: Server) -> None:
    with connected(kind, server.url) as client, client.buffer(every=5.0) as buffer:
        made = decided(client, 60)
        entries: list[Any] = [{"id": one.id, "rewards": {"clicks": 1}} for one in made]
        entries[7] = {"id": made[7].id, "rewards": {"applause": 1}}
        entries[31] = {"id": made[31].id, "rewards": "many"}
        entries[59] = {"id": made[59].id}  # says nothing
        buffer.feedback_many("router", entries)
        buffer.feedback_many("nobody", [{"id": "x-0-0", "rewards": {"clicks": 1}}] * 3)
        assert buffer.flush() == []
        assert buffer.outcomes["joined"] == 57
        assert buffer.outcomes["refused"] == 6
        refused = {one.entry["id"]: one for one in buffer.refused}
        assert set(refused) == {made[7].id, made[31].id, made[59].id, "x-0-0"}
        assert refused["x-0-0"].model == "nobody"
        assert "there is no model 'nobody'" in refused["x-0-0"].message
        assert "applause" in refused[made[7].id].message
        assert client.decision("router", made[31].id)["rewards"] == {}
        assert client.decision("router", made[30].id)["rewards"] == {"clicks": 1.0}


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_as_small_as_the_service_wants_them(kind: str, server: Server) -> None:
    with connected(kind, server.url) as client, client.buffer(every=5.0) as buffer:
        made = decided(client, 600)  # some 40 kB; the service takes 16 KiB at once
        entries = [{"id": one.id, "rewards": {"clicks": 1, "minutes": 2}} for one in made]
        buffer.feedback_many("router", entries)
        assert buffer.flush() == []
        assert buffer.outcomes == {"joined": 600}
        huge = {"id": made[0].id, "rewards": {"x" * 20_000: 1.0}}
        buffer.feedback_many("router", [huge])
        assert buffer.flush() == []
        assert "larger than 16,384 bytes" in buffer.refused[0].message


@pytest.mark.parametrize("kind", KINDS)
def test_through_kills_everything_is_acknowledged_and_counts_once(
    kind: str, tmp_path: Path
) -> None:
    count = 2_000
    text = config("600 s", both=False) + 'apply = "arrival"\n'
    with Server(tmp_path, text) as server, connected(kind, server.url) as client:
        port = urlsplit(server.url).port
        server.path.write_text(text.replace("127.0.0.1:0", f"127.0.0.1:{port}"))
        made = decided(client, count)
        with client.buffer(every=0.0) as buffer:
            for kill in range(3):
                for n in range(kill * count // 4, (kill + 1) * count // 4):
                    buffer.feedback(made[n], {"clicks": n % 2, "minutes": n % 10})
                    if n % 100 == 0:
                        time.sleep(0.005)
                server.kill()
                buffer.feedback(made[kill], {"clicks": kill % 2})  # known, or late, by now
                wait_for(lambda: buffer.trouble)  # it has met a server that is gone
                server.start()
            rest = range(3 * count // 4, count)
            entries = [
                {"id": made[n].id, "rewards": {"clicks": n % 2, "minutes": n % 10}} for n in rest
            ]
            buffer.feedback_many("router", entries)
            assert buffer.flush(60.0) == []
            # What had been joined when its answer was lost is late by now: it was complete.
            assert set(buffer.outcomes) <= {"joined", "known", "late"}
            assert sum(buffer.outcomes.values()) == count + 3
        known = server.get("/v1/models/router")
        assert (known["joined"], known["t"], known["open"]) == (count, count, 0)
        assert known["average"] == pytest.approx({"clicks": 0.5, "minutes": 4.5}, abs=1e-9)
        assert server.stop() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_answer_is_known_the_second_time(kind: str, moody: tuple[str, type[Moody]]) -> None:
    address, handler = moody
    handler.moods[:] = [(0, {}), (503, {"retry-after": "1"}), (200, {})]
    with connected(kind, address) as client, client.buffer(every=0.0) as buffer:
        buffer.feedback(some(1), {"clicks": 1})
        assert buffer.flush() == []
        assert buffer.outcomes == {"joined": 1}
    times, bodies, _ = zip(*handler.heard, strict=True)
    assert bodies == ([{"id": "a-0-1", "rewards": {"clicks": 1}}],) * 3
    assert times[2] - times[1] >= 1.0  # Retry-After


def test_a_buffer_that_forgets_what_it_lost_would_be_caught(
    moody: tuple[str, type[Moody]], monkeypatch: pytest.MonkeyPatch
) -> None:
    took = Outbox.took

    def forgetful(self: Outbox, batch: FeedbackBatch, reply: Reply) -> None:
        if not reply.status:
            self._drop(batch.model, range(len(batch.entries)))
        else:
            took(self, batch, reply)

    monkeypatch.setattr(Outbox, "took", forgetful)
    address, handler = moody
    handler.moods[:] = [(0, {}), (200, {})]
    with Client(address) as client, client.buffer(every=0.0) as buffer:
        buffer.feedback(some(1), {"clicks": 1})
        assert buffer.flush() == []
        assert buffer.outcomes == {}  # so outcomes do not sum to what was given


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_acknowledged_is_named(kind: str) -> None:
    with connected(kind, GONE, deadline=0.5) as client:
        buffer = client.buffer()
        for n in range(3):
            buffer.feedback(some(n), {"clicks": n})
        left = buffer.flush(timeout=0.3)
        assert [(one.model, one.entry["id"]) for one in left] == [
            ("router", f"a-0-{n}") for n in range(3)
        ]
        assert left[2].entry == {"id": "a-0-2", "rewards": {"clicks": 2}}
        assert "refused" in buffer.trouble or "connect" in buffer.trouble
        assert buffer.close(0.0) == left
        assert buffer.flush() == left
        with (
            pytest.raises(Unavailable, match="1 entries of feedback that are not acknowledged"),
            client.buffer() as second,
        ):
            second.feedback(some(0), {"clicks": 1})

        def fails() -> None:
            with client.buffer() as third:
                third.feedback(some(0), {"clicks": 1})
                raise ZeroDivisionError

        with pytest.warns(RuntimeWarning, match="not ack"), pytest.raises(ZeroDivisionError):
            fails()


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_closes_its_buffers(kind: str, moody: tuple[str, type[Moody]]) -> None:
    address, handler = moody
    handler.moods[:] = [(200, {})]
    with connected(kind, address) as client:
        buffer = client.buffer(every=60.0)
        buffer.feedback(some(1), {"clicks": 1})
    assert (buffer.closed, buffer.outcomes) == (True, {"joined": 1})
    with (
        pytest.raises(Unavailable, match="not acknowledged"),
        connected(kind, GONE, deadline=0.3) as client,
    ):
        client.buffer().feedback(some(1), {"clicks": 1})


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_buffer_waits_and_then_says_so(kind: str, moody: tuple[str, type[Moody]]) -> None:
    with connected(kind, GONE) as client:
        buffer = client.buffer(max=5, wait=0.2)
        buffer.feedback_many("router", [{"id": f"a-0-{n}", "rewards": {}} for n in range(5)])
        with pytest.raises(Unavailable, match="no room for 1 more in a buffer of 5; nothing was"):
            buffer.feedback(some(5), {"clicks": 1})
        assert buffer.waiting == 5
        assert len(buffer.close(0.0)) == 5
        with pytest.raises(InvalidInput, match="6 entries do not fit into a buffer of 5"):
            buffer.feedback_many("router", [{"id": "x"}] * 6)
        with pytest.raises(InvalidInput, match="max is 0"):
            client.buffer(max=0)
        with pytest.raises(InvalidInput, match="every is -1"):
            client.buffer(every=-1)
    address, handler = moody
    handler.moods[:] = [(503, {}), (200, {}), (200, {})]
    with connected(kind, address) as client, client.buffer(1, 3600.0, wait=60.0) as buffer:
        buffer.feedback(some(0), {"clicks": 1})
        buffer.feedback(some(1), {"clicks": 1})  # waits for the first
        assert buffer.outcomes["joined"] >= 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_may_not_loses_nothing(kind: str, moody: tuple[str, type[Moody]]) -> None:
    address, handler = moody
    handler.moods[:] = [(403, {}), (401, {}), (200, {})]  # the key is given the scope
    with connected(kind, address) as client, client.buffer(every=0.0) as buffer:
        buffer.feedback(some(1), {"clicks": 1})
        assert buffer.flush() == []
        assert buffer.outcomes == {"joined": 1}


def test_an_entry_is_kept_as_it_was_given(moody: tuple[str, type[Moody]]) -> None:
    address, handler = moody
    handler.moods[:] = [(200, {})]
    rewards = {"clicks": np.float64(1.0)}
    with Client(address) as client, client.buffer(every=60.0) as buffer:
        buffer.feedback(some(1), rewards)
        rewards["clicks"] = np.float64(0.0)
        with pytest.raises(InvalidInput, match="give numbers"):  # now, not in the background
            buffer.feedback(some(2), {"clicks": object()})
    assert handler.heard[0][1] == [{"id": "a-0-1", "rewards": {"clicks": 1.0}}]


def test_several_threads_share_a_buffer(server: Server) -> None:
    with Client(server.url) as client:
        made = decided(client, 800)
        with client.buffer(max=50, every=0.01, wait=60.0) as buffer:

            def tell(part: list[Decided]) -> None:
                for one in part:
                    buffer.feedback(one, {"clicks": 1})

            threads = [threading.Thread(target=tell, args=(made[k::8],)) for k in range(8)]
            for one in threads:
                one.start()
            for one in threads:
                one.join(60)
        assert buffer.outcomes == {"joined": 800}


def script(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=120
    )


LEAVES = """
import sys
from fairwolfe.client import Client, Decided
buffer = Client(sys.argv[1]).buffer(every=60.0)
for id in sys.argv[2:]:
    buffer.feedback(Decided("router", id, 0, None, 0.5, 1.0, None), {"clicks": 1})
"""


def test_a_program_that_ends_sends_what_is_left(server: Server) -> None:
    with Client(server.url) as client:
        made = decided(client, 3)
        done = script(LEAVES, server.url, *(one.id for one in made))
        assert (done.returncode, done.stderr) == (0, "")
        for one in made:
            assert client.decision("router", one.id)["rewards"] == {"clicks": 1.0}
    done = script(LEAVES, GONE, "a", "b")
    assert done.returncode == 0
    assert "the program ended with 2 entries of feedback that are not acknowledged" in done.stderr


FORKS = """
import os, sys
from fairwolfe.client import Client, Decided
client = Client(sys.argv[1])
first, second = (Decided("router", id, 0, None, 0.5, 1.0, None) for id in sys.argv[2:])
client.model("router")  # a connection that must not be shared
buffer = client.buffer(every=60.0)
buffer.feedback(first, {"clicks": 1})
child = os.fork()
if not child:
    assert buffer.waiting == 0  # the parent sends it
    buffer.feedback(second, {"clicks": 1})
    assert buffer.flush() == [] and buffer.outcomes == {"joined": 1}
    for _ in range(50):
        assert client.decision("router", second.id)["id"] == second.id
    os._exit(0)
for _ in range(50):
    assert client.decision("router", first.id)["id"] == first.id
assert os.waitpid(child, 0)[1] == 0
assert buffer.flush() == [] and buffer.outcomes == {"joined": 1}
"""


@pytest.mark.skipif(sys.platform == "win32", reason="it does not fork")
def test_a_forked_child_sends_only_its_own(server: Server) -> None:
    with Client(server.url) as client:
        made = decided(client, 2)
    done = script(FORKS, server.url, *(one.id for one in made))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_loop_that_ends_before_its_buffer_says_how_many_are_left() -> None:
    async def forgets() -> None:
        client = AsyncClient(GONE)
        buffer = client.buffer()
        await buffer.feedback(some(1), {"clicks": 1})
        await asyncio.sleep(0.01)

    with pytest.warns(RuntimeWarning, match="the loop ended with 1 entries"):
        asyncio.run(forgets())


def test_whoever_is_cancelled_does_not_wait_for_the_buffer() -> None:
    async def cancelled() -> None:
        async def works() -> None:
            async with AsyncClient(GONE, deadline=3600.0) as client, client.buffer() as buffer:
                await buffer.feedback(some(1), {"clicks": 1})
                await asyncio.sleep(3600.0)

        task = asyncio.create_task(works())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 60.0)

    with pytest.warns(RuntimeWarning, match="closed with 1 entries"):
        asyncio.run(cancelled())


def test_a_close_that_is_cancelled_says_what_is_left() -> None:
    async def cancelled() -> None:
        async with AsyncClient(GONE, deadline=3600.0) as client:
            buffer = client.buffer()
            await buffer.feedback(some(1), {"clicks": 1})
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(buffer.close(), 0.1)

    with pytest.warns(RuntimeWarning, match="closed with 1 entries"):
        asyncio.run(cancelled())


def test_models_take_turns() -> None:
    outbox = Outbox(10_000)
    for name in ("one", "other"):
        outbox.add(name, outbox.read({"id": f"{name}-{n}"} for n in range(1_500)))
    seen = []
    while (batch := outbox.batch()) is not None:
        seen.append((batch.model, len(batch.entries)))
        outbox.took(batch, Reply(200, None, joined(len(batch.entries))))
        assert outbox.delay() == 0.0
    assert seen == [("one", 1000), ("other", 1000), ("one", 500), ("other", 500)]
    assert outbox.outcomes == {"joined": 3_000}


@pytest.mark.parametrize("says_where", [True, False])
def test_whatever_is_bad_is_found_and_nothing_else(says_where: bool) -> None:
    rng = np.random.default_rng(0)
    for count in (1, 2, 7, 1_000, 2_500):
        bad = set(rng.choice(count, size=min(count, 5), replace=False).tolist())
        outbox = Outbox(count)
        outbox.add("m", outbox.read({"id": n} for n in range(count)))
        arrived, asked = [], 0
        while (batch := outbox.batch()) is not None:
            ids = [msgspec.msgpack.decode(one)["id"] for one in batch.entries]
            guilty = [place for place, id in enumerate(ids) if id in bad]
            asked += 1
            if guilty:
                field = f"[{guilty[0]}].rewards" if says_where else None
                outbox.took(batch, Reply(422, None, refusal("invalid", field)))
                assert outbox.delay() == 0.0
            else:
                outbox.took(batch, Reply(200, None, joined(len(ids))))
                arrived += ids
        assert arrived == [n for n in range(count) if n not in bad]
        assert {one.entry["id"] for one in outbox.refused} == bad
        assert asked <= 2 * count + 1
        assert asked <= count // 1_000 + 1 + (5 if says_where else 5 * 22)


def test_it_waits_no_longer_than_the_pauses_of_a_call() -> None:
    outbox = Outbox(1)
    outbox.add("one", outbox.read([{"id": "x"}]))
    batch = outbox.batch()
    assert batch is not None
    pauses = []
    for _ in range(100):
        outbox.took(batch, Reply.lost(ConnectionError("gone")))
        pauses.append(outbox.delay())
    assert max(pauses) <= 2.0
    assert max(pauses) > 1.0  # they grow
    outbox.took(batch, Reply(429, "7", b""))
    assert outbox.delay() > 6.5
    assert len(outbox) == 1


def test_a_model_that_is_stopped_does_not_hold_up_others() -> None:
    outbox = Outbox(10)
    for name in ("stopped", "well"):
        outbox.add(name, outbox.read([{"id": name}]))
    first = outbox.batch()
    assert first is not None
    outbox.took(first, Reply(503, "60", refusal("model_stopped")))
    second = outbox.batch()
    assert second is not None
    assert (second.model, outbox.delay()) == ("well", 0.0)
    outbox.took(second, Reply(200, None, joined(1)))
    assert outbox.delay() > 50.0  # only the stopped one is left
    outbox.add("well", outbox.read([{"id": "again"}]))
    assert outbox.delay() == 0.0
    assert [one.model for one in outbox.before(3)] == ["stopped", "well"]


@pytest.mark.parametrize(
    ("status", "body", "kept"),
    [
        (404, refusal("unknown_model"), False),
        (404, b"<html>no such page</html>", True),  # a proxy, or another address
        (404, refusal("not_found"), True),
        (422, refusal("invalid"), False),
        (413, b"<html>too large</html>", False),
        (403, refusal("denied"), True),
        (301, b"", True),
        (200, b"<html>welcome</html>", True),
        (200, joined(2), True),
    ],
)
def test_only_what_the_service_refuses_leaves(status: int, body: bytes, kept: bool) -> None:
    outbox = Outbox(1)
    outbox.add("one", outbox.read([{"id": "x"}]))
    batch = outbox.batch()
    assert batch is not None
    outbox.took(batch, Reply(status, None, body))
    assert len(outbox) == kept
    assert bool(outbox.trouble) == kept
    assert len(outbox.refused) == (not kept)
