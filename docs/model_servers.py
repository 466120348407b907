"""Local servers of the models' APIs, for the snippets of pages about real models."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the tests are no part of the package

from tests.interop.providers.scripted import Called, Said
from tests.interop.providers.servers.anthropic import AnthropicServer
from tests.interop.providers.servers.base import Heard, ModelServer
from tests.interop.providers.servers.gemini import GeminiServer
from tests.interop.providers.servers.ollama import OllamaServer
from tests.interop.providers.servers.openai_responses import OpenAIResponsesServer


def answer(heard: Heard) -> Said:
    """What every model says: a call of the tool ``height``, if there are tools, then a text."""
    if heard.body.get("tools") and "6.1" not in json.dumps(heard.body):
        return Said(calls=[Called("height", {"port": "Brest"})])
    return Said(text="6.1 metres at Brest.")


@contextmanager
def model_servers() -> Iterator[None]:
    """Run the servers, where the SDKs find them: in the environment."""
    with ExitStack() as stack:

        def serve(kind: type[ModelServer]) -> str:
            server = stack.enter_context(kind().running())
            server.say(decide=answer)
            return server.url

        stack.callback(os.environ.update, dict(os.environ))
        stack.callback(os.environ.clear)
        os.environ.update(
            {
                "ANTHROPIC_API_KEY": AnthropicServer.key,
                "ANTHROPIC_BASE_URL": serve(AnthropicServer),
                "OPENAI_API_KEY": OpenAIResponsesServer.key,
                "OPENAI_BASE_URL": f"{serve(OpenAIResponsesServer)}/v1",
                "GEMINI_API_KEY": GeminiServer.key,
                "GOOGLE_GEMINI_BASE_URL": serve(GeminiServer),
                "OLLAMA_HOST": serve(OllamaServer),
            }
        )
        yield
