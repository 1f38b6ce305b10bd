"""The world of `fairwolfe tradeoff`: an environment by name, or a table with groups of items."""

from __future__ import annotations

import re
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from fairwolfe.errors import InvalidInput, MissingData, did_you_mean

_TABLES = (".csv", ".tsv", ".txt", ".dat", ".parquet", ".xlsx", ".gz")
_SLOTS = 10
_NO_GROUP = "(no group)"
_BLOCK = 1 << 22  # products computed together

# What the library calls it, and what the command does.
_OPTIONS = {
    r"^there are (\d+) position weights and (\d+) items; (.* so give) at most.*": (
        r"--slots is \1 and there are \2 items; \3 --slots \2 or less"
    ),
    r"\b(user|item|count)=": r"--\1-column",
    r"^(betas|floors|seeds|horizon|jobs|exploration|tolerance)\b": r"--\1",
    r"^beta is": "--betas: beta is",
    r"^minimum is": "--floors: the floor is",
    r"^(objective)\b": r"--\1",
}


def in_options(text: str) -> str:
    """A message of the library, in terms of the options of the command.

    >>> in_options("betas is empty; give at least one number")
    '--betas is empty; give at least one number'
    """
    for pattern, words in _OPTIONS.items():
        text = re.sub(pattern, words, text)
    return text


@dataclass(frozen=True, eq=False)
class TradeOffWorld:
    """An environment, what its items and users are called, and how its clicks came about."""

    environment: Any
    item_ids: tuple[Any, ...]
    user_ids: tuple[Any, ...]
    groups: tuple[str, ...] | None
    """Of the items."""
    plays: dict[str, float]
    """Group -> its share of all counts of the table."""
    notes: tuple[str, ...]
    clicks: str
    """What a click is here, in words."""


def world_of(
    name: str, slots: int | None, group: str | None, given: dict[str, Any]
) -> TradeOffWorld:
    """The world by its name, or from a file; `given` are the options that were set."""
    from fairwolfe.core.registry import names

    known = names("environments")
    if name in known:
        return _named(name, slots, group, given)
    path = Path(name)
    if path.is_file():
        return _table(name, slots or _SLOTS, group, given)
    if path.suffix.lower() in _TABLES or len(path.parts) > 1:
        raise MissingData(f"there is no file {name}; give a table of users, items and counts")
    raise InvalidInput(f"there is no world {name!r}; give a file, or one of: {', '.join(known)}")


def _named(name: str, slots: int | None, group: str | None, given: dict[str, Any]) -> TradeOffWorld:
    from fairwolfe import environments
    from fairwolfe.core.registry import load
    from fairwolfe.environments.world import RankingWorld

    columns = {option: value for option, value in given.items() if option.endswith("_column")}
    for option in (*columns, *(["group_column"] if group else [])):
        dashed = "--" + option.replace("_", "-")
        raise InvalidInput(f"{dashed} is for tables, and {name!r} is an environment by name")
    known = signature(load("environments", name)).parameters
    options = dict(given)
    if slots is not None:
        options["position_weights"] = environments.dcg(slots)
    for option in options:
        if option not in known:
            dashed = "--slots" if option == "position_weights" else f"--{option}"
            raise InvalidInput(f"{dashed} is set, and {name!r} has no such option; leave it out")
    world = environments.make(name, **options)
    if not isinstance(world, RankingWorld):
        raise InvalidInput(
            f"{name!r} has arms; a trade-off of utility and exposure needs a world with rankings, "
            "such as factor_model, or a table of yours"
        )
    users: tuple[Any, ...] = getattr(world, "user_ids", ())
    ids = getattr(world, "item_ids", tuple(range(world.problem().n_items or 0)))
    clicks = (
        f"A click here is one of the world {name!r}, not of your users: compare percents, and give "
        "a table of your own for numbers of your own."
    )
    notes = getattr(world, "notes", ())
    return TradeOffWorld(world, ids, users, None, {}, notes, clicks)


def _table(path: str, slots: int, group: str | None, given: dict[str, Any]) -> TradeOffWorld:
    from fairwolfe import environments

    options = {option.removesuffix("_column"): value for option, value in given.items()}
    notes: tuple[str, ...] = ()
    if group is not None:
        named, notes = _columns(path, group, options)
        options |= named
    world = environments.Listening(path, position_weights=environments.dcg(slots), **options)
    if group is not None:  # the columns were chosen here
        notes += tuple(note for note in world.notes if "name others with" not in note)
    groups = None if group is None else _groups(path, options["item"], group, world.item_ids)
    plays: dict[str, float] = {}
    counts = np.asarray(world.plays.sum(axis=0)).ravel()
    for label, count in zip(groups or (), counts.tolist(), strict=bool(groups)):
        plays[label] = plays.get(label, 0.0) + count / float(counts.sum())
    ids = (world.item_ids, world.user_ids)
    kept = world.notes if group is None else notes
    return TradeOffWorld(world, *ids, groups, plays, kept, _what_a_click_is(world, slots))


def _columns(path: str, group: str, options: dict[str, Any]) -> tuple[dict[str, str], Any]:
    """The columns by name, the others guessed without that of the groups."""
    from fairwolfe.environments.read_table import choose, header_of

    header = header_of(path)
    if group not in header:
        raise InvalidInput(
            f"--group-column is {group!r}, and {path} has no such column; "
            f"{did_you_mean(group, header)}"
        )
    rest = [title for title in header if title != group]
    given = [options.get(role) for role in ("user", "item", "count")]
    if group in given:
        raise InvalidInput(
            f"--group-column is {group!r}, which is another column of the table too; give the "
            "groups, such as producers, a separate column"
        )
    users, items, counts, notes = choose(path, rest, *given)
    named = {"user": rest[users], "item": rest[items]}
    return named | ({} if counts is None else {"count": rest[counts]}), notes


def _groups(path: str, item: str, group: str, ids: tuple[Any, ...]) -> tuple[str, ...]:
    from fairwolfe.environments.read_table import read_pairs

    labels: dict[str, str] = {}
    for one, label in sorted(read_pairs(path, item, group)):
        known = labels.setdefault(one, label)
        if known != label:
            raise InvalidInput(
                f"--group-column: item {one!r} is in two groups, {known!r} and {label!r}; give "
                "every item one"
            )
    return tuple(labels[str(one)] or _NO_GROUP for one in ids)


def _what_a_click_is(world: Any, slots: int) -> str:
    users, items = np.array(world.model.users), np.array(world.model.items)
    size = max(1, _BLOCK // len(items))
    blocks = (users[i : i + size] @ items.T for i in range(0, len(users), size))
    below = sum(int((block < 0.0).sum()) for block in blocks) / (len(users) * len(items))
    cut = f"; products below 0 ({100 * below:.0f} % of all) count as 0" if below > 0.0 else ""
    return (
        "A click here is one of a model, not a measured one: the chance that a user clicks an item "
        "that is exposed is the product of their factors, which come from log(1 + count) of the "
        f"table by least squares and are scaled so that the largest product is 1{cut}. Slot j of "
        f"{slots} is exposed with probability 1/log2(1 + j). So compare percents: the number of "
        "clicks has no unit."
    )
