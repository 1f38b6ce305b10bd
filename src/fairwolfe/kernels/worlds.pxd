# Rewards of simulated worlds with arms.
from fairwolfe.kernels.types cimport In, Out, Real, Size

cdef struct World

# The mean reward and the reward of an arm, both (n,). features (arms, d) of world.arms arms,
# tag: the number of the context, in [0, tags) where the world has a list of them; noise (n_noise,).
ctypedef void (*Reward)(
    World *world, Size arm, Size tag, const double *features, const double *noise, double *mean,
    double *reward,
) noexcept nogil

# The arm of largest <g, mean reward>, the first of equals. g (n,), features (arms, d), scores (arms,).
ctypedef Size (*Best)(
    World *world, const double *g, Size tag, const double *features, Size arms, Size d,
    double *scores,
) noexcept nogil

cdef struct World:          # serves one thread at a time, since it has one scratch
    Reward reward
    Best best               # NULL: not known
    const double *params
    Size n_params
    Size n                  # rewards
    Size d                  # features of an arm
    Size arms
    Size n_noise            # numbers of noise that `reward` reads
    Size tags               # how many contexts the world knows by number; 0: tags are not read
    double *work            # (d,)
    void *data              # of Python functions: the ArmWorld that owns this

cdef class ArmWorld:
    cdef World own
    cdef object kept            # what the pointers above point to
    cdef object functions       # reward and best in Python, or None
    cdef public object error    # the first exception of these, until it is taken
    cdef readonly long long callbacks   # how often these were called
