"""Checks that bandits and policies share: both choose, wait for a reward and learn from it.

The same for arms and for rankings; what differs between them is in `rounds`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.checks.promise import Check, require
from fairwolfe.checks.rounds import (
    bad_contexts,
    bad_rewards,
    contexts,
    exposure_of,
    key,
    parts_of,
    rewards,
    spoil,
)
from fairwolfe.core.arrays import Vector
from fairwolfe.core.decision import Choice
from fairwolfe.core.kinds import Kind, kind_of
from fairwolfe.core.packing import pack, unpack
from fairwolfe.core.problem import Problem
from fairwolfe.core.protocols import Stored
from fairwolfe.core.streams import stream
from fairwolfe.errors import ConformanceError, InvalidInput

__all__ = [
    "PLAYER_CHECKS",
    "Player",
    "arrays",
    "can_be_stored",
    "checks_of",
    "directed",
    "refuses",
    "refuses_bad_contexts",
    "refuses_bad_rewards",
    "require_storable",
    "same",
    "takes_any_number_of_arms",
]

_ROUNDS = 40
_DRAWS = 3000
_CERTAIN = 300  # draws that show whether a probability of 1 is true
_ERRORS = 5.0  # standard errors
_ROUNDING = 1e-9


class Player(NamedTuple):
    """A bandit with a fixed direction, or a policy, with the same `init`, `act` and `update`."""

    problem: Problem
    init: Callable[[Problem], Any]
    act: Callable[[Any, Any, np.random.Generator], Any]
    update: Callable[[Any, Any, Any], Any]
    exposure: str = "observed"  # of a ranking: which slots it counts
    remade: Callable[[Problem], Any] | None = None  # the same player of another problem

    def learned(self, rng: np.random.Generator, rounds: int = _ROUNDS) -> Any:
        """The state after some rounds."""
        state = self.init(self.problem)
        for context in contexts(self.problem, rng, rounds):
            choice = self.act(state, context, rng)
            state = self.update(state, choice, rewards(self.problem, choice.action, rng))
        return state


def directed(base: Any, problem: Problem, direction: Vector) -> Player:
    """A base with a fixed direction, given contexts and feedback as FrankWolfe gives them: read by
    the kind of the problem.
    """
    kind = kind_of(problem).fitted(base)

    def update(state: Any, choice: Any, feedback: Any) -> Any:
        answer = kind.observe(choice.action, feedback)
        return base.update(state, choice, direction, answer.observation)

    return Player(
        problem,
        base.init,
        lambda state, context, rng: base.act(state, kind.read(context), direction, rng),
        update,
        exposure_of(base),
        lambda other: directed(base, other, direction),
    )


def same(one: Any, other: Any) -> bool:
    """Whether two states hold the same bits."""
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other, equal_nan=True))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Kind):
        return type(one) is type(other) and same(vars(one), vars(other))
    if is_dataclass(one) and not isinstance(one, type):
        names = [f.name for f in fields(one)]
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    return bool(one == other)


def arrays(state: Any) -> Iterator[Any]:
    """Every array of a state."""
    if isinstance(state, np.ndarray):
        yield state
    elif isinstance(state, (tuple, list)):
        for part in state:
            yield from arrays(part)
    elif isinstance(state, dict):
        yield from arrays(list(state.values()))


def refuses(state: Any, what: str, attempt: Callable[[], Any]) -> None:
    """The attempt raises InvalidInput and leaves the state as it was."""
    before = deepcopy(state)
    try:
        attempt()
    except InvalidInput:
        require(same(state, before), f"{what} raises InvalidInput, but the state has changed")
        return
    raise ConformanceError(f"{what} does not raise InvalidInput")


def starts_afresh(player: Player, rng: np.random.Generator) -> None:
    """`init` gives equal states that share nothing, and leaves the earlier ones alone."""
    first, second = player.init(player.problem), player.init(player.problem)
    require(same(first, second), "two calls of init differ")
    before = deepcopy(first)
    for context in contexts(player.problem, rng, 5):
        choice = player.act(second, context, rng)
        second = player.update(second, choice, rewards(player.problem, choice.action, rng))
    require(same(first, before), "learning changed a state that init had given before")
    require(same(player.init(player.problem), before), "learning changed what init gives")


def only_reads_when_acting(player: Player, rng: np.random.Generator) -> None:
    """`act` leaves the state and the context alone; equal generators, equal choices."""
    state = player.learned(rng)
    for i, context in enumerate(contexts(player.problem, rng, _ROUNDS)):
        before, shown = deepcopy(state), deepcopy(context)
        one, other = (player.act(state, context, stream(i, "checks")) for _ in range(2))
        require(same(state, before), "act changed the state")
        require(same(context, shown), "act changed the context")
        require(same(one, other), f"equal generators, other choices: {one} and {other}")
        fits = kind_of(player.problem).is_action(context, one.action)
        require(fits, f"the action is {one.action!r}")


def tells_true_probabilities(player: Player, rng: np.random.Generator) -> None:
    """An action is taken as often as its probability states (None: unknown).

    Where the probability is given a draw that is made first (a random direction), 1{action}/p has a
    mean of at most 1 for every action, and 1/p of at least 1.
    """
    state = player.learned(rng)
    for context in contexts(player.problem, rng, 2):
        drawn: dict[Any, list[float]] = {}
        for choice in (player.act(state, context, rng) for _ in range(_DRAWS)):
            if choice.probability is None:
                return
            require(
                isinstance(choice.probability, float) and 0.0 < choice.probability <= 1.0,
                f"the probability of action {choice.action} is {choice.probability!r}",
            )
            drawn.setdefault(key(choice.action), []).append(choice.probability)
            if list(drawn.values()) == [[1.0] * _CERTAIN]:
                break  # always the same, as it says
        if all(max(stated) - min(stated) <= _ROUNDING for stated in drawn.values()):
            _require_frequencies(drawn)
        else:
            _require_inverse_probabilities(drawn)


def _require_frequencies(drawn: dict[Any, list[float]]) -> None:
    total, draws = sum(p[0] for p in drawn.values()), sum(map(len, drawn.values()))
    require(total <= 1.0 + _ROUNDING, f"the probabilities of {sorted(drawn)} sum to {total}")
    for action, stated in drawn.items():
        share, p = len(stated) / draws, stated[0]
        error = _ERRORS * np.sqrt(p * max(1.0 - p, 0.0) / draws)
        require(
            abs(share - p) <= error + _ROUNDING,
            f"action {action} was taken in {share:.4f} of {draws} draws, its probability is "
            f"{p:.4f}",
        )


def _require_inverse_probabilities(drawn: dict[Any, list[float]]) -> None:
    for action, stated in drawn.items():
        inverse = np.zeros(_DRAWS)
        inverse[: len(stated)] = 1.0 / np.array(stated)
        most = 1.0 + _ERRORS * inverse.std() / np.sqrt(_DRAWS)
        require(
            inverse.mean() <= most + _ROUNDING,
            f"1{{action {action}}}/probability has mean {inverse.mean():.4f}, more than 1",
        )


def learns(player: Player, rng: np.random.Generator) -> None:
    """`update` gives a state that is finite and depends on its arguments alone, and that changes:
    not with every reward, since there may be nothing to learn where nothing was exposed.
    """
    state, changed = player.init(player.problem), False
    for i, context in enumerate(contexts(player.problem, rng, _ROUNDS)):
        choice = player.act(state, context, rng)
        reward = rewards(player.problem, choice.action, rng)
        before, kept, given = deepcopy(state), deepcopy(choice), deepcopy(reward)
        for array in arrays(choice.evidence):
            shared = any(np.shares_memory(array, part) for part in parts_of(context))
            require(not shared, "the evidence shares memory with the context: copy it")
        spoil(context)  # the caller may reuse its arrays at once
        state = player.update(state, choice, reward)
        changed |= not same(state, before)
        require(same(choice, kept), "update changed the choice")
        require(same(reward, given), "update changed the reward")
        finite = all(np.isfinite(a).all() for a in arrays(state) if a.dtype.kind == "f")
        require(finite, f"the state is not finite after {i + 1} rewards")
        again = player.update(before, kept, given)
        require(same(state, again), "an equal state, choice and reward gave another state")
    require(changed, f"{_ROUNDS} rewards changed nothing")


def takes_any_number_of_arms(player: Player, rng: np.random.Generator) -> None:
    """The number of arms may change from round to round, down to one."""
    state = player.init(player.problem)
    for n_arms in (3, 1, 8, 2, 1, 5):
        context = next(contexts(player.problem, rng, 1, n_arms=n_arms))
        choice = player.act(state, context, rng)
        require(0 <= choice.action < n_arms, f"action {choice.action} of {n_arms} arms")
        if n_arms == 1 and choice.probability is not None:
            require(choice.probability == 1.0, "the only arm has a probability below 1")
        state = player.update(state, choice, rewards(player.problem, choice.action, rng))


def can_be_stored(player: Player, rng: np.random.Generator) -> None:
    """A choice teaches the same after its evidence went through bytes, and the state is made of
    what a file can hold: NamedTuples of arrays, or objects with `dump` and `load`.
    """
    state = player.learned(rng, 10)
    for context in contexts(player.problem, rng, 5):
        choice = player.act(state, context, rng)
        reward = rewards(player.problem, choice.action, rng)
        (evidence,) = unpack(pack((choice.evidence,)))
        plain = player.update(deepcopy(state), _with_evidence(choice, evidence), reward)
        state = player.update(state, choice, reward)
        require(same(state, plain), "evidence read back from bytes gave another state")
    require_storable(state)


def _with_evidence(choice: Any, evidence: Any) -> Any:
    """A Choice or a Decision with other evidence."""
    if isinstance(choice, Choice):
        return choice._replace(evidence=evidence)
    return replace(choice, evidence=evidence)


def require_storable(part: Any, name: str = "state") -> None:
    """Raise ConformanceError for a state that no file can hold."""
    if isinstance(part, tuple) and hasattr(part, "_fields"):
        for field, inner in zip(part._fields, part, strict=True):
            if field not in ("plan", "problem", "params"):
                require_storable(inner, f"{name}.{field}")
        return
    nothing = part is None or (isinstance(part, tuple) and not part)
    require(
        nothing or isinstance(part, (np.ndarray, Stored)),
        f"{name} is a {type(part).__name__}, which cannot be saved: make it an array or a "
        "NamedTuple of arrays, or give it dump and load",
    )


def learns_late(player: Player, rng: np.random.Generator) -> None:
    """A reward may come after any number of other decisions and rewards."""
    state = player.init(player.problem)
    waiting = []
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


def refuses_bad_contexts(player: Player, rng: np.random.Generator) -> None:
    """Wrong shapes, NaN, infinities and words raise InvalidInput, and nothing changes."""
    state = player.learned(rng)
    good = next(contexts(player.problem, rng, 1))
    for what, context in bad_contexts(player.problem, good).items():
        refuses(state, what, lambda shown=context: player.act(state, shown, rng))  # type: ignore[misc]


def refuses_bad_rewards(player: Player, rng: np.random.Generator) -> None:
    """Rewards of wrong shape, NaN, infinities and words raise InvalidInput; nothing changes."""
    state = player.learned(rng)
    choice = player.act(state, next(contexts(player.problem, rng, 1)), rng)
    for what, reward in bad_rewards(player.problem, player.exposure).items():
        refuses(state, what, lambda given=reward: player.update(state, choice, given))  # type: ignore[misc]


PlayerCheck = Callable[[Player, np.random.Generator], None]

PLAYER_CHECKS: list[PlayerCheck] = [
    starts_afresh,
    only_reads_when_acting,
    tells_true_probabilities,
    learns,
    learns_late,
]


def checks_of(player: Callable[[Any], Player], *checks: PlayerCheck) -> list[Check]:
    """These checks for one contract, given how its subjects become players."""
    if not checks:
        raise TypeError("no checks are given; see PLAYER_CHECKS")

    def as_check(check: PlayerCheck) -> Check:
        @wraps(check)
        def wrapped(subject: Any, rng: np.random.Generator) -> None:
            check(player(subject), rng)

        return wrapped

    return [as_check(check) for check in checks]
