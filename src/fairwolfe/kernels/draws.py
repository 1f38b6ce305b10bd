# cython: language_level=3, infer_types=True
"""Uniform numbers by the number of a decision: Philox 4x64, as NumPy's, for many decisions at once.

A counter-based generator is a function of (key, counter): decision n draws the same numbers
whatever was drawn before, in whatever process. `core.streams.Numbered` draws the same through
NumPy, for rules that need other laws than the uniform one.
"""

from __future__ import annotations

import cython


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _unit(word: uint64_t) -> Real:
    """The upper 53 bits as a number in [0, 1)."""
    return cython.cast(Real, cython.cast(int64_t, word >> 11)) * 2.0**-53


def numbered_uniforms(
    key: uint64_t, other_key: uint64_t, number: uint64_t, out: cython.p_double, n: Size
) -> cython.void:
    """out[j] = the j-th number in [0, 1) of decision `number`. out (n,). Cost: n/4 times 10 rounds
    of two products of 64 bits.
    """
    start: Size = 0
    low_p: uint64_t = 0
    low_q: uint64_t = 0
    first: uint64_t = 0xD2E7470EE14C6C93
    second: uint64_t = 0xCA5A826395121157
    weyl: uint64_t = 0x9E3779B97F4A7C15
    other_weyl: uint64_t = 0xBB67AE8584CAA73B
    while start < n:
        a, b, c, e = cython.cast(uint64_t, start // 4 + 1), number, 0, 0
        k, o = key, other_key
        for turn in range(10):
            p = product(first, a, cython.address(low_p))
            q = product(second, c, cython.address(low_q))
            a, b, c, e = q ^ b ^ k, low_q, p ^ e ^ o, low_p
            k += weyl
            o += other_weyl
        out[start] = _unit(a)
        if start + 1 < n:
            out[start + 1] = _unit(b)
        if start + 2 < n:
            out[start + 2] = _unit(c)
        if start + 3 < n:
            out[start + 3] = _unit(e)
        start += 4


def uniforms_by_number(key: int64_t, other_key: int64_t, first: int64_t, out: OutMatrix) -> None:
    """Row i: numbers in [0, 1) of decision first + i. out (decisions, numbers of each).

    The keys are signed, as in `core.streams.Numbered.signed`.

    >>> import numpy as np
    >>> from fairwolfe.core.streams import Numbered
    >>> draws, out = Numbered.of(0, "policy"), np.empty((1, 2))
    >>> uniforms_by_number(*draws.signed, 0, out)
    >>> bool((draws.generator().random(2) == out[0]).all())
    True
    """
    n: Size = out.shape[1]
    if n == 0:
        return
    with cython.nogil:
        for i in range(out.shape[0]):
            numbered_uniforms(
                cython.cast(uint64_t, key),
                cython.cast(uint64_t, other_key),
                cython.cast(uint64_t, first) + cython.cast(uint64_t, i),
                cython.address(out[i, 0]),
                n,
            )
