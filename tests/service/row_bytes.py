"""A second reader of the log, which shares no code with the library: `struct`, `zlib` and a decoder
of MessagePack. It knows the layout of rows from docs/rows.md, and that of events from their names.
"""

from __future__ import annotations

import sqlite3
import struct
from collections import Counter
from contextlib import closing
from math import prod
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

__all__ = ["Logged", "Row", "payload", "read_log", "read_rows"]

_PREFIX = struct.Struct("<4sHH")  # magic, version, bytes of the header
_HEAD = struct.Struct("<7q7d")
_FIELDS = (
    *("number", "t", "arm", "block", "place", "window", "size"),
    *("probability", "value", "score", "best", "missed", "spare", "untried"),
)
# Of each kind the columns after the head, with the letter of their numbers.
_COLUMNS: tuple[dict[str, str], ...] = (
    {"x": "d", "g": "d"},
    {
        **{"items": "q", "user": "d", "exposure": "d", "parts": "d"},
        **{"ranks": "q", "live": "d", "g": "d", "x": "d"},
    },
    {"estimate": "d", "g": "d", "live": "d"},
)
_TAG = 16
_PAYLOAD = struct.Struct("<3sBI")  # magic, version, CRC-32


class Row(NamedTuple):
    """One decision: its head by field, its columns by name as flat tuples, and its action."""

    head: dict[str, float]
    columns: dict[str, tuple[float, ...]]
    action: Any
    tag: bytes


def read_rows(data: bytes) -> tuple[str, list[Row]]:
    """The token and the rows of decisions."""
    magic, version, length = _PREFIX.unpack_from(data)
    assert (magic, version) == (b"fwr\n", 2)
    start = _PREFIX.size
    kind, token, n, tagged, shapes, extra = msgspec.msgpack.decode(data[start : start + length])
    start += length
    start += -start % 8
    tags = [b""] * n
    if tagged:
        tags = _cut(data[start : start + _TAG * n], _TAG)
        start += _TAG * n
    heads = [_HEAD.unpack_from(data, start + i * _HEAD.size) for i in range(n)]
    start += n * _HEAD.size
    columns: dict[str, list[tuple[float, ...]]] = {}
    assert shapes[0] == []  # of the head
    for (name, letter), shape in zip(_COLUMNS[kind].items(), shapes[1:], strict=True):
        width = prod(shape)
        one = struct.Struct(f"<{width}{letter}")
        columns[name] = [one.unpack_from(data, start + i * one.size) for i in range(n)]
        start += n * one.size
    stored = payload(data[start:]) if extra else [(None, None)] * n
    assert (len(data) - start, len(stored)) == (extra, n)
    rows = []
    for i in range(n):
        head = dict(zip(_FIELDS, heads[i], strict=True))
        own = {name: column[i] for name, column in columns.items()}
        action = (head["arm"], list(own.get("items", ())), stored[i][0])[kind]
        rows.append(Row(head, own, action, tags[i]))
    return token, rows


def payload(data: bytes) -> Any:
    """What a row of the log holds, as nested lists; arrays are (dtype, shape, bytes)."""
    magic, version, crc = _PAYLOAD.unpack_from(data)
    body = data[_PAYLOAD.size :]
    assert (magic, version, crc) == (b"fwd", 1, crc32(body))
    return msgspec.msgpack.Decoder(ext_hook=_array).decode(body)


def _array(code: int, data: memoryview) -> Any:
    assert code == 1
    dtype, shape, raw = msgspec.msgpack.decode(data)
    letter = {"<f8": "d", "<i8": "q", "<f4": "f", "<i4": "i", "|u1": "B", "|b1": "?"}[dtype]
    assert len(raw) == prod(shape) * struct.calcsize(f"<{letter}")
    flat = list(struct.unpack(f"<{prod(shape)}{letter}", raw))
    for length in reversed(shape[1:]):
        flat = _cut(flat, length)
    return flat


def _cut(whole: Any, length: int) -> list[Any]:
    """Pieces of one length."""
    return [whole[i : i + length] for i in range(0, len(whole), length)] if length else []


class Logged(NamedTuple):
    """What a log says of one model: the decisions by number, the keys of its items, the windows
    that ended (first, stop, stage), and how often each (number, slot, reward) was written.
    """

    decisions: dict[int, Row]
    items: list[str]
    closed: list[tuple[int, int, int]]
    cells: Counter[tuple[int, int, int]]


def read_log(path: Path) -> dict[int, Logged]:
    """The decisions of a log by model; no number comes twice, and there are no holes."""
    logged: dict[int, Logged] = {}
    with closing(sqlite3.connect(path)) as base:
        rows = base.execute("SELECT seq, clock, payload, crc FROM log ORDER BY seq").fetchall()
    for seq, clock, data, crc in rows:
        assert crc == crc32(data, crc32(struct.pack("<qd", seq, clock)))
        _, *events = payload(data)
        for tag, model, *fields in events:
            own = logged.setdefault(model, Logged({}, [], [], Counter()))
            if tag == "items":
                own.items.extend(fields[0])
            elif tag == "closed":
                own.closed.append((fields[0], fields[1], fields[2] if fields[2:] else 0))
            elif tag == "told":
                numbers, cells = fields[0], fields[3]
                own.cells.update((numbers[entry], slot, reward) for entry, slot, reward in cells)
            elif tag == "decided":
                for row in read_rows(fields[0])[1]:
                    number = int(row.head["number"])
                    assert number == len(own.decisions), (number, len(own.decisions))
                    own.decisions[number] = row
    return logged
