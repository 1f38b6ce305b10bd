"""Both clients for one test body: `AsyncClient` with a loop in a thread, its calls waited for."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import TracebackType
from typing import Any, Self

import msgspec

from fairwolfe.client import AsyncBuffer, AsyncClient, Client

KINDS = ("Client", "AsyncClient")
PATIENCE = 120.0  # seconds


class Awaited:
    """An AsyncClient or an AsyncBuffer that is used like its twin."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner, self._loop = inner, loop

    def __repr__(self) -> str:
        return repr(self._inner)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*args: Any, **named: Any) -> Any:
            async def go() -> Any:
                made = found(*args, **named)
                return await made if inspect.isawaitable(made) else made

            answer = self._wait(go())
            return Awaited(answer, self._loop) if isinstance(answer, AsyncBuffer) else answer

        return call

    def __enter__(self) -> Self:
        self._wait(self._inner.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._wait(self._inner.__aexit__(kind, error, trace))

    def _wait(self, one: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(one, self._loop).result(PATIENCE)


@contextmanager
def connected(kind: str, address: str | list[str], *key: str, **options: Any) -> Iterator[Any]:
    """A client of a kind, in its `with` block."""
    if kind == "Client":
        with Client(address, *key, **options) as client:
            yield client
        return
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        with Awaited(AsyncClient(address, *key, **options), loop) as awaited:
            yield awaited
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()


class Moody(BaseHTTPRequestHandler):
    """Answers as it is told, one status after the other, and remembers what was asked."""

    moods: list[tuple[int, dict[str, str]]]
    heard: list[tuple[float, Any, Any]]
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        body = msgspec.msgpack.decode(self.rfile.read(length))
        self.heard.append((time.monotonic(), body, self.headers.get("authorization")))
        status, headers = self.moods.pop(0)
        if status == 0:  # the answer is lost
            self.close_connection = True
            return
        answer: Any = {"message": "not now", "error": "busy"}
        if status == 200 and isinstance(body, list):
            answer = [{"id": one["id"], "outcome": "joined"} for one in body]
        elif status == 200:
            answer = {"id": "a-0-0", "arm": 1, "probability": 0.5, "closes_in": 1.0}
        data = msgspec.msgpack.encode(answer)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def moody_server() -> Iterator[tuple[str, type[Moody]]]:
    """Its address, and the class that holds its moods."""
    handler = type("Handler", (Moody,), {"moods": [], "heard": []})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", handler
        server.shutdown()
        thread.join(10)
