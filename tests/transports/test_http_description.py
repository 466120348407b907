"""`StreamableHttp` as a value: what it accepts, what it shows, and the client it makes for itself."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator
from re import fullmatch
from traceback import format_exception
from typing import Any

import anyio
import httpx
import httpx2
import pytest
from anyio import to_thread

from mcp_host.errors import ConnectFailed, ConnectionClosed, HttpStatusError
from mcp_host.limits import Limits
from mcp_host.transports._http import tls
from mcp_host.transports._http.backend import HttpxBackend, PoolBackend, own_backend
from mcp_host.transports.http import StreamableHttp
from tests.faults.http_server import SOON
from tests.transports.http_contract import libraries
from tests.transports.http_peers import DONE, DONE_JSON, JSON, ask, opened, saying, serving

SECRET = "https://user:hunter2@mcp.test:8443/a/b?token=hunter2#hunter2"


def test_a_description_shows_where_it_leads_and_no_secret() -> None:
    http = StreamableHttp(SECRET, headers={"Authorization": "Bearer hunter2"})

    assert http.name == "https://mcp.test:8443/a/b"
    assert repr(http) == "StreamableHttp('https://mcp.test:8443/a/b')"


def test_a_description_cannot_be_changed() -> None:
    headers = {"X-Key": "1"}
    http = StreamableHttp("http://mcp.test/", headers=headers)
    headers["X-Key"] = "a\r\nb"

    with pytest.raises(AttributeError):
        http.url = "http://other.test/"  # type: ignore[misc]  # the point of the test
    assert http.headers == {"X-Key": "1"}


NO_SERVER = r"not a URL|not the URL of an HTTP server"
SPACE = r"^the URL has space around it: url\.strip\(\) removes it$"
NO_URLS = {
    **dict.fromkeys(["", "mcp.test", "/mcp", "ftp://mcp.test/", "file:///etc/passwd", "http://", "http:///mcp"], NO_SERVER),
    **dict.fromkeys(["http://h:99999/", "http://[::1/", "http://a..b/"], NO_SERVER),
    **dict.fromkeys([" http://mcp.test/", "http://mcp.test/mcp ", "http://mcp.test/mcp\n"], SPACE),
}  # fmt: skip


def test_only_the_url_of_an_http_server_will_do(subtests: pytest.Subtests) -> None:
    for url, complaint in NO_URLS.items():
        with subtests.test(repr(url)), pytest.raises(ValueError, match=complaint):
            StreamableHttp(url)


def test_a_refused_url_is_not_quoted() -> None:
    with pytest.raises(ValueError, match="not") as caught:
        StreamableHttp("http://user:hunter2@mcp.test:x/")

    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


BAD_HEADERS: list[tuple[str, str, str]] = [
    ("X", "hunter2\r\nY: z", "the value of the header X is not printable ASCII"),
    ("X", "hunter2\x00", "the value of the header X is not printable ASCII"),
    ("X", " hunter2", "the value of the header X is not printable ASCII"),
    ("X", "hunter2\u00e9", "the value of the header X is not printable ASCII"),
    ("Authorization: hunter2", "", "^the name of a header has ':' in it$"),
    ("", "hunter2", "^the name of a header is empty$"),
    ("mcp-session-id", "hunter2", "the transport writes the header mcp-session-id itself"),
    ("Accept", "hunter2", "the transport writes the header Accept itself"),
]


def test_a_header_that_cannot_be_sent_is_refused_without_being_quoted(subtests: pytest.Subtests) -> None:
    for name, value, complaint in BAD_HEADERS:
        with subtests.test(name=name, value=ascii(value)):
            with pytest.raises(ValueError, match=complaint) as caught:
                StreamableHttp("http://mcp.test/", headers={name: value})

            assert "hunter2" not in str(caught.value)


def test_headers_are_a_mapping() -> None:
    with pytest.raises(TypeError, match=r"^headers is a mapping of names to values, not list$"):
        StreamableHttp("http://mcp.test/", headers=[("X", "y")])  # type: ignore[arg-type]  # the test


@pytest.mark.parametrize("value", ["", "x", "a b\tc", "Bearer abc=="])
def test_other_headers_are_kept_as_they_are(value: str) -> None:
    assert StreamableHttp("http://mcp.test/", headers={"X": value}).headers == {"X": value}


async def test_one_tls_context_serves_every_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    build = httpx.create_ssl_context

    def create(*args: Any, **options: Any) -> ssl.SSLContext:
        made.append(options)
        return build(*args, **options)

    monkeypatch.setattr(httpx, "create_ssl_context", create)
    tls.trusted.cache_clear()
    for _ in range(3):
        async with opened("https://127.0.0.1:1/") as channel:
            with pytest.raises(ConnectFailed):
                await ask(channel)

    assert made == [{}]


async def test_without_tls_no_certificate_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "trusted", lambda: pytest.fail("read the certificates"))

    async with opened("http://127.0.0.1:1/") as channel:
        with pytest.raises(ConnectFailed):
            await ask(channel)


@pytest.mark.backends("asyncio")
@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        pytest.param({}, PoolBackend, id="none"),
        pytest.param({"http_proxy": "http://proxy.test"}, HttpxBackend, id="for this scheme"),
        pytest.param({"https_proxy": "http://proxy.test"}, PoolBackend, id="for another scheme"),
        pytest.param({"all_proxy": "http://proxy.test"}, HttpxBackend, id="for every scheme"),
        pytest.param({"http_proxy": ""}, PoolBackend, id="an empty one"),
        pytest.param({"http_proxy": "http://proxy.test", "no_proxy": "a.test, mcp.test"}, PoolBackend, id="not for this host"),
        pytest.param({"http_proxy": "http://proxy.test", "no_proxy": "*"}, PoolBackend, id="for no host"),
        pytest.param({"http_proxy": "http://proxy.test", "no_proxy": ".test"}, PoolBackend, id="not for its domain"),
    ],
)  # fmt: skip
async def test_httpx_is_used_if_there_may_be_a_proxy(
    environment: dict[str, str], kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_proxies(monkeypatch, environment)

    client = own_backend(httpx.URL("http://mcp.test/"), {}, "the server", Limits())
    await client.aclose()

    assert type(client) is kind


def set_proxies(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


NETWORKS = [
    ("10.1.2.3", "a.test, 10.0.0.0/8", True),
    ("10.1.2.3", "10.1.2.9/16", True),
    ("11.1.2.3", "10.0.0.0/8", False),
    ("[fd00::1]", "fd00::/8", True),
    ("[fd00::1]", "[fd00::1]", True),
    ("[fd00::1]", "[fd00::1]:81", True),
    ("[fd00::1]", "[fd00::2]", False),
    ("mcp.test", "10.0.0.0/8", False),
    ("mcp.test", "fd00::/8, [::1], [::1]:80, a.test:99999", False),
]


@pytest.mark.backends("asyncio")
async def test_networks_in_no_proxy_are_obeyed(monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests) -> None:
    for host, networks, excepted in NETWORKS:
        with subtests.test(host=host, networks=networks):
            set_proxies(monkeypatch, {"http_proxy": "http://proxy.test", "no_proxy": networks})
            url = httpx.URL(f"http://{host}:81/")

            backend = own_backend(url, {}, "the server", Limits())
            await backend.aclose()

            assert type(backend) is (PoolBackend if excepted else HttpxBackend)


@pytest.mark.backends("asyncio")
@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"all_proxy": "socks5://user:s3cret@127.0.0.1"}, "Using SOCKS proxy, but the 'socksio' package is not"),
        ({"http_proxy": "ftp://user:s3cret@127.0.0.1"}, "HTTP_PROXY, .* not the URL of a proxy"),
        ({"http_proxy": "http://user:s3cret@127.0.0.1:99999"}, "HTTP_PROXY, .* not the URL of a proxy"),
        ({"http_proxy": "http://user:s3cret#@127.0.0.1"}, ".*in a password, write %2F, %3F and %23 for /, [?] and #"),
        ({"http_proxy": "http://user:s3cret@a..b"}, "HTTP_PROXY, .* not the URL of a proxy"),
    ],
)
async def test_a_proxy_that_cannot_be_used_is_an_error_of_connecting(
    environment: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_proxies(monkeypatch, environment)
    monkeypatch.setitem(sys.modules, "socksio", None)

    with pytest.raises(
        ConnectFailed, match=rf"^the server: the proxy of the environment cannot be used: {why}"
    ) as caught:
        own_backend(httpx.URL("http://mcp.test/"), {}, "the server", Limits())

    assert not caught.value.may_have_run
    assert "s3cret" not in "".join(format_exception(caught.value))


NO = b"HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n"
YES = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(DONE_JSON), DONE_JSON)


async def test_an_auth_reaches_each_host_over_its_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that the environment has named since the client was made is not used."""

    class AsksOthers(httpx.Auth):
        async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
            for url in ("http://as.test/", other.url):
                response = yield httpx.Request("GET", url)
                statuses.append(response.status_code)
            set_proxies(monkeypatch, {"all_proxy": "http://new.test"})
            yield request

    statuses: list[int] = []
    async with serving(saying(NO)) as proxy, serving(saying(YES)) as server, serving(saying(YES)) as other:
        set_proxies(monkeypatch, {"all_proxy": proxy.url.removesuffix("/mcp"), "no_proxy": "127.0.0.0/8"})
        async with opened(server.url, auth=AsksOthers()) as channel:
            assert await ask(channel) == [DONE]

    assert statuses == [407, 200]


async def test_errors_of_a_proxy_name_the_proxy(monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests) -> None:
    for answer, url, error, text in [
        (b"", "http://mcp.test/", ConnectFailed, "http://mcp.test/: the proxy @: Connection refused"),
        (b"", "https://mcp.test/", ConnectFailed, "https://mcp.test/: the proxy @: Connection refused"),
        (NO, "https://mcp.test/", ConnectFailed, "https://mcp.test/: the proxy @: 407 No"),
        (NO, "http://mcp.test/", HttpStatusError,
         "HTTP 407 Proxy Authentication Required from the proxy @ for http://mcp.test/"),
        (b"\r\n", "http://mcp.test/", ConnectionClosed, "http://mcp.test/: over the proxy @: .*(response|received).*"),
    ]:  # fmt: skip
        with subtests.test(url, answer=answer):
            async with serving(saying(answer)) as peer:
                place = "127.0.0.1:1" if not answer else peer.url.split("/")[2]
                set_proxies(monkeypatch, {"all_proxy": f"http://user:s3cret@{place}"})
                async with opened(url) as channel:
                    with anyio.fail_after(SOON), pytest.raises(error) as caught:
                        await ask(channel)

            assert fullmatch(text.replace("@", f"http://{place}"), str(caught.value))
            assert "s3cret" not in "".join(format_exception(caught.value))


@libraries
async def test_the_callers_client_is_used_as_it_is_and_never_closed(library: Any) -> None:
    asked: list[dict[str, float | None]] = []

    def answer(request: Any) -> Any:
        asked.append(request.extensions["timeout"])
        assert request.headers["x-of-the-client"] == "1"
        return library.Response(200, headers=JSON, content=DONE_JSON)

    async with library.AsyncClient(
        transport=library.MockTransport(answer),
        headers={"X-Of-The-Client": "1"},
        timeout=library.Timeout(4.0, connect=2.0),
    ) as client:
        for _ in range(2):
            async with opened("http://mcp.test/", client=client) as channel:
                assert await ask(channel) == [DONE]

        assert not client.is_closed
    assert asked == [{"connect": 2.0, "read": None, "write": 4.0, "pool": 4.0}] * 2


@pytest.mark.parametrize("client", [httpx.Client, httpx2.Client, object], ids=["httpx", "httpx2", "another"])
def test_only_an_async_client_will_do(client: Any) -> None:
    complaint = rf"^client is an httpx\.AsyncClient or an httpx2\.AsyncClient, not {client.__name__}$"
    with pytest.raises(TypeError, match=complaint):
        StreamableHttp("http://mcp.test/", client=client())


async def exit_code(code: str) -> int:
    """What a process of Python ends with that runs *code*; a warning is an error there."""
    command = [sys.executable, "-W", "error", "-c", code]
    return (await to_thread.run_sync(lambda: subprocess.run(command, check=False))).returncode


@pytest.mark.backends("asyncio")
async def test_the_package_is_imported_without_httpx() -> None:
    assert await exit_code("import sys, mcp_host; sys.exit('httpx' in sys.modules)") == 0


@pytest.mark.backends("asyncio")
async def test_httpx2_is_not_imported_for_an_application_that_does_not_use_it() -> None:
    code = """
import asyncio, sys
from mcp_host import Client, StreamableHttp
from mcp_host.testing import Server
import httpx

async def main():
    async with Server("tides").http() as url:
        for client in (None, httpx.AsyncClient()):
            async with Client(StreamableHttp(url, client=client)):
                pass

asyncio.run(main())
sys.exit("httpx2" in sys.modules)
"""
    assert await exit_code(code) == 0


@pytest.mark.backends("asyncio")
async def test_httpx2_can_stand_in_for_httpx_in_the_whole_process() -> None:
    """`httpx2.alias_httpx` does that for applications."""
    code = """
import httpx2
httpx2.alias_httpx()

import asyncio
from mcp_host import Client, StreamableHttp
from mcp_host.testing import Server

async def main():
    async with Server("tides").http() as url, httpx2.AsyncClient() as client:
        for each in (None, client):
            async with Client(StreamableHttp(url, client=each)) as host:
                assert host.server_info.name == "tides"

asyncio.run(main())
"""
    assert await exit_code(code) == 0


@pytest.mark.backends("asyncio")
async def test_a_header_that_cannot_be_sent_is_not_quoted_in_the_error() -> None:
    url = httpx.URL("http://mcp.test/")
    pool = PoolBackend(url, {"Authorization": "Bearer hunter2\n"}, "http://mcp.test/", Limits(), tls.untrusting())

    with pytest.raises(ConnectionClosed, match=r"^http://mcp\.test/: a header that cannot be sent$") as caught:
        await pool.send("GET", {})

    assert caught.value.may_have_run is False
    assert "hunter2" not in "".join(format_exception(caught.value))


@pytest.mark.fake_clock
async def test_an_own_backend_is_closed_with_the_channel_in_half_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[float] = []

    class Noting(PoolBackend):
        async def aclose(self) -> None:
            left.append(anyio.current_effective_deadline() - anyio.current_time())

    noting = Noting(httpx.URL("http://mcp.test/"), {}, "the server", Limits(), tls.untrusting())
    monkeypatch.setattr("mcp_host.transports._http.backend.own_backend", lambda *given, **options: noting)

    async with opened("http://mcp.test/", limits=Limits(close_timeout=0.2)):
        assert left == []

    assert left == [pytest.approx(0.1)]
