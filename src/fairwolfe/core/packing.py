"""State as bytes: packing, and arrays restored from them."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairwolfe.errors import IncompatibleState, InvalidInput

_HEAD = struct.Struct("<3sBI")  # magic, version, CRC-32 of what follows
_MAGIC, _VERSION = b"fwd", 1
_ARRAY = 1  # the MessagePack extension of an array: (dtype, shape, raw bytes)
_DEEPEST = 32  # nested tuples, and the axes of an array
_DTYPES = {name: np.dtype(name) for name in ("<f8", "<i8", "<f4", "<i4", "|u1", "|b1")}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_NESTED = (list, dict)


def pack(values: tuple[Any, ...]) -> bytes:
    """MessagePack of nested tuples with arrays as raw bytes, after a magic, a version and a CRC.

    >>> len(pack((1, "two", np.zeros(10))))
    106
    """
    try:
        body = _ENCODER.encode(values)
    except (TypeError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"this cannot be written as bytes: {error}") from error
    return _HEAD.pack(_MAGIC, _VERSION, crc32(body)) + body


def read_prefix(
    data: Any, prefix: struct.Struct, magic: bytes, version: int
) -> tuple[memoryview, int]:
    """Bytes that begin with a magic, a version and a number: themselves, and the number.
    InvalidInput for others.
    """
    try:
        view = memoryview(data).cast("B")
    except TypeError as error:
        raise InvalidInput(
            f"the bytes of a decision are a {type(data).__name__}; give what Decision.to_bytes "
            "returned"
        ) from error
    if len(view) < prefix.size:
        raise InvalidInput(f"{len(view)} bytes are too few for a decision: they are cut short")
    found, written, number = prefix.unpack_from(view)
    if found != magic:
        raise InvalidInput(
            f"the bytes begin with {bytes(found)!r}, those of a decision with {magic!r}; give "
            "what Decision.to_bytes returned"
        )
    if written != version:
        raise InvalidInput(
            f"the bytes are of version {written}; this fairwolfe reads version {version}: read "
            "them with the one that wrote them"
        )
    return view, number


def unpack(data: bytes) -> tuple[Any, ...]:
    """What `pack` was given, with plain tuples and new arrays.

    >>> unpack(pack((1, ("two", None), np.array([0.5]))))
    (1, ('two', None), array([0.5]))
    """
    view, expected = read_prefix(data, _HEAD, _MAGIC, _VERSION)
    body = view[_HEAD.size :]
    if crc32(body) != expected:
        raise InvalidInput("the bytes of the decision are damaged or cut short: CRC does not match")
    try:
        unpacked: tuple[Any, ...] = _tuples(_DECODER.decode(body), _DEEPEST + 1)
        return unpacked
    except (
        msgspec.MsgspecError,
        ValueError,
        TypeError,
        OverflowError,
        RecursionError,
        MemoryError,
    ) as error:
        raise InvalidInput(f"the bytes are not those of a decision: {error}") from error


def _packed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        name = _NAMES.get(value.dtype)
        if name is None:
            value = value.astype(value.dtype.newbyteorder("<"))
            name = value.dtype.str
            if name not in _DTYPES:
                raise TypeError(f"an array of {value.dtype}")
        return msgspec.msgpack.Ext(
            _ARRAY, msgspec.msgpack.encode((name, value.shape, value.tobytes()))
        )
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is not a number, string, tuple or array")


def _array(code: int, data: memoryview) -> Any:
    if code != _ARRAY:
        raise ValueError(f"extension {code} is unknown")
    dtype, shape, raw = _ARRAY_DECODER.decode(data)
    kind = _DTYPES.get(dtype)
    if kind is None or len(shape) > _DEEPEST:
        raise ValueError(f"an array of type {dtype!r:.40} and shape {shape!r:.80}")
    if len(raw) != math.prod(shape) * kind.itemsize:
        raise ValueError(f"an array of shape {shape} has {len(raw)} bytes")
    return np.ndarray(shape, kind, raw)


def _tuples(value: list[Any] | dict[Any, Any], deepest: int) -> Any:
    """Nested lists as tuples."""
    if deepest == 0:
        raise ValueError(f"they are nested deeper than {_DEEPEST} times")
    if type(value) is dict:
        return {
            key: _tuples(part, deepest - 1) if type(part) in _NESTED else part
            for key, part in value.items()
        }
    return tuple([_tuples(part, deepest - 1) if type(part) in _NESTED else part for part in value])


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_packed)
_DECODER = msgspec.msgpack.Decoder(list[Any], ext_hook=_array)
# A bytearray is the array's own, and can be written to: nothing is copied once more.
_ARRAY_DECODER = msgspec.msgpack.Decoder(tuple[str, tuple[int, ...], bytearray])


_ITEM = 8  # bytes of a float64
_MOST = 2.0**53  # above it, whole numbers are no longer counted by adding 1

_room: ContextVar[float] = ContextVar("room", default=math.inf)


@contextmanager
def room(n_bytes: int) -> Iterator[None]:
    """Within, `need` raises for arrays of more bytes: the file that is read cannot hold them."""
    before = _room.set(n_bytes)
    try:
        yield
    finally:
        _room.reset(before)


def need(*shape: int) -> None:
    """Asked before float64s of a shape that a problem or a setting decides are allocated.

    >>> need(10**6, 10**6)
    >>> with room(100):
    ...     need(3, 4)
    >>> with room(100):
    ...     need(3, 5)
    Traceback (most recent call last):
    ...
    fairwolfe.errors.IncompatibleState: the policy and problem make an array of shape (3, 5), \
and the state that was saved has 100 bytes in all: it belongs to others
    """
    if _ITEM * math.prod(shape) > _room.get():
        shown = f"shape {shape}" if max(shape) < _MOST else "an impossible shape"
        raise IncompatibleState(
            f"the policy and problem make an array of {shown}, and the state that was saved has "
            f"{_room.get()} bytes in all: it belongs to others"
        )


def require(name: str, array: NDArray[Any], right: Any, meaning: str) -> None:
    """Raise for an array of which some numbers are not right, and name the first of them.

    >>> require("clocks", np.array([1.0, -2.0]), np.array([True, False]), "clocks start at 0")
    Traceback (most recent call last):
    ...
    fairwolfe.errors.IncompatibleState: clocks holds -2.0 at [1]; clocks start at 0, so the state \
is damaged or forged
    """
    wrong = np.argwhere(~np.broadcast_to(right, array.shape))
    if len(wrong):
        place = wrong[0].tolist()
        raise IncompatibleState(
            f"{name} holds {array[tuple(place)]} at {place}; {meaning}, so the state is damaged or "
            "forged"
        )


def require_counts(name: str, array: NDArray[Any]) -> None:
    """Raise for numbers that are not counts."""
    whole = (array >= 0.0) & (array <= _MOST) & (array == np.floor(array))
    require(name, array, whole, "it counts, in whole numbers from 0 on")
