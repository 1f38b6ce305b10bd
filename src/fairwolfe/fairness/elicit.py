"""`elicit`: which beta an owner wants, from a few questions between trade-offs that can be reached.

A question shows two averages of the frontier, one with more utility and one that is fairer. With
f = utility + beta g the first is better by (u_a - u_b) - beta (g_b - g_a): the answer shows
on which side of (u_a - u_b)/(g_b - g_a) beta lies. People err: an answer is right with probability
1/(1 + exp(-difference/noise)), and "about equal" counts as half an answer for either side. What is
known of beta and of the noise is a posterior on a grid, beta and noise uniform in their logarithms
at first; questions are asked around the median of beta.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import ndtri

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.problem import real_number
from fairwolfe.errors import InvalidInput
from fairwolfe.fairness.frontier import Reachable
from fairwolfe.objectives import Concave

QUESTIONS = 8
ANSWERS = ("a", "b", "equal")

_POINTS = 12  # mixtures between two neighbours of the frontier
_BETAS = 400  # of the grid
_NOISES = np.logspace(-2.5, -0.4, 16)  # in units of the range of utility along the frontier
_EXACT = 1e-7  # the noise of answers that are never wrong, in the same units
_EDGE = 0.02  # of the range of utility or of the item objective: betas beyond it count as equal
_RANGE = np.array([1e-4, 1e4])  # of betas, in units of the slope from one end to the other
_WIDE = (0.1, 0.9)  # quantiles of beta between whose optima a question is asked
_NARROWEST = 0.15  # of the range of the item objective: what two sides of a question differ by
_OFF = 0.02  # of beta: how far from its median a question may be, beside sides that fit badly
_AGAIN = 6  # the question, of every eight, that was asked before


@dataclass(frozen=True)
class Side:
    """A trade-off that can be reached."""

    utility: float
    item_objective: float
    gini: float
    bottom_half: float


@dataclass(frozen=True)
class Question:
    """Which of two trade-offs is better."""

    number: int
    """From 1 on."""
    a: Side
    b: Side
    sentence: str
    repeats: int | None = None
    """The number of the question that this one repeats, with its sides exchanged."""

    @property
    def beta(self) -> float:
        """Both sides are equally good for this beta; below it the one with more utility is."""
        return (self.a.utility - self.b.utility) / (self.b.item_objective - self.a.item_objective)


@dataclass(frozen=True, eq=False)
class Curve:
    """Trade-offs that can be reached, from the most utility to the fairest.

    Between the optima of neighbouring betas lie those of policies that use the one for a part of
    the decisions and the other for the rest.
    """

    sides: Matrix
    """utility, item objective, Gini index, share of the least exposed half, (points, 4)."""
    reward: str = "utility"
    """What utility is called."""

    def __post_init__(self) -> None:
        sides = self.sides
        fits = sides.ndim == 2 and sides.shape[1] == 4 and len(sides) > 1
        if not (fits and np.isfinite(sides).all()):
            raise InvalidInput(
                f"sides has shape {sides.shape}; give a row of four finite numbers for each of two "
                "or more trade-offs: utility, item objective, Gini index, share of the least "
                "exposed half"
            )
        if not (sides[0, 0] > sides[-1, 0] and sides[0, 1] < sides[-1, 1]):
            raise InvalidInput(
                "sides do not go from the most utility to the fairest, so there is nothing to ask"
            )

    @classmethod
    def of(cls, reached: Reachable) -> Curve:
        """Of the frontier of a trade-off."""
        hull = {tuple(point) for point in reached.frontier.hull.tolist()}
        points = reached.frontier.points.tolist()
        corners = [
            np.array([best.average for best in optima])
            for point, optima in zip(points, reached.best.values(), strict=True)
            if tuple(point) in hull
        ]
        if len(corners) < 2:
            raise InvalidInput(
                "this trade-off has one best average for all betas, so there is nothing to ask"
            )
        names = ("utility", "item_objective", "gini", "bottom_half")
        sides = []
        for one, two in pairwise(corners):
            for part in np.linspace(0.0, 1.0, _POINTS, endpoint=False):
                measures = reached.measures((1.0 - part) * one + part * two)
                sides.append([measures[name] for name in names])
        measures = reached.measures(corners[-1])
        sides.append([measures[name] for name in names])
        return cls(np.array(sides), reached.reward)

    def side(self, place: int) -> Side:
        """The trade-off at a place of the curve."""
        return Side(*self.sides[place].tolist())

    def best(self, betas: Vector) -> Any:
        """Where utility + beta g is largest, for each beta."""
        u, g = self.sides[:, 0], self.sides[:, 1]
        return (u + np.multiply.outer(betas, g)).argmax(axis=-1)

    @cached_property
    def pairs(self) -> tuple[Any, Any, Vector, Vector]:
        """All pairs of places, the beta between them, and how hard they are to distinguish."""
        u, g = self.sides[:, 0], self.sides[:, 1]
        span = float(np.ptp(g))
        i, j = np.triu_indices(len(g), 1)
        apart = g[j] - g[i]
        kept = (apart > 1e-9 * span) & (u[i] > u[j])
        i, j, apart = i[kept], j[kept], apart[kept]
        narrow = np.maximum(1.0 - apart / (_NARROWEST * span), 0.0)
        return i, j, (u[i] - u[j]) / apart, narrow

    @cached_property
    def betas(self) -> tuple[float, float]:
        """The range of betas that makes a difference: from the first gains to the last losses."""
        u, g = self.sides[:, 0], self.sides[:, 1]
        lost, gained = (u[0] - u) / np.ptp(u), (g - g[0]) / np.ptp(g)
        first = int(np.flatnonzero(gained >= _EDGE)[0])
        last = int(np.flatnonzero(lost <= 1.0 - _EDGE)[-1])
        overall = float(np.ptp(u) / np.ptp(g))
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = [(u[0] - u[first]) / (g[first] - g[0]), (u[last] - u[-1]) / (g[-1] - g[last])]
        low, high = np.clip(np.nan_to_num(slopes, nan=overall), *_RANGE * overall)
        return float(min(low, 0.5 * overall)), float(max(high, 2.0 * overall))


class Elicitation:
    """Questions and answers, and what they show about beta.

    The same answers give the same questions: an elicitation is rebuilt from its answers.
    """

    def __init__(
        self,
        curve: Curve,
        *,
        noise: float | None = None,
        answers: Iterable[str] = (),
        reached: Reachable | None = None,
    ) -> None:
        self.curve = curve
        self._reached = reached
        self._span = float(np.ptp(curve.sides[:, 0]))
        low, high = curve.betas
        self._betas = np.exp(np.linspace(np.log(low), np.log(high), _BETAS))
        noises = _NOISES
        if noise is not None:
            given = real_number("noise", noise)
            if not 0.0 <= given < np.inf:
                raise InvalidInput(
                    f"noise is {noise!r}; give a number of at least 0, in units of "
                    f"{curve.reward}, or None to learn it"
                )
            noises = np.array([max(given / self._span, _EXACT)])
        self._noises = noises * self._span
        self._log_weights = np.zeros((len(noises), _BETAS))
        self._asked: list[Question] = []
        self._answers: list[str] = []
        for answer in answers:
            self.answer(answer)

    # --- questions ------------------------------------------------------------------------------

    @property
    def answers(self) -> tuple[str, ...]:
        """What was answered so far."""
        return tuple(self._answers)

    @property
    def done(self) -> bool:
        """Whether eight questions were answered; more may be asked."""
        return len(self._answers) >= QUESTIONS

    def ask(self) -> Question:
        """The next question; the same one until it is answered."""
        if len(self._asked) == len(self._answers):
            self._asked.append(self._next())
        return self._asked[-1]

    def answer(self, answer: str) -> None:
        """Which side of the question is better: "a", "b", or "equal"."""
        if answer not in ANSWERS:
            raise InvalidInput(f"the answer is {answer!r}; give 'a', 'b' or 'equal'")
        question = self.ask()
        self._answers.append(answer)
        self._log_weights = self._log_weights + self._log_likelihood(question, answer)

    def _next(self) -> Question:
        number = len(self._answers) + 1
        if number % QUESTIONS == _AGAIN:
            return self._repeated(number)
        g = self.curve.sides[:, 1]
        low, middle, high = (self._quantile(p) for p in (_WIDE[0], 0.5, _WIDE[1]))
        first, last = self.curve.best(np.array([low, high])).tolist()
        # Of all pairs: halving what is known comes first, then the optima of the quantiles.
        i, j, slopes, narrow = self.curve.pairs
        off = np.abs(np.log(slopes / middle))
        far = np.abs(g - g[first])[i] + np.abs(g - g[last])[j]
        best = int(np.argmin(off / _OFF + far / float(np.ptp(g)) + narrow))
        sides = self.curve.side(int(i[best])), self.curve.side(int(j[best]))
        a, b = sides if number % 2 else sides[::-1]
        return Question(number, a, b, _words(a, b, self.curve.reward))

    def _repeated(self, number: int) -> Question:
        """Ask again what shows most about the noise, with the sides exchanged."""
        old = [question for question in self._asked[-QUESTIONS:] if question.repeats is None]
        weights = self._posterior()
        by_noise = weights.sum(axis=1)
        gains = []
        for question in old:
            first = np.exp(self._log_likelihood(question, "a"))
            chance = (weights * first).sum(axis=1) / by_noise
            gains.append(_entropy(by_noise @ chance) - by_noise @ _entropy(chance))
        again = old[int(np.argmax(gains))]
        a, b = again.b, again.a
        words = _words(a, b, self.curve.reward)
        return Question(number, a, b, words, again.number)

    # --- answers --------------------------------------------------------------------------------

    def _log_likelihood(self, question: Question, answer: str) -> Matrix:
        """Of an answer, by noise and beta."""
        a, b = question.a, question.b
        better = (a.utility - b.utility) + self._betas * (a.item_objective - b.item_objective)
        x = better / self._noises[:, None]
        of_a, of_b = -np.logaddexp(0.0, -x), -np.logaddexp(0.0, x)
        if answer == "equal":
            return np.asarray(0.5 * (of_a + of_b))
        return np.asarray(of_a if answer == "a" else of_b)

    def _posterior(self) -> Matrix:
        weights = np.exp(self._log_weights - self._log_weights.max())
        return np.asarray(weights / weights.sum())

    def _quantile(self, part: float) -> float:
        """Of beta, between the points of the grid."""
        below = np.concatenate([[0.0], np.cumsum(self._posterior().sum(axis=0))])
        logs = np.log(self._betas)
        half = 0.5 * (logs[1] - logs[0])
        edges = np.concatenate([logs - half, [logs[-1] + half]])
        return float(np.exp(np.interp(part, below / below[-1], edges)))

    @property
    def beta(self) -> float:
        """The median of what is known."""
        return self._quantile(0.5)

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Beta lies in it with this probability, as far as the model of the noise is right.

        The interval is open (0 or inf) at an end of the grid that the answers do not rule out: no
        question separates the last beta of the grid from those beyond it. They rule it out where
        its likelihood is below the largest by more than a normal quantile: exp(-z^2/2).
        """
        number = real_number("level", level)
        if not 0.0 < number < 1.0:
            raise InvalidInput(f"level is {level!r}; give a probability between 0 and 1")
        tail = 0.5 * (1.0 - number)
        likely = self._posterior().sum(axis=0)  # of beta, whose logarithm is uniform at first
        first, last = likely[[0, -1]] >= likely.max() * np.exp(-0.5 * ndtri(tail) ** 2)
        low = 0.0 if first else self._quantile(tail)
        return low, np.inf if last else self._quantile(1.0 - tail)

    @property
    def noise(self) -> float:
        """By how much answers are off, in units of utility: the median of what is known."""
        below = np.cumsum(self._posterior().sum(axis=1))
        return float(self._noises[int(np.searchsorted(below, 0.5))])

    @property
    def objective(self) -> Concave:
        """f with this beta, for `Agent.replace_objective`."""
        if self._reached is None:
            raise InvalidInput("these questions were not asked about a trade-off of this library")
        return self._reached.objective(self.beta)

    # --- words ----------------------------------------------------------------------------------

    @property
    def contradictions(self) -> list[str]:
        """Answers that no beta explains, in words; empty if there are none."""
        texts = []
        pairs = list(zip(self._asked, self._answers, strict=False))
        for question, answer in pairs:
            if question.repeats is not None:
                before = self._answers[question.repeats - 1]
                if answer != {"a": "b", "b": "a", "equal": "equal"}[before]:
                    texts.append(
                        f"question {question.number} was question {question.repeats} with its "
                        "sides exchanged, and got another answer"
                    )
        bounds: dict[bool, list[tuple[float, int]]] = {True: [], False: []}
        for question, answer in pairs:
            if answer != "equal":
                fairer = "b" if question.b.utility < question.a.utility else "a"
                bounds[answer == fairer].append((question.beta, question.number))
        if bounds[True] and bounds[False]:
            (low, one), (high, two) = max(bounds[True]), min(bounds[False])
            if low > high * (1.0 + 1e-9):
                texts.append(
                    f"by question {one} beta is at least {low:.3g}, by question {two} at most "
                    f"{high:.3g}"
                )
        return texts

    def sentences(self) -> list[str]:
        """What the answers show, in plain words."""
        n = len(self._answers)
        if not n:
            return ["Nothing was answered, so nothing is known of beta."]
        low, high = self.interval(0.9)
        place = self.curve.side(int(self.curve.best(np.array([self.beta]))[0]))
        what = self.curve.reward
        texts = [
            f"After {n} answer{'s' * (n > 1)} beta = {self.beta:.3g}, {_span(low, high)}: "
            f"{_of(place, what)}."
        ]
        noise = f"about {self.noise:.2g} {what} ({100 * self.noise / self._top:.2g} %)"
        contradictions = self.contradictions
        if contradictions:
            texts.append(
                f"Your answers contradict each other: {'; '.join(contradictions)}. That is the "
                f"noise of answers that are off by {noise}, and the interval allows for it."
            )
        elif any(question.repeats for question in self._asked[:n]):
            texts.append(
                "The question that was asked twice got the same answer, and some beta explains "
                f"all answers: they are off by {noise} or less."
            )
        return texts

    @property
    def _top(self) -> float:
        return float(np.abs(self.curve.sides[:, 0]).max())

    def __repr__(self) -> str:
        return f"Elicitation: {self.sentences()[0]}"


def elicit(
    tradeoff: Reachable | Curve, *, noise: float | None = None, answers: Iterable[str] = ()
) -> Elicitation:
    """Questions that find the beta of an owner; eight of them are enough for most.

    More betas are computed first, where the frontier of the trade-off has gaps or ends early.

    Parameters
    ----------
    tradeoff: what `fw.tradeoff` returned, or a `Curve` of averages that can be reached
    noise: by how much answers are off, in units of utility; 0: never; None: learnt from them
    answers: given before, to the same questions

    >>> from fairwolfe.environments import FactorModel, dcg
    >>> import fairwolfe as fw
    >>> result = fw.tradeoff(FactorModel(12, 9, dcg(3)), floors=(), horizon=100, seeds=1)
    >>> questions = elicit(result)
    >>> for _ in range(8):
    ...     question = questions.ask()
    ...     questions.answer("a" if question.a.utility + 0.4 * question.a.item_objective
    ...                      > question.b.utility + 0.4 * question.b.item_objective else "b")
    >>> low, high = questions.interval(0.9)
    >>> low < 0.4 < high
    True
    """
    if isinstance(tradeoff, Curve):
        return Elicitation(tradeoff, noise=noise, answers=answers)
    if not isinstance(tradeoff, Reachable):
        raise InvalidInput(f"the trade-off is {tradeoff!r:.80}; give what fw.tradeoff returned")
    fine = tradeoff if tradeoff.optima is None else tradeoff.refined()
    return Elicitation(Curve.of(fine), noise=noise, answers=answers, reached=fine)


def _entropy(chance: Any) -> Any:
    p = np.clip(chance, 1e-12, 1.0 - 1e-12)
    return -(p * np.log(p) + (1.0 - p) * np.log(1.0 - p))


def _words(a: Side, b: Side, reward: str) -> str:
    """Both sides, with as many digits as make them differ."""
    for digits in (3, 4, 5, 6):
        first, second = (f"{side.utility:.{digits}g}" for side in (a, b))
        if first != second:
            break
    shares = [f"{100 * side.bottom_half:.0f}" for side in (a, b)]
    if shares[0] == shares[1]:
        shares = [f"{100 * side.bottom_half:.1f}" for side in (a, b)]
    change = f" ({100 * (b.utility / a.utility - 1.0):+.2g} %)" if a.utility else ""
    return (
        f"{first} {reward} and {shares[0]} % of exposure for the least exposed half of the items, "
        f"or {second} {reward}{change} and {shares[1]} %?"
    )


def _span(low: float, high: float) -> str:
    """A 90 % interval in words."""
    if high < np.inf:
        return f"with 90 % {f'between {low:.3g} and' if low else 'below'} {high:.3g}"
    return f"with 90 % above {low:.3g}" if low else "with no limits yet"


def _of(side: Side, reward: str) -> str:
    return (
        f"{side.utility:.3g} {reward}, and {100 * side.bottom_half:.0f} % of exposure for the "
        "least exposed half of the items"
    )
