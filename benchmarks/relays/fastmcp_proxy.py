"""fastmcp's proxy, as its documentation uses it."""

from __future__ import annotations

import sys

from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    create_proxy(StdioTransport(command, arguments)).run(show_banner=False, log_level="ERROR")
