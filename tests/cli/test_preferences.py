from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fairwolfe.cli.demos import preferences
from fairwolfe.cli.demos.preferences import Panel, Walk, panels, reachable, walk
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Custom

walked = cache(walk)


@cache
def everywhere() -> Matrix:
    """The set, point by point: its boundary finely, its inside on scaled copies of it."""
    corners = reachable()
    edges = zip(corners, np.roll(corners, -1, axis=0), strict=True)
    boundary = np.concatenate(
        [np.linspace(a, b, 1 + int(400 * np.hypot(*(b - a)))) for a, b in edges]
    )
    middle = corners.mean(axis=0)
    inside = [middle + share * (boundary - middle) for share in np.linspace(0.0, 0.97, 12)]
    return np.concatenate([boundary, *inside])


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel.name)
def test_the_choice_is_the_best_of_the_set(panel: Panel) -> None:
    points = everywhere()
    values = np.array([panel.objective.value(z) for z in points])
    best = int(values.argmax())
    found = walked(panel)
    # The iteration is at most 2 L D/sqrt(T) away, here 0.06 for the steepest; it is far closer.
    assert values[best] - 0.01 <= found.value <= values[best] + 0.01
    assert np.linalg.norm(found.point - points[best]) < 0.02


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel.name)
def test_the_way_stays_in_the_set(panel: Panel) -> None:
    angles = np.linspace(0.0, 2.0 * np.pi, 100)
    directions = np.stack([np.cos(angles), np.sin(angles)])
    furthest = (reachable() @ directions).max(axis=0)
    assert ((walked(panel).path @ directions).max(axis=0) <= furthest + 1e-12).all()


def test_objectives_disagree() -> None:
    choices = np.array([walked(panel).point for panel in panels()])
    assert len(np.unique(choices.round(2), axis=0)) >= 9


def test_a_choice_inside_the_set_is_found() -> None:
    target = np.array([0.4, 0.3])
    near = Custom(
        lambda z: -float((z - target) @ (z - target)), lambda z: -2.0 * (z - target), smooth=True
    )
    assert np.linalg.norm(walk(Panel("near", "", near)).point - target) < 1e-3


def test_what_needs_samples_is_refused() -> None:
    least = Custom(lambda z: float(z.min()), lambda z: np.eye(2)[z.argmin()])
    with pytest.raises(InvalidInput, match="neither smooth nor has it a proximal map"):
        walk(Panel("least", "", least))


def test_an_error_in_a_function_of_the_user_is_raised() -> None:
    def slope(z: Vector) -> Vector:
        if tuple(z) == preferences.START:
            raise ZeroDivisionError("mine")
        return -z

    f = Custom(lambda z: -0.5 * float(z @ z), slope, smooth=True)
    with pytest.raises(ZeroDivisionError, match="mine"):
        walk(Panel("mine", "", f), steps=10)


@pytest.mark.needs("matplotlib")
def test_the_same_walks_give_the_same_picture(tmp_path: Path) -> None:
    made: list[Walk] = [walked(panel) for panel in panels()[:2]]
    first, second = (preferences.draw(made, tmp_path / name)[1].read_bytes() for name in "ab")
    assert first == second
