"""What a function of a test server may raise, and what its context raises."""

from __future__ import annotations

from typing import Any, Self

from mcp_host.errors import McpError, excerpt
from mcp_host.protocol.jsonrpc import URL_ELICITATION_REQUIRED
from mcp_host.types import ElicitRequestURLParams


class ToolError(McpError):
    """Raise this in a tool: its text becomes the text of a result with *is_error* set.

    Any other exception is reported to the client without its text, and logged here.
    """


class RequestError(McpError):
    """Raise this anywhere: the request is answered with a JSON-RPC error instead of a result."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data

    @classmethod
    def url_required(cls, message: str, *elicitations: ElicitRequestURLParams) -> Self:
        """The error -32042: the user has to visit these URLs first (revision 2025-11-25)."""
        return cls(URL_ELICITATION_REQUIRED, message, {"elicitations": [wanted.to_wire() for wanted in elicitations]})


class NotDeclared(McpError):
    """The client did not declare the capability that this takes, so it was not asked.

    `Context.request` asks all the same. A tool that does not catch this ends with an error
    result, and since revision 2026-07-28 its request with the error -32021.
    """

    def __init__(self, *capability: str) -> None:
        super().__init__(f"the client did not declare {'.'.join(capability)}")
        self.capability = capability

    @property
    def required(self) -> dict[str, Any]:
        """The capability as a client would declare it."""
        declared: dict[str, Any] = {}
        for name in reversed(self.capability):
            declared = {name: declared}
        return declared


class ClientError(McpError):
    """The client answered with an error: *code*, *message* and *data* are the JSON-RPC error's."""

    def __init__(self, method: str, code: int, message: str, data: object = None) -> None:
        super().__init__(f"the client refused {method}: {excerpt(message)} ({code})")
        self.method = method
        self.code = code
        self.message = message
        self.data = data
