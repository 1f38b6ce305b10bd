"""Policies to be evaluated, as probabilities of all arms in the logged contexts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fairwolfe.agent import Agent
from fairwolfe.bandits.base import LinearBandit
from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.protocols import LinearRule
from fairwolfe.errors import InvalidInput, did_you_mean
from fairwolfe.kernels.mixtures import ascend_arms
from fairwolfe.kernels.rules import distributions
from fairwolfe.offpolicy.decisions import ContextPart
from fairwolfe.offpolicy.learning import Crossed
from fairwolfe.offpolicy.sums import About
from fairwolfe.oracles import LinearState
from fairwolfe.reduction.frank_wolfe import FrankWolfe

Target = Callable[[slice, ContextPart], Matrix]
"""Probabilities (rows, K) of a policy for the decisions of a span, whose contexts are the part."""

_ROUNDING = 1e-6  # of a sum of probabilities


def frozen(agent: Agent) -> Target:
    """The policy of an agent as it is now: its estimates, its average and f."""
    policy = agent.policy
    if not isinstance(policy, FrankWolfe) or not isinstance(policy.base, LinearBandit):
        raise InvalidInput(
            f"the probabilities of {policy!r:.80} are not known for actions that it did not take; "
            "give an agent of FrankWolfe over a bandit of fw.bandits, or probabilities"
        )
    with agent.held() as running:
        rule = _readable(running.base, agent.problem)
        if running.smoothing.averaged or rule is None:
            raise InvalidInput(
                f"{policy!r:.80} does not know the probabilities of its actions; use SquareCB, "
                "EpsilonGreedy, LinUCB or Uniform with a linear oracle, and no randomised smoothing"
            )
        direction = running.direction()
        oracle = LinearState(*map(np.array, running.base_state.oracle))
    return _ruled(running.base, rule, direction, oracle)


def _readable(base: LinearBandit, problem: Any) -> LinearRule | None:
    """A compiled rule that draws at most one number in [0, 1); None for another one."""
    rule = base.rule(problem)
    drawn = type(base).draws is LinearBandit.draws and base.uniforms <= 1
    return rule if drawn else None


def _ruled(base: LinearBandit, rule: LinearRule, direction: Vector, oracle: LinearState) -> Target:
    def some(features: Cube, per_arm: bool, blocks: Any, n_arms: int) -> Matrix:
        out = np.empty((len(features), n_arms))
        own = oracle
        if blocks is not None:
            parts = ("gram", "inverse", "theta", "moment")
            own = oracle._replace(**{name: getattr(oracle, name)[blocks] for name in parts})
        tree, steps, rate = rule.ascent
        if tree is not None:  # it draws nothing
            out[:] = 0.0
            for row, x in zip(out, features, strict=True):
                row[ascend_arms(tree, own.theta, x, per_arm, steps, rate, np.empty(n_arms))] = 1.0
            return out
        wrong = distributions(
            rule.name, own.model(), direction, features, per_arm, rule.uniforms, rule.params, out
        )
        raised = None if rule.own is None else rule.own.failure()
        if raised is not None:
            raise raised
        if wrong:
            raise InvalidInput(f"{base!r:.80} does not say the probabilities of its arms")
        return out

    def probabilities(span: slice, part: ContextPart) -> Matrix:
        features = np.ascontiguousarray(part.known_features("so an agent cannot decide in them"))
        if part.mask is None:
            return some(features, part.per_arm, None, part.n_arms)
        out = np.zeros((part.n, part.n_arms))
        patterns, which = np.unique(part.mask, axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):  # contexts with the same arms go together
            rows, arms = np.flatnonzero(which.reshape(-1) == number), np.flatnonzero(pattern)
            own = features[rows] if part.per_arm else features[np.ix_(rows, arms)]
            blocks = arms if part.per_arm else None
            chances = some(np.ascontiguousarray(own), part.per_arm, blocks, arms.size)
            out[np.ix_(rows, arms)] = chances
        return out

    return probabilities


def target_of(policy: Any, about: About) -> Target:
    """The probabilities of what is given as a policy, checked where they are used."""
    return _checked(_target(policy, about))


def _target(policy: Any, about: About) -> Target:
    if isinstance(policy, Agent):
        if policy.problem.kind != "arms":
            raise InvalidInput("the agent ranks items, and the log has arms; give one for arms")
        if policy.problem.dimension != about.problem.dimension:
            raise InvalidInput(
                f"the agent's problem has {policy.problem.dimension} features, and the log's "
                f"{about.problem.dimension}; give an agent for the problem of the log"
            )
        return frozen(policy)
    if isinstance(policy, LinearBandit):
        if policy.needs_direction and type(policy).__name__ != "Uniform":
            raise InvalidInput(
                f"{policy!r:.80} has learnt nothing yet; give an agent, such as log.agent(f, base)"
            )
        rule = _readable(policy, about.problem)
        if rule is None:
            raise InvalidInput(f"{policy!r:.80} does not say the probabilities of its arms")
        return _ruled(policy, rule, np.zeros(about.problem.n_objectives), rule.regression)
    if isinstance(policy, Crossed):
        return policy.rows
    if hasattr(policy, "distribution"):
        return lambda span, part: policy.distribution(part)
    if isinstance(policy, str):
        return _always(arm_number(policy, about))
    if _is_arm(policy):
        return _always(int(policy))
    if callable(policy):
        return _each(lambda i, context: policy(context()), about)
    return _array(policy, about)


def _array(given: Any, about: About) -> Target:
    values = _as_array(given)
    if values is None:
        return _listed(given, about)
    if values.shape[:1] != (about.n,) or values.ndim > 2:
        raise InvalidInput(
            f"the policy has shape {values.shape}; give probabilities ({about.n}, arms), or "
            f"{about.n} actions: one for each logged decision"
        )
    if values.ndim == 1:
        if values.dtype.kind == "U":
            names, places = np.unique(values, return_inverse=True)
            return _actions(np.array([arm_number(str(name), about) for name in names])[places])
        if values.dtype.kind not in "iu":
            raise InvalidInput(
                "the policy is one number for each decision, and not whole: give actions as whole "
                "numbers, or probabilities of all arms"
            )
        return _actions(values.astype(np.int64))
    return lambda span, part: np.array(values[span], dtype=np.float64)


def _as_array(given: Any) -> Any:
    if isinstance(given, np.ndarray):
        return given
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise InvalidInput(
            f"the policy is {given!r:.80}; give probabilities, actions, a function of a context, "
            "an agent, or what log.learn returned"
        )
    try:
        values = np.array(given)
        return values if values.dtype.kind in "fiuU" else None
    except ValueError:  # rows of different lengths
        return None


def _listed(given: Any, about: About) -> Target:
    """Probabilities in lists of different lengths."""
    if len(given) != about.n:
        raise InvalidInput(
            f"the policy has {len(given)} rows, and the log {about.n} decisions; give one each"
        )
    return _each(lambda i, context: given[i], about)


def _each(answer: Callable[[int, Callable[[], Matrix]], Any], about: About) -> Target:
    """The policy of answers (decision, context) -> probabilities, or an arm by number or name."""

    def probabilities(span: slice, part: ContextPart) -> Matrix:
        out = np.zeros((part.n, part.n_arms))
        for i in range(part.n):
            given = answer(span.start + i, partial(part.context, i))
            if isinstance(given, str):
                given = arm_number(given, about)
            if _is_arm(given):
                _check_arms(np.array([given]), span.start + i, part)
                out[i, given] = 1.0
                continue
            values = np.asarray(given, dtype=np.float64)
            if values.ndim != 1 or values.size > part.n_arms:
                raise InvalidInput(
                    f"decision {span.start + i}: the policy gives {given!r:.80}; the context has "
                    f"{part.n_arms} arms, so give a probability for each"
                )
            out[i, : values.size] = values
        return out

    return probabilities


def arm_number(name: str, about: About) -> int:
    """The number of an arm, by its name."""
    if about.arms is None:
        raise InvalidInput(
            f"the policy is {name!r:.40}; the log has no names of arms, so the only text is "
            "'logged'"
        )
    if name not in about.arms:
        raise InvalidInput(f"the log has no arm {name!r:.40}; {did_you_mean(name, about.arms)}")
    return about.arms.index(name)


def _is_arm(given: Any) -> bool:
    return isinstance(given, (int, np.integer)) and not isinstance(given, bool)


def _always(arm: int) -> Target:
    return _certain(lambda span: np.full(span.stop - span.start, arm))


def _actions(actions: IntVector) -> Target:
    return _certain(lambda span: actions[span])


def _certain(chosen: Callable[[slice], IntVector]) -> Target:
    def certain(span: slice, part: ContextPart) -> Matrix:
        own = chosen(span)
        _check_arms(own, span.start, part)
        out = np.zeros((part.n, part.n_arms))
        out[np.arange(part.n), own] = 1.0
        return out

    return certain


def _check_arms(actions: IntVector, start: int, part: ContextPart) -> None:
    bad = np.flatnonzero((actions < 0) | (actions >= part.n_arms))
    if bad.size:
        raise InvalidInput(
            f"decision {start + int(bad[0])}: the policy chooses {actions[bad[0]]}, and the log "
            f"has arms 0 to {part.n_arms - 1} there; give a policy over the same actions"
        )


def _checked(target: Target) -> Target:
    """What is not a distribution over the arms that could be chosen raises, with its number."""

    def probabilities(span: slice, part: ContextPart) -> Matrix:
        pi = target(span, part)
        if pi.shape != (part.n, part.n_arms):
            raise InvalidInput(
                f"the policy gives probabilities of shape {pi.shape} for {part.n} decisions with "
                f"{part.n_arms} arms; give a policy over the same actions"
            )
        wrong = ~(np.isfinite(pi).all(axis=1) & (pi >= 0.0).all(axis=1))
        wrong |= ~(np.abs(pi.sum(axis=1) - 1.0) <= _ROUNDING)
        if wrong.any():
            i = int(wrong.argmax())
            raise InvalidInput(
                f"decision {span.start + i}: the policy's probabilities are "
                f"{pi[i].round(6).tolist()!s:.120}; give numbers of at least 0 that sum to 1"
            )
        outside = ((pi > 0.0) & ~part.allowed()).any(axis=1)
        if outside.any():
            raise InvalidInput(
                f"decision {span.start + int(outside.argmax())}: the policy chooses an arm that "
                "was not there or could not be chosen; give a policy over the same actions"
            )
        return pi

    return probabilities
