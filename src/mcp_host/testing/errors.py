"""The exceptions that functions of a test server raise, and those that its context raises."""

from __future__ import annotations

from typing import Self

from mcp_host.errors import CallerError, EndsLoop, McpError, excerpt
from mcp_host.protocol.jsonrpc import URL_ELICITATION_REQUIRED
from mcp_host.types import ElicitRequestURLParams


class RequestError(EndsLoop):
    """Raise this in any function: the request is answered with this JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data

    @classmethod
    def url_required(cls, message: str, *elicitations: ElicitRequestURLParams) -> Self:
        """The error -32042: the user has to visit these URLs first (revision 2025-11-25)."""
        return cls(URL_ELICITATION_REQUIRED, message, {"elicitations": [wanted.to_wire() for wanted in elicitations]})


class ClientError(McpError):
    """The client answered with an error: *code*, *message* and *data* are the JSON-RPC error's."""

    def __init__(self, method: str, code: int, message: str, data: object = None) -> None:
        super().__init__(f"the client refused {method}: {excerpt(message)} ({code})")
        self.method = method
        self.code = code
        self.message = message
        self.data = data


class CassetteError(CallerError):
    """A cassette cannot be used as it is: a request is not in it, it is missing or broken, or it was not used up."""
