"""The rules of Streamable HTTP for a request: who may send it, its method and media types, and what its headers repeat of its body."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from ipaddress import ip_address
from secrets import compare_digest
from urllib.parse import urlsplit

from mcp_host.errors import quoted
from mcp_host.protocol.eras import NAME_PARAMETER
from mcp_host.protocol.headers import MCP_METHOD, MCP_NAME, PROTOCOL_VERSION, decode_value, parameter_headers
from mcp_host.protocol.jsonrpc import HEADER_MISMATCH, Request
from mcp_host.serving.errors import RequestError
from mcp_host.serving.http.asgi import EVENTS, JSON, HttpError, HttpExchange
from mcp_host.types import JSONObject

METHODS = ("GET", "POST", "DELETE")
LOCAL = ("127.0.0.1", "localhost", "::1")

ACCEPT = {"POST": (JSON, EVENTS), "GET": (EVENTS,), "DELETE": ()}
""" "The client MUST include an Accept header, listing" these."""

WHOLE = re.compile(r"(-?\d{1,16})\.0+")

TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1
CHALLENGE = 'Bearer realm="mcp"'  # a scheme "MUST be followed by one or more auth-param values" (section 3)

Headers = Mapping[str, str]  # names in lower case


class Access:
    """Which requests are let in.

    With a *token*, those that send it as a bearer token. Of *hosts*, the header Host has to name one, or this machine:
    a web page whose name is made to lead to a local server (DNS rebinding) names itself. With None, it may name any.
    A web page may use the server if it is of one of *hosts*, or of this machine. All are names or addresses, without ports.

    Raises:
        ValueError: *token* cannot be sent as a bearer token.
    """

    def __init__(self, token: str | None = None, hosts: Collection[str] | None = None) -> None:
        if token is not None and not TOKEN.fullmatch(token):
            raise ValueError("a bearer token has only letters, digits and -._~+/ in it, and perhaps = at its end")
        self._token = token
        self._any_host = hosts is None
        self._hosts = {*LOCAL, *(host.lower() for host in hosts or ())}

    def check(self, headers: Headers) -> None:
        """Check the headers of a request.

        Raises:
            HttpError: It is not let in.
        """
        if not self._any_host and _hostname(f"//{headers.get('host', '')}") not in self._hosts:
            raise HttpError(421, "this server is not the one that Host names")
        origin = headers.get("origin")  # sent by browsers
        if origin is not None and _hostname(origin) not in self._hosts:
            raise HttpError(403, "this origin is not allowed")  # "Servers MUST validate the Origin header"
        if self._token is None:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise HttpError(401, "a bearer token is needed", www_authenticate=CHALLENGE)
        if not compare_digest(given.strip().encode(), self._token.encode()):
            raise HttpError(401, "the bearer token is wrong", www_authenticate=f'{CHALLENGE}, error="invalid_token"')


def hosts_at(host: str, address: str) -> tuple[str, ...] | None:
    """The hosts of an `Access` for a server at *host* that listens at *address*: any, if that is every address."""
    return None if ip_address(address).is_unspecified else (host, address)


def is_exposed(address: str) -> bool:
    """Whether other machines can connect to a server that listens at *address*."""
    return not ip_address(address).is_loopback


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:  # such as a bracket that is not closed
        return None


def check_request(http: HttpExchange, path: str, access: Access, methods: Sequence[str]) -> None:
    """Check what can be checked before the body is read.

    Raises:
        HttpError: The request breaks a rule.
    """
    if http.path != path:
        raise HttpError(404, f"there is nothing at {http.path}")
    access.check(http.headers)
    if http.method not in methods:
        raise HttpError(405, f"not {http.method}", allow=", ".join(methods))
    accepted = [_media_type(item) for item in http.headers.get("accept", "").split(",")]
    if not all({kind, f"{kind.partition('/')[0]}/*", "*/*"} & {*accepted} for kind in ACCEPT[http.method]):
        raise HttpError(406, f"the client has to accept {' and '.join(ACCEPT[http.method])}")
    if http.method == "POST" and _media_type(http.headers.get("content-type", "")) != JSON:
        raise HttpError(415, f"the body has to be {JSON}")


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
