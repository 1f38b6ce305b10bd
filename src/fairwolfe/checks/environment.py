"""Checks of environments and of kinds of decision: `ENVIRONMENT_CHECKS` and `KIND_CHECKS`."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np

from fairwolfe.checks.bandit import bad_contexts, bad_feedback
from fairwolfe.checks.common import Check, is_a_value, is_refused, require, same
from fairwolfe.core.arrays import Vector
from fairwolfe.core.contexts import Bilinear
from fairwolfe.core.feedback import Shown
from fairwolfe.core.kinds import Answer, Kind, kind_of
from fairwolfe.core.problem import Problem
from fairwolfe.core.streams import stream
from fairwolfe.errors import ConformanceError

_ROUNDS = 20
_DRAWS = 2000
_ERRORS = 6.0  # standard errors: one false alarm in 10^8 comparisons
_ROUNDING = 1e-9


def _met(environment: Any, rng: np.random.Generator) -> Iterator[tuple[Any, Any]]:
    """A world, and contexts of it."""
    world = environment.init(rng)
    for t in range(1, _ROUNDS + 1):
        yield world, environment.context(world, t, rng)


def _actions(environment: Any, context: Any, rng: np.random.Generator) -> list[Any]:
    """Every action where there are few, some where there are many."""
    return kind_of(environment.problem()).actions(context, rng)


def _reward(environment: Any, action: Any, feedback: Any) -> Vector:
    """The reward vector of a feedback."""
    return kind_of(environment.problem()).observe(action, feedback).reward


def _opaque(environment: Any) -> bool:
    """Whether the expected rewards are unknown."""
    return bool(getattr(environment, "opaque", False))


def has_a_problem(environment: Any, rng: np.random.Generator) -> None:
    """`problem()` is a Problem, the same one every time, that contexts and rewards fit."""
    problem = environment.problem()
    require(isinstance(problem, Problem), f"problem() is {problem!r}")
    require(environment.problem() == problem, "problem() changes from call to call")
    for world, context in _met(environment, rng):
        action = _actions(environment, context, rng)[0]
        if _opaque(environment):
            _reward(environment, action, environment.feedback(world, context, action, rng))
            continue
        mean = environment.mean_reward(world, context, action)
        require(mean.shape == (problem.n_objectives,), f"mean_reward has shape {mean.shape}")
        require(bool(np.isfinite(mean).all()), f"mean_reward is {mean}")


def draws_only_from_its_generators(environment: Any, rng: np.random.Generator) -> None:
    """Equal generators give equal worlds, contexts and feedback, whatever the earlier actions."""
    runs = []
    for late in (False, True):
        world = environment.init(stream(1, "world"))
        contexts, noise = stream(1, "contexts"), stream(1, "noise")
        history = []
        for t in range(1, _ROUNDS + 1):
            context = environment.context(world, t, contexts)
            actions = _actions(environment, context, stream(t, "actions"))
            action = actions[-1 if late and t < _ROUNDS else 0]
            feedback = environment.feedback(world, context, action, noise)
            history.append(context)
        runs.append((history, feedback))
    (first, last), (again, last_again) = runs
    require(all(map(same, first, again)), "equal generators, other contexts")
    require(same(last, last_again), "the noise of a round depends on the actions before it")


def has_mean_rewards(environment: Any, rng: np.random.Generator) -> None:
    """The mean of many feedbacks is `mean_reward`; where it is unknown, that raises."""
    problem = environment.problem()
    world = environment.init(rng)
    context = environment.context(world, 1, rng)
    if _opaque(environment):
        refused = is_refused(lambda: environment.mean_reward(world, context, 0))
        require(refused, "it is opaque, and returns expected rewards")
        return
    for action in _actions(environment, context, rng)[:3]:
        feedbacks = (environment.feedback(world, context, action, rng) for _ in range(_DRAWS))
        drawn = np.array([_reward(environment, action, one) for one in feedbacks])
        mean = environment.mean_reward(world, context, action)
        error = drawn.std(axis=0) / np.sqrt(_DRAWS)
        # Only one end of the range was seen: the other may be too rare, exp(-20) = 2e-9.
        ends = (drawn == problem.low).all(axis=0) | (drawn == problem.high).all(axis=0)
        unseen = np.where(ends, 20.0 * (problem.high - problem.low) / _DRAWS, 0.0)
        off = np.abs(drawn.mean(axis=0) - mean) - _ERRORS * error - unseen
        require(
            bool((off <= _ROUNDING * (1.0 + np.abs(mean))).all()),
            f"action {action}: {_DRAWS} feedbacks have mean {drawn.mean(axis=0)}, not {mean}",
        )


def shows_slot_by_slot(environment: Any, rng: np.random.Generator) -> None:
    """The feedback of a ranking is a Shown that its kind takes: exposures 0 or 1, rewards of what
    was exposed only. The totals lie in the ranges of the problem where the environment says that
    it is `bounded`.
    """
    problem = environment.problem()
    if problem.kind != "ranking":
        return
    bounded = getattr(environment, "bounded", False)
    for world, context in _met(environment, rng):
        action = _actions(environment, context, rng)[0]
        shown = environment.feedback(world, context, action, rng)
        require(isinstance(shown, Shown), f"the feedback is a {type(shown).__name__}, not a Shown")
        reward = _reward(environment, action, shown)
        inside = bool(((reward >= problem.low) & (reward <= problem.high)).all())
        require(inside or not bounded, f"the reward {reward} is outside the ranges of the problem")


def knows_the_best_action(environment: Any, rng: np.random.Generator) -> None:
    """No action has a larger <direction, mean reward> than `best_action`; it raises if unknown."""
    for world, context in _met(environment, rng):
        direction = rng.standard_normal(environment.problem().n_objectives)
        if _opaque(environment):
            refused = is_refused(lambda: environment.best_action(world, context, direction))  # noqa: B023
            require(refused, "it is opaque, and returns the best action")
            return
        best = environment.best_action(world, context, direction)
        reach = float(direction @ environment.mean_reward(world, context, best))
        actions = _actions(environment, context, rng)
        require(len(actions) > 0, "there is no action")
        for action in actions:
            other = float(direction @ environment.mean_reward(world, context, action))
            # The sentence is made when it is needed: a thousand rankings take longer to print.
            if not other <= reach + _ROUNDING * (1.0 + abs(reach)):
                raise ConformanceError(
                    f"for {direction} action {action} gives {other}, the best action {best} {reach}"
                )


def has_an_exact_support(environment: Any, rng: np.random.Generator) -> None:
    """If `support` is offered: the mean of the best actions' rewards is its maximiser."""
    if not hasattr(environment, "support"):
        return
    n = environment.problem().n_objectives
    world = environment.init(rng)
    contexts = [environment.context(world, t, rng) for t in range(1, _DRAWS + 1)]
    for g in rng.standard_normal((3, n)):
        value, point = environment.support(world, g)
        require(
            abs(value - g @ point) <= _ROUNDING * (1.0 + abs(value)),
            f"support({g}) is {value}, its maximiser gives {g @ point}",
        )
        actions = [environment.best_action(world, one, g) for one in contexts]
        pairs = zip(contexts, actions, strict=True)
        best = np.array([environment.mean_reward(world, *pair) for pair in pairs])
        for what, drawn, exact in (("value", best @ g, value), ("maximiser", best, point)):
            error = np.max(drawn.std(axis=0)) / np.sqrt(_DRAWS)
            off = float(np.max(np.abs(drawn.mean(axis=0) - exact)))
            require(
                off <= _ERRORS * error + _ROUNDING,
                f"the {what} of support({g}) is off by {off}, {_DRAWS} contexts say",
            )


def refuses_bad_actions(environment: Any, rng: np.random.Generator) -> None:
    """A value that is not an action, and a context with NaN, raise InvalidInput."""
    problem, world = environment.problem(), environment.init(rng)
    context = environment.context(world, 1, rng)
    actions, kind = _actions(environment, context, rng), kind_of(problem)
    good = actions[0]
    listed: list[Any] = [len(actions), -1, 0.5]
    if isinstance(good, np.ndarray):
        listed = [good + 10**6, good - good.max() - 1, good[:-1], good + 0.5, int(good[0])]
        listed.append(np.full_like(good, good[0]))
    tries = [(context, one) for one in listed if not kind.is_action(context, one)]
    tries.append((_with_nan(context), good))
    for shown, action in tries:
        refused = is_refused(
            lambda x=shown, a=action: environment.feedback(world, x, a, rng)  # type: ignore[misc]
        )
        what = "a context with NaN" if action is good else f"action {action!r}"
        require(refused, f"feedback with {what} does not raise fairwolfe.errors.InvalidInput")


def _with_nan(context: Any) -> Any:
    """A context with NaN; None where it is not made of numbers."""
    if isinstance(context, Bilinear):
        return Bilinear(context.user * np.nan, context.items)
    return context * np.nan if isinstance(context, np.ndarray) else None


ENVIRONMENT_CHECKS: list[Check] = [
    is_a_value,
    has_a_problem,
    draws_only_from_its_generators,
    has_mean_rewards,
    shows_slot_by_slot,
    knows_the_best_action,
    has_an_exact_support,
    refuses_bad_actions,
]


# --- kinds of decision ---------------------------------------------------------------------------


def names_its_problem(kind: Kind, rng: np.random.Generator) -> None:
    """Its problem names it, and survives JSON."""
    problem = kind.problem
    require(problem.kind == kind.name, f"the problem is of the kind {problem.kind!r}")
    require(Problem.from_json(problem.to_json()) == problem, "the problem changes in JSON")
    require(type(kind_of(problem)) is type(kind), f"the registry has {kind_of(problem)!r}")


def reads_once(kind: Kind, rng: np.random.Generator) -> None:
    """A context or an answer that has been read is returned as it is; reading changes nothing."""
    for _ in range(_ROUNDS):
        context = kind.random_context(rng)
        before = deepcopy(context)
        given = kind.read(context)
        require(same(context, before), "read changed the context")
        require(kind.read(given) is given, "a context that has been read is read again")
        norm, most = given.norm, kind.problem.feature_norm
        require(0.0 <= norm <= most * (1.0 + 1e-9), f"the norm is {norm}, of at most {most}")
        for action in kind.actions(context, rng)[:5]:
            require(kind.is_action(context, action), f"{action!r} is listed and is not an action")
            _reads_feedback(kind, action, kind.random_feedback(action, rng))


def _reads_feedback(kind: Kind, action: Any, feedback: Any) -> None:
    """An answer has a reward vector inside the ranges, however it is given."""
    answer, problem = kind.observe(action, feedback), kind.problem
    require(isinstance(answer, Answer), f"observe gives {answer!r}")
    reward = answer.reward
    require(reward.shape == (problem.n_objectives,), f"the reward has shape {reward.shape}")
    inside = (problem.low - 1e-9 <= reward) & (reward <= problem.high + 1e-9)
    require(bool(inside.all()), f"the reward {reward} is outside the ranges of the problem")
    require(kind.observe(action, answer) is answer, "an answer is read again")
    reply = kind.read_feedback(action, feedback)
    require(not reply.outside, f"inside its range: {reply.outside}")
    for again in (kind.observe(action, answer.observation).reward, reply.reward):
        require(np.array_equal(again, reward), f"read in another way it is {again}, not {reward}")


def refuses_bad_numbers(kind: Kind, rng: np.random.Generator) -> None:
    """Wrong shapes, NaN, infinities and words are neither contexts nor feedback."""
    problem, context = kind.problem, kind.random_context(rng)
    action = kind.actions(context, rng)[0]
    for bad in bad_contexts(problem, context):
        require(is_refused(lambda given=bad: kind.read(given)), f"{bad!r} does not raise")  # type: ignore[misc]
    for bad in bad_feedback(problem):
        for gate in (kind.observe, kind.read_feedback):
            refused = is_refused(lambda given=bad, gate=gate: gate(action, given))  # type: ignore[misc]
            require(refused, f"{bad!r} does not raise in {gate.__name__}")


def bounds_its_rewards(kind: Kind, rng: np.random.Generator) -> None:
    """`extent` is above <slope, reward> of every reward, and `corner` is where it is attained."""
    problem, middle = kind.seen, kind.middle()
    for _ in range(_ROUNDS):
        for action in kind.actions(kind.random_context(rng), rng)[:5]:
            reward = kind.sees(kind.observe(action, kind.random_feedback(action, rng)).reward)
            # At random, and from the middle to this reward: no other is as far that way.
            towards = (reward - middle) / (problem.high - problem.low)
            for slope in (rng.standard_normal(reward.size), towards):
                top, width = kind.extent(slope)
                off = abs(float(slope @ kind.corner(slope, middle)) - top)
                require(off <= 1e-9 * (1.0 + abs(top)), f"the corner of {slope} is off by {off}")
                require(width >= 0.0, f"the range of the best of a context is {width}")
                reach = float(slope @ reward)
                require(reach <= top + 1e-9, f"{reward} gives {reach} for {slope}, not {top}")


KIND_CHECKS: list[Check] = [
    names_its_problem,
    reads_once,
    refuses_bad_numbers,
    bounds_its_rewards,
]
