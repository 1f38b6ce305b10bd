"""Rankers and ranking policies that each break one promise, and the checks that must notice."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from fairwolfe.checks import (
    BASE_CHECKS,
    POLICY_CHECKS,
    RANKING_BASE_CHECKS,
    RANKING_POLICY_CHECKS,
    check,
    checks_for,
    outcomes,
)
from fairwolfe.checks.promise import examples_of
from fairwolfe.checks.ranking import heeds_items, player_of_base
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.catalogue import Candidates
from fairwolfe.core.contexts import Bilinear
from fairwolfe.core.decision import Choice, Decision
from fairwolfe.core.feedback import Shown
from fairwolfe.core.problem import Problem
from fairwolfe.core.registry import KINDS, import_class
from fairwolfe.core.streams import stream
from fairwolfe.errors import ConformanceError, InvalidInput
from fairwolfe.kernels.linalg import UPDATES
from fairwolfe.objectives import EqualExposure, GiniEquality, TwoSided
from fairwolfe.ranking import FWLinUCBRank, LinUCBRank, Ranker
from fairwolfe.ranking.policies import as_policy
from fairwolfe.ranking.ranker import RankState
from fairwolfe.reduction import FrankWolfe
from fairwolfe.reduction.state import State
from tests.conformance.subclasses import below
from tests.conformance.test_players import Frozen

NOISE = np.random.default_rng(0)
STATES: dict[Any, Any] = {}


@dataclass(frozen=True, kw_only=True)
class Intact(Frozen, LinUCBRank):
    """Nothing is wrong."""

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(),)


@dataclass(frozen=True, kw_only=True)
class Swapping(Intact):
    """Nothing is wrong, and slots are swapped at random."""

    randomize: float = 0.3


class Mutable(Intact):
    """Anybody can set an attribute."""

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


class Shared(Intact):
    """Everybody is given the same state."""

    def init(self, problem: Problem, *rest: Any) -> RankState:
        return STATES.setdefault(problem, super().init(problem, *rest))  # type: ignore[no-any-return]


class Scribbling(Intact):
    """`act` leaves a mark in the state."""

    def act(self, state: RankState, *given: Any, **options: Any) -> Choice:
        choice = super().act(state, *given, **options)
        state.slots[1, 0] += 1e-12
        return choice


class Lucky(Swapping):
    """Draws from a generator of its own."""

    def act(
        self, state: RankState, context: Any, direction: Vector, rng: Any, **options: Any
    ) -> Choice:
        return super().act(state, context, direction, NOISE, **options)


class Repeating(Intact):
    """Shows the best item twice, if the direction is small."""

    def act(
        self, state: RankState, context: Any, direction: Vector, rng: Any, **options: Any
    ) -> Choice:
        choice = super().act(state, context, direction, rng, **options)
        shown = np.asarray(choice.action)
        ranking = np.append(shown[:-1], shown[0])
        return choice if abs(direction).max() > 900.0 else choice._replace(action=ranking)


class Boasting(Intact):
    """Says a probability that is a tenth too small."""

    def act(self, state: RankState, *given: Any, **options: Any) -> Choice:
        choice = super().act(state, *given, **options)
        assert choice.probability is not None
        return choice._replace(probability=0.9 * choice.probability)


class OfOneSwap(Swapping):
    """Says the chance of the swaps alone, and forgets that there are two ways to none."""

    def act(self, state: RankState, *given: Any, **options: Any) -> Choice:
        choice = super().act(state, *given, **options)
        assert choice.probability is not None
        none = 0.5 * (1.0 - self.randomize) * 2.0
        unmoved = choice.probability >= none - 1e-12
        return choice._replace(probability=0.5 * none if unmoved else choice.probability)


class Idle(Intact):
    """Never learns."""

    def update(self, state: RankState, choice: Choice, direction: Any, feedback: Any) -> Any:
        return state


class Referring(Intact):
    """Keeps the caller's array of the user instead of a copy."""

    def act(self, state: RankState, context: Any, *given: Any, **options: Any) -> Choice:
        choice = super().act(state, context, *given, **options)
        return choice._replace(evidence=choice.evidence._replace(user=context.user))


class Forgetful(Intact):
    """Its state depends on what it did before with other states."""

    def update(self, state: RankState, choice: Choice, direction: Any, feedback: Any) -> Any:
        state = super().update(state, choice, direction, feedback)
        state.oracle.counters[3] += 1e-12 * NOISE.random()
        return state


class Impatient(Intact):
    """Wants the feedback of a ranking before the next one is learnt."""

    def act(self, state: RankState, *given: Any, **options: Any) -> Choice:
        choice = super().act(state, *given, **options)
        return choice._replace(evidence=(choice.evidence, state.oracle.counters[UPDATES]))

    def update(self, state: RankState, choice: Choice, direction: Any, feedback: Any) -> Any:
        evidence, t = choice.evidence
        if t != state.oracle.counters[UPDATES]:
            raise InvalidInput("too late")
        return super().update(state, choice._replace(evidence=evidence), direction, feedback)


class Untidy(Intact):
    """Refuses what is bad, but only after it has changed its state."""

    def act(self, state: RankState, *given: Any, **options: Any) -> Choice:
        try:
            return super().act(state, *given, **options)
        except InvalidInput:
            state.oracle.theta[0, 0, 0] += 1.0
            raise


class Particular(Intact):
    """Will not have a direction of 0."""

    def act(
        self, state: RankState, context: Any, direction: Vector, rng: Any, **options: Any
    ) -> Choice:
        if not np.any(direction):
            raise InvalidInput("where to?")
        return super().act(state, context, direction, rng, **options)


class Padding(Intact):
    """Makes any direction as long as it should be."""

    def act(
        self, state: RankState, context: Any, direction: Vector, rng: Any, **options: Any
    ) -> Choice:
        n = state.problem.n_objectives
        return super().act(state, context, np.resize(direction, n), rng, **options)


class Unpinned(Intact):
    """Shows the best, whatever is pinned."""

    def act(self, state: RankState, context: Any, *given: Any, **options: Any) -> Choice:
        unpinned = context._replace(pinned=context.pinned[:0])
        return super().act(state, unpinned, *given, **options)


def twisted(context: Any) -> Any:
    """A context, read or not, with half of a feature of the user."""
    if not isinstance(context, (Bilinear, Candidates)) or np.shape(context.user) != (2,):
        return context
    first, second = context.user
    user = [first, 0.5 * second if second != "a" else second]
    if isinstance(context, Bilinear):
        return Bilinear(user, context.items)
    return context._replace(user=np.array(user))


class Twisted(Intact):
    """Takes a feature of the user for half of it, where users and items are apart."""

    def act(self, state: RankState, context: Any, *given: Any, **options: Any) -> Choice:
        return super().act(state, twisted(context), *given, **options)


class Naming(Intact):
    """Asks its evidence by name, though bytes keep no names."""

    def update(self, state: RankState, choice: Choice, direction: Any, feedback: Any) -> Any:
        plain = choice._replace(evidence=tuple(choice.evidence._asdict().values()))
        return super().update(state, plain, direction, feedback)


class Amnesiac(Intact):
    """Forgets what it knows of the rewards when items come."""

    def with_items(self, state: RankState, features: Matrix) -> RankState:
        longer = super().with_items(state, features)
        fresh = self.init(longer.problem)
        return longer._replace(oracle=fresh.oracle)


class Closed(Intact):
    """Never shows an item that came late."""

    def act(
        self, state: RankState, context: Any, direction: Vector, rng: Any, **options: Any
    ) -> Choice:
        direction = direction.copy()
        direction[6 : state.exposed.size] = -1e6
        return super().act(state, context, direction, rng, **options)


BASE_FAULTS: dict[type, set[str]] = {
    Intact: set(),
    Mutable: {"is_a_value"},
    Swapping: set(),
    Shared: {"starts_afresh", "treats_products_as_their_flat_form"},
    Scribbling: {"only_reads_when_acting"},
    Lucky: {
        "only_reads_when_acting",
        "treats_products_as_their_flat_form",
        "takes_new_items",
    },
    Repeating: {  # nothing can be learnt of what the kind does not take for a ranking
        "starts_afresh",
        "only_reads_when_acting",
        "tells_true_probabilities",
        "learns",
        "learns_late",
        "can_be_stored",
        "treats_products_as_their_flat_form",
        "follows_any_direction_of_items",
        "refuses_directions_of_another_length",
        "shows_what_may_be_shown",
        "takes_new_items",
    },
    Boasting: {"tells_true_probabilities"},
    OfOneSwap: {"tells_true_probabilities"},
    Idle: {"learns"},
    Referring: {"learns"},
    Forgetful: {"learns", "can_be_stored"},
    Impatient: {"learns_late"},
    Untidy: {"refuses_directions_of_another_length"},
    Particular: {"follows_any_direction_of_items"},
    Padding: {"refuses_directions_of_another_length", "shows_what_may_be_shown"},
    Unpinned: {"shows_what_may_be_shown"},
    Twisted: {"treats_products_as_their_flat_form"},
    Amnesiac: {"takes_new_items"},
    Naming: {"can_be_stored"},
    Closed: {"takes_new_items"},
}


@dataclass(frozen=True)
class Sound(Frozen, FWLinUCBRank):
    """A policy of which nothing is wrong."""

    objective: Any = field(default_factory=lambda: TwoSided(GiniEquality()))

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


class CountsAll(Sound):
    """Counts every slot as looked at, though it says that exposures are observed."""

    def update(self, state: State, decision: Decision, feedback: Any) -> State:
        state.plan.kind.observe(decision.action, feedback)  # refuses what is bad
        return super().update(state, decision, Shown(np.ones(3), feedback.rewards))


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
        if isinstance(feedback, Shown) and np.isnan(feedback.rewards).any():
            feedback = Shown(feedback.exposed, np.nan_to_num(feedback.rewards))
        return super().update(state, decision, feedback)


class Credulous(Sound):
    """Takes a feature of the user that is NaN for 0."""

    def act(self, state: State, context: Any, rng: np.random.Generator) -> Decision:
        if isinstance(context, Bilinear) and isinstance(context.user, np.ndarray):
            context = Bilinear(np.nan_to_num(context.user), context.items)
        return super().act(state, context, rng)


class Crooked(Sound):
    """Takes a feature of the user for half of it, where users and items are apart."""

    def act(self, state: State, context: Any, rng: np.random.Generator) -> Decision:
        return super().act(state, twisted(context), rng)


POLICY_FAULTS: dict[type, set[str]] = {
    Sound: set(),
    Settable: {"is_a_value"},
    FirstTwice: {"averages_the_rewards"},
    CountsAll: {"averages_the_rewards"},
    AheadOfTime: {"counts_the_rewards"},
    Nameable: {"learns_from_stored_decisions"},
    Turning: {"keeps_the_direction_of_a_linear_objective"},
    Trusting: {"refuses_bad_rewards"},
    Credulous: {"refuses_bad_contexts"},
    Crooked: {"treats_products_as_their_flat_form"},
}

FAULTS = BASE_FAULTS | POLICY_FAULTS


@pytest.mark.parametrize("broken", FAULTS, ids=lambda cls: cls.__name__)
def test_what_is_broken_fails_the_checks_that_it_should(broken: type) -> None:
    STATES.clear()
    failed = {outcome.check for outcome in outcomes(broken) if outcome.error is not None}
    assert failed == FAULTS[broken]


def test_every_check_of_rankers_is_shown_to_fail() -> None:
    named = {one.__name__ for one in RANKING_BASE_CHECKS}
    assert named == set().union(*BASE_FAULTS.values())


def test_every_check_of_ranking_policies_alone_is_shown_to_fail() -> None:
    shared = {one.__name__ for one in RANKING_BASE_CHECKS} & {c.__name__ for c in BASE_CHECKS}
    own = {one.__name__ for one in RANKING_POLICY_CHECKS} - (shared - {"is_a_value"})
    assert own == set().union(*POLICY_FAULTS.values())


def test_what_ranks_is_checked_as_such() -> None:
    assert checks_for(LinUCBRank()) is RANKING_BASE_CHECKS
    assert checks_for(FWLinUCBRank(TwoSided(EqualExposure()))) is RANKING_POLICY_CHECKS
    inside = FrankWolfe(TwoSided(EqualExposure()), LinUCBRank(exposure="shown"))
    assert checks_for(inside) is RANKING_POLICY_CHECKS
    assert check(inside) == len(RANKING_POLICY_CHECKS)
    assert checks_for(FrankWolfe.examples()[0]) is POLICY_CHECKS


# --- every ranker of the package, also those that no name leads to ------------------------------


def rankers() -> dict[Any, type]:
    """Those of the registry's bandits and inside its policies, with their classes."""
    found: dict[Any, type] = {}
    for kind in ("bandits", "policies"):
        for address in KINDS[kind].values():
            cls = import_class(address)
            for example in examples_of(cls):
                ranker = example.base if isinstance(example, FrankWolfe) else example
                if isinstance(ranker, Ranker):
                    found[ranker] = type(ranker)
    return found


def test_every_ranker_is_reached() -> None:
    ours = {cls for cls in below(Ranker) if cls.__module__.startswith("fairwolfe.")}
    assert set(rankers().values()) == ours
    assert len(ours) >= 3


@pytest.mark.parametrize("ranker", rankers(), ids=repr)
def test_every_ranker_keeps_its_contract(ranker: Any) -> None:
    assert checks_for(ranker) is RANKING_BASE_CHECKS
    assert check(ranker) == len(RANKING_BASE_CHECKS)


@pytest.mark.parametrize("ranker", rankers(), ids=repr)
def test_every_ranker_alone_keeps_the_contract_of_policies(ranker: Any) -> None:
    policy = as_policy(ranker)
    assert checks_for(policy) is RANKING_POLICY_CHECKS
    assert check(policy) == len(RANKING_POLICY_CHECKS)


@pytest.mark.parametrize("ranker", rankers(), ids=repr)
def test_rankers_of_the_registry_heed_the_direction_of_items(ranker: Any) -> None:
    """So that they are asked not to show new items that are unwanted."""
    rng = stream(0, "checks")
    state = player_of_base(ranker).learned(rng)
    assert heeds_items(ranker, state, rng) == isinstance(ranker, LinUCBRank)


def test_a_broken_promise_is_told_in_a_sentence() -> None:
    with pytest.raises(ConformanceError, match=r"Repeating\(.*_afresh: .*shows an item once"):
        check(Repeating)
