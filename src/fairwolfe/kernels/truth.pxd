# The best average of rankings, user by user; see truth.py.
from libc.math cimport fma
from libc.stdint cimport int64_t

from fairwolfe.kernels.engine cimport within
from fairwolfe.kernels.gradients cimport Tree
from fairwolfe.kernels.ranks cimport RankingArrays, CompiledRankingWorld, best_ranking, slot_means
from fairwolfe.kernels.ridge cimport Writing
from fairwolfe.kernels.types cimport (
    Doubles, IntVector, OutIntVector, OutMatrix, OutTensor, OutVector, Real, Size, Vector,
)

ctypedef const int64_t *Places

# How likely the slots of a user are exposed, (k,).
cdef inline const double *slot_weights(RankingArrays *own, Size user) noexcept nogil:
    return own.weights + (user if own.weights_n > 1 else 0) * own.slots

cdef class RankingMixtures:
    cdef readonly CompiledRankingWorld world
    cdef readonly object rankings   # (users, kept, k)
    cdef readonly object masses     # (users, kept)
    cdef readonly object earned     # (users, kept, R)
    cdef tuple arrays               # keeps all of them alive
    cdef Size kept
    cdef Size rows                  # of A in y = A s
    cdef const double *shares       # (users,)
    cdef int64_t *ranking
    cdef double *mass
    cdef double *earning
    cdef const int64_t *starts      # (m + R + 1,): the columns of A
    cdef const int64_t *places      # (entries,)
    cdef const double *entries      # (entries,)
    cdef double *room
    cdef int64_t *whole
    cdef Size image(self, Size n, double *changes) noexcept nogil
    cdef void earn(self, const int64_t *ranking, Size user, double *means, double *out) noexcept nogil
    cdef double height(self, const int64_t *ranking, const double *earned, const double *slope, Size user) noexcept nogil
    cdef double _sweep(self, Tree tree, const int64_t *users, Size n_steps, Size every, const double *shift, const double *bend, double *y) noexcept nogil
