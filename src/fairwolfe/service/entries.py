"""What an entry of feedback says of a decision; what is not plainly right its agent checks."""

from __future__ import annotations

from math import isfinite
from typing import Any, NamedTuple

from fairwolfe.errors import InvalidInput
from fairwolfe.service.join import Cells
from fairwolfe.service.model import Model
from fairwolfe.service.refusal import Refused

__all__ = ["Entry", "cells_of"]

_ROUNDING = 1e-9  # of a range


class Entry(NamedTuple):
    """Feedback for one decision."""

    id: str
    exposed: list[str] | None
    clicked: list[str] | None
    rewards: dict[str, Any] | None
    final: bool


def cells_of(model: Model, number: int, entry: Entry) -> Cells:
    """The feedback of an entry for an open decision; Refused if its agent cannot learn from it."""
    if entry.exposed is None and entry.clicked is None and not entry.rewards:
        raise Refused(422, "invalid", "the entry is empty; give rewards, exposed or clicked")
    given = {n: earned for n, earned in (entry.rewards or {}).items() if earned is not None}
    if not model.ranks:
        return _of_an_arm(model, number, entry, given)
    for name, earned in given.items():
        if not isinstance(earned, dict):
            raise Refused(
                422,
                "invalid",
                f"the reward {name!r:.80} is {earned!r:.80}; a ranking needs item: number",
                "rewards",
            )
    return _of_a_ranking(model, number, entry, given)


def _of_an_arm(model: Model, number: int, entry: Entry, given: dict[str, Any]) -> Cells:
    names = model.places
    if entry.exposed is not None or entry.clicked is not None:
        field = "exposed" if entry.exposed is not None else "clicked"
        raise Refused(422, "invalid", f"{field} is for rankings; give rewards", field)
    if not all(_plain(model, name, x) for name, x in given.items()):
        given = {name: _bounded(model, name, x) for name, x in given.items()}
        _read_feedback(model, number, entry, given)
    return Cells((), [(0, names[n], float(x)) for n, x in given.items()], entry.final)


def _of_a_ranking(model: Model, number: int, entry: Entry, given: dict[str, Any]) -> Cells:
    names = model.places
    keys = model.keys_of(model.ring.action(number))
    slots = {key: slot for slot, key in enumerate(keys)}
    clicked = set(entry.clicked or ())
    earning = clicked.union(*({key for key, x in of.items() if x} for of in given.values()))
    exposed = entry.exposed
    if exposed is None:  # what earned something was exposed
        exposed = [key for key in keys if key in earning]
    clicks = "clicks" if "clicks" in names else next(iter(names))
    exposed_keys = set(exposed)
    right = len(exposed_keys) == len(exposed) and earning <= exposed_keys
    right = right and exposed_keys.union(*given.values()) <= slots.keys()
    if entry.clicked is not None:
        right = right and len(clicked) == len(entry.clicked) and clicks not in given
        right = right and ("clicks" in names or len(names) == 1)
    click = _bounded(model, clicks, 1.0) if entry.clicked else 1.0
    pairs = ((name, x) for name, of in given.items() for x in of.values())
    if not (right and all(_plain(model, name, x) for name, x in pairs)):
        given = {
            name: {key: _bounded(model, name, x, key) for key, x in of.items()}
            for name, of in given.items()
        }
        _read_feedback(model, number, entry, given, exposed=exposed, clicked=entry.clicked)
    cells = []
    for name, of in given.items():
        cells += [(slots[key], names[name], float(x)) for key, x in of.items() if x is not None]
    if entry.clicked:
        cells += [(slots[key], names[clicks], click) for key in entry.clicked]
    return Cells([slots[key] for key in exposed], cells, entry.final)


def _plain(model: Model, name: str, earned: Any) -> bool:
    """Whether a reward is known and within its range: then an agent accepts it."""
    low, high = model.ranges.get(name, (1.0, 0.0))
    return isinstance(earned, int | float) and low <= earned <= high


def _bounded(model: Model, name: str, earned: Any, item: str = "") -> Any:
    """A reward by the model's rule for what is outside its range; others as they are."""
    if name not in model.ranges or not isinstance(earned, int | float) or not isfinite(earned):
        return earned  # the agent names it
    low, high = model.ranges[name]
    error = _ROUNDING * (high - low)  # a share of a range is rounded
    if low - error <= earned <= high + error or (model.ranks and earned == 0.0):
        return earned
    if model.out_of_range == "clip":
        return min(max(earned, low), high)
    if model.out_of_range == "learn":
        return earned
    whose = f" of item {item!r:.80}" if item else ""
    share = f" for one of {model.n_slots} slots" if model.ranks else ""
    raise Refused(
        422,
        "out_of_range",
        f"the reward {name!r:.80}{whose} is {earned:.15g}, outside its range of {low:.6g} to "
        f'{high:.6g}{share}; send a number within it, or set out_of_range = "clip" or '
        f'"learn" for model {model.name!r}',
        "rewards",
    )


def _read_feedback(
    model: Model, number: int, entry: Entry, given: dict[str, Any], **more: Any
) -> None:
    """Have the agent check what is not plainly right."""
    assert model.agent is not None
    try:
        model.agent.read_feedback(model.ring.decision(number), given, missing=0.0, **more)
    except InvalidInput as error:
        raise Refused(422, "invalid", str(error), _field_of(str(error), entry)) from error


def _field_of(text: str, entry: Entry) -> str:
    for name in ("clicked", "exposed"):
        if f"to be {name}" in text or text.startswith(name):
            return name
    return "rewards" if entry.rewards else "clicked" if entry.clicked else "exposed"
