"""What a client sends is bounded before it costs anything, and errors speak of HTTP."""

from __future__ import annotations

import gc
import re
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fairwolfe.agent import Agent
from fairwolfe.core import build, registry
from fairwolfe.service import wire
from fairwolfe.service.core import Work
from fairwolfe.service.wire import Refused
from tests.service.inside import Inside
from tests.service.servers import RANKING, Server, config

ROUTER, FRONT = "/v1/models/router", "/v1/models/front"
ROW = [0.1] * 5
LONG = "x" * 5000
KEYS = "abcdef"


def items(*keys: str) -> list[dict[str, Any]]:
    rows = np.random.default_rng(0).uniform(-0.4, 0.4, (len(keys), 4)).tolist()
    return [{"key": key, "features": row} for key, row in zip(keys, rows, strict=True)]


def as_items(given: dict[str, list[float]]) -> list[dict[str, Any]]:
    return [{"key": key, "features": row} for key, row in given.items()]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    other = RANKING.replace("models.front", "models.other").format(window="20 s", missing="zero")
    with Server(tmp_path_factory.mktemp("wire"), config() + other) as one:
        one.post(f"{FRONT}/items", {"items": items(*KEYS)})
        yield one


# --- the client's text in errors ---------------------------------------------------------------


def refused(body: bytes, kind: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        wire.decode(body, wire.JSON, kind)
    return caught.value


def test_refusals_of_long_names_are_not_retained() -> None:
    def one(i: int) -> None:
        body = b'{"' + str(i).encode() + b"x" * 200_000 + b'": 1}'
        wire.error_reply(refused(body, wire.Feedback), "application/json")

    one(0)
    tracemalloc.start()
    try:
        before = tracemalloc.take_snapshot()
        for i in range(1, 65):
            one(i)
        gc.collect()  # what pytest.raises refers to
        after = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    grown = sum(line.size_diff for line in after.compare_to(before, "filename"))
    assert grown < 2_000_000  # 26 MB and more where messages of 200 kB are kept


def echoes(server: Server) -> dict[str, tuple[str, str, Any]]:
    made = server.post(f"{ROUTER}/decide", {"arms": [ROW]})["id"]
    shown = server.post(f"{FRONT}/decide", {"user": [0.1] * 4})["id"]
    key = "y" * 250
    return {
        "field": ("POST", f"{ROUTER}/feedback", {LONG: 1}),
        "field with a newline": ("POST", f"{ROUTER}/feedback", {LONG + "\n" + LONG: 1}),
        "nested field": ("POST", f"{FRONT}/items", {"items": [{"key": "k", LONG: 1}]}),
        "reward": ("POST", f"{ROUTER}/feedback", [{"id": made, "rewards": {LONG: 1}}]),
        "reward by item": ("POST", f"{FRONT}/feedback", [{"id": shown, "rewards": {LONG: 1}}]),
        "item": ("POST", f"{FRONT}/feedback", [{"id": shown, "rewards": {"clicks": {LONG: 1}}}]),
        "clicked": ("POST", f"{FRONT}/feedback", [{"id": shown, "clicked": [LONG]}]),
        "candidate": ("POST", f"{FRONT}/decide", {"user": [0.1] * 4, "candidates": [LONG]}),
        "arm": ("POST", f"{ROUTER}/decide", {"arms": [ROW], "blocked": [LONG]}),
        "slot": ("POST", f"{FRONT}/decide", {"user": [0.1] * 4, "pinned": {LONG: "a"}}),
        "pinned": ("POST", f"{FRONT}/decide", {"user": [0.1] * 4, "pinned": {"0": LONG}}),
        "key of an item": ("POST", f"{FRONT}/items", {"items": items(LONG)}),
        "features": ("POST", f"{FRONT}/items", {"items": [{"key": key, "features": [0.1]}]}),
        "twice": ("POST", f"{FRONT}/items", {"items": items(key, key)}),
        "class": ("PUT", f"{ROUTER}/objective", {"objective": f"{LONG[:3000]}()"}),
        "keyword": ("PUT", f"{ROUTER}/objective", {"objective": f"{LONG[:3000]}(**y)"}),
        "name": ("PUT", f"{ROUTER}/objective", {"objective": LONG[:3000]}),
        "reward of f": ("PUT", f"{ROUTER}/objective", {"objective": f"Linear({{'{key}': 1.0}})"}),
        "model": ("POST", f"/v1/models/{LONG}/decide", {"arms": [ROW]}),
        "decision": ("GET", f"{ROUTER}/decisions/{LONG}", None),
        "retired": ("DELETE", f"{FRONT}/items/{LONG}", None),
        "answer": ("POST", f"{FRONT}/what-if/none/questions", {"answers": [LONG]}),
        "version": ("PUT", f"{ROUTER}/objective", {"objective": "Minimum()"}),
    }


def test_the_text_of_a_client_is_cut_in_errors(server: Server) -> None:
    for name, (method, path, body) in echoes(server).items():
        tag = LONG if name == "version" else "*"
        reply = server.request(method, path, body, if_match=tag)
        assert 400 <= reply.status < 500, (name, reply)
        text = f"{reply.body['message']} {reply.body['field']}"
        runs = re.findall(r"x{20,}|y{20,}", text)
        assert runs, (name, text)  # it is an echo, and short
        assert max(map(len, runs)) <= 80, (name, text)


# --- objectives as text ------------------------------------------------------------------------


def terms(n: int) -> str:
    return f"Sum(terms=({'Minimum(), ' * n}))"


def nested(depth: int) -> str:
    return "Scaled(multiple=1.0, objective=" * depth + "Minimum()" + ")" * depth


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The classes that the text of an objective built."""
    names: list[str] = []
    inner = registry.import_class

    def noted(path: str) -> Any:
        names.append(path)
        return inner(path)

    monkeypatch.setattr(build, "import_class", noted)
    return names


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (terms(20_000), "has 220,013 characters; give at most 4,096"),
        (terms(2_000), "characters; give at most 4,096"),
        (terms(300), "the text has 301 parts; give at most 64"),
        (nested(70), "the text has 71 parts; give at most 64"),
        ("-" * 4000 + "1", "nested too deeply"),
        ("(" * 2000 + ")" * 2000, "too many nested parentheses"),
        ("Linear(weights=" + "[" * 150 + "]" * 150 + ")", "nested more than 100 levels deep"),
    ],
)
def test_a_long_objective_is_refused_before_anything_is_built(
    built: list[str], text: str, sentence: str
) -> None:
    service = Inside(config())
    before = list(built)
    with pytest.raises(Refused, match=sentence) as caught:
        wire.objective_of(text, service.model("router"))
    assert (caught.value.status, caught.value.field) == (422, "objective")
    assert built == before


def test_what_fits_is_built() -> None:
    model = Inside(config()).model("router")
    objective = wire.objective_of(nested(60), model)
    assert repr(objective) == "1.0 * (" * 59 + "1.0 * Minimum()" + ")" * 59
    assert wire.objective_of(repr(objective), model) == objective
    assert len(getattr(wire.objective_of(terms(60), model), "terms", ())) == 60


def test_a_label_for_each_item_fits() -> None:
    """The text may be longer by some characters for each item, or groups would be impossible."""
    service = Inside(config())
    labels = tuple(f"producer {i % 7}" for i in range(2000))
    text = f"TwoSided(items=ByGroup(objective=GiniWelfare(), labels={labels!r}), beta=0.5)"
    with pytest.raises(Refused, match="characters"):
        wire.objective_of(text, service.model("front"))
    wire.objective_of(text, service.model("front"), new_items=2000)


def test_every_route_has_the_limit(server: Server) -> None:
    long = terms(2000)
    for method, path, body, field in (
        ("PUT", f"{ROUTER}/objective", {"objective": long}, "objective"),
        ("POST", f"{FRONT}/items", {"items": items("new"), "objective": long}, "objective"),
    ):
        reply = server.request(method, path, body, if_match="*")
        assert (reply.status, reply.body["field"]) == (422, field), reply
        assert re.search(r"characters; give at most 4,\d\d\d", reply.body["message"])
    assert server.get(ROUTER)["version"] == 0


# --- options -----------------------------------------------------------------------------------


def test_invalid_options_are_refused_before_they_join_a_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """64 good questions beside a bad one are proposed once, as without it."""
    service = Inside(config())
    model = service.model("router")
    service.decide("router", arms=[ROW])
    calls: list[int] = []
    inner = Agent.propose

    def counted(self: Agent, contexts: Any, *given: Any, **named: Any) -> Any:
        calls.append(len(contexts))
        return inner(self, contexts, *given, **named)

    monkeypatch.setattr(Agent, "propose", counted)
    for bad in ({"candidates": [7]}, {"blocked": [0, 1]}, {"pinned": {"0": "a"}}):
        with pytest.raises(Refused) as caught:
            service.question("router", arms=[ROW, ROW], **bad)
        assert (caught.value.status, caught.value.field) == (422, next(iter(bad)))
    for arms in ([[0.1] * 4], [[0.1] * 6]):
        with pytest.raises(Refused) as caught:
            service.question("router", arms=arms)
        assert (caught.value.status, caught.value.field) == (422, "arms")
    assert calls == []
    # What is found only in the group costs one more proposal, not one for each of them.
    good = [Work(model, [service.question("router", arms=[ROW, ROW])]) for _ in range(64)]
    ask = service.question("router", arms=[ROW])
    odd = Work(model, [ask._replace(context=np.full((1, 5), np.nan))])
    answers = service.together(*(service.core.wait(work) for work in [*good, odd]))
    assert isinstance(answers[-1], Refused)
    assert [one[0].number for one in answers[:-1]] == list(range(1, 65))
    assert calls == [65, 64]


# --- repeated requests -------------------------------------------------------------------------


def test_closes_in_of_a_repeated_request_is_what_is_left() -> None:
    service = Inside(config("20 s"))
    model = service.model("router")
    question = {"arms": [ROW, ROW], "request_id": "r"}
    first = wire.decide_reply(model, service.decide("router", **question), (20.0,))
    service.advance(13.5)
    again = wire.decide_reply(model, service.decide("router", **question), (20.0,))
    assert (again.id, again.arm, first.closes_in) == (first.id, first.arm, 20.0)
    assert again.closes_in == pytest.approx(6.5)
    other = wire.decide_reply(model, service.decide("router", arms=[ROW]), (20.0,))
    assert other.closes_in == 20.0


# --- keys of items -----------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["a\nb", "\x00", "tab\t", "\x7f", "line\u2028"])
def test_a_key_with_a_control_character_is_refused(server: Server, key: str) -> None:
    reply = server.request("POST", f"{FRONT}/items", {"items": items(key)})
    assert (reply.status, reply.body["field"]) == (422, "items")
    assert "control character" in reply.body["message"]
    assert len(server.get(f"{FRONT}/items")["items"]) == len(KEYS)


def test_a_known_key_with_other_features_is_refused(server: Server) -> None:
    path = "/v1/models/other"
    server.post(f"{path}/items", {"items": items(*KEYS)})
    changed = {"items": as_items({"b": [0.3, 0.0, -0.2, 0.1], "g": [0.0, 0.1, 0.2, 0.3]})}
    reply = server.request("POST", f"{path}/items", changed)
    assert (reply.status, reply.body["error"], reply.body["field"]) == (
        409,
        "other_features",
        "items",
    )
    assert len(server.get(f"{path}/items")["items"]) == 6
    assert server.request("DELETE", f"{path}/items/b").status == 200
    assert server.post(f"{path}/items", changed) == {"items": 7}


# --- versions ----------------------------------------------------------------------------------


def test_an_objective_is_replaced_only_with_if_match(server: Server) -> None:
    body = server.get(f"{ROUTER}/objective")
    text = {"objective": body["objective"]}
    reply = server.request("PUT", f"{ROUTER}/objective", text)
    assert (reply.status, reply.body["error"]) == (428, "no_version")
    assert "If-Match" in reply.body["message"]
    assert server.get(f"{ROUTER}/objective") == body
    for tag in ("*", f'"{body["version"] + 1}"'):
        assert server.request("PUT", f"{ROUTER}/objective", text, if_match=tag).status == 200


# --- words -------------------------------------------------------------------------------------

PYTHON = re.compile(r"agent\.|\bfw\.|Agent\(|\.bind\(|missing=|exposed=|clicked=|Problem\b")


def test_errors_speak_of_fields_and_routes(server: Server) -> None:
    shown = server.post(f"{FRONT}/decide", {"user": [0.1] * 4})
    rest = next(key for key in KEYS if key not in shown["items"])
    user = {"user": [0.1] * 4}
    gini = "GeneralizedGini(weights=(1.0, 0.5, 0.2))"
    said = []
    for method, path, body in (
        ("POST", f"{FRONT}/decide", {**user, "candidates": ["none"]}),
        ("POST", f"{FRONT}/decide", {**user, "blocked": ["none"]}),
        ("POST", f"{FRONT}/decide", {**user, "candidates": ["a", "b"]}),
        ("POST", f"{FRONT}/decide", {**user, "pinned": {"0": "none"}}),
        ("POST", f"{FRONT}/decide", {**user, "pinned": {"9": "a"}}),
        ("POST", f"{FRONT}/decide", {"user": [0.1]}),
        ("POST", f"{FRONT}/decide", {"user": [1e200] * 4}),
        ("POST", f"{ROUTER}/decide", {"arms": [[1e200] * 5]}),
        ("POST", f"{ROUTER}/decide", {"arms": [ROW], "candidates": []}),
        ("POST", f"{ROUTER}/decide", {"arms": [ROW], "pinned": {"0": "a"}}),
        ("POST", f"{FRONT}/feedback", [{"id": shown["id"], "clicked": [rest]}]),
        ("POST", f"{FRONT}/feedback", [{"id": shown["id"], "exposed": [rest]}]),
        ("POST", f"{FRONT}/feedback", [{"id": shown["id"], "rewards": {"minutes": {"a": 1}}}]),
        ("POST", f"{FRONT}/feedback", [{"id": shown["id"], "rewards": {"clicks": 1}}]),
        ("PUT", f"{ROUTER}/objective", {"objective": gini}),
        ("PUT", f"{ROUTER}/objective", {"objective": "Linear(weights=(1.0,))"}),
        ("PUT", f"{ROUTER}/objective", {"objective": "Linear(weights={'cost': 1.0})"}),
        ("PUT", f"{ROUTER}/objective", {"objective": f"Sum(terms=({gini}, {gini[:-6]}))))"}),
        ("PUT", f"{ROUTER}/objective", {"objective": f"On({gini}, ('clicks',))"}),
        ("PUT", f"{ROUTER}/objective", {"objective": "On(Minimum(), (1.5,))"}),
        ("PUT", f"{ROUTER}/objective", {"objective": "On(Minimum(), ())"}),
        ("PUT", f"{ROUTER}/objective", {"objective": "LinUCB()"}),
        ("POST", f"{ROUTER}/what-if", {"beta": [1.0]}),
    ):
        reply = server.request(method, path, body, if_match="*")
        assert 400 <= reply.status < 500, reply
        said.append(reply.body["message"])
    assert [text for text in said if PYTHON.search(text)] == []
    assert any("aim it with .on('clicks')" in text for text in said), said
