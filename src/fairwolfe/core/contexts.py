"""Contexts of arms: `PerArm`, `Bilinear`, and `Arms`, a checked (arms, features) array."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.problem import Problem, is_list, is_whole, real_array
from fairwolfe.errors import InvalidInput, did_you_mean
from fairwolfe.kernels.gates import largest_square_norm

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PerArm:
    """x_a = e_a (x) features: every arm sees the same features and has its own parameters.

    What most libraries call LinUCB. Kept as one small block per arm instead of one large design;
    the problem has the number of arms (``Problem.arms(..., n_arms=10)``).
    """

    features: Any


@dataclass(frozen=True, eq=False)
class Bilinear:
    """x_i = user (x) items_i: features that are products of those of a user and of an item."""

    user: Any
    items: Any

    def flat(self) -> Array:
        """The (items, user * item) array that it represents."""
        user = real_array("the user of the context", self.user)
        items = real_array("the items of the context", self.items)
        if user.ndim != 1 or items.ndim != 2:
            raise InvalidInput(
                f"a Bilinear context has a user of shape {user.shape} and items of shape "
                f"{items.shape}; give shapes (p,) and (n, q)"
            )
        flat: Array = (user[None, :, None] * items[:, None, :]).reshape(len(items), -1)
        return flat


class Arms(NamedTuple):
    """A context that has been checked: what policies read.

    `features` is (n_arms, d), or (1, d) with `per_arm` where all arms share it; `norm` the largest
    2-norm of a row. `places` (n_arms,) are the numbers of these arms in the context as it was
    given, where only some of them may be chosen: an action counts among these.
    """

    features: Array
    n_arms: int
    per_arm: bool
    norm: float = math.nan
    places: NDArray[np.int64] | None = None

    def row(self, arm: int) -> Array:
        """The features of an arm."""
        row: Array = self.features[0 if self.per_arm else arm]
        return row

    def largest(self) -> str:
        """Which features are the largest, in words."""
        row = int(np.abs(self.features).max(axis=1).argmax())
        arm = row if self.places is None else self.places[row]
        return f"the features of arm {arm} go up to {np.abs(self.features[row]).max():.4g}"


def fitting(given: Arms, problem: Problem) -> Arms:
    """A checked context as it is, or an error where it was checked for another problem."""
    if given.features.shape[1] == problem.dimension and given.per_arm == bool(problem.n_arms):
        return given
    raise InvalidInput(
        f"the context was read for another problem: it has {given.features.shape[1]} features, and "
        f"this problem {problem.dimension}; give the features themselves"
    )


def among(given: Arms, candidates: Any, blocked: Any, names: tuple[str, ...] | None = None) -> Arms:
    """A checked context of which only some arms may be chosen, given by number or name."""
    n = given.n_arms
    chosen = range(n) if candidates is None else _numbers("candidates", candidates, n, names)
    left = sorted(set(chosen).difference(_numbers("blocked", blocked, n, names)))
    if not left:
        raise InvalidInput(
            f"no arm is left: candidates is {candidates!r:.80} and blocked is {blocked!r:.80}; "
            "leave at least one"
        )
    places = np.array(left, dtype=np.int64)
    features = given.features if given.per_arm else given.features[places]
    return Arms(features, len(left), given.per_arm, largest_norm(features), places)


def _numbers(what: str, given: Any, n: int, names: tuple[str, ...] | None) -> list[int]:
    """Arms as numbers, each once."""
    if not is_list(given):
        raise InvalidInput(f"{what} is {given!r:.80}; give a list of arms, by number or name")
    listed: list[int] = []
    for one in given.tolist() if isinstance(given, np.ndarray) else given:
        if isinstance(one, str) and (names is None or one not in names):
            known = "the arms have no names" if names is None else did_you_mean(one, names)
            raise InvalidInput(f"{what} holds {one!r:.80}, which is not an arm here; {known}")
        number = names.index(one) if isinstance(one, str) and names else one
        if not is_whole(number) or not 0 <= number < n:
            raise InvalidInput(
                f"{what} holds {one!r:.80}; the arms of the context are 0 to {n - 1}, so give "
                "these, or names"
            )
        if number in listed:
            raise InvalidInput(f"{what} holds arm {one!r:.80} twice; give every arm once")
        listed.append(int(number))
    return listed


def arms(context: Any, problem: Problem) -> Arms:
    """Check a context against the problem; one that has been checked is returned as it is."""
    if isinstance(context, Arms):
        return fitting(context, problem)
    if isinstance(context, PerArm) != (problem.n_arms is not None):
        raise InvalidInput(
            f"the context is a {type(context).__name__} and n_arms of the problem is "
            f"{problem.n_arms}; PerArm contexts go with a problem that has n_arms, others without"
        )
    if isinstance(context, PerArm):
        features = np.atleast_2d(real_array("the context", context.features))
    elif isinstance(context, Bilinear):
        features, wanted = context.flat(), problem.n_features
        user, item = np.shape(context.user)[0], np.shape(context.items)[1]
        if isinstance(wanted, tuple) and (user, item) != wanted:
            raise InvalidInput(
                f"the context has {user} user and {item} item features; the problem has "
                f"{wanted[0]} and {wanted[1]}, so give these"
            )
    else:
        features = real_array("the context", context)
    if not features.flags.carray:
        features = features.copy()  # a read-only array would be compiled for again, for seconds
    rows = "1" if problem.n_arms else "number of arms"
    if features.ndim != 2 or features.shape[1] != problem.dimension:
        raise InvalidInput(
            f"the context has shape {features.shape}; the problem has {problem.dimension} "
            f"features, so give shape ({rows}, {problem.dimension})"
        )
    if len(features) == 0 or (problem.n_arms and len(features) != 1):
        raise InvalidInput(f"the context has {len(features)} rows; give {rows} of at least 1")
    if not np.isfinite(features).all():
        arm, feature = np.argwhere(~np.isfinite(features))[0].tolist()
        raise InvalidInput(
            f"feature {feature} of arm {arm} is {features[arm, feature]}; give finite numbers only"
        )
    n_arms = problem.n_arms or len(features)
    return Arms(features, n_arms, problem.n_arms is not None, largest_norm(features))


def largest_norm(features: Array) -> float:
    """The largest 2-norm of a row."""
    return math.sqrt(largest_square_norm(features))
