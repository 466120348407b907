"""Which exception an error response becomes."""

from __future__ import annotations

from mcp_host.errors import (
    HeaderMismatch,
    HttpStatusError,
    MissingRequiredClientCapability,
    ResourceNotFound,
    ServerError,
    Unauthorized,
    UnsupportedProtocolVersion,
    UrlElicitationRequired,
)
from mcp_host.protocol.jsonrpc import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    URL_ELICITATION_REQUIRED,
    Failure,
    Params,
)


def server_error(method: str, params: Params, failure: Failure) -> ServerError:
    """The typed error for *failure*, the server's answer to a request."""
    code, message, data = failure.code, failure.message, failure.data
    if method.startswith("resources/") and _names_no_resource(failure, params):
        return ResourceNotFound(code, message, data)
    if code == URL_ELICITATION_REQUIRED:
        from mcp_host.elicitation import read_elicitations  # a tenth of what starting takes, for one rare error

        return UrlElicitationRequired(code, message, data, read_elicitations(data))
    if code == HEADER_MISMATCH:
        return HeaderMismatch(code, message, data)
    if code == MISSING_REQUIRED_CLIENT_CAPABILITY:
        return MissingRequiredClientCapability(code, message, data, _required(data))
    if code == UNSUPPORTED_PROTOCOL_VERSION:
        return UnsupportedProtocolVersion(code, message, data, _supported(data))
    return ServerError(code, message, data)


def refined(method: str, params: Params, error: HttpStatusError) -> ServerError:
    """The typed error for an HTTP status whose body is a JSON-RPC error, if that says more; else *error* itself."""
    if error.code is None or isinstance(error, Unauthorized):
        return error
    typed = server_error(method, params, Failure(None, error.code, error.rpc_message or error.message, error.data))
    return error if type(typed) is ServerError else typed


def _names_no_resource(failure: Failure, params: Params) -> bool:
    """By the code of 2025-11-25, or as later revisions say it: invalid params, with the URI that is not there."""
    if failure.code == RESOURCE_NOT_FOUND:
        return True
    named = failure.data.get("uri") if isinstance(failure.data, dict) else None
    return failure.code == INVALID_PARAMS and named is not None and named == params.get("uri")


def _required(data: object) -> dict[str, object]:
    required = data.get("requiredCapabilities") if isinstance(data, dict) else None
    return required if isinstance(required, dict) else {}


def _supported(data: object) -> list[str]:
    supported = data.get("supported") if isinstance(data, dict) else None
    return [version for version in supported if isinstance(version, str)] if isinstance(supported, list) else []
