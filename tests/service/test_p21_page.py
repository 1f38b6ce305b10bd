"""P21: the page in a real Chromium. It asks nothing of another origin, shows the numbers of the
interface, survives a restart, and changes f only after a confirmation.
"""

from __future__ import annotations

import io
import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairwolfe.service.keys import new_key
from fairwolfe.service.page import POLICY
from tests.capabilities import browser
from tests.service import shop
from tests.service.servers import Server, wait_for

pytestmark = pytest.mark.needs("browser", "playwright")

ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update "
    "--disable-sync --no-first-run"
)
SECONDS = 30_000  # milliseconds: the machine may be busy
LOOKS = [
    (360, "dark"),
    (1400, "light"),
    pytest.param(360, "light", marks=pytest.mark.slow),
    pytest.param(1400, "dark", marks=pytest.mark.slow),
]
KEYS = {name: new_key() for name in ("reader", "owner")}
WITH_KEYS = "".join(
    f'[[keys]]\nname = "{name}"\nsha256 = "{KEYS[name][1]}"\nscopes = {scopes}\n'
    for name, scopes in (("reader", '["read"]'), ("owner", '["admin", "read", "decide"]'))
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        one = play.chromium.launch(executable_path=browser(), args=ARGUMENTS.split())
        yield one
        one.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """At rest: its numbers do not change while they are compared."""
    with Server(tmp_path_factory.mktemp("page"), shop.config()) as one:
        shop.filled(one, rounds=12, objective=shop.CONSTRAINED)
        yield one
        assert one.complaints() == []


class Visit:
    """A page that notes what it asked for and what it complained of."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.url = page, url
        self.console: list[str] = []
        self.requests: list[str] = []
        page.set_default_timeout(SECONDS)
        page.on("console", lambda line: self.console.append(line.text))
        page.on("pageerror", lambda error: self.console.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, path: str = "/?model=shop") -> Visit:
        self.page.goto(self.url + path)
        self.page.locator(".state.on").wait_for()
        return self

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).text_content())

    def rows(self, id: str) -> dict[str, list[str]]:
        """The cells of a table by the heads of its rows."""
        found = {}
        for row in self.page.locator(f"#t-{id} tbody tr").all():
            head, *cells = row.locator("th, td").all_text_contents()
            found[head] = cells
        return found


Opener = Callable[..., Visit]


@pytest.fixture
def opened(chromium: Any) -> Iterator[Opener]:
    contexts = []

    def make(server: Server, **options: Any) -> Visit:
        context = chromium.new_context(**{"viewport": {"width": 1400, "height": 900}, **options})
        contexts.append(context)
        return Visit(context.new_page(), server.url)

    yield make
    for context in contexts:
        context.close()


def same(shown: str, known: float | None) -> bool:
    """Whether a cell shows a number, with four digits of it."""
    if known is None:
        return shown == "–"
    return float(re.sub(r"[, %]", "", shown)) == pytest.approx(known, rel=5e-4, abs=1e-9)


def compared(visit: Visit, server: Server) -> None:
    """Every number of the page is that of the interface."""
    live, known = server.get(f"{shop.SHOP}/live"), server.get(shop.SHOP)
    assert visit.text("#sentence") == live["sentence"]
    numbers = [cells[0] for cells in visit.rows("numbers").values()]
    assert same(numbers[0], live["value"])
    assert same(numbers[1], live["about"])
    ends = numbers[2].split(" to ") if live["low"] is not None else [numbers[2]] * 2
    assert all(same(shown, live[end]) for shown, end in zip(ends, ("low", "high"), strict=True))
    assert same(numbers[3], live["at_most"])
    assert same(numbers[4], live["t"])
    assert same(visit.rows("rewards")["clicks"][0], known["average"]["clicks"])
    counts = visit.rows("counts")
    for name in ("joined", "expired", "open"):
        assert same(counts[name][0], known[name])
    assert same(counts["late reports"][0], known["late"])
    exposure = server.get(f"{shop.SHOP}/exposure")
    assert visit.text("#words") == exposure["words"]
    for end in ("most", "least"):
        rows = visit.rows(end)
        assert list(rows) == [one["key"] for one in exposure[end][:10]]
        assert all(same(rows[one["key"]][0], one["exposure"]) for one in exposure[end][:10])
    groups = visit.rows("groups")
    assert len(groups) == 4
    for one in exposure["groups"]:
        assert same(groups[one["name"]][0], 100.0 * one["share"])
        assert same(groups[one["name"]][1], one["per_item"])
    curve = visit.rows("lorenz")
    assert same(curve["50 %"][0], 100.0 * exposure["lorenz"][50])
    (constraint,) = server.get(f"{shop.SHOP}/constraints")["constraints"]
    level, average, slack, price, _ = visit.rows("constraints")["clicks"]
    assert level == "at least 0.6"
    assert same(average, constraint["average"])
    assert same(slack, constraint["slack"])
    assert same(price, constraint["shadow_price"])
    (line,) = server.get(f"{shop.SHOP}/changes")["changes"]
    shown = visit.rows("changes")["1"]
    assert shown[2] == line["from_words"]
    assert shown[3] == line["to_words"]


def test_the_numbers_are_those_of_the_interface(server: Server, opened: Opener) -> None:
    visit = opened(server).open()
    compared(visit, server)
    history = server.get(f"{shop.SHOP}/history")["points"]
    until = time.monotonic() + 20.0
    while not (rows := list(visit.rows("history").values())) and time.monotonic() < until:
        time.sleep(0.1)  # the page asks for it after the first numbers
    assert same(rows[0][1], history[-1]["value"])
    # It is quiet, and asks nobody else.
    assert visit.console == []
    assert {url.split("/v1")[0].split("/page")[0].split("/?")[0] for url in visit.requests} <= {
        server.url,
        "data:,",
    }
    other = opened(server).open("/?model=router")
    assert same(other.rows("rewards")["minutes"][0], server.get(shop.ROUTER)["average"]["minutes"])
    assert not other.page.locator("#exposure").is_visible()


def test_without_scripts_the_numbers_are_there(server: Server, opened: Opener) -> None:
    visit = opened(server, java_script_enabled=False)
    visit.page.goto(f"{server.url}/?model=shop")
    compared(visit, server)
    assert visit.page.locator("noscript").count() == 1


def ink(visit: Visit, selector: str) -> int:
    """How many pixels of a chart are of a strong colour."""
    from PIL import Image

    chart = visit.page.locator(f"{selector} .plot")
    pixels = np.asarray(Image.open(io.BytesIO(chart.screenshot())).convert("RGB"), dtype=int)
    return int((pixels.max(axis=2) - pixels.min(axis=2) > 60).sum())


@pytest.mark.needs("matplotlib")
def test_an_empty_chart_has_no_ink(server: Server, opened: Opener) -> None:
    visit = opened(server).open()
    visit.page.evaluate(
        """() => {
          const sheet = new CSSStyleSheet();
          sheet.insertRule(".line, .dot, .band { display: none; }");
          document.adoptedStyleSheets.push(sheet);
        }"""
    )
    assert ink(visit, "#c-value") < 20


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_charts_have_ink_and_fit(server: Server, opened: Opener, width: int, scheme: Any) -> None:
    visit = opened(server, viewport={"width": width, "height": 800}, color_scheme=scheme).open()
    for selector in ("#c-value", "#c-rewards figure", "#c-lorenz", "#c-counts"):
        assert ink(visit, selector) > 150, selector
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    back = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", back)[:3])) < 200) == (scheme == "dark")
    assert visit.console == []


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_the_live_mark_stays_visible(
    server: Server, opened: Opener, width: int, scheme: Any
) -> None:
    visit = opened(server, viewport={"width": width, "height": 700}, color_scheme=scheme).open()
    for part in (0.0, 0.5, 1.0):  # of the way down
        seen = visit.page.evaluate(
            """(part) => {
              const page = document.documentElement;
              scrollTo({ top: part * (page.scrollHeight - innerHeight), behavior: "instant" });
              const mark = document.getElementById("state"), box = mark.getBoundingClientRect();
              const x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
              return { top: document.elementFromPoint(x, y) === mark, y: scrollY };
            }""",
            part,
        )
        assert seen["top"], part
        assert (seen["y"] > 0) == (part > 0)
    assert visit.text("#state") == "live"
    # The end of the page can be read beside it.
    last = visit.page.locator("main > section").last.bounding_box()
    assert last["y"] + last["height"] <= visit.page.locator("#state").bounding_box()["y"]


def test_the_policy_is_kept(server: Server, opened: Opener) -> None:
    """What the header forbids does not happen, whoever asks for it."""
    foreign = socket.create_server(("127.0.0.1", 0))
    foreign.setblocking(False)
    visit = opened(server)
    answer = visit.page.goto(f"{server.url}/")
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    visit.page.evaluate(
        """(port) => {
          window.broken = [];
          document.addEventListener("securitypolicyviolation",
            (event) => window.broken.push(event.effectiveDirective));
          const script = document.createElement("script");
          script.textContent = "window.harm = true";
          document.head.append(script);
          const picture = document.createElement("img");
          picture.src = `http://127.0.0.1:${port}/x.png`;
          document.body.append(picture);
        }""",
        foreign.getsockname()[1],
    )
    visit.page.locator("body").evaluate("() => new Promise((done) => setTimeout(done, 300))")
    assert visit.page.evaluate("window.harm") is None
    assert set(visit.page.evaluate("window.broken")) == {"script-src-elem", "img-src"}
    with foreign, pytest.raises(BlockingIOError):
        foreign.accept()  # nobody came
    assert len(visit.console) == 2  # the console does say so: silence elsewhere means something


@pytest.mark.needs("axe")
@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_axe_finds_nothing_serious(server: Server, opened: Opener, width: int, scheme: Any) -> None:
    visit = opened(server, viewport={"width": width, "height": 800}, color_scheme=scheme).open()
    if scheme == "dark":
        compute(visit, "2")
    for summary in visit.page.locator("main summary:visible").all():
        summary.click()
    assert serious(visit) == []


def serious(visit: Visit) -> list[Any]:
    """What axe-core has to say of the page as it is."""
    from axe_playwright_python.base import AXE_SCRIPT  # type: ignore[import-untyped]

    found = visit.page.evaluate(f"() => {{ {AXE_SCRIPT}; return window.axe.run(); }}")
    assert len(found["passes"]) > 20
    return [
        (one["id"], one["nodes"][0]["html"][:200])
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.needs("axe")
def test_axe_would_find_what_is_wrong(server: Server, opened: Opener) -> None:
    visit = opened(server).open("/?model=router")
    visit.page.evaluate("document.querySelector('label[for=text]').remove()")
    assert [name for name, _ in serious(visit)] == ["label"]


def test_eight_questions_find_a_beta(server: Server, opened: Opener) -> None:
    visit = opened(server).open()
    compute(visit, "")
    visit.page.locator("#interview summary").click()
    for number in range(1, 9):
        visit.page.locator("#q-number", has_text=f"Question {number} of 8").wait_for()
        assert "clicks and" in visit.text("#q-a")
        visit.page.locator("#q-equal" if number == 3 else "#q-a").click()
    visit.page.locator("#q-use").wait_for()
    assert "After 8 answers beta = " in visit.text("#q-said")
    beta = re.findall(r"beta = ([\d.]+)", visit.text("#q-said"))[0]
    visit.page.locator("#q-back").click()
    visit.page.locator("#q-number", has_text="Question 8 of 8").wait_for()
    visit.page.locator("#q-a").click()
    visit.page.locator("#q-use").click()
    visit.page.locator("#chosen", has_text=f"beta {beta}").wait_for()
    assert visit.console == []
    assert server.get(shop.SHOP)["version"] == 1  # nothing was changed


# --- what if, and a change of f ----------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Server]:
    """A server that may be changed."""
    with Server(tmp_path, shop.config(port=shop.free_port())) as one:
        shop.filled(one, rounds=3)
        yield one


def bonuses(server: Server) -> list[float]:
    """What fairness adds to the items of the next decision."""
    asked = {"user": [0.5] * shop.FACTORS, "explain": True}
    made = server.post(f"{shop.SHOP}/decide", asked)
    return [abs(one["fairness"]) for one in made["explanation"]]


def compute(visit: Visit, values: str) -> None:
    visit.page.locator("#beta").fill(values)
    visit.page.locator("#ask-beta button").click()
    visit.page.locator("#answer").wait_for()
    visit.page.locator("#asked", has_text="not guaranteed").wait_for()


def test_another_beta_is_applied_and_the_service_is_started_again(
    own: Server, opened: Opener
) -> None:
    assert max(bonuses(own)) > 0.0
    visit = opened(own).open()
    compute(visit, "0, 2")
    slider = visit.page.locator("#choice")
    slider.focus()
    slider.press("Home")  # by keyboard
    assert visit.text("#chosen").startswith("beta 0:")
    slider.press("ArrowRight")
    assert visit.text("#chosen").startswith("beta 0.5, as now:")
    assert visit.page.locator("#apply").is_disabled()
    slider.press("Home")
    visit.page.locator("#apply").click()
    assert visit.text("#c-to") == "clicks"
    assert "clicks + 0.5 x" in visit.text("#c-from")
    visit.page.locator("#no").click()
    assert own.get(shop.SHOP)["version"] == 0  # not confirmed
    visit.page.locator("#apply").click()
    visit.page.locator("#yes").click()
    visit.page.locator("#asked", has_text="f is changed: version 1").wait_for()
    assert own.get(shop.SHOP)["objective"] == shop.FAIR.replace("0.5", "0.0")
    assert max(bonuses(own)) == 0.0  # the next decisions follow it
    visit.page.locator("#version", has_text="1").wait_for()
    visit.page.locator("#t-changes tbody tr").wait_for()
    fair = "clicks + 0.5 x fairness of exposure (Gini welfare)"
    assert visit.rows("changes")["1"][1:] == ["–", fair, "clicks"]
    assert visit.console == []
    # The service ends and comes back: so does the page, by itself.
    assert own.stop() == 0
    visit.page.locator(".state.off").wait_for()
    shown = visit.text("#sentence")
    own.start()
    visit.page.locator(".state.on").wait_for()
    shop.World().visit(own, 50)
    shop.rest(own)
    live = own.get(f"{shop.SHOP}/live")["sentence"]
    assert live != shown
    visit.page.locator("#sentence", has_text=live).wait_for()
    # And after kill -9.
    own.kill()
    visit.page.locator(".state.off").wait_for()
    own.start()
    visit.page.locator(".state.on").wait_for()
    assert visit.rows("changes")["1"][3] == "clicks"


def test_wrong_questions_get_a_sentence_and_change_nothing(own: Server, opened: Opener) -> None:
    visit = opened(own).open()
    visit.page.locator("#beta").fill("1, much")
    visit.page.locator("#ask-beta button").click()
    visit.page.locator("#asked.trouble", has_text="beta is “much”; give numbers").wait_for()
    visit.page.locator("#what-if summary").first.click()
    for text, words in (
        ("TwoSided(items=GiniWelfare(), beta=-1.0)", "beta is -1.0"),
        ("Linear(weights=(1.0, 2.0))", "2"),
        ("import os", "is not an expression"),
    ):
        visit.page.locator("#text").fill(text)
        visit.page.locator("#ask-text button").click()
        visit.page.locator("#asked.trouble", has_text=words).wait_for()
    assert not visit.page.locator("#answer").is_visible()
    # Two owners at once: the second is told, and the first one's f stays.
    compute(visit, "2")
    visit.page.locator("#choice").focus()
    visit.page.locator("#choice").press("End")
    visit.page.locator("#apply").click()
    other = {"objective": shop.FAIR.replace("0.5", "7.0")}
    assert own.request("PUT", f"{shop.SHOP}/objective", other, if_match="*").status == 200
    visit.page.locator("#yes").click()
    sentence = visit.page.locator("#refused", has_text="has version 1, and If-Match says")
    sentence.wait_for()
    assert "Nothing was changed" in visit.text("#refused")
    assert own.get(shop.SHOP)["objective"] == other["objective"]
    assert own.get(shop.SHOP)["version"] == 1


def test_with_keys_there_is_a_sign_in_and_an_admin_key(tmp_path: Path, opened: Opener) -> None:
    owner = f"Bearer {KEYS['owner'][0]}"
    head = WITH_KEYS.replace('"decide"]', '"decide", "feedback"]')
    with Server(tmp_path, shop.config(head=head, port=shop.free_port())) as server:
        world = shop.World()
        world.stock(server, authorization=owner)
        world.visit(server, authorization=owner)
        path = f"{shop.SHOP}"
        wait_for(lambda: server.get(path, authorization=owner)["open"] == 0)
        visit = opened(server)
        page = visit.page
        page.goto(server.url)
        page.locator("#key").fill("fw_wrong")
        page.locator("button").click()
        page.locator("[role=alert]", has_text="The key is unknown").wait_for()
        page.locator("#key").fill(KEYS["reader"][0])
        page.locator("button").click()
        page.locator(".state.on").wait_for()
        (kept,) = page.context.cookies()
        assert (kept["httpOnly"], kept["sameSite"], kept["secure"]) == (True, "Strict", False)
        assert KEYS["reader"][0] not in json.dumps(page.context.storage_state())
        compute(visit, "2")
        page.locator("#choice").focus()
        page.locator("#choice").press("End")
        page.locator("#apply").click()
        for key, words in (
            ("", "No key is given"),
            ("fw_wrong", "the key is unknown"),
            (KEYS["reader"][0], "this needs admin"),
        ):
            page.locator("#admin").fill(key)
            page.locator("#yes").click()
            page.locator("#refused", has_text=words).wait_for()
            assert server.get(path, authorization=owner)["version"] == 0
        page.locator("#admin").fill(KEYS["owner"][0])
        page.locator("#yes").click()
        page.locator("#asked", has_text="f is changed: version 1").wait_for()
        page.locator("#t-changes tbody tr").wait_for()
        assert visit.rows("changes")["1"][1] == "owner"
        assert page.locator("#admin").input_value() == ""
        # A sign-in that has ended: after a restart nobody is signed in.
        server.stop()
        page.locator(".state.off").wait_for()
        server.start()
        page.locator("[role=alert]", has_text="Your sign-in has ended; sign in again").wait_for()
        assert page.locator("#sentence").count() == 0
