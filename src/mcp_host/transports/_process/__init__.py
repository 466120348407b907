"""Child processes, beneath `mcp_host.transports.stdio`."""
