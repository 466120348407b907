"""The command with models of the SDKs themselves."""

from __future__ import annotations

import pytest

from tests.cli.test_chat import CHAT, Piped, keys_of, piped, url
from tests.interop.providers.scripted import Called, Failed, Said
from tests.interop.providers.serve import Serve
from tests.interop.providers.servers.anthropic import AnthropicServer
from tests.interop.providers.servers.openai_chat import OpenAIChatServer

__all__ = ["piped", "url"]


def test_a_local_server_needs_no_key(url: str, piped: Piped, serve: Serve) -> None:
    class KeylessServer(OpenAIChatServer):
        key = "none"

    api = serve(KeylessServer, Said(calls=[Called("add", {"a": 1, "b": 2})]), Said(text="3"))

    code, out, _ = piped(
        "chat", "--model", "openai-chat:local", "--yes", url, prompt="Add.", OPENAI_BASE_URL=f"{api.url}/v1"
    )

    assert (code, out, len(api.heard)) == (0, "3\n", 2)


@pytest.mark.parametrize(
    ("turn", "code", "says"),
    [
        (Said(text="Hello."), 0, "Hello.\n"),
        (Failed(status=400), 9, "mcp-host: anthropic: BadRequestError (HTTP 400), invalid_request_error"),
    ],
    ids=["an answer", "a failure"],
)
def test_a_prompt_to_a_model_of_anthropic(
    turn: Said | Failed, code: int, says: str, url: str, piped: Piped, serve: Serve
) -> None:
    server = serve(AnthropicServer, turn)
    server.keeps_connections = False

    ended, out, err = piped(*CHAT, url, prompt="Hello.", **keys_of(server))

    assert ended == code
    assert (out or err).startswith(says)
