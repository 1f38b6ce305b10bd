"""Ascents over mixtures: against today's kernels, bit by bit, and against what they solve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels import gradients
from fairwolfe.kernels.mixtures import ascend_arms, correct, frank_wolfe, nearest_mixture
from fairwolfe.kernels.selection import project_on_simplex
from fairwolfe.objectives import Concave, Custom, GiniWelfare, Linear, Minimum, Nash, Welfare
from fairwolfe.reduction.molincb import mixture_ascent

OBJECTIVES: dict[str, Concave] = {
    "gini": GiniWelfare(),
    "minimum": Minimum(),
    "nash": Nash(offset=0.5),
    "a sum": Welfare(0.5, offset=0.5) + 0.3 * Minimum(),
}


@pytest.mark.parametrize("n", [1, 2, 3, 8, 50, 333])
def test_projections_on_the_simplex_are_bit_equal(n: int) -> None:
    rng = stream(n, "simplex")
    for scale in (1e-12, 0.1, 1.0, 1e9):
        for ties in (False, True):
            weights = scale * rng.normal(size=n)
            if ties:
                weights = weights.round(1) + scale
            wanted = weights.copy()
            project_on_simplex(wanted, np.empty(n))
            nearest_mixture(weights)
            assert weights.tobytes() == wanted.tobytes()
            assert weights.min() >= 0.0
            assert weights.sum() == pytest.approx(1.0)


def test_what_is_not_finite_ends() -> None:
    for bad in (np.nan, np.inf, -np.inf):
        for place in range(3):
            weights = np.zeros(3)
            weights[place] = bad
            wanted = weights.copy()
            project_on_simplex(wanted, np.empty(3))
            nearest_mixture(weights)
            np.testing.assert_array_equal(weights, wanted)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("per_arm", [False, True])
def test_the_arms_of_molincb_are_bit_equal(name: str, per_arm: bool) -> None:
    rng, f, seen = stream(0, "arms", name), OBJECTIVES[name], set()
    for _ in range(50):
        arms, n, d, steps = (
            int(rng.integers(*ends)) for ends in ((1, 12), (1, 5), (1, 7), (1, 12))
        )
        theta = 0.3 * rng.normal(size=(arms if per_arm else 1, n, d))
        features = rng.normal(size=(1 if per_arm else arms, d))
        rate, program = float(rng.uniform(0.1, 2.0)), f.program(n)
        head = [steps, rate, program.address, program.params.size, program.work_size]
        params = np.concatenate([head, program.params])
        wanted, report, none = np.empty(arms), np.empty(1), np.empty(0)
        square = np.empty((1, 1, 1))
        arm = mixture_ascent(
            none, theta, square, none, features, per_arm, none, params, wanted, report
        )
        out = np.empty(arms)
        assert ascend_arms(f.tree(n), theta, features, per_arm, steps, rate, out) == arm
        assert out.tobytes() == wanted.tobytes()
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
