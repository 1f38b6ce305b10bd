"""Regressors of scikit-learn as oracles: what they are, what they learn from, what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairwolfe import Agent, FrankWolfe, Problem, simulate
from fairwolfe.agent.file import arrays_of, filled
from fairwolfe.bandits import EpsilonGreedy, SquareCB
from fairwolfe.checks import check
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.build import from_text
from fairwolfe.core.contexts import Arms, PerArm
from fairwolfe.core.streams import stream
from fairwolfe.environments import Nonlinear
from fairwolfe.errors import (
    FairwolfeError,
    IncompatibleState,
    InvalidInput,
    MissingExtra,
    NumericalFailure,
    OutsideAssumptions,
)
from fairwolfe.objectives import GiniWelfare, Minimum
from fairwolfe.oracles import Ridge, SklearnRegressor
from fairwolfe.oracles.sklearn_regressor import Fit
from tests.agent.test_file import play, world

pytestmark = pytest.mark.needs("scikit-learn")

PROBLEM = Problem.arms(3, {"clicks": (0.0, 1.0), "minutes": (0.0, 10.0), "cost": (0.0, 1.0)})
TREE = "sklearn.tree:DecisionTreeRegressor"
RECORDER = "tests.oracles.recorder:Recorder"
ADDRESSES = {
    "Boosting": "sklearn.ensemble:GradientBoostingRegressor",
    "Forest": "sklearn.ensemble:RandomForestRegressor",
    "Least": "sklearn.linear_model:LinearRegression",
    "MLP": "sklearn.neural_network:MLPRegressor",
    "Near": "sklearn.neighbors:KNeighborsRegressor",
    "Pipeline": "sklearn.pipeline:Pipeline",
    "Powers": "sklearn.preprocessing:PolynomialFeatures",
    "Recorder": RECORDER,
    "SGD": "sklearn.linear_model:SGDRegressor",
    "Scaler": "sklearn.preprocessing:StandardScaler",
    "Tree": TREE,
    "Voting": "sklearn.ensemble:VotingRegressor",
}


def new(name: str, *given: Any, **options: Any) -> Any:
    """An estimator; scikit-learn is imported here."""
    module, _, kind = ADDRESSES[name].partition(":")
    return getattr(import_module(module), kind)(*given, **options)


def network() -> Any:
    return new("MLP", hidden_layer_sizes=(4,), learning_rate_init=0.05, max_iter=10)


def small_tree() -> SklearnRegressor:
    return SklearnRegressor(TREE, {"max_depth": 3}, memory=50)


def recorded() -> list[tuple[str, Vector]]:
    """What every Recorder was taught since `taught` began."""
    seen: list[tuple[str, Vector]] = new("Recorder").seen
    return seen


def taught(oracle: Any, n: int, ask: bool = True, state: Any = None, problem: Any = PROBLEM) -> Any:
    """A state after n observations, of which the first feature is their number."""
    state = oracle.init(problem) if state is None else state
    recorded().clear()  # of the trial in init
    rng = stream(0, "observations")
    for i in range(n):
        x, reward = rng.random(problem.dimension), rng.uniform(problem.low, problem.high)
        x[0] = i
        oracle.learn(0, x, reward, *state)
        if ask:
            estimated(state)
    return state


def known(agent: Agent) -> Matrix:
    """What an agent estimates."""
    with agent.held() as running:
        return estimated(running.base_state.oracle)


def estimated(state: Any) -> Matrix:
    features = stream(1, "asked").uniform(0.0, 3.0, (4, state.features.shape[1]))
    estimates = state.estimates(Arms(features, 4, False))
    return estimates.features @ estimates.theta[0].T  # type: ignore[no-any-return]


# --- the rules are the same -------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["squarecb", "epsilon"])
def test_ridge_regression_of_scikit_learn_decides_like_ours(rule: str) -> None:
    """Least squares with the same penalty, fitted after every observation, is our `Ridge`."""
    theirs = SklearnRegressor(
        "sklearn.linear_model:Ridge", {"alpha": 0.5, "fit_intercept": False}, growth=1.0, first=1
    )
    decided = []
    for oracle in (Ridge(0.5), theirs):
        base: Any = SquareCB(gamma0=50.0, oracle=oracle)
        if rule == "epsilon":
            base = EpsilonGreedy(0.2, oracle=oracle)
        # Estimates of open decisions are kept as they were made where the model is not ours.
        policy = FrankWolfe(GiniWelfare(), base, anticipate=False)
        decided.append(play(Agent(policy, PROBLEM, seed=3), world(PROBLEM, 150)))
    actions, probabilities = (np.array(column) for column in zip(*decided[0], strict=True))
    same_actions, close = (np.array(column) for column in zip(*decided[1], strict=True))
    assert np.array_equal(actions, same_actions)
    np.testing.assert_allclose(close, probabilities, rtol=0.0, atol=1e-9)
    assert len(set(probabilities.tolist())) > 5


SUBJECTS: dict[str, Callable[[], Any]] = {
    "squarecb": lambda: SquareCB(gamma0=30.0, oracle=small_tree()),
    "epsilon-greedy": lambda: EpsilonGreedy(
        0.3, oracle=SklearnRegressor(network(), growth=2.0, batch=3, memory=20)
    ),
    "frank-wolfe": lambda: FrankWolfe(GiniWelfare(), SquareCB(gamma0=30.0, oracle=small_tree())),
    "pipeline": lambda: SklearnRegressor(
        new("Pipeline", [("scale", new("Scaler")), ("near", new("Near", 3))]), growth=1.0
    ),
}


@pytest.mark.parametrize("case", SUBJECTS)
def test_bandits_and_policies_over_it_keep_their_contracts(case: str) -> None:
    assert check(SUBJECTS[case]()) >= 4


def test_a_single_reward_is_a_special_case() -> None:
    problem = Problem.arms(3, {"clicks": (0, 1)})
    for model in (new("Tree"), new("Boosting", n_estimators=3), network()):
        assert estimated(taught(SklearnRegressor(model), 30, problem=problem)).shape == (4, 1)


def test_a_model_of_one_output_is_copied_for_each_reward() -> None:
    boosted = new("Boosting", n_estimators=3, random_state=0)
    state = taught(SklearnRegressor(boosted, growth=1.0), 30)
    features, rewards = state.features[:30], state.rewards[:30]
    asked = stream(1, "asked").uniform(0.0, 3.0, (4, 3))
    alone = [boosted.fit(features, rewards[:, i]).predict(asked) for i in range(3)]
    assert np.array_equal(estimated(state), np.array(alone).T)


# --- when and what it learns ------------------------------------------------------------------


def test_fits_are_spaced_geometrically_until_the_memory_is_full() -> None:
    oracle = SklearnRegressor(new("Recorder"), growth=1.5, first=4, memory=20)
    state = taught(oracle, 100)
    ends = [int(rows[-1]) + 1 for _, rows in recorded()]
    # 4, then half as many again, rounded up; at a memory of 20, every 10.
    assert ends == [4, 6, 9, 14, 21, 31, 41, 51, 61, 71, 81, 91]
    for end, (_, rows) in zip(ends, recorded(), strict=True):
        assert rows.tolist() == list(range(max(0, end - 20), end))
    assert state.features.shape == (30, 3)


@pytest.mark.parametrize("growth", [1.1, 1.25, 2.0])
def test_the_cost_of_all_fits_is_bounded_by_that_of_the_last(growth: float) -> None:
    """Sizes that grow by g or more sum to at most g/(g - 1) of the last."""
    taught(SklearnRegressor(new("Recorder"), growth=growth), 1000)
    sizes = [len(rows) for _, rows in recorded()]
    assert sum(sizes) <= growth / (growth - 1.0) * sizes[-1]
    assert sizes[-1] >= 1000 / growth - 1


def test_batches_are_learnt_once_each_between_fits() -> None:
    taught(SklearnRegressor(new("Recorder"), growth=2.0, first=8, memory=16, batch=3), 40)
    told = [(kind, int(rows[0]), int(rows[-1]) + 1) for kind, rows in recorded()]
    assert told == [
        ("fit", 0, 8),
        ("part", 8, 11),
        ("part", 11, 14),
        ("fit", 0, 16),
        *(("part", i, i + 3) for i in (16, 19, 22, 25, 28)),
        ("fit", 16, 32),
        ("part", 32, 35),
        ("part", 35, 38),
    ]


def test_a_model_is_fitted_when_it_is_asked() -> None:
    oracle = SklearnRegressor(new("Recorder"), batch=2, growth=2.0)
    silent = taught(oracle, 39, ask=False)
    assert recorded() == []
    late = estimated(silent)
    assert [kind for kind, _ in recorded()] == ["fit", *(["part"] * 9)]  # at 20, then up to 38
    assert np.array_equal(late, estimated(taught(oracle, 39)))


def test_an_interrupted_batch_is_not_learnt_twice() -> None:
    oracle = SklearnRegressor(new("Recorder"), batch=2, growth=2.0, first=4)
    state, whole = taught(oracle, 7, ask=False), taught(oracle, 7)
    type(new("Recorder")).fails = 1
    with pytest.raises(KeyboardInterrupt):
        estimated(state)
    assert np.array_equal(estimated(state), estimated(whole))


def test_random_states_are_drawn_from_the_seed() -> None:
    def forest(seed: int, **options: Any) -> Matrix:
        oracle = SklearnRegressor(new("Forest", 3, **options), seed=seed)
        return estimated(taught(oracle, 30, ask=False))

    assert np.array_equal(forest(0), forest(0))
    assert not np.array_equal(forest(0), forest(1))
    assert np.array_equal(forest(0, random_state=7), forest(1, random_state=7))
    pair = SklearnRegressor(new("Voting", [("a", new("Forest", 2)), ("b", new("Forest", 3))]))
    one, other = (estimated(taught(pair, 30, ask=False)) for _ in range(2))
    assert np.array_equal(one, other)


def test_a_copy_of_a_state_goes_its_own_way() -> None:
    oracle = SklearnRegressor(network(), batch=1, growth=2.0)
    state = taught(oracle, 25)
    copied, before = deepcopy(state), estimated(state)
    taught(oracle, 5, state=copied)
    assert not np.array_equal(estimated(copied), before)
    assert np.array_equal(estimated(state), before)


def test_what_is_learnt_is_a_copy() -> None:
    x, reward = np.ones(3), np.ones(3)
    state = small_tree().init(PROBLEM)
    small_tree().learn(0, x, reward, *state)
    x[:] = reward[:] = 7.0
    assert (state.features[0] == 1.0).all()
    assert (state.rewards[0] == 1.0).all()


# --- a value ----------------------------------------------------------------------------------

VALUES: dict[str, tuple[Callable[[], Any], str, dict[str, Any]]] = {
    "plain": (lambda: new("Tree"), TREE, {}),
    "options": (
        lambda: new("Forest", n_estimators=50, max_depth=np.int64(4), max_features=0.5),
        ADDRESSES["Forest"],
        {"max_depth": 4, "max_features": 0.5, "n_estimators": 50},
    ),
    "a list": (
        lambda: new("MLP", hidden_layer_sizes=[8, 8], early_stopping=True),
        ADDRESSES["MLP"],
        {"early_stopping": True, "hidden_layer_sizes": (8, 8)},
    ),
    "pipeline": (
        lambda: new(
            "Pipeline", [("powers", new("Powers", 3)), ("line", new("Least", fit_intercept=False))]
        ),
        ADDRESSES["Pipeline"],
        {
            "steps": (
                ("powers", (ADDRESSES["Powers"], {"degree": 3})),
                ("line", (ADDRESSES["Least"], {"fit_intercept": False})),
            )
        },
    ),
    "voting": (
        lambda: new("Voting", [("tree", new("Tree", max_depth=2))], weights=[1.0]),
        ADDRESSES["Voting"],
        {"estimators": (("tree", (TREE, {"max_depth": 2})),), "weights": (1.0,)},
    ),
    "of another package": (lambda: new("Recorder", spoil=True), RECORDER, {"spoil": True}),
}


@pytest.mark.parametrize("case", VALUES)
def test_an_estimator_is_its_class_and_its_options(case: str) -> None:
    make, address, options = VALUES[case]
    oracle = SklearnRegressor(make(), growth=2)
    assert (oracle.model, oracle.options) == (address, options)
    text = SklearnRegressor(address, options, growth=2.0)
    assert text == oracle
    assert hash(text) == hash(oracle)
    assert from_text(repr(oracle)) == oracle
    assert oracle != SklearnRegressor(make())


def test_pipelines_and_ensembles_learn() -> None:
    voting = new("Voting", [("tree", new("Tree")), ("near", new("Near"))])
    curve = new("Pipeline", [("powers", new("Powers")), ("line", new("Least"))])
    for model in (voting, curve, new("Pipeline", [("scale", new("Scaler")), ("net", network())])):
        assert len(np.unique(estimated(taught(SklearnRegressor(model), 40, ask=False)))) > 3


# --- saving and loading -----------------------------------------------------------------------

SAVED: dict[str, Callable[[], SklearnRegressor]] = {
    "tree": small_tree,
    "forest": lambda: SklearnRegressor(new("Forest", 2, max_depth=4), growth=1.5, memory=200),
    "network": lambda: SklearnRegressor(network(), growth=1.5, memory=100),
    "network, batches": lambda: SklearnRegressor(network(), growth=2.0, batch=7, memory=100),
    "separate, batches": lambda: SklearnRegressor(new("SGD"), growth=2.0, batch=9, memory=100),
}


@pytest.mark.parametrize("case", SAVED)
def test_the_next_thousand_decisions_are_those_without_the_pause(case: str, tmp_path: Path) -> None:
    policy = FrankWolfe(GiniWelfare(), SquareCB(gamma0=20.0, oracle=SAVED[case]()))
    agent = Agent(policy, PROBLEM, seed=5)
    play(agent, world(PROBLEM, 130))  # more than some of them remember
    agent.save(tmp_path / "agent.fw")
    loaded = Agent.load(tmp_path / "agent.fw")
    assert loaded.policy == policy
    then = world(PROBLEM, 1000, seed=1)
    assert play(loaded, then) == play(agent, then)
    assert np.array_equal(known(loaded), known(agent))


def test_another_process_goes_on_alike(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from fairwolfe import Agent\n"
        "from tests.agent.test_file import play, world\n"
        "agent = Agent.load(sys.argv[2])\n"
        "print(play(agent, world(agent.problem, 300, seed=1)))"
    )
    policy = FrankWolfe(GiniWelfare(), SquareCB(gamma0=20.0, oracle=SAVED["network, batches"]()))
    agent = Agent(policy, PROBLEM, seed=5)
    play(agent, world(PROBLEM, 130))
    agent.save(tmp_path / "agent.fw")
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", code, root, str(tmp_path / "agent.fw")]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.strip() == repr(play(agent, world(PROBLEM, 300, seed=1)))


def test_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(FrankWolfe(Minimum(), EpsilonGreedy(0.1, oracle=small_tree())), PROBLEM)
    play(agent, world(PROBLEM, 20))
    agent.save(tmp_path / "agent.fw")
    monkeypatch.setattr("sklearn.__version__", "0.1")
    with pytest.raises(IncompatibleState, match=r"fitted by sklearn 1\.\S+, and this is sklearn 0"):
        Agent.load(tmp_path / "agent.fw")


def test_a_part_that_is_restored_may_refuse() -> None:
    oracle = small_tree()
    state = taught(oracle, 20)
    arrays = {name: array.copy() for name, array in arrays_of(state)}
    assert np.array_equal(estimated(filled(oracle.init(PROBLEM), arrays)), estimated(state))
    arrays["state.release"][0] += 1
    with pytest.raises(IncompatibleState, match="may fit another one and decide otherwise"):
        filled(oracle.init(PROBLEM), arrays)


def test_a_decision_asks_the_model_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its estimate and its look at the other arms need the same predictions."""
    base, g = EpsilonGreedy(0.1, oracle=small_tree()), np.ones(3)
    state, rng, asked = base.init(PROBLEM), stream(0, "asked"), []
    answer = Fit._answer

    def noted(self: Fit, model: Any, features: Matrix) -> Matrix:
        asked.append(len(features))
        return answer(self, model, features)

    monkeypatch.setattr(Fit, "_answer", noted)
    for t in range(30):
        x = rng.random((4, 3))
        choice = base.act(state, x, g, rng)
        estimate = base.estimate(state, x, choice)
        best, missed, spare, untried = base.certify(
            state, x, g, choice, g, base.bound_params(PROBLEM)
        )
        assert len(asked) == max(0, t - 9)  # none before the first fit
        predicted = state.oracle.estimates(Arms(x, 4, False)).features
        np.testing.assert_array_equal(estimate, predicted[choice.action])
        assert missed == pytest.approx((predicted @ g).max() - estimate @ g)
        assert (best, spare, untried) == (0.0, 0.0, 0.0)
        state = base.update(state, choice, g, rng.uniform(PROBLEM.low, PROBLEM.high))


def test_another_objective_goes_on_with_what_was_learnt() -> None:
    agent = Agent(FrankWolfe(Minimum(), SquareCB(gamma0=9.0, oracle=small_tree())), PROBLEM)
    play(agent, world(PROBLEM, 40))
    before = known(agent)
    agent.replace_objective(GiniWelfare())
    assert np.array_equal(known(agent), before)


# --- what is refused --------------------------------------------------------------------------


def bad(value: object) -> Any:
    """A value of the wrong type, on purpose."""
    return value


def local() -> Any:
    class Inner(type(new("Recorder"))):  # type: ignore[misc]
        pass

    return SklearnRegressor(Inner())


REFUSED: dict[str, tuple[Callable[[], Any], type[FairwolfeError], str]] = {
    "a class": (
        lambda: SklearnRegressor(type(new("Tree"))),
        InvalidInput,
        r"model is <class .*; give an estimator, such as RandomForestRegressor\(\)",
    ),
    "a number": (lambda: SklearnRegressor(3), InvalidInput, r"model is 3; give an estimator"),
    "options twice": (
        lambda: SklearnRegressor(new("Tree"), {"max_depth": 2}),
        InvalidInput,
        r"options are \{'max_depth': 2\} with an estimator; give them to the estimator",
    ),
    "options that are none": (
        lambda: SklearnRegressor(TREE, bad(3)),
        InvalidInput,
        r"options is 3; give a mapping",
    ),
    "an unknown option": (
        lambda: SklearnRegressor(TREE, {"max_deep": 2}),
        InvalidInput,
        r"DecisionTreeRegressor has no option 'max_deep'; did you mean 'max_depth'",
    ),
    "an unknown class": (
        lambda: SklearnRegressor("sklearn.tree:DecisionTreeRegresor"),
        InvalidInput,
        r"has no class 'DecisionTreeRegresor'; did you mean 'DecisionTreeRegressor'",
    ),
    "no address": (
        lambda: SklearnRegressor("forest"),
        InvalidInput,
        r"'forest' is not of the form module:Class",
    ),
    "code": (
        lambda: SklearnRegressor("subprocess:Popen", {"args": ("touch", "here")}),
        InvalidInput,
        r"'subprocess:Popen' is not an estimator; give a class that is derived from",
    ),
    "a module that nobody imported": (
        lambda: SklearnRegressor("antigravity:Anything"),
        InvalidInput,
        r"'antigravity' has not been imported; import it first",
    ),
    "a function": (
        lambda: SklearnRegressor(new("Near", weights=np.sqrt)),
        InvalidInput,
        r"KNeighborsRegressor has weights=<ufunc 'sqrt'>, which cannot be written as text",
    ),
    "a generator": (
        lambda: SklearnRegressor(new("Tree", random_state=np.random.RandomState(0))),
        InvalidInput,
        r"cannot be written as text; .*whole numbers for random states",
    ),
    "a class in a function": (local, InvalidInput, r"Inner is defined inside a function or a"),
    "growth": (
        lambda: SklearnRegressor(TREE, growth=0.9),
        InvalidInput,
        r"growth is 0\.9; give a number of at least 1",
    ),
    "growth without end": (
        lambda: SklearnRegressor(TREE, growth=np.inf),
        InvalidInput,
        r"growth is inf;",
    ),
    "memory": (
        lambda: SklearnRegressor(TREE, first=20, memory=10),
        InvalidInput,
        r"first is 20 and memory is 10; .*keep at least as many",
    ),
    "batch": (lambda: SklearnRegressor(TREE, batch=0), InvalidInput, r"batch is 0; give a whole"),
    "seed": (lambda: SklearnRegressor(TREE, seed=-1), InvalidInput, r"seed is -1;"),
    "per arm": (
        lambda: small_tree().init(Problem.arms(3, PROBLEM.rewards, n_arms=4)),
        InvalidInput,
        r"PerArm contexts \(4 arms\), and SklearnRegressor has one model for all arms; give",
    ),
    "a bad option": (
        lambda: SklearnRegressor(TREE, {"max_depth": -1}).init(PROBLEM),
        InvalidInput,
        r"with the options \{'max_depth': -1\} cannot learn from 10 observations: .*max_depth",
    ),
    "too few at first": (
        lambda: SklearnRegressor(new("Near"), first=3).init(PROBLEM),
        InvalidInput,
        r"KNeighborsRegressor .*cannot predict 3 rewards: .*n_neighbors",
    ),
    "no regressor": (
        lambda: SklearnRegressor(new("Scaler")).init(PROBLEM),
        InvalidInput,
        r"StandardScaler .*cannot ",
    ),
    "no number": (
        lambda: estimated(taught(SklearnRegressor(new("Recorder", spoil=True)), 10, ask=False)),
        NumericalFailure,
        r"Recorder predicts a reward that is not finite",
    ),
    "the theorem's gamma": (
        lambda: FrankWolfe(Minimum(), SquareCB(gamma0="theorem", oracle=small_tree())).init(
            PROBLEM
        ),
        OutsideAssumptions,
        r"no regret bound of sklearn\.tree:DecisionTreeRegressor is known.*SquareCB a gamma0",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    attempt, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message):
        attempt()
    assert "antigravity" not in sys.modules


def test_per_arm_contexts_are_refused_by_an_agent() -> None:
    agent = Agent(FrankWolfe(Minimum(), EpsilonGreedy(0.1, oracle=small_tree())), PROBLEM)
    with pytest.raises(InvalidInput, match="PerArm"):
        agent.act(PerArm(np.zeros(3)))


def test_without_scikit_learn_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingExtra, match=r"pip install 'fairwolfe\[integrations\]'"):
        SklearnRegressor(TREE)


# --- simulation -------------------------------------------------------------------------------


def test_the_plain_loop_is_used_and_the_oracle_is_named() -> None:
    policy = FrankWolfe(Minimum(), SquareCB(gamma0=9.0, oracle=small_tree()))
    environment = Nonlinear(n_contexts=20)
    with pytest.warns(UserWarning, match="because the oracle SklearnRegressor has no compiled"):
        trace = simulate(policy, environment, 30)
    assert not trace.compiled
    with pytest.raises(InvalidInput, match="the oracle SklearnRegressor has no compiled form"):
        simulate(policy, environment, 30, compiled=True)
    again = simulate(policy, environment, 30, compiled=False)
    assert np.array_equal(again.average, trace.average)
