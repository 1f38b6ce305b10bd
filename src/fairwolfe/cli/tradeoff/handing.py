"""What `fairwolfe tradeoff --save` hands to the engineer: an agent, and the users' factors."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from fairwolfe.agent import Agent
from fairwolfe.cli.tradeoff.world import World
from fairwolfe.core.folders import whole_file
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput
from fairwolfe.fairness import Reachable
from fairwolfe.ranking import FWLinUCBRank

__all__ = ["agent_of", "hand_over", "place"]


def place(path: Path) -> Path:
    """Where the agent goes; raises now if nothing can be written there."""
    if not path.parent.is_dir():
        raise InvalidInput(f"--save is {str(path)!r}, and there is no folder {path.parent}")
    if path.is_dir():
        raise InvalidInput(f"--save is {str(path)!r}, which is a folder; give a file")
    return path


def agent_of(world: World, reached: Reachable, beta: float, exploration: Any) -> Agent:
    """An agent that has learnt nothing yet, with the items by their keys."""
    arrays = world.environment.init(stream(reached.seeds[0], "world"))
    if arrays.users.ndim != 2:
        raise InvalidInput("--save needs a world with factors of users and items, such as a table")
    keys = [str(one) for one in world.item_ids]
    policy = FWLinUCBRank(reached.objective(beta), exploration=exploration)
    items = dict(zip(keys, arrays.items, strict=True))
    return Agent(policy, world.environment.problem(), items=items)


def hand_over(path: Path, agent: Agent, world: World, seed: int) -> list[Path]:
    """Write the agent, and beside it the users' factors: its contexts."""
    agent.save(path)
    users = world.environment.init(stream(seed, "world")).users
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["user", *(f"factor {i + 1}" for i in range(users.shape[1]))])
    names = world.user_ids or range(len(users))
    writer.writerows([name, *row] for name, row in zip(names, users.tolist(), strict=True))
    beside = path.with_name(path.stem + "-users.csv")
    with whole_file(beside) as file:
        file.write(text.getvalue().encode())
    return [path, beside]
