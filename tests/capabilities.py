"""What a machine may lack, and what to install when a test asks for it.

A test says ``@pytest.mark.needs("cvxpy")`` and imports cvxpy inside its body. Where the capability
is missing the test is skipped with a sentence; where the environment variable FAIRWOLFE_REQUIRE
names it (a comma-separated list, or ``all``) the same is a failure. A capability that is optional
must be named there: ``all`` does not mean it. A table closes the run, with what was found of all
that the tests of the run asked for.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Capability:
    """Something a test needs, how to find it, and a sentence for those who lack it."""

    found: Callable[[], bool]
    advice: str
    optional: bool = False


def _module(name: str) -> Callable[[], bool]:
    return lambda: find_spec(name) is not None


def _data(folder: str) -> Callable[[], bool]:
    def found() -> bool:
        root = os.environ.get("FAIRWOLFE_DATA")
        return bool(root) and (Path(root or "") / folder).is_dir()

    return found


def browser() -> str | None:
    """The command of a Chromium, which can draw a page without a screen."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)


def postgresql() -> Path | None:
    """The folder of initdb and pg_ctl, which Debian keeps off the PATH."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


def _tmpfs() -> bool:
    """Whether a small file system can be mounted."""
    if platform.system() != "Linux" or os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            return False
        subprocess.run(["umount", folder], capture_output=True, check=True)
    return True


def _namespaces() -> bool:
    """Whether a process may have a network of its own."""
    if not (shutil.which("unshare") and shutil.which("ip")):
        return False
    own = ["unshare", "--net", "ip", "link", "set", "lo", "up"]
    return subprocess.run(own, capture_output=True, check=False).returncode == 0


def interpreter(version: str) -> str | None:
    """The command of a Python of that version: this one, one on the PATH, or one of pyenv's."""
    command = f"python{version}"
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [sys.executable, shutil.which(command) or ""]
    candidates += sorted(map(str, root.glob(f"versions/{version}.*/bin/{command}")), reverse=True)
    # A command may be there and refuse to run, as pyenv's do where their version is not chosen.
    answer = f"import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != {version!r})"
    for candidate in filter(None, candidates):
        tried = subprocess.run([candidate, "-c", answer], capture_output=True, check=False)
        if tried.returncode == 0:
            return candidate
    return None


def _interpreter(version: str) -> Capability:
    """Optional: what the tests run on is there, the others are more than a newcomer has."""
    advice = f"Install Python {version}, on the PATH or with pyenv."
    return Capability(lambda: interpreter(version) is not None, advice, optional=True)


def installing(python: Path | str) -> list[str]:
    """The command that installs packages for a Python; uv where it is found, as in make."""
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--quiet", "--python", str(python)]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    return [*pip, "--quiet", "--no-compile"]


def _index() -> bool:
    """Whether packages can be had: one that is installed anyway is asked for as if it were not."""
    asking = [*installing(sys.executable), "--dry-run", "--no-deps", "--force-reinstall", "click"]
    quick = os.environ | {"PIP_RETRIES": "0", "UV_HTTP_RETRIES": "0"}
    return subprocess.run(asking, capture_output=True, env=quick, check=False).returncode == 0


def _jdk() -> bool:
    """Whether `java` runs a source file: since Java 11, where there is a compiler."""
    if not (shutil.which("java") and shutil.which("javac")):
        return False
    told = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=False)
    numbers = (told.stdout or told.stderr).split()
    return told.returncode == 0 and int(numbers[-1].split(".")[0]) >= 11


def _command(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name) is not None


CAPABILITIES = {
    "axe": Capability(
        _module("axe_playwright_python"), "Install axe-playwright-python (make setup)."
    ),
    "browser": Capability(
        lambda: browser() is not None, "Install chromium (apt install chromium)."
    ),
    "c compiler": Capability(_command("cc"), "Install a C compiler (apt install gcc libc6-dev)."),
    "curl": Capability(_command("curl"), "Install curl (apt install curl)."),
    "cvxpy": Capability(_module("cvxpy"), "Install cvxpy (make setup)."),
    "flask": Capability(_module("flask"), "Install Flask (make setup)."),
    "gcc": Capability(_command("gcc"), "Install gcc (apt install gcc libc6-dev)."),
    "go": Capability(_command("go"), "Install Go (apt install golang-go).", optional=True),
    "gymnasium": Capability(_module("gymnasium"), "Install gymnasium (make setup)."),
    "httpx": Capability(_module("httpx"), "Install httpx (make setup)."),
    "implicit": Capability(_module("implicit"), "Install implicit (make setup)."),
    "lastfm data": Capability(
        _data("lastfm"), "Set FAIRWOLFE_DATA to the folder that holds the lastfm folder."
    ),
    "jdk": Capability(_jdk, "Install a JDK, 11 or newer (apt install default-jdk-headless)."),
    "jinja2": Capability(_module("jinja2"), "Install jinja2 (make setup)."),
    "matplotlib": Capability(_module("matplotlib"), "Install matplotlib (make setup)."),
    "mo-gymnasium": Capability(_module("mo_gymnasium"), "Install mo-gymnasium (make setup)."),
    "network namespaces": Capability(
        _namespaces, "Run as root on Linux, with unshare (util-linux) and ip (iproute2)."
    ),
    "package index": Capability(_index, "Let pip or uv reach a package index."),
    "node": Capability(_command("node"), "Install Node.js (apt install nodejs)."),
    "notebooks": Capability(
        lambda: all(map(find_spec, ("ipykernel", "nbclient"))),
        "Install ipykernel and nbclient (make setup).",
    ),
    "playwright": Capability(_module("playwright"), "Install playwright (make setup)."),
    "openpyxl": Capability(_module("openpyxl"), "Install openpyxl (make setup)."),
    "postgresql": Capability(
        lambda: postgresql() is not None and find_spec("psycopg") is not None,
        "Install PostgreSQL (apt install postgresql) and psycopg (make setup).",
    ),
    "python 3.11": _interpreter("3.11"),
    "python 3.12": _interpreter("3.12"),
    "python 3.13": _interpreter("3.13"),
    "pyarrow": Capability(_module("pyarrow"), "Install pyarrow (make setup)."),
    "ray": Capability(_module("ray"), "Install ray (make setup)."),
    "redis": Capability(
        _command("redis-server"), "Install redis-server (apt install redis-server)."
    ),
    "requests": Capability(_module("requests"), "Install requests (make setup)."),
    "river": Capability(_module("river"), "Install river (make setup)."),
    "scikit-learn": Capability(_module("sklearn"), "Install scikit-learn (make setup)."),
    "systemd-analyze": Capability(
        lambda: shutil.which("systemd-analyze") is not None, "Install systemd."
    ),
    "tmpfs": Capability(_tmpfs, "Run as root where file systems may be mounted."),
    "vowpalwabbit": Capability(_module("vowpalwabbit"), "Install vowpalwabbit (make setup)."),
}


# Names of the registry whose examples() need something of the machine.
_NEEDED_BY = {
    "extended": ["vowpalwabbit"],
    "gymnasium": ["gymnasium"],
    "lastfm-2k": ["implicit", "lastfm data", "pyarrow"],
    "lastfm-50": ["implicit", "lastfm data", "pyarrow"],
    "listening": ["implicit"],
    "sklearn": ["scikit-learn"],
    "vowpal-wabbit": ["vowpalwabbit"],
}


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    """The marks of a test that plays the examples of a name of the registry."""
    return [pytest.mark.needs(*_NEEDED_BY[name])] if name in _NEEDED_BY else []


@cache
def present(name: str) -> bool:
    return CAPABILITIES[name].found()


def required() -> set[str]:
    names = {name.strip() for name in os.environ.get("FAIRWOLFE_REQUIRE", "").split(",")} - {""}
    if "all" in names:
        names |= {name for name, one in CAPABILITIES.items() if not one.optional}
    return names - {"all"}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs(*capabilities): what the test needs of the machine; see capabilities.py"
    )
    if unknown := required() - set(CAPABILITIES):
        raise pytest.UsageError(
            f"FAIRWOLFE_REQUIRE names {sorted(unknown)}; known are {sorted(CAPABILITIES)} and 'all'"
        )


def pytest_runtest_setup(item: pytest.Item) -> None:
    names = [name for marker in item.iter_markers("needs") for name in marker.args]
    for name in names:
        if name not in CAPABILITIES:
            pytest.fail(f"no capability {name!r}; known are {sorted(CAPABILITIES)}", pytrace=False)
    # User properties travel with the report, also from a worker process to the terminal.
    item.user_properties.extend(("needs", name) for name in names)
    for name in names:
        if not present(name):
            sentence = f"{name} is missing. {CAPABILITIES[name].advice}"
            if name in required():
                pytest.fail(f"{sentence} (FAIRWOLFE_REQUIRE asks for it)", pytrace=False)
            pytest.skip(sentence)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts: dict[str, Counter[str]] = {name: Counter() for name in CAPABILITIES}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            for key, name in getattr(report, "user_properties", ()):
                if key == "needs":
                    counts[str(name)]["failed" if outcome == "error" else outcome] += 1

    terminalreporter.section("capabilities")
    width = max(map(len, CAPABILITIES))
    terminalreporter.line(f"{'':{width}}  {'found':>5} {'passed':>7} {'failed':>7} {'skipped':>7}")
    for name, count in counts.items():
        cells = " ".join(f"{count[outcome]:7}" for outcome in ("passed", "failed", "skipped"))
        found, advice = "-", ""
        if count:
            found = "yes" if present(name) else "no"
        if found == "no":
            advice = f"  {CAPABILITIES[name].advice}" + " (optional)" * CAPABILITIES[name].optional
        terminalreporter.line(f"{name:{width}}  {found:>5} {cells}{advice}")
