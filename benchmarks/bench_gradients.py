"""What one gradient of an objective costs inside compiled code, ahead of time against numba.

Both are called in compiled loops, in turn, in one process; processor time, medians of 9 turns.

    python benchmarks/bench_gradients.py
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from scipy import LowLevelCallable

from fairwolfe.core.arrays import Vector
from fairwolfe.kernels import gradients
from fairwolfe.kernels.compile import kernel
from fairwolfe.objectives import (
    Concave,
    Custom,
    EqualExposure,
    GiniWelfare,
    Linear,
    Mapped,
    Nash,
    TwoSided,
    Welfare,
)
from fairwolfe.objectives.combine import Scaled, Sum
from fairwolfe.objectives.concave import call_gradient

N = 51
TURNS = 9
SECONDS = 0.02  # about, for each turn


@kernel(
    signature="void(int64, float64[::1], float64, float64[::1], float64[::1], float64[::1], int64)"
)
def repeat(
    address: int, z: Vector, step: float, params: Vector, work: Vector, out: Vector, times: int
) -> None:
    """The numba gradient at an address, several times."""
    for _ in range(times):
        call_gradient(address, z, step, params, work, out)


def by_numba(f: Concave, z: Vector, step: float) -> Callable[[int], object]:
    program = f.program(z.size)
    work, out = program.work(), np.empty(z.size)
    repeat(program.address, z, step, program.params, work, out, 1)  # compiled before it is timed
    return lambda times: repeat(program.address, z, step, program.params, work, out, times)


def ahead(tree: gradients.Tree, z: Vector, step: float) -> Callable[[int], object]:
    return lambda times: tree.repeat(z, step, times)


def nanoseconds(turns: dict[str, Callable[[int], object]]) -> dict[str, float]:
    """The cost of one call of each, measured in turn."""
    counts = {}
    for name, run in turns.items():
        times = 1
        while True:
            start = process_time()
            run(times)
            spent = process_time() - start
            if spent > SECONDS / 4:
                break
            times *= 4
        counts[name] = max(1, int(times * SECONDS / spent))
    spent_by: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(TURNS):
        for name, run in turns.items():
            start = process_time()
            run(counts[name])
            spent_by[name].append((process_time() - start) / counts[name] * 1e9)
    return {name: median(spent) for name, spent in spent_by.items()}


def tower(levels: int) -> Concave:
    """Sums inside each other: a sum inside of a sum would be one sum, a multiple is kept."""
    f: Concave = Linear(np.linspace(0.0, 1.0, N).tolist())
    for _ in range(levels):
        f = Sum((Scaled(0.5, f), Linear((0.5,) * N)))
    return f


def tower_tree(levels: int) -> gradients.Tree:
    """0.5 f + 0.5 g, so many times inside each other, each of them one node."""
    tree = gradients.leaf("linear", N, np.linspace(0.0, 1.0, N))
    for _ in range(levels):
        other = gradients.leaf("linear", N, np.ones(N))
        tree = gradients.combined(N, [(0.5, tree, 0), (0.5, other, 0)])
    return tree


def c_function(folder: str) -> Any:
    source, library = Path(folder, "slope.c"), Path(folder, "slope.so")
    source.write_text(
        "void slope(const double *z, long n, double *out, void *data)"
        "{ for (long i = 0; i < n; i++) out[i] = 1.0 - z[i]; }"
    )
    subprocess.run(["cc", "-O3", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    slope = ctypes.CDLL(str(library)).slope
    real = ctypes.POINTER(ctypes.c_double)
    slope.argtypes, slope.restype = [real, ctypes.c_ssize_t, real, ctypes.c_void_p], None
    return slope


def cfunc() -> Any:
    import numba

    real = numba.types.CPointer(numba.float64)

    @numba.cfunc(numba.types.void(real, numba.types.intp, real, numba.types.voidptr))
    def slope(z: Any, n: Any, out: Any, data: Any) -> None:
        for i in range(n):
            out[i] = 1.0 - z[i]

    return slope


def bowl(z: Vector) -> float:
    return float(z.sum() - 0.5 * (z @ z))


def main() -> None:
    rng = np.random.default_rng(0)
    z, step = rng.random(N), 0.1
    weights = tuple(rng.random(N).tolist())
    rows = rng.random((5, N))
    python = Custom(bowl, lambda z: 1.0 - z, smooth=True)
    both: dict[str, Concave] = {
        "linear leaf": Linear(weights),
        "Gini welfare": GiniWelfare(),
        "equal exposure": EqualExposure(),
        "welfare, alpha 0.5": Welfare(0.5),
        "welfare, alpha 0.7": Welfare(0.7),
        "Nash": Nash(),
        "two-sided sum of linear parts, 50 + 1": TwoSided(Linear(weights[:50]), beta=0.5),
        "two-sided sum with Gini, 50 + 1": TwoSided(GiniWelfare(), beta=0.5),
        "10 nested sums of multiples": tower(10),
        "map 5 x 51 of a linear leaf": Mapped(Linear((1.0,) * 5), rows.tolist()),
        "Python leaf (Custom, checked)": python,
    }
    cases = {
        name: {"numba": by_numba(f, z, step), "ahead": ahead(f.tree(N), z, step)}
        for name, f in both.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        slope, compiled = c_function(folder), cfunc()
        alone = {
            "10 nested sums, 20 leaves": tower_tree(10),
            "1,000 nested sums, 2,000 leaves": tower_tree(1000),
            "C function by ctypes": gradients.outside(N, slope),
            "C function by LowLevelCallable": gradients.outside(N, LowLevelCallable(slope)),
            "numba cfunc by LowLevelCallable": gradients.outside(
                N, LowLevelCallable(compiled.ctypes)
            ),
            "numba cfunc by its address": gradients.outside(N, compiled.address),
            "Python leaf (bare function)": gradients.python(N, lambda z: 1.0 - z),
        }
        cases |= {name: {"ahead": ahead(tree, z, step)} for name, tree in alone.items()}
        print(f"ns a call inside a compiled loop, n = {N}, step {step}\n")
        print(f"| {'gradient':38} | {'numba':>9} | {'ahead':>9} | ratio |")
        print(f"|{'-' * 40}|{'-' * 11}|{'-' * 11}|{'-' * 7}|")
        for name, turns in cases.items():
            cost = nanoseconds(turns)
            old = f"{cost['numba']:9.1f}" if "numba" in cost else f"{'-':>9}"
            ratio = f"{cost['ahead'] / cost['numba']:5.2f}" if "numba" in cost else "    -"
            print(f"| {name:38} | {old} | {cost['ahead']:9.1f} | {ratio} |")
        for n in (50, 2500):
            z = rng.random(n)
            f = GiniWelfare()
            for width in (1e-4, 0.01, 1.0):
                cost = nanoseconds(
                    {"numba": by_numba(f, z, width), "ahead": ahead(f.tree(n), z, width)}
                )
                name = f"Gini welfare, n = {n}, step {width:g}"
                ratio = cost["ahead"] / cost["numba"]
                print(f"| {name:38} | {cost['numba']:9.1f} | {cost['ahead']:9.1f} | {ratio:5.2f} |")


if __name__ == "__main__":
    main()
