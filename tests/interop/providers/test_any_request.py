"""Any valid sampling request is one that the provider's API takes, or it is refused with a sentence."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_ai.models.test import TestModel

from mcp_host.errors import InputRefused, ProviderError
from mcp_host.providers.adapter import ProviderModel
from mcp_host.providers.anthropic import AnthropicModel
from mcp_host.providers.gemini import GeminiModel
from mcp_host.providers.ollama import OllamaModel
from mcp_host.providers.openai_chat import OpenAIChatModel
from mcp_host.providers.openai_responses import OpenAIModel
from mcp_host.providers.pydantic_ai import PydanticAIModel
from tests.extent import THOROUGH
from tests.interop.providers.servers.anthropic import AnthropicServer
from tests.interop.providers.servers.base import Heard, ModelServer
from tests.interop.providers.servers.gemini import GeminiServer
from tests.interop.providers.servers.ollama import OllamaServer
from tests.interop.providers.servers.openai_chat import CompatibleChatServer, OpenAIChatServer
from tests.interop.providers.servers.openai_responses import OpenAIResponsesServer
from tests.sampling.asking import Wire, assistant, request, result, text, use, user

EXAMPLES = 5000 if THOROUGH else 30


def encoded(raw: bytes) -> str:
    return b64encode(raw).decode()


FILES = {
    "image/png": encoded(b"\x89PNG\r\n\x1a\n"),
    "IMAGE/PNG; q=1": encoded(b"\x89PNG\r\n\x1a\n"),
    "audio/wav": encoded(b"RIFF"),
    "application/pdf": encoded(b"%PDF-1.4"),
    "text/plain": encoded("ü".encode()),
    "text/csv": encoded(b"\xff"),
    "text/x-empty": "",
    "video/mp4": encoded(b"x"),
    "": encoded(b"x"),
}
WORDS = st.text(max_size=5) | st.sampled_from(["", " ", "\n", "ü" * 70])
NAMES = st.sampled_from(["add", "a/b", "a.b", "天気", "x" * 128, "1", "_"])
URIS = st.sampled_from(["http://[", "", "file:///a.pdf", "x:y", "u" * 600])
KEYWORDS = (
    *(
        "a",
        "type",
        "properties",
        "required",
        "anyOf",
        "allOf",
        "oneOf",
        "$ref",
        "$defs",
        "items",
        "enum",
        "const",
        "not",
    ),
    *(
        "description",
        "minimum",
        "exclusiveMinimum",
        "additionalProperties",
        "pattern",
        "$schema",
        "format",
        "title",
        "if",
    ),
    *("patternProperties", "dependentSchemas", "ü key", "default", "prefixItems"),
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS
TYPES = st.sampled_from(["object", "array", "string", "integer", "#/$defs/a", "#", "#/properties/a"])
JSON = st.recursive(
    SCALARS | TYPES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(WORDS, JSON, max_size=2)


SCHEMAS = st.dictionaries(st.sampled_from(KEYWORDS), JSON, max_size=5)


def file(kind: str, mime: str) -> Wire:
    return {"type": kind, "data": FILES[mime], "mimeType": mime}


def resource(uri: str, **fields: object) -> Wire:
    return {"type": "resource", "resource": {"uri": uri, **fields}}


TEXTS = WORDS.map(text)
BROKEN = {"type": "image", "data": "no base64", "mimeType": "image/png"}
MEDIA = st.builds(file, st.sampled_from(["image", "audio"]), st.sampled_from([*FILES, *["image/png"] * 9])) | st.just(
    BROKEN
)
RESULTS = st.one_of(
    TEXTS,
    MEDIA,
    st.builds(lambda uri, words: resource(uri, text=words), URIS, WORDS),
    st.builds(lambda uri, mime: resource(uri, blob=FILES[mime], mimeType=mime), URIS, st.sampled_from([*FILES])),
    st.builds(lambda uri, name: {"type": "resource_link", "uri": uri, "name": name}, URIS, WORDS),
)
CALLS = st.tuples(NAMES, OBJECTS, st.lists(RESULTS, max_size=3), st.none() | OBJECTS, st.booleans(), st.booleans())
ROUNDS = st.lists(st.tuples(st.lists(TEXTS, max_size=1), st.lists(CALLS, min_size=1, max_size=3)), max_size=2)


def conversation(first: list[Wire], rounds: Any, answer: list[Wire], last: list[Wire]) -> list[Wire]:
    messages = [user(*first)]
    ids = iter(f"call {number}" for number in range(100))
    for said, calls in rounds:
        uses: list[Wire] = []
        results: list[Wire] = []
        for name, arguments, content, structured, failed, reverse in calls:
            id = next(ids)
            uses.append({**use(id, name), "input": arguments})
            more: Wire = {} if structured is None else {"structuredContent": structured}
            results.insert(0 if reverse else len(results), result(id, *content, isError=failed, **more))
        messages += [assistant(*said, *uses), user(*results)]
    if answer:
        messages.append(assistant(*answer))
    if last:
        messages.append(user(*last))
    return messages


CONVERSATIONS = st.builds(
    conversation,
    st.lists(TEXTS | MEDIA, min_size=1, max_size=2),
    ROUNDS,
    st.lists(TEXTS | MEDIA, max_size=2),
    st.lists(TEXTS | MEDIA, max_size=2),
)
TOOLS = st.lists(
    st.fixed_dictionaries({"name": NAMES, "inputSchema": SCHEMAS}, optional={"description": WORDS}),
    max_size=3,
    unique_by=lambda tool: str(tool["name"]),
)
FIELDS: Any = st.fixed_dictionaries(
    {"maxTokens": st.integers(1, 2**40)},
    optional={
        "temperature": st.sampled_from([0, 0.5, 1, 1.5, -1, math.nan, math.inf]),
        "metadata": st.dictionaries(WORDS, SCALARS, max_size=1) | st.just({"user_id": "u"}),
        "stopSequences": st.lists(WORDS, max_size=6),
        "systemPrompt": WORDS,
        "toolChoice": st.fixed_dictionaries(
            {"mode": st.sampled_from(["auto", "required", "none"])},
            optional={"disable_parallel_tool_use": st.booleans()},
        ),
    },
)


class Asked(Exception):
    """What the SDK would have been asked."""

    def __init__(self, body: Wire) -> None:
        super().__init__()
        self.body = body


class Asking(ProviderModel):
    """Asks no SDK."""

    _sdk: ClassVar[Any] = None

    async def request_reply(self, body: Wire) -> Any:
        raise Asked(body)

    @asynccontextmanager
    async def request_events(self, body: Wire) -> AsyncIterator[AsyncIterator[Any]]:
        raise Asked(body)
        yield  # pragma: no cover


class AskingAnthropic(Asking, AnthropicModel): ...


class AskingOpenAI(Asking, OpenAIModel): ...


class AskingOpenAIChat(Asking, OpenAIChatModel): ...


class AskingGemini(Asking, GeminiModel):
    async def request_reply(self, body: Wire) -> Any:
        raise Asked(self._fields(body))


class AskingOllama(Asking, OllamaModel): ...


class AskingPydanticAI(Asking, PydanticAIModel): ...


@dataclass(frozen=True, slots=True)
class Api:
    """An adapter, and what its server hears beside the body."""

    model: Callable[[], ProviderModel]
    server: Callable[[], ModelServer] | None
    path: str = ""
    headers: Wire | None = None


BEARER = {"authorization": f"Bearer {ModelServer.key}"}
APIS = {
    "anthropic": Api(
        lambda: AskingAnthropic(None, "claude-sonnet-5"),
        AnthropicServer,
        "/v1/messages",
        {"x-api-key": AnthropicServer.key, "anthropic-version": "2026-10-21"},
    ),
    "openai": Api(lambda: AskingOpenAI(None, "gpt-5.6"), OpenAIResponsesServer, "/v1/responses", BEARER),
    "openai-chat": Api(
        lambda: AskingOpenAIChat(None, "gpt-audio", dialect="openai"), OpenAIChatServer, "/v1/chat/completions", BEARER
    ),
    "compatible": Api(
        lambda: AskingOpenAIChat(None, "gpt-audio"), CompatibleChatServer, "/v1/chat/completions", BEARER
    ),
    "gemini": Api(
        lambda: AskingGemini(SimpleNamespace(vertexai=False), "gemini-3-pro", stream=False),
        GeminiServer,
        "/v1beta/models/gemini-3-pro:generateContent",
        {"x-goog-api-key": GeminiServer.key},
    ),
    "ollama": Api(lambda: AskingOllama(None, "qwen3"), OllamaServer, "/api/chat", BEARER),
    "pydantic-ai": Api(lambda: AskingPydanticAI(TestModel()), None),
}


async def written(model: ProviderModel, asked: Any) -> Wire | None:
    """The body of the request; None if it was refused."""
    with pytest.raises((InputRefused, ProviderError)) as caught:
        await model(asked)
    if isinstance(caught.value, InputRefused):
        assert ": this model takes " in str(caught.value)
        return None
    assert isinstance(caught.value, ProviderError)
    assert isinstance(caught.value.original, Asked), repr(caught.value.original)
    body: Wire = json.loads(json.dumps(caught.value.original.body, allow_nan=False, ensure_ascii=False).encode())
    return body


@pytest.mark.parametrize("name", APIS)
def test_any_valid_request_is_one_that_the_provider_takes_or_it_is_refused(name: str) -> None:
    api = APIS[name]
    model = api.model()
    server = None if api.server is None else api.server()

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(CONVERSATIONS, TOOLS, FIELDS)
    def run(messages: list[Wire], tools: list[Wire], fields: Wire) -> None:
        more: Any = {"tools": tools} if tools else {}
        asked = request(*messages, **fields, **more)
        body = anyio.run(written, model, asked)
        if body is None:
            return
        if server is None:
            assert isinstance(model, PydanticAIModel)
            model._arguments(body)
        else:
            server.check(Heard(api.path, api.headers or {}, body))

    run()
