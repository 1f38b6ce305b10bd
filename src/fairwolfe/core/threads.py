"""`ONE_THREAD`: environment variables that NumPy's libraries read when they are imported.

Imports nothing, so that they can be set before NumPy is there.
"""

# Processes fill the cores; threads of a BLAS in each would only fight for them.
_LIBRARIES = ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "VECLIB_MAXIMUM")
ONE_THREAD = {f"{library}_THREADS": "1" for library in _LIBRARIES}
