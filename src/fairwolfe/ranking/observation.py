"""What counts as exposed, and what a ranking earned: the feedback before anything is learnt.

Nothing here, and no ranker, knows position weights: exposures are observed, or assumed by a rule.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fairwolfe._compile import kernel
from fairwolfe.errors import InvalidInput
from fairwolfe.feedback import Shown
from fairwolfe.protocols import IntVector, Matrix, Vector

__all__ = ["EXPOSURES", "Exposure", "checked", "settle"]

Exposure = Literal["observed", "shown", "until_last_click"]

EXPOSURES: tuple[Exposure, ...] = ("observed", "shown", "until_last_click")
"""As the feedback says; every item shown; every item down to the last that earned something."""


@kernel(
    signature="void(int64, int64[::1], float64[::1], float64[:, ::1], float64[::1], float64[::1])"
)
def settle(
    exposure: int,
    items: IntVector,
    exposed: Vector,
    rewards: Matrix,
    seen: Vector,
    total: Vector,
) -> None:
    """seen (k,): which slots count as exposed. total (m + R,): the reward vector, added up."""
    k, n_rewards = rewards.shape
    last = np.int64(-1)
    for j in range(k):
        for r in range(n_rewards):
            if rewards[j, r] != 0.0:
                last = np.int64(j)
    for j in range(k):
        if exposure == 0:
            seen[j] = exposed[j]
        elif exposure == 1 or j <= last:
            seen[j] = 1.0
        else:
            seen[j] = 0.0
    first = total.size - n_rewards
    for j in range(k):
        if seen[j] != 0.0:
            total[items[j]] += seen[j]
            for r in range(n_rewards):
                total[first + r] += rewards[j, r]


def checked(feedback: Any, exposure: int, n_slots: int, n_rewards: int) -> Shown:
    """Feedback as finite arrays of the right sizes that do not contradict themselves."""
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
    if not ((exposed == 0.0) | (exposed == 1.0)).all():
        raise InvalidInput(
            f"the exposures are {exposed.tolist()}; give 1 for each slot that was looked at, else 0"
        )
    if not np.isfinite(rewards).all():
        slot, reward = np.argwhere(~np.isfinite(rewards))[0].tolist()
        raise InvalidInput(
            f"reward {reward} of slot {slot} is {rewards[slot, reward]}; give finite numbers only"
        )
    if exposure == 0 and rewards[exposed == 0.0].any():
        slot = int(np.flatnonzero((exposed == 0.0) & rewards.any(axis=1))[0])
        raise InvalidInput(
            f"slot {slot} earned {rewards[slot].tolist()} but was not exposed; only what was "
            "looked at can earn anything (where exposure is not observed, use exposure='shown' or "
            "'until_last_click')"
        )
    return Shown(exposed, rewards)
