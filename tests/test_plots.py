"""What all figures share: means with bands, files that are equal, and pictures inside a page."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairwolfe.core.tables import bands, interval
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives.exposure import lorenz
from fairwolfe.plots import THEME, Picture, line_style, lorenz_line, mean_line, new_figure, save

pytestmark = pytest.mark.needs("matplotlib")

T = np.array([1, 10, 100])
VALUES = np.array([[0.0, 1.0, 2.0], [1.0, 1.0, 4.0], [2.0, 1.0, 3.0]])


def drawn() -> Any:
    figure = new_figure(3.0, 2.0)
    mean_line(figure.add_subplot(), T, bands(VALUES), line_style(0))
    return figure


def test_a_mean_and_its_band_are_drawn_where_they_are() -> None:
    ax = drawn().axes[0]
    (line,) = ax.get_lines()
    assert line.get_ydata().tolist() == VALUES.mean(axis=0).tolist()
    (band,) = ax.collections
    box = band.get_paths()[0].get_extents()
    ends = np.array([interval(column) for column in VALUES.T])
    assert (box.y0, box.y1) == pytest.approx((ends[:, 1].min(), ends[:, 2].max()))
    bare = new_figure().add_subplot()
    mean_line(bare, T, bands(VALUES), line_style(0), alpha=0.0)
    assert len(bare.collections) == 0


def test_a_lorenz_line_is_the_mean_of_its_curves() -> None:
    curves = [lorenz([3.0, 1.0]), lorenz([1.0, 1.0])]
    line = lorenz_line(new_figure().add_subplot(), curves, **line_style(1))
    assert np.asarray(line.get_ydata()).tolist() == [0.0, 37.5, 100.0]


def test_two_files_of_a_figure_are_equal(tmp_path: Path) -> None:
    first, second = (save(drawn(), tmp_path / name, "one") for name in "ab")
    assert [file.name for file in first] == ["one.png", "one.svg"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="file cannot be written"):
        save(drawn(), tmp_path / "file", "one")


def test_a_picture_inside_a_page_has_its_words_and_the_colours_of_the_page() -> None:
    words = 'f < 1 & "so on"'
    plain = Picture("name", "caption", words, drawn()).inline()
    assert plain.startswith('<svg role="img" aria-labelledby="name-alt"')
    assert f'<title id="name-alt">{html.escape(words)}</title>' in plain
    assert "currentColor" in plain
    assert "#000000" not in plain
    assert line_style(0)["color"].lower() in plain
    themed = Picture("name", "caption", words, drawn(), THEME).inline()
    assert line_style(0)["color"].lower() not in themed
    assert "var(--link)" in themed
