"""The contracts for authors, one screen each.

An object holds its hyper-parameters and never changes; state goes in and comes out; randomness is
an argument; whatever `update` will need travels in the decision. What a class may have besides its
contract is listed in the docstring of the contract, and found by name: a class without an optional
method or attribute lacks only what it adds. `fairwolfe check module:Class` tests all of it on the
instances that the classmethod `examples()` of a class returns.
"""

from __future__ import annotations

from inspect import signature
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from fairwolfe.core.arrays import Action, Matrix, Vector
from fairwolfe.core.decision import Choice, Decision
from fairwolfe.core.problem import Problem

__all__ = [
    "Base",
    "Environment",
    "LinearRule",
    "Objective",
    "Oracle",
    "Policy",
    "RankingRule",
    "ScalarPolicy",
    "Smoothing",
    "keeps",
    "newest",
]

S = TypeVar("S")
W = TypeVar("W")


@runtime_checkable
class Objective(Protocol):
    """A concave function f of the average reward vector z.

    Optional, with what happens without it; all are there in subclasses of `Concave`:

    - ``smoothness(n)``: C, the Lipschitz constant of the gradient for n coordinates, where `smooth`
      is true; the checks then look for jumps of the gradient only
    - ``constrained``: whether f has hard constraints; it has none
    - ``size``: the only number of coordinates that fits; any fits
    - ``n_users``: how many user-side rewards it takes beside the exposures of items
    - ``describe(problem)``: what it is, in words
    """

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
        """L in the 2-norm for n rewards (inf if it has none)."""

    def on(self, *coordinates: str | int) -> Objective:
        """f of these coordinates only."""

    def bind(self, problem: Problem) -> Objective:
        """Names become coordinates and sizes are checked; called by `init`."""


@runtime_checkable
class Smoothing(Protocol):
    """A sequence f_t of smooth approximations of f.

    Optional: ``horizon``, the number of rounds that the widths are fixed for; without it, or where
    it is None, they shrink like 1/sqrt(t + 1).
    """

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
    """An online regression of the rewards on the features, over which bandits explore.

    Optional: ``blocks_are_flat``, False where `PerArm` contexts are not only short for their flat
    form e_a (x) x, as for trees; without it they are.
    """

    def init(self, problem: Problem) -> Any:
        """Validate and allocate a state: a NamedTuple of arrays, whose `estimates(arms)` is what
        rules read.
        """

    def learn(self, block: int, x: Vector, reward: Vector, *state: Any) -> None:
        """Take one observation into the arrays of a state, in place. x (d,), reward (D,)."""

    def regret_bound(self, problem: Problem) -> Any:
        """R(t) where the problem has enough numbers for one; OutsideAssumptions otherwise."""


@runtime_checkable
class Base(Protocol[S]):
    """A bandit for the scalar reward <direction, r>.

    Its state is a NamedTuple of arrays, or has parts with ``dump() -> bytes array`` and
    ``load(array)``, so that an agent can be saved; ``restored()`` of a part may raise
    IncompatibleState for arrays that no observations can have produced.

    Optional attributes, with their defaults:

    - ``decides``: the name of the kind of decision; "arms"
    - ``needs_direction``: where it is False no direction is computed; True
    - ``extended``: where it is True the direction of a decision travels in it, for `update`; False
    - ``exposure``: of a ranker, what counts as exposed: "observed", "shown" or "until_last_click"
    - ``randomize``: of a ranker, how often it swaps slots at random; where it is 0 its rankings are
      known, and can be evaluated from a log
    - ``regression``: the `Oracle` that it explores over, named in messages

    Optional methods:

    - ``rule(problem)``: a `LinearRule` or a `RankingRule` for the compiled engine, which
      makes the same choices; without it, or where it returns None, `act` and `update` run in
      Python
    - ``draws(rng, problem, n)``: what n decisions draw, a row for each; only with a rule
    - ``estimate(state, context, choice)``: the reward vector to expect (n_objectives,), cut to the
      ranges; without it open decisions do not count
    - ``bound_params(problem)``, ``delta`` and
      ``certify(state, context, direction, choice, slope, params)``: for live numbers; the
      parameters and the level of upper bounds, and (4,) of <slope, r> in a context: best, missed,
      spare, untried; of rankers (2, k), best and missed by slot. Without them nothing is guaranteed
    - ``tuned(lipschitz)``: the same with the Lipschitz constant of f filled in where it was left
      open
    - ``learnt(state)``: a `Learnt`, estimates of each reward; without it there is no what-if
    - ``repair(state)``, ``drift(state)``: recompute in place what is kept of the regression, and
      how far off it was; without them nothing is recomputed
    - ``catalogue(state)``, ``with_items(state, features)``, ``without_items(state, ids)``,
      ``with_features(state, features)``, ``resume(problem, catalogue)``: of a ranker whose items
      come and go; without them its set of items is fixed
    """

    def init(self, problem: Problem) -> S:
        """Validate and allocate."""

    def act(self, state: S, context: Any, direction: Vector, rng: np.random.Generator) -> Choice:
        """Choose; only reads the state.

        The context has been read by the kind of the problem. For arms it is an `Arms`: `features`
        (n_arms, d), or (1, d) with `per_arm`, `n_arms` and `row(arm)`; for rankings `Candidates`:
        `user` (p,), `items` (q, n), one column for each, `ids` and `pinned`. What the evidence
        keeps of it is copied, since the caller may use its arrays again.
        """

    def update(self, state: S, choice: Choice, direction: Vector, observation: Any) -> S:
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
    """A bandit for a concave function of the average reward vector: what an agent serves.

    Its state is as that of a `Base`. Optional attributes, with their defaults:

    - ``decides``: the name of the kind of decision; "arms"
    - ``objective``: f, which `agent.value` and a run measure; None
    - ``memory``: a half-life of the average in decisions; None
    - ``average`` and ``t`` of a state: the checks then compare them with the rewards given

    Optional methods:

    - ``kind(state)``: the kind of decision; contexts and answers then come checked, and candidates,
      blocked and pinned items are allowed. Without it both come as they were given
    - ``expect(state, decision)``, ``withdraw(state, decision)``: the state in which a decision is
      open, and in which it gets no answer any more; without them open decisions do not count
    - ``counts(state)``: name -> number, for `agent.stats()`
    - ``repair(state)``, ``drift(state)``, ``row_limit(state)``: recompute in place what is kept,
      how far off it was, and the largest norm of features that can be learnt from
    - ``learnt(state)``: a `Learnt`, estimates of each reward; without it there is no what-if
    - ``with_objective(f)``: the same policy for another f; without it `replace_objective` raises.
      ``retargeted(state, problem)``: the state of the policy before, for this one; without it the
      state stays as it is
    - ``in_world(world)``: of a reference policy, the policy that knows a simulated world
    - ``running(kind, state)``: of `FrankWolfe` and its subclasses, a `Running`, which decides and
      learns rows

    A policy to evaluate from a log may instead have ``distribution(part)``, the probabilities
    (rows, arms) in logged contexts, or ``at_rank(users, allowed)``, P(item i in slot j) (users,
    items, slots).
    """

    def init(self, problem: Problem) -> S:
        """Validate and allocate."""

    def act(self, state: S, context: Any, rng: np.random.Generator) -> Decision:
        """Decide; only reads the state."""

    def update(self, state: S, decision: Decision, feedback: Any) -> S:
        """Learn; may write into the arrays of the state that it consumes."""


@runtime_checkable
class Environment(Protocol[W]):
    """A world that draws contexts and answers actions; the truth is for regret only.

    Optional attributes, with their defaults:

    - ``bounded``: whether rewards stay in the ranges of the problem, as every regret bound asks
    - ``opaque``: whether the expected rewards are unknown: `mean_reward` and `best_action` raise,
      and a run counts the rewards observed; False
    - ``calibration``: "clip" where means are cut to their ranges; None
    - ``notes``: sentences on how data was read; (). ``user_ids``, ``item_ids``: what users and
      items are called; numbers. ``factors_hash``: a fingerprint, kept with results

    Optional methods:

    - ``support(world, direction)``: max <direction, z> over the averages z that can be reached, and
      its maximiser; without it `optimum` samples
    - ``draw_contexts(world, rng, n)``, ``draw_noise(rng, n)``, ``reward_program(world)``: of arms,
      for the compiled loop: features (n, K, d) and tags (n,), numbers (n, each), and a
      `CompiledArmWorld`.
      They take from the generators what as many calls of `context` and `feedback` take; `ArmsWorld`
      makes these of them. Without them the loop is in Python
    - ``draw_users(rng, n)``, ``show(world, user)``, ``tag(world, context)``: the same for rankings;
      the compiled loop plays subclasses of `RankingWorld`
    """

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


def newest(subject: Any, fast: str, plain: str) -> bool:
    """Whether a method does what another one does: it is not so where a subclass has overridden
    the other one alone.
    """
    for cls in type(subject).__mro__:
        if fast in vars(cls) or plain in vars(cls):
            return fast in vars(cls)
    return False


def keeps(subject: Any, contract: Any) -> bool:
    """Whether a subject has the methods of a contract and they take the arguments it states."""
    if not isinstance(subject, contract):
        return False
    for name, stated in vars(contract).items():
        if name.startswith("_") or not callable(stated):
            continue
        parameters = [one for one in signature(stated).parameters.values() if one.name != "self"]
        arguments = [one.name for one in parameters if one.kind is not one.VAR_POSITIONAL]
        taken = signature(getattr(subject, name))
        try:
            (taken.bind if len(arguments) == len(parameters) else taken.bind_partial)(*arguments)
        except TypeError:
            return False
    return True


class LinearRule(NamedTuple):
    """A bandit over a linear regression of the rewards on the features of an arm."""

    name: str
    """Of the compiled rule: kernels/rules.py."""
    params: Vector
    learn: str
    """"ridge" or "online_gradient"."""
    regression: Any
    """Its arrays before the first reward, a `LinearState`."""
    limit: float
    """The largest |x|^2 that can be learnt from."""
    uniforms: int = 0
    """How many numbers a decision draws."""
    uniform: bool = True
    """Whether these are uniform in [0, 1)."""
    certificate: str = "plain"
    """How other arms are compared for live numbers: "plain", "optimistic" or "extended"."""
    extended: bool = False
    """Whether it regresses <g, r> on g (x) x."""
    ascent: tuple[Any, int, float] = (None, 0, 0.0)
    """Gradient, steps and rate of a rule that ascends over mixtures of the arms."""
    own: Any = None
    """An author's rule, which the compiled loop calls."""


class RankingRule(NamedTuple):
    """A ranker: scores over one ridge regression on the items that were exposed."""

    name: str
    """Of the compiled scores: kernels/ranks.py."""
    params: Vector
    limit: float
    """The largest |user (x) item|^2 that can be learnt from."""
    state: Any
    """The class of its states: problem, params, regression, exposed, shown, slots, features,
    retired."""
    uniforms: int = 0
    owed: float = 0.0
    """The share of rankings that an item must be shown in."""
    position_weights: Vector | None = None
