"""Rows: their bytes as a reader without any code of the library finds them; batches and views."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe import Agent, Batch, Bilinear, Decision, FrankWolfe, PerArm, Problem
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB
from fairwolfe.core.rows import HEAD, ArmRows, PlainRows, RankingRows, dump, load, merge
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import GiniWelfare, Minimum, TwoSided
from fairwolfe.ranking import FWLinUCBRank, LinUCBRank
from fairwolfe.smoothing import Randomized
from tests.service.row_bytes import payload, read_rows

ARMS = Problem.arms(3, {"clicks": (0, 1), "saves": (0, 1)}, parameter_norm=1.0)
EACH = Problem.arms(3, {"clicks": (0, 1), "saves": (0, 1)}, n_arms=4)
LISTS = Problem.ranking(6, 3, (2, 4))
FAIR = TwoSided(GiniWelfare(), beta=0.5)
FIELDS = HEAD.names or ()


@dataclass(frozen=True)
class SlowUCB(LinUCB):
    """A base in Python, for it overrides what the compiled engine would replace."""

    def act(self, *given: Any, **options: Any) -> Any:
        return super().act(*given, **options)


@dataclass(frozen=True)
class SlowRank(LinUCBRank):
    def act(self, *given: Any, **options: Any) -> Any:
        return super().act(*given, **options)


@dataclass(frozen=True)
class First:
    """A policy in Python: an arm, and some evidence of every type."""

    def init(self, problem: Problem) -> None:
        return None

    def act(self, state: None, context: Any, rng: np.random.Generator) -> Decision:
        evidence = (np.arange(3, dtype=np.int32), "text", None, True, 2.5, (np.zeros((2, 1)),))
        return Decision("", 0, 0, 0.25, evidence)

    def update(self, state: None, decision: Decision, feedback: Any) -> None:
        return None


def arms(policy: Any, problem: Problem = ARMS, **options: Any) -> Batch:
    """Three decisions after enough answers for live numbers."""
    agent, rng = Agent(policy, problem, seed=3), np.random.default_rng(0)
    for _ in range(70):
        agent.update(agent.act(given(problem, rng)), rng.random(2))
    made = agent.act_many([given(problem, rng) for _ in range(3)], **options)
    assert isinstance(made, Batch)
    return made


def given(problem: Problem, rng: np.random.Generator) -> Any:
    x = rng.uniform(-0.4, 0.4, (4, 3))
    return PerArm(x[0]) if problem.n_arms else x


def lists(policy: Any, kept: bool = True, **options: Any) -> Batch:
    rng = np.random.default_rng(1)
    items = rng.uniform(-0.4, 0.4, (6, 4))
    agent = Agent(policy, LISTS, items=items if kept else None)

    def user() -> Any:
        who = rng.uniform(-0.4, 0.4, 2)
        return who if kept else Bilinear(who, items)

    for _ in range(70):
        decision = agent.act(user())
        shown = decision.action.tolist()
        agent.update(decision, exposed=shown[:2], clicked=shown[:1])
    made = agent.propose([user() for _ in range(3)], **options)
    assert isinstance(made, Batch)
    return made


BATCHES: dict[str, Callable[[], Batch]] = {
    "arms": lambda: arms(FrankWolfe(GiniWelfare(), SquareCB(gamma0=50.0))),
    "random directions": lambda: arms(
        FrankWolfe(Minimum(), LinUCB(exploration="theorem"), Randomized(n_samples=2))
    ),
    "extended": lambda: arms(
        FrankWolfe(GiniWelfare(), LinUCB(model="extended", exploration="theorem"))
    ),
    "per arm": lambda: arms(FrankWolfe(GiniWelfare(), EpsilonGreedy(0.3)), EACH),
    "candidates": lambda: arms(
        FrankWolfe(GiniWelfare(), LinUCB(exploration="theorem")),
        candidates=[[3, 1], [2, 0], [2, 3]],
    ),
    "rankings": lambda: lists(FWLinUCBRank(FAIR, exploration="theorem")),
    "rankings with features": lambda: lists(FWLinUCBRank(FAIR, exploration="theorem"), kept=False),
    "rankings unexplained": lambda: lists(FWLinUCBRank(FAIR, exploration="theorem"), explain=False),
    "rankings, random directions": lambda: lists(
        FWLinUCBRank(FAIR, smoothing=Randomized(), exploration="theorem")
    ),
    "a base in Python": lambda: arms(FrankWolfe(GiniWelfare(), SlowUCB())),
    "a ranker in Python": lambda: lists(FrankWolfe(FAIR, SlowRank())),
    "a policy in Python": lambda: arms(First()),
    "a guard": lambda: arms(
        fw.Guarded(
            FrankWolfe(Minimum(), LinUCB(exploration="theorem")),
            FrankWolfe(Minimum(), LinUCB(exploration="theorem")),
            share=0.5,
        )
    ),
}
KINDS = {"arms": ArmRows, "rankings": RankingRows, "a base in Python": PlainRows}


@pytest.fixture(name="batch", params=BATCHES)
def a_batch(request: pytest.FixtureRequest) -> Batch:
    return BATCHES[request.param]()


def nested(value: Any) -> Any:
    """As a decoder of MessagePack gives it."""
    if isinstance(value, np.ndarray):
        return value.tolist() if value.size else []
    return [nested(one) for one in value] if isinstance(value, tuple) else value


# --- bytes ------------------------------------------------------------------------------------


def test_a_reader_without_the_library_finds_every_field(batch: Batch) -> None:
    token, rows = read_rows(batch.to_bytes())
    own: Any = batch.rows
    assert (token, len(rows)) == (batch.token, 3)
    numeric = [name for name in own._fields if getattr(own, name).dtype != object]
    for i, row in enumerate(rows):
        head = [row.head[name] for name in FIELDS]
        assert struct.pack("<7q7d", *head) == own.head[i].tobytes()
        assert list(row.columns) == numeric[1:]
        for name, numbers in row.columns.items():
            assert list(numbers) == getattr(own, name)[i].ravel().tolist(), name
        assert nested(batch[i].action) == row.action
    if isinstance(own, PlainRows):
        extra = len(batch.to_bytes()) - batch.to_bytes().rindex(b"fwd\x01")
        stored = payload(batch.to_bytes()[-extra:])
        assert stored == [nested(one) for one in own.stored]


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_the_kinds(name: str, kind: type) -> None:
    assert type(BATCHES[name]().rows) is kind


def test_a_head_has_112_bytes_without_gaps() -> None:
    assert HEAD.itemsize == 112 == 8 * len(FIELDS)
    assert HEAD.isalignedstruct or [HEAD.fields[name][1] for name in FIELDS] == list(  # type: ignore[index]
        range(0, 112, 8)
    )


def test_the_tag_is_a_keyed_checksum_of_the_row(batch: Batch) -> None:
    """Of the token, the kind and the shapes; then of the row, column by column."""
    rows: Any = batch.rows
    columns = [column for column in rows if column.dtype != object]
    shapes = [column.shape[1:] for column in columns]
    start = f"{batch.token}\0{type(rows).__name__}{shapes}".encode()
    _, read = read_rows(batch.to_bytes())
    for i, row in enumerate(read):
        content = b"".join(column[i].tobytes() for column in columns)
        if isinstance(rows, PlainRows):
            content += fw.core.packing.pack((rows.stored[i],))
        tag = blake2b(start + content, digest_size=16, key=batch.key).digest()
        assert row.tag == tag
    assert len(batch.key) == 32


def test_bytes_come_back_as_they_were(batch: Batch) -> None:
    data = batch.to_bytes()
    back = Batch.from_bytes(data)
    assert back.to_bytes() == data
    assert [one.id for one in back] == [one.id for one in batch]
    assert list(back) == list(batch)
    for name in ("numbers", "probabilities"):
        np.testing.assert_array_equal(getattr(back, name), getattr(batch, name))
    for column in back.rows:
        assert column.flags.writeable
        assert column.flags.c_contiguous
        assert column.flags.aligned
    for i in range(3):
        assert batch[i].to_bytes() == back[i].to_bytes() == batch[i : i + 1].to_bytes()
        assert Decision.from_bytes(batch[i].to_bytes()) == batch[i]
    with pytest.raises(InvalidInput, match=r"hold 3 decisions; read them with Batch\.from_bytes"):
        Decision.from_bytes(data)
    back.verify(batch.key)
    assert back.to_bytes() == data


def test_bytes_without_tags_are_never_verified(batch: Batch) -> None:
    back = Batch.from_bytes(dump(batch.rows, batch.token))
    for key in (batch.key, b""):
        with pytest.raises(InvalidInput, match="the checksum does not match"):
            back.verify(key)


@pytest.mark.parametrize("shape", [[2**64 - 1], [2**61], [-1], [2, 2], [], [0.5], ["a"], [None]])
@pytest.mark.parametrize("n", [0, 1, -1, 2**62, 2**64 - 1])
def test_headers_that_lie_about_sizes(shape: Any, n: int) -> None:
    header = msgspec.msgpack.encode((0, "a", n, False, [[], shape, [0]], 0))
    start = struct.pack("<4sHH", b"fwr\n", 2, len(header)) + header
    with pytest.raises(InvalidInput):
        load(start + bytes(-len(start) % 8) + bytes(112 * max(0, min(n, 1))))


def test_merge_joins_neighbours_of_one_shape() -> None:
    one, other = ArmRows.empty(2, 3, 0), ArmRows.empty(1, 3, 0)
    longer, ranking = ArmRows.empty(1, 4, 0), RankingRows.empty(1, 2, 2, 0)
    merged = merge([one, other, longer, ranking, one])
    assert [len(rows.head) for rows in merged] == [3, 1, 1, 2]
    assert merged[1] is longer


# --- views ------------------------------------------------------------------------------------


def test_a_batch_is_a_sequence(batch: Batch) -> None:
    assert len(batch) == 3
    assert [one.number for one in batch] == batch.numbers.tolist()
    assert batch[-1] == batch[2] != batch[0]
    assert batch.index(batch[1]) == 1
    assert [one.id for one in batch[1:]] == [batch.id(1), batch.id(2)]
    assert isinstance(batch[1:], Batch)
    assert len(batch[5:]) == len(batch[2:1]) == 0
    assert batch[:] is batch
    assert batch[0].batch == batch[0].batch or batch[0].batch.to_bytes() == batch[:1].to_bytes()
    for place in (3, -4):
        with pytest.raises(IndexError, match=f"decision {place} of 3"):
            batch[place]
    with pytest.raises(InvalidInput, match="a slice of a batch has the step 2"):
        batch[::2]
    assert repr(batch) == f"<Batch of 3 decisions, {batch.id(0)} to {batch.numbers[-1]}>"
    assert repr(batch[3:]) == "<Batch of 0 decisions, none>"


def test_slices_are_views(batch: Batch) -> None:
    batch[1:].rows.head["t"][0] = 77
    assert batch[1].t == 77


def test_merged_batches_are_the_same_decisions(batch: Batch) -> None:
    pieces = [batch[:1], batch[1:2], batch[2:]]
    (whole,) = Batch.merged(pieces)
    assert list(whole) == list(batch)
    assert whole.to_bytes() == batch.to_bytes()
    unverified = [Batch.from_bytes(one.to_bytes()) for one in pieces]
    assert [len(one) for one in Batch.merged(unverified)] == [1, 1, 1]
    for one in unverified:
        one.verify(batch.key)
    assert [len(one) for one in Batch.merged(unverified)] == [3]
    foreign = Batch(batch.rows, "another", batch.key)
    assert [len(one) for one in Batch.merged([batch, foreign, batch])] == [3, 3, 3]
    assert Batch.merged([]) == []


@pytest.mark.parametrize("name", ["arms", "per arm", "rankings", "rankings with features"])
def test_compiled_decisions_explain_themselves_after_their_bytes(name: str) -> None:
    batch = BATCHES[name]()
    for one in batch:
        rows = one.explain()
        assert Decision.from_bytes(one.to_bytes()).explain() == rows
        assert len(rows) == np.size(one.action)
    if name == "arms":
        assert list(rows[0]) == ["arm", "value", "exploration"]
        assert rows[0]["arm"] == batch[2].action


@pytest.mark.parametrize("name", ["rankings unexplained", "a policy in Python"])
def test_what_cannot_be_explained(name: str) -> None:
    with pytest.raises(InvalidInput, match="there is nothing to explain of decision"):
        BATCHES[name]()[1].explain()


def test_a_base_in_python_explains_in_its_own_process_only() -> None:
    batch = BATCHES["a base in Python"]()
    assert batch[0].explain()[0]["arm"] == batch[0].action
    with pytest.raises(InvalidInput, match="was made in another process"):
        Decision.from_bytes(batch[0].to_bytes()).explain()


def test_names_are_of_the_process_and_not_of_the_bytes() -> None:
    agent = Agent(FrankWolfe(Minimum(), LinUCB(exploration="theorem")), ARMS, arms=["a", "b"])
    batch: Any = agent.act_many([np.eye(3)[:2] / 2] * 3)
    assert [one.name for one in batch[1:]] == [("a", "b")[one.action] for one in batch[1:]]
    assert batch[0].names is None
    assert batch[0].explain()[0]["name"] == batch[0].name
    (whole,) = Batch.merged([batch[:2], batch[2:]])
    assert [one.name for one in whole] == [one.name for one in batch]
    assert Batch.from_bytes(batch.to_bytes())[0].name is None
    assert Batch.from_bytes(batch.to_bytes())[0] == batch[0]
    mixed = Batch.merged([batch[:1], Batch(batch[1:].rows, batch.token, batch.key)])
    assert [one.name for one in mixed[0]] == [None] * 3


def test_names_of_rankings() -> None:
    items = dict(zip("abcdef", np.random.default_rng(0).uniform(0, 0.4, (6, 4)), strict=True))
    agent = Agent(FWLinUCBRank(FAIR, exploration="theorem"), LISTS, items=items)
    decision = agent.act([0.3, 0.4])
    assert decision.names == tuple("abcdef"[i] for i in decision.action)
    assert decision.name is None
    assert [row["name"] for row in decision.explain()] == list(decision.names)


def test_equality_and_hash() -> None:
    one, other = (Decision("a-1", 0, 1, 0.5, (np.ones(2),)) for _ in "ab")
    assert one == other
    assert hash(one) == hash(other)
    assert one != Decision("a-1", 0, 1, 0.5, (np.zeros(2),))
    assert one != Decision("a-2", 0, 1, 0.5, (np.ones(2),))
    assert one != "a-1"
    assert len({one, other}) == 1


@pytest.mark.parametrize("id", ["", "a", "a-1", "a-b-12", "-1", "a-", "a-x", "a-007", "a-٣", "é-5"])
def test_ids_stay_as_they_were_given(id: str) -> None:
    decision = Decision(id, 0, 1, None, None)
    assert decision.id == id
    assert Decision.from_bytes(decision.to_bytes()).id == id
    assert decision.number == {"a-1": 1, "a-b-12": 12, "é-5": 5}.get(id, -1)
