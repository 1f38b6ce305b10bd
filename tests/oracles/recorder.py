"""An estimator that notes what it is taught. Imported in the bodies of tests that need it."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

from fairwolfe.core.arrays import Matrix


class Recorder(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts the mean reward; with `spoil`, what is no number."""

    seen: ClassVar[list[tuple[str, Matrix]]] = []
    """What was called, and the first feature of the rows that it was given."""
    fails: ClassVar[int] = 0
    """How many of the next batches are interrupted half way."""

    def __init__(self, spoil: bool = False, random_state: int | None = None) -> None:
        self.spoil = spoil
        self.random_state = random_state

    def fit(self, X: Matrix, y: Matrix) -> Recorder:
        self.seen.append(("fit", X[:, 0].copy()))
        self.mean_, self.n_ = y.mean(axis=0), len(y)
        return self

    def partial_fit(self, X: Matrix, y: Matrix) -> Recorder:
        self.n_ += len(y)
        self.mean_ = self.mean_ + (y - self.mean_).sum(axis=0) / self.n_
        if Recorder.fails:
            Recorder.fails -= 1
            raise KeyboardInterrupt
        self.seen.append(("part", X[:, 0].copy()))
        return self

    def predict(self, X: Matrix) -> Matrix:
        return np.full((len(X), *self.mean_.shape), np.nan if self.spoil else self.mean_)
