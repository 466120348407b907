"""A check-up for hosts: an MCP server that checks the host it runs under.

`Doctor` is what applications hold. `exchanges` says what it sends, `checks` which rules of the specification each
exchange shows, and `judges` decides on what was seen: these are data, and pure. `checkup` carries the exchanges out,
and `report` writes what came of it.
"""

from mcp_host.doctor.doctor import Doctor

__all__ = ["Doctor"]
