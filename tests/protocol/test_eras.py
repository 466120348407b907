"""How each era writes requests and answers, and reads results."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from mcp_host.errors import CallerError, InputRefused, ProtocolError
from mcp_host.protocol.eras import MAX_STATE, Complete, InputRequest, InputRequired, Legacy, Modern, write_answer
from mcp_host.types import CreateMessageResult, TextContent, ToolUseContent

LEGACY = Legacy("2025-11-25")
MODERN = Modern.for_client(
    "2026-07-28", {"name": "c", "version": "1"}, {"sampling": {"tools": {}}, "roots": {"listChanged": True}}
)
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"sampling": {"tools": {}}, "roots": {}},
}
LEVEL = "io.modelcontextprotocol/logLevel"
LISTS = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]
HANDSHAKE_VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


def test_a_legacy_revision_sends_params_as_they_are() -> None:
    assert LEGACY.prepare_params({"name": "x", "_meta": {"trace": 1}}, "debug") == {"name": "x", "_meta": {"trace": 1}}


def test_a_modern_request_has_our_meta_and_that_of_the_caller_who_may_set_the_log_level_alone() -> None:
    traced: dict[str, Any] = {"_meta": {"trace": 1}}
    forged = {LEVEL: "error", "io.modelcontextprotocol/protocolVersion": "1"}

    assert MODERN.prepare_params({"name": "x"}, None) == {"name": "x", "_meta": META}
    assert MODERN.prepare_params(traced, "debug") == {"_meta": {"trace": 1, LEVEL: "debug"} | META}
    assert MODERN.prepare_params({"_meta": forged}, "debug") == {"_meta": {LEVEL: "error"} | META}
    assert traced == {"_meta": {"trace": 1}}, "the params of the caller stay as they are"


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("tools/list", {"cursor": "x"}, {}),
        ("tools/call", {"name": "add"}, {"Mcp-Name": "add"}),
        ("prompts/get", {"name": "grüße"}, {"Mcp-Name": "=?base64?Z3LDvMOfZQ==?="}),
        ("resources/read", {"uri": "file:///a b"}, {"Mcp-Name": "file:///a b"}),
        ("server/discover", {}, {}),
    ],
)
def test_modern_headers_have_the_method_and_the_name(
    method: str, params: dict[str, Any], expected: dict[str, str]
) -> None:
    always = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}

    assert MODERN.headers(method, params) == always | expected


def test_a_legacy_revision_sends_its_version_header_after_initialize_only() -> None:
    assert LEGACY.headers("initialize", {}) == {}
    assert LEGACY.headers("tools/call", {"name": "x"}) == {"MCP-Protocol-Version": "2025-11-25"}


def test_a_name_that_cannot_be_a_header_is_a_caller_error() -> None:
    with pytest.raises(CallerError):
        MODERN.headers("tools/call", {"name": "\ud800"})


def test_until_2025_11_25_every_result_is_complete(subtests: pytest.Subtests) -> None:
    results: list[dict[str, Any]] = [{}, {"resultType": "input_required"}, {"resultType": 7, "ttlMs": 5}]
    for version, result in product(HANDSHAKE_VERSIONS, results):
        with subtests.test(version=version, result=result):
            others = {key: value for key, value in result.items() if key != "resultType"}
            assert Legacy(version).read("tools/call", result) == Complete(others)


def test_a_modern_result_without_a_type_is_complete() -> None:
    assert MODERN.read("tools/call", {"content": []}) == Complete({"content": []})


def test_a_cacheable_result_is_fresh_for_its_ttl(subtests: pytest.Subtests) -> None:
    for ttl, seconds in (
        (0, 0.0),
        (-5, 0.0),
        (1500, 1.5),
        (None, 0.0),
        ("9", 0.0),
        (True, 0.0),
        (86_400_001, 86_400.0),
        (1e300, 86_400.0),
        (10**400, 86_400.0),
    ):
        with subtests.test(ttl=ttl):
            result = {"resultType": "complete", "ttlMs": ttl}

            for method in ("server/discover", *LISTS, "resources/read"):
                assert MODERN.read(method, result) == Complete(result, seconds)
            assert MODERN.read("tools/call", result) == Complete(result, 0.0)


REQUIRED: dict[str, tuple[dict[str, Any], object]] = {
    "state": ({"requestState": ""}, InputRequired({}, "")),
    "empty": ({"inputRequests": {}, "requestState": "s"}, InputRequired({}, "s")),
    "empty-of-php": ({"inputRequests": [], "requestState": "s"}, InputRequired({}, "s")),
    "empty-params-of-php": (
        {"inputRequests": {"a": {"method": "roots/list", "params": []}, "b": {"method": "roots/list", "params": None}}},
        InputRequired(dict.fromkeys("ab", InputRequest("roots/list", {})), None),
    ),
    "requests": (
        {"inputRequests": {"a": {"method": "roots/list"}, "b": {"method": "x", "params": {"y": 1}}}},
        InputRequired({"a": InputRequest("roots/list", {}), "b": InputRequest("x", {"y": 1})}, None),
    ),
}


def test_input_is_required_with_requests_or_a_state(subtests: pytest.Subtests) -> None:
    for method, (case1, (result, expected)) in product(
        ("tools/call", "prompts/get", "resources/read"), REQUIRED.items()
    ):
        with subtests.test(case1, method=method):
            assert MODERN.read(method, {"resultType": "input_required"} | result) == expected


def test_the_state_of_a_server_is_not_in_the_repr() -> None:
    assert "secret" not in repr(MODERN.read("tools/call", {"resultType": "input_required", "requestState": "secret"}))


INVALID_RESULTS: list[tuple[str, dict[str, Any]]] = [
    ("tools/list", {"resultType": "input_required", "requestState": "s"}),
    ("tools/call", {"resultType": "input_required"}),
    ("tools/call", {"resultType": "input_required", "inputRequests": []}),
    ("tools/call", {"resultType": "input_required", "requestState": 7}),
    ("tools/call", {"resultType": "input_required", "inputRequests": {"k": "v"}}),
    ("tools/call", {"resultType": "input_required", "inputRequests": {"k": {"params": {}}}}),
    ("tools/call", {"resultType": "input_required", "inputRequests": {"k": {"method": "m", "params": [1]}}}),
    ("tools/call", {"resultType": "task"}),
    ("tools/call", {"resultType": "Complete"}),
    ("tools/call", {"resultType": ""}),
    ("tools/call", {"resultType": 7}),
    ("tools/call", {"resultType": None}),
    ("tools/call", {"resultType": ["complete"]}),
]


def test_what_a_retry_is_to_repeat_is_limited(subtests: pytest.Subtests) -> None:
    for state, key in (("s" * (MAX_STATE - 1), "k"), ("s", "k" * (MAX_STATE - 1))):
        with subtests.test(state=len(state)):
            result = {"resultType": "input_required", "inputRequests": {key: {"method": "m"}}, "requestState": state}

            assert MODERN.read("tools/call", result) == InputRequired({key: InputRequest("m", {})}, state)
            with pytest.raises(ProtocolError, match=r"requestState and keys have 4,194,305 characters, more than 4,"):
                MODERN.read("tools/call", result | {"requestState": state + "s"})


@pytest.mark.fault("S31")
def test_a_result_of_unknown_type_or_shape_is_invalid(subtests: pytest.Subtests) -> None:
    for method, result in INVALID_RESULTS:
        with subtests.test(method=method, result=ascii(result)), pytest.raises(ProtocolError, match=method):
            MODERN.read(method, result)


MISSING: list[tuple[str, dict[str, Any], str | None]] = [
    ("tools/list", {}, "tools"),
    ("tools/call", {}, "tools"),
    ("tools/call", {"tools": {}}, None),
    ("prompts/list", {}, "prompts"),
    ("prompts/get", {"tools": {}}, "prompts"),
    ("resources/list", {}, "resources"),
    ("resources/templates/list", {}, "resources"),
    ("resources/read", {}, "resources"),
    ("resources/read", {"resources": {}}, None),
    ("resources/subscribe", {"resources": {}}, "resources.subscribe"),
    ("resources/subscribe", {"resources": {"subscribe": False}}, "resources.subscribe"),
    ("resources/subscribe", {"resources": {"subscribe": True}}, None),
    ("resources/unsubscribe", {"resources": True}, "resources.subscribe"),
    ("logging/setLevel", {}, "logging"),
    ("ping", {}, None),
]


def test_a_legacy_revision_knows_the_missing_capability(subtests: pytest.Subtests) -> None:
    for version, (method, capabilities, missing) in product(HANDSHAKE_VERSIONS, MISSING):
        with subtests.test(version=version, method=method, capabilities=ascii(capabilities)):
            assert Legacy(version).missing(method, capabilities) == missing


@pytest.mark.parametrize(
    ("version", "missing"),
    [("2024-11-05", None), ("2025-03-26", "completions"), ("2025-06-18", "completions"), ("2025-11-25", "completions")],
)
def test_completions_need_no_capability_before_2025_03_26(version: str, missing: str | None) -> None:
    assert Legacy(version).missing("completion/complete", {}) == missing
    assert Legacy(version).missing("completion/complete", {"completions": {}}) is None


def test_a_modern_revision_requires_no_capability() -> None:
    assert MODERN.missing("tools/call", {}) is None


def test_a_modern_server_may_send_no_requests() -> None:
    assert MODERN.server_requests == frozenset()
    assert LEGACY.server_requests == {"ping", "sampling/createMessage", "elicitation/create", "roots/list"}


def test_an_answer_is_written_in_the_spelling_of_its_revision() -> None:
    use = ToolUseContent(id="1", name="add", input={})
    answer = CreateMessageResult(role="assistant", content=[use, use.model_copy(update={"id": "2"})], model="m")

    assert len(write_answer(answer, MODERN.version)["content"]) == 2
    with pytest.raises(InputRefused):
        write_answer(answer, "2025-06-18")
    two = CreateMessageResult(role="assistant", content=[TextContent(text="a"), TextContent(text="b")], model="m")
    assert write_answer(two, "2024-11-05")["content"] == {"type": "text", "text": "a\n\nb"}
