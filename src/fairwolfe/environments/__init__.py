"""Worlds that draw contexts and answer actions, and know their own truth.

>>> from fairwolfe import environments
>>> environments.make("mehrotra", n_arms=200)
Mehrotra(n_arms=200, n_objectives=5, n_features=10)
"""

from __future__ import annotations

from inspect import signature
from typing import Any

from fairwolfe.core.registry import load
from fairwolfe.environments.factor_model import FactorModel
from fairwolfe.environments.finite import Finite, FiniteRanking
from fairwolfe.environments.listening import LastFM2k, LastFM50, Listening
from fairwolfe.environments.mehrotra import Mehrotra
from fairwolfe.environments.nonlinear import Nonlinear
from fairwolfe.environments.world import ArmsWorld, body, dcg
from fairwolfe.errors import InvalidInput, did_you_mean

__all__ = [
    "ArmsWorld",
    "FactorModel",
    "Finite",
    "FiniteRanking",
    "LastFM2k",
    "LastFM50",
    "Listening",
    "Mehrotra",
    "Nonlinear",
    "body",
    "dcg",
    "make",
]


def make(name: str, **options: Any) -> Any:
    """The environment of a name, with its options.

    >>> make("mehrotra", n_objectives=20).problem().n_objectives
    20
    """
    kind = load("environments", name)
    known = signature(kind).parameters
    for option in options:
        if option not in known:
            raise InvalidInput(f"{name!r} has no option {option!r}; {did_you_mean(option, known)}")
    missing = [o for o, given in known.items() if given.default is given.empty and o not in options]
    if missing:
        raise InvalidInput(f"{name!r} needs the option {missing[0]!r}; give {', '.join(missing)}")
    return kind(**options)
