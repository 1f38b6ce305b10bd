"""A real server as a subprocess on a free loopback port, which can be killed and started again."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]
READY = 120.0  # seconds
ENDED = 30.0

ARMS = """
[models.router]
window = "{window}"
missing = "{missing}"
problem = {{ kind = "arms", n_features = 5, rewards = {{ clicks = [0, 1], minutes = [0, 10] }} }}
objective = {{ name = "generalized-gini", weights = [1.0, 0.5] }}
policy = {{ name = "frank-wolfe", base = {{ name = "squarecb", gamma0 = 100.0 }} }}
"""
STAGED = ARMS.replace(
    "minutes = [0, 10]", 'minutes = {{ range = [0, 10], window = "{later}" }}'
)  # its minutes arrive in a stage of their own
RANKING = """
[models.front]
window = "{window}"
missing = "{missing}"
problem = {{ kind = "ranking", n_slots = 3, n_features = [4, 4] }}
objective = {{ name = "two-sided", items = {{ name = "gini-welfare" }}, beta = 0.5 }}
policy = {{ name = "fw-linucb-rank", exploration = 0.1 }}
"""
STAGED_RANKING = RANKING.replace(
    "n_features = [4, 4] }}",
    "n_features = [4, 4], rewards = {{ clicks = [0, 3], "
    'minutes = {{ range = [0, 9], window = "{later}" }} }} }}',
)
GROUPED = RANKING.replace(
    'items = {{ name = "gini-welfare" }}',
    'items = {{ name = "by-group", objective = {{ name = "gini-welfare" }}, by = "maker" }}',
)  # by an attribute of the items


def config(window: str = "20 s", missing: str = "zero", head: str = "", both: bool = True) -> str:
    """A configuration with an arms model `router` and, if both, a ranking model `front`."""
    models = ARMS + RANKING if both else ARMS
    text = 'state = "state"\nlisten = "127.0.0.1:0"\n' if "state =" not in head else ""
    return text + head + models.format(window=window, missing=missing)


class Reply(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: Any


class Server:
    """`fairwolfe serve`, or another module that takes the same argument."""

    def __init__(self, folder: Path, text: str, *module: str, env: dict[str, str] | None = None):
        self.folder, self.module = folder, module or ("fairwolfe", "serve")
        self.path = folder / "config.toml"
        self.path.write_text(text)
        self.env = {**os.environ, **(env or {})}
        self.url = ""
        self.process: subprocess.Popen[str] | None = None

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> Self:
        """Start it and wait for its first line."""
        self.spawn()
        line = self.line()
        assert line.startswith("ready http"), (line, self.errors())
        self.url = line.split()[1].replace("0.0.0.0", "127.0.0.1")
        return self

    def spawn(self) -> None:
        """Start it, and do not wait."""
        with (self.folder / "stderr.txt").open("a") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *self.module, str(self.path)],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env=self.env,
            )

    def line(self) -> str:
        """The next line on stdout, or "" where there is none in time."""
        process = self.process
        assert process is not None
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], READY)
        return process.stdout.readline() if readable else ""

    def errors(self) -> str:
        return (self.folder / "stderr.txt").read_text()

    def said(self) -> list[dict[str, Any]]:
        """The lines on stderr, which are JSON all of them."""
        return [json.loads(line) for line in self.errors().splitlines()]

    def complaints(self) -> list[dict[str, Any]]:
        """Those that are more than news."""
        return [line for line in self.said() if line["level"] != "info"]

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            if self.process.poll() is None:
                os.kill(self.process.pid, signal.SIGKILL)
            self.ended()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        os.kill(self.pid, signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        """Wait until it has ended; the exit code."""
        process = self.process
        assert process is not None
        code = process.wait(ENDED)
        if process.stdout is not None:
            process.stdout.close()
        self.process = None
        return code

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        timeout: float = 30.0,
        **headers: Any,
    ) -> Reply:
        """One request on a connection of its own; a body is JSON unless it is raw."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(
            parts.hostname or "", parts.port or 0, timeout=timeout
        )
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        data = raw
        if body is not None:
            data = json.dumps(body).encode()
        if data is not None:
            sent.setdefault("content-type", "application/json")
        try:
            connection.request(method, path, body=data, headers=sent)
            response = connection.getresponse()
            text = response.read()
            known = {name.lower(): value for name, value in response.getheaders()}
        finally:
            connection.close()
        shown: Any = text
        if known.get("content-type", "").startswith("application/json"):
            shown = json.loads(text)
        return Reply(response.status, known, shown)

    def get(self, path: str, **headers: Any) -> Any:
        """The body of a GET that must succeed."""
        reply = self.request("GET", path, **headers)
        assert reply.status == 200, reply
        return reply.body

    def post(self, path: str, body: Any, **headers: Any) -> Any:
        """The body of a POST that must succeed."""
        reply = self.request("POST", path, body, **headers)
        assert reply.status == 200, reply
        return reply.body

    def metric(self, name: str) -> float:
        """The value of a metric without labels."""
        for line in self.get("/metrics").decode().splitlines():
            if line.startswith(f"fairwolfe_{name} "):
                return float(line.split()[1])
        raise AssertionError(f"no metric {name}")


def wait_for(what: Any, seconds: float = 30.0) -> None:
    """Wait until a function says yes, at most so long."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
