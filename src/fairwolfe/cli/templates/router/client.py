"""Asks which model answers a request and reports how it went: replace the made-up requests."""

import random

from fairwolfe.client import Client

MODELS = {"small": {"model": "small"}, "large": {"model": "large"}}
CENTS = {"small": 0.4, "large": 4.0}
SOLVES = {("small", "chat"): 0.8, ("small", "code"): 0.2}  # the large one: 0.9

with Client("http://127.0.0.1:8710") as client:
    for _ in range(300):
        task = random.choice(["chat", "code"])
        request = {"task": task, "length": random.randrange(8000)}
        decision = client.decide("router", arms=MODELS, context=request)
        model = str(decision.name)
        solved = int(random.random() < SOLVES.get((model, task), 0.9))
        client.feedback(decision, rewards={"solved": solved, "cents": CENTS[model]})
    known = client.model("router")
    print(f"{known['decisions']} decisions, {known['open']} of them wait for the end of the window")
print("Open http://127.0.0.1:8710 to see what it does.")
