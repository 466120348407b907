"""The local servers of OpenAI's two APIs, through the official SDK: what they say, and what they refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from tests.interop.providers.scripted import Called, Failed, Said
from tests.interop.providers.serve import Serve
from tests.interop.providers.servers.base import JSON, ModelServer
from tests.interop.providers.servers.openai_chat import CompatibleChatServer, OpenAIChatServer
from tests.interop.providers.servers.openai_responses import OpenAIResponsesServer

# The SDK leaves its generators to the garbage collector after ``[DONE]``; trio warns of it.
streaming = pytest.mark.filterwarnings("ignore:Async generator '(openai|httpx2|httpcore2):ResourceWarning")

ADD: JSON = {
    "type": "object",
    "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
CALLS = (Called("add", {"a": 1, "b": 2}), Called("add", {"a": 30, "b": 40}), Called("now"))


@pytest.fixture
async def sdk() -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(api_key=ModelServer.key, base_url="http://unset.invalid", max_retries=0) as client:
        yield client


def _at(sdk: openai.AsyncOpenAI, server: ModelServer) -> Any:
    """The client at *server*; what the tests send is not always typed."""
    return sdk.with_options(base_url=f"{server.url}/v1")


def _tool(name: str = "add", schema: JSON = ADD, *, strict: bool = False) -> JSON:
    return {"type": "function", "name": name, "parameters": schema, "strict": strict}


def _function(name: str = "add", schema: JSON = ADD, **fields: object) -> JSON:
    return {"type": "function", "function": {"name": name, "parameters": schema, **fields}}


USER = {"role": "user", "content": "Add."}
CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "3"}
CHAT_CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
ASSISTANT = {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "3"}
PNG = "data:image/png;base64,iVBORw0KGgo="


# Responses


@streaming
@pytest.mark.parametrize("interleaved", [False, True], ids=["one after the other", "interleaved"])
async def test_a_stream_of_the_responses_api_is_the_same_response(
    serve: Serve, sdk: openai.AsyncOpenAI, interleaved: bool
) -> None:
    """The SDK's own accumulator folds it, and fails where an event is out of order."""
    said = Said(text="Let me see.", calls=CALLS, thinking="They want sums.", interleaved=interleaved)
    server = serve(OpenAIResponsesServer, said, said)
    client = _at(sdk, server)
    whole = await client.responses.create(model="gpt-5.2", input="Add.", tools=[_tool()])
    async with client.responses.stream(model="gpt-5.2", input="Add.", tools=[_tool()]) as stream:
        numbers = [event.sequence_number async for event in stream]
        streamed = await stream.get_final_response()

    kinds = [item.type for item in whole.output]
    assert kinds == ["reasoning", "message", "function_call", "function_call", "function_call"]
    assert [item.type for item in streamed.output] == kinds
    assert [item.arguments for item in whole.output[2:]] == ['{"a": 1, "b": 2}', '{"a": 30, "b": 40}', "{}"]
    assert [item.arguments for item in streamed.output[2:]] == [item.arguments for item in whole.output[2:]]
    assert streamed.output_text == whole.output_text == "Let me see."
    assert streamed.output[0].summary[0].text == "They want sums."
    assert (whole.usage.input_tokens, whole.usage.output_tokens, whole.status) == (11, 7, "completed")
    assert numbers == list(range(len(numbers)))


@streaming
@pytest.mark.parametrize(
    ("stop", "status", "reason", "kind"),
    [
        ("end", "completed", None, "output_text"),
        ("refusal", "completed", None, "refusal"),
        ("max_tokens", "incomplete", "max_output_tokens", "output_text"),
        ("content_filter", "incomplete", "content_filter", "output_text"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_how_a_response_ends(
    serve: Serve, sdk: openai.AsyncOpenAI, stop: Any, status: str, reason: str | None, kind: str, streamed: bool
) -> None:
    client = _at(sdk, serve(OpenAIResponsesServer, Said(text="No.", stop=stop)))
    if streamed:
        *_, last = [event async for event in await client.responses.create(model="gpt-5", input="Hi", stream=True)]
        assert last.type == f"response.{status}"
        response = last.response
    else:
        response = await client.responses.create(model="gpt-5", input="Hi")

    assert response.status == status
    assert (response.incomplete_details and response.incomplete_details.reason) == reason
    assert [part.type for part in response.output[0].content] == [kind]


async def test_reasoning_comes_back_whole_with_what_followed_it(serve: Serve, sdk: openai.AsyncOpenAI) -> None:
    server = serve(OpenAIResponsesServer, Said(thinking="Sums.", calls=CALLS[:2]), Said(text="73"))
    client = _at(sdk, server)
    fixed = {"model": "gpt-5.2", "store": False, "include": ["reasoning.encrypted_content"], "tools": [_tool()]}
    first = await client.responses.create(input=[USER], **fixed)
    outputs = [{**OUTPUT, "call_id": item.call_id} for item in first.output[1:]]
    turn = [item.model_dump(exclude_none=True) for item in first.output]
    last = await client.responses.create(input=[USER, *turn, *outputs], **fixed)

    assert last.output_text == "73"


def _without(key: str, turn: list[JSON]) -> list[JSON]:
    return [{name: value for name, value in turn[0].items() if name != key}, *turn[1:]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda turn: turn[1:], "was provided without its required 'reasoning' item"),
        (lambda turn: turn[:1], "was provided without its required following item"),
        (lambda turn: [turn[0], turn[2], turn[1]], "was provided without its required following item"),
        (lambda turn: _without("encrypted_content", turn), "Items are not persisted when `store` is set to false"),
        (lambda turn: [{**turn[0], "encrypted_content": "gAAAA"}, *turn[1:]], "could not be verified"),
        (lambda turn: [{**turn[0], "id": "rs_1"}, *turn[1:]], "could not be verified"),
        (lambda turn: [turn[0], turn[0], *turn[1:]], "Duplicate item found with id"),
        (lambda turn: [{**turn[0], "id": "reasoning"}, *turn[1:]], "Expected an ID that begins with 'rs'"),
    ],
    ids=["missing", "alone", "another order", "not signed", "altered", "another id", "twice", "no id of reasoning"],
)
async def test_reasoning_that_comes_back_otherwise_is_refused(
    serve: Serve, sdk: openai.AsyncOpenAI, change: Any, message: str
) -> None:
    server = serve(OpenAIResponsesServer, Said(thinking="Sums.", calls=CALLS[:2]))
    client = _at(sdk, server)
    fixed = {"model": "gpt-5.2", "store": False, "include": ["reasoning.encrypted_content"], "tools": [_tool()]}
    first = await client.responses.create(input=[USER], **fixed)
    outputs = [{**OUTPUT, "call_id": item.call_id} for item in first.output[1:]]
    turn = change([item.model_dump(exclude_none=True) for item in first.output])
    with pytest.raises(openai.APIStatusError) as caught:
        await client.responses.create(input=[USER, *turn, *(outputs if len(turn) > 1 else [])], **fixed)

    assert message in str(caught.value)
    assert message in server.refusals.pop()


RESPONSES: dict[str, tuple[JSON, str]] = {
    "an unknown field": ({"stop": ["x"]}, "'stop': Extra inputs are not permitted"),
    "an unknown field of an item": ({"input": [{**USER, "name": "me"}]}, "Extra inputs are not permitted"),
    "a type": ({"max_output_tokens": "9"}, "Input should be a valid integer"),
    "a role": ({"input": [{"role": "tool", "content": "x"}]}, "Invalid request"),
    "no items": ({"input": []}, "must be provided"),
    "few tokens": ({"max_output_tokens": 9}, "Expected a value >= 16"),
    "a name": ({"tools": [_tool("a.b")]}, "does not match pattern"),
    "a long name": ({"tools": [_tool("a" * 129)]}, "maximum length 128"),
    "a name twice": ({"tools": [_tool(), _tool()]}, "Duplicate function name"),
    "parameters of no object": ({"tools": [_tool(schema={"type": "string"})]}, 'type: "object"'),
    "a choice at the top": ({"tools": [_tool(schema={**ADD, "anyOf": []})]}, "at the top level"),
    "an array of nothing": (
        {"tools": [_tool(schema={"type": "object", "properties": {"a": {"type": "array"}}})]},
        "array schema missing items",
    ),
    "a tool that is not there": (
        {"tools": [_tool()], "tool_choice": {"type": "function", "name": "sub"}},
        "not found in 'tools'",
    ),
    "required without tools": ({"tool_choice": "required"}, "must be specified with 'tools'"),
    "strict with optional fields": ({"tools": [_tool(schema={**ADD, "required": ["a"]}, strict=True)]}, "'required'"),
    "strict and open": (
        {"tools": [_tool(schema={key: ADD[key] for key in ADD if key != "additionalProperties"}, strict=True)]},
        "'additionalProperties' is required",
    ),
    "an output without a call": ({"input": [USER, OUTPUT]}, "No tool call found for function call output"),
    "an output before its call": ({"input": [USER, OUTPUT, CALL]}, "No tool call found for function call output"),
    "a call without an output": ({"input": [USER, CALL]}, "No tool output found for function call c1"),
    "a call twice": ({"input": [USER, CALL, CALL, OUTPUT]}, "Duplicate call_id c1"),
    "an output twice": ({"input": [USER, CALL, OUTPUT, OUTPUT]}, "Duplicate call_id c1"),
    "a call's id": ({"input": [USER, {**CALL, "id": "call_1"}, OUTPUT]}, "Expected an ID that begins with 'fc'"),
    "a long call_id": ({"input": [USER, {**CALL, "call_id": "c" * 65}]}, "maximum length 64"),
    "input text of the assistant": (
        {"input": [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}]},
        "Supported values are: 'output_text', 'refusal'",
    ),
    "an image that is none": (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x", "detail": "auto"}]}]},
        "Expected a valid URL",
    ),
    "a file without a name": (
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_data": PNG}]}]},
        "input[0].content[0].filename",
    ),
    "much metadata": ({"metadata": {str(number): "x" for number in range(17)}}, "at most 16 properties"),
    "long metadata": ({"metadata": {"a": "x" * 513}}, "maximum length 512"),
    "a format's name": (
        {"text": {"format": {"type": "json_schema", "name": "a b", "schema": ADD, "strict": True}}},
        "does not match pattern",
    ),
    "json that is not asked for": ({"text": {"format": {"type": "json_object"}}}, "the word 'json'"),
    "temperature of a reasoning model": ({"model": "gpt-5.2", "temperature": 0.5}, "'temperature' is not supported"),
    "reasoning of another model": ({"reasoning": {"effort": "low"}}, "'reasoning' is not supported"),
}


@pytest.mark.parametrize(("change", "message"), RESPONSES.values(), ids=RESPONSES)
async def test_what_the_responses_api_refuses(
    serve: Serve, sdk: openai.AsyncOpenAI, change: JSON, message: str
) -> None:
    server = serve(OpenAIResponsesServer)
    with pytest.raises(openai.BadRequestError) as caught:
        await _at(sdk, server).post("/responses", body={"model": "gpt-4o", "input": [USER], **change}, cast_to=object)

    assert caught.value.type == "invalid_request_error"
    assert message in str(caught.value)
    assert message in server.refusals.pop()


# Chat Completions


@streaming
@pytest.mark.parametrize("interleaved", [False, True], ids=["one after the other", "interleaved"])
async def test_a_stream_of_chat_completions_is_the_same_completion(
    serve: Serve, sdk: openai.AsyncOpenAI, interleaved: bool
) -> None:
    """The SDK's own accumulator folds it."""
    said = Said(text="Let me see.", calls=CALLS, interleaved=interleaved)
    client = _at(sdk, serve(OpenAIChatServer, said, said))
    fixed = {"model": "gpt-4o", "messages": [USER], "tools": [_function()]}
    whole = await client.chat.completions.create(**fixed)
    async with client.chat.completions.stream(**fixed, stream_options={"include_usage": True}) as stream:
        async for _ in stream:
            pass
        streamed = await stream.get_final_completion()

    message, folded = whole.choices[0].message, streamed.choices[0].message
    assert (message.content, folded.content) == ("Let me see.", "Let me see.")
    expected = [("add", '{"a": 1, "b": 2}'), ("add", '{"a": 30, "b": 40}'), ("now", "{}")]
    assert [(call.function.name, call.function.arguments) for call in message.tool_calls] == expected
    assert [(call.function.name, call.function.arguments) for call in folded.tool_calls] == expected
    assert whole.choices[0].finish_reason == streamed.choices[0].finish_reason == "tool_calls"
    assert whole.usage.total_tokens == streamed.usage.total_tokens == 18


@pytest.mark.parametrize(
    ("stop", "finish"),
    [("end", "stop"), ("stop_sequence", "stop"), ("max_tokens", "length"), ("content_filter", "content_filter")],
)
async def test_how_a_completion_ends(serve: Serve, sdk: openai.AsyncOpenAI, stop: Any, finish: str) -> None:
    client = _at(sdk, serve(OpenAIChatServer, Said(text="No.", stop=stop)))
    completion = await client.chat.completions.create(model="gpt-4o", messages=[USER])

    assert completion.choices[0].finish_reason == finish


@streaming
async def test_a_refusal_is_no_content(serve: Serve, sdk: openai.AsyncOpenAI) -> None:
    said = Said(text="I will not.", stop="refusal")
    client = _at(sdk, serve(OpenAIChatServer, said, said))
    whole = await client.chat.completions.create(model="gpt-4o", messages=[USER])
    stream = await client.chat.completions.create(model="gpt-4o", messages=[USER], stream=True)
    pieces = [chunk.choices[0].delta.refusal async for chunk in stream]

    assert (whole.choices[0].message.content, whole.choices[0].message.refusal) == (None, "I will not.")
    assert "".join(filter(None, pieces)) == "I will not."


async def test_a_compatible_server_wants_its_reasoning_content_back(serve: Serve, sdk: openai.AsyncOpenAI) -> None:
    server = serve(CompatibleChatServer, Said(thinking="Sums.", calls=CALLS[:1]), Said(text="3"))
    client = _at(sdk, server)
    first = await client.chat.completions.create(model="deepseek", messages=[USER], tools=[_function()])
    message = first.choices[0].message.model_dump(exclude_none=True, exclude={"annotations"})
    result = {**RESULT, "tool_call_id": message["tool_calls"][0]["id"]}
    bare = {key: value for key, value in message.items() if key != "reasoning_content"}
    with pytest.raises(openai.BadRequestError, match="must be passed back"):
        await client.chat.completions.create(model="deepseek", messages=[USER, bare, result], tools=[_function()])
    last = await client.chat.completions.create(model="deepseek", messages=[USER, message, result], tools=[_function()])

    assert last.choices[0].message.content == "3"
    assert len(server.refusals) == 1
    server.refusals.clear()


CHAT: dict[str, tuple[JSON, str]] = {
    "an unknown field": ({"top_k": 3}, "'top_k': Extra inputs are not permitted"),
    "an unknown field of a message": (
        {"messages": [USER, {**ASSISTANT, "reasoning_content": "x"}, RESULT]},
        "Extra inputs are not permitted",
    ),
    "a role": ({"messages": [{"role": "model", "content": "x"}]}, "Invalid request"),
    "no messages": ({"messages": []}, "Expected an array with minimum length 1"),
    "no content": ({"messages": [{"role": "assistant", "content": None}]}, "expected a string, got null"),
    "empty content": ({"messages": [{"role": "user", "content": []}]}, "empty array"),
    "an image of a tool": (
        {"messages": [USER, ASSISTANT, {**RESULT, "content": [{"type": "image_url", "image_url": {"url": PNG}}]}]},
        "Invalid request",
    ),
    "a result without a call": ({"messages": [USER, RESULT]}, "must be a response to a preceeding message"),
    "a result of another call": (
        {"messages": [USER, ASSISTANT, {**RESULT, "tool_call_id": "c2"}]},
        "not found in 'tool_calls' of previous message",
    ),
    "a result twice": ({"messages": [USER, ASSISTANT, RESULT, RESULT]}, "Duplicate value for 'tool_call_id'"),
    "no result": ({"messages": [USER, ASSISTANT, USER, RESULT]}, "did not have response messages: c1"),
    "no result at the end": ({"messages": [USER, ASSISTANT]}, "did not have response messages: c1"),
    "a call's id twice": (
        {"messages": [USER, {**ASSISTANT, "tool_calls": [CHAT_CALL, CHAT_CALL]}, RESULT]},
        "Duplicate value for 'tool_call_id'",
    ),
    "a long call id": (
        {"messages": [USER, {**ASSISTANT, "tool_calls": [{**CHAT_CALL, "id": "c" * 41}]}]},
        "maximum length 40",
    ),
    "no calls": ({"messages": [USER, {**ASSISTANT, "tool_calls": []}]}, "empty array"),
    "no tools": ({"tools": []}, "Invalid 'tools': empty array"),
    "many tools": ({"tools": [_function(f"t{number}") for number in range(129)]}, "maximum length 128"),
    "a name": ({"tools": [_function("a.b")]}, "does not match pattern"),
    "a long name": ({"tools": [_function("a" * 65)]}, "maximum length 64"),
    "a name in the past": (
        {
            "messages": [
                USER,
                {**ASSISTANT, "tool_calls": [{**CHAT_CALL, "function": {"name": "a/b", "arguments": ""}}]},
            ]
        },
        "does not match pattern",
    ),
    "strict and open": (
        {"tools": [_function(schema={"type": "object", "properties": {}}, strict=True)]},
        "'additionalProperties' is required",
    ),
    "a choice without tools": ({"tool_choice": "auto"}, "only allowed when 'tools' are specified"),
    "parallel calls without tools": ({"parallel_tool_calls": False}, "only allowed when 'tools' are specified"),
    "a tool that is not there": (
        {"tools": [_function()], "tool_choice": {"type": "function", "function": {"name": "sub"}}},
        "not found in 'tools'",
    ),
    "five stop sequences": ({"stop": list("abcde")}, "expected an array of 1 to 4 strings"),
    "a stop sequence of a reasoning model": ({"model": "o4-mini", "stop": ["x"]}, "'stop' is not supported"),
    "max_tokens of a reasoning model": ({"model": "gpt-5", "max_tokens": 9}, "Use 'max_completion_tokens'"),
    "temperature of a reasoning model": ({"model": "gpt-5", "temperature": 0}, "'temperature' does not support 0"),
    "metadata that is not stored": ({"metadata": {"a": "b"}}, "only allowed when 'store' is enabled"),
    "options of no stream": ({"stream_options": {"include_usage": True}}, "only allowed when 'stream' is enabled"),
    "sound for a model without ears": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}],
                }
            ]
        },
        "does not support input_audio",
    ),
    "sound that is no wav or mp3": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "ogg"}}],
                }
            ]
        },
        "Input should be 'wav' or 'mp3'",
    ),
    "a strict format with optional fields": (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "sum", "strict": True, "schema": {**ADD, "required": []}},
            }
        },
        "'required' is required",
    ),
}


@pytest.mark.parametrize(("change", "message"), CHAT.values(), ids=CHAT)
async def test_what_chat_completions_refuse(serve: Serve, sdk: openai.AsyncOpenAI, change: JSON, message: str) -> None:
    server = serve(OpenAIChatServer)
    with pytest.raises(openai.BadRequestError) as caught:
        await _at(sdk, server).post(
            "/chat/completions", body={"model": "gpt-4o", "messages": [USER], **change}, cast_to=object
        )

    assert message in str(caught.value)
    assert message in server.refusals.pop()


@pytest.mark.parametrize("kind", [OpenAIChatServer, OpenAIResponsesServer])
async def test_a_wrong_key_and_a_rate_limit_are_the_errors_of_the_sdk(
    serve: Serve, sdk: openai.AsyncOpenAI, kind: type[ModelServer]
) -> None:
    server = serve(kind, Failed(status=429, retry_after="7"))
    client = _at(sdk, server)
    body = {"model": "gpt-4o", "messages": [USER]} if kind is OpenAIChatServer else {"model": "gpt-4o", "input": "Hi"}
    path = "/chat/completions" if kind is OpenAIChatServer else "/responses"
    with pytest.raises(openai.RateLimitError) as limited:
        await client.post(path, body=body, cast_to=object)
    with pytest.raises(openai.AuthenticationError):
        await client.with_options(api_key="sk-wrong").post(path, body=body, cast_to=object)

    assert (limited.value.code, limited.value.response.headers["retry-after"]) == ("rate_limit_exceeded", "7")
    assert server.refusals == ["Incorrect API key provided."]
    server.refusals.clear()
