"""Which exception an error response becomes."""

from __future__ import annotations

from mcp_host.client.elicitation import read_elicitations
from mcp_host.errors import ResourceNotFound, ServerError, UrlElicitationRequired
from mcp_host.protocol.codes import RESOURCE_NOT_FOUND, URL_ELICITATION_REQUIRED
from mcp_host.protocol.jsonrpc import INVALID_PARAMS, Failure, Params


def server_error(method: str, params: Params, failure: Failure) -> ServerError:
    """The typed error for *failure*, the server's answer to a request."""
    code, message, data = failure.code, failure.message, failure.data
    if method.startswith("resources/") and _names_no_resource(failure, params):
        return ResourceNotFound(code, message, data)
    if code == URL_ELICITATION_REQUIRED:
        return UrlElicitationRequired(code, message, data, read_elicitations(data))
    return ServerError(code, message, data)


def _names_no_resource(failure: Failure, params: Params) -> bool:
    """By its own code, or as the SDKs of others say it already: invalid params, with the URI that is not there."""
    if failure.code == RESOURCE_NOT_FOUND:
        return True
    named = failure.data.get("uri") if isinstance(failure.data, dict) else None
    return failure.code == INVALID_PARAMS and named is not None and named == params.get("uri")
