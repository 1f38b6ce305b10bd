from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from fairwolfe.core import registry
from tests.plugins import plugged

ENTRY_POINTS = {
    "kinds": {"cascade": "Cascade"},
    "bandits": {
        "greedy": "Greedy",
        "greedy-ranker": "GreedyRanker",
        "cascade-ranker": "CascadeRanker",
        "cascade-linucb": "CascadeLinUCB",
    },
    "policies": {"myopic": "Myopic"},
    "environments": {"shelf": "Shelf", "feed": "Feed"},
}


def _forget() -> None:
    registry._known.cache_clear()
    registry.classes.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """As if `plugged` were a package that pip has installed: found by worker processes too."""
    site = tmp_path_factory.mktemp("site")
    folder = site / "plugged-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
    lines = []
    for group, classes in ENTRY_POINTS.items():
        lines.append(f"[fairwolfe.{group}]")
        lines += [f"{name} = {plugged.__name__}:{cls}" for name, cls in classes.items()]
    (folder / "entry_points.txt").write_text("\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(site)])
        _forget()
        yield
    _forget()
