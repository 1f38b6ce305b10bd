# What pure-Python mode cannot say: constants, pointer types, function types.
from libc.stdint cimport int64_t, uint64_t

cdef enum:
    BLOCK = 32              # numbers that are compared at once
    REFRESH_EVERY = 10000   # updates between two exact inverses

ctypedef Py_ssize_t Size
ctypedef double Real
ctypedef const double *restrict In      # read only; no other argument overlaps it
ctypedef double *restrict Out           # written; no other argument overlaps it
ctypedef int64_t *restrict Ints
ctypedef const int64_t *restrict InInts
ctypedef const double *Doubles          # read only; may overlap others

# Views of NumPy arrays. Read only:
ctypedef const double[::1] Vector
ctypedef const double[:, ::1] Matrix
ctypedef const double[:, :] Rows        # rows may be the beginnings of longer ones
ctypedef const double[:, :, ::1] Tensor
ctypedef const int64_t[::1] IntVector
ctypedef const int64_t[:, ::1] IntMatrix
# Written:
ctypedef double[::1] OutVector
ctypedef double[:, ::1] OutMatrix
ctypedef double[:, :, ::1] OutTensor
ctypedef int64_t[::1] OutIntVector
ctypedef int64_t[:, ::1] OutIntMatrix
