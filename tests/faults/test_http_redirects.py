"""Redirects: none leads a token, a header or a body out of the origin, none changes the method, none is endless."""

from __future__ import annotations

from typing import Any

import pytest
from anyio import fail_after

from mcp_host import Client, StreamableHttp
from mcp_host.errors import ConnectionClosed, HttpStatusError, McpError
from tests.faults.fault import fault
from tests.faults.http_server import SOON, connected, error_of, failing, mcp, says, subjects, tides
from tests.transports.http_contract import libraries
from tests.transports.http_peers import Heard, Wire, serving
from tests.transports.legacy_peers import Answer, in_turn

SECRETS = {"Authorization": "Bearer secret", "X-Api-Key": "secret"}


def to(location: str, status: int = 307) -> Answer:
    return says(b"", status, location=location)


@libraries
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("follow", [True, False], ids=["a client that follows", "a client that does not"])
@fault("H33")
async def test_a_call_does_not_follow_a_redirect_to_another_origin(library: Any, status: int, follow: bool) -> None:
    async with serving(mcp()) as other, library.AsyncClient(follow_redirects=follow, headers=SECRETS) as http:
        script = mcp(call=in_turn(to(other.url, status), says()))
        async with connected(script, client=http, headers=SECRETS) as (client, _):
            error = await failing(client)
            await tides(client)

    assert isinstance(error, HttpStatusError)
    assert (error.status, other.connections) == (status, 0)
    assert f"refused to follow a redirect to {other.url}" in str(error)


@pytest.mark.parametrize("era", ["auto", "legacy", "modern"])
@fault("H33")
async def test_a_handshake_does_not_follow_a_redirect_to_another_origin(era: str) -> None:
    async with serving(mcp()) as other:
        redirect = to(other.url)
        async with serving(mcp(discover=redirect, initialize=redirect)) as peer:
            with fail_after(SOON), pytest.raises(McpError, match="another origin"):
                await Client(StreamableHttp(peer.url, headers=SECRETS), era=era).connect()

    assert other.connections == 0


@fault("H33")
async def test_the_servers_stream_and_the_delete_do_not_follow_a_redirect_to_another_origin() -> None:
    async with serving(mcp()) as other:
        script = mcp(get=to(other.url), delete=to(other.url), initialized=to(other.url))
        async with connected(script, headers=SECRETS) as (client, peer):
            await tides(client)
            await peer.hears("GET", 1)

    assert {"get", "delete", "initialized"} < set(subjects(peer))
    assert other.connections == 0


@pytest.mark.parametrize(
    "location",
    [
        "https://127.0.0.1:@port/mcp",
        "//localhost:@port/mcp",
        "http://127.0.0.1:@port@evil.invalid/mcp",
        "http://127.0.0.2:@port/mcp",
        "http://[::1]:@port/mcp",
        "http://0x7f.1:@port/mcp",
        "http://127.0.0.1:1/mcp",
        "http://169.254.169.254/latest/meta-data/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:@port/",
        "javascript:alert(1)",
        "data:application/json,{}",
    ],
)
@fault("H33", "H34")
async def test_a_url_that_only_resembles_the_origin_is_another_origin(location: str) -> None:
    async def answer(wire: Wire, heard: Heard) -> None:
        port = heard.headers["host"].rpartition(":")[2]
        await to(location.replace("@port", port))(wire, heard)

    error = await error_of(answer)

    assert isinstance(error, HttpStatusError | ConnectionClosed)
    if isinstance(error, HttpStatusError):
        assert "another origin" in str(error)


@pytest.mark.parametrize("status", [307, 308])
@fault("H34")
async def test_a_redirect_within_the_origin_keeps_method_headers_and_body(status: int) -> None:
    async with connected(mcp(call=in_turn(to("/elsewhere?a=b", status), says())), headers=SECRETS) as (client, peer):
        await tides(client)

    first, second = (heard for heard in peer.heard if heard.method == "POST" and b"tools/call" in heard.body)
    assert (first.path, second.path) == ("/mcp", "/elsewhere?a=b")
    assert (first.method, first.headers, first.body) == (second.method, second.headers, second.body)


@pytest.mark.parametrize("status", [301, 302, 303])
@fault("H34")
async def test_a_redirect_that_would_turn_a_call_into_a_get_is_an_error(status: int) -> None:
    async with connected(mcp(call=in_turn(to("/login", status), says()))) as (client, peer):
        error = await failing(client)
        await tides(client)

    assert isinstance(error, HttpStatusError)
    assert (error.status, "which would change the method" in str(error)) == (status, True)
    assert {heard.path for heard in peer.heard} == {"/mcp"}


@fault("H34")
async def test_a_redirect_loop_ends() -> None:
    async with connected(mcp(call=to("/mcp"))) as (client, peer):
        error: McpError = await failing(client)

    assert isinstance(error, HttpStatusError)
    assert "gave up after 5 redirects" in str(error)
    assert subjects(peer).count("call") == 6


@pytest.mark.parametrize(
    "location", ["", "http://:x/", "http://[", "x" * 70_000], ids=["none", "no port", "no host", "too long"]
)
@fault("H34")
async def test_an_invalid_redirect_fails_its_call(location: str) -> None:
    assert isinstance(await error_of(to(location)), HttpStatusError | ConnectionClosed)
