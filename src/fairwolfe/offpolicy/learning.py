"""Learning a policy for f from logs: a mixture of a few policies that maximise one reward each.

Any optimum is a mixture of pi_g(x) = argmax_a <g, q(x, a)>, g in R^D: a class of D dimensions
whatever the number of contexts, and with as many members in the mixture as f has ties. The reward
model q is fitted on one half of the log; the mixture maximises f over the average rewards that q
gives in its contexts, by the method of `fairwolfe.truth.multipliers`, hard constraints included.
The other half evaluates it; then the halves change places, and the policy is both in equal parts:
all of the log has taught it, and all of it evaluates.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.contexts import arms
from fairwolfe.core.decision import Decision
from fairwolfe.core.folders import whole_file
from fairwolfe.core.problem import Problem, whole_number
from fairwolfe.errors import InvalidInput, MissingData
from fairwolfe.objectives import Concave
from fairwolfe.objectives.leaves import Leaves
from fairwolfe.offpolicy.decisions import Choices, Part
from fairwolfe.offpolicy.estimate import Estimate
from fairwolfe.offpolicy.models import Linear, Model, fitted
from fairwolfe.truth import multipliers, planes
from fairwolfe.truth.multipliers import Support
from fairwolfe.truth.rows import Rows

__all__ = [
    "Crossed",
    "Member",
    "Mixture",
    "best_mixture",
    "learn_arms",
    "reading",
    "write_arrays",
]

_FORMAT, _VERSION = "fairwolfe mixture", 1
_CONTEXTS = 20_000  # on which a mixture is sought; more change it by less than their noise
_CALLS, _PLANES = 200, 100  # of the estimated support function
_TOLERANCE = 1e-4
_NOTHING = 1e-6  # weights of members that are left out


class Member(NamedTuple):
    """What was learnt from some of the decisions: a mixture of argmax_a <g_n, q(x, a)>.

    weights (N,), directions (N, D), model: q
    """

    weights: Vector
    directions: Matrix
    model: Model

    def distribution(self, part: Part) -> Matrix:
        """The probabilities (rows, K) in contexts."""
        q, out = self.model(part), np.zeros((part.n, part.n_arms))
        rows = np.arange(part.n)
        for weight, direction in zip(self.weights, self.directions, strict=True):
            out[rows, _best(q, direction, part)] += weight
        return out


@dataclass(frozen=True, eq=False)
class Mixture:
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

    def __repr__(self) -> str:
        count = sum(member.weights.size for member in self.members)
        value = ""
        if self.estimate is not None:
            value = f", f = {self.estimate.value:.4g} on decisions that taught nothing"
        return f"<Mixture of {count} policies{value}>"

    def evaluated(self, estimate: Estimate) -> Mixture:
        """The same with what it would have earned."""
        return replace(self, estimate=estimate)

    def distribution(self, part: Part) -> Matrix:
        """The probabilities (rows, K) in contexts."""
        each = [member.distribution(part) for member in self.members]
        return np.asarray(np.mean(each, axis=0))

    def probabilities(self, context: Any) -> Vector:
        """Of the arms of one context, in any of the forms that an agent takes."""
        row: Vector = self.distribution(_part(context, self.problem))[0]
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
        if not all(isinstance(member.model, Linear) for member in self.members):
            raise InvalidInput(
                "only mixtures over a linear model can be saved without pickle; learn with "
                "model=fw.oracles.Ridge(), or keep the log and learn again"
            )
        arrays: dict[str, Any] = {}
        for i, member in enumerate(self.members):
            assert isinstance(member.model, Linear)
            arrays[f"weights{i}"], arrays[f"directions{i}"] = member.weights, member.directions
            arrays[f"theta{i}"] = member.model.theta
        more = {"members": len(self.members), "feasible": self.feasible}
        write_arrays(path, "arms", self.problem, more, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Mixture:
        """What `save` wrote."""
        with reading(path, "arms") as (problem, text, file):
            count = whole_number("members", text["members"])
            members = tuple(_member(file, str(i), problem) for i in range(count))
            return cls(problem, members, bool(text["feasible"]))


def write_arrays(
    path: str | os.PathLike[str], kind: str, problem: Problem, more: Any, arrays: dict[str, Any]
) -> None:
    """The file of a mixture: arrays and one JSON text, whole or not at all."""
    head = {"format": _FORMAT, "version": _VERSION, "kind": kind}
    text = json.dumps(head | {"problem": json.loads(problem.to_json())} | more)
    with whole_file(path) as file:
        np.savez(file, text=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)


@contextmanager
def reading(path: str | os.PathLike[str], kind: str) -> Iterator[tuple[Problem, Any, Any]]:
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


def _member(file: Any, i: str, problem: Problem) -> Member:
    weights, directions, theta = (
        np.array(file[f"{name}{i}"], dtype=np.float64)
        for name in ("weights", "directions", "theta")
    )
    n, shapes = problem.n_objectives, (weights.shape, directions.shape, theta.shape)
    wanted = ((weights.size,), (weights.size, n), (problem.n_arms or 1, n, problem.dimension))
    sound = all(np.isfinite(x).all() for x in (weights, directions, theta))
    if shapes != wanted or not sound or not abs(weights.sum() - 1.0) < 1e-6:
        raise ValueError(f"its arrays have the shapes {shapes}")
    return Member(weights, directions, Linear(theta))


@dataclass(frozen=True)
class Crossed:
    """Mixtures for rows of a log: each row is decided by the one that did not learn from it.

    first (n,): whether the first mixture decides
    """

    first: NDArray[np.bool_]
    mixtures: tuple[Mixture, Mixture]

    def rows(self, span: slice, part: Part) -> Matrix:
        """The probabilities (rows, K) of the decisions of a span."""
        own = self.first[span, None]
        one, two = (mixture.distribution(part) for mixture in self.mixtures)
        return np.where(own, one, two)


def _part(context: Any, problem: Problem) -> Part:
    given = arms(context, problem)
    return Part(1, given.n_arms, given.features[None], None, given.per_arm)


def _best(q: Cube, direction: Vector, part: Part) -> IntVector:
    """The best arm of each context along a direction."""
    scores = q @ direction
    if part.mask is not None:
        scores = np.where(part.mask, scores, -np.inf)
    return np.asarray(scores.argmax(axis=1))


def learn_arms(choices: Choices, f: Concave, model: Any) -> Mixture:
    """The best mixture for a bound f, by the rewards that a model estimates."""
    q = fitted(model, choices, np.ones(choices.n, dtype=bool))
    some = choices
    if choices.n > _CONTEXTS:
        places = np.random.default_rng(0).permutation(choices.n)[:_CONTEXTS]
        some = choices.subset(np.sort(places))
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
    n = problem.n_objectives
    rows, sought = None, None
    if f.constrained:
        rows = Rows(f, problem, support)
        sought = rows.seek(support, *multipliers.first_vertices(support, n), _CALLS)
        if sought.unavoidable > rows.allowed:
            return *_pruned(sought.weights, sought.directions), False
    maximise: Callable[..., Any] = planes.maximise
    limits: tuple[Any, ...] = (_TOLERANCE, _PLANES, rows, sought)
    if Leaves(f, n).smoothable:
        maximise, limits = multipliers.maximise, (_TOLERANCE, _TOLERANCE, _CALLS, rows, sought)
    solution = maximise(support, f, n, *limits)
    return *_pruned(solution.weights, solution.directions), True


def _pruned(weights: Vector, directions: Matrix) -> tuple[Vector, Matrix]:
    kept = weights > _NOTHING
    return weights[kept] / weights[kept].sum(), np.ascontiguousarray(directions[kept])
