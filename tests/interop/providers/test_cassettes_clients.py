"""Cassettes with the clients of providers' SDKs, also blocking ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import anthropic
import anyio
import httpx2
import openai
import pytest
from anyio import fail_after
from google import genai

from mcp_host.providers.gemini import GeminiModel
from mcp_host.testing import Cassette, CassetteError
from tests.interop.providers.contract import asking
from tests.interop.providers.scripted import Said
from tests.interop.providers.servers.gemini import GeminiServer
from tests.interop.providers.servers.openai_chat import OpenAIChatServer
from tests.testing.cassettes.provider import Provider
from tests.testing.test_cassettes_http import client_of

IN_TIME = 30.0  # seconds


async def ask_anthropic(http: httpx2.AsyncClient, url: str) -> object:
    async with anthropic.AsyncAnthropic(api_key="any", base_url=url, http_client=http) as api:
        return await api.messages.create(model="small", max_tokens=9, messages=[{"role": "user", "content": "3 by 5"}])


async def ask_openai(http: httpx2.AsyncClient, url: str) -> object:
    async with openai.AsyncOpenAI(api_key="any", base_url=url, http_client=http) as api:
        return await api.chat.completions.create(model="small", messages=[{"role": "user", "content": "3 by 5"}])


@pytest.mark.parametrize("ask", [ask_anthropic, ask_openai])
async def test_an_sdk_does_not_repeat_a_request_that_is_not_in_the_file_nor_hide_the_difference(
    tmp_path: Path, provider: Provider, ask: Callable[[httpx2.AsyncClient, str], Awaitable[object]]
) -> None:
    """These repeat what fails with an exception of the transport: twice, after a pause."""
    path = tmp_path / "cassette.json"
    async with client_of(path, "httpx2") as client:
        await client.post(f"{provider.url}/limited", json={})
    asked: list[str] = []

    async def note(request: httpx2.Request) -> None:
        asked.append(request.method)

    with pytest.raises(CassetteError, match=r"POST http://localhost/.* is not in"), Cassette(path) as cassette:
        await ask(cassette.http_client(event_hooks={"request": [note]}), "http://localhost")

    assert asked == ["POST"]


@pytest.mark.parametrize("client", ["SDK", "plain"])
def test_a_request_that_is_not_in_the_file_is_an_error_that_shows_the_difference(tmp_path: Path, client: str) -> None:
    path = tmp_path / "cassette.json"
    with OpenAIChatServer().running() as server, Cassette(path) as cassette:
        server.say(Said(text="15"))
        assert ask_without_async(cassette, f"{server.url}/v1", server.key, "3 by 5") == "15"
    with Cassette(path) as cassette:
        assert ask_without_async(cassette, "http://localhost/v1", "another", "3 by 5") == "15"
    with pytest.raises(CassetteError, match=r'-.*"3 by 5"'), Cassette(path) as cassette:  # noqa: PT012  # as it ends
        if client == "SDK":
            ask_without_async(cassette, "http://localhost/v1", "another", "3 by 6")
        else:
            httpx2.Client(transport=cassette.http_transport()).post("http://localhost/v1", json={"text": "3 by 6"})


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("backends", [("asyncio", "trio"), ("trio", "asyncio")], ids=["from asyncio", "from trio"])
def test_a_file_of_gemini_is_replayed_on_the_other_backend_if_stream_is_set(
    tmp_path: Path, backends: tuple[str, str], stream: bool
) -> None:
    """By default, only trio streams."""

    async def ask(url: str, key: str) -> str:
        with fail_after(IN_TIME), Cassette(tmp_path / "cassette.json", require_all=True) as cassette:
            transport = {"transport": cassette.http_transport()}
            options = genai.types.HttpOptions(base_url=url, client_args=transport, async_client_args=transport)
            async with GeminiModel(genai.Client(api_key=key, http_options=options), "gemini-3", stream=stream) as model:
                return (await asking.ask(model)).text

    api = GeminiServer()
    with api.running():
        api.say(Said(text="Ada."))
        recorded = anyio.run(ask, api.url, api.key, backend=backends[0])

    assert recorded == anyio.run(ask, "http://127.0.0.1:1", "any", backend=backends[1]) == "Ada."


def ask_without_async(cassette: Cassette, url: str, key: str, text: str) -> str | None:
    with openai.OpenAI(
        base_url=url, api_key=key, http_client=httpx2.Client(transport=cassette.http_transport())
    ) as api:
        reply = api.chat.completions.create(model="small", messages=[{"role": "user", "content": text}])
    return reply.choices[0].message.content
