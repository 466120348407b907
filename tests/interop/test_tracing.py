"""Servers that trace, on the official Python SDK and on FastMCP: one trace goes through both sides."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from anyio import fail_after

from mcp_host import Client, Sampling, SamplingRequest, Stdio, StreamableHttp, always
from tests.interop.heard import reported
from tests.interop.processes import PYTHON, SERVERS, AnyTransport, Era, HttpServer, free_port
from tests.telemetry.recorder import Recorder

IN_TIME = 30.0  # seconds for a test; each takes a few when the machine is idle

everywhere = pytest.mark.parametrize("how", ["stdio", "http"])


@asynccontextmanager
async def reached(kind: str, how: str, mark: str) -> AsyncIterator[AnyTransport]:
    command = [PYTHON, str(SERVERS / "traced.py"), kind, how]
    if how == "stdio":
        yield Stdio([*command, "0", mark])
        return
    port = free_port()
    with HttpServer([*command, str(port), mark], port, ready="Uvicorn running") as server:
        yield StreamableHttp(server.url)


def ids(recorder: Recorder, name: str) -> tuple[str, str]:
    """The trace and the id of our only span of this name."""
    _, trace, span, _ = recorder.traceparent(name).split("-")
    return trace, span


async def spans_of(client: Client, name: str) -> list[dict[str, Any]]:
    told = reported(await client.call_tool("spans"))
    assert isinstance(told, dict)
    return [span for span in told["spans"] if span["name"] == name]


@everywhere
@pytest.mark.parametrize("kind", ["sdk", "fastmcp"])
async def test_the_servers_span_is_a_child_of_ours(
    kind: str, how: str, era: Era, mark: str, recorder: Recorder
) -> None:
    with fail_after(IN_TIME):
        async with (
            reached(kind, how, mark) as transport,
            Client(transport, era=era, middleware=[recorder.middleware()]) as client,
        ):
            told = (await client.call_tool("trace_id")).text
            [span] = await spans_of(client, "tools/call trace_id")

    trace, parent = ids(recorder, "tools/call trace_id")
    assert told == span["trace"] == trace
    assert (span["kind"], span["parent"]) == ("SERVER", parent)


@everywhere
async def test_our_answer_is_a_child_of_the_servers_span_within_our_call(
    how: str, mark: str, recorder: Recorder
) -> None:
    async def model(request: SamplingRequest) -> str:
        return "Because."

    sampling = Sampling(basic=model, approve=always)
    with fail_after(IN_TIME):
        async with (
            reached("sdk", how, mark) as transport,
            Client(transport, era="legacy", sampling=sampling, middleware=[recorder.middleware()]) as client,
        ):
            assert (await client.call_tool("ask")).text == "Because."
            [asking] = await spans_of(client, "MCP send sampling/createMessage")

    trace, _ = ids(recorder, "tools/call ask")
    assert (asking["kind"], asking["trace"]) == ("CLIENT", trace)
    assert ids(recorder, "chat")[0] == trace
    assert [(span.name, span.parent, span.links) for span in recorder.spans()[:3]] == [
        ("tools/call ask", None, []),
        ("sampling/createMessage", asking["span"], ["tools/call ask"]),
        ("chat", "sampling/createMessage", []),
    ]
