"""Smooth approximations f_t of a concave f, closer to it as t grows.

>>> from fairwolfe.objectives import GiniWelfare, Linear
>>> default_smoothing(Linear([1.0])), default_smoothing(GiniWelfare())
(Identity(), Moreau(beta0=None, horizon=None))
"""

from __future__ import annotations

from fairwolfe.objectives import Concave
from fairwolfe.smoothing.dual_descent import DualDescent
from fairwolfe.smoothing.smoothings import Augmented, Identity, Moreau, Randomized

__all__ = ["Augmented", "DualDescent", "Identity", "Moreau", "Randomized", "default_smoothing"]


def default_smoothing(objective: Concave, n: int | None = None) -> Identity | Moreau | Randomized:
    """Identity for a smooth f, Moreau if every leaf can be smoothed by it, else Randomized."""
    if objective.smooth:
        return Identity()
    leaves = objective.leaves(n or objective.size or 2)
    moreau = all(leaf.has_prox or leaf.smooth for _, leaf, _ in leaves)
    return Moreau() if moreau else Randomized()
