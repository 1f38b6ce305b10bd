"""Checks of bandits for one scalar reward: arms, rankings, and other kinds of decision."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from fairwolfe.checks.playing import (
    PLAYER_CHECKS,
    can_be_stored,
    direction_of,
    player_of,
    takes_any_number_of_arms,
    treats_products_as_their_flat_form,
)
from fairwolfe.checks.promise import Check, is_a_value, require, same
from fairwolfe.checks.rounds import contexts, rewards
from fairwolfe.core.contexts import PerArm
from fairwolfe.core.kinds import kind_of
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput

__all__ = ["ANY_BASE_CHECKS", "BASE_CHECKS", "RANKING_BASE_CHECKS", "SCALAR_CHECKS"]

_ROUNDS = 60
_ROUNDING = 1e-9


def follows_any_direction(base: Any, rng: np.random.Generator) -> None:
    """A direction of any sign and size will do, also 0."""
    player = player_of(base)
    state, problem = player.learned(rng), player.problem
    for i, scale in enumerate((-1.0, 0.0, 1e-6, 1e3)):
        context, g = next(contexts(problem, rng, 1)), scale * direction_of(problem, i)
        choice = base.act(state, player.kind.read(context), g, rng)
        fits = player.kind.is_action(context, choice.action)
        require(fits, f"the action is {choice.action!r} at scale {scale}")
        state = player.update(state, choice, rewards(problem, choice.action, rng))


def estimates_reward_vectors(base: Any, rng: np.random.Generator) -> None:
    """If it has `estimate`: a number for each coordinate of the reward vector, inside the ranges,
    and the state is only read. Open decisions count by it.
    """
    if not hasattr(base, "estimate"):
        return
    player = player_of(base)
    state, problem = player.learned(rng), player.problem
    for context in contexts(problem, rng, _ROUNDS):
        choice, before = player.act(state, context, rng), deepcopy(state)
        expected = base.estimate(state, player.kind.read(context), choice)
        require(same(state, before), "estimate changed the state")
        shape = np.shape(expected)
        require(shape == (problem.n_objectives,), f"the estimate has the shape {shape}")
        low, high = problem.low - _ROUNDING, problem.high + _ROUNDING
        inside = bool(((low <= expected) & (expected <= high)).all())
        require(inside, f"the estimate {expected} is outside the ranges of the problem")


def treats_per_arm_contexts_as_their_flat_form(base: Any, rng: np.random.Generator) -> None:
    """PerArm(x) is the context e_a (x) x of arm a: equal choices, probabilities to 1e-10.

    Asked of bandits that take PerArm contexts, unless their `regression` says that it keeps the
    arms apart in another way (`blocks_are_flat` = False).
    """
    if not getattr(getattr(base, "regression", None), "blocks_are_flat", True):
        return
    narrow = player_of(base).problem
    n_arms, d = 4, narrow.dimension
    split, flat = replace(narrow, n_arms=n_arms), replace(narrow, n_features=n_arms * d)
    g = direction_of(narrow)
    try:
        one, other = base.init(split), base.init(flat)
        base.act(one, kind_of(split).read(PerArm(np.full(d, 0.5))), g, stream(0, "checks"))
    except InvalidInput:
        return
    for t in range(_ROUNDS):
        x, g = next(contexts(narrow, rng, 1, n_arms=1))[0], direction_of(narrow, t)
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
        reward = rewards(narrow, a.action, rng)
        one, other = base.update(one, a, g, reward), base.update(other, b, g, reward)


def shows_what_may_be_shown(base: Any, rng: np.random.Generator) -> None:
    """Only candidates are shown, and a pinned item in its slot, unless pins raise InvalidInput."""
    player = player_of(base)
    state, kind, problem = player.learned(rng), player.kind, player.problem
    n_slots, g = problem.n_slots or 0, direction_of(problem)
    for context in contexts(problem, rng, _ROUNDS):
        ids = rng.permutation(problem.n_items or 0)[: n_slots + 1]
        slot, item = int(rng.integers(n_slots)), int(ids[0])
        for pins in ({}, {slot: item}):
            given = kind.read(context, candidates=ids, pinned=pins)
            try:
                choice = base.act(state, given, kind.aligned(g, given), rng)
            except InvalidInput:
                require(bool(pins), "candidates without pins raise InvalidInput")
                return
            shown = choice.action.tolist()
            fits = kind.is_action(context, choice.action) and set(shown) <= set(ids.tolist())
            require(fits, f"the ranking of the candidates {ids} is {shown}")
            right = not pins or shown[slot] == item
            require(right, f"item {item} is pinned to slot {slot}, and the ranking is {shown}")
        state = player.update(state, choice, rewards(problem, choice.action, rng))


def takes_new_items(base: Any, rng: np.random.Generator) -> None:
    """If it has `with_items`: the old items are ranked as before, new ones can be shown and learnt
    from, and choices made before they came can be answered after it.
    """
    if not hasattr(base, "with_items"):
        return
    player = player_of(base)
    state, kind, old = player.learned(rng), player.kind, player.problem
    n, q = old.n_items or 0, old.n_features[1]  # type: ignore[index]
    new = replace(old, n_items=n + 2)
    earlier, before = player.act(state, next(contexts(old, rng, 1)), rng), deepcopy(state)
    longer, wide = base.with_items(state, rng.normal(size=(2, q)) / 3.0), kind_of(new).fitted(base)
    require(same(state, before), "with_items changed the state that it was given")
    for t, context in enumerate(contexts(old, rng, _ROUNDS)):
        whole = replace(context, items=np.vstack([context.items, context.items[:2]]))
        given, g = wide.read(whole, candidates=range(n)), direction_of(old, t)
        plain = base.act(state, kind.read(context), g, stream(t, "checks"))
        choice = base.act(longer, given, g, stream(t, "checks"))
        unmoved = same(plain.action, choice.action)
        require(unmoved, f"new items turned the ranking {plain.action} into {choice.action}")
    g = direction_of(new)
    feedback = wide.observe(earlier.action, rewards(new, earlier.action, rng)).observation
    longer = base.update(longer, earlier, g, feedback)
    shown: set[int] = set()
    for t, context in enumerate(contexts(new, rng, _ROUNDS)):
        g = direction_of(new, t)
        g[n : n + 2] = 1e3  # exposing a new one is very good
        choice = base.act(longer, wide.read(context), g, rng)
        fits = wide.is_action(context, choice.action)
        require(fits, f"the ranking of old and new items is {choice.action!r}")
        shown |= set(choice.action.tolist())
        feedback = wide.observe(choice.action, rewards(new, choice.action, rng)).observation
        longer = base.update(longer, choice, g, feedback)
    require({n, n + 1} <= shown, f"new items are wanted, and {sorted(shown)} are shown")


ANY_BASE_CHECKS: list[Check] = [
    is_a_value,
    *PLAYER_CHECKS,
    can_be_stored,
    follows_any_direction,
    estimates_reward_vectors,
]
"""Of bandits for any kind of decision."""

BASE_CHECKS: list[Check] = [
    *ANY_BASE_CHECKS,
    takes_any_number_of_arms,
    treats_per_arm_contexts_as_their_flat_form,
]

RANKING_BASE_CHECKS: list[Check] = [
    *ANY_BASE_CHECKS,
    treats_products_as_their_flat_form,
    shows_what_may_be_shown,
    takes_new_items,
]

SCALAR_CHECKS: list[Check] = [is_a_value, *PLAYER_CHECKS, takes_any_number_of_arms]
"""Of policies for one reward: those of the bandit that `Extended` makes of them."""
