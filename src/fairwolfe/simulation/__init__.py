"""Where policies meet environments: runs, comparisons, and the truth to compare with."""

from fairwolfe.simulation.compare import Comparison, compare
from fairwolfe.simulation.rollout import simulate
from fairwolfe.simulation.trace import Trace

__all__ = ["Comparison", "Trace", "compare", "simulate"]
