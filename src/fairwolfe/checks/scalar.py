"""Checks of policies for one reward: those of the bandit that `Extended` makes of them."""

from __future__ import annotations

from typing import Any

from fairwolfe.checks.bandit import player_of
from fairwolfe.checks.playing import (
    PLAYER_CHECKS,
    Player,
    checks_of,
    takes_any_number_of_arms,
)
from fairwolfe.checks.promise import Check, is_a_value
from fairwolfe.core.registry import load

__all__ = ["SCALAR_CHECKS"]


def _player(policy: Any) -> Player:
    return player_of(load("bandits", "extended")(policy))


SCALAR_CHECKS: list[Check] = [
    is_a_value,
    *checks_of(_player, *PLAYER_CHECKS, takes_any_number_of_arms),
]
