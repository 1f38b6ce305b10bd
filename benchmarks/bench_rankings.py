"""A round of fair ranking: compiled, object API, and plain NumPy loops.

A round is a user who comes, a ranking of 10 items, what comes of it, and an update. All sides run
in one process with one thread, in turn; times are of the processor, medians over turns, and ratios
are taken within a turn, because machines are shared and noisy. Runs are
5,000 rounds old when they are timed, and the NumPy loops start from the state of a compiled run:
their first rankings must then be the same as its own.

Ratios to "NumPy" depend on who writes it, so there are three of them, all with SciPy's isotonic
regression for the direction:

- straightforward: user (x) item flattened into d = d'^2 features, widths by
  ``einsum("ij,jk,ik->i")``, one Sherman-Morrison update for each item that was looked at;
- vectorised: the same features, widths by a matrix product, one update of rank r for a round;
- contracted: knows that features are products, and contracts V^-1 with the user first.

With `--against` the compiled rounds of another source tree are timed too, in processes of their
own, in turn; `--studies` extrapolates instead how long every study of the paper takes in both.

    python benchmarks/bench_rankings.py
    python benchmarks/bench_rankings.py --json
    python benchmarks/bench_rankings.py --against ../older/src
    python benchmarks/bench_rankings.py --against ../older/src --studies --turns 3
"""

from __future__ import annotations

# ruff: noqa: E402  (one thread must be asked for before NumPy is imported)
import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from ranking_turn import FAIR, POLICIES, SIZES

from fairwolfe.lab.bench import (
    Case,
    RankingLoop,
    Side,
    about,
    aged,
    agent_side,
    checked,
    compiled_side,
    ratios,
    turns,
)

HERE = Path(__file__).parents[1] / "src"
ROUNDS = 9
BUDGETS = (None, 60.0, 100.0)  # of NumPy / compiled, by size


class Vectorised(RankingLoop):
    """Widths by a matrix product, one update of rank r for a round."""

    def estimates(self, user: Any) -> Any:
        x = self.features(user, self.items)
        return x @ (self.inverse @ self.moment), np.einsum("ij,ij->i", x @ self.inverse, x)

    def learn(self, x: Any, clicked: Any) -> None:
        if len(x):
            spread = x @ self.inverse
            system = np.eye(len(x)) + spread @ x.T
            self.inverse -= spread.T @ np.linalg.solve(system, spread)
            self.log_det += np.linalg.slogdet(system)[1]
            self.design += x.T @ x
            self.moment += clicked @ x


class Contracted(Vectorised):
    """Contracts V^-1 with the user first."""

    def estimates(self, user: Any) -> Any:
        n = self.n_factors
        half = np.tensordot(user, self.inverse.reshape(n, n, n, n), axes=(0, 0))
        metric = np.einsum("bce,c->be", half, user)
        value = self.items @ (user @ (self.inverse @ self.moment).reshape(n, n))
        return value, np.einsum("ib,ib->i", self.items @ metric, self.items)


STYLES = {"straightforward": RankingLoop, "vectorised": Vectorised, "contracted": Contracted}


def sides(case: Case) -> dict[str, tuple[Side, int]]:
    """All policies compiled, and FW-LinUCBRank otherwise; a NumPy loop has ranked like it."""
    world, rounds = case.environment, case.rounds
    made: dict[str, tuple[Side, int]] = {
        f"compiled, {name}": (compiled_side(aged(policy, world)), rounds.compiled)
        for name, policy in POLICIES.items()
    }
    made["Agent, FW-LinUCBRank"] = (agent_side(FAIR, world), rounds.agent)
    for style, loop in STYLES.items():
        run: Any = aged(FAIR, world)
        made[f"NumPy, {style}"] = (checked(loop(run), run).play, rounds.numpy)
    return made


def measure(playing: dict[str, tuple[Side, int]]) -> list[dict[str, float]]:
    """Microseconds a round of every side, turn by turn."""
    for side, _ in playing.values():
        side(3)
    return list(islice(turns(playing), ROUNDS))


def report(case: Case, budget: float | None) -> dict[str, Any]:
    taken = measure(sides(case))
    rows = []
    for name in taken[0]:
        mine = [turn[name] for turn in taken]
        over = ratios(taken, name, "compiled, FW-LinUCBRank")
        rows.append(
            {
                "what": name,
                "us_per_round": median(mine),
                "lowest": min(mine),
                "highest": max(mine),
                "over_compiled": median(over),
                "over_from": over[0],
                "over_to": over[-1],
            }
        )
    return {
        "size": case.size,
        "budget": budget,
        "rows": rows,
    }


# --- another source tree --------------------------------------------------------------------------


def turn_of(what: str, source: Path) -> dict[str, Any]:
    """What `ranking_turn.py` measures of a source tree, in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("ranking_turn.py")), what],
        env=os.environ | {"PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=3600,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(what: str, there: Path, n: int) -> None:
    """Here and there in turn: medians, and the ratio within a turn."""
    taken = [(turn_of(what, HERE), turn_of(what, there)) for _ in range(n)]
    flat = [tuple(flattened(side) for side in turn) for turn in taken]
    unit = "hours, extrapolated" if what == "studies" else "us a round"
    print(f"{unit:50}{'there':>10}{'here':>10}{'here / there':>14}")
    for name in flat[0][0]:
        here, over = median(a[name] for a, _ in flat), median(b[name] for _, b in flat)
        ratio = sorted(a[name] / b[name] for a, b in flat)
        spread = f"({ratio[0]:.2f}-{ratio[-1]:.2f})"
        print(f"{name:50}{over:10.2f}{here:10.2f}{median(ratio):8.2f} {spread}")


def flattened(found: dict[str, Any]) -> dict[str, float]:
    """By one name each; of studies also all together."""
    if any(isinstance(value, dict) for value in found.values()):
        return {f"{size}, {name}": us for size, by in found.items() for name, us in by.items()}
    return found | {"together": sum(found.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--against", type=Path, help="the src folder of another source tree")
    parser.add_argument("--studies", action="store_true", help="with it: the studies of the paper")
    parser.add_argument("--turns", type=int, default=5, help="with it: of each tree")
    given = parser.parse_args()
    where = about()
    if given.against:
        print(", ".join(f"{key} {value}" for key, value in where.items()))
        compare("studies" if given.studies else "rounds", given.against.resolve(), given.turns)
        return
    found = [report(case, budget) for case, budget in zip(SIZES, BUDGETS, strict=True)]
    if given.json:
        print(json.dumps({"about": where, "sizes": found}, indent=2))
        return
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    for one in found:
        budget = f" (budget: NumPy / compiled >= {one['budget']:.0f})" if one["budget"] else ""
        print(f"\n{one['size']}{budget}")
        print(f"{'':34}{'us a round':>12}{'(lowest-highest)':>20}{'/ compiled':>12}")
        for row in one["rows"]:
            spread = f"({row['lowest']:.1f}-{row['highest']:.1f})"
            over = f"({row['over_from']:.1f}-{row['over_to']:.1f})"
            print(
                f"{row['what']:34}{row['us_per_round']:12.1f}{spread:>20}"
                f"{row['over_compiled']:12.1f} {over}"
            )


if __name__ == "__main__":
    main()
