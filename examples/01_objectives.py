"""
1. What each objective prefers
==============================

Two rewards, clicks and minutes, can be traded against each other. An objective says which of the
averages that can be reached is the best one. Here every objective walks to its own.
"""

import matplotlib.pyplot as plt
import numpy as np

from fairwolfe.cli.demos import preferences
from fairwolfe.core.problem import Problem
from fairwolfe.objectives import AtLeast, GiniWelfare, Linear, Minimum
from fairwolfe.smoothing import Moreau

# %%
# An objective is a function of the averages
# ------------------------------------------
#
# It has a value, a supergradient, and a Lipschitz constant. The supergradient tells how much a
# little more of each reward is worth at this point.

z = np.array([0.6, 0.3])
for f in (Linear([1.0, 1.0]), GiniWelfare(), Minimum()):
    print(f"{f!s:32} value {f.value(z):.2f}, a little more is worth {f.gradient(z)}")

# %%
# Objectives are added, multiplied by numbers and aimed at some of the rewards. Names become
# coordinates once there is a problem.

problem = Problem.arms(n_features=3, rewards={"clicks": (0, 1), "minutes": (0, 1)})
f = Linear({"clicks": 1.0, "minutes": 1.0}) + 2 * AtLeast({"minutes": 0.5}, penalty=3.0)
print(round(f.bind(problem).value(z), 6))  # 0.9, minus twice three times the missing 0.2

# %%
# Kinks are smoothed
# ------------------
#
# At a kink the supergradient jumps, and an algorithm that follows it would wander. Policies follow
# the gradient of a smooth approximation instead, whose width shrinks as rewards come in.

equal = np.array([0.4, 0.41])
for t in (0, 100, 10_000):
    direction = Moreau(beta0=1.0).gradient(Minimum(), equal, t)
    print(f"after {t:6} rewards the minimum points to {direction.round(3)}")

# %%
# Every objective walks to the point it prefers
# ---------------------------------------------
#
# Only the corners of the set of reachable averages are ever asked for: the best corner for a
# direction is what a bandit learns to find.

walks = list(preferences.walks())
for walk in walks:
    clicks, minutes = walk.point
    print(f"{walk.panel.name:24} {clicks:.2f} clicks, {minutes:.2f} minutes: {walk.panel.words}")

# %%
# The points on one frontier, from "only the total counts" to "only the worse reward counts". The
# command ``fairwolfe demo objectives`` draws each with its level lines and its way there.

figure, ax = plt.subplots(figsize=(7.0, 4.5), layout="constrained")
ax.fill(*preferences.reachable().T, color="0.92")
by_minutes = sorted(walks, key=lambda walk: -walk.point[1])
for walk, height in zip(by_minutes, np.linspace(0.66, 0.1, len(walks)), strict=True):
    ax.annotate(
        walk.panel.name,
        walk.point,
        (1.0, height),
        va="center",
        arrowprops={"arrowstyle": "-", "color": "0.7", "linewidth": 0.7, "relpos": (0.0, 0.5)},
    )
    ax.plot(*walk.point, "o", color="#0072B2")
ax.set(xlim=(0.0, 1.4), xlabel="clicks", ylabel="minutes", title="What each objective prefers")
plt.show()
