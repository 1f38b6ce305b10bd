"""Doctests of compiled modules are run by tests/build/test_doctests.py.

pytest would import their source past the extension module. The scripts that `fairwolfe init` writes
are not modules: tests/cli/test_init.py runs them.
"""

from __future__ import annotations

from pathlib import Path


def _compiled(path: Path) -> bool:
    with path.open("rb") as source:
        return source.read(9) == b"# cython:"


collect_ignore = [str(path) for path in Path(__file__).parent.rglob("*.py") if _compiled(path)]
collect_ignore_glob = ["fairwolfe/cli/templates/*"]
