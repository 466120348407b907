"""How the types read and write JSON, reject malformed input, and keep unknown fields."""

from __future__ import annotations

import copy
import logging
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, get_args

import pytest
from pydantic import ValidationError

import mcp_host.types
from mcp_host.errors import ProtocolError
from mcp_host.types import (
    AssistantMessage,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    CallToolResultResponse,
    CompleteResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitationForm,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    Implementation,
    InputRequiredResult,
    LegacyTitledEnumSchema,
    ListToolsResult,
    LoggingMessageNotificationParams,
    NumberSchema,
    ProgressNotificationParams,
    PromptMessage,
    RequestMetaObject,
    SamplingMessage,
    ServerCapabilities,
    StringSchema,
    TextContent,
    TextResourceContents,
    TitledMultiSelectEnumSchema,
    TitledSingleSelectEnumSchema,
    Tool,
    ToolResultContent,
    ToolUseContent,
    UnknownContent,
    UntitledMultiSelectEnumSchema,
    UntitledSingleSelectEnumSchema,
    UserMessage,
    base,
    content,
)
from mcp_host.types.base import Model
from mcp_host.types.sampling import ToolOutput


def classes() -> list[type[Model]]:
    """Every public type, by its name."""

    def below(cls: type[Model]) -> set[type[Model]]:
        return {cls}.union(*(below(sub) for sub in cls.__subclasses__()))

    for name in dir(mcp_host.types):
        getattr(mcp_host.types, name)  # the rarer ones are imported when they are asked for
    ours = [cls for cls in below(Model) if cls.__module__.startswith("mcp_host.types.") and cls.__name__[0] != "_"]
    return sorted(ours, key=lambda cls: cls.__name__)


# --- writing ----------------------------------------------------------------------


def test_constants_are_written_even_if_they_were_not_given() -> None:
    request = CallToolRequest(id=7, params=CallToolRequestParams(name="add", arguments={"a_b": 1}))

    assert request.to_wire() == {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {"name": "add", "arguments": {"a_b": 1}},
    }


def test_a_constant_is_written_as_it_is_read(subtests: pytest.Subtests) -> None:
    for cls in [cls for cls in classes() if cls._constants]:
        with subtests.test(cls=cls):
            for name, constant in cls._constants.items():
                assert constant in get_args(cls.model_fields[name].annotation)


def test_unset_fields_are_not_written_and_an_explicit_none_is_null() -> None:
    assert Tool(name="a", input_schema={}, description=None).to_wire() == {
        "name": "a",
        "inputSchema": {},
        "description": None,
    }


def test_meta_is_written_with_its_underscore() -> None:
    assert TextContent(text="hi", meta={"some_key": 1}).to_wire() == {
        "type": "text",
        "text": "hi",
        "_meta": {"some_key": 1},
    }


def test_reserved_meta_keys_are_written_with_their_prefix() -> None:
    meta = RequestMetaObject(protocol_version="2026-07-28", client_capabilities={}, progress_token=3)  # type: ignore[arg-type]  # a dict is taken for a model

    assert meta.to_wire() == {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "progressToken": 3,
    }


def test_a_single_sampling_block_is_written_without_a_list() -> None:
    text, use = TextContent(text="hi"), ToolUseContent(id="1", name="add", input={"a": 1})
    bare = {"type": "text", "text": "hi"}

    assert SamplingMessage(role="user", content=[text]).to_wire() == {"role": "user", "content": bare}
    assert CreateMessageResult(content=[text, use], model="m", stop_reason="toolUse").to_wire() == {
        "role": "assistant",
        "content": [bare, {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1}}],
        "model": "m",
        "stopReason": "toolUse",
    }


def test_a_dict_is_read_as_a_model_in_either_spelling() -> None:
    snake = ImageContent(data="", mime_type="image/png")

    assert SamplingMessage.model_validate(
        {"role": "user", "content": {"type": "image", "data": "", "mime_type": "image/png"}}
    ) == (SamplingMessage(role="user", content=snake))
    assert ImageContent.from_wire({"type": "image", "data": "", "mimeType": "image/png"}) == snake


# --- reading ----------------------------------------------------------------------


@pytest.mark.parametrize("value", [50, 50.0, 0.5, -(2**70), 1e300])
def test_numbers_keep_their_type(value: float) -> None:
    params = ProgressNotificationParams.from_wire({"progressToken": "t", "progress": value})

    assert (type(params.progress), params.progress) == (type(value), value)


def test_unknown_fields_are_kept_at_every_depth() -> None:
    wire = {
        "content": [{"type": "text", "text": "hi", "x": {"y": None}, "to_wire": 1, "mime_type": "kept, not read"}],
        "isError": None,
        "vendor": [1, {"a": 2}],
        "is_error": "kept, not read",
    }
    result = CallToolResult.from_wire(wire)

    assert result.to_wire() == wire
    assert result.is_error is None
    assert result.model_extra == {"vendor": [1, {"a": 2}], "is_error": "kept, not read"}


@pytest.mark.fault("J20")
@pytest.mark.parametrize("block", [{"type": "hologram", "text": "", "data": [1, None]}, {"type": "tool_use", "id": 5}])
def test_a_block_of_an_unknown_type_is_kept_whole(block: dict[str, object]) -> None:
    """Sampling's own block types are as unknown in a tool's result as any other."""
    result = CallToolResult.from_wire({"content": [{"type": "text", "text": "hi"}, block]})
    prompt = GetPromptResult.from_wire({"messages": [{"role": "user", "content": block}]})

    assert isinstance(result.content[1], UnknownContent)
    assert result.to_wire() == {"content": [{"type": "text", "text": "hi"}, block]}
    assert prompt.to_wire() == {"messages": [{"role": "user", "content": block}]}


def test_the_classes_with_a_constant_type_are_the_content_blocks() -> None:
    classes = [cls for cls in vars(content).values() if isinstance(cls, type) and issubclass(cls, Model)]
    with_type = {cls for cls in classes if "type" in cls.model_fields} - {UnknownContent}

    assert with_type == set(content.CONTENT_BLOCKS)
    assert {"text", "image", "audio", "resource", "resource_link"} <= content.KNOWN_TYPES


@pytest.mark.parametrize("kind", sorted(content.KNOWN_TYPES))
def test_a_malformed_block_of_a_known_type_is_rejected(kind: str) -> None:
    with pytest.raises(ProtocolError, match=r"^malformed CallToolResult: content\.0\."):
        CallToolResult.from_wire({"content": [{"type": kind}]})


def test_responses_are_distinguished_by_their_result_type() -> None:
    def result_of(result: dict[str, object]) -> object:
        return CallToolResultResponse.from_wire({"jsonrpc": "2.0", "id": 1, "result": result}).result

    assert result_of({"resultType": "input_required", "content": []}) == InputRequiredResult(content=[])  # type: ignore[call-arg]  # an unknown field
    assert result_of({"resultType": "complete", "content": []}) == CallToolResult(content=[], result_type="complete")
    assert result_of({"content": []}) == CallToolResult(content=[])


MALFORMED: list[tuple[type[Model], object, str]] = [
    (TextContent, {"text": "hi"}, "type: Field required"),
    (TextContent, {"type": "text", "text": 5}, "text: Input should be a valid string"),
    (TextContent, {"type": "text", "text": b"hi"}, "text: Input should be a valid string"),
    (TextContent, [], "Input should be a valid dictionary or instance of TextContent"),
    (CallToolResult, {}, "content: Field required"),
    (CallToolResult, {"content": {"type": "text"}}, "content: Input should be a valid list"),
    (CallToolResult, {"content": [{"type": "text", "text": 5}]}, "content.0.text: Input should be a valid string"),
    (CallToolResult, {"content": [{"type": "text"}]}, "content.0.text: Field required"),
    (CallToolResult, {"content": [{}]}, "content.0: Unable to extract tag using discriminator 'type'"),
    (CallToolResult, {"content": [], "isError": []}, "isError: Input should be a valid boolean"),
    (CallToolResult, {"content": [], "isError": [], "_meta": 5}, "isError: Input should be a valid boolean"),
    (CallToolResult, {"content": [{"type": "text", "text": 5, "annotations": {"text": 1, "audience": 1}}]}, "content.0.text: Input"),
    (EmbeddedResource, {"type": "resource", "resource": {"uri": "a", "text": 5}}, "resource.text: Input should be a valid string"),
    (CallToolResult, {"content": [{"type": "resource", "resource": {"uri": 5, "text": ""}}]}, "content.0.resource.uri: Input should be a valid string"),
    (CallToolResult, {"content": [{"type": "text"}, {"type": "text", "text": 5}]}, "content.0.text: Field required"),
    (GetPromptResult, {"messages": [{"role": "user", "content": {"type": "text"}}]}, "messages.0.content.text: Field required"),
    (GetPromptResult, {"messages": [{"role": "system", "content": "hi"}, 5]}, "messages.0.role: Input should be 'user' or 'assistant'"),
    (PromptMessage, {"role": "user", "content": {"type": "image"}}, "content.data: Field required"),
    (ListToolsResult, {"tools": [{"name": "a"}]}, "tools.0.inputSchema: Field required"),
    (ListToolsResult, {"tools": [], "nextCursor": 1}, "nextCursor: Input should be a valid string"),
    (InputRequiredResult, {"resultType": "input_required", "inputRequests": {"a": {"method": "roots/lost"}}}, "inputRequests.a: Input tag 'roots/lost'"),
    (CreateMessageRequestParams, {"messages": [], "max_tokens": 5}, "maxTokens: Field required"),
    (CreateMessageRequestParams, {"messages": [], "maxTokens": "5"}, "maxTokens: Input should be a valid integer"),
    (CreateMessageRequestParams, {"messages": [], "maxTokens": 1.5}, "maxTokens: Input should be a valid integer"),
    (CreateMessageRequestParams, {"messages": [], "maxTokens": 5, "toolChoice": {"mode": "maybe"}}, "toolChoice.mode: Input should be"),
    (CreateMessageRequestParams, {"messages": [{"role": "user", "content": {"text": "a"}}], "maxTokens": 5}, "messages.0.content: Unable to extract tag"),
    (CreateMessageRequestParams, {"messages": [], "maxTokens": True}, "maxTokens: Input should be a valid integer"),
    (CreateMessageRequestParams, {"messages": [], "maxTokens": "5", "temperature": "0.5"}, "maxTokens: Input should be a valid integer"),
    (CreateMessageRequestParams, {"messages": [], "maxTokens": 5, "systemPrompt": 5, "metadata": 5}, "systemPrompt: Input should be a valid string"),
    (CreateMessageRequestParams, {"messages": [], "maxTokens": 5, "stopSequences": "END"}, "stopSequences: Input should be a valid list"),
    (CreateMessageRequestParams, {"messages": [], "maxTokens": 5, "tools": {}}, "tools: Input should be a valid list"),
    (CreateMessageRequestParams, {"messages": [], "maxTokens": 5, "tools": [{"name": "a", "inputSchema": 5}]}, "tools.0.inputSchema: Input should be a valid dictionary"),
    (CreateMessageRequestParams, {"messages": [{"role": "user", "content": [{"type": "tool_result", "toolUseId": "1", "content": [], "isError": 5}]}], "maxTokens": 5}, "messages.0.content.0.isError: Input should be a valid boolean"),
    (ElicitRequestFormParams, {"mode": "song", "message": "m", "requestedSchema": {}}, "mode: Input should be 'form'"),
    (ElicitRequestURLParams, {"mode": "url", "message": "m", "url": "a:", "elicitationId": 5}, "elicitationId: Input should be a valid string"),
    (
        SamplingMessage,
        {"role": "user", "content": {"type": "resource_link"}},
        "content: Input tag 'resource_link' found using 'type' does not match any of the expected tags: "
        "'text', 'image', 'audio', 'tool_result', 'tool_use'",
    ),
    (
        ToolResultContent,
        {"type": "tool_result", "toolUseId": "1", "content": [{"type": "hologram"}]},
        "content.0: Input tag 'hologram' found using 'type' does not match any of the expected tags: "
        "'text', 'image', 'audio', 'resource_link', 'resource'",
    ),
    (SamplingMessage, {"role": "user", "content": "hi"}, "content: Input should be a block or a list of blocks"),
    (SamplingMessage, {"role": "system", "content": []}, "its role should be 'user' or 'assistant'"),
    (SamplingMessage, {"content": []}, "its role should be 'user' or 'assistant'"),
    (UserMessage, {"content": {"type": "text", "text": "hi"}}, "role: Field required"),
    (CreateMessageResult, {"role": "user", "content": {"type": "text", "text": "hi"}, "model": "m"}, "role: Input should be 'assistant'"),
    (AssistantMessage, {"content": {"type": "text", "text": "hi"}}, "role: Field required"),
    (ElicitResult, {"action": "accept", "content": {"a": {}}}, "content.a: Input should be a valid string"),
    (ElicitRequest, {"method": "elicitation/create", "params": {"mode": "song", "message": "m", "requestedSchema": {}}}, "params.mode: Input should be 'form'"),
    (ElicitationForm, {"type": "object", "properties": {"f": 5}}, "properties.f: Input should be a valid dictionary"),
    (ElicitationForm, {"type": "object", "properties": {"f": {"type": "object"}}}, "properties.f.type: Input should be 'string'"),
    (ElicitationForm, {"type": "object", "properties": {"f": {"type": "array"}}}, "properties.f.items: Field required"),
    (ElicitationForm, {"type": "object", "properties": {"f": {"type": "boolean", "default": 1}}}, "properties.f.default: Input should be a valid boolean"),
]  # fmt: skip


def test_malformed_input_is_rejected_with_one_sentence(subtests: pytest.Subtests) -> None:
    for kind, value, problem in MALFORMED:
        with subtests.test(kind.__name__, problem=problem):
            with pytest.raises(ProtocolError) as caught:
                kind.from_wire(value)

            assert str(caught.value).startswith(f"malformed {kind.__name__}: {problem}")
            assert caught.value.__cause__ is None
            assert caught.value.__context__ is None


def with_hints(**annotations: object) -> dict[str, object]:
    return {"content": [{"type": "text", "text": "text", "annotations": annotations}]}


def asking(**fields: object) -> dict[str, object]:
    return {"messages": [], "maxTokens": 5, **fields}


HI, IMAGE = {"type": "text", "text": "hi"}, {"type": "image", "data": "AA=="}
CALL = {"type": "tool_use", "id": "1", "name": "a", "input": {}}
CALLED = {"type": "tool_result", "toolUseId": "1", "content": []}


def test_a_model_gets_of_a_link_what_its_server_says_and_no_null() -> None:
    """Go and C# write all members, and so does a conversation that was saved with `model_dump` and loaded: its text stays the same."""
    wire = {"type": "resource_link", "uri": "a:", "name": "a", "size": 0, "title": None, "mimeType": None, "_meta": {}}

    link = content.ResourceLink.from_wire(wire)

    assert content.link_fields(link) == {"type": "resource_link", "uri": "a:", "name": "a", "size": 0}


REPAIRED: list[tuple[type[Model], dict[str, object], dict[str, object], str]] = [
    (CallToolResult, with_hints(audience="user"), with_hints(), "content.0.annotations.audience"),
    (CallToolResult, with_hints(audience=["user", "robot"]), with_hints(), "content.0.annotations.audience.1"),
    (CallToolResult, with_hints(priority="0.6"), with_hints(priority=0.6), "content.0.annotations.priority"),
    (CallToolResult, with_hints(priority="high", text=1), with_hints(text=1), "content.0.annotations.priority"),
    (CallToolResult, with_hints(lastModified=3), with_hints(), "content.0.annotations.lastModified"),
    (CallToolResult, {"content": [{"type": "text", "text": "", "annotations": []}]}, with_hints() | {"content": [{"type": "text", "text": "", "annotations": {}}]}, "content.0.annotations"),
    (CallToolResult, {"content": [], "isError": "false", "_meta": []}, {"content": [], "isError": False, "_meta": {}}, "_meta"),
    (CallToolResult, {"content": [{"type": "resource_link", "uri": "a:", "name": "a", "size": "12", "icons": {}}]}, {"content": [{"type": "resource_link", "uri": "a:", "name": "a", "size": 12}]}, "content.0.icons"),
    (CallToolResult, {"content": [{"type": "hologram", "size": "12"}], "_meta": 1}, {"content": [{"type": "hologram", "size": "12"}]}, "_meta"),
    (Tool, {"name": "a", "inputSchema": [], "annotations": {"readOnlyHint": "true", "more": 1}}, {"name": "a", "inputSchema": {}, "annotations": {"readOnlyHint": True, "more": 1}}, "inputSchema"),
    (Tool, {"name": "a", "inputSchema": {}, "outputSchema": "none", "description": 5}, {"name": "a", "inputSchema": {}}, "description"),
    (ListToolsResult, {"tools": [], "ttlMs": 1.0}, {"tools": [], "ttlMs": 1}, "ttlMs"),
    (ListToolsResult, {"tools": None}, {"tools": []}, "tools"),
    (CallToolResult, {"content": None, "structuredContent": 5}, {"content": [], "structuredContent": 5}, "content"),
    (CompleteResult, {"completion": {"values": None}}, {"completion": {"values": []}}, "completion.values"),
    (CallToolResult, {"content": [IMAGE, HI]}, {"content": [IMAGE, HI]}, "content.0.mimeType"),
    (CallToolResult, {"content": [HI, None, "hi", {"text": "hi", "more": 1}, {"a": 1}]}, {"content": [HI, {**HI, "text": None}, HI, {**HI, "more": 1}, {**HI, "text": {"a": 1}}]}, "content.1"),
    (CallToolResult, {"content": "hi", "isError": True}, {"content": [HI], "isError": True}, "content"),
    (CallToolResult, {"content": HI}, {"content": [HI]}, "content"),
    (CallToolResult, {"content": {}}, {"content": []}, "content"),
    (CallToolResult, {"content": [IMAGE], "structuredContent": 5}, {"content": [IMAGE], "structuredContent": 5}, "content.0.mimeType"),
    (GetPromptResult, {"messages": [{"role": "user", "content": each} for each in (IMAGE, HI)]}, {"messages": [{"role": "user", "content": each} for each in (IMAGE, HI)]}, "messages.0.content.mimeType"),
    (GetPromptResult, {"messages": [{"role": "user", "content": "hi"}, {"role": "user", "content": [HI, None]}]}, {"messages": [{"role": "user", "content": each} for each in (HI, HI, {**HI, "text": None})]}, "messages.0.content"),
    (ServerCapabilities, {"tools": [], "logging": []}, {"tools": {}, "logging": {}}, "logging"),
    (ServerCapabilities, {"tools": True, "logging": True, "prompts": False, "more": True}, {"tools": {}, "logging": {}, "more": True}, "logging"),
    (CreateMessageRequestParams, asking(messages=[{"role": "user", "content": {**HI, "annotations": {"audience": "user"}}}]), asking(messages=[{"role": "user", "content": {**HI, "annotations": {}}}]), "messages.0.content.annotations.audience"),
    (CreateMessageRequestParams, asking(messages=[{"role": "assistant", "content": {**CALL, "input": []}}, {"role": "user", "content": {**CALLED, "isError": "true", "_meta": 5}}]), asking(messages=[{"role": "assistant", "content": CALL}, {"role": "user", "content": {**CALLED, "isError": True}}]), "messages.0.content.input"),
    (CreateMessageRequestParams, asking(tools=[{"name": "a", "inputSchema": {}, "annotations": {"readOnlyHint": "true"}, "icons": [{"src": None}], "description": 5}]), asking(tools=[{"name": "a", "inputSchema": {}, "annotations": {"readOnlyHint": True}}]), "tools.0.icons.0.src"),
    (CreateMessageRequestParams, asking(modelPreferences={"hints": ["claude", {"name": 5}], "costPriority": "0.5", "speedPriority": "nan"}), asking(modelPreferences={"hints": [{"name": "claude"}, {}], "costPriority": 0.5}), "modelPreferences.hints.0"),
    (CreateMessageRequestParams, asking(temperature="0.5", includeContext="all", metadata=[], task=True, _meta=[]), asking(temperature=0.5, metadata={}, _meta={}), "_meta"),
    (CreateMessageRequestParams, asking(temperature="hot"), asking(), "temperature"),
    (ElicitRequestFormParams, {"message": "m", "requestedSchema": [], "_meta": []}, {"message": "m", "requestedSchema": {}, "_meta": {}}, "_meta"),
    (ElicitRequestURLParams, {"mode": "url", "message": "m", "url": "a:", "task": []}, {"mode": "url", "message": "m", "url": "a:", "task": {}}, "task"),
    (Implementation, {"name": "a", "version": "1", "websiteUrl": False}, {"name": "a", "version": "1"}, "websiteUrl"),
    (ProgressNotificationParams, {"progressToken": 1, "progress": 1, "total": "2"}, {"progressToken": 1, "progress": 1, "total": 2}, "total"),
]  # fmt: skip
"""What servers send, what is read, and the path to the first thing that was malformed."""


def test_what_is_malformed_is_mended_or_kept_unread_or_left_out_with_a_warning(
    subtests: pytest.Subtests, caplog: pytest.LogCaptureFixture
) -> None:
    """A server may send any number of notifications: what is malformed in one is logged once, at DEBUG."""
    base._log_once.cache_clear()
    for kind, sent, read, path in REPAIRED:
        with subtests.test(kind.__name__, path=path):
            caplog.clear()
            caplog.set_level(logging.DEBUG)
            assert kind.from_wire(sent).to_wire() == read
            [message] = caplog.messages
            assert f"malformed {kind.__name__}: {path}: " in message
            assert caplog.records[0].levelno == (
                logging.DEBUG if kind is ProgressNotificationParams else logging.WARNING
            )
            kind.from_wire(sent)
            assert len(caplog.messages) == (1 if kind is ProgressNotificationParams else 2)


def test_a_repaired_object_is_equal_to_one_that_was_made() -> None:
    read = CallToolResult.from_wire({"content": [], "_meta": 5, "isError": False, "more": 1})

    assert read.to_wire() == {"content": [], "isError": False, "more": 1}
    assert read == read.model_copy()
    assert (read.model_extra, read.model_copy(update={"is_error": True}).is_error) == ({"more": 1}, True)


def test_a_list_is_repaired_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    tools = [{"name": f"{number}", "inputSchema": {}, "annotations": 5} for number in range(1000)]

    assert [tool.to_wire() for tool in Tool.list_from_wire([*tools])] == [
        {"name": f"{number}", "inputSchema": {}} for number in range(1000)
    ]
    assert len(caplog.messages) == 1


def test_a_structured_result_without_content_has_none(caplog: pytest.LogCaptureFixture) -> None:
    assert CallToolResult.from_wire({"structuredContent": {"a": 1}}) == CallToolResult(
        content=[], structured_content={"a": 1}
    )
    assert ["content: Field required" in message for message in caplog.messages] == [True]


@pytest.mark.parametrize(("written", "level"), [("warn", "warning"), ("INFO", "info"), ("Fatal", "critical")])
def test_levels_of_other_logging_libraries_are_read(written: str, level: str) -> None:
    assert LoggingMessageNotificationParams.from_wire({"level": written, "data": 1}).level == level


@pytest.mark.parametrize(
    "second",
    [{"name": "b"}, {"name": "b", "input_schema": {}}, 7],
    ids=["incomplete", "in Python's spelling", "a number"],
)
def test_a_list_with_a_malformed_item_is_rejected(second: object) -> None:
    first = {"name": "a", "inputSchema": {}}

    assert Tool.list_from_wire([first, first]) == [Tool(name="a", input_schema={})] * 2
    with pytest.raises(ProtocolError, match=r"malformed Tool: 1(\.inputSchema)?: "):
        Tool.list_from_wire([first, second])
    with pytest.raises(ProtocolError, match=r"^malformed TextContent: 0"):
        TextContent.list_from_wire([second])


@pytest.mark.parametrize("value", [None, 7, "tool_choice", ["tool_choice"]], ids=["null", "number", "text", "list"])
def test_only_an_object_is_read_as_any_type(value: object) -> None:
    for cls in classes():
        with pytest.raises(ProtocolError, match=f"^malformed {cls.__name__}: "):
            cls.from_wire(value)


def test_the_text_of_a_result_joins_its_text_blocks_with_newlines() -> None:
    image = ImageContent(data="", mime_type="image/png")

    assert CallToolResult(content=[TextContent(text="a"), image, TextContent(text="b")]).text == "a\nb"
    assert CallToolResult(content=[image]).text == ""


def test_an_error_repeats_only_the_beginning_of_a_peers_text() -> None:
    with pytest.raises(ProtocolError) as caught:
        ElicitResult.from_wire({"action": "accept", "content": {"k\x1b" * 10_000: {}}})
    assert len(str(caught.value)) < 400
    assert "\x1b" not in str(caught.value)

    with pytest.raises(ProtocolError) as caught:
        SamplingMessage.from_wire({"role": "user", "content": {"type": "Z\x1b" * 10_000}})
    assert str(caught.value).count("Z") <= 80
    assert "\x1b" not in str(caught.value)
    assert "'tool_use'" in str(caught.value)


def test_a_list_of_a_million_invalid_items_is_rejected_at_the_first() -> None:
    with pytest.raises(ValidationError) as caught:
        CallToolResult.model_validate({"content": [None] * 1_000_000})

    assert {error["loc"][1] for error in caught.value.errors()} == {0}


def test_a_wrong_argument_in_python_is_a_value_error_with_the_same_sentence() -> None:
    with pytest.raises(
        ValueError, match=r"^malformed CreateMessageRequestParams: max_tokens: Input should be a valid in"
    ) as caught:
        CreateMessageRequestParams(messages=[], max_tokens="5")  # type: ignore[arg-type]  # the mistake in question

    assert not isinstance(caught.value, ValidationError)
    with pytest.raises(ValueError, match=r"^malformed CreateMessageResult: content: Field required$"):
        CreateMessageResult(model="m")  # type: ignore[call-arg]  # the mistake in question


# --- being a value ----------------------------------------------------------------


def test_a_value_cannot_be_changed_but_copied_with_changes() -> None:
    text = TextContent(text="hi")

    with pytest.raises(ValidationError, match="frozen"):
        text.text = "ho"
    assert text.model_copy(update={"text": "ho"}) == TextContent(text="ho")
    assert copy.deepcopy(text) == text


def test_a_repr_shows_the_fields_and_those_that_are_unknown() -> None:
    assert repr(TextContent.from_wire({"type": "text", "text": "hi", "x": 1})) == (
        "TextContent(type='text', text='hi', annotations=None, meta=None, x=1)"
    )


# --- elicitation ------------------------------------------------------------------


FIELDS: list[tuple[dict[str, object], type[Model]]] = [
    ({"type": "string", "format": "email"}, StringSchema),
    ({"type": "integer", "minimum": 0, "default": 5}, NumberSchema),
    ({"type": "string", "enum": ["a"]}, UntitledSingleSelectEnumSchema),
    ({"type": "string", "enum": ["a"], "enumNames": ["A"]}, LegacyTitledEnumSchema),
    ({"type": "string", "oneOf": [{"const": "a", "title": "A"}]}, TitledSingleSelectEnumSchema),
    ({"type": "array", "items": {"type": "string", "enum": ["a"]}}, UntitledMultiSelectEnumSchema),
    ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}, TitledMultiSelectEnumSchema),
]


def test_a_form_is_read_field_by_field(subtests: pytest.Subtests) -> None:
    for schema, kind in FIELDS:
        with subtests.test(schema=schema):
            form = ElicitationForm.from_wire({"type": "object", "properties": {"f": schema}})

            assert type(form.properties["f"]) is kind
            assert form.to_wire() == {"type": "object", "properties": {"f": schema}}
            assert ElicitationForm(properties=form.properties) == form


@pytest.mark.parametrize(
    ("params", "kind"),
    [
        ({"message": "m", "requestedSchema": {}}, ElicitRequestFormParams),
        ({"message": "m", "requestedSchema": {}, "mode": "form"}, ElicitRequestFormParams),
        ({"message": "m", "url": "https://a.example", "mode": "url"}, ElicitRequestURLParams),
    ],
)
def test_an_elicitation_without_a_mode_is_a_form(params: dict[str, object], kind: type[Model]) -> None:
    request = ElicitRequest.from_wire({"method": "elicitation/create", "params": params})

    assert type(request.params) is kind
    assert ElicitRequest(params=request.params).to_wire() == request.to_wire()


# --- the package ------------------------------------------------------------------


def test_the_package_lists_each_name_once_and_has_all_that_it_lists() -> None:
    names: list[str] = import_module("mcp_host.types").__all__

    assert len(names) == len(set(names))
    assert [name for name in names if not hasattr(mcp_host.types, name)] == []
    assert dir(mcp_host.types) == sorted(names)


def test_an_unknown_name_raises_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'import_modul'"):
        _ = mcp_host.types.import_modul  # type: ignore[attr-defined]  # the mistake in question


def test_every_class_is_exported_under_its_own_name() -> None:
    assert {cls.__name__ for cls in classes()} - set(dir(mcp_host.types)) == set()


def test_the_revisions_are_five() -> None:
    assert mcp_host.types.REVISIONS == ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")


def test_importing_the_types_does_not_import_the_rare_ones() -> None:
    rare = {"mcp_host.types.elicitation", "mcp_host.types.features", "mcp_host.types.requests"}
    code = f"import sys, mcp_host.types; print({rare} & set(sys.modules))"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_reading_never_runs_a_constructor() -> None:
    """A custom ``__init__`` would be called for each model on the wire, nested ones included."""
    assert Model.__pydantic_custom_init__ is False
    assert TextResourceContents.__pydantic_custom_init__ is False


# What a tool returned, as the model is told


USE = ToolUseContent(id="call_1", name="add", input={})


RETURNED: dict[str, tuple[ToolOutput, dict[str, Any]]] = {
    "a text": ("3", {"content": [{"type": "text", "text": "3"}]}),
    "a block": (TextContent(text="3"), {"content": [{"type": "text", "text": "3"}]}),
    "blocks": ([TextContent(text="3")], {"content": [{"type": "text", "text": "3"}]}),
    "nothing": ([], {"content": []}),
    "an object": ({"sum": 3}, {"content": [{"type": "text", "text": '{"sum":3}'}], "structuredContent": {"sum": 3}}),
    "an object that looks like a block": (
        {"type": "text", "text": "data"},
        {
            "content": [{"type": "text", "text": '{"type":"text","text":"data"}'}],
            "structuredContent": {"type": "text", "text": "data"},
        },
    ),
    "a result": (
        CallToolResult(content=[TextContent(text="3")], structured_content=3, is_error=False, meta={"a": 1}),
        {"content": [{"type": "text", "text": "3"}], "structuredContent": 3, "isError": False},
    ),
    "a result of a tool that failed": (
        CallToolResult(content=[TextContent(text="no")], is_error=True),
        {"content": [{"type": "text", "text": "no"}], "isError": True},
    ),
    "a result with blocks that no model could be shown": (
        CallToolResult.from_wire({"content": [{"type": "video", "data": "AA=="}, IMAGE, HI]}),
        {
            "content": [
                {"type": "text", "text": "[video, which this version does not know]"},
                {"type": "text", "text": "[image, malformed]"},
                HI,
            ]
        },
    ),
}


def test_a_tool_result_is_made_of_what_the_tool_returned(subtests: pytest.Subtests) -> None:
    for case, (result, wire) in RETURNED.items():
        with subtests.test(case):
            assert ToolResultContent.of(USE, result).to_wire() == {"type": "tool_result", "toolUseId": "call_1", **wire}


def test_a_tool_result_may_be_an_error() -> None:
    block = ToolResultContent.of(USE, "no such file", is_error=True)

    assert block == ToolResultContent(tool_use_id="call_1", content=[TextContent(text="no such file")], is_error=True)


# The two sides of a conversation


RESULT = ToolResultContent.of(USE, "3")
TURNS: list[tuple[UserMessage | AssistantMessage, SamplingMessage]] = [
    (UserMessage("hi"), SamplingMessage(role="user", content=TextContent(text="hi"))),
    (UserMessage([RESULT, RESULT], meta={"k": 1}), SamplingMessage(role="user", content=[RESULT, RESULT], meta={"k": 1})),
    (AssistantMessage("hi"), SamplingMessage(role="assistant", content=(TextContent(text="hi"),))),
    (AssistantMessage([USE, USE]), SamplingMessage(role="assistant", content=deque([USE, USE]))),
]  # fmt: skip


def test_a_message_has_the_class_of_its_role(subtests: pytest.Subtests) -> None:
    """Whether it was received, made by its role, or made by its class."""
    for turn, message in TURNS:
        with subtests.test(repr(turn)):
            asked = {"messages": [turn.to_wire()], "maxTokens": 1}

            for same in (message, SamplingMessage.from_wire(turn.to_wire()), type(turn).from_wire(turn.to_wire())):
                assert (type(same), same, same.to_wire()) == (type(turn), turn, turn.to_wire())
            assert list(map(type, CreateMessageRequestParams.from_wire(asked).messages)) == [type(turn)]
            assert pickle.loads(pickle.dumps(message)) == message


def test_different_messages_are_not_equal() -> None:
    messages: list[SamplingMessage] = [UserMessage("hi"), UserMessage("ho"), AssistantMessage("hi")]

    assert [messages.index(message) for message in messages] == [0, 1, 2]


class TimedResult(ToolResultContent):
    """Of a host, for example."""


BY_USER = "it is a tool_use in a user message; only the assistant asks for tools"
BY_ASSISTANT = "it is a tool_result in an assistant message; results come from the user"
MIXED = "tool results are mixed with other content; a message with tool results holds nothing else"
MISPLACED: list[tuple[type[Model], list[Model], str]] = [
    (UserMessage, [TextContent(text="3"), USE], f"content.1: {BY_USER}"),
    (UserMessage, [RESULT, TextContent(text="3")], f"content: {MIXED}"),
    (UserMessage, [TimedResult(**dict(RESULT)), TextContent(text="3")], f"content: {MIXED}"),
    (AssistantMessage, [RESULT], f"content.0: {BY_ASSISTANT}"),
    (CreateMessageResult, [TimedResult(**dict(RESULT))], f"content.0: {BY_ASSISTANT}"),
]


@pytest.mark.fault("S03", "S05")
def test_a_message_holds_no_block_of_the_other_role(subtests: pytest.Subtests) -> None:
    for kind, blocks, problem in MISPLACED:
        with subtests.test(kind.__name__, problem=problem):
            role = "user" if kind is UserMessage else "assistant"
            wire = {"role": role, "content": [block.to_wire() for block in blocks], "model": "m"}
            more = {"model": "m"} if kind is CreateMessageResult else {}
            asked = {"messages": [wire], "maxTokens": 1}

            made: list[tuple[str, Callable[[], object]]] = [
                (kind.__name__, partial(kind, content=blocks, **more)),
                ("SamplingMessage", partial(SamplingMessage, role=role, content=blocks)),
                (kind.__name__, partial(kind.from_wire, wire)),
                ("SamplingMessage", partial(SamplingMessage.from_wire, wire)),
                ("CreateMessageRequestParams: messages.0", partial(CreateMessageRequestParams.from_wire, asked)),
            ]
            for name, make in made:
                with pytest.raises((ValueError, ProtocolError)) as refused:
                    make()
                assert str(refused.value) == f"malformed {name}{'.' if 'messages' in name else ': '}{problem}"


def test_user_and_assistant_messages_make_a_request() -> None:
    turns = [UserMessage("1+2?"), AssistantMessage(USE), UserMessage(ToolResultContent.of(USE, "3"))]

    assert CreateMessageRequestParams(messages=turns, max_tokens=9).to_wire() == {
        "messages": [turn.to_wire() for turn in turns],
        "maxTokens": 9,
    }
