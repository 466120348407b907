"""One client's conversation with one server."""
