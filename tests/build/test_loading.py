"""A kernel that cannot be loaded is a typed error with the remedy, not a crash."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from fairwolfe.errors import FairwolfeError, MissingKernels
from fairwolfe.kernels.loading import KernelFinder, check_processor
from tests.build.trees import ROOT, environment, hatch, run, small_tree

MANIFEST = "architecture x86-64-v3\nneeds avx2 fma\n"


@pytest.mark.parametrize("cython", ["with Cython", "without Cython"])
def test_a_kernel_that_is_not_built_is_named(tmp_path: Path, cython: str) -> None:
    tree = small_tree(tmp_path)
    bare = ["-S"] if cython == "without Cython" else []
    code = "import fairwolfe.kernels.triangle"
    done = run(
        tree, sys.executable, *bare, "-c", code, code=1, env={"PYTHONPATH": str(tree / "src")}
    )
    assert done.stderr.splitlines()[-1] == (
        "fairwolfe.errors.MissingKernels: fairwolfe.kernels.triangle is not built: "
        "run `make build` in the checkout, or install a wheel"
    )


def test_what_is_not_a_kernel_is_found_as_ever() -> None:
    import fairwolfe.kernels

    path = list(fairwolfe.kernels.__path__)
    assert KernelFinder.find_spec("json") is None
    assert KernelFinder.find_spec("fairwolfe.objectives") is None
    assert KernelFinder.find_spec("fairwolfe.kernels.nothing", path) is None
    found = KernelFinder.find_spec("fairwolfe.kernels.loading", path)
    assert found is not None
    assert found.origin == str(ROOT / "src" / "fairwolfe" / "kernels" / "loading.py")


def test_a_processor_that_lacks_instructions_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    manifest, processor = tmp_path / "built", tmp_path / "cpuinfo"
    manifest.write_text(MANIFEST)
    processor.write_text("processor\t: 0\nflags\t\t: fpu sse2 avx2 fma\n\nprocessor\t: 1\n")
    check_processor(manifest, processor)
    processor.write_text("processor\t: 0\nflags\t\t: fpu sse2 avx\n\nprocessor\t: 1\nflags : fma\n")
    with pytest.raises(MissingKernels, match=r"built for x86-64-v3.* lacks avx2, fma: build"):
        check_processor(manifest, processor)
    assert issubclass(MissingKernels, FairwolfeError)
    assert issubclass(MissingKernels, ImportError)
    # Where there is no list of instructions, or nothing is built: no opinion.
    processor.write_text("processor\t: 0\nFeatures\t: fp asimd\n")
    check_processor(manifest, processor)
    check_processor(manifest, tmp_path / "nothing")
    check_processor(tmp_path / "nothing", processor)
    manifest.write_text("architecture armv8-a\n")
    check_processor(manifest, processor)


@pytest.mark.skipif(not hatch().processor(), reason="only Linux on x86 lists its instructions")
def test_the_processor_is_looked_at_before_any_kernel_is_loaded(tmp_path: Path) -> None:
    tree = small_tree(tmp_path)
    package = tree / "src" / "fairwolfe" / "kernels"
    (package / "_built.txt").write_text("architecture x86-64-v9\nneeds avx9000\n")
    (package / "triangle.abi3.so").write_bytes(b"not loaded")
    code = "import fairwolfe.kernels.triangle"
    done = run(tree, sys.executable, "-c", code, code=1, env={"PYTHONPATH": str(tree / "src")})
    last = done.stderr.splitlines()[-1]
    assert last.startswith("fairwolfe.errors.MissingKernels: the kernels were built for x86-64-v9")


def test_looking_is_cheap() -> None:
    best = 1.0
    for _ in range(20):
        start = time.perf_counter()
        check_processor()
        best = min(best, time.perf_counter() - start)
    assert best < 0.002


def test_check_names_what_is_stale(tmp_path: Path) -> None:
    """`fairwolfe check` in a checkout whose kernels were built from other sources."""
    code = (
        "import fairwolfe.kernels.loading as loading\n"
        "loading._HERE = __import__('pathlib').Path('src/fairwolfe/kernels').resolve()\n"
        "from fairwolfe.cli import main\n"
        "import sys; sys.argv[1:] = ['check', 'nothing:Nothing']; main()\n"
    )
    tree = small_tree(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tree,
        env=environment({"PYTHONPATH": str(ROOT / "src")}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.splitlines()[0] == (
        "the kernels were built from other sources (not built): run `make build`"
    )
