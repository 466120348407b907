"""`ServerSampling` in servers on the official SDK and on fastmcp, sampled by our client and by that of the official SDK.

The same tools give the same results everywhere. Version 2 of the SDK, and fastmcp 4, which is built on it, serve both
eras: in revision 2026-07-28 the tools run again from their start for each answer.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from anyio import fail_after

from mcp_host import Client, Sampling, SamplingRequest, Stdio, StreamableHttp, always
from mcp_host.errors import ServerError
from mcp_host.types import CallToolResult, CreateMessageResult, PromptMessage, TextContent, TextResourceContents
from tests.interop.clients.rules import RuleModel
from tests.interop.heard import texts
from tests.interop.processes import (
    Era,
    HttpServer,
    free_port,
    running,
    sampled_by_official_client,
    sampling_server,
)

IN_TIME = 60.0  # seconds for one connection and its calls, which take three; fastmcp alone is imported in two

LEGACY: Era = "legacy"
MODERN: Era = "modern"


@pytest.fixture
def anyio_backend() -> str:
    """That of our client only: the servers run in other processes."""
    return "trio"


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
    ("poll", {"question": "tea?"}),
    ("toss", {}),
    ("drift", {}),
    ("careful", {}),
]

CHANGED = (
    "this tool runs again from its start for each answer of the client, and asked something else this time: "
    "what it asks may depend only on its arguments, on earlier answers, and on what `once` returned"
)
MISFIT = "It does not fit: legs: Input should be a valid integer"


def expected(server: Server, *, with_tools: bool) -> dict[str, object]:
    """What comes of each call, and what the model is asked. Numbers that were drawn are N."""
    no_tools = "the client did not declare sampling.tools"
    schema = "required of answer" if with_tools else "no tools"
    asked = [
        f"1 messages, {schema}: Describe a dog",
        f"1 messages, {schema}: Describe something wrong",
        f"3 messages, {schema}: {MISFIT}" + ("" if with_tools else " Answer again."),
        *(f"1 messages, no tools: {name}: tea?" for name in ("Ann", "Bob", "Cy", "Di")),
        *["1 messages, no tools: side N"] * 2,
        *(["1 messages, auto of greet: Call it for 'Ann' and 'Bob'."] if with_tools else []),
    ]
    outcomes = [
        {"name": "Rex", "legs": 4},
        {"name": "Rex", "legs": 4},
        {name: f"You said: {name}: tea?" for name in ("Ann", "Bob", "Cy", "Di")},
        {"result": True},
        {"result": "drifted"} if server.era == LEGACY else server.failed("drift", CHANGED),
        {"result": "greet {'name': 'Ann'}, greet {'name': 'Bob'}" if with_tools else no_tools},
    ]
    return {"outcomes": outcomes, "asked": asked}


def seen(outcomes: list[object], asked: list[str]) -> dict[str, object]:
    """The three questions that are asked at once come in any order."""
    asked = [re.sub(r"\d{4,}", "N", text) for text in asked]
    first = next(index for index, text in enumerate(asked) if "tea?" in text)
    asked[first : first + 3] = sorted(asked[first : first + 3])
    return {"outcomes": json.loads(re.sub(r"\d{4,} / \d{4,}", "N / N", json.dumps(outcomes))), "asked": asked}


def way(server: Server, transport: str, urls: dict[tuple[int, str], str], mark: str) -> str | list[str]:
    """Its URL, or the command that starts one."""
    if transport == "http":
        return urls[server.version, server.kind]
    return sampling_server(server.version, server.kind, "stdio", 0, mark)


@pytest.mark.parametrize(("transport", "with_tools"), [("stdio", True), ("http", True), ("http", False)])
async def test_our_client_gets_the_same_results_from_every_server(
    server: Server, transport: str, with_tools: bool, urls: dict[tuple[int, str], str], mark: str
) -> None:
    model = RuleModel()
    where = way(server, transport, urls, mark)
    with fail_after(IN_TIME):
        async with connected(server, where, sampling_by(model, with_tools=with_tools)) as client:
            outcomes = [await outcome(client, name, arguments) for name, arguments in CALLS]

    assert seen(outcomes, model.asked) == expected(server, with_tools=with_tools)


@pytest.mark.parametrize(("transport", "with_tools"), [("stdio", True), ("http", False)])
def test_the_official_client_gets_the_same_results_from_every_server(
    server: Server, transport: str, with_tools: bool, urls: dict[tuple[int, str], str], mark: str
) -> None:
    mode, kind = "auto" if server.era == MODERN else "legacy", "tools" if with_tools else "plain"
    command = sampled_by_official_client(server.version, way(server, transport, urls, mark), mode, kind, CALLS)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=IN_TIME, check=False)
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)

    assert seen(report["outcomes"], report["asked"]) == expected(server, with_tools=with_tools)


async def test_a_client_that_does_not_sample_is_told_so(
    server: Server, urls: dict[tuple[int, str], str], mark: str
) -> None:
    with fail_after(IN_TIME):
        async with connected(server, urls[server.version, server.kind], None) as client:
            told = await outcome(client, "describe", {"what": "a dog"})

    missing = "the client did not declare sampling"
    assert told == ({"error": [-32021, missing]} if server.version == 2 else server.failed("describe", missing))


async def test_prompts_and_resources_sample_too(server: Server, urls: dict[tuple[int, str], str]) -> None:
    model = RuleModel()
    with fail_after(IN_TIME):
        async with connected(server, urls[server.version, server.kind], sampling_by(model, with_tools=True)) as client:
            prompt = await client.get_prompt("ode", {"to": "tea"})
            resource = await client.read_resource("ode://tea")

    rhyme = "An ode to tea: You said: A rhyme on tea"
    assert prompt.messages == [PromptMessage(role="user", content=TextContent(text=rhyme))]
    assert [part.text for part in resource.contents if isinstance(part, TextResourceContents)] == [rhyme]
    assert model.asked == ["1 messages, no tools: A rhyme on tea"] * 2


def sampling_by(model: RuleModel, *, with_tools: bool) -> Sampling:
    async def answer(request: SamplingRequest) -> CreateMessageResult:
        return CreateMessageResult.from_wire(model.answer(request.params.to_wire()))

    return Sampling(with_tools=answer, approve=always) if with_tools else Sampling(basic=answer, approve=always)


def connected(server: Server, where: str | list[str], sampling: Sampling | None) -> Client:
    return Client(StreamableHttp(where) if isinstance(where, str) else Stdio(where), era=server.era, sampling=sampling)


async def outcome(client: Client, name: str, arguments: dict[str, Any]) -> object:
    try:
        result: CallToolResult = await client.call_tool(name, arguments)
    except ServerError as exc:
        return {"error": [exc.code, exc.message]}
    if result.is_error:
        return {"failed": texts(result)[0]}
    return result.structured_content
