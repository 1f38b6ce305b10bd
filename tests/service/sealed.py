"""`fairwolfe serve CONFIG.toml` in a process that may not turn data into code, as
MemoryDenyWriteExecute in examples/service/fairwolfe.service has it: whatever compiles at run time
fails there. Linux knows this since 6.3; before, it is served all the same.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from fairwolfe.service.config import read
from fairwolfe.service.serve import run

_PR_SET_MDWE, _REFUSE_EXEC_GAIN = 65, 1

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_PR_SET_MDWE, _REFUSE_EXEC_GAIN, 0, 0, 0)
    run(read(Path(sys.argv[1])))
