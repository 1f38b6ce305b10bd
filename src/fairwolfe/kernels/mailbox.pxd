from libc.stdint cimport int64_t
from libc.string cimport memcpy

from fairwolfe.kernels.types cimport IntMatrix, OutIntMatrix, OutIntVector, Size

# Copy n words of 8 bytes to a buffer, or back.
cdef inline void copy_words(void *words, void *buffer, Size n, bint back) noexcept nogil:
    if back:
        memcpy(words, buffer, 8 * n)
    else:
        memcpy(buffer, words, 8 * n)

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
    cdef readonly Size laws         # delays of a round: 2 for each stage of an answer
    cdef const int64_t *delays      # (rounds, laws)

    cdef Size take_slot(self) noexcept nogil
    cdef void give_back(self, Size slot) noexcept nogil
    cdef void send(self, Size slot, Size s, int64_t late) noexcept nogil
    cdef Size arrived(self, Size s) noexcept nogil
    cdef Size n_numbers(self) noexcept nogil
    cdef void copy_slots(self, int64_t *buffer, bint back) noexcept nogil
