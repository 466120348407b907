"""Which capabilities are advertised, and what is tried with a server that cannot bear one of them."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from mcp_host import Client, Elicitation, FormRequest, SamplingRequest, Stdio, StreamableHttp, UrlRequest
from mcp_host.errors import ConnectionClosed, ConnectTimeout, McpError, ServerError
from mcp_host.limits import Limits
from mcp_host.testing import ScriptedPeer
from mcp_host.transports.in_process import Inbox, InProcess, MemoryChannel, Outbox
from mcp_host.types import CreateMessageResult, ElicitResult, TextContent, ToolUseContent
from tests.client.support import ADD, INFO, QUESTION, connected, sampling, say_paris, silent
from tests.clock import advance
from tests.extent import on_both
from tests.transports.children import python
from tests.transports.http_peers import Heard, Wire, serving

WELCOME = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO}
BOTH: dict[str, Any] = {"sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}}


async def fill_in(request: FormRequest) -> ElicitResult:
    return request.accept()


async def visit(request: UrlRequest) -> ElicitResult:
    return request.accept()


FORM = Elicitation(form=fill_in)
URL = Elicitation(url=visit)
EITHER = Elicitation(form=fill_in, url=visit)


def offered(peer: ScriptedPeer) -> list[Any]:
    """What each handshake advertised."""
    return [message["params"]["capabilities"] for message in peer.received if message.get("method") == "initialize"]


def initialized(version: str = "2025-11-25") -> ScriptedPeer:
    """A peer that answers the handshake."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(version=version)

    return ScriptedPeer(script)


async def failure(server: ScriptedPeer, **options: Any) -> tuple[McpError, float]:
    """Why it cannot be connected to, and after how many seconds that is clear. It has 30."""
    begun = anyio.current_time()
    with anyio.fail_after(60), pytest.raises(McpError) as caught:
        await Client(server, limits=Limits(connect_timeout=30), **options).connect()
    return caught.value, round(anyio.current_time() - begun, 3)


def bears(capabilities: dict[str, Any], allowed: dict[str, Any]) -> bool:
    """Whether a server that knows but the *allowed* capabilities reads these; None is not allowed at all."""
    known = {name: allowed.get(name, inner) for name, inner in capabilities.items()}
    return all(known[name] is not None and set(inner) <= set(known[name]) for name, inner in capabilities.items())


async def test_what_is_advertised_is_what_was_registered_and_the_revision_has(subtests: pytest.Subtests) -> None:
    both: dict[str, Any] = {"sampling": sampling(), "elicitation": EITHER}
    with_context = {"sampling": sampling(basic=say_paris, with_tools=say_paris, context=True)}
    rows: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
        ("2025-06-18", both, {"sampling": {}, "elicitation": {}}, "basic"),
        ("2025-03-26", both, {"sampling": {}, "elicitation": {}}, "basic"),
        ("2024-11-05", both, {"sampling": {}, "elicitation": {}}, "basic"),
        ("2025-06-18", with_context, {"sampling": {}}, "basic"),
        ("2025-11-25", with_context, {"sampling": {"tools": {}, "context": {}}}, "with_tools"),
        ("2025-11-25", {"elicitation": FORM}, {"elicitation": {}}, "none"),  # as every revision knows them
        ("2024-11-05", {"extensions": {"com.example/x": {}}}, {"extensions": {"com.example/x": {}}}, "none"),
    ]
    for version, registered, advertised, mode in rows:
        with subtests.test(version, advertised=ascii(advertised)):
            peer = initialized(version)
            async with connected(peer, era=version, **registered) as client:
                assert client.sampling_mode == mode

            assert offered(peer) == [advertised]


async def test_an_older_revision_that_the_server_names_is_offered_no_tools_either() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.reply_error(await peer.receive("initialize"), -32602, "unsupported", {"supported": ["2025-06-18"]})
        await peer.answer_initialize(version="2025-06-18")

    peer = ScriptedPeer(script)
    async with connected(peer, era="legacy", sampling=sampling(), elicitation=URL) as client:
        assert client.sampling_mode == "basic"

    assert offered(peer) == [{"sampling": {"tools": {}}, "elicitation": {"url": {}}}, {"sampling": {}}]


async def test_tools_that_were_offered_are_taken_in_an_older_revision() -> None:
    """Servers of SEP-1577's drafts speak an older one, and answer in it what they were offered."""
    heard: list[Any] = []

    async def draft(inbox: Inbox, outbox: Outbox) -> None:
        async def hear() -> dict[str, Any]:
            heard.append(json.loads(await inbox.receive()))
            return dict(heard[-1])

        async def say(**message: Any) -> None:
            await outbox.send(json.dumps({"jsonrpc": "2.0", **message}).encode())

        await say(id=(await hear())["id"], result=WELCOME | {"protocolVersion": "2025-06-18"})
        await hear()
        for id, params in ("uses", QUESTION | {"tools": [ADD]}), ("says", QUESTION | {"tools": [ADD]}):
            await say(id=id, method="sampling/createMessage", params=params)
            await hear()
        done.set()
        await anyio.sleep_forever()

    async def model(request: SamplingRequest) -> CreateMessageResult:
        if not said:
            said.append(True)
            uses = [ToolUseContent(id=str(n), name="add", input={"n": n}) for n in (1, 2)]
            return CreateMessageResult(content=uses, model="m", stop_reason="toolUse")
        return CreateMessageResult(content=[TextContent(text="Paris."), TextContent(text="In France.")], model="m")

    done, said = anyio.Event(), list[bool]()
    async with connected(InProcess(draft), era="legacy", sampling=sampling(with_tools=model)) as client:
        assert (client.protocol_version, client.sampling_mode) == ("2025-06-18", "with_tools")
        await done.wait()

    uses, says = (message["result"]["content"] for message in heard[2:])
    assert uses == [{"type": "tool_use", "id": str(n), "name": "add", "input": {"n": n}} for n in (1, 2)]
    assert says == {"type": "text", "text": "Paris.\n\nIn France."}


STRICT: dict[str, tuple[dict[str, Any], dict[str, Any], list[Any], str]] = {
    "tools": (
        {"sampling": sampling(), "elicitation": EITHER},
        {"sampling": {}},
        [BOTH, {**BOTH, "sampling": {}}],
        "sampling.tools",
    ),
    "tools and URLs": (
        {"sampling": sampling(), "elicitation": EITHER},
        {"sampling": {}, "elicitation": {}},
        [BOTH, {**BOTH, "sampling": {}}, {"sampling": {}, "elicitation": {}}],
        "sampling.tools and elicitation.url",
    ),
    "tools and all of elicitation": (
        {"sampling": sampling(), "elicitation": EITHER},
        {"sampling": {}, "elicitation": None},
        [BOTH, {**BOTH, "sampling": {}}, {"sampling": {}, "elicitation": {}}, {"sampling": {}}],
        "sampling.tools and elicitation.url and elicitation.form",
    ),
    "context": (
        {"sampling": sampling(basic=say_paris, context=True)},
        {"sampling": {}},
        [{"sampling": {"context": {}}}, {"sampling": {}}],
        "sampling.context",
    ),
    "URLs beside forms": (
        {"elicitation": EITHER},
        {"elicitation": {}},
        [{"elicitation": {"form": {}, "url": {}}}, {"elicitation": {}}],
        "elicitation.url",
    ),
    "URLs": (
        {"elicitation": URL},
        {"elicitation": {}},
        [{"elicitation": {"url": {}}}, {}],  # an empty object would mean forms
        "elicitation.url",
    ),
    "extensions beside tools": (
        {"sampling": sampling(), "extensions": {"com.example/x": {"a": 1}}},
        {"sampling": {"tools": {}}, "extensions": None},
        [{"sampling": {"tools": {}}, "extensions": {"com.example/x": {"a": 1}}}, {"sampling": {"tools": {}}}],
        "extensions",
    ),
}


async def test_a_strict_server_is_offered_less_until_it_can_bear_it(subtests: pytest.Subtests) -> None:
    for name, (registered, known, offers, without) in STRICT.items():
        with subtests.test(name):

            async def script(peer: ScriptedPeer, known: dict[str, Any] = known) -> None:
                request = await peer.receive("initialize")
                if bears(request["params"]["capabilities"], known):
                    await peer.reply(request, WELCOME)
                else:
                    await peer.reply_error(request, -32602, "unrecognized_keys")

            peer = ScriptedPeer(script, name="strict")
            client = Client(peer, era="legacy", **registered)
            mode = "with_tools" if "tools" in offers[-1].get("sampling", {}) else "basic"
            with anyio.fail_after(25):
                for _ in range(2):  # the second time it is known
                    async with client:
                        assert client.sampling_mode == (mode if "sampling" in registered else "none")

            assert offered(peer) == [*offers, offers[-1]]
            assert client.warnings == [f"strict connected only without {without}: the client no longer advertises it"]


@on_both
@pytest.mark.fake_clock
@pytest.mark.parametrize("connect_as", ["legacy", "auto"])
async def test_a_server_that_falls_silent_over_a_capability_is_asked_once_more_without_any(connect_as: str) -> None:
    """It has all of the time to answer. Then there is one more attempt, which offers least."""

    async def script(peer: ScriptedPeer) -> None:
        request = await peer.receive("initialize")
        if bears(request["params"]["capabilities"], {"sampling": {}, "elicitation": {}}):
            await peer.reply(request, WELCOME)

    peer = ScriptedPeer(script, name="silent")
    client = Client(peer, era=connect_as, sampling=sampling(), elicitation=EITHER, limits=Limits(connect_timeout=30))
    begun = anyio.current_time()
    with anyio.fail_after(60):
        async with client:
            assert client.sampling_mode == "basic"
            assert 30 <= anyio.current_time() - begun <= 40

    assert offered(peer) == [BOTH, {"sampling": {}, "elicitation": {}}]
    (warning,) = client.warnings
    assert "sampling.tools and elicitation.url" in warning


@on_both
@pytest.mark.fake_clock
@pytest.mark.parametrize("connect_as", ["legacy", "auto"])
async def test_a_server_that_is_merely_slow_gets_sampling_with_tools(connect_as: str) -> None:
    async def script(peer: ScriptedPeer) -> None:
        request = await peer.receive("initialize")
        await anyio.sleep_until(begun + 0.9 * 30)
        await peer.reply(request, WELCOME)

    peer = ScriptedPeer(script)
    begun = anyio.current_time()
    async with connected(
        peer, era=connect_as, sampling=sampling(), limits=Limits(connect_timeout=30), within=60
    ) as client:
        assert (client.sampling_mode, client.warnings) == ("with_tools", [])
        assert anyio.current_time() - begun == pytest.approx(27)

    assert offered(peer) == [{"sampling": {"tools": {}}}]


@on_both
@pytest.mark.adjustable_clock
async def test_a_process_that_falls_silent_over_a_capability_is_ended_and_started_without() -> None:
    strict = """
        request = read()
        while request["params"]["capabilities"]["sampling"]:
            for number in range(10):  # until the client knows that this process runs
                say({"id": number, "method": "ping"})
                read()
            print("silent", file=sys.stderr, flush=True)
            request = read()
        reply(request, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "0"}})
        read()
        read()
    """
    server = Stdio(python(strict, hands=False), on_stderr=lambda line: advance(60))
    limits = Limits(connect_timeout=60)  # the second start has 20 more
    async with connected(server, era="legacy", sampling=sampling(), limits=limits, within=60 + 20) as client:
        assert client.sampling_mode == "basic"


@on_both
@pytest.mark.fake_clock
async def test_a_silent_server_is_tried_with_less_for_a_third_of_the_connect_timeout_if_there_is_less(
    subtests: pytest.Subtests,
) -> None:
    not_ready = "mute was not ready within 30 s"
    not_initialized = f"{not_ready}: it did not answer initialize"
    rows: list[tuple[str, dict[str, Any], str, int, list[Any]]] = [
        ("legacy", {"sampling": sampling()}, not_initialized, 40, [{"sampling": {"tools": {}}}, {"sampling": {}}]),
        ("legacy", {}, not_initialized, 30, [{}]),
        ("modern", {"sampling": sampling()}, not_ready, 30, []),  # which was not asked to initialize
    ]
    for era, registered, says, took, offers in rows:
        with subtests.test(era, offers=ascii(offers)):
            peer = ScriptedPeer(silent, name="mute")
            error, seconds = await failure(peer, era=era, **registered)

            assert (type(error), str(error), seconds) == (ConnectTimeout, says, took)
            assert offered(peer) == offers
            assert len(peer.received) == max(1, len(offers))


@on_both
@pytest.mark.fake_clock
async def test_a_server_that_never_comes_up_is_not_tried_with_less(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait_until_started(channel: MemoryChannel) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(MemoryChannel, "wait_until_started", wait_until_started)
    peer = ScriptedPeer(silent, name="mute")
    error, seconds = await failure(peer, era="legacy", sampling=sampling())

    assert type(error) is ConnectTimeout
    assert (str(error), seconds) == ("mute was not ready within 30 s", 30)
    assert offered(peer) == [{"sampling": {"tools": {}}}]


@on_both
@pytest.mark.fake_clock
@pytest.mark.parametrize(("pause", "took", "offers"), [(0, 0, 4), (12, 30, 3)], ids=["at once", "slowly"])
async def test_refusals_have_the_time_of_one_attempt_together_and_the_error_of_the_first_stands(
    pause: int, took: int, offers: int
) -> None:
    async def script(peer: ScriptedPeer) -> None:
        request = await peer.receive("initialize")
        await anyio.sleep(pause)
        await peer.reply_error(request, -32602, f"no {len(offered(peer))}")

    peer = ScriptedPeer(script)
    error, seconds = await failure(peer, era="legacy", sampling=sampling(), elicitation=EITHER)

    assert type(error) is ServerError
    assert (error.message, seconds) == ("no 1", took)
    less = [{**BOTH, "sampling": {}}, {"sampling": {}, "elicitation": {}}, {"sampling": {}}]
    assert offered(peer) == [BOTH, *less][:offers]


@on_both
@pytest.mark.fake_clock
async def test_a_server_that_dies_of_the_probe_and_then_is_silent_has_the_time_of_one_attempt() -> None:
    async def script(peer: ScriptedPeer) -> None:
        if (await peer.receive())["method"] == "server/discover":
            await anyio.sleep(12)
            await peer.aclose()

    error, seconds = await failure(ScriptedPeer(script, name="silent"))

    assert type(error) is ConnectTimeout
    assert str(error).startswith("silent was not ready within 30 s: it did not answer initialize")
    assert seconds == 30


# The connection that is kept after the probe


@pytest.mark.parametrize("when", ["before the handshake", "on the handshake", "on the handshake, with a reset"])
async def test_a_connection_that_the_server_closes_after_the_probe_does_not_end_the_connecting(when: str) -> None:
    async def script(wire: Wire) -> None:
        request = await wire.hear()
        if request.method != "POST":
            await wire.reply(405)
        elif request.rpc["method"] == "server/discover":
            await wire.reply(404)
            await close(wire)
        else:
            await serve(wire, request)

    async def close(wire: Wire) -> None:
        if when != "before the handshake":
            await wire.hear()
        await (wire.reset() if when.endswith("reset") else wire.end())

    async def serve(wire: Wire, request: Heard) -> None:
        if request.rpc["method"] == "initialize":
            body = {"jsonrpc": "2.0", "id": request.rpc["id"], "result": WELCOME}
            await wire.reply(
                200, {"content-type": "application/json", "connection": "close"}, json.dumps(body).encode()
            )
        else:
            await wire.reply(202, {"connection": "close"})
        await wire.end()

    async with serving(script) as server, connected(StreamableHttp(server.url)) as client:
        assert client.protocol_version == "2025-11-25"
        assert client.warnings == []


async def test_a_server_that_breaks_every_connection_is_asked_in_two_attempts_and_reported() -> None:
    async def script(wire: Wire) -> None:
        while (await wire.hear()).rpc["method"] == "server/discover":
            await wire.reply(404)
        heard.append("initialize")
        await wire.end()

    heard: list[str] = []
    with anyio.fail_after(25):
        async with serving(script) as server:
            with pytest.raises(ConnectionClosed):
                await Client(StreamableHttp(server.url)).connect()

    assert heard == ["initialize"] * 4  # twice in each attempt: the connection of the probe was a kept one
