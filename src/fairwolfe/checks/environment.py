"""Checks of environments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import numpy as np

from fairwolfe.checks.promise import Check, is_a_value, is_refused, require, same
from fairwolfe.core.arrays import Vector
from fairwolfe.core.contexts import Bilinear
from fairwolfe.core.feedback import Shown
from fairwolfe.core.kinds import kind_of
from fairwolfe.core.problem import Problem
from fairwolfe.core.streams import stream
from fairwolfe.errors import ConformanceError

__all__ = ["ENVIRONMENT_CHECKS"]

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
    if _opaque(environment):
        _refuses_to_tell(environment, lambda *pair: environment.mean_reward(*pair, 0), rng)
        return
    world = environment.init(rng)
    context = environment.context(world, 1, rng)
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


def _refuses_to_tell(
    environment: Any, ask: Callable[[Any, Any], Any], rng: np.random.Generator
) -> None:
    """What an opaque environment does not know, it does not invent."""
    world = environment.init(rng)
    context = environment.context(world, 1, rng)
    require(is_refused(lambda: ask(world, context)), "it is opaque, and returns expected rewards")


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
    n = environment.problem().n_objectives
    if _opaque(environment):
        _refuses_to_tell(environment, lambda *pair: environment.best_action(*pair, np.ones(n)), rng)
        return
    for world, context in _met(environment, rng):
        direction = rng.standard_normal(n)
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


def draws_many_like_one(environment: Any, rng: np.random.Generator) -> None:
    """If the compiled loop can run it: drawing n rounds at once is drawing them one by one."""
    if not hasattr(environment, "reward_program"):
        return
    world = environment.init(rng)
    once, many = deepcopy(rng), deepcopy(rng)
    features, tags = environment.draw_contexts(world, many, _ROUNDS)
    require(tags.dtype == np.int64 and tags.shape == (_ROUNDS,), "tags are not (n,) int64")
    for t in range(_ROUNDS):
        context = environment.context(world, t + 1, once)
        require(np.array_equal(context, features[t]), f"context {t + 1} differs from the drawn one")
    require(once.random() == many.random(), "contexts leave the generator in another state")
    once, many = deepcopy(rng), deepcopy(rng)
    noise = environment.draw_noise(many, _ROUNDS)
    program = environment.reward_program(world)
    n = environment.problem().n_objectives
    for t in range(_ROUNDS):
        arm = int(rng.integers(len(features[t])))
        context, tag = features[t], int(tags[t])
        mean, reward = program.answer(arm, tag, context, noise[t])
        plain: Vector = environment.feedback(world, context, arm, once)
        truth: Vector = environment.mean_reward(world, context, arm)
        require(np.array_equal(reward, plain), f"the kernel's reward {reward} is not {plain}")
        require(np.array_equal(mean, truth), f"the kernel's mean {mean} is not {truth}")
        g = rng.standard_normal(n)
        best = environment.best_action(world, context, g)
        require(program.best_arm(g, tag, context) == best, "the kernel's best arm is another")
    require(once.random() == many.random(), "feedback leaves the generator in another state")


def draws_many_users_like_one(environment: Any, rng: np.random.Generator) -> None:
    """If the compiled loop can run its rankings: drawing n rounds is drawing them one by one."""
    if not hasattr(environment, "draw_users"):
        return
    world = environment.init(rng)
    once, many = deepcopy(rng), deepcopy(rng)
    users = environment.draw_users(many, _ROUNDS)
    require(users.dtype == np.int64 and users.shape == (_ROUNDS,), "users are not (n,) int64")
    contexts = [environment.context(world, t + 1, once) for t in range(_ROUNDS)]
    for context, user in zip(contexts, users.tolist(), strict=True):
        require(same(context, environment.show(world, user)), f"user {user} has another context")
        tagged = environment.show(world, environment.tag(world, context))
        require(same(context, tagged), f"the context of user {user} is taken for another's")
    require(once.random() == many.random(), "contexts leave the generator in another state")
    once, many = deepcopy(rng), deepcopy(rng)
    environment.draw_noise(many, _ROUNDS)
    for context in contexts:
        environment.feedback(world, context, _actions(environment, context, rng)[0], once)
    require(once.random() == many.random(), "feedback leaves the generator in another state")


def refuses_bad_actions(environment: Any, rng: np.random.Generator) -> None:
    """A value that is not an action, and a context with NaN, raise InvalidInput."""
    world = environment.init(rng)
    context = environment.context(world, 1, rng)
    actions, kind = _actions(environment, context, rng), kind_of(environment.problem())
    good = actions[0]
    listed = _no_rankings(good) if isinstance(good, np.ndarray) else [len(actions), -1, 0.5]
    bad = [action for action in listed if not kind.is_action(context, action)]
    for shown, action in (*((context, one) for one in bad), (_spoilt(context), good)):
        refused = is_refused(
            lambda x=shown, a=action: environment.feedback(world, x, a, rng)  # type: ignore[misc]
        )
        what = "a context with NaN" if action is good else f"action {action!r}"
        require(refused, f"feedback with {what} does not raise fairwolfe.errors.InvalidInput")


def _no_rankings(good: Any) -> list[Any]:
    """A wrong item, one that is not there, one too few, fractions, a single number."""
    beyond, below = good.copy(), good.copy()
    beyond[0], below[-1] = 10**6, -1
    twice = [np.full_like(good, good[0])] if good.size > 1 else []
    return [beyond, below, good[:-1], good + 0.5, int(good[0]), *twice]


def _spoilt(context: Any) -> Any:
    """A context with NaN, or none."""
    if isinstance(context, Bilinear):
        return Bilinear(np.full_like(context.user, np.nan), context.items)
    try:
        spoilt = np.array(context, dtype=np.float64)
    except (TypeError, ValueError):  # of another kind of decision
        return None
    spoilt.flat[0] = np.nan
    return spoilt


ENVIRONMENT_CHECKS: list[Check] = [
    is_a_value,
    has_a_problem,
    draws_only_from_its_generators,
    has_mean_rewards,
    shows_slot_by_slot,
    knows_the_best_action,
    has_an_exact_support,
    draws_many_like_one,
    draws_many_users_like_one,
    refuses_bad_actions,
]
