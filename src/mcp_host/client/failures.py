"""Which exception an error response becomes."""

from __future__ import annotations

from mcp_host.client.elicitation import read_elicitations
from mcp_host.errors import ResourceNotFound, ServerError, UrlElicitationRequired
from mcp_host.protocol.codes import RESOURCE_NOT_FOUND, URL_ELICITATION_REQUIRED
from mcp_host.protocol.jsonrpc import Failure


def server_error(method: str, failure: Failure) -> ServerError:
    """The typed error for *failure*, the server's answer to *method*."""
    code, message, data = failure.code, failure.message, failure.data
    if code == RESOURCE_NOT_FOUND and method.startswith("resources/"):
        return ResourceNotFound(code, message, data)
    if code == URL_ELICITATION_REQUIRED:
        return UrlElicitationRequired(code, message, data, read_elicitations(data))
    return ServerError(code, message, data)
