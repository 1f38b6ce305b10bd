from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer,
)
from libc.math cimport floor, fmod, pow, sqrt
from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from fairwolfe.kernels.gradients cimport PricedTree, Tree, all_finite, sampled
from fairwolfe.kernels.mailbox cimport Mailbox, copy_words
from fairwolfe.kernels.ridge cimport Reading, padded
from fairwolfe.kernels.types cimport (
    Doubles, IntMatrix, IntVector, Matrix, OutIntVector, OutVector, Real, Size
)

cdef extern from *:
    """
    #define NO_END 4503599627370496.0
    """
    const double NO_END             # 2^52: of a gap that has not ended

cdef enum:
    FIRST_WINDOW = 64       # decisions of the window that has no certificate yet
    BATCHES_PLANNED = 32
    CERTIFICATES = 32       # gathered in a window, 4 where not all decisions are measured

cdef struct OpenCounts:     # of decisions, for one stage
    double now
    double issued           # ever
    double answered         # whose estimate was compared with the reward

cdef struct Window:         # the numbers of a window of live numbers: reduction/live.py
    double serial           # which certificate
    double planned          # decisions that the window takes
    double count            # decisions that it has
    double top              # sum of upper bounds
    double estimate         # sum of estimates
    double spare            # sum of what the directions missed
    double batch, batch_count, batches, mean, squares   # estimates, batch by batch
    double unused
    double cap              # the largest <slope, r>
    double unused_either
    double first, last      # smallest and largest number of its decisions
    double unused_as_well
    double untried          # sum of what arms that were hardly tried may add

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
    Size rows
    Size size           # of a row
    Size stride         # from one row to the next

cdef struct Column:     # of rows: its memory and its axes
    void *data
    Size n
    Size a
    Size b

cdef double *pointer(object array, object shape) except NULL
cdef double *rows_pointer(object array, Size rows, Size n, Size *stride) except NULL
cdef Scratch enough(Scratch before, Size size)
cdef int column(object array, object dtype, int axes, bint written, Column *out) except -1
cdef bint within(object numbers, Size most) except -1
cdef double *aligned(double *at) noexcept nogil

# Add a number to a sum that is kept twice: rounded, and what rounding has left.
cdef inline void add_exactly(double *high, double *low, double value) noexcept nogil:
    cdef double total = high[0] + value
    cdef double part = total - high[0]
    low[0] += (high[0] - (total - part)) + (value - part)
    high[0] = total

# Copy n numbers to a buffer, or back; where the buffer goes on.
cdef inline double *copy_numbers(double *numbers, double *buffer, Size n, bint back) noexcept nogil:
    copy_words(numbers, buffer, n, back)
    return buffer + n

cdef class Scratch:
    cdef double *at
    cdef Size size

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
    cdef readonly Size n_groups     # of items, that f reads besides
    cdef Size n_by                  # attributes that these are made by
    cdef Size n_items               # that there ever were, where there are groups
    cdef const int64_t *slots_of    # (n_by, n_items): the group of each item, -1: none that is read
    cdef const int64_t *first_of    # (n_groups,): the first item of each
    cdef const int64_t *clock_of    # (n_groups,): its column of State.groups
    cdef double *paused             # (3, n_clocks): State.groups
    cdef double *gaps               # (3, n_gaps): State.gaps
    cdef Size n_clocks
    cdef Size n_gaps
    cdef readonly int64_t epoch     # how often a group has gone or come back
    cdef Size blocks                # of the sums of features of open decisions; 0: of estimates
    cdef Size d                     # features of a block
    cdef Size n_linear              # rewards that are estimated from features, the last ones
    cdef Size samples               # of randomised smoothing
    cdef readonly Size stages       # of rewards that arrive together
    cdef const int64_t *starts      # (stages + 1,): the first reward of each
    cdef const int64_t *uses        # (prices,): the stages that a row with a price uses, as bits
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
    cdef double *t                  # (stages,)
    cdef double *running
    cdef OpenCounts *open           # (stages,)
    cdef double *weights
    cdef double *sums               # (n,) of their recorded estimates,
    cdef double *rest               # (n,) and what rounding has left
    cdef double *answered
    cdef double *phi                # (stages, 2, blocks, d + 1)
    cdef double *psi                # (stages, blocks, d + 1)
    cdef double *theta              # (blocks, n_linear, d)
    cdef Window *window
    cdef double *slope
    cdef double *rewards_seen
    cdef double *prices
    cdef double *factors            # of the widths of prices
    cdef Field fields[32]
    cdef Size n_fields
    cdef Size measured              # one in so many decisions is measured for live numbers
    cdef Scratch scratch            # of what follows
    cdef double *z                  # (n_seen + n_groups,): where f is read
    cdef double *lifted             # (n_seen + n_groups,): the gradient there
    cdef double *times              # (n_groups,): how long the group has had an item
    cdef double *at
    cdef double *over
    cdef double *spare
    cdef double *saved              # open decisions, while proposals are made
    cdef double *next_prices        # where the prices move, with several stages

    cdef int begin(self, Engine by) except -1
    cdef void end(self, Engine by)
    cdef int check_callbacks(self) except -1
    cdef bint fits(self, Engine other) noexcept nogil
    cdef Size n_numbers(self) noexcept nogil
    cdef double *copy_state(self, double *buffer, bint back) noexcept nogil
    cdef int _attach_groups(self, object groups, Size clocks) except -1
    cdef Size attach_rows(self, object name, double **place, Size rows, Size n) except -1
    cdef void _add_field(self, double *data, Size rows, Size size, Size stride)
    cdef int attach(self, object name, double **place, object shape) except -1
    cdef Real age(self, Real t) noexcept nogil
    cdef Real step(self, Real t) noexcept nogil
    cdef Size stage_of(self, Size i) noexcept nogil
    cdef Real answers(self, int64_t stages) noexcept nogil
    cdef Real counted(self) noexcept nogil
    cdef void average_seen(self, const double *at, const double *over) noexcept nogil
    cdef void with_open(self, double *at, double *over) noexcept nogil
    cdef void read_averages(self, double *at, double *over, Real past, Real opens) noexcept nogil
    cdef void read_groups(
        self, double *at, double *over, Real past, Real opens, double *out
    ) noexcept nogil
    cdef void add_in_gaps(self, int64_t epoch, double *out, Real amount) noexcept nogil
    cdef void sum_members(self) noexcept nogil
    cdef void fold(self, double *lifted, double *g) noexcept nogil
    cdef Real past(self) noexcept nogil
    cdef bint direction(self, Doubles normals, double *g) noexcept nogil
    cdef bint _gradient(self, Real t, Doubles normals, double *g) noexcept nogil
    cdef void open_one(self) noexcept nogil
    cdef void open_features(self, Size stage, Size block, Doubles x, Real sign, Real weight) noexcept nogil
    cdef void open_value(self, Size i, Real value) noexcept nogil
    cdef bint is_open(self, Size stage, Head *head) noexcept nogil
    cdef Real age_weight(self, int64_t place) noexcept nogil
    cdef void correct(self, Doubles reward, Doubles estimate) noexcept nogil
    cdef void close_one(self, Size stage, Size first, Size stop, Real weight) noexcept nogil
    cdef void answer_features(self, Size stage, Size block, Doubles x, Doubles reward) noexcept nogil
    cdef int64_t known(self, Doubles reward) noexcept nogil
    cdef bint prepare_prices(self, Size stage, Doubles reward) noexcept nogil
    cdef void average(self, Size stage, Doubles reward, Doubles rho, Size first, Size stop) noexcept nogil
    cdef bint count_live(self, Head *head, Doubles terms, Doubles reward) noexcept nogil
    cdef void _mark_busy(self, Engine by, bint busy)
    cdef void _copy_open(self, bint back) noexcept nogil
    cdef void save_open(self) noexcept nogil
    cdef void restore_open(self) noexcept nogil
    cdef void copy_from(self, Engine other) noexcept nogil

cdef class Undo:
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
    cdef void rollback(self) noexcept nogil
    cdef void _copy(self, bint back) noexcept nogil
