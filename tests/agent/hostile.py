"""Forged files of agents, with right check sums, and a worker that tries them one by one.

    python -m tests.agent.hostile FOLDER SEED COUNT

prints the name of a case before it is tried, then what came of it: a line that begins with WRONG
tells of an error that is no typed one. A case that hangs ends the process with a stack, by the
watchdog of `faulthandler`, and its name stands last.
"""

from __future__ import annotations

import faulthandler
import io
import itertools
import json
import re
import resource
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fairwolfe import Agent, Batch, Bilinear, FrankWolfe, Item, PerArm, Problem
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB
from fairwolfe.core.packing import pack, unpack
from fairwolfe.errors import FairwolfeError
from fairwolfe.objectives import ByGroup, GiniEquality, GiniWelfare, Minimum, TwoSided
from fairwolfe.oracles import OnlineGradient
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank
from fairwolfe.smoothing import Randomized

LIMIT = 30.0  # seconds after which a case hangs
REWARDS = {"clicks": (0.0, 1.0), "minutes": (0.0, 10.0)}
ARMS = Problem.arms(3, REWARDS)
SURE = Problem.arms(3, REWARDS, parameter_norm=2.0)
PER_ARM = Problem.arms(3, REWARDS, n_arms=4)
RANKING = Problem.ranking(6, 2, (2, 3))

NASTY: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    1.5,
    -0.0,
    float("nan"),
    float("inf"),
    float("-inf"),
    1e308,
    5e-324,
    2**31,
    2**53 + 1,
    2**63,
    2**64,
    10**12,
    10**400,
    "",
    "x",
    "NaN",
    "../../x",
    [],
    [1],
    ["a", "b"],
    [[1]],
    {},
    {"a": 1},
    {"a": [1, 2]},
    {"a": "ab"},
)
TEXTS = (
    "",
    "(" * 5000 + ")" * 5000,
    "[" * 90 + "]" * 90,
    "-" * 20_000 + "1",
    "x" + ".x" * 20_000,
    "1" + "+1" * 20_000,
    "__import__('os').abort()",
    "Agent()",
    "Minimum()",
    "LinUCB()",
    "Identity()",
    "Mehrotra()",
    "FrankWolfe",
    "FrankWolfe()",
    "FrankWolfe(Minimum(), Minimum())",
    "FrankWolfe(Minimum(), LinUCB(), Randomized(), 5.0, 'other')",
    "MOLinCB(Minimum())",
    "[" + "1," * 100_000 + "]",
    "\0",
    "\ud800",
    "9" * 5000,
)
NUMBERS = ("0", "-1", "nan", "inf", "1e308", "5e-324", "None", "'x'", "10" * 200, "[]", "True")
SPECIAL = (np.nan, np.inf, -np.inf, -1.0, 0.5, 1e308, -1e308, 5e-324, 2.0**53, 1e18, 0.0)


def learnt(policy: Any, problem: Problem, n: int, **options: Any) -> Agent:
    agent = Agent(policy, problem, **options)
    rng = np.random.default_rng(0)
    for _ in range(n):
        step(agent, rng, answered=rng.random() < 0.9)
    return agent


def step(agent: Agent, rng: np.random.Generator, answered: bool = True) -> None:
    """A decision for any problem, and what comes of it."""
    problem = agent.problem
    if problem.n_items is not None:
        p, q = problem.n_features if isinstance(problem.n_features, tuple) else (0, 0)
        user = rng.uniform(-0.5, 0.5, p)
        kept = agent._running.state.features.shape[1] > 0
        items = agent.items.size
        ranking = agent.act(user if kept else Bilinear(user, rng.uniform(-0.5, 0.5, (items, q))))
        if answered:
            shown = np.asarray(ranking.action).tolist()
            agent.update(ranking, exposed=shown[:1], clicked=shown[: int(rng.integers(2))])
        return
    context: Any
    if isinstance(problem.n_features, tuple):
        p, q = problem.n_features
        context = Bilinear(rng.uniform(-0.5, 0.5, p), rng.uniform(-0.5, 0.5, (4, q)))
    elif problem.n_arms is not None:
        context = PerArm(rng.uniform(-0.5, 0.5, problem.n_features))
    else:
        context = rng.uniform(-0.5, 0.5, (4, problem.n_features))
    decision = agent.act(context)
    if answered:
        agent.update(decision, rng.random(problem.n_objectives))


def agents() -> dict[str, Agent]:
    """What the forged files are made of."""
    rng = np.random.default_rng(1)
    items = dict(zip("abcdef", rng.uniform(-0.5, 0.5, (6, 3)), strict=True))
    kept = learnt(FWLinUCBRank(TwoSided(GiniEquality())), RANKING, 300, items=items)
    kept.add_items(dict(zip("ga", rng.uniform(-0.5, 0.5, (2, 3)), strict=True)))
    for _ in range(70):
        step(kept, rng)
    made = {key: Item(row, maker=key) for key, row in items.items()}
    makers = FWLinUCBRank(TwoSided(ByGroup(GiniEquality(), by="maker")), memory=50.0)
    grouped = learnt(makers, RANKING, 100, items=made)
    grouped.retire(["a", "b"])
    grouped.add_items({"h": Item(items["c"], maker="a")})
    for _ in range(20):
        step(grouped, rng)
    gone = learnt(FairLearnRank(minimum=0.1), RANKING, 100)
    gone.retire([0, 4])
    return {
        "squarecb": learnt(FrankWolfe(Minimum(), SquareCB(gamma0=10.0)), ARMS, 300),
        "sure": learnt(FrankWolfe(GiniWelfare(), LinUCB()), SURE, 300),
        "extended": learnt(
            FrankWolfe(Minimum(), LinUCB(model="extended"), Randomized(n_samples=2)),
            ARMS,
            200,
        ),
        "gradient": learnt(
            FrankWolfe(GiniWelfare(), EpsilonGreedy(0.1, oracle=OnlineGradient()), memory=50.0),
            PER_ARM,
            100,
            arms=["one", "two", "three", "four"],
        ),
        "kept": kept,
        "grouped": grouped,
        "gone": gone,
        "expiring": learnt(FrankWolfe(Minimum(), LinUCB()), ARMS, 100, expires=8),
        "listed": learnt(FWLinUCBRank(TwoSided(GiniEquality())), RANKING, 100, expires=8),
    }


# --- forging ----------------------------------------------------------------------------------

Members = dict[str, bytes]
Case = tuple[str, Callable[[], bytes]]


def archived(members: Members | list[tuple[str, bytes]], compression: int = 0) -> bytes:
    """The bytes of a file with these members."""
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", compression) as archive:
        warnings.simplefilter("ignore")  # of names that stand there twice
        for name, content in members.items() if isinstance(members, dict) else members:
            archive.writestr(name, content)
    return out.getvalue()


def as_npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asarray(array), allow_pickle=False)
    return out.getvalue()


def headed(descr: Any, shape: Any, content: bytes = b"", fortran: bool = False) -> bytes:
    """An array whose header says what it likes."""
    head = repr({"descr": descr, "fortran_order": fortran, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + content


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values of a JSON text stand, branches too."""
    yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from leaves(value[key], (*path, key))


def replaced(text: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = text.copy()
    copy[path[0]] = replaced(text[path[0]], path[1:], value)
    return copy


def json_cases(name: str, members: Members) -> Iterator[Case]:
    text = json.loads(members["agent.json"])

    def with_text(changed: Any) -> bytes:
        return archived(members | {"agent.json": json.dumps(changed).encode()})

    for path in leaves(text):
        for value in NASTY:
            label = f"{name}: {'.'.join(map(str, path))} = {value!r:.40}"
            yield label, partial(lambda p, v: with_text(replaced(text, p, v)), path, value)
        if path:
            yield (
                f"{name}: no {'.'.join(map(str, path))}",
                partial(lambda p: with_text(without(text, p)), path),
            )
    policies = [*TEXTS]
    for found in re.finditer(r"(?<![\w.])\d[\w.]*", text["policy"]):
        start, end = found.span()
        policies += [text["policy"][:start] + number + text["policy"][end:] for number in NUMBERS]
    for policy in policies:
        yield (
            f"{name}: policy {policy!r:.200}",
            partial(lambda p: with_text(text | {"policy": p}), policy),
        )
    for raw in (b"", b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b"1" * 5000, b" " * (5 << 20)):
        yield (
            f"{name}: text {raw[:10]!r}",
            partial(lambda r: archived(members | {"agent.json": r}), raw),
        )


def without(text: Any, path: tuple[Any, ...]) -> Any:
    copy = text.copy()
    if len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = without(text[path[0]], path[1:])
    return copy


def array_cases(name: str, members: Members) -> Iterator[Case]:
    for key in members:
        if key == "agent.json":
            continue
        array = np.load(io.BytesIO(members[key]))
        forged: dict[str, bytes] = {}
        for value in SPECIAL if array.dtype.kind == "f" else (0, 1, 255):
            forged[f"all {value}"] = as_npy(np.full_like(array, value))
            if array.size:
                one = array.copy()
                one.flat[array.size // 2] = value
                forged[f"one {value}"] = as_npy(one)
        if array.dtype.kind == "f":
            forged["minus"] = as_npy(-array)
            forged["times 1e200"] = as_npy(array * 1e200)
        for dtype in ("<f4", ">f8", "<i8", "|u1", "|b1", "<f2", "<c16", "<U3", "<M8[s]"):
            forged[dtype] = as_npy(np.abs(array).astype(dtype))
        forged |= {
            "no axes": as_npy(array.ravel()[0] if array.size else 0.0),
            "one axis": as_npy(array.ravel()),
            "another axis": as_npy(array[None]),
            "one less": as_npy(array[:-1]),
            "twice": as_npy(np.concatenate([array, array])),
            "fortran": as_npy(np.asfortranarray(array)),
            "turned": as_npy(array.T.copy()),
            "cut": members[key][:-1],
            "header only": members[key][:128],
            "longer": members[key] + b"\0" * 8,
            "80 GB": headed("<f8", (10**10,)),
            "negative": headed("<f8", (-1,)),
            "negative twice": headed("<f8", (-1, -1), b"\0" * 8),
            "endless": headed("<f8", (10**30, 0)),
            "many axes": headed("<f8", (1,) * 100, b"\0" * 8),
            "no bytes": headed("|V0", (10**18,)),
            "void": headed("|V800000000", (0,)),
            "parts": headed([("a", "<f8"), ("b", "|O")], (1,), b"\0" * 16),
            "pickle": headed("|O", (1,), b"\x80\x04N."),
            "text for a shape": headed("<f8", "(1,)", b"\0" * 8),
            "nested": b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"(" * 9000,
            "version 2": b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
            "nothing": b"",
        }
        for what, content in forged.items():
            yield (
                f"{name}: {key} {what}",
                partial(lambda k, c: archived(members | {k: c}), key, content),
            )
        yield (
            f"{name}: {key} missing",
            partial(lambda k: archived({n: c for n, c in members.items() if n != k}), key),
        )
        yield (
            f"{name}: {key} twice in it",
            partial(lambda k: archived([*members.items(), (k, members[k])]), key),
        )


def archive_cases(name: str, members: Members, raw: bytes) -> Iterator[Case]:
    extra = as_npy(np.zeros(3))
    for odd in ("../../x.npy", "/x.npy", "state.extra.npy", "x", "state..npy", "a/b.npy", "ü.npy"):
        yield f"{name}: extra {odd}", partial(lambda o: archived(members | {o: extra}), odd)
    for compression in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        yield (
            f"{name}: compressed {compression}",
            partial(lambda c: archived(members, c), compression),
        )
    yield f"{name}: bomb", lambda: bomb(members)
    yield f"{name}: encrypted", lambda: flagged(raw)
    yield f"{name}: overlapping", lambda: overlapping(members)
    yield f"{name}: empty archive", lambda: archived({})
    yield f"{name}: something before it", lambda: b"PK\x03\x04" + raw
    yield f"{name}: something behind it", lambda: raw + b"\0" * 100
    for length in range(0, len(raw), max(len(raw) // 40, 1)):
        yield f"{name}: cut at {length}", partial(lambda n: raw[:n], length)


def bomb(members: Members, megabytes: int = 600) -> bytes:
    """A small file that unpacks to much."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        with archive.open("state.more.npy", "w") as member:
            member.write(headed("<f8", (megabytes << 17,)))
            for _ in range(megabytes):
                member.write(bytes(1 << 20))
    return out.getvalue()


def flagged(raw: bytes) -> bytes:
    """The file with the flag of encryption on every member."""
    out = bytearray(raw)
    for magic, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        for found in re.finditer(re.escape(magic), raw):
            out[found.start() + place] |= 1
    return bytes(out)


def overlapping(members: Members) -> bytes:
    """Many entries of the directory that stand for one large member."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr("state.more.npy", as_npy(np.zeros(10**5)))
        first = archive.infolist()[-1]
        for i in range(1000):
            info = zipfile.ZipInfo(f"state.more{i}.npy")
            for field in ("CRC", "compress_size", "file_size", "header_offset", "flag_bits"):
                setattr(info, field, getattr(first, field))
            archive.filelist.append(info)
            archive.NameToInfo[info.filename] = info
    return out.getvalue()


def young_cases(name: str, members: Members) -> Iterator[Case]:
    """Open decisions in a file, changed, with the right checksum: its key is in the file."""
    if "young.npy" not in members:
        return
    key = bytes.fromhex(json.loads(members["agent.json"])["key"])
    stored = unpack(np.load(io.BytesIO(members["young.npy"])).tobytes())
    batch = Batch.from_bytes(stored[0].tobytes())

    def with_rows(rows: Any) -> bytes:
        signed = np.frombuffer(Batch(rows, batch.token, key).to_bytes(), np.uint8)
        packed = np.frombuffer(pack((signed,)), np.uint8)
        return archived(members | {"young.npy": as_npy(packed)})

    rows: Any = batch.rows
    for field in rows.head.dtype.names:
        for value in (-1, 0, 1, 99, 2**62, -(2**62)):
            head = rows.head.copy()
            head[field][0] = value
            changed = rows._replace(head=head)
            yield f"{name}: young {field} {value}", partial(with_rows, changed)
    for column in rows._fields[1:]:
        array = getattr(rows, column)
        forged = [np.full_like(array, value) for value in (-1, 0, 7, 10**9)]
        forged += [np.ones((len(array), *(2 * n + 1 for n in array.shape[1:])), array.dtype)]
        if array.dtype == np.float64:
            forged += [np.full_like(array, value) for value in (np.nan, np.inf, 1e300)]
        for i, other in enumerate(forged):
            changed = rows._replace(**{column: other})
            yield f"{name}: young {column} {i}", partial(with_rows, changed)


def random_cases(
    name: str, members: Members, raw: bytes, rng: np.random.Generator, others: dict[str, Members]
) -> Iterator[Case]:
    """Without end: bits flipped, members of another file, and numbers of arrays changed, several at
    a time.
    """
    while True:
        kind = int(rng.integers(5))
        if kind == 4:
            other = others[str(rng.choice(list(others)))]
            taken = {key for key in other if rng.random() < 0.3}
            mixed = members | {key: other[key] for key in taken}
            yield f"{name}: spliced {sorted(taken)}", partial(archived, mixed)
            continue
        if kind == 0:
            damaged = bytearray(raw)
            for place in rng.integers(len(raw), size=int(rng.integers(1, 4))).tolist():
                damaged[place] ^= 1 << int(rng.integers(8))
            yield f"{name}: flipped", partial(bytes, damaged)
            continue
        changed = dict(members)
        for _ in range(kind):
            key = str(rng.choice([one for one in members if one != "agent.json"]))
            array = np.load(io.BytesIO(members[key])).copy()
            if array.size == 0:
                continue
            place = int(rng.integers(array.size))
            if array.dtype.kind == "f":
                scale = float(rng.choice([-1.0, 0.0, 1e-300, 0.5, 2.0, 1e6, 1e150, 1e300]))
                fresh = float(rng.choice(SPECIAL))
                array.flat[place] = fresh if rng.random() < 0.5 else array.flat[place] * scale
            else:
                array.flat[place] = int(rng.integers(256))
            changed[key] = as_npy(array)
        yield (
            f"{name}: numbers {[k for k in members if changed[k] != members[k]]}",
            partial(archived, changed),
        )


def cases(folder: Path, seed: int, count: int) -> Iterator[Case]:
    """`count` cases: all that can be listed, or a sample of them, then random ones."""
    rng = np.random.default_rng(seed)
    listed: list[Case] = []
    without_end: list[Iterator[Case]] = []
    others: dict[str, Members] = {}
    for name, agent in agents().items():
        path = folder / f"{name}.fw"
        agent.save(path)
        raw = path.read_bytes()
        with zipfile.ZipFile(path) as archive:
            members = {one: archive.read(one) for one in archive.namelist()}
        yield f"{name}: as it is", partial(bytes, raw)
        listed += json_cases(name, members)
        listed += array_cases(name, members)
        listed += archive_cases(name, members, raw)
        listed += young_cases(name, members)
        others[name] = members
        without_end.append(random_cases(name, members, raw, rng, others))
    print(f"{len(listed)} listed", flush=True)
    if len(listed) > count:
        few = count // 6
        for place in rng.choice(len(listed), count - few, replace=False).tolist():
            yield listed[place]
    else:
        few = count - len(listed)
        yield from listed
    turns = itertools.cycle(without_end)
    for _ in range(few):
        yield next(next(turns))


# --- trying -----------------------------------------------------------------------------------


def tried(path: Path, label: str) -> str:
    """What comes of a file; it begins with WRONG if it is nothing good."""
    try:
        agent = Agent.load(path)
    except FairwolfeError as error:
        return f"refused: {type(error).__name__}: {error!s:.300}"
    except Exception as error:
        return f"WRONG: {type(error).__name__}: {error!s:.200}"
    rng = np.random.default_rng(0)
    try:
        for _ in range(70):  # a window of live numbers is full in between
            step(agent, rng)
        if agent.policy.objective is not None and not np.isfinite(agent.value):
            return f"WRONG: the value is {agent.value}"
        if agent.policy.objective is not None:
            str(agent.live())
    except FairwolfeError as error:
        kept = "as it is" in label
        return f"{'WRONG' if kept else 'loaded'}, then {type(error).__name__}: {error!s:.200}"
    except Exception as error:
        return f"WRONG: loaded, then {type(error).__name__}: {error!s:.200}"
    return "loaded"


def main(folder: Path, seed: int, count: int) -> None:
    warnings.simplefilter("ignore")
    path = folder / "forged.fw"
    slowest, where = 0.0, ""
    most = None
    for label, forge in cases(folder, seed, count):
        content = forge()
        if most is None:  # what making the agents took is not counted
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        path.write_bytes(content)
        del content
        print(f"case {label}", flush=True)
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        begun = time.process_time()
        came = tried(path, label)
        faulthandler.cancel_dump_traceback_later()
        taken = time.process_time() - begun
        if taken > slowest:
            slowest, where = taken, label
        print(f"  {came}".encode(errors="replace").decode(), flush=True)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - (most or 0)) // 1024
    print(f"slowest: {slowest:.2f} s, {where}")
    print(f"grown by: {grown} MB", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
