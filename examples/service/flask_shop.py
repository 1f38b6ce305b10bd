"""A product page that asks the service for an offer, and reports what came of it: docs/shop.md.

FAIRWOLFE=http://127.0.0.1:8710 flask --app flask_shop run
"""

import os

from flask import Flask, request

from fairwolfe.client import Client
from fairwolfe.errors import InvalidInput, Unavailable

OFFERS = {
    "tea": {"category": "food", "price": 9},
    "novel": {"category": "books", "price": 15},
    "atlas": {"category": "books", "price": 40},
    "boots": {"category": "shoes", "price": 90},
}
EVENTS = {"click": "clicks", "order": "ordered", "return": "returned"}
ADDRESS = os.environ.get("FAIRWOLFE", "http://127.0.0.1:8710")
quick, patient = Client(ADDRESS, deadline=0.2), Client(ADDRESS, deadline=5.0)
app = Flask(__name__)
app.register_error_handler(InvalidInput, lambda error: ({"error": str(error)}, 400))
app.register_error_handler(Unavailable, lambda _: ({"error": "not stored, send it again"}, 503))


@app.post("/offer")  # the body is what the shop knows of its customer: {"member": true}
def offer():
    try:
        decided = quick.decide("offers", arms=OFFERS, context=request.json)
    except Unavailable:  # a page does not wait: the default offer, without a decision to report on
        return {"offer": "tea", "decision": None}
    return {"offer": decided.name, "decision": decided.id}


@app.post("/<any(click, order, return):event>/<decision>")  # an order has {"margin": 12.5}
def report(event, decision):
    rewards = {EVENTS[event]: 1, **(request.json if event == "order" else {})}
    (outcome,) = patient.feedback_many("offers", [{"id": decision, "rewards": rewards}])
    return {"outcome": outcome}
