"""Where policies meet environments: runs and comparisons."""

from fairwolfe.simulation import delays
from fairwolfe.simulation.compare import Comparison, compare
from fairwolfe.simulation.delays import Lateness
from fairwolfe.simulation.run import simulate
from fairwolfe.simulation.trace import Trace

__all__ = ["Comparison", "Lateness", "Trace", "compare", "delays", "simulate"]
