"""A small tree with one kernel, which builds in seconds, and what is on the PATH of a machine."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
BUILD_FILES = (
    "hatch_build.py",
    "Makefile",
    "pyproject.toml",
    "requirements",
    "README.md",
    "LICENSE",
)
# What make and its recipes call, and no compiler.
TOOLS = ("make", "sh", "env", "rm", "mkdir", "touch", "find", "uname", "id", "echo", "cat")

KERNEL = '''# cython: language_level=3
"""A kernel for tests."""

import cython
from cython.cimports.fairwolfe.kernels.sizes import Size


def triangle(n: Size) -> Size:
    """1 + ... + n.

    >>> triangle(4)
    10
    """
    i: Size
    total: Size = 0
    for i in range(1, n + 1):
        total += i
    return total
'''


def hatch() -> ModuleType:
    """hatch_build.py of this tree."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def small_tree(folder: Path) -> Path:
    """What the build reads, and a package of one kernel, fairwolfe.kernels.triangle."""
    folder.mkdir(exist_ok=True)
    for name in BUILD_FILES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    package = folder / "src" / "fairwolfe"
    (package / "kernels").mkdir(parents=True)
    (package / "__init__.py").touch()
    for name in ("errors.py", "kernels/__init__.py", "kernels/loading.py"):
        shutil.copy(ROOT / "src" / "fairwolfe" / name, package / name)
    (package / "kernels" / "triangle.py").write_text(KERNEL)
    (package / "kernels" / "sizes.pxd").write_text("ctypedef Py_ssize_t Size\n")
    return folder


def whole_tree(folder: Path) -> Path:
    """A copy of this tree, without what tests and builds leave in it."""
    names = (".*", "__pycache__", "_build", "gallery", "build", "dist", "out", "*.so", "_built.txt")
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*names))
    shutil.copytree(ROOT / "tests" / "build", folder / "tests" / "build")
    shutil.copy(ROOT / ".gitignore", folder)
    return folder


def virtual_environment(tree: Path) -> None:
    """.venv as make leaves it, with the packages of this Python instead of installed ones."""
    made = tree / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    inside = subprocess.run(
        [made / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    Path(inside, "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for stamp in ("demo.stamp", "dev.stamp", "package.stamp"):
        (made / stamp).touch()


def tools(folder: Path, *more: str) -> Path:
    """A folder for the PATH with what make needs, and no compiler."""
    folder.mkdir()
    for name in (*TOOLS, *more):
        found = shutil.which(name)
        assert found is not None, name
        (folder / name).symlink_to(found)
    return folder


def environment(more: dict[str, str] | None = None) -> dict[str, str]:
    """Without what a caller has set for itself."""
    ours = ("PYTHON", "VIRTUAL_ENV", "FAIRWOLFE", "COV", "MAKE", "CC", "LDSHARED", "CFLAGS", "ZIG")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    return kept | (more or {})


def run(
    tree: Path, *command: str | Path, code: int = 0, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command in a tree, with some variables; its exit code must be `code`."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=tree,
        env=environment(env),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done
