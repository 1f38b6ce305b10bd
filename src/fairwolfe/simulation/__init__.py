"""Where policies meet environments: runs, comparisons, and the truth to compare with."""

import warnings
from typing import Any

from fairwolfe.simulation import delays
from fairwolfe.simulation.compare import Comparison, compare
from fairwolfe.simulation.known import known
from fairwolfe.simulation.lateness import RENAMED, Lateness
from fairwolfe.simulation.optimum import Optimum, optimum
from fairwolfe.simulation.rollout import simulate
from fairwolfe.simulation.trace import Trace
from fairwolfe.simulation.tradeoff import TradeOff, tradeoff

__all__ = [
    "Comparison",
    "Lateness",
    "Optimum",
    "Trace",
    "TradeOff",
    "compare",
    "delays",
    "known",
    "optimum",
    "simulate",
    "tradeoff",
]


def __getattr__(name: str) -> Any:
    if name == "Service":
        warnings.warn(RENAMED, DeprecationWarning, stacklevel=2)
        return Lateness
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
