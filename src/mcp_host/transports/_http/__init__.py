"""Streamable HTTP, beneath `mcp_host.transports.http`."""
