"""Draws the pictures of the page: ``python docs/pictures/page.py``.

It starts a shop with an offer (arms, a limit, a rate, feedback in stages) and a front page (a
ranking, makers as groups), lets simulated visitors come, and takes pictures of what their owner
sees.
It needs Chromium, Playwright and Pillow. ``page.py OTHER_FOLDER`` writes them elsewhere.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from fairwolfe.client import Client
from fairwolfe.environments import FactorModel, dcg

HERE = Path(__file__).parent
COLOURS = 200
SECONDS = 110.0
CONFIG = """\
state = "state"
listen = "127.0.0.1:0"
[models.offers]
missing = "zero"
apply = "arrival"
arms = ["no offer", "free shipping", "5 % off", "10 % off", "bundle"]
objective = "Linear({'ordered': 1.0}) + AtMost({'cost': 0.05}) \
+ AtMost({'returned': 0.15}, per='ordered')"
policy = { name = "frank-wolfe", base = { name = "linucb", exploration = 0.1 } }
[models.offers.problem]
kind = "arms"
n_features = 1
n_arms = 5
parameter_norm = 1.0
[models.offers.problem.rewards]
ordered = { range = [0, 1], window = "1 s" }
cost = { range = [0, 1], window = "1 s" }
returned = { range = [0, 1], window = "3 s" }
[models.front]
missing = "zero"
window = "2 s"
problem = { kind = "ranking", n_slots = 5, n_features = [4, 4], parameter_norm = 2.0 }
objective = "TwoSided(ByGroup(GiniWelfare(), by='maker'), beta=0.5)"
policy = { name = "fw-linucb-rank", exploration = 0.1 }
"""
# Of the offers: ordered, what it costs then, returned of what was ordered.
OFFERS = (
    (0.10, 0.0, 0.04),
    (0.22, 0.1, 0.05),
    (0.26, 0.15, 0.1),
    (0.42, 0.3, 0.2),
    (0.2, 0.05, 0.3),
)
MAKERS = ("Leaf", "Ink", "Stride", "Sky")


def visit_offers(client: Client, rng: np.random.Generator) -> None:
    """Some visitors get an offer, and one of twelve is not heard of again."""
    entries = []
    for decided in client.decide_many("offers", [{"user": [1.0]}] * 40):
        ordered, cost, returned = OFFERS[int(decided.arm or 0)]
        order = float(rng.random() < ordered)
        back = float(order and rng.random() < returned)
        earned = {"ordered": order, "cost": order * cost, "returned": back}
        if rng.random() < 11.0 / 12.0:
            entries.append({"id": decided.id, "rewards": earned})
    client.feedback_many("offers", entries)


class Front:
    """Items of makers, and visitors who look and click."""

    def __init__(self, client: Client) -> None:
        self.world = FactorModel(100, 30, dcg(5), n_factors=4)
        self.arrays: Any = self.world.init(np.random.default_rng(0))
        self.keys = [f"item {i + 1}" for i in range(30)]
        items = self.world.show(self.arrays, 0).items
        makers = [MAKERS[min(i // 12, 1) + 2 * (i % 7 == 0)] for i in range(30)]
        client.add_items(
            "front",
            {
                key: {"features": row.tolist(), "attributes": {"maker": maker}}
                for key, row, maker in zip(self.keys, items, makers, strict=True)
            },
        )

    def visit(self, client: Client, rng: np.random.Generator) -> None:
        """Some visitors see a ranking; one of twenty is not heard of again."""
        contexts = [self.world.context(self.arrays, 0, rng) for _ in range(10)]
        asked = [{"user": context.user.tolist()} for context in contexts]
        for context, decided in zip(contexts, client.decide_many("front", asked), strict=True):
            keys = decided.items or []
            ranking = np.array([self.keys.index(key) for key in keys])
            shown = self.world.feedback(self.arrays, context, ranking, rng)
            if rng.random() < 0.05:
                continue
            seen = [key for key, yes in zip(keys, shown.exposed, strict=True) if yes]
            clicked = [key for key, x in zip(keys, shown.rewards[:, 0], strict=True) if x]
            client.feedback(decided, exposed=seen, clicked=clicked)


def traffic(url: str, ended: threading.Event) -> None:
    """Visitors, until it has ended."""
    rng = np.random.default_rng(1)
    with Client(url, deadline=20.0) as client:
        front = Front(client)
        while not ended.wait(0.02):
            front.visit(client, rng)
            for _ in range(8):
                visit_offers(client, rng)


def save(page: Any, path: Path, first: str, last: str) -> None:
    """The page from the top of one part to the bottom of another, in few colours."""
    from PIL import Image

    whole = Image.open(io.BytesIO(page.screenshot(full_page=True)))
    boxes = [page.locator(selector).first.bounding_box() for selector in (first, last)]
    down = page.evaluate("window.scrollY")
    top, bottom = boxes[0]["y"] + down, boxes[1]["y"] + boxes[1]["height"] + down
    part = whole.crop((0, max(int(top) - 12, 0), whole.width, int(bottom) + 12))
    small = part.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size:,} bytes")


PICTURES: tuple[tuple[str, str, int, Any, str, str], ...] = (
    ("page-desk.png", "offers", 1280, "light", "header", ".stack"),
    ("page-ranking.png", "front", 1280, "light", "header", ".stack"),
    ("page-what-if.png", "front", 1280, "light", "#what-if", "#what-if"),
    ("page-phone.png", "offers", 390, "light", "header", "section:has(#good)"),
    ("page-phone-dark.png", "offers", 390, "dark", ".stack", ".stack"),
)


def take(url: str, folder: Path) -> None:
    """All the pictures."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for name, model, width, scheme, first, last in PICTURES:
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.goto(f"{url}/?model={model}")
            page.locator(".state.on").wait_for()
            page.locator("[data-reward] svg").first.wait_for()
            if first == "#what-if":
                page.locator("#all").click()
                page.locator("#answer").wait_for(timeout=120_000)
                page.locator("#choice").press("ArrowLeft")
                page.locator("h1").click()
            page.locator("#state").evaluate("mark => mark.remove()")  # it would cover something
            save(page, folder / name, first, last)
        browser.close()


def main() -> None:
    """Serve, wait, take."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    with tempfile.TemporaryDirectory() as state:
        config = Path(state) / "shop.toml"
        config.write_text(CONFIG)
        command = [sys.executable, "-m", "fairwolfe", "serve", str(config)]
        service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=state)
        ended = threading.Event()
        try:
            assert service.stdout is not None
            url = service.stdout.readline().split()[1]
            visitors = threading.Thread(target=traffic, args=(url, ended), daemon=True)
            visitors.start()
            time.sleep(SECONDS)
            take(url, folder)
            ended.set()
            visitors.join(30.0)
        finally:
            service.terminate()
            service.wait(30.0)


if __name__ == "__main__":
    main()
