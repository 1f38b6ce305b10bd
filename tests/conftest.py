from __future__ import annotations

import os
import signal

from hypothesis import settings

pytest_plugins = ["tests.capabilities", "pytester"]

# What a test prints must not depend on whether an optimum had to be computed first.
os.environ.setdefault("FAIRWOLFE_QUIET", "1")

# Derandomised: the same examples on every machine, so a red run can be repeated.
settings.register_profile("fairwolfe", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("fairwolfe")

# A job in the background may ignore Ctrl-C, and what it starts inherits that; some tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
