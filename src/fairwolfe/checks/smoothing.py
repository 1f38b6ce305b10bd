"""Checks of smoothings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fairwolfe.checks.promise import Check, examples_of, is_a_value, length, require, steepest
from fairwolfe.core.arrays import Vector
from fairwolfe.core.registry import KINDS, load
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput, NoProx

__all__ = ["SMOOTHING_CHECKS", "smoothable"]


def smoothable(smoothing: Any) -> list[Any]:
    """The registry's objectives that the smoothing accepts and that have a Lipschitz constant."""
    objectives = []
    for name in KINDS["objectives"]:  # what is built in: a plug-in must not spoil the check
        for objective in examples_of(load("objectives", name)):
            n = length(objective)
            if not np.isfinite(objective.lipschitz(n)):
                continue
            try:
                smoothing.gradient(objective, np.full(n, 0.5), 0, stream(0, "checks"))
            except (InvalidInput, NoProx):
                continue
            objectives.append(objective)
    require(bool(objectives), "no objective of the registry can be smoothed by it")
    return objectives


def approaches(smoothing: Any, rng: np.random.Generator) -> None:
    """|f_t - f| <= M_2/sqrt t and |f_t - f_(t-1)| <= M_1/(t sqrt t)."""
    fixed = getattr(smoothing, "horizon", None) is not None
    for objective in smoothable(smoothing):
        n = length(objective)
        m_1, m_2 = smoothing.m_1(objective, n), smoothing.m_2(objective, n)
        for t in (1, 2, 10, 1000):
            z = rng.uniform(0.0, 1.0, n)
            now, before = (smoothing.value(objective, z, s, stream(t, "draws")) for s in (t, t - 1))
            gap, move = abs(now - objective.value(z)), abs(now - before)
            scale = 1e-9 * (1 + abs(now))
            require(gap <= m_2 / (1.0 if fixed else math.sqrt(t)) + scale, f"M_2 of {objective}")
            require(move <= m_1 / (t * math.sqrt(t)) + scale, f"M_1 of {objective} at t = {t}")


def has_lipschitz_gradients(smoothing: Any, rng: np.random.Generator) -> None:
    """f_t is sqrt(t + 1)/beta_0-smooth (where directions are exact), its slope at most L."""
    times = 0, 3, 100
    exact = all(smoothing.mix(t) == 1.0 for t in times)  # a mean of a few draws has kinks
    for objective in smoothable(smoothing):
        n = length(objective)
        slope = objective.lipschitz(n)
        for t in times:

            def gradient(z: Vector, f: Any = objective, t: int = t) -> Vector:
                g: Vector = smoothing.gradient(f, z, t, stream(t, "draws"))
                return g

            x, y = rng.uniform(0.0, 1.0, (2, n))
            require(np.linalg.norm(gradient(x)) <= slope * (1 + 1e-9), f"slope of {objective}")
            beta_0 = smoothing.beta_0(objective, n)
            for start in (x, 0.0 * x) if exact and beta_0 > 0.0 else ():
                bend, apart = steepest(gradient, start, y)
                most = _rate(smoothing, t) / beta_0 * apart
                require(bend <= most * (1 + 1e-6) + 1e-9, f"beta_0 of {objective} at t = {t}")


def _rate(smoothing: Any, t: int) -> float:
    """How much sharper f_t is than f_0."""
    horizon = getattr(smoothing, "horizon", None)
    return math.sqrt((t if horizon is None else horizon) + 1.0)


def needs_no_luck(smoothing: Any, rng: np.random.Generator) -> None:
    """The same draws give the same gradient; its mean is the gradient of f_t for a linear f."""
    objective = load("objectives", "linear")((1.0, -2.0, 0.5))
    z = rng.uniform(0.0, 1.0, 3)
    g, h = (smoothing.gradient(objective, z, 5, stream(5, "draws")) for _ in range(2))
    require(np.array_equal(g, h), "equal draws, other gradients")
    require(np.allclose(g, objective.gradient(z)), "a linear function keeps its gradient")


SMOOTHING_CHECKS: list[Check] = [is_a_value, approaches, has_lipschitz_gradients, needs_no_luck]
