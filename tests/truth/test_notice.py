"""Progress of long work, for somebody at a terminal."""

from __future__ import annotations

import io

import pytest

from fairwolfe.truth.notice import Notice


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
    monkeypatch.setattr("fairwolfe.truth.notice.time.monotonic", lambda: now[0])
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
