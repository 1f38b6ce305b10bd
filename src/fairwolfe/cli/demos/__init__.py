"""What `fairwolfe demo` runs."""
