"""The links of the regret proof for rankings, one by one, on runs: each holds, and each can fail.

As for arms (test_links.py): every inequality is paired with a policy, or a constant, that is broken
on purpose and is caught.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.decision import Choice
from fairwolfe.environments import FiniteRanking
from fairwolfe.objectives import Concave, GiniEquality, TwoSided
from fairwolfe.oracles.linear_regression import LOG_DET
from fairwolfe.ranking import LinUCBRank
from fairwolfe.ranking.policies import UTILITY
from fairwolfe.reduction import FrankWolfe
from fairwolfe.simulation.run import RankingsRun, Streams
from fairwolfe.smoothing import Moreau
from fairwolfe.truth import optimum

B1 = FiniteRanking.b1()

# Two slots, four items, of which users of either kind like others.
ANGLES = np.array([[0.0, 0.3, 0.9, 1.4], [1.5, 1.1, 0.4, 0.1]])
PAIRS = FiniteRanking(
    np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=2), (0.9, 0.3), ((1.0, 0.6), (0.9, 0.4))
)

# Items that say nothing about each other, the worse one first: who explores too little stays with
# it as soon as it is clicked.
PATIENCE = FiniteRanking([[[1.0, 0.0], [0.0, 1.0]]], (0.4, 0.7), (1.0,))

# The item of the longer features earns less: who takes |x| for its width shows it for ever.
LENGTHS = FiniteRanking([[[0.5, 0.0], [0.0, 1.0]]], (0.9, 0.1), (1.0,))

FAIR = TwoSided(GiniEquality(), beta=3.0)
MILD = TwoSided(GiniEquality(), beta=1.0)

# The world, f, and the ridge that the theorem asks for, k D_X^2.
WORLDS: dict[str, tuple[FiniteRanking, Concave, float]] = {
    "B1": (B1, FAIR, 1.0),
    "pairs": (PAIRS, MILD, 2.0),
    "patience": (PATIENCE, UTILITY, 1.0),
    "lengths": (LENGTHS, UTILITY, 1.0),
}
BETA_0 = {"B1": 0.5, "pairs": 1.0}


class WrongSign(LinUCBRank):
    """Gives more to those who have most: the items' side of the direction has the wrong sign."""

    def scores(
        self, value: Vector, width: Vector, bonus: float, direction: Vector, *rest: Any
    ) -> Vector:
        return value + bonus * width - direction


class Flat(LinUCBRank):
    """Takes |x| for the width of an item, instead of |x| in the norm of V^-1."""

    def act(self, state: Any, context: Any, direction: Vector, rng: Any) -> Choice:
        eye = np.eye(state.oracle.inverse.shape[1])[None]
        blind = state._replace(oracle=state.oracle._replace(inverse=eye))
        return super().act(blind, context, direction, rng)


def ranker(world: str, name: str) -> LinUCBRank:
    ridge = WORLDS[world][2]
    made: dict[str, LinUCBRank] = {
        "LinUCBRank": LinUCBRank(ridge=ridge, exploration="theorem"),
        "wrong sign": WrongSign(ridge=ridge),
        "flat widths": Flat(ridge=ridge),
        "timid": LinUCBRank(ridge=ridge, exploration=0.1),
        "small ridge": LinUCBRank(ridge=0.01, exploration="theorem"),
    }
    return made[name]


def policy(world: str, name: str) -> FrankWolfe:
    smoothing = Moreau(BETA_0[world]) if world in BETA_0 else None
    return FrankWolfe(WORLDS[world][1], ranker(world, name), smoothing)


@dataclass(frozen=True)
class Run:
    """What a run did in each of its rounds, a row for each."""

    directions: Matrix  # g_t
    shown: Matrix  # x_i of the items of the ranking, (T, k, d)
    weights: Matrix  # b_j in this context, (T, k)
    exposed: Matrix  # which slots were looked at, (T, k)
    clicked: Matrix  # (T, k)
    rewards: Matrix  # r_t
    supports: Vector  # max_s <g_t, s>
    gaps: Vector  # max_a <g_t, mu a> - <g_t, mu a_t>
    log_det: Vector  # ln det V_t/det V_0 after the round, as the ranker keeps it

    @property
    def t(self) -> Vector:
        return np.arange(1.0, len(self.rewards) + 1.0)

    @property
    def averages(self) -> Matrix:
        averages: Matrix = np.cumsum(self.rewards, axis=0) / self.t[:, None]
        return averages


@cache
def played(world: str, name: str, seed: int, horizon: int = 1000) -> Run:
    """The loop as one would write it."""
    environment = WORLDS[world][0]
    player = policy(world, name)
    state = player.init(environment.problem())
    tables = environment.init(np.random.default_rng(0))
    contexts, noise, rng = (np.random.default_rng((seed, i)) for i in range(3))
    rows = []
    for t in range(1, horizon + 1):
        context = environment.context(tables, t, contexts)
        g = state.direction(rng)
        decision = player.act(state, context, rng)
        shown = environment.feedback(tables, context, decision.action, noise)
        best = environment.best_action(tables, context, g)
        gap = g @ (
            environment.mean_reward(tables, context, best)
            - environment.mean_reward(tables, context, decision.action)
        )
        reward = np.zeros(g.size)
        reward[decision.action] = shown.exposed
        reward[-1] = shown.rewards.sum()
        state = player.update(state, decision, shown)
        rows.append(
            (
                g,
                context[decision.action],
                tables.weights[environment.tag(tables, context) if len(tables.weights) > 1 else 0],
                shown.exposed,
                shown.rewards[:, 0],
                reward,
                environment.support(tables, g)[0],
                gap,
                state.base_state.oracle.counters[LOG_DET],
            )
        )
    return Run(*(np.array(column) for column in zip(*rows, strict=True)))


# --- 1: from the scalar regret to the regret ------------------------------------------------------


RUNS_1 = [("B1", 0), ("B1", 1), ("pairs", 0)]


@cache
def best(world: str) -> float:
    """f*, from above."""
    found = optimum(*WORLDS[world][:2], tolerance=1e-6)
    assert found.gap < 1e-6
    return found.upper_bound


def shortfalls(world: str, run: Run) -> Vector:
    """T (f* - f(s_T)) for every prefix."""
    f = WORLDS[world][1]
    return run.t * (best(world) - np.array([f.value(z) for z in run.averages]))


def scalar_sums(run: Run) -> Vector:
    """sum_t max_s <g_t, s - r_t> for every prefix."""
    return np.cumsum(run.supports - (run.directions * run.rewards).sum(axis=1))


def smoothing_terms(world: str, t: Vector, items_only: bool = False) -> Vector:
    """sqrt(T) (D_K^2/beta_0 + L^2 beta_0); the user side is linear and need not count."""
    environment, f, _ = WORLDS[world]
    problem = environment.problem()
    m = problem.n_items or 0
    diameter, slope = problem.diameter, f.lipschitz(m + 1)
    if items_only:
        diameter, slope = problem.item_diameter, math.sqrt(slope**2 - 1.0)
    return np.sqrt(t) * (diameter**2 / BETA_0[world] + slope**2 * BETA_0[world])


@pytest.mark.parametrize(("world", "seed"), RUNS_1)
@pytest.mark.parametrize("name", ["LinUCBRank", "timid", "wrong sign", "flat widths"])
def test_regret_is_scalar_regret_and_smoothing(world: str, seed: int, name: str) -> None:
    # Whatever ranks. At most 25 % of the smaller terms is needed.
    run = played(world, name, seed)
    missing = shortfalls(world, run) - scalar_sums(run)
    assert (missing <= smoothing_terms(world, run.t, items_only=True)).all()
    assert (missing <= smoothing_terms(world, run.t)).all()
    if name == "wrong sign":  # it is very bad, and the scalar regret says so
        assert shortfalls(world, run)[-1] > 1000.0  # 2,008, 1,995 and 1,087


@pytest.mark.parametrize(("world", "seed"), RUNS_1)
def test_without_its_smoothing_terms_it_fails(world: str, seed: int) -> None:
    # In 98 to 100 % of the prefixes.
    run = played(world, "timid", seed)
    assert (shortfalls(world, run) > scalar_sums(run)).mean() > 0.5


@pytest.mark.parametrize(("world", "seed"), RUNS_1)
def test_a_tenth_of_its_smoothing_terms_is_not_enough(world: str, seed: int) -> None:
    # The first rounds take 14, 25 and 14 % of them.
    run = played(world, "LinUCBRank", seed)
    terms = smoothing_terms(world, run.t, items_only=True)
    assert (shortfalls(world, run) > scalar_sums(run) + 0.1 * terms).any()


@pytest.mark.parametrize(("world", "seed"), RUNS_1)
def test_other_directions_than_the_gradients_fail(world: str, seed: int) -> None:
    # With the items' signs turned, what the wrong sign did is fine; but f has other gradients.
    environment = WORLDS[world][0]
    tables = environment.init(np.random.default_rng(0))
    run = played(world, "wrong sign", seed)
    others = run.directions.copy()
    others[:, :-1] *= -1.0
    supports = np.array([environment.support(tables, g)[0] for g in others])
    turned = replace(run, directions=others, supports=supports)
    over = shortfalls(world, run) > scalar_sums(turned) + smoothing_terms(world, run.t)
    assert over[-1]
    assert over.mean() > 0.8  # 97, 98 and 91 %


# --- 2 and 3: optimism, and the sum of the widths -------------------------------------------------


@dataclass(frozen=True)
class Widths:
    """The regression of a run again, by NumPy alone: what was known before each round."""

    inside: Any  # whether theta was in its ellipsoid
    radius: Vector  # alpha
    width: Matrix  # w of the items shown, (T, k)
    plain: Matrix  # |x|/sqrt(ridge), widths that never learn
    log_det: Vector  # ln det V_t/det V_0, after the round
    rate: float  # k D_X^2/(ridge d)
    dimension: int


@cache
def again(world: str, name: str, seed: int) -> Widths:
    """The run of the same name, once more."""
    run = played(world, name, seed)
    environment, base = WORLDS[world][0], ranker(world, name)
    problem = environment.problem()
    truth = np.array(environment.theta)
    d, k = truth.size, problem.n_slots or 0
    design, moment = base.ridge * np.eye(d), np.zeros(d)
    rows = []
    for x, exposed, clicked in zip(run.shown, run.exposed, run.clicked, strict=True):
        log_det = np.linalg.slogdet(design)[1] - d * math.log(base.ridge)
        alpha = 0.5 * math.sqrt(2.0 * math.log(3.0 / base.delta) + log_det)
        alpha += math.sqrt(base.ridge) * float(np.linalg.norm(truth))
        inverse = np.linalg.inv(design)
        away = inverse @ moment - truth
        width = np.sqrt(((x @ inverse) * x).sum(axis=1))
        rows.append((away @ design @ away <= alpha**2, alpha, width, log_det))
        design += (x * exposed[:, None]).T @ x
        moment += clicked @ x
    inside, radii, widths, log_dets = (np.array(column) for column in zip(*rows, strict=True))
    last = np.linalg.slogdet(design)[1] - d * math.log(base.ridge)
    return Widths(
        inside=inside,
        radius=radii,
        width=widths,
        plain=np.linalg.norm(run.shown, axis=2) / math.sqrt(base.ridge),
        log_det=np.append(log_dets[1:], last),
        rate=k * problem.feature_norm**2 / (base.ridge * d),
        dimension=d,
    )


def bonuses(world: str, name: str, seed: int) -> tuple[Any, Any]:
    """Where the scalar pseudo-regret of a round is above its bonus; and above a tenth of it.

    2 L_u alpha sum_i w_i b_rank(i), and here f has the slope L_u = 1 in the number of clicks.
    """
    run = played(world, name, seed)
    known = again(world, name, seed)
    assert known.inside.mean() > 0.99  # the event; in these runs always
    bonus = 2.0 * known.radius * (known.width * run.weights).sum(axis=1)
    above = known.inside & (run.gaps > bonus + 1e-9)
    return above, known.inside & (run.gaps > 0.1 * bonus + 1e-9)


@pytest.mark.parametrize("world", ["B1", "pairs", "patience", "lengths"])
@pytest.mark.parametrize("seed", range(2))
def test_a_round_costs_at_most_twice_its_bonus(world: str, seed: int) -> None:
    above, above_a_tenth = bonuses(world, "LinUCBRank", seed)
    assert not above.any()
    assert above_a_tenth.sum() > 10  # 31 to 200 rounds: a bonus of a tenth would not do


@pytest.mark.parametrize(
    ("world", "name", "seed"),
    [
        ("patience", "timid", 2),  # 663 of 1,000 rounds
        ("lengths", "flat widths", 0),  # 752
        ("B1", "wrong sign", 0),  # 994
        ("pairs", "wrong sign", 0),  # 959
    ],
)
def test_a_broken_rule_costs_more_than_twice_its_bonus(world: str, name: str, seed: int) -> None:
    assert bonuses(world, name, seed)[0].sum() > 300


@pytest.mark.parametrize("world", ["B1", "pairs"])
@pytest.mark.parametrize("name", ["LinUCBRank", "wrong sign", "flat widths"])
def test_the_widths_add_up_to_a_logarithm(world: str, name: str) -> None:
    run = played(world, name, 0)
    known = again(world, name, 0)
    spent = np.cumsum((run.exposed * known.width**2).sum(axis=1))
    np.testing.assert_allclose(known.log_det, run.log_det, rtol=1e-9, atol=1e-12)
    assert (spent <= 2.0 * known.log_det).all()
    most = 2.0 * known.dimension * np.log1p(known.rate * run.t)
    assert (2.0 * known.log_det <= most + 1e-9).all()
    # Once the determinant is not enough, and widths that never learn add up to far more.
    some = known.log_det > 0.0  # something was looked at
    assert (spent[some] > known.log_det[some]).all()
    assert (run.exposed * known.plain**2).sum() > 10.0 * most[-1]


@pytest.mark.parametrize("world", ["B1", "pairs"])
def test_the_widths_add_up_to_more_where_the_ridge_is_small(world: str) -> None:
    # ridge .01 with D_X = 1: 11 and 14 times 2 ln det after the first looks.
    run, known = played(world, "small ridge", 0), again(world, "small ridge", 0)
    spent = np.cumsum((run.exposed * known.width**2).sum(axis=1))
    assert (spent > 2.0 * known.log_det).any()
    # u/ln(1 + u) in place of 2, u = k D_X^2/ridge, always does.
    u = known.rate * known.dimension
    assert (spent <= u / math.log1p(u) * known.log_det * (1.0 + 1e-9)).all()


# --- 4: coverage ----------------------------------------------------------------------------------

RUNS, ROUNDS, LOOK = 200, 300, 20


def alpha(base: LinUCBRank, truth: Vector, log_det: float) -> float:
    """The confidence radius, by hand."""
    root = math.sqrt(2.0 * math.log(3.0 / base.delta) + log_det)
    return float(base.exploration) * (
        0.5 * root + math.sqrt(base.ridge) * float(np.linalg.norm(truth))
    )


def radius(run: RankingsRun) -> float:
    """The radius that the ranker itself uses: the bonus of an item over its width."""
    state = run.running.base_state
    m, d = state.exposed.size, state.problem.dimension
    features = np.tile(np.eye(d)[0], (m, 1))
    direction = np.append(np.zeros(m), 1.0)
    choice = run.running.base.act(state, features, direction, np.random.default_rng(0))
    assert choice.explanation is not None
    bonus = float(choice.explanation[0]["exploration"])
    return bonus / math.sqrt(state.oracle.inverse[0][0, 0])


@cache
def worst_ratios(world: str, base: LinUCBRank) -> Vector:
    """Of each run, the largest |theta - theta*|_V/alpha at any look."""
    environment, f, _ = WORLDS[world]
    truth = np.array(environment.theta)
    worst = np.zeros(RUNS)
    for seed in range(RUNS):
        tables = environment.init(np.random.default_rng(0))
        run = RankingsRun(FrankWolfe(f, base), environment, tables, Streams.of(seed), False)
        for _ in range(0, ROUNDS, LOOK):
            run.play(LOOK)
            oracle = run.running.base_state.oracle
            away = oracle.theta[0, 0] - truth
            distance = math.sqrt(away @ oracle.gram[0] @ away)
            reach = alpha(base, truth, oracle.counters[LOG_DET])
            worst[seed] = max(worst[seed], distance / reach)
        assert run.running.t == ROUNDS
        log_det = np.linalg.slogdet(oracle.gram[0])[1] - truth.size * math.log(base.ridge)
        assert radius(run) == pytest.approx(alpha(base, truth, log_det), rel=1e-9)
    return worst


COVERED = [
    ("B1", LinUCBRank(ridge=1.0, exploration=1.0)),
    (
        "B1",
        LinUCBRank(ridge=0.01, exploration=1.0),
    ),  # V_0 says little: the noise has to be covered
    ("pairs", LinUCBRank(ridge=2.0, exploration=1.0)),
]


@pytest.mark.parametrize(("world", "base"), COVERED)
def test_the_ellipsoids_hold_the_parameters(world: str, base: LinUCBRank) -> None:
    # In all runs; the worst comes to .54, .60 and .56 of the radius.
    worst = worst_ratios(world, base)
    assert (worst <= 1.0).mean() >= 1.0 - base.delta
    assert np.median(worst) > 0.15  # none of them is idle: .26, .29, .23


@pytest.mark.parametrize(("world", "base"), COVERED[:2])
def test_a_tenth_of_the_radius_holds_nothing(world: str, base: LinUCBRank) -> None:
    worst = worst_ratios(world, replace(base, exploration=0.1))
    assert (worst <= 1.0).mean() < 0.1  # 0 runs
