"""What may be sent to which revision, compared with the official schemas."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from mcp_host.types import (
    AudioContent,
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    CreateMessageResult,
    ElicitationForm,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    Icon,
    ImageContent,
    Implementation,
    ListRootsResult,
    PromptMessage,
    RequestMetaObject,
    ResourceLink,
    Root,
    SamplingMessage,
    TaskMetadata,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from mcp_host.types.base import Model
from mcp_host.types.revisions import first_unknown
from tests import spec
from tests.types.places import place_of

TEXT = TextContent(text="hi")
AUDIO = AudioContent(data="", mime_type="audio/wav")
USE = ToolUseContent(id="1", name="add", input={})
RESULT = ToolResultContent(tool_use_id="1", content=[TEXT])
LINK = ResourceLink(name="a", uri="file:///a")
FORM = {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}
CHOICE = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string", "enum": ["x"]}}}}
META = RequestMetaObject(protocol_version="2026-07-28", client_capabilities=ClientCapabilities()).to_wire()

MESSAGES: dict[str, Model] = {
    "an answer of one text": CreateMessageResult(content=TEXT, model="m"),
    "an answer of one image": CreateMessageResult(content=ImageContent(data="", mime_type="image/png"), model="m"),
    "an answer of one sound": CreateMessageResult(content=AUDIO, model="m"),
    "an answer of two texts": CreateMessageResult(content=[TEXT, TEXT], model="m"),
    "an answer of nothing": CreateMessageResult(content=[], model="m"),
    "an answer that calls a tool": CreateMessageResult(content=USE, model="m"),
    "an answer of text and a tool call": CreateMessageResult(content=[TEXT, USE], model="m"),
    "an answer with meta": CreateMessageResult(content=TEXT, model="m", meta={"a": 1}),
    "a sampling message of one text": SamplingMessage(role="user", content=TEXT, meta={"a": 1}),
    "a sampling message with a tool result": SamplingMessage(role="user", content=RESULT),
    "a form declined": ElicitResult(action="decline"),
    "a form filled in": ElicitResult(action="accept", content={"a": "x", "b": 1, "c": True}),
    "a form with several choices": ElicitResult(action="accept", content={"a": ["x", "y"]}),
    "a form": ElicitRequest(params=ElicitRequestFormParams(message="m", requested_schema=FORM)),
    "a form by its mode": ElicitRequest(params=ElicitRequestFormParams(mode="form", message="m", requested_schema=FORM)),
    "a form with a choice of several": ElicitRequest(params=ElicitRequestFormParams(message="m", requested_schema=CHOICE)),
    "a URL to visit": ElicitRequest(params=ElicitRequestURLParams(message="m", url="https://a.example", elicitation_id="1"), id=1, jsonrpc="2.0"),
    "roots": ListRootsResult(roots=[Root(uri="file:///a", name="a", meta={"a": 1})]),
    "a name with icons": Implementation(name="a", version="1", title="A", icons=[Icon(src="https://a.example/a.png")]),
    "capabilities": ClientCapabilities.from_wire({"sampling": {"tools": {}}, "elicitation": {}, "tasks": {"list": {}}}),
    "a call as a task": CallToolRequestParams(name="a", arguments={}, task=TaskMetadata(ttl=1), meta=META),
    "a tool result of text": CallToolResult(content=[TEXT], result_type="complete"),
    "a tool result of sound": CallToolResult(content=[AUDIO], result_type="complete"),
    "a tool result with a link": CallToolResult(content=[TEXT, LINK], result_type="complete"),
    "a tool result with an object": CallToolResult(content=[], structured_content={}, result_type="complete"),
    "a tool result with a number": CallToolResult(content=[], structured_content=1, result_type="complete"),
    "a prompt of sound": PromptMessage(role="user", content=AUDIO),
}  # fmt: skip


@spec.needs_spec
def test_a_message_passes_exactly_if_it_is_valid_for_the_revision() -> None:
    every = list(product(MESSAGES, spec.REVISIONS))

    passed = {(name, revision): first_unknown(MESSAGES[name], revision) is None for name, revision in every}
    assert passed == {(name, revision): _is_valid(MESSAGES[name], revision) for name, revision in every}


def _is_valid(message: Model, revision: str) -> bool:
    place = place_of(type(message), revision)
    return place is not None and spec.validator_of(revision, place).is_valid(_enveloped(message, revision))


def _enveloped(message: Model, revision: str) -> dict[str, Any]:
    """A server's request is an envelope in 2025-11-25 only, where the schema asks for what its sender adds."""
    return {"jsonrpc": "2.0", "id": 1, **message.to_wire()} if revision == "2025-11-25" else message.to_wire()


REASONS: list[tuple[str, str, str]] = [
    ("an answer that calls a tool", "2025-06-18", "ToolUseContent at content[0] came with revision 2025-11-25"),
    ("an answer of two texts", "2025-06-18", "a list of blocks at content came with revision 2025-11-25"),
    ("an answer of one sound", "2024-11-05", "AudioContent at content[0] came with revision 2025-03-26"),
    ("a form with several choices", "2025-06-18", "a choice of several at content came with revision 2025-11-25"),
    ("a form declined", "2025-03-26", "ElicitResult came with revision 2025-06-18"),
    ("a URL to visit", "2025-06-18", "ElicitRequestURLParams at params came with revision 2025-11-25"),
    ("a tool result with a link", "2025-03-26", "ResourceLink at content[1] came with revision 2025-06-18"),
    (
        "a tool result with a number",
        "2025-11-25",
        "a value that is not an object at structured_content came with revision 2026-07-28",
    ),
]


def test_the_reason_names_the_type_the_path_and_the_revision(subtests: pytest.Subtests) -> None:
    for name, revision, sentence in REASONS:
        with subtests.test(name=name):
            assert first_unknown(MESSAGES[name], revision) == sentence


def test_null_as_structured_content_is_allowed_in_every_revision() -> None:
    """Who writes for an earlier revision leaves it out: ``tests/testing/test_tools.py`` shows it."""
    result = CallToolResult(content=[], structured_content=None, result_type="complete")

    assert [first_unknown(result, revision) for revision in ("2025-06-18", "2025-11-25", "2026-07-28")] == [None] * 3
    for fine in (None, dict[str, object]()):
        block = ToolResultContent(tool_use_id="1", content=[], structured_content=fine)
        assert first_unknown(block, "2025-11-25") is None
    for later in (0, "", list[object](), False):
        block = ToolResultContent(tool_use_id="1", content=[], structured_content=later)
        assert first_unknown(block, "2025-11-25") == (
            "a value that is not an object at structured_content came with revision 2026-07-28"
        )


def test_a_model_inside_a_mapping_is_found_under_its_key() -> None:
    form = ElicitationForm.from_wire(CHOICE)

    assert first_unknown(form, "2025-06-18") == (
        "UntitledMultiSelectEnumSchema at properties['a'] came with revision 2025-11-25"
    )


def test_fields_that_the_revision_does_not_know_are_not_searched() -> None:
    params = CallToolRequestParams(name="a", task=TaskMetadata(ttl=1))

    assert first_unknown(params, "2024-11-05") is None
