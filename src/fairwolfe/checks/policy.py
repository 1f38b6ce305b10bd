"""Checks of policies, those that choose an arm and those that rank items."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np

from fairwolfe.checks.playing import (
    PLAYER_CHECKS,
    can_be_stored,
    player_of,
    takes_any_number_of_arms,
    treats_products_as_their_flat_form,
)
from fairwolfe.checks.promise import Check, is_a_value, is_refused, require, same
from fairwolfe.checks.rounds import bad_contexts, bad_rewards, contexts, rewards

__all__ = ["ANY_POLICY_CHECKS", "POLICY_CHECKS", "RANKING_POLICY_CHECKS"]

_ROUNDS = 50
_ROUNDING = 1e-9


def averages_the_rewards(policy: Any, rng: np.random.Generator) -> None:
    """If a state has `average` and `t`: these are the mean and the number of the rewards given, in
    whatever order they come; a decision has the t that it was made at.

    With a memory it is an exponential mean: it lies between the smallest and the largest.
    """
    player = player_of(policy)
    kind, state = player.kind, player.init(player.problem)
    if not hasattr(state, "average"):  # an agent keeps them then
        return
    fades = getattr(policy, "memory", None) is not None
    waiting = [player.act(state, one, rng) for one in contexts(player.problem, rng, _ROUNDS)]
    given: list[Any] = []
    for i in rng.permutation(_ROUNDS):
        feedback = rewards(player.problem, waiting[i].action, rng)
        given.append(kind.observe(waiting[i].action, feedback).reward)
        state = player.update(state, waiting[i], feedback)
        average, mean = state.average, np.mean(given, axis=0)
        off = 0.0 if fades else float(np.abs(average - mean).max())
        require(off <= _ROUNDING, f"after {len(given)} rewards the average is off by {off}")
        low, high = np.min(given, axis=0) - _ROUNDING, np.max(given, axis=0) + _ROUNDING
        inside = bool(((low <= average) & (average <= high)).all())
        require(inside, f"the average {average} lies outside the rewards")
        require(state.t == len(given), f"t is {state.t} after {len(given)} rewards")
    last = player.act(state, next(contexts(player.problem, rng, 1)), rng)
    told = waiting[0].t, last.t
    require(told == (0, _ROUNDS), f"decisions after 0 and {_ROUNDS} rewards have t = {told}")


def refuses_bad_contexts(policy: Any, rng: np.random.Generator) -> None:
    """Wrong shapes, NaN, infinities and words raise InvalidInput, and nothing changes."""
    player = player_of(policy)
    state = player.learned(rng)
    good = next(contexts(player.problem, rng, 1))
    for what, context in bad_contexts(player.problem, good).items():
        _refuses(state, what, lambda shown=context: player.act(state, shown, rng))  # type: ignore[misc]


def refuses_bad_rewards(policy: Any, rng: np.random.Generator) -> None:
    """Rewards of wrong shape, NaN, infinities and words raise InvalidInput; nothing changes."""
    player = player_of(policy)
    state = player.learned(rng)
    choice = player.act(state, next(contexts(player.problem, rng, 1)), rng)
    for what, reward in bad_rewards(player.problem).items():
        _refuses(state, what, lambda given=reward: player.update(state, choice, given))  # type: ignore[misc]


def _refuses(state: Any, what: str, attempt: Callable[[], Any]) -> None:
    before = deepcopy(state)
    require(is_refused(attempt), f"{what} does not raise InvalidInput")
    require(same(state, before), f"{what} raises InvalidInput, but the state has changed")


ANY_POLICY_CHECKS: list[Check] = [
    is_a_value,
    *PLAYER_CHECKS,
    can_be_stored,
    averages_the_rewards,
    refuses_bad_contexts,
    refuses_bad_rewards,
]
"""Of policies for any kind of decision."""

POLICY_CHECKS: list[Check] = [*ANY_POLICY_CHECKS, takes_any_number_of_arms]

RANKING_POLICY_CHECKS: list[Check] = [*ANY_POLICY_CHECKS, treats_products_as_their_flat_form]
