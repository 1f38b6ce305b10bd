"""`examples/service/first_hour.sh`: from `fairwolfe init` to an evaluated log."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "service" / "first_hour.sh"


@pytest.mark.needs("curl", "matplotlib", "pyarrow")
def test_from_a_configuration_to_an_evaluated_log(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    text = SCRIPT.read_text().replace("serve config.toml", "serve config.toml --listen 127.0.0.1:0")
    done = subprocess.run(
        ["bash", "-c", text],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "MPLBACKEND": "agg"},
    )
    assert done.returncode == 0, done.stderr
    for step in ("a service that is ready", "an answer that came late", "another objective"):
        assert re.search(rf"^== {step}.*: after \d+ s$", done.stdout, re.MULTILINE), step
    assert '"outcome":"late"' in done.stdout
    assert "router.parquet: 600 decisions of router" in done.stdout
    assert re.search(r"^large would have earned ", done.stdout, re.MULTILINE)
    assert (tmp_path / "router" / "out" / "evaluate.png").stat().st_size > 10_000
