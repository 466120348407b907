"""What the command shows of failures of a provider's model."""

from __future__ import annotations

import sys
from typing import Protocol

import pytest

from mcp_host.cli import main
from mcp_host.cli.models import make_model
from mcp_host.errors import ProviderError
from mcp_host.sampling import SamplingRequest
from mcp_host.types import CreateMessageRequestParams, UserMessage
from tests.cli.terminals import ROOT
from tests.interop.providers.scripted import Failed
from tests.interop.providers.serve import Serve
from tests.interop.providers.servers.anthropic import AnthropicServer

MODEL = "anthropic:claude-sonnet-5"
DESK = ["-e", f"PYTHONPATH={ROOT}", "--", sys.executable, "-c", "from tests.cli.desk import server; server.run_stdio()"]
SAID = '{"error": {"type": "invalid_request_error", "message": "Your credit balance is too low, %s."}}'


KEY = AnthropicServer.key


class Answering(Protocol):
    def __call__(self, status: int, body: str) -> None: ...  # pragma: no cover


@pytest.fixture
def answering(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Answering:
    """Lets the provider answer so. Its URL and key are in the environment."""

    def answer(status: int, body: str) -> None:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", serve(AnthropicServer, Failed(status=status, body=body)).url)

    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("SHORT_KEY", "low")
    return answer


async def shown() -> list[str]:
    """What the model's failure shows."""
    lines: list[str] = []
    request = CreateMessageRequestParams(messages=[UserMessage("Hello")], max_tokens=10)
    model = make_model(MODEL, show=lines.append, verbose=True)
    with pytest.raises(ProviderError):
        await model(SamplingRequest(params=request, server="desk"))
    return lines


async def test_a_failure_shows_what_the_provider_says_without_the_key(answering: Answering) -> None:
    answering(400, SAID % KEY)

    (line,) = await shown()

    assert line.startswith("anthropic: BadRequestError: Error code: 400 - {")
    assert "'Your credit balance is too low, <redacted>.'" in line


async def test_a_short_key_of_the_provider_is_not_shown(answering: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(401, '{"error": {"type": "authentication_error", "message": "Incorrect API key: abc123."}}')
    monkeypatch.setattr(AnthropicServer, "key", "abc123")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "abc123")

    (line,) = await shown()

    assert "'Incorrect API key: <redacted>.'" in line


async def test_a_reply_that_cannot_be_read_shows_why(answering: Answering) -> None:
    answering(200, "[]")

    (line,) = await shown()

    assert line.startswith("anthropic: Unreadable: 'list' object ")


async def test_a_failure_of_which_the_error_says_all_shows_nothing_more(answering: Answering) -> None:
    answering(200, '{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}')

    assert await shown() == []


async def test_a_long_text_of_the_provider_is_cut(answering: Answering) -> None:
    answering(400, SAID % ("no " * 1000))

    (line,) = await shown()

    assert len(line) < 2100
    assert line.endswith("characters)")


@pytest.mark.parametrize("verbose", [[], ["--verbose"]], ids=["", "verbose"])
def test_verbose_shows_what_the_provider_says(
    answering: Answering, capfd: pytest.CaptureFixture[str], verbose: list[str]
) -> None:
    answering(400, SAID % "Ada")

    assert main(["call", "opinion", "--yes", "--model", MODEL, *verbose, *DESK]) == 9
    assert ("  | anthropic: BadRequestError: Error code: 400" in capfd.readouterr().err) == bool(verbose)
