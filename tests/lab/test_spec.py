from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fairwolfe.cli import commands
from fairwolfe.core.registry import KINDS
from fairwolfe.errors import InvalidInput
from fairwolfe.lab import Experiment, load
from fairwolfe.lab.play import OPTIONS, build
from fairwolfe.lab.spec import RunSettings, canonical, flat, parse
from tests.lab.lab_specs import MINE, SMALL

SPECS = sorted((Path(__file__).parents[2] / "examples" / "specs").glob("*.toml"))


def fairwolfe(*arguments: str) -> Result:
    return CliRunner().invoke(commands, arguments, prog_name="fairwolfe")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return tmp_path


# --- what is refused -------------------------------------------------------------------------

RANKING = """
name = "ranking"
horizon = 10
environment = { name = "factor_model", users = 4, items = 50 }
objective = { name = "two-sided", items = { name = "gini-welfare" } }
policies.fair = { name = "fairlearn-rank", minimum = 0.5 }
"""

BAD = {
    "TOML": (SMALL + "beta = = 1", "not TOML", "line 22"),
    "a label twice": (SMALL + '[policies.ucb]\nname = "molincb"', "twice", "line 22"),
    "an unknown key": ("horizn = 3" + SMALL, "'horizn' is unknown; did you mean 'horizon'?"),
    "no environment": ('name = "a"\nhorizon = 3', "environment is missing; give a table"),
    "no policy": (SMALL.partition("[policies")[0], "policies is missing"),
    "no name": (SMALL.replace('name = "linucb"', "nam = 1"), "policies.ucb: the base is {'nam': 1"),
    "a name that leads out": (SMALL.replace('"small"', '"../small"'), "name is '../small'"),
    "a word for a number": (SMALL.replace("200", '"many"'), "horizon is 'many'; give a whole"),
    "a broken number": (SMALL.replace("200", "2.5"), "horizon is 2.5; give a whole number"),
    "no round": (SMALL.replace("200", "0"), "horizon is 0; give a whole number"),
    "no seed": (SMALL.replace("seeds = 2", "seeds = []"), "seeds is []; give how many"),
    "a seed below 0": (SMALL.replace("seeds = 2", "seeds = [1, -1]"), "seeds[1] is -1"),
    "a seed twice": (SMALL.replace("seeds = 2", "seeds = [1, 1]"), "seeds is [1, 1]"),
    "a late checkpoint": ("checkpoints = [300]" + SMALL, "has 300, and the horizon is 200"),
    "a date": (SMALL.replace("0.1", "2020-01-01"), "policies.ucb.base.ridge is datetime.date"),
    "an unknown policy": (
        SMALL.replace('"frank-wolfe"', '"frank-wolf"', 1),
        "policies.ucb.name is 'frank-wolf', which is unknown; did you mean 'frank-wolfe'?",
    ),
    "an unknown base": (
        SMALL.replace('"linucb"', '"linucp"'),
        "policies.ucb.base.name is 'linucp', which is unknown; did you mean 'linucb'?",
    ),
    "a base for a policy": (
        SMALL + '[policies.bare]\nname = "linucb"',
        "policies.bare is LinUCB(",
        "which is not a policy",
    ),
    "an unknown parameter": (
        SMALL.replace("ridge", "rigde"),
        "policies.ucb.base.rigde is not a parameter of 'linucb'; did you mean 'ridge'?",
    ),
    "an unknown option of a world": (
        SMALL.replace("n_arms", "n_arm"),
        "environment.n_arm is not a parameter of 'mehrotra'; did you mean 'n_arms'?",
    ),
    "a type": (SMALL.replace("0.1", '"x"'), "policies.ucb.base.ridge is 'x'; 'linucb' takes a nu"),
    "a flag for a number": (SMALL.replace("0.1", "true"), "policies.ucb.base.ridge is True;"),
    "a choice": (
        SMALL.replace("ridge = 0.1", 'model = "share"'),
        "policies.ucb.base.model is 'share'; 'linucb' takes 'shared' or 'extended' there",
    ),
    "a value": (SMALL.replace("0.1", "-1"), "policies.ucb.base: ridge is -1"),
    "an object of another kind": (
        SMALL.replace('"linucb", ridge = 0.1', '"minimum"'),
        "policies.ucb: the base is Minimum(); give a bandit",
    ),
    "a size": (
        SMALL.replace('"gini-welfare"', '"linear"\nweights = [1, 2]'),
        "objective: Linear has 2 weights, the problem has 3 rewards",
    ),
    "an objective that is left out": (
        SMALL.replace('[objective]\nname = "gini-welfare"', ""),
        "policies.ucb.objective is missing",
    ),
    "nothing to measure": (
        RANKING.replace("objective = {", "options = {} #").replace("0.5", "0.1"),
        "policies.fair has no objective; add a table [objective]",
    ),
    "c > k/m": (RANKING, "policies.fair: minimum is 0.5; 10 slots cannot show each of 50 items"),
    "an unknown option": (
        SMALL + "[options]\nscalar_regrets = true",
        "options.scalar_regrets is unknown; did you mean 'scalar_regret'?",
    ),
    "a type of an option": (
        SMALL + "[options]\nscalar_regret = 1",
        "options.scalar_regret is 1; give true or false",
    ),
    "no module": (SMALL.replace('"mehrotra"', '"nowhere:World"'), "environment.name: 'nowhere'"),
    "no class": (SMALL.replace('"gini-welfare"', '"mine:Wurst"'), "did you mean 'Worst'?"),
    "an empty grid": (
        SMALL + '[grid]\n"environment.n_arms" = []',
        "grid.environment.n_arms is []; give a list of values",
    ),
    "a grid of no list": (
        SMALL + '[grid]\n"environment.n_arms" = 3',
        "grid.environment.n_arms is 3",
    ),
    "a value twice": (
        SMALL + '[grid]\n"environment.n_arms" = [3, 3.0]',
        "grid.environment.n_arms has 3 twice",
    ),
    "a grid of an unknown table": (
        SMALL + '[grid]\n"horizon" = [3]',
        "grid.horizon leads to no ta",
    ),
    "a grid of an unknown policy": (
        SMALL + '[grid]\n"policies.usb.memory" = [3]',
        "grid.policies.usb.memory leads to no policy; did you mean 'ucb'?",
    ),
    "a grid that leads nowhere": (
        SMALL + '[grid]\n"policies.ucb.bas.ridge" = [3]',
        "leads nowhere: there is no 'bas'; did you mean 'base'?",
    ),
    "a grid into a number": (
        SMALL + '[grid]\n"policies.ucb.base.ridge.x" = [3]',
        "leads nowhere: 'ridge' is 0.1, which has no parameters",
    ),
    "a grid of a whole table": (SMALL + '[grid]\n"objective." = [3]', "names a table"),
    "a grid of an unknown parameter": (
        SMALL + '[grid]\n"policies.ucb.base.rigde" = [3]',
        "policies.ucb.base.rigde is not a parameter",
        "(in the grid, at policy.base.rigde = 3)",
    ),
    "one bad value of a grid": (
        SMALL + '[grid]\n"policies.ucb.base.ridge" = [0.1, -1]',
        "ridge is -1",
        "(in the grid, at policy.base.ridge = -1)",
    ),
}


@pytest.mark.parametrize(("text", "pieces"), [(t, p) for t, *p in BAD.values()], ids=BAD)
def test_what_is_wrong_is_one_sentence_and_nothing_is_written(
    text: str, pieces: list[str], here: Path
) -> None:
    (here / "bad.toml").write_text(text)
    before = set(here.iterdir())
    result = fairwolfe("run", "bad.toml", "--out", "out")
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    said = result.stderr.strip()
    assert said.startswith("Error: bad.toml: ")
    assert "\n" not in said
    for piece in pieces:
        assert piece in said
    assert {path for path in here.iterdir() if path.name != "__pycache__"} == before


def test_a_file_that_is_not_there(here: Path) -> None:
    with pytest.raises(InvalidInput, match=r"none\.toml cannot be read: No such file"):
        load("none.toml")
    Path("binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match=r"binary\.toml cannot be read"):
        load("binary.toml")


# --- what a spec means -----------------------------------------------------------------------


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.name)
def test_the_examples_are_sound(path: Path) -> None:
    experiment = load(path)
    assert len({run.id for run in experiment.runs()}) == len(experiment.runs())


def test_ids_stay_what_they_are() -> None:
    # A change of these makes every folder of results start from nothing.
    experiment = Experiment.of(SMALL)
    assert experiment.id == "79098f599e43"
    assert [run.id for run in experiment.runs()] == [
        "98c718df3678-0",
        "ea40fa443ff3-0",
        "98c718df3678-1",
        "ea40fa443ff3-1",
    ]


def test_an_id_depends_on_meaning_alone() -> None:
    one = Experiment.of(SMALL)
    head, _, tail = SMALL.partition("[policies.ucb]")
    first, _, second = tail.partition("[policies.any]")
    shuffled = head + "[policies.any]" + second + "[policies.ucb]" + first
    other = Experiment.of(shuffled.replace("200", "2e2").replace("n_arms = 5", "n_arms = 5.0"))
    assert {run.id for run in one.runs()} == {run.id for run in other.runs()}
    assert one.id == other.id
    renamed = Experiment.of(SMALL.replace("policies.ucb", "policies.u"))
    assert [run.id for run in renamed.runs()] == [run.id for run in one.runs()]
    assert renamed.id != one.id
    more = Experiment.of(SMALL.replace("seeds = 2", "seeds = [7, 1, 0]"))
    assert {run.id for run in one.runs()} < {run.id for run in more.runs()}
    for old, new in (("200", "201"), ("0.1", "0.2"), ("n_arms = 5", "n_arms = 6")):
        changed = Experiment.of(SMALL.replace(old, new))
        assert changed.runs()[0].id != one.runs()[0].id


def test_an_objective_of_the_policy_that_says_the_same_is_the_same() -> None:
    stated = SMALL.replace("base = {", 'objective = { name = "gini-welfare" }\nbase = {')
    assert [r.id for r in Experiment.of(stated).runs()] == [
        r.id for r in Experiment.of(SMALL).runs()
    ]
    alone = stated.replace('[objective]\nname = "gini-welfare"', "")
    assert [r.id for r in Experiment.of(alone).runs()] == [
        r.id for r in Experiment.of(SMALL).runs()
    ]
    other = stated.replace('{ name = "gini-welfare" }', '{ name = "minimum" }')
    parts = build(Experiment.of(other).cells[0].settings)
    assert repr(parts.objective) == "GiniWelfare()"
    assert repr(parts.policy.objective) == "Minimum()"


def test_checkpoints_are_a_set_that_ends_at_the_horizon() -> None:
    ids = {
        Experiment.of(f"checkpoints = {times}\n{SMALL}").runs()[0].id
        for times in ([10, 50], [50, 10], [10, 10, 50, 200])
    }
    assert len(ids) == 1
    assert ids != {Experiment.of(SMALL).runs()[0].id}


def test_a_grid_multiplies_what_its_paths_lead_to() -> None:
    text = SMALL + (
        '[grid]\n"environment.n_arms" = [5, 6]\n"policies.ucb.base.ridge" = [0.1, 1, 10]\n'
    )
    cells = Experiment.of(text).cells
    assert [cell.label for cell in cells] == ["ucb"] * 6 + ["any"] * 2
    points = [(c.chosen["environment.n_arms"], c.chosen.get("policy.base.ridge")) for c in cells]
    assert len(set(points)) == 8
    assert {c.settings.policy["base"].get("ridge") for c in cells[:6]} == {0.1, 1, 10}
    assert len(Experiment.of(text).runs()) == 16


def test_a_grid_reaches_lists_new_parameters_whole_objects_and_labels_with_dots() -> None:
    text = SMALL.replace(
        'name = "gini-welfare"',
        'name = "sum"\nterms = [{ name = "minimum" }, { name = "nash", offset = 1 }]',
    ).replace("policies.any", 'policies."a.b"')
    text += '[grid]\n"objective.terms.1.offset" = [2]\n"policies.a.b.memory" = [100]\n'
    text += '"policies.ucb.base" = [{ name = "uniform" }, { name = "thompson" }]\n'
    ucb, thompson, dotted = Experiment.of(text).check().cells
    assert repr(build(ucb.settings).objective) == "Minimum() + Nash(offset=2.0)"
    assert repr(build(thompson.settings).policy.base).startswith("Thompson")
    assert build(dotted.settings).policy.memory == 100
    with pytest.raises(InvalidInput, match="'2' is not a place in a list of 2"):
        Experiment.of(text.replace("terms.1", "terms.2")).check()


def test_labels_with_the_same_settings_share_their_runs() -> None:
    twice = SMALL.replace('{ name = "uniform" }', '{ name = "linucb", ridge = 0.1 }')
    assert len(Experiment.of(twice).cells) == 2
    assert len(Experiment.of(twice).runs()) == 2


def test_parameters_are_told_by_dotted_paths() -> None:
    settings = Experiment.of(SMALL).cells[0].settings
    assert settings.parameters() == {
        "environment.name": "mehrotra",
        "environment.n_arms": 5,
        "environment.n_objectives": 3,
        "environment.n_features": 4,
        "objective.name": "gini-welfare",
        "policy.name": "frank-wolfe",
        "policy.base.name": "linucb",
        "policy.base.ridge": 0.1,
    }
    assert dict(flat({"terms": [{"a": 1}, {"a": 2}]})) == {"terms.0.a": 1, "terms.1.a": 2}


def test_a_canonical_text_tells_apart_what_is_different() -> None:
    values = [0, 1, True, 0.5, "1", [1], {"a": 1}, float("inf"), 2**60, None]
    assert len({canonical(value) for value in values}) == len(values)
    assert canonical(1.0) == canonical(1)
    assert canonical({"a": 1, "b": 2}) == canonical({"b": 2, "a": 1})


def test_names_of_the_registry_are_known_without_their_kind() -> None:
    # A table inside a policy names an object of any kind but a world.
    known = [name for kind, names in KINDS.items() if kind != "environments" for name in names]
    assert len(known) == len(set(known))


def test_options_are_keywords_of_the_simulation() -> None:
    from inspect import signature

    from fairwolfe.simulation import simulate

    assert set(OPTIONS) <= set(signature(simulate).parameters)


def test_the_spec_is_the_file() -> None:
    spec = parse(SMALL)
    assert spec.policies == tomllib.loads(SMALL)["policies"]
    assert spec.numbers() == (0, 1)


def test_an_objective_may_be_text() -> None:
    text = """
name = "small"
horizon = 10
objective = "Minimum() + 0.5 * GiniWelfare()"
environment = { name = "mehrotra" }
policies.follows = { name = "frank-wolfe", base = { name = "linucb" } }
policies.own = { name = "frank-wolfe", objective = "Minimum()", base = { name = "linucb" } }
"""
    follows, own = Experiment.of(text).check().cells
    assert repr(build(follows.settings).policy.objective) == "Minimum() + 0.5 * GiniWelfare()"
    assert repr(build(own.settings).policy.objective) == "Minimum()"
    assert build(own.settings).objective == build(follows.settings).objective
    assert follows.settings.parameters()["objective"] == "Minimum() + 0.5 * GiniWelfare()"
    with pytest.raises(InvalidInput, match="'Minimun' at character 1"):
        Experiment.of(text.replace('"Minimum()"', '"Minimun()"')).check()
    with pytest.raises(InvalidInput, match=r"objective is the text .*; give it as a table"):
        Experiment.of(text + '[grid]\n"objective.beta" = [1]\n').check()


def test_an_environment_whose_seed_is_that_of_the_run() -> None:
    settings = RunSettings(
        environment={"name": "lastfm-50", "factors": 3, "seed": "run"},
        objective={"name": "two-sided", "items": {"name": "gini-equality"}},
        policy={"name": "linucb-rank"},
        horizon=10,
    )
    assert [build(settings, seed=seed).environment.seed for seed in (0, 7)] == [0, 7]
