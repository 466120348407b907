"""A test server over Streamable HTTP."""
