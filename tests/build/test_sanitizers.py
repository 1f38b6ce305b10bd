"""Rounds of every kernel with AddressSanitizer, UBSan and LeakSanitizer: pointers are unchecked.

`make asan` runs this file. The kernels are built into a folder of their own, with a copy of the
package around them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.build.trees import KERNEL, ROOT, environment, run, small_tree

DRIVER = ROOT / "tests" / "build" / "asan_rounds.py"
ROUNDS = 100_000

pytestmark = [pytest.mark.slow, pytest.mark.needs("gcc")]


def preload() -> str:
    """The libraries that must be loaded before Python."""
    found = []
    for name in ("libasan.so", "libubsan.so"):
        command = ["gcc", f"-print-file-name={name}"]
        path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        assert Path(path).is_absolute(), f"{name} is missing: install the libraries of gcc"
        found.append(path)
    return " ".join(found)


def sanitized(
    package: Path, *command: str, leaks: bool = False
) -> subprocess.CompletedProcess[str]:
    """Python with the sanitizers, and its own memory from malloc."""
    variables = {
        "LD_PRELOAD": preload(),
        # Python itself leaks a little at its end: with leaks the report counts, not the exit code.
        "ASAN_OPTIONS": "detect_leaks=1:exitcode=0" if leaks else "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(package),
    }
    return subprocess.run(
        [sys.executable, *command],
        env=environment(variables),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sanitized")
    run(ROOT, sys.executable, "hatch_build.py", "--sanitize", folder, env={"CC": "gcc"})
    return folder


@pytest.mark.timeout(1800)
def test_no_invalid_access_in_rounds_of_every_kernel(package: Path) -> None:
    done = sanitized(package, str(DRIVER), str(ROUNDS))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert f": {ROUNDS} rounds" in done.stdout


def leaked(package: Path, *command: str) -> int:
    """Allocations of the kernels that nobody can reach at the end."""
    done = sanitized(package, *command, leaks=True)
    assert done.returncode == 0, done.stdout + done.stderr
    stacks = re.findall(r"(?ms)^(?:Direct|Indirect) leak of .*?\n\n", done.stderr)
    ours = [stack for stack in stacks if f"{package}/fairwolfe/kernels/" in stack]
    return sum(int(re.findall(r"in (\d+) object", stack)[0]) for stack in ours)


def test_no_leak_grows_with_the_rounds(package: Path) -> None:
    # What a module keeps for its lifetime, Python does not free at its end: a constant.
    assert leaked(package, str(DRIVER), "400") == leaked(package, str(DRIVER), "200")


# Memory that is never freed, and a read behind its end where n is even.
BROKEN = (
    KERNEL.replace(
        "import cython\n", "import cython\nfrom cython.cimports.libc.stdlib import calloc\n"
    )
    .replace(
        "total: Size = 0",
        "kept = cython.cast(cython.p_long, calloc(n + n % 2, 8))\n    total: Size = 0",
    )
    .replace("total += i", "total += i + kept[i]")
)


def test_what_is_wrong_is_noticed(tmp_path: Path) -> None:
    tree = small_tree(tmp_path / "tree")
    (tree / "src" / "fairwolfe" / "kernels" / "triangle.py").write_text(BROKEN)
    folder = tmp_path / "sanitized"
    run(tree, sys.executable, "hatch_build.py", "--sanitize", folder, env={"CC": "gcc"})
    code = "import sys; from fairwolfe.kernels.triangle import triangle as t\n"
    done = sanitized(folder, "-c", code + "print(t(4))")
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
    assert "triangle" in done.stderr
    often = code + "for _ in range(int(sys.argv[1])): t(3)"
    assert 90 <= leaked(folder, "-c", often, "200") - leaked(folder, "-c", often, "100") <= 110
