"""P22: the install is hash-locked and has a bill of materials, and nothing asks the network for
anything, at import or at work.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from fairwolfe.client import Client
from tests.service.servers import ROOT, Server, config, wait_for

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
SBOM = run_path(str(ROOT / "requirements" / "sbom.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TEXT = config("1 s")


# --- what is installed -------------------------------------------------------------------------


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_requirement_is_pinned_and_hashed(lock: Path) -> None:
    text = lock.read_text()
    held = SBOM["packages"](text)
    assert len(held) >= (1 if lock.name == "compiler.txt" else 20)
    assert len(re.findall(r"(?m)^\S", text)) == len(held)  # nothing else begins a line
    for package in held:
        assert package.hashes, package.name
        assert re.fullmatch(r"\d[\w.!+]*", package.version), package


@pytest.mark.parametrize(
    "line",
    [
        "numpy>=2 \\",
        "numpy==2.0",
        "-e .",
        "-i somewhere",
        "numpy @ file:///wheel.whl \\",
        "numpy==2.0 \\\n    --hash=md5:00",
        "numpy==2.0 \\\n    # via nobody",
    ],
)
def test_a_lock_that_is_open_is_noticed(line: str) -> None:
    with pytest.raises(ValueError, match="hash"):
        SBOM["packages"](line)


def test_the_makefile_installs_with_hashes_only() -> None:
    commands = [line for line in (ROOT / "Makefile").read_text().splitlines() if "-r req" in line]
    assert len(commands) == len(LOCKS)
    assert all("--require-hashes" in line for line in commands)


# --- the bill of materials ---------------------------------------------------------------------

# Of CycloneDX 1.6: what a document, a component, a hash and a dependency must have, and may be.
SCOPES = {"required", "optional", "excluded"}
KINDS = {"application", "framework", "library", "container", "platform", "operating-system"}


def check_bill(bill: dict[str, Any]) -> None:
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["specVersion"] in ("1.5", "1.6")
    assert re.fullmatch(
        r"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        bill["serialNumber"],
    )
    assert isinstance(bill["version"], int)
    assert bill["version"] >= 1
    root = bill["metadata"]["component"]
    references = [one["bom-ref"] for one in (root, *bill["components"])]
    assert len(set(references)) == len(references)
    for one in (root, *bill["components"]):
        assert one["type"] in KINDS
        assert one["name"]
        assert one["purl"] == f"pkg:pypi/{one['name']}@{one['version']}"
    for one in bill["components"]:
        assert one["scope"] in SCOPES
        assert one["hashes"]
        for digest in one["hashes"]:
            assert digest["alg"] == "SHA-256"
            assert re.fullmatch(r"[0-9a-f]{64}", digest["content"])
        assert all(set(pair) == {"name", "value"} for pair in one.get("properties", []))
    assert {one["ref"] for one in bill["dependencies"]} == set(references)
    for one in bill["dependencies"]:
        assert set(one["dependsOn"]) <= set(references)
        assert len(set(one["dependsOn"])) == len(one["dependsOn"])


def test_the_bill_of_materials_is_that_of_the_lock() -> None:
    command = [sys.executable, str(ROOT / "requirements" / "sbom.py")]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2)]
    texts = [run.stdout for run in runs]
    assert texts[0] == texts[1]
    bill = json.loads(texts[0])
    check_bill(bill)
    pins = set(re.findall(r"(?m)^([\w.-]+)==([\w.]+)", (ROOT / "requirements/dev.txt").read_text()))
    assert {(one["name"], one["version"]) for one in bill["components"]} == pins
    needed = {one["name"] for one in bill["components"] if one["scope"] == "required"}
    assert {"numpy", "scipy", "httptools", "apsw", "msgspec"} <= needed
    assert not {"pytest", "ray", "matplotlib", "numba"} & needed
    root = bill["dependencies"][0]["dependsOn"]
    assert any(ref.startswith("pkg:pypi/msgspec@") for ref in root)


def test_a_bill_that_is_wrong_is_noticed() -> None:
    lock = (ROOT / "requirements" / "dev.txt").read_text()
    spoils: tuple[Callable[[Any], object], ...] = (
        lambda bill: bill.pop("specVersion"),
        lambda bill: bill["components"].append(bill["components"][0]),
        lambda bill: bill["components"][0]["hashes"].clear(),
        lambda bill: bill["dependencies"].pop(),
    )
    for spoil in spoils:
        bill = SBOM["document"](lock, PROJECT)
        check_bill(bill)
        spoil(bill)
        with pytest.raises((AssertionError, KeyError)):
            check_bill(bill)


# --- the network -------------------------------------------------------------------------------


def use(server: Server) -> None:
    """Ask a service for whatever it can do."""
    items = [{"key": name, "features": [0.1 * i, 0.2, 0.0, 0.1]} for i, name in enumerate("abcdef")]
    server.post("/v1/models/front/items", {"items": items})
    with Client(server.url, deadline=30.0) as client:
        for _ in range(3):
            one = client.decide("router", arms=[[0.1, 0.2, 0.0, 0.1, 0.0], [0.0] * 5])
            client.feedback(one, {"clicks": 1, "minutes": 2.0})
            shown = client.decide("front", user=[0.1, 0.2, 0.3, 0.4])
            client.feedback(shown, exposed=(shown.items or [])[:2])
    wait_for(lambda: server.get("/v1/models/front")["open"] == 0)
    for path in ("live", "history", "objective", "constraints", "decisions/none"):
        server.request("GET", f"/v1/models/router/{path}")
    for path in ("items", "exposure", "live"):
        server.get(f"/v1/models/front/{path}")
    body = {"objective": "GeneralizedGini(weights=(1.0, 0.25))"}
    assert server.request("PUT", "/v1/models/router/objective", body, if_match="*").status == 200
    for path in ("/", "/healthz", "/readyz", "/metrics", "/openapi.json", "/v1/admin/backup"):
        server.get(path)
    server.post("/v1/admin/snapshot", None)


def guarded(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.service.offline", "guarded", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, cwd=ROOT, check=False
    )


def test_going_out_is_refused_before_it_happens() -> None:
    done = guarded("outside")
    assert done.stdout.strip() == "4 refused"
    assert done.stderr.count("LEAVES:") == 4


def test_importing_everything_asks_nobody() -> None:
    done = guarded("imports")
    assert done.returncode == 0, done.stderr
    assert "LEAVES" not in done.stderr
    assert int(done.stdout.split()[0]) > 150


def test_a_service_at_work_asks_nobody(tmp_path: Path) -> None:
    with Server(tmp_path, TEXT, "tests.service.offline", "guarded", "serve") as server:
        use(server)
        assert server.stop() == 0
        assert "LEAVES" not in server.errors()
        assert server.complaints() == []


@pytest.mark.needs("network namespaces")
def test_without_a_network_nothing_is_missed(tmp_path: Path) -> None:
    """Also by compiled code, which the interpreter does not see: the kernel counts."""
    command = ["unshare", "--net", sys.executable, "-m", "tests.service.offline", "alone"]
    done = subprocess.run(
        [*command, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=ROOT,
        env=os.environ,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["unsent 0", "unsent 1"]  # the second was on purpose
