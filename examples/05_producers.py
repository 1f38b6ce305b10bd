"""
5. Fair to producers
====================

Thirty items belong to three producers, who own 3, 9 and 18 of them. Who should be seen how often?
Three answers, the most clicks, equal items, equal producers, and what each of them costs.
"""

import matplotlib.pyplot as plt
import numpy as np

import fairwolfe as fw
from fairwolfe.environments import FactorModel, dcg
from fairwolfe.objectives import ByGroup, GiniEquality, TwoSided
from fairwolfe.ranking import FWLinUCBRank

ROUNDS = 20_000

# %%
# A world of users and items
# --------------------------
#
# Users and items have factors; a user clicks an item that is looked at with probability u.v. Five
# items are shown at a time, and the lower a slot, the less it is looked at.

world = FactorModel(users=20, items=30, position_weights=dcg(5), n_factors=4)
producers = ["small"] * 3 + ["middle"] * 9 + ["large"] * 18

# %%
# Three objectives
# ----------------
#
# All of them count the clicks. The second subtracts how unequally *items* are exposed, the third
# how unequally *producers* are: ``ByGroup`` adds up the exposures of each producer's items.

objectives = {
    "most clicks": TwoSided(GiniEquality(), beta=0.0),
    "equal items": TwoSided(GiniEquality(), beta=3.0),
    "equal producers": TwoSided(ByGroup(GiniEquality(), producers), beta=1.0),
}
names = list(dict.fromkeys(producers))


def exposures(average: np.ndarray) -> np.ndarray:
    """Of each producer, as a share of all exposure."""
    totals = [average[:-1][np.array(producers) == name].sum() for name in names]
    return np.array(totals) / sum(totals)


# %%
# Learnt, and what is possible
# ----------------------------
#
# ``optimum`` gives the best value that any policy can reach, between two certified bounds, and the
# averages of a policy that reaches it. The policies learn from what users look at and click.

learnt, best = {}, {}
for name, f in objectives.items():
    trace = fw.simulate(FWLinUCBRank(f, exploration=0.1), world, horizon=ROUNDS, seed=0)
    learnt[name], best[name] = trace.average[-1], fw.optimum(world, f, seed=0)
    clicks, possible = learnt[name][-1], best[name].average[-1]
    shares = ", ".join(f"{100 * share:.0f} %" for share in exposures(learnt[name]))
    print(f"{name:16} {clicks:.3f} clicks, {possible:.3f} at the optimum; exposure {shares}")

# %%
# Equal items give the large producer 60 % of the exposure, since it owns 60 % of the items. Equal
# producers cost some clicks, and nobody can have equality cheaper: that is what the bounds say.

most, fair, f = best["most clicks"], best["equal producers"], objectives["equal producers"]
print(f"{fair.value:.4f} <= f* <= {fair.upper_bound:.4f}")
print(f"its price at best: {100 * (1 - fair.average[-1] / most.average[-1]):.1f} % of the clicks")
print(f"learnt: {100 * f.value(learnt['equal producers']) / fair.value:.1f} % of f*")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
places, width = np.arange(len(names)), 0.26
colors = {"most clicks": "0.65", "equal items": "#E69F00", "equal producers": "#0072B2"}
for i, (name, color) in enumerate(colors.items()):
    at = places + (i - 1) * width
    left.bar(at, exposures(learnt[name]), 0.9 * width, color=color, label=name)
    left.plot(at, exposures(best[name].average), "_", color="black", markersize=14)
    right.bar(i, learnt[name][-1], 0.6, color=color)
    (line,) = right.plot(i, best[name].average[-1], "_", color="black", markersize=34)
left.set_xticks(places, [f"{name} ({producers.count(name)} items)" for name in names])
left.set(ylabel="share of all exposure", title="Who is seen")
left.legend(frameon=False)
right.set_xticks(range(3), objectives)
right.set(ylabel="clicks per ranking", title="What it costs")
right.set_ylim(0.0, 2.0)
right.legend([line], ["at the optimum"], frameon=False, markerscale=0.5)
plt.show()
