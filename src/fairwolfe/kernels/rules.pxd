# Rules that choose an arm from what a linear regression has learnt, and looks at all arms.
from fairwolfe.kernels.ridge cimport Linear
from fairwolfe.kernels.types cimport In, Out, Real, Size

# The arm, or -1 where the state is useless; report[0]: its probability (NaN: unknown).
# g (n,): the direction, n rewards; features (arms, d), or (1, d) if per_arm; scores (arms,).
ctypedef Size (*Choose)(
    Linear *model, const double *g, Size n, const double *features, Size arms, Size d, bint per_arm,
    const double *draws, const double *params, Size n_params, double *scores, double *report,
) noexcept nogil

# Of <slope, r>, out (4,): the largest optimistic score (0 without confidence widths); by how much the
# estimate of the arm, and that of the better of the arm and of the estimated best for g, are below
# the largest estimate; by how much an arm that was hardly tried may be above it. doubt: the lowest
# value of every reward, the highest, then the params of the confidence widths, if any.
ctypedef void (*Look)(
    Linear *model, const double *slope, const double *g, Size n, const double *features, Size arms,
    Size d, bint per_arm, Size arm, const double *doubt, Size n_doubt, double *out,
) noexcept nogil

cdef Choose choose_by_name(str name) except NULL
cdef Look look_by_name(str name) except NULL
cdef Size choose_python(        # params: of a PythonRule, which keeps an exception; then -1
    Linear *model, const double *g, Size n, const double *features, Size arms, Size d, bint per_arm,
    const double *draws, const double *params, Size n_params, double *scores, double *report,
) noexcept nogil
cdef void extended_lesson(In direction, In x, In reward, Out wide, Out scalar, Size n, Size d) noexcept nogil

# The place of the largest value, the first of equals. values (n,).
cdef inline Size argmax(const double *values, Size n) noexcept nogil:
    cdef Size a, best = 0
    cdef double most = values[0]
    for a in range(1, n):
        if values[a] > most:
            most = values[a]
            best = a
    return best

cdef class PythonRule:
    cdef object function            # (g, features) -> (arm, probability or None)
    cdef public object error        # the first exception of the function, until it is taken
    cdef readonly object params     # of `choose`: holds where this object is
