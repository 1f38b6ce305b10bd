"""P4: any order and any repetition of the same feedback comes to the same state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.service.inside import Inside
from tests.service.servers import STAGED, config

WINDOW, LATER = 10.0, 25.0
ITEMS = np.random.default_rng(0).uniform(-0.4, 0.4, (6, 4))


def ranking(missing: str, head: str = "") -> Inside:
    """A service with items."""
    from fairwolfe.service.events import ItemsAdded

    text = config(f"{WINDOW:g} s", missing)
    staged = STAGED.format(window=f"{WINDOW:g} s", later=f"{LATER:g} s", missing=missing)
    text += staged.replace("models.router]", "models.staged]")
    if head:
        text = text.replace("missing =", f"{head}\nmissing =")
    service = Inside(text)
    keys = tuple("abcdef")
    service.together(service.core.change("front", lambda: ItemsAdded(1, keys, ITEMS, "")))
    return service


def parts_of(service: Inside, name: str, number: int, rng: np.random.Generator) -> list[Any]:
    """Feedback for a decision, in parts that do not contradict each other."""
    model = service.model(name)
    id = model.id(number)
    if name != "front":
        clicks, minutes = float(rng.integers(2)), float(rng.uniform(0, 10))
        return [
            {"id": id, "rewards": {"clicks": clicks}},
            {"id": id, "rewards": {"minutes": minutes}},
            {"id": id, "rewards": {"clicks": clicks, "minutes": minutes}},
        ]
    keys = model.keys_of(model.ring.decision(number).action)
    return [
        {"id": id, "exposed": keys[:2]},
        {"id": id, "clicked": keys[1:2]},
        {"id": id, "exposed": keys[1:], "clicked": [keys[1]]},
        {"id": id, "exposed": []},
    ]


class AnyOrder(RuleBasedStateMachine):
    """Two services are asked the same; one hears at once and in order, the other as it comes."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0)
        self.prompt, self.late = ranking("zero"), ranking("zero")
        self.waiting: list[tuple[str, int, Any]] = []
        self.later: list[tuple[float, str, int, Any]] = []  # until when, and the same

    @rule(name=st.sampled_from(["router", "front", "staged"]), n=st.integers(1, 3))
    def decide(self, name: str, n: int) -> None:
        shape = (4,) if name == "front" else (3, 5)
        field = "user" if name == "front" else "arms"
        asks = [{field: self.rng.uniform(-0.4, 0.4, shape).tolist()} for _ in range(n)]
        one, other = (s.decide_many(name, asks) for s in (self.prompt, self.late))
        for mine, theirs in zip(one, other, strict=True):
            assert mine.action == theirs.action
            for part in parts_of(self.prompt, name, mine.number, self.rng):
                assert self.prompt.tell(name, part)[0] in ("joined", "known")
                if name == "staged" and part["rewards"].keys() == {"minutes"}:
                    until = self.prompt.core.clock.now() + LATER
                    self.later.append((until, name, mine.number, part))
                else:
                    self.waiting.append((name, mine.number, part))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), again=st.booleans())
    def deliver(self, data: Any, again: bool) -> None:
        place = data.draw(st.integers(0, len(self.waiting) - 1))
        self.tell_late(*(self.waiting[place] if again else self.waiting.pop(place)))

    @precondition(lambda self: self.later)
    @rule(data=st.data())
    def deliver_later(self, data: Any) -> None:
        place = data.draw(st.integers(0, len(self.later) - 1))
        self.tell_late(*self.later.pop(place)[1:])

    @rule(seconds=st.floats(0.1, 6.0))
    def wait(self, seconds: float) -> None:
        # Everything arrives within its window, the newest first.
        while self.waiting:
            self.tell_late(*self.waiting.pop())
        end = self.prompt.core.clock.now() + seconds
        for one in [one for one in self.later if one[0] <= end + 1.0]:
            self.later.remove(one)
            self.tell_late(*one[1:])
        for service in (self.prompt, self.late):
            service.advance(seconds)

    def tell_late(self, name: str, number: int, part: Any) -> None:
        mine = {**part, "id": self.late.model(name).id(number)}
        assert self.late.tell(name, mine)[0] in ("joined", "known")

    @invariant()
    def same_bits(self) -> None:
        for name in ("router", "front", "staged"):
            one, other = self.prompt.model(name), self.late.model(name)
            assert one.agent is not None
            assert other.agent is not None
            assert one.agent.dump() == other.agent.dump()
            for count in ("joined", "expired"):
                assert one.counts[count] == other.counts[count]
                assert getattr(one, count) == getattr(other, count)  # of each stage


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=15, stateful_step_count=15)


@given(
    order=st.permutations(range(12)),
    missing=st.sampled_from(["zero", "skip"]),
    name=st.sampled_from(["router", "staged"]),
)
@settings(max_examples=25)
def test_a_window_that_closes_gives_equal_bits(order: list[int], missing: str, name: str) -> None:
    dumps = []
    for places in (range(12), order):
        service = ranking(missing)
        asks = [{"arms": [[0.1 * i, 0.2, 0.0, -0.1, 0.3], [0.2] * 5]} for i in range(6)]
        service.decide_many(name, asks)
        rng = np.random.default_rng(5)
        parts = [p for n in range(5) for p in parts_of(service, name, n, rng)][:12]
        for place in places:
            service.tell(name, parts[place], parts[place])
        service.advance(WINDOW if name == "router" else LATER)
        agent = service.model(name).agent
        assert agent is not None
        assert agent.t == (4 if missing == "skip" else 6)
        dumps.append(agent.dump())
    assert dumps[0] == dumps[1]


@given(order=st.permutations(range(20)))
@settings(max_examples=15)
def test_on_arrival_counts_are_equal_and_averages_nearly(order: list[int]) -> None:
    states = []
    for places in (range(20), order):
        service = ranking("zero", 'apply = "arrival"')
        asks = [{"arms": [[0.1 * i, 0.2, 0.0, -0.1, 0.3], [0.2] * 5]} for i in range(10)]
        service.decide_many("router", asks)
        rng = np.random.default_rng(5)
        parts = [p for n in range(10) for p in parts_of(service, "router", n, rng)[:2]]
        outcomes = [service.tell("router", parts[place])[0] for place in places]
        assert set(outcomes) == {"joined"}
        model = service.model("router")
        assert (model.t, model.ring.open) == (10, 0)
        assert model.counts["joined"] == 10
        states.append(np.array(list(model.average().values())))
        known = service.tell("router", *parts)
        assert set(known) == {"known"}
        service.advance(WINDOW)
        assert (model.t, model.counts["joined"], model.counts["expired"]) == (10, 10, 0)
        assert service.tell("router", parts[0]) == ["late"]
    assert states[0] == pytest.approx(states[1], abs=1e-9)


def test_another_order_of_decisions_is_another_state() -> None:
    """The bits that are compared do depend on what is learnt."""
    dumps = []
    for value in (0.0, 1.0):
        service = ranking("zero")
        service.decide("router", arms=[[0.1, 0.2, 0.0, -0.1, 0.3], [0.2] * 5])
        id = service.model("router").id(0)
        service.tell("router", {"id": id, "rewards": {"clicks": value, "minutes": 1.0}})
        service.advance(WINDOW)
        agent = service.model("router").agent
        assert agent is not None
        dumps.append(agent.dump())
    assert dumps[0] != dumps[1]
