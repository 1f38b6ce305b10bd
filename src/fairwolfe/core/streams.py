"""Named independent generators from one seed.

Environment, feedback noise and policy draw from streams of their own, so two policies run with one
seed meet the same contexts and the same noise.
"""

from __future__ import annotations

import hashlib

import numpy as np

from fairwolfe.errors import InvalidInput

__all__ = ["stream"]


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The generator called `names` of a seed: the same numbers whatever else is drawn.

    >>> [int(stream(0, name).integers(100)) for name in ("environment", "policy", "environment")]
    [9, 40, 9]
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InvalidInput(f"seed is {seed!r}; give a whole number of at least 0")
    digest = hashlib.sha256("\0".join(map(str, names)).encode()).digest()
    key = tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))
    # SFC64 draws normals a fifth faster than NumPy's default, and contexts are mostly normals.
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(int(seed), spawn_key=key)))
