"""Examples in compiled modules, which pytest cannot collect (src/conftest.py)."""

from __future__ import annotations

import doctest
import subprocess
import sys
from importlib import import_module

import pytest

from tests.build.trees import ROOT, hatch

KERNELS = sorted(hatch().kernels())
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.parametrize("name", KERNELS)
def test_examples_of_compiled_modules_run(name: str) -> None:
    module = import_module(name)
    assert module.__file__ is not None
    assert module.__file__.endswith(".so")
    assert doctest.testmod(module, optionflags=OPTIONS).failed == 0


def test_pytest_leaves_their_sources_alone() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "src/fairwolfe/kernels"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 5), done.stdout + done.stderr  # 5: there is nothing to collect
    assert KERNELS
    for name in KERNELS:
        assert name.replace(".", "/") + ".py" not in done.stdout
