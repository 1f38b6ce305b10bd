"""Objectives, rules and worlds in plain Python run in the compiled loop, through callbacks.

The oracle is the plain loop, and an agent: the same decisions, with the same numbers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from scipy import LowLevelCallable

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, LinUCB, Rule
from fairwolfe.checks import check
from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.contexts import PerArm
from fairwolfe.core.problem import Problem
from fairwolfe.core.protocols import Oracle
from fairwolfe.core.streams import Numbered
from fairwolfe.environments import ArmsWorld, FiniteRanking, Mehrotra
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.rules import SIGNATURE
from fairwolfe.objectives import Concave, Custom, GiniEquality, Linear, Minimum, TwoSided
from fairwolfe.offpolicy.decisions import ContextPart
from fairwolfe.offpolicy.targets import frozen
from fairwolfe.oracles import OnlineGradient, Ridge
from fairwolfe.ranking import LinUCBRank
from fairwolfe.reduction.molincb import MOLinCB
from fairwolfe.simulation import Lateness, Trace
from fairwolfe.smoothing import Randomized

GREEDY = EpsilonGreedy(0.3)
WORLD = Mehrotra(n_arms=6, n_objectives=3, n_features=4)


@dataclass(frozen=True)
class CloseTo(Concave):
    """f(z) = -sum_i |z_i - target|."""

    target: float = 0.5

    def _value(self, z: Vector) -> float:
        return -float(np.abs(z - self.target).sum())

    def _gradient(self, z: Vector, step: float) -> Vector:
        missing = self.target - z
        return np.sign(missing) if step == 0.0 else np.clip(missing / step, -1.0, 1.0)

    def lipschitz(self, n: int) -> float:
        return float(np.sqrt(n))

    @classmethod
    def examples(cls) -> tuple[CloseTo, ...]:
        return cls(), cls(-1.0)


@dataclass(frozen=True)
class Optimist(Rule):
    """The largest estimate plus a multiple of its width."""

    bonus: float = 0.5

    def choose_arm(
        self, values: Vector, widths: Any, t: int, uniform: float
    ) -> tuple[int, float | None]:
        return int((values + self.bonus * widths).argmax()), 1.0


@dataclass(frozen=True)
class Fading(Rule):
    """The largest estimate; any arm with a probability that falls like 1/sqrt(t)."""

    curiosity: float = 1.0

    def choose_arm(
        self, values: Vector, widths: Any, t: int, uniform: float
    ) -> tuple[int, float | None]:
        explore, n = min(1.0, self.curiosity / np.sqrt(t + 1.0)), values.size
        chances = np.full(n, explore / n)
        chances[values.argmax()] += 1.0 - explore
        return self.drawn(chances, uniform)


@dataclass(frozen=True)
class Constant(Rule):
    """`EpsilonGreedy`."""

    epsilon: float = 0.3

    def choose_arm(
        self, values: Vector, widths: Any, t: int, uniform: float
    ) -> tuple[int, float | None]:
        chances = np.full(values.size, self.epsilon / values.size)
        chances[values.argmax()] += 1.0 - self.epsilon
        return self.drawn(chances, uniform)


@dataclass(frozen=True)
class Gradual(Fading):
    """The same over online gradients, which keep no design."""

    @cached_property
    def regression(self) -> Oracle:
        return OnlineGradient()

    def choose_arm(
        self, values: Vector, widths: Any, t: int, uniform: float
    ) -> tuple[int, float | None]:
        assert widths is None
        return super().choose_arm(values, widths, t, uniform)


@dataclass(frozen=True)
class Timid(Optimist):
    """Does more than to choose an arm."""

    def act(self, *given: Any, **options: Any) -> fw.Choice:
        return super().act(*given, **options)


C: Any = LowLevelCallable
RULE: Any = ctypes.CFUNCTYPE(
    ctypes.c_ssize_t,
    ctypes.POINTER(ctypes.c_double),
    ctypes.POINTER(ctypes.c_double),
    ctypes.c_ssize_t,
    ctypes.c_double,
    ctypes.c_double,
    ctypes.POINTER(ctypes.c_double),
    ctypes.c_void_p,
)


def _optimist(
    values: Any, widths: Any, n: int, t: float, uniform: float, probability: Any, _: Any
) -> int:
    probability[0] = 1.0
    return int(np.argmax([values[a] + 0.5 * widths[a] for a in range(n)]))


@dataclass(frozen=True)
class Swift(Rule):
    """`Optimist` as a C function."""

    choose_arm = C(RULE(_optimist))


@dataclass(frozen=True)
class Compass(ArmsWorld[None]):
    """Every arm points somewhere: north with probability (1 + cos)/2, east with (1 + sin)/2."""

    n_arms: int = 5

    def problem(self) -> Problem:
        ranges = {"north": (0.0, 1.0), "east": (0.0, 1.0)}
        return Problem.arms(3, ranges, feature_norm=2.0**0.5, parameter_norm=1.0)

    def init(self, rng: np.random.Generator) -> None:
        return None

    def draw_contexts(
        self, world: None, rng: np.random.Generator, n: int
    ) -> tuple[Cube, IntVector]:
        angle = 2.0 * np.pi * rng.random((n, self.n_arms))
        features = np.stack([np.ones_like(angle), np.cos(angle), np.sin(angle)], axis=2)
        return features, np.zeros(n, dtype=np.int64)

    def draw_noise(self, rng: np.random.Generator, n: int) -> Matrix:
        return rng.random((n, 2))

    def rewards(
        self, world: None, features: Matrix, arm: int, noise: Vector
    ) -> tuple[Vector, Vector]:
        mean = 0.5 * (features[arm, 0] + features[arm, 1:])
        return mean, (noise < mean).astype(np.float64)

    @classmethod
    def examples(cls) -> tuple[Compass, ...]:
        return cls(), cls(2)


def both(policy: Any, world: Any, horizon: int = 300, **options: Any) -> tuple[Trace, Trace]:
    """The compiled and the plain loop, which make the same decisions."""
    fast, plain = (
        fw.simulate(policy, world, horizon, 3, compiled=way, record_actions=True, **options)
        for way in (True, False)
    )
    assert fast.compiled
    assert not plain.compiled
    np.testing.assert_array_equal(fast.actions, plain.actions)
    np.testing.assert_allclose(fast.average, plain.average, rtol=1e-12)
    np.testing.assert_allclose(fast.scalar_regret, plain.scalar_regret, atol=1e-9)
    assert plain.callbacks == 0
    return fast, plain


# --- objectives -------------------------------------------------------------------------------


def square(z: Vector) -> float:
    return -float(((z - 0.4) ** 2).sum())


def square_gradient(z: Vector) -> Vector:
    return -2.0 * (z - 0.4)


_POINTER = ctypes.POINTER(ctypes.c_double)


GRADIENT: Any = ctypes.CFUNCTYPE(None, _POINTER, ctypes.c_ssize_t, _POINTER, ctypes.c_void_p)


def _square_in_c(z: Any, n: int, out: Any, _: Any) -> None:
    for i in range(n):
        out[i] = -2.0 * (z[i] - 0.4)


SMOOTH = Custom(square, square_gradient, smooth=True)


@pytest.mark.parametrize(
    ("objective", "smoothing", "calls"),
    [
        (CloseTo(0.7), None, 1),
        (0.5 * CloseTo(0.3).on(1, 2) + Minimum(), None, 1),
        (CloseTo(0.7) + CloseTo(0.2), None, 2),
        (SMOOTH, None, 1),
        (Custom(square, square_gradient), Randomized(n_samples=3), 3),
        (Custom(square, C(GRADIENT(_square_in_c)), smooth=True), None, 0),
    ],
    ids=["leaf", "part", "two", "custom", "randomised", "in C"],
)
def test_an_own_objective_is_called_from_the_compiled_loop(
    objective: Concave, smoothing: Any, calls: int
) -> None:
    fast, _ = both(fw.FrankWolfe(objective, LinUCB(exploration="theorem"), smoothing), WORLD)
    assert fast.callbacks == 300 * calls
    late = Lateness(delay=5, refresh=10)
    fast, _ = both(
        fw.FrankWolfe(objective, LinUCB(exploration="theorem"), smoothing), WORLD, lateness=late
    )
    assert (fast.callbacks > 0) == (calls > 0)


@pytest.mark.parametrize("objective", [CloseTo(0.3), SMOOTH], ids=["leaf", "custom"])
def test_an_own_objective_of_rankings_is_called_too(objective: Concave) -> None:
    world = FiniteRanking.b1()
    both(fw.FrankWolfe(objective, LinUCBRank(exploration="theorem")), world, 200)
    fair = TwoSided(GiniEquality(), beta=0.5) + 0.1 * objective
    fast, _ = both(fw.FrankWolfe(fair, LinUCBRank(exploration="theorem")), world, 200)
    assert fast.callbacks == 200


@pytest.mark.filterwarnings("ignore:the reward")
def test_an_own_objective_keeps_its_promises_and_serves_an_agent() -> None:
    check(CloseTo)
    f = CloseTo(0.7)
    policy = fw.FrankWolfe(f, LinUCB(exploration="theorem"))
    agent = fw.Agent(policy, WORLD.problem())
    trace = fw.simulate(policy, WORLD, 50, 3, record_actions=True)
    assert trace.actions is not None
    assert replayed(agent, 50) == trace.actions.tolist()
    assert agent.value == f.value(agent.average)
    agent = fw.Agent(
        fw.FrankWolfe(f + Minimum().on(0, 1), LinUCB(exploration="theorem")), WORLD.problem()
    )
    agent.update_many(agent.act_many(np.ones((4, 6, 4)) / 4.0), np.full((4, 3), 0.5))
    assert fw.optimum(WORLD, f).value <= 0.0


def test_a_subclass_of_a_compiled_leaf_may_have_a_gradient_of_its_own() -> None:
    @dataclass(frozen=True)
    class Doubled(Linear):
        def _value(self, z: Vector) -> float:
            return 2.0 * super()._value(z)

        def _gradient(self, z: Vector, step: float) -> Vector:
            return 2.0 * np.array(self.weights)

    assert Doubled((1.0, 2.0)).gradient(np.zeros(2)).tolist() == [2.0, 4.0]
    assert (0.5 * Doubled((1.0, 2.0))).gradient(np.zeros(2)).tolist() == [1.0, 2.0]
    fast, _ = both(
        fw.FrankWolfe(Doubled((1.0, 0.5, 0.2)), LinUCB(exploration="theorem")), WORLD, 50
    )
    assert fast.callbacks == 50


# --- rules ------------------------------------------------------------------------------------


def replayed(agent: Any, rounds: int, seed: int = 3) -> list[int]:
    """What an agent decides in the world of a seed, with the contexts and the noise of simulate."""
    from fairwolfe.core.streams import stream
    from fairwolfe.simulation.run import Streams

    world, streams = WORLD.init(stream(seed, "world")), Streams.of(seed)
    actions = []
    for t in range(rounds):
        context = WORLD.context(world, t + 1, streams.contexts)
        decision = agent.act(context)
        agent.update(decision, WORLD.feedback(world, context, decision.action, streams.noise))
        actions.append(decision.action)
    return actions


@pytest.mark.parametrize("base", [Optimist(), Fading(), Gradual(0.3), Swift()], ids=repr)
def test_an_own_rule_is_called_from_the_compiled_loop(base: Rule) -> None:
    policy = fw.FrankWolfe(Minimum(), base)
    fast, _ = both(policy, WORLD)
    assert fast.callbacks == (0 if isinstance(base, Swift) else 300)
    both(policy, WORLD, lateness=Lateness(delay=5, refresh=10))
    both(fw.FrankWolfe(CloseTo(), base), WORLD, 50)


def test_a_rule_without_a_bonus_decides_as_linucb_without_exploration() -> None:
    own, known = (
        fw.simulate(fw.FrankWolfe(Minimum(), base), WORLD, 300, record_actions=True)
        for base in (Optimist(0.0), LinUCB(exploration=0.0))
    )
    np.testing.assert_array_equal(own.actions, known.actions)


@pytest.mark.filterwarnings("ignore:the reward")
def test_an_agent_decides_as_the_loops_do() -> None:
    for base in (Optimist(), Swift()):
        policy = fw.FrankWolfe(Minimum(), base)
        trace = fw.simulate(policy, WORLD, 200, 3, record_actions=True)
        assert trace.actions is not None
        assert replayed(fw.Agent(policy, WORLD.problem()), 200) == trace.actions.tolist()


def test_an_agent_draws_for_an_own_rule_by_the_number_of_the_decision() -> None:
    """Its uniform numbers, given to the contract, lead to the same decisions."""
    policy, problem = fw.FrankWolfe(Minimum(), Fading()), WORLD.problem()
    agent = fw.Agent(policy, problem, seed=5)
    state, draws = policy.init(problem), Numbered.of(5, "policy", 0)
    rng = np.random.default_rng(0)
    for number in range(60):
        context, reward = rng.random((6, 4)) / 2.0, rng.random(3)
        decision = agent.act(context)
        draws.number = number
        again = policy.act(state, context, draws.generator())
        assert (decision.action, decision.probability) == (again.action, again.probability)
        state = policy.update(state, again, reward)
        agent.update(decision, reward)


@pytest.mark.parametrize("base", [Optimist, Fading, Gradual, Swift])
def test_an_own_rule_keeps_its_promises(base: type[Rule]) -> None:
    check(base)


def test_an_arm_is_drawn_by_its_probability() -> None:
    chances = np.array([0.0, 0.25, 0.0, 0.75, 0.0])
    found = [Rule.drawn(chances, u) for u in (0.0, 0.2499, 0.25, 0.9999)]
    assert found == [(1, 0.25), (1, 0.25), (3, 0.75), (3, 0.75)]
    tenths = np.full(10, 0.1)
    tenths[-1] = 0.0
    assert Rule.drawn(tenths, 1.0 - 1e-16)[0] == 8


def test_an_agent_with_an_own_rule_does_what_others_do() -> None:
    policy, problem = fw.FrankWolfe(Minimum(), Fading()), WORLD.problem()
    agent = fw.Agent(policy, problem)
    rng = np.random.default_rng(0)
    first = agent.act(rng.random((6, 4)) / 2.0)
    assert first.explain()[0]["arm"] == first.action
    batch = agent.act_many(rng.random((5, 6, 4)) / 2.0)
    agent.update_many(batch, rng.random((5, 3)))
    agent.update(fw.Decision.from_bytes(first.to_bytes()), [1.0, 0.0, 0.5])
    again = fw.Agent.restore(agent.dump(), policy=policy)
    context = rng.random((6, 4)) / 2.0
    assert again.act(context).action == agent.act(context).action
    for _ in range(200):
        agent.update(agent.act(rng.random((6, 4)) / 2.0), rng.random(3))
    assert np.isfinite(agent.live().at_most or 0.0)


def test_an_own_rule_has_blocks_and_blocked_arms() -> None:
    problem = Problem.arms(2, {"clicks": (0, 1)}, n_arms=3)
    own = fw.Agent(fw.FrankWolfe(Linear((1.0,)), Optimist(0.0)), problem)
    known = fw.Agent(fw.FrankWolfe(Linear((1.0,)), LinUCB(exploration=0.0)), problem)
    rng = np.random.default_rng(1)
    for t in range(60):
        context, blocked = PerArm(rng.random(2) / 2.0), [t % 3] if t % 2 else None
        options: Any = {} if blocked is None else {"blocked": blocked}
        reward = [float(rng.random())]
        mine, theirs = own.act(context, **options), known.act(context, **options)
        assert mine.action == theirs.action
        own.update(mine, reward)
        known.update(theirs, reward)


def test_the_probabilities_of_an_own_rule_are_found_for_all_arms() -> None:
    """Those of `EpsilonGreedy` where they are the same."""
    agents = [fw.Agent(fw.FrankWolfe(Minimum(), b), WORLD.problem()) for b in (Constant(), GREEDY)]
    rng = np.random.default_rng(2)
    for _ in range(30):
        context, reward = rng.random((6, 4)) / 2.0, rng.random(3)
        decision = agents[1].act(context)
        for agent in agents:
            agent.study(decision.batch.rows, reward[None])
    part = ContextPart(20, 6, rng.random((20, 6, 4)) / 2.0)
    mine, theirs = (frozen(agent)(slice(0, 20), part) for agent in agents)
    np.testing.assert_allclose(mine, theirs, atol=1e-12)
    with pytest.raises(InvalidInput, match="does not know the probabilities"):
        frozen(fw.Agent(fw.FrankWolfe(Minimum(), Timid()), WORLD.problem()))


@pytest.mark.filterwarnings("ignore:the plain loop")
def test_what_choose_arm_does_not_say_keeps_a_rule_out_of_the_compiled_loop() -> None:
    policy = fw.FrankWolfe(Minimum(), Timid())
    assert not fw.simulate(policy, WORLD, 20).compiled
    with pytest.raises(InvalidInput, match="Timid"):
        fw.simulate(policy, WORLD, 20, compiled=True)
    with pytest.raises(TypeError, match="abstract"):
        Rule()  # type: ignore[abstract]


@pytest.mark.needs("scikit-learn")
@pytest.mark.filterwarnings("ignore:the plain loop")
def test_an_own_rule_over_another_regression_has_the_plain_loop() -> None:
    from sklearn.linear_model import SGDRegressor

    from fairwolfe.oracles import SklearnRegressor

    @dataclass(frozen=True)
    class Learner(Fading):
        @cached_property
        def regression(self) -> Oracle:
            return SklearnRegressor(SGDRegressor())

    trace = fw.simulate(fw.FrankWolfe(Minimum(), Learner()), WORLD, 60)
    assert not trace.compiled


# --- worlds -----------------------------------------------------------------------------------


def test_an_own_world_keeps_its_promises() -> None:
    check(Compass)


def test_an_own_world_is_called_from_the_compiled_loop() -> None:
    fast, plain = both(fw.FrankWolfe(Minimum(), LinUCB(exploration="theorem")), Compass())
    assert fast.callbacks == 300 * 3  # the reward, the best arm, and its mean
    np.testing.assert_array_equal(fast.average_observed, plain.average_observed)
    both(
        fw.FrankWolfe(Minimum(), LinUCB(exploration="theorem")),
        Compass(),
        lateness=Lateness(delay=7),
    )


def test_all_three_together() -> None:
    fast, _ = both(fw.FrankWolfe(CloseTo(0.7), Fading()), Compass())
    assert fast.callbacks == 300 * 5
    assert "1500 callbacks" in repr(fast)
    assert "callbacks" not in fast.to_frame()


# --- what goes wrong --------------------------------------------------------------------------


class Mine(Exception):
    """An exception of an author."""


def after(calls: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that raises after so many calls."""
    left = [calls]

    def called(*given: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Mine("what I say")
        return function(*given)

    return called


@pytest.mark.parametrize("lateness", [None, Lateness(delay=3, refresh=4)], ids=["prompt", "late"])
@pytest.mark.parametrize("compiled", [True, False])
def test_what_an_author_raises_is_raised(compiled: bool, lateness: Lateness | None) -> None:
    failing = after(7, CloseTo()._gradient)

    @dataclass(frozen=True)
    class Broken(CloseTo):
        def _gradient(self, z: Vector, step: float) -> Vector:
            return failing(z, step)  # type: ignore[no-any-return]

    rule = after(7, Optimist().choose_arm)

    @dataclass(frozen=True)
    class Rash(Optimist):
        def choose_arm(self, *given: Any) -> tuple[int, float | None]:
            return rule(*given)  # type: ignore[no-any-return]

    rewards = after(7, Compass().rewards)

    @dataclass(frozen=True)
    class Moody(Compass):
        def rewards(self, *given: Any) -> tuple[Vector, Vector]:
            return rewards(*given)  # type: ignore[no-any-return]

    def play(policy: Any, world: Any) -> None:
        with pytest.raises(Mine, match=r"^what I say$"):
            fw.simulate(policy, world, 100, compiled=compiled, lateness=lateness)

    play(fw.FrankWolfe(Broken(), LinUCB(exploration="theorem")), WORLD)
    play(fw.FrankWolfe(Minimum(), Rash()), WORLD)
    play(fw.FrankWolfe(Minimum(), LinUCB(exploration="theorem")), Moody())


def test_what_is_raised_stops_the_loop_at_its_round() -> None:
    """The averages and the regression are those before that round."""
    from fairwolfe.core.streams import stream
    from fairwolfe.simulation.run import ArmsRun, Streams

    rule = after(7, Optimist().choose_arm)

    @dataclass(frozen=True)
    class Rash(Optimist):
        def choose_arm(self, *given: Any) -> tuple[int, float | None]:
            return rule(*given)  # type: ignore[no-any-return]

    failing = after(7, CloseTo()._gradient)

    @dataclass(frozen=True)
    class Broken(CloseTo):
        def _gradient(self, z: Vector, step: float) -> Vector:
            return failing(z, step)  # type: ignore[no-any-return]

    cases = (
        (fw.FrankWolfe(Minimum(), Rash()), fw.FrankWolfe(Minimum(), Optimist())),
        (
            fw.FrankWolfe(Broken(), LinUCB(exploration="theorem")),
            fw.FrankWolfe(CloseTo(), LinUCB(exploration="theorem")),
        ),
    )
    for policies in cases:
        runs = [ArmsRun(p, WORLD, WORLD.init(stream(3, "world")), Streams.of(3)) for p in policies]
        runs[0].most = runs[1].most = 10
        with pytest.raises(Mine):
            runs[0].play(10)
        runs[1].play(7)
        assert runs[0].running.t == 7
        for one, other in zip(*(run.running.state[:-1] for run in runs), strict=True):
            np.testing.assert_array_equal(one, other)


def test_molincb_raises_what_its_objective_raises() -> None:
    def broken(z: Vector) -> Vector:
        if z.sum() != 0.0 and z.size == 3 and armed:
            raise Mine("what I say")
        return square_gradient(z)

    armed: list[int] = []
    policy = MOLinCB(Custom(square, broken, smooth=True))
    fast = fw.simulate(policy, WORLD, 20, compiled=True)
    assert fast.callbacks > 20
    armed.append(1)
    with pytest.raises(Mine, match="what I say"):
        fw.simulate(MOLinCB(Custom(square, broken, smooth=True)), WORLD, 20, compiled=True)


@pytest.mark.parametrize(
    ("answer", "error", "match"),
    [
        ((6, 1.0), InvalidInput, "chose arm 6 of 6"),
        ((-1, 1.0), InvalidInput, "chose arm -1 of 6"),
        ((0, 0.0), InvalidInput, "probability 0.0; give a number above 0"),
        ((0, float("nan")), InvalidInput, "probability nan"),
        ((0.5, 1.0), TypeError, "float"),
        (0, TypeError, "iterable"),
    ],
)
@pytest.mark.parametrize("compiled", [True, False])
def test_a_wrong_answer_of_a_rule_is_named(
    answer: Any, error: type[Exception], match: str, compiled: bool
) -> None:
    @dataclass(frozen=True)
    class Wrong(Rule):
        def choose_arm(self, *given: Any) -> Any:
            return answer

    with pytest.raises(error, match=match):
        fw.simulate(fw.FrankWolfe(Minimum(), Wrong()), WORLD, 5, compiled=compiled)


@pytest.mark.parametrize(
    ("arm", "chance", "match"), [(6, 1.0, "chose arm 6 of 6"), (0, 2.0, "probability 2.0")]
)
@pytest.mark.parametrize("compiled", [True, False])
def test_a_wrong_answer_in_c_is_named(arm: int, chance: float, match: str, compiled: bool) -> None:
    def wrong(values: Any, widths: Any, n: int, t: float, u: float, p: Any, _: Any) -> int:
        p[0] = chance
        return arm

    @dataclass(frozen=True)
    class Wrong(Rule):
        choose_arm = C(RULE(wrong))

    with pytest.raises(InvalidInput, match=match):
        fw.simulate(fw.FrankWolfe(Minimum(), Wrong()), WORLD, 5, compiled=compiled)


def test_a_c_function_of_another_signature_is_refused() -> None:
    assert SIGNATURE.startswith("Py_ssize_t (")

    @dataclass(frozen=True)
    class Wrong(Rule):
        choose_arm = C(GRADIENT(_square_in_c))

    with pytest.raises(InvalidInput, match="a rule needs 'Py_ssize_t"):
        fw.simulate(fw.FrankWolfe(Minimum(), Wrong()), WORLD, 5)


def test_a_gradient_of_another_length_is_refused() -> None:
    @dataclass(frozen=True)
    class Short(CloseTo):
        def _gradient(self, z: Vector, step: float) -> Vector:
            return np.ones(2)

    with pytest.raises(InvalidInput, match=r"shape \(2,\) for a z of length 3"):
        Short().gradient(np.zeros(3))
    for compiled in (True, False):
        with pytest.raises(InvalidInput, match=r"shape \(2,\) for a z of length 3"):
            fw.simulate(
                fw.FrankWolfe(Short(), LinUCB(exploration="theorem")), WORLD, 5, compiled=compiled
            )


def test_an_interrupt_inside_an_own_function_ends_the_run_with_what_was_done() -> None:
    calls = []

    @dataclass(frozen=True)
    class Stopped(Optimist):
        def choose_arm(self, *given: Any) -> tuple[int, float | None]:
            calls.append(1)
            if len(calls) > 40:
                raise KeyboardInterrupt
            return super().choose_arm(*given)

    trace = fw.simulate(fw.FrankWolfe(Minimum(), Stopped()), WORLD, 1000)
    assert not trace.complete
    assert int(trace.t[-1]) <= 40


def test_ridges_of_an_own_rule() -> None:
    @dataclass(frozen=True)
    class Stiff(Optimist):
        ridge: float = 10.0

        @cached_property
        def regression(self) -> Oracle:
            return Ridge(self.ridge)

    both(fw.FrankWolfe(Minimum(), Stiff()), WORLD)
