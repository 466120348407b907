"""A server behind a unix socket: a real one under uvicorn, and one down to the bytes."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from anyio.lowlevel import checkpoint

from mcp_host import Client, StreamableHttp
from mcp_host.errors import ConnectFailed
from mcp_host.testing import Context, Server
from mcp_host.transports._http.pool import Pool
from tests.faults.http_server import SOON, mcp, tides
from tests.transports.http_contract import authority, certified, untrusting
from tests.transports.http_peers import serving

tide_server = Server("tides")


@tide_server.tool
async def count(to: int, context: Context) -> int:
    """Count, with a report of progress for each number."""
    for number in range(to):
        await context.report_progress(number)
    return to


@tide_server.tool
async def echo(text: str) -> str:
    """The same text again."""
    return text


@pytest.mark.parametrize("json_response", [False, True], ids=["event streams", "JSON"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_is_reached_over_its_unix_socket(era: str, json_response: bool, tmp_path: Path) -> None:
    path = tmp_path / "mcp.sock"
    with anyio.fail_after(SOON):
        async with tide_server.http(uds=path, json_response=json_response) as url:
            async with Client(StreamableHttp(url, uds=path), era=era) as client:
                results = [await client.call_tool("count", {"to": number}) for number in (1, 2, 100)]

            assert url == "http://localhost/mcp"
            assert [result.structured_content for result in results] == [{"result": n} for n in (1, 2, 100)]
    assert not path.exists()


@pytest.mark.parametrize("as_text", [False, True], ids=["a path", "a path as text"])
async def test_proxies_of_the_environment_do_not_apply(
    as_text: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mcp.sock"
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)

    async with serving(mcp(), uds=path) as peer:
        with anyio.fail_after(SOON):
            transport = StreamableHttp("http://daemon.test/mcp", uds=str(path) if as_text else path)
            async with Client(transport, era="legacy") as client:
                await tides(client)

    assert {heard.headers["host"] for heard in peer.heard} == {"daemon.test"}


async def test_tls_goes_over_a_unix_socket_too(tmp_path: Path) -> None:
    path = tmp_path / "mcp.sock"
    authority().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    async with serving(mcp(), uds=path, tls=certified("daemon.test")):
        with anyio.fail_after(SOON):
            transport = StreamableHttp("https://daemon.test/mcp", uds=path, verify=tmp_path / "ca.pem")
            async with Client(transport, era="legacy") as client:
                await tides(client)


async def test_a_body_of_many_megabytes_goes_over_a_unix_socket(tmp_path: Path) -> None:
    path, text = tmp_path / "mcp.sock", "x" * 5_000_000
    with anyio.fail_after(SOON * 2):
        async with tide_server.http(uds=path) as url, Client(StreamableHttp(url, uds=path)) as client:
            assert (await client.call_tool("echo", {"text": text})).text == text


async def test_a_server_that_is_started_again_at_the_same_path_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "mcp.sock"
    transport = StreamableHttp("http://localhost/mcp", uds=path)
    with anyio.fail_after(SOON * 2):
        async with tide_server.http(uds=path):
            client = Client(transport, era="legacy")
            await client.connect()
            await client.call_tool("count", {"to": 1})
        async with tide_server.http(uds=path):
            assert (await client.call_tool("count", {"to": 1})).structured_content == {"result": 1}
            await client.aclose()


async def test_a_server_replaces_the_socket_of_a_killed_one_but_no_file_and_no_socket_in_use(tmp_path: Path) -> None:
    file, path = tmp_path / "notes.txt", tmp_path / "mcp.sock"
    file.write_text("no socket")
    stale(path)
    with anyio.fail_after(SOON):
        with pytest.raises(OSError, match="Address already in use"):
            async with tide_server.http(uds=file):
                pass
        async with tide_server.http(uds=path) as url:
            with pytest.raises(OSError, match="Address already in use"):
                async with tide_server.http(uds=path):
                    pass
            async with Client(StreamableHttp(url, uds=path)) as client:
                assert (await client.call_tool("count", {"to": 1})).structured_content == {"result": 1}

    assert file.read_text() == "no socket"


async def test_data_that_arrives_as_a_read_is_cancelled_leaves_nothing_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, reading = str(tmp_path / "mcp.sock"), anyio.CancelScope()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        connection = await Pool(httpx.URL("http://localhost"), "", untrusting(), uds=path)._open()
        server, _ = listener.accept()

    async def read() -> None:
        with reading:
            await connection.read()

    with server, anyio.fail_after(SOON):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            server.sendall(b"x")
            await checkpoint()  # the event loop has seen the data, and runs this task before the reader
            reading.cancel()
        await connection.close()

    assert caplog.messages == []


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        pytest.param(lambda path: None, "No such file or directory", id="nothing"),
        pytest.param(lambda path: path.write_text("no socket"), "Connection refused", id="a file"),
        pytest.param(lambda path: stale(path), "Connection refused", id="a socket without a server"),
    ],
)
async def test_a_socket_that_leads_nowhere_is_named(prepare: Any, why: str, tmp_path: Path) -> None:
    path = tmp_path / "mcp.sock"
    prepare(path)
    with anyio.fail_after(SOON), pytest.raises(ConnectFailed) as caught:
        await Client(StreamableHttp("http://localhost/mcp", uds=path)).connect()

    assert caught.value.may_have_run is False
    before, _, after = str(caught.value).partition("[Errno ")
    assert before == f"http://localhost/mcp at the unix socket {path}: "
    assert after.endswith(f"] {why}")


async def test_a_path_too_long_for_a_socket_is_an_error_of_connecting() -> None:
    with anyio.fail_after(SOON), pytest.raises(ConnectFailed, match="AF_UNIX path too long"):
        await Client(StreamableHttp("http://localhost/mcp", uds="/" + "x" * 200)).connect()


def stale(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


# As a value


def test_a_description_shows_its_socket_and_servers_behind_two_are_two() -> None:
    one = StreamableHttp("http://user:hunter2@localhost/mcp?key=hunter2", uds="/run/one.sock")
    other = StreamableHttp("http://localhost/mcp", uds="/run/other.sock")

    assert repr(one) == "StreamableHttp('http://localhost/mcp', uds='/run/one.sock')"
    assert (one.name, other.name) == ("http://localhost/mcp", "http://localhost/mcp")
    assert (one.identity, other.identity) == (
        "http://localhost/mcp at /run/one.sock",
        "http://localhost/mcp at /run/other.sock",
    )


@pytest.mark.parametrize(
    ("uds", "error", "complaint"),
    [
        pytest.param("", ValueError, "^uds has a path that is empty or has a NUL character$", id="nothing"),
        pytest.param("\0x", ValueError, "^uds has a path that is empty or has a NUL character$", id="a NUL"),
        pytest.param(5, TypeError, "^uds is the path of a unix socket, not int$", id="a number"),
    ],
)
def test_what_is_no_path_is_refused(uds: Any, error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        StreamableHttp("http://localhost/mcp", uds=uds)


async def test_a_client_brings_its_own_socket() -> None:
    async with httpx.AsyncClient() as client:
        with pytest.raises(
            ValueError, match=r"^client= brings its own sockets: write .*HTTPTransport\(uds=\.\.\.\)\)\)$"
        ):
            StreamableHttp("http://localhost/mcp", client=client, uds="/run/mcp.sock")


def test_a_system_without_unix_sockets_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "AF_UNIX")

    with pytest.raises(ValueError, match=r"^uds: there are no unix sockets here$"):
        StreamableHttp("http://localhost/mcp", uds="/run/mcp.sock")
