"""`EqualExposure`: the distance to equality."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.objectives.concave import Concave

__all__ = ["EqualExposure"]


@dataclass(frozen=True)
class EqualExposure(Concave):
    """f(z) = -(1/n) |Cz|, with Cz = z - mean(z): the standard deviation over sqrt(n), negated.

    Lipschitz constant 1/n. Not differentiable exactly at its optimum, so it is smoothed. (The
    paper calls it "the standard deviation"; its formula has 1/n outside the root.)

    Reference: appendix of the paper, "Objectives", eq. expo.

    >>> EqualExposure().value([3.0, 1.0, 1.0, 3.0])
    -0.5
    """

    form = "equal_exposure"

    def _value(self, z: Vector) -> float:
        return -float(np.linalg.norm(z - z.mean())) / z.size

    def lipschitz(self, n: int) -> float:
        return 1.0 / n
