"""The contract of adapters, mistakes of the host: each is one sentence that helps, has no secret, and is not asked again."""

from __future__ import annotations

import json

import pytest

from mcp_host.errors import ProviderError
from mcp_host.providers import Model, Models
from tests.interop.providers.contract.adapters import Adapter
from tests.interop.providers.contract.asking import ask, request
from tests.interop.providers.scripted import Failed
from tests.interop.providers.serve import Serve

NO_SERVER = "http://127.0.0.1:9"  # nothing gets as far as a connection

BAD_HEADER = "a header, such as the key, has a character that HTTP does not allow"


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def how(request: pytest.FixtureRequest) -> dict[str, object]:
    return {"stream": request.param}


async def test_a_key_with_a_line_break_is_a_mistake_that_no_fallback_hides(
    adapter: Adapter, serve: Serve, how: dict[str, object]
) -> None:
    server = serve(adapter.server)
    async with adapter.open(server.url, "sk-secret\nsk-secret") as make:
        asked = Model(make(**how), name="asked")
        models = Models([asked, Model(lambda request: "another", name="fallback")], fallback=True)

        with pytest.raises(ProviderError, match=f": {BAD_HEADER}$") as raised:
            await models(request())

    assert (raised.value.transient, server.heard) == (False, [])
    assert "secret" not in repr(raised.value)


KEYS = {
    "anthropic": " (ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN)",
    "openai": " (OPENAI_API_KEY)",
    "gemini": " (GEMINI_API_KEY or GOOGLE_API_KEY)",
    "ollama": " (OLLAMA_API_KEY)",
    "pydantic-ai": "",
}


async def test_a_key_that_is_not_accepted_says_where_it_comes_from(
    adapter: Adapter, serve: Serve, how: dict[str, object]
) -> None:
    server = serve(adapter.server, Failed(status=401, body="{}"), Failed(status=403, body="{}"))
    async with adapter.open(server.url, server.key) as make:
        with pytest.raises(ProviderError) as not_authenticated:
            await ask(make(**how))
        with pytest.raises(ProviderError) as not_allowed:
            await ask(make(**how))

    name = not_allowed.value.provider
    key = f"the client's key{KEYS[name]}"
    assert str(not_authenticated.value) == f"{name}: not authenticated: is {key} right? (HTTP 401)"
    assert str(not_allowed.value) == f"{name}: not allowed: may {key} use this model? (HTTP 403)"


async def test_what_the_host_handles_meanwhile_is_no_part_of_a_failure(
    adapter: Adapter, serve: Serve, how: dict[str, object]
) -> None:
    """A host asks again because the last answer was broken JSON: Python links that error as a context of ours."""
    server = serve(adapter.server, Failed(status=401, body="{}"))
    async with adapter.open(server.url, server.key) as make:
        try:
            json.loads('{"a": "cut')
        except ValueError:
            with pytest.raises(ProviderError) as raised:
                await ask(make(**how))

    assert (raised.value.status, raised.value.transient) == (401, False)


async def test_redirects_without_an_end_are_a_mistake_in_the_url(
    adapter: Adapter, serve: Serve, how: dict[str, object]
) -> None:
    server = serve(adapter.server, decide=lambda heard: Failed(status=307, location=heard.path))
    async with adapter.open(server.url, server.key) as make:
        with pytest.raises(ProviderError, match=r" \(its URL leads to redirects without an end\)$") as raised:
            await ask(make(**how))

    assert (raised.value.status, raised.value.transient) == (None, False)


async def test_a_client_that_is_closed_is_a_mistake(adapter: Adapter, how: dict[str, object]) -> None:
    async with adapter.open(NO_SERVER, "sk-secret") as make:
        model = make(**how)

    with pytest.raises(ProviderError, match=r": the client is closed$") as raised:
        await ask(model)

    assert raised.value.transient is False


async def test_an_option_that_is_no_json_is_a_mistake(adapter: Adapter, how: dict[str, object]) -> None:
    async with adapter.open(NO_SERVER, "sk-secret") as make:
        model = make(options={"extra_body": {"x": object()}}, **how)

        with pytest.raises(
            ProviderError, match=r": the request has a value that JSON does not have: look at the options$"
        ):
            await ask(model)


async def test_what_is_not_found_says_where_to_look_without_the_body(
    adapter: Adapter, serve: Serve, how: dict[str, object]
) -> None:
    server = serve(adapter.server, Failed(status=404, body='{"error": "secret"}'))
    look_at = "and is it pulled?" if adapter.name == "ollama" else "and the client's base URL?"
    async with adapter.open(server.url, server.key) as make:
        with pytest.raises(ProviderError) as raised:
            await ask(make(**how))

    name = raised.value.provider
    assert str(raised.value) == f"{name}: not found: is the model's name right, {look_at} (HTTP 404)"
