"""How a person logs in."""
