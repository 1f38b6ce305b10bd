"""
7. How far from the best
========================

What is known of the distance to the best reachable value f*? In two worlds so small that theorems
say something about them: the regret itself (which only a simulation knows), the bound of the
theorem (known before anything is played), and the live numbers of the running agent (known from
its own decisions, without knowing the world).
"""

import matplotlib.pyplot as plt
import numpy as np

import fairwolfe as fw
from fairwolfe.bandits import LinUCB
from fairwolfe.core.streams import stream
from fairwolfe.environments import Finite
from fairwolfe.objectives import AtLeast, AtMost, Minimum

ROUNDS = 30_000

# %%
# Two worlds
# ----------
#
# In the first the average of one reward is to be one half; in the second the smaller of two rewards
# counts. Theorems need to know how long parameters can be.

worlds = {
    "one reward, to be .5": (
        Finite.a1(),
        AtLeast(0.5, penalty=1.0) + AtMost(0.5, penalty=1.0),
        0.0,
    ),
    "two rewards, the smaller counts": (Finite.a2(), Minimum(), 0.5),
}

# %%
# A running agent
# ---------------
#
# The agent meets the world through ``act`` and ``update`` alone. ``live()`` is asked now and then.


def play(world, f, rounds):
    """Rounds, and then: f so far, and the live numbers."""
    agent = fw.Agent(fw.FrankWolfe(f, LinUCB(exploration="theorem")), world.problem())
    state = world.init(stream(0, "world"))
    contexts, noise = stream(0, "contexts"), stream(0, "noise")
    looks = set(np.geomspace(100, rounds, 40).astype(int).tolist())
    rows = []
    for t in range(1, rounds + 1):
        context = world.context(state, t, contexts)
        decision = agent.act(context)
        agent.update(decision, world.feedback(state, context, decision.action, noise))
        if t in looks:
            live = agent.live()
            numbers = (live.value, live.about, live.low, live.high, live.at_most)
            rows.append([t, *(np.nan if x is None else x for x in numbers)])
    print(live)
    return np.array(rows).T


# %%
# One axis
# --------
#
# Everything as a distance from f of what was earned so far. The estimate *about* is close to the
# truth at once; the guarantee *at most* follows at a distance that shrinks; the theorem, which
# knows nothing of the run, is last.

figure, axes = plt.subplots(1, 2, figsize=(11.0, 4.4), layout="constrained", sharey=True)
for ax, (name, (world, f, best)) in zip(axes, worlds.items(), strict=True):
    t, value, about, low, high, at_most = play(world, f, ROUNDS)
    policy = fw.FrankWolfe(f, LinUCB(exploration="theorem"))
    bound = [float(fw.bounds.of(policy, world, int(T), tight=True)) for T in t]
    ax.plot(t, bound, color="#D55E00", linestyle="--", label="bound of the theorem (tight form)")
    ax.plot(t, at_most - value, color="#CC79A7", linestyle="-.", label="live: at most")
    ax.plot(t, about - value, color="#0072B2", label="live: about, 95 % interval")
    ax.fill_between(t, low - value, high - value, color="#0072B2", alpha=0.2, linewidth=0)
    ax.plot(t, best - value, color="black", linestyle=":", label="the regret itself")
    ax.set_xscale("log")
    ax.set_yscale("symlog", linthresh=0.01)
    ax.set_ylim(-0.02, 3.0)
    ax.set_xlabel("decision")
    ax.set_title(name, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("above f of what was earned so far")
axes[0].legend(frameon=False, fontsize=9)
plt.show()
