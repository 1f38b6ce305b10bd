"""`LinearBandit`: the contract Base as a rule over an online regression, and `Rule`, its form for
authors, of one method. Parameters of confidence widths are `shared_doubt`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from fairwolfe.core.arrays import Cube, Matrix, Vector
from fairwolfe.core.contexts import Arms, arms
from fairwolfe.core.decision import Choice, Learnt
from fairwolfe.core.kinds import require_kind
from fairwolfe.core.problem import Problem, number_where
from fairwolfe.core.protocols import LinearRule, Oracle, newest
from fairwolfe.core.tables import short
from fairwolfe.errors import InvalidInput, NumericalFailure
from fairwolfe.kernels import rules
from fairwolfe.kernels.gates import largest_square_norm
from fairwolfe.kernels.limits import row_limit
from fairwolfe.kernels.ridge import Regression as Model
from fairwolfe.oracles import LinearState, OnlineGradient, Ridge
from fairwolfe.oracles.linear_regression import (
    Estimates,
    learn,
    noise_scales,
    parameter_norms,
    raise_useless,
    repair,
)

Exploration = float | Literal["pointwise", "theorem"]
"""How much of the theory's bonus is added, the name of the bonus that replaces it, or "theorem" for
all of the theory's."""

_POINTWISE = -1.0  # in the place of the exploration in params, where numbers are 0 or more
_NAMED = {"pointwise": _POINTWISE, "theorem": 1.0}


def exploration_number(exploration: Any) -> float:
    """What params have for an exploration: itself, 1 for "theorem", or -1 for "pointwise"."""
    if isinstance(exploration, str) and exploration in _NAMED:
        return _NAMED[exploration]
    allowed = "a number of at least 0, 'pointwise' or 'theorem'"
    return number_where("exploration", exploration, lambda number: number >= 0.0, allowed)


def shared_doubt(problem: Problem, ridge: float, delta: float, exploration: float = 1.0) -> Vector:
    """Of the bonus in a shared model: exploration, 2 ln(1/delta_1); R_i; sqrt(ridge) D_theta_i.

    With exploration 1 the scores are upper bounds with probability 1 - delta, at all times.
    """
    head = [exploration, 2.0 * math.log(2.0 * problem.n_objectives / delta)]
    prior = math.sqrt(ridge) * parameter_norms(problem)
    return np.concatenate([head, noise_scales(problem), prior])


_STEEP = 1e6  # a slope that no smoothed objective has where features and rewards are scaled
_LEARN: dict[type, str] = {Ridge: "ridge", OnlineGradient: "online_gradient"}
# By the engine, where it runs.
_REPLACED = "act", "update", "draws", "choose", "estimate", "certify"


class Evidence(NamedTuple):
    """What learning from a choice needs: the block of the design, and the features of the arm."""

    block: int
    x: Vector  # (d,)


class BanditState(NamedTuple):
    """A problem with the rule's parameters for it, and the oracle's arrays."""

    problem: Problem
    params: Vector
    oracle: Any  # the state of the oracle, such as a LinearState


class LinearBandit(ABC):
    """A rule over an oracle: the contract Base, in three short methods."""

    rule_name: str
    """Of the compiled rule, see `kernels.rules.choose_by_name`."""
    needs_direction: ClassVar[bool] = True
    """Whether the rule uses the direction at all."""
    extended = False
    """Whether it regresses <g, r> on the features g (x) x instead of r on x: the direction is then
    part of what is learnt, and travels in the decision."""
    delta = 0.05
    """delta', the level of the confidence widths."""
    lipschitz: float | None = None
    """L of the objective, where the bandit has to know it."""
    uniforms: ClassVar[int] = 0
    """How many numbers in [0, 1) the rule draws in a round."""

    @cached_property
    def regression(self) -> Oracle:
        """The oracle: the field `oracle` where one was given, else Ridge with the field `ridge`."""
        oracle: Oracle | None = getattr(self, "oracle", None)
        return Ridge(getattr(self, "ridge", 1.0)) if oracle is None else oracle

    def rule_params(self, problem: Problem) -> Vector:
        """What the compiled rule takes as params."""
        return np.empty(0)

    def draws(self, rng: np.random.Generator, problem: Problem, n: int) -> Matrix:
        """What the rule draws in n rounds, a row for each; the same numbers for n calls of one."""
        return rng.random((n, self.uniforms))

    def rule(self, problem: Problem) -> LinearRule | None:
        """What the compiled engine needs, with fresh arrays; None where it would not do the same:
        for another oracle, or where a subclass replaces a method that the engine does not call.
        """
        known = _LEARN.get(type(self.regression))
        if known is None or not all(newest(self, "rule_name", method) for method in _REPLACED):
            return None
        state = self.init(problem)
        return LinearRule(
            name=self.rule_name,
            params=state.params,
            learn=known,
            regression=state.oracle,
            limit=self.limit(problem),
            uniforms=self.draws(np.random.default_rng(0), problem, 1).shape[1],
            uniform=type(self).draws is LinearBandit.draws,
            certificate=self.certificate_name,
            extended=self.extended,
        )

    def init(self, problem: Problem) -> BanditState:
        """Validate and allocate."""
        require_kind("arms", problem, type(self).__name__)
        return BanditState(problem, self.rule_params(problem), self.regression.init(problem))

    def act(
        self, state: BanditState, context: Any, direction: Vector, rng: np.random.Generator
    ) -> Choice:
        """Choose an arm for the scalar reward <direction, r>; only reads the state."""
        problem = state.problem
        given = arms(context, problem)
        g = vector_of("direction", direction, problem)
        learnt = _estimates(state, given)
        drawn = np.ascontiguousarray(self.draws(rng, problem, 1)[0])
        arm, probability, scores = self.choose(state, learnt, g, drawn)
        if arm < 0:
            raise_useless(state.oracle.counters)
        value = _value(g, *_of_arm(learnt, arm))
        reasons = {"arm": arm, "value": value, "exploration": float(scores[arm]) - value}
        block = arm if given.per_arm else 0
        if given.per_arm and given.places is not None:
            block = int(given.places[arm])
        evidence = Evidence(block, given.row(arm).copy())
        return Choice(arm, None if math.isnan(probability) else probability, evidence, [reasons])

    def choose(
        self, state: BanditState, learnt: Estimates, direction: Vector, draws: Vector
    ) -> tuple[int, float, Vector]:
        """The arm (-1: the state is useless), its probability (NaN: unknown), and all scores."""
        return _choose(self.rule_name, state.params, learnt, direction, draws)

    def update(
        self, state: BanditState, choice: Choice, direction: Vector, observation: Vector
    ) -> BanditState:
        """Learn from the observed reward vector, in place."""
        problem = state.problem
        block, x = self._arm(problem, choice)
        reward = vector_of("reward", observation, problem)
        if self.extended:
            x, reward = rules.lesson(vector_of("direction", direction, problem), x, reward)
        if not largest_square_norm(x[None]) <= self.limit(problem):
            raise self._refusal(problem, choice)
        learn(self.regression, state.oracle, block, x, reward)
        return state

    def _arm(self, problem: Problem, choice: Choice) -> tuple[int, Vector]:
        """The block and x (d,); they may come from bytes or an author, and kernels trust them."""
        try:
            block, x = choice.evidence
            whole = x.flags.c_contiguous and x.flags.aligned
            fits = whole and x.dtype == np.float64 and x.shape == (problem.dimension,)
        except (TypeError, ValueError, AttributeError):
            block, fits = -1, False
        if not (fits and type(block) is int and 0 <= block < (problem.n_arms or 1)):
            raise self._refusal(problem, choice)
        return block, x

    def _refusal(self, problem: Problem, choice: Choice) -> InvalidInput:
        return InvalidInput(
            f"the evidence of the choice is {short(choice.evidence, 120)}; the problem has "
            f"{problem.dimension} features and {problem.n_arms or 1} blocks, and at most a norm of "
            f"{self.limit(problem) ** 0.5:g} can be learnt from"
        )

    def limit(self, problem: Problem) -> float:
        """Of the squared norm of what is learnt from."""
        ridge = self.regression.ridge if isinstance(self.regression, Ridge) else 0.0
        limit = row_limit(problem, ridge)
        if self.extended:
            # Directions are gradients of f, at most its Lipschitz constant long where it has one.
            limit *= max(1.0, min(self.lipschitz or 1.0, _STEEP))
        return limit * limit

    # --- what was learnt ----------------------------------------------------------------------

    def estimate(self, state: BanditState, context: Any, choice: Choice) -> Vector:
        """theta x of a choice, projected on the ranges of the rewards, (D,)."""
        problem = state.problem
        theta, x = _of_arm(_estimates(state, arms(context, problem)), choice.action)
        model = _model(theta[None], np.empty((1, 0, 0)), state.oracle.counters)
        predicted: Vector = model.predictions(x[None], problem.low, problem.high)[0]
        return predicted

    def learnt(self, state: BanditState) -> Learnt:
        """What was learnt of the rewards."""
        return Learnt(state.oracle)

    def repair(self, state: BanditState) -> float:
        """Recompute the inverse and the estimates from the design; how large their error was."""
        return repair(state.oracle) if isinstance(state.oracle, LinearState) else 0.0

    def drift(self, state: BanditState) -> float:
        """The error of the inverse when it was last recomputed; 0 where none is kept."""
        return state.oracle.drift if isinstance(state.oracle, LinearState) else 0.0

    # --- live numbers -------------------------------------------------------------------------

    @property
    def certificate_name(self) -> str:
        """How the arms are compared, see `kernels.rules.certify_by_name`."""
        if self.extended:
            return "extended"
        return "optimistic" if isinstance(self.regression, Ridge) else "plain"

    def bound_params(self, problem: Problem) -> Vector:
        """What turns estimates into upper bounds; empty where the oracle has no widths."""
        if not isinstance(self.regression, Ridge):
            return np.empty(0)
        return shared_doubt(problem, self.regression.ridge, self.delta)

    def certify(
        self,
        state: BanditState,
        context: Any,
        direction: Vector,
        choice: Choice,
        slope: Vector,
        bound_params: Vector,
    ) -> Vector:
        """Of <slope, r>: the largest optimistic value in the context; how much more than the
        choice, and than the better of it and the greedy one, was to be had by the estimates; how
        much more a hardly tried arm may be worth. slope (D,), bound_params: of `bound_params`.
        """
        problem = state.problem
        learnt = _estimates(state, arms(context, problem))
        found: Vector = rules.certificate_terms(
            self.certificate_name,
            _model(*learnt[:3]),
            vector_of("slope", slope, problem),
            vector_of("direction", direction, problem),
            learnt.features,
            learnt.per_arm,
            choice.action,
            np.concatenate([problem.low, problem.high, bound_params]),
        )
        return found


def _choose(
    name: str, params: Vector, learnt: Estimates, direction: Vector, draws: Vector
) -> tuple[int, float, Vector]:
    """What the compiled rule of this name chooses; see `LinearBandit.choose`."""
    arms = learnt.features, learnt.per_arm
    return rules.choose(name, _model(*learnt[:3]), direction, *arms, draws, params)


def _estimates(state: BanditState, given: Arms) -> Estimates:
    """What the oracle estimates of the arms that may be chosen."""
    learnt: Estimates = state.oracle.estimates(given)
    if given.places is None or not learnt.per_arm:
        return learnt
    places = given.places
    return learnt._replace(theta=learnt.theta[places], inverse=learnt.inverse[places])


def _of_arm(learnt: Estimates, arm: Any) -> tuple[Matrix, Vector]:
    """theta (D, d) and x (d,) of an arm; an extended model has its D d numbers in one row."""
    block, place = (arm, 0) if learnt.per_arm else (0, arm)
    x = learnt.features[place]
    return learnt.theta[block].reshape(-1, x.size), x


def _value(direction: Vector, theta: Matrix, x: Vector) -> float:
    """<direction, theta x>, summed in order, as the engine does."""
    along: Vector = np.cumsum(direction[:, None] * theta, axis=0)[-1]
    return 0.0 + float(np.cumsum(along * x)[-1])


def _model(theta: Cube, inverse: Cube, counters: Vector) -> Model:
    """Estimates as the compiled rules read them; what only learning needs is left out."""
    counters = np.concatenate([counters, np.zeros(max(0, 5 - counters.size))])
    if inverse.size:
        return Model(inverse, inverse, theta, theta, np.ones(1), counters)
    blocks, n, _ = theta.shape
    rest = np.zeros((blocks, n, 1)), np.ones(1 + n)
    none = np.empty((blocks, 0, 0))
    return Model(none, none, theta, *rest, counters, learn="online_gradient")


def vector_of(name: str, values: Vector, problem: Problem) -> Vector:
    """A vector of a number for each reward, (D,), as compiled code reads it."""
    vector = np.ascontiguousarray(values, dtype=np.float64)
    if vector.shape != (problem.n_objectives,):
        raise InvalidInput(
            f"the {name} has shape {vector.shape}; give {problem.n_objectives} numbers, one for "
            f"each of {', '.join(problem.rewards)}"
        )
    return vector


class Rule(LinearBandit):
    """A bandit of one method, `choose_arm`; the regression, agents and simulations are there.

    A subclass is a frozen dataclass, whose fields are its settings. The regression is `Ridge()`;
    override `regression` for another. The compiled engine calls `choose_arm` once a decision, with
    the same numbers as `act` does, so that both make the same decisions. For speed, `choose_arm`
    may be a `scipy.LowLevelCallable` of `fairwolfe.kernels.rules.SIGNATURE`.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Optimist(Rule):
    ...     bonus: float = 1.0
    ...
    ...     def choose_arm(self, values, widths, t, uniform):
    ...         return int((values + self.bonus * widths).argmax()), 1.0
    >>> base, problem = Optimist(), Problem.arms(2, {"clicks": (0, 1)})
    >>> base.act(base.init(problem), np.diag([1.0, 2.0]), np.ones(1), np.random.default_rng(0))[:2]
    (1, 1.0)
    """

    rule_name = "python"
    uniforms: ClassVar[int] = 1

    @abstractmethod
    def choose_arm(
        self, values: Vector, widths: Any, t: int, uniform: float
    ) -> tuple[int, float | None]:
        """The arm for the scalar reward <direction, r>, and its probability, None if unknown.

        values (arms,): the estimates of <direction, r>; widths (arms,): |x_a| in the norm of V^-1,
        None where the regression keeps no design; t: how many rewards were learnt; uniform: a
        number in [0, 1), the only chance there is.
        """

    @staticmethod
    def drawn(probabilities: Vector, uniform: float) -> tuple[int, float]:
        """The arm that a uniform number in [0, 1) falls on, and its probability.

        >>> Rule.drawn(np.array([0.2, 0.0, 0.8]), 0.5)
        (2, 0.8)
        """
        arm = int(np.searchsorted(np.cumsum(probabilities), uniform, side="right"))
        if arm == len(probabilities):  # they sum to a little less than 1
            arm = int(np.flatnonzero(probabilities)[-1])
        return arm, float(probabilities[arm])

    @cached_property
    def regression(self) -> Oracle:
        """The oracle."""
        return Ridge()

    def rule(self, problem: Problem) -> LinearRule | None:
        """What the compiled engine needs; None where `choose_arm` does not say all."""
        found = super().rule(problem)
        if found is None or found.uniforms != 1 or self.extended:
            return None
        own = rules.own_rule(self.choose_arm)
        return found._replace(name=own.name, params=own.params, own=own)

    def choose(
        self, state: BanditState, learnt: Estimates, direction: Vector, draws: Vector
    ) -> tuple[int, float, Vector]:
        """What `choose_arm` returns, or raises."""
        own = rules.own_rule(self.choose_arm)
        chosen = _choose(own.name, own.params, learnt, direction, draws)
        if chosen[0] < 0:
            raise own.failure() or NumericalFailure("the rule chose no arm")
        return chosen

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return (cls(),)
