"""Servers over HTTP: one that goes away leaves no trace but calls that fail, and one may want a login."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import anyio
import httpx
import pytest

from mcp_host import OAuth, StreamableHttp
from mcp_host.auth import AuthorizationNeeded
from mcp_host.errors import ConnectionClosed, HttpStatusError, NotConnected, ServerError, Unauthorized
from mcp_host.middleware import AnyRequest, CallNext
from tests.auth.authorization_server import Protected
from tests.auth.test_another_login import Private, bearer, private  # noqa: F401  # a fixture
from tests.auth.world import CALLBACK, oauth, person, site
from tests.client.sites import Site, handshake
from tests.extent import on_both
from tests.group.support import Node, Seen, names, opened, states

__all__ = ["site"]  # a fixture

pytestmark = on_both

TOOLS = {"resultType": "complete", "tools": [{"name": "x", "inputSchema": {"type": "object"}}]}
DONE = {"resultType": "complete", "content": []}


class Reachable(Site):
    """A server that can be cut off, or want a login that there is none for."""

    def __init__(self, **answers: Any) -> None:
        tools = {**TOOLS, "ttlMs": 3_600_000, "cacheScope": "private"}
        super().__init__(tools_list=tools, tools_call=DONE, subscriptions_listen=httpx.Response(405), **answers)
        self.is_up = True
        self.status = 200
        self.asked = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        if not self.is_up:
            raise httpx.ConnectError("connection refused")
        return super().__call__(request) if self.status == 200 else httpx.Response(self.status)

    @property
    def transport(self) -> StreamableHttp:
        http = httpx.AsyncClient(transport=httpx.MockTransport(self))
        return StreamableHttp("http://server.test/mcp", client=http)


@pytest.mark.fake_clock
async def test_a_server_that_has_gone_away_is_noticed_by_a_call_and_back_when_it_is_back() -> None:
    """Although its tools are fresh for an hour. A server that refuses one call has not gone away."""
    server, seen = Reachable(), Seen()
    async with opened({"a": server.transport, "b": Node("x")}, on_status=seen, within=3600) as group:
        assert await names(group) == ["a__x", "b__x"]
        server.status = 500
        with pytest.raises(ServerError):
            await group.call_tool("a__x")
        await anyio.wait_all_tasks_blocked()
        assert states(group)["a"] == "ready"
        server.status, server.is_up = 200, False
        with pytest.raises(ConnectionClosed):
            await group.call_tool("a__x")
        await seen.until("a", "down")
        assert await names(group) == ["b__x"]
        with pytest.raises(NotConnected, match=r"the server 'a' is down: .*connection refused"):
            await group.call_tool("a__x")
        server.is_up = True
        await seen.until("a", "ready", 2)
        assert await names(group) == ["a__x", "b__x"]


@pytest.mark.fake_clock
@pytest.mark.parametrize(
    ("status", "state"), [(401, "needs_login"), (403, "needs_login"), (502, "down"), (503, "down"), (504, "down")]
)
async def test_a_call_notices_a_token_that_has_expired_and_a_gateway_without_its_server(
    status: int, state: str
) -> None:
    server, seen = Reachable(), Seen()
    async with opened({"a": server.transport, "b": Node("x")}, on_status=seen, within=3600) as group:
        server.status = status
        with pytest.raises(HttpStatusError):
            await group.call_tool("a__x")
        await seen.until("a", state)
        assert str(status) in (group.status()["a"].error or "")
        assert await names(group) == ["b__x"]
        server.status = 200
        if state == "needs_login":
            await group.log_in("a")
        await seen.until("a", "ready", 2)
        assert await names(group) == ["a__x", "b__x"]


@pytest.mark.fake_clock
async def test_one_call_that_broke_off_costs_neither_the_server_nor_its_other_calls() -> None:
    server, seen = Reachable(), Seen()
    broken = [httpx.ReadError("reset")]

    def call(message: object) -> object:
        if broken:
            raise broken.pop()
        return DONE

    server._answers["tools/call"] = call
    async with opened({"a": server.transport}, on_status=seen) as group:
        with pytest.raises(ConnectionClosed):
            await group.call_tool("a__x")
        await group.call_tool("a__x")
        await anyio.wait_all_tasks_blocked()
        await group.call_tool("a__x")

    assert seen == [("a", "connecting"), ("a", "ready")]
    assert server.methods().count("tools/list") == 2


@pytest.mark.fake_clock
async def test_a_server_that_cannot_be_told_of_other_roots_costs_the_others_nothing() -> None:
    accepted, legacy = httpx.Response(202), {"server_discover": httpx.Response(404), "initialize": handshake}
    a, b = (Reachable(notifications_initialized=accepted, **legacy) for _ in "ab")
    for server in (a, b):
        server._answers["notifications/roots/list_changed"] = accepted
    async with opened({"a": a.transport, "b": b.transport}, roots=[]) as group:
        a.is_up = False
        await group.set_roots(["file:///x"])
        [warning] = group.warnings

    assert warning.startswith("a: it was not told of other roots: ")
    assert b.methods()[-1] == "notifications/roots/list_changed"


@pytest.mark.fake_clock
async def test_a_server_that_is_not_authorized_waits_for_log_in_which_says_why_it_cannot() -> None:
    server, seen = Reachable(), Seen()
    server.status = 401
    async with opened({"a": server.transport}, on_status=seen, within=3600) as group:
        assert states(group) == {"a": "needs_login"}
        await seen.until("a", "needs_login")
        asked = server.asked
        await anyio.sleep(1000)
        assert server.asked == asked
        with pytest.raises(Unauthorized):
            await group.log_in("a")
        with pytest.raises(NotConnected, match="the server 'a' needs a login: "):
            await group.call_tool("a__x")
        assert states(group) == {"a": "needs_login"}
        server.status = 200  # it was given other headers
        assert (await group.log_in("a")).state == "ready"
        assert (await group.log_in("a")).state == "ready"
        assert await names(group) == ["a__x"]

    assert seen.of("a") == ["connecting", "needs_login", "ready"]


@pytest.mark.fake_clock
async def test_a_server_disabled_as_its_tools_are_listed_after_a_login_stays_disabled() -> None:
    async def disable(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        result = await call_next(request)
        if request.method == "tools/list":
            await group.disable("a")
        return result

    server = Reachable()
    server.status = 401
    async with opened({"a": server.transport}, middleware=[disable]) as group:
        server.status = 200
        assert (await group.log_in("a")).state == "disabled"
        assert (states(group), await names(group)) == ({"a": "disabled"}, [])


async def test_a_group_closed_while_a_login_waits_for_the_first_attempt_logs_in_nowhere() -> None:
    node = Node(hangs=True)

    async def log_in() -> None:
        with pytest.raises(NotConnected, match="the group is not open"):
            await group.log_in("a")

    async with opened({"a": node}, wait="none") as group, anyio.create_task_group() as tasks:
        tasks.start_soon(log_in)
        await anyio.wait_all_tasks_blocked()
        await group.aclose()

    assert node.opened == 1


who: ContextVar[str] = ContextVar("who", default="nobody")


async def test_no_browser_opens_before_log_in_which_asks_in_the_context_of_its_caller(site: Protected) -> None:
    asked, seen = list[str](), Seen()

    async def login(url: str) -> str:
        asked.append(who.get())
        return await person(url)

    server = StreamableHttp(site.url, auth=oauth(login=login))
    async with opened({"a": server, "b": Node("x")}, on_status=seen) as group:
        assert states(group) == {"a": "needs_login", "b": "ready"}
        assert "needs a login" in str(group.status()["a"].error)
        assert asked == []
        who.set("ada")
        assert (await group.log_in("a")).state == "ready"
        assert asked == ["ada"]
        assert await names(group) == ["a__add", "b__x"]
        assert (await group.call_tool("a__add", {"a": 2, "b": 3})).structured_content == {"result": 5}

    assert seen.of("a") == ["connecting", "needs_login", "ready"]


async def test_after_another_login_the_tools_are_those_of_its_person(private: Private) -> None:  # noqa: F811
    url, auth = private.site.url, oauth()
    async with opened({"a": StreamableHttp(url, auth=auth)}) as group:
        for _ in range(2):
            await group.log_in("a")
            (tool,) = await group.list_tools()
            assert tool.description == await bearer(auth, url)
            await auth.login(url)
        await group.disable("a")
        await group.enable("a")
        (tool,) = await group.list_tools()
        assert tool.description == await bearer(auth, url)


async def test_a_login_that_is_denied_or_cancelled_leaves_the_server_waiting(site: Protected) -> None:
    answers, begun = list[object](["deny", "hang"]), anyio.Event()

    async def login(url: str) -> str:
        if not answers:
            return await person(url)
        if answers.pop(0) == "deny":
            raise PermissionError("no")
        begun.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with opened({"a": StreamableHttp(site.url, auth=oauth(login=login))}) as group:
        with pytest.raises(PermissionError):
            await group.log_in("a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(group.log_in, "a")
            await begun.wait()
            tasks.cancel_scope.cancel()
        assert states(group) == {"a": "needs_login"}
        assert (await group.log_in("a")).state == "ready"


async def test_a_web_host_finishes_the_login_itself_and_then_says_so(site: Protected) -> None:
    auth = OAuth(redirect_uri=CALLBACK)
    async with opened({"a": StreamableHttp(site.url, auth=auth)}) as group:
        assert states(group) == {"a": "needs_login"}
        with pytest.raises(AuthorizationNeeded) as needed:
            await group.log_in("a")
        await auth.finish(needed.value.state, await person(needed.value.url))
        assert (await group.log_in("a")).state == "ready"
