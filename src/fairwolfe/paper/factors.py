"""Three claims by the number of factors, which the paper does not give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fairwolfe.paper.claims import FIRST
from fairwolfe.paper.curves import Curves
from fairwolfe.paper.verdicts import Finding

__all__ = ["ByFactors", "by_factors"]

_STUDIES = {
    "R5": "lastfm-50-factors-tradeoff",
    "R7": "lastfm-50-factors-gini",
    "R9": "lastfm-50-factors-gini",
}


class ByFactors(NamedTuple):
    """The finding for a claim with a number of factors, in the second reading of the data."""

    id: str
    sentence: str
    factors: int
    finding: Finding


def by_factors(results: Mapping[str, Curves]) -> list[ByFactors]:
    """R5, R7 and R9 for each number of factors, by the judges of the first registration."""
    claims = {claim.id: claim for claim in FIRST if claim.id in _STUDIES}
    return [
        ByFactors(id, claims[id].sentence, int(factors), claims[id].judge(curves))
        for id, study in _STUDIES.items()
        if study in results
        for factors, curves in results[study].split("factors").items()
    ]
