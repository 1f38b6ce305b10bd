"""`FrankWolfe`: any bandit for one reward becomes one for a concave function of several.

The generic algorithm of the paper. After t rewards, with z their average:

    g = grad f_t(z)                       the direction, at the time of the decision
    a = base's choice for <g, r>          a bandit with one scalar reward
    z = z + (rho - z)/(t + 1)             when the reward arrives; rho = r by default
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.core.brief import short
from fairwolfe.core.catalogue import Candidates, Catalogue, candidates
from fairwolfe.core.contexts import arms
from fairwolfe.core.decision import Choice, Decision
from fairwolfe.core.problem import Problem, all_finite
from fairwolfe.core.protocols import Base, ScalarPolicy, keeps
from fairwolfe.core.restoring import require, require_counts
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.compile import Kernel
from fairwolfe.kernels.limits import row_limit
from fairwolfe.kernels.settling import Settling, average_in, averages, settle
from fairwolfe.objectives import Concave, GiniWelfare, Linear
from fairwolfe.objectives.concave import finite_vector
from fairwolfe.objectives.leaves import Leaves
from fairwolfe.oracles import LinearState
from fairwolfe.reduction.live import Live, Watch
from fairwolfe.reduction.windows import Windows, turn_over
from fairwolfe.smoothing import Identity, Moreau, Randomized, default_smoothing
from fairwolfe.smoothing.randomized import sampled

__all__ = ["FrankWolfe", "Plan", "State"]

_NOTHING = np.empty(0)


class Plan(NamedTuple):
    """What a policy and a problem make together; it never changes and is not saved."""

    problem: Problem
    objective: Concave
    smoothing: Identity | Moreau | Randomized
    base: Any
    forget: float
    watch: Watch
    catalogue: Catalogue | None = None  # of a ranking: the items of the moment
    coordinates: IntVector | None = None  # those that f sees, where items are retired
    row_limit: float = np.inf  # the largest norm of a row of features that can be learnt from
    commits: bool = False  # an answer is one kernel, which no interrupt can tear

    def age(self, t: int) -> int:
        """t for the smoothing: with memory, the number of rewards that the average still holds."""
        return t if self.forget == 0.0 else min(t, int(1.0 / self.forget))

    def seen(self, vector: Vector) -> Vector:
        """The coordinates that f sees."""
        return vector if self.coordinates is None else vector[self.coordinates]

    def aligned(self, vector: Vector, given: Candidates) -> Vector:
        """Of a vector that f sees: the numbers of the candidates, then those of the rewards."""
        if given.places.size == 0 or self.catalogue is None:
            return vector
        return np.concatenate([vector[given.places], vector[self.catalogue.ids.size :]])

    def whole(self, vector: Vector) -> Vector:
        """All coordinates, from those that f sees: 0 for the others."""
        if self.coordinates is None:
            return vector
        out = np.zeros(self.problem.n_objectives)
        out[self.coordinates] = vector
        return out


class State(NamedTuple):
    """Sums of the iterate and of the rewards, over how many rounds; the base's; live numbers."""

    plan: Plan
    totals: Vector
    earned: Vector
    clocks: Vector
    direction: Vector  # the running one
    counters: Vector
    base: Any
    live: Windows

    def restored(self) -> None:
        """After arrays have been read from a file: refuse times that cannot be."""
        require_counts("counters", self.counters)
        passed = (self.clocks >= 0.0) & (self.clocks <= self.counters[0])
        require("clocks", self.clocks, passed, "clocks run from 0 to the number of rewards")

    @property
    def t(self) -> int:
        """The number of rewards averaged in."""
        return int(self.counters[0])

    @property
    def iterate(self) -> Vector:
        """z, as f sees it."""
        return self._over(self.totals)

    @property
    def average(self) -> Vector:
        """The average observed reward, as f sees it."""
        return self._over(self.earned)

    def _over(self, sums: Vector) -> Vector:
        out = np.empty(sums.size)
        averages(sums, self.clocks, out)
        return self.plan.seen(out)


class Trail(NamedTuple):
    """What `update` needs of a decision, besides what the base needs."""

    base: Any
    rho: Vector | None
    direction: Vector | None
    live: tuple[int, Vector] | None


@dataclass(frozen=True)
class FrankWolfe:
    """Maximise f of the average reward vector with a bandit for one reward.

    Parameters
    ----------
    objective: f, concave; fixed weights are ``FrankWolfe(Linear(w), base)``
    base: a bandit for the scalar reward <g, r>, such as LinUCB(); it must tolerate directions
        chosen adaptively
    smoothing: None is Identity for a smooth f, Moreau where every leaf has a proximal map, else
        Randomized (whose directions are averaged over time)
    memory: None is the paper (all-time averages; the theorems apply). A half-life in decisions
        makes z an exponential average, so that a running product can react.
    iterate: rho = the "observed" reward, or an "optimistic" estimate made at the decision

    Feedback may come late and in any order: t counts the rewards averaged in.

    Reference: Algorithm 2 and Theorems 2, 3, 11 and 12 of the paper; see docs/bandits.md.

    >>> from fairwolfe.bandits import LinUCB
    >>> problem = Problem.arms(2, {"clicks": (0, 1), "saves": (0, 1)})
    >>> policy = FrankWolfe(GiniWelfare(), LinUCB())
    >>> state = policy.init(problem)
    >>> decision = policy.act(state, np.eye(2), np.random.default_rng(0))
    >>> policy.update(state, decision, [1.0, 0.0]).average.tolist()
    [1.0, 0.0]
    """

    objective: Concave
    base: Any
    smoothing: Identity | Moreau | Randomized | None = None
    memory: float | None = None
    iterate: Literal["observed", "optimistic"] = "observed"

    def __post_init__(self) -> None:
        if not isinstance(self.objective, Concave):
            raise InvalidInput(f"the objective is {self.objective!r}; give one of fw.objectives")
        if not isinstance(self.base, Base) or isinstance(self.base, type):
            raise InvalidInput(f"the base is {self.base!r}; give a bandit, such as LinUCB()")
        if keeps(self.base, ScalarPolicy) and not keeps(self.base, Base):
            raise InvalidInput(
                f"{self.base!r} takes no direction: it is a policy for one reward; give "
                f"FrankWolfe(objective, Extended({self.base!r}))"
            )
        if self.memory is not None and not (np.isfinite(self.memory) and self.memory > 0.0):
            raise InvalidInput(f"memory is {self.memory!r}; give a half-life in decisions, or None")
        if self.iterate not in ("observed", "optimistic"):
            raise InvalidInput(f"iterate is {self.iterate!r}; give 'observed' or 'optimistic'")

    def init(self, problem: Problem, catalogue: Catalogue | None = None) -> State:
        """Bind everything to the problem (its items that are not retired) and allocate."""
        plan = self.plan(problem, catalogue)
        if plan.catalogue is not None and self.iterate == "optimistic":
            raise InvalidInput(
                "the optimistic iterate needs an estimate of exposures, and position weights are "
                "unknown; rankings go with iterate='observed'"
            )
        totals, earned, clocks, direction = np.zeros((4, problem.n_objectives))
        base = plan.base.init(problem) if catalogue is None else plan.base.init(problem, catalogue)
        live = Windows.start(plan.watch.problem.n_objectives)
        return State(plan, totals, earned, clocks, direction, np.zeros(1), base, live)

    def kernels(self, state: State) -> list[Kernel[..., Any]]:
        """What the other methods can call in a state, so that they are ready before the first.

        See `fairwolfe.kernels.compile.ready`. A base without kernels need not have the method.
        """
        plan = state.plan
        n = plan.watch.problem.n_objectives
        own: list[Kernel[..., Any]] = [settle, averages, average_in, turn_over]
        if isinstance(plan.smoothing, Randomized):
            own.append(sampled)
        if hasattr(plan.base, "kernels"):
            own.extend(plan.base.kernels(plan.problem))
        return [*plan.objective.kernels(n), *Leaves.kernels(plan.objective, n), *own]

    def plan(self, problem: Problem, catalogue: Catalogue | None = None) -> Plan:
        """Everything bound to a problem; to the items of the catalogue, where some are retired."""
        coordinates, seen = None, problem
        if catalogue is None and problem.n_items is not None:
            catalogue = Catalogue.of(problem)
        elif catalogue is not None and catalogue.ids.size < (problem.n_items or 0):
            seen = replace(problem, n_items=catalogue.ids.size)
            users = np.arange(problem.n_items or 0, problem.n_objectives)
            coordinates = np.concatenate([catalogue.ids, users])
        n = seen.n_objectives
        objective = self.objective.bind(seen)
        smoothing = self.smoothing or default_smoothing(objective, n)
        base = self.base
        if hasattr(base, "tuned"):
            base = base.tuned(objective.lipschitz(n))
        forget = 0.0 if self.memory is None else 1.0 - 0.5 ** (1.0 / self.memory)
        smoothed = smoothing.bind(seen, objective)
        watch = Watch(seen, objective, smoothed, base, forget)
        limit = row_limit(problem, getattr(base, "ridge_used", 0.0))
        commits = getattr(base, "commits", False)
        seen_by = (watch, catalogue, coordinates)
        return Plan(problem, objective, smoothed, base, forget, *seen_by, limit, commits)

    def direction(self, state: State, rng: np.random.Generator) -> Vector:
        """grad f_t(z); for Randomized smoothing, its running average."""
        if not getattr(state.plan.base, "needs_direction", True):
            return state.direction
        smoothing, age = state.plan.smoothing, state.plan.age(state.t)
        z = state.iterate
        try:
            g = smoothing.direction(state.plan.objective, z, age, rng)
        except InvalidInput:
            # Rewards beyond their ranges have taken z out of the domain of f: `bind` has seen to it
            # that the ranges are inside.
            seen = state.plan.watch.problem
            inside = np.clip(z, seen.low, seen.high)
            if np.array_equal(inside, z):
                raise
            g = smoothing.direction(state.plan.objective, inside, age, rng)
        if not smoothing.averaged:
            return g
        weight = smoothing.mix(age)
        return (1.0 - weight) * state.plan.seen(state.direction) + weight * g

    def act(self, state: State, context: Any, rng: np.random.Generator) -> Decision:
        """Choose for the direction of the moment; only reads the state."""
        return self._decide(state, context, rng, estimate=False)

    def foresee(
        self, state: State, context: Any, rng: np.random.Generator
    ) -> tuple[Decision, State]:
        """Choose, and go on as if the estimated reward had come; nothing is learnt.

        Decisions that are made before any feedback can come, one after the other on such states,
        spread over the rewards; all on one state they would repeat one direction.
        """
        decision = self._decide(state, context, rng, estimate=True)
        base, rho, followed, _ = decision.evidence
        ahead = state._replace(
            totals=state.totals.copy(),
            earned=state.earned.copy(),
            clocks=state.clocks.copy(),
            direction=state.direction if followed is None else followed,
            counters=state.counters.copy(),
        )
        average_in(
            base.estimate,
            base.estimate,
            state.plan.forget,
            0,
            0,
            ahead.totals,
            ahead.earned,
            ahead.clocks,
            ahead.counters,
        )
        if rho is None:  # nobody needs the estimate any more, and it may be long
            trail = decision.evidence._replace(base=base._replace(estimate=np.empty(0)))
            decision = replace(decision, evidence=trail)
        return decision, ahead

    def _decide(
        self, state: State, context: Any, rng: np.random.Generator, estimate: bool
    ) -> Decision:
        plan = state.plan
        g = self.direction(state, rng)
        optimistic = self.iterate == "optimistic"
        options: dict[str, Any] = {"estimate": True} if optimistic or estimate else {}
        look = plan.watch.look(state.live)
        aimed = g
        if plan.catalogue is None:
            given: Any = arms(context, plan.problem)
        else:
            given = candidates(context, plan.problem, plan.catalogue)
            aimed = plan.aligned(g, given)
            look = None if look is None else (plan.aligned(look[0], given), look[1])
        if look is not None:
            options["look"] = look
        choice = plan.base.act(state.base, given, aimed, rng, **options)
        follows = plan.smoothing.averaged or getattr(plan.base, "extended", False)
        trail = Trail(
            choice.evidence,
            choice.evidence.estimate if optimistic else None,
            plan.whole(g) if follows else None,
            None if choice.seen is None else (state.live.serial, choice.seen),
        )
        # Given a random direction, the base's probability is not that of the action.
        probability = None if plan.smoothing.averaged else choice.probability
        return Decision("", state.t, choice.action, probability, trail, choice.reasons)

    def update(self, state: State, decision: Decision, feedback: Any) -> State:
        """Average the reward vector in and let the base learn from it: both or neither."""
        plan = state.plan
        trail = decision.evidence  # a Trail, or a tuple read from bytes
        if not isinstance(trail, tuple) or len(trail) != len(Trail._fields):
            raise _foreign(decision)
        evidence, rho, followed, seen = trail
        choice = Choice(decision.action, decision.probability, evidence)
        first = stop = 0
        if plan.catalogue is None:
            reward = earned = finite_vector("the reward", feedback)
            if reward.size != plan.problem.n_objectives:
                raise InvalidInput(
                    f"the reward has {reward.size} numbers; give {plan.problem.n_objectives}, in "
                    f"the order {', '.join(plan.problem.rewards)}"
                )
        else:
            earned, reward = plan.base.reward(state.base, choice, feedback)
            stop = plan.problem.n_items or 0
            # A base that learns nothing keeps nothing to say how many items there were.
            first = min(plan.base.known(choice), stop) if plan.commits else stop
            older = isinstance(followed, np.ndarray) and followed.ndim == 1
            if older and followed.size < reward.size:
                # Items were added since: what is followed for them stays as it is.
                old = followed.size - len(plan.problem.rewards)
                followed = np.concatenate(
                    [followed[:old], state.direction[old:stop], followed[old:]]
                )
        if (rho is None) == (self.iterate == "optimistic") or (
            followed is None and getattr(plan.base, "extended", False)
        ):
            raise _foreign(decision)
        for vector in (rho, followed):
            if vector is not None and not _fits(vector, reward):
                raise _foreign(decision)
        tallied = plan.watch.tally(state.live, seen, earned, decision.id)
        g = state.direction if followed is None else followed
        settling: Settling = (
            reward,
            reward if rho is None else rho,
            plan.forget,
            first,
            stop,
            _NOTHING if followed is None else followed,
            state.direction,
            state.totals,
            state.earned,
            state.clocks,
            state.counters,
            _NOTHING if tallied is None else tallied,
            plan.seen(reward),
            -1.0 if tallied is None else float(decision.number),
            *state.live.now,
        )
        base = state.base
        if plan.commits:
            due = plan.base.commit(base, choice, g, earned, settling)
        else:
            if tallied is not None and not all_finite(tallied):
                raise _foreign(decision)
            base = plan.base.update(base, choice, g, earned)
            due = settle(*settling)
        if due:
            plan.watch.gather(state.live, state.iterate, plan.age(state.t))
        return state if base is state.base else state._replace(base=base)

    def repair(self, state: State) -> float:
        """Compute what is kept of the regression afresh, in place; how far off it was."""
        if not hasattr(state.plan.base, "repair"):
            raise InvalidInput(f"{state.plan.base!r} keeps nothing that could be computed afresh")
        return float(state.plan.base.repair(state.base))

    def drift(self, state: State) -> float:
        """How far the kept inverse was off when it was last computed afresh; 0 where none is."""
        oracle = getattr(state.base, "oracle", None)
        return oracle.drift if isinstance(oracle, LinearState) else 0.0

    def live(self, state: State, delta: float = 0.05, trusted: bool = True) -> Live:
        """How far from the best reachable value; see `Live` and docs/live.md."""
        return state.plan.watch.report(state.live, state.average, state.t, delta, trusted)

    def with_objective(self, objective: Concave) -> FrankWolfe:
        """The same policy for another f; a state carries over, since f is not part of it."""
        return replace(self, objective=objective)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB

        return (
            cls(GiniWelfare(), LinUCB()),
            cls(Linear((1.0, 0.5, 0.2)), SquareCB(gamma0=100.0), iterate="optimistic"),
            cls(GiniWelfare(), EpsilonGreedy(0.1), Randomized(n_samples=2), memory=50.0),
        )


def _fits(vector: Any, reward: Vector) -> bool:
    """Whether a vector from evidence, which may be forged, can be averaged in like a reward."""
    return (
        isinstance(vector, np.ndarray)
        and vector.dtype == np.float64
        and vector.shape == reward.shape
        and all_finite(vector)
    )


def _foreign(decision: Decision) -> InvalidInput:
    return InvalidInput(
        f"the evidence of decision {decision.id!r} is of another policy or problem, or damaged: "
        f"{short(decision.evidence, 80)}"
    )
