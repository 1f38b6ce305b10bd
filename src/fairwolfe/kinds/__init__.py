"""Kinds of decision: the contract, and those that are built in, one arm or a ranking of items."""

from fairwolfe.core.kinds import Answer, Kind, kind_of
from fairwolfe.kinds.arms import Arms
from fairwolfe.kinds.ranking import Ranking

__all__ = ["Answer", "Arms", "Kind", "Ranking", "kind_of"]
