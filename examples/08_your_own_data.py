"""
8. Your own data
================

A table that says who played what how often is enough: it becomes a world in which ranking policies
can be tried before any user meets them. What would fairness to the songs cost here, and how fast is
it learnt?
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import fairwolfe as fw
from fairwolfe.environments import Listening, dcg
from fairwolfe.objectives import GiniWelfare, TwoSided
from fairwolfe.ranking import FWLinUCBRank, LinUCBRank

ROUNDS = 30_000

# %%
# A table
# -------
#
# Three columns: a user, an item, a count. Here it is made up: 200 listeners, who each like one of
# four genres most, and 80 songs, a few of which everybody knows. Put the path of your own here.

table = Path(tempfile.mkdtemp(prefix="fairwolfe-")) / "plays.csv"
rng = np.random.default_rng(0)
genre, fame = rng.integers(4, size=80), rng.permutation(np.arange(1, 81) ** -0.7)
with table.open("w") as file:
    print("listener,song,plays", file=file)
    for listener in range(200):
        appeal = fame * np.where(genre == listener % 4, 6.0, 1.0)
        plays = rng.poisson(150 * appeal / appeal.sum())
        for song in np.flatnonzero(plays):
            print(f"listener{listener},song{song},{plays[song]}", file=file)

# %%
# A world
# -------
#
# The 100 listeners and the 40 songs with the most plays. ``notes`` says how the table was
# understood; a row that makes no sense is an error that names its line.

world = Listening(table, users=100, items=40, position_weights=dcg(5), factors=6)
print(*(note.replace(str(table), table.name) for note in world.notes), sep="\n")
print(f"{len(world.user_ids)} users, {len(world.item_ids)} items; the first is {world.item_ids[0]}")

# %%
# What is possible
# ----------------
#
# The objective: clicks, and the exposure of the songs, where the least seen count most. ``optimum``
# gives the best value that any policy can reach, between certified bounds.

f = TwoSided(GiniWelfare(), beta=0.2)
best = fw.optimum(world, f)
most = fw.optimum(world, TwoSided(GiniWelfare(), beta=0.0))
price = 1 - best.average[-1] / most.average[-1]
print(f"{best.value:.4f} <= f* <= {best.upper_bound:.4f}, at {100 * price:.1f} % fewer clicks")

# %%
# What fairness costs
# -------------------
#
# For several beta at once, in words; ``fairwolfe tradeoff plays.csv`` does the same from a shell.

trade = fw.tradeoff(world, "gini", betas=(0, 0.05, 0.2, 1), floors=(), horizon=ROUNDS // 3, seeds=1)
print(*trade.sentences(), sep="\n")

# %%
# What is learnt
# --------------
#
# Both policies start from nothing and see clicks only. One of them cares for clicks alone.

policies = {
    "clicks and exposure": FWLinUCBRank(f, exploration=0.1),
    "clicks": LinUCBRank(exploration=0.1),
}
learnt = {
    name: fw.simulate(policy, world, horizon=ROUNDS, seed=0, objective=f)
    for name, policy in policies.items()
}
for name, trace in learnt.items():
    reached, half = trace.value[-1] / best.value, trace.bottom_half[-1]
    print(f"{name:20} {trace.utility[-1]:.3f} clicks, {100 * reached:.1f} % of f*", end="; ")
    print(f"the less seen half of the songs has {100 * half:.0f} % of the exposure")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
for (name, trace), color in zip(learnt.items(), ("#0072B2", "0.65"), strict=True):
    left.plot(trace.t, trace.value, color=color, label=name)
    right.plot(np.sort(trace.average[-1][:-1])[::-1], color=color, label=name)
left.axhline(best.value, color="black", linestyle=":", label="the best reachable")
left.set(xscale="log", xlabel="rankings shown", ylabel="f", title="How fast it is learnt")
left.set_ylim(0.75 * best.value, 1.03 * best.value)
left.legend(frameon=False, loc="lower right")
right.plot(np.sort(best.average[:-1])[::-1], color="black", linestyle=":")
right.set(xlabel="songs, most seen first", ylabel="exposure per ranking", title="Who is seen")
plt.show()
