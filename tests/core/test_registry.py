"""The registry: lazy, open to plug-ins, closed to replacements."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from fairwolfe.checks import check
from fairwolfe.core import registry
from fairwolfe.core.build import from_text
from fairwolfe.core.registry import KINDS, import_class, load, names, register
from fairwolfe.errors import InvalidInput, MissingExtra
from fairwolfe.objectives import Minimum

POINTS = [
    EntryPoint("third-best", f"{__name__}:ThirdBest", "fairwolfe.objectives"),
    EntryPoint("minimum", f"{__name__}:ThirdBest", "fairwolfe.objectives"),
    EntryPoint("broken", "no_such_package.objectives:Broken", "fairwolfe.objectives"),
    EntryPoint("other-kind", f"{__name__}:ThirdBest", "fairwolfe.smoothings"),
]


class ThirdBest(Minimum):
    """A plug-in."""


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if packages with these entry points were installed."""

    def entry_points(*, group: str) -> list[EntryPoint]:
        return [point for point in POINTS if point.group == group]

    monkeypatch.setattr(registry, "entry_points", entry_points)
    registry._known.cache_clear()
    yield
    registry._known.cache_clear()


def test_names_are_sorted_and_load_gives_their_classes() -> None:
    for kind in KINDS:
        assert names(kind) == sorted(names(kind))
        assert set(KINDS[kind]) <= set(names(kind))
    assert load("objectives", "minimum") is Minimum


@pytest.mark.usefixtures("plugged")
def test_a_plug_in_joins_by_an_entry_point() -> None:
    assert "third-best" in names("objectives")
    assert "third-best" not in names("smoothings")
    assert "other-kind" in names("smoothings")
    assert load("objectives", "third-best") is ThirdBest
    with pytest.raises(InvalidInput, match="did you mean 'third-best'"):
        load("objectives", "thirdbest")


@pytest.mark.usefixtures("plugged")
def test_a_plug_in_cannot_replace_what_is_built_in() -> None:
    assert load("objectives", "minimum") is Minimum


@pytest.mark.usefixtures("plugged")
def test_a_broken_plug_in_hurts_only_who_asks_for_it() -> None:
    assert "broken" in names("objectives")
    load("objectives", "third-best")
    with pytest.raises(InvalidInput, match=r"'no_such_package\.objectives' cannot be imported"):
        load("objectives", "broken")


@pytest.mark.usefixtures("plugged")
def test_a_broken_plug_in_does_not_spoil_the_checks_of_others() -> None:
    assert check(Minimum) > 0
    assert check("fairwolfe.smoothing:Identity") > 0


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(registry, "_REGISTERED", {})
    yield
    registry._known.cache_clear()
    registry.classes.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_a_class_can_be_registered_in_one_process() -> None:
    assert "worst-of-all" not in names("objectives")
    for _ in range(2):  # as a cell of a notebook that is run again
        register("objectives", "worst-of-all", ThirdBest)
    assert load("objectives", "worst-of-all") is ThirdBest
    assert from_text("ThirdBest()") == ThirdBest()


@pytest.mark.usefixtures("fresh")
def test_a_name_that_is_taken_is_not_registered() -> None:
    with pytest.raises(InvalidInput, match=r"'minimum' is .*Minimum already"):
        register("objectives", "minimum", ThirdBest)
    with pytest.raises(InvalidInput, match="there is no kind 'objectivs'"):
        register("objectivs", "third", ThirdBest)
    inner = type("Inner", (Minimum,), {"__module__": __name__})
    with pytest.raises(InvalidInput, match="has no class 'Inner'"):
        register("objectives", "inner", inner)
    assert load("objectives", "minimum") is Minimum


def test_what_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str) -> object:
        raise MissingExtra("install fairwolfe[integrations]")

    monkeypatch.setattr(registry, "import_module", import_module)
    with pytest.raises(MissingExtra, match="integrations"):
        import_class("anything:Else")


def test_only_classes_are_classes() -> None:
    assert import_class("fairwolfe.objectives:Minimum") is Minimum
    with pytest.raises(InvalidInput, match="no class 'default_smoothing'"):
        import_class("fairwolfe.smoothing:default_smoothing")


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    code = """
import sys
from fairwolfe.core import registry
for kind in registry.KINDS:
    registry.names(kind)
heavy = {"scipy", "fairwolfe.objectives", "fairwolfe.smoothing"}
print(sorted(heavy & set(sys.modules)))
registry.load("objectives", "minimum")
print(sorted({"fairwolfe.objectives", "fairwolfe.smoothing"} & set(sys.modules)))
"""
    command = [sys.executable, "-c", code]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == ["[]", "['fairwolfe.objectives']"]
