"""Short runs whose every decision and sum is written down, to the last bit, in trajectories.json.

Every kind of policy, both loops, an agent that is saved and loaded in the middle. A change that is
meant to change decisions writes them anew, with ``python -m tests.golden.trajectories``, and says
why in its message; any other leaves them as they are.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, Extended, LinUCB, SquareCB, Thompson
from fairwolfe.environments import FactorModel, Mehrotra, dcg
from fairwolfe.objectives import (
    AtMost,
    EqualExposure,
    GiniEquality,
    GiniWelfare,
    Linear,
    Minimum,
    Nash,
    TwoSided,
    Welfare,
)
from fairwolfe.oracles import OnlineGradient, Ridge
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank, LinUCBRank, UnbiasedLinUCBRank
from fairwolfe.smoothing import Moreau, Randomized

FILE = Path(__file__).with_name("trajectories.json")
STEPS = 120
MUSIC = Mehrotra(n_arms=6, n_objectives=3, n_features=4)
LISTS = FactorModel(7, 9, dcg(3), n_factors=3)

Trajectory = dict[str, Any]


class Mean:
    """A bandit for one reward in plain Python: the best mean so far, by the sign of a feature."""

    def init(self, n_features: int) -> Any:
        return np.zeros(2 * n_features)

    def act(self, state: Any, features: Any, rng: np.random.Generator) -> tuple[int, float]:
        scores = features @ state[: features.shape[1]] + 0.1 * rng.random(len(features))
        return int(np.argmax(scores)), 1.0

    def update(self, state: Any, features: Any, arm: int, probability: Any, reward: float) -> Any:
        n = features.size
        return np.concatenate([state[:n] + 0.05 * reward * features, state[n:]])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mean)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "Mean()"


def exact(values: Any) -> list[str]:
    return [float(value).hex() for value in np.ravel(values)]


def simulated(policy: Any, world: Any, compiled: bool, objective: Any = None) -> Trajectory:
    trace = fw.simulate(
        policy,
        world,
        STEPS,
        seed=5,
        objective=objective,
        checkpoints=[STEPS],
        compiled=compiled,
        record_actions=True,
    )
    return {
        "actions": np.asarray(trace.actions).tolist(),
        "average": exact(trace.average_observed),
        "regret": exact(trace.scalar_regret),
    }


def both(policy: Any, world: Any, objective: Any = None) -> Callable[[Path], Trajectory]:
    """In both loops, which must agree."""

    def play(folder: Path) -> Trajectory:
        first = simulated(policy, world, True, objective)
        assert simulated(policy, world, False, objective)["actions"] == first["actions"]
        return first

    return play


def plain(policy: Any, world: Any) -> Callable[[Path], Trajectory]:
    return lambda folder: simulated(policy, world, False)


def agent_of_arms(policy: Any) -> Callable[[Path], Trajectory]:
    """Late and shuffled answers, a batch, and a load in the middle."""

    def play(folder: Path) -> Trajectory:
        problem = fw.Problem.arms(3, {"a": (0, 1), "b": (0, 2)}, parameter_norm=1.0)
        agent, rng = fw.Agent(policy, problem, seed=2), np.random.default_rng(3)
        actions, waiting = [], []
        for t in range(STEPS):
            decision = agent.act(rng.random((4, 3)) / 2)
            actions.append(decision.action)
            waiting.append((decision, rng.random(2)))
            if t % 5 == 4:
                kept = waiting.pop(int(rng.integers(5)))
                agent.update_many(*zip(*waiting[::-1], strict=True))
                waiting = [kept]
            if t == STEPS // 2:
                agent.save(folder / "agent.fw")
                agent = fw.Agent.load(folder / "agent.fw", policy=policy)
        about = agent.live().about
        return {"actions": actions, "average": exact(agent.average), "live": exact([about or 0.0])}

    return play


def agent_of_lists(policy: Any) -> Callable[[Path], Trajectory]:
    """Items come and go, candidates and pins, and a load in the middle."""

    def play(folder: Path) -> Trajectory:
        rng = np.random.default_rng(4)
        problem = fw.Problem.ranking(8, 3, (2, 3))
        agent = fw.Agent(policy, problem, seed=1, items=rng.random((8, 3)) / 2)
        actions = []
        for t in range(STEPS):
            if t == 40:
                agent.add_items(rng.random((1, 3)) / 2)
            if t == 80:
                agent.retire([2])
            if t == STEPS // 2:
                agent.save(folder / "agent.fw")
                agent = fw.Agent.load(folder / "agent.fw", policy=policy)
            options: dict[str, Any] = {}
            if t % 7 == 3:
                options = {"blocked": [0], "pinned": {1: 5}}
            decision = agent.act(rng.random(2) / 2, **options)
            shown = np.asarray(decision.action).tolist()
            actions.append(shown)
            exposed = [item for item in shown if rng.random() < 0.7]
            agent.update(decision, exposed=exposed, clicked=exposed[:1])
        return {"actions": actions, "average": exact(agent.average)}

    return play


fair = TwoSided(GiniEquality(), beta=0.5)
TRAJECTORIES: dict[str, Callable[[Path], Trajectory]] = {
    "LinUCB, Gini": both(fw.FrankWolfe(GiniWelfare(), LinUCB(ridge=0.1)), MUSIC),
    "extended LinUCB": both(fw.FrankWolfe(Minimum(), LinUCB(model="extended")), MUSIC),
    "SquareCB, optimistic, a sum": both(
        fw.FrankWolfe(
            Linear((1.0, 0.5, 0.2)) + AtMost(0.3, penalty=2.0).on(1),
            SquareCB(gamma0=30.0),
            iterate="optimistic",
        ),
        MUSIC,
    ),
    "SquareCB of the theorem": both(
        fw.FrankWolfe(GiniWelfare(), SquareCB(oracle=Ridge(0.5))), MUSIC
    ),
    "Thompson, welfare": both(fw.FrankWolfe(Welfare(0.5, offset=3.0), Thompson()), MUSIC),
    "randomised, memory, gradient": both(
        fw.FrankWolfe(
            GiniWelfare(),
            EpsilonGreedy(0.1, oracle=OnlineGradient()),
            Randomized(n_samples=2),
            memory=50.0,
        ),
        MUSIC,
    ),
    "MOLinCB": both(fw.MOLinCB(GiniWelfare()), MUSIC),
    "a policy in Python": plain(fw.FrankWolfe(GiniWelfare(), Extended(Mean())), MUSIC),
    "FWLinUCBRank": both(FWLinUCBRank(fair, smoothing=Moreau(1.0)), LISTS),
    "FWLinUCBRank, memory, swaps": both(
        FWLinUCBRank(
            TwoSided(EqualExposure(), beta=0.3), memory=40.0, randomize=0.2, exploration=0.2
        ),
        LISTS,
    ),
    "FWLinUCBRank, Nash": both(
        FWLinUCBRank(TwoSided(Nash(offset=0.01), beta=0.01), exposure="until_last_click"), LISTS
    ),
    "LinUCBRank": both(LinUCBRank(), LISTS, fair),
    "UnbiasedLinUCBRank": both(UnbiasedLinUCBRank(), LISTS, fair),
    "FairLearnRank": both(FairLearnRank(0.2), LISTS, fair),
    "an agent": agent_of_arms(fw.FrankWolfe(Minimum(), LinUCB(exploration=0.3))),
    "an agent that draws": agent_of_arms(
        fw.FrankWolfe(GiniWelfare(), SquareCB(gamma0=9.0), iterate="optimistic")
    ),
    "an agent that ranks": agent_of_lists(FWLinUCBRank(fair, exploration=0.3)),
    "an agent with a floor": agent_of_lists(FairLearnRank(0.1)),
}


def play(name: str, folder: Path) -> Trajectory:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the plain loop
        return TRAJECTORIES[name](folder)


def main() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        told = {name: play(name, Path(folder)) for name in TRAJECTORIES}
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in told.items())
    FILE.write_text("{\n" + text + "\n}\n")
    print(f"{len(told)} trajectories written to {FILE}")


if __name__ == "__main__":
    main()
