"""Checks of bandits for one scalar reward."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairwolfe.checks.playing import (
    PLAYER_CHECKS,
    Player,
    can_be_stored,
    checks_of,
    directed,
    refuses,
    takes_any_number_of_arms,
)
from fairwolfe.checks.promise import Check, has, is_a_value, require
from fairwolfe.checks.rounds import contexts, rewards
from fairwolfe.core.arrays import Vector
from fairwolfe.core.contexts import PerArm
from fairwolfe.core.kinds import kind_of
from fairwolfe.core.problem import Problem
from fairwolfe.core.protocols import Compiled, KeepsArmsApart, Regresses
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput

__all__ = ["BASE_CHECKS", "player_of"]

_REWARDS = {"clicks": (0.0, 1.0), "gain": (-1.0, 2.0), "cost": (0.0, 0.5)}
_PROBLEM = Problem.arms(3, _REWARDS, parameter_norm=1.0)
_DIRECTION = np.array([0.6, 0.5, -0.4])
_ROUNDS = 60


def player_of(base: Any, direction: Vector = _DIRECTION) -> Player:
    """A base for arms with a fixed direction."""
    return directed(base, _PROBLEM, direction)


def follows_any_direction(base: Any, rng: np.random.Generator) -> None:
    """A direction of any sign and size will do, also 0."""
    state = player_of(base).learned(rng)
    for scale in (-1.0, 0.0, 1e-6, 1e3):
        context = kind_of(_PROBLEM).read(next(contexts(_PROBLEM, rng, 1)))
        choice = base.act(state, context, scale * _DIRECTION, rng)
        require(0 <= choice.action < context.n_arms, f"action {choice.action} at scale {scale}")
        reward = rewards(_PROBLEM, choice.action, rng)
        state = base.update(state, choice, scale * _DIRECTION, reward)


def refuses_vectors_of_another_length(base: Any, rng: np.random.Generator) -> None:
    """Directions and rewards of another length raise InvalidInput, and nothing changes.

    Asked of bandits that call kernels, which would read what is not there.
    """
    if not has(base, Compiled):
        return
    state = player_of(base).learned(rng)
    context = kind_of(_PROBLEM).read(next(contexts(_PROBLEM, rng, 1)))
    choice = base.act(state, context, _DIRECTION, rng)
    for n in (1, 2, 4):
        wrong = np.full(n, 0.5)
        refuses(
            state,
            f"a direction of {n} numbers",
            lambda given=wrong: base.act(state, context, given, rng),  # type: ignore[misc]
        )
        refuses(
            state,
            f"a reward of {n} numbers",
            lambda given=wrong: base.update(state, choice, _DIRECTION, given),  # type: ignore[misc]
        )


def treats_per_arm_contexts_as_their_flat_form(base: Any, rng: np.random.Generator) -> None:
    """PerArm(x) is the context e_a (x) x of arm a: equal choices, probabilities to 1e-10.

    Asked of bandits that take PerArm contexts, unless their regression says that it keeps the
    arms apart in another way (`blocks_are_flat` = False).
    """
    regression = base.regression if isinstance(base, Regresses) else None
    if isinstance(regression, KeepsArmsApart) and not regression.blocks_are_flat:
        return
    n_arms, d = 4, _PROBLEM.dimension
    split = Problem.arms(d, _REWARDS, parameter_norm=1.0, n_arms=n_arms)
    flat = Problem.arms(n_arms * d, _REWARDS, parameter_norm=1.0)
    try:
        one, other = base.init(split), base.init(flat)
        together = kind_of(split).read(PerArm(np.full(d, 0.5)))
        base.act(one, together, _DIRECTION, stream(0, "checks"))
    except InvalidInput:
        return
    for t in range(_ROUNDS):
        x = next(contexts(_PROBLEM, rng, 1, n_arms=1))[0]
        g = _DIRECTION * rng.choice([-1.0, 1.0], 3)
        rows = np.kron(np.eye(n_arms), x)
        a = base.act(one, kind_of(split).read(PerArm(x)), g, stream(t, "checks"))
        b = base.act(other, kind_of(flat).read(rows), g, stream(t, "checks"))
        require(
            a.action == b.action,
            f"arm {a.action} instead of {b.action} in round {t + 1} of a PerArm problem: heed "
            "n_arms and per_arm of the context, or raise InvalidInput in init for problem.n_arms",
        )
        if a.probability is not None:
            off = abs(a.probability - b.probability)
            require(off <= 1e-10, f"the probability is off by {off} in round {t + 1}")
        reward = rewards(_PROBLEM, a.action, rng)
        one, other = base.update(one, a, g, reward), base.update(other, b, g, reward)


BASE_CHECKS: list[Check] = [
    is_a_value,
    *checks_of(player_of, *PLAYER_CHECKS, can_be_stored, takes_any_number_of_arms),
    follows_any_direction,
    refuses_vectors_of_another_length,
    treats_per_arm_contexts_as_their_flat_form,
]
