"""What comes back after a ranking, slot by slot."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.problem import is_list
from fairwolfe.errors import InvalidInput

__all__ = ["Shown", "as_column", "one_for_each", "row_of", "totals"]

Array = NDArray[np.float64]


class Shown(NamedTuple):
    """What came of a ranking, slot by slot, best slot first."""

    exposed: Array  # (k,): 1 where the item in the slot was exposed, else 0
    rewards: Array  # (k, R): what that item earned, 0 where it was not exposed


def as_column(observation: Any) -> Any:
    """What was observed after one decision, by column."""
    if isinstance(observation, Shown):
        return Shown(observation.exposed[None], observation.rewards[None])
    return observation[None] if isinstance(observation, np.ndarray) else [observation]


def row_of(observation: Any, i: int) -> Any:
    """What was observed after one of several decisions, from columns."""
    if isinstance(observation, Shown):
        return Shown(observation.exposed[i], observation.rewards[i])
    return observation[i]


def one_for_each(rewards: Any, n: int) -> Any:
    """Rewards of n decisions: an array or a `Shown` of columns as they are, else a list.
    InvalidInput for anything that has not one for each.
    """
    if isinstance(rewards, Shown):
        count = np.shape(rewards[0])[:1]
        if not count:
            raise InvalidInput(f"the rewards are {rewards!r:.80}; give a list of them")
    elif not is_list(rewards):
        raise InvalidInput(f"the rewards are {rewards!r:.80}; give a list of rewards")
    else:
        rewards = rewards if isinstance(rewards, np.ndarray) else list(rewards)
        count = (len(rewards),)
    if count != (n,):
        raise InvalidInput(f"{n} decisions have {count[0]} rewards; give one for each")
    return rewards


def totals(action: NDArray[np.int64], shown: Shown, n_items: int) -> Array:
    """The reward vector of a ranking: exposures of the items, then the user-side rewards.

    >>> shown = Shown(np.array([1.0, 0.0]), np.array([[0.5], [0.0]]))
    >>> totals(np.array([2, 0]), shown, n_items=4).tolist()
    [0.0, 0.0, 1.0, 0.0, 0.5]
    """
    reward = np.zeros(n_items + shown.rewards.shape[1])
    reward[action] = shown.exposed
    # Slot after slot, as a compiled loop adds them: np.sum may take another order.
    reward[n_items:] = np.cumsum(shown.rewards, axis=0)[-1]
    return reward
