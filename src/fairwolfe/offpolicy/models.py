"""Reward models q(x, a), fitted on other decisions than those that they predict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Cube, IntVector, Matrix
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput
from fairwolfe.offpolicy.decisions import ContextPart, LoggedArms
from fairwolfe.offpolicy.sums import Memory, Source, facts_of, folds_of, regression_sums
from fairwolfe.oracles import OnlineGradient, Ridge, SklearnRegressor
from fairwolfe.oracles.sklearn_regressor import made

Model = Callable[[ContextPart], Cube]
"""Predictions (rows, K, D) for all arms of contexts."""

Prediction = Callable[[slice, ContextPart], Cube]
"""The same for the decisions of a span, whose contexts are the part."""

_UNPREDICTABLE = "so nothing can be predicted; use 'ips'"


def cross_fitted(model: Any, source: Source, folds: int) -> Any:
    """Predictions of each decision by the model that was fitted without its fold: of linear models
    their parameters (folds, blocks, D, d), which `cross_predictions` takes, of others a function.
    An array (n, K, D) of predictions is taken as it is.
    """
    if model is None or isinstance(model, Ridge):
        sums = facts_of(source, folds)
        others = 1 - np.eye(folds)
        ridge = 1.0 if model is None else model.ridge
        gram, moment = (np.tensordot(others, part, axes=1) for part in (sums.gram, sums.moment))
        return np.array([_solved(ridge, *pair) for pair in zip(gram, moment, strict=True)])
    if not isinstance(source, Memory):
        raise InvalidInput(
            f"the model is {model!r:.80}, which needs all decisions in memory; take "
            "fw.oracles.Ridge(), or a sample: Log.of(folder, share=0.01)"
        )
    choices: Any = source.data
    if isinstance(model, np.ndarray):
        return _given(model, choices)
    fold = folds_of(slice(0, choices.n), folds)
    models = [fitted(model, choices, fold != one) for one in range(folds)]
    return _crossed(models, choices.problem.n_objectives)


def cross_predictions(theta: Any) -> Prediction:
    """The predictions of linear models (folds, blocks, D, d), of each decision by its fold's."""
    return _crossed([LinearModel(one) for one in theta], theta.shape[2])


def _crossed(models: Sequence[Model], n: int) -> Prediction:
    def predict(span: slice, part: ContextPart) -> Cube:
        own = folds_of(span, len(models))
        out = np.empty((part.n, part.n_arms, n))
        for one, model in enumerate(models):
            places = np.flatnonzero(own == one)
            out[places] = model(part.rows(places))
        return out

    return predict


def _given(array: Any, choices: LoggedArms) -> Prediction:
    d = choices.problem.n_objectives
    most = max(part.n_arms for part in choices.parts)
    values = array[..., None] if array.ndim == 2 and d == 1 else array
    if values.shape != (choices.n, most, d) or not np.isfinite(values).all():
        raise InvalidInput(
            f"the model is an array of shape {array.shape}; give finite predictions "
            f"({choices.n}, {most}, {d}): decisions, arms, rewards"
        )
    return lambda span, part: values[span, : part.n_arms]


def fitted(model: Any, choices: LoggedArms, used: Any) -> Model:
    """A model fitted on the decisions that `used` (n,) marks."""
    if model is None or isinstance(model, Ridge):
        return _ridge(1.0 if model is None else model.ridge, choices, used)
    if isinstance(model, OnlineGradient):
        return _online(model, choices, used)
    if isinstance(model, SklearnRegressor):
        return _estimator(lambda: made(model.model, model.options), choices, used)
    if hasattr(model, "fit") and hasattr(model, "predict") and not isinstance(model, type):
        from sklearn.base import clone

        return _estimator(lambda: clone(model), choices, used)
    raise InvalidInput(
        f"the model is {model!r:.80}; give an oracle such as fw.oracles.Ridge(), a regressor of "
        "scikit-learn, or an array of predictions (decisions, arms, rewards)"
    )


class LinearModel:
    """q(x, a) = theta x_a, theta (blocks, D, d): a block for each arm where they share features."""

    def __init__(self, theta: Cube) -> None:
        self.theta = theta

    def __call__(self, part: ContextPart) -> Cube:
        features = part.known_features(_UNPREDICTABLE)
        if part.per_arm:
            shared: Cube = np.einsum("nd,ard->nar", features[:, 0], self.theta)
            return shared
        rows, arms, d = features.shape
        flat = features.reshape(-1, d) @ self.theta[0].T
        answer: Cube = flat.reshape(rows, arms, self.theta.shape[1])
        return answer


def _ridge(ridge: float, choices: LoggedArms, used: Any) -> LinearModel:
    """The least squares of `Ridge`, in sums over chunks."""
    gram, moment = regression_sums(choices, np.where(used, 0, -1), 1)
    return LinearModel(_solved(ridge, gram[0], moment[0]))


def _solved(ridge: float, gram: Cube, moment: Cube) -> Cube:
    """theta (blocks, D, d)."""
    gram = gram + ridge * np.eye(gram.shape[1])
    theta = np.linalg.solve(gram, moment.transpose(0, 2, 1)).transpose(0, 2, 1)
    return np.ascontiguousarray(theta)


def _online(oracle: OnlineGradient, choices: LoggedArms, used: Any) -> LinearModel:
    """The oracle learns decision after decision, as it would have."""
    state = oracle.init(choices.problem)
    for span, part in choices.spans():
        actions = choices.actions[span]
        rows = np.ascontiguousarray(part.chosen(actions))
        rewards = np.ascontiguousarray(choices.rewards[span])
        for i in np.flatnonzero(used[span]).tolist():
            block = int(actions[i]) if part.per_arm else 0
            oracle.learn(block, rows[i], rewards[i], *state)
    return LinearModel(np.array(state.theta))


def _estimator(make: Callable[[], Any], choices: LoggedArms, used: Any) -> Model:
    """A regressor of scikit-learn on the features of the chosen arm; where all arms share the
    features, on these and the arm, one column for each.
    """
    problem = choices.problem
    xs, rs = [], []
    for span, part in choices.spans():
        kept, actions = used[span], choices.actions[span]
        xs.append(_with_arm(part.chosen(actions), actions, problem)[kept])
        rs.append(choices.rewards[span][kept])
    models = _fit_models(make, np.concatenate(xs), np.concatenate(rs))

    def predict(part: ContextPart) -> Cube:
        features = part.known_features(_UNPREDICTABLE)
        arms = np.tile(np.arange(part.n_arms), part.n)
        rows = np.repeat(features[:, 0], part.n_arms, axis=0)
        if not part.per_arm:
            rows = features.reshape(-1, features.shape[2])
        x = _with_arm(rows, arms, problem)
        each = [np.asarray(one.predict(x), dtype=np.float64).reshape(len(x), -1) for one in models]
        return np.hstack(each).reshape(part.n, part.n_arms, problem.n_objectives)

    return predict


def _with_arm(x: Matrix, actions: IntVector, problem: Problem) -> Matrix:
    if problem.n_arms is None:
        return x
    return np.hstack([x, np.eye(problem.n_arms)[actions]])


def _fit_models(make: Callable[[], Any], x: Matrix, r: Matrix) -> list[Any]:
    """One model for all rewards where it can be, else one for each."""
    try:
        if r.shape[1] > 1:
            model = make()
            model.fit(x, r)
            return [model]
    except Exception:  # it takes one reward at a time, or else says below what is wrong
        pass
    try:
        return [make().fit(x, column) for column in r.T]
    except Exception as error:
        raise InvalidInput(f"{make()!r:.80} cannot be fitted: {error}") from error
