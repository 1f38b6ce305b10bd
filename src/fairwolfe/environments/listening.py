"""Worlds from tables of who used what how often: `Listening`, and those of Last.fm.

The functions at the end find the published file of Last.fm on this machine.
"""

from __future__ import annotations

import hashlib
import os
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from fairwolfe.core.arrays import IntVector
from fairwolfe.core.files import cache_folder
from fairwolfe.core.problem import Problem, one_of, positive, whole_number
from fairwolfe.environments.factor_model import DCG10, BilinearWorld, FactorModel, calibration_of
from fairwolfe.environments.plays import (
    WEIGHTS,
    AlsSettings,
    Factors,
    Id,
    Plays,
    Selection,
    factorise,
    scaled,
)
from fairwolfe.environments.read_table import read_file, read_memory
from fairwolfe.environments.world import (
    RankingArrays,
    body,
    check_fields,
    checked_weights,
    dcg,
)
from fairwolfe.errors import InvalidInput, MissingData

_NAMES = ("user", "item", "count")


class TableWorld(BilinearWorld):
    """A `FactorModel` whose factors come from a table, which is read at the first use."""

    @property
    @abstractmethod
    def listening(self) -> Listening:
        """The world with its table."""

    @property
    def model(self) -> FactorModel:
        """The world itself: users and items in the order of `user_ids` and `item_ids`."""
        return self.listening._model

    @property
    def user_ids(self) -> tuple[Id, ...]:
        """The users as the table names them, the one with the most plays first."""
        return self.listening._chosen.user_ids

    @property
    def item_ids(self) -> tuple[Id, ...]:
        """The items as the table names them, the one with the most plays first."""
        return self.listening._chosen.item_ids

    @property
    def plays(self) -> Any:
        """The counts of these users and items, a sparse matrix (users, items)."""
        return self.listening._chosen.counts.copy()

    @property
    def notes(self) -> tuple[str, ...]:
        """How the table was understood: which columns were guessed, who has no plays."""
        return self.listening._chosen.notes

    @property
    def factors_hash(self) -> str:
        """The sha256 of the unscaled factors, rounded to 6 digits: for the record of a run."""
        return self.listening._factors.hash

    def problem(self) -> Problem:
        """A ranking of the items, with the clicks."""
        return self.model.problem()

    def init(self, rng: np.random.Generator) -> RankingArrays:
        """The factors; nothing is random."""
        return self.model.init(rng)

    def draw_users(self, rng: np.random.Generator, n: int) -> IntVector:
        """Uniform, one integer a round."""
        return self.model.draw_users(rng, n)

    def __getstate__(self) -> dict[str, Any]:
        # What was read is read again: a copy of a world is as small as its settings.
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class Listening(TableWorld):
    """Users and items of a table, with factors from how often each user had each item.

    The users and items with the most plays of the whole table are kept. Alternating least squares
    on the counts give factors, which are scaled so that the largest u.v is 1; u.v is the chance
    that a user clicks an item that is exposed, in the world `FactorModel` of these factors.

    The table is read at the first use: a file in batches, 24 bytes of memory for each row. Factors
    are kept in the user's cache, and found there by the content of the table. `notes` explains in
    words how the table was understood.

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
    weights: how much the least squares trust a count: "log1p", log(1 + count), "counts" or "ones"
    scale: whether factors are scaled; else u.v is what the least squares gave
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
    position_weights: Sequence[float] = DCG10
    calibration: str | None = "clip"
    weights: str = "log1p"
    scale: bool = True
    factors: int = 10
    iterations: int = 15
    regularization: float = 0.01
    alpha: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in _NAMES:
            given = getattr(self, name)
            if given is not None and not isinstance(given, str):
                raise InvalidInput(f"{name} is {given!r}; give the name of a column")
        if self.by not in ("plays", "listeners"):
            raise InvalidInput(f"by is {self.by!r}; give 'plays' or 'listeners'")
        one_of("weights", self.weights, tuple(WEIGHTS))
        if not isinstance(self.scale, bool):
            raise InvalidInput(f"scale is {self.scale!r}; give True or False")
        kept = [name for name in ("users", "items") if getattr(self, name) is not None]
        check_fields(self, whole_number, *kept, "factors", "iterations")
        check_fields(self, positive, "regularization", "alpha")
        check_fields(self, lambda name, given: whole_number(name, given, 0), "seed")
        check_fields(self, calibration_of, "calibration")
        check_fields(self, _one_row, "position_weights")
        if isinstance(self.table, (str, os.PathLike)):
            check_fields(self, lambda name, given: str(os.fspath(given)), "table")
        elif not isinstance(self.table, Plays):
            names = (self.user, self.item, self.count)
            check_fields(self, lambda name, given: read_memory(given, names), "table")
            # The plays that are kept have no column names.
            check_fields(self, lambda name, given: None, *_NAMES)

    @property
    def listening(self) -> Listening:
        """Itself."""
        return self

    @cached_property
    def _chosen(self) -> Selection:
        plays = self.table
        if not isinstance(plays, Plays):
            plays = read_file(plays, (self.user, self.item, self.count))
        return plays.top(self.users, self.items, self.by)

    @cached_property
    def _factors(self) -> Factors:
        chosen = self._chosen
        # Before the work: more slots than items.
        checked_weights(self.position_weights, len(chosen.user_ids), len(chosen.item_ids))
        if not chosen.counts.nnz:
            raise InvalidInput(
                "the users and items that are kept have no plays; give a table with counts above "
                "0, or keep more of them"
            )
        wanted = (self.factors, self.iterations, self.regularization, self.alpha, self.seed)
        return factorise(chosen.counts, AlsSettings(*wanted), self.weights)

    @cached_property
    def _model(self) -> FactorModel:
        users, items = scaled(self._factors) if self.scale else self._factors
        return FactorModel(users, items, self.position_weights, self.calibration)

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
                position_weights=body(2),
                calibration="affine",
                factors=2,
            ),
        )


def _one_row(name: str, weights: Any) -> tuple[float, ...]:
    if np.ndim(weights) != 1 or not len(weights):
        raise InvalidInput(f"{name} is {weights!r}; give a number for each slot, such as dcg(10)")
    return tuple(checked_weights(weights, 1, len(weights))[0].tolist())


URL = "https://files.grouplens.org/datasets/hetrec2011/hetrec2011-lastfm-2k.zip"
FILE = "user_artists.dat"
SHA256 = "650cd69d5a68db24b439042557aa539aec47e473273e12cdfdca2cd944b3773a"
LICENCE = (
    "The Last.fm data of HetRec 2011 may be used for purposes that are not commercial. Who "
    "publishes results with it names Last.fm (https://www.last.fm) and cites I. Cantador, "
    "P. Brusilovsky and T. Kuflik, 2nd Workshop on Information Heterogeneity and Fusion in "
    "Recommender Systems (HetRec 2011), RecSys 2011."
)


def places() -> list[Path]:
    """Where the file is looked for, in this order."""
    given = os.environ.get("FAIRWOLFE_DATA")
    roots = [Path(given).expanduser()] if given else []
    return [root / "lastfm" / FILE for root in (*roots, cache_folder())]


def target(root: Path | None) -> Path:
    """Where a download goes: into its folder under `root`, or under the user's cache."""
    return (root or cache_folder()) / "lastfm" / FILE


def present(root: Path | None = None) -> Path | None:
    """The published file where it would be looked for, or under `root`; None if it is not there."""
    candidates = places() if root is None else [target(root)]
    return next((file for file in candidates if file.is_file() and _published(file)), None)


def _published(file: Path) -> bool:
    return hashlib.sha256(file.read_bytes()).hexdigest() == SHA256


def find() -> Path:
    """The file on this machine; nothing is ever downloaded by this."""
    if (path := present()) is not None:
        return path
    if damaged := [file for file in places() if file.is_file()]:
        raise InvalidInput(
            f"{damaged[0]} is not the published file: its sha256 is not {SHA256[:12]}...; download "
            "it with `fairwolfe data lastfm`, or use it as your own table with Listening"
        )
    looked = " or ".join(map(str, places()))
    raise MissingData(
        f"the Last.fm data is not at {looked}; download it with `fairwolfe data lastfm`, or set "
        "FAIRWOLFE_DATA to the folder that holds its folder lastfm"
    )


@dataclass(frozen=True)
class _LastFM(TableWorld):
    position_weights: Sequence[float] = DCG10
    calibration: str | None = "clip"
    _: KW_ONLY
    by: str = "plays"
    weights: str = "log1p"
    scale: bool = True
    factors: int = 10
    seed: int = 0
    n_users: ClassVar[int | None]
    n_items: ClassVar[int | None]

    def __post_init__(self) -> None:
        # What an option may be is known there; nothing is read by this.
        known = Listening("", **self._options())
        check_fields(self, lambda name, given: known.position_weights, "position_weights")

    def _options(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def listening(self) -> Listening:
        """The world with its table."""
        return Listening(
            find(),
            user="userID",
            item="artistID",
            count="weight",
            users=self.n_users,
            items=self.n_items,
            **self._options(),
        )

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        literal = cls(by="listeners", weights="counts", scale=False, factors=5, seed=1)
        return cls(), cls(dcg(3), "affine"), literal


@dataclass(frozen=True)
class LastFM50(_LastFM):
    """The 50 users and the 50 artists of Last.fm with the most plays; see `Listening`.

    ``make("lastfm-50")``. The file is looked for in ``$FAIRWOLFE_DATA/lastfm``, then in the user's
    cache, where ``fairwolfe data lastfm`` puts it; its checksum is checked. The options are those
    of `Listening`.

    Reference: Section 5 and appendix of the paper, "Fair ranking".

    >>> LastFM50(calibration="affine").calibration
    'affine'
    """

    n_users = 50
    n_items = 50


@dataclass(frozen=True)
class LastFM2k(_LastFM):
    """All 1,892 users of Last.fm and the 2,500 artists with the most plays; see `LastFM50`.

    Twelve of the users played none of these artists: their factors are 0, and they click nothing.

    >>> LastFM2k().n_items
    2500
    """

    n_users = None
    n_items = 2500
