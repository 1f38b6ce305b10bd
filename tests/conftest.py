from __future__ import annotations

from hypothesis import settings

pytest_plugins = ["tests.capabilities", "pytester"]

# Derandomised: the same examples on every machine, so a red run can be repeated.
settings.register_profile("fairwolfe", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("fairwolfe")
