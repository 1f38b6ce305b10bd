# Ascents over mixtures: of the vertices of a set, of the arms of a context; see mixtures.py.
from fairwolfe.kernels.gradients cimport Tree
from fairwolfe.kernels.types cimport Out, Size

cdef void project_on_simplex(Out weights, Out spare, Size n) noexcept nogil
cdef void lend(Tree tree, Size n) except *
