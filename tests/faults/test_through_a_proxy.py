"""A proxy in front of the servers of the catalogue: what they do costs one call of one host at most."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest
from anyio import CancelScope, fail_after

from mcp_host import Client, Limits, Stdio, StreamableHttp
from mcp_host.errors import McpError
from mcp_host.proxy import Proxy
from mcp_host.transports.infer import Connectable
from tests.auth.authorization_server import Protected
from tests.auth.world import site
from tests.extent import THOROUGH
from tests.faults.asking import ASKER, Model, answers, ask, sampling
from tests.faults.fault import Held, fault
from tests.faults.http_server import SOON, drop, failing, mcp, says, streams, subjects, tides
from tests.faults.stdio_server import GOOD, PARROT, hear, server, unharmed
from tests.faults.test_envelopes import INVALID, METHODS, PARAMS, REPLY, UNKNOWN
from tests.faults.test_event_streams import ENDINGS
from tests.faults.test_framing import NOISE
from tests.faults.test_http_answers import NO_REPLY
from tests.faults.test_http_sessions import FORGOTTEN, TAKEN_BADLY
from tests.faults.test_json import PLACES, STRUCTURED, TEXT, UNREADABLE, nested
from tests.faults.test_oauth import NO_TOKENS, answering, oauth
from tests.faults.test_resources import drop_cancelled_timers, ours
from tests.faults.test_schemas import LISTING, trap
from tests.proxy.test_hostile_hosts import nothing_is_left
from tests.sampling.test_sampling import BROKEN
from tests.transports.children import python
from tests.transports.http_peers import Heard, Wire, event, serving
from tests.transports.legacy_peers import in_turn

__all__ = ["site"]

T = TypeVar("T")
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])
HOSTS = pytest.mark.parametrize("kind", ["legacy", "modern", "shared"])
FEW = None if THOROUGH else 3  # of each kind


@pytest.fixture(autouse=True)
def no_error_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What is no `McpError` ends a request of the host with "Internal error", and is logged as an error."""
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if record.levelname == "ERROR"] == []


@asynccontextmanager
async def hosts(server: Connectable, kind: str) -> AsyncIterator[tuple[Client, Client]]:
    """Two hosts of one proxy, of this era: each has a connection to the server of its own. Or they *share* one, over HTTP."""
    proxy = Proxy(server)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(proxy.aclose)
        shared = await stack.enter_async_context(proxy.http()) if kind == "shared" else None
        one, other = (Client(shared or proxy, era="modern" if shared else kind) for _ in range(2))
        yield await stack.enter_async_context(one), await stack.enter_async_context(other)


def some(kinds: dict[str, list[T]]) -> Iterator[tuple[str, T]]:
    """A few of each kind, with a name."""
    for kind, rows in kinds.items():
        for number, row in enumerate(rows[:FEW]):
            yield f"{kind} {number}", row


# What a server says


SAID = {
    "noise": [noise + GOOD for noise in NOISE],
    "unreadable": [*UNREADABLE.values()],
    "unknown id": [REPLY % id + GOOD for id in UNKNOWN],
    "invalid id": [words + GOOD for words in INVALID],
    "notification": [
        b'{"jsonrpc":"2.0","method":"notifications/%s"%s}\n' % each + GOOD
        for each in itertools.product(METHODS, PARAMS)
    ],
    "nesting": [place % nested(levels) * 2 + GOOD for levels in (630, 150, 800) for place in PLACES],
    "number": [STRUCTURED % number for number in (b"1e999", b"-1e999", b"9" * 4000, b"1e-999")],
    "surrogate": [TEXT % b"cut: \\ud83d", TEXT % b"\\u0000"],
    "shape": [b'{"jsonrpc":"2.0","id":@id,"result":%s}\n' % result for result in (b"5", b"{}", b'{"content":5}')],
    "error": [
        b'{"jsonrpc":"2.0","id":@id,"error":%s}\n' % error for error in (b"5", b"{}", b'{"code":"x","message":5}')
    ],
}


@HOSTS
@fault("F01", "F08", "F09", "J01", "J05", "J06", "J12", "J13", "J14", "J16", "J17", "J19", "J22", "J23")
async def test_what_a_server_says_over_a_pipe_costs_one_call(kind: str, subtests: pytest.Subtests) -> None:
    async with hosts(Stdio(server(PARROT)), kind) as (one, other):
        for name, words in some(SAID):
            with subtests.test(name), fail_after(SOON):
                with suppress(McpError):
                    await hear(one, words)
                assert await unharmed(one)
                assert await unharmed(other)


@fault("C08", "J07")
async def test_a_late_reply_to_a_host_that_has_given_up_reaches_no_other() -> None:
    body = """
    first = read()
    tell("progress", progressToken=first["params"]["_meta"]["progressToken"], progress=1)
    until("notifications/cancelled")
    second = read()
    serve(first)
    serve(second)
    serve_all()
    """

    async def give_up(report: object) -> None:
        scope.cancel()

    async with hosts(Stdio(server(body)), "shared") as (one, other):
        with CancelScope() as scope:
            await one.call_tool("a secret", on_progress=give_up)
        assert (await other.call_tool("mine")).text == "mine"
        assert (await one.call_tool("next")).text == "next"


@pytest.mark.parametrize(("of", "era"), [("host", "legacy"), ("proxy", "legacy"), ("proxy", "modern")])
@fault("S02", "S03", "S04", "S05", "S06", "S14", "S15")
async def test_a_request_that_breaks_a_rule_is_refused_and_reaches_no_model(of: str, era: str) -> None:
    """A host of 2026-07-28 could not refuse it: its call would fail."""
    model = Model()
    proxy = Proxy(Stdio(python(ASKER)), sampling=sampling(model) if of == "proxy" else None)
    async with Client(proxy, era=era, sampling=sampling(model) if of == "host" else None) as host:
        refused = await answers(host, *[asked for asked, _ in [*BROKEN.values()][:FEW]])
        assert model.asked == []
        await answers(host, ask())
    await proxy.aclose()

    assert {answer["error"]["code"] for answer in refused} == {-32602}
    assert len(model.asked) == 1


# What it answers over HTTP


ANSWERED = {
    "no reply": [*map(says, NO_REPLY.values())],
    "ending": [streams(event(data), stay=True) for data, _ in ENDINGS.values()],
    "taken badly": [*TAKEN_BADLY.values()],
    "forgotten": [*FORGOTTEN.values()],
    "status": [says(b"no", status) for status in (403, 404, 429, 500, 503)],
    "login page": [says(b"<html>", content_type="text/html")],
    "gzip": [says(b"no", content_encoding="gzip")],
}


@HOSTS
@fault("E17", "E18", "H02", "H05", "H13", "H15", "H17", "H18", "H19", "H22", "H34")
async def test_what_a_server_answers_over_http_costs_one_call(kind: str, subtests: pytest.Subtests) -> None:
    spoiled = dict(some(ANSWERED))

    async def call(wire: Wire, heard: Heard) -> None:
        await spoiled.get(heard.rpc["params"]["name"], says())(wire, heard)

    async with serving(mcp(call=call)) as peer, hosts(StreamableHttp(peer.url), kind) as (one, other):
        for name in spoiled:
            with subtests.test(name), fail_after(SOON):
                with suppress(McpError):
                    await one.call_tool(name)
                await tides(one)
                await tides(other)


# How its process ends


ENDS = {
    "at once": "sys.exit(3)",
    "in the handshake": "refuse(read(), -32601, 'Method not found'); read(); sys.exit(3)",
    "in a call": "shake_hands(); read(); sys.exit(7)",
    "by a signal": "shake_hands(); read(); os.kill(os.getpid(), signal.SIGKILL)",
    "half a reply": 'shake_hands(); raw(\'{"jsonrpc": "2.0", "id": %d, "resu\' % read()["id"]); sys.exit(0)',
    "no stdout": "shake_hands(); read(); os.close(1); time.sleep(60)",
    "no version": 'refuse(read(), -32601, "Method not found"); reply(read(), {"protocolVersion": "1999-12-31", "capabilities": {}})',
}


@ERAS
@pytest.mark.parametrize("end", [*ENDS][: None if THOROUGH else 4])
@fault("J27", "P02", "P04", "P06", "P09", "P17")
async def test_a_server_that_ends_costs_one_host_its_call(era: str, end: str, tmp_path: Path) -> None:
    body = f"""
    with open({str(tmp_path / "starts")!r}, "a+") as starts:
        starts.write("x")
        starts.flush()
        first = starts.tell() == 1
    if first:
        {ENDS[end]}
    shake_hands()
    serve_all()
    """
    proxy = Proxy(Stdio(server(body, hands=False)), limits=Limits(close_timeout=0.6))
    with fail_after(SOON), suppress(McpError):  # one that ends before the handshake may be started again for it
        async with Client(proxy, era=era) as one:
            await one.call_tool("tides")
    async with Client(proxy, era=era) as other:
        assert (await other.call_tool("tides")).text == "tides"
    await proxy.aclose()


# What it lists


@HOSTS
@fault("T05")
async def test_a_tool_with_a_deep_schema_hides_no_other(kind: str) -> None:
    written = ['{"properties":{"a":' * levels + "{}" + "}}" * levels for levels in (100, 300)]
    async with hosts(Stdio(python(f"SCHEMAS = {written!r}\n{LISTING}")), kind) as (one, other):
        for host in (one, other):
            assert [tool.name for tool in await host.list_tools()] == [trap(0), "good"]
            assert (await host.call_tool("good", {"value": {"a": 1}})).structured_content == {"a": 1}


# Its authorization server


@ERAS
@fault("O15", "O16", "O21")
async def test_a_login_that_fails_costs_one_host_its_connection(era: str, site: Protected) -> None:
    proxy = Proxy(StreamableHttp(site.url, auth=oauth()))
    for _, (problem, answer) in some({"no token": [*NO_TOKENS.items()]}):
        site.server.answers["token"] = answering(answer)
        with fail_after(SOON), pytest.raises(McpError) as refused:
            await Client(proxy, era=era).connect()
        assert problem in str(refused.value)
        assert [secret for secret in ("secret", *site.server.secrets) if secret in repr(refused.value)] == []
    del site.server.answers["token"]

    async with Client(proxy, era=era) as one, Client(proxy, era=era) as other:
        for host in (one, other):
            assert (await host.call_tool("add", {"a": 2, "b": 3})).text == "5"
    await proxy.aclose()


# What is left of it


@ERAS
@fault("R03", "R04")
async def test_hosts_that_come_and_go_leave_nothing_even_if_their_calls_fail(era: str) -> None:
    """Neither objects of ours nor tasks nor descriptors."""
    async with serving(mcp(call=in_turn(*[drop, says()] * 12))) as peer:
        proxy = Proxy(StreamableHttp(peer.url))

        async def again(times: int) -> tuple[Counter[str], Held]:
            for _ in range(times):
                async with Client(proxy, era=era) as host:
                    await failing(host)
                    await tides(host)
            await nothing_is_left(proxy)
            await drop_cancelled_timers()
            return ours(), Held.now()

        (objects, held), (more_objects, more_held) = await again(4), await again(8)
        await proxy.aclose()

    assert subjects(peer).count("initialize") == 12
    assert more_objects - objects == Counter()
    assert more_held.beyond(held) == {}
