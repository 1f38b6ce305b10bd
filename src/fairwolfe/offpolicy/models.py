"""Reward models q(x, a), fitted on other decisions than those that they predict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput
from fairwolfe.offpolicy.decisions import Choices, Part
from fairwolfe.oracles import OnlineGradient, Ridge, SklearnRegressor
from fairwolfe.oracles.estimators import made

__all__ = ["Linear", "Model", "cross_fitted", "fitted", "fold_of"]

Model = Callable[[Part], Cube]
"""Predictions (rows, K, D) for all arms of contexts."""


def fold_of(n: int, folds: int) -> IntVector:
    """The fold of each decision: both halves of the split meet all folds."""
    return (np.arange(n) // 2) % folds


def cross_fitted(model: Any, choices: Choices, folds: int) -> Callable[[slice, Part], Cube]:
    """Predictions of each decision by the model that was fitted without its fold; an array (n, K,
    D) is taken as it is.
    """
    if isinstance(model, np.ndarray):
        return _given(model, choices)
    fold = fold_of(choices.n, folds)
    models = [fitted(model, choices, fold != one) for one in range(folds)]

    def predict(span: slice, part: Part) -> Cube:
        own = fold[span]
        out = np.empty((part.n, part.n_arms, choices.problem.n_objectives))
        for one in range(folds):
            places = np.flatnonzero(own == one)
            out[places] = models[one](part.rows(places))
        return out

    return predict


def _given(array: Any, choices: Choices) -> Callable[[slice, Part], Cube]:
    d = choices.problem.n_objectives
    most = max(part.n_arms for part in choices.parts)
    values = array[..., None] if array.ndim == 2 and d == 1 else array
    if values.shape != (choices.n, most, d) or not np.isfinite(values).all():
        raise InvalidInput(
            f"the model is an array of shape {array.shape}; give finite predictions "
            f"({choices.n}, {most}, {d}): decisions, arms, rewards"
        )
    return lambda span, part: values[span, : part.n_arms]


def fitted(model: Any, choices: Choices, used: Any) -> Model:
    """A model fitted on the decisions that `used` (n,) marks."""
    if model is None or isinstance(model, Ridge):
        return _ridge(1.0 if model is None else model.ridge, choices, used)
    if isinstance(model, OnlineGradient):
        return _online(model, choices, used)
    if isinstance(model, SklearnRegressor):
        return _estimator(lambda: made(model.model, model.options), choices, used)
    if hasattr(model, "fit") and hasattr(model, "predict") and not isinstance(model, type):
        return _estimator(lambda: _cloned(model), choices, used)
    raise InvalidInput(
        f"the model is {model!r:.80}; give an oracle such as fw.oracles.Ridge(), a regressor of "
        "scikit-learn, or an array of predictions (decisions, arms, rewards)"
    )


class Linear:
    """q(x, a) = theta x_a, theta (blocks, D, d): a block for each arm where they share features."""

    def __init__(self, theta: Cube) -> None:
        self.theta = theta

    def __call__(self, part: Part) -> Cube:
        if part.features is None:
            raise InvalidInput("the log has no contexts, so nothing can be predicted; use 'ips'")
        if part.per_arm:
            shared: Cube = np.einsum("nd,ard->nar", part.features[:, 0], self.theta)
            return shared
        rows, arms, d = part.features.shape
        flat = part.features.reshape(-1, d) @ self.theta[0].T
        answer: Cube = flat.reshape(rows, arms, self.theta.shape[1])
        return answer


def _blocks(problem: Problem) -> tuple[int, int, int]:
    return problem.n_arms or 1, problem.n_objectives, problem.dimension


def _ridge(ridge: float, choices: Choices, used: Any) -> Linear:
    """The least squares of `Ridge`, in sums over chunks."""
    blocks, n, d = _blocks(choices.problem)
    gram = np.broadcast_to(ridge * np.eye(d), (blocks, d, d)).copy()
    moment = np.zeros((blocks, n, d))
    for span, part in choices.spans():
        kept = used[span]
        actions = choices.actions[span]
        x, r = choices.chosen(part, actions)[kept], choices.rewards[span][kept]
        owners = actions[kept] if part.per_arm else np.zeros(len(x), dtype=np.int64)
        for block in range(blocks):
            own = slice(None) if blocks == 1 else owners == block
            gram[block] += x[own].T @ x[own]
            moment[block] += r[own].T @ x[own]
    theta = np.linalg.solve(gram, moment.transpose(0, 2, 1)).transpose(0, 2, 1)
    return Linear(np.ascontiguousarray(theta))


def _online(oracle: OnlineGradient, choices: Choices, used: Any) -> Linear:
    """The oracle learns decision after decision, as it would have."""
    state = oracle.init(choices.problem)
    for span, part in choices.spans():
        actions = choices.actions[span]
        rows = np.ascontiguousarray(choices.chosen(part, actions))
        rewards = np.ascontiguousarray(choices.rewards[span])
        for i in np.flatnonzero(used[span]).tolist():
            block = int(actions[i]) if part.per_arm else 0
            oracle.learn(block, rows[i], rewards[i], *state)
    return Linear(np.array(state.theta))


def _estimator(make: Callable[[], Any], choices: Choices, used: Any) -> Model:
    """A regressor of scikit-learn on the features of the chosen arm; where all arms share the
    features, on these and the arm, one column for each.
    """
    problem = choices.problem
    xs, rs = [], []
    for span, part in choices.spans():
        kept, actions = used[span], choices.actions[span]
        xs.append(_with_arm(choices.chosen(part, actions), actions, problem)[kept])
        rs.append(choices.rewards[span][kept])
    x, r = np.concatenate(xs), np.concatenate(rs)
    n = problem.n_objectives
    models = _taught(make, x, r)

    def predict(part: Part) -> Cube:
        if part.features is None:
            raise InvalidInput("the log has no contexts, so nothing can be predicted; use 'ips'")
        arms = np.tile(np.arange(part.n_arms), part.n)
        rows = np.repeat(part.features[:, 0], part.n_arms, axis=0)
        if not part.per_arm:
            rows = part.features.reshape(-1, part.features.shape[2])
        flat = _answers(models, _with_arm(rows, arms, problem))
        return flat.reshape(part.n, part.n_arms, n)

    return predict


def _with_arm(x: Matrix, actions: IntVector, problem: Problem) -> Matrix:
    if problem.n_arms is None:
        return x
    return np.hstack([x, np.eye(problem.n_arms)[actions]])


def _taught(make: Callable[[], Any], x: Matrix, r: Matrix) -> list[Any]:
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


def _answers(models: list[Any], x: Matrix) -> Matrix:
    if len(models) == 1:
        return np.asarray(models[0].predict(x), dtype=np.float64).reshape(len(x), -1)
    columns: list[Vector] = [np.asarray(one.predict(x), dtype=np.float64) for one in models]
    return np.column_stack(columns)


def _cloned(model: Any) -> Any:
    from sklearn.base import clone

    return clone(model)
