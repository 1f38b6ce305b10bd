"""How often 95 % intervals of f of an average hold the truth, from logged decisions.

    python -m benchmarks.bench_offpolicy coverage --runs 400 --jobs 2
    python -m benchmarks.bench_offpolicy learning --runs 200
    python -m benchmarks.bench_offpolicy million

coverage: the split interval beside the delta method (one supergradient at the estimate) and the
percentile bootstrap, in the families of `offpolicy_worlds`.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import math
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

import fairwolfe as fw
from benchmarks.offpolicy_worlds import FAMILIES, PLACES
from fairwolfe.offpolicy.estimators import estimated

ESTIMATORS = ("ips", "snips", "dr", "dr-blind")
_DRAWS = 400  # of the bootstrap


def one(family: str, place: str, n: int, estimator: str, runs: int, bootstrap: bool) -> list[Any]:
    """Coverage of the three intervals, and median widths relative to the delta method's."""
    world = FAMILIES[family](place)
    truth = world.truth
    held = np.zeros(3)
    widths = np.zeros((runs, 3))
    ends = 0
    for run in range(runs):
        rng = np.random.default_rng([run, n, *map(ord, family + place)])
        log, target = world.log(n, rng, estimator)
        name = estimator.split("-", maxsplit=1)[0]
        source: Any = log._source
        side, bound = log._side(source, target, name, None, 2), log._bound(world.f)
        origin = log._origin(source)
        ((part, weights),) = estimated(source, (side,), origin).parts
        found = log._estimate(bound, part, weights, origin, name, 0.95)
        chunks = source.data.pieces() if bootstrap else ()
        rows = [side.rows(source.about, *chunk)[0] for chunk in chunks]
        delta, boot = rivals(bound, rows, part, rng)
        for i, (low, high) in enumerate(((found.low, found.high), delta, boot)):
            held[i] += low <= truth <= high
            widths[run, i] = high - low
        ends += found.low == -math.inf
    ratio = np.median(widths[:, 0] / widths[:, 1])
    return [family, place, n, estimator, *(held / runs), float(ratio), ends / runs]


def rivals(
    bound: Any, rows: list[Any], part: Any, rng: np.random.Generator
) -> tuple[tuple[float, float], tuple[float, float]]:
    """The intervals of the delta method and of the percentile bootstrap of rows, if any."""
    value = bound.value(part.z)
    error = float(part.error(bound.gradient(part.z)[None])[0]) if value > -math.inf else math.inf
    delta = (value - 1.96 * error, value + 1.96 * error)
    if not rows:
        return delta, (math.nan, math.nan)
    u = np.concatenate(rows)
    counts = rng.multinomial(len(u), np.full(len(u), 1.0 / len(u)), size=_DRAWS)
    means = counts @ u / len(u)
    values = [bound.value(mean) for mean in means]
    low, high = np.quantile(values, [0.025, 0.975])
    return delta, (float(low), float(high))


def coverage(runs: int, jobs: int, families: list[str], sizes: list[int]) -> None:
    start = time.process_time(), time.time()
    cases = [
        (family, place, n, estimator, runs, (place, estimator) == ("tie", "ips"))
        for family in families
        for place in PLACES
        for n in sizes
        for estimator in ESTIMATORS
    ]
    print("family    place      n  estimator   split  delta   boot  width  -inf", flush=True)
    with ProcessPoolExecutor(jobs) as pool:
        for row in pool.map(one, *zip(*cases, strict=True)):
            family, place, n, estimator, split, delta, boot, width, ends = row
            print(
                f"{family:9} {place:5} {n:6} {estimator:10} {split:6.3f} {delta:6.3f} {boot:6.3f} "
                f"{width:6.2f} {ends:5.2f}",
                flush=True,
            )
    print(f"{time.time() - start[1]:.0f} s")


def learning(runs: int) -> None:
    """BEYOND's world: linear, five arms, three rewards, f = min; 10,000 uniform decisions."""
    from benchmarks.offpolicy_learning import learn_once, truth_of_world

    best = truth_of_world()
    values, held = [], 0
    for run in range(runs):
        value, low, high = learn_once(run, 10_000)
        values.append(value / best)
        held += low <= value <= high
    print(
        f"f* = {best:.4f}; learnt from 10,000 uniform decisions: {np.mean(values):.4f} of it "
        f"(least {np.min(values):.4f}); the interval holds the truth in {held} of {runs} runs"
    )


def million() -> None:
    """A million logged decisions, ten arms, ten features, three rewards."""
    import resource

    rng = np.random.default_rng(0)
    n, arms, d = 1_000_000, 10, 10
    contexts = rng.random((n, arms, d))
    actions = rng.integers(0, arms, n)
    means = np.clip(contexts[np.arange(n), actions] @ rng.random((3, d)).T / d * 1.5, 0, 1)
    rewards = (rng.random((n, 3)) < means).astype(float)
    columns = {"context": contexts, "action": actions, "probability": np.full(n, 1 / arms)}
    columns |= {f"reward.r{i}": rewards[:, i] for i in range(3)}
    problem = fw.Problem.arms(d, {f"r{i}": (0, 1) for i in range(3)}, feature_norm=4.0)
    data = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    log = fw.offpolicy.Log.of(columns, problem)
    for estimator in ("ips", "snips", "dr"):
        start, used = time.time(), time.process_time()
        found = log.evaluate(3, fw.objectives.Minimum(), estimator)
        now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{estimator:6} {time.time() - start:5.1f} s ({time.process_time() - used:.1f} s of "
            f"processor), {found.value:.4f} in [{found.low:.4f}, {found.high:.4f}]; "
            f"{now:,.0f} MB at most, {data:,.0f} MB of them before the log was made"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["coverage", "learning", "million"])
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--sizes", default="500,5000")
    given = parser.parse_args()
    if given.what == "coverage":
        sizes = [int(size) for size in given.sizes.split(",")]
        coverage(given.runs, given.jobs, given.families.split(","), sizes)
    elif given.what == "learning":
        learning(given.runs)
    else:
        million()


if __name__ == "__main__":
    main()
