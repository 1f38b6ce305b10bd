from libc.stdint cimport int64_t

from fairwolfe.kernels.gradients cimport PricedTree, Tree
from fairwolfe.kernels.mailbox cimport Mailbox
from fairwolfe.kernels.types cimport Doubles, Real, Size

cdef enum:  # places in the counts of open decisions
    OPEN = 0        # now
    ISSUED = 1      # ever
    ANSWERED = 2    # whose estimate was compared with the reward

cdef enum:  # places in the numbers of a window of live numbers
    SERIAL = 0      # which certificate
    PLANNED = 1     # decisions that the window takes
    COUNT = 2       # decisions that it has
    TOP = 3         # sum of upper bounds
    ESTIMATE = 4    # sum of estimates
    SPARE = 5       # sum of what the directions missed
    BATCH = 6       # estimates, batch by batch
    BATCH_COUNT = 7
    BATCHES = 8
    MEAN = 9
    SQUARES = 10
    CAP = 12        # the largest <slope, r>
    FIRST = 14      # smallest number of its decisions
    LAST = 15       # largest
    UNTRIED = 17    # sum of what arms that were hardly tried may add

cdef enum:
    WINDOW = 18         # numbers of a window: reduction/windows.py
    FIRST_WINDOW = 64   # decisions of the window that has no certificate yet
    BATCHES_PLANNED = 32
    CERTIFICATES = 32   # gathered in a window

cdef struct Head:       # core/rows.py
    int64_t number
    int64_t t
    int64_t arm
    int64_t block
    int64_t place
    int64_t window
    int64_t size
    double probability
    double value
    double score
    double best
    double missed
    double spare
    double untried

cdef struct Field:      # an array of the state
    double *data
    Size size

cdef struct Column:     # of rows: its memory and its axes
    void *data
    Size n
    Size a
    Size b

cdef double *pointer(object array, object shape) except NULL
cdef int column(object array, object dtype, int axes, bint written, Column *out) except -1
cdef bint within(object numbers, Size most) except -1
cdef double *aligned(double *at) noexcept nogil

cdef class Engine:
    cdef readonly object plan
    cdef readonly object state
    cdef readonly Tree tree
    cdef PricedTree priced
    cdef Tree called                # the gradient that is computed: of f, or of an ascent; or None
    cdef bint busy                  # a call is under way
    cdef readonly Size n            # rewards
    cdef readonly Size n_seen       # those that f sees
    cdef const int64_t *coordinates # which these are; NULL: all
    cdef Size blocks                # of the sums of features of open decisions; 0: of estimates
    cdef Size d                     # features of a block
    cdef Size n_linear              # rewards that are estimated from features, the last ones
    cdef Size samples               # of randomised smoothing
    cdef bint directed              # whether a direction is followed
    cdef bint counts_open           # whether open decisions count
    cdef bint prices_call           # whether prices move by functions in Python
    cdef double forget
    cdef double keep
    cdef double width               # of the smoothing, times sqrt(t + 1) unless it is fixed
    cdef bint fixed
    cdef double *start             # (n,): z before the first answer; NULL: 0
    cdef double *low
    cdef double *high
    cdef double *totals
    cdef double *earned
    cdef double *clocks
    cdef double *t
    cdef double *running
    cdef double *open
    cdef double *weights
    cdef double *sums               # (2, n): rounded, and what rounding has left
    cdef double *answered
    cdef double *phi                # (1, 2, blocks, d + 1)
    cdef double *psi                # (1, blocks, d + 1)
    cdef double *theta              # (blocks, n_linear, d)
    cdef double *window
    cdef double *slope
    cdef double *rewards_seen
    cdef double *prices
    cdef Field fields[32]
    cdef Size n_fields
    cdef double *memory             # of the scratch below
    cdef double *z
    cdef double *at
    cdef double *over
    cdef double *spare
    cdef double *saved              # open decisions, while proposals are made

    cdef int begin(self, Engine by) except -1
    cdef void end(self, Engine by)
    cdef bint fits(self, Engine other) noexcept nogil
    cdef Size n_numbers(self) noexcept nogil
    cdef void save(self, double *to) noexcept nogil
    cdef void restore(self, double *saved) noexcept nogil
    cdef int attach(self, object name, double **place, object shape) except -1
    cdef Real age(self, Real t) noexcept nogil
    cdef Real step(self, Real t) noexcept nogil
    cdef void with_open(self, double *at, double *over) noexcept nogil
    cdef bint direction(self, Doubles normals, double *g) noexcept nogil
    cdef bint _gradient(self, Real t, Doubles normals, double *g) noexcept nogil
    cdef void open_one(self) noexcept nogil
    cdef void open_features(self, Size block, Doubles x, Real sign, Real weight) noexcept nogil
    cdef void open_value(self, Size i, Real value) noexcept nogil
    cdef Real age_weight(self, int64_t place) noexcept nogil
    cdef void correct(self, Doubles reward, Doubles estimate) noexcept nogil
    cdef void close_one(self, Size first, Size stop, Real weight) noexcept nogil
    cdef void answer_features(self, Size block, Doubles x, Doubles reward) noexcept nogil
    cdef bint look_at_prices(self) noexcept nogil
    cdef void average(self, Doubles reward, Doubles rho, Size first, Size stop) noexcept nogil
    cdef bint count_live(self, Head *head, Doubles tally, Doubles reward) noexcept nogil
    cdef void save_open(self) noexcept nogil
    cdef void restore_open(self) noexcept nogil
    cdef void copy_from(self, Engine other) noexcept nogil

cdef class Before:
    cdef Engine engine
    cdef Engine by
    cdef Mailbox mailbox
    cdef bint needed
    cdef object arrays              # keeps the memory below alive
    cdef double *numbers
    cdef int64_t *slots
    cdef double *sums[3]
    cdef Size sizes[3]

    cdef void save(self) noexcept nogil
    cdef void restore(self) noexcept nogil
