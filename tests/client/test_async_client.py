"""What only an asynchronous client can get wrong: cancellation, crowds, and a missing package."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from fairwolfe.client import AsyncClient
from tests.service.servers import ROOT, Server, config

ARMS = [[0.1, 0.2, 0.3, 0.0, 0.1], [0.3, 0.1, 0.0, 0.2, 0.1]]


def test_without_aiohttp_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['aiohttp'] = None\n"
        "from fairwolfe.client import AsyncClient, Client\n"
        "from fairwolfe.errors import MissingExtra\n"
        "Client('http://127.0.0.1:1')\n"
        "try: AsyncClient('http://127.0.0.1:1')\n"
        "except MissingExtra as error: print(error)\n"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert (
        "AsyncClient needs aiohttp, which is not installed: pip install 'fairwolfe[integrations]'"
        in done.stdout
    )


class Silent:
    """A server that hears and never answers; it counts who has gone."""

    def __init__(self) -> None:
        self.asked, self.gone = asyncio.Event(), asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked.set()
        while await reader.read(1024):
            pass
        self.gone.set()
        writer.close()


def test_what_is_cancelled_ends_at_once_and_closes_its_connection() -> None:
    async def cancels() -> None:
        silent = Silent()
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, AsyncClient(address, deadline=3600.0, timeout=3600.0) as client:
            task = asyncio.create_task(client.decide("router", arms=ARMS))
            await asyncio.wait_for(silent.asked.wait(), 30.0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, 30.0)
            # Not only at the end of the client, which is still open.
            await asyncio.wait_for(silent.gone.wait(), 30.0)

    asyncio.run(cancels())


def test_what_is_cancelled_in_a_pause_is_not_sent_again() -> None:
    async def cancels() -> None:
        heard = 0

        async def busy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal heard
            heard += 1
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 503 x\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n")
            await reader.read()
            writer.close()

        server = await asyncio.start_server(busy, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, AsyncClient(f"http://127.0.0.1:{port}", deadline=3600.0) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.model("router"), 0.5)
        assert heard == 1

    asyncio.run(cancels())


def test_a_crowd_shares_a_client(tmp_path: Path) -> None:
    async def crowd(url: str) -> None:
        async with AsyncClient(url) as client:

            async def visit(n: int) -> str:
                made = await client.decide("router", arms=ARMS, request_id=f"r{n}")
                again = await client.decide("router", arms=ARMS, request_id=f"r{n}")
                assert (again.id, again.arm) == (made.id, made.arm)
                assert again.closes_in <= made.closes_in
                return await client.feedback(made, {"clicks": n % 2})

            outcomes = await asyncio.gather(*(visit(n) for n in range(150)))
            assert outcomes == ["joined"] * 150
            assert (await client.model("router"))["decisions"] == 150

    with Server(tmp_path, config("600 s", both=False)) as server:
        asyncio.run(crowd(server.url))
