"""Failures of real SDKs."""

from __future__ import annotations

import anthropic
import httpx2
import openai
import pytest

from mcp_host.providers.exchange.failures import (
    provider_error,
)
from tests.interop.providers.serve import Serve
from tests.interop.providers.servers.anthropic import AnthropicServer
from tests.providers.exchange.test_failures import SECRET


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            f"ftp://api.example.com/{SECRET}",
            "APIConnectionError at api.example.com:? (its URL does not begin with http:// or https://)",
        ),
        (SECRET, "APIConnectionError (its URL does not begin with http:// or https://)"),
    ],
    ids=["another scheme", "none"],
)
async def test_a_wrong_url_does_not_become_right_by_itself(url: str, said: str) -> None:
    async with openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
        with pytest.raises(openai.APIConnectionError) as raised:
            await client.models.list()

    error = provider_error(raised.value, "openai")
    assert (str(error), error.transient) == (f"openai: {said}", False)


@pytest.mark.parametrize("api_key", [None, ""])
@pytest.mark.parametrize(
    ("provider", "said"),
    [
        ("anthropic", "set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN, or pass it to the client"),
        ("pydantic-ai", "pass it to the client"),
    ],
)
async def test_a_client_without_a_key_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, api_key: str | None, provider: str, said: str
) -> None:
    """Anthropic's SDK finds out when it asks."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    server, http = serve(AnthropicServer), httpx2.AsyncClient(verify=False)
    async with anthropic.AsyncAnthropic(
        base_url=server.url, auth_token=api_key, http_client=http, max_retries=0
    ) as client:
        with pytest.raises((TypeError, anthropic.APIConnectionError)) as raised:
            await client.messages.create(model="m", max_tokens=1, messages=[])

    error = provider_error(raised.value, provider)
    assert (str(error), error.transient) == (f"{provider}: the client has no key: {said}", False)
