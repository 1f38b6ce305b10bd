# A struct that points to itself and function types: what pure-Python mode cannot say.
from cpython.pycapsule cimport PyCapsule_GetContext, PyCapsule_GetName, PyCapsule_GetPointer
from cpython.ref cimport PyObject
from libc.math cimport INFINITY, NAN, fabs, fma, pow, sqrt
from libc.stdint cimport int32_t, int64_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from fairwolfe.kernels.ridge cimport add_scaled, fill, larger, padded, smaller
from fairwolfe.kernels.types cimport (
    BLOCK, In, InInts, Ints, Matrix, Out, OutMatrix, OutVector, Real, Size, Vector
)

cdef enum:
    MOST_NESTED = 2048      # each level of a tree is a call on the C stack, of about 170 bytes
    RAREST = 64             # factors of rates are at least 1/RAREST
    MANY = 10000            # coordinates from which on equal ones are treated together
    MOST_LEVELS = 8192      # different numbers among these
    TABLE = 32768           # places of a hash table of them
    LAW = 4                 # numbers of the weights of a generalised Gini function that has a law

cdef struct Gradient
ctypedef Gradient *Node
ctypedef const double *At   # where a gradient is taken; may be a part of a longer vector

# The smoothed gradient at z (n,), into out (n,), which do not overlap; step 0: a supergradient.
ctypedef void (*Function)(Gradient *self, In z, Real step, Out out) noexcept nogil

# A gradient from outside the package: scipy.LowLevelCallable or ctypes.
ctypedef void (*Outside)(const double *z, Py_ssize_t n, double *out, void *user_data) noexcept nogil

# The gradient at `levels` different numbers (levels,), each `counts` times among n coordinates.
ctypedef void (*Levels)(
    Gradient *self, In values, In counts, Real step, Out out, Size levels, double *room
) noexcept nogil

cdef struct Gradient:
    Function call
    Function dense          # of a leaf by levels: coordinate by coordinate
    Levels leveled          # and of different numbers with how often each occurs
    Size n                  # coordinates
    const double *params    # of a leaf; widths of a stack; price widths
    double *work            # scratch; what it holds between calls makes them faster, never different
    Size n_parts
    Gradient **parts
    const double *scales    # c of each part
    const Size *places      # first coordinate of each part
    const Size **lists      # its coordinates where they are not consecutive, else NULL
    const Size *begins      # of a sparse matrix by rows: where each begins, columns, values
    const Size *columns
    const double *values
    Size n_prices           # the first rows of the matrix have prices
    const double *factors   # of their widths
    Outside function
    double *levels          # scratch of a leaf by levels
    void *data              # a Python leaf: its Tree; a function from outside: user data; prices;
                            # of rates: factors
    bint lawful             # a generalised Gini function whose params are the law of its weights
    bint failed             # of a Python leaf: an exception waits to be raised

cdef class Zeros:           # memory that is 0, and not touched before it is used
    cdef double *at

cdef class Tree:
    cdef Gradient own
    cdef readonly Py_ssize_t n
    cdef readonly Py_ssize_t depth
    cdef readonly bint calls_python
    cdef bint busy          # a call from Python is under way
    cdef bint inside        # the function of this leaf is under way
    cdef bint taken         # part of another tree
    cdef bint takes_step
    cdef long long calls    # of the function of this leaf
    cdef tuple callers      # the Python leaves of the whole tree
    cdef tuple below        # parts, alive as long as this
    cdef list kept          # arrays and functions, alive as long as this
    cdef object error       # what the function of this leaf raised
    cdef Gradient **calling # the gradients of the Python leaves
    cdef Size n_calling
    cdef bint has_failed(self) noexcept nogil
    cdef void acquire(self, Size n) except *
    cdef void release(self) except *

cdef class PricedTree(Tree):
    cdef Size n_prices
    cdef double *prices
    cdef double *factors    # of widths
    cdef Size n_denominators
    cdef const Size *places # of the leaves of rates: the first row, the row of the denominator
    cdef const double *tops # the largest value of each denominator
    cdef Gradient moving    # of the leaves that have prices, alone
    cdef Tree _moving_leaves
    cdef const double *rates
    cdef const double *caps
    cdef bint read_gradients(self, const double *z, double t) noexcept nogil
    cdef double moved(self, Size i, double t) noexcept nogil
    cdef void move(self, double t) noexcept nogil
    cdef void _share_factors(self, Tree leaves, Size first) noexcept
    cdef bint is_due(self, double t) noexcept nogil
    cdef void renew(self, const double *z, double t) noexcept nogil

cdef void sampled(
    Gradient *f, In z, Real radius, In normals, Size samples, Size n, Out point, Out spare, Out out
) noexcept nogil
cdef bint all_finite(In g, Size n) noexcept nogil

# Private to the module.
cdef void _call(Tree owner, const double *z, Real step, double *out)
cdef void _keep(Tree owner, object error)
cdef void _set_size(Tree tree, Size n) except *
cdef double *_reals(Tree tree, Size n) except NULL
cdef double *_numbers(Tree tree, object values) except NULL
cdef Size *_whole(Tree tree, object values, Size most) except NULL
cdef void _join(Tree tree, object parts) except *
cdef void _listen(Tree tree, list callers) except *
cdef void _set_matrix(Tree tree, Node own, object matrix, Size rows) except *
cdef bint _insertion_sort(Out keys, Ints order, Size n) noexcept nogil
cdef void _radix_sort(
    uint64_t *keys, int64_t *order, uint64_t *other, int64_t *spare, Size n, Size first
) noexcept nogil
cdef void _sort_kept(In z, Ints order, Ints spare, Out keys, Out other, Size n) noexcept nogil
cdef void _spread(
    Out sorted_z, InInts order, Size size, Real weight, Real mean, Real step, Out out
) noexcept nogil
cdef void _pooled_gradient(
    Out sorted_z, Ints order, Real step, In prefix, Ints starts, Out excess, Out out, Size n
) noexcept nogil
cdef Size _find_levels(In z, Size n, int32_t *level, Out values, Out counts, Ints keys, int32_t *table) noexcept nogil
cdef void _by_levels(Node self, In z, Real step, Out out) noexcept nogil
cdef void _each_level(
    Node self, In values, In counts, Real step, Out out, Size levels, double *room
) noexcept nogil
cdef Real _mean_weight(Node self, Real begin, Real end) noexcept nogil
cdef void _gini_levels(
    Node self, In values, In counts, Real step, Out out, Size levels, double *room
) noexcept nogil
cdef void _exposure_levels(
    Node self, In values, In counts, Real step, Out out, Size levels, double *room
) noexcept nogil
cdef void _unset(Node self, In z, Real step, Out out) noexcept nogil
cdef void _linear(Node self, In z, Real step, Out out) noexcept nogil
cdef void _generalized_gini(Node self, In z, Real step, Out out) noexcept nogil
cdef void _equal_exposure(Node self, In z, Real step, Out out) noexcept nogil
cdef void _two_steps(
    In z, Real step, Real offset, Real gain, Real power, Real scale, Out out, Size n
) noexcept nogil
cdef Real _many_steps(Real r, Real gain, Real per_unit, Real power, Real scale) noexcept nogil
cdef void _root_welfare(In z, Real step, Real offset, Out out, Size n) noexcept nogil
cdef void _welfare(Node self, In z, Real step, Out out) noexcept nogil
cdef void _nash(Node self, In z, Real step, Out out) noexcept nogil
cdef void _penalised(Node self, In z, Real step, Out out) noexcept nogil
cdef void _bounded(Node self, In z, Real step, Out out) noexcept nogil
cdef void _rates(Node self, In z, Real step, Out out) noexcept nogil
cdef void _outside(Node self, In z, Real step, Out out) noexcept nogil
cdef void _python(Node self, In z, Real step, Out out) noexcept nogil
cdef void _combined(Node self, In z, Real step, Out out) noexcept nogil
cdef void _times(Node self, In z, Out out) noexcept nogil
cdef void _transposed_times(Node self, In x, Out out) noexcept nogil
cdef void _mapped(Node self, In z, Real step, Out out) noexcept nogil
cdef void _stacked(Node self, In z, Real step, Out out) noexcept nogil
cdef double *_by_leaf(Node self, At z, Real step) noexcept nogil
cdef void _priced(Node self, In z, Real step, Out out) noexcept nogil

# (projection - z)/(step width); without a step 0 inside and NaN outside.
cdef inline Real pulled_inside(Real z, Real low, Real high, Real step, Real width) noexcept nogil:
    cdef Real away = 0.0
    if low > high:  # margins meet in the middle
        low = 0.5 * (low + high)
        high = low
    if z < low:
        away = low - z
    elif z > high:
        away = high - z
    if away == 0.0:
        return 0.0
    return NAN if step == 0.0 else away / (step * width)

# Whether one of keys[1:n + 1] is smaller than the one before it; all are compared.
cdef inline bint falls(In keys, Size n) noexcept nogil:
    cdef int64_t count = 0
    cdef Size i
    for i in range(n):
        count += 1 if keys[i] > keys[i + 1] else 0
    return count > 0

# The x with x - r = gain (per_unit x)^-power, for r >= 0: the difference of the two sides is
# increasing and concave in x. `scale` is the root for r = 0, and `force` the right-hand side.
# The guess is right in value and slope at r = 0, and at infinity; for power <= 1 good to 4 %.
cdef inline Real guess(Real r, Real power, Real scale) noexcept nogil:
    return r + scale * (scale / (scale + power / (1.0 + power) * r))

# Halley's step, relative to x: it cubes the error, 4 % to 7e-6 to 6e-17 for power <= 1.
cdef inline Real halley(Real x, Real r, Real force, Real power) noexcept nogil:
    cdef Real per_x = 1.0 / x
    cdef Real miss = (x - r - force) * per_x
    cdef Real lean = power * force * per_x
    cdef Real slope = 1.0 + lean
    return -miss * slope / (slope * slope + 0.5 * miss * lean * (1.0 + power))

# The force after a last, small step: (1 + moved)^-power by its first terms.
cdef inline Real force_after(Real force, Real moved, Real power) noexcept nogil:
    cdef Real rest = 1.0 - 0.5 * (1.0 + power) * moved * (1.0 - (2.0 + power) / 3.0 * moved)
    return force * (1.0 - power * moved * rest)

# Newton's step towards the root of x^3 - y x - step/2.
cdef inline Real newton(Real x, Real y, Real step) noexcept nogil:
    cdef Real over = fma(x, x, -y)
    return x - fma(x, over, -0.5 * step) / fma(2.0 * x, x, over)
