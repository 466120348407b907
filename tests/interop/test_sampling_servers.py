"""`ServerSampling` in servers on the official SDK and on fastmcp, sampled by our client and by that of the official SDK.

The same tools give the same results everywhere. Version 2 of the SDK, and fastmcp 4, which is built on it, serve both
eras: in revision 2026-07-28 the tools run again from their start for each answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from anyio import fail_after
from httpx import AsyncClient

from mcp_host.types import PromptMessage, TextContent, TextResourceContents
from tests.interop.clients.rules import RuleModel
from tests.interop.processes import Era, HttpServer, free_port, running, sampling_server
from tests.interop.sampled import IN_TIME, Declared, Where, call_by_official, call_by_ours, connected, sampling_by

LEGACY: Era = "legacy"
MODERN: Era = "modern"


pytestmark = pytest.mark.backends("trio")  # that of our client only: the servers run in other processes


@dataclass(frozen=True)
class Server:
    """A server with tools that sample: on which *version* of the SDK, directly or by fastmcp, and in which era."""

    version: int
    kind: str
    era: Era

    def failed(self, tool: str, why: str) -> dict[str, str]:
        """How a client sees an exception in a tool. Version 2 of the SDK hides its text, which it logs."""
        if self.kind == "fastmcp":
            return {"failed": f"Error calling tool '{tool}': {why}"}
        return {"failed": f"Error executing tool {tool}" + (f": {why}" if self.version == 1 else "")}


SERVERS = [
    Server(2, "sdk", LEGACY),
    Server(2, "sdk", MODERN),
    Server(2, "fastmcp", LEGACY),
    Server(2, "fastmcp", MODERN),
    Server(1, "sdk", LEGACY),
    Server(1, "fastmcp", LEGACY),
]


@pytest.fixture(params=SERVERS, ids=lambda server: f"{server.kind}-{server.version}-{server.era}")
def server(request: pytest.FixtureRequest) -> Server:
    server: Server = request.param
    return server


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[tuple[int, str], str]]:
    """Where each server listens."""
    marks, urls = [], {}
    with ExitStack() as stack:
        for version, kind in {(server.version, server.kind) for server in SERVERS}:
            port, mark = free_port(), f"interop-{kind}-{version}"
            command = sampling_server(version, kind, "http", port, mark)
            http = stack.enter_context(HttpServer(command, port, ready="Uvicorn running"))
            urls[version, kind] = http.url
            marks.append(mark)
        yield urls

    assert [running(mark) for mark in marks] == [[]] * len(marks)


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("describe", {"what": "a dog"}),
    ("describe", {"what": "something wrong"}),
    ("legs", {"pets": ["dog", "bird"]}),
    ("poll", {"question": "tea?"}),
    ("toss", {}),
    ("drift", {}),
    ("careful", {}),
    ("describe", {"what": "a dog in words"}),
    ("describe", {"what": "a dog in rhymes", "retries": 0}),
]

CHANGED = (
    "this tool runs again from its start for each answer of the client, and asked something else this time: "
    "what it asks may depend only on its arguments, on earlier answers, and on what `once` returned"
)


def expected(server: Server, declared: Declared) -> dict[str, object]:
    """What comes of each call, and what the model is asked. Numbers that were drawn are N."""
    with_tools, no_tools = declared == "tools", "the client did not declare sampling.tools"
    schema = "required of answer" if with_tools else "no tools"
    legs: object = {"result": "answered: You said: N / N"}
    if not with_tools:
        legs = {"error": [-32021, no_tools]} if server.version == 2 else server.failed("legs", no_tools)
    asked = [
        f"1 messages, {schema}: Describe a dog",
        f"1 messages, {schema}: Describe something wrong",
        f"3 messages, {schema}: what does not fit",
        *(["1 messages, auto of count: Count the legs of ['dog', 'bird']"] if with_tools else []),
        *(["3 messages, auto of count: N / N"] if with_tools else []),
        *(f"1 messages, no tools: {name}: tea?" for name in ("Ann", "Bob", "Cy", "Di")),
        *["1 messages, no tools: side N"] * 2,
        *(["1 messages, auto of greet: Call it for 'Ann' and 'Bob'."] if with_tools else []),
        *(f"1 messages, {schema}: Describe a dog in {how}" for how in ("words", "rhymes")),
    ]
    outcomes = [
        {"name": "Rex", "legs": 4},
        {"name": "Rex", "legs": 4},
        legs,
        {name: f"You said: {name}: tea?" for name in ("Ann", "Bob", "Cy", "Di")},
        {"result": True},
        {"result": "drifted"} if server.era == LEGACY else server.failed("drift", CHANGED),
        {"result": "greet {'name': 'Ann'}, greet {'name': 'Bob'}" if with_tools else no_tools},
        {"name": "Rex", "legs": 4},
        {"name": "the answer is not JSON: expected value at line 1 column 1", "legs": 0},
    ]
    return {"outcomes": outcomes, "asked": asked}


def seen(report: dict[str, object]) -> dict[str, object]:
    """The report, with N for numbers that were drawn. The three questions that are asked at once come in any order."""
    report = json.loads(re.sub(r"(?<!-)\b\d{4,}", "N", json.dumps(report)))
    asked: Any = report["asked"]
    asked[2] = re.sub(": .* fit .* legs: .*", ": what does not fit", asked[2])
    first = next(index for index, text in enumerate(asked) if "tea?" in text)
    asked[first : first + 3] = sorted(asked[first : first + 3])
    return report


def way(server: Server, transport: str, urls: dict[tuple[int, str], str], mark: str) -> Where:
    """Its URL, or the command that starts one."""
    if transport == "http":
        return urls[server.version, server.kind]
    return sampling_server(server.version, server.kind, "stdio", 0, mark)


@pytest.mark.parametrize(("transport", "declared"), [("stdio", "tools"), ("http", "tools"), ("http", "plain")])
async def test_our_client_gets_the_same_results_from_every_server(
    server: Server, transport: str, declared: Declared, urls: dict[tuple[int, str], str], mark: str
) -> None:
    report = await call_by_ours(way(server, transport, urls, mark), server.era, declared, CALLS)

    assert seen(report) == expected(server, declared)


@pytest.mark.parametrize(("transport", "declared"), [("stdio", "tools"), ("http", "plain")])
async def test_the_official_client_gets_the_same_results_from_every_server(
    server: Server, transport: str, declared: Declared, urls: dict[tuple[int, str], str], mark: str
) -> None:
    where = way(server, transport, urls, mark)
    report = await call_by_official(server.version, where, server.era, declared, CALLS)

    assert seen(report) == expected(server, declared)


async def test_a_client_that_does_not_sample_is_told_so(server: Server, urls: dict[tuple[int, str], str]) -> None:
    report = await call_by_ours(urls[server.version, server.kind], server.era, "none", CALLS[:1])

    missing = "the client did not declare sampling"
    told = {"error": [-32021, missing]} if server.version == 2 else server.failed("describe", missing)
    assert report == {"outcomes": [told], "asked": []}


async def test_prompts_and_resources_sample_too(server: Server, urls: dict[tuple[int, str], str]) -> None:
    model = RuleModel()
    with fail_after(IN_TIME):
        async with connected(urls[server.version, server.kind], server.era, sampling_by(model, "tools")) as client:
            prompt = await client.get_prompt("ode", {"to": "tea"})
            resource = await client.read_resource("ode://tea")

    ode = "An ode to tea: You said: A rhyme on tea"
    assert prompt.messages == [PromptMessage(role="user", content=TextContent(text=ode))]
    assert [part.text for part in resource.contents if isinstance(part, TextResourceContents)] == [ode]
    assert model.asked == ["1 messages, no tools: A rhyme on tea"] * 2


@pytest.mark.parametrize("kind", ["sdk", "fastmcp"])
async def test_answers_that_the_client_has_made_up_reach_no_tool(kind: str, urls: dict[tuple[int, str], str]) -> None:
    """Both servers seal the state, and refuse one that they have not written."""
    made_up = {"version": 2, "recorded": [], "asked": {"sampling-1": ["", "0-1"]}}
    meta = {"protocolVersion": "2026-07-28", "clientCapabilities": {"sampling": {}}}
    params = {
        "name": "toss",
        "requestState": json.dumps(made_up),
        "inputResponses": {"sampling-1": {"role": "assistant", "content": {"type": "text", "text": "!"}, "model": "m"}},
        "_meta": {f"io.modelcontextprotocol/{key}": value for key, value in meta.items()},
    }
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28"}
    async with AsyncClient(
        headers={**headers, "Mcp-Method": "tools/call", "Mcp-Name": "toss"}, timeout=IN_TIME
    ) as http:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        response = await http.post(urls[2, kind], json=message)

    error = {"code": -32602, "message": "Invalid or expired requestState", "data": {"reason": "invalid_request_state"}}
    assert response.json() == {"jsonrpc": "2.0", "id": 1, "error": error}
