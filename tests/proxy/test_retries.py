"""Which process takes the retry of a call that required input, where host and server are of 2026-07-28, or only the host."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from anyio import fail_after

from mcp_host import Elicitation, Limits, ToolPolicy
from mcp_host.middleware import AnyRequest, CallNext, ClientRequest, Exchange, ServerRequest, tap
from mcp_host.protocol.jsonrpc import Params
from mcp_host.protocol.negotiation import LEGACY_VERSIONS
from mcp_host.proxy import Proxy
from mcp_host.serving.http.uvicorn_server import listen, serve_at
from mcp_host.testing import Context, RequestError, ScriptedPeer, Server
from mcp_host.types import ElicitRequestURLParams
from tests.client.support import QUESTION
from tests.extent import on_both
from tests.proxy.servers import ERAS, Planner, fill_in, model_of
from tests.testing import raw
from tests.testing.raw import Wire
from tests.testing.raw_http import ACCEPT, repeated

pytestmark = on_both

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
CALL: Wire = {"name": "book", "arguments": {}}
FORM = {"type": "object", "properties": {}}
ADA: Wire = {"action": "accept", "content": {"name": "Ada"}}
BOOKED = raw.text("accept Ada")
UNKNOWN = "requestState is unknown, or has been used already"
WAITS = "the call of this requestState waits in another process, or for another connection: make the call again"


@asynccontextmanager
async def hosts_of(*proxies: Proxy) -> AsyncIterator[list[raw.Raw]]:
    """A host of 2026-07-28 for each of two *proxies*."""
    one, other = proxies
    async with raw.modern(one) as first, raw.modern(other) as second:
        yield [first, second]
    for proxy in proxies:
        await proxy.aclose()


async def asked(host: raw.Raw, params: Wire = CALL) -> Wire:
    """The params of the retry that the host makes once its user has filled in a form."""
    result = await host.result("tools/call", params)
    [(key, request)] = result["inputRequests"].items()
    assert request["method"] == "elicitation/create"
    return params | {"inputResponses": {key: ADA}, "requestState": result["requestState"]}


async def said(host: raw.Raw, retry: Wire) -> str:
    """Why a retry is refused."""
    message: str = (await host.error("tools/call", retry))["message"]
    return message


async def test_any_process_with_the_key_takes_the_retry_for_a_server_of_2026_07_28_once() -> None:
    with fail_after(25):
        async with (
            Planner(ERAS["modern"]).http() as url,
            hosts_of(Proxy(url, state_key=KEY), Proxy(url, state_key=KEY)) as (first, second),
        ):
            retry = await asked(first)
            assert await second.complete("tools/call", retry) == BOOKED
            assert await said(second, retry) == UNKNOWN


async def test_without_the_key_only_the_same_connection_does() -> None:
    with fail_after(25):
        async with (
            Planner(ERAS["modern"]).http() as url,
            hosts_of(Proxy(url), Proxy(url, state_key=OTHER_KEY)) as (first, second),
        ):
            retry = await asked(first)
            assert await said(second, retry) == UNKNOWN
            assert await first.complete("tools/call", retry) == BOOKED


@pytest.mark.parametrize("version", ["legacy", "modern"])
async def test_a_call_that_is_suspended_waits_in_one_process(version: str) -> None:
    """That of a server with a handshake, and one that the proxy has answered itself."""
    proxies = [Proxy(Planner(ERAS[version]), middleware=[unchanged], state_key=KEY) for _ in range(2)]
    async with hosts_of(*proxies) as (first, second):
        retry = await asked(first)
        assert await said(second, retry) == WAITS
        assert await first.complete("tools/call", retry) == BOOKED


async def unchanged(request: AnyRequest, call_next: CallNext) -> Params:
    return await call_next(request)


async def test_what_the_proxy_answers_is_no_input_for_the_host() -> None:
    proxy = Proxy(
        Planner(ERAS["modern"]),
        sampling=model_of("proxy"),
        answer_sampling="always",
        elicitation=Elicitation(form=fill_in),
    )
    async with raw.modern(proxy, capabilities={"sampling": {"tools": {}}}) as host:
        assert await host.complete("tools/call", CALL) == BOOKED
        result = await host.complete("tools/call", {"name": "write"})
        assert result == raw.text("proxy after 0")
    await proxy.aclose()


async def test_the_forms_of_one_of_several_servers_name_it_also_in_another_process() -> None:
    with fail_after(25):
        async with (
            Planner(ERAS["modern"]).http() as url,
            hosts_of(*(Proxy({"planner": url}, state_key=KEY) for _ in range(2))) as (first, second),
        ):
            call = {"name": "planner__book", "arguments": {}}
            result = await first.result("tools/call", call)
            assert [each["params"]["message"] for each in result["inputRequests"].values()] == ["planner: name?"]
            assert await second.complete("tools/call", await asked(first, call)) == BOOKED


async def test_results_that_are_checked_may_require_input() -> None:
    proxy = Proxy(Planner(ERAS["modern"]), tools=ToolPolicy(output="error"))
    async with raw.modern(proxy) as host:
        await host.result("tools/list")
        assert await host.complete("tools/call", await asked(host)) == BOOKED
    await proxy.aclose()


async def test_a_retry_that_needs_the_proxys_model_keeps_no_state_of_the_round_before() -> None:
    """The server gives none in that round, so it gets none."""
    form = {"method": "elicitation/create", "params": {"mode": "form", "message": "?", "requestedSchema": FORM}}
    sample = {"method": "sampling/createMessage", "params": QUESTION}
    rounds: list[Wire] = [
        {"resultType": "input_required", "inputRequests": {"a": form}, "requestState": "s"},
        {"resultType": "input_required", "inputRequests": {"b": sample}},
        {"resultType": "complete", "content": []},
    ]
    heard: list[Wire] = []

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities={"tools": {}})
        for result in rounds:
            call = await peer.receive("tools/call")
            heard.append({key: call["params"].get(key) for key in ("requestState", "inputResponses")})
            await peer.reply(call, result)

    proxy = Proxy(ScriptedPeer(script), sampling=model_of("proxy"))
    async with raw.modern(proxy, capabilities={"elicitation": {}}) as host:
        assert await host.complete("tools/call", await asked(host)) == {"content": []}
    await proxy.aclose()
    assert heard[:2] == [
        {"requestState": None, "inputResponses": None},
        {"requestState": "s", "inputResponses": {"a": ADA}},
    ]
    assert heard[2]["requestState"] is None
    assert [*heard[2]["inputResponses"]] == ["b"]


async def test_a_state_is_good_for_its_owner_only() -> None:
    """With one key, and a token for each user."""
    answers: list[Any] = []
    with fail_after(25):
        async with (
            Planner(ERAS["modern"]).http() as url,
            Proxy(url, state_key=KEY).http(token="ada", json_response=True) as adas,
            Proxy(url, state_key=KEY).http(token="ada", json_response=True) as same,
            Proxy(url, state_key=KEY).http(token="alan", json_response=True) as alans,
            httpx.AsyncClient() as http,
        ):

            async def call(at: str, token: str, params: Wire) -> Wire:
                body = raw.with_meta(raw.request(1, "tools/call", params))
                headers = {"authorization": f"Bearer {token}", "accept": ACCEPT, **repeated(body)}
                answer: Wire = (await http.post(at, json=body, headers=headers)).json()
                return answer

            state = (await call(adas, "ada", CALL))["result"]
            [key] = state["inputRequests"]
            retry = CALL | {"inputResponses": {key: ADA}, "requestState": state["requestState"]}
            answers = [await call(alans, "alan", retry), await call(same, "ada", retry)]
    assert answers[0]["error"]["message"] == "requestState belongs to another request"
    assert answers[1]["result"]["content"] == BOOKED["content"]


# A URL to visit, which is an error in 2025-11-25

VISITS = [
    ElicitRequestURLParams(message=f"Log in {n}", url="https://example.com", elicitation_id=f"e{n}") for n in "12"
]


@pytest.mark.parametrize("policy", [None, ToolPolicy(output="error")])
@pytest.mark.parametrize("host", ["legacy", "modern"])
@pytest.mark.parametrize("several", [False, True])
async def test_a_result_of_a_revision_with_a_handshake_requires_no_input(
    policy: ToolPolicy | None, host: str, several: bool
) -> None:
    """It says so in a member that its revision does not have. The host gets no requests in it, and it is checked as any other."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        tool = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object", "required": ["a"]}}
        while True:
            request = await peer.receive()
            if request["method"] == "tools/list":
                await peer.reply(request, {"tools": [tool]})
            elif request["method"] == "tools/call":
                more = {"resultType": "input_required", "inputRequests": [1], "structuredContent": {}}
                await peer.reply(request, {"content": [], **more})

    server = ScriptedPeer(script)
    proxy = Proxy({"a": server} if several else server, tools=policy)
    async with (raw.legacy if host == "legacy" else raw.modern)(proxy) as connected:
        await connected.result("tools/list")
        params = {"name": "a__t" if several else "t"}
        if policy is None:
            result = await connected.result("tools/call", params)
            assert result.get("resultType") == (None if host == "legacy" else "complete")
        else:
            assert "a" in (await connected.error("tools/call", params))["message"]
    await proxy.aclose()


async def test_a_server_may_not_require_more_input_of_a_host_at_once_than_of_a_client() -> None:
    form = {"method": "elicitation/create", "params": {"mode": "form", "message": "?", "requestedSchema": FORM}}

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities={"tools": {}})
        call = await peer.receive("tools/call")
        await peer.reply(call, {"resultType": "input_required", "inputRequests": {"a": form, "b": form}})

    refusals = list[str]()
    for server in (ScriptedPeer(script), wanting_login(1)):
        proxy = Proxy(server, limits=Limits(max_inputs_per_round=1))
        async with raw.modern(proxy) as host:
            refusals.append(await said(host, {"name": "enter"}))
        await proxy.aclose()
    asked = "tools/call: the server asked for 2 inputs at once (Limits.max_inputs_per_round)"
    assert refusals == [asked, "not logged in"]


def wanting_login(times: int) -> Server:
    """A server whose tool, prompt and list want the user to log in *times* times."""
    server, asked = Server("s", versions=LEGACY_VERSIONS), list[None]()

    @server.tool
    def enter() -> str:
        if len(asked) < times:
            asked.append(None)
            raise RequestError.url_required("not logged in", *VISITS)
        return "in"

    @server.tool
    def wander() -> None:
        raise RequestError.url_required("nowhere to log in")

    @server.request_handler("x/enter")
    async def enter_otherwise(params: Params, context: Context) -> Params:
        raise RequestError.url_required("not logged in", *VISITS)

    return server


async def test_the_error_that_asks_for_a_url_becomes_input_that_a_host_of_2026_07_28_provides() -> None:
    proxy = Proxy(wanting_login(2))
    async with raw.modern(proxy) as host:
        asked = await host.round("enter")
        assert [each["params"]["url"] for each in asked.requests.values()] == ["https://example.com"] * 2
        assert {each["params"]["mode"] for each in asked.requests.values()} == {"url"}
        accepted: Wire = {key: {"action": "accept"} for key in asked.requests}
        again = await host.round("enter", accepted, asked.state)
        accepted = {key: {"action": "accept"} for key in again.requests}
        assert await host.last_round("enter", accepted, again.state) == raw.text("in")
    await proxy.aclose()


async def test_the_error_that_asks_for_a_url_passes_where_the_user_does_not_visit_it() -> None:
    declined = {"action": "decline"}
    for host_of, capabilities in ((raw.legacy, None), (raw.modern, {"elicitation": {"form": {}}}), (raw.modern, None)):
        proxy = Proxy(wanting_login(9))
        async with host_of(proxy, capabilities=capabilities) as host:
            refusals = [await host.error("x/enter"), await host.error("tools/call", {"name": "wander"})]
            if host_of is raw.modern and capabilities is None:
                asked = await host.round("enter")
                answers: Wire = dict.fromkeys(asked.requests, declined)
                refusals.append(await host.error("tools/call", raw.retry("enter", answers, asked.state)))
            else:
                refusals.append(await host.error("tools/call", {"name": "enter"}))
        await proxy.aclose()
        assert [refusal["code"] for refusal in refusals] == [-32042] * 3
        assert [len(refusal["data"]["elicitations"]) for refusal in refusals] == [2, 0, 2]


async def test_a_session_at_the_server_may_end_while_the_user_visits_a_url() -> None:
    app = wanting_login(1).asgi()
    with fail_after(25), listen(0) as listener:
        async with serve_at(listener, app) as url, raw.modern(proxy := Proxy(url)) as host:
            asked = await host.round("enter")
            await app.aclose()
            accepted: Wire = {key: {"action": "accept"} for key in asked.requests}
            assert await host.last_round("enter", accepted, asked.state) == raw.text("in")
            await proxy.aclose()


async def test_middleware_sees_the_visit_of_a_url_as_any_elicitation_and_limits_count_it() -> None:
    """Here it answers one of two."""
    seen, calls = list[tuple[str | None, ...]](), list[Exchange]()

    async def decide(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if isinstance(request, ServerRequest):
            assert request.outer is not None
            seen.append((request.method, request.params["message"], request.outer.method, request.outer.name))
            if request.params["message"] == "Log in 1":
                return {"action": "accept"}
        return await call_next(request)

    proxy = Proxy(wanting_login(2), middleware=[tap(calls.append), decide], limits=Limits(max_inputs=3))
    async with raw.modern(proxy) as host:
        asked = await host.round("enter")
        assert [each["params"]["message"] for each in asked.requests.values()] == ["Log in 2"]
        accepted: Wire = {key: {"action": "accept"} for key in asked.requests}
        refused = await host.error("tools/call", raw.retry("enter", accepted, asked.state))
    await proxy.aclose()
    assert (refused["code"], refused["message"]) == (-32042, "not logged in")
    assert sorted(seen) == [("elicitation/create", f"Log in {n}", "tools/call", "enter") for n in "12"]
    [entered] = [each.request for each in calls if each.request.method == "tools/call"]
    assert isinstance(entered, ClientRequest)
    assert len(entered.sent_ids) == 2
