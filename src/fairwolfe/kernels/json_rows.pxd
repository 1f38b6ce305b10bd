# Constants of the reader of JSON rows; see json_rows.py.
from libc.math cimport fma
from libc.stdint cimport int64_t, uint64_t

from fairwolfe.kernels.types cimport Out, OutVector, Real, Size

cdef enum:
    MOST_DIGITS = 19        # of a whole number that fits into 64 bits
    MOST_POWER = 22         # 10^22 is the largest power of ten that a double is exactly
    MOST_EXPONENT = 1000    # an exponent that is not read here

ctypedef const unsigned char *restrict Text

cdef extern from *:
    """
    static const double fairwolfe_tens[23] = {
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22
    };
    """
    const double TENS "fairwolfe_tens"[23]
