# Ascents over mixtures: of the vertices of a set, of the arms of a context; see mixtures.py.
from fairwolfe.kernels.gradients cimport Tree
from fairwolfe.kernels.types cimport In, Out, Real, Size

cdef void project_on_simplex(Out weights, Out spare, Size n) noexcept nogil
cdef void lend(Tree tree, Size n) except *
cdef void ascend(
    Tree tree, In theta, In features, bint per_arm, Size steps, Real rate, double *weights,
    double *room, Size arms, Size n, Size d,
) noexcept nogil

# How many doubles of scratch `ascend` takes.
cdef inline Size ascent_room(Size arms, Size n, Size d) noexcept nogil:
    return arms + (n if n > d else d) + d + 2 * n
