"""The contracts and powers on paper are those in use: who has one can be called as it states."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fairwolfe.checks.promise import examples_of
from fairwolfe.core import protocols
from fairwolfe.core.protocols import Reduces, keeps
from fairwolfe.core.registry import load, names
from tests.capabilities import marks_of
from tests.test_docs import rows_of

ROLES = {
    "bandits": "base",
    "environments": "environment",
    "objectives": "objective",
    "oracles": "oracle",
    "policies": "policy",
    "smoothings": "smoothing",
}


def powers_of(role: str) -> list[Any]:
    """The contracts and powers that a role may have, by the table of docs/powers.md."""
    rows = [row for row in rows_of("powers.md") if re.search(rf"\b{role}\b", row[1])]
    found = [getattr(protocols, row[0].strip("`")) for row in rows]
    return [power for power in found if power is not protocols.ScalarPolicy]  # has other roles


@pytest.mark.parametrize(
    ("role", "kind", "name"),
    [
        pytest.param(role, kind, name, marks=marks_of(name))
        for kind, role in ROLES.items()
        for name in names(kind)
    ],
)
def test_who_has_a_power_takes_the_arguments_that_it_states(
    role: str, kind: str, name: str
) -> None:
    for example in examples_of(load(kind, name)):
        subjects = [(role, example)]
        if isinstance(example, Reduces):
            subjects.append(("base", example.base))
        for own, subject in subjects:
            powers = [power for power in powers_of(own) if isinstance(subject, power)]
            assert powers
            assert [power for power in powers if not keeps(subject, power)] == []


class Narrow:
    """It has `commits` and all methods of `Commits`, and they take other arguments."""

    commits = True

    def arrays(self, state: Any) -> Any:
        return state

    def commit(self, state: Any) -> int:
        return 0


def test_other_arguments_are_noticed() -> None:
    subject = Narrow()
    assert isinstance(subject, protocols.Commits)
    assert not keeps(subject, protocols.Commits)
