"""Agents across a fork: none is left half-way, and a child has ids and draws of its own."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

__all__ = ["register"]

_SECONDS = 10.0  # how long a fork waits for an agent that another thread is using

_AGENTS: weakref.WeakSet[Any] = weakref.WeakSet()
_REGISTER = [threading.Lock()]  # of the set itself; a child has its own
_FORKING = threading.local()  # agents whose locks this thread holds while it forks


def register(agent: Any) -> None:
    """From now on a fork waits for this agent."""
    with _REGISTER[0]:
        _AGENTS.add(agent)


def _before() -> None:
    """No agent is left half-way through something that another thread does."""
    with _REGISTER[0]:
        agents = sorted(_AGENTS, key=id)
    _FORKING.held = []
    for agent in agents:
        if agent._lock.acquire(timeout=_SECONDS):
            agent._forks += 1
            _FORKING.held.append(agent)


def _after_in_parent() -> None:
    for agent in _FORKING.held:
        agent._lock.release()
    _FORKING.held = []


def _after_in_child() -> None:
    _REGISTER[0] = threading.Lock()
    _FORKING.held = []
    for agent in _AGENTS:
        agent._lock = threading.RLock()
        agent._log = None
        agent._recover()
        agent._ledger.fork()
        agent._draws = agent._draws.apart(agent._forks, "fork")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
