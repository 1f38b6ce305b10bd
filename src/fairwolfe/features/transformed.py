"""`Transformed`: a fitted transformer of scikit-learn in front of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Matrix
from fairwolfe.core.problem import positive, real_array, whole_number
from fairwolfe.errors import InvalidInput
from fairwolfe.features.rows import within

__all__ = ["Transformed"]


@dataclass(frozen=True, eq=False)
class Transformed:
    """Rows as a fitted transformer has them, divided by a fixed number to keep their norm.

    Anything with `transform`: a Pipeline, a ColumnTransformer over data frames, a DictVectorizer or
    FeatureHasher over dictionaries. It must not learn any more: a scaling that went on learning
    would change what a feature means under a regression that has learnt from it. Rows longer than
    any of the sample are shortened to `feature_norm`.

    Keep the transformer itself as scikit-learn advises; nothing is pickled here.

    Parameters
    ----------
    transformer: fitted
    n_features: columns that it makes
    divisor: of its rows, > 0
    feature_norm: that of the problem

    `of` finds both numbers from a sample.

    >>> from sklearn.feature_extraction import DictVectorizer
    >>> rows = [{"price": 3.0, "city": "Rome"}, {"price": 0.0, "city": "Oslo"}]
    >>> features = Transformed.of(DictVectorizer().fit(rows), rows)
    >>> features.n_features, features(rows).round(3).tolist()
    (3, [[0.0, 0.316, 0.949], [0.316, 0.0, 0.0]])
    """

    transformer: Any
    n_features: int
    divisor: float = 1.0
    feature_norm: float = 1.0

    def __post_init__(self) -> None:
        whole_number("n_features", self.n_features)
        for name in ("divisor", "feature_norm"):
            positive(name, getattr(self, name))

    @classmethod
    def of(cls, transformer: Any, sample: Any, feature_norm: float = 1.0) -> Transformed:
        """With the number of columns and the largest norm of a sample."""
        rows = _transformed(transformer, sample)
        largest = float(np.linalg.norm(rows, axis=1).max(initial=0.0))
        return cls(transformer, rows.shape[1], largest or 1.0, feature_norm)

    def __call__(self, given: Any) -> Any:
        """A row for each of several rows, in whatever form the transformer takes them; a vector
        for a single dictionary.
        """
        if isinstance(given, Mapping):
            return self([given])[0]
        rows = _transformed(self.transformer, given)
        if rows.shape[1] != self.n_features:
            raise InvalidInput(
                f"the transformer makes {rows.shape[1]} columns, and n_features is "
                f"{self.n_features}; give the transformer that the sample was for"
            )
        return within(rows * (self.feature_norm / self.divisor), self.feature_norm)


def _transformed(transformer: Any, given: Any) -> Matrix:
    transform = getattr(transformer, "transform", None)
    if not callable(transform) or isinstance(transformer, type):
        raise InvalidInput(
            f"the transformer is {transformer!r:.80}; give an object with transform(rows), fitted"
        )
    try:
        output: Any = transform(given)
    except (TypeError, ValueError, AttributeError) as error:
        if type(error).__name__ == "NotFittedError":
            raise InvalidInput(
                f"{type(transformer).__name__} is not fitted; call its fit(sample) first, once"
            ) from error
        raise InvalidInput(
            f"{type(transformer).__name__} cannot use these rows: {error}"
        ) from error
    dense = output.toarray() if hasattr(output, "toarray") else output
    rows = real_array(f"what {type(transformer).__name__} makes", dense)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise InvalidInput(
            f"{type(transformer).__name__} makes an array of shape {rows.shape} "
            f"{'' if rows.ndim != 2 else 'with numbers that are not finite'}; it must be finite "
            "rows (n, features): impute what is missing, one row for each arm"
        )
    return rows
