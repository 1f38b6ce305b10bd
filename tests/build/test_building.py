"""What is built, when, with which compiler and for which processor."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from fairwolfe.kernels import loading
from tests.build.trees import ROOT, hatch, run, small_tree

BUILT = "fairwolfe/kernels/_built.txt"


def build(tree: Path, *options: str) -> str:
    """What the build prints."""
    return run(tree, sys.executable, "hatch_build.py", *options).stdout


def stale(tree: Path) -> list[str]:
    code = "import hatch_build; print(*hatch_build.stale())"
    return run(tree, sys.executable, "-c", code, env={"PYTHONPATH": str(tree)}).stdout.split()


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = small_tree(tmp_path_factory.mktemp("tree"))
    assert stale(tree) == ["not", "built"]
    said = build(tree)
    assert re.fullmatch(r"Building 2 extension modules with \S+; about \d+ s, once\n", said)
    return tree


@pytest.fixture
def built(once: Path, tmp_path: Path) -> Path:
    """A copy of a small tree that was built."""
    return shutil.copytree(once, tmp_path / "copy")


def test_this_checkout_is_not_stale() -> None:
    assert loading.stale() == ""


@pytest.mark.needs("c compiler")
def test_what_has_changed_is_compiled_and_nothing_else(built: Path) -> None:
    tree = built
    package = tree / "src" / "fairwolfe" / "kernels"
    assert build(tree) == ""
    assert stale(tree) == []
    asked = "from fairwolfe.kernels.triangle import triangle; print(triangle(4))"
    isolated = {"PYTHONPATH": str(tree / "src")}
    assert run(tree, sys.executable, "-c", asked, env=isolated).stdout == "10\n"

    # Older than the module, as of a file that was copied with its time: content decides.
    kernel = package / "triangle.py"
    kernel.write_text(kernel.read_text().replace("n + 1)", "n + 2)"))
    os.utime(kernel, (0, 0))
    assert stale(tree) == ["fairwolfe/kernels/triangle.py"]
    says = "from fairwolfe.kernels.loading import stale; print(stale())"
    sentence = run(tree, sys.executable, "-c", says, env=isolated).stdout
    assert sentence == (
        "the kernels were built from other sources (fairwolfe/kernels/triangle.py): "
        "run `make build`\n"
    )
    assert build(tree).startswith("Building 1 extension module with")
    assert run(tree, sys.executable, "-c", asked, env=isolated).stdout == "15\n"

    # A declaration that it uses; one that it does not use; one that is gone.
    (package / "sizes.pxd").write_text("ctypedef long Size\n")
    assert build(tree).startswith("Building 1 extension module with")
    (package / "other.pxd").write_text("ctypedef long Other\n")
    assert stale(tree) == ["fairwolfe/kernels/other.pxd"]
    assert build(tree) == ""
    assert stale(tree) == []
    (package / "other.pxd").unlink()
    assert stale(tree) == ["fairwolfe/kernels/other.pxd"]
    assert build(tree) == ""

    # A kernel that was removed leaves nothing that could be imported; one that is lost comes back.
    kernel.rename(package / "sum.py")
    assert stale(tree)[0] == "fairwolfe/kernels/sum.py"
    assert build(tree).startswith("Building 1 extension module with")
    assert sorted(f.name.split(".")[0] for f in package.glob("*.so")) == ["_shared", "sum"]
    next(package.glob("sum.*.so")).unlink()
    assert stale(tree) == ["fairwolfe.kernels.sum"]
    assert build(tree).startswith("Building 1 extension module with")


@pytest.mark.needs("c compiler")
def test_new_settings_compile_everything(built: Path) -> None:
    script = built / "hatch_build.py"
    text = script.read_text()
    script.write_text(text.replace('"cdivision": True', '"cdivision": False'))
    assert stale(built) == ["directives"]
    script.write_text(text.replace('"-O3"', '"-O0"'))
    assert stale(built) == ["flags"]
    manifest = built / "src" / BUILT
    manifest.write_text(re.sub(r"(?m)^cython .*", "cython 3.0", manifest.read_text()))
    assert stale(built) == ["cython", "flags"]
    assert build(built).startswith("Building 2 ")
    assert stale(built) == []


@pytest.mark.needs("c compiler")
def test_a_file_that_does_not_compile_is_not_taken_for_built(built: Path) -> None:
    tree = built
    kernel = tree / "src" / "fairwolfe" / "kernels" / "triangle.py"
    text = kernel.read_text()
    kernel.write_text(text.replace("total += i", "total += nothing"))
    run(tree, sys.executable, "hatch_build.py", code=1)
    assert stale(tree) == ["fairwolfe/kernels/triangle.py"]
    kernel.write_text(text)
    assert stale(tree) == []


def test_no_compiler_is_a_sentence_and_an_exit_code_of_its_own(tmp_path: Path) -> None:
    tree = small_tree(tmp_path)
    (tree / "empty").mkdir()
    without = tree / "without_ziglang.py"
    without.write_text(
        "import importlib.util as u, sys\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'ziglang' else find(name, *a)\n"
        "import hatch_build\n"
        "sys.exit(hatch_build.main([]))\n"
    )
    done = run(tree, sys.executable, without, code=3, env={"PATH": str(tree / "empty")})
    assert done.stdout == ""
    assert "There is no C compiler here" in done.stderr
    assert "requirements/compiler.txt" in done.stderr


# --- the processor ---------------------------------------------------------------------------


def test_the_instruction_set_is_that_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    module = hatch()
    monkeypatch.delenv("FAIRWOLFE_ARCH", raising=False)
    monkeypatch.setattr(module, "machine", lambda: "x86_64")
    monkeypatch.setattr(module, "processor", lambda: module.level("x86-64-v4"))
    assert module.architecture() == "x86-64-v3"  # AVX-512 brings nothing here
    monkeypatch.setattr(module, "processor", lambda: module.level("x86-64-v3") - {"fma"})
    assert module.architecture() == "x86-64"
    monkeypatch.setattr(module, "processor", set)
    assert module.architecture() == "x86-64"
    monkeypatch.setattr(module, "machine", lambda: "aarch64")
    assert module.architecture() == "armv8-a"
    monkeypatch.setenv("FAIRWOLFE_ARCH", "native")
    assert module.architecture() == "native"


def test_each_compiler_is_told_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    module = hatch()
    cc, zig = module.Compiler(["cc"], False), module.Compiler(["zig", "cc"], True)
    assert cc.options("x86-64-v3") == ["-march=x86-64-v3"]
    assert cc.options("armv8-a") == ["-march=armv8-a"]
    assert cc.options("") == []
    monkeypatch.setattr(module.sys, "platform", "linux")
    monkeypatch.setattr(module, "machine", lambda: "x86_64")
    assert zig.options("x86-64-v3")[:2] == ["-target", "x86_64-linux-gnu.2.28"]
    assert zig.options("x86-64-v3")[-1] == "-mcpu=x86_64_v3"
    assert zig.options("x86-64")[-1] == "-mcpu=x86_64"
    monkeypatch.setattr(module, "machine", lambda: "aarch64")
    assert zig.options("armv8-a")[:2] == ["-target", "aarch64-linux-gnu.2.28"]
    assert zig.options("armv8-a")[-1] == "-mcpu=generic"


def test_compiled_code_may_not_contract_or_reorder() -> None:
    flags = hatch().FLAGS
    assert "-ffp-contract=off" in flags
    assert not {"-ffast-math", "-Ofast", "-march=native", "-funsafe-math-optimizations"} & set(
        flags
    )


def test_the_manifest_says_what_the_processor_must_have() -> None:
    told = hatch().recorded()
    needed = set(told.get("needs", "").split())
    assert needed == hatch().needs(told["architecture"])
    if told["architecture"] == "x86-64-v3":
        assert {"avx2", "fma", "bmi2"} <= needed


def test_zig_is_in_no_lock_but_its_own() -> None:
    locks = {path.name: path.read_text() for path in (ROOT / "requirements").glob("*.txt")}
    assert [name for name, text in locks.items() if "ziglang==" in text] == ["compiler.txt"]
    assert len(re.findall(r"(?m)^\S", locks["compiler.txt"])) == 1
