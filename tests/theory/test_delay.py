"""What late feedback costs, and that lateness by outcome does not bias what is learnt."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.streams import stream
from fairwolfe.environments import FactorModel, Finite, dcg
from fairwolfe.objectives import GiniEquality, Minimum, TwoSided
from fairwolfe.ranking import FWLinUCBRank
from fairwolfe.simulation import Lateness, delays, simulate
from fairwolfe.simulation.delivery import LateRun
from fairwolfe.simulation.streams import Streams

ITEMS = FactorModel(12, 15, dcg(5), n_factors=3)
FAIR = TwoSided(GiniEquality(), beta=0.5)
HORIZON = 1500
SEEDS = range(3)


@cache
def values(lateness: Lateness) -> Vector:
    """f at the horizon, a number for each seed."""
    policy = FWLinUCBRank(FAIR, exploration=0.1)
    options: dict[str, Any] = {"checkpoints": [HORIZON], "scalar_regret": False}
    runs = [simulate(policy, ITEMS, HORIZON, seed, lateness=lateness, **options) for seed in SEEDS]
    return np.array([run.value[-1] for run in runs])


def cost(lateness: Lateness) -> Vector:
    return values(Lateness()) - values(lateness)


def test_the_cost_grows_with_the_delay() -> None:
    """Seen: .07 to .09 for 50 rounds, .38 to .52 for 500; f* is 1.3 to 1.4."""
    short, long = cost(Lateness(delay=50)), cost(Lateness(delay=500))
    assert short.min() > 0.03
    assert (long - short).min() > 0.15
    most = fw.bounds.delay_cost(
        problem=ITEMS, objective=FAIR, horizon=HORIZON, delay=50, tight=True
    )
    assert short.max() < most


def test_late_at_random_costs_less_than_all_late_alike() -> None:
    """With a constant delay nothing tells a decision what the last 50 have done, and all of them
    favour the same items; of random delays with the same mean many are short. Seen: .02 to .03,
    beside .07 to .09.
    """
    scattered = cost(Lateness(delay=delays.Geometric(50.0)))
    assert scattered.min() > 0.005
    assert (scattered < 0.7 * cost(Lateness(delay=50))).all()


def test_replicas_cost_no_more_than_a_snapshot_as_old_as_their_merges() -> None:
    """A replica knows all that the snapshot knows, and its own decisions since. Seen: .04 to .07,
    beside .11 to .15.
    """
    snapshot, replicas = cost(Lateness(refresh=100)), cost(Lateness(replicas=4, merge=100))
    assert replicas.min() > 0.01
    assert (replicas < 0.8 * snapshot).all()
    assert (replicas > 0.1 * snapshot).all()


# --- the model --------------------------------------------------------------------------------

# One context, two arms with a parameter each, rewards that are mostly 0.
RARE = Finite([np.eye(2).tolist()], (1.0,), theta=[[0.2, 0.05], [0.05, 0.3]])


def played(lateness: Lateness, rounds: int) -> LateRun:
    policy = fw.FrankWolfe(Minimum(), EpsilonGreedy(1.0))
    rng = stream(0, "service")
    drawn = RARE.init(stream(0, "world"))
    run = LateRun(policy, RARE, drawn, Streams.of(0), False, lateness, rng)
    while run.t < rounds:
        run.play(rounds - run.t)
    return run


def estimates(run: LateRun) -> Matrix:
    theta: Matrix = run.state.base.oracle.theta[0]
    return theta


TRUTH = np.array([[0.2, 0.05], [0.05, 0.3]])


def test_an_answer_that_is_late_by_outcome_does_not_bias_the_model() -> None:
    """All that a decision came to is learnt at once, and sooner or later every decision is.

    Standard errors of 3,000 rounds: below .012 each. The last 100 rounds are known only if
    there was a click, which adds at most 100/3,000 of 1. If zeros never came at all, the estimates
    would be the chances given a click: .2/(1 - .8 .95) = .83 instead of .2.
    """
    run = played(Lateness(delay=delays.ByOutcome(click=0, no_click=100)), 3000)
    assert np.abs(estimates(run) - TRUTH).max() < 5 * 0.012 + 100 / 3000
    blind = played(Lateness(delay=delays.ByOutcome(click=0, no_click=10**6)), 3000)
    assert estimates(blind)[0, 0] > 0.7


def test_the_order_of_answers_leaves_the_sums_as_they_are() -> None:
    """When all have come, the regression has the sums of the run that was answered at once."""
    late = played(Lateness(delay=delays.ByOutcome(click=delays.Uniform(0, 40), no_click=90)), 500)
    assert late.state.t < 500
    for replica, decision, feedback in late.post.come(10**9):
        assert replica == 0
        late.state = late.policy.update(late.state, decision, feedback)
    prompt = played(Lateness(), 500)  # every arm is drawn blindly: the decisions are the same
    assert late.state.t == prompt.state.t == 500
    assert np.array_equal(late.state.earned, prompt.state.earned)
    for one, two in zip(late.state.base.oracle, prompt.state.base.oracle, strict=True):
        assert np.allclose(one, two, rtol=1e-9, atol=1e-9)
    assert np.abs(estimates(late) - TRUTH).max() < 0.15
