"""What options that the paper does not have bring, beside the paper's own curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fairwolfe.core.arrays import Vector
from fairwolfe.paper.curves import Curves
from fairwolfe.paper.verdicts import Finding, above

__all__ = ["Beyond", "beyond", "counted", "paper_curve"]


class Beyond(NamedTuple):
    """A curve at its horizon."""

    label: str
    value: Finding
    """f."""
    below: float
    """How far f is below the best possible, the mean over seeds."""
    apart: Finding | None
    """f - f of the paper's own curve, paired by seed; None: it is the paper's."""


def paper_curve(label: str) -> str:
    """The paper's own curve that a curve is a change of, or is.

    >>> paper_curve("FW-LinUCBRank + all three"), paper_curve("FW-LinUCBRank")
    ('FW-LinUCBRank', 'FW-LinUCBRank')
    """
    return label.partition(" + ")[0]


def beyond(curves: Curves, tops: Vector) -> list[Beyond]:
    """Every curve of a study, in its order; tops: the best possible f, by seed or for all."""
    rows = []
    for label in curves.runs:
        final, own = curves.at(label), paper_curve(label)
        apart = None if own == label else above("difference", final - curves.at(own))
        rows.append(Beyond(label, above("f", final), float((tops - final).mean()), apart))
    return rows


def counted(name: str, rows: Sequence[Beyond]) -> str:
    """How many changes end above the paper's own curve and below it, by their intervals, in words.

    >>> import numpy as np
    >>> rows = beyond(Curves(np.array([9]), {"A": {"value": np.array([[1.0], [2.0]])}}), np.ones(1))
    >>> counted("small", rows)
    "small, 0 changes: 0 above the paper's curve, 0 below it, 0 with 0 inside the interval."
    """
    apart = [row.apart for row in rows if row.apart is not None]
    higher, lower = sum(one.low > 0.0 for one in apart), sum(one.high < 0.0 for one in apart)
    return (
        f"{name}, {len(apart)} changes: {higher} above the paper's curve, {lower} below it, "
        f"{len(apart) - higher - lower} with 0 inside the interval."
    )
