"""Named independent generators from one seed.

Environment, feedback noise and policy draw from separate streams, so two policies run with one
seed meet the same contexts and the same noise.
"""

from __future__ import annotations

import hashlib
from typing import Self

import numpy as np

from fairwolfe.core.arrays import Matrix
from fairwolfe.core.problem import is_whole
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.draws import uniforms_by_number

_AHEAD = 64  # decisions that are drawn for at once, since a call costs as much as these


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The generator called `names` of a seed: the same numbers whatever else is drawn.

    >>> [int(stream(0, name).integers(100)) for name in ("environment", "policy", "environment")]
    [9, 40, 9]
    """
    digest = _digest(seed, names)
    key = tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))
    # SFC64 draws normals a fifth faster than NumPy's default, and contexts are mostly normals.
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(int(seed), spawn_key=key)))


class Numbered:
    """Draws by number: those of number n are the same whatever was drawn before.

    `number` is that of the next decision; the caller sets it. `uniforms` draws the same numbers as
    `generator`, for many decisions at once.

    >>> draws = Numbered.of(0, "policy")
    >>> draws.number = 7
    >>> once, again = draws.generator().random(2), draws.generator().random(2)
    >>> bool((once == again).all())
    True
    """

    __slots__ = ("_ahead", "_generator", "key", "number", "signed")

    def __init__(self, key: tuple[int, int], number: int = 0) -> None:
        self.key = key
        self.signed = _signed(key[0]), _signed(key[1])
        self.number = number
        self._ahead = 0, np.empty((0, 0))  # of `uniforms`: the first number, and what was drawn
        self._generator: np.random.Generator | None = None

    @classmethod
    def of(cls, seed: int, *names: str | int) -> Self:
        """The draws called `names` of a seed."""
        named = _digest(seed, names)
        digest = hashlib.sha256(f"{int(seed)}\0".encode() + named).digest()
        return cls((int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")))

    def apart(self, seed: int, *names: str | int) -> Self:
        """Separate draws that continue from these."""
        return type(self).of(seed, *names, *self.key)

    def uniforms(self, rows: int, width: int) -> Matrix:
        """What the next `rows` decisions draw, `width` numbers in [0, 1) each."""
        first, known = self._ahead
        start = self.number - first
        if not (known.shape[1] == width and 0 <= start <= len(known) - rows):
            first, start, known = self.number, 0, np.empty((max(rows, _AHEAD), width))
            uniforms_by_number(*self.signed, first, known)
            self._ahead = first, known
        return known[start : start + rows]

    def generator(self, row: int = 0, lane: int = 0) -> np.random.Generator:
        """The generator of decision `number` + row, at its first draw; good until the next call.

        Lanes draw different numbers for one decision.
        """
        if self._generator is None:
            self._generator = np.random.Generator(np.random.Philox(key=0))
        self._generator.bit_generator.state = {
            "bit_generator": "Philox",
            "state": {
                "counter": np.array([0, self.number + row, lane, 0], dtype=np.uint64),
                "key": np.array(self.key, dtype=np.uint64),
            },
            "buffer": np.zeros(4, dtype=np.uint64),
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }
        return self._generator


def _signed(word: int) -> int:
    """64 bits as a number with a sign."""
    return word - (word >> 63 << 64)


def _digest(seed: int, names: tuple[str | int, ...]) -> bytes:
    if not is_whole(seed) or seed < 0:
        raise InvalidInput(f"seed is {seed!r:.80}; give a whole number of at least 0")
    return hashlib.sha256("\0".join(map(str, names)).encode()).digest()
