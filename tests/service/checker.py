"""The checker of the soak: reads what clients sent and were told, and the final log, and nothing
else. (P1 has its own, which decodes nothing: tests/service/exactly_once.py.)

It knows the words of the log and how to average; it uses neither models nor agents.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, NamedTuple

from fairwolfe.service.events import (
    Applied,
    Closed,
    DecisionsMade,
    FeedbackReceived,
    Started,
    decode,
)
from fairwolfe.service.store import Store
from tests.service.crowd import Event

REWARDS = ("clicks", "minutes")
NEAR = 1e-9


class Log(NamedTuple):
    """What the log says of one model."""

    token: str
    actions: dict[int, Any]
    requests: dict[str, list[int]]
    cells: dict[int, dict[int, list[float]]]  # number -> reward -> values, each time it was written
    closed: int


def read_log(store: Store) -> Log:
    """The log of the first model, row by row."""
    actions: dict[int, Any] = {}
    requests: dict[str, list[int]] = defaultdict(list)
    cells: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    closed = 0
    for row in store.rows(0):
        for event in decode(row.payload):
            if isinstance(event, Started) or event.model != 0:
                continue
            match event:
                case DecisionsMade(made=made, requests=asked):
                    first = len(actions)
                    actions |= enumerate(made.actions.tolist(), first)
                    for place, id, _ in asked:
                        requests[id].append(first + place)
                case FeedbackReceived():
                    for (entry, _, reward), value in zip(
                        event.cells.tolist(), event.values.tolist(), strict=True
                    ):
                        cells[int(event.numbers[entry])][reward].append(value)
                case Closed(upto=upto):
                    closed = upto
                case Applied():
                    raise AssertionError("the crowd plays a model that applies at the close")
    return Log(f"{store.token}-0", actions, requests, cells, closed)


def violations(history: list[Event], log: Log, final: dict[str, Any]) -> list[str]:
    """What is wrong; final: what the service said of the model last."""
    found: list[str] = []
    sent: dict[int, dict[int, set[float]]] = defaultdict(lambda: defaultdict(set))
    seen: Counter[str] = Counter()
    for event in history:
        if event.kind == "decide" and event.answer is not None:
            _check_decision(event, log, found)
            seen[event.answer["id"]] += 1
        elif event.kind == "feedback":
            _check_feedback(event, log, sent, found)
    found += [f"decision {id} was given to {n} questions" for id, n in seen.items() if n > 1]
    for id, numbers in log.requests.items():
        if len(numbers) > 1:
            found.append(f"request {id} was decided {len(numbers)} times")
    for number, rewards in log.cells.items():
        for reward, values in rewards.items():
            if len(values) > 1:
                found.append(f"{REWARDS[reward]} of decision {number} counts {len(values)} times")
            if not set(values) <= sent[number][reward]:
                found.append(f"{REWARDS[reward]} of decision {number} is {values}; nobody said so")
    return found + _check_final(log, final)


def _check_decision(event: Event, log: Log, found: list[str]) -> None:
    id, arm = event.answer["id"], event.answer["arm"]
    head, _, digits = id.rpartition("-")
    number = int(digits)
    if head.rpartition("-")[0] != log.token or number not in log.actions:
        found.append(f"decision {id} was acknowledged and is not in the log")
    elif log.actions[number] != arm:
        found.append(f"decision {id} was arm {arm}, and the log says {log.actions[number]}")
    elif number not in log.requests[event.sent["request_id"]]:
        found.append(f"decision {id} is not that of its request in the log")


def _check_feedback(
    event: Event, log: Log, sent: dict[int, dict[int, set[float]]], found: list[str]
) -> None:
    for place, entry in enumerate(event.sent):
        number = int(entry["id"].rpartition("-")[2])
        outcome = None if event.answer is None else event.answer[place]["outcome"]
        for name, value in entry["rewards"].items():
            reward = REWARDS.index(name)
            sent[number][reward].add(float(value))
            if outcome in ("joined", "known") and float(value) not in log.cells[number][reward]:
                found.append(f"{name} of {entry['id']} was acknowledged and is not in the log")
        if outcome in ("unknown", "conflict"):
            found.append(f"feedback for {entry['id']} was said to be {outcome}")


def _check_final(log: Log, final: dict[str, Any]) -> list[str]:
    found = []
    joined = sum(1 for number in range(log.closed) if log.cells[number])
    told = {"decisions": len(log.actions), "t": log.closed, "joined": joined}
    told["expired"] = log.closed - joined
    told["open"] = len(log.actions) - log.closed
    for name, count in told.items():
        if final[name] != count:
            found.append(f"{name} is {final[name]}, and the log says {count}")
    for reward, name in enumerate(REWARDS):
        earned = sum(sum(log.cells[number][reward]) for number in range(log.closed))
        average = earned / max(log.closed, 1)
        if abs(final["average"][name] - average) > NEAR:
            found.append(f"average {name} is {final['average'][name]}; the log says {average}")
    return found
