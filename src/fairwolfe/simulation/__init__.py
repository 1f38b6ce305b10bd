"""Where policies meet environments: runs, comparisons, and the truth to compare with."""

from fairwolfe.simulation import delays
from fairwolfe.simulation.compare import Comparison, compare
from fairwolfe.simulation.known import known
from fairwolfe.simulation.optimum import Optimum, optimum
from fairwolfe.simulation.rollout import simulate
from fairwolfe.simulation.service import Service
from fairwolfe.simulation.trace import Trace
from fairwolfe.simulation.tradeoff import TradeOff, tradeoff

__all__ = [
    "Comparison",
    "Optimum",
    "Service",
    "Trace",
    "TradeOff",
    "compare",
    "delays",
    "known",
    "optimum",
    "simulate",
    "tradeoff",
]
