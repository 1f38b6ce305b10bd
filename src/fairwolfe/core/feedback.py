"""`Shown`: the feedback of a ranking by slot; observations of several decisions by column."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.problem import is_list
from fairwolfe.errors import InvalidInput

Array = NDArray[np.float64]


class Shown(NamedTuple):
    """What came of a ranking, slot by slot, best slot first."""

    exposed: Array  # (k,): 1 where the item in the slot was exposed, else 0
    rewards: Array  # (k, R): what that item earned, 0 where it was not exposed


class StageAnswer(NamedTuple):
    """The answer of one stage of rewards, where they arrive in several."""

    stage: int
    rewards: Array  # (n_decisions, n): what is known with it; NaN for what is not


def stage_answers(
    starts: Sequence[int], reward: Array, before: Array | None = None
) -> list[StageAnswer]:
    """The stages of the answer to a decision, in order. starts: see `Problem.stage_starts`; reward
    (n,): NaN for what it does not answer; before (n,): what was known.
    """
    known = np.full(reward.size, np.nan) if before is None else before
    answers = []
    for stage, (first, stop) in enumerate(pairwise(starts)):
        if not np.isnan(reward[first:stop]).any():
            known = known.copy()
            known[first:stop] = reward[first:stop]
            answers.append(StageAnswer(stage, known[None]))
    return answers


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
