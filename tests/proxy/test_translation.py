"""What differs between the two sides, as tables."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from mcp_host.errors import ConnectionClosed, HttpStatusError, McpError, NotAdvertised, ResourceNotFound, ServerError
from mcp_host.proxy.translation import (
    amount_of,
    capabilities_downstream,
    capabilities_of_all,
    error_downstream,
    host_answers,
    params_upstream,
    result_downstream,
)
from mcp_host.types import ClientCapabilities

M = "io.modelcontextprotocol/"

PARAMS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"a": 1}, {"a": 1}),
    ({"a": 1, "_meta": []}, {"a": 1, "_meta": []}),
    ({"a": 1, "_meta": {"progressToken": 3}}, {"a": 1}),
    (
        {"_meta": {f"{M}protocolVersion": "1", f"{M}clientInfo": {}, f"{M}clientCapabilities": {}, "x/y": 1}},
        {"_meta": {"x/y": 1}},
    ),
    (
        {"_meta": {"traceparent": "00-1", f"{M}logLevel": "info"}},
        {"_meta": {"traceparent": "00-1", f"{M}logLevel": "info"}},
    ),
]


def test_what_belongs_to_one_connection_is_not_passed_on(subtests: pytest.Subtests) -> None:
    for given, passed in PARAMS:
        with subtests.test(given=given):
            assert params_upstream(given) == passed


NEW = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
DEEP: list[Any] = json.loads("[" * 300 + "]" * 300)
OBJECTS = {"name": "a", "outputSchema": {"type": "object"}, "x": 1}
RESULTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("x/y", {"a": 1, "_meta": {"b": 2}}, {"a": 1, "_meta": {"b": 2}}),
    ("x/y", {"a": 1, **NEW}, {"a": 1}),
    ("x/y", {"a": 1, **NEW, "_meta": {f"{M}serverInfo": {}, "b": 2}}, {"a": 1, "_meta": {"b": 2}}),
    ("x/y", {"a": 1, **NEW, "_meta": {f"{M}serverInfo": {}}}, {"a": 1}),
    ("x/y", {**NEW, "_meta": {"b": 2}}, {"_meta": {"b": 2}}),
    ("x/y", {"structuredContent": [1], "tools": [{"outputSchema": 1}]}, {"structuredContent": [1], "tools": [{"outputSchema": 1}]}),
    ("tools/list", {"tools": [OBJECTS, {"name": "b"}, 5]}, {"tools": [OBJECTS, {"name": "b"}, 5]}),
    ("tools/list", {"tools": [{"name": "a", "outputSchema": {"type": "array"}}]}, {"tools": [{"name": "a"}]}),
    ("tools/list", {"tools": [{"name": "a", "outputSchema": True}]}, {"tools": [{"name": "a"}]}),
    ("tools/list", {"tools": 5}, {"tools": 5}),
    ("tools/call", {"content": [], "structuredContent": {"a": 1}}, {"content": [], "structuredContent": {"a": 1}}),
    ("tools/call", {"content": []}, {"content": []}),
    ("tools/call", {"content": [{"type": "x"}], "structuredContent": [1]}, {"content": [{"type": "x"}]}),
    ("tools/call", {"content": [], "structuredContent": None}, {"content": [{"type": "text", "text": "null"}]}),
    ("tools/call", {"structuredContent": [1, "é"]}, {"content": [{"type": "text", "text": '[1,"é"]'}]}),
    ("tools/call", {"structuredContent": [math.inf]}, {"structuredContent": [math.inf]}),
    ("tools/call", {"structuredContent": DEEP}, {"structuredContent": DEEP}),
]  # fmt: skip


def test_a_host_with_a_handshake_gets_results_without_what_came_in_2026(subtests: pytest.Subtests) -> None:
    """Structured content and output schemas of other types than objects, which older schemas refuse, among it."""
    for method, given, passed in RESULTS:
        with subtests.test(method, given=given):
            assert result_downstream(method, given) == passed


def test_how_far_a_server_is_may_be_text() -> None:
    amounts = [amount_of({"progress": amount}) for amount in (1, 0.5, "1.5", "-2", 10**400)]
    assert amounts == [1, 0.5, 1.5, -2, 10**400]


ERRORS: list[tuple[McpError, bool, tuple[int, str, object]]] = [
    (ServerError(-31999, "no", {"a": 1}), True, (-31999, "no", {"a": 1})),
    (ServerError(-32002, "gone", {"uri": "x"}), False, (-32002, "gone", {"uri": "x"})),
    (ServerError(-32002, "gone", {"uri": "x"}), True, (-32602, "gone", {"uri": "x"})),
    (ResourceNotFound(-32602, "gone", {"uri": "x"}), True, (-32602, "gone", {"uri": "x"})),
    (ResourceNotFound(-32602, "gone", {"uri": "x"}), False, (-32002, "gone", {"uri": "x"})),
    (ServerError(-32602, "wrong"), False, (-32602, "wrong", None)),
    (ServerError(-32021, "needs sampling", {"a": 1}), True, (-32021, "needs sampling", {"a": 1})),
    (ServerError(-32021, "needs sampling", {"a": 1}), False, (-32603, "needs sampling (-32021)", None)),
    (ServerError(-32022, "too new", {}), True, (-32603, "too new (-32022)", None)),
    (HttpStatusError(503, "HTTP 503 from http://a/"), False, (-32603, "HTTP 503 from http://a/", None)),
    (NotAdvertised("prompts: not advertised"), False, (-32601, "prompts: not advertised", None)),
    (ConnectionClosed("it ended"), True, (-32603, "it ended", None)),
]


def test_errors(subtests: pytest.Subtests) -> None:
    for error, stateless, (code, message, data) in ERRORS:
        with subtests.test(error=error, stateless=stateless):
            passed = error_downstream(error, stateless=stateless)
            assert (passed.code, passed.message, passed.data) == (code, message, data)


DECLARED: list[tuple[dict[str, Any], str, dict[str, Any], bool]] = [
    ({}, "sampling/createMessage", {}, False),
    ({"sampling": {}}, "sampling/createMessage", {}, True),
    ({"sampling": {}}, "sampling/createMessage", {"tools": []}, False),
    ({"sampling": {}}, "sampling/createMessage", {"toolChoice": {}}, False),
    ({"sampling": {"tools": {}}}, "sampling/createMessage", {"tools": []}, True),
    ({}, "elicitation/create", {}, False),
    ({}, "elicitation/create", {"mode": "url"}, False),
    ({"elicitation": {}}, "elicitation/create", {}, True),
    ({"elicitation": {}}, "elicitation/create", {"mode": "url"}, False),
    ({"elicitation": {"url": {}}}, "elicitation/create", {"mode": "url"}, True),
    ({"elicitation": {"url": {}}}, "elicitation/create", {"mode": "form"}, False),
    ({"elicitation": {"form": {}, "url": {}}}, "elicitation/create", {"mode": "form"}, True),
    ({}, "roots/list", {}, False),
    ({"roots": {}}, "roots/list", {}, True),
    ({}, "x/y", {}, True),
]


def test_what_a_host_answers(subtests: pytest.Subtests) -> None:
    for capabilities, method, params, answers in DECLARED:
        with subtests.test(capabilities=capabilities, method=method, params=params):
            assert host_answers(method, params, ClientCapabilities.from_wire(capabilities)) is answers


OF_SERVER: list[tuple[dict[str, Any], bool, bool, dict[str, Any]]] = [
    ({"tools": {}, "tasks": {}}, False, False, {"tools": {}, "tasks": {}}),
    ({"tools": {}, "tasks": {}}, False, True, {"tools": {}}),
    ({"tools": {}, "x": 1}, True, True, {"tools": {}, "x": 1}),
    ({"extensions": {f"{M}tasks": {}, f"{M}ui": {}}}, True, True, {"extensions": {f"{M}ui": {}}}),
]


def test_what_a_host_sees_of_the_servers_capabilities(subtests: pytest.Subtests) -> None:
    for capabilities, stateless, host_stateless, seen in OF_SERVER:
        with subtests.test(capabilities=capabilities, host_stateless=host_stateless):
            assert capabilities_downstream(capabilities, stateless=stateless, host_stateless=host_stateless) == seen


OF_ALL: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
    ([], {}),
    ([{"tools": {}}, {}], {"tools": {}}),
    (
        [{"tools": {"listChanged": True}, "logging": {}}, {"tools": {"listChanged": False}, "prompts": {}}],
        {"tools": {"listChanged": True}, "logging": {}, "prompts": {}},
    ),
    ([{"resources": {}}, {"resources": {"subscribe": True}}], {"resources": {"subscribe": True}}),
    ([{"extensions": {"x": 1, "y": 1}}, {"extensions": {"y": 2}}], {"extensions": {"x": 1, "y": 1}}),
    ([{"tools": {}, "tasks": {}}, {"tools": {}}], {"tools": {}, "tasks": {}}),
    ([{"tools": {}, "tasks": {}}, {"tasks": {}}], {"tools": {}}),
]


def test_what_a_host_sees_of_the_capabilities_of_several_servers(subtests: pytest.Subtests) -> None:
    for declared, seen in OF_ALL:
        with subtests.test(declared=declared):
            assert capabilities_of_all(declared) == seen
