"""What must not be compiled: numba's texts of errors, which cost more than the kernels; and how
much is. The numbers are those of today, and a few more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MOST_COMPILED = 68  # functions that the ten lines compile
MOST_MACHINE_CODE = 26  # and of how many machine code is made
MOST_INSTRUCTIONS = 37_000  # that they have before the optimiser

LISTEN = """
import json
from numba.core import codegen, event

compiled, instructions, libraries = [], [], []
add, make = codegen.CPUCodeLibrary.add_ir_module, codegen.CPUCodeLibrary._finalize_final_module

def added(library, module):
    instructions.extend(len(b.instructions) for f in module.functions for b in f.blocks)
    add(library, module)

def made(library):
    libraries.append(library.name)
    make(library)

codegen.CPUCodeLibrary.add_ir_module = added
codegen.CPUCodeLibrary._finalize_final_module = made

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
f = Linear({"clicks": 1.0, "minutes": 0.05}) + AtMost({"cost": 0.02})
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


def listened(code: str, cache: Path) -> dict[str, Any]:
    """What a process compiles that runs the code with an empty cache."""
    report = "print(json.dumps(dict(names=compiled, made=libraries, n=sum(instructions))))"
    done = subprocess.run(
        [sys.executable, "-c", LISTEN + code + report],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env=os.environ | {"FAIRWOLFE_CACHE": str(cache)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(TEN_LINES, id="ten lines"),
        pytest.param(EVERYTHING, id="everything", marks=pytest.mark.slow),
    ],
)
def test_no_kernel_pulls_in_texts(code: str, tmp_path: Path) -> None:
    """An assignment to a slice, a reshape or a reduction brings the text of its error along."""
    compiled = listened(code, tmp_path)["names"]
    assert any(name.startswith("fairwolfe.kernels.linalg.") for name in compiled)
    assert [name for name in compiled if name.startswith("numba.cpython.unicode.")] == []


def test_the_ten_lines_compile_little(tmp_path: Path) -> None:
    """A kernel that others call is compiled once, and has no machine code of its own."""
    found = listened(TEN_LINES, tmp_path)
    names = [name for name in found["names"] if name.startswith("fairwolfe.")]
    twice = {name for name in names if names.count(name) > 1}
    assert twice <= {"fairwolfe.kernels.settling.averages"}  # Python calls it too
    assert len(found["names"]) <= MOST_COMPILED
    assert 10 < len(found["made"]) <= MOST_MACHINE_CODE
    assert 1000 < found["n"] <= MOST_INSTRUCTIONS
