"""Learning from logs: near the optimum, constraints, files, agents, trade-offs, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fairwolfe as fw
from fairwolfe.agent.log_format import Header, Writer
from fairwolfe.bandits import LinUCB, SquareCB, VowpalWabbit
from fairwolfe.cli import commands
from fairwolfe.core.rows import ArmRows, PlainRows, RankingRows
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import AtLeast, AtMost, GiniEquality, Linear, Minimum, TwoSided
from fairwolfe.offpolicy import Log, Mixture, RankingMixture
from fairwolfe.ranking import FWLinUCBRank
from tests.offpolicy import logs
from tests.offpolicy.logs import ARMS, PROBLEM, THETA, columns
from tests.plugins.plugged import Greedy, Myopic

CLICKS = Linear({"clicks": 1.0})


def truth(mixture: Any, n: int = 40_000) -> Any:
    """What a mixture earns in fresh contexts."""
    from fairwolfe.offpolicy.decisions import ContextPart

    x = np.random.default_rng(99).random((n, ARMS, 3))
    pi = mixture.distribution(ContextPart(n, ARMS, x))
    return np.einsum("nk,nkd->d", pi, x @ THETA.T) / n


def test_a_learnt_mixture_is_near_the_best_and_its_interval_holds() -> None:
    log = Log.of(columns(10_000, explore=1.0), PROBLEM)
    mixture = log.learn(Minimum())
    best = log.learn(Minimum(), model=_True())
    earned = truth(mixture).min()
    assert 0.98 * truth(best).min() < earned <= 1.005 * truth(best).min()
    assert mixture.estimate is not None
    assert mixture.estimate.low < earned < mixture.estimate.high
    assert mixture.estimate.n == 10_000


class _True:
    """The rewards as they are, in the form of a regressor."""

    def fit(self, x: Any, r: Any) -> _True:
        return self

    def predict(self, x: Any) -> Any:
        return x @ THETA.T

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {}

    def __sklearn_clone__(self) -> _True:
        return self


def test_hard_constraints_are_kept() -> None:
    log = logs.log(10_000)
    free = log.learn(CLICKS)
    f = CLICKS + AtLeast({"saves": 0.54})
    kept = log.learn(f)
    assert kept.feasible
    assert kept.estimate is not None
    assert truth(free)[2] < 0.51
    assert abs(truth(kept)[2] - 0.54) < 0.02
    assert kept.estimate.constraints[0].kept is not False
    impossible = log.learn(CLICKS + AtLeast({"saves": 0.8}) + AtMost({"minutes": 0.1}))
    assert not impossible.feasible
    assert [one.kept for one in impossible.estimate.constraints] == [False, False]  # type: ignore[union-attr]


def test_a_mixture_is_saved_and_played(tmp_path: Path) -> None:
    log = logs.log(2000)
    mixture: Any = log.learn(Minimum())
    assert len(mixture.members) == 2
    path = tmp_path / "mixture.npz"
    mixture.save(path)
    again = Mixture.load(path)
    context = columns(1, seed=5)["context"][0]
    assert np.array_equal(again.probabilities(context), mixture.probabilities(context))
    agent = fw.Agent(again, PROBLEM)
    decision = agent.act(context)
    assert decision.probability == pytest.approx(again.probabilities(context)[decision.action])
    agent.update(decision, [1.0, 0.0, 1.0])
    assert agent.average.tolist() == [1.0, 0.0, 1.0]
    for content in (b"PK\x03\x04 no", b"", b"x" * 100):
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match="is not a mixture"):
            Mixture.load(path)
    with pytest.raises(InvalidInput, match="without pickle"):
        logs.log(200).learn(Minimum(), model=_True()).save(path)
    with pytest.raises(InvalidInput, match="give that problem"):
        fw.Agent(again, fw.Problem.arms(2, {"clicks": (0, 1)}))


def test_no_pickle_is_read(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, text=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InvalidInput, match="is not a mixture"):
        Mixture.load(path)


@pytest.mark.parametrize(
    "base", [SquareCB(gamma0=30.0), LinUCB(exploration="theorem")], ids=["squarecb", "linucb"]
)
def test_an_agent_has_learnt_the_log_as_its_own_decisions(base: Any) -> None:
    """The same decisions, made and answered by an agent, teach the same regression."""
    other = fw.Agent(fw.FrankWolfe(Minimum(), base), PROBLEM)
    contexts = columns(300)["context"]
    rewards = np.random.default_rng(0).integers(0, 2, (300, 3)).astype(float)
    made = other.act_many(contexts)
    rows = list(zip(made, rewards.tolist(), contexts, strict=True))
    other.update_many(made, rewards)
    agent = Log.of(rows, PROBLEM).agent(Minimum(), base)
    with agent.held() as mine, other.held() as theirs:
        for name in ("theta", "gram", "inverse", "moment", "learnt"):
            one, two = (getattr(running.state, name) for running in (mine, theirs))
            assert np.array_equal(one, two), name
    assert (agent.t, agent.open) == (0, 0)
    assert not agent.average.any()


def studied(base: Any, x: Any, n: int) -> Any:
    """Decisions of others for arm 1 with features x."""
    if isinstance(base, Greedy):
        rows = PlainRows.empty(n, 0, 0, 0)
        for i in range(n):
            rows.stored[i] = (1, x)
        return rows
    arms = ArmRows.empty(n, x.size, 0)
    arms.head["arm"], arms.head["block"], arms.x[:] = 1, 0, x
    return arms


def test_a_base_whose_update_returns_a_new_state_keeps_what_it_studies() -> None:
    agent = fw.Agent(fw.FrankWolfe(Minimum(), Greedy()), PROBLEM)
    context, reward = np.eye(3), np.array([1.0, 0.0, 1.0])
    agent.study(studied(Greedy(), context[1], 3), [reward] * 3)
    own = fw.Agent(fw.FrankWolfe(Minimum(), Greedy()), PROBLEM)
    for _ in range(3):
        own.update(own.act(context[[1]]), reward)
    with agent.held() as learnt, own.held() as earned:
        assert np.array_equal(learnt.base_state.targets, earned.base_state.targets)
        assert earned.base_state.targets.any()
    assert (agent.t, own.t) == (0, 3)
    assert not agent.average.any()


@pytest.mark.parametrize(
    "base", [LinUCB(exploration="theorem"), Greedy()], ids=["in place", "anew"]
)
def test_of_decisions_to_study_all_are_learnt_or_none(base: Any) -> None:
    agent = fw.Agent(fw.FrankWolfe(Minimum(), base), PROBLEM)
    agent.update(agent.act(np.eye(3)), [1.0, 0.0, 1.0])
    rows = studied(base, np.array([0.0, 1.0, 0.0]), 3)
    before = agent.dump()
    with pytest.raises(InvalidInput, match="'clicks'"):
        agent.study(rows, [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [np.nan, 1.0, 1.0]])
    assert agent.dump() == before
    agent.study(rows, np.ones((3, 3)))
    assert agent.dump() != before


class Interrupted(Greedy):
    """Ctrl-C comes while it learns the second decision."""

    def update(self, state: Any, choice: fw.Choice, *rest: Any) -> Any:
        if state.targets.any():
            raise KeyboardInterrupt
        return super().update(state, choice, *rest)


def test_an_interrupted_study_has_learnt_nothing() -> None:
    agent = fw.Agent(fw.FrankWolfe(Minimum(), Interrupted()), PROBLEM)
    rows, before = studied(Greedy(), np.array([0.0, 1.0, 0.0]), 3), agent.dump()
    with pytest.raises(KeyboardInterrupt):
        agent.study(rows, np.ones((3, 3)))
    assert agent.dump() == before


BROKEN: dict[str, tuple[Any, str]] = {
    "no rows": (lambda rows: [rows], "give ArmRows"),
    "rankings": (lambda rows: RankingRows.empty(3, 2, 2, 0), "give ArmRows"),
    "a list": (lambda rows: rows._replace(x=rows.x.tolist()), "the column x is"),
    "too few": (lambda rows: rows._replace(x=rows.x[:2]), "the column x is"),
    "too short": (lambda rows: rows._replace(x=rows.x[:, :2].copy()), "the column x is"),
    "whole": (lambda rows: rows._replace(x=rows.x.astype(np.int64)), "the column x is"),
    "a view": (lambda rows: rows._replace(x=np.asfortranarray(rows.x)), "not contiguous"),
    "no number": (lambda rows: put(rows, rows.x, (1, 2), np.nan), "row 1 of the column x"),
    "infinite": (lambda rows: put(rows, rows.x, (2, 0), np.inf), "row 2 of the column x"),
    "huge": (lambda rows: put(rows, rows.x, (2, 0), 1e200), "nothing can be learnt"),
    "no block": (lambda rows: put(rows, rows.head["block"], 1, 1), "row 1 of the column block"),
    "below": (lambda rows: put(rows, rows.head["block"], 2, -1), "row 2 of the column block"),
}


def put(rows: Any, column: Any, place: Any, value: Any) -> Any:
    column[place] = value
    return rows


@pytest.mark.parametrize("name", BROKEN)
def test_columns_that_no_kernel_may_read(name: str) -> None:
    agent = fw.Agent(fw.FrankWolfe(Minimum(), LinUCB(exploration="theorem")), PROBLEM)
    breaks, sentence = BROKEN[name]
    rows = studied(None, np.array([0.0, 1.0, 0.0]), 3)
    before = agent.dump()
    with pytest.raises(InvalidInput, match=sentence):
        agent.study(breaks(rows), np.ones((3, 3)))
    assert agent.dump() == before


@pytest.mark.parametrize(
    ("column", "place", "value", "sentence"),
    [
        ("items", (0, 1), 9, "row 0 of the column items"),
        ("items", (2, 0), -1, "row 2 of the column items"),
        ("items", (1, 1), 0, "show an item twice"),
        ("user", (1, 0), np.nan, "row 1 of the column user"),
        ("user", (1, 0), 1e200, "nothing can be learnt"),
        ("exposed", (1, 0), 0.5, "answer 1"),
        ("rewards", (2, 1, 0), np.inf, "answer 2"),
    ],
)
def test_columns_of_rankings_that_no_kernel_may_read(
    column: str, place: Any, value: float, sentence: str
) -> None:
    problem = fw.Problem.ranking(n_items=4, n_slots=2, n_features=(2, 3))
    f = TwoSided(GiniEquality())
    agent = fw.Agent(FWLinUCBRank(f, exploration="theorem"), problem, items=np.eye(4, 3))
    rows = RankingRows.empty(3, 2, 2, 0)
    rows.items[:], rows.user[:] = [0, 2], 0.5
    shown = fw.Shown(np.ones((3, 2)), np.ones((3, 2, 1)))
    before = agent.dump()
    columns = rows._asdict() | shown._asdict()
    kept = columns[column][place]
    columns[column][place] = value
    with pytest.raises(InvalidInput, match=sentence):
        agent.study(rows, shown)
    assert agent.dump() == before
    columns[column][place] = kept
    agent.study(rows, shown)
    assert agent.dump() != before


def test_a_policy_that_cannot_study() -> None:
    agent = fw.Agent(Myopic(Minimum()), PROBLEM)
    with pytest.raises(InvalidInput, match="cannot learn from decisions of others"):
        agent.study(studied(None, np.zeros(3), 1), np.ones((1, 3)))


@pytest.mark.needs("vowpalwabbit")
def test_bases_that_cannot_learn_from_others() -> None:
    with pytest.raises(InvalidInput, match="cannot learn from decisions that others made"):
        logs.log(20).agent(Minimum(), VowpalWabbit())


def test_the_frontier_of_arms() -> None:
    found = logs.log(3000).tradeoff([0.0, 3.0], fair=Minimum(), users=CLICKS)
    first, last = (truth(point.policy) for point in found.points)
    assert first[0] > last[0]
    assert first.min() < last.min()
    assert [row["beta"] for row in found.table()] == [0.0, 3.0]
    for point, earned in zip(found.points, (first, last), strict=True):
        assert point.users.low < earned[0] < point.users.high
        assert point.fair.low < earned.min() < point.fair.high
    assert "beta 3" in repr(found)
    with pytest.raises(InvalidInput, match="give both"):
        logs.log(50).tradeoff([1.0])
    with pytest.raises(InvalidInput, match="betas is empty"):
        logs.log(50).tradeoff([], fair=Minimum(), users=CLICKS)


# --- rankings --------------------------------------------------------------------------------


def ranking_log(path: Path, n: int = 3000) -> Log:
    rng, m, k = np.random.default_rng(0), 6, 3
    items, users = rng.random((m, 2)) / 2, rng.random((n, 2))
    relevance = np.clip(users @ rng.random((2, 2)) @ items.T * 1.5, 0.0, 1.0)
    shown = np.argsort(rng.random((n, m)), axis=1)[:, :k]
    exposed = (rng.random((n, k)) < [1.0, 0.7, 0.4]).astype(float)
    clicks = exposed * (rng.random((n, k)) < np.take_along_axis(relevance, shown, axis=1))
    header = Header(fw.Problem.ranking(m, k, (2, 2)), features=items)
    with Writer(path, header) as table:
        table.columns(
            {
                "id": [f"t-{i}" for i in range(n)],
                "number": np.arange(n),
                "user": users,
                "ranking": shown,
                "exposed": exposed,
                "reward.clicks": clicks,
                "probability": np.full(n, 1 / 120),
                "probabilities": np.full((n, m, k), 1 / m),
            }
        )
    return Log.of(path)


def test_rankings_are_learnt_and_traded_off(tmp_path: Path) -> None:
    log = ranking_log(tmp_path / "log.jsonl")
    assert log.check().usable, log.check()
    found = log.tradeoff([0.0, 2.0])
    clicks, fair = found.points
    assert clicks.users.low > fair.users.high
    assert clicks.fair.high < fair.fair.low
    best: Any = log.learn(CLICKS)
    best.save(tmp_path / "mixture.npz")
    again = RankingMixture.load(tmp_path / "mixture.npz")
    users = np.random.default_rng(1).random((5, 2))
    assert np.array_equal(again.at_rank(users), best.at_rank(users))
    with pytest.raises(InvalidInput, match="not a mixture of arms"):
        Mixture.load(tmp_path / "mixture.npz")
    assert log.compare(best, "logged", CLICKS).low > 0.0


def test_a_ranking_agent_has_learnt_the_log(tmp_path: Path) -> None:
    log = ranking_log(tmp_path / "log.jsonl", 200)
    f = TwoSided(GiniEquality())
    agent = log.agent(f, FWLinUCBRank(f, exploration="theorem"))
    data: Any = log._data
    other = fw.Agent(FWLinUCBRank(f, exploration="theorem"), data.problem, items=data.items)
    made = other.act_many(data.users)
    shown = fw.Shown(np.ones((200, 3)), np.zeros((200, 3, 1)))
    rows = [
        (d, fw.Shown(np.ones(3), np.zeros((3, 1))), u)
        for d, u in zip(made, data.users, strict=True)
    ]
    other.update_many(made, shown)
    own = Log.of(rows, data.problem)
    own._data = type(own._data)(**{**vars(own._data), "items": data.items})
    taught = own.agent(f, FWLinUCBRank(f, exploration="theorem"))
    with taught.held() as mine, other.held() as theirs:
        assert np.allclose(mine.state.theta, theirs.state.theta, rtol=0, atol=1e-12)
    assert agent.t == 0
    assert log.evaluate(agent, f).n == 200


# --- the command -----------------------------------------------------------------------------


@pytest.mark.needs("matplotlib")
@pytest.mark.needs("pyarrow")
def test_the_command_evaluates_policies_of_a_file(tmp_path: Path) -> None:
    log, spec, out = tmp_path / "log.parquet", tmp_path / "policies.toml", tmp_path / "out"
    with Writer(log, Header(PROBLEM, "Minimum()")) as table:
        table.columns(columns(1500))
    Log.of(log).learn(Minimum()).save(tmp_path / "mixture.npz")
    logs.log(100).agent(Minimum(), SquareCB(gamma0=10.0)).save(tmp_path / "agent.fw")
    spec.write_text(
        '[policies.any]\nname = "uniform"\n[policies.first]\narm = 0\n'
        '[policies.kept]\nfile = "mixture.npz"\n[policies.saved]\nagent = "agent.fw"\n'
        '[policies.new]\nbase = { name = "squarecb", gamma0 = 50.0 }\n'
    )
    arguments = ["evaluate", str(log), "--policy", str(spec), "--out", str(out)]
    ran = CliRunner().invoke(commands, [*arguments, "--json"])
    assert ran.exit_code == 0, ran.output
    said = json.loads(ran.stdout)
    names = [row["policy"] for row in said["policies"]]
    assert names == ["as logged", "any", "first", "kept", "saved", "new"]
    assert said["decisions"] == 750
    assert any("kept would have earned" in text and "better" in text for text in said["sentences"])
    assert (out / "evaluate.svg").stat().st_size > 1000
    plain = CliRunner().invoke(
        commands, [*arguments, "--objective", "nash", "--estimator", "snips"]
    )
    assert plain.exit_code == 0, plain.output
    assert "as logged" in plain.stdout


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize(
    ("spec", "options", "words"),
    [
        ("[policies.x]\narm = 9\n", (), "the policy chooses 9"),
        ("[policies.x]\narm = 0\nlearn = true\n", (), "policies.x has arm, learn"),
        ("[policy.x]\narm = 0\n", (), "policy is unknown; did you mean 'policies'"),
        ("policies = 3\n", (), "has no policies"),
        ("[policies.x\n", (), "cannot be read as TOML"),
        ('[policies.x]\nname = "squarecb"\n', (), "give uniform or fixed"),
        ('[policies.x]\nname = "uniform"\narm = 1\n', (), "leave out arm"),
        ('[policies.x]\nname = "fixed"\n', (), "add arm"),
        ("[policies.x]\nlearn = false\n", (), "give true"),
        ("[policies.x]\nlearnt = true\n", (), "did you mean 'learn'"),
        ('[policies.x]\nagent = "no.fw"\n', (), "no.fw"),
        ("[policies.x]\narm = 0\n", ("--objective", "minimun"), "'minimun'; give an expression"),
        ("[policies.x]\narm = 0\n", ("--objective", "import os"), "is not an expression"),
        ("[policies.x]\narm = 0\n", ("--estimator", "dm"), "one of ips, snips, dr"),
        (None, ("--policy", "none.toml"), "there is no file none.toml"),
    ],
)
def test_bad_input_of_the_command_is_a_sentence(
    tmp_path: Path, spec: str | None, options: tuple[str, ...], words: str
) -> None:
    log = tmp_path / "log.jsonl"
    with Writer(log, Header(PROBLEM, "Minimum()")) as table:
        table.columns(columns(40))
    arguments = ["evaluate", str(log), "--out", str(tmp_path / "out"), *options]
    if spec is not None:
        (tmp_path / "p.toml").write_text(spec)
        arguments += ["--policy", str(tmp_path / "p.toml")]
    ran = CliRunner().invoke(commands, arguments)
    assert ran.exit_code == 2, ran.output
    assert words in " ".join(ran.stderr.split())
    assert "Traceback" not in ran.stderr


def test_a_log_without_f_asks_for_one(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("action,probability,reward.clicks\n0,0.5,1\n1,0.5,0\n")
    ran = CliRunner().invoke(commands, ["evaluate", str(log)])
    assert ran.exit_code == 2
    assert "give --objective" in ran.stderr


@pytest.mark.needs("matplotlib")
def test_the_policies_of_the_help_are_accepted(tmp_path: Path) -> None:
    """The file that `fairwolfe evaluate --help` shows, as it is shown."""
    import tomllib

    shown = CliRunner().invoke(commands, ["evaluate", "--help"]).output
    spec = shown.partition("with policies.toml:")[2]
    tables = tomllib.loads(spec)["policies"]
    assert tables["second"] == {"name": "fixed", "arm": 1}
    assert len(tables) == 5
    with Writer(tmp_path / "log.jsonl", Header(PROBLEM)) as writer:
        writer.columns(columns(200))
    (tmp_path / "policies.toml").write_text(spec)
    arguments = ["evaluate", "log.jsonl", "--policy", "policies.toml", "--objective", "minimum"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        ran = CliRunner().invoke(commands, [*arguments, "--out", "out", "--json"])
    assert ran.exit_code == 0, ran.output
    rows = {row["policy"]: row for row in json.loads(ran.output)["policies"]}
    assert rows["second"]["value"] != rows["third"]["value"]
    assert len(rows) == 6
