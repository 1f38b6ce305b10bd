"""Questions that find beta: what is asked, what answers say, and how far they can be trusted."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.environments import FactorModel, FiniteRanking, dcg
from fairwolfe.errors import InvalidInput
from fairwolfe.fairness import Elicitation, Reachable
from fairwolfe.fairness.elicit import Curve, Question
from fairwolfe.fairness.tradeoff import plan
from fairwolfe.objectives import GiniWelfare, TwoSided

WORLD = FactorModel(12, 9, dcg(3), n_factors=3)


@cache
def reached() -> Reachable:
    return plan(WORLD, "gini", None, floors=(), seeds=1, horizon=1).reach()


@cache
def curve() -> Curve:
    return Curve.of(reached())


def better(question: Question, beta: float) -> float:
    """By how much a is better than b."""
    a, b = question.a, question.b
    return a.utility - b.utility + beta * (a.item_objective - b.item_objective)


def interview(
    beta: float, n: int, noise: float = 0.0, rng: Any = None, assumed: float | None = None
) -> Elicitation:
    questions = Elicitation(curve(), noise=assumed)
    for _ in range(n):
        difference = better(questions.ask(), beta)
        if noise:
            difference += noise * rng.logistic()
        questions.answer("a" if difference > 0.0 else "b")
    return questions


def loss(beta: float, chosen: float) -> float:
    """What an owner loses, as a part of f."""
    f = curve().sides[:, 0] + beta * curve().sides[:, 1]
    return float(1.0 - f[curve().best(np.array([chosen]))[0]] / f.max())


def owners(n: int, rng: Any) -> Any:
    low, high = np.log(curve().betas)
    return np.exp(rng.uniform(low, high, n))


# --- questions ---------------------------------------------------------------------------------


def test_both_sides_can_be_reached() -> None:
    frontier = reached().frontier
    questions = fw.elicit(reached())
    for answer in ("a", "b", "equal", "a", "b", "b", "a", "equal"):
        question = questions.ask()
        for side in (question.a, question.b):
            assert side.utility <= frontier.upper(side.item_objective)[0] + 1e-9
            # On the frontier, or so near that no beta tells the difference.
            assert side.utility >= frontier.lower(side.item_objective)[0] - 1e-9
        fairer = question.a.item_objective > question.b.item_objective
        assert fairer == (question.a.utility < question.b.utility)
        questions.answer(answer)
    assert questions.done


def test_a_question_says_both_sides_in_words() -> None:
    question = fw.elicit(reached()).ask()
    words, a, b = question.sentence, question.a, question.b
    change = f"{100 * (b.utility / a.utility - 1.0):+.2g} %"
    assert f"{a.utility:.3g} clicks and {100 * a.bottom_half:.0f} % of exposure for the" in words
    assert f", or {b.utility:.3g} clicks ({change}) and {100 * b.bottom_half:.0f} %?" in words
    assert "least exposed half of the items" in words


def test_it_is_the_same_question_until_it_is_answered() -> None:
    questions = fw.elicit(reached())
    assert questions.ask() is questions.ask()
    with pytest.raises(InvalidInput, match="the answer is 'yes'; give 'a', 'b' or 'equal'"):
        questions.answer("yes")
    assert questions.answers == ()
    questions.answer("a")
    assert questions.ask().number == 2


def test_the_same_answers_are_the_same_elicitation() -> None:
    rng = np.random.default_rng(4)
    first = interview(0.2, 10, 0.02, rng)
    again = Elicitation(curve(), answers=first.answers)
    assert again.answers == first.answers
    assert again.ask() == first.ask()
    assert (again.beta, again.interval(), again.noise) == (
        first.beta,
        first.interval(),
        first.noise,
    )


def test_one_question_in_eight_was_asked_before() -> None:
    questions = interview(0.2, 16)
    asked = questions._asked
    again = [q for q in asked if q.repeats is not None]
    assert [q.number for q in again] == [6, 14]
    for question in again:
        first = asked[question.repeats - 1]  # type: ignore[operator]
        assert (question.a, question.b) == (first.b, first.a)
        assert question.beta == pytest.approx(first.beta)


def test_a_trade_off_of_small_betas_is_asked_about_to_its_end() -> None:
    found = plan(WORLD, "gini", (0.0, 0.01), floors=(), seeds=1, horizon=1).reach()
    low, high = fw.elicit(found).curve.betas
    assert low < 0.05
    assert high == pytest.approx(curve().betas[1], rel=0.1)


def test_ends_that_are_free_or_infinitely_dear() -> None:
    sides = [[1.0, 0.0, 0.9, 0.1], [1.0, 0.5, 0.5, 0.3], [0.6, 0.9, 0.1, 0.4], [0.1, 0.9, 0.1, 0.4]]
    sides[-1][1] += 1e-12
    steep = Curve(np.array(sides))
    low, high = steep.betas
    assert 0.0 < low < 0.4 / 0.4 < high < np.inf
    questions = Elicitation(steep)
    for _ in range(8):
        questions.answer("a" if better(questions.ask(), 1.0) > 0.0 else "b")
    assert np.isfinite(questions.interval(0.9)).all()


# --- answers -----------------------------------------------------------------------------------


def test_exact_answers_halve_what_is_known() -> None:
    rng = np.random.default_rng(0)
    widths = []
    for beta in owners(20, rng):
        questions = Elicitation(curve(), noise=0.0)
        mine = [_width(questions)]
        for _ in range(5):  # the sixth was asked before
            questions.answer("a" if better(questions.ask(), beta) > 0.0 else "b")
            mine.append(_width(questions))
        low, high = questions.interval(0.998)
        assert low * 0.98 <= beta <= high * 1.02
        widths.append(mine)
    ratios = np.array(widths)[:, 1:] / np.array(widths)[:, :-1]
    assert ratios.max() < 0.65
    assert np.mean(ratios) == pytest.approx(0.5, abs=0.03)


def _width(questions: Elicitation) -> float:
    low, high = (questions._quantile(part) for part in (0.001, 0.999))
    return float(np.log(high / low))


def test_eight_answers_are_enough_for_most() -> None:
    rng = np.random.default_rng(1)
    betas = owners(40, rng)
    exact = [loss(beta, interview(beta, 8).beta) for beta in betas]
    assert np.mean(exact) < 1e-4
    assert max(exact) < 1e-3
    top = curve().sides[0, 0]
    noisy = [loss(beta, interview(beta, 8, 0.005 * top, rng).beta) for beta in betas]
    assert np.mean(noisy) < 1e-3
    # A beta that nobody chose, the paper's grid's 0.3, loses ten times as much.
    assert np.mean([loss(beta, 0.3) for beta in betas]) > 10 * np.mean(noisy)


def test_intervals_cover_what_they_say_and_not_with_a_tenth_of_the_noise() -> None:
    noise = 0.01 * curve().sides[0, 0]
    covered = {}
    for assumed in (noise, 0.1 * noise):
        rng = np.random.default_rng(2)
        inside = []
        for beta in owners(200, rng):
            low, high = interview(beta, 8, noise, rng, assumed).interval(0.9)
            inside.append(low <= beta <= high)
        covered[assumed] = np.mean(inside)
    assert 0.85 <= covered[noise] <= 0.95
    assert covered[0.1 * noise] < 0.6


@pytest.mark.parametrize("noise", [0.0, None])
def test_the_interval_of_an_owner_beyond_the_grid_is_open(noise: float | None) -> None:
    low, high = curve().betas
    for beta, end in ((10.0 * high, 1), (0.1 * low, 0)):
        questions = Elicitation(curve(), noise=noise)
        while not questions.done:
            questions.answer("a" if better(questions.ask(), beta) > 0.0 else "b")
        interval = questions.interval(0.9)
        assert interval[0] <= beta <= interval[1]
        assert interval[end] == (0.0, np.inf)[end]
        assert 0.0 < interval[1 - end] < np.inf
        assert ("above", "below")[1 - end] in questions.sentences()[0]


def test_about_equal_leads_to_the_beta_of_the_question() -> None:
    questions = Elicitation(curve(), noise=0.01)
    question = questions.ask()
    before = _width(questions)
    questions.answer("equal")
    assert questions.beta == pytest.approx(question.beta, rel=0.3)
    assert _width(questions) <= before
    low, high = questions.interval(0.5)
    assert low < question.beta < high
    # Exactly between what the other two answers say.
    lower, upper = (Elicitation(curve(), noise=0.01, answers=one).beta for one in "ab")
    assert lower < questions.beta < upper


def test_noise_is_learnt() -> None:
    rng = np.random.default_rng(7)
    span = float(np.ptp(curve().sides[:, 0]))
    exact, noisy = (
        np.mean([interview(beta, 16, noise * span, rng).noise for beta in owners(15, rng)])
        for noise in (0.0, 0.2)
    )
    assert noisy > 3 * exact


def test_answers_that_contradict_each_other_are_said_with_their_noise() -> None:
    questions = Elicitation(curve())
    for i in range(8):
        question = questions.ask()
        # More utility and then more equality, by turns, whatever is asked.
        first = "a" if question.a.utility > question.b.utility else "b"
        answer = first if i % 2 else ("b" if first == "a" else "a")
        if question.repeats is not None:  # the same letter is the other side now
            answer = questions.answers[question.repeats - 1]
        questions.answer(answer)
    assert questions.contradictions
    said = " ".join(questions.sentences())
    assert "contradict each other" in said
    assert "sides exchanged, and got another answer" in said
    assert f"about {questions.noise:.2g} clicks" in said
    consistent = interview(0.2, 8)
    assert consistent.contradictions == []
    assert "got the same answer" in " ".join(consistent.sentences())
    assert questions.noise > consistent.noise
    assert _width(questions) > _width(consistent)


def test_what_answers_say() -> None:
    questions = Elicitation(curve())
    assert questions.sentences() == ["Nothing was answered, so nothing is known of beta."]
    questions.answer("a")
    (said,) = questions.sentences()
    assert said.startswith(f"After 1 answer beta = {questions.beta:.3g}, with 90 % below ")
    assert repr(questions) == f"Elicitation: {said}"


def test_the_objective_is_ready_for_an_agent() -> None:
    questions = fw.elicit(reached(), answers=("a", "b", "a"))
    assert questions.objective == TwoSided(reached().items, questions.beta)
    problem = WORLD.problem()
    agent = fw.Agent(
        fw.ranking.FWLinUCBRank(TwoSided(GiniWelfare(), 1.0), exploration="theorem"), problem
    )
    agent.replace_objective(questions.objective)
    with pytest.raises(InvalidInput, match="not asked about a trade-off"):
        _ = Elicitation(curve()).objective


def test_what_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the trade-off is 3"):
        fw.elicit(3)  # type: ignore[arg-type]
    for noise in (-1.0, np.nan, np.inf):
        with pytest.raises(InvalidInput, match="noise is"):
            fw.elicit(curve(), noise=noise)
    with pytest.raises(InvalidInput, match="the answer is 'c'"):
        fw.elicit(curve(), answers=("a", "c"))
    for level in (0.0, 1.0):
        with pytest.raises(InvalidInput, match="level is"):
            fw.elicit(curve()).interval(level)
    free = plan(FiniteRanking.b1(), "gini", (0.0,), floors=(), seeds=1, horizon=1).reach()
    with pytest.raises(InvalidInput, match="there is nothing to ask"):
        Curve.of(free)
    with pytest.raises(InvalidInput, match="there is nothing to ask"):
        Curve(curve().sides[::-1])
    for sides in (curve().sides[:1], curve().sides[:, :2], curve().sides * np.nan):
        with pytest.raises(InvalidInput, match="sides has shape"):
            Curve(sides)
