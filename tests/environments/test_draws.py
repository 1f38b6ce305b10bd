"""Every environment that the compiled loop can play draws many rounds like one."""

from __future__ import annotations

import pytest

from fairwolfe.checks.common import examples_of
from fairwolfe.core.registry import load, names
from fairwolfe.core.streams import stream
from tests.capabilities import marks_of
from tests.environments.draws import draws_many_like_one


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=marks_of(n)) for n in names("environments")]
)
def test_many_rounds_are_drawn_like_one(name: str) -> None:
    for example in examples_of(load("environments", name)):
        compiled = hasattr(example, "reward_program") or hasattr(example, "draw_users")
        assert compiled == (name != "gymnasium")
        if compiled:
            draws_many_like_one(example, stream(0, "checks", "draws_many_like_one"))
