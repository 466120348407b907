"""The proxy between servers and clients that others wrote: each gets what it would get without it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from anyio import CancelScope, fail_after, to_thread

from mcp_host import Change, Client, Elicitation, FormRequest, Stdio, StreamableHttp
from mcp_host.errors import ResourceNotFound, ServerError
from mcp_host.proxy import Proxy
from mcp_host.serving.subscriptions import UPDATED
from mcp_host.types import (
    BlobResourceContents,
    ElicitResult,
    ProgressNotificationParams,
    ResourceUpdatedNotification,
    ResourceUpdatedNotificationParams,
)
from tests.interop.clients.rules import RuleModel
from tests.interop.heard import Changes, Logs
from tests.interop.processes import (
    SERVERS,
    AnyTransport,
    Era,
    HttpServer,
    Sdk,
    both_eras,
    everything_command,
    free_port,
    official_client,
    running,
    sampling_server,
    tools_server,
)
from tests.interop.sampled import call_by_official, sampling_by
from tests.interop.test_everything import DOCUMENT
from tests.interop.test_official_client import MODES, OURS, expected
from tests.interop.test_other_clients import MODERN, SINCE_2026, report
from tests.interop.test_sampling_servers import CALLS
from tests.interop.test_sampling_servers import Server as SamplingServer
from tests.interop.test_sampling_servers import expected as expected_of_samples
from tests.interop.test_sampling_servers import seen as samples_seen

IN_TIME = 60.0  # seconds for a test; each takes five at most when the machine is idle

Request = tuple[str, dict[str, Any]]


def call(name: str, **arguments: Any) -> Request:
    return "tools/call", {"name": name, "arguments": arguments}


TOOLS: Request = ("tools/list", {})

BOTH_ERAS = [
    TOOLS,
    call("calculate", question="2+3 and 4*5, in all?"),
    call("gather", what="tea"),
    call("nosuch"),
    ("resources/read", {"uri": "note://today"}),
    ("resources/read", {"uri": "note://yesterday"}),
    ("prompts/get", {"name": "ode", "arguments": {"to": "tea"}}),
    call("count", to=3),
]
REQUESTS: dict[str, Sequence[Request]] = {
    "python": BOTH_ERAS,
    "typescript": BOTH_ERAS,
    "python-v1": [
        TOOLS,
        call("draw", what="cat"),
        call("look_up", topic="x"),
        call("fail"),
        call("advise", city="Bonn"),
    ],
    "fastmcp": [TOOLS, call("describe", what="a dog"), call("poll", question="tea?"), call("careful")],
    "everything": [
        TOOLS,
        call("get-tiny-image"),
        call("trigger-sampling-request", prompt="the tide?", maxTokens=50),
        call("trigger-elicitation-request"),
        call("trigger-url-elicitation", url="https://example.org/", elicitationId="e1"),
        call("trigger-url-elicitation", url="https://example.org/", elicitationId="e1", errorPath=True),
        call("trigger-long-running-operation", duration=0.2, steps=2),
    ],
}
"""What is asked of each server."""

LOGGED = {"python": "at 3", "typescript": "at 3", "everything": "Roots updated"}
"""What the last line of the log of a server says. The others write none."""

ONE_ERA = {"python-v1", "everything"}
"""Servers that know no revision of 2026."""

SERVED: list[tuple[str, Era]] = [(name, era) for name in REQUESTS for era in ("legacy", "modern")]


async def fill_in(request: FormRequest) -> ElicitResult:
    fields: Any = request.requested_schema["properties"]
    known = {"size": "large", "count": 2, "name": "Ada"}
    return request.accept(**{name: value for name, value in known.items() if name in fields})


async def visit(request: object) -> ElicitResult:
    return ElicitResult(action="accept")


async def seen(server: AnyTransport | Proxy, era: Era, name: str, model: RuleModel, *, samples: bool) -> list[object]:
    """What a host gets from the server called *name*: each answer, the progress, the log. It has the model if it *samples*."""
    answers: list[object] = []
    wanted = None if era == "modern" and name in ONE_ERA else LOGGED.get(name)
    logs = Logs(wanted or "")

    async def progress(reported: ProgressNotificationParams) -> None:
        answers.append([reported.progress, reported.total, reported.message])

    async with Client(
        server,
        era=era,
        sampling=sampling_by(model, "tools" if samples else "none"),
        elicitation=Elicitation(form=fill_in, url=visit),
        roots=["/home/ada/here"],
        on_log=logs,
    ) as client:
        for method, params in REQUESTS[name]:
            try:
                answers.append(await client.request(method, params, on_progress=progress))
            except ResourceNotFound as exc:  # both SDKs send the code of 2026-07-28 in all revisions
                answers.append(["not found", exc.message, exc.data])
            except ServerError as exc:
                answers.append([exc.code, exc.message, exc.data])
        if wanted:
            await logs.enough.wait()
    return [*plain(answers), logs.lines, sorted(model.asked)]


def as_of_2026(answers: list[object]) -> list[object]:
    """What a host of 2026-07-28, which has no error -32042, gets: the call that was answered with it is made again.

    Then the server answers as it did the call before, which asked for the same visit in another way. The host gets no
    log outside of its calls either, where these servers write theirs.
    """
    *answered, _, asked = answers
    again = [
        answered[index - 1] if isinstance(answer, list) and answer[:1] == [-32042] else answer
        for index, answer in enumerate(answered)
    ]
    return [*again, [], asked]


OF_ONE_REVISION = {"resultType", "ttlMs", "cacheScope", "io.modelcontextprotocol/serverInfo"}
DRAWN = re.compile("call_[0-9a-f]{16}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}")


def plain(value: Any) -> Any:
    """The value without what only one revision has, the JSON in texts decoded, and no ids that are drawn."""
    match value:
        case dict():
            kept = {key: plain(item) for key, item in value.items() if key not in OF_ONE_REVISION}
            return {key: item for key, item in kept.items() if (key, item) != ("_meta", {})}
        case list():
            return [plain(item) for item in value]
        case str() if value.startswith("{"):
            return plain(json.loads(value))
        case str():
            return DRAWN.sub("drawn", value)
    return value


@pytest.fixture(scope="module")
def urls(both_eras_http: dict[Sdk, HttpServer], everything_http: HttpServer) -> Iterator[dict[str, str]]:
    """Where each server listens."""
    marks = {"python-v1": "interop-proxy-v1", "fastmcp": "interop-proxy-fastmcp"}
    ports = {name: free_port() for name in marks}
    commands = {
        "python-v1": tools_server(1, "http", ports["python-v1"], marks["python-v1"]),
        "fastmcp": sampling_server(2, "fastmcp", "http", ports["fastmcp"], marks["fastmcp"]),
    }
    with ExitStack() as stack:
        started = {
            name: stack.enter_context(HttpServer(command, ports[name], ready="Uvicorn running")).url
            for name, command in commands.items()
        }
        yield {**{sdk: http.url for sdk, http in both_eras_http.items()}, "everything": everything_http.url, **started}

    assert [running(mark) for mark in marks.values()] == [[], []]


@pytest.mark.parametrize(("name", "era"), SERVED, ids=[f"{name}-{era}" for name, era in SERVED])
async def test_a_server_gives_a_host_the_same_through_a_proxy(name: str, era: Era, urls: dict[str, str]) -> None:
    """The proxy's model answers as that of the host would."""
    its_era = "legacy" if name in ONE_ERA else era
    with fail_after(IN_TIME):
        direct = await seen(StreamableHttp(urls[name]), its_era, name, RuleModel(), samples=True)
        for samples in (True, False):
            model = RuleModel()
            proxy = Proxy(StreamableHttp(urls[name]), sampling=sampling_by(model, "none" if samples else "tools"))
            through = await seen(proxy, era, name, model, samples=samples)
            assert through == (as_of_2026(direct) if its_era != era else direct)
            await proxy.aclose()
    asked: Any = direct[-1]
    assert ("turn 2 with 16 tools" in asked) if REQUESTS[name] is BOTH_ERAS else asked


CROSSED: list[tuple[Era, Era]] = [("legacy", "modern"), ("modern", "legacy")]
"""The eras of the server and of the host, where the proxy has most to do."""


def updated(uri: str) -> Change:
    return ResourceUpdatedNotification(params=ResourceUpdatedNotificationParams(uri=uri))


class Told:
    """An *on_change* that keeps the changes of lists, and those of resources."""

    def __init__(self, kind: str) -> None:
        self.lists, self.updates = Changes(f"notifications/{kind}/list_changed"), Changes(UPDATED)

    async def __call__(self, change: Change) -> None:
        await self.lists(change)
        await self.updates(change)


@pytest.mark.parametrize(("era", "host"), CROSSED)
async def test_a_host_cancels_and_gets_changes_and_a_result_of_10_mib_through_a_proxy(
    sdk: Sdk, era: Era, host: Era, both_eras_http: dict[Sdk, HttpServer]
) -> None:
    name, told, note = f"tool-{uuid.uuid4().hex}", Told("tools"), "note://today"
    announces = (sdk, era) != ("python", "legacy")  # there MCPServer declares no changes (2.3.0)

    async def abandon(report: ProgressNotificationParams) -> None:
        abandoned.cancel()

    proxy = Proxy(StreamableHttp(both_eras_http[sdk].url), era=era)
    with fail_after(IN_TIME):
        async with Client(proxy, era=host, on_change=told) as client:
            with CancelScope() as abandoned:
                await client.call_tool("hang", {"name": name}, on_progress=abandon)
            ended = await client.call_tool("cancellation_of", {"name": name})
            long = await client.call_tool("repeat", {"words": "high low ", "times": 600_000})
            await client.call_tool("offer", {"name": name})
            if announces:
                await told.lists.any.wait()
                await client.subscribe_resource(note)
                await client.call_tool("touch", {"uri": note})
                await told.updates.any.wait()
            listed = [tool.name for tool in await client.list_tools()]
        await proxy.aclose()

    assert ended.structured_content == {"result": name}
    assert long.structured_content == {"result": "high low " * 600_000}  # which is there twice, also as text
    assert name in listed
    assert set(told.updates.kept) == ({updated(note)} if announces else set())


@pytest.mark.parametrize("host", ["legacy", "modern"])
async def test_server_everything_announces_changes_through_a_proxy(host: Era, mark: str) -> None:
    told = Told("resources")
    made = {"name": "tides.gz", "data": "data:text/plain,high%20and%20low", "outputType": "resourceLink"}
    proxy = Proxy(Stdio(everything_command("stdio", mark)))
    with fail_after(IN_TIME):
        async with Client(proxy, era=host, on_change=told) as client:
            await client.subscribe_resource(DOCUMENT)
            await client.call_tool("toggle-subscriber-updates")
            await told.updates.any.wait()
            await client.call_tool("toggle-subscriber-updates")
            await client.call_tool("gzip-file-as-resource", made)
            await told.lists.any.wait()
            [contents] = (await client.read_resource("demo://resource/session/tides.gz")).contents
        await proxy.aclose()

    assert set(told.updates.kept) == {updated(DOCUMENT)}
    assert isinstance(contents, BlobResourceContents)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_command_between_two_pipes_gives_the_same(era: Era, mark: str) -> None:
    server = both_eras("typescript", "stdio", 0, mark)
    between = Stdio([sys.executable, "-m", "mcp_host", "proxy", "--", *server])
    with fail_after(IN_TIME):
        direct = await seen(Stdio(server), era, "typescript", RuleModel(), samples=True)
        assert await seen(between, era, "typescript", RuleModel(), samples=True) == direct


@pytest.mark.parametrize(("version", "era"), [(1, "legacy"), (2, "modern")])
async def test_a_model_of_the_proxy_samples_for_an_official_client(
    version: int, era: Era, urls: dict[str, str]
) -> None:
    """Which has none, and talks to fastmcp 4 in revision 2026-07-28."""
    model = RuleModel()
    proxy = Proxy(StreamableHttp(urls["fastmcp"]), sampling=sampling_by(model, "tools"))
    async with proxy.http() as url:
        outcomes = (await call_by_official(version, url, era, "none", CALLS))["outcomes"]
    await proxy.aclose()

    server = SamplingServer(2, "fastmcp", "modern")
    assert samples_seen({"outcomes": outcomes, "asked": model.asked}) == expected_of_samples(server, "tools")


HOSTS: list[tuple[str, int, Era, Sdk]] = [
    ("sdk", 1, "legacy", "python"),
    ("sdk", 2, "legacy", "typescript"),
    ("sdk", 2, "modern", "typescript"),
    ("fastmcp", 2, "legacy", "python"),
    ("fastmcp", 2, "modern", "typescript"),
    ("typescript", 1, "legacy", "python"),
]
"""Clients of others, with a server that is asked in the other era: MCPServer announces no changes in the legacy one."""

TIMES = 582_000
"""A text that is there twice, also as structured content, in almost 10 MiB. The TypeScript SDK reads no longer line."""

TOO_LONG = "SSE stream failed: Server-sent event exceeded the 1048576 byte limit."
"""What the Python SDK says of a longer event, unless it is told another limit. By fastmcp it is not."""


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize(("package", "version", "host", "sdk"), HOSTS)
async def test_a_client_of_others_cancels_samples_and_gets_changes_and_a_result_of_10_mib_through_a_proxy(
    package: str,
    version: int,
    host: Era,
    sdk: Sdk,
    transport: str,
    both_eras_http: dict[Sdk, HttpServer],
    mark: str,
) -> None:
    name, note = f"tool-{uuid.uuid4().hex}", "note://today"
    calls: list[tuple[str, dict[str, Any]]] = [
        ("hang", {"name": name}),
        ("cancellation_of", {"name": name}),
        ("repeat", {"words": "high low ", "times": TIMES}),
        ("offer", {"name": name}),
        ("touch", {"uri": note}),
        ("calculate", {"question": "2+3 and 4*5, in all?"}),
    ]
    era: Era = "modern" if host == "legacy" else "legacy"
    if transport == "stdio":
        proxy = [sys.executable, "-m", "mcp_host", "proxy", "--era", era, "--", *both_eras(sdk, "stdio", 0, mark)]
        report = await call_by_official(version, proxy, host, "tools", calls, package=package)
    else:
        between = Proxy(StreamableHttp(both_eras_http[sdk].url), era=era)
        async with between.http() as url:
            report = await call_by_official(version, url, host, "tools", calls, package=package)
        await between.aclose()

    outcomes: Any = report["outcomes"]
    long, calculated = outcomes.pop(2), outcomes.pop()
    limited = package == "fastmcp" and transport == "http"
    assert long == ({"error": [-32000, TOO_LONG]} if limited else {"result": "high low " * TIMES})
    assert outcomes == [
        "cancelled",
        {"result": name},
        {"result": name},
        ["notifications/tools/list_changed"],
        {"result": note},
        [UPDATED, note],
    ]
    assert [*calculated["ran"].values()] == ["5", "20", "25"]
    assert report["asked"] == [f"turn {turn} with 16 tools" for turn in range(3)]


async def test_an_official_client_sees_our_server_through_a_proxy_as_it_is() -> None:
    """In either era, over either transport."""
    proxy = Proxy([sys.executable, str(OURS), "stdio"])

    def run(url: str) -> subprocess.CompletedProcess[str]:
        command = official_client(SERVERS / "proxied.py", url)
        return subprocess.run(command, capture_output=True, text=True, timeout=IN_TIME, check=False)

    async with proxy.http() as url:
        ended = await to_thread.run_sync(run, url)
    await proxy.aclose()

    assert ended.returncode == 0, ended.stderr
    ways = [(transport, mode) for transport in ("stdio", "http") for mode in MODES]
    assert json.loads(ended.stdout) == {f"{transport}-{mode}": expected(mode) for transport, mode in ways}


def test_fastmcps_client_samples_for_a_server_behind_the_command(mark: str) -> None:
    assert report(2, "fastmcp", MODERN, "call", "asyncio", mark, proxied=True) == SINCE_2026
