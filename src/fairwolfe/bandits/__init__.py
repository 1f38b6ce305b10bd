"""Bandits for one scalar reward <direction, r>: what FrankWolfe turns into concave bandits."""

from fairwolfe.bandits.base import Rule
from fairwolfe.bandits.exploration import (
    EpsilonGreedy,
    Fixed,
    LinUCB,
    SquareCB,
    Thompson,
    Uniform,
)
from fairwolfe.bandits.extended import Extended
from fairwolfe.bandits.vowpal_wabbit import VowpalWabbit

__all__ = [
    "EpsilonGreedy",
    "Extended",
    "Fixed",
    "LinUCB",
    "Rule",
    "SquareCB",
    "Thompson",
    "Uniform",
    "VowpalWabbit",
]
