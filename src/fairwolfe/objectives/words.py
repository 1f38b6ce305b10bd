"""Objectives in words: the names of coordinates, and the terms and limits of a description."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fairwolfe.core.problem import Problem

_LISTED = 4  # names in a list, before it becomes a count
_TERMS = 12  # terms and limits of a description, each, before the others become a count


def number(x: float) -> str:
    """A number in a sentence.

    >>> number(0.1 + 0.2), number(2.0)
    ('0.3', '2')
    """
    return f"{x:.6g}"


def percent(share: float) -> str:
    """A share in a sentence."""
    return f"{number(100.0 * share)} %"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


@dataclass(frozen=True)
class Names:
    """What the coordinates of an expression are called.

    labels: of each coordinate; empty where they are not known
    every: all of them, as in "fairness of exposure"; several: the same in the plural
    each: any one of them; numbered, named: one by its position, by its name
    n_items: of a ranking, whose first coordinates are exposures
    """

    labels: tuple[str, ...] = ()
    every: str = "the rewards"
    several: str = "the rewards"
    each: str = "each reward"
    numbered: str = "reward {}"
    named: str = "{}"
    n_items: int | None = None

    @classmethod
    def of(cls, problem: Problem) -> Names:
        """Those of a problem."""
        rewards, n_items = tuple(problem.rewards), problem.n_items
        if n_items is None:
            return cls._of_rewards(rewards)
        return cls(
            (*_ITEMS.labelled(map(str, range(n_items))).labels, *rewards),
            "exposures and rewards",
            "the exposures and rewards",
            "each exposure and reward",
            "coordinate {}",
            n_items=n_items,
        )

    @classmethod
    def _of_rewards(cls, labels: tuple[str, ...]) -> Names:
        """Names of rewards, as a list where it is short."""
        if not 0 < len(labels) <= _LISTED:
            many = f"the {len(labels)} rewards"
            return cls(labels, many, many, f"each of {many}")
        each = labels[0] if len(labels) == 1 else f"each of {listed(labels)}"
        return cls(labels, listed(labels), listed(labels), each)

    def labelled(self, names: Iterable[str]) -> Names:
        """The same, with a label for each coordinate."""
        labels = tuple(self.numbered.format(name) for name in names)
        return replace(self, labels=labels)

    def name(self, coordinate: str | int) -> str:
        """What a coordinate is called, given its name or its position."""
        if isinstance(coordinate, str):
            return self.named.format(coordinate)
        if -len(self.labels) <= coordinate < len(self.labels):
            return self.labels[coordinate]
        return self.numbered.format(coordinate)

    def part(self, coordinates: Sequence[str | int]) -> Names:
        """Those of some of the coordinates."""
        if self.n_items is not None and list(coordinates) == list(range(self.n_items)):
            return self.items()
        return self._of_rewards(tuple(map(self.name, coordinates)))

    def items(self) -> Names:
        """Of a ranking: the exposures of the items."""
        return _ITEMS if self.n_items is None else _ITEMS.labelled(map(str, range(self.n_items)))

    def users(self, n_users: int) -> Names:
        """Of a ranking: the user-side rewards, of which an unbound objective knows the number."""
        if self.n_items is not None:
            return self._of_rewards(self.labels[self.n_items :])
        if n_users == 1:
            return self._of_rewards(("the reward of the users",))
        numbered = "user-side reward {}"
        return self._of_rewards(tuple(map(numbered.format, range(n_users))))

    def groups(self, groups: Sequence[str], by: str | None = None) -> Names:
        """The totals of groups of them; by: the attribute that makes the groups."""
        total = "exposure" if self.every == _ITEMS.every else "total"
        if by is not None:
            own = f"{total} by {by}", f"the {total}s by {by}", f"the {total} of each {by}"
            return Names((), *own, *2 * (f"the {total} of {by} {{}}",)).labelled(groups)
        many = f"the {total} of {len(groups)} groups", f"the {total}s of {len(groups)} groups"
        one = f"the {total} of group {{}}"
        return Names((), *many, f"the {total} of each group", one, one).labelled(groups)

    def mapped(self, form: Callable[[str], str]) -> Names:
        """Those of functions of each."""
        every, several, each = form(self.every), form(self.several), form(self.each)
        labels, numbered, named = tuple(map(form, self.labels)), self.numbered, self.named
        return Names(labels, every, several, each, form(numbered), form(named))

    @property
    def whole(self) -> str:
        """Their sum."""
        short = 0 < len(self.labels) <= _LISTED and self.named == "{}"
        return " + ".join(self.labels) if short else f"the sum of {self.several}"


_ITEMS = Names(
    (),
    "exposure",
    "the exposures of the items",
    "the exposure of each item",
    "the exposure of item {}",
)


class Words(NamedTuple):
    """A description: the terms of a sum, with their weights, and the limits that are kept."""

    terms: tuple[tuple[float, str], ...] = ()
    limits: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = [(weight, text) for weight, text in self.terms if weight]
        total = ""
        for weight, text in shown[:_TERMS]:
            size = "" if abs(weight) == 1.0 else f"{number(abs(weight))} x "
            joint = (" - " if weight < 0.0 else " + ") if total else "-" if weight < 0.0 else ""
            total += f"{joint}{size}{text}"
        if len(shown) > _TERMS:
            total += f" + {len(shown) - _TERMS} more terms"
        more = len(self.limits) - _TERMS
        rest = [f"{more} more limits"] if more > 0 else []
        sentences = [total] if total else []
        return "; ".join([*sentences, *self.limits[:_TERMS], *rest]) or "0"

    def times(self, weight: float) -> Words:
        """A multiple; a multiple of a limit is that limit, and 0 times it is none."""
        terms = tuple((weight * own, text) for own, text in self.terms)
        return Words(terms, self.limits) if weight else Words()

    @classmethod
    def sum(cls, parts: Iterable[Words]) -> Words:
        """All terms and all limits."""
        several = list(parts)
        terms = (term for part in several for term in part.terms)
        return cls(tuple(terms), tuple(one for part in several for one in part.limits))
