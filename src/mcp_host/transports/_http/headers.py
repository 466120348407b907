"""The headers of Streamable HTTP, and which of them a caller may set."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mcp_host.protocol.headers import MCP_METHOD, MCP_NAME, PARAMETER_PREFIX, PROTOCOL_VERSION, TOKEN
from mcp_host.transports._http.inflate import ACCEPTED

JSON = "application/json"
EVENT_STREAM = "text/event-stream"

SESSION_ID = "Mcp-Session-Id"
LAST_EVENT_ID = "Last-Event-ID"

ALWAYS = {"Accept": f"{JSON}, {EVENT_STREAM}", "Accept-Encoding": ACCEPTED}
POSTED = {"Content-Type": JSON}
WRITTEN_HERE = frozenset(
    name.lower()
    for name in (
        *(*ALWAYS, *POSTED, "Content-Length", "Transfer-Encoding"),
        *(SESSION_ID, PROTOCOL_VERSION, LAST_EVENT_ID, MCP_METHOD, MCP_NAME),
    )
)

# RFC 9110, section 5: a line end in a value would begin a header of somebody else's choosing.
_VALUE = re.compile(r"([!-~]([ \t!-~]*[!-~])?)?")


def checked(headers: Mapping[str, str]) -> dict[str, str]:
    """A copy of a caller's *headers*, fit to be sent. No message quotes a value: it may be a secret.

    Raises:
        ValueError: A name or value cannot be sent, or the transport writes this header itself.
    """
    for name, value in headers.items():
        if not TOKEN.fullmatch(name):
            raise ValueError(f"not a header name: {name!r}")
        if name.lower() in WRITTEN_HERE or name.lower().startswith(PARAMETER_PREFIX.lower()):
            raise ValueError(f"the transport writes the header {name} itself")
        if not _VALUE.fullmatch(value):
            raise ValueError(f"the value of the header {name} is not printable ASCII without space around it")
    return dict(headers)
