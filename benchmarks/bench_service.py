"""The service under load, beside FastAPI, bare servers and the bare disk, in one run.

    python benchmarks/bench_service.py [--turns 5] [--seconds 2] [--case NAME] [--no-library]
        [--against OLD/src]

Needs FastAPI, and wrk (Debian's package of that name), which asks from the same machine: rates
depend on what else it does, so all servers of a case run side by side, are asked in turns, and
medians of the turns and ratios of these medians are printed, with the processor time of the server
a request. Every server is one process. `durable` is `fairwolfe serve`: a decision is synced to the
disk before it is answered; `old` the same from the sources of another commit (--against); `memory`
the same with a store that keeps nothing safe; `fastapi` is FastAPI with `agent.act` and no store at
all, `stored` the same with a synced append of the decision to SQLite in its handler. With --against
both have the agent of that commit: ours gets faster too. At the end the rows of the library are
printed (bench_batch.py, bench_replay.py), unless --no-library.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec
import numpy as np

import fairwolfe as fw

CONNECTIONS = (1, 16, 64)
PUBLISHED = 10_000  # decisions a second, K = 4, d = 5, not durable, on 4 cores: BanditDB's README
GROUP, RECORD, COMMITS = 48, 300, 200
READY, CLOCK_TICKS = 120.0, os.sysconf("SC_CLK_TCK")

ARMS = """
problem = {{ kind = "arms", n_features = {d}, rewards = {{ {rewards} }} }}
objective = {{ name = "generalized-gini", weights = {weights} }}
policy = {{ name = "frank-wolfe", base = {{ name = "squarecb", gamma0 = 100.0 }} }}
"""
RANKING = """
items = "items.json"
problem = { kind = "ranking", n_slots = 10, n_features = [10, 10] }
objective = { name = "two-sided", items = { name = "gini-welfare" }, beta = 0.5 }
policy = { name = "fw-linucb-rank", exploration = 0.1 }
"""


class Case(NamedTuple):
    """What is decided: so many arms with so many features, or among so many items."""

    arms: int = 0
    features: int = 10
    rewards: int = 2
    items: int = 0
    packed: bool = False

    @property
    def body(self) -> bytes:
        """A question."""
        rng = np.random.default_rng(0)
        if self.items:
            return json.dumps({"user": rng.uniform(-0.2, 0.2, 10).round(6).tolist()}).encode()
        arms = rng.uniform(-0.2, 0.2, (self.arms, self.features)).round(6)
        if self.packed:
            data = arms.astype("<f4").tobytes()
            return msgspec.msgpack.encode({"arms": data, "shape": arms.shape})
        return json.dumps({"arms": arms.tolist()}).encode()

    @property
    def form(self) -> str:
        """The content type of a question."""
        return "application/msgpack" if self.packed else "application/json"

    @property
    def catalogue(self) -> dict[str, list[float]]:
        """Items by key."""
        rows = np.random.default_rng(1).uniform(-0.3, 0.3, (self.items, 10)).round(6)
        return {f"item {i}": row.tolist() for i, row in enumerate(rows)}

    def config(self, window: str) -> str:
        """The configuration of the service."""
        weights = [round(1.0 / (i + 1), 3) for i in range(self.rewards)]
        rewards = ", ".join(f"r{i} = [0, 1]" for i in range(self.rewards))
        model = (
            RANKING
            if self.items
            else ARMS.format(d=self.features, rewards=rewards, weights=weights)
        )
        return (
            f'state = "state"\nlisten = "127.0.0.1:0"\n[limits]\n'
            f'open = 100_000_000\n[models.m]\nwindow = "{window}"\nmissing = "zero"\n{model}'
        )


CASES = {
    "K=4 d=5": Case(arms=4, features=5),
    "K=50 d=10": Case(arms=50, rewards=5),
    "K=50 d=10 packed": Case(arms=50, rewards=5, packed=True),
    "50 items": Case(items=50),
    "2500 items": Case(items=2500),
}


# --- servers -----------------------------------------------------------------------------------


def serve(kind: str, case: Case, folder: Path) -> None:
    """Run a server of a kind until it is ended; its first line says where it is."""
    if kind in ("fastapi", "stored"):
        run_uvicorn(fastapi(case, folder if kind == "stored" else None), "httptools")
    elif kind == "bare-asgi":
        run_uvicorn(bare_asgi, "httptools")
    elif kind == "bare-protocol":
        asyncio.run(bare_protocol())
    else:
        from fairwolfe.service import serve as service
        from fairwolfe.service.config import parse

        if kind == "memory":
            vars(service)["SQLiteStore"] = Memory
        window = "2 s" if kind == "mixed" else "10 min"
        config = parse(case.config(window), str(folder))
        if case.items:
            (folder / "items.json").write_text(json.dumps(case.catalogue))
        if kind == "bare-server":
            run_bare_server(config)
        else:
            service.run(config)


class Memory:
    """A store that forgets, instead of SQLite."""

    token = "0" * 16
    deleted = 0

    def __init__(self, folder: Any) -> None:
        self.seq, self.clock = 0, 0.0
        self.bases: dict[int, Any] = {}

    def append(self, clock: float, payload: bytes, *_: Any, starts: Any = (), **__: Any) -> int:
        self.seq, self.clock = self.seq + 1, clock
        return self.seq

    def last(self) -> tuple[int, float]:
        return self.seq, self.clock

    def starts(self) -> dict[int, Any]:
        return {}

    def rows(self, after: int) -> Any:
        return iter(())

    def snapshot(self, *_: Any) -> None:
        pass

    note = snapshot

    def close(self) -> None:
        pass


def agent_of(case: Case) -> fw.Agent:
    """The agent of a case, as the service makes it."""
    from fairwolfe.service.config import parse, setup

    made = setup(parse(case.config("10 min")), "m")
    items = case.catalogue or None
    return fw.Agent(made.make_policy(), made.make_problem(case.items or 1), items=items)


def fastapi(case: Case, folder: Path | None) -> Any:
    """FastAPI as one would write it around an Agent: validated by pydantic, decided one by one, and
    with a folder stored one by one.
    """
    from fastapi import FastAPI
    from pydantic import BaseModel

    agent = agent_of(case)
    append = appender(folder) if folder is not None else None

    class Question(BaseModel):
        user: list[float] | None = None
        arms: list[list[float]] | None = None

    vars(sys.modules[__name__])["Question"] = Question  # where annotations are looked up
    application = FastAPI()

    @application.post("/v1/models/m/decide")
    async def decide(question: Question) -> dict[str, Any]:
        decision = agent.act(np.array(question.user or question.arms))
        if append is not None:
            append(decision.to_bytes())
        if question.user is not None:
            names = agent.names or ()
            shown: Any = [names[i] for i in decision.action.tolist()]  # type: ignore[union-attr]
            return {"id": decision.id, "items": shown, "probability": decision.probability}
        return {"id": decision.id, "arm": decision.action, "probability": decision.probability}

    return application


def appender(folder: Path) -> Callable[[bytes], Any]:
    """A synced append of a row to SQLite, with the settings of the service's log."""
    import apsw

    base = apsw.Connection(str(folder / "decisions.sqlite"))
    for setting in ("page_size = 16384", "locking_mode = exclusive", "journal_mode = wal"):
        base.execute(f"PRAGMA {setting}")
    base.execute("PRAGMA synchronous = 2")
    base.execute("CREATE TABLE log(seq INTEGER PRIMARY KEY, payload BLOB NOT NULL)")
    return lambda data: base.execute("INSERT INTO log(payload) VALUES (?)", (data,))


ANSWER = {"id": "0-0-0", "closes_in": 600.0, "probability": 0.4, "arm": 2}


async def bare_asgi(scope: Any, receive: Any, send: Any) -> None:
    """A question is read and a fixed answer given, in ASGI and nothing else."""
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    msgspec.json.decode(body)
    answer = msgspec.json.encode(ANSWER)
    headers = [(b"content-length", b"%d" % len(answer)), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


async def bare_protocol() -> None:
    """The same in a protocol of our own: what an HTTP server must cost."""
    import httptools
    import uvloop

    del uvloop  # the loop is chosen by the caller; it must be there
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\ncontent-type: application/json\r\n\r\n"

    class Bare(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            self.parser = httptools.HttpRequestParser(self)

        def data_received(self, data: bytes) -> None:
            self.parser.feed_data(data)

        def on_message_begin(self) -> None:
            self.url = self.body = b""
            self.headers: dict[bytes, bytes] = {}

        def on_url(self, url: bytes) -> None:
            self.url += url

        def on_header(self, name: bytes, value: bytes) -> None:
            self.headers[name.lower()] = value

        def on_body(self, body: bytes) -> None:
            self.body += body

        def on_message_complete(self) -> None:
            right = self.parser.get_method() == b"POST" and self.url.endswith(b"/decide")
            right = right and self.headers[b"content-type"] == b"application/json"
            msgspec.json.decode(self.body)
            answer = msgspec.json.encode(ANSWER if right else {})
            self.transport.write(head % len(answer) + answer)
            if not self.parser.should_keep_alive():
                self.transport.close()

    loop = asyncio.get_running_loop()
    server = await loop.create_server(Bare, "127.0.0.1", 0)
    print(f"ready http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def run_bare_server(config: Any) -> None:
    """The HTTP server without a core: a question is read and a fixed answer given."""
    from fairwolfe.service import serve as service
    from fairwolfe.service.core import Core, Work
    from fairwolfe.service.routes import HotEndpoint

    def work(self: HotEndpoint, body: bytes, form: str, key: Any, waiter: Any) -> Work:
        msgspec.json.decode(body)
        return Work(self.model, waiter=waiter)

    HotEndpoint.work = work  # type: ignore[method-assign,assignment]
    HotEndpoint.encoded = lambda *_: (msgspec.json.encode(ANSWER), "application/json")  # type: ignore[method-assign]
    Core.submit = lambda self, work: work.waiter.answer(None)  # type: ignore[method-assign,union-attr]
    service.run(config)


def run_uvicorn(application: Any, http: Any) -> None:
    """One process of uvicorn, as quick as it is."""
    import uvicorn

    class Ready(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            print(
                f"ready http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}", flush=True
            )

    settings = uvicorn.Config(
        application, port=0, log_level="error", access_log=False, http=http, loop="uvloop"
    )
    Ready(settings).run()


class Process:
    """A server of a kind in a process of its own."""

    def __init__(self, kind: str, name: str, folder: Path, old: Path | None = None) -> None:
        self.kind, self.folder = kind, folder / f"{kind}-{name.replace(' ', '-')}"
        self.folder.mkdir()
        command = [sys.executable, __file__, "--serve", kind, "--case", name]
        command += ["--folder", str(self.folder)]
        env = {**os.environ, "PYTHONPATH": str(old)} if old is not None else None
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("ready "):
            raise SystemExit(f"{kind} did not start: {line!r}")
        self.url = line.split()[1]

    @property
    def seconds(self) -> float:
        """Of the processor, so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS

    def end(self) -> None:
        """Stop it."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        shutil.rmtree(self.folder)


# --- load --------------------------------------------------------------------------------------

ASKING = """
wrk.method = "POST"
wrk.path = "/v1/models/m/decide"
wrk.headers["content-type"] = "{form}"
wrk.body = "{body}"
"""
MIXED = """
local ids, ranks = {{}}, {ranks}
local form = {{["content-type"] = "application/json"}}
local question = "{body}"
request = function()
  local id = table.remove(ids)
  if id == nil then return wrk.format("POST", "/v1/models/m/decide", form, question) end
  return wrk.format("POST", "/v1/models/m/feedback", form, id)
end
response = function(status, headers, body)
  local id = string.match(body, '^{{"id":"([^"]*)"')
  if id == nil then return end
  if ranks then
    local a, b = string.match(body, '"items":%["([^"]*)","([^"]*)"')
    ids[#ids + 1] = '[{{"id":"' .. id .. '","exposed":["' .. a .. '","' .. b
      .. '"],"clicked":["' .. a .. '"]}}]'
  else
    ids[#ids + 1] = '[{{"id":"' .. id .. '","rewards":{{{rewards}}}}}]'
  end
end
"""


class Load(NamedTuple):
    """What came of asking: answers a second, the median in us, processor us of the server each."""

    rate: float
    median: float
    cpu: float


def ask(server: Process, script: Path, connections: int, seconds: int) -> Load:
    """Ask a server with wrk for some seconds."""
    before = server.seconds
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script)]
    told = subprocess.run(
        [*command, server.url], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    used = server.seconds - before
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", told)
    if refused:
        raise SystemExit(f"{server.kind} refused {refused[1]} requests:\n{told}")
    count, rate, middle = (
        re.search(pattern, told)
        for pattern in (r"(\d+) requests in", r"Requests/sec:\s+([\d.]+)", r"50%\s+([\d.]+)(\w+)")
    )
    assert count
    assert rate
    assert middle
    unit = {"us": 1.0, "ms": 1e3, "s": 1e6}[middle[2]]
    return Load(float(rate[1]), float(middle[1]) * unit, used / int(count[1]) * 1e6)


def quoted(data: bytes) -> str:
    """Bytes as a string of Lua."""
    return "".join(f"\\{byte:03d}" for byte in data)


def fdatasync(folder: Path) -> float:
    """The median of a synced append of a record, in us: what the disk alone takes."""
    taken = []
    with (folder / "synced").open("wb", buffering=0) as file:
        for _ in range(COMMITS):
            began = time.perf_counter()
            file.write(b"x" * RECORD)
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return median(taken) * 1e6


def commits(folder: Path) -> tuple[float, float]:
    """Records a second in groups, by the service's store and by a log with a check sum."""
    from zlib import crc32

    from fairwolfe.service.store import Span, SQLiteStore

    store, payload = SQLiteStore(folder / "store"), os.urandom(GROUP * RECORD)
    began = time.perf_counter()
    for i in range(COMMITS):
        store.append(float(i), payload, [Span(0, GROUP * i, GROUP * (i + 1))])
    ours = GROUP * COMMITS / (time.perf_counter() - began)
    store.close()
    began = time.perf_counter()
    with (folder / "log").open("wb", buffering=0) as file:
        for _ in range(COMMITS):
            file.write(payload + crc32(payload).to_bytes(4, "little"))
            os.fdatasync(file.fileno())
    return ours, GROUP * COMMITS / (time.perf_counter() - began)


# --- what is printed ---------------------------------------------------------------------------


def measure(
    name: str, case: Case, turns: int, seconds: int, folder: Path, old: Path | None
) -> float:
    """Print a case; what a decide costs in the process besides deciding, in us."""
    kinds = ["durable", "memory", "mixed", "fastapi", "stored"]
    if case.packed:  # FastAPI and wrk's script of answers speak JSON
        kinds = ["durable", "memory"]
    if old is not None:
        kinds.insert(1, "old")
    asking, mixed = folder / "asking.lua", folder / "mixed.lua"
    asking.write_text(ASKING.format(form=case.form, body=quoted(case.body)))
    rewards = ",".join(f'"r{i}":0.5' for i in range(case.rewards))
    ranks = str(bool(case.items)).lower()
    mixed.write_text(MIXED.format(ranks=ranks, body=quoted(case.body), rewards=rewards))
    servers: list[Process] = []
    seen: dict[tuple[str, int], list[Load]] = {}
    syncs = []
    try:
        for kind in kinds:
            pinned = old if kind in ("old", "fastapi", "stored") else None
            servers.append(Process(kind, name, folder, pinned))
        for _ in range(turns):
            syncs.append(fdatasync(folder))
            for server in servers:
                for connections in (64,) if server.kind == "mixed" else CONNECTIONS:
                    script = mixed if server.kind == "mixed" else asking
                    load = ask(server, script, connections, seconds)
                    seen.setdefault((server.kind, connections), []).append(load)
    finally:
        for server in servers:
            server.end()
    middle = {key: Load(*map(median, zip(*loads, strict=True))) for key, loads in seen.items()}
    sync = median(syncs)
    print(f"\n{name}: a bare fdatasync takes {sync:.0f} us")
    for (kind, connections), load in middle.items():
        print(
            f"  {kind:8} {connections:3} connections: {load.rate:8,.0f} /s, p50 "
            f"{load.median:7,.0f} us, {load.cpu:5.0f} us of the processor each"
        )
    durable = {c: middle["durable", c] for c in CONNECTIONS}
    rows = [
        ("durable : memory at 64, rate", durable[64].rate / middle["memory", 64].rate, ">= 0.35"),
        ("p50 at 1 : a bare fdatasync", durable[1].median / sync, "<= 2.5"),
    ]
    if old is not None:
        before = {c: middle["old", c] for c in CONNECTIONS}
        rows += [
            ("durable : old at 64, rate", durable[64].rate / before[64].rate, ""),
            ("durable : old at 64, processor", durable[64].cpu / before[64].cpu, "<= 0.7"),
            ("durable : old at 1, processor", durable[1].cpu / before[1].cpu, "<= 0.5"),
        ]
    if ("fastapi", 64) in middle:
        peer = {c: middle["fastapi", c] for c in CONNECTIONS}
        most = "<= 0.2" if case.items == 2500 else "<= 0.15"
        rows += [
            ("durable : FastAPI at 64, rate", durable[64].rate / peer[64].rate, ">= 6"),
            ("durable : FastAPI at 16, rate", durable[16].rate / peer[16].rate, ">= 1.7"),
            ("p50 at 1 : FastAPI's", durable[1].median / peer[1].median, ""),
            (
                "p50 at 1 : FastAPI's with the append",
                durable[1].median / middle["stored", 1].median,
                "<= 1.3",
            ),
            ("memory : FastAPI at 64, processor", middle["memory", 64].cpu / peer[64].cpu, most),
            ("mixed : decide at 64, rate", middle["mixed", 64].rate / durable[64].rate, ">= 0.8"),
        ]
    if name == "K=4 d=5":
        rows.append(("durable at 64 : 10,000 a second", durable[64].rate / PUBLISHED, ">= 1"))
    for what, ratio, budget in rows:
        print(f"  {what}: {ratio:.2f} {f'({budget})' if budget else ''}")
    return middle["memory", 64].cpu - deciding(case)


def bare(turns: int, seconds: int, folder: Path, besides: dict[str, float]) -> None:
    """Print what HTTP alone costs. besides: what decides cost in the process besides deciding."""
    case = CASES["K=4 d=5"]
    asking = folder / "asking.lua"
    asking.write_text(ASKING.format(form=case.form, body=quoted(case.body)))
    servers: list[Process] = []
    seen: dict[str, list[float]] = {}
    try:
        for kind in ("bare-server", "bare-protocol", "bare-asgi"):
            servers.append(Process(kind, "K=4 d=5", folder))
        for _ in range(turns):
            for server in servers:
                seen.setdefault(server.kind, []).append(ask(server, asking, 64, seconds).cpu)
    finally:
        for server in servers:
            server.end()
    cpu = {kind: median(values) for kind, values in seen.items()}
    print("\nHTTP alone, processor us a request at 64 connections, a fixed answer:")
    print("  " + ", ".join(f"{kind} {us:.0f}" for kind, us in cpu.items()))
    server = cpu["bare-server"]
    print(f"  server : bare protocol: {server / cpu['bare-protocol']:.2f} (<= 1.35)")
    print(f"  server : bare ASGI: {server / cpu['bare-asgi']:.2f} (<= 0.45)")
    for name, us in besides.items():
        print(
            f"  a decide without store, less deciding : server, {name}: {us / server:.2f} (<= 1.6)"
        )


def deciding(case: Case) -> float:
    """Processor us of a decision in `act_many` of 64 questions, the lowest of some turns."""
    agent = agent_of(case)
    question = json.loads(case._replace(packed=False).body)
    contexts = np.array([question.get("user") or question["arms"]] * 64)
    return min(timed(lambda: agent.act_many(contexts)) for _ in range(30)) / 64


def frame(folder: Path) -> None:
    """Print what a frame of the stream costs with 2,500 items."""
    from fairwolfe.service.config import parse
    from fairwolfe.service.page import frame_of
    from fairwolfe.service.serve import open_service
    from fairwolfe.service.watch import live_of

    case = CASES["2500 items"]
    (folder / "items.json").write_text(json.dumps(case.catalogue))
    service = open_service(parse(case.config("10 min"), str(folder)))
    model = service.core.models["m"]
    agent = model.agent
    assert agent is not None
    for _ in range(20):
        for decision in agent.act_many(np.random.default_rng(0).uniform(-0.2, 0.2, (64, 10))):
            agent.update(decision, exposed=decision.action[:3], clicked=decision.action[:1])

    def make() -> None:
        msgspec.json.encode(frame_of(service.core, model, live_of(model)))

    make()
    took = median(timed(make) for _ in range(50))
    service.core.store.close()
    print(f"\na frame of the stream with 2,500 items: {took / 1e3:.2f} ms of the processor (<= 1)")


def timed(work: Callable[[], Any]) -> float:
    """Processor us."""
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1e6


def anticipation() -> None:
    """Print what a window costs f where open decisions are anticipated."""
    world = fw.environments.FactorModel(20, 30, fw.environments.dcg(5))
    f = fw.objectives.TwoSided(fw.objectives.GiniWelfare(), beta=1.0)
    policy = fw.ranking.FWLinUCBRank(f, exploration=0.1)
    value = {
        delay: median(
            float(
                fw.simulate(
                    policy,
                    world,
                    6000,
                    seed=seed,
                    lateness=fw.simulation.Lateness(delay=delay) if delay else None,
                ).value[-1]
            )
            for seed in range(3)
        )
        for delay in (0, 100, 1000)
    }
    print("\nf at 6,000 decisions, 20 users and 30 items, beside no window:")
    print(f"  window of 100 decisions {value[100] / value[0]:.3f} (>= 0.97)")
    print(f"  window of 1,000 decisions {value[1000] / value[0]:.3f} (>= 0.9)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--no-library", action="store_true")
    parser.add_argument("--against", type=Path, help="the src folder of another commit")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        if asked.serve == "bare-protocol":
            import uvloop

            uvloop.install()
        serve(asked.serve, CASES[asked.case], asked.folder)
        return
    if shutil.which("wrk") is None:
        raise SystemExit("This needs wrk: apt install wrk")
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise SystemExit("This needs FastAPI to compare with: pip install fastapi uvicorn")
    from fairwolfe.lab.bench import about  # older commits have it elsewhere

    print(about())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        besides = {
            case: measure(case, CASES[case], asked.turns, asked.seconds, folder, asked.against)
            for case in ([asked.case] if asked.case else CASES)
        }
        if asked.case:
            return
        bare(asked.turns, asked.seconds, folder, besides)
        pairs = [commits(Path(tempfile.mkdtemp(dir=folder))) for _ in range(asked.turns)]
        ours, plain = (median(side) for side in zip(*pairs, strict=True))
        print(f"\nrecords a second in groups of {GROUP}: SQLite {ours:,.0f}, own log {plain:,.0f}")
        print(f"  SQLite : own log {median(a / b for a, b in pairs):.2f} (>= 0.8)")
        frame(folder)
    anticipation()
    if not asked.no_library:
        for script in ("bench_batch.py", "bench_replay.py"):
            print(f"\n{script}:", flush=True)
            subprocess.run([sys.executable, str(Path(__file__).with_name(script))], check=True)


if __name__ == "__main__":
    main()
