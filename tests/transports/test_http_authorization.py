"""`StreamableHttp(auth=)`: an Auth of httpx or httpx2 around each request, over our pool and over the caller's client."""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import ModuleType
from typing import Any

import anyio
import httpx
import httpx2
import pytest

from mcp_host import StreamableHttp
from mcp_host.errors import McpError, SessionLost, Unauthorized
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Notification, Request
from mcp_host.transports._http.authorization import AuthorizedBy
from mcp_host.transports._http.response import ERROR_SIZE
from mcp_host.transports._http.session import Timing
from mcp_host.transports.base import AuthorizationContext, Channel
from tests.clock import Pauses
from tests.extent import on_both
from tests.transports.http_peers import (
    CALL,
    INITIALIZE,
    JSON,
    VERSION,
    Halting,
    Heard,
    RecordedHandle,
    Wire,
    event,
    head,
    response,
    saying,
    serving,
)
from tests.transports.http_peers import opened as opened_at
from tests.transports.legacy_peers import legacy, listening, shake_hands, stream

pytestmark = pytest.mark.backends("asyncio")  # but for what waits, closes or stops a clock

ANSWER = b'{"jsonrpc":"2.0","id":7,"result":{}}'
PING = Request(7, "ping", {})
BASIC = f"Basic {b64encode(b'me:secret').decode()}"


def answering(*taken: str, refuses: int = 401) -> Callable[[Wire], Any]:
    """A server that takes requests with one of these Authorization headers."""

    async def script(wire: Wire) -> None:
        while True:
            heard = await wire.hear()
            if heard.headers.get("authorization") in taken:
                await wire.reply(200, JSON, ANSWER)
            else:
                digest = 'Digest realm="r", nonce="n", qop="auth", algorithm=MD5'
                await wire.reply(refuses, {"www-authenticate": digest}, b"no" * 10)

    return script


@asynccontextmanager
async def opened(transport: StreamableHttp) -> AsyncIterator[Channel]:
    with anyio.fail_after(25):
        async with transport._open(Limits(), Timing(sleep=Pauses())) as channel:
            yield channel


@asynccontextmanager
async def by_pool(url: str, auth: Any) -> AsyncIterator[Channel]:
    async with opened(StreamableHttp(url, auth=auth)) as channel:
        yield channel


@asynccontextmanager
async def by_httpx(url: str, auth: Any) -> AsyncIterator[Channel]:
    async with httpx.AsyncClient() as client, opened(StreamableHttp(url, client=client, auth=auth)) as channel:
        yield channel


@asynccontextmanager
async def by_httpx2(url: str, auth: Any) -> AsyncIterator[Channel]:
    async with httpx2.AsyncClient() as client, opened(StreamableHttp(url, client=client, auth=auth)) as channel:
        yield channel


@asynccontextmanager
async def by_proxy(url: str, auth: Any) -> AsyncIterator[Channel]:
    """Over the client of our own that a proxy of the environment needs."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("mcp_host.transports._http.backend.proxied", lambda url: True)
        async with opened(StreamableHttp(url, auth=auth)) as channel:
            yield channel


Way = Callable[[str, Any], AbstractAsyncContextManager[Channel]]
ways = pytest.mark.parametrize("way", [by_pool, by_httpx, by_httpx2, by_proxy])


class Sequel(httpx.Auth):
    """Sends each of *headers* in turn, until a response is none of 401."""

    def __init__(self, *headers: str) -> None:
        self.headers = headers
        self.handle = RecordedHandle()
        self.works: list[tuple[bool, bool]] = []
        """For each of them, whether it is known to get the authorization, and maybe to ask a person."""

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        for header in self.headers:
            self.works.append((self.handle.is_authorizing, self.handle.is_asking))
            request.headers["Authorization"] = header
            response = yield request
            if response.status_code != 401:
                return


class Known:
    """An Auth around any backend."""

    def authorized_by(self, url: str) -> AuthorizedBy:
        return AuthorizedBy(AuthorizationContext("ada", ()))


class Ready(Known, Sequel):
    """The same, which knows the first header at once."""

    def ready(self, method: str, url: str) -> Mapping[str, str] | None:
        return {"Authorization": self.headers[0]}


class NotReady(Known, Sequel):
    def ready(self, method: str, url: str) -> Mapping[str, str] | None:
        return None


kinds = pytest.mark.parametrize(("kind", "asks"), [(Sequel, True), (Ready, False), (NotReady, False)])


@ways
@pytest.mark.parametrize("library", [httpx, httpx2])
async def test_an_auth_of_either_library_may_answer_a_challenge(way: Way, library: ModuleType) -> None:
    handle = RecordedHandle()

    async def script(wire: Wire) -> None:
        while True:
            heard = await wire.hear()
            if heard.headers.get("authorization", "").startswith('Digest username="me"'):
                await wire.reply(200, JSON, ANSWER)
            else:
                await wire.reply(401, {"www-authenticate": 'Digest realm="r", nonce="n", qop="auth"'})

    async with serving(script) as peer, way(peer.url, library.DigestAuth("me", "secret")) as channel:
        await channel.request(PING, {}, handle)
        await channel.send(Notification("notifications/initialized", {}), {})

    assert handle.done
    assert [heard.rpc["method"] for heard in peer.heard] == ["ping", "ping", "notifications/initialized"]


@on_both
@kinds
@ways
async def test_the_clocks_stop_while_an_auth_works_that_cannot_say_whether_it_asks_a_person(
    way: Way, kind: type[Sequel], asks: bool
) -> None:
    auth = kind("first", "second")

    async with serving(answering("second")) as peer, way(peer.url, auth) as channel:
        await channel.request(PING, {}, auth.handle)

    assert [heard.headers["authorization"] for heard in peer.heard] == ["first", "second"]
    assert peer.connections == 1 or kind is Sequel, "what one of ours was refused with is read to its end"
    assert auth.works == [(True, asks), (True, asks)]
    assert not auth.handle.is_authorizing
    assert not auth.handle.is_asking


@pytest.mark.fault("H10")
@pytest.mark.parametrize("kind", [Sequel, Ready, NotReady])
@ways
async def test_a_refusal_that_an_auth_has_no_answer_to_is_the_error(way: Way, kind: type[Sequel]) -> None:
    for refuses in (401, 403):
        async with serving(answering(refuses=refuses)) as peer, way(peer.url, kind("first")) as channel:
            with pytest.raises(Unauthorized) as caught:
                await channel.request(PING, {}, RecordedHandle())

        assert caught.value.status == refuses
        assert len(peer.heard) == 1
        assert peer.connections == 1


class Failing(httpx.Auth):
    """Fails once the server has refused."""

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        yield request
        raise McpError("no one is here to log in")


class ReadyAndFailing(Known, Failing):
    def ready(self, method: str, url: str) -> Mapping[str, str] | None:
        return {}


class FailingAtOnce(ReadyAndFailing):
    """Fails before it yields anything: there is no better token than the one that was ready."""

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        raise McpError("no one is here to log in")
        yield request


@on_both
@pytest.mark.parametrize("auth", [Failing(), ReadyAndFailing(), FailingAtOnce()])
@ways
async def test_the_error_of_an_auth_is_that_of_the_request_whose_refusal_is_closed(way: Way, auth: httpx.Auth) -> None:
    server = Halting(head(401, {"content-length": str(ERROR_SIZE + 1)}) + bytes(ERROR_SIZE))  # its end does not come

    async with serving(server) as peer, way(peer.url, auth) as channel:
        with pytest.raises(McpError, match="no one is here to log in"):
            await channel.request(PING, {}, RecordedHandle())
        await server.hung_up.wait()

    assert len(peer.heard) == 1


class FailingToClose(httpx.Auth):
    """Has no token left at the end of the session."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        if request.method == "DELETE":
            raise self.error
        yield request


class NotReadyToClose(Known, FailingToClose):
    def ready(self, method: str, url: str) -> Mapping[str, str] | None:
        return None


@on_both
@pytest.mark.parametrize("error", [McpError("the token endpoint is down"), ValueError("a defect of the host's")])
@pytest.mark.parametrize("kind", [FailingToClose, NotReadyToClose])
@ways
async def test_an_auth_that_fails_while_a_client_closes_is_not_its_error(
    way: Way, kind: type[FailingToClose], error: Exception
) -> None:
    async with serving(legacy()) as peer, way(peer.url, kind(error)) as channel:
        await channel.request(INITIALIZE, {}, RecordedHandle(0))

    assert peer.methods() == ["POST"]


@on_both
@kinds
@ways
async def test_the_clocks_of_a_call_stop_while_an_auth_works_to_resume_its_stream(
    way: Way, kind: type[Sequel], asks: bool
) -> None:
    auth = kind("only")

    async with (
        serving(legacy(post=stream(event(b"", id="e")), get=stream(event(ANSWER)))) as peer,
        way(peer.url, auth) as channel,
    ):
        await channel.request(INITIALIZE, {}, RecordedHandle(0))
        await channel.request(PING, VERSION, auth.handle)

    assert peer.methods() == ["POST", "POST", "GET", "DELETE"]
    assert auth.handle.done
    assert auth.works[1:3] == ([] if kind is Ready else [(True, asks), (True, asks)])


async def test_an_auth_may_ask_other_servers_by_a_client_of_its_own_library() -> None:
    """As that of the official SDK does, which asks for tokens so."""

    class Asking(httpx2.Auth):
        def __init__(self, url: str) -> None:
            self.url = url

        async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            token = yield httpx2.Request("GET", self.url)
            request.headers["Authorization"] = (await token.aread()).decode()
            yield request

    handle = RecordedHandle()
    async with (
        serving(saying(response(200, {}, b"granted"))) as other,
        serving(answering("granted")) as peer,
        by_pool(peer.url, Asking(other.url)) as channel,
    ):
        await channel.request(PING, {}, handle)

    assert handle.done
    assert "authorization" not in other.heard[0].headers


@pytest.mark.parametrize("auth", [("me", "secret"), object(), lambda request: request])
def test_something_else_is_no_auth(auth: Any) -> None:
    with pytest.raises(TypeError, match=r"auth is an httpx\.Auth or an httpx2\.Auth, not "):
        StreamableHttp("https://example.com/mcp", auth=auth)


@ways
async def test_a_refusal_of_what_was_ready_is_no_refusal_of_what_the_flow_sends(way: Way) -> None:
    """Another request may have gotten a better token meanwhile."""

    class Renewed(Known, Sequel):
        def __init__(self) -> None:
            super().__init__("new")
            self.statuses: list[int] = []

        def ready(self, method: str, url: str) -> Mapping[str, str] | None:
            return {"Authorization": "old"}

        async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
            request.headers["Authorization"] = "new"
            self.statuses.append((yield request).status_code)

    auth = Renewed()

    async with serving(answering("new")) as peer, way(peer.url, auth) as channel:
        await channel.request(PING, {}, auth.handle)

    assert [heard.headers["authorization"] for heard in peer.heard] == ["old", "new"]
    assert auth.statuses == [200]
    assert auth.handle.done
    assert peer.connections == 1


@pytest.mark.parametrize("kind", [Sequel, Ready, NotReady])
@ways
async def test_a_refusal_without_end_delays_the_next_request_for_a_moment(way: Way, kind: type[Sequel]) -> None:
    async def script(wire: Wire) -> None:
        if (await wire.hear()).headers["authorization"] == "second":
            await wire.reply(200, JSON, ANSWER)
        else:
            await wire.say(head(401, {"transfer-encoding": "chunked"}))
            while True:
                await wire.say(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")

    auth = kind("first", "second")

    async with serving(script) as peer, way(peer.url, auth) as channel:
        await channel.request(PING, {}, auth.handle)

    assert auth.handle.done


class Reading(httpx.Auth):
    """Reads what it is refused with."""

    requires_response_body = True
    read = b""

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        self.read = (yield request).content
        request.headers["Authorization"] = BASIC
        yield request


@pytest.mark.parametrize("coding", ["identity", "gzip"])
@pytest.mark.parametrize("of_client", [False, True], ids=["of the transport", "of the client"])
async def test_an_auth_of_httpx_reads_the_beginning_of_a_refusal_only(of_client: bool, coding: str) -> None:
    auth, body = Reading(), b"x" * 1_000_000

    async def script(wire: Wire) -> None:
        while True:
            if (await wire.hear()).headers.get("authorization") == BASIC:
                await wire.reply(200, JSON, ANSWER)
            else:
                sent = gzip.compress(body) if coding == "gzip" else body
                await wire.reply(401, {"content-encoding": coding}, sent)

    handle = RecordedHandle()
    async with (
        serving(script) as peer,
        httpx.AsyncClient(auth=auth if of_client else None) as client,
        opened(StreamableHttp(peer.url, client=client, auth=None if of_client else auth)) as channel,
    ):
        await channel.request(PING, {}, handle)

    assert handle.done
    assert auth.read == body[:ERROR_SIZE]


@ways
async def test_the_user_of_the_url_is_not_sent_beside_an_auth(way: Way) -> None:
    """Not even by one that sends nothing yet."""
    auth = ReadyAndFailing()

    async with serving(answering()) as peer, way(peer.url.replace("//", "//me:secret@"), auth) as channel:
        with pytest.raises(McpError, match="no one is here to log in"):
            await channel.request(PING, {}, RecordedHandle())

    assert "authorization" not in peer.heard[0].headers


@pytest.mark.parametrize("kind", [Sequel, Ready, NotReady])
@pytest.mark.parametrize("library", [httpx, httpx2])
async def test_a_callers_client_is_used_with_its_hooks_and_cookies_and_without_its_own_auth(
    library: Any, kind: type[Sequel]
) -> None:
    auth = kind("first", "second")
    seen: list[tuple[str, int]] = []

    async def note(response: Any) -> None:
        seen.append((response.request.headers["authorization"], response.status_code))

    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.reply(401, {"set-cookie": "place=1"})
        for _ in range(2):
            await wire.hear()
            await wire.reply(200, JSON, ANSWER)

    async with (
        serving(script) as peer,
        library.AsyncClient(auth=("me", "secret"), event_hooks={"response": [note]}) as client,
        opened(StreamableHttp(peer.url, client=client, auth=auth)) as channel,
    ):
        await channel.request(PING, {}, auth.handle)
        await channel.request(PING, {}, auth.handle)

    assert seen == [("first", 401), ("second", 200), ("first", 200)]
    assert peer.heard[2].headers["cookie"] == "place=1"


# One person logs in after the other


class Switched(Known, Sequel):
    """The Auth of whoever has logged in: *who*, or "" for nobody."""

    def __init__(self, who: str) -> None:
        super().__init__()
        self.who = who

    def ready(self, method: str, url: str) -> Mapping[str, str] | None:
        return {"Authorization": self.who} if self.who else {}

    def authorized_by(self, url: str) -> AuthorizedBy:
        return AuthorizedBy(AuthorizationContext(self.who or None, ()))


@ways
async def test_a_cookie_of_one_login_does_not_go_with_the_token_of_the_next(way: Way) -> None:
    async def script(wire: Wire) -> None:
        while True:
            heard = await wire.hear()
            owner = heard.headers.get("authorization", "nobody")
            await wire.reply(200, {**JSON, "set-cookie": f"of={owner}"}, ANSWER)

    auth = Switched("")
    async with serving(script) as peer, way(peer.url, auth) as channel:
        for auth.who in ("", "ada", "ada", "bob", "bob"):
            await channel.request(PING, {}, RecordedHandle())

    is_the_applications = way in (by_httpx, by_httpx2)
    last = "of=ada" if is_the_applications else None
    assert [each.headers.get("cookie") for each in peer.heard] == [None, "of=nobody", "of=ada", last, "of=bob"]


async def test_a_cookie_that_comes_after_the_next_login_has_been_used_is_not_kept() -> None:
    asked, used = anyio.Event(), anyio.Event()

    async def script(wire: Wire) -> None:
        while True:
            heard = await wire.hear()
            if heard.headers["authorization"] == "ada":
                asked.set()
                await used.wait()
                await wire.reply(200, {**JSON, "set-cookie": "of=ada"}, ANSWER)
            else:
                await wire.reply(200, JSON, ANSWER)

    auth = Switched("ada")
    async with serving(script) as peer, by_pool(peer.url, auth) as channel:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(channel.request, PING, {}, RecordedHandle())
            await asked.wait()
            auth.who = "bob"
            await channel.request(PING, {}, RecordedHandle())
            used.set()
        await channel.request(PING, {}, RecordedHandle())

    assert [each.headers.get("cookie") for each in peer.heard] == [None] * 3


@pytest.mark.parametrize("first", ["", "ada"], ids=["begun by nobody", "begun by a person"])
async def test_a_session_is_of_one_login_and_nothing_of_it_is_sent_with_the_token_of_another(first: str) -> None:
    auth = Switched(first)
    async with serving(legacy()) as peer, opened_at(peer.url, auth=auth) as channel:
        await shake_hands(channel)
        for auth.who in ("ada", "ada", ""):
            await channel.request(CALL, VERSION, RecordedHandle())
        sent, auth.who = len(peer.heard), "bob"
        with pytest.raises(SessionLost, match="the session is lost: it was begun with another login") as lost:
            await channel.request(CALL, VERSION, RecordedHandle())
        assert (len(peer.heard), lost.value.may_have_run) == (sent, False)
        await shake_hands(channel)
        await channel.request(CALL, VERSION, RecordedHandle())
        auth.who = "carol"

    sessions = [(each.headers.get("authorization", ""), each.headers.get("mcp-session-id")) for each in peer.heard]
    assert sessions[-3:] == [("bob", None), ("bob", "s-2"), ("bob", "s-2")], "without a DELETE"
    assert {owner for owner, id in sessions if id == "s-1"} == {"ada", ""}


async def test_neither_a_response_nor_the_stream_of_a_session_is_resumed_with_the_token_of_another_login() -> None:
    auth, paused = Switched("ada"), anyio.Event()

    async def pause(seconds: float) -> None:
        paused.set()

    async def end(wire: Wire, heard: Heard) -> None:
        auth.who = "bob"
        await stream(event(b"", id="e"))(wire, heard)

    async with serving(legacy(get=end)) as peer, listening(peer, auth=auth, sleep=pause) as listener:
        await shake_hands(listener)
        await paused.wait()
        await anyio.wait_all_tasks_blocked()
    assert [each.method for each in peer.heard] == ["POST", "POST", "GET"]

    auth.who = "ada"
    async with serving(legacy(post=end)) as peer, opened_at(peer.url, auth=auth) as channel:
        await shake_hands(channel)
        with pytest.raises(SessionLost) as lost:
            await channel.request(CALL, VERSION, RecordedHandle())
        assert lost.value.may_have_run
    assert [each.method for each in peer.heard] == ["POST"] * 3


async def test_only_an_auth_that_tells_of_logins_has_what_is_cached_kept_for_the_next_connection() -> None:
    for auth, kept in ((Sequel("me"), False), (Ready("me"), True), (None, True)):
        async with by_pool("http://127.0.0.1:1/mcp", auth) as channel:
            assert channel.keeps_cache is kept
