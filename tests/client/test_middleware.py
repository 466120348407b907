"""Middleware around requests, in both directions, and what it learns besides: ids, the model's time, the ends of sessions."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import anyio
import pytest

from mcp_host import Allow, Client, Limits, OuterCall, Sampling, SamplingRequest, always
from mcp_host.errors import (
    CallerError,
    ConnectionClosed,
    ConnectTimeout,
    InputNotGiven,
    InputRefused,
    InvalidToolOutput,
    RequestTimeout,
    ServerError,
)
from mcp_host.middleware import (
    AnyRequest,
    CallNext,
    ClientRequest,
    EndedSession,
    Middleware,
    ServerRequest,
    add_headers,
    add_meta,
    approve_tool_calls,
    retry,
    tap,
)
from mcp_host.sampling import AroundModel, CallModel
from mcp_host.testing import ScriptedPeer
from mcp_host.types import CreateMessageResult
from tests.client.sites import MIRRORED, Site, mirrored_headers
from tests.client.support import (
    EMPTY,
    HANDSHAKE,
    PARIS,
    QUESTION,
    STATELESS,
    TOOLS,
    Era,
    answering,
    asking_server,
    connected,
    ignore,
    methods,
    report_progress,
    sampling,
    text,
)
from tests.client.test_requests import EVERYTHING, REQUESTS, WITHOUT_RESULT, Ask
from tests.client.test_restart_backoff import Mortal, good_for_nothing, good_for_one_call
from tests.extent import on_both

Wire = dict[str, Any]


def named(name: str, seen: list[str]) -> Middleware:
    async def middleware(request: AnyRequest, call_next: CallNext) -> Wire:
        seen.append(f"{name} {request.method}")
        result = await call_next(request)
        seen.append(f"{name} done")
        return result

    return middleware


def ours(function: Callable[[ClientRequest, CallNext], Awaitable[Wire]]) -> Middleware:
    """Middleware for the tool calls of ours."""

    async def middleware(request: AnyRequest, call_next: CallNext) -> Wire:
        if isinstance(request, ClientRequest) and request.method == "tools/call":
            return await function(request, call_next)
        return await call_next(request)

    return middleware


def theirs(function: Callable[[ServerRequest, CallNext], Awaitable[Wire]]) -> Middleware:
    """Middleware for the requests of the server."""

    async def middleware(request: AnyRequest, call_next: CallNext) -> Wire:
        return await (function(request, call_next) if isinstance(request, ServerRequest) else call_next(request))

    return middleware


def failing(method: str, problem: Exception) -> Middleware:
    """Middleware that raises *problem* for requests of this method."""

    async def middleware(request: AnyRequest, call_next: CallNext) -> Wire:
        if request.method == method:
            raise problem
        return await call_next(request)

    return middleware


# Around our requests


async def test_middleware_is_around_each_request_of_ours_and_the_first_is_the_outermost(era: Era) -> None:
    seen: list[str] = []
    peer = answering(era, EMPTY)
    async with connected(peer, middleware=[named("outer", seen), named("inner", seen)]) as client:
        opening = [line for line in seen if line.startswith("outer") and line != "outer done"]
        seen.clear()
        await client.call_tool("x")

    assert opening == [f"outer {method}" for method in era.opening if not method.startswith("notifications/")]
    assert seen == ["outer tools/call", "inner tools/call", "inner done", "outer done"]


async def test_every_kind_of_request_passes_once(era: Era) -> None:
    seen: list[str] = []

    async def note(request: AnyRequest, call_next: CallNext) -> Wire:
        seen.append(request.method)
        return await call_next(request)

    requests: list[tuple[Ask, str, Wire]] = [(lambda client: client.list_tools(), "tools/list", {"tools": []})]
    requests += [(ask, method, result) for ask, method, _, result, _ in REQUESTS]
    if era is HANDSHAKE:
        requests += [(ask, method, {}) for ask, method, _ in WITHOUT_RESULT]
    peer = answering(era, *[result for *_, result in requests], capabilities=EVERYTHING)
    async with connected(peer, middleware=[note]) as client:
        seen.clear()
        for ask, *_ in requests:
            await ask(client)

    assert seen == [method for _, method, _ in requests]


async def test_middleware_may_change_the_tool_its_arguments_and_meta(era: Era) -> None:
    async def change(request: ClientRequest, call_next: CallNext) -> Wire:
        return await call_next(request.with_params(name="y", arguments={"a": 2}).with_meta({"trace": "1"}))

    peer = answering(era, EMPTY)
    async with connected(peer, middleware=[ours(change)]) as client:
        await client.call_tool("x", {"a": 1}, meta={"mine": True})

    params = {"name": "y", "arguments": {"a": 2}, "_meta": {"mine": True, "trace": "1"}}
    assert [message["params"] for message in era.said_to(peer)] == [era.dressed(params)]


async def test_middleware_may_change_the_result_or_answer_by_itself(era: Era) -> None:
    async def loud(request: ClientRequest, call_next: CallNext) -> Wire:
        result = await call_next(request)
        return {"content": [{"type": "text", "text": result["content"][0]["text"].upper()}]}

    async def known(request: ClientRequest, call_next: CallNext) -> Wire:
        if request.params["name"] == "known":
            return {"content": [{"type": "text", "text": "by itself"}]}
        return await call_next(request)

    peer = answering(era, {"content": [{"type": "text", "text": "hello"}]})
    async with connected(peer, middleware=[ours(loud), ours(known)]) as client:
        results = [await client.call_tool(name) for name in ("known", "x")]

    assert [result.content for result in results] == [[text("BY ITSELF")], [text("HELLO")]]
    assert len(era.said_to(peer)) == 1


async def test_what_middleware_raises_reaches_the_caller_alone_and_unchanged(
    era: Era, subtests: pytest.Subtests
) -> None:
    problem = LookupError("no token")
    for method in (*era.opening[:2], "tools/call"):
        with subtests.test(method):
            peer = answering(era)
            with pytest.raises(LookupError) as caught:
                async with connected(peer, middleware=[failing(method, problem)]) as client:
                    await client.call_tool("x")

            assert caught.value is problem
            assert method not in methods(peer)


async def test_middleware_that_fails_for_the_stream_of_changes_is_logged_or_raised_to_who_subscribes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    problem = LookupError("no token")

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities={"tools": {"listChanged": True}, "resources": {"subscribe": True}})
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    middleware = [failing("subscriptions/listen", problem)]
    async with connected(ScriptedPeer(script), middleware=middleware, on_change=ignore) as client:
        await client.call_tool("x")
        with pytest.raises(LookupError) as caught:
            await client.subscribe_resource("a:b")

    assert caught.value is problem
    assert {record.getMessage() for record in caplog.records} == {"subscribing to changes failed"}


async def test_middleware_that_is_not_async_is_named() -> None:
    """Anything else is taken: what returns an awaitable, and what cannot be inspected."""

    def plain(request: AnyRequest, call_next: CallNext) -> Any:
        return {}

    def awaitable(request: AnyRequest, call_next: CallNext) -> Awaitable[Wire]:
        return call_next(request)

    class Odd:
        __signature__ = "none"

        async def __call__(self, request: AnyRequest, call_next: CallNext) -> Wire:
            return await call_next(request)

    with anyio.fail_after(25):
        with pytest.raises(TypeError) as caught:
            await Client(answering(HANDSHAKE), middleware=[awaitable, Odd(), plain]).connect()

    assert str(caught.value) == (
        "the middleware plain has to be async and return the result as a dict: it returned dict"
    )


@on_both
@pytest.mark.fake_clock
async def test_the_time_that_middleware_takes_before_it_sends_counts_in_no_timeout(era: Era) -> None:
    """Nor is it silence of the server, while connecting."""
    takes = {"server/discover": 100, "tools/call": 1000}  # as a person who logs in, or approves

    async def think(request: AnyRequest, call_next: CallNext) -> Wire:
        await anyio.sleep(takes.get(request.method, 0))
        return await call_next(request)

    peer = answering(era, EMPTY)
    async with connected(peer, middleware=[think], limits=Limits(connect_timeout=10), within=2000) as client:
        result = await client.call_tool("x", timeout=10, idle_timeout=5)

    assert result.content == []
    assert methods(peer) == [*era.opening, "tools/call"]


@on_both
@pytest.mark.fake_clock
async def test_middleware_that_never_passes_on_the_first_request_ends_connecting() -> None:
    async def never(request: AnyRequest, call_next: CallNext) -> Wire:
        await anyio.sleep_forever()
        raise AssertionError

    limits = Limits(connect_timeout=10, input_timeout=100)
    with anyio.fail_after(1000):
        client = Client(answering(HANDSHAKE), middleware=[never], limits=limits)
        began = anyio.current_time()
        with pytest.raises(ConnectTimeout):
            await client.connect()

    assert anyio.current_time() - began < 120


async def test_each_call_next_sends_the_request_again(era: Era) -> None:
    async def twice(request: ClientRequest, call_next: CallNext) -> Wire:
        await call_next(request)
        return await call_next(request)

    peer = answering(era, EMPTY, {"content": [{"type": "text", "text": "second"}]})
    async with connected(peer, middleware=[ours(twice)]) as client:
        result = await client.call_tool("x")

    assert result.content == [text("second")]
    assert [message["id"] for message in era.said_to(peer)] == [era.first_id, era.first_id + 1]


@on_both
async def test_middleware_may_send_a_request_several_times_at_once() -> None:
    """Hedging: the first answer wins, and the other request is cancelled."""
    cancelled: list[Wire] = []

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities=TOOLS)
        first, second = await peer.receive(), await peer.receive()
        await peer.reply(second, {"content": [{"type": "text", "text": "second"}]})
        cancelled.append((await peer.receive("notifications/cancelled"))["params"])
        cancelled.append({"requestId": first["id"]})

    async def hedge(request: ClientRequest, call_next: CallNext) -> Wire:
        async def attempt() -> None:
            results.append(await call_next(request))
            tasks.cancel_scope.cancel()

        results: list[Wire] = []
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(attempt)
        return results[0]

    async with connected(ScriptedPeer(script), era="legacy", middleware=[ours(hedge)]) as client:
        result = await client.call_tool("x")
        await anyio.wait_all_tasks_blocked()

    assert result.content == [text("second")]
    assert cancelled[0] == cancelled[1]


async def test_a_repeated_call_goes_to_the_restarted_server() -> None:
    errors: list[ConnectionClosed] = []

    async def again(request: ClientRequest, call_next: CallNext) -> Wire:
        try:
            return await call_next(request)
        except ConnectionClosed as exc:
            errors.append(exc)
            return await call_next(request)

    server = Mortal(good_for_nothing, good_for_one_call)
    async with connected(server, middleware=[ours(again)]) as client:
        result = await client.call_tool("x")

    assert result.content == []
    assert [error.may_have_run for error in errors] == [True]


async def test_a_second_attempt_that_was_not_sent_does_not_hide_that_the_first_may_have_run() -> None:
    async def again(request: ClientRequest, call_next: CallNext) -> Wire:
        with pytest.raises(ConnectionClosed):
            await call_next(request)
        return await call_next(request)

    async def script(peer: ScriptedPeer) -> None:
        await HANDSHAKE.open(peer)
        await peer.receive("tools/call")
        await peer.aclose()

    async with connected(ScriptedPeer(script), middleware=[ours(again)]) as client:
        with pytest.raises(ConnectionClosed) as caught:
            await client.call_tool("x")

    assert caught.value.may_have_run is True


@on_both
@pytest.mark.fake_clock
async def test_all_attempts_together_have_the_timeout_of_the_call(era: Era) -> None:
    async def again(request: ClientRequest, call_next: CallNext) -> Wire:
        await call_next(request)
        await anyio.sleep(7)
        await call_next(request)
        await anyio.sleep(7)
        return await call_next(request)

    peer = answering(era, EMPTY, EMPTY, EMPTY)
    async with connected(peer, middleware=[ours(again)], within=100) as client:
        with pytest.raises(RequestTimeout) as caught:
            await client.call_tool("x", timeout=10)

    assert len(era.said_to(peer)) == 2
    assert str(caught.value) == "tools/call: took longer than 10 s (timeout)"


async def test_a_request_says_who_makes_it_and_of_which_tool(era: Era) -> None:
    caller = object()
    seen: list[ClientRequest] = []

    async def note(request: ClientRequest, call_next: CallNext) -> Wire:
        seen.append(request)
        return await call_next(request)

    tool = {"name": "x", "inputSchema": {"type": "object"}, "description": "of tests"}
    peer = answering(era, {"tools": [tool]}, EMPTY, EMPTY)
    async with connected(peer, middleware=[ours(note)]) as client:
        listed = await client.list_tools()
        await client.call_tool("x", {"a": 1}, caller=caller)
        await client.call_tool("unlisted")

    first, second = seen
    assert (first.method, first.params) == ("tools/call", {"name": "x", "arguments": {"a": 1}})
    assert (first.server, first.protocol_version, first.headers) == ("the peer", era.version, {})
    assert (first.caller, second.caller) == (caller, None)
    assert (first.tool, second.tool) == (listed[0], None)
    assert first.with_params(name="unlisted").tool is None
    assert second.call_id is not None
    assert first.call_id is not None
    assert second.call_id > first.call_id


async def test_an_error_of_the_progress_callback_reaches_the_caller_unchanged(era: Era) -> None:
    """It may be an error that another client raised there. Middleware must not take it for one of this call."""
    problem = ConnectionClosed("of another client")
    caught_inside: list[ConnectionClosed] = []

    async def look(request: ClientRequest, call_next: CallNext) -> Wire:
        try:
            return await call_next(request)
        except ConnectionClosed as exc:
            caught_inside.append(exc)
            raise

    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        await report_progress(peer, await peer.receive(), 1)

    async def on_progress(report: object) -> None:
        raise problem

    async with connected(ScriptedPeer(script), middleware=[ours(look)]) as client:
        with pytest.raises(ConnectionClosed) as caught:
            await client.call_tool("x", on_progress=on_progress)

    assert caught.value is problem
    assert caught_inside == []


async def test_a_result_is_checked_with_the_schema_of_the_tool_that_was_called(era: Era) -> None:
    errors: list[str] = []

    async def rename(request: ClientRequest, call_next: CallNext) -> Wire:
        try:
            return await call_next(request.with_params(name="strict"))
        except InvalidToolOutput as exc:
            errors.append(str(exc))
            return {"content": [], "structuredContent": {"anything": "of the middleware"}}

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tool = {"name": "strict", "inputSchema": {"type": "object"}, "outputSchema": schema}
    peer = answering(era, {"tools": [tool], "ttlMs": 60_000}, {"content": [], "structuredContent": {"n": "one"}})
    async with connected(peer, middleware=[ours(rename)]) as client:
        await client.list_tools()
        result = await client.call_tool("soft")

    assert len(errors) == 1
    assert errors[0].startswith("the result of 'strict' is not as listed: ")
    assert result.structured_content == {"anything": "of the middleware"}


async def test_middleware_that_returns_no_result_or_passes_on_what_is_no_request_is_named(
    era: Era, subtests: pytest.Subtests
) -> None:
    async def forgetful(request: ClientRequest, call_next: CallNext) -> None:
        await call_next(request)

    no_result = "the middleware middleware has to be async and return the result as a dict: it returned NoneType"
    rows: list[tuple[Any, str, int]] = [
        (forgetful, no_result, 1),
        (lambda _, call: call(ServerRequest("roots/list")), "call_next takes the ClientRequest, not ServerRequest", 0),
        (lambda request, call: call(replace(request, method=5)), "the method of a request is text, not int", 0),
        (
            lambda request, call: call(replace(request, params=[1])),
            "the params of a request are a mapping, not list",
            0,
        ),
    ]
    for function, complaint, sent in rows:
        with subtests.test(complaint):
            peer = answering(era, EMPTY)
            async with connected(peer, middleware=[ours(function)]) as client:
                with pytest.raises(TypeError, match=f"^{complaint}$"):
                    await client.call_tool("x")

            assert len(era.said_to(peer)) == sent


def test_what_is_no_list_of_middleware_is_refused_and_forgotten_parentheses_are_named(
    subtests: pytest.Subtests,
) -> None:
    readies: list[Any] = [retry, tap, add_headers, add_meta, approve_tool_calls]
    for forgotten in readies:
        with subtests.test(forgotten.__name__):
            call_it = rf"If it makes middleware, call it: middleware=\[{forgotten.__name__}\("
            with pytest.raises(TypeError, match=rf"^middleware is called with two arguments, .* {call_it}"):
                Client(answering(HANDSHAKE), middleware=[forgotten])
    wrong: list[Any] = [lambda request, call_next: None, "text", [1]]
    for middleware in wrong:
        with subtests.test(ascii(middleware)), pytest.raises(TypeError, match="middleware"):
            Client(answering(HANDSHAKE), middleware=middleware)


# Over HTTP


async def test_mirrored_arguments_follow_a_change_by_middleware() -> None:
    async def elsewhere(request: ClientRequest, call_next: CallNext) -> Wire:
        return await call_next(request.with_params(arguments={"region": "north"}))

    site = Site(tools_list={"tools": [MIRRORED]}, tools_call=EMPTY)
    async with site.connected(middleware=[ours(elsewhere)]) as client:
        await client.list_tools()
        await client.call_tool("query", {"region": "south"})

    assert mirrored_headers(site.posts[2]) == {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "query",
        "mcp-param-region": "north",
    }


async def test_a_header_that_the_transport_writes_or_that_cannot_be_sent_is_refused(subtests: pytest.Subtests) -> None:
    messages = []
    site = Site(tools_call=EMPTY)
    for headers in ({"mcp-method": "x"}, {"X-User": "a\r\nb: c"}):
        with subtests.test(ascii(headers)):

            async def add(request: ClientRequest, call_next: CallNext, headers: dict[str, str] = headers) -> Wire:
                return await call_next(request.with_headers(headers))

            async with site.connected(middleware=[ours(add)]) as client:
                with pytest.raises(ValueError, match="header") as caught:
                    await client.call_tool("x")
            messages.append(str(caught.value))

    assert messages == [
        "the transport writes the header mcp-method itself",
        "the value of the header X-User is not printable ASCII without space around it",
    ]
    assert "tools/call" not in site.methods()


async def test_a_cached_result_passes_the_middleware_and_is_kept_for_the_same_headers_only() -> None:
    user = ContextVar("user", default="a")
    seen: list[str] = []

    async def as_user(request: AnyRequest, call_next: CallNext) -> Wire:
        assert isinstance(request, ClientRequest)
        seen.append(request.method)
        return await call_next(request.with_headers({"X-User": user.get()}))

    site = Site(tools_list={"tools": [], "ttlMs": 60_000})
    async with site.connected(middleware=[as_user]) as client:
        await client.list_tools()
        await client.list_tools()
        user.set("b")
        await client.list_tools()

    assert seen == ["server/discover", "tools/list", "tools/list", "tools/list"]
    assert [post.headers["x-user"] for post in site.posts] == ["a", "a", "b"]


# Around the server's requests


def asks(era: Era, method: str, params: Wire) -> tuple[ScriptedPeer, list[Wire]]:
    """A peer that asks for one input within a call. The list has what it got."""
    got: list[Wire] = []

    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        call = await peer.receive("tools/call")
        if era is HANDSHAKE:
            response = await peer.request(method, params)
            got.append(response.get("result") or response["error"])
        else:
            wanted = {"key": {"method": method, "params": params}}
            await peer.reply(call, {"resultType": "input_required", "inputRequests": wanted})
            call = await peer.receive("tools/call")
            got.append(call["params"]["inputResponses"]["key"])
        await peer.reply(call, EMPTY)

    return ScriptedPeer(script, name="the peer"), got


async def test_middleware_is_around_requests_of_the_server_and_may_change_what_the_handler_gets_and_gives(
    era: Era,
) -> None:
    seen: list[ServerRequest] = []
    asked: list[int] = []

    async def fewer(request: ServerRequest, call_next: CallNext) -> Wire:
        seen.append(request)
        return {**await call_next(request.with_params(maxTokens=3)), "model": "renamed"}

    async def model(request: Any) -> Any:
        asked.append(request.max_tokens)
        return request.reply("Paris", model="m")

    caller = object()
    peer, got = asks(era, "sampling/createMessage", QUESTION)
    async with connected(peer, middleware=[theirs(fewer)], sampling=sampling(with_tools=model)) as client:
        await client.call_tool("x", caller=caller)

    [request] = seen
    assert (asked, got) == ([3], [{**PARIS, "model": "renamed"}])
    assert (request.method, request.params, request.server) == ("sampling/createMessage", QUESTION, "the peer")
    assert (request.protocol_version, request.id) == (era.version, "peer-1" if era is HANDSHAKE else None)
    assert isinstance(request.outer, OuterCall)
    assert request.outer.caller is caller


async def test_middleware_may_answer_a_method_that_the_client_does_not_know(era: Era) -> None:
    async def answer(request: ServerRequest, call_next: CallNext) -> Wire:
        return {"roots": request.params["some"]} if request.method == "acme/roots" else await call_next(request)

    peer, got = asks(era, "acme/roots", {"some": [{"uri": "file:///a"}]})
    async with connected(peer, middleware=[theirs(answer)]) as client:
        await client.call_tool("x")

    assert got == [{"roots": [{"uri": "file:///a"}]}]


async def test_a_request_that_middleware_refuses_or_passes_on_for_nothing_is_refused(
    era: Era, subtests: pytest.Subtests
) -> None:
    async def look(request: ServerRequest, call_next: CallNext) -> Wire:
        return await call_next(request)

    async def refuse(request: ServerRequest, call_next: CallNext) -> Wire:
        raise InputRefused(-7, "not today", {"until": "tomorrow"})

    rows: list[tuple[Any, str, Wire]] = [
        (look, "acme/echo", {"code": -32601, "message": "this client does not offer acme/echo"}),
        (refuse, "roots/list", {"code": -7, "message": "not today", "data": {"until": "tomorrow"}}),
    ]
    for function, method, refusal in rows:
        with subtests.test(method):
            peer, got = asks(era, method, {})
            async with connected(peer, middleware=[theirs(function)], roots=[]) as client:
                with pytest.raises(InputNotGiven, match=refusal["message"]) if era is STATELESS else nullcontext():
                    await client.call_tool("x")

            assert got == ([refusal] if era is HANDSHAKE else [])


async def test_middleware_that_fails_on_a_request_of_the_server_is_logged_and_the_server_learns_only_that(
    era: Era, caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    failures = [LookupError("a secret"), SystemExit(1), ExceptionGroup("two", [ValueError("a secret")])]
    for failure in failures:
        with subtests.test(type(failure).__name__):

            async def fail(request: ServerRequest, call_next: CallNext, failure: BaseException = failure) -> Wire:
                raise failure

            peer, got = asks(era, "sampling/createMessage", QUESTION)
            with pytest.raises(InputNotGiven) if era is STATELESS else nullcontext():
                async with connected(peer, middleware=[theirs(fail)], sampling=sampling()) as client:
                    await client.call_tool("x")

            assert got == ([{"code": -32603, "message": "this client failed to answer"}] if era is HANDSHAKE else [])
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        "middleware for sampling/createMessage: this client failed to answer"
    ] * 3


async def test_the_limits_hold_before_any_middleware() -> None:
    seen: list[str] = []
    got: list[Wire] = []

    async def look(request: ServerRequest, call_next: CallNext) -> Wire:
        seen.append(request.method)
        return {}

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities=TOOLS)
        call = await peer.receive("tools/call")
        for _ in range(3):
            got.append(await peer.request("acme/flood"))
        await peer.reply(call, EMPTY)

    async with connected(ScriptedPeer(script), middleware=[theirs(look)], limits=Limits(max_inputs=2)) as client:
        await client.call_tool("x")

    assert len(seen) == 2
    assert ["result" in each for each in got] == [True, True, False]
    assert got[2]["error"] == {"code": -32013, "message": "this client's limit max_inputs is 2 for one call"}


@on_both
async def test_handlers_see_the_context_variables_that_middleware_sets(era: Era) -> None:
    """A span, say: what the handler does is a part of it."""
    span: ContextVar[str] = ContextVar("span", default="none")
    spans: list[str] = []

    async def trace(request: AnyRequest, call_next: CallNext) -> Wire:
        spans.append(f"{request.method} in {span.get()}")
        span.set(request.method)
        return await call_next(request)

    async def model(request: Any) -> Any:
        spans.append(f"model in {span.get()}")
        return request.reply("Paris", model="m")

    peer, _ = asks(era, "sampling/createMessage", QUESTION)
    async with connected(peer, middleware=[trace], sampling=sampling(with_tools=model)) as client:
        spans.clear()
        token = span.set("caller")
        await client.call_tool("x")
        span.reset(token)

    assert spans == ["tools/call in caller", "sampling/createMessage in tools/call", "model in sampling/createMessage"]


@on_both
async def test_a_call_that_is_cancelled_in_the_middleware_sends_nothing(era: Era) -> None:
    waiting = anyio.Event()

    async def think(request: ClientRequest, call_next: CallNext) -> Wire:
        waiting.set()
        await anyio.sleep_forever()
        raise AssertionError

    peer = answering(era)
    async with connected(peer, middleware=[ours(think)]) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "x")
        await waiting.wait()
        tasks.cancel_scope.cancel()

    assert era.said_to(peer) == []


async def test_errors_of_the_server_and_of_the_caller_pass_through(era: Era) -> None:
    seen: list[type[Exception]] = []

    async def look(request: AnyRequest, call_next: CallNext) -> Wire:
        try:
            return await call_next(request)
        except Exception as exc:
            seen.append(type(exc))
            raise

    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        await peer.reply_error(await peer.receive(), -5, "no")

    async with connected(ScriptedPeer(script), middleware=[look]) as client:
        seen.clear()
        with pytest.raises(ServerError):
            await client.call_tool("x")
        with pytest.raises(CallerError):
            await (client.ping() if era is STATELESS else client.list_prompts())

    assert seen[0] is ServerError
    assert len(seen) == 2
    assert issubclass(seen[1], CallerError)


# What middleware learns besides requests and results


def wrapping(around: AroundModel) -> Middleware:
    async def middleware(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        return await call_next(request.wrap_model(around) if isinstance(request, ServerRequest) else request)

    return middleware


async def test_functions_around_the_model_run_after_the_approval_the_first_outermost(era: Era) -> None:
    async def approve(request: SamplingRequest) -> Allow:
        seen.append("approved")
        return Allow()

    async def model(request: SamplingRequest) -> CreateMessageResult:
        seen.append("model")
        return request.reply("Paris")

    def named(name: str) -> AroundModel:
        async def around(request: SamplingRequest, call_model: CallModel) -> CreateMessageResult | str:
            seen.append(f"{name} {request.messages[-1].text}")
            answer = await call_model()
            seen.append(f"{name} done")
            return answer

        return around

    seen: list[str] = []
    sampling = Sampling(with_tools=model, approve=approve)
    middleware = [wrapping(named("one")), wrapping(named("two"))]
    async with connected(asking_server(), era=era.version, sampling=sampling, middleware=middleware) as client:
        assert (await client.call_tool("ask", {"words": "capital?"})).text == "Paris"

    assert seen == ["approved", "one capital?", "two capital?", "model", "two done", "one done"]


async def test_a_function_around_the_model_may_answer_in_its_place(era: Era) -> None:
    async def model(request: SamplingRequest) -> str:
        raise AssertionError("it is not called")

    async def remembered(request: SamplingRequest, call_model: CallModel) -> str:
        return "Rome"

    async with connected(
        asking_server(),
        era=era.version,
        sampling=Sampling(with_tools=model, approve=always),
        middleware=[wrapping(remembered)],
    ) as client:
        assert (await client.call_tool("ask")).text == "Rome"


async def test_the_ids_of_all_messages_that_were_sent_for_a_request_are_known() -> None:
    """Those of connecting, of repeated requests, and of the rounds of input."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities=TOOLS)
        await peer.reply_error(await peer.receive("tools/call"), -32000, "busy")
        inputs = {"one": {"method": "sampling/createMessage", "params": QUESTION}}
        await peer.reply(await peer.receive("tools/call"), {"resultType": "input_required", "inputRequests": inputs})
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    async def note(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        assert isinstance(request, ClientRequest | ServerRequest)
        if isinstance(request, ServerRequest):
            return await call_next(request)
        assert request.sent_ids == []
        try:
            return await call_next(request)
        except ServerError:
            return await call_next(request)
        finally:
            sent.append((request.method, request.sent_ids))

    sent: list[tuple[str, list[int | str]]] = []
    sampling = Sampling(with_tools=lambda request: "Paris", approve=always)
    async with connected(ScriptedPeer(script), sampling=sampling, middleware=[note]) as client:
        await client.call_tool("t")

    assert sent == [("server/discover", [1]), ("tools/call", [2, 3, 4])]


class Observer:
    """A middleware that keeps the sessions that have ended."""

    def __init__(self) -> None:
        self.ended: list[EndedSession] = []

    async def __call__(self, request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        return await call_next(request)

    def session_ended(self, session: EndedSession) -> None:
        self.ended.append(session)


class FailingObserver(Observer):
    def session_ended(self, session: EndedSession) -> None:
        raise RuntimeError("no metrics today")


@on_both
@pytest.mark.fake_clock
async def test_an_observer_learns_of_each_session_that_has_ended_and_why(
    era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        await anyio.sleep(5)
        await peer.aclose()

    peer, observer = ScriptedPeer(script), Observer()
    async with connected(peer, middleware=[FailingObserver(), observer], within=100) as client:
        await anyio.sleep(2)
        await client.aclose()
        await client.connect()
        with pytest.raises(ConnectionClosed):
            await client.call_tool("t")

    closed, lost = observer.ended
    assert [(each.server, each.transport, each.protocol_version) for each in observer.ended] == [
        ("the scripted peer", peer, era.version)
    ] * 2
    assert [closed.seconds, lost.seconds] == pytest.approx([2, 5])
    assert closed.error is None
    assert str(lost.error) == "the scripted peer has ended"
    assert caplog.text.count("session_ended of FailingObserver failed") == 2
