"""Servers on both official SDKs that offer the same in either era: the same client code gets the same from each."""

from __future__ import annotations

import uuid

import pytest
from anyio import CancelScope, fail_after

from mcp_host import Client, Elicitation, FormRequest, StreamableHttp
from mcp_host.errors import ResourceNotFound, ServerError
from mcp_host.types import (
    ElicitResult,
    ProgressNotificationParams,
    ResourceUpdatedNotification,
    ResourceUpdatedNotificationParams,
    ToolListChangedNotification,
)
from tests.interop.heard import Changes, Logs, all_heard, texts
from tests.interop.processes import Era, HttpServer, Peer, Sdk

IN_TIME = 30.0  # seconds for a test; each takes two at most when the machine is idle


async def test_progress_and_log_lines_come_in_order(peer: Peer) -> None:
    reports: list[ProgressNotificationParams] = []
    logs = Logs("at 3")

    async def on_progress(report: ProgressNotificationParams) -> None:
        reports.append(report)

    with fail_after(IN_TIME):
        async with Client(peer.transport, era=peer.era, on_log=logs) as client:
            if not (peer.shakes_hands and peer.sdk == "python"):  # which logs without offering that (2.3.0)
                await client.set_log_level("info")
            result = await client.call_tool("count", {"to": 3}, on_progress=on_progress)
            await logs.enough.wait()

    assert [(report.progress, report.total, report.message) for report in reports] == [
        (step, 3, f"step {step}") for step in (1, 2, 3)
    ]
    assert logs.lines == ["info: at 1", "info: at 2", "info: at 3"]
    assert result.structured_content == {"result": 3}


async def test_messages_below_the_log_level_of_a_request_are_not_sent(
    sdk: Sdk, both_eras_http: dict[Sdk, HttpServer]
) -> None:
    logs = Logs("at 1")
    with fail_after(IN_TIME):
        async with Client(StreamableHttp(both_eras_http[sdk].url), era="modern", on_log=logs) as client:
            await client.set_log_level("warning")
            await client.call_tool("count", {"to": 2})
            await client.set_log_level("info")
            await client.call_tool("count", {"to": 1})
            await logs.enough.wait()

    assert logs.lines == ["info: at 1"]


async def test_a_tool_that_appears_is_announced_and_listed(peer: Peer) -> None:
    """In the stateless era the list is fresh for an hour, unless the server says that it has changed."""
    name = f"tool-{uuid.uuid4().hex}"
    changes = Changes("notifications/tools/list_changed")
    with fail_after(IN_TIME):
        async with Client(peer.transport, era=peer.era, on_change=changes) as client:
            before = {tool.name for tool in await client.list_tools()}
            await client.call_tool("offer", {"name": name})
            await changes.any.wait()
            after = {tool.name for tool in await client.list_tools()}
            warnings = client.warnings

    assert changes.kept == [ToolListChangedNotification()]
    assert (after - before, before - after, warnings) == ({name}, set(), [])


async def test_a_resource_announces_changes_while_it_is_subscribed_to(http_peer: Peer) -> None:
    if http_peer.shakes_hands and http_peer.sdk == "python":
        pytest.skip("MCPServer of the Python SDK 2.3.0 serves no resources/subscribe")
    changes = Changes("notifications/resources/updated")
    with fail_after(IN_TIME):
        async with Client(http_peer.transport, era=http_peer.era, on_change=changes) as client:
            await client.subscribe_resource("note://yesterday")
            await client.unsubscribe_resource("note://yesterday")
            await client.subscribe_resource("note://today")
            await client.call_tool("touch", {"uri": "note://yesterday"})
            await client.call_tool("touch", {"uri": "note://today"})
            await changes.any.wait()

    assert changes.kept == [ResourceUpdatedNotification(params=ResourceUpdatedNotificationParams(uri="note://today"))]


async def test_an_abandoned_call_is_cancelled_in_the_server(peer: Peer) -> None:
    name = str(uuid.uuid4())

    async def on_progress(report: ProgressNotificationParams) -> None:
        abandoned.cancel()

    with fail_after(IN_TIME):
        async with Client(peer.transport, era=peer.era) as client:
            with CancelScope() as abandoned:
                await client.call_tool("hang", {"name": name}, on_progress=on_progress)
            result = await client.call_tool("cancellation_of", {"name": name})

    assert result.structured_content == {"result": name}


async def test_failed_tools_and_missing_resources_are_named(http_peer: Peer) -> None:
    with fail_after(IN_TIME):
        async with Client(http_peer.transport, era=http_peer.era) as client:
            for uri in ("note://yesterday", "nowhere://at/all"):
                with pytest.raises(ResourceNotFound) as missing:
                    await client.read_resource(uri)
                assert missing.value.data == {"uri": uri}
            failed = await client.call_tool("fail")
            note = await client.read_resource("note://today")

    assert failed.is_error is True
    assert texts(failed)[0].endswith("as asked")
    assert [content.to_wire() for content in note.contents] == [
        {"uri": "note://today", "mimeType": "text/plain", "text": "Buy milk."}
    ]


async def test_the_typescript_sdk_says_invalid_params_of_an_unknown_tool_or_prompt(
    both_eras_http: dict[Sdk, HttpServer], era: Era
) -> None:
    with fail_after(IN_TIME):
        async with Client(StreamableHttp(both_eras_http["typescript"].url), era=era) as client:
            with pytest.raises(ServerError) as no_tool:
                await client.call_tool("nosuch")
            with pytest.raises(ServerError) as no_prompt:
                await client.get_prompt("nosuch")

    assert (no_tool.value.code, no_tool.value.message) == (-32602, "Tool nosuch not found")
    assert (no_prompt.value.code, no_prompt.value.message) == (-32602, "Prompt nosuch not found")


async def test_the_python_sdk_reports_an_unknown_tool_or_prompt_in_its_own_way(
    both_eras_http: dict[Sdk, HttpServer], era: Era
) -> None:
    """Version 2.3.0: a result for a tool, where both revisions have a protocol error, and another code for a prompt."""
    with fail_after(IN_TIME):
        async with Client(StreamableHttp(both_eras_http["python"].url), era=era) as client:
            no_tool = await client.call_tool("nosuch")
            with pytest.raises(ServerError) as no_prompt:
                await client.get_prompt("nosuch")

    assert (no_tool.is_error, texts(no_tool)) == (True, ["Unknown tool: nosuch"])
    said = {"legacy": (0, "Unknown prompt: nosuch"), "modern": (-32603, "Internal server error")}
    assert (no_prompt.value.code, no_prompt.value.message) == said[era]


@pytest.mark.parametrize(
    "region", ["Oslo", "Zürich", " =?base64?T3Nsbw==?= ", ""], ids=["plain", "umlaut", "like", "empty"]
)
async def test_an_argument_in_a_header_arrives_unchanged(http_peer: Peer, region: str) -> None:
    """Both SDKs compare the two, over HTTP in the stateless era: when we know of the header, and when we do not yet."""
    with fail_after(IN_TIME):
        async with Client(http_peer.transport, era=http_peer.era) as client:
            unlisted = await client.call_tool("measure", {"region": region})
            await client.list_tools()
            listed = await client.call_tool("measure", {"region": region})

    assert unlisted.structured_content == listed.structured_content == {"result": region}


async def test_a_fresh_result_is_requested_once(sdk: Sdk, both_eras_http: dict[Sdk, HttpServer]) -> None:
    """A result that took an answer of ours is requested each time, even if the server calls it fresh."""
    http = both_eras_http[sdk]
    signatures: list[str] = []

    async def sign(request: FormRequest) -> ElicitResult:
        signatures.append(request.message)
        return request.accept(name="Bo")

    lists, reads = http.count("heard tools/list"), http.count("heard resources/read")
    with fail_after(IN_TIME):
        async with Client(StreamableHttp(http.url), era="modern", elicitation=Elicitation(form=sign)) as client:
            tools = [await client.list_tools() for _ in range(2)]
            notes = [await client.read_resource("note://today") for _ in range(2)]
            letters = [await client.read_resource("letter://Ann") for _ in range(2)]
            await all_heard(client, http)

    assert http.count("heard tools/list") == lists + 1
    assert http.count("heard resources/read") == reads + 1 + 4
    assert len(signatures) == 2
    assert [tools[0], notes[0], letters[0]] == [tools[1], notes[1], letters[1]]


async def test_a_client_without_a_cache_asks_each_time(sdk: Sdk, both_eras_http: dict[Sdk, HttpServer]) -> None:
    http = both_eras_http[sdk]
    before = http.count("heard tools/list")
    with fail_after(IN_TIME):
        async with Client(StreamableHttp(http.url), era="modern", cache=False) as client:
            for _ in range(3):
                await client.list_tools()
            await all_heard(client, http)

    assert http.count("heard tools/list") == before + 3
