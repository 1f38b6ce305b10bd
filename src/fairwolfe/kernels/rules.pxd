# Rules that choose an arm from what a linear regression has learnt, and looks at all arms.
from libc.math cimport log, sqrt

from fairwolfe.kernels.ridge cimport Linear, between, smaller
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

# .5 sqrt(2 ln(1 + n sqrt t)), t = 1 + learnt: how many standard deviations are added. n: parameters
# of a reward; learnt: observations so far. A Gaussian exceeds sqrt(2 ln(n sqrt t)) standard
# deviations with a chance below 1/(n sqrt t): summed over n parameters and T rounds that is
# 2 sqrt(T), the order of the regret. The half is measured, see docs/which-bandit.md.
cdef inline double pointwise_radius(double n, double learnt) noexcept nogil:
    return 0.5 * sqrt(2.0 * log(1.0 + n * sqrt(learnt + 1.0)))

# radius w sd + h (high - low), h = w^2/(1 + w^2), w the width: Bernstein's two terms. sd is the
# standard deviation of a reward with mean `value`: (high - low) sqrt(p (1 - p)), the most that it can
# be in its range (Bhatia and Davis), and at most `noise`. p is the place of the value in the range,
# kept h away from both ends: h is how far one more observation there moves an estimate of 0 if it is
# 1. The second term is that too: what was hardly seen is not known to be as small as a ridge
# regression makes it. So the bonus is positive and grows with the width.
cdef inline double pointwise_bonus(
    double value, double low, double high, double noise, double width, double radius
) noexcept nogil:
    cdef double size = high - low
    cdef double reach = width * width / (1.0 + width * width)
    cdef double least = smaller(reach, 0.5)
    cdef double p = between((value - low) / size, least, 1.0 - least)
    return radius * width * smaller(size * sqrt(p * (1.0 - p)), noise) + reach * size

# A rule from outside the package: see `SIGNATURE` in rules.py.
ctypedef Py_ssize_t (*OutsideFunction)(
    const double *values, const double *widths, Py_ssize_t n_arms, double t, double uniform,
    double *probability, void *user_data,
) noexcept nogil

cdef struct OutsideCall:
    OutsideFunction function
    void *data
    bint failed             # the last answer was this, and wrong
    Size arm
    Size arms
    double probability

cdef class PythonRule:
    cdef object function            # (values, widths, t, uniform) -> (arm, probability or None)
    cdef public object error        # the first exception of the function, until it is taken
    cdef readonly object params     # of `choose`: holds where this object is
    cdef readonly long long callbacks   # how often it was called
    cdef bint inside                # the function is under way

cdef class OutsideRule:
    cdef OutsideCall own
    cdef object kept                # alive as long as this
    cdef readonly object params
