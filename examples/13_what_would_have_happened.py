"""
13. What would have happened
============================

A shop has logged what it recommended for a month, and with which probabilities. Somebody asks: what
would another policy have earned, and what if the aim had been fair to all three sides, the buyers,
the sellers and the shop? Nothing is deployed for the answer: the log is enough.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy
from fairwolfe.objectives import Linear, Minimum
from fairwolfe.offpolicy import Log

VISITS = 6_000

# %%
# A month of decisions
# --------------------
#
# Six offers at a time, four features each; what a buyer saves, a seller sells and the shop earns
# depends on the offer. The running agent maximises the shop's profit and explores a fifth of the
# time. ``agent.log(path)`` is all that is needed to keep what happened.

rng = np.random.default_rng(3)
rewards = {"savings": (0, 1), "sales": (0, 1), "profit": (0, 1)}
problem = fw.Problem.arms(4, rewards, feature_norm=2.0)
theta = np.array([[0.5, 0.1, 0.1, 0.2], [0.1, 0.5, 0.1, 0.2], [0.1, 0.1, 0.5, 0.2]])
profit = Linear({"profit": 1.0})
agent = fw.Agent(fw.FrankWolfe(profit, EpsilonGreedy(0.2)), problem)
path = Path(tempfile.mkdtemp()) / "month.jsonl"
agent.log(path)
for _ in range(VISITS):
    offers = rng.random((6, 4))
    decision = agent.act(offers)
    agent.update(decision, (rng.random(3) < theta @ offers[decision.action]).astype(float))

# %%
# Can the log be used?
# --------------------

log = Log.of(path)
print(log.check())

# %%
# Another policy
# --------------
#
# "Always the offer with the largest discount", the first feature: a function of a context. ``f`` is
# the least of the three averages, so that nobody is forgotten. The interval holds at the kink of
# the minimum too, where the usual ones fail.

f = Minimum()
discount = log.evaluate(lambda offers: int(np.argmax(offers[:, 0])), f)
print(discount)

# %%
# The best policy for f
# ---------------------
#
# ``learn`` finds a mixture for f. What it would have earned is estimated on decisions that it did
# not learn from. Is that more than what was logged? On decisions that have taught nothing, again.

found = log.learn(f)
print(found.estimate.sentence)
early, late = log.split()
print(late.compare(early.learnt(f), "logged", f).sentence)

# %%
# Profit against the rest
# -----------------------
#
# The same for several weights of fairness: the frontier, from the log alone.

frontier = log.tradeoff([0.0, 0.3, 1.0, 3.0], fair=Minimum(), users=profit)
rows = frontier.table()
fig, ax = plt.subplots(figsize=(6.0, 4.0), layout="constrained")
fair, earned = ([row[name] for row in rows] for name in ("fair", "users"))
errors = [
    [[row[name] - row[f"{name}_low"], row[f"{name}_high"] - row[name]] for row in rows]
    for name in ("fair", "users")
]
bars = {"xerr": np.abs(np.array(errors[0]).T), "yerr": np.abs(np.array(errors[1]).T)}
ax.errorbar(fair, earned, **bars, marker="o", linestyle="--", elinewidth=0.8)
for row in rows:
    ax.annotate(f"{row['beta']:g}", (row["fair"], row["users"]), (5, 5), textcoords="offset points")
ax.set_xlabel("the least of savings, sales and profit")
ax.set_ylabel("profit")
ax.set_title("Policies learnt from the log, by the weight of fairness")

# %%
# Going live
# ----------
#
# An agent whose regression has learnt the log starts with what is known, and its averages at zero;
# the mixture itself can be saved and played as it is.

new = log.agent(f, EpsilonGreedy(0.1))
found.save(path.with_suffix(".npz"))
offers = rng.random((6, 4))
print(new.act(offers).action, fw.Agent(found, problem).act(offers).action)
