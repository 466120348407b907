"""OAuth's own HTTP requests: how they are sent, and what is found by them."""
