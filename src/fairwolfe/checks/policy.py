"""Checks of policies."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np

from fairwolfe.checks.playing import Player, checks_of, contexts, refuses, rewards, same
from fairwolfe.checks.promise import Check, is_a_value, length, require
from fairwolfe.problem import Problem
from fairwolfe.protocols import Decision
from fairwolfe.registry import load

__all__ = ["POLICY_CHECKS"]

_ROUNDS = 50


def _player(policy: Any) -> Player:
    n = length(getattr(policy, "objective", None))
    ranges = {f"r{i}": (0.0, 1.0 + i) for i in range(n)}
    problem = Problem.arms(3, ranges, parameter_norm=1.0)
    return Player(problem, policy.init, policy.act, policy.update)


def averages_the_rewards(policy: Any, rng: np.random.Generator) -> None:
    """`average` is the mean of the rewards given, in whatever order they come.

    With a memory it is an exponential mean: it lies between the smallest and the largest.
    """
    player = _player(policy)
    state = player.init(player.problem)
    waiting = []
    for context in contexts(player.problem, rng, _ROUNDS):
        waiting.append(player.act(state, context, rng))
    given = []
    for i in rng.permutation(_ROUNDS):
        given.append(rewards(player.problem, rng))
        state = player.update(state, waiting[i], given[-1])
        low, mean, high = np.min(given, 0), np.mean(given, 0), np.max(given, 0)
        if getattr(policy, "memory", None) is None:
            off = float(np.abs(state.average - mean).max())
            require(off <= 1e-9, f"after {len(given)} rewards the average is off by {off}")
        inside = (low - 1e-9 <= state.average) & (state.average <= high + 1e-9)
        require(bool(inside.all()), f"the average {state.average} lies outside the rewards")


def counts_the_rewards(policy: Any, rng: np.random.Generator) -> None:
    """t is the number of rewards averaged, not of decisions; a decision tells its own."""
    player = _player(policy)
    state = player.init(player.problem)
    for t, context in enumerate(contexts(player.problem, rng, _ROUNDS)):
        require(state.t == t, f"t is {state.t} after {t} rewards")
        decisions = [player.act(state, context, rng) for _ in range(3)]
        require(all(d.t == t for d in decisions), f"the decisions say {decisions[0].t}, not {t}")
        state = player.update(state, decisions[1], rewards(player.problem, rng))


def learns_from_stored_decisions(policy: Any, rng: np.random.Generator) -> None:
    """A decision read back from its bytes teaches the same."""
    player = _player(policy)
    state = player.learned(rng)
    for context in contexts(player.problem, rng, 10):
        decision, reward = player.act(state, context, rng), rewards(player.problem, rng)
        stored = Decision.from_bytes(decision.to_bytes())
        other = player.update(deepcopy(state), stored, reward)
        state = player.update(state, decision, reward)
        require(same(state, other), "a decision read back from its bytes gave another state")


def keeps_the_direction_of_a_linear_objective(policy: Any, rng: np.random.Generator) -> None:
    """If it follows a direction: for f(z) = <w, z> that is w, always."""
    if not (hasattr(policy, "direction") and hasattr(policy, "with_objective")):
        return
    n = _player(policy).problem.n_objectives
    weights = rng.normal(size=n)
    linear = policy.with_objective(load("objectives", "linear")(weights))
    player = _player(linear)
    state = player.init(player.problem)
    for context in contexts(player.problem, rng, _ROUNDS):
        g = linear.direction(state, rng)
        require(np.allclose(g, weights, rtol=1e-12), f"the direction of {weights} is {g}")
        decision = player.act(state, context, rng)
        state = player.update(state, decision, rewards(player.problem, rng))


def refuses_bad_rewards(policy: Any, rng: np.random.Generator) -> None:
    """Rewards of the wrong shape, NaN, infinities and words are refused, and nothing changes."""
    player = _player(policy)
    n = player.problem.n_objectives
    state = player.learned(rng)
    choice = player.act(state, next(contexts(player.problem, rng, 1)), rng)
    bad = {
        "a reward that is NaN": np.array([np.nan] * n),
        "a reward with an infinity": np.array([0.5] * (n - 1) + [np.inf]),
        "a reward too many": np.full(n + 1, 0.5),
        "a reward too few": np.full(n - 1, 0.5),
        "a matrix of rewards": np.full((1, n), 0.5),
        "words for rewards": ["a"] * n,
        "no reward": None,
    }
    for what, reward in bad.items():
        refuses(state, what, lambda given=reward: player.update(state, choice, given))  # type: ignore[misc]


POLICY_CHECKS: list[Check] = [
    is_a_value,
    *checks_of(_player),
    averages_the_rewards,
    counts_the_rewards,
    learns_from_stored_decisions,
    keeps_the_direction_of_a_linear_objective,
    refuses_bad_rewards,
]
