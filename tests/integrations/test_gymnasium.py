"""Our worlds in Gymnasium and MO-Gymnasium, and theirs as ours."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.bandits import LinUCB, SquareCB, Uniform
from fairwolfe.core.kinds import kind_of
from fairwolfe.core.streams import stream
from fairwolfe.environments import FactorModel, Finite, FiniteRanking, Mehrotra, Nonlinear, dcg
from fairwolfe.errors import ConformanceError, InvalidInput, MissingExtra
from fairwolfe.integrations import Gymnasium
from fairwolfe.objectives import GiniEquality, GiniWelfare, Minimum, TwoSided
from fairwolfe.ranking import FWLinUCBRank
from tests.capabilities import marks_of

pytestmark = [
    pytest.mark.needs("gymnasium", "mo-gymnasium"),
    # What MO-Gymnasium's own environments say of their spaces.
    pytest.mark.filterwarnings("ignore:.*precision lowered by casting"),
]

SMALL = FactorModel(users=6, items=5, position_weights=dcg(3), n_factors=4)
WORLDS: dict[str, Any] = {
    "mehrotra": Mehrotra(4, 3, 5),
    "nonlinear": Nonlinear(n_arms=3, n_contexts=20),
    "finite": Finite.a2(),
    "finite, normal noise": Finite.examples()[-1],
    "factor model": SMALL,
    "finite ranking": FiniteRanking.b1(),
}
IDS: dict[str, dict[str, Any]] = {
    "fairwolfe/mehrotra-v0": {"n_arms": 4},
    "fairwolfe/nonlinear-v0": {},
    "fairwolfe/factor-model-v0": {"users": 6, "items": 5, "position_weights": dcg(3)},
    "fairwolfe/finite-v0": {
        "contexts": [[[1.0, 0.0], [0.0, 1.0]]],
        "probabilities": [1.0],
        "theta": [[1.0, 0.0], [0.0, 1.0]],
    },
    "fairwolfe/finite-ranking-v0": {
        "contexts": [[[0.9, 0.1], [0.2, 0.3], [0.5, 0.5]]],
        "theta": [0.6, 0.8],
        "position_weights": dcg(2),
    },
    "fairwolfe/listening-v0": {
        "table": [(f"u{i % 5}", i * i % 7, 1 + i % 4) for i in range(23)],
        "position_weights": dcg(2),
        "factors": 3,
    },
    "fairwolfe/lastfm-50-v0": {},
    "fairwolfe/lastfm-2k-v0": {},
}
EVERY_ID = [
    pytest.param(one, marks=marks_of(one.removeprefix("fairwolfe/").removesuffix("-v0")))
    for one in IDS
]


# --- their checkers ------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
@pytest.mark.filterwarnings("ignore:.*observation space m..imum value is -?infinity")
@pytest.mark.parametrize("identity", EVERY_ID)
def test_the_checker_of_gymnasium_passes(identity: str) -> None:
    from gymnasium.utils.env_checker import check_env

    from tests.integrations.scalarised import scalarised

    check_env(scalarised(identity, **IDS[identity]), skip_render_check=True)


def test_the_checker_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    from gymnasium.utils.env_checker import check_env

    from fairwolfe.integrations.gymnasium import BanditEnv
    from tests.integrations.scalarised import scalarised

    monkeypatch.setattr(BanditEnv, "_shown", lambda self: self.context + 100.0)
    env = scalarised("fairwolfe/mehrotra-v0", **IDS["fairwolfe/mehrotra-v0"])
    with (
        pytest.warns(UserWarning, match="unwrapped"),
        pytest.raises(AssertionError, match="not within the observation space"),
    ):
        check_env(env, skip_render_check=True)


@pytest.mark.parametrize("identity", EVERY_ID)
def test_what_mo_gymnasium_asks_of_its_own_environments(identity: str) -> None:
    """MO-Gymnasium installs no checker of its own: this is what its tests ask of all it registers,
    besides Gymnasium's: the reward space, equal rollouts, and a copy by pickle.
    """
    import mo_gymnasium

    import fairwolfe.integrations.gymnasium  # noqa: F401

    one, two = (mo_gymnasium.make(identity, **IDS[identity]) for _ in range(2))
    assert one.unwrapped.reward_space.shape == (one.unwrapped.reward_dim,)
    first = [env.reset(seed=0)[0] for env in (one, two)]
    assert_same(*first)
    one.action_space.seed(0)
    for t in range(60):
        if t == 30:
            two = pickle.loads(pickle.dumps(two))
        action = one.action_space.sample()
        assert one.action_space.contains(action)
        seen = [env.step(action) for env in (one, two)]
        assert_same(*seen)
        observation, reward, terminated, truncated, _ = seen[0]
        assert one.observation_space.contains(observation)
        assert one.unwrapped.reward_space.contains(reward)
        assert (terminated, truncated) == (False, False)


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        one, other = tuple(one.values()), tuple(other.values())
    if isinstance(one, tuple):
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    else:
        np.testing.assert_array_equal(one, other)


# --- ours as theirs ------------------------------------------------------------------------------


def policy_for(world: Any) -> Any:
    if world.problem().n_items is None:
        return fw.FrankWolfe(GiniWelfare(), SquareCB(gamma0=20.0))
    return FWLinUCBRank(TwoSided(GiniEquality(), beta=0.5), ridge=0.1)


def context_of(observation: Any) -> Any:
    return fw.Bilinear(**observation) if isinstance(observation, dict) else observation


def played(env: Any, policy: Any, problem: Any, horizon: int, seed: int) -> tuple[Any, Any]:
    """A policy of ours in a loop that anybody would write for Gymnasium: actions and rewards."""
    state = policy.init(problem)
    rng, actions, rewards = stream(seed, "policy"), [], []
    observation, _ = env.reset(seed=seed)
    for _ in range(horizon):
        decision = policy.act(state, context_of(observation), rng)
        observation, reward, _, truncated, info = env.step(decision.action)
        feedback = fw.Shown(info["exposed"], info["rewards"]) if info else reward
        state = policy.update(state, decision, feedback)
        actions.append(decision.action)
        rewards.append(reward)
        if truncated:
            observation, _ = env.reset()
    return np.array(actions), np.array(rewards)


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("name", WORLDS)
def test_a_policy_trained_through_gymnasium_is_that_of_the_native_run(name: str, seed: int) -> None:
    """Bit for bit: the same decisions, and the same average rewards."""
    from fairwolfe.integrations.gymnasium import BanditEnv

    world = WORLDS[name]
    policy = policy_for(world)
    native = fw.simulate(policy, world, 120, seed, record_actions=True)
    assert native.compiled
    actions, rewards = played(BanditEnv(world, horizon=50), policy, world.problem(), 120, seed)
    np.testing.assert_array_equal(actions, native.actions)
    total = np.zeros(rewards.shape[1])
    for reward in rewards:  # one after the other, as the run adds them
        total += reward
    np.testing.assert_array_equal(total / 120, native.average_observed[-1])
    assert len(set(map(str, actions.tolist()))) > 1


def test_other_seeds_are_other_worlds() -> None:
    from fairwolfe.integrations.gymnasium import BanditEnv

    env = BanditEnv(WORLDS["mehrotra"])
    one, two, again = (env.reset(seed=seed)[0] for seed in (1, 2, 1))
    assert not np.array_equal(one, two)
    np.testing.assert_array_equal(one, again)
    fresh = BanditEnv(WORLDS["mehrotra"])
    fresh.reset()  # without any seed it draws one
    assert fresh.step(0)[1].shape == (3,)


def test_an_episode_is_a_part_of_one_run() -> None:
    from fairwolfe.integrations.gymnasium import BanditEnv

    long, short = BanditEnv(WORLDS["mehrotra"]), BanditEnv(WORLDS["mehrotra"], horizon=3)
    long.reset(seed=5)
    short.reset(seed=5)
    ends = []
    for _ in range(7):
        a, b = long.step(1), short.step(1)
        assert_same(a[:3], b[:3])
        ends.append(b[3])
        if b[3]:
            observation, info = short.reset()
            assert_same(observation, b[0])
            assert info == {}
    assert ends == [False, False, True, False, False, True, False]


def test_a_ranking_earns_exposures_then_user_rewards() -> None:
    from fairwolfe.integrations.gymnasium import BanditEnv

    env = BanditEnv(SMALL)
    env.reset(seed=0)
    action = np.array([4, 0, 2])
    _, reward, _, _, info = env.step(action)
    shown = fw.Shown(info["exposed"], info["rewards"])
    answer = kind_of(SMALL.problem()).observe(action, shown)
    np.testing.assert_array_equal(reward, answer.reward)
    np.testing.assert_array_equal(reward[action], info["exposed"])
    assert reward[5] == info["rewards"].sum()


def test_rankings_are_drawn_without_an_item_twice() -> None:
    from fairwolfe.integrations.gymnasium import RankingSpace

    space = RankingSpace(5, 3)
    space.seed(0)
    drawn = [space.sample() for _ in range(200)]
    assert all(len(set(one.tolist())) == 3 and one in space for one in drawn)
    assert len({tuple(one.tolist()) for one in drawn}) > 50  # of 60
    with pytest.raises(InvalidInput, match="without a mask"):
        space.sample(mask=(np.ones(5, dtype=np.int8),) * 3)


def test_a_ranking_with_an_item_twice_is_refused() -> None:
    from fairwolfe.integrations.gymnasium import BanditEnv

    env = BanditEnv(SMALL)
    env.reset(seed=0)
    with pytest.raises(InvalidInput, match="give the places of 3 different items, 0 to 4"):
        env.step(np.array([1, 1, 2]))


def test_every_world_of_the_registry_has_an_id() -> None:
    import gymnasium

    from fairwolfe.integrations.gymnasium import register

    known = set(fw.registry.names("environments")) - {"gymnasium"}
    assert {f"fairwolfe/{name.replace('_', '-')}-v0" for name in known} == set(register())
    assert set(register()) <= set(gymnasium.registry)
    ours = set(fw.registry.KINDS["environments"]) - {"gymnasium"}
    checked = {f"fairwolfe/{name.replace('_', '-')}-v0" for name in ours}
    assert checked == set(IDS)
    env = gymnasium.make("fairwolfe/mehrotra-v0", n_arms=7, max_episode_steps=2)
    env.reset(seed=0)
    assert [env.step(6)[3] for _ in range(2)] == [False, True]  # by Gymnasium's own wrapper


def test_an_id_is_found_by_its_module_in_a_fresh_process() -> None:
    code = (
        "import gymnasium; "
        "env = gymnasium.make('fairwolfe.integrations.gymnasium:fairwolfe/mehrotra-v0'); "
        "print(env.reset(seed=0)[0].shape)"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "(50, 10)"


def test_bad_worlds_are_refused() -> None:
    from fairwolfe.integrations.gymnasium import BanditEnv

    with pytest.raises(InvalidInput, match="no option 'arms'"):
        BanditEnv("mehrotra", arms=3)
    with pytest.raises(InvalidInput, match="see fw"):
        BanditEnv(3)
    with pytest.raises(InvalidInput, match="n_arms: options go with the name"):
        BanditEnv(Mehrotra(), n_arms=3)
    with pytest.raises(InvalidInput, match="horizon is 0"):
        BanditEnv("mehrotra", horizon=0)
    with pytest.raises(InvalidInput, match="reset"):
        BanditEnv("mehrotra").step(0)


# --- theirs as ours ------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [LinUCB(ridge=0.1), SquareCB(gamma0=20.0)], ids=repr)
@pytest.mark.parametrize("horizon", [None, 7])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_there_and_back_is_the_native_run(seed: int, horizon: int | None, base: Any) -> None:
    """Our world as theirs, and theirs as ours again: the same decisions and rewards, bit for bit,
    whether the native run is compiled or not.
    """
    world = Mehrotra(4, 3, 5)
    options = {"n_arms": 4, "n_objectives": 3, "n_features": 5, "horizon": horizon}
    back = Gymnasium("fairwolfe/mehrotra-v0", options)
    assert back.problem() == world.problem()
    policy = fw.FrankWolfe(world.objective(), base)
    bridged = fw.simulate(policy, back, 150, seed, record_actions=True)
    assert not bridged.compiled
    for compiled in (True, False):
        native = fw.simulate(policy, world, 150, seed, compiled=compiled, record_actions=True)
        np.testing.assert_array_equal(bridged.actions, native.actions)
        np.testing.assert_array_equal(bridged.average_observed, native.average_observed)


@pytest.mark.parametrize(
    "name", ["deep-sea-treasure", "resource-gathering", "four-room", "fishwood", "fruit-tree"]
)
def test_environments_of_mo_gymnasium_can_be_played(name: str) -> None:
    world = Gymnasium(f"mo_gymnasium:{name}-v0")
    policy = fw.FrankWolfe(Minimum(), LinUCB(ridge=0.1))
    trace = fw.simulate(policy, world, 300, seed=1, record_actions=True)
    again = fw.simulate(policy, world, 300, seed=1, record_actions=True)
    np.testing.assert_array_equal(trace.actions, again.actions)
    # Nobody knows the truth: what was observed stands for it, and regrets are unknown.
    np.testing.assert_array_equal(trace.average, trace.average_observed)
    assert np.isnan(trace.scalar_regret).all()
    problem = world.problem()
    last = trace.average_observed[-1]
    assert ((problem.low <= last) & (last <= problem.high)).all()


def test_a_run_is_what_a_loop_in_gymnasium_with_the_same_seed_sees() -> None:
    """An independent loop: contexts and rewards are those of `reset(seed=3)` and what follows."""
    import mo_gymnasium

    policy = fw.FrankWolfe(Minimum(), Uniform())
    world = Gymnasium("mo_gymnasium:resource-gathering-v0")
    trace = fw.simulate(policy, world, 400, seed=3, record_actions=True)
    env = mo_gymnasium.make("resource-gathering-v0")
    env.reset(seed=3)
    total, ends = np.zeros(3), 0
    for action in trace.actions if trace.actions is not None else ():
        _, reward, terminated, truncated, _ = env.step(int(action))
        total += reward
        if terminated or truncated:
            env.reset()
            ends += 1
    np.testing.assert_array_equal(total / 400, trace.average_observed[-1])
    assert ends > 3


def test_observations_are_scaled_to_rows_of_norm_one_at_most() -> None:
    world = Gymnasium("mo_gymnasium:resource-gathering-v0")
    state = world.init(stream(0, "world"))
    context = world.context(state, 1, stream(0, "contexts"))
    # Position (4, 2) of 0 to 5, no gold, no diamond.
    expected = np.array([1.0, 0.6, -0.2, -1.0, -1.0]) / np.sqrt(5.0)
    np.testing.assert_allclose(context.features, expected, atol=1e-7)
    assert world.problem().n_features == 5
    assert world.problem().rewards == {"r1": (-1, 0), "r2": (0, 1), "r3": (0, 1)}


def test_a_reward_that_never_changes_has_a_range_with_zero() -> None:
    rewards = Gymnasium("mo_gymnasium:deep-sea-treasure-v0").problem().rewards
    assert rewards["r2"] == (-1.0, 0.0)


def test_a_scalar_reward_needs_its_range() -> None:
    with pytest.raises(InvalidInput, match=r"does not say between which numbers its 1 rewards lie"):
        Gymnasium("CartPole-v1").problem()
    world = Gymnasium("CartPole-v1", rewards={"upright": (0, 1)})
    trace = fw.simulate(fw.FrankWolfe(Minimum(), LinUCB()), world, 50)
    assert trace.average_observed[-1].tolist() == [1.0]


def test_what_cannot_be_played_is_refused_in_a_sentence() -> None:
    with pytest.raises(InvalidInput, match=r"only Discrete\(n\) can be played as arms"):
        Gymnasium("Pendulum-v1").problem()
    with pytest.raises(InvalidInput, match=r"there is no environment 'nowhere-v0'"):
        Gymnasium("nowhere-v0").problem()
    with pytest.raises(InvalidInput, match=r"there is no environment 'nothing_here:x-v0'"):
        Gymnasium("nothing_here:x-v0").problem()
    with pytest.raises(InvalidInput, match=r"rewards names fish, and .* has 2; name as many"):
        Gymnasium("mo_gymnasium:fishwood-v0", rewards={"fish": (0, 1)}).problem()
    with pytest.raises(InvalidInput, match=r"id is 3"):
        Gymnasium(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"options is 3"):
        Gymnasium("CartPole-v1", 3)  # type: ignore[arg-type]


def test_the_truth_is_refused() -> None:
    world = Gymnasium("mo_gymnasium:four-room-v0")
    sentence = "the expected rewards of mo_gymnasium:four-room-v0 are not known"
    with pytest.raises(InvalidInput, match=sentence):
        fw.optimum(world, Minimum())
    with pytest.raises(InvalidInput, match=sentence):
        fw.simulate(fw.known(world, Minimum()), world, 5, objective=Minimum())


def test_only_the_context_that_waits_can_be_answered() -> None:
    world = Gymnasium("mo_gymnasium:resource-gathering-v0")
    state, rng = world.init(stream(0, "world")), stream(0, "contexts")
    context = world.context(state, 1, rng)
    world.feedback(state, context, 3, rng)
    with pytest.raises(InvalidInput, match="not the one that waits"):
        world.feedback(state, context, 3, rng)


def test_policies_are_compared_in_an_environment_of_theirs() -> None:
    """What a bandit can learn there: in a world of the library it beats chance."""
    world = Gymnasium("fairwolfe/mehrotra-v0", {"n_arms": 6, "n_objectives": 3, "n_features": 4})
    f = Mehrotra(6, 3, 4).objective()
    two = {"ucb": fw.FrankWolfe(f, LinUCB(ridge=0.1)), "any": fw.FrankWolfe(f, Uniform())}
    result = fw.compare(two, world, 300, seeds=3, jobs=2)
    assert result.difference("ucb", "any")[1] > 0.0


def test_seeds_that_are_too_large_are_drawn() -> None:
    world = Gymnasium.examples()[1]
    for rng in (np.random.default_rng(2**40), np.random.default_rng([1, 2])):
        assert world.init(rng).context.shape == (4, 10)
    one, two = (world.init(np.random.default_rng(2**40)).context for _ in range(2))
    np.testing.assert_array_equal(one, two)


@dataclass(frozen=True)
class Invents(Gymnasium):
    """Tells expected rewards that it does not know."""

    def mean_reward(self, world: Any, context: Any, action: Any) -> Any:
        return np.zeros(2)

    def best_action(self, world: Any, context: Any, direction: Any) -> Any:
        return 0


def test_the_checks_know_worlds_without_a_truth() -> None:
    assert Gymnasium.examples()[0].opaque
    failed = {one.check for one in fw.checks.outcomes(Invents.examples()[0]) if one.error}
    assert failed == {"has_mean_rewards", "knows_the_best_action"}
    with pytest.raises(ConformanceError, match="it is opaque, and returns expected rewards"):
        fw.checks.check(Invents.examples()[0])


# --- without Gymnasium ---------------------------------------------------------------------------


@pytest.fixture
def without_gymnasium(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.delitem(sys.modules, "fairwolfe.integrations.gymnasium", raising=False)


@pytest.mark.usefixtures("without_gymnasium")
def test_without_gymnasium_the_extra_is_named() -> None:
    with pytest.raises(MissingExtra, match=r"pip install 'fairwolfe\[integrations\]'"):
        Gymnasium("CartPole-v1").problem()
    with pytest.raises(MissingExtra, match=r"pip install 'fairwolfe\[integrations\]'"):
        import fairwolfe.integrations.gymnasium  # noqa: F401
