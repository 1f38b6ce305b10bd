"""What is released: the wheel and the sdist of this tree, installed where nothing else is.

Each interpreter takes about 20 s of one worker, most of it for the packages and the first
compilation. All of them are among the quick tests, a minute together: it is the only quick place
where another Python than that of the tests is tried. Compiled modules of this tree are taken over
where they are not stale; the sdist has none, and compiles. Installing the sdist is slow: it differs
from the wheel only in who builds it, and a quick test shows that the same wheel comes out.
"""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import fairwolfe as fw
from fairwolfe.errors import EXTRAS
from tests.build.trees import hatch
from tests.capabilities import installing, interpreter

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
TEN_LINES = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
# What a file of the package may be: source, types, a spec, a page, a compiled module, and the text
# that says what modules were built from. No data.
SUFFIXES = {".py", ".typed", ".toml", ".json", ".js", ".html", ".css", ".so", ".txt"}


class Dist(NamedTuple):
    """What `hatchling build` makes."""

    wheel: Path
    sdist: Path


def built(source: Path, out: Path) -> Dist:
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(out)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return Dist(wheel, sdist)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Dist:
    """Built from a copy of this tree, without what tests and builds leave in it."""
    tree = tmp_path_factory.mktemp("tree") / "fairwolfe"
    left = shutil.ignore_patterns(".*", "__pycache__", "_build", "gallery", "dist", "out")
    shutil.copytree(ROOT, tree, ignore=lambda at, names: left(at, names) | made_in(at, names))
    shutil.copy(ROOT / ".gitignore", tree)
    if hatch().recorded()["compiler"] != hatch().compiler().name:  # that of the sdist
        (tree / "src" / hatch().MANIFEST).unlink()
    return built(tree, tmp_path_factory.mktemp("dist"))


def made_in(folder: str, names: list[str]) -> set[str]:
    """build/ of the root, but not tests/build."""
    return {"build"} & set(names) if Path(folder) == ROOT else set()


# --- what is in them -------------------------------------------------------------------------


def test_the_wheel_is_the_package_and_nothing_else(dist: Dist) -> None:
    system = hatch().platform_tag(hatch().compiler().zig)
    assert dist.wheel.name == f"fairwolfe-{VERSION}-cp311-abi3-{system}.whl"
    source = ROOT / "src"
    found = (f for f in (source / "fairwolfe").rglob("*") if f.is_file() and f.suffix != ".pxd")
    files = {f.relative_to(source).as_posix() for f in found if "__pycache__" not in f.parts}
    about = f"fairwolfe-{VERSION}.dist-info/"
    with zipfile.ZipFile(dist.wheel) as wheel:
        names = set(wheel.namelist())
        metadata = email.message_from_bytes(wheel.read(about + "METADATA"))
    assert {name for name in names if not name.startswith(about)} == files
    assert {Path(file).suffix for file in files} == SUFFIXES
    assert "fairwolfe/py.typed" in names
    assert "fairwolfe/service/pages/index.html" in names
    assert "fairwolfe/lab/paper/specs/lastfm-50.toml" in names
    assert about + "licenses/LICENSE" in names
    assert metadata["Version"] == VERSION
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert set(metadata.get_all("Provides-Extra", [])) == {*EXTRAS, "all"}


@pytest.mark.slow
def test_the_sdist_makes_the_same_wheel_and_has_all_that_make_needs(
    dist: Dist, tmp_path: Path
) -> None:
    with tarfile.open(dist.sdist) as packed:
        packed.extractall(tmp_path, filter="data")
    tree = tmp_path / f"fairwolfe-{VERSION}"
    again = built(tree, tmp_path / "again")
    assert again.wheel.name == dist.wheel.name
    assert again.wheel.read_bytes() == dist.wheel.read_bytes()
    for name in ("Makefile", "LICENSE", "CITATION.cff", "CHANGELOG.md", "requirements/dev.txt"):
        assert (tree / name).read_bytes() == (ROOT / name).read_bytes()
    assert (tree / "tests" / "test_release.py").is_file()


def test_the_version_is_the_same_wherever_it_stands() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    changes = re.search(r"^## (\S+) \((.*)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert changes is not None
    assert changes[1] == VERSION
    assert f"\nversion: {VERSION}\n" in citation
    assert f'\ndate-released: "{changes[2]}"\n' in citation
    assert f"dist/fairwolfe-{VERSION}-*.whl" in (ROOT / "docs" / "installing.md").read_text()
    for series in ("3.11", "3.12", "3.13"):
        assert f"Programming Language :: Python :: {series}" in PROJECT["classifiers"]


def test_the_classifiers_name_systems_that_are_tested() -> None:
    """The service needs uvloop and fsync as they are on Linux and macOS."""
    systems = [one for one in PROJECT["classifiers"] if one.startswith("Operating System")]
    assert sorted(systems) == ["Operating System :: MacOS", "Operating System :: POSIX :: Linux"]


def dist_name(version: str) -> str:
    return f"dist/fairwolfe-{version}-py3-none-any.whl"


# --- installed -------------------------------------------------------------------------------


class Clean:
    """A virtual environment that holds what was installed into it, and an empty cache."""

    def __init__(self, folder: Path, version: str) -> None:
        self.folder = folder
        base = interpreter(version)
        assert base is not None
        made = folder / "venv"
        subprocess.run([base, "-m", "venv", "--without-pip", str(made)], check=True)
        self.bin = made / ("Scripts" if sys.platform == "win32" else "bin")
        self.python = self.bin / "python"
        self.empty = folder / "empty"
        self.empty.mkdir()
        ours = ("PYTHON", "VIRTUAL_ENV", "FAIRWOLFE", "COV")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        self.env |= {"FAIRWOLFE_CACHE": str(folder / "cache"), "FAIRWOLFE_QUIET": "1"}
        self.alone = self.env | {"PATH": str(self.bin)}  # no compiler

    def run(self, *command: str | Path, alone: bool = False) -> str:
        """What a command prints, in the empty folder; alone: with nothing else on the PATH."""
        done = subprocess.run(
            list(map(str, command)),
            cwd=self.empty,
            env=self.alone if alone else self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def install(self, what: Path | str, *options: str) -> str:
        """With the versions of the lock; its hashes are left out, so that `what` needs none."""
        locked = (ROOT / "requirements" / "demo.txt").read_text()
        pins = re.findall(r"^([\w.-]+==\S+)", locked, re.MULTILINE)
        (self.folder / "versions.txt").write_text("\n".join(pins))
        constraint = ("--constraint", str(self.folder / "versions.txt"))
        return self.run(*installing(self.python), *constraint, *options, str(what))

    def works(self) -> None:
        """The README's ten lines, and the command."""
        said = self.run(self.python, "-W", "error", "-c", TEN_LINES, alone=True)
        self.run(self.python, "-W", "error", ROOT / "tests/build/run_installed.py", alone=True)
        assert said == said_here()  # the same bits, in every Python
        agent = fw.Agent.load(self.empty / "router.fw")  # in the Python of the tests
        assert f"{agent.averages['solved']:.0%} for" in said
        assert not (self.folder / "cache").exists()  # nothing is compiled
        assert "fairwolfe demo" in self.run(self.bin / "fairwolfe", "--help")
        assert VERSION in self.run(self.bin / "fairwolfe", "--version")


@cache
def said_here() -> str:
    """What the ten lines print in the Python of the tests."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", TEN_LINES]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("3.11", marks=pytest.mark.needs("python 3.11", "package index")),
        *(
            pytest.param(
                series,
                marks=[pytest.mark.needs(f"python {series}", "package index"), pytest.mark.slow],
            )
            for series in ("3.12", "3.13")
        ),
    ],
)
def test_the_wheel_works_in_a_clean_environment(dist: Dist, tmp_path: Path, version: str) -> None:
    clean = Clean(tmp_path, version)
    clean.install(dist.wheel)
    clean.works()
    if version == "3.11":
        # What a message advises where an extra is missing: the installed fairwolfe stays.
        clean.install("fairwolfe[serve]")
        clean.run(clean.python, "-c", "import apsw")
        assert VERSION in clean.run(clean.bin / "fairwolfe", "--version")


@pytest.mark.slow
@pytest.mark.needs("python 3.11", "package index")
def test_the_sdist_works_in_a_clean_environment(dist: Dist, tmp_path: Path) -> None:
    clean = Clean(tmp_path, "3.11")
    clean.install(dist.sdist)
    clean.works()
