"""Contextual bandits with concave rewards, and fair ranking.

>>> import fairwolfe as fw
>>> fw.objectives.GiniWelfare().value([3.0, 1.0])
2.5
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairwolfe import (
        bandits,
        checks,
        environments,
        errors,
        lab,
        objectives,
        oracles,
        ranking,
        reduction,
        registry,
        simulation,
        smoothing,
    )
    from fairwolfe.agent import Agent
    from fairwolfe.contexts import Bilinear, PerArm
    from fairwolfe.errors import FairwolfeError
    from fairwolfe.problem import Problem
    from fairwolfe.reduction import FrankWolfe, MOLinCB
    from fairwolfe.simulation import (
        bounds,
        compare,
        known,
        metrics,
        optimum,
        simulate,
        tradeoff,
    )

__all__ = [
    "Agent",
    "Bilinear",
    "FairwolfeError",
    "FrankWolfe",
    "MOLinCB",
    "PerArm",
    "Problem",
    "__version__",
    "bandits",
    "bounds",
    "checks",
    "compare",
    "environments",
    "errors",
    "known",
    "lab",
    "metrics",
    "objectives",
    "optimum",
    "oracles",
    "ranking",
    "reduction",
    "registry",
    "simulate",
    "simulation",
    "smoothing",
    "tradeoff",
]

# Names are imported when they are used: `import fairwolfe` stays fast.
_PLACES = {
    "Agent": "fairwolfe.agent",
    "Bilinear": "fairwolfe.contexts",
    "FairwolfeError": "fairwolfe.errors",
    "FrankWolfe": "fairwolfe.reduction",
    "MOLinCB": "fairwolfe.reduction",
    "PerArm": "fairwolfe.contexts",
    "Problem": "fairwolfe.problem",
    "compare": "fairwolfe.simulation",
    "known": "fairwolfe.simulation",
    "optimum": "fairwolfe.simulation",
    "simulate": "fairwolfe.simulation",
    "tradeoff": "fairwolfe.simulation",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("fairwolfe")
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    if name in ("bounds", "metrics"):
        return import_module(f"fairwolfe.simulation.{name}")
    if name in __all__:
        return import_module(f"fairwolfe.{name}")
    raise AttributeError(f"module 'fairwolfe' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
