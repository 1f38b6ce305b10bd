"""Takes the pictures of page.md: start ``fairwolfe serve --demo``, wait a minute, and give its
address, ``python docs/pictures/page.py http://127.0.0.1:PORT``.

It needs Chromium, Playwright and Pillow.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COLOURS = 255


def save(page: Any, name: str, first: str, last: str) -> None:
    """The page from the top of one section to the bottom of another, in few colours."""
    from PIL import Image

    whole = Image.open(io.BytesIO(page.screenshot(full_page=True)))
    boxes = [page.locator(selector).bounding_box() for selector in (first, last)]
    down = page.evaluate("window.scrollY")
    top, bottom = boxes[0]["y"] + down, boxes[1]["y"] + boxes[1]["height"] + down
    part = whole.crop((0, max(int(top) - 12, 0), whole.width, int(bottom) + 12))
    small = part.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(HERE / name, optimize=True)


def main(url: str) -> None:
    """All four of them."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for width, scheme, name, first, last in (
            (1400, "light", "page-desk.png", "header", "#ends"),
            (1400, "dark", "page-what-if.png", "#what-if", "#audit"),
            (360, "light", "page-phone.png", "header", "section:has(#c-value)"),
            (360, "dark", "page-phone-dark.png", "#exposure", "#exposure"),
        ):
            context: Any = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
            page = browser.new_page(**context)
            page.goto(url)
            page.locator(".state.on").wait_for()
            if first == "#what-if":
                page.locator("#ask-beta button").click()
                page.locator("#answer").wait_for()
                page.locator("#choice").press("ArrowRight")
            save(page, name, first, last)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
