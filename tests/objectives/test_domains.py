"""Ranges against domains: what `bind` refuses, and the constants that it takes from the ranges."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fairwolfe as fw
from fairwolfe import Problem
from fairwolfe.bandits import LinUCB, SquareCB
from fairwolfe.core.arrays import Vector
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput, OutsideAssumptions
from fairwolfe.objectives import (
    AtMost,
    ByGroup,
    Concave,
    Linear,
    Mapped,
    Minimum,
    Nash,
    PerMerit,
    TwoSided,
    Welfare,
)
from fairwolfe.smoothing import Identity, Moreau, default_smoothing
from tests.agent import ranking_agents

SIGNED = Problem.arms(2, {"gain": (-1, 1), "loss": (-2, 0.5)}, parameter_norm=1.0)
UNIT = Problem.arms(2, {"gain": (0, 1), "cost": (0, 1)}, parameter_norm=1.0)
RANKING = Problem.ranking(4, 2, 3, {"clicks": (0, 2), "regret": (-3, 0)})


# --- what is refused -------------------------------------------------------------------------

LOSS = r"reward 'loss' has the range \(-2, 0.5\)"
REFUSED: dict[str, tuple[Concave, Problem, str]] = {
    "nash": (Nash(), SIGNED, rf"Nash\(\) is -inf below 0, .* low as -2: {LOSS}; give"),
    "nash, offset": (Nash(offset=1.5), SIGNED, rf"below -1.5, .* as -2: {LOSS}; .* at least 2,"),
    "welfare": (Welfare(0.5), SIGNED, rf"Welfare\(.* low as -2: {LOSS}; .* at least 2,"),
    "welfare, offset": (Welfare(0.3, offset=1.999), SIGNED, rf"below -1.999, .*{LOSS}"),
    "aimed": (Nash(offset=0.5).on("gain"), SIGNED, r"'gain' has the range \(-1, 1\); .* least 1,"),
    "term": (Linear((1.0, 1.0)) + 2.0 * Nash().on("loss"), SIGNED, LOSS),
    "multiple": (1e-9 * Welfare(0.5), SIGNED, LOSS),
    "difference": (
        Mapped(Nash(offset=0.1), [[1.0, -1.0]]),
        UNIT,
        r"low as -1: reward 'cost' has the range \(0, 1\) and counts -1 times; .* at least 1,",
    ),
    "map of a map": (
        Mapped(PerMerit(Nash(0.1), (0.5, 1.0)), [[1.0, -0.25], [0.0, 1.0]]),
        UNIT,
        r"low as -0.5: reward 'cost' .* counts -0.5 times",
    ),
    "merits": (PerMerit(Nash(1.0), (1.0, 0.5)), SIGNED, r"as -4: reward 'loss' .* counts 2 times"),
    "groups": (
        ByGroup(Welfare(0.5, 2.0), ("one", "one")),
        SIGNED,
        rf"low as -3: {LOSS}; .* at least 3,",
    ),
    "users": (
        TwoSided(Nash(), users=Nash(1.0).on("regret")),
        RANKING,
        r"'regret' has the range \(-3, 0\)",
    ),
    "exposures": (
        TwoSided(Mapped(Nash(offset=0.5), [[1.0, 1.0, -1.0, 0.0]])),
        RANKING,
        r"low as -1: the exposure of item 2 has the range \(0, 1\) and counts -1 times",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_domain_that_the_average_can_leave_is_refused(case: str) -> None:
    f, problem, message = REFUSED[case]
    with pytest.raises(InvalidInput, match=message):
        f.bind(problem)
    if not problem.n_items:
        with pytest.raises(InvalidInput, match=message):
            fw.Agent(fw.FrankWolfe(f, LinUCB(exploration="theorem"), Moreau()), problem)


@pytest.mark.parametrize(
    ("f", "problem"),
    [
        (Nash(), UNIT),  # the edge is reached, before the first reward at the latest
        (Welfare(0.5), UNIT),
        (Nash(offset=2.0), SIGNED),
        (Welfare(0.5, offset=2.0), SIGNED),
        (Welfare(1.0), SIGNED),
        (0.0 * Nash(), SIGNED),
        (TwoSided(Mapped(Nash(), [[1.0, -1.0, 0.0, 0.0]]), beta=0.0), RANKING),
        (Nash().on("gain"), Problem.arms(2, {"gain": (0, 1), "loss": (-2, 0)})),
        (Mapped(Nash(1.0), [[1.0, -1.0]]), UNIT),
        # Not by the ranges one after the other: 3 a - 2 (a - b) = a + 2 b.
        (Mapped(Mapped(Nash(), [[3.0, -2.0]]), [[1.0, 0.0], [1.0, -1.0]]), UNIT),
        # 0.1 + 0.2 > 0.3 by rounding only
        (Mapped(Nash(0.3), [[-0.1, -0.2]]), UNIT),
        (Mapped(Nash(), [[1.0, -1.0]]), Problem.arms(2, {"a": (5, 6), "b": (1, 5)})),
        (TwoSided(ByGroup(Nash(), "abab")), RANKING),
    ],
    ids=repr,
)
def test_a_domain_whose_edge_is_only_reached_is_accepted(f: Concave, problem: Problem) -> None:
    bound = f.bind(problem)
    assert bound.bind(problem) == bound
    smoothing = default_smoothing(bound, problem.n_objectives).bind(problem, bound)
    for z in (problem.low, np.zeros(problem.n_objectives), problem.high):
        assert np.isfinite(smoothing.gradient(bound, z, 10)).all()


def test_a_refused_objective_leaves_an_agent_as_it_was() -> None:
    one = fw.Agent(fw.FrankWolfe(Linear({"gain": 1.0}), LinUCB(exploration="theorem")), SIGNED)
    twin = fw.Agent(fw.FrankWolfe(Linear({"gain": 1.0}), LinUCB(exploration="theorem")), SIGNED)
    arms = np.eye(2)
    for agent in (one, twin):
        agent.update(agent.act(arms), [-0.9, 0.2])
    with pytest.raises(InvalidInput, match=r"'loss' has the range \(-2, 0.5\)"):
        one.replace_objective(Nash(offset=1.0))
    assert one.policy == twin.policy
    assert one.value == twin.value
    assert one.act(arms).action == twin.act(arms).action
    one.replace_objective(Nash(offset=2.5))
    assert one.value == pytest.approx(math.log(1.6) + math.log(2.7))
    one.act(arms)


def test_new_items_come_with_no_objective_that_is_refused() -> None:
    one = ranking_agents.agent()
    before = one.policy, one.problem.n_items
    row = [1.0] * ranking_agents.M + [-1.0]
    with pytest.raises(InvalidInput, match=r"the exposure of item 8 .* counts -1 times"):
        one.add_items(ranking_agents.ITEMS[:1], TwoSided(Mapped(Nash(0.5), [row])))
    assert (one.policy, one.problem.n_items) == before
    one.add_items(ranking_agents.ITEMS[:1], TwoSided(Mapped(Nash(1.5), [row])))
    assert one.problem.n_items == ranking_agents.M + 1


# --- constants -------------------------------------------------------------------------------


def test_constants_come_from_the_ranges() -> None:
    problem = Problem.arms(2, {"a": (-1, 1), "b": (-1, 1)}, parameter_norm=1.0)
    f = Nash(offset=1.1).bind(problem)
    low = np.array([-1.0, -1.0])
    assert f.lipschitz(2) == pytest.approx(np.linalg.norm(f.gradient(low)))
    assert f.lipschitz(2) == pytest.approx(math.sqrt(2.0) / 0.1)
    assert f.smoothness(2) == pytest.approx(100.0)
    assert Nash(offset=1.1).lipschitz(2) == math.sqrt(2.0) / 1.1  # unbound: on z >= 0
    tuned = fw.FrankWolfe(Nash(offset=1.1), SquareCB(gamma0="theorem")).init(problem)
    assert tuned.base == SquareCB(gamma0="theorem").tuned(f.lipschitz(2))
    extended = fw.FrankWolfe(
        Nash(offset=1.1), LinUCB(model="extended", exploration="theorem")
    ).init(problem)
    assert extended.base == LinUCB(model="extended", exploration="theorem").tuned(f.lipschitz(2))


def test_each_coordinate_has_its_own_range() -> None:
    problem = Problem.arms(2, {"a": (-1, 1), "b": (3, 7), "c": (-0.5, 0)})
    f = Nash(offset=2.0).bind(problem)
    # Averages begin at 0, so that "b" counts from there.
    assert f.lipschitz(3) == pytest.approx(np.linalg.norm([1.0, 0.5, 1.0 / 1.5]))
    assert f.smoothness(3) == pytest.approx(1.0)
    assert repr(f) == "Nash(offset=2.0, low=(-1.0, 0.0, -0.5))"
    assert f == eval(repr(f), {"Nash": Nash})
    assert repr(Nash(offset=2.0).bind(UNIT)) == "Nash(offset=2.0)"


def test_the_edge_of_the_domain_has_no_constants_and_is_smoothed() -> None:
    edge, inside = Nash(offset=2.0).bind(SIGNED), Nash(offset=2.1).bind(SIGNED)
    assert (edge.lipschitz(2), edge.smoothness(2)) == (math.inf, math.inf)
    assert default_smoothing(edge, 2) == Moreau()
    assert default_smoothing(inside, 2) == Identity()
    with pytest.raises(OutsideAssumptions, match="needs a Lipschitz constant of f, here inf"):
        fw.FrankWolfe(Nash(offset=2.0), SquareCB(gamma0="theorem")).init(SIGNED)


def test_bounds_use_the_constants_of_the_ranges() -> None:
    given: dict[str, Any] = {"problem": SIGNED, "horizon": 1000}
    wide, narrow = Nash(offset=2.1), Nash(offset=4.0)
    noise = [fw.bounds.azuma(objective=f, delta=0.05, **given) for f in (wide, narrow)]
    slopes = [f.bind(SIGNED).lipschitz(2) for f in (wide, narrow)]
    assert slopes[0] == pytest.approx(np.linalg.norm([1.0 / 1.1, 1.0 / 0.1]))
    assert noise[0] / noise[1] == pytest.approx(slopes[0] / slopes[1])


def test_a_given_low_is_checked() -> None:
    with pytest.raises(InvalidInput, match=re.escape("low is -0.2, but Nash is -inf below -0.1")):
        Nash(offset=0.1, low=-0.2)
    with pytest.raises(InvalidInput, match="low"):
        Welfare(0.5, low=math.nan)


# --- any expression, any ranges --------------------------------------------------------------

N = 3
LEVELS = st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.25, 1.0, 3.0])
OFFSETS = st.sampled_from([0.0, 0.001, 0.125, 0.5, 1.0, 1.5, 2.0, 4.0, 10.0])
ENTRIES = st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0, 2.0])


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    ranges = {}
    for name in "abc":
        low, high = sorted(draw(st.tuples(LEVELS, LEVELS).filter(lambda pair: pair[0] != pair[1])))
        ranges[name] = (low, high)
    return Problem.arms(2, ranges)


def separable() -> st.SearchStrategy[Concave]:
    powers = st.sampled_from([0.25, 0.5, 0.9])
    return st.builds(Nash, OFFSETS) | st.builds(Welfare, powers, OFFSETS)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 2) -> Concave:
    if depth == 0:
        others = st.sampled_from([Minimum(), AtMost(0.5, 2.0), Welfare(1.0)])
        return draw(st.one_of(separable(), separable(), others))
    inner = draw(expressions(depth=depth - 1))
    kind = draw(st.sampled_from(["plain", "multiple", "sum", "aim", "map", "groups", "merits"]))
    match kind:
        case "multiple":
            return draw(st.sampled_from([0.0, 0.5, 3.0])) * inner
        case "sum":
            return inner + draw(expressions(depth=depth - 1))
        case "map":
            rows = draw(st.lists(st.tuples(ENTRIES, ENTRIES, ENTRIES), min_size=N, max_size=N))
            assume(all(any(row) for row in rows))
            return Mapped(inner, rows)
        case "groups" if inner.size is None:
            return ByGroup(inner, draw(st.sampled_from(["aab", "abc", "aba"])))
        case "aim" if inner.size is None:
            return inner.on(*draw(st.sampled_from([(0,), (2, 0), (0, 1, 2)])))
        case "merits":
            return PerMerit(inner, draw(st.sampled_from([(1.0, 0.5, 2.0), (4.0, 1.0, 0.25)])))
    return inner


def corners(problem: Problem) -> list[Vector]:
    return [np.array(z) for z in itertools.product(*zip(problem.low, problem.high, strict=True))]


def points(problem: Problem) -> list[Vector]:
    """Corners of the box, points inside, and on the way there from 0, where averages begin."""
    rng = stream(0, "points")
    inside = [rng.uniform(problem.low, problem.high) for _ in range(10)]
    return [*corners(problem), *inside, *(0.01 * z for z in inside), np.zeros(N)]


@given(f=expressions(), problem=problems())
def test_what_is_bound_has_finite_directions_within_its_constants(
    f: Concave, problem: Problem
) -> None:
    try:
        bound = f.bind(problem)
    except InvalidInput as error:
        assume("is -inf below" in str(error))  # not where .on(...) aims beyond the groups
        assert any(f.value(z) == -math.inf for z in corners(problem))  # refused with reason
        return
    smoothing = default_smoothing(bound, N).bind(problem, bound)
    slope, bend = bound.lipschitz(N), bound.smoothness(N)
    places = points(problem)
    directions = [smoothing.gradient(bound, z, 5) for z in places]
    for g in directions:
        assert np.isfinite(g).all()
        assert np.linalg.norm(g) <= slope * (1.0 + 1e-9)
    if smoothing == Identity():
        for (x, gx), (y, gy) in itertools.combinations(zip(places, directions, strict=True), 2):
            distance = float(np.linalg.norm(x - y))
            room = 1e-9 * (1.0 + slope)
            assert np.linalg.norm(gx - gy) <= bend * distance * (1.0 + 1e-9) + room


@given(f=separable(), problem=problems())
def test_constants_of_separable_functions_are_reached(f: Concave, problem: Problem) -> None:
    try:
        bound = f.bind(problem)
    except InvalidInput:
        assume(False)
    slope, low = bound.lipschitz(N), np.minimum(problem.low, 0.0)
    if math.isfinite(slope):
        g = bound.gradient(low)
        assert slope == pytest.approx(np.linalg.norm(g), rel=1e-9)
        bends = abs(bound.gradient(low + 1e-7) - g) / 1e-7
        assert bends.max() == pytest.approx(bound.smoothness(N), rel=1e-3)
    else:
        assert not bound.smooth
