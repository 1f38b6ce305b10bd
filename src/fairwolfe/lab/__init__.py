"""Experiments as data: a TOML file, runs that can be resumed, results as Parquet.

>>> from fairwolfe import lab
>>> experiment = lab.Experiment.of('''
... name = "small"
... horizon = 100
... seeds = 3
... environment = { name = "mehrotra" }
... objective = { name = "gini-welfare" }
... policies.any = { name = "frank-wolfe", base = { name = "uniform" } }
... ''')
>>> len(experiment.runs())
3
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairwolfe.lab.experiment import Experiment, Run, load
    from fairwolfe.lab.results import facts, numbers, read
    from fairwolfe.lab.sweep import Sweep, pending, run

__all__ = ["Experiment", "Run", "Sweep", "facts", "load", "numbers", "pending", "read", "run"]

_PLACES = {
    "Experiment": "experiment",
    "Run": "experiment",
    "Sweep": "sweep",
    "facts": "results",
    "load": "experiment",
    "numbers": "results",
    "pending": "sweep",
    "read": "results",
    "run": "sweep",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(f"fairwolfe.lab.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'fairwolfe.lab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
