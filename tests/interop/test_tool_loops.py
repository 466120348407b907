"""The loops of a host, with the tools of servers that others wrote."""

from __future__ import annotations

import re
import uuid
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeAlias

import pytest
from anyio import create_task_group, fail_after, to_thread

from mcp_host import (
    Allow,
    Client,
    Deny,
    ProposedCall,
    Sampling,
    SamplingRequest,
    Stdio,
    StreamableHttp,
    ToolCall,
    always,
    run_tool_loop,
)
from mcp_host.testing import ScriptedModel
from mcp_host.types import (
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolResultContent,
)
from mcp_host.types.base import given
from tests.interop.processes import AnyTransport, Era, HttpServer, free_port, running, tools_server

IN_TIME = 60.0  # seconds for a test; each takes two when the machine is idle

Peer: TypeAlias = tuple[int, Era]
"""A version of the official SDK, and the era in which a test speaks to a server on it."""

PEERS: list[Peer] = [(2, "legacy"), (2, "modern"), (1, "legacy")]


pytestmark = pytest.mark.backends(
    "trio"
)  # the loops are tested on both with servers of ours; what is new here are the servers


@pytest.fixture(params=PEERS, ids=["sdk-2-legacy", "sdk-2-modern", "sdk-1-legacy"])
def peer(request: pytest.FixtureRequest) -> Peer:
    peer: Peer = request.param
    return peer


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[int, HttpServer]]:
    """The servers over HTTP, by version."""
    marks = {version: f"interop-{uuid.uuid4().hex}" for version in (1, 2)}
    servers = {}
    with ExitStack() as stack:
        for version, mark in marks.items():
            port = free_port()
            command = tools_server(version, "http", port, mark)
            servers[version] = stack.enter_context(HttpServer(command, port, ready="Uvicorn running"))
        yield servers

    assert [running(mark) for mark in marks.values()] == [[], []]


over_both = pytest.mark.parametrize("transport", ["stdio", "http"], indirect=True)
"""For what could depend on it. The others are run over HTTP."""


@pytest.fixture
def transport(request: pytest.FixtureRequest, peer: Peer, servers: dict[int, HttpServer], mark: str) -> AnyTransport:
    if getattr(request, "param", "http") == "stdio":
        return Stdio(tools_server(peer[0], "stdio", 0, mark))
    return StreamableHttp(servers[peer[0]].url)


def results(request: SamplingRequest) -> list[ToolResultContent]:
    """What the model got, without the ids."""
    blocks = [block for block in request.messages[-1].content if isinstance(block, ToolResultContent)]
    assert [block.tool_use_id for block in blocks] == [use.id for use in request.messages[-2].tool_uses]
    return [block.model_copy(update={"tool_use_id": ""}) for block in blocks]


def result(*content: ContentBlock, is_error: bool | None = False, **fields: Any) -> ToolResultContent:
    """One as servers on the official SDK write it. Others, and functions, leave out that it is no error."""
    return ToolResultContent(tool_use_id="", content=list(content), **fields, **given(is_error=is_error))


def failed(text: str) -> ToolResultContent:
    return result(TextContent(text=text), is_error=True)


@over_both
async def test_the_model_gets_what_the_tools_of_an_official_server_return(transport: AnyTransport, peer: Peer) -> None:
    """In the order of the calls, which run at once; each kind of content, and what went wrong."""
    calls = [
        ToolCall("measure", {"city": "Oslo"}),
        ToolCall("draw", {"what": "cat"}),
        ToolCall("look_up", {"topic": "tea"}),
        ToolCall("fail"),
        ToolCall("measure", {"city": 7}),
        ToolCall("shout", {"text": "done"}),
        ToolCall("measure", {"city": "Rome"}),
    ]
    model = ScriptedModel(calls, "Wear a coat.")
    with fail_after(IN_TIME):
        async with Client(transport, era=peer[1]) as client:
            done = await run_tool_loop(model, "What to wear?", tools=[client, shout])

    assert (done.ended, done.text) == ("answered", "Wear a coat.")
    page = TextResourceContents(uri="note://tea", mime_type="text/plain", text="All about tea.")
    assert results(model.requests[1]) == [
        result(TextContent(text='{\n  "city": "Oslo",\n  "celsius": 21.5\n}')),
        result(TextContent(text="A cat:"), ImageContent(data=b64encode(b"cat").decode(), mime_type="image/png")),
        result(EmbeddedResource(resource=page), ResourceLink(uri="note://more", name="more")),
        failed("Error executing tool fail: out of order"),
        failed("The arguments do not match the tool's inputSchema: $.city: not of type 'string'"),
        result(TextContent(text="DONE"), is_error=None),
        result(TextContent(text='{\n  "city": "Rome",\n  "celsius": 21.5\n}')),
    ]
    assert done.steps[0].calls[0].result.structured_content == {"city": "Oslo", "celsius": 21.5}


def shout(text: str) -> str:
    """Write in capitals."""
    return text.upper()


@over_both
async def test_a_tool_that_hangs_is_a_result_and_the_others_are_there(transport: AnyTransport, peer: Peer) -> None:
    model = ScriptedModel([ToolCall("hang"), ToolCall("shout", {"text": "here"})], "One hangs.")
    with fail_after(IN_TIME):
        async with Client(transport, era=peer[1]) as client:
            done = await run_tool_loop(model, "Try.", tools=[client, shout], tool_timeout=0.5)
            after = await client.call_tool("long", {"words": 2})

    assert (done.ended, after.text) == ("answered", "word word")
    assert results(model.requests[1]) == [
        failed("the tool hang failed: it did not finish in time"),
        result(TextContent(text="HERE"), is_error=None),
    ]


@pytest.mark.parametrize("version", [1, 2])
async def test_a_cancelled_loop_leaves_no_call_at_the_server(version: int, servers: dict[int, HttpServer]) -> None:
    server = servers[version]
    hung, left = server.count("hangs"), server.count("cancelled")
    with fail_after(IN_TIME):
        async with Client(StreamableHttp(server.url), era="legacy") as client, create_task_group() as tasks:
            model = ScriptedModel([ToolCall("hang"), ToolCall("hang")])
            tasks.start_soon(partial(run_tool_loop, model, "Try.", tools=[client]))
            await to_thread.run_sync(partial(server.says, "hangs", times=hung + 2))
            tasks.cancel_scope.cancel()
        await to_thread.run_sync(partial(server.says, "cancelled", times=left + 2))


async def test_a_long_result_is_cut_for_the_model_and_whole_for_the_host(transport: AnyTransport, peer: Peer) -> None:
    model = ScriptedModel(ToolCall("long", {"words": 5_000}), "Much.")
    with fail_after(IN_TIME):
        async with Client(transport, era=peer[1]) as client:
            done = await run_tool_loop(model, "Talk.", tools=[client], max_result_bytes=1_000)

    [cut] = results(model.requests[1])
    [call] = done.steps[0].calls
    assert call.result.text == " ".join(["word"] * 5_000)
    assert len(cut.text) <= 1_010
    assert cut.text.startswith("word word")
    assert "bytes are left out here" in cut.text


async def test_each_call_is_approved_with_the_annotations_of_the_tool(transport: AnyTransport, peer: Peer) -> None:
    seen = []

    async def approve(call: ProposedCall) -> Allow | Deny:
        hints = call.tool.annotations
        seen.append((call.name, dict(call.arguments), hints is not None and hints.read_only_hint))
        return Allow() if hints is not None and hints.read_only_hint else Deny("not read-only")

    model = ScriptedModel([ToolCall("measure", {"city": "Oslo"}), ToolCall("draw", {"what": "cat"})], "Done.")
    with fail_after(IN_TIME):
        async with Client(transport, era=peer[1]) as client:
            await run_tool_loop(model, "Draw.", tools=[client], approve=approve)

    assert sorted(seen) == [("draw", {"what": "cat"}, False), ("measure", {"city": "Oslo"}, True)]
    assert [block.text for block in results(model.requests[1])][1] == "This call was denied: not read-only"


# The server's own tools, inside its sampling


@over_both
@pytest.mark.parametrize("private", [False, True], ids=["all listed", "one is not"])
async def test_an_official_server_gets_the_text_after_its_own_tools_were_run(
    transport: AnyTransport, peer: Peer, private: bool
) -> None:
    """The server offers the model a tool that it lists, which the host runs, and maybe one that only the server can run."""
    then = ToolCall("remember", {"what": "a coat"}) if private else "A coat."
    model = ScriptedModel([ToolCall("measure", {"city": "Oslo"})], then)
    sampling = Sampling(with_tools=model, approve=always)
    with fail_after(IN_TIME):
        async with Client(transport, era=peer[1], sampling=sampling, run_own_tools=True) as client:
            advice = await client.call_tool("advise", {"city": "Oslo", "private": private})

    assert advice.text == (
        "; to run here: [\"remember {'what': 'a coat'}\"]" if private else "A coat.; to run here: []"
    )
    assert results(model.requests[1]) == [result(TextContent(text='{\n  "city": "Oslo",\n  "celsius": 21.5\n}'))]


async def test_without_it_the_server_runs_them(transport: AnyTransport, peer: Peer) -> None:
    sampling = Sampling(with_tools=ScriptedModel(ToolCall("measure", {"city": "Oslo"})), approve=always)
    with fail_after(IN_TIME):
        async with Client(transport, era=peer[1], sampling=sampling) as client:
            advice = await client.call_tool("advise", {"city": "Oslo"})

    assert advice.text == "; to run here: [\"measure {'city': 'Oslo'}\"]"


# server-everything


def without_time(value: object) -> str:
    """The text of a resource says when it was made: "5:45:53 AM"."""
    return re.sub(r"\d+:\d\d:\d\d [AP]M", "", repr(value))


async def test_the_model_gets_what_the_tools_of_server_everything_return(everything: AnyTransport) -> None:
    """What a call gives by itself is what the step has; the model gets it once."""
    calls = [
        ToolCall("echo", {"message": "Grüße"}),
        ToolCall("get-sum", {"a": 2, "b": 3}),
        ToolCall("get-sum", {"a": 2}),
        ToolCall("get-tiny-image"),
        ToolCall("get-structured-content", {"location": "Chicago"}),
        ToolCall("get-resource-links", {"count": 2}),
        ToolCall("get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
    ]
    model = ScriptedModel(calls, "All seen.")
    with fail_after(IN_TIME):
        async with Client(everything) as client:
            done = await run_tool_loop(model, "Show all.", tools=[client])
            direct = [await client.call_tool(call.name, call.arguments) for call in calls if call != calls[2]]

    assert (done.ended, done.text) == ("answered", "All seen.")
    got = results(model.requests[1])
    assert got.pop(2) == failed("The arguments do not match the tool's inputSchema: 'b' is a required property")
    assert [without_time(block.content) for block in got] == [without_time(each.content) for each in direct]
    assert [block.structured_content for block in got] == [None] * 6
    whole = [call.result for call in done.steps[0].calls]
    assert list(map(without_time, whole[:2] + whole[3:])) == list(map(without_time, direct))
