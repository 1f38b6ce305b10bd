"""Rankings whose rewards arrive in stages: the first has the exposures, later ones wait for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairwolfe as fw
from fairwolfe.service.events import Applied, ItemsAdded, decode
from fairwolfe.service.recovery import recover, replay
from fairwolfe.service.wire import Refused, decision_view
from tests.service.inside import Inside, MemoryStore
from tests.service.servers import Server, wait_for
from tests.service.test_log_command import run, table

SHORT, LONG = 10.0, 100.0
SHOP = """
state = "state"
listen = "127.0.0.1:0"
[models.shop]
missing = "{missing}"
apply = "{apply}"
objective = "TwoSided(GiniWelfare(), beta=0.5) + AtMost({{'returned': 0.4}})"
policy = {{ name = "fw-linucb-rank", exploration = 0.1, exposure = "{exposure}" }}
[models.shop.problem]
kind = "ranking"
n_slots = 3
n_features = [2, 2]
[models.shop.problem.rewards]
clicks = {{ range = [0, 3], window = "{short}" }}
returned = {{ range = [0, 3], window = "{long}" }}
"""
KEYS = tuple("abcdef")
ITEMS = np.random.default_rng(0).uniform(-0.5, 0.5, (6, 2))
STAGES = (("clicks",), ("returned",))
WAYS = [(missing, apply) for missing in ("zero", "skip") for apply in ("window", "arrival")]


def text(
    missing: str = "zero",
    apply: str = "window",
    exposure: str = "observed",
    short: str = "10 s",
    long: str = "100 s",
) -> str:
    return SHOP.format(missing=missing, apply=apply, exposure=exposure, short=short, long=long)


def started(*how: str, store: Any = None) -> Inside:
    """A service with items."""
    service = Inside(text(*how), store)
    change = service.core.change("shop", lambda: ItemsAdded(0, KEYS, ITEMS, ""))
    assert not isinstance(service.together(change)[0], Exception)
    return service


def shown(service: Inside, number: int) -> list[str]:
    model = service.model("shop")
    return model.keys_of(model.ring.action(number))


def entry(service: Inside, number: int, **said: Any) -> dict[str, Any]:
    return {"id": service.model("shop").id(number), **said}


def decided(service: Inside, n: int, seed: int = 1) -> list[list[str]]:
    users = np.random.default_rng(seed).uniform(-0.5, 0.5, (n, 2)).tolist()
    first = service.model("shop").decisions
    service.decide_many("shop", [{"user": user} for user in users])
    return [shown(service, first + i) for i in range(n)]


def conserved(service: Inside) -> None:
    model = service.model("shop")
    assert model.stopped == ""
    for stage, one in enumerate(model.by_stage()):
        assert model.decisions == one["joined"] + one["expired"] + one["open"], stage
        assert model.agent is not None
        assert model.agent.stats()["stages"][stage]["t"] == one["t"]


# --- what becomes of feedback -------------------------------------------------------------------


def test_what_is_told_of_each_stage() -> None:
    service = started()
    keys = decided(service, 5)

    def told(number: int, **said: Any) -> tuple[str, Any]:
        found = service.told("shop", entry(service, number, **said))[0]
        return found.outcome, dict(found.rewards)

    top, other = keys[0][:2]
    assert told(0, exposed=[top], clicked=[top]) == ("joined", {})
    assert told(0, rewards={"returned": {top: 1}}) == ("joined", {})
    assert told(0, exposed=[top], rewards={"returned": {top: 1}}) == ("known", {})
    assert told(0, clicked=[top], rewards={"returned": {top: 0}}) == (
        "conflict",
        {"known": ["clicks"], "conflict": ["returned"]},
    )
    # What was returned was exposed, as what was clicked was.
    assert told(0, rewards={"returned": {other: 1}}) == ("joined", {})
    model = service.model("shop")
    assert service.core.find(model, model.id(0)).joined.exposed.sum() == 2
    with pytest.raises(Refused, match="is not among the exposed"):
        told(1, exposed=[], rewards={"returned": {keys[1][0]: 1}})
    with pytest.raises(Refused, match="was not shown"):
        told(1, rewards={"returned": {next(k for k in KEYS if k not in keys[1]): 1}})
    assert told(1, exposed=keys[1][:1], clicked=[]) == ("joined", {})
    service.advance(SHORT)
    conserved(service)
    # The first stage was learnt without it.
    assert told(1, rewards={"returned": {keys[1][1]: 1}}) == ("conflict", {})
    assert told(1, rewards={"returned": {keys[1][0]: 1, keys[1][1]: 0}}) == ("joined", {})
    assert told(2, exposed=keys[2], rewards={"returned": {}}) == ("joined", {"late": ["exposed"]})
    assert told(3, exposed=keys[3], clicked=keys[3]) == ("late", {})
    service.advance(LONG - SHORT)
    assert told(1, rewards={"returned": {}}) == ("late", {})
    conserved(service)
    assert [(one["joined"], one["expired"]) for one in model.by_stage()] == [(2, 3), (3, 2)]
    assert model.average() == {"clicks": 1 / 5, "returned": 3 / 5}


def test_a_later_stage_expires_with_the_first() -> None:
    service = started("skip")
    keys, model = decided(service, 3), service.model("shop")
    service.tell("shop", entry(service, 0, exposed=keys[0], clicked=[]))
    early = entry(service, 1, rewards={"returned": {}})
    assert service.tell("shop", early) == ["joined"]  # the first stage may still come
    service.advance(SHORT)
    conserved(service)
    assert service.tell("shop", early) == ["known"]
    assert service.tell("shop", entry(service, 2, rewards={"returned": {}})) == ["late"]
    service.advance(LONG)
    conserved(service)
    assert [(one["joined"], one["expired"]) for one in model.by_stage()] == [(1, 2), (0, 3)]
    views = [decision_view(model, service.core.find(model, model.id(n))) for n in range(3)]
    states = [[stage["state"] for stage in view["stages"]] for view in views]
    assert states == [["joined", "expired"], ["expired", "expired"], ["expired", "expired"]]


def test_on_arrival_a_later_stage_waits_for_the_first() -> None:
    service = started("zero", "arrival")
    keys, model = decided(service, 2), service.model("shop")
    service.tell("shop", entry(service, 0, rewards={"returned": {keys[0][0]: 1}}, final=True))
    assert [one["t"] for one in model.by_stage()] == [0, 0]
    service.tell("shop", entry(service, 0, exposed=keys[0][:1], clicked=keys[0][:1], final=True))
    assert [one["t"] for one in model.by_stage()] == [1, 1]
    row = decode(service.store.log[-1].payload)
    assert [one.stage for one in row if isinstance(one, Applied)] == [0, 1]
    assert model.average() == {"clicks": 1.0, "returned": 1.0}
    service.tell("shop", entry(service, 1, exposed=keys[1], clicked=[], final=True))
    late = entry(service, 1, rewards={"returned": {keys[1][2]: 1}}, final=True)
    assert service.tell("shop", late) == ["joined"]
    assert [one["t"] for one in model.by_stage()] == [2, 2]
    assert service.tell("shop", late) == ["known"]
    service.advance(LONG)
    conserved(service)
    assert [(one["joined"], one["expired"]) for one in model.by_stage()] == [(2, 0), (2, 0)]


# --- the library learns the same ----------------------------------------------------------------


@pytest.mark.parametrize("exposure", ["observed", "shown", "until_last_click"])
@pytest.mark.parametrize("missing", ["zero", "skip"])
def test_the_service_learns_what_an_agent_learns(missing: str, exposure: str) -> None:
    """One agent is told, stage by stage as windows end, what the service is told in pieces."""
    service = started(missing, "window", exposure)
    model, rng = service.model("shop"), np.random.default_rng(2)
    problem = fw.Problem.ranking(
        6, 3, (2, 2), {"clicks": (0, 3), "returned": (0, 3)}, stages=STAGES
    )
    items = dict(zip(KEYS, ITEMS, strict=True))
    agent = fw.Agent(model.setup.make_policy(), problem, items=items, token="model-0")
    made: list[fw.Decision] = []
    told: dict[tuple[int, int], Any] = {}

    def end(stage: int, number: int) -> None:
        given = told.get((stage, number))
        if missing == "skip" and stage == 1 and (0, number) not in told:
            return  # it has expired
        if given is None and missing == "skip":
            agent.expire(made[number], stage)
        elif stage == 1:
            agent.update(made[number], {"returned": given or {}}, missing=0.0)
        else:
            exposed, clicked = given or ([], [])
            agent.update(made[number], exposed=exposed, clicked=clicked, missing=0.0)

    def passes(seconds: float) -> None:
        for _ in range(round(seconds / 0.25)):  # a tick
            before = list(model.ring.ended)
            service.advance(0.25)
            for stage in (0, 1):
                for number in range(before[stage], model.ring.ended[stage]):
                    end(stage, number)

    for step in range(60):
        user = rng.uniform(-0.5, 0.5, 2)
        service.decide("shop", user=user.tolist())
        made.append(agent.act(user))
        keys = shown(service, step)
        assert keys == list(made[-1].names or ())
        number = int(rng.integers(max(step - 3, 0), step + 1))
        if (0, number) not in told and rng.random() < 0.7:
            seen = int(rng.integers(4))
            exposed = shown(service, number)[:seen]
            clicked = [key for key in exposed if rng.random() < 0.5]
            told[0, number] = exposed, clicked
            service.tell("shop", entry(service, number, exposed=exposed, clicked=clicked))
        number = int(rng.integers(max(step - 30, model.ring.ended[1]), step + 1))
        if (1, number) not in told and (0, number) in told:
            clicked = told[0, number][1]
            back = {key: round(float(rng.random()), 3) for key in clicked if rng.random() < 0.7}
            told[1, number] = back
            answer = service.tell("shop", entry(service, number, rewards={"returned": back}))
            assert answer == ["joined"]
        passes(2.0)
    assert 0 < model.ring.first < model.ring.closed < 60
    passes(LONG)
    conserved(service)
    assert model.agent is not None
    assert model.agent.averages["returned"] > 0.0
    assert model.agent.averages == agent.averages
    assert model.agent.stats()["stages"] == agent.stats()["stages"]
    assert model.agent.dump() == agent.dump()  # bit for bit


# --- the log ------------------------------------------------------------------------------------


def played(service: Inside, steps: int = 60, seed: int = 3) -> None:
    """Decisions, and feedback for both stages at any time."""
    model, rng = service.model("shop"), np.random.default_rng(seed)
    for step in range(steps):
        users = rng.uniform(-0.5, 0.5, (int(rng.integers(1, 4)), 2)).tolist()
        service.decide_many("shop", [{"user": user} for user in users])
        for _ in range(4):
            number = int(rng.integers(max(model.ring.first, model.decisions - 60), model.decisions))
            keys, final = shown(service, number), bool(rng.random() < 0.3)
            item = keys[int(rng.integers(3))]
            said: dict[str, Any] = {"exposed": keys[:2], "clicked": keys[:1]}
            if rng.random() < 0.5:
                said = {"rewards": {"returned": {item: float(rng.integers(2))}}}
            service.tell("shop", entry(service, number, final=final, **said))
        service.advance(2.5)
        conserved(service)
        if step % 25 == 24:
            service.core.snapshot()


@pytest.mark.parametrize(("missing", "apply"), WAYS)
def test_the_state_is_the_fold_of_the_log(missing: str, apply: str) -> None:
    store = MemoryStore()
    service = started(missing, apply, store=store)
    played(service)
    model = service.model("shop")
    assert model.ring.first > 20
    assert model.ring.closed - model.ring.first > 60
    service.core._commit(service.core._unwritten_counts())
    assert replay(store).models[0].digest() == model.digest()
    newest, *older = store.kept[0]
    assert older
    damaged: Any = (newest[0], None)
    for snapshots in ([newest, *older], [damaged, *older]):
        store.kept[0] = snapshots
        assert recover(store).models[0].digest() == model.digest()
    again = Inside(text(missing, apply), store)
    again.advance(LONG)
    conserved(again)
    assert again.model("shop").ring.first == again.model("shop").decisions


@given(order=st.permutations(range(12)), missing=st.sampled_from(["zero", "skip"]))
@settings(max_examples=20)
def test_any_order_comes_to_the_same_bits(order: list[int], missing: str) -> None:
    dumps = []
    for places in (range(12), order):
        service = started(missing)
        parts = []
        for number, keys in enumerate(decided(service, 4)):
            back = {"returned": {keys[1]: 1.0}}
            parts += [
                entry(service, number, exposed=keys[:2]),
                entry(service, number, clicked=keys[1:2]),
                entry(service, number, rewards=back),
            ]
        for place in places:
            assert service.tell("shop", parts[place], parts[place])[0] in ("joined", "known")
        service.advance(LONG)
        agent = service.model("shop").agent
        assert agent is not None
        assert agent.averages == {"clicks": 1.0, "returned": 1.0}
        dumps.append(agent.dump())
    assert dumps[0] == dumps[1]


# --- on a real server ---------------------------------------------------------------------------


def test_a_server_with_a_staged_ranking(tmp_path: Path) -> None:
    shop = "/v1/models/shop"
    with Server(tmp_path, text(short="1 s", long="2 s")) as server:
        pairs = zip(KEYS, ITEMS.tolist(), strict=True)
        server.post(f"{shop}/items", {"items": [{"key": k, "features": x} for k, x in pairs]})
        made = [server.post(f"{shop}/decide", {"user": [0.3, 0.1 * i]}) for i in range(3)]
        assert [one["rewards"] for one in made[0]["stages"]] == [list(one) for one in STAGES]
        top = made[0]["items"][0]
        first = {"id": made[0]["id"], "exposed": [top], "clicked": [top]}
        assert server.post(f"{shop}/feedback", first)[0]["outcome"] == "joined"
        wait_for(lambda: server.get(shop)["stages"][0]["joined"] == 1)
        server.kill()  # what waits for its later stage is read back from the log
        server.start()
        server.post(f"{shop}/decide", {"user": [0.3, 0.4]})  # what-if needs one since the start
        back = {"id": made[0]["id"], "rewards": {"returned": {top: 1}}}
        assert server.post(f"{shop}/feedback", back)[0]["outcome"] == "joined"
        wait_for(lambda: server.get(shop)["open"] == 0)
        known = server.get(shop)
        assert known["average"] == {"clicks": 1 / 4, "returned": 1 / 4}
        assert [one["joined"] for one in known["stages"]] == [1, 1]
        assert "returned" in server.get(f"{shop}/constraints")["constraints"][0]["sentence"]
        assert b'<p class="soft">clicks</p>' in server.get("/")
        what = {"objectives": ["Linear({'clicks': 1.0})"]}
        asked = server.request("POST", f"{shop}/what-if", what).body
        wait_for(lambda: server.get(f"{shop}/what-if/{asked['id']}")["state"] == "done", 120.0)
        assert server.stop() == 0
    assert run("verify", tmp_path / "state", "--fold").exit_code == 0
    assert run("export", tmp_path / "state", tmp_path / "log.jsonl").exit_code == 0
    _, rows = table(tmp_path / "log.jsonl")
    assert [sum(row["reward.returned"]) for row in rows] == [1.0, 0.0, 0.0, 0.0]
