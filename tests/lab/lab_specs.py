"""Small experiments for the tests of the lab."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SMALL = """
name = "small"
horizon = 200
seeds = 2

[environment]
name = "mehrotra"
n_arms = 5
n_objectives = 3
n_features = 4

[objective]
name = "gini-welfare"

[policies.ucb]
name = "frank-wolfe"
base = { name = "linucb", ridge = 0.1 }

[policies.any]
name = "frank-wolfe"
base = { name = "uniform" }
"""

# A world of the user's, which can go wrong: its module stands in the current directory.
MINE = '''
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from fairwolfe.environments import Mehrotra
from fairwolfe.objectives import Minimum
from fairwolfe.core.decision import Choice


@dataclass(frozen=True)
class First:
    """A bandit that always takes the first arm."""

    def init(self, problem):
        return ()

    def act(self, state, context, direction, rng):
        return Choice(0, 1.0, None)

    def update(self, state, choice, direction, feedback):
        return state


@dataclass(frozen=True)
class Worst(Minimum):
    """The worse counts."""


@dataclass(frozen=True)
class Tiring(First):
    """Raises in the round of that number."""

    after: int = 50

    def init(self, problem):
        return 0

    def update(self, state, choice, direction, feedback):
        if state + 1 == self.after:
            raise ArithmeticError(f"tired\\\\nafter {self.after} rounds")
        return state + 1


@dataclass(frozen=True)
class Fragile(Mehrotra):
    """Fails, kills its process or waits, until a file says that it is cured; not in the first
    world of its kind, which is that of a trial."""

    how: str = "well"

    def init(self, rng):
        print("a world that talks")
        with Path("begun").open("a") as log:
            log.write(f"{os.getpid()} {self.how}\\\\n")
        trial = Path("begun").read_text().count(f" {self.how}\\\\n") == 1
        if not trial and not Path("cured").exists():
            if self.how == "kills":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "fails":
                raise RuntimeError("not cured yet")
            while self.how == "waits" and not Path("cured").exists():
                time.sleep(0.01)
        return super().init(rng)
'''.replace("\\\\", "\\")

FRAGILE = """
name = "fragile"
horizon = 200
seeds = 2
environment = { name = "mine:Fragile", n_arms = 5, n_objectives = 3, n_features = 4 }
objective = { name = "mine:Worst" }
policies.any = { name = "frank-wolfe", base = { name = "uniform" } }
"""


def fragile(*how: str) -> str:
    return FRAGILE + f'grid = {{ "environment.how" = {list(how)!r} }}\n'


def tiring(*after: int) -> str:
    """A policy that plays, and one that raises in its rounds of these numbers."""
    text = FRAGILE.replace("mine:Fragile", "mehrotra")
    text += 'policies.tiring = { name = "frank-wolfe", base = { name = "mine:Tiring" } }\n'
    return text + f'grid = {{ "policies.tiring.base.after" = {list(after)} }}\n'


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fairwolfe", "run", *arguments]


def started_in(folder: Path) -> list[int]:
    """The processes of this machine whose current directory that is."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "cwd") == str(folder):
                found.append(int(process.name))
        except OSError:
            continue
    return found
