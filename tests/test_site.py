"""The site is whole: it builds without a warning, its links lead somewhere, it needs no network.

The site is built once, without playing its examples; a slow test builds all of it.
"""

from __future__ import annotations

import doctest
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import pytest

import fairwolfe
from fairwolfe import lab
from tests.capabilities import browser
from tests.site import Site, Step
from tests.test_docs import blocks

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# Files of a build, not of the documentation, that must not be pages or be found.
LEAKS = (
    "genindex",
    "py-modindex",
    "sg_execution_times",
    "sg_api_usage",
    "backreferences",
    "_modules",
)
MODULES = [
    "fairwolfe",
    *sorted(
        getattr(fairwolfe, name).__name__
        for name in fairwolfe.__all__
        if isinstance(getattr(fairwolfe, name), ModuleType)
    ),
    "fairwolfe.client",
    "fairwolfe.fairness",
    "fairwolfe.truth",
]


def build(folder: Path, *options: str) -> Path:
    """The site, built from copies, so that nothing is written beside the sources."""
    made = shutil.ignore_patterns("_build", "gallery", "__pycache__")
    shutil.copytree(DOCS, folder / "docs", ignore=made)
    for part in ("examples", "tests/plugins"):
        shutil.copytree(ROOT / part, folder / part, ignore=made)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", *options]
    command += ["-d", str(folder / "trees"), str(folder / "docs"), str(folder / "html")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The site without its examples played; processes that test side by side share it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "site"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "html" / "objects.inv").exists():
            shutil.rmtree(folder, ignore_errors=True)
            build(folder, "-D", "plot_gallery=0")
    return Site(folder / "html")


def whole(site: Site) -> None:
    assert list(site.broken()) == []
    assert list(site.loaded_from_elsewhere()) == []
    assert list(site.raw_formulas()) == []


def test_every_link_of_the_site_leads_somewhere(site: Site) -> None:
    assert len(site.pages()) >= 90
    assert sum(len(site.page(file).links) for file in site.pages()) >= 5_000
    assert list(site.broken()) == []


def test_the_site_loads_nothing_from_elsewhere(site: Site) -> None:
    assert list(site.loaded_from_elsewhere()) == []


def test_formulas_are_there_without_a_script(site: Site) -> None:
    assert list(site.raw_formulas()) == []
    formulas = sum(file.read_text().count("<math ") for file in site.pages())
    assert formulas >= 1_000


def leaked(names: Iterable[str]) -> list[str]:
    return [name for name in names if any(leak in name for leak in LEAKS)]


def test_pages_of_the_build_are_not_in_the_site(site: Site) -> None:
    assert leaked(map(site.name, site.pages())) == []
    index = (site.folder / "searchindex.js").read_text()
    searched = json.loads(index.partition('"docnames":')[2].partition("]")[0] + "]")
    assert "choosing-f" in searched
    assert leaked(searched) == []
    assert leaked(["index", "gallery/sg_execution_times"]) == ["gallery/sg_execution_times"]


@pytest.mark.slow
@pytest.mark.needs("implicit", "matplotlib", "pyarrow", "scikit-learn")
def test_the_site_with_all_examples_played_is_whole(tmp_path: Path) -> None:
    folder = build(tmp_path)
    whole(Site(folder))
    assert len(list(folder.glob("_images/sphx_glr_*.png"))) >= 13


def test_the_checks_of_a_site_see_what_is_broken(tmp_path: Path) -> None:
    (tmp_path / "one.html").write_text("""
        <script src="https://elsewhere.example/mathjax.js"></script>
        <link rel="stylesheet" href="//elsewhere.example/style.css">
        <link rel="canonical" href="https://elsewhere.example/one.html">
        <style>@font-face { src: url(https://elsewhere.example/font.woff2) }</style>
        <img src="missing.png">
        <p id="here">where $x^2$ is not \\(y\\), <code>$z$</code> costs $ 5 or $7</p>
        <a href="#here"></a> <a href="#there"></a> <a href="two.html#a%20b"></a>
        <a href="two.html#c"></a> <a href="three.html"></a> <a href="../outside.html"></a>
        <a href="https://elsewhere.example/"></a>
    """)
    (tmp_path / "two.html").write_text('<a id="a b"></a>')
    (tmp_path / "some.css").write_text("@import 'https://elsewhere.example/more.css'; a { b: c }")
    (tmp_path.parent / "outside.html").touch()
    site = Site(tmp_path)
    assert list(site.broken()) == [
        "one.html: #there",
        "one.html: two.html#c",
        "one.html: three.html",
        "one.html: ../outside.html",
        "one.html: missing.png",
    ]
    assert list(site.loaded_from_elsewhere()) == [
        "one.html: https://elsewhere.example/mathjax.js",
        "one.html: //elsewhere.example/style.css",
        "one.html: https://elsewhere.example/font.woff2",
        "some.css: https://elsewhere.example/more.css",
    ]
    assert list(site.raw_formulas()) == ["one.html: $x^2$", "one.html: \\("]


# --- in a browser, without a network ---------------------------------------------------------

LOOKED_AT = [
    "index.html",
    "choosing-f.html",
    "own-bandit.html",
    "bandits.html",
    "constraints.html",
    "reproduction.html",
    "command.html",
    "api/top.html",
    "api/protocols.html",
    "gallery/index.html",
    "gallery/05_producers.html",
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        # Sphinx's search loads its index by a script, which file:// allows by this option only.
        options = ["--no-sandbox", "--allow-file-access-from-files"]
        one = play.chromium.launch(executable_path=browser(), args=options)
        yield one
        one.close()


def too_wide(page: Any, file: Path) -> int:
    """By how many pixels a page is wider than the screen."""
    page.goto(file.as_uri())
    return int(page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


@pytest.mark.needs("browser", "playwright")
def test_pages_fit_a_telephone_and_ask_nobody(site: Site, chromium: Any, tmp_path: Path) -> None:
    page = chromium.new_page(viewport={"width": 360, "height": 780}, offline=True)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    assert {name: too_wide(page, site.folder / name) for name in LOOKED_AT} == dict.fromkeys(
        LOOKED_AT, 0
    )
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []

    wide = tmp_path / "wide.html"
    wide.write_text("<table><tr><td style='width: 500px; display: block'>x</td></tr></table>")
    assert too_wide(page, wide) > 100
    page.close()


FILTER = "one => getComputedStyle(document.querySelector(one)).filter"


@pytest.mark.needs("browser", "playwright")
@pytest.mark.parametrize(
    ("system", "chosen", "turned", "drawing_turned"),
    [
        ("light", "auto", False, False),
        ("dark", "auto", True, False),
        ("light", "dark", True, True),
        ("dark", "light", False, True),
    ],
)
def test_figures_follow_the_scheme_of_the_page(
    site: Site, chromium: Any, system: str, chosen: str, turned: bool, drawing_turned: bool
) -> None:
    """Figures are white and turned in the dark; drawings know what the system wants."""
    page = chromium.new_page(color_scheme=system, offline=True)
    for name, image, wanted in (
        ("which-bandit.html", "article img[src$='.png']", turned),
        ("late-feedback.html", "article img[src$='.svg']", drawing_turned),
    ):
        page.goto((site.folder / name).as_uri())
        page.evaluate("chosen => { document.body.dataset.theme = chosen }", chosen)
        assert ("invert" in page.evaluate(FILTER, image)) == wanted, name
    page.close()


@pytest.mark.needs("browser", "playwright")
@pytest.mark.parametrize(
    ("query", "pages"),
    [
        ("propensity", {"evaluate", "glossary"}),
        ("return rate", {"constraints", "shop"}),
        ("delayed conversions", {"late-feedback"}),
        ("Kubernetes", {"shop", "high-availability"}),
        ("flask", {"shop"}),
    ],
)
def test_what_is_searched_is_found(query: str, pages: set[str], site: Site, chromium: Any) -> None:
    page = chromium.new_page(offline=True)
    page.goto((site.folder / "search.html").as_uri() + "?q=" + quote(query))
    page.wait_for_selector("#search-results li a")
    page.wait_for_function(
        "document.querySelector('.search-summary').textContent.includes('found')"
    )
    found = page.eval_on_selector_all("#search-results li a", "all => all.map(one => one.href)")
    assert pages <= {Path(urlsplit(link).path).stem for link in found}
    page.close()


# --- the extensions of the build -------------------------------------------------------------


def extension(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    return import_module(name)


@pytest.mark.parametrize("name", sorted(file.stem for file in (DOCS / "_ext").glob("*.py")))
def test_the_docstrings_of_the_extensions_are_true(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = doctest.testmod(extension(name, monkeypatch))
    examples = (DOCS / "_ext" / f"{name}.py").read_text().count(">>> ")
    assert done == doctest.TestResults(0, examples)


def test_a_formula_that_is_not_understood_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    mathml = extension("mathml", monkeypatch).mathml
    assert "<msqrt>" in mathml(r"\sqrt{x}")
    assert "<mi>𝒦</mi>" in mathml(r"\mathcal K")
    assert "<munder><mo>max</mo>" in mathml(r"\max_x f", "block")
    assert "<msub><mo>max</mo>" in mathml(r"\max_x f")
    with pytest.raises(ValueError, match="nosuch"):
        mathml(r"\nosuch{x}")


def test_docstrings_become_what_they_look_like(monkeypatch: pytest.MonkeyPatch) -> None:
    rest = extension("docstrings", monkeypatch).rest
    assert rest(["A norm |x|, *not* a*b, of `z_`."]) == [r"A norm \|x\|, *not* a\*b, of `z_`.", ""]
    given = ["Parameters", "----------", "x, y: numbers", "    of any sign", "z: another"]
    assert rest(given) == ["", "- ``x``, ``y``: numbers", "  of any sign", "- ``z``: another", ""]
    drawn = rest(["Drawn:", "", "    a  b"])
    assert drawn == ["Drawn:", "", ".. code-block:: text", "", "    a  b", ""]
    assert rest(["Code::", "", "    a  b"]) == ["Code::", "", "    a  b", ""]


# --- every public name -----------------------------------------------------------------------


def inventory(folder: Path) -> set[str]:
    from sphinx.util.inventory import InventoryFile

    found = InventoryFile.loads((folder / "objects.inv").read_bytes(), uri="")
    return {name for kind, names in found.data.items() if kind[:3] == "py:" for name in names}


def undocumented(modules: Iterable[str], known: set[str]) -> list[str]:
    """Public names that an inventory lacks."""
    public = [f"{module}.{name}" for module in modules for name in import_module(module).__all__]
    return [name for name in public if name not in known]


def test_every_public_name_is_in_the_reference(site: Site) -> None:
    known = inventory(site.folder)
    assert undocumented(MODULES, known) == []
    assert undocumented(["fairwolfe.objectives"], known - {"fairwolfe.objectives.Nash"}) == [
        "fairwolfe.objectives.Nash"
    ]


def test_the_reference_has_the_docstrings(site: Site) -> None:
    text = "".join(site.page(site.folder / "api" / "objectives.html").text)
    assert "Proximal map: the non-decreasing isotonic regression" in text


# --- the way around --------------------------------------------------------------------------


def test_the_start_page_leads_to_all_of_the_site(site: Site) -> None:
    links = {link.partition("#")[0] for link in site.page(site.folder / "index.html").links}
    written = {
        page.relative_to(DOCS).with_suffix(".html").as_posix()
        for page in DOCS.rglob("*.md")
        if page.parent.name != "decisions" or page.name == "index.md"
    }
    assert written - links - {"index.html"} == set()


# --- pages whose steps are played ------------------------------------------------------------


def steps(page: str) -> list[Step]:
    """The commands of a page, each with what it prints where that is said."""
    text = (DOCS / page).read_text()
    found = list(blocks(text))
    made = []
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block.language == "bash":
            said = after is not None and after.language == "text"
            made.append(Step(block.text, after.text if after and said else None))
    return made


def play(step: Step, folder: Path) -> None:
    """Run the commands of a step, and compare what they print."""
    places = [str(Path(sys.executable).parent), os.environ["PATH"]]
    done = subprocess.run(
        ["bash", "-e", "-c", step.commands],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | {"PATH": os.pathsep.join(places)},
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    if step.printed is not None:
        lines = [line.rstrip() for line in done.stdout.strip().splitlines()]
        assert lines == [line.rstrip() for line in step.printed.strip().splitlines()]


def test_ones_own_bandit_by_the_page_alone(tmp_path: Path) -> None:
    text = (DOCS / "own-bandit.md").read_text()
    source, *_ = [block.text for block in blocks(text) if block.language == "python"]
    (tmp_path / "my_bandit.py").write_text(source)
    install, *rest = steps("own-bandit.md")
    assert "pip install" in install.commands
    assert [step.printed is not None for step in rest] == [True, True]
    for step in rest:
        play(step, tmp_path)


@pytest.mark.needs("pyarrow")
def test_one_line_of_a_spec_is_changed_by_the_command_of_the_page(tmp_path: Path) -> None:
    """In small: the file that is copied, the command that changes it, and what is played."""
    before = ROOT / "src" / "fairwolfe" / "lab" / "paper" / "specs" / "arms-50-5.toml"
    (tmp_path / "mine.toml").write_text(before.read_text())
    (change,) = re.findall(r"(?m)^sed .*$", (DOCS / "lab.md").read_text())
    play(Step(change, None), tmp_path)
    lines = [file.read_text().splitlines() for file in (before, tmp_path / "mine.toml")]
    changed = [pair for pair in zip(*lines, strict=True) if pair[0] != pair[1]]
    assert [after for _, after in changed] == ["weights = [1, 0, 0, 0, 0]"]

    values = []
    for name, text in zip(("before", "after"), map("\n".join, lines), strict=True):
        experiment = lab.Experiment.of(text.replace("horizon = 10_000", "horizon = 100"))
        sweep = lab.run(experiment, tmp_path / name, seeds=2, jobs=1)
        values.append([row["value"] for row in sweep.table()])
    # The weights of the figure are at least those of the minimum, and rewards are positive.
    assert all(np.array(values[0]) > values[1])


def test_a_step_that_prints_something_else_is_seen(tmp_path: Path) -> None:
    play(Step("echo one; echo two", "one\ntwo\n"), tmp_path)
    with pytest.raises(AssertionError):
        play(Step("echo one", "two"), tmp_path)
    with pytest.raises(AssertionError, match="no such file"):
        play(Step("echo no such file >&2; false\necho one", "one"), tmp_path)
