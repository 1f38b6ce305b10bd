"""``audit = true``: every decision can be made again from the log, and one that was changed is
found.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fairwolfe.cli import commands
from fairwolfe.core.contexts import Bilinear, PerArm
from fairwolfe.core.rows import Rows
from fairwolfe.errors import IncompatibleState
from fairwolfe.service.config import parse
from fairwolfe.service.events import (
    DecisionsMade,
    Event,
    decode,
    encode,
    pack_inputs,
    unpack_inputs,
)
from fairwolfe.service.store import SQLiteStore
from tests.golden.service_log import CONFIG
from tests.golden.service_log import play as play_all
from tests.service.inside import Inside, MemoryStore
from tests.service.logs import ask, copied, rewrite, written
from tests.service.servers import config
from tests.service.test_p02_fold_of_the_log import play


def replayed(folder: Path, code: int = 0) -> dict[str, Any]:
    words = ["log", "replay", str(folder / "state"), "--decisions", "--json"]
    shown = CliRunner().invoke(commands, words)
    assert shown.exit_code == code, shown.output
    return dict(json.loads(shown.stdout))


def test_decisions_of_every_kind_are_made_again(tmp_path: Path) -> None:
    """Arms, per-arm features and rankings, in batches and alone, with candidates and blocked items,
    while items and objectives change.
    """
    text = CONFIG.replace("missing = ", "audit = true\nmissing = ")
    store = SQLiteStore(tmp_path / "state")
    play_all(Inside(text, store))
    store.close()
    shown = replayed(tmp_path)
    assert shown["wrong"] == []
    for row in shown["models"]:
        assert row["remade"] == row["decisions"] > 80


def tamper(folder: Path, change: Any) -> int:
    """Change the first batch of decisions among arms; the row."""
    for seq, payload in ask(folder, "SELECT seq, payload FROM log WHERE seq > 20"):
        for event in decode(payload):
            if isinstance(event, DecisionsMade) and event.model == 0:

                def edit(events: list[Event]) -> list[Event]:
                    for one in events:
                        if isinstance(one, DecisionsMade) and one.model == 0:
                            change(one.made)
                    return events

                rewrite(folder, seq, edit)
                return int(seq)
    raise AssertionError("no decision")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log")
    written(folder, 10)
    return folder


def another_arm(made: Rows) -> None:
    made.head["arm"][0] = (made.head["arm"][0] + 1) % 3


def another_probability(made: Rows) -> None:
    made.head["probability"][0] += 1e-6


@pytest.mark.parametrize(
    ("change", "sentence"),
    [(another_arm, "and is made again as"), (another_probability, "has the probability")],
)
def test_a_decision_that_was_changed_is_found(
    original: Path, tmp_path: Path, change: Any, sentence: str
) -> None:
    folder = copied(original, tmp_path / "copy")
    seq = tamper(folder, change)
    verify = ["log", "verify", str(folder / "state")]
    assert CliRunner().invoke(commands, verify).exit_code == 0  # its check sum was made to fit
    shown = replayed(folder, code=1)
    assert sentence in shown["wrong"][0]
    assert f"in row {seq} " in shown["wrong"][0]
    words = ["log", "replay", str(folder / "state"), "--decisions"]
    assert sentence in CliRunner().invoke(commands, words).output


def other(event: DecisionsMade) -> DecisionsMade:
    """The same under other questions."""
    contexts, options, tolerance = unpack_inputs(event.inputs)
    asked = pack_inputs([-3.0 * one for one in contexts], options, tolerance)
    return event._replace(inputs=asked)


def test_a_question_that_was_changed_is_found(original: Path, tmp_path: Path) -> None:
    folder = copied(original, tmp_path / "copy")

    def edit(events: list[Event]) -> list[Event]:
        return [other(event) if isinstance(event, DecisionsMade) else event for event in events]

    for seq, payload in ask(folder, "SELECT seq, payload FROM log WHERE seq > 20"):
        if any(isinstance(event, DecisionsMade) and event.model == 0 for event in decode(payload)):
            rewrite(folder, seq, edit)
    assert replayed(folder, code=1)["wrong"]


def test_without_it_nothing_is_kept() -> None:
    store = MemoryStore()
    service = Inside(config("9 s"), store)
    play(service, 4)
    assert not service.model("router").audit
    events = [event for row in store.log for event in decode(row.payload)]
    made = [event for event in events if isinstance(event, DecisionsMade)]
    assert made
    assert all(event.inputs == b"" for event in made)
    (again,) = decode(encode([made[0]._replace(inputs=b"x")], 0.0))
    assert isinstance(again, DecisionsMade)
    assert again.inputs == b"x"
    for column, read in zip(made[0].made, again.made, strict=True):
        np.testing.assert_array_equal(column, read)


def test_it_may_change_at_any_start_and_must_be_true_or_false() -> None:
    store = MemoryStore()
    service = Inside(config("9 s"), store)
    play(service, 3)
    text = config("9 s").replace("missing = ", "audit = true\nmissing = ")
    again = Inside(text, store)
    assert again.model("router").audit
    play(again, 3, seed=1)
    with pytest.raises(Exception, match="expected `bool`"):
        parse(text.replace("audit = true", 'audit = "yes"'))


def test_what_was_asked_is_read_as_it_was_written() -> None:
    contexts = [np.eye(2), PerArm(np.ones(3)), Bilinear(np.ones(2), np.zeros((4, 3))), np.ones(3)]
    options: list[dict[str, Any]] = [{}, {"candidates": [1, 2]}, {"pinned": {0: "a", 2: "b"}}]
    options.append({"blocked": ["a"], "candidates": ["b", "c"]})
    back, given, tolerance = unpack_inputs(pack_inputs(contexts, options, 0.01))
    assert given == options
    assert tolerance == 0.01
    assert isinstance(back[1], PerArm)
    assert isinstance(back[2], Bilinear)
    np.testing.assert_array_equal(back[2].items, np.zeros((4, 3)))
    np.testing.assert_array_equal(back[3], contexts[3])
    for bad in (b"", b"x" * 40, pack_inputs([], [], 0.0)[:-1]):
        with pytest.raises(IncompatibleState):
            unpack_inputs(bad)


def test_decisions_that_share_a_direction_are_made_again_as_they_were(tmp_path: Path) -> None:
    """With another tolerance than that of the log they are not, so the log has to say it."""
    text = CONFIG.replace("missing = ", "audit = true\ntolerance = 1.0\nmissing = ")
    store = SQLiteStore(tmp_path / "state")
    play_all(Inside(text, store))
    store.close()
    assert replayed(tmp_path)["wrong"] == []

    def alone(events: list[Event]) -> list[Event]:
        return [
            event._replace(inputs=pack_inputs(*unpack_inputs(event.inputs)._replace(tolerance=0.0)))
            if isinstance(event, DecisionsMade)
            else event
            for event in events
        ]

    for seq, payload in ask(tmp_path, "SELECT seq, payload FROM log"):
        if any(isinstance(event, DecisionsMade) for event in decode(payload)):
            rewrite(tmp_path, seq, alone)
    assert replayed(tmp_path, code=1)["wrong"]
