"""Pages about the service are true: configurations, requests, code and answers, on a real server.

A `json` block right after a `curl` is its answer; a `js` block, which ends in `...`, some of its
fields; a `text` block lines of it. Ids on the page have a token of their own.
"""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from runpy import run_path
from typing import Any, NamedTuple

import pytest

from fairwolfe.service.config import parse
from tests.service.servers import ROOT, Reply, Server, wait_for

FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
TOKEN = "5b0c2e9f41d7a863"
EPOCH = "9c1e07d2ab54"
ADDRESS = "http://127.0.0.1:8710"


class Block(NamedTuple):
    language: str
    text: str
    alone: bool  # whether there are words between it and the block before


def blocks(page: str) -> list[Block]:
    text = (ROOT / "docs" / page).read_text()
    found, end = [], 0
    for match in FENCE.finditer(text):
        found.append(Block(match[1], match[2], bool(text[end : match.start()].strip())))
        end = match.end()
    return found


def models_of(page: str) -> str:
    """The configuration of a page: all its tables of models, and what is above the first."""
    tables = [block.text for block in blocks(page) if block.language == "toml"]
    return "\n".join(text for text in tables if "[models." in text)


class Curl(NamedTuple):
    """A command line, taken apart; `-o` and its file are left out."""

    method: str
    path: str
    headers: dict[str, Any]
    body: bytes | None


def curls(text: str) -> Iterator[Curl]:
    """The requests of a block."""
    for line in text.replace("\\\n", " ").split("\ncurl "):
        words = shlex.split(line.removeprefix("curl "))
        if not line.startswith("curl ") and ADDRESS not in line:
            continue
        method, url, body = "", "", None
        headers: dict[str, Any] = {}
        while words:
            word = words.pop(0)
            match word:
                case "-X":
                    method = words.pop(0)
                case "-H":
                    name, _, value = words.pop(0).partition(": ")
                    headers[name] = value
                case "-d":
                    body = words.pop(0).encode()
                case "-o":
                    words.pop(0)
                case _:
                    assert word.startswith(ADDRESS), word
                    url = word.removeprefix(ADDRESS)
        yield Curl(method or ("GET" if body is None else "POST"), url, headers, body)


def expected(text: str) -> tuple[Any, bool]:
    """An answer of the page, and whether it is whole."""
    return json.loads(re.sub(r", \.\.\.", "", text)), "..." not in text


def check(answer: Any, text: str, request: Curl) -> None:
    wanted, whole = expected(text)
    if not whole:
        answer = {name: answer[name] for name in wanted}
    assert close(answer, wanted), (request, answer)


def close(one: Any, other: Any) -> bool:
    """The same but for rounding."""
    if isinstance(other, dict):
        return one.keys() == other.keys() and all(close(one[name], other[name]) for name in other)
    if isinstance(other, list):
        return len(one) == len(other) and all(map(close, one, other))
    if isinstance(other, float):
        return bool(one == pytest.approx(other, rel=1e-6, abs=1e-9))
    return bool(one == other)


class Reader:
    """Somebody who types what the page says."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.real: dict[str, str] = {}  # parts of ids on the page -> here
        self.checked = 0

    def ask(self, request: Curl) -> Reply:
        body, path = request.body, request.path
        for page, here in self.real.items():
            body = body and body.replace(page.encode(), here.encode())
            path = path.replace(page, here)
        reply = self.server.request(request.method, path, raw=body, **request.headers)
        if not self.real and isinstance(reply.body, dict) and "id" in reply.body:
            token, _, epoch, _ = reply.body["id"].split("-")
            self.real = {TOKEN: token, EPOCH: epoch}
        return reply

    def shown(self, reply: Reply) -> Any:
        """A body with the ids of the page."""
        text = json.dumps(reply.body)
        for page, here in self.real.items():
            text = text.replace(here, page)
        return json.loads(text)


def in_page_order(server: Server) -> int:
    reader = Reader(server)
    reply = Reply(0, {}, None)
    request = None
    printed = ""
    found = blocks("serving.md")
    for before, block in zip([None, *found], found, strict=False):
        after_python = before is not None and before.language == "python"
        if block.language == "bash":
            for request in curls(block.text):
                if request.path == "/v1/models/router":
                    closed(server)
                reply = reader.ask(request)
                assert reply.status < 500, reply
                printed = ""
        elif block.language in ("json", "js"):
            assert request is not None
            assert not block.alone
            check(reader.shown(reply), block.text, request)
            reader.checked += 1
        elif block.language == "py":
            output = io.StringIO()
            with redirect_stdout(output):
                exec(block.text.replace(ADDRESS, server.url), {})
            printed = output.getvalue()
        elif block.language == "text" and after_python:  # run by tests/test_docs.py
            continue
        elif block.language == "text" and not block.text.startswith("ready "):
            said = printed or reply.body.decode()
            assert [one for one in block.text.splitlines() if one not in said.splitlines()] == []
            reader.checked += 1
    return reader.checked


def closed(server: Server) -> None:
    """Wait until every window has ended."""
    wait_for(lambda: server.get("/v1/models/router")["open"] == 0, 60.0)


def test_what_the_page_shows_is_what_a_server_answers(tmp_path: Path) -> None:
    text = models_of("serving.md")
    assert 'listen = "127.0.0.1:8710"' in text
    with Server(tmp_path, text.replace("127.0.0.1:8710", "127.0.0.1:0")) as server:
        assert in_page_order(server) >= 15
        before = server.get("/v1/models/router")
        server.kill()
        server.start()
        assert server.get("/v1/models/router") == before
        assert server.stop() == 0


@pytest.mark.parametrize(
    "page",
    ["client.md", pytest.param("moving.md", marks=pytest.mark.needs("vowpalwabbit"))],
)
def test_the_code_of_a_page_prints_what_it_says_on_a_server(page: str, tmp_path: Path) -> None:
    found = blocks(page)
    text = next((b.text for b in found if b.language == "toml"), models_of("serving.md"))
    space: dict[str, Any] = {}
    checked = 0
    with Server(tmp_path, text.replace("127.0.0.1:8710", "127.0.0.1:0")) as server:
        for block, after in zip(found, [*found[1:], None], strict=True):
            if block.language != "py":
                continue
            output = io.StringIO()
            with redirect_stdout(output):
                exec(block.text.replace(ADDRESS, server.url), space)
            if after is not None and after.language == "text" and not after.alone:
                assert output.getvalue() == after.text
                checked += 1
        assert checked >= 2
        assert server.stop() == 0


def test_the_picture_of_the_join_is_what_its_script_draws() -> None:
    pictures = ROOT / "docs" / "pictures"
    drawn = run_path(str(pictures / "join.py"))["drawn"]()
    assert (pictures / "join.svg").read_text(encoding="utf-8") == drawn


@pytest.mark.parametrize(
    "page", ["serving.md", "security.md", "moving.md", "shop.md", "high-availability.md"]
)
def test_configurations_on_the_pages_can_be_read(page: str) -> None:
    first = next(block.text for block in blocks("serving.md") if block.language == "toml")
    others = [block.text for block in blocks(page) if block.language == "toml"]
    assert others
    for text in others:
        whole = text if "state =" in text else f"{first}\n{text}"
        if "[models." in text and "state =" not in text:
            whole = f'state = "state"\n{text}'
        assert parse(whole).models
