"""Revision 2026-07-28 over Streamable HTTP: real sockets, uvicorn, and a client that checks nothing."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from anyio import create_task_group, sleep_forever, to_thread
from pydantic import Field
from pydantic_core import from_json, to_json

from mcp_host.testing import Context, Server
from tests.testing.raw import INITIALIZE, Wire, answer, call, request, text, with_meta
from tests.testing.raw_http import Modern, Stream, modern, served

pytestmark = pytest.mark.backends("asyncio")  # that of the client: `test_http.py` starts and stops a server from both


SERVER_INFO = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1.0.0"}}
MINE = {"io.modelcontextprotocol/subscriptionId": 7}
HELLO = {"resultType": "complete", **text("hello"), "_meta": SERVER_INFO}


class Bench:
    """A server, with signals from its functions, which run in the thread of uvicorn."""

    def __init__(self, *versions: str) -> None:
        self.server = Server("s", versions=versions) if versions else Server("s")
        self.begun, self.ended = Signal(), Signal()
        self.server.tool(self.echo)
        self.server.tool(self.ask)
        self.server.tool(self.wait)
        self.server.tool(self.report)
        self.server.tool(self.route)

    def echo(self) -> str:
        return "hello"

    async def ask(self, ctx: Context, then_wait: bool = False) -> str:
        try:
            text = (await ctx.sample("Why?")).text
            if then_wait:
                self.begun.set()
                await sleep_forever()
            return text
        finally:
            self.ended.set()

    async def wait(self, ctx: Context) -> None:
        self.begun.set()
        try:
            await ctx.report_progress(1)
            await sleep_forever()
        finally:
            self.ended.set()

    async def report(self, ctx: Context, fail: bool = False) -> str:
        await ctx.report_progress(1)
        if fail:
            await ctx.sample("Why?")
        return "hello"

    def route(self, region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
        return region


class Signal:
    """An event that the thread of uvicorn sets and a test waits for."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.set = self._event.set

    async def wait(self) -> None:
        assert await to_thread.run_sync(self._event.wait, 10)


LISTEN: dict[str, Any] = {"notifications": {"toolsListChanged": True}}


@asynccontextmanager
async def listening(bench: Bench, *, json_response: bool = False) -> AsyncIterator[Stream]:
    """The stream of a subscription that has been acknowledged."""
    async with (
        modern(bench.server, json_response=json_response) as peer,
        peer.stream(with_meta(request(7, "subscriptions/listen", LISTEN))) as stream,
    ):
        acknowledged = await stream.message()
        assert acknowledged["params"] == LISTEN | {"_meta": MINE}
        yield stream


async def test_a_request_needs_no_session() -> None:
    async with modern(Bench().server) as peer, peer.stream(with_meta(call("a", "echo"))) as stream:
        messages = await stream.rest()
        headers = stream.headers

    assert messages == [{"jsonrpc": "2.0", "id": "a", "result": HELLO}]
    assert headers["content-type"] == "text/event-stream"
    assert headers["x-accel-buffering"] == "no"
    assert "mcp-session-id" not in headers
    assert stream.last_id == ""


async def test_with_a_json_response_progress_is_lost() -> None:
    async with modern(Bench().server, json_response=True) as peer:
        response = await peer.post(with_meta(call(1, "report"), progressToken="t"))

    assert (response.status, response.headers["content-type"]) == (200, "application/json")
    assert response.json() == {"jsonrpc": "2.0", "id": 1, "result": HELLO}


async def test_progress_is_sent_on_the_stream_of_its_request() -> None:
    async with modern(Bench().server) as peer:
        progress, result = await peer.ask(with_meta(call(1, "report"), progressToken="t"))

    assert progress["params"] == {"progressToken": "t", "progress": 1}
    assert result["result"] == HELLO


@pytest.mark.parametrize("json_response", [False, True])
async def test_a_function_is_resumed_by_another_post(json_response: bool) -> None:
    async with modern(Bench().server, json_response=json_response) as peer:
        asked = await reply(peer, with_meta(call(1, "ask")))
        answers = {"inputResponses": {"sampling-1": answer("So.")}, "requestState": asked["result"]["requestState"]}
        answered = await reply(peer, with_meta(call(1, "ask", **answers)))  # ids are the client's own business

    assert asked["result"]["inputRequests"].keys() == {"sampling-1"}
    assert answered["result"]["content"] == text("So.")["content"]


async def reply(peer: Modern, body: Wire) -> Wire:
    """The one message that answers *body*, in JSON or as an event."""
    response = await peer.post(body)
    message: Wire = from_json(response.body.removeprefix(b"data: "))
    return message


REFUSALS: list[tuple[Wire, dict[str, str], int, int | None]] = [
    (with_meta(call(1, "echo")), {"mcp-protocol-version": ""}, 400, -32020),
    (with_meta(call(1, "echo")), {"mcp-protocol-version": "2025-11-25"}, 400, -32020),
    (with_meta(call(1, "echo")), {"mcp-method": ""}, 400, -32020),
    (with_meta(call(1, "echo")), {"mcp-name": "other"}, 400, -32020),
    (with_meta(call(1, "echo")), {"mcp-name": "=?base64?ZWNobw==?="}, 200, None),
    (with_meta(call(1, "route", arguments={"region": "eu"})), {}, 400, -32020),
    (with_meta(call(1, "route", arguments={"region": "eu"})), {"mcp-param-region": "us"}, 400, -32020),
    (with_meta(call(1, "route", arguments={"region": "eu"})), {"mcp-param-region": "eu"}, 200, None),
    (with_meta(call(1, "echo")), {"mcp-session-id": "ignored", "last-event-id": "1/1"}, 200, None),
    (call(1, "echo"), {}, 400, -32602),
    (with_meta(request(1, "made/up")), {}, 404, -32601),
    (with_meta(request(1, "initialize")), {}, 404, -32601),
    (with_meta(request(1, "ping")), {}, 404, -32601),
    (with_meta(request(1, "prompts/list")), {}, 404, -32601),
    (with_meta(call(1, "ask"), {}), {}, 400, -32021),
    (with_meta(call(1, "none")), {}, 200, -32602),
]


@pytest.mark.parametrize("json_response", [False, True])
async def test_refusals_have_a_status(json_response: bool, subtests: pytest.Subtests) -> None:
    async with modern(Bench().server, json_response=json_response) as peer:
        for body, headers, status, code in REFUSALS:
            with subtests.test(f"{body} {headers}"):
                response = await peer.send("POST", to_json(body), **headers)

                answered = from_json(response.body.removeprefix(b"data: "))
                assert (response.status, answered["id"]) == (status, 1)
                assert answered.get("error", {}).get("code") == code


async def test_an_unsupported_revision_is_a_bad_request_that_names_the_supported_ones() -> None:
    body = with_meta(call(1, "echo"))
    body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2027-01-01"
    async with modern(Bench("2026-07-28").server) as peer:
        response = await peer.post(body, **{"mcp-protocol-version": "2027-01-01"})

    assert response.status == 400
    assert response.json()["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2027-01-01"}


async def test_after_another_message_an_error_is_an_event() -> None:
    async with modern(Bench().server) as peer:
        body = with_meta(call(1, "report", arguments={"fail": True}), {}, progressToken="t")
        messages = await peer.ask(body)

    assert [message.get("error", {}).get("code") for message in messages] == [None, -32021]


async def test_a_stateless_server_has_no_sessions_no_get_and_no_delete() -> None:
    async with served(Bench("2026-07-28").server) as peer:
        gone = [await peer.send(method) for method in ("GET", "DELETE")]
        refused = await peer.post(request(1, "initialize", INITIALIZE))
        unsigned = await peer.post(call(2, "echo"))

    assert [(response.status, response.headers["allow"]) for response in gone] == [(405, "POST")] * 2
    assert (refused.status, refused.json()["error"]) == (
        400,
        {
            "code": -32022,
            "message": "Unsupported protocol version: this server supports 2026-07-28",
            "data": {"supported": ["2026-07-28"], "requested": "2025-11-25"},
        },
    )
    assert (unsigned.status, unsigned.json()["error"]) == (
        400,
        {"code": -32020, "message": "Header mismatch: MCP-Protocol-Version is missing"},
    )


async def test_a_legacy_server_requires_a_session() -> None:
    async with modern(Bench("2025-11-25").server) as peer:
        response = await peer.post(with_meta(request(1, "server/discover")))

    assert (response.status, response.json()["error"]["message"]) == (400, "the header Mcp-Session-Id is missing")


async def test_clients_of_both_eras_share_an_endpoint() -> None:
    async with served(Bench().server) as anonymous:
        old = await anonymous.initialize()
        [first] = await old.ask(call(1, "echo"))
        [second] = await Modern(anonymous.url).ask(with_meta(call(1, "echo")))
        [third] = await Modern(anonymous.url, old.headers).ask(with_meta(call(1, "echo")))

    assert "resultType" not in first["result"]
    assert second["result"] == third["result"] == HELLO


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}, 202),
        ({"jsonrpc": "2.0", "id": 1, "result": {}}, 400),
        ([with_meta(call(1, "echo"))], 400),
        ([], 400),
    ],
    ids=["notification", "response", "batch", "nothing"],
)
async def test_a_body_is_one_request_or_notification(body: object, status: int) -> None:
    async with modern(Bench().server) as peer:
        response = await peer.send("POST", to_json(body), **{"mcp-protocol-version": "2026-07-28"})

    assert response.status == status


async def test_disconnecting_cancels_a_stateless_request() -> None:
    bench = Bench()
    async with modern(bench.server) as peer, create_task_group() as tasks:
        tasks.start_soon(peer.post, with_meta(call(1, "wait")))
        await bench.begun.wait()
        tasks.cancel_scope.cancel()
    await bench.ended.wait()


@pytest.mark.parametrize("json_response", [False, True])
async def test_disconnecting_cancels_a_resumed_function(json_response: bool) -> None:
    bench = Bench()
    async with modern(bench.server, json_response=json_response) as peer:
        arguments = {"arguments": {"then_wait": True}}
        asked = await reply(peer, with_meta(call(1, "ask", **arguments)))
        answers = {"inputResponses": {"sampling-1": answer("So.")}, "requestState": asked["result"]["requestState"]}
        async with create_task_group() as tasks:
            tasks.start_soon(peer.post, with_meta(call(2, "ask", **arguments, **answers)))
            await bench.begun.wait()
            tasks.cancel_scope.cancel()
        await bench.ended.wait()


async def test_a_cut_response_has_no_answer_and_its_function_is_cancelled() -> None:
    bench = Bench()
    heard: list[list[Wire]] = []

    async def post(peer: Modern) -> None:
        heard.append(await peer.ask(with_meta(call(1, "wait"))))

    async with modern(bench.server) as peer:
        async with create_task_group() as tasks:
            tasks.start_soon(post, peer)
            await bench.begun.wait()
            await bench.server.drop_streams(retry=1)
        await bench.ended.wait()

    assert heard == [[]]


@pytest.mark.parametrize("cut", [Server.drop_streams, Server.expire_sessions], ids=["dropped", "expired"])
async def test_a_cut_response_keeps_earlier_messages(cut: Callable[[Server], Awaitable[None]]) -> None:
    bench = Bench()
    async with modern(bench.server) as peer, peer.stream(with_meta(call(1, "wait"), progressToken="t")) as stream:
        progress = await stream.message()
        await cut(bench.server)

        assert await stream.rest() == []
        await bench.ended.wait()

    assert progress["method"] == "notifications/progress"


async def test_suspended_functions_are_cancelled_when_the_server_ends() -> None:
    bench = Bench()
    async with modern(bench.server) as peer:
        await reply(peer, with_meta(call(1, "ask")))
    await bench.ended.wait()


async def test_suspended_functions_are_cancelled_when_sessions_expire() -> None:
    bench = Bench()
    async with modern(bench.server) as peer:
        asked = await reply(peer, with_meta(call(1, "ask")))
        await bench.server.expire_sessions()
        await bench.ended.wait()
        again = await reply(peer, with_meta(call(2, "ask", requestState=asked["result"]["requestState"])))

    assert again["error"] == {"code": -32602, "message": "requestState is unknown, or has been used already"}


@pytest.mark.parametrize("json_response", [False, True])
async def test_a_subscription_is_a_stream_until_the_server_ends_it(json_response: bool) -> None:
    bench = Bench()
    async with listening(bench, json_response=json_response) as stream:
        await bench.server.notify_tools_changed()
        await bench.server.notify_prompts_changed()
        heard = [await stream.message()]
        await bench.server.end_subscriptions()
        heard += await stream.rest()

    assert heard == [
        {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {"_meta": MINE}},
        {"jsonrpc": "2.0", "id": 7, "result": {"resultType": "complete", "_meta": SERVER_INFO | MINE}},
    ]


async def test_subscriptions_end_with_their_results_when_sessions_expire_and_without_if_they_are_cut() -> None:
    for end, results in ((Server.expire_sessions, ["complete"]), (Server.drop_streams, [])):
        bench = Bench()
        async with listening(bench) as stream:
            await end(bench.server)
            ended = await stream.rest()

        assert [message["result"]["resultType"] for message in ended] == results


async def test_disconnecting_ends_a_subscription() -> None:
    bench = Bench()
    async with modern(bench.server) as peer:
        async with peer.stream(with_meta(request(7, "subscriptions/listen", LISTEN))) as stream:
            await stream.message()
        await bench.server.notify_tools_changed()
        [fresh] = await peer.ask(with_meta(call(1, "echo")))

    assert fresh["result"] == HELLO
