"""Which era a client finds, or insists on, in the servers of both official SDKs and in those that only shake hands."""

from __future__ import annotations

import pytest
from anyio import fail_after

from mcp_host import Client, EraCache, Sampling, Stdio, StreamableHttp, ToolCall, __version__, always
from mcp_host.errors import NoCommonVersion
from mcp_host.testing import ScriptedModel
from tests.interop.heard import reported
from tests.interop.processes import (
    AnyTransport,
    HttpServer,
    Sdk,
    both_eras,
    both_eras_over_http,
    typescript_sdk,
)

IN_TIME = 30.0  # seconds for a test; each takes two at most when the machine is idle


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest, sdk: Sdk, both_eras_http: dict[Sdk, HttpServer], mark: str) -> AnyTransport:
    if request.param == "stdio":
        return Stdio(both_eras(sdk, "stdio", 0, mark))
    return StreamableHttp(both_eras_http[sdk].url)


async def test_a_server_of_both_eras_is_used_without_a_handshake(server: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(server) as client:
            told = reported(await client.call_tool("told"))
            found = (client.protocol_version, client.server_info.name, client.server_info.version, client.instructions)
            warnings = client.warnings

    assert told == {
        "version": "2026-07-28",
        "client": {"name": "mcp-host", "version": __version__},
        "capabilities": {},
    }
    assert found == ("2026-07-28", "both-eras", "1.0.0", "For interoperability tests.")
    assert warnings == []


@pytest.mark.parametrize(
    ("era", "version"),
    [
        ("legacy", "2025-11-25"),
        ("modern", "2026-07-28"),
        ("2026-07-28", "2026-07-28"),
        ("2025-06-18", "2025-06-18"),
        ("2024-11-05", "2024-11-05"),
    ],
)
async def test_a_client_with_an_era_or_a_version_set_gets_it(
    sdk: Sdk, both_eras_http: dict[Sdk, HttpServer], era: str, version: str
) -> None:
    with fail_after(IN_TIME):
        async with Client(StreamableHttp(both_eras_http[sdk].url), era=era) as client:
            told = reported(await client.call_tool("told"))
            found = (client.protocol_version, client.server_info.name, client.instructions)

    assert told == {"version": version, "client": {"name": "mcp-host", "version": __version__}, "capabilities": {}}
    assert found == (version, "both-eras", "For interoperability tests.")


async def test_a_legacy_server_is_initialized_whatever_era_was_cached(mark: str) -> None:
    learned = EraCache()
    with fail_after(IN_TIME):
        async with Client(Stdio(typescript_sdk(mark)), era_cache=learned) as client:
            tools = [tool.name for tool in await client.list_tools()]
            first, warnings = client.protocol_version, client.warnings
        (server,) = learned.export()
        wrong = EraCache({server: "modern"})
        async with Client(Stdio(typescript_sdk(mark)), era_cache=wrong) as client:
            second = client.protocol_version

    assert (tools, warnings) == (["calculate"], [])
    assert (first, second) == ("2025-11-25", "2025-11-25")
    assert learned.export() == wrong.export() == {server: "legacy"}


async def test_a_handshake_server_cannot_be_used_with_era_modern(mark: str) -> None:
    with fail_after(IN_TIME), pytest.raises(NoCommonVersion):
        async with Client(Stdio(typescript_sdk(mark)), era="modern"):
            pass


async def test_a_modern_server_is_discovered_even_if_legacy_was_cached(mark: str) -> None:
    with fail_after(IN_TIME), both_eras_over_http("typescript", mark, "modern") as http:
        wrong = EraCache({http.url: "legacy"})
        async with Client(StreamableHttp(http.url), era_cache=wrong) as client:
            told = reported(await client.call_tool("told"))
        with pytest.raises(NoCommonVersion, match="2026-07-28"):
            async with Client(StreamableHttp(http.url), era="legacy"):
                pass

    assert isinstance(told, dict)
    assert told["version"] == "2026-07-28"
    assert wrong.export() == {http.url: "modern"}


async def test_a_server_without_sessions_samples_only_by_results(sdk: Sdk, mark: str) -> None:
    model = ScriptedModel(ToolCall("add", {"a": 2, "b": 3}), "5.")
    sampling = Sampling(with_tools=model, approve=always)
    with fail_after(IN_TIME), both_eras_over_http(sdk, mark, "stateless") as http:
        transport = StreamableHttp(http.url)
        async with Client(transport, sampling=sampling) as client:
            told = reported(await client.call_tool("calculate", {"question": "2+3?"}))
        async with Client(transport, era="legacy", sampling=sampling) as client:
            counted = await client.call_tool("count", {"to": 3})

    assert isinstance(told, dict)
    assert list(told["ran"].values()) == ["5"]
    assert counted.structured_content == {"result": 3}
    assert len(model.requests) == 2
