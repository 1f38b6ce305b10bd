"""
12. A shop: margin, returns, makers
===================================

A web shop shows an offer on every product page. It wants clicks and margin, at most 8 % of the
orders may come back, and what comes back is known two weeks later. Its front page should be fair to
the makers of the products, who come and go. :doc:`/shop` puts the same shop in front of a service.
"""

from collections import deque

import matplotlib.pyplot as plt
import numpy as np

import fairwolfe as fw
from fairwolfe.objectives import AtMost, ByGroup, GiniEquality, Linear, TwoSided

DAYS, VISITS = 120, 250  # visits a day

# %%
# Products and customers
# ----------------------
#
# Products are dictionaries, as the shop has them. What customers do is unknown to the agents:
# members send back one order of shoes in eight, new customers one in three.

products = {
    "tea": {"category": "food", "price": 9},
    "honey": {"category": "food", "price": 12},
    "novel": {"category": "books", "price": 15},
    "atlas": {"category": "books", "price": 40},
    "sneakers": {"category": "shoes", "price": 70},
    "boots": {"category": "shoes", "price": 90},
}
makers = {"tea": "Leaf", "honey": "Leaf", "novel": "Ink", "atlas": "Ink"}
makers |= {"sneakers": "Stride", "boots": "Stride"}
clicks_of = {"food": 0.22, "books": 0.27, "shoes": 0.35}
returns_of = {"food": (0.01, 0.01), "books": (0.03, 0.03), "shoes": (0.33, 0.12)}
rng = np.random.default_rng(0)


def customer() -> dict[str, bool]:
    """Two in five are members."""
    return {"member": bool(rng.random() < 0.4)}


def visit(product: dict, member: bool) -> tuple[dict[str, float], bool]:
    """What is known within the day, and whether it comes back."""
    clicked = rng.random() < clicks_of[product["category"]]
    ordered = clicked and rng.random() < 0.45
    margin = 0.3 * product["price"] if ordered else 0.0
    returned = ordered and rng.random() < returns_of[product["category"]][member]
    return {"clicks": clicked, "ordered": ordered, "margin": margin}, returned


# %%
# What the shop wants
# -------------------
#
# ``per="ordered"`` makes the limit a rate: returns for each order, not for each visit. ``stages``
# lists what arrives together. The encoder makes rows of numbers of the dictionaries, with the
# product of ``member`` and each ``category``, since both together decide what comes back.

problem = fw.Problem.arms(
    n_features=32,
    rewards={"clicks": (0, 1), "ordered": (0, 1), "margin": (0, 30), "returned": (0, 1)},
    stages=(("clicks", "ordered", "margin"), ("returned",)),
)
encoder = fw.features.Encoder(
    32, ranges={"price": (0, 100)}, n_names=2, crosses=[("member", "category")]
)
worth = Linear({"clicks": 1.0, "margin": 0.05})
objectives = {
    "no limit": worth,
    "at most 8 % come back": worth + AtMost({"returned": 0.08}, per="ordered"),
}


# %%
# Four months
# -----------
#
# Clicks, orders and margin are reported at once, and returns after 14 days: each stage is learnt
# when it comes. ``Agent(f, problem)`` plays the policy that is recommended for the problem.


def play(f):
    """The agent after four months; orders and returns of each day; what it showed at the end."""
    agent = fw.Agent(f, problem, seed=0)
    counts = np.zeros((DAYS, 2))
    shown = {(member, kind): 0 for member in (True, False) for kind in clicks_of}
    waiting = deque()
    for day in range(DAYS):
        for _ in range(VISITS):
            context = customer()
            decision = agent.act(encoder(products, shared=context))
            product = products[decision.name]
            known, returned = visit(product, context["member"])
            agent.update(decision, known)
            waiting.append((day + 14, decision, returned))
            counts[day] += known["ordered"], returned
            shown[context["member"], product["category"]] += day >= 0.75 * DAYS
        while waiting[0][0] <= day:
            _, decision, returned = waiting.popleft()
            agent.update(decision, {"returned": returned})
    return agent, counts, shown


played = {name: play(f) for name, f in objectives.items()}
for name, (agent, counts, _) in played.items():
    orders, returns = counts.sum(axis=0)
    print(f"{name:22} {returns / orders:.1%} came back; a visit is worth {agent.value:.3f}")

# %%
# The agent says whether the limit is kept, and what it costs.

agent = played["at most 8 % come back"][0]
print(*agent.constraints)
for stage in agent.stats()["stages"]:
    print(stage)

# %%
# The front page, fair to makers
# ------------------------------
#
# It shows three products, from the top. Customers look at all of the first, 70 % of the second and
# half of the third. ``by="maker"`` makes exposure equal among makers, however many products each
# has. Half-way a new maker joins; later one product of another is sold out.

f = TwoSided(ByGroup(GiniEquality(), by="maker"), beta=0.5)
ranking = fw.Problem.ranking(n_items=len(products), n_slots=3, n_features=(4, 16))
users = fw.features.Encoder(4, n_names=1)
items = fw.features.Encoder(16, ranges={"price": (0, 100)}, n_names=2)
front = fw.Agent(
    f,
    ranking,
    items={name: fw.Item(items(x), maker=makers[name]) for name, x in products.items()},
    seed=0,
)
joins, retires = 7 * (DAYS // 14), 7 * (DAYS // 9)
seen = []  # by day: maker -> looks
for day in range(DAYS):
    if day == joins:
        new = {"kite": {"category": "toys", "price": 25}}
        clicks_of["toys"] = 0.2
        front.add_items({name: fw.Item(items(x), maker="Sky") for name, x in new.items()})
        products, makers = products | new, makers | {"kite": "Sky"}
    if day == retires:
        front.retire(["novel"])
    seen.append(dict.fromkeys(("Leaf", "Ink", "Stride", "Sky"), 0))
    for _ in range(VISITS):
        decision = front.act(users(customer()))
        looked = [
            name
            for name, p in zip(decision.names, (1.0, 0.7, 0.5), strict=True)
            if rng.random() < p
        ]
        clicked = [name for name in looked if rng.random() < clicks_of[products[name]["category"]]]
        front.update(decision, exposed=looked, clicked=clicked)
        for name in looked:
            seen[-1][makers[name]] += 1
for maker, looks in front.stats()["groups"]["maker"].items():
    print(f"{maker:7} {looks:.3f} looks a page, since it came")

# %%
# Four months in three pictures
# -----------------------------
#
# For two weeks nothing is known of returns. Then members still see shoes, and new customers see
# books, until the average has come down to the limit. Makers are seen equally often, the new one a
# little more at first: what counts is the average of each since it came.

figure, (left, middle, right) = plt.subplots(
    1, 3, figsize=(13.0, 4.0), layout="constrained", width_ratios=(5, 4, 5)
)
days, weeks = np.arange(1, DAYS + 1), np.arange(DAYS // 7)
for (name, (_, counts, _)), color in zip(played.items(), ("0.6", "#0072B2"), strict=True):
    orders, returns = counts.cumsum(axis=0).T
    left.plot(days, 100 * returns / np.maximum(orders, 1), color=color, linewidth=2, label=name)
orders, returns = counts[: 7 * len(weeks)].reshape(-1, 7, 2).sum(axis=1).T
left.plot(
    7 * weeks + 4,
    100 * returns / orders,
    "o",
    color=color,
    markersize=4,
    alpha=0.4,
    label="each week",
)
left.axhline(8, color="#D55E00", linewidth=1, linestyle="--")
left.axvspan(0, 14, color="0.94", zorder=0)
left.text(7, 9, "no returns known", color="0.4", fontsize=8, ha="center", rotation=90)
left.set(xlabel="day", xlim=(0, DAYS), ylim=(0, 35), title="% of all orders that came back")
left.legend(frameon=False, fontsize=9, loc="upper right")

who = {"members": True, "new": False}
kinds = {"food": "#F0E442", "books": "#56B4E9", "shoes": "#CC79A7"}
for place, (name, group) in enumerate((name, group) for name in played for group in who):
    counts = [played[name][2][who[group], kind] for kind in kinds]
    ends = np.cumsum([0, *counts]) / sum(counts)
    middle.bar(place + place // 2 * 0.5, np.diff(ends), 0.8, ends[:-1], color=list(kinds.values()))
middle.set_xticks([0, 1, 2.5, 3.5], [*who] * 2)
middle.set(ylabel="share of the offers", title="Offers of the last month")
for place, name in ((0.5, "no limit"), (3.0, "at most 8 %")):
    middle.text(place, -0.16, name, ha="center", transform=middle.get_xaxis_transform())
middle.legend(
    [plt.Rectangle((0, 0), 1, 1, color=color) for color in kinds.values()],
    kinds,
    frameon=False,
    bbox_to_anchor=(1.0, 0.5),
    loc="center left",
)

looks = np.array([list(day.values()) for day in seen])[: 7 * len(weeks)]
looks = looks.reshape(-1, 7, 4).sum(axis=1)
shares = 100 * looks.T / looks.sum(axis=1)
for maker, share, color, width in zip(
    seen[0], shares, ("#009E73", "#E69F00", "#0072B2", "#D55E00"), (5, 3, 1.5, 2), strict=True
):
    there = share > 0
    right.plot(7 * weeks[there] + 4, share[there], color=color, linewidth=width, label=maker)
for day, event in ((joins, "Sky joins"), (retires, "the novel\nis sold out")):
    right.axvline(day, color="0.7", linewidth=1, linestyle=":")
    right.text(day + 1, 2, event, color="0.4", fontsize=8)
right.set(xlabel="day", xlim=(0, DAYS), ylim=(0, 50), title="% of all looks at the front page")
right.legend(frameon=False, fontsize=9, ncols=4, loc="upper center")
for ax in (left, middle, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
