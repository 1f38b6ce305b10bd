"""`simulate`: a policy in an environment, compiled where possible, else plain."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.core.kinds import kind_of
from fairwolfe.core.protocols import Environment
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Concave
from fairwolfe.oracles import OnlineGradient, Ridge
from fairwolfe.ranking.policies import as_policy
from fairwolfe.reduction import FrankWolfe
from fairwolfe.reduction.running import bind
from fairwolfe.simulation.compiled import ArmsRun, RankingsRun
from fairwolfe.simulation.lateness import Lateness
from fairwolfe.simulation.plain import PlainRun
from fairwolfe.simulation.streams import Streams
from fairwolfe.simulation.trace import Trace, checkpoint_grid

__all__ = ["simulate"]

Progress = Callable[[int], None]

LOOPS: dict[str, Any] = {"arms": ArmsRun, "ranking": RankingsRun}
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
    expected = opaque or hasattr(policy, "meet")
    if part and compiled is None and not expected:
        warnings.warn(f"the plain loop is used, because {part} has no compiled form", stacklevel=2)
    world = environment.init(stream(seed, "world"))
    streams = Streams.of(seed)
    answers = stream(seed, "service")  # a name that stays: it decides the numbers drawn
    given = (policy, environment, world, streams, scalar_regret, lateness, answers)
    run: Any
    if fast:
        run = LOOPS[environment.problem().kind](*given, horizon)
    else:
        run = PlainRun(*given)
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
        seconds=perf_counter() - began,
        compiled=fast,
        complete=complete,
        actions=np.concatenate(actions) if record_actions and actions else None,
        callbacks=run.callbacks if fast else 0,
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
    if not LOOPS[problem.kind].plays(environment):
        return f"the environment {type(environment).__name__}"
    return None
