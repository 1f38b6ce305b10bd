"""What must not be compiled: numba's texts of errors, which cost more than the kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LISTEN = """
import json
from numba.core import event

compiled = []

class Listener(event.Listener):
    def on_start(self, event):
        function = event.data["dispatcher"].py_func
        compiled.append(f"{function.__module__}.{function.__qualname__}")

    def on_end(self, event):
        pass

event.register("numba:compile", Listener())
"""

TEN_LINES = """
import numpy as np
import fairwolfe as fw
from fairwolfe.objectives import AtMost, Linear

problem = fw.Problem.arms(
    n_features=12, rewards={"clicks": (0, 1), "minutes": (0, 10), "cost": (0, 0.05)}
)
f = Linear({"clicks": 1.0, "minutes": 0.05}) + AtMost({"cost": 0.02}, penalty=100.0)
agent = fw.Agent(fw.FrankWolfe(f, fw.bandits.SquareCB(gamma0=100.0)), problem, seed=0)
decision = agent.act(np.random.default_rng(0).normal(size=(5, 12)) / 12)
agent.update(decision, {"clicks": 1, "minutes": 3.5, "cost": 0.004})
"""

EVERYTHING = """
import pkgutil
from importlib import import_module
import fairwolfe
from fairwolfe.kernels import compile as compiling

for module in pkgutil.walk_packages(fairwolfe.__path__, "fairwolfe."):
    if not module.name.endswith("__main__"):
        import_module(module.name)
for one in compiling._KERNELS:
    if one.signature is not None:
        one.address
"""


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(TEN_LINES, id="ten lines"),
        pytest.param(EVERYTHING, id="everything", marks=pytest.mark.slow),
    ],
)
def test_no_kernel_pulls_in_texts(code: str, tmp_path: Path) -> None:
    """An assignment to a slice, a reshape or a reduction brings the text of its error along."""
    done = subprocess.run(
        [sys.executable, "-c", LISTEN + code + "print(json.dumps(compiled))"],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env=os.environ | {"FAIRWOLFE_CACHE": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    compiled = json.loads(done.stdout.splitlines()[-1])
    assert any(name.startswith("fairwolfe.kernels.linalg.") for name in compiled)
    assert [name for name in compiled if name.startswith("numba.cpython.unicode.")] == []
