"""What late feedback costs, by a rule of thumb."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from fairwolfe.smoothing import Moreau
from fairwolfe.truth.bounds.assumptions import Given, T, checked_number, setting

__all__ = ["delay_cost"]


def delay_cost(*, delay: float, beta0: float | None = None, **given: Unpack[Given[T]]) -> T:
    """2 tau D_K^2/(beta_0 sqrt(T)): about what a delay of tau rounds adds to R_T. An estimate.

    tau rounds move the average by at most tau D_K/t, and the direction, which is the gradient of a
    sqrt(t)/beta_0-smooth function, by tau D_K/(beta_0 sqrt(t)); each round may lose D_K times
    that, and the sum over t of 1/sqrt(t) is 2 sqrt(T). That is the worst that the direction can
    do. What the regression misses for a while is not counted, so it is not a bound; in a run the
    average moves far less than D_K/t and mostly one way and back, so the cost is a small part of
    it. It is of use for how the cost changes: with tau, and with 1/sqrt(T).

    `beta0=None` is the width that `Moreau()` takes for the problem. A snapshot renewed every n
    decisions lacks (n - 1)/2 answers on average. Tight: D_K of the coordinates in which f is not
    linear.

    >>> from fairwolfe.objectives import Minimum
    >>> from fairwolfe.core.problem import Problem
    >>> problem = Problem.arms(1, {"clicks": (0, 1)})
    >>> delay_cost(problem=problem, objective=Minimum(), horizon=10_000, delay=10)
    0.2
    """
    here = setting(**given)
    late = checked_number("delay", delay)
    smoothing = Moreau(beta0).bind(here.problem, here.objective)
    width = smoothing.beta_0(here.objective, here.n)
    return here.answer(2.0 * late * here.diameter**2 / (width * np.sqrt(here.t)))
