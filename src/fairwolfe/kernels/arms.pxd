from libc.math cimport NAN, isfinite
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from fairwolfe.kernels.engine cimport (
    FIRST_WINDOW, Column, Engine, Head, Undo, aligned, column, pointer, within,
)
from fairwolfe.kernels.gradients cimport Tree
from fairwolfe.kernels.mailbox cimport Mailbox
from fairwolfe.kernels.mixtures cimport ascend, ascent_room
from fairwolfe.kernels.ridge cimport (
    N_COUNTERS, Linear, learn_online_gradient, learn_ridge, linear_work, padded, refresh,
)
from fairwolfe.kernels.rules cimport (
    Certify, Choose, Query, argmax, certify_by_name, choose_by_name, extended_lesson,
)
from fairwolfe.kernels.types cimport (
    Doubles, IntMatrix, IntVector, Matrix, OutIntVector, OutVector, Real, Size, Tensor,
)
from fairwolfe.kernels.worlds cimport CompiledArmWorld, Draw

cdef struct ArmRow:         # the first of some rows: places in the columns of core/rows.py
    Head *head
    double *x               # (d,)
    double *g               # (n_g,): where directions are kept, else n_g is 0
    Size rows
    Size d
    Size n_g

cdef struct Batch:          # contexts to decide for, one after the other: see `ArmsEngine.decide`
    ArmRow rows
    Doubles contexts        # (rows, arms or 1, d)
    const int64_t *places   # (rows, arms): blocks that may be chosen; NULL: all
    Doubles draws           # (rows, uniforms)
    Doubles normals         # (rows, samples, n + 2)
    int64_t number
    Size every
    bint advance
    bint propose

cdef struct Round:          # one simulated round
    Draw draw
    Doubles normals
    Head *head
    double *x               # (d,)
    double *mean_sum
    double *reward_sum
    double *scalar
    bint late               # whether answers go through a mailbox

cdef class ArmMailbox(Mailbox):
    cdef object rows
    cdef object earned          # (capacity, n)
    cdef object stages          # (capacity,)
    cdef object shape
    cdef Head *head
    cdef double *x
    cdef double *g
    cdef double *rewards
    cdef int64_t *stage

cdef class ArmsEngine(Engine):
    cdef Linear model
    cdef Query query            # the decision that is being made
    cdef object spans           # (n,): ranges of the rewards, for the query
    cdef Choose choose
    cdef Certify certify
    cdef double *bounds         # of `certify`
    cdef Size n_bounds
    cdef Real limit
    cdef Size uniforms
    cdef bint extended
    cdef bint keeps_direction
    cdef bint certifies
    cdef double *room           # scratch for contexts of up to `arms` arms
    cdef Size arms
    cdef double *g              # (n,): the direction
    cdef double *wide           # (D + 1,): what an extended model learns
    cdef Linear chosen          # the blocks of the arms that may be chosen
    cdef object own_rule        # a rule from outside the package, or None
    cdef Tree ascent            # of a rule that ascends over mixtures of the arms, or None
    cdef Size steps
    cdef Real rate
    cdef double *ascending

    cdef int make_room(self, Size arms) except -1
    cdef void _gather_blocks(self, const int64_t *places, Size arms) noexcept nogil
    cdef int check_callbacks(self) except -1
    cdef bint _choose(self, const int64_t *places, Head *head, bint certifies) noexcept nogil
    cdef Size _decide(self, Batch *batch) noexcept nogil
    cdef void _open(self, Head *head, Doubles x) noexcept nogil
    cdef void _close(self, Size stage, Head *head, Doubles x) noexcept nogil
    cdef ArmRow _row(self, rows)
    cdef ArmRow _given(self, rows)
    cdef Size _learn(self, Size stage, Head *head, Doubles x, Doubles g, Doubles reward, bint opens) noexcept nogil
    cdef bint _regress(self, Size stage, Size block, Doubles x, Doubles g, Doubles reward) noexcept nogil
    cdef Linear _part(self, Size stage) noexcept nogil
    cdef Size _play_round(self, ArmsEngine by, CompiledArmWorld world, ArmMailbox mailbox, Size s, Round *now) noexcept nogil
    cdef Size _learn_at_once(self, Head *head, Doubles x, Doubles g, Doubles reward) noexcept nogil
    cdef Size _law(self, Size stage, Doubles reward) noexcept nogil
    cdef void _send(self, ArmMailbox mailbox, Size slot, Size s) noexcept nogil
    cdef Size _draw_round(self, ArmsEngine by, CompiledArmWorld world, Round *now) noexcept nogil
