"""The contracts, one screen each.

An object holds its hyper-parameters and never changes; state goes in and comes out; randomness is
an argument; whatever `update` will need travels in the decision.
"""

from __future__ import annotations

from inspect import signature
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import Action, Matrix, Vector
from fairwolfe.core.decision import Choice, Decision
from fairwolfe.core.problem import Problem

__all__ = [
    "Base",
    "Environment",
    "Objective",
    "Oracle",
    "Policy",
    "ScalarPolicy",
    "Smoothing",
    "Stored",
    "keeps",
]

S = TypeVar("S")
W = TypeVar("W")


@runtime_checkable
class Objective(Protocol):
    """A concave function f of the average reward vector z."""

    @property
    def smooth(self) -> bool:
        """Whether the gradient is Lipschitz, so that no smoothing is needed."""

    def value(self, z: Vector) -> float:
        """f(z); -inf outside the domain, never NaN."""

    def gradient(self, z: Vector) -> Vector:
        """A supergradient g: f(y) <= f(z) + <g, y - z> for every y."""

    def prox(self, z: Vector, step: float) -> Vector:
        """argmax_y f(y) - |y - z|^2 / (2 step); NoProx where there is no closed form."""

    def lipschitz(self, n: int) -> float:
        """L in the 2-norm for n rewards (inf where there is none)."""

    def on(self, *coordinates: str | int) -> Objective:
        """f of these coordinates only."""

    def bind(self, problem: Problem) -> Objective:
        """Names become coordinates and sizes are checked; called by `init`."""


@runtime_checkable
class Smoothing(Protocol):
    """A sequence f_t of smooth approximations of f."""

    def value(
        self, objective: Any, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> float:
        """f_t(z), with t rewards already averaged into z."""

    def gradient(
        self, objective: Any, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> Vector:
        """The direction grad f_t(z), or an unbiased estimate of it."""


@runtime_checkable
class Oracle(Protocol):
    """An online regression of the rewards on the features, over which bandits explore."""

    @property
    def learn(self) -> Any:
        """(block, x, reward, *state): takes one observation into the arrays of a state, in place.

        A kernel, as the compiled loop needs it, or a method.
        """

    def init(self, problem: Problem) -> Any:
        """Validate and allocate a state, whose `estimates(arms)` is what rules read."""

    def regret_bound(self, problem: Problem) -> Any:
        """R(t) where the problem says enough for one; OutsideAssumptions otherwise."""


@runtime_checkable
class Base(Protocol[S]):
    """A bandit for the scalar reward <direction, r>."""

    def init(self, problem: Problem) -> S:
        """Validate and allocate."""

    def act(self, state: S, context: Any, direction: Vector, rng: np.random.Generator) -> Choice:
        """Choose; only reads the state."""

    def update(self, state: S, choice: Choice, direction: Vector, feedback: Any) -> S:
        """Learn; may write into the arrays of the state that it consumes."""


@runtime_checkable
class ScalarPolicy(Protocol[S]):
    """A contextual bandit for one reward, which knows of no direction; `Extended` lifts it."""

    def init(self, n_features: int) -> S:
        """Validate and allocate."""

    def act(self, state: S, features: Matrix, rng: np.random.Generator) -> tuple[int, float | None]:
        """An arm, given a row of features for each, and its probability (None: unknown)."""

    def update(
        self, state: S, features: Vector, arm: int, probability: float | None, reward: float
    ) -> S:
        """Learn from the row of the arm that was chosen; may write into the state it consumes."""


@runtime_checkable
class Policy(Protocol[S]):
    """A bandit for a concave function of the average reward vector."""

    def init(self, problem: Problem) -> S:
        """Validate and allocate."""

    def act(self, state: S, context: Any, rng: np.random.Generator) -> Decision:
        """Decide; only reads the state."""

    def update(self, state: S, decision: Decision, feedback: Any) -> S:
        """Learn; may write into the arrays of the state that it consumes."""


@runtime_checkable
class Environment(Protocol[W]):
    """A world that draws contexts and answers actions; the truth is for regret only."""

    def problem(self) -> Problem:
        """What is decided here."""

    def init(self, rng: np.random.Generator) -> W:
        """Draw a world."""

    def context(self, world: W, t: int, rng: np.random.Generator) -> Any:
        """The context of round t."""

    def feedback(self, world: W, context: Any, action: Action, rng: np.random.Generator) -> Any:
        """What is observed after the action."""

    def mean_reward(self, world: W, context: Any, action: Action) -> Vector:
        """The expected reward vector."""

    def best_action(self, world: W, context: Any, direction: Vector) -> Action:
        """The linear oracle."""


@runtime_checkable
class Stored(Protocol):
    """A part of a state that is no array, such as another library's model, but can be saved."""

    def dump(self) -> NDArray[np.uint8]:
        """All that was learnt, as bytes."""

    def load(self, saved: NDArray[np.uint8]) -> None:
        """Become what was dumped."""


def keeps(subject: Any, contract: Any) -> bool:
    """Whether a subject has the methods of a contract and they take the arguments it states."""
    if not isinstance(subject, contract):
        return False
    for name, stated in vars(contract).items():
        if name.startswith("_") or not callable(stated):
            continue
        arguments = [p for p in signature(stated).parameters if p != "self"]
        try:
            signature(getattr(subject, name)).bind(*arguments)
        except TypeError:
            return False
    return True
