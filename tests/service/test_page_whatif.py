"""What another f would give: the world of the question is what was learnt, its optimum is right,
and whatever is asked, the service goes on.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import fairwolfe as fw
from fairwolfe.agent import Agent
from fairwolfe.core.build import from_text
from fairwolfe.core.contexts import Bilinear, PerArm
from fairwolfe.environments import FactorModel, dcg
from fairwolfe.objectives import AtLeast, Concave, GiniWelfare, Linear, Minimum, TwoSided
from fairwolfe.objectives.two_sided import beta_of, with_beta
from fairwolfe.ranking import FWLinUCBRank
from fairwolfe.service.watch import Recent
from fairwolfe.service.whatif import WhatIf, WhatIfRunner, estimated_world, evaluate
from fairwolfe.service.wire import Refused
from fairwolfe.truth import optimum
from tests.service import shop
from tests.service.servers import Server, wait_for
from tests.service.test_page_watch import play, stocked

WHAT_IF = f"{shop.SHOP}/what-if"


# --- beta --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "objective",
    [
        TwoSided(GiniWelfare(), beta=0.5),
        TwoSided(GiniWelfare(), beta=0.5) + AtLeast(0.25).on("clicks"),
        2.0 * TwoSided(Minimum(), beta=0.5),
        2.0 * (AtLeast(0.25).on("clicks") + TwoSided(Minimum(), beta=0.5)),
    ],
    ids=repr,
)
def test_beta_is_found_and_replaced_wherever_it_stands(objective: Concave) -> None:
    changed = with_beta(objective, 3.0)
    assert (beta_of(objective), beta_of(changed)) == (0.5, 3.0)
    assert repr(changed) == repr(objective).replace("beta=0.5", "beta=3.0")
    assert from_text(repr(changed)) == changed
    assert with_beta(objective, 0.5) == objective


def test_some_objectives_have_none() -> None:
    assert beta_of(Minimum() + Linear([1.0, 2.0])) is None


# --- the world of today's estimates ------------------------------------------------------------


def test_with_the_true_parameters_it_is_the_true_world() -> None:
    rng = np.random.default_rng(3)
    users, items = rng.uniform(0.1, 0.5, (12, 3)), rng.uniform(0.1, 0.6, (8, 3))
    truth = FactorModel(users, items, dcg(3))
    objective = TwoSided(GiniWelfare(), beta=0.7)
    policy = FWLinUCBRank(objective=objective, exploration=0.1)
    agent = Agent(policy, truth.problem(), 0, items)
    with agent.held() as running:
        base = running.base_state
    base.oracle.theta[0] = np.eye(3).ravel()
    base.slots[:] = 1e6 * np.array([np.ones(3), dcg(3)])
    (answer,) = evaluate(agent, list(users), [repr(objective)])
    best = optimum(truth, objective)
    assert answer["value"] == pytest.approx(best.value, abs=2e-3)
    assert answer["average"]["clicks"] == pytest.approx(best.average[-1], abs=2e-2)
    assert answer["message"] is None
    base.oracle.theta[0] *= 0.5  # a broken estimate is seen in the answer
    (other,) = evaluate(agent, list(users), [repr(objective)])
    assert other["average"]["clicks"] < 0.7 * answer["average"]["clicks"]


@pytest.mark.parametrize("kind", ["plain", "per-arm", "extended"])
def test_arms_are_a_linear_programme(kind: str) -> None:
    """max f over mixtures, f = clicks + min(clicks, minutes)/2, against scipy's own solver."""
    rng = np.random.default_rng(5)
    n, k, d = 9, 3, 2
    theta = rng.uniform(0.0, 0.9, (k if kind == "per-arm" else 1, 2, d))
    ranges = {"clicks": (0.0, 1.0), "minutes": (0.0, 1.0)}
    if kind != "per-arm":
        problem = fw.Problem.arms(d, ranges)
        contexts: list[Any] = list(rng.uniform(0.0, 0.7, (n, k, d)))
        contexts[0] = contexts[0][:2]  # of fewer arms
        means = [context @ theta[0].T for context in contexts]
    else:
        problem = fw.Problem.arms(d, ranges, n_arms=k)
        contexts = [PerArm(x) for x in rng.uniform(0.0, 0.7, (n, d))]
        means = [theta @ context.features for context in contexts]
    objective = Linear([1.0, 0.0]) + 0.5 * Minimum()
    base = fw.bandits.LinUCB(model="extended" if kind == "extended" else "shared")
    agent = Agent(fw.FrankWolfe(objective, base), problem, 0)
    with agent.held() as running:
        learnt = running.learnt().oracle.theta
    learnt[:] = theta.reshape(learnt.shape)
    (answer,) = evaluate(agent, contexts, [repr(objective)])
    # Variables: the chance of each arm of each context, then the minimum.
    sizes = [len(table) for table in means]
    flat = np.clip(np.concatenate(means), 0.0, 1.0) / n
    cost = -np.concatenate([flat[:, 0], [0.5]])
    less = np.concatenate([-flat.T, np.ones((2, 1))], axis=1)
    equal = np.zeros((n, len(flat) + 1))
    for i, start in enumerate(np.cumsum([0, *sizes[:-1]])):
        equal[i, start : start + sizes[i]] = 1.0
    solved = linprog(cost, less, np.zeros(2), equal, np.ones(n), bounds=(0.0, None))
    assert answer["value"] == pytest.approx(-float(solved.fun or 0.0), abs=1e-3)


def test_constraints_that_cannot_be_kept_are_said() -> None:
    service = stocked()
    play(service, 30)
    agent = service.model("front").agent
    assert agent is not None
    contexts = service.core.recent["front"].contexts()
    impossible = TwoSided(GiniWelfare(), beta=0.5) + AtLeast(2.9).on("clicks")
    first, second = evaluate(agent, contexts, [repr(impossible), repr(TwoSided(GiniWelfare()))])
    assert "no policy keeps the hard constraints" in first["message"]
    assert second["message"] is None
    assert second["value"] > 0.0


class Somebodys:
    """A policy with what it must have, and no more."""

    def init(self, problem: fw.Problem) -> None:
        pass

    def act(self, state: None, context: Any, rng: Any) -> fw.Decision:
        return fw.Decision("", 0, 0, None, None)

    def update(self, state: None, decision: fw.Decision, feedback: Any) -> None:
        pass


def test_a_policy_without_estimates_says_so() -> None:
    agent = Agent(Somebodys(), fw.Problem.arms(2, {"clicks": (0.0, 1.0)}))
    with pytest.raises(fw.errors.InvalidInput, match="no estimate"):
        estimated_world(agent, [np.ones((2, 2))])


def test_contexts_are_kept_in_bounded_memory() -> None:
    recent = Recent(most=5, size=1000)
    recent.extend([np.full(2, float(i)) for i in range(9)])
    assert [one[0] for one in recent.contexts()] == [4.0, 5.0, 6.0, 7.0, 8.0]
    recent.extend([Bilinear(np.zeros(20), np.zeros((4, 20)))])  # 800 bytes
    assert len(recent.contexts()) == 5
    recent.extend([PerArm(np.zeros(60)), np.zeros((3, 20))])
    assert len(recent.contexts()) == 2
    recent.extend([np.zeros(1000)])  # too large by itself
    assert recent.contexts() == []


# --- the process -------------------------------------------------------------------------------


async def asked(service: Any, body: WhatIf, asker: WhatIfRunner) -> dict[str, Any]:
    model = service.model("front")
    question = await asker.start(model, service.core.recent["front"].contexts(), body)
    while question.state == "running":
        await asyncio.sleep(0.05)
    return question.view()


def test_what_takes_too_long_is_ended() -> None:
    service = stocked()
    play(service, 20)
    told = asyncio.run(asked(service, WhatIf(), WhatIfRunner(seconds=0.05)))
    assert told["state"] == "failed"
    assert "took more than 0.05 s" in told["message"]


def test_a_process_that_dies_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    service = stocked()
    play(service, 20)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    told = asyncio.run(asked(service, WhatIf(), WhatIfRunner()))
    assert told["state"] == "failed"
    assert "ended too early" in told["message"]
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    told = asyncio.run(asked(service, WhatIf(), WhatIfRunner()))
    assert "failed: " in told["message"]


def test_nothing_is_asked_before_anything_was_seen() -> None:
    service = stocked()

    async def early() -> None:
        with pytest.raises(Refused, match="has learnt from 0 decisions") as caught:
            await WhatIfRunner().start(service.model("front"), [], WhatIf())
        assert caught.value.status == 409

    asyncio.run(early())


# --- over HTTP ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("what-if"), shop.config()) as one:
        shop.filled(one, rounds=3)
        yield one
        assert one.complaints() == []


def finished(server: Server, body: Any, path: str = WHAT_IF) -> dict[str, Any]:
    reply = server.request("POST", path, body)
    assert reply.status == 202, reply
    place = reply.headers["location"]
    assert place == f"{path}/{reply.body['id']}"
    wait_for(lambda: server.get(place)["state"] != "running", 120.0)
    told: dict[str, Any] = server.get(place)
    return told


def test_more_beta_is_more_equality_and_fewer_clicks(server: Server) -> None:
    told = finished(server, {"beta": [0.0, 2.0]})
    assert (told["state"], told["message"]) == ("done", None)
    points = told["points"]
    assert [point["beta"] for point in points] == [0.0, 0.5, 2.0]  # the current one is there too
    clicks = [point["average"]["clicks"] for point in points]
    ginis = [point["gini"] for point in points]
    assert clicks[0] >= clicks[1] - 1e-3 >= clicks[2] - 2e-3
    assert ginis[0] > ginis[1] > ginis[2] - 1e-9
    assert told["note"] == "by today's estimates, not guaranteed"
    assert told["contexts"] == 300
    assert points[1]["objective"] == server.get(shop.SHOP)["objective"]
    assert server.get(shop.SHOP)["version"] == 0  # nothing was changed


def test_eight_questions_find_the_beta_of_an_owner(server: Server) -> None:
    told = finished(server, {})
    path, wanted = f"{WHAT_IF}/{told['id']}/questions", 0.3
    assert told["questions"]
    given: list[str] = []
    while not (asked := server.post(path, {"answers": given}))["done"]:
        a, b = asked["question"]["a"], asked["question"]["b"]
        assert asked["question"]["number"] == len(given) + 1
        better = a["utility"] - b["utility"] + wanted * (a["item_objective"] - b["item_objective"])
        given.append("a" if better > 0.0 else "b")
    assert len(given) == 8
    assert asked["low"] < wanted < asked["high"]
    assert asked["high"] - asked["low"] < 0.3
    assert "contradict" not in " ".join(asked["sentences"])
    wrong = ["b" if one == "a" else "a" for one in given[:4]] + given[4:]
    assert server.post(path, {"answers": wrong})["beta"] != asked["beta"]
    for bad in (["c"], ["a"] * 33, "a", [1]):
        assert server.request("POST", path, {"answers": bad}).status == 422
    one = finished(server, {"objectives": [shop.FAIR]})
    reply = server.request("POST", f"{WHAT_IF}/{one['id']}/questions", {"answers": []})
    assert (reply.status, reply.body["error"]) == (409, "no_questions")


def test_the_curve_of_questions_is_a_frontier() -> None:
    """Each corner is the best of all points of the curve for its beta."""
    service = stocked()
    play(service, 60)
    agent = service.model("front").agent
    assert agent is not None
    texts = [repr(TwoSided(GiniWelfare(), beta=beta)) for beta in (0.0, 0.05, 0.1, 0.2, 0.4, 5.0)]
    *points, last = evaluate(agent, service.core.recent["front"].contexts(), texts)
    curve = np.array(last["curve"])
    assert (np.diff(curve[:, 0]) < 0.0).all()
    assert (np.diff(curve[:, 1]) > 0.0).all()
    slopes = -np.diff(curve[:, 0]) / np.diff(curve[:, 1])
    assert (np.diff(slopes[::12]) > -1e-9).all()
    for point in points:
        value = (curve[:, 0] + point["beta"] * curve[:, 1]).max()
        assert value == pytest.approx(point["value"], rel=3e-3)


def test_arms_are_asked_by_objectives(server: Server) -> None:
    texts = ["GeneralizedGini(weights=(1.0, 0.5))", "Linear(weights=(1.0, 0.0))"]
    told = finished(server, {"objectives": texts}, f"{shop.ROUTER}/what-if")
    first, second = told["points"]
    assert second["average"]["clicks"] >= first["average"]["clicks"] - 1e-3
    assert second["value"] == pytest.approx(second["average"]["clicks"])
    assert "gini" not in first


def test_the_process_is_nice_and_one_at_a_time(server: Server) -> None:
    reply = server.request("POST", WHAT_IF, {})
    assert reply.status == 202
    second = server.request("POST", WHAT_IF, {})
    assert (second.status, second.body["error"]) == (429, "busy")
    assert "retry-after" in second.headers
    nice: list[int] = []

    def done() -> bool:
        with suppress(ProcessLookupError):
            nice.extend(os.getpriority(os.PRIO_PROCESS, pid) for pid in children(server.pid))
        return bool(server.get(reply.headers["location"])["state"] != "running")

    wait_for(done, 120.0)
    assert max(nice) == os.getpriority(os.PRIO_PROCESS, server.pid) + 10
    assert server.get(reply.headers["location"])["state"] == "done"
    wait_for(lambda: children(server.pid) == [])


def children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, parent = re.match(r"(\d+) \(.*\) \w (\d+)", path.read_text()).groups()  # type: ignore[union-attr]
        except (OSError, AttributeError):
            continue
        if int(parent) == pid:
            found.append(int(number))
    return found


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"beta": ["two"]}, "Expected `float`, got `str`"),
        ({"beta": [None]}, "Expected `float`"),
        ({"beta": [-1.0]}, ">= 0"),
        ({"beta": [1.0] * 26}, "length <= 25"),
        ({"betas": [1.0]}, "unknown field"),
        ({"objectives": [""]}, "is empty"),
        ({"objectives": ["Minimum("]}, "'(' was never closed at character 8"),
        ({"objectives": ["TwoSided(items=GiniWelfare(), beta=-1.0)"]}, "beta is -1.0"),
        ({"objectives": ["Linear(weights=(1.0, 2.0))"]}, "2"),
        ({"objectives": ["LinUCB()"]}, "'LinUCB' at character 1 is none of the objectives"),
        ({"objectives": ["__import__('os').system('true')"]}, "is not allowed"),
        ({"objectives": [f"Sum(terms=({'Minimum(), ' * 300}))"]}, "301 parts; give at most 64"),
    ],
)
def test_a_wrong_question_is_refused(server: Server, body: Any, words: str) -> None:
    before = server.get(shop.SHOP)["version"]
    reply = server.request("POST", WHAT_IF, body)
    assert reply.status == 422, reply
    assert words in reply.body["message"]
    assert server.get(shop.SHOP)["version"] == before


@pytest.mark.parametrize("terms", [2_000, 20_000])
def test_a_long_objective_keeps_nobody_waiting(server: Server, terms: int) -> None:
    """With 20,000 terms every decision waited for 12 s."""
    long = f"Sum(terms=({'Minimum(), ' * terms}))"
    reply = server.request("POST", WHAT_IF, {"objectives": [long]}, timeout=3.0)
    assert (reply.status, reply.body["field"]) == (422, "objectives[0]")
    assert "characters; give at most" in reply.body["message"]


def test_an_objective_without_beta_is_asked_by_its_text(server: Server) -> None:
    reply = server.request("POST", f"{shop.ROUTER}/what-if", {"beta": [1.0]})
    assert (reply.status, reply.body["error"]) == (422, "no_beta")
    assert server.request("GET", f"{WHAT_IF}/none").status == 404


def test_the_process_ends_with_the_service(tmp_path: Path) -> None:
    with Server(tmp_path, shop.config()) as server:
        shop.filled(server, rounds=1)
        assert server.request("POST", WHAT_IF, {}).status == 202
        wait_for(lambda: children(server.pid) != [])
        (worker,) = children(server.pid)
        assert server.stop() == 0
        wait_for(lambda: not Path(f"/proc/{worker}").exists())
        assert server.complaints() == []
