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
        integrations,
        lab,
        objectives,
        offpolicy,
        oracles,
        ranking,
        simulation,
        smoothing,
    )
    from fairwolfe.agent import Agent
    from fairwolfe.core import features, registry
    from fairwolfe.core.contexts import Bilinear, PerArm
    from fairwolfe.core.decision import Batch, Choice, Decision
    from fairwolfe.core.feedback import Shown
    from fairwolfe.core.groups import Item
    from fairwolfe.core.problem import Problem
    from fairwolfe.errors import FairwolfeError
    from fairwolfe.fairness import elicit, metrics, tradeoff
    from fairwolfe.reduction import FrankWolfe, Guarded, LagrangeCB, MOLinCB
    from fairwolfe.simulation import compare, simulate
    from fairwolfe.truth import bounds, known, optimum

__all__ = [
    "Agent",
    "Batch",
    "Bilinear",
    "Choice",
    "Decision",
    "FairwolfeError",
    "FrankWolfe",
    "Guarded",
    "Item",
    "LagrangeCB",
    "MOLinCB",
    "PerArm",
    "Problem",
    "Shown",
    "__version__",
    "bandits",
    "bounds",
    "checks",
    "compare",
    "elicit",
    "environments",
    "errors",
    "features",
    "integrations",
    "known",
    "lab",
    "metrics",
    "objectives",
    "offpolicy",
    "optimum",
    "oracles",
    "ranking",
    "registry",
    "simulate",
    "simulation",
    "smoothing",
    "tradeoff",
]

# Names are imported when they are used: `import fairwolfe` stays fast.
_PLACES = {
    "Agent": "fairwolfe.agent",
    "Batch": "fairwolfe.core.decision",
    "Bilinear": "fairwolfe.core.contexts",
    "Choice": "fairwolfe.core.decision",
    "Decision": "fairwolfe.core.decision",
    "FairwolfeError": "fairwolfe.errors",
    "FrankWolfe": "fairwolfe.reduction",
    "Guarded": "fairwolfe.reduction",
    "Item": "fairwolfe.core.groups",
    "LagrangeCB": "fairwolfe.reduction",
    "MOLinCB": "fairwolfe.reduction",
    "PerArm": "fairwolfe.core.contexts",
    "Problem": "fairwolfe.core.problem",
    "Shown": "fairwolfe.core.feedback",
    "compare": "fairwolfe.simulation",
    "elicit": "fairwolfe.fairness",
    "known": "fairwolfe.truth",
    "optimum": "fairwolfe.truth",
    "simulate": "fairwolfe.simulation",
    "tradeoff": "fairwolfe.fairness",
}
_FOLDERS = {
    "bounds": "fairwolfe.truth.bounds",
    "features": "fairwolfe.core.features",
    "metrics": "fairwolfe.fairness.metrics",
    "registry": "fairwolfe.core.registry",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("fairwolfe")
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    if name in __all__:
        return import_module(_FOLDERS.get(name, f"fairwolfe.{name}"))
    raise AttributeError(f"module 'fairwolfe' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
