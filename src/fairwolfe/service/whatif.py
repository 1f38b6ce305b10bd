"""What-if: what another objective would give by today's estimates, computed in its own process.

`WhatIfRunner` starts the process and keeps the last results. The process (`main`) builds an
environment from what a model has learnt (the parameters of each reward), the contexts that it saw
last, and how often each slot was exposed. The optimum in it is certified, the environment is not.
It reads its input from stdin and writes a line of JSON for each objective.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np

from fairwolfe.agent import Agent
from fairwolfe.core.contexts import arms
from fairwolfe.core.packing import pack, unpack
from fairwolfe.errors import FairwolfeError, InvalidInput
from fairwolfe.objectives import TwoSided
from fairwolfe.objectives.two_sided import beta_of, grouped_by, labelled, parts_of, with_beta
from fairwolfe.service import wire
from fairwolfe.service.events import CONTEXTS, ObjectiveReplaced, pack_context
from fairwolfe.service.model import Model, read_objective
from fairwolfe.service.trial import try_objective
from fairwolfe.service.watch import shares_of
from fairwolfe.service.wire import Refused, invalid_input

if TYPE_CHECKING:
    from fairwolfe.environments import FactorModel, Finite

_SECONDS = 120.0  # for an answer
_MOST_KEPT = 20  # runs
_MOST_TEXTS = 5
_LONGEST = 1 << 24  # bytes of a line
_STEPS = (0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # of the current beta
_MOST_ANSWERS = 32
_FROM_ZERO = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
_NICE = 10
_TOLERANCE = 1e-3
_CURVE = 20  # parts of a Lorenz curve
_APART = 1e-3  # relative: what is nearer than this is the same corner
_MOVED = 3  # items or groups that gain most, and that lose most
_MIXTURES = 12  # between the answers for two neighbouring betas


class WhatIf(msgspec.Struct, forbid_unknown_fields=True):
    """Values of beta, or whole objectives; neither: a range around the current beta."""

    beta: Annotated[list[Annotated[float, msgspec.Meta(ge=0.0)]], msgspec.Meta(max_length=25)] = []
    objectives: Annotated[list[str], msgspec.Meta(max_length=_MOST_TEXTS)] = []


class InterviewAnswers(msgspec.Struct, forbid_unknown_fields=True):
    """What was answered to the questions so far."""

    answers: Annotated[
        list[Literal["a", "b", "equal"]], msgspec.Meta(max_length=_MOST_ANSWERS)
    ] = []


class WhatIfRun:
    """A what-if, and what came of it so far."""

    def __init__(self, model: Model, texts: list[str], contexts: int) -> None:
        self.id = secrets.token_hex(8)
        self.model, self.version, self.t = model.name, model.version, model.t
        self.texts, self.contexts = texts, contexts
        self.state, self.message = "running", ""
        self.points: list[dict[str, Any]] = []
        self.curve: list[list[float]] = []  # of trade-offs: `fairness.elicit.Curve`
        self.current = model.objective
        self.sharers = "groups" if model.groups() else "items"
        self.reward = model.rewards[0] if len(model.rewards) == 1 else "utility"

    def view(self) -> dict[str, Any]:
        """As it is answered."""
        return {
            "id": self.id,
            "state": self.state,
            "message": self.message or None,
            "version": self.version,
            "t": self.t,
            "contexts": self.contexts,
            "asked": len(self.texts),
            "points": self.points,
            "current": self.current,
            "questions": bool(self.curve),
            "reward": self.reward,
            "sharers": self.sharers,
            "curve": self.curve,
            "note": "by today's estimates, not guaranteed",
        }

    def interview(self, answers: Sequence[str]) -> dict[str, Any]:
        """The next question between trade-offs of this what-if, and what the answers say of beta;
        the same answers give the same questions.
        """
        if not self.curve:
            text = "there is nothing to choose between: ask first what several values of beta give"
            raise Refused(409, "no_questions", text)
        from fairwolfe.fairness.elicit import Curve, elicit

        try:
            elicitation = elicit(Curve(np.array(self.curve), self.reward), answers=answers)
        except InvalidInput as error:
            raise Refused(409, "no_questions", str(error)) from error
        low, high = elicitation.interval(0.9)
        answer: dict[str, Any] = {"done": elicitation.done, "question": None}
        if not elicitation.done:
            answer["question"] = asdict(elicitation.ask())
        known = {"beta": elicitation.beta, "low": low, "high": high} if answers else {}
        return {**answer, **known, "sentences": elicitation.sentences()}


class WhatIfRunner:
    """Runs one what-if at a time in another process, and keeps the last results."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._kept: OrderedDict[str, WhatIfRun] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None

    def find(self, model: Model, id: str) -> WhatIfRun:
        """A run by its id."""
        run = self._kept.get(id)
        if run is None or run.model != model.name:
            raise Refused(404, "unknown_question", f"there is no what-if {id!r:.80}", "id")
        return run

    async def start(self, model: Model, contexts: Sequence[Any], body: WhatIf) -> WhatIfRun:
        """Start a run; Refused where it cannot be, or another one is under way."""
        if model.agent is None or model.t == 0 or not contexts:
            text = f"{len(contexts)} contexts since the service began; ask when there are some"
            text = f"model {model.name!r} has learnt from {model.t} decisions, and has seen {text}"
            raise Refused(409, "nothing_seen", text)
        texts = await _texts(model, body)
        if self._task is not None and not self._task.done():
            text = "another what-if is being computed; ask again soon"
            raise Refused(429, "busy", text, retry_after=2.0)
        data = process_input(model.agent, contexts, texts)
        run = WhatIfRun(model, texts, len(contexts))
        self._kept[run.id] = run
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        self._task = asyncio.create_task(self._run_until_done(run, data))
        return run

    async def _run_until_done(self, run: WhatIfRun, data: bytes) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await self._run(run, data)
        except TimeoutError:
            run.message = f"it took more than {self._seconds:g} s; ask for fewer values"
        except (OSError, ValueError) as error:
            run.message = f"the process that computes it failed: {error}"
        finally:
            self._kill()
        if not run.message and len(run.points) < len(run.texts):
            run.message = "the process that computes it has ended too early"
        run.state = "failed" if run.message else "done"

    async def _run(self, run: WhatIfRun, data: bytes) -> None:
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "fairwolfe.service.whatif"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_LONGEST,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(data)
        with suppress(ConnectionError):
            await process.stdin.drain()
            process.stdin.close()
        async for line in process.stdout:
            answer = msgspec.json.decode(line)
            if "failed" in answer:
                run.message = answer["failed"]
            elif "curve" in answer:
                run.curve = answer["curve"]
            elif "moves" in answer:
                for point, moves in zip(run.points, answer["moves"], strict=True):
                    point.update(moves)
            else:
                run.points.append(answer)
        await process.wait()

    def end(self) -> None:
        """Stop what is under way."""
        if self._task is not None:
            self._task.cancel()
        self._kill()

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()


async def _texts(model: Model, body: WhatIf) -> list[str]:
    """The texts of the objectives of a run, each of which could be applied."""
    current = read_objective(model.objective)
    assert current is not None
    beta = beta_of(current)
    texts = list(body.objectives)
    if body.beta or not texts:
        if beta is None:
            text = f"the objective {model.objective!r:.80} has no beta; give objectives"
            raise Refused(422, "no_beta", text, "beta" if body.beta else None)
        steps = [beta * step for step in _STEPS] if beta else list(_FROM_ZERO)
        texts += [repr(with_beta(current, one)) for one in sorted({*(body.beta or steps), beta})]
    for place, text in enumerate(body.objectives):
        texts[place] = repr(wire.objective_of(text, model, f"objectives[{place}]"))
    if body.objectives:
        await _try_objectives(model, texts[: len(body.objectives)])
    return texts


async def _try_objectives(model: Model, texts: Sequence[str]) -> None:
    """Whether each could be applied, by the rule of PUT objective."""
    for place, text in enumerate(texts):
        field = f"objectives[{place}]"
        await try_objective(model, text, field)
        try:
            model.check_change(ObjectiveReplaced(model.number, text))
        except FairwolfeError as error:
            raise invalid_input(error, field) from error


def process_input(agent: Agent, contexts: Sequence[Any], texts: Sequence[str]) -> bytes:
    """What the process reads: an agent, contexts, and the texts of objectives."""
    return pack((agent.dump(), tuple(map(pack_context, contexts)), tuple(texts)))


# --- the process -------------------------------------------------------------------------------


class EstimatedWorld(NamedTuple):
    """A world of today's estimates, and what its rewards are called."""

    environment: FactorModel | Finite
    rewards: tuple[str, ...]
    n_items: int


def estimated_world(agent: Agent, contexts: Sequence[Any]) -> EstimatedWorld:
    """The world that an agent believes in, for users or contexts that it saw."""
    from fairwolfe.environments import FactorModel

    with agent.held() as running:
        oracle, looks = running.learnt()
    problem = agent.problem
    rewards = tuple(problem.rewards)
    if problem.n_slots is None:
        return EstimatedWorld(_choices(problem, oracle, contexts), rewards, 0)
    users = np.stack([np.asarray(user) for user in contexts])
    items = agent.features[agent.items]
    low, high = problem.slot_ranges
    thetas = oracle.theta[0].reshape(len(rewards), users.shape[1], items.shape[1])
    learnt = {
        name: (theta, (float(a), float(b)))
        for name, theta, a, b in zip(rewards, thetas, low, high, strict=True)
    }
    world = FactorModel(users, items, looks, calibration="clip", rewards=learnt)
    return EstimatedWorld(world, rewards, len(items))


def _choices(problem: Any, oracle: Any, contexts: Sequence[Any]) -> Finite:
    """Contexts with the estimated rewards of their arms; their number identifies them."""
    from fairwolfe.environments import Finite

    tables = []
    for context in contexts:
        theta, _, _, features, per_arm = oracle.estimates(arms(context, problem))
        n, d = len(problem.rewards), features.shape[1]
        if theta.shape == (1, 1, n * d):  # <g, r> on g (x) x
            theta = theta.reshape(1, n, d)
        if theta.shape[1] != n:
            raise InvalidInput("the policy keeps no estimate of each reward")
        means = theta @ features[0] if per_arm else features @ theta[0].T
        tables.append(np.clip(means, problem.low, problem.high))
    most = max(map(len, tables))
    # Of fewer arms the first is there several times, which changes nothing.
    means = np.stack([np.concatenate([t, t[:1].repeat(most - len(t), axis=0)]) for t in tables])
    n = len(means)
    labels = np.broadcast_to(np.arange(float(n))[:, None, None], (n, most, 1))
    return Finite(labels.copy(), np.full(n, 1.0 / n), means=means, noise="none")


def evaluate(
    agent: Agent, contexts: Sequence[Any], texts: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """The best that each objective can give in the world of today's estimates; at the end who
    gains and who loses against the objective of the agent, if that is one of them, and, where they
    differ in beta, the curve of trade-offs that they make.
    """
    from fairwolfe.truth import optimum

    world = estimated_world(agent, contexts)
    corners: list[Any] = []
    exposed: list[Any] = []  # of each objective; None where there is no answer
    for text in texts:
        exposed.append(None)
        objective = read_objective(text)
        assert objective is not None
        answer: dict[str, Any] = {"objective": text, "beta": beta_of(objective), "message": None}
        answer["description"] = objective.describe(agent.problem)
        try:
            objective = labelled(objective, agent.labels(grouped_by(objective)))
            bound = objective if world.n_items else objective.bind(agent.problem)
            best = optimum(world.environment, bound, tolerance=_TOLERANCE)
        except FairwolfeError as error:
            yield {**answer, "message": str(error)}
            continue
        earned = best.average[world.n_items :].tolist()
        answer["average"] = dict(zip(world.rewards, earned, strict=True))
        answer["value"] = best.value if math.isfinite(best.value) else None
        if not best.feasible:
            answer["message"] = "no policy keeps the hard constraints, by today's estimates"
        if world.n_items:
            exposed[-1] = np.maximum(best.average[: world.n_items], 0.0)
            answer |= shares_of(exposed[-1], _CURVE)
            if best.feasible and answer["beta"] is not None:
                corners.append(best.average)
                known = _measure(agent, world, text)(best.average)
                answer["utility"], answer["shared"] = known[0], known[3]
        yield answer
    current = repr(agent.policy.objective)
    now = exposed[texts.index(current)] if current in texts and len(texts) > 1 else None
    if now is not None:
        yield {"moves": [{} if one is None else _moves(agent, now, one) for one in exposed]}
    sides = _curve(agent, world, texts[0], corners) if len(corners) > 1 else []
    if sides:
        yield {"curve": sides}


def _moves(agent: Agent, before: Any, after: Any) -> dict[str, Any]:
    """Who gains and who loses most: groups, where the objective has them, else items; each with its
    exposure a visit before and after.
    """
    by = grouped_by(agent.policy.objective)
    names = list(agent.labels()[by[0]]) if by else agent.names or range(before.size)
    totals: dict[str, list[float]] = {}
    for name, old, new in zip(names, before.tolist(), after.tolist(), strict=True):
        total = totals.setdefault(str(name), [0.0, 0.0])
        total[:] = total[0] + old, total[1] + new
    moved = sorted(
        ((name, old, new) for name, (old, new) in totals.items()), key=lambda one: one[1] - one[2]
    )
    least = _APART * float(before.sum()) / len(totals)
    gains = [one for one in moved[:_MOVED] if one[2] - one[1] > least]
    losses = [one for one in moved[: -_MOVED - 1 : -1] if one[1] - one[2] > least]
    return {"gains": gains, "losses": losses}


def _measure(agent: Agent, world: EstimatedWorld, text: str) -> Callable[[Any], list[float]]:
    """Utility, item objective, Gini index and the share of the least shown half, of averages: half
    of the groups where the objective has any that follow items, else of the items.
    """
    objective = read_objective(text)
    assert objective is not None
    by = grouped_by(objective)
    labels = agent.labels(by)
    objective = labelled(objective, labels)
    group = np.unique(labels[by[0]], return_inverse=True)[1] if by else np.arange(world.n_items)
    bound = with_beta(objective, 1.0).bind(world.environment.problem())
    items, users = next(p for p in parts_of(bound) if isinstance(p, TwoSided)).members

    def measured(average: Any) -> list[float]:
        exposures = np.maximum(average[: world.n_items], 0.0)
        shares = shares_of(np.bincount(group, exposures), 2)
        sides = (users.value(average[world.n_items :]), items.value(average[: world.n_items]))
        return [*sides, shares["gini"], shares["least_half"]]

    return measured


def _curve(agent: Agent, world: EstimatedWorld, text: str, corners: list[Any]) -> list[list[float]]:
    """What `_measure` gives from the most utility to the fairest: at the corners of the frontier,
    and at mixtures of neighbours.
    """
    measured = _measure(agent, world, text)
    kept: list[Any] = []
    for average in sorted(corners, key=lambda one: measured(one)[1]):
        while kept and not _above(kept[-2:], average, measured):
            kept.pop()
        kept.append(average)
    if len(kept) < 2:
        return []
    parts = np.linspace(0.0, 1.0, _MIXTURES, endpoint=False).tolist()
    mixed = [(1.0 - part) * a + part * b for a, b in pairwise(kept) for part in parts]
    return [measured(average) for average in (*mixed, kept[-1])]


def _above(last: list[Any], new: Any, measured: Any) -> bool:
    """Whether the last corner is above the line from the one before to a new one, and has more
    utility than that.
    """
    (u, g), (u2, g2) = measured(last[-1])[:2], measured(new)[:2]
    if not (u > u2 + _APART * abs(u) and g2 > g + _APART * abs(g)):
        return False
    if len(last) == 1:
        return True
    u0, g0 = measured(last[0])[:2]
    return bool((u0 - u) * (g2 - g) < (u - u2) * (g - g0))


def main() -> None:
    """Evaluate the objectives on stdin."""
    with suppress(OSError):
        os.nice(_NICE)
    agent_bytes, packed, texts = unpack(sys.stdin.buffer.read())
    contexts = [CONTEXTS[kind](*parts) for kind, *parts in packed]
    write = sys.stdout.buffer.write
    try:
        for answer in evaluate(Agent.restore(agent_bytes), contexts, texts):
            write(msgspec.json.encode(answer) + b"\n")
            sys.stdout.buffer.flush()
    except FairwolfeError as error:
        write(msgspec.json.encode({"failed": str(error)}) + b"\n")


if __name__ == "__main__":
    main()
