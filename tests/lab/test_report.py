"""Reports: numbers that coincide with `compare`, a page that is whole, and what a browser says."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fairwolfe as fw
from fairwolfe import lab
from fairwolfe.bandits import LinUCB, Uniform
from fairwolfe.cli import commands
from fairwolfe.environments import Mehrotra
from fairwolfe.errors import InvalidInput
from fairwolfe.fairness.metrics import gini_index
from fairwolfe.lab.report import Report, pictures, report
from fairwolfe.lab.results import PolicyGroup
from fairwolfe.objectives import GiniWelfare
from fairwolfe.plots import line_style
from fairwolfe.simulation.compare import Line
from tests.capabilities import browser

pytestmark = pytest.mark.needs("pyarrow", "matplotlib", "jinja2")

NASTY = """<script>alert("1")</script> & $5_$ 'q'"""

ARMS = f"""
name = "arms"
horizon = 200
seeds = 3
environment = {{ name = "mehrotra", n_arms = 5, n_objectives = 3, n_features = 3 }}
objective = {{ name = "gini-welfare" }}
policies.LinUCB = {{ name = "frank-wolfe", base = {{ name = "linucb" }} }}
policies.{json.dumps(NASTY)} = {{ name = "frank-wolfe", base = {{ name = "uniform" }} }}
grid."policies.LinUCB.base.ridge" = [0.1, 1.0]
"""

ITEMS = """
name = "items"
horizon = 100
seeds = 2
environment = { name = "factor_model", users = 6, items = 12, n_factors = 3 }
objective = { name = "two-sided", items = { name = "gini-equality" }, beta = 0.1 }
policies._fair = { name = "fw-linucb-rank", exploration = 0.1 }
policies.plain = { name = "linucb-rank", exploration = 0.1 }
grid."objective.beta" = [0.1, 5.0]
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Results of two small experiments."""
    root = tmp_path_factory.mktemp("results")
    for text in (ARMS, ITEMS):
        experiment = lab.Experiment.of(text)
        swept = lab.run(experiment, root / experiment.name, jobs=1)
        assert not swept.missing
    return {name: root / name for name in ("arms", "items")}


@pytest.fixture(scope="module")
def pages(folders: dict[str, Path]) -> dict[str, Path]:
    return {name: report(folder)[1][0] for name, folder in folders.items()}


# --- numbers ----------------------------------------------------------------------------------


def test_numbers_are_those_of_compare(folders: dict[str, Path]) -> None:
    world = Mehrotra(n_arms=5, n_objectives=3, n_features=3)
    policies = {
        "LinUCB, ridge = 0.1": fw.FrankWolfe(GiniWelfare(), LinUCB(ridge=0.1)),
        "LinUCB, ridge = 1": fw.FrankWolfe(GiniWelfare(), LinUCB(ridge=1.0)),
        NASTY: fw.FrankWolfe(GiniWelfare(), Uniform()),
    }
    direct = fw.compare(policies, world, 200, 3)
    (group,) = Report.of(folders["arms"]).groups
    assert group.title == ""
    assert [line.name for line in group.lines] == list(policies)
    for line in group.lines:
        assert np.array_equal(line.values, direct.values(line.name))
        assert np.array_equal(line.t, direct.traces[line.name][0].t)
    rows = group.rows()
    table = {row["policy"]: row for row in direct.table()}
    best = rows[0]["policy"]
    assert rows[0]["behind"] is None
    for row in rows:
        assert (row["value"], row["low"], row["high"]) == pytest.approx(
            [table[row["policy"]][key] for key in ("value", "low", "high")]
        )
        if row["policy"] != best:
            ours = [row["behind"], row["behind_low"], row["behind_high"]]
            assert ours == pytest.approx(direct.difference(best, row["policy"]))
    assert rows[-1]["policy"] == NASTY


def test_what_cannot_be_compared_stands_apart(folders: dict[str, Path]) -> None:
    groups = Report.of(folders["items"]).groups
    assert [group.title for group in groups] == ["beta = 0.1", "beta = 5"]
    assert [[line.name for line in group.lines] for group in groups] == [["_fair", "plain"]] * 2
    # The second policy knows nothing of beta: the same runs, another f.
    plain = [group.lines[1] for group in groups]
    assert np.array_equal(plain[0].averages, plain[1].averages)
    assert not np.array_equal(plain[0].values, plain[1].values)
    exposures = plain[0].exposures
    assert exposures is not None
    assert exposures.shape == (2, 12)
    assert plain[0].fairness["gini"] == pytest.approx([gini_index(e) for e in exposures])
    assert plain[0].fairness["utility"] == pytest.approx(plain[0].averages[:, 12])


def line(name: str, seeds: tuple[int, ...], finals: list[float]) -> Line:
    values = np.array([[0.0, final] for final in finals])
    return Line(name, seeds, np.array([1, 100]), values, np.zeros((len(seeds), 2)), 1.0)


def test_only_common_seeds_are_paired() -> None:
    one, two = line("one", (0, 1, 2), [1.0, 2.0, 3.0]), line("two", (2, 1), [2.5, 1.5])
    group = PolicyGroup("", "", (one, two, line("three", (7,), [0.0])))
    assert group.best is two or group.best is one
    assert group.behind(two).tolist() == [[0.0, 0.5], [0.0, 0.5]]
    assert group.behind(group.lines[2]).size == 0
    rows = {row["policy"]: row for row in group.rows()}
    assert rows["two"]["behind"] == pytest.approx(0.5)
    assert rows["three"]["behind"] is None
    single = PolicyGroup("", "", (one, line("four", (2, 9), [1.0, 1.1])))
    last = single.rows()[1]
    assert (last["behind"], last["behind_low"]) == (2.0, None)  # one seed in common: no interval
    assert "four cannot be distinguished" in single.sentences()[1]
    assert len(pictures([group]).groups[0]) == 2


def test_sentences_tell_what_is_known() -> None:
    far = line("far", (0, 1, 2, 3), [0.1, 0.11, 0.09, 0.1])
    near = line("near", (0, 1, 2, 3), [0.9, 1.1, 0.8, 1.16])
    best = line("best", (0, 1, 2, 3), [1.0, 1.0, 1.0, 1.0])
    said = " ".join(PolicyGroup("", "", (far, near, best)).sentences())
    assert "best has the largest f after 100 rounds: 1.00" in said
    assert "far is behind it by 0.90" in said
    assert "near cannot be distinguished from it with 4 seeds" in said
    alone = PolicyGroup("", "", (line("a", (0,), [1.0]), line("b", (0,), [0.5]))).sentences()
    assert alone[1] == "b cannot be distinguished from it with one seed."


def test_curves_for_others(folders: dict[str, Path], pages: dict[str, Path]) -> None:
    text = (folders["arms"] / "report" / "curves.csv").read_text()
    rows = list(csv.DictReader(io.StringIO(text)))
    (group,) = Report.of(folders["arms"]).groups
    assert len(rows) == sum(len(one.t) for one in group.lines)
    for one in group.lines:
        mine = [row for row in rows if row["policy"] == one.name]
        assert [int(row["t"]) for row in mine] == one.t.tolist()
        bands = [[float(row[key]) for key in ("value", "low", "high")] for row in mine]
        assert np.array_equal(bands, one.bands())


# --- the page ---------------------------------------------------------------------------------


class Reader(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.mark.parametrize("name", ["arms", "items"])
def test_the_page_needs_nothing_else(pages: dict[str, Path], name: str) -> None:
    text = pages[name].read_text()
    page = Reader(text)
    assert page.open == []
    assert not {"script", "link", "img", "iframe", "object", "image"} & {t for t, _ in page.tags}
    for tag, attributes in page.tags:
        assert not any(key.startswith("on") or key == "src" for key in attributes), tag
        for key, value in attributes.items():
            if key in ("href", "xlink:href"):
                assert (value or "").startswith("#"), value
    assert re.findall(r"url\((?!#)", text) == []
    assert "@import" not in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', text))
    assert used <= set(ids)


@pytest.mark.parametrize("name", ["arms", "items"])
def test_the_page_can_be_read_aloud(pages: dict[str, Path], name: str) -> None:
    text = pages[name].read_text()
    page = Reader(text)
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("h1")) == 1
    assert all(figure.get("role") == "img" for figure in page.all("svg"))
    assert len(page.all("figcaption")) == len(page.all("svg")) == len(page.all("figure"))
    alts = re.findall(r'aria-labelledby="([^"]+)"[^>]*><title id="([^"]+)">([^<]{20,})<', text)
    assert len(alts) == len(page.all("svg"))
    assert all(one == two for one, two, _ in alts)
    assert all("scope" in head for head in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table"))


def test_labels_are_text(pages: dict[str, Path], folders: dict[str, Path]) -> None:
    text = pages["arms"].read_text()
    assert "<script" not in text
    page = Reader(text)
    assert page.text.count(NASTY) >= 4  # sentences, table, legends, the spec
    svg = (folders["arms"] / "report" / "values-1.svg").read_text()
    assert "<script" not in svg
    # In a figure $5_$ is no formula, and a name that begins with _ is not left out.
    assert html.escape(NASTY, quote=False) in svg
    assert "_fair" in (folders["items"] / "report" / "values-1.svg").read_text()


def test_the_page_tells_how_to_make_it_again(pages: dict[str, Path]) -> None:
    page = Reader(pages["arms"].read_text())
    assert ARMS in page.text
    assert "fairwolfe run spec.toml --out again\nfairwolfe report again" in page.text
    assert f"fairwolfe {fw.__version__}" in page.text


def test_two_reports_are_equal(folders: dict[str, Path], pages: dict[str, Path]) -> None:
    before = {file.name: file.read_bytes() for file in (folders["items"] / "report").glob("*.svg")}
    page = pages["items"].read_bytes()
    made, files = report(folders["items"])
    assert files[0].read_bytes() == page
    assert {f.name: f.read_bytes() for f in files if f.suffix == ".svg"} == before
    assert {f.name for f in files} >= {"values-1.svg", "lorenz-2.png", "trade-off-1.png"}
    assert made.failed == {}


def test_failures_and_gaps_are_shown(folders: dict[str, Path], tmp_path: Path) -> None:
    """A run is taken away, as if it had failed."""
    folder = tmp_path / "broken"
    (folder / "runs").mkdir(parents=True)
    (folder / "failed").mkdir()
    (folder / "spec.toml").write_text(ARMS)
    runs = sorted((folders["arms"] / "runs").iterdir())
    (folder / "failed" / f"{runs[0].stem}.txt").write_text("LinUCB, seed 0\n\n<b>ValueError</b>\n")
    with_nothing = Report.of(folder)
    assert with_nothing.groups == ()
    assert with_nothing.missing == 9
    text = with_nothing.html(pictures(()))
    assert "&lt;b&gt;ValueError&lt;/b&gt;" in text
    for run in runs[1:]:
        (folder / "runs" / run.name).write_bytes(run.read_bytes())
    made, files = report(folder, tmp_path / "else" / "page.html")
    assert files[0] == tmp_path / "else" / "page.html"
    assert "1 run has no result yet; 1 of them failed" in " ".join(made.summary())
    assert "--resume" in made.commands()[-1]
    assert "Runs that failed" in files[0].read_text()


def test_seeds_of_its_own_are_part_of_the_command(tmp_path: Path) -> None:
    experiment = lab.Experiment.of(ARMS.replace("200", "10"))
    lab.run(experiment, tmp_path / "one", jobs=1, seeds=[4])
    made = Report.of(tmp_path / "one")
    assert made.commands()[0] == "fairwolfe run spec.toml --out again --seeds 4,"
    assert len(pictures(made.groups).groups[0]) == 1  # one seed: nothing to pair


def test_late_and_prompt_feedback_are_compared(tmp_path: Path) -> None:
    text = ARMS.replace("200", "30").replace("seeds = 3", "seeds = 2")
    text = text[: text.index("grid.")] + "options.lateness.delay = 0\n"
    text += 'grid."options.lateness.delay" = [0, { name = "uniform", low = 5, high = 9 }]\n'
    lab.run(lab.Experiment.of(text), tmp_path / "late", jobs=1)
    (group,) = Report.of(tmp_path / "late").groups
    late = ["delay = 0", "delay = uniform (low 5, high 9)"]
    assert [line.name for line in group.lines] == [
        f"{label}, {delay}" for label in ("LinUCB", NASTY) for delay in late
    ]
    values = [line.values for line in group.lines]
    assert not np.array_equal(values[0], values[1])
    assert np.array_equal(values[2], values[3])  # who draws blindly waits for nothing


# --- figures ----------------------------------------------------------------------------------


def test_lines_can_be_told_apart() -> None:
    for n in (3, 7, 8, 20):
        styles = [line_style(i, n) for i in range(n)]
        assert len({str(sorted(one.items(), key=str)) for one in styles}) == n
        # In grey: dashes alone, or with markers.
        grey = {str((one["linestyle"], one.get("marker"))) for one in styles}
        assert len(grey) == n
        assert ("marker" in styles[0]) == (n > 7)


def test_many_lines_are_drawn(tmp_path: Path) -> None:
    lines = [line(f"policy {i}", (0, 1), [0.1 * i, 0.1 * i + 0.01]) for i in range(12)]
    drawn = pictures([PolicyGroup("", "", tuple(lines))]).all()
    files = [file for picture in drawn for file in picture.save(tmp_path)]
    assert [file.suffix for file in files] == [".png", ".svg"] * 2
    assert all(file.stat().st_size > 5000 for file in files)
    assert "policy 11" in drawn[0].alt


# --- the command ------------------------------------------------------------------------------


def test_the_command(folders: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    done = CliRunner().invoke(commands, ["report", str(folders["arms"]), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "has the largest f after 200 rounds" in done.output
    assert done.output.strip().endswith(str(out))
    assert out.exists()
    done = CliRunner().invoke(commands, ["report", str(folders["items"]), "--json"])
    document = json.loads(done.output)
    assert [group["setting"] for group in document["groups"]] == ["beta = 0.1", "beta = 5"]
    assert document["files"][0].endswith("report.html")


def test_what_is_no_result_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(commands, ["report", str(tmp_path)])
    assert done.exit_code == 2
    assert "is not a folder of results" in done.output
    (tmp_path / "spec.toml").write_text(ARMS)
    with pytest.raises(InvalidInput, match="no finished run"):
        report(tmp_path)


# --- in a browser -----------------------------------------------------------------------------


def chromium(tmp_path: Path, page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = browser()
    assert command is not None
    quiet = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking"
    quiet += " --disable-component-update --disable-sync --hide-scrollbars --enable-logging=stderr"
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [command, *quiet.split(), profile, *options, page.as_uri()],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done


def framed(page: Path, width: int, out: Path) -> Path:
    """The page in a frame of that width, beside what a script finds out about it."""
    inside = html.escape(page.read_text())
    out.write_text(
        f"""<!DOCTYPE html><iframe id="frame" style="border: 0; width: {width}px; height: 800px"
        srcdoc="{inside}"></iframe><pre id="found"></pre><script>
        document.getElementById("frame").onload = function () {{
          const root = this.contentDocument.documentElement;
          const wide = [...root.querySelectorAll("main > *, figure, svg, li, p")]
            .filter(e => e.getBoundingClientRect().right > root.clientWidth + 1);
          const text = [...root.querySelectorAll("svg text")].map(e => {{
            const svg = e.ownerSVGElement, view = svg.viewBox.baseVal;
            const scale = svg.getBoundingClientRect().width / view.width;
            return scale * parseFloat(getComputedStyle(e).fontSize); }});
          document.getElementById("found").textContent = JSON.stringify({{
            scroll: root.scrollWidth, client: root.clientWidth, wide: wide.length,
            figures: root.querySelectorAll("svg").length, smallest: Math.min(...text),
            drawn: [...root.querySelectorAll("svg")].every(
              e => e.getBoundingClientRect().height > 100) }});
        }};</script>"""
    )
    return out


@pytest.mark.needs("browser")
@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("name", ["arms", "items"])
def test_the_page_fits_the_screen(
    pages: dict[str, Path], tmp_path: Path, name: str, width: int
) -> None:
    wrapper = framed(pages[name], width, tmp_path / "wrapper.html")
    done = chromium(tmp_path, wrapper, "--dump-dom", "--window-size=1500,900")
    answer = re.search(r'<pre id="found">(.*?)</pre>', done.stdout)
    assert answer is not None, done.stdout[-500:]
    found: dict[str, Any] = json.loads(html.unescape(answer[1]))
    assert found["scroll"] <= found["client"]  # tables scroll, the page does not
    assert found["wide"] == 0
    assert found["drawn"]
    assert found["figures"] == (2 if name == "arms" else 7)
    assert found["smallest"] > 9.0  # pixels of the smallest letters in a figure
    assert "CONSOLE" not in done.stderr


@pytest.mark.needs("browser")
def test_the_page_is_drawn(pages: dict[str, Path], tmp_path: Path) -> None:
    """Dark ink on white, and the other way round for those who prefer it."""
    from matplotlib.image import imread

    means = []
    for scheme in ("1", "0"):  # light, dark
        shot = tmp_path / f"{scheme}.png"
        options = (f"--screenshot={shot}", "--window-size=800,1200")
        chromium(
            tmp_path, pages["items"], f"--blink-settings=preferredColorScheme={scheme}", *options
        )
        pixels = imread(shot)[:, :, :3]
        assert pixels.std() > 0.05
        means.append(float(np.median(pixels)))
    assert means[0] > 0.95
    assert means[1] < 0.2


@pytest.mark.needs("browser")
def test_a_label_runs_no_script(pages: dict[str, Path], tmp_path: Path) -> None:
    done = chromium(tmp_path, pages["arms"], "--dump-dom")
    assert "<script" not in done.stdout
    assert "&lt;script&gt;alert" in done.stdout
