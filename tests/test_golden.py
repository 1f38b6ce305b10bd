"""Decisions and sums of short runs, bit for bit: see tests/golden/trajectories.py."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.bandits import LinUCB
from fairwolfe.objectives import Minimum
from tests.golden.agents import arms, prompt, read_log
from tests.golden.trajectories import FILE, FOLDER, LOGS, TRAJECTORIES, play

EXPECTED = json.loads(FILE.read_text())


def distance(found: dict[str, Any], expected: dict[str, Any]) -> float:
    """The largest difference between the recorded numbers, relative to max(1, |number|)."""
    rows = [
        np.array([float.fromhex(x) for x in " ".join(one["numbers"]).split()])
        for one in (found, expected)
    ]
    if rows[0].shape != rows[1].shape or (np.isnan(rows[0]) != np.isnan(rows[1])).any():
        return math.inf
    return float(np.nan_to_num(np.abs(rows[0] - rows[1]) / np.maximum(1.0, np.abs(rows[1]))).max())


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """From coarse to fine, so that a failure says how much has changed."""
    assert found["actions"] == expected["actions"], "other decisions"
    assert distance(found, expected) <= 1e-12, "the same decisions, other numbers"
    assert found == expected, "the same to 1e-12, but not to the last bit"


def test_every_trajectory_is_recorded() -> None:
    assert list(EXPECTED) == list(TRAJECTORIES)


@pytest.mark.parametrize("name", TRAJECTORIES)
def test_a_trajectory_is_as_it_was(name: str, tmp_path: Path) -> None:
    same(play(name, tmp_path), EXPECTED[name])


@pytest.mark.parametrize("kind", LOGS)
def test_a_log_that_was_written_is_read_as_it_was(kind: str) -> None:
    same(read_log(FOLDER / f"{kind}.jsonl", *LOGS[kind]), EXPECTED[f"log of {kind}"])


def test_the_last_bit_of_a_parameter_is_noticed(tmp_path: Path) -> None:
    changed = LinUCB(exploration=float(np.nextafter(0.3, 1.0)))
    found = prompt(arms(fw.FrankWolfe(Minimum(), changed)))(tmp_path)
    with pytest.raises(AssertionError, match="not to the last bit"):
        same(found, EXPECTED["LinUCB"])
    with pytest.raises(AssertionError, match="other numbers"):
        same({**found, "numbers": found["numbers"][:1]}, EXPECTED["LinUCB"])
    with pytest.raises(AssertionError, match="other decisions"):
        same({**found, "actions": found["actions"][2:]}, EXPECTED["LinUCB"])
