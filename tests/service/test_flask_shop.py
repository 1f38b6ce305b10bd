"""The Flask application of docs/shop.md in front of a real server: what the page prints, an order
that comes back after its first window, reports that are lost, repeated and late, a service that is
killed, stopped or away, and wrong dictionaries.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.service.servers import ROOT, Server, wait_for
from tests.service.shop import free_port
from tests.service.test_docs_serving import ADDRESS, blocks

pytestmark = pytest.mark.needs("flask")

FILE = ROOT / "examples" / "service" / "flask_shop.py"
CONFIG = next(block.text for block in blocks("shop.md") if block.language == "toml")
OFFERS = "/v1/models/offers"


def config(first: str, second: str, more: str = "", port: int = 0) -> str:
    """The configuration of the page with other windows."""
    text = CONFIG.replace('"1 d"', f'"{first}"').replace('"15 d"', f'"{second}"')
    text = text.replace("127.0.0.1:8710", f"127.0.0.1:{port}")
    assert (first in text, second in text) == (True, True)
    return text.replace("[models.offers]", f"[models.offers]\n{more}")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Starts the application in front of an address."""
    clients: list[Any] = []

    def start(url: str) -> ModuleType:
        monkeypatch.setenv("FAIRWOLFE", url)
        spec = spec_from_file_location("flask_shop", FILE)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "flask_shop", module)
        spec.loader.exec_module(module)
        clients.extend([module.quick, module.patient])
        return module

    yield start
    for client in clients:
        client.close()


def ask(shop: Any, path: str, body: Any = None) -> tuple[int, Any]:
    reply = shop.post(path, json=body) if body is not None else shop.post(path)
    return reply.status_code, reply.json


def patiently(module: ModuleType) -> Any:
    """A browser, for which a page waits as long as a report does: this machine may be busy."""
    module.__dict__["quick"] = module.patient
    return module.app.test_client()


def test_it_is_short_and_the_page_shows_it() -> None:
    assert len(FILE.read_text().splitlines()) <= 40
    shown = f"```{{literalinclude}} ../{FILE.relative_to(ROOT)}\n"
    assert shown in (ROOT / "docs" / "shop.md").read_text()


def test_the_page_prints_what_it_says(opened: Callable[[str], ModuleType], tmp_path: Path) -> None:
    found = blocks("shop.md")
    space: dict[str, Any] = {}
    checked = 0
    with Server(tmp_path, CONFIG.replace("127.0.0.1:8710", "127.0.0.1:0")) as server:
        patiently(opened(server.url))
        for block, after in zip(found, [*found[1:], None], strict=True):
            if block.language == "py":
                output = io.StringIO()
                with redirect_stdout(output):
                    exec(block.text.replace(ADDRESS, server.url), space)
                assert after is not None
                assert output.getvalue() == after.text
                checked += 1
        assert checked == 2
        assert server.stop() == 0


def test_an_order_that_comes_back_two_weeks_later(
    opened: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    # What is complete is learnt on arrival: only the first window is waited for.
    with Server(tmp_path, config("4 s", "400 d", 'apply = "arrival"')) as server:
        shop = patiently(opened(server.url))
        shown = ask(shop, "/offer", {"member": True})[1]
        one, other = shown["decision"], ask(shop, "/offer", {})[1]["decision"]
        assert ask(shop, f"/click/{one}") == (200, {"outcome": "joined"})
        assert ask(shop, f"/order/{one}", {"margin": 12.5}) == (200, {"outcome": "joined"})
        wait_for(lambda: server.get(OFFERS)["stages"][0]["open"] == 0)
        before = server.get(OFFERS)
        assert [stage["t"] for stage in before["stages"]] == [2, 0]
        average = {"clicks": 0.5, "ordered": 0.5, "margin": 6.25, "returned": 0.0}
        assert before["average"] == average
        (rate,) = server.get(f"{OFFERS}/constraints")["constraints"]
        assert rate["sentence"] == "returned per ordered: no ordered yet, to be at most 0.08."

        assert ask(shop, f"/click/{other}") == (200, {"outcome": "late"})
        assert ask(shop, f"/return/{one}") == (200, {"outcome": "joined"})
        assert ask(shop, f"/return/{one}") == (200, {"outcome": "known"})
        wait_for(lambda: server.get(OFFERS)["stages"][1]["t"] == 1)
        after = server.get(OFFERS)
        assert after["average"] == {**average, "returned": 1.0}
        assert [stage["open"] for stage in after["stages"]] == [0, 1]
        (rate,) = server.get(f"{OFFERS}/constraints")["constraints"]
        assert rate["sentence"].startswith("returned per ordered: 2 of at most 0.08 (missed by")


def test_reports_that_are_lost_repeated_and_late_over_a_kill(
    opened: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    told: Counter[str] = Counter()
    earned = {"clicks": 0.0, "ordered": 0.0, "margin": 0.0, "returned": 0.0}
    port, visits = free_port(), 30
    with Server(tmp_path, config("6 s", "8 s", port=port)) as server:
        shop = patiently(opened(server.url))
        reports: list[tuple[str, str, Any]] = []
        for visit in range(visits):
            if visit == visits // 2:
                server.kill()
                server.start()
            _, shown = ask(shop, "/offer", {"member": bool(rng.random() < 0.4)})
            assert shown["decision"] is not None
            if rng.random() < 0.5:
                reports.append(("click", shown["decision"], None))
                earned["clicks"] += 1
                if rng.random() < 0.5:
                    reports.append(("order", shown["decision"], {"margin": 3.0}))
                    earned["ordered"] += 1
                    earned["margin"] += 3.0
                    if rng.random() < 0.5:
                        reports.append(("return", shown["decision"], None))
                        earned["returned"] += 1
        repeated = [report for report in reports if rng.random() < 0.3]
        for event, decision, body in reports + repeated:
            status, answer = ask(shop, f"/{event}/{decision}", body)
            assert status == 200
            told[answer["outcome"]] += 1
        assert told == {"joined": len(reports), "known": len(repeated)}
        assert len(repeated) > 3
        wait_for(lambda: server.get(OFFERS)["open"] == 0, 120.0)
        known = server.get(OFFERS)
        assert known["decisions"] == visits
        assert all(stage["joined"] + stage["expired"] == visits for stage in known["stages"])
        for name, total in earned.items():
            assert known["average"][name] == pytest.approx(total / visits, rel=1e-12), name
        event, decision, body = reports[0]
        assert ask(shop, f"/{event}/{decision}", body) == (200, {"outcome": "late"})
        assert server.stop() == 0


def test_a_service_that_is_stopped_or_away_costs_the_shop_an_offer(
    opened: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    default = (200, {"offer": "tea", "decision": None})
    with Server(tmp_path, config("1 d", "15 d", port=free_port())) as server:
        module = opened(server.url)
        quick, patient, shop = module.quick, module.patient, patiently(module)
        decision = ask(shop, "/offer", {"member": True})[1]["decision"]
        module.__dict__["quick"] = quick
        os.kill(server.pid, signal.SIGSTOP)
        try:
            assert ask(shop, "/offer", {"member": True}) == default
        finally:
            os.kill(server.pid, signal.SIGCONT)
        server.kill()
        assert ask(shop, "/offer", {"member": True}) == default
        module.__dict__["patient"] = quick
        gone = (503, {"error": "not stored, send it again"})
        assert ask(shop, f"/click/{decision}") == gone
        server.start()
        module.__dict__["patient"] = patient
        assert ask(shop, f"/click/{decision}") == (200, {"outcome": "joined"})
        assert ask(shop, "/click/5b0c2e9f41d7a863-0-9c1e07d2ab54-0")[1] == {"outcome": "unknown"}


WRONG: list[tuple[str, Any, str]] = [
    ("offer", {"member": 3}, "context: feature 'member' is 3, a number without a range"),
    ("offer", {"membr": True}, "there is no feature 'membr'"),
    ("offer", ["member"], "the context is ['member']; give a dictionary"),
    ("order", {"margin": "12"}, "a reward is a text; give a number"),
    ("order", {"margin": 99}, "the reward 'margin' is 99, outside its range of 0 to 30"),
    ("order", {"magin": 9}, "there is no reward 'magin'; did you mean 'margin'"),
]


def test_what_is_wrong_is_answered_400_with_the_sentence_of_the_service(
    opened: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(tmp_path, config("1 d", "15 d")) as server:
        module = opened(server.url)
        shop = patiently(module)
        decision = ask(shop, "/offer", {"member": True})[1]["decision"]
        for route, body, sentence in WRONG:
            path = "/offer" if route == "offer" else f"/{route}/{decision}"
            status, answer = ask(shop, path, body)
            assert (status, sentence in answer["error"]) == (400, True), (route, body, answer)
        priced = {**module.OFFERS, "tea": {"category": "food", "price": "9"}}
        monkeypatch.setitem(module.__dict__, "OFFERS", priced)
        status, answer = ask(shop, "/offer", {"member": True})
        assert status == 400
        assert answer["error"].startswith("arms.tea: feature 'price' is '9', a text")
        known = server.get(OFFERS)
        assert (known["decisions"], known["open"]) == (1, 1)
        assert server.get(f"{OFFERS}/decisions/{decision}")["rewards"] == {}
