"""The kernel pattern: addresses, roundings, the cache on disk. Processes are real ones."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairwolfe.kernels import compile as compiling
from fairwolfe.kernels.compile import call_back, distinct, fma, function_at, kernel
from fairwolfe.objectives import EqualExposure, GiniWelfare, Linear, Mapped

PACKAGE = Path(compiling.__file__).parents[1]
NOBODY = 65534

ONE_TO_ONE = "float64(int64, float64)"
call = function_at(ONE_TO_ONE)


@kernel(signature=ONE_TO_ONE)
def root(address: int, x: float) -> float:
    if x < 0.0:
        raise ValueError("no root")
    return float(np.sqrt(x))


@kernel(signature=ONE_TO_ONE)
def one_more(address: int, x: float) -> float:
    return 1.0 + call(address, np.int64(0), x)  # type: ignore[no-any-return]


@kernel
def nested(outer: int, inner: int, x: float) -> float:
    return call(outer, inner, x)  # type: ignore[no-any-return]


@kernel
def fused(a: float, b: float, c: float) -> float:
    return fma(a, b, c)


@kernel
def in_two_steps(a: float, b: float, c: float) -> float:
    return a * b + c


@kernel
def halve(times: int) -> float:
    x = 1.0
    for _ in range(times):
        x = 0.5 * x + 1.0
    return x


def run(
    code: str, packages: Path, cache: Path, module: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that finds fairwolfe in a folder and has its own cache."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA", "PYTHON"))}
    environment |= {"PYTHONPATH": str(packages), "FAIRWOLFE_CACHE": str(cache)}
    command = [sys.executable, "-W", "error", "-m" if module else "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=packages
    )
    assert done.returncode == 0, done.stderr
    return done


# --- functions as data -----------------------------------------------------------------------


def test_a_kernel_calls_another_by_its_address() -> None:
    assert nested(one_more.address, root.address, 9.0) == 4.0


def test_an_error_comes_back_through_addresses() -> None:
    with pytest.raises(ValueError, match="no root"):
        nested(one_more.address, root.address, -1.0)


def test_an_address_is_exact_in_a_float() -> None:
    assert int(float(root.address)) == root.address


def test_an_address_needs_a_signature() -> None:
    with pytest.raises(TypeError, match="fused declares no signature"):
        _ = fused.address


def test_nested_objectives_agree_with_the_chain_rule() -> None:
    matrix = np.array([[1.0, 0.5, 0.0], [0.0, -1.0, 2.0], [0.3, 0.3, 0.3]])
    weights = np.array([1.0, 0.0, -2.0])
    inner = 2.0 * GiniWelfare() + EqualExposure()
    f = Linear(weights.tolist()) + 3.0 * Mapped(inner, matrix.tolist())
    z = np.array([0.2, 0.9, 0.4])
    x = matrix @ z  # ascending order: second, third, first
    assert x.argsort().tolist() == [1, 2, 0]
    gini = np.array([1.0, 3.0, 2.0]) / 3.0
    centred = x - x.mean()
    slope = 2.0 * gini - centred / np.linalg.norm(centred) / 3.0
    np.testing.assert_allclose(f.gradient(z), weights + 3.0 * matrix.T @ slope, rtol=1e-14)


@pytest.mark.parametrize("operation", [fma, distinct, call_back, call])
def test_operations_of_kernels_cannot_be_called_from_python(operation: Any) -> None:
    with pytest.raises(TypeError, match="can be called inside a kernel only"):
        operation(1.0, 2.0, 3.0)


# --- arithmetic ------------------------------------------------------------------------------


def test_fma_rounds_once() -> None:
    a = 1.0 + 2.0**-30
    c = -(1.0 + 2.0**-29)
    assert fused(a, a, c) == 2.0**-60  # a * a = 1 + 2^-29 + 2^-60, whose last term a double drops
    assert in_two_steps(a, a, c) == 0.0


def test_kernels_release_the_interpreter() -> None:
    halve(1)
    took = [0.0]

    def work() -> None:
        start = time.perf_counter()
        halve(200_000_000)
        took[0] = time.perf_counter() - start

    thread = threading.Thread(target=work)
    ticks = 0
    thread.start()
    while thread.is_alive():
        time.sleep(0.001)
        ticks += 1
    # A kernel that kept the interpreter would let this thread wake up only before and after it.
    assert took[0] > 0.1
    assert ticks > 20


# --- what a process compiles, and what it finds ----------------------------------------------

NESTED = """
import json
import re
from pathlib import Path

import numpy as np

from fairwolfe.kernels import compile as compiling
from fairwolfe.kernels.linalg import add_scaled
from fairwolfe.objectives import AtLeast, EqualExposure, GiniWelfare, Linear, Mapped

def packed():
    add_scaled.address
    if compiling.compilations() == 0:
        return None  # a kernel that came from the cache cannot be inspected
    text = "".join(add_scaled.dispatcher.inspect_asm().values())
    return len(re.findall(r"vfn?m(?:add|sub)\\d+pd|fml[as]\\s+v\\d+[.]2d", text))

fused = packed()
z = np.sin(np.arange(40.0))
inner = 2.0 * GiniWelfare() + EqualExposure().on(0, 7, 3)
objectives = [
    inner,
    Linear(np.cos(z)) + AtLeast(0.3, penalty=2.0),
    0.5 * Mapped(inner, np.outer(np.ones(9), z)[:8] + np.eye(8, 40)) + GiniWelfare().on(*range(5)),
]
gradients = [f.gradient(z) for f in objectives]
gradients += [f.envelope_gradient(z, step) for f in objectives for step in (1e-3, 1.0)]

from numba import config

print(json.dumps({
    "compiled": compiling.compilations(),
    "fused": fused,
    "bits": [g.tobytes().hex() for g in gradients],
    "folder": str(compiling._kernel_folder(compiling._PACKAGE)),
    "numba's folder": config.CACHE_DIR,
}))
"""


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same gradients in a process with an empty cache, and in the next one."""
    packages = tmp_path_factory.mktemp("packages")
    # A copy, so that editing the sources during a run cannot come between the two.
    shutil.copytree(PACKAGE, packages / "fairwolfe", ignore=shutil.ignore_patterns("__pycache__"))
    cache = tmp_path_factory.mktemp("cache")
    first, second = (json.loads(run(NESTED, packages, cache).stdout) for _ in range(2))
    return first, second


def test_a_second_process_compiles_nothing(
    processes: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    first, second = processes
    assert first["compiled"] > 5
    assert second["compiled"] == 0
    assert first["folder"] == second["folder"]


def test_compiled_and_loaded_kernels_give_the_same_bits(
    processes: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    first, second = processes
    assert len(first["bits"]) == 9
    assert first["bits"] == second["bits"]


def test_the_folder_of_numba_is_left_alone(
    processes: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    assert [process["numba's folder"] for process in processes] == ["", ""]


@pytest.mark.needs("fma-cpu")
def test_a_weighted_sum_of_rows_uses_packed_fused_instructions(
    processes: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    first, _ = processes
    assert first["fused"] >= 4  # the unrolled vector loop


def test_importing_objectives_loads_no_compiler() -> None:
    code = "import sys, fairwolfe.objectives; print({'numba', 'llvmlite'} & set(sys.modules))"
    command = [sys.executable, "-W", "error", "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "set()\n"


# --- the cache folder ------------------------------------------------------------------------

CALLEE = """
from fairwolfe.kernels.compile import kernel

@kernel
def scaled(x: float) -> float:
    return 2.0 * x
"""

CALLER = """
from fairwolfe.kernels.compile import kernel
from {package}.callee import scaled

@kernel(signature="float64(float64)")
def scaled_plus_one(x: float) -> float:
    return scaled(x) + 1.0
"""

ASK = """
import warnings
from pathlib import Path

import {package}.caller
from fairwolfe.kernels import compile as compiling

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    answers = [{package}.caller.scaled_plus_one(x) for x in (3.0, 4.0)]
folder = compiling._kernel_folder(Path({package}.caller.__file__).parent)
print(*answers, compiling.compilations(), folder)
for warning in caught:
    print(warning.category.__name__, warning.message)
"""


def ask(packages: Path, cache: Path, package: str = "fairwolfe", before: str = "") -> list[str]:
    """Two answers, how many functions were compiled and the folder used; then warnings."""
    code = before + ASK.format(package=package)
    first, *warned = run(code, packages, cache).stdout.splitlines()
    return [*first.split(), *warned]


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Small packages with two kernels each: one of the same name, and one of somebody else."""
    folder = tmp_path / "packages"
    for package in ("fairwolfe", "mine"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").touch()
        (folder / package / "callee.py").write_text(CALLEE)
        (folder / package / "caller.py").write_text(CALLER.format(package=package))
    for name in ("kernels/compile.py", "kernels/lean.py", "core/folders.py", "core/interrupts.py"):
        place = folder / "fairwolfe" / name
        place.parent.mkdir(exist_ok=True)
        (place.parent / "__init__.py").touch()
        shutil.copy(PACKAGE / name, place)
    return folder


@pytest.mark.parametrize("package", ["fairwolfe", "mine"])
def test_a_changed_callee_gives_another_folder(
    packages: Path, tmp_path: Path, package: str
) -> None:
    cache = tmp_path / "cache"
    before = ask(packages, cache, package)
    again = ask(packages, cache, package)
    callee = packages / package / "callee.py"
    callee.write_text(callee.read_text().replace("2.0", "3.0"))
    after = ask(packages, cache, package)
    assert before == ["7.0", "9.0", "2", before[3]]
    assert again == ["7.0", "9.0", "0", before[3]]
    assert after == ["10.0", "13.0", "2", after[3]]
    assert after[3] != before[3]


def test_two_processes_may_fill_one_cache(packages: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: ask(packages, cache), range(2))
    assert first[:2] == second[:2] == ["7.0", "9.0"]
    assert ask(packages, cache)[2] == "0"


def test_old_folders_are_removed(packages: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    day = 24 * 3600.0
    ages = {"kernels-old": 31 * day, "kernels-recent": 29 * day, "downloads": 365 * day}
    for name, age in ages.items():
        folder = cache / name
        folder.mkdir(parents=True)
        (folder / "something").touch()
        os.utime(folder, (time.time() - age,) * 2)
    used = Path(ask(packages, cache)[3]).name
    assert {folder.name for folder in cache.iterdir()} == {"kernels-recent", "downloads", used}


def test_an_impossible_folder_is_a_warning(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    *answers, warned = ask(packages, tmp_path / "file" / "cache")
    assert answers == ["7.0", "9.0", "2", "None"]
    assert re.match(r"RuntimeWarning kernels cannot be kept in .*; set FAIRWOLFE_CACHE", warned)


@pytest.fixture
def read_only(packages: Path) -> Iterator[Path]:
    """A warmed cache that may be read but not written."""
    # Not below tmp_path, which is closed to other users.
    cache = Path(tempfile.mkdtemp())
    ask(packages, cache)
    paths = [cache, *cache.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield cache
    for path in paths:
        path.chmod(0o755)
    shutil.rmtree(cache)


# The superuser may write everywhere, so it looks for its folder as somebody else, who may not read
# the sources below tmp_path: their digest is taken before.
AS_SOMEBODY_ELSE = f"""
import os
from pathlib import Path
from fairwolfe.kernels import compile as compiling

package = compiling._PACKAGE
compiling._digest(package)
user = os.geteuid() if hasattr(os, "geteuid") else 1
if user == 0:
    os.seteuid({NOBODY})
compiling._kernel_folder(package)
if user == 0:
    os.seteuid(0)
"""


def test_a_read_only_folder_is_used_by_way_of_a_copy(packages: Path, read_only: Path) -> None:
    before = sorted(read_only.rglob("*"))
    *answers, folder = ask(packages, read_only, before=AS_SOMEBODY_ELSE)
    assert answers == ["7.0", "9.0", "0"]
    assert not Path(folder).is_relative_to(read_only)
    assert not Path(folder).exists()  # removed at the end of the process
    assert sorted(read_only.rglob("*")) == before


def test_kernels_can_be_compiled_ahead(packages: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    said = run("fairwolfe.kernels.compile", packages, cache, module=True).stdout
    assert said == "1 kernels ready\n"
    assert ask(packages, cache)[2] == "0"


# --- waiting for kernels ---------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGINT for a process there")
def test_an_exception_of_a_signal_handler_waits_for_the_work() -> None:
    done: list[str] = []

    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)  # the main thread has been interrupted by now
        done.append("work")

    with pytest.raises(KeyboardInterrupt):
        compiling._prepare([work, lambda: done.append("the next")])
    assert done == ["work"]


def test_an_error_of_the_work_is_raised_where_it_was_asked_for() -> None:
    def work() -> None:
        raise RuntimeError("no room")

    with pytest.raises(RuntimeError, match="no room"):
        compiling._prepare([work])


def test_the_clock_stands_still_while_kernels_are_prepared() -> None:
    began, started = compiling.clock(), time.perf_counter()
    compiling._prepare([lambda: time.sleep(0.5)])
    waited = time.perf_counter() - started
    assert compiling.clock() - began <= waited - 0.5


def test_a_work_inside_a_work_is_done_at_once() -> None:
    order: list[str] = []

    def outer() -> None:
        compiling._prepare([lambda: order.append("inner")])
        order.append("outer")

    compiling._prepare([outer])
    assert order == ["inner", "outer"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("quiet", ["", "1"])
def test_compiling_is_announced_after_a_second(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, quiet: str
) -> None:
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "__stderr__", stream)
    monkeypatch.setattr(compiling, "_QUIET_SECONDS", 0.0)
    monkeypatch.setenv("FAIRWOLFE_QUIET", quiet)
    made = [0]
    monkeypatch.setattr(compiling, "compilations", lambda: made[0])
    notice = compiling._Notice(3)
    notice.report()  # loading only: nothing to report
    made[0] = 1
    for notice.done in range(3):
        notice.report()
    notice.done = 3
    notice.close()
    told = re.sub(r"after \d+\.\d s *", "after S s", stream.getvalue())
    line = "compiling kernels, once on this machine: {} of 3"
    last = "kernels ready: 3 of 3 after S s\n"
    if quiet:
        assert told == ""
    elif terminal:
        assert told == "".join(f"\r{line.format(i)}" for i in (1, 2, 3)) + f"\r{last}"
    else:
        assert told == f"{line.format(1)}\n{last}"
