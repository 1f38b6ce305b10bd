# cython: language_level=3
"""Vectors, and ridge regression with several outputs."""

from __future__ import annotations

import cython
from cython.cimports.fairwolfe.kernels.types import In, Out, Real, Size
from cython.cimports.libc.math import fma

if not cython.compiled:
    raise ImportError("the kernels are not built; run `make build`")


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def add_scaled(scale: Real, x: In, out: Out, n: Size) -> cython.void:
    """out += scale x. x, out (n,)."""
    i: Size
    for i in range(n):
        out[i] = fma(scale, x[i], out[i])
