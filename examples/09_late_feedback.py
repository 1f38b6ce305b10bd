"""
9. Late feedback
================

What a click was worth is known later than the next decision has to be made; the state that decides
is a copy that is renewed now and then. What does that cost, and what does it help that decisions
count before their answer is there?
"""

import matplotlib.pyplot as plt
import numpy as np

import fairwolfe as fw
from fairwolfe.environments import FactorModel, dcg
from fairwolfe.objectives import GiniEquality, TwoSided
from fairwolfe.ranking import FWLinUCBRank
from fairwolfe.simulation import Comparison, Lateness
from fairwolfe.simulation.delays import ByOutcome, Geometric

ROUNDS, SEEDS = 2_000, 3

# %%
# A small catalogue
# -----------------
#
# Rankings of 15 items, clicks against equal exposure. A `Lateness` says how late feedback
# comes; the world, the users and the random draws do not depend on it.

world = FactorModel(12, 15, dcg(5), n_factors=3)
f = TwoSided(GiniEquality(), beta=0.5)
seeds = tuple(range(SEEDS))
best = [fw.optimum(world, f, seed).value for seed in seeds]


def play(lateness, anticipate=True):
    """The run of each seed."""
    policy = FWLinUCBRank(f, exploration=0.1, anticipate=anticipate)
    options = {"lateness": lateness, "scalar_regret": False}
    return tuple(fw.simulate(policy, world, ROUNDS, seed, **options) for seed in seeds)


def values(traces):
    """f at the horizon, for each seed."""
    return np.array([trace.value[-1] for trace in traces])


at_once = play(Lateness())

# %%
# Three ways to be late
# ---------------------
#
# By n rounds each; a random delay has the mean n, a snapshot is renewed every n decisions.
# Decisions that wait for their answer count by what they are expected to earn, unless
# ``anticipate=False``.

lengths = (10, 100, 1000)
families = {
    "constant delay": lambda n: Lateness(delay=n),
    "snapshot renewed every n": lambda n: Lateness(refresh=n),
    "random delay of mean n": lambda n: Lateness(delay=Geometric(n)),
}
played = {
    (name, anticipate): {n: play(family(n), anticipate) for n in lengths}
    for name, family in families.items()
    for anticipate in (True, False)
}
costs = {
    key: np.array([values(at_once) - values(runs[n]) for n in lengths])
    for key, runs in played.items()
}
for (name, anticipate), cost in costs.items():
    shown = ", ".join(f"{n:,}: {x:6.3f}" for n, x in zip(lengths, cost.mean(axis=1), strict=True))
    print(f"{name:26} anticipate={anticipate!s:6} costs in f  {shown}")

# %%
# Clicks come before their absence
# --------------------------------
#
# A click is reported after 10 rounds; that there was none is known after 100, when the window
# closes. Exposures and clicks of a decision are learnt together, so the model is not biased.

by_outcome = play(Lateness(delay=ByOutcome(click=10, no_click=100)))
cost = (values(at_once) - values(by_outcome)).mean()
print(f"{'10 if clicked, else 100':44} costs in f  {cost:.3f}")

# %%
# Two pictures
# ------------
#
# Where open decisions do not count (dotted), equal delays are the worst: a hundred decisions in a
# row favour the same items, because none of them knows what the others do. Where they do count,
# each knows what those before it will have done, about, and what is left of the cost is that the
# model learns later.

figure, (left, right) = plt.subplots(1, 2, figsize=(11.0, 4.8), layout="constrained")
colours = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#000000")
markers, dashes = ("o", "s", "D", "^", ""), ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
for name, colour, marker in zip(families, colours, markers, strict=False):
    for anticipate in (True, False):
        cost = costs[name, anticipate]
        mean = cost.mean(axis=1)
        spread = np.abs([mean - cost.min(axis=1), cost.max(axis=1) - mean])
        style = {"color": colour, "marker": marker, "linestyle": "-" if anticipate else ":"}
        label = name if anticipate else None
        left.errorbar(lengths, mean, spread, label=label, capsize=3.0, **style)
left.plot([], [], color="0.4", linestyle=":", label="anticipate=False")
left.axhline(0.0, color="0.6", linewidth=0.8)
left.set_xscale("log")
left.set_xlim(7, 1500.0)
left.set_xlabel("n, in rounds")
left.set_ylabel("cost: f at once - f late")
left.set_title(f"What lateness costs after {ROUNDS:,} rounds", loc="left")
left.legend(frameon=False, fontsize=9, loc="upper left")

shown = {
    "at once": at_once,
    "10 if clicked, else 100": by_outcome,
    "100 rounds": played["constant delay", True][100],
    "1,000 rounds": played["constant delay", True][1000],
    "100 rounds, anticipate=False": played["constant delay", False][100],
}
below = Comparison(shown, seeds)
for i, (name, traces) in enumerate(shown.items()):
    colour, dash = colours[i - 1], dashes[i - 1]
    missing = below.below_best(name, best)
    right.plot(traces[0].t, missing.mean(axis=0), color=colour, linestyle=dash, label=name)
    right.fill_between(
        traces[0].t, missing.min(axis=0), missing.max(axis=0), color=colour, alpha=0.12, linewidth=0
    )
right.set_xscale("log")
right.set_yscale("log")
right.set_xlim(10, ROUNDS)
right.set_ylim(1.5, 150.0)
right.set_yticks([2, 5, 10, 20, 50, 100], ["2 %", "5 %", "10 %", "20 %", "50 %", "100 %"])
right.minorticks_off()
right.set_xlabel("round")
right.set_ylabel("below the best possible f")
right.set_title("Feedback that comes after ...", loc="left")
right.legend(frameon=False, fontsize=9, loc="lower left")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
