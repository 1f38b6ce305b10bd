"""Play rounds of the kernels; run by test_sanitizers.py where they check every access.

    python tests/build/asan_rounds.py [ROUNDS]

Every file tests/kernels/rounds_*.py has a list ROUNDS of functions that take a number of rounds:
a new kernel or policy is added there, and nowhere else.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

KERNELS = Path(__file__).parents[1] / "kernels"


def functions() -> Iterator[tuple[str, Callable[[int], None]]]:
    """Each with its name."""
    sys.path.insert(0, str(KERNELS.parents[1]))  # for what they share
    for path in sorted(KERNELS.glob("rounds_*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for function in module.ROUNDS:
            yield f"{path.stem}.{function.__name__}", function


def main(rounds: int) -> None:
    """One line for each function."""
    for name, function in functions():
        function(rounds)
        print(f"{name}: {rounds} rounds", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
