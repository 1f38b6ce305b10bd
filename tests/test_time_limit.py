"""A test that hangs fails, with the stacks of all threads, and the others keep their results."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

HANGING = """
    import ctypes
    import pytest

    def test_never_comes_back():
        ctypes.CDLL(None).pause()  # compiled code, which no signal of Python's ends

    @pytest.mark.parametrize("i", range(4))
    def test_goes_well(i):
        pass
"""


def settings() -> dict[str, object]:
    text = (ROOT / "pyproject.toml").read_text()
    found: dict[str, object] = tomllib.loads(text)["tool"]["pytest"]["ini_options"]
    return found


@pytest.mark.skipif(os.name == "nt", reason="there is no pause() there")
def test_a_hanging_test_fails_and_says_where(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makepyfile(HANGING)
    options = (
        f"timeout_method={settings()['timeout_method']}",
        "timeout=6",
        "faulthandler_timeout=3",
    )
    given = [word for option in options for word in ("-o", option)]
    result = pytester.runpytest_subprocess("-n", "2", *given, timeout=120)
    result.assert_outcomes(passed=4, failed=1)
    shown = result.stdout.str() + result.stderr.str()
    assert "crashed while running" in shown
    assert "in test_never_comes_back" in shown  # a line of the stack


def test_every_test_has_a_limit() -> None:
    limit, told = settings()["timeout"], settings()["faulthandler_timeout"]
    assert isinstance(limit, int)
    assert isinstance(told, int)
    assert 0 < told < limit <= 300
