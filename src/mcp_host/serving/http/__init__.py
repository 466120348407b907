"""A server over Streamable HTTP."""
