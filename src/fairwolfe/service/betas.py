"""beta of an objective, wherever it is: the weight of the items against the users."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from fairwolfe.objectives import Concave, TwoSided
from fairwolfe.service.watch import parts_of

__all__ = ["beta_of", "with_beta"]


def beta_of(objective: Concave) -> float | None:
    """The weight of the items against the users; None where there is none."""
    return next((p.beta for p in parts_of(objective) if isinstance(p, TwoSided)), None)


def with_beta(objective: Concave, beta: float) -> Concave:
    """The same with another beta."""
    if isinstance(objective, TwoSided):
        return replace(objective, beta=beta)
    if is_dataclass(objective):
        for field in fields(objective):
            value = getattr(objective, field.name)
            changed: Any = None
            if isinstance(value, Concave) and beta_of(value) is not None:
                changed = with_beta(value, beta)
            elif isinstance(value, tuple):
                changed = tuple(
                    with_beta(part, beta)
                    if isinstance(part, Concave) and beta_of(part) is not None
                    else part
                    for part in value
                )
            if changed is not None and changed != value:
                return replace(objective, **{field.name: changed})
    return objective
