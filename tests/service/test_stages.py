"""Rewards that arrive in stages, each with its own window: what is learnt when, what it comes to,
and what is held of a decision that waits for a later stage.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.errors import InvalidInput
from fairwolfe.service.config import Limits, parse, windows_of
from fairwolfe.service.events import Applied, Closed, FeedbackReceived, decode, encode
from fairwolfe.service.export import keep_snapshots, plan, prune
from fairwolfe.service.log_file import LogFile, verify
from fairwolfe.service.model import Model
from fairwolfe.service.recovery import recover, replay
from fairwolfe.service.store import FILE, SQLiteStore
from fairwolfe.service.wire import Refused, decide_reply, decision_view
from tests.service.inside import Inside, MemoryStore
from tests.service.servers import Server, wait_for
from tests.service.test_log_command import run, table

SHORT, LONG = 10.0, 100.0
SHOP = """
state = "state"
listen = "127.0.0.1:0"
{head}
[models.shop]
missing = "{missing}"
apply = "{apply}"
objective = "Linear({{'clicks': 1.0, 'margin': 0.1, 'returned': -2.0}})"
policy = {{ name = "frank-wolfe", base = {{ name = "{base}" }} }}
[models.shop.problem]
kind = "arms"
n_features = 3
[models.shop.problem.rewards]
clicks = {{ range = [0, 1], window = "10 s" }}
margin = {{ range = [0, 10], window = "10 s" }}
returned = {{ range = [0, 1], window = "100 s" }}
"""
NAMES = ("clicks", "margin", "returned")
STAGES = (("clicks", "margin"), ("returned",))


def text(missing: str = "zero", apply: str = "window", base: str = "linucb", head: str = "") -> str:
    return SHOP.format(missing=missing, apply=apply, base=base, head=head)


def arms(rng: np.random.Generator) -> Any:
    return rng.uniform(-0.5, 0.5, (4, 3)).tolist()


def entry(service: Inside, number: int, final: bool = False, **rewards: Any) -> dict[str, Any]:
    return {"id": service.model("shop").id(number), "rewards": rewards, "final": final}


def conserved(service: Inside) -> None:
    model = service.model("shop")
    for stage, one in enumerate(model.by_stage()):
        assert model.decisions == one["joined"] + one["expired"] + one["open"], stage


# --- the configuration ------------------------------------------------------------------------


def test_rewards_with_one_window_are_a_stage() -> None:
    config = parse(text())
    assert windows_of(config) == {"shop": (SHORT, LONG)}
    assert Inside(text()).model("shop").stages == STAGES
    common = text().replace('"100 s"', '"10 s"')
    assert windows_of(parse(common)) == {"shop": (SHORT,)}
    assert Inside(common).model("shop").stages == (NAMES,)
    short = text().replace('{ range = [0, 1], window = "10 s" }', "[0, 1]")
    short = short.replace('{ range = [0, 10], window = "10 s" }', "{ range = [0, 10] }")
    short = short.replace('missing = "zero"', 'missing = "zero"\nwindow = "7 s"')
    assert windows_of(parse(short)) == {"shop": (7.0, LONG)}


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('margin = { range = [0, 10], window = "10 s"',
         'margin = { range = [0, 10], window = "5 s"',
         r"rewards are clicks, margin, returned; .* list them as margin, clicks, returned"),
        ('"100 s"', '"100 lightyears"', "rewards.returned.window is '100 lightyears'"),
        ('range = [0, 10], ', "", r"rewards.margin is .*; give its range"),
        ('range = [0, 10], ', "range = [0, 10], wait = 3, ", "rewards.margin is"),
        ('n_features = 3', 'n_features = 3\nstages = [["clicks"]]', "stages is not given here"),
    ],
)  # fmt: skip
def test_what_the_configuration_refuses(old: str, new: str, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        parse(text().replace(old, new))


def test_windows_may_change_at_a_start_and_stages_may_not() -> None:
    store = MemoryStore()
    Inside(text(), store)
    assert Inside(text().replace('"100 s"', '"50 s"'), store).core.windows["shop"] == (SHORT, 50.0)
    with pytest.raises(fw.errors.IncompatibleState, match="stages"):
        Inside(text().replace('"100 s"', '"10 s"'), store)


# --- what becomes of feedback -------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["zero", "skip"])
def test_each_stage_is_joined_late_known_or_in_conflict_by_itself(missing: str) -> None:
    service = Inside(text(missing))
    model, rng = service.model("shop"), np.random.default_rng(0)
    for _ in range(4):
        service.decide("shop", arms=arms(rng))

    def told(number: int, **rewards: Any) -> tuple[str, Any]:
        found = service.told("shop", entry(service, number, **rewards))[0]
        conserved(service)
        return found.outcome, dict(found.rewards)

    assert told(0, clicks=1.0) == ("joined", {})
    assert told(0, clicks=1.0, returned=0.0) == ("joined", {"known": ["clicks"]})
    assert told(0, clicks=0.0, returned=0.0) == (
        "conflict",
        {"conflict": ["clicks"], "known": ["returned"]},
    )
    assert told(0, clicks=1.0, returned=0.0) == ("known", {})
    assert told(1, returned=1.0) == ("joined", {})  # the later stage first
    service.advance(SHORT)
    assert (model.ring.closed, model.ring.first) == (4, 0)
    assert told(0, margin=3.0) == ("late", {})
    assert told(2, clicks=1.0, returned=1.0) == ("joined", {"late": ["clicks"]})
    assert told(2, returned=0.0) == ("conflict", {})
    assert told(2, clicks=1.0, returned=1.0) == (
        "late",
        {"late": ["clicks"], "known": ["returned"]},
    )
    service.advance(LONG - SHORT)
    assert (model.ring.closed, model.ring.first) == (4, 4)
    assert told(3, returned=1.0, clicks=0.0) == ("late", {})
    assert service.tell("shop", {"id": model.id(99), "rewards": {"clicks": 1.0}}) == ["unknown"]
    assert [(s["joined"], s["expired"]) for s in model.by_stage()] == [(1, 3), (3, 1)]
    learnt = [4, 4] if missing == "zero" else [1, 3]
    assert [s["t"] for s in model.by_stage()] == learnt
    assert model.agent is not None
    assert [s["t"] for s in model.agent.stats()["stages"]] == learnt
    # An entry counts in each stage of which it says something.
    assert {name: model.counts[name] for name in ("known", "late", "unknown", "conflict")} == {
        **{"known": 5, "late": 4, "unknown": 1, "conflict": 2}
    }
    average = model.average()
    clicks, returned = (1.0, 2.0)
    assert average["clicks"] == pytest.approx(clicks / learnt[0])
    assert average["returned"] == pytest.approx(returned / learnt[1])
    assert replay(service.store).models[0].digest() == model.digest()


def test_what_a_decision_says_of_its_stages() -> None:
    service = Inside(text())
    model = service.model("shop")
    made = service.decide("shop", arms=arms(np.random.default_rng(0)))
    reply = decide_reply(model, made, service.core.windows["shop"])
    assert reply.closes_in == LONG
    assert [(one.rewards, one.closes_in) for one in reply.stages or ()] == [
        (STAGES[0], SHORT),
        (STAGES[1], LONG),
    ]

    def states() -> tuple[str, list[str]]:
        view = decision_view(model, service.core.find(model, model.id(0)))
        assert view["arm"] == made.action
        return view["state"], [stage["state"] for stage in view["stages"]]

    assert states() == ("open", ["open", "open"])
    service.tell("shop", entry(service, 0, clicks=1.0, margin=1.0))
    service.advance(SHORT)
    assert states() == ("open", ["joined", "open"])
    service.advance(LONG - SHORT)
    assert states() == ("joined", ["joined", "expired"])


def test_an_entry_that_names_no_reward_of_any_stage_is_refused() -> None:
    service = Inside(text())
    service.decide("shop", arms=arms(np.random.default_rng(0)))
    for wrong in ({"bogus": None}, {"bogus": 1.0}, {"clicks": float("nan")}):
        with pytest.raises(Refused):
            service.tell("shop", entry(service, 0, **wrong))
    assert service.tell("shop", entry(service, 0, returned=None)) == ["joined"]  # and nothing came
    service.advance(LONG)
    assert [one["joined"] for one in service.model("shop").by_stage()] == [0, 1]


# --- the library learns the same ------------------------------------------------------------------


def problem() -> fw.Problem:
    return fw.Problem.arms(
        3, {"clicks": (0, 1), "margin": (0, 10), "returned": (0, 1)}, stages=STAGES
    )


@pytest.mark.parametrize("base", ["linucb", "squarecb"])
@pytest.mark.parametrize("missing", ["zero", "skip"])
@pytest.mark.parametrize("apply", ["window", "arrival"])
def test_the_service_learns_what_an_agent_learns(missing: str, apply: str, base: str) -> None:
    """One agent is told, stage by stage, what the service is told in pieces."""
    service = Inside(text(missing, apply, base))
    model, rng = service.model("shop"), np.random.default_rng(1)
    agent = fw.Agent(model.setup.make_policy(), problem(), token="model-0")
    made: list[Any] = []
    due: list[tuple[int, int]] = []  # stage, number: their windows end in this order
    told: dict[tuple[int, int], Any] = {}

    def end(stage: int, number: int) -> None:
        if (stage, number) not in told and missing == "skip":
            agent.expire(made[number], stage)
        elif told.get((stage, number)) != "learnt":
            earned = told.get((stage, number), {})
            agent.update(made[number], {n: earned.get(n, 0.0) for n in STAGES[stage]})

    for step in range(60):
        asked = arms(rng)
        answer = service.decide("shop", arms=asked)
        made.append(agent.act(asked))
        assert answer.action == made[-1].action
        assert answer.probability == made[-1].probability
        for stage, names in enumerate(STAGES):
            number = int(rng.integers(max(step - 5 * (1 + 5 * stage), 0), step + 1))
            known = number < model.ring.ended[stage] or (stage, number) in told
            if known or rng.random() < 0.3:
                continue
            top = {"clicks": 1.0, "margin": 10.0, "returned": 1.0}
            earned: dict[str, Any] = {n: round(float(rng.random()) * top[n], 3) for n in names}
            assert service.tell("shop", entry(service, number, **earned)) == ["joined"]
            told[stage, number] = earned
            if apply == "arrival":
                agent.update(made[number], earned)
                told[stage, number] = "learnt"
        before = list(model.ring.ended)
        service.advance(2.0)
        for stage in (0, 1):
            due += [(stage, n) for n in range(before[stage], model.ring.ended[stage])]
        for stage, number in due:
            end(stage, number)
        due.clear()
    assert model.agent is not None
    assert 0 < model.ring.first < model.ring.closed < 60
    before = list(model.ring.ended)
    service.advance(SHORT)
    for number in range(before[0], 60):
        end(0, number)
    for number in range(before[1], model.ring.ended[1]):
        end(1, number)
    assert model.agent.averages == agent.averages
    before = list(model.ring.ended)
    service.advance(LONG)
    for number in range(before[1], 60):
        end(1, number)
    assert model.agent.stats()["stages"] == agent.stats()["stages"]
    assert model.agent.dump() == agent.dump()  # bit for bit
    assert not model.agent._known


# --- restarts -----------------------------------------------------------------------------------


def played(service: Inside, steps: int = 80, seed: int = 3) -> None:
    """Decisions, and feedback for both stages at any time."""
    model, rng = service.model("shop"), np.random.default_rng(seed)
    for step in range(steps):
        service.decide_many("shop", [{"arms": arms(rng)} for _ in range(int(rng.integers(1, 4)))])
        for _ in range(4):
            number = int(rng.integers(max(0, model.decisions - 60), model.decisions))
            name = NAMES[int(rng.integers(3))]
            final = bool(rng.random() < 0.2)
            service.tell("shop", entry(service, number, final, **{name: float(rng.integers(2))}))
        service.advance(1.5)
        conserved(service)
        if step % 25 == 24:
            service.core.snapshot()


@pytest.mark.parametrize("missing", ["zero", "skip"])
@pytest.mark.parametrize("apply", ["window", "arrival"])
def test_the_state_is_the_fold_of_the_log(missing: str, apply: str) -> None:
    store = MemoryStore()
    service = Inside(text(missing, apply), store)
    played(service)
    model = service.model("shop")
    assert model.ring.first > 20
    assert model.ring.closed - model.ring.first > 60
    service.core._commit(service.core._unwritten_counts())
    whole = replay(store).models[0]
    assert whole.digest() == model.digest()
    newest, *older = store.kept[0]
    assert older
    damaged: Any = (newest[0], None)
    for snapshots in ([newest, *older], [damaged, *older]):
        store.kept[0] = snapshots
        assert recover(store).models[0].digest() == model.digest()
    # And the service goes on from there as if there had been no pause.
    again = Inside(text(missing, apply), store)
    for one in (again, Inside(text(missing, apply), MemoryStore())):
        dumped = one.model("shop").dump()
        assert Model.load(0, one.store, one.core.seq, dumped).dump() == dumped
    again.advance(LONG)
    conserved(again)
    assert again.model("shop").ring.first == again.model("shop").decisions


def test_a_snapshot_does_not_grow_with_what_waits() -> None:
    """It holds a bit for each stage of a decision that waits, and what changed since the last."""
    service = Inside(text())
    rng = np.random.default_rng(0)
    sizes, pieces = [], []
    for _ in range(4):
        for _ in range(8):
            service.decide_many("shop", [{"arms": arms(rng)}] * 200)
        service.advance(SHORT)
        service.core.snapshot()
        sizes.append(len(service.store.kept[0][0][1]))
        pieces.append(len(service.store.waiting[0][-1][1]))
    assert service.model("shop").ring.first == 0
    assert sizes[-1] - sizes[0] < 3 * 1600  # bytes, for 4,800 decisions more that wait
    assert max(pieces) - min(pieces) < 20
    service.decide("shop", arms=arms(rng))
    service.core.snapshot()
    assert len(service.store.waiting[0][-1][1]) < 200
    model = service.model("shop")
    assert recover(service.store).models[0].digest() == model.digest()


def test_what_waits_is_not_held_whole() -> None:
    service = Inside(text(), limits=Limits(open=300, later=500))
    rng, model = np.random.default_rng(0), service.model("shop")

    def decide() -> None:
        asks = [{"arms": arms(rng), "request_id": f"{rng.random()}"} for _ in range(250)]
        service.decide_many("shop", asks)

    decide()
    with pytest.raises(Refused, match=r"limits\.open is 300"):
        decide()
    service.advance(SHORT)
    assert (model.ring.groups, model.ring.requests) == ([], {})
    assert model.ring.open == 250
    decide()
    service.advance(SHORT)
    with pytest.raises(
        Refused, match=r"500 decisions .* wait for later rewards, and limits\.later"
    ):
        service.decide("shop", arms=arms(rng))
    held = sum(column.nbytes for column in model.ring._columns) / len(model.ring._columns.marks)
    assert held <= 32
    service.advance(LONG)
    assert model.ring.open == 0
    service.decide("shop", arms=arms(rng))


# --- on the disk --------------------------------------------------------------------------------


def stored(folder: Path, apply: str = "window") -> tuple[str, Any]:
    """A log with a model whose decisions wait for both stages; its digest."""
    store = SQLiteStore(folder)
    service = Inside(text(apply=apply), store)
    played(service)
    service.core.snapshot()
    digest = service.model("shop").digest()
    store.close()
    return digest, service


@pytest.mark.parametrize("apply", ["window", "arrival"])
def test_a_log_with_stages_verifies_and_starts_again(tmp_path: Path, apply: str) -> None:
    digest, _ = stored(tmp_path, apply)
    log = LogFile(tmp_path / FILE)
    found = verify(log, True, lambda _: None)
    assert (found.wrong, found.notes, found.folded) == ([], [], True)
    assert replay(log).models[0].digest() == digest
    log.close()
    store = SQLiteStore(tmp_path)
    assert recover(store).models[0].digest() == digest
    store.close()


def test_damage_to_what_waits_is_found_and_a_start_does_without(tmp_path: Path) -> None:
    digest, _ = stored(tmp_path)
    store = SQLiteStore(tmp_path)
    assert store._one("SELECT count(*) FROM later") > 1
    store._base.execute(
        "UPDATE later SET data = zeroblob(9) WHERE seq = (SELECT max(seq) FROM later)"
    )
    found = recover(store)
    assert found.models[0].digest() == digest  # from the older snapshot
    assert found.records > 0
    store.close()
    log = LogFile(tmp_path / FILE)
    assert any("later stages" in one for one in verify(log, False, lambda _: None).wrong)
    log.close()


def test_rows_of_what_waits_are_not_deleted(tmp_path: Path) -> None:
    digest, service = stored(tmp_path)
    ring = service.model("shop").ring
    store = SQLiteStore(tmp_path)
    keep_snapshots(store)
    rows = store._one("SELECT count(*) FROM log")
    planned = plan(store)
    assert planned.bases[0].first > 0
    assert prune(store, planned) > 0
    assert store._one("SELECT count(*) FROM log") < rows
    assert all(store.row_of(0, n) is not None for n in range(ring.first, ring.issued))
    assert recover(store).models[0].digest() == digest
    assert replay(store).models[0].digest() == digest
    again = Inside(text(), store)
    again.advance(LONG)
    model = again.model("shop")
    assert (model.ring.first, model.ring.open) == (model.decisions, 0)
    assert not model.stopped
    store.close()


def test_a_model_whose_log_cannot_be_read_back_stops_and_others_go_on(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    both = text() + text().split("[models.shop]", 1)[1].join(["[models.other]", ""]).replace(
        "models.shop", "models.other"
    )
    service = Inside(both, store)
    rng = np.random.default_rng(0)
    for name in ("shop", "other", "shop", "other"):
        service.decide(name, arms=arms(rng))
    service.advance(SHORT)
    store._base.execute("DELETE FROM span WHERE model = 0")
    service.advance(LONG)
    assert "waits for a later stage, and is not in the log" in service.model("shop").stopped
    assert service.model("other").ring.first == 2
    store.close()


# --- events -------------------------------------------------------------------------------------


def test_events_of_one_stage_are_written_without_it() -> None:
    none, numbers = np.zeros(0), np.array([3])
    told = FeedbackReceived(
        *(0, numbers, np.array([True]), np.zeros((0, 2), np.int32), np.zeros((0, 3), np.int32)),
        *(none, (0, 0, 0, 0)),
    )
    for event, staged in (
        (Closed(0, 1, 2), Closed(0, 1, 2, 1)),
        (Applied(0, numbers), Applied(0, numbers, 1)),
        (told, told._replace(stages=b"\1")),
    ):
        short, long = encode([event], 0.0), encode([staged], 0.0)
        assert len(short) < len(long)
        for data, one in ((short, event), (long, staged)):
            assert decode(data)[0][-1] == one[-1]


# --- what is told of a model, and its log -------------------------------------------------------


def test_a_server_with_stages_tells_of_each(tmp_path: Path) -> None:
    short = text().replace('"10 s"', '"0.4 s"').replace('"100 s"', '"2 s"')
    path, rng = "/v1/models/shop", np.random.default_rng(0)
    with Server(tmp_path, short) as server:
        for _ in range(6):
            asks = [{"arms": arms(rng)} for _ in range(100)]
            made = server.post(f"{path}/decide_many", {"requests": asks})
            assert [one["closes_in"] for one in made[0]["stages"]] == [0.4, 2.0]
            entries = [
                {"id": one["id"], "rewards": {name: int(rng.integers(2))}}
                for one in made
                for name in NAMES
                if rng.random() < 0.8
            ]
            replies = server.post(f"{path}/feedback", entries)
            assert {one["outcome"] for one in replies} <= {"joined"}
        id = made[0]["id"]
        wait_for(lambda: server.get(path)["stages"][0]["open"] == 0)
        waiting = server.get(path)
        assert waiting["stages"][1]["open"] == waiting["open"] == 600
        lines = server.get("/metrics").decode().splitlines()
        assert 'fairwolfe_open{model="shop",stage="clicks,margin"} 0.0' in lines
        assert 'fairwolfe_open{model="shop",stage="returned"} 600.0' in lines
        assert 'fairwolfe_later{model="shop"} 600.0' in lines
        told = server.post(f"{path}/feedback", {"id": id, "rewards": {"clicks": 0, "returned": 1}})
        assert told[0]["late"] == ["clicks"]
        server.kill()
        server.start()
        wait_for(lambda: server.get(path)["open"] == 0)
        end = server.get(path)
        assert [one["window"] for one in end["stages"]] == [0.4, 2.0]
        assert [one["t"] for one in end["stages"]] == [600, 600]
        assert (end["t"], end["window"]) == (600, 2.0)
        assert server.get(f"{path}/decisions/{id}")["stages"][1]["state"] == "joined"
        assert server.get(f"{path}/live")["t"] == 600
        assert b'<p class="soft">clicks, margin</p>' in server.get("/")
        server.post(f"{path}/decide_many", {"requests": asks})  # what it sees since its start
        what = {"objectives": ["Linear({'margin': 1.0})"]}
        asked = server.request("POST", f"{path}/what-if", what).body
        wait_for(lambda: server.get(f"{path}/what-if/{asked['id']}")["state"] == "done", 120.0)
        assert server.stop() == 0
    state = tmp_path / "state"
    for words in (("verify", state, "--fold"), ("replay", state)):
        assert run(*words).exit_code == 0


@pytest.mark.parametrize("missing", ["zero", "skip"])
def test_an_export_has_decisions_of_which_all_stages_came(missing: str, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "state")
    head = f"[models.shop]\nmissing = '{missing}'"
    audited = text(missing).replace(
        f'[models.shop]\nmissing = "{missing}"', f"{head}\naudit = true"
    )
    service = Inside(audited, store)
    model, rng = service.model("shop"), np.random.default_rng(2)
    for _ in range(40):
        service.decide("shop", arms=arms(rng))
    for number in range(30):
        service.tell("shop", entry(service, number, clicks=1.0, margin=float(number % 3)))
    service.advance(SHORT)
    for number in range(20, 40):
        service.tell("shop", entry(service, number, returned=float(number % 2)))
    service.core.snapshot()
    store.close()
    assert run("export", tmp_path / "state", tmp_path / "early.jsonl").exit_code == 0
    assert len(table(tmp_path / "early.jsonl")[1]) == 0  # none has ended
    store = SQLiteStore(tmp_path / "state")
    service = Inside(audited, store)
    service.advance(LONG)
    model = service.model("shop")
    store.close()
    assert run("export", tmp_path / "state", tmp_path / "log.jsonl").exit_code == 0
    _, rows = table(tmp_path / "log.jsonl")
    assert [row["number"] for row in rows] == list(
        range(40) if missing == "zero" else range(20, 30)
    )
    for row in rows:
        n = row["number"]
        earned = [row[f"reward.{name}"] for name in NAMES]
        assert earned == [float(n < 30), float(n % 3) * (n < 30), float(n % 2) * (n >= 20)]
    log = fw.offpolicy.Log.of(tmp_path / "log.jsonl")
    assert log.problem.stages == STAGES
    assert f"{len(rows)} decisions" in repr(log)
    assert not model.stopped
