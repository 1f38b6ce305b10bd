"""What one gradient of an objective costs inside compiled code.

Called in a compiled loop; processor time, medians of 9 turns.

    python benchmarks/bench_gradients.py
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from scipy import LowLevelCallable

from fairwolfe.core.arrays import Vector
from fairwolfe.kernels import gradients
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

N = 51
TURNS = 9
SECONDS = 0.02  # about, for each turn


def nanoseconds(tree: gradients.Tree, z: Vector, step: float) -> float:
    """The cost of one call."""
    times, spent = 1, 0.0
    while spent <= SECONDS / 4:
        times *= 4
        start = process_time()
        tree.repeat(z, step, times)
        spent = process_time() - start
    times = max(1, int(times * SECONDS / spent))
    turns = []
    for _ in range(TURNS):
        start = process_time()
        tree.repeat(z, step, times)
        turns.append((process_time() - start) / times * 1e9)
    return median(turns)


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


def bowl(z: Vector) -> float:
    return float(z.sum() - 0.5 * (z @ z))


def main() -> None:
    rng = np.random.default_rng(0)
    z, step = rng.random(N), 0.1
    weights = tuple(rng.random(N).tolist())
    rows = rng.random((5, N))
    python = Custom(bowl, lambda z: 1.0 - z, smooth=True)
    objectives: dict[str, Concave] = {
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
    with tempfile.TemporaryDirectory() as folder:
        slope = c_function(folder)
        cases = {name: (f.tree(N), z, step) for name, f in objectives.items()} | {
            "10 nested sums, 20 leaves": (tower_tree(10), z, step),
            "1,000 nested sums, 2,000 leaves": (tower_tree(1000), z, step),
            "C function by ctypes": (gradients.outside(N, slope), z, step),
            "C function by LowLevelCallable": (
                gradients.outside(N, LowLevelCallable(slope)),
                z,
                step,
            ),
            "Python leaf (bare function)": (gradients.python(N, lambda z: 1.0 - z), z, step),
        }
        for n in (50, 2500):
            for width in (1e-4, 0.01, 1.0):
                name = f"Gini welfare, n = {n}, step {width:g}"
                cases[name] = (GiniWelfare().tree(n), rng.random(n), width)
        print(f"ns a call inside a compiled loop; n = {N} and step {step} unless stated\n")
        print(f"| {'gradient':38} | {'ns':>9} |")
        print(f"|{'-' * 40}|{'-' * 11}|")
        for name, (tree, at, width) in cases.items():
            print(f"| {name:38} | {nanoseconds(tree, at, width):9.1f} |")


if __name__ == "__main__":
    main()
