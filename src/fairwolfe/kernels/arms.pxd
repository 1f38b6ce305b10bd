from libc.stdint cimport int64_t

from fairwolfe.kernels.engine cimport Head
from fairwolfe.kernels.types cimport Doubles, Size

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
