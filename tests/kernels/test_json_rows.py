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
from fairwolfe.service.wire import Refused

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


MARKS = b'[]{},.:-+0123456789eE \n\r\t\x00\x0b\xff"ntx_'


def damaged(rng: random.Random) -> bytes:
    """Rows of numbers with a few bytes changed, added, removed or cut off."""
    rows, columns = rng.randrange(1, 4), rng.randrange(1, 4)
    kinds = list(KINDS.values())
    body = [[rng.choice(kinds)(rng) for _ in range(columns)] for _ in range(rows)]
    between = rng.choice([",", ", ", " ,\n"])
    inside = ["[" + between.join(row) + "]" for row in body]
    text = bytearray(f"[{between.join(inside)}]".encode())
    for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
        at = rng.randrange(len(text))
        change = rng.randrange(4)
        if change == 0:
            text[at] = rng.choice(MARKS)
        elif change == 1:
            text.insert(at, rng.choice(MARKS))
        elif change == 2:
            del text[at]
        else:
            del text[at:]
        if not text:
            break
    return bytes(text)


def test_damaged_text_is_read_as_msgspec_reads_it_or_left_to_it() -> None:
    rng, read, left = random.Random(34), 0, 0
    for _ in range(20_000):
        text = damaged(rng)
        rows = rows_of(text)
        try:
            wanted = FLOATS.decode(text)
        except msgspec.MsgspecError:
            assert rows is None, text
            continue
        if rows is None:
            left += 1
        else:
            assert rows.shape == (len(wanted), len(wanted[0])), text
            assert rows.tobytes() == np.array(wanted).tobytes(), text
            read += 1
    assert read >= 3_000
    assert left >= 1_000


def test_any_bytes_are_read_as_msgspec_reads_them_or_left_to_it() -> None:
    rng = random.Random(35)
    for _ in range(20_000):
        text = (
            b"[[" + bytes(rng.choices(MARKS, k=rng.randrange(12))) + rng.choice([b"]]", b"]", b""])
        )
        rows = rows_of(text)
        if rows is not None:
            assert rows.tobytes() == np.array(FLOATS.decode(text)).tobytes(), text


def test_nothing_beyond_the_end_of_a_buffer_counts() -> None:
    rng = random.Random(36)
    texts = [b"[[1]]]", b"[[1]] ]", b"[[0.5e1]] 2", b"[[-" + b"0" * 40 + b"]]", b"[[1,2],[3,4]]"]
    for text in [*texts, *(damaged(rng) for _ in range(500))]:
        whole = memoryview(text + b"1]]")
        for end in range(len(text) + 1):
            rows, alone = rows_of(whole[:end]), rows_of(text[:end])
            assert (rows is None) == (alone is None), (text, end)
            if rows is not None and alone is not None:
                assert rows.tobytes() == alone.tobytes(), (text, end)


@pytest.mark.parametrize("length", range(1, 41))
def test_as_many_numbers_as_fit_into_a_text(length: int) -> None:
    text = b"[[" + b"1," * length
    for end in range(2, len(text) + 1):
        assert rows_of(text[:end]) is None
    full = rows_of(text[:-1] + b"]]")
    assert full is not None
    assert full.tolist() == [[1.0] * length]
    tall = rows_of(b"[" + b",".join([b"[1]"] * length) + b"]")
    assert tall is not None
    assert tall.tolist() == [[1.0]] * length


def test_buffers_that_cannot_be_written_are_read() -> None:
    text = b"[[1.5, -2], [3e2, 4]]"
    for form in (text, bytearray(text), memoryview(text), np.frombuffer(text, np.uint8)):
        rows = rows_of(form)  # type: ignore[arg-type]
        assert rows is not None
        assert rows.tolist() == [[1.5, -2.0], [300.0, 4.0]]
    with pytest.raises((ValueError, BufferError)):
        rows_of(memoryview(text)[::2])
    with pytest.raises(TypeError):
        rows_of("[[1]]")  # type: ignore[arg-type]


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
    assert said in str(refused.value)
