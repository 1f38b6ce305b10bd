"""Arms by name and features as dictionaries: a real server decides as the library does with the
same encoder, keeps names over restarts, and refuses what it cannot read with the field.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

import fairwolfe as fw
from fairwolfe.cli import commands
from fairwolfe.client import Client
from fairwolfe.core.build import from_text
from fairwolfe.errors import FairwolfeError, InvalidInput
from fairwolfe.service import wire
from fairwolfe.service.config import parse, setup
from fairwolfe.service.dictionaries import Encoders
from fairwolfe.service.events import ObjectiveReplaced
from fairwolfe.service.recovery import read_items, recover, replay
from fairwolfe.service.routes import HOT_ROUTES, HotEndpoint, request_limits
from fairwolfe.service.store import SQLiteStore
from fairwolfe.service.wire import MSGPACK
from tests.service.inside import Inside, MemoryStore
from tests.service.servers import Server, wait_for

HEAD = 'state = "state"\nlisten = "127.0.0.1:0"\n'
MODEL = """
[models.{name}]
window = "{window}"
missing = "zero"
apply = "{apply}"
audit = true
tolerance = 0.0
problem = {problem}
objective = {{ name = "generalized-gini", weights = [1.0, 0.5] }}
policy = {{ name = "frank-wolfe", base = {{ name = "squarecb", gamma0 = 100.0 }} }}
{more}
"""
REWARDS = "rewards = { clicks = [0, 1], margin = [0, 10] }"
SHOP = f'{{ kind = "arms", n_features = 24, {REWARDS} }}'
FEATURES = """
[models.{name}.features]
ranges = {{ price = [0, 100], age = [18, 90] }}
n_names = 3
"""
ENCODER = fw.features.Encoder(24, ranges={"price": (0, 100), "age": (18, 90)}, n_names=3)
SHOP_PATH, FIXED_PATH, FRONT = "/v1/models/shop", "/v1/models/fixed", "/v1/models/front"
RANKING = """
[models.front]
window = "60 s"
missing = "zero"
problem = { kind = "ranking", n_slots = 2, n_features = [6, 8] }
objective = { name = "two-sided", items = { name = "gini-welfare" }, beta = 0.5 }
policy = { name = "fw-linucb-rank", exploration = 0.1 }

[models.front.features.context]
ranges = { age = [18, 90] }
n_names = 2

[models.front.features.items]
ranges = { price = [0, 100] }
n_names = 2
"""
USERS = fw.features.Encoder(6, ranges={"age": (18, 90)}, n_names=2)
PRODUCTS = fw.features.Encoder(8, ranges={"price": (0, 100)}, n_names=2)


def model(
    name: str, more: str = "", window: str = "60 s", apply: str = "arrival", problem: str = SHOP
) -> str:
    return MODEL.format(name=name, window=window, apply=apply, problem=problem, more=more)


def features(name: str) -> str:
    return FEATURES.format(name=name)


FIXED = model("fixed", 'arms = ["toys", "books", "shoes"]' + features("fixed"))
APART = model(
    "apart",
    'arms = ["small", "large"]\n[models.apart.features]\nranges = { age = [18, 90] }',
    problem=f'{{ kind = "arms", n_features = 6, n_arms = 2, {REWARDS} }}',
)
PAIR = model(
    "pair",
    "[models.pair.features.context]\nn_names = 2\n[models.pair.features.arms]\nn_names = 2",
    problem=f'{{ kind = "arms", n_features = [4, 5], {REWARDS} }}',
)
PLAIN = model("plain", problem=f'{{ kind = "arms", n_features = 2, {REWARDS} }}')
CONFIG = HEAD + model("shop", features("shop")) + FIXED + APART + PAIR + PLAIN + RANKING


LISTED = RANKING.replace("models.front", "models.listed")
LISTED = re.sub(r"\[models.listed.features.context\].*?\n\n", "", LISTED, flags=re.DOTALL)
CONFIG += LISTED


def offers(rng: np.random.Generator, names: Any) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "price": float(rng.uniform(-5, 110)),
            "category": str(rng.choice(["toys", "books"])),
            "tags": [str(rng.integers(3)) for _ in range(int(rng.integers(3)))],
        }
        for name in names
    }


def user(rng: np.random.Generator) -> dict[str, Any]:
    return {"age": int(rng.integers(18, 91)), "country": str(rng.choice(["DE", "FR"])), "new": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = '[limits]\nbody = "256 KiB"\ncandidates = 50\nvalues = 2000\n'
    with Server(tmp_path_factory.mktemp("names"), HEAD + limits + CONFIG[len(HEAD) :]) as one:
        items = offers(np.random.default_rng(3), "abcd")
        listed = [{"key": key, "features": row} for key, row in _two(items).items()]
        one.post(f"{FRONT}/items", {"items": listed})
        yield one
        assert one.complaints() == []


def _two(items: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {key: {name: row[name] for name in ("price", "category")} for key, row in items.items()}


# --- the same as the library ---------------------------------------------------------------------


def agent_of(text: str, name: str, **options: Any) -> fw.Agent:
    """What a model of a configuration is in Python."""
    begun = setup(parse(text), name)
    policy = from_text(begun.policy)
    return fw.Agent(policy, begun.make_problem(begun.n_slots), begun.seed, **options)


@pytest.mark.parametrize("hashing", ["1", "2"])
def test_a_server_decides_as_the_library_does(hashing: str, tmp_path: Path) -> None:
    """Bit for bit, in processes of any hash seed: arms, probabilities, averages."""
    rng = np.random.default_rng(11)
    shop = agent_of(CONFIG, "shop")
    fixed = agent_of(CONFIG, "fixed", arms=["toys", "books", "shoes"])
    with Server(tmp_path, CONFIG, env={"PYTHONHASHSEED": hashing}) as server:
        for step in range(60):
            names = ["a", "b", "c", "d"][: 2 + step % 3]
            arms, who = offers(rng, names), user(rng)
            context = who if step % 4 else None
            rows = ENCODER(list(arms.values()), shared=context)
            body = {"arms": arms} | ({"context": context} if context else {})
            if step % 5 == 4:
                body["blocked"] = ["b"]
            one = shop.act(dict(zip(names, rows, strict=True)), blocked=body.get("blocked", ()))
            answer = server.post(f"{SHOP_PATH}/decide", body)
            assert (answer["arm"], answer["name"]) == (one.action, one.name)
            assert answer["probability"] == one.probability

            arms = offers(rng, ["toys", "books", "shoes"])
            two = fixed.act(ENCODER(list(arms.values()), shared=who))
            shuffled = {name: arms[name] for name in rng.permutation(list(arms)).tolist()}
            other = server.post(f"{FIXED_PATH}/decide", {"arms": shuffled, "context": who})
            assert (other["arm"], other["name"], other["probability"]) == (
                two.action,
                two.name,
                two.probability,
            )
            earned = {"clicks": float(rng.integers(2)), "margin": float(rng.uniform(0, 10))}
            for path, made, agent, decided in (
                (SHOP_PATH, answer, shop, one),
                (FIXED_PATH, other, fixed, two),
            ):
                told = [{"id": made["id"], "rewards": earned}]
                assert server.post(f"{path}/feedback", told)[0]["outcome"] == "joined"
                agent.update(decided, earned)
        for path, agent in ((SHOP_PATH, shop), (FIXED_PATH, fixed)):
            known = server.get(path)
            assert known["t"] == 60
            assert list(known["average"].values()) == agent.average.tolist()
        assert len({answer["name"], other["name"]}) == 2


def test_every_form_of_a_question_is_the_same_decision() -> None:
    """Mappings, lists, dictionaries and numbers, JSON and MessagePack: one digest of the model."""
    rng = np.random.default_rng(5)
    services = [Inside(CONFIG) for _ in range(4)]
    for _ in range(12):
        arms, who = offers(rng, ["toys", "books", "shoes"]), user(rng)
        rows = ENCODER(list(arms.values()), shared=who).tolist()
        forms: tuple[dict[str, Any], ...] = (
            {"arms": arms, "context": who},
            {"arms": list(arms.values()), "context": who},
            {"arms": dict(zip(arms, rows, strict=True))},
            {"arms": rows},
        )
        for service, form in zip(services, forms, strict=True):
            answer = service.decide("fixed", **form)
            assert answer.name == list(arms)[answer.action]
            service.tell(
                "fixed",
                {
                    "id": service.model("fixed").id(answer.number),
                    "final": True,
                    "rewards": {"clicks": 1.0, "margin": float(answer.action)},
                },
            )
    assert len({service.model("fixed").digest() for service in services}) == 1


def test_contexts_of_two_encoders_and_of_none_for_arms(server: Server) -> None:
    problem = fw.Problem.arms(6, {"clicks": (0, 1), "margin": (0, 10)}, n_arms=2)
    apart = fw.Agent(agent_of(CONFIG, "apart").policy, problem, arms=["small", "large"])
    pair = agent_of(CONFIG, "pair")
    one, two = (fw.features.Encoder(n, n_names=2) for n in (4, 5))
    rng = np.random.default_rng(1)
    for _ in range(5):
        who = user(rng)
        mine = apart.act(fw.PerArm(fw.features.Encoder(6, ranges={"age": (18, 90)})(who)))
        answer = server.post("/v1/models/apart/decide", {"context": who})
        assert (answer["name"], answer["probability"]) == (mine.name, mine.probability)
        who, arms = {"country": who["country"]}, {name: {"kind": name} for name in "xyz"}
        mine = pair.act(fw.Bilinear(one(who), two(list(arms.values()))))
        answer = server.post("/v1/models/pair/decide", {"context": who, "arms": arms})
        assert (answer["arm"], answer["probability"]) == (mine.action, mine.probability)
        assert answer["name"] == "xyz"[mine.action]


def test_rankings_with_dictionaries(server: Server) -> None:
    items = _two(offers(np.random.default_rng(3), "abcd"))
    begun = setup(parse(CONFIG), "front")
    rows = {key: PRODUCTS(row) for key, row in items.items()}
    agent = fw.Agent(from_text(begun.policy), begun.make_problem(4), 0, rows)
    known = {one["key"]: one["features"] for one in server.get(f"{FRONT}/items")["items"]}
    assert known == {key: row.tolist() for key, row in rows.items()}
    for age in range(20, 80, 10):
        who = {"age": age, "country": "DE"}
        mine = agent.act(USERS(who))
        answer = server.post(f"{FRONT}/decide", {"context": who})
        assert tuple(answer["items"]) == mine.names
        assert "name" not in answer
    same = server.post(f"{FRONT}/items", {"items": [{"key": "a", "features": items["a"]}]})
    assert same == {"items": 4}
    other = {"items": [{"key": "a", "features": {"price": 1}}]}
    reply = server.request("POST", f"{FRONT}/items", other)
    assert (reply.status, reply.body["error"]) == (409, "other_features")


def test_items_of_a_file_may_be_dictionaries(tmp_path: Path) -> None:
    items = _two(offers(np.random.default_rng(3), "abcd"))
    (tmp_path / "items.json").write_text(json.dumps(items))
    text = RANKING.replace('missing = "zero"', 'missing = "zero"\nitems = "items.json"')
    config = parse(HEAD + text, str(tmp_path))
    keys, rows, _ = read_items(config, "front", "items.json", 8)
    assert keys == tuple("abcd")
    np.testing.assert_array_equal(rows, PRODUCTS(list(items.values())))
    (tmp_path / "items.json").write_text(json.dumps({"a": {"price": "cheap"}}))
    with pytest.raises(InvalidInput, match=r"models\.front\.items: .* feature 'price' is 'cheap'"):
        read_items(config, "front", "items.json", 8)


def test_the_encoder_can_be_read_from_the_service(server: Server) -> None:
    with Client(server.url) as client:
        known = client.model("shop")
        assert fw.features.Encoder(**known["features"]["arms"]) == ENCODER
        assert client.model("fixed")["arms"] == ["toys", "books", "shoes"]
        assert fw.features.Encoder(**client.model("front")["features"]["items"]) == PRODUCTS
        assert not {"arms", "features"} & client.model("plain").keys()


# --- names ---------------------------------------------------------------------------------------


def test_names_survive_a_kill_and_are_in_the_log(tmp_path: Path) -> None:
    text = CONFIG.replace('window = "60 s"', 'window = "2 s"')
    rng = np.random.default_rng(2)
    with Server(tmp_path, text) as server:
        arms, who = offers(rng, ["red", "blé", "a'b \"c"]), user(rng)
        ask = {"arms": arms, "context": who, "request_id": "one", "explain": True}
        first = server.post(f"{SHOP_PATH}/decide", ask)
        assert first["name"] == list(arms)[first["arm"]]
        assert first["explanation"][0]["name"] == first["name"]
        plain = {"arms": [[0.1] * 24, [0.2] * 24]}
        many = server.post(f"{SHOP_PATH}/decide_many", {"requests": [plain, {"arms": arms}, plain]})
        assert ["name" in one for one in many] == [False, True, False]
        fixed = offers(rng, ["toys", "books", "shoes"])
        ask_fixed = {"arms": fixed, "request_id": "two", "context": who}
        second = server.post(f"{FIXED_PATH}/decide", ask_fixed)
        server.kill()
        server.start()
        again = server.post(f"{SHOP_PATH}/decide", ask)
        for field in ("id", "arm", "name", "probability"):
            assert again[field] == first[field]
        turned = {name: fixed[name] for name in ("shoes", "toys", "books")}
        for same in (ask_fixed, ask_fixed | {"arms": turned}):  # the same question
            assert server.post(f"{FIXED_PATH}/decide", same)["id"] == second["id"]
        swapped = {name: arms[name] for name in reversed(arms)}  # numbered in another order
        reply = server.request("POST", f"{SHOP_PATH}/decide", ask | {"arms": swapped})
        assert (reply.status, reply.body["error"]) == (409, "request_id_reused")

        def shown(path: str, one: dict[str, Any]) -> Any:
            return server.get(f"{path}/decisions/{one['id']}")

        made = [(SHOP_PATH, first), (SHOP_PATH, many[1]), (FIXED_PATH, second)]
        assert [shown(path, one)["name"] for path, one in made] == [one["name"] for _, one in made]
        assert "name" not in shown(SHOP_PATH, many[0])
        wait_for(lambda: all(shown(path, one)["state"] == "expired" for path, one in made))
        assert [shown(path, one)["name"] for path, one in made] == [one["name"] for _, one in made]
        assert server.stop() == 0
    store = SQLiteStore(tmp_path / "state")
    fold, tail = replay(store), recover(store)
    for number, one in fold.models.items():
        assert one.digest() == tail.models[number].digest()
    store.close()
    state = str(tmp_path / "state")
    told = CliRunner().invoke(commands, ["log", "replay", state, "--decisions", "--json"])
    assert told.exit_code == 0, told.output
    assert [row["remade"] for row in json.loads(told.stdout)["models"]][:2] == [4, 1]
    for name, suffix in (("shop", "jsonl"), ("shop", "parquet"), ("fixed", "jsonl")):
        out = str(tmp_path / f"{name}.{suffix}")
        done = CliRunner().invoke(commands, ["log", "export", state, out, "--model", name])
        assert done.exit_code == 0, done.output
        assert fw.offpolicy.Log.of(out) is not None
    head, *rows = map(json.loads, (tmp_path / "shop.jsonl").read_text().splitlines())
    assert [row.get("name") for row in rows] == [first["name"], None, many[1]["name"], None]
    assert rows[0]["names"] == list(arms)
    assert "names" not in rows[1]
    assert "candidates" not in rows[0]
    head, *rows = map(json.loads, (tmp_path / "fixed.jsonl").read_text().splitlines())
    assert head["arms"] == ["toys", "books", "shoes"]
    assert rows[0]["action"] == second["arm"]


def test_without_an_audit_the_log_has_the_name_of_the_arm() -> None:
    text = (HEAD + PLAIN).replace("audit = true\n", "")
    store = MemoryStore()
    service = Inside(text, store)
    answer = service.decide("plain", arms={"x": [0.1, 0.2], "y": [0.3, 0.1]})
    assert answer.name in ("x", "y")
    again = Inside(text, store)
    stored = again.core.find(again.model("plain"), again.model("plain").id(0))
    assert stored.name == answer.name
    assert again.model("plain").ring.group(0).names == (answer.name,)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('arms = ["toys", "books", "shoes"]', 'arms = ["toys", "book", "shoes"]', "arms was"),
        ('arms = ["toys", "books", "shoes"]', 'arms = ["books", "toys", "shoes"]', "arms was"),
        ('arms = ["toys", "books", "shoes"]', "", "arms was"),
        ("price = [0, 100]", "price = [0, 200]", "features was"),
        ("n_names = 3", "n_names = 4", "features was"),
        (features("fixed"), "", "features was"),
    ],
)
def test_other_names_and_encoders_under_an_old_log_are_refused(
    old: str, new: str, sentence: str
) -> None:
    store = MemoryStore()
    Inside(HEAD + FIXED, store)
    Inside(HEAD + FIXED, store)
    assert old in FIXED
    with pytest.raises(FairwolfeError, match=rf"models\.fixed has a log .*{sentence}"):
        Inside(HEAD + FIXED.replace(old, new), store)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ('arms = ["a", "a"]', r"models\.shop\.arms: the name 'a' is given twice"),
        ("arms = []", r"models\.shop\.arms: arms is \[\]"),
        ("arms = [1]", r"expected `str`"),
        ('arms = ["a\\nb"]', r"control character"),
        ("features = 3", r"models\.features: expected `object"),
        ("[models.shop.features]\nrange = 3", r"features\.range is unknown; did you mean 'ranges'"),
        ("[models.shop.features]\nn_features = 8", r"n_features is 8, and the problem has 24"),
        ("[models.shop.features]\nranges = { a = [1, 1] }", r"the range of feature 'a'"),
        ("[models.shop.features]\nfeature_norm = 2.0", r"feature_norm is 2, and that of the pro"),
        ('[models.shop.features]\ntexts = "a"', r"texts is 'a'; give names in a list"),
        ('[models.shop.features]\ncrosses = [["a"]]', r"crosses holds \('a',\)"),
    ],
)
def test_settings_that_are_wrong_are_refused(more: str, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        parse(HEAD + model("shop", more))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "features.items]",
            "features.arms]",
            r"features\.arms is unknown; .* models\.front\.features\.items",
        ),
        ("n_names = 2\n\n", "crosses = []\n\n", r"context\.crosses is for arms with one number"),
        ("n_names = 2\n\n", "feature_norm = 3.0\n\n", r"products have a norm of up to 3, and"),
        ('missing = "zero"', 'missing = "zero"\narms = ["a"]', r"arms are names for"),
    ],
)
def test_settings_of_a_ranking_that_are_wrong_are_refused(
    old: str, new: str, sentence: str
) -> None:
    assert old in RANKING
    with pytest.raises(InvalidInput, match=sentence):
        parse(HEAD + RANKING.replace(old, new, 1))


# --- what cannot be read -------------------------------------------------------------------------

TOY = {"price": 10, "category": "toys"}
LONG = "x" * 5000


def shop(arms: Any, **more: Any) -> bytes:
    return json.dumps({"arms": arms, **more}).encode()


# path, body, field, sentence
BODIES: dict[str, tuple[str, bytes, str, str]] = {
    "text for a number": (SHOP_PATH, shop({"a": TOY | {"price": "10"}}), "arms.a.price", "'10'"),
    "true for a number": (SHOP_PATH, shop({"a": TOY | {"price": True}}), "arms.a.price", "True"),
    "a number without a range": (SHOP_PATH, shop([TOY | {"size": 3}]), "arms[0].size", "range"),
    "the second of a list": (SHOP_PATH, shop([TOY, {"size": 3}]), "arms[1].size", "range"),
    "a list of numbers": (SHOP_PATH, shop({"a": {"tags": [1]}}), "arms.a.tags", "a list"),
    "a dictionary inside": (SHOP_PATH, shop({"a": {"b": {"c": 1}}}), "arms.a.b", "a dict"),
    "only dictionaries inside": (SHOP_PATH, shop({"a": {"b": {}}}), "arms.a.b", "a dict"),
    "wrong context": (SHOP_PATH, shop([TOY], context={"age": "old"}), "context.age", "'old'"),
    "a list for the context": (SHOP_PATH, shop([TOY], context=[1]), "context", "Expected"),
    "a large number": (
        SHOP_PATH,
        b'{"arms": [{"price": 1' + b"0" * 400 + b"}]}",
        "arms[0].price",
        "float",
    ),
    "1e999": (SHOP_PATH, b'{"arms": [{"price": 1e999}]}', "arms[0]", "out of range"),
    "NaN": (SHOP_PATH, b'{"arms": [{"price": NaN}]}', "", "cannot be read"),
    "a deep value": (
        SHOP_PATH,
        b'{"arms": [{"a": ' + b"[" * 500 + b"]" * 500 + b"}]}",
        "arms[0].a",
        "a list",
    ),
    "a very deep value": (
        SHOP_PATH,
        b'{"arms": [{"a": ' + b"[" * 50_000 + b"]" * 50_000 + b"}]}",
        "",
        "nested too deeply",
    ),
    "mixed forms": (SHOP_PATH, shop([[0.1] * 24, TOY]), "arms", "more than one form"),
    "mixed forms, long": (SHOP_PATH, shop([[0.1] * 24] * 20 + [TOY]), "arms", "more than one"),
    "no arms": (SHOP_PATH, shop({}), "arms", "empty mapping"),
    "an empty name": (SHOP_PATH, shop({"": TOY}), "arms", "0 characters"),
    "a long name": (SHOP_PATH, shop({LONG: TOY}), "arms", "5000 characters"),
    "a control character": (SHOP_PATH, shop({"a\nb": TOY}), "arms", "control character"),
    "too many arms": (SHOP_PATH, shop({str(i): {} for i in range(51)}), "arms", "51 entries"),
    "too many dictionaries": (SHOP_PATH, shop([{}] * 51), "arms", "51 entries"),
    "too many values": (SHOP_PATH, shop([{"t": ["a"] * 2001}]), "arms", "2,001 values"),
    "too many products": (
        SHOP_PATH,
        shop([{"t": ["a"] * 40}], context={"u": ["b"] * 60}),
        "arms",
        "2,500 values with their products",
    ),
    "an unknown name": (FIXED_PATH, shop({"toys": TOY, "cars": TOY}), "arms", "no arm 'cars'"),
    "a missing name": (FIXED_PATH, shop({"toys": TOY, "books": TOY}), "arms", "'shoes' is missing"),
    "too few rows": (FIXED_PATH, shop([[0.1] * 24]), "arms", "has 1 rows, and the arms"),
    "too many dictionaries for the names": (FIXED_PATH, shop([TOY] * 4), "arms", "has 4 rows"),
    "an unknown candidate": (
        FIXED_PATH,
        shop([TOY] * 3, candidates=["cars"]),
        "candidates",
        "'cars', which is not an arm; the arms are 'toys'",
    ),
    "the same candidate twice": (
        FIXED_PATH,
        shop([TOY] * 3, candidates=["toys", 0]),
        "candidates",
        "twice",
    ),
    "a candidate without names": (SHOP_PATH, shop([TOY], blocked=["a"]), "blocked", "numbers of"),
    "no encoder": ("/v1/models/plain", shop({"a": TOY}), "arms", "has no encoder for them"),
    "no encoder for the context of a ranking": (
        "/v1/models/listed",
        b'{"context": {"age": 30}}',
        "context",
        "has no encoder for them",
    ),
    "no encoder for the context": (
        "/v1/models/plain",
        shop([[0.1, 0.2]], context={"a": "b"}),
        "context",
        "has no encoder",
    ),
    "a context for numbers": (
        SHOP_PATH,
        shop([[0.1] * 24], context={"age": 30}),
        "context",
        "goes with arms whose features have names",
    ),
    "user and context": (
        "/v1/models/apart",
        b'{"user": [0.1, 0, 0, 0, 0, 0], "context": {}}',
        "context",
        "give one of them",
    ),
    "neither user nor context": ("/v1/models/apart", b"{}", "user", "or context with"),
    "arms for a ranking": (FRONT, shop({"a": TOY}, context={}), "arms", "not for this model"),
    "a wrong user of a ranking": (FRONT, b'{"context": {"age": []}}', "context.age", "a list"),
    "rows of another width": (SHOP_PATH, shop({"a": [0.1]}), "arms", "24 features"),
    "rows of two widths": (SHOP_PATH, shop({"a": [0.1], "b": [0.1, 0.2]}), "arms", "different le"),
    "text in a row": (SHOP_PATH, shop({"a": ["x"] * 24}), "arms[0]", "Expected"),
}


def state(server: Server) -> Any:
    return server.get("/v1/models"), server.metric("log_rows")


@pytest.mark.parametrize("name", BODIES)
def test_what_cannot_be_read_is_refused_with_the_field(server: Server, name: str) -> None:
    path, body, field, sentence = BODIES[name]
    before = state(server)
    for route, sent, within in (
        ("decide", body, ""),
        ("decide_many", b'{"requests": [' + body + b"]}", "requests[0]."),
    ):
        reply = server.request("POST", f"{path}/{route}", raw=sent)
        assert reply.status == 422, reply
        assert sentence in reply.body["message"], reply
        assert len(reply.body["message"]) < 500
        if route == "decide":
            assert (reply.body["field"] or "") == field, reply
        elif field and "Expected" not in sentence and reply.body["field"] != "requests":
            assert reply.body["field"] == within + field, reply
    assert state(server) == before


def test_the_text_of_a_client_is_cut(server: Server) -> None:
    for arms in (
        {"y" * 250: {"price": LONG}},
        {"a": {LONG: 3}},
        {"a": {LONG: [1]}},
        {"a": {"b": [LONG, 1]}},
    ):
        reply = server.request("POST", f"{SHOP_PATH}/decide", {"arms": arms})
        assert reply.status == 422
        runs = re.findall(r"x{3,}|y{3,}", f"{reply.body['message']} {reply.body['field']}")
        assert runs
        assert max(map(len, runs)) <= 80, reply


@pytest.mark.parametrize(
    "body",
    [
        {"arms": {"a": {"price": float("nan")}}},
        {"arms": {"a": {"price": float("inf")}}},
        {"arms": {"a": {"price": 2**63}}},
        {"arms": {"a": {"city": b"bytes"}}},
        {"arms": {"a": {"city": msgspec.msgpack.Ext(5, b"x")}}},
        {"arms": {"a": b"abc"}},
        {"arms": {"a": b"\0" * 96, "b": [0.1] * 24}},
        {"arms": {"a": np.full(24, np.nan, "<f4").tobytes()}},
        {"arms": [b"\0" * 96]},
        {"arms": {1: [0.1] * 24}},
        {"arms": {"a": {1: "b"}}},
        {"context": {"a": {1: "b"}}, "arms": [TOY]},
    ],
)
def test_messagepack_that_cannot_be_read_is_refused(server: Server, body: Any) -> None:
    before = state(server)
    reply = server.request(
        "POST", f"{SHOP_PATH}/decide", raw=msgspec.msgpack.encode(body), content_type=MSGPACK
    )
    ranged = body["arms"] == {"a": {"price": 2**63}}  # a number, cut to its range
    assert reply.status == (200 if ranged else 422), reply
    assert ranged or state(server) == before


def test_whole_numbers_of_any_size_are_cut_to_their_range() -> None:
    service = Inside(CONFIG)
    for number in (2**64, 10**300, -(10**40)):
        body = json.dumps({"arms": {"a": {"price": number}}, "request_id": "r"}).encode()
        asked = wire.decision_request(
            wire.decode(body, wire.JSON, wire.Decide), service.model("shop")
        )
        end = 100 if number > 0 else 0
        np.testing.assert_array_equal(asked.context[0], ENCODER({"price": end}))


def test_f_is_replaced_where_arms_have_fixed_names() -> None:
    service = Inside(CONFIG)

    def replaced(name: str) -> Any:
        event = ObjectiveReplaced(service.model(name).number, "Minimum()")
        return service.together(service.core.change(name, lambda: event)) == [event]

    assert all(map(replaced, ("fixed", "apart", "pair")))
    assert service.decide("fixed", arms=[[0.1] * 24] * 3, candidates=["books"]).name == "books"


def test_unknown_and_missing_features(server: Server) -> None:
    """An unknown text counts by its hash, a missing one nothing: as the encoder says."""
    service = Inside(CONFIG)
    asked = service.question("shop", arms=[{}, {"brand": "new"}, {"price": None, "tags": []}])
    np.testing.assert_array_equal(
        asked.context, ENCODER([{}, {"brand": "new"}, {"price": None, "tags": []}])
    )
    np.testing.assert_array_equal(asked.context[0], asked.context[2])
    named = 'texts = ["category"]\ncrosses = [["category", "price"]]\n'
    strict = Inside(HEAD + model("shop", features("shop") + named))
    for arms, field, sentence in (
        ([{"brand": "new"}], "arms[0].brand", "there is no feature 'brand'"),
        ([{"category": "toys"}], "context", "context is missing"),
    ):
        context = {"category": "toys"} if field != "context" else None
        with pytest.raises(Exception, match=sentence) as caught:
            strict.question("shop", arms=arms, context=context)
        assert getattr(caught.value, "field", None) == field
    strict.question("shop", arms=[{"category": "toys"}], context={})


# --- limits --------------------------------------------------------------------------------------


def test_what_a_few_bytes_become_is_bounded(tmp_path: Path) -> None:
    """Empty dictionaries are the largest for their bytes: 10,000 features from 3."""
    problem = f'{{ kind = "arms", n_features = 10000, {REWARDS} }}'
    limits = "[limits]\ndimensions = 200_000\n"
    service = Inside(HEAD + limits + model("shop", "[models.shop.features]", problem=problem))
    asked = parse(HEAD + limits + model("shop", "[models.shop.features]", problem=problem)).limits
    bounds = request_limits(asked, None)
    of = service.model("shop")
    wire.decision_request(wire.Decide(arms=[{}] * 20), of, bounds)
    many = wire.DecideMany([wire.Decide(arms=[{}] * 11)] * 2)
    with pytest.raises(wire.Refused, match=r"210,000 entries; at most 200,000"):
        wire.decision_request(wire.Decide(arms=[{}] * 21), of, bounds)
    with pytest.raises(wire.Refused, match=r"220,000 entries; at most 200,000"):
        wire.decision_requests(many, of, bounds)
    # What waits is weighed by what it has become.
    hot = HotEndpoint(HOT_ROUTES[0], service.core, of)
    body = b'{"arms": [' + b",".join([b"{}"] * 20) + b"]}"
    assert hot.work(body, "application/json", None).weight == len(body) + 20 * 10_000 * 8


def test_memory_stays_bounded_under_ever_new_names_and_texts(tmp_path: Path) -> None:
    """P27: places of texts are kept in a cache of bounded size, names while decisions are open."""
    text = HEAD + model("shop", features("shop"), window="0.5 s", apply="window")
    with (
        Server(tmp_path, text.replace("audit = true\n", "")) as server,
        Client(server.url) as client,
    ):

        def resident() -> float:
            status = Path(f"/proc/{server.pid}/status").read_text()
            found = re.search(r"VmRSS:\s+(\d+) kB", status)
            assert found is not None
            return int(found[1]) / 1000.0

        def visit(i: int) -> dict[str, Any]:
            names = [f"{i}-{k}" + "n" * 240 for k in range(8)]
            return {"arms": {n: {f"{n} {j}"[:100]: f"{i} {j}" for j in range(5)} for n in names}}

        for i in range(20):
            client.decide_many("shop", [visit(-10 * i - k) for k in range(10)])
        before = resident()
        for i in range(150):
            client.decide_many("shop", [visit(10 * i + k) for k in range(10)])
        time.sleep(1.0)
        assert resident() - before < 64.0


# --- the client ----------------------------------------------------------------------------------


def test_the_client_takes_mappings_and_dictionaries(server: Server) -> None:
    rng = np.random.default_rng(9)
    arms, who = offers(rng, ["toys", "books", "shoes"]), user(rng)
    rows = ENCODER(list(arms.values()), shared=who)
    numbers = dict(zip(arms, rows, strict=True))
    with Client(server.url) as client:
        asked = [
            client.decide("fixed", arms=arms, context=who, explain=True),
            client.decide("fixed", arms=list(arms.values()), context=who),
            client.decide("fixed", arms=numbers),
            client.decide("fixed", arms=numbers, packed=True),
            client.decide("fixed", arms=rows, packed=True, candidates=["books"]),
            client.decide("fixed", arms=arms, context=who, packed=True, blocked=["toys"]),
            *client.decide_many("fixed", [{"arms": arms, "context": who}, {"arms": rows}]),
        ]
        for one in asked:
            assert one.arm is not None
            assert one.name == list(arms)[one.arm]
        assert asked[4].name == "books"
        assert asked[5].name != "toys"
        assert asked[0].explanation is not None
        assert asked[0].explanation[0]["name"] == asked[0].name
        price = np.float64(3.0)
        one = client.decide(
            "shop", arms={"a": {"price": price, "new": np.bool_(True), "t": ("x",)}}
        )
        assert one.name == "a"
        assert client.feedback(one, {"clicks": 1}) == "joined"
        assert client.decide("plain", arms=[[0.1, 0.2]]).name is None
        added = {key: {"price": 3, "category": key} for key in "ef"}
        assert client.add_items("front", added) == 6
        assert client.items("front")["e"] == PRODUCTS(added["e"]).tolist()
        assert client.retire("front", "e") == 5
        assert client.retire("front", "f") == 4
        ranked = client.decide("front", context={"age": 31})
        assert ranked.items is not None
        assert ranked.name is None
        with pytest.raises(InvalidInput, match=r"arms\.a: feature 'price' is 'x'"):
            client.decide("shop", arms={"a": {"price": "x"}})


def test_encoders_are_read_as_they_were_written() -> None:
    for name in ("shop", "apart", "pair", "front", "plain"):
        begun = setup(parse(CONFIG), name)
        encoders = begun.make_encoders()
        again = encoders.to_json(begun.make_problem(4))
        assert Encoders.from_json(again) == encoders
        assert (again == "{}") == (name == "plain")
