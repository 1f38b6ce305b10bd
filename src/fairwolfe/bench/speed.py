"""How long a round takes on this machine: compiled, with an Agent, and in a NumPy loop.

Machines are shared and noisy: all sides play in one process, in turns; times are of the processor,
and ratios are taken within a turn.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from time import monotonic, process_time
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fairwolfe.agent import Agent
from fairwolfe.bandits import LinUCB, SquareCB
from fairwolfe.bench.numpy_loops import Run, checked, loop_of
from fairwolfe.core.feedback import Shown
from fairwolfe.core.streams import stream
from fairwolfe.environments import FactorModel, Mehrotra, dcg
from fairwolfe.environments.rankings import RankingWorld
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import GiniEquality, TwoSided
from fairwolfe.oracles import Ridge
from fairwolfe.ranking import FWLinUCBRank
from fairwolfe.reduction import FrankWolfe
from fairwolfe.simulation.compiled import ArmsRun, RankingsRun
from fairwolfe.simulation.streams import Streams
from fairwolfe.smoothing import Moreau

__all__ = [
    "CASES",
    "Case",
    "Rounds",
    "Side",
    "Timing",
    "about",
    "aged",
    "agent_side",
    "compiled_side",
    "measure",
    "ratios",
    "sides",
    "turns",
]

Side: TypeAlias = Callable[[int], object]
"""Made once; a call plays that many rounds."""

AGE = 5000  # rounds that a run has behind it when it is timed: the first ones are not typical
FEWEST = 3  # turns, however little time there is: a median needs them
LONGEST = 3600.0
_PREPARED = 200  # contexts and answers that the Agent is given again and again


class Rounds(NamedTuple):
    """How many rounds the sides play in a turn: some hundredths of a second each."""

    compiled: int
    agent: int
    numpy: int


@dataclass(frozen=True)
class Case:
    """A policy in a world that is timed."""

    policy: Any
    environment: Any
    rounds: Rounds

    @property
    def name(self) -> str:
        """The policy as the paper calls it."""
        ranks = isinstance(self.environment, RankingWorld)
        return "FW-LinUCBRank" if ranks else f"FW-{type(self.policy.base).__name__}"

    @property
    def size(self) -> str:
        """The world in words."""
        world = self.environment
        if isinstance(world, FactorModel):
            return f"{world.users:,} users, {world.items:,} items, {world.n_factors} factors"
        return f"{world.n_arms} arms, {world.n_features} features, {world.n_objectives} rewards"


def _cases() -> tuple[Case, ...]:
    arms = Mehrotra(n_arms=50, n_objectives=5, n_features=10)
    f, narrow = arms.objective(), Moreau(0.01)
    fair = FWLinUCBRank(
        TwoSided(GiniEquality(), beta=0.5), smoothing=Moreau(1.0), exploration=0.1, ridge=0.1
    )
    few = FactorModel(50, 50, dcg(10), n_factors=10)
    many = FactorModel(1892, 2500, dcg(10), n_factors=10)  # as many as Last.fm has
    linucb = FrankWolfe(f, LinUCB(exploration=0.1, ridge=0.1), narrow)
    squarecb = FrankWolfe(f, SquareCB(gamma0=1e4, oracle=Ridge(0.1)), narrow)
    return (
        Case(linucb, arms, Rounds(2000, 400, 200)),
        Case(squarecb, arms, Rounds(2000, 400, 200)),
        Case(fair, few, Rounds(2000, 200, 100)),
        Case(fair, many, Rounds(400, 100, 10)),
    )


CASES = _cases()
"""What `fairwolfe bench` times, with the settings of the paper's experiments."""


# --- the sides ------------------------------------------------------------------------------------


def aged(policy: Any, environment: Any, rounds: int = AGE) -> Run:
    """A compiled run that has some rounds behind it; the best ranking is not asked for."""
    world = environment.init(stream(0, "world"))
    run: Run
    if isinstance(environment, RankingWorld):
        run = RankingsRun(policy, environment, world, Streams.of(0), truth=False)
    else:
        run = ArmsRun(policy, environment, world, Streams.of(0))
    compiled_side(run)(rounds)
    return run


def compiled_side(run: Run) -> Side:
    """The compiled loop, which draws its own contexts."""

    def play(rounds: int) -> None:
        while rounds > 0:
            rounds -= len(run.play(rounds))

    return play


def agent_side(policy: Any, environment: Any) -> Side:
    """`Agent.act` and `Agent.update`, with contexts and answers made beforehand.

    The agent of a ranking keeps the items, a context is then a user.
    """
    rng, n = np.random.default_rng(0), _PREPARED
    world, problem = environment.init(stream(0, "world")), environment.problem()
    answers: Any
    if isinstance(environment, RankingWorld):
        agent = Agent(policy, problem, seed=0, items=world.items.copy())
        contexts = world.users[environment.draw_users(rng, n)]
        exposed = (rng.random((n, problem.n_slots)) < world.weights[0]).astype(np.float64)
        clicks = exposed * (rng.random(exposed.shape) < 0.3)
        answers = [Shown(e, c[:, None]) for e, c in zip(exposed, clicks, strict=True)]
    else:
        agent = Agent(policy, problem, seed=0)
        contexts, _ = environment.draw_contexts(world, rng, n)
        answers = rng.random((n, problem.n_objectives))

    def play(rounds: int) -> None:
        for i in range(rounds):
            agent.update(agent.act(contexts[i % n]), answers[i % n])

    return play


def sides(case: Case) -> dict[str, tuple[Side, int]]:
    """The three sides of a case; the NumPy loop has decided like the compiled run."""
    policy, world = case.policy, case.environment
    run = aged(policy, world)
    loop = checked(loop_of(run), run)
    return {
        "compiled": (compiled_side(run), case.rounds.compiled),
        "agent": (agent_side(policy, world), case.rounds.agent),
        "numpy": (loop.play, case.rounds.numpy),
    }


# --- the clock ------------------------------------------------------------------------------------


def turns(playing: Mapping[str, tuple[Side, int]]) -> Iterator[dict[str, float]]:
    """Microseconds of processor time a round of every side, turn after turn without end."""
    while True:
        turn = {}
        for name, (side, rounds) in playing.items():
            began = process_time()
            side(rounds)
            turn[name] = 1e6 * (process_time() - began) / rounds
        yield turn


def ratios(times: Sequence[Mapping[str, float]], of: str, over: str) -> list[float]:
    """How many times as long one side took as another, turn by turn, smallest first.

    >>> ratios([{"a": 6.0, "b": 2.0}, {"a": 2.0, "b": 1.0}], "a", "b")
    [2.0, 3.0]
    """
    return sorted(turn[of] / turn[over] for turn in times)


@dataclass(frozen=True)
class Timing:
    """The times of a case, turn by turn."""

    case: Case
    times: tuple[Mapping[str, float], ...]

    def row(self) -> dict[str, Any]:
        """Medians over turns, and the range of the ratio."""
        over = ratios(self.times, "numpy", "compiled")
        return {
            "policy": self.case.name,
            "size": self.case.size,
            **{f"{side}_us": median(turn[side] for turn in self.times) for side in self.times[0]},
            "numpy_over_compiled": median(over),
            "lowest": over[0],
            "highest": over[-1],
            "turns": len(self.times),
        }


def measure(
    cases: Sequence[Case],
    seconds: float,
    progress: Callable[[Case, float], None] | None = None,
) -> Iterator[Timing]:
    """Time case after case, for about that long in all, besides what setting them up takes.

    progress: called with a case that is prepared or timed, and the seconds of its share that have
    passed since the last call
    """
    if not 0.0 < seconds <= LONGEST:
        raise InvalidInput(f"seconds is {seconds:g}; give a number above 0 and at most {LONGEST:g}")
    report = progress or (lambda case, spent: None)
    return (_timed(case, seconds / len(cases), report) for case in cases)


def _timed(case: Case, seconds: float, report: Callable[[Case, float], None]) -> Timing:
    report(case, 0.0)
    clock = turns(sides(case))
    next(clock)  # not counted: code is loaded in it
    times: list[dict[str, float]] = []
    began, spent = monotonic(), 0.0
    while spent < seconds or len(times) < FEWEST:
        times.append(next(clock))
        now = min(monotonic() - began, seconds)
        report(case, now - spent)
        spent = now
    return Timing(case, tuple(times))


def about() -> dict[str, Any]:
    """The machine, how busy it is, the versions and the date."""
    packages = ("fairwolfe", "numpy", "scipy")
    return {
        "machine": _processor(),
        "cores": os.cpu_count(),
        "load": [round(load, 1) for load in os.getloadavg()] if hasattr(os, "getloadavg") else None,
        "system": platform.system(),
        "python": platform.python_version(),
        **{name: _version(name) for name in packages},
        "date": datetime.now().date().isoformat(),
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # the sources of a checkout that is not installed
        return "not installed"


def _processor() -> str:
    listing = Path("/proc/cpuinfo")  # of Linux; elsewhere Python knows as much as there is
    lines = listing.read_text().splitlines() if listing.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())
