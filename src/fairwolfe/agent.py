"""`Agent`: a policy at work, the only thing in this library that changes."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import warnings
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from inspect import signature
from typing import Any

import numpy as np

from fairwolfe import agent_file
from fairwolfe.agent_file import arrays_of
from fairwolfe.agent_items import ItemsOfAgent, bound_objective
from fairwolfe.answers import Answers
from fairwolfe.candidates import Candidates
from fairwolfe.contexts import Arms, arms, usual
from fairwolfe.errors import InvalidInput
from fairwolfe.ledger import Ledger
from fairwolfe.limits import largest_square_norm, largest_square_product
from fairwolfe.objectives import Concave
from fairwolfe.problem import Problem, whole_number
from fairwolfe.protocols import Choice, Decision, Policy, Vector
from fairwolfe.ranking import Ranker
from fairwolfe.ranking.policies import alone
from fairwolfe.reduction.items import empty_state, keep_items
from fairwolfe.reduction.live import Live
from fairwolfe.streams import stream

__all__ = ["Agent"]

_ROUNDING = 1.0 + 1e-9  # features that were scaled to the norm exceed it by less than this


class Agent(ItemsOfAgent):
    """A policy with its state and its generator: ask it to `act`, tell it what came of it.

    Feedback may come late and in any order, once for each decision: what is refused changes
    nothing. Safe to use from several threads. Memory does not grow while feedback comes, and by
    one bit for each decision made after one that is never answered.

    Parameters
    ----------
    policy: such as ``FrankWolfe(objective, base)``
    problem: what is decided, and the rewards with their ranges
    seed: of the policy's draws, a whole number of at least 0
    items: for rankings, the features of the items by id, (n_items, features of an item): contexts
        then need the user alone

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

    __slots__ = ()

    def __init__(self, policy: Any, problem: Problem, seed: int = 0, items: Any = None) -> None:
        if not isinstance(problem, Problem):
            raise InvalidInput(f"the problem is {problem!r}; make it with Problem.arms(...)")
        if isinstance(policy, Ranker):
            policy = alone(policy)
        if not isinstance(policy, Policy):
            raise InvalidInput(f"the policy is {policy!r}; give one such as FrankWolfe(f, base)")
        if "direction" in signature(policy.act).parameters:
            raise InvalidInput(
                f"{policy!r} is a bandit for one reward; give FrankWolfe(objective, {policy!r})"
            )
        self._rng = stream(seed, "policy")
        made: Any = policy
        state = made.init(problem)
        if items is not None:
            state = keep_items(getattr(made, "shell", made), state, items)
        self._start(made, problem, state)

    def _start(self, policy: Any, problem: Problem, state: Any) -> None:
        self._lock = threading.RLock()
        self._policy = policy
        self._problem = problem
        self._state = state
        self._bound = bound_objective(policy, problem, state)
        self._ledger = Ledger()
        self._answers = Answers(problem)
        self._out_of_range = 0
        self._warned = set()

    # --- decisions ----------------------------------------------------------------------------

    def act(
        self,
        context: Any,
        candidates: Iterable[int] | None = None,
        blocked: Iterable[int] = (),
        pinned: Mapping[int, int] | None = None,
    ) -> Decision:
        """Decide.

        Arms: the context has a row of features for each arm; their number may change. Rankings: a
        `Bilinear(user, items)` or an array with a row for each of `items`; the user alone where
        the agent keeps the items' features. The action holds ids, best slot first.

        Parameters
        ----------
        candidates, blocked: ids of the only items that may be shown, and of those that may not
        pinned: slot (0 is the best) -> id of the item that it must show
        """
        if self._problem.n_items is None:
            if candidates is not None or pinned or blocked != ():
                raise InvalidInput(
                    "candidates, blocked and pinned are for rankings; leave them out"
                )
            given: Any = self._checked(context)
            with self._lock:
                return self._issued(self._policy.act(self._state, given, self._rng))
        with self._lock:
            given = self._ranked(context, candidates, blocked, pinned)
            self._warn_of_items(given)
            return self._issued(self._policy.act(self._state, given, self._rng))

    def act_many(self, contexts: Iterable[Any], advance: bool = False) -> list[Decision]:
        """Decide for many contexts before any feedback can come.

        All decisions are made from the state of the moment. With `advance` each is made as if
        those before it had earned what is estimated of them, so that a batch spreads over the
        rewards instead of repeating one direction; the agent itself moves with feedback only.
        (Policies whose choice does not depend on the averages have nothing to advance.)
        """
        decided = []
        with self._lock:
            checked = self._checked if self._problem.n_items is None else self._ranked
            given: list[Any] = [checked(context) for context in contexts]
            for one in given if self._problem.n_items is not None else ():
                self._warn_of_items(one)
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
        square = largest_square_norm(context) if usual(context, self._problem) else math.nan
        if math.isfinite(square):  # and so are the features
            given = Arms(context, len(context), False)
        else:
            given = arms(context, self._problem)
            square = largest_square_norm(given.features)
        self._warn_of_norm(square**0.5)
        return given

    def _warn_of_items(self, given: Candidates) -> None:
        if "features" not in self._warned:
            self._warn_of_norm(largest_square_product(given.user, given.items) ** 0.5)

    def _warn_of_norm(self, norm: float) -> None:
        if norm > self._problem.feature_norm * _ROUNDING and "features" not in self._warned:
            self._warn_once(
                "features",
                f"features of norm {norm:.4g} were given; the problem says at most "
                f"{self._problem.feature_norm:g}, and confidence widths rest on it: scale the "
                "features, or give Problem a larger feature_norm (said once)",
            )

    def _issued(self, decision: Decision) -> Decision:
        # The decision is fresh and nobody else's yet: completing it is no change of it.
        object.__setattr__(decision, "id", self._ledger.issue())
        object.__setattr__(decision, "t", self._ledger.answered)
        return decision

    # --- feedback -----------------------------------------------------------------------------

    def update(
        self,
        decision: Decision,
        reward: Any = None,
        *,
        exposed: Iterable[int] | None = None,
        clicked: Iterable[int] | None = None,
    ) -> None:
        """Learn what a decision earned.

        Arms: a vector in the problem's order, or a mapping by name. Rankings: ids of the shown
        items that were looked at and of those clicked, and other rewards by name and item:
        ``update(decision, {"minutes": {12: 3.5}}, exposed=[12, 7], clicked=[12])``; or a
        `Shown`. Where the policy's `exposure` is not "observed", `exposed` is not needed.

        Rewards outside their declared range are learnt as they are, counted and warned of once.
        """
        answer, strange = self._answer(decision, reward, exposed, clicked)
        with self._lock:
            number = self._ledger.number(decision)
            if strange:
                self._warn_of_range(answer)
            self._apply(number, decision, answer, strange)

    def update_many(self, decisions: Iterable[Decision], rewards: Iterable[Any]) -> None:
        """`update` for each pair in turn; if one of them is refused, none is applied.

        The reward of a ranking is a `Shown`, or a mapping that may hold "exposed" and "clicked".
        """
        made, given = list(decisions), list(rewards)
        if len(made) != len(given):
            raise InvalidInput(
                f"{len(made)} decisions have {len(given)} rewards; give one for each"
            )
        answers = [self._answer(d, r) for d, r in zip(made, given, strict=True)]
        with self._lock:
            numbers = [self._ledger.number(decision) for decision in made]
            if len(set(numbers)) < len(numbers):
                again = next(
                    d.id for n, d in zip(numbers, made, strict=True) if numbers.count(n) > 1
                )
                raise InvalidInput(f"decision {again!r} is given twice; its feedback counts once")
            if self._problem.n_items is not None:
                for decision, (answer, _) in zip(made, answers, strict=True):
                    choice = Choice(decision.action, None, None)
                    self._state.plan.base.reward(self._state.base, choice, answer)
            for answer, strange in answers:
                if strange:
                    self._warn_of_range(answer)
            for number, decision, (answer, strange) in zip(numbers, made, answers, strict=True):
                self._apply(number, decision, answer, strange)

    def _apply(self, number: int, decision: Decision, answer: Any, strange: bool) -> None:
        self._state = self._policy.update(self._state, decision, answer)
        self._ledger.mark(number)
        self._out_of_range += strange

    def _answer(
        self, decision: Decision, reward: Any, exposed: Any = None, clicked: Any = None
    ) -> tuple[Any, bool]:
        """What the policy learns from, and whether a reward is out of range."""
        if self._problem.n_items is None:
            if exposed is not None or clicked is not None:
                raise InvalidInput("exposed and clicked are for rankings; give the reward vector")
            return self._answers.vector(reward)
        self._ledger.number(decision)
        needed = self._state.plan.base.exposure == "observed"
        return self._answers.shown(decision.action, reward, exposed, clicked, needed)

    def _warn_of_range(self, answer: Any) -> None:
        """Called before anything is written, since a warning may have been made an error."""
        self._warn_once(
            "rewards",
            f"{self._answers.stranger(answer)}, and exploration rests on it: it is learnt as it "
            "is, and agent.out_of_range counts such rewards (said once)",
        )

    def _warn_once(self, about: str, text: str) -> None:
        with self._lock:
            if about in self._warned:
                return
            self._warned.add(about)
        warnings.warn(text, stacklevel=_outside())  # of whoever called act or update

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
        if self._bound is None:
            raise InvalidInput(f"{self._policy!r} has no objective")
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
            if self._bound is None:
                raise InvalidInput(f"{self._policy!r} has no objective, so there is no value")
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
            policy = self._with_objective(objective)
            state = _refilled(policy, self._problem, dict(arrays_of(self._state)))
            if hasattr(policy, "live"):
                state.live.restart()  # its certificates are of the old f
            self._bound = bound_objective(policy, self._problem, state)
            self._policy, self._state = policy, state

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
        with agent_file.refusals(path):
            problem = Problem.from_json(json.dumps(text["problem"]))
            rebuilt = agent_file.policy_of(text["policy"], policy, path)
            bits = arrays.pop("answered")
            agent = cls.__new__(cls)
            agent._rng = stream(0, "policy")
            agent._start(rebuilt, problem, _refilled(rebuilt, problem, arrays))
            agent._ledger = Ledger.loaded(text["ledger"], bits)
            agent._out_of_range = whole_number("out_of_range", text["out_of_range"], 0)
            agent._warned = agent_file.words("warned", text["warned"])
            agent_file.set_generator(agent._rng, text["generator"])
        return agent


def _outside() -> int:
    """How far up the stack of our caller this package is left."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("fairwolfe."):
        level, frame = level + 1, frame.f_back
    return level


def _refilled(policy: Any, problem: Problem, arrays: dict[str, Any]) -> Any:
    """A state of the policy that holds these arrays."""

    def make() -> Any:
        if problem.n_items is None:
            return policy.init(problem)
        retired, features = arrays["state.base.retired"], arrays["state.base.features"]
        return empty_state(getattr(policy, "shell", policy), problem, retired, features)

    return agent_file.rebuilt(make, problem, arrays)
