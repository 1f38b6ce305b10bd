"""`make wheel`: one file for every Python from 3.11 on, which needs no compiler to run."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.build.trees import ROOT, environment, hatch, run, virtual_environment, whole_tree
from tests.capabilities import installing, interpreter

CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made by `make wheel`, with ziglang from its lock."""
    tree = whole_tree(tmp_path_factory.mktemp("wheel") / "tree")
    virtual_environment(tree)
    subprocess.run([tree / ".venv" / "bin" / "python", "-m", "ensurepip"], check=True)
    said = run(tree, "make", "wheel").stdout
    assert re.search(r"Building \d+ extension modules with ziglang", said)
    assert not list((tree / "src").rglob("*.so"))  # the modules in place stay as they are
    (made,) = (tree / "dist").glob("*.whl")
    return made


@slow
@pytest.mark.needs("package index")
def test_the_wheel_holds_modules_and_no_generated_source(wheel: Path) -> None:
    version = CONFIG["project"]["version"]
    machine = hatch().machine()
    if sys.platform == "linux":
        assert wheel.name == f"fairwolfe-{version}-cp311-abi3-manylinux_2_28_{machine}.whl"
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        modules = {name: packed.read(name) for name in names if name.endswith(".so")}
        (about,) = (name for name in names if name.endswith("dist-info/WHEEL"))
        said = packed.read(about).decode()
        manifest = packed.read("fairwolfe/kernels/_built.txt").decode()
    assert "Root-Is-Purelib: false" in said
    expected = {hatch().library(name, Path()).as_posix() for name in hatch().kernels()}
    expected.add(hatch().library(hatch().SHARED, Path()).as_posix())
    assert set(modules) == expected
    assert not [n for n in names if n.endswith((".c", ".pxd", ".pyx", ".h")) or "conftest" in n]
    assert "compiler ziglang\n" in manifest
    if machine == "x86_64":
        assert "architecture x86-64-v3\n" in manifest
    # What the tag promises: nothing of a newer C library, and no library beyond it.
    for name, data in modules.items():
        needed = {tuple(map(int, v.split(b"."))) for v in re.findall(rb"GLIBC_([\d.]+)\0", data)}
        assert max(needed, default=(2, 0)) <= (2, 28), name
        libraries = set(re.findall(rb"\0(lib[\w+-]+\.so[.\d]*)\0", data))
        assert libraries <= {b"libc.so.6", b"libm.so.6", b"libpthread.so.0", b"libdl.so.2"}, name


@slow
@pytest.mark.parametrize(
    "series",
    [
        pytest.param(series, marks=pytest.mark.needs(f"python {series}", "package index"))
        for series in ("3.11", "3.12", "3.13")
    ],
)
def test_the_wheel_works_without_a_compiler(wheel: Path, tmp_path: Path, series: str) -> None:
    base = interpreter(series)
    assert base is not None
    made = tmp_path / "venv"
    subprocess.run([base, "-m", "venv", "--without-pip", str(made)], check=True)
    locked = (ROOT / "requirements" / "demo.txt").read_text()
    pins = tmp_path / "versions.txt"
    pins.write_text("\n".join(re.findall(r"^([\w.-]+==\S+)", locked, re.MULTILINE)))
    python = made / "bin" / "python"
    install = [*installing(python), "--constraint", str(pins), str(wheel)]
    subprocess.run(install, check=True, env=environment(), capture_output=True)
    alone = {"PATH": str(made / "bin"), "FAIRWOLFE_CACHE": str(tmp_path / "cache")}
    run(tmp_path, python, "-W", "error", ROOT / "tests" / "build" / "run_installed.py", env=alone)
    run(tmp_path, python, "-c", "import Cython", code=1, env=alone)


def test_other_platforms_are_configured() -> None:
    told = CONFIG["tool"]["cibuildwheel"]
    assert told["build"] == "cp311-*"  # abi3: one wheel is all
    assert told["linux"]["environment"] == {"CC": "ziglang"}
    script = told["test-command"].split("{project}/")[1]
    assert (ROOT / script).is_file()
