"""Progress of long work, for somebody at a terminal."""

from __future__ import annotations

import io
import itertools

import pytest

from fairwolfe.objectives import Minimum
from fairwolfe.truth import optimum
from fairwolfe.truth.optimum import Notice
from tests.truth.test_optimum import Unsupported


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("terminal", "quiet"), [(True, ""), (False, ""), (True, "1")])
def test_the_time_left_is_shown_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, quiet: str
) -> None:
    now = [0.0]
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setenv("FAIRWOLFE_QUIET", quiet)
    notice = Notice("looking for the optimum", 10)
    for _ in range(5):
        now[0] += 1.0
        notice.step()
    notice.close()
    shown = stream.getvalue()
    if not terminal or quiet:
        assert shown == ""
        return
    assert "looking for the optimum: 1 of 10" not in shown  # after a second nobody is impatient
    assert "looking for the optimum: 5 of 10 steps, at most 5 s left" in shown
    assert shown.endswith("\r")


def test_the_search_for_an_optimum_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain world was silent for a minute; here every look at the clock takes a second."""
    ticks = itertools.count()
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr("time.monotonic", lambda: float(next(ticks)))
    monkeypatch.setenv("FAIRWOLFE_QUIET", "")
    optimum(Unsupported(5, 4, 3), Minimum(), tolerance=0.2)
    assert "looking for the optimum on 250 contexts: 3 of " in stream.getvalue()
    assert " s left" in stream.getvalue()
