"""`Rule`: a bandit in plain Python that chooses from the estimates of a linear regression."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from fairwolfe.bandits.choosing import (
    PROBABILITY,
    BanditState,
    Evidence,
    LinearBandit,
    Reasons,
    vector_of,
)
from fairwolfe.core.arrays import Vector
from fairwolfe.core.contexts import arms
from fairwolfe.core.decision import Choice, Info
from fairwolfe.core.problem import Problem
from fairwolfe.errors import NumericalFailure
from fairwolfe.kernels import rules
from fairwolfe.kernels.compile import Kernel
from fairwolfe.kernels.ridge import Regression as Model
from fairwolfe.oracles import Regression, Ridge

__all__ = ["Rule", "model_of"]


class Rule(LinearBandit):
    """A bandit of one method, `choose_arm`; the regression, agents and simulations are there.

    A subclass is a frozen dataclass, whose fields are its settings. The regression is `Ridge()`;
    override `regression` for another. The compiled loop of `simulate` calls `choose_arm` once a
    round, with the same numbers as `act` does, so that both loops make the same decisions. For
    speed, `choose_arm` may be a `scipy.LowLevelCallable` of `fairwolfe.kernels.rules.SIGNATURE`.

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

    choose: ClassVar[Any] = None  # not a kernel
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

    @cached_property
    def regression(self) -> Regression:
        """The oracle."""
        return Ridge()

    def rule_params(self, problem: Problem) -> Vector:
        return np.empty(0)

    @property
    def compiles(self) -> bool:
        """Whether `choose_arm` says all: the compiled loop calls nothing else."""
        kind = type(self)
        own = (kind.act, kind.update, kind.draws, kind.uniforms, kind.extended)
        plain = (Rule.act, Rule.update, Rule.draws, Rule.uniforms, Rule.extended)
        return own == plain

    def kernels(self, problem: Problem) -> Iterator[Kernel[..., Any]]:
        return (kernel for kernel in super().kernels(problem) if kernel is not None)

    def act(
        self,
        state: BanditState,
        context: Any,
        direction: Vector,
        rng: np.random.Generator,
        *,
        estimate: bool = False,
        look: tuple[Vector, Vector] | None = None,
    ) -> Choice:
        """Choose an arm for the scalar reward <direction, r>; only reads the state."""
        problem, given = state.problem, arms(context, state.problem)
        g = vector_of("direction", direction, problem)
        learnt = state.oracle.estimates(given)
        features, per_arm = learnt.features, learnt.per_arm
        places = given.places if per_arm else None
        if places is not None:  # the blocks of the arms that may be chosen
            learnt = learnt._replace(theta=learnt.theta[places], inverse=learnt.inverse[places])
        model, rule = model_of(learnt), rules.own_rule(self.choose_arm)
        drawn = np.ascontiguousarray(self._drawn(rng, problem, 1)[0])
        arm, probability, values = rules.choose(
            rule.name, model, g, features, per_arm, drawn, rule.params
        )
        if arm < 0:
            raise rule.failure() or NumericalFailure("the rule chose no arm")
        block = arm if per_arm else 0
        x = np.array(features[0 if per_arm else arm])
        expected = np.clip(learnt.theta[block] @ x, problem.low, problem.high) if estimate else None
        outlook = None
        if look is not None:
            slope, doubt = look
            known = np.concatenate([problem.low, problem.high, doubt])
            name = "optimistic" if learnt.inverse.size else "plain"
            outlook = rules.look(name, model, slope, g, features, per_arm, arm, known)
        record = np.zeros(PROBABILITY + 1)
        record[-4:] = values[arm], values[arm], arm, probability
        info = Info(Reasons(record), expected, outlook)
        known_by = None if math.isnan(probability) else probability
        if not self.commits:  # the features of the arm, not what the oracle makes of them
            return Choice(arm, known_by, Evidence(0, given.row(arm).copy()), info)
        place = block if places is None else int(places[block])
        return Choice(arm, known_by, Evidence(place, x), info)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return (cls(),)


def model_of(learnt: Any) -> Model:
    """Estimates as the compiled rules read them; what only learning needs is left out."""
    theta, inverse = learnt.theta, learnt.inverse
    counters = np.concatenate([learnt.counters, np.zeros(max(0, 5 - learnt.counters.size))])
    if inverse.size:
        return Model(inverse, inverse, theta, theta, np.ones(1), counters)
    blocks, n, _ = theta.shape
    rest = np.zeros((blocks, n, 1)), np.ones(1 + n)
    return Model(inverse, inverse, theta, *rest, counters, learn="online_gradient")
