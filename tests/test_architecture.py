"""The rules of the tree that a machine can check."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "fairwolfe"
SOURCES = sorted(PACKAGE.rglob("*.py"))

HEAVY = (
    *("ray", "pandas", "matplotlib", "sklearn", "implicit", "pyarrow"),
    *(
        "gymnasium",
        "mo_gymnasium",
        "narwhals",
        "platformdirs",
        "polars",
        "pooch",
        "requests",
        "river",
    ),
)

# Written so that the patterns do not match themselves.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:home|root|Users|work|builds|mnt)/\w|[A-Z]:\\Users\\")
REGISTRY = re.compile(r"pypi[.]org|pythonhosted[.]org|--(?:extra-)?index-url|--find[-]links")


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def files_of_the_tree() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: which files belong to the tree is unknown")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


def test_the_import_contracts_are_kept() -> None:
    from importlinter.cli import lint_imports

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def test_the_import_contracts_have_no_exceptions() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    for contract in settings["contracts"]:
        assert not {"ignore_imports", "exhaustive_ignores"} & set(contract), contract["name"]


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = python(f"import sys, fairwolfe; print(*sorted(set({HEAVY!r}) & set(sys.modules)))")
    assert loaded.split() == []


def test_the_engine_and_the_service_import_no_scipy() -> None:
    # It takes longer than all the rest; a map, a quantile or a LowLevelCallable may import it.
    floor = ("core", "objectives", "smoothing", "oracles", "bandits", "ranking", "reduction")
    modules = [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for name in (*floor, "agent")
        for path in (PACKAGE / name).rglob("*.py")
        if not path.stem.startswith("__")
    ]
    loaded = f"""
import sys
from importlib import import_module

for name in {[*modules, "fairwolfe.service.serve"]!r}:
    import_module(name)

import fairwolfe as fw
from fairwolfe.objectives import AtMost, GiniWelfare, Linear

problem = fw.Problem.arms(2, {{"clicks": (0, 1), "minutes": (0, 120), "cost": (0, 0.05)}})
f = Linear({{"clicks": 1.0}}) + GiniWelfare().on("clicks", "minutes") + AtMost({{"cost": 0.01}})
agent = fw.Agent(fw.FrankWolfe(f, fw.bandits.SquareCB(gamma0="theorem")), problem, seed=0)
agent.update(agent.act([[0.6, 0.8], [0.0, 0.5]]), [1.0, 3.5, 0.004])
agent.dump(), agent.value, agent.constraints
print(*(name for name in sys.modules if name.startswith("scipy")))
"""
    assert python(loaded).split() == []


def test_a_service_starts_without_the_research_floor() -> None:
    """Neither the import of the server nor a served model needs it; only a what-if does."""
    research = {"lab", "offpolicy", "fairness", "truth", "integrations", "simulation"}
    research |= {"environments", "checks", "plots"}
    code = """if True:
        import sys, tempfile
        from fairwolfe.service.config import parse
        from fairwolfe.service.serve import open_service

        text = '''
        state = "state"
        [models.music]
        missing = "zero"
        problem = { kind = "ranking", n_slots = 2, n_features = [3, 3] }
        objective = { name = "two-sided", items = { name = "gini-welfare" }, beta = 0.5 }
        policy = { name = "fw-linucb-rank" }
        '''
        with tempfile.TemporaryDirectory() as folder:
            service = open_service(parse(text, folder))
            service.core.snapshot()
            service.core.store.close()
        print(*(name.split(".")[1] for name in sys.modules if name.startswith("fairwolfe.")))
    """
    assert not research & set(python(code).split())


def test_nothing_is_compiled_at_run_time() -> None:
    statement = re.compile(r"^\s*(?:import|from)\s+(?:numba|llvmlite)\b", re.MULTILINE)
    guilty = [path.name for path in SOURCES if statement.search(path.read_text())]
    assert guilty == []


def test_capabilities_are_asked_for_by_marker() -> None:
    # A test that skips itself would stay silent under FAIRWOLFE_REQUIRE.
    word = "import" + "orskip"
    assert [p.name for p in (ROOT / "tests").rglob("*.py") if word in p.read_text()] == []


@pytest.mark.parametrize("pattern", [MACHINE_PATH, REGISTRY], ids=["paths", "registries"])
def test_the_tree_names_no_machine(pattern: re.Pattern[str]) -> None:
    found, read = [], set()
    for path in files_of_the_tree():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        read.add(path)
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in pattern.finditer(text)]
    assert found == []
    assert read >= set(SOURCES)
    assert len(read) > 300


def test_the_commands_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text()
    wanted = set(re.findall(r"(?m)(?:^\s*(?:\$ )?|`)make ([a-z][a-z-]*)", text))
    targets = set(re.findall(r"(?m)^([a-z][a-z-]*)\b[^=\n]*:", (ROOT / "Makefile").read_text()))
    assert wanted
    assert wanted <= targets


def test_both_locks_hold_the_same_versions() -> None:
    def pins(name: str) -> set[str]:
        text = (ROOT / "requirements" / name).read_text()
        return set(re.findall(r"(?m)^([\w.-]+==[\w.]+)", text))

    assert pins("demo.txt")
    assert pins("demo.txt") <= pins("dev.txt")
