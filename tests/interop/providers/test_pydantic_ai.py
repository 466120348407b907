"""Models of pydantic-ai: what is written for a request, what a response says, and pydantic-ai's own test models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import anthropic
import openai
import pytest
from anyio import create_task_group, fail_after, to_thread
from pydantic_ai.exceptions import UnexpectedModelBehavior, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage

from mcp_host import FunctionTool
from mcp_host.errors import InputRefused, ProviderError, SamplingError
from mcp_host.providers import Delta, PydanticAIModel
from mcp_host.providers.exchange.failures import Unfinished
from mcp_host.providers.exchange.replies import Call, Reply
from mcp_host.providers.exchange.requests import Prompt
from mcp_host.providers.pydantic_ai import read_event, read_reply, with_options, write_request
from mcp_host.sampling import Sampling, always, run_tool_loop
from mcp_host.sampling.request import ModelAnswer
from mcp_host.types import AudioContent, CreateMessageResult, ImageContent, TextContent, ToolUseContent
from tests.interop.providers.scripted import Broken, Called, Failed, Said, Stalled
from tests.interop.providers.serve import Serve
from tests.interop.providers.servers.anthropic import AnthropicServer
from tests.interop.providers.servers.base import ModelServer
from tests.interop.providers.servers.openai_chat import OpenAIChatServer
from tests.interop.providers.servers.openai_responses import OpenAIResponsesServer
from tests.providers.prompts import names_of
from tests.sampling.asking import ADD, MULTIPLY, Wire, assistant, request, result, text, use, user, wire

IMAGE = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "UklGRgAAAABXQVZF", "mimeType": "audio/wav"}
BINARY = {"kind": "binary", "data": "iVBORw0KGgo=", "media_type": "image/png"}
SOUND = {"kind": "binary", "data": AUDIO["data"], "media_type": "audio/wav"}


PLAIN: Wire = {"type": "object", "properties": {}}  # what all providers take


def prompt(*messages: Wire, turns: dict[int, object] | None = None, **fields: Any) -> Prompt:
    asked = request(*messages, **fields)
    return Prompt(asked, "test", names_of(asked, PydanticAIModel.name_rule), turns=turns or {})


def prompted(content: object) -> Wire:
    return {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": content}]}


def returned(content: object, *, tool: str = "add", id: str = "call_1", outcome: str = "success") -> Wire:
    written = {"part_kind": "tool-return", "tool_name": tool, "tool_call_id": id}
    return {**written, "content": content, "outcome": outcome}


def calls(*blocks: Wire) -> list[Wire]:
    """A conversation whose tool ``add`` has this result."""
    return [user(text("1+2?")), assistant(use("call_1", a=1)), user(result("call_1", *blocks))]


CALLED = {
    "kind": "response",
    "parts": [{"part_kind": "tool-call", "tool_name": "add", "args": {"a": 1}, "tool_call_id": "call_1"}],
}


# Requests


@pytest.mark.parametrize(
    ("content", "written"),
    [
        ([text("hello")], "hello"),
        ([text("hello"), text(""), text("there")], "hello\nthere"),
        ([text("look"), IMAGE], ["look", BINARY]),
        ([AUDIO], [SOUND]),
    ],
    ids=["text", "texts", "image", "audio"],
)
def test_what_a_user_says_is_one_prompt(content: list[Wire], written: object) -> None:
    assert write_request(prompt(user(*content))) == {"messages": [prompted(written)], "max_tokens": 100}


@pytest.mark.parametrize(
    ("content", "written"),
    [
        ([text("3")], "3"),
        ([], ""),
        ([text("3"), IMAGE], ["3", BINARY]),
        ([AUDIO], [SOUND]),
        ([{"type": "resource", "resource": {"uri": "file:///a", "text": "notes"}}], "Contents of file:///a:\nnotes"),
        (
            [{"type": "resource", "resource": {"uri": "a:", "blob": "PGEvPg==", "mimeType": "application/a+xml"}}],
            "Contents of a::\n<a/>",
        ),
        (
            [{"type": "resource", "resource": {"uri": "a:", "blob": BINARY["data"], "mimeType": "application/pdf"}}],
            [{**BINARY, "media_type": "application/pdf"}],
        ),
        (
            [{"type": "resource_link", "uri": "file:///a", "name": "a"}],
            '{"name":"a","uri":"file:///a","type":"resource_link"}',
        ),
    ],
    ids=["text", "nothing", "image", "audio", "text resource", "text file", "binary resource", "link"],
)
def test_what_a_tool_result_has_is_written(content: list[Wire], written: object) -> None:
    body = write_request(prompt(*calls(*content), tools=[ADD]))

    assert body["messages"] == [prompted("1+2?"), CALLED, {"kind": "request", "parts": [returned(written)]}]


def test_a_failed_tool_and_structured_content_are_written() -> None:
    failed = result("call_1", text("no"), isError=True, structuredContent={"why": "overflow"})

    body = write_request(prompt(user(text("1+2?")), assistant(use("call_1", a=1)), user(failed), tools=[ADD]))

    assert body["messages"][2]["parts"] == [returned('no\n{"why":"overflow"}', outcome="failed")]


def test_parallel_results_are_written_in_order_with_the_names_of_their_tools() -> None:
    body = write_request(
        prompt(
            user(text()),
            assistant(text("both"), use("a", "files/read.text"), use("b", "add")),
            user(result("a", text("1")), result("b", text("2"))),
            tools=[ADD, {"name": "files/read.text", "inputSchema": {"type": "object"}}],
        )
    )

    assert [part.get("tool_name") for part in body["messages"][1]["parts"]] == [None, "files_read_text", "add"]
    assert body["messages"][2]["parts"] == [
        returned("1", tool="files_read_text", id="a"),
        returned("2", tool="add", id="b"),
    ]
    assert [tool["name"] for tool in body["tools"]] == ["add", "files_read_text"]


def test_the_settings_of_a_request_are_written() -> None:
    body = write_request(
        prompt(
            systemPrompt="Be brief.",
            temperature=0.5,
            stopSequences=["END"],
            tools=[{**ADD, "description": "Adds."}],
            toolChoice={"mode": "auto", "disable_parallel_tool_use": True},
        )
    )

    assert body == {
        "messages": [{**prompted("hello"), "instructions": "Be brief."}],
        "max_tokens": 100,
        "temperature": 0.5,
        "stop_sequences": ["END"],
        "tools": [{"name": "add", "parameters_json_schema": PLAIN, "description": "Adds."}],
        "parallel_tool_calls": False,
    }


@pytest.mark.parametrize(
    ("choice", "written"),
    [
        (None, None),
        ({"mode": "auto"}, None),
        ({"mode": "required"}, "required"),
        ({"mode": "none"}, "none"),
        ({"type": "tool", "name": "add"}, ["add"]),
    ],
)
def test_the_tool_choice_is_written(choice: Wire | None, written: object) -> None:
    assert write_request(prompt(tools=[ADD], toolChoice=choice)).get("tool_choice") == written


def test_the_tools_of_the_conversation_are_declared_where_none_are_offered() -> None:
    body = write_request(prompt(*calls(text("3"))))

    assert body["tools"] == [{"name": "add", "parameters_json_schema": {"type": "object"}}]
    assert body["tool_choice"] == "none"


def test_a_restored_turn_replaces_what_the_message_says() -> None:
    turn = {"kind": "response", "parts": [{"part_kind": "thinking", "content": "hm", "signature": "s"}]}

    assert write_request(prompt(*calls(text("3")), tools=[ADD], turns={1: turn}))["messages"][1] == turn


@pytest.mark.parametrize(
    ("messages", "fields", "says"),
    [
        (
            [user(text()), assistant(IMAGE), user(text())],
            {},
            "messages[1]: this model takes no image in an assistant's message",
        ),
        (
            calls({"type": "resource", "resource": {"uri": "a:", "blob": "aGVsbG8="}}),
            {},
            "messages[2]: this model takes no files of an unknown type",
        ),
        (calls({**IMAGE, "mimeType": "image/bmp"}), {}, "messages[2]: this model takes no image/bmp"),
        ([user({**IMAGE, "mimeType": ""})], {}, "messages[0]: this model takes no files of an unknown type"),
        ([user(text())], {"metadata": {"user": "1"}}, "metadata: this model takes none"),
        ([user(text(""))], {}, "messages: this model takes no empty text, and there is nothing else"),
    ],
    ids=["image of the model", "unknown file", "image that few take", "unknown image", "metadata", "nothing"],
)
def test_what_has_no_place_is_refused(messages: list[Wire], fields: Wire, says: str) -> None:
    with pytest.raises(InputRefused) as refusal:
        write_request(prompt(*messages, **fields))

    assert (refusal.value.code, str(refusal.value)) == (-32602, says)


# Replies


def response(*parts: Wire, **fields: object) -> Wire:
    return {
        "kind": "response",
        "parts": list(parts),
        "model_name": "m-2026",
        "finish_reason": "stop",
        "state": "complete",
        "usage": {"input_tokens": 11, "output_tokens": 7, "output_reasoning_tokens": 0, "cache_read_tokens": 3},
        "provider_details": None,
        **fields,
    }


USAGE = {"inputTokens": 11, "outputTokens": 7, "cacheReadTokens": 3}
SAID = {"part_kind": "text", "content": "hi", "id": None, "provider_details": None}
USED = {"part_kind": "tool-call", "tool_name": "add", "args": '{"a": 1}', "tool_call_id": "c1", "id": None}


def test_text_and_calls_are_read() -> None:
    assert read_reply(response(SAID, USED, finish_reason="tool_call"), prompt(tools=[ADD])) == Reply(
        content=["hi", Call("c1", "add", '{"a": 1}')],
        model="m-2026",
        stop_reason="toolUse",
        usage=USAGE,
    )


@pytest.mark.parametrize(
    ("fields", "stop_reason"),
    [
        ({"finish_reason": "stop"}, "endTurn"),
        ({"finish_reason": None}, "endTurn"),
        ({"finish_reason": "length"}, "maxTokens"),
        ({"finish_reason": "tool_call"}, "endTurn"),  # without a call
        ({"finish_reason": "content_filter"}, "content_filter"),
        ({"finish_reason": "stop", "provider_details": {"finish_reason": "stop_sequence"}}, "stopSequence"),
        ({"finish_reason": "content_filter", "provider_details": {"finish_reason": "refusal"}}, "refusal"),
        ({"finish_reason": "stop", "provider_details": {"timestamp": "now"}}, "endTurn"),
        ({"finish_reason": "stop", "state": "suspended"}, "pause_turn"),
    ],
)
def test_stop_reasons_are_read(fields: Wire, stop_reason: str) -> None:
    assert read_reply(response(SAID, **fields), prompt()).stop_reason == stop_reason


@pytest.mark.parametrize(
    "hidden",
    [
        {"part_kind": "thinking", "content": "hm", "signature": "s", "provider_name": "anthropic"},
        {"part_kind": "text", "content": "", "id": "msg_1"},
        {**USED, "provider_details": {"thought_signature": "s"}},
    ],
    ids=["thinking", "id", "signature of a call"],
)
def test_what_the_provider_wants_back_is_kept_as_the_turn(hidden: Wire) -> None:
    reply = response(hidden, USED, provider_name="anthropic", provider_response_id="r1")

    read = read_reply(reply, prompt(tools=[ADD]))

    assert read.turn == {
        "kind": "response",
        "parts": [hidden, USED],
        "model_name": "m-2026",
        "provider_name": "anthropic",
    }
    assert all(isinstance(block, Call) for block in read.content)


@pytest.mark.parametrize("id", ["c1", "c2"])  # a server may repeat ids
def test_of_parallel_calls_that_are_not_allowed_the_first_is_kept_in_the_answer_and_the_turn(id: str) -> None:
    thinking = {"part_kind": "thinking", "content": "hm"}
    choice = {"mode": "auto", "disable_parallel_tool_use": True}

    read = read_reply(response(thinking, USED, {**USED, "tool_call_id": id}), prompt(tools=[ADD], toolChoice=choice))

    assert read.content == [Call("c1", "add", '{"a": 1}')]
    assert isinstance(read.turn, dict)
    assert read.turn["parts"] == [thinking, USED]


def test_images_and_audio_of_the_model_are_read() -> None:
    file = {"part_kind": "file", "content": BINARY}
    sound = {"part_kind": "file", "content": SOUND}

    assert read_reply(response(file, sound), prompt()).content == [
        ImageContent(data=BINARY["data"], mime_type="image/png"),
        AudioContent(data=SOUND["data"], mime_type="audio/wav"),
    ]


@pytest.mark.parametrize(
    ("reply", "error", "says"),
    [
        (response(SAID, state="incomplete"), Unfinished, ""),
        ({}, Unfinished, ""),
        (response(SAID, finish_reason="error"), SamplingError, "the model ended its answer with an error"),
        (response({"part_kind": "speech"}), SamplingError, "the model answered with speech"),
        (
            response({"part_kind": "file", "content": {**BINARY, "media_type": "text/csv"}}),
            SamplingError,
            "the model answered with a file that is neither an image nor audio",
        ),
    ],
    ids=["incomplete", "nothing", "error", "speech", "file"],
)  # fmt: skip
def test_what_is_no_answer_is_an_error(reply: Wire, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as raised:
        read_reply(reply, prompt())

    assert (type(raised.value), str(raised.value)) == (error, says)


def test_a_model_that_counts_no_tokens_has_no_usage() -> None:
    assert read_reply(response(SAID, usage={"input_tokens": 0}), prompt()).usage is None


def test_the_events_of_a_stream_are_text_and_at_the_end_the_response() -> None:
    reply: Wire = {}

    assert [read_event(reply, event) for event in ({"text": "h"}, {"text": "i"}, {"response": response(SAID)})] == [
        *("h", "i", ""),
    ]
    assert reply == response(SAID)


# With pydantic-ai's own models


async def test_a_request_reaches_the_model_as_pydantic_ais_own_messages() -> None:
    heard: list[tuple[list[ModelMessage], AgentInfo]] = []

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        heard.append((messages, info))
        return ModelResponse([TextPart("3")], finish_reason="stop")

    model = PydanticAIModel(FunctionModel(answer, model_name="tested"), options={"temperature": 0.25, "seed": 7})
    answered = await model(request(*calls(text("3")), tools=[ADD], temperature=1, systemPrompt="Be brief."))

    [(messages, info)] = heard
    asked, called, results = messages
    assert isinstance(asked, ModelRequest)
    assert isinstance(asked.parts[0], UserPromptPart)
    assert (asked.parts[0].content, asked.instructions) == ("1+2?", "Be brief.")
    assert called.parts == [ToolCallPart("add", {"a": 1}, "call_1")]
    assert isinstance(results.parts[0], ToolReturnPart)
    assert (results.parts[0].content, results.parts[0].outcome) == ("3", "success")
    assert [(tool.name, tool.parameters_json_schema) for tool in info.function_tools] == [("add", PLAIN)]
    assert info.model_settings == {"max_tokens": 100, "temperature": 0.25, "seed": 7}
    assert isinstance(answered, CreateMessageResult)
    assert (answered.text, answered.model, answered.stop_reason) == ("3", "tested", "endTurn")


async def test_the_tools_that_a_server_repeats_are_defined_once() -> None:
    heard: list[AgentInfo] = []

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        heard.append(info)
        return ModelResponse([TextPart("3")])

    model = PydanticAIModel(FunctionModel(answer))
    for tools in ([ADD], [ADD], [MULTIPLY], [], [ADD]):
        await model(request(tools=tools))

    assert [[tool.name for tool in info.function_tools] for info in heard] == [
        *(["add"], ["add"], ["multiply"], [], ["add"]),
    ]
    assert heard[0].function_tools[0] is heard[1].function_tools[0]


async def test_the_usage_of_a_model_is_in_its_answer() -> None:
    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart("3")], usage=RequestUsage(input_tokens=11, output_tokens=7, cache_read_tokens=3))

    answered = await PydanticAIModel(FunctionModel(answer))(request())

    assert isinstance(answered, ModelAnswer)
    assert answered.usage == USAGE


async def test_a_tool_loop_runs_with_pydantic_ais_test_model() -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    with fail_after(25):
        done = await run_tool_loop(PydanticAIModel(TestModel()), "1+2?", tools=[add])

    assert done.text == '{"add":"0"}'  # what this model does: it calls every tool once, and shows the results


async def test_a_stream_shows_text_as_it_comes_and_gives_the_same_answer() -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        yield "let "
        yield "me see"
        yield {0: DeltaToolCall(name="add", json_args='{"a"', tool_call_id="c1")}
        yield {0: DeltaToolCall(json_args=": 1}")}

    shown: list[str] = []

    def show(delta: Delta) -> None:
        shown.append(delta.text)

    model = PydanticAIModel(FunctionModel(stream_function=stream), on_delta=show)
    answer = await model(request(tools=[ADD]))

    assert "".join(shown) == "let me see"
    assert isinstance(answer, CreateMessageResult)
    assert answer.content == [TextContent(text="let me see"), ToolUseContent(id="c1", name="add", input={"a": 1})]


async def test_on_delta_gets_no_text_after_a_stop_sequence() -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "2 +EN"
        yield "D 3"

    shown: list[str] = []
    model = PydanticAIModel(FunctionModel(stream_function=stream), on_delta=lambda delta: shown.append(delta.text))
    answer = await model(request(stopSequences=["END"]))

    assert ("".join(shown), answer.text, answer.stop_reason) == ("2 +", "2 +", "stopSequence")


async def test_thinking_stays_in_the_host() -> None:
    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([ThinkingPart("hm"), TextPart("3")])

    asked = Sampling(with_tools=PydanticAIModel(FunctionModel(answer)), approve=always)
    answered = await asked.session(server="s", knows_tools=True).answer(wire(), None)

    assert answered.content == [TextContent(text="3")]


async def test_what_the_model_leaves_out_is_done_here() -> None:
    class WithoutStop(TestModel):
        unsupported_settings = frozenset({"stop_sequences", "parallel_tool_calls"})

    model = PydanticAIModel(WithoutStop(call_tools=[], custom_output_text="2 +END 3"))
    one_call = {"mode": "auto", "disable_parallel_tool_use": True}
    answered = await model(request(stopSequences=["END"], tools=[ADD], toolChoice=one_call))

    assert (answered.text, answered.stop_reason) == ("2 +", "stopSequence")


NO_SOUND = "messages[0]: this model takes no audio/wav"


@pytest.mark.parametrize(
    ("refusal_of_pydantic_ai", "says"),
    [
        (NotImplementedError("BinaryContent with audio is not supported, secret"), NO_SOUND),
        (RuntimeError("Unsupported binary content type: secret"), NO_SOUND),
        (
            UserError("Unsupported image format: secret"),
            "this model does not take all of this request: the type of a file, or a setting",
        ),
    ],
    ids=["kind of a file", "type of a file", "setting"],
)
async def test_what_pydantic_ai_cannot_write_is_refused_without_its_text(
    refusal_of_pydantic_ai: Exception, says: str
) -> None:
    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise refusal_of_pydantic_ai

    with pytest.raises(InputRefused) as refusal:
        await PydanticAIModel(FunctionModel(answer))(request(user(AUDIO)))

    assert (refusal.value.code, str(refusal.value)) == (-32602, says)


PDF: Wire = {"type": "resource", "resource": {"uri": "a:", "blob": "JVBERi0x", "mimeType": "application/pdf"}}


@pytest.mark.parametrize(
    ("says", "left"),
    [
        (
            "BinaryContent with audio is not supported in OpenAI Responses tool returns",
            ["application/pdf", "image/png"],
        ),
        ("Only images are supported for BinaryContent in Groq user prompts", ["image/png"]),
        ("Files are not supported in Cohere tool returns", []),
    ],
    ids=["no audio", "only images", "nothing"],
)
async def test_files_of_a_tool_that_pydantic_ai_refuses_without_their_types_are_named(
    says: str, left: list[str]
) -> None:
    seen: list[list[str]] = []

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        seen.append([file.media_type for part in parts for file in part.files])
        if seen[-1] != left:
            raise NotImplementedError(says)
        return ModelResponse([TextPart("ok")])

    assert (await PydanticAIModel(FunctionModel(answer))(request(*calls(PDF, IMAGE, AUDIO), tools=[ADD]))).text == "ok"
    assert seen[-1] == left


async def test_other_errors_of_pydantic_ai_are_failures() -> None:
    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise RuntimeError("Model requests are not allowed")

    with pytest.raises(ProviderError, match=r"^pydantic-ai: RuntimeError$"):
        await PydanticAIModel(FunctionModel(answer))(request(user(text())))


async def test_a_stream_that_pydantic_ai_cannot_read_is_a_failure() -> None:
    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "Hello"
        raise UnexpectedModelBehavior("secret")

    with pytest.raises(ProviderError, match=r"^pydantic-ai: the reply cannot be read$") as caught:
        await PydanticAIModel(FunctionModel(stream_function=answer), stream=True)(request(user(text())))

    assert not caught.value.transient


@pytest.mark.parametrize(("model", "kind"), [("openai:gpt-6", "str"), (None, "NoneType"), (TestModel, "ABCMeta")])
def test_what_is_no_model_of_pydantic_ai_is_an_error_at_once(model: object, kind: str) -> None:
    with pytest.raises(TypeError, match=f"^model has to be a model of pydantic-ai, not {kind}$"):
        PydanticAIModel(model)


# With pydantic-ai's models of real APIs


@asynccontextmanager
async def of_anthropic(server: ModelServer, model: str = "claude-sonnet-5") -> AsyncIterator[Model]:
    async with anthropic.AsyncAnthropic(base_url=server.url, api_key=server.key, max_retries=0) as client:
        yield AnthropicModel(model, provider=AnthropicProvider(anthropic_client=client))


@asynccontextmanager
async def of_openai(server: ModelServer) -> AsyncIterator[OpenAIProvider]:
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=server.key, max_retries=0) as client:
        yield OpenAIProvider(openai_client=client)


@asynccontextmanager
async def of_responses(server: ModelServer) -> AsyncIterator[Model]:
    async with of_openai(server) as provider:
        yield OpenAIResponsesModel("gpt-5.2", provider=provider)


@asynccontextmanager
async def of_chat(server: ModelServer) -> AsyncIterator[Model]:
    async with of_openai(server) as provider:
        yield OpenAIChatModel("gpt-6", provider=provider)


REAL: dict[type[ModelServer], Callable[[ModelServer], AbstractAsyncContextManager[Model]]] = {
    AnthropicServer: of_anthropic,
    OpenAIResponsesServer: of_responses,
    OpenAIChatServer: of_chat,
}


@pytest.fixture(params=REAL, ids=lambda kind: kind.__name__.removesuffix("Server"))
def kind(request: pytest.FixtureRequest) -> type[ModelServer]:
    kind: type[ModelServer] = request.param
    return kind


of_an_sdk_that_leaves_generators = pytest.mark.filterwarnings(  # after ``[DONE]``, or when cancelled; trio warns of it
    "ignore:Async generator '(anthropic|openai|httpx2|httpcore2):ResourceWarning"
)


@of_an_sdk_that_leaves_generators
@pytest.mark.parametrize("stream", [False, True], ids=["at once", "streamed"])
async def test_a_tool_loop_over_a_real_api(kind: type[ModelServer], serve: Serve, stream: bool) -> None:
    server = serve(
        kind,
        Said(text="Two at once.", calls=[Called("math_add", {"a": 1, "b": 2}), Called("math_add", {"a": 3, "b": 4})]),
        Said(text="3 and 7", stop="end"),
    )

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    with fail_after(25):
        async with REAL[kind](server) as model:
            done = await run_tool_loop(
                PydanticAIModel(model, stream=stream), "1+2 and 3+4?", tools=[FunctionTool(add, name="math/add")]
            )

    assert done.text == "3 and 7"
    assert [str(call.result.text) for step in done.steps for call in step.calls] == ["3", "7"]
    assert len(server.heard) == 2


@pytest.mark.parametrize("stream", [False, True], ids=["at once", "streamed"])
async def test_a_rate_limit_of_a_real_api_says_when_to_come_back(
    kind: type[ModelServer], serve: Serve, stream: bool
) -> None:
    server = serve(kind, Failed(status=429, retry_after="7"))

    async with REAL[kind](server) as model:
        with fail_after(25), pytest.raises(ProviderError) as error:
            await PydanticAIModel(model, stream=stream)(request())

    assert (error.value.provider, error.value.status, error.value.retry_after) == ("pydantic-ai", 429, 7.0)
    assert error.value.transient


async def test_the_failure_of_the_last_of_several_models_counts(kind: type[ModelServer], serve: Serve) -> None:
    server = serve(kind, Failed(status=400), Failed(status=429, retry_after="7"))

    async with REAL[kind](server) as first, REAL[kind](server) as second:
        with fail_after(25), pytest.raises(ProviderError) as error:
            await PydanticAIModel(FallbackModel(first, second))(request())

    assert (error.value.status, error.value.retry_after, error.value.transient) == (429, 7.0, True)


@pytest.mark.parametrize("said", [Said(text="Half an answer, or less."), Said(calls=[Called("add", {"a": 1, "b": 2})])])
async def test_a_stream_of_a_real_api_that_ends_early_is_never_an_answer(
    kind: type[ModelServer], serve: Serve, said: Said
) -> None:
    """It is closed cleanly, after each of its events."""
    server = serve(kind)
    async with REAL[kind](server) as model:
        asked = PydanticAIModel(model, stream=True)
        errors: list[ProviderError] = []
        answered = None
        while answered is None:
            server.say(Broken(said=said, events=len(errors), is_closed=True))
            try:
                with fail_after(25):
                    answered = await asked(request(tools=[ADD]))
            except ProviderError as error:
                errors.append(error)

    assert isinstance(answered, CreateMessageResult)
    assert len(errors) > 2
    assert {(str(error), error.transient) for error in errors} == {
        ("pydantic-ai: the stream ended before the answer was complete", True)
    }
    assert [block.to_wire() for block in answered.content if isinstance(block, TextContent)] == (
        [{"type": "text", "text": said.text}] if said.text else []
    )
    assert [use.input for use in answered.tool_uses] == [call.arguments for call in said.calls]


@of_an_sdk_that_leaves_generators
async def test_cancelling_closes_the_stream_of_a_real_api(kind: type[ModelServer], serve: Serve) -> None:
    server = serve(kind, Stalled(said=Said(text="never ending"), events=4))

    async with REAL[kind](server) as model, create_task_group() as tasks:
        tasks.start_soon(PydanticAIModel(model, stream=True), request())
        with fail_after(25):
            await to_thread.run_sync(server.stalled.wait, 10)
            tasks.cancel_scope.cancel()

    assert await to_thread.run_sync(server.unfinished.wait, 10)


@pytest.mark.parametrize(
    "body", ["null", "[]", "{}", '{"error": "boom"}', '{"content": [{"type": "text"}]}', "<html>Sign in</html>"]
)
@pytest.mark.parametrize("kind", ["application/json", "text/html"])
async def test_a_reply_that_pydantic_ai_does_not_check_is_not_the_hosts_mistake(
    serve: Serve, body: str, kind: str
) -> None:
    """It takes those of Anthropic's SDK as they are."""
    async with of_anthropic(serve(AnthropicServer, Failed(status=200, body=body, kind=kind))) as model:
        with pytest.raises(ProviderError, match=r"^pydantic-ai: the reply cannot be read$"):
            await PydanticAIModel(model)(request())


async def test_a_file_that_only_the_real_model_knows_it_cannot_take_is_refused_or_named(serve: Serve) -> None:
    """Refused with its message where the user sent it, and named where a tool did, with another type beside it."""
    film = {"type": "resource", "resource": {"uri": "file:///a.mp4", "blob": "UEsDBA==", "mimeType": "video/mp4"}}
    server = serve(AnthropicServer, Said(text="ok"))
    async with of_anthropic(server) as model:
        with pytest.raises(InputRefused) as refusal:
            await PydanticAIModel(model)(request(user(text("Hear.")), assistant(text("Yes?")), user(IMAGE, AUDIO)))
        after = [user(text()), assistant(use("1")), user(result("1", AUDIO, film))]
        await PydanticAIModel(model)(request(*after, tools=[ADD]))

    assert (refusal.value.code, str(refusal.value)) == (-32602, "messages[2]: this model takes no audio/wav")
    for named in ("audio/wav, 12 bytes: this", "video/mp4, 4 bytes, file:///a.mp4: this"):
        assert f"[{named} model takes no {named.partition(',')[0]}]" in str(server.last)


async def test_a_setting_that_a_real_model_cannot_take_is_refused(serve: Serve) -> None:
    shown = [
        user(text(), IMAGE),
        assistant(use("1")),
        user(result("1", text("3"), IMAGE)),
        assistant(text()),
        user(text()),
    ]
    async with of_anthropic(serve(AnthropicServer)) as model:
        with pytest.raises(InputRefused, match=r"^this model does not take all of this request"):
            await PydanticAIModel(model, options=BUDGET)(request(*shown, tools=[ADD]))


BUDGET: Wire = {"anthropic_thinking": {"type": "enabled", "budget_tokens": 2048}}
"""Of models that do not decide themselves how much they think."""


@pytest.mark.parametrize("stream", [False, True], ids=["at once", "streamed"])
async def test_a_budget_of_thinking_goes_with_what_the_server_asks(serve: Serve, stream: bool) -> None:
    """It is added to the maximum of tokens, and off where a tool is required, or the turn has lost its thinking."""
    server = serve(
        AnthropicServer,
        Said(thinking="Step.", calls=[Called("add", {"a": 1, "b": 2})]),
        *[Said(text="3")] * 2,
        Said(calls=[Called("add", {"a": 1, "b": 2})]),
    )
    async with of_anthropic(server, "claude-opus-4-5") as real:
        model = PydanticAIModel(real, stream=stream, options=BUDGET)
        call = (await model(request(user(text()), tools=[ADD]))).tool_uses[0]
        kept = [user(text()), assistant(call.to_wire()), user(result(call.id, text("3")))]
        await model(request(*kept, tools=[ADD]))
        strange = [user(text()), assistant(use("1")), user(result("1", text("3")))]
        await model(request(*strange, tools=[ADD]))
        await model(request(user(text()), tools=[ADD], toolChoice={"mode": "required"}))

    enabled = ({"type": "enabled", "budget_tokens": 2048}, 2048 + 100)
    disabled = ({"type": "disabled"}, 100)
    asked = [(heard.body["thinking"], heard.body["max_tokens"]) for heard in server.heard]
    assert asked == [enabled, enabled, disabled, disabled]


THOUGHT = {"kind": "response", "parts": [{"part_kind": "thinking", "content": "Hm."}, {"part_kind": "tool-call"}]}
STEP = [assistant(use("1")), user(result("1", text("3")))]
NEXT = [assistant(use("2")), user(result("2", text("4")))]


@pytest.mark.parametrize(
    ("messages", "restored", "lost", "kind"),
    [
        ([user(text()), *STEP], [1], [], "enabled"),
        ([user(text()), *STEP], [], [1], "disabled"),
        ([user(text()), *STEP, *NEXT], [1], [], "enabled"),
        ([user(text()), *STEP, *NEXT], [1], [3], "disabled"),
        ([user(text()), *STEP, assistant(text()), user(text())], [], [1], "enabled"),
        (STEP, [], [], "disabled"),
    ],
    ids=["restored", "lost", "no more of it", "more of it lost", "of an earlier turn", "at the beginning"],
)
def test_thinking_is_off_in_the_rest_of_a_turn_that_has_lost_some(
    messages: list[Wire], restored: list[int], lost: list[int], kind: str
) -> None:
    asked = prompt(*messages, turns=dict.fromkeys(restored, THOUGHT), tools=[ADD])
    asked = replace(asked, lost=frozenset(lost), options=BUDGET)

    assert with_options(write_request(asked), asked)["anthropic_thinking"]["type"] == kind


async def test_a_maximum_of_tokens_in_the_options_has_the_budget(serve: Serve) -> None:
    server = serve(AnthropicServer, Said(text="3"))
    async with of_anthropic(server, "claude-opus-4-5") as real:
        await PydanticAIModel(real, options={**BUDGET, "max_tokens": 4096})(request(user(text())))

    assert (server.last["thinking"], server.last["max_tokens"]) == (BUDGET["anthropic_thinking"], 4096)


async def test_an_answer_is_cut_at_a_stop_sequence_that_the_api_does_not_have(serve: Serve) -> None:
    async with of_responses(serve(OpenAIResponsesServer, Said(text="2 +END 3"))) as model:
        answered = await PydanticAIModel(model)(request(stopSequences=["END"]))

    assert (answered.text, answered.stop_reason) == ("2 +", "stopSequence")


CHOICES: dict[type[ModelServer], tuple[object, object, object]] = {
    AnthropicServer: ({"type": "none"}, {"type": "any"}, {"type": "tool", "name": "add"}),
    OpenAIResponsesServer: ("none", "required", {"type": "function", "name": "add"}),
    OpenAIChatServer: ("none", "required", {"type": "function", "function": {"name": "add"}}),
}


@pytest.mark.parametrize("choice", [{"mode": "none"}, {"mode": "required"}, {"type": "tool", "name": "add"}])
async def test_the_tool_choice_reaches_a_real_api(kind: type[ModelServer], serve: Serve, choice: Wire) -> None:
    server = serve(kind, Said(text="ok"))

    async with REAL[kind](server) as model:
        await PydanticAIModel(model)(request(tools=[ADD, MULTIPLY], toolChoice=choice))

    assert (
        server.last.get("tool_choice") == CHOICES[kind][["none", "required", "tool"].index(choice.get("mode", "tool"))]
    )


THINKING: dict[type[ModelServer], Wire] = {
    AnthropicServer: {"anthropic_thinking": {"type": "adaptive"}},
    OpenAIResponsesServer: {"openai_reasoning_effort": "low", "openai_store": False},
}


@of_an_sdk_that_leaves_generators
@pytest.mark.parametrize("kind", THINKING, ids=["Anthropic", "OpenAI Responses"])
@pytest.mark.parametrize("stream", [False, True], ids=["at once", "streamed"])
async def test_thinking_comes_back_to_a_real_api_in_each_round_of_a_loop(
    kind: type[ModelServer], serve: Serve, stream: bool
) -> None:
    """The server refuses calls without the thinking that it has signed."""
    rounds = [
        Said(thinking=f"Step {number}.", calls=[Called("add", {"a": number, "b": 1}), Called("add", {"a": 0, "b": 0})])
        for number in range(5)
    ]
    server = serve(kind, *rounds, Said(text="done"))

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async with REAL[kind](server) as model:
        asked = PydanticAIModel(model, stream=stream, options=THINKING[kind])
        with fail_after(25):
            done = await run_tool_loop(asked, "Add.", tools=[add])

    assert (done.text, len(server.heard)) == ("done", 6)
    assert "Step" not in str([message.to_wire() for message in done.messages])
