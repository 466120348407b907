"""Cassettes with blocking clients, in one thread and in several."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import httpx2
import pytest
from anyio import fail_after

from mcp_host.testing import Cassette, CassetteError, RecordMode
from mcp_host.testing.cassettes.file import Contents, read, write
from tests.testing.cassettes.provider import Library, Provider

LIBRARIES = {"httpx": httpx, "httpx2": httpx2}
IN_TIME = 30.0  # seconds


@contextmanager
def client_of(
    path: Path, library: Library, record_mode: RecordMode = "once", timeout: float | None = IN_TIME
) -> Iterator[httpx.Client]:
    """A blocking client of a cassette."""
    module: Any = LIBRARIES[library]
    with (
        Cassette(path, record_mode=record_mode) as cassette,
        module.Client(transport=cassette.http_transport(library), timeout=timeout) as client,
    ):
        yield client


@pytest.mark.parametrize("place", ["messages", "limited", "lines", "bytes", "stream"])
async def test_a_blocking_client_makes_the_same_file_as_another_one_and_each_replays_both(
    tmp_path: Path, provider: Provider, library: Library, place: str
) -> None:
    blocking, awaiting = tmp_path / "blocking.json", tmp_path / "awaiting.json"
    asked = {"messages": [{"content": "3 by 5"}]}

    def ask(path: Path, url: str) -> tuple[int, bytes]:
        with client_of(path, library) as client:
            response = client.post(f"{url}/{place}", json=asked)
        return response.status_code, response.content

    async def ask_and_await(path: Path, url: str) -> tuple[int, bytes]:
        with fail_after(IN_TIME), Cassette(path) as cassette:
            client: Any = cassette.http_client(library, timeout=IN_TIME)
            async with client:
                response = await client.post(f"{url}/{place}", json=asked)
        return response.status_code, response.content

    ask(blocking, provider.url)
    await ask_and_await(awaiting, provider.url)

    assert blocking.read_text() == awaiting.read_text()
    assert ask(awaiting, "http://localhost") == await ask_and_await(blocking, "http://localhost")
    assert provider.requests == 2


def test_a_stream_that_breaks_off_breaks_off_in_the_replay_too(
    path: Path, provider: Provider, library: Library
) -> None:
    texts = []
    for url in (provider.url, "http://localhost"):
        pieces: list[bytes] = []
        with (
            client_of(path, library) as client,
            client.stream("POST", f"{url}/broken", json={}) as response,
            pytest.raises((httpx.RemoteProtocolError, httpx2.RemoteProtocolError)),
        ):
            pieces.extend(response.iter_bytes())
        texts.append(b"".join(pieces).replace(b": ", b":").replace(b", ", b","))

    assert provider.requests == 1
    assert texts[0] == texts[1]
    assert texts[0].endswith(b"event:del")


def test_a_provider_that_cannot_be_reached_cannot_in_the_replay(path: Path, library: Library) -> None:
    module: Any = LIBRARIES[library]

    def refuse(request: object) -> None:
        raise module.ConnectError("refused")

    with Cassette(path) as cassette:
        transport = cassette.http_transport(library, module.MockTransport(refuse))
        with module.Client(transport=transport) as client, pytest.raises(module.ConnectError, match="refused"):
            client.post("http://localhost/", json={})
    with client_of(path, library) as client, pytest.raises(module.ConnectError, match="refused"):
        client.post("http://localhost/", json={})


@pytest.mark.parametrize("response", [{}, {"status": 200, "headers": {}, "text": "Hel"}], ids=["before", "within"])
@pytest.mark.parametrize("timeout", [0.0, None], ids=["timeout", "none"])
def test_a_request_that_was_cancelled_ends_by_its_timeout_and_with_the_cassette(
    path: Path, library: Library, response: dict[str, Any], timeout: float | None
) -> None:
    """Before the response has begun, and in the middle of it. A thread cannot be cancelled, so none is left behind."""
    asked = {"method": "GET", "url": "http://localhost/", "headers": {"accept": "*/*"}}
    ended = {"response": {**response, "cancelled": True}} if response else {"cancelled": True}
    write(path, Contents("", [{"http": asked, **ended}]))
    ends: list[str] = []
    asks = Event()

    def get(client: httpx.Client) -> None:
        try:
            asks.set()
            client.get("http://localhost/")
        except (httpx.ReadTimeout, httpx2.ReadTimeout) as exc:
            ends.append(str(exc))

    module: Any = LIBRARIES[library]
    with Cassette(path) as cassette:
        client = module.Client(transport=cassette.http_transport(library), timeout=timeout)
        thread = Thread(target=get, args=[client], daemon=True)
        thread.start()
        assert asks.wait(IN_TIME)
        if timeout is not None:
            thread.join(IN_TIME)
            assert not thread.is_alive()
    thread.join(IN_TIME)
    client.close()

    assert ends == ["in the recording, the client cancelled the request here"]


def test_a_stream_that_another_thread_closes_is_recorded_as_cancelled(path: Path) -> None:
    """As Gemini's adapter does on trio, when a request is cancelled."""

    class Endless(httpx2.SyncByteStream):
        def __init__(self) -> None:
            self.waits, self.closed = Event(), Event()

        def __iter__(self) -> Iterator[bytes]:
            yield b"Hel"
            self.waits.set()
            assert self.closed.wait(IN_TIME)
            raise httpx2.ReadError("closed")

        def close(self) -> None:
            self.closed.set()

    stream = Endless()
    inner = httpx2.MockTransport(lambda request: httpx2.Response(200, stream=stream))
    with Cassette(path) as cassette, httpx2.Client(transport=cassette.http_transport(inner=inner)) as client:
        response = client.send(client.build_request("GET", "http://localhost/"), stream=True)

        def await_the_end() -> None:
            with pytest.raises(httpx2.ReadError):
                response.read()

        thread = Thread(target=await_the_end)
        thread.start()
        assert stream.waits.wait(IN_TIME)
        response.close()
        thread.join(IN_TIME)

    [entry] = read(path).entries
    assert entry["response"] == {"status": 200, "headers": {}, "text": "Hel", "cancelled": True}


@pytest.fixture
def _often_another_thread() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_often_another_thread")
def test_requests_of_several_threads_are_all_recorded_and_each_is_replayed_once(path: Path) -> None:
    numbers = iter(range(1000))
    answers: dict[str, list[int]] = {"once": [], "none": []}
    inner = httpx2.MockTransport(lambda request: httpx2.Response(200, json={"number": next(numbers)}))
    for mode in ("once", "none"):
        with Cassette(path, record_mode=mode, require_all=True) as cassette:
            client = httpx2.Client(transport=cassette.http_transport(inner=inner))

            def ask(client: httpx2.Client = client, found: list[int] = answers[mode]) -> None:
                for _ in range(10):
                    found.append(client.get("http://localhost/").json()["number"])

            threads = [Thread(target=ask) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(IN_TIME)
            client.close()

    assert sorted(answers["once"]) == sorted(answers["none"]) == list(range(80))


def test_in_a_replay_no_client_without_the_cassette_connects(path: Path, provider: Provider) -> None:
    with client_of(path, "httpx2") as client:
        client.post(f"{provider.url}/limited", json={})
    with pytest.raises(CassetteError, match=r"a connection to '127\.0\.0\.1'"), Cassette(path):  # noqa: PT012  # as it ends
        for module in (httpx, httpx2):
            with pytest.raises(
                (httpx.ConnectError, httpx2.ConnectError), match="give its client a transport of the cas"
            ):
                module.get(f"{provider.url}/limited")
        with pytest.raises(OSError, match="give its client a transport of the cassette"):
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{provider.url}/limited")

    assert provider.requests == 1
