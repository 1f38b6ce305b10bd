"""`TwoSided`: the sum of a user-side objective and beta times one of item exposures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from fairwolfe.core.arrays import IntVector
from fairwolfe.core.problem import whole_number
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives.combine import Combination, Scaled, Sum, Term
from fairwolfe.objectives.concave import Concave, Scope, nonnegative, require_objective
from fairwolfe.objectives.linear import Linear
from fairwolfe.objectives.mapped import ByGroup
from fairwolfe.objectives.words import Names, Words


@dataclass(frozen=True, repr=False)
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
        require_objective("the item side of TwoSided", self.items)
        if self.users is not None:
            require_objective("the user side of TwoSided", self.users)
        beta = nonnegative("beta", self.beta, "give a finite number of at least 0")
        object.__setattr__(self, "beta", beta)
        object.__setattr__(self, "n_users", whole_number("n_users", self.n_users))

    @property
    def members(self) -> tuple[Concave, ...]:
        items = (self.items,) if self.beta else ()
        return (*items, self._users(self.n_users))

    def _users(self, n_users: int) -> Concave:
        return Linear((1.0,) * n_users) if self.users is None else self.users

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

    def parts(self, n: int) -> list[Term]:
        items = [Term(self.beta, self.items, slice(0, n - self.n_users))] if self.beta else []
        return [*items, Term(1.0, self._users(self.n_users), slice(n - self.n_users, n))]

    def _words(self, names: Names) -> Words:
        side = names.users(self.n_users)
        users = self._users(len(side.labels))._words(side)
        return Words.sum([users, self.items._words(names.items()).times(self.beta)])

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
            self._users(scope.n_users)._bind(users),
            scope.n_users,
        )

    def _lifted(self, where: IntVector, groups: Mapping[str, IntVector]) -> Concave:
        items = self.items._lifted(where[: -self.n_users], groups)
        users = self._users(self.n_users)._lifted(where[-self.n_users :], groups)
        return Sum((Scaled(self.beta, items), users))

    def relaxed(self) -> Concave:
        users = None if self.users is None else self.users.relaxed()
        return TwoSided(self.items.relaxed(), self.beta, users, self.n_users)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        from fairwolfe.objectives.gini import EqualExposure, GiniEquality
        from fairwolfe.objectives.welfare import Nash, Welfare

        return (
            cls(GiniEquality(), beta=0.5),
            cls(Welfare(0.5), beta=0.5),
            cls(EqualExposure(), beta=0.0),
            cls(GiniEquality(), beta=2.0, users=Nash(), n_users=2),
        )


def parts_of(objective: Concave) -> Iterator[Concave]:
    """An objective and all that it is made of."""
    yield objective
    for field in fields(objective):  # type: ignore[arg-type]
        value = getattr(objective, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Concave):
                yield from parts_of(part)


def beta_of(objective: Concave) -> float | None:
    """The weight of the items against the users; None where there is none."""
    return next((p.beta for p in parts_of(objective) if isinstance(p, TwoSided)), None)


def with_beta(objective: Concave, beta: float) -> Concave:
    """The same with another beta."""
    return changed(
        objective, lambda part: replace(part, beta=beta) if isinstance(part, TwoSided) else part
    )


def grouped_by(objective: Concave) -> tuple[str, ...]:
    """The attributes of items by which f makes groups that follow them."""
    parts = (part for part in parts_of(objective) if isinstance(part, ByGroup))
    return tuple(dict.fromkeys(part.by for part in parts if part.by is not None))


def require_no_labels(objective: Concave) -> None:
    """Raise for labels of items that come or go: a label would pass from an item to another."""
    if isinstance(objective, ByGroup) and objective.by is None:
        raise InvalidInput(
            f"{objective!r:.80} has the labels of a fixed catalogue, and items have come or gone: "
            'labels do not follow items. Give every item an attribute such as maker="acme", and '
            'f ByGroup(objective, by="maker")'
        )
    if isinstance(objective, TwoSided):
        require_no_labels(objective.items)
    elif isinstance(objective, Sum | Scaled):
        for member in objective.members:
            require_no_labels(member)


def labelled(objective: Concave, labels: Mapping[str, Sequence[Any]]) -> Concave:
    """The same with the groups of the items of a moment; labels: attribute -> the group of each."""

    def own(part: Concave) -> Concave:
        if not isinstance(part, ByGroup) or part.by is None:
            return part
        return replace(part, labels=tuple(labels[part.by]))

    return changed(objective, own)


def changed(objective: Concave, change: Callable[[Concave], Concave]) -> Concave:
    """An objective with its parts changed, the innermost first."""

    def inside(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(inside, value))
        return changed(value, change) if isinstance(value, Concave) else value

    own = {field.name: getattr(objective, field.name) for field in fields(objective)}  # type: ignore[arg-type]
    parts = {name: inside(value) for name, value in own.items()}
    new = {name: part for name, part in parts.items() if part != own[name]}
    return change(replace(objective, **new) if new else objective)  # type: ignore[type-var]
