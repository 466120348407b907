"""The errors for headers that do not match the body."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_host.protocol.jsonrpc import Request
from mcp_host.serving.errors import RequestError
from mcp_host.serving.http.rules import check_headers

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry"},
        "deep": {"type": "object", "properties": {"er": {"type": "string", "x-mcp-header": "Deeper"}}},
        "plain": {"type": "string"},
    },
}
INVALID: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}
VERSION = "2026-07-28"
SIGNED = {"mcp-protocol-version": VERSION}
CALL = {**SIGNED, "mcp-method": "tools/call", "mcp-name": "t"}


def problem(
    headers: dict[str, str], request: Request, schema: dict[str, Any] | None = None, version: str | None = VERSION
) -> str | None:
    """The text of the error, which is always a HeaderMismatch."""
    try:
        check_headers(headers, request, version, schema)
    except RequestError as exc:
        return str(exc).removeprefix("Header mismatch: ").removesuffix(" (-32020)")
    return None


def call(**arguments: object) -> Request:
    return Request(1, "tools/call", {"name": "t", "arguments": arguments})


VERSIONS: list[tuple[dict[str, str], str | None, str | None]] = [
    ({"mcp-protocol-version": "2026-07-28"}, "2026-07-28", None),
    ({"mcp-protocol-version": "2026-07-28"}, None, None),  # whose problem is another
    ({}, "2026-07-28", "MCP-Protocol-Version is missing"),
    ({}, None, "MCP-Protocol-Version is missing"),
    (
        {"mcp-protocol-version": "2025-11-25"},
        "2026-07-28",
        "MCP-Protocol-Version is '2025-11-25', but the body has '2026-07-28'",
    ),
    (
        {"mcp-protocol-version": "=?base64?MjAyNi0wNy0yOA==?="},
        "2026-07-28",
        "MCP-Protocol-Version is '=?base64?MjAyNi0wNy0yOA==?=', but the body has '2026-07-28'",
    ),
]


def test_the_version_header_must_match_the_body(subtests: pytest.Subtests) -> None:
    for headers, version, said in VERSIONS:
        with subtests.test(f"{headers} {version}"):
            assert problem({**headers, "mcp-method": "ping"}, Request(1, "ping", {}), version=version) == said


NAMES: list[tuple[Request, dict[str, str], str | None]] = [
    (Request(1, "tools/list", {}), {"mcp-method": "tools/list"}, None),
    (Request(1, "tools/list", {}), {}, "Mcp-Method is missing"),
    (
        Request(1, "tools/list", {}),
        {"mcp-method": "tools/List"},
        "Mcp-Method is 'tools/List', but the body has 'tools/list'",
    ),
    (call(), CALL, None),
    (call(), {"mcp-method": "tools/call"}, "Mcp-Name is missing"),
    (call(), {**CALL, "mcp-name": "T"}, "Mcp-Name is 'T', but the body has 't'"),
    (call(), {**CALL, "mcp-name": "=?base64?dA==?="}, None),
    (call(), {**CALL, "mcp-name": "=?base64?!?="}, "Mcp-Name is malformed: '=?base64?!?='"),
    (Request(1, "tools/call", {}), CALL, None),  # whose problem is another
    (Request(1, "tools/call", {"name": "t", "arguments": []}), CALL, None),
    (
        Request(1, "resources/read", {"uri": "r://é"}),
        {"mcp-method": "resources/read", "mcp-name": "=?base64?cjovL8OpCg==?="},
        "Mcp-Name is 'r://é\\n', but the body has 'r://é'",
    ),
    (
        Request(1, "resources/read", {"uri": "r://é"}),
        {"mcp-method": "resources/read", "mcp-name": "=?base64?cjovL8Op?="},
        None,
    ),
    (Request(1, "prompts/get", {"name": "p"}), {"mcp-method": "prompts/get"}, "Mcp-Name is missing"),
]


def test_method_and_name_headers_must_match_the_body(subtests: pytest.Subtests) -> None:
    for request_, headers, said in NAMES:
        with subtests.test(f"{request_} {headers}"):
            assert problem({**SIGNED, **headers}, request_) == said


PARAMETERS: list[tuple[dict[str, object], dict[str, str], str | None]] = [
    ({}, {}, None),
    ({"region": None, "plain": "x"}, {}, None),
    ({"region": "eu"}, {"region": "eu"}, None),
    ({"region": "eu"}, {}, "Mcp-Param-Region is missing"),
    ({"region": "eu"}, {"region": "us"}, "Mcp-Param-Region is 'us', but the body has 'eu'"),
    ({"region": "ü"}, {"region": "=?base64?w7w=?="}, None),
    ({"region": "ü"}, {"region": "=?base64?w7w?="}, "Mcp-Param-Region is malformed: '=?base64?w7w?='"),
    ({"region": "ü"}, {"region": "ü"}, "Mcp-Param-Region is malformed: 'ü'"),
    ({}, {"region": "eu"}, "Mcp-Param-Region repeats what the body does not have"),
    ({"region": None}, {"region": "null"}, "Mcp-Param-Region repeats what the body does not have"),
    ({"count": 42}, {"count": "42"}, None),
    ({"count": 42}, {"count": "42.0"}, None),
    ({"count": 42.0}, {"count": "42"}, None),
    ({"count": -7}, {"count": "-7"}, None),
    ({"count": 42}, {"count": "42.5"}, "Mcp-Param-Count is '42.5', but the body has '42'"),
    ({"count": 42}, {"count": "4_2"}, "Mcp-Param-Count is '4_2', but the body has '42'"),
    ({"region": "42"}, {"region": "42.0"}, "Mcp-Param-Region is '42.0', but the body has '42'"),
    ({"dry": True}, {"dry": "true"}, None),
    ({"dry": True}, {"dry": "True"}, "Mcp-Param-Dry is 'True', but the body has 'true'"),
    (
        {"count": 2**53},
        {"count": str(2**53)},
        "the number for Mcp-Param-Count is not within -(2**53 - 1) and 2**53 - 1",
    ),
    ({"deep": {"er": "x"}}, {"deeper": "x"}, None),
    ({"deep": {"er": "x"}}, {"deeper": "y"}, "Mcp-Param-Deeper is 'y', but the body has 'x'"),
    ({"plain": "x"}, {"plain": "y"}, None),
]


def test_parameter_headers_must_match_the_body(subtests: pytest.Subtests) -> None:
    for arguments, headers, said in PARAMETERS:
        with subtests.test(f"{arguments} {headers}"):
            given = CALL | {f"mcp-param-{name}": value for name, value in headers.items()}

            assert problem(given, call(**arguments), SCHEMA) == said


def test_a_tool_with_invalid_annotations_needs_no_parameter_headers() -> None:
    assert problem(CALL, call(a=1.5), INVALID) is None
