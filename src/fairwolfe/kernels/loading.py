"""What is checked before a compiled kernel is loaded: that it is built, and for this processor."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from runpy import run_path
from types import ModuleType

from fairwolfe.errors import MissingKernels

__all__ = ["KernelFinder", "check_processor", "stale"]

_HERE = Path(__file__).parent
_MANIFEST = _HERE / "_built.txt"  # written by hatch_build.py
_PROCESSOR = Path("/proc/cpuinfo")


class KernelFinder:
    """Finds the modules of this package. A kernel that is not compiled is an error.

    Without it, Python would load the source of a kernel as a plain module, and fail for want of
    Cython, or in the middle.
    """

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As of a finder of `sys.meta_path`; None for modules of other packages."""
        if not name.startswith("fairwolfe.kernels."):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
            with open(spec.origin, "rb") as source:
                if source.read(9) == b"# cython:":
                    raise MissingKernels(
                        f"{name} is not built: run `make build` in the checkout, or install a wheel"
                    )
        return spec


def check_processor(manifest: Path = _MANIFEST, processor: Path = _PROCESSOR) -> None:
    """Raise MissingKernels where the processor lacks instructions that the kernels use.

    Linux on x86 only: elsewhere a build needs nothing that a processor may lack, or there is no
    list of what it has. Takes about 0.1 ms.

    Parameters
    ----------
    manifest: what the build wrote
    processor: /proc/cpuinfo
    """
    try:
        built = dict(line.partition(" ")[::2] for line in manifest.read_text().splitlines())
        with processor.open("rb", buffering=0) as file:  # the first processor is enough
            lines = file.read(8192).decode("ascii", "replace").splitlines()
    except OSError:
        return
    found = next((line.partition(":")[2].split() for line in lines if line[:5] == "flags"), None)
    if found is None:
        return
    lacking = sorted(set(built.get("needs", "").split()) - set(found))
    if lacking:
        raise MissingKernels(
            f"the kernels were built for {built['architecture']}, and this processor lacks "
            f"{', '.join(lacking)}: build fairwolfe on this machine, with `make build` or "
            "`pip install .` in a checkout; the build takes what the processor has"
        )


def stale() -> str:
    """A sentence about what has changed in a checkout since its kernels were built.

    Empty where nothing has, and where the package is installed without its source tree: there is
    nothing to compare. Takes about 30 ms.
    """
    script = _HERE.parents[2] / "hatch_build.py"
    if not script.is_file():
        return ""
    changed: list[str] = run_path(str(script))["stale"]()
    if not changed:
        return ""
    return f"the kernels were built from other sources ({', '.join(changed)}): run `make build`"


def install() -> None:
    """Once, before any kernel is imported."""
    check_processor()
    if KernelFinder not in sys.meta_path:
        sys.meta_path.insert(0, KernelFinder)
