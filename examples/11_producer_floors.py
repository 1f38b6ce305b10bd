"""
11. A floor for every producer
==============================

Forty items belong to eight producers, some of them popular, some not. The rule: every producer has
at least 8 % of the exposure. Example 5 makes producers as equal as possible; a floor says how much
is enough, and leaves the rest to the clicks.
"""

import matplotlib.pyplot as plt
import numpy as np

import fairwolfe as fw
from fairwolfe.environments import FactorModel, dcg
from fairwolfe.objectives import AtLeast, ByGroup, Linear
from fairwolfe.ranking import FWLinUCBRank

ROUNDS = 30_000

# %%
# Users, items, producers
# -----------------------
#
# Five items at a time are shown; a user clicks an exposed item with probability u.v. The items are
# in the order of their popularity, and the first producer owns the five most popular ones.

rng = np.random.default_rng(1)
users, items = (rng.gamma(0.5, size=(n, 4)) + 1e-9 for n in (30, 40))
users /= np.linalg.norm(users, axis=1, keepdims=True)
items *= np.arange(1.0, 41.0)[:, None] ** -0.4 / np.linalg.norm(items, axis=1, keepdims=True)
world = FactorModel(users, items, position_weights=dcg(5))
producers = [f"producer {1 + i // 5}" for i in range(40)]
names = list(dict.fromkeys(producers))


def shares(average: np.ndarray) -> np.ndarray:
    """Of each producer, of all exposure."""
    return average[:-1].reshape(8, 5).sum(axis=1) / average[:-1].sum()


# %%
# With and without floors
# -----------------------
#
# ``ByGroup`` adds up the exposures of each producer's items, and ``AtLeast`` keeps every sum at or
# above 8 % of the whole.

clicks = Linear({"clicks": 1.0})
objectives = {
    "no floors": clicks,
    "floors of 8 %": clicks + ByGroup(AtLeast(0.08, share=True), producers),
}
best, learnt = {}, {}
for name, f in objectives.items():
    best[name] = fw.optimum(world, f)
    trace = fw.simulate(FWLinUCBRank(f, exploration=0.1), world, ROUNDS)
    learnt[name] = trace.average_observed[-1]
    print(
        f"{name:14} {learnt[name][-1]:.3f} clicks a ranking, {best[name].average[-1]:.3f} at best"
    )
    print(
        f"{'':14} the least producer has {100 * shares(learnt[name]).min():.2f} % of the exposure"
    )

# %%
# ``trace.violation`` is how far the worst producer was below its floor, in shares of the exposure.
# The floors are missed by a little at first, and less and less.

for t in (100, 1_000, 10_000):
    if t <= ROUNDS:
        short = trace.violation[np.searchsorted(trace.t, t)]
        print(f"after {t:6,} rankings: {100 * short:.2f} % of the exposure short")

# %%
# What each floor costs
# ---------------------
#
# A running agent says so. The shadow price of a floor is in clicks a ranking, for all of the
# exposure; a hundredth of it is what lowering the floor by one point (to 7 %) would bring. The less
# popular a producer, the more its floor costs; the first one has a floor that does not bind.

agent = fw.Agent(
    FWLinUCBRank(objectives["floors of 8 %"], exploration=0.1), world.problem(), items=items
)
seen = np.random.default_rng(2)
weights = np.array(dcg(5))
for user in users[seen.integers(30, size=ROUNDS // 10)]:
    decision = agent.act(user)
    ranking = np.array(decision.action)
    exposed = ranking[seen.random(5) < weights]
    clicked = exposed[seen.random(exposed.size) < items[exposed] @ user]
    agent.update(decision, exposed=exposed, clicked=clicked)
for constraint in agent.constraints:
    print(constraint)

# %%
figure, (left, right) = plt.subplots(
    1, 2, figsize=(9.5, 3.8), layout="constrained", width_ratios=(3, 1)
)
places = np.arange(8)
for i, (name, color) in enumerate(zip(objectives, ("0.65", "#0072B2"), strict=True)):
    at = places + (i - 0.5) * 0.4
    left.bar(at, shares(learnt[name]), 0.36, color=color, label=name)
    (line,) = left.plot(at, shares(best[name].average), "_", color="black", markersize=14)
    right.bar(i, learnt[name][-1], 0.6, color=color)
    right.plot(i, best[name].average[-1], "_", color="black", markersize=34)
left.axhline(0.08, color="#D55E00", linewidth=1.0, linestyle="--")
left.set_xticks(places, [name.split()[1] for name in names])
left.set(xlabel="producer", ylabel="share of all exposure", title="Who is seen")
line.set_label("at best")
left.legend(frameon=False)
right.set_xticks(range(2), objectives)
right.set(ylabel="clicks per ranking", title="What it costs")
plt.show()
