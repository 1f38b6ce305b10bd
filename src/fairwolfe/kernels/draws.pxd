# Uniform numbers by the number of a decision.
from libc.stdint cimport uint64_t

from fairwolfe.kernels.types cimport Size

cdef void numbered_uniforms(uint64_t key, uint64_t other_key, uint64_t number, double *out, Size n) noexcept nogil
