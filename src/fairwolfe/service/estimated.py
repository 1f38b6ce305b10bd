"""The world of today's estimates, and the process that asks what the best in it is.

It is made of what a model has learnt (the parameters of each reward), of the contexts that it saw
last, and of how often each slot was exposed; its optimum is certified, the world is not. The
process reads the question from stdin and writes a line of JSON for each answer.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fairwolfe.agent import Agent
from fairwolfe.core.contexts import Bilinear, PerArm, arms
from fairwolfe.core.packing import pack, unpack
from fairwolfe.environments import FactorModel, Finite
from fairwolfe.errors import FairwolfeError, InvalidInput
from fairwolfe.objectives import TwoSided
from fairwolfe.service.betas import beta_of, with_beta
from fairwolfe.service.model import read_objective
from fairwolfe.service.watch import parts_of, shares_of

__all__ = ["World", "answers", "question_of", "world_of"]

_NICE = 10
_TOLERANCE = 1e-3
_CURVE = 20  # parts of a Lorenz curve
_APART = 1e-3  # relative: what is nearer than this is the same corner
_MIXTURES = 12  # between the answers for two neighbouring betas


def question_of(agent: Agent, contexts: Sequence[Any], texts: Sequence[str]) -> bytes:
    """What the process reads: an agent, contexts, and the texts of objectives."""
    return pack((agent.dump(), tuple(map(_packed, contexts)), tuple(texts)))


def _packed(context: Any) -> tuple[Any, ...]:
    if isinstance(context, PerArm):
        return ("per-arm", np.asarray(context.features))
    if isinstance(context, Bilinear):
        return ("bilinear", np.asarray(context.user), np.asarray(context.items))
    return ("plain", np.asarray(context))


class World(NamedTuple):
    """A world of today's estimates, and what its rewards are called."""

    environment: FactorModel | Finite
    rewards: tuple[str, ...]
    n_items: int


def world_of(agent: Agent, contexts: Sequence[Any]) -> World:
    """The world that an agent believes in, for users or contexts that it saw."""
    with agent.held() as running:
        oracle, looks = running.learnt()
    problem = agent.problem
    rewards = tuple(problem.rewards)
    if problem.n_slots is None:
        return World(_choices(problem, oracle, contexts), rewards, 0)
    users = np.stack([np.asarray(user) for user in contexts])
    items = agent.features[agent.items]
    low, high = problem.slot_ranges
    thetas = oracle.theta[0].reshape(len(rewards), users.shape[1], items.shape[1])
    learnt = {
        name: (theta, (float(a), float(b)))
        for name, theta, a, b in zip(rewards, thetas, low, high, strict=True)
    }
    world = FactorModel(users, items, looks, calibration="clip", rewards=learnt)
    return World(world, rewards, len(items))


def _choices(problem: Any, oracle: Any, contexts: Sequence[Any]) -> Finite:
    """Contexts with the estimated rewards of their arms; their number identifies them."""
    tables = []
    for context in contexts:
        theta, _, _, features, per_arm = oracle.estimates(arms(context, problem))
        n, d = len(problem.rewards), features.shape[1]
        if theta.shape == (1, 1, n * d):  # <g, r> on g (x) x
            theta = theta.reshape(1, n, d)
        if theta.shape[1] != n:
            raise InvalidInput("the policy keeps no estimate of each reward")
        means = theta @ features[0] if per_arm else features @ theta[0].T
        tables.append(np.clip(means, problem.low, problem.high))
    most = max(map(len, tables))
    # Of fewer arms the first is there several times, which changes nothing.
    means = np.stack([np.concatenate([t, t[:1].repeat(most - len(t), axis=0)]) for t in tables])
    n = len(means)
    labels = np.broadcast_to(np.arange(float(n))[:, None, None], (n, most, 1))
    return Finite(labels.copy(), np.full(n, 1.0 / n), means=means, noise="none")


def answers(
    agent: Agent, contexts: Sequence[Any], texts: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """The best that each objective can give in the world of today's estimates; at the end, where
    they differ in beta, the curve of trade-offs that they make.
    """
    from fairwolfe.truth import optimum

    world = world_of(agent, contexts)
    corners: list[Any] = []
    for text in texts:
        objective = read_objective(text)
        assert objective is not None
        answer: dict[str, Any] = {"objective": text, "beta": beta_of(objective), "message": None}
        try:
            bound = objective if world.n_items else objective.bind(agent.problem)
            best = optimum(world.environment, bound, tolerance=_TOLERANCE)
        except FairwolfeError as error:
            yield {**answer, "message": str(error)}
            continue
        earned = best.average[world.n_items :].tolist()
        answer["average"] = dict(zip(world.rewards, earned, strict=True))
        answer["value"] = best.value if math.isfinite(best.value) else None
        if not best.feasible:
            answer["message"] = "no policy keeps the hard constraints, by today's estimates"
        if world.n_items:
            answer |= shares_of(best.average[: world.n_items], _CURVE)
            if best.feasible and answer["beta"] is not None:
                corners.append(best.average)
        yield answer
    sides = _curve(world, texts[0], corners) if len(corners) > 1 else []
    if sides:
        yield {"curve": sides}


def _curve(world: World, text: str, corners: list[Any]) -> list[list[float]]:
    """Utility, item objective, Gini index and the share of the least shown half, from the most
    utility to the fairest: at the corners of the frontier, and at mixtures of neighbours.
    """
    objective = read_objective(text)
    assert objective is not None
    bound = with_beta(objective, 1.0).bind(world.environment.problem())
    items, users = next(p for p in parts_of(bound) if isinstance(p, TwoSided)).members

    def measured(average: Any) -> list[float]:
        exposures = np.maximum(average[: world.n_items], 0.0)
        shares = shares_of(exposures, 2)
        sides = (users.value(average[world.n_items :]), items.value(average[: world.n_items]))
        return [*sides, shares["gini"], shares["least_half"]]

    kept: list[Any] = []
    for average in sorted(corners, key=lambda one: measured(one)[1]):
        while kept and not _above(kept[-2:], average, measured):
            kept.pop()
        kept.append(average)
    if len(kept) < 2:
        return []
    parts = np.linspace(0.0, 1.0, _MIXTURES, endpoint=False).tolist()
    mixed = [(1.0 - part) * a + part * b for a, b in pairwise(kept) for part in parts]
    return [measured(average) for average in (*mixed, kept[-1])]


def _above(last: list[Any], new: Any, measured: Any) -> bool:
    """Whether the last corner is above the line from the one before to a new one, and has more
    utility than that.
    """
    (u, g), (u2, g2) = measured(last[-1])[:2], measured(new)[:2]
    if not (u > u2 + _APART * abs(u) and g2 > g + _APART * abs(g)):
        return False
    if len(last) == 1:
        return True
    u0, g0 = measured(last[0])[:2]
    return bool((u0 - u) * (g2 - g) < (u - u2) * (g - g0))


def main() -> None:
    """Answer the question on stdin."""
    with suppress(OSError):
        os.nice(_NICE)
    agent_bytes, packed, texts = unpack(sys.stdin.buffer.read())
    kinds: dict[str, Any] = {"per-arm": PerArm, "bilinear": Bilinear, "plain": lambda x: x}
    contexts = [kinds[kind](*parts) for kind, *parts in packed]
    write = sys.stdout.buffer.write
    try:
        for answer in answers(Agent.restore(agent_bytes), contexts, texts):
            write(msgspec.json.encode(answer) + b"\n")
            sys.stdout.buffer.flush()
    except FairwolfeError as error:
        write(msgspec.json.encode({"failed": str(error)}) + b"\n")


if __name__ == "__main__":
    main()
