"""Contextual bandits with concave rewards, and fair ranking.

>>> import fairwolfe as fw
>>> fw.objectives.GiniWelfare().value([3.0, 1.0])
2.5
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairwolfe import checks, errors, objectives, registry, smoothing
    from fairwolfe.errors import FairwolfeError
    from fairwolfe.problem import Problem

__all__ = [
    "FairwolfeError",
    "Problem",
    "__version__",
    "checks",
    "errors",
    "objectives",
    "registry",
    "smoothing",
]

# Names are imported when they are used: `import fairwolfe` stays fast.
_PLACES = {
    "FairwolfeError": "fairwolfe.errors",
    "Problem": "fairwolfe.problem",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("fairwolfe")
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    if name in __all__:
        return import_module(f"fairwolfe.{name}")
    raise AttributeError(f"module 'fairwolfe' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
