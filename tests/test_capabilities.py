from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

ASKS_FOR_DATA = """
    import pytest

    @pytest.mark.needs("lastfm data")
    def test_reads_the_data():
        pass

    def test_needs_nothing():
        pass
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A small suite of its own, on a machine without the data."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("FAIRWOLFE_DATA", str(pytester.path / "nowhere"))
    monkeypatch.delenv("FAIRWOLFE_REQUIRE", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makepyfile(ASKS_FOR_DATA)
    return pytester


def launch(run: pytest.Pytester, *args: str) -> pytest.RunResult:
    return run.runpytest_subprocess("-p", "tests.capabilities", "-rs", *args)


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["here", "in a worker"])
def test_missing_is_skipped_with_a_sentence(run: pytest.Pytester, workers: tuple[str, ...]) -> None:
    result = launch(run, *workers)
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "*found*passed*failed*skipped*",
            "lastfm data * no * 0 * 0 * 1 * Set FAIRWOLFE_DATA to the folder*",
            "SKIPPED*lastfm data is missing. Set FAIRWOLFE_DATA*",
        ],
        consecutive=False,
    )


@pytest.mark.parametrize("names", ["all", "cvxpy, lastfm data"])
def test_required_is_a_failure(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    monkeypatch.setenv("FAIRWOLFE_REQUIRE", names)
    result = launch(run)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["lastfm data * no * 0 * 1 * 0 *"])


OPTIONAL = """
    import pytest
    from tests import capabilities

    never = capabilities.Capability(lambda: False, "Wait.", optional=True)
    capabilities.CAPABILITIES["python 3.13"] = never

    @pytest.mark.needs("python 3.13")
    def test_it():
        pass
"""


def test_what_is_optional_is_required_by_its_name_only(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in run.path.glob("test_*.py"):
        path.unlink()
    run.makepyfile(OPTIONAL)
    monkeypatch.setenv("FAIRWOLFE_REQUIRE", "all")
    result = launch(run)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["python 3.13 * no * 0 * 0 * 1 * Wait. (optional)"])
    result.stdout.fnmatch_lines(["cvxpy * - * 0 * 0 * 0"])  # not asked for, and not looked for
    monkeypatch.setenv("FAIRWOLFE_REQUIRE", "all, python 3.13")
    launch(run).assert_outcomes(errors=1)


def test_present_runs(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    (run.path / "lastfm").mkdir()
    monkeypatch.setenv("FAIRWOLFE_DATA", str(run.path))
    monkeypatch.setenv("FAIRWOLFE_REQUIRE", "all")
    result = launch(run)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["lastfm data * yes * 1 * 0 * 0"])


def test_unknown_names_are_refused(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    run.makepyfile("import pytest\n@pytest.mark.needs('sun')\ndef test_it(): pass")
    launch(run).stdout.fnmatch_lines(["no capability 'sun'; known are*"])
    monkeypatch.setenv("FAIRWOLFE_REQUIRE", "moon")
    launch(run).stderr.fnmatch_lines(["*FAIRWOLFE_REQUIRE names*moon*"])
