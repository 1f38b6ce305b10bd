"""Last.fm as in the paper: where its file is, and the two worlds made from it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from fairwolfe.core.folders import cache_folder
from fairwolfe.data.plays import Id
from fairwolfe.environments.factor_model import FactorModel
from fairwolfe.environments.listening import Factored, Listening
from fairwolfe.environments.position_weights import dcg
from fairwolfe.errors import InvalidInput, MissingData

__all__ = [
    "FILE",
    "LICENCE",
    "SHA256",
    "URL",
    "LastFM2k",
    "LastFM50",
    "find",
    "places",
    "present",
    "target",
]

URL = "https://files.grouplens.org/datasets/hetrec2011/hetrec2011-lastfm-2k.zip"
FILE = "user_artists.dat"
SHA256 = "650cd69d5a68db24b439042557aa539aec47e473273e12cdfdca2cd944b3773a"
LICENCE = (
    "The Last.fm data of HetRec 2011 may be used for purposes that are not commercial. Who "
    "publishes results with it names Last.fm (https://www.last.fm) and cites I. Cantador, "
    "P. Brusilovsky and T. Kuflik, 2nd Workshop on Information Heterogeneity and Fusion in "
    "Recommender Systems (HetRec 2011), RecSys 2011."
)
_WEIGHTS = dcg(10)


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
    if spoilt := [file for file in places() if file.is_file()]:
        raise InvalidInput(
            f"{spoilt[0]} is not the published file: its sha256 is not {SHA256[:12]}...; download "
            "it with `fairwolfe data lastfm`, or use it as your own table with Listening"
        )
    looked = " or ".join(map(str, places()))
    raise MissingData(
        f"the Last.fm data is not at {looked}; download it with `fairwolfe data lastfm`, or set "
        "FAIRWOLFE_DATA to the folder that holds its folder lastfm"
    )


@dataclass(frozen=True)
class _LastFM(Factored):
    position_weights: Sequence[float] = _WEIGHTS
    calibration: str | None = "clip"
    n_users: ClassVar[int | None]
    n_items: ClassVar[int | None]

    def __post_init__(self) -> None:
        # What an option may be is known there; nothing is read by this.
        known = Listening("", position_weights=self.position_weights, calibration=self.calibration)
        object.__setattr__(self, "position_weights", known.position_weights)

    @cached_property
    def listening(self) -> Listening:
        """The world as one of a table."""
        return Listening(
            find(),
            user="userID",
            item="artistID",
            count="weight",
            users=self.n_users,
            items=self.n_items,
            position_weights=self.position_weights,
            calibration=self.calibration,
        )

    @property
    def model(self) -> FactorModel:
        """The world itself."""
        return self.listening.model

    @property
    def user_ids(self) -> tuple[Id, ...]:
        """As in the file, the one with the most plays first."""
        return self.listening.user_ids

    @property
    def item_ids(self) -> tuple[Id, ...]:
        """The artists, as in the file, the one with the most plays first."""
        return self.listening.item_ids

    @property
    def plays(self) -> Any:
        """The counts, a sparse matrix (users, items)."""
        return self.listening.plays

    @property
    def notes(self) -> tuple[str, ...]:
        """Who has no plays among those that are kept."""
        return self.listening.notes

    @property
    def factors_hash(self) -> str:
        """The sha256 of the factors, rounded to 6 digits: for the record of a run."""
        return self.listening.factors_hash

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(), cls(dcg(3), "affine")


@dataclass(frozen=True)
class LastFM50(_LastFM):
    """The 50 users and the 50 artists of Last.fm with the most plays; see `Listening`.

    ``make("lastfm-50")``. The file is looked for in ``$FAIRWOLFE_DATA/lastfm``, then in the user's
    cache, where ``fairwolfe data lastfm`` puts it; its checksum is checked.

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
