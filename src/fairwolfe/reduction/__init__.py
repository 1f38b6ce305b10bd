"""From bandits with one reward to bandits with a concave function of several."""

from fairwolfe.reduction.constraints import Constraint
from fairwolfe.reduction.frank_wolfe import FrankWolfe
from fairwolfe.reduction.guarded import Guarded
from fairwolfe.reduction.lagrange import LagrangeCB
from fairwolfe.reduction.live import Live
from fairwolfe.reduction.molincb import MOLinCB

__all__ = ["Constraint", "FrankWolfe", "Guarded", "LagrangeCB", "Live", "MOLinCB"]
