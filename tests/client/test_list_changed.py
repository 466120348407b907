"""Whole lists, handed over after the server has changed them."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import anyio
import pytest

from mcp_host import Client, ListChanged, Notification
from mcp_host.concurrency.tasks import HandlerTasks
from mcp_host.middleware import AnyRequest, CallNext
from mcp_host.session.list_changed import ListWatcher
from mcp_host.testing import ScriptedPeer, Server
from mcp_host.types import Prompt, Resource, ResourceTemplate, Tool
from tests.client.support import HANDSHAKE, Era, Recorder, connected, open_listening
from tests.client.test_session_lost import Forgetful, session_with
from tests.extent import on_both
from tests.testing.connecting import ConnectBy, connect_by, versions

__all__ = ["connect_by", "versions"]  # fixtures

pytestmark = on_both

Wire = dict[str, Any]
LISTEN = "subscriptions/listen"
CHANGING: Wire = {name: {"listChanged": True} for name in ("tools", "prompts", "resources")}
CHANGED = "notifications/tools/list_changed"

paused = pytest.mark.fake_clock


def tools(number: int) -> Wire:
    return {"tools": [{"name": f"tool{each}", "inputSchema": {"type": "object"}} for each in range(number)]}


class Peer(ScriptedPeer):
    """Answers each listing with one tool more than the last, and announces changes when told to.

    `listings` has the time of each, and `slow` how long it takes.
    """

    def __init__(self, era: Era, capabilities: Wire = CHANGING, slow: float = 0.0) -> None:
        super().__init__(self._script_of, name="the peer")
        self.listings: list[float] = []
        self.connections = 0
        self.stream: Wire | None = None
        self._era = era
        self._slow = slow
        self._capabilities = capabilities

    async def _script_of(self, peer: ScriptedPeer) -> None:
        self.connections += 1
        await self._era.open(peer, self._capabilities)
        while True:
            request = await self.receive()
            match request["method"]:
                case "subscriptions/listen":
                    self.stream = request
                    await self.acknowledge(request)
                case "tools/list":
                    self.listings.append(anyio.current_time())
                    await anyio.sleep(self._slow)
                    await self.reply(request, tools(len(self.listings)))
                case "prompts/list":
                    await self.reply(request, {"prompts": [{"name": "a prompt"}]})
                case "resources/list":
                    await self.reply(request, {"resources": [{"uri": "a:b", "name": "b"}]})
                case "resources/templates/list":
                    await self.reply(request, {"resourceTemplates": [{"uriTemplate": "a:{x}", "name": "x"}]})

    async def announce(self, method: str = CHANGED) -> None:
        if self.stream is None:
            await self.notify(method)
        else:
            await self.notify_subscription(self.stream, method)


class Lists:
    """A callback that notes how long each list is, and when it came."""

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.times: list[float] = []

    async def __call__(self, items: Sequence[object]) -> None:
        self.lengths.append(len(items))
        self.times.append(round(anyio.current_time(), 3))


async def test_a_changed_list_is_handed_over_whole_over_every_transport(
    connect_by: ConnectBy, versions: tuple[str, ...]
) -> None:
    server = Server("changing", versions=versions)

    @server.tool
    def first() -> str:
        """The first."""
        return "1"

    def second() -> str:
        """The second."""
        return "2"

    handed = Recorder()
    with anyio.fail_after(25):
        async with (
            connect_by(server) as transport,
            Client(transport, list_changed=ListChanged(tools=handed, delay=0.01)) as client,
        ):
            await client.list_tools()
            server.tool(second)
            await server.notify_tools_changed()
            await handed.called.wait()
            assert (await client.call_tool("second")).text == "2"

    assert [[tool.name for tool in tools] for tools in handed] == [["first", "second"]]


@paused
async def test_changes_within_the_delay_or_during_the_listing_lead_to_one_more(era: Era) -> None:
    """It comes the delay after the first of them, or after the listing."""
    peer, seen = Peer(era, slow=5), Lists()
    async with connected(peer, list_changed=ListChanged(tools=seen, delay=2), within=100):
        began = anyio.current_time()
        for _ in range(10):
            await peer.announce()
            await anyio.sleep(0.1)
        await anyio.sleep(3)
        for _ in range(3):
            await peer.announce()
        await anyio.sleep(50)

    assert seen.lengths == [1, 2]
    assert [round(at - began, 3) for at in seen.times] == [2 + 5, 7 + 2 + 5]


@pytest.mark.fault("F20")
@paused
async def test_a_server_that_announces_without_end_causes_one_listing_for_each_delay(era: Era) -> None:
    peer, seen = Peer(era), Lists()
    async with connected(peer, list_changed=ListChanged(tools=seen, delay=2), within=100):
        for _ in range(100):
            await peer.announce()
            await anyio.sleep(0.1)

    assert 4 <= len(peer.listings) <= 5
    assert seen.lengths == list(range(1, len(peer.listings) + 1))


@pytest.mark.fault("F20")
@paused
async def test_a_list_that_has_not_changed_though_announced_is_listed_less_and_less_often(era: Era) -> None:
    """Some servers announce a change whenever they are asked for the list."""

    class Repeating(Peer):
        announces = True

        async def reply(self, request: Wire, result: Mapping[str, Any]) -> None:
            if request["method"] == "tools/list":
                result = tools(1)
            await super().reply(request, result)
            if request["method"] == "tools/list" and self.announces:
                await self.announce()

    peer, seen = Repeating(era), Lists()
    async with connected(peer, list_changed=ListChanged(tools=seen, delay=2), within=2_000) as client:
        await peer.announce()
        await anyio.sleep(1_000)
        peer.announces = False
        await anyio.sleep(200)
        often = len(seen.times)
        await peer.announce()
        await anyio.sleep(3)

    pauses = [later - earlier for earlier, later in pairwise(seen.times[:often])]
    assert pauses == pytest.approx([min(2 * 1.5**number, 60) for number in range(often - 1)], abs=0.01)
    assert pauses[-1] == pytest.approx(60, abs=0.01)
    assert len(seen.times) == often + 1
    assert client.warnings == [
        "the peer: the tools have not changed, though it keeps saying so: they are listed less often"
    ]


@paused
async def test_each_list_has_its_callback_and_changed_resources_are_two_lists(era: Era) -> None:
    peer, prompts, resources, templates = Peer(era), Recorder(), Recorder(), Recorder()
    wanted = ListChanged(prompts=prompts, resources=resources, resource_templates=templates)
    async with connected(peer, list_changed=wanted, within=100):
        await peer.announce("notifications/prompts/list_changed")
        await anyio.sleep(1)
        await peer.announce("notifications/resources/list_changed")
        await peer.announce()  # of the tools, for which there is no callback
        await anyio.sleep(1)

    assert prompts == [[Prompt(name="a prompt")]]
    assert resources == [[Resource(uri="a:b", name="b")]]
    assert templates == [[ResourceTemplate(uri_template="a:{x}", name="x")]]
    assert peer.listings == []
    if peer.stream is not None:
        assert peer.stream["params"]["notifications"] == {"promptsListChanged": True, "resourcesListChanged": True}


async def test_a_change_that_is_announced_while_the_client_connects_is_handed_over(era: Era) -> None:
    """Without any delay, so that listing begins before `connect` returns."""

    class Hasty(Peer):
        async def acknowledge(self, listen: Wire, notifications: Any = None) -> None:
            await super().acknowledge(listen, notifications)
            await self.announce()

        async def answer_initialize(self, **options: Any) -> Wire:
            request = await super().answer_initialize(**options)
            await self.announce()
            return request

    handed = Recorder()
    async with connected(Hasty(era), list_changed=ListChanged(tools=handed, delay=0)) as client:
        await handed.called.wait()

    assert ([len(tools) for tools in handed], client.warnings) == ([1], [])


@paused
async def test_a_listing_that_fails_is_a_warning_and_the_next_change_lists_again(era: Era) -> None:
    async def fail_once(request: AnyRequest, call_next: CallNext) -> Wire:
        if request.method == "tools/list" and not failed:
            failed.append(request.method)
            raise LookupError("no token")
        return await call_next(request)

    failed: list[str] = []
    peer, seen = Peer(era), Lists()
    async with connected(peer, list_changed=ListChanged(tools=seen), middleware=[fail_once], within=100) as client:
        for _ in range(2):
            await peer.announce()
            await anyio.sleep(1)

    assert seen.lengths == [1]
    assert client.warnings == ["the peer: the tools have changed, and could not be listed: no token"]


@paused
async def test_a_callback_that_fails_is_logged_and_gets_the_next_list(
    era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(tools: list[Tool]) -> None:
        seen.append(len(tools))
        raise LookupError("no window")

    seen: list[int] = []
    peer = Peer(era)
    async with connected(peer, list_changed=ListChanged(tools=fail), within=100):
        for _ in range(2):
            await peer.announce()
            await anyio.sleep(1)

    assert seen == [1, 2]
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert errors == ["ListChanged.tools failed"] * 2


@paused
async def test_after_a_reconnect_the_lists_are_handed_over(era: Era) -> None:
    """What changed meanwhile was not announced to this client."""
    peer, seen = Peer(era, {"tools": {"listChanged": True}}), Lists()
    client = Client(peer, list_changed=ListChanged(tools=seen, prompts=seen))
    with anyio.fail_after(100):
        async with client:
            await anyio.sleep(1)
            assert seen.lengths == []
            peer.stream = None
            await peer.aclose()
            await anyio.sleep(1)
            await client.connect()
            await anyio.sleep(1)

    assert peer.connections == 2
    assert seen.lengths == [1]
    assert client.warnings == []


@paused
async def test_after_a_gap_in_the_stream_of_changes_the_lists_are_handed_over() -> None:
    seen = Lists()

    async def script(peer: ScriptedPeer) -> None:
        listen = await open_listening(peer, CHANGING)
        await anyio.sleep(5)
        await peer.reply(listen, {"resultType": "complete"})  # which ends the subscription
        await peer.acknowledge(await peer.receive(LISTEN))
        await peer.reply(await peer.receive("tools/list"), tools(3))

    async with connected(ScriptedPeer(script), list_changed=ListChanged(tools=seen), within=100):
        await anyio.sleep(50)

    assert seen.lengths == [3]


@paused
async def test_a_session_that_was_lost_has_its_lists_handed_over() -> None:
    server, seen = Forgetful(), Lists()
    async with session_with(server, list_changed=ListChanged(tools=seen), within=100) as client:
        server.known.clear()
        await client.call_tool("x")
        await anyio.sleep(5)

    assert seen.lengths == [1]
    assert server.methods().count("initialize") == 2


@paused
async def test_the_watcher_does_not_keep_a_dropped_client_alive() -> None:
    peer, seen = Peer(HANDSHAKE), Lists()
    client = Client(peer, era="legacy", list_changed=ListChanged(tools=seen))
    with anyio.fail_after(100):
        await client.connect()
        await peer.announce()
        await anyio.sleep(1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del client
            gc.collect()
            await anyio.sleep(1)

    assert [str(each.message) for each in caught] == ["a client of the peer was dropped without being closed"]
    assert seen.lengths == [1]


async def test_nothing_is_listed_for_a_client_that_is_gone() -> None:
    """Its connection is about to be closed, but a change came first."""
    seen, warned = Lists(), list[str]()
    watcher = ListWatcher(ListChanged(tools=seen, delay=0), {"tools": lambda: None}, warned.append)
    with anyio.fail_after(25):
        async with HandlerTasks.open() as handlers:
            watcher.start(handlers)
            watcher.notify(Notification(CHANGED, {}))
            await anyio.wait_all_tasks_blocked()

    assert (seen.lengths, warned) == ([], [])


@paused
async def test_a_list_that_the_server_does_not_have_is_not_listed() -> None:
    peer, seen = Peer(HANDSHAKE, {"tools": {}}), Lists()
    async with connected(peer, list_changed=ListChanged(prompts=seen), within=100) as client:
        await peer.announce("notifications/prompts/list_changed")
        await anyio.sleep(1)

    assert (seen.lengths, client.warnings) == ([], [])


@pytest.mark.parametrize(("first", "second"), [("asyncio", "trio"), ("trio", "asyncio"), ("asyncio", "asyncio")])
def test_a_client_that_waits_for_changes_can_be_used_in_one_event_loop_after_another(first: str, second: str) -> None:
    """Also if the server does not have the list, so that nothing ends the waiting in the first one."""
    peer, seen = Peer(HANDSHAKE, {"tools": {}}), Lists()
    client = Client(peer, list_changed=ListChanged(prompts=seen))

    async def use() -> None:
        with anyio.fail_after(25):
            async with client:
                await client.list_tools()
                assert client.connected

    anyio.run(use, backend=first)
    anyio.run(use, backend=second)

    assert (peer.connections, seen.lengths, client.warnings) == (2, [], [])


async def test_a_plain_callback_runs_in_a_thread() -> None:
    def show(tools: list[Tool]) -> None:
        handed.append(len(tools))
        anyio.from_thread.run_sync(heard.set)

    handed: list[int] = []
    heard = anyio.Event()
    peer = Peer(HANDSHAKE)
    async with connected(peer, list_changed=ListChanged(tools=show, delay=0)):
        await peer.announce()
        await heard.wait()

    assert handed == [1]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, TypeError, "a callback for at least one of tools, prompts, resources, resource_templates"),
        ({"tools": 5}, TypeError, "tools has to be a function"),
        ({"tools": lambda: None}, TypeError, r"write `def tools\(tools: list\) -> None`"),
        ({"tools": print, "delay": -1}, ValueError, "delay must be at least 0"),
        ({"tools": print, "delay": "soon"}, TypeError, "delay must be a number of seconds"),
    ],
    ids=["nothing", "a number", "no argument", "a negative delay", "a delay in words"],
)
def test_what_makes_no_sense_is_refused(options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ListChanged(**options)
