"""Other comparators and other measures: how far they are from f* and from R_T."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from fairwolfe.core.problem import whole_number
from fairwolfe.core.streams import stream
from fairwolfe.environments import Finite
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Concave
from fairwolfe.simulation.streams import Streams
from fairwolfe.truth.bounds.assumptions import Asked, Setting, T, Times, probability, setting
from fairwolfe.truth.optimum import Optimum, optimum

__all__ = ["best_sequence", "deviation", "stationary"]

_CHUNK = 100_000  # contexts drawn at once


def stationary(*, delta: float = 0.05, **given: Unpack[Asked[T]]) -> T:
    """L D_K sqrt(2 ln(4 e^2/delta)/T), on |f+_T - f*| with probability 1 - delta.

    f+_T is the best that any sequence of actions reaches on the contexts that came, f* the best
    of stationary policies: see `best_sequence`.

    Reference: Lemma 9 of the paper, first part.
    """
    here = setting(**given, tight=False)
    return here.answer(_concentrated(here, 4.0, delta))


def deviation(*, delta: float = 0.05, **given: Unpack[Asked[T]]) -> T:
    """L D_K sqrt(2 ln(2 e^2/delta)/T), on the distance between the two measures of a run.

    |f(average expected reward) - f(average observed reward)|, with probability 1 - delta; without
    L it bounds the distance of the averages themselves.

    Reference: Lemma 9, second part, and Lemma 10 of the paper.
    """
    here = setting(**given, tight=False)
    return here.answer(_concentrated(here, 2.0, delta))


def _concentrated(here: Setting[Any], events: float, delta: float) -> Times:
    """Azuma for vectors: L times how far an average of T differences is from 0."""
    log = math.log(events * math.e**2 / probability("delta", delta))
    return here.reach * np.sqrt(2.0 * log / here.t)


def best_sequence(
    environment: Finite,
    objective: Concave,
    horizon: int,
    seed: int = 0,
    tolerance: float = 1e-6,
) -> Optimum:
    """f+_T: the best value on the contexts that ``simulate(..., horizon, seed)`` meets, certified.

    Only how often each context came matters, so that it is f* of the finite world with these
    frequencies for probabilities; `optimum` encloses it.

    Reference: Eqs. (19) and (21) of the paper.

    >>> from fairwolfe.objectives import Minimum
    >>> round(best_sequence(Finite.a2(), Minimum(), horizon=1000).value, 3)
    0.5
    """
    if not isinstance(environment, Finite):
        raise InvalidInput(
            f"the environment is {environment!r}; the best sequence in hindsight is known for "
            "Finite worlds, where contexts come back"
        )
    left = whole_number("horizon", horizon)
    world, rng = environment.init(stream(seed, "world")), Streams.of(seed).contexts
    counts = np.zeros(len(world.features), dtype=np.int64)
    while left:
        _, tags = environment.draw_contexts(world, rng, min(left, _CHUNK))
        counts += np.bincount(tags, minlength=counts.size)
        left -= tags.size
    met = np.flatnonzero(counts).tolist()
    means = environment.means
    sample = replace(
        environment,
        contexts=[environment.contexts[i] for i in met],
        probabilities=(counts[met] / counts.sum()).tolist(),
        means=None if means is None else [means[i] for i in met],
    )
    return optimum(sample, objective, seed, tolerance)
