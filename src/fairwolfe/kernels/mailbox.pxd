from libc.stdint cimport int64_t

from fairwolfe.kernels.types cimport Size

cdef class Mailbox:
    cdef object arrays              # keeps the memory below alive
    cdef readonly Size capacity     # slots
    cdef Size length                # of the ring, in rounds
    cdef Size n_free
    cdef int64_t done               # rounds played before those of `delays`
    cdef int64_t *first             # (length,): the first and the last slot by round of arrival
    cdef int64_t *last
    cdef int64_t *after             # (capacity,): the next slot of the same round
    cdef int64_t *free              # (capacity,): a stack
    cdef const int64_t *delays      # (rounds, 2)

    cdef Size take_slot(self) noexcept nogil
    cdef void give_back(self, Size slot) noexcept nogil
    cdef void send(self, Size slot, Size s, Size clicked) noexcept nogil
    cdef Size arrived(self, Size s) noexcept nogil
    cdef Size n_numbers(self) noexcept nogil
    cdef void save(self, int64_t *to) noexcept nogil
    cdef void restore(self, const int64_t *saved) noexcept nogil
