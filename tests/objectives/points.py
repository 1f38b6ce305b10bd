"""Objectives of every kind, and points to try them at, for the tests of this folder."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from fairwolfe.core.arrays import Vector
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    ByGroup,
    Concave,
    EqualExposure,
    GeneralizedGini,
    GiniEquality,
    GiniWelfare,
    Linear,
    Mapped,
    Minimum,
    Nash,
    PerMerit,
    TwoSided,
    Welfare,
)

SIZE = 5


class Case(NamedTuple):
    """An objective of SIZE coordinates, and the smallest coordinate at which it has a slope."""

    objective: Concave
    low: float | None = None


LEAVES: dict[str, Case] = {
    "linear": Case(Linear((1.0, 0.5, 0.0, -0.25, 2.0))),
    "generalized gini": Case(GeneralizedGini((3.0, 1.0, 1.0, 0.0, -2.0))),
    "gini welfare": Case(GiniWelfare()),
    "gini equality": Case(GiniEquality()),
    "minimum": Case(Minimum()),
    "equal exposure": Case(EqualExposure()),
    "welfare .5": Case(Welfare(0.5), 1e-3),
    "welfare .9 offset": Case(Welfare(0.9, offset=0.1), 0.0),
    "welfare 1": Case(Welfare(1.0)),
    "nash": Case(Nash(), 1e-3),
    "nash offset": Case(Nash(offset=0.1), 0.0),
    "at least": Case(AtLeast(0.5, penalty=2.0)),
    "at most": Case(AtMost((0.0, 0.5, 0.5, 1.0, -1.0), penalty=0.5)),
}

COMBINATIONS: dict[str, Case] = {
    "multiple": Case(2.5 * GiniEquality()),
    "zero": Case(0.0 * Welfare(0.5)),
    "aimed": Case(EqualExposure().on(3, 0, 2)),
    "sum": Case(GiniWelfare() + 0.5 * Linear((1.0, 0.0, -0.5, 2.0, 1.0)) + AtMost(0.4, 2.0)),
    "blocks": Case(Minimum().on(0, 4) + 3.0 * AtMost(0.4, penalty=2.0).on(1) + Nash().on(3), 1e-3),
    "two-sided": Case(TwoSided(GiniEquality(), beta=0.5)),
    "two-sided, many users": Case(TwoSided(Welfare(0.5), beta=2.0, users=Nash(), n_users=2), 1e-3),
    "mapped": Case(
        Mapped(
            GiniWelfare(),
            ((1.0, 0.5, 0.0, 0.0, -1.0), (0.0, -1.0, 2.0, 0.0, 0.0), (0.3, 0.3, 0.3, 0.3, 0.3)),
        )
    ),
    "by group": Case(ByGroup(GiniEquality(), ("a", "b", "a", "c", "b"))),
    "per merit": Case(PerMerit(EqualExposure(), (0.5, 1.0, 2.0, 1.0, 4.0))),
    "nested": Case(
        TwoSided(
            ByGroup(2.0 * GiniWelfare() + PerMerit(Minimum(), (1.0, 2.0)), ("a", "b", "b")),
            beta=0.7,
            users=GiniWelfare() + AtLeast(0.3, 1.0).on(1),
            n_users=2,
        )
    ),
}

CASES = LEAVES | COMBINATIONS


def vectors(n: int = SIZE, low: float | None = None) -> st.SearchStrategy[Vector]:
    """Vectors of many magnitudes, with ties and zeros; coordinates of at least `low`."""
    least = -10.0 if low is None else low
    ties = [x for x in (-1.0, 0.0, 0.1, 0.5, 1.0) if x >= least] + [least]
    element = st.floats(least, 10.0, allow_subnormal=False) | st.sampled_from(ties)
    scales = [1.0, 1e3, 1e6] if low else [1e-6, 1e-3, 1.0, 1e3, 1e6]

    def scaled(drawn: tuple[float, ...]) -> Vector:
        return drawn[0] * np.array(drawn[1:])

    return st.tuples(st.sampled_from(scales), *[element] * n).map(scaled)


def points_of(case: Case) -> st.SearchStrategy[Vector]:
    """Points at which the objective has a supergradient."""
    return vectors(low=case.low)
