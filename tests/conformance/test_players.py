"""Bandits, policies and oracles that each break one promise, and the checks that must notice."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from fairwolfe.bandits import EpsilonGreedy, LinUCB
from fairwolfe.bandits.choosing import BanditState, Evidence
from fairwolfe.checks import BASE_CHECKS, ORACLE_CHECKS, POLICY_CHECKS, check, outcomes
from fairwolfe.core.arrays import Vector
from fairwolfe.core.contexts import arms
from fairwolfe.core.decision import Choice, Decision
from fairwolfe.core.problem import Problem
from fairwolfe.errors import ConformanceError, InvalidInput
from fairwolfe.kernels.linalg import UPDATES
from fairwolfe.objectives import GiniWelfare
from fairwolfe.oracles import LinearState, RegretBound, Ridge
from fairwolfe.reduction import FrankWolfe
from fairwolfe.reduction.state import State

NOISE = np.random.default_rng(0)


class Frozen:
    """What a frozen dataclass does not hand down to subclasses that are none."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


@dataclass(frozen=True)
class Intact(Frozen, EpsilonGreedy):
    """Nothing is wrong."""

    epsilon: float = 0.3

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(),)


class Mutable(Intact):
    """Anybody can set an attribute."""

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


STATES: dict[Any, Any] = {}


class Shared(Intact):
    """Everybody is given the same state."""

    def init(self, problem: Problem) -> BanditState:
        return STATES.setdefault(problem, super().init(problem))  # type: ignore[no-any-return]


class Scribbling(Intact):
    """`act` leaves a mark in the state."""

    def act(self, state: BanditState, *given: Any, **options: Any) -> Choice:
        choice = super().act(state, *given, **options)
        state.oracle.counters[3] += 1e-12
        return choice


class Lucky(Intact):
    """Draws from a generator of its own."""

    def act(
        self, state: BanditState, context: Any, direction: Vector, rng: Any, **options: Any
    ) -> Choice:
        return super().act(state, context, direction, NOISE, **options)


class Boasting(Intact):
    """Says a probability that is a tenth too small."""

    def act(self, state: BanditState, context: Any, *given: Any, **options: Any) -> Choice:
        choice = super().act(state, context, *given, **options)
        if choice.probability is None or arms(context, state.problem).n_arms == 1:
            return choice
        return choice._replace(probability=0.9 * choice.probability)


class Greedy(Intact):
    """Says the probability of the most likely arm, whatever arm it takes."""

    def act(self, state: BanditState, context: Any, *given: Any, **options: Any) -> Choice:
        choice = super().act(state, context, *given, **options)
        k = arms(context, state.problem).n_arms
        return choice._replace(probability=1.0 if k == 1 else 1.0 - 0.3 + 0.3 / k)


class Idle(Intact):
    """Never learns."""

    def update(self, state: BanditState, choice: Choice, direction: Any, feedback: Any) -> Any:
        if np.shape(feedback) != (3,):
            raise InvalidInput("another length")
        return state


class Referring(Intact):
    """Keeps the caller's array instead of a copy."""

    def act(self, state: BanditState, context: Any, *given: Any, **options: Any) -> Choice:
        choice = super().act(state, context, *given, **options)
        if context.per_arm:
            return choice
        return choice._replace(evidence=Evidence(0, context.features[choice.action]))


class Forgetful(Intact):
    """Its choice depends on what it did before with other states."""

    def update(self, state: BanditState, choice: Choice, direction: Any, feedback: Any) -> Any:
        state = super().update(state, choice, direction, feedback)
        state.oracle.counters[3] += 1e-12 * NOISE.random()
        return state


class FourArms(Intact):
    """Takes four arms and no other number."""

    def act(self, state: BanditState, context: Any, *given: Any, **options: Any) -> Choice:
        if arms(context, state.problem).n_arms != 4:
            raise InvalidInput("four arms, please")
        return super().act(state, context, *given, **options)


class Impatient(Intact):
    """Wants the reward of a choice before the next one is learnt."""

    def act(self, state: BanditState, context: Any, *given: Any, **options: Any) -> Choice:
        choice = super().act(state, context, *given, **options)
        return choice._replace(evidence=(*choice.evidence, state.oracle.counters[UPDATES]))

    def update(self, state: BanditState, choice: Choice, direction: Any, feedback: Any) -> Any:
        *evidence, t = choice.evidence
        if t != state.oracle.counters[UPDATES]:
            raise InvalidInput("too late")
        plain = choice._replace(evidence=Evidence(*evidence))
        return super().update(state, plain, direction, feedback)


class Untidy(Intact):
    """Refuses what is bad, but only after it has changed its state."""

    def act(self, state: BanditState, context: Any, *given: Any, **options: Any) -> Choice:
        try:
            return super().act(state, context, *given, **options)
        except InvalidInput:
            state.oracle.theta[0, 0, 0] += 1.0
            raise


class Particular(Intact):
    """Will not have a direction of 0."""

    def act(
        self, state: BanditState, context: Any, direction: Vector, rng: Any, **options: Any
    ) -> Choice:
        if not np.any(direction):
            raise InvalidInput("where to?")
        return super().act(state, context, direction, rng, **options)


class Padding(Intact):
    """Makes any direction as long as it should be."""

    def act(
        self, state: BanditState, context: Any, direction: Vector, rng: Any, **options: Any
    ) -> Choice:
        return super().act(state, context, np.resize(direction, 3), rng, **options)


class PaddingRewards(Intact):
    """Makes any reward as long as it should be."""

    def update(self, state: BanditState, choice: Choice, direction: Any, feedback: Any) -> Any:
        return super().update(state, choice, direction, np.resize(feedback, 3))


class OneForAll(Intact):
    """Learns every arm's rewards as those of the first, where arms are apart."""

    def update(self, state: BanditState, choice: Choice, direction: Any, feedback: Any) -> Any:
        choice = choice._replace(evidence=Evidence(0, choice.evidence[1]))
        return super().update(state, choice, direction, feedback)


class Naming(Intact):
    """Asks its evidence by name, though bytes keep no names."""

    def update(self, state: BanditState, choice: Choice, direction: Any, feedback: Any) -> Any:
        plain = choice._replace(evidence=Evidence(choice.evidence.block, choice.evidence.x))
        return super().update(state, plain, direction, feedback)


BASE_FAULTS: dict[type, set[str]] = {
    Naming: {"can_be_stored"},
    Intact: set(),
    Mutable: {"is_a_value"},
    Shared: {"starts_afresh"},
    Scribbling: {"only_reads_when_acting"},
    Lucky: {"only_reads_when_acting", "treats_per_arm_contexts_as_their_flat_form"},
    Boasting: {"tells_true_probabilities"},
    Greedy: {"tells_true_probabilities"},
    Idle: {"learns"},
    Referring: {"learns"},
    Forgetful: {"learns", "can_be_stored"},
    FourArms: {"takes_any_number_of_arms"},
    Impatient: {"learns_late"},
    Untidy: {"refuses_vectors_of_another_length"},
    Particular: {"follows_any_direction"},
    Padding: {"refuses_vectors_of_another_length"},
    PaddingRewards: {"refuses_vectors_of_another_length"},
    OneForAll: {"treats_per_arm_contexts_as_their_flat_form"},
}


@dataclass(frozen=True)
class Sound(Frozen, FrankWolfe):
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


class FirstTwice(Sound):
    """Counts the first reward twice."""

    def update(self, state: State, decision: Decision, feedback: Any) -> State:
        first = state.t == 0
        state = super().update(state, decision, feedback)
        if first:
            state.earned[:] *= 2.0
        return state


class AheadOfTime(Sound):
    """Counts the decision that it makes."""

    def act(self, state: State, context: Any, rng: np.random.Generator) -> Decision:
        decision = super().act(state, context, rng)
        return replace(decision, t=decision.t + 1)


class Nameable(Sound):
    """Asks its evidence by name, though bytes keep no names."""

    def update(self, state: State, decision: Decision, feedback: Any) -> State:
        assert decision.evidence.size is not None
        return super().update(state, decision, feedback)


class Turning(Sound):
    """Turns the direction a little in every round."""

    def direction(self, state: State, rng: np.random.Generator) -> Vector:
        return super().direction(state, rng) * (1.0 + 1e-6 * state.t)


class Trusting(Sound):
    """Takes a reward that is NaN for 0."""

    def update(self, state: State, decision: Decision, feedback: Any) -> State:
        return super().update(state, decision, np.nan_to_num(np.array(feedback, dtype=float)))


class Credulous(Sound):
    """Takes a feature that is NaN for 0."""

    def act(self, state: State, context: Any, rng: np.random.Generator) -> Decision:
        if isinstance(context, np.ndarray):
            context = np.nan_to_num(context)
        return super().act(state, context, rng)


POLICY_FAULTS: dict[type, set[str]] = {
    Sound: set(),
    Settable: {"is_a_value"},
    FirstTwice: {"averages_the_rewards"},
    AheadOfTime: {"counts_the_rewards"},
    Nameable: {"learns_from_stored_decisions"},
    Turning: {"keeps_the_direction_of_a_linear_objective"},
    Trusting: {"refuses_bad_rewards"},
    Credulous: {"refuses_bad_contexts"},
}


@dataclass(frozen=True)
class Exact(Frozen, Ridge):
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
    def learn(block: int, x: Vector, reward: Vector, *state: Any) -> None:  # type: ignore[override]
        Ridge.learn(block, x, 0.5 * reward, *state)


class FirstBlock(Exact):
    """Puts every observation into the first block."""

    @staticmethod
    def learn(block: int, x: Vector, reward: Vector, *state: Any) -> None:  # type: ignore[override]
        Ridge.learn(0, x, reward, *state)


class Moody(Exact):
    """Learns a little more or less of the same, as it pleases."""

    @staticmethod
    def learn(block: int, x: Vector, reward: Vector, *state: Any) -> None:  # type: ignore[override]
        Ridge.learn(block, x, reward * (1.0 + 1e-12 * NOISE.random()), *state)


class Overconfident(Exact):
    """Promises a third of the regret bound."""

    def regret_bound(self, problem: Problem) -> RegretBound:
        constant, factor, rate, root = super().regret_bound(problem)
        return RegretBound(constant / 3.0, factor / 3.0, rate, root)


ORACLE_FAULTS: dict[type, set[str]] = {
    Exact: set(),
    Open: {"is_a_value"},
    Together: {"starts_afresh", "keeps_blocks_apart"},
    Jaded: {"predicts_better_and_better", "keeps_its_regret_bound"},
    FirstBlock: {"keeps_blocks_apart"},
    Moody: {"estimates_from_its_state_alone"},
    Overconfident: {"keeps_its_regret_bound"},
}

FAULTS = BASE_FAULTS | POLICY_FAULTS | ORACLE_FAULTS


@pytest.mark.parametrize("broken", FAULTS, ids=lambda cls: cls.__name__)
def test_what_is_broken_fails_the_checks_that_it_should(broken: type) -> None:
    STATES.clear()
    failed = {outcome.check for outcome in outcomes(broken) if outcome.error is not None}
    assert failed == FAULTS[broken]


@pytest.mark.parametrize(
    ("faults", "checks"),
    [(BASE_FAULTS, BASE_CHECKS), (ORACLE_FAULTS, ORACLE_CHECKS)],
    ids=["bandits", "oracles"],
)
def test_every_check_is_shown_to_fail(faults: dict[type, set[str]], checks: list[Any]) -> None:
    assert {one.__name__ for one in checks} == set().union(*faults.values())


def test_every_check_of_policies_alone_is_shown_to_fail() -> None:
    shared = {one.__name__ for one in BASE_CHECKS} - {"is_a_value"}
    own = {one.__name__ for one in POLICY_CHECKS} - shared
    assert own == set().union(*POLICY_FAULTS.values())


def test_a_broken_promise_is_told_in_a_sentence() -> None:
    with pytest.raises(ConformanceError, match=r"Boasting\(.* fails tells_true.*: action \d was"):
        check(Boasting)
    with pytest.raises(ConformanceError, match=r"FirstTwice\(.* after 1 rewards the average is of"):
        check(FirstTwice)
