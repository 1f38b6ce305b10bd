"""Late feedback, old snapshots, replicas: who knows what, when; and nothing else changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB
from fairwolfe.core.arrays import Vector
from fairwolfe.core.decision import Decision
from fairwolfe.core.streams import stream
from fairwolfe.environments import FactorModel, Finite, FiniteRanking, Mehrotra, dcg
from fairwolfe.kernels.compile import preparations, ready
from fairwolfe.objectives import GiniEquality, Minimum, TwoSided
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank
from fairwolfe.simulation import Lateness, delays, simulate
from fairwolfe.simulation.delivery import LateRun, Post
from fairwolfe.simulation.rollout import needed
from fairwolfe.simulation.streams import Streams
from fairwolfe.smoothing import Randomized

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


class Noted(LateRun):
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


def test_a_replica_knows_its_own_decisions_and_what_was_merged() -> None:
    knew, run = diary(Lateness(replicas=3, merge=6), 30)
    for done, known_then in enumerate(knew):
        merged = 6 * (done // 6)
        own = [t + 1 for t in range(merged, done) if t % 3 == done % 3]
        assert known_then == (*range(1, merged + 1), *own)
    assert run.state == list(range(1, 31))


def test_a_late_answer_to_a_replica_survives_the_merge_once() -> None:
    """Decision 4 (of replica 1, delay 5) is answered after round 9, and merged at the 10th."""
    knew, _ = diary(Lateness(delay=5, replicas=2, merge=10), 12)
    assert knew[9] == (2, 4)  # decision 10 is of replica 1, whose decisions were 2, 4, 6, 8
    assert knew[10] == knew[11][:5] == (1, 2, 3, 4, 5)


def test_snapshots_of_replicas() -> None:
    knew, _ = diary(Lateness(replicas=2, merge=8, refresh=4), 12)
    assert knew[:4] == [()] * 4
    assert knew[4:8] == [(1, 3), (2, 4)] * 2
    assert knew[8:] == [tuple(range(1, 9))] * 4


def test_answers_overtake_each_other_and_are_learnt_as_they_come() -> None:
    _, run = diary(Lateness(delay=delays.Uniform(0, 9)), 200)
    assert run.state != sorted(run.state)
    waiting = sorted(t for _, t, _ in run.post.waiting)
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
    assert simulate(FWLinUCBRank(FAIR), world, 5).average[-1, -1] == 0.0
    lateness = Lateness(delay=delays.ByOutcome(click=0, no_click=10**6))
    run = LateRun(
        FWLinUCBRank(FAIR),
        world,
        world.init(stream(0, "world")),
        Streams.of(0),
        False,
        lateness,
        stream(0, "service"),
    )
    run.play(50)
    assert run.state.t == 0
    assert len(run.post.waiting) == 50


def test_delays_change_nothing_of_the_world() -> None:
    """A decision of the diary notes its context."""
    several = (Lateness(), Lateness(delay=9), Lateness(delay=delays.Geometric(5.0)))
    contexts = [[seen for _, seen in diary(one, 40)[1].notes] for one in several]
    assert contexts[0] == contexts[1] == contexts[2]


def test_post_is_in_order() -> None:
    post = Post()
    for arrival, t in ((5, 1), (3, 2), (5, 0), (9, 3)):
        post.send(arrival, t, t)
    assert list(post.come(2)) == []
    assert list(post.come(5)) == [2, 0, 1]
    assert [t for _, t, _ in post.waiting] == [3]


# --- answered at once, it is the plain run ----------------------------------------------------


def policies() -> dict[str, tuple[Any, Any]]:
    f = MUSIC.objective()
    return {
        "linucb": (fw.FrankWolfe(f, LinUCB(ridge=0.1)), MUSIC),
        "extended": (fw.FrankWolfe(f, LinUCB(model="extended")), MUSIC),
        "randomized": (fw.FrankWolfe(f, EpsilonGreedy(0.2), Randomized(n_samples=2)), MUSIC),
        "memory": (fw.FrankWolfe(f, SquareCB(gamma0=10.0), memory=50.0), MUSIC),
        "molincb": (fw.MOLinCB(f), MUSIC),
        "ranking": (FWLinUCBRank(FAIR, exploration=0.1), ITEMS),
        "randomized ranking": (FWLinUCBRank(FAIR, randomize=0.3), ITEMS),
        "floor": (FairLearnRank(0.2), ITEMS),
    }


@pytest.mark.parametrize("name", policies())
def test_at_once_is_the_plain_and_the_compiled_run(name: str) -> None:
    policy, world = policies()[name]
    objective = FAIR if world is ITEMS else None
    given: dict[str, Any] = {"record_actions": True, "objective": objective, "seed": 3}
    plain = simulate(policy, world, 150, compiled=False, **given)
    fast = simulate(policy, world, 150, compiled=True, **given)
    cases: list[tuple[Lateness, bool | None]] = [(Lateness(replicas=3, merge=1), None)]
    for one in (Lateness(), Lateness(delay=0, refresh=1)):
        cases.extend(((one, True), (one, False)))
    for lateness, compiled in cases:
        late = simulate(policy, world, 150, lateness=lateness, compiled=compiled, **given)
        assert late.compiled == bool(compiled)
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
                "linucb": fw.FrankWolfe(f, LinUCB(ridge=0.1), **how),
                "extended": fw.FrankWolfe(f, LinUCB(model="extended"), **how),
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
    return made | {"molincb": (fw.MOLinCB(f), RIVALS), "floor": (FairLearnRank(0.2), ITEMS)}


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
def test_a_late_run_prepares_all_that_it_calls(name: str) -> None:
    policy, world = policies()[name]
    lateness = Lateness(delay=5, refresh=2)
    ready(needed(policy, world, lateness))
    simulate(policy, world, 1, lateness=lateness)  # what measures f
    before = preparations()
    simulate(policy, world, 30, lateness=lateness)
    assert preparations() == before


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
