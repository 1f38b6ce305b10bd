"""From a spec to a run: its objects are built, it is played, its file is made."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from fairwolfe import environments
from fairwolfe.core.build import at, build_objective, build_policy, from_table, from_value, shown
from fairwolfe.core.protocols import Environment
from fairwolfe.core.registry import names
from fairwolfe.errors import FairwolfeError, InvalidInput, did_you_mean
from fairwolfe.lab import results
from fairwolfe.lab.spec import Cell, Run, RunSettings, canonical
from fairwolfe.objectives import Concave
from fairwolfe.simulation import simulate
from fairwolfe.simulation.delays import Lateness
from fairwolfe.simulation.trace import checkpoint_grid


class Parts(NamedTuple):
    """What `simulate` is given."""

    environment: Any
    policy: Any
    objective: Concave | None
    options: dict[str, Any]


def _flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{path} is {shown(value)}; give true or false")
    return value


_LAWS = {"constant": "Constant", "geometric": "Geometric", "uniform": "Uniform"}
_LAWS["by-outcome"] = "ByOutcome"


def _law(value: Any, path: str) -> Any:
    """A delay: a number of rounds, or a table with the name of a law."""
    if not isinstance(value, dict):
        return value
    name = value.get("name")
    if not (isinstance(name, str) and (name in _LAWS or ":" in name)):
        raise InvalidInput(
            f"{path}.name is {name!r}; give one of {', '.join(_LAWS)}, or module:Class"
        )
    inner = {key: _law(one, f"{path}.{key}") for key, one in value.items() if key != "name"}
    return inner | {"name": name if ":" in name else f"fairwolfe.simulation.delays:{_LAWS[name]}"}


def _lateness(value: Any, path: str) -> Lateness:
    if not isinstance(value, dict):
        raise InvalidInput(f"{path} is {shown(value)}; give a table, such as {{ delay = 100 }}")
    table = {key: _law(one, f"{path}.{key}") for key, one in value.items()}
    lateness: Lateness = from_table(table | {"name": "fairwolfe.simulation:Lateness"}, path, ())
    return lateness


# Keywords of `simulate` that a spec may set: how the value of each is checked or built.
OPTIONS: dict[str, Callable[[Any, str], Any]] = {"scalar_regret": _flag, "lateness": _lateness}


BY_RUN = "run"
"""As the seed of an environment in a spec: each run makes its own world, from its own seed."""


def build(settings: RunSettings, label: str = "policy", seed: int = 0) -> Parts:
    """The objects of a run; seed: its own, for an environment whose seed is `BY_RUN`.

    >>> from fairwolfe.lab.spec import RunSettings
    >>> policy = {"name": "frank-wolfe", "base": {"name": "linucb"}}
    >>> world, f = {"name": "mehrotra"}, {"name": "minimum"}
    >>> one = RunSettings(environment=world, objective=f, policy=policy, horizon=10)
    >>> build(one).policy.objective
    Minimum()
    """
    table = settings.environment
    if table.get("seed") == BY_RUN:
        table = {**table, "seed": seed}
    world = _environment(canonical(table))
    objective: Concave | None = None
    if settings.objective is not None:
        # Where the policy's own is what is measured, the path is the policy's; both are right.
        objective = build_objective(settings.objective, "objective")
    path = f"policies.{label}"
    policy = build_policy(settings.policy, path, objective=objective)
    if objective is None and getattr(policy, "objective", None) is None:
        raise InvalidInput(f"{path} has no objective; add a table [objective] for what is measured")
    options = {}
    for key, value in settings.options.items():
        if key not in OPTIONS:
            raise InvalidInput(f"options.{key} is unknown; {did_you_mean(key, OPTIONS)}")
        options[key] = OPTIONS[key](value, f"options.{key}")
    return Parts(world, policy, objective, options)


def checked(cell: Cell) -> Parts:
    """The objects of a cell, tried on the problem of its world: what cannot run raises now."""
    settings = cell.settings
    try:
        parts = build(settings, cell.label)
        problem = parts.environment.problem()
        if parts.objective is not None:
            with at("objective"):
                parts.objective.bind(problem)
        with at(f"policies.{cell.label}"):
            parts.policy.init(problem)
        with at("checkpoints"):
            checkpoint_grid(settings.horizon, settings.checkpoints)
    except FairwolfeError as error:
        raise type(error)(f"{error}{cell.where()}") from error
    return parts


@lru_cache(maxsize=2)  # a world may hold large tables, and runs of one world come together
def _environment(text: str) -> Any:
    table = json.loads(text)
    name = table.get("name")
    if isinstance(name, str) and ":" not in name and name not in names("environments"):
        # `make` may know more worlds by name than there are classes.
        options = {k: from_value(v, f"environment.{k}") for k, v in table.items() if k != "name"}
        with at("environment"):
            return environments.make(name, **options)
    world = from_table(table, "environment", ("environments",))
    if not isinstance(world, Environment):
        raise InvalidInput(f"environment is {shown(world)}; see fairwolfe list environments")
    return world


def play(run: Run, progress: Callable[[int], None] | None = None) -> bytes:
    """Play a run; its Parquet file, whose numbers depend on the settings and the seed alone.

    Warnings are kept in the file, because the output of a worker is not watched.
    """
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        parts = build(run.settings, run.label, run.seed)
        times = checkpoint_grid(run.settings.horizon, run.settings.checkpoints)
        clock = _Clock(progress, set(times.tolist()))
        trace = simulate(
            parts.policy,
            parts.environment,
            run.settings.horizon,
            run.seed,
            parts.objective,
            run.settings.checkpoints,
            progress=clock,
            **parts.options,
        )
    if not trace.complete:
        raise KeyboardInterrupt
    table = results.table(run, trace, parts.environment.problem(), clock.seconds)
    world = parts.environment
    facts: dict[str, Any] = {
        "wall_seconds": time.perf_counter() - began,
        "compiled": trace.compiled,
        "factors_hash": getattr(world, "factors_hash", None),
        "warnings": list(dict.fromkeys(str(one.message) for one in caught)),
    }
    return results.to_bytes(run, table, facts)


def played(common: bytes, task: Any, tick: Callable[[int], None]) -> bytes:
    """`play` for `fairwolfe.core.workers`; there is nothing in common."""
    return play(msgspec.convert(task, Run), tick)


class _Clock:
    """Passes the progress on, and notes how long the rounds up to each checkpoint took."""

    def __init__(self, progress: Callable[[int], None] | None, times: set[int]) -> None:
        self._began = time.perf_counter()
        self._progress = progress
        self._times = times
        self._t = 0
        self.seconds: dict[int, float] = {}

    def __call__(self, n: int) -> None:
        self._t += n
        if self._t in self._times:
            self.seconds[self._t] = time.perf_counter() - self._began
        if self._progress is not None:
            self._progress(n)
