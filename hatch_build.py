"""Build the kernels for a wheel, for an editable install, or by `python hatch_build.py`.

A kernel is a Python file in Cython's pure-Python mode whose first line starts with `# cython:`.
Each becomes one extension module; what Cython's generated code has in common is one more.

    python hatch_build.py                    compile what has changed, in place
    python hatch_build.py --force            compile everything, in place
    python hatch_build.py --sanitize FOLDER  a copy of the package with AddressSanitizer and UBSan
    python hatch_build.py --headers          whether this Python has its C headers

CC chooses the compiler (`CC=ziglang`: that of the wheel of this name), FAIRWOLFE_ARCH the
instruction set (`x86-64-v3`, `x86-64`, `armv8-a`, `native`). Exit code 2: Python's headers are
missing; 3: there is no C compiler.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any, NamedTuple

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # `--headers`, asked of a Python that has nothing installed
    BuildHookInterface = object  # type: ignore[assignment, misc]

ROOT = Path(__file__).resolve().parent
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "fairwolfe"
SHARED = "fairwolfe.kernels._shared"
MANIFEST = Path("fairwolfe", "kernels", "_built.txt")  # beside the modules, also in a wheel
FLAGS = [
    "-DNDEBUG",
    "-fPIC",
    "-fwrapv",
    "-O3",
    "-g0",
    # Bits do not depend on the compiler: a fused multiply-add only where the source has one.
    "-ffp-contract=off",
    # Without these gcc calls a function for a square root. They change no value.
    "-fno-math-errno",
    "-fno-trapping-math",
    # Functions whose sizes are constants must be inlined, or clang does not unroll their loops.
    "-DCYTHON_INLINE=inline __attribute__((always_inline))",
]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-O1", "-g"]
DIRECTIVES = {
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "freethreading_compatible": True,
}
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")  # a free-threaded build has no abi3
GLIBC = "2.28"  # the oldest that a module built by zig runs with

# The names in /proc/cpuinfo of what each level of x86-64 adds to the one before.
LEVELS = {
    "x86-64": "",
    "x86-64-v2": "cx16 lahf_lm pni popcnt sse4_1 sse4_2 ssse3",
    "x86-64-v3": "abm avx avx2 bmi1 bmi2 f16c fma movbe xsave",
    "x86-64-v4": "avx512bw avx512cd avx512dq avx512f avx512vl",
}


class BuildError(Exception):
    """The kernels cannot be built here; `code` is the exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


# --- the machine -----------------------------------------------------------------------------


def headers() -> bool:
    """Whether this Python has its C headers."""
    return Path(sysconfig.get_path("include"), "Python.h").is_file()


def headers_advice() -> str:
    """The line to paste where headers are missing, by the package manager on the PATH."""
    series = "{}.{}".format(*sys.version_info)
    told = "import sys; print('%d.%d' % sys.version_info[:2])"
    asked = [shutil.which("python3") or sys.executable, "-c", told]
    default = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    name = "python3" if default == series else f"python{series}"
    lines = {
        "apt-get": f"apt-get install {name}-dev",
        "dnf": f"dnf install {name}-devel",
        "apk": "apk add python3-dev",
        "brew": "brew install python3",
    }
    for command, line in lines.items():
        if shutil.which(command):
            root = command == "brew" or os.geteuid() == 0
            return line if root else f"sudo {line}"
    return "install the package with Python.h, or name another Python: make PYTHON=/path/to/python"


def machine() -> str:
    """x86_64, aarch64, ..."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def processor() -> set[str]:
    """The instruction sets of an x86 processor, as /proc/cpuinfo names them; empty if unknown."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    return set(next((x for x in text.splitlines() if x.startswith("flags")), "").split())


def level(name: str) -> set[str]:
    """What a level of x86-64 needs, all lower ones included."""
    names = list(LEVELS)[: list(LEVELS).index(name) + 1]
    return set(" ".join(LEVELS[n] for n in names).split())


def architecture() -> str:
    """FAIRWOLFE_ARCH, or the one for this machine; empty: the compiler's choice.

    Never `native`: what is built on one machine runs on others of its kind.
    """
    if chosen := os.environ.get("FAIRWOLFE_ARCH"):
        return chosen
    if machine() == "aarch64":
        return "armv8-a"  # it has fused multiply-add
    if machine() != "x86_64":
        return ""
    return "x86-64-v3" if level("x86-64-v3") <= processor() else "x86-64"


def needs(arch: str) -> set[str]:
    """What a processor must have to run what is built for `arch`; the package looks at import."""
    if arch == "native":
        return level("x86-64-v4") & processor()
    return level(arch) if arch in LEVELS else set()


# --- the compiler ----------------------------------------------------------------------------


class Compiler(NamedTuple):
    """A command, and whether it is zig's, which names targets in its own way."""

    command: list[str]
    zig: bool

    @property
    def name(self) -> str:
        """For people, and for the manifest."""
        return "ziglang" if self.zig else shlex.join(self.command)

    def options(self, arch: str) -> list[str]:
        """What selects the machine that code is for."""
        if not self.zig:
            return [f"-march={arch}"] if arch else []
        chosen = []
        if sys.platform == "linux":
            musl = "musl" in (sysconfig.get_config_var("SOABI") or "")
            chosen = ["-target", f"{machine()}-linux-" + ("musl" if musl else f"gnu.{GLIBC}")]
            # Debian's pyconfig.h includes another file by its path below /usr/include.
            chosen += ["-idirafter", str(Path(sysconfig.get_path("include")).parent)]
        names = {"": "baseline", "armv8-a": "generic"}
        return [*chosen, "-mcpu=" + names.get(arch, arch.replace("-", "_"))]

    def works(self) -> bool:
        """Whether it makes a shared library of a file that uses the C library.

        gcc before 11 and clang before 12 do not know the levels of x86-64, and do not work here.
        """
        text = "#include <math.h>\n#include <stdlib.h>\ndouble f(double x) { return sqrt(x); }\n"
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "f.c")
            file.write_text(text)
            to = ["-shared", "-fPIC", str(file), "-o", str(file.with_suffix(".so"))]
            command = [*self.command, *self.options(architecture()), *to]
            try:
                return subprocess.run(command, capture_output=True, check=False).returncode == 0
            except OSError:
                return False


def ziglang() -> Compiler | None:
    """The one in the wheel of this name."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    return Compiler([sys.executable, "-m", "ziglang", "cc"], True)


def compiler() -> Compiler | None:
    """CC, or the system's, if it works; otherwise that of the ziglang wheel, if it is there."""
    chosen = os.environ.get("CC", "")
    if chosen != "ziglang":
        for command in filter(None, (chosen, "cc", "gcc", "clang")):
            found = Compiler(shlex.split(command), "zig" in command)
            if found.works():
                return found
    return ziglang()


# --- what there is, and what it was built from --------------------------------------------------


def kernels() -> dict[str, Path]:
    """The files that are compiled, by the name of the module."""
    files = []
    for file in sorted(PACKAGE.rglob("*.py")):
        with file.open("rb") as opened:
            if opened.read(9) == b"# cython:":
                files.append(file)
    return {".".join(f.relative_to(SOURCE).with_suffix("").parts): f for f in files}


def digest(*parts: object) -> str:
    """Of texts and files."""
    total = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else str(part).encode()
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()[:24]


def library(name: str, out: Path) -> Path:
    """The file of a module."""
    suffix = ".abi3.so" if LIMITED else sysconfig.get_config_var("EXT_SUFFIX")
    return out / (name.replace(".", "/") + suffix)


def cython_version() -> str:
    """Empty where it is not installed."""
    try:
        return importlib.metadata.version("cython")
    except importlib.metadata.PackageNotFoundError:
        return ""


def settings(arch: str, sanitize: bool = False) -> dict[str, str]:
    """Everything but the sources that decides what is built."""
    chosen = {
        "architecture": arch or "default",
        "cython": cython_version(),
        "flags": digest(json.dumps([FLAGS, LIMITED, SANITIZE if sanitize else []])),
        "directives": digest(json.dumps(DIRECTIVES)),
    }
    if "CC" in os.environ:  # otherwise any compiler will do
        chosen["CC"] = os.environ["CC"]
    return chosen


def sources() -> dict[str, str]:
    """The digest of every file that a module is made from."""
    files = [*kernels().values(), *sorted(PACKAGE.rglob("*.pxd"))]
    return {f.relative_to(SOURCE).as_posix(): digest(f) for f in files}


def recorded(out: Path = SOURCE) -> dict[str, str]:
    """What the last build wrote; empty before the first."""
    try:
        text = (out / MANIFEST).read_text()
    except OSError:
        return {}
    pairs = (line.partition(" ") for line in text.splitlines())
    return {key: value for key, _, value in pairs}


def stale(out: Path = SOURCE) -> list[str]:
    """What has changed since the kernels were built: files, settings, modules that are missing."""
    then = recorded(out)
    if not then:
        return ["not built"]
    now = settings(architecture()) | sources()
    if not now["cython"]:  # the modules run without it
        del now["cython"]
    known = {key for key in then if key.endswith((".py", ".pxd"))}
    changed = [key for key, value in now.items() if then.get(key) != value]
    gone = sorted(known - set(now))
    missing = [name for name in [*kernels(), SHARED] if not library(name, out).is_file()]
    return [*changed, *gone, *missing]


# --- building ----------------------------------------------------------------------------------


def pending(out: Path, wanted: dict[str, str], force: bool) -> dict[str, str]:
    """The modules to compile, each with the digest of the files that it is made from."""
    from Cython.Build.Dependencies import create_dependency_tree
    from Cython.Compiler.Main import Context
    from Cython.Compiler.Options import CompilationOptions

    then = recorded(out)
    force = force or any(then.get(key) != value for key, value in wanted.items())
    tree = create_dependency_tree(
        Context.from_options(CompilationOptions(include_path=["src"])), quiet=True
    )
    made = {SHARED: digest(SHARED)}
    for name, file in kernels().items():
        files = sorted(tree.all_dependencies(str(file.relative_to(ROOT))))
        made[name] = digest(*(Path(f) for f in files if Path(f).suffix in {".py", ".pxd"}))
    return {
        name: value
        for name, value in made.items()
        if force or then.get(name) != value or not library(name, out).is_file()
    }


def seconds(names: list[str], zig: bool) -> int:
    """About how long it takes to compile modules, by their number and lines."""
    files = kernels()
    lines = sum(files[n].read_bytes().count(b"\n") if n in files else 0 for n in names)
    work = 1.2 * len(names) + 0.0014 * lines + (6.0 if zig else 0.0)  # benchmarks/bench_build.py
    return max(1, round(work / min(len(names), os.cpu_count() or 1)))


def build(out: Path = SOURCE, force: bool = False, sanitize: bool = False) -> list[Path]:
    """Compile what has changed; all files that belong to the extension modules.

    Parameters
    ----------
    out: the folder that gets fairwolfe/...; the source tree for a build in place
    force: compile everything
    sanitize: with AddressSanitizer and UBSan, for tests
    """
    with chdir(ROOT):
        return _build(out, force, sanitize)


def _build(out: Path, force: bool, sanitize: bool) -> list[Path]:
    arch = architecture()
    names = [*kernels(), SHARED]
    files = [out / MANIFEST, *(library(name, out) for name in names)]
    if not force and not sanitize and not stale(out):
        return files
    if not headers():
        raise BuildError(
            f"Python.h of {sys.executable} is missing, and the kernels cannot be built without it: "
            f"{headers_advice()}",
            2,
        )
    wanted = settings(arch, sanitize)
    todo = pending(out, wanted, force)
    found = None
    if todo:
        found = compiler()
        if found is None:
            raise BuildError(
                "There is no C compiler here (CC, cc, gcc, clang). The ziglang wheel has one: "
                "pip install --require-hashes --no-deps -r requirements/compiler.txt",
                3,
            )
        plural = "module" if len(todo) == 1 else "modules"
        about = seconds(list(todo), found.zig)
        print(
            f"Building {len(todo)} extension {plural} with {found.name}; about {about} s, once",
            flush=True,
        )
        try:
            compile_modules(list(todo), out, found, arch, sanitize)
        except compile_errors() as error:  # the compiler has said where
            raise BuildError(f"The kernels do not compile: {error}") from error
    then = recorded(out)
    # In one order, whichever modules were compiled together: equal builds have equal manifests.
    done = {name: todo.get(name) or then[name] for name in names}
    lines = wanted | {"compiler": found.name if found else then["compiler"]}
    if needed := needs(arch):
        lines["needs"] = " ".join(sorted(needed))
    text = "".join(f"{key} {value}\n" for key, value in (lines | sources() | done).items())
    for file in (out / "fairwolfe").rglob("*.so"):  # of kernels that no longer exist
        if ".".join([*file.relative_to(out).parent.parts, file.name.split(".")[0]]) not in names:
            file.unlink()
    (out / MANIFEST).write_text(text)
    return files


def compile_errors() -> tuple[type[Exception], ...]:
    """What Cython and setuptools raise."""
    from Cython.Compiler.Errors import CompileError
    from setuptools.errors import BaseError, CCompilerError

    return CompileError, BaseError, CCompilerError


def compile_modules(
    names: list[str], out: Path, chosen: Compiler, arch: str, sanitize: bool
) -> None:
    """Translate to C and compile, on all cores."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    options = [*FLAGS, *(SANITIZE if sanitize else []), *chosen.options(arch)]
    link = [*chosen.command, *chosen.options(arch), "-shared", *(SANITIZE if sanitize else ["-s"])]

    class Build(build_ext):
        def build_extensions(self) -> None:
            # Not with the flags that Python itself was compiled with: bits and speed would
            # depend on who packaged it. Elsewhere a linker needs more than that.
            if sys.platform == "linux":
                self.compiler.set_executables(compiler_so=chosen.command, linker_so=link)
            else:
                self.compiler.set_executables(
                    compiler_so=[*chosen.command, *self.compiler.compiler_so[1:]],
                    linker_so=[*chosen.command, *self.compiler.linker_so[1:]],
                )
            super().build_extensions()

    common: Any = {
        "extra_compile_args": options,
        "define_macros": [("Py_LIMITED_API", "0x030B0000")] if LIMITED else [],
        "py_limited_api": LIMITED,
    }
    files = {n: str(f.relative_to(ROOT)) for n, f in kernels().items()}
    files[SHARED] = "src/" + SHARED.replace(".", "/") + ".c"
    # zig keeps what it compiles of the C library; both folders would be in the user's cache.
    for variable in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        os.environ.setdefault(variable, str(ROOT / "build" / "zig"))
    modules = cythonize(
        [Extension(n, [files[n]], **common) for n in names],
        build_dir="build/c",
        quiet=True,
        force=True,
        nthreads=os.cpu_count() or 1,
        shared_utility_qualified_name=SHARED,
        include_path=["src"],
        compiler_directives=DIRECTIVES,
    )
    command: Any = Build(Distribution({"ext_modules": modules}))
    command.build_lib = str(out)
    command.build_temp = str(ROOT / "build" / "objects" / digest(str(out)))
    command.force, command.parallel = True, os.cpu_count()
    command.ensure_finalized()
    command.run()


def sanitized(folder: Path) -> None:
    """A copy of the package whose kernels are built with AddressSanitizer and UBSan."""
    keep = folder / "fairwolfe"
    left = shutil.ignore_patterns("__pycache__", "*.so", MANIFEST.name)
    shutil.copytree(PACKAGE, keep, ignore=left, dirs_exist_ok=True)
    build(folder, sanitize=True)


def platform_tag(zig: bool) -> str:
    """Of a wheel."""
    name = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if zig and sys.platform == "linux" and "musl" not in (sysconfig.get_config_var("SOABI") or ""):
        return f"manylinux_{GLIBC.replace('.', '_')}_{machine()}"
    return name


class Hook(BuildHookInterface):  # type: ignore[type-arg]
    """hatchling calls this for a wheel and for an editable install."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What an isolated build needs beyond pyproject.toml."""
        return [] if compiler() else ["ziglang>=0.15"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say what is in the wheel."""
        build_data["pure_python"] = False
        chosen = os.environ.get("CC", "")
        # A compiler that was chosen for a wheel leaves the modules in the source tree alone.
        out = ROOT / "build" / "wheel" if chosen and version != "editable" else SOURCE
        files = build(out)
        python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        system = platform_tag(recorded(out)["compiler"] == "ziglang")
        build_data["tag"] = f"cp311-abi3-{system}" if LIMITED else f"{python}-{python}t-{system}"
        if version != "editable":
            for file in files:
                build_data["force_include"][str(file)] = str(file.relative_to(out))


def main(arguments: list[str]) -> int:
    """The command; its exit code."""
    try:
        if arguments == ["--headers"]:
            if not headers():
                print(headers_advice())
                return 2
        elif len(arguments) == 2 and arguments[0] == "--sanitize":
            sanitized(Path(arguments[1]).resolve())
        elif arguments in ([], ["--force"]):
            build(force=bool(arguments))
        else:
            print(__doc__, file=sys.stderr)
            return 1
    except BuildError as error:
        print(error, file=sys.stderr)
        return error.code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
