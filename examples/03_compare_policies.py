"""
3. Compare policies
===================

Five rewards, twenty arms, and an objective that counts a reward the more the worse it is: the
synthetic music world of the paper. Four policies meet the same worlds, and the best value that any
policy can reach there is known exactly.
"""

import matplotlib.pyplot as plt

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB
from fairwolfe.environments import Mehrotra
from fairwolfe.objectives import Linear
from fairwolfe.oracles import Ridge
from fairwolfe.smoothing import Moreau

ROUNDS, SEEDS = 3_000, 5

# %%
# One run
# -------
#
# ``simulate`` plays a policy in the world of a seed. ``value`` is f of the average expected reward.

world = Mehrotra(n_arms=20, n_objectives=5, n_features=10)
f = world.objective()
smoothing = Moreau(beta0=0.01)
policy = fw.FrankWolfe(f, SquareCB(gamma0=1e4, oracle=Ridge(0.1)), smoothing)
trace = fw.simulate(policy, world, horizon=1000, seed=0)
print(f"f = {trace.value[-1]:.3f} after {trace.t[-1]} rounds, compiled: {trace.compiled}")

# %%
# The truth
# ---------
#
# ``optimum`` encloses the best value between two bounds. Here they are exact, because this world
# knows the set of averages that can be reached.

best = fw.optimum(world, f, seed=0)
print(f"{best.value:.4f} <= f* <= {best.upper_bound:.4f}")
print(f"the run is {100 * (1 - trace.value[-1] / best.value):.1f} % below it")

# %%
# A fair comparison
# -----------------
#
# Policies with one seed meet the same world, the same contexts and the same noise. Fixed weights
# are a policy like the others: Frank-Wolfe over a linear function.

weights = Linear([1.0 / world.n_objectives] * world.n_objectives)
policies = {
    "FW-SquareCB": policy,
    "FW-LinUCB": fw.FrankWolfe(f, LinUCB(exploration=0.1, ridge=0.1), smoothing),
    "FW-epsilon-greedy": fw.FrankWolfe(f, EpsilonGreedy(0.01, oracle=Ridge(0.1)), smoothing),
    "LinUCB, fixed weights": fw.FrankWolfe(weights, LinUCB(exploration=0.1, ridge=0.1)),
}
result = fw.compare(policies, world, horizon=ROUNDS, seeds=SEEDS, objective=f)
optima = [fw.optimum(world, f, seed) for seed in result.seeds]
for row in result.table(optima):
    below = row["below_best_percent"]
    print(f"{row['policy']:22} {row['value']:.3f}, {below:.1f} % below the best")

# %%
# Differences are paired by seed, so their interval is much narrower than those of the values.

mean, low, high = result.difference("FW-SquareCB", "LinUCB, fixed weights")
print(f"FW-SquareCB is better than fixed weights by {mean:.3f} ({low:.3f} to {high:.3f})")

# %%
figure, ax = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
result.plot(ax, best=optima, scale="percent")
ax.set(xlim=(10, ROUNDS), ylim=(90.0, 100.5))
plt.show()
