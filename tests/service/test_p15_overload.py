"""P15: with more than it can take, what is held is bounded, and accepted + rejected = sent."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.service.raw import body_of, connect, read_answer, request, status_of
from tests.service.servers import Server, config

DECIDE = "/v1/models/router/decide"
ARMS = [[0.1, 0.2, 0.3, 0.0, 0.1], [0.2, 0.1, 0.0, 0.3, 0.1]]
WHOLE = request(DECIDE, {"arms": ARMS})
FILLED = request(DECIDE, b'{"arms": [[0.1, 0.2, 0.3, 0.0, 0.1]]}' + b" " * 20_000)


def limited(**limits: object) -> str:
    shown = "\n".join(f"{name} = {value!r}".replace("'", '"') for name, value in limits.items())
    head = f'state = "state"\nlisten = "127.0.0.1:0"\n[limits]\n{shown}\n'
    return config("20 s", head=head, both=False)


def memory(pid: int) -> float:
    """Resident megabytes."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    assert found
    return int(found[1]) / 1024


def conserved(text: str) -> tuple[int, Counter[str]]:
    """What was received, if as much was answered, given up or is under way; answers by status."""
    received = gone = under_way = 0
    answered: Counter[str] = Counter()
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("fairwolfe_received_total"):
            received += int(float(value))
        elif name.startswith("fairwolfe_gone_total"):
            gone += int(float(value))
        elif name.startswith("fairwolfe_requests_total"):
            status = re.search(r'route="([^"]*)",status="(\d+)"', name)
            assert status
            answered[f"{status[1].rpartition('/')[2]} {status[2]}"] += int(float(value))
        elif name == "fairwolfe_under_way":
            under_way = int(float(value))
    assert received == answered.total() + gone + under_way
    return received, answered


async def crowd(server: Server, clients: int, each: int, sent: bytes) -> Counter[int]:
    """So many connections, each with so many requests one after the other: answers by status."""
    parts = urlsplit(server.url)
    seen: Counter[int] = Counter()

    async def client() -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        for _ in range(each):
            writer.write(sent)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            assert length
            await reader.readexactly(int(length[1]))
            status = int(head.split(b" ", 2)[1])
            seen[status] += 1
            assert status != 429 or b"\r\nretry-after: 1\r\n" in head
        writer.close()
        await writer.wait_closed()

    async def scrapes() -> None:
        while True:
            await asyncio.sleep(0.05)
            conserved((await asyncio.to_thread(server.get, "/metrics")).decode())

    watching = asyncio.create_task(scrapes())
    await asyncio.gather(*(client() for _ in range(clients)))
    assert not watching.done()
    watching.cancel()
    return seen


def test_more_than_may_wait_is_refused_and_counted(tmp_path: Path) -> None:
    with Server(tmp_path, limited(waiting=16)) as server:
        before = memory(server.pid)
        seen = asyncio.run(crowd(server, 100, 30, WHOLE))
        assert memory(server.pid) - before < 60.0
        assert set(seen) == {200, 429}
        assert seen.total() == 3000
        _, answered = conserved(server.get("/metrics").decode())
        assert answered["decide 200"] == seen[200]
        assert answered["decide 429"] == seen[429]
        assert server.get("/v1/models/router")["decisions"] == seen[200]
        assert f'fairwolfe_rejected_total{{reason="busy"}} {float(seen[429])}' in (
            server.get("/metrics").decode()
        )


def test_the_bytes_that_wait_are_bounded(tmp_path: Path) -> None:
    with Server(tmp_path, limited(held="45 kB")) as server:
        seen = asyncio.run(crowd(server, 60, 5, FILLED))
        assert set(seen) == {200, 429}
        assert server.get("/v1/models/router")["decisions"] == seen[200]
        assert server.metric("waiting_bytes") == 0.0


def test_who_sends_in_parts_does_not_keep_out_who_sends_at_once(tmp_path: Path) -> None:
    """Half-sent bodies fill what may be held; they are refused or time out, others are served."""
    with Server(tmp_path, limited(held="200 kB", seconds=2.0)) as server:
        slow = [connect(server) for _ in range(40)]
        idle = [connect(server) for _ in range(40)]
        for connection in slow:
            connection.sendall(FILLED[:15_000])
        for _ in range(20):
            assert server.request("POST", DECIDE, {"arms": ARMS}).status == 200
        assert 150_000 < server.metric("arriving_bytes") <= 200_000
        statuses = Counter(status_of(read_answer(one, bytearray())) for one in slow)
        assert set(statuses) == {408, 429}
        assert statuses[429] >= 20
        assert all(one.recv(1) == b"" for one in idle)
        assert server.metric("arriving_bytes") == 0.0
        for connection in slow + idle:
            connection.close()
        conserved(server.get("/metrics").decode())


def test_connections_are_bounded(tmp_path: Path) -> None:
    with Server(tmp_path, limited(connections=20)) as server:
        held = [connect(server) for _ in range(20)]
        time.sleep(0.2)
        with connect(server) as one_more:
            answer = read_answer(one_more, bytearray())
        assert status_of(answer) == 503
        assert b"\r\nretry-after: 1\r\n" in answer
        assert body_of(answer)["error"] == "too_many_connections"
        for connection in held:
            connection.close()
        time.sleep(0.2)
        assert server.request("POST", DECIDE, {"arms": ARMS}).status == 200


def test_the_law_finds_a_request_that_was_forgotten() -> None:
    kept = 'fairwolfe_received_total{route="/a"} 2.0\nfairwolfe_under_way 1.0\n'
    answered = 'fairwolfe_requests_total{route="/a",status="200"} 1.0\n'
    assert conserved(kept + answered) == (2, Counter({"a 200": 1}))
    with pytest.raises(AssertionError):
        conserved(kept)
