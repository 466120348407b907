"""A proxy between a host and a server: it answers what the host cannot, bridges revisions, and passes on everything else.

`Proxy` is what applications hold. A `Relay` is the server as one host sees it, served by `mcp_host.serving`; an
`Upstream` is its connection to the real server, and `Answers` are those of the host, or of the proxy, to what that asks.
`translation` has the differences between the two sides, and is pure. A `Router` has one `Relay` for each of several servers.
"""

from mcp_host.proxy.approval import allow_tools, ask_host
from mcp_host.proxy.proxy import Proxy

__all__ = ["Proxy", "allow_tools", "ask_host"]
