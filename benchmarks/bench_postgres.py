"""The log in a folder (SQLite) beside the log in PostgreSQL: the same service, in one run.

    python benchmarks/bench_postgres.py [--turns 5] [--seconds 2] [--case NAME]

Needs wrk and PostgreSQL, which is started in a temporary folder, with its own defaults for
durability, and reached by TCP on loopback. Both servers run side by side and are asked in turns;
printed are medians of the turns, ratios of these medians, and the processor time of the server a
decision, without that of PostgreSQL.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

import bench_service
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1]))

KINDS, CONNECTIONS = ("sqlite", "postgresql"), (1, 64)
URL = "BENCH_POSTGRES_URL"


def serve(kind: str, case: bench_service.Case, folder: Path) -> None:
    from fairwolfe.service.config import parse
    from fairwolfe.service.serve import run

    if case.items:
        (folder / "items.json").write_text(json.dumps(case.catalogue))
    config = parse(case.config("10 min"), str(folder))
    if kind == "postgresql":
        config = replace(config, state=os.environ[URL])
    run(config)


def measure(name: str, case: bench_service.Case, turns: int, seconds: int) -> None:
    from tests.service.postgres import own_postgres

    loads: dict[tuple[str, int], list[bench_service.Load]] = {}
    syncs = []
    with tempfile.TemporaryDirectory() as temporary, own_postgres() as database:
        folder = Path(temporary)
        script = folder / "ask.lua"
        form, body = case.form, bench_service.quoted(case.body)
        script.write_text(bench_service.ASKING.format(form=form, body=body))
        os.environ[URL] = database.url
        servers = [bench_service.Process(kind, name, folder) for kind in KINDS]
        for _ in range(turns):
            syncs.append(bench_service.fdatasync(folder))
            for connections in CONNECTIONS:
                for server in servers:
                    load = bench_service.ask(server, script, connections, seconds)
                    loads.setdefault((server.kind, connections), []).append(load)
        for server in servers:
            server.end()
    print(f"{name}; a synced append alone takes {median(syncs):.0f} us")
    for connections in CONNECTIONS:
        pair = [loads[kind, connections] for kind in KINDS]
        rates = [median(load.rate for load in one) for one in pair]
        times = [median(load.cpu for load in one) for one in pair]
        for kind, one, rate, cpu in zip(KINDS, pair, rates, times, strict=True):
            middle = median(load.median for load in one)
            what = f"{kind:>10} {connections:>3} connections"
            print(f"  {what} {rate:>9,.0f} a second, p50 {middle:>7,.0f} us, {cpu:.1f} us of cpu")
        ratios = f"rate {rates[1] / rates[0]:.2f}, processor time {times[1] / times[0]:.2f}"
        print(f"  postgresql : sqlite at {connections}: {ratios}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument(
        "--case", choices=bench_service.CASES, default=next(iter(bench_service.CASES))
    )
    parser.add_argument("--serve", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    case = bench_service.CASES[given.case]
    if given.serve:
        serve(given.serve, case, given.folder)
    else:
        vars(bench_service)["__file__"] = __file__  # what its processes run
        measure(given.case, case, given.turns, given.seconds)


if __name__ == "__main__":
    main()
