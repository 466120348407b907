"""Servers without an SDK, lean enough that the client is what takes the time."""
