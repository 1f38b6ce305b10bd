"""A sample over seeds against a threshold: holds, does not hold, or undecided."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.intervals import interval

__all__ = ["Finding", "Verdict", "above", "all_of", "inside"]

Verdict = Literal["holds", "does not hold", "undecided"]


@dataclass(frozen=True)
class Finding:
    """An estimate with its 95 % interval, what was measured, and what follows."""

    statistic: str
    estimate: float
    low: float
    high: float
    verdict: Verdict


def above(statistic: str, sample: Vector, threshold: float = 0.0) -> Finding:
    """Holds where the whole interval of the mean lies above the threshold.

    >>> above("difference", np.array([0.9, 1.0, 1.1])).verdict
    'holds'
    """
    return inside(statistic, sample, threshold, math.inf)


def inside(
    statistic: str, sample: Vector, least: float, most: float, *, log: bool = False
) -> Finding:
    """Holds where the whole interval of the mean lies between the two.

    `log` takes the geometric mean, for times. One seed has no interval, so nothing is decided.

    >>> inside("ratio", np.array([0.9, 1.2]), 0.0, 1.0).verdict
    'undecided'
    """
    values = np.asarray(sample, dtype=np.float64)
    if not np.isfinite(values).all() or values.size == 0:
        return Finding(statistic, math.nan, math.nan, math.nan, "undecided")
    mean, low, high = interval(np.log(values) if log else values)
    if log:
        mean, low, high = math.exp(mean), math.exp(low), math.exp(high)
    if values.size < 2:
        low, high = -math.inf, math.inf
    return Finding(statistic, mean, low, high, _verdict(low, high, least, most))


def _verdict(low: float, high: float, least: float, most: float) -> Verdict:
    if least < low and high < most:
        return "holds"
    return "does not hold" if high <= least or low >= most else "undecided"


def all_of(first: Finding, *others: Finding) -> Finding:
    """The first finding, which holds only where all of them do."""
    verdicts = {finding.verdict for finding in (first, *others)}
    verdict: Verdict = "undecided"
    if verdicts == {"holds"}:
        verdict = "holds"
    elif "does not hold" in verdicts:
        verdict = "does not hold"
    return Finding(first.statistic, first.estimate, first.low, first.high, verdict)
