"""`LinearRule`, `RankingRule`: what the compiled engine needs of a built-in base.

A base without a rule decides and learns in Python, on the plain path of `FrankWolfe`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fairwolfe.core.arrays import Vector

__all__ = ["LinearRule", "RankingRule"]


class LinearRule(NamedTuple):
    """A bandit over a linear regression of the rewards on the features of an arm."""

    name: str
    """Of the compiled rule: kernels/rules.py."""
    params: Vector
    learn: str
    """"ridge" or "online_gradient"."""
    regression: Any
    """Its arrays before the first reward, a `LinearState`."""
    limit: float
    """The largest |x|^2 that can be learnt from."""
    uniforms: int = 0
    """How many numbers a decision draws."""
    uniform: bool = True
    """Whether these are uniform in [0, 1)."""
    look: str = "plain"
    """How other arms are compared for live numbers: "plain", "optimistic" or "extended"."""
    extended: bool = False
    """Whether it regresses <g, r> on g (x) x."""
    ascent: tuple[Any, int, float] = (None, 0, 0.0)
    """Gradient, steps and rate of a rule that ascends over mixtures of the arms."""
    own: Any = None
    """An author's rule, which the compiled loop calls."""


class RankingRule(NamedTuple):
    """A ranker: scores over one ridge regression on the items that were exposed."""

    name: str
    """Of the compiled scores: kernels/ranks.py."""
    params: Vector
    limit: float
    """The largest |user (x) item|^2 that can be learnt from."""
    state: Any
    """The class of its states: problem, params, regression, exposed, shown, slots, features,
    retired."""
    uniforms: int = 0
    owed: float = 0.0
    """The share of rankings that an item must be shown in."""
    position_weights: Vector | None = None
