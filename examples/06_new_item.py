"""
6. A new item
=============

Catalogues change. An item that arrives late should get its share about as fast as those of the
first day did, and should not push the others out of the lists.
"""

import matplotlib.pyplot as plt
import numpy as np

import fairwolfe as fw
from fairwolfe.environments import FactorModel, dcg
from fairwolfe.objectives import GiniEquality, TwoSided
from fairwolfe.ranking import FWLinUCBRank

BEFORE, AFTER = 10_000, 5_000  # decisions without the new item, and with it

# %%
# A world whose last item is held back
# ------------------------------------
#
# Forty items, five slots. The agent knows 39 of them at first.

rng = np.random.default_rng(42)
users, items = (rng.gamma(0.5, size=(n, 4)) for n in (20, 40))
users /= np.linalg.norm(users, axis=1, keepdims=True)
items /= np.linalg.norm(items, axis=1, keepdims=True)
items *= rng.permutation(np.arange(1, 41))[:, None] ** -0.4
world = FactorModel(users, items, dcg(5))
tables, visits = world.init(rng), np.random.default_rng(0)

new = 39
f = TwoSided(GiniEquality(), beta=1.0)
share = fw.optimum(world, f).average[new]
problem = FactorModel(users, items[:new], dcg(5)).problem()
agent = fw.Agent(FWLinUCBRank(f, exploration=0.1), problem, seed=0, items=items[:new])


def serve(rounds: int) -> np.ndarray:
    """Which items were looked at, a row for each decision."""
    looked = np.zeros((rounds, 40))
    for t in range(rounds):
        context = world.context(tables, t + 1, visits)
        decision = agent.act(context.user)
        shown = world.feedback(tables, context, decision.action, visits)
        agent.update(decision, shown)
        looked[t, decision.action] = shown.exposed
    return looked


# %%
# The item arrives
# ----------------
#
# Its exposure is averaged over its own time. So it is shown at once, and as soon as it has had its
# share it waits its turn like the others. What it gets, a fortieth, is taken from all of them.

first = serve(BEFORE)
agent.add_items(items[new:])
then = serve(AFTER)


def rate(looked: np.ndarray) -> np.ndarray:
    """Exposure per decision, from the first row on."""
    return np.cumsum(looked, axis=0) / np.arange(1, len(looked) + 1)[:, None]


late, early = rate(then)[:, new], rate(first[:AFTER, :new])
for n in (10, 100, 1000):
    some = np.median(early[n - 1])
    print(f"after {n:4} decisions: new {late[n - 1]:.3f}, day-one items {some:.3f} ({share:.3f})")
change = 100.0 * (then[:, :new].mean(axis=0) / first[:, :new].mean(axis=0) - 1.0)
print(f"the others' exposure: {change.mean():.1f} %, at worst {change.min():.1f} %")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 3.8), layout="constrained")
blue, orange, grey = "#0072B2", "#E69F00", "0.75"
t = np.arange(1, AFTER + 1)
typical = int(np.argsort(early[-1])[new // 2])
left.fill_between(t, early.min(axis=1), early.max(axis=1), color=grey, label="day-one items", lw=0)
left.plot(t, early[:, typical], color=orange, label="one of them")
left.plot(t, late, color=blue, label=f"the new item, since t = {BEFORE:,}")
left.axhline(share, color="black", linewidth=0.8, linestyle="--", label="fair share")
left.set(xscale="log", ylim=(0.0, 4.0 * share), xlabel="decisions since arrival")
left.set(ylabel="exposure per decision", title="As fast as on the first day", xlim=(1, AFTER))
left.legend(frameon=False, fontsize=9)

window = 1000
everything = np.cumsum(np.concatenate([np.zeros((1, 40)), first, then]), axis=0)
moving = (everything[window:] - everything[:-window]) / window
ends = np.arange(window, len(everything))
lately = ends > BEFORE - AFTER
others = moving[lately, :new]
right.fill_between(
    ends[lately], others.min(axis=1), others.max(axis=1), color=grey, label="the 39 others", lw=0
)
right.plot(ends[lately], others.mean(axis=1), color="0.35", label="their mean")
recent = np.minimum(window, t)  # it has no longer past than this
young = (everything[BEFORE + t, new] - everything[BEFORE + t - recent, new]) / recent
right.plot(BEFORE + t[50:], young[50:], color=blue, label="the new item")
right.axhline(share, color="black", linewidth=0.8, linestyle="--")
right.axvline(BEFORE, color="black", linewidth=0.8)
right.set(ylim=(0.0, 2.0 * share), xlabel="decisions", title="The others keep theirs")
right.set(ylabel=f"exposure per decision, last {window:,}")
right.legend(frameon=False, fontsize=9, loc="lower left")
plt.show()
