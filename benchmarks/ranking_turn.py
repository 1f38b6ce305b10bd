"""One turn of `bench_rankings.py --against`: times of the source tree in PYTHONPATH, as JSON.

    PYTHONPATH=src python benchmarks/ranking_turn.py rounds
    PYTHONPATH=src python benchmarks/ranking_turn.py studies

`rounds`: microseconds of processor time of a compiled round, by size and policy. `studies`: hours
of the processor that each study of the first registration takes, extrapolated: every cell is played
for two short horizons, and what the longer one takes more is what its further rounds take.
"""

from __future__ import annotations

import json
import sys
from itertools import islice
from statistics import median
from time import process_time
from typing import Any

from fairwolfe.environments import FactorModel, dcg
from fairwolfe.lab.bench import CASES, Case, Rounds, aged, compiled_side, turns
from fairwolfe.lab.paper.studies import STUDIES
from fairwolfe.lab.play import build
from fairwolfe.ranking import FairLearnRank, LinUCBRank, UnbiasedLinUCBRank
from fairwolfe.ranking.policies import alone
from fairwolfe.simulation import simulate

FAIR, SLOTS = CASES[2].policy, 10
SETTINGS: dict[str, Any] = {"exploration": FAIR.exploration, "ridge": FAIR.ridge}
POLICIES: dict[str, Any] = {
    "FW-LinUCBRank": FAIR,
    "LinUCBRank": alone(LinUCBRank(**SETTINGS)),
    "Unbiased": UnbiasedLinUCBRank(**SETTINGS),
    "FairLearn": FairLearnRank(0.001, **SETTINGS),
}
FEW = Case(FAIR, FactorModel(50, 50, dcg(SLOTS), n_factors=5), Rounds(4000, 300, 100))
SIZES = (FEW, CASES[2], CASES[3])

TURNS = 5
SHORT = 0.05  # seconds that the shorter horizon of a cell takes, about


def rounds() -> dict[str, dict[str, float]]:
    """By size and policy: the median over a few turns."""
    found = {}
    for case in SIZES:
        playing = {
            name: (compiled_side(aged(policy, case.environment)), case.rounds.compiled)
            for name, policy in POLICIES.items()
        }
        taken = list(islice(turns(playing), TURNS))
        found[case.size] = {name: median(turn[name] for turn in taken) for name in playing}
    return found


def studies() -> dict[str, float]:
    """Hours by study, extrapolated."""
    found = {}
    for name, study in STUDIES.items():
        later = name.startswith(("lastfm-50-factors", "defaults"))  # not in the first registration
        if study.reading != "first" or later:
            continue
        experiment, stand_in = study.experiment()
        if stand_in:
            raise SystemExit("the data set is missing; say where it is with FAIRWOLFE_DATA")
        total = 0.0
        for run in experiment.runs([0]):
            parts, horizon = build(run.settings, run.label), run.settings.horizon
            short = min(max(int(1e6 * SHORT / study.us_per_round), 10), horizon // 2)

            def seconds(n: int, parts: Any = parts) -> float:
                began = process_time()
                simulate(parts.policy, parts.environment, n, 0, parts.objective, **parts.options)
                return process_time() - began

            seconds(10)  # loads kernels and data
            first, second = seconds(short), seconds(2 * short)
            total += first + max(second - first, 0.0) * (horizon - short) / short
        found[name] = total * len(experiment.spec.numbers()) / 3600
    return found


if __name__ == "__main__":
    print(json.dumps({"rounds": rounds, "studies": studies}[sys.argv[1]]()))
