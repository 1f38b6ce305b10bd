"""The contracts, one screen each, and the powers that a class may have besides: docs/powers.md.

An object holds its hyper-parameters and never changes; state goes in and comes out; randomness is
an argument; whatever `update` will need travels in the decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import Action, Cube, IntVector, Matrix, Vector
from fairwolfe.core.catalogue import Catalogue
from fairwolfe.core.decision import Choice, Decision, Learnt
from fairwolfe.core.problem import Problem

__all__ = [
    "ActsInBatches",
    "ActsInRows",
    "Aimed",
    "Annotated",
    "Averages",
    "Awaits",
    "Base",
    "Bends",
    "Bounded",
    "Calibrated",
    "Certifies",
    "Commits",
    "Compiled",
    "CompiledWorld",
    "Constrained",
    "Constrains",
    "Counts",
    "CountsExposure",
    "Decides",
    "Directs",
    "Distributes",
    "DistributesItems",
    "DrawsUsers",
    "Environment",
    "Estimates",
    "Exemplary",
    "Expects",
    "Factorised",
    "FoldsRows",
    "Forecasts",
    "Forgets",
    "HasItems",
    "HoldsItems",
    "Identified",
    "KeepsArmsApart",
    "KeepsPrices",
    "LearnsDirection",
    "Meets",
    "Mends",
    "Mixed",
    "Objective",
    "Opaque",
    "OpensColumns",
    "Oracle",
    "Policy",
    "Prepares",
    "Pursues",
    "Randomizes",
    "Reads",
    "Recounts",
    "Recovers",
    "Reduces",
    "Regresses",
    "Repairs",
    "Reports",
    "Restored",
    "Retargets",
    "ScalarPolicy",
    "Sized",
    "Smoothing",
    "Stored",
    "Studies",
    "Supports",
    "Surveys",
    "Tuned",
    "Undirected",
    "keeps",
    "newest",
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
        """L in the 2-norm for n rewards (inf if it has none)."""

    def on(self, *coordinates: str | int) -> Objective:
        """f of these coordinates only."""

    def bind(self, problem: Problem) -> Objective:
        """Names become coordinates and sizes are checked; called by `init`."""


@runtime_checkable
class Bends(Protocol):
    """An objective that knows how smooth it is."""

    def smoothness(self, n: int) -> float:
        """C, the Lipschitz constant of the gradient for n coordinates."""


@runtime_checkable
class Constrained(Protocol):
    """An objective that may have hard constraints."""

    @property
    def constrained(self) -> bool:
        """Whether there are any."""


@runtime_checkable
class Aimed(Protocol):
    """A smoothing for a fixed number of rounds."""

    horizon: int | None


@runtime_checkable
class Sized(Protocol):
    """An objective of a fixed number of coordinates."""

    size: int | None


@runtime_checkable
class Mixed(Protocol):
    """An objective of the exposures of items and of user-side rewards."""

    n_users: int
    """How many user-side rewards it takes."""


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
        """R(t) where the problem has enough numbers for one; OutsideAssumptions otherwise."""


@runtime_checkable
class Base(Protocol[S]):
    """A bandit for the scalar reward <direction, r>."""

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


# --- powers: what a base may have besides ---------------------------------------------------------


@runtime_checkable
class Decides(Protocol):
    """A base or policy for another kind of decision than arms."""

    decides: str
    """The name of the kind."""


@runtime_checkable
class CountsExposure(Protocol):
    """A ranker with its own rule for what counts as exposed."""

    exposure: Any
    """ "observed", "shown" or "until_last_click"."""


@runtime_checkable
class Randomizes(Protocol):
    """A base that ranks and swaps slots at random."""

    randomize: float


@runtime_checkable
class Undirected(Protocol):
    """A base that may not use the direction, so that none is computed for it."""

    needs_direction: bool


@runtime_checkable
class LearnsDirection(Protocol):
    """A base that may learn from the direction, which then travels in the decision."""

    extended: bool


@runtime_checkable
class Regresses(Protocol):
    """A base over an oracle."""

    regression: Any


@runtime_checkable
class KeepsArmsApart(Protocol):
    """An oracle that may treat `PerArm` contexts otherwise than their flat form."""

    blocks_are_flat: bool


@runtime_checkable
class Tuned(Protocol):
    """A base with a constant that depends on f."""

    def tuned(self, lipschitz: float) -> Any:
        """The same with the Lipschitz constant of f filled in, where it was left open."""


@runtime_checkable
class Forecasts(Protocol):
    """A base that can report what it expects: with `act(..., estimate=True)` the choice has
    `info.estimate`, an estimate of the reward vector.
    """

    def forecasts(self) -> bool:
        """Whether it does, with its settings."""


@runtime_checkable
class Awaits(Protocol):
    """A base with a linear model, so that the sum of the features of its open decisions gives what
    these are expected to earn.
    """

    def blocks(self, problem: Problem) -> tuple[int, int]:
        """(blocks, features) of that sum; (0, 0) where the model is not linear after all."""

    def expect(self, state: Any, choice: Choice, expected: Any, words: IntVector) -> None:
        """Count a decision among the open ones, in the arrays of a frame that `words` hold."""

    def withdraw(
        self,
        state: Any,
        choice: Choice,
        expected: Any,
        words: IntVector,
        place: int,
        joined: tuple[int, int],
    ) -> None:
        """Take a decision that gets no answer out of them."""


@runtime_checkable
class ActsInRows(Protocol):
    """A base that decides in a kernel in which the direction is computed too, for many contexts."""

    commits: bool

    def act_rows(
        self,
        state: Any,
        given: Any,
        words: IntVector,
        course: Any,
        rng: Any,
        look: bool,
        keep: int = 0,
    ) -> Any:
        """Choices in a row, the i-th `choice(i)`, and `done`, how many there are."""

    def expect_rows(self, state: Any, choices: Any, words: IntVector) -> None:
        """Count such choices among the open decisions."""


@runtime_checkable
class FoldsRows(Protocol):
    """A base that learns from many answers in a kernel."""

    folds: bool

    def fold_rows(
        self,
        state: Any,
        actions: Any,
        evidence: Any,
        observation: Any,
        words: IntVector,
        live: Any,
        looks: Any,
    ) -> Any:
        """What learns from them, to be called with the arguments of `settling.SETTLE_ROWS`."""


@runtime_checkable
class OpensColumns(Protocol):
    """A base with a linear model that counts many decisions as open in a kernel, by what their
    bytes hold.
    """

    def expect_columns(
        self, state: Any, actions: Any, evidence: Any, looks: Any, words: IntVector
    ) -> None:
        """Count them among the open ones."""


@runtime_checkable
class Certifies(Protocol):
    """A base that takes part in live numbers: with `act(..., look=(slope, doubt))` the choice has
    `info.outlook`, what it knows of the actions that were not chosen.
    """

    delta: float
    """The level of its confidence widths."""

    def doubt(self, problem: Problem) -> Vector:
        """What turns estimates into upper bounds; empty where there are no widths."""

    def tally(self, outlook: Any, observation: Any) -> Vector:
        """(4,) of <slope, r>: the largest optimistic value, what choice and direction missed, and
        how much more than the estimated best an action that was hardly tried may be worth; empty
        for an outlook of another base.
        """


@runtime_checkable
class Commits(Protocol):
    """A base that learns, and lets the reduction settle an answer, in one uninterruptible call."""

    commits: bool

    def arrays(self, state: Any, doubt: Vector, keep: bool, by_chance: bool = False) -> list[Any]:
        """What its kernels need of a state, in a frame (`kernels.frames`) from BASE on."""

    def commit(
        self,
        state: Any,
        choice: Choice,
        observation: Any,
        words: IntVector,
        settling: tuple[Any, ...],
        view: Vector,
    ) -> int:
        """`update` and `kernels.settling.settle` in one; whether a certificate is due."""


@runtime_checkable
class Repairs(Protocol):
    """A base whose regression can be recomputed from its sums."""

    ridge_used: float

    def repair(self, state: Any) -> float:
        """Do it in place; how far off it was."""

    def drift(self, state: Any) -> float:
        """How far off it was the last time."""


@runtime_checkable
class HoldsItems(Protocol):
    """A ranker whose items can come and go."""

    def catalogue(self, state: Any) -> Catalogue:
        """The current items."""

    def with_items(self, state: Any, features: Matrix) -> Any:
        """The state with new items, by their features (new, q)."""

    def without_items(self, state: Any, ids: IntVector) -> Any:
        """The state in which these items are not shown any more."""

    def with_features(self, state: Any, features: Matrix) -> Any:
        """The state that keeps the features (n_items, q) of its items."""

    def resume(self, problem: Problem, catalogue: Catalogue) -> Any:
        """A fresh state of the shape of one with these items."""


@runtime_checkable
class Compiled(Protocol):
    """Anything that calls kernels, so that they can be made ready before the first round."""

    def kernels(self, about: Any) -> Iterable[Any]:
        """The kernels: of a base for a problem, of a policy for a state."""


# --- powers: what a policy may have besides -------------------------------------------------------


@runtime_checkable
class Reads(Protocol):
    """A policy that takes checked contexts and answers, as the kind of its state reads them."""

    def kind(self, state: Any) -> Any:
        """The kind of decision, with the current items."""


@runtime_checkable
class Reduces(Protocol):
    """A policy around a base."""

    base: Any


@runtime_checkable
class Pursues(Protocol):
    """A policy with an objective."""

    objective: Any


@runtime_checkable
class Retargets(Protocol):
    """A policy whose objective can be replaced; a state carries over."""

    def with_objective(self, objective: Any) -> Any:
        """The same policy for another f."""

    def renewed(self, state: Any) -> Any:
        """The state, without what was certified of the old f."""


@runtime_checkable
class KeepsPrices(Protocol):
    """A policy whose state has arrays that belong to one f, and start again with another."""

    @property
    def of_objective(self) -> tuple[str, ...]:
        """The names that these arrays are saved under."""


@runtime_checkable
class Constrains(Protocol):
    """A policy that knows how its hard constraints are kept."""

    def constraints(self, state: Any, delta: float = 0.05, trusted: bool = True) -> tuple[Any, ...]:
        """One `Constraint` for each level; `trusted`: all rewards were inside their ranges."""


@runtime_checkable
class Forgets(Protocol):
    """A policy whose averages may fade."""

    memory: float | None


@runtime_checkable
class Directs(Protocol):
    """A policy that follows a direction."""

    def direction(self, state: Any, rng: np.random.Generator) -> Vector:
        """The current one."""


@runtime_checkable
class Expects(Protocol):
    """A policy that counts what its open decisions are expected to earn."""

    def expect(self, state: Any, decision: Decision) -> Any:
        """The state in which a decision is open; may write into the arrays of the one given."""

    def withdraw(self, state: Any, decision: Decision) -> Any:
        """The state in which a decision that was open gets no answer any more."""


@runtime_checkable
class Recounts(Protocol):
    """A policy that can correct its count of open decisions; its state has their number, `open`."""

    def unawaited(self, decision: Decision) -> Decision:
        """The same decision, as one that this state has never counted as open."""

    def take_back(self, state: Any, decision: Decision) -> None:
        """Forget a decision that may or may not have been counted, and that was never returned."""


@runtime_checkable
class Estimates(Protocol):
    """A base or a policy that keeps an estimate of each reward."""

    def learnt(self, state: Any) -> Learnt:
        """The current estimates; not a copy."""


@runtime_checkable
class Studies(Protocol):
    """A policy that can learn from decisions that others made."""

    def study(self, state: Any, choice: Choice, observation: Any) -> Any:
        """The state that has learnt it; the average stays, since it was not earned here."""


@runtime_checkable
class Counts(Protocol):
    """A policy that has its own counts, for `agent.stats()`."""

    def counts(self, state: Any) -> Mapping[str, int]:
        """Name -> number."""


@runtime_checkable
class ActsInBatches(Protocol):
    """A policy that decides for many contexts at once, and learns from the answers."""

    def act_batch(
        self,
        state: Any,
        contexts: Any,
        draws: Any,
        advance: bool | None = None,
        tolerance: float = 0.0,
    ) -> Any:
        """A `Batch`, or a list of decisions; only reads the state. tolerance: how much older than
        a decision its direction may be, of `Agent.propose`; 0: not at all.
        """

    def expect_batch(self, state: Any, batch: Any) -> Any:
        """The state in which they are open."""

    def fold(self, state: Any, batch: Any, answers: Any) -> Any:
        """`update` with each in turn."""


@runtime_checkable
class Reports(Protocol):
    """A policy with live numbers."""

    def live(self, state: Any, delta: float, trusted: bool) -> Any:
        """How far from the best reachable value."""


@runtime_checkable
class Surveys(Protocol):
    """A policy whose first live numbers take a while."""

    def survey(self, state: Any) -> None:
        """Find out what they need and no feedback changes, so that `live` need not."""


@runtime_checkable
class Recovers(Protocol):
    """A policy whose update is all or nothing, also where an interrupt comes."""

    def commits(self, state: Any) -> bool:
        """Whether it is, in this state; `state.t` then shows whether an answer was applied."""


@runtime_checkable
class Mends(Protocol):
    """A policy that can recompute what it keeps."""

    def repair(self, state: Any) -> float:
        """Do it in place; how far off it was."""

    def drift(self, state: Any) -> float:
        """How far off it was the last time; 0 where nothing is kept."""

    def row_limit(self, state: Any) -> float:
        """The largest norm of a row of features that can be learnt from."""


@runtime_checkable
class HasItems(Protocol):
    """A policy over items that can come and go."""

    def keep_items(self, state: Any, features: Any) -> Any:
        """The state that keeps the features of its items, so that contexts need not bring them."""

    def add_items(self, state: Any, features: Matrix, instead: IntVector = ...) -> Any:
        """The state with more items, the last ids; `instead` of some, which are retired."""

    def retire_items(self, state: Any, ids: IntVector) -> Any:
        """The state in which these items are not shown any more, nor seen by f."""

    def resume(self, problem: Problem, arrays: Mapping[str, Any]) -> Any:
        """A fresh state of the shape of the one that these arrays were saved from."""


@runtime_checkable
class Averages(Protocol):
    """A state that keeps the average of the rewards itself, and counts them."""

    average: Vector
    t: int


@runtime_checkable
class Meets(Protocol):
    """A reference policy, which may know the world."""

    def meet(self, world: Any) -> Any:
        """The policy in a world."""


@runtime_checkable
class Prepares(Protocol):
    """An environment that calls kernels."""

    def kernels(self) -> Iterable[Any]:
        """The kernels that its methods call."""


@runtime_checkable
class Bounded(Protocol):
    """An environment that declares whether its rewards stay in the ranges of the problem."""

    bounded: bool


@runtime_checkable
class Opaque(Protocol):
    """An environment that declares whether its expected rewards are unknown, also to itself.

    Where they are, `mean_reward` and `best_action` raise, and a run has the rewards observed in
    place of the expected ones.
    """

    opaque: bool


@runtime_checkable
class Calibrated(Protocol):
    """An environment that may cut its means to their ranges."""

    calibration: str | None


@runtime_checkable
class Factorised(Protocol):
    """An environment whose factors have a fingerprint."""

    factors_hash: str


@runtime_checkable
class Annotated(Protocol):
    """An environment that reports how its data was read."""

    notes: tuple[str, ...]


@runtime_checkable
class Identified(Protocol):
    """An environment whose users and items have names."""

    user_ids: tuple[int | str, ...]
    item_ids: tuple[int | str, ...]


@runtime_checkable
class CompiledWorld(Protocol):
    """An environment with arms that the compiled loop can play.

    `draw_contexts` and `draw_noise` take from their generators exactly what as many calls of
    `context` and `feedback` take, so that both loops meet the same world.
    """

    def draw_contexts(self, world: Any, rng: np.random.Generator, n: int) -> tuple[Cube, IntVector]:
        """Features (n, K, d), and the tags (n,) by which the kernels know the contexts."""

    def draw_noise(self, rng: np.random.Generator, n: int) -> Matrix:
        """What `feedback` draws in n rounds, (n, numbers a round)."""

    def reward_program(self, world: Any) -> Any:
        """The kernels and parameters of a world: a `RewardProgram` of environments/world.py."""


@runtime_checkable
class DrawsUsers(Protocol):
    """An environment with rankings that can draw many rounds at once, as `CompiledWorld` does."""

    def draw_users(self, rng: np.random.Generator, n: int) -> IntVector:
        """The users of n rounds, by number."""

    def draw_noise(self, rng: np.random.Generator, n: int) -> Matrix:
        """What `feedback` draws in n rounds, (n, numbers a round)."""

    def show(self, world: Any, user: int) -> Any:
        """The context of a user."""

    def tag(self, world: Any, context: Any) -> int:
        """The user of a context, or one with an equal context."""


@runtime_checkable
class Supports(Protocol):
    """An environment that knows the set of its reachable averages exactly."""

    def support(self, world: Any, direction: Vector) -> tuple[float, Vector]:
        """max <direction, z> over that set, and its maximiser."""


@runtime_checkable
class Distributes(Protocol):
    """A policy of arms that is known by its probabilities in logged contexts."""

    def distribution(self, part: Any) -> Matrix:
        """The probabilities (rows, K) of the arms of some contexts, a `Part` of a log."""


@runtime_checkable
class DistributesItems(Protocol):
    """A policy of rankings that is known by its item-at-rank probabilities."""

    def at_rank(self, users: Matrix, allowed: Any = None) -> Cube:
        """P(item i in slot j), (users, m, k), of users (users, p) and candidates (users, m)."""


@runtime_checkable
class Restored(Protocol):
    """A part of a state that cannot continue from any arrays."""

    def restored(self) -> None:
        """Raise IncompatibleState, after arrays have been read into it, where it cannot."""


@runtime_checkable
class Exemplary(Protocol):
    """A class that shows instances of itself, which differ, to the conformance checks."""

    def examples(self) -> Iterable[Any]:
        """At least one."""


@runtime_checkable
class Stored(Protocol):
    """A part of a state that is not an array, such as another library's model, but can be saved."""

    def dump(self) -> NDArray[np.uint8]:
        """All that was learnt, as bytes."""

    def load(self, saved: NDArray[np.uint8]) -> None:
        """Become what was dumped."""


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
        arguments = [p for p in signature(stated).parameters if p != "self"]
        try:
            signature(getattr(subject, name)).bind(*arguments)
        except TypeError:
            return False
    return True
