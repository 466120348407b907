"""What a type checker takes and what it refuses. `make types` checks these modules with mypy and Pyright; nothing runs them.

An error that has to be there is marked with ``# type: ignore[code]`` (mypy's code, Pyright reads none): where it is not,
the mark itself is an error.
"""
