"""What another f would give, by today's estimates: a process of its own, spawned and nice.

The world of the question is made of what the model has learnt (the parameters of each reward), of
the contexts that it saw last, and of how often each slot was exposed; its optimum is certified, the
world is not. The process reads the question from stdin and writes a line of JSON for each answer.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import sys
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np

from fairwolfe.agent import Agent
from fairwolfe.core.contexts import Bilinear, PerArm, arms
from fairwolfe.core.packing import pack, unpack
from fairwolfe.environments import FactorModel, Finite
from fairwolfe.errors import FairwolfeError, InvalidInput
from fairwolfe.fairness import elicit
from fairwolfe.fairness.elicit import Curve
from fairwolfe.objectives import Concave, TwoSided
from fairwolfe.service.events import ObjectiveReplaced
from fairwolfe.service.model import Model, read_objective
from fairwolfe.service.refusal import Refused
from fairwolfe.service.watch import parts_of, shares_of

__all__ = ["Answers", "Asker", "Question", "WhatIf", "beta_of", "world_of"]

_NICE = 10
_SECONDS = 120.0  # for an answer
_MOST_KEPT = 20  # questions
_MOST_TEXTS = 5
_TOLERANCE = 1e-3
_LONGEST = 1 << 24  # bytes of a line
_CURVE = 20  # parts of a Lorenz curve
_STEPS = (0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # of the current beta
_APART = 1e-3  # relative: what is nearer than this is the same corner
_MIXTURES = 12  # between the answers for two neighbouring betas
_MOST_ANSWERS = 32
_FROM_ZERO = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)


class WhatIf(msgspec.Struct, forbid_unknown_fields=True):
    """Values of beta, or whole objectives; neither: a range around the current beta."""

    beta: Annotated[list[Annotated[float, msgspec.Meta(ge=0.0)]], msgspec.Meta(max_length=25)] = []
    objectives: Annotated[list[str], msgspec.Meta(max_length=_MOST_TEXTS)] = []


class Answers(msgspec.Struct, forbid_unknown_fields=True):
    """What was answered to the questions so far."""

    answers: Annotated[
        list[Literal["a", "b", "equal"]], msgspec.Meta(max_length=_MOST_ANSWERS)
    ] = []


# --- beta --------------------------------------------------------------------------------------


def beta_of(objective: Concave) -> float | None:
    """The weight of the items against the users; None where there is none."""
    return next((p.beta for p in parts_of(objective) if isinstance(p, TwoSided)), None)


def with_beta(objective: Concave, beta: float) -> Concave:
    """The same with another beta."""
    if isinstance(objective, TwoSided):
        return replace(objective, beta=beta)
    if is_dataclass(objective):
        for field in fields(objective):
            value = getattr(objective, field.name)
            changed: Any = None
            if isinstance(value, Concave) and beta_of(value) is not None:
                changed = with_beta(value, beta)
            elif isinstance(value, tuple):
                changed = tuple(
                    with_beta(part, beta)
                    if isinstance(part, Concave) and beta_of(part) is not None
                    else part
                    for part in value
                )
            if changed is not None and changed != value:
                return replace(objective, **{field.name: changed})
    return objective


# --- questions, in the service -----------------------------------------------------------------


class Question:
    """A what-if, and what came of it so far."""

    def __init__(self, model: Model, texts: list[str], contexts: int) -> None:
        self.id = secrets.token_hex(8)
        self.model, self.version, self.t = model.name, model.version, model.t
        self.texts, self.contexts = texts, contexts
        self.state, self.message = "running", ""
        self.points: list[dict[str, Any]] = []
        self.curve: list[list[float]] = []  # of trade-offs: `fairness.elicit.Curve`
        self.reward = model.rewards[0] if len(model.rewards) == 1 else "utility"

    def told(self) -> dict[str, Any]:
        """As it is told."""
        return {
            "id": self.id,
            "state": self.state,
            "message": self.message or None,
            "version": self.version,
            "t": self.t,
            "contexts": self.contexts,
            "asked": len(self.texts),
            "points": self.points,
            "questions": bool(self.curve),
            "note": "by today's estimates, not guaranteed",
        }

    def interview(self, answers: Sequence[str]) -> dict[str, Any]:
        """The next question between trade-offs of this what-if, and what the answers say of beta;
        the same answers give the same questions.
        """
        if not self.curve:
            raise Refused(
                409,
                "no_questions",
                "there is nothing to choose between: ask first what several values of beta give",
            )
        elicitation = elicit(Curve(np.array(self.curve), self.reward), answers=answers)
        low, high = elicitation.interval(0.9)
        told: dict[str, Any] = {"done": elicitation.done, "question": None}
        if not elicitation.done:
            told["question"] = asdict(elicitation.ask())
        known = {"beta": elicitation.beta, "low": low, "high": high} if answers else {}
        return {**told, **known, "sentences": elicitation.sentences()}


class Asker:
    """Who asks the other process, one question at a time, and keeps the last answers."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._kept: OrderedDict[str, Question] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None

    def find(self, model: Model, id: str) -> Question:
        """A question by its id."""
        found = self._kept.get(id)
        if found is None or found.model != model.name:
            raise Refused(404, "unknown_question", f"there is no what-if {id!r:.80}", "id")
        return found

    async def ask(self, model: Model, contexts: Sequence[Any], body: WhatIf) -> Question:
        """Begin to answer; Refused where the question cannot be, or another one is under way."""
        if model.agent is None or model.t == 0 or not contexts:
            raise Refused(
                409,
                "nothing_seen",
                f"model {model.name!r} has learnt from {model.t} decisions, and has seen "
                f"{len(contexts)} contexts since the service began; ask when there are some",
            )
        texts = await _asked(model, body)
        if self._task is not None and not self._task.done():
            raise Refused(
                429, "busy", "another what-if is being computed; ask again soon", retry_after=2.0
            )
        data = pack((model.agent.dump(), tuple(map(_packed, contexts)), tuple(texts)))
        question = Question(model, texts, len(contexts))
        self._kept[question.id] = question
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        self._task = asyncio.create_task(self._answer(question, data))
        return question

    async def _answer(self, question: Question, data: bytes) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await self._run(question, data)
        except TimeoutError:
            question.message = f"it took more than {self._seconds:g} s; ask for fewer values"
        except (OSError, ValueError) as error:
            question.message = f"the process that computes it failed: {error}"
        finally:
            self._kill()
        if not question.message and len(question.points) < len(question.texts):
            question.message = "the process that computes it has ended too early"
        question.state = "failed" if question.message else "done"

    async def _run(self, question: Question, data: bytes) -> None:
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", __name__),
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
                question.message = answer["failed"]
            elif "curve" in answer:
                question.curve = answer["curve"]
            else:
                question.points.append(answer)
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


async def _asked(model: Model, body: WhatIf) -> list[str]:
    """The texts of the objectives of a question, each of which could be applied."""
    current = read_objective(model.objective)
    assert current is not None
    beta = beta_of(current)
    texts = list(body.objectives)
    if body.beta or not texts:
        if beta is None:
            raise Refused(
                422,
                "no_beta",
                f"the objective {model.objective!r:.80} has no beta; give objectives",
                "beta" if body.beta else None,
            )
        steps = [beta * step for step in _STEPS] if beta else list(_FROM_ZERO)
        texts += [repr(with_beta(current, one)) for one in sorted({*(body.beta or steps), beta})]
    for place, text in enumerate(body.objectives):
        try:
            if read_objective(text) is None:
                raise InvalidInput("it is empty; give an objective such as Minimum()")
            # The same rule as where it is applied; it may have to compile something.
            event = ObjectiveReplaced(model.number, text)
            await asyncio.to_thread(model.copy().apply, event, 0, 0.0)
        except FairwolfeError as error:
            raise Refused(422, "invalid", str(error), f"objectives[{place}]") from error
        texts[place] = repr(read_objective(text))
    return texts


def _packed(context: Any) -> tuple[Any, ...]:
    if isinstance(context, PerArm):
        return ("per-arm", np.asarray(context.features))
    if isinstance(context, Bilinear):
        return ("bilinear", np.asarray(context.user), np.asarray(context.items))
    return ("plain", np.asarray(context))


# --- answers, in the process of their own ------------------------------------------------------


class World(NamedTuple):
    """A world of today's estimates, and what its rewards are called."""

    environment: FactorModel | Finite
    rewards: tuple[str, ...]
    n_items: int


def world_of(agent: Agent, contexts: Sequence[Any]) -> World:
    """The world that an agent believes in, for users or contexts that it saw."""
    state = agent._state
    while not hasattr(state, "oracle"):
        state = getattr(state, "base", None) or getattr(state, "policy", None)
        if state is None:
            raise InvalidInput(f"{agent.policy!r:.80} keeps no estimate of each reward")
    problem, oracle = agent.problem, state.oracle
    rewards = tuple(problem.rewards)
    if problem.n_slots is None:
        return World(_choices(problem, oracle, contexts), rewards, 0)
    users = np.stack([np.asarray(user) for user in contexts])
    items = agent.features[agent.items]
    low, high = problem.slot_ranges
    thetas = oracle.theta[0].reshape(len(rewards), users.shape[1], items.shape[1])
    learnt = {
        name: (theta, (float(a), float(b)))
        for name, theta, a, b in zip(rewards, thetas, low, high, strict=True)
    }
    weights = getattr(agent.policy, "position_weights", None) or _looks(state.slots)
    world = FactorModel(users, items, weights, calibration="clip", rewards=learnt)
    return World(world, rewards, len(items))


def _looks(slots: Any) -> list[float]:
    """How often each slot was exposed; none oftener than the one before."""
    from scipy.optimize import isotonic_regression

    shown, exposed = slots
    if not shown.min() > 0.0:
        raise InvalidInput("nothing has been shown yet")
    fitted = isotonic_regression(exposed / shown, weights=shown, increasing=False).x
    return np.clip(fitted, 0.0, 1.0).tolist()  # type: ignore[no-any-return]


def _choices(problem: Any, oracle: Any, contexts: Sequence[Any]) -> Finite:
    """Contexts with the estimated rewards of their arms; they are told apart by their number."""
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


def answers(
    agent: Agent, contexts: Sequence[Any], texts: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """The best that each objective can give in the world of today's estimates; at the end, where
    they differ in beta, the curve of trade-offs that they make.
    """
    from fairwolfe.truth import optimum

    world = world_of(agent, contexts)
    corners: list[Any] = []
    for text in texts:
        objective = read_objective(text)
        assert objective is not None
        answer: dict[str, Any] = {"objective": text, "beta": beta_of(objective), "message": None}
        try:
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
            answer |= shares_of(best.average[: world.n_items], _CURVE)
            if best.feasible and answer["beta"] is not None:
                corners.append(best.average)
        yield answer
    sides = _curve(world, texts[0], corners) if len(corners) > 1 else []
    if sides:
        yield {"curve": sides}


def _curve(world: World, text: str, corners: list[Any]) -> list[list[float]]:
    """Utility, item objective, Gini index and the share of the least shown half, from the most
    utility to the fairest: at the corners of the frontier, and at mixtures of neighbours.
    """
    objective = read_objective(text)
    assert objective is not None
    bound = with_beta(objective, 1.0).bind(world.environment.problem())
    items, users = next(p for p in parts_of(bound) if isinstance(p, TwoSided)).members

    def measured(average: Any) -> list[float]:
        exposures = np.maximum(average[: world.n_items], 0.0)
        shares = shares_of(exposures, 2)
        sides = (users.value(average[world.n_items :]), items.value(average[: world.n_items]))
        return [*sides, shares["gini"], shares["least_half"]]

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
    """Answer the question on stdin."""
    with suppress(OSError):
        os.nice(_NICE)
    agent_bytes, packed, texts = unpack(sys.stdin.buffer.read())
    kinds: dict[str, Any] = {"per-arm": PerArm, "bilinear": Bilinear, "plain": lambda x: x}
    contexts = [kinds[kind](*parts) for kind, *parts in packed]
    write = sys.stdout.buffer.write
    try:
        for answer in answers(Agent.restore(agent_bytes), contexts, texts):
            write(msgspec.json.encode(answer) + b"\n")
            sys.stdout.buffer.flush()
    except FairwolfeError as error:
        write(msgspec.json.encode({"failed": str(error)}) + b"\n")


if __name__ == "__main__":
    main()
