"""One ranking: best by brute force over all of them, ties, pins, candidates, random swaps."""

from __future__ import annotations

from collections import defaultdict
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from fairwolfe import Problem
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.candidates import Catalogue, read_candidates
from fairwolfe.core.contexts import Bilinear
from fairwolfe.core.feedback import Shown
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput, NumericalFailure
from fairwolfe.oracles.linear_regression import LOG_DET
from fairwolfe.ranking import LinUCBRank, Ranker
from fairwolfe.ranking.ranker import RankState

P, Q = 2, 3


def learnt(base: LinUCBRank, problem: Problem, rng: np.random.Generator) -> RankState:
    """A state that has seen some rankings of random users and items."""
    state = base.init(problem)
    k, n = problem.n_slots or 0, len(problem.rewards)
    for _ in range(6):
        context = Bilinear(rng.normal(size=P), rng.normal(size=(problem.n_items or 0, Q)))
        choice = base.act(state, context, np.zeros(problem.n_objectives), rng)
        exposed = (rng.random(k) < 0.7).astype(float)
        state = base.update(
            state, choice, np.zeros(0), Shown(exposed, exposed[:, None] * rng.random((k, n)))
        )
    return state


def scores_of(base: LinUCBRank, state: RankState, user: Vector, items: Matrix, g: Vector) -> Vector:
    """The optimistic worth of exposing each item, by its formula in plain NumPy."""
    m = len(items)
    x = np.array([np.kron(user, item) for item in items])
    problem, oracle = state.problem, state.oracle
    ranges = np.array(list(problem.rewards.values())) / (problem.n_slots or 1)
    half, n = (ranges[:, 1] - ranges[:, 0]) / 2.0, len(ranges)
    level = 2.0 * np.log(3.0 * n / base.delta) + oracle.counters[LOG_DET]
    radius = half * np.sqrt(level) + np.sqrt(base.ridge) * (problem.parameter_norm or 0.0)
    widths = np.sqrt(np.einsum("ij,jk,ik->i", x, oracle.inverse[0], x))
    optimistic = base.exploration * (abs(g[m:]) @ radius) * widths
    scores: Vector = x @ (g[m:] @ oracle.theta[0]) + optimistic + g[:m]
    return scores


def problem_of(m: int, k: int, n_rewards: int = 1) -> Problem:
    ranges = {f"r{i}": (0.0, float(k)) for i in range(n_rewards)}
    return Problem.ranking(m, k, (P, Q), ranges, parameter_norm=1.0)


# --- the best of all rankings -----------------------------------------------------------------


@pytest.mark.parametrize(("m", "k"), [(1, 1), (3, 1), (4, 2), (5, 3), (5, 5), (6, 4)])
@pytest.mark.parametrize("seed", range(6))
def test_no_ranking_is_better_whatever_the_position_weights(m: int, k: int, seed: int) -> None:
    """Sorting by score maximises sum_j b_j score(a_j) for all b_1 >= ... >= b_k >= 0 at once."""
    rng = stream(seed, "best", m, k)
    problem, base = problem_of(m, k, 1 + seed % 3), LinUCBRank(exploration=0.5)
    state = learnt(base, problem, rng)
    user, items = rng.normal(size=P), rng.normal(size=(m, Q))
    g = rng.normal(size=problem.n_objectives)
    choice = base.act(state, Bilinear(user, items), g, rng)
    scores = scores_of(base, state, user, items, g)
    chosen = scores[np.asarray(choice.action)]
    every = scores[np.array(list(permutations(range(m), k)))]
    for _ in range(20):
        weights = np.sort(rng.random(k))[::-1] * (rng.random() < 0.8)
        weights[int(rng.integers(1, k + 1)) :] *= rng.integers(2)  # slots that nobody looks at
        assert weights @ chosen >= (every @ weights).max() - 1e-10


def test_equal_scores_keep_the_order_of_the_items() -> None:
    problem, base = problem_of(6, 4), LinUCBRank(exploration="theorem")
    state = base.init(problem)
    same = Bilinear(np.ones(P), np.tile([0.1, 0.2, 0.3], (6, 1)))
    for bonus, ranking in (
        ([0.0] * 6, [0, 1, 2, 3]),
        ([0.0, 1.0, 0.0, 1.0, 0.0, 1.0], [1, 3, 5, 0]),
        ([-1.0, 0.0, 0.0, -1.0, 0.0, 0.0], [1, 2, 4, 5]),
    ):
        choice = base.act(state, same, np.array([*bonus, 1.0]), stream(0, "ties"))
        assert np.asarray(choice.action).tolist() == ranking
        assert choice.probability == 1.0


# --- candidates, blocked, pinned --------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_pins_candidates_and_blocks_against_brute_force(seed: int) -> None:
    rng = stream(seed, "pins")
    m, k = 6, 3
    problem, base = problem_of(m, k), LinUCBRank(exploration=1.0)
    state = learnt(base, problem, rng)
    user, items = rng.normal(size=P), rng.normal(size=(m, Q))
    g = rng.normal(size=problem.n_objectives)
    only = rng.permutation(m)[:5].tolist()
    blocked = only[:1] if seed % 2 else []
    allowed = sorted(set(only) - set(blocked))
    slots = rng.permutation(k)[: seed % (k + 1)].tolist()
    pinned = dict(zip(slots, rng.permutation(allowed).tolist(), strict=False))
    given = read_candidates(
        Bilinear(user, items),
        problem,
        Catalogue.of(problem),
        candidates=only,
        blocked=blocked,
        pinned=pinned,
    )
    aimed = np.append(g[allowed], g[m:])
    ranking = np.asarray(base.act(state, given, aimed, rng).action)
    scores, weights = scores_of(base, state, user, items, g), np.array([0.9, 0.5, 0.2])
    rivals = [
        weights @ scores[list(one)]
        for one in permutations(allowed, k)
        if all(one[slot] == item for slot, item in pinned.items())
    ]
    assert weights @ scores[ranking] == pytest.approx(max(rivals), abs=1e-10)
    assert len(set(ranking.tolist())) == k
    assert set(ranking.tolist()) <= set(allowed)
    assert all(ranking[slot] == item for slot, item in pinned.items())


# --- random swaps -----------------------------------------------------------------------------


class Draws:
    """A generator that gives these numbers."""

    def __init__(self, numbers: list[float]) -> None:
        self.numbers = numbers

    def random(self, shape: tuple[int, int]) -> Matrix:
        assert shape == (1, len(self.numbers))
        return np.array([self.numbers])


@pytest.mark.parametrize("k", range(1, 8))
@pytest.mark.parametrize("chance", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("pins", [{}, {0: 4}, {1: 0, 2: 7}])
def test_the_probability_of_a_swapped_ranking(k: int, chance: float, pins: dict[int, int]) -> None:
    """All draws are enumerated: each ranking's share is the probability that is said of it."""
    m = 8
    problem, base = problem_of(m, k), LinUCBRank(randomize=chance, exploration="theorem")
    state = base.init(problem)
    pinned = {slot: item for slot, item in pins.items() if slot < k}
    rng = stream(0, "swaps")
    context = Bilinear(rng.normal(size=P), rng.normal(size=(m, Q)))
    given = read_candidates(context, problem, Catalogue.of(problem), pinned=pinned)
    g = np.append(np.arange(m, 0.0, -1.0), 0.0)
    shares: dict[tuple[int, ...], float] = defaultdict(float)
    said: dict[tuple[int, ...], float] = {}
    for offset, *swaps in product((0.25, 0.75), *[(True, False)] * (k // 2)):
        numbers = [0.5 * chance if swap else 0.5 * (1.0 + chance) for swap in swaps]
        generator: Any = Draws([offset, *numbers])
        choice = base.act(state, given, g, generator)
        ranking = tuple(np.asarray(choice.action).tolist())
        weight = np.prod([chance if swap else 1.0 - chance for swap in swaps])
        shares[ranking] += 0.5 * float(weight)
        assert choice.probability is not None
        assert said.setdefault(ranking, choice.probability) == choice.probability
    assert sum(said.values()) == pytest.approx(1.0, abs=1e-12)
    for ranking, probability in said.items():
        assert probability == pytest.approx(shares[ranking], abs=1e-12)
    plain = np.asarray(
        LinUCBRank(exploration="theorem")
        .act(LinUCBRank(exploration="theorem").init(problem), given, g, rng)
        .action
    )
    assert tuple(plain.tolist()) in said
    for ranking in said:
        moved = [slot for slot in range(k) if ranking[slot] != plain[slot]]
        assert not set(moved) & set(pinned)
        assert all(abs(ranking.index(int(item)) - slot) <= 1 for slot, item in enumerate(plain))


def test_every_slot_can_be_swapped_with_both_neighbours() -> None:
    problem, base = problem_of(6, 5), LinUCBRank(randomize=0.4, exploration="theorem")
    state, rng = base.init(problem), stream(0, "reach")
    context = Bilinear(rng.normal(size=P), rng.normal(size=(6, Q)))
    g = np.append(np.arange(6.0, 0.0, -1.0) * 10.0, 0.0)
    seen = {tuple(np.asarray(base.act(state, context, g, rng).action).tolist()) for _ in range(500)}
    assert {(1, 0, 2, 3, 4), (0, 2, 1, 3, 4), (0, 1, 3, 2, 4), (0, 1, 2, 4, 3)} <= seen
    assert (1, 0, 3, 2, 4) in seen
    assert all(set(ranking) == {0, 1, 2, 3, 4} for ranking in seen)


# --- settings and bad input -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"exploration": -0.1}, r"exploration is -0\.1; give a number of at least 0"),
        ({"exploration": float("nan")}, r"exploration is nan;"),
        ({"ridge": 0.0}, r"ridge is 0\.0; give a positive finite number"),
        ({"delta": 1.0}, r"delta is 1\.0; give a number between 0 and 1"),
        ({"exposure": "seen"}, r"exposure is 'seen'; give 'observed', 'shown'"),
        ({"randomize": 1.0}, r"randomize is 1\.0; .*below 1"),
        ({"randomize": -0.5}, r"randomize is -0\.5; .*at least 0"),
    ],
)
def test_bad_settings(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        LinUCBRank(**settings)


def test_a_ranker_needs_items_and_an_arm_is_no_ranking() -> None:
    from fairwolfe.bandits import LinUCB

    with pytest.raises(InvalidInput, match=r"LinUCBRank ranks items, and the problem has arms;"):
        LinUCBRank(exploration="theorem").init(Problem.arms(2, {"clicks": (0, 1)}))
    with pytest.raises(InvalidInput, match=r"items to rank, and LinUCB chooses an arm;"):
        LinUCB(exploration="theorem").init(problem_of(4, 2))


@pytest.mark.parametrize("n", [0, 6, 8])
def test_a_direction_of_another_length(n: int) -> None:
    base, problem = LinUCBRank(exploration="theorem"), problem_of(6, 2)
    context = Bilinear(np.ones(P), np.ones((6, Q)))
    with pytest.raises(InvalidInput, match=rf"shape \({n},\); give 6 numbers for the candidates"):
        base.act(base.init(problem), context, np.zeros(n), stream(0, "g"))


def test_estimates_that_are_no_numbers_are_refused_loudly() -> None:
    base, problem = LinUCBRank(exploration="theorem"), problem_of(6, 2)
    state = base.init(problem)
    state.oracle.theta[:] = np.nan
    with pytest.raises(NumericalFailure, match="no longer usable"):
        base.act(state, Bilinear(np.ones(P), np.ones((6, Q))), np.ones(7), stream(0, "nan"))


# --- what was learnt ----------------------------------------------------------------------------


def test_slots_are_fitted_so_that_none_is_exposed_more_often_than_the_one_before() -> None:
    base, problem = LinUCBRank(exploration="theorem"), problem_of(6, 3)
    state = base.init(problem)
    with pytest.raises(InvalidInput, match="nothing has been shown yet"):
        base.learnt(state)
    state.slots[:] = [[100.0, 100.0, 100.0], [80.0, 30.0, 50.0]]
    assert base.learnt(state).looks == pytest.approx((0.8, 0.4, 0.4))
    stated = LinUCBRank(position_weights=(1.0, 0.5, 0.1), exploration="theorem")
    assert stated.learnt(stated.init(problem)).looks == (1.0, 0.5, 0.1)


def test_what_is_expected_of_a_ranking_and_of_the_others() -> None:
    """`estimate` by its formula, and `certify`: no score is below that of an upper bound."""
    rng = stream(0, "estimate")
    problem, base = problem_of(6, 3, 2), LinUCBRank(randomize=0.5, exploration="theorem")
    state = learnt(base, problem, rng)
    user, items = rng.normal(size=P), rng.normal(size=(6, Q))
    g, slope = rng.normal(size=(2, 8))
    choice = base.act(state, Bilinear(user, items), g, rng)
    shown: Any = choice.action
    chance = state.slots[1] / state.slots[0]
    assert base.chances(state).tolist() == chance.tolist()
    assert base.chances(base.init(problem)).tolist() == [1.0, 1.0, 1.0]
    means = np.clip(
        [state.oracle.theta[0] @ np.kron(user, items[i]) for i in shown], *problem.slot_ranges
    )
    wanted = np.zeros(8)
    wanted[shown], wanted[6:] = chance, chance @ means
    found = base.estimate(state, Bilinear(user, items), choice)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)
    greedy = scores_of(LinUCBRank(exploration=0.0), state, user, items, slope)
    bounds = base.bound_params(problem)
    for given, sure in ((bounds, True), (np.empty(0), False)):
        best, missed = base.certify(state, Bilinear(user, items), g, choice, slope, given)
        np.testing.assert_allclose(missed, np.sort(greedy)[::-1][:3] - greedy[shown], atol=1e-12)
        assert (best >= np.sort(greedy)[::-1][:3]).all() if sure else not best.any()
    assert (
        LinUCBRank(exposure="until_last_click", exploration="theorem").bound_params(problem).size
        == 0
    )


# --- scores of one's own ------------------------------------------------------------------------


class Optimistic(Ranker):
    """LinUCBRank's scores, in Python."""

    def scores(
        self,
        value: Vector,
        width: Vector,
        bonus: float,
        direction: Vector,
        exposed: Vector,
        shown: Vector,
        t: float,
        slots: int,
        params: Vector,
    ) -> Vector:
        assert value.shape == width.shape == direction.shape == exposed.shape == shown.shape
        assert (shown <= t).all()
        assert params.size == 0
        return value + bonus * width + direction


class Lifted(LinUCBRank):
    """LinUCBRank's compiled scores, with something for the items that were never shown."""

    def scores(self, *given: Any) -> Vector:
        shown = given[5]
        lifted: Vector = super().scores(*given) + 1e6 * (shown == 0.0)
        return lifted


def bits(state: RankState) -> list[bytes]:
    counts = (state.exposed, state.shown, state.slots, state.features, state.retired)
    return [array.tobytes() for array in (state.params, *state.oracle, *counts)]


@pytest.mark.parametrize("exploration", [0.7, "pointwise"])
@pytest.mark.parametrize("randomize", [0.0, 0.4])
def test_scores_in_python_decide_and_learn_as_compiled_ones(
    exploration: Any, randomize: float
) -> None:
    problem, rng = problem_of(7, 3, 2), stream(0, "own")
    settings = {"exploration": exploration, "randomize": randomize}
    bases = LinUCBRank(**settings), Optimistic(**settings)
    states, drawn = [base.init(problem) for base in bases], [stream(1, "own") for _ in bases]
    for t in range(40):
        catalogue = bases[0].catalogue(states[0])
        context = Bilinear(rng.normal(size=P), rng.normal(size=(7, Q)))
        only = sorted(rng.permutation(7)[:5].tolist()) if t % 2 else None
        pinned = {int(rng.integers(3)): int(rng.choice(only or range(7)))} if t % 3 == 0 else None
        given = read_candidates(context, problem, catalogue, candidates=only, pinned=pinned)
        g = rng.normal(size=given.ids.size + 2)
        exposed = (rng.random(3) < 0.6).astype(float)
        shown = Shown(exposed, exposed[:, None] * rng.random((3, 2)))
        one, two = (
            base.act(state, given, g, draws)
            for base, state, draws in zip(bases, states, drawn, strict=True)
        )
        assert np.array_equal(one.action, two.action)
        assert one.probability == two.probability
        assert one.explanation == two.explanation
        for slot, item in (pinned or {}).items():
            assert np.asarray(two.action)[slot] == item
        states = [
            base.update(state, choice, g, shown)
            for base, state, choice in zip(bases, states, (one, two), strict=True)
        ]
    assert bits(states[0]) == bits(states[1])


def test_compiled_scores_can_be_changed_in_python() -> None:
    problem, rng = problem_of(6, 3), stream(0, "lifted")
    state = Lifted().init(problem)
    context = Bilinear(rng.normal(size=P), rng.normal(size=(6, Q)))
    state.shown[:] = [1, 1, 0, 1, 0, 1]
    plain = LinUCBRank(exploration="theorem").act(state, context, np.ones(7), rng)
    choice = Lifted().act(state, context, np.ones(7), rng)
    ranking = np.asarray(choice.action).tolist()
    assert set(ranking[:2]) == {2, 4}
    assert ranking[2] == next(i for i in np.asarray(plain.action).tolist() if i not in (2, 4))


def test_the_engine_has_rules_of_its_own_only() -> None:
    problem = problem_of(6, 3, 2)
    base = LinUCBRank(randomize=0.3, position_weights=(0.9, 0.5, 0.1), exploration="theorem")
    rule = base.rule(problem)
    assert rule is not None
    assert (rule.name, rule.uniforms, rule.owed) == ("optimistic", 2, 0.0)
    assert rule.params.tolist() == base.init(problem).params.tolist()
    assert rule.position_weights is not None
    assert rule.position_weights.tolist() == [0.9, 0.5, 0.1]
    assert rule.limit == base.limit(problem) == 1000.0**2

    class Acts(LinUCBRank):
        def act(self, *given: Any) -> Any:
            return super().act(*given)

    class Learns(LinUCBRank):
        def update(self, *given: Any) -> Any:
            return super().update(*given)

    class Draws(LinUCBRank):
        def draws(self, *given: Any) -> Any:
            return super().draws(*given)

    for own in (Optimistic(), Lifted(), Acts(), Learns(), Draws()):
        assert own.rule(problem) is None


@pytest.mark.parametrize("bad", [np.zeros(5), np.zeros((6, 1)), 1.0])
def test_scores_of_another_shape(bad: Any) -> None:
    class Wrong(Ranker):
        def scores(self, *given: Any) -> Any:
            return bad

    base, problem = Wrong(), problem_of(6, 3)
    context = Bilinear(np.ones(P), np.ones((6, Q)))
    with pytest.raises(InvalidInput, match=r"Wrong.scores returns shape .*each of 6 candidates"):
        base.act(base.init(problem), context, np.ones(7), stream(0, "wrong"))
