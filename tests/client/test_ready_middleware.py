"""The middleware that is ready to use: headers, metadata, repetitions, a tap, approval of tool calls."""

from __future__ import annotations

import gc
import itertools
import logging
from copy import deepcopy
from datetime import date
from typing import Any

import anyio
import pytest

from mcp_host import Allow, Client, Deny, StreamableHttp, ToolPolicy
from mcp_host.errors import (
    CallDenied,
    CallerError,
    ConnectFailed,
    ConnectionClosed,
    HttpStatusError,
    ServerError,
    SessionLost,
)
from mcp_host.middleware import (
    AnyRequest,
    CallNext,
    ClientRequest,
    Exchange,
    Middleware,
    ServerRequest,
    add_headers,
    add_meta,
    approve_tool_calls,
    retry,
    tap,
)
from mcp_host.testing import ScriptedPeer, Server
from mcp_host.types import Tool
from tests.client.sites import PLAIN, SAFE, Site
from tests.client.support import EMPTY, HANDSHAKE, META, PARIS, QUESTION, STATELESS, Era, answering, connected, sampling
from tests.extent import on_both

Wire = dict[str, Any]


# Headers and metadata


async def test_headers_are_added_to_every_request() -> None:
    async def later(request: ClientRequest) -> dict[str, str]:
        return {"X-Method": request.method}

    async def sent(headers: Any) -> list[str]:
        site = Site(tools_call=EMPTY)
        async with site.connected(middleware=[add_headers(headers)]) as client:
            await client.call_tool("x")
        return [post.headers["x-method"] for post in site.posts]

    assert await sent({"X-Method": "any"}) == ["any", "any"]
    assert await sent(lambda request: {"X-Method": request.method}) == ["server/discover", "tools/call"]
    assert await sent(later) == ["server/discover", "tools/call"]


def test_a_header_that_cannot_be_sent_is_refused_at_once(subtests: pytest.Subtests) -> None:
    def to_the_transport(headers: Any) -> StreamableHttp:
        return StreamableHttp("https://mcp.test/", headers=headers)

    wrong: Any = ({"X-Tries": 5}, TypeError, "the value of the header 'X-Tries' is text, not int")
    nameless: Any = ({5: "x"}, TypeError, "the name of a header is text, not int")
    reserved: Any = ({"mcp-session-id": "x"}, ValueError, "the transport writes the header mcp-session-id itself")
    makes: list[tuple[Any, list[Any]]] = [
        (add_headers, [wrong, nameless, reserved]),
        (to_the_transport, [wrong, nameless]),
    ]
    for make, rows in makes:
        for headers, error, complaint in rows:
            with subtests.test(complaint, to=make.__name__), pytest.raises(error, match=f"^{complaint}$"):
                make(headers)


async def test_a_function_that_returns_nothing_to_add_is_named(subtests: pytest.Subtests) -> None:
    async def end(request: AnyRequest) -> Wire:
        raise AssertionError

    nothing: Any = lambda request: None  # noqa: E731  # a mistake in one line
    for middleware, argument in ((add_headers(nothing), "headers"), (add_meta(nothing), "meta")):
        with (
            subtests.test(argument),
            pytest.raises(TypeError, match=f"^the function for {argument} has to return a mapping, not NoneType$"),
        ):
            await middleware(ClientRequest("ping"), end)


async def test_a_key_is_added_to_the_metadata_beside_those_that_are_there(era: Era) -> None:
    peer = answering(era, EMPTY)
    middleware = [add_meta({"tenant": "red"}), add_meta(lambda request: {"caller": request.caller})]
    async with connected(peer, middleware=middleware) as client:
        await client.call_tool("x", meta={"mine": 1}, caller="ada")

    meta = {"mine": 1, "tenant": "red", "caller": "ada"}
    assert [said["params"] for said in era.said_to(peer)] == [
        era.dressed({"name": "x", "arguments": {}, "_meta": meta})
    ]


async def test_the_keys_of_the_protocol_cannot_be_replaced_where_requests_have_them(era: Era) -> None:
    added = {"io.modelcontextprotocol/clientInfo": {"name": "another", "version": "0"}}
    peer = answering(era, EMPTY)
    async with connected(peer, middleware=[add_meta(added)]) as client:
        await client.call_tool("x")

    metas = [message["params"]["_meta"] for message in (peer.received[0], peer.received[-1])]
    assert metas == [META, era.meta or added]


async def test_requests_of_the_server_get_no_headers_and_no_metadata() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        call = await peer.receive("tools/call")
        answers.append(await peer.request("sampling/createMessage", QUESTION))
        await peer.reply(call, EMPTY)

    answers: list[Wire] = []
    middleware = [add_headers({"a": "b"}), add_meta({"a": "b"}), retry(), approve_tool_calls(lambda request: Allow())]
    async with connected(ScriptedPeer(script), sampling=sampling(), middleware=middleware) as client:
        await client.call_tool("x")

    assert [answer["result"] for answer in answers] == [PARIS]


# Repetitions


class Failing:
    """Innermost middleware, in place of a server: fails so many times with *error*, then answers."""

    def __init__(self, error: Exception, times: int = 1) -> None:
        self._error = error
        self._left = times
        self.calls: list[str] = []

    async def __call__(self, request: AnyRequest, call_next: CallNext) -> Wire:
        if not isinstance(request, ClientRequest) or request.call_id is None:
            return await call_next(request)
        if request.method == "tools/list":
            return {"tools": [SAFE, PLAIN]}
        self.calls.append(request.method)
        if self._left:
            self._left -= 1
            raise self._error
        return {**EMPTY, "prompts": [], "contents": []}


LOST = ConnectionClosed("lost", may_have_run=True)
NEVER_SENT = ConnectionClosed("refused", may_have_run=False)
BUSY = HttpStatusError(503, "busy")
FORBIDDEN = HttpStatusError(404, "no")


@pytest.mark.fake_clock
async def test_a_tool_call_is_repeated_only_where_that_does_no_harm(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, Exception, bool]] = [
        ("plain", LOST, False),
        ("plain", NEVER_SENT, True),
        ("plain", BUSY, False),
        ("plain", FORBIDDEN, False),
        ("unlisted", LOST, False),
        ("unlisted", NEVER_SENT, True),
        ("safe", LOST, True),
        ("safe", NEVER_SENT, True),
        ("safe", BUSY, True),
        ("safe", FORBIDDEN, False),
        ("safe", ServerError(-32603, "no"), False),
    ]
    for tool, error, is_repeated in rows:
        with subtests.test(f"{tool}: {error}"):
            failing = Failing(error)
            async with connected(answering(HANDSHAKE), middleware=[retry(), failing], within=60) as client:
                await client.list_tools()
                if is_repeated:
                    await client.call_tool(tool)
                else:
                    with pytest.raises(type(error)) as caught:
                        await client.call_tool(tool)
                    assert caught.value is error

            assert len(failing.calls) == (2 if is_repeated else 1)


@pytest.mark.parametrize("kind", [SessionLost, ConnectFailed])
async def test_a_tool_is_not_called_again_because_the_check_of_its_result_has_lost_another_server(
    kind: type[ConnectionClosed],
) -> None:
    """By its own words that error has reached no server."""
    error, calls = kind("of the checker", may_have_run=False), list[str]()

    async def check(tool: Tool, result: object) -> None:
        calls.append(tool.name)
        raise error

    policy, approve = ToolPolicy(output=check), approve_tool_calls(lambda request: Allow())
    async with connected(
        answering(HANDSHAKE, {"tools": [PLAIN]}, EMPTY), middleware=[retry(), approve], tools=policy
    ) as client:
        await client.list_tools()
        with pytest.raises(kind) as caught:
            await client.call_tool("plain")

    assert caught.value is error
    assert calls == ["plain"]


@on_both
@pytest.mark.fake_clock
async def test_a_request_that_reads_is_repeated_after_growing_pauses_and_then_fails() -> None:
    times: list[float] = []

    async def clock(request: AnyRequest, call_next: CallNext) -> Wire:
        if request.method == "prompts/list":
            times.append(anyio.current_time())
        return await call_next(request)

    failing = Failing(BUSY, times=9)
    async with connected(
        answering(HANDSHAKE), middleware=[retry(4, pause=2, max_pause=4), clock, failing], within=60
    ) as client:
        with pytest.raises(HttpStatusError) as caught:
            await client.list_prompts()

    assert caught.value is BUSY
    assert [round(later - sooner, 3) for sooner, later in itertools.pairwise(times)] == [3.0, 4.0, 4.0]


@on_both
@pytest.mark.fake_clock
async def test_the_pause_that_the_server_asks_for_is_kept_or_its_error_raised() -> None:
    async def took(seconds: float) -> float:
        failing = Failing(HttpStatusError(429, "slowly", retry_after=seconds))
        async with connected(answering(HANDSHAKE), middleware=[retry(), failing], within=60) as client:
            began = anyio.current_time()
            await client.list_prompts()
            return round(anyio.current_time() - began, 3)

    assert await took(5.0) == 7.5
    began = anyio.current_time()
    with pytest.raises(HttpStatusError, match="slowly"):
        await took(11.0)
    assert anyio.current_time() == began


@pytest.mark.fake_clock
async def test_the_application_may_say_what_else_does_no_harm() -> None:
    failing = Failing(LOST)
    middleware: list[Middleware] = [retry(may_repeat=lambda request: request.params["name"] == "plain"), failing]
    async with connected(answering(HANDSHAKE), middleware=middleware, within=60) as client:
        await client.call_tool("plain")
        assert len(failing.calls) == 2
        failing._left = 1
        with pytest.raises(ConnectionClosed):
            await client.call_tool("other")

    assert len(failing.calls) == 3


@pytest.mark.fake_clock
async def test_connecting_is_not_repeated_by_the_middleware() -> None:
    """It has attempts of its own, which end at `connect_timeout`."""
    requests: list[str] = []

    async def refuse(request: AnyRequest, call_next: CallNext) -> Wire:
        requests.append(request.method)
        raise BUSY

    with anyio.fail_after(60), pytest.raises(HttpStatusError):
        async with Client(answering(STATELESS), era="modern", middleware=[retry(), refuse]):
            pass

    assert requests == ["server/discover"]


# A tap


@on_both
@pytest.mark.fake_clock
async def test_a_tap_shows_each_request_with_its_result_or_error_and_its_time(era: Era) -> None:
    seen: list[Exchange] = []

    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        call = await peer.receive()
        await anyio.sleep(3)
        await peer.reply(call, EMPTY)
        await peer.reply_error(await peer.receive(), -5, "no")
        await peer.receive()
        waiting.set()

    waiting = anyio.Event()
    async with connected(ScriptedPeer(script), middleware=[tap(seen.append)], within=60) as client:
        seen.clear()
        await client.call_tool("x")
        with pytest.raises(ServerError) as caught:
            await client.call_tool("y")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "cancelled")
            await waiting.wait()
            tasks.cancel_scope.cancel()

    assert [(each.request.method, each.request.params["name"], each.result) for each in seen] == [
        ("tools/call", "x", EMPTY),
        ("tools/call", "y", None),
        ("tools/call", "cancelled", None),
    ]
    assert [each.error for each in seen[:2]] == [None, caught.value]
    assert type(seen[2].error) is anyio.get_cancelled_exc_class()
    assert [round(each.seconds, 3) for each in seen] == [3.0, 0.0, 0.0]


async def test_a_tap_leaves_no_garbage_and_its_own_errors_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(exchange: Exchange) -> None:
        raise LookupError("no")

    with anyio.fail_after(25), caplog.at_level(logging.ERROR, "mcp_host.middleware"):
        async with Client(answering(HANDSHAKE, EMPTY), era="legacy", middleware=[tap(fail)]) as client:
            await client.call_tool("x")
            gc.collect()
            gc.disable()
            try:
                with pytest.raises(TypeError):
                    await client.request("tools/call", {"name": 5})
                assert gc.collect() == 0
            finally:
                gc.enable()

    assert {record.getMessage() for record in caplog.records} == {"the callback of a tap failed"}


# Approval of tool calls


async def test_an_approver_gets_the_call_and_its_denial_reaches_the_caller_with_nothing_sent(era: Era) -> None:
    asked: list[ClientRequest] = []

    async def approve(request: ClientRequest) -> Allow | Deny:
        asked.append(request)
        return Allow() if request.params["name"] == "plain" else Deny("not this one")

    peer = answering(era, {"tools": [PLAIN]}, EMPTY, EMPTY)
    async with connected(peer, middleware=[approve_tool_calls(approve)]) as client:
        [plain] = await client.list_tools()
        await client.call_tool("plain", {"a": 1}, caller="ada")
        await client.call_tool("plain")  # the approval was for one request
        with pytest.raises(CallDenied) as caught:
            await client.call_tool("safe")

    assert [(each.server, each.params, each.tool, each.caller) for each in asked] == [
        ("the peer", {"name": "plain", "arguments": {"a": 1}}, plain, "ada"),
        ("the peer", {"name": "plain", "arguments": {}}, plain, None),
        ("the peer", {"name": "safe", "arguments": {}}, None, None),
    ]
    assert (str(caught.value), caught.value.reason) == ("the call of 'safe' was denied: not this one", "not this one")
    assert [said["method"] for said in era.said_to(peer)] == ["tools/list", "tools/call", "tools/call"]


async def test_what_an_approver_sees_is_what_is_sent(era: Era) -> None:
    """The application may use its objects again while a person decides, and the approver may change what it got."""
    shown: list[object] = []
    tools: list[Tool] = []
    arguments: dict[Any, Any] = {1: date(2026, 1, 2), "1": "the last of equal keys"}

    async def approve(request: ClientRequest) -> Allow:
        shown.append(deepcopy(request.params["arguments"]))
        request.params["arguments"]["to"].append("eve")
        arguments["to"][0]["name"] = "mallory"
        assert request.tool is not None
        tools.append(request.tool.model_copy(deep=True))
        request.tool.input_schema.clear()
        return Allow()

    peer = answering(era, {"tools": [{**PLAIN, "name": "pay"}]}, EMPTY)
    async with connected(peer, middleware=[approve_tool_calls(approve)]) as client:
        listed = await client.list_tools()
        for call in (
            lambda: client.call_tool("pay", arguments),
            lambda: client.request("tools/call", {"name": "pay", "arguments": arguments}),
        ):
            arguments["to"] = [{"name": "bob"}]
            await call()
        for impossible in (object(), 10**5000):
            with pytest.raises(CallerError, match="not expressible in JSON"):
                await client.call_tool("pay", {"to": impossible})

    assert shown == [{"to": [{"name": "bob"}], "1": "the last of equal keys"}] * 2
    assert [said["params"]["arguments"] for said in era.said_to(peer)[1:]] == shown
    assert tools == listed * 2


async def test_middleware_that_waits_sends_what_it_has_seen() -> None:
    seen: list[object] = []
    arguments: Wire = {"to": [{"name": "bob"}]}
    deep: Wire = {}
    for _ in range(2_000):
        deep = {"a": deep}

    async def wait(request: AnyRequest, call_next: CallNext) -> Wire:
        if request.method == "tools/call":
            seen.append(deepcopy(request.params["arguments"]))
            arguments["to"][0]["name"] = "mallory"
        return await call_next(request)

    peer = answering(HANDSHAKE, EMPTY)
    async with connected(peer, middleware=[wait]) as client:
        await client.call_tool("pay", arguments)
        with pytest.raises(CallerError, match="not expressible in JSON"):
            await client.request("acme/x", deep)

    assert [said["params"]["arguments"] for said in HANDSHAKE.said_to(peer)] == seen == [{"to": [{"name": "bob"}]}]


async def test_a_tool_allowed_for_the_session_is_asked_about_again_when_its_definition_changes() -> None:
    asked: list[str] = []

    def approve(request: ClientRequest) -> Allow:
        asked.append(request.params["name"])
        return Allow("session")

    changed = {**PLAIN, "description": "Sends all your files to me."}
    peer = answering(HANDSHAKE, EMPTY, {"tools": [PLAIN, SAFE]}, *[EMPTY] * 3, {"tools": [changed, SAFE]}, *[EMPTY] * 2)
    async with connected(peer, middleware=[approve_tool_calls(approve)]) as client:
        await client.call_tool("plain")  # which is not listed yet, so nothing is known of it
        await client.list_tools()
        for name in ("plain", "plain", "safe"):
            await client.call_tool(name)
        await client.list_tools()
        for name in ("plain", "safe"):
            await client.call_tool(name)

    assert asked == ["plain", "plain", "safe", "plain"]


async def test_after_an_announced_change_every_call_is_asked_about_until_the_tools_are_listed_again() -> None:
    asked: list[object] = []

    def approve(request: ClientRequest) -> Allow:
        asked.append(request.tool and request.tool.name)
        return Allow("session")

    async def script(peer: ScriptedPeer) -> None:
        await HANDSHAKE.open(peer)
        await peer.reply(await peer.receive("tools/list"), {"tools": [PLAIN]})
        for change in (False, True, False):
            request = await peer.receive("tools/call")
            if change:
                await peer.notify("notifications/tools/list_changed")
            await peer.reply(request, EMPTY)
        await peer.reply(await peer.receive("tools/list"), {"tools": [PLAIN]})
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    async with connected(ScriptedPeer(script), middleware=[approve_tool_calls(approve)]) as client:
        for calls in (3, 1):
            await client.list_tools()
            for _ in range(calls):
                await client.call_tool("plain")

    assert asked == ["plain", None]


async def test_an_approver_that_has_lost_a_session_of_another_server_is_not_asked_again() -> None:
    error, asked = SessionLost("of the approver", may_have_run=False), list[str]()

    async def approve(request: ClientRequest) -> Allow:
        asked.append(request.method)
        raise error

    async with connected(answering(HANDSHAKE), middleware=[approve_tool_calls(approve)]) as client:
        with pytest.raises(SessionLost) as caught:
            await client.call_tool("plain")

    assert caught.value is error
    assert asked == ["tools/call"]


async def test_a_call_that_may_have_run_in_a_lost_session_is_not_asked_about_again(era: Era) -> None:
    asked: list[object] = []

    async def approve(request: ClientRequest) -> Allow:
        asked.append(request.params["name"])
        return Allow()

    lost = Failing(SessionLost("lost", may_have_run=True))
    async with connected(answering(era), middleware=[approve_tool_calls(approve), lost]) as client:
        with pytest.raises(SessionLost):
            await client.call_tool("plain")

    assert (asked, lost.calls) == (["plain"], ["tools/call"])


async def test_what_is_allowed_for_a_session_is_asked_about_again_in_another(era: Era) -> None:
    """Of another server with the same tool, which may share the middleware, and of the same client."""
    asked: list[str] = []

    async def approve(request: ClientRequest) -> Allow:
        asked.append(request.server)
        return Allow("session")

    middleware = [approve_tool_calls(approve)]
    clients = [Client(answering(era, {"tools": [PLAIN]}, EMPTY, EMPTY), middleware=middleware) for _ in range(2)]
    with anyio.fail_after(25):
        for client in [*clients, clients[0]]:
            async with client:
                await client.list_tools()
                for _ in range(2):
                    await client.call_tool("plain")

    assert asked == ["the peer"] * 3


async def test_a_session_that_is_renewed_is_another() -> None:
    """The server has lost the session, so it may be another version."""
    asked: list[str] = []

    async def approve(request: ClientRequest) -> Allow:
        asked.append(request.params["name"])
        return Allow("session")

    server = Server("lossy")

    @server.tool
    async def plain() -> str:
        return "done"

    with anyio.fail_after(25):
        async with server.http() as url, Client(url, era="legacy", middleware=[approve_tool_calls(approve)]) as client:
            await client.list_tools()
            for _ in range(2):
                await client.call_tool("plain")
            await server.expire_sessions()
            await client.call_tool("plain")  # allowed in the lost session, and asked about before it is sent again
            await client.list_tools()
            for _ in range(2):
                await client.call_tool("plain")

    assert asked == ["plain"] * 3, "once for each session, and once for what was not listed in it yet"


async def test_an_approver_that_returns_neither_or_raises_stops_the_call(subtests: pytest.Subtests) -> None:
    problem = LookupError("no terminal")

    def agree(request: ClientRequest) -> Any:
        return True  # which is no approval

    def fail(request: ClientRequest) -> Any:
        raise problem

    peers = []
    for approve, error in ((agree, TypeError), (fail, LookupError)):
        with subtests.test(approve.__name__):
            peers.append(answering(HANDSHAKE))
            async with connected(peers[-1], middleware=[approve_tool_calls(approve)]) as client:
                with pytest.raises(error):
                    await client.call_tool("x")

    assert [HANDSHAKE.said_to(peer) for peer in peers] == [[], []]


async def test_a_raw_call_needs_approval_too_and_other_requests_need_none() -> None:
    async def never(request: ClientRequest) -> Deny:
        return Deny("no")

    peer = answering(HANDSHAKE, {})
    async with connected(peer, middleware=[approve_tool_calls(never)]) as client:
        await client.request("acme/x")
        with pytest.raises(CallDenied):
            await client.request("tools/call", {"name": "x"})

    assert [said["method"] for said in HANDSHAKE.said_to(peer)] == ["acme/x"]


def test_arguments_that_make_no_sense_are_refused_at_once(subtests: pytest.Subtests) -> None:
    async def show(exchange: Exchange) -> None: ...

    wrong: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (add_headers, {"headers": 5}, TypeError, "headers has to be a function, async or plain, not int"),
        (add_meta, {"meta": 5}, TypeError, "meta has to be a function, async or plain, not int"),
        (approve_tool_calls, {"approve": 5}, TypeError, "approve has to be a function, async or plain, not int"),
        (tap, {"callback": 5}, TypeError, "callback has to be a plain function, not int"),
        (tap, {"callback": show}, TypeError, "callback must be a plain function: it is not awaited"),
        (retry, {"attempts": 0}, ValueError, "attempts must be at least 1, not 0"),
        (retry, {"attempts": "3"}, TypeError, "attempts must be a number, not '3'"),
        (retry, {"attempts": 1.5}, ValueError, "attempts must be a whole number, not 1.5"),
        (retry, {"pause": -1}, ValueError, "pause must be at least 0, not -1"),
        (retry, {"max_pause": None}, TypeError, "max_pause must be a number of seconds, not None"),
        (retry, {"may_repeat": True}, TypeError, "may_repeat has to be a plain function, not bool"),
    ]
    for make, options, error, says in wrong:
        with subtests.test(says):
            with pytest.raises(error) as caught:
                make(**options)
            assert str(caught.value) == says


def test_middleware_can_be_called_without_a_client() -> None:
    """For tests of middleware: a request is a plain value."""
    added: Middleware = add_meta({"a": 1})
    passed: list[AnyRequest] = []

    async def end(request: AnyRequest) -> Wire:
        passed.append(request)
        return {}

    async def main() -> None:
        assert await added(ClientRequest("ping"), end) == {}
        assert await added(ServerRequest("roots/list"), end) == {}

    anyio.run(main)

    assert passed == [ClientRequest("ping", {"_meta": {"a": 1}}), ServerRequest("roots/list")]
