"""An objective that a client sends is tried in its own process, with a limit on its time, before
the service follows it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from dataclasses import replace

from fairwolfe.core.build import build_objective
from fairwolfe.core.packing import pack, unpack
from fairwolfe.core.problem import Problem
from fairwolfe.errors import FairwolfeError
from fairwolfe.objectives.two_sided import grouped_by, labelled
from fairwolfe.service.model import Model
from fairwolfe.service.wire import Refused, invalid

_SECONDS = 1.0  # of processor time
_WAIT = 30.0  # seconds, with the start of the process
_MOST = 4  # at once, since each is a process
_trials: set[asyncio.Task[None] | None] = set()  # under way


async def try_objective(
    model: Model, text: str, field: str = "objective", seconds: float = _SECONDS
) -> None:
    """Build an objective for a model, and take one gradient at its average; Refused where that
    takes too long, or too many are tried. What is wrong with it otherwise is found by
    `Model.check_change`.
    """
    agent = model.agent
    if agent is None:
        return
    objective = build_objective(text, field)
    problem, labels = agent.problem, {}
    if model.ranks:
        problem = replace(problem, n_items=len(agent.items))
        with suppress(FairwolfeError):  # an item without the attribute
            labels = agent.labels(grouped_by(objective))
    given = (text, problem.to_json(), tuple(labels.items()), agent.average, seconds)
    if len(_trials) >= _MOST:
        text = f"{_MOST} objectives are being tried already; ask again soon"
        raise Refused(429, "busy", text, field, 2.0)
    task = asyncio.current_task()
    _trials.add(task)
    try:
        code = await _run(pack(given))
    finally:
        _trials.discard(task)
    if code < 0:  # by a signal
        text = f"one gradient of {field} takes more than {seconds:g} s; give a simpler one"
        raise invalid(text, field)


async def _run(given: bytes) -> int:
    """The exit code of a process that tries an objective; below 0 where it was ended."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "fairwolfe.service.trial"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_WAIT):
                await process.communicate(given)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
    return await process.wait()


def main() -> None:
    """Try the objective on stdin; SIGVTALRM ends what takes too long."""
    text, problem, labels, average, seconds = unpack(sys.stdin.buffer.read())
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    with suppress(FairwolfeError):
        objective = labelled(build_objective(text, "the objective"), dict(labels))
        objective.bind(Problem.from_json(problem)).gradient(average)


if __name__ == "__main__":
    main()
