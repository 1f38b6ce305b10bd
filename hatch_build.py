"""Build the kernels for a wheel, for an editable install, or by `python hatch_build.py`.

A kernel is a Python file in Cython's pure-Python mode whose first line starts with `# cython:`.
Each becomes one extension module; what Cython's generated code has in common is one more.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
SOURCE = ROOT / "src"
SHARED = "fairwolfe.kernels._shared"
STAMP = SOURCE / "fairwolfe" / "kernels" / "_built.txt"
FLAGS = [
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-g0",
    "-DCYTHON_INLINE=inline __attribute__((always_inline))",
]
if sysconfig.get_platform().endswith("x86_64"):
    FLAGS.append("-mcpu=x86_64_v3" if "zig" in os.environ.get("CC", "") else "-march=x86-64-v3")
DIRECTIVES = {
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "freethreading_compatible": True,
}
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")  # a free-threaded build has no abi3


def kernels() -> list[Path]:
    """The files that are compiled."""
    files = sorted((SOURCE / "fairwolfe").rglob("*.py"))
    return [f for f in files if f.open(encoding="utf-8").readline().startswith("# cython:")]


def digest() -> str:
    """Of everything that the extension modules are made from."""
    import Cython

    total = hashlib.sha256(json.dumps([Cython.__version__, FLAGS, DIRECTIVES, LIMITED]).encode())
    for file in [*kernels(), *sorted((SOURCE / "fairwolfe").rglob("*.pxd"))]:
        total.update(file.relative_to(SOURCE).as_posix().encode() + b"\0" + file.read_bytes())
    return total.hexdigest()


def build(force: bool = False) -> list[Path]:
    """Compile what has changed; the paths of all extension modules."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    macros = [("Py_LIMITED_API", "0x030B0000")] if LIMITED else []
    common: Any = {
        "extra_compile_args": FLAGS,
        "define_macros": macros,
        "py_limited_api": LIMITED,
    }
    names = {".".join(f.relative_to(SOURCE).with_suffix("").parts): f for f in kernels()}
    extensions = [Extension(n, [str(f.relative_to(ROOT))], **common) for n, f in names.items()]
    shared = SHARED.replace(".", "/")
    extensions.append(Extension(SHARED, [f"src/{shared}.c"], **common))
    flags = hashlib.sha256(json.dumps(FLAGS).encode()).hexdigest()
    force = force or not STAMP.exists() or STAMP.read_text().split()[0] != flags
    modules = cythonize(
        extensions,
        build_dir="build/c",
        quiet=True,
        force=force,
        nthreads=os.cpu_count() or 1,
        shared_utility_qualified_name=SHARED,
        include_path=["src"],
        compiler_directives=DIRECTIVES,
    )
    command: Any = Distribution({"ext_modules": modules, "package_dir": {"": "src"}})
    command = command.get_command_obj("build_ext")
    command.inplace, command.force, command.parallel = True, force, os.cpu_count()
    command.ensure_finalized()
    command.run()
    STAMP.write_text(f"{flags}\n{digest()}\n")
    return [ROOT / command.get_ext_fullpath(n) for n in [*names, SHARED]]


class Hook(BuildHookInterface):  # type: ignore[type-arg]
    """hatchling calls this for a wheel and for an editable install."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        os.chdir(ROOT)
        for file in build(force=version != "editable"):
            build_data["force_include"][str(file)] = str(file.relative_to(SOURCE))
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        tag = f"cp311-abi3-{platform}" if LIMITED else f"{python}-{python}t-{platform}"
        build_data["tag"] = tag


if __name__ == "__main__":
    os.chdir(ROOT)
    build(force="--force" in sys.argv)
