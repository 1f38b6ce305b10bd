"""Worlds for the coverage of intervals: few contexts, known means, f at a kink, near it, or away.

Seven families. `sundry` and `merit` were written down before the coverage of any interval had been
measured on them, and nothing was chosen by them; the first five are those of the issue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fairwolfe as fw
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    Concave,
    GeneralizedGini,
    GiniEquality,
    Linear,
    Minimum,
    Nash,
    PerMerit,
    Welfare,
)

Array = NDArray[np.float64]
PLACES = ("tie", "near", "away")
_NEAR = 0.03  # relative distance of neighbouring coordinates


@dataclass(frozen=True)
class World:
    """contexts (C,) and policies (C, K) as probabilities, means (C, K, D), and how rewards vary."""

    f: Concave
    contexts: Array
    logging: Array
    target: Array
    means: Array
    draw: Callable[[np.random.Generator, Array], Array]
    high: float = 1.0

    @property
    def z(self) -> Array:
        """What the target earns."""
        return np.asarray(np.einsum("c,ck,ckd->d", self.contexts, self.target, self.means))

    @property
    def names(self) -> list[str]:
        return [f"r{i}" for i in range(self.means.shape[2])]

    @property
    def truth(self) -> float:
        return float(self.f.bind(self.problem("dr")).value(self.z))

    def problem(self, estimator: str) -> fw.Problem:
        d = 1 if estimator == "dr-blind" else self.contexts.size
        ranges = dict.fromkeys(self.names, (0.0, self.high))
        return fw.Problem.arms(d, ranges, n_arms=self.logging.shape[1])

    def log(self, n: int, rng: np.random.Generator, estimator: str) -> tuple[Any, Array]:
        """n logged decisions, and the probabilities of the target in them. dr-blind: the log does
        not tell contexts apart, so that a model of its rewards is wrong.
        """
        x = rng.choice(self.contexts.size, n, p=self.contexts)
        sums = np.cumsum(self.logging, axis=1)[x]
        a = np.minimum((rng.random((n, 1)) > sums).sum(axis=1), self.logging.shape[1] - 1)
        r = self.draw(rng, self.means[x, a])
        features = np.ones((n, 1)) if estimator == "dr-blind" else np.eye(self.contexts.size)[x]
        columns = {"action": a, "probability": self.logging[x, a], "features": features}
        columns |= {f"reward.{name}": r[:, i] for i, name in enumerate(self.names)}
        return fw.offpolicy.Log.of(columns, self.problem(estimator)), self.target[x]


def bernoulli(rng: np.random.Generator, means: Array) -> Array:
    return (rng.random(means.shape) < means).astype(np.float64)


def beta(rng: np.random.Generator, means: Array) -> Array:
    return rng.beta(2.0 * means, 2.0 * (1.0 - means))


def gamma(rng: np.random.Generator, means: Array) -> Array:
    """Skewed amounts of money, of shape 2."""
    return rng.gamma(2.0, means / 2.0)


def softmax(rng: np.random.Generator, contexts: int, arms: int, size: float, least: float) -> Array:
    scores = np.exp(size * rng.standard_normal((contexts, arms)))
    shares = scores / scores.sum(axis=1, keepdims=True)
    return np.asarray((1.0 - least) * shares + least / arms)


def _parts(seed: int, contexts: int, arms: int, rewards: int) -> tuple[Array, Array, Array, Array]:
    rng = np.random.default_rng(seed)
    px = rng.dirichlet(np.full(contexts, 5.0))
    logging = softmax(rng, contexts, arms, 0.7, 0.3)
    target = softmax(rng, contexts, arms, 1.0, 0.1)
    return px, logging, target, rng.uniform(0.15, 0.85, (contexts, arms, rewards))


def _tied(px: Array, target: Array, means: Array, tied: slice, place: str) -> Array:
    """The means with coordinates scaled down so that those of z tie, or nearly."""
    if place == "away":
        return means
    z = np.einsum("c,ck,ckd->d", px, target, means)[tied]
    steps = 1.0 if place == "tie" else 1.0 + _NEAR * np.arange(z.size)
    goal = steps * (z / steps).min()
    out = means.copy()
    out[:, :, tied] *= goal / z
    return out


def minimum(place: str) -> World:
    px, logging, target, means = _parts(1, 3, 4, 3)
    means = _tied(px, target, means, slice(0, 3), place)
    return World(Minimum(), px, logging, target, means, bernoulli)


def nash(place: str) -> World:
    px, logging, target, means = _parts(2, 3, 4, 3)
    means = _tied(px, target, means, slice(0, 3), place)
    return World(Nash(), px, logging, target, means, bernoulli)


def ceiling(place: str) -> World:
    """min(z_0, z_1) - 2 (z_2 - u)+, u = z_2 at the kink."""
    px, logging, target, means = _parts(3, 3, 4, 3)
    means = _tied(px, target, means, slice(0, 2), place)
    z = np.einsum("c,ck,ckd->d", px, target, means)[2]
    level = z * {"tie": 1.0, "near": 1.0 + _NEAR, "away": 1.3}[place]
    f = Minimum().on("r0", "r1") + AtMost({"r2": float(level)}, penalty=2.0)
    return World(f, px, logging, target, means, bernoulli)


def gini10(place: str) -> World:
    """A generalised Gini of ten rewards."""
    px, logging, target, means = _parts(4, 3, 4, 10)
    means = _tied(px, target, means, slice(0, 10), place)
    f = GeneralizedGini(tuple((10.0 - i) / 10.0 for i in range(10)))
    return World(f, px, logging, target, means, bernoulli)


def items30(place: str) -> World:
    """Clicks plus the Gini of the exposures of 30 items, one shown at a time, exposed or not."""
    rng = np.random.default_rng(5)
    m = 30
    px = np.array([0.3, 0.3, 0.4])
    logging = softmax(rng, 3, m, 0.5, 0.3)
    target = np.full((3, m), 1.0 / m)
    if place != "tie":
        spread = _NEAR * np.linspace(-1.0, 1.0, m) if place == "near" else rng.normal(0, 0.5, m)
        target = np.broadcast_to(np.exp(spread) / np.exp(spread).sum(), (3, m)).copy()
    means = np.zeros((3, m, m + 1))
    means[:, np.arange(m), np.arange(m)] = 0.7
    means[:, :, m] = rng.uniform(0.1, 0.6, (3, m))
    f = Linear({f"r{m}": 1.0}) + GiniEquality().on(*range(m))
    return World(f, px, logging, target, means, bernoulli)


def sundry(place: str) -> World:
    """Fixed before it was measured: a smooth part, two ties, and four floors that are just met."""
    px, logging, target, means = _parts(6, 4, 5, 9)
    means = _tied(px, target, means, slice(3, 5), place)
    z = np.einsum("c,ck,ckd->d", px, target, means)[5:]
    levels = z * {"tie": 1.0, "near": 1.0 - _NEAR, "away": 0.7}[place]
    floors = {f"r{5 + i}": float(level) for i, level in enumerate(levels)}
    f = Welfare(0.5, offset=0.01).on("r0", "r1", "r2") + Minimum().on("r3", "r4")
    return World(f + AtLeast(floors, penalty=1.5), px, logging, target, means, beta)


def merit(place: str) -> World:
    """Fixed before it was measured: the least of six skewed amounts per merit, three of them tied,
    logged by a policy that explores a tenth of the time.
    """
    px, _, target, means = _parts(7, 4, 5, 6)
    rng = np.random.default_rng(8)
    logging = np.full((4, 5), 0.02)
    logging[np.arange(4), rng.integers(0, 5, 4)] = 0.92
    logging = 0.5 * logging + 0.5 * target
    merits = (1.0, 2.0, 0.5, 1.0, 1.5, 0.8)
    scaled = means.copy()
    scaled[:, :, 3:] *= 2.0  # the last three are far from the least
    scaled *= np.array(merits)
    scaled[:, :, :3] = (
        _tied(px, target, scaled[:, :, :3] / merits[:3], slice(0, 3), place) * merits[:3]
    )
    return World(PerMerit(Minimum(), merits), px, logging, target, scaled, gamma, high=60.0)


FAMILIES: dict[str, Callable[[str], World]] = {
    "nash": nash,
    "minimum": minimum,
    "ceiling": ceiling,
    "gini10": gini10,
    "items30": items30,
    "sundry": sundry,
    "merit": merit,
}
