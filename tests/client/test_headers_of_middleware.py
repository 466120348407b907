"""With which HTTP headers of middleware everything goes that is no request of ours, where a session exists."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest

from mcp_host import Client, SamplingRequest, StreamableHttp
from mcp_host.errors import Unauthorized
from mcp_host.middleware import AnyRequest, CallNext, ClientRequest, Middleware, add_headers
from mcp_host.types import CreateMessageResult
from tests.client import sites
from tests.client.sites import streamed
from tests.client.support import EMPTY, INITIALIZED, QUESTION, connected, sampling
from tests.client.test_session_lost import URL, Forgetful
from tests.extent import on_both

Wire = dict[str, Any]


class Site(Forgetful):
    """*call* answers tool calls, and *rest* goes on with a response. `seen` has the user of everything that arrives."""

    def __init__(
        self, call: Callable[[Wire], httpx.Response] | None = None, rest: httpx.Response | None = None
    ) -> None:
        super().__init__()
        self.seen: list[tuple[str, str | None]] = []
        self.answered = anyio.Event()
        self.instead = {"response": self._take} | ({} if call is None else {"tools/call": call})
        self._rest = rest

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        message: Wire = json.loads(request.content) if request.content else {}
        what = message.get("method") or ("answer" if "id" in message else request.method)
        resumes = "last-event-id" in request.headers
        self.seen.append(("the rest" if resumes else what, request.headers.get("x-user")))
        return self._rest if resumes and self._rest is not None else await super().__call__(request)

    def _take(self, answer: Wire) -> httpx.Response:
        self.answered.set()
        return httpx.Response(202)

    @asynccontextmanager
    async def connected(self, *middleware: Middleware, **options: Any) -> AsyncIterator[Client]:
        http = httpx.AsyncClient(transport=httpx.MockTransport(self))
        transport = StreamableHttp(URL, client=http, headers={"X-User": "nobody"})
        async with connected(transport, era="legacy", middleware=middleware, **options) as client:
            yield client


def user(request: ClientRequest) -> dict[str, str]:
    return {"X-User": str(request.caller or "the host")}


async def test_what_belongs_to_a_call_has_its_headers_and_everything_else_those_of_the_host() -> None:
    """The answer and the progress of a handler that the call of a user needs are that user's."""

    def ask(message: Wire) -> httpx.Response:
        params = {**QUESTION, "_meta": {"progressToken": 7}}
        question = {"id": "q", "method": "sampling/createMessage", "params": params}
        return streamed(question, site.answered, {"id": message["id"], "result": EMPTY})

    async def model(request: SamplingRequest) -> CreateMessageResult:
        await request.report_progress(1)
        return request.reply("Paris", model="m")

    site = Site(ask)
    async with site.connected(add_headers(user), sampling=sampling(with_tools=model)) as client:
        await client.call_tool("x", caller="ada")

    assert sorted(site.seen) == sorted(
        [
            ("initialize", "the host"),
            ("notifications/initialized", "the host"),
            ("GET", "the host"),
            ("tools/call", "ada"),
            ("notifications/progress", "ada"),
            ("answer", "ada"),
            ("DELETE", "the host"),
        ]
    )


@on_both
async def test_a_cancellation_and_a_refusal_have_the_headers_of_the_call() -> None:
    def ask(message: Wire) -> httpx.Response:
        return streamed({"id": "q", "method": "acme/unknown"}, anyio.Event())

    site = Site(ask)
    async with site.connected(add_headers(user)) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: client.call_tool("x", caller="ada"))
        await site.answered.wait()
        tasks.cancel_scope.cancel()

    assert [each for each in site.seen if each[0] in ("answer", "notifications/cancelled")] == [
        ("answer", "ada"),
        ("notifications/cancelled", "ada"),
    ]


@pytest.mark.fake_clock
async def test_the_rest_of_a_response_is_fetched_with_the_headers_of_its_call() -> None:
    site = Site(lambda message: streamed(b"id: e1\nretry: 1\ndata:\n\n"), streamed({"id": 2, "result": EMPTY}))
    async with site.connected(add_headers(user)) as client:
        await client.call_tool("x", caller="ada")

    assert [each for each in site.seen if each[0] == "the rest"] == [("the rest", "ada")]


async def test_the_session_has_the_newest_headers_of_requests_that_are_for_no_caller() -> None:
    """A token is renewed from time to time, and a user's must not be used for the session."""
    count = 0

    def token(request: ClientRequest) -> dict[str, str]:
        nonlocal count
        count += 1
        return {"X-User": f"{request.caller or 'host'}-{count}"}

    site = Site()
    async with site.connected(add_headers(token)) as client:
        await client.call_tool("x")
        await client.call_tool("x", caller="ada")

    assert [each for each in site.seen if each[0] in ("initialize", "tools/call", "DELETE")] == [
        ("initialize", "host-1"),
        ("tools/call", "host-2"),
        ("tools/call", "ada-3"),
        ("DELETE", "host-2"),
    ]


async def test_a_new_session_and_what_it_restores_pass_the_middleware() -> None:
    methods: list[str] = []

    async def note(request: AnyRequest, call_next: CallNext) -> Wire:
        methods.append(request.method)
        return await call_next(request)

    site = Site()
    async with site.connected(note, add_headers(user)) as client:
        await client.set_log_level("error")
        site.known.clear()
        await client.call_tool("x", caller="ada")

    assert methods == ["initialize", "logging/setLevel", "tools/call", "initialize", "logging/setLevel"]
    assert [each for each in site.seen if each[0] != "GET"] == [
        ("initialize", "the host"),
        ("notifications/initialized", "the host"),
        ("logging/setLevel", "the host"),
        ("tools/call", "ada"),
        ("initialize", "the host"),
        ("notifications/initialized", "the host"),
        ("logging/setLevel", "the host"),
        ("tools/call", "ada"),
        ("DELETE", "the host"),
    ]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_middleware_may_renew_a_token_that_is_rejected_while_connecting_and_later(era: str) -> None:
    valid, issued = 1, 0

    async def login(request: AnyRequest, call_next: CallNext) -> Wire:
        nonlocal issued
        assert isinstance(request, ClientRequest)
        try:
            return await call_next(request.with_headers({"X-Token": str(issued)}))
        except Unauthorized:
            issued = valid
            return await call_next(request.with_headers({"X-Token": str(issued)}))

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST" and request.headers["x-token"] != str(valid):
            refused.append(json.loads(request.content)["method"])
            return httpx.Response(401)
        return site(request)

    accepted = httpx.Response(202)
    site = sites.Site(initialize=INITIALIZED, notifications_initialized=accepted, tools_call=EMPTY)
    refused: list[str] = []
    http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    async with connected(StreamableHttp(URL, client=http), era=era, middleware=[login]) as client:
        valid = 2
        await client.call_tool("x")

    assert refused == ["initialize" if era == "legacy" else "server/discover", "tools/call"]
