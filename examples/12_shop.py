"""
12. A shop that asks the service
================================

The service runs as a process of its own, and a small shop asks it by HTTP which products to show.
What customers look at is reported at once, what they buy a little later, and some reports never
come. All of it counts exactly once, whatever happens to the service meanwhile.
"""

import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from fairwolfe.client import Client

VISITS = 1_000

# %%
# The service
# -----------
#
# A configuration, a folder for the log, and any free port. The first line that the service prints
# is its address.

CONFIG = """
state = "state"
listen = "127.0.0.1:0"

[models.shop]
window = "2 s"
missing = "zero"
problem = { kind = "ranking", n_slots = 3, n_features = [3, 3], parameter_norm = 1.8 }
objective = { name = "two-sided", items = { name = "gini-welfare" }, beta = 0.2 }
policy = { name = "fw-linucb-rank", exploration = 0.1 }
"""

folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "config.toml"
path.write_text(CONFIG)
command = [sys.executable, "-m", "fairwolfe", "serve", str(path)]
service = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
ready = service.stdout.readline()
print(ready.startswith("ready http://127.0.0.1:"))
client = Client(ready.split()[1])

# %%
# Products and customers
# ----------------------
#
# Eight products, described by three tastes that they serve. Most customers have the first taste, so
# a shop that only counts purchases shows the same few products all day.

products = {
    "tea": [0.7, 0.1, 0.0],
    "coffee": [0.6, 0.0, 0.1],
    "bread": [0.4, 0.3, 0.0],
    "honey": [0.3, 0.2, 0.2],
    "soap": [0.1, 0.6, 0.0],
    "candles": [0.0, 0.5, 0.2],
    "paper": [0.1, 0.1, 0.5],
    "ink": [0.0, 0.0, 0.6],
}
print(client.add_items("shop", products), "products")
tastes = np.eye(3) * 0.8 + 0.1
rng = np.random.default_rng(0)

# %%
# A day in the shop
# -----------------
#
# The page reports what was looked at as soon as it is known, purchases come with later visits, and
# one report in twenty is lost. Reports that are sent twice change nothing.

looks = (1.0, 0.7, 0.5)  # the chance that a slot is looked at
outcomes, bought, shown = Counter(), [], []
later = []
for visit in range(1, VISITS + 1):
    user = tastes[rng.choice(3, p=[0.7, 0.2, 0.1])]
    decided = client.decide("shop", user=user)
    exposed = [key for key, look in zip(decided.items, looks, strict=True) if rng.random() < look]
    clicked = [key for key in exposed if rng.random() < user @ products[key]]
    bought.append(len(clicked))
    shown.append([exposed.count(key) for key in products])
    if rng.random() > 0.05:
        outcomes[client.feedback(decided, exposed=exposed)] += 1
        if clicked:
            later.append((decided, clicked))
    if len(later) >= 8 or (later and visit == VISITS):
        entries = [{"id": one.id, "clicked": keys} for one, keys in later]
        outcomes.update(client.feedback_many("shop", entries + entries[:1]))  # one of them twice
        later = []
print(dict(outcomes))

# %%
# What it has learnt
# ------------------
#
# When the last window has ended, everything that came is in the averages. A purchase that is
# reported after that is late: it is counted as such, and not learnt from.

for _ in range(200):
    known = client.model("shop")
    if known["open"] == 0:
        break
    time.sleep(0.1)
print(client.feedback(decided, clicked=decided.items[:1]))
print({name: known[name] for name in ("decisions", "joined", "expired", "open")})
print(f"{known['average']['clicks']:.2f} purchases a visit, f is {known['value']:.3f}")
print(client.live("shop")["sentence"])

# %%
# At the end
# ----------
#
# SIGTERM ends the service with exit code 0. It could as well be killed: started again with the same
# folder, it knows all that it has acknowledged.

client.close()
service.terminate()
print("exit code", service.wait(30))
service.stdout.close()
folder.cleanup()

figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.4), layout="constrained")
shown = np.array(shown)  # (visits, products)
places = np.arange(len(products))
tenth = max(VISITS // 10, 1)
for offset, part, label in (
    (-0.2, shown[:tenth], "first tenth"),
    (0.2, shown[-tenth:], "last tenth"),
):
    left.bar(places + offset, part.mean(axis=0), 0.4, label=label)
left.set_xticks(places, products, rotation=45, ha="right")
left.set_ylabel("looks a visit")
left.set_title("Who is seen", loc="left")
left.legend(frameon=False, fontsize=9)
visits = np.arange(1, VISITS + 1)
right.plot(visits, np.cumsum(bought) / visits)
right.set_xscale("log")
right.set_xlabel("visit")
right.set_ylabel("purchases a visit, so far")
right.set_title("What is bought", loc="left")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
