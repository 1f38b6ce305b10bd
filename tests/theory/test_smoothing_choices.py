"""Which smoothing: of all time against that of a fixed horizon, Moreau against randomised.

Regrets of f of mean rewards against f*, paired over 20 seeds. A remark of the paper says that the
smoothing of all time loses nothing against the older one that is told the horizon. Measured, all
time minus fixed horizon (standard error): on A1 0 at every T (there all directions agree); on A2
-.0028 (.0004) at 10^3, -.0014 (.0001) at 10^4, -.0007 (.00002) at 10^5: better, if anything.
Randomised minus Moreau smoothing on A2: .0063 (.0009), .0020 (.0003), .0004 (.00004); it vanishes
too, and needs no proximal map.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.bandits import LinUCB
from fairwolfe.core.arrays import Vector
from fairwolfe.smoothing import Moreau, Randomized
from tests.theory.worlds import A1, A2, DISTANCE, MINIMUM

SEEDS = 20
WORLDS = {"A1": (A1, DISTANCE, 0.0), "A2": (A2, MINIMUM, 0.5)}
HORIZONS = (10**3, *(pytest.param(T, marks=pytest.mark.slow) for T in (10**4, 10**5)))


def regrets(world: str, smoothing: Any, horizon: int) -> Vector:
    environment, f, best = WORLDS[world]
    policy = fw.FrankWolfe(f, LinUCB(exploration="theorem"), smoothing)
    runs = (
        fw.simulate(policy, environment, horizon, seed, checkpoints=[horizon])
        for seed in range(SEEDS)
    )
    return np.array([best - trace.value[-1] for trace in runs])


def mean_and_error(values: Vector) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(values.size))


@pytest.mark.parametrize("horizon", HORIZONS)
@pytest.mark.parametrize("world", WORLDS)
def test_smoothing_of_all_time_is_no_worse_than_that_of_a_fixed_horizon(
    world: str, horizon: int
) -> None:
    anytime, fixed = (
        regrets(world, Moreau(), horizon),
        regrets(world, Moreau(horizon=horizon), horizon),
    )
    mean, error = mean_and_error(anytime - fixed)
    assert mean <= 5.0 * error + 1e-12


@pytest.mark.parametrize("world", [pytest.param("A1", marks=pytest.mark.slow), "A2"])
def test_randomised_smoothing_converges_as_moreau_does(world: str) -> None:
    early, late = (regrets(world, Randomized(n_samples=4), T) for T in (10**3, 10**4))
    assert late.mean() < 0.6 * early.mean()  # measured: 0.34 on A1, 0.28 on A2
    mean, error = mean_and_error(late - regrets(world, Moreau(), 10**4))
    assert mean <= 0.004 + 5.0 * error
