"""`EqualExposure`: the distance to equality."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.kernels.compile import kernel
from fairwolfe.objectives.concave import GRADIENT, Concave

__all__ = ["EqualExposure"]


@kernel(signature=GRADIENT)
def equal_exposure(z: Vector, step: float, params: Vector, work: Vector, out: Vector) -> None:
    """-min(1/n, |Cz|/step) Cz/|Cz|, and 0 at equality. z, out (n,). params, work: not used."""
    n = z.size
    mean = 0.0
    equal = True
    for i in range(n):
        mean += z[i]
        equal = equal and z[i] == z[0]
    mean /= n
    square = 0.0
    for i in range(n):
        out[i] = z[i] - mean
        square += out[i] * out[i]
    norm = np.sqrt(square)
    scale = 0.0
    if norm > 0.0 and not equal:  # the mean of equal numbers may be rounded
        scale = -1.0 / (n * norm)
        if step > 0.0:
            scale = -min(-scale, 1.0 / step)
    for i in range(n):
        out[i] *= scale


@dataclass(frozen=True)
class EqualExposure(Concave):
    """f(z) = -(1/n) |Cz|, with Cz = z - mean(z): the standard deviation over sqrt(n), negated.

    Lipschitz constant 1/n. Not differentiable exactly at its optimum, so it is smoothed. (The
    paper calls it "the standard deviation"; its formula has 1/n outside the root.)

    Reference: appendix of the paper, "Objectives", eq. expo.

    >>> EqualExposure().value([3.0, 1.0, 1.0, 3.0])
    -0.5
    """

    kernel = equal_exposure
    form = "equal_exposure"

    def _value(self, z: Vector) -> float:
        return -float(np.linalg.norm(z - z.mean())) / z.size

    def lipschitz(self, n: int) -> float:
        return 1.0 / n
