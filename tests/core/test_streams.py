"""Named streams: the same on every machine, independent of each other."""

from __future__ import annotations

import numpy as np
import pytest

from fairwolfe.core.streams import stream

GOLDEN = [
    [394508539, 3306137211, 1842940511],
    [3517770462, 3409655459, 2641737120],
    [1072944401, 655535235, 1797251505],
]
NORMALS = [0.4978715517401564, 0.8722093316376137]


def test_streams_never_change() -> None:
    # Written down: every published number depends on them.
    assert stream(0, "environment").integers(0, 2**32, 3).tolist() == GOLDEN[0]
    assert stream(12345, "policy", 7).integers(0, 2**32, 3).tolist() == GOLDEN[1]
    assert stream(2**70).integers(0, 2**32, 3).tolist() == GOLDEN[2]
    assert stream(0, "environment").standard_normal(2) == pytest.approx(NORMALS, rel=1e-14)


def test_a_stream_is_a_function_of_seed_and_names() -> None:
    first = stream(3, "noise", 1).random(5)
    stream(3, "policy").random(1000)
    assert np.array_equal(stream(3, "noise", 1).random(5), first)
    assert np.array_equal(stream(np.int64(3), "noise", np.int64(1)).random(5), first)  # type: ignore[arg-type]


def test_other_names_and_seeds_are_other_streams() -> None:
    keys: list[tuple[str | int, ...]] = [
        (),
        ("a",),
        ("b",),
        ("a", "b"),
        ("b", "a"),
        ("ab",),
        ("a", 1),
        ("a", 2),
        ("a", 12),
        ("a", 1, 2),
        ("", "a"),
        ("a", ""),
    ]
    draws = [stream(seed, *key).random(4).tolist() for seed in (0, 1, 2**40) for key in keys]
    assert len({tuple(d) for d in draws}) == len(draws)


def test_streams_are_not_correlated() -> None:
    n = 20_000
    names = ("environment", "feedback", "policy")
    columns = [stream(seed, name).standard_normal(n) for seed in (0, 1) for name in names]
    correlation = np.corrcoef(columns) - np.eye(len(columns))
    assert np.abs(correlation).max() <= 5.0 / n**0.5  # five standard errors
    assert np.abs(np.mean(columns, axis=1)).max() <= 5.0 / n**0.5
