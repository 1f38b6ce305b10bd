"""`simulate`: a policy in an environment, compiled where possible, else plain."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from fairwolfe._compile import Kernel
from fairwolfe.bandits.choosing import LinearBandit
from fairwolfe.environments.rankings import RankingWorld
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Concave
from fairwolfe.protocols import Choice, Environment, IntVector, Policy, Vector
from fairwolfe.ranking import Ranker
from fairwolfe.ranking.policies import alone
from fairwolfe.reduction import FrankWolfe
from fairwolfe.simulation.compiled import CompiledRun
from fairwolfe.simulation.compiled_rankings import CompiledRankings
from fairwolfe.simulation.streams import Streams
from fairwolfe.simulation.trace import Trace, checkpoint_grid
from fairwolfe.streams import stream

__all__ = ["simulate"]

Progress = Callable[[int], None]


def simulate(
    policy: Any,
    environment: Any,
    horizon: int,
    seed: int = 0,
    objective: Concave | None = None,
    checkpoints: Any = None,
    *,
    compiled: bool | None = None,
    record_actions: bool = False,
    scalar_regret: bool = True,
    progress: Progress | None = None,
) -> Trace:
    """Run a policy for `horizon` rounds in the world of a seed.

    World, contexts, feedback noise and policy draw from streams of their own: two policies with
    one seed meet the same world, users and noise. Ctrl-C returns what was done (`complete` is
    then False).

    Parameters
    ----------
    objective: what is measured; None is the policy's own
    checkpoints: times to look at; None is about 20 a decade
    compiled: None is the compiled loop where every part has one, with a warning that names the
        part where not; False is the plain loop; True raises where it cannot be compiled
    record_actions: keep the actions in the trace
    scalar_regret: False saves the best ranking for each direction, some of the time of a run
        with thousands of items; the scalar regrets of a ranking are then NaN
    progress: called with the number of rounds played since its last call

    >>> from fairwolfe.bandits import LinUCB
    >>> from fairwolfe.environments import Mehrotra
    >>> from fairwolfe.reduction import FrankWolfe
    >>> world = Mehrotra(10, 3, 4)
    >>> trace = simulate(FrankWolfe(world.objective(), LinUCB(ridge=0.1)), world, 100)
    >>> trace.compiled, int(trace.t[-1])
    (True, 100)
    """
    times = checkpoint_grid(horizon, checkpoints)
    if not isinstance(environment, Environment):
        raise InvalidInput(f"the environment is {environment!r}; see fw.environments")
    if not isinstance(policy, Policy):
        raise InvalidInput(
            f"the policy is {policy!r}; give one such as FrankWolfe(objective, base)"
        )
    measured = getattr(policy, "objective", None) if objective is None else objective
    if measured is None:
        raise InvalidInput(
            f"{type(policy).__name__} has no objective of its own; pass objective= to say what is "
            "measured"
        )
    if isinstance(policy, Ranker):
        policy = alone(policy)
    part = why_not(policy, environment)
    if compiled and part:
        raise InvalidInput(f"{part} has no compiled form; leave out compiled=True")
    fast = part is None if compiled is None else compiled
    if part and compiled is None and not getattr(policy, "reference", False):
        warnings.warn(f"the plain loop is used, because {part} has no compiled form", stacklevel=2)
    world = environment.init(stream(seed, "world"))
    run: Any
    player: Any = policy
    if not fast:
        run = _PlainRun(policy, environment, world, Streams.of(seed), scalar_regret)
    elif isinstance(environment, RankingWorld):
        shell = getattr(player, "shell", player)
        run = CompiledRankings(shell, environment, world, Streams.of(seed), scalar_regret)
    else:
        run = CompiledRun(player, environment, world, Streams.of(seed))
    records: list[tuple[int, Vector, Vector, Vector]] = []
    last: tuple[int, Vector, Vector, Vector] | None = None
    actions: list[IntVector] = []
    began, done, complete = time.perf_counter(), 0, True
    try:
        for t in times.tolist():
            while done < t:
                taken = run.play(t - done)
                done += len(taken)
                last = (done, run.mean_sum / done, run.reward_sum / done, run.scalar.copy())
                if done == t:
                    records.append(last)
                if record_actions:
                    actions.append(taken)
                if progress is not None:
                    progress(len(taken))
    except KeyboardInterrupt:
        complete = False
        if last is not None and (not records or last[0] > records[-1][0]):
            records.append(last)
    scalars = np.array([r[3] for r in records]).reshape(-1, 3)
    if not scalar_regret:
        scalars[:] = np.nan
    problem = environment.problem()
    shape = (-1, problem.n_objectives)
    return Trace(
        t=np.array([r[0] for r in records], dtype=np.int64),
        average=np.array([r[1] for r in records]).reshape(shape),
        average_observed=np.array([r[2] for r in records]).reshape(shape),
        scalar_regret=scalars[:, 0] - scalars[:, 2],
        scalar_pseudo_regret=scalars[:, 0] - scalars[:, 1],
        objective=measured.bind(problem),
        problem=problem,
        seed=seed,
        seconds=time.perf_counter() - began,
        compiled=fast,
        complete=complete,
        actions=np.concatenate(actions) if record_actions and actions else None,
    )


def why_not(policy: Any, environment: Any) -> str | None:
    """The part that keeps a run out of the compiled loop, or None."""
    shell = getattr(policy, "shell", policy)
    if not isinstance(shell, FrankWolfe):
        return f"the policy {type(policy).__name__}"
    if isinstance(environment, RankingWorld):
        fits = isinstance(shell.base, Ranker)
    else:
        fits = isinstance(shell.base, LinearBandit)
        if fits and not isinstance(shell.base.regression.learn, Kernel):
            return f"the oracle {type(shell.base.regression).__name__}"
        if not hasattr(environment, "reward_program"):
            return f"the environment {type(environment).__name__}"
    return None if fits else f"the base {type(shell.base).__name__}"


class _PlainRun:
    """The loop in Python, for any policy and environment that keep the contracts."""

    def __init__(
        self, policy: Any, environment: Any, world: Any, streams: Streams, truth: bool
    ) -> None:
        # A reference policy may know the world.
        self.policy = policy.meet(world) if hasattr(policy, "meet") else policy
        self.environment = environment
        self.world = world
        self.streams = streams
        problem = environment.problem()
        self.state = self.policy.init(problem)
        self.mean_sum, self.reward_sum = np.zeros((2, problem.n_objectives))
        self.scalar = np.zeros(3)
        self.truth = truth
        self.t = 0

    def play(self, wanted: int) -> IntVector:
        """Play at most that many rounds; their actions."""
        n = min(wanted, 100)
        return np.array([self._round() for _ in range(n)], dtype=np.int64)

    def _round(self) -> Any:
        environment, world, streams = self.environment, self.world, self.streams
        self.t += 1
        context = environment.context(world, self.t, streams.contexts)
        decision = self.policy.act(self.state, context, streams.policy)
        feedback = environment.feedback(world, context, decision.action, streams.noise)
        reward = self._reward(decision, feedback)
        mean = environment.mean_reward(world, context, decision.action)
        g = self._direction(decision)
        if g is not None:
            best = environment.best_action(world, context, g) if self.truth else decision.action
            top = environment.mean_reward(world, context, best)
            self.scalar += [g @ top, g @ mean, g @ reward]
        self.state = self.policy.update(self.state, decision, feedback)
        self.mean_sum += mean
        self.reward_sum += reward
        return decision.action

    def _reward(self, decision: Any, feedback: Any) -> Vector:
        """The reward vector; of a ranking, as the policy counts exposures."""
        plan = getattr(self.state, "plan", None)
        if plan is None or plan.catalogue is None:
            plain: Vector = feedback
            return plain
        choice = Choice(decision.action, decision.probability, decision.evidence[0])
        counted: Vector = plan.base.reward(self.state.base, choice, feedback)[1]
        return counted

    def _direction(self, decision: Any) -> Vector | None:
        """The direction of a decision, where the policy follows one."""
        carried: Vector | None = getattr(decision.evidence, "direction", None)
        shell = getattr(self.policy, "shell", self.policy)
        if carried is None and hasattr(shell, "direction"):
            carried = shell.direction(self.state, None)
        return carried
