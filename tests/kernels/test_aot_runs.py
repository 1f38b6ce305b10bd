"""The engine among threads, forks and signals, and functions of the user that fail or call back."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, LinUCB, Rule, SquareCB
from fairwolfe.core.feedback import Shown
from fairwolfe.core.rows import ArmRows
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.arms import ArmsEngine
from fairwolfe.kernels.worlds import CompiledArmWorld
from fairwolfe.objectives import AtMost, Custom, GiniEquality, GiniWelfare, Minimum, TwoSided
from fairwolfe.ranking import FWLinUCBRank
from fairwolfe.ranking.policies import as_policy
from fairwolfe.smoothing import Augmented, Identity
from tests.kernels.games import (
    ArmsGame,
    D,
    Game,
    RankingsGame,
    arm_rows,
    arms_draws,
    arms_problem,
    decide_arms,
    decide_rankings,
    ranking_problem,
)

ROOT = Path(__file__).parents[2]


def same(one: Any, other: Any) -> bool:
    """Whether two states have the same bits."""
    pairs = zip(one, other, strict=True)  # the last field of a state is that of a base in Python
    return all(a.tobytes() == b.tobytes() for a, b in pairs if a is not None)


class Failed(Exception):
    pass


def fail() -> None:
    raise Failed


class Hook:
    """Counts the calls of a gradient function, and does something in one of them."""

    def __init__(self) -> None:
        self.calls, self.at = 0, -1
        self.does: Callable[[], Any] = fail

    def set(self, at: int, does: Callable[[], Any]) -> None:
        self.calls, self.at, self.does = 0, at, does

    def __call__(self) -> None:
        self.calls += 1
        if self.calls - 1 == self.at:
            self.does()


HOOK = Hook()


def log_value(z: Any) -> float:
    return float(np.log1p(z).sum())


def log_gradient(z: Any) -> Any:
    HOOK()
    return 1.0 / (1.0 + z)


class OwnMinimum(Minimum):
    """A leaf of somebody else's, with a proximal map in Python."""

    def _gradient(self, z: Any, step: float) -> Any:
        HOOK()
        return Minimum().tree(z.size).gradient(z, step)


@dataclass(frozen=True)
class OwnRule(Rule):
    def choose_arm(self, values: Any, widths: Any, t: int, uniform: float) -> Any:
        HOOK()
        return int((values + widths).argmax()), 1.0


CUSTOM = Custom(log_value, log_gradient, smooth=True)
ARMS = fw.FrankWolfe(GiniWelfare(), LinUCB(exploration=0.1))
RANKS = FWLinUCBRank(TwoSided(GiniEquality(), beta=0.5), exploration=0.1)
CALLING_ARMS = fw.FrankWolfe(CUSTOM + AtMost({"b": 0.9}), LinUCB(exploration=0.1), Identity())
CALLING_RANKS = FWLinUCBRank(
    TwoSided(CUSTOM, beta=0.5), exploration=0.1, smoothing=Identity(), randomize=0.3
)


# --- decide and learn by rows ---------------------------------------------------------------------


class Rows:
    """Decides and learns by rows, for arms or rankings alike."""

    def __init__(self, policy: Any, arms: bool) -> None:
        self.arms = arms
        self.run: Any
        if arms:
            self.run = policy.init(arms_problem())
        else:
            features = np.random.default_rng(0).normal(size=(9, 3)) / 3
            self.run = as_policy(policy).init(ranking_problem(9, 3, 3, 3)).keep_items(features)

    def decide(self, rng: np.random.Generator, m: int, **how: Any) -> Any:
        run = self.run
        if self.arms:
            contexts = rng.random((m, int(rng.integers(2, 20)), D)) / 2
            return decide_arms(run, contexts, *arms_draws(run, rng, m), 0, **how)
        users = rng.normal(size=(m, 3)) / 3
        normals = np.empty((m, run.plan.samples, 12))
        draws = rng.random((m, run.plan.uniforms))
        return decide_rankings(run, users, draws, normals, 0, **how)

    def answers(self, rng: np.random.Generator, m: int) -> tuple[Any, ...]:
        if self.arms:
            return ((rng.random((m, 3)) < 0.5) * 1.0,)
        seen: Any = (rng.random((m, 3)) < 0.6) * 1.0
        return seen, seen[:, :, None] * (rng.random((m, 3, 1)) < 0.5)

    def observed(self, *answers: Any) -> Any:
        """Answers as they are learnt."""
        return answers[0] if self.arms else Shown(*answers)

    def certified(self, rows: Any, *answers: Any) -> None:
        """All rows, with the certificates that are due."""
        self.run.learn(rows, self.observed(*answers))

    def learn(self, rows: Any, *answers: Any) -> None:
        """All rows, without the certificates that are due between them."""
        run = self.run
        done = 0
        while done < len(rows.head):
            done = run.engine.learn(rows, self.observed(*answers), done) // 2
            assert done >= 0


def rows_of(kind: str, calling: bool = False) -> Rows:
    arms = kind == "arms"
    policies = (CALLING_ARMS, CALLING_RANKS) if calling else (ARMS, RANKS)
    return Rows(policies[0 if arms else 1], arms)


def game_of(kind: str, calling: bool = False, **how: Any) -> Any:
    if kind == "arms":
        return ArmsGame(CALLING_ARMS if calling else ARMS, **how)
    return RankingsGame(CALLING_RANKS if calling else RANKS, **how)


KINDS = pytest.mark.parametrize("kind", ["arms", "rankings"])


def consistent(state: Any) -> None:
    """Counts that change together: an answer is whole or not there at all."""
    t = state.t.item(0)
    assert (state.clocks == t).all()
    assert state.psi[..., -1].sum() == t
    assert state.open[0] == state.open[1] - t
    assert (state.weights == state.open[0]).all()
    assert state.phi[..., -1].sum() == state.open[0]


# --- threads ------------------------------------------------------------------------------------


def played(kind: str, seed: int) -> Any:
    """The state after decisions by rows and in the loop."""
    rng, rows = np.random.default_rng(seed), rows_of(kind)
    run = rows.run
    for _ in range(60):
        made = rows.decide(rng, 4)
        rows.certified(made, *rows.answers(rng, 4))
    game = game_of(kind, seed=seed, late=True, refresh=3)
    drawn = game.draw(rng, 1500)
    game.play(drawn, 0, 700)
    game.play(drawn, 700, 1500)
    return (*run.state, *game.run.state, *game.sums)


@KINDS
def test_threads_with_an_engine_each_give_the_bits_of_one_thread(kind: str) -> None:
    expected = [played(kind, seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda seed: played(kind, seed), range(4)))
    assert all(map(same, expected, found))


def in_threads(work: Callable[[int], None]) -> None:
    """Four threads, which start together; what they raise is raised here."""
    gate = threading.Barrier(4, timeout=20)

    def begin(seed: int) -> None:
        gate.wait()
        work(seed)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(begin, range(4)))


@KINDS
def test_threads_that_share_an_engine_behind_a_lock_lose_nothing(kind: str) -> None:
    rows, lock, total = rows_of(kind), threading.Lock(), []
    run = rows.run

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(100):
            with lock:
                made = rows.decide(rng, 2)
            answers = rows.answers(rng, 2)
            with lock:
                rows.certified(made, *answers)
            total.append(answers[0].sum())

    in_threads(work)
    consistent(run.state)
    assert run.state.t[0] == 800.0
    assert run.state.open[0] == 0.0
    counted = run.state.earned if kind == "arms" else run.state.earned[:9]
    assert counted.sum() == sum(total)


@KINDS
def test_threads_without_a_lock_are_refused_or_served_whole(kind: str) -> None:
    rows = rows_of(kind)
    run = rows.run
    served, refused = [0] * 4, [0] * 4

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(150):
            try:
                made = rows.decide(rng, 20)
            except InvalidInput:
                refused[seed] += 1
                continue
            try:
                code = run.engine.learn(made, rows.observed(*rows.answers(rng, 20)))
                served[seed] += code // 2
            except InvalidInput:
                refused[seed] += 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        in_threads(work)
    finally:
        sys.setswitchinterval(interval)
    consistent(run.state)
    assert run.state.t[0] == sum(served) > 0


# --- calls during a call ------------------------------------------------------------------------


def calls_of(rows: Rows, game: Any) -> dict[str, Callable[[], Any]]:
    """Every call of an engine that needs its memory; of a fresh one, so that all are sound."""
    rng = np.random.default_rng(5)
    run = rows.run
    other: Any = rows_of("arms" if rows.arms else "rankings", calling=True).run
    made, answers = rows.decide(rng, 2), rows.answers(rng, 2)
    drawn, out = game.draw(rng, 3), outs(game, 3)
    engine = run.engine
    return {
        "decide": lambda: rows.decide(rng, 1),
        "propose": lambda: rows.decide(rng, 1, propose=True),
        "learn": lambda: engine.learn(made, rows.observed(*answers)),
        "withdraw": lambda: engine.withdraw(made),
        "open_rows": lambda: engine.open_rows(made),
        "study": lambda: engine.study(made, *answers),
        "play": lambda: engine.play(None, game.world, drawn, None, out),
        "play for another": lambda: other.engine.play(engine, game.world, drawn, None, out),
    }


NAMES = ("decide", "propose", "learn", "withdraw", "open_rows", "study", "play", "play for another")


@KINDS
@pytest.mark.parametrize("name", NAMES)
def test_a_gradient_function_that_calls_its_own_engine_is_refused(kind: str, name: str) -> None:
    HOOK.set(-1, fail)
    rows, game = rows_of(kind, calling=True), game_of(kind, calling=True)
    run = rows.run
    calls = calls_of(rows, game)
    before = run.state.copy()
    HOOK.set(0, calls[name])
    with pytest.raises(InvalidInput, match="in the middle of another call"):
        rows.decide(np.random.default_rng(1), 3)
    assert same(before, run.state)
    assert HOOK.calls == 1
    HOOK.set(-1, fail)
    calls[name]()  # which is sound otherwise
    rows.decide(np.random.default_rng(1), 3)


@KINDS
def test_a_refused_call_of_another_thread_disturbs_nobody(kind: str) -> None:
    HOOK.set(-1, fail)
    alone, shared = rows_of(kind, calling=True), rows_of(kind, calling=True)
    game = game_of(kind, calling=True)
    calls = [calls_of(rows, game) for rows in (alone, shared)][1]
    inside, over = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        assert over.wait(20)

    expected = alone.decide(np.random.default_rng(1), 5)
    HOOK.set(2, wait)
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(shared.decide, np.random.default_rng(1), 5)
        try:
            assert inside.wait(20)
            for call in calls.values():
                with pytest.raises(InvalidInput, match="in the middle of another call"):
                    call()
        finally:
            over.set()
        found = coming.result(20)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(expected, found, strict=True))
    assert same(alone.run.state, shared.run.state)


def test_a_world_that_calls_the_engine_that_plays_in_it_is_refused() -> None:
    game = game_of("arms")
    rows = rows_of("arms")
    made = rows.decide(np.random.default_rng(1), 1)

    def reward(arm: int, tag: int, features: Any, noise: Any) -> Any:
        game.run.engine.withdraw(made)

    game.world = CompiledArmWorld.of_functions(reward, None, 3, D, 5, 3)
    before = game.run.state.copy()
    with pytest.raises(InvalidInput, match="in the middle of another call"):
        game.play(game.draw(np.random.default_rng(1), 4), 0, 4)
    assert same(before, game.run.state)


def test_a_rule_that_calls_its_own_engine_is_refused() -> None:
    rows = Rows(fw.FrankWolfe(Minimum(), OwnRule()), arms=True)
    run = rows.run
    HOOK.set(-1, fail)
    made = rows.decide(np.random.default_rng(1), 2)
    before = run.state.copy()
    HOOK.set(2, lambda: run.engine.withdraw(made))
    with pytest.raises(InvalidInput, match="in the middle of another call"):
        rows.decide(np.random.default_rng(1), 4)
    assert same(before, run.state)


def test_an_own_rule_lives_as_long_as_the_engine() -> None:
    engine: Any = fw.FrankWolfe(Minimum(), OwnRule()).init(arms_problem()).engine
    gc.collect()
    rows = ArmRows.empty(1, D, 0)
    contexts, draws, normals = np.ones((1, 4, D)), np.zeros((1, 1)), np.empty((1, 0, 5))
    assert engine.decide(rows, contexts, draws, normals, 0) == 1


def test_two_engines_cannot_share_a_gradient_at_the_same_time() -> None:
    HOOK.set(-1, fail)
    rows = rows_of("arms", calling=True)
    run = rows.run
    other = type(run.engine)(run.plan, run.state)
    made = rows.decide(np.random.default_rng(1), 1)
    HOOK.set(0, lambda: other.withdraw(made))
    with pytest.raises(InvalidInput, match="in the middle of another call"):
        rows.decide(np.random.default_rng(1), 3)


# --- functions that fail ------------------------------------------------------------------------

ROUNDS = 60
PRICED = {
    "arms": fw.FrankWolfe(OwnMinimum(), EpsilonGreedy(0.2), Augmented()),
    "rankings": FWLinUCBRank(
        TwoSided(OwnMinimum(), beta=0.5), smoothing=Augmented(), exploration=0.1
    ),
}
FAILING: dict[str, dict[str, Any]] = {
    "custom": {"arms": CALLING_ARMS, "rankings": CALLING_RANKS},
    "prices": PRICED,
    "ascent": {"arms": fw.MOLinCB(CUSTOM, steps=3)},
    "rule": {"arms": fw.FrankWolfe(GiniWelfare(), OwnRule())},
}
CASES = [
    (case, kind, late, refresh)
    for case, kinds in FAILING.items()
    for kind in kinds
    for late, refresh in ((False, 1), (True, 1), (True, 4))
    if not (late and case == "ascent")  # whose decisions are not counted as open
]


def played_rounds(game: Any, late: bool) -> int:
    state = game.run.state
    return int(state.open[1] if late and game.run.plan.anticipate else state.t[0])


@pytest.mark.parametrize(("case", "kind", "late", "refresh"), CASES)
def test_a_function_that_fails_in_the_loop_stops_it_before_its_round(
    case: str, kind: str, late: bool, refresh: int
) -> None:
    policy = FAILING[case][kind]

    def fresh() -> Any:
        made: Any = ArmsGame if kind == "arms" else RankingsGame
        return made(policy, late=late, refresh=refresh)

    whole = fresh()
    HOOK.set(-1, fail)
    drawn = whole.draw(np.random.default_rng(1), ROUNDS, 6, never=0.0)
    actions = whole.play(drawn, 0, ROUNDS)
    calls = HOOK.calls
    assert calls >= ROUNDS
    for at in (0, 1, calls // 3, calls // 2, calls // 2 + 1, calls - 1):
        stopped, short = fresh(), fresh()
        HOOK.set(at, fail)
        with pytest.raises(Failed):
            stopped.play(drawn, 0, ROUNDS)
        assert HOOK.calls == at + 1  # it is not asked again
        s = played_rounds(stopped, late)
        assert s < ROUNDS
        HOOK.set(-1, fail)
        if s:
            short.play(drawn, 0, s)
        assert same(stopped.run.state, short.run.state), (at, s)
        assert same(stopped.sums, short.sums)
        rest = stopped.play(drawn, s, ROUNDS)
        assert np.array_equal(rest, actions[s:])
        assert same(stopped.run.state, whole.run.state)
        assert same(stopped.sums, whole.sums)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("where", ["reward", "best"])
def test_a_world_that_fails_stops_the_loop_before_its_round(where: str, late: bool) -> None:
    def world_of(at: int) -> Any:
        left = [at]

        def once(name: str, tag: int) -> None:
            if name == where and tag in left:
                left.clear()
                fail()

        def reward(arm: int, tag: int, features: Any, noise: Any) -> Any:
            once("reward", tag)
            return features[arm], features[arm] + noise / 10

        def best(g: Any, tag: int, features: Any) -> int:
            once("best", tag)
            return int(np.argmax(features @ g))

        return CompiledArmWorld.of_functions(reward, best, 3, D, 5, 3)

    whole = ArmsGame(ARMS, late=late, world=world_of(-2))
    drawn = whole.draw(np.random.default_rng(1), ROUNDS, 6, never=0.0)
    drawn = drawn._replace(tags=np.arange(ROUNDS))
    whole.play(drawn, 0, ROUNDS)
    for at in (0, 1, 30, ROUNDS - 1):
        stopped, short = (ArmsGame(ARMS, late=late, world=world_of(a)) for a in (at, -2))
        with pytest.raises(Failed):
            stopped.play(drawn, 0, ROUNDS)
        if at:
            short.play(drawn, 0, at)
        assert same(stopped.run.state, short.run.state)
        assert same(stopped.sums, short.sums)
        stopped.play(drawn, at, ROUNDS)
        assert same(stopped.run.state, whole.run.state)
        assert same(stopped.sums, whole.sums)


@KINDS
@pytest.mark.parametrize("case", ["custom", "prices"])
def test_a_function_that_fails_while_rows_are_decided_or_learnt(kind: str, case: str) -> None:
    HOOK.set(-1, fail)
    rows = Rows(FAILING[case][kind], kind == "arms")
    run = rows.run
    rng = np.random.default_rng(1)
    made, answers = rows.decide(rng, 6), rows.answers(rng, 6)
    rows.learn(made, *answers)
    before = run.state.copy()
    HOOK.set(3, fail)
    with pytest.raises(Failed):
        rows.decide(rng, 6)
    assert same(before, run.state)
    HOOK.set(-1, fail)
    made, answers = rows.decide(rng, 6), rows.answers(rng, 6)
    if case == "custom":  # whose prices are those of a constraint, without a function
        return
    opened = run.state.copy()
    HOOK.set(3, fail)
    with pytest.raises(Failed):
        rows.learn(made, *answers)
    HOOK.set(-1, fail)
    found = run.state.copy()
    run.state.restore(opened)
    rows.learn(made.part(slice(0, 3)), *(answer[:3] for answer in answers))
    assert same(found, run.state)


# --- sizes that nobody else checks ----------------------------------------------------------------


def test_what_does_not_fit_is_refused() -> None:
    run: Any = fw.FrankWolfe(Minimum(), SquareCB(gamma0=10.0)).init(arms_problem(4))
    rng = np.random.default_rng(1)
    draws, normals = arms_draws(run, rng, 1)
    contexts = rng.random((1, 1, D))
    for places in ([[0, 4]], [[-1, 2]]):
        with pytest.raises(ValueError, match="place"):
            decide_arms(run, contexts, draws, normals, 0, n_arms=2, places=np.array(places))
    with pytest.raises(ValueError, match="rows"):
        decide_arms(run, contexts, draws, normals, 0, n_arms=4, every=0)
    engine: Any = run.engine
    with pytest.raises(ValueError, match="once"):
        engine.__init__(run.plan, run.state)
    with pytest.raises(ValueError, match="gram"):
        type(engine)(run.plan, run.state._replace(gram=run.state.gram[:, :2].copy()))
    empty = ArmsEngine.__new__(ArmsEngine)
    with pytest.raises((InvalidInput, ValueError)):
        empty.study(arm_rows(run, 0), np.empty((0, 0)))
    for kind in ("arms", "rankings"):
        game = game_of(kind, late=True, refresh=2)
        drawn = game.draw(rng, 5)
        for other in (drawn._replace(delays=drawn.delays[:4]), drawn._replace(tags=drawn.tags + 9)):
            if kind == "arms" and other.delays.shape[0] == 5:
                continue  # a linear world does not read tags
            with pytest.raises(ValueError, match="does not fit"):
                game.run.engine.play(
                    game.decider.engine, game.world, other, game.mailbox, outs(game, 5), 0, 2
                )
        with pytest.raises(ValueError, match="does not fit"):
            game.run.engine.play(None, game.world, drawn, game.mailbox, outs(game, 5), 0, 0)
        with pytest.raises(ValueError, match="before"):
            game.run.engine.play(None, game.world, drawn, game.mailbox, outs(game, 5), -1, 1)
        game.play(drawn, 0, 5)


def outs(game: Game, m: int) -> Any:
    sums = dict(zip(("mean_sum", "reward_sum", "scalar"), game.sums, strict=True))
    return type("Out", (), {"actions": np.empty((m, *game.slots), np.int64), **sums})


def test_arms_of_their_own_with_online_gradients_choose_among_candidates() -> None:
    from fairwolfe.oracles import OnlineGradient

    base = SquareCB(gamma0=10.0, oracle=OnlineGradient())
    run = fw.FrankWolfe(Minimum(), base).init(arms_problem(4))
    rng = np.random.default_rng(1)
    for _ in range(20):
        draws, normals = arms_draws(run, rng, 1)
        places = np.sort(rng.permutation(4)[:2])[None]
        contexts = rng.random((1, 1, D))
        rows = decide_arms(run, contexts, draws, normals, 0, n_arms=2, places=places)
        assert rows.head["block"][0] in places
        run.learn(rows, rng.random((1, 3)))


# --- forks, signals, and the rounds of the sanitizers: in processes of their own ------------------


def script(text: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", text, *arguments]


def environment() -> dict[str, str]:
    source = str(Path(fw.__file__).parents[1])
    return os.environ | {"PYTHONPATH": os.pathsep.join([source, str(ROOT)])}


def run_process(*command: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


FORK = """
import hashlib, os, sys, threading, traceback
import numpy as np
from tests.kernels.test_aot_runs import game_of, rows_of

parts = []
for kind in ("arms", "rankings"):
    game, rows, rng = game_of(kind, late=True, refresh=3), rows_of(kind), np.random.default_rng(1)
    drawn = game.draw(rng, 2000)
    game.play(drawn, 0, 1000)
    waiting = [rows.decide(rng, 3) for _ in range(4)]
    parts.append((game, rows, rng, drawn, waiting))

busy, over = rows_of("arms"), False
def work():
    rng = np.random.default_rng(2)
    while not over:
        busy.decide(rng, 50, propose=True)
thread = threading.Thread(target=work)
thread.start()

read, write = os.pipe()
child = os.fork()
try:
    digest = hashlib.sha256()
    for game, rows, rng, drawn, waiting in parts:
        game.play(drawn, 1000, 2000)
        for made in waiting:
            rows.learn(made, *rows.answers(rng, 3))
        for array in (*game.run.state[:-1], *game.sums, *rows.run.state[:-1]):
            digest.update(array.tobytes())
    if child == 0:
        os.write(write, digest.digest())
        os._exit(0)
except BaseException:
    traceback.print_exc()
    if child == 0:
        os._exit(1)
    raise
finally:
    over = True
thread.join()
assert os.waitpid(child, 0)[1] == 0
assert os.read(read, 32) == digest.digest()
print("equal")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_continues_with_the_same_bits_in_both_processes() -> None:
    assert run_process(*script(FORK)) == "equal\n"


INTERRUPTED = """
import os, signal, sys
import numpy as np
from tests.kernels.test_aot_runs import consistent, game_of, rows_of

wanted, hits = int(sys.argv[1]), 0

def interrupted(*_):
    global hits
    hits += 1
    raise KeyboardInterrupt

signal.signal(signal.SIGINT, interrupted)
rng = np.random.default_rng(1)
all_rows = [rows_of(kind) for kind in ("arms", "rankings")]
games = [game_of(kind, late=True, refresh=r) for kind in ("arms", "rankings") for r in (1, 3)]
longest, done = 1, [0] * len(games)
while hits < wanted:
    try:
        os.write(1, b".")  # the next signal may come from here on
        while True:
            for rows in all_rows:
                made = rows.decide(rng, 3)
                rows.learn(made, *rows.answers(rng, 3))
            longest += 1
            for place, game in enumerate(games):  # delays become longer, so that the mailbox grows
                game.play(game.draw(rng, 40, longest, never=0.0), 0, 40, done[place])
                done[place] += 40
    except KeyboardInterrupt:
        pass
for one in (*all_rows, *games):
    consistent(one.run.state)
    assert one.run.state.t[0] > 100.0
for game, place in zip(games, done):  # what was on its way arrives
    game.play(game.draw(rng, 2 * longest + 99, 0, never=0.0), 0, 2 * longest + 99, place)
    assert game.run.state.open[0] == 0.0
    consistent(game.run.state)
os.write(1, b"!")
"""


@pytest.mark.skipif(os.name == "nt", reason="needs SIGINT of its own")
def test_interrupts_leave_whole_rounds() -> None:
    import random
    import signal
    import time

    wanted, drawn = 200, random.Random(1)
    with subprocess.Popen(
        script(INTERRUPTED, str(wanted)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        stop = threading.Timer(60, process.kill)
        stop.start()
        try:
            for _ in range(wanted):
                if process.stdout.read(1) != b".":
                    break
                time.sleep(drawn.random() * 0.012)
                process.send_signal(signal.SIGINT)
            rest, errors = process.stdout.read(), process.stderr.read()
        finally:
            stop.cancel()
    assert process.returncode == 0, errors.decode()
    assert rest == b"!"


def test_the_rounds_of_the_sanitizers_run() -> None:
    rounds = run_process(sys.executable, str(ROOT / "tests" / "build" / "asan_rounds.py"), "20")
    assert "rounds_engine.rankings_played: 20 rounds\n" in rounds
