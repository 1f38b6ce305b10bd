"""The time left of long work, in a log."""

from __future__ import annotations

import re

import pytest

from fairwolfe.cli import printing


def test_the_time_left_is_by_the_rate_of_the_last_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten minutes of compilation, then 400 of 1,000 parts a minute: 90 seconds are left."""
    now = 0.0
    monkeypatch.setattr("fairwolfe.cli.printing.time.monotonic", lambda: now)
    lines = printing._Lines(1000.0)
    for now, done in ((600.0, 6.0), (660.0, 394.0), (700.0, 100.0)):  # noqa: B007
        lines("fair", done)
    first, second = capsys.readouterr().err.splitlines()
    assert "left" not in first
    assert re.fullmatch(r"fair: 40% of all, about 2 minutes left", second)
