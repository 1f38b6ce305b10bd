from libc.stdint cimport int64_t

from fairwolfe.kernels.engine cimport Head
from fairwolfe.kernels.types cimport Doubles, Size

cdef struct Given:          # contexts to decide for, one after the other
    Doubles contexts        # (rows, arms or 1, d)
    Size arms
    bint per_arm
    const int64_t *places   # (rows, arms): blocks that may be chosen; NULL: all
    Doubles draws           # (rows, uniforms)
    Size uniforms
    Doubles normals         # (rows, samples, n + 2)

cdef struct ArmRow:         # the first of some rows: places in the columns of core/rows.py
    Head *head
    double *x               # (d,)
    double *g               # (n_g,): where directions are kept, else n_g is 0
    Size rows
    Size d
    Size n_g

cdef struct Round:          # one simulated round
    Doubles context         # (arms, d)
    Size arms
    Size tag
    Doubles noise
    Doubles draws
    Doubles normals
    Head *head
    double *x               # (d,)
    double *reward          # (n,)
    double *mean            # (n,)
    double *mean_sum
    double *reward_sum
    double *scalar
    bint late               # whether answers go through a mailbox
