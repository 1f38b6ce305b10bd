"""Bandits for one scalar reward <direction, r>: what FrankWolfe turns into concave bandits."""

from fairwolfe.bandits.epsilon_greedy import EpsilonGreedy
from fairwolfe.bandits.linucb import LinUCB
from fairwolfe.bandits.squarecb import SquareCB
from fairwolfe.bandits.thompson import Thompson
from fairwolfe.bandits.uniform import Uniform

__all__ = ["EpsilonGreedy", "LinUCB", "SquareCB", "Thompson", "Uniform"]
