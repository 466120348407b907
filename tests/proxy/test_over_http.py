"""Who may use a proxy over HTTP."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import MutableMapping, Sequence
from typing import Any

import httpx
import pytest
from anyio import create_task_group, fail_after, sleep_forever, to_thread

from mcp_host import Client, StreamableHttp
from mcp_host.auth.login.loopback import has_address
from mcp_host.errors import ServerError, Unauthorized
from mcp_host.protocol.negotiation import LEGACY_VERSIONS
from mcp_host.proxy import Proxy
from mcp_host.serving.http.uvicorn_server import UvicornServer
from mcp_host.testing import Server
from tests.extent import on_both
from tests.proxy.servers import Planner, text_of

pytestmark = on_both

TOKEN = "s3cret"
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize("host", ["legacy", "modern"])
async def test_with_a_token_only_hosts_that_send_it_are_served(host: str) -> None:
    with fail_after(25):
        async with Proxy(Planner()).http(token=TOKEN) as url:
            async with Client(StreamableHttp(url, headers=BEARER), era=host) as client:
                assert "plan" in [tool.name for tool in await client.list_tools()]
            with pytest.raises(Unauthorized) as refused:
                async with Client(url, era=host):
                    pass
    assert refused.value.challenges == ('Bearer realm="mcp"',)


async def test_a_request_to_another_host_than_this_machine_is_misdirected() -> None:
    """A web page whose name was made to lead here names itself (DNS rebinding)."""
    with fail_after(25):
        async with Proxy(Planner()).http() as url, httpx.AsyncClient() as http:
            statuses = [(await http.get(url, headers=h)).status_code for h in ({"host": "evil.example"}, {})]
    assert statuses == [421, 400]


async def test_no_body_is_read_of_a_request_that_is_not_let_in() -> None:
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("the body is read")

    async def send(event: MutableMapping[str, Any]) -> None:
        sent.append(event)

    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [(b"host", b"localhost")]}
    await Proxy(Planner()).asgi(token=TOKEN)(scope, receive, send)
    assert [event.get("status") for event in sent] == [401, None]


async def test_a_result_of_10_mib_passes_whole() -> None:
    """Over HTTP on both sides, from a server with a handshake to a host without."""
    server, size = Server("large", versions=LEGACY_VERSIONS), 10 * 2**20

    @server.tool
    async def tides() -> str:
        return "high low " * (size // 9 + 1)

    with fail_after(60):
        async with server.http() as of_server, Proxy(of_server).http() as url, Client(url, era="modern") as client:
            text = text_of(await client.call_tool("tides"))
    assert len(text) > size
    assert text == "high low " * (len(text) // 9)


@pytest.mark.parametrize("json_response", [False, True])
@pytest.mark.parametrize("host", ["legacy", "modern"])
async def test_calls_under_way_end_with_an_error_when_the_proxy_is_shut_down(host: str, json_response: bool) -> None:
    begun, errors = threading.Event(), list[str]()  # another thread serves
    server = Server("slow")

    @server.tool
    async def wait() -> None:
        begun.set()
        await sleep_forever()

    async def call(url: str) -> None:
        async with Client(url, era=host) as client:
            with pytest.raises(ServerError) as ended:
                await client.call_tool("wait")
        errors.append(str(ended.value))

    with fail_after(25):
        async with create_task_group() as tasks, Proxy(server).http(json_response=json_response) as url:
            tasks.start_soon(call, url)
            await to_thread.run_sync(begun.wait, 25)
    assert errors == ["the server is shutting down (-32603)"]


ANY = ["other.example", "192.0.2.1"]

LISTENING: list[tuple[dict[str, Any], str, Sequence[str], str]] = [
    ({}, "127.0.0.1", ["127.0.0.1", "localhost"], "none"),
    ({"token": TOKEN}, "127.0.0.1", ["127.0.0.1", "localhost"], "given"),
    ({"host": "localhost"}, "localhost", ["127.0.0.1", "localhost"], "none"),
    *([({"host": "::1"}, "[::1]", ["127.0.0.1", "localhost"], "none")] if has_address("::1") else []),
    ({"host": "0.0.0.0"}, "0.0.0.0", ["127.0.0.1", "localhost", *ANY], "drawn"),
    ({"host": "0.0.0.0", "token": TOKEN}, "0.0.0.0", ["127.0.0.1", "localhost", *ANY], "given"),
]


def test_a_token_is_drawn_where_other_machines_can_connect(
    subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is printed once, before anything is served."""
    served: list[tuple[str, str, dict[str, int], int]] = []

    async def serve(server: UvicornServer, listeners: list[socket.socket]) -> None:
        out, err = capsys.readouterr()
        drawn = re.fullmatch(r"each request has to send this header: Authorization: Bearer ([\w-]{43})\n", err)
        headers = {"authorization": f"Bearer {drawn[1]}"} if drawn else BEARER
        assert drawn or not err
        app: Any = server.config.app
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as http:
            named = {
                host: (await http.get(f"http://{host}/mcp", headers=headers)).status_code
                for host in ("127.0.0.1", "localhost", *ANY)
            }
            bare = (await http.get("http://localhost/mcp")).status_code
        served.append((out, "drawn" if drawn else "given" if bare == 401 else "none", named, bare))

    monkeypatch.setattr(UvicornServer, "serve", serve)
    for options, host, hosts, kind in LISTENING:
        with subtests.test(f"{options}"):
            Proxy(Planner()).run_http(**options)

            url, token, statuses, bare = served.pop()
            assert re.fullmatch(rf"http://{re.escape(host)}:\d+/mcp\n", url)
            assert (token, bare) == (kind, 400 if kind == "none" else 401)
            assert [name for name, status in statuses.items() if status == 400] == hosts
            assert {*statuses.values()} <= {400, 421}
    assert capsys.readouterr() == ("", "")
