"""P1: every acknowledged feedback is applied exactly once, through kill -9 at random moments,
restores, stalls and full disks; `late` and `unknown` are deserved.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.service.exactly_once import Play
from tests.service.test_p06_full_disk import small_disk

__all__ = ["small_disk"]

DOZEN = ["first", "first", *["kill"] * 3, "startup", "wait", "stall", "kill", "restore", "startup"]
DOZEN += ["wait", "kill"]
MANY = ["first"] * 15 + [*["kill"] * 10, "startup", *["kill"] * 5, "restore", "kill", "stall"] * 10


def played(play: Play, troubles: list[str]) -> None:
    found = play.run(troubles)
    history = play.crowd.history
    decided = sum(event.kind == "decide" and event.answer is not None for event in history)
    entries = sum(len(event.sent) for event in history if event.kind == "feedback")
    again = sum(play.crowd.attempts) - len(history)
    words = (
        f"{play.kills} kills, {decided} decisions and {entries} entries, {again} requests sent "
        f"again, {len(play.lost)} decisions undone by restores, {dict(play.outcomes)}"
    )
    print(words)
    assert found == [], (found[:10], words)
    assert decided > len(troubles)
    if "restore" in troubles:  # reports of decisions that it has undone came
        assert play.outcomes["unknown"] > 0


@pytest.mark.timeout(1200)
def test_nothing_is_lost_or_counted_twice(tmp_path: Path) -> None:
    play = Play(tmp_path)
    played(play, DOZEN)
    assert play.kills >= 10


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nothing_is_lost_or_counted_twice_through_200_kills(tmp_path: Path) -> None:
    play = Play(tmp_path, seed=1)
    played(play, MANY)
    assert play.kills >= 200


@pytest.mark.needs("tmpfs")
@pytest.mark.timeout(1200)
def test_a_disk_that_is_full_for_longer_than_a_window(small_disk: Path) -> None:
    played(Play(small_disk), ["kill", "full", "kill"])


@pytest.mark.parametrize(
    ("way", "troubles", "sentence"),
    [
        # What was lost is unknown, or its number was given to another question.
        ("early", ["kill"] * 3, "acknowledged|unknown|is now|and not"),
        ("twice-in-memory", [], "average .* and not"),
        ("hasty", [], "could have been reported"),
        ("leaky", ["wait"], "minutes.* acknowledged as joined and is lost"),
    ],
)
def test_the_checker_finds_what_is_broken(
    tmp_path: Path, way: str, troubles: list[str], sentence: str
) -> None:
    found = Play(tmp_path, "tests.service.broken", way).run(troubles)
    assert any(re.search(sentence, one) for one in found), found[:5]
