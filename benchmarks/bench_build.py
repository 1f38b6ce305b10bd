"""Processor seconds to build every extension module, with each compiler.

Everything is compiled, the shared utility module included, into a folder that is thrown away. zig
is timed twice: at its first use it also compiles parts of the C library, which it keeps.

    python benchmarks/bench_build.py

The compiler of the ziglang wheel is left out where the wheel is not installed.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from runpy import run_path

ROOT = Path(__file__).parents[1]
HATCH = run_path(str(ROOT / "hatch_build.py"))

BUILD = """
import sys
from pathlib import Path
import hatch_build
hatch_build.build(Path(sys.argv[1]), force=True)
"""


def main() -> None:
    count = len(HATCH["kernels"]()) + 1
    print(f"{count} extension modules, {os.cpu_count()} cores, {HATCH['architecture']()}\n")
    print(f"{'compiler':<24} {'processor s':>12} {'seconds':>8} {'kB':>7}")
    compilers = {"cc": "cc"} if shutil.which("cc") else {}
    if HATCH["ziglang"]() is not None:
        compilers |= {"ziglang, first use": "ziglang", "ziglang": "ziglang"}
    with tempfile.TemporaryDirectory() as folder:
        for name, command in compilers.items():
            out = Path(folder, name)
            (out / "fairwolfe" / "kernels").mkdir(parents=True)
            zig = str(Path(folder, "zig"))
            env = os.environ | {
                "CC": command,
                "PYTHONPATH": str(ROOT),
                "ZIG_GLOBAL_CACHE_DIR": zig,
                "ZIG_LOCAL_CACHE_DIR": f"{zig}-{name}",
            }
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(
                [sys.executable, "-c", BUILD, str(out)],
                check=True,
                env=env,
                stdout=subprocess.DEVNULL,
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            size = sum(file.stat().st_size for file in out.rglob("*.so")) / 1000
            wall = time.perf_counter() - start
            print(f"{name:<24} {spent:12.1f} {wall:8.1f} {size:7.0f}", flush=True)


if __name__ == "__main__":
    main()
