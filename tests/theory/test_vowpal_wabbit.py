"""A bandit that knows one reward, of another library, maximises a function of five.

The reduction asks of a bandit only that its scalar regret be small. Vowpal Wabbit's is: lifted by
extended contexts it comes as near to the optimum as our own SquareCB, on the same users and noise.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from fairwolfe.bandits import Extended, SquareCB, Uniform, VowpalWabbit
from fairwolfe.core.arrays import Vector
from fairwolfe.environments import Mehrotra
from fairwolfe.oracles import Ridge
from fairwolfe.reduction import FrankWolfe
from fairwolfe.simulation import simulate
from fairwolfe.smoothing import Moreau

WORLD = Mehrotra(n_arms=50, n_objectives=5, n_features=10)
SEEDS, HORIZON = range(4), 1000

SQUARECB = VowpalWabbit(gamma_scale=1e4)
EPSILON = VowpalWabbit(exploration="epsilon", epsilon=0.01)
QUADRATIC = VowpalWabbit(gamma_scale=1e4, arguments="--quadratic ff")


@cache
def values(base: Any) -> Vector:
    """f of the average expected rewards, by seed."""
    policy = FrankWolfe(WORLD.objective(), base, Moreau(beta0=0.01))
    return np.array([simulate(policy, WORLD, HORIZON, s).value[-1] for s in SEEDS])


def ratios(base: Any) -> Vector:
    ours: Vector = values(base) / values(SquareCB(gamma0=1e4, oracle=Ridge(0.1)))
    return ours


def test_the_ratio_can_be_small() -> None:
    assert ratios(Uniform()).max() < 0.7  # seen: at most 0.57


@pytest.mark.slow
@pytest.mark.needs("vowpalwabbit")
@pytest.mark.filterwarnings("ignore:the plain loop is used")
@pytest.mark.parametrize(
    "base",
    [Extended(SQUARECB), Extended(EPSILON), Extended(QUADRATIC, features="pair")],
    ids=["squarecb", "epsilon", "pair"],
)
def test_vowpal_wabbit_is_within_a_twentieth_of_squarecb(base: Extended) -> None:
    found = ratios(base)
    error = found.std(ddof=1) / np.sqrt(found.size)
    # Seen: 0.996, 0.992 and 0.996, with standard errors of at most 0.002.
    assert found.mean() - 5.0 * error > 0.95, found
