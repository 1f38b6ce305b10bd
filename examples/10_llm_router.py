"""
10. The cheapest mix of models
==============================

Every prompt can be answered by one of five language models; better ones cost more. Wanted: the
cheapest mix whose answers are at least 90 % as good, on average, as those of the best model. That
is a hard constraint, and no penalty has to be chosen for it: its price is found on the way.
"""

import matplotlib.pyplot as plt
import numpy as np

import fairwolfe as fw
from fairwolfe.bandits import LinUCB
from fairwolfe.objectives import AtLeast, Linear

PROMPTS = 20_000

# %%
# A table of prompts and models
# -----------------------------
#
# In real life this is your log. A prompt is of one of four kinds and more or less difficult; a
# model has a price per prompt in cents, a quality for each kind, and loses some of it on difficult
# prompts. What comes back is a grade between 0 and 1.

table = np.random.default_rng(3)
kinds = ["chat", "summary", "code", "maths"]
models = ["nano", "small", "coder", "large", "frontier"]
cents = np.array([0.1, 0.3, 0.5, 1.5, 4.0])
quality = np.array(
    [
        [0.80, 0.70, 0.35, 0.20],  # nano
        [0.88, 0.80, 0.50, 0.40],
        [0.70, 0.65, 0.90, 0.60],
        [0.92, 0.90, 0.80, 0.75],
        [0.95, 0.94, 0.93, 0.92],  # frontier
    ]
)
lost = np.array([0.30, 0.25, 0.15, 0.10, 0.03])  # on the most difficult prompts

kind = table.choice(4, p=[0.4, 0.3, 0.2, 0.1], size=PROMPTS)
difficulty = table.beta(1.5, 3.0, size=PROMPTS)
grades = quality[:, kind].T - lost * difficulty[:, None]  # (prompts, models), expected
prompts = np.column_stack([np.eye(4)[kind], difficulty])

# %%
# The router
# ----------
#
# The least cost, with a floor under the quality: two terms. Every model learns parameters of its
# own for the features of a prompt (``PerArm``), so each must be tried: ``"pointwise"`` exploration
# sees to that.

level = 0.9 * grades.mean(axis=0).max()
f = Linear({"cost": -1.0}) + AtLeast({"quality": level})
problem = fw.Problem.arms(
    n_features=5, rewards={"quality": (0, 1), "cost": (0, 4)}, n_arms=5, feature_norm=1.5
)
router = fw.Agent(fw.FrankWolfe(f, LinUCB(exploration="pointwise")), problem, arms=models)

path, used = np.empty((PROMPTS, 2)), np.zeros((4, 5))
for t in range(PROMPTS):
    decision = router.act(fw.PerArm(prompts[t]))
    grade = np.clip(grades[t, decision.action] + 0.1 * table.normal(), 0.0, 1.0)
    router.update(decision, {"quality": grade, "cost": cents[decision.action]})
    path[t] = router.average
    used[kind[t], decision.action] += 1

for constraint in router.constraints:
    print(constraint)

# %%
# The last words are the shadow price: cents a prompt for a whole unit of quality. Floors change
# by points, so a hundredth of it is the number to show to whoever set the floor.

(floor,) = router.constraints
saved = 0.01 * floor.shadow_price
print(f"one point of quality less would save about {saved:.3f} cents a prompt,")
print(f"which is {100 * saved / router.average[1]:.0f} % of what a prompt costs now")

# %%
# Beside it
# ---------
#
# What one model alone does, and the best that is possible if all expected grades were known: for a
# price p of quality every prompt goes where p grade - cost is largest, and p is as low as the
# floor allows.


def mix(price: float) -> np.ndarray:
    """Quality and cost of the best mix for a price."""
    best = (price * grades - cents).argmax(axis=1)
    return np.array([grades[np.arange(PROMPTS), best].mean(), cents[best].mean()])


low, high = 0.0, 1_000.0
for _ in range(60):
    middle = 0.5 * (low + high)
    low, high = (middle, high) if mix(middle)[0] < level else (low, middle)
possible = mix(high)
rows = {name: (grades[:, i].mean(), cents[i]) for i, name in enumerate(models)}
rows |= {"router": tuple(router.average), "best possible": tuple(possible)}
for name, (good, cost) in rows.items():
    kept = "kept" if good >= level - 1e-3 else "missed"
    print(f"{name:14} quality {good:.3f} ({kept:6}) {cost:.3f} cents")
print(f"price of the floor: {floor.shadow_price:.2f} found, {high:.2f} at the best possible mix")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
left.plot(np.arange(1, PROMPTS + 1), path[:, 0], color="#0072B2", label="quality")
left.axhline(level, color="#0072B2", linestyle="--", linewidth=1.0, label="its floor")
left.plot(np.arange(1, PROMPTS + 1), path[:, 1], color="#D55E00", label="cents a prompt")
left.axhline(
    possible[1], color="#D55E00", linestyle="--", linewidth=1.0, label="the least possible"
)
left.set(
    xscale="log", xlabel="prompts", xlim=(10, PROMPTS), ylim=(0.0, 2.0), title="Averages so far"
)
left.legend(frameon=False)
shares, bottom = used / used.sum(axis=1, keepdims=True), np.zeros(4)
colors = ("#56B4E9", "#009E73", "#F0E442", "#E69F00", "#CC79A7")
for i, (name, color) in enumerate(zip(models, colors, strict=True)):
    right.bar(kinds, shares[:, i], 0.7, bottom, color=color, label=name)
    bottom += shares[:, i]
right.set(ylabel="share of the prompts", title="Who answers what")
right.legend(frameon=False, bbox_to_anchor=(1.0, 0.5), loc="center left")
plt.show()
