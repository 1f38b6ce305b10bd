"""P1: every acknowledged feedback is applied exactly once, through kill -9 at random moments."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest

from tests.service.checker import read_log, violations
from tests.service.crowd import Crowd
from tests.service.servers import Server, config, wait_for

WINDOW = 3.0


def played(folder: Path, kills: int, *module: str, clients: int = 4) -> tuple[list[str], str]:
    """What the checker finds after so many kills, and what happened, in words."""
    rng = random.Random(kills)
    server = Server(folder, config(f"{WINDOW:g} s", both=False), *module)
    with server:
        crowd = Crowd(server, clients)
        crowd.start()
        for _ in range(kills):
            time.sleep(rng.uniform(0.1, 0.7))
            server.kill()
            server.start()
        time.sleep(0.5)
        crowd.stop()
        wait_for(lambda: server.get("/v1/models/router")["open"] == 0, 10.0 * WINDOW)
        final = server.get("/v1/models/router")
        server.kill()
    history = crowd.history
    entries = sum(len(event.sent) for event in history if event.kind == "feedback")
    decided = sum(event.kind == "decide" and event.answer is not None for event in history)
    words = (
        f"{kills} kills, {decided} decisions and {entries} entries acknowledged, "
        f"{sum(crowd.attempts) - len(history)} requests sent again"
    )
    return violations(history, read_log(server.state), final), words


@pytest.mark.parametrize(
    "kills", [12, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_nothing_is_lost_or_counted_twice(tmp_path: Path, kills: int) -> None:
    found, words = played(tmp_path, kills)
    print(words)
    assert found == [], words


@pytest.mark.parametrize(
    ("way", "kills", "sentence"),
    [
        # What was lost is not in the log, or its number was given to another question.
        ("early", 3, "is not in the log|not that of its request|and the log says|conflict"),
        ("twice", 0, "counts [2-9] times"),
        ("twice-in-memory", 0, "average .*; the log says"),
    ],
)
def test_the_checker_finds_what_is_broken(
    tmp_path: Path, way: str, kills: int, sentence: str
) -> None:
    found, words = played(tmp_path, kills, "tests.service.broken", way)
    assert any(re.search(sentence, one) for one in found), (found[:5], words)
