"""One adapter for each client that is measured, all with the same interface; each runs in an environment of its own."""
