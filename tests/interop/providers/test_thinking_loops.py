"""A server's tool loop with a model that thinks, against APIs that refuse a turn without its signature."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import uuid4

import anthropic
import openai
import pytest
from anyio import create_task_group, fail_after
from google import genai

from mcp_host import Client, Sampling, ServerSampling, always
from mcp_host.errors import InputNotGiven
from mcp_host.providers.adapter import ProviderModel
from mcp_host.providers.anthropic import AnthropicModel
from mcp_host.providers.exchange.reasoning import ReasoningStore, Restored
from mcp_host.providers.gemini import GeminiModel
from mcp_host.providers.openai_responses import OpenAIModel
from mcp_host.sampling import SamplingRequest
from mcp_host.testing import Context, Server
from mcp_host.types import ToolUseContent
from mcp_host.types.sampling import AssistantContentBlock
from tests.extent import THOROUGH, on_both
from tests.interop.providers.scripted import Called, Said
from tests.interop.providers.serve import Serve
from tests.interop.providers.servers.anthropic import AnthropicServer
from tests.interop.providers.servers.base import JSON, Heard, ModelServer
from tests.interop.providers.servers.gemini import GeminiServer
from tests.interop.providers.servers.openai_responses import OpenAIResponsesServer

TURNS = 20 if THOROUGH else 6
IN_TIME = 60  # seconds for some forty requests to servers on this machine


@asynccontextmanager
async def _anthropic(server: ModelServer) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=server.url, api_key=server.key, max_retries=0) as client:
        yield client


@asynccontextmanager
async def _openai(server: ModelServer) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=server.key, max_retries=0) as client:
        yield client


@asynccontextmanager
async def _gemini(server: ModelServer) -> AsyncIterator[genai.Client]:
    client = genai.Client(api_key=server.key, http_options=genai.types.HttpOptions(base_url=server.url))
    with client:  # on trio the adapter uses the blocking side, which has sockets of its own
        async with client.aio:
            yield client


@dataclass(frozen=True)
class Api:
    """An API, and how its requests say what a test wants to know of them."""

    server: type[ModelServer]
    connect: Callable[[ModelServer], AbstractAsyncContextManager[Any]]
    adapter: type[ProviderModel]
    model: str
    result: str
    """Each result of a tool has it."""
    signature: str
    """Each turn that was thought has it."""
    options: JSON | None = None

    def results(self, heard: Heard) -> int:
        return json.dumps(heard.body).count(self.result)

    def signatures(self, heard: Heard) -> int:
        return json.dumps(heard.body).count(self.signature)

    def think(self, heard: Heard, thoughts: count[int]) -> Said:
        """A call with a thought in each of its turns, then an answer."""
        places = self.results(heard)
        if places == TURNS:
            return Said(text="Nothing is there.")
        return Said(thinking=f"Secret thought {next(thoughts)}", calls=[Called("look", {"place": places})])


APIS = {
    "Anthropic": Api(
        AnthropicServer,
        _anthropic,
        AnthropicModel,
        "claude-sonnet-5",
        '"tool_result"',
        '"signature"',
        {"thinking": {"type": "adaptive"}},
    ),
    "Gemini": Api(GeminiServer, _gemini, GeminiModel, "gemini-3-pro", '"functionResponse"', '"thoughtSignature"'),
    "OpenAI Responses": Api(
        OpenAIResponsesServer, _openai, OpenAIModel, "gpt-5.2", '"function_call_output"', '"encrypted_content":'
    ),
}


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Api:
    return APIS[request.param]


@pytest.fixture(params=["2025-11-25", "2026-07-28"])
def version(request: pytest.FixtureRequest) -> str:
    revision: str = request.param
    return revision


def _serve_thoughts(serve: Serve, api: Api) -> ModelServer:
    thoughts = count(1)
    return serve(api.server, decide=lambda heard: api.think(heard, thoughts))


@asynccontextmanager
async def _connected(api: Api, model: ModelServer, server: Server, **fields: Any) -> AsyncIterator[Client]:
    async with api.connect(model) as sdk:
        adapter = api.adapter(sdk, api.model, options=api.options, **fields)
        async with Client(server, sampling=Sampling(with_tools=adapter, approve=always)) as client:
            yield client


def _explorer(version: str, change: Callable[[JSON], None] = lambda answer: None) -> tuple[Server, list[JSON]]:
    """A server whose tool runs the loop, and what it got. *change* changes each answer that it got."""
    server = Server("explorer", versions=[version])
    got: list[JSON] = []

    async def look(place: int) -> str:
        return f"There is nothing at {place}."

    @server.tool
    async def explore(topic: str, context: Context) -> str:
        async def create_message(params: JSON) -> JSON:
            answer = json.loads(json.dumps(await context.request("sampling/createMessage", params)))
            got.append(json.loads(json.dumps(answer)))
            change(answer)
            changed: JSON = answer
            return changed

        sampling = ServerSampling(create_message, with_tools=True)
        loop = await sampling.sample_loop(topic, tools=[look], max_turns=TURNS + 5)
        return f"{len(loop.steps)} steps: {loop.text}"

    return server, got


async def _outcome(client: Client) -> str:
    """How the call ended if the model was refused: since 2026-07-28 for the client, before that for the tool."""
    try:
        result = await client.call_tool("explore", {"topic": "The moon"})
    except InputNotGiven as exc:
        return str(exc)
    assert result.is_error
    return result.text


def _uses(answer: JSON) -> list[JSON]:
    content = answer["content"]
    return [block for block in (content if isinstance(content, list) else [content]) if block["type"] == "tool_use"]


def _drop_meta(answer: JSON) -> None:
    answer.pop("_meta", None)
    for block in _uses(answer):
        block.pop("_meta", None)


@pytest.mark.parametrize(
    ("change", "stream"),
    [(lambda answer: None, False), (_drop_meta, True)],
    ids=["the server keeps _meta", "the server drops _meta, streamed"],
)
async def test_each_turn_goes_back_with_its_reasoning_which_the_server_never_sees(
    serve: Serve, api: Api, version: str, change: Callable[[JSON], None], stream: bool
) -> None:
    model = _serve_thoughts(serve, api)
    server, got = _explorer(version, change)
    store = ReasoningStore()
    with fail_after(IN_TIME):
        async with _connected(api, model, server, stream=stream, reasoning=store) as client:
            result = await client.call_tool("explore", {"topic": "The moon"})

    assert result.text == f"{TURNS + 1} steps: Nothing is there."
    assert [api.signatures(heard) for heard in model.heard] == list(range(TURNS + 1))
    assert len(got) == TURNS + 1
    assert "Secret" not in json.dumps(got)
    assert "ignature" not in json.dumps(got)
    assert len(store) == 0  # it forgets with the call


@on_both
async def test_loops_at_once_get_their_own_reasoning(serve: Serve, api: Api, version: str) -> None:
    """Two begin with the same words. A thought of another loop is refused: the API knows with which call it came."""
    model = _serve_thoughts(serve, api)
    server, _ = _explorer(version)
    texts: list[str] = []

    async def explore(topic: str) -> None:
        texts.append((await client.call_tool("explore", {"topic": topic})).text)

    with fail_after(IN_TIME):
        async with _connected(api, model, server) as client, create_task_group() as tasks:
            for topic in ("The moon", "The moon", "The sea"):
                tasks.start_soon(explore, topic)

    assert texts == [f"{TURNS + 1} steps: Nothing is there."] * 3
    assert sorted(map(api.signatures, model.heard)) == sorted([*range(TURNS + 1)] * 3)


class Forgetful(ReasoningStore):
    """Keeps nothing, and does not know that it has lost something."""

    def keep(self, turn: object, content: Any, **fields: Any) -> list[AssistantContentBlock]:
        """The ids are the provider's, if it has some."""
        return [
            block.model_copy(update={"id": block.id or uuid4().hex}) if isinstance(block, ToolUseContent) else block
            for block in content
        ]

    def restore(self, request: SamplingRequest, **fields: Any) -> Restored:
        return Restored(request)


REFUSALS = {
    "Anthropic": "Expected `thinking` or `redacted_thinking`, but found `tool_use`",
    "OpenAI Responses": "was provided without its required 'reasoning' item",
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_without_the_store_the_same_apis_refuse_the_second_turn(serve: Serve, name: str, version: str) -> None:
    api = APIS[name]
    model = _serve_thoughts(serve, api)
    server, got = _explorer(version)
    with fail_after(IN_TIME):
        async with _connected(api, model, server, reasoning=Forgetful()) as client:
            outcome = await _outcome(client)

    assert "this client's model failed" in outcome
    assert len(got) == 1
    assert REFUSALS[name] in model.refusals.pop()


async def test_without_the_store_gemini_gets_calls_as_text(serve: Serve, version: str) -> None:
    """It takes no call without its signature, and a signature is never made up."""
    api = APIS["Gemini"]
    model = serve(api.server, Said(thinking="Secret", calls=[Called("look", {"place": 1})]), Said(text="Nothing."))
    server, _ = _explorer(version)
    with fail_after(IN_TIME):
        async with _connected(api, model, server, reasoning=Forgetful()) as client:
            result = await client.call_tool("explore", {"topic": "The moon"})

    assert result.text == "2 steps: Nothing."
    assert api.signatures(model.heard[-1]) == api.results(model.heard[-1]) == 0
    assert "look" in json.dumps(model.last["contents"])


def _change_third_call(answer: JSON) -> None:
    for block in _uses(answer):
        if block["input"]["place"] == 2:
            block["input"]["place"] = 1000


async def test_an_altered_history_goes_on_without_the_reasoning_of_that_turn(
    serve: Serve, api: Api, version: str
) -> None:
    """The model sees the call as the server tells it, and no thought of another call beside it."""
    turns = [Said(thinking=f"Secret {n}", calls=[Called("look", {"place": n})]) for n in range(3)]
    model = serve(api.server, *turns, Said(text="Nothing."))
    server, _ = _explorer(version, _change_third_call)
    with fail_after(IN_TIME):
        async with _connected(api, model, server) as client:
            result = await client.call_tool("explore", {"topic": "The moon"})

    assert result.text == "4 steps: Nothing."
    assert [api.signatures(heard) for heard in model.heard[:3]] == [0, 1, 2]
    assert api.signatures(model.heard[3]) <= 2
    assert "1000" in json.dumps(model.last)


async def test_an_altered_history_is_refused_by_choice(serve: Serve, api: Api, version: str) -> None:
    model = serve(api.server, *(Said(thinking=f"Secret {n}", calls=[Called("look", {"place": n})]) for n in range(3)))
    server, got = _explorer(version, _change_third_call)
    with fail_after(IN_TIME):
        async with _connected(api, model, server, altered_history="refuse") as client:
            outcome = await _outcome(client)

    assert "altered history" in outcome
    assert (len(model.heard), len(got)) == (3, 3)
