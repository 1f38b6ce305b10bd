"""`Listening`: a world with rankings from anyone's table of users, items and counts."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.contexts import Bilinear
from fairwolfe.core.problem import Problem, positive, whole_number
from fairwolfe.data.factorise import Factors, Settings, factorise, scaled
from fairwolfe.data.plays import Id, Plays, Selection
from fairwolfe.data.table import read_file, read_memory
from fairwolfe.environments import position_weights as slots
from fairwolfe.environments.factor_model import CALIBRATIONS, FactorModel
from fairwolfe.environments.position_weights import dcg
from fairwolfe.environments.rankings import RankingArrays, RankingWorld
from fairwolfe.errors import InvalidInput

__all__ = ["Factored", "Listening"]

_WEIGHTS = dcg(10)


class Factored(RankingWorld):
    """A world that is a `FactorModel`, made when it is first asked for."""

    @property
    @abstractmethod
    def model(self) -> FactorModel:
        """The world itself."""

    def problem(self) -> Problem:
        """A ranking of the items, with the clicks."""
        return self.model.problem()

    def init(self, rng: np.random.Generator) -> RankingArrays:
        """The factors; nothing is random."""
        return self.model.init(rng)

    def draw_users(self, rng: np.random.Generator, n: int) -> IntVector:
        """Uniform, one integer a round."""
        return self.model.draw_users(rng, n)

    def show(self, world: RankingArrays, user: int) -> Bilinear:
        """The user's factors beside those of all items."""
        return self.model.show(world, user)

    def features(self, world: RankingArrays) -> tuple[Matrix, Cube]:
        """The factors of the users, and those of the items."""
        return self.model.features(world)

    def _user_of(self, world: RankingArrays, context: Any) -> Vector:
        return self.model._user_of(world, context)

    def __getstate__(self) -> dict[str, Any]:
        # What was read is read again: a copy of a world is as small as its settings.
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class Listening(Factored):
    """Users and items of a table, with factors from how often each user had each item.

    The users and items with the most plays of the whole table are kept. Alternating least squares
    on log(1 + count) give factors, which are scaled so that the largest u.v is 1; u.v is the chance
    that a user clicks an item that is exposed, in the world `FactorModel` of these factors.

    The table is read at the first use: a file in batches, 16 bytes of memory for each different
    pair of user and item. Factors are kept in the user's cache, and found there by the content of
    the table. `notes` explains in words how the table was understood.

    Parameters
    ----------
    table: path of a CSV, TSV or Parquet file; or rows (user, item, count), a mapping of columns, a
        DataFrame, a pyarrow Table. Ids are whole numbers or texts. Rows of one user and item are
        summed; rows without a count count 1
    user, item, count: names of the columns; guessed from the header where not given
    users, items: how many are kept, those with the most; None: all. Ties go to the smaller id
    by: what "the most" is of: "plays", or "listeners" (for users: how many items they played)
    position_weights: of the slots, as in `FactorModel`, the same for all users
    calibration: as in `FactorModel`. Least squares may give u.v < 0, so None will rarely do; "clip"
        is the default; with "affine" clicks are linear in the features
    factors, iterations, regularization, alpha, seed: of the least squares

    Reference: appendix of the paper, "Fair ranking", "Environments"; what it leaves open is ours.

    >>> rows = [("ann", "jazz", 9), ("ann", "folk", 1), ("bob", "folk", 5), ("cyd", "jazz", 2)]
    >>> world = Listening(rows, users=2, position_weights=dcg(1), factors=2)
    >>> world.user_ids, world.item_ids
    (('ann', 'bob'), ('jazz', 'folk'))
    >>> arrays = world.init(np.random.default_rng(0))
    >>> round(float((arrays.users @ arrays.items.T).max()), 12)
    1.0
    """

    table: Any
    _: KW_ONLY
    user: str | None = None
    item: str | None = None
    count: str | None = None
    users: int | None = None
    items: int | None = None
    by: str = "plays"
    position_weights: Sequence[float] = _WEIGHTS
    calibration: str | None = "clip"
    factors: int = 10
    iterations: int = 15
    regularization: float = 0.01
    alpha: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("user", "item", "count"):
            given = getattr(self, name)
            if given is not None and not isinstance(given, str):
                raise InvalidInput(f"{name} is {given!r}; give the name of a column")
        for name in ("users", "items"):
            if getattr(self, name) is not None:
                self._set(name, whole_number(name, getattr(self, name)))
        if self.by not in ("plays", "listeners"):
            raise InvalidInput(f"by is {self.by!r}; give 'plays' or 'listeners'")
        if self.calibration not in CALIBRATIONS:
            raise InvalidInput(
                f"calibration is {self.calibration!r}; give 'clip', 'affine' or None"
            )
        self._set("position_weights", _one_row(self.position_weights))
        for name in ("factors", "iterations"):
            self._set(name, whole_number(name, getattr(self, name)))
        for name in ("regularization", "alpha"):
            self._set(name, positive(name, getattr(self, name)))
        seed = self.seed
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise InvalidInput(f"seed is {seed!r}; give a whole number of at least 0")
        self._set("seed", int(seed))
        if isinstance(self.table, (str, os.PathLike)):
            self._set("table", str(os.fspath(self.table)))
        elif not isinstance(self.table, Plays):
            self._set("table", read_memory(self.table, self._names))
            for name in ("user", "item", "count"):
                self._set(name, None)  # the plays that are kept have no column names

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def _names(self) -> tuple[str | None, str | None, str | None]:
        return self.user, self.item, self.count

    @cached_property
    def _chosen(self) -> Selection:
        table = self.table
        plays = table if isinstance(table, Plays) else read_file(table, self._names)
        return plays.top(self.users, self.items, self.by)

    @cached_property
    def _factors(self) -> Factors:
        chosen = self._chosen
        # Said before the work: more slots than items.
        slots.checked(self.position_weights, len(chosen.user_ids), len(chosen.item_ids))
        if not chosen.counts.nnz:
            raise InvalidInput(
                "the users and items that are kept have no plays; give a table with counts above "
                "0, or keep more of them"
            )
        wanted = (self.factors, self.iterations, self.regularization, self.alpha, self.seed)
        return factorise(chosen.counts, Settings(*wanted))

    @cached_property
    def model(self) -> FactorModel:
        """The world itself: users and items in the order of `user_ids` and `item_ids`."""
        users, items = scaled(self._factors)
        return FactorModel(users, items, self.position_weights, self.calibration)

    @property
    def user_ids(self) -> tuple[Id, ...]:
        """The users as the table names them, the one with the most plays first."""
        return self._chosen.user_ids

    @property
    def item_ids(self) -> tuple[Id, ...]:
        """The items as the table names them, the one with the most plays first."""
        return self._chosen.item_ids

    @property
    def plays(self) -> Any:
        """The counts of these users and items, a sparse matrix (users, items)."""
        return self._chosen.counts.copy()

    @property
    def notes(self) -> tuple[str, ...]:
        """How the table was understood: which columns were guessed, who has no plays."""
        return self._chosen.notes

    @property
    def factors_hash(self) -> str:
        """The sha256 of the unscaled factors, rounded to 6 digits: for the record of a run."""
        return self._factors.hash

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        rows = [(f"u{i % 5}", i * i % 7, 1 + i % 4) for i in range(23)]
        return (
            cls(rows, position_weights=dcg(2), factors=3),
            cls(
                {"song": ["a", "b", "c", "a", "c", "b"], "listener": [1, 1, 2, 3, 3, 2]},
                users=2,
                by="listeners",
                position_weights=slots.body(2),
                calibration="affine",
                factors=2,
            ),
        )


def _one_row(weights: Any) -> tuple[float, ...]:
    if np.ndim(weights) != 1 or not len(weights):
        raise InvalidInput(
            f"position_weights is {weights!r}; give a number for each slot, such as dcg(10)"
        )
    return tuple(slots.checked(weights, 1, len(weights))[0].tolist())
