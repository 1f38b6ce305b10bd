"""What a world's own numbers show: the best reachable value, who knows it, and regret bounds."""

from fairwolfe.truth.known import known
from fairwolfe.truth.optimum import Optimum, optimum

__all__ = ["Optimum", "known", "optimum"]
