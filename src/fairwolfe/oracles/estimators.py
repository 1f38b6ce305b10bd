"""Estimators of scikit-learn as text and plain values, and back.

An estimator is its constructor's parameters, by scikit-learn's own convention. So ``module:Class``
and the parameters that differ from their defaults say all of it: they can be compared, hashed,
printed, and read back without running code.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

import numpy as np

from fairwolfe.core.problem import Frozen
from fairwolfe.core.registry import import_class
from fairwolfe.errors import InvalidInput, did_you_mean, require_extra

__all__ = ["described", "made", "releases", "with_random_state"]

_LIBRARY = "sklearn"


def described(estimator: Any) -> tuple[str, Frozen[Any]]:
    """The address of an estimator's class, and its parameters other than their defaults.

    A parameter that is an estimator itself becomes such a pair, a list becomes a tuple.

    >>> from sklearn.ensemble import RandomForestRegressor
    >>> described(RandomForestRegressor(n_estimators=50))
    ('sklearn.ensemble:RandomForestRegressor', {'n_estimators': 50})
    """
    kind = type(estimator)
    defaults = {name: known.default for name, known in signature(kind).parameters.items()}
    options = {}
    for name, given in sorted(estimator.get_params(deep=False).items()):
        value = _plain(f"{kind.__name__} has {name}={given!r}", given)
        if name not in defaults or repr(value) != repr(defaults[name]):
            options[name] = value
    return _address(kind), Frozen(options)


def made(address: str, options: Mapping[str, Any]) -> Any:
    """The estimator that `described` described: the class is called with the options.

    Only scikit-learn is imported for it, and only estimators are made: an address may come from a
    file of any origin.

    >>> made("sklearn.neighbors:KNeighborsRegressor", {"n_neighbors": 3})
    KNeighborsRegressor(n_neighbors=3)
    """
    kind = _class(address)
    known = signature(kind).parameters
    if not any(one.kind is Parameter.VAR_KEYWORD for one in known.values()):
        for name in options:
            if name not in known:
                raise InvalidInput(
                    f"{kind.__name__} has no option {name!r}; {did_you_mean(name, known)}"
                )
    return kind(**{name: _built(value) for name, value in options.items()})


def with_random_state(estimator: Any, seed: int) -> Any:
    """The same estimator, with every random state that is None, of its parts too, set."""
    unset = [
        name
        for name, value in estimator.get_params(deep=True).items()
        if value is None and name.rpartition("__")[2] == "random_state"
    ]
    return estimator.set_params(**dict.fromkeys(unset, seed))


def releases(address: str, options: Mapping[str, Any]) -> str:
    """The packages that an estimator comes from, with their versions.

    >>> releases("sklearn.linear_model:Ridge", {}).split()[0]
    'sklearn'
    """
    packages = sorted({_LIBRARY, *_packages((address, options))})
    versions = ((name, getattr(sys.modules[name], "__version__", "?")) for name in packages)
    return ", ".join(f"{name} {version}" for name, version in versions)


def _packages(value: Any) -> Iterator[str]:
    if _is_estimator(value):
        address, options = value
        yield address.partition(":")[0].partition(".")[0]
        value = tuple(options.values())
    if isinstance(value, tuple):
        for part in value:
            yield from _packages(part)


def _is_estimator(value: Any) -> bool:
    """Whether a plain value describes an estimator."""
    match value:
        case (str() as address, Mapping()):
            return ":" in address
    return False


def _plain(where: str, value: Any) -> Any:
    """A parameter as text, numbers, tuples and mappings."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if _is_estimator(value):
        return described(made(*value))
    if isinstance(value, (list, tuple, np.ndarray)):
        return tuple(_plain(where, part) for part in value)
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return Frozen({key: _plain(where, part) for key, part in value.items()})
    if hasattr(value, "get_params") and not isinstance(value, type):
        return described(value)
    raise InvalidInput(
        f"{where}, which cannot be written as text; give numbers, text, None, lists of these, or "
        "estimators (and whole numbers for random states)"
    )


def _built(value: Any) -> Any:
    """A plain value as scikit-learn wants it."""
    if _is_estimator(value):
        return made(*value)
    if isinstance(value, tuple):
        parts = [_built(part) for part in value]
        # Steps of a pipeline and members of an ensemble must be a list of tuples.
        return parts if any(isinstance(part, (tuple, list)) for part in parts) else tuple(parts)
    return dict(value) if isinstance(value, Mapping) else value


def _address(kind: type) -> str:
    """Where a class is found: in the public module, if that has it."""
    if "." in kind.__qualname__:
        raise InvalidInput(
            f"{kind.__qualname__} is defined inside a function or a class, where it cannot be "
            "found again; define it in a module"
        )
    parts = kind.__module__.split(".")
    public = ".".join(parts[: next((i for i, p in enumerate(parts) if p.startswith("_")), None)])
    if public and getattr(import_module(public), kind.__name__, None) is kind:
        return f"{public}:{kind.__name__}"
    return f"{kind.__module__}:{kind.__name__}"


def _class(address: str) -> type:
    require_sklearn()
    from sklearn.base import BaseEstimator

    module, colon, _ = address.partition(":")
    if colon and module.partition(".")[0] != _LIBRARY and module not in sys.modules:
        raise InvalidInput(
            f"{address!r} is not of scikit-learn, and {module!r} has not been imported; import it "
            "first, since a text may come from anywhere"
        )
    kind = import_class(address)
    if not issubclass(kind, BaseEstimator):
        raise InvalidInput(
            f"{address!r} is not an estimator; give a class that is derived from "
            "sklearn.base.BaseEstimator"
        )
    return kind


def require_sklearn() -> None:
    """Raise MissingExtra, with what to do, where scikit-learn is not installed."""
    require_extra("sklearn", "SklearnRegressor")
