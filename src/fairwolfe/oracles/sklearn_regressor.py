"""`SklearnRegressor`: a regressor of scikit-learn as an oracle; and estimators of scikit-learn as
text and plain values, and back.

An estimator is its constructor's parameters, by scikit-learn's own convention. So ``module:Class``
and the parameters that differ from their defaults say all of it: they can be compared, hashed,
printed, and read back without running code.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.contexts import Arms
from fairwolfe.core.packing import need, require_counts
from fairwolfe.core.problem import Frozen, Problem, real_number, whole_number
from fairwolfe.core.registry import import_class
from fairwolfe.core.streams import stream
from fairwolfe.errors import (
    IncompatibleState,
    InvalidInput,
    NumericalFailure,
    OutsideAssumptions,
    did_you_mean,
    require_extra,
)
from fairwolfe.oracles.linear_regression import UPDATES, Estimates

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
    pair = isinstance(value, (tuple, list)) and len(value) == 2 and isinstance(value[1], Mapping)
    return pair and isinstance(value[0], str) and ":" in value[0]


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
    require_extra("integrations", "SklearnRegressor", "scikit-learn")
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


_FITTED = 1  # place in the counters: how many observations there were at the last fit


class Fit:
    """The fitted model of a state: what its arrays make of an oracle, kept to save time.

    It is a function of the arrays, so it is neither compared nor saved: a state that has been
    read back finds it again.
    """

    def __init__(self, oracle: SklearnRegressor, problem: Problem) -> None:
        self.oracle = oracle
        self.n = problem.n_objectives
        self.eye = np.eye(self.n)[None]
        self.unused = np.empty((1, 0, 0))
        self.release = releases(oracle.model, oracle.options)
        self.separate = False
        self.model: Any = None
        self.fitted = self.learnt = 0  # observations at the last fit, and learnt since, by parts
        self.predicted: tuple[Any, Matrix] | None = None  # the last, and of what
        self._try(problem)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fit) and (self.oracle, self.n) == (other.oracle, other.n)

    def __hash__(self) -> int:
        return hash((self.oracle, self.n))

    def current(self, state: RegressorState) -> Any:
        """The model that the observations of a state make; None before the first fit."""
        oracle = self.oracle
        observed, fitted = int(state.counters[UPDATES]), int(state.counters[_FITTED])
        if fitted == 0:
            return None
        if self.fitted != fitted:
            model = self._fresh(fitted)
            self._teach(model.fit, *state.rows(max(0, fitted - oracle.memory), fitted))
            self.model, self.fitted, self.learnt = model, fitted, fitted
        if oracle.batch is not None and hasattr(self.model, "partial_fit"):
            self.fitted = 0  # if it stops half way, the model is useless and is fitted again
            while self.learnt + oracle.batch <= observed:
                rows = state.rows(self.learnt, self.learnt + oracle.batch)
                self._teach(self.model.partial_fit, *rows)
                self.learnt += oracle.batch
            self.fitted = fitted
        return self.model

    def predict(self, state: RegressorState, features: Matrix) -> Matrix:
        """The rewards of each row; 0 before the first fit."""
        model = self.current(state)
        if model is None:
            return np.zeros((len(features), self.n))
        asked = (self.fitted, self.learnt, features.tobytes())
        if self.predicted is not None and self.predicted[0] == asked:
            return self.predicted[1]
        predicted = self._answer(model, features)
        if not np.isfinite(predicted).all():
            raise NumericalFailure(
                f"{self.oracle.model} predicts a reward that is not finite; do features or "
                "rewards have very different scales?"
            )
        self.predicted = asked, predicted
        return predicted

    def _fresh(self, observed: int) -> Any:
        """An estimator that has seen nothing; its random state depends on the time of the fit."""
        oracle = self.oracle
        seed = int(stream(oracle.seed, "oracle", observed).integers(2**31))
        model = with_random_state(made(oracle.model, oracle.options), seed)
        if self.separate:
            from sklearn.multioutput import MultiOutputRegressor

            return MultiOutputRegressor(model)
        return model

    def _teach(self, method: Any, features: Matrix, rewards: Matrix) -> None:
        """Call `fit` or `partial_fit`."""
        from sklearn.exceptions import ConvergenceWarning

        with warnings.catch_warnings():
            # It will be fitted again soon, so a warning about its quality is not useful.
            warnings.simplefilter("ignore", ConvergenceWarning)
            try:
                method(features, rewards[:, 0] if self.n == 1 else rewards)
            except Exception as error:  # a user's model may raise anything
                raise self._complaint(f"learn from {len(features)} observations", error) from error

    def _answer(self, model: Any, features: Matrix) -> Matrix:
        """Call `predict`."""
        try:
            given = np.asarray(model.predict(features), dtype=np.float64)
            return np.ascontiguousarray(given.reshape(len(features), self.n))
        except Exception as error:
            raise self._complaint(f"predict {self.n} rewards", error) from error

    def _complaint(self, what: str, error: Exception) -> InvalidInput:
        return InvalidInput(
            f"{self.oracle.model} with the options {self.oracle.options} cannot {what}: {error}"
        )

    def _try(self, problem: Problem) -> None:
        """Find out on invented data whether it works, and with several rewards at once."""
        rng = stream(0, "oracle", "trial")
        features = rng.uniform(-1.0, 1.0, (self.oracle.first, problem.dimension))
        rewards = rng.uniform(problem.low, problem.high, (self.oracle.first, self.n))
        for self.separate in (False, True):
            model = self._fresh(0)
            try:
                self._teach(model.fit, features, rewards)
                self._answer(model, features)
                return
            except InvalidInput:
                if self.separate or self.n == 1:
                    raise


class RegressorState(NamedTuple):
    """The last observations, in rings; which of them the model was fitted on; by what software."""

    plan: Fit
    features: Matrix  # (rows, d)
    rewards: Matrix  # (rows, D)
    counters: Vector
    release: NDArray[np.uint8]  # text

    def rows(self, start: int, stop: int) -> tuple[Matrix, Matrix]:
        """Copies of the features and rewards of the observations from start to stop."""
        places = np.arange(start, stop) % len(self.features)
        return self.features[places], self.rewards[places]

    def estimates(self, given: Arms) -> Estimates:
        """Predicted rewards in the form of a linear oracle: theta = I, and they are the features.

        So the rules are the same whatever the oracle is.
        """
        fit = self.plan
        predicted = fit.predict(self, given.features)
        return Estimates(fit.eye, fit.unused, self.counters, predicted, False)

    def raise_failure(self) -> None:
        """Never: a fit that fails raises an error itself."""

    def restored(self) -> None:
        """After arrays have been read from a file: the same software must fit the model again."""
        require_counts("counters", self.counters)
        observed, fitted = self.counters.astype(np.int64).tolist()
        if not fitted <= observed < max(self.plan.oracle.due(fitted), fitted + 1):
            raise IncompatibleState(
                f"the model was fitted on {fitted} of {observed} observations, which is not a time "
                "for a fit: the state is damaged or forged"
            )
        saved, here = self.release.tobytes(), _padded(self.plan.release).tobytes()
        if saved != here:
            raise IncompatibleState(
                f"the model was fitted by {saved.decode(errors='replace').strip()}, and this is "
                f"{here.decode().strip()}, which may fit another one and decide otherwise; load "
                "it with the versions that it was saved with"
            )


def _padded(text: str) -> NDArray[np.uint8]:
    """Text as an array of one size, whatever the versions are."""
    return np.frombuffer(text.encode()[:200].ljust(200), dtype=np.uint8).copy()


@dataclass(frozen=True)
class SklearnRegressor:
    """E[r | x] by a regressor with the interface of scikit-learn: a forest, a network, anything.

    The model is fitted again on the last `memory` observations when they have grown by the factor
    `growth`, so that n observations cost about growth/(growth - 1) times the last fit; once the
    memory is full, after every (growth - 1) `memory` observations. With `batch`, a model that has
    `partial_fit` learns in between from every so many observations. Several rewards are learnt at
    once, or by a copy of the model each where it knows one output only. Before the first fit all
    predictions are 0.

    No regret bound is known: SquareCB needs a `gamma0`. There are no confidence widths. Contexts
    are ordinary ones, not PerArm. Simulations use the plain loop.

    Parameters
    ----------
    model: an estimator, of which only the parameters are taken, or ``"module:Class"``
    options: the parameters of the class, where it is given as text
    growth: >= 1; 1 fits after every observation
    first: observations before the first fit, >= 1
    memory: observations that are kept, >= first; the state holds growth times as many rows
    batch: observations for a `partial_fit`, >= 1; None leaves it to the fits
    seed: random states that are None are drawn from it, another one for each fit

    >>> from sklearn.tree import DecisionTreeRegressor
    >>> SklearnRegressor(DecisionTreeRegressor(max_depth=3), memory=500)
    SklearnRegressor(model='sklearn.tree:DecisionTreeRegressor', options={'max_depth': 3},
        growth=1.25, first=10, memory=500, batch=None, seed=0)
    """

    model: Any
    options: Mapping[str, Any] = Frozen()
    _: KW_ONLY
    growth: float = 1.25
    first: int = 10
    memory: int = 10_000
    batch: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        address, options = self._described()
        growth = real_number("growth", self.growth)
        if not (math.isfinite(growth) and growth >= 1.0):
            raise InvalidInput(f"growth is {self.growth!r}; give a number of at least 1")
        first, memory = whole_number("first", self.first), whole_number("memory", self.memory)
        if first > memory:
            raise InvalidInput(
                f"first is {first} and memory is {memory}; a fit needs the first observations, so "
                "keep at least as many"
            )
        batch = None if self.batch is None else whole_number("batch", self.batch)
        stream(self.seed, "oracle")
        values = {"model": address, "options": options, "growth": growth, "first": first}
        values |= {"memory": memory, "batch": batch, "seed": int(self.seed)}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _described(self) -> tuple[str, Frozen[Any]]:
        if not isinstance(self.options, Mapping):
            raise InvalidInput(f"options is {self.options!r}; give a mapping from names to values")
        if isinstance(self.model, str):
            return described(made(self.model, self.options))
        estimator = hasattr(self.model, "fit") and hasattr(self.model, "get_params")
        if not estimator or isinstance(self.model, type):
            raise InvalidInput(
                f"model is {self.model!r}; give an estimator, such as RandomForestRegressor(), or "
                "the address of its class, such as 'sklearn.ensemble:RandomForestRegressor'"
            )
        if self.options:
            raise InvalidInput(
                f"options are {self.options!r} with an estimator; give them to the estimator"
            )
        return described(self.model)

    def init(self, problem: Problem) -> RegressorState:
        """Try the model on a few invented observations, and allocate."""
        if problem.n_arms is not None:
            raise InvalidInput(
                f"the problem has PerArm contexts ({problem.n_arms} arms), and SklearnRegressor "
                "has one model for all arms; give ordinary contexts, in which the number of the "
                "arm is a feature (one-hot)"
            )
        rows = self.memory + self._pause(self.memory)
        need(rows, problem.dimension)
        fit = Fit(self, problem)
        return RegressorState(
            plan=fit,
            features=np.zeros((rows, problem.dimension)),
            rewards=np.zeros((rows, problem.n_objectives)),
            counters=np.zeros(2),
            release=_padded(fit.release),
        )

    def _pause(self, fitted: int) -> int:
        """How many observations after a fit on so many the next one is due."""
        return max(1, math.ceil((self.growth - 1.0) * min(fitted, self.memory)))

    def due(self, fitted: int) -> int:
        """How many observations there are at the fit that follows one on so many."""
        return fitted + self._pause(fitted) if fitted else self.first

    def learn(
        self,
        block: int,
        x: Vector,
        reward: Vector,
        plan: Fit,
        features: Matrix,
        rewards: Matrix,
        counters: Vector,
        release: NDArray[np.uint8],
    ) -> None:
        """Keep an observation, in place of the oldest. The model follows when it is asked."""
        observed, fitted = int(counters[UPDATES]), int(counters[_FITTED])
        place = observed % len(features)
        features[place], rewards[place] = x, reward
        counters[UPDATES] = observed + 1
        if observed + 1 >= self.due(fitted):
            counters[_FITTED] = observed + 1

    def regret_bound(self, problem: Problem) -> NoReturn:
        """None is known."""
        raise OutsideAssumptions(
            f"no regret bound of {self.model} is known, which the theorem's gamma needs; give "
            "SquareCB a gamma0"
        )

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        network = {"hidden_layer_sizes": (8,), "learning_rate_init": 0.05, "max_iter": 50}
        return (
            cls("sklearn.ensemble:RandomForestRegressor", {"n_estimators": 5}, growth=1.5),
            cls("sklearn.svm:SVR", {"C": 10.0}, first=2, growth=1.5, memory=300),
            cls("sklearn.neural_network:MLPRegressor", network, growth=2.0, batch=10),
        )
