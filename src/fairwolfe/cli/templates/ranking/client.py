"""Asks for front pages and reports what was seen and clicked: replace the made-up customers."""

import random

from fairwolfe.client import Client

with Client("http://127.0.0.1:8710") as client:
    for _ in range(300):
        decision = client.decide("front", context={"member": random.random() < 0.4})
        items = list(decision.items or ())
        seen = items[: random.choice([1, 2, 3])]  # the customer looks from the top
        clicked = [item for item in seen if item in ("tea", "novel") and random.random() < 0.3]
        client.feedback(decision, exposed=seen, clicked=clicked)
    known = client.model("front")
    print(f"{known['decisions']} decisions, {known['open']} of them wait for the end of the window")
print("Open http://127.0.0.1:8710 to see what it does.")
