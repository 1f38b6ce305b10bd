"""Rows of numbers from JSON: as Python reads them, bit for bit, or not at all."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Callable
from decimal import Decimal

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwolfe.kernels.json_rows import rows_of
from fairwolfe.service import wire
from fairwolfe.service.refusal import Refused

FLOATS = msgspec.json.Decoder(list[list[float]])


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def digits(rng: random.Random) -> str:
    return str(rng.randrange(10 ** rng.randrange(1, 20)))


def halfway(rng: random.Random) -> str:
    """About as far from one float as from the next, in 17 to 25 digits."""
    below = math.ldexp(1.0 + rng.random(), rng.randrange(-40, 60))
    middle = (Decimal(below) + Decimal(math.nextafter(below, math.inf))) / 2
    return format(round(middle, rng.randrange(17, 26) - middle.adjusted() - 1), "f")


KINDS: dict[str, Callable[[random.Random], str]] = {
    "as Python writes them": lambda rng: repr(rng.uniform(-1.0, 1.0)),
    "large and small": lambda rng: repr(rng.uniform(-1.0, 1.0) * 10.0 ** rng.randrange(-30, 30)),
    "whole": digits,
    "with an exponent": lambda rng: f"{digits(rng)}.{digits(rng)[:6]}E{rng.randrange(-25, 26)}",
    "fixed": lambda rng: f"{rng.uniform(-1e3, 1e3):.{rng.randrange(1, 18)}f}",
    "halfway": halfway,
    "zeros first": lambda rng: "0." + "0" * rng.randrange(20) + digits(rng),
}


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_those_of_python_bit_for_bit(kind: str) -> None:
    rng = random.Random(0)
    read = 0
    for _ in range(4000):
        text = KINDS[kind](rng)
        rows = rows_of(f"[[{text}]]".encode())
        if rows is not None:
            assert bits(rows[0, 0]) == bits(float(text)), text
            read += 1
    assert read >= {"large and small": 1000, "zeros first": 2000, "halfway": 800}.get(kind, 2400)


@given(st.lists(st.lists(st.floats(-1e15, 1e15), min_size=3, max_size=3), min_size=1))
def test_a_matrix_is_read_as_by_any_reader_or_left_to_it(matrix: list[list[float]]) -> None:
    for indent in (None, 2):
        rows = rows_of(json.dumps(matrix, indent=indent).encode())
        assert rows is None or rows.tobytes() == np.array(matrix).tobytes()


NOT_ROWS = [
    "", " ", "[", "[[", "[[1", "[[1]", "[]", "[[]]", "[[1],[]]", "[[1],[1,2]]", "[[1,]]", "[[,1]]",
    "[[1],]", "[1]", "[[[1]]]", "[[1]]]", "[[1]] x", "{}", "null", '[["1"]]', "[[true]]", "[[nan]]",
    "[[NaN]]", "[[Infinity]]", "[[-]]", "[[+1]]", "[[01]]", "[[1.]]", "[[.5]]", "[[1e]]", "[[1e+]]",
    "[[--1]]", "[[1 2]]", "[[1e400]]", "[[-0]]", "[[-0.0]]", "[[0x1]]", "[[1\x00]]", "[[1_0]]",
    "[[12345678901234567890]]", "[[1e-23]]", "[[1]\x0b]",
    "[[0." + 1240 * "0" + "1e123456]]", "[[1e9999]]", "[[1e-9999]]",
]  # fmt: skip


@pytest.mark.parametrize("text", NOT_ROWS, ids=ascii)
def test_what_is_not_rows_of_plain_numbers_is_left_to_others(text: str) -> None:
    assert rows_of(text.encode()) is None


@given(st.text("[]0123456789.,-+eE \n", max_size=12))
def test_what_is_read_is_json(text: str) -> None:
    rows = rows_of(f"[[{text}]]".encode())
    if rows is not None:
        assert rows.tolist() == FLOATS.decode(f"[[{text}]]")


LONG = [[round(0.001 * i + 0.01 * j, 6) for j in range(10)] for i in range(40)]


def question(**fields: object) -> bytes:
    return json.dumps({"explain": False, **fields}).encode()


@pytest.mark.parametrize(
    "body",
    [
        question(arms=LONG),
        question(arms=LONG, user=[0.5], blocked=[1], request_id="a"),
        question(user=[0.1] * 400),
        question(arms=[[-0.0, 1e300], *([[0.1, 0.2]] * 200)]),
    ],
    ids=["arms", "and more", "no arms", "arms that the kernel leaves alone"],
)
def test_a_long_question_is_read_as_a_short_one_is(body: bytes) -> None:
    assert len(body) > wire._SHORT
    read = wire.decode(body, wire.JSON, wire.Decide)
    wanted = msgspec.json.decode(body, type=wire.Decide)
    for field in wire.Decide.__struct_fields__:
        value = getattr(read, field)
        plain = value.tolist() if isinstance(value, np.ndarray) else value
        assert repr(plain) == repr(getattr(wanted, field))


@pytest.mark.parametrize(
    "wrong",
    [
        question(arms=[*LONG, ["x"]]),
        question(arms=[*LONG, [True]]),
        question(arms=[*LONG, [None]]),
        question(arms=LONG, arm=1),
        question(arms=LONG)[:-2],
        question(arms=LONG).replace(b"0.01", b"nan", 1),
    ],
    ids=["text", "a bool", "null", "an unknown field", "cut short", "nan"],
)
def test_a_long_question_is_refused_as_any_other_request(wrong: bytes) -> None:
    with pytest.raises(Refused) as refused:
        wire.decode(wrong, wire.JSON, wire.Decide)
    try:
        msgspec.json.decode(wrong, type=wire.Decide)
    except msgspec.MsgspecError as error:
        said = str(error).partition(" - at")[0]
    assert said in str(refused.value.parts[2])
