"""Which columns of a table hold users, items and counts: as named, or guessed from the header."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from fairwolfe.errors import InvalidInput, did_you_mean

__all__ = ["Columns", "choose"]

# What a column may be called, the likeliest first; case, blanks, - and _ do not matter.
_CALLED = {
    "user": "user userid username listener listenerid customer customerid visitor visitorid member "
    "memberid account accountid reader readerid viewer viewerid person personid session sessionid "
    "uid",
    "item": "item itemid artist artistid artistname song songid songname track trackid trackname "
    "album albumid movie movieid film filmid product productid book bookid isbn video videoid "
    "article articleid title name asin sku iid",
    "count": "count counts plays playcount nplays weight listens listencount listeningcount rating "
    "ratings clicks click views viewcount purchases quantity times frequency score value n",
}
_NUMBER = re.compile(r"\s*[-+]?[0-9.]+(e[-+]?[0-9]+)?\s*", re.IGNORECASE)


class Columns(NamedTuple):
    """Places of the columns, and sentences about what was guessed."""

    users: int
    items: int
    counts: int | None  # None: every row counts 1
    notes: tuple[str, ...]


def choose(
    source: str, header: Sequence[str], user: str | None, item: str | None, count: str | None
) -> Columns:
    """The columns by name; those without a name by their title, else by their order.

    >>> choose("plays.csv", ["when", "userID", "song"], None, None, None)[:3]
    (1, 2, None)
    """
    places: dict[str, int] = {}
    for role, name in (("user", user), ("item", item), ("count", count)):
        if name is not None:
            places[role] = _named(source, header, role, name)
    twice = [role for role, at in places.items() if list(places.values()).count(at) > 1]
    if twice:
        roles = " and ".join(twice)
        raise InvalidInput(f"{header[places[twice[0]]]!r} is named as {roles}; give each its own")
    named = len(places)
    for role, called in _CALLED.items():
        if role not in places:
            titles = [_plain(title) for title in header]
            free = [titles.index(c) for c in called.split() if c in titles]
            place = next((at for at in free if at not in places.values()), None)
            if place is not None:
                places[role] = place
    if not {"user", "item"} <= places.keys():
        _by_order(source, header, places)
    notes = () if named == 3 else (_note(source, header, places, named),)
    return Columns(places["user"], places["item"], places.get("count"), notes)


def _plain(title: str) -> str:
    return re.sub(r"[\s_-]", "", title).lower()


def _named(source: str, header: Sequence[str], role: str, name: str) -> int:
    at = [i for i, title in enumerate(header) if title.strip() == name.strip()]
    if not at:
        raise InvalidInput(f"{source} has no column {name!r}; {did_you_mean(name, header)}")
    if len(at) > 1:
        raise InvalidInput(
            f"{source} has {len(at)} columns {name!r}, so it is not clear which holds the {role}; "
            "give each its own name"
        )
    return at[0]


def _by_order(source: str, header: Sequence[str], places: dict[str, int]) -> None:
    """Columns without a known title are user, item, count in that order, if unambiguous."""
    if any(_NUMBER.fullmatch(title) for title in header):
        raise InvalidInput(
            f"{source} has no header: its first line is {', '.join(header)!r}; put the names of "
            "the columns there, such as user,item,count"
        )
    if len(header) < 2:
        raise InvalidInput(
            f"{source} has one column, {header[0]!r}; give a user, an item and a count, separated "
            "by commas, tabs, semicolons or bars"
        )
    missing = [role for role in _CALLED if role not in places]
    rest = [at for at in range(len(header)) if at not in places.values()]
    if "count" in missing and len(rest) == len(missing) - 1:
        missing.remove("count")
    if len(rest) != len(missing):
        wanted = [role for role in missing if role != "count"]
        raise InvalidInput(
            f"{source}: no column is known to hold the {' or the '.join(wanted)}; the columns "
            f"are {', '.join(header)}, so name them with "
            f"{' and '.join(f'{role}=' for role in wanted)}"
        )
    places.update(zip(missing, rest, strict=True))


def _note(source: str, header: Sequence[str], places: dict[str, int], named: int) -> str:
    parts = [
        f"{role}s are in column {header[places[role]]!r}" for role in _CALLED if role in places
    ]
    if "count" not in places:
        rest = [title for at, title in enumerate(header) if at not in places.values()]
        unused = f", and none of the others ({', '.join(rest)}) is used" if rest else ""
        parts.append(f"every row counts 1{unused}")
    guess = "" if named == len(places) else " (guessed)"
    return f"{source}: {'; '.join(parts)}{guess}; name others with user=, item=, count="
