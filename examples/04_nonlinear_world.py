"""
4. Where rewards are not linear
===============================

Three rewards, and each has an ideal point: an arm pleases it the more the nearer it is. A linear
model sees in which direction the points lie, but not where. SquareCB explores with the predictions
of any regressor, so it can use one of scikit-learn that sees more.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.neural_network import MLPRegressor

import fairwolfe as fw
from fairwolfe.bandits import LinUCB, SquareCB
from fairwolfe.core.streams import stream
from fairwolfe.environments import Nonlinear
from fairwolfe.objectives import Minimum
from fairwolfe.oracles import SklearnRegressor

ROUNDS, SEEDS = 800, 4

# %%
# Two oracles
# -----------
#
# An estimator is given as it is; only its parameters are taken. It is fitted again whenever the
# observations have grown by a quarter.

forest = SklearnRegressor(RandomForestRegressor(n_estimators=10, min_samples_leaf=5))
network = SklearnRegressor(
    MLPRegressor(hidden_layer_sizes=(64,), learning_rate_init=0.02, max_iter=60)
)
print(forest)

# %%
# The policies
# ------------
#
# The smallest of three rewards is to be as large as possible. All policies are the same reduction;
# the last two differ from the second by the oracle alone. Models of scikit-learn are not compiled:
# the plain loop plays them, and says so in a warning that we have now read.

world, f = Nonlinear(), Minimum()
policies = {
    "FW-LinUCB": fw.FrankWolfe(f, LinUCB(exploration=0.1)),
    "FW-SquareCB, ridge": fw.FrankWolfe(f, SquareCB(gamma0=30.0)),
    "FW-SquareCB, forest": fw.FrankWolfe(f, SquareCB(gamma0=30.0, oracle=forest)),
    "FW-SquareCB, network": fw.FrankWolfe(f, SquareCB(gamma0=30.0, oracle=network)),
}
warnings.filterwarnings("ignore", "the plain loop is used")

# %%
# What they choose
# ----------------
#
# Two features of an arm vary, so a choice is a point in a square. Crosses are the ideal points.
# The linear model takes whatever lies far out in the right direction; the forest what is near.

seed = 0
drawn = world.init(stream(seed, "world"))
ideal = drawn.params[1:].reshape(world.n_objectives, -1)
met, _ = world.draw_contexts(drawn, stream(seed, "contexts"), ROUNDS)
figure, axes = plt.subplots(1, 2, figsize=(8.0, 4.2), sharey=True, layout="constrained")
for ax, name in zip(axes, ("FW-LinUCB", "FW-SquareCB, forest"), strict=True):
    trace = fw.simulate(policies[name], world, ROUNDS, seed, record_actions=True)
    chosen = met[np.arange(ROUNDS), trace.actions][ROUNDS // 2 :]
    ax.plot(chosen[:, 1], chosen[:, 2], "o", markersize=3, alpha=0.4, markeredgewidth=0)
    ax.plot(ideal[:, 0], ideal[:, 1], "kx", markersize=10, markeredgewidth=2.5)
    ax.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", xlabel="feature 1")
    ax.set_title(f"{name}: f = {trace.value[-1]:.2f}")
axes[0].set_ylabel("feature 2")
plt.show()

# %%
# The comparison
# --------------
#
# In the same worlds, with the same contexts and noise, beside the best value that is possible.

result = fw.compare(policies, world, horizon=ROUNDS, seeds=SEEDS)
optima = [fw.optimum(world, f, s) for s in result.seeds]
for row in result.table(optima):
    below = row["below_best_percent"]
    print(f"{row['policy']:21} {row['value']:.3f}, {below:.1f} % below the best")
for name in ("FW-SquareCB, forest", "FW-SquareCB, network"):
    mean, low, high = result.difference(name, "FW-LinUCB")
    print(f"{name} is better than FW-LinUCB by {mean:.3f} ({low:.3f} to {high:.3f})")

# %%
figure, ax = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
result.plot(ax, best=optima, scale="percent")
ax.set(xlim=(10, ROUNDS), ylim=(0.0, 105.0))
ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(0.0, 0.95))
plt.show()
