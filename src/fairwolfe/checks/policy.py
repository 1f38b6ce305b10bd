"""Checks of policies, those that choose an arm and those that rank items."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np

from fairwolfe.checks.playing import (
    PLAYER_CHECKS,
    Player,
    checks_of,
    refuses_bad_contexts,
    refuses_bad_rewards,
    require_storable,
    same,
    takes_any_number_of_arms,
)
from fairwolfe.checks.promise import Check, has, is_a_value, length, require
from fairwolfe.checks.rounds import contexts, decides, exposure_of, rewards, vector
from fairwolfe.core.decision import Decision
from fairwolfe.core.problem import Problem
from fairwolfe.core.protocols import (
    Averages,
    Directs,
    Forgets,
    Mixed,
    Pursues,
    Reduces,
    Sized,
    Undirected,
)
from fairwolfe.core.registry import load

__all__ = ["ANY_POLICY_CHECKS", "POLICY_CHECKS", "player_of"]

_ROUNDS = 50
_ITEMS, _SLOTS = 6, 3


def player_of(policy: Any) -> Player:
    """The policy with a problem that its objective fits."""
    kind = decides(policy)
    if kind == "ranking":
        problem = _ranking_problem(policy)
    elif kind == "arms":
        n = length(_objective(policy))
        ranges = {f"r{i}": (0.0, 1.0 + i) for i in range(n)}
        problem = Problem.arms(3, ranges, parameter_norm=1.0)
    else:
        problem = load("kinds", kind).example()  # type: ignore[attr-defined]
    return _playing(policy, problem)


def _playing(policy: Any, problem: Problem) -> Player:
    return Player(
        problem,
        policy.init,
        policy.act,
        policy.update,
        exposure_of(policy),
        lambda other: _playing(policy, other),
    )


def _ranking_problem(policy: Any) -> Problem:
    """A few items, as many as the objective asks for if it does."""
    objective = _objective(policy)
    n_users = objective.n_users if isinstance(objective, Mixed) else 1
    size = objective.size if isinstance(objective, Sized) else None
    n_items = _ITEMS if size is None else size - n_users
    ranges = {f"r{i}": (-0.5 * i, _SLOTS * (1.0 + i)) for i in range(n_users)}
    return Problem.ranking(n_items, min(_SLOTS, n_items), (2, 3), ranges, parameter_norm=1.0)


def _objective(policy: Any) -> Any:
    return policy.objective if isinstance(policy, Pursues) else None


def averages_the_rewards(policy: Any, rng: np.random.Generator) -> None:
    """`average` is the mean of the rewards given, in whatever order they come.

    Those of a ranking are the exposures of the items, as it counts them, and the sums over slots.
    With a memory it is an exponential mean: it lies between the smallest and the largest.
    """
    player = player_of(policy)
    state = player.init(player.problem)
    if not isinstance(state, Averages):  # an agent keeps them then
        return
    waiting = []
    for context in contexts(player.problem, rng, _ROUNDS):
        waiting.append(player.act(state, context, rng))
    given = []
    for i in rng.permutation(_ROUNDS):
        feedback = rewards(player.problem, waiting[i].action, rng)
        given.append(vector(player.problem, waiting[i].action, feedback, player.exposure))
        state = player.update(state, waiting[i], feedback)
        low, mean, high = np.min(given, 0), np.mean(given, 0), np.max(given, 0)
        if not (isinstance(policy, Forgets) and policy.memory is not None):
            off = float(np.abs(state.average - mean).max())
            require(off <= 1e-9, f"after {len(given)} rewards the average is off by {off}")
        inside = (low - 1e-9 <= state.average) & (state.average <= high + 1e-9)
        require(bool(inside.all()), f"the average {state.average} lies outside the rewards")


def counts_the_rewards(policy: Any, rng: np.random.Generator) -> None:
    """t is the number of rewards averaged, not of decisions; a decision has its own t."""
    player = player_of(policy)
    state = player.init(player.problem)
    if not isinstance(state, Averages):
        return
    for t, context in enumerate(contexts(player.problem, rng, _ROUNDS)):
        require(state.t == t, f"t is {state.t} after {t} rewards")
        decisions = [player.act(state, context, rng) for _ in range(3)]
        require(all(d.t == t for d in decisions), f"the decisions say {decisions[0].t}, not {t}")
        decision = decisions[1]
        state = player.update(state, decision, rewards(player.problem, decision.action, rng))


def learns_from_stored_decisions(policy: Any, rng: np.random.Generator) -> None:
    """A decision read back from its bytes teaches the same, and a file can hold the state."""
    player = player_of(policy)
    state = player.learned(rng)
    for context in contexts(player.problem, rng, 10):
        decision = player.act(state, context, rng)
        reward = rewards(player.problem, decision.action, rng)
        stored = Decision.from_bytes(decision.to_bytes())
        other = player.update(deepcopy(state), stored, reward)
        state = player.update(state, decision, reward)
        require(same(state, other), "a decision read back from its bytes gave another state")
    require_storable(state)


def keeps_the_direction_of_a_linear_objective(policy: Any, rng: np.random.Generator) -> None:
    """If it follows a direction: for f(z) = <w, z> that is w, always."""
    base = policy.base if isinstance(policy, Reduces) else None
    undirected = isinstance(base, Undirected) and not base.needs_direction
    if undirected or not has(policy, Directs) or _objective(policy) is None:
        return
    n = player_of(policy).problem.n_objectives
    weights = rng.normal(size=n)
    linear = policy.with_objective(load("objectives", "linear")(weights))
    player = player_of(linear)
    state = player.init(player.problem)
    for context in contexts(player.problem, rng, _ROUNDS):
        g = linear.direction(state, rng)
        require(np.allclose(g, weights, rtol=1e-12), f"the direction of {weights} is {g}")
        decision = player.act(state, context, rng)
        state = player.update(state, decision, rewards(player.problem, decision.action, rng))


OWN_CHECKS: list[Check] = [
    averages_the_rewards,
    counts_the_rewards,
    learns_from_stored_decisions,
    keeps_the_direction_of_a_linear_objective,
    *checks_of(player_of, refuses_bad_contexts, refuses_bad_rewards),
]
"""What policies promise beyond what bandits do."""

ANY_POLICY_CHECKS: list[Check] = [is_a_value, *checks_of(player_of, *PLAYER_CHECKS), *OWN_CHECKS]
"""Of policies for any kind of decision."""

POLICY_CHECKS: list[Check] = [
    *ANY_POLICY_CHECKS,
    *checks_of(player_of, takes_any_number_of_arms),
]
