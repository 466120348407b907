"""Which connections are kept for another request, and what happens where the server did not keep its end."""

from __future__ import annotations

import anyio
import h11
import httpx
import pytest
from anyio.abc import SocketAttribute, SocketListener

from mcp_host.errors import ConnectionClosed
from mcp_host.limits import Limits
from mcp_host.transports._http.backend import PoolBackend
from mcp_host.transports._http.pool import Pool, PoolState, SharedPoolState
from mcp_host.transports.http import StreamableHttp
from tests.transports.http_contract import SECONDS, Kind, both, ours, untrusting
from tests.transports.http_peers import CHUNKED, Log, Script, Wire, head, saying, saying_once, serving

OK = b"HTTP/1.1 200 OK\r\n"
EMPTY = OK + b"content-length: 0\r\n\r\n"


# Kept


KEPT = {
    "sized": OK + b"content-length: 4\r\n\r\ntide",
    "empty": EMPTY,
    "chunked": head(200, CHUNKED) + b"4\r\ntide\r\n0\r\n\r\n",
    "204": head(204, {}),
    "304": head(304, {"content-length": "4"}),
    "after 103": head(103, {}) + EMPTY,
    "an error": head(500, {"content-length": "4"}) + b"tide",
    "large": OK + b"content-length: 300000\r\n\r\n" + b"x" * 300_000,
}


@both
async def test_one_connection_serves_requests_one_after_the_other(kind: Kind) -> None:
    left = [raw for raw in KEPT.values() for _ in range(2)]

    async def script(wire: Wire) -> None:
        while True:
            await wire.hear()
            await wire.say(left.pop(0))

    async with serving(script) as peer, kind.client() as client:
        for _ in KEPT:
            for method in ("GET", "POST"):
                await client.request(method, peer.url)

    assert (len(peer.heard), peer.connections) == (2 * len(KEPT), 1)


@both
async def test_a_body_that_comes_in_its_own_time_keeps_its_connection(kind: Kind) -> None:
    async def script(wire: Wire) -> None:
        while True:
            await wire.hear()
            for part in (head(200, CHUNKED), b"4\r\nti", b"de\r\n", b"0\r\n", b"\r\n"):
                await wire.say(part)
                await anyio.wait_all_tasks_blocked()

    async with serving(script) as peer, kind.client() as client:
        for _ in range(2):
            assert (await client.get(peer.url)).content == b"tide"

    assert peer.connections == 1


@both
async def test_after_some_answers_a_connection_is_not_used_again(kind: Kind) -> None:
    await three_times_anew(OK + b"content-length: 0\r\nconnection: close\r\n\r\n", kind)
    await three_times_anew(b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", kind)


@both
async def test_after_a_request_with_connection_close_a_connection_is_not_used_again(kind: Kind) -> None:
    await three_times_anew(EMPTY, kind, connection="close")


MORE = {
    "something": EMPTY + b"more",
    "a second answer": EMPTY + EMPTY,
    "a blank line": head(200, CHUNKED) + b"0\r\n\r\n\r\n",
    "a second answer behind 64 KiB": OK + b"content-length: 65494\r\n\r\n" + b"x" * 65_494 + EMPTY,
}


@ours("it uses such a connection again, and waits on it without end")
async def test_an_answer_with_something_behind_it_is_the_last_of_its_connection(
    kind: Kind, subtests: pytest.Subtests
) -> None:
    for name, raw in MORE.items():
        with subtests.test(name):
            await three_times_anew(raw, kind)


async def three_times_anew(raw: bytes, kind: Kind, **headers: str) -> None:
    """Three requests with *headers*, each answered by *raw*, take three connections."""
    async with serving(saying(raw)) as peer, kind.client() as client:
        for _ in range(3):
            assert (await client.get(peer.url, headers=headers)).status_code == 200

    assert (len(peer.heard), peer.connections) == (3, 3)


# Bounds


async def posted(client: httpx.AsyncClient, url: str) -> bool:
    """Whether a POST is answered."""
    try:
        await client.post(url)
    except httpx.TransportError:
        return False
    return True


async def posted_alone(client: httpx.AsyncClient, url: str) -> bool:
    """The same, and that the server has closed its connection, if it does, has been seen."""
    answered = await posted(client, url)
    await anyio.wait_all_tasks_blocked()
    return answered


class Together:
    """A server that answers requests no sooner than a number of them have come."""

    def __init__(self) -> None:
        self.ended: Log[Wire] = Log()
        self.lost = 0
        """How many connections, the first ones, are reset instead of answering."""
        self._connections = 0
        self._waiting = 0
        self._awaited = 0
        self._all_there = anyio.Event()

    async def __call__(self, wire: Wire) -> None:
        self._connections += 1
        number = self._connections
        while True:
            try:
                await wire.hear()
            except anyio.EndOfStream:
                self.ended.append(wire)
                return
            self._waiting += 1
            if self._waiting == self._awaited:
                self._all_there.set()
            await self._all_there.wait()
            if number <= self.lost:
                await wire.reset()
                return
            await wire.say(EMPTY)

    async def asked(self, client: httpx.AsyncClient, url: str, count: int) -> list[bool]:
        """Have *count* requests in flight at once, and then none; return which were answered."""
        self._waiting, self._awaited, self._all_there = 0, count, anyio.Event()
        answered: list[bool] = []

        async def post() -> None:
            answered.append(await posted(client, url))

        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(post)
        return answered


@both
async def test_every_request_in_flight_has_its_own_connection(kind: Kind) -> None:
    together = Together()
    async with serving(together) as peer, kind.client() as client:
        for _ in range(3):
            assert await together.asked(client, peer.url, 30) == [True] * 30

    assert (len(peer.heard), peer.connections) == (90, 30)


@ours("it counts the connections in use among the idle ones")
async def test_no_more_idle_connections_are_kept_than_was_said(kind: Kind) -> None:
    together = Together()
    opened = []
    async with serving(together) as peer, kind.client(max_idle=2) as client:
        for count in (5, 2, 3, 1):
            await together.asked(client, peer.url, count)
            opened.append(peer.connections)
        with anyio.fail_after(25):
            await together.ended.reaches(lambda ended: len(ended) == 4)

    assert opened == [5, 5, 6, 6]


@ours("it counts the connections in use among the idle ones")
async def test_streams_that_stay_open_take_no_place_among_the_idle(kind: Kind) -> None:
    async def script(wire: Wire) -> None:
        while (await wire.hear()).method == "POST":
            await wire.say(EMPTY)
        await wire.say(head(200, CHUNKED))
        await wire.hung_up()

    async with serving(script) as peer, kind.client(max_idle=1) as client, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(client.get, peer.url)
        await peer.hears("GET", 3)
        for _ in range(10):
            await client.post(peer.url)
        tasks.cancel_scope.cancel()

    assert peer.connections == 4


# Not kept by the server


@pytest.mark.fault("H24")
@pytest.mark.parametrize("how", ["close", "reset", "408"])
@pytest.mark.parametrize("method", ["GET", "POST"])
@both
async def test_a_connection_found_closed_is_not_used_again(method: str, how: str, kind: Kind) -> None:
    idle, gone = anyio.Event(), anyio.Event()

    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.say(EMPTY)
        await idle.wait()
        if how == "408":
            await wire.say(head(408, {"content-length": "0"}))
        else:
            await (wire.reset() if how == "reset" else wire.end())
        gone.set()
        await wire.hung_up()

    async with serving(script) as peer, kind.client() as client:
        for _ in range(3):
            assert (await client.request(method, peer.url)).status_code == 200
            idle.set()
            await gone.wait()
            idle, gone = anyio.Event(), anyio.Event()

    assert (len(peer.heard), peer.connections) == (3, 3)


async def test_a_connection_that_was_closed_on_our_side_is_as_good_as_none() -> None:
    async with serving(saying(EMPTY)) as peer:
        connection = await Pool(httpx.URL(peer.url), "", untrusting())._open()
        assert not connection.readable
        await connection.close()

        assert connection.readable


def forgetful(reset: bool = False, *, beginning: bytes = b"") -> Script:
    """A server whose connections end with the second request, which is heard and not answered but for a *beginning*."""

    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.say(EMPTY)
        await wire.hear()
        await wire.say(beginning)
        if reset:
            await wire.reset()

    return script


@pytest.mark.fault("H24")
@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
@both
async def test_a_post_that_may_have_been_read_is_not_sent_again(reset: bool, kind: Kind) -> None:
    async with serving(forgetful(reset)) as peer, kind.client() as client:
        await client.post(peer.url)
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            await client.post(peer.url, content=b"tide")

    assert (len(peer.heard), peer.connections) == (2, 1)


@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
@ours("it leaves the repetition to its caller")
async def test_a_request_that_may_run_twice_is_sent_again_on_a_new_connection(reset: bool, kind: Kind) -> None:
    for method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE"):
        async with serving(forgetful(reset)) as peer, kind.client() as client:
            for _ in range(2):
                assert (await client.request(method, peer.url)).status_code == 200

        assert (len(peer.heard), peer.connections) == (3, 2), method


@both
async def test_it_is_sent_again_once_and_never_after_half_an_answer(kind: Kind) -> None:
    async def silent(wire: Wire) -> None:
        await wire.hear()
        if peer.connections == 1:
            await wire.say(EMPTY)
            await wire.hear()

    async with serving(silent) as peer, kind.client() as client:
        await client.get(peer.url)
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get(peer.url)
    assert len(peer.heard) == (3 if kind.ours else 2)

    async with serving(forgetful(beginning=b"HTTP/1.1 2")) as peer, kind.client() as client:
        await client.get(peer.url)
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get(peer.url)
    assert len(peer.heard) == 2


@both
async def test_idle_connections_expire_and_others_may_be_taken_while_these_are_closed(kind: Kind) -> None:
    async def several(count: int) -> None:
        for _ in range(count):
            await client.post(peer.url)

    async with serving(saying(EMPTY)) as peer, kind.client(keepalive=0.0) as client:
        await several(3)
        assert peer.connections == 3

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(several, 10)

    assert len(peer.heard) == 103


async def test_after_one_kept_connection_was_closed_a_retry_gets_a_new_one() -> None:
    """A load balancer that forgets one has forgotten all of them."""
    together = Together()
    async with serving(together) as peer, Kind("ours").client() as client:
        await together.asked(client, peer.url, 2)
        together.lost = 2
        answered = [await posted_alone(client, peer.url) for _ in range(2)]

    assert answered == [False, True]
    assert peer.connections == 3


# Closed by the server without a word


def closing(after: int, *, unheard: bool) -> Script:
    """A server that closes each connection after some answers; *unheard* is whether it has read another request by then."""

    async def script(wire: Wire) -> None:
        for _ in range(after):
            await wire.hear()
            await wire.say(EMPTY)
        if unheard:
            await wire.hear()

    return script


async def test_a_server_that_closes_each_connection_after_one_response_loses_two_requests_at_most() -> None:
    async with serving(closing(1, unheard=True)) as peer, Kind("ours").client() as client:
        answered = [await posted_alone(client, peer.url) for _ in range(9)]

    assert answered == [True, False, True, False, True, True, True, True, True]
    assert peer.connections == 7


async def test_if_closed_connections_are_noticed_in_time_no_request_is_lost_and_none_is_kept() -> None:
    async def script(wire: Wire) -> None:
        await (saying_once(EMPTY) if peer.connections <= 2 else saying(EMPTY))(wire)

    async with serving(script) as peer, Kind("ours").client() as client:
        answered = [await posted_alone(client, peer.url) for _ in range(6)]

    assert answered == [True] * 6
    assert peer.connections == 6


@pytest.mark.parametrize(
    ("server", "opened"), [(closing(2, unheard=True), 4), (closing(2, unheard=False), 6)], ids=["just then", "before"]
)
async def test_several_requests_are_sent_over_each_connection_that_a_server_keeps(server: Script, opened: int) -> None:
    async with serving(server) as peer, Kind("ours").client() as client:
        for _ in range(12):
            await posted_alone(client, peer.url)

    assert peer.connections == opened


async def test_connections_that_serve_again_in_between_are_kept_on() -> None:
    """One that is forgotten now and then is no habit."""

    async def script(wire: Wire) -> None:
        number = peer.connections
        await wire.hear()
        await wire.say(EMPTY)
        await wire.hear()
        if number % 2:
            return
        await wire.say(EMPTY)

    async with serving(script) as peer, Kind("ours").client() as client:
        answered = [await posted_alone(client, peer.url) for _ in range(12)]

    assert answered == [True, False, True, True] * 3
    assert peer.connections == 6


async def test_a_server_that_exits_with_several_requests_in_flight_counts_as_one_early_close() -> None:
    """Restarted, it keeps its connections as before."""
    together = Together()
    async with serving(together) as peer, Kind("ours").client() as client:
        before = await together.asked(client, peer.url, 2)
        together.lost = 2
        meanwhile = await together.asked(client, peer.url, 2)
        after = [await posted_alone(client, peer.url) for _ in range(3)]

    assert (before, meanwhile, after) == ([True, True], [False, False], [True, True, True])
    assert peer.connections == 3


async def test_a_request_that_cannot_be_sent_again_fails_as_it_did_at_first() -> None:
    """It may have been read by then, even if the second connection fails."""

    async def serve() -> None:
        (socket,) = listener.listeners
        assert isinstance(socket, SocketListener)
        async with await socket.accept() as stream:
            wire = Wire(stream, Log())
            await wire.hear()
            await wire.say(EMPTY)
            await wire.hear()
            await listener.aclose()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/"
    async with anyio.create_task_group() as tasks, Kind("ours").client() as client:
        tasks.start_soon(serve)
        with anyio.fail_after(25):
            await client.get(url)
            with pytest.raises(httpx.RemoteProtocolError, match="closed the connection"):
                await client.get(url)


# Shared


GET = h11.Request(method="GET", target="/", headers=[("host", "tides.example")])


async def test_pools_share_the_connections_that_are_idle_and_no_others() -> None:
    """One in use is closed with its own pool, and idle ones with the last."""
    hung_up = Log[int]()

    async def script(wire: Wire) -> None:
        number = peer.connections
        for answer in (EMPTY, EMPTY, head(200, {"content-length": "4"}) + b"ti"):
            await wire.hear()
            await wire.say(answer)
        await wire.hung_up()
        hung_up.append(number)

    async with serving(script) as peer:
        state = PoolState()
        first, second = (Pool(httpx.URL(peer.url), "", untrusting(), state=state) for _ in range(2))
        with anyio.fail_after(SECONDS):
            for pool in (first, second):
                assert (await pool.request(GET, b"", repeatable=True)).complete
            assert (peer.connections, len(state.connections)) == (1, 1)

            unread = await first.request(GET, b"", repeatable=True)
            assert await unread.read_raw() == b"ti"
            assert (await second.request(GET, b"", repeatable=True)).complete
            await first.aclose()
            await first.aclose()
            await hung_up.reaches(lambda numbers: numbers == [1])
            with pytest.raises(ConnectionClosed):
                await unread.read_raw()
            assert (await second.request(GET, b"", repeatable=True)).complete
            assert (peer.connections, len(state.connections)) == (2, 1)

            [kept] = state.connections
            await second.aclose()
            assert (kept.readable, state.connections) == (True, [])


def test_another_event_loop_has_other_connections() -> None:
    shared = SharedPoolState()

    async def here() -> PoolState:
        assert shared.here() is shared.here()
        return shared.here()

    first, second = (anyio.run(here, backend=backend) for backend in ("asyncio", "trio"))
    assert first is not second
    assert anyio.run(here) is not second


async def test_clients_share_idle_connections_and_checked_headers_only_over_a_transport_for_that() -> None:
    plain = StreamableHttp("http://localhost/mcp")
    sharing = plain._sharing()
    shared = list[tuple[object, object]]()
    for transport in (sharing, sharing.named("tides"), plain, plain, plain._sharing()):
        async with transport.open(Limits()) as channel:
            assert isinstance(channel._backend, PoolBackend)
            shared.append((channel._backend._pool.state, channel._backend._check))

    assert shared[0] == shared[1]
    assert len({*shared}) == len({check for _, check in shared}) == 4
