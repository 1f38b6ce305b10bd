"""What another f would give, by today's estimates: computed in a separate process, spawned and
nice, and questions that find a beta.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from fairwolfe.errors import FairwolfeError, InvalidInput
from fairwolfe.fairness import elicit
from fairwolfe.fairness.elicit import Curve
from fairwolfe.service import estimated, wire
from fairwolfe.service.betas import beta_of, with_beta
from fairwolfe.service.estimated import question_of
from fairwolfe.service.events import ObjectiveReplaced
from fairwolfe.service.model import Model, read_objective
from fairwolfe.service.refusal import Refused, invalid

__all__ = ["Answers", "Asker", "Question", "WhatIf"]

_SECONDS = 120.0  # for an answer
_MOST_KEPT = 20  # questions
_MOST_TEXTS = 5
_LONGEST = 1 << 24  # bytes of a line
_STEPS = (0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # of the current beta
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


class Asker:
    """Who asks the other process, one question at a time, and keeps the last answers."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._kept: OrderedDict[str, Question] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None

    def find(self, model: Model, id: str) -> Question:
        """A question by its id."""
        question = self._kept.get(id)
        if question is None or question.model != model.name:
            raise Refused(404, "unknown_question", f"there is no what-if {id!r:.80}", "id")
        return question

    async def ask(self, model: Model, contexts: Sequence[Any], body: WhatIf) -> Question:
        """Begin to answer; Refused where the question cannot be, or another one is under way."""
        if model.agent is None or model.t == 0 or not contexts:
            raise Refused(
                409,
                "nothing_seen",
                f"model {model.name!r} has learnt from {model.t} decisions, and has seen "
                f"{len(contexts)} contexts since the service began; ask when there are some",
            )
        texts = await _texts(model, body)
        if self._task is not None and not self._task.done():
            raise Refused(
                429, "busy", "another what-if is being computed; ask again soon", retry_after=2.0
            )
        data = question_of(model.agent, contexts, texts)
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
            *(sys.executable, "-P", "-m", estimated.__name__),
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


async def _texts(model: Model, body: WhatIf) -> list[str]:
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
        texts[place] = repr(wire.objective_of(text, model, f"objectives[{place}]"))
    if body.objectives:
        await asyncio.to_thread(_try, model.copy(), texts[: len(body.objectives)])
    return texts


def _try(copy: Model, texts: Sequence[str]) -> None:
    """Apply objectives to a copy, by the rule of PUT objective."""
    for place, text in enumerate(texts):
        try:
            copy.apply(ObjectiveReplaced(copy.number, text), 0, 0.0)
        except FairwolfeError as error:
            raise invalid(error, f"objectives[{place}]") from error
