"""The layout of rows: what a reader without any code of the library finds in them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.bandits import SquareCB
from fairwolfe.core.decision import Batch
from fairwolfe.core.rows import HEAD, dump, load
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import GiniWelfare, TwoSided
from fairwolfe.ranking import FWLinUCBRank
from tests.service.calls import MARK, counted
from tests.service.inside import Inside
from tests.service.row_bytes import read_log, read_rows
from tests.service.test_p29_turns import many

RNG = np.random.default_rng(3)
ARMS = fw.Problem.arms(3, {"clicks": (0, 1), "saves": (0, 1)}, parameter_norm=1.0)
FAIR = fw.FrankWolfe(GiniWelfare(), SquareCB(gamma0=50.0))


def arms() -> Batch:
    made = fw.Agent(FAIR, ARMS, seed=1).act_many(RNG.uniform(-0.4, 0.4, (5, 4, 3)))
    assert isinstance(made, Batch)
    return made


def rankings() -> Batch:
    policy = FWLinUCBRank(TwoSided(items=GiniWelfare(), beta=0.5))
    problem = fw.Problem.ranking(6, 3, (2, 4))
    agent = fw.Agent(policy, problem, items=RNG.uniform(-0.4, 0.4, (6, 4)))
    made = agent.act_many(RNG.uniform(-0.4, 0.4, (4, 2)))
    assert isinstance(made, Batch)
    return made


def plain() -> Batch:
    agent = fw.Agent(fw.Guarded(FAIR, FAIR, share=0.5), ARMS, seed=2)
    made = agent.act_many(RNG.uniform(-0.4, 0.4, (3, 2, 3)))
    assert isinstance(made, Batch)
    return made


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("kind", [arms, rankings, plain])
def test_every_number_is_where_the_layout_says(kind: Any, signed: bool) -> None:
    made = kind()
    data = made.to_bytes() if signed else dump(made.rows, made.token)
    token, rows = read_rows(data)
    assert token == made.token
    assert len(rows) == len(made)
    for i, row in enumerate(rows):
        assert len(row.tag) == (16 if signed else 0)
        np.testing.assert_array_equal(row.action, made[i].action)
        assert tuple(row.head) == HEAD.names
        for name, number in row.head.items():
            np.testing.assert_array_equal(number, made.rows.head[name][i])
        for name, numbers in row.columns.items():
            np.testing.assert_array_equal(numbers, getattr(made.rows, name)[i].ravel())
    assert {row.tag for row in rows} == set(_tags(made.to_bytes())) or not signed


def _tags(data: bytes) -> list[bytes]:
    tags = load(data)[2]
    return [tags[i : i + 16] for i in range(0, len(tags), 16)]


def test_a_decide_makes_few_python_calls_and_its_row_is_in_the_log(tmp_path: Path) -> None:
    calls = asyncio.run(counted(tmp_path))
    assert calls.total() <= MARK, calls.most_common()
    log = read_log(tmp_path / "state" / "log.sqlite")
    assert all(row.action in (0, 1) for row in log[0].decisions.values())
    assert len(log[0].decisions) > 50


def test_evidence_that_cannot_be_written_fails_its_model_alone() -> None:
    service = Inside(many(2))
    model: Any = service.model("m0")
    model.propose = lambda *_: Batch(fw.Decision("model-0-0", 0, 1, 0.5, object()).batch.rows)
    asks = (service.ask(name, arms=[[0.1] * 5, [0.2] * 5]) for name in ("m0", "m1"))
    refused, answered = service.together(*asks)
    assert isinstance(refused, InvalidInput)
    assert "this cannot be written as bytes" in str(refused)
    assert answered[0].number == 0
    assert service.core.failing == ""
    assert (model.decisions, service.model("m1").decisions) == (0, 1)
