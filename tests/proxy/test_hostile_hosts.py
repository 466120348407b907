"""Hosts that do not keep to the protocol, at a proxy: message by message, over a pipe and over HTTP."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
from anyio import connect_tcp, fail_after
from pydantic_core import from_json, to_json

from mcp_host.proxy import Proxy
from tests.extent import on_both
from tests.proxy.servers import ERAS, Planner, relay_of
from tests.testing.raw import EVERYTHING, INITIALIZE, INITIALIZED, Raw, call, connect, meta, request
from tests.testing.raw_http import ACCEPT, repeated

pytestmark = on_both

HEADERS = {"accept": ACCEPT, "content-type": "application/json"}

RESULT, NOTHING = 0, None
Answered = int | None
"""The code of the error, or one of these."""

M = "io.modelcontextprotocol/"


def message(**members: Any) -> bytes:
    return to_json({"jsonrpc": "2.0", **members})


def asked(id: str, method: str = "ping") -> bytes:
    """A request whose id is this JSON."""
    return f'{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}'.encode()


IN_A_SESSION: list[tuple[str, bytes, Answered]] = [
    ("no JSON", b"{", -32700),
    ("nothing", b"{}", -32700),
    ("a number", b"1", -32700),
    ("no UTF-8", b'{"jsonrpc":"2.0","id":"\xff","method":"ping"}', -32600),
    ("half of a character", rb'{"jsonrpc":"2.0","id":"\ud800","method":"ping"}', RESULT),
    ("1,000 levels", b'{"a":' * 1000 + b"1" + b"}" * 1000, -32700),
    ("a number of 5,000 digits", asked("9" * 5000), -32700),
    ("no id", asked("null"), -32700),
    ("an id that is true", asked("true"), -32700),
    ("half an id", asked("1.5"), -32700),
    ("a large id", asked("9" * 4000), RESULT),
    ("a larger id", asked("1e308"), RESULT),
    ("an id of 1 MiB", asked('"' + "a" * 2**20 + '"'), RESULT),
    ("params of another type", message(id=7, method="ping", params=1), -32600),
    ("no name", to_json(call(7, None)), -32602),  # type: ignore[arg-type]
    ("_meta of another type", to_json(call(7, "picture", _meta=5)), -32602),
    ("a token of another type", to_json(call(7, "picture", _meta={"progressToken": [1]}, arguments={})), RESULT),
    ("a level that is none", to_json(call(7, "picture", _meta={f"{M}logLevel": [1]}, arguments={})), RESULT),
    ("a level to set that is none", message(id=7, method="logging/setLevel", params={"level": {}}), -32602),
    ("a URI that is none", message(id=7, method="resources/subscribe", params={"uri": 5}), -32602),
    ("infinity", b'{"jsonrpc":"2.0","id":7,"method":"x/echo","params":{"unknown":1e400}}', -32603),
    ("a method without a name", message(id=7, method=""), -32601),
    ("a second handshake", to_json(request(7, "initialize", INITIALIZE)), -32600),
    ("a handshake without params", to_json(request(7, "initialize")), -32602),
    ("a notification as a request", message(id=7, method="notifications/cancelled", params={"requestId": 7}), -32601),
    ("a request as a notification", message(method="tools/call", params={"name": "wait"}), NOTHING),
    ("a cancellation of an array", message(method="notifications/cancelled", params={"requestId": [1]}), NOTHING),
    ("a cancellation of no request", message(method="notifications/cancelled", params={"requestId": 99}), NOTHING),
    ("progress without a token", message(method="notifications/progress", params={}), NOTHING),
    ("an answer to no request", message(id=1, result={}), NOTHING),
    ("an answer of another type", message(id="a", result=5), NOTHING),
    ("an error without an id", message(id=None, error={"code": 1, "message": "x"}), NOTHING),
]  # fmt: skip

STATELESS: list[tuple[str, dict[str, Any], Answered]] = [
    ("no capabilities", {"_meta": {f"{M}protocolVersion": "2026-07-28"}}, -32602),
    ("capabilities of another type", {"_meta": meta() | {f"{M}clientCapabilities": 5}}, -32602),
    ("a client without a name", {"_meta": meta() | {f"{M}clientInfo": {}}}, -32602),
    ("a revision that is none", {"_meta": meta() | {f"{M}protocolVersion": 5}}, -32602),
    ("a revision to come", {"_meta": meta(version="2027-01-01")}, -32022),
    ("a level that is none", {"_meta": meta() | {f"{M}logLevel": "loud"}}, -32602),
    ("a token that is none", {"_meta": meta() | {"progressToken": {}}}, -32602),
    ("a state that was never given", {"requestState": "guess"}, -32602),
    ("a state of another type", {"requestState": ["guess"]}, -32602),
    ("answers of another type", {"inputResponses": [1]}, -32602),
    ("an answer of another type", {"inputResponses": {"a": 1}}, -32602),
    ("answers to nothing", {"inputResponses": {"a": {}}}, RESULT),
    ("arguments of another type", {"arguments": 5}, -32602),
]  # fmt: skip


def answer_to(name: str, given: object) -> Answered:
    assert isinstance(given, dict), name
    code: int = given["error"]["code"] if "error" in given else RESULT
    return code


async def answers_of(host: Raw, sent: bytes) -> list[Any]:
    """What is answered to *sent*, before the answer to a request that comes after it."""
    await host.send_raw(sent)
    await host.send(request("last", "ping"))
    answers: list[Any] = []
    while (answer := await host.receive()).get("id") != "last":
        answers.append(answer)
    return answers


async def test_over_a_pipe_what_is_wrong_is_answered_and_the_next_request_is_served(
    subtests: pytest.Subtests, caplog: pytest.LogCaptureFixture
) -> None:
    proxy = Proxy(Planner(ERAS["legacy"]))
    with fail_after(25):
        for name, sent, answered in IN_A_SESSION:
            with subtests.test(name):
                async with connect(proxy, lenient=True) as host:
                    await host.initialize(capabilities=EVERYTHING)
                    answers = await answers_of(host, sent)
                    while answered is not NOTHING and not answers:  # the server had to be asked
                        answers.append(await host.receive())
                    assert [answer_to(name, each) for each in answers] == ([] if answered is NOTHING else [answered])
                    assert text_of_call(await host.call("picture"))
        await proxy.aclose()
    assert relay_of(proxy).begun == set()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def text_of_call(result: dict[str, Any]) -> bool:
    return not result.get("isError")


@asynccontextmanager
async def hosts(proxy: Proxy) -> AsyncIterator[httpx.AsyncClient]:
    app = proxy.asgi()
    with fail_after(25):
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost", headers=HEADERS
        ) as http:
            yield http
            await app.aclose()


async def begin(http: httpx.AsyncClient) -> dict[str, str]:
    """A session, as the header that names it."""
    begun = await http.post("/mcp", content=to_json(request(0, "initialize", INITIALIZE)))
    session = {"mcp-session-id": begun.headers["mcp-session-id"]}
    await http.post("/mcp", content=to_json(INITIALIZED), headers=session)
    return session


def of_response(response: httpx.Response) -> list[Any]:
    """The messages of a response, as JSON or as events."""
    if response.headers.get("content-type") == "application/json":
        return [response.json()]
    return [from_json(line.removeprefix("data: ")) for line in response.text.splitlines() if line.startswith("data: {")]


async def test_over_http_what_is_wrong_is_answered_and_the_next_request_is_served(
    subtests: pytest.Subtests, caplog: pytest.LogCaptureFixture
) -> None:
    async with hosts(Proxy(Planner(ERAS["legacy"]))) as http:
        session = await begin(http)
        for name, sent, answered in IN_A_SESSION:
            with subtests.test(name):
                answers = of_response(await http.post("/mcp", content=sent, headers=session))
                codes = [answer_to(name, each) for each in answers if "method" not in each]
                assert codes == ([] if answered is NOTHING else [answered])
        for name, changed, answered in STATELESS:
            with subtests.test(name):
                body = call(7, "picture", **{"arguments": {}, "_meta": meta(), **changed})
                headers = {
                    **repeated(body),
                    "mcp-protocol-version": str(body["params"]["_meta"][f"{M}protocolVersion"]),
                }
                [answer] = of_response(await http.post("/mcp", content=to_json(body), headers=headers))
                assert answer_to(name, answer) == answered
        [served] = of_response(
            await http.post("/mcp", content=to_json(call(8, "picture", arguments={})), headers=session)
        )
        assert "result" in served
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


GUESSES = ["", "0", "x" * 100_000, "None", "../x", "%00"]


async def test_a_session_is_of_those_who_know_its_id(subtests: pytest.Subtests) -> None:
    async with hosts(Proxy(Planner(ERAS["legacy"]))) as http:
        mine, other = await begin(http), await begin(http)
        for guess in [*GUESSES, mine["mcp-session-id"].lower(), mine["mcp-session-id"][:-1]]:
            for method in ("GET", "POST", "DELETE"):
                with subtests.test(f"{method} {guess[:40]}"):
                    body = to_json(request(1, "tools/list")) if method == "POST" else None
                    refused = await http.request(method, "/mcp", content=body, headers={"mcp-session-id": guess})
                    assert refused.status_code == 404
        made = await http.post("/mcp", content=to_json(request(1, "tools/list")), headers=mine)
        [event, *_] = [line for line in made.text.splitlines() if line.startswith("id: ")]
        foreign = await http.get("/mcp", headers={**other, "last-event-id": event.removeprefix("id: ")})
        assert foreign.status_code == 400
        for header in ({"mcp-protocol-version": "2024-11-05"}, {"mcp-protocol-version": "x"}):
            assert (await http.post("/mcp", content=asked("1"), headers=mine | header)).status_code == 400
        assert (await http.delete("/mcp", headers=mine)).status_code == 204
        assert (await http.delete("/mcp", headers=mine)).status_code == 404
        assert (await http.post("/mcp", content=asked("1"), headers=other)).status_code == 200


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "PATCH", "TRACE"])
async def test_other_methods_are_refused(method: str) -> None:
    async with hosts(Proxy(Planner(ERAS["legacy"]))) as http:
        refused = await http.request(method, "/mcp")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, POST, DELETE")


BEGIN = to_json(request(1, "initialize", INITIALIZE))
HOST = b"Host: localhost"
CHUNKED = b"Transfer-Encoding: chunked"


def posted(
    *more: bytes, line: bytes = b"POST /mcp HTTP/1.1", host: bytes = HOST, body: bytes = BEGIN, length: bytes = b""
) -> bytes:
    """A request as bytes; *length* is the header that bounds the body."""
    kinds = b"Content-Type: application/json", b"Accept: application/json, text/event-stream"
    bound = length or b"Content-Length: %d" % len(body)
    return b"\r\n".join([line, *([host] if host else []), *kinds, *more, bound, b"", body])


SENT: list[tuple[str, bytes, int]] = [
    ("nothing wrong", posted(), 200),
    ("in chunks", posted(length=CHUNKED, body=b"%x\r\n%s\r\n0\r\n\r\n" % (len(BEGIN), BEGIN)), 200),
    ("in what is no chunk", posted(length=CHUNKED, body=b"zz\r\n"), 400),
    ("waiting to be asked for the body", posted(b"Expect: 100-continue"), 100),
    ("two requests at once", posted() * 2, 200),
    ("no HTTP", b"\x16\x03\x01\x02\0" + b"\0" * 600, 400),
    ("empty lines", b"\r\n" * 1000, 400),
    ("no Host", posted(host=b""), 400),
    ("no Host in HTTP/1.0", posted(line=b"POST /mcp HTTP/1.0", host=b""), 421),
    ("two Hosts", posted(b"Host: evil.example"), 400),
    ("another Host", posted(host=b"Host: evil.example"), 421),
    ("another Host in the target", posted(line=b"POST http://evil.example/mcp HTTP/1.1"), 404),
    ("an Origin", posted(b"Origin: http://evil.example"), 403),
    ("two Origins", posted(b"Origin: http://localhost", b"Origin: http://evil.example"), 403),
    ("two lengths", posted(b"Content-Length: 5"), 400),
    ("a negative length", posted(length=b"Content-Length: -5"), 400),
    ("a header with a NUL", posted(b"X: a\0b"), 400),
    ("a long path", posted(line=b"POST /mcp/" + b"x" * 10_000 + b" HTTP/1.1"), 404),
    ("a path upwards", posted(line=b"POST /x/../mcp HTTP/1.1"), 404),
    ("a preflight", b"OPTIONS /mcp HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n", 403),
    ("a tunnel", b"CONNECT localhost:22 HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
    ("HEAD", b"HEAD /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
    ("a WebSocket", b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", 406),
]  # fmt: skip


async def test_what_comes_over_a_socket_is_served_or_refused(subtests: pytest.Subtests) -> None:
    """The next is served by the same proxy; those that say half of a request stay meanwhile."""
    with fail_after(25):
        async with Proxy(Planner(ERAS["legacy"])).http() as url, AsyncExitStack() as opened:
            port = httpx.URL(url).port or 0
            for half in (b"POST", posted(length=b"Content-Length: 1000000000"), posted(length=CHUNKED, body=b"5")):
                stream = await opened.enter_async_context(await connect_tcp("127.0.0.1", port))
                await stream.send(half)
            for name, sent, status in SENT:
                with subtests.test(name):
                    async with await connect_tcp("127.0.0.1", port) as stream:
                        await stream.send(sent)
                        answer = await stream.receive()
                    assert int(answer.split(b" ", 2)[1]) == status
