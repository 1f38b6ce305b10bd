from fairwolfe.kernels.types cimport In, Out, Real, Size

cdef void add_scaled(Real scale, In x, Out out, Size n) noexcept nogil
