# Rules that choose an arm from what a linear regression has learnt, and the terms of certificates.
from cpython.pycapsule cimport PyCapsule_GetContext, PyCapsule_GetName, PyCapsule_GetPointer
from cpython.ref cimport PyObject
from libc.math cimport INFINITY, NAN, fabs, fma, log, log1p, sqrt
from libc.stdint cimport int64_t, uintptr_t

from fairwolfe.kernels.ridge cimport (
    LOG_DET, N_COUNTERS, UPDATES, Linear, Reading, Regression, Writing, add_rows, arms_in, between, cholesky,
    columns, combine_rows, estimated_scores, larger, norms_of_columns, padded, row_products,
    smaller, square_norm, squares_in,
)
from fairwolfe.kernels.types cimport (
    In, Matrix, Out, OutMatrix, OutVector, Real, Size, Tensor, Vector,
)

cdef struct Query:          # one decision for the scalar reward <g, r>
    Linear *model
    const double *g         # (n,): the direction
    const double *features  # (arms, d), or (1, d) if per_arm
    const double *draws     # of the rule
    const double *params    # of the rule
    double *scores          # (arms,)
    double probability      # of the chosen arm; NaN: unknown
    Size n                  # rewards
    Size arms
    Size d                  # features of an arm
    bint per_arm            # each arm has a block of the model
    Size stages             # of rewards; inverse and counters of the model have one after the other
    const int64_t *starts   # (stages + 1,): the first reward of each stage
    const double *spans     # (n,): ranges of the rewards, which only several stages need

# The arm, or -1 where the state is useless; sets the scores and the probability.
ctypedef Size (*Choose)(Query *q) noexcept nogil

# The terms of a certificate for <slope, r>, out (4,): the largest optimistic score (0 without
# confidence widths); by how much the estimate of the arm, and that of the better of the arm and of
# the estimated best for g, are below the largest estimate; by how much an arm that was hardly tried
# may be above it. bounds: the lowest value of every reward, the highest, then the params of the
# confidence widths, if any; size: how many numbers these are.
ctypedef void (*Certify)(
    Query *q, const double *slope, Size arm, const double *bounds, Size size, double *out
) noexcept nogil

cdef Choose choose_by_name(str name) except NULL
cdef Certify certify_by_name(str name) except NULL
cdef void extended_lesson(In direction, In x, In reward, Out wide, Out scalar, Size n, Size d) noexcept nogil
cdef object copy_of(const double *numbers, object shape)

# One of the arrays of a number for each arm in the scratch of the model: 0 is taken by sums inside
# loops, 1 to 4 are free, 5 has the features as columns.
cdef inline double *arm_array(Query *q, Size which) noexcept nogil:
    return arms_in(q.model) + which * padded(q.arms)

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

# The standard deviation of a reward with mean `value`: (high - low) sqrt(p (1 - p)), the most that it
# can be in its range (Bhatia and Davis), and at most `noise`. p is the place of the value in the
# range, kept `least` away from both ends.
cdef inline double deviation_at(
    double value, double low, double high, double noise, double least
) noexcept nogil:
    cdef double size = high - low
    cdef double p = between((value - low) / size, least, 1.0 - least)
    return smaller(size * sqrt(p * (1.0 - p)), noise)

# radius w sd + h (high - low), h = w^2/(1 + w^2), w the width: Bernstein's two terms. sd is
# `deviation_at` the value, h away from both ends: h is how far one more observation there moves an
# estimate of 0 if it is 1. The second term is that too: what was hardly seen is not known to be as
# small as a ridge regression makes it. So the bonus is positive and grows with the width.
cdef inline double pointwise_bonus(
    double value, double low, double high, double noise, double width, double radius
) noexcept nogil:
    cdef double reach = width * width / (1.0 + width * width)
    cdef double sd = deviation_at(value, low, high, noise, smaller(reach, 0.5))
    return radius * width * sd + reach * (high - low)

# An arm of width w is known as well as one that was tried 1/w^2 times: fewer than 100.
cdef inline bint hardly_tried(double width) noexcept nogil:
    return width * width * 100.0 > 1.0

# The confidence radius alpha = R sqrt(2 ln(1/delta_1) + ln(det V/det V_0)) + sqrt(ridge) D_theta;
# noise is R, prior is sqrt(ridge) D_theta, level is 2 ln(1/delta_1).
cdef inline double confidence_radius(
    double noise, double prior, double level, double log_det
) noexcept nogil:
    return noise * sqrt(level + log_det) + prior

# The largest (top) or the least <g, r> for rewards in their ranges. g, low, high (n,).
cdef inline double end_of_range(
    const double *g, const double *low, const double *high, Size n, bint top
) noexcept nogil:
    cdef Size i
    cdef double total = 0.0
    for i in range(n):
        if top:
            total += larger(g[i] * low[i], g[i] * high[i])
        else:
            total += smaller(g[i] * low[i], g[i] * high[i])
    return total

# Private to rules.py.
cdef void _transpose_features(Query *q) noexcept nogil
cdef void _scores(Query *q, const double *g, double *out) noexcept nogil
cdef void _norms(Query *q, const double *matrix, double *out) noexcept nogil
cdef void _widths(Query *q, Size s, double *out) noexcept nogil
cdef double *_counters(Query *q, Size s) noexcept nogil
cdef Real _learnt(Query *q) noexcept nogil
cdef void _extended_widths(Query *q, const double *g, double *out) noexcept nogil
cdef void _estimate(Query *q, Size i, double *out) noexcept nogil
cdef void _add_scaled(Real scale, In width, Out out, Size arms) noexcept nogil
cdef void _add_bonus(Query *q, Size s, const double *g, const double *params, const double *width, double *out) noexcept nogil
cdef void _add_weighted_bonus(Query *q, Size i, Real radius, In value, In width, Out out) noexcept nogil
cdef void _add_pointwise_bonus(Query *q, Size s, const double *width) noexcept nogil
cdef void _add_extended_bonus(Query *q, const double *g, const double *params, const double *width, double *out) noexcept nogil
cdef Size _linucb(Query *q) noexcept nogil
cdef Size _linucb_extended(Query *q) noexcept nogil
cdef Size _sample(Query *q, const double *probabilities) noexcept nogil
cdef void _gap_probabilities(In values, Size best, Real gamma, Out out, Size n) noexcept nogil
cdef Size _sample_by_gaps(Query *q, Real gamma) noexcept nogil
cdef Size _squarecb(Query *q) noexcept nogil
cdef Size _squarecb_scaled(Query *q) noexcept nogil
cdef Real _theorem_rate(const double *params, Real arms, Real t) noexcept nogil
cdef void _add_projected(Real weight, In value, Real low, Real high, Out out, Size arms) noexcept nogil
cdef Size _squarecb_theorem(Query *q) noexcept nogil
cdef Size _epsilon_greedy(Query *q) noexcept nogil
cdef void _add_noise(In lower, In draws, Real spread, Out out, Size d) noexcept nogil
cdef Size _thompson(Query *q) noexcept nogil
cdef Size _constant(Query *q, Real arm, Real probability) noexcept nogil
cdef Size _uniform(Query *q) noexcept nogil
cdef Size _fixed(Query *q) noexcept nogil
cdef double *_estimates_and_widths(Query *q) noexcept nogil
cdef Size _python(Query *q) noexcept nogil
cdef Size _call(PythonRule rule, Query *q, const double *width) noexcept
cdef Size _outside(Query *q) noexcept nogil
cdef Real _compare(Query *q, const double *slope, Size arm, double *values, double *out) noexcept nogil
cdef void _certify_plain(Query *q, const double *slope, Size arm, const double *bounds, Size size, double *out) noexcept nogil
cdef void _add_upper_bound(Real slope, Real low, Real high, In value, In width, Out out, Size arms) noexcept nogil
cdef void _certify_optimistic(Query *q, const double *slope, Size arm, const double *bounds, Size size, double *out) noexcept nogil
cdef void _certify_extended(Query *q, const double *slope, Size arm, const double *bounds, Size size, double *out) noexcept nogil

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
