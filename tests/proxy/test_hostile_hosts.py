"""Hosts that do not keep to the protocol, at a proxy: message by message, over a pipe and over HTTP.

Each is answered with an error or not at all; another host is served, no error is logged, and nothing is left. What is the
same at every server is tested where the code is that the proxy serves with:

    what a host does                                  where
    ids in use, true as an id, unknown cursors        tests/testing/test_session.py
    a batch, sessions without number or left          tests/testing/test_http.py
    cancellations of requests, answers that are late  tests/testing/test_session.py, test_context.py
    too many requests under way, too many resources   tests/testing/test_session.py
    a state altered, foreign, used or expired         tests/testing/test_request_state.py, test_suspended.py
    answers of the wrong shape in a retry             tests/testing/test_suspended.py
    calls that are never retried, without number      tests/testing/test_suspended.py
    listening twice, with a malformed filter          tests/testing/test_subscriptions.py, test_http.py
    never reading                                     tests/testing/test_stdio.py, test_event_streams.py
    a line or body too long, a body that never comes  tests/testing/test_stdio.py, test_asgi.py
    leaving in a call, in a session, while listening  tests/testing/test_http.py, test_http_stateless.py
    headers that contradict the body                  tests/testing/test_header_rules.py
    Host, Origin, Authorization, media types          tests/testing/test_http_rules.py
    leaving while asked; notifications without number tests/proxy/test_relay.py
    capabilities without number                       tests/proxy/test_relay.py
    calls without an id, past a policy                tests/proxy/test_tools.py
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import httpx
import pytest
from anyio import EndOfStream, Event, connect_tcp, create_task_group, fail_after, wait_all_tasks_blocked
from pydantic_core import from_json, to_json

from mcp_host import Client, StreamableHttp
from mcp_host.proxy import Proxy, ask_host
from mcp_host.proxy.relay import Relay
from mcp_host.sampling import SamplingRequest
from mcp_host.types import ImageContent
from tests.extent import on_both
from tests.proxy.servers import ERAS, Planner, model_of, relay_of, text_of, through, user
from tests.testing.raw import (
    INITIALIZE,
    INITIALIZED,
    Raw,
    call,
    connect,
    legacy,
    meta,
    modern,
    request,
    retry,
    with_meta,
)
from tests.testing.raw_http import ACCEPT, repeated

HEADERS = {"accept": ACCEPT, "content-type": "application/json"}

RESULT, NOTHING = 0, None
Answered = int | None
"""The code of the error, or one of these."""

M = "io.modelcontextprotocol/"


@pytest.fixture(autouse=True)
def no_error_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR] == []


async def is_served(honest: Client) -> bool:
    """Whether the call of a host that keeps to the protocol is answered."""
    return isinstance((await honest.call_tool("picture")).content[0], ImageContent)


def nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


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
    ("1,000 levels", nested(1000), -32700),
    ("600 levels", b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"picture","arguments":%s}}' % nested(600), -32603),
    ("a token of 600 levels", b'{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"progressToken":%s}}}' % nested(600), RESULT),
    ("a token beyond a float", b'{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"progressToken":1e999}}}', RESULT),
    ("a number of 5,000 digits", asked("9" * 5000), -32700),
    ("no id", asked("null"), -32700),
    ("an id that is true", asked("true"), -32700),
    ("half an id", asked("1.5"), -32700),
    ("a large id", asked("9" * 4000), RESULT),
    ("a larger id", asked("1e308"), RESULT),
    ("an id of 1 MiB", asked('"' + "a" * 2**20 + '"'), RESULT),
    ("params of another type", message(id=7, method="ping", params=1), -32600),
    ("no name", to_json(call(7, None)), -32602),  # type: ignore[arg-type]
    *((f"_meta that is {each!r}", to_json(call(7, "picture", _meta=each)), -32602) for each in (5, "x", None, [1], True)),
    ("arguments of another type", to_json(call(7, "picture", arguments=[1])), -32602),
    ("a task of another type", to_json(call(7, "picture", task=5)), -32602),
    ("a name with a line break in it", to_json(call(7, "x\ny\0")), -32602),
    ("a method with a line break in it", message(id=7, method="x\ny"), -32601),
    ("a cursor of another type", message(id=7, method="tools/list", params={"cursor": [1]}), -32602),
    ("a reference of another type", message(id=7, method="completion/complete", params={"ref": {"type": [1]}}), -32602),
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


@on_both
async def test_over_a_pipe_what_is_wrong_is_answered_and_the_next_request_is_served(subtests: pytest.Subtests) -> None:
    proxy = Proxy(Planner(ERAS["legacy"]))
    async with through(proxy) as honest:
        for name, sent, answered in IN_A_SESSION:
            with subtests.test(name):
                async with legacy(proxy, lenient=True) as host:
                    answers = await answers_of(host, sent)
                    while answered is not NOTHING and not answers:  # the server had to be asked
                        answers.append(await host.receive())
                    assert [answer_to(name, each) for each in answers] == ([] if answered is NOTHING else [answered])
                    assert "isError" not in await host.call("picture")
                assert await is_served(honest)
    await nothing_is_left(proxy)


async def nothing_is_left(proxy: Proxy) -> None:
    """The sessions end, that of a server over HTTP with a request to it."""
    begun, all_have_ended = relay_of(proxy).begun, Event()

    def has_ended(relay: Relay) -> None:
        begun.discard(relay)
        if not begun:
            all_have_ended.set()

    for relay in begun:
        relay.ended = has_ended
    if begun:
        with fail_after(25):
            await all_have_ended.wait()


BATCH = to_json([INITIALIZED] * 5001)

BEFORE_A_SESSION: list[tuple[str, bytes, list[int]]] = [
    ("a call", to_json(call(1, "picture")), [-32600]),
    ("a subscription", to_json(request(1, "resources/subscribe", {"uri": "mem://menu"})), [-32600]),
    ("a level", to_json(request(1, "logging/setLevel", {"level": "error"})), [-32600]),
    ("that it has begun", to_json(INITIALIZED), []),
    ("a notification", message(method="x/changed", params={}), []),
    ("a cancellation", message(method="notifications/cancelled", params={"requestId": 1}), []),
    ("an answer", message(id=1, result={}), []),
    ("a revision of another type", to_json(request(1, "initialize", INITIALIZE | {"protocolVersion": 5})), [-32602]),
    ("a revision that is none", to_json(request(1, "initialize", INITIALIZE | {"protocolVersion": ""})), [0]),
    ("a stateless revision", to_json(request(1, "initialize", INITIALIZE | {"protocolVersion": "2026-07-28"})), [0]),
    ("no name", to_json(request(1, "initialize", INITIALIZE | {"clientInfo": {}})), [-32602]),
    ("a client of 600 levels", to_json(request(1, "initialize", INITIALIZE)).replace(b'"raw"', b'"raw","a":' + nested(600)), [-32603]),
    ("two handshakes at once", to_json([request(1, "initialize", INITIALIZE), request(2, "initialize", INITIALIZE)]), [-32600, 0]),
    ("an empty batch", b"[]", [-32700]),
    ("a batch in a batch", b"[[]]", [-32700]),
    ("a batch of 5,001", BATCH, [-32700]),
]  # fmt: skip


async def test_what_comes_before_a_session_begins_is_answered(subtests: pytest.Subtests) -> None:
    proxy = Proxy(Planner(ERAS["legacy"]))
    async with through(proxy) as honest:
        for name, sent, codes in BEFORE_A_SESSION:
            with subtests.test(name):
                async with connect(proxy, lenient=True) as host:
                    answers = await answers_of(host, sent)
                    while len(answers) < len(codes):
                        answers.append(await host.receive())
                    assert [answer_to(name, each) for each in answers] == codes
                assert await is_served(honest)
    await nothing_is_left(proxy)


CAPABILITIES: list[tuple[bytes, int]] = [
    *((each, -32602) for each in (b"5", b"null", b"[]", b'"x"')),
    *((b'{"sampling":%s}' % each, -32602) for each in (b"5", b"[]", b'{"tools":[]}', b'{"context":1}')),
    *((b'{"elicitation":%s}' % each, -32602) for each in (b"true", b'{"form":5}', b'{"url":[]}')),
    *((b'{"roots":%s}' % each, -32602) for each in (b"1", b'{"listChanged":"yes"}')),
    *((b'{"%s":5}' % each, -32602) for each in (b"tasks", b"experimental", b"extensions")),
    *((b'{"%s":null}' % each, RESULT) for each in (b"sampling", b"elicitation", b"roots")),
    *((b'{"unknown":%s}' % each, RESULT) for each in (b"5", b"1e999", b'"\\ud800"', nested(600))),
]


async def test_capabilities_of_any_type_are_read_or_refused(subtests: pytest.Subtests) -> None:
    """In the handshake, and in a request since 2026-07-28."""
    begin = to_json(request(1, "initialize", INITIALIZE | {"capabilities": "?"}))
    ask = to_json(call(1, "picture", arguments={}, _meta=meta() | {f"{M}clientCapabilities": "?"}))
    proxy = Proxy(Planner(ERAS["legacy"]))
    async with through(proxy) as honest:
        for declared, code in CAPABILITIES:
            for sent in (begin, ask):
                with subtests.test(f"{declared[:40]!r} in {sent[:40]!r}"):
                    async with connect(proxy, lenient=True) as host:
                        await host.send_raw(sent.replace(b'"?"', declared))
                        assert answer_to("", await host.receive()) == code
                    assert await is_served(honest)
    await nothing_is_left(proxy)


UNWRITABLE = [b"1e999", nested(600)]

ANSWERS = [
    *(b'"result":%s' % each for each in (b"5", b"{}", b'{"action":"maybe"}', b'{"action":"accept","content":[1]}')),
    *(b'"result":{"action":"accept","content":{"name":%s}}' % each for each in (*UNWRITABLE, b"[1,{}]")),
    *(b'"error":%s' % each for each in (b"5", b"{}", b'{"code":1e999,"message":[1]}')),
    *(b'"error":{"code":%s,"message":"no"}' % each for each in (b"1" * 400, b'"x"', b"true")),
    *(b'"error":{"code":1,"message":"no","data":%s}' % each for each in UNWRITABLE),
    b'"neither":1',
]
"""What is no answer to a form, or cannot be passed on."""


async def asked_by(host: Raw) -> dict[str, Any]:
    """The next request of the proxy."""
    while not {"id", "method"} <= (asked := await host.receive()).keys():
        pass
    return asked


@pytest.mark.parametrize("server", ["legacy", "modern"])
async def test_an_answer_that_is_none_fails_the_call_that_asked(server: str, subtests: pytest.Subtests) -> None:
    """The host gives it twice, and under the ids of requests to come."""
    proxy = Proxy(Planner(ERAS[server]))
    async with through(proxy, elicitation=user()) as honest, legacy(proxy, lenient=True) as host:
        for given in ANSWERS:
            with subtests.test(f"{given[:60]!r}"):
                id = await host.start("book")
                asked = await asked_by(host)
                for number in (asked["id"], asked["id"], asked["id"] + 1):
                    await host.send_raw(b'{"jsonrpc":"2.0","id":%d,%s}' % (number, given))
                while (answer := await host.receive()).get("id") != id:
                    pass
                assert answer.get("error", {}).get("code") == -32603 or answer["result"]["isError"]
                assert text_of(await honest.call_tool("book")) == "accept Ada"
    await nothing_is_left(proxy)


@pytest.mark.parametrize("server", ["legacy", "modern"])
async def test_an_answer_that_is_none_fails_the_retry_that_gives_it(server: str, subtests: pytest.Subtests) -> None:
    proxy = Proxy(Planner(ERAS[server]))
    async with through(proxy, elicitation=user()) as honest, modern(proxy, lenient=True) as host:
        for given in [each.removeprefix(b'"result":') for each in ANSWERS if each.startswith(b'"result":{')]:
            with subtests.test(f"{given[:60]!r}"):
                asked = await host.round("book")
                params = retry("book", dict.fromkeys(asked.requests, "?"), asked.state)
                await host.send_raw(to_json(with_meta(request("r", "tools/call", params))).replace(b'"?"', given))
                while (answer := await host.receive()).get("id") != "r":
                    pass
                assert answer.get("error", {}).get("code") == -32603 or answer["result"]["isError"]
                assert text_of(await honest.call_tool("book")) == "accept Ada"
    await nothing_is_left(proxy)


NOT_APPROVED = [
    *ANSWERS,
    *(
        b'"result":{"action":"accept","content":{"answer":%s}}' % each
        for each in (b'"ONCE"', b'["once"]', b'{"a":1}', b"1", b"true", b'"no"')
    ),
    *(b'"result":{"action":"%s","content":{"answer":"once"}}' % each for each in (b"decline", b"cancel", b"Accept")),
]


async def test_no_model_is_asked_unless_the_form_for_it_was_answered(subtests: pytest.Subtests) -> None:
    """An approval that comes before the form, or from another host, is none."""
    asked: list[SamplingRequest] = []
    proxy = Proxy(Planner(ERAS["legacy"]), sampling=model_of("proxy", seen=asked, approve=ask_host))
    approved = b'"result":{"action":"accept","content":{"answer":"once"}}'
    declared: dict[str, Any] = {"elicitation": {}}
    async with (
        legacy(proxy, capabilities=declared, lenient=True) as host,
        legacy(proxy, capabilities=declared, lenient=True) as other,
    ):
        for given in NOT_APPROVED:
            with subtests.test(f"{given[:60]!r}"):
                for number in range(100):
                    await host.send_raw(b'{"jsonrpc":"2.0","id":%d,%s}' % (number, approved))
                id = await host.start("write")
                form = await asked_by(host)
                await other.send_raw(b'{"jsonrpc":"2.0","id":%d,%s}' % (form["id"], approved))
                await host.send_raw(b'{"jsonrpc":"2.0","id":%d,%s}' % (form["id"], given))
                answer = await host.receive()
                assert (answer["id"], answer["result"]["isError"]) == (id, True)
                assert asked == []
        await other.start("write")
        await other.send_raw(b'{"jsonrpc":"2.0","id":%d,%s}' % ((await asked_by(other))["id"], approved))
        assert "isError" not in (await other.receive())["result"]
    await proxy.aclose()
    await nothing_is_left(proxy)


@on_both
@pytest.mark.parametrize("kind", [legacy, modern])
async def test_of_calls_that_are_cancelled_nothing_is_left(kind: Any) -> None:
    """Nor of those that share a progress token, or of those who listen."""
    proxy = Proxy(Planner(ERAS["modern"]))
    async with through(proxy) as honest, kind(proxy, lenient=True) as host:
        methods = {"tools/call": {"name": "wait", "arguments": {}, "_meta": {"progressToken": "same"}}}
        if kind is modern:
            methods["subscriptions/listen"] = {"notifications": {"resourceSubscriptions": ["mem://menu"]}}
        ids = [await host.request(method, params) for _ in range(50) for method, params in methods.items()]
        relays = relay_of(proxy).begun
        await wait_all_tasks_blocked()
        assert sum(len(upstream._calls) for relay in relays for upstream in relay.upstreams.values()) == 50
        for id in ids * 2:
            await host.notify("notifications/cancelled", {"requestId": id})
            await host.notify("notifications/progress", {"progressToken": "same", "progress": id})
        await wait_all_tasks_blocked()
        assert not any(upstream._calls for relay in relays for upstream in relay.upstreams.values())
        assert all(not subscription.uris for relay in relays for subscription in relay.subscriptions)
        assert await is_served(honest)
    await nothing_is_left(proxy)


UNSENDABLE = ["x\ny", "x\r\nX: y", "\0", " ", "é"]


async def test_a_name_that_cannot_be_a_header_of_the_servers_is_an_error_of_its_request(
    subtests: pytest.Subtests,
) -> None:
    """Of a server over HTTP since 2026-07-28, whose headers repeat methods and names."""
    async with Planner(ERAS["modern"]).http() as url:
        proxy = Proxy(StreamableHttp(url))
        async with through(proxy) as honest, legacy(proxy, lenient=True) as host:
            for name in UNSENDABLE:
                with subtests.test(f"{name!r}"):
                    assert (await host.error(name))["code"] == -32603
                    assert (await host.error("tools/call", {"name": name}))["code"] == -32602
                    assert await is_served(honest)
        await nothing_is_left(proxy)


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


PICTURE = to_json(call("picture", "picture", arguments={}))


@on_both
async def test_over_http_what_is_wrong_is_answered_and_the_next_request_is_served(subtests: pytest.Subtests) -> None:
    async with hosts(Proxy(Planner(ERAS["legacy"]))) as http:
        session, honest = await begin(http), await begin(http)

        async def serves_the_other() -> bool:
            [served] = of_response(await http.post("/mcp", content=PICTURE, headers=honest))
            return "result" in served

        for name, sent, answered in IN_A_SESSION:
            with subtests.test(name):
                answers = of_response(await http.post("/mcp", content=sent, headers=session))
                codes = [answer_to(name, each) for each in answers if "method" not in each]
                assert codes == ([] if answered is NOTHING else [answered])
                assert await serves_the_other()
        for name, changed, answered in STATELESS:
            with subtests.test(name):
                body = call(7, "picture", **{"arguments": {}, "_meta": meta(), **changed})
                headers = {
                    **repeated(body),
                    "mcp-protocol-version": str(body["params"]["_meta"][f"{M}protocolVersion"]),
                }
                [answer] = of_response(await http.post("/mcp", content=to_json(body), headers=headers))
                assert answer_to(name, answer) == answered
                assert await serves_the_other()


GUESSES = ["", "0", "x" * 100_000, "None", "../x", "%00"]


@on_both
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


@on_both
async def test_a_session_is_not_touched_by_what_other_sessions_say_of_its_requests() -> None:
    """They may guess the ids, of either side."""
    planner = Planner(ERAS["legacy"])
    proxy = Proxy(planner)
    async with hosts(proxy) as http, create_task_group() as tasks:
        mine, other = await begin(http), await begin(http)

        async def wait() -> None:
            ended = await http.post("/mcp", content=to_json(call(5, "wait", arguments={})), headers=mine)
            error = {"code": -32603, "message": "the session has ended"}
            assert of_response(ended) == [{"jsonrpc": "2.0", "id": 5, "error": error}]

        tasks.start_soon(wait)
        await planner.started.wait()
        for sent in (
            message(method="notifications/cancelled", params={"requestId": 5}),
            message(id=1, result={}),
            message(id=5, error={"code": 1, "message": "no"}),
        ):
            assert (await http.post("/mcp", content=sent, headers=other)).status_code == 202
        assert (await http.delete("/mcp", headers=other)).status_code == 204
        assert (await http.post("/mcp", content=asked("5"), headers=mine)).status_code == 400  # it is still under way
        assert not planner.cancelled.is_set()
        assert (await http.delete("/mcp", headers=mine)).status_code == 204
        await planner.cancelled.wait()


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


@on_both
async def test_what_comes_over_a_socket_is_served_or_refused(subtests: pytest.Subtests) -> None:
    """The next is served by the same proxy; those that say half of a request stay meanwhile."""
    with fail_after(25):
        async with Proxy(Planner(ERAS["legacy"])).http() as url, AsyncExitStack() as opened:
            port = httpx.URL(url).port or 0
            for half in (b"POST", posted(length=b"Content-Length: 1000000000"), posted(length=CHUNKED, body=b"5")):
                stream = await opened.enter_async_context(await connect_tcp("127.0.0.1", port))
                await stream.send(half)
            async with await connect_tcp("127.0.0.1", port) as half_closed:
                await half_closed.send(posted())
                await half_closed.send_eof()
                with suppress(EndOfStream):  # to uvicorn it has gone
                    await half_closed.receive()
            for name, sent, status in SENT:
                with subtests.test(name):
                    async with await connect_tcp("127.0.0.1", port) as stream:
                        await stream.send(sent)
                        answer = await stream.receive()
                    assert int(answer.split(b" ", 2)[1]) == status
                    async with await connect_tcp("127.0.0.1", port) as other:
                        await other.send(posted())
                        assert (await other.receive()).startswith(b"HTTP/1.1 200 ")
