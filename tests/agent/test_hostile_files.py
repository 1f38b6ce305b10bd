"""Files and bytes that somebody forged: typed errors only, soon, and in little memory."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from fairwolfe import Agent, FrankWolfe, Problem
from fairwolfe.agent.file import write
from fairwolfe.bandits import LinUCB, SquareCB
from fairwolfe.core.decision import Decision
from fairwolfe.core.packing import pack
from fairwolfe.errors import IncompatibleState, InvalidInput
from fairwolfe.objectives import GiniWelfare, Linear, Minimum
from fairwolfe.oracles import SklearnRegressor
from tests.agent.hostile import as_npy
from tests.agent.test_file import rewritten
from tests.core.test_decision import forged, framed, stored

PROBLEM = Problem.arms(3, {"clicks": (0.0, 1.0), "minutes": (0.0, 10.0)})
BEFORE = 18 + 2 * 2  # where the window before the current one begins in `live`
MEGABYTES = 500  # that no file may take; the bomb among them unpacks to more
ROOT = Path(__file__).parents[2]


def tried(folder: Path, seed: int, count: int) -> str:
    """What the worker says, after a look at it."""
    command = [sys.executable, "-m", "tests.agent.hostile", str(folder), str(seed), str(count)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    lines = found.stdout.splitlines()
    if found.returncode != 0:
        last = [line for line in lines if line.startswith("case")][-1:]
        pytest.fail(f"the worker ended with {found.returncode} in {last}\n{found.stderr[-3000:]}")
    wrong = [f"{a}\n{b}" for a, b in pairwise(lines) if "WRONG" in b[:10]]
    assert not wrong, f"{len(wrong)} cases:\n" + "\n".join(wrong[:20])
    assert sum(line.startswith("case") for line in lines) >= count
    grown = re.search(r"grown by: (-?\d+) MB", found.stdout)
    assert grown is not None
    assert int(grown[1]) < MEGABYTES, found.stdout[-300:]
    return found.stdout


def test_forged_files_are_refused_or_work(tmp_path: Path) -> None:
    said = tried(tmp_path, 0, 600)
    assert said.count("\n  refused") > 300
    assert said.count("\n  loaded") > 50  # also those that are as they were, or might have been


@pytest.mark.slow
def test_many_forged_files_are_refused_or_work(tmp_path: Path) -> None:
    tried(tmp_path, 1, 10_000)


# --- by name ----------------------------------------------------------------------------------


def saved(path: Path, policy: Any = None) -> Agent:
    agent = Agent(policy or FrankWolfe(Minimum(), SquareCB(gamma0=10.0)), PROBLEM)
    rng = np.random.default_rng(0)
    for _ in range(150):
        agent.update(agent.act(rng.uniform(-0.5, 0.5, (4, 3))), rng.random(2))
    agent.save(path)
    return agent


def changed(array: str, place: Any, value: float) -> Any:
    """A number of an array that is another."""

    def change(text: Any, members: dict[str, bytes]) -> None:
        import io

        numbers = np.load(io.BytesIO(members[f"state.{array}.npy"]))
        numbers[place] = value
        members[f"state.{array}.npy"] = as_npy(numbers)

    return change


NUMBERS = {
    "not a number": (
        changed("theta", (0, 1, 2), np.nan),
        r"state\.theta holds nan at \[0, 1, 2\]; a state holds finite numbers",
    ),
    "infinite": (
        changed("totals", 1, -np.inf),
        r"state\.totals holds -inf at \[1\]; a state holds finite numbers, so .* damaged or forged",
    ),
    "a clock that runs back": (
        changed("clocks", 0, -3.0),
        r"state: clocks holds -3\.0 at \[0\]; clocks run from 0 to the number of rewards",
    ),
    "a clock that is ahead": (changed("clocks", 1, 151.0), r"clocks holds 151\.0 at \[1\]"),
    "half a reward": (changed("t", 0, 150.5), r"state: t holds 150\.5 .* it counts"),
    "half a decision": (changed("open", 1, 1.5), r"state: open holds 1\.5 .* it counts"),
    "a design without a mirror": (
        changed("gram", (0, 0, 0, 2), 1e6),
        r"gram holds .* at \[0, 0, 2\]; it is symmetric",
    ),
    "a design of nothing": (
        changed("inverse", (0, 0, 1, 1), 0.0),
        r"the diagonal of inverse holds 0\.0 at \[0, 1\]; it is positive",
    ),
    "a determinant that fell": (
        changed("learnt", (0, 1), -5.0),
        r"the log-determinant holds -5\.0",
    ),
    "fewer than no observations": (changed("learnt", (0, 0), -1.0), "counters holds -1.0"),
    "a window of 65": (
        changed("live", 1, 65.0),
        r"now holds 65\.0 .*; the length of a window is 64 times a power of 2",
    ),
    "a window too full": (changed("live", 2, 1e6), "takes what it has planned"),
    "a square below 0": (changed("live", BEFORE + 10, -1.0), "squares and ranges"),
}


@pytest.mark.parametrize(("change", "sentence"), NUMBERS.values(), ids=NUMBERS)
def test_numbers_that_cannot_be_are_refused_by_name(
    change: Any, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "agent.fw"
    saved(path)
    rewritten(path, change)
    with pytest.raises(IncompatibleState, match=sentence):
        Agent.load(path)


FIELDS = {
    "out_of_range": (-1, r"agent.fw does not hold .* Expected `int` >= 0 - at `\$.out_of_range`"),
    "warned": ([[1]], r"Expected `str`, got `array` - at `\$.warned\[0\]`"),
    "policy": (3, r"agent.fw does not hold .* Expected `str`, got `int` - at `\$.policy`"),
    "draws": ([1, 2**64], "draws is .*; it is two whole numbers"),
    "expires": (0, r"Expected `int` >= 1 - at `\$.expires`"),
    "version": (True, "format version True"),
}


@pytest.mark.parametrize(("field", "value", "sentence"), [(f, *v) for f, v in FIELDS.items()])
def test_fields_that_cannot_be_are_refused_by_name(
    field: str, value: Any, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "agent.fw"
    saved(path)
    rewritten(path, lambda text, members: text.update({field: value}))
    with pytest.raises(IncompatibleState, match=sentence):
        Agent.load(path)


def test_a_problem_larger_than_the_file_is_not_allocated(tmp_path: Path) -> None:
    path = tmp_path / "agent.fw"
    saved(path)
    stored = r"the state that was saved has \d+ bytes"
    for size, error in ((200_000, stored), (10**12, stored), (10**400, "whole number below")):
        rewritten(path, lambda text, members, n=size: text["problem"].update(n_features=n))
        with pytest.raises(IncompatibleState, match=error):
            Agent.load(path)


@pytest.mark.needs("scikit-learn")
def test_a_memory_larger_than_the_file_is_not_allocated(tmp_path: Path) -> None:
    path = tmp_path / "agent.fw"
    oracle = SklearnRegressor("sklearn.svm:SVR", first=5, memory=100)
    saved(path, FrankWolfe(Minimum(), SquareCB(gamma0=10.0, oracle=oracle)))
    assert Agent.load(path).t == 150
    for place, value in ((0, 1e15), (1, 140.5), (1, 151.0)):
        rewritten(path, changed("base.oracle.counters", place, value))
        with pytest.raises(IncompatibleState, match="forged"):
            Agent.load(path)

    def larger(text: Any, members: Any) -> None:
        text["policy"] = text["policy"].replace("memory=100", "memory=1000000000000")

    rewritten(path, larger)
    with pytest.raises(IncompatibleState, match="it belongs to others"):
        Agent.load(path)


def test_a_state_that_begins_with_an_infinity_may_keep_it() -> None:
    from fairwolfe.agent.file import filled
    from tests.agent.test_file import Outer

    best = Outer(None, np.full(2, -np.inf), ())
    assert filled(best, {"state.z": np.array([1.0, -np.inf])}).z.tolist() == [1.0, -np.inf]


def test_a_policy_too_long_to_be_read_again_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"take 5,.* bytes of text, and a file holds at most 4,"):
        write(tmp_path / "agent.fw", {"policy": "x" * 5_200_000}, {})
    assert os.listdir(tmp_path) == []


def test_a_policy_of_many_numbers_is_read() -> None:
    from fairwolfe.core.build import from_text

    weights = np.random.default_rng(0).normal(size=20_000).tolist()
    policy = FrankWolfe(Linear(weights), LinUCB())
    assert from_text(repr(policy)) == policy
    with pytest.raises(InvalidInput, match="at most 400,000 are read"):
        from_text(repr([0] * 500_000))


# --- a disk that is full, a folder that is closed ---------------------------------------------

REFUSED = """
import os, resource, sys
from pathlib import Path
from fairwolfe.agent.file import read, write
path = Path(sys.argv[1])
text, arrays = read(path)
if sys.argv[2] == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size // 2,) * 2)
elif os.geteuid() == 0:
    os.seteuid(65534)  # to whom the folder is closed, as it is not to root
try:
    write(path, text, arrays)
except OSError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("what", "kind", "why"),
    [("full", "OSError", "File too large"), ("closed", "PermissionError", "Permission denied")],
)
def test_a_disk_that_refuses_leaves_the_old_file(
    what: str, kind: str, why: str, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "agent.fw"
    agent = saved(path)
    before = path.read_bytes()
    folder.chmod(0o555 if what == "closed" else 0o755)
    try:
        command = [sys.executable, "-c", REFUSED, str(path), what]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    finally:
        folder.chmod(0o755)
    assert re.match(rf"{kind} .*the agent was not saved: .*agent\.fw cannot be written", said), said
    assert f"({why}); what stood there before is as it was. Make room" in said
    assert path.read_bytes() == before
    assert os.listdir(folder) == ["agent.fw"]
    assert Agent.load(path).t == agent.t


def test_no_folder_is_said(tmp_path: Path) -> None:
    agent = Agent(FrankWolfe(GiniWelfare(), LinUCB()), PROBLEM)
    with pytest.raises(
        FileNotFoundError, match=r"the agent was not saved: .* choose another folder"
    ):
        agent.save(tmp_path / "nowhere" / "agent.fw")


# --- bytes of decisions -----------------------------------------------------------------------


def array(dtype: str, shape: Any, raw: bytes) -> Any:
    return msgspec.msgpack.Ext(1, msgspec.msgpack.encode((dtype, shape, raw)))


@pytest.mark.parametrize(
    "evidence",
    [
        array("<f8", (1,) * 40, b"\0" * 8),
        array("<f8", (2**63 - 1,) * 30_000, b""),
        array("<f8", (2**64 - 1, 0), b""),
        array("<f8", [3], b"\0" * 16),
        msgspec.msgpack.Ext(-1, b"\xff" * 12),
    ],
    ids=range(5),
)
def test_evidence_that_cannot_be(evidence: Any) -> None:
    with pytest.raises(InvalidInput, match="not those of a decision"):
        Decision.from_bytes(stored([[1, [evidence]]]))


def test_evidence_that_only_looks_odd() -> None:
    assert Decision.from_bytes(stored([[1, {"a": {"b": {}}}]])).evidence == {"a": {"b": {}}}


@pytest.mark.parametrize("depth", [40, 150, 400, 900, 100_000])
@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a"])
def test_evidence_nested_too_deep(depth: int, opening: bytes) -> None:
    body = b"\x91\x92\x01" + opening * depth + b"\xc0"
    with pytest.raises(InvalidInput, match="not those of a decision"):
        Decision.from_bytes(forged(framed(body)))


def test_mutated_bytes_are_refused_or_a_decision() -> None:
    x, rng = np.linspace(0.0, 1.0, 3), random.Random(0)
    seeds: list[Any] = [
        (3, ((0, x, np.empty(0)), None, x, (2, x))),
        (np.array([4, 1]), ((x, np.ones((2, 3)), x), None)),
    ]
    packed = [pack((one,))[8:] for one in seeds]
    read = 0
    for _ in range(5_000):
        body = bytearray(rng.choice(packed))
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(body))
            match rng.randrange(4):
                case 0:
                    body[place] = rng.choice(
                        b"\x00\x7f\x80\x90\xc0\xc1\xc6\xc9\xcb\xcf\xdb\xdd\xff"
                    )
                case 1:
                    body[place] ^= 1 << rng.randrange(8)
                case 2:
                    del body[place : place + rng.randint(1, 9)]
                case 3:
                    body[place:place] = rng.randbytes(rng.randint(1, 9))
            body = body or bytearray(1)
        try:
            assert isinstance(Decision.from_bytes(forged(framed(bytes(body)))), Decision)
            read += 1
        except InvalidInput:
            pass
    assert 100 < read < 4_900
