# Rewards of simulated worlds with arms.
from cpython.ref cimport PyObject
from libc.math cimport NAN, exp, fabs, fma
from libc.stdint cimport int64_t

from fairwolfe.kernels.engine cimport within
from fairwolfe.kernels.ridge cimport Writing, combine_rows, row_products
from fairwolfe.kernels.rules cimport argmax, copy_of
from fairwolfe.kernels.types cimport (
    Doubles, IntVector, Matrix, OutMatrix, OutTensor, OutVector, Real, Size, Tensor, Vector,
)

cdef struct World

cdef struct Draw:           # a context, and room for what is drawn in it
    Size tag                # its number, in [0, tags) where the world has a list of contexts
    Size arms
    const double *features  # (arms, d)
    const double *noise     # (n_noise,)
    double *mean            # (n,)
    double *reward          # (n,)
    const double *g         # (n,): a direction
    double *scores          # (arms,)

# The mean reward and the reward of an arm.
ctypedef void (*Reward)(World *world, Draw *at, Size arm) noexcept nogil

# The arm of largest <g, mean reward>, the first of equals, and scores.
ctypedef Size (*Best)(World *world, Draw *at) noexcept nogil

cdef struct World:          # serves one thread at a time, since it has one scratch
    Reward reward
    Best best               # NULL: not known
    const double *params
    Size n                  # rewards
    Size d                  # features of an arm
    Size arms
    Size n_noise            # numbers of noise that `reward` reads
    Size tags               # how many contexts the world knows by number; 0: tags are not read
    double *work            # (d,)
    void *data              # of Python functions: the CompiledArmWorld that owns this

cdef class CompiledArmWorld:
    cdef World own
    cdef object kept            # what the pointers above point to
    cdef object functions       # reward and best in Python, or None
    cdef public object error    # the first exception of these, until it is taken
    cdef readonly long long callbacks   # how often these were called
    cdef Draw _draw(self, const double[:, ::1] features, Size tag)

# Private to worlds.py.
cdef void _linear_reward(World *world, Draw *at, Size arm) noexcept nogil
cdef Size _linear_best(World *world, Draw *at) noexcept nogil
cdef void _table_reward(World *world, Draw *at, Size arm) noexcept nogil
cdef Size _table_best(World *world, Draw *at) noexcept nogil
cdef Real _nonlinear_mean(World *world, Doubles x, Size i) noexcept nogil
cdef void _nonlinear_reward(World *world, Draw *at, Size arm) noexcept nogil
cdef Size _nonlinear_best(World *world, Draw *at) noexcept nogil
cdef int _fill(str name, numbers, double *out, Size n) except -1
cdef void _python_reward(World *world, Draw *at, Size arm) noexcept nogil
cdef Size _python_best(World *world, Draw *at) noexcept nogil
