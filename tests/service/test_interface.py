"""The interface as OpenAPI and as a page: every route, with examples that a service answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest

from fairwolfe.core.build import build_objective
from fairwolfe.errors import InvalidInput
from fairwolfe.service import openapi, page, wire
from fairwolfe.service.config import parse
from fairwolfe.service.reference import ENTRIES, GROUPS
from fairwolfe.service.routes import ROUTES
from tests.service.servers import Server, wait_for

CONFIG = """
state = "state"
listen = "127.0.0.1:0"

[models.router]
window = "0.5 s"
missing = "zero"
problem = { kind = "arms", n_features = 2, rewards = { clicks = [0, 1], cost = [0, 0.05] } }
objective = "Linear({'clicks': 1.0}) + AtMost({'cost': 0.02})"
policy = { name = "frank-wolfe", base = { name = "squarecb", gamma0 = 100.0 } }

[models.front]
window = "0.5 s"
missing = "skip"
problem = { kind = "ranking", n_slots = 2, n_features = [2, 2] }
objective = '''
TwoSided(GiniWelfare(), beta=0.5)
+ AtLeast({"clicks": 0.1})
'''
policy = { name = "fw-linucb-rank", exploration = 0.1 }
"""
DOCUMENT = openapi.document(parse(CONFIG), ROUTES)
OPERATIONS = [
    pytest.param(method.upper(), path, operation, id=f"{method.upper()} {path}")
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
]


def example(content: dict[str, Any]) -> Any:
    return next(iter(content.values()))["example"]


def replied(operation: dict[str, Any]) -> Any:
    (code,) = (code for code in operation["responses"] if code < "400")
    return example(operation["responses"][code]["content"])


def test_every_route_is_there_once() -> None:
    paths = [f"{route.method} {route.path.replace(':path}', '}')}" for route in ROUTES]
    assert sorted(paths) == sorted(ENTRIES)
    assert {entry.group for entry in ENTRIES.values()} == set(GROUPS)
    summaries = [entry.summary for entry in ENTRIES.values()]
    assert len(set(summaries)) == len(summaries)
    ids = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS)
def test_every_route_has_words_and_examples(
    method: str, path: str, operation: dict[str, Any]
) -> None:
    assert 5 <= len(operation["summary"]) <= 50
    assert not operation["summary"].endswith(".")
    assert operation["description"].endswith(".")
    assert operation["tags"][0] in GROUPS
    assert replied(operation) is not None
    for one in operation.get("parameters", ()):
        assert one["description"].endswith(".")
        assert one["example"] in one["schema"].get("enum", [one["example"]])
    if "requestBody" in operation:
        assert example(operation["requestBody"]["content"])


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS)
def test_examples_are_of_their_types(method: str, path: str, operation: dict[str, Any]) -> None:
    tail = (method, path.rsplit("/", 1)[-1])
    if tail in openapi._BODIES:
        given = example(operation["requestBody"]["content"])
        msgspec.convert(given, openapi._BODIES[tail])
        for text in [given.get("objective")] if isinstance(given, dict) else []:
            assert text is None or build_objective(text, "objective")
    if tail in openapi._ANSWERS:
        msgspec.convert(replied(operation), openapi._ANSWERS[tail])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("interface"), CONFIG) as one:
        yield one


def operations() -> list[Any]:
    """Those of `OPERATIONS`, each a method, a path and an operation."""
    return [one.values for one in OPERATIONS]


def keys_of(value: Any) -> Any:
    """The names in an answer; of a list, those of its first entry."""
    if isinstance(value, list):
        return [keys_of(value[0])] if value else []
    if isinstance(value, dict):
        return {
            name: keys_of(one) if isinstance(one, list) else None for name, one in value.items()
        }
    return type(value)


RANKS = ("items", "exposure", "what-if")


def test_a_service_answers_as_the_examples_say(server: Server) -> None:
    """The requests of the examples, and the names in their answers."""
    ids: dict[str, str] = {}
    items = ENTRIES["POST /v1/models/{model}/items"].request
    server.post("/v1/models/front/items", items)
    for _ in range(10):
        shown = server.post("/v1/models/front/decide", {"user": [0.5, 0.3]})
        entry = {"id": shown["id"], "exposed": shown["items"], "clicked": shown["items"][:1]}
        server.post("/v1/models/front/feedback", entry)
        chosen = server.post("/v1/models/router/decide", {"arms": [[0.6, 0.1], [0.2, 0.5]]})
        entry = {"id": chosen["id"], "rewards": {"clicks": 1, "cost": 0.01}}
        server.post("/v1/models/router/feedback", entry)
    wait_for(lambda: all(one["t"] >= 10 for one in server.get("/v1/models")["models"]))
    late = {"POST /v1/models/{model}/what-if/{id}/questions", "POST /sign-in", "POST /sign-out"}
    late |= {"GET /v1/models/{model}/stream"}
    order = sorted(operations(), key=lambda one: "/items" not in one[1])
    played = 0
    for method, path, _ in order:
        name = f"{method} {path}"
        said = ENTRIES[name]
        if name in late or not isinstance(said.reply, (dict, list)):
            continue
        target = path.replace("{model}", "front" if any(r in path for r in RANKS) else "router")
        target = target.replace("{id}", ids.get("what-if" if "what-if" in path else "decide", ""))
        target = target.replace("{key}", "sku-3").replace("{name}", "style.css")
        body = said.request
        if path.endswith("/feedback"):
            body = [{**body[0], "id": ids["decide"]}]
        tag: dict[str, Any] = {"if_match": '"0"'} if method == "PUT" else {}
        reply = server.request(method, target, body, **tag)
        assert reply.status in (200, 202), (name, reply)
        if isinstance(reply.body, dict) and "id" in reply.body:
            ids[target.rsplit("/", 1)[-1]] = reply.body["id"]
        if name == "GET /openapi.json":
            assert set(said.reply) <= set(reply.body)
        elif "points" not in said.reply:
            assert keys_of(reply.body) == keys_of(said.reply), name
        played += 1
    assert played >= 20


# --- the page ------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a page loads, its headings, its anchors, and whether its tags are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.targets: set[str] = set()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        assert not any(name == "style" or name.startswith("on") for name in given)
        if tag in ("link", "img", "script"):
            self.loads.append(given.get("href") or given.get("src") or "")
        if given.get("id"):
            assert given["id"] not in self.anchors
            self.anchors.add(given["id"] or "")
        href = given.get("href") or ""
        if href.startswith("#"):
            self.targets.add(href[1:])
        if tag not in ("meta", "link", "wbr", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_shows_every_route_without_a_script(server: Server) -> None:
    reply = server.request("GET", "/docs")
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    text = reply.body.decode()
    shown = Page(text)
    assert shown.open == []
    assert "script" not in shown.tags
    assert shown.loads == ["data:,", "page/style.css", "page/docs.css"]
    assert shown.targets <= shown.anchors | {"main"}
    assert server.request("GET", "/page/docs.css").status == 200
    for entry in ENTRIES.values():
        assert entry.summary in text
    for _, _, operation in operations():
        assert operation["operationId"] in shown.targets
    assert "{{" not in re.sub(r"<code>.*?</code>", "", text, flags=re.DOTALL)


def test_what_the_configuration_says_is_escaped() -> None:
    document = json.loads(json.dumps(DOCUMENT).replace("Make a decision", "<script>x</script>"))
    text = page.docs_of(document, parse(CONFIG)).decode()
    assert "<script" not in text
    assert "&lt;script&gt;x" in text


def test_with_keys_commands_show_one(server: Server) -> None:
    without = server.request("GET", "/docs").body.decode()
    assert "authorization: Bearer" not in without
    key = f'[[keys]]\nname = "a"\nsha256 = "{"0" * 64}"\nscopes = ["read"]\n'
    config = parse(CONFIG + key)
    text = page.docs_of(openapi.document(config, ROUTES), config).decode()
    assert text.count("authorization: Bearer") > 20


# --- objectives as text --------------------------------------------------------------------------


def test_text_in_the_configuration_and_words_in_the_answers(server: Server) -> None:
    shown = server.get("/v1/models/front/objective")
    assert shown["objective"] in (
        "TwoSided(GiniWelfare(), beta=0.5) + AtLeast({'clicks': 0.1})",
        "Linear({'clicks': 1.0}) + AtMost({'cost': 0.03})",
    )
    for model in server.get("/v1/models")["models"]:
        assert model["description"].startswith("clicks")
        page_text = server.request("GET", f"/?model={model['name']}").body.decode()
        assert f'id="objective">{model["description"]}<' in page_text
    assert wire.JSON in DOCUMENT["paths"]["/v1/models"]["get"]["responses"]["200"]["content"]


@pytest.mark.parametrize(
    "text",
    [
        "Minimum().value",
        "__import__('os').system('true')",
        "Minimum()" + ".on(0)" * 600,
        "+".join(["Minimum()"] * 1100),
        "(" * 4000,
        "-" * 4000 + "1",
        "Linear([" + "9" * 4000 + "])",
        "Linear([" + "[" * 150 + "]" * 150 + "])",
        "Nothing()",
        "LinUCB()",
        "Minimum()()()",
        "f'{Minimum()}'",
        "Sum([Minimum() for _ in range(10)])",
        "Minimum() + 1",
        "-1 * Minimum()",
        "Linear({'\0': 1.0})",
        "\ud800",
    ],
    ids=lambda text: ascii(text[:30]),
)
def test_hostile_text_is_refused_at_once(server: Server, text: str) -> None:
    before = server.get("/v1/models/router")["version"]
    for method, path, body, field in (
        ("PUT", "objective", {"objective": text}, "objective"),
        ("POST", "what-if", {"objectives": [text]}, "objectives[0]"),
    ):
        reply = server.request(method, f"/v1/models/router/{path}", body, if_match="*")
        assert reply.status in (409, 422), reply
        if reply.body["error"] == "invalid":
            assert reply.body["field"] == field
        assert len(reply.body["message"]) < 1000
    assert server.get("/v1/models/router")["version"] == before
    if text.isprintable():
        ours = "\"Linear({'clicks': 1.0}) + AtMost({'cost': 0.02})\""
        assert ours in CONFIG
        with pytest.raises(InvalidInput, match=r"models\.router\.objective"):
            parse(CONFIG.replace(ours, json.dumps(text)))
