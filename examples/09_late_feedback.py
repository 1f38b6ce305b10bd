"""
9. Late feedback
================

What a click was worth is known later than the next decision has to be made; the state that decides
is a copy that is renewed now and then; several servers each have a copy of their own. What does
that cost?
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
policy = FWLinUCBRank(f, exploration=0.1)
seeds = tuple(range(SEEDS))
best = [fw.optimum(world, f, seed).value for seed in seeds]


def play(lateness):
    """The run of each seed."""
    options = {"lateness": lateness, "scalar_regret": False}
    return tuple(fw.simulate(policy, world, ROUNDS, seed, **options) for seed in seeds)


def values(traces):
    """f at the horizon, for each seed."""
    return np.array([trace.value[-1] for trace in traces])


at_once = play(Lateness())

# %%
# Four ways to be late
# --------------------
#
# By n rounds each; a random delay has the mean n, a snapshot is renewed every n decisions, four
# replicas are merged every n decisions.

lengths = (10, 100, 1000)
families = {
    "constant delay": {n: play(Lateness(delay=n)) for n in lengths},
    "snapshot renewed every n": {n: play(Lateness(refresh=n)) for n in lengths},
    "4 replicas merged every n": {n: play(Lateness(replicas=4, merge=n)) for n in lengths},
    "random delay of mean n": {n: play(Lateness(delay=Geometric(n))) for n in lengths},
}
costs = {
    name: np.array([values(at_once) - values(family[n]) for n in lengths])
    for name, family in families.items()
}
for name, cost in costs.items():
    shown = ", ".join(f"{n:,}: {x:.3f}" for n, x in zip(lengths, cost.mean(axis=1), strict=True))
    print(f"{name:26} costs in f  {shown}")

# %%
# Clicks come before their absence
# --------------------------------
#
# A click is reported after 10 rounds; that there was none is known after 100, when the window
# closes. Exposures and clicks of a decision are learnt together, so the model is not biased.

by_outcome = play(Lateness(delay=ByOutcome(click=10, no_click=100)))
cost = (values(at_once) - values(by_outcome)).mean()
print(f"{'10 if clicked, else 100':26} costs in f  {cost:.3f}")

# %%
# Two pictures
# ------------
#
# Delays of a few rounds cost nothing to speak of. Equal delays are the worst: a hundred decisions
# in a row favour the same items, because none of them knows what the others do. With random delays,
# or with replicas that each know a part, decisions differ, and the same lateness costs a fraction.
# The rule of thumb 2 tau D^2/(beta_0 sqrt(T)) is far above, as worst cases are; its slope is about
# right until nearly all feedback is missing and nothing more can be lost.

figure, (left, right) = plt.subplots(1, 2, figsize=(11.0, 4.8), layout="constrained")
colours = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#000000")
markers, dashes = ("o", "s", "D", "^", ""), ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
looks = list(zip(colours, markers, dashes, strict=True))
for (name, cost), (colour, marker, dash) in zip(costs.items(), looks, strict=False):
    mean = cost.mean(axis=1)
    spread = np.abs([mean - cost.min(axis=1), cost.max(axis=1) - mean])
    style = {"color": colour, "marker": marker, "linestyle": dash, "capsize": 3.0}
    left.errorbar(lengths, mean, spread, label=name, **style)
about = {"problem": world, "objective": f, "horizon": ROUNDS, "tight": True}
ends = (1.0, 30.0)
rule = [fw.bounds.delay_cost(delay=n, **about) for n in ends]
left.plot(ends, rule, color="0.35", linewidth=1.0)
left.text(3.4, 0.3, "rule of thumb", color="0.35")
left.set_xscale("log")
left.set_yscale("log")
left.set_xlim(1.5, 1500.0)
left.set_ylim(2e-3, 2.0)
left.set_xlabel("n, in rounds")
left.set_ylabel("cost: f at once - f late")
left.set_title(f"What lateness costs after {ROUNDS:,} rounds", loc="left")
left.legend(frameon=False, fontsize=9, loc="lower right")

constant = families["constant delay"]
shown = {
    "at once": at_once,
    "10 rounds": constant[10],
    "10 if clicked, else 100": by_outcome,
    "100 rounds": constant[100],
    "1,000 rounds": constant[1000],
}
below = Comparison(shown, seeds)
for i, (name, traces) in enumerate(shown.items()):
    colour, _, dash = looks[i - 1]
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
