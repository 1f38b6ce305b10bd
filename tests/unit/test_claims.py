"""Every claim on curves made so that it must hold, and so that it must not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.errors import InvalidInput
from fairwolfe.lab.experiment import Experiment
from fairwolfe.paper import judges
from fairwolfe.paper.claims import CLAIMS, Claim, judge
from fairwolfe.paper.curves import Curves
from fairwolfe.paper.judges import FAIR, FLOOR, PLAIN, UNBIASED
from fairwolfe.paper.verdicts import Finding, above, all_of, inside

SEEDS = 6
T = np.unique(np.geomspace(1, 5e6, 140).round().astype(np.int64))
T[np.abs(T - 100).argmin()], T[np.abs(T - 1000).argmin()] = 100, 1000
ARMS = (
    judges.MOLINCB,
    judges.SQUARE,
    judges.SQUARE_MORE,
    judges.LINUCB,
    judges.LINUCB_MORE,
    judges.GREEDY,
)


def noisy(curve: Vector, size: float = 1e-4) -> Matrix:
    """The same curve for all seeds, a little apart."""
    return np.asarray(curve * (1.0 + size * np.linspace(-1.0, 1.0, SEEDS)[:, None]))


def rising(end: float, scale: float = 10.0) -> Vector:
    return np.asarray(end * (1.0 - 1.0 / (1.0 + T / scale)))


def falling(top: float, when: float, end: float) -> Vector:
    """Up to `top` at `when`, then down to `end`."""
    x = np.log(T / when)
    return np.asarray(np.where(x < 0.0, top + 0.2 * x, np.maximum(top - 0.1 * x, end)))


def curves(values: Mapping[str, Any], quantity: str = "value") -> Curves:
    return Curves(T, {label: {quantity: noisy(curve)} for label, curve in values.items()})


def arms(**ends: float) -> Curves:
    levels = dict.fromkeys(ARMS, 1.5) | {judges.SQUARE_MORE: 1.45, judges.LINUCB_MORE: 1.2}
    levels |= {getattr(judges, name): end for name, end in ends.items()}
    return Curves(T, {label: {"value": noisy(rising(end, 1.0))} for label, end in levels.items()})


def rankings(fair: Vector, unbiased: Vector, floor: float = 0.5, utility: float = 1.0) -> Curves:
    values = {FAIR: fair, UNBIASED: unbiased, PLAIN: rising(0.5), FLOOR: rising(floor)}
    return Curves(
        T,
        {
            label: {"value": noisy(v), "utility": noisy(np.full(len(T), utility))}
            for label, v in values.items()
        },
    )


def trade(fair: Mapping[float, tuple[float, float]]) -> Curves:
    """FW's points (Gini, utility) by beta, beside FairLearn's line from (.6, 4) to (0, 3)."""
    floors = {c: (0.6 - 3.0 * c, 4.0 - 5.0 * c) for c in (0.0, 0.1, 0.2)}
    labels = {f"{FAIR} beta={beta}": point for beta, point in fair.items()}
    labels |= {f"{FLOOR} c={c}": point for c, point in floors.items()}
    return Curves(
        T,
        {
            label: {
                "gini": noisy(np.full(len(T), gini)),
                "utility": noisy(np.full(len(T), utility)),
            }
            for label, (gini, utility) in labels.items()
        },
    )


FRONTIER = {0.0: (0.6, 4.1), 0.1: (0.3, 4.05), 1.0: (0.005, 4.0)}
UNDER = {0.0: (0.6, 4.1), 0.1: (0.3, 3.2), 1.0: (0.005, 2.5)}
HIGH = rankings(rising(2.0), falling(1.5, 1e4, 0.6))
LOW = rankings(rising(0.4), rising(3.0))


def slopes(policy: str, exponent: float) -> Curves:
    return curves({policy: T**exponent}, "mean_pseudo_regret")


def smoothings(apart: float) -> Curves:
    return curves({"anytime": rising(1.0 + apart), "fixed horizon": rising(1.0)})


# id -> (results on which it must hold, results on which it must not), one for each need.
CASES: dict[str, tuple[tuple[Curves, ...], tuple[Curves, ...]]] = {
    "M1": ((arms(),), (arms(SQUARE=1.4),)),
    "M2": (
        (arms(),),
        (Curves(T, {label: {"value": noisy(rising(1.5, 100.0))} for label in ARMS}),),
    ),
    "M3": ((arms(),), (arms(LINUCB_MORE=1.6),)),
    "M4": ((arms(),), (arms(GREEDY=1.7),)),
    "M5": ((arms(),), (arms(SQUARE_MORE=1.6),)),
    "M6": ((arms(), arms()), (arms(), arms(GREEDY=1.7))),
    "R1": ((HIGH,), (LOW,)),
    "R2": ((HIGH,), (rankings(rising(2.0), rising(0.4)),)),
    "R3": ((HIGH,), (LOW,)),
    "R4": ((trade(FRONTIER),), (trade(UNDER),)),
    "R5": ((trade(FRONTIER),), (trade(UNDER),)),
    "R6": ((rankings(rising(3.0), rising(1.0)),), (rankings(rising(1.5), rising(1.0)),)),
    "R7": ((HIGH,), (rankings(rising(2.0, 1e4), falling(1.9, 1e4, 0.6)),)),
    "R8": ((HIGH,), (LOW,)),
    "R9": ((HIGH,), (rankings(rising(2.0), falling(1.5, 1e5, 0.6)),)),
    "R10": ((rankings(rising(2.0), falling(1.5, 5e5, 0.6)),), (HIGH,)),
    "R11": ((LOW,), (HIGH,)),
    "R12": ((trade(FRONTIER),), (trade(FRONTIER | {0.3: (0.35, 4.06)}),)),
    "R13": ((HIGH,), (LOW,)),
    "R14": ((HIGH,), (LOW,)),
    "R15": ((rankings(rising(2.0, 50.0), rising(1.0)),), (HIGH,)),
    "R16": ((rankings(rising(2.0, 5.0), rising(1.0)),), (rankings(rising(2.0, 1e3), rising(1.0)),)),
    "R17a": ((HIGH,), (LOW,)),
    "R17b": ((HIGH,), (LOW,)),
    "R18": ((trade(FRONTIER),), (trade(UNDER),)),
    "T2": ((smoothings(0.0),), (smoothings(-0.01),)),
}


def verdict(claim: Claim, results: tuple[Curves, ...]) -> str:
    ((judged, found),) = judge(dict(zip(claim.needs, results, strict=True)), [claim])
    assert judged is claim
    assert found.low <= found.estimate <= found.high
    return found.verdict


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.id} {claim.where}")
def test_a_claim_holds_where_it_must_and_not_where_it_must_not(claim: Claim) -> None:
    if claim.id == "T1":
        policy = {"regret-ranking": FAIR}.get(claim.where)
        names = [policy] if policy else ["FW-LinUCB", "FW-SquareCB"]
        good, bad = (
            Curves(T, {n: slopes(n, exponent).runs[n] for n in names}) for exponent in (-0.6, -0.2)
        )
        cases: Any = ((good,), (bad,))
    else:
        cases = CASES[claim.id]
    assert [verdict(claim, results) for results in cases] == ["holds", "does not hold"]


def test_every_claim_of_the_list_is_here() -> None:
    wanted = {*(f"M{i}" for i in range(1, 7)), *(f"R{i}" for i in range(1, 17)), "R17a", "R17b"}
    assert {claim.id for claim in CLAIMS} == wanted | {"R18", "T1", "T2"}


def test_claims_without_results_are_left_out() -> None:
    assert judge({}) == []
    assert [claim.id for claim, _ in judge({"lastfm-50": HIGH})] == ["R1", "R2", "R3"]


def test_one_seed_decides_nothing() -> None:
    found = above("difference", np.array([1.0]))
    assert found.verdict == "undecided"
    assert found.estimate == 1.0


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ([1.0, 1.1, 0.9], "holds"),
        ([0.0, 0.0, 0.0], "does not hold"),
        ([-1.0, -1.1, -0.9], "does not hold"),
        ([-1.0, 1.0, 0.1], "undecided"),
        ([np.nan, 1.0], "undecided"),
        ([], "undecided"),
    ],
)
def test_above(sample: list[float], expected: str) -> None:
    assert above("difference", np.array(sample)).verdict == expected


def test_a_time_is_judged_on_a_logarithmic_scale() -> None:
    found = inside("time", np.array([1e3, 1e5]), 1.0, 1e12, log=True)
    assert found.estimate == pytest.approx(1e4)


def test_two_findings_hold_only_together() -> None:
    def finding(verdict: Any) -> Finding:
        return Finding("x", 0.0, 0.0, 0.0, verdict)

    combined: Callable[..., str] = lambda *v: all_of(*map(finding, v)).verdict  # noqa: E731
    assert combined("holds", "holds") == "holds"
    assert combined("holds", "undecided") == "undecided"
    assert combined("undecided", "does not hold") == "does not hold"


SPEC = """
name = "small"
horizon = 100
environment = { name = "mehrotra" }
objective = { name = "minimum" }
policies.a = { name = "frank-wolfe", base = { name = "linucb", ridge = 1 } }
policies.b = { name = "frank-wolfe", base = { name = "uniform" } }
"""


def frame_of(experiment: Experiment, seeds: Mapping[str, tuple[int, ...]]) -> Any:
    import pandas as pd

    rows = [
        {
            "run": f"{cell.settings.id}-{seed}",
            "label": cell.label,
            "seed": seed,
            "t": t,
            "value": i + seed + t / 100.0,
            "scalar_pseudo_regret": np.nan,
        }
        for i, cell in enumerate(experiment.cells)
        for seed in seeds[cell.label]
        for t in (1, 10, 100)
    ]
    return pd.DataFrame(rows)


@pytest.mark.needs("pyarrow")
def test_curves_from_a_frame_are_paired_by_seed() -> None:
    experiment = Experiment.of(SPEC)
    made = Curves.of(experiment, frame_of(experiment, {"a": (0, 1, 2), "b": (2, 1)}))
    assert made.t.tolist() == [1, 10, 100]
    assert made.at("a", 50).tolist() == [1.1, 2.1]
    assert made.at("b", 10).tolist() == [2.1, 3.1]


@pytest.mark.needs("pyarrow")
def test_points_of_a_grid_have_labels_of_their_own() -> None:
    experiment = Experiment.of(SPEC + 'grid."policies.a.base.ridge" = [0.1, 1.0]')
    made = Curves.of(experiment, frame_of(experiment, {"a": (0, 1), "b": (0, 1)}))
    assert list(made.runs) == ["a ridge=0.1", "a ridge=1", "b"]
    assert made.at("a ridge=1", 1).tolist() == [1.01, 2.01]


def test_an_unknown_label_is_refused() -> None:
    with pytest.raises(InvalidInput, match="FW-LinUCBRank"):
        HIGH.at("FW-LinUCBRnk")
