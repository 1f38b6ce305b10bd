"""Kernel arguments one by one or in groups: what a call and a compilation cost.

    python benchmarks/bench_grouping.py [--turns N]

One small kernel that learns and averages, as `learn_once` does, calls another with everything that
it was given; once with 17 plain arguments, once with the same in three named tuples. Reported are
microseconds of processor time a call from Python, in turns, and seconds to compile, each in a
process of its own without a cache.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from statistics import median

PLAIN = """
import time, numba, numpy as np
from collections import namedtuple
State = namedtuple("State", "gram inverse theta moment params counters")
Sums = namedtuple("Sums", "totals earned clocks running")
Window = namedtuple("Window", "now slope rewards")

@numba.njit
def inner(x, reward, number, forget, gram, inverse, theta, moment, params, counters,
          totals, earned, clocks, running, now, slope, rewards):
    for i in range(reward.size):
        totals[i] = forget * totals[i] + reward[i]
        earned[i] += reward[i] + gram[0, 0, 0] + inverse[0, 0, 0] + theta[0, 0, 0] + moment[0, 0, 0]
        clocks[i] += params[0] + counters[0] + running[i] + now[0] + slope[i] + rewards[i] + number
    return x.size

@numba.njit
def plain(x, reward, number, forget, gram, inverse, theta, moment, params, counters,
          totals, earned, clocks, running, now, slope, rewards):
    return inner(x, reward, number, forget, gram, inverse, theta, moment, params, counters,
                 totals, earned, clocks, running, now, slope, rewards)

@numba.njit
def inner_grouped(x, reward, number, forget, state, sums, window):
    for i in range(reward.size):
        sums.totals[i] = forget * sums.totals[i] + reward[i]
        sums.earned[i] += (reward[i] + state.gram[0, 0, 0] + state.inverse[0, 0, 0]
                           + state.theta[0, 0, 0] + state.moment[0, 0, 0])
        sums.clocks[i] += (state.params[0] + state.counters[0] + sums.running[i] + window.now[0]
                           + window.slope[i] + window.rewards[i] + number)
    return x.size

@numba.njit
def grouped(x, reward, number, forget, state, sums, window):
    return inner_grouped(x, reward, number, forget, state, sums, window)

v, c = np.zeros(5), np.zeros((1, 5, 5))
state, sums, window = State(c, c, c, c, v, v), Sums(v, v, v, v), Window(v, v, v)
warm = numba.njit(lambda a: a.sum())
warm(v)
"""

COMPILE = """
began = time.process_time()
{call}
print(time.process_time() - began)
"""

CALLS = {
    "plain": "plain(v, v, 1.0, 1.0, *state, *sums, *window)",
    "grouped": "grouped(v, v, 1.0, 1.0, state, sums, window)",
}

SPEED = """
{plain}
{grouped}
for _ in range(7):
    for call in (lambda: {plain}, lambda: {grouped}):
        began = time.process_time()
        for _ in range(20000):
            call()
        print(1e6 * (time.process_time() - began) / 20000)
"""


def numbers(code: str) -> list[float]:
    command = [sys.executable, "-c", PLAIN + code]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [float(line) for line in said.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    turns = parser.parse_args().turns
    compiled: dict[str, list[float]] = {name: [] for name in CALLS}
    for _ in range(turns):
        for name, call in CALLS.items():
            compiled[name] += numbers(COMPILE.format(call=call))
    times = numbers(SPEED.format(**CALLS))
    for i, name in enumerate(CALLS):
        call, compiling = median(times[i::2]), median(compiled[name])
        print(f"{name:8}  {call:.2f} us a call, {compiling:.2f} s to compile")


if __name__ == "__main__":
    main()
