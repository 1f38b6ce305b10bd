"""Where policies meet environments: runs and comparisons."""

import warnings
from importlib import import_module
from typing import Any

from fairwolfe.simulation import delays
from fairwolfe.simulation.compare import Comparison, compare
from fairwolfe.simulation.lateness import Lateness
from fairwolfe.simulation.rollout import simulate
from fairwolfe.simulation.trace import Trace

__all__ = ["Comparison", "Lateness", "Trace", "compare", "delays", "simulate"]

_MOVED = {
    "Optimum": "truth",
    "TradeOff": "fairness",
    "bounds": "truth",
    "known": "truth",
    "metrics": "fairness",
    "optimum": "truth",
    "tradeoff": "fairness",
}


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        folder = f"fairwolfe.{_MOVED[name]}"
        warnings.warn(
            f"fairwolfe.simulation.{name} is {folder}.{name} now; the old place warns for one "
            "version",
            DeprecationWarning,
            stacklevel=2,
        )
        if name in ("bounds", "metrics"):
            return import_module(f"{folder}.{name}")
        return getattr(import_module(folder), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
