"""Checks of bandits and policies: `BASE_CHECKS`, `SCALAR_CHECKS`, `POLICY_CHECKS`, and the same for
rankings and for other kinds of decision. Both contracts choose, wait for a reward and learn from
it: `Player` gives both the same `init`, `act` and `update`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.checks.common import (
    Check,
    arrays,
    contract_of,
    is_a_value,
    is_refused,
    length,
    require,
    same,
)
from fairwolfe.core.arrays import Vector
from fairwolfe.core.contexts import Bilinear, PerArm
from fairwolfe.core.decision import Choice, Decision
from fairwolfe.core.feedback import Shown
from fairwolfe.core.kinds import Kind, kind_of
from fairwolfe.core.packing import pack, unpack
from fairwolfe.core.problem import Problem
from fairwolfe.core.protocols import Policy, ScalarPolicy
from fairwolfe.core.registry import load
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput

_ROUNDS = 50
_DRAWS = 3000
_CERTAIN = 300  # draws that show whether a probability of 1 is true
_ERRORS = 5.0  # standard errors
_ROUNDING = 1e-9

_ARMS = {"clicks": (0.0, 1.0), "gain": (-1.0, 2.0), "cost": (0.0, 0.5)}
_ITEMS, _SLOTS = 6, 3


# --- rounds --------------------------------------------------------------------------------------


def contexts(
    problem: Problem, rng: np.random.Generator, rounds: int, **options: Any
) -> Iterator[Any]:
    """Contexts with features inside the norm that the problem states."""
    kind = kind_of(problem)
    for _ in range(rounds):
        yield kind.random_context(rng, **options)


def bad_contexts(problem: Problem, good: Any) -> list[Any]:
    """Contexts that must raise InvalidInput: of wrong shape, with NaN or words."""
    bad: list[Any] = [None, "a"]
    if isinstance(good, Bilinear):
        user, items = good.user, good.items
        bad += [user, good.flat(), Bilinear(["a"] * user.size, items)]
        bad += [Bilinear(np.append(user, 0.1), items), Bilinear(user * np.nan, items)]
        return bad + [Bilinear(user, rows) for rows in _bad_rows(items, problem)]
    if not isinstance(good, np.ndarray):
        return bad
    return bad + (_bad_rows(good, problem) if good.ndim == 2 else [good * np.nan, good[None]])


def _bad_rows(good: Any, problem: Problem) -> list[Any]:
    """Rows of features that must raise InvalidInput."""
    spoilt, endless = good.copy(), good.copy()
    spoilt[1, 0], endless[0, 1] = np.nan, np.inf
    words, ragged = [["a"] * good.shape[1]] * len(good), [good[0].tolist(), [0.1]]
    bad = [spoilt, endless, np.hstack([good, good[:, :1]]), good[:0], good[0], words, ragged]
    return bad if problem.n_items is None else [*bad, good[1:], np.vstack([good, good[:1]])]


def bad_feedback(problem: Problem) -> list[Any]:
    """Feedback that must raise InvalidInput: of wrong shape, with NaN or words."""
    n, k = problem.n_objectives, problem.n_slots
    if problem.kind not in ("arms", "ranking"):
        return ["a", object()]
    if k is None:
        endless = np.append(np.full(n - 1, 0.5), np.inf)
        return [np.full(n, np.nan), endless, np.ones(n + 1), np.ones((1, n)), ["a"] * n, None]
    ones, nothing = np.ones(k), np.zeros((k, len(problem.rewards)))
    half, spoilt = ones.copy(), nothing.copy()
    half[-1], spoilt[0, -1] = 0.5, np.nan
    pairs: list[tuple[Any, Any]] = [
        *((ones[1:], nothing), (ones, nothing.T[:, :-1]), (ones, nothing.ravel())),
        *((half, nothing), (ones, spoilt), (["a"] * k, nothing)),
    ]
    return [*(Shown(*pair) for pair in pairs), np.zeros(n), None]


def direction_of(problem: Problem, number: int = 0) -> Vector:
    """A direction of either sign for everything, the items' small beside the rewards'."""
    g = stream(number, "checks", "direction").standard_normal(problem.n_objectives)
    g[: problem.n_objectives - len(problem.rewards)] *= 0.3
    return g


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
        return choice, self.update(state, choice, self.kind.random_feedback(choice.action, rng))

    def require_action(self, context: Any, action: Any) -> None:
        """Raise ConformanceError for a value that is not an action in this context."""
        require(self.kind.is_action(context, action), f"the action is {action!r}")


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
    kind, f = getattr(subject, "decides", "arms"), getattr(subject, "objective", None)
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


# --- of bandits and policies ---------------------------------------------------------------------


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
        player.require_action(context, one.action)


def tells_true_probabilities(subject: Any, rng: np.random.Generator) -> None:
    """An action is taken as often as its probability states (None: unknown)."""
    player = player_of(subject)
    state = player.learned(rng)
    for context in contexts(player.problem, rng, 2):
        stated: dict[Any, float] = {}
        taken: dict[Any, int] = {}
        for n in range(1, _DRAWS + 1):
            choice = player.act(state, context, rng)
            action, p = choice.action, choice.probability
            if p is None:
                return
            action = tuple(action.tolist()) if isinstance(action, np.ndarray) else action
            known = isinstance(p, float) and 0.0 < p <= 1.0
            require(known, f"the probability of action {action} is {p!r}")
            steady = abs(stated.setdefault(action, p) - p) <= _ROUNDING
            require(steady, f"the probability of action {action} is {stated[action]}, then {p}")
            taken[action] = taken.get(action, 0) + 1
            if n == _CERTAIN and list(stated.values()) == [1.0]:
                break  # always the same, as it says
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
        reward = player.kind.random_feedback(choice.action, rng)
        before, kept, given = deepcopy(state), deepcopy(choice), deepcopy(reward)
        parts = (context.user, context.items) if isinstance(context, Bilinear) else (context,)
        for part in parts:
            if isinstance(part, np.ndarray):
                part[:] = np.nan
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
    for i in rng.permutation(_ROUNDS):
        choice = waiting[i]
        state = player.update(state, choice, player.kind.random_feedback(choice.action, rng))
    context = next(contexts(player.problem, rng, 1))
    player.require_action(context, player.act(state, context, rng).action)


def can_be_stored(subject: Any, rng: np.random.Generator) -> None:
    """A choice teaches the same after it went through bytes, and the state is made of what a file
    can hold: NamedTuples of arrays, or objects with `dump` and `load`.
    """
    player = player_of(subject)
    state = player.learned(rng, 10)
    for context in contexts(player.problem, rng, 5):
        choice = player.act(state, context, rng)
        reward = player.kind.random_feedback(choice.action, rng)
        read: Any = None
        if isinstance(choice, Choice):
            read = choice._replace(evidence=unpack(pack((choice.evidence,)))[0])
        else:
            read = Decision.from_bytes(choice.to_bytes())
        other = player.update(deepcopy(state), read, reward)
        state = player.update(state, choice, reward)
        require(same(state, other), f"a {type(choice).__name__} read from bytes teaches otherwise")
    _require_storable(state, "state")


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
        feedback = player.kind.random_feedback(a.action, rng)
        one, other = player.update(one, a, feedback), twin.update(other, b, feedback)


# --- of bandits ----------------------------------------------------------------------------------


def follows_any_direction(base: Any, rng: np.random.Generator) -> None:
    """A direction of any sign and size will do, also 0."""
    player = player_of(base)
    state, problem = player.learned(rng), player.problem
    for i, scale in enumerate((-1.0, 0.0, 1e-6, 1e3)):
        context, g = next(contexts(problem, rng, 1)), scale * direction_of(problem, i)
        choice = base.act(state, player.kind.read(context), g, rng)
        player.require_action(context, choice.action)
        state = player.update(state, choice, player.kind.random_feedback(choice.action, rng))


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
    kind = kind_of(narrow)
    try:
        one, other = base.init(split), base.init(flat)
        given = kind_of(split).read(PerArm(np.full(d, 0.5)))
        base.act(one, given, direction_of(narrow), stream(0, "checks"))
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
        reward = kind.random_feedback(a.action, rng)
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
        state = player.update(state, choice, kind.random_feedback(choice.action, rng))


# --- of policies ---------------------------------------------------------------------------------


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
        feedback = kind.random_feedback(waiting[i].action, rng)
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
    times = waiting[0].t, last.t
    require(times == (0, _ROUNDS), f"decisions after 0 and {_ROUNDS} rewards have t = {times}")


def refuses_bad_input(policy: Any, rng: np.random.Generator) -> None:
    """Contexts and feedback of wrong shape, NaN and words raise InvalidInput; nothing changes."""
    player = player_of(policy)
    state, good = player.learned(rng), next(contexts(player.problem, rng, 1))
    choice, before = player.act(state, good, rng), deepcopy(state)
    tries = [(player.act, (state, one, rng)) for one in bad_contexts(player.problem, good)]
    tries += [(player.update, (state, choice, one)) for one in bad_feedback(player.problem)]
    for method, given in tries:
        what = repr(given[1] if method is player.act else given[2])
        refused = is_refused(lambda to=method, given=given: to(*given))  # type: ignore[misc]
        require(refused, f"{what} does not raise InvalidInput")
        require(same(state, before), f"{what} raises InvalidInput, but the state has changed")


PLAYER_CHECKS: list[Check] = [
    is_a_value,
    starts_afresh,
    only_reads_when_acting,
    tells_true_probabilities,
    learns,
    learns_late,
]
ANY_BASE_CHECKS = [
    *PLAYER_CHECKS,
    can_be_stored,
    follows_any_direction,
    estimates_reward_vectors,
]
BASE_CHECKS = [
    *ANY_BASE_CHECKS,
    takes_any_number_of_arms,
    treats_per_arm_contexts_as_their_flat_form,
]
RANKING_BASE_CHECKS = [
    *ANY_BASE_CHECKS,
    treats_products_as_their_flat_form,
    shows_what_may_be_shown,
]
ANY_POLICY_CHECKS = [*PLAYER_CHECKS, can_be_stored, averages_the_rewards, refuses_bad_input]
POLICY_CHECKS = [*ANY_POLICY_CHECKS, takes_any_number_of_arms]
RANKING_POLICY_CHECKS = [*ANY_POLICY_CHECKS, treats_products_as_their_flat_form]
SCALAR_CHECKS = [*PLAYER_CHECKS, takes_any_number_of_arms]
"""Of policies for one reward: those of the bandit that `Extended` makes of them."""
