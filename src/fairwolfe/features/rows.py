"""Rows of features within the norm that a problem states."""

from __future__ import annotations

import numpy as np

from fairwolfe.core.arrays import Matrix

__all__ = ["within"]


def within(rows: Matrix, feature_norm: float) -> Matrix:
    """The rows; those that are longer than the norm, shortened to it.

    >>> within(np.array([[0.0, 4.0], [0.6, 0.0]]), 1.0).tolist()
    [[0.0, 1.0], [0.6, 0.0]]
    """
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    shortened: Matrix = rows * (feature_norm / np.maximum(norms, feature_norm))
    return shortened
