"""Decisions whose bytes were written by somebody else, with right check sums."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

FORGER = r"""
import collections, faulthandler, json, sys, warnings
import numpy as np
import fairwolfe as fw
from fairwolfe.agent.file import arrays_of
from fairwolfe.bandits import LinUCB, SquareCB
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import GiniWelfare, Minimum, TwoSided
from fairwolfe.core.packing import pack
from fairwolfe.core.decision import Decision
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank
from fairwolfe.smoothing import Randomized

warnings.simplefilter("ignore")
cases, rng, counts = int(sys.argv[1]), np.random.default_rng(0), collections.Counter()
VALUES = [
    None, 0, 1, -1, 10**18, 2**62, 1.5, 1e300, float("nan"), float("-inf"), "x", "", (), (1, 2),
    np.zeros(0), np.zeros(2), np.zeros(3), np.full(2, np.nan), np.full(3, np.inf),
    np.zeros((2, 2)), np.zeros((2, 3)), np.zeros((0, 3)), np.full((2, 3), np.nan),
    np.zeros(2, np.int64), np.zeros(3, np.float32), np.array([1e200] * 2), np.array([1e200] * 3),
    np.array([0, 1]), np.array([5, 5]), np.array([-1, 0]), np.array([10**15, 1]), True, (None,),
    np.array([0.0, -0.0]), np.array([1e-320] * 3), np.array([[1e200] * 3] * 2), ((),),
]


def mutated(value):
    if isinstance(value, tuple) and value and rng.random() < 0.8:
        parts = list(value)
        place = rng.integers(len(parts))
        parts[place] = mutated(parts[place])
        return tuple(parts)
    if isinstance(value, np.ndarray) and value.size and rng.random() < 0.3:
        other = value.astype(float).copy()
        other.flat[rng.integers(other.size)] = rng.choice([np.nan, np.inf, -1e9, 1e300, -1.0, 0.0])
        return other
    return VALUES[rng.integers(len(VALUES))]


def agents():
    arms = fw.Problem.arms(2, {"a": (0, 1), "b": (0, 1)}, parameter_norm=1.0)
    rows = np.eye(2) / 2
    answer = lambda agent, decision: agent.update(decision, [0.5, 0.5])
    yield "shared", fw.Agent(fw.FrankWolfe(Minimum(), LinUCB()), arms), rows, answer
    yield "extended", fw.Agent(
        fw.FrankWolfe(Minimum(), LinUCB(model="extended")), arms), rows, answer
    yield "randomised", fw.Agent(
        fw.FrankWolfe(Minimum(), SquareCB(gamma0=3.0), Randomized()), arms
    ), rows, answer
    ranking, items = fw.Problem.ranking(4, 2, (2, 3)), rng.random((4, 3)) / 2
    shown = lambda agent, decision: agent.update(decision, exposed=[], clicked=[])
    fair = FWLinUCBRank(TwoSided(GiniWelfare()))
    yield "kept items", fw.Agent(fair, ranking, items=items), np.ones(2) / 2, shown
    yield "given items", fw.Agent(fair, ranking), fw.Bilinear(np.ones(2) / 2, items), shown
    yield "fairlearn", fw.Agent(FairLearnRank(0.1), ranking, items=items), np.ones(2) / 2, shown


for name, agent, context, answer in agents():
    for _ in range(200):
        answer(agent, agent.act(context))
    for case in range(cases // 6):
        faulthandler.dump_traceback_later(2.0, exit=True)  # a case that hangs ends the process
        made = agent.act(context)
        told = [made.id, made.t, made.action, made.probability,
                Decision.from_bytes(made.to_bytes()).evidence]
        place = rng.choice([1, 2, 3, 4], p=[0.05, 0.25, 0.05, 0.65])
        told[place] = mutated(told[place])
        before = {key: array.copy() for key, array in arrays_of(agent._running)}
        t = agent.t
        try:
            answer(agent, Decision.from_bytes(pack(tuple(told))))
            outcome = "taken"
        except InvalidInput:
            outcome = "refused"
        after = dict(arrays_of(agent._running))
        changed = [k for k in before if not np.array_equal(before[k], after[k], equal_nan=True)]
        if outcome == "refused" and (changed or agent.t != t):
            outcome = f"refused, but changed {changed} {told}"
        bad = [key for key, array in after.items() if not np.isfinite(array).all()]
        if bad:
            outcome = f"{bad} are not finite after {told}"
        if agent.t != t + (outcome == "taken"):
            outcome = f"counted {agent.t - t} times: {told}"
        counts[outcome] += 1
        for key, array in after.items():
            array[...] = before[key]
        agent._running.counters[0] += agent.t - t
    answer(agent, agent.act(context))
    faulthandler.cancel_dump_traceback_later()
print(json.dumps(counts))
"""


def forged(cases: int) -> Any:
    command = [sys.executable, "-c", FORGER, str(cases)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def check(counts: dict[str, int], cases: int) -> None:
    assert set(counts) == {"taken", "refused"}, counts
    assert counts["taken"] + counts["refused"] == cases
    # Some changes do no harm, such as another probability; most are refused.
    assert cases // 2 < counts["refused"] < cases


def test_forged_decisions_are_refused_or_harmless() -> None:
    check(forged(1200), 1200)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_thousand_forged_decisions() -> None:
    check(forged(10_002), 10_002)
