"""What server-everything asks of its client: sampling, elicitation and roots, over stdio and Streamable HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from anyio import fail_after

from mcp_host import Client, Elicitation, FormRequest, Sampling, UrlRequest, always
from mcp_host.errors import UrlElicitationRequired
from mcp_host.testing import ScriptedModel
from mcp_host.types import ElicitRequestURLParams, ElicitResult, SamplingMessage, TextContent
from tests.interop.heard import Logs, texts
from tests.interop.processes import AnyTransport

IN_TIME = 30.0  # seconds for a test; each takes a few at most when the machine is idle


async def test_a_sampling_request_without_tools_is_answered_by_the_handler_with_tools(everything: AnyTransport) -> None:
    model = ScriptedModel("High tide at noon.", name="a-model")
    with fail_after(IN_TIME):
        async with Client(everything, sampling=Sampling(with_tools=model, approve=always)) as client:
            mode = client.sampling_mode
            result = await client.call_tool("trigger-sampling-request", {"prompt": "the tide?", "maxTokens": 50})

    (request,) = model.requests
    question = "Resource trigger-sampling-request context: the tide?"
    assert mode == "with_tools"
    assert request.messages == [SamplingMessage(role="user", content=TextContent(text=question))]
    assert (request.system_prompt, request.max_tokens, request.temperature) == (
        "You are a helpful test server.",
        50,
        0.7,
    )
    assert request.server_info is not None
    assert (request.tools, request.server_info.name) == ([], "mcp-servers/everything")
    (text,) = texts(result)
    assert json.loads(text.removeprefix("LLM sampling result:")) == {
        "role": "assistant",
        "content": {"type": "text", "text": "High tide at noon."},
        "model": "a-model",
        "stopReason": "endTurn",
    }


async def test_a_form_is_filled_in_with_its_defaults(everything: AnyTransport) -> None:
    async def fill_in(request: FormRequest) -> ElicitResult:
        return request.accept(name="Ada", email="ada@example.org", integer=7)

    with fail_after(IN_TIME):
        async with Client(everything, elicitation=Elicitation(form=fill_in)) as client:
            result = await client.call_tool("trigger-elicitation-request")

    raw = texts(result)[-1]
    assert json.loads(raw[raw.index("{") :]) == {
        "action": "accept",
        "content": {
            "name": "Ada",
            "email": "ada@example.org",
            "integer": 7,
            "firstLine": "It was a dark and stormy night.",
            "number": 3.14,
            "untitledSingleSelectEnum": "Monica",
            "untitledMultipleSelectEnum": ["Guitar"],
            "titledSingleSelectEnum": "hero-1",
            "titledMultipleSelectEnum": ["fish-1"],
            "legacyTitledEnum": "pet-1",
        },
    }


async def test_a_form_can_be_declined(everything: AnyTransport) -> None:
    async def decline(request: FormRequest) -> ElicitResult:
        return request.decline()

    with fail_after(IN_TIME):
        async with Client(everything, elicitation=Elicitation(form=decline)) as client:
            result = await client.call_tool("trigger-elicitation-request")

    assert texts(result)[0] == "❌ User declined to provide the requested information."


async def test_a_url_elicitation_comes_as_a_request_or_as_an_error(everything: AnyTransport) -> None:
    visits: list[tuple[str, str | None]] = []

    async def visit(request: UrlRequest) -> ElicitResult:
        visits.append((request.url, request.elicitation_id))
        return request.accept()

    url = {"url": "https://example.org/consent", "elicitationId": "visit-1"}
    with fail_after(IN_TIME):
        async with Client(everything, elicitation=Elicitation(url=visit)) as client:
            asked = await client.call_tool("trigger-url-elicitation", url)
            with pytest.raises(UrlElicitationRequired) as required:
                await client.call_tool("trigger-url-elicitation", {**url, "errorPath": True})

    assert texts(asked)[0].startswith("✅ User completed the URL elicitation flow.")
    assert visits == [("https://example.org/consent", "visit-1")]
    (elicitation,) = required.value.elicitations
    assert elicitation == ElicitRequestURLParams(
        url="https://modelcontextprotocol.io",
        message="Open this link to satisfy the prerequisite, then retry the request.",
        elicitation_id=elicitation.elicitation_id,
    )


async def test_the_server_learns_the_roots_and_their_changes(everything: AnyTransport, tmp_path: Path) -> None:
    logs = Logs("Roots updated: 2 root(s)")
    other = tmp_path / "other folder"
    with fail_after(IN_TIME):
        async with Client(everything, roots=[tmp_path], on_log=logs) as client:
            first = await client.call_tool("get-roots-list")
            await client.set_roots([tmp_path, other])
            await logs.enough.wait()
            second = await client.call_tool("get-roots-list")

    assert f"1. Unnamed Root\n   URI: {tmp_path.as_uri()}\n" in texts(first)[0]
    assert f"2. Unnamed Root\n   URI: {other.as_uri()}\n" in texts(second)[0]
