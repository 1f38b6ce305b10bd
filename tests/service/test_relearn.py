"""P13: a whole log learnt again is the state that the service has, to rounding, and the same bits
whoever works on it; a model of the service begins with it.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fairwolfe as fw
from fairwolfe.bandits import LinUCB, SquareCB
from fairwolfe.cli import commands
from fairwolfe.core.threads import ONE_THREAD
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import AtMost, Linear, Minimum
from fairwolfe.offpolicy import Log, relearning
from fairwolfe.oracles import OnlineGradient
from fairwolfe.service.events import ItemsAdded
from fairwolfe.service.log_file import LogFile, place_of
from fairwolfe.service.recovery import recover, replay
from fairwolfe.service.store import SQLiteStore
from tests.offpolicy.logs import PROBLEM, columns
from tests.offpolicy.test_folder import children, write
from tests.service.inside import Inside

pytestmark = pytest.mark.needs("pyarrow")

TAIL = 40
HEAD = 'state = "state"\nlisten = "127.0.0.1:0"\n'
ARMS = """
[models.router]
missing = "{missing}"
{more}
window = "6 s"
problem = {{ kind = "arms", n_features = 4, rewards = {{ clicks = [0, 1], cost = [0, 1] }} }}
objective = "Linear({{'clicks': 1.0}}) + AtMost({{'cost': 0.4}})"
policy = {{ name = "frank-wolfe", base = {{ name = "squarecb", gamma0 = 100.0 }} }}
"""
ALONE = ARMS.replace('kind = "arms", n_features = 4', 'kind = "arms", n_features = 4, n_arms = 3')
RANKS = """
[models.front]
missing = "zero"
{more}
window = "6 s"
problem = {{ kind = "ranking", n_slots = 3, n_features = [3, 3] }}
objective = "TwoSided(GiniWelfare(), beta=0.5)"
policy = {{ name = "fw-linucb-rank", exploration = 0.1 }}
"""
NEW = "FrankWolfe(Minimum(), LinUCB(exploration=0.2))"
SUMS = ("totals", "earned", "clocks", "t", "gram", "inverse", "theta", "moment")
RANKED = (*SUMS, "exposed", "shown", "slots")


@pytest.fixture(autouse=True)
def few_and_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relearning, "TAIL", TAIL)
    monkeypatch.setattr("fairwolfe.offpolicy.evaluation.TAIL", TAIL)
    for name in ONE_THREAD:
        monkeypatch.setenv(name, "1")


def served(folder: Path, text: str, rounds: int = 120) -> Path:
    """The configuration of a service that has ended, with a log in which all windows have."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(HEAD + text)
    store = SQLiteStore(folder / "state")
    with closing(store):
        service = Inside(HEAD + text, store)
        rng = np.random.default_rng(0)
        (model,) = service.core.models.values()
        if model.ranks:
            items = {f"i{k}": (rng.random(3) / 2).tolist() for k in range(6)}
            added = ItemsAdded(0, tuple(items), np.array(list(items.values())), "")
            (done,) = service.together(service.core.change("front", lambda: added))
            assert not isinstance(done, Exception), done
        for i in range(rounds):
            if model.ranks:
                made = service.decide("front", user=(rng.random(3) / 2).tolist())
                keys = [key for key in model.keys_of(made.action) if rng.random() < 0.6]
                entry: dict[str, Any] = {"exposed": keys, "clicked": keys[:1]}
            else:
                ask = "user" if model.problem.n_arms else "arms"
                shape = (4,) if model.problem.n_arms else (3, 4)
                made = service.decide("router", **{ask: (rng.normal(size=shape) / 4).tolist()})
                rewards = {"clicks": int(rng.random() < 0.4), "cost": int(rng.random() < 0.6)}
                entry = {"rewards": rewards}
            if i % 5:
                service.tell(model.name, {"id": model.id(made.number), **entry})
        service.advance(20.0)
    return folder / "config.toml"


def online(config: Path) -> Any:
    with closing(LogFile(place_of(config))) as log:
        (model,) = recover(log).models.values()
    assert model.ring.open == 0
    return model.agent


def same(one: Any, other: Any, names: Any = SUMS) -> None:
    with one.held() as mine, other.held() as theirs:
        for name in names:
            first, second = getattr(mine.state, name), getattr(theirs.state, name)
            scale = max(float(np.abs(first).max()), 1e-9)
            assert np.abs(first - second).max() <= 1e-9 * scale, name


def command(*arguments: Any) -> Any:
    return CliRunner().invoke(commands, ["log", "relearn", *map(str, arguments)])


@pytest.mark.parametrize("missing", ["zero", "skip"])
@pytest.mark.parametrize("text", [ARMS, ALONE], ids=["arms", "alone"])
def test_the_same_policy_comes_to_the_state_that_it_has(
    tmp_path: Path, text: str, missing: str
) -> None:
    config = served(tmp_path, text.format(missing=missing, more=""))
    done = command(config, tmp_path / "again.fw", "--json")
    assert done.exit_code == 0, done.output
    agent, other = online(config), fw.Agent.load(tmp_path / "again.fw")
    same(agent, other)
    assert other.t == agent.t == json.loads(done.stdout)["decisions"] > 2 * TAIL
    assert other.policy == agent.policy


def test_rankings_too(tmp_path: Path) -> None:
    config = served(tmp_path, RANKS.format(more=""))
    done = command(config, tmp_path / "again.fw")
    assert done.exit_code == 0, done.output
    agent, other = online(config), fw.Agent.load(tmp_path / "again.fw")
    same(agent, other, RANKED)
    assert other.names == agent.names


def test_prices_are_those_of_the_last_decisions(tmp_path: Path) -> None:
    """An agent that meets the first decisions without prices, and the last ones with them."""
    table = columns(400)
    policy = fw.FrankWolfe(
        Linear({"clicks": 1.0}) + AtMost({"minutes": 0.02}), SquareCB(gamma0=100.0)
    )
    log = Log.of(table, PROBLEM)
    agent = log.relearn(policy)
    with agent.held() as running:
        prices = running.state.prices.copy()
    assert prices.min() < 0.0  # the limit is not kept, and its price has risen
    data: Any = log._data
    whole = fw.Agent(policy, PROBLEM)
    with whole.held() as running:
        rows, observation = relearning._rows(running, data)
        running.learn(rows, observation)
        assert running.state.prices.min() < prices.min()  # of all decisions
    same(whole, agent)


def test_another_policy_learns_the_same_regression(tmp_path: Path) -> None:
    config = served(tmp_path, ARMS.format(missing="zero", more=""))
    done = command(config, tmp_path / "new.fw", "--policy", NEW)
    assert done.exit_code == 0, done.output
    agent, other = online(config), fw.Agent.load(tmp_path / "new.fw")
    same(agent, other)
    assert other.policy == fw.FrankWolfe(Minimum(), LinUCB(exploration=0.2))
    assert other.value == pytest.approx(agent.average.min(), rel=1e-12)


def test_other_features_and_more_rewards_from_exported_files(tmp_path: Path) -> None:
    """With `audit` the export has all that was asked; here a feature and a reward are added."""
    import pyarrow as pa
    from pyarrow import parquet

    config = served(tmp_path, ARMS.format(missing="zero", more="audit = true"))
    exported = tmp_path / "log.parquet"
    done = CliRunner().invoke(commands, ["log", "export", str(config), str(exported)])
    assert done.exit_code == 0, done.output
    rows = parquet.read_table(exported).to_pylist()
    for row in rows:
        row["context"] = [[*arm, arm[0] * arm[1]] for arm in row["context"]]
        row["reward.saves"] = row["reward.clicks"] * 0.5
    (tmp_path / "more").mkdir()
    plain = [{k: v for k, v in row.items() if v is not None} for row in rows]
    parquet.write_table(pa.Table.from_pylist(plain), tmp_path / "more" / "a.parquet")
    problem = fw.Problem.arms(5, {"clicks": (0, 1), "cost": (0, 1), "saves": (0, 1)})
    policy = fw.FrankWolfe(Minimum(), SquareCB(gamma0=100.0))
    agent = Log.of(tmp_path / "more", problem).relearn(policy)
    x = np.array([row["context"][row["action"]] for row in rows])
    with agent.held() as running:
        assert np.allclose(running.state.gram[0, 0], np.eye(5) + x.T @ x, rtol=1e-12)
    assert agent.average[2] == pytest.approx(agent.average[0] / 2, rel=1e-12)
    with pytest.raises(InvalidInput, match="give problem="):
        Log.of(tmp_path / "more")


def test_equal_bits_for_1_2_and_4_workers_with_one_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ONE_THREAD:
        monkeypatch.delenv(name)
    folder = write(tmp_path / "logs", (500,) * 6)
    policy = fw.FrankWolfe(Minimum(), SquareCB(gamma0=100.0))
    states = []
    for jobs in (1, 2, 4):
        before = set(children())
        killed: list[int] = []

        def progress(
            rows: int, jobs: int = jobs, before: Any = before, killed: Any = killed
        ) -> None:
            if jobs == 2 and not killed:
                killed.append(min(set(children()) - before))
                os.kill(killed[0], signal.SIGKILL)

        agent = Log.of(folder).relearn(policy, jobs=jobs, progress=progress)
        assert bool(killed) == (jobs == 2)
        with agent.held() as running:
            states.append([array.tobytes() for array in running.state[:-1]])
    assert states[0] == states[1] == states[2]


def test_a_model_begins_with_it_and_its_log_replays(tmp_path: Path) -> None:
    for kind, text in (
        ("arms", ARMS.format(missing="zero", more="")),
        ("ranks", RANKS.format(more="")),
    ):
        old = served(tmp_path / kind, text)
        assert command(old, tmp_path / f"{kind}.fw").exit_code == 0
        agent = online(old)
        new = text.replace("missing =", f'start = "{tmp_path / kind}.fw"\nmissing =')
        config = served_on(tmp_path / f"new-{kind}", new)
        with closing(LogFile(place_of(config))) as log:
            (one,) = recover(log).models.values()
            (other,) = replay(log).models.values()
        assert one.digest() == other.digest()
        assert one.agent is not None
        assert one.agent.t == agent.t + 20  # it goes on from there
        assert not one.stopped


def served_on(folder: Path, text: str) -> Path:
    """A service that begins with what was learnt, is asked 20 times, and starts again."""
    folder.mkdir()
    (folder / "config.toml").write_text(HEAD + text)
    for turn in range(2):
        store = SQLiteStore(folder / "state")
        with closing(store):
            service = Inside(HEAD + text, store)
            (model,) = service.core.models.values()
            rng = np.random.default_rng(turn)
            for _ in range(10):
                if model.ranks:
                    service.decide(model.name, user=(rng.random(3) / 2).tolist())
                else:
                    service.decide(model.name, arms=(rng.normal(size=(3, 4)) / 4).tolist())
            service.advance(20.0)
    return folder / "config.toml"


def test_what_a_model_cannot_begin_with_is_refused(tmp_path: Path) -> None:
    config = served(tmp_path / "old", ARMS.format(missing="zero", more=""))
    assert command(config, tmp_path / "new.fw", "--policy", NEW).exit_code == 0
    (tmp_path / "no.fw").write_bytes(b"nothing")
    for file, what in (("new.fw", "give both the same"), ("no.fw", "start"), ("gone.fw", "gone")):
        text = HEAD + ARMS.format(missing="zero", more=f'start = "{tmp_path / file}"')
        with pytest.raises(InvalidInput, match=what):
            Inside(text)


def test_what_is_no_sum_is_refused_with_the_reason(tmp_path: Path) -> None:
    log = Log.of(columns(100), PROBLEM)
    staged = fw.Problem.arms(
        3, dict.fromkeys(PROBLEM.rewards, (0, 1)), stages=(("clicks", "minutes"), ("saves",))
    )
    squarecb = SquareCB(gamma0=10.0)
    for policy, problem, why in (
        (fw.FrankWolfe(Minimum(), squarecb, memory=50), PROBLEM, "order of the decisions"),
        (
            fw.FrankWolfe(Minimum(), SquareCB(gamma0=10.0, oracle=OnlineGradient())),
            PROBLEM,
            "ridge regression",
        ),
        (fw.FrankWolfe(Minimum(), squarecb), staged, "in stages"),
    ):
        with pytest.raises(InvalidInput, match=why):
            Log.of(columns(100), problem).relearn(policy)
    assert log.relearn(fw.FrankWolfe(Minimum(), squarecb)).t == 100
    config = served(tmp_path, ARMS.format(missing="zero", more=""), 5)
    done = command(config, config, "--policy", NEW)
    assert done.exit_code == 2 or isinstance(done.exception, InvalidInput)
