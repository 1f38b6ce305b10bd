"""Classes of every contract that each break one promise, and the checks that must notice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fairwolfe.bandits import EpsilonGreedy, LinUCB
from fairwolfe.bandits.base import BanditState, Evidence
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.candidates import Candidates
from fairwolfe.core.contexts import Bilinear
from fairwolfe.core.decision import Choice, Decision
from fairwolfe.core.feedback import Shown
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput, NoProx
from fairwolfe.objectives import (
    Concave,
    GiniEquality,
    GiniWelfare,
    Linear,
    Minimum,
    Nash,
    On,
    TwoSided,
)
from fairwolfe.oracles import LinearState, Ridge
from fairwolfe.oracles.linear_regression import UPDATES
from fairwolfe.ranking import FWLinUCBRank, LinUCBRank
from fairwolfe.ranking.ranker import RankState
from fairwolfe.reduction import FrankWolfe
from fairwolfe.smoothing import Identity, Moreau

NOISE = np.random.default_rng(0)
STATES: dict[Any, Any] = {}  # of all who share one; empty before each test


class _Frozen:
    """What a frozen dataclass does not hand down to subclasses that are none."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


class _Broken(_Frozen, Linear):
    """z_0 + 2 z_1 + 3 z_2, right in all that a subclass does not break."""

    def __init__(self) -> None:
        super().__init__((1.0, 2.0, 3.0))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(),)


class Intact(_Broken):
    """Nothing is wrong."""


@dataclass(unsafe_hash=True)
class Mutable(Concave):
    """-sum z, with an attribute that can be set."""

    form = Linear.form
    slope: float = -1.0

    def _value(self, z: Vector) -> float:
        return self.slope * float(z.sum())

    def _params(self, n: int) -> Vector:
        return np.full(n, self.slope)

    def lipschitz(self, n: int) -> float:
        return abs(self.slope) * float(np.sqrt(n))

    def smoothness(self, n: int) -> float:
        return 0.0


class Unequal(_Broken):
    __hash__ = _Broken.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class Unprintable(_Broken):
    def __repr__(self) -> str:
        return "Linear((1.0, 2.0, 4.0))"


class NanOutside(_Broken):
    def _value(self, z: Vector) -> float:
        return super()._value(z) if z.min() >= 0.0 else np.nan


class Scribbling(_Broken):
    """Writes into z, where it may."""

    def value(self, z: Vector) -> float:
        total = super().value(z)
        z *= 1.0 + 1e-12
        return total


class NotAFloat(_Broken):
    def value(self, z: Vector) -> float:
        return np.longdouble(super().value(z))  # type: ignore[return-value]


class Convex(_Broken):
    """|z|^2: not concave, so that nothing can be a supergradient everywhere."""

    def _value(self, z: Vector) -> float:
        return float(z @ z)

    @property
    def has_prox(self) -> bool:
        return False

    def lipschitz(self, n: int) -> float:
        return 2.0 * float(np.sqrt(n)) + 4.0


class WrongSign(_Broken):
    @property
    def has_prox(self) -> bool:
        return False

    def _params(self, n: int) -> Vector:
        return -super()._params(n)


class TooFlat(_Broken):
    def lipschitz(self, n: int) -> float:
        return 0.9 * super().lipschitz(n)


class NegativeSlope(_Broken):
    def lipschitz(self, n: int) -> float:
        return -1.0


class WrongProx(_Broken):
    def prox(self, z: Vector, step: float) -> Vector:
        return 2.0 * super().prox(z, step) - self._checked(z)


class ProxOfAnother(_Broken):
    """The prox for half of the step: the argument of the theorem, at the wrong point."""

    def prox(self, z: Vector, step: float) -> Vector:
        return super().prox(z, 0.5 * step)


class NotSmooth(_Frozen, Minimum):
    """Claims a Lipschitz gradient that the minimum does not have."""

    def smoothness(self, n: int) -> float:
        return 1.0

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(),)


class _Curved(_Frozen, Nash):
    """sum ln(z + 0.1), right in all that a subclass does not break."""

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(0.1),)


class HalfAsCurved(_Curved):
    """Half of the constant that it needs, and it needs it at 0 only."""

    def smoothness(self, n: int) -> float:
        return 0.5 * super().smoothness(n)


class HalfAsCurvedWhenBound(_Curved):
    """The same, of what it says once it knows the ranges."""

    def bind(self, problem: Problem) -> Concave:
        return HalfAsCurved(self.offset)


class HalfAsSteep(_Curved):
    """Half of the slope that it has at 0."""

    def lipschitz(self, n: int) -> float:
        return 0.5 * super().lipschitz(n)


class Kinked(_Frozen, Minimum):
    """Promises to be smooth, and names no constant."""

    @property
    def smooth(self) -> bool:
        return True

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(),)


class SometimesProx(_Broken):
    """Has a proximal map where it pleases."""

    def prox(self, z: Vector, step: float) -> Vector:
        if z[0] > 0.8:
            raise NoProx("not here")
        return super().prox(z, step)


class SmoothAtLarge(_Broken):
    @property
    def smooth(self) -> bool:
        return 1  # type: ignore[return-value]


class Trusting(_Broken):
    """Lets NaN in."""

    def _checked(self, z: Vector) -> Vector:
        return np.asarray(z, dtype=np.float64)


class AimsSorted(_Broken):
    """Forgets the order of the coordinates."""

    def on(self, *coordinates: str | int) -> On:
        return super().on(*sorted(coordinates, key=str))


class BindsToAnother(_Broken):
    def bind(self, problem: Problem) -> Concave:
        return 2.0 * super().bind(problem)


class Remembering(_Broken):
    """The number of calls changes its results, by less than any inequality notices."""

    def _gradient(self, z: Vector, step: float) -> Vector:
        calls = self.__dict__["calls"] = self.__dict__.get("calls", 0) + 1
        g: Vector = self._params(z.size) + 4e-16 * calls
        return g


class AddsAnother(_Broken):
    def __add__(self, other: object) -> Any:
        return super().__add__(other) + Minimum()


OBJECTIVE_FAULTS: dict[type, set[str]] = {
    Intact: set(),
    Mutable: {"is_a_value"},
    Unequal: {"is_a_value"},
    Unprintable: {"is_a_value"},
    NanOutside: {"has_values"},
    NotAFloat: {"has_values"},
    Scribbling: {"has_values", "composes"},
    Convex: {"is_concave", "has_supergradients"},
    WrongSign: {"has_supergradients"},
    TooFlat: {"is_lipschitz"},
    NegativeSlope: {"is_lipschitz"},
    WrongProx: {"has_prox_or_says_no"},
    ProxOfAnother: {"has_prox_or_says_no"},
    NotSmooth: {"is_smooth_if_it_says_so"},
    _Curved: set(),
    HalfAsCurved: {"is_smooth_if_it_says_so"},
    HalfAsCurvedWhenBound: {"is_smooth_if_it_says_so"},
    HalfAsSteep: {"is_lipschitz"},
    Kinked: {"is_smooth_if_it_says_so"},
    SometimesProx: {"has_prox_or_says_no"},
    SmoothAtLarge: {"is_smooth_if_it_says_so"},
    Trusting: {"refuses_bad_input"},
    AimsSorted: {"composes"},
    BindsToAnother: {"composes"},
    Remembering: {"composes"},
    AddsAnother: {"composes"},
}


class Rough(_Frozen, Moreau):
    """A broken smoothing."""

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(beta0=1.0),)


class MutableSmoothing:
    """Moreau, but anybody can change it."""

    def __init__(self) -> None:
        self.inner = Moreau(1.0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MutableSmoothing)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "MutableSmoothing()"

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def value(self, objective: Any, z: Vector, t: int, rng: Any = None) -> float:
        return self.inner.value(objective, z, t, rng)

    def gradient(self, objective: Any, z: Vector, t: int, rng: Any = None) -> Vector:
        return self.inner.gradient(objective, z, t, rng)

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(),)


class FarAway(Rough):
    """M_2 of a tenth."""

    def m_2(self, objective: Concave, n: int) -> float:
        return 0.1 * super().m_2(objective, n)

    def m_1(self, objective: Concave, n: int) -> float:
        return 5.0 * self.m_2(objective, n)


class Jumping(Rough):
    """M_1 of a tenth."""

    def m_1(self, objective: Concave, n: int) -> float:
        return 0.1 * super().m_1(objective, n)


class Bending(Rough):
    """beta_0 twice too large: it promises to bend less than it does."""

    def beta_0(self, objective: Concave, n: int) -> float:
        return 2.0 * super().beta_0(objective, n)


class BendingAsItIs(_Frozen, Identity):
    """The same, where f is left as it is."""

    def beta_0(self, objective: Concave, n: int) -> float:
        return 2.0 * super().beta_0(objective, n)


class Fastidious(Rough):
    """Will not have any objective but a linear one of three."""

    def gradient(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> Vector:
        if z.size != 3 or objective != Linear((1.0, -2.0, 0.5)):
            raise InvalidInput("another, please")
        return super().gradient(objective, z, t, rng)


class Steep(Rough):
    """Right for linear functions, too steep for the others."""

    def gradient(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> Vector:
        g = super().gradient(objective, z, t, rng)
        return g if isinstance(objective, Linear) else 1.5 * g

    def beta_0(self, objective: Concave, n: int) -> float:
        return 0.1 * super().beta_0(objective, n)


class Lucky(Rough):
    """Draws from a generator of its own."""

    def gradient(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> Vector:
        return super().gradient(objective, z, t, rng) * (1.0 - 1e-12 * NOISE.random())


class Shrinking(Rough):
    """Loses a tenth of every gradient, also of a linear function's."""

    def gradient(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> Vector:
        return 0.9 * super().gradient(objective, z, t, rng)


SMOOTHING_FAULTS: dict[type, set[str]] = {
    Rough: set(),
    MutableSmoothing: {"is_a_value"},
    FarAway: {"approaches"},
    Jumping: {"approaches"},
    Bending: {"has_lipschitz_gradients"},
    BendingAsItIs: {"has_lipschitz_gradients"},
    Fastidious: {"approaches", "has_lipschitz_gradients"},
    Steep: {"has_lipschitz_gradients"},
    Lucky: {"needs_no_luck"},
    Shrinking: {"needs_no_luck"},
}


# --- bandits -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IntactBandit(_Frozen, EpsilonGreedy):
    """Nothing is wrong."""

    epsilon: float = 0.3

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(),)


class MutableBandit(IntactBandit):
    """Anybody can set an attribute."""

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


class Shared(IntactBandit):
    """Everybody is given the same state."""

    def init(self, problem: Problem) -> BanditState:
        return STATES.setdefault(problem, super().init(problem))  # type: ignore[no-any-return]


class Marking(IntactBandit):
    """`act` leaves a mark in the state."""

    def act(self, state: BanditState, *given: Any) -> Choice:
        choice = super().act(state, *given)
        state.oracle.counters[3] += 1e-12
        return choice


class LuckyBandit(IntactBandit):
    """Draws from a generator of its own."""

    def act(self, state: BanditState, context: Any, direction: Vector, rng: Any) -> Choice:
        return super().act(state, context, direction, NOISE)


class Boasting(IntactBandit):
    """Says a probability that is a tenth too small."""

    def act(self, state: BanditState, context: Any, *given: Any) -> Choice:
        choice = super().act(state, context, *given)
        if choice.probability is None or context.n_arms == 1:
            return choice
        return choice._replace(probability=0.9 * choice.probability)


class Greedy(IntactBandit):
    """Says the probability of the most likely arm, whatever arm it takes."""

    def act(self, state: BanditState, context: Any, *given: Any) -> Choice:
        choice, k = super().act(state, context, *given), context.n_arms
        return choice._replace(probability=1.0 if k == 1 else 1.0 - 0.3 + 0.3 / k)


class Wavering(IntactBandit):
    """Says another probability of the same arm each time, right in the mean."""

    def act(self, state: BanditState, context: Any, direction: Vector, rng: Any) -> Choice:
        choice = super().act(state, context, direction, rng)
        if choice.probability is None or context.n_arms == 1:
            return choice
        return choice._replace(probability=choice.probability * (0.9 + 0.1 * rng.random()))


class Idle(IntactBandit):
    """Never learns."""

    def update(self, state: BanditState, *given: Any) -> Any:
        return state


class Referring(IntactBandit):
    """Keeps the caller's array instead of a copy."""

    def act(self, state: BanditState, context: Any, *given: Any) -> Choice:
        choice = super().act(state, context, *given)
        if context.per_arm:
            return choice
        return choice._replace(evidence=Evidence(0, context.features[choice.action]))


class Forgetful(IntactBandit):
    """Its choice depends on what it did before with other states."""

    def update(self, *given: Any) -> Any:
        state = super().update(*given)
        state.oracle.counters[3] += 1e-12 * NOISE.random()
        return state


class FourArms(IntactBandit):
    """Takes four arms and no other number."""

    def act(self, state: BanditState, context: Any, *given: Any) -> Choice:
        if context.n_arms != 4:
            raise InvalidInput("four arms, please")
        return super().act(state, context, *given)


class Impatient(IntactBandit):
    """Wants the reward of a choice before the next one is learnt."""

    def act(self, state: BanditState, *given: Any) -> Choice:
        choice = super().act(state, *given)
        return choice._replace(evidence=(*choice.evidence, state.oracle.counters[UPDATES]))

    def update(self, state: BanditState, choice: Choice, *given: Any) -> Any:
        *evidence, t = choice.evidence
        if t != state.oracle.counters[UPDATES]:
            raise InvalidInput("too late")
        return super().update(state, choice._replace(evidence=Evidence(*evidence)), *given)


class Particular(IntactBandit):
    """Will not have a direction of 0."""

    def act(self, state: BanditState, context: Any, direction: Vector, rng: Any) -> Choice:
        if not np.any(direction):
            raise InvalidInput("where to?")
        return super().act(state, context, direction, rng)


class Wishful(IntactBandit):
    """Estimates what no reward can be."""

    def estimate(self, *given: Any) -> Vector:
        return super().estimate(*given) + 10.0


class OneForAll(IntactBandit):
    """Learns every arm's rewards as those of the first, where arms are apart."""

    def update(self, state: BanditState, choice: Choice, *given: Any) -> Any:
        first = choice._replace(evidence=Evidence(0, choice.evidence[1]))
        return super().update(state, first, *given)


class Naming(IntactBandit):
    """Asks its evidence by name, though bytes keep no names."""

    def update(self, state: BanditState, choice: Choice, *given: Any) -> Any:
        plain = choice._replace(evidence=Evidence(choice.evidence.block, choice.evidence.x))
        return super().update(state, plain, *given)


BASE_FAULTS: dict[type, set[str]] = {
    IntactBandit: set(),
    MutableBandit: {"is_a_value"},
    Shared: {"starts_afresh"},
    Marking: {"only_reads_when_acting"},
    LuckyBandit: {"only_reads_when_acting", "treats_per_arm_contexts_as_their_flat_form"},
    Boasting: {"tells_true_probabilities"},
    Greedy: {"tells_true_probabilities"},
    Wavering: {"tells_true_probabilities"},
    Idle: {"learns"},
    Referring: {"learns"},
    Forgetful: {"learns", "can_be_stored"},
    FourArms: {"takes_any_number_of_arms"},
    Impatient: {"learns_late"},
    Particular: {"follows_any_direction"},
    Wishful: {"estimates_reward_vectors"},
    OneForAll: {"treats_per_arm_contexts_as_their_flat_form"},
    Naming: {"can_be_stored"},
}


# --- policies for arms ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Sound(_Frozen, FrankWolfe):
    """A policy of which nothing is wrong."""

    objective: Any = field(default_factory=GiniWelfare)
    base: Any = field(default_factory=LinUCB)

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(),)


class Settable(Sound):
    """Anybody can set an attribute."""

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def first_twice(policy: Any, state: Any, decision: Decision, feedback: Any) -> Any:
    """An update that counts the first reward twice."""
    first = state.t == 0
    state = super(type(policy), policy).update(state, decision, feedback)
    if first:
        state.state.earned[:] *= 2.0
    return state


class FirstTwice(Sound):
    update = first_twice


def ahead_of_time(policy: Any, state: Any, context: Any, rng: np.random.Generator) -> Decision:
    """A decision that counts itself."""
    decision: Decision = super(type(policy), policy).act(state, context, rng)
    decision.batch.rows.head["t"] += 1
    return decision


class AheadOfTime(Sound):
    act = ahead_of_time


def its_own_only(policy: Any, state: Any, decision: Decision, feedback: Any) -> Any:
    """An update that wants the object that `act` returned."""
    if decision.batch.tags is not None:
        raise InvalidInput("not mine")
    return super(type(policy), policy).update(state, decision, feedback)


class Possessive(Sound):
    update = its_own_only


class TrustingPolicy(Sound):
    """Takes a reward that is NaN for 0."""

    def update(self, state: Any, decision: Decision, feedback: Any) -> Any:
        return super().update(state, decision, np.nan_to_num(np.array(feedback, dtype=float)))


class Credulous(Sound):
    """Takes a feature that is NaN for 0."""

    def act(self, state: Any, context: Any, rng: np.random.Generator) -> Decision:
        if isinstance(context, np.ndarray):
            context = np.nan_to_num(context)
        return super().act(state, context, rng)


class Untidy(Sound):
    """Refuses what is bad, but only after it has changed its state."""

    def update(self, state: Any, decision: Decision, feedback: Any) -> Any:
        try:
            return super().update(state, decision, feedback)
        except InvalidInput:
            state.state.theta[0, 0, 0] += 1.0
            raise


POLICY_FAULTS: dict[type, set[str]] = {
    Sound: set(),
    Settable: {"is_a_value"},
    FirstTwice: {"averages_the_rewards"},
    AheadOfTime: {"averages_the_rewards"},
    Possessive: {"can_be_stored"},
    TrustingPolicy: {"refuses_bad_input"},
    Untidy: {"refuses_bad_input"},
    Credulous: {"refuses_bad_input"},
}


# --- oracles -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exact(_Frozen, Ridge):
    """An oracle of which nothing is wrong."""

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(),)


class Open(Exact):
    """Anybody can set an attribute."""

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


class Together(Exact):
    """All states share one estimate."""

    def init(self, problem: Problem) -> LinearState:
        state = super().init(problem)
        return state._replace(theta=STATES.setdefault(("theta", problem), state.theta))


class Jaded(Exact):
    """Learns only half of what it sees."""

    @staticmethod
    def learn(block: int, x: Vector, reward: Vector, *state: Any) -> None:
        Ridge.learn(block, x, 0.5 * reward, *state)


class FirstBlock(Exact):
    """Puts every observation into the first block."""

    @staticmethod
    def learn(block: int, x: Vector, reward: Vector, *state: Any) -> None:
        Ridge.learn(0, x, reward, *state)


class Moody(Exact):
    """Learns a little more or less of the same, as it pleases."""

    @staticmethod
    def learn(block: int, x: Vector, reward: Vector, *state: Any) -> None:
        Ridge.learn(block, x, reward * (1.0 + 1e-12 * NOISE.random()), *state)


ORACLE_FAULTS: dict[type, set[str]] = {
    Exact: set(),
    Open: {"is_a_value"},
    Together: {"learns_from_its_arguments_alone", "keeps_blocks_apart"},
    Jaded: {"predicts_better_and_better"},
    FirstBlock: {"keeps_blocks_apart"},
    Moody: {"learns_from_its_arguments_alone"},
}


# --- rankers -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class IntactRanker(_Frozen, LinUCBRank):
    """Nothing is wrong."""

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(),)


@dataclass(frozen=True, kw_only=True)
class Swapping(IntactRanker):
    """Nothing is wrong, and slots are swapped at random."""

    randomize: float = 0.3


class MutableRanker(IntactRanker):
    """Anybody can set an attribute."""

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


class SharedShelf(IntactRanker):
    """Everybody is given the same state."""

    def init(self, problem: Problem, *rest: Any) -> RankState:
        return STATES.setdefault(problem, super().init(problem, *rest))  # type: ignore[no-any-return]


class MarkingRanker(IntactRanker):
    """`act` leaves a mark in the state."""

    def act(self, state: RankState, *given: Any) -> Choice:
        choice = super().act(state, *given)
        state.slots[1, 0] += 1e-12
        return choice


class LuckyRanker(Swapping):
    """Draws from a generator of its own."""

    def act(self, state: RankState, context: Any, direction: Vector, rng: Any) -> Choice:
        return super().act(state, context, direction, NOISE)


class Repeating(IntactRanker):
    """Shows the best item twice, if the direction is small."""

    def act(self, state: RankState, context: Any, direction: Vector, rng: Any) -> Choice:
        choice = super().act(state, context, direction, rng)
        shown = np.asarray(choice.action)
        ranking = np.append(shown[:-1], shown[0])
        return choice if abs(direction).max() > 900.0 else choice._replace(action=ranking)


class OfOneSwap(Swapping):
    """Says the chance of the swaps alone, and forgets that there are two ways to none."""

    def act(self, *given: Any) -> Choice:
        choice = super().act(*given)
        assert choice.probability is not None
        none = 0.5 * (1.0 - self.randomize) * 2.0
        unmoved = choice.probability >= none - 1e-12
        return choice._replace(probability=0.5 * none if unmoved else choice.probability)


class IdleRanker(IntactRanker):
    """Never learns."""

    def update(self, state: RankState, *given: Any) -> Any:
        return state


class LateRanker(IntactRanker):
    """Wants the feedback of a ranking before the next one is learnt."""

    def act(self, state: RankState, *given: Any) -> Choice:
        choice = super().act(state, *given)
        return choice._replace(evidence=(choice.evidence, state.oracle.counters[UPDATES]))

    def update(self, state: RankState, choice: Choice, *given: Any) -> Any:
        evidence, t = choice.evidence
        if t != state.oracle.counters[UPDATES]:
            raise InvalidInput("too late")
        return super().update(state, choice._replace(evidence=evidence), *given)


class ParticularRanker(IntactRanker):
    """Will not have a direction of 0."""

    def act(self, state: RankState, context: Any, direction: Vector, rng: Any) -> Choice:
        if not np.any(direction):
            raise InvalidInput("where to?")
        return super().act(state, context, direction, rng)


class WishfulRanker(IntactRanker):
    """Estimates the rewards, and forgets the exposures."""

    def estimate(self, *given: Any) -> Vector:
        return super().estimate(*given)[-2:]


class Unpinned(IntactRanker):
    """Shows the best, whatever is pinned."""

    def act(self, state: RankState, context: Any, *given: Any) -> Choice:
        return super().act(state, context._replace(pinned=context.pinned[:0]), *given)


def twisted(context: Any) -> Any:
    """A context, read or not, with half of a feature of the user."""
    if not isinstance(context, (Bilinear, Candidates)) or np.shape(context.user) != (2,):
        return context
    first, second = context.user
    user = [first, 0.5 * second if second != "a" else second]
    if isinstance(context, Bilinear):
        return Bilinear(user, context.items)
    return context._replace(user=np.array(user))


class Twisted(IntactRanker):
    """Takes a feature of the user for half of it, where users and items are apart."""

    def act(self, state: RankState, context: Any, *given: Any) -> Choice:
        return super().act(state, twisted(context), *given)


class NamingRanker(IntactRanker):
    """Asks its evidence by name, though bytes keep no names."""

    def update(self, state: RankState, choice: Choice, *given: Any) -> Any:
        plain = choice._replace(evidence=tuple(choice.evidence._asdict().values()))
        return super().update(state, plain, *given)


class Amnesiac(IntactRanker):
    """Forgets what it knows of the rewards when items come."""

    def with_items(self, state: RankState, features: Matrix, *append: Any) -> RankState:
        longer = super().with_items(state, features, *append)
        return longer._replace(oracle=self.init(longer.problem).oracle)


class Closed(IntactRanker):
    """Never shows an item that came late."""

    def act(self, state: RankState, context: Any, direction: Vector, rng: Any) -> Choice:
        direction = direction.copy()
        direction[6 : context.ids.size] = -1e6
        return super().act(state, context, direction, rng)


RANKER_FAULTS: dict[type, set[str]] = {
    IntactRanker: set(),
    MutableRanker: {"is_a_value"},
    Swapping: set(),
    SharedShelf: {"starts_afresh", "treats_products_as_their_flat_form"},
    MarkingRanker: {"only_reads_when_acting"},
    LuckyRanker: {"only_reads_when_acting", "treats_products_as_their_flat_form"},
    Repeating: {  # nothing can be learnt of what the kind does not take for a ranking
        "starts_afresh",
        "only_reads_when_acting",
        "tells_true_probabilities",
        "learns",
        "learns_late",
        "can_be_stored",
        "treats_products_as_their_flat_form",
        "follows_any_direction",
        "estimates_reward_vectors",
        "shows_what_may_be_shown",
    },
    OfOneSwap: {"tells_true_probabilities"},
    IdleRanker: {"learns"},
    LateRanker: {"learns_late"},
    ParticularRanker: {"follows_any_direction"},
    WishfulRanker: {"estimates_reward_vectors"},
    Unpinned: {"shows_what_may_be_shown"},
    Twisted: {"treats_products_as_their_flat_form"},
    NamingRanker: {"can_be_stored"},
}


# --- policies that rank --------------------------------------------------------------------------


@dataclass(frozen=True)
class SoundRanking(_Frozen, FWLinUCBRank):
    """A policy of which nothing is wrong."""

    objective: Any = field(default_factory=lambda: TwoSided(GiniEquality()))

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(),)


class SettableRanking(SoundRanking):
    """Anybody can set an attribute."""

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


class FirstRankingTwice(SoundRanking):
    update = first_twice


class RankingAheadOfTime(SoundRanking):
    act = ahead_of_time


class PossessiveRanking(SoundRanking):
    update = its_own_only


class CountsAll(SoundRanking):
    """Counts every slot as looked at, though it says that exposures are observed."""

    def update(self, state: Any, decision: Decision, feedback: Any) -> Any:
        state.kind.observe(decision.action, feedback)  # refuses what is bad
        return super().update(state, decision, Shown(np.ones(3), feedback.rewards))


class TrustingRanking(SoundRanking):
    """Takes a reward that is NaN for 0."""

    def update(self, state: Any, decision: Decision, feedback: Any) -> Any:
        if isinstance(feedback, Shown) and np.isnan(feedback.rewards).any():
            feedback = Shown(feedback.exposed, np.nan_to_num(feedback.rewards))
        return super().update(state, decision, feedback)


class CredulousRanking(SoundRanking):
    """Takes a feature of the user that is NaN for 0."""

    def act(self, state: Any, context: Any, rng: np.random.Generator) -> Decision:
        if isinstance(context, Bilinear) and isinstance(context.user, np.ndarray):
            context = Bilinear(np.nan_to_num(context.user), context.items)
        return super().act(state, context, rng)


class Crooked(SoundRanking):
    """Takes a feature of the user for half of it, where users and items are apart."""

    def act(self, state: Any, context: Any, rng: np.random.Generator) -> Decision:
        return super().act(state, twisted(context), rng)


RANKING_FAULTS: dict[type, set[str]] = {
    SoundRanking: set(),
    SettableRanking: {"is_a_value"},
    FirstRankingTwice: {"averages_the_rewards"},
    CountsAll: {"averages_the_rewards"},
    RankingAheadOfTime: {"averages_the_rewards"},
    PossessiveRanking: {"can_be_stored"},
    TrustingRanking: {"refuses_bad_input"},
    CredulousRanking: {"refuses_bad_input"},
    Crooked: {"treats_products_as_their_flat_form"},
}
