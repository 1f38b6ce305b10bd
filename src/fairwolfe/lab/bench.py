"""`fairwolfe bench`: a round of the compiled engine, an Agent and a NumPy loop, timed in turns.

The loops are the same algorithms as one would write them in NumPy and SciPy. A loop continues a
compiled run: it copies the state and the generators, so that its decisions must be those of the run
from there on. It is *straightforward*: vectorised over arms and items, one observation at a time,
nothing that only a second look would find.
"""

from __future__ import annotations

import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from time import monotonic, process_time
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from scipy.optimize import isotonic_regression

from fairwolfe.agent import Agent
from fairwolfe.bandits import LinUCB, SquareCB
from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.feedback import Shown
from fairwolfe.core.streams import stream
from fairwolfe.environments import FactorModel, Mehrotra, dcg
from fairwolfe.environments.world import RankingWorld
from fairwolfe.errors import InvalidInput, NumericalFailure
from fairwolfe.objectives import GiniEquality, TwoSided
from fairwolfe.oracles import Ridge
from fairwolfe.oracles.linear_regression import LOG_DET
from fairwolfe.ranking import FWLinUCBRank
from fairwolfe.reduction import FrankWolfe
from fairwolfe.simulation.run import ArmsRun, RankingsRun, Streams
from fairwolfe.smoothing import Moreau

Run: TypeAlias = ArmsRun | RankingsRun
"""A compiled run."""


def smoothed_gini(z: Vector, step: float, weights: Vector) -> Vector:
    """The gradient (prox(z) - z)/step of a smoothed Gini function, by isotonic regression.

    >>> smoothed_gini(np.array([0.0, 1.0]), 0.1, np.array([1.0, 0.5])).round(6).tolist()
    [1.0, 0.5]
    """
    order = np.argsort(z)
    ascending = z[order]
    gradient = np.empty_like(z)
    gradient[order] = (isotonic_regression(ascending + step * weights).x - ascending) / step
    return gradient


class _Loop:
    """What all loops keep: the ridge regression, the average reward, the generators."""

    def __init__(self, run: Run) -> None:
        running = run.running
        oracle = running.base_state.oracle
        self.objective, self.base = running.objective, running.base
        self.beta0: float = running.smoothing.beta0
        self.streams = deepcopy(run.streams)
        self.design = oracle.gram[0].copy()  # which the compiled run keeps too
        self.inverse = oracle.inverse[0].copy()
        self.log_det = float(oracle.counters[LOG_DET])
        self.z, self.t = running.iterate.copy(), running.t

    def absorb(self, x: Vector) -> None:
        """One observation with features x, by Sherman and Morrison."""
        away = self.inverse @ x
        growth = 1.0 + x @ away
        self.inverse -= np.outer(away, away) / growth
        self.log_det += np.log(growth)
        self.design += np.outer(x, x)

    def average_in(self, reward: Vector) -> None:
        self.t += 1
        self.z += (reward - self.z) / self.t


class ArmsLoop(_Loop, ABC):
    """FrankWolfe with a generalised Gini function in Mehrotra's world, for one rule."""

    def __init__(self, run: ArmsRun) -> None:
        super().__init__(run)
        oracle = run.running.base_state.oracle
        self.theta = np.array(run.world)
        self.moment = oracle.moment[0].T.copy()
        self.n_arms: int = run.environment.n_arms
        self.n_rewards, self.n_features = self.theta.shape
        self.weights = np.array(self.objective.weights)

    def context(self) -> Matrix:
        """The features of the arms of a round."""
        normals = self.streams.contexts.standard_normal((self.n_arms, self.n_features))
        features: Matrix = (1.0 + normals) / self.n_features
        return features

    @abstractmethod
    def choose(self, x: Matrix, g: Vector, score: Vector) -> int:
        """An arm, by its estimated reward for the direction g."""

    def play(self, rounds: int) -> IntVector:
        """Play that many rounds; their arms."""
        actions = np.empty(rounds, dtype=np.int64)
        for s in range(rounds):
            x = self.context()
            g = smoothed_gini(self.z, self.beta0 / np.sqrt(self.t + 1.0), self.weights)
            estimate = self.inverse @ self.moment
            arm = self.choose(x, g, x @ (estimate @ g))
            mean = self.theta @ x[arm]
            noise = self.streams.noise.standard_normal(self.n_rewards)
            reward = mean + 0.1 * np.abs(mean) * noise
            self.absorb(x[arm])
            self.moment += np.outer(x[arm], reward)
            self.average_in(reward)
            actions[s] = arm
        return actions


class LinUCBLoop(ArmsLoop):
    """FW-LinUCB with one design for all rewards, in Mehrotra's world."""

    def choose(self, x: Matrix, g: Vector, score: Vector) -> int:
        """The arm of largest estimate plus width."""
        confidence = 2.0 * np.log(2.0 * self.n_rewards / self.base.delta) + self.log_det
        alpha = 0.5 * np.sqrt(confidence) + np.sqrt(self.base.ridge)
        width = np.sqrt(np.einsum("ai,ij,aj->a", x, self.inverse, x))
        return int(np.argmax(score + self.base.exploration * np.abs(g).sum() * alpha * width))


class SquareCBLoop(ArmsLoop):
    """FW-SquareCB with a given gamma0 over a ridge regression, in Mehrotra's world."""

    def choose(self, x: Matrix, g: Vector, score: Vector) -> int:
        """An arm drawn with probabilities inversely proportional to the gaps."""
        best = int(np.argmax(score))
        gamma = self.base.gamma0 * np.sqrt(self.t + 1.0)
        chance = 1.0 / (self.n_arms + gamma * (score[best] - score))
        chance[best] = 0.0
        chance[best] = 1.0 - chance.sum()
        return int(self.streams.policy.choice(self.n_arms, p=chance))


class RankingLoop(_Loop):
    """FWLinUCBRank for clicks and the Gini of exposures, in a FactorModel.

    User (x) item is flattened into d = p^2 features, widths are ``einsum("ij,jk,ik->i")``, and
    each item that was exposed is one update. `estimates` and `learn` are what a cleverer loop
    would do otherwise.
    """

    def __init__(self, run: RankingsRun) -> None:
        super().__init__(run)
        world, oracle = run.world, run.running.base_state.oracle
        self.users, self.items = world.users.copy(), world.items.copy()
        self.weights = world.weights[0].copy()
        self.n_slots = self.weights.size
        self.n_items, self.n_factors = self.items.shape
        self.moment = oracle.moment[0, 0].copy()
        self.mean = np.zeros(self.n_items + 1)
        places = np.arange(1, self.n_items + 1)
        self.gini = self.objective.beta * (self.n_items + 1.0 - 2.0 * places) / self.n_items

    def features(self, user: Vector, items: Matrix) -> Matrix:
        """user (x) item, flattened, of each of these items."""
        return (user[:, None] * items[:, None, :]).reshape(len(items), self.n_factors**2)

    def estimates(self, user: Vector) -> tuple[Vector, Vector]:
        """Values and squared widths of all items."""
        x = self.features(user, self.items)
        return x @ (self.inverse @ self.moment), np.einsum("ij,jk,ik->i", x, self.inverse, x)

    def learn(self, x: Matrix, clicked: Vector) -> None:
        """The items that were exposed, (r, d), and which were clicked."""
        for row, click in zip(x, clicked, strict=True):
            self.absorb(row)
            self.moment += click * row

    def rank(self, user: Vector) -> IntVector:
        """The items of largest optimistic value for the direction, best first."""
        m, k = self.n_items, self.n_slots
        g = smoothed_gini(self.z[:m], self.beta0 / np.sqrt(self.t + 1.0), self.gini)
        value, square = self.estimates(user)
        alpha = 0.5 * np.sqrt(2.0 * np.log(3.0 / self.base.delta) + self.log_det)
        alpha += np.sqrt(self.base.ridge) * np.sqrt(self.n_factors)  # of vec(I)
        score = value + self.base.exploration * alpha * np.sqrt(square) + g
        top = np.argpartition(-score, k)[:k]
        return top[np.argsort(-score[top])]

    def play(self, rounds: int) -> IntVector:
        """Play that many rounds; their rankings."""
        m, k = self.n_items, self.n_slots
        rankings = np.empty((rounds, k), dtype=np.int64)
        came = self.streams.contexts.integers(len(self.users), size=rounds)
        uniforms = self.streams.noise.random((rounds, 2 * k))
        for s in range(rounds):
            user = self.users[came[s]]
            ranking = self.rank(user)
            truth = self.items[ranking] @ user
            exposed = uniforms[s, :k] < self.weights
            clicked = exposed & (uniforms[s, k:] < truth)
            self.learn(self.features(user, self.items[ranking[exposed]]), clicked[exposed])
            reward = np.zeros(m + 1)
            reward[ranking] = exposed
            reward[m] = clicked.sum()
            self.average_in(reward)
            self.mean[ranking] += self.weights
            self.mean[m] += self.weights @ truth
            rankings[s] = ranking
        return rankings


Loop = TypeVar("Loop", bound=ArmsLoop | RankingLoop)


def loop_of(run: Run) -> ArmsLoop | RankingLoop:
    """The straightforward loop that continues a compiled run."""
    if isinstance(run, RankingsRun):
        return RankingLoop(run)
    rules: dict[Any, type[ArmsLoop]] = {LinUCB: LinUCBLoop, SquareCB: SquareCBLoop}
    base = run.running.base
    if type(base) not in rules:
        raise InvalidInput(f"there is no NumPy loop for {base!r}; use LinUCB or SquareCB")
    return rules[type(base)](run)


def checked(loop: Loop, run: Run, rounds: int = 20) -> Loop:
    """The loop, after it has decided like the run from which it was made."""
    played = 0
    while played < rounds:
        expected = run.play(rounds - played)
        if not np.array_equal(loop.play(len(expected)), expected):
            raise NumericalFailure(
                f"{type(loop).__name__} decides otherwise than the compiled run between rounds "
                f"{loop.t - len(expected) + 1} and {loop.t}; their times cannot be compared"
            )
        played += len(expected)
    return loop


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
