"""Compiled building blocks over plain arrays: vectors and matrices."""

from __future__ import annotations

from fairwolfe._compile import distinct, fma, kernel
from fairwolfe.protocols import Vector

__all__ = ["add_scaled"]


@kernel(signature="void(float64, float64[::1], float64[::1])")
def add_scaled(scale: float, x: Vector, out: Vector) -> None:
    """out += scale x; the two arrays must not overlap."""
    distinct()
    for i in range(x.size):
        out[i] = fma(scale, x[i], out[i])
