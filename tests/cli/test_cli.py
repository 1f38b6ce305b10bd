from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from fairwolfe.cli import commands
from fairwolfe.core import registry
from fairwolfe.errors import FairwolfeError, InvalidInput

MINE = '''
from dataclasses import dataclass

import numpy as np

import fairwolfe as fw

from fairwolfe.objectives import Minimum

print("a module that talks")


@dataclass(frozen=True)
class Worst(Minimum):
    """The worse counts."""


@dataclass(frozen=True)
class Best(Minimum):
    """Not concave."""

    def _value(self, z):
        return float(z.max())


class Unshown:
    pass


class Unready:
    @classmethod
    def examples(cls):
        raise KeyError("later")


class Neither:
    @classmethod
    def examples(cls):
        return (cls(),)


class Nearly(Neither):
    def problem(self):
        return fw.Problem.arms(2, {"a": (0, 1)}, n_arms=2)

    def init(self, rng):
        return np.array([0.2, 0.4])

    def context(self, world, t, rng):
        return fw.PerArm(rng.random(2) / 2)

    def mean_reward(self, world, context, action):
        return world[action : action + 1]

    def feedback(self, world, context, action, rng):
        return np.array([float(rng.random() < world[action])])


class Whole(Nearly):
    def best_action(self, world, context, direction):
        return int(np.argmax(direction[0] * world))
'''


def fairwolfe(*arguments: str) -> Result:
    return CliRunner().invoke(commands, arguments, prog_name="fairwolfe")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with modules of the user."""
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "unparsable.py").write_text("def")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("mine", "broken", "unparsable"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


# --- the command itself ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["list", "--help"], ["demo", "--help"]]
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
import sys
from fairwolfe.cli import commands
try:
    commands({arguments!r}, prog_name="fairwolfe")
except SystemExit as end:
    assert not end.code
heavy = {{"numpy", "scipy", "rich", "matplotlib", "pandas", "ray"}}
print("loaded", *sorted(heavy & set(sys.modules)))
"""
    command = [sys.executable, "-W", "error", "-c", code]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1] == "loaded"


def test_the_installed_command_and_the_module_say_the_same() -> None:
    installed = Path(sys.executable).with_name("fairwolfe")
    said = [
        subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
        for command in ([str(installed)], [sys.executable, "-m", "fairwolfe"])
    ]
    assert said[0] == said[1]
    assert said[0].startswith("Usage: fairwolfe ")


@pytest.mark.parametrize("name", sorted(commands.commands))
def test_every_command_has_help_with_an_example(name: str) -> None:
    result = fairwolfe(name, "--help")
    assert result.exit_code == 0
    assert f"Example: fairwolfe {name}" in result.stdout


def test_version() -> None:
    import fairwolfe as package

    assert fairwolfe("--version").stdout.split()[-1] == package.__version__


def test_an_unknown_command_suggests_the_nearest() -> None:
    result = fairwolfe("chek")
    assert result.exit_code == 2
    assert "there is no command 'chek'; did you mean 'check'?" in result.stderr


def test_an_unknown_option_is_refused() -> None:
    assert fairwolfe("--verbose").exit_code == 2
    assert fairwolfe("list", "--jsn").exit_code == 2


def test_errors_of_the_library_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setitem(commands.commands, "fail", click.Command("fail", callback=fail))
    error: Exception = FairwolfeError("the value is 3; give 4")
    result = fairwolfe("fail")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "Error: the value is 3; give 4\n"
    error = RuntimeError("a bug")  # which must stay one, with its traceback
    assert fairwolfe("fail").exception is error


# --- list ------------------------------------------------------------------------------------


def test_list_shows_every_name_of_a_kind() -> None:
    lines = fairwolfe("list", "objectives").stdout.splitlines()
    assert [line.split()[0] for line in lines[2:] if line[:1].isalpha()] == registry.names(
        "objectives"
    )


def test_list_shows_every_kind_as_json() -> None:
    rows = json.loads(fairwolfe("list", "--json").stdout)
    wanted = [(kind, name) for kind in registry.KINDS for name in registry.names(kind)]
    assert [(row["kind"], row["name"]) for row in rows] == wanted
    minimum = next(row for row in rows if row["name"] == "minimum")
    assert minimum["class"] == "fairwolfe.objectives:Minimum"
    assert minimum["summary"].startswith("f(z) = min_i z_i")
    assert all(row["summary"] for row in rows)


def test_list_suggests_the_nearest_kind() -> None:
    result = fairwolfe("list", "objectivs")
    assert result.exit_code == 2
    assert "did you mean 'objectives'?" in result.stderr


def test_a_plug_in_that_cannot_be_loaded_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    load = registry.load

    def fails_once(kind: str, name: str) -> type:
        if name == "moreau":
            raise InvalidInput("'gone' cannot be imported: [no such module]")
        return load(kind, name)

    monkeypatch.setattr(registry, "load", fails_once)
    monkeypatch.setenv("COLUMNS", "200")
    result = fairwolfe("list", "smoothings")
    assert result.exit_code == 0
    assert "cannot be loaded: 'gone' cannot be imported: [no such module]" in result.stdout
    assert "randomized" in result.stdout


# --- check -----------------------------------------------------------------------------------


def test_check_of_a_registered_name_passes() -> None:
    result = fairwolfe("check", "minimum")
    assert result.exit_code == 0
    assert "is concave" in result.stdout
    assert "1: Minimum()" in result.stdout
    assert result.stdout.endswith(" checks, 0 failed\n")


def test_check_finds_modules_of_the_current_directory(here: Path) -> None:
    result = fairwolfe("check", "mine:Worst", "--json")
    assert result.exit_code == 0
    said = json.loads(result.stdout)
    assert said["subject"] == "mine:Worst"
    assert said["checks"] == len(said["outcomes"]) > 5
    assert said["failed"] == 0
    assert "a module that talks" in result.stderr


def test_check_shows_what_fails(here: Path) -> None:
    result = fairwolfe("check", "mine:Best")
    assert result.exit_code == 1
    assert "FAIL" in result.stdout
    assert "Best() fails 'is concave':\n  not concave from [" in result.stdout
    said = json.loads(fairwolfe("check", "mine:Best", "--json").stdout)
    broken = [outcome for outcome in said["outcomes"] if not outcome["passed"]]
    assert said["failed"] == len(broken) > 0
    assert {"is_concave", "has_supergradients"} <= {outcome["check"] for outcome in broken}
    assert all(outcome["message"] and outcome["example"] == "Best()" for outcome in broken)


def test_check_names_the_bad_action_of_an_own_world(here: Path) -> None:
    result = fairwolfe("check", "mine:Whole")
    assert result.exit_code == 1
    assert "feedback with action 2 does not raise fairwolfe.errors.InvalidInput" in result.stdout


@pytest.mark.parametrize(
    ("subject", "sentence"),
    [
        ("minimun", "did you mean 'minimum'?"),
        ("nowhere:Class", "'nowhere' cannot be imported"),
        ("mine:Wurst", "did you mean 'Worst'?"),
        ("mine:", "is not of the form module:Class"),
        ("mine:Unshown", "Unshown has no examples()"),
        ("mine:Unready", "cannot be checked: KeyError: 'later'"),
        ("mine:Neither", "Neither keeps none of the contracts"),
        (
            "mine:Nearly",
            "Nearly has no best_action; add it as in fairwolfe.core.protocols.Environment",
        ),
        ("broken:Class", "cannot be checked: ZeroDivisionError"),
        ("unparsable:Class", "cannot be checked: SyntaxError"),
        ("[/red]:Class", "'[/red]' cannot be imported"),
    ],
)
def test_what_cannot_be_checked_is_refused(here: Path, subject: str, sentence: str) -> None:
    result = fairwolfe("check", subject)
    assert (result.exit_code, result.stdout) == (2, "")
    error = result.stderr.removeprefix("a module that talks\n")
    assert error.startswith("Error: ")
    assert sentence in error
    assert error.count("\n") == 1


# --- demo ------------------------------------------------------------------------------------


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two panels: what the demo prints and writes does not depend on their number."""
    from fairwolfe.cli.demos import preferences

    chosen = preferences.panels()[:2]
    monkeypatch.setattr(preferences, "panels", lambda: chosen)


@pytest.mark.needs("matplotlib")
@pytest.mark.usefixtures("short")
def test_demo_prints_a_table_and_where_the_figure_is(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    result = fairwolfe("demo", "objectives", "--out", str(out))
    assert result.exit_code == 0
    files = [str(out / "objectives.png"), str(out / "objectives.svg")]
    header, _, *rows = result.stdout.splitlines()
    assert header.split() == ["objective", "preferred", "clicks", "minutes", "value"]
    assert [row.split()[0] for row in rows[:2]] == ["Linear", "GeneralizedGini"]
    assert rows[2:] == files
    assert (out / "objectives.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (out / "objectives.svg").read_text()


@pytest.mark.needs("matplotlib")
@pytest.mark.usefixtures("short")
def test_demo_as_json(tmp_path: Path) -> None:
    result = fairwolfe("demo", "objectives", "--json", "--out", str(tmp_path))
    said: dict[str, Any] = json.loads(result.stdout)
    assert [row["objective"] for row in said["objectives"]] == ["Linear", "GeneralizedGini"]
    assert set(said["objectives"][0]) == {"objective", "words", "clicks", "minutes", "value"}
    assert all(Path(file).is_file() for file in said["figures"])


@pytest.mark.needs("matplotlib")
@pytest.mark.usefixtures("short")
def test_demo_into_an_impossible_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        result = fairwolfe("demo", "objectives", "--out", str(out))
        assert (result.exit_code, result.stdout) == (2, "")
        assert str(out) in result.stderr


@pytest.mark.needs("matplotlib")
def test_demo_plays_four_ranking_policies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from fairwolfe.cli.demos import fair_ranking

    run = fair_ranking.run
    monkeypatch.setattr(fair_ranking, "run", lambda progress: run(2000, 2, 1, progress))
    monkeypatch.setenv("COLUMNS", "200")
    result = fairwolfe("demo", "--out", str(tmp_path))
    assert result.exit_code == 0
    for name in fair_ranking.policies():
        assert name in result.stdout
    assert "% of clicks lifts the bottom half of items from" in result.stdout
    assert (tmp_path / "fair-ranking.png").read_bytes().startswith(b"\x89PNG")
    said = json.loads(fairwolfe("demo", "--json", "--out", str(tmp_path)).stdout)
    assert said["policies"][0]["policy"] == "FW-LinUCBRank"
    assert all(0.0 < row["below_best_percent"] < 60.0 for row in said["policies"])


@pytest.mark.needs("matplotlib")
def test_demo_plays_five_policies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from fairwolfe.cli.demos import music

    run = music.run
    monkeypatch.setattr(music, "run", lambda progress: run(200, 3, 1, progress))
    monkeypatch.setenv("COLUMNS", "200")
    result = fairwolfe("demo", "music", "--out", str(tmp_path))
    assert result.exit_code == 0
    for name in music.policies():
        assert name in result.stdout
    assert "fixed weights stays" in result.stdout
    assert (tmp_path / "music.png").read_bytes().startswith(b"\x89PNG")
    said = json.loads(fairwolfe("demo", "music", "--json", "--out", str(tmp_path)).stdout)
    distances = [row["below_best_percent"] for row in said["policies"]]
    assert len(distances) == 5
    assert distances == sorted(distances)
    assert all(0.0 < distance < 30.0 for distance in distances)


def test_demo_without_matplotlib_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None)
    result = fairwolfe("demo", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "pip install 'fairwolfe[plot]'" in result.stderr


def test_alone_it_says_where_to_start() -> None:
    result = fairwolfe()
    assert result.exit_code == 0
    named = re.findall(r"^  fairwolfe (\w+)", result.output, re.MULTILINE)
    assert named == ["demo", "serve", "init"]
    assert set(named) <= set(commands.commands)


@pytest.mark.parametrize("name", ["", *commands.commands])
def test_lists_of_commands_fit_80_columns(name: str) -> None:
    command = commands.commands[name] if name else commands
    text = CliRunner(env={"COLUMNS": "80"}).invoke(command, ["--help"]).output
    listed = text.partition("Commands:")[2].partition("\n\n")[0]
    assert "..." not in listed


def test_completion_in_a_shell() -> None:
    """bash itself completes what the command prints."""
    script = fairwolfe("completion", "bash").output
    words = "COMP_WORDS=(fairwolfe re); COMP_CWORD=1; _fairwolfe_completion fairwolfe re ''"
    done = subprocess.run(
        ["bash", "-c", f"{script}\n{words}; echo ${{COMPREPLY[@]}}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    assert done.stdout.split() == ["report", "reproduce"]
