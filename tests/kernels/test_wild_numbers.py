"""Every loop of a kernel that waits for a condition ends, whatever numbers it is given.

A kernel that spins cannot be interrupted, so each is tried in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

LIMIT = 60  # seconds; a call takes some microseconds

GIVEN = """
import numpy as np
from fairwolfe.objectives import GiniWelfare, Nash, Welfare
from fairwolfe.kernels.mixtures import correct, nearest_mixture
from fairwolfe.kernels.ranks import largest

rng = np.random.default_rng(0)
wild = [np.nan, np.inf, -np.inf, 5e-324, -5e-324, 1e308, -1e308, 0.0, -0.0, 1.0]

def vectors():
    for n in (1, 2, 5, 1200):
        for value in wild:
            yield np.full(n, value)
            one = rng.normal(size=n)
            one[rng.integers(n)] = value
            yield one
        for share in (0.1, 0.9):
            mixed = rng.normal(size=n)
            chosen = rng.random(n) < share
            mixed[chosen] = rng.choice(wild, chosen.sum())
            yield mixed
            yield np.sort(mixed)
"""

CALLS = {
    "gini": """
kept = {}
for z in vectors():
    tree = kept.setdefault(z.size, GiniWelfare().tree(z.size))
    for step in (0.0, 0.5, np.nan, np.inf, 5e-324):
        g = tree.gradient(z, step)
        assert np.isfinite(z).all() or np.isnan(g).any()
""",
    "welfare": """
for f in (Welfare(0.5), Welfare(0.3), Nash()):
    for z in vectors():
        tree = f.tree(z.size)
        for step in (0.0, 0.5, 5e-324, 1e308, np.nan):
            tree.gradient(z, step)
""",
    "top_k": """
for z in vectors():
    for k in {1, (z.size + 1) // 2, z.size}:
        best = np.full(k, -1)
        largest(z, best)
        assert len(set(best.tolist())) == k and 0 <= best.min() and best.max() < z.size
""",
    "project_on_simplex": """
for z in vectors():
    nearest_mixture(z.copy())
""",
    "correct": """
for z in vectors():
    vertices = np.ascontiguousarray(np.stack([z, z[::-1], np.ones(z.size)]))
    weights = np.full(3, 1 / 3)
    correct(Nash().tree(z.size), vertices, np.zeros(z.size), weights, np.ones(1), 1e-3, 20)
""",
}


@pytest.mark.parametrize("kernel", CALLS)
def test_loops_end_whatever_they_are_given(kernel: str) -> None:
    code = GIVEN + CALLS[kernel] + "print('ended')\n"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.stdout == "ended\n", done.stderr[-2000:]
