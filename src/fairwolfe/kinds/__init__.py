"""The kinds of decision that are built in: one arm, or a ranking of items."""

from fairwolfe.kinds.arms import Arms
from fairwolfe.kinds.ranking import Ranking

__all__ = ["Arms", "Ranking"]
