"""The generators of a run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairwolfe.core.streams import stream

__all__ = ["Streams"]


class Streams(NamedTuple):
    """The generators of a run: two policies with one seed meet the same contexts and noise."""

    contexts: np.random.Generator
    noise: np.random.Generator
    policy: np.random.Generator

    @classmethod
    def of(cls, seed: int) -> Streams:
        return cls(stream(seed, "contexts"), stream(seed, "noise"), stream(seed, "policy"))
