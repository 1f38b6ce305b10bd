"""Which settings should be the defaults? Distance to the certified optimum in fourteen worlds.

    python benchmarks/bench_defaults.py [--first SEED] [--seeds N] [--only TEXT ...] [--json FILE]

Registered: the worlds, the grid, the seeds, the criterion and the rule of choice below were written
down, and committed, before the benchmark was run. About 20 minutes on one core.

**Worlds.** Arms: the music world, two arms, and ten arms with means in 0 to 0.1, 0.9 to 1 and 0 to
1 (those of docs/which-bandit.md); the last with f in cents (100 f: the same problem in other
units); four offers of a shop as a hashing encoder makes them of dictionaries, with f = clicks +
0.05 margin, and the same with at most 8 % returned; a shop of 20 products as dictionaries for 8
kinds of customers, f = clicks + 3 orders, at most 3 % returned; ten arms with clicks at 0.5 to
1.5 %; fifty arms with means in 0.45 to 0.5. Rankings: 10 of 50 items (docs/which-bandit.md); 10 of
500 items and 200 users, the size of a small film catalogue; 10 of 50 items with clicks at about
1 %. Means are drawn anew for each seed where they are drawn at all.

**Grid.** LinUCB and rankers: exploration 1 (the theorem's), 0.3, 0.1, 0.03, "pointwise". SquareCB:
gamma0 "theorem", 3, 10, 30, 100, 300, 1,000, 10,000; gamma_t = c sqrt(t)/sd, sd = sum_i |g_i| sd_i
the standard deviation that <g, r> can have at the estimates of the arm that looks best, c = 3, 10,
30, 100 ("sd 3", ...); and the same with sd_i half of the range of reward i ("range 3", ...). Beside
them EpsilonGreedy 0.1 and 0.01, Thompson 1 and 0.1: as competitors, not as candidates.

**Seeds** 0 to 11, 20,000 rounds, all settings in the same worlds with the same noise.

**Distance** of a run: f* - f(average expected reward), f* certified to 1e-4 (relative to max(1,
|f*|)). With a hard constraint: + p violation, p = twice the constraint's price at the optimum, and
at least 1. A violation is therefore never a gain.

**Criterion.** D is the mean distance over seeds. The ratio of a setting in a world is D / max(2 D
of the best setting, 0.01 mean |f*|); it passes where its ratio is at most 1 and no seed is locked
in. For the default of a class the best is that of its class; for the recommended policy the best
is that of the whole grid.

**Locked in** is a seed if, of the expected average of the last quarter of the rounds alone, (a) the
distance is above 5 % of |f*|; (b) it is at least 90 % of the distance of the quarter before; (c) in
worlds with one context: as many arms as there are rewards have 98 % of the decisions of the last
quarter. So it is wrong, does not get better, and does not look.

**Choice.** Within a class the setting that fails in the fewest worlds; of equals the one whose
largest ratio is smallest. For arms the recommended policy is the class whose chosen default fails
in fewer worlds against the whole grid, then the one with the smaller largest ratio.

**Second registration**, written after the first had been played (no setting of SquareCB passed) and
before any of it was run. Seeds 12 to 23 (`--first 12`), the same worlds and criterion, and in the
grid besides: gamma_t = c K sqrt(t)/sd, K the number of arms, with c = 0.3, 1, 3 ("arms 0.3", ...),
and the same with half of the ranges ("arms range 0.3", ...). Inverse gap weighting then gives an
arm P(a) = 1/(K (1 + c sqrt(t) gap/sd)), and the share of all decisions that explore does not grow
with K. Two corrections, which hold for both registrations: where a hard constraint is missed, f in
the distance is f without the constraint, as was meant (it was -inf, so the shop could not be
judged); and with many contexts (b) is of the average over all rounds, of 20,000 against 10,000,
since shares of exposure within a quarter alone say little (every ranking was called locked in).

The settings with sd are gone from this script since they were not chosen: the rule of SquareCB has
sum_i |g_i| (half of range i) where they had sum_i |g_i| sd_i.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB, Thompson
from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.environments import FactorModel, Finite, Mehrotra, dcg
from fairwolfe.environments.world import ArmsWorld
from fairwolfe.kernels.worlds import CompiledArmWorld
from fairwolfe.objectives import AtMost, Concave, GiniEquality, Linear, Minimum, TwoSided
from fairwolfe.ranking import FWLinUCBRank

_TOLERANCE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Scaled(SquareCB):
    """SquareCB(gamma0="scaled") with any c."""

    c: float
    gamma0: Any = "scaled"

    def rule_params(self, problem: fw.Problem) -> Vector:
        return np.concatenate([[self.c], super().rule_params(problem)[1:]])


class Offers(ArmsWorld[None]):
    """Clicks, margin and returns of four offers, whose features an `Encoder` makes."""

    n_arms = 4
    catalogue = (
        {"price": 8.0, "category": "food"},
        {"price": 45.0, "category": "home"},
        {"price": 90.0, "category": "wear"},
        {"price": 15.0, "category": "media"},
    )
    chances = np.array([(0.2, 0.5, 0.01), (0.2, 0.3, 0.1), (0.35, 0.5, 0.45), (0.25, 0.4, 0.03)])

    def __init__(self) -> None:
        encode = fw.features.Encoder(48, ranges={"price": (0, 200)}, n_names=3)
        self.features: Matrix = encode(list(self.catalogue))
        self.margins = [0.25 * float(offer["price"]) for offer in self.catalogue]  # type: ignore
        click, order, back = self.chances.T
        kept = click * order * (1.0 - back) * self.margins
        self.means = np.stack([click, kept, click * order * back], axis=1)
        self._problem = fw.Problem.arms(
            48, {"clicks": (0, 1), "margin": (0, 40), "returned": (0, 1)}
        )

    def problem(self) -> fw.Problem:
        return self._problem

    def init(self, rng: np.random.Generator) -> None:
        return None

    def draw_contexts(
        self, world: None, rng: np.random.Generator, n: int
    ) -> tuple[Cube, IntVector]:
        return np.repeat(self.features[None], n, axis=0), np.zeros(n, dtype=np.int64)

    def draw_noise(self, rng: np.random.Generator, n: int) -> Matrix:
        return rng.random((n, 3))

    def rewards(self, world: None, features: Matrix, arm: int, noise: Vector) -> tuple[Any, Any]:
        click, order, back = noise < self.chances[arm]
        bought = click and order
        return self.means[arm], np.array(
            [click, self.margins[arm] * (bought and not back), bought and back], dtype=np.float64
        )

    def reward_program(self, world: None) -> CompiledArmWorld:
        """Without the best arm of each round, which nobody asks for here."""

        def reward(arm: int, tag: int, features: Matrix, noise: Vector) -> tuple[Any, Any]:
            return self.rewards(world, features, arm, noise)

        return CompiledArmWorld.of_functions(reward, None, 3, 48, self.n_arms, 3)

    def support(self, world: None, direction: Vector) -> tuple[float, Vector]:
        """The largest <direction, mean>, and the mean."""
        best = self.means[int(np.argmax(self.means @ direction))]
        return float(best @ direction), best


def ten_arms(low: float, high: float, n: int = 10, rewards: int = 2) -> Callable[[int], Finite]:
    """One context, arms with parameters of their own."""

    def world(seed: int) -> Finite:
        means = np.random.default_rng(seed).uniform(low, high, size=(rewards, n))
        return Finite([np.eye(n).tolist()], (1.0,), theta=means.tolist())

    return world


@cache
def shop(seed: int) -> Finite:
    """20 products for 8 kinds of customers: rewards click, order, returned.

    Chances are sums of effects of category, price, and category x country, so that the encoder's
    features with their products can express them, but for collisions.
    """
    rng = np.random.default_rng((seed, 37))
    categories, countries = ("food", "home", "wear", "media", "toys"), ("DE", "FR", "IT", "PL")
    products = [
        {"price": float(rng.uniform(5, 100)), "category": categories[i % 5]} for i in range(20)
    ]
    encode = fw.features.Encoder(96, ranges={"price": (0, 100)}, n_names=4)
    own = {c: rng.uniform(0.0, 1.0, 3) for c in categories}
    both = {(c, k): rng.uniform(-0.5, 0.5, 3) for c in categories for k in countries}
    contexts, means = [], []
    for country in countries:
        for mobile in (False, True):
            contexts.append(encode(products, {"country": country, "mobile": mobile}))
            rows = []
            for product in products:
                name: Any = product["category"]
                price: Any = product["price"]
                x = own[name] + both[name, country] + 0.5 - 0.005 * price - 0.1 * mobile
                click, order, back = np.clip(x / 2.0, 0.02, 1.0)
                rows.append((0.4 * click, 0.12 * order, 0.02 + 0.06 * back * order))
            means.append(rows)
    return Finite(np.array(contexts), np.full(8, 1 / 8), means=np.array(means))


def rare_lists(seed: int) -> FactorModel:
    """10 of 50 items, clicked with a chance of about 1 %."""
    rng = np.random.default_rng((seed, 41))
    users, items = rng.gamma(0.5, size=(50, 8)), rng.gamma(0.5, size=(50, 8))
    users /= np.linalg.norm(users, axis=1, keepdims=True)
    items *= 0.02 / np.linalg.norm(items, axis=1, keepdims=True)
    return FactorModel(users, items, dcg(10))


class World(NamedTuple):
    """The environment of a seed, f, how much a violation counts, and f without the constraint."""

    title: str
    environment: Callable[[int], Any]
    objective: Concave
    ranks: bool = False
    contexts: int = 0  # 0: many
    price: Callable[[Any], float] = lambda environment: 0.0
    free: Concave | None = None

    @property
    def arms(self) -> int:
        """How many there are to choose from."""
        world = self.environment(0)
        made = world.init(np.random.default_rng(0))
        return len(world.context(made, 0, np.random.default_rng(0)))


def _price(level: float, gain: Vector) -> Callable[[Any], float]:
    """Twice the price of avg(last reward) <= level where <gain, r> is maximised; at least 1."""

    def of(environment: Any) -> float:
        if isinstance(environment, Offers):
            means, shares = environment.means[None], np.ones(1)
        else:
            world = environment.init(np.random.default_rng(0))
            means, shares = world.means, np.array(environment.probabilities)
        weighted = shares[:, None, None] * means
        contexts, arms, _ = means.shape
        each = np.kron(np.eye(contexts), np.ones(arms))
        found = linprog(
            -(weighted @ gain).ravel(),
            weighted[:, :, -1].reshape(1, -1),
            [level],
            each,
            np.ones(contexts),
        )
        return max(1.0, -2.0 * float(found.ineqlin.marginals[0]))

    return of


def worlds() -> tuple[World, ...]:
    """Those of the registration."""
    music, two, least, any_ = Mehrotra(50, 5, 10), Finite.a2(), Minimum(), ten_arms(0.0, 1.0)
    offers, sold = Offers(), Linear((1.0, 0.05, 0.0))
    bought = Linear((1.0, 3.0, 0.0))
    shopped = bought + AtMost(0.03).on(2)
    clicks, fair = Linear((1.0,)), TwoSided(GiniEquality(), beta=1.0)
    gain, orders = np.array([1.0, 0.05, 0.0]), np.array([1.0, 3.0, 0.0])
    lists, films = FactorModel(50, 50), FactorModel(200, 500)
    return (
        World("Music: 50 arms, 5 rewards", lambda _: music, music.objective()),
        World("Two arms, two rewards", lambda _: two, least, contexts=2),
        World("Ten arms, means in 0 to 0.1", ten_arms(0.0, 0.1), least, contexts=1),
        World("Ten arms, means in 0.9 to 1", ten_arms(0.9, 1.0), least, contexts=1),
        World("Ten arms, means in 0 to 1", any_, least, contexts=1),
        World("The same, f in cents", any_, 100.0 * least, contexts=1),
        World("Four offers", lambda _: offers, sold, contexts=1),
        World(
            "Four offers, at most 8 % returned",
            lambda _: offers,
            sold + AtMost(0.08).on(2),
            contexts=1,
            price=_price(0.08, gain),
            free=sold,
        ),
        World("Shop with dictionaries", shop, shopped, False, 8, _price(0.03, orders), bought),
        World("Ten arms, clicks at 1 %", ten_arms(0.005, 0.015, rewards=1), clicks, contexts=1),
        World("Fifty nearly tied arms", ten_arms(0.45, 0.5, 50, 1), clicks, contexts=1),
        World("Lists: 10 of 50 items", lambda _: lists, fair, True),
        World("Lists: 10 of 500 films", lambda _: films, fair, True),
        World("Lists: clicks at 1 %", rare_lists, TwoSided(GiniEquality(), beta=0.1), True),
    )


EXPLORATIONS: tuple[Any, ...] = ("theorem", 0.3, 0.1, 0.03, "pointwise")
GAMMAS: tuple[Any, ...] = ("theorem", 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 1e4)


def settings(world: World) -> dict[str, Any]:
    """The grid: policies by name, the class first."""
    f = world.objective
    if world.ranks:
        return {f"Rank {one}": FWLinUCBRank(f, exploration=one) for one in EXPLORATIONS}
    bases: dict[str, Any] = {f"LinUCB {one}": LinUCB(exploration=one) for one in EXPLORATIONS}
    for gamma0 in GAMMAS:
        name = gamma0 if isinstance(gamma0, str) else f"{gamma0:g}"
        bases[f"SquareCB {name}"] = SquareCB(gamma0=gamma0)
    for c in (3.0, 10.0, 30.0, 100.0):
        bases[f"SquareCB range {c:g}"] = Scaled(c=c / world.arms)
    for c in (0.3, 1.0, 3.0):
        bases[f"SquareCB arms range {c:g}"] = Scaled(c=c)
    for epsilon in (0.1, 0.01):
        bases[f"EpsilonGreedy {epsilon}"] = EpsilonGreedy(epsilon)
    for scale in (1.0, 0.1):
        bases[f"Thompson {scale}"] = Thompson(scale=scale)
    return {name: fw.FrankWolfe(f, base) for name, base in bases.items()}


class Played(NamedTuple):
    """Of one setting in one world: by seed."""

    distance: list[float]
    locked: list[bool]


def played(world: World, policy: Any, best: Mapping[int, float], horizon: int) -> Played:
    """The runs of a setting. best: f* by seed."""
    out = Played([], [])
    quarters = [horizon // 2, 3 * horizon // 4, horizon]
    for seed, value in best.items():
        environment = world.environment(seed)
        run = fw.simulate(
            policy,
            environment,
            horizon,
            seed,
            world.objective,
            quarters,
            record_actions=True,
            scalar_regret=False,
        )
        price = world.price(environment)
        problem = environment.problem()
        f, free = world.objective.bind(problem), (world.free or world.objective).bind(problem)

        def distance(average: Vector) -> float:
            lost = value - free.value(average)  # noqa: B023
            return lost + price * f._violation(average) if price else lost  # noqa: B023

        sums = run.average * np.array(quarters)[:, None]
        before, last = np.diff(sums, axis=0) / np.diff(quarters)[:, None]
        if world.contexts == 0:
            before, last = run.average[0], run.average[-1]
        stuck = distance(last) > 0.05 * abs(value) and distance(last) >= 0.9 * distance(before)
        if world.contexts == 1:
            assert run.actions is not None
            counts = np.sort(np.bincount(run.actions[quarters[1] :]))[::-1]
            stuck = stuck and counts[: last.size].sum() >= 0.98 * counts.sum()
        out.distance.append(distance(run.average[-1]))
        out.locked.append(bool(stuck))
    return out


def measured(world: World, seeds: range, horizon: int) -> tuple[float, dict[str, Played]]:
    """Mean |f*|, and the runs by setting."""
    best = {
        seed: fw.optimum(world.environment(seed), world.objective, seed, _TOLERANCE).value
        for seed in seeds
    }
    found = {}
    for name, policy in settings(world).items():
        found[name] = played(world, policy, best, horizon)
    return float(np.mean(np.abs(list(best.values())))), found


def kind(name: str) -> str:
    """The class of a setting."""
    return name.split(maxsplit=1)[0]


def ratios(size: float, found: Mapping[str, Played], same_class: bool) -> dict[str, float]:
    """D / max(2 D of the best, 0.01 |f*|) by setting."""
    mean = {name: float(np.mean(runs.distance)) for name, runs in found.items()}
    out = {}
    for name, d in mean.items():
        least = min(v for k, v in mean.items() if not same_class or kind(k) == kind(name))
        out[name] = d / max(2.0 * least, 0.01 * size)
    return out


def printed(world: World, size: float, found: Mapping[str, Played]) -> None:
    """A Markdown table: distance, in per cent of |f*|, ratios, seeds locked in."""
    own, whole = ratios(size, found, True), ratios(size, found, False)
    print(f"\n## {world.title} (|f*| = {size:.4g})\n")
    print("| setting | D | % of f* | ratio in its class | in the grid | locked in |")
    print("|---|---|---|---|---|---|")
    for name, runs in found.items():
        d = float(np.mean(runs.distance))
        print(
            f"| {name} | {d:.2g} | {100 * d / size:.2g} | {own[name]:.2f} | {whole[name]:.2f} | "
            f"{sum(runs.locked)} |"
        )
    sys.stdout.flush()


def verdicts(everything: Mapping[str, tuple[float, Mapping[str, Played]]]) -> None:
    """For each setting: in how many worlds it fails, its largest ratio and where, the seeds."""
    print("\n## Verdicts\n")
    print(
        "| setting | fails, in its class | largest ratio | fails, in the grid | largest | where |"
    )
    print("|---|---|---|---|---|---|")
    names = list(dict.fromkeys(name for _, found in everything.values() for name in found))
    for name in names:
        here = {w: given for w, given in everything.items() if name in given[1]}
        cells, where = [], ""
        for same in (True, False):
            ratio = {w: ratios(*given, same)[name] for w, given in here.items()}
            locked = {w: sum(given[1][name].locked) for w, given in here.items()}
            fails = [w for w in here if ratio[w] > 1.0 or locked[w]]
            worst = max(ratio, key=lambda w: ratio[w])
            cells += [f"{len(fails)} of {len(here)}", f"{ratio[worst]:.2f}"]
            where = "; ".join(f"{w} ({ratio[w]:.1f}, {locked[w]} locked)" for w in fails)
        print(f"| {name} | {' | '.join(cells)} | {where} |")


def _plain(everything: Mapping[str, tuple[float, Mapping[str, Played]]]) -> dict[str, Any]:
    """As JSON can hold it."""
    return {
        title: {"size": size, "runs": {name: run._asdict() for name, run in found.items()}}
        for title, (size, found) in everything.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--horizon", type=int, default=20_000)
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the titles of worlds")
    parser.add_argument(
        "--json",
        type=Path,
        help="distances and locked seeds of every run; worlds that it has "
        "already are not played again",
    )
    asked = parser.parse_args()
    chosen = [world for world in worlds() if any(text in world.title for text in asked.only)]
    seeds = range(asked.first, asked.first + asked.seeds)
    began = perf_counter()
    everything: dict[str, tuple[float, dict[str, Played]]] = {}
    if asked.json is not None and asked.json.exists():
        for title, kept in json.loads(asked.json.read_text()).items():
            runs = {name: Played(**run) for name, run in kept["runs"].items()}
            everything[title] = kept["size"], runs
    for i, world in enumerate(chosen):
        if world.title not in everything:
            everything[world.title] = measured(world, seeds, asked.horizon)
            if asked.json is not None:
                asked.json.write_text(json.dumps(_plain(everything)))
        printed(world, *everything[world.title])
        spent = perf_counter() - began
        left = spent / (i + 1) * (len(chosen) - i - 1)
        print(f"{i + 1} of {len(chosen)} worlds, about {left / 60:.0f} min left", file=sys.stderr)
    verdicts({world.title: everything[world.title] for world in chosen})


if __name__ == "__main__":
    main()
