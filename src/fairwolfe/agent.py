"""`Agent`: a policy at work, the only thing in this library that changes."""

from __future__ import annotations

import json
import os
import re
import threading
import warnings
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from inspect import signature
from typing import Any

import numpy as np

from fairwolfe import agent_file
from fairwolfe.agent_file import arrays_of, filled
from fairwolfe.contexts import Arms, arms
from fairwolfe.errors import FairwolfeError, IncompatibleState, InvalidInput, did_you_mean
from fairwolfe.expressions import read
from fairwolfe.ledger import Ledger
from fairwolfe.limits import INSIDE, NOT_FINITE, largest_square_norm, place_in_box
from fairwolfe.objectives import Concave
from fairwolfe.problem import Problem
from fairwolfe.protocols import Decision, Policy, Vector
from fairwolfe.reduction.live import Live
from fairwolfe.streams import stream

__all__ = ["Agent"]

_ROUNDING = 1.0 + 1e-9  # features that were scaled to the norm exceed it by less than this


class Agent:
    """A policy with its state and its generator: ask it to `act`, tell it what came of it.

    Feedback may come late and in any order, once for each decision: what is refused changes
    nothing. Safe to use from several threads. Memory does not grow while feedback comes, and by
    one bit for each decision made after one that is never answered.

    Parameters
    ----------
    policy: such as ``FrankWolfe(objective, base)``
    problem: what is decided, and the rewards with their ranges
    seed: of the policy's draws, a whole number of at least 0

    >>> from fairwolfe import FrankWolfe
    >>> from fairwolfe.bandits import LinUCB
    >>> from fairwolfe.objectives import Minimum
    >>> problem = Problem.arms(2, {"clicks": (0, 1), "saves": (0, 1)})
    >>> agent = Agent(FrankWolfe(Minimum(), LinUCB()), problem)
    >>> first, second = agent.act([[1.0, 0.0], [0.0, 1.0]]), agent.act([[0.0, 1.0]])
    >>> agent.update(second, {"clicks": 1, "saves": 0})
    >>> agent.update(first, [0.0, 1.0])
    >>> agent.t, agent.average.tolist(), agent.value
    (2, [0.5, 0.5], 0.5)
    """

    __slots__ = (
        "_bound",
        "_high",
        "_ledger",
        "_lock",
        "_low",
        "_names",
        "_out_of_range",
        "_policy",
        "_problem",
        "_rng",
        "_state",
        "_warned",
    )

    def __init__(self, policy: Any, problem: Problem, seed: int = 0) -> None:
        if not isinstance(problem, Problem):
            raise InvalidInput(f"the problem is {problem!r}; make it with Problem.arms(...)")
        if not isinstance(policy, Policy):
            raise InvalidInput(f"the policy is {policy!r}; give one such as FrankWolfe(f, base)")
        if "direction" in signature(policy.act).parameters:
            raise InvalidInput(
                f"{policy!r} is a bandit for one reward; give FrankWolfe(objective, {policy!r})"
            )
        self._lock = threading.RLock()
        self._policy: Any = policy
        self._problem = problem
        self._bound = _bound(policy, problem)
        self._state: Any = policy.init(problem)
        self._rng = stream(seed, "policy")
        self._ledger = Ledger()
        self._low, self._high = problem.low, problem.high
        self._names = tuple(problem.rewards)
        self._out_of_range = 0
        self._warned: set[str] = set()

    # --- decisions ----------------------------------------------------------------------------

    def act(self, context: Any) -> Decision:
        """Decide. The context has a row of features for each arm; their number may change."""
        given = self._checked(context)
        with self._lock:
            return self._issued(self._policy.act(self._state, given, self._rng))

    def act_many(self, contexts: Iterable[Any], advance: bool = False) -> list[Decision]:
        """Decide for many contexts before any feedback can come.

        All decisions are made from the state of the moment. With `advance` each is made as if
        those before it had earned what is estimated of them, so that a batch spreads over the
        rewards instead of repeating one direction; the agent itself moves with feedback only.
        (Policies whose choice does not depend on the averages have nothing to advance.)
        """
        given = []
        for context in contexts:
            given.append(self._checked(context))
        decided = []
        with self._lock:
            policy, state, rng = self._policy, self._state, self._rng
            foresee = getattr(policy, "foresee", None) if advance else None
            for one in given:
                if foresee is None:
                    decision = policy.act(state, one, rng)
                else:
                    decision, state = foresee(state, one, rng)
                decided.append(decision)
            return [self._issued(decision) for decision in decided]

    def _checked(self, context: Any) -> Arms:
        given = arms(context, self._problem)
        if "features" not in self._warned:
            limit = self._problem.feature_norm * _ROUNDING
            square = largest_square_norm(given.features)
            if square > limit * limit:
                self._warn_once(
                    "features",
                    f"features of norm {square**0.5:.4g} were given; the problem says at most "
                    f"{self._problem.feature_norm:g}, and confidence widths rest on it: scale the "
                    "features, or give Problem a larger feature_norm (said once)",
                )
        return given

    def _issued(self, decision: Decision) -> Decision:
        # The decision is fresh and nobody else's yet: completing it is no change of it.
        object.__setattr__(decision, "id", self._ledger.issue())
        object.__setattr__(decision, "t", self._ledger.answered)
        return decision

    # --- feedback -----------------------------------------------------------------------------

    def update(self, decision: Decision, reward: Any) -> None:
        """Learn what a decision earned: a vector in the problem's order, or a mapping by name.

        Rewards outside their declared range are learnt as they are, counted and warned of once.
        """
        vector, strange = self._vector(reward)
        with self._lock:
            number = self._ledger.number(decision)
            if strange:
                self._warn_of_range(vector)
            self._apply(number, decision, vector, strange)

    def update_many(self, decisions: Iterable[Decision], rewards: Iterable[Any]) -> None:
        """`update` for each pair in turn; if one of them is refused, none is applied."""
        made, vectors = list(decisions), [self._vector(reward) for reward in rewards]
        if len(made) != len(vectors):
            raise InvalidInput(
                f"{len(made)} decisions have {len(vectors)} rewards; give one for each"
            )
        with self._lock:
            numbers = [self._ledger.number(decision) for decision in made]
            if len(set(numbers)) < len(numbers):
                again = next(
                    d.id for n, d in zip(numbers, made, strict=True) if numbers.count(n) > 1
                )
                raise InvalidInput(f"decision {again!r} is given twice; its feedback counts once")
            for vector, strange in vectors:
                if strange:
                    self._warn_of_range(vector)
            for number, decision, (vector, strange) in zip(numbers, made, vectors, strict=True):
                self._apply(number, decision, vector, strange)

    def _apply(self, number: int, decision: Decision, reward: Vector, strange: bool) -> None:
        self._state = self._policy.update(self._state, decision, reward)
        self._ledger.mark(number)
        self._out_of_range += strange

    def _vector(self, reward: Any) -> tuple[Vector, bool]:
        """A reward as a vector that fits the problem, and whether it is out of range."""
        n = self._low.size
        given = self._by_name(reward) if isinstance(reward, Mapping) else reward
        try:
            vector = np.asarray(given)
        except ValueError as error:
            raise InvalidInput(f"the reward is not a vector of numbers: {error}") from error
        if vector.dtype.kind not in "fiub":
            raise InvalidInput(f"the reward is {reward!r:.80}; give numbers, not text or objects")
        if vector.shape != (n,):
            raise InvalidInput(
                f"the reward has shape {vector.shape}; give {n} numbers, in the order "
                f"{self._order()}, or a mapping by name"
            )
        if vector.dtype != np.float64 or not vector.flags.carray:
            vector = vector.astype(np.float64)
        place = place_in_box(vector, self._low, self._high)
        if place == NOT_FINITE:
            worst = int(np.flatnonzero(~np.isfinite(vector))[0])
            raise InvalidInput(
                f"number {worst} of the reward is {vector[worst]}; give finite numbers, in the "
                f"order {self._order()}"
            )
        return vector, place != INSIDE

    def _by_name(self, reward: Mapping[str, Any]) -> list[Any]:
        names = self._names
        if self._problem.n_items:
            raise InvalidInput(
                "the rewards of a ranking are the exposures of its items too; give the vector"
            )
        if len(reward) != len(names) or any(name not in reward for name in names):
            for name in reward:
                if name not in names:
                    raise InvalidInput(f"there is no reward {name!r}; {did_you_mean(name, names)}")
            missing = ", ".join(name for name in names if name not in reward)
            raise InvalidInput(
                f"the reward lacks {missing}; give all of {self._order()}, 0 where there was none"
            )
        return [reward[name] for name in names]

    def _order(self) -> str:
        items = f"exposures of {self._problem.n_items} items, " if self._problem.n_items else ""
        return items + ", ".join(self._names)

    def _warn_of_range(self, reward: Vector) -> None:
        """Called before anything is written, since a warning may have been made an error."""
        first = int(np.flatnonzero((reward < self._low) | (reward > self._high))[0])
        place = first - (self._problem.n_items or 0)
        name = repr(self._names[place]) if place >= 0 else f"of item {first}"
        self._warn_once(
            "rewards",
            f"the reward {name} is {reward[first]:g}; the problem says {self._low[first]:g} to "
            f"{self._high[first]:g}, and exploration rests on it: it is learnt as it is, and "
            "agent.out_of_range counts such rewards (said once)",
        )

    def _warn_once(self, about: str, text: str) -> None:
        with self._lock:
            if about in self._warned:
                return
            self._warned.add(about)
        warnings.warn(text, stacklevel=4)  # of whoever called act or update

    # --- what is known ------------------------------------------------------------------------

    @property
    def policy(self) -> Any:
        """The policy, with the objective of the moment."""
        return self._policy

    @property
    def problem(self) -> Problem:
        """What is decided and which rewards come back."""
        return self._problem

    @property
    def objective(self) -> Concave:
        """f, as it was given."""
        return self._policy.objective  # type: ignore[no-any-return]

    @property
    def t(self) -> int:
        """How many decisions have had their feedback."""
        return self._ledger.answered

    @property
    def open(self) -> int:
        """How many decisions wait for their feedback."""
        return self._ledger.open

    @property
    def out_of_range(self) -> int:
        """How many reward vectors had a number outside its declared range."""
        return self._out_of_range

    @property
    def average(self) -> Vector:
        """The average of the rewards that came back (0 before the first), a copy."""
        with self._lock:
            return np.array(self._state.average)

    @property
    def value(self) -> float:
        """f of `average`: what the agent maximises, as far as it has been seen."""
        with self._lock:
            return self._bound.value(self._state.average)

    def live(self, delta: float = 0.05) -> Live:
        """How far `value` is from the best that can be reached: `print` it, or see `Live`."""
        if not hasattr(self._policy, "live"):
            raise InvalidInput(f"{self._policy!r} keeps no live numbers; FrankWolfe does")
        with self._lock:
            live: Live = self._policy.live(self._state, delta, trusted=self._out_of_range == 0)
            return live

    def __repr__(self) -> str:
        return f"<Agent {self._policy!r}, t = {self.t}, {self.open} open>"

    # --- changing f, saving, loading ----------------------------------------------------------

    def replace_objective(self, objective: Concave) -> None:
        """Maximise another f from now on; averages, estimates and open decisions stay."""
        with self._lock:
            if not hasattr(self._policy, "with_objective"):
                raise InvalidInput(
                    f"the objective of {self._policy!r} cannot be replaced: it has no "
                    "with_objective; make another agent"
                )
            policy = self._policy.with_objective(objective)
            bound = _bound(policy, self._problem)
            state = filled(policy.init(self._problem), dict(arrays_of(self._state)))
            if hasattr(policy, "live"):
                state.live.restart()  # its certificates are of the old f
            self._policy, self._bound, self._state = policy, bound, state

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a file, whole or not at all; `Agent.load` goes on from there."""
        with self._lock:
            ledger, bits = self._ledger.saved()
            arrays = {name: array.copy() for name, array in arrays_of(self._state)}
            text = {
                "format": agent_file.FORMAT,
                "version": agent_file.VERSION,
                "library": version("fairwolfe"),
                "policy": repr(self._policy),
                "problem": json.loads(self._problem.to_json()),
                "ledger": ledger,
                "out_of_range": self._out_of_range,
                "warned": sorted(self._warned),
                "generator": self._rng.bit_generator.state,
            }
        agent_file.write(path, text, arrays | {"answered": bits})

    @classmethod
    def load(cls, path: str | os.PathLike[str], policy: Any = None) -> Agent:
        """The agent that `save` wrote: the same decisions follow as without the pause.

        The policy is rebuilt from its text. One that holds functions, as Custom does, cannot be:
        pass the same one. Decisions made before the save can be answered (`Decision.from_bytes`
        brings them over); those made after it are strangers here.
        """
        text, arrays = agent_file.read(path)
        try:
            problem = Problem.from_json(json.dumps(text["problem"]))
            agent = cls(_policy(text["policy"], policy, path), problem)
            agent._ledger = Ledger.loaded(text["ledger"], arrays.pop("answered"))
            agent._out_of_range = int(text["out_of_range"])
            agent._warned = set(text["warned"])
            agent._rng.bit_generator.state = text["generator"]
            agent._state = filled(agent._state, arrays)
        except (KeyError, TypeError, ValueError) as error:
            raise IncompatibleState(f"{path} does not hold what an agent needs: {error}") from error
        return agent


def _bound(policy: Any, problem: Problem) -> Concave:
    objective = getattr(policy, "objective", None)
    if not isinstance(objective, Concave):
        raise InvalidInput(
            f"the objective of {policy!r} is {objective!r}; give one of fw.objectives"
        )
    return objective.bind(problem)


def _policy(text: str, given: Any, path: object) -> Any:
    """The policy of a file: rebuilt, or the given one if it is the same."""
    try:
        rebuilt = read(text)
    except FairwolfeError as error:
        if given is None:
            raise IncompatibleState(
                f"the policy of {path} cannot be rebuilt from its text ({error}); pass it: "
                "Agent.load(path, policy=...)"
            ) from error
        rebuilt = None
    if given is None or given == rebuilt or _plain(repr(given)) == _plain(text):
        return rebuilt if given is None else given
    raise IncompatibleState(
        f"{path} holds {text}, not {given!r}; load it with the policy that it was saved with (a "
        "new objective can be given afterwards, by replace_objective)"
    )


def _plain(text: str) -> str:
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)  # where a function stands in one process
