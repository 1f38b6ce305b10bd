"""Mixtures of rankings for every user, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from fairwolfe.core.streams import stream
from fairwolfe.environments import FactorModel, dcg
from fairwolfe.kernels.ranks import CompiledRankingWorld
from fairwolfe.kernels.truth import RankingMixtures
from fairwolfe.objectives import GiniWelfare, TwoSided
from fairwolfe.objectives.leaves import Leaves

MODEL = FactorModel(30, 12, dcg(4), n_factors=5)
WORLD = MODEL.init(stream(0, "world"))
F = TwoSided(GiniWelfare(), 0.5).bind(MODEL.problem())


def mixtures(kept: int = 6) -> tuple[RankingMixtures, Leaves]:
    f = Leaves(F, 13)
    columns = sparse.csc_array(f.matrix)
    matrix = (columns.indptr.astype(np.int64), columns.indices.astype(np.int64), columns.data)
    arrays = (WORLD.turned, WORLD.items, WORLD.columns, WORLD.weights, WORLD.ranges)
    rows = columns.shape[0]
    return RankingMixtures(CompiledRankingWorld(*arrays), WORLD.shares, kept, matrix, rows), f


def means(u: int) -> Any:
    """The mean of every reward of every item, (R, m)."""
    low, high = WORLD.ranges.T[:, :, None]
    return np.clip(WORLD.turned[:, u] @ WORLD.items.T, low, high)


def weights(u: int) -> Any:
    return WORLD.weights[u if len(WORLD.weights) > 1 else 0]


def average(mixture: RankingMixtures) -> Any:
    """Exposures of the items, then the rewards, from rankings and masses alone."""
    out = np.zeros(13)
    for u, share in enumerate(WORLD.shares):
        for ranking, mass in zip(mixture.rankings[u], mixture.masses[u], strict=True):
            out[ranking] += share * mass * weights(u)
            out[12:] += share * mass * means(u)[:, ranking] @ weights(u)
    return out


def swept(passes: int, kept: int = 6) -> tuple[RankingMixtures, Leaves, Any, list[float]]:
    mixture, f = mixtures(kept)
    y, s, values = np.empty(f.matrix.shape[0]), np.empty(13), []
    mixture.average(s)
    y[:] = f.matrix @ s
    sizes = [block.stop - block.start for block in f.blocks]
    bend = np.concatenate([leaf.curvature(n) for leaf, n in zip(f.leaves, sizes, strict=True)])
    for t in range(passes):
        order = stream(t, "order").permutation(30)
        with f.lent() as tree:
            missing = mixture.sweep(tree, order, 3, np.zeros(y.size), bend / f.reach, y)
        assert missing >= 0.0
        mixture.average(s)
        values.append(F.value(s))
    return mixture, f, (y, s), values


def test_at_first_items_take_turns() -> None:
    mixture, _ = mixtures()
    s = np.empty(13)
    mixture.average(s)
    np.testing.assert_allclose(s, average(mixture), rtol=1e-12)
    assert (mixture.masses[:, 0] == 1.0).all()
    np.testing.assert_array_equal(mixture.rankings[:4, 0].ravel(), np.arange(16) % 12)


@pytest.mark.parametrize("kept", [1, 2, 6, 40])
def test_sweeps_keep_mixtures_and_what_follows_from_them(kept: int) -> None:
    mixture, f, (y, s), values = swept(20, kept)
    assert values[-1] > values[0]
    np.testing.assert_allclose(mixture.masses.sum(axis=1), 1.0, rtol=1e-12)
    assert mixture.masses.min() >= 0.0
    assert all(len(set(r)) == 4 for u in mixture.rankings[:, 0] for r in [u.tolist()])
    np.testing.assert_allclose(s, average(mixture), rtol=1e-9)
    if kept > 1:  # with one ranking a full mixture replaces it, which is not a step along y
        np.testing.assert_allclose(y, f.matrix @ s, rtol=1e-6, atol=1e-9)
    by_item = mixture.by_item()
    np.testing.assert_allclose(by_item[:, 0], s[:12], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(by_item[:, 1:].sum(axis=0), s[12:], rtol=1e-12)


def test_the_same_sweeps_have_the_same_bits() -> None:
    one, other = swept(5)[0], swept(5)[0]
    for name in ("rankings", "masses", "earned"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes()


def test_mixtures_of_other_shapes_are_refused() -> None:
    mixture, f = mixtures()
    rows = f.matrix.shape[0]
    world = mixture.world
    starts, places, values = np.zeros(14, np.int64), np.empty(0, np.int64), np.empty(0)
    RankingMixtures(world, WORLD.shares, 1, (starts, places, values), rows)
    for wrong in (
        (world, WORLD.shares[:-1].copy(), 1, (starts, places, values), rows),
        (world, WORLD.shares, 0, (starts, places, values), rows),
        (world, WORLD.shares, 1, (starts[:-1], places, values), rows),
        (world, WORLD.shares, 1, (starts + 1, places, values), rows),
        (world, WORLD.shares, 1, (np.r_[starts[:-1], 1], np.array([rows]), np.ones(1)), rows),
        (world, WORLD.shares, 1, (np.r_[starts[:-1], 1], np.array([-1]), np.ones(1)), rows),
        (world, WORLD.shares, 1, (np.r_[0, 1, starts[2:]], places, values), rows),
        (world, WORLD.shares, 1, (starts, places, np.ones(1)), rows),
    ):
        with pytest.raises(ValueError, match=r"\d|columns"):
            RankingMixtures(*wrong)
    flat = np.zeros(rows)
    with f.lent() as tree:
        for users, every, y in (
            (np.array([30]), 1, flat),
            (np.array([-1]), 1, flat),
            (np.array([0]), 0, flat),
            (np.array([0]), 1, flat[:-1].copy()),
        ):
            with pytest.raises(ValueError, match=r"user|each"):
                mixture.sweep(tree, users, every, flat, flat, y)
    with pytest.raises(ValueError, match="13 numbers"):
        mixture.average(np.empty(12))
