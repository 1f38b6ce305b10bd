"""Ascents over mixtures: against the same steps in NumPy, and against what they solve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels import gradients
from fairwolfe.kernels.mixtures import ascend_arms, correct, frank_wolfe, nearest_mixture
from fairwolfe.objectives import Concave, Custom, GiniWelfare, Linear, Minimum, Nash, Welfare

OBJECTIVES: dict[str, Concave] = {
    "gini": GiniWelfare(),
    "minimum": Minimum(),
    "nash": Nash(offset=0.5),
    "a sum": Welfare(0.5, offset=0.5) + 0.3 * Minimum(),
}


@pytest.mark.parametrize("n", [1, 2, 3, 10, 50, 200])
@pytest.mark.parametrize("spread", [1e-8, 0.01, 0.3, 10.0, 1e6])
def test_the_projection_on_the_simplex_is_the_nearest_point(n: int, spread: float) -> None:
    """p is nearest to v if and only if <v - p, e_i - p> <= 0 for every corner e_i."""
    rng = stream(n, "simplex", str(spread))
    for center in (0.0, 1.0 / n, -3.0, 1e6):
        for _ in range(20):
            v = center + spread * np.round(rng.normal(size=n), 2)  # with ties
            p = v.copy()
            nearest_mixture(p)
            rounding = 1e-13 * (1.0 + np.abs(v).max())
            assert p.min() >= 0.0
            assert abs(p.sum() - 1.0) <= rounding
            away = v - v.max() - p
            assert (away - away @ p).max() <= rounding


def test_huge_numbers_are_projected_on_the_largest() -> None:
    weights = np.array([1e300, -1e300, 9e299, 3.0])
    nearest_mixture(weights)
    assert weights.tolist() == [1.0, 0.0, 0.0, 0.0]


def test_what_is_not_finite_ends() -> None:
    for bad in (np.nan, np.inf, -np.inf):
        for place in range(3):
            weights = np.zeros(3)
            weights[place] = bad
            nearest_mixture(weights)
            assert bad == -np.inf or not np.isfinite(weights).all()


def ascent(f: Concave, rewards: Matrix, steps: int, rate: float) -> Vector:
    """The mixture after projected supergradient steps; rewards (arms, n)."""
    weights = np.full(len(rewards), 1.0 / len(rewards))
    for _ in range(steps):
        weights += rate * (rewards @ f.gradient(weights @ rewards))
        nearest_mixture(weights)
    return weights


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("per_arm", [False, True])
def test_the_arms_of_molincb(name: str, per_arm: bool) -> None:
    rng, f, seen = stream(0, "arms", name), OBJECTIVES[name], set()
    for _ in range(50):
        arms, n, d, steps = (
            int(rng.integers(*ends)) for ends in ((1, 12), (1, 5), (1, 7), (1, 12))
        )
        x = rng.uniform(0.1, 1.0, size=(1 if per_arm else arms, d))
        theta = rng.uniform(0.0, 0.6, size=(arms if per_arm else 1, n, d))
        rewards = theta @ x[0] if per_arm else x @ theta[0].T
        rate, out = float(rng.uniform(0.1, 2.0)), np.empty(arms)
        arm = ascend_arms(f.tree(n), theta, x, per_arm, steps, rate, out)
        np.testing.assert_allclose(out, ascent(f, rewards, steps, rate), rtol=0.0, atol=1e-9)
        assert arm == int(out.argmax())
        seen.add(arm)
    assert len(seen) > 3


@pytest.mark.parametrize("name", OBJECTIVES)
def test_corrective_steps_reach_the_best_mixture(name: str) -> None:
    rng, f = stream(1, "correct", name), OBJECTIVES[name]
    for _ in range(5):
        vertices, shift = rng.uniform(0.1, 1.0, size=(7, 3)), 0.01 * rng.normal(size=3)
        weights, bend = np.full(7, 1.0 / 7.0), np.ones(1)
        tree = gradients.stacked([(1.0, 0.5, f.tree(3))])
        steps = correct(tree, vertices, shift, weights, bend, 1e-9, 3000)
        assert 0 < steps < 3000
        assert weights.min() >= 0.0
        assert weights.sum() == pytest.approx(1.0)
        g = tree.gradient(weights @ vertices - shift, 1.0)
        assert (vertices @ g).max() - g @ (weights @ vertices) <= 1e-9 + 1e-12
        assert correct(tree, vertices, shift, np.full(7, 1.0 / 7.0), bend, 1e-9, 2) <= 2


def test_a_walk_takes_the_best_vertex_at_each_step() -> None:
    rng = stream(2, "walk")
    vertices, path = rng.uniform(size=(9, 3)), np.empty((200, 3))
    path[0] = 0.1
    f = GiniWelfare()
    frank_wolfe(f.tree(3), 0.7, vertices, path)
    tree = f.tree(3)
    for t in range(1, 200):
        g = tree.gradient(path[t - 1], 0.7 / np.sqrt(t + 1.0))
        scores = vertices[:, 0] * g[0] + vertices[:, 1] * g[1] + vertices[:, 2] * g[2]
        best = vertices[scores.argmax()]
        np.testing.assert_array_equal(path[t], path[t - 1] + (best - path[t - 1]) / (t + 1.0))


def failing(after: int) -> tuple[Any, list[int]]:
    """A gradient that raises an error from some call on, and how many calls there were."""
    calls = [-1000]

    def slope(z: Any) -> Any:
        calls[0] += 1
        if calls[0] > after:
            raise ZeroDivisionError("mine")
        return -z

    tree = Custom(lambda z: -0.5 * float(z @ z), slope, smooth=True).tree(2)  # which checks it
    calls[0] = 0
    return tree, calls


VERTICES = np.array([[0.1, 0.9], [0.8, 0.2], [0.4, 0.1]])


@pytest.mark.parametrize(
    "ascend",
    [
        lambda f: correct(f, VERTICES, np.zeros(2), np.ones(3) / 3, np.ones(1), -1.0, 3000),
        lambda f: ascend_arms(f, VERTICES[None, :2], VERTICES, False, 50, 1.0, np.empty(3)),
        lambda f: frank_wolfe(f, 0.0, VERTICES, np.full((100, 2), 0.3)),
    ],
    ids=["correct", "ascend_arms", "frank_wolfe"],
)
def test_what_a_function_raises_ends_an_ascent_at_once(ascend: Any) -> None:
    tree, calls = failing(after=5)
    for _ in range(2):  # and the tree can be used again
        with pytest.raises(ZeroDivisionError, match="mine"):
            ascend(tree)
    assert 6 < calls[0] < 20


def test_a_gradient_that_calls_itself_is_refused() -> None:
    vertices = np.eye(2)
    trees: list[Any] = []

    def slope(z: Any) -> Any:
        if trees:
            trees[0].gradient(z, 0.0)
        return -z

    tree = Custom(lambda z: -0.5 * float(z @ z), slope, smooth=True).tree(2)
    trees.append(tree)
    with pytest.raises(InvalidInput):
        frank_wolfe(tree, 0.0, vertices, np.full((3, 2), 0.3))


def test_arrays_of_other_shapes_are_refused() -> None:
    tree, row, square = Linear((1.0, 2.0)).tree(2), np.ones(3), np.ones((3, 2))
    for wrong in (
        lambda: correct(tree, square, np.ones(3), row, np.ones(1), 0.1, 5),
        lambda: correct(tree, square, np.ones(2), np.ones(2), np.ones(1), 0.1, 5),
        lambda: correct(tree, square, np.ones(2), row, np.ones(2), 0.1, 5),
        lambda: correct(tree, np.empty((0, 2)), np.ones(2), np.empty(0), np.ones(1), 0.1, 5),
        lambda: correct(tree, np.ones((3, 3)), row, row, np.ones(1), 0.1, 5),
        lambda: ascend_arms(tree, np.ones((1, 2, 2)), np.ones((2, 2)), False, 1, 1.0, row),
        lambda: ascend_arms(tree, np.ones((2, 2, 2)), np.ones((1, 2)), True, 1, 1.0, row),
        lambda: ascend_arms(tree, np.ones((1, 3, 2)), square, False, 1, 1.0, row),
        lambda: frank_wolfe(tree, 0.1, np.ones((3, 3)), square),
        lambda: frank_wolfe(tree, 0.1, np.empty((0, 2)), square),
        lambda: nearest_mixture(np.empty(0)),
    ):
        with pytest.raises(ValueError, match=r"\(|numbers|mixture"):
            wrong()
    assert tree.gradient(np.ones(2), 0.0).tolist() == [1.0, 2.0]  # it is not busy for ever
