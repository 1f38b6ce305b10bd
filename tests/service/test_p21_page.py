"""P21: the page in a real Chromium. It asks nothing of another origin, shows the numbers of the
interface, survives a restart, and changes f only after a confirmation.
"""

from __future__ import annotations

import io
import json
import re
import socket
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
    """Whether a text shows a number, with three digits of it."""
    if known is None:
        return shown == "–"
    return float(re.sub(r"[, %]", "", shown)) == pytest.approx(known, rel=5.1e-3, abs=1e-9)


def near(shown: str, share: float) -> bool:
    """Whether a text shows a share in percent, of which it has two digits."""
    return float(shown.removesuffix(" %")) == pytest.approx(100.0 * share, rel=5e-2, abs=0.51)


def tiles(visit: Visit) -> dict[str, str]:
    """The numbers of the second card by their words."""
    found = visit.page.locator(".tiles li").all()
    return {
        str(one.locator("span").text_content()): one.locator("b").text_content() for one in found
    }


def compared(visit: Visit, server: Server) -> None:
    """Every number of the page is that of the interface."""
    live, known = server.get(f"{shop.SHOP}/live"), server.get(shop.SHOP)
    doing = frame(server)["doing"]
    exposure = server.get(f"{shop.SHOP}/exposure")
    # What is it doing?
    shown = visit.rows("shown")
    name = doing["most"][0][0]
    assert visit.text("#doing .lead").startswith(f"{name} is shown most: in ")
    assert f"{known['decisions']:,} visits so far" in visit.text("#doing")
    rows = [*doing["most"], *doing["least"], *doing["groups"]]
    assert len(rows) == 12
    assert [head for head in shown if not head.startswith(("Most", "Least", "Groups"))] == [
        row[0] for row in rows
    ]
    assert all(near(shown[head][1], share) for head, share, _ in rows)
    words = visit.text("#feedback")
    assert f"{known['joined']:,} answered" in words
    assert f"{known['expired']:,} no feedback in time" in words
    assert f"{known['open']:,} waiting for feedback" in words
    # Is it good?
    groups = exposure["groups"]
    last = min(groups, key=lambda one: one["share"])
    told = tiles(visit)
    assert near(told[f"of the exposure for {last['name']}, the least shown"], last["share"])
    # Are the limits kept?
    (limit,) = server.get(f"{shop.SHOP}/constraints")["constraints"]
    words = visit.text("#limits")
    average = known["average"]["clicks"]
    assert limit["slack"] == pytest.approx(average - 0.6)
    kept = limit["slack"] >= 0.0
    assert visit.text("#limits .lead") == "Yes."
    assert visit.text("#limits .light") == ("Kept" if kept else "On the line")
    assert "a visit; the limit is at least 0.6." in words
    assert same(words.split("line")[-1].split("Kept")[-1].split(" a visit")[0], average)
    if limit["shadow_price"] > 0.0:
        assert "Lowering it from 0.6 to 0.5 would buy about" in words
    else:
        assert "It costs nothing" in words
    # f and the guarantee, one click away
    numbers = [cells[0] for cells in visit.rows("numbers").values()]
    assert same(numbers[0], live["value"])
    assert same(numbers[1], live["about"])
    ends = numbers[2].split(" to ") if live["low"] is not None else [numbers[2]] * 2
    assert all(same(shown, live[end]) for shown, end in zip(ends, ("low", "high"), strict=True))
    assert same(numbers[3], live["at_most"])
    assert numbers[4] == f"{live['t']:,}"
    assert exposure["words"] in visit.text("#shares")
    assert near(visit.rows("lorenz")["50 %"][0], exposure["lorenz"][50])
    (line,) = server.get(f"{shop.SHOP}/changes")["changes"]
    changed = visit.rows("changes")["1"]
    assert changed[2] == line["from_words"]
    assert changed[3] == line["to_words"] == visit.text("#objective")


def frame(server: Server, path: str = shop.SHOP) -> dict[str, Any]:
    """A frame of the stream."""
    text = server.request("GET", f"{path}/stream?frames=1").body.decode()
    found: dict[str, Any] = json.loads(text.split("data: ")[1])
    return found


def test_the_numbers_are_those_of_the_interface(server: Server, opened: Opener) -> None:
    visit = opened(server).open()
    compared(visit, server)
    history = server.get(f"{shop.SHOP}/history")["points"]
    shown = next(iter(visit.rows("history").values()))[1]  # when the page was loaded
    assert any(same(shown, point["value"]) for point in history[-5:])
    # It is quiet, and asks nobody else.
    assert visit.console == []
    assert {url.split("/v1")[0].split("/page")[0].split("/?")[0] for url in visit.requests} <= {
        server.url,
        "data:,",
    }
    other = opened(server).open("/?model=router")
    average = server.get(shop.ROUTER)["average"]
    assert same(tiles(other)["minutes a visit"], average["minutes"])
    assert same(tiles(other)["clicks a visit"], average["clicks"])
    assert "There are none." in other.text("#limits")
    assert not other.page.locator("#exposure").is_visible()


def test_without_scripts_the_numbers_are_there(server: Server, opened: Opener) -> None:
    visit = opened(server, java_script_enabled=False)
    visit.page.goto(f"{server.url}/?model=shop")
    compared(visit, server)
    assert visit.page.locator("noscript").count() == 1


def ink(visit: Visit, selector: str) -> int:
    """How many pixels of a chart are of a strong colour."""
    from PIL import Image

    chart = visit.page.locator(f"{selector} .plot").first
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
    visit.page.locator("#d-proof > summary").click()
    assert ink(visit, "#c-value") < 20


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_charts_have_ink_and_fit(server: Server, opened: Opener, width: int, scheme: Any) -> None:
    visit = opened(server, viewport={"width": width, "height": 800}, color_scheme=scheme).open()
    visit.page.locator("#d-proof > summary").click()
    for selector in ("#limits", "#c-lorenz", "#c-value"):
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
        compute(visit)
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
    visit.page.locator("#q-start").click()  # the questions come first
    for number in range(1, 9):
        visit.page.locator("#q-number", has_text=f"Question {number} of 8").wait_for()
        assert not visit.page.locator("#answer").is_visible()
        assert "clicks and" in visit.text("#q-a")
        visit.page.locator("#q-equal" if number == 3 else "#q-a").click()
    visit.page.locator("#q-use").wait_for()
    assert "After 8 answers beta = " in visit.text("#q-said")
    beta = re.findall(r"beta = ([\d.]+)", visit.text("#q-said"))[0]
    visit.page.locator("#q-back").click()
    visit.page.locator("#q-number", has_text="Question 8 of 8").wait_for()
    visit.page.locator("#q-a").click()
    visit.page.locator("#q-use").click()
    visit.page.locator("#chosen", has_text=f"Fairness weighs {beta}").wait_for()
    assert visit.page.locator("#c-frontier svg").is_visible()
    assert visit.console == []
    assert server.get(shop.SHOP)["version"] == 1  # nothing was changed


# --- states ------------------------------------------------------------------------------------

STATES = """
state = "state"
listen = "127.0.0.1:0"
[models.shelf]
missing = "zero"
window = "0.3 s"
problem = { kind = "ranking", n_slots = 3, n_features = [4, 4] }
objective = "TwoSided(GiniWelfare(), beta=0.5)"
""" + "".join(
    f"""
[models.{name}]
missing = "zero"
apply = "arrival"
window = "{window}"
arms = ["plain", "rich"]
problem = {{ kind = "arms", n_features = 1, n_arms = 2, {norm}\
rewards = {{ clicks = [0, 1], cost = [0, 1] }} }}
objective = "Linear({{'clicks': 1.0}}) + {limit}"
policy = {{ name = "frank-wolfe", base = {{ name = "linucb", exploration = 0.3 }} }}
"""
    for name, window, norm, limit in (
        ("empty", "0.3 s", "", "AtMost({'cost': 0.6})"),
        ("waiting", "600 s", "", "AtMost({'cost': 0.6})"),
        ("young", "0.3 s", "", "AtMost({'cost': 0.6})"),
        ("running", "0.3 s", "", "AtMost({'cost': 0.6})"),
        ("stopped", "0.3 s", "", "AtMost({'cost': 0.6})"),
        ("infeasible", "0.3 s", "parameter_norm = 1.0, ", "AtLeast(0.8)"),
    )
)
PAYS = {"infeasible": ((1.0, 0.0), (0.0, 1.0))}  # clicks and costs of the arms
VISITS = {"waiting": (1, 20), "young": (1, 20), "running": (120, 10), "infeasible": (120, 20)}


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A model in each state."""
    broken = ("tests.service.broken", "stopping")
    with Server(tmp_path_factory.mktemp("states"), STATES, *broken) as one:
        for name, (rounds, n) in VISITS.items():
            rng, path = np.random.default_rng(0), f"/v1/models/{name}"
            pays = PAYS.get(name, ((0.2, 0.4), (0.8, 0.8)))
            for _ in range(rounds):
                made = one.post(f"{path}/decide_many", {"requests": [{"user": [1.0]}] * n})
                entries = []
                for decided in made:
                    clicks, cost = pays[decided["arm"]]
                    earned = {"clicks": float(rng.random() < clicks), "cost": cost}
                    entries.append({"id": decided["id"], "rewards": earned})
                if name != "waiting":
                    one.post(f"{path}/feedback", entries)
        one.post("/v1/models/stopped/decide", {"user": [1.0]})
        wait_for(lambda: one.get("/v1/models/stopped")["stopped"])
        for name in ("young", "running", "infeasible"):
            wait_for(lambda path=f"/v1/models/{name}": one.get(path)["open"] == 0)
        yield one


@pytest.mark.parametrize(
    ("model", "state", "words"),
    [
        ("shelf", "bare", "3 more are needed before the first visit"),
        ("empty", "empty", "POST /v1/models/empty/decide"),
        ("waiting", "waiting", "20 visits so far, and nothing came back yet"),
        ("young", "young", "20 visits with feedback so far"),
        ("infeasible", "infeasible", "nothing that could be shown keeps all of them together"),
        ("stopped", "stopped", "until the service is started again"),
    ],
)
def test_every_state_has_a_sentence(
    states: Server, opened: Opener, model: str, state: str, words: str
) -> None:
    visit = opened(states, viewport={"width": 390, "height": 800}).open(f"/?model={model}")
    banner = visit.page.locator(f'.banner[data-state="{state}"]')
    assert words in str(banner.text_content())
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert visit.console == []
    if state == "infeasible":
        assert "Cannot be kept" in visit.text("#limits")
        assert visit.text("#limits .lead") == "No: 2 of 2 are missed."
    if state in ("young", "waiting", "infeasible"):
        assert visit.page.locator(".tiles.first").count() == 0  # no share of the best


def test_arms_answer_the_three_questions(states: Server, opened: Opener) -> None:
    visit = opened(states).open("/?model=running")
    assert visit.page.locator(".banner:visible").count() == 0
    told = frame(states, "/v1/models/running")
    rows = visit.rows("shown")
    assert set(rows) == {"plain", "rich"}
    assert all(near(rows[name][1], now) for name, now, _ in told["doing"]["most"])
    assert "of the best reachable" in tiles(visit)
    (limit,) = told["limits"]
    assert (limit["state"], visit.text("#limits .light")) in (
        ("kept", "Kept"),
        ("line", "On the line"),
    )
    # One more of the limit buys clicks: (0.8 - 0.2)/(0.8 - 0.4) = 1.5 for each of it.
    price = re.findall(
        r"from 0.6 to 0.7 would buy about ([\d.]+) clicks per 100", visit.text("#limits")
    )
    assert float(price[0]) == pytest.approx(15.0, rel=0.4)
    chart = visit.page.locator("#limits .plot")
    assert chart.locator(".limit-line").count() == 1
    assert "limit: at most 0.6" in str(chart.text_content())
    assert "No guarantee yet: tell us how large effects can be (parameter_norm)." in visit.text(
        "#proof"
    )


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


def compute(visit: Visit) -> None:
    visit.page.locator("#all").click()
    visit.page.locator("#answer").wait_for()
    visit.page.locator("#asked", has_text="not guaranteed").wait_for()


def test_another_beta_is_applied_and_the_service_is_started_again(
    own: Server, opened: Opener
) -> None:
    assert max(bonuses(own)) > 0.0
    visit = opened(own).open()
    compute(visit)
    slider = visit.page.locator("#choice")
    slider.focus()
    assert visit.text("#chosen") == "Fairness weighs 0.5 (beta), as now"
    assert visit.page.locator("#apply").is_disabled()
    slider.press("Home")  # by keyboard
    assert visit.text("#chosen") == "Fairness weighs 0 (beta)"
    # The preview: rewards and exposure now and then, and who gains and loses.
    now, then, change = visit.rows("preview")["exposure of the least shown half of the items"]
    assert float(now[:-2]) > float(then[:-2])
    assert change.startswith("−")
    now, then, change = visit.rows("preview")["clicks a visit"]
    assert float(then) >= float(now)
    for id, sign in (("gains", 1), ("losses", -1)):
        moved = re.findall(r"(item \d+) \(([\d.]+) → ([\d.]+)\)", visit.text(f"#{id}"))
        assert len(moved) == 3
        assert all(sign * (float(after) - float(before)) > 0.0 for _, before, after in moved)
    visit.page.locator("#apply").click()
    assert visit.text("#c-to") == "clicks"
    assert "clicks + 0.5 x" in visit.text("#c-from")
    visit.page.locator("#no").click()
    assert own.get(shop.SHOP)["version"] == 0  # not confirmed
    visit.page.locator("#apply").click()
    visit.page.locator("#yes").click()
    visit.page.locator("#asked", has_text="Applied: version 1").wait_for()
    assert own.get(shop.SHOP)["objective"] == shop.FAIR.replace("0.5", "0.0")
    assert max(bonuses(own)) == 0.0  # the next decisions follow it
    visit.page.locator("#version", has_text="changed once").wait_for()
    visit.page.locator("#t-changes tbody tr").wait_for()
    fair = "clicks + 0.5 x fairness of exposure (Gini welfare)"
    assert visit.rows("changes")["1"][1:] == ["–", fair, "clicks"]
    assert visit.console == []
    # The service ends and comes back: so does the page, by itself.
    assert own.stop() == 0
    visit.page.locator("#lost", has_text="it may be starting again").wait_for()
    assert visit.page.locator("body.stale .state.off").count() == 1
    own.start()
    visit.page.locator(".state.on").wait_for()
    assert not visit.page.locator("#lost").is_visible()
    shop.World().visit(own, 50)
    shop.rest(own)
    visits = f"{own.get(shop.SHOP)['decisions']:,} visits so far"
    visit.page.locator("#doing", has_text=visits).wait_for()
    # And after kill -9.
    own.kill()
    visit.page.locator(".state.off").wait_for()
    own.start()
    visit.page.locator(".state.on").wait_for()
    assert visit.rows("changes")["1"][3] == "clicks"


def test_wrong_questions_get_a_sentence_and_change_nothing(own: Server, opened: Opener) -> None:
    visit = opened(own).open()
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
    compute(visit)
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
        compute(visit)
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
        page.locator("#asked", has_text="Applied: version 1").wait_for()
        page.locator("#t-changes tbody tr").wait_for()
        assert visit.rows("changes")["1"][1] == "owner"
        assert page.locator("#admin").input_value() == ""
        # A sign-in that has ended: after a restart nobody is signed in.
        server.stop()
        page.locator(".state.off").wait_for()
        server.start()
        page.locator("[role=alert]", has_text="Your sign-in has ended; sign in again").wait_for()
        assert page.locator("#doing").count() == 0
