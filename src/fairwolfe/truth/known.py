"""`known`: Frank-Wolfe that knows the world, the reference every bandit is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.candidates import Candidates
from fairwolfe.core.contexts import Arms, Bilinear, PerArm
from fairwolfe.core.decision import Choice, Decision
from fairwolfe.core.problem import Problem
from fairwolfe.core.protocols import Environment
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Concave
from fairwolfe.reduction import FrankWolfe


@dataclass(frozen=True, eq=False)
class _Oracle:
    """The base that has nothing to learn: the environment's best action for the direction."""

    environment: Any
    world: Any

    @property
    def decides(self) -> str:
        kind: str = self.environment.problem().kind
        return kind

    def init(self, problem: Problem) -> None:
        return None

    def act(self, state: None, context: Any, direction: Vector, rng: np.random.Generator) -> Choice:
        # The environment knows its own form of a context, not the policies'.
        if isinstance(context, Arms):
            context = PerArm(context.features[0]) if context.per_arm else context.features
        elif isinstance(context, Candidates):
            items = context.items.T.copy()
            pair = isinstance(self.environment.problem().n_features, tuple)
            context = Bilinear(context.user, items) if pair else items
        return Choice(self.environment.best_action(self.world, context, direction), 1.0, None)

    def update(self, state: None, choice: Choice, direction: Vector, observation: Any) -> None:
        return None


@dataclass(frozen=True)
class ReferencePolicy:
    """What `known` returns: a policy for `simulate`, which lets it meet the world of its seed."""

    environment: Any
    objective: Concave
    smoothing: Any = None

    def in_world(self, world: Any) -> FrankWolfe:
        """The policy in a world of the environment."""
        return FrankWolfe(self.objective, _Oracle(self.environment, world), self.smoothing)

    def init(self, problem: Problem) -> Any:
        """Raises: it needs a world first."""
        raise InvalidInput(
            "a known(...) policy must meet a world before it starts; use simulate, or "
            "policy.in_world(environment.init(rng))"
        )

    def act(self, state: Any, context: Any, rng: np.random.Generator) -> Decision:
        """Raises, like `init`."""
        return self.init(state)  # type: ignore[no-any-return]

    def update(self, state: Any, decision: Decision, feedback: Any) -> Any:
        """Raises, like `init`."""
        return self.init(state)


def known(environment: Any, objective: Concave, smoothing: Any = None) -> ReferencePolicy:
    """Frank-Wolfe with the true mean rewards: no exploration, no estimation error.

    Each round it takes the best action for grad f_t at the average of the rewards so far. What it
    reaches is what the reduction leaves of f* after t rounds; a bandit's distance to it is the
    price of learning.

    >>> from fairwolfe.environments import Finite
    >>> from fairwolfe.objectives import Minimum
    >>> from fairwolfe.simulation import simulate
    >>> world = Finite.a2()
    >>> round(float(simulate(known(world, Minimum()), world, 1000).value[-1]), 2)
    0.49
    """
    if not isinstance(environment, Environment):
        raise InvalidInput(f"the environment is {environment!r}; see fw.environments")
    if not isinstance(objective, Concave):
        raise InvalidInput(f"the objective is {objective!r}; give one of fw.objectives")
    return ReferencePolicy(environment, objective, smoothing)
