"""Where our verdicts differ from the paper: the reasons in docs/reproduction-notes.md, tested.

``pytest -s`` prints the numbers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.fairness.frontier import Frontier
from fairwolfe.fairness.metrics import gini_index
from fairwolfe.lab.paper.curves import Curves, Truth
from fairwolfe.lab.paper.judges import (
    FAIR,
    FLOOR,
    PLAIN,
    UNBIASED,
    highest_throughout,
)
from fairwolfe.lab.paper.studies import STUDIES
from fairwolfe.lab.play import build
from fairwolfe.lab.spec import Experiment
from fairwolfe.objectives import Concave, GiniEquality, GiniWelfare, TwoSided, Welfare
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank, LinUCBRank, UnbiasedLinUCBRank
from fairwolfe.smoothing import Identity, Moreau

pytestmark = [pytest.mark.needs("lastfm data", "implicit", "pyarrow"), pytest.mark.slow]

GINI = TwoSided(GiniWelfare(), beta=0.5)
WELFARE = TwoSided(Welfare(0.5), beta=0.5)
WELFARE_FOLLOWED = TwoSided(Welfare(0.5, offset=1e-6), beta=0.5)


def played(
    world: Any,
    f: Concave,
    followed: FWLinUCBRank,
    floor: float,
    exploration: float,
    horizon: int,
    seeds: int,
) -> Curves:
    """The four policies, with that much exploration."""
    policies = {
        FAIR: replace(followed, exploration=exploration),
        PLAIN: LinUCBRank(exploration=exploration),
        UNBIASED: UnbiasedLinUCBRank(exploration=exploration),
        FLOOR: FairLearnRank(floor, exploration=exploration),
    }
    found = fw.compare(policies, world, horizon, seeds, f, jobs=2, scalar_regret=False)
    runs = {
        name: {
            "value": np.array([trace.value for trace in traces]),
            "utility": np.array([trace.utility for trace in traces]),
        }
        for name, traces in found.traces.items()
    }
    return Curves(np.asarray(found.traces[FAIR][0].t), runs)


def test_equality_costs_five_percent_of_clicks_whoever_ranks() -> None:
    """Certified: at a normalised Gini index of .01 no policy has more than 95.02 % of clicks."""
    world, betas = fw.environments.make("lastfm-50"), (0.0, 0.05, 0.1, 0.2, 0.25, 0.3, 0.5, 1.0)
    best = [fw.optimum(world, TwoSided(GiniEquality(), beta), tolerance=1e-4) for beta in betas]
    frontier = Frontier.of(betas, best, GiniEquality(), 50)
    total = best[0].average[:50].sum()
    share = float(frontier.upper(-total * 0.01 * 49 / 50)[0]) / best[0].value
    print("at most", share)
    assert 0.945 < share < 0.955


def test_welfare_of_many_items_is_followed_better_without_smoothing() -> None:
    """f after 500 and 20,000 rounds: smoothed 13.7 and 30.9, with an offset 48.6 and 53.9."""
    world, f = fw.environments.make("lastfm-2k"), WELFARE
    smoothed = FWLinUCBRank(f, smoothing=Moreau(1.0), exploration="theorem")
    offset = FWLinUCBRank(WELFARE_FOLLOWED, exploration="theorem")
    values = [
        fw.simulate(policy, world, 20_000, 0, f, [500], scalar_regret=False).value
        for policy in (smoothed, offset)
    ]
    print("smoothed, with an offset", values)
    assert (values[1] > 1.5 * values[0]).all()


def test_welf_leads_from_the_start_with_less_exploration() -> None:
    """R8: with exploration 1, Unbiased is ahead of FW in the first hundreds of rounds."""
    world, followed = (
        fw.environments.make("lastfm-50"),
        FWLinUCBRank(WELFARE_FOLLOWED, exploration="theorem"),
    )
    more, less = (
        highest_throughout(played(world, WELFARE, followed, 0.05, exploration, 300_000, 3))
        for exploration in (1.0, 0.1)
    )
    print("share of checkpoints, exploration 1 and 0.1", more, less)
    assert less.estimate > 0.95 > more.estimate


@pytest.mark.parametrize(
    ("f", "followed", "smoothing", "most"),
    [(GINI, GINI, Moreau(1.0), 15_000), (WELFARE, WELFARE_FOLLOWED, Identity(), 1_500)],
    ids=["R15", "R16"],
)
def test_knowing_everything_does_not_converge_by_then(
    f: Concave, followed: Concave, smoothing: Any, most: int
) -> None:
    """R15 and R16: after three times the paper's rounds, one who need not learn has not 99 %."""
    world = fw.environments.make("lastfm-2k")
    reference = fw.known(world, followed, smoothing)
    trace = fw.simulate(reference, world, most, 0, f, [500], scalar_regret=False)
    best = fw.optimum(world, f).value
    print("share of the optimum at", trace.t, trace.value / best)
    assert 0.85 < trace.value[0] / best < trace.value[-1] / best < 0.985


def test_most_of_the_way_is_gone_in_time_with_less_exploration() -> None:
    """R15': 47,000 rounds with all of it; the paper's 5,000 within a factor 3 with a tenth."""
    world = fw.environments.make("lastfm-2k")
    policy = FWLinUCBRank(GINI, smoothing=Moreau(beta0=1.0), exploration=0.1)
    both = fw.compare({FAIR: policy}, world, 1_000_000, 2, GINI, jobs=2, scalar_regret=False)
    traces = both.traces[FAIR]
    runs = {FAIR: {"value": np.array([trace.value for trace in traces])}}
    way = Curves(np.asarray(traces[0].t), runs).way(FAIR)
    print("rounds to 90 % of the way", way)
    assert (way < 15_000).all()


def test_the_logarithm_of_the_theorem_is_seen_in_the_slope() -> None:
    """T1 for rankings: the rate is ln t / sqrt t, whose own slope is above the threshold."""
    (cell,) = Experiment.of(STUDIES["regret-ranking"].text).cells
    parts = build(cell.settings, cell.label)
    traces = fw.compare({FAIR: parts.policy}, parts.environment, 1_000_000, 4, parts.objective)
    t = np.asarray(traces.traces[FAIR][0].t, dtype=np.float64)
    late = t >= 1e3
    regret = np.array([trace.scalar_pseudo_regret[late] for trace in traces.traces[FAIR]]) / t[late]

    def slope(values: Any) -> float:
        return float(np.polyfit(np.log(t[late]), np.log(values).T, 1)[0].mean())

    rate = np.log(t[late]) / np.sqrt(t[late])
    print("slopes: regret, ln t / sqrt t, regret / ln t")
    print(slope(regret), slope(rate[None]), slope(regret / np.log(t[late])))
    assert slope(regret) > -0.45 < slope(rate[None])
    assert slope(regret / np.log(t[late])) < -0.48


def test_a_larger_beta_changes_nothing_once_all_are_equal() -> None:
    """R12: the penalty is exact, so from a finite beta on one policy is the best for all."""
    world = fw.environments.make("lastfm-50")
    best = [
        fw.optimum(world, TwoSided(GiniEquality(), beta), tolerance=1e-4) for beta in (1.0, 10.0)
    ]
    gini, utility = (
        [measure(one) for one in best]
        for measure in (lambda b: gini_index(b.average[:50]), lambda b: b.average[50:].sum())
    )
    print("Gini index and utility for beta = 1 and 10:", gini, utility)
    assert max(gini) < 1e-3
    assert utility[0] == pytest.approx(utility[1], rel=1e-3)


def test_optima_are_fine_enough_to_say_which_steps_of_beta_move_them() -> None:
    """R12': on Last.fm-2k 3 and 10 have the same; with a tolerance of 1e-3 they seem to differ."""
    best = Truth(Experiment.of(STUDIES["lastfm-2k-tradeoff"].text), (0,)).by_beta
    moves = [np.abs(np.diff(x)) / abs(x[0]) for x in (best.gini, best.utility)]
    print("largest relative moves of the optimum", np.max(moves, axis=0))
    assert (np.max(moves, axis=0)[:-1] > 1e-3).all()
    assert np.max(moves, axis=0)[-1] < 2e-4
