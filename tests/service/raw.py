"""Requests as bytes, and answers as the bytes that came."""

from __future__ import annotations

import json
import socket
import time
from typing import Any
from urllib.parse import urlsplit

from tests.service.servers import Server


def connect(server: Server, timeout: float = 20.0) -> socket.socket:
    """A connection."""
    parts = urlsplit(server.url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=timeout)


def request(
    path: str,
    body: bytes | Any = b"",
    *headers: str,
    method: str = "POST",
    version: str = "1.1",
    form: str = "application/json",
) -> bytes:
    """A request; a body that is not bytes is JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"{method} {path} HTTP/{version}", "host: localhost", f"content-length: {len(data)}"]
    if form:
        head.append(f"content-type: {form}")
    return "\r\n".join([*head, *headers, "", ""]).encode() + data


def read_answer(connection: socket.socket, kept: bytearray) -> bytes:
    """The next answer, whole; "" at the end. `kept` holds what came of the one after it."""
    while True:
        head, mark, rest = bytes(kept).partition(b"\r\n\r\n")
        if mark:
            lengths = [
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            ]
            size = lengths[0] if lengths else 0
            if len(rest) >= size:
                answer = head + mark + rest[:size]
                kept[:] = rest[size:]
                return answer
        part = connection.recv(65536)
        if not part:
            return bytes(kept)
        kept += part


def exchange(server: Server, *sent: bytes, pause: float = 0.0, answers: int = 1) -> list[bytes]:
    """Send parts on a connection of their own; so many answers, and then "" if it was closed."""
    with connect(server) as connection:
        for part in sent:
            connection.sendall(part)
            if pause:
                time.sleep(pause)
        kept = bytearray()
        got = [read_answer(connection, kept) for _ in range(answers)]
        connection.settimeout(0.15)
        try:
            got.append(connection.recv(1))
        except TimeoutError:
            got.append(b"open")
        except ConnectionResetError:
            got.append(b"")
        return got


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def body_of(answer: bytes) -> Any:
    return json.loads(answer.partition(b"\r\n\r\n")[2])
