"""`PolicyRunning`: any object with the contract Policy, as an agent runs it."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple, Self

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.brief import short
from fairwolfe.core.decision import Batch, Decision, Learnt
from fairwolfe.core.feedback import row_of
from fairwolfe.core.interrupts import uninterrupted
from fairwolfe.core.kinds import Kind, Stack, kind_of
from fairwolfe.core.problem import Problem
from fairwolfe.core.protocols import newest
from fairwolfe.core.restoring import require, require_counts
from fairwolfe.core.rows import merge
from fairwolfe.core.streams import Numbered
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.limits import row_limit

__all__ = ["PolicyRunning", "PolicyState", "runs_itself"]


def runs_itself(policy: Any) -> bool:
    """Whether `policy.running(kind, state)` does what its `act` and `update` do: not where a
    subclass has overridden one of these.
    """
    return newest(policy, "running", "act") and newest(policy, "running", "update")


class PolicyState(NamedTuple):
    """The state of the policy, and what the agent counts itself."""

    policy: Any
    earned: Vector  # (n,) sums of rewards
    counts: Vector  # (3,) rewards, open decisions, decisions ever open

    def restored(self) -> None:
        """After arrays have been read from a file: raise for impossible counts."""
        require_counts("counts", self.counts)
        right = self.counts[1] <= self.counts[2]
        require("counts", self.counts[1:2], right, "no more decisions are open than were made")


class PolicyRunning:
    """A policy in a problem, with the methods of `Running`.

    Besides `init`, `act` and `update` a policy may have `kind(state)`, which says that it takes
    checked contexts and answers; `expect(state, decision)` and `withdraw(state, decision)`, which
    count open decisions; `counts(state)`, `repair(state)`, `drift(state)`, `row_limit(state)`,
    `learnt(state)`; `with_objective(f)` and `retargeted(state, problem)`.
    """

    atomic = False

    def __init__(self, policy: Any, kind: Kind, state: PolicyState | None = None) -> None:
        self.policy = policy
        problem = kind.problem
        if state is None:
            earned, counts = np.zeros(problem.n_objectives), np.zeros(3)
            state = PolicyState(policy.init(problem), earned, counts)
        self.state = state
        self.reads = hasattr(policy, "kind")
        self.kind: Kind = policy.kind(state.policy) if self.reads else kind

    @staticmethod
    def of(policy: Any, problem: Problem) -> Any:
        """The policy in a problem: it runs itself, or in a `PolicyRunning`."""
        if runs_itself(policy):
            return policy.init(problem)
        return PolicyRunning(policy, kind_of(problem))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)(self.policy, self.kind, self.copied())

    def copied(self) -> PolicyState:
        """The state in other memory."""
        policy, earned, counts = self.state
        return PolicyState(deepcopy(policy), earned.copy(), counts.copy())

    def restore(self, state: PolicyState) -> None:
        """Become a copy of the state."""
        self.state = state

    def opening(self, work: Callable[..., None], *given: Any) -> None:
        """Do work that opens or withdraws decisions, whole or not at all."""
        uninterrupted(lambda: work(*given))

    def survey(self) -> None:
        """Nothing is needed: there are no live numbers."""

    @property
    def t(self) -> int:
        """The number of rewards learnt from."""
        return int(self.state.counts.item(0))

    @property
    def open(self) -> int:
        """The number of decisions that are counted as open."""
        return int(self.state.counts.item(1))

    @property
    def issued(self) -> int:
        """The number of decisions that were ever counted as open."""
        return int(self.state.counts.item(2))

    @property
    def average(self) -> Vector:
        """The average observed reward."""
        return self.kind.sees(self.state.earned / max(self.t, 1))

    @property
    def limit(self) -> float:
        """The largest norm of a row of features that can be learnt from."""
        if hasattr(self.policy, "row_limit"):
            return float(self.policy.row_limit(self.state.policy))
        return row_limit(self.kind.problem, 0.0)

    @property
    def can_repair(self) -> bool:
        """Whether the policy keeps anything that can be recomputed."""
        return hasattr(self.policy, "repair")

    def repair(self) -> float:
        """Recompute what is kept, in place; how large its error was."""
        if not self.can_repair:
            raise InvalidInput(f"{self.policy!r} keeps nothing that could be recomputed")
        return float(self.policy.repair(self.state.policy))

    def drift(self) -> float:
        """How far off it was the last time; 0 where nothing is kept."""
        if not hasattr(self.policy, "drift"):
            return 0.0
        return float(self.policy.drift(self.state.policy))

    def learnt(self) -> Learnt:
        """What was learnt of the rewards."""
        if not hasattr(self.policy, "learnt"):
            raise InvalidInput(f"{self.policy!r:.80} keeps no estimate of each reward")
        learnt: Learnt = self.policy.learnt(self.state.policy)
        return learnt

    def counts(self) -> dict[str, int]:
        """What the policy counts itself."""
        counts = getattr(self.policy, "counts", None)
        return {} if counts is None else dict(counts(self.state.policy))

    def live(self, delta: float = 0.05, trusted: bool = True) -> Any:
        """Raise: only `FrankWolfe` has live numbers."""
        raise InvalidInput(f"{self.policy!r} keeps no live numbers; FrankWolfe does")

    def constraints(self, delta: float = 0.05, trusted: bool = True) -> tuple[Any, ...]:
        """None."""
        return ()

    # --- rows ---------------------------------------------------------------------------------

    def decide(
        self,
        given: Any,
        rng: Any,
        number: int = -1,
        **how: Any,
    ) -> Any:
        """The row of a decision; see `Running.decide`."""
        drawn = rng.generator() if type(rng) is Numbered else rng
        decision = self.policy.act(self.state.policy, given, drawn)
        if not isinstance(decision, Decision):
            raise InvalidInput(
                f"{self.policy!r} returned {decision!r:.80} from act; return fw.Decision('', t, "
                "action, probability, evidence)"
            )
        if self.reads and not self.kind.allows(given, decision.action):
            raise InvalidInput(
                f"{self.policy!r:.80} returned {short(decision, 80)} from act; return "
                f"fw.Decision('', t, action, probability, evidence): {self.kind.allowed}"
            )
        rows: Any = decision.batch.rows
        head = rows.head
        head["number"], head["t"] = number, self.t
        if self.reads and hasattr(rows, "stored"):
            action, evidence = rows.stored[0]
            whole = self.kind.numbered(given, action)
            rows.stored[0] = whole, evidence
            head["arm"] = whole if isinstance(whole, int) else head["arm"]
        return rows

    def decide_stack(self, stack: Stack, rng: Any, number: int = -1, **how: Any) -> Any:
        """Decisions for contexts that were read together, all from the current state."""
        rows = []
        for i in range(stack.rows):
            drawn = Numbered(rng.key, rng.number + i) if type(rng) is Numbered else rng
            given = self.kind.single(stack, i) if self.reads else stack.given[i]
            at = number + i if number >= 0 else number
            rows.append(self.decide(given, drawn, at))
        whole = merge(rows)
        if len(whole) > 1:
            raise InvalidInput(
                f"{self.policy!r:.80} returned decisions of different forms; ask it for one "
                "context at a time"
            )
        return whole[0]

    def open_rows(self, rows: Any) -> None:
        """Count decisions as open, in their order."""
        expect = getattr(self.policy, "expect", None)
        for i in range(len(rows.head)):
            if expect is not None:
                inner = expect(self.state.policy, self._decision(rows, i))
                self.state = self.state._replace(policy=inner)
        self.state.counts[1:] += len(rows.head)

    def withdraw(self, rows: Any) -> None:
        """Decisions that get no answer are not open any more."""
        withdraw = getattr(self.policy, "withdraw", None)
        for i in range(len(rows.head)):
            if withdraw is not None:
                inner = withdraw(self.state.policy, self._decision(rows, i))
                self.state = self.state._replace(policy=inner)
        self._closed(len(rows.head))

    def _closed(self, n: int) -> None:
        self.state.counts[1] = max(self.state.counts[1] - n, 0.0)

    def learn(self, rows: Any, observation: Any) -> None:
        """Learn what rows earned, in their order."""
        for i in range(len(rows.head)):
            decision = self._decision(rows, i)
            answer = self.kind.observe(decision.action, row_of(observation, i))
            given = answer if self.reads else answer.observation
            inner = self.policy.update(self.state.policy, decision, given)
            self.state = self.state._replace(policy=inner)
            np.add(self.state.earned, answer.reward, out=self.state.earned)
            self.state.counts[0] += 1.0
            self._closed(1)

    def study(self, rows: Any, observation: Any) -> None:
        """Raise: the policy learns from its own decisions."""
        raise InvalidInput(f"{self.policy!r:.80} cannot learn from decisions of others")

    def _decision(self, rows: Any, i: int) -> Decision:
        return Decision.of(Batch(rows.part(slice(i, i + 1))), 0)

    # --- changes ------------------------------------------------------------------------------

    def with_objective(self, policy: Any) -> Self:
        """The same state for a policy with another f."""
        inner = self.state.policy
        if hasattr(policy, "retargeted"):
            inner = policy.retargeted(inner, self.kind.problem)
        return type(self)(policy, self.kind, self.state._replace(policy=inner))

    def keep_items(self, features: Any) -> Self:
        """Raise: the policy has no items."""
        raise InvalidInput(
            f"{self.policy!r} has no items; use a policy such as FWLinUCBRank(objective)"
        )

    def add_items(self, policy: Any, features: Any, instead: Any = None) -> Self:
        """Raise: the policy has no items."""
        return self.keep_items(features)

    def retire_items(self, policy: Any, ids: Any) -> Self:
        """Raise: the policy has no items."""
        return self.keep_items(ids)
