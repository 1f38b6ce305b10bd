"""What an entry of feedback says of a decision, checked by the agent that will learn from it."""

from __future__ import annotations

from typing import Any, NamedTuple

from fairwolfe.core.decision import Decision
from fairwolfe.errors import InvalidInput
from fairwolfe.service.join import Cells
from fairwolfe.service.model import Model
from fairwolfe.service.refusal import Refused

__all__ = ["Entry", "cells_of"]


class Entry(NamedTuple):
    """Feedback for one decision."""

    id: str
    exposed: list[str] | None
    clicked: list[str] | None
    rewards: dict[str, Any] | None
    final: bool


def cells_of(model: Model, decision: Decision, entry: Entry) -> Cells:
    """What an entry says of a decision, checked by the agent that will learn from it."""
    agent, names = model.agent, model.rewards
    assert agent is not None
    if entry.exposed is None and entry.clicked is None and not entry.rewards:
        raise Refused(422, "invalid", "it says nothing; give rewards, exposed or clicked")
    given = {n: earned for n, earned in (entry.rewards or {}).items() if earned is not None}
    try:
        if not model.ranks:
            if entry.exposed is not None or entry.clicked is not None:
                field = "exposed" if entry.exposed is not None else "clicked"
                raise Refused(422, "invalid", f"{field} is for rankings; give rewards", field)
            agent.hear(decision, given, missing=0.0)
            return Cells((), [(0, names.index(n), float(x)) for n, x in given.items()], entry.final)
        for name, earned in given.items():
            if not isinstance(earned, dict):
                raise Refused(
                    422,
                    "invalid",
                    f"the reward {name!r} is {earned!r:.80}; a ranking needs item: number",
                    "rewards",
                )
        slots = {key: slot for slot, key in enumerate(model.keys_of(decision.action))}
        earning = set(entry.clicked or ())
        for earned in given.values():
            earning.update(key for key, x in earned.items() if x)
        exposed = entry.exposed
        if exposed is None:  # what earned something was exposed
            exposed = [key for key in slots if key in earning]
        agent.hear(decision, given, exposed=exposed, clicked=entry.clicked, missing=0.0)
    except InvalidInput as error:
        raise Refused(422, "invalid", str(error), _field_of(str(error), entry)) from error
    cells = []
    for name, earned in given.items():
        cells += [
            (slots[key], names.index(name), float(x)) for key, x in earned.items() if x is not None
        ]
    if entry.clicked:
        clicks = names.index("clicks") if "clicks" in names else 0
        cells += [(slots[key], clicks, 1.0) for key in entry.clicked]
    return Cells([slots[key] for key in exposed], cells, entry.final)


def _field_of(text: str, entry: Entry) -> str:
    for name in ("clicked", "exposed"):
        if f"to be {name}" in text or text.startswith(name):
            return name
    return "rewards" if entry.rewards else "clicked" if entry.clicked else "exposed"
