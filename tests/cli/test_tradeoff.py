"""`fairwolfe tradeoff`: tables in, questions, a page and an agent out; bad input in a sentence."""

from __future__ import annotations

import csv
import gzip
import json
import re
from html.parser import HTMLParser
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fairwolfe as fw
from fairwolfe.cli import commands
from fairwolfe.environments import Listening, dcg
from fairwolfe.fairness.tradeoff import BEST, FAIR, FLOOR, plan


def fairwolfe(*arguments: str, answers: str = "") -> Result:
    return CliRunner().invoke(commands, arguments, prog_name="fairwolfe", input=answers)


SHORT = ("--betas", "0,1", "--floors", "0,0.1", "--horizon", "300", "--users", "12")
QUICK = ("--floors", "", "--horizon", "200", "--seeds", "1")
FILES = ["tradeoff.html", "tradeoff.json", "tradeoff.png", "tradeoff.svg"]
COUNTS = np.random.default_rng(3).poisson(8.0 / np.arange(1, 31), (60, 30))
ROWS = [(f"listener{u}", f"song{i}", int(COUNTS[u, i])) for u, i in np.argwhere(COUNTS).tolist()]


def producer(song: str) -> str:
    return f"label {int(song.removeprefix('song')) % 3}"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of songs, each with its producer."""
    path = tmp_path_factory.mktemp("tables") / "plays.csv"
    lines = [f"{who},{song},{count},{producer(song)}" for who, song, count in ROWS]
    path.write_text("\n".join(["listener,song,plays,artist", *lines]) + "\n")
    return path


@pytest.mark.needs("matplotlib", "jinja2")
def test_the_command_prints_a_table_sentences_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result = fairwolfe("tradeoff", "factor_model", *SHORT, "--seeds", "2", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    for word in (BEST, FAIR, FLOOR, "95 % interval", "% of clicks lifts the bottom half"):
        assert word in result.stdout
    assert sorted(file.name for file in tmp_path.iterdir()) == FILES
    assert [line for line in result.stdout.splitlines() if line.endswith(tuple(FILES))]
    assert "A click here is one of the world 'factor_model'" in result.stderr


@pytest.mark.needs("matplotlib", "jinja2")
def test_the_table_fits_a_terminal_of_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = fairwolfe("tradeoff", "factor_model", *SHORT, "--seeds", "2", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    head, rule, *rows, left_out = result.stdout.split("\n\n")[0].splitlines()
    assert head.split()[:2] == ["policy", "beta"]
    assert "bottom half" in head
    assert all(len(line) <= 80 for line in (head, rule, *rows))
    assert all(row.startswith((BEST, FAIR, FLOOR)) for row in rows)  # none goes on in a second line
    assert left_out.startswith("Left out at this width: top decile")


@pytest.mark.needs("matplotlib", "jinja2", "pyarrow", "implicit")
def test_the_command_takes_a_table_of_ones_own(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = ("--items", "12", "--item-column", "song", "--out", str(out), "--json")
    result = fairwolfe("tradeoff", str(table), *asked, *SHORT, "--seeds", "1")
    assert result.exit_code == 0, result.output
    assert "users are in column 'listener'" in result.stderr
    assert "name others with --user-column, --item-column, --count-column" in result.stderr
    assert "scaled so that the largest product is 1" in result.stderr
    assert {row["policy"] for row in json.loads(result.stdout)["table"]} == {BEST, FAIR, FLOOR}
    bad = tmp_path / "bad.csv"
    bad.write_text("listener,song,plays\nann,jazz,9\nbob,folk,often\n")
    refused = fairwolfe("tradeoff", str(bad), "--out", str(tmp_path / "none"))
    assert refused.exit_code == 2
    assert "line 3: the count is 'often'" in refused.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.needs("matplotlib", "jinja2", "pyarrow", "implicit", "openpyxl")
def test_a_table_may_be_packed_or_a_sheet(table: Path, tmp_path: Path) -> None:
    from openpyxl import Workbook  # type: ignore[import-untyped]

    packed, sheet = tmp_path / "plays.csv.gz", tmp_path / "plays.xlsx"
    packed.write_bytes(gzip.compress(table.read_bytes()))
    book = Workbook()
    for row in [("listener", "song", "plays"), *ROWS]:
        book.active.append(row)
    book.save(sheet)
    said = []
    for path in (table, packed, sheet):
        named = ("--item-column", "song", "--slots", "3", "--betas", "0,1", "--json")
        result = fairwolfe("tradeoff", str(path), *named, *QUICK, "--out", str(tmp_path / "out"))
        assert result.exit_code == 0, result.output
        said.append(json.loads(result.stdout)["table"])
    assert said[0] == said[1] == said[2]


@pytest.mark.needs("matplotlib", "jinja2", "pyarrow", "implicit")
def test_slots_and_groups(table: Path, tmp_path: Path) -> None:
    arguments = ("--group-column", "artist", "--slots", "4", "--json", "--out", str(tmp_path))
    result = fairwolfe("tradeoff", str(table), *arguments, *QUICK)
    assert result.exit_code == 0, result.output
    # 'artist' would be taken for the item if it were not that of the groups.
    assert "items are in column 'song'" in result.stderr
    assert "Slot j of 4 is exposed" in result.stderr
    said = json.loads(result.stdout)
    with (tmp_path / "groups.csv").open() as file:
        rows = list(csv.DictReader(file))
    world = Listening(table, item="song", position_weights=dcg(4))
    labels = [producer(str(song)) for song in world.item_ids]
    betas = sorted({float(row["beta"]) for row in rows})
    assert betas[0] == 0.0
    assert said["beta"] in betas
    reached = plan(world, "gini", None, floors=(), seeds=1, horizon=1).reach()
    wanted = reached.more(b for b in betas if b not in reached.best).by_group(labels, betas)
    assert len(rows) == len(wanted) == 3 * len(betas)
    for row, right in zip(rows, wanted, strict=True):
        assert row["group"] == right["group"]
        assert float(row["exposure"]) == pytest.approx(right["exposure"], rel=0.02, abs=1e-3)
        assert float(row["utility"]) == pytest.approx(right["utility"], rel=0.02, abs=1e-3)
    shares = {row["group"]: float(row["plays_share"]) for row in rows}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert any(sentence.startswith("Of 3 groups") for sentence in said["sentences"])
    assert "Who gains and who loses" in (tmp_path / "tradeoff.html").read_text()
    gini = [row["gini"] for row in said["frontier"]]
    assert np.abs(np.diff(gini)).max() < 0.2


@pytest.mark.needs("matplotlib", "jinja2", "pyarrow", "implicit")
def test_a_budget_and_the_agent_for_the_engineer(table: Path, tmp_path: Path) -> None:
    file = tmp_path / "agent.fw"
    result = fairwolfe(
        "tradeoff", str(table), "--item-column", "song", "--slots", "3", "--give-up", "3%",
        "--save", str(file), "--json", "--out", str(tmp_path), *QUICK,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    beta = said["beta"]
    assert said["give_up"]["beta"] == beta
    assert said["give_up"]["cost"] <= 0.03
    assert beta in [row["beta"] for row in said["table"] if row["policy"] == FAIR]
    assert any("at most 3 % of clicks" in sentence for sentence in said["sentences"])
    agent = fw.Agent.load(file)
    assert f"beta={beta!r}" in repr(agent.policy)
    with (tmp_path / "agent-users.csv").open() as users:
        rows = list(csv.reader(users))
    user = np.array([float(cell) for cell in rows[1][1:]])
    assert rows[1][0].startswith("listener")
    decision = agent.act(user)
    assert decision.names is not None
    assert len(decision.names) == 3
    assert all(key.startswith("song") for key in decision.names)
    agent.update(decision, exposed=[decision.names[0]], clicked=[])
    assert agent.t == 1


@pytest.mark.needs("matplotlib", "jinja2")
@pytest.mark.parametrize(
    ("typed", "answers"),
    [
        ("a\nb\n=\nA\n b \na\nb\na\nb\n", ["a", "b", "equal", "a", "b", "a", "b", "a"]),
        ("a\nperhaps\nb\n=\n", ["a", "b", "equal"]),  # the input ends
        ("q\na\n", []),
    ],
)
def test_questions_from_a_pipe(typed: str, answers: list[str], tmp_path: Path) -> None:
    small = ("factor_model", "--users", "12", "--items", "9", "--slots", "3")
    asked = ("tradeoff", *small, "--ask", "--json", *QUICK, "--out", str(tmp_path))
    result = fairwolfe(*asked, answers=typed)
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert "Which is better for you?" in result.stderr
    assert ("'perhaps' is not one of them" in result.stderr) == ("perhaps" in typed)
    if not answers:
        assert "ask" not in said
        assert "Nothing was answered" in said["sentences"][0]
        return
    assert said["ask"]["answers"] == answers
    assert said["ask"]["beta"] == said["beta"]
    low, high = said["ask"]["interval"]
    assert low < said["beta"] < high
    assert said["sentences"][0].startswith(f"After {len(answers)} answer")


@pytest.mark.needs("matplotlib", "jinja2")
def test_what_todays_numbers_imply(tmp_path: Path) -> None:
    small = ("tradeoff", "factor_model", "--users", "12", "--items", "9", "--slots", "3", *QUICK)
    more = ("--json", "--out", str(tmp_path), "--implied")
    result = fairwolfe(*small, *more, "utility=0.5,gini=0.3")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)["implied"]
    assert said["beta"] is None
    assert said["dominated_by"]["percent"] > 1.0
    assert "are dominated" in json.loads(result.stdout)["sentences"][0]
    assert ">today<" in (tmp_path / "tradeoff.html").read_text()
    result = fairwolfe(*small, *more, "utility=99,item_objective=1")
    assert json.loads(result.stdout)["implied"]["attainable"] is False


class Seen(HTMLParser):
    """Everything that a page would load or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.foreign: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)
        assert tag not in ("script", "iframe", "link", "object")
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and not str(value).startswith(("#", "data:")):
                self.foreign.append(str(value))
            assert not name.startswith("on")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.needs("matplotlib", "jinja2", "pyarrow", "implicit")
def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    table = tmp_path / "<b>plays.csv"
    lines = [f"{who},{song},{count},<i>{producer(song)}</i>" for who, song, count in ROWS]
    table.write_text("\n".join(["listener,song,plays,label", *lines]))
    arguments = ("--group-column", "label", "--slots", "3", "--out", str(tmp_path / "out"))
    result = fairwolfe("tradeoff", str(table), *arguments, *QUICK)
    assert result.exit_code == 0, result.output
    text = (tmp_path / "out" / "tradeoff.html").read_text()
    page = Seen(text)
    assert page.foreign == []
    assert not re.search(r"url\((?!#)|@import", text)
    assert "<i>label" not in text
    assert "&lt;i&gt;label 1&lt;/i&gt;" in text
    assert text.count("<svg") == 2
    assert "prefers-color-scheme: dark" in text
    assert "What a click is here" in text


def _look(chromium: Any, page: str, width: int, scheme: str) -> None:
    """Open a page: it says nothing, loads nothing, and never scrolls sideways."""
    view = {"width": width, "height": 800}
    tab = chromium.new_context(viewport=view, color_scheme=scheme).new_page()
    said: list[str] = []
    loaded: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("request", lambda request: loaded.append(request.url))
    tab.goto(page)
    assert said == []
    assert loaded == [page]
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.needs("matplotlib", "jinja2", "browser")
@pytest.mark.slow
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    from tests.capabilities import browser

    small = ("factor_model", "--users", "12", "--items", "9", "--slots", "3")
    result = fairwolfe("tradeoff", *small, *QUICK, "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    page = (tmp_path / "tradeoff.html").as_uri()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        for width in (360, 1400):
            for scheme in ("light", "dark"):
                _look(chromium, page, width, scheme)
        chromium.close()


@pytest.mark.needs("matplotlib", "jinja2")
def test_the_command_as_json(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    result = fairwolfe(
        "tradeoff", "factor_model", *SHORT, "--seeds", "1", "--json", "--out", str(out),
        "--objective", "nash",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout, parse_constant=pytest.fail)
    kept = json.loads((out / "tradeoff.json").read_text())
    assert kept == {key: said[key] for key in said if key != "files"}
    assert {"table", "sentences", "seeds", "frontier", "beta", "why", "clicks"} <= set(kept)
    assert len(said["table"]) == 6
    assert said["table"][0]["item_objective"] is None


@pytest.mark.needs("matplotlib", "jinja2")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mehrotra"], "'mehrotra' has arms"),
        (["nowhere"], "there is no world 'nowhere'"),
        (["nowhere.csv"], "there is no file nowhere.csv"),
        (["nowhere.csv.gz"], "there is no file nowhere.csv.gz"),
        (["factor_model", "--betas", "0,x"], "--betas is '0,x'"),
        (["factor_model", "--betas", ""], "--betas is empty"),
        (["factor_model", "--betas", "-1"], "--betas: beta is -1"),
        (["factor_model", "--floors", "0.9"], "--floors: the floor is 0.9; 10 slots cannot show"),
        (
            ["factor_model", "--objective", "fair"],
            "--objective is 'fair'; give an expression such as",
        ),
        (["factor_model", "--exploration", "much"], "--exploration is 'much'"),
        (["factor_model", "--user-column", "who"], "--user-column is for tables"),
        (["factor_model", "--group-column", "who"], "--group-column is for tables"),
        (["factor_model", "--items", "5"], "--slots is 10 and there are 5 items"),
        (["factor_model", "--slots", "51"], "--slots is 51 and there are 50 items"),
        (["factor_model", "--give-up", "much"], "--give-up is 'much'; give the part of utility"),
        (["factor_model", "--give-up", "100%"], "--give-up is '100%'"),
        (["factor_model", "--implied", "utility=1"], "--implied is 'utility=1'; give utility="),
        (["factor_model", "--implied", "utility=x,gini=1"], "--implied is 'utility=x,gini=1'"),
        (["factor_model", "--implied", "utility=1,gini=9"], "--implied is 'utility=1,gini=9'"),
        (
            ["factor_model", "--implied", "utility=1,gini=0.3", "--objective", "nash"],
            "--objective nash is not a function of the Gini index",
        ),
        (["factor_model", "--ask", "--give-up", "3%"], "--ask and --give-up both choose"),
        (["factor_model", "--save", "no/such/agent.fw"], "there is no folder no/such"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = fairwolfe("tradeoff", *arguments, "--out", str(out))
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not out.exists()


@pytest.mark.needs("matplotlib", "jinja2", "pyarrow", "implicit")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--slots", "40"], "--slots is 40 and there are"),
        (["--group-column", "label"], "--group-column is 'label', and"),
        (["--group-column", "song", "--item-column", "song"], "which is another column"),
        (["--group-column", "plays", "--item-column", "song"], "is in two groups, "),
    ],
)
def test_columns_that_do_not_fit(
    arguments: list[str], words: str, table: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = fairwolfe("tradeoff", str(table), *arguments, "--out", str(out))
    assert result.exit_code == 2
    assert words in result.stderr
    assert "user=" not in result.stderr
    assert "Traceback" not in result.stderr
    assert not out.exists()


def test_one_extra_is_all_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    find = util.find_spec
    monkeypatch.setattr(
        util, "find_spec", lambda name, *rest: None if name == "matplotlib" else find(name, *rest)
    )
    result = fairwolfe("tradeoff", "factor_model")
    assert result.exit_code == 2
    assert "pip install 'fairwolfe[lab]'" in result.stderr


def test_help_has_examples() -> None:
    text = fairwolfe("tradeoff", "--help").output
    for word in (
        "--give-up 3%",
        "--ask",
        "--group-column producer",
        "--save agent.fw",
    ):
        assert word in text
