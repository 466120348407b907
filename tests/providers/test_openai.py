"""What both APIs of OpenAI have in common."""

from __future__ import annotations

import json

import httpx2
import openai
import pytest

from mcp_host.providers.exchange.replies import Call, ReplyBlock
from mcp_host.providers.openai import NAME_RULE, arguments_of, pdf, stopped
from mcp_host.providers.openai_chat import OpenAIChatModel
from mcp_host.sampling import run_tool_loop
from mcp_host.types import BlobResourceContents, TextContent
from tests.providers import prompts


def test_nearly_all_of_a_request_passes_by_the_types_of_the_sdk() -> None:
    """Its comparison with them would hold up the event loop. What it needs itself are arguments; the host's fields win."""
    body = {"model": "gpt-5.2", "input": ["hi"], "timeout": 5, "extra_headers": {"a": "b"}, "extra_body": {"user": "u"}}

    assert arguments_of(body) == {
        "model": "gpt-5.2",
        "timeout": 5,
        "extra_headers": {"a": "b"},
        "extra_body": {"input": ["hi"], "user": "u"},
    }


async def test_a_model_on_azure_is_asked_at_its_deployment() -> None:
    heard: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        heard.append(request)
        message = {"role": "assistant", "content": "Hello."}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return httpx2.Response(200, json={"id": "1", "object": "chat.completion", "model": "gpt", "choices": choices})

    async with (
        httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http,
        openai.AsyncAzureOpenAI(
            azure_endpoint="https://example.openai.azure.com", api_key="k", api_version="2026-10-01", http_client=http
        ) as client,
    ):
        result = await run_tool_loop(OpenAIChatModel(client, "mine"), "Hi.")

    [request] = heard
    assert result.text == "Hello."
    assert request.url.path == "/openai/deployments/mine/chat/completions"
    assert json.loads(request.content) == {
        "messages": [{"role": "user", "content": "Hi."}],
        "model": "mine",
        "max_completion_tokens": 4096,
    }


@pytest.mark.parametrize(
    ("uri", "name"),
    [("file:///a/b.pdf", "b.pdf"), ("file:///a/b", "b.pdf"), ("http://[", "document.pdf"), ("", "document.pdf")],
)
def test_a_pdf_file_has_a_name_whatever_its_uri_is(uri: str, name: str) -> None:
    assert pdf(BlobResourceContents(uri=uri, blob="aGk="))["filename"] == name


EMOJI = "\N{GRINNING FACE}"
HIGH, LOW = "\ud83d", "\ude00"  # its halves
CALLED = Call("c1", "add", "{}")


def saying(*blocks: str | Call) -> list[ReplyBlock]:
    return [TextContent(text=block) if isinstance(block, str) else block for block in blocks]


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (saying("abENDc", "d"), saying("ab")),
        (saying("ab", "ENDc"), saying("ab")),
        (saying("abE", "N", "Dc"), saying("ab")),
        (saying("abE", CALLED, "NDc"), saying("ab")),
        (saying("a", CALLED, "bEND", CALLED), saying("a", CALLED, "b")),
        (saying("END"), []),
        (saying(f"ab{HIGH}{LOW}c"), saying("ab")),
        (saying(f"ab{HIGH}", f"{LOW}c"), saying("ab")),
        (saying(f"a{LOW}{EMOJI}"), saying("a\N{REPLACEMENT CHARACTER}")),
    ],
    ids=[
        "in one text",
        "at the end of a text",
        "across three texts",
        "across a call",
        "after a call",
        "all of it",
        "halves",
        "halves in two texts",
        "after a lone half",
    ],
)
def test_an_answer_ends_before_the_first_stop_sequence_of_its_joined_texts(
    content: list[ReplyBlock], kept: list[ReplyBlock]
) -> None:
    asked = prompts.prompt(rule=NAME_RULE, model="gpt-5.6", stopSequences=["END", EMOJI, ""])

    assert stopped(content, "endTurn", asked) == (kept, "stopSequence")
    for refused in ("refusal", "content_filter"):
        assert stopped(content, refused, asked) == (kept, refused)


@pytest.mark.parametrize("stops", [[], [""], ["END", EMOJI]])
def test_an_answer_without_a_stop_sequence_is_as_it_was(stops: list[str]) -> None:
    content = saying("abEN", CALLED, f"E{HIGH}")

    assert stopped(content, "toolUse", prompts.prompt(rule=NAME_RULE, model="gpt-5.6", stopSequences=stops)) == (
        content,
        "toolUse",
    )
