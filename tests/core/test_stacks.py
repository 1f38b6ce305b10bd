"""Contexts that are read together: one array for all, and each of them again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairwolfe.core.arms import ArmsKind
from fairwolfe.core.contexts import PerArm
from fairwolfe.core.problem import Problem
from fairwolfe.core.streams import stream

D, K = 3, 5
REWARDS = {"clicks": (0.0, 1.0)}
KINDS = {
    "shared": ArmsKind(Problem.arms(D, REWARDS)),
    "apart": ArmsKind(Problem.arms(D, REWARDS, n_arms=K)),
}


def contexts_of(name: str, n: int) -> list[Any]:
    rng = stream(0, "stacks")
    if name == "apart":
        return [PerArm(rng.normal(size=D)) for _ in range(n)]
    return [rng.normal(size=(K, D)) for _ in range(n)]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    "few", [[[0, 3], [4, 1], [2, 3]], [[4, 3, 2, 1, 0], None, None], [None, None, None]]
)
def test_as_many_candidates_of_each_context_are_one_array(name: str, few: list[Any]) -> None:
    kind, contexts = KINDS[name], contexts_of(name, len(few))
    options = [{} if arms is None else {"candidates": arms} for arms in few]
    stack = kind.read_many(contexts, options)
    given = stack.given
    n_arms = K if few[0] is None else len(few[0])
    assert (stack.rows, given.n_arms, given.per_arm) == (3, n_arms, name == "apart")
    assert given.features.shape == (3, 1 if given.per_arm else n_arms, D)
    if few[0] is None:
        assert given.places is None
    else:
        assert given.places.tolist() == [sorted(range(K) if a is None else a) for a in few]
        assert given.places.flags.c_contiguous
        chosen = kind.numbered(given, np.array([1, 0, 1]))
        assert chosen.tolist() == given.places[[0, 1, 2], [1, 0, 1]].tolist()
    for i, (context, option) in enumerate(zip(contexts, options, strict=True)):
        one, alone = kind.single(stack, i), kind.read(context, **option)
        assert np.array_equal(one.features, alone.features)
        assert (one.n_arms, one.per_arm) == (alone.n_arms, alone.per_arm)
        if alone.places is not None:
            assert np.array_equal(one.places, alone.places)


@pytest.mark.parametrize("name", KINDS)
def test_other_numbers_of_candidates_are_a_list(name: str) -> None:
    kind = KINDS[name]
    options = [{"candidates": [1, 2]}, {"candidates": [1]}, {}]
    stack = kind.read_many(contexts_of(name, 3), options)
    assert isinstance(stack.given, list)
    assert [kind.single(stack, i).n_arms for i in range(3)] == [2, 1, K]
