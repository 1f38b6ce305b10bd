"""Load every compiled kernel of an installed fairwolfe, and run the ten lines of README.md."""

from __future__ import annotations

import os
import re
import tempfile
from importlib import import_module
from pathlib import Path

from fairwolfe.kernels import loading

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Raise where something is missing."""
    manifest = Path(loading.__file__).with_name("_built.txt").read_text()
    names = [line.split()[0] for line in manifest.splitlines() if line.startswith("fairwolfe.")]
    assert names
    for name in names:
        file = import_module(name).__file__
        assert file is not None
        assert file.endswith(".so"), file
    (lines, *_) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        exec(lines, {})
        os.chdir(ROOT)


if __name__ == "__main__":
    main()
