"""Compiled Philox against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from fairwolfe.core.streams import Numbered
from fairwolfe.kernels.draws import uniforms_by_number


@pytest.mark.parametrize("width", [0, 1, 2, 3, 4, 5, 7, 8, 13])
@pytest.mark.parametrize("first", [0, 1, 12_345, 2**40, 2**62])
def test_uniforms_are_those_of_numpy(width: int, first: int) -> None:
    for seed in range(5):
        draws = Numbered.of(seed, "policy")
        out = np.empty((3, width))
        uniforms_by_number(*draws.signed, first, out)
        draws.number = first
        for row in range(3):
            np.testing.assert_array_equal(out[row], draws.generator(row).random(width))


def test_extreme_keys_are_taken() -> None:
    for key in (-1, 0, 2**63 - 1, -(2**63)):
        out, draws = np.empty((1, 6)), Numbered((key % 2**64, ~key % 2**64), 3)
        uniforms_by_number(key, ~key, 3, out)
        np.testing.assert_array_equal(out[0], draws.generator().random(6))
        assert (out >= 0.0).all()
        assert (out < 1.0).all()


def test_an_array_that_cannot_be_written_is_refused() -> None:
    out = np.empty((2, 2))
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        uniforms_by_number(1, 2, 0, out)
