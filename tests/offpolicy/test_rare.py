"""Rewards that are rare, skewed or never seen, arms hardly tried, and policies that learnt while
they logged: intervals that allow for it, and warnings. 400 runs of each family are
`python -m benchmarks.bench_coverage`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import fairwolfe as fw
from benchmarks.bench_coverage import FAMILIES, measure
from fairwolfe.objectives import AtLeast, Linear, Minimum, Nash, Welfare
from fairwolfe.offpolicy import Log

SALES = Linear({"sales": 1.0})


def log_of(sales: Any, p: Any = 0.5, arms: Any = None) -> Log:
    n = len(sales)
    rng = np.random.default_rng(0)
    columns = {
        "action": rng.integers(0, 2, n) if arms is None else arms,
        "probability": np.broadcast_to(p, n),
        "features": np.ones((n, 1)),
        "reward.clicks": (rng.random(n) < 0.3).astype(float),
        "reward.sales": sales,
    }
    problem = fw.Problem.arms(1, {"clicks": (0, 1), "sales": (0, 1)}, n_arms=2)
    return Log.of(columns, problem)


@pytest.mark.parametrize("always", [0.0, 1.0, 0.3])
@pytest.mark.parametrize("estimator", ["ips", "snips", "dr"])
def test_a_reward_that_never_changed_is_not_certain(estimator: str, always: float) -> None:
    """The rule of three: of m tries without an event, 3.7/m is the exact 95 % limit."""
    log = log_of(np.full(300, always))
    found = log.evaluate(1, SALES, estimator)
    m = found.ess
    assert found.high - found.value >= 3.69 / m
    assert found.value - found.low >= 3.69 / m
    if estimator != "ips":  # where the weights themselves vary more than a rare event does
        assert found.high - found.value <= 5.0 / m
        assert any("sales" in text for text in found.warnings)
    assert found.errors[1] > 0.0


def test_a_floor_on_a_reward_never_seen_is_not_certainly_missed() -> None:
    log = log_of(np.zeros(300))
    low, high = (
        log.evaluate(1, AtLeast({"sales": level}) + Linear({"clicks": 1.0}), "snips")
        for level in (0.01, 0.2)
    )
    assert low.constraints[0].kept is None
    assert high.constraints[0].kept is False  # 3.7/150 is far below 0.2
    assert any("sales" in text for text in low.warnings)  # f itself does not see it


def test_which_policy_sells_more_is_not_known_where_nothing_was_sold() -> None:
    found = log_of(np.zeros(300)).compare(1, 0, SALES, "snips")
    assert found.low < -3.69 / 300
    assert found.high > 3.69 / 300


def test_a_policy_compared_with_itself_differs_by_nothing() -> None:
    sales = (np.random.default_rng(1).random(300) < 0.02).astype(float)
    found = log_of(sales).compare(1, 1, SALES, "snips")
    assert max(abs(found.low), abs(found.high)) < 1e-4  # the root of rounding errors


def test_a_root_at_zero_has_an_upper_end() -> None:
    found = log_of(np.zeros(300)).evaluate(1, Welfare(0.5), "snips")
    assert math.isfinite(found.high)
    assert found.high >= found.value


@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_the_low_end_of_a_root_is_what_the_ranges_leave_possible(estimator: str) -> None:
    """f is 0 where both rewards are at their lower ends, so that its low end is no less."""
    log = log_of(np.zeros(300))
    found = log.evaluate(1, Welfare(0.5), estimator)
    assert 0.0 < found.low < math.sqrt(0.3) < found.high  # clicks are not 0, whatever sales are
    assert any("the low end is 0." in text for text in found.warnings)
    gap = log.compare(1, 0, Welfare(0.5), estimator)
    assert -1.0 < gap.low < 0.0 < gap.high < 1.0
    assert log.evaluate(1, Nash(), estimator).low == -math.inf  # the logarithm has no lower end


def test_the_low_end_of_a_root_holds_the_truth() -> None:
    """Sales of one in 200, so that the domain ends within four standard errors in every run."""
    truth = math.sqrt(0.3) + math.sqrt(0.005)
    missed = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        table = {
            "action": rng.integers(0, 2, 300),
            "probability": np.full(300, 0.5),
            "reward.clicks": (rng.random(300) < 0.3).astype(float),
            "reward.sales": (rng.random(300) < 0.005).astype(float),
        }
        found = Log.of(table).evaluate(1, Welfare(0.5), "snips")
        assert math.isfinite(found.low)
        missed += not found.low <= truth <= found.high
    assert missed <= 3


@pytest.mark.parametrize("k", [0, 1, 2, 5, 12, 30])
def test_counts_have_the_upper_limit_of_poisson(k: int) -> None:
    """Of k sales in 2,000 decisions as they were logged; the exact limit is a chi-square."""
    sales = np.zeros(2000)
    sales[:k] = 1.0
    found = log_of(sales).evaluate("logged", SALES)
    exact = stats.chi2.ppf(0.975, 2 * (k + 1)) / 2.0
    assert exact - 0.3 <= 2000 * found.high <= exact + 0.4


def test_ordinary_rewards_are_not_widened() -> None:
    """Half of the decisions sell: the interval is the delta method's, and there is no warning."""
    sales = (np.random.default_rng(2).random(2000) < 0.5).astype(float)
    found = log_of(sales).evaluate("logged", SALES)
    assert found.warnings == ()
    width = 2 * 1.96 * sales.std() / math.sqrt(2000)
    assert 0.999 * width <= found.high - found.low <= 1.01 * width


def test_a_policy_that_learnt_while_it_logged_is_warned_of_and_the_remedy_named() -> None:
    rng = np.random.default_rng(3)
    n = 2000
    p = np.linspace(0.5, 0.05, n)  # of arm 1
    arms = (rng.random(n) < p).astype(np.int64)
    chance = np.where(arms == 1, p, 1.0 - p)
    log = log_of((rng.random(n) < 0.4).astype(float), chance, arms)
    found = log.evaluate(1, SALES, "snips")
    assert any("stabilised=True" in text for text in found.warnings)
    steady = log.evaluate(1, SALES, "snips", stabilised=True)
    assert not any("stabilised=True" in text for text in steady.warnings)
    assert not log.evaluate("logged", SALES).warnings


def test_probabilities_that_vary_without_a_trend_are_no_drift() -> None:
    warned = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        p = rng.choice([0.1, 0.3, 0.6, 0.9], 500)
        arms = (rng.random(500) < p).astype(np.int64)
        log = log_of(np.ones(500), np.where(arms == 1, p, 1.0 - p), arms)
        found = log.evaluate(1, Linear({"clicks": 1.0}), "snips")
        warned += any("stabilised=True" in text for text in found.warnings)
    assert warned == 0  # four standard errors: one in 16,000


def test_an_arm_that_was_never_tried_is_warned_of() -> None:
    """All weights are equal then, and their standard error is 0."""
    log = log_of(np.ones(300), 0.99, np.zeros(300, dtype=np.int64))
    policy = np.broadcast_to([0.8, 0.2], (300, 2))
    found = log.evaluate(policy, Linear({"clicks": 1.0}), "snips")
    assert any("mean weight is 0.808" in text for text in found.warnings)


def test_the_least_of_several_names_the_rare_one() -> None:
    sales = (np.random.default_rng(5).random(600) < 0.01).astype(float)
    (text,) = log_of(sales).evaluate("logged", Minimum()).warnings
    assert "sales" in text
    assert "clicks" not in text
    assert log_of(sales).evaluate("logged", Linear({"clicks": 1.0})).warnings == ()


@pytest.mark.slow
@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_family_is_covered_or_warned_of(family: str) -> None:
    for _, _, way, held, warned, missed in measure(family, 60):
        assert held >= 0.85 or missed >= 0.95, way  # 0.95 less three standard errors, 0.028 each
        if family.startswith("plain"):
            assert warned <= 0.1, way
