"""Late feedback and old snapshots: who knows what, when; and nothing else changes."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.agent.file import arrays_of
from fairwolfe.bandits import EpsilonGreedy, Extended, LinUCB, SquareCB, VowpalWabbit
from fairwolfe.core.arrays import Vector
from fairwolfe.core.decision import Decision
from fairwolfe.core.streams import stream
from fairwolfe.environments import FactorModel, Finite, FiniteRanking, Mehrotra, dcg
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Custom, GiniEquality, GiniWelfare, Linear, Minimum, Nash, TwoSided
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank
from fairwolfe.simulation import Lateness, compare, delays, simulate
from fairwolfe.simulation.run import PlainRun, Streams
from fairwolfe.smoothing import Identity, Randomized
from fairwolfe.truth import known

MUSIC = Mehrotra(n_arms=5, n_objectives=3, n_features=3)
ITEMS = FactorModel(12, 15, dcg(5), n_factors=3)
FAIR = TwoSided(GiniEquality(), beta=0.5)

# --- a policy that writes down what it knows --------------------------------------------------

Known = tuple[int, ...]


@dataclass(frozen=True)
class Diary:
    """Its state is the list of decisions that were answered, in the order of the answers."""

    objective: Any = None

    def init(self, problem: fw.Problem) -> list[int]:
        return []

    def act(self, state: list[int], context: Any, rng: np.random.Generator) -> Decision:
        return Decision("", len(state), 0, 1.0, (tuple(state), float(np.sum(context))))

    def update(self, state: list[int], decision: Decision, feedback: Any) -> list[int]:
        state.append(decision.t)
        return state


class Noted(PlainRun):
    """A run that keeps what every decision knew."""

    def answer(self, decision: Any, feedback: Any, reward: Vector) -> None:
        self.notes: list[Any] = [*getattr(self, "notes", []), decision.evidence]
        numbered = Decision("", self.t, 0, 1.0, ())
        super().answer(numbered, feedback, reward)


def diary(lateness: Lateness, horizon: int, world: Any = MUSIC) -> tuple[list[Known], Noted]:
    """What each decision knew, in the order in which it was learnt."""
    drawn = world.init(stream(0, "world"))
    rng = stream(0, "service")
    run = Noted(Diary(), world, drawn, Streams.of(0), False, lateness, rng)
    for _ in range(horizon):
        run.play(1)
    return [known for known, _ in run.notes], run


@pytest.mark.parametrize("delay", [0, 1, 7])
def test_the_next_decisions_are_made_without_a_late_answer(delay: int) -> None:
    knew, _ = diary(Lateness(delay=delay), 30)
    assert knew == [tuple(range(1, max(1, t - delay))) for t in range(1, 31)]


def test_a_snapshot_knows_what_was_known_when_it_was_taken() -> None:
    knew, run = diary(Lateness(refresh=4), 30)
    assert knew == [tuple(range(1, 4 * (t // 4) + 1)) for t in range(30)]
    assert run.state == list(range(1, 31))  # the live state has learnt from all


def test_answers_overtake_each_other_and_are_learnt_as_they_come() -> None:
    _, run = diary(Lateness(delay=delays.Uniform(0, 9)), 200)
    assert run.state != sorted(run.state)
    waiting = sorted(t for _, t, *_ in run.waiting)
    assert sorted(run.state + waiting) == list(range(1, 201))  # nothing is lost or counted twice
    assert min(waiting) > 200 - 10
    assert len(waiting) < 10


def test_a_click_is_seen_before_its_absence() -> None:
    world = Finite(
        [[[1.0], [0.0]]], (1.0,), means=[[[0.3], [0.3]]]
    )  # one reward, 1 with probability .3
    _, run = diary(Lateness(delay=delays.ByOutcome(click=2, no_click=20)), 300, world)
    rewards = stream(0, "noise")
    clicked = [bool(world.draw_noise(rewards, 1)[0, 0] < 0.3) for _ in range(300)]
    arrivals = sorted((t + (2 if hit else 20), t) for t, hit in enumerate(clicked, 1))
    assert run.state == [t for arrival, t in arrivals if arrival <= 300]
    assert 50 < sum(clicked) < 130


def test_in_a_ranking_exposure_alone_is_no_click() -> None:
    world = FiniteRanking([[[1.0], [1.0]]], (0.0,), (1.0,))  # always looked at, never clicked
    assert simulate(FWLinUCBRank(FAIR, exploration="theorem"), world, 5).average[-1, -1] == 0.0
    lateness = Lateness(delay=delays.ByOutcome(click=0, no_click=10**6))
    run = PlainRun(
        FWLinUCBRank(FAIR, exploration="theorem"),
        world,
        world.init(stream(0, "world")),
        Streams.of(0),
        False,
        lateness,
        stream(0, "service"),
    )
    run.play(50)
    assert run.state.t == 0
    assert len(run.waiting) == 50


def test_delays_change_nothing_of_the_world() -> None:
    """A decision of the diary notes its context."""
    several = (Lateness(), Lateness(delay=9), Lateness(delay=delays.Geometric(5.0)))
    contexts = [[seen for _, seen in diary(one, 40)[1].notes] for one in several]
    assert contexts[0] == contexts[1] == contexts[2]


def test_answers_of_one_round_are_learnt_in_the_order_of_decisions() -> None:
    class Shrinking:
        """Answers to the first ten decisions arrive together."""

        def __init__(self) -> None:
            self.t = 0

        def rounds(self, u: float, clicked: bool) -> int:
            self.t += 1
            return max(10 - self.t, 0)

    _, run = diary(Lateness(delay=Shrinking()), 12)
    assert run.state == list(range(1, 13))


# --- answered at once, it is the plain run ----------------------------------------------------


def policies() -> dict[str, tuple[Any, Any]]:
    f = MUSIC.objective()
    return {
        "linucb": (fw.FrankWolfe(f, LinUCB(ridge=0.1, exploration="theorem")), MUSIC),
        "extended": (fw.FrankWolfe(f, LinUCB(model="extended", exploration="theorem")), MUSIC),
        "randomized": (fw.FrankWolfe(f, EpsilonGreedy(0.2), Randomized(n_samples=2)), MUSIC),
        "memory": (fw.FrankWolfe(f, SquareCB(gamma0=10.0), memory=50.0), MUSIC),
        "molincb": (fw.MOLinCB(f), MUSIC),
        "ranking": (FWLinUCBRank(FAIR, exploration=0.1), ITEMS),
        "randomized ranking": (FWLinUCBRank(FAIR, randomize=0.3, exploration="theorem"), ITEMS),
        "floor": (FairLearnRank(0.2, exploration="theorem"), ITEMS),
    }


@pytest.mark.parametrize("name", policies())
def test_at_once_is_the_plain_and_the_compiled_run(name: str) -> None:
    policy, world = policies()[name]
    objective = FAIR if world is ITEMS else None
    given: dict[str, Any] = {"record_actions": True, "objective": objective, "seed": 3}
    plain = simulate(policy, world, 150, compiled=False, **given)
    fast = simulate(policy, world, 150, compiled=True, **given)
    cases: list[tuple[Lateness, bool]] = []
    for one in (Lateness(), Lateness(delay=0, refresh=1)):
        cases.extend(((one, True), (one, False)))
    for lateness, compiled in cases:
        late = simulate(policy, world, 150, lateness=lateness, compiled=compiled, **given)
        assert late.compiled == compiled
        same = fast if compiled else plain
        assert np.array_equal(late.actions, plain.actions)  # type: ignore[arg-type]
        assert np.array_equal(late.actions, fast.actions)  # type: ignore[arg-type]
        assert np.array_equal(late.average, same.average)
        assert np.array_equal(late.average_observed, same.average_observed)
        assert np.array_equal(late.scalar_regret, same.scalar_regret)
        assert np.allclose(late.average, fast.average, rtol=0.0, atol=1e-12)


# --- the compiled loops decide as the plain one -----------------------------------------------


class Bursts:
    """A law of one's own."""

    def __repr__(self) -> str:
        return "Bursts()"

    def rounds(self, u: float, clicked: bool) -> int:
        return 0 if u < 0.5 else 50 + 7 * clicked


LAWS: tuple[Any, ...] = (
    30,
    delays.Geometric(20.0),
    delays.Uniform(0, 40),
    delays.ByOutcome(click=2, no_click=60),
    Bursts(),
)


RIVALS = Finite.a2()  # arms that one reward or the other prefers: directions matter


def many_policies() -> dict[str, tuple[Any, Any]]:
    f = Minimum()
    made: dict[str, tuple[Any, Any]] = {}
    for anticipate in (True, False):
        for memory in (None, 40.0):
            how: dict[str, Any] = {"anticipate": anticipate, "memory": memory}
            arms: dict[str, Any] = {
                "linucb": fw.FrankWolfe(f, LinUCB(ridge=0.1, exploration="theorem"), **how),
                "extended": fw.FrankWolfe(
                    f, LinUCB(model="extended", exploration="theorem"), **how
                ),
                "randomized": fw.FrankWolfe(f, EpsilonGreedy(0.2), Randomized(n_samples=2), **how),
                "squarecb": fw.FrankWolfe(f, SquareCB(gamma0=10.0), **how),
            }
            last: dict[str, Any] = how | {"exposure": "until_last_click", "randomize": 0.3}
            shown: dict[str, Any] = how | {"exposure": "shown"}
            ranks = {
                "ranking": FWLinUCBRank(FAIR, exploration=0.1, **how),
                "expected": FWLinUCBRank(FAIR, iterate="expected", **how),
                "swapping": FWLinUCBRank(FAIR, **last),
                "sampled": FWLinUCBRank(FAIR, smoothing=Randomized(n_samples=2), **shown),
            }
            label = f"anticipate={anticipate}, memory={memory}"
            made.update({f"{name}, {label}": (one, RIVALS) for name, one in arms.items()})
            made.update({f"{name}, {label}": (one, ITEMS) for name, one in ranks.items()})
    return made | {
        "molincb": (fw.MOLinCB(f), RIVALS),
        "floor": (FairLearnRank(0.2, exploration="theorem"), ITEMS),
    }


@pytest.mark.parametrize("name", many_policies())
def test_the_compiled_loops_decide_as_the_plain_one(name: str) -> None:
    """Answers overtake each other, come in bursts, and are more than a chunk holds at first."""
    policy, world = many_policies()[name]
    objective = FAIR if world is ITEMS else None
    given: dict[str, Any] = {"record_actions": True, "objective": objective, "seed": 2}
    for place, law in enumerate(LAWS):
        for refresh in (1, 7, 100):
            if refresh > 1 and place % 2:  # half of them, for time
                continue
            given["lateness"] = Lateness(delay=law, refresh=refresh)
            plain = simulate(policy, world, 200, compiled=False, **given)
            fast = simulate(policy, world, 200, **given)
            assert fast.compiled
            assert not plain.compiled
            assert np.array_equal(fast.actions, plain.actions)  # type: ignore[arg-type]
            assert np.array_equal(fast.average, plain.average)
            assert np.array_equal(fast.average_observed, plain.average_observed)
            assert np.allclose(fast.scalar_regret, plain.scalar_regret, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("name", ["linucb", "extended", "squarecb", "ranking"])
def test_that_open_decisions_count_changes_what_is_decided(name: str) -> None:
    """So that the test above compares something."""
    counted, world = many_policies()[f"{name}, anticipate=True, memory=None"]
    ignored, _ = many_policies()[f"{name}, anticipate=False, memory=None"]
    given: dict[str, Any] = {"lateness": Lateness(delay=30), "record_actions": True}
    one, two = (simulate(policy, world, 200, **given) for policy in (counted, ignored))
    assert not np.array_equal(one.actions, two.actions)  # type: ignore[arg-type]


def test_answers_beyond_the_horizon_take_no_room() -> None:
    policy, world = policies()["ranking"]
    given: dict[str, Any] = {"record_actions": True}
    never = simulate(policy, world, 60, lateness=Lateness(delay=10**15), **given)
    just = simulate(policy, world, 60, lateness=Lateness(delay=60), **given)
    assert never.compiled
    assert np.array_equal(never.actions, just.actions)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["linucb", "ranking"])
def test_an_interrupt_returns_what_was_played(name: str) -> None:
    """The same as of a run that is no longer: what comes after its end takes no part in it."""
    policy, world = policies()[name]
    given: dict[str, Any] = {"lateness": Lateness(delay=20, refresh=3), "record_actions": True}
    played: list[int] = []

    def stop(rounds: int) -> None:
        played.append(rounds)
        if sum(played) > 150:
            raise KeyboardInterrupt

    cut = simulate(policy, world, 500, progress=stop, **given)
    assert cut.compiled
    assert not cut.complete
    shorter = simulate(policy, world, sum(played), **given)
    assert np.array_equal(cut.actions, shorter.actions)  # type: ignore[arg-type]
    assert np.array_equal(cut.average[-1], shorter.average[-1])


def test_rankings_that_average_chances_are_the_same_in_both_loops() -> None:
    policy = FWLinUCBRank(FAIR, exploration=0.1, iterate="expected")
    given: dict[str, Any] = {"record_actions": True}
    plain = simulate(policy, ITEMS, 150, compiled=False, **given)
    fast = simulate(policy, ITEMS, 150, compiled=True, **given)
    assert np.array_equal(plain.actions, fast.actions)  # type: ignore[arg-type]
    observed = simulate(FWLinUCBRank(FAIR, exploration=0.1), ITEMS, 150, **given)
    assert not np.array_equal(plain.actions, observed.actions)  # type: ignore[arg-type]


# --- who counts what as open ------------------------------------------------------------------

HALF_LIFE, DELAY = 20.0, 5


def weight_of(opened: list[int], waiting: set[int]) -> float:
    """What open decisions weigh in a state that has counted `opened`, in this order."""
    keep = 0.5 ** (1.0 / HALF_LIFE)
    last = len(opened) - 1
    return sum(float(keep ** (last - i)) for i, t in enumerate(opened) if t in waiting)


def check_open(state: Any, opened: list[int], waiting: set[int]) -> None:
    assert state.open == len(waiting & set(opened))
    assert state.issued == len(opened)
    assert np.allclose(state.state.weights, weight_of(opened, waiting), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("refresh", [1, 4])
def test_every_state_counts_the_decisions_that_it_knows_of(refresh: int) -> None:
    """With memory, an open decision weighs less the more came after it in the same state."""
    policy = fw.FrankWolfe(MUSIC.objective(), LinUCB(exploration="theorem"), memory=HALF_LIFE)
    lateness = Lateness(delay=DELAY, refresh=refresh)
    drawn = MUSIC.init(stream(0, "world"))
    run = PlainRun(policy, MUSIC, drawn, Streams.of(0), False, lateness, stream(0, "service"))
    live: list[int] = []
    old: list[int] = []
    before: set[int] = set()
    for t in range(1, 60):
        if (t - 1) % refresh == 0:
            old, before = list(live), set(range(1, t - DELAY))
        live.append(t)
        old.append(t)
        run.play(1)
        check_open(run.state, live, set(range(t - DELAY + 1, t + 1)) & set(live))
        if refresh > 1:
            check_open(run.snapshot, old, set(old) - before)


class Hoarding(PlainRun):
    """Estimates are never withdrawn: decisions count as open for ever, although answered."""

    def learn(self, decision: Any, feedback: Any) -> None:
        decision.batch.rows.head["place"] = -1
        super().learn(decision, feedback)


@pytest.mark.parametrize(("kind", "right"), [(PlainRun, True), (Hoarding, False)])
def test_an_answer_replaces_the_estimate(kind: Any, right: bool) -> None:
    """Where the gradient is taken, against a sum over decisions; and that this can fail."""
    f = Nash(offset=0.1)  # every z has a gradient of its own
    policy = fw.FrankWolfe(f, LinUCB(exploration="theorem"), Identity())
    drawn = MUSIC.init(stream(0, "world"))
    lateness = Lateness(delay=10)
    run = kind(policy, MUSIC, drawn, Streams.of(0), False, lateness, stream(0, "service"))
    rewards: list[Vector] = []
    for _ in range(80):
        before = run.reward_sum.copy()
        run.play(1)
        rewards.append(run.reward_sum - before)
    state = run.state.state
    theta = state.theta[0]
    rows = [decision.batch.rows.x[0] for *_, decision, _ in run.waiting]
    assert len(rows) == 10
    learnt = state.psi[0, 0, :-1]  # the sum over the answered
    answered = np.mean(rewards[:70], axis=0)
    away = answered - theta @ learnt / 70
    estimates = np.clip(theta @ np.mean(rows, axis=0) + away, 0.0, 1.0)
    z = (70 * answered + 10 * estimates) / 80
    assert np.allclose(run.state.direction(), f.gradient(z), rtol=0.0, atol=1e-9) == right
    assert (run.state.t + run.state.open == 80) == right


def test_without_regrets_the_run_is_the_same() -> None:
    policy, world = policies()["ranking"]
    given: dict[str, Any] = {"lateness": Lateness(delay=20), "record_actions": True}
    one = simulate(policy, world, 100, **given)
    two = simulate(policy, world, 100, scalar_regret=False, **given)
    assert np.array_equal(one.actions, two.actions)  # type: ignore[arg-type]
    assert np.isfinite(one.scalar_regret).all()
    assert np.isnan(two.scalar_regret).all()


def test_a_reference_that_knows_the_world_may_be_answered_late() -> None:
    late = simulate(known(MUSIC, MUSIC.objective()), MUSIC, 60, lateness=Lateness(delay=5))
    assert not late.compiled


# --- copies -----------------------------------------------------------------------------------


def played(policy: Any, world: Any, rounds: int) -> tuple[Any, Any, Any]:
    """A state after some rounds, and a decision with its feedback."""
    drawn, streams = world.init(stream(0, "world")), Streams.of(0)
    state = policy.init(world.problem())
    for t in range(rounds):
        context = world.context(drawn, t + 1, streams.contexts)
        decision = policy.act(state, context, streams.policy)
        feedback = world.feedback(drawn, context, decision.action, streams.noise)
        if t < rounds - 1:
            state = policy.update(state, decision, feedback)
    return state, decision, feedback


def check_copies(policy: Any, world: Any) -> None:
    state, decision, feedback = played(policy, world, 40)
    twin = deepcopy(state)
    before = {name: array.copy() for name, array in arrays_of(state)}
    arrays, copies = dict(arrays_of(state)), dict(arrays_of(twin))
    for name, array in arrays.items():
        assert np.array_equal(array, copies[name]), name
        assert array.size == 0 or not np.shares_memory(array, copies[name]), name
    twin = policy.update(twin, decision, feedback)
    context = world.context(world.init(stream(0, "world")), 1, stream(1, "contexts"))
    ahead = policy.act(twin, context, stream(0, "policy"))
    for name, array in arrays_of(state):
        assert np.array_equal(array, before[name]), name
    # The first goes on as if there were no copy.
    state = policy.update(state, decision, feedback)
    one = policy.act(state, context, stream(0, "policy"))
    assert np.array_equal(one.action, ahead.action)
    for name, array in arrays_of(state):
        assert np.array_equal(array, dict(arrays_of(twin))[name]), name


@pytest.mark.parametrize("name", policies())
def test_a_copy_shares_nothing_that_changes(name: str) -> None:
    check_copies(*policies()[name])


def least(z: Vector) -> float:
    return float(z.min())


def least_unit(z: Vector) -> Vector:
    unit: Vector = np.eye(z.size)[int(z.argmin())]
    return unit


def test_functions_of_ones_own_are_shared() -> None:
    check_copies(fw.FrankWolfe(Custom(least, least_unit), LinUCB(exploration="theorem")), MUSIC)


@pytest.mark.needs("scikit-learn")
def test_a_fitted_model_is_copied() -> None:
    """Two copies have seen equally many observations, but not the same ones."""
    from fairwolfe.oracles import SklearnRegressor

    oracle = SklearnRegressor("sklearn.tree:DecisionTreeRegressor", {"max_depth": 2}, first=2)
    policy = fw.FrankWolfe(GiniWelfare(), EpsilonGreedy(0.2, oracle=oracle))
    check_copies(policy, MUSIC)
    state, decision, feedback = played(policy, MUSIC, 40)
    twins = [deepcopy(state) for _ in range(2)]
    context = MUSIC.context(MUSIC.init(stream(0, "world")), 1, stream(1, "contexts"))
    models = []
    for i, start in enumerate(twins):
        twin = start
        for _ in range(30):
            twin = policy.update(twin, decision, np.asarray(feedback) + 10.0 * i)
        policy.act(twin, context, stream(0, "policy"))
        oracle = twin.base_state.oracle
        models.append(oracle.plan.predict(oracle, np.asarray(context)))
    assert models[1].max() > models[0].max() + 5.0


@pytest.mark.needs("vowpalwabbit")
def test_the_model_of_another_library_is_copied() -> None:
    check_copies(fw.FrankWolfe(GiniWelfare(), Extended(VowpalWabbit())), MUSIC)


# --- laws of delay ----------------------------------------------------------------------------

GRID = (np.arange(100_000) + 0.5) / 100_000


def test_laws_have_the_distribution_that_they_state() -> None:
    lengths = np.array([delays.Geometric(20.0).rounds(u, True) for u in GRID])
    assert lengths.min() == 0
    assert lengths.mean() == pytest.approx(20.0, rel=1e-3)
    assert (lengths >= 10).mean() == pytest.approx((20 / 21) ** 10, abs=1e-4)
    lengths = np.array([delays.Uniform(3, 6).rounds(u, True) for u in GRID])
    assert np.bincount(lengths).tolist() == [0, 0, 0, 25_000, 25_000, 25_000, 25_000]
    assert {delays.Geometric(0).rounds(u, True) for u in (0.0, 0.999)} == {0}
    nested = delays.ByOutcome(click=delays.Uniform(0, 1), no_click=delays.Constant(8))
    assert [nested.rounds(0.7, hit) for hit in (True, False)] == [1, 8]


def test_ones_own_law() -> None:
    @dataclass(frozen=True)
    class Bursts:
        def rounds(self, u: float, clicked: bool) -> int:
            return 0 if u < 0.5 else 50

    knew, _ = diary(Lateness(delay=Bursts()), 20)
    assert 0 < len(knew[-1]) < 19


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Lateness(delay=-1), "delay is -1"),
        (lambda: Lateness(delay=True), "delay is True"),
        (lambda: Lateness(delay=2.5), "delay is 2.5"),  # type: ignore[arg-type]
        (lambda: Lateness(delay="late"), "delay is 'late'"),  # type: ignore[arg-type]
        (lambda: Lateness(refresh=0), "refresh is 0"),
        (lambda: delays.Constant(-1), "the delay is -1"),
        (lambda: delays.Geometric(-1.0), "mean is -1.0"),
        (lambda: delays.Geometric(float("inf")), "mean is inf"),
        (lambda: delays.Uniform(5, 3), "low is 5 and high is 3"),
        (lambda: delays.Uniform(-1, 3), "low is -1"),
        (lambda: delays.ByOutcome(click=0, no_click=1.5), "no_click is 1.5"),  # type: ignore[arg-type]
    ],
)
def test_a_lateness_that_cannot_be_is_refused(make: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        make()


def test_simulate_refuses_what_does_not_fit() -> None:
    policy = fw.FrankWolfe(MUSIC.objective(), LinUCB(exploration="theorem"))
    with pytest.raises(InvalidInput, match="give a Lateness"):
        simulate(policy, MUSIC, 10, lateness=100)  # type: ignore[arg-type]


@pytest.mark.parametrize("rounds", [-1, 2.5, True, "soon"])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_law_that_gives_no_number_of_rounds_is_refused(rounds: Any, compiled: bool) -> None:
    class Odd:
        def rounds(self, u: float, clicked: bool) -> Any:
            return rounds

    policy = fw.FrankWolfe(MUSIC.objective(), LinUCB(exploration="theorem"))
    with pytest.raises(InvalidInput, match="a delay is a whole number of at least 0"):
        simulate(policy, MUSIC, 10, lateness=Lateness(delay=Odd()), compiled=compiled)


def test_a_lateness_is_printable_and_comparable() -> None:
    one = Lateness(delay=delays.ByOutcome(click=2, no_click=delays.Geometric(5.0)), refresh=3)
    assert eval(repr(one), {"Lateness": Lateness} | vars(delays)) == one
    assert hash(one) == hash(Lateness(delay=one.delay, refresh=3))


# --- compare, bounds --------------------------------------------------------------------------


def test_compare_is_late_for_all_policies_or_those_named() -> None:
    policy = fw.FrankWolfe(MUSIC.objective(), LinUCB(exploration="theorem"))
    both = {"now": policy, "late": policy}
    result = compare(both, MUSIC, 60, 2, lateness={"late": Lateness(delay=30)})
    assert [trace.compiled for trace in result.traces["now"]] == [True, True]
    assert [trace.compiled for trace in result.traces["late"]] == [True, True]
    everyone = compare(both, MUSIC, 60, 1, lateness=Lateness(delay=30))
    late = everyone.traces["now"][0].average
    assert np.array_equal(late, result.traces["late"][0].average)
    with pytest.raises(InvalidInput, match="lateness names"):
        compare(both, MUSIC, 10, 1, lateness={"later": Lateness()})


def test_the_estimate_of_what_a_delay_costs() -> None:
    """tau D_K^2/(beta_0 sqrt T), twice: linear in tau, falling with the root of T."""
    small = Finite.a2()  # D_K^2 = 2, and L = 1
    given: dict[str, Any] = {"problem": small, "objective": Minimum()}
    cost = fw.bounds.delay_cost
    assert cost(horizon=10_000, delay=3, beta0=0.5, **given) == pytest.approx(2 * 3 * 2 / 50)
    default = cost(horizon=10_000, delay=3, **given)
    assert default == pytest.approx(2 * 3 * 2**0.5 / 100)
    many = cost(horizon=np.array([100.0, 400.0]), delay=3, **given)
    assert many[0] == pytest.approx(2.0 * many[1])
    assert cost(horizon=100, delay=0, **given) == 0.0
    items: dict[str, Any] = {"problem": ITEMS, "objective": FAIR, "delay": 1, "beta0": 1.0}
    items["horizon"] = 100
    # f is linear in the clicks: 2 k instead of k^2 + 2 k.
    assert cost(**items, tight=True) / cost(**items) == pytest.approx(10 / 35)
    assert cost(problem=small, objective=Linear([1.0, 0.0]), horizon=100, delay=5) == 0.0
    with pytest.raises(InvalidInput, match="delay is -1"):
        cost(horizon=100, delay=-1, **given)
    with pytest.raises(fw.errors.OutsideAssumptions):
        cost(problem=MUSIC, objective=MUSIC.objective(), horizon=100, delay=1)


# --- in a spec of the lab ---------------------------------------------------------------------


def built(lateness: Any) -> Any:
    """The Lateness of a spec with such options."""
    from fairwolfe.lab.play import build
    from fairwolfe.lab.spec import RunSettings

    settings = RunSettings(
        environment={"name": "mehrotra"},
        objective={"name": "minimum"},
        policy={"name": "frank-wolfe", "base": {"name": "linucb"}},
        horizon=10,
        checkpoints=None,
        options={"lateness": lateness},
    )
    return build(settings).options["lateness"]


def test_a_spec_may_state_the_lateness() -> None:
    assert built({"delay": 100, "refresh": 5}) == Lateness(delay=100, refresh=5)
    slow = {"name": "geometric", "mean": 50}
    law = {"name": "by-outcome", "click": slow, "no_click": 100}
    expected = delays.ByOutcome(click=delays.Geometric(50), no_click=100)
    assert built({"delay": law}) == Lateness(delay=expected)
    assert built({"delay": {"name": "fairwolfe.simulation.delays:Uniform", "low": 1, "high": 2}})


@pytest.mark.parametrize(
    ("lateness", "sentence"),
    [
        (100, "options.lateness is 100"),
        ({"delays": 3}, "options.lateness.delays is not a parameter"),
        ({"delay": {"name": "weekly"}}, "options.lateness.delay.name is 'weekly'"),
        ({"delay": {"mean": 3}}, "options.lateness.delay.name is None"),
        ({"delay": {"name": "geometric"}}, "options.lateness.delay.mean is missing"),
        ({"delay": -1}, "options.lateness: delay is -1"),
    ],
)
def test_a_lateness_in_a_spec_is_refused_by_its_path(lateness: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        built(lateness)
