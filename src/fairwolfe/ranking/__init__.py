"""Rankings whose exposure is shared fairly while it is learnt what users like."""

from fairwolfe.ranking.fairlearn_rank import FairLearnRank
from fairwolfe.ranking.fw_linucb_rank import FWLinUCBRank
from fairwolfe.ranking.linucb_rank import LinUCBRank
from fairwolfe.ranking.ranker import Ranker
from fairwolfe.ranking.unbiased_linucb_rank import UnbiasedLinUCBRank

__all__ = ["FWLinUCBRank", "FairLearnRank", "LinUCBRank", "Ranker", "UnbiasedLinUCBRank"]
