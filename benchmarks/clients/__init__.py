"""One adapter for each client, all with the same interface. Each runs in its own environment."""
