"""The adapters under contract: how each is opened on a local server through the provider's SDK, and how its API says things."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import anthropic
import ollama
import openai
from google import genai
from google.genai.types import HttpOptions
from pydantic_ai.models.openai import OpenAIChatModel as PydanticAIOpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from mcp_host.providers.adapter import ProviderModel
from mcp_host.providers.anthropic import AnthropicModel
from mcp_host.providers.gemini import GeminiModel
from mcp_host.providers.ollama import OllamaModel
from mcp_host.providers.openai_chat import OpenAIChatModel
from mcp_host.providers.openai_responses import OpenAIModel
from mcp_host.providers.pydantic_ai import PydanticAIModel
from tests.interop.providers.contract.matrix import MATRIX, Cell
from tests.interop.providers.scripted import Called, Said
from tests.interop.providers.servers.anthropic import AnthropicServer
from tests.interop.providers.servers.base import JSON, ModelServer, sse
from tests.interop.providers.servers.gemini import GeminiServer
from tests.interop.providers.servers.ollama import OllamaServer
from tests.interop.providers.servers.openai_chat import CompatibleChatServer, OpenAIChatServer
from tests.interop.providers.servers.openai_responses import OpenAIResponsesServer

Opened: TypeAlias = AbstractAsyncContextManager[Callable[..., ProviderModel]]


def say_calls(name: str, arguments: JSON) -> Said:
    """What a model says that has to call the tool *name*."""
    return Said(calls=[Called(name, arguments)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """An adapter under contract.

    *open* connects the SDK's client to a URL with a key, and gives a function that makes the adapter, with its keyword
    arguments. *choices* are the native tool choices, by feature, as *choice* reads them from a request.
    """

    name: str
    server: type[ModelServer]
    open: Callable[[str, str], Opened]
    choice: Callable[[JSON], object]
    choices: Mapping[str, object]
    metadata: JSON
    """As the provider takes it."""
    stream_error: bytes
    """The event with which a stream fails that has begun. Its text is secret."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Stop reasons that are not those of the neutral script."""
    thinking: Mapping[str, object] | None = None
    """The options with which the model thinks and its server refuses a call without its thinking."""
    text_arguments: Mapping[str, object] | None = None
    """Arguments of the adapter with which broken arguments of a call can come from the API."""
    has_ids: bool = True
    """Whether the API has ids of calls."""
    required: Callable[[str, JSON], Said] = say_calls
    """What the model says if any tool is required."""
    forced: Callable[[str, JSON], Said] = say_calls
    """What the model says if one tool is required."""
    audio: Mapping[str, object] = field(default_factory=dict)
    """Arguments of the adapter with which it takes audio."""

    def cell(self, feature: str) -> Cell:
        """What the adapter does with a feature."""
        return MATRIX[self.name][feature]


def leaves(value: object) -> Iterator[object]:
    """All texts, numbers and the like in a request; of texts that are JSON, what is in them, too."""
    match value:
        case dict():
            for inner in value.values():
                yield from leaves(inner)
        case list():
            for inner in value:
                yield from leaves(inner)
        case str():
            yield value
            if value.startswith(("{", "[")):
                try:
                    inner = json.loads(value)
                except ValueError:
                    return
                yield from leaves(inner)
        case _:
            yield value


def reached(server: ModelServer, marker: object) -> bool:
    """Whether *marker*, a text or a number, is somewhere in the last request."""
    if isinstance(marker, str):
        return any(isinstance(leaf, str) and marker in leaf for leaf in leaves(server.last))
    return any(leaf == marker and type(leaf) is type(marker) for leaf in leaves(server.last))


THOUGHTS = {"signature", "thoughtSignature", "encrypted_content", "reasoning_content", "thinking"}


def thoughts(value: object) -> int:
    """The number of signed, encrypted or plain thoughts in the messages of a request."""
    if isinstance(value, list):
        return sum(map(thoughts, value))
    if isinstance(value, dict):
        return bool(THOUGHTS & value.keys()) + sum(map(thoughts, value.values()))
    return 0


def exchanges(value: object) -> Iterator[tuple[Literal["call", "result"], object, str]]:
    """The calls and results in a request, each with its id and as a text."""
    match value:
        case list():
            for inner in value:
                yield from exchanges(inner)
        case {"tool_use_id": id} | {"tool_call_id": id} | {"type": "function_call_output", "call_id": id}:
            yield "result", id, str(value)
        case {"functionResponse": {"id": id}}:
            yield "result", id, str(value)
        case {"type": "tool_use" | "function", "id": id} | {"type": "function_call", "call_id": id}:
            yield "call", id, str(value)
        case {"functionCall": {"id": id}}:
            yield "call", id, str(value)
        case dict():
            for inner in value.values():
                yield from exchanges(inner)


def tools_of(value: object) -> Iterator[tuple[str, JSON]]:
    """The names and schemas of the tools in a request, as the provider has them."""
    if isinstance(value, list):
        for inner in value:
            yield from tools_of(inner)
    if isinstance(value, dict):
        for name in ("input_schema", "parameters", "parametersJsonSchema"):
            if "name" in value and isinstance(value.get(name), dict):
                yield value["name"], value[name]
                return
        for inner in value.values():
            yield from tools_of(inner)


# Nothing is encrypted here, and to load the certificates of a computer takes longer than a test: "verify" is off.


@asynccontextmanager
async def _anthropic(url: str, key: str) -> AsyncIterator[Callable[..., ProviderModel]]:
    http = anthropic.DefaultAsyncHttpxClient(verify=False)
    async with anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=0, http_client=http) as client:

        def make(**arguments: Any) -> ProviderModel:
            return AnthropicModel(client, "claude-sonnet-5", **arguments)

        yield make


@asynccontextmanager
async def _openai(url: str, key: str) -> AsyncIterator[openai.AsyncOpenAI]:
    http = openai.DefaultAsyncHttpxClient(verify=False)
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, http_client=http) as client:
        yield client


@asynccontextmanager
async def _responses(url: str, key: str) -> AsyncIterator[Callable[..., ProviderModel]]:
    async with _openai(url, key) as client:

        def make(**arguments: Any) -> ProviderModel:
            return OpenAIModel(client, "gpt-5.6", **arguments)

        yield make


@asynccontextmanager
async def _chat(url: str, key: str) -> AsyncIterator[Callable[..., ProviderModel]]:
    async with _openai(url, key) as client:

        def make(*, model: str = "gpt-4.1", **arguments: Any) -> ProviderModel:
            return OpenAIChatModel(client, model, dialect="openai", **arguments)

        yield make


@asynccontextmanager
async def _compatible(url: str, key: str) -> AsyncIterator[Callable[..., ProviderModel]]:
    async with _openai(url, key) as client:

        def make(*, model: str = "qwen3", **arguments: Any) -> ProviderModel:
            return OpenAIChatModel(client, model, **arguments)

        yield make


@asynccontextmanager
async def _gemini(url: str, key: str) -> AsyncIterator[Callable[..., ProviderModel]]:
    options = HttpOptions(base_url=url, client_args={"verify": False}, async_client_args={"verify": False})
    client = genai.Client(api_key=key, http_options=options)

    def make(**arguments: Any) -> ProviderModel:
        return GeminiModel(client, "gemini-3-pro", **arguments)

    with client:  # on trio the adapter uses the blocking side, which has sockets of its own
        async with client.aio:
            yield make
        client.close()


@asynccontextmanager
async def _ollama(url: str, key: str) -> AsyncIterator[Callable[..., ProviderModel]]:
    client = ollama.AsyncClient(host=url, headers={"authorization": f"Bearer {key}"}, verify=False)

    def make(**arguments: Any) -> ProviderModel:
        return OllamaModel(client, "qwen3", **arguments)

    try:
        yield make
    finally:
        await client._client.aclose()


@asynccontextmanager
async def _pydantic_ai(url: str, key: str) -> AsyncIterator[Callable[..., ProviderModel]]:
    async with _openai(url, key) as client:

        def make(*, model: str = "gpt-4.1", **arguments: Any) -> ProviderModel:
            chat = PydanticAIOpenAIChatModel(model, provider=OpenAIProvider(openai_client=client))
            return PydanticAIModel(chat, **arguments)

        yield make


def say_as_json(name: str, arguments: JSON) -> Said:
    """What a model says that has to answer after the schema of its only tool."""
    return Said(text=json.dumps(arguments))


def say_call_as_json(name: str, arguments: JSON) -> Said:
    """What a model says that has to answer after a schema of all calls."""
    return Said(text=json.dumps({"name": name, "arguments": arguments}))


SECRET = "secret"
CHAT_ERROR = sse({"error": {"message": SECRET, "type": "server_error", "param": None, "code": None}})

ADAPTERS = [
    Adapter(
        name="anthropic",
        server=AnthropicServer,
        open=_anthropic,
        choice=lambda body: body.get("tool_choice"),
        choices={
            "choice.auto": {"type": "auto"},
            "choice.required": {"type": "any"},
            "choice.none": {"type": "none"},
            "choice.one": {"type": "tool", "name": "add"},
            "choice.single": {"type": "auto", "disable_parallel_tool_use": True},
        },
        metadata={"user_id": "marker-metadata"},
        stream_error=sse({"type": "error", "error": {"type": "overloaded_error", "message": SECRET}}, "error"),
        reasons={"content_filter": "refusal"},
        thinking={"thinking": {"type": "enabled", "budget_tokens": 1024}},
        text_arguments={"stream": True},
    ),
    Adapter(
        name="openai",
        server=OpenAIResponsesServer,
        open=_responses,
        choice=lambda body: (body.get("tool_choice"), body.get("parallel_tool_calls")),
        choices={
            "choice.auto": ("auto", None),
            "choice.required": ("required", None),
            "choice.none": ("none", None),
            "choice.one": (None, None),
            "choice.single": ("auto", False),
        },
        metadata={"trace": "marker-metadata"},
        stream_error=sse(
            {"type": "error", "code": "server_error", "message": SECRET, "param": None, "sequence_number": 9}, "error"
        ),
        thinking={"reasoning": {"effort": "high"}},
        text_arguments={},
        forced=say_as_json,
    ),
    Adapter(
        name="openai-chat",
        server=OpenAIChatServer,
        open=_chat,
        choice=lambda body: (body.get("tool_choice"), body.get("parallel_tool_calls")),
        choices={
            "choice.auto": ("auto", None),
            "choice.required": ("required", None),
            "choice.none": ("none", None),
            "choice.one": (None, None),
            "choice.single": ("auto", False),
        },
        metadata={"trace": "marker-metadata"},
        stream_error=CHAT_ERROR,
        text_arguments={},
        forced=say_as_json,
        audio={"model": "gpt-audio"},
        reasons={"stop_sequence": "endTurn"},
    ),
    Adapter(
        name="openai-chat compatible",
        server=CompatibleChatServer,
        open=_compatible,
        choice=lambda body: (body.get("tool_choice"), len(body.get("tools", []))),
        choices={
            "choice.auto": ("auto", 2),
            "choice.required": ("required", 2),
            "choice.none": (None, 0),
            "choice.one": ("required", 1),
            "choice.single": ("auto", 2),
        },
        metadata={"trace": "marker-metadata"},
        stream_error=CHAT_ERROR,
        thinking={},
        text_arguments={},
        audio={"model": "gpt-audio"},
        reasons={"stop_sequence": "endTurn"},
    ),
    Adapter(
        name="gemini",
        server=GeminiServer,
        open=_gemini,
        choice=lambda body: body.get("toolConfig", {}).get("functionCallingConfig"),
        choices={
            "choice.auto": {"mode": "AUTO"},
            "choice.required": {"mode": "ANY"},
            "choice.none": {"mode": "NONE"},
            "choice.one": {"mode": "ANY", "allowedFunctionNames": ["add"]},
            "choice.single": {"mode": "AUTO"},
        },
        metadata={"trace": "marker-metadata"},
        stream_error=sse({"error": {"code": 503, "message": SECRET, "status": "UNAVAILABLE"}}),
        reasons={"stop_sequence": "endTurn", "refusal": "content_filter"},
        thinking={"thinking_config": {"thinking_level": "high"}},
    ),
    Adapter(
        name="ollama",
        server=OllamaServer,
        open=_ollama,
        choice=lambda body: ("tools" in body, "format" in body),
        choices={
            "choice.auto": (True, False),
            "choice.required": (False, True),
            "choice.none": (False, False),
            "choice.one": (False, True),
            "choice.single": (True, False),
        },
        metadata={"trace": "marker-metadata"},
        stream_error=json.dumps({"error": SECRET}).encode() + b"\n",
        reasons={"stop_sequence": "endTurn", "refusal": "endTurn", "content_filter": "endTurn"},
        thinking={"think": True},
        has_ids=False,
        forced=say_as_json,
        required=say_call_as_json,
    ),
    Adapter(
        name="pydantic-ai",
        server=OpenAIChatServer,
        open=_pydantic_ai,
        choice=lambda body: (body.get("tool_choice"), body.get("parallel_tool_calls")),
        choices={
            "choice.auto": ("auto", None),
            "choice.required": ("required", None),
            "choice.none": ("none", None),
            "choice.one": ({"type": "function", "function": {"name": "add"}}, None),
            "choice.single": ("auto", False),
        },
        metadata={"trace": "marker-metadata"},
        stream_error=CHAT_ERROR,
        text_arguments={},
        reasons={"stop_sequence": "endTurn", "refusal": "content_filter"},
        audio={"model": "gpt-audio"},
    ),
]
