"""What the command shows of failures of a provider's model."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from mcp_host.cli.arguments import parse
from mcp_host.cli.models import make_model
from mcp_host.errors import ProviderError
from mcp_host.sampling import SamplingRequest
from mcp_host.types import CreateMessageRequestParams, UserMessage
from tests.cli.models import WITH_MODEL, Provider, fails, refused

KEY = "sk-ant-" + "k3y" * 12
REQUEST = SamplingRequest(
    params=CreateMessageRequestParams(messages=[UserMessage("Hello")], max_tokens=10), server="desk"
)


async def shown(provider: Provider, failure: Exception | None, *argv: str) -> list[str]:
    """What the failure of the model shows, if the SDK raised *failure*."""
    error = ProviderError("anthropic", "Error", status=400, original=failure)
    provider.say(fails(error))
    lines: list[str] = []
    model = make_model(parse(["call", "http://x", "t", *WITH_MODEL, "--verbose", *argv]), show=lines.append)
    with pytest.raises(ProviderError) as caught:
        await model(REQUEST)
    assert caught.value is error
    return lines


@pytest.mark.parametrize("key", [KEY, "abc123", "o"], ids=["", "short", "in words, too"])
async def test_a_failure_shows_what_the_provider_says_without_the_key(
    key: str, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    monkeypatch.setenv("SHORT_KEY", "low")

    lines = await shown(provider, RuntimeError(f"Your credit balance is too low, {key}."))

    assert lines == ["anthropic: RuntimeError: Your credit balance is too low, <redacted>."]


async def test_the_key_of_a_file_is_not_shown_either(provider: Provider, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.touch(0o600)
    file.write_text("abc123\n")

    lines = await shown(provider, RuntimeError("No credit for abc123."), "--api-key-file", str(file))

    assert (lines, provider.api_key) == (["anthropic: RuntimeError: No credit for <redacted>."], "abc123")


async def test_a_failure_shows_its_cause_if_it_has_no_text_and_a_long_text_is_cut(provider: Provider) -> None:
    """Nothing more is shown of a failure of which the error says all."""
    failure = RuntimeError()
    failure.__cause__ = AttributeError("'list' object has no attribute 'content'")
    (line,) = await shown(provider, RuntimeError("no " * 1000))

    assert await shown(provider, failure) == ["anthropic: RuntimeError: 'list' object has no attribute 'content'"]
    assert await shown(provider, None) == []
    assert len(line) < 2100
    assert line.endswith("(3000 characters)")


@pytest.mark.fake_clock
@pytest.mark.parametrize(("wait", "asked"), [(30, 2), (30.1, 1)])
async def test_a_provider_is_asked_again_after_30_seconds_at_most(wait: float, asked: int, provider: Provider) -> None:
    provider.say(*[refused(429, retry_after=wait)] * 2)
    began = anyio.current_time()
    with pytest.raises(ProviderError):
        await make_model(parse(["call", "http://x", "t", *WITH_MODEL]), show=lambda line: None)(REQUEST)

    assert len(provider.requests) == asked
    assert anyio.current_time() - began == pytest.approx(wait * (asked - 1))
