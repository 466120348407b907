"""Ollama's adapter through the SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import ollama
import pytest

from mcp_host.errors import ProviderError
from mcp_host.providers.ollama import OllamaModel
from tests.interop.providers.scripted import Failed, Said
from tests.interop.providers.serve import Serve
from tests.interop.providers.servers.ollama import OllamaServer
from tests.providers.prompts import PNG, said
from tests.providers.test_ollama import ASKED, ONE, prompt


@asynccontextmanager
async def model_of(server: OllamaServer, **arguments: Any) -> AsyncIterator[OllamaModel]:
    async with OllamaModel(ollama.AsyncClient(server.url, trust_env=False), "qwen3", **arguments) as model:
        yield model


async def test_the_data_of_an_image_is_never_taken_for_the_path_of_a_file(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK's own ``chat`` reads a file that has the name, and the server of MCP wrote it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "iVBORw0KGgoA").write_text("secret")
    server = serve(OllamaServer, Said(text="ok"))
    async with model_of(server) as model:
        await model(prompt(said("user", {**PNG, "data": "iVBORw0KGgoA"})).request)

    assert server.last["messages"] == [{"role": "user", "content": "", "images": ["iVBORw0KGgoA"]}]


async def test_the_json_of_a_required_call_is_no_text_for_the_host(serve: Serve) -> None:
    server = serve(OllamaServer, Said(text='{"a": 1}'), Said(text="well"))
    heard: list[str] = []
    async with model_of(server, on_delta=lambda delta: heard.append(delta.text)) as model:
        answer = await model(ONE.request)
        assert ([use.input for use in answer.tool_uses], heard) == ([{"a": 1}], [])
        await model(ASKED.request)

    assert "".join(heard) == "well"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_model_that_is_missing_and_a_limit_are_errors_that_say_so(serve: Serve, stream: bool) -> None:
    missing = Failed(status=404, body='{"error": "model \'qwen3\' not found"}')
    server = serve(OllamaServer, missing, Failed(status=429, retry_after="7"))
    async with model_of(server, stream=stream) as model:
        with pytest.raises(ProviderError, match=r"^ollama: not found: .* is it pulled\? \(HTTP 404\)$"):
            await model(ASKED.request)
        with pytest.raises(ProviderError, match=r"^ollama: ResponseError \(HTTP 429\), try again after 7 seconds$"):
            await model(ASKED.request)
