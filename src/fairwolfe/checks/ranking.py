"""Checks of bandits and policies that rank items."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from fairwolfe.checks.playing import (
    PLAYER_CHECKS,
    Player,
    can_be_stored,
    checks_of,
    directed,
    refuses,
    same,
)
from fairwolfe.checks.policy import ANY_POLICY_CHECKS, player_of
from fairwolfe.checks.promise import Check, has, is_a_value, require
from fairwolfe.checks.rounds import contexts, rewards
from fairwolfe.core.arrays import Vector
from fairwolfe.core.contexts import Bilinear
from fairwolfe.core.kinds import kind_of
from fairwolfe.core.problem import Problem
from fairwolfe.core.protocols import Compiled, HoldsItems
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput

__all__ = ["RANKING_BASE_CHECKS", "RANKING_POLICY_CHECKS", "heeds_items", "player_of_base"]

_ROUNDS = 60
_PAIR = (2, 3)
_ITEMS, _SLOTS = 6, 3
_REWARDS = {"clicks": (0.0, 3.0), "gain": (-1.5, 6.0)}
_EXACT = 1e-10

_PROBLEM = Problem.ranking(_ITEMS, _SLOTS, _PAIR, _REWARDS, parameter_norm=1.0)


def _direction(rng: np.random.Generator, problem: Problem) -> Vector:
    """One of either sign for everything, the items' small beside the rewards'."""
    g = rng.standard_normal(problem.n_objectives)
    g[: problem.n_items] *= 0.3
    return g


def player_of_base(base: Any) -> Player:
    """A ranker with a fixed direction."""
    return directed(base, _PROBLEM, _direction(stream(0, "checks", "direction"), _PROBLEM))


def _read(problem: Problem, context: Any) -> Any:
    return kind_of(problem).read(context)


def follows_any_direction_of_items(base: Any, rng: np.random.Generator) -> None:
    """A direction of any sign and size will do, also 0."""
    player = player_of_base(base)
    state, problem = player.learned(rng), player.problem
    for scale in (-1.0, 0.0, 1e-6, 1e3):
        context = next(contexts(problem, rng, 1))
        g = scale * _direction(rng, problem)
        choice = base.act(state, _read(problem, context), g, rng)
        fits = kind_of(problem).is_action(context, choice.action)
        require(fits, f"the ranking is {choice.action!r} at scale {scale}")
        state = player.update(state, choice, rewards(problem, choice.action, rng))


def refuses_directions_of_another_length(base: Any, rng: np.random.Generator) -> None:
    """A direction has a number for each item, then for each reward; others raise InvalidInput.

    Asked of rankers that call kernels, which would read what is not there.
    """
    if not has(base, Compiled):
        return
    player = player_of_base(base)
    state = player.learned(rng)
    context = _read(player.problem, next(contexts(player.problem, rng, 1)))
    for n in (1, _ITEMS, _ITEMS + 1, _ITEMS + 3):
        wrong = np.full(n, 0.5)
        refuses(
            state,
            f"a direction of {n} numbers",
            lambda given=wrong: base.act(state, context, given, rng),  # type: ignore[misc]
        )


def heeds_items(base: Any, state: Any, rng: np.random.Generator) -> bool:
    """Whether an item is shown because the direction asks for it; some rankers use users only.

    The state is one of the problem of these checks.
    """
    context, g = _read(_PROBLEM, next(contexts(_PROBLEM, rng, 1))), _direction(rng, _PROBLEM)
    before = base.act(state, context, g, stream(0, "checks")).action.tolist()
    wanted = next(i for i in range(_ITEMS) if i not in before)
    g[wanted] = 1e6
    return wanted in base.act(state, context, g, stream(0, "checks")).action


def shows_what_may_be_shown(base: Any, rng: np.random.Generator) -> None:
    """Only candidates are shown, and a pinned item in its slot, unless pins raise InvalidInput."""
    player = player_of_base(base)
    state, kind = player.learned(rng), kind_of(player.problem)
    for context in contexts(player.problem, rng, _ROUNDS):
        ids = rng.permutation(_ITEMS)[: _SLOTS + 1]
        slot, item = int(rng.integers(_SLOTS)), int(ids[0])
        g = _direction(rng, player.problem)
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
        state = player.update(state, choice, rewards(player.problem, choice.action, rng))


def takes_new_items(base: Any, rng: np.random.Generator) -> None:
    """If it has `with_items`: what was learnt stays, and new items can be shown and learnt from.

    Choices made before the items came can be answered after it.
    """
    if not has(base, HoldsItems):
        return
    player = player_of_base(base)
    state, old = player.learned(rng), player.problem
    heeds, n = heeds_items(base, state, rng), _ITEMS + 2
    new = replace(old, n_items=n)
    earlier = player.act(state, next(contexts(old, rng, 1)), rng)
    before = deepcopy(state)
    longer = base.with_items(state, rng.normal(size=(2, _PAIR[1])) / 3.0)
    require(same(state, before), "with_items changed the state that it was given")
    for t, context in enumerate(contexts(new, rng, _ROUNDS)):
        g = _direction(rng, old)
        some = Bilinear(context.user, context.items[:_ITEMS])
        plain = base.act(state, _read(old, some), g, stream(t, "checks"))
        wide = np.insert(g, _ITEMS, [-1e6, -1e6])  # exposing a new one is very bad
        choice = base.act(longer, _read(new, context), wide, stream(t, "checks"))
        if heeds:
            unmoved = same(plain.action, choice.action)
        else:  # a new one may be above old ones, but moves no other up
            unmoved = set(choice.action.tolist()) <= {*plain.action.tolist(), *range(_ITEMS, n)}
        require(unmoved, f"new items turned the ranking {plain.action} into {choice.action}")
    longer = base.update(longer, earlier, wide, rewards(new, earlier.action, rng))
    shown: set[int] = set()
    for context in contexts(new, rng, _ROUNDS):
        g = np.insert(_direction(rng, old), _ITEMS, [1e3, 1e3])
        choice = base.act(longer, _read(new, context), g, rng)
        fits = kind_of(new).is_action(context, choice.action)
        require(fits, f"the ranking of old and new items is {choice.action!r}")
        shown |= set(choice.action.tolist())
        longer = base.update(longer, choice, g, rewards(new, choice.action, rng))
    require({_ITEMS, _ITEMS + 1} <= shown, f"new items are wanted, and {sorted(shown)} are shown")


def treats_products_as_their_flat_form(player: Player, rng: np.random.Generator) -> None:
    """Bilinear(u, v) is the context u (x) v_i: equal rankings, scores to 1e-10."""
    flat = replace(player.problem, n_features=player.problem.dimension)
    twin = player.remade(flat) if player.remade else player
    one, other = player.init(player.problem), twin.init(flat)
    for t, context in enumerate(contexts(player.problem, rng, _ROUNDS)):
        a = player.act(one, context, stream(t, "checks"))
        b = twin.act(other, context.flat(), stream(t, "checks"))
        require(same(a.action, b.action), f"{a.action} instead of {b.action} in round {t + 1}")
        off = _distance(a.info.reasons, b.info.reasons)
        require(off <= _EXACT, f"the parts of the scores are off by {off} in round {t + 1}")
        feedback = rewards(player.problem, a.action, rng)
        one, other = player.update(one, a, feedback), twin.update(other, b, feedback)


def _distance(one: Any, other: Any) -> float:
    """Between the parts of the scores of two choices, if they are reported."""
    if one is None or other is None:
        return 0.0
    return max(
        float(abs(a[name] - b[name]) / (1.0 + abs(b[name])))
        for a, b in zip(one.rows(), other.rows(), strict=True)
        for name in a
        if isinstance(a[name], float)
    )


RANKING_BASE_CHECKS: list[Check] = [
    is_a_value,
    *checks_of(player_of_base, *PLAYER_CHECKS, can_be_stored, treats_products_as_their_flat_form),
    follows_any_direction_of_items,
    refuses_directions_of_another_length,
    shows_what_may_be_shown,
    takes_new_items,
]

RANKING_POLICY_CHECKS: list[Check] = [
    *ANY_POLICY_CHECKS,
    *checks_of(player_of, treats_products_as_their_flat_form),
]
