# Uniform numbers by the number of a decision.
from libc.stdint cimport int64_t, uint64_t

from fairwolfe.kernels.types cimport OutMatrix, Real, Size

# The upper 64 bits of a b, and the lower ones: one instruction, which compilers do not find in
# products by halves.
cdef extern from *:
    """
    #include <stdint.h>
    static inline uint64_t fairwolfe_product(uint64_t a, uint64_t b, uint64_t *low_bits) {
    #ifdef __SIZEOF_INT128__
        unsigned __int128 product = (unsigned __int128)a * b;
        *low_bits = (uint64_t)product;
        return (uint64_t)(product >> 64);
    #else
        uint64_t low = 0xFFFFFFFFu, first = (a & low) * (b & low);
        uint64_t middle = (a >> 32) * (b & low) + (first >> 32);
        uint64_t other = (a & low) * (b >> 32) + (middle & low);
        *low_bits = a * b;
        return (a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32);
    #endif
    }
    """
    uint64_t product "fairwolfe_product"(uint64_t a, uint64_t b, uint64_t *low_bits) noexcept nogil

cdef void numbered_uniforms(uint64_t key, uint64_t other_key, uint64_t number, double *out, Size n) noexcept nogil
