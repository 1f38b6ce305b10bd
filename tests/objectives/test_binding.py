"""Names, aims and problems: what an objective becomes when it is bound, and that it is a value."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import fairwolfe.objectives
from fairwolfe import Problem
from fairwolfe.core.arrays import Vector
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    ByGroup,
    Concave,
    Custom,
    EqualExposure,
    GeneralizedGini,
    GiniEquality,
    GiniWelfare,
    Linear,
    Mapped,
    Minimum,
    Nash,
    On,
    PerMerit,
    TwoSided,
    Welfare,
)
from tests.objectives.points import CASES, Case

ARMS = Problem.arms(4, {"clicks": (0, 1), "minutes": (0, 120), "cost": (0, 0.05)})
ONE_USER = Problem.ranking(n_items=4, n_slots=2, n_features=3)
THREE_USERS = Problem.ranking(4, 2, 3, {"clicks": (0, 2), "minutes": (0, 60), "skips": (0, 2)})

Z3 = np.array([0.5, 30.0, 0.02])
Z5 = np.array([0.4, 0.1, 0.3, 0.2, 1.5])
Z7 = np.array([0.4, 0.1, 0.3, 0.2, 1.5, 20.0, 0.5])


# --- names -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "plain"),
    [
        (Linear({"clicks": 1.0, "minutes": 0.5}), Linear((1.0, 0.5, 0.0))),
        (Linear({"cost": -2.0, "clicks": 1.0}), Linear((1.0, 0.0, -2.0))),
        (AtMost({"cost": 0.01}, penalty=20.0), AtMost(0.01, penalty=20.0).on(2)),
        (AtLeast({"minutes": 40.0, "clicks": 0.6}, 3.0), AtLeast((40.0, 0.6), 3.0).on(1, 0)),
        (Minimum().on("cost", "clicks"), Minimum().on(2, 0)),
        (GeneralizedGini((2.0, 1.0)).on("minutes", 0), GeneralizedGini((2.0, 1.0)).on(1, 0)),
        (Linear({"cost": 1.0}).on("minutes", "cost"), Linear((0.0, 1.0)).on(1, 2)),
        (2.0 * Nash().on("clicks"), 2.0 * Nash().on(0)),
        (Minimum().on("clicks", "cost").on("cost", "minutes", "clicks"), Minimum().on(0, 2)),
        (
            Linear({"clicks": 1.0}) + 3.0 * (AtMost({"cost": 0.01}, 20.0) + Nash().on("minutes")),
            Linear((1.0, 0.0, 0.0)) + 3.0 * AtMost(0.01, 20.0).on(2) + 3.0 * Nash().on(1),
        ),
        (
            PerMerit(Linear({"cost": 1.0}) + Minimum(), (1.0, 10.0, 0.1)),
            PerMerit(Linear((0.0, 0.0, 1.0)) + Minimum(), (1.0, 10.0, 0.1)),
        ),
    ],
    ids=lambda f: "named" if "'" in repr(f) else "plain",
)
def test_names_become_coordinates(named: Concave, plain: Concave) -> None:
    bound = named.bind(ARMS)
    assert bound.value(Z3) == pytest.approx(plain.value(Z3), rel=1e-14)
    assert bound.gradient(Z3) == pytest.approx(plain.gradient(Z3), rel=1e-14)
    smoothed = bound.envelope_gradient(Z3, 0.3)
    assert smoothed == pytest.approx(plain.envelope_gradient(Z3, 0.3), rel=1e-14)
    assert bound.bind(ARMS) == bound


@pytest.mark.parametrize(
    "f",
    [
        Linear({"clicks": 1.0}),
        AtMost({"cost": 0.01}, 1.0),
        Minimum().on("clicks", 1),
        Minimum() + Nash().on("clicks"),
        2.0 * Linear({"clicks": 1.0}),
    ],
    ids=["linear", "at most", "on", "sum", "multiple"],
)
def test_named_rewards_need_a_problem(f: Concave) -> None:
    for use in (f.value, f.gradient, lambda z: f.envelope(z, 1.0)):
        with pytest.raises(InvalidInput, match=r"names its rewards.*bind\(problem\) first"):
            use(Z3)


def test_aims_count_from_either_end_and_keep_their_order() -> None:
    f = GeneralizedGini((3.0, 1.0, 0.0))
    for places in ((0, 2, 4), (4, 2, 0), (-1, 0, -3), (4, -5, 2)):
        aimed = f.on(*places)
        assert aimed.value(Z5) == f.value(Z5[list(places)])
        expected = np.zeros(5)
        expected[list(places)] = f.gradient(Z5[list(places)])
        assert aimed.gradient(Z5).tolist() == expected.tolist()


def test_an_aimed_function_is_a_function_of_any_length_that_has_its_coordinates() -> None:
    f = Minimum().on(1, 3)
    assert [f.value(np.arange(n, 0.0, -1.0)) for n in (4, 5, 6)] == [1.0, 2.0, 3.0]
    assert f.lipschitz(9) == 1.0


# --- two sides -------------------------------------------------------------------------------


def test_unbound_the_last_coordinate_is_the_user_side() -> None:
    f = TwoSided(GiniEquality(), beta=0.5)
    assert f.value(Z5) == pytest.approx(1.5 + 0.5 * GiniEquality().value(Z5[:4]))


def test_one_user_side_reward() -> None:
    f = TwoSided(GiniEquality(), beta=0.5).bind(ONE_USER)
    expected = Z5[4] + 0.5 * GiniEquality().value(Z5[:4])
    assert f.value(Z5) == pytest.approx(expected)
    assert f.gradient(Z5)[4] == 1.0


def test_three_user_side_rewards_are_summed_by_default() -> None:
    f = TwoSided(GiniEquality(), beta=0.5).bind(THREE_USERS)
    assert f.value(Z7) == pytest.approx(Z7[4:].sum() + 0.5 * GiniEquality().value(Z7[:4]))
    assert f.gradient(Z7)[4:].tolist() == [1.0, 1.0, 1.0]
    assert isinstance(f, TwoSided)
    assert f.n_users == 3


def test_users_may_be_named() -> None:
    users = Linear({"clicks": 1.0, "skips": -0.5}) + AtLeast({"minutes": 30.0}, penalty=0.1)
    f = TwoSided(PerMerit(Minimum(), (1.0, 2.0, 1.0, 1.0)), 2.0, users).bind(THREE_USERS)
    assert f.value(Z7) == pytest.approx(1.5 - 0.25 - 0.1 * 10.0 + 2.0 * 0.05)


def test_items_of_two_sided_know_no_user_names() -> None:
    with pytest.raises(InvalidInput, match="no reward 'clicks'"):
        TwoSided(Linear({"clicks": 1.0})).bind(ONE_USER)


def test_two_sided_inside_an_expression() -> None:
    f = TwoSided(GiniEquality(), 0.5) + 3.0 * AtLeast({"clicks": 2.0}, 1.0)
    expected = TwoSided(GiniEquality(), 0.5).value(Z5) - 3.0 * 0.5
    assert f.bind(ONE_USER).value(Z5) == pytest.approx(expected)


def test_a_ranking_objective_without_sides_sees_all_coordinates() -> None:
    assert Minimum().bind(THREE_USERS).value(Z7) == 0.1
    assert Minimum().on("clicks", 0).bind(THREE_USERS).value(Z7) == 0.4


# --- groups ----------------------------------------------------------------------------------


def test_named_groups_can_be_used_by_name() -> None:
    f = ByGroup(Linear({"ours": 1.0, "theirs": -1.0}), ("ours", "theirs", "ours", "other"))
    bound = TwoSided(f, beta=1.0).bind(ONE_USER)
    assert bound.value(Z5) == pytest.approx(1.5 + 0.7 - 0.1)
    aimed = ByGroup(Minimum().on("other", "ours"), ("ours", "theirs", "ours", "other"))
    assert TwoSided(aimed).bind(ONE_USER).value(Z5) == pytest.approx(1.5 + 0.2)


def test_groups_stand_in_the_order_of_their_first_member() -> None:
    f = ByGroup(Linear((100.0, 10.0, 1.0)), ("b", "a", "b", "c"))
    assert f.groups == ("b", "a", "c")
    assert f.value(np.array([1.0, 2.0, 3.0, 4.0])) == 100.0 * 4.0 + 10.0 * 2.0 + 4.0


def test_names_outside_do_not_reach_inside_groups_and_maps() -> None:
    for f in (
        ByGroup(Linear({"clicks": 1.0}), ("a", "b", "a")),
        Mapped(Linear({"clicks": 1.0}), ((1.0, 0.0, 0.0),)),
    ):
        with pytest.raises(InvalidInput, match="no reward 'clicks'"):
            f.bind(ARMS)


# --- scopes ----------------------------------------------------------------------------------


def test_custom_is_checked_where_the_rewards_can_lie() -> None:
    # Concave on [0, 1], convex beyond 2: only the problem's ranges tell.
    def value(z: Vector) -> float:
        return float((-(z**2) + np.maximum(z - 2.0, 0.0) ** 3).sum())

    f = Custom(value, lambda z: -2.0 * z + 3.0 * np.maximum(z - 2.0, 0.0) ** 2, smooth=True)
    f.bind(Problem.arms(2, {"clicks": (0, 1)}))
    with pytest.raises(InvalidInput, match="not concave"):
        f.bind(Problem.arms(2, {"minutes": (0, 120)}))
    with pytest.raises(InvalidInput, match="not concave"):
        (Minimum() + f.on("minutes")).bind(ARMS)
    (Minimum() + f.on("clicks")).bind(ARMS)


def test_custom_that_lives_outside_the_unit_box() -> None:
    def value(z: Vector) -> float:
        return float(np.log(z - 10.0).sum()) if z.min() > 10.0 else -np.inf

    f = Custom(value, lambda z: 1.0 / (z - 10.0)).bind(Problem.arms(2, {"r": (11, 20)}))
    assert f.gradient(np.array([12.0])).tolist() == [0.5]


def test_binding_checks_sizes_and_leaves_the_original_alone() -> None:
    f = GeneralizedGini((1.0, 0.5, 0.0)) + Linear({"clicks": 1.0})
    before = repr(f)
    f.bind(ARMS)
    assert repr(f) == before
    with pytest.raises(InvalidInput, match="3 weights, the problem has 4 items and 1 rewards"):
        f.bind(ONE_USER)


# --- values ----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_objectives_are_values(case: Case) -> None:
    f = case.objective
    f.gradient(np.full(5, 0.5))  # used or not, it is the same value
    names = {name: getattr(fairwolfe.objectives, name) for name in fairwolfe.objectives.__all__}
    rebuilt = eval(repr(f), names)
    for other in (rebuilt, pickle.loads(pickle.dumps(f)), copy.copy(f), copy.deepcopy(f)):
        assert other == f
        assert hash(other) == hash(f)
        assert repr(other) == repr(f)
        z = np.array([0.4, 0.1, 0.3, 0.2, 0.6])
        assert np.array_equal(other.gradient(z), f.gradient(z))


def test_other_parameters_make_other_values() -> None:
    different = [
        *(case.objective for case in CASES.values()),
        Linear((1.0, 0.5, 0.0, -0.25)),
        Linear({"a": 1.0, "b": 0.5}),
        Linear({"b": 0.5, "a": 1.0}),  # another order of the same names
        GiniWelfare().on(0),
        GiniWelfare().on("0"),
        AtLeast(0.5, 2.5),
        AtMost(0.5, 2.0),
        Welfare(0.5, offset=1.0),
        TwoSided(GiniEquality(), beta=0.5, n_users=2),
        TwoSided(GiniEquality(), beta=0.5, users=Minimum()),
        EqualExposure() + Minimum(),
        Minimum() + EqualExposure(),
    ]
    for i, f in enumerate(different):
        assert [j for j, g in enumerate(different) if f == g] == [i]


def test_sequences_and_arrays_are_the_same_parameters() -> None:
    assert Linear([1, 2]) == Linear((1.0, 2.0)) == Linear(np.array([1.0, 2.0]).tolist())
    assert GeneralizedGini([2, 1]) == GeneralizedGini((2.0, 1.0))
    assert ByGroup(Minimum(), [1, 2]) == ByGroup(Minimum(), np.array([1, 2]).tolist())
    assert Mapped(Minimum(), [[1, 2]]) == Mapped(Minimum(), ((1.0, 2.0),))
    assert On(Minimum(), (0, 1)) == Minimum().on(*np.arange(2))
    assert Welfare(1) == Welfare(1.0)


def test_a_used_custom_can_be_copied() -> None:
    f = Custom(value_of, slope_of, smooth=True)
    f.gradient(np.array([0.1, 0.2]))
    for other in (pickle.loads(pickle.dumps(f)), copy.deepcopy(f)):
        assert other == f
        assert other.gradient(np.array([0.1, 0.2])).tolist() == [-0.2, -0.4]


def value_of(z: Vector) -> float:
    return -float(z @ z)


def slope_of(z: Vector) -> Vector:
    return -2.0 * z
