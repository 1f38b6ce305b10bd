"""What counts as exposed, and what a ranking earned: the feedback before anything is learnt.

Nothing here, and no ranker, knows position weights: exposures are observed, or assumed by a rule.
"""

from __future__ import annotations

from typing import Any, Literal, NoReturn

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.brief import short
from fairwolfe.core.feedback import Shown
from fairwolfe.errors import InvalidInput

__all__ = [
    "EXPOSURES",
    "Exposure",
    "arrays",
    "refuse",
    "refuse_twice",
]

Exposure = Literal["observed", "shown", "until_last_click"]

EXPOSURES: tuple[Exposure, ...] = ("observed", "shown", "until_last_click")
"""As the feedback says; every item shown; every item down to the last that earned something."""


_COIN, _FINITE, _EARNED, _TWICE = 1, 2, 3, 5  # what can be wrong with a slot: kernels/ranks.pxd


def arrays(feedback: Any, n_slots: int, n_rewards: int) -> Shown:
    """Feedback as arrays of the right sizes; `count_exposures` checks what they hold."""
    try:
        given, earned = feedback
        exposed: Vector = np.ascontiguousarray(given, dtype=np.float64)
        rewards: Matrix = np.ascontiguousarray(earned, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"the feedback of a ranking is {feedback!r:.80}; give Shown(exposed, rewards), by slot"
        ) from error
    if exposed.shape != (n_slots,) or rewards.shape != (n_slots, n_rewards):
        raise InvalidInput(
            f"the feedback has exposures of shape {exposed.shape} and rewards of shape "
            f"{rewards.shape}; give ({n_slots},) and ({n_slots}, {n_rewards}): one row for each "
            "slot"
        )
    return Shown(exposed, rewards)


def refuse(code: int, items: IntVector, shown: Shown) -> NoReturn:
    """Raise what `count_exposures` found wrong."""
    what, slot = divmod(code, len(items))
    if what == _COIN:
        raise InvalidInput(
            f"the exposure of slot {slot} is {shown.exposed[slot]:g}; give 1 where the item was "
            "exposed, else 0"
        )
    if what == _FINITE:
        raise InvalidInput(
            f"the rewards of slot {slot} are {shown.rewards[slot].tolist()}; give finite numbers"
        )
    if what == _EARNED:
        raise InvalidInput(
            f"slot {slot} earned {shown.rewards[slot].tolist()} but was not exposed; only what was "
            "exposed can earn anything (where exposure is not observed, use exposure='shown' or "
            "'until_last_click')"
        )
    if what == _TWICE:
        refuse_twice(items)
    raise InvalidInput(f"the ranking shows item {items[slot]}, which is not one of this problem")


def refuse_twice(items: IntVector) -> NoReturn:
    """Raise InvalidInput for a ranking that shows an item in two slots."""
    raise InvalidInput(f"the action is {short(items, 80)}; a ranking shows an item once")
