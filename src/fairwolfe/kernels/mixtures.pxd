# Ascents over mixtures: of the vertices of a set, of the arms of a context; see mixtures.py.
from libc.math cimport INFINITY, fma, sqrt

from fairwolfe.kernels.gradients cimport Tree
from fairwolfe.kernels.ridge cimport add_scaled, combine_rows, fill, row_products
from fairwolfe.kernels.rules cimport argmax
from fairwolfe.kernels.types cimport (
    In, Matrix, Out, OutMatrix, OutVector, Real, Size, Tensor, Vector
)

cdef void project_on_simplex(Out weights, Out spare, Size n) noexcept nogil
cdef void ascend(
    Tree tree, In theta, In features, bint per_arm, Size steps, Real rate, double *weights,
    double *room, Size arms, Size n, Size d,
) noexcept nogil

# How many doubles of scratch `ascend` takes.
cdef inline Size ascent_room(Size arms, Size n, Size d) noexcept nogil:
    return arms + (n if n > d else d) + d + 2 * n

# Private to the module.
cdef void _slopes(
    Tree tree, In vertices, In shift, In weights, Out y, Out g, Out out, Size n, Size size
) noexcept nogil
cdef Size _correct(
    Tree tree, In vertices, In shift, Out weights, Out bend, Real goal, Size limit, Out room,
    Size n, Size size
) noexcept nogil
cdef void _mean_of_arms(
    In weights, In theta, In features, bint per_arm, Out spare, Out out, Size arms, Size n,
    Size d
) noexcept nogil
