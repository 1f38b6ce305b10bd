"""Three machines: one with a C compiler, one without, one whose Pythons have no headers."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.build.trees import run, small_tree, tools, virtual_environment, whole_tree

LINE = r"Building (\d+) extension modules with (\S+); about \d+ s, once"
LOADED = """
from importlib import import_module
from fairwolfe.kernels import loading
built = [line.split()[0] for line in loading._MANIFEST.read_text().splitlines()]
modules = [import_module(name) for name in built if name.startswith("fairwolfe.")]
print(len(modules), {module.__file__[-3:] for module in modules})
"""


@pytest.mark.needs("c compiler")
def test_with_a_compiler_make_builds_once(tmp_path: Path) -> None:
    tree = small_tree(tmp_path)
    virtual_environment(tree)
    said = run(tree, "make", "build").stdout
    assert re.fullmatch(LINE + "\n", said), said
    assert run(tree, "make", "build").stdout == ""
    kernel = tree / "src" / "fairwolfe" / "kernels" / "triangle.py"
    kernel.write_text(kernel.read_text() + "\n")
    assert run(tree, "make", "build").stdout.startswith("Building 1 extension module with")
    run(tree, "make", "clean")
    assert not list(tree.rglob("*.so"))
    assert not list(tree.rglob("_built.txt"))


@pytest.mark.parametrize("target", ["demo", "test", "wheel"])
def test_every_target_builds_or_checks_first(target: str, tmp_path: Path) -> None:
    tree = small_tree(tmp_path)
    planned = run(tree, "make", "--dry-run", target).stdout
    assert planned.index("requirements/demo.txt") < planned.index(
        "hatchling build" if target == "wheel" else "hatch_build.py ||"
    )


def without_headers(folder: Path, name: str) -> None:
    """A Python whose headers are missing, on the PATH."""
    (folder / "sitecustomize.py").write_text(
        "import sysconfig\n"
        "path = sysconfig.get_path\n"
        "sysconfig.get_path = lambda name, *a, **k: (\n"
        "    '/nowhere/include' if name == 'include' else path(name, *a, **k))\n"
    )
    stub = folder / name
    stub.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}" exec "{sys.executable}" "$@"\n')
    stub.chmod(0o755)


@pytest.mark.parametrize(
    ("manager", "line"),
    [
        ("apt-get", "apt-get install python3-dev"),
        ("dnf", "dnf install python3-devel"),
        ("apk", "apk add python3-dev"),
        ("brew", "brew install python3"),
    ],
)
def test_without_headers_make_stops_with_a_line_to_paste(
    tmp_path: Path, manager: str, line: str
) -> None:
    tree = small_tree(tmp_path / "tree")
    path = tools(tmp_path / "bin")
    without_headers(path, "python3")
    (path / manager).write_text("#!/bin/sh\nexit 1\n")
    (path / manager).chmod(0o755)
    done = run(tree, "make", "demo", code=2, env={"PATH": str(path)})
    assert len(done.stdout.splitlines()) == 1
    assert re.search(rf": (sudo )?{line}$", done.stdout.strip())
    assert not (tree / ".venv").exists()


def test_a_python_with_headers_is_preferred(tmp_path: Path) -> None:
    tree = small_tree(tmp_path / "tree")
    path = tools(tmp_path / "bin")
    without_headers(path, "python3")
    (path / "python3.11").write_text(f'#!/bin/sh\necho chosen >&2; exec "{sys.executable}" "$@"\n')
    (path / "python3.11").chmod(0o755)
    done = run(tree, "make", ".venv/bin/python", env={"PATH": str(path)})
    assert "Making .venv with Python" in done.stdout
    assert "chosen" in done.stderr
    # One that was named is used or refused.
    shutil.rmtree(tree / ".venv")
    named = f"PYTHON={path / 'python3'}"
    run(tree, "make", ".venv/bin/python", named, code=2, env={"PATH": str(path)})
    assert not (tree / ".venv").exists()


@pytest.mark.slow
@pytest.mark.needs("package index")
def test_without_a_compiler_make_takes_that_of_ziglang(tmp_path: Path) -> None:
    tree = whole_tree(tmp_path / "tree")
    path = tools(tmp_path / "bin")
    (path / "python3").symlink_to(Path(sys.executable).resolve())
    done = run(tree, "make", "build", env={"PATH": str(path)})
    told = re.findall(LINE, done.stdout)
    assert [compiler for _, compiler in told] == ["ziglang"]
    variables = {"PATH": str(path), "PYTHONPATH": str(tree / "src")}
    said = run(tree, ".venv/bin/python", "-c", LOADED, env=variables).stdout
    assert said == f"{told[0][0]} {{'.so'}}\n"
    assert run(tree, "make", "build", env={"PATH": str(path)}).stdout == ""
