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
    known: Array  # what is known with it by then, NaN for what is not: tables, see `Kind.table`

    @property
    def observation(self) -> Any:
        """The same as what was observed, by column."""
        if self.known.ndim == 2:
            return self.known
        exposed, rewards = self.known[:, :, 0], self.known[:, :, 1:]
        return Shown(np.ascontiguousarray(exposed), np.ascontiguousarray(rewards))


class Staged(NamedTuple):
    """What the feedback to a decision answers, where rewards arrive in stages."""

    given: list[int]  # the stages that it answers,
    again: list[int]  # those of them that were answered before
    learnt: list[StageAnswer]  # what can be learnt now, in order
    known: Array  # all that is known, a table


def stages_in(starts: Sequence[int], table: Array) -> list[int]:
    """The stages of which all is known. starts: see `Kind.known_starts`."""
    parts = enumerate(pairwise(starts))
    return [stage for stage, (a, b) in parts if not np.isnan(table[..., a:b]).any()]


def stage_answers(
    starts: Sequence[int], table: Array, before: Array | None = None
) -> list[StageAnswer]:
    """The stages that a table answers, in order, each with what is known with it. starts: see
    `Kind.known_starts`; before: what was known.
    """
    known = np.full(table.shape, np.nan) if before is None else before
    answers = []
    for stage in stages_in(starts, table):
        known = known.copy()
        part = ..., slice(starts[stage], starts[stage + 1])
        known[part] = table[part]
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
