"""The rules of the protocol: pure code, no I/O."""
