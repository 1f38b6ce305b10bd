"""OBP's bandit_feedback, a dictionary of arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput
from fairwolfe.offpolicy.decisions import Choices
from fairwolfe.offpolicy.reading import assembled

__all__ = ["read_obp"]


def read_obp(
    feedback: Mapping[str, Any], problem: Problem | None, position: int | None = None
) -> Choices:
    """OBP's bandit_feedback: context, action, reward, pscore, n_actions, position."""
    try:
        actions, n_arms = np.asarray(feedback["action"]), int(feedback["n_actions"])
        rewards = np.asarray(feedback["reward"], dtype=np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"the mapping is not a bandit_feedback of OBP: {error}; it has action, reward, pscore, "
            "n_actions and context"
        ) from error
    slots = feedback.get("position")
    used = np.ones(len(actions), dtype=bool)
    if slots is not None:
        places = np.asarray(slots)
        if position is None and np.unique(places).size > 1:
            raise InvalidInput(
                f"the feedback has positions {np.unique(places).tolist()}; choose one: "
                "Log.of(feedback, position=0)"
            )
        used = places == (places[0] if position is None else position)
        if not used.any():
            raise InvalidInput(f"no decision has position {position}")
    context = feedback.get("context")
    given = feedback.get("pscore")
    chance = np.full(len(actions), math.nan) if given is None else np.asarray(given, dtype=float)
    columns: dict[str, Any] = {
        "action": actions[used],
        "probability": chance[used],
        "reward.reward": rewards[used],
    }
    ranges = {"reward": (min(0.0, float(rewards.min())), max(1.0, float(rewards.max())))}
    if context is None:
        own = Problem.arms(1, ranges, n_arms=n_arms)
    else:
        columns["features"] = np.asarray(context, dtype=np.float64)[used]
        own = Problem.arms(columns["features"].shape[1], ranges, n_arms=n_arms)
    policy = feedback.get("pi_b")
    if policy is not None:
        columns["probabilities"] = np.asarray(policy, dtype=np.float64)[used][..., 0]
    choices = assembled(own if problem is None else problem, [columns], None, "the feedback")
    assert isinstance(choices, Choices)
    return choices
