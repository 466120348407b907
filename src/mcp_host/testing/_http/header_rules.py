"""What the headers of an HTTP request in revision 2026-07-28 have to repeat of its body.

"Servers MUST reject requests where the values specified in the headers do not match the
corresponding values in the request body" (basic/transports/streamable-http).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mcp_host.errors import quoted
from mcp_host.protocol.eras import NAME_PARAMETER
from mcp_host.protocol.headers import (
    MCP_METHOD,
    MCP_NAME,
    PROTOCOL_VERSION,
    ParameterHeader,
    decode_value,
    parameter_headers,
)
from mcp_host.protocol.jsonrpc import Params, Request
from mcp_host.types import JSONObject

WHOLE = re.compile(r"(-?\d{1,16})(?:\.0+)?")

Headers = Mapping[str, str]  # names in lower case


def version_problem(headers: Headers, version: object) -> str | None:
    """What is wrong with the header that repeats the *version* of the body, if that has one."""
    return _problem(headers, PROTOCOL_VERSION, version)


def problem(headers: Headers, request: Request, input_schema: JSONObject | None) -> str | None:
    """What is wrong with the other headers, if anything. *input_schema* is that of the tool that is called."""
    if found := _problem(headers, MCP_METHOD, request.method):
        return found
    if (key := NAME_PARAMETER.get(request.method)) and (found := _problem(headers, MCP_NAME, request.params.get(key))):
        return found
    arguments = request.params.get("arguments")
    given = arguments if isinstance(arguments, dict) else {}
    problems = (_parameter_problem(headers, repeated, given) for repeated in _repeated(input_schema))
    return next(filter(None, problems), None)


def _problem(headers: Headers, name: str, value: object) -> str | None:
    header = headers.get(name.lower())
    if header is None:
        return f"Header mismatch: {name} is missing"
    text = decode_value(header) if name == MCP_NAME else header
    if text is None:
        return f"Header mismatch: {name} is malformed: {quoted(header)}"
    if isinstance(value, str) and text != value:  # a body without a text there has a problem of its own
        return f"Header mismatch: {name} is {quoted(text)}, and the body says {quoted(value)}"
    return None


def _repeated(input_schema: JSONObject | None) -> tuple[ParameterHeader, ...]:
    """The parameters to be repeated; none of a tool that no client over HTTP may call."""
    try:
        return parameter_headers(input_schema or {})
    except ValueError:
        return ()


def _parameter_problem(headers: Headers, repeated: ParameterHeader, arguments: Params) -> str | None:
    name, header = repeated.header, headers.get(repeated.header.lower())
    try:
        expected = repeated.value(arguments)
    except ValueError as exc:
        return f"Header mismatch: {exc}"
    if expected is None:
        return None if header is None else f"Header mismatch: {name} repeats what the body does not have"
    if header is None:
        return f"Header mismatch: {name} is missing"
    text, wanted = decode_value(header), decode_value(expected)
    if text is None:
        return f"Header mismatch: {name} is malformed: {quoted(header)}"
    if text == wanted or _same_number(text, _at(repeated, arguments)):
        return None
    return f"Header mismatch: {name} is {quoted(text)}, and the body says {quoted(wanted)}"


def _same_number(text: str, value: object) -> bool:
    """ "Servers SHOULD compare the header value and the body value numerically [...] (e.g., `42.0` and `42`)"."""
    whole = WHOLE.fullmatch(text)
    return whole is not None and isinstance(value, int | float) and int(whole[1]) == value


def _at(repeated: ParameterHeader, arguments: Params) -> object:
    found: object = arguments
    for name in repeated.path:
        found = found[name] if isinstance(found, dict) else None
    return found
