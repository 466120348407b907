"""Recordings of the MCP wire and of a provider's HTTP, in one file."""
