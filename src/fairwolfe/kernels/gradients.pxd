# A struct that points to itself and function types: what pure-Python mode cannot say.
from fairwolfe.kernels.types cimport In, Out, Real, Size

cdef enum:
    MOST_NESTED = 2048      # each level of a tree is a call on the C stack, of about 170 bytes

cdef struct Gradient
ctypedef Gradient *Node
ctypedef const double *At   # where a gradient is taken; may be a part of a longer vector

# The smoothed gradient at z (n,), into out (n,), which do not overlap; step 0: a supergradient.
ctypedef void (*Function)(Gradient *self, const double *z, double step, double *out) noexcept nogil

# A gradient from outside the package: scipy.LowLevelCallable or ctypes.
ctypedef void (*Outside)(const double *z, Py_ssize_t n, double *out, void *user_data) noexcept nogil

cdef struct Gradient:
    Function call
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
    Outside function
    void *data              # a Python leaf: its Tree; a function from outside: user data; prices
    bint failed             # of a Python leaf: an exception waits to be raised

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

cdef class PricedTree(Tree):
    cdef Size n_prices
    cdef double *prices
    cdef Gradient moving    # of the leaves that have prices, alone
    cdef Tree _moving_leaves
    cdef const double *rates
    cdef const double *caps
    cdef bint look(self, const double *z, double t) noexcept nogil
    cdef void move(self, double t) noexcept nogil

cdef void in_ball(In normals, const double *z, Real radius, Out out, Size n) noexcept nogil
cdef void sampled(
    Gradient *f, In z, Real radius, In normals, Size samples, Size n, Out point, Out spare, Out out
) noexcept nogil
cdef bint all_finite(In g, Size n) noexcept nogil
