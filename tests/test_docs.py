"""The documentation is true: its code runs, its commands exist, and nothing public is left out.

Python blocks of a page run in their order in one namespace, in an empty folder, with warnings as
errors. A `text` block right after a Python block is what that block prints.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from runpy import run_path
from types import FrameType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import fairwolfe
from fairwolfe import Agent, FrankWolfe, Problem, errors
from fairwolfe.bandits import LinUCB
from fairwolfe.cli import commands
from fairwolfe.core import protocols, registry
from fairwolfe.core.registry import KINDS
from fairwolfe.core.rows import HEAD, ArmRows, PlainRows, RankingRows
from fairwolfe.objectives import GiniEquality, Minimum, TwoSided
from fairwolfe.ranking import FWLinUCBRank

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(DOCS.glob("*.md")),
    *sorted((DOCS / "api").glob("*.md")),
    *sorted((DOCS / "decisions").glob("*.md")),
]

FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
# A section of a document that is not the paper, which is always cited as "the paper".
FOREIGN = re.compile(r"\b(?!LIMIT)[A-Z]{5,}(?:[.]md)? \d")


class Block(NamedTuple):
    """A fenced block: its language, its text, and where the text begins and ends in the page."""

    language: str
    text: str
    start: int
    end: int


def blocks(page: str) -> Iterator[Block]:
    for match in FENCE.finditer(page):
        yield Block(match[1], match[2], match.start(2), match.end())


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def runs(text: str) -> Iterator[tuple[Block, str | None]]:
    """The blocks of Python of a page, each with the output that follows it at once, if one does."""
    found = list(blocks(text))
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block.language == "python":
            at_once = after and not text[block.end : text.rindex("```", 0, after.start)].strip()
            yield block, after.text if after and at_once and after.language == "text" else None


def with_code() -> list[Path]:
    return [p for p in PAGES if any(b.language == "python" for b in blocks(p.read_text()))]


@pytest.fixture
def registry_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a page registers is forgotten after it, with the classes of the page."""
    monkeypatch.setattr(registry, "_REGISTERED", {})
    yield
    registry._known.cache_clear()
    registry.classes.cache_clear()


@pytest.mark.usefixtures("registry_of_its_own")
@pytest.mark.parametrize("page", with_code(), ids=name_of)
def test_the_code_of_a_page_runs_and_prints_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = page.read_text()
    # A module, so that classes of the page can be pickled.
    module = ModuleType("page_" + re.sub(r"\W", "_", name_of(page)))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)
    for block, output in runs(text):
        # Empty lines before it make a traceback point at the line of the page.
        source = "\n" * text.count("\n", 0, block.start) + block.text
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(source, str(page), "exec", dont_inherit=True), module.__dict__)
        if output is not None:
            assert printed.getvalue().strip() == output.strip(), name_of(page)


def test_pages_say_what_their_code_prints() -> None:
    outputs = [output for page in with_code() for _, output in runs(page.read_text())]
    assert sum(output is not None for output in outputs) >= 50


# The smallest sizes that still make sense; `make docs` runs the examples as they are.
SIZES = {
    "02": "REQUESTS = 100",
    "03": "ROUNDS, SEEDS = 100, 2",
    "04": "ROUNDS, SEEDS = 60, 2",
    "05": "ROUNDS = 200",
    "06": "BEFORE, AFTER = 2_000, 1_000",
    "07": "ROUNDS = 500",
    "08": "ROUNDS = 300",
    "09": "ROUNDS, SEEDS = 50, 1",
    "10": "PROMPTS = 300",
    "11": "ROUNDS = 1_000",
    "12": "DAYS, VISITS = 21, 40",
    "13": "VISITS = 600",
}

# What a notebook of the gallery is given before its first cell.
STRICT = """
import warnings
warnings.simplefilter("error")
"""


def notebook_of(example: Path) -> Any:
    """The notebook that the gallery makes of an example, with small sizes."""
    import nbformat
    from sphinx_gallery.gen_gallery import DEFAULT_GALLERY_CONF
    from sphinx_gallery.notebook import jupyter_notebook
    from sphinx_gallery.py_source_parser import split_code_and_text_blocks

    parts = split_code_and_text_blocks(str(example))[1]
    made = jupyter_notebook(parts, deepcopy(DEFAULT_GALLERY_CONF), str(example.parent))
    book = nbformat.reads(json.dumps(made), as_version=4)  # type: ignore[no-untyped-call]
    first = next(cell for cell in book.cells if cell.cell_type == "code")
    size = SIZES.get(example.name[:2])
    if size is not None:
        names = size.partition(" = ")[0]
        first.source, found = re.subn(rf"(?m)^{names} = .*$", size, first.source)
        assert found == 1, f"{example.name} does not set {names} at its top"
    first.source = STRICT + first.source
    return book


@pytest.mark.needs("implicit", "matplotlib", "notebooks", "pyarrow", "scikit-learn")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_as_a_notebook_and_writes_nothing(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a real kernel. A script is the same code in one piece; building the site runs that."""
    from nbclient import NotebookClient

    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # figures are shown in the notebook
    book = notebook_of(example)
    NotebookClient(
        book,
        timeout=280,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        shutdown_kernel="immediate",  # a kernel that is asked to leave takes seconds for it
    ).execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs), "no figure is shown"
    assert list(folder.iterdir()) == []


def test_the_gallery_is_in_order() -> None:
    from sphinx_gallery import sorting

    settings = run_path(str(DOCS / "conf.py"))["sphinx_gallery_conf"]
    order = getattr(sorting, settings["within_subsection_order"])(str(ROOT / "examples"))
    assert sorted((path.name for path in reversed(EXAMPLES)), key=order) == [
        path.name for path in EXAMPLES
    ]


def test_examples_are_numbered_from_one() -> None:
    assert [int(path.name[:2]) for path in EXAMPLES] == list(range(1, len(EXAMPLES) + 1))
    assert len(EXAMPLES) >= 3


# --- nothing is left out ---------------------------------------------------------------------


def documentation() -> str:
    return "\n".join(page.read_text() for page in PAGES if page.name != "README.md")


def code_of(text: str) -> set[str]:
    """Every word inside back quotes, and every word of code blocks."""
    inline = re.findall(r"`+([^`]+)`+", FENCE.sub("", text))
    fenced = [block.text for block in blocks(text)]
    return set(re.findall(r"[A-Za-z_][\w-]*", "\n".join([*inline, *fenced])))


def test_every_public_name_is_documented() -> None:
    assert set(fairwolfe.__all__) - code_of(documentation()) == set()


def test_every_error_is_documented() -> None:
    assert set(errors.__all__) - code_of(documentation()) == set()


@pytest.mark.parametrize("kind", KINDS)
def test_everything_in_the_registry_is_documented(kind: str) -> None:
    words = code_of(documentation())
    addresses = KINDS[kind]
    assert {name for name in addresses if name not in words} == set()
    classes = {address.partition(":")[2] for address in addresses.values()}
    assert classes - words == set()


def test_every_page_has_a_title() -> None:
    untitled = [name_of(page) for page in PAGES if not page.read_text().startswith("# ")]
    assert untitled == []


# --- what is named exists --------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_exist(page: Path) -> None:
    text = page.read_text()
    targets = set(re.findall(r"(?m)^([a-z][a-z-]*)\b[^=\n]*:", (ROOT / "Makefile").read_text()))
    made = set(re.findall(r"(?m)(?:^\s*(?:\$ )?|`)make ([a-z][a-z-]*)", text))
    assert made - targets == set()
    called = set(re.findall(r"(?m)(?:^\s*(?:\$ )?|`)fairwolfe ([a-z][a-z-]*)", text))
    assert called - set(commands.commands) == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files(page: Path) -> None:
    links = LINK.findall(FENCE.sub("", page.read_text()))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_and_modules_exist(page: Path) -> None:
    text = FENCE.sub("", page.read_text())
    paths = re.findall(r"`((?:src|tests|docs|examples|benchmarks|requirements)/[\w./-]+)`", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    modules = set(re.findall(r"`(fairwolfe(?:\.[a-z_]+)+)`", text))
    assert [module for module in sorted(modules) if not _found(module)] == []


def _found(address: str) -> bool:
    try:
        import_module(address)
    except ModuleNotFoundError:
        parent, _, name = address.rpartition(".")
        return hasattr(import_module(parent), name)
    return True


# --- optional methods ------------------------------------------------------------------------

SOURCES = ROOT / "src" / "fairwolfe"


def rows_of(page: Path) -> list[list[str]]:
    """The cells of every row of every table of a page, but for headings and rules."""
    lines = FENCE.sub("", page.read_text()).splitlines()
    cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line[:1] == "|"
    ]
    rules = [place for place, row in enumerate(cells) if set("".join(row)) <= set("|-")]
    heads = {place - 1 for place in rules}
    return [row for place, row in enumerate(cells) if place not in heads | set(rules)]


def test_optional_methods_are_those_of_the_contracts() -> None:
    listed = [re.findall(r"`(\w+)[^`]*`", row[0]) for row in rows_of(DOCS / "own-bandit.md")]
    names = {name for row in listed for name in row}
    assert len(names) > 20
    told = " ".join(str(one.__doc__) for one in (protocols.Base, protocols.Policy))
    told += str(protocols.Environment.__doc__)
    assert {name for name in names if name not in told} == set()


def test_the_head_of_a_row_is_the_documented_one() -> None:
    types = {"<i8": "int64", "<f8": "float64"}
    fields = [[name, types[HEAD[name].str]] for name in HEAD.names or ()]
    table = [[row[0].strip("`"), row[1]] for row in rows_of(DOCS / "rows.md")]
    assert table[-len(fields) :] == fields
    columns = [row[0].strip("`") for row in rows_of(DOCS / "rows.md")[: -len(fields)]]
    assert columns == [*ArmRows._fields, *RankingRows._fields, *PlainRows._fields]


# --- how a decision flows --------------------------------------------------------------------

PLACE = re.compile(r"`([\w/]+)[.]py` `([\w.]+)`")


class Called(NamedTuple):
    """A function: its module below `fairwolfe`, as a path, and its qualified name."""

    module: str
    name: str

    def found(self) -> Any:
        found: Any = import_module("fairwolfe." + self.module.replace("/", "."))
        for part in self.name.split("."):
            found = getattr(found, part)
        return found


def places(page: Path) -> list[Called]:
    return [Called(*pair) for row in rows_of(page) for pair in PLACE.findall(" | ".join(row))]


def calls_of(agent: Agent, context: Any, **feedback: Any) -> list[Called]:
    """The functions of the library that one decision and its answer call, in their order."""
    calls: list[Called] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(SOURCES):
            module = str(file.relative_to(SOURCES).with_suffix(""))
            calls.append(Called(module, frame.f_code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        agent.update(agent.act(context), **feedback)
    finally:
        sys.setprofile(before)
    return calls


def test_a_decision_flows_as_the_page_says() -> None:
    functions = places(DOCS / "how-a-decision-flows.md")
    assert len(functions) >= 15
    arms = Agent(FrankWolfe(Minimum(), LinUCB()), Problem.arms(2, {"a": (0, 1), "b": (0, 1)}))
    fair = FWLinUCBRank(TwoSided(GiniEquality(), beta=0.5))
    ranker = Agent(fair, Problem.ranking(n_items=4, n_slots=2, n_features=2))
    seen: set[Called] = set()
    for calls in (
        calls_of(arms, np.eye(2), reward=[1.0, 0.0]),
        calls_of(ranker, np.ones((4, 2)) / 2, exposed=[], clicked=[]),
    ):
        left = iter(calls)
        for function in (p for p in functions if p in calls):
            assert function in left, f"{function} is called earlier than the page says"
        seen |= set(calls)
    assert [p for p in functions if p not in seen] == []


@pytest.mark.parametrize("page", [DOCS / "how-a-decision-flows.md", ROOT / "CONTRIBUTING.md"])
def test_the_functions_that_pages_place_in_files_exist(page: Path) -> None:
    for place in places(page):
        assert callable(place.found()), place


def test_the_map_says_where_a_decision_is_made_learnt_and_written() -> None:
    named = {(place.module, place.name) for place in places(ROOT / "CONTRIBUTING.md")}
    for wanted in (
        ("agent/agent", "Agent.act"),
        ("kernels/arms", "ArmsEngine.decide"),
        ("agent/agent", "Agent.update"),
        ("kernels/arms", "ArmsEngine.learn"),
        ("service/store", "SQLiteStore.append"),
        ("agent/file", "write"),
    ):
        assert wanted in named


def test_the_picture_is_what_its_script_draws_and_names_what_exists() -> None:
    script = run_path(str(DOCS / "pictures" / "decision_flow.py"))
    assert (DOCS / "pictures" / "decision_flow.svg").read_text() == script["drawn"]()
    lines = [line for step in (*script["ACT"], *script["UPDATE"]) for line in step.where]
    for line in lines:
        module, name = re.fullmatch(r"([\w/]+)[.]py ([\w.]+)", line).groups()  # type: ignore[union-attr]
        assert callable(Called(module, name).found()), line


def test_the_sources_cite_only_what_a_reader_has() -> None:
    files = [*PAGES, *EXAMPLES, *sorted((ROOT / "src").rglob("*.py"))]
    guilty = [name_of(file) for file in files if FOREIGN.search(file.read_text())]
    assert guilty == []
