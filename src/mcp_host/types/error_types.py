"""The errors that the specification gives a code and a shape. (The exceptions are in `mcp_host.errors`.)"""

from typing import Literal

from mcp_host.types.base import Array, Model
from mcp_host.types.elicitation import ElicitRequestURLParams
from mcp_host.types.envelopes import Error, JSONRPCErrorResponse
from mcp_host.types.lifecycle import ClientCapabilities


class ParseError(Error, since="2026-07-28"):
    """What arrived was no JSON."""

    code: Literal[-32700] = -32700


class InvalidRequestError(Error, since="2026-07-28"):
    """What arrived was no request."""

    code: Literal[-32600] = -32600


class MethodNotFoundError(Error, since="2026-07-28"):
    """There is no such method, or it was never advertised."""

    code: Literal[-32601] = -32601


class InvalidParamsError(Error, since="2026-07-28"):
    """The params are wrong; this is also how 2026-07-28 says that there is no such resource."""

    code: Literal[-32602] = -32602


class InternalError(Error, since="2026-07-28"):
    """Something failed on the other side."""

    code: Literal[-32603] = -32603


class HeaderMismatch(Error, since="2026-07-28"):
    """The error in a `HeaderMismatchError`."""

    code: Literal[-32020] = -32020


class HeaderMismatchError(JSONRPCErrorResponse, since="2026-07-28"):
    """An HTTP header and the body it came with say different things."""

    error: HeaderMismatch


class MissingCapabilities(Model, since="2026-07-28"):
    """What the client would have to declare."""

    required_capabilities: ClientCapabilities


class MissingRequiredClientCapability(Error, since="2026-07-28"):
    """The error in a `MissingRequiredClientCapabilityError`."""

    code: Literal[-32021] = -32021
    data: MissingCapabilities


class MissingRequiredClientCapabilityError(JSONRPCErrorResponse, since="2026-07-28"):
    """The request needs something of the client that it did not declare."""

    error: MissingRequiredClientCapability


class VersionsOffered(Model, since="2026-07-28"):
    """The revision that was asked for, and those the server speaks."""

    requested: str
    supported: Array[str]


class UnsupportedProtocolVersion(Error, since="2026-07-28"):
    """The error in an `UnsupportedProtocolVersionError`."""

    code: Literal[-32022] = -32022
    data: VersionsOffered


class UnsupportedProtocolVersionError(JSONRPCErrorResponse, since="2026-07-28"):
    """The server does not speak the revision that it was addressed in."""

    error: UnsupportedProtocolVersion


class RequiredElicitations(Model, since="2025-11-25", until="2025-11-25"):
    """Where the user has to go first."""

    elicitations: Array[ElicitRequestURLParams]


class URLElicitationRequired(Error, since="2025-11-25", until="2025-11-25"):
    """The error in a `URLElicitationRequiredError`."""

    code: Literal[-32042] = -32042
    data: RequiredElicitations


class URLElicitationRequiredError(JSONRPCErrorResponse, since="2025-11-25", until="2025-11-25"):
    """The user has to visit some URLs before the request can be met."""

    error: URLElicitationRequired
