"""Decisions as bytes: what goes in comes out, anything else is refused."""

from __future__ import annotations

import struct
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fairwolfe import Agent, FrankWolfe, Problem
from fairwolfe.bandits import EpsilonGreedy
from fairwolfe.core.decision import Decision
from fairwolfe.core.packing import pack, unpack
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import GiniWelfare
from fairwolfe.smoothing import Randomized

ARRAYS = arrays.arrays(
    st.sampled_from([np.dtype(t) for t in ("f8", "i8", "f4", "i4", "u1", "?", ">f8")]),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | ARRAYS
)
EVIDENCE = st.recursive(LEAVES, lambda part: st.lists(part, max_size=3).map(tuple), max_leaves=8)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        kept = isinstance(b, np.ndarray) and b.dtype == a.dtype.newbyteorder("<")
        return kept and b.shape == a.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    return type(a) is type(b) and (a == b or np.isnan(a))


def framed(body: bytes) -> bytes:
    """What `stored` holds, with the right check sum, whatever that is."""
    return struct.pack("<3sBI", b"fwd", 1, crc32(body)) + body


def forged(body: bytes, magic: bytes = b"fwr\n", version: int = 2, kind: int = 2) -> bytes:
    """Bytes of one decision of a policy in Python whose sizes are right, whatever it holds."""
    shapes: list[list[int]] = [[], [0], [0], [2, 0]]
    header = msgspec.msgpack.encode((kind, "a", 1, True, shapes, len(body)))
    start = struct.pack("<4sHH", magic, version, len(header)) + header
    return start + bytes(-len(start) % 8) + bytes(16) + bytes(112) + body


@given(EVIDENCE, st.integers(0, 2**40), st.none() | st.floats(0, 1))
def test_round_trip(evidence: Any, t: int, probability: float | None) -> None:
    decision = Decision("token-1", t, 3, probability, evidence)
    back = Decision.from_bytes(decision.to_bytes())
    assert (back.id, back.t, back.action, back.probability) == ("token-1", t, 3, probability)
    assert same(evidence, back.evidence)


def test_arrays_come_back_as_the_kernels_like_them() -> None:
    back = unpack(pack((np.arange(6.0).reshape(2, 3)[:, ::2],)))[0]
    assert back.flags.carray
    assert back.tolist() == [[0.0, 2.0], [3.0, 5.0]]


def test_a_ranking_and_numpy_numbers() -> None:
    items = np.array([4, 1, 7])
    decision = Decision("token-1", 0, items, np.float64(0.25), (np.int64(3),))
    back = Decision.from_bytes(decision.to_bytes())
    assert isinstance(back.action, np.ndarray)
    assert back.action.tolist() == items.tolist()
    assert (back.probability, back.evidence) == (0.25, (3,))


def test_size_at_ten_features() -> None:
    problem = Problem.arms(10, {f"reward {i}": (0, 1) for i in range(5)})
    policy = FrankWolfe(GiniWelfare(), EpsilonGreedy(0.1), Randomized())
    agent = Agent(policy, problem)
    rng = np.random.default_rng(0)
    for _ in range(5):
        decision = agent.act(rng.random((50, 10)) / 4)
        agent.update(decision, rng.random(5))
    assert len(decision.to_bytes()) < 400  # the largest evidence there is; LinUCB's takes 190


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    """By `from_bytes`, or by the checksum, which is verified before anything is learnt."""
    data = Decision("token-1", 5, 3, 0.5, ((0, np.ones(4), np.empty(0)), None, None)).to_bytes()
    Decision.from_bytes(data).batch.verify(b"")
    for place in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            with pytest.raises(InvalidInput):
                Decision.from_bytes(bytes(damaged)).batch.verify(b"")
    for length in range(len(data)):
        with pytest.raises(InvalidInput):
            Decision.from_bytes(data[:length])
    with pytest.raises(InvalidInput, match="damaged"):
        Decision.from_bytes(data + b"\0")


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused(data: bytes) -> None:
    for given_bytes in (data, forged(data), forged(framed(data))):
        with pytest.raises(InvalidInput):
            Decision.from_bytes(given_bytes)


def stored(value: Any) -> bytes:
    return forged(framed(msgspec.msgpack.encode(value)))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("text", "are a str; give what Decision.to_bytes returned"),
        (b"", "0 bytes are too few"),
        (forged(b"", magic=b"abcd"), r"begin with b'abcd', those of a decision with b'fwr\\n'"),
        (forged(b"", version=1), "of version 1; this fairwolfe reads version 2"),
        (forged(b"", kind=3), "unknown kind 3"),
        (forged(b"", kind=-1), "unknown kind -1"),
        (forged(b"", kind=0), r"shapes .*; ArmRows have 3 with \[0, 1, 1\] axes"),
        (stored({"id": "a"}), "Expected `array`, got `object`"),
        (stored([]), "hold 0 actions with evidence for 1 decisions"),
        (stored([1]), "hold 1 actions with evidence for 1 decisions"),
        (stored([[1, 2, 3]]), "hold 1 actions with evidence for 1 decisions"),
        (stored([[1, msgspec.msgpack.Ext(7, b"")]]), "extension 7 is unknown"),
        (forged(framed(b"\x91" * 100_000)), "not those of a decision"),
        (forged(b"fwd"), "too few for a decision"),
    ],
)
def test_the_sentence_says_what_is_wrong(data: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        Decision.from_bytes(data)


@pytest.mark.parametrize(
    "array",
    [
        ("<f8", (2,), b"\0" * 8),
        ("<f8", (-1,), b""),
        ("|O8", (1,), b"\0" * 8),
        ("<f8", (2**62, 4), b""),
    ],
)
def test_arrays_that_lie_about_themselves_are_refused(array: Any) -> None:
    ext = msgspec.msgpack.Ext(1, msgspec.msgpack.encode(array))
    with pytest.raises(InvalidInput, match="an array of"):
        Decision.from_bytes(stored([[1, ext]]))


@pytest.mark.parametrize("thing", [object(), np.array(["a"]), np.array([None]), 2**64, 1j])
def test_what_cannot_be_written_is_refused(thing: object) -> None:
    with pytest.raises(InvalidInput, match="cannot be written as bytes"):
        Decision("a-0", 0, 1, 0.5, (thing,)).to_bytes()
