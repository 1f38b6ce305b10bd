"""What questions are worth: what owners lose with the beta that their answers give, and coverage.

Owners have a beta of their own, uniform in its logarithm over the range that makes a difference,
and answer by f = utility + beta g, with logistic noise. Printed for each noise and number of
questions: the mean loss of the owner's f in percent, with the noise learnt; how often the 90 %
interval holds the owner's beta, with the noise learnt, with the right noise given, and with a tenth
of it; and what betas that nobody asked for lose.

    python benchmarks/bench_elicit.py
    python benchmarks/bench_elicit.py --owners 2000
    python benchmarks/bench_elicit.py --json
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from fairwolfe.environments import FactorModel
from fairwolfe.fairness.elicit import Curve, Elicitation
from fairwolfe.fairness.tradeoff import plan

QUESTIONS = (4, 8, 16)
NOISES = (0.0, 0.005, 0.02)  # parts of the most utility
FIXED = (0.1, 0.25, 1.0)
LEVEL = 0.9


def interview(
    curve: Curve, beta: float, noise: float, rng: np.random.Generator, assumed: float | None
) -> list[Elicitation]:
    """What is known after 4, 8 and 16 answers of one owner."""
    questions = Elicitation(curve, noise=assumed)
    known = []
    for n in range(1, max(QUESTIONS) + 1):
        a, b = questions.ask().a, questions.ask().b
        better = a.utility - b.utility + beta * (a.item_objective - b.item_objective)
        better += noise * rng.logistic() if noise else 0.0
        questions.answer("a" if better > 0.0 else "b")
        if n in QUESTIONS:
            known.append(Elicitation(curve, noise=assumed, answers=questions.answers))
    return known


def loss(curve: Curve, beta: float, chosen: float) -> float:
    """What an owner loses, in percent of f."""
    f = curve.sides[:, 0] + beta * curve.sides[:, 1]
    return float(100.0 * (1.0 - f[curve.best(np.array([chosen]))[0]] / f.max()))


def measure(curve: Curve, owners: int) -> list[dict[str, Any]]:
    """A row for each noise and number of questions."""
    top = float(curve.sides[0, 0])
    low, high = np.log(curve.betas)
    rows = []
    for part in NOISES:
        noise = part * top
        assumed = {"learnt": None} | ({"given": noise, "a tenth": 0.1 * noise} if noise else {})
        losses: dict[int, list[float]] = {n: [] for n in QUESTIONS}
        covered: dict[tuple[str, int], list[bool]] = {}
        for name, taken in assumed.items():
            rng = np.random.default_rng(11)  # the same owners for all
            for beta in np.exp(rng.uniform(low, high, owners)).tolist():
                known = interview(curve, beta, noise, rng, taken)
                for n, questions in zip(QUESTIONS, known, strict=True):
                    ends = questions.interval(LEVEL)
                    covered.setdefault((name, n), []).append(ends[0] <= beta <= ends[1])
                    if name == "learnt":
                        losses[n].append(loss(curve, beta, questions.beta))
        for n in QUESTIONS:
            row: dict[str, Any] = {"noise": part, "questions": n, "loss": np.mean(losses[n])}
            rows.append(row | {name: np.mean(covered[name, n]) for name in assumed})
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--owners", type=int, default=400)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    reached = plan(FactorModel(), "gini", None, floors=(), seeds=1, horizon=1).reach()
    curve = Curve.of(reached)
    rows = measure(curve, asked.owners)
    low, high = np.log(curve.betas)
    betas = np.exp(np.random.default_rng(11).uniform(low, high, asked.owners))
    fixed = {beta: np.mean([loss(curve, one, beta) for one in betas]) for beta in FIXED}
    if asked.json:
        print(json.dumps({"rows": rows, "fixed": fixed}, indent=2))
        return
    print("noise     questions  mean loss %  cover: learnt   given  a tenth")
    for row in rows:
        cover = [f"{row[name]:8.3f}" if name in row else " " * 8 for name in ("given", "a tenth")]
        print(
            f"{row['noise']:<9g} {row['questions']:9}  {row['loss']:11.4f}  {row['learnt']:13.3f}"
            f"{''.join(cover)}"
        )
    for beta, mean in fixed.items():
        print(f"beta = {beta:g} for everybody loses {mean:.2f} %")


if __name__ == "__main__":
    main()
