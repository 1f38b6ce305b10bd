"""Typed errors. A message says what is wrong with which value, what is allowed, what to do."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "Conflict",
    "ConformanceError",
    "Denied",
    "FairwolfeError",
    "IncompatibleState",
    "InvalidInput",
    "MissingData",
    "MissingExtra",
    "MissingKernels",
    "NoProx",
    "NotConcave",
    "NotFound",
    "NumericalFailure",
    "OutsideAssumptions",
    "Unavailable",
]

# The packages of every extra of pyproject.toml.
EXTRAS: dict[str, tuple[str, ...]] = {
    "plot": ("matplotlib", "pandas"),
    "lab": (
        "implicit",
        "jinja2",
        "matplotlib",
        "narwhals",
        "openpyxl",
        "pandas",
        "pooch",
        "pyarrow",
    ),
    "serve": ("apsw", "httptools", "prometheus-client", "psycopg", "uvloop"),
    "integrations": (
        "aiohttp",
        "gymnasium",
        "mo-gymnasium",
        "narwhals",
        "pandas",
        "polars",
        "pyarrow",
        "ray",
        "river",
        "scikit-learn",
        "vowpalwabbit",
    ),
}


class FairwolfeError(Exception):
    """Everything this library raises on purpose."""


class InvalidInput(FairwolfeError, ValueError):
    """A value that cannot be accepted; nothing was changed."""


class NotConcave(InvalidInput):
    """A function that had to be concave is not."""


class NoProx(FairwolfeError):
    """A proximal map was asked of a function that has none in closed form."""


class OutsideAssumptions(FairwolfeError):
    """A theorem was asked for where one of its assumptions does not hold."""


class NumericalFailure(FairwolfeError):
    """A computation lost its accuracy; better loud than NaN turned into a number."""


class MissingExtra(FairwolfeError, ImportError):
    """An optional dependency is not installed."""


class MissingKernels(FairwolfeError, ImportError):
    """The compiled kernels are not built, or not for this processor."""


class MissingData(FairwolfeError, FileNotFoundError):
    """A data set is not on this machine."""


class IncompatibleState(FairwolfeError):
    """A saved state belongs to another policy, problem or version."""


class ConformanceError(FairwolfeError, AssertionError):
    """A class breaks the contract that it claims to keep."""


class Conflict(InvalidInput):
    """What a service was asked contradicts what it knows already."""


class NotFound(InvalidInput):
    """A service knows nothing of this name."""


class Denied(FairwolfeError):
    """A service wants a key, or one that may do more."""


class Unavailable(FairwolfeError):
    """A service did not answer in time, or could not make anything durable; try again later."""


def require_extra(extra: str, what: str, *packages: str, instead: str = "") -> None:
    """Raise MissingExtra where something that a job needs is not installed.

    The message names everything that is missing for the job, not only what is missed first, and
    the one command that adds it.

    Parameters
    ----------
    extra: a key of `EXTRAS`
    what: the job, as the subject of "needs"
    packages: what the job needs of the extra; all of it where left out
    instead: what can be done without them, as the end of a sentence

    >>> require_extra("plot", "a table", "pandas")
    """
    missing = [one for one in packages or EXTRAS[extra] if not _installed(one)]
    if not missing:
        return
    *most, last = missing
    listed = f"{', '.join(most)} and {last}, which are" if most else f"{last}, which is"
    otherwise = f"; {instead}" if instead else ""
    raise MissingExtra(
        f"{what} needs {listed} not installed: pip install 'fairwolfe[{extra}]' adds what is "
        f"missing to an installed fairwolfe (in a checkout: pip install '.[{extra}]'){otherwise}"
    )


def _installed(package: str) -> bool:
    if package == "uvloop" and sys.platform == "win32":  # where it does not exist
        return True
    module = {"scikit-learn": "sklearn"}.get(package, package.replace("-", "_"))
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def did_you_mean(word: object, known: Iterable[object]) -> str:
    """The end of a sentence about an unknown name: what exists, the nearest first.

    >>> did_you_mean("click", ["minutes", "clicks"])
    "did you mean 'clicks'? Known are: clicks, minutes"
    """
    names = sorted(str(k) for k in known)
    if not names:
        return "no names are known here"
    near = get_close_matches(str(word)[:80], names, n=1)
    listed = "known are: " + ", ".join(names)
    return f"did you mean {near[0]!r}? K{listed[1:]}" if near else listed
