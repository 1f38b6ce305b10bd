# Rankings: scores, the k largest, explanations, exposures, worlds; see ranks.py.
from libc.math cimport INFINITY, exp, fabs, fma, isfinite, log, sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from fairwolfe.kernels.products cimport (
    Products, aligned, contract, estimates, products_room, products_scratch, turn_parameters
)
from fairwolfe.kernels.ridge cimport LOG_DET, UPDATES
from fairwolfe.kernels.rules cimport pointwise_bonus, pointwise_radius
from fairwolfe.kernels.types cimport (
    BLOCK, In, InInts, IntVector, Ints, Matrix, Out, OutIntVector, OutMatrix, OutTensor,
    OutVector, Real, Size, Tensor, Vector
)

cdef enum:              # places in the params of a ranker
    EXPLORATION = 0     # times the confidence widths; negative: a pointwise bonus
    LEVEL = 1           # 2 ln(1/delta_1)
    RANDOMIZE = 2       # the chance of a swap
    HEAD = 3            # R_r (R,), sqrt(ridge) D_theta_r (R,), those of the rule, low, high (R,)

cdef enum:
    FROM_MANY = 1024    # candidates from which on widths are computed where they can matter
    GATHERED = 256      # of these at a time
    SQUARINGS = 3       # of a metric whose norm is bounded
    COLUMNS = 64        # whose maxima bound the largest of many scores from below

cdef enum:              # what counts as exposed
    OBSERVED = 0        # as the feedback says
    SHOWN = 1           # every item of the ranking
    UNTIL_LAST_CLICK = 2  # every item down to the last that earned something

cdef enum:              # what can be wrong with the feedback to a slot
    NOT_A_COIN = 1
    NOT_FINITE = 2
    EARNED_UNSEEN = 3
    NO_ITEM = 4
    ITEM_TWICE = 5

ctypedef void (*Score)(
    In value, In width, Real bonus, In direction, In exposed, In shown, Real t, Size slots,
    In params, Out out, Size n
) noexcept nogil

cdef struct Ranker:
    Products *products      # of each stage of rewards
    Size stages
    Size rewards            # R, of all stages
    Score score
    Size slots              # k
    Size most               # the largest number of candidates
    const double *params    # see HEAD
    Size n_params
    const double *bounds     # the first params with exploration 1, for upper bounds
    Size n_bounds            # 0: no upper bounds
    const double *ranges    # (2, R): low and high of the rewards of a slot
    double *value           # (most,): estimates of the last `rank`
    double *width           # (stages, most): its confidence widths
    double *scores          # (most,)
    double *bonuses         # (most,)
    double *spare           # (most,)
    double *combined        # (q,)
    double *wide            # width, or bonuses where these are pointwise or of several stages
    double bonus            # what to multiply wide by
    double longest          # the largest |item|^2 of those that may be candidates; < 0: not known
    Size waits              # rankings until bounds are tried again
    bint partial            # whether the last `rank` has widths of those alone that could matter
    double most_width       # which its widths do not exceed
    double *gathered        # (q + 4, GATHERED), then the places of these
    double *squares         # (2, q, q)
    int64_t *best           # (slots,)

cdef struct RankingArrays:
    Size users
    Size items_n            # m
    Size q                  # factors
    Size rewards            # R
    Size slots              # k
    Size weights_n          # 1, or users
    const double *turned    # (R, users, q)
    const double *items     # (m, q)
    const double *columns   # (q, m)
    const double *weights   # (weights_n, k): how likely slots are exposed
    const double *ranges    # (R, 2)

cdef void top_k(In scores, Size n, Size k, Ints out) noexcept nogil

cdef Score score_by_name(str name)
cdef Size ranker_room(const Ranker *self) noexcept nogil
cdef void ranker_scratch(Ranker *self, double *room) noexcept nogil
cdef Real rank(
    Ranker *self, const double *user, const double *items, Size stride, Size n,
    const double *direction, const double *exposed, const double *shown, Real t, const int64_t *pinned,
    const double *draws, int64_t *ranking
) noexcept nogil
cdef void explain(
    Ranker *self, const double *items, Size stride, Size n, const double *direction,
    const int64_t *ranking, double *parts, int64_t *plain_rank
) noexcept nogil
cdef void certify_ranking(
    Ranker *self, const double *user, const double *items, Size stride, Size n, const double *slope,
    const int64_t *ranking, double *terms
) noexcept nogil

cdef Real largest_column(In items, Size stride, Size q, Size n) noexcept nogil
cdef void exposure_rates(In slots, In weights, Out chances, Size k) noexcept nogil
cdef void features_of(In items, Size stride, InInts ranking, Size k, Size q, Out rows) noexcept nogil
cdef void expected_features(In chances, In user, In rows, Size k, Size p, Size q, Out x) noexcept nogil
cdef int64_t count_exposed(
    int64_t exposure, InInts items, In exposed, In rewards, Size k, Size n_rewards, Size begin,
    Size end, Size n, Out exposures, Out total
) noexcept nogil
cdef Size exposed_rows(
    In rows, In exposures, In rewards, Size k, Size q, Size n_rewards, Size begin, Size end,
    Out learnt, Out targets
) noexcept nogil
cdef void sum_slots(In terms, In exposures, Size k, Out out) noexcept nogil
cdef void count_ranking(
    InInts items, In exposures, Size k, Size known, Real owed, Out exposed, Out shown, Size m,
    Out slots
) noexcept nogil

cdef void slot_means(
    const RankingArrays *self, InInts action, Size user, Out out
) noexcept nogil
cdef void observe(
    const RankingArrays *self, Size user, In means, In uniforms, Out exposed, Out rewards
) noexcept nogil
cdef void mean_of_ranking(
    const RankingArrays *self, InInts action, Size user, In means, Out out
) noexcept nogil
cdef void best_ranking(
    const RankingArrays *self, const double *direction, Size user, double *spare, double *scores,
    int64_t *out
) noexcept nogil
cdef Real support_of_rankings(
    const RankingArrays *self, const double *direction, const double *shares, double *spare,
    double *scores, int64_t *best, double *out
) noexcept nogil

cdef class CompiledRankingWorld:
    cdef RankingArrays own
    cdef tuple arrays           # keeps them alive
    cdef double *room           # (3, m): scratch of the methods below
    cdef int64_t *best          # (k,)

# Private to the module.
cdef bint _top_of_many(In scores, Size n, Size k, Ints out) noexcept nogil
cdef void _top_of_few(In scores, Size n, Size k, Ints out) noexcept nogil
cdef void _optimistic(
    In value, In width, Real bonus, In direction, In exposed, In shown, Real t, Size slots, In
    params, Out out, Size n
) noexcept nogil
cdef void _discounted(
    In value, In width, Real bonus, In direction, In exposed, In shown, Real t, Size slots, In
    params, Out out, Size n
) noexcept nogil
cdef void _deprived_first(
    In value, In width, Real bonus, In direction, In exposed, In shown, Real t, Size slots, In
    params, Out out, Size n
) noexcept nogil
cdef void _combine(Ranker *self, const double *user, const double *weights) noexcept nogil
cdef Real _bonus(
    In weights, In params, Real log_det, Size begin, Size end, Size n_rewards
) noexcept nogil
cdef void _add_pointwise(
    In own, In width, Real low, Real high, Real noise, Real wide, Real weight, Out out, Size n
) noexcept nogil
cdef void _estimate_along(In turned, In items, Size stride, Out out, Size q, Size n) noexcept nogil
cdef void _worth(Ranker *self, const double *items, Size stride, Size n, const double *weights) noexcept nogil
cdef void _add_widths(Ranker *self, In weights, In params, Out out, Size n) noexcept nogil
cdef Real _spectral_bound(In metric, Out power, Out spare, Size q) noexcept nogil
cdef void _gather(
    Ranker *self, const double *items, Size stride, const double *direction,
    const int64_t *places, Size count
) noexcept nogil
cdef void _score_gathered(
    Ranker *self, const double *items, Size stride, const double *direction,
    const int64_t *places, Size count
) noexcept nogil
cdef bint _rank_by_bounds(
    Ranker *self, const double *user, const double *items, Size stride, Size n,
    const double *direction, const int64_t *pinned, int64_t *ranking
) noexcept nogil
cdef void _count_larger(
    Ranker *self, const double *items, Size stride, Size n, const double *direction,
    const double *plain, int64_t *plain_rank
) noexcept nogil
cdef void _around(Ranker *self, InInts pinned, Size n, Ints ranking) noexcept nogil
cdef Real _swapped(
    Real chance, const double *draws, const int64_t *pinned, Ints ranking, Size k
) noexcept nogil
cdef void _estimate_items(
    Ranker *self, const double *user, const double *items, Size stride, Size n,
    const double *weights
) noexcept nogil
cdef Real _arrange(
    Ranker *self, Size n, const int64_t *pinned, const double *draws, int64_t *ranking
) noexcept nogil
cdef void _item_means(In turned, In columns, Out out, Size q, Size m) noexcept nogil
cdef void _add_clipped(Real g, In means, Real low, Real high, Out scores, Size m) noexcept nogil
