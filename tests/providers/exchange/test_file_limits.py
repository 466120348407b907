"""Files that are too large for a provider."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_host.errors import InputRefused
from mcp_host.providers import AnthropicModel, GeminiModel, OllamaModel, OpenAIChatModel, OpenAIModel, PydanticAIModel
from mcp_host.providers.adapter import ProviderModel
from mcp_host.providers.exchange.file_limits import (
    BEDROCK,
    CLAUDE,
    CLAUDE_ELSEWHERE,
    GEMINI,
    NO_LIMITS,
    OPENAI,
    FileLimits,
    MiB,
    size_problem,
)
from mcp_host.types import BlobResourceContents, ContentBlock, EmbeddedResource, ImageContent, TextContent
from tests.providers.chat_client import ChatClient
from tests.sampling.asking import Wire, assistant, request, result, text, use, user


class Messages:
    """Anthropic's client. `sent` is the content of the messages of its last request."""

    def __init__(self) -> None:
        self.messages = self
        self.sent: list[list[dict[str, Any]]] = []

    async def create(self, **body: Any) -> Any:
        self.sent = [message["content"] for message in body["messages"]]
        return {"content": [], "model": "claude", "stop_reason": "end_turn"}


class AsyncAnthropicBedrock(Messages):
    """Claude on another cloud."""


def png(width: int, height: int) -> Wire:
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return {"type": "image", "data": b64encode(head).decode(), "mimeType": "image/png"}


TALL, LARGE, SMALL = png(1440, 8570), png(2560, 1600), png(2000, 2000)
TOO_TALL = "this model takes no image of 1440 x 8570 pixels, but 8000 a side at most"
TOO_MANY = "this model takes no image of 2560 x 1600 pixels, but 2000 a side at most if there are more than 20"


async def test_an_image_that_is_too_large_for_claude_costs_no_conversation(caplog: pytest.LogCaptureFixture) -> None:
    client = Messages()
    model = AnthropicModel(client, "claude")
    for asked in (
        request(user(text()), assistant(use("c1")), user(result("c1", TALL))),
        request(user(text()), assistant(use("c1")), user(TALL), session=object()),
    ):
        await model(asked)

        [block] = client.sent[2][0].get("content", client.sent[2])
        assert block["text"] == f"[image/png, 24 bytes: {TOO_TALL}]"
        assert "messages[2]" in caplog.text

    with pytest.raises(InputRefused) as refusal:
        await model(request(user(TALL)))
    assert (refusal.value.code, str(refusal.value)) == (-32602, f"messages[0]: {TOO_TALL}")


async def test_of_too_many_images_the_oldest_large_ones_are_left_out() -> None:
    client = Messages()
    model = AnthropicModel(client, "claude")

    async def taken(own: Sequence[Wire], *shots: Wire) -> list[bool]:
        said = [user(text(), *own), assistant(use("c1")), user(result("c1", text(), *shots))]
        await model(request(*said))
        seen = client.sent[0][1:] + client.sent[2][0]["content"][1:]
        return [block["type"] == "image" for block in seen]

    assert await taken([LARGE], *[LARGE] * 19) == [True] * 20
    distinct = [png(2560, 1601 + number) for number in range(22)]
    assert await taken([LARGE], SMALL, TALL, *distinct) == [True, True, False] + [False] * 4 + [True] * 18
    assert await taken([SMALL], *[SMALL] * 20, distinct[0]) == [True] * 21 + [False]
    with pytest.raises(InputRefused) as refusal:
        await taken([LARGE], *[SMALL] * 20)
    assert str(refusal.value) == f"messages[0]: {TOO_MANY}"


def file(kind: str, size: int) -> EmbeddedResource:
    return EmbeddedResource(resource=BlobResourceContents(uri="a:", mime_type=kind, blob="A" * size))


SIZES: list[tuple[ContentBlock, FileLimits, str | None]] = [
    (ImageContent(data="A" * 10 * MiB, mime_type="image/PNG"), CLAUDE, None),
    (ImageContent(data="A" * (10 * MiB + 4), mime_type="image/PNG"), CLAUDE, "no file of more than 10 MiB in base64"),
    (file("image/png", 5 * MiB + 4), CLAUDE_ELSEWHERE, "no file of more than 5 MiB in base64"),
    (file("application/pdf", 5 * MiB + 4), CLAUDE_ELSEWHERE, None),
    (file("application/pdf", 32 * MiB + 4), CLAUDE, "no file of more than 32 MiB in base64"),
    (file("image/png", 50 * MiB + 4), OPENAI, "no file of more than 50 MiB in base64"),
    (file("video/mp4", 50 * MiB + 4), GEMINI, None),
    (file("application/pdf", 50 * MiB + 4), BEDROCK, None),
    (TextContent(text="A"), CLAUDE, None),
]


def test_a_file_may_have_so_many_bytes(subtests: pytest.Subtests) -> None:
    for block, limits, problem in SIZES:
        with subtests.test(problem=problem):
            assert size_problem(block, limits) == problem


def test_each_provider_has_the_limits_that_it_publishes(subtests: pytest.Subtests) -> None:
    def through(system: str, client: object = None) -> ProviderModel:
        return PydanticAIModel(SimpleNamespace(model_name="m", system=system, client=client))

    chat = ChatClient(base_url="https://api.openai.com/v1")
    gemini = SimpleNamespace(models=SimpleNamespace(generate_content=print))
    table = [
        (AnthropicModel(Messages(), "m"), CLAUDE),
        (AnthropicModel(AsyncAnthropicBedrock(), "m"), CLAUDE_ELSEWHERE),
        (OpenAIModel(SimpleNamespace(responses=chat), "m"), OPENAI),
        (OpenAIChatModel(chat, "m"), OPENAI),
        (OpenAIChatModel(ChatClient(), "m"), NO_LIMITS),
        (GeminiModel(SimpleNamespace(aio=gemini), "m"), GEMINI),
        (OllamaModel(SimpleNamespace(chat=print), "m"), NO_LIMITS),
        (through("anthropic", AsyncAnthropicBedrock()), CLAUDE_ELSEWHERE),
        (through("bedrock"), BEDROCK),
        (through("mistral"), NO_LIMITS),
    ]
    for model, limits in table:
        with subtests.test(type(model).__name__):
            assert model.file_limits() is limits
