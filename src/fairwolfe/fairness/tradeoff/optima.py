"""`Optima`: certified optima of one trade-off by beta, computed when they are needed."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fairwolfe.core.streams import stream
from fairwolfe.environments.rankings import RankingWorld
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Concave, TwoSided
from fairwolfe.truth.optimum import Optimum, optimum

__all__ = ["Optima"]


@dataclass(frozen=True, eq=False)
class Optima:
    """Where the optima of utility + beta items come from: the worlds of some seeds."""

    world: RankingWorld
    items: Concave
    constraints: Concave | None
    """Of all coordinates; they hold for every beta."""
    seeds: tuple[int, ...]
    tolerance: float
    jobs: int = 1

    def objective(self, beta: float) -> Concave:
        """f with its hard constraints."""
        f = TwoSided(self.items, beta)
        return f if self.constraints is None else f + self.constraints

    @cached_property
    def _different(self) -> int:
        """How many of the seeds have their own world: one, where the tables are given."""
        drawn = [self.world.init(stream(seed, "world")) for seed in self.seeds]
        same = all(
            np.array_equal(a, b)
            for world in drawn[1:]
            for a, b in zip(world[:-1], drawn[0][:-1], strict=True)
        )
        return 1 if same else len(self.seeds)

    def at(
        self, betas: Iterable[float], tolerance: float | None = None
    ) -> dict[float, tuple[Optimum, ...]]:
        """The optima of each beta, one for each seed; `jobs` of them are computed at once."""
        wanted = sorted(set(betas))
        each = self.seeds[: self._different]
        todo = [(beta, seed) for beta in wanted for seed in each]

        def find(one: tuple[float, int]) -> Optimum:
            f = self.objective(one[0])
            return optimum(self.world, f, one[1], tolerance or self.tolerance)

        with ThreadPoolExecutor(self.jobs) as pool:
            optima = dict(zip(todo, pool.map(find, todo), strict=True))
        for best in optima.values():
            if not best.feasible:
                raise InvalidInput(
                    f"no policy keeps {self.constraints}: it is violated by "
                    f"{best.unavoidable:.3g} at least, whatever is shown; loosen its levels"
                )
        copies = len(self.seeds) // len(each)
        return {beta: tuple(optima[beta, seed] for seed in each) * copies for beta in wanted}
