"""From bandits with one reward to bandits with a concave function of several."""

from fairwolfe.reduction.frank_wolfe import FrankWolfe
from fairwolfe.reduction.guarded import Guarded
from fairwolfe.reduction.live import Live
from fairwolfe.reduction.molincb import MOLinCB

__all__ = ["FrankWolfe", "Guarded", "Live", "MOLinCB"]
