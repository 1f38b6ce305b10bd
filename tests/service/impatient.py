"""A service that lets idle connections go after a second.

python -m tests.service.impatient CONFIG.toml
"""

from __future__ import annotations

import sys
from pathlib import Path

from fairwolfe.service import serve
from fairwolfe.service.config import read

if __name__ == "__main__":
    vars(serve)["_IDLE"] = 1
    serve.run(read(Path(sys.argv[1])))
