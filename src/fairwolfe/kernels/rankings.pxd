from libc.math cimport NAN, isfinite
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from fairwolfe.kernels.engine cimport (
    FIRST_WINDOW, Column, Engine, Head, Scratch, Undo, aligned, column, enough, pointer, rows_pointer,
    within
)
from fairwolfe.kernels.mailbox cimport Mailbox
from fairwolfe.kernels.products cimport (
    Products, absorb_items, contract, start_deferring, stop_deferring
)
from fairwolfe.kernels.ranks cimport (
    OBSERVED, Ranker, CompiledRankingWorld, best_ranking, count_exposed, count_ranking, expected_features,
    explain, exposed_rows, features_of, certify_ranking, exposure_rates, mean_of_ranking, observe, rank,
    ranker_room, ranker_scratch, score_by_name, slot_means, sum_slots
)
from fairwolfe.kernels.ridge cimport N_COUNTERS, STATUS, Linear, largest_square_norm, refresh
from fairwolfe.kernels.types cimport (
    Doubles, IntMatrix, IntVector, Matrix, OutIntMatrix, OutIntVector, OutVector, Real, Size,
    Tensor
)

cdef struct RankingRow:     # one ranking: places in the columns of core/rows.py
    Head *head
    int64_t *items          # (k,)
    double *user            # (p,)
    double *exposure        # (k,)
    double *parts           # (3, k), NULL: not wanted
    int64_t *ranks          # (k,)
    double *live            # (2, k)
    double *g               # (n_g,): where directions are kept, else n_g is 0
    Size n_g                # coordinates when it was made
    const double *features  # (k, q): of the items

cdef struct Candidates:     # what may be shown
    Size n
    Doubles items           # (q, n)
    Size stride             # from one row of these to the next
    const int64_t *ids      # (n,), NULL: 0, 1, ...
    Doubles direction       # (n + R,)
    Doubles slope           # (n + R,)
    Doubles exposed         # (n,)
    Doubles shown           # (n,)
    const int64_t *pinned   # (k,): places among the candidates, -1: free; NULL: all are free
    Doubles draws

cdef struct RankingRound:   # one simulated round
    Size tag
    Doubles users           # (users, p)
    Doubles tables          # (1 or users, q, m)
    Size stride             # from the table of one user to the next
    Doubles noise
    Doubles draws
    Doubles normals
    double *seen            # (k,)
    double *earned          # (k, R)
    double *means           # (k, R)
    double *mean            # (n,)
    double *scores          # (2, m)
    double *mean_sum
    double *reward_sum
    double *scalar
    bint truth
