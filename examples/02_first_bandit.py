"""
2. A first bandit
=================

A router sends every request to one of five candidates. It earns a click or not, some minutes, and
costs money. Wanted: many clicks and minutes, at an average cost of at most two cents.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import fairwolfe as fw
from fairwolfe.objectives import AtMost, Linear

REQUESTS = 5_000

# %%
# A world to try it in
# --------------------
#
# In real life this part is your users. A candidate has twelve features; the good ones cost more.

world = np.random.default_rng(7)
click_rates = world.random(12)
minute_rates = 5.0 * world.random(12)
prices = 0.05 * np.clip(click_rates + 0.2 * world.normal(size=12), 0.0, 1.0)


def candidates() -> np.ndarray:
    """Five candidates: (arms, features), every row a mixture of twelve ingredients."""
    return world.dirichlet(np.full(12, 0.3), size=5)


def served(features: np.ndarray) -> dict[str, float]:
    """What comes back, with noise."""
    return {
        "clicks": float(world.random() < features @ click_rates),
        "minutes": float(world.uniform(0.0, 2.0) * (features @ minute_rates)),
        "cost": float(features @ prices),
    }


# %%
# The bandit
# ----------
#
# The problem names the rewards and their ranges. The objective says what is wanted of their
# *averages*: a budget is a ceiling, kept as a hard constraint.

problem = fw.Problem.arms(
    n_features=12, rewards={"clicks": (0, 1), "minutes": (0, 10), "cost": (0, 0.05)}
)
f = Linear({"clicks": 1.0, "minutes": 0.05}) + AtMost({"cost": 0.02})
agent = fw.Agent(f, problem, seed=0)

context = candidates()
decision = agent.act(context)
agent.update(decision, served(context[decision.action]))
print(decision.action, round(decision.probability, 3), agent.average.round(3))

# %%
# Feedback may come late and in any order: a decision carries what learning from it needs.

contexts = [candidates() for _ in range(3)]
waiting = [agent.act(context) for context in contexts]
for decision, context in reversed(list(zip(waiting, contexts, strict=True))):
    agent.update(decision, served(context[decision.action]))
print(agent.t, "rewards so far,", agent.open, "decisions wait")

# %%
# Five thousand requests
# ----------------------
#
# Beside it an agent without the budget, on requests of its own.

without = fw.Agent(agent.policy.with_objective(f.terms[0]), problem, seed=0)
path = {"with the budget": [], "without": []}
for name, one in zip(path, (agent, without), strict=True):
    for _ in range(REQUESTS):
        context = candidates()
        decision = one.act(context)
        one.update(decision, served(context[decision.action]))
        path[name].append(one.average)
    clicks, minutes, cost = one.average
    print(f"{name:16} {clicks:.3f} clicks, {minutes:.2f} minutes, {100 * cost:.2f} cents")

# %%
# The average cost comes down to the ceiling and stays there; clicks are given up for it.

figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.6), layout="constrained")
for ax, place, scale, label in ((axes[0], 2, 100.0, "cents"), (axes[1], 0, 1.0, "clicks")):
    for name, style in zip(path, ("-", "--"), strict=True):
        ax.plot(scale * np.array(path[name])[:, place], style, label=name)
    ax.set(xscale="log", xlabel="rewards", ylabel=f"average {label}")
axes[0].axhline(2.0, color="0.5", linewidth=1.0)
axes[1].legend(frameon=False)
plt.show()

# %%
# Stop and go on
# --------------
#
# A saved agent goes on where it stopped. The file holds arrays and JSON, nothing that runs.

with tempfile.TemporaryDirectory() as folder:
    agent.save(Path(folder) / "router.fw")
    again = fw.Agent.load(Path(folder) / "router.fw")
print(again.t == agent.t, again.value == agent.value)
