"""Factors of a matrix of counts by alternating least squares, kept in the user's cache."""

from __future__ import annotations

import hashlib
import math
import warnings
import zipfile
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.core.arrays import Matrix
from fairwolfe.core.folders import cache_folder, whole_file
from fairwolfe.errors import InvalidInput, NumericalFailure, require_extra

__all__ = ["Factors", "Settings", "extremes", "factorise", "scaled"]

_BLOCK = 1 << 22  # means computed together

_DIGITS = 6  # of a hash: what one machine and another should agree on


class Settings(NamedTuple):
    """Of the factorisation."""

    factors: int
    iterations: int
    regularization: float
    alpha: float
    seed: int


class Factors(NamedTuple):
    """Of users (n, p) and of items (m, p)."""

    users: Matrix
    items: Matrix

    @property
    def hash(self) -> str:
        """The sha256 of all factors, rounded to 6 digits after the point."""
        digest = hashlib.sha256()
        for part in self:
            digest.update(repr(part.shape).encode())
            digest.update(np.rint(part * 10.0**_DIGITS).astype("<i8").tobytes())
        return digest.hexdigest()


def factorise(counts: Any, settings: Settings) -> Factors:
    """Factors of log(1 + counts), a sparse matrix (users, items); from the cache if they are there.

    The loss is that of implicit feedback: sum_ui c_ui (p_ui - u.v)^2 with p = 1 where something was
    played and 0 elsewhere, c = alpha log(1 + count) there and 1 elsewhere, and ridge terms.
    """
    file = cache_folder() / "factors" / f"{_key(counts, settings)}.npz"
    kept = _read(file, (counts.shape[0], counts.shape[1]), settings.factors)
    if kept is not None:
        return kept
    factors = _als(counts.log1p(), settings)
    # A cache that cannot be written to costs time, nothing else.
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as out:
            np.savez(out, users=factors.users, items=factors.items)
    return factors


def scaled(factors: Factors) -> Factors:
    """Both factors by the same number, so that the largest u.v is 1."""
    largest = extremes(factors.users, factors.items)[1]
    if not largest > 0.0:
        raise InvalidInput("nothing was played, so there is nothing to learn from; give plays")
    return Factors(factors.users / math.sqrt(largest), factors.items / math.sqrt(largest))


def _key(counts: Any, settings: Settings) -> str:
    digest = hashlib.sha256(repr((version("fairwolfe"), counts.shape, tuple(settings))).encode())
    for part, kind in ((counts.indptr, "<i8"), (counts.indices, "<i8"), (counts.data, "<f8")):
        digest.update(part.astype(kind).tobytes())
    return digest.hexdigest()


def _read(file: Path, shape: tuple[int, int], n: int) -> Factors | None:
    """What the cache holds; None if it is not there or spoilt."""
    try:
        with open(file, "rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            factors = Factors(arrays["users"], arrays["items"])
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
        return None
    fits = all(
        part.dtype == np.float64 and part.shape == (size, n) and np.isfinite(part).all()
        for part, size in zip(factors, shape, strict=True)
    )
    return factors if fits else None


def _als(weights: Any, settings: Settings) -> Factors:
    require_extra("data", "a world from a table", "implicit")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its progress bar, when it is imported
        from implicit.cpu.als import AlternatingLeastSquares
        from implicit.recommender_base import ModelFitError
        from threadpoolctl import threadpool_limits
    # One thread: sums are then always added in the same order, and small ones faster.
    with threadpool_limits(1, "blas"):
        model = AlternatingLeastSquares(
            factors=settings.factors,
            iterations=settings.iterations,
            regularization=settings.regularization,
            alpha=settings.alpha,
            random_state=settings.seed,
            num_threads=1,
        )
        try:
            model.fit(weights, show_progress=False)
        except ModelFitError as error:
            raise NumericalFailure(
                f"the factors are not finite with {settings}; give a larger regularization"
            ) from error
    users, items = (np.array(a, np.float64) for a in (model.user_factors, model.item_factors))
    return Factors(users, items)


def extremes(turned: Matrix, items: Matrix) -> tuple[float, float]:
    """The smallest and the largest mean, a block of users at a time."""
    size = max(1, _BLOCK // len(items))
    least, most = math.inf, -math.inf
    for i in range(0, len(turned), size):
        means = turned[i : i + size] @ items.T
        least, most = min(least, float(means.min())), max(most, float(means.max()))
    return least, most
