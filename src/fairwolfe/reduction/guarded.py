"""`Guarded`: a policy that plays only where f stays above a share of a baseline's f; `Margin`: a
lower bound on how far it is above.

All sums are linear in the parameters theta of the rewards, of which only an ellipsoid is known.
With X the sum of the features of the arms that were played, Y that of the arms of the baseline on
the same contexts, after T rounds:

    z = theta X/T          what was earned, on average
    y = theta Y/T          what the baseline would have earned
    w = theta (X - Y)/T    the difference, known well: it is 0 while the baseline plays

The proposition and its proof are in docs/guard.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np

from fairwolfe.bandits.base import shared_doubt
from fairwolfe.core.arrays import Cube, Matrix, Vector
from fairwolfe.core.contexts import Arms
from fairwolfe.core.decision import Batch, Decision, Learnt
from fairwolfe.core.kinds import Kind, kind_of, require_kind
from fairwolfe.core.packing import need, require, require_counts
from fairwolfe.core.problem import Problem, all_finite, level, number_where
from fairwolfe.core.protocols import Base, Policy, keeps
from fairwolfe.core.rows import HEAD, ArmRows, PlainRows
from fairwolfe.core.tables import short
from fairwolfe.errors import InvalidInput, OutsideAssumptions
from fairwolfe.kernels.limits import row_limit
from fairwolfe.objectives import Concave, GiniWelfare, Minimum
from fairwolfe.objectives.leaves import Leaves
from fairwolfe.oracles import LinearState, Ridge
from fairwolfe.oracles.linear_regression import LOG_DET, learn, radius, repair
from fairwolfe.reduction.frank_wolfe import FrankWolfe
from fairwolfe.reduction.running import PolicyRunning

_MOST_REWARDS = 16  # f is evaluated in all 2^n corners of the ranges, once
_MOST_CORNERS = 4  # rewards up to which all corners of a box are evaluated, in every round
_RIDGE = 0.1  # near the smallest radius for a few features of norm 1 after 10^3 to 10^5 answers
_RHO = 1000.0  # rounds at which the bound on sums of rewards is tightest, about

Box: TypeAlias = tuple[Vector, Vector]
"""The middle and the half widths of a box."""


class GuardSums(NamedTuple):
    """What a guard knows: decisions, answered: how many; earned (n,): the sum of the rewards;
    apart (blocks, features): X - Y; unanswered: the part of X without an answer.
    """

    decisions: float
    answered: float
    earned: Vector
    apart: Matrix
    unanswered: Matrix
    regression: LinearState


@dataclass(frozen=True, eq=False)
class Margin:
    """A lower bound on f(z) - floor - share (f(y) - floor), valid at all times except with
    probability delta.

    objective: f, bound to the problem; finite and at least `floor` in the ranges of the rewards
    """

    objective: Concave
    problem: Problem
    share: float
    delta: float
    floor: float

    def __post_init__(self) -> None:
        n = self.problem.n_objectives
        if n > _MOST_REWARDS:
            raise InvalidInput(
                f"the problem has {n} rewards, and a guard looks at f in all corners of their "
                f"ranges, for at most {_MOST_REWARDS}; aim f at fewer, in a problem without the "
                "others"
            )
        low, high = self.problem.low, self.problem.high
        corners = np.where(_signs(n) < 0.0, low, high)
        with np.errstate(all="ignore"):
            values = np.array([self.objective._value(corner) for corner in corners])
        worst = int(np.where(np.isnan(values), -np.inf, values).argmin())
        least, where = float(values[worst]), corners[worst].tolist()
        if not math.isfinite(least):
            raise InvalidInput(
                f"{self.objective!r:.80} is {least} at {where}, inside the ranges of the rewards, "
                "and a guard needs an f that is finite there; give it an offset above 0, narrower "
                "ranges, or a penalty in place of a hard constraint"
            )
        if least < self.floor - 1e-9 * max(1.0, abs(least)):
            raise InvalidInput(
                f"{self.objective!r:.80} is {least:.6g} at {where}, inside the ranges of the "
                f"rewards, below floor={self.floor:g}, and a share of a negative number promises "
                f"nothing; give floor={_below(least):g}, for f - floor of at least a share of the "
                "baseline's, or another f"
            )

    # --- what is known -------------------------------------------------------------------------

    @cached_property
    def regression(self) -> Ridge:
        """The guard's own, of all rewards on all features: it has widths for every policy."""
        return Ridge(_RIDGE)

    @cached_property
    def bound_params(self) -> Vector:
        """Of the parameters, at a third of delta; see `shared_doubt`."""
        return shared_doubt(self.problem, self.regression.ridge, self.delta / 3.0)

    def radii(self, regression: LinearState) -> Vector:
        """alpha_i with |(theta_i - its estimate) x| <= alpha_i |x|_{V^-1}, for all x at all times.

        (n,)
        """
        n, bound_params = self.problem.n_objectives, self.bound_params
        log_det = regression.counters[LOG_DET]
        alpha: Vector = radius(
            bound_params[2 : 2 + n], bound_params[2 + n :], bound_params[1], log_det
        )
        return alpha

    def noise(self, answered: float) -> Vector:
        """How far the sums of so many rewards are from those of their means, at all times.

        It is the radius of a regression on a constant, which has a parameter that is known to be 0:
        with V = rho + n in place of a matrix. (n,)
        """
        total = _RHO + answered
        scales = self.bound_params[2 : 2 + self.problem.n_objectives]
        alpha: Vector = radius(scales, 0.0, self.bound_params[1], math.log(total / _RHO))
        return math.sqrt(total) * alpha

    def wander(self, t: float) -> float:
        """How far the baseline's average can go from where it is after t rounds, at all later
        times, in units of the range: eps with 6 exp(-1.6 t eps^2) = delta_t, over n rewards.

        delta_t = (delta/3)/(2.5 (t + 1) ln(t + 1)^2), which sums to less than delta/3.
        """
        often = 2.5 * (t + 1) * math.log(t + 1) ** 2
        level = math.log(18.0 * self.problem.n_objectives * often / self.delta)
        return math.sqrt(level / (1.6 * t))

    # --- the bound ----------------------------------------------------------------------------

    def at(self, known: GuardSums) -> float:
        """The bound if one more round is played whatever comes: at least 0 is safe, also for all
        later times at which only the baseline has played since.

        The larger of two, with phi = f - floor and z = y + w. By concavity phi(z) - share phi(y) is
        at least 1/k phi(z + (k - 1) w), k = 1/(1 - share): good while little is known, as phi(y)
        does not matter. And with a tangent phi <= a + <g, .> it is at least phi(z) - <g, z>, a
        constant where f is linear, + <g, (1 - share) z + share w> - share a.
        """
        (z, z_half), (w, w_half) = self._boxes(known)
        if (z_half < 0.0).any():  # what was seen cannot be, by the assumptions
            return -math.inf
        share, more = self.share, self.share / (1.0 - self.share)
        cautious = self._lowest(np.zeros(z.size), z + more * w, z_half + more * w_half)
        if cautious >= 0.0:
            return (1.0 - share) * cautious
        a, g = self._tangent(z - w, z_half + w_half)
        along = g @ ((1.0 - share) * z + share * w)
        along -= abs(g) @ ((1.0 - share) * z_half + share * w_half)
        outright = self._lowest(g, z, z_half) + along - share * a
        return max(float(outright), (1.0 - share) * cautious)

    def _boxes(self, known: GuardSums) -> tuple[Box, Box]:
        """Of z = s + w and of w after one more round, for s the baseline's average then or at any
        later time.
        """
        low, high = self.problem.low, self.problem.high
        span, t = high - low, known.decisions + 1.0
        regression = known.regression
        theta, inverse = regression.theta, regression.inverse
        alpha = self.radii(regression)
        apart, unanswered = known.apart, known.unanswered
        w = _earned(theta, apart) / t
        w_half = (alpha * _norm(inverse, apart) + span) / t
        z, z_half = known.earned + 0.5 * (low + high), self.noise(known.answered) + 0.5 * span
        if known.decisions > known.answered:
            z = z + _earned(theta, unanswered)
            z_half = z_half + alpha * _norm(inverse, unanswered)
        z, z_half = z / t, z_half / t + self.wander(t) * span
        # An average of the baseline is in the ranges; with w added it need not be.
        bottom = np.maximum(low + w - w_half, z - z_half)
        top = np.minimum(high + w + w_half, z + z_half)
        return (0.5 * (bottom + top), 0.5 * (top - bottom)), (w, w_half)

    def _lowest(self, g: Vector, z: Vector, half: Vector) -> float:
        """A lower bound on phi - <g, .> over a box: it is concave, so that corners are enough.

        For many rewards, those of a cross-polytope around the box: e with |e_i| <= h_i is a convex
        combination of +- (h_i/p_i) e_i, with weights p_i = h_i/sum(h).
        """
        value, wide = self.objective._value, float(half.sum())
        if z.size <= _MOST_CORNERS:
            points = z + half * self._corners
            values = np.array([value(p) for p in points])
            return float((values - points @ g).min() - self.floor)
        middle, down = float(value(z) - g @ z), 0.0
        if not math.isfinite(middle):
            return -math.inf
        for i in np.flatnonzero(half):
            ends = z[None].repeat(2, axis=0)
            ends[:, i] += wide, -wide
            lowest = min(float(value(p) - g @ p) for p in ends)
            down += half[i] / wide * min(lowest - middle, 0.0)
        return middle + down - self.floor

    def _tangent(self, s: Vector, half: Vector) -> tuple[float, Vector]:
        """a and g with phi <= a + <g, .> everywhere, close to phi in a box around s: the gradient
        of the envelope of a width that sees the box.
        """
        leaves, n = self._leaves, s.size
        slope = self.objective.lipschitz(n)
        step = float(np.linalg.norm(half)) / slope if 0.0 < slope < math.inf else 0.0
        _, intercept, g = leaves.majorant(*leaves.touch(leaves.map @ s, step))
        return intercept - self.floor, g

    @cached_property
    def _leaves(self) -> Leaves:
        return Leaves(self.objective, self.problem.n_objectives)

    @cached_property
    def _corners(self) -> Matrix:
        return _signs(min(self.problem.n_objectives, _MOST_CORNERS))


def _signs(n: int) -> Matrix:
    """(2^n, n): all corners of [-1, 1]^n."""
    return np.array(list(product((-1.0, 1.0), repeat=n)))


def _below(value: float) -> float:
    """A round number that is not above a value."""
    return math.floor(100.0 * value) / 100.0


def _earned(theta: Cube, sums: Matrix) -> Vector:
    """theta times a sum of features, block by block: (n,)."""
    earned: Vector = (theta @ sums[:, :, None]).sum(axis=0)[:, 0]
    return earned


def _norm(inverse: Cube, sums: Matrix) -> float:
    """|sum|_{V^-1}, V block-diagonal."""
    square = float(np.einsum("bi,bij,bj->", sums, inverse, sums))
    return math.sqrt(max(square, 0.0))


_MADE, _OPEN, _ANSWERED, _HELD = range(4)  # of the books: decisions, the last the baseline's
_COUNTS = 4
_FLOAT = np.dtype(np.float64)


@dataclass(frozen=True)
class Guarded:
    """Play a policy where that is safe, else a baseline: f(z_t) >= share f(y_t) at all times t.

    z_t is the average of the mean rewards of all decisions made so far, y_t what it would have been
    had the baseline decided for the same contexts. It holds with probability 1 - delta, at all t at
    once, where the mean rewards are linear in the features, with `parameter_norm` as the problem
    states it and noise in the ranges, absence and delay of feedback do not depend on its content,
    contexts are drawn independently, and the baseline does not learn. Without the last two it holds
    at all t at which the policy has just played. Proposition and proof: docs/guard.md.

    Whether the policy may play depends on the past alone, not on the context or the draws, so that
    `probability` is that of the one that plays. The policy learns from every answer; the baseline
    from those to its own choices. Rankings are not guarded: what would have been exposed in a list
    that was not shown is unknown.

    Parameters
    ----------
    policy: a policy for arms with an objective f, such as ``FrankWolfe(f, LinUCB())``
    baseline: another, such as ``FrankWolfe(f, Fixed(0))``; what it pursues does not matter
    share: of the baseline's f, in (0, 1)
    delta: the chance that the guarantee fails, in (0, 1)
    floor: the value from which shares count: f - floor is at least a share of the baseline's
        f - floor. f must be at least `floor` and finite in the ranges of the rewards

    Cost of a round, besides that of both: d^2 + 2^D values of f for D <= 4 rewards, else 2 D.

    Reference: conservative linear bandits (Kazerouni et al. 2017), for a concave f.

    >>> from fairwolfe.bandits import Fixed, LinUCB
    >>> f = Minimum()
    >>> policy = Guarded(FrankWolfe(f, LinUCB()), FrankWolfe(f, Fixed(1)), share=0.9)
    >>> problem = Problem.arms(2, {"clicks": (0, 1), "saves": (0, 1)}, parameter_norm=1.0)
    >>> decision = policy.act(policy.init(problem), np.eye(2), np.random.default_rng(0))
    >>> decision.action, decision.explain()[0]["played"]
    (1, 'baseline')
    """

    policy: Any
    baseline: Any
    share: float = 0.95
    delta: float = 0.05
    floor: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("policy", "baseline"):
            _require_policy(name, getattr(self, name))
        for name in ("share", "delta"):
            level(name, getattr(self, name))
        number_where("floor", self.floor, math.isfinite, "a finite number")
        if not isinstance(self.objective, Concave):
            raise InvalidInput(
                f"{self.policy!r:.80} has no objective, and a share is of one; guard a policy with "
                "one, such as FrankWolfe(objective, LinUCB())"
            )
        for name in ("policy", "baseline"):
            kind = getattr(getattr(self, name), "decides", "arms")
            if kind != "arms":
                raise InvalidInput(
                    f"the {name} decides {kind!r}, and only arms are guarded: what a list would "
                    "have earned that was not shown depends on exposures that were not observed; "
                    "give policies for arms"
                )

    @property
    def objective(self) -> Any:
        """f, that of the policy."""
        return getattr(self.policy, "objective", None)

    # --- the contract -------------------------------------------------------------------------

    def init(self, problem: Problem) -> GuardState:
        """Validate and allocate."""
        require_kind("arms", problem, "Guarded")
        if problem.parameter_norm is None:
            raise OutsideAssumptions(
                "the problem states no parameter_norm, on which confidence widths and so the "
                "guarantee rest; give Problem.arms(..., parameter_norm=), a bound on the norm of "
                "the parameters of a reward"
            )
        f = self.objective.bind(problem)
        margin = Margin(f, problem, float(self.share), float(self.delta), float(self.floor))
        plan = GuardPlan(kind_of(problem), margin)
        need(plan.size)
        return GuardState(
            plan,
            PolicyRunning.of(self.policy, problem),
            PolicyRunning.of(self.baseline, problem),
            margin.regression.init(problem),
            np.zeros(plan.size),
        )

    def act(self, state: GuardState, context: Any, rng: np.random.Generator) -> Decision:
        """Ask the baseline, then the policy if that is safe; only reads the state."""
        plan = state.plan
        given: Arms = plan.kind.read(context)
        margin = state.margin()
        other = _decided(state.baseline, given, rng)
        held = not margin >= 0.0
        own = _decided(state.policy, _only(given, other.action) if held else given, rng)
        played = other if held else own
        arm = _row(given, played.action)
        trail = Trail(
            held,
            _stored(own),
            _stored(other) if held else None,
            played.action if given.per_arm else 0,
            given.row(arm).copy(),
            other.action if given.per_arm else 0,
            given.row(_row(given, other.action)).copy(),
        )
        decision = Decision("", own.t, arm, played.probability, trail)
        rows: Any = decision.batch.rows
        rows.head["place"] = int(state.books[_MADE])
        rows.explained[0] = _explained(played, arm, held, margin, self.share)
        return decision

    def update(self, state: GuardState, decision: Decision, feedback: Any) -> GuardState:
        """Let the policy learn, and the baseline if it has played; and the guard."""
        plan, counted = state.plan, _place(decision) >= 0
        answer = plan.kind.observe(decision.action, feedback)
        trail = self._trail(state, decision)
        _learn(state.policy, trail.policy, answer, counted)
        # Whatever an interrupt leaves undone from here on, the decision counts as unanswered.
        learn(plan.margin.regression, state.regression, trail.block, trail.x, answer.reward)
        awaited = state.awaits(decision)
        entry = np.zeros(plan.size) if awaited else plan.entry(trail)
        entry[_OPEN] = -1.0 if awaited else 0.0
        entry[_ANSWERED] = 1.0
        plan.earned(entry)[:] = answer.reward
        plan.features(entry)[1, trail.block] -= trail.x
        np.add(state.books, entry, out=state.books)  # one call: whole or not at all
        if trail.held:
            _learn(state.baseline, trail.baseline, answer, counted)
        return state

    # --- open decisions: the features show what they will earn ---------------------------------

    def expect(self, state: GuardState, decision: Decision) -> GuardState:
        """Count a decision as made, and as open."""
        trail = self._trail(state, decision)
        for running, rows in _inner(state, trail):
            rows.head["place"] = running.issued
            running.open_rows(rows)
        decision.batch.rows.head["place"] = int(state.books[_MADE])
        np.add(state.books, state.plan.entry(trail), out=state.books)
        return state

    def withdraw(self, state: GuardState, decision: Decision) -> GuardState:
        """A decision gets no answer any more; it was made, and still counts."""
        trail = self._trail(state, decision)
        for running, rows in _inner(state, trail):
            running.withdraw(rows)
        if state.awaits(decision):
            state.books[_OPEN] -= 1.0
        return state

    # --- what an agent asks besides ------------------------------------------------------------

    def kind(self, state: GuardState) -> Kind:
        """Arms: contexts and answers are checked before they come here."""
        return state.plan.kind

    def counts(self, state: GuardState) -> dict[str, int]:
        """How many decisions the guard left to the baseline, of those that were made."""
        return {"baseline_played": int(state.books[_HELD])}

    def with_objective(self, objective: Concave) -> Self:
        """The same guard for another f; what it promises of it begins with the next decision."""
        if not hasattr(self.policy, "with_objective"):
            raise InvalidInput(f"the objective of {self.policy!r:.80} cannot be replaced")
        return replace(self, policy=self.policy.with_objective(objective))

    def retargeted(self, state: GuardState, problem: Problem) -> GuardState:
        """A state of the guard before its objective was replaced, for this one."""
        fresh = self.init(problem)
        return state._replace(plan=fresh.plan, policy=state.policy.with_objective(self.policy))

    def repair(self, state: GuardState) -> float:
        """Recompute what is kept of all regressions, in place; how large the error was."""
        drifts = [one.repair() for one in state.players if one.can_repair]
        return float(max(repair(state.regression), *drifts))

    def drift(self, state: GuardState) -> float:
        """The error of the kept inverses when they were last recomputed."""
        return float(max(state.regression.drift, *(one.drift() for one in state.players)))

    def row_limit(self, state: GuardState) -> float:
        """The largest norm of a row of features that can be learnt from."""
        return float(min(state.plan.limit, *(one.limit for one in state.players)))

    def learnt(self, state: GuardState) -> Learnt:
        """What the policy has learnt of the rewards."""
        learnt: Learnt = state.policy.learnt()
        return learnt

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        from fairwolfe.bandits import Fixed, LinUCB, SquareCB, Uniform

        f, g = GiniWelfare(), Minimum()
        return (
            cls(FrankWolfe(f, LinUCB()), FrankWolfe(f, Fixed(1))),
            cls(FrankWolfe(g, SquareCB(gamma0=100.0)), FrankWolfe(g, Uniform()), 0.1, 0.9),
        )

    @staticmethod
    def _trail(state: GuardState, decision: Decision) -> Trail:
        """What a decision remembers, checked, since it may come from bytes of any origin."""
        if not isinstance(decision.evidence, tuple) or len(decision.evidence) != len(Trail._fields):
            raise _evidence_error(decision)
        trail = Trail(*decision.evidence)
        plan = state.plan
        blocks, d = plan.shape
        for block, x in ((trail.block, trail.x), (trail.other_block, trail.other_x)):
            fits = type(block) is int and 0 <= block < blocks and isinstance(x, np.ndarray)
            fits = fits and x.dtype == _FLOAT and x.shape == (d,) and x.flags.carray
            if not (fits and all_finite(x) and math.sqrt(x @ x) <= plan.limit):
                raise _evidence_error(decision)
        stored = (trail.policy, trail.baseline) if trail.held is True else (trail.policy,)
        if type(trail.held) is not bool or not all(map(_is_stored, stored)):
            raise _evidence_error(decision)
        return trail


class Trail(NamedTuple):
    """What `update` needs of a decision: that of the policy, which may have been left one arm only,
    and of the baseline where it has played; the features that count.
    """

    held: bool  # whether the baseline has played
    policy: Any  # columns of its rows
    baseline: Any
    block: int
    x: Any  # (d,): of the arm that was played
    other_block: int
    other_x: Any  # (d,): of the baseline's


def _explained(
    played: Decision, arm: int, held: bool, margin: float, share: float
) -> list[dict[str, Any]]:
    """What made the choice of the one that has played, and of the guard."""
    kept = f"{100.0 * share:g} % of the baseline's"
    if not held:
        why = f"policy played because f stays above {kept} whatever this round earns"
    elif not math.isfinite(margin):
        why = f"baseline played because too little is known to keep f above {kept}"
    else:
        why = f"baseline played because f could come {-margin:.3g} below {kept}"
    try:
        rows = played.explain()
    except InvalidInput:
        rows = [{"arm": arm}]
    who = "baseline" if held else "policy"
    return [row | {"arm": arm, "played": who, "guard": why} for row in rows]


class GuardState(NamedTuple):
    """The states of policy, baseline and the guard's regression; and the books, one vector, so that
    an entry is made whole: see `GuardPlan`.
    """

    plan: GuardPlan
    policy: Any  # Running
    baseline: Any  # Running
    regression: LinearState
    books: Vector

    @property
    def players(self) -> tuple[Any, Any]:
        """Policy and baseline."""
        return self.policy, self.baseline

    def margin(self) -> float:
        """See `Margin.at`."""
        plan, books = self.plan, self.books
        apart, unanswered = plan.features(books)
        counts = books.item(_MADE), books.item(_ANSWERED)
        known = GuardSums(*counts, plan.earned(books), apart, unanswered, self.regression)
        return plan.margin.at(known)

    def awaits(self, decision: Decision) -> bool:
        """Whether a decision is counted as open."""
        return 0 <= _place(decision) < self.books.item(_MADE) and self.books.item(_OPEN) > 0.0

    @property
    def average(self) -> Vector:
        """The average observed reward: that of the policy, which learns from every answer."""
        average: Vector = self.policy.average
        return average

    @property
    def t(self) -> int:
        """The number of rewards averaged in."""
        t: int = self.policy.t
        return t

    @property
    def open(self) -> int:
        """The number of decisions that are counted as open."""
        return int(self.books[_OPEN])

    def restored(self) -> None:
        """After arrays have been read from a file: raise for counts that are impossible."""
        counts = self.books[:_COUNTS]
        require_counts("books", counts)
        require("books", counts, counts <= counts[_MADE], "no more decisions count than were made")


@dataclass(frozen=True, eq=False)
class GuardPlan:
    """What `init` makes of a guard and a problem; it never changes and is not saved.

    The books hold, over the decisions made: how many were made, are open, were answered, were left
    to the baseline; the sum of the rewards; and two sums of features, of the arms played less those
    of the baseline, and of the arms played that have no answer.
    """

    kind: Kind
    margin: Margin

    @cached_property
    def size(self) -> int:
        """Of the books."""
        blocks, d = self.shape
        return _COUNTS + self.kind.problem.n_objectives + 2 * blocks * d

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Blocks and features."""
        return self.kind.problem.n_arms or 1, self.kind.problem.dimension

    def earned(self, books: Vector) -> Vector:
        """The sum of the rewards in the books, (rewards,)."""
        return books[_COUNTS : _COUNTS + self.kind.problem.n_objectives]

    def features(self, books: Vector) -> Cube:
        """The sums of features in the books, (2, blocks, features)."""
        return books[_COUNTS + self.kind.problem.n_objectives :].reshape(2, *self.shape)

    def entry(self, trail: Trail) -> Vector:
        """What a decision that is made, and open, adds to the books."""
        entry = np.zeros(self.size)
        entry[_MADE] = entry[_OPEN] = 1.0
        entry[_HELD] = trail.held
        apart, unanswered = self.features(entry)
        if not trail.held:
            apart[trail.block] += trail.x
            apart[trail.other_block] -= trail.other_x
        unanswered[trail.block] += trail.x
        return entry

    @cached_property
    def limit(self) -> float:
        """The largest norm of a row of features."""
        return row_limit(self.kind.problem, self.margin.regression.ridge)


def _require_policy(name: str, given: Any) -> None:
    if isinstance(given, type) or not keeps(given, Policy):
        what = f"the class {given.__name__}" if isinstance(given, type) else f"{given!r:.80}"
        if not isinstance(given, type) and keeps(given, Base):
            raise InvalidInput(
                f"the {name} is {what}, a bandit for one reward; give FrankWolfe(objective, {what})"
            )
        raise InvalidInput(
            f"the {name} is {what}; give one such as FrankWolfe(objective, LinUCB())"
        )


def _place(decision: Decision) -> int:
    """The place of a decision among those that were open; -1 where it was not counted."""
    place: int = decision.batch.rows.head["place"].item(0)
    return place


def _row(given: Arms, arm: int) -> int:
    """An arm of the whole context among those that may be chosen."""
    return arm if given.places is None else int(np.flatnonzero(given.places == arm)[0])


def _only(given: Arms, arm: int) -> Arms:
    """The context with one arm only."""
    row = _row(given, arm)
    features = given.features if given.per_arm else given.features[row : row + 1]
    return Arms(features, 1, given.per_arm, given.norm, np.array([arm]))


def _decided(running: Any, given: Arms, rng: np.random.Generator) -> Decision:
    """The decision of policy or baseline, numbered in the whole context."""
    return Decision.of(Batch(running.decide(given, rng)), 0)


def _stored(decision: Decision) -> tuple[Any, ...]:
    """A decision for an arm inside of another: its columns, which share its memory."""
    rows = decision.batch.rows
    if isinstance(rows, PlainRows):
        return rows.head.view(np.uint8), rows.estimate, rows.g, rows.live, rows.stored[0]
    return rows.head.view(np.uint8), *rows[1:]


def _is_stored(stored: Any) -> bool:
    """Whether it can be read; what the numbers are is for the policy to judge."""
    head = stored[0] if isinstance(stored, tuple) and len(stored) in (3, 5) else None
    return isinstance(head, np.ndarray) and head.dtype == np.uint8 and head.nbytes == HEAD.itemsize


def _read(stored: tuple[Any, ...]) -> Any:
    """The rows that `_stored` took apart."""
    head, *rest = stored
    head = head.view(HEAD)
    if len(rest) < len(PlainRows._fields) - 2:
        return ArmRows(head, *rest)
    rows = PlainRows.empty(1, 0, 0, 0)._replace(
        head=head, estimate=rest[0], g=rest[1], live=rest[2]
    )
    rows.stored[0] = rest[3]
    return rows


def _inner(state: GuardState, trail: Trail) -> list[tuple[Any, Any]]:
    """The players of a decision, with the rows of what each decided."""
    players = [(state.policy, _read(trail.policy))]
    return [*players, (state.baseline, _read(trail.baseline))] if trail.held else players


def _learn(running: Any, stored: Any, answer: Any, counted: bool) -> None:
    rows = _read(stored)
    if not counted:
        rows = rows._replace(head=rows.head.copy())
        rows.head["place"] = -1
    running.learn(rows, answer.observation[None])


def _evidence_error(decision: Decision) -> InvalidInput:
    return InvalidInput(
        f"the evidence of decision {decision.id!r} is of another policy or problem, or damaged: "
        f"{short(decision.evidence, 80)}"
    )
