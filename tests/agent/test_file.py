"""Saving and loading an agent: the same future, and never a file that is half right."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from fairwolfe import Agent, Bilinear, FrankWolfe, MOLinCB, PerArm, Problem
from fairwolfe.agent.file import arrays_of, filled, read
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB, Thompson, Uniform
from fairwolfe.checks.bandit import contexts
from fairwolfe.core import registry
from fairwolfe.core.arrays import Vector
from fairwolfe.core.decision import Decision
from fairwolfe.core.kinds import kind_of
from fairwolfe.errors import FairwolfeError, IncompatibleState, InvalidInput, MissingData
from fairwolfe.objectives import AtMost, Custom, GiniWelfare, Linear, Minimum, Nash, TwoSided
from fairwolfe.oracles import OnlineGradient, Ridge
from fairwolfe.smoothing import Identity, Moreau, Randomized
from tests.capabilities import marks_of

REWARDS = {"clicks": (0.0, 1.0), "minutes": (0.0, 10.0), "cost": (0.0, 1.0)}
PROBLEM = Problem.arms(3, REWARDS)
PER_ARM = Problem.arms(3, REWARDS, n_arms=4)
BILINEAR = Problem.arms((2, 3), REWARDS)
RANKING = Problem.ranking(6, 3, (2, 3))

POLICIES: dict[str, tuple[Any, Problem]] = {
    "linucb": (FrankWolfe(GiniWelfare(), LinUCB(exploration=0.2)), PROBLEM),
    "squarecb": (
        FrankWolfe(Linear({"clicks": 1.0, "cost": -0.3}), SquareCB(gamma0="theorem")),
        PROBLEM,
    ),
    "squarecb gradient": (
        FrankWolfe(Minimum(), SquareCB(gamma0=20.0, oracle=OnlineGradient())),
        PROBLEM,
    ),
    "epsilon": (FrankWolfe(GiniWelfare(), EpsilonGreedy(0.2, oracle=Ridge(0.1))), PROBLEM),
    "uniform": (FrankWolfe(Nash(0.1), Uniform(), Identity()), PROBLEM),
    "moreau": (
        FrankWolfe(Minimum() + AtMost({"cost": 0.2}, 3.0), SquareCB(gamma0=9.0), Moreau(0.5)),
        PROBLEM,
    ),
    "randomized": (FrankWolfe(Minimum(), LinUCB(), Randomized(n_samples=3)), PROBLEM),
    "randomized, memory": (
        FrankWolfe(GiniWelfare(), SquareCB(gamma0=9.0), Randomized(n_samples=2), memory=50.0),
        PROBLEM,
    ),
    "memory": (FrankWolfe(GiniWelfare(), EpsilonGreedy(0.1), memory=20.0), PROBLEM),
    "per arm": (FrankWolfe(GiniWelfare(), LinUCB()), PER_ARM),
    "per arm, gradient": (
        FrankWolfe(GiniWelfare(), EpsilonGreedy(0.1, oracle=OnlineGradient())),
        PER_ARM,
    ),
    "bilinear": (FrankWolfe(GiniWelfare(), SquareCB(gamma0=9.0)), BILINEAR),
    "per arm, thompson": (FrankWolfe(GiniWelfare(), Thompson(), Randomized()), PER_ARM),
    "extended, randomized": (
        FrankWolfe(Minimum(), LinUCB(model="extended"), Randomized()),
        PROBLEM,
    ),
    "molincb": (MOLinCB(GiniWelfare()), PROBLEM),
}
for kind in ("bandits", "policies"):
    for name in registry.names(kind):
        for i, example in enumerate(registry.load(kind, name).examples()):  # type: ignore[attr-defined]
            ranks = getattr(example, "decides", "arms") == "ranking"
            f = TwoSided(GiniWelfare()) if ranks else GiniWelfare()
            policy = FrankWolfe(f, example) if kind == "bandits" else example
            chosen = RANKING if ranks else PROBLEM
            if name == "guarded":  # its guarantee rests on the norm, and on an f of at least 0
                ranges = dict.fromkeys(PROBLEM.rewards, (0.0, 1.0))
                chosen = Problem.arms(3, ranges, parameter_norm=1.0)
            POLICIES[f"{name} of the registry, {i}"] = (policy, chosen)


def world(problem: Problem, n: int, seed: int = 0) -> list[tuple[Any, Any]]:
    """Contexts of changing numbers of arms, or of items, and rewards."""
    rng = np.random.default_rng(seed)
    if problem.n_items:
        kind = kind_of(problem)
        return [(one, kind.random_feedback(None, rng)) for one in contexts(problem, rng, n)]
    rounds: list[tuple[Any, Any]] = []
    for _ in range(n):
        given: Any
        if problem.n_arms:
            given = PerArm(rng.uniform(-0.5, 0.5, 3))
        elif problem.n_features == (2, 3):
            given = Bilinear(rng.uniform(-0.5, 0.5, 2), rng.uniform(-0.5, 0.5, (4, 3)))
        else:
            given = rng.uniform(-0.5, 0.5, (int(rng.integers(1, 7)), 3))
        rounds.append((given, rng.random(3)))
    return rounds


def play(agent: Agent, rounds: list[tuple[Any, Any]]) -> list[tuple[Any, float | None]]:
    """Decisions, with feedback that comes three rounds late."""
    made: list[Decision] = []
    for t, (given, _) in enumerate(rounds):
        made.append(agent.act(given))
        if t >= 3:
            agent.update(made[t - 3], rounds[t - 3][1])
    return [(np.atleast_1d(d.action).tolist(), d.probability) for d in made]


def held(agent: Agent) -> dict[str, bytes]:
    state = {name: array.tobytes() for name, array in arrays_of(agent._running)}
    return state | {"draws": repr(agent._draws.key).encode()}


def saved(path: Path, policy: Any = None, problem: Problem = PROBLEM, n: int = 20) -> Agent:
    agent = Agent(policy or FrankWolfe(GiniWelfare(), SquareCB(gamma0=9.0)), problem)
    play(agent, world(problem, n))
    agent.save(path)
    return agent


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        pytest.param(*pair, id=name, marks=marks_of(name.partition(" of the registry")[0]))
        for name, pair in POLICIES.items()
    ],
)
def test_the_next_thousand_decisions_are_those_without_the_pause(
    policy: Any, problem: Problem, tmp_path: Path
) -> None:
    agent = Agent(policy, problem, seed=5)
    first, then = world(problem, 60), world(problem, 1000, seed=1)
    play(agent, first)
    open_ones = agent.act_many([given for given, _ in first[:5]])
    agent.save(tmp_path / "agent.fw")
    loaded = Agent.load(tmp_path / "agent.fw")
    assert loaded.policy == policy
    assert loaded.problem == problem
    assert (loaded.t, loaded.open) == (agent.t, agent.open)
    assert held(loaded) == held(agent)
    # Decisions made before the save travel as bytes and are answered on both sides.
    agent.update_many(open_ones, [reward for _, reward in first[:5]])
    brought = [Decision.from_bytes(decision.to_bytes()) for decision in open_ones]
    loaded.update_many(brought, [reward for _, reward in first[:5]])
    assert play(loaded, then) == play(agent, then)
    assert held(loaded) == held(agent)
    assert (loaded.t, loaded.open) == (agent.t, agent.open) == (1059, 6)
    assert loaded.average.tolist() == agent.average.tolist()
    with pytest.raises(InvalidInput, match="given already"):
        loaded.update(open_ones[0], [0.5, 0.5, 0.5])


LOAD_AND_PLAY = """
import sys
sys.path.insert(0, {root!r})
from fairwolfe import Agent
from tests.agent.test_file import held, play, world
import hashlib
for path in sys.argv[1:]:
    agent = Agent.load(path)
    made = play(agent, world(agent.problem, 1000, seed=1))
    agent.save(path)
    print(hashlib.sha256(repr((made, sorted(held(agent).items()))).encode()).hexdigest())
"""


def test_another_process_goes_on_alike(tmp_path: Path) -> None:
    import hashlib

    paths, expected = [], []
    for name in ("linucb", "randomized, memory", "per arm", "molincb"):
        policy, problem = POLICIES[name]
        paths.append(str(tmp_path / f"{name}.fw"))
        agent = saved(Path(paths[-1]), policy, problem)
        made = play(agent, world(problem, 1000, seed=1))
        text = repr((made, sorted(held(agent).items())))
        expected.append((hashlib.sha256(text.encode()).hexdigest(), agent))
    code = LOAD_AND_PLAY.format(root=str(Path(__file__).parents[2]))
    command = [sys.executable, "-W", "error", "-c", code, *paths]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert printed == [digest for digest, _ in expected]
    for path, (_, agent) in zip(paths, expected, strict=True):
        assert held(Agent.load(path)) == held(agent)


def test_decisions_made_after_the_save_are_not_namesakes_of_others(tmp_path: Path) -> None:
    path = tmp_path / "agent.fw"
    agent = saved(path)
    lost = agent.act(np.eye(3))  # the process dies, the file is older than this decision
    twins = [Agent.load(path), Agent.load(path)]
    new = [twin.act(np.eye(3)) for twin in twins]
    assert len({lost.id, *(d.id for d in new)}) == 3
    for twin in twins:
        twin.update(lost, [0.5, 0.5, 0.5])
        with pytest.raises(InvalidInput, match="given already"):
            twin.update(lost, [0.5, 0.5, 0.5])
    with pytest.raises(InvalidInput, match="made by another agent"):
        twins[0].update(new[1], [0.5, 0.5, 0.5])
    twins[0].update(new[0], [0.5, 0.5, 0.5])


def test_tokens_are_kept_over_many_loads(tmp_path: Path) -> None:
    path = tmp_path / "agent.fw"
    agent = saved(path, n=0)
    made = []
    for _ in range(5):
        made.append(agent.act(np.eye(3)))
        agent.save(path)
        agent = Agent.load(Path(path))
        agent.save(str(path))
        agent = Agent.load(str(path))
    assert len(agent._ledger.earlier) == 10
    agent.update_many(made[::-1], [[0.5] * 3] * 5)
    assert (agent.t, agent.open) == (5, 0)
    with pytest.raises(InvalidInput, match="given already"):
        agent.update(made[2], [0.5] * 3)


def test_counts_and_warnings_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "agent.fw"
    agent = saved(path, n=5)
    with pytest.warns(UserWarning, match="reported once"):
        agent.update(agent.act(np.eye(3)), [2.0, 0.0, 0.0])
    agent.save(path)
    loaded = Agent.load(path)
    loaded.update(loaded.act(np.eye(3)), [2.0, 0.0, 0.0])  # a second warning would be an error
    assert (agent.out_of_range, loaded.out_of_range) == (1, 2)


def test_a_replaced_objective_is_the_one_that_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "agent.fw"
    agent = saved(path)
    agent.replace_objective(Minimum() + Linear({"clicks": 2.0}))
    agent.save(path)
    assert Agent.load(path).objective == Minimum() + Linear({"clicks": 2.0})


# --- policies that a text cannot bring back ---------------------------------------------------


def soft(z: Vector) -> float:
    return float(-(z @ z))


def slope(z: Vector) -> Vector:
    return -2.0 * z


def test_custom_objectives_are_passed_again(tmp_path: Path) -> None:
    path = tmp_path / "agent.fw"
    policy = FrankWolfe(Custom(soft, slope, smooth=True), LinUCB())
    agent = saved(path, policy)
    with pytest.raises(
        IncompatibleState, match=r"'soft' at character 29 is not allowed.*pass it: Agent\.load"
    ):
        Agent.load(path)
    again = FrankWolfe(Custom(soft, slope, smooth=True), LinUCB())
    loaded = Agent.load(path, policy=again)
    assert play(loaded, world(PROBLEM, 50)) == play(agent, world(PROBLEM, 50))
    other = FrankWolfe(Custom(lambda z: -float(z @ z), slope, smooth=True), LinUCB())
    with pytest.raises(
        IncompatibleState, match=r"holds FrankWolfe.*soft.*, not FrankWolfe.*lambda"
    ):
        Agent.load(path, policy=other)


def test_a_lambda_and_a_callable_object(tmp_path: Path) -> None:
    class Bowl:
        def __call__(self, z: Vector) -> float:
            return soft(z)

    for function in (lambda z: -float(z @ z), Bowl()):
        path = tmp_path / "agent.fw"
        saved(path, FrankWolfe(Custom(function, slope, smooth=True), LinUCB()))
        with pytest.raises(IncompatibleState, match="pass it"):
            Agent.load(path)
        again = FrankWolfe(
            Custom(Bowl() if isinstance(function, Bowl) else function, slope, smooth=True), LinUCB()
        )
        assert Agent.load(path, policy=again).t == 17


@pytest.mark.parametrize(
    "other",
    [
        FrankWolfe(GiniWelfare(), SquareCB(gamma0=8.0)),
        FrankWolfe(Minimum(), SquareCB(gamma0=9.0)),
        FrankWolfe(GiniWelfare(), LinUCB()),
        MOLinCB(GiniWelfare()),
    ],
    ids=repr,
)
def test_another_policy_is_refused(other: Any, tmp_path: Path) -> None:
    saved(tmp_path / "agent.fw")
    with pytest.raises(IncompatibleState, match=r"holds FrankWolfe\(.*, not .*replace_objective"):
        Agent.load(tmp_path / "agent.fw", policy=other)


def test_what_is_no_policy_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "agent.fw")
    with pytest.raises(InvalidInput, match=r"the policy is 'squarecb'; give an objective"):
        Agent.load(tmp_path / "agent.fw", policy="squarecb")


def test_the_same_policy_is_accepted(tmp_path: Path) -> None:
    agent = saved(tmp_path / "agent.fw")
    same = FrankWolfe(GiniWelfare(), SquareCB(gamma0=9))
    assert Agent.load(tmp_path / "agent.fw", policy=same).t == agent.t


# --- files that are not right -----------------------------------------------------------------


def rewritten(path: Path, change: Any) -> None:
    """The file with its text or arrays changed, check sums and all."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    text = json.loads(members["agent.json"])
    change(text, members)
    members["agent.json"] = json.dumps(text).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


CHANGES: dict[str, tuple[Any, type[FairwolfeError], str]] = {
    "another format": (
        lambda t, m: t.update(format="model"),
        InvalidInput,
        "not the file of an agent",
    ),
    "another version": (
        lambda t, m: t.update(version=8, library="9.0"),
        IncompatibleState,
        r"format version 8 \(written by fairwolfe 9\.0\); this fairwolfe reads version 7",
    ),
    "an older version": (
        lambda t, m: t.update(version=4),
        IncompatibleState,
        r"format version 4 .*; this fairwolfe reads version 7",
    ),
    "another problem": (
        lambda t, m: t["problem"].update(n_features=4),
        IncompatibleState,
        r"state\.phi is float64 of shape \(1, 2, 1, 4\); .* \(1, 2, 1, 5\)",
    ),
    "no problem": (lambda t, m: t.pop("problem"), IncompatibleState, "field `problem`"),
    "wrong problem": (
        lambda t, m: t["problem"].update(n_features=0),
        IncompatibleState,
        "n_features is 0",
    ),
    "another policy": (
        lambda t, m: t.update(
            policy="FrankWolfe(GiniWelfare(), SquareCB(gamma0='theorem', oracle=OnlineGradient()))"
        ),
        IncompatibleState,
        r"state\.gram is float64 of shape",
    ),
    "code for a policy": (
        lambda t, m: t.update(policy="__import__('os').abort()"),
        IncompatibleState,
        "is not allowed",
    ),
    "unknown policy": (
        lambda t, m: t.update(policy="Nothing()"),
        IncompatibleState,
        "none of the classes",
    ),
    "another generator": (
        lambda t, m: t.update(draws=["MT19937"]),
        IncompatibleState,
        "does not hold what an agent needs: .*draws",
    ),
    "no ledger": (lambda t, m: t.update(ledger={}), IncompatibleState, r"at `\$.ledger`"),
    "an array too few": (
        lambda t, m: m.pop("state.totals.npy"),
        IncompatibleState,
        "state.totals in one of them only",
    ),
    "an array too many": (
        lambda t, m: m.update({"state.more.npy": m["state.totals.npy"]}),
        IncompatibleState,
        "state.more in one of them only",
    ),
    "no array": (
        lambda t, m: m.update({"state.totals.npy": b"\x93NUMPY nonsense"}),
        IncompatibleState,
        "damaged",
    ),
}


@pytest.mark.parametrize(("change", "kind", "sentence"), CHANGES.values(), ids=CHANGES)
def test_files_of_others_are_refused(
    change: Any, kind: type[FairwolfeError], sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "agent.fw"
    saved(path)
    rewritten(path, change)
    with pytest.raises(kind, match=sentence):
        Agent.load(path)


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    import io

    class Bomb:
        def __reduce__(self) -> Any:
            return (os.abort, ())

    path = tmp_path / "agent.fw"
    saved(path)
    content = io.BytesIO()
    np.save(content, np.array([Bomb()], dtype=object), allow_pickle=True)
    rewritten(path, lambda t, m: m.update({"state.totals.npy": content.getvalue()}))
    with pytest.raises(IncompatibleState, match="holds object of shape"):
        Agent.load(path)


def test_files_that_are_no_agents(tmp_path: Path) -> None:
    for content in (b"", b"PK", b"something else entirely", b"\x80\x04N."):
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(InvalidInput, match="x is not the file of an agent; give one"):
            Agent.load(tmp_path / "x")
    np.savez(tmp_path / "arrays.npz", a=np.ones(3))
    with pytest.raises(InvalidInput, match="not the file of an agent"):
        Agent.load(tmp_path / "arrays.npz")
    with pytest.raises(MissingData, match=r"missing\.fw' cannot be read .*; name a file that"):
        Agent.load(tmp_path / "missing.fw")
    with pytest.raises(InvalidInput, match=r"cannot be read \(Is a directory\)"):
        Agent.load(tmp_path)


def test_cut_and_flipped_files_are_refused_or_whole(tmp_path: Path) -> None:
    path, other = tmp_path / "agent.fw", tmp_path / "damaged.fw"
    agent = saved(path)
    data = path.read_bytes()
    for length in range(4, len(data), 97):
        other.write_bytes(data[:length])
        with pytest.raises(IncompatibleState, match="damaged or cut short"):
            Agent.load(other)
    rng = np.random.default_rng(0)
    refused = 0
    for place in rng.integers(len(data), size=250).tolist():
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(rng.integers(8))
        other.write_bytes(damaged)
        try:
            loaded = Agent.load(other)
        except (IncompatibleState, InvalidInput):
            refused += 1
        else:  # a bit that means nothing, such as a date
            assert held(loaded) == held(agent)
            assert (loaded.policy, loaded.t, loaded.open) == (agent.policy, agent.t, agent.open)
    assert refused > 150


def test_the_arrays_can_be_looked_at_with_numpy(tmp_path: Path) -> None:
    agent = saved(tmp_path / "agent.fw")
    with open(tmp_path / "agent.fw", "rb") as file, np.load(file, allow_pickle=False) as archive:
        average = archive["state.earned"] / archive["state.clocks"]
        assert average.tolist() == agent.average.tolist()
        assert json.loads(archive["agent.json"])["policy"] == repr(agent.policy)


# --- whole or not at all ----------------------------------------------------------------------


@pytest.mark.parametrize("failing", ["fsync", "replace", "write_array"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_save_that_fails_leaves_the_old_file(
    failing: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "agent.fw"
    agent = saved(path)
    before, then = path.read_bytes(), held(agent)
    agent.update(agent.act(np.eye(3)), [0.5, 0.5, 0.5])

    def fail(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(np.lib.format if failing == "write_array" else os, failing, fail)
        with pytest.raises(type(error)):
            agent.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["agent.fw"]
    assert held(Agent.load(path)) == then
    agent.save(path)  # and the agent is none the worse
    assert held(Agent.load(path)) == held(agent)


KILLED = """
import os, sys
from fairwolfe import Agent
agent = Agent.load(sys.argv[1])
agent.update(agent.act([[0.5, 0.5, 0.5]]), [0.5, 0.5, 0.5])
os.replace = lambda *_: os._exit(9)
agent.save(sys.argv[1])
"""


def test_a_process_killed_in_mid_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "agent.fw"
    agent = saved(path)
    before = path.read_bytes()
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert killed.returncode == 9
    assert path.read_bytes() == before
    assert held(Agent.load(path)) == held(agent)


def test_a_link_is_followed_and_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    saved(tmp_path / "real" / "agent.fw")
    (tmp_path / "link.fw").symlink_to(tmp_path / "real" / "agent.fw")
    agent = Agent.load(tmp_path / "link.fw")
    agent.update(agent.act(np.eye(3)), [0.5, 0.5, 0.5])
    agent.save(tmp_path / "link.fw")
    assert (tmp_path / "link.fw").is_symlink()
    assert Agent.load(tmp_path / "real" / "agent.fw").t == agent.t
    assert stat.S_IMODE(os.stat(tmp_path / "real" / "agent.fw").st_mode) == 0o600


# --- states in general ------------------------------------------------------------------------


class Inner(NamedTuple):
    params: NDArray[np.float64]
    counts: NDArray[np.int64]


class Outer(NamedTuple):
    plan: object
    z: NDArray[np.float64]
    base: Any


def test_any_state_of_named_tuples_is_taken_apart_and_filled() -> None:
    def fresh(params: float) -> Outer:
        return Outer(object(), np.zeros(2), Inner(np.full(1, params), np.zeros(3, np.int64)))

    old = fresh(1.0)
    old.z[:] = [1.0, 2.0]
    old.base.counts[:] = [3, 4, 5]
    arrays = dict(arrays_of(old))
    assert list(arrays) == ["state.z", "state.base.counts"]
    new = filled(fresh(2.0), arrays)
    assert (new.z.tolist(), new.base.counts.tolist()) == ([1.0, 2.0], [3, 4, 5])
    assert new.base.params.tolist() == [2.0]
    assert new.z is not old.z


class Model:
    """Something of another library, of a size that changes as it learns."""

    def __init__(self, text: str = "") -> None:
        self.text = text

    def dump(self) -> NDArray[np.uint8]:
        return np.frombuffer(self.text.encode(), np.uint8)

    def load(self, saved: NDArray[np.uint8]) -> None:
        self.text = saved.tobytes().decode()


def test_what_can_dump_and_load_itself_is_part_of_a_state() -> None:
    arrays = dict(arrays_of(Outer(None, np.ones(2), Model("learnt"))))
    assert arrays["state.base"].tobytes() == b"learnt"
    fresh = Outer(None, np.zeros(2), Model())
    assert filled(fresh, arrays).base.text == "learnt"
    assert fresh.z.tolist() == [1.0, 1.0]
    with pytest.raises(IncompatibleState, match=r"state\.z is"):
        filled(fresh, arrays | {"state.z": np.ones(3), "state.base": np.zeros(1, np.uint8)})
    assert fresh.base.text == "learnt"


def test_a_state_that_does_not_fit_fills_nothing() -> None:
    state = Outer(None, np.zeros(2), Inner(np.zeros(1), np.zeros(3, np.int64)))
    right: dict[str, Any] = {"state.z": np.ones(2), "state.base.counts": np.ones(3, np.int64)}
    for wrong in (
        {"state.base.counts": np.ones(3)},
        {"state.base.counts": np.ones((3, 1), np.int64)},
        {"state.other": np.ones(1)},
    ):
        with pytest.raises(IncompatibleState):
            filled(state, right | wrong)
        assert state.z.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("part", [{"a": 1}, [np.ones(1)], 3, np.array([None]), (np.ones(1),)])
def test_states_that_cannot_be_saved_say_so(part: object) -> None:
    with pytest.raises(IncompatibleState, match=r"state\.base is a .*, which cannot be saved"):
        list(arrays_of(Outer(None, np.zeros(1), part)))
    assert [name for name, _ in arrays_of(Outer(None, np.zeros(1), ()))] == ["state.z"]


def test_reading_gives_what_was_written(tmp_path: Path) -> None:
    agent = saved(tmp_path / "agent.fw")
    text, arrays = read(tmp_path / "agent.fw")
    assert text["policy"] == repr(agent.policy)
    assert arrays.keys() == {name for name, _ in arrays_of(agent._running)} | {
        "answered",
        "recovered",
    }
