"""Asks for offers and reports what came of them, with made-up customers: replace them by yours."""

import random

from fairwolfe.client import Client

OFFERS = {
    "tea": {"category": "food", "price": 9},
    "novel": {"category": "books", "price": 15},
    "boots": {"category": "shoes", "price": 90},
}
CHANCES = {"tea": (0.1, 0.02), "novel": (0.2, 0.05), "boots": (0.4, 0.5)}  # of an order, a return

with Client("http://127.0.0.1:8710") as client:
    for _ in range(300):
        decision = client.decide("offers", arms=OFFERS, context={"member": random.random() < 0.4})
        offer = str(decision.name)
        orders, returns = CHANCES[offer]
        ordered = int(random.random() < orders)
        margin = OFFERS[offer]["price"] / 4 if ordered else 0  # type: ignore[operator]
        client.feedback(decision, rewards={"clicks": 1, "ordered": ordered, "margin": margin})
        if ordered:  # two weeks later, by decision.id
            client.feedback(decision, rewards={"returned": int(random.random() < returns)})
    known = client.model("offers")
    print(f"{known['decisions']} decisions, {known['open']} of them wait for feedback")
print("Open http://127.0.0.1:8710 to see what it does.")
