"""The local server of Ollama's API, through the official SDK: what it says, and what it refuses."""

from __future__ import annotations

from typing import Any

import httpx
import ollama
import pytest

from tests.interop.providers.scripted import Called, Failed, Said
from tests.interop.providers.serve import Serve
from tests.interop.providers.servers.base import JSON
from tests.interop.providers.servers.ollama import OllamaServer

USER = {"role": "user", "content": "Add."}
CALL = {"function": {"name": "add", "arguments": {"a": 1, "b": 2}}}
ASSISTANT = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_name": "add", "content": "3"}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
SAID = Said(text="Let me see.", thinking="Sums.", calls=(Called("add", {"a": 1, "b": 2}), Called("now")))


async def test_a_stream_is_the_same_answer_in_pieces(serve: Serve) -> None:
    async with ollama.AsyncClient(host=serve(OllamaServer, SAID, SAID).url) as client:
        whole = await client.chat(model="qwen3", messages=[USER], think=True)
        chunks = [chunk async for chunk in await client.chat(model="qwen3", messages=[USER], think=True, stream=True)]

    message = whole.message
    assert (message.content, message.thinking) == ("Let me see.", "Sums.")
    assert message.tool_calls is not None
    assert [call.function.name for call in message.tool_calls] == ["add", "now"]
    assert "".join(chunk.message.content or "" for chunk in chunks) == message.content
    assert "".join(chunk.message.thinking or "" for chunk in chunks) == message.thinking
    assert [call for chunk in chunks for call in chunk.message.tool_calls or ()] == message.tool_calls
    assert [chunk.done for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert (chunks[-1].prompt_eval_count, chunks[-1].eval_count) == (11, 7)


@pytest.mark.parametrize(("stop", "reason"), [("end", "stop"), ("stop_sequence", "stop"), ("max_tokens", "length")])
async def test_how_an_answer_ends(serve: Serve, stop: Any, reason: str) -> None:
    async with ollama.AsyncClient(host=serve(OllamaServer, Said(text="No.", stop=stop)).url) as client:
        answer = await client.chat(model="qwen3", messages=[USER])

    assert answer.done_reason == reason


async def test_the_message_of_an_answer_comes_back_with_its_thinking(serve: Serve) -> None:
    server = serve(OllamaServer, SAID, Said(text="3"))
    results = [RESULT, {**RESULT, "tool_name": "now"}]
    async with ollama.AsyncClient(host=server.url) as client:
        message = (await client.chat(model="qwen3", messages=[USER])).message
        with pytest.raises(ollama.ResponseError, match="had another thinking"):
            await client.chat(model="qwen3", messages=[USER, message.model_copy(update={"thinking": None}), *results])
        last = await client.chat(model="qwen3", messages=[USER, message, *results])

    assert last.message.content == "3"
    assert len(server.refusals) == 1
    server.refusals.clear()


async def test_an_error_is_an_error_of_the_sdk(serve: Serve) -> None:
    async with ollama.AsyncClient(host=serve(OllamaServer, Failed(status=429)).url) as client:
        with pytest.raises(ollama.ResponseError) as caught:
            await client.chat(model="qwen3", messages=[USER])

    assert (caught.value.status_code, caught.value.error) == (429, "scripted")


REFUSED: dict[str, tuple[JSON, str]] = {
    "an unknown field": ({"tool_choice": "auto"}, "tool_choice: Extra inputs are not permitted"),
    "no model": ({"model": ""}, "model is required"),
    "a role": ({"messages": [{"role": "developer", "content": ""}]}, "invalid role: 'developer'"),
    "parts": ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "cannot unmarshal list"),
    "an unknown field of a message": ({"messages": [{**USER, "name": "me"}]}, "messages.name: Extra inputs"),
    "an image that is no base64": (
        {"messages": [{**USER, "images": ["data:image/png;base64,AAAA"]}]},
        "illegal base64",
    ),
    "calls of the user": ({"messages": [{**USER, "tool_calls": [CALL]}]}, "for messages with role 'assistant'"),
    "a tool_name of the user": ({"messages": [{**USER, "tool_name": "add"}]}, "for messages with role 'tool'"),
    "arguments as text": (
        {"messages": [USER, {**ASSISTANT, "tool_calls": [{"function": {"name": "add", "arguments": "{}"}}]}]},
        "cannot unmarshal str into Go struct field ChatRequest.messages.tool_calls.function.arguments",
    ),
    "a result without a call": ({"messages": [USER, RESULT]}, "the result of None is expected"),
    "a result of another tool": (
        {"messages": [USER, ASSISTANT, {**RESULT, "tool_name": "sub"}]},
        "the result of 'add' is expected, not of 'sub'",
    ),
    "a result without a name": (
        {"messages": [USER, ASSISTANT, {"role": "tool", "content": "3"}]},
        "the result of 'add' is expected, not of None",
    ),
    "no result": ({"messages": [USER, ASSISTANT, USER]}, "there is no result of add"),
    "no result at the end": ({"messages": [USER, ASSISTANT]}, "there is no result of add"),
    "a tool without a name": ({"tools": [{"type": "function", "function": {"parameters": {}}}]}, "name is required"),
    "a tool without parameters": ({"tools": [{**TOOL, "function": {"name": "add"}}]}, "a JSON Schema of an object"),
    "an unknown option": ({"options": {"max_tokens": 5}}, "options.max_tokens: Extra inputs"),
    "the type of an option": ({"options": {"num_predict": "5"}}, "option 'num_predict' must be of type int"),
    "a stop sequence that is no text": ({"options": {"stop": [1]}}, "must be of an array of strings"),
    "a format": ({"format": "xml"}, "invalid format: 'xml'"),
    "a level of thinking": ({"think": "enormous"}, "invalid think value: 'enormous'"),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
async def test_what_ollama_refuses(serve: Serve, change: JSON, message: str) -> None:
    """The SDK checks some of it itself, so the requests go without it."""
    server = serve(OllamaServer)
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
        reply = await http.post("/api/chat", json={"model": "qwen3", "messages": [USER], **change})

    assert (reply.status_code, list(reply.json())) == (400, ["error"])
    assert message in reply.json()["error"]
    assert message in server.refusals.pop()
