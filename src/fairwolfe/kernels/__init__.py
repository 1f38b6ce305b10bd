"""Compiled building blocks over plain arrays."""

from fairwolfe.kernels.loading import install

install()
