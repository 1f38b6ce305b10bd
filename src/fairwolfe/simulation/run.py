"""`simulate`: a policy plays in the world of a seed, in the compiled loop or in Python."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from heapq import heappop, heappush
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.core.arrays import Cube, IntMatrix, IntVector, Matrix, Vector
from fairwolfe.core.feedback import StageAnswer
from fairwolfe.core.kinds import Kind, kind_of
from fairwolfe.core.problem import Problem
from fairwolfe.core.protocols import Environment
from fairwolfe.core.streams import stream
from fairwolfe.environments.world import RankingWorld
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.arms import ArmMailbox
from fairwolfe.kernels.rankings import RankingMailbox
from fairwolfe.objectives import Concave
from fairwolfe.oracles import OnlineGradient, Ridge
from fairwolfe.ranking.policies import as_policy
from fairwolfe.reduction import FrankWolfe
from fairwolfe.reduction.running import Running, bind, require_one_stage
from fairwolfe.simulation.delays import Lateness, rounds_of, stage_laws
from fairwolfe.simulation.trace import Trace, checkpoint_grid


class Streams(NamedTuple):
    """The generators of a run: two policies with one seed meet the same contexts and noise."""

    contexts: np.random.Generator
    noise: np.random.Generator
    policy: np.random.Generator

    @classmethod
    def of(cls, seed: int) -> Streams:
        return cls(stream(seed, "contexts"), stream(seed, "noise"), stream(seed, "policy"))


class Simulation(ABC):
    """One run of a policy in the world of a seed, with the sums of its rewards.

    truth: whether the best action for each direction is asked for. Without a lateness answers are
    learnt at once; with one, `rng` draws the delays, and what arrives after the horizon is never
    learnt.
    """

    def __init__(
        self,
        policy: Any,
        environment: Any,
        world: Any,
        streams: Streams,
        truth: bool = True,
        lateness: Lateness | None = None,
        rng: np.random.Generator | None = None,
        horizon: int = 0,
    ) -> None:
        self.environment, self.world, self.streams = environment, world, streams
        self.policy = policy.in_world(world) if hasattr(policy, "in_world") else policy
        self.problem: Problem = environment.problem()
        self.truth, self.lateness, self.rng, self.horizon = truth, lateness, rng, horizon
        self.refresh = 1 if lateness is None else lateness.refresh
        delay = None if lateness is None else lateness.delay
        self.laws = stage_laws(delay, self.problem.n_stages)
        self.mean_sum, self.reward_sum = np.zeros((2, self.problem.n_objectives))
        self.scalar = np.zeros(3)  # sums of max_a <g, mu_a>, <g, mu> and <g, r>
        self.callbacks = 0  # calls of Python functions of the user by the compiled loop

    @abstractmethod
    def play(self, wanted: int) -> Any:
        """Play at most that many rounds; their actions."""


class PlainRun(Simulation):
    """A run in Python."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.state = self.policy.init(self.problem)
        self.kind = self._kind()
        self.opaque = getattr(self.environment, "opaque", False)
        if not isinstance(self.state, Running):
            require_one_stage(self.policy, self.problem)
        # Answers on their way: when they arrive, to which decision and stage, the decision and the
        # feedback.
        self.waiting: list[tuple[int, int, int, Any, Any]] = []
        self.snapshot = self.state  # what decides, where it is not the live state
        self.t = 0

    def _kind(self) -> Kind:
        if isinstance(self.state, Running):
            return self.state.kind
        if hasattr(self.policy, "kind"):
            kind: Kind = self.policy.kind(self.state)
            return kind
        return kind_of(self.problem)

    def play(self, wanted: int) -> list[Any]:
        """Play at most that many rounds; their actions."""
        return [self._round() for _ in range(min(wanted, 100))]

    def _round(self) -> Any:
        environment, world, streams = self.environment, self.world, self.streams
        self.t += 1
        context = environment.context(world, self.t, streams.contexts)
        state = self.deciding()
        decision = self.policy.act(state, context, streams.policy)
        feedback = environment.feedback(world, context, decision.action, streams.noise)
        reward = self.kind.observe(decision.action, feedback).reward
        mean = reward
        if not self.opaque:
            mean = environment.mean_reward(world, context, decision.action)
        g = decision.direction
        if g is None and isinstance(state, Running):
            g = state.direction()
        if self.truth and g is not None:
            best = environment.best_action(world, context, g)
            top = environment.mean_reward(world, context, best)
            # Not a product by BLAS, whose last bit depends on the processor.
            self.scalar += (g * np.array([top, mean, reward])).sum(axis=1)
        self.answer(decision, feedback, reward)
        self.mean_sum += mean
        self.reward_sum += reward
        return decision.action

    def deciding(self) -> Any:
        """The live state, or the snapshot taken at the last refresh."""
        if self.refresh == 1:
            return self.state
        if (self.t - 1) % self.refresh == 0:
            self.snapshot = deepcopy(self.state)
        return self.snapshot

    def answer(self, decision: Any, feedback: Any, reward: Vector) -> None:
        """Send feedback on its way, and learn from all that has arrived by now, in the order of
        arrival, then of decisions.
        """
        starts, laws = self.problem.stage_starts, self.laws
        if self.lateness is None or self.rng is None:
            self.learn(decision, feedback)
            return
        u = float(self.rng.random())
        first = self.problem.n_items or 0
        clicked = [bool(reward[max(begin, first) : end].any()) for begin, end in pairwise(starts)]
        late = [rounds_of(law, u, some) for law, some in zip(laws, clicked, strict=True)]
        self._expect(decision)
        if len(laws) == 1:
            heappush(self.waiting, (self.t + late[0], self.t, 0, decision, feedback))
        else:
            self._send_stages(decision, feedback, late)
        while self.waiting and self.waiting[0][0] <= self.t:
            self.learn(*heappop(self.waiting)[3:])

    def _send_stages(self, decision: Any, feedback: Any, late: list[int]) -> None:
        """Send each stage of feedback on its way."""
        kind, known = self.kind, None
        table = kind.table(kind.observe(decision.action, feedback).observation)
        for stage in sorted(range(len(late)), key=lambda stage: (late[stage], stage)):
            part = np.full(table.shape, np.nan)
            own = ..., slice(kind.known_starts[stage], kind.known_starts[stage + 1])
            part[own] = table[own]
            staged = kind.stages(decision.action, part, known)
            known = staged.known
            for answer in staged.learnt:
                arrives = self.t + late[stage]
                heappush(self.waiting, (arrives, self.t, answer.stage, decision, answer))

    def _expect(self, decision: Any) -> None:
        """The snapshot that decided counts the decision as open, and so does the live state, whose
        count the decision keeps.
        """
        expect = getattr(self.policy, "expect", None)
        if expect is None:
            return
        if self.refresh > 1:
            self.snapshot = expect(self.snapshot, decision)
        self.state = expect(self.state, decision)

    def learn(self, decision: Any, feedback: Any) -> None:
        """Update the live state."""
        if isinstance(feedback, StageAnswer):
            self.state.learn(decision.batch.rows, feedback)
            return
        self.state = self.policy.update(self.state, decision, feedback)


_CHUNK_BYTES = 4_000_000  # of contexts drawn at once: a few milliseconds of work
_CHUNK_MULTIPLIES = 200_000_000  # the same, of rankings: about a tenth of a second
_CHUNK = 4096  # rankings drawn at once, at most


class ArmsDrawn(NamedTuple):
    """What is drawn for the next rounds, whatever is decided in them."""

    contexts: Cube  # (rounds, arms, d)
    tags: IntVector  # (rounds,)
    noise: Matrix
    draws: Matrix  # of the rule
    normals: Cube  # of randomised smoothing
    delays: IntMatrix  # (rounds, 2 stages): without and with a click; -1: it never comes


class RankingsDrawn(NamedTuple):
    """The same for rankings."""

    users: Matrix  # (users, p)
    tables: Cube  # (1 or users, q, items)
    tags: IntVector  # (rounds,): the user of each round
    noise: Matrix
    draws: Matrix
    normals: Cube
    delays: IntMatrix


class RunSums(NamedTuple):
    """What the compiled loop writes: actions of a chunk, and sums over all rounds of a run."""

    actions: Any  # (rounds,) or (rounds, slots)
    mean_sum: Vector
    reward_sum: Vector
    scalar: Vector  # (3,)


class CompiledRun(Simulation):
    """A run in the compiled loop, played chunk by chunk."""

    rewards: Any  # the compiled rewards of the world
    options: tuple[Any, ...] = ()  # of the loop

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.running: Any = self.policy.init(self.problem)
        late, twice = self.lateness is not None, self.refresh > 1
        self.mailbox: Any = self._mailbox() if late else None
        self.decider: Any = self.policy.init(self.problem) if twice else None
        self.done = 0
        self.most = 16  # rounds in a chunk

    @abstractmethod
    def _mailbox(self) -> Any:
        """Room for answers on their way."""

    @abstractmethod
    def drawn(self, wanted: int) -> Any:
        """What is drawn for the next rounds, at most those wanted."""

    def play(self, wanted: int) -> Any:
        """Play at most that many rounds; their actions."""
        drawn = self.drawn(wanted)
        n, slots = len(drawn.tags), self.problem.n_slots
        actions = np.empty(n if slots is None else (n, slots), dtype=np.int64)
        out = RunSums(actions, self.mean_sum, self.reward_sum, self.scalar)
        refresh = min(self.refresh, self.horizon + 1) if self.lateness else 1
        decider = None if self.decider is None else self.decider.engine
        given = (decider, self.rewards, drawn, self.mailbox, out, self.done, refresh)
        played = self.running.engine.play(*given, *self.options)
        called = (self.running, self.decider, self.rewards)
        self.callbacks = sum(int(getattr(one, "callbacks", 0)) for one in called)
        if played < n:
            (self.decider or self.running).raise_failure(useless=played < 0)
        self.done += n
        return actions

    def _draw(self, n: int) -> tuple[Any, ...]:
        """Noise, draws, normals and delays of the next n rounds."""
        noise = self.environment.draw_noise(self.streams.noise, n)
        return noise, *self.running.draws(self.streams.policy, n), self.delays(n)

    def delays(self, n: int) -> IntMatrix:
        """Those of the next n rounds, (n, 2 stages); -1: the answer comes after the horizon."""
        if self.lateness is None or self.rng is None:
            return np.zeros((n, 2 * len(self.laws)), dtype=np.int64)
        each = [
            [rounds_of(law, u, clicked) for law in self.laws for clicked in (False, True)]
            for u in self.rng.random(n).tolist()
        ]
        longest = float(self.horizon)  # as floats, since a law may give any whole number
        delays: IntMatrix = np.minimum(np.array(each, dtype=np.float64), longest).astype(np.int64)
        never = np.arange(self.done + 1, self.done + 1 + n)[:, None] + delays > self.horizon
        delays[never] = -1
        return delays


class ArmsRun(CompiledRun):
    """One run of a policy for arms."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.rewards = self.environment.reward_program(self.world)

    def _mailbox(self) -> ArmMailbox:
        n = self.problem.n_objectives
        directions = n if self.running.plan.keeps_direction else 0
        return ArmMailbox(self.problem.dimension, n, directions, self.problem.n_stages)

    def drawn(self, wanted: int) -> ArmsDrawn:
        n = min(wanted, self.most)
        contexts, tags = self.environment.draw_contexts(self.world, self.streams.contexts, n)
        self.most = max(16, _CHUNK_BYTES * n // contexts.nbytes)
        return ArmsDrawn(contexts, tags, *self._draw(n))


class RankingsRun(CompiledRun):
    """One run of a ranking policy."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        if self.problem.n_stages > 1 and self.policy.base.exposure == "until_last_click":
            raise InvalidInput(
                "exposure='until_last_click' counts down to the last click of the first stage, and "
                "this world also gives later rewards to items below it; use 'observed' or 'shown'"
            )
        self.users, self.tables = self.environment.features(self.world)
        self.rewards, self.options = self.world.rewards, (self.truth,)
        problem = self.problem
        work = problem.dimension**2 + (problem.n_items or 0) * self.tables.shape[1] ** 2
        self.most = max(16, min(_CHUNK, _CHUNK_MULTIPLIES // work))

    def _mailbox(self) -> RankingMailbox:
        kept = self.problem.n_objectives if self.running.plan.keeps_direction else 0
        problem = self.problem
        k, n_rewards = problem.n_slots or 0, len(problem.rewards)
        return RankingMailbox(k, n_rewards, kept, problem.n_stages)

    def drawn(self, wanted: int) -> RankingsDrawn:
        n = min(wanted, self.most)
        tags = self.environment.draw_users(self.streams.contexts, n)
        return RankingsDrawn(self.users, self.tables, tags, *self._draw(n))


Progress = Callable[[int], None]

LOOPS: dict[str, type[CompiledRun]] = {"arms": ArmsRun, "ranking": RankingsRun}
"""The compiled loops, by the kind of decision that they play; others have the plain loop."""


def simulate(
    policy: Any,
    environment: Any,
    horizon: int,
    seed: int = 0,
    objective: Concave | None = None,
    checkpoints: Any = None,
    *,
    lateness: Lateness | None = None,
    compiled: bool | None = None,
    record_actions: bool = False,
    scalar_regret: bool = True,
    progress: Progress | None = None,
) -> Trace:
    """Run a policy for `horizon` rounds in the world of a seed.

    World, contexts, feedback noise and policy draw from separate streams: two policies with
    one seed meet the same world, users and noise. Where the environment does not know its expected
    rewards (`opaque`), those observed replace them, and scalar regrets are NaN. Ctrl-C returns what
    was done (`complete` is then False).

    Parameters
    ----------
    objective: what is measured; None is the policy's own
    checkpoints: times to report; None is about 20 a decade
    lateness: how late feedback comes and how old the state is that decides; None is the paper's:
        at once, and up to date
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
    playing = as_policy(policy)
    measured = getattr(policy, "objective", None) if objective is None else objective
    if measured is None:
        raise InvalidInput(
            f"{type(policy).__name__} has no objective; pass objective= for what is measured"
        )
    if not isinstance(measured, Concave):
        raise InvalidInput(f"the objective is {measured!r:.80}; give one of fw.objectives")
    policy = playing
    if not (lateness is None or isinstance(lateness, Lateness)):
        raise InvalidInput(
            f"lateness is {lateness!r}; give a Lateness, such as Lateness(delay=100)"
        )
    part = why_not(policy, environment)
    if compiled and part:
        raise InvalidInput(f"{part} has no compiled form; leave out compiled=True")
    fast = part is None if compiled is None else compiled
    opaque = getattr(environment, "opaque", False)
    scalar_regret = scalar_regret and not opaque
    expected = opaque or hasattr(policy, "in_world")
    if part and compiled is None and not expected:
        warnings.warn(f"the plain loop is used, because {part} has no compiled form", stacklevel=2)
    world = environment.init(stream(seed, "world"))
    streams = Streams.of(seed)
    answers = stream(seed, "service")  # a name that stays: it decides the numbers drawn
    problem = environment.problem()
    loop: type[Simulation] = LOOPS[problem.kind] if fast else PlainRun
    given = (policy, environment, world, streams, scalar_regret, lateness, answers, horizon)
    run = loop(*given)
    records: list[tuple[int, Vector, Vector, Vector]] = []
    last: tuple[int, Vector, Vector, Vector] | None = None
    actions: list[IntVector] = []
    began, done, complete = perf_counter(), 0, True
    try:
        for t in times.tolist():
            while done < t:
                played = run.play(t - done)
                done += len(played)
                last = (done, run.mean_sum / done, run.reward_sum / done, run.scalar.copy())
                if done == t:
                    records.append(last)
                if record_actions:
                    actions.append(np.asarray(played))
                if progress is not None:
                    progress(len(played))
    except KeyboardInterrupt:
        complete = False
        if last is not None and (not records or last[0] > records[-1][0]):
            records.append(last)
    scalars = np.array([r[3] for r in records]).reshape(-1, 3)
    if not scalar_regret:
        scalars[:] = np.nan
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
        seconds=perf_counter() - began,
        compiled=fast,
        complete=complete,
        actions=np.concatenate(actions) if record_actions and actions else None,
        callbacks=run.callbacks,
    )


def why_not(policy: Any, environment: Any) -> str | None:
    """The part that keeps a run out of the compiled loop, or None."""
    if not isinstance(policy, FrankWolfe):
        return f"the policy {type(policy).__name__}"
    problem = environment.problem()
    if problem.kind not in LOOPS:
        return f"the kind of decision {problem.kind!r}"
    if callable(policy.iterate):
        return "the function iterate"
    base = bind(policy, kind_of(problem)).base
    if not hasattr(base, "rule") or base.rule(problem) is None:
        oracle = getattr(base, "regression", None)
        if oracle is None or type(oracle) in (Ridge, OnlineGradient):
            return f"the base {type(base).__name__}"
        return f"the oracle {type(oracle).__name__}"
    ranks = problem.kind == "ranking"
    if not (
        isinstance(environment, RankingWorld) if ranks else hasattr(environment, "reward_program")
    ):
        return f"the environment {type(environment).__name__}"
    return None
