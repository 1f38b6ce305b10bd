"""Learning a policy for f from logs: a mixture of a few policies that maximise one reward each.

Any optimum is a mixture of pi_g(x) = argmax_a <g, q(x, a)>, g in R^D: a class of D dimensions
whatever the number of contexts, and with as many members in the mixture as f has ties. The reward
model q is fitted on one half of the log; the mixture maximises f over the average rewards that q
gives in its contexts, by the method of `fairwolfe.truth.solver`, hard constraints included.
The other half evaluates it; then the halves change places, and the policy is both in equal parts:
all of the log has taught it, and all of it evaluates.
"""

from __future__ import annotations

import json
import os
import zipfile
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import Cube, IntMatrix, IntVector, Matrix, Vector
from fairwolfe.core.candidates import sizes
from fairwolfe.core.contexts import arms
from fairwolfe.core.decision import Decision
from fairwolfe.core.files import whole_file
from fairwolfe.core.problem import Problem, whole_number
from fairwolfe.errors import InvalidInput, MissingData
from fairwolfe.objectives import Concave
from fairwolfe.offpolicy.decisions import ContextPart, LoggedArms, LoggedRankings
from fairwolfe.offpolicy.estimate import Estimate
from fairwolfe.offpolicy.models import LinearModel, Model, fitted
from fairwolfe.oracles import Ridge
from fairwolfe.truth.constraints import Support
from fairwolfe.truth.solver import maximise

_FORMAT, _VERSION = "fairwolfe mixture", 1
_CONTEXTS = 20_000  # on which a mixture is sought; more change it by less than their noise
_USERS = 5_000  # the same for rankings
_CALLS, _PLANES = 200, 100  # of the estimated support function
_TOLERANCE = 1e-4
_NOTHING = 1e-6  # weights of members that are left out
_MEMBER = ("weights", "directions", "theta")  # arrays in the file of a mixture
_RANKING = (*_MEMBER, "items", "slots")


class Member(NamedTuple):
    """What was learnt from some of the decisions: a mixture of argmax_a <g_n, q(x, a)>.

    weights (N,), directions (N, D), model: q
    """

    weights: Vector
    directions: Matrix
    model: Model

    def distribution(self, part: ContextPart) -> Matrix:
        """The probabilities (rows, K) in contexts."""
        q, out = self.model(part), np.zeros((part.n, part.n_arms))
        rows = np.arange(part.n)
        for weight, direction in zip(self.weights, self.directions, strict=True):
            out[rows, _best(q, direction, part)] += weight
        return out


class _Learnt:
    """What mixtures for arms and for rankings share."""

    estimate: Estimate | None

    @abstractmethod
    def _size(self) -> int:
        """How many policies are mixed."""

    def __repr__(self) -> str:
        value = "" if self.estimate is None else f", f = {self.estimate.value:.4g}"
        unseen = value and " on decisions that taught nothing"
        return f"<{type(self).__name__} of {self._size()} policies{value}{unseen}>"

    def evaluated(self, estimate: Estimate) -> Self:
        """The same with what it would have earned."""
        return replace(self, estimate=estimate)  # type: ignore[type-var]


@dataclass(frozen=True, eq=False, repr=False)
class Mixture(_Learnt):
    """A policy of arms: one of its members is drawn, and plays argmax_a <g, q(x, a)> for one of its
    directions g, drawn by weight.

    `Log.learn` makes two members, each from one half of the log and evaluated on the other, so that
    `estimate` is of decisions that nothing was learnt from. feasible: whether the estimated rewards
    allow the hard constraints of f.

    `Agent(mixture, problem)` plays it, with exact probabilities; it does not learn.
    """

    problem: Problem
    members: tuple[Member, ...]
    feasible: bool = True
    estimate: Estimate | None = None

    def _size(self) -> int:
        return sum(member.weights.size for member in self.members)

    def distribution(self, part: ContextPart) -> Matrix:
        """The probabilities (rows, K) in contexts."""
        each = [member.distribution(part) for member in self.members]
        return np.asarray(np.mean(each, axis=0))

    def probabilities(self, context: Any) -> Vector:
        """Of the arms of one context, in any of the forms that an agent takes."""
        given = arms(context, self.problem)
        part = ContextPart(1, given.n_arms, given.features[None], None, given.per_arm)
        row: Vector = self.distribution(part)[0]
        return row

    # --- the contract of a policy ----------------------------------------------------------------

    def init(self, problem: Problem) -> tuple[()]:
        """There is no state."""
        if problem.dimension != self.problem.dimension or problem.n_arms != self.problem.n_arms:
            raise InvalidInput(
                f"the mixture was learnt for {self.problem!r:.120}; give that problem"
            )
        return ()

    def act(self, state: Any, context: Any, rng: np.random.Generator) -> Decision:
        """Draw an arm."""
        probabilities = self.probabilities(context)
        arm = int(rng.choice(probabilities.size, p=probabilities / probabilities.sum()))
        return Decision("", 0, arm, float(probabilities[arm]), ())

    def update(self, state: Any, decision: Decision, feedback: Any) -> tuple[()]:
        """Nothing is learnt."""
        return ()

    # --- files -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file: arrays and JSON, never pickle."""
        arrays: dict[str, Any] = {}
        for i, member in enumerate(self.members):
            if not isinstance(member.model, LinearModel):
                raise InvalidInput(
                    "only mixtures over a linear model can be saved without pickle; learn with "
                    "model=fw.oracles.Ridge(), or keep the log and learn again"
                )
            own = (member.weights, member.directions, member.model.theta)
            arrays |= {f"{name}{i}": array for name, array in zip(_MEMBER, own, strict=True)}
        more = {"members": len(self.members), "feasible": self.feasible}
        _write_arrays(path, "arms", self.problem, more, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Mixture:
        """What `save` wrote."""
        with _reading(path, "arms") as (problem, text, file):
            n, d, members = problem.n_objectives, problem.dimension, []
            for i in range(whole_number("members", text["members"])):
                weights, directions, theta = _arrays(file, [f"{name}{i}" for name in _MEMBER])
                wanted = ((weights.size,), (weights.size, n), (problem.n_arms or 1, n, d))
                _check_shapes((weights, directions, theta), wanted)
                if not abs(weights.sum() - 1.0) < 1e-6:
                    raise ValueError(f"its weights sum to {weights.sum()}")
                members.append(Member(weights, directions, LinearModel(theta)))
            return cls(problem, tuple(members), bool(text["feasible"]))


def _write_arrays(
    path: str | os.PathLike[str], kind: str, problem: Problem, more: Any, arrays: dict[str, Any]
) -> None:
    """The file of a mixture: arrays and one JSON text, whole or not at all."""
    head = {"format": _FORMAT, "version": _VERSION, "kind": kind}
    text = json.dumps(head | {"problem": json.loads(problem.to_json())} | more)
    with whole_file(path) as file:
        np.savez(file, text=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)


@contextmanager
def _reading(path: str | os.PathLike[str], kind: str) -> Iterator[tuple[Problem, Any, Any]]:
    """The problem, the text and the arrays of such a file; whatever fails is the file's fault."""
    try:
        # np.load would leave a file open that is not an archive.
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            text = json.loads(file["text"].tobytes())
            head = (text["format"], text["version"], text["kind"])
            if head != (_FORMAT, _VERSION, kind):
                raise ValueError(f"it is {head!r:.80}, and not a mixture of {kind}")
            yield Problem.from_json(json.dumps(text["problem"])), text, file
    except FileNotFoundError as error:
        raise MissingData(f"there is no file {path}; give one that save wrote") from error
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"{path} is not a mixture that can be read: {error}") from error


def _arrays(file: Any, names: Iterable[str]) -> list[Any]:
    return [np.array(file[name], dtype=np.float64) for name in names]


def _check_shapes(arrays: Sequence[Any], wanted: tuple[Any, ...]) -> None:
    shapes = tuple(array.shape for array in arrays)
    if shapes != wanted or not all(np.isfinite(array).all() for array in arrays):
        raise ValueError(f"its arrays have the shapes {shapes}")


@dataclass(frozen=True)
class Crossed:
    """Mixtures for rows of a log: each row is decided by the one that did not learn from it.

    first (n,): whether the first mixture decides
    """

    first: NDArray[np.bool_]
    mixtures: tuple[Mixture, Mixture]

    def rows(self, span: slice, part: ContextPart) -> Matrix:
        """The probabilities (rows, K) of the decisions of a span."""
        own = self.first[span, None]
        one, two = (mixture.distribution(part) for mixture in self.mixtures)
        return np.where(own, one, two)


def _best(q: Cube, direction: Vector, part: ContextPart) -> IntVector:
    """The best arm of each context along a direction."""
    scores = q @ direction
    if part.mask is not None:
        scores = np.where(part.mask, scores, -np.inf)
    return np.asarray(scores.argmax(axis=1))


def _some(n: int, most: int) -> IntVector:
    """At most so many of n places, in ascending order, always the same ones."""
    return np.sort(np.random.default_rng(0).permutation(n)[:most])


def learn_arms(choices: LoggedArms, f: Concave, model: Any) -> Mixture:
    """The best mixture for a bound f, by the rewards that a model estimates."""
    q = fitted(model, choices, np.ones(choices.n, dtype=bool))
    some = choices if choices.n <= _CONTEXTS else choices.subset(_some(choices.n, _CONTEXTS))
    predicted = [(q(part), part) for part in some.parts]

    def support(direction: Vector) -> tuple[float, Vector]:
        total = np.zeros(direction.size)
        for rewards, part in predicted:
            total += rewards[np.arange(part.n), _best(rewards, direction, part)].sum(axis=0)
        average = total / some.n
        return float(direction @ average), average

    weights, directions, feasible = best_mixture(support, f, choices.problem)
    return Mixture(choices.problem, (Member(weights, directions, q),), feasible)


def best_mixture(support: Support, f: Concave, problem: Problem) -> tuple[Vector, Matrix, bool]:
    """Weights and directions of the mixture of largest f over a set, and whether it keeps the hard
    constraints; where nothing does, the mixture of least violation.
    """
    solution = maximise(support, f, problem, _TOLERANCE, _TOLERANCE, _CALLS, _PLANES)
    return *_pruned(solution.weights, solution.directions), solution.feasible


def _pruned(weights: Vector, directions: Matrix) -> tuple[Vector, Matrix]:
    kept = weights > _NOTHING
    return weights[kept] / weights[kept].sum(), np.ascontiguousarray(directions[kept])


# --- rankings ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class RankingMixture(_Learnt):
    """A policy of rankings: member n is drawn with its weight and shows the items of largest
    g_n,i + <g_n, q_i(x)>, the best in the slot that is exposed most.

    theta (R, p, q): q_i(x) = theta (x (x) item_i) is what item i earns where it is exposed; slots
    (k,): the chance that a slot is exposed.
    """

    problem: Problem
    weights: Vector
    directions: Matrix
    theta: Cube
    items: Matrix
    slots: Vector
    feasible: bool = True
    estimate: Estimate | None = None

    def _size(self) -> int:
        return self.weights.size

    def rewards(self, users: Matrix) -> Cube:
        """What items are estimated to earn where they are exposed, (users, m, R)."""
        rewards: Cube = np.einsum("np,rpq,mq->nmr", users, self.theta, self.items, optimize=True)
        return rewards

    def at_rank(self, users: Matrix, allowed: Any = None) -> Cube:
        """P(item i in slot j), (users, m, k)."""
        m, k = len(self.items), self.slots.size
        out = np.zeros((len(users), m, k))
        q, rows = self.rewards(users), np.arange(len(users))[:, None]
        for weight, direction in zip(self.weights, self.directions, strict=True):
            out[rows, _ranked(q, direction, self.slots, allowed), np.arange(k)] += weight
        return out

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file: arrays and JSON, never pickle."""
        arrays = {name: getattr(self, name) for name in _RANKING}
        _write_arrays(path, "ranking", self.problem, {"feasible": self.feasible}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RankingMixture:
        """What `save` wrote."""
        with _reading(path, "ranking") as (problem, text, file):
            arrays: Any = _arrays(file, _RANKING)
            (p, q), m = sizes(problem), problem.n_items or 0
            count, n, r = arrays[0].size, problem.n_objectives, len(problem.rewards)
            wanted = ((count,), (count, n), (r, p, q), (m, q), (problem.n_slots,))
            _check_shapes(arrays, wanted)
            return replace(cls(problem, *arrays), feasible=bool(text["feasible"]))


def _ranked(q: Cube, direction: Vector, slots: Vector, allowed: Any) -> IntMatrix:
    m = q.shape[1]
    scores = direction[:m] + q @ direction[m:]
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    best = np.argsort(-scores, axis=1, kind="stable")[:, : slots.size]
    shown = np.empty_like(best)
    shown[:, np.argsort(-slots, kind="stable")] = best
    return shown


def learn_rankings(data: LoggedRankings, f: Concave, model: Any) -> RankingMixture:
    """The best mixture for a bound f, by ridge regression on what was exposed."""
    ridge = 1.0
    if isinstance(model, Ridge):
        ridge = model.ridge
    elif model is not None:
        raise InvalidInput(f"the model is {model!r:.80}; for rankings give fw.oracles.Ridge()")
    if data.users is None or data.items is None:
        raise InvalidInput(
            "learning to rank needs the users' features and, once for all rows, those of the "
            "items; a log of an agent that keeps its items has them"
        )
    theta, slots = _regressed(data, data.users, data.items, ridge), data.exposed.mean(axis=0)
    fresh = RankingMixture(
        data.problem, np.ones(1), np.zeros((1, data.problem.n_objectives)), theta, data.items, slots
    )
    some = _some(data.n, _USERS)
    q = fresh.rewards(data.users[some])
    allowed = None if data.candidates is None else data.candidates[some]
    rows, m = np.arange(some.size)[:, None], len(data.items)

    def support(direction: Vector) -> tuple[float, Vector]:
        shown = _ranked(q, direction, slots, allowed)
        exposures = np.bincount(
            shown.ravel(), np.broadcast_to(slots, shown.shape).ravel(), minlength=m
        )
        earned = (slots[:, None] * q[rows, shown]).sum(axis=(0, 1))
        average = np.concatenate([exposures, earned]) / some.size
        return float(direction @ average), average

    weights, directions, feasible = best_mixture(support, f, data.problem)
    return replace(fresh, weights=weights, directions=directions, feasible=feasible)


def _regressed(data: LoggedRankings, user: Matrix, item: Matrix, ridge: float) -> Cube:
    """theta (R, p, q) from what was exposed, by features of users (n, p) and items (m, q)."""
    p, q, r = user.shape[1], item.shape[1], data.rewards.shape[2]
    gram, moment = ridge * np.eye(p * q), np.zeros((p * q, r))
    for span in data.chunks():
        row, slot = np.nonzero(data.exposed[span])
        users, items = user[span][row], item[data.rankings[span][row, slot]]
        x = (users[:, :, None] * items[:, None, :]).reshape(-1, p * q)
        gram += x.T @ x
        moment += x.T @ data.rewards[span][row, slot]
    return np.ascontiguousarray(np.linalg.solve(gram, moment).T.reshape(r, p, q))
