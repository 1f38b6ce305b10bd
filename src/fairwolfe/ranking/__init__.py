"""Rankings whose exposure is shared fairly while it is learnt what users like."""

from fairwolfe.ranking.fairco import FairCoRank
from fairwolfe.ranking.policies import FairLearnRank, FWLinUCBRank, UnbiasedLinUCBRank
from fairwolfe.ranking.ranker import LinUCBRank, Ranker

__all__ = [
    "FWLinUCBRank",
    "FairCoRank",
    "FairLearnRank",
    "LinUCBRank",
    "Ranker",
    "UnbiasedLinUCBRank",
]
