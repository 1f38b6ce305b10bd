"""Where packages are not installed, one message names all that a job lacks and the one command."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fairwolfe.errors import EXTRAS, MissingExtra, require_extra

ROOT = Path(__file__).parents[1]
STATED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

# What needs which packages of which extra: arguments of the command, or lines of Python.
JOBS: list[tuple[str, tuple[str, ...], list[str] | str]] = [
    ("plot", ("matplotlib",), ["demo"]),
    ("lab", ("pandas", "pyarrow"), ["run", "spec.toml"]),
    ("lab", ("jinja2", "matplotlib", "pandas", "pyarrow"), ["report", "out"]),
    ("lab", ("jinja2", "matplotlib", "pandas", "pyarrow"), ["reproduce", "arms"]),
    ("lab", ("jinja2", "matplotlib"), ["tradeoff", "plays.csv"]),
    ("lab", ("matplotlib",), ["evaluate", "log.parquet"]),
    ("lab", ("pooch",), ["data", "lastfm", "--to", "out"]),
    (
        "lab",
        ("implicit",),
        "from fairwolfe.environments import Listening\n"
        "Listening('plays.csv', position_weights=[1.0]).problem()",
    ),
    (
        "lab",
        ("pyarrow",),
        "import fairwolfe.offpolicy as o; open('x.parquet', 'wb').write(b'PAR1')\n"
        "o.Log.of('x.parquet')",
    ),
    (
        "lab",
        ("pyarrow",),
        "import fairwolfe as fw\nfrom fairwolfe.agent.log_format import Header, Writer\n"
        "with Writer('x.parquet', Header(fw.Problem.arms(2, {'a': (0, 1)}))) as table:\n"
        "    table.columns({'action': [0], 'probability': [1.0], 'reward.a': [1.0]})",
    ),
    ("serve", ("apsw", "httptools", "prometheus-client", "uvloop"), ["serve", "--demo"]),
    ("serve", ("apsw",), ["log", "verify", "state"]),
    ("integrations", ("ray",), ["run", "spec.toml", "--on", "ray"]),
    (
        "integrations",
        ("aiohttp",),
        "from fairwolfe.client import AsyncClient; AsyncClient('http://127.0.0.1:1')",
    ),
    (
        "integrations",
        ("scikit-learn",),
        "from fairwolfe.oracles import SklearnRegressor\n"
        "SklearnRegressor('sklearn.tree:DecisionTreeRegressor()')",
    ),
    (
        "integrations",
        ("vowpalwabbit",),
        "from fairwolfe.bandits import VowpalWabbit; VowpalWabbit().init(2)",
    ),
    (
        "integrations",
        ("gymnasium",),
        "from fairwolfe.integrations import Gymnasium; Gymnasium('four-room-v0').problem()",
    ),
    (
        "integrations",
        ("polars",),
        "from fairwolfe.core.tables import frame_of; frame_of({'t': [1]}, 'polars')",
    ),
    ("integrations", ("river",), "import fairwolfe.integrations.river"),
]

# The packages are there, and cannot be imported: as if they were not installed.
BLOCKED = """
import sys

class Nothing:
    names = set({names!r})

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Nothing())
"""
COMMAND = "from fairwolfe.cli import main\nsys.argv[1:] = {arguments!r}\nmain()\n"


def packages(extra: str) -> tuple[str, ...]:
    return tuple(re.split(r"[^\w-]", one)[0] for one in STATED[extra])


def module(package: str) -> str:
    return {"scikit-learn": "sklearn"}.get(package, package.replace("-", "_"))


def said(job: list[str] | str, missing: tuple[str, ...], folder: Path) -> str:
    (folder / "plays.csv").write_text("user,item,count\na,x,3\nb,y,2\n")
    (folder / "log.parquet").touch()
    code = BLOCKED.format(names=tuple(map(module, missing)))
    code += job if isinstance(job, str) else COMMAND.format(arguments=job)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder
    )
    # A sentence and exit code 2 of the command; the error itself in Python.
    assert done.returncode == (1 if isinstance(job, str) else 2), done.stderr
    assert ("Traceback" in done.stderr) == isinstance(job, str)
    return done.stderr.splitlines()[-1]


def test_the_table_of_the_errors_is_that_of_the_package() -> None:
    assert set(EXTRAS) == set(STATED) - {"all"}
    for extra, names in EXTRAS.items():
        assert names == packages(extra), extra
    (everything,) = STATED["all"]
    assert everything == f"fairwolfe[{','.join(EXTRAS)}]"
    assert {extra for extra, _, _ in JOBS} == set(EXTRAS)
    page = (ROOT / "docs" / "installing.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", page, re.MULTILINE))
    assert rows == {extra: ", ".join(names) for extra, names in EXTRAS.items()}


@pytest.mark.parametrize(("extra", "names", "job"), JOBS)
def test_all_that_is_missing_is_named_at_once(
    extra: str, names: tuple[str, ...], job: list[str] | str, tmp_path: Path
) -> None:
    assert set(names) <= set(packages(extra))
    message = said(job, names, tmp_path)
    *most, last = names
    listed = f"{', '.join(most)} and {last}, which are" if most else f"{last}, which is"
    assert f" needs {listed} not installed: " in message
    assert f"pip install 'fairwolfe[{extra}]'" in message
    assert f"(in a checkout: pip install '.[{extra}]')" in message
    assert not (tmp_path / "out").exists()


def test_what_is_installed_is_not_named(tmp_path: Path) -> None:
    message = said(["serve", "--demo"], ("apsw", "uvloop"), tmp_path)
    assert "the service needs apsw and uvloop, which are not installed" in message


def test_what_is_not_needed_now_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    require_extra("plot", "a figure", "matplotlib")
    with pytest.raises(MissingExtra, match=r"^a frame needs pandas, which is .*; or else$"):
        require_extra("plot", "a frame", "pandas", instead="or else")
