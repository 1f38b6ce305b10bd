"""Decisions and sums of short runs, bit for bit: see tests/golden/trajectories.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden.trajectories import FILE, TRAJECTORIES, play

EXPECTED = json.loads(FILE.read_text())


def test_every_trajectory_is_written_down() -> None:
    assert list(EXPECTED) == list(TRAJECTORIES)


@pytest.mark.parametrize("name", TRAJECTORIES)
def test_a_trajectory_is_as_it_was(name: str, tmp_path: Path) -> None:
    assert play(name, tmp_path) == EXPECTED[name]
