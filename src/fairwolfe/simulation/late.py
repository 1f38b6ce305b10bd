"""What the compiled loops share whose feedback comes late: delays, snapshots, schedules.

A round is made of the kernels that `act`, `expect` and `update` call, so that the plain loop
decides the same, bit for bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairwolfe.core.arrays import Cube, IntMatrix, IntVector, Matrix, Vector
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.compile import kernel, vector_at
from fairwolfe.kernels.frames import BASE, COUNTERS, OWN, WAITING, Frame, vector
from fairwolfe.kernels.settling import REFUSED
from fairwolfe.kernels.waiting import OPEN
from fairwolfe.oracles.linear_state import refuse
from fairwolfe.reduction.state import State
from fairwolfe.simulation.boxes import BOXES, Boxes
from fairwolfe.simulation.delays import as_delay, rounds_of
from fairwolfe.simulation.delivery import copied
from fairwolfe.simulation.following import Following
from fairwolfe.simulation.lateness import Lateness

__all__ = ["LATE", "Delivery", "LateRounds", "arrival_of", "begin", "refused"]

_I, _IM, _V, _M, _C = (
    "int64[::1]",
    "int64[:, ::1]",
    "float64[::1]",
    "float64[:, ::1]",
    "float64[:, :, ::1]",
)
LATE = (_I, _I, _IM, _I, _V, _M, _C, _IM, *BOXES)
"""The types of `LateRounds`, with which the arguments of both loops begin."""

REFRESH, DONE, SINCE, OPENS, FOLLOWS, FIRST_REWARD, FIRST, STOP = range(8)
"""Places in its settings: how often snapshots are renewed; rounds played before; the time of the
first row of steps; whether open decisions count; whether directions travel with decisions; where
the rewards of the user begin; first and stop, see `settle`."""

_REFUSALS = 10  # a kernel returns the code of a rejection less this; from 0 on, rounds played


class LateRounds(NamedTuple):
    """The next rounds: who decides and learns, what directions need, and the answers on their way.

    words: of the frame of the live state; deciding: of the one that decides, the same or a
    snapshot; copies (arrays, 3): how a snapshot is renewed; settings: see above; steps (times, 2):
    widths and weights of samples by time; delays (rounds, 2): without and with a click, negative
    where the answer never comes.
    """

    words: IntVector
    deciding: IntVector
    copies: IntMatrix
    settings: IntVector
    work: Vector
    steps: Matrix
    normals: Cube
    delays: IntMatrix
    ring: IntMatrix
    links: IntMatrix
    free: IntVector
    numbers: Matrix
    marks: IntMatrix


@kernel
def begin(s: int, deciding: IntVector, copies: IntMatrix, settings: IntVector) -> int:
    """Renew the snapshot where it is time; the row of steps for the decision of round s.

    copies (arrays, 3): source, target and size; settings: see `LateRounds`.
    """
    if (settings[DONE] + s) % settings[REFRESH] == 0:
        for row in range(copies.shape[0]):
            source = vector_at(copies[row, 0], copies[row, 2])
            target = vector_at(copies[row, 1], copies[row, 2])
            for i in range(source.size):
                target[i] = source[i]
    waiting, t = vector(deciding, WAITING), vector(deciding, COUNTERS)[0]
    if waiting.size > 0:
        t += waiting[OPEN]
    return int(t - settings[SINCE])


@kernel
def arrival_of(s: int, reward: Vector, settings: IntVector, delays: IntMatrix) -> int:
    """After which round the answer to the decision of round s is there; -1: never.

    reward (n,), settings, delays (rounds, 2): see `LateRounds`.
    """
    clicked = 0
    for i in range(settings[FIRST_REWARD], reward.size):
        if reward[i] != 0.0:
            clicked = 1
    late = delays[s, clicked]
    return -1 if late < 0 else settings[DONE] + s + 1 + late


@kernel
def refused(code: int) -> int:
    """What a loop returns where an answer was rejected with this code."""
    return code - _REFUSALS


class Delivery:
    """The delays, snapshots and schedules of a run; `numbers` and `marks`: see `Boxes`."""

    def __init__(
        self,
        state: State,
        following: Following,
        lateness: Lateness,
        rng: np.random.Generator,
        horizon: int,
        keeps: int,
        boxes: tuple[int, int],
    ) -> None:
        self.following = following
        self.delay = as_delay("delay", lateness.delay)
        self.rng = rng
        self.horizon = horizon
        self.boxes = Boxes(*boxes)
        self.state = self.decider = state
        self.frame = self.deciding = _keeping(state, keeps)
        self.copies: IntMatrix = np.empty((0, 3), dtype=np.int64)
        if lateness.refresh > 1:
            self.decider = copied(state)
            self.deciding = _keeping(self.decider, keeps)
            pairs = enumerate(zip(self.frame.arrays, self.deciding.arrays, strict=True))
            moves = [(a.ctypes.data, b.ctypes.data, a.size) for i, (a, b) in pairs if i not in OWN]
            self.copies = np.array([one for one in moves if one[0] != one[1] and one[2]])
        self.steps = np.empty((0, 2))
        plan = state.plan
        self.settings: IntVector = np.zeros(STOP + 1, dtype=np.int64)
        self.settings[REFRESH] = min(lateness.refresh, horizon + 1)  # it is renewed no more
        self.settings[OPENS], self.settings[FOLLOWS] = plan.anticipates, plan.follows
        self.settings[FIRST_REWARD] = plan.kind.problem.n_items or 0
        self.settings[FIRST:] = plan.none_joined

    def rounds(self, normals: Cube) -> LateRounds:
        """The next rounds, as many as there are normals."""
        n, done = len(normals), int(self.settings[DONE])
        delays = self._delays(n, done)
        self.boxes.make_room(done, n, int(delays.max()))
        self._look_ahead(done + n)
        return LateRounds(
            self.frame.words,
            self.deciding.words,
            self.copies,
            self.settings,
            self.following.work,
            self.steps,
            normals,
            delays,
            self.boxes.ring,
            self.boxes.links,
            self.boxes.free,
            self.boxes.numbers,
            self.boxes.marks,
        )

    def _delays(self, n: int, done: int) -> IntMatrix:
        law = self.delay
        each = [
            [rounds_of(law, u, False), rounds_of(law, u, True)] for u in self.rng.random(n).tolist()
        ]
        longest = float(self.horizon)  # as floats, since a law may give any whole number
        delays: IntMatrix = np.minimum(np.array(each, dtype=np.float64), longest).astype(np.int64)
        never = np.arange(done + 1, done + 1 + n)[:, None] + delays > self.horizon
        delays[never] = -1
        return delays

    def _look_ahead(self, stop: int) -> None:
        """Steps from the time of the state that decides to below `stop`."""
        since = self.decider.ahead
        self.steps = self.steps[since - self.settings[SINCE] :]
        self.settings[SINCE] = since
        times = np.arange(since + len(self.steps), stop)
        self.steps = np.concatenate([self.steps, self.following.schedule(self.state, times)])

    def check(self, played: int, n: int) -> None:
        """Count rounds just played, and raise what went wrong in them."""
        if self.following.gradient is not None:
            self.following.gradient.raise_failures()
        oracle = self.state.base.oracle
        oracle.raise_failure()
        if played < 0:
            if played + _REFUSALS == REFUSED:
                refuse(oracle.counters)
            raise InvalidInput(
                "the features of a decision are longer than can be learnt from; scale them to "
                "norm 1, or raise the ridge"
            )
        self.following.raise_failures(self.decider, played == n)
        self.settings[DONE] += n


def _keeping(state: State, keeps: int) -> Frame:
    """The frame of a state whose decisions have their direction. keeps: the place of that among the
    numbers of the rule.
    """
    arrays = list(state.plan.frame(state).arrays)
    arrays[BASE] = arrays[BASE].copy()
    arrays[BASE][keeps] = 1.0
    return Frame(arrays)
