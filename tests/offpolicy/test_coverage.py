"""How often intervals hold the truth, where the usual ones do not. All of it, 400 runs each, is
`python -m benchmarks.bench_offpolicy coverage`.
"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.bench_offpolicy import one
from benchmarks.offpolicy_worlds import FAMILIES, PLACES


def test_at_a_kink_the_interval_holds_and_the_bootstrap_does_not() -> None:
    *_, split, _, bootstrap, _, _ = one("ceiling", "tie", 500, "ips", 80, True)
    assert split >= 0.88  # 0.95 less three standard errors
    assert bootstrap < 0.80


def test_at_equality_the_interval_holds_and_the_delta_method_does_not() -> None:
    *_, split, delta, _, _, _ = one("items30", "tie", 500, "snips", 100, False)
    assert split >= 0.88
    assert delta < 0.20


def test_where_f_is_smooth_the_interval_is_hardly_wider_than_the_delta_method() -> None:
    *_, split, delta, _, width, _ = one("nash", "away", 2000, "dr", 60, False)
    assert split >= 0.86
    assert delta >= 0.86
    assert width <= 1.2


def test_differences_are_covered_at_a_tie() -> None:
    """Of the policy at the tie, and of the one that logged."""
    world, held, runs = FAMILIES["gini10"]("tie"), 0, 80
    f = world.f.bind(world.problem("snips"))
    logged = np.einsum("c,ck,ckd->d", world.contexts, world.logging, world.means)
    truth = f.value(world.z) - f.value(logged)
    for run in range(runs):
        log, target = world.log(500, np.random.default_rng(run), "snips")
        found = log.compare(target, "logged", world.f, "snips")
        held += found.low <= truth <= found.high
    assert held >= 0.88 * runs


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["snips", "dr-blind"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_family_is_covered(family: str, place: str, estimator: str) -> None:
    *_, split, _, _, _, _ = one(family, place, 500, estimator, 100, False)
    assert split >= 0.88  # 0.95 less three standard errors, which are 0.022 each


@pytest.mark.slow
def test_learning_comes_within_a_hundredth_of_the_best() -> None:
    from benchmarks.offpolicy_learning import learn_once, truth_of_world

    best = truth_of_world()
    runs = np.array([learn_once(seed, 10_000) for seed in range(40)])
    assert runs[:, 0].mean() > 0.988 * best
    held = (runs[:, 1] <= runs[:, 0]) & (runs[:, 0] <= runs[:, 2])
    assert held.mean() >= 0.85
