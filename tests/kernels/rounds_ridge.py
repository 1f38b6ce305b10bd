"""Rounds of the vector kernels for tests/build/asan_rounds.py."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from fairwolfe.kernels import ridge


def add_scaled(rounds: int) -> None:
    """Called as other kernels call it: by the address in its capsule."""
    capsule = vars(ridge)["__pyx_capi__"]["add_scaled"]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    pointer, number = ctypes.c_void_p, ctypes.c_double
    function = ctypes.CFUNCTYPE(None, number, pointer, pointer, ctypes.c_ssize_t)(address)
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        n = int(rng.integers(0, 40))
        x, out = rng.normal(size=n), rng.normal(size=n)
        expected = out + 0.5 * x
        function(0.5, x.ctypes.data, out.ctypes.data, n)
        assert np.allclose(out, expected, rtol=0.0, atol=1e-15)


ROUNDS: list[Callable[[int], None]] = [add_scaled]
