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
    from fairwolfe.lab.results import facts, numbers, read
    from fairwolfe.lab.spec import Experiment, Run, load
    from fairwolfe.lab.sweep import Sweep, pending, run

__all__ = ["Experiment", "Run", "Sweep", "facts", "load", "numbers", "pending", "read", "run"]

_MODULES = {
    "results": ("facts", "numbers", "read"),
    "spec": ("Experiment", "Run", "load"),
    "sweep": ("Sweep", "pending", "run"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"fairwolfe.lab.{module}"), name)
    raise AttributeError(f"module 'fairwolfe.lab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
