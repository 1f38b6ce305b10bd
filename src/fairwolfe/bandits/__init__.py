"""Bandits for one scalar reward <direction, r>: what FrankWolfe turns into concave bandits."""

from fairwolfe.bandits.epsilon_greedy import EpsilonGreedy
from fairwolfe.bandits.extended import Extended
from fairwolfe.bandits.fixed import Fixed
from fairwolfe.bandits.linucb import LinUCB
from fairwolfe.bandits.rule import Rule
from fairwolfe.bandits.squarecb import SquareCB
from fairwolfe.bandits.thompson import Thompson
from fairwolfe.bandits.uniform import Uniform
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
