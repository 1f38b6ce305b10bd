"""Doctests of compiled modules are run by tests/build/test_doctests.py.

pytest would import their source past the extension module.
"""

from __future__ import annotations

from pathlib import Path


def _compiled(path: Path) -> bool:
    with path.open("rb") as source:
        return source.read(9) == b"# cython:"


collect_ignore = [str(path) for path in Path(__file__).parent.rglob("*.py") if _compiled(path)]
