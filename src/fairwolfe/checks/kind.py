"""Checks of kinds of decision."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np

from fairwolfe.checks.promise import Check, is_refused, require, same
from fairwolfe.checks.rounds import bad_contexts, bad_rewards
from fairwolfe.core.kinds import Answer, Kind, kind_of
from fairwolfe.core.problem import Problem

__all__ = ["KIND_CHECKS"]

_ROUNDS = 20


def has_a_problem(kind: Kind, rng: np.random.Generator) -> None:
    """Its problem names it, and survives JSON."""
    problem = kind.problem
    require(problem.kind == kind.name, f"the problem is of the kind {problem.kind!r}")
    require(Problem.from_json(problem.to_json()) == problem, "the problem changes in JSON")
    require(type(kind_of(problem)) is type(kind), f"the registry has {kind_of(problem)!r}")


def reads_once(kind: Kind, rng: np.random.Generator) -> None:
    """What has been read is returned as it is; reading changes nothing that is given."""
    for _ in range(_ROUNDS):
        context = kind.random_context(rng)
        before = deepcopy(context)
        given = kind.read(context)
        require(same(context, before), "read changed the context")
        require(kind.read(given) is given, "a context that has been read is read again")
        require(isinstance(given.largest(), str), "largest() of a context is not a text")
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
    again = kind.observe(action, answer.observation).reward
    require(np.array_equal(again, reward), f"its observation gives {again}, not {reward}")
    reply = kind.read_feedback(action, feedback)
    require(not reply.outside, f"inside its range: {reply.outside}")
    require(
        np.array_equal(reply.reward, reward), f"read_feedback gives {reply.reward}, not {reward}"
    )


def refuses_what_is_bad(kind: Kind, rng: np.random.Generator) -> None:
    """Wrong shapes, NaN, infinities and words are neither contexts nor feedback."""
    problem, context = kind.problem, kind.random_context(rng)
    action = kind.actions(context, rng)[0]
    for what, bad in bad_contexts(problem, context).items():
        require(is_refused(lambda given=bad: kind.read(given)), f"{what} does not raise")  # type: ignore[misc]
    for what, bad in bad_rewards(problem).items():
        for gate in (kind.observe, kind.read_feedback):
            refused = is_refused(lambda given=bad, gate=gate: gate(action, given))  # type: ignore[misc]
            require(refused, f"{what} does not raise in {gate.__name__}")


def knows_its_extent(kind: Kind, rng: np.random.Generator) -> None:
    """`extent` is above <slope, reward> of every reward, and `corner` is where it is attained."""
    problem, middle = kind.seen, kind.middle()
    inside = (problem.low <= middle) & (middle <= problem.high)
    require(bool(inside.all()), f"the middle {middle} is outside the ranges of the problem")
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
    has_a_problem,
    reads_once,
    refuses_what_is_bad,
    knows_its_extent,
]
