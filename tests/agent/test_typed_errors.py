"""Every setting and every argument against every kind of value: accepted, or a typed error with a
sentence that shows it, and no change of the agent.
"""

from __future__ import annotations

import decimal
import fractions
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.agent.file import arrays_of
from fairwolfe.bandits import EpsilonGreedy, Fixed, LinUCB, SquareCB, Thompson
from fairwolfe.errors import FairwolfeError, InvalidInput
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    ByGroup,
    GeneralizedGini,
    GiniWelfare,
    Linear,
    Mapped,
    Minimum,
    Nash,
    PerMerit,
    TwoSided,
    Welfare,
    Within,
)
from fairwolfe.oracles import Ridge
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank, LinUCBRank
from fairwolfe.smoothing import Augmented, Moreau, Randomized

nan, inf = float("nan"), float("inf")
VALUES: tuple[Any, ...] = (
    *(nan, inf, -inf, None, "a", "1", "nan", "", 1e308, 10**400, 1j, True, b"x"),
    *([], {}, (), [[]], [None], {"a": None}, object(), print, -1, 0, 1.5, 2**63, -(2**63)),
    *(np.array([]), np.array(1.0), np.float32(inf), np.ma.masked, np.datetime64("2020-01-01")),
    *(decimal.Decimal("NaN"), fractions.Fraction(1, 3)),
)
FW = fw.FrankWolfe(Minimum(), LinUCB())
ARMS = fw.Problem.arms(2, {"a": (0.0, 1.0), "b": (0.0, 1.0)}, feature_norm=2.0)
LISTS = fw.Problem.ranking(4, 2, (2, 2), {"clicks": (0, 2), "minutes": (0, 10)}, feature_norm=3.0)
X = np.array([[0.1, 0.2], [0.3, 0.4]])

SETTINGS: dict[str, Callable[[Any], Any]] = {
    "n_features": lambda b: fw.Problem.arms(b, {"a": (0, 1)}),
    "range": lambda b: fw.Problem.arms(2, {"a": (0, b)}),
    "rewards": lambda b: fw.Problem.arms(2, b),
    "n_slots": lambda b: fw.Problem.ranking(4, b, 2),
    "n_items": lambda b: fw.Problem.ranking(b, 1, 2),
    **{
        f"Problem {name}": lambda b, name=name: fw.Problem.arms(2, {"a": (0, 1)}, **{name: b})  # type: ignore[misc]
        for name in ("feature_norm", "parameter_norm", "noise", "n_arms", "kind")
    },
    **{
        f"LinUCB {name}": lambda b, name=name: LinUCB(**{name: b})  # type: ignore[misc]
        for name in ("exploration", "ridge", "delta", "model")
    },
    **{
        f"SquareCB {name}": lambda b, name=name: SquareCB(**{name: b})  # type: ignore[misc]
        for name in ("gamma0", "horizon", "delta")
    },
    "epsilon": EpsilonGreedy,
    "Thompson": lambda b: Thompson(scale=b),
    "Fixed": Fixed,
    "Ridge": Ridge,
    "Moreau": lambda b: Moreau(beta0=b),
    "Augmented": lambda b: Augmented(weight=b),
    "Randomized": lambda b: Randomized(radius=b),
    "Linear": Linear,
    "Linear by name": lambda b: Linear({"a": b}),
    "GeneralizedGini": GeneralizedGini,
    "AtLeast": AtLeast,
    "AtMost by name": lambda b: AtMost({"a": b}),
    "penalty": lambda b: AtMost(0.5, penalty=b),
    "margin": lambda b: AtMost(0.5, margin=b),
    "multiplier": lambda b: AtMost(0.5, multiplier=b),
    "Within": lambda b: Within(0, b),
    "Welfare": Welfare,
    "offset": lambda b: Nash(offset=b),
    "TwoSided beta": lambda b: TwoSided(GiniWelfare(), beta=b),
    "TwoSided items": TwoSided,
    "Mapped": lambda b: Mapped(Minimum(), b),
    "ByGroup": lambda b: ByGroup(Minimum(), b),
    "PerMerit": lambda b: PerMerit(Minimum(), b),
    "on": lambda b: Minimum().on(b),
    "value": lambda b: Minimum().value(b),
    **{
        f"FrankWolfe {name}": lambda b, name=name: fw.FrankWolfe(Minimum(), LinUCB(), **{name: b})  # type: ignore[misc]
        for name in ("memory", "iterate", "anticipate")
    },
    "base": lambda b: fw.FrankWolfe(Minimum(), b),
    "objective": lambda b: fw.FrankWolfe(b, LinUCB()),
    "share": lambda b: fw.Guarded(FW, fw.FrankWolfe(Minimum(), Fixed(0)), share=b),
    "floor": lambda b: fw.Guarded(FW, fw.FrankWolfe(Minimum(), Fixed(0)), floor=b),
    "randomize": lambda b: LinUCBRank(randomize=b),
    "exposure": lambda b: LinUCBRank(exposure=b),
    "rank delta": lambda b: LinUCBRank(delta=b),
    "position_weights": lambda b: LinUCBRank(position_weights=b),
    "minimum": FairLearnRank,
    "tolerance": lambda b: FairLearnRank(0.1, tolerance=b),
    **{
        f"Agent {name}": lambda b, name=name: fw.Agent(FW, ARMS, **{name: b})  # type: ignore[misc]
        for name in ("seed", "expires", "node", "items", "arms", "token")
    },
    "policy": lambda b: fw.Agent(b, ARMS),
    "problem": lambda b: fw.Agent(FW, b),
    "restore": fw.Agent.restore,
    "Decision.from_bytes": fw.Decision.from_bytes,
}

Call = Callable[[fw.Agent, fw.Decision, Any], Any]
CALLS: dict[str, Call] = {
    "act": lambda agent, d, b: agent.act(b),
    "act row": lambda agent, d, b: agent.act([[0.1, 0.2], b]),
    "act entry": lambda agent, d, b: agent.act([[0.1, b], [0.2, 0.1]]),
    "act by name": lambda agent, d, b: agent.act({"x": b}),
    "candidates": lambda agent, d, b: agent.act(X, candidates=b),
    "a candidate": lambda agent, d, b: agent.act(X, candidates=[b]),
    "blocked": lambda agent, d, b: agent.act(X, blocked=b),
    "pinned": lambda agent, d, b: agent.act(X, pinned=b),
    "act_many": lambda agent, d, b: agent.act_many(b),
    "act_many of": lambda agent, d, b: agent.act_many([X, b]),
    "advance": lambda agent, d, b: agent.act_many([X], b),
    "tolerance": lambda agent, d, b: agent.propose([X], tolerance=b),
    "issue": lambda agent, d, b: agent.issue(b),
    "issue of": lambda agent, d, b: agent.issue([b]),
    "update": lambda agent, d, b: agent.update(d, b),
    "update entry": lambda agent, d, b: agent.update(d, [0.5, b]),
    "update by name": lambda agent, d, b: agent.update(d, {"a": 0.5, "b": b}),
    "missing": lambda agent, d, b: agent.update(d, {"a": 0.5}, missing=b),
    "decision": lambda agent, d, b: agent.update(b, [0.5, 0.5]),
    "expire": lambda agent, d, b: agent.expire(b),
    "update_many": lambda agent, d, b: agent.update_many([d], b),
    "update_many of": lambda agent, d, b: agent.update_many([b], [[0.5, 0.5]]),
    "update_many reward": lambda agent, d, b: agent.update_many([d], [b]),
    "read_feedback": lambda agent, d, b: agent.read_feedback(d, b),
    "read_feedback to": lambda agent, d, b: agent.read_feedback(b, [0.5, 0.5]),
    "study": lambda agent, d, b: agent.study(b, [[0.5, 0.5]]),
    "study reward": lambda agent, d, b: agent.study(d.batch.rows, b),
    "study rewards": lambda agent, d, b: agent.study(d.batch.rows, [b]),
    "study features": lambda agent, d, b: agent.study(
        d.batch.rows._replace(x=np.asarray(b)),
        [[0.5, 0.5]],
    ),
    "study head": lambda agent, d, b: agent.study(
        d.batch.rows._replace(head=np.asarray(b)),
        [[0.5, 0.5]],
    ),
    "live": lambda agent, d, b: agent.live(b),
    "replace_objective": lambda agent, d, b: agent.replace_objective(b),
    "add_items": lambda agent, d, b: agent.add_items(b),
    "retire": lambda agent, d, b: agent.retire(b),
    "log": lambda agent, d, b: agent.log(b),
}
RANKED: dict[str, Call] = {
    "act": lambda agent, d, b: agent.act(b),
    "candidates": lambda agent, d, b: agent.act([0.3, 0.4], candidates=["x", b]),
    "blocked": lambda agent, d, b: agent.act([0.3, 0.4], blocked=[b]),
    "pinned": lambda agent, d, b: agent.act([0.3, 0.4], pinned={0: b}),
    "exposed": lambda agent, d, b: agent.update(d, {"minutes": {}}, exposed=b, clicked=[]),
    "clicked": lambda agent, d, b: agent.update(d, {"minutes": {}}, exposed=[], clicked=b),
    "exposed of": lambda agent, d, b: agent.update(d, {"minutes": {}}, exposed=[b], clicked=[]),
    "minutes": lambda agent, d, b: agent.update(d, {"minutes": b}, exposed=[], clicked=[]),
    "update": lambda agent, d, b: agent.update(d, b),
    "add_items": lambda agent, d, b: agent.add_items(b),
    "add_items features": lambda agent, d, b: agent.add_items({"new": b}),
    "retire": lambda agent, d, b: agent.retire(b),
    "retire of": lambda agent, d, b: agent.retire([b]),
}


def attempt(call: Callable[[], Any]) -> bool:
    """Whether it is accepted; raises what is neither that nor a typed error with a sentence."""
    said = None
    try:
        call()
    except FairwolfeError as error:
        said = str(error)
    assert said is None or len(said) > 20
    return said is None


@pytest.mark.filterwarnings("ignore:Warning. converting a masked element")
@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name: str) -> None:
    accepted = [attempt(lambda value=value: SETTINGS[name](value)) for value in VALUES]  # type: ignore[misc]
    assert not all(accepted)


def everything(agent: fw.Agent) -> Any:
    arrays = {name: array.tobytes() for name, array in arrays_of(agent._running)}
    return arrays, repr(agent._ledger.saved()), repr(agent.policy)


@pytest.mark.parametrize("kind", ["arms", "ranking"])
@pytest.mark.filterwarnings("ignore:features of norm")
@pytest.mark.filterwarnings("ignore:the reward")
def test_calls(kind: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # `log` takes a text for a path
    if kind == "arms":
        policy = fw.FrankWolfe(Minimum() + AtMost({"b": 0.8}), SquareCB(gamma0=10.0))
        agent, context, calls = fw.Agent(policy, ARMS), X, CALLS
    else:
        two = TwoSided(GiniWelfare(), beta=1.0, n_users=2)
        items = dict(zip("xyzw", np.random.default_rng(0).random((4, 2)), strict=True))
        agent, calls = fw.Agent(FWLinUCBRank(two), LISTS, items=items), RANKED
        context = np.array([0.3, 0.4])
    refused = 0
    for name, call in calls.items():
        for value in VALUES:
            decision = agent.act(context)
            before = everything(agent)
            if not attempt(lambda call=call, d=decision, value=value: call(agent, d, value)):  # type: ignore[misc]
                refused += 1
                assert everything(agent) == before, (name, value)
            agent.log(None)
    assert refused > 20 * len(calls)


@pytest.mark.parametrize("bad", [1, True, None, 1.5, b"x", "", "a\0b", [], object()])
def test_a_path_is_a_text_or_a_path(bad: Any) -> None:
    """`open(1)` is the standard output, which reading an agent from it closed."""
    agent = fw.Agent(FW, ARMS)
    for call in (fw.Agent.load, agent.save, None if bad is None else agent.log):
        if call is not None:
            with pytest.raises(InvalidInput, match=r"the path is .*; give a text or a pathlib"):
                call(bad)
    os.fstat(1)


@pytest.mark.parametrize("seed", [None, "1", 1.5, nan, -1, True, 1j])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    saved = fw.Agent(FW, ARMS).dump()
    with pytest.raises(InvalidInput, match=r"seed is .*; give a whole number"):
        fw.Agent(FW, ARMS, seed=seed)
    if seed is not None:  # there it means the draws of the file
        with pytest.raises(InvalidInput, match=r"seed is .*; give a whole number"):
            fw.Agent.restore(saved, seed=seed)


@pytest.mark.parametrize("multiple", [10**400, nan, inf, -1, np.float64(nan), np.complex128(1)])
def test_a_multiple_of_an_objective_is_a_number(multiple: Any) -> None:
    with pytest.raises(InvalidInput, match="the multiple"):
        Minimum() * multiple
    assert Minimum() * 2.0 == 2 * Minimum()


def test_whole_numbers_fit_64_bits() -> None:
    for most in (2**63, 10**400):
        with pytest.raises(InvalidInput, match=r"n_features is \d+; give a whole number below"):
            fw.Problem.arms(most, {"a": (0, 1)})
