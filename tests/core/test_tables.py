"""Results print in a few lines, however large they are, and as a small table in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from fairwolfe import Problem
from fairwolfe.core.decision import Decision
from fairwolfe.fairness.tradeoff import FAIR, FLOOR, TradeOff, name_of
from fairwolfe.objectives import Concave, GeneralizedGini, GiniWelfare, Minimum, TwoSided
from fairwolfe.simulation import Comparison, Trace
from fairwolfe.truth import Optimum

ITEMS, MANY = 2_500, 50
RANKINGS = Problem.ranking(ITEMS, 10, 4)
HOSTILE = "<script>alert('&')</script>\n\"bold\" " + 40 * "and long "


def trace(problem: Problem, objective: Concave, **changes: Any) -> Trace:
    n, rng = problem.n_objectives, np.random.default_rng(0)
    settings: dict[str, Any] = {
        "t": np.array([10, 2_000]),
        "average": rng.random((2, n)),
        "average_observed": rng.random((2, n)),
        "scalar_regret": np.array([1.0, 12.3456]),
        "scalar_pseudo_regret": np.array([1.0, 12.0]),
        "objective": objective.bind(problem),
        "problem": problem,
        "seed": 7,
        "seconds": 0.05,
        "compiled": True,
        "complete": True,
        "actions": np.zeros(2_000, dtype=np.int64),
    }
    return Trace(**(settings | changes))


LARGE = trace(RANKINGS, TwoSided(GeneralizedGini(tuple(1.0 / np.arange(1, ITEMS + 1)))))
OPTIMUM = Optimum(0.5, 0.5000012, np.full(ITEMS + 1, 0.25))
COMPARISON = Comparison({f"{i} {HOSTILE}": (LARGE, LARGE) for i in range(MANY)}, (0, 1))
BETAS = tuple(float(b) for b in range(MANY))
TRADE = TradeOff(
    problem=RANKINGS,
    items=GiniWelfare(),
    betas=BETAS,
    floors=(0.0, 0.1),
    comparison=Comparison(
        {name_of(FAIR, b): (LARGE, LARGE) for b in BETAS} | {name_of(FLOOR, 0.0): (LARGE, LARGE)},
        (0, 1),
    ),
    best=dict.fromkeys(BETAS, (OPTIMUM, OPTIMUM)),
)
EVIDENCE = ((np.ones((ITEMS, 4)), np.ones(3), ()), None, None, (1, np.ones(1)))
DECISION = Decision(HOSTILE, 12, np.arange(ITEMS), 0.25, EVIDENCE)

RESULTS = {type(x).__name__: x for x in (LARGE, COMPARISON, OPTIMUM, TRADE, DECISION)}


class Page(HTMLParser):
    """The text of a page, whose tags must be closed in order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


@pytest.mark.parametrize("name", RESULTS)
def test_what_is_printed_is_short(name: str) -> None:
    text = repr(RESULTS[name])
    assert str(RESULTS[name]) == text
    assert text.startswith(name)
    assert len(text.splitlines()) <= 10
    assert len(text) <= 1_000


@pytest.mark.parametrize("name", RESULTS)
def test_what_a_notebook_shows_is_small_and_its_own(name: str) -> None:
    source = RESULTS[name]._repr_html_()
    page = Page(source)
    assert page.text.startswith(name)
    assert page.tags <= {"table", "caption", "strong", "thead", "tbody", "tr", "th", "td"}
    assert source.count("<tr>") <= 22
    assert len(source) <= 15_000
    for guest in ("http", "src=", "url(", "background", "color: #"):
        assert guest not in source


def test_names_are_escaped() -> None:
    assert "0 <script>alert('&')</script> \"bold\" and" in Page(COMPARISON._repr_html_()).text
    assert "<script>alert('&')</script> \"bold\" and" in Page(DECISION._repr_html_()).text


def test_a_trace_with_arms() -> None:
    problem = Problem.arms(2, {"clicks": (0, 1), "minutes": (0, 10)})
    averages = np.array([[0.1, 0.2], [0.25, 3.0]])
    one = trace(problem, Minimum(), average=averages, average_observed=averages + 0.125)
    assert repr(one).splitlines() == [
        "Trace: 2,000 rounds, seed 7",
        "  f              the smallest of clicks and minutes",
        "  value          0.25 (of the rewards observed: 0.375)",
        "  average        clicks 0.25, minutes 3",
        "  scalar regret  12.35 in all",
        "  time           0.05 s, 25 us a round, compiled loop",
    ]
    stopped = trace(problem, Minimum(), complete=False, scalar_regret=np.full(2, np.nan))
    assert "seed 7, interrupted" in repr(stopped)
    assert "regret" not in repr(stopped)
    nothing = np.empty((0, 2))
    empty = trace(
        problem,
        Minimum(),
        t=np.empty(0, dtype=np.int64),
        average=nothing,
        average_observed=nothing,
        scalar_regret=nothing[:, 0],
        complete=False,
        compiled=False,
    )
    assert repr(empty).splitlines() == [
        "Trace: 0 rounds, seed 7, interrupted",
        "  f     the smallest of clicks and minutes",
        "  time  0.05 s, 5e+04 us a round, plain loop",
    ]
    assert np.isnan(empty.final)


def test_a_trace_with_rankings() -> None:
    exposures = np.array([1.0, 0.0, 0.0, 1.0])
    problem = Problem.ranking(4, 2, 3)
    one = trace(problem, TwoSided(GiniWelfare()), average=np.array([[*exposures, 0.5]] * 2))
    assert "  exposure       4 items, Gini index 0.5" in repr(one).splitlines()
    assert one.final == one.value[-1]


def test_a_comparison_says_what_its_table_says() -> None:
    problem = Problem.arms(2, {"clicks": (0, 1)})

    def ends(*values: float) -> tuple[Trace, ...]:
        return tuple(trace(problem, Minimum(), average=np.array([[0.0], [v]])) for v in values)

    few = Comparison({"one": ends(0.5, 0.75), "other": ends(0.125, 0.125)}, (3, 4))
    row = few.table()[0]
    assert repr(few).splitlines() == [
        "Comparison: 2 policies, 2 seeds, 2,000 rounds",
        "  policy  value  95 % interval",
        f"  one     {row['value']:.4g}  {row['low']:.4g} to {row['high']:.4g}",
        "  other   0.125  0.125 to 0.125",
    ]
    assert repr(COMPARISON).splitlines()[-1].split("  ")[1] == "and 44 more"


def test_an_optimum() -> None:
    assert repr(Optimum(0.5, 0.75, np.array([0.5, 0.5]))).splitlines() == [
        "Optimum: 0.5 <= f* <= 0.75",
        "  gap      0.25",
        "  average  0.5, 0.5",
    ]
    assert repr(OPTIMUM).endswith("0.25, 0.25, ... (2,501)")


def test_a_trade_off_says_what_its_table_says() -> None:
    lines = repr(TRADE).splitlines()
    assert lines[0] == "TradeOff: 50 betas, 2 floors, 2 seeds, 2,000 rounds, 2,500 items"
    learnt, best = LARGE.average[-1], OPTIMUM.average
    numbers = [float(cell) for cell in lines[2].split()]
    assert numbers == pytest.approx(
        [0.0, learnt[-1], best[-1], float(LARGE.gini[-1]), 0.0], abs=1e-3
    )


def test_a_decision() -> None:
    assert repr(Decision("a-0", 3, 2, 0.5, (np.ones(4), None))) == (
        "Decision(id='a-0', t=3, action=2, probability=0.5)"
    )
    twelve = Decision("a-1", 0, np.arange(12), None, None)
    assert repr(twelve) == (
        "Decision(id='a-1', t=0, action=[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], probability=None)"
    )
    assert "9, 10, 11, ... (2,500)], probability=0.25)" in repr(DECISION)
    assert Decision("a", 0, 1, None, None) == Decision("a", 0, 1, None, None)
    assert hash(Decision("a", 0, 1, None, None)) == hash(Decision("a", 0, 1, None, None))
    assert not hasattr(twelve, "__dict__")
