"""Short runs whose every decision and sum is recorded, to the last bit, in trajectories.json.

Every kind of policy in both loops and in an agent, through public names only. If a change is meant
to change decisions, run ``python -m tests.golden.trajectories [NAME ...]`` to rewrite all of them,
or those you name, and give the reason in the commit message.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, Extended, Fixed, LinUCB, SquareCB, Thompson, Uniform
from fairwolfe.environments import FactorModel, Finite, Mehrotra, dcg
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    ByGroup,
    Custom,
    EqualExposure,
    GeneralizedGini,
    GiniEquality,
    GiniWelfare,
    Linear,
    Mapped,
    Minimum,
    Nash,
    TwoSided,
    Welfare,
    Within,
)
from fairwolfe.oracles import OnlineGradient, Ridge
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank, LinUCBRank, UnbiasedLinUCBRank
from fairwolfe.simulation import Lateness
from fairwolfe.simulation.delays import ByOutcome, Geometric
from fairwolfe.smoothing import Augmented, Moreau, Randomized
from tests.golden import service
from tests.golden.agents import (
    COME_AND_GO,
    REWARDS,
    STEPS,
    arms,
    batched,
    bilinear,
    expiring,
    late,
    logged,
    per_arm,
    prompt,
    rankings,
    shuffled,
    some_arms,
    some_items,
    square,
    write_log,
)
from tests.golden.record import Record, Trajectory

FILE = Path(__file__).with_name("trajectories.json")
FOLDER = Path(__file__).with_name("agent-log-1")  # logs as agents of this format write them
MUSIC = Mehrotra(n_arms=6, n_objectives=3, n_features=4)
LISTS = FactorModel(7, 9, dcg(3), n_factors=3)
RATED = Finite(np.eye(4)[None], (1.0,), means=np.random.default_rng(1).uniform(0.1, 0.9, (1, 4, 3)))


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


def simulated(
    policy: Any, world: Any, compiled: bool, objective: Any = None, **options: Any
) -> Trajectory:
    trace = fw.simulate(
        policy,
        world,
        STEPS,
        seed=5,
        objective=objective,
        checkpoints=range(1, STEPS + 1),
        compiled=compiled,
        record_actions=True,
        **options,
    )
    record = Record()
    rows = zip(np.array(trace.actions), trace.average_observed, trace.scalar_regret, strict=True)
    for action, average, regret in rows:
        record.decided(action)
        record.count(average, regret)
    return record.told()


def both(
    policy: Any, world: Any, objective: Any = None, **options: Any
) -> Callable[[Path], Trajectory]:
    """In both loops, which must agree."""

    def play(folder: Path) -> Trajectory:
        first = simulated(policy, world, True, objective, **options)
        second = simulated(policy, world, False, objective, **options)
        assert first["actions"] == second["actions"]
        return first

    return play


def plain(policy: Any, world: Any) -> Callable[[Path], Trajectory]:
    return lambda folder: simulated(policy, world, False)


def agent_of_arms(policy: Any) -> Callable[[Path], Trajectory]:
    """Late and shuffled answers, a batch, and a load in the middle."""

    def play(folder: Path) -> Trajectory:
        problem = fw.Problem.arms(3, REWARDS, parameter_norm=1.0)
        agent, rng = fw.Agent(policy, problem, seed=2), np.random.default_rng(3)
        record, waiting = Record(), []
        for t in range(STEPS):
            decision = agent.act(rng.random((4, 3)) / 2)
            waiting.append((decision, rng.random(2)))
            if t % 5 == 4:
                kept = waiting.pop(int(rng.integers(5)))
                agent.update_many(*zip(*waiting[::-1], strict=True))
                waiting = [kept]
            if t == STEPS // 2:
                agent.save(folder / "agent.fw")
                agent = fw.Agent.load(folder / "agent.fw", policy=policy)
            record.step(agent, decision)
        return record.told()

    return play


def agent_of_lists(policy: Any) -> Callable[[Path], Trajectory]:
    """Items come and go, blocked and pinned ones, and a load in the middle."""

    def play(folder: Path) -> Trajectory:
        rng = np.random.default_rng(4)
        problem = fw.Problem.ranking(8, 3, (2, 3))
        agent = fw.Agent(policy, problem, seed=1, items=rng.random((8, 3)) / 2)
        record = Record()
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
            exposed = [item for item in shown if rng.random() < 0.7]
            agent.update(decision, exposed=exposed, clicked=exposed[:1])
            record.step(agent, decision)
        return record.told()

    return play


def log_gradient(z: Any) -> Any:
    return 1.0 / (1.0 + z)


def log_value(z: Any) -> float:
    return float(np.log1p(z).sum())


def replace_objective(agent: fw.Agent, rng: np.random.Generator) -> None:
    agent.replace_objective(GiniWelfare())


fair = TwoSided(GiniEquality(), beta=0.5)
held = Linear((1.0, 0.3)) + AtMost(0.4).on(1) + AtLeast(0.2, margin=0.1).on(0)
rated = Linear({"b": 1.0}) + AtMost({"b": 1.2}, per="a") + AtLeast({"b": 0.8}, per="a", margin=0.2)
LOGS = {
    "arms": (
        arms(fw.FrankWolfe(Minimum(), SquareCB(gamma0=20.0)), square),
        lambda log: log.agent(Minimum(), LinUCB(exploration=0.3)),
    ),
    "rankings": (
        rankings(FWLinUCBRank(fair, exploration=0.2, randomize=0.2)),
        lambda log: log.agent(fair, FWLinUCBRank(fair, exploration=0.2)),
    ),
}
TRAJECTORIES: dict[str, Callable[[Path], Trajectory]] = {
    "LinUCB, Gini": both(
        fw.FrankWolfe(GiniWelfare(), LinUCB(ridge=0.1, exploration="theorem")), MUSIC
    ),
    "extended LinUCB": both(
        fw.FrankWolfe(Minimum(), LinUCB(model="extended", exploration="theorem")), MUSIC
    ),
    "SquareCB, a sum": both(
        fw.FrankWolfe(
            Linear((1.0, 0.5, 0.2)) + AtMost(0.3, penalty=2.0).on(1), SquareCB(gamma0=30.0)
        ),
        MUSIC,
    ),
    "SquareCB of the theorem": both(
        fw.FrankWolfe(GiniWelfare(), SquareCB(gamma0="theorem", oracle=Ridge(0.5))), MUSIC
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
    "FWLinUCBRank": both(FWLinUCBRank(fair, smoothing=Moreau(1.0), exploration="theorem"), LISTS),
    "FWLinUCBRank, memory, swaps": both(
        FWLinUCBRank(
            TwoSided(EqualExposure(), beta=0.3), memory=40.0, randomize=0.2, exploration=0.2
        ),
        LISTS,
    ),
    "FWLinUCBRank, Nash": both(
        FWLinUCBRank(
            TwoSided(Nash(offset=0.01), beta=0.01),
            exposure="until_last_click",
            exploration="theorem",
        ),
        LISTS,
    ),
    "LinUCBRank": both(LinUCBRank(exploration="theorem"), LISTS, fair),
    "UnbiasedLinUCBRank": both(UnbiasedLinUCBRank(exploration="theorem"), LISTS, fair),
    "FairLearnRank": both(FairLearnRank(0.2, exploration="theorem"), LISTS, fair),
    "an agent": agent_of_arms(fw.FrankWolfe(Minimum(), LinUCB(exploration=0.3))),
    "an agent that draws": agent_of_arms(fw.FrankWolfe(GiniWelfare(), SquareCB(gamma0=9.0))),
    "an agent that ranks": agent_of_lists(FWLinUCBRank(fair, exploration=0.3)),
    "an agent with a floor": agent_of_lists(FairLearnRank(0.1, exploration="theorem")),
    # Bases in an agent
    "LinUCB": prompt(arms(fw.FrankWolfe(Minimum(), LinUCB(exploration=0.3)))),
    "LinUCB, theory": prompt(arms(fw.FrankWolfe(GiniWelfare(), LinUCB(exploration="theorem")))),
    "LinUCB, pointwise": prompt(arms(fw.FrankWolfe(Minimum(), LinUCB(exploration="pointwise")))),
    "LinUCB, extended": prompt(
        arms(fw.FrankWolfe(Minimum(), LinUCB(model="extended", exploration="theorem")))
    ),
    "SquareCB": prompt(arms(fw.FrankWolfe(Nash(offset=0.1), SquareCB(gamma0=20.0)))),
    "SquareCB, theory": prompt(arms(fw.FrankWolfe(GiniWelfare(), SquareCB(gamma0="theorem")))),
    "SquareCB, gradient": prompt(
        arms(fw.FrankWolfe(Minimum(), SquareCB(gamma0=20.0, oracle=OnlineGradient())))
    ),
    "epsilon-greedy": prompt(
        arms(fw.FrankWolfe(GeneralizedGini((1.0, 0.3)), EpsilonGreedy(0.2, oracle=Ridge(0.5))))
    ),
    "Thompson": prompt(arms(fw.FrankWolfe(Welfare(0.5, offset=0.1), Thompson(scale=0.5)))),
    "Uniform": prompt(arms(fw.FrankWolfe(Minimum(), Uniform()))),
    "Fixed": prompt(arms(fw.FrankWolfe(Minimum(), Fixed(1)))),
    "Extended in Python": prompt(arms(fw.FrankWolfe(GiniWelfare(), Extended(Mean())), square)),
    "MOLinCB in an agent": prompt(arms(fw.MOLinCB(GiniWelfare()))),
    "Guarded": prompt(
        arms(
            fw.Guarded(
                fw.FrankWolfe(Minimum(), LinUCB(exploration=0.2)),
                fw.FrankWolfe(Minimum(), Fixed(0)),
                0.8,
                floor=-1.0,
            )
        )
    ),
    "Custom": prompt(
        arms(fw.FrankWolfe(Custom(log_value, log_gradient, smooth=True), LinUCB(exploration=0.2)))
    ),
    "Mapped": prompt(
        arms(fw.FrankWolfe(Mapped(Minimum(), [[1.0, 0.0], [0.5, 0.5]]), SquareCB(gamma0=20.0)))
    ),
    "another objective": prompt(
        arms(fw.FrankWolfe(Minimum(), SquareCB(gamma0=20.0)), changes={60: replace_objective})
    ),
    # Smoothing, memory, constraints
    "Moreau": prompt(arms(fw.FrankWolfe(Minimum(), LinUCB(exploration=0.2), Moreau(0.5)))),
    "Augmented": prompt(arms(fw.FrankWolfe(GiniWelfare(), SquareCB(gamma0=20.0), Augmented(1.0)))),
    "Randomized": prompt(arms(fw.FrankWolfe(Minimum(), SquareCB(gamma0=20.0), Randomized()))),
    "Randomized, late": late(
        arms(fw.FrankWolfe(GiniWelfare(), LinUCB(exploration=0.2), Randomized(n_samples=3)))
    ),
    "Randomized, batched": batched(
        arms(fw.FrankWolfe(GiniWelfare(), LinUCB(exploration=0.2), Randomized(n_samples=3)))
    ),
    "memory": prompt(arms(fw.FrankWolfe(Minimum(), SquareCB(gamma0=20.0), memory=15.0))),
    "memory, late": late(arms(fw.FrankWolfe(Minimum(), LinUCB(exploration=0.2), memory=15.0))),
    "constraints": prompt(arms(fw.FrankWolfe(held, SquareCB(gamma0=20.0)))),
    "constraints, late": late(arms(fw.FrankWolfe(held, LinUCB(exploration=0.2)))),
    "constraints, batched": batched(arms(fw.FrankWolfe(held, EpsilonGreedy(0.1)))),
    "constraints, simulated": both(
        fw.FrankWolfe(
            Linear((1.0, 0.5, 0.2)) + AtMost(0.5, margin=0.3).on(1), LinUCB(exploration="theorem")
        ),
        MUSIC,
    ),
    "rates": prompt(arms(fw.FrankWolfe(rated, SquareCB(gamma0=20.0)))),
    "rates, late": late(arms(fw.FrankWolfe(rated, LinUCB(exploration=0.2)))),
    "rates, simulated": both(
        fw.FrankWolfe(
            Linear((1.0, 0.5, 0.2)) + AtMost({"r1": 0.8}, per="r3"), LinUCB(exploration=0.3)
        ),
        RATED,
        lateness=Lateness(7),
    ),
    "a band": prompt(
        arms(fw.FrankWolfe(Linear((1.0, 0.0)) + Within(0.3, 0.6).on(1), LinUCB(exploration=0.2)))
    ),
    # When feedback comes
    "LinUCB, late": late(arms(fw.FrankWolfe(Minimum(), LinUCB(exploration=0.3)))),
    "SquareCB, late": late(arms(fw.FrankWolfe(GiniWelfare(), SquareCB(gamma0=20.0)))),
    "Thompson, late": late(arms(fw.FrankWolfe(GiniWelfare(), Thompson()))),
    "late, not anticipated": late(
        arms(fw.FrankWolfe(Minimum(), SquareCB(gamma0=20.0), anticipate=False))
    ),
    "Extended in Python, late": late(arms(fw.FrankWolfe(GiniWelfare(), Extended(Mean())), square)),
    "LinUCB, shuffled": shuffled(arms(fw.FrankWolfe(GiniWelfare(), LinUCB(exploration=0.3)))),
    "epsilon-greedy, shuffled": shuffled(arms(fw.FrankWolfe(Minimum(), EpsilonGreedy(0.2)))),
    "LinUCB, expiring": expiring(arms(fw.FrankWolfe(GiniWelfare(), LinUCB(exploration=0.3)))),
    "SquareCB, expiring": expiring(arms(fw.FrankWolfe(Minimum(), SquareCB(gamma0=20.0)))),
    "LinUCB, batched": batched(arms(fw.FrankWolfe(GiniWelfare(), LinUCB(exploration=0.3)), square)),
    "SquareCB, batched": batched(arms(fw.FrankWolfe(Minimum(), SquareCB(gamma0=20.0)), square)),
    "Thompson, batched": batched(arms(fw.FrankWolfe(Minimum(), Thompson()))),
    "SquareCB, simulated late": both(
        fw.FrankWolfe(GiniWelfare(), SquareCB(gamma0=30.0)), MUSIC, lateness=Lateness(7)
    ),
    "LinUCB, simulated late": both(
        fw.FrankWolfe(Minimum(), LinUCB(exploration="theorem")),
        MUSIC,
        lateness=Lateness(Geometric(6.0)),
    ),
    "LinUCB, refreshed": both(
        fw.FrankWolfe(GiniWelfare(), LinUCB(ridge=0.1, exploration="theorem")),
        MUSIC,
        lateness=Lateness(refresh=9),
    ),
    # Structured contexts and candidates
    "candidates": prompt(
        arms(fw.FrankWolfe(Minimum(), LinUCB(exploration=0.3)), options=some_arms)
    ),
    "candidates, batched": batched(
        arms(fw.FrankWolfe(Minimum(), SquareCB(gamma0=20.0)), options=some_arms)
    ),
    "PerArm, LinUCB": prompt(arms(fw.FrankWolfe(Minimum(), LinUCB(exploration=0.3)), per_arm)),
    "PerArm, candidates": shuffled(
        arms(fw.FrankWolfe(GiniWelfare(), SquareCB(gamma0=5.0)), per_arm, options=some_arms)
    ),
    "PerArm, epsilon-greedy": batched(arms(fw.FrankWolfe(Minimum(), EpsilonGreedy(0.2)), per_arm)),
    "PerArm, Thompson": late(arms(fw.FrankWolfe(GiniWelfare(), Thompson(scale=0.5)), per_arm)),
    "Bilinear, LinUCB": prompt(
        arms(fw.FrankWolfe(Minimum(), LinUCB(exploration=0.3)), bilinear, options=some_arms)
    ),
    "Bilinear, SquareCB": late(arms(fw.FrankWolfe(Minimum(), SquareCB(gamma0=20.0)), bilinear)),
    "Bilinear, batched": batched(
        arms(fw.FrankWolfe(GiniWelfare(), LinUCB(exploration=0.3)), bilinear)
    ),
    # Rankers in an agent
    "ranker": prompt(rankings(FWLinUCBRank(fair, exploration=0.2), options=some_items)),
    "ranker, theory": prompt(rankings(FWLinUCBRank(fair, exploration="theorem"))),
    "ranker, pointwise": prompt(rankings(FWLinUCBRank(fair, exploration="pointwise"))),
    "ranker, expected": prompt(
        rankings(FWLinUCBRank(fair, iterate="expected", exploration=0.2), options=some_items)
    ),
    "ranker, expected by position": late(
        rankings(
            FWLinUCBRank(
                fair, iterate="expected", position_weights=(0.9, 0.7, 0.5), exploration=0.2
            )
        )
    ),
    "ranker, randomised": prompt(
        rankings(FWLinUCBRank(fair, randomize=0.3, exploration=0.2), options=some_items)
    ),
    "ranker, shown, memory": prompt(
        rankings(
            FWLinUCBRank(
                TwoSided(Welfare(0.5, offset=0.1), beta=0.5),
                exposure="shown",
                memory=20.0,
                exploration=0.2,
            )
        )
    ),
    "ranker, Randomized": prompt(
        rankings(FWLinUCBRank(fair, smoothing=Randomized(n_samples=3), exploration=0.2))
    ),
    "ranker, groups": prompt(
        rankings(FWLinUCBRank(TwoSided(ByGroup(Minimum(), "aabbbccc"), beta=0.5), exploration=0.2))
    ),
    "ranker, constraint": prompt(
        rankings(FWLinUCBRank(TwoSided(AtLeast(0.2), beta=1.0), exploration=0.2))
    ),
    "ranker, constraint, late": late(
        rankings(FWLinUCBRank(TwoSided(AtLeast(0.2), beta=1.0), exploration=0.2))
    ),
    "ranker, items come and go": prompt(
        rankings(FWLinUCBRank(fair, exploration=0.2), changes=COME_AND_GO)
    ),
    "ranker, late, items come and go": late(
        rankings(FWLinUCBRank(fair, exploration=0.2), changes=COME_AND_GO)
    ),
    "ranker, shuffled": shuffled(rankings(FWLinUCBRank(fair, exploration=0.2), options=some_items)),
    "ranker, expiring, items come and go": expiring(
        rankings(FWLinUCBRank(fair, exploration=0.2), changes=COME_AND_GO)
    ),
    "ranker, batched": batched(rankings(FWLinUCBRank(fair, exploration=0.2))),
    "ranker, batched, items come and go": batched(
        rankings(FWLinUCBRank(fair, exploration=0.2), options=some_items, changes=COME_AND_GO)
    ),
    "LinUCBRank in an agent": prompt(rankings(LinUCBRank(exploration=0.2), options=some_items)),
    "LinUCBRank, late": late(rankings(LinUCBRank(exploration=0.2), changes=COME_AND_GO)),
    "UnbiasedLinUCBRank in an agent": prompt(rankings(UnbiasedLinUCBRank(exploration=0.2))),
    "UnbiasedLinUCBRank, batched": batched(rankings(UnbiasedLinUCBRank(exploration=0.2))),
    "FairLearnRank in an agent": prompt(rankings(FairLearnRank(0.2, exploration=0.2))),
    "FairLearnRank, batched": batched(rankings(FairLearnRank(0.2, exploration=0.2))),
    "FWLinUCBRank, expected": both(
        FWLinUCBRank(fair, iterate="expected", exploration="theorem"), LISTS
    ),
    "FWLinUCBRank, constraint": both(
        FWLinUCBRank(TwoSided(AtLeast(0.2), beta=1.0), exploration=0.2), LISTS
    ),
    "FWLinUCBRank, late": both(
        FWLinUCBRank(fair, exploration="theorem"), LISTS, lateness=Lateness(7)
    ),
    "FWLinUCBRank, late by outcome": both(
        FWLinUCBRank(fair, iterate="expected", exploration=0.2),
        LISTS,
        lateness=Lateness(ByOutcome(Geometric(3.0), 12)),
    ),
    "FWLinUCBRank, refreshed": both(
        FWLinUCBRank(fair, exploration=0.2), LISTS, lateness=Lateness(4, refresh=6)
    ),
    # Logs
    **{f"log of {name}": logged(*parts) for name, parts in LOGS.items()},
    "service": service.play,
}


def play(name: str, folder: Path) -> Trajectory:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the plain loop
        return TRAJECTORIES[name](folder)


def main(names: Sequence[str]) -> None:
    told = json.loads(FILE.read_text())
    for kind, (script, _) in LOGS.items():
        if not names or f"log of {kind}" in names:
            write_log(script, FOLDER / f"{kind}.jsonl")
    with tempfile.TemporaryDirectory() as folder:
        for name in names or TRAJECTORIES:
            told[name] = play(name, Path(folder))
    lines = [f"{json.dumps(name)}: {json.dumps(told[name])}" for name in TRAJECTORIES]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(names or TRAJECTORIES)} trajectories written to {FILE}")


if __name__ == "__main__":
    main(sys.argv[1:])
