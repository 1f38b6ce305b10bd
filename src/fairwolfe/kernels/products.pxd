# Ridge regression on the features x_i = user (x) item_i; see products.py.
from libc.math cimport fma, isfinite, log, sqrt
from libc.stdint cimport uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from fairwolfe.kernels.ridge cimport (
    LOG_DET, SINCE_REFRESH, STATUS, UPDATES, Linear, add_scaled, cholesky, linear_work, refresh
)
from fairwolfe.kernels.types cimport (
    REFRESH_EVERY, In, Matrix, Out, OutMatrix, OutTensor, OutVector, Real, Size, Vector
)

cdef enum:
    ROUNDS = 4      # whose features V takes in one pass

cdef struct Products:
    Linear linear       # one block of d = p q features
    Size p              # features of users
    Size q              # features of items
    Size most           # items of one update
    Size deferred       # rounds that V has not taken in yet; -1: it takes in each at once
    double *users       # (ROUNDS, p): of these rounds
    double *squares     # (ROUNDS, q, q): the sums of v v' of their items
    double *contracted  # (q, d): B of the current user
    double *metric      # (q, q): C of the current user
    double *turned      # (rewards, q)
    double *inner       # (most, q)
    double *system      # (most, most)
    double *lower       # (most, most)
    double *half        # (most, q)
    double *error       # (most, rewards)
    double *spread      # (most, d): Y
    double *square      # (q, q)
    double *wide        # (ROUNDS, d)

cdef inline double *aligned(double *at) noexcept nogil:
    """The next address that starts a cache line."""
    return <double *> ((<uintptr_t> at + 63) & ~<uintptr_t> 63)

cdef Size products_room(const Products *self) noexcept nogil
cdef void products_scratch(Products *self, double *room) noexcept nogil
cdef void contract_user(In user, In inverse, Out out, Size p, Size q) noexcept nogil
cdef void contract_twice(In user, In contracted, Out out, Size p, Size q) noexcept nogil
cdef void contract(Products *self, const double *user) noexcept nogil
cdef void turn_parameters(In user, In theta, Out out, Size p, Size q, Size rewards) noexcept nogil
cdef void estimates(
    In turned, In metric, In items, Size stride, Out spare, Out value, Out width, Size q, Size n
) noexcept nogil
cdef void square_of(In rows, Out out, Size r, Size q) noexcept nogil
cdef void remember(
    In users, In squares, double *gram, Out wide, Size n, Size p, Size q
) noexcept nogil
cdef void absorb_items(
    Products *self, const double *user, const double *rows, const double *rewards, Size r
) noexcept nogil
cdef void start_deferring(Products *self) noexcept nogil
cdef void catch_up(Products *self) noexcept nogil
cdef void stop_deferring(Products *self) noexcept nogil

# Private to the module.
cdef void _row_by_row(
    In turned, In metric, In items, Size stride, Out inner, Out value, Out width, Size q, Size n
) noexcept nogil
cdef void _spread(In half, In contracted, Out out, Size r, Size q, Size d) noexcept nogil
cdef Size _subtract(In spread, double *inverse, Size r, Size d) noexcept nogil
cdef void _add_moments(
    In user, In rows, In rewards, Out moment, Size r, Size p, Size q, Size n_rewards
) noexcept nogil
cdef bint _factor_round(Products *self, In user, In rows, In rewards, Size r) noexcept nogil
cdef bint _absorb(
    Products *self, const double *user, const double *rows, const double *rewards, Size r, bint
    whole
) noexcept nogil
cdef void _absorb_whole(
    Products *self, const double *user, const double *rows, const double *rewards, Size r
) noexcept nogil
