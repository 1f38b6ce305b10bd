"""What follows when a decision is answered, besides learning: averages, and live numbers.

A base that learns in a kernel calls `settle` in it, so that an answer is one call from Python: it
is learnt, averaged and counted, or nothing of it is, whenever an interrupt comes.
"""

from __future__ import annotations

from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.kernels.compile import distinct, function_at, kernel
from fairwolfe.kernels.frames import (
    CLOCKS,
    CORRECTS,
    COUNTERS,
    EARNED,
    FORGET,
    NOW,
    NUMBERS,
    REPRICING,
    RUNNING,
    SLOPE,
    SUMS,
    TOTALS,
    WAITING,
    address,
    vector,
)
from fairwolfe.kernels.waiting import OPEN, age_weight, close_one, correct, sum_in

__all__ = [
    "REFUSED",
    "REPRICE",
    "SETTLE",
    "TALLY",
    "UNSOUND",
    "WILD",
    "average_in",
    "averages",
    "call_reprice",
    "count_tally",
    "settle",
]

REFUSED, WILD, UNSOUND = -1, -2, -3
"""What a kernel returns that learns and settles, where it did neither: the regression cannot take
it; its features are beyond the limit; what it adds to live numbers is not finite numbers."""

# Places in the numbers of a window of live numbers (reduction/windows.py).
SERIAL, PLANNED, N = 0, 1, 2  # which certificate; how many decisions the window takes, and has
TOP, Y, SPARE = 3, 4, 5  # sums: upper bounds, estimates, what the directions missed
BATCH, BATCH_N, BATCHES, MEAN, SQUARES = 6, 7, 8, 9, 10  # estimates, batch by batch
INTERCEPT, CAP, RANGE = 11, 12, 13  # a; the largest and the range of <b, z>, z a reward vector
FIRST, LAST = 14, 15  # smallest and largest number of its decisions
FLOOR = 16  # the least of the certificate without its hard constraints, over the reward vectors
UNTRIED = (
    17  # sum: by how much actions that were hardly tried may be better than the estimated best
)
SIZE = 18

TALLY = 4  # numbers that an answered decision adds: to TOP, Y, SPARE and UNTRIED

SPLIT = 32  # batches in a window; a power of 2, as the lengths of the windows
GRID = 32  # certificates gathered in a window: they change slowly, and cost as much as a decision

_V = "float64[::1]"


@kernel(signature=f"void({_V}, {_V}, float64, int64, int64, {_V}, {_V}, {_V}, {_V})")
def average_in(
    reward: Vector,
    rho: Vector,
    forget: float,
    first: int,
    stop: int,
    totals: Vector,
    earned: Vector,
    clocks: Vector,
    counters: Vector,
) -> None:
    """Add a reward (n,) to the totals (n,); counters (1,): the number of them.

    Averages are totals over clocks, so that coordinates with equal sums have equal averages, and
    one that joined late is averaged over its own time. With memory both fade. Coordinates from
    `first` to below `stop` joined after the decision: it has nothing for them.
    """
    keep = 1.0 - forget
    for i in range(first):
        totals[i] = keep * totals[i] + rho[i]
        earned[i] = keep * earned[i] + reward[i]
        clocks[i] = keep * clocks[i] + 1.0
    for j in range(totals.size - stop):
        i = stop + j
        totals[i] = keep * totals[i] + rho[i]
        earned[i] = keep * earned[i] + reward[i]
        clocks[i] = keep * clocks[i] + 1.0
    counters[0] += 1.0


@kernel(signature=f"void({_V}, {_V}, {_V})")
def averages(sums: Vector, clocks: Vector, out: Vector) -> None:
    """Sums over clocks; 0 before the first reward."""
    for i in range(out.size):
        out[i] = sums[i] / max(clocks[i], 1.0)


@kernel(signature=f"boolean({_V}, {_V}, float64, {_V}, {_V}, {_V})")
def count_tally(
    tally: Vector, reward: Vector, number: float, now: Vector, slope: Vector, rewards: Vector
) -> bool:
    """Count an answered decision in; whether a certificate is due. tally (TALLY,): of <b, r>, the
    largest optimistic value in the context, what the choice and the direction missed of the best,
    and how much more than the best an action that was hardly tried may be worth. number: of the
    decision, negative where no agent made it (none is missing then).
    """
    distinct()
    y = tally[1]
    for i in range(reward.size):
        y += slope[i] * reward[i]
        rewards[i] += reward[i]
    place = number if number >= 0.0 else now[N]
    if now[N] == 0.0:
        now[FIRST], now[LAST] = place, place
    now[FIRST], now[LAST] = min(now[FIRST], place), max(now[LAST], place)
    now[N] += 1.0
    now[TOP] += min(tally[0], now[CAP])
    now[Y] += y
    now[SPARE] += tally[2]
    now[UNTRIED] += tally[3]
    now[BATCH] += y
    now[BATCH_N] += 1.0
    if now[BATCH_N] * SPLIT >= now[PLANNED]:
        away = now[BATCH] / now[BATCH_N] - now[MEAN]
        now[BATCHES] += 1.0
        now[MEAN] += away / now[BATCHES]
        now[SQUARES] += away * away * (now[BATCHES] - 1.0) / now[BATCHES]
        now[BATCH], now[BATCH_N] = 0.0, 0.0
    return bool(now[N] % (now[PLANNED] / GRID) == 0.0)


SETTLE = f"{_V}, {_V}, {_V}, {_V}, {_V}, int64, int64, float64, float64, {_V}"
"""The types of what `settle` takes after the frame."""


REPRICE = "void(int64[::1])"
call_reprice = function_at(REPRICE)
"""Move the prices of leaves of f, for the words of a frame: see smoothing/prices.py."""


@kernel(signature=f"int64(int64[::1], {SETTLE})")
def settle(
    words: IntVector,
    reward: Vector,
    rho: Vector,
    followed: Vector,
    tallied: Vector,
    view: Vector,
    first: int,
    stop: int,
    number: float,
    place: float,
    expected: Vector,
) -> int:
    """Average a reward in, follow a direction, count a tally in; 1 if a certificate is due.

    words: of the `Frame` of a state. reward, rho (n,): what was earned, and what is averaged;
    followed (n or 0,): the direction, where one is kept; tallied (TALLY or 0,): of a decision that
    counts for live numbers; view: the reward as f sees it. Coordinates from `first` to below `stop`
    joined after the decision. number: of the decision. place: which of the open decisions it was,
    negative where it was not counted among them; expected (n or 0,): what was added to the sums of
    the open decisions for it.
    """
    n, waiting = reward.size, vector(words, WAITING)
    forget = vector(words, NUMBERS)[FORGET]
    if place >= 0.0 and waiting[OPEN] > 0.0:
        weight = age_weight(waiting, 1.0 - forget, place)
        sum_in(waiting, n, -1, expected, -1.0, weight)
        close_one(waiting, n, first, stop, weight)
        if vector(words, NUMBERS)[CORRECTS] > 0.0:
            correct(waiting, n, reward, expected)
    repricing = address(vector(words, NUMBERS), REPRICING)
    if repricing != 0:
        call_reprice(repricing, words)
    average_in(
        reward,
        rho,
        forget,
        first,
        stop,
        vector(words, TOTALS),
        vector(words, EARNED),
        vector(words, CLOCKS),
        vector(words, COUNTERS),
    )
    running = vector(words, RUNNING)
    for i in range(followed.size):
        running[i] = followed[i]
    if tallied.size > 0:
        now, slope, sums = vector(words, NOW), vector(words, SLOPE), vector(words, SUMS)
        if count_tally(tallied, view, number, now, slope, sums):
            return 1
    return 0
