"""What those who run a service see: its lines, its metrics page, its dashboard and its unit."""

from __future__ import annotations

import json
import logging
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fairwolfe.cli import commands
from fairwolfe.service.config import Limits, parse
from fairwolfe.service.keys import new_key
from fairwolfe.service.store import SQLiteStore
from fairwolfe.service.telemetry import JsonFormatter, metrics_text
from tests.service.inside import Inside
from tests.service.logs import AUDITED, written
from tests.service.servers import ROOT, Server, config, wait_for
from tests.service.test_p02_fold_of_the_log import ITEMS, play
from tests.service.test_p22_supply import SBOM

MARKER = 0.77712345
SIGN = "77712345"  # of the marker, wherever it is written


# --- lines -------------------------------------------------------------------------------------


def hostile(server: Server, bearer: dict[str, Any]) -> None:
    """Everything that may make a service say something, with the marker in it."""
    many = [[MARKER, 0.2, 0.0, 0.1, 0.0], [0.0, 0.0, MARKER, 0.0, 0.0]]
    made = server.post("/v1/models/router/decide", {"arms": many}, **bearer)
    large = [[1.0 + MARKER] * 5] * 2  # over the norm that the problem states
    server.request("POST", "/v1/models/router/decide", {"arms": large}, **bearer)
    server.request("POST", "/v1/models/router/decide", {"arms": [[MARKER]]}, **bearer)
    server.request("POST", "/v1/models/router/decide", {"arms": [["0.77712345"] * 5]}, **bearer)
    server.request("POST", "/v1/models/router/decide", {SIGN: MARKER}, **bearer)
    server.request("POST", "/v1/models/router/decide", raw=b'{"arms": [[0.77712345', **bearer)
    out = {"id": made["id"], "rewards": {"clicks": MARKER, "minutes": 1000.0 + MARKER}}
    server.request("POST", "/v1/models/router/feedback", out, **bearer)
    server.request("POST", "/v1/models/front/decide", {"user": [MARKER] * 4}, **bearer)
    server.request("POST", "/v1/models/front/decide", {"user": [1e6 + MARKER] * 4}, **bearer)
    server.request("GET", f"/v1/models/{SIGN}", **bearer)
    bad = {"objective": f"Linear({SIGN})"}
    server.request("PUT", "/v1/models/router/objective", bad, if_match="*", **bearer)


def test_lines_say_what_happened_and_who_did_it_and_nothing_else(tmp_path: Path) -> None:
    key, digest = new_key()
    head = (
        f'state = "state"\nlisten = "127.0.0.1:0"\n[[keys]]\nname = "boss"\nsha256 = "{digest}"\n'
    )
    head += 'scopes = ["decide", "feedback", "read", "admin"]\n'
    bearer: dict[str, Any] = {"authorization": f"Bearer {key}"}
    text = config("1 s", head=head).replace("missing =", 'out_of_range = "learn"\nmissing =')
    with Server(tmp_path, text) as server:
        server.request("GET", "/v1/models", authorization=f"Bearer fw_marker_{SIGN}")
        items = [{"key": name, "features": [*row[:3], MARKER]} for name, row in ITEMS.items()]
        server.post("/v1/models/front/items", {"items": items}, **bearer)
        server.post("/v1/models/front/items", {"items": items}, **bearer)  # as it is: no line
        hostile(server, bearer)
        body = {"objective": "GeneralizedGini(weights=(1.0, 0.77712345))"}
        reply = server.request("PUT", "/v1/models/router/objective", body, if_match="*", **bearer)
        assert reply.status == 200
        assert server.request("DELETE", "/v1/models/front/items/i3", **bearer).status == 200
        wait_for(lambda: server.get("/v1/models/router", **bearer)["open"] == 0)
        server.kill()
        server.start()
        assert server.stop() == 0
        said = server.said()
        text = server.errors()
    assert SIGN not in text
    assert key not in text
    events = [line["event"] for line in said if line["event"] != "said"]  # by other modules
    assert len(events) < len(said)  # of rewards out of their range
    assert events[:2] == ["start", "ready"]
    assert events[-3:] == ["start", "ready", "end"]
    assert all({"time", "level", "message"} <= set(line) for line in said)
    ready = [line for line in said if line["event"] == "ready"]
    assert ready[0]["records"] == 0
    assert ready[1]["records"] > 0
    assert all(line["seconds"] > 0 for line in ready)
    audit = [line for line in said if "who" in line]
    assert [line["event"] for line in audit] == [
        "items_added",
        "objective_replaced",
        "items_retired",
    ]
    assert all(line["who"] == "boss" for line in audit)
    assert [line["version"] for line in audit] == [0, 1, 0]
    assert [line.get("items") for line in audit] == [9, None, 1]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line["time"]) for line in said)


def record(name: str, text: str, error: BaseException | None = None) -> dict[str, Any]:
    info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord(name, logging.ERROR, __file__, 7, text, (), info, "f")
    return dict(json.loads(JsonFormatter().format(made)))


def test_an_exception_is_its_type_and_its_place() -> None:
    def deep() -> None:
        raise ValueError(f"features {MARKER}")

    caught: BaseException | None = None
    try:
        deep()
    except ValueError as error:
        caught = error
    line = record("fairwolfe.service", "a group failed", caught)
    assert line["reason"] == "ValueError"
    assert line["at"][-1].startswith("test_operations.py:")
    assert line["at"][-1].endswith(" deep")
    assert SIGN not in json.dumps(line)
    other = record("fairwolfe", f"features of norm {MARKER} were given", caught)
    assert SIGN not in json.dumps(other)
    assert SIGN in json.dumps(record("fairwolfe.service", f"{MARKER}"))  # the search can find it


def test_a_stopped_model_and_a_lost_snapshot_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(tmp_path / "state")
    service = Inside(AUDITED, store)
    play(service, 5)
    caplog.set_level(logging.INFO, "fairwolfe.service")

    def fail(*_: Any) -> None:
        raise ArithmeticError(f"{MARKER}")

    monkeypatch.setattr(store, "_base", _Full(store._base))
    service.core.snapshot()
    service.core.tick()
    monkeypatch.undo()
    monkeypatch.setattr(service.model("router"), "_close", fail)
    service.advance(60.0)
    store.close()
    said = {line.facts["event"]: line.facts for line in caplog.records}  # type: ignore[attr-defined]
    assert said["snapshot_failed"]["reason"]
    assert said["model_stopped"]["model"] == "router"
    assert said["model_stopped"]["reason"] == "ArithmeticError"
    assert SIGN not in caplog.text


class _Full:
    """A connection to a full disk."""

    def __init__(self, base: Any) -> None:
        self.base = base

    def execute(self, *words: Any) -> Any:
        import apsw

        if str(words[0]).startswith("INSERT"):
            raise apsw.FullError("database or disk is full")
        return self.base.execute(*words)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)


# --- metrics -----------------------------------------------------------------------------------

PAGE = (ROOT / "docs" / "operations.md").read_text()


@pytest.fixture(scope="module")
def shown() -> str:
    """What /metrics says of a service that has done everything once."""
    service = Inside(config("5 s"))
    play(service, 6)
    numbers = service.core.metrics
    numbers.begin("/")
    numbers.end("/", 200, 0.01)
    numbers.begin("/")
    numbers.end("/", 0, 0.01)
    numbers.refuse(429, "busy")
    return metrics_text(service.core, service.core.models.values()).decode()


def test_the_page_explains_every_metric_and_no_other(shown: str) -> None:
    given = set(re.findall(r"(?m)^# HELP (fairwolfe_\w+) ", shown))
    rows = re.findall(r"(?m)^\| `(fairwolfe_\w+)` \|(.*)\|$", PAGE)
    assert len(given) > 25
    assert {name for name, _ in rows} == given
    assert len(rows) == len(given)
    for name, cells in rows:
        assert [bool(cell.strip()) for cell in cells.split(" | ")] == [True] * 3, name


def test_the_dashboard_asks_for_metrics_that_exist(shown: str) -> None:
    board = json.loads((ROOT / "examples" / "service" / "dashboard.json").read_text())
    lines = [line for line in shown.splitlines() if not line.startswith("#")]
    samples = {re.split(r"[ {]", line, maxsplit=1)[0] for line in lines}
    panels = board["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    (models,) = [one for one in board["templating"]["list"] if one["name"] == "model"]
    asked.append(models["query"]["query"])
    named = {name for expression in asked for name in re.findall(r"fairwolfe_\w+", expression)}
    assert len(named) > 15
    assert named <= samples, named - samples
    assert "fairwolfe_nothing" not in samples
    labels = {"model", "status", "reason", "le"}
    for expression in asked:
        used = re.findall(r"by \((\w+)\)|\{(\w+)=", expression)
        assert {one or other for one, other in used} <= labels
    assert len({panel["id"] for panel in panels}) == len(panels)
    corners = [(one["gridPos"]["x"], one["gridPos"]["y"]) for one in panels]
    assert len(set(corners)) == len(corners)


def test_the_alerts_ask_for_metrics_that_exist(shown: str) -> None:
    text = (ROOT / "examples" / "service" / "alerts.yml").read_text()
    rules = text.split("- alert: ")[1:]
    exported = dict(re.findall(r"(?m)^(fairwolfe_\w+)(\{.*\})? ", shown))
    asked = [one.split("expr: ")[1].split("for:")[0].split("labels:")[0] for one in rules]
    for one, expression in zip(rules, asked, strict=True):
        names = re.findall(r"fairwolfe_\w+", expression)
        assert names, one
        assert set(names) <= exported.keys(), set(names) - exported.keys()
        if "$labels.model" in one:
            assert all('model="' in exported[name] for name in names if name[10:] != "open_limit")
    assert len({one.split()[0] for one in rules}) == len(rules) == 6
    watched = {
        "store_failing",
        "stopped",
        "open",
        "log_bytes",
        "snapshot_age_seconds",
        "late_total",
    }
    assert {f"fairwolfe_{name}" for name in watched} <= set(re.findall(r"fairwolfe_\w+", text))


def test_memory_log_and_unread_bytes_are_what_the_system_says(tmp_path: Path) -> None:
    with Server(tmp_path, config("20 s")) as server:
        arms = {"arms": [[0.1] * 5] * 2}
        for _ in range(5):
            server.post("/v1/models/router/decide", arms)
        status = Path(f"/proc/{server.pid}/status").read_text()
        (resident,) = re.findall(r"VmRSS:\s+(\d+) kB", status)
        assert abs(server.metric("resident_bytes") / (1024 * int(resident)) - 1.0) < 0.2
        files = [server.state / name for name in ("log.sqlite", "log.sqlite-wal")]
        assert server.metric("log_bytes") == sum(file.stat().st_size for file in files)
        assert server.metric("log_rows_kept") == server.metric("log_rows") == 6
        large = [{"key": f"i{n}", "features": [0.1] * 4} for n in range(9_000)]
        server.post("/v1/models/front/items", {"items": large})
        assert server.metric("unread_bytes") == 0
        with socket.create_connection(server.url[7:].split(":"), timeout=30) as lazy:  # type: ignore[arg-type]
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            for _ in range(8):
                lazy.sendall(b"GET /v1/models/front/items HTTP/1.1\r\nhost: localhost\r\n\r\n")
            wait_for(lambda: server.metric("unread_bytes") > 100_000)
            assert server.metric("unread_bytes") <= server.metric("arriving_bytes")
        wait_for(lambda: server.metric("unread_bytes") == 0)


# --- the page ----------------------------------------------------------------------------------


def test_the_events_of_the_page_are_those_that_are_said() -> None:
    sources = "".join(p.read_text() for p in (ROOT / "src/fairwolfe/service").rglob("*.py"))
    said = set(re.findall(r'log_event\(\s*"(\w+)"', sources)) | {"failed", "said"}
    section = PAGE[PAGE.index("## What it writes") : PAGE.index("## What it counts")]
    rows = re.findall(r"(?m)^\| (`\w+`(?:, `\w+`)*) \|", section)
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)} - {"event"}
    assert told == said


def test_the_sentences_of_the_page_are_those_of_a_refused_start() -> None:
    """Each is somewhere in the sources, whatever is put in between."""
    sources = ""
    for path in (ROOT / "src" / "fairwolfe").rglob("*.py"):
        sources += re.sub(r'"\s*\n\s*f?"', "", path.read_text())
    section = PAGE[PAGE.index("## When it does not start") : PAGE.index("## What it writes")]
    sentences = re.findall(r"(?m)^\| `([^`]+)` \|", section)
    assert len(sentences) >= 10
    assert [one for one in sentences if one not in sources] == []


@pytest.mark.needs("pyarrow")
def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, 25)
    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"(?m)^(fairwolfe log .*)$", PAGE)
    ran = 0
    for line in lines:
        if "--from" in line or "--follow" in line:  # test_log_command.py, test_follow.py
            continue
        done = CliRunner().invoke(commands, shlex.split(line)[1:])
        assert done.exit_code == 0, done.output
        ran += 1
    assert ran == len(lines) - 2 >= 4
    assert (tmp_path / "backup.sqlite").exists()
    assert (tmp_path / "november" / "front.parquet").exists()


def test_the_configuration_of_the_page_is_one() -> None:
    text, top = re.findall(r"(?ms)^```toml\n(.*?)^```", PAGE)
    given = parse(f'state = "state"\n{top}{text}')
    assert given.models["router"].audit
    assert given.retain == "90 d"


# --- the unit and the image --------------------------------------------------------------------

UNIT = (ROOT / "examples" / "service" / "fairwolfe.service").read_text()


def test_the_unit_is_hardened_and_does_not_restart_a_refusal() -> None:
    settings = dict(line.split("=", 1) for line in UNIT.splitlines() if re.match(r"\w+=", line))
    for name, value in {
        "ProtectSystem": "strict",
        "NoNewPrivileges": "yes",
        "StateDirectory": "fairwolfe",
        "Restart": "on-failure",
        "RestartPreventExitStatus": "2",
        "CapabilityBoundingSet": "",
        "UMask": "0077",
        "MemoryDenyWriteExecute": "yes",  # see tests/service/sealed.py
    }.items():
        assert settings[name] == value
    assert int(settings["LimitNOFILE"]) > Limits().connections


@pytest.mark.needs("systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    path = tmp_path / "fairwolfe.service"
    path.write_text(UNIT.replace("/opt/fairwolfe/bin/fairwolfe", sys.executable))

    def judged() -> str:
        command = ["systemd-analyze", "verify", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        return done.stderr

    assert judged() == ""
    path.write_text(path.read_text().replace("ProtectSystem=strict", "ProtectSytem=strict"))
    assert "ProtectSytem" in judged()


def test_the_image_is_made_from_what_exists() -> None:
    text = (ROOT / "examples" / "service" / "Dockerfile").read_text()
    copied = re.findall(r"(?m)^COPY (?!--from)(\S+) ", text)
    assert copied == ["pyproject.toml", "requirements", "dist/fairwolfe-*.whl"]
    assert all((ROOT / name).exists() for name in copied if "*" not in name)
    assert "--require-hashes" in text
    made = subprocess.run(
        [sys.executable, str(ROOT / "requirements" / "sbom.py"), "--lock"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    held = {package.name for package in SBOM["packages"](made)}
    assert {"numpy", "httptools", "apsw"} <= held
    assert not {"pytest", "matplotlib", "ray", "numba"} & held
