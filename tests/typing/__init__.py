"""What a type checker takes and what it refuses. `make types` checks these modules; nothing runs them.

An error that has to be there is marked with ``# type: ignore[code]``: where it is not, the mark itself is an error.
"""
