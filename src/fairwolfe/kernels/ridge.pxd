# Linear regression with several outputs: its state as pointers, and the kernels that read it.
from libc.math cimport INFINITY, fabs, fma, isfinite, isnan, log, sqrt
from libc.stdint cimport int64_t, uintptr_t

from fairwolfe.kernels.types cimport (
    REFRESH_EVERY, In, Matrix, Out, OutMatrix, OutTensor, OutVector, Real, Size, Vector
)

cdef enum:                  # places in `counters`
    UPDATES = 0
    LOG_DET = 1             # ln det V/det V_0, summed over the blocks
    SINCE_REFRESH = 2       # updates since V^-1 was recomputed
    DRIFT = 3               # how far V^-1 was off when it was last recomputed
    STATUS = 4              # 1: the last observation was rejected
    N_COUNTERS = 5

ctypedef const double *Reading      # read only; other arguments may overlap it
ctypedef double *Writing            # the same, written

cdef struct Linear
ctypedef bint (*Learn)(Linear *self, Size block, const double *x, const double *reward) noexcept nogil

cdef struct Linear:         # serves one thread at a time, since it has one scratch
    Size blocks
    Size rewards
    Size first              # of these rewards among those of theta and moment,
    Size rows               # which are so many in each block
    Size d                  # features of the design: n d for an extended model, whose rewards is 1
    double *gram            # V (blocks, d, d); NULL where only the estimates are kept
    double *inverse         # V^-1 (blocks, d, d); NULL where gram is
    double *theta           # (blocks, rows, d)
    double *moment          # (blocks, rows, d); (blocks, rows, 1) for online gradients
    double *counters        # (5,)
    const double *params    # of `learn`
    Size n_params
    double *work            # at least linear_work(d, rewards, arms) doubles from a multiple of 64 bytes
    Learn learn

# How many doubles an array of n takes in `work`: whole cache lines, so that each starts on one.
cdef inline Size padded(Size n) noexcept nogil:
    return (n + 7) & ~<Size>7

# Parts of `work`. First two vectors of max(d, rewards) numbers ...
cdef inline Size vector_size(const Linear *self) noexcept nogil:
    return padded(self.d if self.d > self.rewards else self.rewards)

# ... then three (d, d) matrices, where there is a design ...
cdef inline double *squares_in(const Linear *self) noexcept nogil:
    return self.work + 2 * vector_size(self)

# ... then five arrays with a number for each arm, and the features as columns (d, padded(arms)).
cdef inline double *arms_in(const Linear *self) noexcept nogil:
    return squares_in(self) + (3 * padded(self.d * self.d) if self.inverse != NULL else 0)

# The first of the rewards in theta or moment, where each has `width` numbers.
cdef inline Size place_in(const Linear *self, Size block, Size width) noexcept nogil:
    return (block * self.rows + self.first) * width

cdef inline Real larger(Real a, Real b) noexcept nogil:     # Python's max(a, b)
    return b if b > a else a

cdef inline Real smaller(Real a, Real b) noexcept nogil:    # Python's min(a, b)
    return b if b < a else a

cdef inline Real between(Real value, Real low, Real high) noexcept nogil:
    return smaller(larger(value, low), high)

cdef inline void fill(Real value, Out out, Size n) noexcept nogil:
    cdef Size i
    for i in range(n):
        out[i] = value

cdef inline void add_scaled(Real scale, In x, Out out, Size n) noexcept nogil:  # out += scale x
    cdef Size i
    for i in range(n):
        out[i] = fma(scale, x[i], out[i])

cdef Size linear_work(Size d, Size rewards, Size arms) noexcept nogil
cdef Size scratch_size(const Linear *self, Size arms) noexcept nogil
cdef bint learn_ridge(Linear *self, Size block, const double *x, const double *reward) noexcept nogil
cdef bint learn_online_gradient(Linear *self, Size block, const double *x, const double *reward) noexcept nogil
cdef void refresh(Linear *self) noexcept nogil

cdef void add_rows(In weights, In rows, Size stride, Out out, Size k, Size n) noexcept nogil
cdef void combine_rows(In weights, In rows, Out out, Size k, Size n) noexcept nogil
cdef void row_products(In rows, In x, Out out, Size n, Size d) noexcept nogil
cdef void columns(In rows, Out out, Size stride, Size n, Size d) noexcept nogil
cdef void norms_of_columns(In matrix, In turned, Size stride, Out inner, Out out, Size n, Size d) noexcept nogil
cdef void estimated_scores(Linear *self, In g, In features, Size arms, Size d, bint per_arm, Out out) noexcept nogil
cdef void design_widths(Linear *self, In features, Size arms, bint per_arm, Out out) noexcept nogil
cdef void predict(In theta, In x, In low, In high, Out out, Size n, Size d) noexcept nogil
cdef Real square_norm(In matrix, In x, Size d) noexcept nogil
cdef bint cholesky(In matrix, Out lower, Size d) noexcept nogil
cdef Real largest_square_norm(In rows, Size n, Size d) noexcept nogil

cdef class Regression:
    cdef Linear own
    cdef int64_t ends[2]    # of the only stage of a query: kernels/rules.py
    cdef object kept        # the arrays, so that they live
    cdef Size arms          # for how many there is scratch
    cdef object room        # the scratch
    cdef void make_room(self, Size arms)

# Private to the module.
cdef Real _product(In x, In y, Size n) noexcept nogil
cdef Size _work(Size d, Size rewards, Size arms, bint design) noexcept nogil
cdef bint _absorb(
    In x, In reward, Out gram, Out inverse, Out theta, Out moment, Out counters, Out turned,
    Out error, Size d, Size n
) noexcept nogil
cdef void _move(Real scale, In y, Out out, Real other, In x, Out sums, Size n) noexcept nogil
cdef Size _shrunk(In inverse, Real ridge, Size d) noexcept nogil
cdef void _inverse_of(In lower, Out half, Out fresh, Size d) noexcept nogil
cdef Real _replace(In fresh, Out inverse, Real worst, Size d) noexcept nogil
cdef bint _factor(Out matrix, Out lower, Size d) noexcept nogil
cdef Real _product_of_same(In x, Size n) noexcept nogil
cdef Real _residual(In theta, In x, Real start, Size n) noexcept nogil
cdef void _descend(Real pull, Real radius, In x, Out theta, Size n) noexcept nogil
