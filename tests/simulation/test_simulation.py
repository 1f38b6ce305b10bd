"""Runs: interpreted = compiled, what a run depends on and what not, interrupts, comparisons."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fairwolfe import Problem
from fairwolfe.bandits import EpsilonGreedy, Extended, LinUCB, SquareCB, Uniform, VowpalWabbit
from fairwolfe.bandits.base import LinearBandit
from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.decision import Choice, Decision
from fairwolfe.core.registry import load, names
from fairwolfe.core.streams import stream
from fairwolfe.environments import Finite, Mehrotra
from fairwolfe.errors import FairwolfeError, InvalidInput, NumericalFailure
from fairwolfe.objectives import (
    Concave,
    Custom,
    GeneralizedGini,
    GiniWelfare,
    Linear,
    Minimum,
    Nash,
    On,
    TwoSided,
)
from fairwolfe.oracles import OnlineGradient, Ridge
from fairwolfe.ranking import LinUCBRank
from fairwolfe.reduction import FrankWolfe, MOLinCB
from fairwolfe.simulation import Trace, compare, simulate
from fairwolfe.simulation import run as compiled_loop
from fairwolfe.simulation.trace import checkpoint_grid
from fairwolfe.smoothing import Augmented, Identity, Moreau, Randomized
from tests.objectives.points import CASES, SIZE

MUSIC = Mehrotra(n_arms=7, n_objectives=SIZE, n_features=4)


def small_world() -> Finite:
    """Three contexts of six arms with two features, five rewards, normal noise."""
    rng = stream(0, "small world")
    return Finite(
        rng.normal(size=(3, 6, 2)).tolist(),
        (0.5, 0.3, 0.2),
        means=rng.random((3, 6, SIZE)).tolist(),
        noise=0.2,
    )


SMALL = small_world()
WORLDS = {"music": MUSIC, "finite": SMALL}


# --- interpreted = compiled ------------------------------------------------------------------


def soft_minimum(z: Vector) -> float:
    return float(z.min() - np.log(np.exp(z.min() - z).mean()))


def soft_shares(z: Vector) -> Vector:
    shares: Vector = np.exp(z.min() - z)
    shares /= shares.sum()
    return shares


def least(z: Vector) -> float:
    return float(z.min())


def least_unit(z: Vector) -> Vector:
    unit: Vector = np.eye(z.size)[int(z.argmin())]
    return unit


def fits(objective: Concave) -> bool:
    return not isinstance(objective, TwoSided) and objective.size in (None, SIZE)


def all_objectives() -> dict[str, Concave]:
    """Every objective of the registry that fits five rewards, and many expressions of them."""
    found = {name: case.objective for name, case in CASES.items() if fits(case.objective)}
    for name in names("objectives"):
        for i, example in enumerate(load("objectives", name).examples()):  # type: ignore[attr-defined]
            if fits(example) and example not in found.values():
                found[f"{name} {i}"] = example
    smooth = Custom(soft_minimum, soft_shares, smooth=True, lipschitz=1.0)
    named = Linear({"r1": 1.0, "r4": -0.5}) + 2.0 * GiniWelfare().on("r5", "r1", "r2")
    return found | {"named": named, "custom and named": smooth + named}


def bases() -> Iterator[Any]:
    """Every bandit of the registry that has a compiled form in every example, and some more."""
    for name in names("bandits"):
        if issubclass(found := load("bandits", name), LinearBandit):
            yield from found.examples()  # type: ignore[attr-defined]
    yield SquareCB(gamma0=5.0, oracle=Ridge(0.1))
    yield EpsilonGreedy(0.2, oracle=OnlineGradient(0.5))
    yield LinUCB(exploration=2.0, ridge=0.01, delta=0.5)


def smoothings(objective: Concave) -> Iterator[Any]:
    """Others than the default; some refuse some objectives."""
    yield Moreau(0.01)
    yield Moreau(0.3, horizon=40)
    yield Augmented(0.3)
    yield Randomized(radius=0.2, n_samples=3)
    if objective.smooth:
        yield Identity()


def refused(policy: Any, environment: Any) -> bool:
    """Whether the policy says at its start, or in its first round, that it cannot do this."""
    context = environment.context(environment.init(stream(0, "world")), 1, stream(0, "contexts"))
    try:
        policy.act(policy.init(environment.problem()), context, stream(0, "policy"))
    except FairwolfeError:
        return True
    return False


def assert_alike(policy: Any, environment: Any, horizon: int, seed: int = 1) -> Trace:
    plain, quick = (
        simulate(policy, environment, horizon, seed, compiled=how, record_actions=True)
        for how in (False, None)
    )
    what = f"{policy} in {type(environment).__name__}"
    assert quick.compiled, what
    assert not plain.compiled
    assert np.array_equal(plain.actions, quick.actions), what  # type: ignore[arg-type]
    for part in ("average", "average_observed", "scalar_regret", "scalar_pseudo_regret"):
        one, other = getattr(plain, part), getattr(quick, part)
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10, err_msg=what)
    np.testing.assert_allclose(plain.value, quick.value, rtol=1e-10, atol=1e-10, err_msg=what)
    return quick


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", all_objectives())
def test_interpreted_is_compiled(name: str, world: str) -> None:
    """Every bandit with the default smoothing; every other smoothing with one of each kind."""
    objective, environment = all_objectives()[name], WORLDS[world]
    for base in bases():
        assert_alike(FrankWolfe(objective, base), environment, 60)
    turned_away = set()
    for smoothing in smoothings(objective):
        if refused(FrankWolfe(objective, Uniform(), smoothing), environment):
            turned_away.add(type(smoothing))
            continue
        for base in (LinUCB(exploration=0.3), SquareCB(gamma0=50.0), EpsilonGreedy(0.2)):
            assert_alike(FrankWolfe(objective, base, smoothing), environment, 60)
    if objective.everywhere:
        assert_alike(MOLinCB(objective, steps=3), environment, 60)
    without_prox = isinstance(objective, Custom) and not objective.smooth
    expected: set[type] = {Moreau, Augmented} if without_prox else set()
    if objective.constrained:
        expected = {Moreau, Randomized}  # one width for ever, and points outside
    elif not objective.everywhere:
        expected = {Randomized}
    assert turned_away == expected


def test_the_objectives_are_all_there() -> None:
    """Every class of the registry takes part, TwoSided apart, which is for rankings."""

    def parts(objective: Any) -> Iterator[type]:
        yield type(objective)
        for term in getattr(objective, "terms", ()):
            yield from parts(term)
        if isinstance(getattr(objective, "objective", None), Concave):
            yield from parts(objective.objective)

    seen = {kind for objective in all_objectives().values() for kind in parts(objective)}
    assert seen >= {load("objectives", n) for n in names("objectives")} - {TwoSided}
    assert On in seen


def test_the_bandits_are_all_there() -> None:
    """But for rankers, and policies of others, which have no compiled form."""
    seen = {type(base) for base in bases()}
    assert {load("bandits", n) for n in names("bandits")} - seen == {Extended, LinUCBRank}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("base", list(bases()), ids=repr)
def test_interpreted_is_compiled_with_every_option(base: Any, world: str) -> None:
    environment = WORLDS[world]
    for objective, smoothing in (
        (GiniWelfare(), Moreau(0.01)),
        (Minimum(), Randomized(n_samples=2)),
        (Linear((1.0, 0.5, -1.0, 0.0, 0.2)), None),
    ):
        for memory in (10.0, 3.0):
            policy = FrankWolfe(objective, base, smoothing, memory=memory)
            assert_alike(policy, environment, 80, seed=2)


@pytest.mark.parametrize("environment", [Finite.a1(), Finite.a2(), Mehrotra(2, 1, 1)], ids=repr)
def test_interpreted_is_compiled_in_other_worlds(environment: Any) -> None:
    for base in bases():
        assert_alike(FrankWolfe(Minimum(), base), environment, 100)


@pytest.mark.parametrize("environment", [Mehrotra(50, 5), Mehrotra(20, 20)], ids=repr)
def test_interpreted_is_compiled_for_molincb(environment: Mehrotra) -> None:
    for policy in (
        MOLinCB(environment.objective()),
        MOLinCB(Minimum(), ridge=1.0, steps=25, rate=0.1),
    ):
        assert_alike(policy, environment, 300)


@dataclass(frozen=True)
class Careful(FrankWolfe):
    """A policy of somebody else, built as MOLinCB is: a name and settings around the reduction."""

    base: Any = field(default=EpsilonGreedy(0.2), init=False, repr=False)
    smoothing: Any = field(default=Moreau(0.1), init=False, repr=False)


def test_interpreted_is_compiled_for_a_policy_of_somebody_else() -> None:
    plugged = assert_alike(Careful(GiniWelfare()), MUSIC, 200)
    plain = FrankWolfe(GiniWelfare(), EpsilonGreedy(0.2), Moreau(0.1))
    own = simulate(plain, MUSIC, 200, 1, record_actions=True)
    assert np.array_equal(plugged.actions, own.actions)  # type: ignore[arg-type]


def test_checkpoints_may_be_floats_that_are_whole() -> None:
    assert checkpoint_grid(10, np.array([2.0, 5.0])).tolist() == [2, 5, 10]
    assert checkpoint_grid(10, 5).tolist() == [5, 10]


def test_interpreted_is_compiled_across_a_refresh() -> None:
    """10,000 observations and a few: both loops refresh their design in the same round."""
    policy = FrankWolfe(Minimum(), EpsilonGreedy(0.1, oracle=Ridge(0.1)))
    trace = assert_alike(policy, Finite.a2(), 10_050)
    assert trace.t[-1] == 10_050


# --- what cannot be compiled -----------------------------------------------------------------


@dataclass(frozen=True)
class FirstArm:
    """A base that is no kernel."""

    def init(self, problem: Problem) -> None:
        return None

    def act(self, state: None, context: Any, direction: Vector, rng: np.random.Generator) -> Choice:
        return Choice(0, 1.0, None)

    def update(self, state: None, choice: Choice, direction: Vector, feedback: Any) -> None:
        return None


@dataclass(frozen=True)
class Lazy:
    """A policy without an objective, a direction or a kernel."""

    def init(self, problem: Problem) -> int:
        return 0

    def act(self, state: int, context: Any, rng: np.random.Generator) -> Decision:
        return Decision("", state, state % len(context), None, None)

    def update(self, state: int, decision: Decision, feedback: Any) -> int:
        return state + 1


class PlainWorld:
    """A world that keeps the contract and no more."""

    def problem(self) -> Problem:
        return MUSIC.problem()

    def init(self, rng: np.random.Generator) -> Matrix:
        return MUSIC.init(rng)

    def context(self, world: Matrix, t: int, rng: np.random.Generator) -> Matrix:
        return MUSIC.context(world, t, rng)

    def feedback(self, world: Matrix, context: Any, action: Any, rng: Any) -> Vector:
        return MUSIC.feedback(world, context, action, rng)

    def mean_reward(self, world: Matrix, context: Any, action: Any) -> Vector:
        return MUSIC.mean_reward(world, context, action)

    def best_action(self, world: Matrix, context: Any, direction: Vector) -> int:
        return MUSIC.best_action(world, context, direction)


FALL_BACKS = {
    "base": (FrankWolfe(GiniWelfare(), FirstArm()), MUSIC, "the base FirstArm"),
    "policy": (Lazy(), MUSIC, "the policy Lazy"),
    "world": (
        FrankWolfe(GiniWelfare(), LinUCB(exploration="theorem")),
        PlainWorld(),
        "the environment PlainWorld",
    ),
}


@pytest.mark.parametrize("case", FALL_BACKS)
def test_a_fall_back_names_the_part(case: str) -> None:
    policy, environment, part = FALL_BACKS[case]
    with pytest.warns(UserWarning, match=f"the plain loop is used, because {part} has no compiled"):
        trace = simulate(policy, environment, 30, objective=GiniWelfare())
    assert not trace.compiled
    assert trace.complete
    assert trace.t[-1] == 30
    # Asked for by name, the plain loop warns of nothing.
    again = simulate(policy, environment, 30, objective=GiniWelfare(), compiled=False)
    assert np.array_equal(again.average, trace.average)
    with pytest.raises(InvalidInput, match=f"{part} has no compiled form; leave out compiled=True"):
        simulate(policy, environment, 30, objective=GiniWelfare(), compiled=True)


def test_the_plain_world_is_the_compiled_one() -> None:
    policy = FrankWolfe(GiniWelfare(), LinUCB(ridge=0.1, exploration="theorem"))
    plain = simulate(policy, PlainWorld(), 50, compiled=False, record_actions=True)
    quick = simulate(policy, MUSIC, 50, record_actions=True)
    assert np.array_equal(plain.actions, quick.actions)  # type: ignore[arg-type]


def test_a_lazy_policy_is_measured_by_numpy() -> None:
    """Arms in turn; averages of the mean and of the observed rewards, no direction, no regret."""
    trace = simulate(Lazy(), MUSIC, 40, 3, Linear((1.0,) * SIZE), [10, 25], compiled=False)
    theta, contexts, noise = (stream(3, s) for s in ("world", "contexts", "noise"))
    world = MUSIC.init(theta)
    means, seen = [], []
    for t in range(40):
        context = MUSIC.context(world, t + 1, contexts)
        means.append(world @ context[t % 7])
        seen.append(means[-1] + 0.1 * np.abs(means[-1]) * noise.standard_normal(SIZE))
    assert trace.t.tolist() == [10, 25, 40]
    for i, t in enumerate(trace.t.tolist()):
        np.testing.assert_allclose(trace.average[i], np.mean(means[:t], axis=0), atol=1e-12)
        np.testing.assert_allclose(trace.average_observed[i], np.mean(seen[:t], axis=0), atol=1e-12)
    np.testing.assert_allclose(trace.value, trace.average.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(trace.observed, trace.average_observed.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(trace.regret(7.0), 7.0 - trace.observed, rtol=1e-12)
    assert not trace.scalar_regret.any()


def test_scalar_regrets_against_numpy() -> None:
    """f linear: sum over rounds of max_a <w, mu a> - <w, r>, and with the mean of the arm."""
    w = np.array([1.0, -0.5, 0.2, 0.0, 0.3])
    policy = FrankWolfe(Linear(w.tolist()), SquareCB(gamma0=10.0))
    trace = simulate(policy, MUSIC, 70, 5, record_actions=True)
    assert trace.actions is not None
    world = MUSIC.init(stream(5, "world"))
    contexts, noise = stream(5, "contexts"), stream(5, "noise")
    regret = pseudo = 0.0
    for t, arm in enumerate(trace.actions):
        means = MUSIC.context(world, t + 1, contexts) @ world.T
        reward = means[arm] + 0.1 * np.abs(means[arm]) * noise.standard_normal(SIZE)
        regret += float((means @ w).max() - w @ reward)
        pseudo += float((means @ w).max() - w @ means[arm])
    assert trace.scalar_regret[-1] == pytest.approx(regret, rel=1e-10)
    assert trace.scalar_pseudo_regret[-1] == pytest.approx(pseudo, rel=1e-10)
    assert (np.diff(trace.scalar_pseudo_regret) >= -1e-12).all()


@pytest.mark.parametrize("compiled", [False, None])
def test_what_the_plain_loop_refuses_the_compiled_one_does_too(compiled: bool | None) -> None:
    """Nash has no slope at 0, where every run starts, and none beyond."""
    with pytest.raises(InvalidInput, match=r"no supergradient at z\[0\] = 0\.0"):
        simulate(
            FrankWolfe(Nash(), LinUCB(exploration="theorem"), Identity()),
            MUSIC,
            20,
            compiled=compiled,
        )
    with pytest.raises(InvalidInput, match=r"outside its domain; use Moreau\(\)"):
        simulate(
            FrankWolfe(Nash(), LinUCB(exploration="theorem"), Randomized()),
            MUSIC,
            20,
            compiled=compiled,
        )


@pytest.mark.parametrize("compiled", [False, None])
@pytest.mark.parametrize(
    "base", [LinUCB(exploration="theorem"), EpsilonGreedy(0.1, oracle=OnlineGradient())], ids=repr
)
def test_a_state_that_breaks_is_an_error(base: Any, compiled: bool | None) -> None:
    class Huge(Mehrotra):
        def draw_contexts(self, world: Matrix, rng: Any, n: int) -> tuple[Cube, IntVector]:
            features, tags = super().draw_contexts(world, rng, n)
            return 1e200 * features, tags

    policy = FrankWolfe(Linear((1.0, 0.5)), base)
    sentence = r"no longer usable|at most a norm of"
    with pytest.raises((NumericalFailure, InvalidInput), match=sentence):
        simulate(policy, Huge(3, 2, 2), 50, compiled=compiled)


@pytest.mark.parametrize("compiled", [False, None])
def test_what_a_custom_function_raises_is_raised(compiled: bool | None) -> None:
    calls = []

    def gradient(z: Vector) -> Vector:
        calls.append(z)
        if len(calls) > 1000:
            raise ZeroDivisionError("the thousand and first call")
        return np.ones(z.size)

    policy = FrankWolfe(
        Custom(lambda z: float(z.sum()), gradient, smooth=True), LinUCB(exploration="theorem")
    )
    with pytest.raises(ZeroDivisionError, match="thousand and first"):
        simulate(policy, MUSIC, 2000, compiled=compiled)


# --- what a run depends on -------------------------------------------------------------------

POLICIES = {
    "linucb": FrankWolfe(GiniWelfare(), LinUCB(exploration=0.1, ridge=0.1), Moreau(0.01)),
    "squarecb": FrankWolfe(GiniWelfare(), SquareCB(gamma0=100.0), Randomized(n_samples=2)),
    "molincb": MOLinCB(GiniWelfare()),
}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("compiled", [False, None])
def test_neither_checkpoints_nor_chunks_matter(
    name: str, compiled: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = POLICIES[name]
    whole = simulate(policy, MUSIC, 120, 4, checkpoints=[120], compiled=compiled)
    monkeypatch.setattr(compiled_loop, "_CHUNK_BYTES", 1)
    for checkpoints in (None, range(1, 121), [7, 100]):
        trace = simulate(policy, MUSIC, 120, 4, checkpoints=checkpoints, compiled=compiled)
        assert trace.t[-1] == 120
        assert np.array_equal(trace.average[-1], whole.average[-1])
        assert np.array_equal(trace.average_observed[-1], whole.average_observed[-1])
        assert trace.scalar_regret[-1] == whole.scalar_regret[-1]


def test_a_shorter_run_is_the_beginning_of_a_longer_one() -> None:
    for policy in POLICIES.values():
        short = simulate(policy, MUSIC, 50, 1, record_actions=True)
        long = simulate(policy, MUSIC, 90, 1, checkpoints=[50], record_actions=True)
        assert np.array_equal(short.actions, long.actions[:50])  # type: ignore[arg-type,index]
        assert np.array_equal(short.average[-1], long.average[0])


def test_the_seed_is_the_world() -> None:
    policy = POLICIES["linucb"]
    one, again, other = (simulate(policy, MUSIC, 30, seed) for seed in (1, 1, 2))
    assert np.array_equal(one.average, again.average)
    assert not np.array_equal(one.average, other.average)


MET: list[tuple[str, NDArray[np.float64]]] = []


@dataclass(frozen=True)
class Recorded(Mehrotra):
    """The music world, writing down what it draws."""

    def draw_contexts(
        self, world: Matrix, rng: np.random.Generator, n: int
    ) -> tuple[Cube, IntVector]:
        features, tags = super().draw_contexts(world, rng, n)
        MET.append(("contexts", features.copy()))
        return features, tags

    def draw_noise(self, rng: np.random.Generator, n: int) -> Matrix:
        noise = super().draw_noise(rng, n)
        MET.append(("noise", noise.copy()))
        return noise


def test_policies_of_one_seed_meet_the_same_contexts_and_noise() -> None:
    environment = Recorded(7, SIZE, 4)
    met, taken = [], []
    for policy in POLICIES.values():
        for compiled in (False, None):
            MET.clear()
            trace = simulate(policy, environment, 40, 6, compiled=compiled, record_actions=True)
            met.append({k: np.concatenate([a for n, a in MET if n == k]) for k, _ in MET})
            taken.append(trace.actions)
    for other in met[1:]:
        assert np.array_equal(met[0]["contexts"], other["contexts"])
        assert np.array_equal(met[0]["noise"], other["noise"])
    assert met[0]["contexts"].shape == (40, 7, 4)
    assert met[0]["noise"].shape == (40, SIZE)
    assert not np.array_equal(taken[0], taken[2])  # type: ignore[arg-type]


# --- interrupts ------------------------------------------------------------------------------


class Interrupt:
    """A progress bar at which somebody presses Ctrl-C."""

    def __init__(self, after: int) -> None:
        self.after, self.done = after, 0

    def __call__(self, n: int) -> None:
        self.done += n
        if self.done >= self.after:
            raise KeyboardInterrupt


@pytest.mark.parametrize("compiled", [False, None])
@pytest.mark.parametrize("checkpoints", [None, [400]], ids=["many checkpoints", "one at the end"])
def test_an_interrupt_returns_what_was_done(
    compiled: bool | None, checkpoints: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_loop, "_CHUNK_BYTES", 1)
    stop = Interrupt(after=150)
    policy = POLICIES["squarecb"]
    how: dict[str, Any] = {"compiled": compiled, "record_actions": True}
    cut = simulate(policy, MUSIC, 400, 1, None, checkpoints, progress=stop, **how)
    assert not cut.complete
    assert cut.t[-1] == stop.done < 400
    assert cut.actions is not None
    assert cut.actions.size == stop.done
    shorter = simulate(policy, MUSIC, stop.done, 1, **how)
    assert shorter.complete
    assert np.array_equal(cut.actions, shorter.actions)  # type: ignore[arg-type]
    assert np.array_equal(cut.average[-1], shorter.average[-1])
    assert np.array_equal(cut.average_observed[-1], shorter.average_observed[-1])
    assert cut.scalar_regret[-1] == shorter.scalar_regret[-1]
    assert cut.value.shape == cut.t.shape == cut.observed.shape


def test_an_interrupt_before_the_first_chunk() -> None:
    class Stubborn(Mehrotra):
        def draw_contexts(self, world: Matrix, rng: Any, n: int) -> tuple[Cube, IntVector]:
            raise KeyboardInterrupt

    trace = simulate(POLICIES["linucb"], Stubborn(7, SIZE, 4), 100)
    assert not trace.complete
    assert trace.t.size == 0
    assert trace.average.shape == trace.average_observed.shape == (0, SIZE)
    assert trace.value.size == trace.scalar_regret.size == 0


def test_progress_counts_every_round() -> None:
    for compiled in (False, None):
        seen: list[int] = []
        simulate(POLICIES["linucb"], MUSIC, 333, compiled=compiled, progress=seen.append)
        assert sum(seen) == 333
        assert min(seen) > 0


# --- comparisons -----------------------------------------------------------------------------


def test_two_jobs_are_one() -> None:
    policies = POLICIES | {"custom": FrankWolfe(Custom(least, least_unit), EpsilonGreedy(0.1))}
    one = compare(policies, MUSIC, 60, 3, GiniWelfare())
    two = compare(policies, MUSIC, 60, 3, GiniWelfare(), jobs=2)
    assert one.seeds == two.seeds == (0, 1, 2)
    for name in policies:
        for a, b in zip(one.traces[name], two.traces[name], strict=True):
            assert np.array_equal(a.average, b.average)
            assert np.array_equal(a.average_observed, b.average_observed)
            assert a.compiled
            assert b.compiled
    alone = simulate(policies["linucb"], MUSIC, 60, 2)
    assert np.array_equal(one.traces["linucb"][2].average, alone.average)


def test_a_comparison_is_paired_by_seed() -> None:
    result = compare(POLICIES, MUSIC, 50, seeds=[3, 8, 4], checkpoints=[20])
    assert result.seeds == (3, 8, 4)
    assert result.values("linucb").shape == (3, 2)
    gaps = result.values("linucb")[:, -1] - result.values("molincb")[:, -1]
    mean, low, high = result.difference("linucb", "molincb")
    half = 4.302652729749464 * gaps.std(ddof=1) / np.sqrt(3.0)  # Student's t with 2 degrees
    assert mean == pytest.approx(gaps.mean())
    assert (low, high) == pytest.approx((gaps.mean() - half, gaps.mean() + half))


def test_the_table_of_a_comparison() -> None:
    result = compare(POLICIES, MUSIC, 50, 2)
    tops = [2.0, 4.0]
    rows = result.table(tops)
    assert [row["policy"] for row in rows] == list(POLICIES)
    for row in rows:
        final = result.values(row["policy"])[:, -1]
        assert row["value"] == pytest.approx(final.mean())
        assert row["low"] <= row["value"] <= row["high"]
        below = 100.0 * ((tops - final) / tops).mean()
        assert row["below_best_percent"] == pytest.approx(below)
        assert row["us_per_round"] > 0.0
    assert "below_best_percent" not in result.table()[0]
    single = compare(POLICIES, MUSIC, 20, 1).table()[0]
    assert single["low"] == single["value"] == single["high"]


@pytest.mark.needs("matplotlib")
def test_frames_and_plots() -> None:
    result = compare(POLICIES, MUSIC, 50, 2, checkpoints=[10])
    frame = result.to_frame()
    assert len(frame) == len(POLICIES) * 2 * 2
    assert {"policy", "seed", "t", "value", "observed", "scalar_regret"} <= set(frame.columns)
    last = frame[(frame.policy == "linucb") & (frame.seed == 1) & (frame.t == 50)]
    assert last["value"].item() == result.values("linucb")[1, -1]
    ax = result.plot(best=[2.0, 2.0])
    lines = {line.get_label(): line for line in ax.lines}
    for name in POLICIES:
        drawn = np.asarray(lines[name].get_ydata(), dtype=np.float64)
        np.testing.assert_allclose(drawn, result.values(name).mean(axis=0))
    assert any(np.allclose(line.get_ydata(), 2.0) for line in ax.lines)
    trace = result.traces["linucb"][0]
    assert len(trace.to_frame()) == 2
    assert trace.to_frame()["average_0"].tolist() == trace.average[:, 0].tolist()
    drawn = np.asarray(trace.plot(best=2.0).lines[-1].get_ydata(), dtype=np.float64)
    np.testing.assert_allclose(drawn, trace.value)


def test_an_interrupted_comparison_keeps_the_finished_seeds() -> None:
    stop = Interrupt(after=2 * 50 * len(POLICIES) + 20)
    result = compare(POLICIES, MUSIC, 50, 4, progress=stop)
    whole = compare(POLICIES, MUSIC, 50, 4)
    assert result.seeds == (0, 1)
    for name in POLICIES:
        assert np.array_equal(result.values(name), whole.values(name)[:2])
    with pytest.raises(KeyboardInterrupt):
        compare(POLICIES, MUSIC, 50, 4, progress=Interrupt(after=20))


def test_an_error_in_a_comparison_is_raised() -> None:
    broken = FrankWolfe(GeneralizedGini((1.0, 0.5)), LinUCB(exploration="theorem"))
    with pytest.raises(InvalidInput, match="GeneralizedGini has 2 weights"):
        compare(POLICIES | {"broken": broken}, MUSIC, 50, 2)


# --- bad input and memory --------------------------------------------------------------------

POLICY = POLICIES["linucb"]

REFUSED: dict[str, tuple[Any, str]] = {
    "no objective": (
        lambda: simulate(Lazy(), MUSIC, 10),
        r"Lazy has no objective; pass objective= for what is measured",
    ),
    "another objective": (
        lambda: simulate(POLICY, MUSIC, 10, objective=GeneralizedGini((1.0, 0.5))),
        r"GeneralizedGini has 2 weights, the problem has 5 rewards",
    ),
    "policy": (lambda: simulate("linucb", MUSIC, 10), r"policy is 'linucb'; give one such as Fra"),
    "no policy": (
        lambda: simulate(None, MUSIC, 10),
        r"policy is None; give one such as FrankWolfe\(objective, LinUCB\(\)\)",
    ),
    "the class of a policy": (
        lambda: simulate(FrankWolfe, MUSIC, 10),
        r"the policy is the class FrankWolfe; give FrankWolfe\(objective, LinUCB\(\)\)",
    ),
    "the class of a base": (
        lambda: simulate(LinUCB, MUSIC, 10),
        r"the policy is the class LinUCB; give FrankWolfe\(objective, LinUCB\(\)\)",
    ),
    "the class of an objective": (
        lambda: simulate(Minimum, MUSIC, 10),
        r"the policy is the class Minimum; give FrankWolfe\(objective, LinUCB\(\)\)",
    ),
    "the class of a ranker": (
        lambda: simulate(LinUCBRank, MUSIC, 10),
        r"the policy is the class LinUCBRank; give an instance of it, LinUCBRank\(\.\.\.\)",
    ),
    "a base": (
        lambda: simulate(LinUCB(exploration="theorem"), MUSIC, 10, objective=GiniWelfare()),
        r"LinUCB\(.* is a bandit for one reward; give FrankWolfe\(objective, LinUCB\(",
    ),
    "a base without directions": (
        lambda: simulate(VowpalWabbit(), MUSIC, 10, objective=GiniWelfare()),
        r"for one reward; give FrankWolfe\(objective, Extended\(VowpalWabbit\(",
    ),
    "an objective": (
        lambda: simulate(Minimum(), MUSIC, 10),
        r"Minimum\(\) is an objective; give FrankWolfe\(Minimum\(\), LinUCB\(\)\)",
    ),
    "the class of a base inside": (
        lambda: FrankWolfe(GiniWelfare(), LinUCB),
        r"the base is <class .*LinUCB'>; give a bandit, such as LinUCB\(\)",
    ),
    "a base beside a policy": (
        lambda: compare(
            {"a": POLICY, "b": LinUCB(exploration="theorem")}, MUSIC, 10, 1, GiniWelfare()
        ),
        r"one reward; give FrankWolfe\(objective, LinUCB\(",
    ),
    "policies without names": (
        lambda: compare([POLICY], MUSIC, 10, 1),  # type: ignore[arg-type]
        r"policies is \[FrankWolfe.*; give names and policies, such as \{",
    ),
    "environment": (lambda: simulate(POLICY, 3, 10), r"environment is 3; see fw\.environments"),
    "horizon 0": (lambda: simulate(POLICY, MUSIC, 0), r"horizon is 0; .*at least 1"),
    "horizon 1.5": (lambda: simulate(POLICY, MUSIC, 1.5), r"horizon is 1\.5; .*at least 1"),  # type: ignore[arg-type]
    "horizon True": (lambda: simulate(POLICY, MUSIC, True), r"horizon is True; .*at least 1"),
    "seed": (lambda: simulate(POLICY, MUSIC, 10, -1), r"seed is -1; .*at least 0"),
    "checkpoint 0": (
        lambda: simulate(POLICY, MUSIC, 10, 0, None, [0]),
        r"checkpoints are \[0\]; g",
    ),
    "late checkpoint": (
        lambda: simulate(POLICY, MUSIC, 10, 0, None, [11]),
        r"checkpoints are \[11\]; give whole numbers from 1 to the horizon 10",
    ),
    **{
        f"checkpoint {given}": (
            lambda given=given: simulate(POLICY, MUSIC, 10, 0, None, [5, given]),
            rf"checkpoints are \[5, {given}\]; give whole numbers from 1 to the horizon 10",
        )
        for given in (1.5, nan, inf, -1)
    },
    "a checkpoint of words": (
        lambda: simulate(POLICY, MUSIC, 10, 0, None, ["5"]),
        r"checkpoints is not an array of numbers: number \[0\] is '5'; give real numbers",
    ),
    "no checkpoint": (lambda: simulate(POLICY, MUSIC, 10, 0, None, []), r"checkpoints are \[\]; g"),
    "no policies": (lambda: compare({}, MUSIC, 10, 2), r"at least one policy and one seed"),
    "no seeds": (lambda: compare(POLICIES, MUSIC, 10, 0), r"at least one policy and one seed"),
    "no jobs": (lambda: compare(POLICIES, MUSIC, 10, 1, jobs=0), r"jobs is 0; .*at least 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    attempt, message = REFUSED[case]
    with pytest.raises(InvalidInput, match=message):
        attempt()


def test_the_policys_own_objective_is_measured_unless_another_is_given() -> None:
    own = simulate(POLICY, MUSIC, 20)
    other = simulate(POLICY, MUSIC, 20, objective=Linear({"r2": 1.0}))
    assert np.array_equal(own.average, other.average)
    np.testing.assert_allclose(own.value, [GiniWelfare().value(z) for z in own.average])
    np.testing.assert_allclose(other.value, other.average[:, 1])


@pytest.mark.parametrize("compiled", [False, None])
def test_memory_does_not_grow_with_the_horizon(compiled: bool | None) -> None:
    environment = Mehrotra(20, SIZE, 10)
    rounds = 200 if compiled is False else 4000  # more than one chunk of 4 MB

    def peak(horizon: int) -> int:
        tracemalloc.start()
        try:
            simulate(POLICY, environment, horizon, checkpoints=[horizon], compiled=compiled)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(10 * rounds)  # loads, compiles, fills what is kept between runs
    once, tenfold = peak(rounds), peak(10 * rounds)
    assert tenfold <= 1.05 * once + 20_000
