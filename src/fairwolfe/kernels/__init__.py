"""Compiled building blocks over plain arrays."""
