from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from fairwolfe.core import registry
from tests.plugins import plugged, portions

ENTRY_POINTS: dict[str, dict[str, type]] = {
    "kinds": {"cascade": plugged.Cascade, "portions": portions.Portions},
    "bandits": {
        "greedy": plugged.Greedy,
        "greedy-ranker": plugged.GreedyRanker,
        "cascade-ranker": plugged.CascadeRanker,
        "cascade-linucb": plugged.CascadeLinUCB,
        "even": portions.Even,
    },
    "policies": {"myopic": plugged.Myopic},
    "environments": {
        "shelf": plugged.Shelf,
        "feed": plugged.Feed,
        "kitchen": portions.Kitchen,
    },
}


def _forget() -> None:
    registry._known.cache_clear()
    registry.classes.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """As if the classes were a package that pip has installed: worker processes find it too."""
    site = tmp_path_factory.mktemp("site")
    folder = site / "plugged-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
    lines = []
    for group, classes in ENTRY_POINTS.items():
        lines.append(f"[fairwolfe.{group}]")
        lines += [f"{n} = {cls.__module__}:{cls.__name__}" for n, cls in classes.items()]
    (folder / "entry_points.txt").write_text("\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(site)])
        _forget()
        yield
    _forget()
