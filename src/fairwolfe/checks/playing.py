"""Checks that bandits and policies share: both choose, wait for a reward and learn from it."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.checks.promise import Check, arrays, contract_of, length, require, same
from fairwolfe.checks.rounds import contexts, decides, key, rewards, spoil
from fairwolfe.core.arrays import Vector
from fairwolfe.core.decision import Choice, Decision
from fairwolfe.core.kinds import Kind, kind_of
from fairwolfe.core.packing import pack, unpack
from fairwolfe.core.problem import Problem
from fairwolfe.core.protocols import Policy, ScalarPolicy
from fairwolfe.core.registry import load
from fairwolfe.core.streams import stream

__all__ = [
    "PLAYER_CHECKS",
    "Player",
    "can_be_stored",
    "direction_of",
    "player_of",
    "takes_any_number_of_arms",
    "treats_products_as_their_flat_form",
]

_ROUNDS = 40
_DRAWS = 3000
_CERTAIN = 300  # draws that show whether a probability of 1 is true
_ERRORS = 5.0  # standard errors
_ROUNDING = 1e-9

_ARMS = {"clicks": (0.0, 1.0), "gain": (-1.0, 2.0), "cost": (0.0, 0.5)}
_ITEMS, _SLOTS = 6, 3


class Player(NamedTuple):
    """A bandit with a fixed direction, or a policy, with the same `init`, `act` and `update`."""

    kind: Kind
    init: Callable[[Problem], Any]
    act: Callable[[Any, Any, np.random.Generator], Any]
    update: Callable[[Any, Any, Any], Any]

    @property
    def problem(self) -> Problem:
        """What it decides."""
        return self.kind.problem

    def learned(self, rng: np.random.Generator, rounds: int = _ROUNDS) -> Any:
        """The state after some rounds."""
        state = self.init(self.problem)
        for context in contexts(self.problem, rng, rounds):
            _, state = self.round(state, context, rng)
        return state

    def round(self, state: Any, context: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        """A choice, and the state that has learnt from it."""
        choice = self.act(state, context, rng)
        return choice, self.update(state, choice, rewards(self.problem, choice.action, rng))


def player_of(subject: Any, problem: Problem | None = None) -> Player:
    """A bandit, with a fixed direction, or a policy, in a problem that it fits.

    Bandits are given contexts and feedback as FrankWolfe gives them: read by the kind.
    """
    contract = contract_of(subject)
    kind = kind_of(problem or _problem(subject, contract is Policy))
    if contract is Policy:
        kind = kind.fitted(getattr(subject, "base", subject))
        return Player(kind, subject.init, subject.act, subject.update)
    base = load("bandits", "extended")(subject) if contract is ScalarPolicy else subject
    kind, g = kind.fitted(base), direction_of(kind.problem)

    def act(state: Any, context: Any, rng: np.random.Generator) -> Any:
        return base.act(state, kind.read(context), g, rng)

    def update(state: Any, choice: Any, feedback: Any) -> Any:
        return base.update(state, choice, g, kind.observe(choice.action, feedback).observation)

    return Player(kind, base.init, act, update)


def _problem(subject: Any, is_policy: bool) -> Problem:
    """One for the kind of decision; of a policy with as many rewards as its objective asks for."""
    kind, f = decides(subject), getattr(subject, "objective", None)
    if kind == "arms":
        ranges = {f"r{i}": (0.0, 1.0 + i) for i in range(length(f))} if is_policy else _ARMS
        return Problem.arms(3, ranges, parameter_norm=1.0)
    if kind == "ranking":
        n = getattr(f, "n_users", 1 if is_policy else 2)
        size = getattr(f, "size", None)
        n_items = _ITEMS if size is None else size - n
        ranges = {f"r{i}": (-0.5 * i, _SLOTS * (1.0 + i)) for i in range(n)}
        return Problem.ranking(n_items, min(_SLOTS, n_items), (2, 3), ranges, parameter_norm=1.0)
    problem: Problem = load("kinds", kind).example()  # type: ignore[attr-defined]
    return problem


def direction_of(problem: Problem, number: int = 0) -> Vector:
    """A direction of either sign for everything, the items' small beside the rewards'."""
    g = stream(number, "checks", "direction").standard_normal(problem.n_objectives)
    g[: problem.n_objectives - len(problem.rewards)] *= 0.3
    return g


def starts_afresh(subject: Any, rng: np.random.Generator) -> None:
    """`init` gives equal states that share nothing, and leaves the earlier ones alone."""
    player = player_of(subject)
    first, second = player.init(player.problem), player.init(player.problem)
    require(same(first, second), "two calls of init differ")
    before = deepcopy(first)
    for context in contexts(player.problem, rng, 5):
        _, second = player.round(second, context, rng)
    require(same(first, before), "learning changed a state that init had given before")
    require(same(player.init(player.problem), before), "learning changed what init gives")


def only_reads_when_acting(subject: Any, rng: np.random.Generator) -> None:
    """`act` leaves the state and the context alone; equal generators, equal choices."""
    player = player_of(subject)
    state = player.learned(rng)
    for i, context in enumerate(contexts(player.problem, rng, _ROUNDS)):
        before, shown = deepcopy(state), deepcopy(context)
        one, other = (player.act(state, context, stream(i, "checks")) for _ in range(2))
        require(same(state, before), "act changed the state")
        require(same(context, shown), "act changed the context")
        require(same(one, other), f"equal generators, other choices: {one} and {other}")
        fits = kind_of(player.problem).is_action(context, one.action)
        require(fits, f"the action is {one.action!r}")


def tells_true_probabilities(subject: Any, rng: np.random.Generator) -> None:
    """An action is taken as often as its probability states (None: unknown)."""
    player = player_of(subject)
    state = player.learned(rng)
    for context in contexts(player.problem, rng, 2):
        stated: dict[Any, float] = {}
        taken: dict[Any, int] = {}
        for n in range(1, _DRAWS + 1):
            choice = player.act(state, context, rng)
            action, p = key(choice.action), choice.probability
            if p is None:
                return
            known = isinstance(p, float) and 0.0 < p <= 1.0
            require(known, f"the probability of action {action} is {p!r}")
            steady = abs(stated.setdefault(action, p) - p) <= _ROUNDING
            require(steady, f"the probability of action {action} is {stated[action]}, then {p}")
            taken[action] = taken.get(action, 0) + 1
            if n == _CERTAIN and list(stated.values()) == [1.0]:
                break  # always the same, as it says
        total = sum(stated.values())
        require(total <= 1.0 + _ROUNDING, f"the probabilities of {sorted(stated)} sum to {total}")
        for action, p in stated.items():
            share, error = taken[action] / n, _ERRORS * np.sqrt(p * max(1.0 - p, 0.0) / n)
            require(
                abs(share - p) <= error + _ROUNDING,
                f"action {action} was taken in {share:.4f} of {n} draws, its probability is "
                f"{p:.4f}",
            )


def learns(subject: Any, rng: np.random.Generator) -> None:
    """`update` gives a state that is finite and depends on its arguments alone, and that changes:
    not with every reward, since there may be nothing to learn where nothing was exposed.

    What a choice keeps of the context is a copy: the caller may use its arrays again.
    """
    player = player_of(subject)
    state, changed = player.init(player.problem), False
    for i, context in enumerate(contexts(player.problem, rng, _ROUNDS)):
        choice = player.act(state, context, rng)
        reward = rewards(player.problem, choice.action, rng)
        before, kept, given = deepcopy(state), deepcopy(choice), deepcopy(reward)
        spoil(context)
        require(same(choice, kept), "the evidence shares memory with the context: copy it")
        state = player.update(state, choice, reward)
        changed |= not same(state, before)
        require(same(choice, kept), "update changed the choice")
        require(same(reward, given), "update changed the reward")
        finite = all(np.isfinite(a).all() for a in arrays(state) if a.dtype.kind == "f")
        require(finite, f"the state is not finite after {i + 1} rewards")
        again = player.update(before, kept, given)
        require(same(state, again), "an equal state, choice and reward gave another state")
    require(changed, f"{_ROUNDS} rewards changed nothing")


def learns_late(subject: Any, rng: np.random.Generator) -> None:
    """A reward may come after any number of other decisions and rewards."""
    player = player_of(subject)
    state, waiting = player.init(player.problem), []
    for context in contexts(player.problem, rng, _ROUNDS):
        waiting.append(player.act(state, context, rng))
        if rng.random() < 0.5:
            choice = waiting.pop(int(rng.integers(len(waiting))))
            state = player.update(state, choice, rewards(player.problem, choice.action, rng))
    for choice in reversed(waiting):
        state = player.update(state, choice, rewards(player.problem, choice.action, rng))
    context = next(contexts(player.problem, rng, 1))
    last = player.act(state, context, rng).action
    fits = kind_of(player.problem).is_action(context, last)
    require(fits, f"after late rewards the action is {last!r}")


PLAYER_CHECKS: list[Check] = [
    starts_afresh,
    only_reads_when_acting,
    tells_true_probabilities,
    learns,
    learns_late,
]


def can_be_stored(subject: Any, rng: np.random.Generator) -> None:
    """A choice teaches the same after it went through bytes, and the state is made of what a file
    can hold: NamedTuples of arrays, or objects with `dump` and `load`.
    """
    player = player_of(subject)
    state = player.learned(rng, 10)
    for context in contexts(player.problem, rng, 5):
        choice = player.act(state, context, rng)
        reward = rewards(player.problem, choice.action, rng)
        other = player.update(deepcopy(state), _through_bytes(choice), reward)
        state = player.update(state, choice, reward)
        require(same(state, other), f"a {type(choice).__name__} read from bytes teaches otherwise")
    _require_storable(state, "state")


def _through_bytes(choice: Any) -> Any:
    if isinstance(choice, Choice):
        return choice._replace(evidence=unpack(pack((choice.evidence,)))[0])
    return Decision.from_bytes(choice.to_bytes())


def _require_storable(part: Any, name: str) -> None:
    """Raise ConformanceError for a state that no file can hold."""
    part = part.state if hasattr(part, "copied") else part
    if isinstance(part, tuple) and hasattr(part, "_fields"):
        for field, inner in zip(part._fields, part, strict=True):
            if field not in ("plan", "problem", "params"):
                _require_storable(inner, f"{name}.{field}")
        return
    saved = isinstance(part, np.ndarray) or (hasattr(part, "dump") and hasattr(part, "load"))
    require(
        saved or part is None or part == (),
        f"{name} is a {type(part).__name__}, which cannot be saved: make it an array or a "
        "NamedTuple of arrays, or give it dump and load",
    )


def takes_any_number_of_arms(subject: Any, rng: np.random.Generator) -> None:
    """The number of arms may change from round to round, down to one."""
    player = player_of(subject)
    state = player.init(player.problem)
    for n_arms in (3, 1, 8, 2, 1, 5):
        context = next(contexts(player.problem, rng, 1, n_arms=n_arms))
        choice, state = player.round(state, context, rng)
        require(0 <= choice.action < n_arms, f"action {choice.action} of {n_arms} arms")
        certain = n_arms > 1 or choice.probability in (None, 1.0)
        require(certain, "the only arm has a probability below 1")


def treats_products_as_their_flat_form(subject: Any, rng: np.random.Generator) -> None:
    """Bilinear(u, v) is the context u (x) v_i: equal rankings."""
    player = player_of(subject)
    problem = player.problem
    twin = player_of(subject, replace(problem, n_features=problem.dimension))
    one, other = player.init(problem), twin.init(twin.problem)
    for t, context in enumerate(contexts(problem, rng, _ROUNDS)):
        a = player.act(one, context, stream(t, "checks"))
        b = twin.act(other, context.flat(), stream(t, "checks"))
        require(same(a.action, b.action), f"{a.action} instead of {b.action} in round {t + 1}")
        feedback = rewards(problem, a.action, rng)
        one, other = player.update(one, a, feedback), twin.update(other, b, feedback)
