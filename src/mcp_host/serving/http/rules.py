"""The rules of Streamable HTTP for a request: its method and media types, and what its headers repeat of its body."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mcp_host.errors import quoted
from mcp_host.protocol.eras import NAME_PARAMETER
from mcp_host.protocol.headers import MCP_METHOD, MCP_NAME, PROTOCOL_VERSION, decode_value, parameter_headers
from mcp_host.protocol.jsonrpc import HEADER_MISMATCH, Request
from mcp_host.serving.errors import RequestError
from mcp_host.serving.http.access import Access
from mcp_host.serving.http.asgi import EVENTS, JSON, HttpError, HttpExchange, Principal
from mcp_host.types import JSONObject

METHODS = ("GET", "POST", "DELETE")

ACCEPT = {"POST": (JSON, EVENTS), "GET": (EVENTS,), "DELETE": ()}
""" "The client MUST include an Accept header, listing" these."""

WHOLE = re.compile(r"(-?\d{1,16})\.0+")

Headers = Mapping[str, str]  # names in lower case


async def check_request(http: HttpExchange, path: str, access: Access, methods: Sequence[str]) -> Principal:
    """Check what can be checked before the body is read. Returns who has sent it.

    Raises:
        HttpError: The request breaks a rule.
    """
    if http.path != path:
        raise HttpError(404, f"there is nothing at {http.path}")
    principal = await access.check(http.headers)
    if http.method not in methods:
        raise HttpError(405, f"not {http.method}", allow=", ".join(methods))
    accepted = [_media_type(item) for item in http.headers.get("accept", "").split(",")]
    if not all({kind, f"{kind.partition('/')[0]}/*", "*/*"} & {*accepted} for kind in ACCEPT[http.method]):
        raise HttpError(406, f"the client has to accept {' and '.join(ACCEPT[http.method])}")
    if http.method == "POST" and _media_type(http.headers.get("content-type", "")) != JSON:
        raise HttpError(415, f"the body has to be {JSON}")
    return principal


def _media_type(item: str) -> str:
    return item.partition(";")[0].strip().lower()


def check_headers(headers: Headers, request: Request, version: object, input_schema: JSONObject | None) -> None:
    """Compare the headers with the body: the *version* that it names, the method, the name and annotated parameters.

    *input_schema* is that of the called tool. A value of another type than text is compared with nothing:
    it is an error by itself.

    "Servers MUST reject requests where the values specified in the headers do not match the
    corresponding values in the request body" (2026-07-28, basic/transports/streamable-http).

    Raises:
        RequestError: HEADER_MISMATCH.
    """
    _compare(headers, PROTOCOL_VERSION, version)
    _compare(headers, MCP_METHOD, request.method)
    if key := NAME_PARAMETER.get(request.method):
        _compare(headers, MCP_NAME, request.params.get(key))
    try:
        annotated = parameter_headers(input_schema or {})
    except ValueError:
        annotated = ()  # clients over HTTP exclude such a tool, so nothing is repeated
    given = request.params.get("arguments")
    arguments = given if isinstance(given, dict) else {}
    for parameter in annotated:
        try:
            expected = parameter.value(arguments)
        except ValueError as exc:
            raise _mismatch(str(exc)) from None
        if expected is not None:
            whole = WHOLE.fullmatch(headers.get(parameter.header.lower(), ""))
            if whole and whole[1] == expected and not isinstance(parameter.find(arguments), str):
                continue  # "Servers SHOULD compare the header value and the body value numerically" (42.0 and 42)
            _compare(headers, parameter.header, decode_value(expected))
        elif parameter.header.lower() in headers:
            raise _mismatch(f"{parameter.header} repeats what the body does not have")


def _compare(headers: Headers, name: str, value: object) -> None:
    header = headers.get(name.lower())
    if header is None:
        raise _mismatch(f"{name} is missing")
    text = header if name in (PROTOCOL_VERSION, MCP_METHOD) else decode_value(header)
    if text is None:
        raise _mismatch(f"{name} is malformed: {quoted(header)}")
    if isinstance(value, str) and text != value:
        raise _mismatch(f"{name} is {quoted(text)}, but the body has {quoted(value)}")


def _mismatch(problem: str) -> RequestError:
    return RequestError(HEADER_MISMATCH, f"Header mismatch: {problem}")
