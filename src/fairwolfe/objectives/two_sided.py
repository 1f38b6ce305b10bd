"""`TwoSided`: what users get and how it is shared among items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fairwolfe.core.problem import real_number, whole_number
from fairwolfe.errors import InvalidInput, NotConcave
from fairwolfe.objectives.combine import Combination, Part
from fairwolfe.objectives.concave import Concave, Scope, require_objective
from fairwolfe.objectives.linear import Linear

__all__ = ["TwoSided"]


@dataclass(frozen=True)
class TwoSided(Combination):
    """f(z) = users(z_users) + beta items(z_items), the form of every fair-ranking objective.

    The user-side rewards are the last `n_users` coordinates (the problem's, once bound), the
    exposures of the items all before them; ``users=None`` is the sum of the user-side rewards.
    Lipschitz constant sqrt(L_users^2 + beta^2 L_items^2); smoothed block by block.

    Reference: Eq. (2) and appendix of the paper, "Objectives".

    >>> from fairwolfe.objectives import GiniEquality
    >>> TwoSided(GiniEquality(), beta=0.5).value([3.0, 1.0, 10.0])
    9.5
    """

    items: Concave
    beta: float = 1.0
    users: Concave | None = None
    n_users: int = 1

    def __post_init__(self) -> None:
        beta = real_number("beta", self.beta)
        require_objective("the item side of TwoSided", self.items)
        if self.users is not None:
            require_objective("the user side of TwoSided", self.users)
        if not (np.isfinite(beta) and beta >= 0.0):
            kind = NotConcave if beta < 0.0 else InvalidInput
            raise kind(f"beta is {self.beta!r}; give a finite number of at least 0")
        object.__setattr__(self, "beta", beta)
        object.__setattr__(self, "n_users", whole_number("n_users", self.n_users))

    @property
    def members(self) -> tuple[Concave, ...]:
        items = (self.items,) if self.beta else ()
        return (*items, self._users)

    @property
    def _users(self) -> Concave:
        return Linear((1.0,) * self.n_users) if self.users is None else self.users

    @property
    def size(self) -> int | None:
        items = self.items.size
        return None if items is None else items + self.n_users

    def _check_size(self, n: int) -> None:
        super()._check_size(n)
        if n <= self.n_users:
            raise InvalidInput(
                f"TwoSided was given {n} coordinates, {self.n_users} of them of the user side; "
                "give at least one item before them"
            )

    def _branches(self, n: int) -> list[tuple[Concave, int]]:
        self._check_size(n)
        return super()._branches(n)

    def parts(self, n: int) -> list[Part]:
        items = [Part(self.beta, self.items, slice(0, n - self.n_users))] if self.beta else []
        return [*items, Part(1.0, self._users, slice(n - self.n_users, n))]

    def _bound(self, scope: Scope) -> Concave:
        if scope.n_users is None:
            raise InvalidInput(
                f"TwoSided weighs items against users, but {scope.what} and no items; make the "
                "problem with Problem.ranking(...)"
            )
        split = scope.size - scope.n_users
        items = scope.part(slice(0, split), f"the problem has {split} items")
        users = scope.part(slice(split, None), f"the problem has {scope.n_users} user-side rewards")
        return TwoSided(
            self.items._bind(items if self.beta else items.ignored()),
            self.beta,
            self._sized(scope.n_users)._bind(users),
            scope.n_users,
        )

    def relaxed(self) -> Concave:
        users = None if self.users is None else self.users.relaxed()
        return TwoSided(self.items.relaxed(), self.beta, users, self.n_users)

    def _sized(self, n_users: int) -> Concave:
        return Linear((1.0,) * n_users) if self.users is None else self.users

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        from fairwolfe.objectives.equal_exposure import EqualExposure
        from fairwolfe.objectives.generalized_gini import GiniEquality
        from fairwolfe.objectives.welfare import Nash, Welfare

        return (
            cls(GiniEquality(), beta=0.5),
            cls(Welfare(0.5), beta=0.5),
            cls(EqualExposure(), beta=0.0),
            cls(GiniEquality(), beta=2.0, users=Nash(), n_users=2),
        )
