"""Damaged and forged decisions, and a worker that gives them to agents one by one.

    python -m tests.agent.damaged SEED COUNT

prints what came of them as JSON: a count for each outcome. An outcome that begins with WRONG is
neither a typed error that has changed nothing, nor a decision that was learnt. Where the process
dies, a kernel has read what it must not.
"""

from __future__ import annotations

import collections
import faulthandler
import json
import struct
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

import fairwolfe as fw
from fairwolfe.agent.file import arrays_of
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB
from fairwolfe.errors import FairwolfeError, InvalidInput
from fairwolfe.objectives import GiniWelfare, Minimum, TwoSided
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank, LinUCBRank
from fairwolfe.smoothing import Randomized

LIMIT = 20.0  # seconds after which a case hangs
WILD = (np.nan, np.inf, -np.inf, 1e300, -1e9, -1.0, 0.0, 5e-324, 1e6)
WHOLE = (-1, 0, 1, 2, 7, 99, 2**31, 2**62, -(2**62), 10**15)
Answer = Callable[[fw.Agent, Any], None]


@dataclass(frozen=True)
class SlowUCB(LinUCB):
    """A base in Python, for it overrides what the compiled engine would replace."""

    def act(self, *given: Any, **options: Any) -> Any:
        return super().act(*given, **options)


@dataclass(frozen=True)
class SlowRank(LinUCBRank):
    def act(self, *given: Any, **options: Any) -> Any:
        return super().act(*given, **options)


@dataclass(frozen=True)
class Player:
    """An agent, what it is asked, and how it is answered."""

    agent: fw.Agent
    context: Any
    ranks: bool = False

    def answer(self, decision: Any) -> None:
        if self.ranks:
            self.agent.update(decision, exposed=[], clicked=[])
        else:
            self.agent.update(decision, [0.5, 0.5])

    def answer_many(self, batch: Any) -> None:
        n = len(batch)
        shown = fw.Shown(np.zeros((n, 2)), np.zeros((n, 2, 1)))
        self.agent.update_many(batch, shown if self.ranks else np.full((n, 2), 0.5))


def players(rng: np.random.Generator) -> dict[str, Player]:
    arms = fw.Problem.arms(2, {"a": (0, 1), "b": (0, 1)}, parameter_norm=1.0)
    each = fw.Problem.arms(2, {"a": (0, 1), "b": (0, 1)}, n_arms=3)
    lists, items = fw.Problem.ranking(4, 2, (2, 3)), rng.random((4, 3)) / 2
    fair, user = FWLinUCBRank(TwoSided(GiniWelfare())), np.ones(2) / 2

    def plain(base: Any, problem: fw.Problem = arms, **more: Any) -> fw.Agent:
        return fw.Agent(fw.FrankWolfe(Minimum(), base, **more), problem)

    made = {
        "shared": Player(plain(LinUCB()), np.eye(2) / 2),
        "extended": Player(plain(LinUCB(model="extended")), np.eye(2) / 2),
        "randomised": Player(plain(SquareCB(gamma0=3.0), smoothing=Randomized()), np.eye(2) / 2),
        "per arm": Player(plain(EpsilonGreedy(0.1), each), fw.PerArm([0.3, 0.2])),
        "python": Player(plain(SlowUCB()), np.eye(2) / 2),
        "kept items": Player(fw.Agent(fair, lists, items=items), user, True),
        "given items": Player(fw.Agent(fair, lists), fw.Bilinear(user, items), True),
        "python ranker": Player(
            fw.Agent(fw.FrankWolfe(fair.objective, SlowRank()), lists, items=items), user, True
        ),
        "fairlearn": Player(fw.Agent(FairLearnRank(0.1), lists, items=items), user, True),
    }
    for player in made.values():
        for _ in range(70):  # until live numbers are part of the decisions
            player.answer(player.agent.act(player.context))
    return made


# --- damage -----------------------------------------------------------------------------------


def flipped(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    damaged = bytearray(data)
    for place in rng.integers(len(data), size=int(rng.integers(1, 4))).tolist():
        damaged[place] ^= 1 << int(rng.integers(8))
    return bytes(damaged)


def cut(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    start, stop = sorted(rng.integers(len(data) + 1, size=2).tolist())
    return data[:start] + data[stop:] if rng.random() < 0.5 else data[:stop]


def spliced(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """The beginning of one, and the rest of another."""
    place = int(rng.integers(len(data)))
    return data[:place] + other[place:]


def overwritten(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """Eight bytes that are a number of their own."""
    place = int(rng.integers(len(data) // 8)) * 8
    number = (
        struct.pack("<d", rng.choice(WILD))
        if rng.random() < 0.5
        else struct.pack("<q", int(rng.choice(WHOLE)))
    )
    return data[:place] + number + data[place + 8 :]


def parsed(data: bytes) -> tuple[list[Any], bytes]:
    """The header, and what follows it."""
    _, _, length = struct.unpack_from("<4sHH", data)
    start = 8 + length
    return msgspec.msgpack.decode(data[8:start]), data[start + -start % 8 :]


def written(header: list[Any], body: bytes) -> bytes:
    encoded = msgspec.msgpack.encode(header)
    start = struct.pack("<4sHH", b"fwr\n", 2, len(encoded)) + encoded
    return start + bytes(-len(start) % 8) + body


def reheaded(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """A field of the header that is another, and as many bytes as it then asks for."""
    header, body = parsed(data)
    match int(rng.integers(6)):
        case 0:
            header[0] = int(rng.choice([0, 1, 2, 3, -1]))
            header[4] = parsed(other)[0][4] if rng.random() < 0.7 else header[4]
        case 1:
            header[1] = str(rng.choice(["", "x", header[1] + "x", "\0" * 20]))
        case 2:
            header[2] = int(rng.choice([0, 2, 3, -1, 10**6, 2**62]))
        case 3:
            header[3] = not header[3]
        case 4:
            column = int(rng.integers(1, len(header[4])))
            axes = header[4][column]
            place = int(rng.integers(len(axes)))
            axes[place] = int(rng.choice([0, 1, 2, 3, 5, 9, -1, 2**40, 2**62]))
        case _:
            header[5] = int(rng.choice([0, 8, 64, -8, 2**40]))
    if rng.random() < 0.8:
        body = fitting(header, body)
    return written(header, body)


def fitting(header: list[Any], body: bytes) -> bytes:
    """As many bytes as the header says, where that is not too many."""
    _, _, n, tagged, shapes, extra = header
    wanted = n * (112 + 8 * sum(int(np.prod(one, dtype=object)) for one in shapes[1:])) + extra
    wanted += 16 * n if tagged else 0
    return (body + bytes(min(max(wanted - len(body), 0), 10**6)))[: max(min(wanted, 10**6), 0)]


def resigned(agent: fw.Agent, batch: fw.Batch, rng: np.random.Generator) -> bytes:
    """What somebody who has the key, and so the file of the agent, could write."""
    rows: Any = batch.rows._replace(head=batch.rows.head.copy())
    for _ in range(int(rng.integers(1, 4))):
        name = str(rng.choice(rows._fields))
        column = getattr(rows, name)
        if name == "head":
            field = str(rng.choice(column.dtype.names))
            values = WHOLE if column.dtype[field].kind == "i" else WILD
            if field not in ("number",):
                column[field][0] = rng.choice(values)
        elif column.dtype == object:
            continue
        elif column.size and rng.random() < 0.6:
            changed = column.copy()
            changed.flat[int(rng.integers(changed.size))] = rng.choice(
                WHOLE if changed.dtype.kind == "i" else WILD
            )
            rows = rows._replace(**{name: changed})
        else:
            shape = [len(column), *rng.integers(0, 5, column.ndim - 1).tolist()]
            rows = rows._replace(**{name: np.ones(shape, column.dtype)})
    return fw.Batch(rows, batch.token, agent._key).to_bytes()


DAMAGE = (flipped, cut, spliced, overwritten, reheaded)


# --- trying -----------------------------------------------------------------------------------


def contents(agent: fw.Agent) -> dict[str, bytes]:
    """Everything that may not change when something is refused."""
    held = {name: array.tobytes() for name, array in arrays_of(agent._running)}
    return held | {"ledger": repr(agent._ledger.saved()).encode()}


def tried(player: Player, data: bytes, how: int) -> str:
    """What came of bytes that are given to an agent in one of four ways."""
    agent = player.agent
    before, t, open_ = contents(agent), agent.t, agent.open
    try:
        if how == 0:
            player.answer(fw.Decision.from_bytes(data))
        elif how == 1:
            player.answer_many(fw.Batch.from_bytes(data))
        elif how == 2:
            agent.expire(fw.Decision.from_bytes(data))
        else:
            agent.issue(fw.Batch.from_bytes(data))
    except InvalidInput as error:
        if contents(agent) != before:
            return f"WRONG: changed by what was refused: {error}"
        return "refused" if len(str(error)) > 20 else f"WRONG: no sentence: {error}"
    except FairwolfeError as error:
        same = contents(agent) == before
        return f"refused: {type(error).__name__}" if same else f"WRONG: changed by {error!r:.200}"
    except Exception as error:
        return f"WRONG: {type(error).__name__}: {error!s:.200}"
    bad = [name for name, array in arrays_of(agent._running) if not np.isfinite(array).all()]
    if bad:
        return f"WRONG: {bad} are not finite"
    learnt = agent.t - t
    if how < 2 and (agent.open != open_ - learnt or agent._running.t != agent.t):
        return f"WRONG: {learnt} were learnt, {open_ - agent.open} are not open any more"
    return "taken"


def main(seed: int, count: int) -> None:
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    counts: collections.Counter[str] = collections.Counter()
    made = players(rng)
    names = list(made)
    for case in range(count):
        player = made[names[case % len(names)]]
        other = made[str(rng.choice(names))]
        agent = player.agent
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        decision = agent.act(player.context)
        data, how = decision.to_bytes(), int(rng.integers(4))
        if how == 3:
            proposed: Any = agent.propose([player.context])
            data = proposed.to_bytes()
        foreign = other.agent.act(other.context).to_bytes()
        if rng.random() < 0.25:
            batch = proposed if how == 3 else decision.batch
            label = "signed"
            damaged = resigned(agent, batch, rng)
        else:
            label = "damaged"
            damage = DAMAGE[int(rng.integers(len(DAMAGE)))]
            try:
                damaged = damage(data, foreign, rng)
            except OverflowError:  # no MessagePack has such a number
                continue
            if damaged in (data, foreign):
                continue
        saved = agent.dump() if label == "signed" else b""
        came = tried(player, damaged, how)
        if label == "damaged" and came == "taken":
            nothing = how in (1, 3) and len(fw.Batch.from_bytes(damaged)) == 0
            came = "nothing" if nothing else "WRONG: taken"
        counts[f"{label}: {came}"] += 1
        if came.startswith("WRONG"):
            print(f"case {case} of {names[case % len(names)]}, way {how}: {came}", file=sys.stderr)
        if label == "signed" and came == "taken":  # whatever it was, it is no part of what follows
            again = fw.Agent.restore(saved, agent.policy, token=agent._ledger.token)
            made[names[case % len(names)]] = Player(again, player.context, player.ranks)
        faulthandler.cancel_dump_traceback_later()
    for player in made.values():
        player.answer(player.agent.act(player.context))
    print(json.dumps(counts))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
