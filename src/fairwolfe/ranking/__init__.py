"""Rankings whose exposure is shared fairly while it is learnt what users like."""

from fairwolfe.ranking.policies import FairLearnRank, FWLinUCBRank, UnbiasedLinUCBRank
from fairwolfe.ranking.ranker import LinUCBRank, Ranker

__all__ = ["FWLinUCBRank", "FairLearnRank", "LinUCBRank", "Ranker", "UnbiasedLinUCBRank"]
